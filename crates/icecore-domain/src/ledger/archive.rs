//! Archives of lines that left the ledger, and the ledger as of a moment (L14, L15).
//!
//! An archive only grows. It consists of batches: a head with time and reason, then the lines as
//! they were in the ledger, byte for byte. References to archived events still resolve, and the
//! ledger can be reconstructed as of any moment. Reading never fails: neither edits nor a crash
//! make an event of an archive unreadable.

use std::collections::{HashMap, HashSet};

use jiff::Timestamp;
use jiff::civil::Date;

use crate::calendar::Moment;
use crate::event::Event;
use crate::format::line;
use crate::layout::DocPath;
use crate::ledger::{Ledger, lines};
use crate::plain;
use crate::words::words;

/// The path prefix of compaction archives.
const COMPACTED: &str = "memory/ledger-archive-";
/// The folder of pruning archives.
const PRUNED: &str = "memory/archive/";
/// The start of a batch head.
const HEAD: &[u8] = br#"{"archived":"#;
/// The most complaints about one archive; a last one counts the rest.
const MAX_COMPLAINTS: usize = 100;

words! {
    /// Why lines leave the ledger.
    Why: "a reason to archive" {
        /// Another line in the ledger stands for them, or the ledger had to shrink.
        Compaction = "compaction",
        /// They expired.
        Pruning = "pruning",
    }
}

/// Formats one batch for appending to an archive; empty if there are no lines.
pub fn write(at: Moment, why: Why, lines: &[&[u8]]) -> Vec<u8> {
    if lines.is_empty() {
        return Vec::new();
    }
    // A timestamp and our own words need no escaping.
    let mut batch =
        format!(r#"{{"archived":"{at}","why":"{why}","lines":{}}}"#, lines.len()).into_bytes();
    batch.push(b'\n');
    for line in lines {
        batch.extend_from_slice(line.strip_suffix(b"\n").unwrap_or(line));
        batch.push(b'\n');
    }
    batch
}

/// The lines that an archive does not contain yet, byte for byte.
pub fn not_in<'a>(archive: &[u8], lines: Vec<&'a [u8]>) -> Vec<&'a [u8]> {
    let bare = |line: &'_ [u8]| line.strip_suffix(b"\n").unwrap_or(line).to_vec();
    let there: HashSet<&[u8]> = archive.split(|byte| *byte == b'\n').collect();
    lines.into_iter().filter(|line| !there.contains(bare(line).as_slice())).collect()
}

/// The path of the archive for lines that leave on `day`.
pub fn path(why: Why, day: Date) -> DocPath {
    let name = match why {
        Why::Compaction => format!("{COMPACTED}{:04}.jsonl", day.year()),
        Why::Pruning => format!("{PRUNED}{:04}-Q{}.jsonl", day.year(), (day.month() - 1) / 3 + 1),
    };
    // The path is always valid; if it were not, the log, which only grows, would preserve the
    // lines.
    name.parse().unwrap_or_else(|_| DocPath::log(day))
}

/// Whether a path is an archive, of icecore or of another program.
pub fn is_archive(path: &DocPath) -> bool {
    let name = path.as_str().strip_suffix(".jsonl");
    let rest =
        name.and_then(|name| name.strip_prefix(COMPACTED).or_else(|| name.strip_prefix(PRUNED)));
    rest.is_some_and(|rest| !rest.is_empty() && !rest.contains('/'))
}

/// An archived event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Archived {
    pub event: Event,
    /// When it left the ledger; none, meaning before everything, for a line without a batch head.
    pub at: Option<Timestamp>,
    pub offset: u64,
    /// The length of the line in bytes, without its line break.
    pub length: usize,
    /// The line number, from 1.
    pub line: usize,
}

/// The content of an archive.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Archive {
    /// The events, in file order.
    pub lines: Vec<Archived>,
    /// Descriptions of its faults.
    pub complaints: Vec<String>,
}

/// The head of a batch.
#[derive(serde::Deserialize)]
struct Head {
    archived: String,
    #[serde(default)]
    lines: Option<u64>,
}

/// A batch whose lines are being read.
struct Open {
    at: Option<Timestamp>,
    line: usize,
    announced: Option<u64>,
    read: u64,
}

impl Open {
    fn awaits_more(&self) -> bool {
        self.announced.is_none_or(|announced| self.read < announced)
    }

    /// The complaint about a truncated batch.
    fn cut_short(&self) -> Option<String> {
        let announced = self.announced.filter(|announced| self.read < *announced)?;
        Some(format!("line {} announces {announced} lines, but {} follow", self.line, self.read))
    }
}

