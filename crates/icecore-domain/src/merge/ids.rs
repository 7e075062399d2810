//! Renumbering: two machines count up from the same number and assign the same ids. Ours, which
//! were not published yet, are renumbered.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use jiff::civil::Date;

use super::events::are_alike;
use super::lines;
use crate::event::{Act, Event};
use crate::format::line;
use crate::id::{EventId, MAX_EVENT_NUMBER};
use crate::layout;

/// Maps our ids to their new ids.
pub type Renumbering = BTreeMap<EventId, EventId>;

fn events_by_id(texts: &[&[u8]]) -> HashMap<EventId, Event> {
    let mut events = HashMap::new();
    for event in texts
        .iter()
        .flat_map(|text| lines::content_lines(text))
        .flat_map(|bytes| line::parse_line(bytes).events)
    {
        events.entry(event.id).or_insert(event);
    }
    events
}

/// Computes new ids for our events, so that no id means two things. Each side is its ledger and its
/// archives; `spent` are ids that must not be reused. On a day on which any id was assigned twice,
/// all of our new events come after theirs, so that ids still grow with the file. `None` if a day
/// has no numbers left.
pub fn renumbering(
    base: &[&[u8]],
    ours: &[&[u8]],
    theirs: &[&[u8]],
    spent: &BTreeSet<EventId>,
) -> Option<Renumbering> {
    let (base, ours, theirs) = (events_by_id(base), events_by_id(ours), events_by_id(theirs));
    let is_same = |event: &Event| {
        theirs.get(&event.id).is_some_and(|other| other == event || are_alike(event, other))
    };
    let new: BTreeSet<EventId> = ours
        .values()
        .filter(|event| !base.contains_key(&event.id) && !is_same(event))
        .map(|event| event.id)
        .collect();
    let days: BTreeSet<Date> =
        new.iter().filter(|id| theirs.contains_key(id)).map(|id| id.day()).collect();
    let mut highest: BTreeMap<Date, u32> = BTreeMap::new();
    let staying = ours.keys().filter(|id| !new.contains(id));
    for id in base.keys().chain(theirs.keys()).chain(spent).chain(staying) {
        let most = highest.entry(id.day()).or_default();
        *most = id.number().max(*most);
    }
    let mut renumbering = Renumbering::new();
    for id in new.into_iter().filter(|id| days.contains(&id.day())) {
        let most = highest.entry(id.day()).or_default();
        *most += 1;
        if *most > MAX_EVENT_NUMBER {
            return None;
        }
        renumbering.insert(id, EventId::new(id.day(), *most));
    }
    Some(renumbering)
}

/// Extends a renumbering for a ledger that has grown since: an event that was added under an id
/// assigned to another one gets the next id. `None` if a day has no numbers left.
pub fn extend_renumbering(renumbering: &Renumbering, ours: &[&[u8]]) -> Option<Renumbering> {
    let ours = events_by_id(ours);
    let given: BTreeSet<EventId> = renumbering.values().copied().collect();
    let mut highest: BTreeMap<Date, u32> = BTreeMap::new();
    for id in ours.keys().chain(&given) {
        let most = highest.entry(id.day()).or_default();
        *most = id.number().max(*most);
    }
    let mut extended = renumbering.clone();
    for id in ours.keys().filter(|id| given.contains(id) && !renumbering.contains_key(id)) {
        let most = highest.entry(id.day()).or_default();
        *most += 1;
        if *most > MAX_EVENT_NUMBER {
            return None;
        }
        extended.insert(*id, EventId::new(id.day(), *most));
    }
    Some(extended)
}

/// Whether a file holds verbatim text, or has ids of its own.
fn is_excluded(path: &str) -> bool {
    [layout::MESSAGES, layout::SNAPSHOTS, layout::TOOL_VERSIONS, "conversations"]
        .iter()
        .any(|folder| path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/')))
}

/// Replaces the old ids in one of our files; `None` if it contains none.
pub fn renumber_file(path: &str, bytes: &[u8], renumbering: &Renumbering) -> Option<Vec<u8>> {
    if is_excluded(path) {
        return None;
    }
    if path == layout::LEDGER || path.parse().is_ok_and(|path: layout::DocPath| path.is_archive()) {
        let mut changed = false;
        let mut out = Vec::with_capacity(bytes.len());
        for whole in bytes.split_inclusive(|byte| *byte == b'\n') {
            let renamed = renumber_line(whole, renumbering);
            changed |= renamed.is_some();
            out.extend_from_slice(renamed.as_deref().unwrap_or(whole));
        }
        return changed.then_some(out);
    }
    replace_ids(bytes, renumbering)
}

fn renumber_line(line: &[u8], renumbering: &Renumbering) -> Option<Vec<u8>> {
    let bare = line.strip_suffix(b"\n").unwrap_or(line);
    match line::parse_line(bare).events.as_slice() {
        // It refers to an event of a conversation, which has ids of its own.
        [event] if event.act == Act::Promote => {
            let id = renumbering.get(&event.id)?;
            Some(line::format_line(&event.draft.clone().with_id(*id)).into_bytes())
        }
        _ => replace_ids(line, renumbering),
    }
}

fn replace_ids(bytes: &[u8], renumbering: &Renumbering) -> Option<Vec<u8>> {
    /// Precedes an event of a conversation, which has ids of its own.
    const CONVERSATION_PREFIX: &[u8] = b"events.jsonl#";
    let (mut out, mut from) = (Vec::new(), 0);
    for at in memchr::memmem::find_iter(bytes, b"EVT-") {
        let rest = &bytes[at..];
        let digits =
            rest[4..].iter().take_while(|byte| byte.is_ascii_digit() || **byte == b'-').count();
        let token =
            std::str::from_utf8(&rest[..4 + digits]).unwrap_or_default().trim_end_matches('-');
        let new = token.parse::<EventId>().ok().and_then(|id| renumbering.get(&id));
        if let Some(new) = new.filter(|_| !bytes[..at].ends_with(CONVERSATION_PREFIX)) {
            out.extend_from_slice(&bytes[from..at]);
            out.extend_from_slice(new.to_string().as_bytes());
            from = at + token.len();
        }
    }
    if from == 0 {
        return None;
    }
    out.extend_from_slice(&bytes[from..]);
    Some(out)
}
