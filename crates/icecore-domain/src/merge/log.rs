//! Text that only grows: logs, the integrity log, reports.
//!
//! The unit is an entry: a line with everything that belongs to it. Entries are compared within
//! their section, so equal lines under different headings stay two. An entry that one side removed
//! stays removed, an entry that either side added exists once, and an entry that both sides changed
//! exists in both wordings: a log never has conflicts. Entries keep the order of their file; where
//! the two files do not determine the order, times do.

use std::collections::{HashMap, HashSet};

use icecore_text::markdown::{self, CodeFence};

use super::{MergeInput, merged_count};
use crate::calendar::Moment;

/// The deepest Markdown heading.
const MAX_HEADING_LEVEL: usize = 6;

/// An entry: its lines, and the number of blank lines before it.
#[derive(Clone, Copy)]
struct LogEntry<'a> {
    gap: usize,
    lines: &'a [&'a [u8]],
}

/// A heading and the lines below it, up to the next heading of its level.
#[derive(Clone, Copy)]
struct LogSection<'a> {
    gap: usize,
    heading: &'a [u8],
    body: &'a [&'a [u8]],
}

/// Merges three versions of a text by entries.
pub(super) fn merge_log(sides: MergeInput<'_>) -> Vec<u8> {
    let texts = [sides.base, sides.ours, sides.theirs].map(split_lines);
    let mut out = Vec::new();
    merge_level(texts.each_ref().map(Vec::as_slice), 1, &mut out);
    // Every line ends with a line break, and the text begins with its first content.
    let mut text: Vec<u8> = out.into_iter().flat_map(|line| [line, b"\n"].concat()).collect();
    let empty = text.iter().take_while(|byte| **byte == b'\n').count();
    text.drain(..empty);
    text
}

fn split_lines(text: &[u8]) -> Vec<&[u8]> {
    let mut lines: Vec<&[u8]> = text.split(|byte| *byte == b'\n').collect();
    while lines.last().is_some_and(|line| line.trim_ascii().is_empty()) {
        lines.pop();
    }
    lines
}

/// The level of a heading; 0 for any other line.
fn heading_level(line: &[u8]) -> usize {
    markdown::heading(&String::from_utf8_lossy(line)).map_or(0, |(level, _)| level)
}

/// Whether each line is inside a code block.
fn lines_in_code(lines: &[&[u8]]) -> Vec<bool> {
    let mut fence = CodeFence::default();
    let inside = |line: &&[u8]| fence.covers_indented_line(&String::from_utf8_lossy(line));
    lines.iter().map(inside).collect()
}

/// The number of blank lines at the end of a text.
fn trailing_gap(lines: &[&[u8]]) -> usize {
    lines.iter().rev().take_while(|line| line.trim_ascii().is_empty()).count()
}

/// The lines before the first heading of this level, and the sections.
fn split_sections<'a>(lines: &'a [&'a [u8]], of: usize) -> (&'a [&'a [u8]], Vec<LogSection<'a>>) {
    let code = lines_in_code(lines);
    let starts: Vec<usize> =
        (0..lines.len()).filter(|&at| !code[at] && heading_level(lines[at]) == of).collect();
    let Some(&first) = starts.first() else { return (lines, Vec::new()) };
    let end = |at: usize| starts.get(at + 1).copied().unwrap_or(lines.len());
    let sections = starts.iter().enumerate().map(|(at, &start)| LogSection {
        gap: trailing_gap(&lines[..start]),
        heading: lines[start],
        body: &lines[start + 1..end(at)],
    });
    (&lines[..first], sections.collect())
}

fn merge_level<'a>(sides: [&'a [&'a [u8]]; 3], of: usize, out: &mut Vec<&'a [u8]>) {
    if of > MAX_HEADING_LEVEL {
        return merge_entries(sides, out);
    }
    let split = sides.map(|lines| split_sections(lines, of));
    merge_level([split[0].0, split[1].0, split[2].0], of + 1, out);
    let keyed = [&split[0].1, &split[1].1, &split[2].1]
        .map(|sections| number_occurrences(sections.iter().map(|section| section.heading)));
    let find = |side: usize, key: &OccurrenceKey<&'a [u8]>| {
        keyed[side].iter().position(|known| known == key).map(|at| split[side].1[at])
    };
    let timed =
        |side: usize| fill_times(keyed[side].iter().map(|key| (*key, entry_time(key.0))).collect());
    for key in interleave(&timed(1), &timed(2)) {
        let found = [0, 1, 2].map(|side| find(side, &key));
        let body = found.map(|section| section.map_or(&[][..], |section| section.body));
        let mut below = Vec::new();
        merge_level(body, of + 1, &mut below);
        // A section that one side removed is still there if the other side added to it.
        let count = found.map(|section| usize::from(section.is_some()));
        if below.is_empty() && merged_count(count[0], count[1], count[2]) == 0 {
            continue;
        }
        let gap = found[1..].iter().flatten().map(|section| section.gap).max().unwrap_or(0);
        push_gap(gap, out);
        out.push(key.0);
        out.append(&mut below);
    }
}

