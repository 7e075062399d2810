//! Rewrites the git history without the text to be forgotten, in a new repository.
//!
//! The new repository replaces the old one as a whole, so that nothing remains: no unreachable
//! object, no reflog, no edited message. Until then the old one stays unchanged.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::path::Path;
use std::process::{Child, Stdio};

use icecore_domain::forget::Scrub;
use icecore_domain::sanitize;

use super::{
    NEW_REPOSITORY_DIR, VaultFs, create_new_repository, git_for, head_commit, merge_driver,
    run_git_ok,
};
use crate::{Error, Result, RewriteReport, snapshot_redaction};

/// All paths of each content, by object id.
type PathsByBlob = HashMap<String, BTreeSet<String>>;

fn git_failure(what: &str, why: impl ToString) -> Error {
    Error::git(what.into(), sanitize::one_line(why.to_string().trim()))
}

/// The changes of one commit: its id, those of its parents, and the new content of each path.
struct CommitChanges {
    id: String,
    parent: Option<String>,
    changes: Vec<(String, Option<String>)>,
}

/// All commits, parents first. Changes that a merge took from any side are among its changes.
fn list_commits(root: &Path) -> Result<Vec<CommitChanges>> {
    let arguments = [
        "log",
        "--all",
        "--reverse",
        "--topo-order",
        "--root",
        "-m",
        "--raw",
        "-z",
        "--no-renames",
        "--no-abbrev",
        "--no-show-signature",
        "--no-ext-diff",
        "--no-textconv",
        "--format=commit %H %P",
    ];
    let listed = run_git_ok(root, &arguments, None)?;
    let listed = String::from_utf8_lossy(&listed).into_owned();
    let mut found: Vec<CommitChanges> = Vec::new();
    let mut words = listed
        .split('\0')
        .map(|word| word.trim_start_matches('\n'))
        .filter(|word| !word.is_empty());
    while let Some(word) = words.next() {
        if let Some(names) = word.strip_prefix("commit ") {
            let mut names = names.split(' ').filter(|name| !name.is_empty()).map(str::to_owned);
            let (Some(id), parent) = (names.next(), names.next()) else { continue };
            // A merge is listed once for each parent.
            if found.last().is_none_or(|commit| commit.id != id) {
                found.push(CommitChanges { id, parent, changes: Vec::new() });
            }
        } else if word.starts_with(':')
            && let Some(path) = words.next()
            && let Some(commit) = found.last_mut()
        {
            let mut fields = word.split(' ').skip(3);
            let (new, status) =
                (fields.next().unwrap_or_default(), fields.next().unwrap_or_default());
            // A submodule commit has no content here.
            if word.split(' ').nth(1) == Some("160000") {
                continue;
            }
            commit.changes.push((path.to_owned(), (status != "D").then(|| new.to_owned())));
        }
    }
    Ok(found)
}

fn paths_by_blob(commits: &[CommitChanges]) -> PathsByBlob {
    let mut blobs = PathsByBlob::new();
    for (path, new) in commits.iter().flat_map(|commit| &commit.changes) {
        if let Some(new) = new {
            blobs.entry(new.clone()).or_default().insert(path.clone());
        }
    }
    blobs
}

/// The number of commits that contain the text, and the number of all.
pub fn count_containing(root: &Path, scrub: &Scrub) -> Result<(usize, usize)> {
    let commits = list_commits(root)?;
    let mut guilty: BTreeSet<String> = BTreeSet::new();
    let blobs = paths_by_blob(&commits);
    read_blobs(root, blobs.keys(), |id, bytes| {
        if blobs
            .get(id)
            .is_some_and(|paths| paths.iter().any(|path| scrub.affects_file(path, bytes)))
        {
            guilty.insert(id.to_owned());
        }
    })?;
    // The matching paths in each commit: those of the commit before, updated with its changes.
    let mut standing: HashMap<&str, BTreeMap<&str, &str>> = HashMap::new();
    let mut many = 0;
    for commit in &commits {
        let mut here = commit
            .parent
            .as_deref()
            .and_then(|parent| standing.get(parent))
            .cloned()
            .unwrap_or_default();
        for (path, new) in &commit.changes {
            match new {
                Some(new) if guilty.contains(new) || scrub.has_forgotten_name(path) => {
                    here.insert(path, new);
                }
                _ => drop(here.remove(path.as_str())),
            }
        }
        many += usize::from(!here.is_empty());
        standing.insert(&commit.id, here);
    }
    Ok((many, commits.len()))
}

