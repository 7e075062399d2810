//! The corpus: the numbers that ranking needs of every passage, held in memory as fixed-size rows.
//!
//! Passages are numbered from 1 in the order in which they were indexed. The number of a deleted
//! passage stays empty. Search results do not depend on the numbers themselves.

use super::passage::{Passage, PassageKind};
use crate::record::Role;

/// The size of a stored row.
pub const ROW_BYTES: usize = 20;
/// The voice of a passage without a person's name.
pub const NO_VOICE: u16 = 0;
/// The group of a passage that belongs to none.
pub const NO_GROUP: u32 = 0;

/// The ranking data of one passage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PassageRow {
    /// When it was said, in seconds since 1970; `i64::MIN` if unknown.
    pub at: i64,
    /// The group it belongs to; [`NO_GROUP`] if none.
    pub group: u32,
    /// The number of its terms.
    pub length: u16,
    /// `None` if the passage was deleted.
    pub kind: Option<PassageKind>,
    pub role: Option<Role>,
    /// The number of the speaker's name; [`NO_VOICE`] if there is none.
    pub voice: u16,
    /// Whether it contains a question.
    pub asks: bool,
}

impl PassageRow {
    /// The row of a deleted passage.
    pub const DELETED: Self = Self {
        at: i64::MIN,
        group: NO_GROUP,
        length: 0,
        kind: None,
        role: None,
        voice: NO_VOICE,
        asks: false,
    };

    /// The row of a passage with `terms` terms, in that group and with that voice.
    pub fn from_passage(passage: &Passage, terms: u32, group: u32, voice: u16) -> Self {
        let at = match (passage.ts, passage.day) {
            (Some(ts), _) => ts.timestamp().as_second(),
            // Only the day is known: take its noon.
            (None, Some(day)) => {
                day.at(12, 0, 0, 0).in_tz("UTC").map_or(i64::MIN, |at| at.timestamp().as_second())
            }
            (None, None) => i64::MIN,
        };
        let length = u16::try_from(terms).unwrap_or(u16::MAX);
        Self {
            at,
            group,
            length,
            kind: Some(passage.kind),
            role: passage.role,
            voice,
            asks: passage.text.contains('?'),
        }
    }

    /// The stored form, [`ROW_BYTES`] long.
    pub fn to_bytes(&self) -> [u8; ROW_BYTES] {
        let mut bytes = [0; ROW_BYTES];
        bytes[..8].copy_from_slice(&self.at.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.group.to_le_bytes());
        bytes[12..14].copy_from_slice(&self.length.to_le_bytes());
        let place = |at: Option<usize>| at.and_then(|at| u8::try_from(at + 1).ok()).unwrap_or(0);
        bytes[14] = place(PassageKind::ALL.iter().position(|&kind| Some(kind) == self.kind));
        bytes[15] = place(Role::ALL.iter().position(|&role| Some(role) == self.role));
        bytes[16..18].copy_from_slice(&self.voice.to_le_bytes());
        bytes[18] = u8::from(self.asks);
        bytes
    }

    /// Reads the stored form.
    pub fn from_bytes(bytes: &[u8; ROW_BYTES]) -> Self {
        let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, kind, role, o, p, asks, _] = *bytes;
        Self {
            at: i64::from_le_bytes([a, b, c, d, e, f, g, h]),
            group: u32::from_le_bytes([i, j, k, l]),
            length: u16::from_le_bytes([m, n]),
            kind: usize::from(kind).checked_sub(1).and_then(|at| PassageKind::ALL.get(at).copied()),
            role: usize::from(role).checked_sub(1).and_then(|at| Role::ALL.get(at).copied()),
            voice: u16::from_le_bytes([o, p]),
            asks: asks != 0,
        }
    }
}

/// The rows of all passages, by number, with totals.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Corpus {
    rows: Vec<PassageRow>,
    /// The number of passages.
    pub passages: u32,
    /// The number of terms in all passages.
    pub length: u64,
    group_lengths: Vec<u32>,
    /// The number of groups.
    pub groups: u32,
    /// Passage numbers by group, then by time.
    order: Vec<u32>,
    /// The position of each passage in `order`.
    places: Vec<u32>,
}

impl Default for Corpus {
    fn default() -> Self {
        Self::from_bytes(&[])
    }
}

