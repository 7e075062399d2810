//! The recall pack: what matters now, in eight sections and at most 3,000 words (L6, L7).
//!
//! A pure function of its input, a day and budgets: the order of the input does not matter, and the
//! same input gives the same bytes. P0 is always included in full; only P0 may exceed the limit,
//! and then the pack says so. Every open commitment appears by its text, its id or at least in a
//! count. Omissions are reported.

mod selection;

use std::collections::{BTreeMap, HashSet};

use jiff::civil::Date;

pub use self::selection::ALWAYS_SHOWN_COMMITMENTS;
use self::selection::{
    ACCOUNTS_SECTION, CONTEXT_SECTION, FOCUS_SECTION, MANTRA_SECTION, OPEN_SECTION, P0_SECTION,
    PROCEDURES_SECTION, PackLine, RecallSelection, SECTION_HEADINGS, SectionLines, WAITING_SECTION,
};
pub(super) use self::selection::{by_age, first_words, format_commitment};
use super::{Pack, PackSection};
use crate::budget::{self, Omission};
use crate::capture_filter;
use crate::id::EventId;
use crate::ledger::LedgerEntry;
use crate::ledger::conflict::Conflict;
use crate::ledger::decay::DecayLimits;

/// The data for a recall pack, in the requested scope.
#[derive(Debug, Clone, Copy)]
pub struct RecallInput<'a> {
    /// Statements to show: all P0, mantras, accounts and procedures, and recent or relevant ones;
    /// in any order.
    pub statements: &'a [LedgerEntry],
    /// Every open commitment; may overlap with the statements.
    pub open: &'a [LedgerEntry],
    /// Conflicts between statements.
    pub conflicts: &'a [Conflict],
    /// The log of the day, so far.
    pub log: &'a str,
    /// The introductory paragraph of an entity's page, by the entity's key.
    pub about: &'a BTreeMap<String, String>,
    /// Problems of the store, one sentence each.
    pub troubles: &'a [String],
    /// The number of quarantined statements.
    pub quarantined: usize,
    /// The number of older statements that were not loaded.
    pub not_loaded: usize,
}

/// The word limits of the sections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SectionWords {
    pub p0: usize,
    pub mantra: usize,
    pub open: usize,
    /// Commitments that wait on others.
    pub waiting: usize,
    pub focus: usize,
    pub context: usize,
    pub procedures: usize,
    pub accounts: usize,
    /// For headings, problems, and sections that need more words.
    pub buffer: usize,
}

impl SectionWords {
    /// The defaults of a vault policy.
    pub const DEFAULT: Self = Self {
        p0: 200,
        mantra: 20,
        open: 500,
        waiting: 150,
        focus: 300,
        context: 800,
        procedures: 500,
        accounts: 200,
        buffer: 330,
    };

    /// The word limit of the whole pack.
    pub fn total(self) -> usize {
        self.section_limits().iter().fold(self.buffer, |sum, room| sum.saturating_add(*room))
    }

    /// The sections' limits, in their order.
    fn section_limits(self) -> [usize; 8] {
        [
            self.p0,
            self.mantra,
            self.open,
            self.waiting,
            self.focus,
            self.context,
            self.procedures,
            self.accounts,
        ]
    }
}

/// The text of an empty section.
const EMPTY_SECTION: &str = "- none";
/// The words of the line that counts what a section omitted, or that counts the commitments without
/// an id.
const NOTE_WORDS: usize = 5;
/// The words of the line with ids of open commitments, without the ids.
const ALSO_OPEN_WORDS: usize = 3;
/// At most one in this many words of the section is used for ids of commitments without text.
const ID_SHARE_DIVISOR: usize = 4;

/// Assembles the recall pack of a day.
pub fn recall_pack(
    day: Date,
    known: &RecallInput<'_>,
    words: SectionWords,
    ages: DecayLimits,
) -> Pack {
    let told = selection::select_content(day, known, words, ages);
    let (filled, left_out) = fill_sections(day, told, words);
    let mut text = pack_title(day);
    let mut sections = Vec::new();
    let mut sources = Vec::new();
    for (heading, section) in SECTION_HEADINGS.iter().zip(&filled) {
        let lines: Vec<&str> =
            section.lines.iter().chain(&section.tail).map(|line| line.text.as_str()).collect();
        let body = if lines.is_empty() { EMPTY_SECTION.to_owned() } else { lines.join("\n") };
        text.push_str(&format!("\n\n## {heading}\n{body}"));
        sections.push(PackSection {
            title: (*heading).to_owned(),
            words: budget::count_words(&body),
            lines: lines.len().max(1),
        });
        sources.extend(
            section.lines.iter().chain(&section.tail).flat_map(|line| line.ids.iter().copied()),
        );
    }
    let text = capture_filter::wrap_block("recall", day, &text) + "\n";
    Pack {
        kind: "recall",
        date: day,
        bytes: text.len(),
        words: budget::count_words(&text),
        tokens: budget::estimate_tokens(&text),
        sections,
        left_out,
        sources: distinct_ids(sources),
        text,
    }
}

fn pack_title(day: Date) -> String {
    format!("# Recall Pack — {day}")
}

fn distinct_ids(ids: Vec<EventId>) -> Vec<String> {
    let mut seen = HashSet::new();
    ids.into_iter().filter(|id| seen.insert(*id)).map(|id| id.to_string()).collect()
}

/// A section with its selected lines.
#[derive(Debug, Clone, Default)]
struct FilledSection {
    lines: Vec<PackLine>,
    /// Lines about what is omitted.
    tail: Vec<PackLine>,
    /// The number of candidate lines.
    of: usize,
}

