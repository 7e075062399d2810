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
use crate::ledger::{Ledger, raw_lines};
use crate::sanitize;
use crate::string_enum::string_enum;

/// The path prefix of compaction archives.
const COMPACTION_ARCHIVE_PREFIX: &str = "memory/ledger-archive-";
/// The folder of pruning archives.
const PRUNING_ARCHIVE_DIR: &str = "memory/archive/";
/// The start of a batch head.
const BATCH_HEAD_START: &[u8] = br#"{"archived":"#;
/// The most complaints about one archive; a last one counts the rest.
const MAX_COMPLAINTS: usize = 100;

string_enum! {
    /// Why lines leave the ledger.
    ArchiveReason: "a reason to archive" {
        /// Another line in the ledger stands for them, or the ledger had to shrink.
        Compaction = "compaction",
        /// They expired.
        Pruning = "pruning",
    }
}

/// Formats one batch for appending to an archive; empty if there are no lines.
pub fn format_batch(at: Moment, why: ArchiveReason, lines: &[&[u8]]) -> Vec<u8> {
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
pub fn lines_not_in<'a>(archive: &[u8], lines: Vec<&'a [u8]>) -> Vec<&'a [u8]> {
    let bare = |line: &'_ [u8]| line.strip_suffix(b"\n").unwrap_or(line).to_vec();
    let there: HashSet<&[u8]> = archive.split(|byte| *byte == b'\n').collect();
    lines.into_iter().filter(|line| !there.contains(bare(line).as_slice())).collect()
}

/// The path of the archive for lines that leave on `day`.
pub fn archive_path(why: ArchiveReason, day: Date) -> DocPath {
    let name = match why {
        ArchiveReason::Compaction => format!("{COMPACTION_ARCHIVE_PREFIX}{:04}.jsonl", day.year()),
        ArchiveReason::Pruning => {
            format!("{PRUNING_ARCHIVE_DIR}{:04}-Q{}.jsonl", day.year(), (day.month() - 1) / 3 + 1)
        }
    };
    // The path is always valid; if it were not, the log, which only grows, would preserve the
    // lines.
    name.parse().unwrap_or_else(|_| DocPath::log(day))
}

/// Whether a path is an archive, of icecore or of another program.
pub fn is_archive(path: &DocPath) -> bool {
    let name = path.as_str().strip_suffix(".jsonl");
    let rest = name.and_then(|name| {
        name.strip_prefix(COMPACTION_ARCHIVE_PREFIX)
            .or_else(|| name.strip_prefix(PRUNING_ARCHIVE_DIR))
    });
    rest.is_some_and(|rest| !rest.is_empty() && !rest.contains('/'))
}

/// An archived event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArchivedEvent {
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
pub struct LedgerArchive {
    /// The events, in file order.
    pub lines: Vec<ArchivedEvent>,
    /// Descriptions of its faults.
    pub complaints: Vec<String>,
}

/// The head of a batch.
#[derive(serde::Deserialize)]
struct BatchHead {
    archived: String,
    #[serde(default)]
    lines: Option<u64>,
}

/// A batch whose lines are being read.
struct OpenBatch {
    at: Option<Timestamp>,
    line: usize,
    announced: Option<u64>,
    read: u64,
}

impl OpenBatch {
    fn expects_more_lines(&self) -> bool {
        self.announced.is_none_or(|announced| self.read < announced)
    }

    /// The complaint about a truncated batch.
    fn truncation_complaint(&self) -> Option<String> {
        let announced = self.announced.filter(|announced| self.read < *announced)?;
        Some(format!("line {} announces {announced} lines, but {} follow", self.line, self.read))
    }
}

/// Parses an archive.
pub fn parse_archive(bytes: &[u8]) -> LedgerArchive {
    let mut archive = LedgerArchive::default();
    let mut complaints = Complaints::default();
    let mut batch: Option<OpenBatch> = None;
    for raw in raw_lines(bytes, 1) {
        if raw.bytes.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        let parsed = line::parse_line(raw.bytes);
        if parsed.events.is_empty()
            && let Some((head, clean)) = parse_batch_head(raw.bytes)
        {
            if !clean {
                complaints
                    .add(|| format!("line {} has a partial line before a batch head", raw.number));
            }
            batch
                .as_ref()
                .and_then(OpenBatch::truncation_complaint)
                .into_iter()
                .for_each(|complaint| complaints.add(|| complaint));
            let at = Moment::parse(&head.archived).map(|read| read.moment.timestamp());
            if at.is_none() {
                let shown: String = sanitize::one_line(&head.archived).chars().take(40).collect();
                complaints.add(|| {
                    format!("line {} was archived at `{shown}`, which is not a time", raw.number)
                });
            }
            if head.lines.is_none() {
                complaints
                    .add(|| format!("line {} lacks the number of lines in its batch", raw.number));
            }
            batch = Some(OpenBatch { at, line: raw.number, announced: head.lines, read: 0 });
            continue;
        }
        let within = batch.as_ref().is_some_and(OpenBatch::expects_more_lines);
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
        archive.lines.extend(parsed.events.into_iter().map(|event| ArchivedEvent {
            event,
            at,
            offset,
            length,
            line: raw.number,
        }));
    }
    batch
        .as_ref()
        .and_then(OpenBatch::truncation_complaint)
        .into_iter()
        .for_each(|complaint| complaints.add(|| complaint));
    archive.complaints = complaints.into_messages();
    archive
}

