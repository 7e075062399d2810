//! Commands that store messages, transcripts and assistant states. All text passes the capture
//! filter before anything is written.

use std::io::{IsTerminal, Read};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use icecore_domain::calendar::Moment;
use icecore_domain::event::Origin;
use icecore_domain::layout;
use icecore_domain::record::{IncomingMessage, Role};
use icecore_domain::transcript::TranscriptFormat;
use icecore_engine::{CaptureDefaults, CaptureReport, RollupReport, RollupRequest};
use serde_json::json;

use super::output::{CYAN, DIM, Output};
use super::{ledger, parse, summaries};
use crate::bootstrap::OpenMemory;
use crate::error::{AppError, Exit};

#[derive(Debug, Subcommand)]
pub enum MessageCommand {
    /// Store one message
    #[command(
        after_help = "Examples:\n  icecore message add \"we use port 7431\" --conversation app\n  icecore message add --role assistant --conversation app --id m2 \"noted\"\n  some-program | icecore message add -\n\nA second message with the same --conversation and --id is the same message."
    )]
    Add(AddMessageArgs),
}

#[derive(Debug, Args)]
pub struct AddMessageArgs {
    /// The words; `-` reads standard input
    #[arg(required = true, value_name = "TEXT")]
    text: Vec<String>,
    /// The conversation it belongs to
    #[arg(long, value_name = "NAME")]
    conversation: Option<String>,
    /// The session within the conversation
    #[arg(long, value_name = "NAME")]
    session: Option<String>,
    /// Its id within the conversation; derived from the text if not given
    #[arg(long, value_name = "ID")]
    id: Option<String>,
    /// The speaker: user, assistant, system, tool
    #[arg(long, value_name = "ROLE", default_value = "user", value_parser = parse::role)]
    role: Role,
    /// The speaker's name
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// When it was said, e.g. 2026-02-13T09:30:00+01:00; now if not given
    #[arg(long, value_name = "RFC3339", value_parser = parse::moment)]
    ts: Option<Moment>,
    /// Tool uses and files that came with it, as JSON
    #[arg(long, value_name = "JSON", value_parser = parse::json)]
    parts: Option<String>,
}

#[derive(Debug, Subcommand)]
pub enum SessionCommand {
    /// Store a transcript and write its primer
    #[command(
        after_help = "Examples:\n  icecore session add talk.md\n  icecore session add ~/.claude/projects/app/5b0e.jsonl --conversation app\n  icecore session add notes.txt --at 2026-02-13T09:30:00+01:00\n\nPlain text, Markdown and JSONL are detected. Adding a transcript that has grown adds what is new."
    )]
    Add(AddSessionArgs),
}

#[derive(Debug, Args)]
pub struct AddSessionArgs {
    /// The transcript; `-` reads standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Its format; detected if not given
    #[arg(long, value_name = "FORMAT", value_parser = parse::shape)]
    format: Option<TranscriptFormat>,
    /// The conversation it belongs to
    #[arg(long, value_name = "NAME")]
    conversation: Option<String>,
    /// The session's name; the file's if not given
    #[arg(long, value_name = "NAME")]
    session: Option<String>,
    /// The time of turns that have none; now if not given
    #[arg(long, value_name = "RFC3339", value_parser = parse::moment)]
    at: Option<Moment>,
    /// Store the messages only; the next `icecore rollup` writes the primer
    #[arg(long)]
    no_primer: bool,
}

#[derive(Debug, Args)]
pub struct SaveStateArgs {
    /// The state; `-` or nothing reads standard input, on a terminal
    /// memory/state/assistant-state.md
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// The title of its entry
    #[arg(long, short, value_name = "TEXT")]
    title: Option<String>,
    /// The origin of the words: user, assistant, tool, import, file
    #[arg(long, value_name = "WHO", default_value = "assistant", value_parser = parse::origin)]
    origin: Origin,
}

