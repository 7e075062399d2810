//! Branches of a conversation: which earlier turns a turn follows.
//!
//! A person edits a message, deletes a turn or switches back to an older version, and the client
//! sends a history that contradicts the recorded turns. The new turn then starts a branch. Every
//! Every turn has a path: the turns before it that its client still shows. A model only ever gets
//! content from turns of the path. Records are never changed: a branch is one line in the
//! conversation's folder, and a turn without a line follows the turn before it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::calendar::Moment;

/// A set of turns in ascending order, as inclusive ranges.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnSet(Vec<(u64, u64)>);

impl TurnSet {
    /// All turns from 1 to `last`.
    pub fn up_to(last: u64) -> Self {
        let mut turns = Self::default();
        turns.extend_to(1, last);
        turns
    }

    /// Appends `first..=last`, which must come after all other turns.
    fn extend_to(&mut self, first: u64, last: u64) {
        if first > last {
            return;
        }
        match self.0.last_mut() {
            Some((_, end)) if end.checked_add(1) == Some(first) => *end = last,
            _ => self.0.push((first, last)),
        }
    }

    /// Whether the set contains a turn.
    pub fn contains(&self, turn: u64) -> bool {
        self.0.iter().any(|(first, last)| (*first..=*last).contains(&turn))
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// This set plus a later turn.
    #[must_use]
    pub fn with(mut self, turn: u64) -> Self {
        self.extend_to(turn, turn);
        self
    }

    /// Whether the ranges are in ascending order; a file may contain anything.
    fn is_ascending(&self) -> bool {
        self.0.iter().all(|(first, last)| first <= last)
            && self.0.windows(2).all(|pair| pair[0].1 < pair[1].0)
    }
}

impl FromIterator<u64> for TurnSet {
    fn from_iter<I: IntoIterator<Item = u64>>(turns: I) -> Self {
        let mut all: Vec<u64> = turns.into_iter().collect();
        all.sort_unstable();
        all.dedup();
        let mut set = Self::default();
        for turn in all {
            set.extend_to(turn, turn);
        }
        set
    }
}

/// A line of `branches.jsonl`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct BranchLine {
    turn: u64,
    follows: TurnSet,
    /// Whether the front end made the request on its own behalf, such as for a title. Such a turn
    /// is never the head of the conversation.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    background: bool,
    #[serde(default)]
    ts: String,
}

/// The branches of a conversation, by the turns that start them. The last line of a turn counts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Branches(BTreeMap<u64, BranchLine>);

impl Branches {
    /// Parses `branches.jsonl`. A malformed line is skipped: its turn then follows the turn before
    /// it.
    pub fn parse(text: &[u8]) -> Self {
        let lines = text
            .split(|byte| *byte == b'\n')
            .filter_map(|line| serde_json::from_slice::<BranchLine>(line).ok());
        Self(
            lines
                .filter(|line| line.follows.is_ascending())
                .map(|line| (line.turn, line))
                .collect(),
        )
    }

    /// The line that records which turns a turn follows.
    pub fn line(turn: u64, follows: &TurnSet, background: bool, ts: Moment) -> String {
        let line = BranchLine { turn, follows: follows.clone(), background, ts: ts.to_string() };
        serde_json::to_string(&line).map(|line| line + "\n").unwrap_or_default()
    }

    /// Whether there are no branches.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the front end made a turn on its own behalf.
    pub fn is_background(&self, turn: u64) -> bool {
        self.0.get(&turn).is_some_and(|line| line.background)
    }

    /// The turns that a turn follows.
    pub fn turns_before(&self, turn: u64) -> TurnSet {
        match self.0.range(..=turn).next_back() {
            None => TurnSet::up_to(turn.saturating_sub(1)),
            Some((start, line)) => {
                let mut turns = line.follows.clone();
                turns.extend_to(*start, turn.saturating_sub(1));
                turns
            }
        }
    }

    /// The current turn of the conversation, of those up to `last`.
    ///
    /// A branch that shares no turn with the rest becomes the head only once a turn follows it:
    /// front ends send requests of their own under the id of a chat.
    pub fn head(&self, last: u64) -> u64 {
        let mut alone = None;
        for turn in (1..=last).rev() {
            match self.0.get(&turn) {
                None => return turn,
                Some(line) if line.background => {}
                Some(line) if !line.follows.is_empty() => return turn,
                Some(_) => alone = Some(turn),
            }
        }
        alone.unwrap_or(last)
    }

    /// The turns of the current path: the head and the turns it follows.
    pub fn active(&self, last: u64) -> TurnSet {
        match self.head(last) {
            0 => TurnSet::default(),
            head => self.turns_before(head).with(head),
        }
    }

    /// The last turn of every branch up to `last`, newest first.
    pub fn heads(&self, last: u64) -> Vec<u64> {
        // A branch ends before the next line. A later line that continues it contains it in its
        // path.
        let mut ends: Vec<u64> =
            self.0.range(1..=last.max(1)).map(|(turn, _)| turn - 1).chain([last]).collect();
        ends.retain(|turn| *turn > 0);
        ends.dedup();
        ends.reverse();
        ends
    }
}

