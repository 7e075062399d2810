//! Records and summaries in a vault: append-only files with one entry per line.
//!
//! A line is in its file before anything else knows it. The index tells which records are stored,
//! so that none is stored twice; without an index the files tell it, only slower.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, PoisonError};

use icecore_domain::calendar::Days;
use icecore_domain::event::Event;
use icecore_domain::id::EventId;
use icecore_domain::layout::{self, DocPath};
use icecore_domain::ledger::Entry;
use icecore_domain::ledger::query::EventQuery;
use icecore_domain::record::{self, BadLine, Captured, Digest, Key, Record, SessionStat};
use icecore_domain::summary::{Head, Summary, SummaryQuery};
use jiff::civil::Date;

use super::door::{ATTEMPTS, Expected, Held, Look};
use super::index::{Current, FileNow, Outcome, Tied};
use super::{Handle, Vault};
use crate::arrivals::{self, Arrivals};
use crate::folded;
use crate::{Added, ContentVersion, Error, Position, Result};

/// The number of records to look up and write at once; longer lists are split.
const STEP: usize = 250_000;

/// Marks files that this process is appending to: they have grown, and the index will be updated in
/// a moment. Readers meanwhile use the earlier state instead of reading the whole file again.
struct Appending<'a> {
    all: &'a Mutex<BTreeSet<DocPath>>,
    own: Vec<DocPath>,
}

impl<'a> Appending<'a> {
    fn of(all: &'a Mutex<BTreeSet<DocPath>>, own: impl Iterator<Item = DocPath>) -> Self {
        let own: Vec<DocPath> = own.collect();
        all.lock().unwrap_or_else(PoisonError::into_inner).extend(own.iter().cloned());
        Self { all, own }
    }
}

impl Drop for Appending<'_> {
    fn drop(&mut self) {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        for path in &self.own {
            all.remove(path);
        }
    }
}

