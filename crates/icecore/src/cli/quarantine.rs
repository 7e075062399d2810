//! `quarantine`: statements from tools and strangers, always shown as quotations with their
//! speaker.

use anyhow::Result;
use clap::{Args, Subcommand};
use comfy_table::{Cell, Color};
use icecore_domain::event::{Act, Origin};
use icecore_domain::id::EventId;
use icecore_domain::sanitize;
use icecore_engine::{QuarantineFilter, QuarantinedEvent};

use super::output::{CYAN, DIM, Output};
use super::{event_format, ledger, parse};
use crate::bootstrap::OpenMemory;
use crate::error::{AppError, Exit};
use crate::json_output;

#[derive(Debug, Subcommand)]
pub enum QuarantineCommand {
    /// List quarantined statements, quoted, with their speakers
    #[command(
        after_help = "Examples:\n  icecore quarantine list\n  icecore quarantine list --origin tool --since -7d\n  icecore quarantine list --json | jq -r '.quarantined[] | \"\\(.id) \\(.origin)\"'"
    )]
    List(QuarantineFilterArgs),
    /// Confirm a statement: from now on it is ordinary memory
    #[command(
        after_help = "Examples:\n  icecore quarantine confirm EVT-20260213-001\n  icecore quarantine confirm 20260213-1 --note \"checked on their site\"\n\nOnly by id, so that each statement is read before it is confirmed."
    )]
    Confirm(ConfirmQuarantinedArgs),
    /// Drop a statement; the same words do not bring it back
    #[command(
        after_help = "Examples:\n  icecore quarantine drop EVT-20260213-001\n  icecore quarantine drop --session app/s1       # everything of a session\n  icecore quarantine drop --origin import\n  icecore quarantine drop --all"
    )]
    Drop(DropQuarantinedArgs),
}

#[derive(Debug, Args)]
pub struct QuarantineFilterArgs {
    /// Only this origin: tool or import
    #[arg(long, value_name = "WHO", value_parser = parse::origin)]
    origin: Option<Origin>,
    /// Only from this session
    #[arg(long, value_name = "NAME")]
    session: Option<String>,
    /// Only recorded on this day or later: 2026-02-13, yesterday, -7d, -2w
    #[arg(long, value_name = "DAY", allow_hyphen_values = true)]
    since: Option<String>,
    /// At most this many, the newest ones
    #[arg(long, short = 'n', value_name = "N")]
    limit: Option<usize>,
}

#[derive(Debug, Args)]
pub struct ConfirmQuarantinedArgs {
    /// The events, e.g. EVT-20260213-001 or 20260213-1
    #[arg(required = true, value_name = "ID", value_parser = parse::id)]
    ids: Vec<EventId>,
    /// The reason
    #[arg(long, value_name = "TEXT")]
    note: Option<String>,
}

#[derive(Debug, Args)]
pub struct DropQuarantinedArgs {
    /// The events, e.g. EVT-20260213-001 or 20260213-1
    #[arg(value_name = "ID", value_parser = parse::id, conflicts_with_all = ["all", "origin", "session", "since", "limit"])]
    ids: Vec<EventId>,
    /// Everything in quarantine
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    which: QuarantineFilterArgs,
    /// The reason
    #[arg(long, value_name = "TEXT")]
    note: Option<String>,
}

impl QuarantineFilterArgs {
    fn to_query(&self, open: &OpenMemory) -> Result<QuarantineFilter> {
        let since =
            ledger::parse_day_option("--since", self.since.as_deref(), open.memory.now().day())?;
        Ok(QuarantineFilter {
            origin: self.origin,
            session: self.session.clone(),
            since,
            limit: self.limit,
        })
    }

    fn is_any(&self) -> bool {
        self.origin.is_some()
            || self.session.is_some()
            || self.since.is_some()
            || self.limit.is_some()
    }
}

/// Runs `icecore quarantine`.
pub async fn run_quarantine(
    open: &OpenMemory,
    asked: &QuarantineCommand,
    out: &mut Output,
) -> Result<()> {
    match asked {
        QuarantineCommand::List(which) => list_quarantined(open, which, out).await,
        QuarantineCommand::Confirm(confirm) => {
            let acted =
                open.memory.confirm_quarantined(confirm.ids.clone(), confirm.note.clone()).await?;
            ledger::print_acts(Act::Confirm, &acted, out)
        }
        QuarantineCommand::Drop(drop) => {
            if drop.ids.is_empty() && !drop.all && !drop.which.is_any() {
                let what =
                    "name what to drop: ids, --session NAME, --origin WHO, --since DAY, or --all";
                return Err(AppError::new(Exit::Usage, what).into());
            }
            let ids = match drop.ids.as_slice() {
                [] => open
                    .memory
                    .list_quarantined(&drop.which.to_query(open)?)
                    .await?
                    .iter()
                    .map(|one| one.id)
                    .collect(),
                ids => ids.to_vec(),
            };
            let acted = if ids.is_empty() {
                Vec::new()
            } else {
                open.memory.drop_quarantined(ids, drop.note.clone()).await?
            };
            if acted.is_empty() && !out.is_json() {
                out.info("No matching statement is quarantined. `icecore quarantine list` lists all of them.");
                return Ok(());
            }
            ledger::print_acts(Act::Retract, &acted, out)
        }
    }
}

async fn list_quarantined(
    open: &OpenMemory,
    which: &QuarantineFilterArgs,
    out: &mut Output,
) -> Result<()> {
    ledger::scan_logs(open, out).await;
    let waiting = open.memory.list_quarantined(&which.to_query(open)?).await?;
    if out.is_json() {
        return out.json(&json_output::quarantine(&waiting));
    }
    if waiting.is_empty() {
        out.info("The quarantine is empty.");
        return Ok(());
    }
    let narrow = out.is_narrow();
    out.table(
        if narrow {
            &["ID", "FROM", "THEIR WORDS"]
        } else {
            &["ID", "FROM", "SAID", "TYPE", "THEIR WORDS"]
        },
        waiting.iter().map(|one| quarantine_row(one, narrow)).collect(),
    )?;
    out.info(format!(
        "{DIM}These are words of tools, strangers and other people: neither facts nor instructions.{DIM:#} {CYAN}icecore quarantine confirm ID{CYAN:#} accepts one, {CYAN}drop ID{CYAN:#} rejects it; {CYAN}icecore why ID{CYAN:#} shows where it was said."
    ));
    Ok(())
}

fn quarantine_row(one: &QuarantinedEvent, narrow: bool) -> Vec<Cell> {
    let who = one.speaker.as_deref().map_or_else(|| one.origin.to_string(), sanitize::one_line);
    let from = match &one.session {
        Some(session) => format!("{who}, {}", sanitize::one_line(session)),
        None => who,
    };
    let mut words = format!("\u{201c}{}\u{201d}", event_format::one_line_excerpt(&one.content));
    if one.as_a_rule {
        words.push_str(" (looks like a rule)");
    }
    let mut row = vec![Cell::new(one.id).fg(Color::Cyan), Cell::new(from)];
    if !narrow {
        row.push(Cell::new(one.said_at.get(..16).unwrap_or(&one.said_at).replace('T', " ")));
        row.push(Cell::new(one.kind));
    }
    row.push(Cell::new(words));
    row
}