/// How well a sent exchange matches a recorded one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ExchangeMatch {
    No,
    /// The same exchange, with one side worded differently.
    Partly,
    Whole,
}

/// The correspondence between a sent history and the recorded turns of a path.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HistoryAlignment {
    /// Pairs of positions: in the sent history, in the path.
    pub pairs: Vec<(usize, usize)>,
    /// Higher is better.
    pub score: usize,
}

/// Maximum number of comparisons for the part of a history that does not match in order.
const MAX_COMPARISONS: usize = 1_000_000;

/// Aligns `sent` exchanges with the `recorded` ones of a path, in order.
pub fn align_history(
    sent: usize,
    recorded: usize,
    fit: impl Fn(usize, usize) -> ExchangeMatch,
) -> HistoryAlignment {
    // How many match at least this well from the front, and from the back of the rest.
    let ends = |least: ExchangeMatch| {
        let front = (0..sent.min(recorded)).take_while(|at| fit(*at, *at) >= least).count();
        let room = (sent - front).min(recorded - front);
        (front, (1..=room).take_while(|at| fit(sent - at, recorded - at) >= least).count())
    };
    let is_much = |(front, back): (usize, usize)| {
        (sent - front - back).saturating_mul(recorded - front - back) > MAX_COMPARISONS
    };
    let (front, back) = Some(ends(ExchangeMatch::Whole))
        .filter(|ends| !is_much(*ends))
        .unwrap_or_else(|| ends(ExchangeMatch::Partly));
    let mut pairs: Vec<(usize, usize)> = (0..front).map(|at| (at, at)).collect();
    let (rows, columns) = (sent - front - back, recorded - front - back);
    if rows > 0 && columns > 0 && !is_much((front, back)) {
        // The longest common subsequence; a whole match has more weight.
        let weight = |row: usize, column: usize| match fit(front + row, front + column) {
            ExchangeMatch::No => 0,
            ExchangeMatch::Partly => 2,
            ExchangeMatch::Whole => 3_u32,
        };
        let mut best = vec![0_u32; (rows + 1) * (columns + 1)];
        let at = |row: usize, column: usize| row * (columns + 1) + column;
        for row in (0..rows).rev() {
            for column in (0..columns).rev() {
                let together = match weight(row, column) {
                    0 => 0,
                    weight => weight + best[at(row + 1, column + 1)],
                };
                best[at(row, column)] =
                    together.max(best[at(row + 1, column)]).max(best[at(row, column + 1)]);
            }
        }
        let (mut row, mut column) = (0, 0);
        while row < rows && column < columns {
            let here = best[at(row, column)];
            if here == best[at(row + 1, column)] {
                row += 1;
            } else if here == best[at(row, column + 1)] {
                column += 1;
            } else {
                pairs.push((front + row, front + column));
                (row, column) = (row + 1, column + 1);
            }
        }
    }
    pairs.extend((1..=back).rev().map(|at| (sent - at, recorded - at)));
    let score = pairs
        .iter()
        .map(|(sent, recorded)| if fit(*sent, *recorded) == ExchangeMatch::Whole { 3 } else { 2 })
        .sum();
    HistoryAlignment { pairs, score }
}

