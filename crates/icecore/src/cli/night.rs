//! Commands of the night: consolidating, keeping the ledger small, taking old folders over.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use clap::Args;
use comfy_table::{Cell, Color};
use icecore_domain::plain;
use icecore_engine::{Compacted, Consolidated, OldFile};
use secrecy::ExposeSecret as _;
use serde_json::json;

use super::out::{BOLD, CYAN, DIM, GREEN, Out, RED, YELLOW};
use super::show::gist;
use super::{Global, ledger, press};
use crate::error::{Exit, Stop};
use crate::wire::{self, Open};

#[derive(Debug, Args)]
pub struct Consolidate {
    /// Say what would be done and do nothing
    #[arg(long)]
    dry_run: bool,
}

#[derive(Debug, Args)]
pub struct DryRun {
    /// Say what would leave the ledger and do nothing
    #[arg(long)]
    dry_run: bool,
}

#[derive(Debug, Args)]
pub struct Migrate {
    /// The old folder; without one, the tables of the database that --store names
    #[arg(value_name = "DIR")]
    folder: Option<PathBuf>,
    /// Show the plan and the inventory and do nothing
    #[arg(long)]
    dry_run: bool,
    /// Also create the login that servers use: FILE holds their address of the database, with its
    /// user and password
    #[arg(long, value_name = "FILE", conflicts_with = "folder")]
    create_login: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct Triggers {
    /// Write the suggestions into recall/triggers.json, behind what stands there
    #[arg(long)]
    keep: bool,
}

fn counted(many: usize, what: &str) -> String {
    format!("{many} {what}{}", if many == 1 { "" } else { "s" })
}

pub async fn consolidate(open: &Open, consolidate: &Consolidate, out: &mut Out) -> Result<()> {
    let models = wire::models()?;
    if consolidate.dry_run {
        let outlook = open.memory.consolidation_outlook(models.asking().is_some()).await?;
        if out.is_json() {
            return out.json(&outlook);
        }
        out.line(format!(
            "distil       {} and logs with something new",
            counted(outlook.to_distil, "session")
        ))?;
        out.line(format!("pages        {} to take up", counted(outlook.new_events, "event")))?;
        for edited in outlook.edited.iter().take(20) {
            out.line(format!("  edited     {CYAN}{edited}{CYAN:#}"))?;
        }
        out.line(format!(
            "press        {}",
            counted(outlook.rollup.due.len(), "summary").replace("summarys", "summaries")
        ))?;
        if let Some(compaction) = &outlook.compaction {
            out.line(format!("archive      {}", moved(compaction)))?;
        }
        out.line(format!(
            "check        {}",
            if outlook.full_check { "everything" } else { "what is new" }
        ))?;
        out.say("Nothing was done. `icecore consolidate` does it.");
        return Ok(());
    }
    let (asking, bar) = (models.asking(), out.steps("consolidating"));
    let ran = open.memory.consolidate(asking.as_ref(), &press::moves(&bar)).await;
    bar.finish_and_clear();
    let ran = ran?;
    // The night is over; that this fails must not make it look undone.
    if let Err(error) = press::embed_new(open, icecore_engine::EMBED_IN_A_NIGHT).await {
        out.warn(format!("new words could not be compared by meaning: {error}"));
    }
    if out.is_json() {
        return out.json(&ran);
    }
    if let Some(consolidated) = &ran.consolidated {
        tell(consolidated, out)?;
    }
    press::tell_what_was_done(&ran.rolled, out)
}

/// Says what a night came to.
pub fn tell(night: &Consolidated, out: &mut Out) -> Result<()> {
    ledger::tell_noticed(&night.noticed, out);
    let distilled = &night.distilled;
    let mut learnt = counted(distilled.learnt.len(), "event");
    if !distilled.quarantined.is_empty() {
        learnt.push_str(&format!(
            ", {} of them wait for confirmation: icecore quarantine list",
            distilled.quarantined.len()
        ));
    }
    out.line(format!("{BOLD}Consolidated{BOLD:#}  {DIM}{}{DIM:#}", night.report))?;
    out.line(format!(
        "  learnt     {learnt} {DIM}from {} things said or logged; {} known already, {} refused{DIM:#}",
        distilled.pieces,
        distilled.duplicates,
        distilled.refused.len()
    ))?;
    if distilled.too_old > 0 {
        out.line(format!(
            "  {DIM}older      {} left to the summaries (extraction.max_age_days){DIM:#}",
            counted(distilled.too_old, "day")
        ))?;
    }
    let curated = &night.curated;
    if !curated.learnt.is_empty() {
        out.line(format!(
            "  edits      {} taken over from pages and memory files",
            counted(curated.learnt.len(), "event")
        ))?;
    }
    for restored in curated.restored.iter().take(5) {
        out.line(format!("  restored   {restored} {DIM}was gone; `icecore retract` takes back what it says{DIM:#}"))?;
    }
    out.line(format!(
        "  written    {}, {}",
        counted(curated.pages.len(), "page"),
        counted(curated.memories.len(), "memory file")
    ))?;
    if !night.compacted.is_empty() {
        out.line(format!("  archived   {}", moved(&night.compacted)))?;
    }
    match night.findings.first() {
        None => out.line(format!("  checked    {GREEN}ok{GREEN:#}"))?,
        Some(first) => out.line(format!(
            "  checked    {RED}{}{RED:#}; `icecore doctor` shows what to do",
            plain::one_line(first)
        ))?,
    }
    if let Some(why) = &distilled.deferred {
        out.warn(format!("distilling with the model is put off: {}", plain::one_line(why)));
    }
    ledger::tell_hidden(&curated.secrets, out);
    ledger::tell_hidden(&distilled.secrets, out);
    for complaint in curated.complaints.iter().take(10) {
        out.warn(plain::one_line(complaint));
    }
    Ok(())
}

fn moved(compacted: &Compacted) -> String {
    let over = compacted.over.as_ref().map_or(String::new(), |over| format!("; {over}"));
    format!(
        "{} done with, {} expired{}; {} of {} events stay{over}",
        compacted.compacted,
        compacted.pruned,
        if compacted.crowded > 0 {
            format!(", {} to make room", compacted.crowded)
        } else {
            String::new()
        },
        compacted.after,
        compacted.before
    )
}

pub async fn compact(open: &Open, dry: &DryRun, prune: bool, out: &mut Out) -> Result<()> {
    let done = match (dry.dry_run, prune) {
        (true, _) => open.memory.compaction_outlook(prune).await?,
        (false, true) => open.memory.prune().await?,
        (false, false) => open.memory.compact().await?,
    };
    if out.is_json() {
        return out.json_named(if prune { "pruned" } else { "compacted" }, &done);
    }
    if done.is_empty() {
        out.line("Nothing has to leave the ledger.")?;
    } else {
        out.line(moved(&done))?;
    }
    if let (Some(over), true) = (&done.over, done.is_empty()) {
        out.say(over);
    }
    if dry.dry_run {
        out.say("Nothing was done.");
    }
    Ok(())
}

pub async fn triggers(open: &Open, triggers: &Triggers, out: &mut Out) -> Result<()> {
    if triggers.keep {
        let added = open.memory.keep_triggers().await?;
        return match out.is_json() {
            true => out.json(&json!({ "added": added, "path": icecore_domain::layout::TRIGGERS })),
            false => out.line(format!(
                "{} written to {}",
                counted(added, "suggestion"),
                icecore_domain::layout::TRIGGERS
            )),
        };
    }
    let found = open.memory.triggers().await?;
    if out.is_json() {
        return out.json(&found);
    }
    for complaint in &found.complaints {
        out.warn(plain::one_line(complaint));
    }
    if found.triggers.is_empty() {
        out.say("No words load pages yet. Pages suggest their own names; recall/triggers.json holds yours.");
        return Ok(());
    }
    let rows = found.triggers.iter().map(|trigger| {
        let by = if trigger.by_hand {
            Cell::new("yours")
        } else {
            Cell::new("suggested").fg(Color::DarkGrey)
        };
        vec![
            by,
            Cell::new(gist(&trigger.patterns.join(", "))).fg(Color::Cyan),
            Cell::new(gist(&trigger.load.join(", "))),
        ]
    });
    out.table(&["", "words", "load"], rows.collect())
}

/// The largest file of an old folder that is read, in bytes.
const MAX_FILE_BYTES: u64 = 64 * 1024 * 1024;
/// The most files of an old folder.
const MAX_FILES: usize = 50_000;

impl Migrate {
    /// Whether it is about the tables of a database.
    pub fn is_of_tables(&self) -> bool {
        self.folder.is_none()
    }

