//! Snapshots: the vault as a git repository, used through the `git` program.
//!
//! A vault may come from a stranger, and git runs programs that a repository's configuration names.
//! So the configuration is read first, as a plain file, and everything but a short list of harmless
//! settings is refused. Then git runs with hooks, pagers, filters and every other way to start a
//! program disabled. A commit is a point to return to, not a durability point: the files themselves
//! are flushed already.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use icecore_domain::layout;
use icecore_domain::sanitize;
use jiff::Timestamp;

pub use self::merge_plan::merge_lines;

use super::vault_fs::{VaultFs, WriteLock};
use crate::{Error, Result, Snapshot};

pub(super) mod history_rewrite;
pub(super) mod merge;
pub(super) mod merge_driver;
mod merge_plan;

/// Settings that cannot make git run a program or leave the vault.
const SAFE_SETTINGS: &[&str] = &[
    "core.repositoryformatversion",
    "core.filemode",
    "core.bare",
    "core.logallrefupdates",
    "core.ignorecase",
    "core.precomposeunicode",
    "core.symlinks",
    "core.fsync",
    "core.fsyncmethod",
    "core.autocrlf",
    "core.eol",
    "extensions.objectformat",
    "extensions.refstorage",
    "init.defaultbranch",
    "user.name",
    "user.email",
    OWNERSHIP_SETTING,
    // Only `merge` merges here, and it names its own driver.
    "merge.icecore.name",
    "merge.icecore.driver",
];
/// The same for any remote and branch; icecore never fetches or pushes.
const SAFE_SUBSECTION_SETTINGS: &[(&str, &[&str])] =
    &[("remote.", &["url", "pushurl", "fetch"]), ("branch.", &["remote", "merge", "rebase"])];
/// Marks a repository that `icecore init` created; icecore commits into no other.
const OWNERSHIP_SETTING: &str = "icecore.vault";

/// The folder for a new repository until it is moved into place.
pub(super) const NEW_REPOSITORY_DIR: &str = "new-repository";

/// Settings that override those of the repository.
const OVERRIDES: &[&str] = &[
    "core.fsmonitor=false",
    "core.hooksPath=/dev/null",
    "core.attributesFile=/dev/null",
    "core.excludesFile=/dev/null",
    "core.pager=cat",
    "core.editor=false",
    "core.sshCommand=false",
    "core.autocrlf=false",
    "core.fsync=all",
    // One flush for all objects of a snapshot, without compression, because the growing ledger is
    // stored every night. The weekly repack keeps only the differences of append-only files.
    "core.fsyncMethod=batch",
    "core.looseCompression=0",
    "core.untrackedCache=false",
    "submodule.recurse=false",
    "diff.ignoreSubmodules=all",
    "protocol.allow=never",
    "protocol.ext.allow=never",
    "diff.external=",
    "commit.gpgSign=false",
    "gc.auto=0",
    "maintenance.auto=false",
    "advice.addEmbeddedRepo=false",
    "user.name=icecore",
    "user.email=icecore@localhost",
    "user.useConfigOnly=false",
];

fn git_command(root: &Path) -> Command {
    let mut git = Command::new("git");
    for (name, _) in
        std::env::vars_os().filter(|(name, _)| name.as_encoded_bytes().starts_with(b"GIT_"))
    {
        git.env_remove(name);
    }
    git.current_dir(root)
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_ATTR_NOSYSTEM", "1")
        .env("GIT_TERMINAL_PROMPT", "0")
        .env("GIT_NO_LAZY_FETCH", "1")
        .env("GIT_NO_REPLACE_OBJECTS", "1")
        .env("GIT_OPTIONAL_LOCKS", "0")
        .env("LC_ALL", "C")
        .stdin(Stdio::null());
    git
}

/// Runs git in the repository of `root` with [`OVERRIDES`] settings.
pub(super) fn run_git(root: &Path, arguments: &[&str], at: Option<Timestamp>) -> Result<Output> {
    git_output(set_date(&mut git_for(root, &root.join(".git")), at).args(arguments), arguments)
}

/// Sets the current time for this git.
fn set_date(git: &mut Command, at: Option<Timestamp>) -> &mut Command {
    if let Some(at) = at {
        let date = format!("@{} +0000", at.as_second());
        git.env("GIT_AUTHOR_DATE", &date).env("GIT_COMMITTER_DATE", &date);
    }
    git
}

/// A git for the repository at `folder` with [`OVERRIDES`] settings.
fn git_for(root: &Path, folder: &Path) -> Command {
    let mut git = git_command(root);
    git.env("GIT_DIR", folder).env("GIT_WORK_TREE", root);
    for setting in OVERRIDES {
        git.args(["-c", setting]);
    }
    git
}

