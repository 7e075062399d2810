//! Merges the vaults of two machines, and registers the merge driver for a person's own `git pull`.
//!
//! git never writes a file of the vault here. The result of each file is computed from three
//! commits, in memory. Then a journal names the two sides, the files are replaced one by one, and
//! the merge waits for the next commit. If a process dies after the journal was written, the next
//! one completes the merge: it recognizes files that are in place already, and merges what others
//! wrote into a file meanwhile with the result.
//!
//! The driver is assigned in `.git/info/attributes`, not in the `.gitattributes` that a clone gets:
//! where a file names a driver that is not set up, git merges line by line, which would damage a
//! ledger. A clone without the setup refuses to merge instead.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use icecore_domain::forget::{Fate, Tombstones};
use icecore_domain::layout::{self, DocPath};
use icecore_domain::merge::{self, Merged, Sides};
use icecore_domain::page::PageKey;
use icecore_domain::plain;
use icecore_domain::secrets::MarkerKey;

use super::super::door::{ATTEMPTS, Expected, fault};
use super::past::read_blobs;
use super::{
    Door, Held, MADE_BY_US, change, failure, head, neutral, output, run, succeed, vet, vet_settings,
};
use crate::{ContentVersion, Error, Fork, Joined, MARKER_KEY, MERGED, Result, SETTLED, Unfinished};

/// git's name of the driver.
const DRIVER: &str = "merge.icecore.driver";
const NAME: &str = "merge.icecore.name";
/// The line that assigns all files to the driver.
const ATTRIBUTES: &str = "* merge=icecore";
/// The private file that names the two sides while files are replaced.
const JOURNAL: &str = "merge-journal";
/// Shown while the journal exists.
const CUT_SHORT: &str = "a merge of two machines was interrupted. `icecore merge` finishes it";

/// The author of our snapshots.
const US: &str = "icecore@localhost";

/// The driver command, which git runs in a shell.
fn driver() -> String {
    let program = std::env::current_exe()
        .ok()
        .and_then(|path| path.to_str().map(str::to_owned))
        .unwrap_or_else(|| "icecore".into());
    format!("'{}' merge-driver %O %A %B %P", program.replace('\'', r"'\''"))
}

/// Registers the driver in the repository at `folder`; whether anything was missing.
pub(super) fn register(door: &Door, folder: &Path) -> Result<bool> {
    let config = folder.join("config");
    let path = config.to_string_lossy().into_owned();
    let mut changed = false;
    for (key, value) in [
        (NAME, "icecore: every line once, what was forgotten stays forgotten".to_owned()),
        (DRIVER, driver()),
    ] {
        let file = ["config", "--file", path.as_str(), "--no-includes"];
        let known = output(
            super::command(door.root()).env("GIT_DIR", "/dev/null").args(file).args(["--get", key]),
            &file,
        )?;
        if known.status.success() && String::from_utf8_lossy(&known.stdout).trim_end() == value {
            continue;
        }
        let set = output(
            super::command(door.root()).env("GIT_DIR", "/dev/null").args(file).args([
                "--replace-all",
                key,
                &value,
            ]),
            &file,
        )?;
        if !set.status.success() {
            return Err(Error::Git {
                what: "config".into(),
                why: plain::one_line(String::from_utf8_lossy(&set.stderr).trim()),
            });
        }
        changed = true;
    }
    let place = attributes(folder);
    let known = std::fs::read_to_string(&place).unwrap_or_default();
    if !known.lines().any(|line| line.trim() == ATTRIBUTES) {
        let ended =
            if known.is_empty() || known.ends_with('\n') { known } else { format!("{known}\n") };
        door.put_git_file(&place, format!("{ended}{ATTRIBUTES}\n").as_bytes())?;
        changed = true;
    }
    Ok(changed)
}

fn attributes(folder: &Path) -> PathBuf {
    folder.join("info").join("attributes")
}

/// Copies the remotes of a repository to the one that replaces it.
pub(super) fn keep_others(root: &Path, folder: &Path) -> Result<()> {
    let (old, new) = (root.join(".git/config"), folder.join("config"));
    let (old, new) = (old.to_string_lossy().into_owned(), new.to_string_lossy().into_owned());
    let list = ["config", "--file", old.as_str(), "--no-includes", "--list", "-z"];
    let listed = output(super::command(root).env("GIT_DIR", "/dev/null").args(list), &list)?;
    for entry in String::from_utf8_lossy(&listed.stdout).split('\0') {
        let Some((key, value)) = entry.split_once('\n') else { continue };
        if key.starts_with("remote.") || key.starts_with("branch.") {
            let add = ["config", "--file", new.as_str(), "--no-includes", "--add", key, value];
            output(super::command(root).env("GIT_DIR", "/dev/null").args(add), &add)?;
        }
    }
    Ok(())
}

/// What is visible of a repository without running git: whether it is ours, has the driver, and is
/// shared with other machines.
struct Seen {
    ours: bool,
    driver: bool,
    shared: bool,
}

