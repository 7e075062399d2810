//! Forgetting in the vault's files: each is looked at, and put in place anew without what is to go.
//!
//! The databases are not edited: a page of SQLite keeps what was deleted from it. They are thrown away and made again from the
//! files when somebody next asks.

use std::path::Path;

use icecore_domain::forget::{self, Fate, Scrub};
use icecore_domain::layout::{self, PRIVATE};

use super::{CONVERSATION_LOCKS, Handle, Vault};
use crate::{Became, Result, Scrubbed};

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
        let is_database = [".db", ".db-wal", ".db-shm", ".db-journal"].iter().any(|ending| name.ends_with(ending));
        return match private.split('/').next() {
            Some("tmp" | "new-repository") => Whose::Derived,
            Some("answers") => Whose::Answer,
            _ if is_database => Whose::Derived,
            // A journal names two commits, and whoever goes on with it needs them as they are.
            _ if private == "lock" || private == "merge-journal" || name.ends_with(".lock") => Whose::Lock,
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
            let what = match whose(&path) {
                Whose::Lock => continue,
                Whose::Derived => {
                    if let Some(held) = held.as_ref().filter(|_| !is_database(&place)) {
                        self.door.remove_place(held, &place)?;
                    }
                    continue;
                }
                Whose::Answer => Became::Gone,
                Whose::Foreign => {
                    let short = place.symlink_metadata().is_ok_and(|found| found.len() <= MOST_BYTES);
                    if !short || !self.door.read_place(&place).is_ok_and(|bytes| scrub.is_in_file(&path, &bytes)) {
                        continue;
                    }
                    Became::Left
                }
                Whose::Ours => {
                    let bytes = self.door.read_place(&place)?;
                    match scrub.fate(&path, &bytes) {
                        Fate::Same if forget::is_setting(&path) && scrub.is_in_file(&path, &bytes) => Became::Left,
                        Fate::Same => continue,
                        Fate::Gone => Became::Gone,
                        Fate::Changed { bytes, lines } => {
                            if let Some(held) = &held {
                                self.door.replace_place(held, &place, &bytes)?;
                            }
                            Became::Changed(lines)
                        }
                    }
                }
            };
            if let (Became::Gone, Some(held)) = (what, &held) {
                self.door.remove_place(held, &place)?;
            }
            found.push(Scrubbed { path, what });
        }
        if held.is_some() {
            self.drop_derived();
        }
        Ok(found)
    }

    /// Throws the databases away. The index remembered which lines it had seen; that they are gone was decided here.
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
