//! Going back to a snapshot without losing anything on the way (L16).
//!
//! Files that may be rewritten come back as they were. Files that only grow never shrink: what was added
//! to the ledger since is taken back by new events, so that a second undo can take that back in turn.

use std::collections::HashSet;

use crate::event::Act;
use crate::id::EventId;
use crate::layout::Nature;
use crate::ledger::{self, Entry, Ledger};

/// What becomes of one file that is not as it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// It stays as it is now.
    Leave,
    /// It becomes what it was.
    Restore,
    /// It was not there, so it goes.
    Remove,
    /// Its old lines come back, and the new ones stay behind them.
    Merge(Vec<u8>),
}

/// What to do with a file that was `then` and is `now`.
pub fn step(nature: Nature, then: Option<&[u8]>, now: Option<&[u8]>) -> Step {
    match (nature, then, now) {
        _ if then == now => Step::Leave,
        (Nature::Derived, ..) | (Nature::Ledger | Nature::AppendOnly | Nature::Log(_), None, _) => Step::Leave,
        (_, Some(_), None) => Step::Restore,
        (Nature::Ledger | Nature::AppendOnly | Nature::Log(_), Some(then), Some(now)) if now.starts_with(then) => Step::Leave,
        (Nature::Ledger | Nature::AppendOnly, Some(then), Some(now)) => Step::Merge(merge(then, now)),
        (Nature::Log(_) | Nature::View, Some(_), Some(_)) => Step::Restore,
        (Nature::View, None, _) => Step::Remove,
    }
}

/// The lines of `then`, then those of `now` that are not among them.
fn merge(then: &[u8], now: &[u8]) -> Vec<u8> {
    let known: HashSet<&[u8]> = ledger::lines(then, 1).map(|line| line.bytes).collect();
    let mut merged = then.to_vec();
    for line in ledger::lines(now, 1).filter(|line| !known.contains(line.bytes)) {
        if !merged.is_empty() && !merged.ends_with(b"\n") {
            merged.push(b'\n');
        }
        merged.extend_from_slice(line.bytes);
        merged.push(b'\n');
    }
    merged
}

/// The lines of `now`, with those lines of `then` put back whose events are not in it, each where it stood. Returns
/// the text and the events that came back. What `settled` says is elsewhere stays away.
pub fn bring_back(then: &[u8], now: &[u8], settled: impl Fn(EventId) -> bool) -> (Vec<u8>, Vec<EventId>) {
    let ids = |line: &[u8]| -> Vec<EventId> {
        let parsed = crate::format::line::parse(line);
        if parsed.is_sound() { parsed.events.iter().map(|event| event.id).collect() } else { Vec::new() }
    };
    let current: Vec<(&[u8], Vec<EventId>)> = ledger::lines(now, 1).map(|line| (line.bytes, ids(line.bytes))).collect();
    let present: HashSet<EventId> = current.iter().flat_map(|(_, ids)| ids.iter().copied()).collect();
    let (mut text, mut back, mut next) = (Vec::with_capacity(now.len()), Vec::new(), 0);
    let put = |text: &mut Vec<u8>, line: &[u8]| {
        text.extend_from_slice(line);
        text.push(b'\n');
    };
    for line in ledger::lines(then, 1) {
        let told = ids(line.bytes);
        if told.is_empty() {
            continue;
        }
        if told.iter().any(|id| present.contains(id)) {
            // Still there: everything up to it keeps its place before what follows.
            if let Some(at) = current[next..].iter().position(|(_, ids)| ids.iter().any(|id| told.contains(id))) {
                current[next..=next + at].iter().for_each(|(line, _)| put(&mut text, line));
                next += at + 1;
            }
        } else if !told.iter().any(|&id| settled(id)) {
            put(&mut text, line.bytes);
            back.extend(told);
        }
    }
    current[next..].iter().for_each(|(line, _)| put(&mut text, line));
    (text, back)
}

/// Which events to retract, newest first, so that nothing recorded since `then` counts any more.
pub fn retractions<'a>(then: &Ledger, now: &'a Ledger) -> Vec<&'a Entry> {
    let new = |id: EventId| then.get(id).is_none();
    let mut since: Vec<&Entry> = now.entries().iter().filter(|entry| new(entry.event.id) && !is_retracted(entry)).collect();
    // A retraction of something that is new itself only keeps that out, as it should.
    since.retain(|entry| entry.event.act != Act::Retract || entry.event.related.iter().any(|&target| !new(target)));
    since.reverse();
    since
}