fn see(root: &Path) -> Option<Seen> {
    let folder = root.join(".git");
    let config = std::fs::read_to_string(folder.join("config")).ok()?;
    let (mut section, mut seen) =
        (String::new(), Seen { ours: false, driver: false, shared: false });
    let mine = MADE_BY_US.rsplit_once('.');
    for line in config.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix('[') {
            section = name.trim_end_matches(']').to_ascii_lowercase();
            seen.shared |= section.starts_with("remote ");
        }
        let key = line.split('=').next().unwrap_or_default().trim().to_ascii_lowercase();
        seen.ours |= mine.is_some_and(|(of, name)| section == of && key == name);
        seen.driver |= section == "merge \"icecore\"" && key == "driver";
    }
    // A fetch without a named remote also means another machine.
    seen.shared |= folder.join("FETCH_HEAD").exists();
    let given = std::fs::read_to_string(attributes(&folder)).unwrap_or_default();
    seen.driver &= given.lines().any(|line| line.trim() == ATTRIBUTES);
    Some(seen)
}

/// Whether the repository knows another machine's.
pub(super) fn is_shared(root: &Path) -> bool {
    see(root).is_some_and(|seen| seen.shared)
}

/// The missing setup of this clone, if any.
pub(super) fn not_set_up(root: &Path) -> Option<String> {
    let seen = see(root)?;
    (seen.shared && !seen.ours).then(|| {
        format!(
            "this clone is not set up: icecore keeps no snapshots here and git refuses to merge. Run `icecore init {}`, then merge again",
            root.display()
        )
    })
}

/// The steps a person must take before two machines can use the vault.
pub(super) fn wants(root: &Path) -> Vec<String> {
    let Some(seen) = see(root) else { return Vec::new() };
    let mut wants: Vec<String> = not_set_up(root).into_iter().collect();
    if seen.shared && seen.ours && !seen.driver {
        wants
            .push("git has no merge driver for memory files here, so it refuses to merge. Run `icecore doctor --fix`, then merge again".into());
    }
    if root.join(".git/MERGE_HEAD").exists() {
        wants.push(
            "a merge is not completed. `icecore merge` completes it if it has no open conflicts; `git merge --abort` undoes it".into(),
        );
    }
    wants
}

/// Whether git is in the middle of an operation, other than a merge, that the next `git commit`
/// ends.
pub(super) fn is_begun(root: &Path) -> bool {
    const BEGUN: &[&str] =
        &["CHERRY_PICK_HEAD", "REVERT_HEAD", "SQUASH_MSG", "rebase-merge", "rebase-apply"];
    BEGUN.iter().any(|name| root.join(".git").join(name).symlink_metadata().is_ok())
}

/// The commits that the next commit will merge, without those that are merged already.
pub(super) fn merge_heads(root: &Path) -> Result<Vec<String>> {
    let text = std::fs::read_to_string(root.join(".git/MERGE_HEAD")).unwrap_or_default();
    let mut heads = Vec::new();
    for commit in text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && line.bytes().all(|byte| byte.is_ascii_hexdigit()))
    {
        if !run(root, &["merge-base", "--is-ancestor", commit, "HEAD"], None)?.status.success() {
            heads.push(commit.to_owned());
        }
    }
    Ok(heads)
}

/// Removes the state files of a committed merge.
pub(super) fn end_merge(door: &Door) -> Result<()> {
    // MERGE_HEAD decides, so it goes last.
    for name in ["MERGE_MODE", "MERGE_MSG", "AUTO_MERGE", "MERGE_HEAD"] {
        door.remove_git_file(&door.root().join(".git").join(name))?;
    }
    Ok(())
}

/// Files with unresolved conflicts.
pub(super) fn unsettled(root: &Path) -> Result<Vec<String>> {
    if !root.join(".git/MERGE_HEAD").exists()
        && !root.join(".git/rebase-merge").exists()
        && !root.join(".git/CHERRY_PICK_HEAD").exists()
    {
        return Ok(Vec::new());
    }
    let listed = succeed(
        root,
        &["diff", "--name-only", "--diff-filter=U", "-z", "--no-ext-diff", "--no-textconv"],
        None,
    )?;
    let listed = String::from_utf8_lossy(&listed).into_owned();
    Ok(listed.split('\0').filter(|path| !path.is_empty()).map(plain::one_line).collect())
}

/// Fails while a merge is open: a commit now would contain only one side of it.
pub(super) fn refuse_unsettled(door: &Door) -> Result<()> {
    if door.read_journal(JOURNAL)?.is_some() {
        return Err(Error::Unsettled(CUT_SHORT.into()));
    }
    let open = unsettled(door.root())?;
    let Some(first) = open.first() else { return Ok(()) };
    Err(Error::Unsettled(format!(
        "a merge has unresolved conflicts in {}, the first in {first}. `git merge --abort` undoes it, and `icecore merge` merges in another way",
        if open.len() == 1 { "a file".into() } else { format!("{} files", open.len()) }
    )))
}