impl Vault {
    /// Updates the index for these files; false if there is no usable index.
    fn refresh(&self, files: &[DocPath]) -> Result<bool> {
        let Some(mut stale) = self.stale(files)? else { return Ok(false) };
        if !stale.is_empty() {
            // By now the index has what this process appended a moment ago. Appending begins and
            // ends with this lock, so files without a mark do not change during the comparison. No
            // holder of the index takes this lock.
            let appending = self.appending.lock().unwrap_or_else(PoisonError::into_inner);
            stale.retain(|path| !appending.contains(path));
            let Some(still) = self.stale(&stale)? else { return Ok(false) };
            stale = still;
        }
        for path in stale {
            let unread = std::cell::RefCell::new(None);
            let taken = self.ask(|index| {
                index.take_file(&path, || {
                    self.file_now(&path).map_err(|error| {
                        *unread.borrow_mut() = Some(error);
                        rusqlite::Error::ExecuteReturnedResults
                    })
                })
            })?;
            if let Some(error) = unread.take() {
                return Err(error);
            }
            if taken.is_none() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Those of the files that changed since they were indexed; `None` if there is no usable index.
    fn stale(&self, files: &[DocPath]) -> Result<Option<Vec<DocPath>>> {
        let looks = files
            .iter()
            .map(|path| Ok((path.clone(), self.door.look(path)?)))
            .collect::<Result<Vec<_>>>()?;
        self.ask(|index| index.stale(&looks))
    }

    /// The current state of a file.
    pub(super) fn file_now(&self, path: &DocPath) -> Result<FileNow> {
        Ok(FileNow { look: self.door.look(path)?, text: self.door.read(path)?.unwrap_or_default() })
    }

    /// The existing record files.
    pub(super) fn record_files(&self) -> Result<Vec<DocPath>> {
        let mut found = Vec::new();
        for folder in [layout::MESSAGES, layout::SNAPSHOTS] {
            found.extend(
                self.door.documents(folder)?.into_iter().filter(|path| path.record_day().is_some()),
            );
        }
        Ok(found)
    }

    /// Updates the index for all record files; false if there is no usable index.
    fn refresh_records(&self) -> Result<bool> {
        let Some(mut known) = self.ask(|index| index.taken())? else { return Ok(false) };
        known.retain(|path, _| {
            path.parse::<DocPath>().is_ok_and(|path| path.record_day().is_some())
        });
        let mut stale = Vec::new();
        for folder in [layout::MESSAGES, layout::SNAPSHOTS] {
            for (path, look) in
                self.door.looks(folder)?.into_iter().filter(|(path, _)| path.record_day().is_some())
            {
                if known.remove(path.as_str()) != Some(look.stamp()) {
                    stale.push(path);
                }
            }
        }
        // Removed files must leave the index.
        stale.extend(known.keys().filter_map(|path| path.parse().ok()));
        self.refresh(&stale)
    }

    /// The archive files of the ledger.
    fn archive_files(&self) -> Result<Vec<(DocPath, Look)>> {
        let mut found = self.door.looks("memory")?;
        found.extend(self.door.looks(layout::PRUNED.trim_end_matches('/'))?);
        found.retain(|(path, _)| path.is_archive());
        found.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(found)
    }

    /// The archive files with their content.
    pub(super) fn archives_now(&self) -> Result<Vec<(DocPath, FileNow)>> {
        self.archive_files()?
            .into_iter()
            .map(|(path, _)| {
                let now = self.file_now(&path)?;
                Ok((path, now))
            })
            .collect()
    }

    /// Updates the index for all archives, removed ones included; false if there is no usable
    /// index.
    fn refresh_archives(&self) -> Result<bool> {
        let Some(known) = self.ask(|index| index.taken())? else { return Ok(false) };
        let mut paths: Vec<DocPath> =
            known.keys().filter_map(|path| path.parse().ok()).filter(DocPath::is_archive).collect();
        paths.extend(self.archive_files()?.into_iter().map(|(path, _)| path));
        paths.sort();
        paths.dedup();
        // Removed files first: an event that moved to another file is indexed from there.
        paths.sort_by_key(|path| self.door.look(path).is_ok_and(|look| look.is_some()));
        self.refresh(&paths)
    }

    /// All archived events, read from the files.
    pub(super) fn events_in_archives(&self) -> Result<Vec<Entry>> {
        Ok(self.archives_now()?.iter().flat_map(|(_, now)| folded::archive(&now.text)).collect())
    }

    pub(super) fn archived_events(&self, which: &EventQuery) -> Result<Vec<Event>> {
        let places =
            if self.refresh_archives()? { self.ask(|index| index.archived(which))? } else { None };
        let entries = match places {
            Some(places) => self.archived_at(&places)?,
            None => None,
        };
        let entries = match entries {
            Some(entries) => entries,
            // The files changed a moment ago; read them.
            None => self.events_in_archives()?,
        };
        Ok(folded::archived(entries.iter(), which))
    }

    /// The events at these places of the archives, given file by file; `None` if they moved.
    fn archived_at(&self, places: &[(String, u64, usize)]) -> Result<Option<Vec<Entry>>> {
        let mut entries = Vec::with_capacity(places.len());
        for file in places.chunk_by(|a, b| a.0 == b.0) {
            let pieces: Vec<(u64, usize)> =
                file.iter().map(|&(_, offset, length)| (offset, length)).collect();
            let Ok(pieces) = self.door.read_pieces(&file[0].0.parse()?, &pieces) else {
                return Ok(None);
            };
            entries.extend(pieces.iter().flat_map(|piece| folded::archive(piece)));
        }
        Ok(Some(entries))
    }

    /// All events linked to these, from ledger and archives, by id.
    pub(super) fn tied_events(&self, ids: &[EventId], about: &[&str]) -> Result<Vec<Event>> {
        let tied =
            if self.refresh_archives()? { self.ask(|index| index.tied(ids, about))? } else { None };
        let (here, gone) = match tied {
            Some(Tied { ids, .. }) if ids.is_empty() => (Vec::new(), Vec::new()),
            Some(Tied { ids, here, gone }) => {
                match (self.events_at(&here, &ids)?, self.archived_at(&gone)?) {
                    (Some(here), Some(gone)) => {
                        let events = gone.into_iter().map(|entry| entry.event);
                        (
                            here,
                            events.filter(|event| ids.binary_search(&event.id).is_ok()).collect(),
                        )
                    }
                    // The files changed a moment ago; read them.
                    _ => {
                        let these = EventQuery::these(&ids);
                        let here = these
                            .choose(self.whole_ledger()?.0.entries())
                            .into_iter()
                            .map(|entry| entry.event.clone())
                            .collect();
                        (here, self.archived_events(&these)?)
                    }
                }
            }
            None => {
                return Ok(folded::tied(
                    &self.whole_ledger()?.0,
                    self.events_in_archives()?.iter(),
                    ids,
                    about,
                ));
            }
        };
        Ok(folded::in_order(here, gone))
    }

    /// Moves lines from the ledger to archives: they are in their archive before they leave the
    /// ledger.
    pub(super) fn move_out(
        &self,
        archives: &[(DocPath, Vec<u8>)],
        text: &[u8],
        at: Position,
    ) -> Result<()> {
        let held = self.locked()?;
        if self.ledger_position()? != at {
            return Err(Error::Moved { what: layout::LEDGER.into() });
        }
        for (path, lines) in archives.iter().filter(|(_, lines)| !lines.is_empty()) {
            self.mend_file(&held, path)?;
            self.door.append(&held, path, lines)?;
        }
        // A person or another program may have appended a line without the lock.
        self.replace_ledger_at(&held, text, at)?;
        // The documents stay marked as seen, because no other program changed the ledger. If the
        // index cannot cover this now, the next query does, archives first, so that nothing in them
        // counts as lost.
        let current = Current {
            text: text.to_vec(),
            look: self.door.look(&self.ledger)?,
            spent: self.spent()?,
            archives: self.archives_now()?,
        };
        if let Handle::Open(index) = &mut *self.handle() {
            let _ = index.rebuild(&current, &|_, _| {});
        }
        Ok(())
    }

    fn read_records(&self, path: &DocPath) -> Result<(Vec<Record>, Vec<BadLine>)> {
        Ok(self.door.read(path)?.map_or_else(Default::default, |text| record::read_file(&text)))
    }

    fn files_of(days: Days) -> impl Iterator<Item = DocPath> {
        days.iter()
            .flat_map(|day| Captured::ALL.iter().map(move |&kind| DocPath::records(kind, day)))
    }

    pub(super) fn keep_records(&self, records: Vec<Record>) -> Result<Added> {
        let mut added = Added::default();
        let mut rest = records;
        while !rest.is_empty() {
            let later = rest.split_off(rest.len().min(STEP));
            self.keep_some(rest, &mut added)?;
            rest = later;
        }
        Ok(added)
    }

    fn keep_some(&self, records: Vec<Record>, added: &mut Added) -> Result<()> {
        let held = self.locked()?;
        let paths: Vec<DocPath> =
            records.iter().map(Record::path).collect::<BTreeSet<_>>().into_iter().collect();
        for path in &paths {
            self.mend_file(&held, path)?;
        }
        // Only the files that are written to are checked. A stale index of another day's file costs
        // at most a duplicate line there, which readers merge.
        let indexed = self.refresh(&paths)?;
        let keys: Vec<Key> = records.iter().map(Record::key).collect();
        let known = match self.ask(|index| index.known(&keys))? {
            Some(known) if indexed => known,
            _ => self.known_by_files(&keys)?,
        };
        let known = known
            .into_iter()
            .map(|known| known.map(|(path, wording)| Ok((path.parse()?, wording))).transpose());
        let Arrivals { fresh, revisions } =
            Arrivals::sort(&records, &keys, known.collect::<Result<_>>()?, added);
        let texts: Vec<(DocPath, Vec<u8>)> = fresh
            .iter()
            .map(|(path, records)| {
                (path.clone(), arrivals::lines(records.iter().copied()).into_bytes())
            })
            .collect();
        let appending = Appending::of(&self.appending, fresh.keys().cloned());
        let places = self.door.append_many(&held, &texts)?;
        // The lines are safe. If the index cannot cover them now, the next query about the files
        // does.
        if let Handle::Open(index) = &mut *self.handle() {
            let own: Vec<_> = fresh
                .into_iter()
                .zip(places)
                .filter_map(|((path, records), (start, look))| Some((path, records, start, look?)))
                .collect();
            let _ = index.take_own_records(&own);
        }
        drop(appending);
        for (path, records) in revisions {
            self.revise(&held, &path, &records, added)?;
        }
        Ok(())
    }

    /// Appends revisions of a file's records, at the time of the first version, because the file
    /// decides the day.
    fn revise(
        &self,
        held: &Held,
        path: &DocPath,
        records: &[&Record],
        added: &mut Added,
    ) -> Result<()> {
        let others = arrivals::revised(&self.read_records(path)?.0, records, added);
        if others.is_empty() {
            return Ok(());
        }
        let text = arrivals::lines(&others);
        self.mend_file(held, path)?;
        self.door.append(held, path, text.as_bytes())?;
        self.refresh(std::slice::from_ref(path)).map(|_| ())
    }

    pub(super) fn known_records(&self, keys: &[Key]) -> Result<Vec<bool>> {
        let known = match self.ask(|index| index.known(keys))? {
            Some(known) => known,
            None => self.known_by_files(keys)?,
        };
        Ok(known.iter().map(Option::is_some).collect())
    }

    fn known_by_files(&self, keys: &[Key]) -> Result<Vec<Option<(String, Key)>>> {
        let mut found: HashMap<Key, (String, Key)> = HashMap::new();
        for path in self.record_files()? {
            for record in self.read_records(&path)?.0 {
                found.entry(record.key()).or_insert_with(|| (path.to_string(), record.wording()));
            }
        }
        Ok(keys.iter().map(|key| found.get(key).cloned()).collect())
    }

    pub(super) fn records_of(&self, days: Days) -> Result<Vec<Record>> {
        let mut found = Vec::new();
        for path in Self::files_of(days) {
            found.extend(self.read_records(&path)?.0);
        }
        found.sort_by_key(|record| record.ts.at());
        Ok(found)
    }

    /// The records of one conversation. Parses only lines that may belong to it.
    fn records_in(&self, days: Days, conversation: &str) -> Result<Vec<Record>> {
        let mut found = Vec::new();
        for path in Self::files_of(days) {
            found.extend(arrivals::said_in(
                &self.door.read(&path)?.unwrap_or_default(),
                conversation,
            ));
        }
        found.sort_by_key(|record| record.ts.at());
        Ok(found)
    }

    pub(super) fn last_records_of(&self, conversation: &str, most: usize) -> Result<Vec<Record>> {
        let days = if self.refresh_records()? {
            self.ask(|index| index.days_of(conversation))?
        } else {
            None
        };
        let days = match days {
            Some(days) => days,
            None => self.days_with_records()?,
        };
        let mut found: Vec<Record> = Vec::new();
        for day in days.into_iter().rev() {
            if found.len() >= most {
                break;
            }
            let mut told = self.records_in(Days { first: day, last: day }, conversation)?;
            told.extend(found);
            found = told;
        }
        Ok(found.split_off(found.len().saturating_sub(most)))
    }

    pub(super) fn digest_of(&self, conversation: &str, days: Days) -> Result<Digest> {
        // Writers update the index. Comparing it with the files here would read a whole day again
        // whenever a writer is between the two steps; the next writer compares under the lock.
        if let Some(digest) = self.ask(|index| index.digest_of(conversation, days))? {
            return Ok(digest);
        }
        let mut digest = Digest::default();
        let theirs =
            self.records_of(days)?.into_iter().filter(|record| record.conversation == conversation);
        theirs.for_each(|record| digest.add(record.content()));
        Ok(digest)
    }

    pub(super) fn take_records_away(&self, days: Days, conversation: &str) -> Result<usize> {
        let held = self.locked()?;
        let mut gone = 0;
        for path in Self::files_of(days) {
            let mut last = Ok(());
            for _ in 0..ATTEMPTS {
                let Some(text) = self.door.read(&path)? else { break };
                let (keys, kept) = arrivals::without(&text, conversation);
                let expected = Expected::Content(ContentVersion::of(Some(&text)));
                last = match kept.is_empty() {
                    _ if keys.is_empty() => Ok(()),
                    true => self.door.remove_if(&held, &path, &expected),
                    false => self.door.replace_if(&held, &path, &kept, &expected),
                };
                // Another program appended meanwhile: its lines stay, so read the file again.
                if !matches!(last, Err(Error::Moved { .. })) {
                    gone += keys.len();
                    break;
                }
            }
            last?;
        }
        drop(held);
        self.refresh_records()?;
        Ok(gone)
    }

    pub(super) fn sessions_of(&self, days: Option<Days>) -> Result<Vec<SessionStat>> {
        let fresh = match days {
            Some(days) => self.refresh(&Self::files_of(days).collect::<Vec<_>>())?,
            None => self.refresh_records()?,
        };
        if fresh && let Some(found) = self.ask(|index| index.sessions(days))? {
            return Ok(found);
        }
        let records = match days {
            Some(days) => self.records_of(days)?,
            None => self
                .record_files()?
                .iter()
                .map(|path| Ok(self.read_records(path)?.0))
                .collect::<Result<Vec<_>>>()?
                .concat(),
        };
        Ok(record::sessions(&records))
    }

    /// From the file names: a day with a file that is not empty has records.
    pub(super) fn days_with_records(&self) -> Result<Vec<Date>> {
        let mut days = BTreeSet::new();
        for folder in [layout::MESSAGES, layout::SNAPSHOTS] {
            let files = self.door.looks(folder)?.into_iter().filter(|(_, look)| look.len > 0);
            days.extend(files.filter_map(|(path, _)| path.record_day()));
        }
        Ok(days.into_iter().collect())
    }

    pub(super) fn lines_that_are_no_records(&self) -> Result<Vec<(DocPath, BadLine)>> {
        let mut found = Vec::new();
        for path in self.record_files()? {
            found.extend(self.read_records(&path)?.1.into_iter().map(|bad| (path.clone(), bad)));
        }
        Ok(found)
    }

    fn summaries_path() -> Result<DocPath> {
        Ok(layout::SUMMARIES.parse()?)
    }

    fn summaries_position(&self) -> Result<Position> {
        Ok(Position(self.door.look(&Self::summaries_path()?)?.map_or(0, |look| look.mark())))
    }

    pub(super) fn keep_summaries(
        &self,
        summaries: &[Summary],
        after: Option<Position>,
    ) -> Result<Position> {
        let held = self.locked()?;
        let path = Self::summaries_path()?;
        if let Some(after) = after
            && self.summaries_position()? != after
        {
            return Err(Error::Moved { what: path.to_string() });
        }
        self.mend_file(&held, &path)?;
        let text: String = summaries.iter().map(Summary::line).collect();
        let (start, look) = self.door.append(&held, &path, text.as_bytes())?;
        if let (Some(look), Handle::Open(index)) = (look, &mut *self.handle()) {
            let _ = index.take_own_summaries(&path, start, summaries, look);
        }
        self.summaries_position()
    }

    fn all_summaries(&self, which: &SummaryQuery) -> Result<Vec<Summary>> {
        let text = self.door.read(&Self::summaries_path()?)?.unwrap_or_default();
        let all = text
            .split(|&byte| byte == b'\n')
            .filter_map(|line| Summary::read(line.trim_ascii()).ok());
        Ok(which.choose(all, |summary| (summary.period, summary.recorded)))
    }

    pub(super) fn heads_of(&self, which: &SummaryQuery) -> Result<(Vec<Head>, Position)> {
        // The position is read first: what arrives meanwhile makes a write against it fail, never
        // pass.
        let position = self.summaries_position()?;
        if self.refresh(&[Self::summaries_path()?])?
            && let Some(places) = self.ask(|index| index.places(which))?
        {
            return Ok((places.into_iter().map(|place| place.head).collect(), position));
        }
        Ok((self.all_summaries(which)?.iter().map(Summary::head).collect(), position))
    }

    pub(super) fn summaries_of(&self, which: &SummaryQuery) -> Result<Vec<Summary>> {
        let path = Self::summaries_path()?;
        if self.refresh(std::slice::from_ref(&path))?
            && let Some(places) = self.ask(|index| index.places(which))?
        {
            let pieces: Vec<(u64, usize)> =
                places.iter().map(|place| (place.offset, place.length)).collect();
            let read: Option<Vec<Summary>> = match pieces.is_empty() {
                true => Some(Vec::new()),
                false => self
                    .door
                    .read_pieces(&path, &pieces)?
                    .iter()
                    .map(|line| Summary::read(line).ok())
                    .collect(),
            };
            // If a line moved, another process changed the file; read the file.
            if let Some(found) = read
                && found.iter().zip(&places).all(|(found, place)| found.period == place.head.period)
            {
                return Ok(found);
            }
        }
        self.all_summaries(which)
    }

    /// Fills an index for a comparison from the same files as the vault's own; false if one of them
    /// changed since.
    pub(super) fn fill_like(
        &self,
        taken: &HashMap<String, String>,
        fresh: &mut super::index::Index,
    ) -> Result<Outcome<bool>> {
        let mut paths: Vec<DocPath> = taken.keys().filter_map(|path| path.parse().ok()).collect();
        paths.sort();
        for path in paths {
            let now = self.file_now(&path)?;
            if now.look.map(|look| look.stamp()).as_ref() != taken.get(path.as_str()) {
                return Ok(Ok(false));
            }
            if let Err(error) = fresh.take_file(&path, || Ok(now)) {
                return Ok(Err(error));
            }
        }
        Ok(Ok(true))
    }
}
