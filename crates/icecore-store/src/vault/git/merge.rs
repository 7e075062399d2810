//! Merges the vaults of two machines.
//!
//! git never writes a file of the vault here. The result of each file is computed from three
//! commits, in memory. Then a journal names the two sides, the files are replaced one by one, and
//! the merge waits for the next commit. If a process dies after the journal was written, the next
//! one completes the merge: it recognizes files that are in place already, and merges what others
//! wrote into a file meanwhile with the result.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use icecore_domain::layout::{self, DocPath};
use icecore_domain::page::PageKey;
use icecore_domain::sanitize;
use icecore_domain::secrets::MarkerKey;

use super::super::vault_fs::{Expected, MAX_WRITE_ATTEMPTS, io_error};
use super::merge_driver::{is_shared, register_driver};
use super::merge_plan::{FileMerge, MergePlan, is_ledger_file, merge_file, path_state, plan_merge};
use super::{
    VaultFs, WriteLock, git_error, git_for, git_output, head_commit, run_git, run_git_locked,
    run_git_ok, vet_repository,
};
use crate::{
    ContentVersion, Divergence, Error, ErrorKind, MARKER_KEY, MERGE_NOTE_PREFIX, MergeOutcome,
    RESOLVED_MERGE_NOTE, Result, UnfinishedMerge,
};

/// The private file that names the two sides while files are replaced.
const JOURNAL_FILE: &str = "merge-journal";
/// Shown while the journal exists.
const INTERRUPTED_MERGE_MESSAGE: &str =
    "a merge of two machines was interrupted. `icecore merge` finishes it";

/// The author of our snapshots.
const COMMITTER_EMAIL: &str = "icecore@localhost";

/// Whether git is in the middle of an operation, other than a merge, that the next `git commit`
/// ends.
pub fn has_pending_operation(root: &Path) -> bool {
    const OPERATION_FILES: &[&str] =
        &["CHERRY_PICK_HEAD", "REVERT_HEAD", "SQUASH_MSG", "rebase-merge", "rebase-apply"];
    OPERATION_FILES.iter().any(|name| root.join(".git").join(name).symlink_metadata().is_ok())
}

/// The commits that the next commit will merge, without those that are merged already.
pub fn pending_merge_heads(root: &Path) -> Result<Vec<String>> {
    let text = std::fs::read_to_string(root.join(".git/MERGE_HEAD")).unwrap_or_default();
    let mut heads = Vec::new();
    for commit in text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && line.bytes().all(|byte| byte.is_ascii_hexdigit()))
    {
        if !run_git(root, &["merge-base", "--is-ancestor", commit, "HEAD"], None)?.status.success()
        {
            heads.push(commit.to_owned());
        }
    }
    Ok(heads)
}

/// Removes the state files of a committed merge.
pub fn clear_merge_state(vault_fs: &VaultFs) -> Result<()> {
    // MERGE_HEAD decides, so it goes last.
    for name in ["MERGE_MODE", "MERGE_MSG", "AUTO_MERGE", "MERGE_HEAD"] {
        vault_fs.remove_git_file(&vault_fs.root().join(".git").join(name))?;
    }
    Ok(())
}

/// Files with unresolved conflicts.
pub fn unmerged_files(root: &Path) -> Result<Vec<String>> {
    if !root.join(".git/MERGE_HEAD").exists()
        && !root.join(".git/rebase-merge").exists()
        && !root.join(".git/CHERRY_PICK_HEAD").exists()
    {
        return Ok(Vec::new());
    }
    let listed = run_git_ok(
        root,
        &["diff", "--name-only", "--diff-filter=U", "-z", "--no-ext-diff", "--no-textconv"],
        None,
    )?;
    let listed = String::from_utf8_lossy(&listed).into_owned();
    Ok(listed.split('\0').filter(|path| !path.is_empty()).map(sanitize::one_line).collect())
}