/// The other side and the lines that decide which ids it used.
pub(super) fn fork(root: &Path, other: Option<&str>) -> Result<Fork> {
    vet(root)?;
    let ours = head(root)?.ok_or_else(|| {
        Error::NoHistory("there is no snapshot yet, so there is nothing to merge with; `icecore snapshot` creates one".into())
    })?;
    let commit = |name: &str| -> Result<Option<String>> {
        let found = run(
            root,
            &[
                "rev-parse",
                "--verify",
                "--quiet",
                "--end-of-options",
                &format!("{name}^{{commit}}"),
            ],
            None,
        )?;
        Ok(found.status.success().then(|| String::from_utf8_lossy(&found.stdout).trim().to_owned()))
    };
    let name = match other {
        Some(name) => name.to_owned(),
        None => upstream(root)?,
    };
    let theirs = commit(&name)?.ok_or_else(|| {
        Error::NoHistory(format!(
            "there is no commit `{}` here. Run `git fetch` to get what the other machine has pushed",
            plain::one_line(&name)
        ))
    })?;
    let base = run(root, &["merge-base", &ours, &theirs], None)?;
    if !base.status.success() {
        return Err(Error::NotOurs(format!(
            "`{}` and this vault have no common history. Clone one and `icecore import` the other",
            plain::one_line(&name)
        )));
    }
    let base = String::from_utf8_lossy(&base.stdout).trim().to_owned();
    let side = |commit: &str| -> Result<Vec<(DocPath, Vec<u8>)>> {
        let listed =
            succeed(root, &["ls-tree", "-r", "-z", "--name-only", commit, "--", "memory"], None)?;
        let wanted = |path: &DocPath| {
            path.as_str() == layout::LEDGER
                || path.as_str() == layout::INTEGRITY
                || path.is_archive()
        };
        let paths = listed
            .split(|byte| *byte == 0)
            .filter_map(|path| std::str::from_utf8(path).ok()?.parse().ok())
            .filter(wanted);
        paths
            .map(|path| {
                Ok((
                    path.clone(),
                    succeed(root, &["cat-file", "blob", &format!("{commit}:{path}")], None)?,
                ))
            })
            .collect()
    };
    let settings = format!("{theirs}:{}", layout::CONFIG);
    let has_settings =
        !succeed(root, &["ls-tree", "-z", &theirs, "--", layout::CONFIG], None)?.is_empty();
    let settings = if has_settings {
        Some(succeed(root, &["cat-file", "blob", &settings], None)?)
    } else {
        None
    };
    let (nothing, forward) = (base == theirs, base == ours);
    let (base, texts) =
        if nothing || forward { (Vec::new(), Vec::new()) } else { (side(&base)?, side(&theirs)?) };
    Ok(Fork { name, commit: theirs, nothing, forward, settings, base, theirs: texts })
}

/// The upstream of this branch; else the same branch of the only remote.
fn upstream(root: &Path) -> Result<String> {
    let asked = |arguments: &[&str]| -> Result<Option<String>> {
        let told = run(root, arguments, None)?;
        Ok(told
            .status
            .success()
            .then(|| String::from_utf8_lossy(&told.stdout).trim().to_owned())
            .filter(|told| !told.is_empty()))
    };
    if let Some(name) =
        asked(&["rev-parse", "--abbrev-ref", "--symbolic-full-name", "@{upstream}"])?
    {
        return Ok(name);
    }
    let remotes = asked(&["remote"])?.unwrap_or_default();
    let branch = asked(&["symbolic-ref", "--quiet", "--short", "HEAD"])?;
    match (remotes.lines().collect::<Vec<_>>().as_slice(), branch) {
        ([remote], Some(branch)) => Ok(format!("{remote}/{branch}")),
        _ => Err(Error::NoHistory(
            "name the branch to merge, such as `icecore merge origin/main`".into(),
        )),
    }
}

/// The key of the other side, if git reaches it as a folder of this machine. Only a file that
/// belongs to the vault's owner and that nobody else can read counts: with the key one can test
/// guesses of hidden secrets.
pub(super) fn other_marker_key(root: &Path, fork: &Fork) -> Option<MarkerKey> {
    let (remote, _) = fork.name.split_once('/')?;
    let told = run(root, &["config", "--local", "--get", &format!("remote.{remote}.url")], None)
        .ok()
        .filter(|told| told.status.success())?;
    let address = String::from_utf8(told.stdout).ok()?;
    let address = address.trim();
    let address = address.strip_prefix("file://").unwrap_or(address);
    if !address.starts_with(['/', '.']) {
        return None;
    }
    let door = Door::new(root.join(address));
    let (ours, theirs) =
        (std::fs::metadata(root).ok()?, std::fs::symlink_metadata(door.private(MARKER_KEY)).ok()?);
    let alone = theirs.is_file() && theirs.uid() == ours.uid() && theirs.mode() & 0o077 == 0;
    if alone { door.read_marker_key().ok().flatten() } else { None }
}

/// The two sides of a merge whose files are being replaced.
struct Journal {
    ours: String,
    theirs: String,
    name: String,
}

