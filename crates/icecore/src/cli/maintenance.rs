//! `consolidate`, `compact`, `prune`, `triggers`, `migrate` and `db migrate`: the nightly job, the
//! size of the ledger, and taking over old folders.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use clap::Args;
use comfy_table::{Cell, Color};
use icecore_domain::sanitize;
use icecore_engine::{CompactionReport, ConsolidationReport, OldFolderFile};
use secrecy::ExposeSecret as _;
use serde_json::json;

use super::event_format::one_line_excerpt;
use super::output::{BOLD, CYAN, DIM, GREEN, Output, RED, YELLOW};
use super::{GlobalArgs, ledger, summaries};
use crate::bootstrap::{self, OpenMemory};
use crate::error::{AppError, Exit};

#[derive(Debug, Args)]
pub struct ConsolidateArgs {
    /// Show what would be done and change nothing
    #[arg(long)]
    dry_run: bool,
}

#[derive(Debug, Args)]
pub struct CompactArgs {
    /// Show what would leave the ledger and change nothing
    #[arg(long)]
    dry_run: bool,
}

#[derive(Debug, Args)]
pub struct MigrateArgs {
    /// The old folder
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// Show the plan and the inventory and change nothing
    #[arg(long)]
    dry_run: bool,
}

#[derive(Debug, Args)]
pub struct MigrateTablesArgs {
    /// List the steps that are due and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Also create the login that servers use: FILE holds their address of the database, with its
    /// user and password
    #[arg(long, value_name = "FILE")]
    create_login: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct TriggersArgs {
    /// Append the suggestions to recall/triggers.json
    #[arg(long)]
    keep: bool,
}

fn pluralize(many: usize, what: &str) -> String {
    format!("{many} {what}{}", if many == 1 { "" } else { "s" })
}

/// Runs `icecore consolidate`.
pub async fn consolidate(
    open: &OpenMemory,
    consolidate: &ConsolidateArgs,
    out: &mut Output,
) -> Result<()> {
    let models = bootstrap::open_models()?;
    if consolidate.dry_run {
        let outlook = open.memory.preview_consolidation(models.model_budget().is_some()).await?;
        if out.is_json() {
            return out.json(&outlook);
        }
        out.line(format!(
            "extract      {} and logs with new content",
            pluralize(outlook.to_distil, "session")
        ))?;
        out.line(format!("pages        {} to add", pluralize(outlook.new_events, "event")))?;
        for edited in outlook.edited.iter().take(20) {
            out.line(format!("  edited     {CYAN}{edited}{CYAN:#}"))?;
        }
        out.line(format!(
            "summarize    {}",
            pluralize(outlook.rollup.due.len(), "summary").replace("summarys", "summaries")
        ))?;
        if let Some(compaction) = &outlook.compaction {
            out.line(format!("archive      {}", describe_compaction(compaction)))?;
        }
        out.line(format!(
            "check        {}",
            if outlook.full_check { "everything" } else { "what is new" }
        ))?;
        out.info("Dry run: nothing was done. `icecore consolidate` does it.");
        return Ok(());
    }
    let (asking, bar) = (models.model_budget(), out.step_bar("consolidating"));
    let ran = open
        .memory
        .consolidate_now(asking.as_ref(), &summaries::named_progress_updater(&bar))
        .await;
    bar.finish_and_clear();
    let ran = ran?;
    // Consolidation is complete; a failure here must not hide that.
    if let Err(error) =
        summaries::embed_new_passages(open, icecore_engine::EMBED_NIGHTLY_PASSAGES).await
    {
        out.warn(format!("new passages have no vectors for semantic search: {error}"));
    }
    if out.is_json() {
        return out.json(&ran);
    }
    if let Some(consolidated) = &ran.consolidated {
        print_consolidation(consolidated, out)?;
    }
    summaries::print_summaries(&ran.rolled, out)
}

/// Prints the result of a consolidation.
pub fn print_consolidation(night: &ConsolidationReport, out: &mut Output) -> Result<()> {
    ledger::print_scan(&night.noticed, out);
    let distilled = &night.distilled;
    let mut learnt = pluralize(distilled.learnt.len(), "event");
    if !distilled.quarantined.is_empty() {
        learnt.push_str(&format!(
            ", {} of them quarantined: icecore quarantine list",
            distilled.quarantined.len()
        ));
    }
    out.line(format!("{BOLD}Consolidated{BOLD:#}  {DIM}{}{DIM:#}", night.report))?;
    out.line(format!(
        "  learnt     {learnt} {DIM}from {} messages and log lines; {} already known, {} refused{DIM:#}",
        distilled.pieces,
        distilled.duplicates,
        distilled.refused.len()
    ))?;
    if distilled.too_old > 0 {
        out.line(format!(
            "  {DIM}older      {} left to the summaries (extraction.max_age_days){DIM:#}",
            pluralize(distilled.too_old, "day")
        ))?;
    }
    let curated = &night.curated;
    if !curated.learnt.is_empty() {
        out.line(format!(
            "  edits      {} imported from pages and memory files",
            pluralize(curated.learnt.len(), "event")
        ))?;
    }
    for restored in curated.restored.iter().take(5) {
        out.line(format!("  restored   {restored} {DIM}was deleted; `icecore retract` retracts its content{DIM:#}"))?;
    }
    out.line(format!(
        "  written    {}, {}",
        pluralize(curated.pages.len(), "page"),
        pluralize(curated.memories.len(), "memory file")
    ))?;
    if !night.compacted.is_empty() {
        out.line(format!("  archived   {}", describe_compaction(&night.compacted)))?;
    }
    match night.findings.first() {
        None => out.line(format!("  checked    {GREEN}ok{GREEN:#}"))?,
        Some(first) => out.line(format!(
            "  checked    {RED}{}{RED:#}; `icecore doctor` shows what to do",
            sanitize::one_line(first)
        ))?,
    }
    if let Some(why) = &distilled.deferred {
        out.warn(format!("extraction with the model is deferred: {}", sanitize::one_line(why)));
    }
    ledger::warn_hidden_secrets(&curated.secrets, out);
    ledger::warn_hidden_secrets(&distilled.secrets, out);
    for complaint in curated.complaints.iter().take(10) {
        out.warn(sanitize::one_line(complaint));
    }
    Ok(())
}

fn describe_compaction(compacted: &CompactionReport) -> String {
    let over = compacted.over.as_ref().map_or(String::new(), |over| format!("; {over}"));
    format!(
        "{} finished, {} expired{}; {} of {} events stay{over}",
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

/// Runs `icecore compact`, or `icecore prune`.
pub async fn compact(
    open: &OpenMemory,
    dry: &CompactArgs,
    prune: bool,
    out: &mut Output,
) -> Result<()> {
    let done = match (dry.dry_run, prune) {
        (true, _) => open.memory.preview_compaction(prune).await?,
        (false, true) => open.memory.prune_ledger().await?,
        (false, false) => open.memory.compact_ledger().await?,
    };
    if out.is_json() {
        return out.json_named(if prune { "pruned" } else { "compacted" }, &done);
    }
    if done.is_empty() {
        out.line("Nothing to archive.")?;
    } else {
        out.line(describe_compaction(&done))?;
    }
    if let (Some(over), true) = (&done.over, done.is_empty()) {
        out.info(over);
    }
    if dry.dry_run {
        out.info("Dry run: nothing was done.");
    }
    Ok(())
}

/// Lists the triggers, or suggests new ones.
pub async fn triggers(open: &OpenMemory, triggers: &TriggersArgs, out: &mut Output) -> Result<()> {
    if triggers.keep {
        let added = open.memory.adopt_suggested_triggers().await?;
        return match out.is_json() {
            true => out.json(&json!({ "added": added, "path": icecore_domain::layout::TRIGGERS })),
            false => out.line(format!(
                "{} written to {}",
                pluralize(added, "suggestion"),
                icecore_domain::layout::TRIGGERS
            )),
        };
    }
    let found = open.memory.list_triggers().await?;
    if out.is_json() {
        return out.json(&found);
    }
    for complaint in &found.complaints {
        out.warn(sanitize::one_line(complaint));
    }
    if found.triggers.is_empty() {
        out.info("There are no triggers yet. Pages suggest their own names; recall/triggers.json holds yours.");
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
            Cell::new(one_line_excerpt(&trigger.patterns.join(", "))).fg(Color::Cyan),
            Cell::new(one_line_excerpt(&trigger.load.join(", "))),
        ]
    });
    out.table(&["", "words", "load"], rows.collect())
}

const MAX_FILE_BYTES: u64 = 64 * 1024 * 1024;
const MAX_FILES: usize = 50_000;

impl MigrateArgs {
    /// Whether it only shows what it would do.
    pub fn is_dry_run(&self) -> bool {
        self.dry_run
    }
}

/// Shows what `migrate` would do before there is a vault, using a temporary one.
pub async fn migrate_without_vault(
    global: &GlobalArgs,
    options: &MigrateArgs,
    out: &mut Output,
) -> Result<()> {
    let scratch = tempfile::Builder::new()
        .prefix("icecore-migrate-")
        .tempdir()
        .context("making a temporary folder")?;
    let (open, _) =
        bootstrap::create_memory(&global.with_vault(scratch.path().to_owned()), None, None).await?;
    migrate(&open, options, out).await?;
    out.info("There is no vault yet; `icecore init` creates one.");
    Ok(())
}

/// Migrates the tables of a database to the version of this program.
pub async fn migrate_tables(
    global: &GlobalArgs,
    migrate: &MigrateTablesArgs,
    out: &mut Output,
) -> Result<()> {
    let Some(database) = bootstrap::named_database(global)? else {
        let message = "name the database whose tables are to be migrated with --store";
        return Err(AppError::new(Exit::Usage, message).into());
    };
    let plan = database.migration_plan().await?;
    let address = migrate.create_login.as_deref().map(bootstrap::read_address_file).transpose()?;
    let steps = if migrate.dry_run { plan.pending } else { database.migrate().await? };
    let login = match address.filter(|_| !migrate.dry_run) {
        Some(address) => Some(database.create_login(address.expose_secret()).await?),
        None => None,
    };
    if out.is_json() {
        let told: Vec<_> =
            steps.iter().map(|step| json!({ "number": step.number, "name": step.name })).collect();
        return out.json(
            &json!({ "database": database.display_name(), "taken_before": plan.applied, "dry_run": migrate.dry_run, "steps": told, "login": login }),
        );
    }
    for step in &steps {
        out.line(format!("{:>3}  {}", step.number, step.name))?;
    }
    let done = if migrate.dry_run { "Would apply" } else { "Applied" };
    out.line(format!(
        "{BOLD}{done}{BOLD:#}  {} in {}, {} before",
        pluralize(steps.len(), "step"),
        database.display_name(),
        plan.applied
    ))?;
    if let Some(login) = login {
        out.line(format!("Servers log in as `{login}`: it owns nothing and sees a space only in a transaction that names it"))?;
    }
    if migrate.dry_run && (!steps.is_empty() || migrate.create_login.is_some()) {
        out.info("Dry run: nothing was done.");
    }
    Ok(())
}

/// Runs `icecore migrate`.
pub async fn migrate(open: &OpenMemory, migrate: &MigrateArgs, out: &mut Output) -> Result<()> {
    let folder = &migrate.folder;
    let root = folder.canonicalize().map_err(|_| {
        AppError::new(Exit::NotFound, format!("{} does not exist", folder.display()))
    })?;
    if !root.is_dir() {
        return Err(
            AppError::new(Exit::Usage, format!("{} is not a folder", folder.display())).into()
        );
    }
    let vault =
        open.place.folder().map(|vault| vault.canonicalize().unwrap_or_else(|_| vault.to_owned()));
    let in_place = vault.as_ref() == Some(&root);
    if let Some(vault) =
        vault.filter(|vault| !in_place && (root.starts_with(vault) || vault.starts_with(&root)))
    {
        let message = format!(
            "{} and the vault {} overlap; name the vault itself, or a folder elsewhere",
            root.display(),
            vault.display()
        );
        return Err(AppError::new(Exit::Usage, message).into());
    }
    let (mut files, mut empty, mut complaints) = (Vec::new(), Vec::new(), Vec::new());
    read_folder(&root, &root, &mut files, &mut empty, &mut complaints)?;
    // The archive of an earlier run is not part of the old folder.
    files.retain(|file| !in_place || !file.path.starts_with(icecore_domain::migrate::ARCHIVE));
    let migrated = open.memory.migrate(files, empty, in_place, migrate.dry_run).await?;
    complaints.extend(migrated.complaints.iter().cloned());
    if out.is_json() {
        let mut told = serde_json::to_value(&migrated)?;
        told["complaints"] = json!(complaints);
        return out.json(&told);
    }
    out.raw(&sanitize::escape_for_terminal(&migrated.table))?;
    out.line(format!(
        "{BOLD}{}{BOLD:#}  {} stored, {} extracted, {} moved to the archive, {} unchanged",
        if migrate.dry_run { "Planned" } else { "Done" },
        pluralize(migrated.stored, "file"),
        pluralize(migrated.learnt, "event"),
        pluralize(migrated.moved, "file"),
        migrated.unchanged
    ))?;
    for complaint in complaints.iter().take(30) {
        out.warn(sanitize::one_line(complaint));
    }
    if complaints.len() > 30 {
        out.warn(format!("and {} more; --json lists them", complaints.len() - 30));
    }
    if migrate.dry_run {
        out.info("Dry run: nothing was done.");
    } else if let Some(report) = &migrated.report {
        out.info(format!("{YELLOW}The inventory is in {report}.{YELLOW:#} `icecore consolidate` processes the rest."));
    }
    Ok(())
}

/// Reads a folder: plain files with their bytes, and folders without anything in them. Links are
/// not followed.
fn read_folder(
    root: &Path,
    folder: &Path,
    files: &mut Vec<OldFolderFile>,
    empty: &mut Vec<String>,
    complaints: &mut Vec<String>,
) -> Result<()> {
    let name =
        |path: &Path| path.strip_prefix(root).unwrap_or(path).to_string_lossy().replace('\\', "/");
    let read = std::fs::read_dir(folder).map_err(|error| {
        AppError::new(Exit::Failure, format!("{} cannot be read: {error}", folder.display()))
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
            // A repository or a program's own folder holds no memory.
            if kind.is_file() {
                complaints.push(format!("{} is hidden and was skipped", name(&path)));
            }
            continue;
        }
        if kind.is_symlink() {
            complaints.push(format!("{} is a link and was not followed", name(&path)));
        } else if kind.is_dir() {
            read_folder(root, &path, files, empty, complaints)?;
        } else if kind.is_file() {
            if files.len() >= MAX_FILES {
                return Err(AppError::new(
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
                    "{} has {} bytes and was skipped",
                    name(&path),
                    found.len()
                ));
                continue;
            }
            let bytes = std::fs::read(&path).map_err(|error| {
                AppError::new(Exit::Failure, format!("{} cannot be read: {error}", path.display()))
            })?;
            let modified = found.modified().ok().and_then(|at| jiff::Timestamp::try_from(at).ok());
            files.push(OldFolderFile { path: name(&path), bytes, modified });
        }
    }
    Ok(())
}
