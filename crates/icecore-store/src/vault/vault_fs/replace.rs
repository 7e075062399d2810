//! Replaces files atomically, and only what the caller has read.

use std::collections::HashSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use icecore_domain::hash::Hash;
use icecore_domain::layout::DocPath;

use super::append::{MAX_SINGLE_FLUSHES, write_whole};
use super::lock::WriteLock;
use super::read::{FileStat, file_stat, stat_path};
use super::{VaultFs, create_new, flush_folder, io_error, nonblock, refuse_link};
use crate::{ContentVersion, Error, Result};

/// How many names are tried for a temporary file.
const MAX_NAME_ATTEMPTS: usize = 1_000;
/// Numbers temporary files, so that no two threads of this process share a name.
static TEMPORARY_FILES: AtomicU32 = AtomicU32::new(0);

/// The state that a path must still have to be replaced or removed.
#[derive(Debug, Clone, Copy)]
pub enum Expected {
    /// This content, or no file.
    Content(ContentVersion),
    /// A file with this metadata.
    Stat(FileStat),
}

/// The state of a path compared with an [`Expected`] one.
pub(super) enum CheckedPath {
    /// No file, as expected.
    Absent,
    /// The expected file, with the stat it had before it was read.
    Present(File, FileStat),
    /// Something else.
    Other,
}

/// The result of moving a temporary file into place.
pub(super) enum Placement {
    /// Done, nothing left to check.
    New,
    /// Done; the old file is at `aside`.
    Exchanged { aside: PathBuf, old: (File, FileStat), own: FileStat },
    /// The path has an unexpected state and stays as it is.
    Refused,
}

impl Expected {
    pub(super) fn check(&self, place: &Path) -> Result<CheckedPath> {
        let failed = |error| io_error("reading", place, error);
        let mut file = match OpenOptions::new().read(true).custom_flags(nonblock()).open(place) {
            Ok(file) => file,
            Err(error)
                if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) =>
            {
                let is_expected =
                    matches!(self, Self::Content(version) if *version == ContentVersion::ABSENT);
                return Ok(if is_expected { CheckedPath::Absent } else { CheckedPath::Other });
            }
            Err(error) => return Err(failed(error)),
        };
        let found = file.metadata().map_err(failed)?;
        if !found.is_file() {
            return Err(Error::not_a_file(place.to_owned()));
        }
        let look = file_stat(&found);
        let is_expected = match self {
            Self::Stat(expected) => look == *expected,
            Self::Content(version) => {
                let mut bytes = Vec::with_capacity(usize::try_from(look.len).unwrap_or(0) + 1);
                file.read_to_end(&mut bytes).map_err(failed)?;
                *version == ContentVersion::of(Some(&bytes))
            }
        };
        Ok(if is_expected { CheckedPath::Present(file, look) } else { CheckedPath::Other })
    }
}

/// Swaps two files or folders atomically.
pub(super) fn swap_paths(one: &Path, other: &Path) -> io::Result<()> {
    #[cfg(any(target_os = "linux", target_os = "macos"))]
    {
        use rustix::fs::{CWD, RenameFlags, renameat_with};
        Ok(renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE)?)
    }
    #[cfg(not(any(target_os = "linux", target_os = "macos")))]
    {
        let _ = (one, other);
        Err(ErrorKind::Unsupported.into())
    }
}

/// Renames a file, unless the new name exists; then false.
pub(super) fn rename_new(from: &Path, to: &Path) -> io::Result<bool> {
    #[cfg(any(target_os = "linux", target_os = "macos"))]
    {
        use rustix::fs::{CWD, RenameFlags, renameat_with};
        match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
            Ok(()) => return Ok(true),
            Err(rustix::io::Errno::EXIST) => return Ok(false),
            // Not every file system supports this.
            Err(
                rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS | rustix::io::Errno::NOTSUP,
            ) => {}
            Err(error) => return Err(error.into()),
        }
    }
    if to.symlink_metadata().is_ok() {
        return Ok(false);
    }
    fs::rename(from, to).map(|()| true)
}

/// A temporary name that no other thread or living process uses.
pub(super) fn temporary_name() -> String {
    format!("{}-{:08x}", std::process::id(), TEMPORARY_FILES.fetch_add(1, Ordering::Relaxed))
}