impl Journal {
    fn read(door: &Door) -> Result<Option<Self>> {
        let Some(text) = door.read_journal(JOURNAL)? else { return Ok(None) };
        let mut lines = text.lines();
        match (lines.next(), lines.next(), lines.next()) {
            (Some(ours), Some(theirs), Some(name)) => {
                Ok(Some(Self { ours: ours.into(), theirs: theirs.into(), name: name.into() }))
            }
            // It is written atomically, so another program changed it.
            _ => {
                let place = door.private(JOURNAL);
                Err(Error::Unsettled(format!(
                    "{} cannot be read; remove it, then `icecore merge` starts again",
                    place.display()
                )))
            }
        }
    }

    fn write(&self, door: &Door, held: &Held) -> Result<()> {
        door.put_journal(
            held,
            JOURNAL,
            &format!("{}\n{}\n{}\n", self.ours, self.theirs, plain::one_line(&self.name)),
        )
    }
}

/// A file that changes: its content in our commit and in the merge. `None` where it does not exist.
struct FileMerge {
    path: DocPath,
    ours: Option<Vec<u8>>,
    merged: Option<Vec<u8>>,
}

/// What is at a path: whether it is a link, and the link's target or the file's bytes.
type Standing = Option<(bool, Vec<u8>)>;

/// A path that cannot be a vault file and that only the other machine changed: git checks it out.
struct TakenPath {
    path: Vec<u8>,
    ours: Standing,
    theirs: Standing,
}

/// Mode and object id of each path of a commit. Paths are bytes, because not all are valid text.
type Tree = BTreeMap<Vec<u8>, (String, String)>;

/// The computed result of a merge.
#[derive(Default)]
struct MergePlan {
    base: String,
    files: Vec<FileMerge>,
    taken: Vec<TakenPath>,
    /// Files that a person must resolve, with the reason.
    open: Vec<(Vec<u8>, String)>,
    /// Whether one of them has conflicting memory lines or must never be in a vault.
    refused: bool,
    /// The trees of the base, ours and theirs.
    trees: [Tree; 3],
}

impl MergePlan {
    /// The files that a person must resolve, for display.
    fn shown(&self) -> Vec<(String, Option<String>)> {
        self.open
            .iter()
            .map(|(path, why)| (plain::one_line(&String::from_utf8_lossy(path)), Some(why.clone())))
            .collect()
    }
}

/// Every file of a commit.
fn tree(root: &Path, commit: &str) -> Result<Tree> {
    let listed = succeed(root, &["ls-tree", "-r", "-z", "--full-tree", commit], None)?;
    let entry = |line: &[u8]| {
        let at = memchr::memchr(b'\t', line)?;
        let mut words = std::str::from_utf8(&line[..at]).ok()?.split(' ');
        let (mode, id) = (words.next()?, words.nth(1)?);
        Some((line[at + 1..].to_vec(), (mode.to_owned(), id.to_owned())))
    };
    Ok(listed.split(|byte| *byte == 0).filter_map(entry).collect())
}

/// Whether git itself refuses such a name, on any system.
fn is_gits_own(name: &[u8]) -> bool {
    let name: String = name
        .iter()
        .filter(|byte| byte.is_ascii_graphic())
        .map(|byte| char::from(byte.to_ascii_lowercase()))
        .collect();
    let is_git = |rest: &str| !rest.starts_with(|c: char| c.is_ascii_alphanumeric());
    [".", "..", ".gitmodules"].contains(&name.as_str())
        || name.starts_with("git~")
        || name.strip_prefix(".git").is_some_and(is_git)
}

