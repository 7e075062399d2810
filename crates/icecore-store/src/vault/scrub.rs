//! Forgetting in the vault's files: each is looked at, and put in place anew without what is to go.
//!
//! The databases are not edited: a page of SQLite keeps what was deleted from it. They are thrown
//! away and made again from the files when somebody next asks.

use std::path::Path;

use icecore_domain::forget::{self, Fate, Scrub};
use icecore_domain::layout::{self, PRIVATE};

use super::door::{ATTEMPTS, Held};
use super::{CONVERSATION_LOCKS, Handle, Vault};
use crate::{Became, ContentVersion, Error, Result, Scrubbed};

/// Files of other programs that are longer are not looked into.
const MOST_BYTES: u64 = 64 * 1024 * 1024;

/// What kind of file lies in the vault's folder.
enum Whose {
    /// Memory.
    Ours,
    /// Made from memory, and made again when it is needed.
    Derived,
    /// A model's answer that need not be kept.
    Answer,
    /// A lock: nothing is in it, and somebody may hold it.
    Lock,
    /// Somebody else's.
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
            // A journal names two commits, and whoever goes on with it needs them as they are.
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
        // Whoever writes to a conversation has its lock alone.
        let mut rooms = Vec::new();
        for share in (0..CONVERSATION_LOCKS).filter(|_| !dry) {
            rooms.push(self.door.lock_by(&format!("conversations-{share}.lock"))?);
        }
        let mut found = Vec::new();
        for (path, place) in self.door.everything()? {
            let mut scrubbed = self.scrub_file(&path, &place, scrub, held.as_ref());
            for _ in 1..ATTEMPTS {
                // Saved by a person or another program meanwhile: what it says now is read again.
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

    /// Takes what is to be forgotten out of one file; without the lock, only says what that would
    /// change. `None` if nothing of it is there.
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

    /// Throws the databases away. The index remembered which lines it had seen; that they are gone
    /// was decided here.
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