/// The name of a temporary file that is swapped with another. It carries the stats of the two,
/// either of which may be deleted.
pub(super) fn exchange_name(temporary: &Path, known: FileStat, own: FileStat) -> PathBuf {
    temporary.with_extension(format!("{:016x}-{:016x}", known.as_number(), own.as_number()))
}

impl VaultFs {
    /// Replaces a document: writes a temporary file, flushes, renames, and flushes the folder.
    /// Unconditional, so only for files that people do not edit.
    pub fn replace(&self, lock: &WriteLock, path: &DocPath, bytes: &[u8]) -> Result<()> {
        let place = self.path_to_replace(path)?;
        self.write_private_file(lock, &place, bytes)
    }

    /// Replaces a document if its current state is `expected`; otherwise leaves it and fails with
    /// [`ErrorKind::Conflict`].
    pub fn replace_if(
        &self,
        lock: &WriteLock,
        path: &DocPath,
        bytes: &[u8],
        expected: &Expected,
    ) -> Result<()> {
        let place = self.path_to_replace(path)?;
        self.write_private_file_if(lock, &place, bytes, expected)
    }

    fn path_to_replace(&self, path: &DocPath) -> Result<PathBuf> {
        let place = self.checked_path(path)?;
        refuse_link(&place)?;
        self.make_folders(path)?;
        if !place.exists() {
            self.flush_folders(path)?;
        }
        Ok(place)
    }

    /// Replaces many documents with one flush. When this returns, all are replaced; after a crash
    /// each has its old or its new content.
    pub fn replace_many(&self, lock: &WriteLock, documents: &[(DocPath, Vec<u8>)]) -> Result<()> {
        if documents.len() <= MAX_SINGLE_FLUSHES {
            return documents.iter().try_for_each(|(path, bytes)| self.replace(lock, path, bytes));
        }
        let documents: Vec<(&DocPath, &[u8])> =
            documents.iter().map(|(path, bytes)| (path, bytes.as_slice())).collect();
        self.replace_with_temporaries(&documents, |temporary, place, _| {
            fs::rename(temporary, place)
                .map(|()| Placement::New)
                .map_err(|error| io_error("writing", place, error))
        })
        .map(|_| ())
    }

    /// Replaces each document whose state is as expected. Returns the positions of the others,
    /// which stay unchanged.
    pub fn replace_many_if(
        &self,
        lock: &WriteLock,
        documents: &[(&DocPath, &[u8], Expected)],
    ) -> Result<Vec<usize>> {
        if documents.len() <= MAX_SINGLE_FLUSHES {
            let mut changed = Vec::new();
            for (at, (path, bytes, expected)) in documents.iter().enumerate() {
                match self.replace_if(lock, path, bytes, expected) {
                    Err(Error { kind: crate::ErrorKind::Conflict, .. }) => changed.push(at),
                    other => other?,
                }
            }
            return Ok(changed);
        }
        let texts: Vec<(&DocPath, &[u8])> =
            documents.iter().map(|(path, bytes, _)| (*path, *bytes)).collect();
        self.replace_with_temporaries(&texts, |temporary, place, at| {
            self.replace_path_if(temporary, place, &documents[at].2)
        })
    }

    /// Writes temporary files, flushes them together, moves each into place with `place_one`, and
    /// flushes the folders.
    fn replace_with_temporaries(
        &self,
        documents: &[(&DocPath, &[u8])],
        place_one: impl Fn(&Path, &Path, usize) -> Result<Placement>,
    ) -> Result<Vec<usize>> {
        let folder = self.private("tmp");
        self.make_folder(&folder)?;
        let stem = temporary_name();
        let mut made: Vec<(PathBuf, PathBuf)> = Vec::with_capacity(documents.len());
        let mut placed: Vec<Placement> = Vec::with_capacity(documents.len());
        let written = documents.iter().enumerate().try_for_each(|(at, (path, bytes))| {
            let place = self.checked_path(path)?;
            refuse_link(&place)?;
            self.make_folders(path)?;
            let temporary = folder.join(format!("{stem}.{at:08x}"));
            let _ = fs::remove_file(&temporary);
            made.push((temporary.clone(), place.clone()));
            // Closed again at once: there may be more files than a process may have open.
            let written = (|| {
                let mut file = create_new(&temporary)?;
                write_whole(&mut file, bytes)?;
                if !cfg!(target_os = "linux") {
                    file.sync_all()?;
                }
                if file.metadata()?.len() != bytes.len() as u64 {
                    return Err(io::Error::new(
                        ErrorKind::WriteZero,
                        "only a part of the data reached the file",
                    ));
                }
                Ok(())
            })();
            written.map_err(|error| io_error("writing", &place, error))
        });
        let outcome = written.and_then(|()| self.flush_file_system()).and_then(|()| {
            made.iter().enumerate().try_for_each(|(at, (temporary, place))| {
                placed.push(place_one(temporary, place, at)?);
                Ok(())
            })
        });
        if outcome.is_err() {
            made.iter()
                .skip(placed.len())
                .for_each(|(temporary, _)| drop(fs::remove_file(temporary)));
        }
        let outcome = outcome.and_then(|()| {
            self.flush_file_system()?;
            if cfg!(target_os = "linux") {
                return Ok(());
            }
            let folders: HashSet<&Path> =
                made.iter().filter_map(|(_, place)| place.parent()).collect();
            folders.into_iter().try_for_each(flush_folder)
        });
        let mut changed = Vec::new();
        for (at, (placed, (_, place))) in placed.into_iter().zip(&made).enumerate() {
            if !self.finish_replacement(placed, place)? {
                changed.push(at);
            }
        }
        outcome.map(|()| changed)
    }

