//! The history files: `24hr.md` with saved states in full, `30day.md` with a few sentences per day,
//! `YYYY.md` with a few per month (K1, K3).

use std::collections::BTreeSet;

use icecore_text::lexicon;
use icecore_text::normalize::collapse_spaces;
use jiff::ToSpan;
use jiff::civil::Date;

use crate::calendar::Month;
use crate::record::Record;
use crate::summary::{Period, Summary};

/// A saved state as an entry of `24hr.md`: a heading with time and title, between rules.
pub fn format_state_entry(record: &Record) -> String {
    render_entry(&StateEntry {
        day: record.ts.day(),
        clock: record.ts.clock_time(),
        title: record.title.as_deref().map(crate::sanitize::one_line),
        text: record.text.trim().to_owned(),
        memories: Vec::new(),
    })
}

/// The start of the line that lists the memories derived from an entry.
const MEMORIES_PREFIX: &str = "Memories: [mem:";
/// The most memories of a month that are listed; the rest are counted.
const MAX_NAMED_MEMORIES: usize = 12;

/// The line that lists memories, with surrounding blank lines; empty if there are none.
fn memories_line(names: &[&str]) -> String {
    if names.is_empty() {
        return String::new();
    }
    let named: Vec<String> =
        names.iter().take(MAX_NAMED_MEMORIES).map(|name| format!("[mem:{name}]")).collect();
    let more = if names.len() > MAX_NAMED_MEMORIES {
        format!(" and {} more", names.len() - MAX_NAMED_MEMORIES)
    } else {
        String::new()
    };
    format!("\n\nMemories: {}{more}", named.join(" "))
}

/// The memories whose names begin with this time.
fn memories_of_time<'a>(memories: &'a [String], time: &str) -> Vec<&'a str> {
    memories.iter().map(String::as_str).filter(|name| name.starts_with(time)).collect()
}

/// A parsed entry of `24hr.md`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateEntry {
    pub day: Date,
    /// The time, `HH:MM`.
    pub clock: String,
    pub title: Option<String>,
    /// The saved text.
    pub text: String,
    /// The memories derived from it.
    pub memories: Vec<String>,
}

impl StateEntry {
    /// The same entry with those of `memories` that were derived from it.
    #[must_use]
    pub fn with_memories(mut self, memories: &[String]) -> Self {
        let time = format!("{}-{}-", self.day.strftime("%Y%m%d"), self.clock.replace(':', ""));
        self.memories = memories_of_time(memories, &time).into_iter().map(str::to_owned).collect();
        self
    }
}

/// Renders a parsed entry as it appears in the file.
pub fn render_entry(entry: &StateEntry) -> String {
    let title = entry.title.as_deref().map_or(String::new(), |title| format!(" \u{2014} {title}"));
    let names: Vec<&str> = entry.memories.iter().map(String::as_str).collect();
    format!(
        "---\n### {} {}{title}\n\n{}{}\n\n---\n",
        entry.day,
        entry.clock,
        entry.text,
        memories_line(&names)
    )
}

/// Parses a file into its entries and the text before the first.
pub fn parse_entries(text: &str) -> (String, Vec<StateEntry>) {
    let mut before = String::new();
    let mut found: Vec<StateEntry> = Vec::new();
    for line in text.lines() {
        if let Some(begun) = parse_heading(line) {
            found.push(begun);
        } else if let Some(entry) = found.last_mut() {
            entry.text.push_str(line);
            entry.text.push('\n');
        } else if line != "---" {
            before.push_str(line);
            before.push('\n');
        }
    }
    for entry in &mut found {
        // The rules around an entry are not part of it; rules inside are.
        let mut text = entry.text.trim();
        while let Some(rest) = text.strip_suffix("---") {
            let rest = rest.trim_end();
            if rest.is_empty() || text.ends_with("\n---") {
                text = rest;
            } else {
                break;
            }
        }
        // The list of memories is not part of the saved text.
        if let Some((before, last)) = text.rsplit_once('\n')
            && last.starts_with(MEMORIES_PREFIX)
        {
            entry.memories = last
                .split("[mem:")
                .skip(1)
                .filter_map(|rest| rest.split(']').next())
                .map(str::to_owned)
                .collect();
            text = before.trim_end();
        }
        entry.text = text.to_owned();
    }
    (before.trim().to_owned(), found)
}

fn parse_heading(line: &str) -> Option<StateEntry> {
    let rest = line.strip_prefix("### ")?;
    let (day, rest) = rest.split_at_checked(10)?;
    let day: Date = day.parse().ok()?;
    let (clock, rest) = rest.strip_prefix(' ')?.split_at_checked(5)?;
    let shape = clock
        .bytes()
        .enumerate()
        .all(|(at, byte)| if at == 2 { byte == b':' } else { byte.is_ascii_digit() });
    let title = rest.trim_start_matches([' ', '\u{2014}', '-']).trim();
    shape.then(|| StateEntry {
        day,
        clock: clock.into(),
        title: (!title.is_empty()).then(|| title.to_owned()),
        text: String::new(),
        memories: Vec::new(),
    })
}

