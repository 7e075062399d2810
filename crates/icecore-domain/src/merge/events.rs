//! The ledger: lines are identified by their events.

use std::collections::{HashMap, HashSet};

use super::{MergeConflict, MergeInput, lines};
use crate::event::{Event, EventDraft};
use crate::forget::FORGOTTEN_MARK;
use crate::format::line;
use crate::id::EventId;
use crate::sanitize;

/// The identity of a line: its event, or its bytes if it does not have exactly one.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum LineId<'a> {
    Event(EventId),
    Bytes(&'a [u8]),
}

/// The lines of a text by identity, in order. A second use of an id counts as a plain line.
#[derive(Default)]
pub(super) struct IdentifiedLines<'a> {
    pub order: Vec<LineId<'a>>,
    pub lines: HashMap<LineId<'a>, (&'a [u8], Option<Event>)>,
}

impl<'a> IdentifiedLines<'a> {
    /// Parses the lines of a file.
    pub fn parse(text: &'a [u8]) -> Self {
        let mut named = Self::default();
        for bytes in lines::content_lines(text) {
            let (name, event) = named.line_id(bytes);
            if named.lines.insert(name.clone(), (bytes, event)).is_none() {
                named.order.push(name);
            }
        }
        named
    }

    fn line_id(&self, bytes: &'a [u8]) -> (LineId<'a>, Option<Event>) {
        let mut parsed = line::parse_line(bytes);
        match parsed.events.pop() {
            Some(event) if parsed.events.is_empty() && parsed.is_sound() => {
                match self.lines.get(&LineId::Event(event.id)) {
                    Some((first, _)) if *first != bytes => (LineId::Bytes(bytes), None),
                    _ => (LineId::Event(event.id), Some(event)),
                }
            }
            _ => (LineId::Bytes(bytes), None),
        }
    }
}

/// Whether two events differ only in the time they were recorded: both machines recorded the same.
pub(super) fn are_alike(one: &Event, other: &Event) -> bool {
    one.id == other.id && EventDraft { ts: other.ts, ..one.draft.clone() } == other.draft
}

/// The beginning of an event's text.
fn event_excerpt(event: &Event) -> String {
    let said = sanitize::one_line(&event.content);
    let mut short: String = said.chars().take(60).collect();
    if short.len() < said.len() {
        short.push('…');
    }
    short
}

/// The merged form of one line; `None` if it is removed.
fn merge_line<'a>(
    base: Option<&'a [u8]>,
    ours: Option<&(&'a [u8], Option<Event>)>,
    theirs: Option<&(&'a [u8], Option<Event>)>,
) -> Result<Option<&'a [u8]>, MergeConflict> {
    let bytes = |side: Option<&(&'a [u8], Option<Event>)>| side.map(|(bytes, _)| *bytes);
    if bytes(ours) == bytes(theirs) || bytes(theirs) == base {
        return Ok(bytes(ours));
    }
    if bytes(ours) == base {
        return Ok(bytes(theirs));
    }
    let event =
        |side: Option<&'_ (&'a [u8], Option<Event>)>| side.and_then(|(_, event)| event.clone());
    let is_erased = |event: &Event| event.content == FORGOTTEN_MARK;
    let (one, other) = match (event(ours), event(theirs)) {
        (Some(one), Some(other)) => (one, other),
        // One side archived it, the other forgot it: the forgotten form is in the archive.
        (Some(left), None) | (None, Some(left)) if is_erased(&left) => return Ok(None),
        (Some(left), None) => {
            return Err(MergeConflict::Changed {
                id: left.id,
                ours: event_excerpt(&left),
                theirs: "(removed)".into(),
            });
        }
        (None, Some(left)) => {
            return Err(MergeConflict::Changed {
                id: left.id,
                ours: "(removed)".into(),
                theirs: event_excerpt(&left),
            });
        }
        (None, None) => return Ok(None),
    };
    let smaller = bytes(ours).min(bytes(theirs));
    match (is_erased(&one), is_erased(&other)) {
        (true, true) => Ok(smaller),
        // An id that both sides assigned may mean two things even if one of them was forgotten
        // since.
        (true, false) if base.is_some() => Ok(bytes(ours)),
        (false, true) if base.is_some() => Ok(bytes(theirs)),
        _ if base.is_none() && are_alike(&one, &other) => {
            Ok(if one.ts <= other.ts { bytes(ours) } else { bytes(theirs) })
        }
        _ if base.is_none() => Err(MergeConflict::SameId {
            id: one.id,
            ours: event_excerpt(&one),
            theirs: event_excerpt(&other),
        }),
        _ => Err(MergeConflict::Changed {
            id: one.id,
            ours: event_excerpt(&one),
            theirs: event_excerpt(&other),
        }),
    }
}

/// Merges the lines: those of the base in order, then the new ones by id, which grow with the file.
pub(super) fn merge_ledger(sides: MergeInput<'_>) -> Result<Vec<u8>, MergeConflict> {
    let (base, ours, theirs) = (
        IdentifiedLines::parse(sides.base),
        IdentifiedLines::parse(sides.ours),
        IdentifiedLines::parse(sides.theirs),
    );
    let mut settled: HashMap<&LineId<'_>, &[u8]> = HashMap::new();
    for name in base.order.iter().chain(&ours.order).chain(&theirs.order) {
        let before = base.lines.get(name).map(|(bytes, _)| *bytes);
        if let Some(line) = merge_line(before, ours.lines.get(name), theirs.lines.get(name))? {
            settled.insert(name, line);
        }
    }
    let ours_new: Vec<&LineId<'_>> =
        ours.order.iter().filter(|name| !base.lines.contains_key(name)).collect();
    let theirs_new: Vec<&LineId<'_>> =
        theirs.order.iter().filter(|name| !base.lines.contains_key(name)).collect();
    let mut seen = HashSet::new();
    let order = base
        .order
        .iter()
        .chain(lines::interleave(&ours_new, &theirs_new, |one, other| one.cmp(other)));
    Ok(lines::join_lines(
        order.filter(|name| seen.insert(*name)).filter_map(|name| settled.get(name).copied()),
    ))
}