/// Distributes the words: first required lines, then each section's own limit, then the buffer,
/// first sections first.
fn fill_sections(
    day: Date,
    told: RecallSelection,
    words: SectionWords,
) -> (Vec<FilledSection>, Vec<Omission>) {
    let RecallSelection { sections, mut left_out } = told;
    let rooms = words.section_limits();
    let most = words.total();
    let headings: usize =
        SECTION_HEADINGS.iter().map(|heading| budget::count_words(heading) + 1).sum();
    let empty = sections.iter().filter(|section| section.lines.is_empty()).count()
        * budget::count_words(EMPTY_SECTION);
    let frame = budget::count_words(&capture_filter::wrap_block("recall", day, &pack_title(day)))
        + headings
        + empty;
    let musts: Vec<usize> = sections.iter().map(required_words).collect();
    let p0 = musts.first().copied().unwrap_or(0);
    let needed = frame + musts.iter().sum::<usize>();
    let spare = most.saturating_sub(needed);
    let wishes = rooms.iter().zip(&musts).enumerate().map(|(at, (room, must))| {
        // Problems use the buffer, not the limit of the context section.
        room.saturating_sub(if at == CONTEXT_SECTION { NOTE_WORDS.min(*must) } else { *must })
    });
    let wishes: Vec<usize> = wishes.collect();
    let sum = |words: &[usize]| words.iter().fold(0_usize, |sum, words| sum.saturating_add(*words));
    // The unclaimed rest of the buffer.
    let mut buffer = spare.saturating_sub(sum(&wishes));
    // If P0 needs more, the other sections share the rest in proportion to their needs.
    let claims: Vec<usize> = wishes
        .iter()
        .zip(&sections)
        .map(|(wish, section)| (*wish).min(optional_words(section)))
        .collect();
    let claimed = sum(&claims);
    let squeezed = claimed > spare;

    let mut filled = Vec::new();
    let mut told = HashSet::new();
    for (at, section) in sections.into_iter().enumerate() {
        let claim = claims.get(at).copied().unwrap_or(0);
        let own = if squeezed { proportion(spare, claim, claimed) } else { claim };
        let room = own.saturating_add(buffer);
        let (shown, used) = if at == OPEN_SECTION {
            fit_open_commitments(section, room, words.open)
        } else {
            fit_section(section, room, &told)
        };
        buffer -= used.saturating_sub(own).min(buffer);
        told.extend(shown.lines.iter().flat_map(|line| line.tells.iter().copied()));
        if shown.lines.len() < shown.of {
            let why = match rooms.get(at) {
                Some(room) if !squeezed => format!("the section's {room} words"),
                _ if p0 > words.p0 => format!("P0 takes {p0} of the pack's {most} words"),
                _ => format!("the pack's {most} words"),
            };
            let (missing, heading) = (
                shown.of - shown.lines.len(),
                SECTION_HEADINGS.get(at).copied().unwrap_or_default(),
            );
            left_out
                .push(Omission::new(format!("{missing} of {} lines of {heading}", shown.of), why));
        }
        filled.push(shown);
    }
    let cut = filled.iter().flat_map(|section| &section.lines).filter(|line| line.cut).count();
    if cut > 0 {
        left_out.push(Omission::new(
            format!("the ends of {cut} long lines"),
            "only P0 is never shortened",
        ));
    }
    if needed > most {
        let rest = needed - p0;
        let what = format!("the limit of {most} words");
        left_out.push(Omission::new(
            what,
            format!("P0 has {p0} words, and other required lines have {rest}"),
        ));
        if let Some(section) = filled.get_mut(P0_SECTION).filter(|_| p0 > words.p0) {
            let text =
                format!("- (P0 has {p0} words: with it this pack is longer than its {most})");
            section.tail.push(PackLine::new(&text, Vec::new()));
        }
    }
    (filled, left_out)
}

/// Scales `part` of `whole` to a smaller `room`.
fn proportion(room: usize, part: usize, whole: usize) -> usize {
    room.saturating_mul(part).checked_div(whole).unwrap_or(0)
}

/// The words a section needs in any case: its required lines, and a note if anything else is
/// omitted.
fn required_words(section: &SectionLines) -> usize {
    let always: usize =
        section.lines.iter().filter(|line| line.always).map(PackLine::word_count).sum();
    let may = section.lines.iter().any(|line| !line.always) || !section.beyond.is_empty();
    always + if may { NOTE_WORDS } else { 0 }
}

/// The further words that the section could use.
fn optional_words(section: &SectionLines) -> usize {
    if section.beyond.is_empty() {
        section.lines.iter().filter(|line| !line.always).map(PackLine::word_count).sum()
    } else {
        usize::MAX
    }
}

/// The first lines that fit and do not repeat events that were already told, and the words they
/// need.
fn fit_section(
    section: SectionLines,
    room: usize,
    told: &HashSet<EventId>,
) -> (FilledSection, usize) {
    let mut said = told.clone();
    let wanted: Vec<PackLine> = section
        .lines
        .into_iter()
        .filter(|line| {
            let known = line.once && line.tells.iter().all(|id| said.contains(id));
            said.extend(line.tells.iter().copied());
            line.always || !known
        })
        .collect();
    let beyond = section.beyond.iter().filter(|id| !said.contains(id)).count();
    let of = wanted.len() + beyond;
    let asked: usize = wanted.iter().filter(|line| !line.always).map(PackLine::word_count).sum();
    // Without omissions no note is needed, so its words are free.
    if beyond == 0 && asked <= room.saturating_add(NOTE_WORDS) {
        return (
            FilledSection { lines: wanted, tail: Vec::new(), of },
            asked.saturating_sub(NOTE_WORDS),
        );
    }
    let (mut shown, mut used, mut full) = (Vec::new(), 0, false);
    for line in wanted {
        let words = line.word_count();
        full |= !line.always && used + words > room;
        if line.always {
            shown.push(line);
        } else if !full {
            used += words;
            shown.push(line);
        }
    }
    let note = PackLine::new(&format!("- ({} more: icecore events)", of - shown.len()), Vec::new());
    (FilledSection { lines: shown, tail: vec![note], of }, used)
}

/// Open commitments: by text while it fits, then by id, then as a count.
fn fit_open_commitments(
    section: SectionLines,
    room: usize,
    words: usize,
) -> (FilledSection, usize) {
    let of = section.lines.len() + section.beyond.len();
    let asked: usize =
        section.lines.iter().filter(|line| !line.always).map(PackLine::word_count).sum();
    if section.beyond.is_empty() && asked <= room.saturating_add(NOTE_WORDS) {
        return (
            FilledSection { lines: section.lines, tail: Vec::new(), of },
            asked.saturating_sub(NOTE_WORDS),
        );
    }
    let ids = |rest: usize| {
        if rest == 0 { 0 } else { ALSO_OPEN_WORDS + rest.min(words / ID_SHARE_DIVISOR) }
    };
    let mut rest = section.lines.iter().filter(|line| !line.always).count() + section.beyond.len();
    let (mut shown, mut listed, mut used, mut full) = (Vec::new(), Vec::new(), 0, false);
    for line in section.lines {
        let words = line.word_count();
        full |= !line.always && used + words + ids(rest - 1) > room;
        if line.always {
            shown.push(line);
        } else if full {
            listed.extend(line.ids);
        } else {
            used += words;
            rest -= 1;
            shown.push(line);
        }
    }
    listed.extend(section.beyond);
    let mut left = room.saturating_sub(used + ALSO_OPEN_WORDS);
    if listed.len() <= left.saturating_add(NOTE_WORDS) {
        left = listed.len();
    }
    let uncounted = listed.split_off(left.min(listed.len())).len();
    let mut tail = Vec::new();
    if !listed.is_empty() {
        let text = listed.iter().map(EventId::to_string).collect::<Vec<_>>().join(", ");
        used += ALSO_OPEN_WORDS + listed.len();
        tail.push(PackLine::new(&format!("- also open: {text}"), listed));
    }
    if uncounted > 0 {
        tail.push(PackLine::new(&format!("- and {uncounted} more"), Vec::new()));
    } else {
        used = used.saturating_sub(NOTE_WORDS);
    }
    (FilledSection { lines: shown, tail, of }, used)
}

