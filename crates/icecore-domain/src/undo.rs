//! Undo: restoring a snapshot without losing anything recorded since (L16).
//!
//! Rewritable files are restored. Append-only files never shrink: events added to the ledger since
//! are retracted by new events, so that a second undo can revert the first.

use std::collections::{HashMap, HashSet};

use crate::event::{Act, Event};
use crate::id::EventId;
use crate::layout::FileKind;
use crate::ledger::{self, Ledger, LedgerEntry};

/// What an undo does with one changed file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UndoStep {
    /// Leaves it unchanged.
    Leave,
    /// Restores the old content.
    Restore(Vec<u8>),
    /// Deletes it, because it did not exist.
    Remove,
    /// Restores the old lines and keeps the new ones.
    Merge(Vec<u8>),
}

/// The step for a file that was `then` and is `now`.
pub fn undo_step(nature: FileKind, then: Option<&[u8]>, now: Option<&[u8]>) -> UndoStep {
    match (nature, then, now) {
        _ if then == now => UndoStep::Leave,
        (FileKind::Derived, ..)
        | (FileKind::Ledger | FileKind::AppendOnly | FileKind::Log(_), None, _) => UndoStep::Leave,
        (_, Some(then), None) => UndoStep::Restore(then.to_vec()),
        (FileKind::Ledger | FileKind::AppendOnly | FileKind::Log(_), Some(then), Some(now))
            if now.starts_with(then) =>
        {
            UndoStep::Leave
        }
        (FileKind::Ledger, Some(then), Some(now)) => {
            UndoStep::Merge(restore_lines(then, now, |_| false).0)
        }
        (FileKind::Log(_), Some(then), Some(now)) => {
            merge_logs(then, now).map_or(UndoStep::Leave, UndoStep::Merge)
        }
        (FileKind::AppendOnly, Some(then), Some(now)) => UndoStep::Merge(merge_lines(then, now)),
        (FileKind::View, Some(then), Some(_)) => UndoStep::Restore(then.to_vec()),
        (FileKind::View, None, _) => UndoStep::Remove,
    }
}

/// The lines of `then`, then those of `now` that are not among them.
fn merge_lines(then: &[u8], now: &[u8]) -> Vec<u8> {
    let known: HashSet<&[u8]> = ledger::raw_lines(then, 1).map(|line| line.bytes).collect();
    let mut merged = then.to_vec();
    for line in ledger::raw_lines(now, 1).filter(|line| !known.contains(line.bytes)) {
        if !merged.is_empty() && !merged.ends_with(b"\n") {
            merged.push(b'\n');
        }
        merged.extend_from_slice(line.bytes);
        merged.push(b'\n');
    }
    merged
}

/// Logs with more line pairs are not compared line by line.
const MAX_COMPARED_PAIRS: usize = 4_000_000;

/// A log with every line that it has now and every line that it had then, in position; `None` if no
/// line is missing.
fn merge_logs(then: &[u8], now: &[u8]) -> Option<Vec<u8>> {
    fn lines(text: &[u8]) -> Vec<&[u8]> {
        let text = text.strip_suffix(b"\n").unwrap_or(text);
        text.split(|&byte| byte == b'\n').filter(|_| !text.is_empty()).collect()
    }
    let (old, new) = (lines(then), lines(now));
    let ahead = old.iter().zip(&new).take_while(|(a, b)| a == b).count();
    let behind = old[ahead..]
        .iter()
        .rev()
        .zip(new[ahead..].iter().rev())
        .take_while(|(a, b)| a == b)
        .count();
    let (a, b) = (&old[ahead..old.len() - behind], &new[ahead..new.len() - behind]);
    let mut merged: Vec<&[u8]> = old[..ahead].to_vec();
    let mut is_missing = false;
    if a.len().saturating_mul(b.len()) > MAX_COMPARED_PAIRS {
        // All old lines, then all new ones: shared lines are duplicated, but none is lost.
        is_missing = true;
        merged.extend(a.iter().chain(b));
    } else {
        // The longest common subsequence of lines from each pair of positions.
        let mut common = vec![vec![0_u32; b.len() + 1]; a.len() + 1];
        for i in (0..a.len()).rev() {
            for j in (0..b.len()).rev() {
                common[i][j] = if a[i] == b[j] {
                    common[i + 1][j + 1] + 1
                } else {
                    common[i + 1][j].max(common[i][j + 1])
                };
            }
        }
        let (mut i, mut j) = (0, 0);
        while i < a.len() || j < b.len() {
            if i < a.len() && j < b.len() && a[i] == b[j] {
                merged.push(a[i]);
                (i, j) = (i + 1, j + 1);
            } else if i < a.len() && (j == b.len() || common[i + 1][j] >= common[i][j + 1]) {
                is_missing = true;
                merged.push(a[i]);
                i += 1;
            } else {
                merged.push(b[j]);
                j += 1;
            }
        }
    }
    merged.extend(&old[old.len() - behind..]);
    is_missing.then(|| {
        let mut text = merged.join(&b'\n');
        text.push(b'\n');
        text
    })
}