/// Computes the result for every file. It depends only on the three commits, so that a repetition
/// gives the same.
fn plan(door: &Door, held: &Held, ours: &str, theirs: &str) -> Result<MergePlan> {
    let root = door.root();
    let base = String::from_utf8_lossy(&succeed(root, &["merge-base", ours, theirs], None)?)
        .trim()
        .to_owned();
    let trees = [tree(root, &base)?, tree(root, ours)?, tree(root, theirs)?];
    let [before, here, there] = &trees;
    let is_changed = |path: &&Vec<u8>| {
        there.get(*path) != before.get(*path) && there.get(*path) != here.get(*path)
    };
    let changed: BTreeSet<&Vec<u8>> =
        before.keys().chain(there.keys()).filter(is_changed).collect();
    let is_link = |(mode, _): &(String, String)| mode == "120000";
    let is_repository = |(mode, _): &(String, String)| mode == "160000";
    let mut wanted: BTreeSet<&String> = BTreeSet::new();
    for path in changed.iter().copied().chain([&layout::FORGOTTEN.as_bytes().to_vec()]) {
        let entries =
            trees.iter().filter_map(|tree| tree.get(path)).filter(|entry| !is_repository(entry));
        wanted.extend(entries.map(|(_, id)| id));
    }
    let mut contents: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    read_blobs(root, wanted.into_iter(), |id, bytes| {
        drop(contents.insert(id.to_owned(), bytes.to_vec()))
    })?;
    let content =
        |tree: &Tree, path: &[u8]| tree.get(path).and_then(|(_, id)| contents.get(id)).cloned();
    // Lines of the other side cannot bring back what was forgotten here.
    let stones = Tombstones::read(&content(here, layout::FORGOTTEN.as_bytes()).unwrap_or_default());
    let mut plan = MergePlan { base, ..MergePlan::default() };
    for path in changed {
        let entries = trees.each_ref().map(|tree| tree.get(path));
        if entries.into_iter().flatten().any(is_repository)
            || path.split(|byte| *byte == b'/').any(is_gits_own)
        {
            plan.open.push((
                path.clone(),
                "cannot be a file of a vault, and the other machine changed it".into(),
            ));
            plan.refused = true;
            continue;
        }
        let [first, here_entry, there_entry] = entries;
        let document = std::str::from_utf8(path).ok().and_then(|path| path.parse::<DocPath>().ok());
        let has_link = [here_entry, there_entry].into_iter().flatten().any(is_link);
        let Some(document) = document.filter(|_| !has_link) else {
            let standing = |tree, entry: Option<&_>| {
                entry.and_then(|entry| Some((is_link(entry), content(tree, path)?)))
            };
            // A link in place of a file hides its content.
            let is_other_kind = here_entry
                .zip(there_entry)
                .is_some_and(|(here, there)| is_link(here) != is_link(there));
            if here_entry == first && !is_other_kind {
                let (ours, theirs) = (standing(here, here_entry), standing(there, there_entry));
                plan.taken.push(TakenPath { path: path.clone(), ours, theirs });
            } else {
                plan.open.push((
                    path.clone(),
                    "is not a file of the vault, and both machines changed it".into(),
                ));
            }
            continue;
        };
        let [base, ours, theirs] = trees.each_ref().map(|tree| content(tree, path));
        let only_theirs = here_entry.map(|(_, id)| id) == first.map(|(_, id)| id);
        let path = document.as_str();
        let merged = if only_theirs {
            Ok(theirs.clone())
        } else {
            merge_file(door, held, path, [&base, &ours, &theirs], true)?
        };
        match merged {
            Ok(merged) => {
                let merged = merged.map(|bytes| match stones.scrub().fate(path, &bytes) {
                    Fate::Changed { bytes, .. } if !only_theirs => bytes,
                    _ => bytes,
                });
                plan.files.push(FileMerge { path: document, ours, merged });
            }
            Err(why) => {
                plan.refused |= path.ends_with(".jsonl");
                plan.open.push((path.into(), why));
            }
        }
    }
    // The ledger first: while it is not replaced, no other file is, and the ids depend on it.
    plan.files.sort_by_key(|file| file.path.as_str() != layout::LEDGER);
    plan.trees = trees;
    Ok(plan)
}

/// The merged content of a file, or the reason why a person must resolve it.
fn merge_file(
    door: &Door,
    held: &Held,
    path: &str,
    [base, ours, theirs]: [&Option<Vec<u8>>; 3],
    adopted: bool,
) -> Result<std::result::Result<Option<Vec<u8>>, String>> {
    let bytes = |side: &'_ Option<Vec<u8>>| side.clone().unwrap_or_default();
    let (base, here, there) = (bytes(base), bytes(ours), bytes(theirs));
    let is_gone = ours.is_none() || theirs.is_none();
    match merge::merge(path, Sides { base: &base, ours: &here, theirs: &there }, adopted) {
        Ok(Merged::Whole(bytes)) => Ok(Ok((!bytes.is_empty() || !is_gone).then_some(bytes))),
        Ok(Merged::ByLines) if is_gone => {
            Ok(Err("was changed on one machine and removed on the other".into()))
        }
        Ok(Merged::ByLines) => {
            let place = |bytes: &[u8]| door.put_temporary(held, bytes);
            let (base, ours, theirs) = (place(&base)?, place(&here)?, place(&there)?);
            let merged = merge_lines(&base, &ours, &theirs);
            for temporary in [base, ours, theirs] {
                door.remove_git_file(&temporary)?;
            }
            Ok(merged?.map(Some).ok_or_else(|| "both machines changed the same lines".into()))
        }
        Err(clash) => Ok(Err(clash.to_string())),
    }
}

/// Merges lines if they do not conflict: conflict markers are never written to memory files.
pub fn merge_lines(base: &Path, ours: &Path, theirs: &Path) -> Result<Option<Vec<u8>>> {
    let arguments = ["merge-file", "-p", "-q"];
    let folder = ours.parent().unwrap_or_else(|| Path::new("."));
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let mut git = super::command(folder);
    let merged = output(git.args(arguments).args([ours, base, theirs].map(absolute)), &arguments)?;
    Ok(merged.status.success().then_some(merged.stdout))
}

