//! Commands that create, check, repair and restore a vault, and show its status.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::{Args, Subcommand};
use icecore_domain::calendar::weekday_name;
use icecore_domain::ledger::integrity::IntegrityFinding;
use icecore_domain::sanitize;
use icecore_engine::config::Policy;
use icecore_engine::{HookFailure, IntegrityStatus, MemoryStatus, VerifyReport};
use serde_json::json;

use super::output::{BOLD, CYAN, DIM, GREEN, Output, RED, YELLOW, progress_updater};
use super::{GlobalArgs, event_format, ledger};
use crate::bootstrap::{self, OpenMemory};
use crate::error::{AppError, Exit};
use crate::json_output;

#[derive(Debug, Args)]
pub struct InitArgs {
    /// The folder; your own data folder if not given
    #[arg(value_name = "DIR")]
    folder: Option<PathBuf>,
    /// The time zone whose days are the vault's, e.g. Europe/Berlin; the system's if not given
    #[arg(long, value_name = "ZONE")]
    tz: Option<String>,
}

#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Repair what can be repaired without data loss
    #[arg(long)]
    fix: bool,
}

#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Show every setting in force
    #[command(after_help = "Example:\n  icecore vault config show")]
    Show,
    /// Check icecore.toml
    #[command(after_help = "Example:\n  icecore vault config check --json | jq .ok")]
    Check,
    /// Replace icecore.toml, if the new one is valid: for a memory in a database, which has no file
    /// to edit
    #[command(after_help = "Example:\n  icecore vault config set icecore.toml --space ann")]
    Set {
        /// The file; `-` reads standard input
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
}

#[derive(Debug, Args)]
pub struct SnapshotArgs {
    /// The reason
    #[arg(long, short, value_name = "TEXT", default_value = "snapshot", hide_default_value = true)]
    note: String,
    /// List the snapshots instead of making one
    #[arg(long, short)]
    list: bool,
}

#[derive(Debug, Args)]
pub struct UndoArgs {
    /// The snapshot to go back to; the last one if not given
    #[arg(long, value_name = "ID")]
    to: Option<String>,
}

/// A vault, or a space of a database, that was just created.
pub struct NewVault {
    pub open: OpenMemory,
    pub zone: String,
    pub git: bool,
    pub notes: Vec<String>,
}

/// Creates a vault with its first snapshot.
pub async fn create_vault(
    global: &GlobalArgs,
    folder: Option<&Path>,
    zone: Option<&str>,
) -> Result<NewVault> {
    let (open, guessed) = bootstrap::create_memory(global, folder, zone).await?;
    let mut notes = open.memory.store().opening_repairs().await;
    notes.extend(guessed);
    let first = if open.place.folder().is_some() { "a new vault" } else { "a new space" };
    let git = match open.memory.take_snapshot(first).await {
        Ok(_) => true,
        Err(error) => {
            if notes.is_empty() {
                notes.push(error.to_string());
            }
            false
        }
    };
    let zone = open.memory.policy().zone()?.name().to_owned();
    Ok(NewVault { open, zone, git, notes })
}

/// Runs `icecore init`.
pub async fn init(global: &GlobalArgs, init: &InitArgs, out: &mut Output) -> Result<()> {
    if let Some(open) = bootstrap::adopt_clone(global, init.folder.as_deref()).await? {
        if out.is_json() {
            return out.json(&json!({ "vault": open.place.base_name(), "set_up": true }));
        }
        out.line(format!("{GREEN}Set up{GREEN:#} the clone in {BOLD}{}{BOLD:#}", open.place))?;
        out.info("  snapshots go to its repository, and git merges memory files with icecore");
        out.info("");
        out.info(format!("Next:  {CYAN}git fetch && icecore merge && git push{CYAN:#}"));
        return Ok(());
    }
    let NewVault { open, zone, git, notes } =
        create_vault(global, init.folder.as_deref(), init.tz.as_deref()).await?;
    if out.is_json() {
        let mut told =
            json!({ "vault": open.place.base_name(), "zone": zone, "git": git, "notes": notes });
        if let Some(space) = open.place.space_name() {
            told = json!({ "vault": open.place.base_name(), "space": space, "zone": zone, "snapshots": git, "notes": notes });
        }
        return out.json(&told);
    }
    let (made, kept) = match open.place.space_name() {
        None => (format!("a vault{GREEN:#} in {BOLD}{}{BOLD:#}", open.place), ", snapshots in git"),
        Some(space) => (
            format!("space {space}{GREEN:#} in {BOLD}{}{BOLD:#}", open.place.base_name()),
            ", snapshots in the database",
        ),
    };
    out.line(format!("{GREEN}Created {made}"))?;
    out.info(format!("  time zone {zone}{}", if git { kept } else { "" }));
    for note in notes {
        out.warn(note);
    }
    out.info("");
    // What was said on the command line this time has to be said there again.
    let again = match open.place.space_name() {
        None => String::new(),
        Some(space) => {
            let store = if global.store.is_some() { " --store …" } else { "" };
            let space = if space == bootstrap::DEFAULT_SPACE {
                String::new()
            } else {
                format!(" --space {}", sanitize::one_line(space))
            };
            format!("{store}{space}")
        }
    };
    out.info(format!(
        "Next:  {CYAN}icecore remember \"Send the offer to Client X\" --due friday{again}{CYAN:#}"
    ));
    out.info(format!("       {CYAN}icecore status{again}{CYAN:#}"));
    if !again.is_empty() {
        out.info(format!(
            "       {DIM}or set {} and ICECORE_SPACE once{DIM:#}",
            bootstrap::STORE_VAR
        ));
    }
    Ok(())
}