/// Parses an archive.
pub fn read(bytes: &[u8]) -> Archive {
    let mut archive = Archive::default();
    let mut complaints = Complaints::default();
    let mut batch: Option<Open> = None;
    for raw in lines(bytes, 1) {
        if raw.bytes.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        let parsed = line::parse(raw.bytes);
        if parsed.events.is_empty()
            && let Some((head, clean)) = head_of(raw.bytes)
        {
            if !clean {
                complaints
                    .add(|| format!("line {} has a partial line before a batch head", raw.number));
            }
            batch
                .as_ref()
                .and_then(Open::cut_short)
                .into_iter()
                .for_each(|complaint| complaints.add(|| complaint));
            let at = Moment::read(&head.archived).map(|read| read.moment.at());
            if at.is_none() {
                let shown: String = plain::one_line(&head.archived).chars().take(40).collect();
                complaints.add(|| {
                    format!("line {} was archived at `{shown}`, which is not a time", raw.number)
                });
            }
            if head.lines.is_none() {
                complaints
                    .add(|| format!("line {} lacks the number of lines in its batch", raw.number));
            }
            batch = Some(Open { at, line: raw.number, announced: head.lines, read: 0 });
            continue;
        }
        let within = batch.as_ref().is_some_and(Open::awaits_more);
        if let Some(batch) = batch.as_mut().filter(|_| within) {
            batch.read += 1;
        } else if batch.is_some() && !parsed.events.is_empty() {
            complaints.add(|| format!("line {} exceeds the line count of its batch", raw.number));
        }
        if parsed.events.is_empty() || !parsed.is_sound() {
            let torn = if raw.ended { "" } else { " and was cut off" };
            let what = parsed.faults.first().map_or("is not an event", |fault| fault.what.as_str());
            complaints.add(|| format!("line {} {what}{torn}", raw.number));
        }
        let at = batch.as_ref().filter(|_| within).and_then(|batch| batch.at);
        let (offset, length) = (u64::try_from(raw.offset).unwrap_or(u64::MAX), raw.bytes.len());
        archive.lines.extend(parsed.events.into_iter().map(|event| Archived {
            event,
            at,
            offset,
            length,
            line: raw.number,
        }));
    }
    batch
        .as_ref()
        .and_then(Open::cut_short)
        .into_iter()
        .for_each(|complaint| complaints.add(|| complaint));
    archive.complaints = complaints.told();
    archive
}

/// The batch head on a line without events, and whether the line holds nothing else: a torn line
/// may precede it.
fn head_of(bytes: &[u8]) -> Option<(Head, bool)> {
    let read = |bytes| serde_json::from_slice::<Head>(bytes).ok();
    if let Some(head) = read(bytes) {
        return Some((head, true));
    }
    let at = memchr::memmem::rfind(bytes, HEAD)?;
    read(bytes.get(at..)?).map(|head| (head, false))
}

/// Complaints up to a limit.
#[derive(Default)]
struct Complaints {
    told: Vec<String>,
    beyond: usize,
}

impl Complaints {
    fn add(&mut self, complaint: impl FnOnce() -> String) {
        if self.told.len() < MAX_COMPLAINTS {
            self.told.push(complaint());
        } else {
            self.beyond += 1;
        }
    }

    fn told(mut self) -> Vec<String> {
        if self.beyond > 0 {
            self.told.push(format!("and {} more complaints", self.beyond));
        }
        self.told
    }
}

/// The events that were archived at exactly this moment, read from the end of an archive.
pub fn left_at(tail: &[u8], at: Moment) -> Vec<Event> {
    let head = [HEAD, format!("\"{at}\"").as_bytes()].concat();
    let Some(from) = memchr::memmem::find(tail, &head) else { return Vec::new() };
    read(&tail[from..])
        .lines
        .into_iter()
        .filter(|line| line.at == Some(at.at()))
        .map(|line| line.event)
        .collect()
}

/// When the last batch was archived; none if some line has no archiving time.
pub fn newest(bytes: &[u8]) -> Option<Timestamp> {
    let mut newest = None;
    for (at, raw) in lines(bytes, 1).enumerate() {
        if raw.bytes.starts_with(HEAD) {
            let head: serde_json::Value = serde_json::from_slice(raw.bytes).ok()?;
            newest = newest
                .max(head["archived"].as_str().and_then(Moment::read).map(|read| read.moment.at()));
        } else if at == 0 {
            return None;
        }
    }
    newest
}

