//! The ledger: lines are identified by their events.

use std::collections::{HashMap, HashSet};

use super::{Clash, Sides, lines};
use crate::event::{Draft, Event};
use crate::forget::FORGOTTEN;
use crate::format::line;
use crate::id::EventId;
use crate::plain;

/// The identity of a line: its event, or its bytes if it does not have exactly one.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Name<'a> {
    Event(EventId),
    Bytes(&'a [u8]),
}

/// The lines of a text by identity, in order. A second use of an id counts as a plain line.
#[derive(Default)]
pub(super) struct Named<'a> {
    pub order: Vec<Name<'a>>,
    pub lines: HashMap<Name<'a>, (&'a [u8], Option<Event>)>,
}

impl<'a> Named<'a> {
    pub fn read(text: &'a [u8]) -> Self {
        let mut named = Self::default();
        for bytes in lines::of(text) {
            let (name, event) = named.name(bytes);
            if named.lines.insert(name.clone(), (bytes, event)).is_none() {
                named.order.push(name);
            }
        }
        named
    }

    fn name(&self, bytes: &'a [u8]) -> (Name<'a>, Option<Event>) {
        let mut parsed = line::parse(bytes);
        match parsed.events.pop() {
            Some(event) if parsed.events.is_empty() && parsed.is_sound() => {
                match self.lines.get(&Name::Event(event.id)) {
                    Some((first, _)) if *first != bytes => (Name::Bytes(bytes), None),
                    _ => (Name::Event(event.id), Some(event)),
                }
            }
            _ => (Name::Bytes(bytes), None),
        }
    }
}

/// Whether two events differ only in the time they were recorded: both machines recorded the same.
pub(super) fn are_alike(one: &Event, other: &Event) -> bool {
    one.id == other.id && Draft { ts: other.ts, ..one.draft.clone() } == other.draft
}

/// The beginning of an event's text.
fn gist(event: &Event) -> String {
    let said = plain::one_line(&event.content);
    let mut short: String = said.chars().take(60).collect();
    if short.len() < said.len() {
        short.push('…');
    }
    short
}

/// The merged form of one line; `None` if it is removed.
fn settle<'a>(
    base: Option<&'a [u8]>,
    ours: Option<&(&'a [u8], Option<Event>)>,
    theirs: Option<&(&'a [u8], Option<Event>)>,
) -> Result<Option<&'a [u8]>, Clash> {
    let bytes = |side: Option<&(&'a [u8], Option<Event>)>| side.map(|(bytes, _)| *bytes);
    if bytes(ours) == bytes(theirs) || bytes(theirs) == base {
        return Ok(bytes(ours));
    }
    if bytes(ours) == base {
        return Ok(bytes(theirs));
    }
    let event =
        |side: Option<&'_ (&'a [u8], Option<Event>)>| side.and_then(|(_, event)| event.clone());
    let is_erased = |event: &Event| event.content == FORGOTTEN;
    let (one, other) = match (event(ours), event(theirs)) {
        (Some(one), Some(other)) => (one, other),
        // One side archived it, the other forgot it: the forgotten form is in the archive.
        (Some(left), None) | (None, Some(left)) if is_erased(&left) => return Ok(None),
        (Some(left), None) => {
            return Err(Clash::Changed {
                id: left.id,
                ours: gist(&left),
                theirs: "(removed)".into(),
            });
        }
        (None, Some(left)) => {
            return Err(Clash::Changed {
                id: left.id,
                ours: "(removed)".into(),
                theirs: gist(&left),
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
        _ if base.is_none() => {
            Err(Clash::SameId { id: one.id, ours: gist(&one), theirs: gist(&other) })
        }
        _ => Err(Clash::Changed { id: one.id, ours: gist(&one), theirs: gist(&other) }),
    }
}

/// Merges the lines: those of the base in order, then the new ones by id, which grow with the file.
pub(super) fn merge(sides: Sides<'_>) -> Result<Vec<u8>, Clash> {
    let (base, ours, theirs) =
        (Named::read(sides.base), Named::read(sides.ours), Named::read(sides.theirs));
    let mut settled: HashMap<&Name<'_>, &[u8]> = HashMap::new();
    for name in base.order.iter().chain(&ours.order).chain(&theirs.order) {
        let before = base.lines.get(name).map(|(bytes, _)| *bytes);
        if let Some(line) = settle(before, ours.lines.get(name), theirs.lines.get(name))? {
            settled.insert(name, line);
        }
    }
    let ours_new: Vec<&Name<'_>> =
        ours.order.iter().filter(|name| !base.lines.contains_key(name)).collect();
    let theirs_new: Vec<&Name<'_>> =
        theirs.order.iter().filter(|name| !base.lines.contains_key(name)).collect();
    let mut seen = HashSet::new();
    let order =
        base.order.iter().chain(lines::woven(&ours_new, &theirs_new, |one, other| one.cmp(other)));
    Ok(lines::text(
        order.filter(|name| seen.insert(*name)).filter_map(|name| settled.get(name).copied()),
    ))
}
