//! Tombstones: that something was forgotten, when, by whom and why, and hashes by which it is known
//! if it comes again.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use serde::{Deserialize, Serialize};

use super::words::{self, phrase};
use super::{Needles, Scrub};
use crate::hash::Hash;
use crate::id::EventId;
use crate::record::Key;
use crate::summary::Period;

/// What is kept of something that was forgotten; never its words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tombstone {
    /// Its name.
    pub id: String,
    /// When.
    pub ts: String,
    /// By whom.
    pub by: String,
    /// Why, if somebody said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What the hashes are made with, so that those of two vaults cannot be compared.
    salt: String,
    /// Runs of words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    words: Vec<Run>,
    /// Events of the ledger.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    events: BTreeSet<String>,
    /// Records, by their keys.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    records: BTreeSet<String>,
    /// Summaries up to a version.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    periods: BTreeMap<String, u32>,
    /// Turns of conversations.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    turns: BTreeMap<String, BTreeSet<u64>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Run {
    /// How many words it has.
    count: usize,
    /// A byte of the hash of the first, for a cheap look.
    first: String,
    /// The hash of all.
    hash: String,
}

#[derive(Serialize, Deserialize)]
struct Done {
    done: String,
    ts: String,
}

/// The line that says that a forgetting came to its end.
pub fn done(id: &str, ts: &str) -> String {
    serde_json::to_string(&Done { done: id.into(), ts: ts.into() }).unwrap_or_default()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes_of(hex: &str) -> Option<[u8; 16]> {
    let mut bytes = [0; 16];
    if hex.len() != 32 || !hex.is_ascii() {
        return None;
    }
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&hex[at * 2..at * 2 + 2], 16).ok()?;
    }
    Some(bytes)
}

impl Tombstone {
    /// The tombstone of what `scrub` takes away.
    pub fn new(scrub: &Scrub, ts: &str, by: &str, reason: Option<&str>, salt: &str) -> Self {
        let run = |phrase: &str| Run {
            count: phrase.split(' ').count(),
            first: hex(&[words::first_byte(salt, phrase)]),
            hash: hex(&words::hash(salt, phrase)),
        };
        let mut stone = Self {
            id: String::new(),
            ts: ts.to_owned(),
            by: by.to_owned(),
            reason: reason.map(str::to_owned),
            salt: salt.to_owned(),
            words: scrub.needles.phrases().map(run).collect(),
            events: scrub.events.iter().map(ToString::to_string).collect(),
            records: scrub.records.iter().map(|key| hex(key)).collect(),
            periods: scrub
                .periods
                .iter()
                .map(|(period, version)| (period.to_string(), *version))
                .collect(),
            turns: scrub.turns.clone(),
        };
        stone.id = format!("FGT-{}", Hash::of(stone.line().as_bytes()).short());
        stone
    }

    /// Its line, without the line break.
    pub fn line(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Whether it took away summaries of that period.
    pub fn names_period(&self, period: Period) -> bool {
        self.periods.contains_key(&period.to_string())
    }

    /// Adds to `scrub` what it knows.
    pub fn add_to(&self, scrub: &mut Scrub) {
        for run in &self.words {
            let first = u8::from_str_radix(&run.first, 16).ok();
            if let (Some(first), Some(hash)) = (first, bytes_of(&run.hash)) {
                scrub.needles.hashed.add(&self.salt, run.count, first, hash);
            }
        }
        scrub.events.extend(self.events.iter().filter_map(|id| id.parse::<EventId>().ok()));
        scrub.records.extend(self.records.iter().filter_map(|key| bytes_of(key)));
        for (period, version) in
            self.periods.iter().filter_map(|(name, version)| Some((name.parse().ok()?, *version)))
        {
            let upto = scrub.periods.entry(period).or_default();
            *upto = version.max(*upto);
        }
        for (folder, turns) in &self.turns {
            scrub.turns.entry(folder.clone()).or_default().extend(turns);
        }
    }
}

/// Every tombstone of a vault.
#[derive(Debug, Clone, Default)]
pub struct Tombstones {
    /// The tombstones, oldest first.
    stones: Vec<Tombstone>,
    finished: HashSet<String>,
    scrub: Scrub,
}

impl Tombstones {
    /// Reads them; a line that is none is passed over.
    pub fn read(bytes: &[u8]) -> Self {
        let mut all = Self::default();
        for line in bytes.split(|byte| *byte == b'\n').filter(|line| !line.trim_ascii().is_empty())
        {
            if let Ok(stone) = serde_json::from_slice::<Tombstone>(line) {
                stone.add_to(&mut all.scrub);
                all.stones.push(stone);
            } else if let Ok(done) = serde_json::from_slice::<Done>(line) {
                all.finished.insert(done.done);
            }
        }
        all
    }

    /// Whether nothing was ever forgotten.
    pub fn is_empty(&self) -> bool {
        self.stones.is_empty()
    }

    /// The tombstones, oldest first.
    pub fn all(&self) -> &[Tombstone] {
        &self.stones
    }

    /// Everything that was forgotten, as far as it can be known again.
    pub fn scrub(&self) -> &Scrub {
        &self.scrub
    }

    /// The words that must not come in again.
    pub fn needles(&self) -> &Needles {
        &self.scrub.needles
    }

    /// Whether this record was forgotten.
    pub fn has_record(&self, key: &Key) -> bool {
        self.scrub.records.contains(key)
    }

    /// The salt that further tombstones are made with.
    pub fn salt(&self) -> Option<&str> {
        self.stones.last().map(|stone| stone.salt.as_str())
    }

    /// Those whose forgetting was begun and did not come to its end.
    pub fn unfinished(&self) -> impl Iterator<Item = &Tombstone> {
        self.stones.iter().filter(|stone| !self.finished.contains(&stone.id))
    }

    /// What the unfinished ones were about to take away.
    pub fn left_to_do(&self) -> Scrub {
        let mut scrub = Scrub::default();
        self.unfinished().for_each(|stone| stone.add_to(&mut scrub));
        scrub
    }

    /// Whether this text is among what was forgotten.
    pub fn knows(&self, text: &str) -> bool {
        !phrase(text).is_empty() && self.needles().is_in(text)
    }
}
