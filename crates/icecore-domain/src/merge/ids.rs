//! Two machines count up from the same number, so they give the same ids. Ours, which nobody else
//! has seen, get others.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use jiff::civil::Date;

use super::events::are_alike;
use super::lines;
use crate::event::{Act, Event};
use crate::format::line;
use crate::id::{EventId, MAX_NUMBER};
use crate::layout;

/// Which of our events get which ids.
pub type Renumbering = BTreeMap<EventId, EventId>;

fn events(texts: &[&[u8]]) -> HashMap<EventId, Event> {
    let mut events = HashMap::new();
    for event in
        texts.iter().flat_map(|text| lines::of(text)).flat_map(|bytes| line::parse(bytes).events)
    {
        events.entry(event.id).or_insert(event);
    }
    events
}

/// The ids that ours must get so that none means two things. Each side is its ledger and its
/// archives; `spent` are ids that must not be given again. On a day on which any id was given
/// twice, all of ours that are new come after theirs, so that ids still grow with the file. `None`
/// if a day has not so many numbers left.
pub fn renumbering(
    base: &[&[u8]],
    ours: &[&[u8]],
    theirs: &[&[u8]],
    spent: &BTreeSet<EventId>,
) -> Option<Renumbering> {
    let (base, ours, theirs) = (events(base), events(ours), events(theirs));
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
        if *most > MAX_NUMBER {
            return None;
        }
        renumbering.insert(id, EventId::new(id.day(), *most));
    }
    Some(renumbering)
}

/// The same renumbering for a ledger that has grown since it was worked out: an event that was
/// added under an id which is given to another gets the next one. `None` if a day has not so many
/// numbers left.
pub fn extend_renumbering(renumbering: &Renumbering, ours: &[&[u8]]) -> Option<Renumbering> {
    let ours = events(ours);
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
        if *most > MAX_NUMBER {
            return None;
        }
        extended.insert(*id, EventId::new(id.day(), *most));
    }
    Some(extended)
}

/// Whether a file is somebody's very words, or counts ids of its own.
fn is_left(path: &str) -> bool {
    [layout::MESSAGES, layout::SNAPSHOTS, layout::TOOL_VERSIONS, "conversations"]
        .iter()
        .any(|folder| path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/')))
}

/// A file of ours with the new ids in place of the old; `None` if it names none of them.
pub fn rename(path: &str, bytes: &[u8], renumbering: &Renumbering) -> Option<Vec<u8>> {
    if is_left(path) {
        return None;
    }
    if path == layout::LEDGER || path.parse().is_ok_and(|path: layout::DocPath| path.is_archive()) {
        let mut changed = false;
        let mut out = Vec::with_capacity(bytes.len());
        for whole in bytes.split_inclusive(|byte| *byte == b'\n') {
            let renamed = renamed_line(whole, renumbering);
            changed |= renamed.is_some();
            out.extend_from_slice(renamed.as_deref().unwrap_or(whole));
        }
        return changed.then_some(out);
    }
    renamed(bytes, renumbering)
}

fn renamed_line(line: &[u8], renumbering: &Renumbering) -> Option<Vec<u8>> {
    let bare = line.strip_suffix(b"\n").unwrap_or(line);
    match line::parse(bare).events.as_slice() {
        // What it names is a conversation's own count.
        [event] if event.act == Act::Promote => {
            let id = renumbering.get(&event.id)?;
            Some(line::write(&event.draft.clone().with_id(*id)).into_bytes())
        }
        _ => renamed(line, renumbering),
    }
}

fn renamed(bytes: &[u8], renumbering: &Renumbering) -> Option<Vec<u8>> {
    /// What stands before an event of a conversation, which has ids of its own.
    const OF_CONVERSATION: &[u8] = b"events.jsonl#";
    let (mut out, mut from) = (Vec::new(), 0);
    for at in memchr::memmem::find_iter(bytes, b"EVT-") {
        let rest = &bytes[at..];
        let digits =
            rest[4..].iter().take_while(|byte| byte.is_ascii_digit() || **byte == b'-').count();
        let token =
            std::str::from_utf8(&rest[..4 + digits]).unwrap_or_default().trim_end_matches('-');
        let new = token.parse::<EventId>().ok().and_then(|id| renumbering.get(&id));
        if let Some(new) = new.filter(|_| !bytes[..at].ends_with(OF_CONVERSATION)) {
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
