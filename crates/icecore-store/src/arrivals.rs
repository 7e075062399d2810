//! Records that arrive at a home: which are new, which say otherwise what is known, and what their
//! lines are. Every home goes by it, so that each writes the same bytes.

use std::collections::{BTreeMap, HashMap, HashSet};

use icecore_domain::layout::DocPath;
use icecore_domain::record::{self, Key, Record};
use memchr::memmem;

use crate::Added;

/// What is to be written of records that were handed in.
#[derive(Debug, Default)]
pub(crate) struct Arrivals<'a> {
    /// Those that are new, for each file, in their order.
    pub fresh: BTreeMap<DocPath, Vec<&'a Record>>,
    /// Other words for what is known, for the file that has the first ones. They follow what is new
    /// there.
    pub revisions: BTreeMap<DocPath, Vec<&'a Record>>,
}

impl<'a> Arrivals<'a> {
    /// Sorts records, each with its key and, if it is known, with its file and the hash of its
    /// words.
    pub fn sort(
        records: &'a [Record],
        keys: &[Key],
        known: Vec<Option<(DocPath, Key)>>,
        added: &mut Added,
    ) -> Self {
        let mut arrivals = Self::default();
        // What came a moment ago counts before what was there: it is what the next one differs
        // from.
        let mut lately: HashMap<Key, (DocPath, Key)> = HashMap::new();
        for ((record, key), known) in records.iter().zip(keys).zip(known) {
            let wording = record.wording();
            match lately.get(key).cloned().or(known) {
                None => {
                    lately.insert(*key, (record.path(), wording));
                    arrivals.fresh.entry(record.path()).or_default().push(record);
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

/// Their lines.
pub(crate) fn lines<'a>(records: impl IntoIterator<Item = &'a Record>) -> String {
    records.into_iter().map(Record::line).collect()
}

/// Other words for records of a file, at the time of the first ones: the file decides which day it
/// is. Those that the file has already are left out and counted as such: the hash of a record that
/// was kept long ago may count marks of hidden secrets that count no more.
pub(crate) fn revised(first: &[Record], records: &[&Record], added: &mut Added) -> Vec<Record> {
    let mut known: HashMap<Key, Record> =
        first.iter().map(|record| (record.key(), record.clone())).collect();
    let mut others = Vec::with_capacity(records.len());
    for record in records {
        let settled = match known.get(&record.key()) {
            Some(known) if known.wording() == record.wording() => {
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

/// What a file has of one conversation; of the others' lines none is read that need not be.
pub(crate) fn said_in(text: &[u8], conversation: &str) -> Vec<Record> {
    let (name, escapes) =
        (memmem::Finder::new(conversation), ["\\u", "\\/"].map(memmem::Finder::new));
    let is_plain = !conversation.contains(['"', '\\']) && !conversation.contains(char::is_control);
    // A name that stands there otherwise has escapes in it.
    let may_be = |line: &&[u8]| {
        !is_plain
            || name.find(line).is_some()
            || escapes.iter().any(|escape| escape.find(line).is_some())
    };
    let theirs: Vec<&[u8]> = text.split_inclusive(|&byte| byte == b'\n').filter(may_be).collect();
    let mut found = record::read_file(&theirs.concat()).0;
    found.retain(|record| record.conversation == conversation);
    found
}

/// A file without one conversation: which records of it there were, and what is left.
pub(crate) fn without(text: &[u8], conversation: &str) -> (HashSet<Key>, Vec<u8>) {
    let (mut gone, mut kept) = (HashSet::new(), Vec::with_capacity(text.len()));
    for line in text.split_inclusive(|&byte| byte == b'\n') {
        match record::read(line.trim_ascii()) {
            Ok(record) if record.conversation == conversation => {
                gone.insert(record.key());
            }
            _ => kept.extend_from_slice(line),
        }
    }
    (gone, kept)
}