/// The note of a partial pack. It names the command, because the recall file may not exist and its
/// location is unknown to the reader.
const PARTIAL_PACK_NOTE: &str = "(This is a part; `icecore pack recall` prints the whole.)";
/// The note of a partial pack in which not even P0 fits.
const PARTIAL_P0_NOTE: &str =
    "(P0 has more than fits here; `icecore pack recall` prints all of it.)";
/// The section order of a condensed pack; sections before `WAITING_SECTION` also get space first.
const CONDENSED_ORDER: [usize; 8] = [
    P0_SECTION,
    MANTRA_SECTION,
    OPEN_SECTION,
    FOCUS_SECTION,
    WAITING_SECTION,
    CONTEXT_SECTION,
    PROCEDURES_SECTION,
    ACCOUNTS_SECTION,
];
/// The most characters of the line that counts open commitments.
const MAX_COUNT_LINE_CHARS: usize = 32;

/// The recall pack in at most `room_chars` characters, as the body of another pack; with what was
/// omitted, and the sources.
///
/// P0, the mantra, the oldest commitments and the focus come first and complete, while they fit;
/// the other sections get whole lines in proportion to their needs.
pub fn condensed_recall(
    day: Date,
    known: &RecallInput<'_>,
    words: SectionWords,
    ages: DecayLimits,
    room_chars: usize,
) -> (String, Vec<Omission>, Vec<String>) {
    let told = selection::select_content(day, known, words, ages);
    let (filled, mut left_out) = fill_sections(day, told, words);
    let title = pack_title(day);
    let frame = title.chars().count()
        + 2
        + PARTIAL_P0_NOTE.chars().count().max(PARTIAL_PACK_NOTE.chars().count());
    let Some(room) = room_chars.checked_sub(frame) else {
        left_out
            .push(Omission::new("the recall pack", format!("{room_chars} characters are too few")));
        return (String::new(), left_out, Vec::new());
    };
    let mut page =
        CondensedPack { filled: &filled, taken: vec![Vec::new(); SECTION_HEADINGS.len()], room };
    page.take_priority_lines();
    page.take_proportional_lines();

    let mut text = title;
    let mut sources = Vec::new();
    for at in CONDENSED_ORDER {
        let (Some(section), Some(taken), Some(heading)) =
            (filled.get(at), page.taken.get(at), SECTION_HEADINGS.get(at))
        else {
            continue;
        };
        let mut taken = taken.clone();
        taken.sort_unstable();
        let lines: Vec<&PackLine> =
            taken.iter().filter_map(|line| section.lines.get(*line)).collect();
        if lines.len() < section.lines.len() {
            let what = format!(
                "{} of {} lines of {heading}",
                section.lines.len() - lines.len(),
                section.lines.len()
            );
            left_out.push(Omission::new(what, format!("{room_chars} characters")));
        }
        if lines.is_empty() {
            continue;
        }
        text.push_str(&format!("\n\n## {heading}"));
        for line in &lines {
            text.push('\n');
            text.push_str(&line.text);
            sources.extend(line.ids.iter().copied());
        }
        if at == OPEN_SECTION && lines.len() < section.of {
            text.push_str(&format!("\n- and {} more", section.of - lines.len()));
        }
    }
    let all_rules =
        page.taken.first().map(Vec::len) == filled.first().map(|section| section.lines.len());
    if !all_rules || !left_out.is_empty() {
        text.push_str("\n\n");
        text.push_str(if all_rules { PARTIAL_PACK_NOTE } else { PARTIAL_P0_NOTE });
    }
    (text, left_out, distinct_ids(sources))
}

/// The lines selected for a condensed pack, and the characters that remain.
struct CondensedPack<'a> {
    filled: &'a [FilledSection],
    taken: Vec<Vec<usize>>,
    room: usize,
}

impl CondensedPack<'_> {
    /// The characters that a line needs: the first line of a section adds its heading.
    fn line_chars(&self, at: usize, line: &PackLine) -> usize {
        let heading = match self.taken.get(at) {
            Some(taken) if !taken.is_empty() => 0,
            _ => {
                SECTION_HEADINGS.get(at).map_or(0, |heading| heading.chars().count() + 5)
                    + if at == OPEN_SECTION { MAX_COUNT_LINE_CHARS } else { 0 }
            }
        };
        heading + line.text.chars().count() + 1
    }

    fn try_take(&mut self, at: usize, number: usize, cost: usize) -> bool {
        let fits = cost <= self.room;
        if fits && let Some(taken) = self.taken.get_mut(at) {
            self.room -= cost;
            taken.push(number);
        }
        fits
    }

    fn take_priority_lines(&mut self) {
        let filled = self.filled;
        for at in CONDENSED_ORDER.into_iter().take_while(|at| *at != WAITING_SECTION) {
            for (number, line) in
                filled.get(at).into_iter().flat_map(|section| section.lines.iter().enumerate())
            {
                if at != OPEN_SECTION || line.always {
                    self.try_take(at, number, self.line_chars(at, line));
                }
            }
        }
    }

    fn take_proportional_lines(&mut self) {
        let filled = self.filled;
        let rest =
            [OPEN_SECTION, WAITING_SECTION, CONTEXT_SECTION, PROCEDURES_SECTION, ACCOUNTS_SECTION];
        // A required commitment that did not fit before does not fit now.
        let waiting = |at: usize| -> Vec<(usize, &PackLine)> {
            let lines =
                filled.get(at).into_iter().flat_map(|section| section.lines.iter().enumerate());
            lines.filter(|(_, line)| at != OPEN_SECTION || !line.always).collect()
        };
        let needs = rest.map(|at| {
            let lines = waiting(at);
            let chars: usize = lines.iter().map(|(_, line)| line.text.chars().count() + 1).sum();
            chars
                + lines.first().map_or(0, |(_, line)| {
                    self.line_chars(at, line) - line.text.chars().count() - 1
                })
        });
        let (needed, room) = (needs.iter().sum::<usize>(), self.room);
        let mut carried = 0;
        for (at, need) in rest.into_iter().zip(needs) {
            let mut own =
                carried + if needed <= room { need } else { proportion(room, need, needed) };
            for (number, line) in waiting(at) {
                let cost = self.line_chars(at, line);
                if cost > own || !self.try_take(at, number, cost) {
                    break;
                }
                own -= cost;
            }
            carried = own;
        }
    }
}

/// The lines of a daily log that were written by `clock` (`HH:MM`): lines with a time up to it, and
/// the lines nested under them. Lines without a time are excluded, because their time is unknown.
pub fn log_until(log: &str, clock: &str) -> String {
    let mut known = String::new();
    let Some(now) = parse_clock_minutes(clock) else { return known };
    let mut counts = false;
    for line in log.lines() {
        let item = line.trim_start();
        let (hangs, blank) = (item.len() < line.len(), item.is_empty());
        // A line's own time takes precedence over that of its parent.
        let at = item.strip_prefix("- ").and_then(|item| {
            parse_clock_minutes(item.split_whitespace().next().unwrap_or_default())
        });
        counts = match at {
            Some(at) => at <= now,
            None => counts && (hangs || blank),
        };
        if counts && !blank {
            known.push_str(line);
            known.push('\n');
        }
    }
    known
}