/// Merges the other side, up to the commit, which the next snapshot makes. If memory lines
/// conflict, nothing changes.
pub(super) fn join(door: &Door, fork: &Fork) -> Result<Joined> {
    let root = door.root();
    vet(root)?;
    let held = door.lock()?;
    door.remove_stale_git_locks(&held, false)?;
    register(door, &root.join(".git"))?;
    let ours = head(root)?.ok_or_else(|| {
        Error::NoHistory("there is no snapshot yet, so there is nothing to merge with".into())
    })?;
    let journal = Journal { ours, theirs: fork.commit.clone(), name: fork.name.clone() };
    let plan = plan(door, &held, &journal.ours, &journal.theirs)?;
    if plan.refused {
        return Ok(Joined::Open { files: plan.shown(), left: false });
    }
    carry_out(door, &held, &journal, plan)
}

/// Completes a merge whose files were being replaced.
pub(super) fn resume(door: &Door) -> Result<Option<Joined>> {
    if door.read_journal(JOURNAL)?.is_none() {
        return Ok(None);
    }
    let root = door.root();
    vet(root)?;
    let held = door.lock()?;
    door.remove_stale_git_locks(&held, false)?;
    let Some(journal) = Journal::read(door)? else { return Ok(None) };
    let plan = plan(door, &held, &journal.ours, &journal.theirs)?;
    carry_out(door, &held, &journal, plan).map(Some)
}

/// What to do with a file.
enum Step {
    Nothing,
    /// Replace it, if it still has the expected content.
    Put(Option<Vec<u8>>, Expected),
    /// Keep it, for this reason.
    Leave(String),
}

/// Compares the current state of a file with its result.
fn next_step(door: &Door, held: &Held, file: &FileMerge) -> Result<Step> {
    let now = door.read(&file.path)?;
    let known = Expected::Content(ContentVersion::of(now.as_deref()));
    if now == file.merged {
        return Ok(Step::Nothing);
    }
    if now == file.ours {
        return Ok(Step::Put(file.merged.clone(), known));
    }
    // Others have written since: their changes are merged on top.
    Ok(match merge_file(door, held, file.path.as_str(), [&file.ours, &now, &file.merged], false)? {
        Ok(merged) if merged == now => Step::Nothing,
        Ok(merged) => Step::Put(merged, known),
        Err(why) => Step::Leave(why),
    })
}

/// Replaces a file. Merges what others save until then. Returns the reason if the file stays as it
/// is.
fn put_in_place(
    door: &Door,
    held: &Held,
    file: &FileMerge,
    mut step: Step,
) -> Result<Option<String>> {
    for _ in 0..ATTEMPTS {
        let put = match &step {
            Step::Nothing => return Ok(None),
            Step::Leave(why) => return Ok(Some(why.clone())),
            Step::Put(Some(bytes), known) => door.replace_if(held, &file.path, bytes, known),
            Step::Put(None, known) => door.remove_if(held, &file.path, known),
        };
        match put {
            Err(Error::Moved { .. }) => step = next_step(door, held, file)?,
            other => return other.map(|()| None),
        }
    }
    Err(Error::Moved { what: file.path.to_string() })
}

/// Replaces every file and leaves the merge for the next commit.
fn carry_out(door: &Door, held: &Held, journal: &Journal, mut plan: MergePlan) -> Result<Joined> {
    // All steps are computed before the first file changes.
    let mut steps = plan
        .files
        .iter()
        .map(|file| next_step(door, held, file))
        .collect::<Result<Vec<_>>>()?
        .into_iter();
    let is_ledger_left = plan
        .files
        .iter()
        .zip(steps.as_slice())
        .any(|(file, step)| is_ledger(file) && matches!(step, Step::Leave(_)));
    if is_ledger_left {
        return begin_again(door, held);
    }
    journal.write(door, held)?;
    for (file, step) in plan.files.iter().zip(&mut steps) {
        let Some(why) = put_in_place(door, held, file, step)? else { continue };
        if is_ledger(file) {
            return begin_again(door, held);
        }
        // Pages are regenerated from the events of both.
        if PageKey::of_path(&file.path).is_none()
            && !file.path.as_str().starts_with(layout::MEMORIES)
        {
            plan.open.push((file.path.as_str().into(), why));
        }
    }
    let untaken = take_over(door, held, &plan)?;
    plan.open.extend(untaken);
    stage(door, held, &plan)?;
    record(door, held, journal, plan.base == journal.ours && plan.open.is_empty())?;
    door.remove_journal(held, JOURNAL)?;
    Ok(if plan.open.is_empty() {
        Joined::Whole
    } else {
        Joined::Open { files: plan.shown(), left: true }
    })
}

fn is_ledger(file: &FileMerge) -> bool {
    file.path.as_str() == layout::LEDGER
}

/// The ledger is replaced first, so that nothing has changed if it cannot be.
fn begin_again(door: &Door, held: &Held) -> Result<Joined> {
    door.remove_journal(held, JOURNAL)?;
    Err(Error::Moved { what: layout::LEDGER.into() })
}

