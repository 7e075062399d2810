//! Commands that create, check, repair and restore a vault, and show its status.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::{Args, Subcommand};
use icecore_domain::calendar::weekday;
use icecore_domain::ledger::integrity::Finding;
use icecore_domain::plain;
use icecore_engine::config::Policy;
use icecore_engine::{Integrity, Status, Trouble, Verdict};
use serde_json::json;

use super::out::{BOLD, CYAN, DIM, GREEN, Out, RED, YELLOW, moves};
use super::{Global, ledger, show};
use crate::error::{Exit, Stop};
use crate::told;
use crate::wire::{self, Open};

#[derive(Debug, Args)]
pub struct Init {
    /// The folder; your own data folder if not given
    #[arg(value_name = "DIR")]
    folder: Option<PathBuf>,
    /// The time zone whose days are the vault's, e.g. Europe/Berlin; the system's if not given
    #[arg(long, value_name = "ZONE")]
    tz: Option<String>,
}

#[derive(Debug, Args)]
pub struct Doctor {
    /// Repair what can be repaired without data loss
    #[arg(long)]
    fix: bool,
}

#[derive(Debug, Subcommand)]
pub enum Config {
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
pub struct Snapshot {
    /// The reason
    #[arg(long, short, value_name = "TEXT", default_value = "snapshot", hide_default_value = true)]
    note: String,
    /// List the snapshots instead of making one
    #[arg(long, short)]
    list: bool,
}

#[derive(Debug, Args)]
pub struct Undo {
    /// The snapshot to go back to; the last one if not given
    #[arg(long, value_name = "ID")]
    to: Option<String>,
}

/// A vault, or a space of a database, that was just created.
pub struct NewVault {
    pub open: Open,
    pub zone: String,
    pub git: bool,
    pub notes: Vec<String>,
}

/// Creates a vault with its first snapshot.
pub async fn make_vault(
    global: &Global,
    folder: Option<&Path>,
    zone: Option<&str>,
) -> Result<NewVault> {
    let (open, guessed) = wire::create(global, folder, zone).await?;
    let mut notes = open.memory.store().mended().await;
    notes.extend(guessed);
    let first = if open.place.folder().is_some() { "a new vault" } else { "a new space" };
    let git = match open.memory.snapshot(first).await {
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

pub async fn init(global: &Global, init: &Init, out: &mut Out) -> Result<()> {
    if let Some(open) = wire::adopt(global, init.folder.as_deref()).await? {
        if out.is_json() {
            return out.json(&json!({ "vault": open.place.home(), "set_up": true }));
        }
        out.line(format!("{GREEN}Set up{GREEN:#} the clone in {BOLD}{}{BOLD:#}", open.place))?;
        out.say("  snapshots are kept in its repository, and git merges memory by icecore");
        out.say("");
        out.say(format!("Next:  {CYAN}git fetch && icecore merge && git push{CYAN:#}"));
        return Ok(());
    }
    let NewVault { open, zone, git, notes } =
        make_vault(global, init.folder.as_deref(), init.tz.as_deref()).await?;
    if out.is_json() {
        let mut told =
            json!({ "vault": open.place.home(), "zone": zone, "git": git, "notes": notes });
        if let Some(space) = open.place.space() {
            told = json!({ "vault": open.place.home(), "space": space, "zone": zone, "snapshots": git, "notes": notes });
        }
        return out.json(&told);
    }
    let (made, kept) = match open.place.space() {
        None => (
            format!("a vault{GREEN:#} in {BOLD}{}{BOLD:#}", open.place),
            ", snapshots are kept in git",
        ),
        Some(space) => (
            format!("space {space}{GREEN:#} in {BOLD}{}{BOLD:#}", open.place.home()),
            ", snapshots are kept beside it",
        ),
    };
    out.line(format!("{GREEN}Made {made}"))?;
    out.say(format!("  days are those of {zone}{}", if git { kept } else { "" }));
    for note in notes {
        out.warn(note);
    }
    out.say("");
    // What was said on the command line this time has to be said there again.
    let again = match open.place.space() {
        None => String::new(),
        Some(space) => {
            let store = if global.store.is_some() { " --store …" } else { "" };
            let space = if space == wire::SPACE {
                String::new()
            } else {
                format!(" --space {}", plain::one_line(space))
            };
            format!("{store}{space}")
        }
    };
    out.say(format!(
        "Next:  {CYAN}icecore remember \"Send the offer to Client X\" --due friday{again}{CYAN:#}"
    ));
    out.say(format!("       {CYAN}icecore status{again}{CYAN:#}"));
    if !again.is_empty() {
        out.say(format!("       {DIM}or set {} and ICECORE_SPACE once{DIM:#}", wire::STORE));
    }
    Ok(())
}

pub async fn status(open: &Open, out: &mut Out) -> Result<()> {
    ledger::tell_noticed(&open.memory.notice().await, out);
    let status = open.memory.status().await?;
    if out.is_json() {
        return out.json(&told::status(&open.place, &status));
    }
    let now = status.now;
    out.line(format!(
        "{BOLD}icecore{BOLD:#}  {}  {DIM}{} {} {}, {}{DIM:#}",
        open.place,
        weekday(now.day()),
        now.day(),
        now.clock(),
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
        here(&status, out)?;
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
    let connected = super::install::connected();
    if !connected.is_empty() {
        out.line(format!("  connected: {}", connected.join(", ")))?;
    }
    if !status.due.is_empty() {
        out.line("")?;
        out.line(format!("{BOLD}Due{BOLD:#}"))?;
        for entry in &status.due {
            let due = entry.event.due.map_or(String::new(), |due| show::due_in(due, now.day()));
            let style = if due.ends_with("overdue") { RED } else { YELLOW };
            out.line(format!(
                "  {style}{due:<14}{style:#} {CYAN}{}{CYAN:#}  {}",
                entry.event.id,
                show::gist(&entry.event.content)
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
                format!("  {DIM}waiting on {}{DIM:#}", show::gist(whom))
            });
            let age = show::age(entry.event.ts.day(), now.day());
            out.line(format!(
                "  {age:<14} {CYAN}{}{CYAN:#}  {}{waiting}",
                entry.event.id,
                show::gist(&entry.event.content)
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
                show::gist(&conflict.about),
                ids.join(" / ")
            ))?;
        }
        if status.conflicts.len() > 5 {
            out.line(format!("  and {} more", status.conflicts.len() - 5))?;
        }
    }
    out.line("")?;
    for wrong in &status.wrong {
        out.line(format!("{RED}✗{RED:#} {}", plain::one_line(wrong)))?;
    }
    match &status.integrity {
        Integrity::Whole { days_ago: 0, .. } => {
            out.line(format!("{GREEN}✓{GREEN:#} verified today: no damage"))?
        }
        Integrity::Whole { days_ago, at } if *days_ago < 0 => {
            out.line(format!("{DIM}Verified on {}{DIM:#}", at.day()))?
        }
        Integrity::Whole { days_ago, .. } => {
            out.line(format!("{GREEN}✓{GREEN:#} verified {days_ago} d ago: no damage"))?
        }
        Integrity::Unknown => out.line(format!("{DIM}Not verified yet: icecore verify{DIM:#}"))?,
        Integrity::Failing { .. } => {}
    }
    Ok(())
}

fn here(status: &Status, out: &mut Out) -> Result<()> {
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

pub async fn verify(open: &Open, out: &mut Out) -> Result<()> {
    let verdict = open.memory.verify().await?;
    if out.is_json() {
        out.json(&told::verdict(&verdict))?;
    } else {
        tell_verdict(&verdict, out)?;
        if !verdict.ok {
            out.say("`icecore doctor --fix` repairs what can be repaired without data loss.");
        }
    }
    if verdict.ok { Ok(()) } else { Err(Stop::silent(Exit::Damaged).into()) }
}

pub fn tell_verdict(verdict: &Verdict, out: &mut Out) -> Result<()> {
    ledger::tell_noticed(&verdict.noticed, out);
    for (check, passed) in &verdict.checks {
        let mark =
            if *passed { format!("{GREEN}✓{GREEN:#}") } else { format!("{RED}✗{RED:#}") };
        out.line(format!("{mark} {}", check.title()))?;
        let findings: Vec<&Finding> =
            verdict.findings.iter().filter(|finding| finding.check == *check).collect();
        for finding in findings.iter().take(20) {
            let mark =
                if finding.fails { format!("{RED}!{RED:#}") } else { format!("{DIM}·{DIM:#}") };
            out.line(format!("    {mark} {}", plain::one_line(&finding.what)))?;
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

pub async fn doctor(open: &Open, doctor: &Doctor, out: &mut Out) -> Result<()> {
    let troubles = open.memory.hook_troubles().await?;
    if !doctor.fix && out.is_json() {
        let verdict = open.memory.verify().await?;
        out.json(&told::doctor(&verdict, &troubles))?;
        return if verdict.ok { Ok(()) } else { Err(Stop::silent(Exit::Damaged).into()) };
    }
    if !out.is_json() {
        tell_troubles(&troubles, out)?;
    }
    if !doctor.fix {
        return verify(open, out).await;
    }
    let repairs = open.memory.mend().await?;
    if out.is_json() {
        out.json(&told::repairs(&repairs))?;
    } else {
        if repairs.done.is_empty() {
            out.say("Nothing needed repair.");
        }
        for done in &repairs.done {
            out.line(format!("{GREEN}+{GREEN:#} {}", plain::one_line(done)))?;
        }
        tell_verdict(&repairs.verdict, out)?;
        if !repairs.verdict.ok {
            out.say("The remaining problems need your decision; an event with a dangling reference can be retracted.");
        }
    }
    if repairs.verdict.ok { Ok(()) } else { Err(Stop::silent(Exit::Damaged).into()) }
}

/// Prints the failures of hooks in the last days.
fn tell_troubles(troubles: &[Trouble], out: &mut Out) -> Result<()> {
    const SHOWN: usize = 10;
    if troubles.is_empty() {
        return Ok(());
    }
    out.line(format!("{YELLOW}Hooks failed{YELLOW:#}"))?;
    for trouble in troubles.iter().take(SHOWN) {
        let at = trouble.ts.get(..16).unwrap_or(&trouble.ts).replace('T', " ");
        out.line(format!(
            "  {DIM}{at}{DIM:#} {CYAN}{}{CYAN:#} {}",
            trouble.event,
            plain::one_line(&trouble.what)
        ))?;
    }
    if troubles.len() > SHOWN {
        out.line(format!("  and {} more", troubles.len() - SHOWN))?;
    }
    out.line("")
}

#[derive(Debug, Args)]
pub struct Reindex {
    /// Skip the vectors for semantic search, which take longest
    #[arg(long)]
    words: bool,
}

pub async fn reindex(open: &Open, reindex: &Reindex, out: &mut Out) -> Result<()> {
    let bar = out.bar("Reading the ledger");
    let (events, open_loops, noticed) = open.memory.reindex(&moves(&bar)).await?;
    bar.finish_and_clear();
    let bar = out.bar("Reading memory");
    let passages = open.memory.renew_passages(&moves(&bar)).await?.new;
    bar.finish_and_clear();
    let mut embedded = open.memory.embedded().await?;
    if let Some(model) = if reindex.words { None } else { wire::embedder()? } {
        let bar = out.steps("Computing vectors");
        embedded = open.memory.embed_passages(&model, usize::MAX, &moves(&bar)).await?;
        bar.finish_and_clear();
    }
    ledger::tell_noticed(&noticed, out);
    if out.is_json() {
        return out.json(&told::reindexed(events, open_loops, passages, embedded.have));
    }
    out.line(format!(
        "Rebuilt: the index ({events} event{}), open-loops.json ({open_loops} open), search ({passages} passage{}, {} of {} with a vector)",
        if events == 1 { "" } else { "s" },
        if passages == 1 { "" } else { "s" },
        embedded.have,
        embedded.of
    ))
}

/// Replaces the settings. Invalid ones are refused, and the old ones stay.
async fn set_config(open: &Open, file: &Path, out: &mut Out) -> Result<()> {
    let mut text = String::new();
    let read = match file.to_str() {
        Some("-") => std::io::stdin().read_to_string(&mut text).map(|_| ()),
        _ => std::fs::read_to_string(file).map(|read| text = read),
    };
    read.map_err(|error| {
        Stop::new(Exit::NotFound, format!("{} cannot be read: {error}", file.display()))
    })?;
    let policy = Policy::read(&text).and_then(|policy| policy.zone().map(|_| policy));
    let policy = policy
        .map_err(|mistake| Stop::new(Exit::Usage, format!("{mistake}. Nothing was changed")))?;
    policy.warnings.iter().for_each(|warning| out.warn(warning));
    let path = icecore_domain::layout::CONFIG.parse()?;
    let known = open.memory.store().document(&path).await?;
    open.memory
        .store()
        .swap(&path, text.as_bytes(), icecore_store::ContentVersion::of(known.as_deref()))
        .await?;
    if out.is_json() { out.json(&policy) } else { Ok(out.line("icecore.toml is replaced")?) }
}

pub async fn config(open: &Open, config: &Config, out: &mut Out) -> Result<()> {
    if let Config::Set { file } = config {
        return set_config(open, file, out).await;
    }
    let policy = open.memory.policy();
    match (config, out.is_json()) {
        // Opening the vault has validated the settings already.
        (Config::Check, true) => out.json(&json!({ "ok": policy.warnings.is_empty() })),
        (Config::Check, false) if policy.warnings.is_empty() => {
            Ok(out.line("icecore.toml is valid")?)
        }
        (Config::Check, false) => Ok(out.line("icecore.toml can be used; see the warnings")?),
        (Config::Show, true) => out.json(policy),
        (Config::Show, false) => Ok(out.line(policy.show().trim_end())?),
        (Config::Set { .. }, _) => Ok(()),
    }
}

pub async fn snapshot(open: &Open, snapshot: &Snapshot, out: &mut Out) -> Result<()> {
    let zone = open.memory.policy().zone()?;
    if snapshot.list {
        let all = open.memory.snapshots(1_000).await?;
        if out.is_json() {
            return out.json(&json!({ "snapshots": told::snapshots(&open.memory, &all)? }));
        }
        for one in &all {
            let at = zone.moment(one.at);
            out.line(format!(
                "{CYAN}{}{CYAN:#}  {} {}  {}",
                short(&one.id),
                at.day(),
                at.clock(),
                plain::one_line(&one.note)
            ))?;
        }
        if all.is_empty() {
            out.say("There are no snapshots yet.");
        }
        return Ok(());
    }
    let note = if snapshot.note.trim().is_empty() { "snapshot" } else { &snapshot.note };
    let made = open.memory.snapshot(note).await?;
    if out.is_json() {
        return out
            .json(&json!({ "snapshot": told::snapshots(&open.memory, made.as_slice())?.pop() }));
    }
    match made {
        Some(made) => Ok(out.line(format!(
            "{CYAN}{}{CYAN:#}  {}",
            short(&made.id),
            plain::one_line(&made.note)
        ))?),
        None => {
            out.say("Nothing changed since the last snapshot.");
            Ok(())
        }
    }
}

fn short(id: &str) -> &str {
    &id[..8.min(id.len())]
}

pub async fn undo(open: &Open, undo: &Undo, out: &mut Out) -> Result<()> {
    let undone = open.memory.undo(undo.to.as_deref()).await?;
    if out.is_json() {
        return out.json_named("undone", &undone);
    }
    let Some(undone) = undone else {
        out.say("Nothing changed since the last snapshot, so there is nothing to undo. `icecore undo --to ID` goes further back.");
        return Ok(());
    };
    out.line(format!(
        "Back to {CYAN}{}{CYAN:#}, {}",
        short(&undone.to),
        plain::one_line(&undone.note)
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
        out.say(format!(
            "{DIM}The previous state is snapshot {}; `icecore undo` returns to it.{DIM:#}",
            short(before)
        ));
    }
    Ok(())
}