/// Fails while a merge is open: a commit now would contain only one side of it.
pub fn check_no_open_merge(vault_fs: &VaultFs) -> Result<()> {
    if vault_fs.read_journal(JOURNAL_FILE)?.is_some() {
        return Err(Error::unresolved_merge(INTERRUPTED_MERGE_MESSAGE.into()));
    }
    let open = unmerged_files(vault_fs.root())?;
    let Some(first) = open.first() else { return Ok(()) };
    Err(Error::unresolved_merge(format!(
        "a merge has unresolved conflicts in {}, the first in {first}. `git merge --abort` undoes it, and `icecore merge` merges in another way",
        if open.len() == 1 { "a file".into() } else { format!("{} files", open.len()) }
    )))
}

/// The other side and the lines that decide which ids it used.
pub fn find_divergence(root: &Path, other: Option<&str>) -> Result<Divergence> {
    vet_repository(root)?;
    let ours = head_commit(root)?.ok_or_else(|| {
        Error::no_snapshots("there is no snapshot yet, so there is nothing to merge with; `icecore snapshot` creates one".into())
    })?;
    let commit = |name: &str| -> Result<Option<String>> {
        let found = run_git(
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
        None => upstream_branch(root)?,
    };
    let theirs = commit(&name)?.ok_or_else(|| {
        Error::no_snapshots(format!(
            "there is no commit `{}` here. Run `git fetch` to get what the other machine has pushed",
            sanitize::one_line(&name)
        ))
    })?;
    let base = run_git(root, &["merge-base", &ours, &theirs], None)?;
    if !base.status.success() {
        return Err(Error::foreign_repository(format!(
            "`{}` and this vault have no common history. Clone one and `icecore import` the other",
            sanitize::one_line(&name)
        )));
    }
    let base = String::from_utf8_lossy(&base.stdout).trim().to_owned();
    let side = |commit: &str| -> Result<Vec<(DocPath, Vec<u8>)>> {
        let listed = run_git_ok(
            root,
            &["ls-tree", "-r", "-z", "--name-only", commit, "--", "memory"],
            None,
        )?;
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
                    run_git_ok(root, &["cat-file", "blob", &format!("{commit}:{path}")], None)?,
                ))
            })
            .collect()
    };
    let settings = format!("{theirs}:{}", layout::CONFIG);
    let has_settings =
        !run_git_ok(root, &["ls-tree", "-z", &theirs, "--", layout::CONFIG], None)?.is_empty();
    let settings = if has_settings {
        Some(run_git_ok(root, &["cat-file", "blob", &settings], None)?)
    } else {
        None
    };
    let (nothing, forward) = (base == theirs, base == ours);
    let (base, texts) =
        if nothing || forward { (Vec::new(), Vec::new()) } else { (side(&base)?, side(&theirs)?) };
    Ok(Divergence {
        name,
        commit: theirs,
        is_up_to_date: nothing,
        is_fast_forward: forward,
        settings,
        base,
        theirs: texts,
    })
}

/// The upstream of this branch; else the same branch of the only remote.
fn upstream_branch(root: &Path) -> Result<String> {
    let asked = |arguments: &[&str]| -> Result<Option<String>> {
        let told = run_git(root, arguments, None)?;
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
        _ => Err(Error::no_snapshots(
            "name the branch to merge, such as `icecore merge origin/main`".into(),
        )),
    }
}

/// The key of the other side, if git reaches it as a folder of this machine. Only a file that
/// belongs to the vault's owner and that nobody else can read counts: with the key one can test
/// guesses of hidden secrets.
pub fn other_marker_key(root: &Path, fork: &Divergence) -> Option<MarkerKey> {
    let (remote, _) = fork.name.split_once('/')?;
    let told =
        run_git(root, &["config", "--local", "--get", &format!("remote.{remote}.url")], None)
            .ok()
            .filter(|told| told.status.success())?;
    let address = String::from_utf8(told.stdout).ok()?;
    let address = address.trim();
    let address = address.strip_prefix("file://").unwrap_or(address);
    if !address.starts_with(['/', '.']) {
        return None;
    }
    let vault_fs = VaultFs::new(root.join(address));
    let (ours, theirs) = (
        std::fs::metadata(root).ok()?,
        std::fs::symlink_metadata(vault_fs.private(MARKER_KEY)).ok()?,
    );
    let alone = theirs.is_file() && theirs.uid() == ours.uid() && theirs.mode() & 0o077 == 0;
    if alone { vault_fs.read_marker_key().ok().flatten() } else { None }
}