impl HistoryAlignment {
    /// The positions of the path that the client still shows: those that match, and the oldest ones
    /// if the client truncated its history at the front. A position between two matches was
    /// deleted; one after the last match was withdrawn.
    pub fn shown_positions(&self) -> Vec<usize> {
        let Some(&(sent, recorded)) = self.pairs.first() else { return Vec::new() };
        // As many unknown exchanges in front as recorded ones: they were edited, not truncated.
        let cut = if sent < recorded { recorded } else { 0 };
        (0..cut).chain(self.pairs.iter().map(|(_, recorded)| *recorded)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn moment() -> Moment {
        Moment::parse("2026-02-13T09:30:00+01:00").unwrap().moment
    }

    fn turns(all: &[u64]) -> TurnSet {
        all.iter().copied().collect()
    }

    fn read(lines: &[(u64, &[u64], bool)]) -> Branches {
        let text: String = lines
            .iter()
            .map(|(turn, follows, background)| {
                Branches::line(*turn, &turns(follows), *background, moment())
            })
            .collect();
        Branches::parse(text.as_bytes())
    }

    // C1, C3
    #[test]
    fn a_turn_follows_the_one_before_it_unless_a_line_says_otherwise() {
        let none = Branches::default();
        assert_eq!(
            (none.turns_before(1), none.turns_before(4), none.active(3)),
            (turns(&[]), turns(&[1, 2, 3]), turns(&[1, 2, 3]))
        );
        assert_eq!(none.active(0), turns(&[]));
        // Turn 3 was edited and the edit continued to 5; then the person switched back and
        // continued with 6 after 3.
        let edited = read(&[(4, &[1, 2], false), (6, &[1, 2, 3], false)]);
        for (turn, path) in
            [(3, &[1, 2][..]), (4, &[1, 2]), (5, &[1, 2, 4]), (6, &[1, 2, 3]), (7, &[1, 2, 3, 6])]
        {
            assert_eq!(edited.turns_before(turn), turns(path), "{turn}");
        }
        assert_eq!(
            (edited.active(5), edited.active(7)),
            (turns(&[1, 2, 4, 5]), turns(&[1, 2, 3, 6, 7]))
        );
        assert_eq!(edited.heads(7), [7, 5, 3]);
        // A torn or invalid line does no harm.
        assert_eq!(
            Branches::parse(b"{\"turn\":4,\"foll\n{\"turn\":5,\"follows\":[[3,1]]}\n\n"),
            none
        );
    }

    // C1, C3
    #[test]
    fn a_request_that_shares_nothing_is_no_head_before_it_goes_on() {
        // A title is requested after turn 2; the chat continues with 4.
        let title = read(&[(3, &[], false)]);
        assert_eq!((title.head(3), title.active(3)), (2, turns(&[1, 2])));
        let went_on = read(&[(3, &[], false), (4, &[1, 2], false)]);
        assert_eq!((went_on.head(4), went_on.active(5)), (4, turns(&[1, 2, 4, 5])));
        // The first message was edited, and the chat continued from there.
        let edited = read(&[(3, &[], false)]);
        assert_eq!((edited.head(4), edited.active(4)), (4, turns(&[3, 4])));
        // A front-end task came before the first message.
        let before = read(&[(1, &[], true), (2, &[], false)]);
        assert_eq!((before.head(1), before.head(2)), (1, 2));
    }

    /// Exchanges as letters: the question, then the reply; `.` stands for a different reply.
    fn visible_positions(sent: &str, recorded: &str) -> Vec<usize> {
        let (sent, recorded): (Vec<&str>, Vec<&str>) =
            (sent.split_whitespace().collect(), recorded.split_whitespace().collect());
        let fit = |one: usize, other: usize| match (sent[one], recorded[other]) {
            (one, other) if one == other => ExchangeMatch::Whole,
            (one, other) if one[..1] == other[..1] => ExchangeMatch::Partly,
            _ => ExchangeMatch::No,
        };
        align_history(sent.len(), recorded.len(), fit).shown_positions()
    }

    // C1, C3
    #[test]
    fn what_a_client_shows_of_the_recorded_turns() {
        for (sent, recorded, expected) in [
            ("", "aA bB", &[][..]),
            ("aA bB cC", "aA bB cC", &[0, 1, 2]),
            // Edited or asked again: the later turns are withdrawn.
            ("aA", "aA bB cC", &[0]),
            // Deleted in the middle.
            ("aA cC", "aA bB cC", &[0, 2]),
            ("aA dD", "aA bB cC dD eE", &[0, 3]),
            // Edited in the middle, without a new turn after it.
            ("aA xX cC", "aA bB cC", &[0, 2]),
            // Truncated or summarized at the front.
            ("cC dD", "aA bB cC dD", &[0, 1, 2, 3]),
            ("sS cC", "aA bB cC", &[0, 1, 2]),
            // The first was edited, the rest kept.
            ("xX bB", "aA bB", &[1]),
            // The chat began elsewhere; one turn was not recorded.
            ("xX yY aA", "aA", &[0]),
            ("aA xX bB", "aA bB", &[0, 1]),
            // A reply in other words is the same exchange; of two candidates the right one is
            // found.
            ("aA b. cC", "aA bB cC", &[0, 1, 2]),
            ("aA oP", "aA oO oP", &[0, 2]),
            // Nothing in common.
            ("xX yY", "aA bB", &[]),
        ] {
            assert_eq!(visible_positions(sent, recorded), expected, "{sent} / {recorded}");
        }
    }

    proptest! {
        #[test]
        fn sets_of_turns_hold_what_was_put_in(all in prop::collection::btree_set(1_u64..60, 0..40), other in 1_u64..60) {
            let set: TurnSet = all.iter().copied().collect();
            prop_assert!(set.is_ascending());
            prop_assert_eq!(set.contains(other), all.contains(&other));
            prop_assert_eq!(set.is_empty(), all.is_empty());
        }

        #[test]
        fn a_history_that_extends_the_path_shows_all_of_it(recorded in 0_usize..40, more in 0_usize..5) {
            let aligned = align_history(recorded + more, recorded, |one, other| if one == other { ExchangeMatch::Whole } else { ExchangeMatch::No });
            prop_assert_eq!(aligned.shown_positions(), (0..recorded).collect::<Vec<_>>());
        }

        #[test]
        fn any_bytes_are_read(bytes in prop::collection::vec(any::<u8>(), 0..200), last in 0_u64..20) {
            let branches = Branches::parse(&bytes);
            let _ = (branches.active(last), branches.heads(last));
        }
    }
}