/// The events of a ledger's valid lines; the first use of an id counts.
pub fn events_by_id(text: &[u8]) -> HashMap<EventId, Event> {
    let mut told = HashMap::new();
    for line in ledger::raw_lines(text, 1) {
        for event in valid_events(line.bytes) {
            told.entry(event.id).or_insert(event);
        }
    }
    told
}

fn valid_events(line: &[u8]) -> Vec<Event> {
    let parsed = crate::format::line::parse_line(line);
    if parsed.is_sound() { parsed.events } else { Vec::new() }
}

/// Restores in `now` those lines of `then` whose events are missing or were changed, in position.
/// Returns the text and the restored events. Events for which `settled` is true are stored
/// elsewhere and are not restored. A changed line stays, after its original; the caller resolves
/// that two lines then share an id.
pub fn restore_lines(
    then: &[u8],
    now: &[u8],
    settled: impl Fn(EventId) -> bool,
) -> (Vec<u8>, Vec<EventId>) {
    let current: Vec<(&[u8], Vec<Event>)> =
        ledger::raw_lines(now, 1).map(|line| (line.bytes, valid_events(line.bytes))).collect();
    let mut places: HashMap<EventId, Vec<usize>> = HashMap::new();
    for (at, (_, events)) in current.iter().enumerate() {
        events.iter().for_each(|event| places.entry(event.id).or_default().push(at));
    }
    let place = |event: &Event| {
        places.get(&event.id)?.iter().copied().find(|&at| current[at].1.contains(event))
    };
    let (mut text, mut back, mut next) = (Vec::with_capacity(now.len()), Vec::new(), 0);
    let put = |text: &mut Vec<u8>, line: &[u8]| {
        text.extend_from_slice(line);
        text.push(b'\n');
    };
    for line in ledger::raw_lines(then, 1) {
        let events = valid_events(line.bytes);
        let Some(first) = events.first() else { continue };
        if let Some(at) = place(first) {
            // Still there: everything up to it comes before what follows.
            while next <= at {
                put(&mut text, current[next].0);
                next += 1;
            }
        } else if !events.iter().any(|event| settled(event.id)) {
            put(&mut text, line.bytes);
            back.extend(events.iter().map(|event| event.id));
        }
    }
    current[next..].iter().for_each(|(line, _)| put(&mut text, line));
    (text, back)
}

/// The events to retract, newest first, so that nothing recorded since `then` counts any more.
pub fn retractions<'a>(then: &Ledger, now: &'a Ledger) -> Vec<&'a LedgerEntry> {
    let new = |id: EventId| then.get(id).is_none();
    let mut since: Vec<&LedgerEntry> =
        now.entries().iter().filter(|entry| new(entry.event.id) && !is_retracted(entry)).collect();
    // A forgotten event stays retracted.
    since.retain(|entry| entry.event.content != crate::forget::FORGOTTEN_MARK);
    // A retraction of an event that is itself new needs no reversal.
    since.retain(|entry| {
        entry.event.act != Act::Retract || entry.event.related.iter().any(|&target| !new(target))
    });
    since.reverse();
    since
}

