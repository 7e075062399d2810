//! `forget`: shows what would be erased, asks for confirmation, erases it and reports the result.

use std::io::{IsTerminal, Write};

use anyhow::Result;
use clap::Args;
use icecore_domain::sanitize;
use icecore_engine::{ForgetPlan, ForgetReport, ForgetRequest};

use super::output::{BOLD, DIM, GREEN, Output, YELLOW};
use crate::bootstrap::{self, OpenMemory};
use crate::error::{AppError, Exit};

/// At most this many files are listed; -v lists all.
const MAX_SHOWN_FILES: usize = 20;

#[derive(Debug, Args)]
pub struct ForgetArgs {
    /// An event, the id of a message, a memory's name, or conversation/NAME
    #[arg(value_name = "ID", required_unless_present_any = ["matching", "unfinished"])]
    ids: Vec<String>,
    /// Every line with these words, in any file; may be given several times
    #[arg(long, value_name = "TEXT")]
    matching: Vec<String>,
    /// Only show what would be erased
    #[arg(long)]
    dry_run: bool,
    /// Also erase it from every snapshot; their ids change
    #[arg(long)]
    history: bool,
    /// Do not ask for confirmation
    #[arg(long)]
    yes: bool,
    /// The reason; stored in the tombstone
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Finish an earlier call that was interrupted
    #[arg(long)]
    unfinished: bool,
}

/// Runs `icecore forget`.
pub async fn forget(open: &OpenMemory, forget: &ForgetArgs, out: &mut Output) -> Result<()> {
    let wish = ForgetRequest {
        ids: forget.ids.clone(),
        matching: forget.matching.clone(),
        history: forget.history,
        reason: forget.reason.clone(),
        by: "command line".into(),
    };
    if forget.dry_run {
        let would = open.memory.preview_forget(&wish).await?;
        if out.is_json() {
            return out.json(&would);
        }
        return print_forgetting(&would, true, out);
    }
    if !forget.yes {
        let would = open.memory.preview_forget(&wish).await?;
        if !std::io::stdin().is_terminal() || out.is_json() {
            let message = format!(
                "this erases {} permanently; pass --yes to do it, or --dry-run to see it",
                describe_counts(&would)
            );
            return Err(AppError::new(Exit::Usage, message).into());
        }
        print_forgetting(&would, true, out)?;
        if !confirm_forget(out)? {
            out.info("Nothing was changed.");
            return Ok(());
        }
    }
    let models = bootstrap::open_models()?;
    let bar = out.byte_bar("Forgetting");
    let watch = |what: &str, done: usize, all: usize| {
        bar.set_message(what.to_owned());
        bar.set_length(all as u64);
        bar.set_position(done as u64);
    };
    let forgot = open.memory.forget(&wish, models.model_budget().as_ref(), &watch).await;
    bar.finish_and_clear();
    let forgot = forgot?;
    if out.is_json() {
        return out.json(&forgot);
    }
    print_forgetting(&forgot.gone, false, out)?;
    print_follow_up(&forgot, out)
}

fn confirm_forget(out: &mut Output) -> Result<bool> {
    out.flush()?;
    let mut talk = std::io::stderr();
    write!(talk, "Erase this permanently? [y/N] ")?;
    talk.flush()?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim().to_lowercase().as_str(), "y" | "yes"))
}

fn pluralize(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

fn describe_counts(plan: &ForgetPlan) -> String {
    let parts = [
        (plan.records, "message"),
        (plan.events.len(), "event"),
        (plan.turns, "turn"),
        (plan.places.len(), "file"),
    ];
    let told: Vec<String> = parts
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| pluralize(*count, what))
        .collect();
    if told.is_empty() {
        "nothing".into()
    } else {
        format!("the matching text in {}", told.join(", "))
    }
}

fn print_forgetting(plan: &ForgetPlan, would: bool, out: &mut Output) -> Result<()> {
    if plan.is_empty() {
        out.line(if would { "Nothing in memory matches." } else { "Nothing in memory matched." })?;
    } else {
        out.line(format!(
            "{BOLD}{}{BOLD:#} {}, {}, {}; {} of their days {}",
            if would { "Would forget" } else { "Forgot" },
            pluralize(plan.records, "message"),
            pluralize(plan.events.len(), "event"),
            pluralize(plan.turns, "turn"),
            if plan.summaries.len() == 1 {
                "1 summary".into()
            } else {
                format!("{} summaries", plan.summaries.len())
            },
            if would { "would be erased, too" } else { "erased, too" },
        ))?;
        let shown = if out.is_verbose() { plan.places.len() } else { MAX_SHOWN_FILES };
        for place in plan.places.iter().take(shown) {
            let what = place
                .lines
                .map_or_else(|| "the whole file".to_owned(), |lines| pluralize(lines, "line"));
            out.line(format!("  {} {DIM}{what}{DIM:#}", sanitize::one_line(&place.path)))?;
        }
        if plan.places.len() > shown {
            out.line(format!(
                "  {DIM}and {} more files; -v lists them{DIM:#}",
                plan.places.len() - shown
            ))?;
        }
    }
    for path in &plan.left {
        out.line(format!(
            "{YELLOW}!{YELLOW:#} {} contains it and does not belong to icecore; edit it by hand",
            sanitize::one_line(path)
        ))?;
    }
    Ok(())
}

fn print_follow_up(report: &ForgetReport, out: &mut Output) -> Result<()> {
    if !report.rebuilt.is_empty() {
        out.line(format!(
            "{GREEN}+{GREEN:#} rebuilt from the remaining sources: {}",
            report.rebuilt.join(", ")
        ))?;
    }
    if let Some((snapshots, files)) = report.rewritten {
        out.line(format!(
            "{GREEN}+{GREEN:#} {} rewritten, {} in them changed; clones elsewhere still have the old ones, and pushing needs --force",
            pluralize(snapshots, "snapshot"),
            pluralize(files, "file"),
        ))?;
    }
    if let Some((standing, all)) = report.snapshots.filter(|(standing, _)| *standing > 0) {
        out.line(format!(
            "{YELLOW}!{YELLOW:#} it is still in {standing} of {}; repeat the call with --history to erase it there",
            pluralize(all, "snapshot")
        ))?;
    }
    for note in &report.notes {
        out.line(format!("{YELLOW}!{YELLOW:#} {note}"))?;
    }
    if let Some(stone) = &report.tombstone {
        out.info(format!("{stone} in memory/forgotten.jsonl keeps the time and a hash. Backups and clones elsewhere are out of reach."));
    }
    Ok(())
}
