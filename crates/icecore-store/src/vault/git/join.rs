//! Two machines on one vault: the merge driver that git is told of, and merging with it.
//!
//! Which driver merges what stands in `.git/info/attributes`, not in the `.gitattributes` that a clone gets: git merges line by line
//! where a file names a driver that is not set up, and lines of a ledger must not be merged so. A clone that was not set up
//! refuses instead.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use icecore_domain::layout::{self, DocPath};
use icecore_domain::plain;
use icecore_domain::secrets::MarkerKey;

use super::{Door, MADE_BY_US, head, neutral, output, run, succeed, vet, vet_settings};
use crate::{Error, Fork, Joined, MARKER_KEY, MERGED, Result, SETTLED, Unfinished};

/// What git calls the driver.
const DRIVER: &str = "merge.icecore.driver";
const NAME: &str = "merge.icecore.name";
/// The line that gives every file to it.
const ATTRIBUTES: &str = "* merge=icecore";
/// Set for a driver whose pages were adopted before.
const ADOPTED: &str = " --adopted";

/// Who makes our snapshots.
const US: &str = "icecore@localhost";

/// The command that git runs; it runs it in a shell.
fn driver(options: &str) -> String {
    let program = std::env::current_exe().ok().and_then(|path| path.to_str().map(str::to_owned)).unwrap_or_else(|| "icecore".into());
    format!("'{}' merge-driver{options} %O %A %B %P", program.replace('\'', r"'\''"))
}

/// Sets up the driver in the repository at `folder`; whether anything was missing.
pub(super) fn register(door: &Door, folder: &Path) -> Result<bool> {
    let config = folder.join("config");
    let path = config.to_string_lossy().into_owned();
    let mut changed = false;
    for (key, value) in [(NAME, "icecore: every line once, what was forgotten stays forgotten".to_owned()), (DRIVER, driver(""))] {
        let file = ["config", "--file", path.as_str(), "--no-includes"];
        let known = output(super::command(door.root()).env("GIT_DIR", "/dev/null").args(file).args(["--get", key]), &file)?;
        if known.status.success() && String::from_utf8_lossy(&known.stdout).trim_end() == value {
            continue;
        }
        let set = output(super::command(door.root()).env("GIT_DIR", "/dev/null").args(file).args(["--replace-all", key, &value]), &file)?;
        if !set.status.success() {
            return Err(Error::Git { what: "config".into(), why: plain::one_line(String::from_utf8_lossy(&set.stderr).trim()) });
        }
        changed = true;
    }
    let place = attributes(folder);
    let known = std::fs::read_to_string(&place).unwrap_or_default();
    if !known.lines().any(|line| line.trim() == ATTRIBUTES) {
        let ended = if known.is_empty() || known.ends_with('\n') { known } else { format!("{known}\n") };
        door.put_git_file(&place, format!("{ended}{ATTRIBUTES}\n").as_bytes())?;
        changed = true;
    }
    Ok(changed)
}

fn attributes(folder: &Path) -> PathBuf {
    folder.join("info").join("attributes")
}

/// Gives a repository that takes the place of another the machines that one knew.
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

/// What of a repository can be seen without running git: whether it is ours, has a driver, and is shared with others.
struct Seen {
    ours: bool,
    driver: bool,
    shared: bool,
}

fn see(root: &Path) -> Option<Seen> {
    let folder = root.join(".git");
    let config = std::fs::read_to_string(folder.join("config")).ok()?;
    let (mut section, mut seen) = (String::new(), Seen { ours: false, driver: false, shared: false });
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
    // Whoever fetches without naming a remote has another machine, too.
    seen.shared |= folder.join("FETCH_HEAD").exists();
    let given = std::fs::read_to_string(attributes(&folder)).unwrap_or_default();
    seen.driver &= given.lines().any(|line| line.trim() == ATTRIBUTES);
    Some(seen)
}

/// Whether the repository has another machine's beside it.
pub(super) fn is_shared(root: &Path) -> bool {
    see(root).is_some_and(|seen| seen.shared)
}

/// What a person has to do so that two machines can use the vault.
pub(super) fn wants(root: &Path) -> Vec<String> {
    let Some(seen) = see(root) else { return Vec::new() };
    let mut wants = Vec::new();
    if seen.shared && !seen.ours {
        wants.push(format!(
            "this clone is not set up: no snapshots are kept, and git refuses to merge. `icecore init {}` sets it up; then merge again",
            root.display()
        ));
    } else if seen.shared && !seen.driver {
        wants
            .push("git does not know how to merge memory here, so it refuses to. `icecore doctor --fix` tells it; then merge again".into());
    }
    if root.join(".git/MERGE_HEAD").exists() {
        wants.push(
            "a merge was begun and not ended. `icecore merge` ends it if nothing in it is open; `git merge --abort` takes it back".into(),
        );
    }
    wants
}

/// Whether git is in the middle of something that the next commit ends.
pub(super) fn is_begun(root: &Path) -> bool {
    const BEGUN: &[&str] = &["MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD", "SQUASH_MSG", "rebase-merge", "rebase-apply"];
    BEGUN.iter().any(|name| root.join(".git").join(name).symlink_metadata().is_ok())
}