/// The two sides of a merge whose files are being replaced.
struct MergeJournal {
    ours: String,
    theirs: String,
    name: String,
}

impl MergeJournal {
    fn read(vault_fs: &VaultFs) -> Result<Option<Self>> {
        let Some(text) = vault_fs.read_journal(JOURNAL_FILE)? else { return Ok(None) };
        let mut lines = text.lines();
        match (lines.next(), lines.next(), lines.next()) {
            (Some(ours), Some(theirs), Some(name)) => {
                Ok(Some(Self { ours: ours.into(), theirs: theirs.into(), name: name.into() }))
            }
            // It is written atomically, so another program changed it.
            _ => {
                let place = vault_fs.private(JOURNAL_FILE);
                Err(Error::unresolved_merge(format!(
                    "{} cannot be read; remove it, then `icecore merge` starts again",
                    place.display()
                )))
            }
        }
    }

    fn write(&self, vault_fs: &VaultFs, lock: &WriteLock) -> Result<()> {
        vault_fs.write_journal(
            lock,
            JOURNAL_FILE,
            &format!("{}\n{}\n{}\n", self.ours, self.theirs, sanitize::one_line(&self.name)),
        )
    }
}

/// Merges the other side, up to the commit, which the next snapshot makes. If memory lines
/// conflict, nothing changes.
pub fn merge(vault_fs: &VaultFs, fork: &Divergence) -> Result<MergeOutcome> {
    let root = vault_fs.root();
    vet_repository(root)?;
    let held = vault_fs.lock()?;
    vault_fs.remove_stale_git_locks(&held, false)?;
    register_driver(vault_fs, &root.join(".git"))?;
    let ours = head_commit(root)?.ok_or_else(|| {
        Error::no_snapshots("there is no snapshot yet, so there is nothing to merge with".into())
    })?;
    let journal = MergeJournal { ours, theirs: fork.commit.clone(), name: fork.name.clone() };
    let plan = plan_merge(vault_fs, &held, &journal.ours, &journal.theirs)?;
    if plan.refused {
        return Ok(MergeOutcome::Conflicted { files: plan.open_files(), left: false });
    }
    apply_plan(vault_fs, &held, &journal, plan)
}

/// Completes a merge whose files were being replaced.
pub fn resume_merge(vault_fs: &VaultFs) -> Result<Option<MergeOutcome>> {
    if vault_fs.read_journal(JOURNAL_FILE)?.is_none() {
        return Ok(None);
    }
    let root = vault_fs.root();
    vet_repository(root)?;
    let held = vault_fs.lock()?;
    vault_fs.remove_stale_git_locks(&held, false)?;
    let Some(journal) = MergeJournal::read(vault_fs)? else { return Ok(None) };
    let plan = plan_merge(vault_fs, &held, &journal.ours, &journal.theirs)?;
    apply_plan(vault_fs, &held, &journal, plan).map(Some)
}

/// What to do with a file.
enum MergeStep {
    Nothing,
    /// Replace it, if it still has the expected content.
    Replace(Option<Vec<u8>>, Expected),
    /// Keep it, for this reason.
    Leave(String),
}

/// Compares the current state of a file with its result.
fn next_step(vault_fs: &VaultFs, lock: &WriteLock, file: &FileMerge) -> Result<MergeStep> {
    let now = vault_fs.read(&file.path)?;
    let known = Expected::Content(ContentVersion::of(now.as_deref()));
    if now == file.merged {
        return Ok(MergeStep::Nothing);
    }
    if now == file.ours {
        return Ok(MergeStep::Replace(file.merged.clone(), known));
    }
    // Others have written since: their changes are merged on top.
    Ok(
        match merge_file(
            vault_fs,
            lock,
            file.path.as_str(),
            [&file.ours, &now, &file.merged],
            false,
        )? {
            Ok(merged) if merged == now => MergeStep::Nothing,
            Ok(merged) => MergeStep::Replace(merged, known),
            Err(why) => MergeStep::Leave(why),
        },
    )
}

