//! The files of the git repository that git itself does not write.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::append::write_whole;
use super::lock::{RELEASE_PAUSE, WriteLock};
use super::read::stat_path;
use super::replace::{swap_paths, temporary_name};
use super::{VaultFs, flush_folder, io_error, nofollow, refuse_link};
use crate::{Error, Result};

/// The suffix of a repository that is being replaced.
const OLD_REPOSITORY_SUFFIX: &str = "old";

/// Copies a file, a link or a folder with its content, flushed. Replaces what was there.
fn copy_over(from: &Path, to: &Path) -> Result<()> {
    let failed = |error| io_error("copying", from, error);
    let found = match fs::symlink_metadata(from) {
        Ok(found) => found,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed(error)),
    };
    if found.is_dir() {
        fs::create_dir_all(to).map_err(failed)?;
        for entry in fs::read_dir(from).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name();
            copy_over(&from.join(&name), &to.join(&name))?;
        }
        return flush_folder(to);
    }
    match fs::remove_file(to) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    if found.file_type().is_symlink() {
        return fs::read_link(from)
            .and_then(|target| std::os::unix::fs::symlink(target, to))
            .map_err(failed);
    }
    fs::copy(from, to).and_then(|_| File::open(to)?.sync_all()).map_err(failed)
}

/// Whether the git that created a lock is dead. `is_at_work` is `None` if some processes are
/// invisible.
fn is_lock_stale(age_secs: i64, is_at_work: Option<bool>, is_repair: bool) -> bool {
    /// A git with a younger lock may not be visible yet.
    const SEEN_SECS: i64 = 2;
    const UNSEEN_REPAIR_SECS: i64 = 60;
    /// For containers and the like: no git of a person waits in an editor that long unnoticed.
    const UNSEEN_SECS: i64 = 3_600;
    match is_at_work {
        Some(is_at_work) => !is_at_work && age_secs >= SEEN_SECS,
        None => age_secs >= if is_repair { UNSEEN_REPAIR_SECS } else { UNSEEN_SECS },
    }
}

/// Whether a git of any process runs in this folder or below; `None` if that is unknown,
/// because processes of other users or outside of a container are invisible.
fn is_git_at_work(root: &Path) -> Option<bool> {
    /// The namespace that contains all processes.
    const ALL_PROCESSES: &str = "pid:[4026531836]";
    let root = root.canonicalize().unwrap_or_else(|_| root.to_owned());
    let is_denied = |error: &io::Error| error.kind() == ErrorKind::PermissionDenied;
    let mut sees_all = fs::read_link("/proc/self/ns/pid")
        .is_ok_and(|name| name == Path::new(ALL_PROCESSES))
        && Path::new("/proc/1").exists();
    for process in fs::read_dir("/proc").ok()?.flatten().map(|entry| entry.path()) {
        match fs::read_to_string(process.join("comm")) {
            Ok(name) if name.starts_with("git") => match fs::read_link(process.join("cwd")) {
                Ok(folder) if folder.starts_with(&root) => return Some(true),
                Err(error) if is_denied(&error) => sees_all = false,
                _ => {}
            },
            Err(error) if is_denied(&error) => sees_all = false,
            _ => {}
        }
    }
    sees_all.then_some(false)
}

impl VaultFs {
    /// Moves a complete new repository into place.
    pub fn install_repository(&self, made: &Path) -> Result<()> {
        let place = self.root.join(".git");
        fs::rename(made, &place).map_err(|error| io_error("making", &place, error))?;
        flush_folder(&self.root)
    }

    /// Replaces a small file of the repository, flushed.
    pub fn write_git_file(&self, place: &Path, bytes: &[u8]) -> Result<()> {
        let folder = place.parent().unwrap_or(&self.root);
        fs::create_dir_all(folder).map_err(|error| io_error("making", folder, error))?;
        refuse_link(place)?;
        let temporary = folder.join(temporary_name());
        let written = (|| {
            let mut file = OpenOptions::new()
                .write(true)
                .create_new(true)
                .custom_flags(nofollow())
                .open(&temporary)?;
            write_whole(&mut file, bytes)?;
            file.sync_all()?;
            fs::rename(&temporary, place)
        })();
        if let Err(error) = written {
            let _ = fs::remove_file(&temporary);
            return Err(io_error("writing", place, error));
        }
        flush_folder(folder)
    }