    /// Creates a flushed temporary file. It is locked while it is open, which shows others that its
    /// writer lives.
    pub(super) fn write_temporary(&self, place: &Path, bytes: &[u8]) -> Result<(PathBuf, File)> {
        let folder = self.private("tmp");
        self.make_folder(&folder)?;
        let failed = |error| io_error("writing", place, error);
        for _ in 0..MAX_NAME_ATTEMPTS {
            let temporary = folder.join(temporary_name());
            let mut file = match create_new(&temporary) {
                // Left by a process that died, or a process of another container has the same pid.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => continue,
                other => other.map_err(failed)?,
            };
            // A cleanup holds it for a moment at most; if it was faster than our lock, the file is
            // gone.
            let _ = file.lock();
            if file.metadata().map_err(failed)?.nlink() == 0 {
                continue;
            }
            let written = write_whole(&mut file, bytes)
                .and_then(|()| file.sync_all())
                .and_then(|()| file.metadata());
            match written {
                Ok(found) if found.len() == bytes.len() as u64 => return Ok((temporary, file)),
                other => {
                    let _ = fs::remove_file(&temporary);
                    let short = || {
                        io::Error::new(
                            ErrorKind::WriteZero,
                            "only a part of the data reached the file",
                        )
                    };
                    return Err(failed(other.err().unwrap_or_else(short)));
                }
            }
        }
        Err(failed(ErrorKind::AlreadyExists.into()))
    }

