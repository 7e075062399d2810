//! `vault export`, `vault backup` and `import --whole`: copying a whole memory between a folder, a
//! database and a backup. Every document is compared after it was copied.

use std::fs::File;
use std::io::{BufReader, BufWriter, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use clap::{Args, Subcommand};
use icecore_domain::layout;
use icecore_engine::clock::SystemClock;
use icecore_engine::{Memory, TransferReport, back_up, check_backup, restore_backup, transfer};
use icecore_store::Progress;
use icecore_store::staged_dir::StagedDir;
use serde::Serialize;

use super::GlobalArgs;
use super::insights::pluralize;
use super::output::{Output, progress_updater};
use crate::bootstrap::{self, OpenMemory};
use crate::error::{AppError, Exit};
use crate::store_location::{self, SpaceOwner, StoreHandles, StoreLocation, USER_NAME_FILE};

#[derive(Debug, Args)]
pub struct ExportArgs {
    /// The folder of the new vault
    #[arg(value_name = "DIR")]
    to: PathBuf,
}

#[derive(Debug, Subcommand)]
pub enum BackupCommand {
    /// Write everything into one file, a zip with a hash of every document
    #[command(
        after_help = "Examples:\n  icecore vault backup create\n  icecore vault backup create memory.zip"
    )]
    Create {
        /// The file; if not given, one in this folder, named after the memory and the time
        #[arg(value_name = "FILE")]
        file: Option<PathBuf>,
    },
    /// Verify a backup against its hashes
    #[command(
        after_help = "Examples:\n  icecore vault backup verify memory.zip\n  icecore vault backup verify memory.zip --drill"
    )]
    Verify {
        /// The file
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// Also restore it into a temporary vault and run `icecore verify` there
        #[arg(long)]
        drill: bool,
    },
    /// Restore a backup into a new memory: --vault DIR, or --store with --space
    #[command(
        after_help = "Examples:\n  icecore vault backup restore memory.zip --vault ./again\n  icecore vault backup restore memory.zip --store postgres://db/chat --space anna"
    )]
    Restore {
        /// The file
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
}

/// What a transfer reports besides its counts.
#[derive(Debug, Default, Serialize)]
struct TransferDetails {
    /// The file it is in.
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<String>,
    /// Links that were left behind, by their paths in the vault.
    #[serde(skip_serializing_if = "Option::is_none")]
    left_links: Option<Vec<String>>,
    /// How many end users came along, each with a memory of their own.
    #[serde(skip_serializing_if = "Option::is_none")]
    users: Option<usize>,
    /// End users whose memories are not in it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    left_users: Vec<String>,
}

#[derive(Serialize)]
struct TransferJson<'a> {
    #[serde(flatten)]
    carried: &'a TransferReport,
    #[serde(flatten)]
    more: &'a TransferDetails,
}

fn print_transfer(
    what: &str,
    carried: &TransferReport,
    more: &TransferDetails,
    out: &mut Output,
) -> Result<()> {
    if let Some(links) = more.left_links.as_deref().filter(|links| !links.is_empty()) {
        let (many, first) = (links.len(), links[..links.len().min(5)].join(", "));
        out.warn(format!(
            "{many} of its files and folders are links and were not copied: {first}{}",
            if many > 5 { ", …" } else { "" }
        ));
    }
    if !more.left_users.is_empty() {
        let (many, first) =
            (more.left_users.len(), more.left_users[..more.left_users.len().min(5)].join(", "));
        out.warn(format!(
            "memories of {} beneath it are not in this file: {first}{}. Back up each of them, or copy all with `icecore vault export`",
            pluralize(many, "end user"),
            if many > 5 { ", …" } else { "" }
        ));
    }
    if out.is_json() {
        return out.json(&TransferJson { carried, more });
    }
    let users = more
        .users
        .filter(|many| *many > 0)
        .map_or(String::new(), |many| format!(", with {}", pluralize(many, "end user")));
    out.info(format!(
        "{what}{users}: {} documents, {} bytes, {} events; every byte was verified",
        carried.documents, carried.bytes, carried.events
    ));
    Ok(())
}