/// Runs `icecore status`.
pub async fn status(open: &OpenMemory, out: &mut Output) -> Result<()> {
    ledger::print_scan(&open.memory.scan_recent_logs().await, out);
    let status = open.memory.load_status().await?;
    if out.is_json() {
        return out.json(&json_output::status(&open.place, &status));
    }
    let now = status.now;
    out.line(format!(
        "{BOLD}icecore{BOLD:#}  {}  {DIM}{} {} {}, {}{DIM:#}",
        open.place,
        weekday_name(now.day()),
        now.day(),
        now.clock_time(),
        status.zone
    ))?;
    out.line("")?;
    if status.statements == 0 && status.days_captured == 0 {
        out.line("  Nothing is recorded yet. Start with one of these:")?;
        for example in [
            "icecore remember \"Never deploy on Fridays\" --priority P0",
            "icecore remember \"Send the offer\" --due friday",
            "icecore log \"First day with icecore\"",
        ] {
            out.line(format!("    {CYAN}{example}{CYAN:#}"))?;
        }
    } else if status.statements > 0 {
        print_counts(&status, out)?;
    }
    if status.days_captured > 0 {
        let due = if status.jobs_due.is_empty() {
            String::new()
        } else {
            format!("; due: {}, `icecore rollup due`", status.jobs_due.join(", "))
        };
        out.line(format!(
            "  {} captured{due}",
            if status.days_captured == 1 {
                "1 day".into()
            } else {
                format!("{} days", status.days_captured)
            }
        ))?;
    }
    let connected = super::install::connected_clients();
    if !connected.is_empty() {
        out.line(format!("  connected: {}", connected.join(", ")))?;
    }
    if !status.due.is_empty() {
        out.line("")?;
        out.line(format!("{BOLD}Due{BOLD:#}"))?;
        for entry in &status.due {
            let due = entry
                .event
                .due
                .map_or(String::new(), |due| event_format::format_due(due, now.day()));
            let style = if due.ends_with("overdue") { RED } else { YELLOW };
            out.line(format!(
                "  {style}{due:<14}{style:#} {CYAN}{}{CYAN:#}  {}",
                entry.event.id,
                event_format::one_line_excerpt(&entry.event.content)
            ))?;
        }
    }
    if !status.oldest_open.is_empty() {
        out.line("")?;
        let shown = if status.oldest_open.len() < status.open {
            format!(", the oldest {} of {}", status.oldest_open.len(), status.open)
        } else {
            String::new()
        };
        out.line(format!("{BOLD}Open commitments{BOLD:#}{DIM}{shown}{DIM:#}"))?;
        for entry in &status.oldest_open {
            let waiting = entry.event.waiting_on.as_ref().map_or(String::new(), |whom| {
                format!("  {DIM}waiting on {}{DIM:#}", event_format::one_line_excerpt(whom))
            });
            let age = event_format::format_age(entry.event.ts.day(), now.day());
            out.line(format!(
                "  {age:<14} {CYAN}{}{CYAN:#}  {}{waiting}",
                entry.event.id,
                event_format::one_line_excerpt(&entry.event.content)
            ))?;
        }
    }
    if !status.conflicts.is_empty() {
        out.line("")?;
        out.line(format!(
            "{BOLD}Conflicts{BOLD:#}  {DIM}`icecore conflicts` shows how to settle them{DIM:#}"
        ))?;
        for conflict in status.conflicts.iter().take(5) {
            let ids: Vec<String> = conflict.events.iter().map(ToString::to_string).collect();
            out.line(format!(
                "  {YELLOW}⚠{YELLOW:#} {}  {}",
                event_format::one_line_excerpt(&conflict.about),
                ids.join(" / ")
            ))?;
        }
        if status.conflicts.len() > 5 {
            out.line(format!("  and {} more", status.conflicts.len() - 5))?;
        }
    }
    out.line("")?;
    for wrong in &status.wrong {
        out.line(format!("{RED}✗{RED:#} {}", sanitize::one_line(wrong)))?;
    }
    match &status.integrity {
        IntegrityStatus::Whole { days_ago: 0, .. } => {
            out.line(format!("{GREEN}✓{GREEN:#} verified today: no damage"))?
        }
        IntegrityStatus::Whole { days_ago, at } if *days_ago < 0 => {
            out.line(format!("{DIM}Verified on {}{DIM:#}", at.day()))?
        }
        IntegrityStatus::Whole { days_ago, .. } => {
            out.line(format!("{GREEN}✓{GREEN:#} verified {days_ago} d ago: no damage"))?
        }
        IntegrityStatus::Unknown => {
            out.line(format!("{DIM}Not verified yet: icecore verify{DIM:#}"))?
        }
        IntegrityStatus::Failing { .. } => {}
    }
    Ok(())
}

