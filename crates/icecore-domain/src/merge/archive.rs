//! Archives: batches of lines that left the ledger. Every line is in exactly one batch.

use std::collections::{BTreeMap, HashMap};

use jiff::Timestamp;
use serde_json::Value;

use super::events::IdentifiedLines;
use super::{MergeConflict, MergeInput, lines};
use crate::calendar::Moment;
use crate::forget::FORGOTTEN_MARK;
use crate::format::line;
use crate::id::EventId;
use crate::layout::DocPath;

/// A batch: its head, if it has one, and its lines.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Batch<'a> {
    at: Option<Timestamp>,
    head: Option<&'a [u8]>,
    lines: Vec<&'a [u8]>,
    /// Whether lines were removed, so that the head's count is too high.
    fewer: bool,
}

fn parse_head(line: &[u8]) -> Option<Timestamp> {
    let Value::Object(fields) = serde_json::from_slice(line).ok()? else { return None };
    Some(Moment::parse(fields.get("archived")?.as_str()?)?.moment.timestamp())
}

fn parse_batches(text: &[u8]) -> Vec<Batch<'_>> {
    let mut batches: Vec<Batch<'_>> = Vec::new();
    for line in lines::content_lines(text) {
        match (parse_head(line), batches.last_mut()) {
            (Some(at), _) => batches.push(Batch {
                at: Some(at),
                head: Some(line),
                lines: Vec::new(),
                fewer: false,
            }),
            (None, Some(batch)) => batch.lines.push(line),
            (None, None) => {
                batches.push(Batch { at: None, head: None, lines: vec![line], fewer: false })
            }
        }
    }
    batches
}