fn push_gap(gap: usize, out: &mut Vec<&[u8]>) {
    let have = trailing_gap(out);
    out.extend(std::iter::repeat_n(&b""[..], gap.saturating_sub(have)));
}

/// The entries of a text without headings.
fn split_entries<'a>(lines: &'a [&'a [u8]]) -> Vec<LogEntry<'a>> {
    let code = lines_in_code(lines);
    let is_empty = |at: usize| lines[at].trim_ascii().is_empty() && !code[at];
    let begins = |at: usize| {
        let line = lines[at];
        let after_gap = at == 0 || is_empty(at - 1);
        let item = [&b"- "[..], b"* ", b"+ "].iter().any(|mark| line.starts_with(mark));
        let is_inside = at > 0 && code[at] && code[at - 1];
        let is_indented = line.starts_with(b" ") || line.starts_with(b"\t");
        let may_begin = item || (after_gap && !is_indented);
        may_begin && !is_inside && !is_empty(at)
    };
    let mut starts: Vec<usize> = (0..lines.len()).filter(|&at| begins(at)).collect();
    // The first lines belong to the first entry.
    if let Some(first) = (0..lines.len()).find(|&at| !is_empty(at))
        && starts.first() != Some(&first)
    {
        starts.insert(0, first);
    }
    let end = |at: usize| starts.get(at + 1).copied().unwrap_or(lines.len());
    starts
        .iter()
        .enumerate()
        .map(|(at, &start)| {
            let whole = &lines[start..end(at)];
            LogEntry {
                gap: trailing_gap(&lines[..start]),
                lines: &whole[..whole.len() - trailing_gap(whole)],
            }
        })
        .collect()
}

fn merge_entries<'a>(sides: [&'a [&'a [u8]]; 3], out: &mut Vec<&'a [u8]>) {
    let split = sides.map(split_entries);
    let keys =
        split.each_ref().map(|entries| number_occurrences(entries.iter().map(|entry| entry.lines)));
    let counts = keys.each_ref().map(|keys| {
        let mut counts: HashMap<&[&[u8]], usize> = HashMap::new();
        for (lines, _) in keys {
            *counts.entry(lines).or_default() += 1;
        }
        counts
    });
    let count = |side: usize, lines: &[&[u8]]| counts[side].get(lines).copied().unwrap_or(0);
    let stays = |key: &OccurrenceKey<&'a [&'a [u8]]>| {
        key.1 < merged_count(count(0, key.0), count(1, key.0), count(2, key.0))
    };
    let timed = |side: usize| {
        let all: Vec<_> = keys[side].iter().map(|key| (*key, entry_time(key.0[0]))).collect();
        let mut timed = fill_times(all);
        timed.retain(|(key, _)| stays(key));
        timed
    };
    // Lines before the first entry belong to the section, whichever entry comes first.
    let lead = split[1..]
        .iter()
        .filter_map(|entries| entries.first())
        .map(|entry| entry.gap)
        .max()
        .unwrap_or(0);
    let gaps: [HashMap<_, usize>; 2] = [1, 2].map(|side| {
        keys[side].iter().copied().zip(split[side].iter().map(|entry| entry.gap)).skip(1).collect()
    });
    for (at, key) in interleave(&timed(1), &timed(2)).into_iter().enumerate() {
        let own = gaps.iter().filter_map(|gaps| gaps.get(&key)).copied().max().unwrap_or(0);
        push_gap(if at == 0 { lead } else { own }, out);
        out.extend_from_slice(key.0);
    }
}

