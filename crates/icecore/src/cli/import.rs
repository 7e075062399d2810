//! `import`: imports the histories of other programs.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Args;
use etcetera::BaseStrategy;
use icecore_domain::import::ImportFormat;
use icecore_domain::sanitize;
use icecore_engine::CaptureDefaults;

use super::capture;
use super::output::{BOLD, CYAN, DIM, Output};
use crate::bootstrap::{self, OpenMemory};
use crate::error::{AppError, Exit};
use crate::import::source::{ImportSource, SourceScan};
use crate::import::{ImportReport, ImportRun};

#[derive(Debug, Args)]
pub struct ImportArgs {
    /// Files and folders; `-` reads standard input; `claude-code` and `codex` are the folders where
    /// these programs keep their sessions
    #[arg(value_name = "PATH", required_unless_present = "format")]
    pub paths: Vec<PathBuf>,
    /// The format; detected if not given
    #[arg(long, value_name = "FORMAT", value_parser = parse_format)]
    format: Option<ImportFormat>,
    /// The conversation of messages that name none
    #[arg(long, value_name = "NAME")]
    conversation: Option<String>,
    /// Show what would be imported and write nothing
    #[arg(long)]
    dry_run: bool,
    /// The path is a vault: copy all of it, byte for byte, into a new memory
    #[arg(long, conflicts_with_all = ["format", "conversation", "dry_run", "again"])]
    pub whole: bool,
    /// Read everything again; known messages are still not imported twice
    #[arg(long)]
    again: bool,
}

fn parse_format(word: &str) -> Result<ImportFormat, String> {
    word.parse().map_err(|error: icecore_domain::event::ParseEnumError| error.to_string())
}

/// The folder where a program keeps its history.
fn default_folder(format: ImportFormat) -> Result<PathBuf, AppError> {
    let home = || {
        etcetera::choose_base_strategy().map(|folders| folders.home_dir().to_owned()).map_err(
            |_| {
                AppError::new(
                    Exit::Usage,
                    "HOME is not set, so there is no folder of your own; name one",
                )
            },
        )
    };
    let named = |variable: &str| {
        std::env::var_os(variable).filter(|folder| !folder.is_empty()).map(PathBuf::from)
    };
    let base = |variable: &str, folder: &str| {
        named(variable).map_or_else(|| home().map(|home| home.join(folder)), Ok)
    };
    match format {
        ImportFormat::ClaudeCode => Ok(base("CLAUDE_CONFIG_DIR", ".claude")?.join("projects")),
        ImportFormat::Codex => Ok(base("CODEX_HOME", ".codex")?.join("sessions")),
        other => Err(AppError::new(
            Exit::Usage,
            format!("name the file or folder: there is no usual place for {other}"),
        )),
    }
}

/// The named paths with their formats, if known.
fn resolve_paths(import: &ImportArgs) -> Result<Vec<(PathBuf, Option<ImportFormat>)>, AppError> {
    if import.paths.is_empty() {
        let format =
            import.format.ok_or_else(|| AppError::new(Exit::Usage, "name a file or a folder"))?;
        return Ok(vec![(default_folder(format)?, Some(format))]);
    }
    let mut named = Vec::new();
    for path in &import.paths {
        let word = path.to_str().and_then(|word| word.parse::<ImportFormat>().ok());
        named.push(match word.filter(|_| import.format.is_none() && !path.exists()) {
            Some(format) => (default_folder(format)?, Some(format)),
            None => (path.clone(), import.format),
        });
    }
    Ok(named)
}

