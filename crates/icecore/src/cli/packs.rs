//! `pack` and `zoom`: context packs for a model, and the original words of any time.

use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, Subcommand, ValueEnum};
use icecore_domain::event::Scope;
use icecore_domain::packs::Pack;
use icecore_domain::{layout, sanitize};
use icecore_engine::PackPreamble;

use super::capture::read_input;
use super::output::{BOLD, CYAN, DIM, Output, YELLOW};
use super::{GlobalArgs, parse};
use crate::bootstrap::OpenMemory;
use crate::error::{AppError, Exit};
use crate::json_output;

#[derive(Debug, Subcommand)]
pub enum PackCommand {
    /// The context of a new session: the latest month, this week, today's sessions; at most 35,840
    /// bytes
    #[command(
        after_help = "Examples:\n  icecore pack upload                       # also written to primers/upload/UPLOAD_PACKAGE.md\n  icecore pack upload --date 2026-02-13     # as it was on that day\n  icecore pack upload --json | jq .left_out"
    )]
    Upload(UploadPackArgs),
    /// Yesterday and today in full, then days, weeks, months, years; at most 20,000 tokens
    #[command(
        after_help = "Examples:\n  icecore pack pyramid\n  icecore pack pyramid --budget 8000\n  icecore pack pyramid --project . --system prompt.md"
    )]
    Pyramid(PyramidPackArgs),
    /// What matters now, on one page of eight sections; at most 3,000 words
    #[command(
        after_help = "Examples:\n  icecore pack recall                       # also written to recall/pack.md\n  icecore pack recall --date 2026-02-13     # as it was at the end of that day\n  icecore pack recall --scope project:app   # with what applies in one project\n  icecore pack recall --json | jq .left_out"
    )]
    Recall(RecallPackArgs),
    /// The context of one prompt: the three oldest commitments and the pages its words trigger
    #[command(
        after_help = "Examples:\n  icecore pack delta \"how is the shopify store doing?\"\n  some-program | icecore pack delta -"
    )]
    Delta(DeltaPackArgs),
    /// The start of an assistant's session: who is who, the recall pack, the saved state, the last
    /// logs; at most 9,000 characters
    #[command(
        after_help = "Examples:\n  icecore pack session-start\n  icecore pack session-start --kind side       # without MEMORY.md\n  icecore pack session-start --budget 4000c"
    )]
    SessionStart(SessionStartPackArgs),
    /// The context of a chat: rules, facts, turns in short, the last turns verbatim
    #[command(
        after_help = "Examples:\n  icecore pack chat --conversation trip\n  icecore pack chat --conversation trip --user ann --json | jq .left_out"
    )]
    Chat(ChatPackArgs),
}

#[derive(Debug, Args)]
pub struct ChatPackArgs {
    /// The conversation
    #[arg(long, value_name = "NAME")]
    conversation: String,
    /// In this end user's space
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
}

#[derive(Debug, Args)]
pub struct RecallPackArgs {
    /// As of this day: 2026-02-13, yesterday …
    #[arg(long, value_name = "DATE")]
    date: Option<String>,
    /// Also statements of this scope: project:NAME, conversation:ID; may be given several times
    #[arg(long, value_name = "SCOPE", value_parser = parse::scope)]
    scope: Vec<Scope>,
}

