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
use icecore_domain::ledger::LedgerEntry;
use icecore_domain::ledger::query::EventQuery;
use icecore_domain::record::{
    self, BadRecordLine, Record, RecordKey, RecordKind, RecordSetDigest, SessionStats,
};
use icecore_domain::summary::{Summary, SummaryHead, SummaryQuery};
use jiff::civil::Date;

use super::index::{CurrentFile, CurrentLedger, LinkedPlaces, SqlResult};
use super::vault_fs::{Expected, FileStat, MAX_WRITE_ATTEMPTS, WriteLock};
use super::{IndexHandle, Vault};
use crate::ledger_view;
use crate::record_dedup::{self, RecordBatch};
use crate::{AddReport, ContentVersion, Error, Position, Result};

/// The number of records to look up and write at once; longer lists are split.
const MAX_BATCH_RECORDS: usize = 250_000;

/// Marks files that this process is appending to: they have grown, and the index will be updated in
/// a moment. Readers meanwhile use the earlier state instead of reading the whole file again.
struct AppendGuard<'a> {
    all: &'a Mutex<BTreeSet<DocPath>>,
    own: Vec<DocPath>,
}

impl<'a> AppendGuard<'a> {
    fn start(all: &'a Mutex<BTreeSet<DocPath>>, own: impl Iterator<Item = DocPath>) -> Self {
        let own: Vec<DocPath> = own.collect();
        all.lock().unwrap_or_else(PoisonError::into_inner).extend(own.iter().cloned());
        Self { all, own }
    }
}

impl Drop for AppendGuard<'_> {
    fn drop(&mut self) {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        for path in &self.own {
            all.remove(path);
        }
    }
}

