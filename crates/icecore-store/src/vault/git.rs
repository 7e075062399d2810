//! Snapshots: the vault as a git repository, used through the `git` program.
//!
//! A vault may come from a stranger, and git runs programs that a repository's configuration names.
//! So the configuration is read first, as a plain file, and everything but a short list of harmless
//! settings is refused. Then git runs with hooks, pagers, filters and every other way to start a
//! program disabled. A commit is a point to return to, not a durability point: the files themselves
//! are flushed already.

mod join;
mod past;

pub use self::join::merge_lines;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use async_trait::async_trait;
use icecore_domain::forget::Scrub;
use icecore_domain::layout::{self, DocPath};
use icecore_domain::plain;
use icecore_domain::secrets::MarkerKey;
use jiff::Timestamp;

use super::Vault;
use super::door::{Door, Held};
use crate::{Error, Fork, History, Joined, Result, Rewritten, Snapshot, Unfinished};

/// Settings that cannot make git run a program or leave the vault.
const HARMLESS: &[&str] = &[
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
    MADE_BY_US,
    // Only `merge` merges here, and it names its own driver.
    "merge.icecore.name",
    "merge.icecore.driver",
];
/// The same for any remote and branch; icecore never fetches or pushes.
const HARMLESS_OF: &[(&str, &[&str])] =
    &[("remote.", &["url", "pushurl", "fetch"]), ("branch.", &["remote", "merge", "rebase"])];
/// Marks a repository that `icecore init` created; icecore commits into no other.
const MADE_BY_US: &str = "icecore.vault";

/// The folder for a new repository until it is moved into place.
const APART: &str = "new-repository";

