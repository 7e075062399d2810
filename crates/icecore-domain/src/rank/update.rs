//! Updates: what was said later replaces what was said before (where somebody asks how things are).

use super::terms::words;
use super::vector::{Packed, dot};
use crate::record::Role;

/// Among so many of the best an update is looked for.
const AMONG: usize = 10;
/// An update has to be so good an answer in comparison with the best.
const GOOD_ENOUGH: f32 = 0.5;
/// From so near on two passages speak of the same thing: a long one, which may speak of several
/// things, and a short one.
const SAYS_SAME: f32 = 0.8;
const SAYS_SAME_SHORT: f32 = 0.4;
/// Likewise where the later one tells of a change.
const SAYS_CHANGED: f32 = 0.6;
const SAYS_CHANGED_SHORT: f32 = 0.2;
/// So many words have room for one statement.
const SHORT_WORDS: usize = 16;

/// Words by which people tell that something is no longer as it was.
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

/// A passage that was found, as far as it may be an update.
#[derive(Debug, Clone)]
pub struct Told<'a> {
    /// How good an answer it is.
    pub score: f32,
    /// When it was said, in seconds since 1970.
    pub at: i64,
    /// Who speaks: the number of the name, and the role.
    pub speaker: (u16, Option<Role>),
    /// Whether it asks something.
    pub asks: bool,
    /// Which of the asked words stand in it, a bit for each.
    pub matched: u64,
    /// Its words.
    pub text: &'a str,
    /// Its vector, if it has one.
    pub vector: Option<Packed>,
}

/// Whether somebody tells that something is no longer as it was.
fn tells_change(text: &str) -> bool {
    words(text).iter().any(|word| CHANGES.contains(&word.lower.as_str()))
}

impl Told<'_> {
    /// Whether it tells anew what the other told before.
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

/// The order in which these are to stand, best first: each that replaces one above it stands above
/// that one.
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
        // Somebody else's change is not a change of mine, nor is one about something else.
        assert_eq!(order(&[old.clone(), Told { speaker: (3, None), ..new.clone() }]), [0, 1]);
        assert_eq!(order(&[old.clone(), Told { matched: 2, ..new.clone() }]), [0, 1]);
        assert_eq!(order(&[old.clone(), Told { score: 0.3, ..new.clone() }]), [0, 1]);
        assert_eq!(order(&[old, told("I live for music.", 9)]), [0, 1]);
        assert!(order(&[]).is_empty());
    }
}