/// Replaces a file. Merges what others save until then. Returns the reason if the file stays as it
/// is.
fn replace_file(
    vault_fs: &VaultFs,
    lock: &WriteLock,
    file: &FileMerge,
    mut step: MergeStep,
) -> Result<Option<String>> {
    for _ in 0..MAX_WRITE_ATTEMPTS {
        let put = match &step {
            MergeStep::Nothing => return Ok(None),
            MergeStep::Leave(why) => return Ok(Some(why.clone())),
            MergeStep::Replace(Some(bytes), known) => {
                vault_fs.replace_if(lock, &file.path, bytes, known)
            }
            MergeStep::Replace(None, known) => vault_fs.remove_if(lock, &file.path, known),
        };
        match put {
            Err(Error { kind: ErrorKind::Conflict, .. }) => step = next_step(vault_fs, lock, file)?,
            other => return other.map(|()| None),
        }
    }
    Err(Error::conflict(file.path.to_string()))
}

/// Replaces every file and leaves the merge for the next commit.
fn apply_plan(
    vault_fs: &VaultFs,
    lock: &WriteLock,
    journal: &MergeJournal,
    mut plan: MergePlan,
) -> Result<MergeOutcome> {
    // All steps are computed before the first file changes.
    let mut steps = plan
        .files
        .iter()
        .map(|file| next_step(vault_fs, lock, file))
        .collect::<Result<Vec<_>>>()?
        .into_iter();
    let is_ledger_left = plan
        .files
        .iter()
        .zip(steps.as_slice())
        .any(|(file, step)| is_ledger_file(file) && matches!(step, MergeStep::Leave(_)));
    if is_ledger_left {
        return report_retry(vault_fs, lock);
    }
    journal.write(vault_fs, lock)?;
    for (file, step) in plan.files.iter().zip(&mut steps) {
        let Some(why) = replace_file(vault_fs, lock, file, step)? else { continue };
        if is_ledger_file(file) {
            return report_retry(vault_fs, lock);
        }
        // Pages are regenerated from the events of both.
        if PageKey::from_path(&file.path).is_none()
            && !file.path.as_str().starts_with(layout::MEMORIES)
        {
            plan.open.push((file.path.as_str().into(), why));
        }
    }
    let untaken = checkout_foreign_paths(vault_fs, lock, &plan)?;
    plan.open.extend(untaken);
    stage_files(vault_fs, lock, &plan)?;
    record_merge(vault_fs, lock, journal, plan.base == journal.ours && plan.open.is_empty())?;
    vault_fs.remove_journal(lock, JOURNAL_FILE)?;
    Ok(if plan.open.is_empty() {
        MergeOutcome::Complete
    } else {
        MergeOutcome::Conflicted { files: plan.open_files(), left: true }
    })
}

/// The ledger is replaced first, so that nothing has changed if it cannot be.
fn report_retry(vault_fs: &VaultFs, lock: &WriteLock) -> Result<MergeOutcome> {
    vault_fs.remove_journal(lock, JOURNAL_FILE)?;
    Err(Error::conflict(layout::LEDGER.into()))
}