/// Files of a merge that nobody has settled.
pub(super) fn unsettled(root: &Path) -> Result<Vec<String>> {
    if !root.join(".git/MERGE_HEAD").exists() && !root.join(".git/rebase-merge").exists() && !root.join(".git/CHERRY_PICK_HEAD").exists() {
        return Ok(Vec::new());
    }
    let listed = succeed(root, &["diff", "--name-only", "--diff-filter=U", "-z", "--no-ext-diff", "--no-textconv"], None)?;
    let listed = String::from_utf8_lossy(&listed).into_owned();
    Ok(listed.split('\0').filter(|path| !path.is_empty()).map(plain::one_line).collect())
}

/// Refuses while a merge is open: what is committed now would be one side of it.
pub(super) fn refuse_unsettled(root: &Path) -> Result<()> {
    let open = unsettled(root)?;
    let Some(first) = open.first() else { return Ok(()) };
    Err(Error::Unsettled(format!(
        "a merge waits for you in {}, the first is {first}. `git merge --abort` takes it back, and `icecore merge` tries it another way",
        if open.len() == 1 { "a file".into() } else { format!("{} files", open.len()) }
    )))
}

/// The other side, and what of it decides about ids.
pub(super) fn fork(root: &Path, other: Option<&str>) -> Result<Fork> {
    vet(root)?;
    let ours = head(root)?.ok_or_else(|| {
        Error::NoHistory("there is no snapshot yet, so there is nothing to merge with; `icecore snapshot` makes one".into())
    })?;
    let commit = |name: &str| -> Result<Option<String>> {
        let found = run(root, &["rev-parse", "--verify", "--quiet", "--end-of-options", &format!("{name}^{{commit}}")], None)?;
        Ok(found.status.success().then(|| String::from_utf8_lossy(&found.stdout).trim().to_owned()))
    };
    let name = match other {
        Some(name) => name.to_owned(),
        None => upstream(root)?,
    };
    let theirs = commit(&name)?.ok_or_else(|| {
        Error::NoHistory(format!(
            "there is nothing called `{}` here. `git fetch` brings what the other machine has pushed",
            plain::one_line(&name)
        ))
    })?;
    let base = run(root, &["merge-base", &ours, &theirs], None)?;
    if !base.status.success() {
        return Err(Error::NotOurs(format!(
            "`{}` and this vault have nothing in common: they were made apart. Clone one and `icecore import` the other",
            plain::one_line(&name)
        )));
    }
    let base = String::from_utf8_lossy(&base.stdout).trim().to_owned();
    let side = |commit: &str| -> Result<Vec<(DocPath, Vec<u8>)>> {
        let listed = succeed(root, &["ls-tree", "-r", "-z", "--name-only", commit, "--", "memory"], None)?;
        let listed = String::from_utf8_lossy(&listed).into_owned();
        let wanted = |path: &DocPath| path.as_str() == layout::LEDGER || path.as_str() == layout::INTEGRITY || path.is_archive();
        let paths = listed.split('\0').filter_map(|path| path.parse::<DocPath>().ok()).filter(wanted);
        paths.map(|path| Ok((path.clone(), succeed(root, &["cat-file", "blob", &format!("{commit}:{path}")], None)?))).collect()
    };
    let (nothing, forward) = (base == theirs, base == ours);
    let (base, texts) = if nothing || forward { (Vec::new(), Vec::new()) } else { (side(&base)?, side(&theirs)?) };
    Ok(Fork { name, commit: theirs, nothing, forward, base, theirs: texts })
}

/// What this branch follows; else the same branch of the only other machine.
fn upstream(root: &Path) -> Result<String> {
    let asked = |arguments: &[&str]| -> Result<Option<String>> {
        let told = run(root, arguments, None)?;
        Ok(told.status.success().then(|| String::from_utf8_lossy(&told.stdout).trim().to_owned()).filter(|told| !told.is_empty()))
    };
    if let Some(name) = asked(&["rev-parse", "--abbrev-ref", "--symbolic-full-name", "@{upstream}"])? {
        return Ok(name);
    }
    let remotes = asked(&["remote"])?.unwrap_or_default();
    let branch = asked(&["symbolic-ref", "--quiet", "--short", "HEAD"])?;
    match (remotes.lines().collect::<Vec<_>>().as_slice(), branch) {
        ([remote], Some(branch)) => Ok(format!("{remote}/{branch}")),
        _ => Err(Error::NoHistory("name what to merge, such as `icecore merge origin/main`".into())),
    }
}