fn is_retracted(entry: &LedgerEntry) -> bool {
    matches!(entry.state, ledger::EventState::Retracted { .. })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::tests::story;

    #[test]
    fn files_come_back_but_what_only_grows_never_shrinks() {
        let day = FileKind::Log(jiff::civil::date(2026, 2, 13));
        let (old, new, grown) =
            (Some(b"a\nb\n".as_slice()), Some(b"a\nc\n".as_slice()), Some(b"a\nb\nc\n".as_slice()));
        let restore = || UndoStep::Restore(b"a\nb\n".to_vec());
        assert_eq!(undo_step(FileKind::View, old, new), restore());
        assert_eq!(undo_step(FileKind::View, None, new), UndoStep::Remove);
        assert_eq!(undo_step(FileKind::View, old, None), restore());
        assert_eq!(undo_step(FileKind::Derived, old, new), UndoStep::Leave);
        for nature in [FileKind::Ledger, FileKind::AppendOnly, day] {
            assert_eq!(undo_step(nature, old, grown), UndoStep::Leave);
            assert_eq!(undo_step(nature, None, new), UndoStep::Leave);
            assert_eq!(undo_step(nature, old, None), restore());
        }
        assert_eq!(
            undo_step(FileKind::AppendOnly, old, new),
            UndoStep::Merge(b"a\nb\nc\n".to_vec())
        );
        assert_eq!(undo_step(day, old, new), UndoStep::Merge(b"a\nb\nc\n".to_vec()));
    }

    // L16: a log keeps every line that it has, and gets back every line that it had
    #[test]
    fn a_log_is_merged_and_never_shrinks() {
        let day = FileKind::Log(jiff::civil::date(2026, 2, 13));
        for (then, now, wanted) in [
            // A line was corrected and another added.
            (
                "# Day\n\n- a tpyo\n",
                "# Day\n\n- a typo\n- b\n",
                Some("# Day\n\n- a tpyo\n- a typo\n- b\n"),
            ),
            // Another machine's line is between ours: nothing is missing.
            (
                "- 09:00 ours\n- 11:00 ours\n",
                "- 09:00 ours\n- 10:00 theirs\n- 11:00 ours\n- 12:00 later\n",
                None,
            ),
            // Two equal lines stay two.
            ("- ping\n- gone\n", "- ping\n- ping\n", Some("- ping\n- gone\n- ping\n")),
            // Emptied, and a last line without a line break.
            ("- a\n- b\n", "", Some("- a\n- b\n")),
            ("- a\n- b\n", "- b\n- c", Some("- a\n- b\n- c\n")),
            ("- a", "- a\n- b", None),
        ] {
            let step = undo_step(day, Some(then.as_bytes()), Some(now.as_bytes()));
            let merged =
                wanted.map_or(UndoStep::Leave, |text| UndoStep::Merge(text.as_bytes().to_vec()));
            assert_eq!(step, merged, "{then:?} {now:?}");
        }
        // Logs that differ in very many lines: nothing is lost.
        let many =
            |word: &str| -> String { (0..3_000).map(|n| format!("- {word} {n}\n")).collect() };
        let UndoStep::Merge(text) =
            undo_step(day, Some(many("old").as_bytes()), Some(many("new").as_bytes()))
        else {
            panic!()
        };
        assert_eq!(String::from_utf8(text).unwrap(), many("old") + &many("new"));
    }

    // L16
    #[test]
    fn lost_lines_come_back_where_they_stood() {
        let lines: Vec<String> =
            story("f f s1 f f").iter().map(crate::format::line::format_line).collect();
        let check = |kept: &[usize], settled: Option<u32>| {
            let now: String = kept.iter().map(|&at| lines[at].as_str()).collect();
            let (text, back) = restore_lines(lines.concat().as_bytes(), now.as_bytes(), |id| {
                Some(id.number()) == settled
            });
            (text == lines.concat().as_bytes(), back.len())
        };
        assert_eq!(check(&[0, 1, 2, 3, 4], None), (true, 0));
        assert_eq!(check(&[1, 2, 4], None), (true, 2));
        assert_eq!(check(&[], None), (true, 5));
        assert_eq!(check(&[1, 2, 3, 4], Some(1)), (false, 0));
        // Foreign and newer lines of today keep their position.
        let now = format!("foreign\n{}new\n", lines[1]);
        let (text, back) = restore_lines(lines[..3].concat().as_bytes(), now.as_bytes(), |_| false);
        assert_eq!(
            String::from_utf8(text).unwrap(),
            format!("{}foreign\n{}{}new\n", lines[0], lines[1], lines[2])
        );
        assert_eq!(back.len(), 2);
        // The original of a changed line is restored before it.
        let changed = lines[1].replace("event 1", "EVENT");
        let now = format!("{}{changed}{}", lines[0], lines[2]);
        let (text, back) = restore_lines(lines[..3].concat().as_bytes(), now.as_bytes(), |_| false);
        assert_eq!(
            String::from_utf8(text).unwrap(),
            format!("{}{}{changed}{}", lines[0], lines[1], lines[2])
        );
        assert_eq!(back.len(), 1);
    }

    /// The active events after an undo of everything beyond the first `kept`, and after a second
    /// undo.
    fn check(words: &str, kept: usize) {
        let events = story(words);
        let then = Ledger::from_events(events[..kept].to_vec());
        let now = Ledger::from_events(events.clone());
        let undo = |then: &Ledger, now: &Ledger, mut events: Vec<Event>| {
            for entry in retractions(then, now) {
                let id =
                    EventId::new(entry.event.id.day(), u32::try_from(events.len()).unwrap() + 1);
                events.push(
                    crate::event::EventDraft::new_act(
                        &entry.event,
                        Act::Retract,
                        entry.event.ts,
                        "undo",
                    )
                    .with_id(id),
                );
            }
            events
        };
        let standing = |ledger: &Ledger, many: usize| {
            ledger.entries()[..many]
                .iter()
                .map(|e| (e.event.is_statement(), e.state.is_active(), e.state.word()))
                .collect::<Vec<_>>()
        };
        let undone_events = undo(&then, &now, events.clone());
        let undone = Ledger::from_events(undone_events.clone());
        assert_eq!(standing(&undone, kept), standing(&then, kept), "undo of {words}");
        assert!(
            undone.entries()[kept..events.len()]
                .iter()
                .all(|e| !e.event.is_statement() || !e.state.is_active()),
            "{words}"
        );
        let redone = Ledger::from_events(undo(&now, &undone, undone_events));
        assert_eq!(
            standing(&redone, events.len()),
            standing(&now, events.len()),
            "redo of {words}"
        );
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