/// Runs `icecore import`.
pub async fn import(open: &OpenMemory, import: &ImportArgs, out: &mut Output) -> Result<()> {
    let begun = bootstrap::start_stopwatch();
    let named = resolve_paths(import)?;
    let mut found = SourceScan::for_vault(open.place.folder());
    let mut piped = false;
    for (path, format) in &named {
        if path == Path::new("-") {
            piped = true;
        } else {
            found.add_path(path, *format);
        }
    }
    let bar = out.byte_bar(if import.dry_run { "looking" } else { "importing" });
    bar.set_length(found.sources.iter().map(ImportSource::disk_bytes).sum());
    let moved = |bytes: u64| bar.inc(bytes);
    let known = if import.again { HashMap::new() } else { open.memory.import_progress().await? };
    let gaps =
        CaptureDefaults { conversation: import.conversation.clone(), ..CaptureDefaults::default() };
    let mut run = ImportRun::new(&open.memory, gaps, known, import.dry_run, &moved);
    let mut refused = found.refused;
    for source in &found.sources {
        match run.import_source(source).await {
            // What was read before the error is stored; the other sources are still read.
            Err(error) if error.is::<AppError>() => refused.push(error.downcast()?),
            other => other?,
        }
    }
    if piped {
        run.import_stream(&mut std::io::stdin(), "standard input", import.format).await?;
    }
    run.flush(None).await?;
    bar.finish_and_clear();
    let mut report = run.report;
    report.seconds = begun.seconds();
    report.refused = refused.iter().map(|stop| stop.message.clone()).collect();
    for (what, count) in found.skipped {
        *report.skipped.entry(what).or_default() += count;
    }
    let (complaints, links) = (std::mem::take(&mut report.capture.complaints), found.complaints);
    report.capture.complaints = links.into_iter().chain(complaints).collect();
    let idle = report.is_empty();
    if idle && refused.is_empty() && (report.broken > 0 || report.files.is_empty()) {
        let why = report
            .capture
            .complaints
            .first()
            .cloned()
            .unwrap_or_else(|| format_counts(&report.skipped, 3));
        let places: Vec<String> =
            named.iter().map(|(path, _)| path.display().to_string()).collect();
        let message = format!(
            "nothing was imported from {}: {}",
            places.join(", "),
            if why.is_empty() { "it is empty".into() } else { why }
        );
        return Err(AppError::new(Exit::Usage, message).into());
    }
    // A refused source is the error of the run; the report covers what was imported.
    match !idle || refused.is_empty() {
        true if out.is_json() => out.json(&report)?,
        true => print_import_report(&report, out)?,
        false => {}
    }
    match refused.into_iter().next() {
        Some(first) => Err(first.into()),
        None => Ok(()),
    }
}

fn pluralize(many: usize, noun: &str) -> String {
    format!("{many} {noun}{}", if many == 1 { "" } else { "s" })
}

fn format_counts(counts: &BTreeMap<String, usize>, most: usize) -> String {
    let mut counts: Vec<(&String, &usize)> = counts.iter().collect();
    counts.sort_by_key(|(what, count)| (std::cmp::Reverse(**count), (*what).clone()));
    let shown: Vec<String> = counts
        .iter()
        .take(most)
        .map(|(what, count)| format!("{count} × {}", sanitize::one_line(what)))
        .collect();
    let more = if counts.len() > most { ", …" } else { "" };
    format!("{}{more}", shown.join(", "))
}

fn print_import_report(report: &ImportReport, out: &mut Output) -> Result<()> {
    capture::print_capture_report(&report.capture, out);
    let files: Vec<String> =
        report.files.iter().map(|(format, count)| format!("{count} {format}")).collect();
    if !files.is_empty() {
        out.detail(format!("read: {}", files.join(", ")));
    }
    let span = match (&report.first_day, &report.last_day) {
        (Some(first), Some(last)) if first == last => format!(" of {first}"),
        (Some(first), Some(last)) => {
            format!(" on {}, {first} to {last}", pluralize(report.days, "day"))
        }
        _ => String::new(),
    };
    if report.dry_run {
        out.line(format!(
            "{BOLD}Would import:{BOLD:#} {} in {}{span}, {}",
            pluralize(report.messages, "message"),
            pluralize(report.conversations, "conversation"),
            pluralize(report.learnt, "fact")
        ))?;
    } else {
        let refused = pluralize(report.broken, "line");
        out.line(format!(
            "{BOLD}{} imported{BOLD:#}, {} already stored, {refused} refused",
            pluralize(report.capture.new, "message"),
            report.capture.same
        ))?;
        if report.conversations > 0 {
            out.info(format!("{}{span}", pluralize(report.conversations, "conversation")));
        }
        if report.learnt + report.facts_known > 0 {
            out.line(format!(
                "{BOLD}{} learnt{BOLD:#}, {} already known",
                pluralize(report.learnt, "fact"),
                report.facts_known
            ))?;
        }
    }
    if report.facts_waiting > 0 {
        let verb = if report.dry_run { "would wait" } else { "wait" };
        out.info(format!(
            "{} {verb} for confirmation: `icecore events --quarantined`",
            report.facts_waiting
        ));
    }
    if report.unchanged > 0 {
        out.info(format!(
            "{} read before and unchanged; --again reads them once more",
            pluralize(report.unchanged, "file")
        ));
    }
    if !report.skipped.is_empty() {
        out.info(format!("{DIM}skipped: {}{DIM:#}", format_counts(&report.skipped, 12)));
    }
    if report.dry_run {
        if report.broken > 0 {
            out.line(format!("{} could not be read", pluralize(report.broken, "line")))?;
        }
        out.info("Dry run: nothing was written.");
        return Ok(());
    }
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    let (rate, megabytes) = (
        report.capture.new as f64 / report.seconds.max(0.001),
        report.bytes as f64 / 1e6 / report.seconds.max(0.001),
    );
    out.detail(format!(
        "{:.1} s, {rate:.0} messages and {megabytes:.1} MB a second",
        report.seconds
    ));
    if report.capture.new > 0 {
        out.info(format!(
            "{CYAN}icecore rollup due --backfill{CYAN:#} summarizes them, newest first"
        ));
    }
    Ok(())
}