/// A parsed entry of `30day.md` or of a year file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeriodBlock {
    /// The day or month it covers.
    pub period: Period,
    heading: String,
    text: String,
}

impl PeriodBlock {
    /// Its text on one line, without the list of memories.
    pub fn one_line_text(&self) -> String {
        let text = match self.text.rsplit_once('\n') {
            Some((before, last)) if last.starts_with(MEMORIES_PREFIX) => before,
            _ => self.text.as_str(),
        };
        collapse_spaces(text)
    }

    /// Renders the entry as it appears in the file.
    pub fn render(&self) -> String {
        format!("---\n{}\n\n{}\n\n---\n", self.heading, self.text)
    }
}

/// Parses `30day.md` or a year file into its entries and the text before the first.
pub fn parse_blocks(text: &str) -> (String, Vec<PeriodBlock>) {
    let mut before = String::new();
    let mut found: Vec<PeriodBlock> = Vec::new();
    for line in text.lines() {
        if let Some(period) = parse_block_period(line) {
            found.push(PeriodBlock {
                period,
                heading: line.trim_end().to_owned(),
                text: String::new(),
            });
            continue;
        }
        let part = found.last_mut().map_or(&mut before, |block| &mut block.text);
        part.push_str(line);
        part.push('\n');
    }
    found.iter_mut().for_each(|block| block.text = strip_rules(&block.text).to_owned());
    (strip_rules(&before).to_owned(), found)
}

/// The day or month of a heading: `### 2026-02-03 (from 3 snapshots)`, `### February 2026`.
fn parse_block_period(line: &str) -> Option<Period> {
    let rest = line.strip_prefix("### ")?.trim();
    if let Some(day) = rest.get(..10).and_then(|day| day.parse::<Date>().ok()) {
        return Some(Period::Day(day));
    }
    let mut words = rest.split_whitespace();
    let (name, year) = (words.next()?, words.next()?.parse::<i16>().ok()?);
    let month = lexicon::month(&name.to_lowercase())?;
    Date::new(year, i8::try_from(month.number).ok()?, 1)
        .ok()
        .map(|first| Period::Month(Month::containing(first)))
}

/// The text without surrounding rules and blank lines; rules inside stay.
fn strip_rules(text: &str) -> &str {
    let mut text = text.trim();
    while let Some(rest) =
        text.strip_suffix("---").filter(|rest| rest.is_empty() || rest.ends_with('\n'))
    {
        text = rest.trim_end();
    }
    text
}

/// The rendered file with all foreign content preserved: the text before the first entry, and the
/// entries of the periods in `foreign`, verbatim and in chronological order.
pub fn keep_foreign(existing: &str, rendered: &str, foreign: &BTreeSet<Period>) -> String {
    let (before, found) = parse_blocks(existing);
    if before.is_empty() && foreign.is_empty() {
        return rendered.to_owned();
    }
    let mut blocks: Vec<PeriodBlock> = parse_blocks(rendered).1;
    blocks.retain(|block| !foreign.contains(&block.period));
    blocks.extend(found.iter().filter(|block| foreign.contains(&block.period)).cloned());
    blocks.sort_by_key(|block| block.period.days().first);
    // Foreign entries are copied byte for byte.
    if blocks == found {
        return existing.to_owned();
    }
    render_blocks(&before, &blocks)
}

/// The file with only the entries that `is_kept` accepts, and the text before the first. If all
/// stay, the file is unchanged byte for byte.
pub fn retain_blocks(existing: &str, is_kept: impl Fn(&PeriodBlock) -> bool) -> String {
    let (before, found) = parse_blocks(existing);
    let kept: Vec<PeriodBlock> = found.iter().filter(|block| is_kept(block)).cloned().collect();
    if kept.len() == found.len() { existing.to_owned() } else { render_blocks(&before, &kept) }
}

fn render_blocks(before: &str, blocks: &[PeriodBlock]) -> String {
    let before = if before.is_empty() { String::new() } else { format!("{before}\n\n") };
    blocks.iter().fold(before, |text, block| text + &block.render())
}

/// The time spans of the history files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HistorySpan {
    /// `24hr.md` holds today and this many days before.
    pub states_days: u16,
    /// `30day.md` holds this many days.
    pub days: u16,
}

fn days_before(today: Date, days: u16) -> Date {
    today.checked_sub(i32::from(days).days()).unwrap_or(Date::MIN)
}

/// Whether the states of a day have left `24hr.md`: whole days leave once they are summarized.
pub fn has_left_24hr(day: Date, today: Date, span: HistorySpan, pressed: bool) -> bool {
    day < days_before(today, span.states_days) && pressed
}

