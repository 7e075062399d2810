//! Integrity checks of the ledger and the data derived from it (L12).

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use serde::Serialize;

use crate::event::{Act, Event, EventType, LoopStatus};
use crate::format::line::Severity;
use crate::hash::Hash;
use crate::id::EventId;
use crate::ledger::{EventState, Ledger};

/// The checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum IntegrityCheck {
    /// Every line of the ledger is an event.
    ValidLines,
    /// No id is used twice.
    UniqueIds,
    /// The ids of a day count up without gaps.
    SequentialIds,
    /// What is superseded exists, and precedes what supersedes it.
    Supersedes,
    /// What is related or acted upon exists.
    Related,
    /// Every line of the last snapshot is still there, byte for byte.
    Unchanged,
    /// The index agrees with the files.
    Index,
    /// `open-loops.json` agrees with the ledger.
    OpenLoops,
    /// The checkpoint points at an existing event.
    Checkpoint,
    /// Every record is covered by exactly one summary of each tier that should cover it.
    Coverage,
    /// No file is a leftover of a failed sync or merge.
    Files,
}

impl IntegrityCheck {
    /// All checks, in report order.
    pub const ALL: &'static [Self] = &[
        Self::ValidLines,
        Self::UniqueIds,
        Self::SequentialIds,
        Self::Supersedes,
        Self::Related,
        Self::Unchanged,
        Self::Index,
        Self::OpenLoops,
        Self::Checkpoint,
        Self::Coverage,
        Self::Files,
    ];

    /// A description for reports.
    pub fn title(self) -> &'static str {
        match self {
            Self::ValidLines => "every line is an event",
            Self::UniqueIds => "no id is used twice",
            Self::SequentialIds => "ids of a day have no gaps",
            Self::Supersedes => "what is superseded exists",
            Self::Related => "what is related exists",
            Self::Unchanged => "no line was removed or changed",
            Self::Index => "the index agrees with the files",
            Self::OpenLoops => "open-loops.json agrees with the ledger",
            Self::Checkpoint => "the checkpoint agrees with the ledger",
            Self::Coverage => "every record is covered once in each tier",
            Self::Files => "no sync or merge leftovers",
        }
    }
}

/// One problem that a check found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct IntegrityFinding {
    pub check: IntegrityCheck,
    /// Whether it fails the check, or is only a warning.
    pub fails: bool,
    /// The ledger line concerned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
    /// The event concerned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<EventId>,
    pub what: String,
}

impl IntegrityFinding {
    /// A finding that fails its check.
    pub fn failure(check: IntegrityCheck, what: impl Into<String>) -> Self {
        Self { check, fails: true, line: None, id: None, what: what.into() }
    }

    /// A harmless irregularity.
    pub fn warning(check: IntegrityCheck, what: impl Into<String>) -> Self {
        Self { fails: false, ..Self::failure(check, what) }
    }

    /// Adds the line.
    #[must_use]
    pub fn with_line(self, line: usize) -> Self {
        Self { line: Some(line), ..self }
    }

    /// Adds the event.
    #[must_use]
    pub fn with_event(self, id: EventId) -> Self {
        Self { id: Some(id), ..self }
    }
}

/// A ledger prefix that passed verification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LedgerPrefix {
    pub bytes: usize,
    pub hash: Hash,
}

impl LedgerPrefix {
    /// The prefix that is all of `text`.
    pub fn from_text(text: &[u8]) -> Self {
        Self { bytes: text.len(), hash: Hash::of(text) }
    }

    /// Whether `text` still begins with this prefix.
    pub fn is_prefix_of(&self, text: &[u8]) -> bool {
        text.get(..self.bytes).is_some_and(|prefix| Hash::of(prefix) == self.hash)
    }
}

/// Checks the ledger by itself. `archived` are ids that moved to an archive and still resolve;
/// `known_gaps` are ids whose loss a person has accepted.
pub fn check_ledger(
    ledger: &Ledger,
    archived: &HashSet<EventId>,
    known_gaps: &BTreeSet<EventId>,
) -> Vec<IntegrityFinding> {
    let mut found = Vec::new();
    for fault in ledger.faults() {
        let what = format!("line {} {}", fault.line, fault.fault.what);
        let finding = IntegrityFinding {
            fails: fault.fault.severity == Severity::Bad,
            ..IntegrityFinding::failure(IntegrityCheck::ValidLines, what)
        };
        found.push(finding.with_line(fault.line));
    }
    for &(line, id, same) in &ledger.duplicates {
        let first = ledger.get(id).map_or(0, |entry| entry.line);
        let what = if same {
            format!("line {line} repeats {id} of line {first} word for word")
        } else {
            format!("line {line} uses {id} again, already used by line {first}; commands ignore it")
        };
        found.push(
            IntegrityFinding::failure(IntegrityCheck::UniqueIds, what)
                .with_line(line)
                .with_event(id),
        );
    }
    found.extend(id_gap_findings(ledger, archived, known_gaps));
    for (at, entry) in ledger.entries().iter().enumerate() {
        // A retracted event may refer to anything: retracting is the remedy for a wrong reference.
        if matches!(entry.state, EventState::Retracted { .. }) {
            continue;
        }
        found.extend(
            reference_findings(ledger, archived, at, &entry.event)
                .into_iter()
                .map(|finding| finding.with_line(entry.line).with_event(entry.event.id)),
        );
    }
    found
}