/// The key of the other side, if git reaches it as a folder of this machine. Only a file of the vault's own owner that nobody else
/// can read counts: whoever knows the key can test guesses of what is hidden.
pub(super) fn other_marker_key(root: &Path, fork: &Fork) -> Option<MarkerKey> {
    let (remote, _) = fork.name.split_once('/')?;
    let told =
        run(root, &["config", "--local", "--get", &format!("remote.{remote}.url")], None).ok().filter(|told| told.status.success())?;
    let address = String::from_utf8(told.stdout).ok()?;
    let address = address.trim();
    let address = address.strip_prefix("file://").unwrap_or(address);
    if !address.starts_with(['/', '.']) {
        return None;
    }
    let door = Door::new(root.join(address));
    let (ours, theirs) = (std::fs::metadata(root).ok()?, std::fs::symlink_metadata(door.private(MARKER_KEY)).ok()?);
    let alone = theirs.is_file() && theirs.uid() == ours.uid() && theirs.mode() & 0o077 == 0;
    if alone { door.read_marker_key().ok().flatten() } else { None }
}

/// Brings the other side in, without ending it: a snapshot does. If lines of memory cannot be merged, it is taken back whole.
pub(super) fn join(door: &Door, fork: &Fork) -> Result<Joined> {
    let root = door.root();
    vet(root)?;
    register(door, &root.join(".git"))?;
    let _held = door.lock()?;
    let mut git = neutral(root, &root.join(".git"));
    git.args(["-c", &format!("{DRIVER}={}", driver(ADOPTED)), "-c", "merge.conflictStyle=merge", "-c", "rerere.enabled=false"]);
    let arguments = ["merge", "--no-commit", "--no-edit", "--no-verify", "--no-gpg-sign", "--no-rerere-autoupdate", "--quiet"];
    let merged = output(git.args(arguments).arg(&fork.commit), &arguments)?;
    if merged.status.success() {
        return Ok(Joined::Whole);
    }
    let open = unsettled(root)?;
    let said = String::from_utf8_lossy(&merged.stderr).into_owned() + &String::from_utf8_lossy(&merged.stdout);
    // What people write they can put together in place; lines of memory are not left half merged.
    let left = !open.is_empty() && open.iter().all(|path| !path.ends_with(".jsonl"));
    if !left && root.join(".git/MERGE_HEAD").exists() {
        succeed(root, &["merge", "--abort"], None)?;
    }
    if open.is_empty() {
        return Err(Error::Git { what: "merge".into(), why: plain::one_line(said.trim()) });
    }
    let reason = |path: &String| {
        said.lines().find_map(|line| line.strip_prefix("icecore: ")?.strip_prefix(path.as_str())?.strip_prefix(": ")).map(str::to_owned)
    };
    Ok(Joined::Open { files: open.iter().map(|path| (path.clone(), reason(path))).collect(), left })
}

/// A merge that was begun here and not ended.
pub(super) fn unfinished(root: &Path) -> Result<Option<Unfinished>> {
    if !root.join(".git/MERGE_HEAD").exists() {
        return Ok(None);
    }
    vet(root)?;
    Ok(Some(Unfinished { open: unsettled(root)? }))
}

/// The last merge, if git alone has made it.
pub(super) fn foreign_merge(root: &Path) -> Result<Option<String>> {
    if !is_shared(root) {
        return Ok(None);
    }
    vet(root)?;
    if head(root)?.is_none() {
        return Ok(None);
    }
    let told = succeed(root, &["log", "--merges", "--max-count=1", "--no-show-signature", "--format=%H %ce"], None)?;
    let told = String::from_utf8_lossy(&told).trim().to_owned();
    let Some((merge, _)) = told.split_once(' ').filter(|(_, by)| *by != US) else { return Ok(None) };
    // A snapshot behind it says that it was settled, on whatever machine.
    let since = format!("{merge}..HEAD");
    let settled = succeed(root, &["log", "--no-show-signature", "--format=%ce %s", &since], None)?;
    let settled = String::from_utf8_lossy(&settled).into_owned();
    let says =
        |line: &str| line.split_once(' ').is_some_and(|(by, note)| by == US && (note.starts_with(MERGED) || note.starts_with(SETTLED)));
    Ok((!settled.lines().any(says)).then(|| merge.to_owned()))
}

/// Makes a clone of a vault one that icecore keeps snapshots in and merges; whether it was not one before.
pub(super) fn adopt(door: &Door) -> Result<bool> {
    let root = door.root();
    let folder = root.join(".git");
    let (before, _) = vet_settings(root)?;
    if !before {
        // A clone of a vault has it in its history; a repository that a vault was made in is left alone.
        if !run(root, &["cat-file", "-e", &format!("HEAD:{}", layout::CONFIG)], None)?.status.success() {
            return Ok(false);
        }
        let config = folder.join("config");
        let path = config.to_string_lossy().into_owned();
        for (key, value) in [(MADE_BY_US, "true"), ("core.fsync", "all")] {
            let arguments = ["config", "--file", path.as_str(), "--no-includes", "--replace-all", key, value];
            let set = output(super::command(root).env("GIT_DIR", "/dev/null").args(arguments), &arguments)?;
            if !set.status.success() {
                return Err(Error::Git { what: "config".into(), why: plain::one_line(String::from_utf8_lossy(&set.stderr).trim()) });
            }
        }
    }
    Ok(register(door, &folder)? || !before)
}