fn print_counts(status: &MemoryStatus, out: &mut Output) -> Result<()> {
    let parts: Vec<String> = status
        .active
        .iter()
        .filter(|(_, many)| *many > 0)
        .map(|(kind, many)| format!("{many} {kind}{}", if *many == 1 { "" } else { "s" }))
        .collect();
    let active: usize = status.active.iter().map(|(_, many)| many).sum();
    let ended = status.statements - active;
    out.line(format!(
        "  {}",
        if parts.is_empty() { "no active statements".into() } else { parts.join(", ") }
    ))?;
    let mut rest = Vec::new();
    if status.p0 > 0 {
        rest.push(format!("{} of them P0", status.p0));
    }
    if ended > 0 {
        rest.push(format!("{ended} replaced, closed or retracted"));
    }
    if !rest.is_empty() {
        out.line(format!("  {DIM}{}{DIM:#}", rest.join("; ")))?;
    }
    Ok(())
}

/// Runs `icecore verify`.
pub async fn verify(open: &OpenMemory, out: &mut Output) -> Result<()> {
    let verdict = open.memory.verify().await?;
    if out.is_json() {
        out.json(&json_output::verdict(&verdict))?;
    } else {
        print_verdict(&verdict, out)?;
        if !verdict.ok {
            out.info("`icecore doctor --fix` repairs what can be repaired without data loss.");
        }
    }
    if verdict.ok { Ok(()) } else { Err(AppError::silent(Exit::Damaged).into()) }
}

/// Prints the result of a verification.
pub fn print_verdict(verdict: &VerifyReport, out: &mut Output) -> Result<()> {
    ledger::print_scan(&verdict.noticed, out);
    for (check, passed) in &verdict.checks {
        let mark =
            if *passed { format!("{GREEN}✓{GREEN:#}") } else { format!("{RED}✗{RED:#}") };
        out.line(format!("{mark} {}", check.title()))?;
        let findings: Vec<&IntegrityFinding> =
            verdict.findings.iter().filter(|finding| finding.check == *check).collect();
        for finding in findings.iter().take(20) {
            let mark =
                if finding.fails { format!("{RED}!{RED:#}") } else { format!("{DIM}·{DIM:#}") };
            out.line(format!("    {mark} {}", sanitize::one_line(&finding.what)))?;
        }
        if findings.len() > 20 {
            out.line(format!("    and {} more", findings.len() - 20))?;
        }
    }
    let bytes = verdict.bytes;
    let events = format!("{} event{}", verdict.events, if verdict.events == 1 { "" } else { "s" });
    out.line(format!(
        "{events}, {bytes} bytes: {}",
        if verdict.ok { "no damage" } else { "DAMAGED" }
    ))?;
    Ok(())
}

