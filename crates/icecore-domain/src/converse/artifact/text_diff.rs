//! Text diffs: the changes between two texts, by line or by word, in bounded time.

use std::collections::HashMap;
use std::hash::Hash;

/// Maximum length of a diff, in lines.
pub const MAX_DIFF_LINES: usize = 1_000;
/// Maximum average length of a diff line, so that a few very long lines do not exceed the limit.
const MAX_AVERAGE_LINE_BYTES: usize = 400;
/// Unchanged lines shown around each change.
const CONTEXT_LINES: usize = 3;
/// Maximum number of steps of the exact search per diff. The rest counts as replaced.
const MAX_SEARCH_STEPS: usize = 16_000_000;

/// A unified diff with three lines of context, empty if nothing changed. A truncated diff states
/// how many lines were left out.
pub fn unified_diff(old: &str, new: &str, old_name: &str, new_name: &str) -> String {
    bounded_diff(old, new, old_name, new_name, CONTEXT_LINES, MAX_DIFF_LINES)
}

/// Like [`unified_diff`], with `context` unchanged lines and a maximum number of lines.
pub fn bounded_diff(
    old: &str,
    new: &str,
    old_name: &str,
    new_name: &str,
    context: usize,
    most_lines: usize,
) -> String {
    if old == new {
        return String::new();
    }
    let (old_lines, new_lines): (Vec<&str>, Vec<&str>) =
        (old.split_inclusive('\n').collect(), new.split_inclusive('\n').collect());
    let runs =
        changed_ranges(&matching_pairs(&old_lines, &new_lines), old_lines.len(), new_lines.len());
    let one_line = |name: &str| name.replace(['\n', '\r'], " ");
    let mut out = BoundedDiff {
        text: format!("--- {}\n+++ {}\n", one_line(old_name), one_line(new_name)),
        room: most_lines,
        bytes: most_lines.saturating_mul(MAX_AVERAGE_LINE_BYTES),
        left_out: 0,
    };
    // Changes that are separated by at most twice the context share a hunk.
    let mut hunks: Vec<Vec<ChangedRange>> = Vec::new();
    for run in runs {
        match hunks.last_mut() {
            Some(hunk) if hunk.last().is_some_and(|last| run.old.0 - last.old.1 <= 2 * context) => {
                hunk.push(run)
            }
            _ => hunks.push(vec![run]),
        }
    }
    for hunk in hunks {
        let (Some(first), Some(last)) = (hunk.first(), hunk.last()) else { continue };
        let before = context.min(first.old.0);
        let after = context.min(old_lines.len() - last.old.1);
        let (from_old, from_new) = (first.old.0 - before, first.new.0 - before);
        let (old_count, new_count) = (last.old.1 + after - from_old, last.new.1 + after - from_new);
        out.push_line(
            "",
            &format!(
                "@@ -{} +{} @@\n",
                hunk_range(from_old, old_count),
                hunk_range(from_new, new_count)
            ),
        );
        let mut at = from_old;
        for run in &hunk {
            old_lines[at..run.old.0].iter().for_each(|line| out.push_line(" ", line));
            old_lines[run.old.0..run.old.1].iter().for_each(|line| out.push_line("-", line));
            new_lines[run.new.0..run.new.1].iter().for_each(|line| out.push_line("+", line));
            at = run.old.1;
        }
        old_lines[at..at + after].iter().for_each(|line| out.push_line(" ", line));
    }
    if out.left_out > 0 {
        out.text.push_str(&format!("… {} more lines of this diff left out\n", out.left_out));
    }
    out.text
}

struct BoundedDiff {
    text: String,
    room: usize,
    bytes: usize,
    left_out: usize,
}

impl BoundedDiff {
    fn push_line(&mut self, mark: &str, line: &str) {
        if self.room == 0 || line.len() > self.bytes {
            self.room = 0;
            self.left_out += 1;
            return;
        }
        (self.room, self.bytes) = (self.room - 1, self.bytes - line.len());
        self.text.push_str(mark);
        self.text.push_str(line);
        if !line.ends_with('\n') {
            self.text.push_str("\n\\ No newline at end of file\n");
        }
    }
}

/// A hunk's position in unified format: 1-based; an empty range refers to the line before it.
fn hunk_range(from: usize, count: usize) -> String {
    match count {
        0 => format!("{from},0"),
        1 => format!("{}", from + 1),
        _ => format!("{},{count}", from + 1),
    }
}

/// A range that differs: start and end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChangedRange {
    pub old: (usize, usize),
    pub new: (usize, usize),
}

/// The ranges between the matching pairs.
pub fn changed_ranges(
    matches: &[(usize, usize)],
    old_len: usize,
    new_len: usize,
) -> Vec<ChangedRange> {
    let (mut runs, mut at) = (Vec::new(), (0, 0));
    for &(old, new) in matches.iter().chain([&(old_len, new_len)]) {
        if (old, new) != at {
            runs.push(ChangedRange { old: (at.0, old), new: (at.1, new) });
        }
        at = (old + 1, new + 1);
    }
    runs
}

