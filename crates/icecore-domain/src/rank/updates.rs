//! Updates: when a question asks for the current state, a later statement ranks above the earlier
//! statement that it replaces.

use icecore_text::lexicon::WordList;

use super::terms::tokenize;
use super::vector::{PackedVector, dot_product};
use crate::record::Role;

/// Updates are looked for among this many of the best hits.
const MAX_HITS_COMPARED: usize = 10;
/// The minimum score of an update relative to the best hit.
const MIN_SCORE_RATIO: f32 = 0.5;
/// From this similarity on, two passages are about the same subject: a long passage, which may
/// cover several subjects, and a short one.
const MIN_SIMILARITY: f32 = 0.8;
const MIN_SIMILARITY_SHORT: f32 = 0.4;
/// The same thresholds where the later passage mentions a change.
const MIN_SIMILARITY_OF_CHANGE: f32 = 0.6;
const MIN_SIMILARITY_OF_CHANGE_SHORT: f32 = 0.2;
/// Up to this many words, a passage holds a single statement.
const MAX_WORDS_OF_SHORT_TEXT: usize = 16;

/// A search hit with what decides whether it updates another one.
#[derive(Debug, Clone)]
pub struct RankedHit<'a> {
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
    pub vector: Option<PackedVector>,
}

/// Whether a text says that something is no longer as it was.
fn mentions_change(text: &str) -> bool {
    tokenize(text).iter().any(|word| WordList::Change.contains(&word.lower))
}

impl RankedHit<'_> {
    /// Whether this hit is a newer version of what the other one says.
    fn is_update_of(&self, other: &Self) -> bool {
        if self.at <= other.at || self.speaker != other.speaker || self.asks {
            return false;
        }
        let has_words =
            2 * (other.matched & self.matched).count_ones() >= other.matched.count_ones().max(1);
        match (&self.vector, &other.vector) {
            (Some(own), Some(others)) => {
                let is_short = |text: &str| tokenize(text).len() <= MAX_WORDS_OF_SHORT_TEXT;
                let (same, changed) = match is_short(self.text) && is_short(other.text) {
                    true => (MIN_SIMILARITY_SHORT, MIN_SIMILARITY_OF_CHANGE_SHORT),
                    false => (MIN_SIMILARITY, MIN_SIMILARITY_OF_CHANGE),
                };
                let near = dot_product(own, others);
                near >= same || near >= changed && mentions_change(self.text)
            }
            _ => has_words && mentions_change(self.text),
        }
    }
}

/// The new order of the hits, best first: an update stands directly above the hit it replaces.
pub fn order_with_updates_first(told: &[RankedHit<'_>]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..told.len()).collect();
    let floor = told.first().map_or(0.0, |best| best.score * MIN_SCORE_RATIO);
    for at in 1..told.len().min(MAX_HITS_COMPARED) {
        if told[order[at]].score < floor {
            continue;
        }
        if let Some(place) =
            (0..at).find(|&place| told[order[at]].is_update_of(&told[order[place]]))
        {
            order[place..=at].rotate_right(1);
        }
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hit_at(text: &str, at: i64) -> RankedHit<'_> {
        RankedHit {
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
            hit_at("I live in Rome.", 1),
            hit_at("I live in Oslo now.", 9),
            hit_at("Do I live well now?", 20),
        );
        assert_eq!(order_with_updates_first(&[old.clone(), other.clone(), new.clone()]), [2, 0, 1]);
        assert_eq!(order_with_updates_first(&[new.clone(), old.clone()]), [0, 1]);
        // A change of another speaker or subject is not an update.
        assert_eq!(
            order_with_updates_first(&[
                old.clone(),
                RankedHit { speaker: (3, None), ..new.clone() }
            ]),
            [0, 1]
        );
        assert_eq!(
            order_with_updates_first(&[old.clone(), RankedHit { matched: 2, ..new.clone() }]),
            [0, 1]
        );
        assert_eq!(
            order_with_updates_first(&[old.clone(), RankedHit { score: 0.3, ..new.clone() }]),
            [0, 1]
        );
        assert_eq!(order_with_updates_first(&[old, hit_at("I live for music.", 9)]), [0, 1]);
        assert!(order_with_updates_first(&[]).is_empty());
    }
}
