//! `forget`: what is to go is shown, asked about, taken away, and told.

use std::io::{IsTerminal, Write};

use anyhow::Result;
use clap::Args;
use icecore_domain::plain;
use icecore_engine::{Forget as Wish, Forgetting, Forgot};

use super::out::{BOLD, DIM, GREEN, Out, YELLOW};
use crate::error::{Exit, Stop};
use crate::wire::{self, Open};

/// So many places are listed; -v lists all.
const SHOWN: usize = 20;

#[derive(Debug, Args)]
pub struct Forget {
    /// An event, the id of a message, a memory's name, or conversation/NAME
    #[arg(value_name = "ID", required_unless_present_any = ["matching", "unfinished"])]
    ids: Vec<String>,
    /// Every line with these words, wherever it stands; may be given several times
    #[arg(long, value_name = "TEXT")]
    matching: Vec<String>,
    /// Only show what would go
    #[arg(long)]
    dry_run: bool,
    /// Also from every snapshot; their ids change
    #[arg(long)]
    history: bool,
    /// Do it without asking
    #[arg(long)]
    yes: bool,
    /// Why; kept with the tombstone
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Finish what an earlier call began and could not finish
    #[arg(long)]
    unfinished: bool,
}

pub async fn forget(open: &Open, forget: &Forget, out: &mut Out) -> Result<()> {
    let wish = Wish {
        ids: forget.ids.clone(),
        matching: forget.matching.clone(),
        history: forget.history,
        reason: forget.reason.clone(),
        by: "command line".into(),
    };
    if forget.dry_run {
        let would = open.memory.would_forget(&wish).await?;
        if out.is_json() {
            return out.json(&would);
        }
        return tell(&would, true, out);
    }
    if !forget.yes {
        let would = open.memory.would_forget(&wish).await?;
        if !std::io::stdin().is_terminal() || out.is_json() {
            let message = format!(
                "{} would be gone for good; say so with --yes, or look first with --dry-run",
                counted(&would)
            );
            return Err(Stop::new(Exit::Usage, message).into());
        }
        tell(&would, true, out)?;
        if !asked(out)? {
            out.say("Nothing was changed.");
            return Ok(());
        }
    }
    let models = wire::models()?;
    let bar = out.bar("Forgetting");
    let watch = |what: &str, done: usize, all: usize| {
        bar.set_message(what.to_owned());
        bar.set_length(all as u64);
        bar.set_position(done as u64);
    };
    let forgot = open.memory.forget(&wish, models.asking().as_ref(), &watch).await;
    bar.finish_and_clear();
    let forgot = forgot?;
    if out.is_json() {
        return out.json(&forgot);
    }
    tell(&forgot.gone, false, out)?;
    tell_rest(&forgot, out)
}

fn asked(out: &mut Out) -> Result<bool> {
    out.flush()?;
    let mut talk = std::io::stderr();
    write!(talk, "Forget this for good? [y/N] ")?;
    talk.flush()?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim().to_lowercase().as_str(), "y" | "yes"))
}

fn many(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

fn counted(gone: &Forgetting) -> String {
    let parts = [
        (gone.records, "message"),
        (gone.events.len(), "event"),
        (gone.turns, "turn"),
        (gone.places.len(), "file"),
    ];
    let told: Vec<String> = parts
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| many(*count, what))
        .collect();
    if told.is_empty() { "nothing".into() } else { format!("what it says in {}", told.join(", ")) }
}

fn tell(gone: &Forgetting, would: bool, out: &mut Out) -> Result<()> {
    if gone.is_empty() {
        out.line(if would {
            "There is nothing of it in memory."
        } else {
            "There was nothing of it in memory."
        })?;
    } else {
        out.line(format!(
            "{BOLD}{}{BOLD:#} {}, {}, {}; {} told of their days and {}",
            if would { "Would forget" } else { "Forgot" },
            many(gone.records, "message"),
            many(gone.events.len(), "event"),
            many(gone.turns, "turn"),
            if gone.summaries.len() == 1 {
                "1 summary".into()
            } else {
                format!("{} summaries", gone.summaries.len())
            },
            if would { "would go, too" } else { "went, too" },
        ))?;
        let shown = if out.is_verbose() { gone.places.len() } else { SHOWN };
        for place in gone.places.iter().take(shown) {
            let what = place
                .lines
                .map_or_else(|| "the whole file".to_owned(), |lines| many(lines, "line"));
            out.line(format!("  {} {DIM}{what}{DIM:#}", plain::one_line(&place.path)))?;
        }
        if gone.places.len() > shown {
            out.line(format!(
                "  {DIM}and {} more files; -v lists them{DIM:#}",
                gone.places.len() - shown
            ))?;
        }
    }
    for path in &gone.left {
        out.line(format!(
            "{YELLOW}!{YELLOW:#} {} says it and is not icecore's to change; take it out by hand",
            plain::one_line(path)
        ))?;
    }
    Ok(())
}

fn tell_rest(forgot: &Forgot, out: &mut Out) -> Result<()> {
    if !forgot.pressed.is_empty() {
        out.line(format!(
            "{GREEN}+{GREEN:#} made again from what is left: {}",
            forgot.pressed.join(", ")
        ))?;
    }
    if let Some((snapshots, files)) = forgot.rewritten {
        out.line(format!(
            "{GREEN}+{GREEN:#} {} made anew, {} in them changed; a clone elsewhere still has the old ones, and pushing needs --force",
            many(snapshots, "snapshot"),
            many(files, "file"),
        ))?;
    }
    if let Some((standing, all)) = forgot.snapshots.filter(|(standing, _)| *standing > 0) {
        out.line(format!(
            "{YELLOW}!{YELLOW:#} it still stands in {standing} of {}; the same call with --history takes it out of them",
            many(all, "snapshot")
        ))?;
    }
    for note in &forgot.notes {
        out.line(format!("{YELLOW}!{YELLOW:#} {note}"))?;
    }
    if let Some(stone) = &forgot.tombstone {
        out.say(format!("{stone} in memory/forgotten.jsonl keeps when and a hash. Backups and clones elsewhere are out of reach."));
    }
    Ok(())
}
