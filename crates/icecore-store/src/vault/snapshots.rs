//! Snapshots: commits of a git repository, made through the `git` program.

use async_trait::async_trait;
use icecore_domain::forget::Scrub;
use icecore_domain::layout::{self, DocPath};
use icecore_domain::sanitize;
use jiff::Timestamp;

use super::Vault;
use super::git::{
    NEW_REPOSITORY_DIR, add_all, check_repository, commit_added, commit_operation, head_commit,
    history_rewrite, make_repository, merge, merge_driver, parse_snapshots, resolve_snapshot,
    restore_repository, run_git, run_git_ok, vet_listed, vet_repository,
};
use crate::{Result, RewriteReport, Snapshot, SnapshotStore};

#[async_trait]
impl SnapshotStore for Vault {
    async fn check_available(&self) -> Result<()> {
        check_repository(self.root())
    }

    async fn create_snapshot(&self, note: &str, at: Timestamp) -> Result<Option<Snapshot>> {
        let root = self.root();
        check_repository(root)?;
        // The lock keeps writers out, so that a snapshot shows one moment.
        let held = self.fs.lock()?;
        self.fs.remove_stale_git_locks(&held, false)?;
        let tracked = vet_listed(root)?;
        merge::check_no_open_merge(&self.fs)?;
        // Only what belongs to a vault: the folder may hold other files, which are not ours to
        // commit.
        let here: Vec<&str> = layout::VAULT_ENTRIES
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
        let names =
            layout::VAULT_ENTRIES.iter().filter(|name| here.contains(name) || gone(name)).copied();
        let arguments: Vec<&str> = ["add", "--all", "--"].into_iter().chain(names).collect();
        add_all(root, &held, &arguments)?;
        let note: String = sanitize::one_line(note).chars().take(200).collect();
        let begun = merge::has_pending_operation(root);
        let id = if begun {
            commit_operation(root, &held, &note, at)?
        } else {
            commit_added(&self.fs, &held, &note, at)?
        };
        Ok(id.map(|id| Snapshot { id, at, note }))
    }

    async fn snapshots(&self, most: usize) -> Result<Vec<Snapshot>> {
        let root = self.root();
        vet_repository(root)?;
        if head_commit(root)?.is_none() {
            return Ok(Vec::new());
        }
        let most = format!("--max-count={most}");
        let listed = run_git_ok(
            root,
            &["log", "-z", &most, "--no-show-signature", "--format=%H %ct %s"],
            None,
        )?;
        Ok(parse_snapshots(&listed))
    }

    async fn changes_since(&self, id: &str) -> Result<Vec<(DocPath, Option<Vec<u8>>)>> {
        let root = self.root();
        vet_repository(root)?;
        let commit = resolve_snapshot(root, id)?;
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
        let listed = String::from_utf8_lossy(&run_git_ok(root, &arguments, None)?).into_owned();
        let mut words = listed.split('\0').filter(|word| !word.is_empty());
        let mut found = Vec::new();
        while let (Some(status), Some(path)) = (words.next(), words.next()) {
            let Ok(document) = path.parse::<DocPath>() else { continue };
            let then = match status {
                "A" => None,
                _ => Some(run_git_ok(
                    root,
                    &["cat-file", "blob", &format!("{commit}:{path}")],
                    None,
                )?),
            };
            found.push((document, then));
        }
        Ok(found)
    }

    async fn document_versions(&self, path: &DocPath, most: usize) -> Result<Vec<Snapshot>> {
        let root = self.root();
        vet_repository(root)?;
        if head_commit(root)?.is_none() {
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
        Ok(parse_snapshots(&run_git_ok(root, &arguments, None)?))
    }

    async fn document_at(&self, id: &str, path: &DocPath) -> Result<Option<Vec<u8>>> {
        let root = self.root();
        vet_repository(root)?;
        let commit = resolve_snapshot(root, id)?;
        let is_there =
            !run_git_ok(root, &["ls-tree", "-z", &commit, "--", path.as_str()], None)?.is_empty();
        if is_there {
            Ok(Some(run_git_ok(root, &["cat-file", "blob", &format!("{commit}:{path}")], None)?))
        } else {
            Ok(None)
        }
    }

    async fn count_containing(&self, scrub: &Scrub) -> Result<(usize, usize)> {
        vet_repository(self.root())?;
        history_rewrite::count_containing(self.root(), scrub)
    }

    async fn rewrite_snapshots(&self, scrub: &Scrub) -> Result<RewriteReport> {
        vet_repository(self.root())?;
        let held = self.fs.lock()?;
        self.fs.remove_stale_git_locks(&held, false)?;
        merge::check_no_open_merge(&self.fs)?;
        history_rewrite::rewrite_history(&self.fs, scrub)
    }

    async fn pack(&self) -> Result<()> {
        let root = self.root();
        vet_repository(root)?;
        // Geometric repacking merges a pack into a later one once they have similar sizes, so the
        // weekly cost stays about constant.
        let packed = run_git(root, &["repack", "-d", "-q", "--geometric=2"], None)?;
        // Not supported before git 2.33.
        if packed.status.success() {
            Ok(())
        } else {
            run_git_ok(root, &["repack", "-d", "-q"], None).map(|_| ())
        }
    }

    async fn repair(&self) -> Result<Vec<String>> {
        let mut done = Vec::new();
        let held = self.fs.lock()?;
        // Restore a repository from an interrupted swap first; creating a new one would discard it.
        restore_repository(&self.fs, &held)?;
        if check_repository(self.root()).is_err() {
            make_repository(&self.fs)?;
            return Ok(vec!["created a git repository for snapshots".into()]);
        }
        let removed = self.fs.remove_stale_git_locks(&held, true)?;
        done.extend(
            removed.into_iter().map(|lock| format!("removed the stale lock {}", lock.display())),
        );
        let apart = self.fs.private(NEW_REPOSITORY_DIR);
        if apart.symlink_metadata().is_ok() {
            self.fs.remove_own_folder(&apart)?;
            done.push("removed an unfinished repository".into());
        }
        if vet_repository(self.root()).is_ok()
            && merge_driver::register_driver(&self.fs, &self.root().join(".git"))?
        {
            done.push("set up git's merge driver for memory files".into());
        }
        Ok(done)
    }
}
