//! Going back to a snapshot without losing anything on the way (L16).
//!
//! Files that may be rewritten come back as they were. Files that only grow never shrink: what was
//! added to the ledger since is taken back by new events, so that a second undo can take that back
//! in turn.

use std::collections::{HashMap, HashSet};

use crate::event::{Act, Event};
use crate::id::EventId;
use crate::layout::Nature;
use crate::ledger::{self, Entry, Ledger};

/// What becomes of one file that is not as it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// It stays as it is now.
    Leave,
    /// It becomes what it was.
    Restore(Vec<u8>),
    /// It was not there, so it goes.
    Remove,
    /// Its old lines come back, and the new ones stay.
    Merge(Vec<u8>),
}

/// What to do with a file that was `then` and is `now`.
pub fn step(nature: Nature, then: Option<&[u8]>, now: Option<&[u8]>) -> Step {
    match (nature, then, now) {
        _ if then == now => Step::Leave,
        (Nature::Derived, ..) | (Nature::Ledger | Nature::AppendOnly | Nature::Log(_), None, _) => {
            Step::Leave
        }
        (_, Some(then), None) => Step::Restore(then.to_vec()),
        (Nature::Ledger | Nature::AppendOnly | Nature::Log(_), Some(then), Some(now))
            if now.starts_with(then) =>
        {
            Step::Leave
        }
        (Nature::Ledger, Some(then), Some(now)) => Step::Merge(bring_back(then, now, |_| false).0),
        (Nature::Log(_), Some(then), Some(now)) => {
            merge_logs(then, now).map_or(Step::Leave, Step::Merge)
        }
        (Nature::AppendOnly, Some(then), Some(now)) => Step::Merge(merge(then, now)),
        (Nature::View, Some(then), Some(_)) => Step::Restore(then.to_vec()),
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

/// Longer differences between two logs are not compared line by line.
const MAX_COMPARED_PAIRS: usize = 4_000_000;

/// A log with every line that it has now and every line that it had then, each where it stood;
/// `None` if no line is missing.
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
        // All that it had, then all that it has: what both have stands there twice, but nothing is
        // gone.
        is_missing = true;
        merged.extend(a.iter().chain(b));
    } else {
        // The longest row of lines that both have, from each pair of places on.
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

/// The events of a ledger's sound lines, each id as it was first used.
pub fn told(text: &[u8]) -> HashMap<EventId, Event> {
    let mut told = HashMap::new();
    for line in ledger::lines(text, 1) {
        for event in sound(line.bytes) {
            told.entry(event.id).or_insert(event);
        }
    }
    told
}

fn sound(line: &[u8]) -> Vec<Event> {
    let parsed = crate::format::line::parse(line);
    if parsed.is_sound() { parsed.events } else { Vec::new() }
}

/// The lines of `now`, with those lines of `then` put back, each where it stood, whose events are
/// not in it, or not as they were. Returns the text and the events that came back. What `settled`
/// says is elsewhere stays away. A line that was changed stays too, behind the one it was; that two
/// lines then share an id is for the caller to settle.
pub fn bring_back(
    then: &[u8],
    now: &[u8],
    settled: impl Fn(EventId) -> bool,
) -> (Vec<u8>, Vec<EventId>) {
    let current: Vec<(&[u8], Vec<Event>)> =
        ledger::lines(now, 1).map(|line| (line.bytes, sound(line.bytes))).collect();
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
    for line in ledger::lines(then, 1) {
        let events = sound(line.bytes);
        let Some(first) = events.first() else { continue };
        if let Some(at) = place(first) {
            // Still there: everything up to it keeps its place before what follows.
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

/// Which events to retract, newest first, so that nothing recorded since `then` counts any more.
pub fn retractions<'a>(then: &Ledger, now: &'a Ledger) -> Vec<&'a Entry> {
    let new = |id: EventId| then.get(id).is_none();
    let mut since: Vec<&Entry> =
        now.entries().iter().filter(|entry| new(entry.event.id) && !is_retracted(entry)).collect();
    // What was forgotten stays taken back.
    since.retain(|entry| entry.event.content != crate::forget::FORGOTTEN);
    // A retraction of something that is new itself only keeps that out, as it should.
    since.retain(|entry| {
        entry.event.act != Act::Retract || entry.event.related.iter().any(|&target| !new(target))
    });
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
        let (old, new, grown) =
            (Some(b"a\nb\n".as_slice()), Some(b"a\nc\n".as_slice()), Some(b"a\nb\nc\n".as_slice()));
        let restore = || Step::Restore(b"a\nb\n".to_vec());
        assert_eq!(step(Nature::View, old, new), restore());
        assert_eq!(step(Nature::View, None, new), Step::Remove);
        assert_eq!(step(Nature::View, old, None), restore());
        assert_eq!(step(Nature::Derived, old, new), Step::Leave);
        for nature in [Nature::Ledger, Nature::AppendOnly, day] {
            assert_eq!(step(nature, old, grown), Step::Leave);
            assert_eq!(step(nature, None, new), Step::Leave);
            assert_eq!(step(nature, old, None), restore());
        }
        assert_eq!(step(Nature::AppendOnly, old, new), Step::Merge(b"a\nb\nc\n".to_vec()));
        assert_eq!(step(day, old, new), Step::Merge(b"a\nb\nc\n".to_vec()));
    }

    // L16: a log keeps every line that it has, and gets back every line that it had
    #[test]
    fn a_log_is_merged_and_never_shrinks() {
        let day = Nature::Log(jiff::civil::date(2026, 2, 13));
        for (then, now, wanted) in [
            // A line was corrected and another added.
            (
                "# Day\n\n- a tpyo\n",
                "# Day\n\n- a typo\n- b\n",
                Some("# Day\n\n- a tpyo\n- a typo\n- b\n"),
            ),
            // Another machine's line stands between ours: nothing is missing.
            (
                "- 09:00 ours\n- 11:00 ours\n",
                "- 09:00 ours\n- 10:00 theirs\n- 11:00 ours\n- 12:00 later\n",
                None,
            ),
            // Said twice is not said once.
            ("- ping\n- gone\n", "- ping\n- ping\n", Some("- ping\n- gone\n- ping\n")),
            // Emptied, and a last line without an end.
            ("- a\n- b\n", "", Some("- a\n- b\n")),
            ("- a\n- b\n", "- b\n- c", Some("- a\n- b\n- c\n")),
            ("- a", "- a\n- b", None),
        ] {
            let step = step(day, Some(then.as_bytes()), Some(now.as_bytes()));
            let merged = wanted.map_or(Step::Leave, |text| Step::Merge(text.as_bytes().to_vec()));
            assert_eq!(step, merged, "{then:?} {now:?}");
        }
        // Logs that differ in very many lines: nothing is gone.
        let many =
            |word: &str| -> String { (0..3_000).map(|n| format!("- {word} {n}\n")).collect() };
        let Step::Merge(text) =
            step(day, Some(many("old").as_bytes()), Some(many("new").as_bytes()))
        else {
            panic!()
        };
        assert_eq!(String::from_utf8(text).unwrap(), many("old") + &many("new"));
    }

    // L16
    #[test]
    fn lost_lines_come_back_where_they_stood() {
        let lines: Vec<String> =
            story("f f s1 f f").iter().map(crate::format::line::write).collect();
        let check = |kept: &[usize], settled: Option<u32>| {
            let now: String = kept.iter().map(|&at| lines[at].as_str()).collect();
            let (text, back) = bring_back(lines.concat().as_bytes(), now.as_bytes(), |id| {
                Some(id.number()) == settled
            });
            (text == lines.concat().as_bytes(), back.len())
        };
        assert_eq!(check(&[0, 1, 2, 3, 4], None), (true, 0));
        assert_eq!(check(&[1, 2, 4], None), (true, 2));
        assert_eq!(check(&[], None), (true, 5));
        assert_eq!(check(&[1, 2, 3, 4], Some(1)), (false, 0));
        // Foreign and newer lines of today stay where they are.
        let now = format!("foreign\n{}new\n", lines[1]);
        let (text, back) = bring_back(lines[..3].concat().as_bytes(), now.as_bytes(), |_| false);
        assert_eq!(
            String::from_utf8(text).unwrap(),
            format!("{}foreign\n{}{}new\n", lines[0], lines[1], lines[2])
        );
        assert_eq!(back.len(), 2);
        // A line that was changed is put back before what it was changed into.
        let changed = lines[1].replace("event 1", "EVENT");
        let now = format!("{}{changed}{}", lines[0], lines[2]);
        let (text, back) = bring_back(lines[..3].concat().as_bytes(), now.as_bytes(), |_| false);
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
        let then = Ledger::of(events[..kept].to_vec());
        let now = Ledger::of(events.clone());
        let undo = |then: &Ledger, now: &Ledger, mut events: Vec<Event>| {
            for entry in retractions(then, now) {
                let id =
                    EventId::new(entry.event.id.day(), u32::try_from(events.len()).unwrap() + 1);
                events.push(
                    crate::event::Draft::upon(&entry.event, Act::Retract, entry.event.ts, "undo")
                        .with_id(id),
                );
            }
            events
        };
        let standing = |ledger: &Ledger, many: usize| {
            ledger.entries()[..many]
                .iter()
                .map(|e| (e.event.is_statement(), e.standing.is_active(), e.standing.word()))
                .collect::<Vec<_>>()
        };
        let undone_events = undo(&then, &now, events.clone());
        let undone = Ledger::of(undone_events.clone());
        assert_eq!(standing(&undone, kept), standing(&then, kept), "undo of {words}");
        assert!(
            undone.entries()[kept..events.len()]
                .iter()
                .all(|e| !e.event.is_statement() || !e.standing.is_active()),
            "{words}"
        );
        let redone = Ledger::of(undo(&now, &undone, undone_events));
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