/// Compares the ledger with an earlier snapshot: returns the missing events, and a finding for each
/// changed one.
pub fn compare_with_snapshot(
    ledger: &Ledger,
    told: &HashMap<EventId, Event>,
    archived: &HashSet<EventId>,
) -> (Vec<EventId>, Vec<IntegrityFinding>) {
    let (mut gone, mut changed) = (Vec::new(), Vec::new());
    for (&id, event) in told {
        match ledger.get(id) {
            None if !archived.contains(&id) => gone.push(id),
            Some(entry) if entry.event != *event => {
                let what = format!(
                    "{id} on line {} differs from the last snapshot. `icecore doctor --fix` restores it and gives the changed event a new id",
                    entry.line
                );
                changed.push(
                    IntegrityFinding::failure(IntegrityCheck::Unchanged, what)
                        .with_line(entry.line)
                        .with_event(id),
                );
            }
            _ => {}
        }
    }
    gone.sort();
    (gone, changed)
}

fn id_gap_findings(
    ledger: &Ledger,
    archived: &HashSet<EventId>,
    known: &BTreeSet<EventId>,
) -> Vec<IntegrityFinding> {
    let mut days: BTreeMap<jiff::civil::Date, BTreeSet<u32>> = BTreeMap::new();
    for id in ledger
        .entries()
        .iter()
        .map(|entry| entry.event.id)
        .chain(archived.iter().copied())
        .chain(known.iter().copied())
    {
        days.entry(id.day()).or_default().insert(id.number());
    }
    let mut found = Vec::new();
    for (day, numbers) in days {
        let mut expected = 1;
        for number in numbers {
            if number > expected {
                let (first, last) = (EventId::new(day, expected), EventId::new(day, number - 1));
                let what = if first == last {
                    format!("{first} is missing")
                } else {
                    format!("{first} to {last} are missing")
                };
                found.push(
                    IntegrityFinding::failure(IntegrityCheck::SequentialIds, what)
                        .with_event(first),
                );
            }
            expected = number + 1;
        }
    }
    found
}

/// The ids that are missing between existing ids; `doctor --fix` accepts them as lost.
pub fn missing_ids(
    ledger: &Ledger,
    archived: &HashSet<EventId>,
    known: &BTreeSet<EventId>,
) -> Vec<EventId> {
    /// A larger gap in one day is a typing error in a foreign line, not a loss.
    const MAX_DAILY_GAP_IDS: u32 = 10_000;
    let mut missing = Vec::new();
    let taken: HashSet<EventId> = ledger
        .entries()
        .iter()
        .map(|entry| entry.event.id)
        .chain(archived.iter().copied())
        .chain(known.iter().copied())
        .collect();
    let mut highest: BTreeMap<jiff::civil::Date, u32> = BTreeMap::new();
    for id in &taken {
        let most = highest.entry(id.day()).or_default();
        *most = id.number().max(*most);
    }
    for (day, most) in highest {
        missing.extend(
            (1..most.min(MAX_DAILY_GAP_IDS))
                .map(|number| EventId::new(day, number))
                .filter(|id| !taken.contains(id)),
        );
    }
    missing
}

/// The ids that a report of `verify` lists as permanently lost; they are never reused.
pub fn parse_known_gaps(report: &[u8]) -> BTreeSet<EventId> {
    let report: serde_json::Value = serde_json::from_slice(report).unwrap_or_default();
    report["known_gaps"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|id| id.as_str()?.parse().ok())
        .collect()
}