/// Runs `icecore doctor`.
pub async fn doctor(open: &OpenMemory, doctor: &DoctorArgs, out: &mut Output) -> Result<()> {
    let troubles = open.memory.hook_failures().await?;
    if !doctor.fix && out.is_json() {
        let verdict = open.memory.verify().await?;
        out.json(&json_output::doctor(&verdict, &troubles))?;
        return if verdict.ok { Ok(()) } else { Err(AppError::silent(Exit::Damaged).into()) };
    }
    if !out.is_json() {
        print_hook_failures(&troubles, out)?;
    }
    if !doctor.fix {
        return verify(open, out).await;
    }
    let repairs = open.memory.repair().await?;
    if out.is_json() {
        out.json(&json_output::repairs(&repairs))?;
    } else {
        if repairs.done.is_empty() {
            out.info("Nothing needed repair.");
        }
        for done in &repairs.done {
            out.line(format!("{GREEN}+{GREEN:#} {}", sanitize::one_line(done)))?;
        }
        print_verdict(&repairs.verdict, out)?;
        if !repairs.verdict.ok {
            out.info("The remaining problems need your decision; an event with a dangling reference can be retracted.");
        }
    }
    if repairs.verdict.ok { Ok(()) } else { Err(AppError::silent(Exit::Damaged).into()) }
}

/// Prints the failures of hooks in the last days.
fn print_hook_failures(troubles: &[HookFailure], out: &mut Output) -> Result<()> {
    const MAX_SHOWN_FAILURES: usize = 10;
    if troubles.is_empty() {
        return Ok(());
    }
    out.line(format!("{YELLOW}Hooks failed{YELLOW:#}"))?;
    for trouble in troubles.iter().take(MAX_SHOWN_FAILURES) {
        let at = trouble.ts.get(..16).unwrap_or(&trouble.ts).replace('T', " ");
        out.line(format!(
            "  {DIM}{at}{DIM:#} {CYAN}{}{CYAN:#} {}",
            trouble.event,
            sanitize::one_line(&trouble.what)
        ))?;
    }
    if troubles.len() > MAX_SHOWN_FAILURES {
        out.line(format!("  and {} more", troubles.len() - MAX_SHOWN_FAILURES))?;
    }
    out.line("")
}

#[derive(Debug, Args)]
pub struct ReindexArgs {
    /// Skip the vectors for semantic search, which take longest
    #[arg(long)]
    words: bool,
}

/// Rebuilds all derived data.
pub async fn reindex(open: &OpenMemory, reindex: &ReindexArgs, out: &mut Output) -> Result<()> {
    let bar = out.byte_bar("Reading the ledger");
    let (events, open_loops, noticed) = open.memory.reindex(&progress_updater(&bar)).await?;
    bar.finish_and_clear();
    let bar = out.byte_bar("Reading memory");
    let passages = open.memory.rebuild_passages(&progress_updater(&bar)).await?.new;
    bar.finish_and_clear();
    let mut embedded = open.memory.count_embedded().await?;
    if let Some(model) = if reindex.words { None } else { bootstrap::load_embedder()? } {
        let bar = out.step_bar("Computing vectors");
        embedded = open.memory.embed_passages(&model, usize::MAX, &progress_updater(&bar)).await?;
        bar.finish_and_clear();
    }
    ledger::print_scan(&noticed, out);
    if out.is_json() {
        return out.json(&json_output::reindex_report(
            events,
            open_loops,
            passages,
            embedded.embedded,
        ));
    }
    out.line(format!(
        "Rebuilt: the index ({events} event{}), open-loops.json ({open_loops} open), search ({passages} passage{}, {} of {} with a vector)",
        if events == 1 { "" } else { "s" },
        if passages == 1 { "" } else { "s" },
        embedded.embedded,
        embedded.total
    ))
}