/// The ledger as of `until`: the events recorded until then, including those archived later.
pub fn as_of(ledger: &[u8], archives: &[&[u8]], until: Timestamp) -> Ledger {
    let then = Ledger::read(ledger, Some(until));
    let mut left: Vec<Archived> = archives.iter().flat_map(|bytes| read(bytes).lines).collect();
    // A run that died between archive and ledger archives its lines again; the last batch counts.
    let mut last: HashMap<_, Option<Timestamp>> = HashMap::with_capacity(left.len());
    for archived in &left {
        let at = last.entry(archived.event.id).or_default();
        *at = (*at).max(archived.at);
    }
    left.retain(|archived| archived.event.ts.at() <= until);
    left.retain(|archived| {
        last.get(&archived.event.id).copied().flatten().is_some_and(|at| at > until)
    });
    if left.is_empty() {
        return then;
    }
    // An id belongs to the ledger's event even if that event was recorded after `until`.
    let taken: HashSet<_> =
        Ledger::read(ledger, None).entries().iter().map(|entry| entry.event.id).collect();
    then.with_older(
        left.into_iter()
            .filter(|archived| !taken.contains(&archived.event.id))
            .map(|a| (a.event, a.line))
            .collect(),
    )
}

/// Everything that was ever in the ledger, at any time: for showing an event and its provenance.
pub fn everything(ledger: &[u8], archives: &[&[u8]]) -> Ledger {
    let left = archives
        .iter()
        .flat_map(|bytes| read(bytes).lines)
        .map(|archived| (archived.event, archived.line));
    Ledger::read(ledger, None).with_older(left.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::EventId;
    use crate::ledger::compact::tests::{append, event, moment, said, steps};
    use crate::ledger::compact::{self, Limits, What};
    use crate::ledger::tests::story;
    use jiff::civil::date;
    use proptest::prelude::*;

    fn written(words: &str) -> Vec<String> {
        story(words).iter().map(line::write).collect()
    }

    // L15
    #[test]
    fn what_left_at_a_moment_is_read_from_the_end() {
        let (first, last) = (at("2026-02-13T03:00:00+01:00"), at("2026-02-14T03:00:00+01:00"));
        let lines = written("f f f");
        let lines: Vec<&[u8]> = lines.iter().map(String::as_bytes).collect();
        let mut text = write(first, Why::Compaction, &lines[..1]);
        text.extend(write(last, Why::Compaction, &lines[1..]));
        let left = |text: &[u8], at| left_at(text, at).len();
        assert_eq!(
            (left(&text, first), left(&text, last), left(&text, at("2026-02-15T03:00:00+01:00"))),
            (1, 2, 0)
        );
        // The tail may begin within a line, and a torn line may precede a head.
        assert_eq!(left(&text[20..], last), 2);
        let torn = [&lines[0][..9], &write(last, Why::Compaction, &lines[1..])].concat();
        assert_eq!(left(&torn, last), 2);
    }

    fn at(text: &str) -> Moment {
        Moment::read(text).unwrap().moment
    }

    /// `(number of the event, archived at)` of each line, and the complaints, each by a part of it.
    fn check(text: &str, expected: &[(u32, Option<&str>)], complaints: &[&str]) {
        let archive = read(text.as_bytes());
        let found: Vec<(u32, Option<Timestamp>)> =
            archive.lines.iter().map(|found| (found.event.id.number(), found.at)).collect();
        let expected: Vec<_> = expected
            .iter()
            .map(|(number, when)| (*number, when.map(|when| at(when).at())))
            .collect();
        assert_eq!(found, expected, "{text}");
        assert_eq!(archive.complaints.len(), complaints.len(), "{:?}", archive.complaints);
        for (complaint, part) in archive.complaints.iter().zip(complaints) {
            assert!(complaint.contains(part), "{complaint} has no {part}");
        }
        for found in archive.lines {
            let start = usize::try_from(found.offset).unwrap();
            let line = &text.as_bytes()[start..start + found.length];
            assert!(line::parse(line).events.contains(&found.event));
        }
    }

    // L15
    #[test]
    fn no_event_in_an_archive_is_lost() {
        let [one, two, three] = <[String; 3]>::try_from(written("f f f")).unwrap();
        let (then, later) = ("2026-03-01T03:00:00+01:00", "2026-04-01T03:00:00+02:00");
        let batch = |when: &str, lines: &[&str]| {
            let lines: Vec<&[u8]> = lines.iter().map(|line| line.trim_end().as_bytes()).collect();
            String::from_utf8(write(at(when), Why::Compaction, &lines)).unwrap()
        };
        let first = batch(then, &[&one, &two]);
        assert_eq!(
            first.lines().next().unwrap(),
            r#"{"archived":"2026-03-01T03:00:00+01:00","why":"compaction","lines":2}"#
        );
        assert_eq!(batch(then, &[]), "");
        check("", &[], &[]);
        check(&first, &[(1, Some(then)), (2, Some(then))], &[]);
        check(
            &format!("{first}{}", batch(later, &[&three])),
            &[(1, Some(then)), (2, Some(then)), (3, Some(later))],
            &[],
        );
        // Written by other programs.
        check(&one, &[(1, None)], &[]);
        check(&format!("{one}\n\r\n{}", batch(then, &[&two])), &[(1, None), (2, Some(then))], &[]);
        check(
            &format!("{first}{three}"),
            &[(1, Some(then)), (2, Some(then)), (3, None)],
            &["line 4 exceeds the line count"],
        );
        // Wrong counts.
        let fewer = first.replace("\"lines\":2", "\"lines\":3");
        check(&fewer, &[(1, Some(then)), (2, Some(then))], &["announces 3 lines, but 2 follow"]);
        check(
            &format!("{fewer}{}", batch(later, &[&three])),
            &[(1, Some(then)), (2, Some(then)), (3, Some(later))],
            &["announces 3"],
        );
        let more = first.replace("\"lines\":2", "\"lines\":1");
        check(&more, &[(1, Some(then)), (2, None)], &["line 3 exceeds"]);
        let uncounted = first.replace(",\"lines\":2", "");
        check(&uncounted, &[(1, Some(then)), (2, Some(then))], &["lacks the number of lines"]);
        // Torn, foreign and joined lines.
        let cut = &first[..first.len() - 9];
        check(cut, &[(1, Some(then))], &["and was cut off"]);
        check(
            &format!("{cut}{}", batch(later, &[&three])),
            &[(1, Some(then)), (3, Some(later))],
            &["partial line before a batch head", "announces 2 lines, but 1"],
        );
        check(
            &first.replace("2026-03-01T03", "some day"),
            &[(1, None), (2, None)],
            &["not a time"],
        );
        check(
            &format!("{}who was it?\n", batch(then, &[&one])),
            &[(1, Some(then))],
            &["line 3 is not a JSON object"],
        );
        let joined = format!("{}{two}", one.trim_end());
        check(&batch(then, &[&joined]), &[(1, Some(then)), (2, Some(then))], &[]);
        check(first.trim_end(), &[(1, Some(then)), (2, Some(then))], &[]);
        let many = "no\n".repeat(MAX_COMPLAINTS + 5);
        assert_eq!(read(many.as_bytes()).complaints.last().unwrap(), "and 5 more complaints");
    }

    // L14, L15
    #[test]
    fn each_reason_and_day_has_its_file() {
        assert_eq!(
            path(Why::Compaction, date(2026, 3, 1)).as_str(),
            "memory/ledger-archive-2026.jsonl"
        );
        for (month, name) in [
            (1, "2026-Q1"),
            (3, "2026-Q1"),
            (4, "2026-Q2"),
            (9, "2026-Q3"),
            (10, "2026-Q4"),
            (12, "2026-Q4"),
        ] {
            assert_eq!(
                path(Why::Pruning, date(2026, month, 1)).as_str(),
                format!("memory/archive/{name}.jsonl")
            );
        }
        for day in [Date::MIN, date(2026, 5, 5), Date::MAX] {
            assert!(Why::ALL.iter().all(|why| is_archive(&path(*why, day))), "{day}");
        }
        let check = |path: &str, expected| {
            assert_eq!(is_archive(&path.parse().unwrap()), expected, "{path}")
        };
        check("memory/ledger-archive-old.jsonl", true);
        check("memory/archive/anything.jsonl", true);
        check("memory/ledger.jsonl", false);
        check("memory/ledger-archive-.jsonl", false);
        check("memory/archive/deep/x.jsonl", false);
        check("memory/archive/x.md", false);
        check("knowledge/archive/x.jsonl", false);
    }

    // L15
    #[test]
    fn the_past_is_put_together_from_ledger_and_archive() {
        let lines = written("f s1 f");
        let (when, until) = (at("2026-03-01T03:00:00+01:00"), at("2026-02-20T00:00:00+01:00"));
        let archive = write(when, Why::Compaction, &[lines[0].trim_end().as_bytes()]);
        let now = lines[1..].concat();
        let count = |until: Moment| as_of(now.as_bytes(), &[&archive], until.at()).entries().len();
        assert_eq!((count(until), count(when), count(at("2026-02-13T09:00:30+01:00"))), (3, 2, 1));
        // Before it was replaced, it held.
        let early = as_of(now.as_bytes(), &[&archive], at("2026-02-13T09:00:30+01:00").at());
        assert!(early.entries()[0].standing.is_active());
        let all = everything(now.as_bytes(), &[&archive]);
        let numbers: Vec<u32> = all.entries().iter().map(|entry| entry.event.id.number()).collect();
        assert_eq!((numbers, all.entries()[0].standing.word()), (vec![1, 2, 3], "superseded"));
        assert_eq!(all.chain(all.entries()[0].event.id).len(), 2);
        // A run that died before the ledger was rewritten: counted once, in its place.
        let both = as_of(lines.concat().as_bytes(), &[&archive, &archive], when.at());
        assert_eq!(said(&both), said(&Ledger::read(lines.concat().as_bytes(), None)));
        // ... and archived the line again afterwards: until then it was in the ledger.
        let again = write(
            at("2026-03-02T03:00:00+01:00"),
            Why::Compaction,
            &[lines[0].trim_end().as_bytes()],
        );
        assert_eq!(
            as_of(now.as_bytes(), &[&archive, &again], at("2026-03-01T12:00:00+01:00").at())
                .entries()
                .len(),
            3
        );
        // Lines without a head were archived before everything else.
        assert_eq!(as_of(now.as_bytes(), &[lines[0].as_bytes()], until.at()).entries().len(), 2);
        assert_eq!(everything(now.as_bytes(), &[lines[0].as_bytes()]).entries().len(), 3);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]
        // L14, L15
        #[test]
        fn the_ledger_can_be_told_as_it_was_at_any_moment(plan in steps(40), runs in prop::collection::vec((1_usize..12, 0_u8..3), 1..8)) {
            let (mut text, mut day) = (Vec::new(), date(2026, 1, 1));
            let mut files: [Vec<u8>; 2] = [Vec::new(), Vec::new()];
            let mut events = Vec::new();
            let mut copies: Vec<(Timestamp, Vec<u8>)> = Vec::new();
            let mut runs = runs.into_iter().cycle();
            let (mut wait, mut kind) = runs.next().unwrap();
            for step in plan {
                let next = event(step, &events, &mut day);
                text.extend_from_slice(line::write(&next).as_bytes());
                copies.push((next.ts.at(), text.clone()));
                events.push(next);
                wait -= 1;
                if wait > 0 {
                    continue;
                }
                // In the evening, so that the moments of a day count up.
                if kind > 0 {
                    let drafts = compact::summaries(&Ledger::read(&text, None), moment(day, 20 * 60));
                    append(&mut text, drafts);
                    copies.push((moment(day, 20 * 60).at(), text.clone()));
                }
                let what = if kind == 0 { What::Prune } else { What::Compact };
                let limits = Limits { most: if kind == 2 { 5 } else { 150 }, ..Limits::USUAL };
                let leaving = compact::leaving(&Ledger::read(&text, None), day, limits, what);
                let when = moment(day, 21 * 60);
                for (file, why, ids) in [(0, Why::Compaction, &leaving.compacted), (1, Why::Pruning, &leaving.pruned)] {
                    let (kept, lines) = compact::split(&text, &ids.iter().copied().collect());
                    files[file].extend(write(when, why, &lines));
                    text = kept;
                }
                copies.push((when.at(), text.clone()));
                day = day.tomorrow().unwrap();
                (wait, kind) = runs.next().unwrap();
                // Summaries took ids of the day before; the next events have a day of their own.
                events.clear();
                events.extend(Ledger::read(&text, None).entries().iter().map(|entry| entry.event.clone()));
            }
            let archives: Vec<&[u8]> = files.iter().map(Vec::as_slice).collect();
            for archive in &archives {
                prop_assert_eq!(read(archive).complaints, Vec::<String>::new());
            }
            for (when, copy) in &copies {
                prop_assert_eq!(said(&as_of(&text, &archives, *when)), said(&Ledger::read(copy, None)), "{}", when);
            }
            let ids: HashSet<EventId> = copies.iter().flat_map(|(_, copy)| {
                Ledger::read(copy, None).entries().iter().map(|entry| entry.event.id).collect::<Vec<_>>()
            }).collect();
            prop_assert_eq!(everything(&text, &archives).entries().len(), ids.len());
        }

        #[test]
        fn any_bytes_are_an_archive(bytes in any::<Vec<u8>>(), torn in "(\\{\"archived\":|[a-z\"{}:,0-9\n]){0,20}") {
            read(&bytes);
            read(torn.as_bytes());
            as_of(&bytes, &[torn.as_bytes()], Timestamp::MAX);
        }
    }
}