fn reference_findings(
    ledger: &Ledger,
    archived: &HashSet<EventId>,
    at: usize,
    event: &Event,
) -> Vec<IntegrityFinding> {
    let mut found = Vec::new();
    let place = |id: &EventId| ledger.by_id.get(id).copied();
    for (check, verb, targets) in [
        (IntegrityCheck::Supersedes, "supersedes", &event.supersedes),
        (IntegrityCheck::Related, "refers to", &event.related),
    ] {
        for target in targets {
            match place(target) {
                None if archived.contains(target) => {}
                None => found.push(IntegrityFinding::failure(
                    check,
                    format!("{} {verb} {target}, which does not exist", event.id),
                )),
                Some(there) if there == at => found
                    .push(IntegrityFinding::failure(check, format!("{} {verb} itself", event.id))),
                Some(there) if there > at && check == IntegrityCheck::Supersedes => {
                    found.push(IntegrityFinding::failure(
                        check,
                        format!(
                            "{} {verb} {target}, which comes after it; it has no effect",
                            event.id
                        ),
                    ));
                }
                Some(_) => {}
            }
        }
    }
    if event.act != Act::Assert && event.related.is_empty() {
        found.push(IntegrityFinding::failure(
            IntegrityCheck::Related,
            format!("{} has the act {} but names no event", event.id, event.act),
        ));
    }
    let closes_nothing = event.is_statement()
        && event.status == Some(LoopStatus::Closed)
        && event.supersedes.is_empty();
    if closes_nothing && event.kind == EventType::Commitment && !event.related.is_empty() {
        let what = format!(
            "{} has status closed but closes no other event; to close a commitment, name it in `supersedes`",
            event.id
        );
        found.push(IntegrityFinding::warning(IntegrityCheck::Related, what));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::line;
    use crate::ledger::tests::story;

    fn check(text: &str, expected: &[&str]) {
        let ledger = Ledger::parse(text.as_bytes(), None);
        let found = check_ledger(&ledger, &HashSet::new(), &BTreeSet::new());
        let found: Vec<&str> = found
            .iter()
            .filter(|finding| finding.fails)
            .map(|finding| finding.what.as_str())
            .collect();
        assert_eq!(found.len(), expected.len(), "{found:?}");
        for (found, part) in found.iter().zip(expected) {
            assert!(found.contains(part), "{found} has no {part}");
        }
    }

    fn ledger_lines(words: &str) -> Vec<String> {
        story(words).iter().map(line::format_line).collect()
    }

    // L12
    #[test]
    fn each_kind_of_damage_is_found() {
        check(&ledger_lines("f s1 c x3 r2").concat(), &[]);
        let three = ledger_lines("f f f");
        check(
            &[&three[0], &three[2]].map(String::as_str).concat(),
            &["EVT-20260213-002 is missing"],
        );
        check(&three[2..].concat(), &["EVT-20260213-001 to EVT-20260213-002 are missing"]);
        check(
            &[three.concat(), three[1].clone()].concat(),
            &["line 4 repeats EVT-20260213-002 of line 2"],
        );
        let other = three[1].replace("event 1", "event X");
        check(&[three.concat(), other].concat(), &["line 4 uses EVT-20260213-002 again"]);
        check(
            &[three[0].as_str(), "not json\n", &three[1]].concat(),
            &["line 2 is not a JSON object"],
        );
        check(
            &ledger_lines("f s9 f").concat(),
            &["supersedes EVT-20260213-009, which does not exist"],
        );
        check(&ledger_lines("f s3 f").concat(), &["comes after it"]);
        check(&ledger_lines("f s2").concat(), &["supersedes itself"]);
        check(&ledger_lines("f x7").concat(), &["refers to EVT-20260213-007"]);
        check(&ledger_lines("f r").concat(), &["has the act retract but names no event"]);
    }

    // L12
    #[test]
    fn archived_and_known_ids_leave_no_gap() {
        let text = ledger_lines("f f s1")[1..].concat();
        let ledger = Ledger::parse(text.as_bytes(), None);
        let first = EventId::new(ledger.entries()[0].event.id.day(), 1);
        assert_eq!(check_ledger(&ledger, &HashSet::from([first]), &BTreeSet::new()), []);
        assert_eq!(missing_ids(&ledger, &HashSet::new(), &BTreeSet::new()), [first]);
        assert!(missing_ids(&ledger, &HashSet::new(), &BTreeSet::from([first])).is_empty());
    }

    // L12
    #[test]
    fn a_changed_prefix_is_noticed() {
        let prefix = LedgerPrefix::from_text(b"one\ntwo\n");
        assert!(prefix.is_prefix_of(b"one\ntwo\nthree\n"));
        assert!(!prefix.is_prefix_of(b"one\nTwo\nthree\n"));
        assert!(!prefix.is_prefix_of(b"one\n"));
    }
}
