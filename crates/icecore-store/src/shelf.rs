//! The shelf: folders of files that came from elsewhere and can be got again, such as a model's.
//!
//! A folder is filled beside its place and put there at the end. Whoever looks sees what was there
//! before or all of the new files; a process that dies on the way leaves at most a hidden folder,
//! which the next one takes away.
#![expect(clippy::disallowed_methods, reason = "this is the door for what is not the vault's")]

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use crate::vault::door::fault;
use crate::{Error, Result};

/// A folder that is being filled. Dropped before it is put in its place, it is gone.
#[derive(Debug)]
pub struct Stage {
    target: PathBuf,
    above: PathBuf,
    folder: PathBuf,
    /// Held on the folder above, by whoever fills something there.
    _lock: File,
}

/// Takes a folder away with everything in it: first out of sight in one step, so that nobody finds
/// half of it. False if it was not there.
pub fn discard(folder: &Path) -> Result<bool> {
    let Some(name) = folder.file_name() else {
        return Err(fault("removing", folder, ErrorKind::InvalidInput.into()));
    };
    let mut hidden = OsString::from(".");
    hidden.push(name);
    hidden.push(".gone");
    let gone = folder.with_file_name(hidden);
    // One that was left by somebody who died on the way.
    match fs::remove_dir_all(&gone) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            return Err(fault("removing", &gone, error));
        }
        _ => {}
    }
    match fs::rename(folder, &gone) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(fault("removing", folder, error)),
    }
    fs::remove_dir_all(&gone).map_err(|error| fault("removing", &gone, error))?;
    Ok(true)
}

impl Stage {
    /// Begins to fill the folder `target`; there is one who does so at a time.
    pub fn beside(target: &Path) -> Result<Self> {
        let Some(name) = target.file_name() else {
            return Err(fault("filling", target, ErrorKind::InvalidInput.into()));
        };
        let above = match target.parent() {
            Some(above) if !above.as_os_str().is_empty() => above.to_owned(),
            _ => PathBuf::from("."),
        };
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&above)
            .map_err(|error| fault("making the folder", &above, error))?;
        let lock = File::open(&above).map_err(|error| fault("opening", &above, error))?;
        match lock.try_lock() {
            Err(TryLockError::WouldBlock) => return Err(Error::Busy { vault: above }),
            Err(TryLockError::Error(error)) if !unlockable(&error) => {
                return Err(fault("locking", &above, error));
            }
            _ => {}
        }
        let mut hidden = OsString::from(".");
        hidden.push(name);
        hidden.push(".part");
        let folder = above.join(hidden);
        // What is there was left by somebody who died: nobody else holds the lock.
        match fs::remove_dir_all(&folder) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(fault("removing", &folder, error));
            }
            _ => {}
        }
        DirBuilder::new()
            .mode(0o700)
            .create(&folder)
            .map_err(|error| fault("making the folder", &folder, error))?;
        Ok(Self { target: target.to_owned(), above, folder, _lock: lock })
    }

    /// Begins a file of that name, which must not be there yet.
    pub fn file(&self, name: &str) -> Result<File> {
        let place = self.folder.join(name);
        if Path::new(name).file_name().is_none_or(|last| last != name) {
            return Err(fault("writing", &place, ErrorKind::InvalidInput.into()));
        }
        OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&place)
            .map_err(|error| fault("writing", &place, error))
    }

    /// Where a file of that name is for now.
    pub fn place(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Gives a file another name.
    pub fn rename(&self, name: &str, other: &str) -> Result<()> {
        fs::rename(self.place(name), self.place(other))
            .map_err(|error| fault("renaming", &self.place(name), error))
    }

    /// Takes a file away again.
    pub fn remove(&self, name: &str) -> Result<()> {
        fs::remove_file(self.place(name))
            .map_err(|error| fault("removing", &self.place(name), error))
    }

    /// Puts the files in their place: `last` after all others, so that where it is, they are. Files
    /// of other names that are there already stay.
    pub fn settle(self, last: &str) -> Result<()> {
        let failed = |error| fault("flushing", &self.folder, error);
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.folder).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            File::open(entry.path()).and_then(|file| file.sync_all()).map_err(failed)?;
            names.push(entry.file_name());
        }
        File::open(&self.folder).and_then(|folder| folder.sync_all()).map_err(failed)?;
        let put = |error| fault("filling", &self.target, error);
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

impl Drop for Stage {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Some file systems have no locks, or none for folders; there two can get in each other's way, and
/// one of them then fails.
fn unlockable(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::Unsupported)
        || error.raw_os_error() == Some(rustix::io::Errno::BADF.raw_os_error())
}
