//! Statements that cannot both be true. They are shown, never resolved in silence.
//!
//! A statement is reduced to *claims*: an attribute of something, and the value it is said to have. Two
//! active statements about the same entity whose claims name the same attribute with another value
//! contradict each other. What a claim is errs on the side of silence: a conflict shown wrongly costs
//! trust, so only attributes that can have but one value at a time are read as claims.

use std::collections::{BTreeMap, HashSet};

use crate::event::{Event, Kind};
use crate::id::EventId;
use crate::ledger::{Entry, Ledger};
use crate::plain;

/// One attribute and the value it is said to have.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Claim {
    /// Entity, scope and attribute, normalised.
    pub attribute: String,
    /// The value, normalised.
    pub value: String,
}

/// Why two or more events are at odds.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Conflict {
    /// What they disagree about.
    pub about: String,
    /// The events, oldest first.
    pub events: Vec<EventId>,
}

/// Verbs that give a thing one value at a time.
const STATE_VERBS: &[&str] = &[
    "is based in",
    "is located in",
    "is in",
    "is at",
    "is on",
    "is due on",
    "is due",
    "is called",
    "is named",
    "lives in",
    "lives at",
    "works at",
    "works for",
    "moved to",
    "costs",
    "runs on",
    "is",
    "are",
    "=",
    "equals",
];
const NEGATIONS: &[&str] = &["not", "never", "no", "don't", "doesn't", "cannot", "can't", "isn't", "aren't", "won't", "without"];
const EMPHASIS: &[&str] = &["always", "must", "do", "does", "should", "will", "can"];
/// A value that starts so is one of many a thing may have at once.
const OPEN_VALUES: &[&str] = &["a", "an", "one", "also", "some", "part", "about", "very", "too", "going", "being", "now"];

/// The longest text that is read as a claim, in bytes.
const MAX_CLAIM_BYTES: usize = 400;

/// What a statement claims. Commitments claim nothing: two promises are not a contradiction.
pub fn claims(event: &Event) -> Vec<Claim> {
    if !event.is_statement() || event.kind == Kind::Commitment {
        return Vec::new();
    }
    // One sentence says one thing; what a longer text claims is for a reader to judge.
    if event.content.len() > MAX_CLAIM_BYTES {
        return Vec::new();
    }
    let key = plain::sameness_key(&event.content);
    let words: Vec<&str> = key.split_whitespace().map(|word| word.trim_matches([',', ';', '"', '`', '\''])).collect();
    if words.len() > 24 {
        return Vec::new();
    }
    let about = format!("{}|{}|", event.entity.as_deref().unwrap_or(""), event.scope);
    let claim = |attribute: String, value: String| Claim { attribute: format!("{about}{attribute}"), value };
    let mut found = Vec::new();

    if let Some((subject, verb, value)) = split_at_verb(&words) {
        let shape: Vec<String> = value.iter().map(|word| mask(word)).collect();
        let counted = shape.iter().zip(value).any(|(masked, word)| masked != word);
        let single = value.len() <= 3 && !OPEN_VALUES.contains(&value[0]) && !NEGATIONS.contains(&value[0]) && !value[0].ends_with("ing");
        if counted {
            // The same sentence with another number or date.
            found.push(claim(format!("{} {verb} {}", subject.join(" "), shape.join(" ")), value.join(" ")));
        } else if single {
            found.push(claim(format!("{} {verb}", subject.join(" ")), value.join(" ")));
        }
    }

    // The same sentence with and without a negation.
    let bare: Vec<&str> = words.iter().copied().filter(|word| !NEGATIONS.contains(word) && !EMPHASIS.contains(word)).collect();
    if bare.len() >= 2 {
        let negated = words.iter().filter(|word| NEGATIONS.contains(word)).count() % 2 == 1;
        found.push(claim(format!("± {}", bare.join(" ")), if negated { "no" } else { "yes" }.into()));
    }
    found
}

/// Subject, verb and value of a simple statement: `budget: 500` or `the budget is 500`.
fn split_at_verb<'a>(words: &'a [&'a str]) -> Option<(&'a [&'a str], &'static str, &'a [&'a str])> {
    if let Some(at) = words.iter().position(|word| word.ends_with(':') && word.len() > 1) {
        let value = &words[at + 1..];
        return (at < 4 && !value.is_empty()).then_some((&words[..=at], "", value));
    }
    for at in 1..words.len() {
        for verb in STATE_VERBS {
            let mut rest = words[at..].iter();
            if verb.split(' ').all(|part| rest.next() == Some(&part)) && !rest.as_slice().is_empty() {
                return Some((&words[..at], verb, rest.as_slice()));
            }
        }
    }
    None
}