impl Corpus {
    /// Builds the corpus from concatenated rows. Row 0 belongs to no passage.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let mut rows: Vec<PassageRow> =
            bytes.as_chunks().0.iter().map(PassageRow::from_bytes).collect();
        if rows.is_empty() {
            rows.push(PassageRow::DELETED);
        }
        let mut corpus = Self {
            passages: 0,
            length: 0,
            group_lengths: Vec::new(),
            groups: 0,
            order: Vec::new(),
            places: Vec::new(),
            rows,
        };
        let highest = corpus.rows.iter().map(|row| row.group).max().unwrap_or(0);
        corpus.group_lengths = vec![0; highest as usize + 1];
        for row in corpus.rows.iter().filter(|row| row.kind.is_some()) {
            corpus.passages += 1;
            corpus.length += u64::from(row.length);
            if row.group != NO_GROUP {
                let length = &mut corpus.group_lengths[row.group as usize];
                // A group without terms still counts as a group.
                *length = length.saturating_add(u32::from(row.length).max(1));
            }
        }
        corpus.groups =
            u32::try_from(corpus.group_lengths.iter().filter(|&&length| length > 0).count())
                .unwrap_or(u32::MAX);
        corpus.build_order();
        corpus
    }

    /// Counting sort by group. Passages arrive nearly in time order, so few groups need sorting.
    fn build_order(&mut self) {
        let mut starts = vec![0_u32; self.group_lengths.len() + 1];
        for row in self.rows.iter().filter(|row| row.kind.is_some() && row.group != NO_GROUP) {
            starts[row.group as usize + 1] += 1;
        }
        for at in 1..starts.len() {
            starts[at] += starts[at - 1];
        }
        self.order = vec![0; starts.last().copied().unwrap_or(0) as usize];
        let mut next = starts.clone();
        for (number, row) in
            (0..).zip(&self.rows).filter(|(_, row)| row.kind.is_some() && row.group != NO_GROUP)
        {
            let place = &mut next[row.group as usize];
            self.order[*place as usize] = number;
            *place += 1;
        }
        for bounds in starts.windows(2) {
            let group = &mut self.order[bounds[0] as usize..bounds[1] as usize];
            if !group.is_sorted_by_key(|&number| self.rows[number as usize].at) {
                group.sort_by_key(|&number| self.rows[number as usize].at);
            }
        }
        self.places = vec![u32::MAX; self.rows.len()];
        for (place, &number) in (0..).zip(&self.order) {
            self.places[number as usize] = place;
        }
    }

    /// The passage `steps` positions after (or before) this one in its group.
    pub fn neighbor_in_group(&self, passage: u32, steps: i32) -> Option<u32> {
        let place =
            self.places.get(passage as usize).copied().filter(|&place| place != u32::MAX)?;
        let other = *self.order.get(place.checked_add_signed(steps)? as usize)?;
        (self.rows[other as usize].group == self.rows[passage as usize].group).then_some(other)
    }

    /// The passages of the group this passage belongs to, by time.
    pub fn group_passages(&self, passage: u32) -> &[u32] {
        let Some(place) = self
            .places
            .get(passage as usize)
            .map(|&place| place as usize)
            .filter(|&place| place < self.order.len())
        else {
            return &[];
        };
        let group = self.rows[passage as usize].group;
        let is_same = |number: &u32| self.rows[*number as usize].group == group;
        let first =
            place - self.order[..place].iter().rev().take_while(|number| is_same(number)).count();
        let last = place + self.order[place..].iter().take_while(|number| is_same(number)).count();
        &self.order[first..last]
    }

    /// The row of a passage; [`PassageRow::DELETED`] if there is none.
    pub fn row(&self, passage: u32) -> PassageRow {
        self.rows.get(passage as usize).copied().unwrap_or(PassageRow::DELETED)
    }

    /// Every passage with its number.
    pub fn iter_rows(&self) -> impl Iterator<Item = (u32, PassageRow)> + '_ {
        (0..).zip(self.rows.iter().copied()).filter(|(_, row)| row.kind.is_some())
    }

    /// One more than the highest passage number.
    pub fn passage_end(&self) -> u32 {
        u32::try_from(self.rows.len()).unwrap_or(u32::MAX)
    }

    /// The number of terms in a group.
    pub fn group_length(&self, group: u32) -> u32 {
        self.group_lengths.get(group as usize).copied().unwrap_or(0)
    }

    /// One more than the highest group number.
    pub fn group_end(&self) -> usize {
        self.group_lengths.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Y9
    #[test]
    fn rows_are_kept_as_they_are() {
        let message = PassageRow {
            at: -5,
            group: 2,
            length: 7,
            kind: Some(PassageKind::Message),
            role: Some(Role::Assistant),
            voice: 3,
            asks: true,
        };
        let rows = [
            PassageRow::DELETED,
            message,
            PassageRow {
                at: 1_700_000_000,
                group: NO_GROUP,
                length: u16::MAX,
                kind: Some(PassageKind::Artifact),
                role: None,
                voice: NO_VOICE,
                asks: false,
            },
            PassageRow {
                at: -9,
                length: 0,
                kind: Some(PassageKind::State),
                role: Some(Role::Tool),
                ..message
            },
            PassageRow::DELETED,
        ];
        let bytes: Vec<u8> = rows.iter().flat_map(PassageRow::to_bytes).collect();
        let corpus = Corpus::from_bytes(&bytes);
        assert_eq!((0..6).map(|at| corpus.row(at)).collect::<Vec<_>>()[..5], rows);
        assert_eq!(
            (corpus.passages, corpus.length, corpus.groups, corpus.passage_end()),
            (3, 7 + u64::from(u16::MAX), 1, 5)
        );
        assert_eq!((corpus.group_length(2), corpus.group_length(9)), (8, 0));
        assert_eq!(corpus.iter_rows().map(|(number, _)| number).collect::<Vec<_>>(), [1, 2, 3]);
        // By time, not by number.
        assert_eq!(corpus.group_passages(1), [3, 1]);
        assert_eq!(
            (
                corpus.neighbor_in_group(1, -1),
                corpus.neighbor_in_group(3, 1),
                corpus.neighbor_in_group(1, 1),
                corpus.neighbor_in_group(2, 1)
            ),
            (Some(3), Some(1), None, None)
        );
    }
}