/// The longest transcript or state, in bytes.
const MAX_FILE_BYTES: u64 = 256 * 1024 * 1024;
fn open_input(path: &Path) -> Result<Box<dyn Read>> {
    if path == Path::new("-") {
        return Ok(Box::new(std::io::stdin()));
    }
    let file = std::fs::File::open(path).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => {
            AppError::new(Exit::NotFound, format!("{} does not exist", path.display()))
        }
        _ => AppError::new(Exit::Failure, format!("{} cannot be read: {error}", path.display())),
    })?;
    if file.metadata().is_ok_and(|found| found.is_dir()) {
        return Err(AppError::new(
            Exit::Usage,
            format!("{} is a folder; name a file", path.display()),
        )
        .into());
    }
    Ok(Box::new(file))
}

/// Reads a whole file as text; invalid UTF-8 is replaced, with a warning.
pub fn read_input(path: &Path, out: &mut Output) -> Result<String> {
    let mut bytes = Vec::new();
    open_input(path)?
        .take(MAX_FILE_BYTES + 1)
        .read_to_end(&mut bytes)
        .with_context(|| format!("reading {}", path.display()))?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(AppError::new(
            Exit::Usage,
            format!("{} has more than {MAX_FILE_BYTES} bytes", path.display()),
        )
        .into());
    }
    // A few zeros are the trace of a crash; many are another kind of file, UTF-16 included.
    let zeros = bytes.iter().filter(|&&byte| byte == 0).count();
    if zeros > 0 && (zeros > bytes.len() / 10 || !bytes.is_ascii()) {
        return Err(
            AppError::new(Exit::Usage, format!("{} is not a text file", path.display())).into()
        );
    }
    Ok(match String::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => {
            out.warn(format!(
                "{} is not UTF-8; invalid bytes were replaced by \u{fffd}",
                path.display()
            ));
            String::from_utf8_lossy(error.as_bytes()).into_owned()
        }
    })
}

/// Prints what the capture filter did.
pub fn print_capture_report(report: &CaptureReport, out: &mut Output) {
    ledger::warn_hidden_secrets(&report.secrets, out);
    if report.own_bytes > 0 {
        out.info(format!(
            "{} bytes were text that icecore had injected; they were left out",
            report.own_bytes
        ));
    }
    if !report.others.is_empty() {
        let shown: Vec<String> = report
            .others
            .iter()
            .take(5)
            .map(|(name, count)| format!("{} ({count})", icecore_domain::sanitize::one_line(name)))
            .collect();
        let more = if report.others.len() > 5 { ", …" } else { "" };
        out.info(format!(
            "messages by other people: {}{more}. They cannot set your rules; if one of these names is you, add it to `names` under \
             `[person]` in icecore.toml",
            shown.join(", "),
        ));
    }
    if report.forgotten > 0 {
        out.info(format!(
            "{} messages contained forgotten text; it was removed, or the message was skipped",
            report.forgotten
        ));
    }
    if report.passed_over > 0 {
        out.info(format!("{} empty messages were skipped", report.passed_over));
    }
    if !report.revised.is_empty() {
        let shown: Vec<&str> = report.revised.iter().take(5).map(String::as_str).collect();
        out.warn(format!(
            "{} already stored with other text: {}{}. The new text counts; the old one stays in the file",
            report.revised.len(),
            shown.join(", "),
            if report.revised.len() > 5 { ", …" } else { "" }
        ));
    }
    for cut in report.cut.iter().take(10) {
        out.warn(cut);
    }
    for complaint in report.complaints.iter().take(10) {
        out.warn(complaint);
    }
    if report.complaints.len() > 10 {
        out.warn(format!("and {} more", report.complaints.len() - 10));
    }
}

/// Runs `icecore message add`.
pub async fn add_message(
    open: &OpenMemory,
    MessageCommand::Add(add): &MessageCommand,
    out: &mut Output,
) -> Result<()> {
    let said = IncomingMessage {
        ts: add.ts,
        conversation: add.conversation.clone(),
        session: add.session.clone(),
        id: add.id.clone(),
        role: Some(add.role),
        name: add.name.clone(),
        text: ledger::read_text(&add.text)?,
        parts: add.parts.clone(),
        ..IncomingMessage::default()
    };
    if said.text.trim().is_empty() && said.parts.is_none() {
        return Err(
            AppError::new(Exit::Usage, "there is nothing to store: the text is empty").into()
        );
    }
    let taken = open.memory.add_messages(vec![said], &CaptureDefaults::default()).await?;
    require_accepted(&taken)?;
    if out.is_json() {
        return out.json_named("taken", &taken);
    }
    print_capture_report(&taken, out);
    out.line(match (taken.new, taken.same, taken.passed_over) {
        (1, ..) => "stored",
        (_, 1, _) => "already stored",
        (_, _, 1) => "nothing new: it was text that icecore had injected",
        _ => "stored as a revision",
    })
}

