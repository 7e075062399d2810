//! Line-based files that only grow.

use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap};

use jiff::Timestamp;
use serde_json::Value;

use super::{MergeInput, merged_count};
use crate::calendar::Moment;

/// The JSON fields that may hold a line's time.
const TIME_FIELDS: [&str; 6] = ["ts", "recorded", "at", "captured", "archived", "finished"];

/// The lines of a text that are not blank, without line breaks.
pub(super) fn content_lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|byte| *byte == b'\n').filter(|line| !line.trim_ascii().is_empty())
}

/// Joins lines to a text.
pub(super) fn join_lines<'a>(lines: impl IntoIterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut out = Vec::new();
    for line in lines {
        out.extend_from_slice(line);
        out.push(b'\n');
    }
    out
}

/// Merges two sequences, each in its own order: the smaller next item goes first, and equal next
/// items become one.
pub(super) fn interleave<T: Clone>(
    ours: &[T],
    theirs: &[T],
    order: impl Fn(&T, &T) -> Ordering,
) -> Vec<T> {
    let (mut ours, mut theirs) = (ours.iter().peekable(), theirs.iter().peekable());
    let mut all = Vec::new();
    while let (Some(one), Some(other)) = (ours.peek(), theirs.peek()) {
        let order = order(one, other);
        if order.is_eq() {
            theirs.next();
        }
        let next = if order.is_le() { ours.next() } else { theirs.next() };
        all.extend(next.cloned());
    }
    all.extend(ours.chain(theirs).cloned());
    all
}

fn count_lines(text: &[u8]) -> HashMap<&[u8], usize> {
    let mut counts = HashMap::new();
    for line in content_lines(text) {
        *counts.entry(line).or_default() += 1;
    }
    counts
}

/// The time of a JSON line, if it has one.
fn line_time(line: &[u8]) -> Option<Timestamp> {
    let Value::Object(fields) = serde_json::from_slice(line).ok()? else { return None };
    let moment = |name: &&str| {
        Moment::parse(fields.get(*name)?.as_str()?).map(|read| read.moment.timestamp())
    };
    TIME_FIELDS.iter().find_map(moment)
}

/// A set merge of the lines: the base without what either side removed, then what either side
/// added, in order of time.
pub(super) fn merge_lines(sides: MergeInput<'_>) -> Vec<u8> {
    let (base, ours, theirs) =
        (count_lines(sides.base), count_lines(sides.ours), count_lines(sides.theirs));
    let count =
        |counts: &HashMap<&[u8], usize>, line: &[u8]| counts.get(line).copied().unwrap_or(0);
    let mut left: HashMap<&[u8], usize> = HashMap::new();
    for line in ours.keys().chain(theirs.keys()) {
        left.insert(
            line,
            merged_count(count(&base, line), count(&ours, line), count(&theirs, line)),
        );
    }
    let mut take =
        |line: &[u8]| left.get_mut(line).filter(|left| **left > 0).map(|left| *left -= 1).is_some();
    let mut kept: Vec<&[u8]> = content_lines(sides.base).filter(|line| take(line)).collect();
    // A line without a time belongs to the one before it.
    let added = |text| {
        let mut last = Timestamp::MIN;
        let mut added = Vec::new();
        for line in content_lines(text).filter(|line| !base.contains_key(line)) {
            last = line_time(line).unwrap_or(last);
            added.push((last, line));
        }
        added
    };
    let all = interleave(&added(sides.ours), &added(sides.theirs), Ord::cmp);
    kept.extend(all.into_iter().map(|(_, line)| line).filter(|line| take(line)));
    // Additional copies beyond those of the base.
    let more: BTreeMap<&[u8], usize> = left.into_iter().filter(|(_, left)| *left > 0).collect();
    kept.extend(more.into_iter().flat_map(|(line, left)| std::iter::repeat_n(line, left)));
    join_lines(kept)
}
