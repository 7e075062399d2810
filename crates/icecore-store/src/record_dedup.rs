//! Deduplication of records: decides which records of a write are new, which revise a stored one,
//! and how their lines look. Both backends use it, so both write the same bytes.

use std::collections::{BTreeMap, HashMap, HashSet};

use icecore_domain::layout::DocPath;
use icecore_domain::record::{self, Record, RecordKey};
use memchr::memmem;

use crate::AddReport;

/// The records of one write that must be stored.
#[derive(Debug, Default)]
pub(crate) struct RecordBatch<'a> {
    /// New records by file, in their order.
    pub new_records: BTreeMap<DocPath, Vec<&'a Record>>,
    /// New text for known records, by the file that holds the first version. Written after the new
    /// records.
    pub revisions: BTreeMap<DocPath, Vec<&'a Record>>,
}

impl<'a> RecordBatch<'a> {
    /// Sorts records into new ones, revisions and duplicates. `known` holds the file and the text
    /// hash of each record that is stored already.
    pub fn classify(
        records: &'a [Record],
        keys: &[RecordKey],
        known: Vec<Option<(DocPath, RecordKey)>>,
        added: &mut AddReport,
    ) -> Self {
        let mut arrivals = Self::default();
        // Compare with earlier records of the same batch first: the next revision differs from
        // them.
        let mut lately: HashMap<RecordKey, (DocPath, RecordKey)> = HashMap::new();
        for ((record, key), known) in records.iter().zip(keys).zip(known) {
            let wording = record.wording_hash();
            match lately.get(key).cloned().or(known) {
                None => {
                    lately.insert(*key, (record.path(), wording));
                    arrivals.new_records.entry(record.path()).or_default().push(record);
                    added.new += 1;
                }
                Some((_, before)) if before == wording => added.same += 1,
                Some((path, _)) => {
                    added.revised.push(record.id.clone());
                    lately.insert(*key, (path.clone(), wording));
                    arrivals.revisions.entry(path).or_default().push(record);
                }
            }
        }
        arrivals
    }
}

/// The lines of records.
pub(crate) fn record_lines<'a>(records: impl IntoIterator<Item = &'a Record>) -> String {
    records.into_iter().map(Record::to_line).collect()
}

/// Revisions for the records of a file. They get the time of the first version, because the file
/// decides the day. Records with text that the file already has are dropped and counted as
/// duplicates: the hash of an old record may include markers of hidden secrets that no longer
/// count.
pub(crate) fn pending_revisions(
    first: &[Record],
    records: &[&Record],
    added: &mut AddReport,
) -> Vec<Record> {
    let mut known: HashMap<RecordKey, Record> =
        first.iter().map(|record| (record.key(), record.clone())).collect();
    let mut others = Vec::with_capacity(records.len());
    for record in records {
        let settled = match known.get(&record.key()) {
            Some(known) if known.wording_hash() == record.wording_hash() => {
                added.same += 1;
                if let Some(at) = added.revised.iter().position(|id| *id == record.id) {
                    added.revised.remove(at);
                }
                continue;
            }
            Some(known) => Record {
                ts: known.ts,
                session: known.session.clone(),
                kind: known.kind,
                ..(*record).clone()
            },
            None => (*record).clone(),
        };
        known.insert(settled.key(), settled.clone());
        others.push(settled);
    }
    others
}

/// The records of one conversation in a file. Parses only lines that may belong to it.
pub(crate) fn conversation_records(text: &[u8], conversation: &str) -> Vec<Record> {
    let (name, escapes) =
        (memmem::Finder::new(conversation), ["\\u", "\\/"].map(memmem::Finder::new));
    let is_plain = !conversation.contains(['"', '\\']) && !conversation.contains(char::is_control);
    // A name that is written differently contains escapes.
    let may_be = |line: &&[u8]| {
        !is_plain
            || name.find(line).is_some()
            || escapes.iter().any(|escape| escape.find(line).is_some())
    };
    let theirs: Vec<&[u8]> = text.split_inclusive(|&byte| byte == b'\n').filter(may_be).collect();
    let mut found = record::parse_file(&theirs.concat()).0;
    found.retain(|record| record.conversation == conversation);
    found
}

/// A file without one conversation: the keys of the removed records, and the remaining bytes.
pub(crate) fn without_conversation(
    text: &[u8],
    conversation: &str,
) -> (HashSet<RecordKey>, Vec<u8>) {
    let (mut gone, mut kept) = (HashSet::new(), Vec::with_capacity(text.len()));
    for line in text.split_inclusive(|&byte| byte == b'\n') {
        match record::parse_line(line.trim_ascii()) {
            Ok(record) if record.conversation == conversation => {
                gone.insert(record.key());
            }
            _ => kept.extend_from_slice(line),
        }
    }
    (gone, kept)
}