/// The current state of a path; an error if it is a folder or can only be reached through a link.
fn standing(root: &Path, path: &[u8]) -> io::Result<Standing> {
    let path = Path::new(OsStr::from_bytes(path));
    for folder in path.ancestors().skip(1).filter(|folder| !folder.as_os_str().is_empty()) {
        if root.join(folder).symlink_metadata().is_ok_and(|found| !found.is_dir()) {
            return Err(io::ErrorKind::NotADirectory.into());
        }
    }
    let place = root.join(path);
    match place.symlink_metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
        Ok(found) if found.is_symlink() => {
            Ok(Some((true, place.read_link()?.into_os_string().into_vec())))
        }
        Ok(found) if found.is_file() => Ok(Some((false, std::fs::read(place)?))),
        Ok(_) => Err(io::ErrorKind::IsADirectory.into()),
    }
}

/// Lets git check out the paths that are not vault files. Returns those that it cannot, with the
/// reason.
fn take_over(door: &Door, held: &Held, plan: &MergePlan) -> Result<Vec<(Vec<u8>, String)>> {
    if plan.taken.is_empty() {
        return Ok(Vec::new());
    }
    let root = door.root();
    let (mut entries, mut missing, mut open) = (Vec::new(), Vec::new(), Vec::new());
    for taken in &plan.taken {
        let changed =
            || (taken.path.clone(), "is not a file of the vault, and differs here".to_owned());
        // Private files of this machine never come from another.
        let is_private = taken
            .path
            .split(|byte| *byte == b'/')
            .next()
            .is_some_and(|top| top.eq_ignore_ascii_case(layout::PRIVATE.as_bytes()));
        match standing(root, &taken.path) {
            _ if is_private => {}
            Ok(now) if now == taken.theirs => {}
            Ok(now) if now.is_none() || now == taken.ours => {
                let place = root.join(OsStr::from_bytes(&taken.path));
                let removed = match now {
                    Some((false, bytes)) => door.remove_place_with(held, &place, &bytes),
                    Some((true, _)) => door.remove_place(held, &place),
                    None => Ok(()),
                };
                if matches!(removed, Err(Error::Moved { .. })) {
                    open.push(changed());
                    continue;
                }
                removed?;
                if taken.theirs.is_some() {
                    missing.push(&taken.path);
                }
            }
            _ => {
                open.push(changed());
                continue;
            }
        }
        entries.extend(index_line(plan, Some(2), &taken.path, 0));
    }
    change_index(door, held, &entries)?;
    let list = missing.iter().flat_map(|path| [path, &b"\0"[..]].concat()).collect::<Vec<u8>>();
    // git does not overwrite files that it must not; the check for missing ones finds them.
    let _ = change_from(door, held, &["checkout-index", "-z", "--stdin"], &list);
    let refused = missing
        .into_iter()
        .filter(|path| root.join(OsStr::from_bytes(path)).symlink_metadata().is_err());
    open.extend(refused.map(|path| (path.clone(), "cannot be created here".into())));
    Ok(open)
}

/// An `update-index --index-info` line for a path in one of the trees, at that merge stage. Stage 0
/// replaces all others; without a tree it removes the path.
fn index_line(plan: &MergePlan, tree: Option<usize>, path: &[u8], stage: usize) -> Vec<u8> {
    let about = match tree.and_then(|tree| plan.trees[tree].get(path)) {
        Some((mode, id)) => format!("{mode} {id} {stage}\t"),
        None if stage == 0 => format!("0 {}\t", "0".repeat(plan.base.len())),
        None => return Vec::new(),
    };
    [about.as_bytes(), path, b"\0"].concat()
}

fn change_index(door: &Door, held: &Held, lines: &[u8]) -> Result<()> {
    change_from(door, held, &["update-index", "-z", "--add", "--replace", "--index-info"], lines)
}

/// Runs a git that changes the repository and reads its input from us. It prints nothing, so the
/// lock takes the place of its output.
fn change_from(door: &Door, held: &Held, arguments: &[&str], input: &[u8]) -> Result<()> {
    let place = door.put_temporary(held, input)?;
    let changed = (|| {
        let input = std::fs::File::open(&place).map_err(|error| fault("reading", &place, error))?;
        let mut git = neutral(door.root(), &door.root().join(".git"));
        let output = output(git.stdin(input).stdout(held.as_input()?).args(arguments), arguments)?;
        if output.status.success() { Ok(()) } else { Err(failure(arguments, &output)) }
    })();
    door.remove_git_file(&place)?;
    changed
}

/// Updates git's index with the current files; conflicting ones get all their stages.
fn stage(door: &Door, held: &Held, plan: &MergePlan) -> Result<()> {
    let root = door.root();
    let open: BTreeSet<&[u8]> = plan.open.iter().map(|(path, _)| path.as_slice()).collect();
    if !open.is_empty() {
        let sides = |path: &&[u8]| {
            let sides =
                (0..plan.trees.len()).flat_map(|tree| index_line(plan, Some(tree), path, tree + 1));
            index_line(plan, None, path, 0).into_iter().chain(sides).collect::<Vec<u8>>()
        };
        change_index(door, held, &open.iter().flat_map(sides).collect::<Vec<u8>>())?;
    }
    let settled = plan
        .files
        .iter()
        .map(|file| &file.path)
        .filter(|path| !open.contains(path.as_str().as_bytes()));
    let (here, gone): (Vec<&DocPath>, Vec<&DocPath>) =
        settled.partition(|path| root.join(path.as_str()).symlink_metadata().is_ok());
    for (paths, arguments) in [
        (here, &["add", "--force"][..]),
        (gone, &["rm", "--cached", "--quiet", "--ignore-unmatch"]),
    ] {
        if paths.is_empty() {
            continue;
        }
        let list = paths.iter().map(|path| format!("{path}\0")).collect::<String>();
        let list = door.put_temporary(held, list.as_bytes())?;
        let from = format!("--pathspec-from-file={}", list.display());
        let literal: Vec<&str> = ["--literal-pathspecs"]
            .into_iter()
            .chain(arguments.iter().copied())
            .chain([from.as_str(), "--pathspec-file-nul"])
            .collect();
        let staged = change(root, held, &literal, None);
        door.remove_git_file(&list)?;
        staged?;
    }
    Ok(())
}