/// Lets git check out the paths that are not vault files. Returns those that it cannot, with the
/// reason.
fn checkout_foreign_paths(
    vault_fs: &VaultFs,
    lock: &WriteLock,
    plan: &MergePlan,
) -> Result<Vec<(Vec<u8>, String)>> {
    if plan.taken.is_empty() {
        return Ok(Vec::new());
    }
    let root = vault_fs.root();
    let (mut entries, mut missing, mut open) = (Vec::new(), Vec::new(), Vec::new());
    for foreign in &plan.taken {
        let changed =
            || (foreign.path.clone(), "is not a file of the vault, and differs here".to_owned());
        // Private files of this machine never come from another.
        let is_private = foreign
            .path
            .split(|byte| *byte == b'/')
            .next()
            .is_some_and(|top| top.eq_ignore_ascii_case(layout::PRIVATE.as_bytes()));
        match path_state(root, &foreign.path) {
            _ if is_private => {}
            Ok(now) if now == foreign.theirs => {}
            Ok(now) if now.is_none() || now == foreign.ours => {
                let place = root.join(OsStr::from_bytes(&foreign.path));
                let removed = match now {
                    Some((false, bytes)) => vault_fs.remove_path_with(lock, &place, &bytes),
                    Some((true, _)) => vault_fs.remove_path(lock, &place),
                    None => Ok(()),
                };
                if matches!(removed, Err(Error { kind: ErrorKind::Conflict, .. })) {
                    open.push(changed());
                    continue;
                }
                removed?;
                if foreign.theirs.is_some() {
                    missing.push(&foreign.path);
                }
            }
            _ => {
                open.push(changed());
                continue;
            }
        }
        entries.extend(index_info_line(plan, Some(2), &foreign.path, 0));
    }
    update_index(vault_fs, lock, &entries)?;
    let list = missing.iter().flat_map(|path| [path, &b"\0"[..]].concat()).collect::<Vec<u8>>();
    // git does not overwrite files that it must not; the check for missing ones finds them.
    let _ = run_git_with_input(vault_fs, lock, &["checkout-index", "-z", "--stdin"], &list);
    let refused = missing
        .into_iter()
        .filter(|path| root.join(OsStr::from_bytes(path)).symlink_metadata().is_err());
    open.extend(refused.map(|path| (path.clone(), "cannot be created here".into())));
    Ok(open)
}

/// An `update-index --index-info` line for a path in one of the trees, at that merge stage. Stage 0
/// replaces all others; without a tree it removes the path.
fn index_info_line(plan: &MergePlan, tree: Option<usize>, path: &[u8], stage: usize) -> Vec<u8> {
    let about = match tree.and_then(|tree| plan.trees[tree].get(path)) {
        Some((mode, id)) => format!("{mode} {id} {stage}\t"),
        None if stage == 0 => format!("0 {}\t", "0".repeat(plan.base.len())),
        None => return Vec::new(),
    };
    [about.as_bytes(), path, b"\0"].concat()
}

fn update_index(vault_fs: &VaultFs, lock: &WriteLock, lines: &[u8]) -> Result<()> {
    run_git_with_input(
        vault_fs,
        lock,
        &["update-index", "-z", "--add", "--replace", "--index-info"],
        lines,
    )
}

/// Runs a git that changes the repository and reads its input from us. It prints nothing, so the
/// lock takes the place of its output.
fn run_git_with_input(
    vault_fs: &VaultFs,
    lock: &WriteLock,
    arguments: &[&str],
    input: &[u8],
) -> Result<()> {
    let place = vault_fs.create_temporary(lock, input)?;
    let changed = (|| {
        let input =
            std::fs::File::open(&place).map_err(|error| io_error("reading", &place, error))?;
        let mut git = git_for(vault_fs.root(), &vault_fs.root().join(".git"));
        let output =
            git_output(git.stdin(input).stdout(lock.as_stdin()?).args(arguments), arguments)?;
        if output.status.success() { Ok(()) } else { Err(git_error(arguments, &output)) }
    })();
    vault_fs.remove_git_file(&place)?;
    changed
}

/// Updates git's index with the current files; conflicting ones get all their stages.
fn stage_files(vault_fs: &VaultFs, lock: &WriteLock, plan: &MergePlan) -> Result<()> {
    let root = vault_fs.root();
    let open: BTreeSet<&[u8]> = plan.open.iter().map(|(path, _)| path.as_slice()).collect();
    if !open.is_empty() {
        let sides = |path: &&[u8]| {
            let sides = (0..plan.trees.len())
                .flat_map(|tree| index_info_line(plan, Some(tree), path, tree + 1));
            index_info_line(plan, None, path, 0).into_iter().chain(sides).collect::<Vec<u8>>()
        };
        update_index(vault_fs, lock, &open.iter().flat_map(sides).collect::<Vec<u8>>())?;
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
        let list = vault_fs.create_temporary(lock, list.as_bytes())?;
        let from = format!("--pathspec-from-file={}", list.display());
        let literal: Vec<&str> = ["--literal-pathspecs"]
            .into_iter()
            .chain(arguments.iter().copied())
            .chain([from.as_str(), "--pathspec-file-nul"])
            .collect();
        let staged = run_git_locked(root, lock, &literal, None);
        vault_fs.remove_git_file(&list)?;
        staged?;
    }
    Ok(())
}