/// Settings that override those of the repository.
const NEUTRAL: &[&str] = &[
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

fn command(root: &Path) -> Command {
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
fn run(root: &Path, arguments: &[&str], at: Option<Timestamp>) -> Result<Output> {
    output(dated(&mut neutral(root, &root.join(".git")), at).args(arguments), arguments)
}

/// Sets the current time for this git.
fn dated(git: &mut Command, at: Option<Timestamp>) -> &mut Command {
    if let Some(at) = at {
        let date = format!("@{} +0000", at.as_second());
        git.env("GIT_AUTHOR_DATE", &date).env("GIT_COMMITTER_DATE", &date);
    }
    git
}

/// A git for the repository at `folder` with [`OVERRIDES`] settings.
fn neutral(root: &Path, folder: &Path) -> Command {
    let mut git = command(root);
    git.env("GIT_DIR", folder).env("GIT_WORK_TREE", root);
    for setting in NEUTRAL {
        git.args(["-c", setting]);
    }
    git
}

fn output(git: &mut Command, arguments: &[&str]) -> Result<Output> {
    let what = arguments.first().copied().unwrap_or_default().to_owned();
    match git.output() {
        Ok(output) => Ok(output),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Err(Error::NoHistory(
            "git is not installed, so there are no snapshots and no undo; everything else works"
                .into(),
        )),
        Err(error) => Err(Error::Git { what, why: error.to_string() }),
    }
}

fn succeed(root: &Path, arguments: &[&str], at: Option<Timestamp>) -> Result<Vec<u8>> {
    let output = run(root, arguments, at)?;
    if output.status.success() { Ok(output.stdout) } else { Err(failure(arguments, &output)) }
}

/// The error for a git that failed.
fn failure(arguments: &[&str], output: &Output) -> Error {
    let told = String::from_utf8_lossy(&output.stderr);
    let why = if told.trim().is_empty() {
        output.status.to_string()
    } else {
        plain::one_line(told.trim())
    };
    Error::Git { what: arguments[0].into(), why }
}

/// Runs a git that changes the repository. It holds the vault's lock while it lives, even if this
/// process dies first.
fn change(root: &Path, held: &Held, arguments: &[&str], at: Option<Timestamp>) -> Result<Vec<u8>> {
    let mut git = neutral(root, &root.join(".git"));
    dated(&mut git, at).stdin(held.as_input()?);
    let output = output(git.args(arguments), arguments)?;
    if output.status.success() { Ok(output.stdout) } else { Err(failure(arguments, &output)) }
}

/// `git add` of folders that an editor may be saving to. A file that disappears during the call
/// makes git fail; the next attempt does not see it.
fn add_all(root: &Path, held: &Held, arguments: &[&str]) -> Result<()> {
    const ATTEMPTS: usize = 20;
    for _ in 1..ATTEMPTS {
        match change(root, held, arguments, None) {
            Err(Error::Git { why, .. })
                if why.contains("unable to stat") || why.contains("short read") =>
            {
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            done => return done.map(drop),
        }
    }
    change(root, held, arguments, None).map(drop)
}

/// Makes the vault a repository of icecore, unless it is a repository already. The new repository
/// is created elsewhere and moved into place complete, so an existing one is either foreign or
/// ready.
pub(super) fn make_repository(door: &Door) -> Result<()> {
    let root = door.root();
    if root.join(".git").symlink_metadata().is_ok() {
        return Err(Error::NotOurs(
            "the folder is a git repository already; icecore does not commit there".into(),
        ));
    }
    let apart = door.private(APART);
    let made = new_repository(door, &apart).and_then(|git| door.install_repository(&git));
    made.and(door.discard(&apart))
}

/// The path of a new repository before it is moved into place.
fn made_apart(door: &Door) -> PathBuf {
    door.private(APART).join(".git")
}

/// Whether a process died while it swapped the repository.
pub(super) fn is_lost(door: &Door) -> bool {
    door.has_lost_repository(&made_apart(door))
}

/// Restores the repository after such a death.
pub(super) fn bring_back(door: &Door, held: &Held) -> Result<()> {
    door.bring_repository_back(held, &made_apart(door))
}

/// Creates a repository in a folder of its own and returns its path.
fn new_repository(door: &Door, apart: &Path) -> Result<PathBuf> {
    door.discard(apart)?;
    door.make_folder(apart)?;
    for arguments in [
        &["init", "--quiet", "--template=", "--initial-branch=main", "."][..],
        &["config", "--local", "core.fsync", "all"],
        &["config", "--local", MADE_BY_US, "true"],
    ] {
        let output = output(command(apart).args(arguments), arguments)?;
        if !output.status.success() {
            return Err(Error::Git {
                what: arguments[0].into(),
                why: plain::one_line(String::from_utf8_lossy(&output.stderr).trim()),
            });
        }
    }
    let made = apart.join(".git");
    join::register(door, &made)?;
    Ok(made)
}

/// Checks that the vault itself has a repository.
fn is_there(root: &Path) -> Result<()> {
    let folder = root.join(".git");
    match folder.symlink_metadata() {
        Err(_) => Err(Error::NoHistory(format!(
            "there are no snapshots, because {} is not a git repository; `git init` there and `git config {MADE_BY_US} true` make it one",
            root.display()
        ))),
        Ok(found) if !found.is_dir() => Err(Error::Link(folder)),
        Ok(_) => Ok(()),
    }
}

/// Checks that the repository is ours and cannot run programs.
fn vet(root: &Path) -> Result<()> {
    vet_listed(root).map(|_| ())
}

/// Like [`vet_repository`]; returns git's list of tracked files.
fn vet_listed(root: &Path) -> Result<String> {
    let (ours, listed) = vet_settings(root)?;
    if ours {
        return Ok(listed);
    }
    // A clone of a vault only lacks the setup; any other repository belongs to somebody else.
    let foreign = || {
        format!(
            "this repository was not made by `icecore init`, so icecore does not commit into it. `git config {MADE_BY_US} true` allows it"
        )
    };
    Err(Error::NotOurs(join::not_set_up(root).unwrap_or_else(foreign)))
}

/// Checks that the repository cannot run programs; returns whether it is ours, and git's list of
/// tracked files.
fn vet_settings(root: &Path) -> Result<(bool, String)> {
    is_there(root)?;
    let folder = root.join(".git");
    for elsewhere in ["commondir", "config.worktree"] {
        if folder.join(elsewhere).symlink_metadata().is_ok() {
            return Err(Error::HostileGit { key: format!("(the file .git/{elsewhere})") });
        }
    }
    // Read as a plain file, without includes and without effect.
    let config = folder.join("config");
    let path = config.to_string_lossy();
    let arguments =
        ["config", "--file", path.as_ref(), "--no-includes", "--list", "--name-only", "-z"];
    let listed = output(command(root).env("GIT_DIR", "/dev/null").args(arguments), &arguments)?;
    if !listed.status.success() {
        return Err(Error::Git {
            what: "config".into(),
            why: String::from_utf8_lossy(&listed.stderr).trim().to_owned(),
        });
    }
    let names = String::from_utf8_lossy(&listed.stdout).into_owned();
    for key in names.split('\0').filter(|key| !key.is_empty()) {
        if !is_harmless(key) {
            return Err(Error::HostileGit { key: plain::one_line(key) });
        }
    }
    let listed =
        String::from_utf8_lossy(&succeed(root, &["ls-files", "--stage", "-z"], None)?).into_owned();
    // A nested repository has its own configuration, which git reads when it looks into it.
    let inner = inner_repository(root, root, 0)
        .map(|place| place.display().to_string())
        .or_else(|| submodule(&listed));
    if let Some(place) = inner {
        return Err(Error::NotOurs(format!(
            "there is a git repository inside the vault, at {}; icecore makes no snapshots while it is there. Move it out of the vault",
            plain::one_line(&place)
        )));
    }
    Ok((names.split('\0').any(|key| key.eq_ignore_ascii_case(MADE_BY_US)), listed))
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
                if kind.is_dir() && entry.path() != root.join(layout::PRIVATE).join(APART) =>
            {
                inner_repository(root, &entry.path(), depth + 1)
            }
            _ => None,
        }
    })
}

