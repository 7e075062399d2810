//! Staged directories: folders of files that can be downloaded again, such as a model.
//!
//! A folder is filled beside its target and moved there at the end. Readers see the old state or
//! all new files. A process that dies leaves at most a hidden folder, which the next one removes.
#![expect(clippy::disallowed_methods, reason = "this module writes files outside of the vault")]

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use crate::vault::vault_fs::io_error;
use crate::{Error, Result};

/// A folder that is being filled. Dropping it before [`StagedDir::commit`] removes it.
#[derive(Debug)]
pub struct StagedDir {
    target: PathBuf,
    above: PathBuf,
    folder: PathBuf,
    /// The lock on the parent folder. One process stages there at a time.
    _lock: File,
}

/// Removes a folder with its content. Renames it first, so that no reader finds half of it. False
/// if it did not exist.
pub fn remove_dir(folder: &Path) -> Result<bool> {
    let Some(name) = folder.file_name() else {
        return Err(io_error("removing", folder, ErrorKind::InvalidInput.into()));
    };
    let mut hidden = OsString::from(".");
    hidden.push(name);
    hidden.push(".gone");
    let gone = folder.with_file_name(hidden);
    // Left by a process that died.
    match fs::remove_dir_all(&gone) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            return Err(io_error("removing", &gone, error));
        }
        _ => {}
    }
    match fs::rename(folder, &gone) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(io_error("removing", folder, error)),
    }
    fs::remove_dir_all(&gone).map_err(|error| io_error("removing", &gone, error))?;
    Ok(true)
}

impl StagedDir {
    /// Starts to fill the folder `target`. Fails if another process does so.
    pub fn create(target: &Path) -> Result<Self> {
        let Some(name) = target.file_name() else {
            return Err(io_error("writing", target, ErrorKind::InvalidInput.into()));
        };
        let above = match target.parent() {
            Some(above) if !above.as_os_str().is_empty() => above.to_owned(),
            _ => PathBuf::from("."),
        };
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&above)
            .map_err(|error| io_error("creating the folder", &above, error))?;
        let lock = File::open(&above).map_err(|error| io_error("opening", &above, error))?;
        match lock.try_lock() {
            Err(TryLockError::WouldBlock) => return Err(Error::busy(above)),
            Err(TryLockError::Error(error)) if !has_no_locks(&error) => {
                return Err(io_error("locking", &above, error));
            }
            _ => {}
        }
        let mut hidden = OsString::from(".");
        hidden.push(name);
        hidden.push(".part");
        let folder = above.join(hidden);
        // Left by a process that died: we hold the lock.
        match fs::remove_dir_all(&folder) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(io_error("removing", &folder, error));
            }
            _ => {}
        }
        DirBuilder::new()
            .mode(0o700)
            .create(&folder)
            .map_err(|error| io_error("creating the folder", &folder, error))?;
        Ok(Self { target: target.to_owned(), above, folder, _lock: lock })
    }

    /// Creates a file, which must not exist yet.
    pub fn create_file(&self, name: &str) -> Result<File> {
        let place = self.folder.join(name);
        if Path::new(name).file_name().is_none_or(|last| last != name) {
            return Err(io_error("writing", &place, ErrorKind::InvalidInput.into()));
        }
        OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&place)
            .map_err(|error| io_error("writing", &place, error))
    }

    /// The temporary path of a file.
    pub fn file_path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Renames a file.
    pub fn rename_file(&self, name: &str, other: &str) -> Result<()> {
        fs::rename(self.file_path(name), self.file_path(other))
            .map_err(|error| io_error("renaming", &self.file_path(name), error))
    }

    /// Removes a file.
    pub fn remove_file(&self, name: &str) -> Result<()> {
        fs::remove_file(self.file_path(name))
            .map_err(|error| io_error("removing", &self.file_path(name), error))
    }

    /// Moves the files to the target, `last` after all others, so that its presence proves theirs.
    /// Other files in the target stay.
    pub fn commit(self, last: &str) -> Result<()> {
        let failed = |error| io_error("flushing", &self.folder, error);
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.folder).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            File::open(entry.path()).and_then(|file| file.sync_all()).map_err(failed)?;
            names.push(entry.file_name());
        }
        File::open(&self.folder).and_then(|folder| folder.sync_all()).map_err(failed)?;
        let put = |error| io_error("writing", &self.target, error);
        if fs::symlink_metadata(&self.target)
            .is_err_and(|error| error.kind() == ErrorKind::NotFound)
        {
            fs::rename(&self.folder, &self.target).map_err(put)?;
        } else {
            names.sort_by_key(|name| name == last);
            for name in names {
                fs::rename(self.folder.join(&name), self.target.join(&name)).map_err(put)?;
            }
            File::open(&self.target).and_then(|folder| folder.sync_all()).map_err(put)?;
        }
        File::open(&self.above).and_then(|folder| folder.sync_all()).map_err(put)
    }
}

impl Drop for StagedDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Some file systems have no locks, or none for folders. Two processes can then interfere, and one
/// of them fails.
fn has_no_locks(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::Unsupported)
        || error.raw_os_error() == Some(rustix::io::Errno::BADF.raw_os_error())
}