/// `HH:MM` as minutes of the day.
fn parse_clock_minutes(text: &str) -> Option<u16> {
    let (hours, minutes) = text.split_once(':')?;
    let number = |text: &str| {
        (text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit()))
            .then(|| text.parse::<u16>().ok())
            .flatten()
    };
    let (hours, minutes) = (number(hours)?, number(minutes)?);
    (hours < 24 && minutes < 60).then_some(hours * 60 + minutes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calendar::Moment;
    use crate::event::{Act, EventDraft, EventType, LoopStatus, Origin, Priority};
    use crate::ledger::{EventState, decay};
    use jiff::ToSpan;
    use jiff::civil::date;
    use proptest::prelude::*;

    const DAY: Date = date(2026, 2, 13);

    fn moment_days_ago(days_ago: i32) -> Moment {
        let day = DAY.checked_sub(days_ago.days()).unwrap();
        Moment::parse(&format!("{day}T09:30:00+01:00")).unwrap().moment
    }

    fn entry(
        days_ago: i32,
        number: u32,
        kind: EventType,
        priority: Priority,
        content: &str,
    ) -> LedgerEntry {
        let ts = moment_days_ago(days_ago);
        LedgerEntry::from_event(
            EventDraft::new(ts, kind, priority, content).with_id(EventId::new(ts.day(), number)),
            1,
        )
    }

    fn with(mut entry: LedgerEntry, change: impl FnOnce(&mut EventDraft)) -> LedgerEntry {
        change(&mut entry.event.draft);
        entry
    }

    fn with_tag(entry: LedgerEntry, tag: &str) -> LedgerEntry {
        with(entry, |draft| draft.tags.push(tag.into()))
    }

    fn recall_input<'a>(
        statements: &'a [LedgerEntry],
        open: &'a [LedgerEntry],
        about: &'a BTreeMap<String, String>,
    ) -> RecallInput<'a> {
        RecallInput {
            statements,
            open,
            conflicts: &[],
            log: "",
            about,
            troubles: &[],
            quarantined: 0,
            not_loaded: 0,
        }
    }

    fn of(statements: &[LedgerEntry]) -> Pack {
        recall_pack(
            DAY,
            &recall_input(statements, &[], &BTreeMap::new()),
            SectionWords::DEFAULT,
            DecayLimits::DEFAULT,
        )
    }

    fn sections(text: &str) -> BTreeMap<&str, Vec<&str>> {
        let mut found: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        let mut heading = "";
        for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with("<!--")) {
            match line.strip_prefix("## ") {
                Some(title) => {
                    heading = title;
                    found.entry(title).or_default();
                }
                None => found.entry(heading).or_default().push(line),
            }
        }
        found
    }

    fn section(pack: &Pack, at: usize) -> Vec<String> {
        sections(&pack.text)
            .get(SECTION_HEADINGS[at])
            .unwrap()
            .iter()
            .map(|&line| line.to_owned())
            .collect()
    }

    // L6
    #[test]
    fn a_memory_that_knows_nothing_has_all_sections() {
        let pack = of(&[]);
        let body: String =
            SECTION_HEADINGS.iter().map(|heading| format!("\n\n## {heading}\n- none")).collect();
        let expected = format!(
            "<!-- icecore:begin recall {DAY} -->\n# Recall Pack — 2026-02-13{body}\n<!-- icecore:end -->\n"
        );
        assert_eq!(pack.text, expected);
        assert_eq!(
            pack.sections.iter().map(|section| section.title.as_str()).collect::<Vec<_>>(),
            SECTION_HEADINGS
        );
        assert!(pack.left_out.is_empty() && pack.sources.is_empty());
    }

    // L6, L7
    #[test]
    fn each_statement_stands_where_it_belongs() {
        let statements = [
            entry(3, 1, EventType::Fact, Priority::P0, "My name is Ana"),
            entry(2, 1, EventType::Constraint, Priority::P0, "Never deploy\n on Fridays"),
            with_tag(entry(40, 1, EventType::Preference, Priority::P1, "Old words"), "mantra"),
            with_tag(entry(4, 1, EventType::Preference, Priority::P1, "More with less"), "mantra"),
            entry(42, 1, EventType::Fact, Priority::P1, "The budget is 500 EUR"),
            entry(61, 1, EventType::Fact, Priority::P1, "The office is in Hamburg"),
            entry(5, 1, EventType::Decision, Priority::P2, "Decided on Postgres"),
            entry(0, 1, EventType::Decision, Priority::P3, "Decided on tea"),
            entry(1, 1, EventType::Procedure, Priority::P2, "Run just check, then push"),
            with(
                with_tag(entry(9, 1, EventType::Fact, Priority::P1, "Shopify 1234"), "account"),
                |draft| draft.entity = Some("shop".into()),
            ),
        ];
        let open = [
            with(entry(12, 1, EventType::Commitment, Priority::P1, "Send the offer"), |draft| {
                draft.due = Some(date(2026, 2, 16));
                draft.waiting_on = Some("the lawyers".into());
                draft.entity = Some("client_x".into());
            }),
            with(entry(13, 1, EventType::Commitment, Priority::P2, "Call Mira"), |draft| {
                draft.due = Some(date(2026, 2, 10))
            }),
            with(entry(13, 2, EventType::Commitment, Priority::P2, "Water plants"), |draft| {
                draft.due = Some(date(2026, 2, 21))
            }),
        ];
        let about = BTreeMap::from([
            ("client_x".to_owned(), "A bakery\nin Kiel.".to_owned()),
            ("other".into(), "Nothing.".into()),
        ]);
        let mut known = recall_input(&statements, &open, &about);
        let troubles = ["The ledger has a gap.".to_owned()];
        (known.troubles, known.quarantined, known.not_loaded) = (&troubles, 2, 7);
        let pack = recall_pack(DAY, &known, SectionWords::DEFAULT, DecayLimits::DEFAULT);
        let expected = [
            vec![
                "- Never deploy on Fridays (EVT-20260211-001)",
                "- My name is Ana (EVT-20260210-001)",
            ],
            vec!["- More with less (EVT-20260209-001)"],
            vec![
                "- Call Mira [P2] open 13 d, due 2026-02-10 (overdue 3 d) (EVT-20260131-001)",
                "- Water plants [P2] open 13 d, due 2026-02-21 (in 8 d) (EVT-20260131-002)",
                "- Send the offer [P1] open 12 d, due 2026-02-16 (in 3 d), waiting on the lawyers (EVT-20260201-001)",
            ],
            vec!["- the lawyers: Send the offer, 12 d (EVT-20260201-001)"],
            vec![
                "- Call Mira, due 2026-02-10 (overdue 3 d) (EVT-20260131-001)",
                "- Send the offer, due 2026-02-16 (in 3 d) (EVT-20260201-001)",
                "- The budget is 500 EUR [P1 fact] ⚠️ STALE 42 d (EVT-20260102-001)",
            ],
            vec![
                "- ⚠️ The ledger has a gap.",
                "- client x: A bakery in Kiel.",
                "- 2026-02-13 Decided on tea [P3 decision] (EVT-20260213-001)",
                "- 2026-02-08 Decided on Postgres [P2 decision] (EVT-20260208-001)",
                "- 2 statements from tools or strangers wait for confirmation: icecore quarantine list",
            ],
            vec!["- Run just check, then push (EVT-20260212-001)"],
            vec!["- Shopify 1234 (EVT-20260204-001)"],
        ];
        for (at, expected) in expected.iter().enumerate() {
            assert_eq!(&section(&pack, at), expected, "{}", SECTION_HEADINGS[at]);
        }
        let left_out: Vec<&str> = pack.left_out.iter().map(|left| left.what.as_str()).collect();
        assert_eq!(left_out, ["1 older mantra", "1 statement", "7 older statements"]);
        assert_eq!(pack.sources.len(), 11);
        assert_eq!(pack.sources[..3], ["EVT-20260211-001", "EVT-20260210-001", "EVT-20260209-001"]);
    }

    // L5
    #[test]
    fn a_stale_statement_is_shown_when_it_matters_today() {
        let faded = |change: fn(&mut EventDraft)| {
            with(entry(80, 1, EventType::Fact, Priority::P2, "The bakery has two ovens"), change)
        };
        let open = |change: fn(&mut EventDraft)| {
            [with(entry(1, 1, EventType::Commitment, Priority::P2, "Call them"), change)]
        };
        let about = BTreeMap::new();
        let check = |statement: fn(&mut EventDraft),
                     commitment: fn(&mut EventDraft),
                     log: &str,
                     told: bool| {
            let (statements, open) = ([faded(statement)], open(commitment));
            let known = RecallInput { log, ..recall_input(&statements, &open, &about) };
            let pack = recall_pack(DAY, &known, SectionWords::DEFAULT, DecayLimits::DEFAULT);
            assert_eq!(pack.text.contains("two ovens"), told, "{}", pack.text);
            assert_eq!(pack.text.contains("⚠️ STALE 80 d (EVT-"), told);
            assert_eq!(pack.left_out.is_empty(), told);
        };
        check(|_| {}, |_| {}, "- 09:00 bakery", false);
        check(
            |draft| draft.entity = Some("client_x".into()),
            |_| {},
            "- 09:00 met Client X.",
            true,
        );
        check(|draft| draft.entity = Some("client_x".into()), |_| {}, "- 09:00 met clients", false);
        check(
            |draft| draft.entity = Some("client_x".into()),
            |draft| draft.entity = Some("client_x".into()),
            "",
            true,
        );
        check(|draft| draft.tags = vec!["ovens".into()], |_| {}, "about #Ovens", true);
        check(
            |draft| draft.tags = vec!["ovens".into()],
            |draft| draft.tags = vec!["ovens".into()],
            "",
            true,
        );
        check(
            |draft| draft.tags = vec!["client_x".into()],
            |draft| draft.entity = Some("client_x".into()),
            "",
            false,
        );
    }

    // L6
    #[test]
    fn recent_things_come_before_important_ones() {
        let statements = [
            entry(31, 1, EventType::Preference, Priority::P2, "old"),
            entry(30, 1, EventType::Preference, Priority::P2, "month"),
            entry(8, 1, EventType::Preference, Priority::P2, "month too"),
            entry(7, 1, EventType::Preference, Priority::P3, "week"),
            entry(2, 1, EventType::Preference, Priority::P2, "week first"),
            entry(1, 1, EventType::Preference, Priority::P3, "yesterday"),
            entry(1, 2, EventType::Preference, Priority::P2, "yesterday first"),
        ];
        let told: Vec<String> = section(&of(&statements), CONTEXT_SECTION)
            .iter()
            .map(|line| line[13..line.find(" [").unwrap()].to_owned())
            .collect();
        assert_eq!(
            told,
            ["yesterday first", "yesterday", "week first", "week", "month too", "month", "old"]
        );
    }

    // L6
    #[test]
    fn conflicts_are_shown_and_not_resolved() {
        let statements = [
            entry(2, 1, EventType::Fact, Priority::P2, "The pilot \"A\" starts on Monday"),
            entry(1, 1, EventType::Fact, Priority::P2, "The pilot starts on Friday"),
            with(entry(1, 2, EventType::Fact, Priority::P2, "The pilot starts never"), |draft| {
                draft.origin = Origin::Tool
            }),
        ];
        let ids: Vec<EventId> = statements.iter().map(|entry| entry.event.id).collect();
        let unknown = EventId::new(DAY, 9);
        let conflict = |events: &[EventId]| Conflict {
            about: "pilot\n## starts".into(),
            events: events.to_vec(),
        };
        let conflicts = [conflict(&ids), conflict(&ids[1..]), conflict(&[ids[0], unknown])];
        let about = BTreeMap::new();
        let known = RecallInput { conflicts: &conflicts, ..recall_input(&statements, &[], &about) };
        let told = section(
            &recall_pack(DAY, &known, SectionWords::DEFAULT, DecayLimits::DEFAULT),
            CONTEXT_SECTION,
        );
        let expected = [
            "- ⚠️ CONFLICT: EVT-20260211-001 says \"The pilot 'A' starts on Monday\", \
             EVT-20260212-001 says \"The pilot starts on Friday\": about pilot ## starts. Needs resolution",
            "- ⚠️ CONFLICT: EVT-20260211-001 says \"The pilot 'A' starts on Monday\", \
             EVT-20260213-009: about pilot ## starts. Needs resolution",
        ];
        assert_eq!(told, expected);
    }

    // L6, L7
    #[test]
    fn many_commitments_go_on_as_ids_and_then_as_a_count() {
        let sentence = "word ".repeat(30);
        let open: Vec<LedgerEntry> = (1..=900)
            .map(|number| {
                entry(900 - number as i32, number, EventType::Commitment, Priority::P2, &sentence)
            })
            .collect();
        let about = BTreeMap::new();
        let pack = recall_pack(
            DAY,
            &recall_input(&[], &open, &about),
            SectionWords::DEFAULT,
            DecayLimits::DEFAULT,
        );
        let told = section(&pack, OPEN_SECTION);
        let (more, also) = (told.last().unwrap(), &told[told.len() - 2]);
        assert!(also.starts_with("- also open: EVT-"), "{also}");
        let by_words = told.len() - 2;
        let by_id = also.matches("EVT-").count();
        assert_eq!(more, &format!("- and {} more", 900 - by_words - by_id));
        assert!(by_words > 10 && by_id >= 125, "{by_words} {by_id}");
        assert!(told[0].ends_with(&format!("({})", open[0].event.id)));
        let tiny = SectionWords { open: 0, buffer: 0, ..SectionWords::DEFAULT };
        let told = section(
            &recall_pack(DAY, &recall_input(&[], &open, &about), tiny, DecayLimits::DEFAULT),
            OPEN_SECTION,
        );
        assert_eq!(
            told[0],
            format!("- word word word word word ... [P2] open 899 d ({})", open[0].event.id)
        );
        assert_eq!((told.len(), told[3].as_str()), (4, "- and 897 more"));
    }

    // L6
    #[test]
    fn only_p0_may_be_too_long_and_then_others_give_way() {
        let rule = "rule ".repeat(100);
        let mut statements: Vec<LedgerEntry> = (1..=26)
            .map(|number| entry(3, number, EventType::Constraint, Priority::P0, &rule))
            .collect();
        statements.extend((1..=200).map(|number| {
            entry(1, number, EventType::Procedure, Priority::P2, "first do this and then do that")
        }));
        let pack = of(&statements);
        assert!((2_985..=3_000).contains(&pack.words), "{}", pack.words);
        assert!(
            pack.left_out
                .iter()
                .any(|left| left.what.ends_with(SECTION_HEADINGS[PROCEDURES_SECTION])
                    && left.why.starts_with("P0 takes"))
        );
        statements.extend(
            (27..=40).map(|number| entry(3, number, EventType::Constraint, Priority::P0, &rule)),
        );
        let pack = of(&statements);
        assert!(pack.words > 4_000);
        assert_eq!(
            section(&pack, P0_SECTION).last().unwrap(),
            "- (P0 has 4080 words: with it this pack is longer than its 3000)"
        );
        assert_eq!(section(&pack, PROCEDURES_SECTION), ["- (200 more: icecore events)"]);
        assert_eq!(
            pack.left_out[0],
            Omission::new(
                format!("200 of 200 lines of {}", SECTION_HEADINGS[PROCEDURES_SECTION]),
                "P0 takes 4080 of the pack's 3000 words"
            )
        );
    }

    // L6
    #[test]
    fn a_section_may_use_the_buffer_and_no_more() {
        let statements: Vec<LedgerEntry> = (1..=300)
            .map(|number| {
                entry(1, number, EventType::Procedure, Priority::P2, "do this and then do that")
            })
            .collect();
        let pack = of(&statements);
        let words = pack.sections[PROCEDURES_SECTION].words;
        assert!((700..=830).contains(&words), "{words}");
        let told = section(&pack, PROCEDURES_SECTION);
        assert_eq!(told.last().unwrap(), &format!("- ({} more: icecore events)", 301 - told.len()));
        let expected = Omission::new(
            format!(
                "{} of 300 lines of {}",
                301 - told.len(),
                SECTION_HEADINGS[PROCEDURES_SECTION]
            ),
            "the section's 500 words",
        );
        assert_eq!(pack.left_out, [expected]);
    }

    #[test]
    fn only_p0_statements_are_never_shortened() {
        let long = "é ".repeat(61);
        let endless = "x".repeat(9_000);
        let statements = [
            entry(1, 1, EventType::Procedure, Priority::P1, &long),
            entry(1, 2, EventType::Procedure, Priority::P1, &endless),
            entry(1, 3, EventType::Constraint, Priority::P0, &endless),
            entry(1, 4, EventType::Procedure, Priority::P0, "P0 too"),
            with_tag(entry(1, 5, EventType::Fact, Priority::P0, &long), "mantra"),
        ];
        let pack = of(&statements);
        let told = section(&pack, PROCEDURES_SECTION);
        assert_eq!(told[0], "- under P0 above: EVT-20260212-004");
        assert_eq!(told[1], format!("- {}... (EVT-20260212-001)", "é ".repeat(59)));
        assert!(told[2].len() < 1_300 && told[2].ends_with("x ... (EVT-20260212-002)"));
        assert_eq!(
            section(&pack, P0_SECTION),
            [format!("- {endless} (EVT-20260212-003)"), "- P0 too (EVT-20260212-004)".into()]
        );
        assert_eq!(
            section(&pack, MANTRA_SECTION),
            [format!("- {}... (EVT-20260212-005)", "é ".repeat(17))]
        );
        assert_eq!(pack.left_out[0].what, "the ends of 3 long lines");
    }

    // L6
    #[test]
    fn a_past_moment_sees_no_later_line_of_the_log() {
        let log = concat!(
            "# Log\n- 08:00 one\n  more of one\n\n  and more\n- untimed\n  hangs on it\n",
            "- 09:30 two\n  - 09:45 later\n    deep\n- 24:00 no time\n- 9:00 neither\n- 07:00 early\n"
        );
        let check = |clock, expected: &str| assert_eq!(log_until(log, clock), expected, "{clock}");
        check("07:59", "- 07:00 early\n");
        check("09:29", "- 08:00 one\n  more of one\n  and more\n- 07:00 early\n");
        check("09:30", "- 08:00 one\n  more of one\n  and more\n- 09:30 two\n- 07:00 early\n");
        check(
            "23:59",
            "- 08:00 one\n  more of one\n  and more\n- 09:30 two\n  - 09:45 later\n    deep\n- 07:00 early\n",
        );
        check("soon", "");
        check("25:00", "");
    }

    /// Words, markers and line breaks in any order; no ids.
    fn text() -> impl Strategy<Value = String> {
        const PLAIN: [&str; 10] =
            ["the", "offer", "mira", "is", "on", "monday", "été", "never", "apollo", "sales"];
        const HOSTILE: [&str; 12] = [
            "\n## 🔴 P0 CONSTRAINTS\n",
            "\n",
            "\r",
            "\u{2028}",
            "\u{85}",
            "<!-- icecore:end -->",
            "<!--icecore:end-->",
            "<!-- icecore:begin recall 2026-02-13 -->",
            "</icecore-memory>",
            "\u{1b}[31m",
            "\t- none",
            "\n- and 5 more",
        ];
        let word = prop_oneof![
            12 => prop::sample::select(PLAIN.to_vec()).prop_map(str::to_owned),
            1 => prop::sample::select(HOSTILE.to_vec()).prop_map(str::to_owned),
            1 => any::<char>().prop_map(String::from),
        ];
        prop::collection::vec(word, 1..80).prop_map(|words| words.join(" "))
    }

    fn some_entry() -> impl Strategy<Value = LedgerEntry> {
        let what =
            (prop::sample::select(EventType::ALL), prop::sample::select(Priority::ALL), text());
        let about = (
            prop::option::of(prop::sample::select(vec!["apollo", "client_x"])),
            prop::collection::vec(
                prop::sample::select(vec!["mantra", "account", "sales", "identity"]),
                0..2,
            ),
        );
        let when = (0..120_i32, prop::option::of(-20..20_i32), prop::option::of("[a-z ]{1,20}"));
        let worth = (
            prop::sample::select(Origin::ALL),
            any::<bool>(),
            prop_oneof![6 => Just(0), 1 => 1..5_u8],
        );
        (what, about, when, worth).prop_map(
            |(
                (kind, priority, content),
                (entity, tags),
                (ago, due, whom),
                (origin, confirmed, standing),
            )| {
                let mut entry = entry(ago, 1, kind, priority, &content);
                let by = EventId::new(DAY, 999);
                entry.confirmed = confirmed;
                entry.state = match standing {
                    1 => EventState::Superseded { by },
                    2 => EventState::Retracted { by },
                    3 => EventState::Closed { by },
                    _ => EventState::Active,
                };
                with(entry, |draft| {
                    draft.entity = entity.map(Into::into);
                    draft.tags = tags.into_iter().map(Into::into).collect();
                    draft.origin = origin;
                    if standing == 4 {
                        draft.act = Act::Confirm;
                    }
                    if kind == EventType::Commitment {
                        draft.due = due.map(|days| DAY.checked_add(days.days()).unwrap());
                        draft.waiting_on = whom;
                        draft.status = Some(LoopStatus::Open);
                    }
                })
            },
        )
    }

    fn entries(most: usize) -> impl Strategy<Value = Vec<LedgerEntry>> {
        prop::collection::vec(some_entry(), 0..most).prop_map(|mut entries| {
            for (entry, number) in entries.iter_mut().zip(1..) {
                entry.event.id = EventId::new(entry.event.ts.day(), number);
            }
            entries
        })
    }

    fn may_be_seen(entry: &LedgerEntry) -> bool {
        entry.state.is_active()
            && entry.event.is_statement()
            && !entry.is_quarantined()
            && !decay::has_expired(entry, DAY, DecayLimits::DEFAULT)
    }

    fn ids_in(text: &str) -> Vec<EventId> {
        let ids = text.match_indices("EVT-").map(|(at, _)| {
            let id = &text[at..];
            id[..id.find(|c: char| !c.is_ascii_alphanumeric() && c != '-').unwrap_or(id.len())]
                .parse()
                .unwrap()
        });
        ids.collect()
    }

    /// The content as a pack contains it.
    fn pack_text(content: &str) -> String {
        let line = crate::sanitize::one_line(&icecore_text::normalize::collapse_spaces(content));
        capture_filter::escape_markers(&line).into_owned()
    }

    proptest! {
        // L6, L7
        #[test]
        fn whatever_is_known_the_pack_keeps_its_promises(
            all in entries(90),
            log in text(),
            troubles in prop::collection::vec(text(), 0..14),
            quarantined in 0..3_usize,
        ) {
            let open: Vec<LedgerEntry> = all.iter().filter(|entry| entry.is_open_loop()).cloned().collect();
            let conflict = |some: &[LedgerEntry]| Conflict { about: log.clone(), events: some.iter().map(|entry| entry.event.id).collect() };
            let conflicts: Vec<Conflict> = all.chunks(3).take(4).map(conflict).collect();
            let about = BTreeMap::from([("apollo".to_owned(), log.clone())]);
            let known = recall_input(&all, &open, &about);
            let known = RecallInput { conflicts: &conflicts, log: &log, troubles: &troubles, quarantined, ..known };
            let pack = recall_pack(DAY, &known, SectionWords::DEFAULT, DecayLimits::DEFAULT);

            let headings: Vec<&str> = pack.text.lines().filter_map(|line| line.strip_prefix("## ")).collect();
            prop_assert_eq!(headings, SECTION_HEADINGS);
            let ours = ["- ", "## ", "# Recall Pack — ", "<!-- icecore:"];
            prop_assert!(pack.text.lines().all(|line| line.is_empty() || ours.iter().any(|start| line.starts_with(start))));
            prop_assert_eq!(pack.text.lines().filter(|line| line.starts_with("<!--") || line.starts_with("# ")).count(), 3);
            let stripped = capture_filter::strip_blocks(&pack.text);
            prop_assert_eq!((stripped.text.trim(), stripped.blocks), ("", 1));

            let p0 = |entry: &&LedgerEntry| entry.event.priority == Priority::P0;
            let rules: usize = all.iter().filter(p0).map(|entry| budget::count_words(&pack_text(&entry.event.content)) + 3).sum();
            prop_assert!(pack.words <= 3_000 || rules > 1_500, "{} words, {} of them P0", pack.words, rules);
            prop_assert_eq!(pack.words > 3_000, pack.text.contains("with it this pack is longer than its 3000)"));
            let mantra = |entry: &&LedgerEntry| may_be_seen(entry) && !entry.is_open_loop() && entry.event.tags.iter().any(|tag| tag == "mantra");
            let newest = all.iter().filter(mantra).max_by_key(|entry| by_age(entry)).map(|entry| entry.event.id);
            for entry in all.iter().filter(p0).filter(|entry| may_be_seen(entry) && Some(entry.event.id) != newest) {
                prop_assert!(pack.text.contains(&pack_text(&entry.event.content)), "{:?}", entry.event.content);
                prop_assert!(pack.text.contains(&entry.event.id.to_string()));
            }

            let mentioned = ids_in(&pack.text);
            for entry in all.iter().filter(|entry| !may_be_seen(entry)) {
                prop_assert!(!mentioned.contains(&entry.event.id), "{:?}", entry);
            }
            prop_assert_eq!(distinct_ids(mentioned), pack.sources.clone());

            let told = section(&pack, OPEN_SECTION);
            let visible: Vec<&LedgerEntry> = open.iter().filter(|entry| may_be_seen(entry)).collect();
            let count = |line: &String| line.strip_prefix("- and ")?.strip_suffix(" more")?.parse::<usize>().ok();
            let counted: usize = told.iter().filter_map(count).sum();
            prop_assert_eq!(ids_in(&told.join("\n")).len() + counted, visible.len());
            let mut oldest = visible;
            oldest.sort_by_key(|entry| by_age(entry));
            for entry in oldest.iter().take(3) {
                let end = format!("({})", entry.event.id);
                prop_assert!(told.iter().any(|line| line.contains(" open ") && line.ends_with(&end)), "{:?}", told);
            }
            let once = [P0_SECTION, MANTRA_SECTION, OPEN_SECTION, FOCUS_SECTION, CONTEXT_SECTION, PROCEDURES_SECTION, ACCOUNTS_SECTION].into_iter().flat_map(|at| section(&pack, at));
            let mut tellers: BTreeMap<EventId, usize> = BTreeMap::new();
            for id in once.filter(|line| line.ends_with(')')).filter_map(|line| ids_in(&line).last().copied()) {
                *tellers.entry(id).or_default() += 1;
            }
            for (id, times) in tellers {
                // Only a commitment may be in focus as well.
                let open = open.iter().any(|entry| entry.event.id == id);
                prop_assert!(times <= 1 + usize::from(open), "{} is told {} times", id, times);
            }
            let focus = section(&pack, FOCUS_SECTION);
            prop_assert!(focus.len() <= 6);
        }

        // L6
        #[test]
        fn a_pack_without_p0_is_never_too_long(
            all in entries(80),
            times in 1..4_usize,
            troubles in prop::collection::vec(text(), 0..14),
        ) {
            let few = all.into_iter().filter(|entry| entry.event.priority != Priority::P0);
            let all: Vec<LedgerEntry> = few.flat_map(|entry| {
                (0..times).map(move |time| {
                    let mut entry = entry.clone();
                    entry.event.id = EventId::new(entry.event.id.day(), entry.event.id.number() + 1_000 * time as u32);
                    entry
                })
            }).collect();
            let about = BTreeMap::from([("apollo".to_owned(), "x ".repeat(90))]);
            let known = RecallInput { troubles: &troubles, ..recall_input(&all, &[], &about) };
            let pack = recall_pack(DAY, &known, SectionWords::DEFAULT, DecayLimits::DEFAULT);
            prop_assert!(pack.words <= 3_000, "{}", pack.words);
            prop_assert!(pack.sections[MANTRA_SECTION].words <= 20);
        }

        // L6
        #[test]
        fn the_order_of_the_input_does_not_matter(
            (all, other) in entries(40).prop_flat_map(|all| (Just(all.clone()), Just(all).prop_shuffle())),
        ) {
            let about = BTreeMap::new();
            let (open, first) = (all.iter().filter(|entry| entry.is_open_loop()).cloned().collect::<Vec<_>>(), of(&all));
            let again = recall_pack(DAY, &recall_input(&other, &open, &about), SectionWords::DEFAULT, DecayLimits::DEFAULT);
            prop_assert_eq!(&first.text, &again.text);
            prop_assert_eq!(first, again);
        }

        // K6
        #[test]
        fn a_condensed_pack_has_at_most_its_characters(all in entries(60), room in 0..9_000_usize) {
            let about = BTreeMap::new();
            let known = recall_input(&all, &[], &about);
            let (text, left_out, sources) = condensed_recall(DAY, &known, SectionWords::DEFAULT, DecayLimits::DEFAULT, room);
            prop_assert!(text.chars().count() <= room);
            prop_assert_eq!(distinct_ids(ids_in(&text)), sources);
            let wrapped = capture_filter::wrap_block("session-start", DAY, &text);
            prop_assert!(capture_filter::escape_markers(&text) == text);
            prop_assert!(capture_filter::strip_blocks(&wrapped).text.is_empty());
            if !text.is_empty() {
                // A partial pack says so and names the command; a complete one does not.
                prop_assert_eq!(text.lines().last().unwrap().contains("`icecore pack recall`"), !left_out.is_empty());
            }
            let (whole, all_left_out, _) = condensed_recall(DAY, &known, SectionWords::DEFAULT, DecayLimits::DEFAULT, usize::MAX);
            let pack = recall_pack(DAY, &known, SectionWords::DEFAULT, DecayLimits::DEFAULT);
            prop_assert_eq!(all_left_out, pack.left_out.clone());
            for line in pack.text.lines().filter(|line| line.ends_with(')') && line.contains(" (EVT-")) {
                prop_assert!(whole.contains(line));
            }
            prop_assert_eq!(text.chars().count() < whole.chars().count(), left_out.len() > pack.left_out.len());
        }

        // L6
        #[test]
        fn any_budget_at_all_is_borne(all in entries(30), rooms in prop::collection::vec(prop_oneof![0..40_usize, Just(usize::MAX)], 9)) {
            let [p0, mantra, open, waiting, focus, context, procedures, accounts, buffer] = rooms[..] else { unreachable!() };
            let words = SectionWords { p0, mantra, open, waiting, focus, context, procedures, accounts, buffer };
            let about = BTreeMap::new();
            let pack = recall_pack(DAY, &recall_input(&all, &[], &about), words, DecayLimits::DEFAULT);
            prop_assert!(pack.words <= words.total() || pack.left_out.iter().any(|left| left.what.starts_with("the limit of ")));
        }

        #[test]
        fn the_known_log_is_a_part_of_the_log(log in "([ \\-0-9:a-z\n]{0,6}|- 0[0-9]:00 x\n){0,20}", clock in "0[0-9]:00") {
            let known = log_until(&log, &clock);
            let lines: Vec<&str> = log.lines().collect();
            prop_assert!(known.lines().all(|line| lines.contains(&line)));
            prop_assert_eq!(log_until(&known, &clock), known);
        }
    }

    // L6
    #[test]
    fn the_most_important_lines_survive_in_little_room() {
        let mut all = vec![
            entry(3, 1, EventType::Constraint, Priority::P0, "Never deploy on Fridays"),
            with_tag(entry(3, 2, EventType::Preference, Priority::P1, "More with less"), "mantra"),
            entry(3, 3, EventType::Decision, Priority::P1, "Decided on Postgres"),
        ];
        all.extend((1..=30).map(|number| {
            entry(50 - number as i32, number, EventType::Commitment, Priority::P2, "Send the offer")
        }));
        all.extend((1..=90).map(|number| {
            entry(1, number, EventType::Procedure, Priority::P2, "first do this and then do that")
        }));
        all.extend((1..=90).map(|number| {
            entry(2, number, EventType::Preference, Priority::P2, "likes this and also that")
        }));
        let about = BTreeMap::new();
        let (text, left_out, _) = condensed_recall(
            DAY,
            &recall_input(&all, &[], &about),
            SectionWords::DEFAULT,
            DecayLimits::DEFAULT,
            2_000,
        );
        let found = sections(&text);
        assert_eq!(found[SECTION_HEADINGS[P0_SECTION]].len(), 1);
        assert_eq!(found[SECTION_HEADINGS[MANTRA_SECTION]].len(), 1);
        assert_eq!(found[SECTION_HEADINGS[FOCUS_SECTION]].len(), 1);
        let open = &found[SECTION_HEADINGS[OPEN_SECTION]];
        assert_eq!(open.last().unwrap(), &format!("- and {} more", 31 - open.len()));
        for at in [OPEN_SECTION, CONTEXT_SECTION, PROCEDURES_SECTION] {
            assert!(found[SECTION_HEADINGS[at]].len() >= 4, "{text}");
            assert!(
                left_out.iter().any(|left| left.what.ends_with(SECTION_HEADINGS[at])
                    && left.why == "2000 characters")
            );
        }
        assert!(
            text.ends_with(PARTIAL_PACK_NOTE) && text.chars().count() > 1_800,
            "{}",
            text.chars().count()
        );
        let (text, ..) = condensed_recall(
            DAY,
            &recall_input(&all, &[], &about),
            SectionWords::DEFAULT,
            DecayLimits::DEFAULT,
            100,
        );
        assert!(text.ends_with(PARTIAL_P0_NOTE));
        // A complete pack is not called partial.
        let (text, left_out, _) = condensed_recall(
            DAY,
            &recall_input(&all[..1], &[], &about),
            SectionWords::DEFAULT,
            DecayLimits::DEFAULT,
            2_000,
        );
        assert!(left_out.is_empty() && !text.contains("This is a part"), "{text} {left_out:?}");
    }
}