fn render_batches(batches: &[Batch<'_>]) -> Vec<u8> {
    let mut out = Vec::new();
    for batch in batches.iter().filter(|batch| !batch.lines.is_empty()) {
        let recounted = batch
            .head
            .filter(|_| batch.fewer)
            .and_then(|head| update_head_count(head, batch.lines.len()));
        if let Some(head) = recounted.as_deref().or(batch.head) {
            out.extend_from_slice(head);
            out.push(b'\n');
        }
        out.extend(lines::join_lines(batch.lines.iter().copied()));
    }
    out
}

fn update_head_count(head: &[u8], count: usize) -> Option<Vec<u8>> {
    let Value::Object(fields) = serde_json::from_slice(head).ok()? else { return None };
    let others = fields
        .iter()
        .filter(|(name, _)| *name != "lines")
        .map(|(name, value)| format!("{}:{value},", Value::from(name.as_str())));
    Some(format!(r#"{{{}"lines":{count}}}"#, others.collect::<String>()).into_bytes())
}

/// The position of a line: archive time of its batch, file, batch and line.
type LinePosition = (Option<Timestamp>, usize, usize, usize);

/// The only event on a line.
fn event_on_line(line: &[u8]) -> Option<(EventId, bool)> {
    let parsed = line::parse_line(line);
    match parsed.events.as_slice() {
        [event] if parsed.is_sound() => Some((event.id, event.content == FORGOTTEN_MARK)),
        _ => None,
    }
}

/// Merges the batches: those of the base, in the wording of a side that forgot something, then the
/// new ones in order of time. A line that both sides archived is in the earlier batch only.
pub(super) fn merge_archives(sides: MergeInput<'_>) -> Result<Vec<u8>, MergeConflict> {
    let (base, ours, theirs) =
        (parse_batches(sides.base), parse_batches(sides.ours), parse_batches(sides.theirs));
    let begins = |side: &[Batch<'_>]| {
        side.len() >= base.len()
            && side
                .iter()
                .zip(&base)
                .all(|(one, then)| one.head == then.head && one.lines.len() == then.lines.len())
    };
    if !begins(&ours) || !begins(&theirs) {
        return Err(MergeConflict::Rewritten);
    }
    let (first, second) =
        (IdentifiedLines::parse(sides.ours), IdentifiedLines::parse(sides.theirs));
    let mut all: Vec<Batch<'_>> = Vec::new();
    for (at, batch) in base.iter().enumerate() {
        let mut kept = batch.clone();
        for (place, line) in kept.lines.iter_mut().enumerate() {
            *line = merge_base_batch(line, ours[at].lines[place], theirs[at].lines[place])?;
        }
        all.push(kept);
    }
    let new = lines::interleave(&ours[base.len()..], &theirs[base.len()..], Ord::cmp);
    all.extend(new);
    let is_forgotten = |id: EventId| {
        [&first, &second].iter().any(|named| {
            let line = named.lines.get(&super::events::LineId::Event(id));
            line.and_then(|(_, event)| event.as_ref())
                .is_some_and(|event| event.content == FORGOTTEN_MARK)
        })
    };
    Ok(render_batches(&dedup_lines(vec![all], is_forgotten).concat()))
}

fn merge_base_batch<'a>(
    base: &'a [u8],
    ours: &'a [u8],
    theirs: &'a [u8],
) -> Result<&'a [u8], MergeConflict> {
    if ours == theirs || theirs == base {
        return Ok(ours);
    }
    if ours == base {
        return Ok(theirs);
    }
    match (event_on_line(ours), event_on_line(theirs)) {
        (Some((_, true)), Some((_, true))) => Ok(ours.min(theirs)),
        (Some((_, true)), _) => Ok(ours),
        (_, Some((_, true))) => Ok(theirs),
        _ => Err(MergeConflict::Rewritten),
    }
}

/// Keeps every line in one batch: the earliest, but in the forgotten wording if there is one.
fn dedup_lines<'a>(
    files: Vec<Vec<Batch<'a>>>,
    is_forgotten: impl Fn(EventId) -> bool,
) -> Vec<Vec<Batch<'a>>> {
    let mut places: HashMap<EventId, Vec<LinePosition>> = HashMap::new();
    for (file, batches) in files.iter().enumerate() {
        for (at, batch) in batches.iter().enumerate() {
            for (place, line) in batch.lines.iter().enumerate() {
                if let Some((id, _)) = event_on_line(line) {
                    places.entry(id).or_default().push((batch.at, file, at, place));
                }
            }
        }
    }
    let mut gone: HashMap<(usize, usize), Vec<usize>> = HashMap::new();
    let mut instead: HashMap<(usize, usize, usize), &'a [u8]> = HashMap::new();
    for (id, mut places) in places.into_iter().filter(|(_, places)| places.len() > 1) {
        places.sort_unstable();
        let line = |(_, file, at, place): LinePosition| files[file][at].lines[place];
        let (first, rest) = (places[0], &places[1..]);
        for &other in rest {
            let erased = [first, other]
                .into_iter()
                .map(line)
                .find(|line| event_on_line(line).is_some_and(|(_, erased)| erased));
            if line(first) != line(other) && !is_forgotten(id) && erased.is_none() {
                continue;
            }
            if let Some(erased) = erased {
                instead.insert((first.1, first.2, first.3), erased);
            }
            gone.entry((other.1, other.2)).or_default().push(other.3);
        }
    }
    let mut files = files;
    for (&(file, at, place), line) in &instead {
        files[file][at].lines[place] = line;
    }
    for ((file, at), places) in gone {
        let batch = &mut files[file][at];
        let mut place = 0;
        batch.lines.retain(|_| {
            place += 1;
            !places.contains(&(place - 1))
        });
        batch.fewer = true;
    }
    files
}

/// Removes duplicate lines across archives; returns only the files that change.
pub fn dedup_archives(archives: &[(DocPath, Vec<u8>)]) -> BTreeMap<DocPath, Vec<u8>> {
    let read: Vec<Vec<Batch<'_>>> = archives.iter().map(|(_, text)| parse_batches(text)).collect();
    let before = read.clone();
    let after = dedup_lines(read, |_| false);
    let changed = archives
        .iter()
        .zip(before.iter().zip(&after))
        .filter(|(_, (before, after))| before != after);
    changed.map(|((path, _), (_, after))| (path.clone(), render_batches(after))).collect()
}