fn git_output(git: &mut Command, arguments: &[&str]) -> Result<Output> {
    let what = arguments.first().copied().unwrap_or_default().to_owned();
    match git.output() {
        Ok(output) => Ok(output),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Err(Error::no_snapshots(
            "git is not installed, so there are no snapshots and no undo; everything else works"
                .into(),
        )),
        Err(error) => Err(Error::git(what, error.to_string())),
    }
}

pub(super) fn run_git_ok(
    root: &Path,
    arguments: &[&str],
    at: Option<Timestamp>,
) -> Result<Vec<u8>> {
    let output = run_git(root, arguments, at)?;
    if output.status.success() { Ok(output.stdout) } else { Err(git_error(arguments, &output)) }
}

/// The error for a git that failed.
fn git_error(arguments: &[&str], output: &Output) -> Error {
    let told = String::from_utf8_lossy(&output.stderr);
    let why = if told.trim().is_empty() {
        output.status.to_string()
    } else {
        sanitize::one_line(told.trim())
    };
    Error::git(arguments[0].into(), why)
}

/// Runs a git that changes the repository. It holds the vault's lock while it lives, even if this
/// process dies first.
fn run_git_locked(
    root: &Path,
    lock: &WriteLock,
    arguments: &[&str],
    at: Option<Timestamp>,
) -> Result<Vec<u8>> {
    let mut git = git_for(root, &root.join(".git"));
    set_date(&mut git, at).stdin(lock.as_stdin()?);
    let output = git_output(git.args(arguments), arguments)?;
    if output.status.success() { Ok(output.stdout) } else { Err(git_error(arguments, &output)) }
}

