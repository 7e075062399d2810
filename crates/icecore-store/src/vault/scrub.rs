//! Forgets text in the vault's files: reads each file and replaces it by a redacted version.
//!
//! Databases are not edited, because SQLite pages keep deleted data. They are deleted and rebuilt
//! from the files by the next query.

use std::path::Path;

use icecore_domain::forget::{self, FileFate, Scrub};
use icecore_domain::layout::{self, PRIVATE};

use super::vault_fs::WriteLock;
use super::{IndexHandle, Vault};
use crate::{ContentVersion, Result, ScrubOutcome, ScrubbedFile};

/// Longer files of other programs are not read.
const MAX_FOREIGN_BYTES: u64 = 64 * 1024 * 1024;

/// The kinds of files in the vault's folder.
enum FileOwner {
    /// A file of the memory.
    Memory,
    /// Derived from the memory and rebuilt when needed.
    Derived,
    /// A cached model answer, which may be deleted.
    Answer,
    /// An empty lock file, which may be held.
    Lock,
    /// A file of another program.
    Foreign,
}

fn file_owner(path: &str) -> FileOwner {
    if let Some(private) = path.strip_prefix(PRIVATE).and_then(|rest| rest.strip_prefix('/')) {
        let name = private.rsplit('/').next().unwrap_or(private);
        let is_database = [".db", ".db-wal", ".db-shm", ".db-journal"]
            .iter()
            .any(|ending| name.ends_with(ending));
        return match private.split('/').next() {
            Some("tmp" | "new-repository") => FileOwner::Derived,
            Some("answers") => FileOwner::Answer,
            _ if is_database => FileOwner::Derived,
            // A journal names two commits, which the process that resumes the merge needs
            // unchanged.
            _ if private == "lock" || private == "merge-journal" || name.ends_with(".lock") => {
                FileOwner::Lock
            }
            _ => FileOwner::Memory,
        };
    }
    let top = path.split('/').next().unwrap_or(path);
    if layout::VAULT_ENTRIES.contains(&top) || top == "conversations" {
        FileOwner::Memory
    } else {
        FileOwner::Foreign
    }
}

impl Vault {
    /// Redacts one file; without the lock, only reports. `None` if the file contains nothing of the
    /// text.
    pub(super) fn scrub_file(
        &self,
        path: &str,
        place: &Path,
        scrub: &Scrub,
        lock: Option<&WriteLock>,
    ) -> Result<Option<ScrubbedFile>> {
        let told = |what, before: Option<&[u8]>, after: Option<&[u8]>| {
            Ok(Some(ScrubbedFile {
                path: path.to_owned(),
                outcome: what,
                versions: (ContentVersion::of(before), ContentVersion::of(after)),
            }))
        };
        match file_owner(path) {
            FileOwner::Lock => Ok(None),
            FileOwner::Derived => {
                if let Some(lock) = lock.filter(|_| !is_database_file(place)) {
                    self.fs.remove_path(lock, place)?;
                }
                Ok(None)
            }
            FileOwner::Answer => {
                if let Some(lock) = lock {
                    self.fs.remove_path(lock, place)?;
                }
                told(ScrubOutcome::Removed, None, None)
            }
            FileOwner::Foreign => {
                let short =
                    place.symlink_metadata().is_ok_and(|found| found.len() <= MAX_FOREIGN_BYTES);
                if !short
                    || !self.fs.read_path(place).is_ok_and(|bytes| {
                        bytes.is_some_and(|bytes| scrub.affects_file(path, &bytes))
                    })
                {
                    return Ok(None);
                }
                told(ScrubOutcome::Untouched, None, None)
            }
            FileOwner::Memory => {
                // Hooks add and remove their notes without the lock.
                let Some(bytes) = self.fs.read_path(place)? else { return Ok(None) };
                match scrub.fate(path, &bytes) {
                    FileFate::Same
                        if forget::is_setting(path) && scrub.affects_file(path, &bytes) =>
                    {
                        told(ScrubOutcome::Untouched, None, None)
                    }
                    FileFate::Same => Ok(None),
                    FileFate::Gone => {
                        if let Some(lock) = lock {
                            self.fs.remove_path_with(lock, place, &bytes)?;
                        }
                        told(ScrubOutcome::Removed, Some(&bytes), None)
                    }
                    FileFate::Changed { bytes: left, lines } => {
                        if let Some(lock) = lock {
                            self.fs.replace_path(lock, place, &left, &bytes)?;
                        }
                        told(ScrubOutcome::Changed(lines), Some(&bytes), Some(&left))
                    }
                }
            }
        }
    }

    /// Deletes the databases. The index also held the list of seen lines; their loss is intended
    /// here.
    pub(super) fn delete_databases(&self) {
        let mut handle = self.index_handle();
        *handle = IndexHandle::Unopened;
        self.fs.remove_index(&self.index_path());
        self.fs.remove_index(&self.fs.private("check.db"));
        self.delete_search_index();
    }
}

fn is_database_file(place: &Path) -> bool {
    place.file_name().is_some_and(|name| name.to_string_lossy().contains(".db"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use icecore_domain::forget::Needles;

    #[test]
    fn a_note_that_is_gone_by_now_has_nothing_to_forget() {
        let folder = tempfile::TempDir::new().unwrap();
        let vault = Vault::create(&folder.path().join("vault"), "").unwrap();
        let scrub = Scrub { needles: Needles::from_texts(&["purple walrus"]), ..Scrub::default() };
        let path = ".icecore/notes/hooks/sessions/1.json";
        assert_eq!(
            vault.scrub_file(path, &folder.path().join("vault").join(path), &scrub, None).unwrap(),
            None
        );
    }
}