/// The batch head on a line without events, and whether the line holds nothing else: a torn line
/// may precede it.
fn parse_batch_head(bytes: &[u8]) -> Option<(BatchHead, bool)> {
    let read = |bytes| serde_json::from_slice::<BatchHead>(bytes).ok();
    if let Some(head) = read(bytes) {
        return Some((head, true));
    }
    let at = memchr::memmem::rfind(bytes, BATCH_HEAD_START)?;
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

    fn into_messages(mut self) -> Vec<String> {
        if self.beyond > 0 {
            self.told.push(format!("and {} more complaints", self.beyond));
        }
        self.told
    }
}

/// The events that were archived at exactly this moment, read from the end of an archive.
pub fn events_archived_at(tail: &[u8], at: Moment) -> Vec<Event> {
    let head = [BATCH_HEAD_START, format!("\"{at}\"").as_bytes()].concat();
    let Some(from) = memchr::memmem::find(tail, &head) else { return Vec::new() };
    parse_archive(&tail[from..])
        .lines
        .into_iter()
        .filter(|line| line.at == Some(at.timestamp()))
        .map(|line| line.event)
        .collect()
}

/// When the last batch was archived; none if some line has no archiving time.
pub fn last_archived_at(bytes: &[u8]) -> Option<Timestamp> {
    let mut newest = None;
    for (at, raw) in raw_lines(bytes, 1).enumerate() {
        if raw.bytes.starts_with(BATCH_HEAD_START) {
            let head: serde_json::Value = serde_json::from_slice(raw.bytes).ok()?;
            newest = newest.max(
                head["archived"]
                    .as_str()
                    .and_then(Moment::parse)
                    .map(|read| read.moment.timestamp()),
            );
        } else if at == 0 {
            return None;
        }
    }
    newest
}

/// The ledger as of `until`: the events recorded until then, including those archived later.
pub fn ledger_as_of(ledger: &[u8], archives: &[&[u8]], until: Timestamp) -> Ledger {
    let then = Ledger::parse(ledger, Some(until));
    let mut left: Vec<ArchivedEvent> =
        archives.iter().flat_map(|bytes| parse_archive(bytes).lines).collect();
    // A run that died between archive and ledger archives its lines again; the last batch counts.
    let mut last: HashMap<_, Option<Timestamp>> = HashMap::with_capacity(left.len());
    for archived in &left {
        let at = last.entry(archived.event.id).or_default();
        *at = (*at).max(archived.at);
    }
    left.retain(|archived| archived.event.ts.timestamp() <= until);
    left.retain(|archived| {
        last.get(&archived.event.id).copied().flatten().is_some_and(|at| at > until)
    });
    if left.is_empty() {
        return then;
    }
    // An id belongs to the ledger's event even if that event was recorded after `until`.
    let taken: HashSet<_> =
        Ledger::parse(ledger, None).entries().iter().map(|entry| entry.event.id).collect();
    then.with_archived(
        left.into_iter()
            .filter(|archived| !taken.contains(&archived.event.id))
            .map(|a| (a.event, a.line))
            .collect(),
    )
}