/// Replaces the settings. Invalid ones are refused, and the old ones stay.
async fn set_config(open: &OpenMemory, file: &Path, out: &mut Output) -> Result<()> {
    let mut text = String::new();
    let read = match file.to_str() {
        Some("-") => std::io::stdin().read_to_string(&mut text).map(|_| ()),
        _ => std::fs::read_to_string(file).map(|read| text = read),
    };
    read.map_err(|error| {
        AppError::new(Exit::NotFound, format!("{} cannot be read: {error}", file.display()))
    })?;
    let policy = Policy::read(&text).and_then(|policy| policy.zone().map(|_| policy));
    let policy = policy
        .map_err(|mistake| AppError::new(Exit::Usage, format!("{mistake}. Nothing was changed")))?;
    policy.warnings.iter().for_each(|warning| out.warn(warning));
    let path = icecore_domain::layout::CONFIG.parse()?;
    let known = open.memory.store().document(&path).await?;
    open.memory
        .store()
        .compare_and_swap(
            &path,
            text.as_bytes(),
            icecore_store::ContentVersion::of(known.as_deref()),
        )
        .await?;
    if out.is_json() { out.json(&policy) } else { Ok(out.line("icecore.toml is replaced")?) }
}

/// Shows, checks or replaces the settings of the vault.
pub async fn config(open: &OpenMemory, config: &ConfigCommand, out: &mut Output) -> Result<()> {
    if let ConfigCommand::Set { file } = config {
        return set_config(open, file, out).await;
    }
    let policy = open.memory.policy();
    match (config, out.is_json()) {
        // Opening the vault has validated the settings already.
        (ConfigCommand::Check, true) => out.json(&json!({ "ok": policy.warnings.is_empty() })),
        (ConfigCommand::Check, false) if policy.warnings.is_empty() => {
            Ok(out.line("icecore.toml is valid")?)
        }
        (ConfigCommand::Check, false) => {
            Ok(out.line("icecore.toml can be used; see the warnings")?)
        }
        (ConfigCommand::Show, true) => out.json(policy),
        (ConfigCommand::Show, false) => Ok(out.line(policy.to_toml().trim_end())?),
        (ConfigCommand::Set { .. }, _) => Ok(()),
    }
}

/// Runs `icecore snapshot`.
pub async fn snapshot(open: &OpenMemory, snapshot: &SnapshotArgs, out: &mut Output) -> Result<()> {
    let zone = open.memory.policy().zone()?;
    if snapshot.list {
        let all = open.memory.list_snapshots(1_000).await?;
        if out.is_json() {
            return out.json(&json!({ "snapshots": json_output::snapshots(&open.memory, &all)? }));
        }
        for one in &all {
            let at = zone.moment(one.at);
            out.line(format!(
                "{CYAN}{}{CYAN:#}  {} {}  {}",
                short_id(&one.id),
                at.day(),
                at.clock_time(),
                sanitize::one_line(&one.note)
            ))?;
        }
        if all.is_empty() {
            out.info("There are no snapshots yet.");
        }
        return Ok(());
    }
    let note = if snapshot.note.trim().is_empty() { "snapshot" } else { &snapshot.note };
    let made = open.memory.take_snapshot(note).await?;
    if out.is_json() {
        return out.json(
            &json!({ "snapshot": json_output::snapshots(&open.memory, made.as_slice())?.pop() }),
        );
    }
    match made {
        Some(made) => Ok(out.line(format!(
            "{CYAN}{}{CYAN:#}  {}",
            short_id(&made.id),
            sanitize::one_line(&made.note)
        ))?),
        None => {
            out.info("Nothing changed since the last snapshot.");
            Ok(())
        }
    }
}

fn short_id(id: &str) -> &str {
    &id[..8.min(id.len())]
}

/// Runs `icecore undo`.
pub async fn undo(open: &OpenMemory, undo: &UndoArgs, out: &mut Output) -> Result<()> {
    let undone = open.memory.undo(undo.to.as_deref()).await?;
    if out.is_json() {
        return out.json_named("undone", &undone);
    }
    let Some(undone) = undone else {
        out.info("Nothing changed since the last snapshot, so there is nothing to undo. `icecore undo --to ID` goes further back.");
        return Ok(());
    };
    out.line(format!(
        "Back to {CYAN}{}{CYAN:#}, {}",
        short_id(&undone.to),
        sanitize::one_line(&undone.note)
    ))?;
    for file in &undone.files {
        out.line(format!("  {}  {}", file.what, file.path))?;
    }
    for id in &undone.retracted {
        out.line(format!("  retracted {id}"))?;
    }
    if undone.files.is_empty() && undone.retracted.is_empty() {
        out.line("  nothing had to change")?;
    }
    if let Some(before) = &undone.before {
        out.info(format!(
            "{DIM}The previous state is snapshot {}; `icecore undo` returns to it.{DIM:#}",
            short_id(before)
        ));
    }
    Ok(())
}