/// Pairs of equal items, ascending in both lists.
///
/// Common prefix and suffix and items that are unique in both lists are matched first. An exact
/// search fills the gaps as long as its step budget lasts.
pub fn matching_pairs<T: Eq + Hash>(old: &[T], new: &[T]) -> Vec<(usize, usize)> {
    let mut known: HashMap<&T, u32> = HashMap::new();
    let mut number = |item| {
        let next = u32::try_from(known.len()).unwrap_or(u32::MAX);
        *known.entry(item).or_insert(next)
    };
    let old: Vec<u32> = old.iter().map(&mut number).collect();
    let new: Vec<u32> = new.iter().map(&mut number).collect();
    let kinds = known.len();
    let mut found = Vec::new();
    let head = old.iter().zip(&new).take_while(|(a, b)| a == b).count();
    let tail =
        old[head..].iter().rev().zip(new[head..].iter().rev()).take_while(|(a, b)| a == b).count();
    found.extend((0..head).map(|at| (at, at)));
    let (old_end, new_end) = (old.len() - tail, new.len() - tail);
    let mut steps = MAX_SEARCH_STEPS;
    let mut from = (head, head);
    for anchor in unique_anchors(&old[head..old_end], &new[head..new_end], kinds)
        .into_iter()
        .chain([(old_end - head, new_end - head)])
    {
        let to = (anchor.0 + head, anchor.1 + head);
        match_between(&old, &new, from, to, &mut steps, &mut found);
        if to != (old_end, new_end) {
            found.push(to);
        }
        from = (to.0 + 1, to.1 + 1);
    }
    found.extend((0..tail).map(|at| (old_end + at, new_end + at)));
    found
}

/// Items that are unique in both lists and stand in the same order.
fn unique_anchors(old: &[u32], new: &[u32], kinds: usize) -> Vec<(usize, usize)> {
    const ABSENT: usize = usize::MAX;
    const REPEATED: usize = usize::MAX - 1;
    let places = |items: &[u32]| {
        let mut places = vec![ABSENT; kinds];
        for (at, item) in items.iter().enumerate() {
            let place = &mut places[*item as usize];
            *place = if *place == ABSENT { at } else { REPEATED };
        }
        places
    };
    let (in_old, in_new) = (places(old), places(new));
    let pairs: Vec<(usize, usize)> = old
        .iter()
        .enumerate()
        .filter(|(at, item)| in_old[**item as usize] == *at && in_new[**item as usize] < REPEATED)
        .map(|(at, item)| (at, in_new[*item as usize]))
        .collect();
    longest_increasing(&pairs)
}

/// The longest subsequence of the pairs, ascending in the first item, that also ascends in the
/// second.
pub fn longest_increasing(pairs: &[(usize, usize)]) -> Vec<(usize, usize)> {
    let (mut ends, mut before): (Vec<usize>, Vec<Option<usize>>) =
        (Vec::new(), Vec::with_capacity(pairs.len()));
    for (at, pair) in pairs.iter().enumerate() {
        let length = ends.partition_point(|&end| pairs[end].1 < pair.1);
        before.push(length.checked_sub(1).map(|shorter| ends[shorter]));
        if length == ends.len() { ends.push(at) } else { ends[length] = at }
    }
    let mut rising = Vec::with_capacity(ends.len());
    let mut at = ends.last().copied();
    while let Some(place) = at {
        rising.push(pairs[place]);
        at = before[place];
    }
    rising.reverse();
    rising
}

/// Matches items between two anchors.
fn match_between(
    old: &[u32],
    new: &[u32],
    from: (usize, usize),
    to: (usize, usize),
    steps: &mut usize,
    found: &mut Vec<(usize, usize)>,
) {
    if from.0 >= to.0 || from.1 >= to.1 {
        return;
    }
    // Items that the other side lacks cannot match; dropping them shortens the search.
    let here: std::collections::HashSet<u32> = old[from.0..to.0].iter().copied().collect();
    let there: std::collections::HashSet<u32> = new[from.1..to.1].iter().copied().collect();
    let pick = |items: &[u32],
                start: usize,
                end: usize,
                other: &std::collections::HashSet<u32>|
     -> (Vec<usize>, Vec<u32>) {
        (start..end).filter(|at| other.contains(&items[*at])).map(|at| (at, items[at])).unzip()
    };
    let ((old_places, left), (new_places, right)) =
        (pick(old, from.0, to.0, &there), pick(new, from.1, to.1, &here));
    let cost = (left.len() + right.len()).saturating_mul(left.len().min(right.len()));
    if cost == 0 || cost > *steps {
        return;
    }
    *steps -= cost;
    for op in similar::capture_diff_slices(similar::Algorithm::Myers, &left, &right) {
        if let similar::DiffOp::Equal { old_index, new_index, len } = op {
            found.extend(
                (0..len).map(|at| (old_places[old_index + at], new_places[new_index + at])),
            );
        }
    }
}