/// The first submodule among the tracked files.
fn submodule(listed: &str) -> Option<String> {
    let (_, path) =
        listed.split('\0').find(|entry| entry.starts_with("160000 "))?.split_once('\t')?;
    Some(path.to_owned())
}

fn is_harmless(key: &str) -> bool {
    HARMLESS.iter().any(|known| known.eq_ignore_ascii_case(key))
        || HARMLESS_OF.iter().any(|(section, names)| {
            key.strip_prefix(section)
                .and_then(|rest| rest.rsplit_once('.'))
                .is_some_and(|(_, name)| names.contains(&name))
        })
}

/// The commit of HEAD; `None` if the branch has no commit yet. git exits with 1 for that, and for a
/// missing commit.
fn head(root: &Path) -> Result<Option<String>> {
    let arguments = ["rev-parse", "--verify", "--quiet", "HEAD^{commit}"];
    let output = run(root, &arguments, None)?;
    if output.status.success() {
        return Ok(Some(String::from_utf8_lossy(&output.stdout).trim().to_owned()));
    }
    let is_unborn = output.status.code() == Some(1) && {
        let branch = String::from_utf8_lossy(&succeed(root, &["symbolic-ref", "HEAD"], None)?)
            .trim()
            .to_owned();
        let known = run(root, &["rev-parse", "--verify", "--quiet", "HEAD"], None)?;
        known.status.code() == Some(1) && root.join(".git").join(branch).symlink_metadata().is_err()
    };
    if is_unborn { Ok(None) } else { Err(failure(&arguments, &output)) }
}

/// Commits the staged files, unless they equal the last commit. `git commit` would check every file
/// once more and reread those written in the last second, but nothing is written while we hold the
/// lock. A pending merge is committed too.
fn commit_added(door: &Door, held: &Held, note: &str, at: Timestamp) -> Result<Option<String>> {
    let root = door.root();
    let name = |output: Vec<u8>| String::from_utf8_lossy(&output).trim().to_owned();
    let last = run(root, &["rev-parse", "HEAD^{commit}", "HEAD^{tree}"], None)?;
    let last = String::from_utf8_lossy(if last.status.success() { &last.stdout } else { b"" })
        .into_owned();
    let last = last.trim().split_once('\n');
    let others = join::merge_heads(root)?;
    let tree = name(change(root, held, &["write-tree"], None)?);
    if others.is_empty() && last.is_some_and(|(_, known)| known == tree) {
        return Ok(None);
    }
    let mut arguments = vec!["commit-tree", "-m", note];
    let parents = last.iter().map(|(parent, _)| *parent).chain(others.iter().map(String::as_str));
    arguments.extend(parents.flat_map(|parent| ["-p", parent]));
    arguments.push(&tree);
    let id = name(change(root, held, &arguments, Some(at))?);
    let (what, parent) = last.map_or(("commit (initial)", ""), |(parent, _)| ("commit", parent));
    let what = if others.is_empty() { what } else { "commit (merge)" };
    change(
        root,
        held,
        &["update-ref", "-m", &format!("{what}: {note}"), "HEAD", &id, parent],
        Some(at),
    )?;
    join::end_merge(door)?;
    Ok(Some(id))
}

