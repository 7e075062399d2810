//! Plans a merge: the result of each file, computed from three commits, in memory.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use icecore_domain::forget::{FileFate, Tombstones};
use icecore_domain::layout::{self, DocPath};
use icecore_domain::merge::{self, MergeInput, MergedFile};
use icecore_domain::sanitize;

use super::super::vault_fs::{VaultFs, WriteLock};
use super::history_rewrite::read_blobs;
use super::{git_output, run_git_ok};
use crate::Result;

/// A file that changes: its content in our commit and in the merge. `None` where it does not exist.
pub(super) struct FileMerge {
    pub path: DocPath,
    pub ours: Option<Vec<u8>>,
    pub merged: Option<Vec<u8>>,
}

/// What is at a path: whether it is a link, and the link's target or the file's bytes.
pub(super) type PathState = Option<(bool, Vec<u8>)>;

/// A path that cannot be a vault file and that only the other machine changed: git checks it out.
pub(super) struct ForeignPath {
    pub path: Vec<u8>,
    pub ours: PathState,
    pub theirs: PathState,
}

/// Mode and object id of each path of a commit. Paths are bytes, because not all are valid text.
pub(super) type CommitTree = BTreeMap<Vec<u8>, (String, String)>;

/// The computed result of a merge.
#[derive(Default)]
pub(super) struct MergePlan {
    pub base: String,
    pub files: Vec<FileMerge>,
    pub taken: Vec<ForeignPath>,
    /// Files that a person must resolve, with the reason.
    pub open: Vec<(Vec<u8>, String)>,
    /// Whether one of them has conflicting memory lines or must never be in a vault.
    pub refused: bool,
    /// The trees of the base, ours and theirs.
    pub trees: [CommitTree; 3],
}

impl MergePlan {
    /// The files that a person must resolve, for display.
    pub fn open_files(&self) -> Vec<(String, Option<String>)> {
        self.open
            .iter()
            .map(|(path, why)| {
                (sanitize::one_line(&String::from_utf8_lossy(path)), Some(why.clone()))
            })
            .collect()
    }
}

/// Every file of a commit.
pub(super) fn read_tree(root: &Path, commit: &str) -> Result<CommitTree> {
    let listed = run_git_ok(root, &["ls-tree", "-r", "-z", "--full-tree", commit], None)?;
    let entry = |line: &[u8]| {
        let at = memchr::memchr(b'\t', line)?;
        let mut words = std::str::from_utf8(&line[..at]).ok()?.split(' ');
        let (mode, id) = (words.next()?, words.nth(1)?);
        Some((line[at + 1..].to_vec(), (mode.to_owned(), id.to_owned())))
    };
    Ok(listed.split(|byte| *byte == 0).filter_map(entry).collect())
}

/// Whether git itself refuses such a name, on any system.
pub(super) fn is_git_reserved(name: &[u8]) -> bool {
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
pub(super) fn plan_merge(
    vault_fs: &VaultFs,
    lock: &WriteLock,
    ours: &str,
    theirs: &str,
) -> Result<MergePlan> {
    let root = vault_fs.root();
    let base = String::from_utf8_lossy(&run_git_ok(root, &["merge-base", ours, theirs], None)?)
        .trim()
        .to_owned();
    let trees = [read_tree(root, &base)?, read_tree(root, ours)?, read_tree(root, theirs)?];
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
    let content = |tree: &CommitTree, path: &[u8]| {
        tree.get(path).and_then(|(_, id)| contents.get(id)).cloned()
    };
    // Lines of the other side cannot bring back what was forgotten here.
    let stones =
        Tombstones::parse(&content(here, layout::FORGOTTEN.as_bytes()).unwrap_or_default());
    let mut plan = MergePlan { base, ..MergePlan::default() };
    for path in changed {
        let entries = trees.each_ref().map(|tree| tree.get(path));
        if entries.into_iter().flatten().any(is_repository)
            || path.split(|byte| *byte == b'/').any(is_git_reserved)
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
                plan.taken.push(ForeignPath { path: path.clone(), ours, theirs });
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
            merge_file(vault_fs, lock, path, [&base, &ours, &theirs], true)?
        };
        match merged {
            Ok(merged) => {
                let merged = merged.map(|bytes| match stones.scrub().fate(path, &bytes) {
                    FileFate::Changed { bytes, .. } if !only_theirs => bytes,
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
pub(super) fn merge_file(
    vault_fs: &VaultFs,
    lock: &WriteLock,
    path: &str,
    [base, ours, theirs]: [&Option<Vec<u8>>; 3],
    adopted: bool,
) -> Result<std::result::Result<Option<Vec<u8>>, String>> {
    let bytes = |side: &'_ Option<Vec<u8>>| side.clone().unwrap_or_default();
    let (base, here, there) = (bytes(base), bytes(ours), bytes(theirs));
    let is_gone = ours.is_none() || theirs.is_none();
    match merge::merge_file(path, MergeInput { base: &base, ours: &here, theirs: &there }, adopted)
    {
        Ok(MergedFile::Whole(bytes)) => Ok(Ok((!bytes.is_empty() || !is_gone).then_some(bytes))),
        Ok(MergedFile::ByLines) if is_gone => {
            Ok(Err("was changed on one machine and removed on the other".into()))
        }
        Ok(MergedFile::ByLines) => {
            let place = |bytes: &[u8]| vault_fs.create_temporary(lock, bytes);
            let (base, ours, theirs) = (place(&base)?, place(&here)?, place(&there)?);
            let merged = merge_lines(&base, &ours, &theirs);
            for temporary in [base, ours, theirs] {
                vault_fs.remove_git_file(&temporary)?;
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
    let mut git = super::git_command(folder);
    let merged =
        git_output(git.args(arguments).args([ours, base, theirs].map(absolute)), &arguments)?;
    Ok(merged.status.success().then_some(merged.stdout))
}

pub(super) fn is_ledger_file(file: &FileMerge) -> bool {
    file.path.as_str() == layout::LEDGER
}

/// The current state of a path; an error if it is a folder or can only be reached through a link.
pub(super) fn path_state(root: &Path, path: &[u8]) -> io::Result<PathState> {
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
