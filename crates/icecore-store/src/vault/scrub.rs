//! Forgets text in the vault's files: reads each file and replaces it by a redacted version.
//!
//! Databases are not edited, because SQLite pages keep deleted data. They are deleted and rebuilt
//! from the files by the next query.

use std::path::Path;

use icecore_domain::forget::{self, Fate, Scrub};
use icecore_domain::layout::{self, PRIVATE};

use super::door::{ATTEMPTS, Held};
use super::{CONVERSATION_LOCKS, Handle, Vault};
use crate::{Became, ContentVersion, Error, Result, Scrubbed};

/// Longer files of other programs are not read.
const MOST_BYTES: u64 = 64 * 1024 * 1024;

/// The kinds of files in the vault's folder.
enum Whose {
    /// A file of the memory.
    Ours,
    /// Derived from the memory and rebuilt when needed.
    Derived,
    /// A cached model answer, which may be deleted.
    Answer,
    /// An empty lock file, which may be held.
    Lock,
    /// A file of another program.
    Foreign,
}

fn whose(path: &str) -> Whose {
    if let Some(private) = path.strip_prefix(PRIVATE).and_then(|rest| rest.strip_prefix('/')) {
        let name = private.rsplit('/').next().unwrap_or(private);
        let is_database = [".db", ".db-wal", ".db-shm", ".db-journal"]
            .iter()
            .any(|ending| name.ends_with(ending));
        return match private.split('/').next() {
            Some("tmp" | "new-repository") => Whose::Derived,
            Some("answers") => Whose::Answer,
            _ if is_database => Whose::Derived,
            // A journal names two commits, which the process that resumes the merge needs
            // unchanged.
            _ if private == "lock" || private == "merge-journal" || name.ends_with(".lock") => {
                Whose::Lock
            }
            _ => Whose::Ours,
        };
    }
    let top = path.split('/').next().unwrap_or(path);
    if layout::KEPT.contains(&top) || top == "conversations" { Whose::Ours } else { Whose::Foreign }
}

impl Vault {
    pub(super) fn scrub_files(&self, scrub: &Scrub, dry: bool) -> Result<Vec<Scrubbed>> {
        let held = if dry { None } else { Some(self.locked()?) };
        // Writers to a conversation hold only its own lock.
        let mut rooms = Vec::new();
        for share in (0..CONVERSATION_LOCKS).filter(|_| !dry) {
            rooms.push(self.door.lock_by(&format!("conversations-{share}.lock"))?);
        }
        let mut found = Vec::new();
        for (path, place) in self.door.everything()? {
            let mut scrubbed = self.scrub_file(&path, &place, scrub, held.as_ref());
            for _ in 1..ATTEMPTS {
                // A person or another program saved the file meanwhile: read it again.
                if !matches!(scrubbed, Err(Error::Moved { .. })) {
                    break;
                }
                scrubbed = self.scrub_file(&path, &place, scrub, held.as_ref());
            }
            found.extend(scrubbed?);
        }
        if held.is_some() {
            self.drop_derived();
        }
        Ok(found)
    }

    /// Redacts one file; without the lock, only reports. `None` if the file contains nothing of the
    /// text.
    fn scrub_file(
        &self,
        path: &str,
        place: &Path,
        scrub: &Scrub,
        held: Option<&Held>,
    ) -> Result<Option<Scrubbed>> {
        let told = |what, before: Option<&[u8]>, after: Option<&[u8]>| {
            Ok(Some(Scrubbed {
                path: path.to_owned(),
                what,
                versions: (ContentVersion::of(before), ContentVersion::of(after)),
            }))
        };
        match whose(path) {
            Whose::Lock => Ok(None),
            Whose::Derived => {
                if let Some(held) = held.filter(|_| !is_database(place)) {
                    self.door.remove_place(held, place)?;
                }
                Ok(None)
            }
            Whose::Answer => {
                if let Some(held) = held {
                    self.door.remove_place(held, place)?;
                }
                told(Became::Gone, None, None)
            }
            Whose::Foreign => {
                let short = place.symlink_metadata().is_ok_and(|found| found.len() <= MOST_BYTES);
                if !short
                    || !self.door.read_place(place).is_ok_and(|bytes| {
                        bytes.is_some_and(|bytes| scrub.is_in_file(path, &bytes))
                    })
                {
                    return Ok(None);
                }
                told(Became::Left, None, None)
            }
            Whose::Ours => {
                // Hooks add and remove their notes without the lock.
                let Some(bytes) = self.door.read_place(place)? else { return Ok(None) };
                match scrub.fate(path, &bytes) {
                    Fate::Same if forget::is_setting(path) && scrub.is_in_file(path, &bytes) => {
                        told(Became::Left, None, None)
                    }
                    Fate::Same => Ok(None),
                    Fate::Gone => {
                        if let Some(held) = held {
                            self.door.remove_place_with(held, place, &bytes)?;
                        }
                        told(Became::Gone, Some(&bytes), None)
                    }
                    Fate::Changed { bytes: left, lines } => {
                        if let Some(held) = held {
                            self.door.replace_place(held, place, &left, &bytes)?;
                        }
                        told(Became::Changed(lines), Some(&bytes), Some(&left))
                    }
                }
            }
        }
    }

    /// Deletes the databases. The index also held the list of seen lines; their loss is intended
    /// here.
    fn drop_derived(&self) {
        let mut handle = self.handle();
        *handle = Handle::Unopened;
        self.door.remove_index(&self.index_path());
        self.door.remove_index(&self.door.private("check.db"));
        self.drop_search();
    }
}

fn is_database(place: &Path) -> bool {
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
        let scrub = Scrub { needles: Needles::of(&["purple walrus"]), ..Scrub::default() };
        let path = ".icecore/notes/hooks/sessions/1.json";
        assert_eq!(
            vault.scrub_file(path, &folder.path().join("vault").join(path), &scrub, None).unwrap(),
            None
        );
    }
}