/// Commits the staged files as the end of a git operation other than a merge.
fn commit_begun(root: &Path, held: &Held, note: &str, at: Timestamp) -> Result<Option<String>> {
    let same = run(
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
    if same && head(root)?.is_some() {
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
    change(root, held, &arguments, Some(at))?;
    head(root)
}

/// The full id of a snapshot.
fn commit(root: &Path, id: &str) -> Result<String> {
    let unknown = || {
        Error::NoHistory(format!(
            "there is no snapshot `{}`; `icecore snapshot --list` shows them",
            plain::one_line(id)
        ))
    };
    if id.is_empty() || !id.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Err(unknown());
    }
    let commit =
        run(root, &["rev-parse", "--verify", "--quiet", &format!("{id}^{{commit}}")], None)?;
    if commit.status.success() {
        Ok(String::from_utf8_lossy(&commit.stdout).trim().to_owned())
    } else {
        Err(unknown())
    }
}

/// Parses git's list of snapshots.
fn snapshots(listed: &[u8]) -> Vec<Snapshot> {
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

#[async_trait]
impl History for Vault {
    async fn available(&self) -> Result<()> {
        is_there(self.root())
    }

    async fn snapshot(&self, note: &str, at: Timestamp) -> Result<Option<Snapshot>> {
        let root = self.root();
        is_there(root)?;
        // The lock keeps writers out, so that a snapshot shows one moment.
        let held = self.door.lock()?;
        self.door.remove_stale_git_locks(&held, false)?;
        let tracked = vet_listed(root)?;
        join::refuse_unsettled(&self.door)?;
        // Only what belongs to a vault: the folder may hold other files, which are not ours to
        // commit.
        let here: Vec<&str> = layout::KEPT
            .iter()
            .copied()
            .filter(|name| root.join(name).symlink_metadata().is_ok())
            .collect();
        let gone = |name: &&&str| {
            let paths = tracked
                .split('\0')
                .filter_map(|entry| entry.split_once('\t'))
                .map(|(_, path)| path);
            paths.into_iter().any(|path| {
                path.strip_prefix(**name)
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            })
        };
        let names = layout::KEPT.iter().filter(|name| here.contains(name) || gone(name)).copied();
        let arguments: Vec<&str> = ["add", "--all", "--"].into_iter().chain(names).collect();
        add_all(root, &held, &arguments)?;
        let note: String = plain::one_line(note).chars().take(200).collect();
        let begun = join::is_begun(root);
        let id = if begun {
            commit_begun(root, &held, &note, at)?
        } else {
            commit_added(&self.door, &held, &note, at)?
        };
        Ok(id.map(|id| Snapshot { id, at, note }))
    }

    async fn snapshots(&self, most: usize) -> Result<Vec<Snapshot>> {
        let root = self.root();
        vet(root)?;
        if head(root)?.is_none() {
            return Ok(Vec::new());
        }
        let most = format!("--max-count={most}");
        let listed = succeed(
            root,
            &["log", "-z", &most, "--no-show-signature", "--format=%H %ct %s"],
            None,
        )?;
        Ok(snapshots(&listed))
    }

    async fn changes_since(&self, id: &str) -> Result<Vec<(DocPath, Option<Vec<u8>>)>> {
        let root = self.root();
        vet(root)?;
        let commit = commit(root, id)?;
        let arguments = [
            "diff",
            "-z",
            "--name-status",
            "--no-renames",
            "--no-ext-diff",
            "--no-textconv",
            "--ignore-submodules=all",
            &commit,
            "--",
        ];
        let listed = String::from_utf8_lossy(&succeed(root, &arguments, None)?).into_owned();
        let mut words = listed.split('\0').filter(|word| !word.is_empty());
        let mut found = Vec::new();
        while let (Some(status), Some(path)) = (words.next(), words.next()) {
            let Ok(document) = path.parse::<DocPath>() else { continue };
            let then = match status {
                "A" => None,
                _ => Some(succeed(root, &["cat-file", "blob", &format!("{commit}:{path}")], None)?),
            };
            found.push((document, then));
        }
        Ok(found)
    }

    async fn versions(&self, path: &DocPath, most: usize) -> Result<Vec<Snapshot>> {
        let root = self.root();
        vet(root)?;
        if head(root)?.is_none() {
            return Ok(Vec::new());
        }
        let most = format!("--max-count={most}");
        let arguments = [
            "log",
            "-z",
            &most,
            "--no-show-signature",
            "--no-ext-diff",
            "--no-textconv",
            "--format=%H %ct %s",
            "--",
            path.as_str(),
        ];
        Ok(snapshots(&succeed(root, &arguments, None)?))
    }

    async fn version(&self, id: &str, path: &DocPath) -> Result<Option<Vec<u8>>> {
        let root = self.root();
        vet(root)?;
        let commit = commit(root, id)?;
        let is_there =
            !succeed(root, &["ls-tree", "-z", &commit, "--", path.as_str()], None)?.is_empty();
        if is_there {
            Ok(Some(succeed(root, &["cat-file", "blob", &format!("{commit}:{path}")], None)?))
        } else {
            Ok(None)
        }
    }

    async fn stands_in(&self, scrub: &Scrub) -> Result<(usize, usize)> {
        vet(self.root())?;
        past::stands_in(self.root(), scrub)
    }

    async fn rewrite(&self, scrub: &Scrub) -> Result<Rewritten> {
        vet(self.root())?;
        let held = self.door.lock()?;
        self.door.remove_stale_git_locks(&held, false)?;
        join::refuse_unsettled(&self.door)?;
        past::rewrite(&self.door, scrub)
    }

    async fn pack(&self) -> Result<()> {
        let root = self.root();
        vet(root)?;
        // Geometric repacking merges a pack into a later one once they have similar sizes, so the
        // weekly cost stays about constant.
        let packed = run(root, &["repack", "-d", "-q", "--geometric=2"], None)?;
        // Not supported before git 2.33.
        if packed.status.success() {
            Ok(())
        } else {
            succeed(root, &["repack", "-d", "-q"], None).map(|_| ())
        }
    }

    async fn repair(&self) -> Result<Vec<String>> {
        let mut done = Vec::new();
        let held = self.door.lock()?;
        // Restore a repository from an interrupted swap first; creating a new one would discard it.
        bring_back(&self.door, &held)?;
        if is_there(self.root()).is_err() {
            make_repository(&self.door)?;
            return Ok(vec!["created a git repository for snapshots".into()]);
        }
        let removed = self.door.remove_stale_git_locks(&held, true)?;
        done.extend(
            removed.into_iter().map(|lock| format!("removed the stale lock {}", lock.display())),
        );
        let apart = self.door.private(APART);
        if apart.symlink_metadata().is_ok() {
            self.door.discard(&apart)?;
            done.push("removed an unfinished repository".into());
        }
        if vet(self.root()).is_ok() && join::register(&self.door, &self.root().join(".git"))? {
            done.push("set up git's merge driver for memory files".into());
        }
        Ok(done)
    }

    async fn wants(&self) -> Vec<String> {
        join::wants(self.root())
    }

    async fn is_shared(&self) -> bool {
        join::is_shared(self.root())
    }

    async fn fork(&self, other: Option<&str>) -> Result<Fork> {
        join::fork(self.root(), other)
    }

    async fn join(&self, fork: &Fork) -> Result<Joined> {
        join::join(&self.door, fork)
    }

    async fn resume_join(&self) -> Result<Option<Joined>> {
        join::resume(&self.door)
    }

    async fn other_marker_key(&self, fork: &Fork) -> Option<MarkerKey> {
        join::other_marker_key(self.root(), fork)
    }

    async fn unfinished(&self) -> Result<Option<Unfinished>> {
        join::unfinished(&self.door)
    }

    async fn foreign_merge(&self) -> Result<Option<String>> {
        join::foreign_merge(self.root())
    }
}

impl Vault {
    /// Sets up a clone of a vault: from now on icecore keeps snapshots in its repository and merges
    /// it. `None` if it is set up already or there is no repository.
    pub fn adopt(root: &Path) -> Result<Option<Self>> {
        let vault = Self::open(root)?;
        if is_there(vault.root()).is_err() || !join::adopt(&vault.door)? {
            return Ok(None);
        }
        Ok(Some(vault))
    }
}