/// Records the merge in git.
fn record(door: &Door, held: &Held, journal: &Journal, forward: bool) -> Result<()> {
    let root = door.root();
    let here = head(root)?.unwrap_or_default();
    if run(root, &["merge-base", "--is-ancestor", &journal.theirs, "HEAD"], None)?.status.success()
    {
        return Ok(());
    }
    if forward && here == journal.ours {
        let note = format!("merge {}: Fast-forward", plain::one_line(&journal.name));
        change(
            root,
            held,
            &["update-ref", "-m", &note, "HEAD", &journal.theirs, &journal.ours],
            None,
        )?;
        return Ok(());
    }
    let git = root.join(".git");
    door.put_git_file(
        &git.join("MERGE_MSG"),
        format!("{MERGED}{}\n", plain::one_line(&journal.name)).as_bytes(),
    )?;
    door.put_git_file(&git.join("MERGE_HEAD"), format!("{}\n", journal.theirs).as_bytes())
}

/// A merge that icecore started and did not complete.
pub(super) fn unfinished(door: &Door) -> Result<Option<Unfinished>> {
    let root = door.root();
    if let Some(journal) = Journal::read(door)? {
        return Ok(Some(Unfinished { name: journal.name, open: Vec::new() }));
    }
    if !root.join(".git/MERGE_HEAD").exists() {
        return Ok(None);
    }
    vet(root)?;
    let Some(commit) = merge_heads(root)?.into_iter().next() else { return Ok(None) };
    let note = std::fs::read_to_string(root.join(".git/MERGE_MSG")).unwrap_or_default();
    let name = note.lines().next().and_then(|line| line.strip_prefix(MERGED)).map(str::to_owned);
    Ok(Some(Unfinished { name: name.unwrap_or(commit), open: unsettled(root)? }))
}

/// The last merge, if git alone made it.
pub(super) fn foreign_merge(root: &Path) -> Result<Option<String>> {
    if !is_shared(root) {
        return Ok(None);
    }
    vet(root)?;
    if head(root)?.is_none() {
        return Ok(None);
    }
    let told = succeed(
        root,
        &["log", "--merges", "--max-count=1", "--no-show-signature", "--format=%H %ce"],
        None,
    )?;
    let told = String::from_utf8_lossy(&told).trim().to_owned();
    let Some((merge, _)) = told.split_once(' ').filter(|(_, by)| *by != US) else {
        return Ok(None);
    };
    // A later snapshot says that it was resolved, on whatever machine.
    let since = format!("{merge}..HEAD");
    let settled = succeed(root, &["log", "--no-show-signature", "--format=%ce %s", &since], None)?;
    let settled = String::from_utf8_lossy(&settled).into_owned();
    let says = |line: &str| {
        line.split_once(' ').is_some_and(|(by, note)| {
            by == US && (note.starts_with(MERGED) || note.starts_with(SETTLED))
        })
    };
    Ok((!settled.lines().any(says)).then(|| merge.to_owned()))
}

/// Makes a clone of a vault one that icecore keeps snapshots in and merges; false if it already
/// was.
pub(super) fn adopt(door: &Door) -> Result<bool> {
    let root = door.root();
    let folder = root.join(".git");
    let (before, _) = vet_settings(root)?;
    if !before {
        // A clone of a vault has the configuration in its history; other repositories stay as they
        // are.
        if !run(root, &["cat-file", "-e", &format!("HEAD:{}", layout::CONFIG)], None)?
            .status
            .success()
        {
            return Ok(false);
        }
        let config = folder.join("config");
        let path = config.to_string_lossy().into_owned();
        for (key, value) in [(MADE_BY_US, "true"), ("core.fsync", "all")] {
            let arguments =
                ["config", "--file", path.as_str(), "--no-includes", "--replace-all", key, value];
            let set = output(
                super::command(root).env("GIT_DIR", "/dev/null").args(arguments),
                &arguments,
            )?;
            if !set.status.success() {
                return Err(Error::Git {
                    what: "config".into(),
                    why: plain::one_line(String::from_utf8_lossy(&set.stderr).trim()),
                });
            }
        }
    }
    Ok(register(door, &folder)? || !before)
}