/// A word that counts or dates something, with what varies in it masked.
fn mask(word: &str) -> String {
    const DATES: &[&str] = &[
        "monday",
        "tuesday",
        "wednesday",
        "thursday",
        "friday",
        "saturday",
        "sunday",
        "january",
        "jan",
        "february",
        "feb",
        "march",
        "mar",
        "april",
        "apr",
        "may",
        "june",
        "jun",
        "july",
        "jul",
        "august",
        "aug",
        "september",
        "sep",
        "october",
        "oct",
        "november",
        "nov",
        "december",
        "dec",
    ];
    if DATES.contains(&word) {
        return "#".into();
    }
    if !word.contains(|c: char| c.is_ascii_digit()) {
        return word.into();
    }
    let masked: String = word.chars().map(|c| if c.is_ascii_digit() || c == '.' || c == ',' { '#' } else { c }).collect();
    let mut out = String::new();
    for c in masked.chars() {
        if !(c == '#' && out.ends_with('#')) {
            out.push(c);
        }
    }
    out
}

/// Every conflict among `entries`: contradicting claims of active statements.
pub fn among<'a>(entries: impl IntoIterator<Item = &'a Entry>) -> Vec<Conflict> {
    let mut held: Vec<(EventId, Claim)> = Vec::new();
    for entry in entries {
        if entry.standing.is_active() {
            held.extend(claims(&entry.event).into_iter().map(|claim| (entry.event.id, claim)));
        }
    }
    between(&held)
}

/// The conflicts among these claims, each event named once per conflict, in order of the first event.
pub fn between(held: &[(EventId, Claim)]) -> Vec<Conflict> {
    let mut by_attribute: BTreeMap<&str, Vec<(EventId, &str)>> = BTreeMap::new();
    for (id, claim) in held {
        by_attribute.entry(&claim.attribute).or_default().push((*id, &claim.value));
    }
    let mut found: Vec<Conflict> = Vec::new();
    let mut seen: HashSet<Vec<EventId>> = HashSet::new();
    for (attribute, values) in by_attribute {
        if values.iter().all(|(_, value)| *value == values[0].1) {
            continue;
        }
        let mut events: Vec<EventId> = values.iter().map(|(id, _)| *id).collect();
        events.sort();
        events.dedup();
        let about = readable(attribute);
        if seen.insert(events.clone()) {
            found.push(Conflict { about, events });
        }
    }
    found.sort_by(|a, b| a.events.cmp(&b.events));
    found
}

/// Two active events that both replace the same one.
pub fn forks(ledger: &Ledger) -> Vec<Conflict> {
    let mut heads: BTreeMap<EventId, Vec<EventId>> = BTreeMap::new();
    for entry in ledger.entries().iter().filter(|entry| entry.standing.is_active() && entry.event.is_statement()) {
        for &replaced in &entry.event.supersedes {
            heads.entry(replaced).or_default().push(entry.event.id);
        }
    }
    heads
        .into_iter()
        .filter(|(_, heads)| heads.len() > 1)
        .map(|(replaced, events)| Conflict { about: format!("which of them replaces {replaced}"), events })
        .collect()
}

/// The attribute for a person: without scope, marks and verb.
fn readable(attribute: &str) -> String {
    let mut parts = attribute.splitn(3, '|');
    let (entity, _scope, what) = (parts.next().unwrap_or(""), parts.next(), parts.next().unwrap_or(""));
    let what = what.trim_start_matches("± ").trim_end_matches([' ', ':', '=']).replace('#', "…");
    if entity.is_empty() { what } else { format!("{entity}: {what}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calendar::Moment;
    use crate::event::{Draft, Priority};

    fn conflicts(kind: Kind, one: &str, other: &str) -> Vec<Conflict> {
        let ts = Moment::read("2026-02-13T09:30:00+01:00").unwrap().moment;
        let events =
            [one, other].into_iter().zip(1..).map(|(text, n)| Draft::new(ts, kind, Priority::P2, text).with_id(EventId::new(ts.day(), n)));
        among(Ledger::of(events).entries())
    }

    // L6
    #[test]
    fn another_value_for_the_same_attribute_is_a_conflict() {
        for (one, other) in [
            ("The budget is 500 EUR", "The budget is 600 EUR."),
            ("Python version: 3.11", "python version: 3.12"),
            ("Alice lives in Berlin", "Alice lives in Hamburg"),
            ("The release is on Monday", "the release is on Tuesday"),
            ("The database is Postgres", "The database is MySQL"),
            ("Deploy on Fridays", "Never deploy on Fridays"),
            ("Always deploy on Fridays", "Do not deploy on Fridays"),
            ("The review is due 2026-02-13", "The review is due 2026-02-14"),
        ] {
            assert_eq!(conflicts(Kind::Fact, one, other).len(), 1, "{one} / {other}");
        }
    }

    // L6
    #[test]
    fn what_can_both_be_true_is_no_conflict() {
        for (one, other) in [
            ("The budget is 500 EUR", "the budget is 500 EUR"),
            ("Python version: 3.11", "Python virtualenv: .venv"),
            ("Alice is a developer", "Alice is a mother"),
            ("Alice is in Berlin", "Alice is tall"),
            ("Paid invoice 1001", "Paid invoice 1002"),
            ("Never deploy on Fridays", "Never deploy on Mondays"),
            ("Alice prefers tea", "Alice prefers coffee"),
        ] {
            assert_eq!(conflicts(Kind::Fact, one, other), [], "{one} / {other}");
        }
        assert_eq!(conflicts(Kind::Commitment, "The offer is due 2026-02-13", "The offer is due 2026-02-14"), []);
    }
}
