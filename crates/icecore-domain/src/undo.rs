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