/// `git add` of folders that an editor may be saving to. A file that disappears during the call
/// makes git fail; the next attempt does not see it.
pub(super) fn add_all(root: &Path, lock: &WriteLock, arguments: &[&str]) -> Result<()> {
    const ATTEMPTS: usize = 20;
    for _ in 1..ATTEMPTS {
        match run_git_locked(root, lock, arguments, None) {
            Err(error)
                if ["unable to stat", "short read"]
                    .iter()
                    .any(|why| error.to_string().contains(why)) =>
            {
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            done => return done.map(drop),
        }
    }
    run_git_locked(root, lock, arguments, None).map(drop)
}

/// Makes the vault a repository of icecore, unless it is a repository already. The new repository
/// is created elsewhere and moved into place complete, so an existing one is either foreign or
/// ready.
pub(super) fn make_repository(vault_fs: &VaultFs) -> Result<()> {
    let root = vault_fs.root();
    if root.join(".git").symlink_metadata().is_ok() {
        return Err(Error::foreign_repository(
            "the folder is a git repository already; icecore does not commit there".into(),
        ));
    }
    let apart = vault_fs.private(NEW_REPOSITORY_DIR);
    let made =
        create_new_repository(vault_fs, &apart).and_then(|git| vault_fs.install_repository(&git));
    made.and(vault_fs.remove_own_folder(&apart))
}

/// The path of a new repository before it is moved into place.
fn new_repository_path(vault_fs: &VaultFs) -> PathBuf {
    vault_fs.private(NEW_REPOSITORY_DIR).join(".git")
}

/// Whether a process died while it swapped the repository.
pub(super) fn is_swap_interrupted(vault_fs: &VaultFs) -> bool {
    vault_fs.has_lost_repository(&new_repository_path(vault_fs))
}

/// Restores the repository after such a death.
pub(super) fn restore_repository(vault_fs: &VaultFs, lock: &WriteLock) -> Result<()> {
    vault_fs.restore_repository(lock, &new_repository_path(vault_fs))
}

/// Creates a repository in a folder of its own and returns its path.
fn create_new_repository(vault_fs: &VaultFs, apart: &Path) -> Result<PathBuf> {
    vault_fs.remove_own_folder(apart)?;
    vault_fs.make_folder(apart)?;
    for arguments in [
        &["init", "--quiet", "--template=", "--initial-branch=main", "."][..],
        &["config", "--local", "core.fsync", "all"],
        &["config", "--local", OWNERSHIP_SETTING, "true"],
    ] {
        let output = git_output(git_command(apart).args(arguments), arguments)?;
        if !output.status.success() {
            return Err(Error::git(
                arguments[0].into(),
                sanitize::one_line(String::from_utf8_lossy(&output.stderr).trim()),
            ));
        }
    }
    let made = apart.join(".git");
    merge_driver::register_driver(vault_fs, &made)?;
    Ok(made)
}

/// Checks that the vault itself has a repository.
pub(super) fn check_repository(root: &Path) -> Result<()> {
    let folder = root.join(".git");
    match folder.symlink_metadata() {
        Err(_) => Err(Error::no_snapshots(format!(
            "there are no snapshots, because {} is not a git repository; `git init` there and `git config {OWNERSHIP_SETTING} true` make it one",
            root.display()
        ))),
        Ok(found) if !found.is_dir() => Err(Error::link(folder)),
        Ok(_) => Ok(()),
    }
}

/// Checks that the repository is ours and cannot run programs.
pub(super) fn vet_repository(root: &Path) -> Result<()> {
    vet_listed(root).map(|_| ())
}

/// Like [`vet_repository`]; returns git's list of tracked files.
pub(super) fn vet_listed(root: &Path) -> Result<String> {
    let (ours, listed) = vet_settings(root)?;
    if ours {
        return Ok(listed);
    }
    // A clone of a vault only lacks the setup; any other repository is foreign.
    let foreign = || {
        format!(
            "this repository was not made by `icecore init`, so icecore does not commit into it. `git config {OWNERSHIP_SETTING} true` allows it"
        )
    };
    Err(Error::foreign_repository(merge_driver::missing_setup(root).unwrap_or_else(foreign)))
}

/// Checks that the repository cannot run programs; returns whether it is ours, and git's list of
/// tracked files.
fn vet_settings(root: &Path) -> Result<(bool, String)> {
    check_repository(root)?;
    let folder = root.join(".git");
    for elsewhere in ["commondir", "config.worktree"] {
        if folder.join(elsewhere).symlink_metadata().is_ok() {
            return Err(Error::hostile_git(format!("(the file .git/{elsewhere})")));
        }
    }
    // Read as a plain file, without includes and without effect.
    let config = folder.join("config");
    let path = config.to_string_lossy();
    let arguments =
        ["config", "--file", path.as_ref(), "--no-includes", "--list", "--name-only", "-z"];
    let listed =
        git_output(git_command(root).env("GIT_DIR", "/dev/null").args(arguments), &arguments)?;
    if !listed.status.success() {
        return Err(Error::git(
            "config".into(),
            String::from_utf8_lossy(&listed.stderr).trim().to_owned(),
        ));
    }
    let names = String::from_utf8_lossy(&listed.stdout).into_owned();
    for key in names.split('\0').filter(|key| !key.is_empty()) {
        if !is_safe_setting(key) {
            return Err(Error::hostile_git(sanitize::one_line(key)));
        }
    }
    let listed = String::from_utf8_lossy(&run_git_ok(root, &["ls-files", "--stage", "-z"], None)?)
        .into_owned();
    // A nested repository has its own configuration, which git reads when it looks into it.
    let inner = inner_repository(root, root, 0)
        .map(|place| place.display().to_string())
        .or_else(|| first_submodule(&listed));
    if let Some(place) = inner {
        return Err(Error::foreign_repository(format!(
            "there is a git repository inside the vault, at {}; icecore makes no snapshots while it is there. Move it out of the vault",
            sanitize::one_line(&place)
        )));
    }
    Ok((names.split('\0').any(|key| key.eq_ignore_ascii_case(OWNERSHIP_SETTING)), listed))
}

/// The first `.git` below the vault's own. Skips the new repository, also one that a dead process
/// left.
fn inner_repository(root: &Path, folder: &Path, depth: usize) -> Option<PathBuf> {
    const MAX_DEPTH: usize = 64;
    if depth > MAX_DEPTH {
        return Some(folder.to_owned());
    }
    std::fs::read_dir(folder).ok()?.flatten().find_map(|entry| {
        let is_git = entry.file_name() == ".git";
        match (is_git, entry.file_type()) {
            (true, _) if depth > 0 => Some(entry.path()),
            (false, Ok(kind))
                if kind.is_dir()
                    && entry.path() != root.join(layout::PRIVATE).join(NEW_REPOSITORY_DIR) =>
            {
                inner_repository(root, &entry.path(), depth + 1)
            }
            _ => None,
        }
    })
}

/// The first submodule among the tracked files.
fn first_submodule(listed: &str) -> Option<String> {
    let (_, path) =
        listed.split('\0').find(|entry| entry.starts_with("160000 "))?.split_once('\t')?;
    Some(path.to_owned())
}

fn is_safe_setting(key: &str) -> bool {
    SAFE_SETTINGS.iter().any(|known| known.eq_ignore_ascii_case(key))
        || SAFE_SUBSECTION_SETTINGS.iter().any(|(section, names)| {
            key.strip_prefix(section)
                .and_then(|rest| rest.rsplit_once('.'))
                .is_some_and(|(_, name)| names.contains(&name))
        })
}

/// The commit of HEAD; `None` if the branch has no commit yet. git exits with 1 for that, and for a
/// missing commit.
pub(super) fn head_commit(root: &Path) -> Result<Option<String>> {
    let arguments = ["rev-parse", "--verify", "--quiet", "HEAD^{commit}"];
    let output = run_git(root, &arguments, None)?;
    if output.status.success() {
        return Ok(Some(String::from_utf8_lossy(&output.stdout).trim().to_owned()));
    }
    let is_unborn = output.status.code() == Some(1) && {
        let branch = String::from_utf8_lossy(&run_git_ok(root, &["symbolic-ref", "HEAD"], None)?)
            .trim()
            .to_owned();
        let known = run_git(root, &["rev-parse", "--verify", "--quiet", "HEAD"], None)?;
        known.status.code() == Some(1) && root.join(".git").join(branch).symlink_metadata().is_err()
    };
    if is_unborn { Ok(None) } else { Err(git_error(&arguments, &output)) }
}

/// Commits the staged files, unless they equal the last commit. `git commit` would check every file
/// once more and reread those written in the last second, but nothing is written while we hold the
/// lock. A pending merge is committed too.
pub(super) fn commit_added(
    vault_fs: &VaultFs,
    lock: &WriteLock,
    note: &str,
    at: Timestamp,
) -> Result<Option<String>> {
    let root = vault_fs.root();
    let name = |output: Vec<u8>| String::from_utf8_lossy(&output).trim().to_owned();
    let last = run_git(root, &["rev-parse", "HEAD^{commit}", "HEAD^{tree}"], None)?;
    let last = String::from_utf8_lossy(if last.status.success() { &last.stdout } else { b"" })
        .into_owned();
    let last = last.trim().split_once('\n');
    let others = merge::pending_merge_heads(root)?;
    let tree = name(run_git_locked(root, lock, &["write-tree"], None)?);
    if others.is_empty() && last.is_some_and(|(_, known)| known == tree) {
        return Ok(None);
    }
    let mut arguments = vec!["commit-tree", "-m", note];
    let parents = last.iter().map(|(parent, _)| *parent).chain(others.iter().map(String::as_str));
    arguments.extend(parents.flat_map(|parent| ["-p", parent]));
    arguments.push(&tree);
    let id = name(run_git_locked(root, lock, &arguments, Some(at))?);
    let (what, parent) = last.map_or(("commit (initial)", ""), |(parent, _)| ("commit", parent));
    let what = if others.is_empty() { what } else { "commit (merge)" };
    run_git_locked(
        root,
        lock,
        &["update-ref", "-m", &format!("{what}: {note}"), "HEAD", &id, parent],
        Some(at),
    )?;
    merge::clear_merge_state(vault_fs)?;
    Ok(Some(id))
}

/// Commits the staged files as the end of a git operation other than a merge.
pub(super) fn commit_operation(
    root: &Path,
    lock: &WriteLock,
    note: &str,
    at: Timestamp,
) -> Result<Option<String>> {
    let same = run_git(
        root,
        &[
            "diff",
            "--cached",
            "--quiet",
            "--no-ext-diff",
            "--no-textconv",
            "--ignore-submodules=all",
        ],
        None,
    )?
    .status
    .success();
    if same && head_commit(root)?.is_some() {
        return Ok(None);
    }
    let arguments = [
        "commit",
        "--quiet",
        "--no-verify",
        "--no-gpg-sign",
        "--allow-empty",
        "--cleanup=verbatim",
        "--message",
        note,
    ];
    run_git_locked(root, lock, &arguments, Some(at))?;
    head_commit(root)
}

/// The full id of a snapshot.
pub(super) fn resolve_snapshot(root: &Path, id: &str) -> Result<String> {
    let unknown = || {
        Error::no_snapshots(format!(
            "there is no snapshot `{}`; `icecore snapshot --list` shows them",
            sanitize::one_line(id)
        ))
    };
    if id.is_empty() || !id.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Err(unknown());
    }
    let commit =
        run_git(root, &["rev-parse", "--verify", "--quiet", &format!("{id}^{{commit}}")], None)?;
    if commit.status.success() {
        Ok(String::from_utf8_lossy(&commit.stdout).trim().to_owned())
    } else {
        Err(unknown())
    }
}

/// Parses git's list of snapshots.
pub(super) fn parse_snapshots(listed: &[u8]) -> Vec<Snapshot> {
    let read = |line: &str| {
        let mut parts = line.splitn(3, ' ');
        let (id, seconds, note) = (parts.next()?, parts.next()?, parts.next().unwrap_or_default());
        Some(Snapshot {
            id: id.to_owned(),
            at: Timestamp::from_second(seconds.parse().ok()?).ok()?,
            note: note.to_owned(),
        })
    };
    String::from_utf8_lossy(listed).split('\0').filter_map(read).collect()
}