async fn read_policy(home: &StoreHandles) -> Result<String> {
    let text = home.0.document(&layout::CONFIG.parse()?).await?.unwrap_or_default();
    String::from_utf8(text).with_context(|| format!("{} is no text", layout::CONFIG))
}

/// Creates an empty memory to copy into, or reopens one that an interrupted transfer left.
async fn prepare_target(place: &StoreLocation, policy: &str) -> Result<StoreHandles> {
    if let StoreLocation::Space { database, name } = place {
        database.create_tables().await?;
        return Ok(store_location::as_handles(database.create_restore_target(name, policy).await?));
    }
    if place.read_state().await?.is_some() {
        place.open().await
    } else {
        place.create(policy).await
    }
}

/// Copies a memory and the memories of its end users.
async fn copy_with_users(
    source: &StoreLocation,
    from: &StoreHandles,
    target: &StoreLocation,
    out: &mut Output,
) -> Result<()> {
    let bar = out.step_bar("Copying");
    let all = async {
        let users = source.list_users().await?;
        if !users.is_empty() {
            target.check_can_have_users()?;
        }
        let to = prepare_target(target, &read_policy(from).await?).await?;
        let mut carried = transfer(from.0.as_ref(), to.0.as_ref(), &progress_updater(&bar)).await?;
        for (user, place) in &users {
            let named = user.clone().unwrap_or_else(|| place.title());
            let one =
                copy_user(&named, place, &target.user_location(&named), &progress_updater(&bar))
                    .await;
            let one = one.with_context(|| {
                format!(
                    "{source} is in {target}, but not all of its end users: it failed at {named}"
                )
            })?;
            (carried.documents, carried.bytes, carried.events) = (
                carried.documents + one.documents,
                carried.bytes + one.bytes,
                carried.events + one.events,
            );
        }
        anyhow::Ok((carried, users.len()))
    };
    let all = all.await;
    bar.finish_and_clear();
    let (carried, users) = all?;
    let more = TransferDetails {
        left_links: find_links(source),
        users: Some(users),
        ..TransferDetails::default()
    };
    print_transfer(&format!("{source} is in {target}"), &carried, &more, out)
}

async fn copy_user(
    user: &str,
    source: &StoreLocation,
    target: &StoreLocation,
    progress: Progress<'_>,
) -> Result<TransferReport> {
    let from = source.open().await?;
    let to = prepare_target(target, &read_policy(&from).await?).await?;
    let carried = transfer(from.0.as_ref(), to.0.as_ref(), progress).await?;
    // The name of a folder does not tell the end user.
    let named = USER_NAME_FILE.parse()?;
    if target.folder().is_some() && to.0.document(&named).await?.is_none() {
        to.0.put(&named, &serde_json::to_vec(&SpaceOwner { user: user.to_owned() })?).await?;
    }
    Ok(carried)
}

/// The links in a vault. They are not followed: they may lead outside of it. `None` for a database,
/// which has no links.
fn find_links(place: &StoreLocation) -> Option<Vec<String>> {
    let root = place.folder()?;
    let (mut found, mut folders) = (Vec::new(), vec![root.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let (path, Ok(kind)) = (entry.path(), entry.file_type()) else { continue };
            let Ok(short) = path.strip_prefix(root) else { continue };
            // Private files of the vault, and other memories.
            if [".git", ".icecore", "spaces"].iter().any(|own| short == Path::new(own)) {
                continue;
            }
            if kind.is_symlink() {
                found.push(icecore_domain::sanitize::one_line(&short.display().to_string()));
            } else if kind.is_dir() {
                folders.push(path);
            }
        }
    }
    found.sort();
    Some(found)
}

/// The parent folder of a target, which must exist: a mistyped one must not be created silently.
fn parent_folder(target: &Path) -> Result<PathBuf> {
    let folder = match target.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
        _ => std::env::current_dir()?,
    };
    if folder.is_dir() {
        return Ok(folder);
    }
    let message = format!(
        "there is no folder {}; make it with `mkdir -p`, or name another",
        folder.display()
    );
    Err(AppError::new(Exit::NotFound, message).into())
}