/// Everything that was ever in the ledger, at any time: for showing an event and its provenance.
pub fn ledger_with_archives(ledger: &[u8], archives: &[&[u8]]) -> Ledger {
    let left = archives
        .iter()
        .flat_map(|bytes| parse_archive(bytes).lines)
        .map(|archived| (archived.event, archived.line));
    Ledger::parse(ledger, None).with_archived(left.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::EventId;
    use crate::ledger::compact::tests::{append, event, event_states, moment, steps};
    use crate::ledger::compact::{self, CompactionLimits, CompactionMode};
    use crate::ledger::tests::story;
    use jiff::civil::date;
    use proptest::prelude::*;

    fn ledger_lines(words: &str) -> Vec<String> {
        story(words).iter().map(line::format_line).collect()
    }

    // L15
    #[test]
    fn what_left_at_a_moment_is_read_from_the_end() {
        let (first, last) = (at("2026-02-13T03:00:00+01:00"), at("2026-02-14T03:00:00+01:00"));
        let lines = ledger_lines("f f f");
        let lines: Vec<&[u8]> = lines.iter().map(String::as_bytes).collect();
        let mut text = format_batch(first, ArchiveReason::Compaction, &lines[..1]);
        text.extend(format_batch(last, ArchiveReason::Compaction, &lines[1..]));
        let left = |text: &[u8], at| events_archived_at(text, at).len();
        assert_eq!(
            (left(&text, first), left(&text, last), left(&text, at("2026-02-15T03:00:00+01:00"))),
            (1, 2, 0)
        );
        // The tail may begin within a line, and a torn line may precede a head.
        assert_eq!(left(&text[20..], last), 2);
        let torn =
            [&lines[0][..9], &format_batch(last, ArchiveReason::Compaction, &lines[1..])].concat();
        assert_eq!(left(&torn, last), 2);
    }

    fn at(text: &str) -> Moment {
        Moment::parse(text).unwrap().moment
    }

    /// `(number of the event, archived at)` of each line, and the complaints, each by a part of it.
    fn check(text: &str, expected: &[(u32, Option<&str>)], complaints: &[&str]) {
        let archive = parse_archive(text.as_bytes());
        let found: Vec<(u32, Option<Timestamp>)> =
            archive.lines.iter().map(|found| (found.event.id.number(), found.at)).collect();
        let expected: Vec<_> = expected
            .iter()
            .map(|(number, when)| (*number, when.map(|when| at(when).timestamp())))
            .collect();
        assert_eq!(found, expected, "{text}");
        assert_eq!(archive.complaints.len(), complaints.len(), "{:?}", archive.complaints);
        for (complaint, part) in archive.complaints.iter().zip(complaints) {
            assert!(complaint.contains(part), "{complaint} has no {part}");
        }
        for found in archive.lines {
            let start = usize::try_from(found.offset).unwrap();
            let line = &text.as_bytes()[start..start + found.length];
            assert!(line::parse_line(line).events.contains(&found.event));
        }
    }

    // L15
    #[test]
    fn no_event_in_an_archive_is_lost() {
        let [one, two, three] = <[String; 3]>::try_from(ledger_lines("f f f")).unwrap();
        let (then, later) = ("2026-03-01T03:00:00+01:00", "2026-04-01T03:00:00+02:00");
        let batch = |when: &str, lines: &[&str]| {
            let lines: Vec<&[u8]> = lines.iter().map(|line| line.trim_end().as_bytes()).collect();
            String::from_utf8(format_batch(at(when), ArchiveReason::Compaction, &lines)).unwrap()
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
        assert_eq!(
            parse_archive(many.as_bytes()).complaints.last().unwrap(),
            "and 5 more complaints"
        );
    }

    // L14, L15
    #[test]
    fn each_reason_and_day_has_its_file() {
        assert_eq!(
            archive_path(ArchiveReason::Compaction, date(2026, 3, 1)).as_str(),
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
                archive_path(ArchiveReason::Pruning, date(2026, month, 1)).as_str(),
                format!("memory/archive/{name}.jsonl")
            );
        }
        for day in [Date::MIN, date(2026, 5, 5), Date::MAX] {
            assert!(
                ArchiveReason::ALL.iter().all(|why| is_archive(&archive_path(*why, day))),
                "{day}"
            );
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
        let lines = ledger_lines("f s1 f");
        let (when, until) = (at("2026-03-01T03:00:00+01:00"), at("2026-02-20T00:00:00+01:00"));
        let archive =
            format_batch(when, ArchiveReason::Compaction, &[lines[0].trim_end().as_bytes()]);
        let now = lines[1..].concat();
        let count = |until: Moment| {
            ledger_as_of(now.as_bytes(), &[&archive], until.timestamp()).entries().len()
        };
        assert_eq!((count(until), count(when), count(at("2026-02-13T09:00:30+01:00"))), (3, 2, 1));
        // Before it was replaced, it held.
        let early =
            ledger_as_of(now.as_bytes(), &[&archive], at("2026-02-13T09:00:30+01:00").timestamp());
        assert!(early.entries()[0].state.is_active());
        let all = ledger_with_archives(now.as_bytes(), &[&archive]);
        let numbers: Vec<u32> = all.entries().iter().map(|entry| entry.event.id.number()).collect();
        assert_eq!((numbers, all.entries()[0].state.word()), (vec![1, 2, 3], "superseded"));
        assert_eq!(all.chain(all.entries()[0].event.id).len(), 2);
        // A run that died before the ledger was rewritten: counted once, in its place.
        let both = ledger_as_of(lines.concat().as_bytes(), &[&archive, &archive], when.timestamp());
        assert_eq!(
            event_states(&both),
            event_states(&Ledger::parse(lines.concat().as_bytes(), None))
        );
        // ... and archived the line again afterwards: until then it was in the ledger.
        let again = format_batch(
            at("2026-03-02T03:00:00+01:00"),
            ArchiveReason::Compaction,
            &[lines[0].trim_end().as_bytes()],
        );
        assert_eq!(
            ledger_as_of(
                now.as_bytes(),
                &[&archive, &again],
                at("2026-03-01T12:00:00+01:00").timestamp()
            )
            .entries()
            .len(),
            3
        );
        // Lines without a head were archived before everything else.
        assert_eq!(
            ledger_as_of(now.as_bytes(), &[lines[0].as_bytes()], until.timestamp()).entries().len(),
            2
        );
        assert_eq!(ledger_with_archives(now.as_bytes(), &[lines[0].as_bytes()]).entries().len(), 3);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]
        // L14, L15
        #[test]
        fn the_ledger_can_be_rebuilt_as_of_any_moment(plan in steps(40), runs in prop::collection::vec((1_usize..12, 0_u8..3), 1..8)) {
            let (mut text, mut day) = (Vec::new(), date(2026, 1, 1));
            let mut files: [Vec<u8>; 2] = [Vec::new(), Vec::new()];
            let mut events = Vec::new();
            let mut copies: Vec<(Timestamp, Vec<u8>)> = Vec::new();
            let mut runs = runs.into_iter().cycle();
            let (mut wait, mut kind) = runs.next().unwrap();
            for step in plan {
                let next = event(step, &events, &mut day);
                text.extend_from_slice(line::format_line(&next).as_bytes());
                copies.push((next.ts.timestamp(), text.clone()));
                events.push(next);
                wait -= 1;
                if wait > 0 {
                    continue;
                }
                // In the evening, so that the moments of a day count up.
                if kind > 0 {
                    let drafts = compact::chain_summaries(&Ledger::parse(&text, None), moment(day, 20 * 60));
                    append(&mut text, drafts);
                    copies.push((moment(day, 20 * 60).timestamp(), text.clone()));
                }
                let what = if kind == 0 { CompactionMode::Prune } else { CompactionMode::Compact };
                let limits = CompactionLimits { max_events: if kind == 2 { 5 } else { 150 }, ..CompactionLimits::DEFAULT };
                let leaving = compact::plan_compaction(&Ledger::parse(&text, None), day, limits, what);
                let when = moment(day, 21 * 60);
                for (file, why, ids) in [(0, ArchiveReason::Compaction, &leaving.compacted), (1, ArchiveReason::Pruning, &leaving.pruned)] {
                    let (kept, lines) = compact::split_ledger(&text, &ids.iter().copied().collect());
                    files[file].extend(format_batch(when, why, &lines));
                    text = kept;
                }
                copies.push((when.timestamp(), text.clone()));
                day = day.tomorrow().unwrap();
                (wait, kind) = runs.next().unwrap();
                // Summaries took ids of the day before; the next events have a day of their own.
                events.clear();
                events.extend(Ledger::parse(&text, None).entries().iter().map(|entry| entry.event.clone()));
            }
            let archives: Vec<&[u8]> = files.iter().map(Vec::as_slice).collect();
            for archive in &archives {
                prop_assert_eq!(parse_archive(archive).complaints, Vec::<String>::new());
            }
            for (when, copy) in &copies {
                prop_assert_eq!(event_states(&ledger_as_of(&text, &archives, *when)), event_states(&Ledger::parse(copy, None)), "{}", when);
            }
            let ids: HashSet<EventId> = copies.iter().flat_map(|(_, copy)| {
                Ledger::parse(copy, None).entries().iter().map(|entry| entry.event.id).collect::<Vec<_>>()
            }).collect();
            prop_assert_eq!(ledger_with_archives(&text, &archives).entries().len(), ids.len());
        }

        #[test]
        fn any_bytes_are_an_archive(bytes in any::<Vec<u8>>(), torn in "(\\{\"archived\":|[a-z\"{}:,0-9\n]){0,20}") {
            parse_archive(&bytes);
            parse_archive(torn.as_bytes());
            ledger_as_of(&bytes, &[torn.as_bytes()], Timestamp::MAX);
        }
    }
}