/// Records the merge in git.
fn record_merge(
    vault_fs: &VaultFs,
    lock: &WriteLock,
    journal: &MergeJournal,
    forward: bool,
) -> Result<()> {
    let root = vault_fs.root();
    let here = head_commit(root)?.unwrap_or_default();
    if run_git(root, &["merge-base", "--is-ancestor", &journal.theirs, "HEAD"], None)?
        .status
        .success()
    {
        return Ok(());
    }
    if forward && here == journal.ours {
        let note = format!("merge {}: Fast-forward", sanitize::one_line(&journal.name));
        run_git_locked(
            root,
            lock,
            &["update-ref", "-m", &note, "HEAD", &journal.theirs, &journal.ours],
            None,
        )?;
        return Ok(());
    }
    let git = root.join(".git");
    vault_fs.write_git_file(
        &git.join("MERGE_MSG"),
        format!("{MERGE_NOTE_PREFIX}{}\n", sanitize::one_line(&journal.name)).as_bytes(),
    )?;
    vault_fs.write_git_file(&git.join("MERGE_HEAD"), format!("{}\n", journal.theirs).as_bytes())
}

/// A merge that icecore started and did not complete.
pub fn unfinished_merge(vault_fs: &VaultFs) -> Result<Option<UnfinishedMerge>> {
    let root = vault_fs.root();
    if let Some(journal) = MergeJournal::read(vault_fs)? {
        return Ok(Some(UnfinishedMerge { name: journal.name, conflicts: Vec::new() }));
    }
    if !root.join(".git/MERGE_HEAD").exists() {
        return Ok(None);
    }
    vet_repository(root)?;
    let Some(commit) = pending_merge_heads(root)?.into_iter().next() else { return Ok(None) };
    let note = std::fs::read_to_string(root.join(".git/MERGE_MSG")).unwrap_or_default();
    let name = note
        .lines()
        .next()
        .and_then(|line| line.strip_prefix(MERGE_NOTE_PREFIX))
        .map(str::to_owned);
    Ok(Some(UnfinishedMerge { name: name.unwrap_or(commit), conflicts: unmerged_files(root)? }))
}

/// The last merge, if git alone made it.
pub fn foreign_merge(root: &Path) -> Result<Option<String>> {
    if !is_shared(root) {
        return Ok(None);
    }
    vet_repository(root)?;
    if head_commit(root)?.is_none() {
        return Ok(None);
    }
    let told = run_git_ok(
        root,
        &["log", "--merges", "--max-count=1", "--no-show-signature", "--format=%H %ce"],
        None,
    )?;
    let told = String::from_utf8_lossy(&told).trim().to_owned();
    let Some((merge, _)) = told.split_once(' ').filter(|(_, by)| *by != COMMITTER_EMAIL) else {
        return Ok(None);
    };
    // A later snapshot says that it was resolved, on whatever machine.
    let since = format!("{merge}..HEAD");
    let settled =
        run_git_ok(root, &["log", "--no-show-signature", "--format=%ce %s", &since], None)?;
    let settled = String::from_utf8_lossy(&settled).into_owned();
    let says = |line: &str| {
        line.split_once(' ').is_some_and(|(by, note)| {
            by == COMMITTER_EMAIL
                && (note.starts_with(MERGE_NOTE_PREFIX) || note.starts_with(RESOLVED_MERGE_NOTE))
        })
    };
    Ok((!settled.lines().any(says)).then(|| merge.to_owned()))
}