/// Copies the memory into another store.
pub async fn export(open: &OpenMemory, export: &ExportArgs, out: &mut Output) -> Result<()> {
    let above = parent_folder(&export.to)?;
    let above = above.canonicalize().unwrap_or(above);
    if let Some(vault) = above.ancestors().find(|folder| folder.join(layout::CONFIG).is_file()) {
        let message = format!(
            "{} is inside the vault {}; name a folder elsewhere",
            export.to.display(),
            vault.display()
        );
        return Err(AppError::new(Exit::Usage, message).into());
    }
    import_pending_notes(&open.memory, out).await;
    copy_with_users(
        &open.place,
        &open.place.open().await?,
        &StoreLocation::Folder(export.to.clone()),
        out,
    )
    .await
}

/// Imports pending notes of hooks, which exist on this machine only.
async fn import_pending_notes(memory: &Memory, out: &mut Output) {
    match memory.flush_all_pending().await {
        Ok(0) => {}
        Ok(left) => out.warn(format!(
            "{} from hooks could not be imported and will be missing",
            pluralize(left, "note")
        )),
        Err(error) => {
            out.warn(format!("notes from hooks could not be imported and will be missing: {error}"))
        }
    }
}

/// Copies a whole vault into a new memory.
pub async fn import_vault(global: &GlobalArgs, paths: &[PathBuf], out: &mut Output) -> Result<()> {
    let [folder] = paths else {
        return Err(AppError::new(Exit::Usage, "--whole takes one folder, which is a vault").into());
    };
    let source = StoreLocation::Folder(folder.clone());
    let from = source.open().await?;
    match Memory::open(from.0.clone(), from.1.clone(), Box::new(SystemClock)).await {
        Ok(memory) => import_pending_notes(&memory, out).await,
        Err(error) => out.warn(format!("pending notes there were not imported: {error}")),
    }
    let place = bootstrap::new_location(global)?;
    if place.folder().is_some_and(|target| is_same_path(target, folder)) {
        return Err(AppError::new(
            Exit::Usage,
            "this is the vault itself; name another target with --vault or --store",
        )
        .into());
    }
    copy_with_users(&source, &from, &place, out).await
}

fn is_same_path(one: &Path, other: &Path) -> bool {
    matches!((one.canonicalize(), other.canonicalize()), (Ok(one), Ok(other)) if one == other)
}

/// Runs `icecore vault backup`.
pub async fn run_backup(
    global: &GlobalArgs,
    backup: &BackupCommand,
    out: &mut Output,
) -> Result<()> {
    match backup {
        BackupCommand::Create { file } => create_backup(global, file.as_deref(), out).await,
        BackupCommand::Verify { file, drill } => verify_backup(file, *drill, out).await,
        BackupCommand::Restore { file } => run_restore(global, file, out).await,
    }
}

async fn create_backup(global: &GlobalArgs, file: Option<&Path>, out: &mut Output) -> Result<()> {
    let open = bootstrap::open_memory(global).await?;
    let home = open.place.open().await?;
    let now = open.memory.now();
    let file = file.map_or_else(
        || {
            PathBuf::from(format!(
                "icecore-{}-{}.zip",
                icecore_domain::page::slug(&open.place.title()),
                now.timestamp().strftime("%Y%m%d-%H%M%S")
            ))
        },
        Path::to_owned,
    );
    let Some(name) = file.file_name().and_then(|name| name.to_str()) else {
        return Err(
            AppError::new(Exit::Usage, format!("{} is not a file name", file.display())).into()
        );
    };
    if file.exists() {
        return Err(AppError::new(
            Exit::Conflict,
            format!("{} already exists; name another file", file.display()),
        )
        .into());
    }
    let folder = parent_folder(&file)?;
    import_pending_notes(&open.memory, out).await;
    // Written beside its target, and renamed when it is complete.
    let stage = StagedDir::create(&folder)?;
    let bar = out.step_bar("Backing up");
    let mut written = BufWriter::new(stage.create_file(name)?);
    let carried = back_up(
        home.0.as_ref(),
        &open.place.to_string(),
        &now.to_string(),
        &mut written,
        &progress_updater(&bar),
    )
    .await?;
    written.flush().with_context(|| format!("{} cannot be written", file.display()))?;
    drop(written);
    bar.finish_and_clear();
    // Verified before it is reported as done.
    check_backup(BufReader::new(File::open(stage.file_path(name))?), &|_, _| {})?;
    stage.commit(name)?;
    if !out.is_json() {
        out.line(file.display().to_string())?;
    }
    let users = open
        .place
        .list_users()
        .await?
        .into_iter()
        .map(|(user, place)| user.unwrap_or_else(|| place.title()));
    let more = TransferDetails {
        file: Some(file.display().to_string()),
        left_links: find_links(&open.place),
        left_users: users.map(|user| icecore_domain::sanitize::one_line(&user)).collect(),
        ..TransferDetails::default()
    };
    print_transfer(
        &format!("{} is backed up in {}", open.place, file.display()),
        &carried,
        &more,
        out,
    )
}