    /// Removes a file of the repository, if it exists.
    pub fn remove_git_file(&self, place: &Path) -> Result<()> {
        match fs::remove_file(place) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(io_error("removing", place, error))
            }
            _ => Ok(()),
        }
    }

    /// Removes lock files of a git that died. No git of ours runs: each holds the vault's lock
    /// while it lives, and we hold that lock. A person's own git is waited for. Where a running git
    /// may be invisible, only a repair removes its lock, once it is old.
    pub fn remove_stale_git_locks(
        &self,
        write_lock: &WriteLock,
        is_repair: bool,
    ) -> Result<Vec<PathBuf>> {
        const MAX_WAITS: u32 = 40;
        let mut removed = Vec::new();
        for lock in self.git_locks() {
            let mut waits = 0;
            while let Some(found) = stat_path(lock.clone())? {
                let age = write_lock
                    .file_system_time()
                    .map(|now| now.0 - found.mtime.0)
                    .filter(|age| *age >= 0);
                if age.is_some_and(|age| is_lock_stale(age, is_git_at_work(&self.root), is_repair))
                {
                    self.remove_git_file(&lock)?;
                    removed.push(lock);
                    break;
                }
                if waits == MAX_WAITS {
                    return Err(Error::git_at_work(lock));
                }
                waits += 1;
                std::thread::sleep(RELEASE_PAUSE * 10);
            }
        }
        Ok(removed)
    }

    /// The lock files beside the repository's own files and those of its branches.
    fn git_locks(&self) -> Vec<PathBuf> {
        let git = self.root.join(".git");
        let mut found = Vec::new();
        let mut folders = vec![git.clone()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
                let name = entry.file_name().to_string_lossy().into_owned();
                match entry.file_type() {
                    Ok(kind) if kind.is_dir() && (folder != git || name == "refs") => {
                        folders.push(entry.path())
                    }
                    Ok(kind) if kind.is_file() && name.ends_with(".lock") => {
                        found.push(entry.path())
                    }
                    _ => {}
                }
            }
        }
        found
    }

    /// Replaces the repository by a new one, atomically where the system can; the old one then has
    /// the new one's path. Files that a person added are copied first, so that the old repository
    /// is complete until then.
    pub fn swap_repository(&self, made: &Path) -> Result<()> {
        let place = self.root.join(".git");
        for name in ["config", "description", "hooks", "info"] {
            copy_over(&place.join(name), &made.join(name))?;
        }
        flush_folder(made)?;
        if swap_paths(made, &place).is_err() {
            let aside = made.with_extension(OLD_REPOSITORY_SUFFIX);
            fs::rename(&place, &aside)
                .and_then(|()| fs::rename(made, &place))
                .map_err(|error| io_error("making", &place, error))?;
        }
        flush_folder(&self.root)
    }

    /// Whether a process died between the two steps of a repository swap.
    pub fn has_lost_repository(&self, made: &Path) -> bool {
        self.root.join(".git").symlink_metadata().is_err()
            && made.with_extension(OLD_REPOSITORY_SUFFIX).is_dir()
    }

    /// Restores the old repository.
    pub fn restore_repository(&self, _held: &WriteLock, made: &Path) -> Result<()> {
        if !self.has_lost_repository(made) {
            return Ok(());
        }
        let place = self.root.join(".git");
        fs::rename(made.with_extension(OLD_REPOSITORY_SUFFIX), &place)
            .map_err(|error| io_error("making", &place, error))?;
        flush_folder(&self.root)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_stale_if_its_git_is_seen_to_be_gone_or_a_repair_says_so() {
        for (age, is_at_work, is_repair, is_stale) in [
            (1, Some(false), true, false),
            (2, Some(false), false, true),
            (9_999, Some(true), true, false),
            (3_599, None, false, false),
            (3_600, None, false, true),
            (59, None, true, false),
            (60, None, true, true),
        ] {
            assert_eq!(
                is_lock_stale(age, is_at_work, is_repair),
                is_stale,
                "{age} {is_at_work:?} {is_repair}"
            );
        }
    }
}
