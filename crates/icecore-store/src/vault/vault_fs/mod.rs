//! The file-system layer of the vault: the only code that changes its files.
//!
//! Everything above relies on this contract. When a call returns `Ok`, the change is durable, file
//! and folder. When it returns an error or the process dies, the file is unchanged; only a death
//! during an append can leave one torn last line, which the next opening moves to quarantine. A
//! failed flush is never tried again on the same data: the write fails and the appended bytes are
//! cut off.
//!
//! Programs that do not know our locks write to the same files. An append never cuts off what they
//! appended. A conditional replacement or removal never destroys what they saved since the file was
//! read.
#![expect(clippy::disallowed_methods, reason = "this module is the file-system layer")]

mod append;
mod git_files;
mod lock;
mod private_files;
mod read;
mod remove;
mod replace;

use std::collections::{HashMap, HashSet};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use icecore_domain::layout::{DocPath, PRIVATE};
use rustix::fs::OFlags;

pub(super) use self::lock::WriteLock;
pub(super) use self::read::FileStat;
pub(super) use self::replace::Expected;

use self::lock::{LockQueue, MAX_LOCK_ATTEMPTS, SHORT_LOCK_ATTEMPTS};
use crate::{Error, Result};

/// How often a write is tried again when another program's write interferes.
pub(super) const MAX_WRITE_ATTEMPTS: usize = 5;

/// File access to one vault.
#[derive(Debug, Clone)]
pub(super) struct VaultFs {
    root: PathBuf,
    /// Folders that this process knows to be durable.
    flushed_folders: Arc<Mutex<HashSet<PathBuf>>>,
    /// By name of the lock.
    queues: Arc<Mutex<HashMap<String, Arc<LockQueue>>>>,
    /// How often a writer tries to get a lock.
    lock_attempts: u32,
}

impl VaultFs {
    /// The files of the vault in this folder.
    pub fn new(root: PathBuf) -> Self {
        Self {
            root,
            flushed_folders: Arc::default(),
            queues: Arc::default(),
            lock_attempts: MAX_LOCK_ATTEMPTS,
        }
    }

    /// Makes every lock wait at most about a second.
    pub fn with_short_wait(self) -> Self {
        Self { lock_attempts: SHORT_LOCK_ATTEMPTS, ..self }
    }

    /// The folder of the vault.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The path of a private file.
    pub fn private(&self, name: &str) -> PathBuf {
        self.root.join(PRIVATE).join(name)
    }

    /// The path of a document, after checking that no component is a link.
    fn checked_path(&self, path: &DocPath) -> Result<PathBuf> {
        for folder in path.folders() {
            let folder = self.root.join(folder);
            match fs::symlink_metadata(&folder) {
                Ok(found) if found.file_type().is_symlink() => return Err(Error::link(folder)),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::NotFound => break,
                Err(error) => return Err(io_error("reading the metadata of", &folder, error)),
            }
        }
        Ok(self.root.join(path.as_str()))
    }

    /// Flushes every folder from the vault down to that of the document. The upper ones need it
    /// only once.
    fn flush_folders(&self, path: &DocPath) -> Result<()> {
        let places: Vec<PathBuf> = std::iter::once(self.root.clone())
            .chain(path.folders().map(|folder| self.root.join(folder)))
            .collect();
        let own = places.len() - 1;
        for (at, place) in places.iter().enumerate() {
            // The entry of a folder is durable once its parent was flushed with it.
            let below_is_safe = at < own
                && self
                    .flushed_folders
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .contains(&places[at + 1]);
            if !below_is_safe {
                flush_folder(place)?;
            }
            if at < own {
                self.flushed_folders
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .insert(places[at + 1].clone());
            }
        }
        Ok(())
    }

    /// Creates the folder of a new vault.
    pub fn make_root(&self) -> Result<()> {
        self.make_folder(&self.root)
    }

    fn make_folders(&self, path: &DocPath) -> Result<()> {
        path.folders().try_for_each(|folder| self.make_folder(&self.root.join(folder)))
    }

    /// Creates a folder with its missing parents, and flushes the parent of each new folder.
    pub fn make_folder(&self, folder: &Path) -> Result<()> {
        match DirBuilder::new().mode(0o700).create(folder) {
            Ok(()) => flush_folder(folder.parent().unwrap_or(folder)),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                // The vault itself may be reached through a link; nothing inside it may.
                let link = folder != self.root
                    && fs::symlink_metadata(folder)
                        .is_ok_and(|found| found.file_type().is_symlink());
                if link { Err(Error::link(folder.to_owned())) } else { Ok(()) }
            }
            Err(error) => match folder.parent() {
                // A parent is missing too; if none is, the system has another reason.
                Some(above)
                    if error.kind() == ErrorKind::NotFound
                        && !above.as_os_str().is_empty()
                        && !above.exists() =>
                {
                    self.make_folder(above)?;
                    self.make_folder(folder)
                }
                _ => Err(io_error("creating the folder", folder, error)),
            },
        }
    }
}

fn create_new(place: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).custom_flags(nofollow()).open(place)
}

fn sync_folder(folder: &Path) -> io::Result<()> {
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    File::open(folder)?.sync_all()
}

fn flush_folder(folder: &Path) -> Result<()> {
    sync_folder(folder).map_err(|error| io_error("flushing", folder, error))
}

fn refuse_link(place: &Path) -> Result<()> {
    match fs::symlink_metadata(place) {
        Ok(found) if found.file_type().is_symlink() => Err(Error::link(place.to_owned())),
        _ => Ok(()),
    }
}

fn nofollow() -> i32 {
    i32::try_from((OFlags::NOFOLLOW | OFlags::CLOEXEC).bits()).unwrap_or(0)
}

/// `nofollow`, and without waiting for the other end of a pipe.
fn nonblock() -> i32 {
    nofollow() | i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or(0)
}

/// Converts an operating system error.
pub(crate) fn io_error(what: &'static str, path: &Path, source: io::Error) -> Error {
    let path = path.to_owned();
    match source.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Error::disk_full(path),
        // The error for a link that must not be followed.
        _ if source.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) => {
            Error::link(path)
        }
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
            Error::permission_denied(what, path)
        }
        ErrorKind::IsADirectory => Error::not_a_file(path),
        _ => Error::io(what, path, source),
    }
}
