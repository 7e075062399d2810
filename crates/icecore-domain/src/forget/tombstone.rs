//! Tombstones: that something was forgotten, when, by whom and why, and hashes that recognize it if
//! it is imported again. A tombstone never contains the forgotten words.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use serde::{Deserialize, Serialize};

use super::words::{self, fold_phrase};
use super::{Needles, Scrub};
use crate::hash::Hash;
use crate::id::EventId;
use crate::record::RecordKey;
use crate::summary::Period;

/// The record of one forgetting, without the forgotten words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tombstone {
    pub id: String,
    pub ts: String,
    pub by: String,
    /// The reason, if one was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The salt of the hashes, so that those of two vaults cannot be compared.
    salt: String,
    /// Hashed word sequences.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    words: Vec<HashedRun>,
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
struct HashedRun {
    /// The number of words.
    count: usize,
    /// One byte of the first word's hash, for a cheap pre-check.
    first: String,
    /// The hash of all words.
    hash: String,
}

#[derive(Serialize, Deserialize)]
struct DoneLine {
    done: String,
    ts: String,
}

/// The line that marks a forgetting as complete.
pub fn done_line(id: &str, ts: &str) -> String {
    serde_json::to_string(&DoneLine { done: id.into(), ts: ts.into() }).unwrap_or_default()
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn parse_hex(hex: &str) -> Option<[u8; 16]> {
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
    /// The tombstone of what `scrub` forgets.
    pub fn new(scrub: &Scrub, ts: &str, by: &str, reason: Option<&str>, salt: &str) -> Self {
        let run = |phrase: &str| HashedRun {
            count: phrase.split(' ').count(),
            first: to_hex(&[words::first_word_byte(salt, phrase)]),
            hash: to_hex(&words::phrase_hash(salt, phrase)),
        };
        let mut stone = Self {
            id: String::new(),
            ts: ts.to_owned(),
            by: by.to_owned(),
            reason: reason.map(str::to_owned),
            salt: salt.to_owned(),
            words: scrub.needles.phrases().map(run).collect(),
            events: scrub.events.iter().map(ToString::to_string).collect(),
            records: scrub.records.iter().map(|key| to_hex(key)).collect(),
            periods: scrub
                .periods
                .iter()
                .map(|(period, version)| (period.to_string(), *version))
                .collect(),
            turns: scrub.turns.clone(),
        };
        stone.id = format!("FGT-{}", Hash::of(stone.to_line().as_bytes()).short_hex());
        stone
    }

    /// The JSON line, without the line break.
    pub fn to_line(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Whether it forgets summaries of that period.
    pub fn has_period(&self, period: Period) -> bool {
        self.periods.contains_key(&period.to_string())
    }

    /// Adds what it forgets to `scrub`.
    pub fn add_to(&self, scrub: &mut Scrub) {
        for run in &self.words {
            let first = u8::from_str_radix(&run.first, 16).ok();
            if let (Some(first), Some(hash)) = (first, parse_hex(&run.hash)) {
                scrub.needles.hashed.add(&self.salt, run.count, first, hash);
            }
        }
        scrub.events.extend(self.events.iter().filter_map(|id| id.parse::<EventId>().ok()));
        scrub.records.extend(self.records.iter().filter_map(|key| parse_hex(key)));
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

/// All tombstones of a vault.
#[derive(Debug, Clone, Default)]
pub struct Tombstones {
    /// Oldest first.
    stones: Vec<Tombstone>,
    finished: HashSet<String>,
    scrub: Scrub,
}

impl Tombstones {
    /// Parses the file; invalid lines are skipped.
    pub fn parse(bytes: &[u8]) -> Self {
        let mut all = Self::default();
        for line in bytes.split(|byte| *byte == b'\n').filter(|line| !line.trim_ascii().is_empty())
        {
            if let Ok(stone) = serde_json::from_slice::<Tombstone>(line) {
                stone.add_to(&mut all.scrub);
                all.stones.push(stone);
            } else if let Ok(done) = serde_json::from_slice::<DoneLine>(line) {
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

    /// Everything that was forgotten, as far as it can be recognized.
    pub fn scrub(&self) -> &Scrub {
        &self.scrub
    }

    /// The words that must not be stored again.
    pub fn needles(&self) -> &Needles {
        &self.scrub.needles
    }

    /// Whether this record was forgotten.
    pub fn has_record(&self, key: &RecordKey) -> bool {
        self.scrub.records.contains(key)
    }

    /// The salt for further tombstones.
    pub fn salt(&self) -> Option<&str> {
        self.stones.last().map(|stone| stone.salt.as_str())
    }

    /// The tombstones whose forgetting was interrupted.
    pub fn unfinished_tombstones(&self) -> impl Iterator<Item = &Tombstone> {
        self.stones.iter().filter(|stone| !self.finished.contains(&stone.id))
    }

    /// What the unfinished forgettings still have to remove.
    pub fn unfinished_scrub(&self) -> Scrub {
        let mut scrub = Scrub::default();
        self.unfinished_tombstones().for_each(|stone| stone.add_to(&mut scrub));
        scrub
    }

    /// Whether this text contains forgotten words.
    pub fn is_forgotten(&self, text: &str) -> bool {
        !fold_phrase(text).is_empty() && self.needles().is_contained_in(text)
    }
}
