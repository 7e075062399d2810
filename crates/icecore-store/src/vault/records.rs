//! Records and summaries in a vault: append-only files with one entry per line.
//!
//! A line is in its file before anything else knows it. The index tells which records are stored,
//! so that none is stored twice; without an index the files tell it, only slower.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;
use icecore_domain::calendar::Days;
use icecore_domain::layout::{self, DocPath};
use icecore_domain::record::{
    self, BadRecordLine, Record, RecordKey, RecordKind, RecordSetDigest, SessionStats,
};

use super::vault_fs::{Expected, MAX_WRITE_ATTEMPTS, WriteLock};
use super::{IndexHandle, Vault};
use crate::record_dedup::{self, RecordBatch};
use crate::{AddReport, ContentVersion, Error, ErrorKind, RecordStore, Result};

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

    fn read_records(&self, path: &DocPath) -> Result<(Vec<Record>, Vec<BadRecordLine>)> {
        Ok(self.fs.read(path)?.map_or_else(Default::default, |text| record::parse_file(&text)))
    }

    fn record_paths(days: Days) -> impl Iterator<Item = DocPath> {
        days.iter()
            .flat_map(|day| RecordKind::ALL.iter().map(move |&kind| DocPath::records(kind, day)))
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
}

#[async_trait]
impl RecordStore for Vault {
    async fn add_records(&self, records: Vec<Record>) -> Result<AddReport> {
        let mut added = AddReport::default();
        let mut rest = records;
        while !rest.is_empty() {
            let later = rest.split_off(rest.len().min(MAX_BATCH_RECORDS));
            self.write_batch(rest, &mut added)?;
            rest = later;
        }
        Ok(added)
    }

    async fn contains_records(&self, keys: &[RecordKey]) -> Result<Vec<bool>> {
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

    async fn records(&self, days: Days) -> Result<Vec<Record>> {
        self.read_days(days)
    }

    async fn recent_records(&self, conversation: &str, most: usize) -> Result<Vec<Record>> {
        let days = if self.refresh_records()? {
            self.query_index(|index| index.conversation_days(conversation))?
        } else {
            None
        };
        let days = match days {
            Some(days) => days,
            None => self.record_days().await?,
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

    async fn conversation_digest(&self, conversation: &str, days: Days) -> Result<RecordSetDigest> {
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

    async fn sessions(&self, days: Option<Days>) -> Result<Vec<SessionStats>> {
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

    async fn record_days(&self) -> Result<Vec<jiff::civil::Date>> {
        let mut days = BTreeSet::new();
        for folder in [layout::MESSAGES, layout::SNAPSHOTS] {
            let files = self.fs.list_folder(folder)?.into_iter().filter(|(_, look)| look.len > 0);
            days.extend(files.filter_map(|(path, _)| path.record_day()));
        }
        Ok(days.into_iter().collect())
    }

    async fn bad_records(&self) -> Result<Vec<(DocPath, BadRecordLine)>> {
        let mut found = Vec::new();
        for path in self.record_files()? {
            found.extend(self.read_records(&path)?.1.into_iter().map(|bad| (path.clone(), bad)));
        }
        Ok(found)
    }

    async fn forget_records(&self, days: Days, conversation: &str) -> Result<usize> {
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
                if !matches!(last, Err(Error { kind: ErrorKind::Conflict, .. })) {
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
}