#[derive(Debug, Args)]
pub struct DeltaPackArgs {
    /// The prompt; `-` reads standard input
    #[arg(required = true, value_name = "PROMPT")]
    prompt: Vec<String>,
    /// As of this day: 2026-02-13, yesterday …; pages are as they are now
    #[arg(long, value_name = "DATE")]
    date: Option<String>,
    /// At most this many characters
    #[arg(long, value_name = "CHARACTERS", value_parser = parse::amount)]
    budget: Option<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SessionKindArg {
    /// Your own session
    Main,
    /// A subagent's session: without MEMORY.md
    Side,
}

#[derive(Debug, Args)]
pub struct SessionStartPackArgs {
    /// The kind of session
    #[arg(long, value_name = "KIND", default_value = "main")]
    kind: SessionKindArg,
    /// As of this day: 2026-02-13, yesterday …; your own files and the saved state are as they are
    /// now
    #[arg(long, value_name = "DATE")]
    date: Option<String>,
    /// At most this many characters
    #[arg(long, value_name = "CHARACTERS", default_value = "9000", value_parser = parse::amount)]
    budget: usize,
}

#[derive(Debug, Args)]
pub struct UploadPackArgs {
    /// As of this day: 2026-02-13, yesterday …
    #[arg(long, value_name = "DATE")]
    date: Option<String>,
    /// At most this many bytes
    #[arg(long, value_name = "BYTES", value_parser = parse::amount)]
    budget: Option<usize>,
}

#[derive(Debug, Args)]
pub struct PyramidPackArgs {
    /// As of this day: 2026-02-13, yesterday …
    #[arg(long, value_name = "DATE")]
    date: Option<String>,
    /// At most this many tokens of history, up to 50,000
    #[arg(long, value_name = "TOKENS", value_parser = parse::amount)]
    budget: Option<usize>,
    /// Instructions to put before everything
    #[arg(long, value_name = "FILE")]
    system: Option<PathBuf>,
    /// A project whose CLAUDE.md, AGENTS.md and README.md are put before the history
    #[arg(long, value_name = "DIR")]
    project: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct ZoomArgs {
    /// When: yesterday, last tuesday, 2026-02-13, 2026-W07, feb 2026, last month, "3 days ago" …
    #[arg(required = true, value_name = "WHEN")]
    when: Vec<String>,
    /// The summary instead of the original words
    #[arg(long)]
    summary: bool,
    /// Only from this conversation
    #[arg(long, value_name = "NAME")]
    conversation: Option<String>,
}

/// Files that describe a project.
const PROJECT_FILES: &[&str] = &["CLAUDE.md", "AGENTS.md", "README.md"];
/// Below this size a pack has no room for content.
const MIN_PACK_BYTES: usize = 512;

fn parse_date(text: Option<&str>, open: &OpenMemory) -> Result<Option<jiff::civil::Date>> {
    let Some(text) = text else { return Ok(None) };
    let span = parse::when(text, open.memory.now().day())?.days();
    if span.first != span.last {
        return Err(
            AppError::new(Exit::Usage, format!("--date: `{text}` is more than one day")).into()
        );
    }
    Ok(Some(span.first))
}

/// Runs `icecore pack`.
pub async fn print_pack_for(
    open: &OpenMemory,
    global: &GlobalArgs,
    kind: &PackCommand,
    out: &mut Output,
) -> Result<()> {
    let pack = match kind {
        PackCommand::Chat(chat) => {
            open.open_chats(global, chat.user.as_deref())
                .await?
                .build_pack(&chat.conversation)
                .await?
        }
        PackCommand::Upload(upload) => {
            let most = open.memory.policy().budget.upload_bytes;
            if let Some(budget) = upload.budget
                && !(MIN_PACK_BYTES..=most).contains(&budget)
            {
                return Err(AppError::new(
                    Exit::Usage,
                    format!("--budget: choose between {MIN_PACK_BYTES} and {most} bytes"),
                )
                .into());
            }
            let date = parse_date(upload.date.as_deref(), open)?;
            let pack = open.memory.assemble_upload(date, upload.budget).await?;
            if date.is_none() && upload.budget.is_none() {
                open.memory.write_upload_package(&pack).await?;
            }
            pack
        }
        PackCommand::Pyramid(pyramid) => {
            let mut before = PackPreamble::default();
            if let Some(file) = &pyramid.system {
                before.system = Some(read_input(file, out)?);
            }
            if let Some(folder) = &pyramid.project {
                if !folder.is_dir() {
                    return Err(AppError::new(
                        Exit::NotFound,
                        format!("{} is not a folder", folder.display()),
                    )
                    .into());
                }
                for name in PROJECT_FILES {
                    let path = folder.join(name);
                    if path.is_file() {
                        before.files.push(((*name).to_owned(), read_input(&path, out)?));
                    }
                }
            }
            open.memory
                .assemble_pyramid(
                    parse_date(pyramid.date.as_deref(), open)?,
                    pyramid.budget,
                    &before,
                )
                .await?
        }
        PackCommand::Recall(recall) => {
            super::ledger::scan_logs(open, out).await;
            let date = parse_date(recall.date.as_deref(), open)?;
            let pack = open.memory.build_recall_pack(date, &recall.scope).await?;
            if date.is_none() && recall.scope.is_empty() {
                // A full or read-only disk must not keep it from being printed.
                if let Err(error) = open.memory.write_recall_pack(&pack).await {
                    out.warn(format!("{} was not written: {error}", layout::RECALL));
                }
            }
            pack
        }
        PackCommand::Delta(delta) => {
            if delta.budget.is_some_and(|budget| budget < MIN_PACK_BYTES) {
                return Err(AppError::new(
                    Exit::Usage,
                    format!("--budget: at least {MIN_PACK_BYTES} characters are needed"),
                )
                .into());
            }
            let date = parse_date(delta.date.as_deref(), open)?;
            open.memory
                .build_prompt_pack(&super::ledger::read_text(&delta.prompt)?, delta.budget, date)
                .await?
        }
        PackCommand::SessionStart(start) => {
            if start.budget < MIN_PACK_BYTES {
                return Err(AppError::new(
                    Exit::Usage,
                    format!("--budget: at least {MIN_PACK_BYTES} characters are needed"),
                )
                .into());
            }
            let kind = match start.kind {
                SessionKindArg::Main => icecore_engine::SessionKind::Main,
                SessionKindArg::Side => icecore_engine::SessionKind::Side,
            };
            open.memory
                .build_session_start(kind, start.budget, parse_date(start.date.as_deref(), open)?)
                .await?
        }
    };
    print_pack(&pack, out)
}

fn print_pack(pack: &Pack, out: &mut Output) -> Result<()> {
    if out.is_json() {
        return out.json(pack);
    }
    out.raw(&sanitize::escape_for_terminal(&pack.text))?;
    out.detail(format!("{} bytes, {} words, about {} tokens", pack.bytes, pack.words, pack.tokens));
    for left in &pack.left_out {
        out.info(format!("left out: {} ({})", left.what, left.why));
    }
    Ok(())
}

/// Runs `icecore zoom`.
pub async fn zoom(open: &OpenMemory, zoom: &ZoomArgs, out: &mut Output) -> Result<()> {
    let when = parse::when(&zoom.when.join(" "), open.memory.now().day())?;
    let zoomed =
        open.memory.load_time_contents(when, zoom.conversation.as_deref(), zoom.summary).await?;
    if zoom.summary {
        if zoomed.summaries.is_empty() {
            return Err(nothing_found(
                &when.to_string(),
                "it is not summarized yet; `icecore zoom` without --summary shows the messages",
            )
            .into());
        }
        if out.is_json() {
            return out.json(&json_output::zoom(&zoomed, true));
        }
        for (at, summary) in zoomed.summaries.iter().enumerate() {
            if at > 0 {
                out.line("")?;
            }
            out.line(format!(
                "{BOLD}{}{BOLD:#}{}",
                summary.period.title(),
                if summary.provisional { "  (provisional)" } else { "" }
            ))?;
            out.line(sanitize::escape_for_terminal(&summary.headline))?;
            if !summary.body.is_empty() {
                out.line("")?;
                out.line(sanitize::escape_for_terminal(&summary.body))?;
            }
            if let Some(similar) = &summary.similar {
                out.line("")?;
                out.line(format!("{DIM}Similar: {similar}{DIM:#}"))?;
            }
        }
        return Ok(());
    }
    if zoomed.records.is_empty() {
        let what = zoom.conversation.as_ref().map_or("there are no messages".into(), |name| {
            format!("there are no messages in {}", sanitize::one_line(name))
        });
        return Err(nothing_found(&when.to_string(), &what).into());
    }
    if out.is_json() {
        return out.json(&json_output::zoom(&zoomed, false));
    }
    let mut last = None;
    for record in &zoomed.records {
        if last != Some(record.ts.day()) {
            if last.is_some() {
                out.line("")?;
            }
            last = Some(record.ts.day());
            out.line(format!(
                "{BOLD}{} {}{BOLD:#}",
                icecore_domain::calendar::weekday_name(record.ts.day()),
                record.ts.day()
            ))?;
        }
        let title = record
            .title
            .as_ref()
            .map_or(String::new(), |title| format!(" ({})", sanitize::one_line(title)));
        let text = sanitize::escape_for_terminal(record.text.trim_end());
        let withdrawn = if record.withdrawn {
            format!(" {YELLOW}(withdrawn){YELLOW:#}")
        } else {
            String::new()
        };
        let mut lines = text.lines();
        let first = lines.next().unwrap_or_default();
        let spoken = format!(
            "{DIM}{}{DIM:#} {CYAN}{}{CYAN:#}{title}{withdrawn}: {first}",
            record.ts.clock_time(),
            sanitize::one_line(record.speaker_name())
        );
        out.line(spoken.trim_end())?;
        lines.try_for_each(|line| out.line(format!("      {line}").trim_end()))?;
        if let Some(parts) = &record.parts {
            out.line(format!(
                "      {DIM}with {}{DIM:#}",
                icecore_domain::budget::truncate_at_word(&sanitize::one_line(parts), 200)
            ))?;
        }
    }
    Ok(())
}

fn nothing_found(when: &str, what: &str) -> AppError {
    AppError::new(Exit::NotFound, format!("{when}: {what}"))
}