impl Vault {
    /// Updates the index for these files; false if there is no usable index.
    fn refresh_files(&self, files: &[DocPath]) -> Result<bool> {
        let Some(mut stale) = self.stale_files(files)? else { return Ok(false) };
        if !stale.is_empty() {
            // By now the index has what this process appended a moment ago. Appending begins and
            // ends with this lock, so files without a mark do not change during the comparison. No
            // holder of the index takes this lock.
            let appending = self.appending.lock().unwrap_or_else(PoisonError::into_inner);
            stale.retain(|path| !appending.contains(path));
            let Some(still) = self.stale_files(&stale)? else { return Ok(false) };
            stale = still;
        }
        for path in stale {
            let unread = std::cell::RefCell::new(None);
            let taken = self.query_index(|index| {
                index.index_file(&path, || {
                    self.current_file(&path).map_err(|error| {
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
    fn stale_files(&self, files: &[DocPath]) -> Result<Option<Vec<DocPath>>> {
        let looks = files
            .iter()
            .map(|path| Ok((path.clone(), self.fs.stat(path)?)))
            .collect::<Result<Vec<_>>>()?;
        self.query_index(|index| index.stale_files(&looks))
    }

    /// The current state of a file.
    pub(super) fn current_file(&self, path: &DocPath) -> Result<CurrentFile> {
        Ok(CurrentFile { look: self.fs.stat(path)?, text: self.fs.read(path)?.unwrap_or_default() })
    }

    /// The existing record files.
    pub(super) fn record_files(&self) -> Result<Vec<DocPath>> {
        let mut found = Vec::new();
        for folder in [layout::MESSAGES, layout::SNAPSHOTS] {
            found.extend(
                self.fs.documents(folder)?.into_iter().filter(|path| path.record_day().is_some()),
            );
        }
        Ok(found)
    }

    /// Updates the index for all record files; false if there is no usable index.
    fn refresh_records(&self) -> Result<bool> {
        let Some(mut known) = self.query_index(|index| index.indexed_files())? else {
            return Ok(false);
        };
        known.retain(|path, _| {
            path.parse::<DocPath>().is_ok_and(|path| path.record_day().is_some())
        });
        let mut stale = Vec::new();
        for folder in [layout::MESSAGES, layout::SNAPSHOTS] {
            for (path, look) in self
                .fs
                .list_folder(folder)?
                .into_iter()
                .filter(|(path, _)| path.record_day().is_some())
            {
                if known.remove(path.as_str()) != Some(look.stamp()) {
                    stale.push(path);
                }
            }
        }
        // Removed files must leave the index.
        stale.extend(known.keys().filter_map(|path| path.parse().ok()));
        self.refresh_files(&stale)
    }

    /// The archive files of the ledger.
    fn archive_files(&self) -> Result<Vec<(DocPath, FileStat)>> {
        let mut found = self.fs.list_folder("memory")?;
        found.extend(self.fs.list_folder(layout::PRUNED.trim_end_matches('/'))?);
        found.retain(|(path, _)| path.is_archive());
        found.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(found)
    }

    /// The archive files with their content.
    pub(super) fn current_archives(&self) -> Result<Vec<(DocPath, CurrentFile)>> {
        self.archive_files()?
            .into_iter()
            .map(|(path, _)| {
                let now = self.current_file(&path)?;
                Ok((path, now))
            })
            .collect()
    }

    /// Updates the index for all archives, removed ones included; false if there is no usable
    /// index.
    fn refresh_archives(&self) -> Result<bool> {
        let Some(known) = self.query_index(|index| index.indexed_files())? else {
            return Ok(false);
        };
        let mut paths: Vec<DocPath> =
            known.keys().filter_map(|path| path.parse().ok()).filter(DocPath::is_archive).collect();
        paths.extend(self.archive_files()?.into_iter().map(|(path, _)| path));
        paths.sort();
        paths.dedup();
        // Removed files first: an event that moved to another file is indexed from there.
        paths.sort_by_key(|path| self.fs.stat(path).is_ok_and(|look| look.is_some()));
        self.refresh_files(&paths)
    }

    /// All archived events, read from the files.
    pub(super) fn all_archived_events(&self) -> Result<Vec<LedgerEntry>> {
        Ok(self
            .current_archives()?
            .iter()
            .flat_map(|(_, now)| ledger_view::archive_entries(&now.text))
            .collect())
    }

    pub(super) fn query_archived_events(&self, which: &EventQuery) -> Result<Vec<Event>> {
        let places = if self.refresh_archives()? {
            self.query_index(|index| index.archived_places(which))?
        } else {
            None
        };
        let entries = match places {
            Some(places) => self.archived_events_at(&places)?,
            None => None,
        };
        let entries = match entries {
            Some(entries) => entries,
            // The files changed a moment ago; read them.
            None => self.all_archived_events()?,
        };
        Ok(ledger_view::archived_events(entries.iter(), which))
    }

    /// The events at these places of the archives, given file by file; `None` if they moved.
    fn archived_events_at(
        &self,
        places: &[(String, u64, usize)],
    ) -> Result<Option<Vec<LedgerEntry>>> {
        let mut entries = Vec::with_capacity(places.len());
        for file in places.chunk_by(|a, b| a.0 == b.0) {
            let pieces: Vec<(u64, usize)> =
                file.iter().map(|&(_, offset, length)| (offset, length)).collect();
            let Ok(pieces) = self.fs.read_pieces(&file[0].0.parse()?, &pieces) else {
                return Ok(None);
            };
            entries.extend(pieces.iter().flat_map(|piece| ledger_view::archive_entries(piece)));
        }
        Ok(Some(entries))
    }

    /// All events linked to these, from ledger and archives, by id.
    pub(super) fn query_linked_events(
        &self,
        ids: &[EventId],
        about: &[&str],
    ) -> Result<Vec<Event>> {
        let tied = if self.refresh_archives()? {
            self.query_index(|index| index.linked_places(ids, about))?
        } else {
            None
        };
        let (here, gone) = match tied {
            Some(LinkedPlaces { ids, .. }) if ids.is_empty() => (Vec::new(), Vec::new()),
            Some(LinkedPlaces { ids, in_ledger: here, in_archives: gone }) => {
                match (self.ledger_events_at(&here, &ids)?, self.archived_events_at(&gone)?) {
                    (Some(here), Some(gone)) => {
                        let events = gone.into_iter().map(|entry| entry.event);
                        (
                            here,
                            events.filter(|event| ids.binary_search(&event.id).is_ok()).collect(),
                        )
                    }
                    // The files changed a moment ago; read them.
                    _ => {
                        let these = EventQuery::for_ids(&ids);
                        let here = these
                            .select(self.read_ledger()?.0.entries())
                            .into_iter()
                            .map(|entry| entry.event.clone())
                            .collect();
                        (here, self.query_archived_events(&these)?)
                    }
                }
            }
            None => {
                return Ok(ledger_view::linked_events(
                    &self.read_ledger()?.0,
                    self.all_archived_events()?.iter(),
                    ids,
                    about,
                ));
            }
        };
        Ok(ledger_view::merge_in_order(here, gone))
    }

    /// Moves lines from the ledger to archives: they are in their archive before they leave the
    /// ledger.
    pub(super) fn archive_lines(
        &self,
        archives: &[(DocPath, Vec<u8>)],
        text: &[u8],
        at: Position,
    ) -> Result<()> {
        let held = self.lock_and_repair()?;
        if self.ledger_position()? != at {
            return Err(Error::Conflict { what: layout::LEDGER.into() });
        }
        for (path, lines) in archives.iter().filter(|(_, lines)| !lines.is_empty()) {
            self.repair_tail(&held, path)?;
            self.fs.append(&held, path, lines)?;
        }
        // A person or another program may have appended a line without the lock.
        self.replace_ledger_at(&held, text, at)?;
        // The documents stay marked as seen, because no other program changed the ledger. If the
        // index cannot cover this now, the next query does, archives first, so that nothing in them
        // counts as lost.
        let current = CurrentLedger {
            text: text.to_vec(),
            look: self.fs.stat(&self.ledger)?,
            spent: self.spent_ids()?,
            archives: self.current_archives()?,
        };
        if let IndexHandle::Open(index) = &mut *self.index_handle() {
            let _ = index.rebuild(&current, &|_, _| {});
        }
        Ok(())
    }

    fn read_records(&self, path: &DocPath) -> Result<(Vec<Record>, Vec<BadRecordLine>)> {
        Ok(self.fs.read(path)?.map_or_else(Default::default, |text| record::parse_file(&text)))
    }

    fn record_paths(days: Days) -> impl Iterator<Item = DocPath> {
        days.iter()
            .flat_map(|day| RecordKind::ALL.iter().map(move |&kind| DocPath::records(kind, day)))
    }

    pub(super) fn write_records(&self, records: Vec<Record>) -> Result<AddReport> {
        let mut added = AddReport::default();
        let mut rest = records;
        while !rest.is_empty() {
            let later = rest.split_off(rest.len().min(MAX_BATCH_RECORDS));
            self.write_batch(rest, &mut added)?;
            rest = later;
        }
        Ok(added)
    }

    fn write_batch(&self, records: Vec<Record>, added: &mut AddReport) -> Result<()> {
        let held = self.lock_and_repair()?;
        let paths: Vec<DocPath> =
            records.iter().map(Record::path).collect::<BTreeSet<_>>().into_iter().collect();
        for path in &paths {
            self.repair_tail(&held, path)?;
        }
        // Only the files that are written to are checked. A stale index of another day's file costs
        // at most a duplicate line there, which readers merge.
        let indexed = self.refresh_files(&paths)?;
        let keys: Vec<RecordKey> = records.iter().map(Record::key).collect();
        let known = match self.query_index(|index| index.find_records(&keys))? {
            Some(known) if indexed => known,
            _ => self.known_from_files(&keys)?,
        };
        let known = known
            .into_iter()
            .map(|known| known.map(|(path, wording)| Ok((path.parse()?, wording))).transpose());
        let RecordBatch { new_records: fresh, revisions } =
            RecordBatch::classify(&records, &keys, known.collect::<Result<_>>()?, added);
        let texts: Vec<(DocPath, Vec<u8>)> = fresh
            .iter()
            .map(|(path, records)| {
                (path.clone(), record_dedup::record_lines(records.iter().copied()).into_bytes())
            })
            .collect();
        let appending = AppendGuard::start(&self.appending, fresh.keys().cloned());
        let places = self.fs.append_many(&held, &texts)?;
        // The lines are safe. If the index cannot cover them now, the next query about the files
        // does.
        if let IndexHandle::Open(index) = &mut *self.index_handle() {
            let own: Vec<_> = fresh
                .into_iter()
                .zip(places)
                .filter_map(|((path, records), (start, look))| Some((path, records, start, look?)))
                .collect();
            let _ = index.add_own_records(&own);
        }
        drop(appending);
        for (path, records) in revisions {
            self.write_revisions(&held, &path, &records, added)?;
        }
        Ok(())
    }

    /// Appends revisions of a file's records, at the time of the first version, because the file
    /// decides the day.
    fn write_revisions(
        &self,
        lock: &WriteLock,
        path: &DocPath,
        records: &[&Record],
        added: &mut AddReport,
    ) -> Result<()> {
        let others = record_dedup::pending_revisions(&self.read_records(path)?.0, records, added);
        if others.is_empty() {
            return Ok(());
        }
        let text = record_dedup::record_lines(&others);
        self.repair_tail(lock, path)?;
        self.fs.append(lock, path, text.as_bytes())?;
        self.refresh_files(std::slice::from_ref(path)).map(|_| ())
    }

    pub(super) fn query_known_records(&self, keys: &[RecordKey]) -> Result<Vec<bool>> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        // Any day may have them, and the index may be new or behind the files.
        let is_fresh = self.refresh_records()?;
        let known = match self.query_index(|index| index.find_records(keys))? {
            Some(known) if is_fresh => known,
            _ => self.known_from_files(keys)?,
        };
        Ok(known.iter().map(Option::is_some).collect())
    }

    fn known_from_files(&self, keys: &[RecordKey]) -> Result<Vec<Option<(String, RecordKey)>>> {
        let mut found: HashMap<RecordKey, (String, RecordKey)> = HashMap::new();
        for path in self.record_files()? {
            for record in self.read_records(&path)?.0 {
                found
                    .entry(record.key())
                    .or_insert_with(|| (path.to_string(), record.wording_hash()));
            }
        }
        Ok(keys.iter().map(|key| found.get(key).cloned()).collect())
    }

    pub(super) fn read_days(&self, days: Days) -> Result<Vec<Record>> {
        let mut found = Vec::new();
        for path in Self::record_paths(days) {
            found.extend(self.read_records(&path)?.0);
        }
        found.sort_by_key(|record| record.ts.timestamp());
        Ok(found)
    }

    /// The records of one conversation. Parses only lines that may belong to it.
    fn read_conversation(&self, days: Days, conversation: &str) -> Result<Vec<Record>> {
        let mut found = Vec::new();
        for path in Self::record_paths(days) {
            found.extend(record_dedup::conversation_records(
                &self.fs.read(&path)?.unwrap_or_default(),
                conversation,
            ));
        }
        found.sort_by_key(|record| record.ts.timestamp());
        Ok(found)
    }

    pub(super) fn read_recent_records(
        &self,
        conversation: &str,
        most: usize,
    ) -> Result<Vec<Record>> {
        let days = if self.refresh_records()? {
            self.query_index(|index| index.conversation_days(conversation))?
        } else {
            None
        };
        let days = match days {
            Some(days) => days,
            None => self.list_record_days()?,
        };
        let mut found: Vec<Record> = Vec::new();
        for day in days.into_iter().rev() {
            if found.len() >= most {
                break;
            }
            let mut told = self.read_conversation(Days { first: day, last: day }, conversation)?;
            told.extend(found);
            found = told;
        }
        Ok(found.split_off(found.len().saturating_sub(most)))
    }

    pub(super) fn read_digest(&self, conversation: &str, days: Days) -> Result<RecordSetDigest> {
        // Writers update the index. Comparing it with the files here would read a whole day again
        // whenever a writer is between the two steps; the next writer compares under the lock.
        if let Some(digest) = self.query_index(|index| index.digest(conversation, days))? {
            return Ok(digest);
        }
        let mut digest = RecordSetDigest::default();
        let theirs =
            self.read_days(days)?.into_iter().filter(|record| record.conversation == conversation);
        theirs.for_each(|record| digest.add(record.content_hash()));
        Ok(digest)
    }

    pub(super) fn remove_records(&self, days: Days, conversation: &str) -> Result<usize> {
        let held = self.lock_and_repair()?;
        let mut gone = 0;
        for path in Self::record_paths(days) {
            let mut last = Ok(());
            for _ in 0..MAX_WRITE_ATTEMPTS {
                let Some(text) = self.fs.read(&path)? else { break };
                let (keys, kept) = record_dedup::without_conversation(&text, conversation);
                let expected = Expected::Content(ContentVersion::of(Some(&text)));
                last = match kept.is_empty() {
                    _ if keys.is_empty() => Ok(()),
                    true => self.fs.remove_if(&held, &path, &expected),
                    false => self.fs.replace_if(&held, &path, &kept, &expected),
                };
                // Another program appended meanwhile: its lines stay, so read the file again.
                if !matches!(last, Err(Error::Conflict { .. })) {
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

    pub(super) fn query_sessions(&self, days: Option<Days>) -> Result<Vec<SessionStats>> {
        let fresh = match days {
            Some(days) => self.refresh_files(&Self::record_paths(days).collect::<Vec<_>>())?,
            None => self.refresh_records()?,
        };
        if fresh && let Some(found) = self.query_index(|index| index.sessions(days))? {
            return Ok(found);
        }
        let records = match days {
            Some(days) => self.read_days(days)?,
            None => self
                .record_files()?
                .iter()
                .map(|path| Ok(self.read_records(path)?.0))
                .collect::<Result<Vec<_>>>()?
                .concat(),
        };
        Ok(record::session_stats(&records))
    }

    /// From the file names: a day with a file that is not empty has records.
    pub(super) fn list_record_days(&self) -> Result<Vec<Date>> {
        let mut days = BTreeSet::new();
        for folder in [layout::MESSAGES, layout::SNAPSHOTS] {
            let files = self.fs.list_folder(folder)?.into_iter().filter(|(_, look)| look.len > 0);
            days.extend(files.filter_map(|(path, _)| path.record_day()));
        }
        Ok(days.into_iter().collect())
    }

    pub(super) fn invalid_record_lines(&self) -> Result<Vec<(DocPath, BadRecordLine)>> {
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
        Ok(Position(self.fs.stat(&Self::summaries_path()?)?.map_or(0, |look| look.as_number())))
    }

    pub(super) fn write_summaries(
        &self,
        summaries: &[Summary],
        after: Option<Position>,
    ) -> Result<Position> {
        let held = self.lock_and_repair()?;
        let path = Self::summaries_path()?;
        if let Some(after) = after
            && self.summaries_position()? != after
        {
            return Err(Error::Conflict { what: path.to_string() });
        }
        self.repair_tail(&held, &path)?;
        let text: String = summaries.iter().map(Summary::to_line).collect();
        let (start, look) = self.fs.append(&held, &path, text.as_bytes())?;
        if let (Some(look), IndexHandle::Open(index)) = (look, &mut *self.index_handle()) {
            let _ = index.add_own_summaries(&path, start, summaries, look);
        }
        self.summaries_position()
    }

    fn read_summary_file(&self, which: &SummaryQuery) -> Result<Vec<Summary>> {
        let text = self.fs.read(&Self::summaries_path()?)?.unwrap_or_default();
        let all = text
            .split(|&byte| byte == b'\n')
            .filter_map(|line| Summary::parse_line(line.trim_ascii()).ok());
        Ok(which.select_newest(all, |summary| (summary.period, summary.recorded)))
    }

    pub(super) fn query_heads(&self, which: &SummaryQuery) -> Result<(Vec<SummaryHead>, Position)> {
        // The position is read first: what arrives meanwhile makes a write against it fail, never
        // pass.
        let position = self.summaries_position()?;
        if self.refresh_files(&[Self::summaries_path()?])?
            && let Some(places) = self.query_index(|index| index.summary_locations(which))?
        {
            return Ok((places.into_iter().map(|place| place.head).collect(), position));
        }
        Ok((self.read_summary_file(which)?.iter().map(Summary::head).collect(), position))
    }

    pub(super) fn query_summaries(&self, which: &SummaryQuery) -> Result<Vec<Summary>> {
        let path = Self::summaries_path()?;
        if self.refresh_files(std::slice::from_ref(&path))?
            && let Some(places) = self.query_index(|index| index.summary_locations(which))?
        {
            let pieces: Vec<(u64, usize)> =
                places.iter().map(|place| (place.offset, place.length)).collect();
            let read: Option<Vec<Summary>> = match pieces.is_empty() {
                true => Some(Vec::new()),
                false => self
                    .fs
                    .read_pieces(&path, &pieces)?
                    .iter()
                    .map(|line| Summary::parse_line(line).ok())
                    .collect(),
            };
            // If a line moved, another process changed the file; read the file.
            if let Some(found) = read
                && found.iter().zip(&places).all(|(found, place)| found.period == place.head.period)
            {
                return Ok(found);
            }
        }
        self.read_summary_file(which)
    }

    /// Fills an index for a comparison from the same files as the vault's own; false if one of them
    /// changed since.
    pub(super) fn fill_for_comparison(
        &self,
        taken: &HashMap<String, String>,
        fresh: &mut super::index::Index,
    ) -> Result<SqlResult<bool>> {
        let mut paths: Vec<DocPath> = taken.keys().filter_map(|path| path.parse().ok()).collect();
        paths.sort();
        for path in paths {
            let now = self.current_file(&path)?;
            if now.look.map(|look| look.stamp()).as_ref() != taken.get(path.as_str()) {
                return Ok(Ok(false));
            }
            if let Err(error) = fresh.index_file(&path, || Ok(now)) {
                return Ok(Err(error));
            }
        }
        Ok(Ok(true))
    }
}