/// Reads these objects one after the other. Fails for an unreadable one, and if git ends early.
pub fn read_blobs<'a>(
    root: &Path,
    ids: impl Iterator<Item = &'a String>,
    mut take: impl FnMut(&str, &[u8]),
) -> Result<()> {
    let ids: Vec<&String> = ids.collect();
    let mut git = git_for(root, &root.join(".git"));
    let mut child = git
        .args(["cat-file", "--batch"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| git_failure("cat-file", error))?;
    let (Some(mut asking), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
        return Err(git_failure("cat-file", "its input is not available"));
    };
    let mut answers = BufReader::new(answers);
    let outcome = (|| -> io::Result<()> {
        for id in ids {
            writeln!(asking, "{id}")?;
            asking.flush()?;
            let mut line = String::new();
            answers.read_line(&mut line)?;
            let length =
                line.trim_end().split_once(" blob ").and_then(|(_, length)| length.parse().ok());
            let Some(length) = length else {
                return Err(io::Error::other(format!("{id} cannot be read")));
            };
            let mut bytes = vec![0; length];
            answers.read_exact(&mut bytes)?;
            answers.read_exact(&mut [0])?;
            take(id, &bytes);
        }
        Ok(())
    })();
    drop(asking);
    let has_ended = has_succeeded(&mut child);
    outcome.map_err(|error| git_failure("cat-file", error))?;
    if has_ended { Ok(()) } else { Err(git_failure("cat-file", "it ended too early")) }
}

/// Rewrites the history and replaces the old repository.
pub fn rewrite_history(vault_fs: &VaultFs, scrub: &Scrub) -> Result<RewriteReport> {
    let root = vault_fs.root();
    if head_commit(root)?.is_none() {
        return Ok(RewriteReport::default());
    }
    let branch = String::from_utf8_lossy(&run_git_ok(root, &["symbolic-ref", "HEAD"], None)?)
        .trim()
        .to_owned();
    let commits = list_commits(root)?;
    let blobs = paths_by_blob(&commits);
    let apart = vault_fs.private(NEW_REPOSITORY_DIR);
    let outcome = (|| {
        let folder = create_new_repository(vault_fs, &apart)?;
        merge_driver::copy_remotes(root, &folder)?;
        let mut export = git_for(root, &root.join(".git"));
        let arguments = [
            "fast-export",
            "--all",
            "--show-original-ids",
            "--signed-tags=strip",
            "--tag-of-filtered-object=drop",
            "--reencode=yes",
            "--fake-missing-tagger",
        ];
        let mut export = export
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| git_failure("fast-export", error))?;
        let mut import = git_for(&apart, &folder);
        let mut import = import
            .args(["fast-import", "--quiet", "--force"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| git_failure("fast-import", error))?;
        let passed = match (export.stdout.take(), import.stdin.take()) {
            (Some(from), Some(to)) => {
                filter_export(BufReader::new(from), BufWriter::new(to), &blobs, scrub)
            }
            _ => Ok(0),
        };
        // Wait for both in any case, so that no process remains.
        let (export, import) = (has_succeeded(&mut export), has_succeeded(&mut import));
        let files = passed.map_err(|error| git_failure("fast-export", error))?;
        if !export || !import {
            return Err(git_failure(
                if export { "fast-import" } else { "fast-export" },
                "the snapshots could not be rewritten; they are unchanged",
            ));
        }
        for arguments in [&["symbolic-ref", "HEAD", &branch][..], &["read-tree", "HEAD"]] {
            let output = git_for(root, &folder)
                .args(arguments)
                .output()
                .map_err(|error| git_failure(arguments[0], error))?;
            if !output.status.success() {
                return Err(git_failure(arguments[0], String::from_utf8_lossy(&output.stderr)));
            }
        }
        vault_fs.swap_repository(&folder)?;
        Ok(RewriteReport { snapshots: commits.len(), files })
    })();
    // After the swap, this folder holds the old repository with everything to be forgotten.
    let discarded = vault_fs.remove_own_folder(&apart);
    outcome.and_then(|rewritten| discarded.map(|()| rewritten))
}

fn has_succeeded(child: &mut Child) -> bool {
    child.wait().is_ok_and(|status| status.success())
}

/// Copies the history without the text to be forgotten. Returns the number of changed contents.
fn filter_export(
    mut from: impl BufRead,
    mut to: impl Write,
    blobs: &PathsByBlob,
    scrub: &Scrub,
) -> io::Result<usize> {
    let (mut line, mut is_blob, mut id, mut changed) = (Vec::new(), false, String::new(), 0);
    loop {
        line.clear();
        if from.read_until(b'\n', &mut line)? == 0 {
            to.flush()?;
            return Ok(changed);
        }
        let bare = line.strip_suffix(b"\n").unwrap_or(&line);
        if let Some(length) = bare.strip_prefix(b"data ") {
            let length = std::str::from_utf8(length)
                .ok()
                .and_then(|length| length.parse().ok())
                .ok_or(io::ErrorKind::InvalidData)?;
            let mut bytes = vec![0; length];
            from.read_exact(&mut bytes)?;
            let new = match is_blob {
                true => blobs
                    .get(&id)
                    .and_then(|paths| snapshot_redaction::redact_content(&bytes, paths, scrub)),
                false => snapshot_redaction::redact_note(&String::from_utf8_lossy(&bytes), scrub)
                    .map(String::into_bytes),
            };
            changed += usize::from(new.is_some());
            let bytes = new.unwrap_or(bytes);
            writeln!(to, "data {}", bytes.len())?;
            to.write_all(&bytes)?;
            continue;
        }
        match bare {
            b"blob" => is_blob = true,
            _ if bare.starts_with(b"commit ") || bare.starts_with(b"tag ") => is_blob = false,
            _ => {}
        }
        if let Some(original) = bare.strip_prefix(b"original-oid ") {
            id = String::from_utf8_lossy(original).into_owned();
            continue;
        }
        if changed_path(bare).is_some_and(|path| scrub.has_forgotten_name(&path)) {
            continue;
        }
        to.write_all(&line)?;
    }
}

/// The path that a line of a commit changes or deletes.
fn changed_path(line: &[u8]) -> Option<String> {
    let path = match line.strip_prefix(b"M ") {
        Some(rest) => rest.splitn(3, |byte| *byte == b' ').nth(2)?,
        None => line.strip_prefix(b"D ")?,
    };
    match path.strip_prefix(b"\"").and_then(|path| path.strip_suffix(b"\"")) {
        Some(quoted) => Some(unquote_path(quoted)),
        None => Some(String::from_utf8_lossy(path).into_owned()),
    }
}

/// Parses a path that git wrote in quotation marks.
fn unquote_path(quoted: &[u8]) -> String {
    let (mut out, mut at) = (Vec::new(), 0);
    while at < quoted.len() {
        let octal = quoted
            .get(at + 1..at + 4)
            .filter(|digits| digits.iter().all(|digit| (b'0'..=b'7').contains(digit)));
        match (quoted[at], octal) {
            (b'\\', Some(digits)) => {
                out.push(
                    digits
                        .iter()
                        .fold(0u8, |value, digit| value.wrapping_mul(8).wrapping_add(digit - b'0')),
                );
                at += 4;
            }
            (b'\\', None) => {
                out.extend(quoted.get(at + 1));
                at += 2;
            }
            (byte, _) => {
                out.push(byte);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_read_as_git_writes_them() {
        assert_eq!(changed_path(b"M 100644 :5 memory/a b.md").as_deref(), Some("memory/a b.md"));
        assert_eq!(changed_path(b"D knowledge/x.md").as_deref(), Some("knowledge/x.md"));
        assert_eq!(
            changed_path(b"M 100644 :5 \"caf\\303\\251 \\\"x\\\".md\"").as_deref(),
            Some("café \"x\".md")
        );
        assert_eq!(changed_path(b"from :4"), None);
    }
}