fn is_retracted(entry: &Entry) -> bool {
    matches!(entry.standing, ledger::Standing::Retracted { .. })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::tests::story;

    #[test]
    fn files_come_back_but_what_only_grows_never_shrinks() {
        let day = Nature::Log(jiff::civil::date(2026, 2, 13));
        let (old, new, grown) = (Some(b"a\nb\n".as_slice()), Some(b"a\nc\n".as_slice()), Some(b"a\nb\nc\n".as_slice()));
        assert_eq!(step(Nature::View, old, new), Step::Restore);
        assert_eq!(step(Nature::View, None, new), Step::Remove);
        assert_eq!(step(Nature::View, old, None), Step::Restore);
        assert_eq!(step(Nature::Derived, old, new), Step::Leave);
        for nature in [Nature::Ledger, Nature::AppendOnly, day] {
            assert_eq!(step(nature, old, grown), Step::Leave);
            assert_eq!(step(nature, None, new), Step::Leave);
            assert_eq!(step(nature, old, None), Step::Restore);
        }
        assert_eq!(step(Nature::Ledger, old, new), Step::Merge(b"a\nb\nc\n".to_vec()));
        assert_eq!(step(day, old, new), Step::Restore);
    }

    // L16
    #[test]
    fn lost_lines_come_back_where_they_stood() {
        let lines: Vec<String> = story("f f s1 f f").iter().map(crate::format::line::write).collect();
        let check = |kept: &[usize], settled: Option<u32>| {
            let now: String = kept.iter().map(|&at| lines[at].as_str()).collect();
            let (text, back) = bring_back(lines.concat().as_bytes(), now.as_bytes(), |id| Some(id.number()) == settled);
            (text == lines.concat().as_bytes(), back.len())
        };
        assert_eq!(check(&[0, 1, 2, 3, 4], None), (true, 0));
        assert_eq!(check(&[1, 2, 4], None), (true, 2));
        assert_eq!(check(&[], None), (true, 5));
        assert_eq!(check(&[1, 2, 3, 4], Some(1)), (false, 0));
        // Foreign and newer lines of today stay where they are.
        let now = format!("foreign\n{}new\n", lines[1]);
        let (text, back) = bring_back(lines[..3].concat().as_bytes(), now.as_bytes(), |_| false);
        assert_eq!(String::from_utf8(text).unwrap(), format!("{}foreign\n{}{}new\n", lines[0], lines[1], lines[2]));
        assert_eq!(back.len(), 2);
    }

    /// The active events after an undo of everything beyond the first `kept`, and after a second undo.
    fn check(words: &str, kept: usize) {
        let events = story(words);
        let then = Ledger::of(events[..kept].to_vec());
        let now = Ledger::of(events.clone());
        let undo = |then: &Ledger, now: &Ledger, mut events: Vec<crate::event::Event>| {
            for entry in retractions(then, now) {
                let id = EventId::new(entry.event.id.day(), u32::try_from(events.len()).unwrap() + 1);
                events.push(crate::event::Draft::upon(&entry.event, Act::Retract, entry.event.ts, "undo").with_id(id));
            }
            events
        };
        let standing = |ledger: &Ledger, many: usize| {
            ledger.entries()[..many].iter().map(|e| (e.event.is_statement(), e.standing.is_active(), e.standing.word())).collect::<Vec<_>>()
        };
        let undone_events = undo(&then, &now, events.clone());
        let undone = Ledger::of(undone_events.clone());
        assert_eq!(standing(&undone, kept), standing(&then, kept), "undo of {words}");
        assert!(undone.entries()[kept..events.len()].iter().all(|e| !e.event.is_statement() || !e.standing.is_active()), "{words}");
        let redone = Ledger::of(undo(&now, &undone, undone_events));
        assert_eq!(standing(&redone, events.len()), standing(&now, events.len()), "redo of {words}");
    }

    // L16
    #[test]
    fn undo_takes_back_what_came_since_and_a_second_undo_brings_it_back() {
        check("f f", 1);
        check("f s1", 1);
        check("c x1", 1);
        check("f r1", 1);
        check("f f r2", 1);
        check("c c x1 s2 k1 f", 2);
        check("f s1 r2", 1);
    }
}