fn open_backup(file: &Path) -> Result<BufReader<File>> {
    let opened = File::open(file).map_err(|error| {
        AppError::new(Exit::NotFound, format!("{} cannot be opened: {error}", file.display()))
    })?;
    Ok(BufReader::new(opened))
}

async fn verify_backup(file: &Path, drill: bool, out: &mut Output) -> Result<()> {
    let bar = out.step_bar("Checking");
    let checked = check_backup(open_backup(file)?, &progress_updater(&bar))?;
    bar.finish_and_clear();
    let drilled = if drill { Some(drill_restore(file).await?) } else { None };
    if out.is_json() {
        return out.json(&serde_json::json!({ "made": checked.made, "of": checked.of, "holds": checked.holds, "odd_lines": checked.odd_lines, "drilled": drilled }));
    }
    out.info(format!(
        "{}: valid. Made {} of {}: {} documents, {} bytes, {} events{}",
        file.display(),
        checked.made,
        icecore_domain::sanitize::one_line(&checked.of),
        checked.holds.documents,
        checked.holds.bytes,
        checked.holds.events,
        if drilled.is_some() { "; restored into a temporary vault and verified there" } else { "" }
    ));
    Ok(())
}

/// Restores a backup into a temporary vault and verifies that vault.
async fn drill_restore(file: &Path) -> Result<bool> {
    let folder = tempfile::Builder::new()
        .prefix("icecore-drill-")
        .tempdir()
        .context("making a temporary folder")?;
    let place = StoreLocation::Folder(folder.path().join("vault"));
    let outcome = async {
        let home = place
            .create(icecore_engine::config::initial_config(&bootstrap::utc_zone()?).as_str())
            .await?;
        restore_backup(open_backup(file)?, home.0.as_ref(), &|_, _| {}).await?;
        let verdict = bootstrap::open_location(place.clone(), None)?.memory.verify().await?;
        anyhow::Ok(verdict.ok)
    }
    .await;
    match outcome {
        Ok(true) => Ok(true),
        Ok(false) => Err(AppError::new(
            Exit::Damaged,
            "the backup is valid, but the memory in it is damaged; `icecore verify` on the source shows why",
        )
        .into()),
        Err(error) => Err(error),
    }
}

async fn run_restore(global: &GlobalArgs, file: &Path, out: &mut Output) -> Result<()> {
    // A broken backup is refused before anything is created.
    check_backup(open_backup(file)?, &|_, _| {})?;
    let place = bootstrap::new_location(global)?;
    let home =
        prepare_target(&place, &icecore_engine::config::initial_config(&bootstrap::utc_zone()?))
            .await?;
    let bar = out.step_bar("Restoring");
    let carried =
        restore_backup(open_backup(file)?, home.0.as_ref(), &progress_updater(&bar)).await;
    bar.finish_and_clear();
    print_transfer(
        &format!("{} is in {place}", file.display()),
        &carried?,
        &TransferDetails::default(),
        out,
    )
}