/// Renders `30day.md`. `days` are the candidate days in order, `months` the summarized months,
/// `memories` the names of all memories.
pub fn render_thirty_days(
    today: Date,
    span: HistorySpan,
    days: &[Summary],
    months: &BTreeSet<Month>,
    memories: &[String],
) -> String {
    let mut text = String::new();
    for summary in days {
        let Period::Day(day) = summary.period else { continue };
        let month = crate::calendar::Week::containing(day).month();
        // A day stays until its month is in the year file.
        let told_by_month = day < days_before(today, span.days)
            && enters_year_file(month, today, span)
            && months.contains(&month);
        if day >= days_before(today, span.states_days) || told_by_month {
            continue;
        }
        let from = if summary.states > 0 {
            format!("{} snapshot{}", summary.states, if summary.states == 1 { "" } else { "s" })
        } else {
            format!("{} message{}", summary.messages, if summary.messages == 1 { "" } else { "s" })
        };
        let memories =
            memories_line(&memories_of_time(memories, &day.strftime("%Y%m%d-").to_string()));
        text.push_str(&format!(
            "---\n### {day} (from {from})\n\n{}{memories}\n\n---\n",
            summary.headline
        ));
    }
    text
}

/// Whether a month's first day has left `30day.md`, so that the month enters the year file.
pub fn enters_year_file(month: Month, today: Date, span: HistorySpan) -> bool {
    month.week_span().first < days_before(today, span.days)
}