/// A single message that was refused is an error.
fn require_accepted(report: &CaptureReport) -> Result<()> {
    match report.complaints.first() {
        Some(complaint) if report.new + report.same + report.revised.len() == 0 => {
            Err(AppError::new(Exit::Usage, format!("nothing was stored: {complaint}")).into())
        }
        _ => Ok(()),
    }
}

/// Runs `icecore session add`.
pub async fn add_session(
    open: &OpenMemory,
    SessionCommand::Add(add): &SessionCommand,
    out: &mut Output,
) -> Result<()> {
    let text = read_input(&add.file, out)?;
    let name = add
        .file
        .file_stem()
        .filter(|name| *name != "-")
        .map_or("session".into(), |name| name.to_string_lossy().into_owned());
    let gaps = CaptureDefaults {
        conversation: add.conversation.clone(),
        session: add.session.clone(),
        origin: None,
        ..CaptureDefaults::default()
    };
    let taken = open.memory.import_session(&text, &name, add.format, add.at, &gaps).await?;
    let rolled = if add.no_primer {
        RollupReport::default()
    } else {
        let wish = RollupRequest {
            tier: Some(icecore_domain::summary::Tier::Session),
            days: None,
            sessions: Some(taken.sessions.clone()),
        };
        match summaries::run_rollup(open, &wish, out).await {
            // The messages are stored; only the primer has to wait.
            Err(error)
                if error
                    .downcast_ref::<icecore_engine::Error>()
                    .is_some_and(|error| matches!(error, icecore_engine::Error::Busy(_))) =>
            {
                out.warn("another rollup is running; the next `icecore rollup` writes the primer");
                RollupReport::default()
            }
            other => other?,
        }
    };
    if out.is_json() {
        return out.json(&json!({ "session": taken, "rolled": rolled }));
    }
    print_capture_report(&taken.capture, out);
    for (what, count) in &taken.skipped {
        out.detail(format!("skipped: {count} × {what}"));
    }
    out.line(format!(
        "{} turns read as {}: {} new, {} already stored",
        taken.turns, taken.shape, taken.capture.new, taken.capture.same
    ))?;
    match add.no_primer {
        true if taken.capture.new > 0 => out.info("the next `icecore rollup` writes its primer"),
        true => {}
        false => summaries::print_summaries(&rolled, out)?,
    }
    Ok(())
}

/// Runs `icecore save-state`.
pub async fn save_state(open: &OpenMemory, save: &SaveStateArgs, out: &mut Output) -> Result<()> {
    let text = match &save.file {
        Some(file) => read_input(file, out)?,
        None if std::io::stdin().is_terminal() => {
            let bytes = open.memory.store().document(&layout::STATE.parse()?).await?;
            let bytes = bytes.ok_or_else(|| {
                AppError::new(
                    Exit::NotFound,
                    format!("there is no {} yet; name a file or pipe the state in", layout::STATE),
                )
            })?;
            String::from_utf8_lossy(&bytes).into_owned()
        }
        None => read_input(Path::new("-"), out)?,
    };
    if text.trim().is_empty() {
        return Err(
            AppError::new(Exit::Usage, "there is nothing to save: the state is empty").into()
        );
    }
    let saved = open.memory.save_state(&text, save.title.as_deref(), save.origin).await?;
    if out.is_json() {
        return out.json_named("saved", &saved);
    }
    print_capture_report(&saved.capture, out);
    out.line(format!("saved in {CYAN}{}{CYAN:#}, kept in {}", saved.state, saved.snapshot))?;
    match &saved.why_not {
        None => out.line(format!("entered in {}", layout::LAST_DAY)),
        Some(why) => out.line(format!("{DIM}no entry in {}: {why}{DIM:#}", layout::LAST_DAY)),
    }
}