    /// Whether it only shows what it would do.
    pub fn is_dry_run(&self) -> bool {
        self.dry_run
    }
}

/// Shows what would be taken over where there is no vault yet: into an empty one that is gone
/// afterwards.
pub async fn migrate_without_vault(
    global: &Global,
    options: &Migrate,
    out: &mut Out,
) -> Result<()> {
    let scratch = tempfile::Builder::new()
        .prefix("icecore-migrate-")
        .tempdir()
        .context("making a temporary folder")?;
    let (open, _) = wire::create(&global.about(scratch.path().to_owned()), None, None).await?;
    migrate(&open, options, out).await?;
    out.say("There is no vault yet; `icecore init` makes one.");
    Ok(())
}

/// Brings the tables of a database to what this program works with.
pub async fn migrate_tables(global: &Global, migrate: &Migrate, out: &mut Out) -> Result<()> {
    let Some(database) = wire::database(global)? else {
        let message = "name the old folder that is to be taken over, or the database whose tables are to be brought up to date with --store";
        return Err(Stop::new(Exit::Usage, message).into());
    };
    let plan = database.plan().await?;
    let address = migrate.create_login.as_deref().map(wire::address_in).transpose()?;
    let steps = if migrate.dry_run { plan.due } else { database.migrate().await? };
    let login = match address.filter(|_| !migrate.dry_run) {
        Some(address) => Some(database.create_login(address.expose_secret()).await?),
        None => None,
    };
    if out.is_json() {
        let told: Vec<_> =
            steps.iter().map(|step| json!({ "number": step.number, "name": step.name })).collect();
        return out.json(
            &json!({ "database": database.place(), "taken_before": plan.taken, "dry_run": migrate.dry_run, "steps": told, "login": login }),
        );
    }
    for step in &steps {
        out.line(format!("{:>3}  {}", step.number, step.name))?;
    }
    let done = if migrate.dry_run { "Would be" } else { "Done" };
    out.line(format!(
        "{BOLD}{done}{BOLD:#}  {} in {}, {} before",
        counted(steps.len(), "step"),
        database.place(),
        plan.taken
    ))?;
    if let Some(login) = login {
        out.line(format!("Servers log in as `{login}`: it owns nothing, and sees a space only in a transaction that names it"))?;
    }
    if migrate.dry_run && (!steps.is_empty() || migrate.create_login.is_some()) {
        out.say("Nothing was done. Without --dry-run it is.");
    }
    Ok(())
}

pub async fn migrate(open: &Open, migrate: &Migrate, out: &mut Out) -> Result<()> {
    let Some(folder) = &migrate.folder else { return Ok(()) };
    let root = folder
        .canonicalize()
        .map_err(|_| Stop::new(Exit::NotFound, format!("{} does not exist", folder.display())))?;
    if !root.is_dir() {
        return Err(Stop::new(Exit::Usage, format!("{} is not a folder", folder.display())).into());
    }
    let vault =
        open.place.folder().map(|vault| vault.canonicalize().unwrap_or_else(|_| vault.to_owned()));
    let in_place = vault.as_ref() == Some(&root);
    if let Some(vault) =
        vault.filter(|vault| !in_place && (root.starts_with(vault) || vault.starts_with(&root)))
    {
        let message = format!(
            "{} and the vault {} lie in each other; name the vault itself, or a folder elsewhere",
            root.display(),
            vault.display()
        );
        return Err(Stop::new(Exit::Usage, message).into());
    }
    let (mut files, mut empty, mut complaints) = (Vec::new(), Vec::new(), Vec::new());
    read_folder(&root, &root, &mut files, &mut empty, &mut complaints)?;
    // What was put away by an earlier run is no old folder's.
    files.retain(|file| !in_place || !file.path.starts_with(icecore_domain::migrate::ARCHIVE));
    let migrated = open.memory.migrate(files, empty, in_place, migrate.dry_run).await?;
    complaints.extend(migrated.complaints.iter().cloned());
    if out.is_json() {
        let mut told = serde_json::to_value(&migrated)?;
        told["complaints"] = json!(complaints);
        return out.json(&told);
    }
    out.raw(&plain::visible(&migrated.table))?;
    out.line(format!(
        "{BOLD}{}{BOLD:#}  {} kept, {} learnt, {} moved to the archive, {} as it was",
        if migrate.dry_run { "Would be" } else { "Done" },
        counted(migrated.kept, "file"),
        counted(migrated.learnt, "event"),
        counted(migrated.moved, "file"),
        migrated.unchanged
    ))?;
    for complaint in complaints.iter().take(30) {
        out.warn(plain::one_line(complaint));
    }
    if complaints.len() > 30 {
        out.warn(format!("and {} more; --json lists them", complaints.len() - 30));
    }
    if migrate.dry_run {
        out.say("Nothing was done. Without --dry-run it is.");
    } else if let Some(report) = &migrated.report {
        out.say(format!("{YELLOW}The inventory is kept in {report}.{YELLOW:#} `icecore consolidate` takes the rest up."));
    }
    Ok(())
}

/// Reads a folder: plain files with their bytes, and folders without anything in them. Links are
/// not followed.
fn read_folder(
    root: &Path,
    folder: &Path,
    files: &mut Vec<OldFile>,
    empty: &mut Vec<String>,
    complaints: &mut Vec<String>,
) -> Result<()> {
    let name =
        |path: &Path| path.strip_prefix(root).unwrap_or(path).to_string_lossy().replace('\\', "/");
    let read = std::fs::read_dir(folder).map_err(|error| {
        Stop::new(Exit::Failure, format!("{} cannot be read: {error}", folder.display()))
    })?;
    let mut entries: Vec<_> = read.flatten().collect();
    entries.sort_by_key(std::fs::DirEntry::file_name);
    if entries.is_empty() && folder != root {
        empty.push(name(folder));
    }
    for entry in entries {
        let (path, kind) = (entry.path(), entry.file_type()?);
        let hidden = entry.file_name().to_string_lossy().starts_with('.');
        if hidden && entry.file_name() != ".claude" {
            // A repository or a program's own folder is nobody's memory.
            if kind.is_file() {
                complaints.push(format!("{} is hidden and was left where it is", name(&path)));
            }
            continue;
        }
        if kind.is_symlink() {
            complaints.push(format!("{} is a link and was not followed", name(&path)));
        } else if kind.is_dir() {
            read_folder(root, &path, files, empty, complaints)?;
        } else if kind.is_file() {
            if files.len() >= MAX_FILES {
                return Err(Stop::new(
                    Exit::Usage,
                    format!(
                        "{} has more than {MAX_FILES} files; name a folder with memory in it",
                        root.display()
                    ),
                )
                .into());
            }
            let found = entry.metadata()?;
            if found.len() > MAX_FILE_BYTES {
                complaints.push(format!(
                    "{} has {} bytes and was left where it is",
                    name(&path),
                    found.len()
                ));
                continue;
            }
            let bytes = std::fs::read(&path).map_err(|error| {
                Stop::new(Exit::Failure, format!("{} cannot be read: {error}", path.display()))
            })?;
            let modified = found.modified().ok().and_then(|at| jiff::Timestamp::try_from(at).ok());
            files.push(OldFile { path: name(&path), bytes, modified });
        }
    }
    Ok(())
}