/// Renders a year file; `months` are the summarized months of the year, in order.
pub fn render_year(
    today: Date,
    span: HistorySpan,
    months: &[Summary],
    memories: &[String],
) -> String {
    let mut text = String::new();
    for summary in months {
        let Period::Month(month) = summary.period else { continue };
        if enters_year_file(month, today, span) {
            let first = month.first();
            let memories =
                memories_line(&memories_of_time(memories, &first.strftime("%Y%m").to_string()));
            text.push_str(&format!(
                "---\n### {}\n\n{}{memories}\n\n---\n",
                first.strftime("%B %Y"),
                summary.headline
            ));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calendar::Moment;
    use crate::event::Origin;
    use crate::record::{RecordKind, Role};
    use jiff::civil::date;
    use proptest::prelude::*;

    fn state(text: &str, title: Option<&str>) -> Record {
        let ts = Moment::parse("2026-02-03T09:15:00+01:00").unwrap().moment;
        Record {
            ts,
            conversation: "state".into(),
            session: None,
            id: "x".into(),
            role: Role::Assistant,
            name: None,
            other_speaker: None,
            kind: RecordKind::State,
            title: title.map(Into::into),
            text: text.into(),
            parts: None,
            origin: Origin::Assistant,
            captured: ts,
            extra: Vec::new(),
            withdrawn: false,
        }
    }

    // K1
    #[test]
    fn a_state_stands_under_its_time_and_title_between_rules() {
        let text = format_state_entry(&state("**Current Task**: the cascade", Some("Auto-save")));
        assert_eq!(
            text,
            "---\n### 2026-02-03 09:15 \u{2014} Auto-save\n\n**Current Task**: the cascade\n\n---\n"
        );
    }

    const SPAN: HistorySpan = HistorySpan { states_days: 1, days: 30 };

    fn day_of(day: Date, messages: u64, states: u64) -> Summary {
        let told =
            crate::packs::upload::tests::summary(Period::Day(day), &format!("This was {day}."), "");
        Summary { messages, states, ..told }
    }

    // K3
    #[test]
    fn a_state_leaves_with_its_whole_day_once_that_is_summarized() {
        let today = date(2026, 2, 13);
        for (day, pressed, left) in [
            (date(2026, 2, 13), true, false),
            // Yesterday evening is less than a day ago; yesterday morning is on the same day.
            (date(2026, 2, 12), true, false),
            (date(2026, 2, 11), true, true),
            (date(2026, 2, 11), false, false),
        ] {
            assert_eq!(has_left_24hr(day, today, SPAN, pressed), left, "{day}");
        }
    }

    // K3
    #[test]
    fn a_day_says_how_many_snapshots_or_messages_it_came_from() {
        for (messages, states, header) in [
            (9, 3, "---\n### 2026-02-03 (from 3 snapshots)\n\nThis was 2026-02-03.\n\n---\n"),
            (9, 1, "---\n### 2026-02-03 (from 1 snapshot)\n\nThis was 2026-02-03.\n\n---\n"),
            (9, 0, "---\n### 2026-02-03 (from 9 messages)\n\nThis was 2026-02-03.\n\n---\n"),
            (1, 0, "---\n### 2026-02-03 (from 1 message)\n\nThis was 2026-02-03.\n\n---\n"),
        ] {
            let days =
                [day_of(date(2026, 2, 3), messages, states), day_of(date(2026, 2, 12), 1, 0)];
            assert_eq!(
                render_thirty_days(date(2026, 2, 13), SPAN, &days, &BTreeSet::new(), &[]),
                header
            );
        }
    }

    // K3
    #[test]
    fn a_day_stays_until_its_month_stands_in_the_file_of_its_year() {
        let first = date(2025, 10, 1);
        let all: Vec<Date> =
            crate::calendar::Days { first, last: date(2026, 12, 31) }.iter().collect();
        // Months are summarized on time, late, or never.
        for late_days in [2_i32, 45, 10_000] {
            for &today in &all {
                let days: Vec<Summary> =
                    all.iter().filter(|day| **day < today).map(|&day| day_of(day, 1, 0)).collect();
                let is_pressed = |month: &Month| {
                    days_before(today, u16::try_from(late_days).unwrap()) > month.week_span().last
                };
                let months: BTreeSet<Month> = all
                    .iter()
                    .map(|&day| crate::calendar::Week::containing(day).month())
                    .filter(is_pressed)
                    .collect();
                let kept = render_thirty_days(today, SPAN, &days, &months, &[]);
                let pressed: Vec<Summary> = months
                    .iter()
                    .map(|&month| {
                        crate::packs::upload::tests::summary(
                            Period::Month(month),
                            &format!("Month {month}."),
                            "",
                        )
                    })
                    .collect();
                let years = render_year(today, SPAN, &pressed, &[]);
                let said: BTreeSet<&str> = kept.lines().chain(years.lines()).collect();
                for &day in all.iter().filter(|day| **day < days_before(today, 1)) {
                    let in_days = said.contains(format!("This was {day}.").as_str());
                    let in_year = said.contains(
                        format!("Month {}.", crate::calendar::Week::containing(day).month())
                            .as_str(),
                    );
                    assert!(in_days || in_year, "{day} is lost on {today}");
                    assert!(
                        in_days || day < days_before(today, 30),
                        "{day} left too soon on {today}"
                    );
                    assert!(
                        !in_days || !in_year || day >= days_before(today, 30),
                        "{day} is told twice on {today}"
                    );
                }
                assert!(
                    !kept.contains(&format!("This was {}.", days_before(today, 1))),
                    "yesterday is told in full"
                );
            }
        }
        let months =
            [crate::packs::upload::tests::summary("2026-01".parse().unwrap(), "It began.", "")];
        assert_eq!(render_year(date(2026, 1, 28), SPAN, &months, &[]), "");
        assert_eq!(
            render_year(date(2026, 1, 29), SPAN, &months, &[]),
            "---\n### January 2026\n\nIt began.\n\n---\n"
        );
    }

    // K4
    #[test]
    fn entries_name_the_memories_they_gave_rise_to() {
        let memories: Vec<String> =
            ["20260203-0915-r2-contact", "20260203-1130-port", "20260204-0915-other"]
                .map(Into::into)
                .to_vec();
        let saved = format_state_entry(&state("on the cascade", None));
        let (_, found) = parse_entries(&saved);
        let named = render_entry(&found[0].clone().with_memories(&memories));
        assert!(
            named.ends_with("on the cascade\n\nMemories: [mem:20260203-0915-r2-contact]\n\n---\n"),
            "{named}"
        );
        let (_, again) = parse_entries(&named);
        assert_eq!(
            (again[0].text.as_str(), again[0].memories.as_slice()),
            ("on the cascade", &memories[..1])
        );
        let days = [day_of(date(2026, 2, 3), 9, 0)];
        let told = render_thirty_days(date(2026, 2, 13), SPAN, &days, &BTreeSet::new(), &memories);
        assert!(
            told.contains(
                "\n\nMemories: [mem:20260203-0915-r2-contact] [mem:20260203-1130-port]\n"
            ),
            "{told}"
        );
        let months =
            [crate::packs::upload::tests::summary("2026-02".parse().unwrap(), "It went on.", "")];
        assert!(
            render_year(date(2026, 4, 1), SPAN, &months, &memories)
                .contains("[mem:20260204-0915-other]")
        );
    }

    proptest! {
        // K1
        #[test]
        fn entries_read_back_what_was_saved(texts in proptest::collection::vec("[a-zA-Z#*\\[\\] .\n-]{0,80}", 1..5)) {
            let texts: Vec<String> = texts.into_iter().map(|text| text.trim().to_owned()).filter(|text| !text.contains("---") && !text.contains("### ")).collect();
            let file: String = texts.iter().map(|text| format_state_entry(&state(text, Some("t")))).collect();
            let (_, found) = parse_entries(&file);
            prop_assert_eq!(found.iter().map(|entry| entry.text.clone()).collect::<Vec<_>>(), texts);
        }
    }
}
