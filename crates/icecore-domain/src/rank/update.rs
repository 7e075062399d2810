//! Updates: when a question asks for the current state, a later statement ranks above the earlier
//! statement that it replaces.

use super::terms::words;
use super::vector::{Packed, dot};
use crate::record::Role;

/// Updates are looked for among this many of the best hits.
const AMONG: usize = 10;
/// The minimum score of an update relative to the best hit.
const GOOD_ENOUGH: f32 = 0.5;
/// From this similarity on, two passages are about the same subject: a long passage, which may
/// cover several subjects, and a short one.
const SAYS_SAME: f32 = 0.8;
const SAYS_SAME_SHORT: f32 = 0.4;
/// The same thresholds where the later passage mentions a change.
const SAYS_CHANGED: f32 = 0.6;
const SAYS_CHANGED_SHORT: f32 = 0.2;
/// Up to this many words, a passage holds a single statement.
const SHORT_WORDS: usize = 16;

/// Words that say that something is no longer as it was.
const CHANGES: &[&str] = &[
    "actually",
    "anymore",
    "became",
    "change",
    "changed",
    "correction",
    "dropped",
    "ended",
    "gone",
    "instead",
    "joined",
    "lately",
    "left",
    "longer",
    "migrated",
    "moved",
    "new",
    "now",
    "quit",
    "raised",
    "renamed",
    "replaced",
    "retired",
    "since",
    "sold",
    "started",
    "stopped",
    "switched",
    "update",
    "updated",
    "upgraded",
    "gekündigt",
    "geändert",
    "gewechselt",
    "jetzt",
    "neu",
    "neue",
    "neuer",
    "neues",
    "seit",
    "statt",
    "umgezogen",
    "inzwischen",
];

/// A search hit with what decides whether it updates another one.
#[derive(Debug, Clone)]
pub struct Told<'a> {
    pub score: f32,
    /// When it was said, in seconds since 1970.
    pub at: i64,
    /// The speaker: number of the name, and role.
    pub speaker: (u16, Option<Role>),
    /// Whether it contains a question.
    pub asks: bool,
    /// Which words of the question it contains, one bit per word.
    pub matched: u64,
    pub text: &'a str,
    pub vector: Option<Packed>,
}

/// Whether a text says that something is no longer as it was.
fn tells_change(text: &str) -> bool {
    words(text).iter().any(|word| CHANGES.contains(&word.lower.as_str()))
}

impl Told<'_> {
    /// Whether this hit is a newer version of what the other one says.
    fn replaces(&self, other: &Self) -> bool {
        if self.at <= other.at || self.speaker != other.speaker || self.asks {
            return false;
        }
        let has_words =
            2 * (other.matched & self.matched).count_ones() >= other.matched.count_ones().max(1);
        match (&self.vector, &other.vector) {
            (Some(own), Some(others)) => {
                let is_short = |text: &str| words(text).len() <= SHORT_WORDS;
                let (same, changed) = match is_short(self.text) && is_short(other.text) {
                    true => (SAYS_SAME_SHORT, SAYS_CHANGED_SHORT),
                    false => (SAYS_SAME, SAYS_CHANGED),
                };
                let near = dot(own, others);
                near >= same || near >= changed && tells_change(self.text)
            }
            _ => has_words && tells_change(self.text),
        }
    }
}

/// The new order of the hits, best first: an update stands directly above the hit it replaces.
pub fn order(told: &[Told<'_>]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..told.len()).collect();
    let floor = told.first().map_or(0.0, |best| best.score * GOOD_ENOUGH);
    for at in 1..told.len().min(AMONG) {
        if told[order[at]].score < floor {
            continue;
        }
        if let Some(place) = (0..at).find(|&place| told[order[at]].replaces(&told[order[place]])) {
            order[place..=at].rotate_right(1);
        }
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(text: &str, at: i64) -> Told<'_> {
        Told {
            score: 1.0,
            at,
            speaker: (0, Some(Role::User)),
            asks: text.contains('?'),
            matched: 1,
            text,
            vector: None,
        }
    }

    // Y9
    #[test]
    fn a_later_change_stands_above_what_it_changed() {
        let (old, new, other) = (
            told("I live in Rome.", 1),
            told("I live in Oslo now.", 9),
            told("Do I live well now?", 20),
        );
        assert_eq!(order(&[old.clone(), other.clone(), new.clone()]), [2, 0, 1]);
        assert_eq!(order(&[new.clone(), old.clone()]), [0, 1]);
        // A change of another speaker or subject is no update.
        assert_eq!(order(&[old.clone(), Told { speaker: (3, None), ..new.clone() }]), [0, 1]);
        assert_eq!(order(&[old.clone(), Told { matched: 2, ..new.clone() }]), [0, 1]);
        assert_eq!(order(&[old.clone(), Told { score: 0.3, ..new.clone() }]), [0, 1]);
        assert_eq!(order(&[old, told("I live for music.", 9)]), [0, 1]);
        assert!(order(&[]).is_empty());
    }
}