/// The identity of a text: itself, and the number of equal ones before it.
type OccurrenceKey<T> = (T, usize);

fn number_occurrences<T: Copy + Eq + std::hash::Hash>(
    texts: impl Iterator<Item = T>,
) -> Vec<OccurrenceKey<T>> {
    let mut seen: HashMap<T, usize> = HashMap::new();
    let number = |text: T| {
        let many = seen.entry(text).or_default();
        *many += 1;
        (text, *many - 1)
    };
    texts.map(number).collect()
}

/// The time by which lines are ordered.
type UnixSecs = i64;

/// Entries without a time get that of the entry before them.
fn fill_times<K>(keys: Vec<(K, Option<UnixSecs>)>) -> Vec<(K, UnixSecs)> {
    let mut last = UnixSecs::MIN;
    keys.into_iter()
        .map(|(key, time)| {
            last = time.unwrap_or(last);
            (key, last)
        })
        .collect()
}

/// The time at the beginning of a line, after its mark: `- 09:30 …`,
/// `- 2026-02-13T09:30:00+01:00 …`, `## Run 2026-…`.
fn entry_time(line: &[u8]) -> Option<UnixSecs> {
    let text = std::str::from_utf8(line).ok()?;
    text.split_ascii_whitespace().skip(1).take(2).find_map(|word| {
        let clock =
            word.split_once(':').filter(|(hours, minutes)| hours.len() == 2 && minutes.len() == 2);
        match clock.and_then(|(hours, minutes)| {
            Some((hours.parse::<UnixSecs>().ok()?, minutes.parse::<UnixSecs>().ok()?))
        }) {
            Some((hours, minutes)) => Some(hours * 3_600 + minutes * 60),
            None => word
                .contains('T')
                .then(|| Moment::parse(word))
                .flatten()
                .map(|read| read.moment.timestamp().as_second()),
        }
    })
}

/// Merges two sequences of keys into one order, each key once. A key that only one side has keeps
/// its position among the shared ones; otherwise the earlier time goes first. The result does not
/// depend on which side is ours.
fn interleave<K: Copy + Ord + std::hash::Hash>(
    ours: &[(K, UnixSecs)],
    theirs: &[(K, UnixSecs)],
) -> Vec<K> {
    let known = |side: &[(K, UnixSecs)]| side.iter().map(|(key, _)| *key).collect::<HashSet<K>>();
    let (in_ours, in_theirs) = (known(ours), known(theirs));
    let (mut ours, mut theirs) = (ours.iter().peekable(), theirs.iter().peekable());
    let (mut all, mut done) = (Vec::new(), HashSet::new());
    loop {
        while ours.next_if(|(key, _)| done.contains(key)).is_some() {}
        while theirs.next_if(|(key, _)| done.contains(key)).is_some() {}
        let key = match (ours.peek(), theirs.peek()) {
            (Some((one, one_time)), Some((other, other_time))) => {
                match (in_theirs.contains(one), in_ours.contains(other)) {
                    (true, false) => *other,
                    (false, true) => *one,
                    _ if (one_time, one) <= (other_time, other) => *one,
                    _ => *other,
                }
            }
            (Some((key, _)), None) | (None, Some((key, _))) => *key,
            (None, None) => return all,
        };
        done.insert(key);
        all.push(key);
    }
}