    /// Moves a flushed temporary file into place, if the current file is as expected. The two files
    /// are swapped atomically and the old one is checked afterwards, so that what another program
    /// saved at the last moment can be put back.
    pub(super) fn replace_path_if(
        &self,
        temporary: &Path,
        place: &Path,
        expected: &Expected,
    ) -> Result<Placement> {
        let failed = |error| io_error("writing", place, error);
        let known = match expected.check(place)? {
            CheckedPath::Other => {
                let _ = fs::remove_file(temporary);
                return Ok(Placement::Refused);
            }
            CheckedPath::Absent => {
                let is_placed = rename_new(temporary, place).map_err(failed)?;
                if !is_placed {
                    let _ = fs::remove_file(temporary);
                }
                return Ok(if is_placed { Placement::New } else { Placement::Refused });
            }
            CheckedPath::Present(_, look) => look,
        };
        let Some(own) = stat_path(temporary.to_owned())? else {
            return Err(failed(ErrorKind::NotFound.into()));
        };
        // From this name the next opening learns, if this process dies now, which of the two files
        // may be deleted.
        let aside = exchange_name(temporary, known, own);
        fs::rename(temporary, &aside).map_err(failed)?;
        match swap_paths(&aside, place) {
            Ok(()) => {}
            // The file was removed.
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let _ = fs::remove_file(&aside);
                return Ok(Placement::Refused);
            }
            // The file system has no atomic swap; the file was checked a moment ago.
            Err(_) => return fs::rename(&aside, place).map(|()| Placement::New).map_err(failed),
        }
        match expected.check(&aside)? {
            CheckedPath::Present(file, look) => {
                Ok(Placement::Exchanged { aside, old: (file, look), own })
            }
            CheckedPath::Absent | CheckedPath::Other => {
                self.put_back(&aside, place, own)?;
                Ok(Placement::Refused)
            }
        }
    }

    /// Completes a replacement after its folder was flushed: deletes the old file, unless a program
    /// that had it open wrote to it meanwhile; then it is put back. False if the path keeps, or
    /// gets back, what another program wrote.
    pub(super) fn finish_replacement(&self, placed: Placement, place: &Path) -> Result<bool> {
        match placed {
            Placement::New => Ok(true),
            Placement::Refused => Ok(false),
            Placement::Exchanged { aside, old: (file, known), own } => {
                if file.metadata().is_ok_and(|found| file_stat(&found) == known) {
                    let _ = fs::remove_file(&aside);
                    return Ok(true);
                }
                self.put_back(&aside, place, own)?;
                Ok(false)
            }
        }
    }

    /// Puts another program's file back to its path, where ours (`own`) is now.
    ///
    /// While the files change places, another program may read one of them and save over the other.
    /// So a copy of each file that leaves its path for a moment stays in quarantine.
    fn put_back(&self, aside: &Path, place: &Path, own: FileStat) -> Result<()> {
        let failed = |error| io_error("writing", place, error);
        self.copy_to_quarantine(aside, place);
        match swap_paths(aside, place) {
            Ok(()) if stat_path(aside.to_owned())? == Some(own) => {
                let _ = fs::remove_file(aside);
            }
            Ok(()) => {
                // It was saved once more: the newest version stays, and the earlier one is not
                // lost.
                self.copy_to_quarantine(aside, place);
                swap_paths(aside, place).map_err(failed)?;
                self.quarantine_file(aside, place)?;
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {
                if !rename_new(aside, place).map_err(failed)? {
                    self.quarantine_file(aside, place)?;
                }
            }
            Err(error) => return Err(failed(error)),
        }
        flush_folder(place.parent().unwrap_or(&self.root))
    }

    /// Copies a file that was saved at `place` to quarantine. An error is not returned: putting the
    /// file back matters more than the copy.
    fn copy_to_quarantine(&self, file: &Path, place: &Path) {
        let Ok(name) = self.quarantine_name(place) else { return };
        let _ = fs::read(file).and_then(|bytes| {
            let mut copy = create_new(&name)?;
            write_whole(&mut copy, &bytes)?;
            copy.sync_all()
        });
        let _ = flush_folder(&self.private("quarantine"));
    }

    /// Replaces a file atomically, if its content is still `known`.
    pub fn replace_path(
        &self,
        lock: &WriteLock,
        place: &Path,
        bytes: &[u8],
        known: &[u8],
    ) -> Result<()> {
        refuse_link(place)?;
        self.write_private_file_if(
            lock,
            place,
            bytes,
            &Expected::Content(ContentVersion::of(Some(known))),
        )
    }

    /// Moves a file that was saved at `place` to quarantine.
    pub(super) fn quarantine_file(&self, file: &Path, place: &Path) -> Result<PathBuf> {
        let to = self.quarantine_name(place)?;
        fs::rename(file, &to).map_err(|error| io_error("moving", file, error))?;
        flush_folder(&self.private("quarantine"))?;
        Ok(to)
    }

    /// A new name in quarantine for what was saved at `place`.
    fn quarantine_name(&self, place: &Path) -> Result<PathBuf> {
        let folder = self.private("quarantine");
        self.make_folder(&folder)?;
        let name = place.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(folder.join(format!("{name}.saved.{}", temporary_name())))
    }

    /// Saves damaged bytes under a name that tells their origin.
    pub fn quarantine_bytes(
        &self,
        lock: &WriteLock,
        path: &DocPath,
        at: u64,
        bytes: &[u8],
    ) -> Result<PathBuf> {
        let folder = self.private("quarantine");
        self.make_folder(&folder)?;
        let name = format!("{}.{at}.{}", path.name(), Hash::of(bytes).short_hex());
        let place = folder.join(name);
        self.write_private_file(lock, &place, bytes)?;
        Ok(place)
    }

    /// Creates a temporary file for another program to read.
    pub fn create_temporary(&self, _held: &WriteLock, bytes: &[u8]) -> Result<PathBuf> {
        let folder = self.private("tmp");
        self.make_folder(&folder)?;
        let place = folder.join(temporary_name());
        let written = create_new(&place).and_then(|mut file| write_whole(&mut file, bytes));
        written.map_err(|error| io_error("writing", &place, error))?;
        Ok(place)
    }
}
