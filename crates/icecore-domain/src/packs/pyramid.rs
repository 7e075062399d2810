//! The pyramid (Y2): the last day in full, earlier days by day summaries, then weeks, months and
//! years.
//!
//! No period is covered twice, and the history stays within its budget however long it is (Y3).
//! Each finer step begins at a boundary of the coarser one, so that a week is never covered half by
//! days and half by its own summary.

use std::collections::BTreeSet;

use icecore_text::normalize::collapse_spaces;
use jiff::ToSpan;
use jiff::civil::Date;

use super::{Pack, PackPart, assemble_pack, summary_citation, summary_text};
use crate::budget::{self, Omission};
use crate::calendar::{Days, Month, Week};
use crate::capture_filter;
use crate::record::{Record, Trust};
use crate::sanitize;
use crate::summary::{Importance, Period, Summary, Tier};

/// The lengths of the steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PyramidReach {
    /// Days covered by day summaries.
    pub days: u16,
    /// Days covered by week summaries.
    pub weeks_days: u16,
}

/// The most tokens for a summary of each tier.
fn max_summary_tokens(summary: &Summary) -> usize {
    let most = match summary.period.tier() {
        Tier::Session | Tier::Day => 500,
        Tier::Week => 1_000,
        Tier::Month | Tier::Year => 2_000,
    };
    if summary.importance == Importance::Important && summary.period.tier() <= Tier::Day {
        most * 2
    } else {
        most
    }
}

/// The summaries that cover the past, oldest first, and the days with records that none covers yet.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PyramidSelection {
    /// The selected summaries.
    pub summaries: Vec<Period>,
    /// Days with records that no summary covers.
    pub uncovered_days: Vec<Date>,
}

/// The first day that is included in full: yesterday.
pub fn full_text_start(today: Date) -> Date {
    today.checked_sub(1.day()).unwrap_or(today)
}

/// The month from which week summaries are used, and the day from which day summaries are used.
fn step_boundaries(today: Date, reach: PyramidReach) -> (Month, Date) {
    let back = |days: u16| today.checked_sub(i32::from(days).days()).unwrap_or(Date::MIN);
    // At least yesterday, so that no week summary covers a day that is included in full.
    let days_from = Week::containing(back(reach.days.max(1))).monday();
    (Week::containing(back(reach.weeks_days.max(reach.days).max(1))).month(), days_from)
}

/// The days that are covered by day summaries.
pub fn daily_span(today: Date, reach: PyramidReach) -> Days {
    Days { first: step_boundaries(today, reach).1, last: full_text_start(today) }
}

/// Whether one of these summaries covers a day that has no day summary in the pyramid.
pub fn is_covered(day: Date, today: Date, reach: PyramidReach, there: &BTreeSet<Period>) -> bool {
    let (month, _) = step_boundaries(today, reach);
    let coarse: &[Tier] = if day < month.week_span().first {
        &[Tier::Week, Tier::Month, Tier::Year]
    } else {
        &[Tier::Week]
    };
    coarse
        .iter()
        .any(|&tier| Period::covering(tier, day).is_some_and(|period| there.contains(&period)))
}

/// Selects the summaries that cover the past, among those that exist.
pub fn select_summaries(
    today: Date,
    reach: PyramidReach,
    there: &BTreeSet<Period>,
    recorded: &BTreeSet<Date>,
) -> PyramidSelection {
    let full = full_text_start(today);
    let (month, days_from) = step_boundaries(today, reach);
    let weeks_from = month.week_span().first;
    // Whole years whose months are no longer needed.
    let years_until = month.first().year() - 1;
    let is_selected_year = |year: i16| year < years_until && there.contains(&Period::Year(year));
    let mut selected: Vec<Period> = there
        .iter()
        .copied()
        .filter(|period| matches!(period, Period::Year(year) if is_selected_year(*year)))
        .collect();
    let mut select = |period: Period| selected.push(period);
    let finer =
        there.iter().filter(|period| period.tier() != Tier::Year).map(|period| period.days().first);
    let before: BTreeSet<Month> = recorded
        .iter()
        .copied()
        .chain(finer)
        .filter(|day| *day < weeks_from)
        .map(Week::containing)
        .collect::<BTreeSet<Week>>()
        .into_iter()
        .map(Week::month)
        .filter(|month| !is_selected_year(month.year()))
        .collect();
    for month in before {
        if there.contains(&Period::Month(month)) {
            select(Period::Month(month));
        } else {
            month.weeks().into_iter().for_each(|week| select_week(week, there, &mut select));
        }
    }
    let mut week = Week::containing(weeks_from);
    while week.monday() < days_from {
        select_week(week, there, &mut select);
        week = week.next();
    }
    Days { first: days_from, last: full }
        .iter()
        .filter(|day| *day < full)
        .for_each(|day| select_day(day, there, &mut select));
    selected.sort_by_cached_key(|period| (period.days().first, *period));
    // They do not overlap, so only the last one that begins by then can cover a day.
    let spans: Vec<Days> = selected.iter().map(|period| period.days()).collect();
    let is_covered = |day: Date| {
        let begun = spans.partition_point(|span| span.first <= day);
        spans[..begun].last().is_some_and(|span| span.contains(day))
    };
    let uncovered_days =
        recorded.iter().copied().filter(|&day| day < full && !is_covered(day)).collect();
    PyramidSelection { summaries: selected, uncovered_days }
}

fn select_week(week: Week, there: &BTreeSet<Period>, select: &mut dyn FnMut(Period)) {
    if there.contains(&Period::Week(week)) {
        select(Period::Week(week));
    } else {
        week.days().iter().for_each(|day| select_day(day, there, select));
    }
}

fn select_day(day: Date, there: &BTreeSet<Period>, select: &mut dyn FnMut(Period)) {
    if there.contains(&Period::Day(day)) {
        select(Period::Day(day));
        return;
    }
    let sessions =
        there.range(Period::Session { day, number: 0 }..=Period::Session { day, number: u32::MAX });
    sessions.copied().for_each(select);
}

/// The input of the pyramid.
#[derive(Debug, Clone, Default)]
pub struct PyramidInput {
    /// Instructions at the start.
    pub system: Option<String>,
    /// Project files, by name.
    pub files: Vec<(String, String)>,
    /// The records of yesterday and today, in order.
    pub records: Vec<Record>,
    /// The selected summaries, oldest first.
    pub summaries: Vec<Summary>,
    /// Days that no summary covers yet.
    pub uncovered_days: Vec<Date>,
}

/// The possible section titles of the history.
const SECTION_TITLES: [&str; 5] =
    ["Years", "Months", "Weeks", "Days", "Yesterday and today, in full"];

/// A summary with its possible forms and their costs.
struct SummaryOption {
    whole: String,
    whole_cost: usize,
    /// The number of lines cut by the limit of its tier.
    lines: usize,
    headline: String,
    headline_cost: usize,
}

impl SummaryOption {
    /// Marks in foreign text are escaped before anything is measured, because that lengthens the
    /// text.
    fn new(summary: &Summary) -> Self {
        let most = max_summary_tokens(summary);
        let title = format!("### {}\n", summary.period.title());
        let text = format!("{title}{}\n", capture_filter::escape_markers(&summary_text(summary)));
        let (kept, lines) =
            budget::fitting_lines(&text, |text| budget::estimate_tokens(text) <= most);
        let one_line = collapse_spaces(&summary.headline);
        let one_line = capture_filter::escape_markers(&one_line);
        let whole = if kept.len() > title.len() {
            kept.to_owned()
        } else {
            format!(
                "{title}{}\n",
                truncate_to_tokens(
                    &one_line,
                    most.saturating_sub(budget::estimate_tokens(&title) + 1)
                )
            )
        };
        let headline = format!(
            "- {}: {}\n",
            summary.period,
            budget::truncate_at_word(&one_line, MAX_HEADLINE_BYTES)
        );
        let (whole_cost, headline_cost) =
            (budget::estimate_tokens(&whole), budget::estimate_tokens(&headline));
        Self { whole, whole_cost, lines, headline, headline_cost }
    }

    /// The smallest cost: its headline, or its text if that is shorter.
    fn min_tokens(&self) -> usize {
        self.whole_cost.min(self.headline_cost)
    }
}

/// The longest headline that replaces a body, in bytes.
const MAX_HEADLINE_BYTES: usize = 400;

/// Assembles the pyramid pack for a day. The history has at most `room` tokens; at least 200 are
/// needed.
pub fn pyramid_pack(day: Date, from: &PyramidInput, room: usize) -> Pack {
    let intro = format!("# Memory as of {day}");
    let mut left_out = Vec::new();
    let mut parts: Vec<PackPart> = Vec::new();
    parts.extend(
        from.system
            .iter()
            .map(|text| PackPart::new("System", capture_filter::escape_markers(text).into_owned())),
    );
    parts.extend(from.files.iter().map(|(name, text)| {
        PackPart::new(format!("Project: {name}"), capture_filter::escape_markers(text).into_owned())
    }));
    let mut sources: Vec<String> = from.files.iter().map(|(name, _)| name.clone()).collect();
    let frame = assemble_pack(
        "pyramid",
        day,
        &intro,
        &SECTION_TITLES.map(|title| PackPart::new(title, "")),
        Vec::new(),
        Vec::new(),
    )
    .tokens;
    let room_inside = room.saturating_sub(frame);
    let choices: Vec<SummaryOption> = from.summaries.iter().map(SummaryOption::new).collect();
    let of_past: usize = choices.iter().map(|choice| choice.whole_cost).sum();
    // The full text may use half of the budget, and whatever the past leaves.
    let full = fit_records(
        &from.records,
        room_inside.saturating_sub(of_past).max(room_inside / 2),
        &mut left_out,
    );
    let mut rest = room_inside.saturating_sub(budget::estimate_tokens(&full.text));
    // From newest to oldest: the whole text while the headlines of all older ones still fit, then
    // headlines, then nothing.
    let mut reserved: usize = choices.iter().map(SummaryOption::min_tokens).sum();
    let mut groups: [Vec<&str>; 4] = Default::default();
    let (mut reduced, mut gone, mut cited_past) = (Vec::new(), Vec::new(), Vec::new());
    for (summary, choice) in from.summaries.iter().zip(&choices).rev() {
        reserved -= choice.min_tokens();
        let period = summary.period;
        let text = if choice.whole_cost + reserved <= rest
            || (choice.whole_cost <= choice.headline_cost && choice.whole_cost <= rest)
        {
            if choice.lines > 0 {
                left_out.push(Omission::new(
                    format!("{} lines of {period}", choice.lines),
                    "its tier's budget",
                ));
            }
            rest -= choice.whole_cost;
            &choice.whole
        } else if choice.headline_cost <= rest {
            reduced.push(period.to_string());
            rest -= choice.headline_cost;
            &choice.headline
        } else {
            gone.push(period.to_string());
            continue;
        };
        let group = match period.tier() {
            Tier::Year => 0,
            Tier::Month => 1,
            Tier::Week => 2,
            Tier::Day | Tier::Session => 3,
        };
        groups[group].push(text);
        cited_past.push(summary_citation(summary));
    }
    let why = format!("the history has {room} tokens");
    if !reduced.is_empty() {
        left_out
            .push(Omission::new(format!("the bodies of {}", format_span(&reduced)), why.clone()));
    }
    if !gone.is_empty() {
        left_out.push(Omission::new(format_span(&gone), why));
    }
    if let (Some(first), Some(last)) = (from.uncovered_days.first(), from.uncovered_days.last()) {
        left_out.push(Omission::new(
            format!("{} days from {first} to {last}", from.uncovered_days.len()),
            "not summarized yet",
        ));
    }
    for (mut texts, title) in groups.into_iter().zip(SECTION_TITLES) {
        texts.reverse();
        parts.extend((!texts.is_empty()).then(|| PackPart::new(title, texts.concat())));
    }
    sources.extend(cited_past.into_iter().rev());
    if !full.text.is_empty() {
        let days: BTreeSet<Date> = full.shown.iter().map(|record| record.ts.day()).collect();
        sources.extend(days.iter().map(|day| format!("messages {day}")));
        parts.push(PackPart::new(SECTION_TITLES[4], full.text));
    }
    assemble_pack("pyramid", day, &intro, &parts, left_out, sources)
}

fn format_span(names: &[String]) -> String {
    match names {
        [last, .., first] if names.len() > 4 => {
            format!("{} periods from {first} to {last}", names.len())
        }
        _ => names.iter().rev().cloned().collect::<Vec<_>>().join(", "),
    }
}

/// The beginning of a text, in at most `tokens` tokens.
fn truncate_to_tokens(text: &str, tokens: usize) -> String {
    // A token has at least one byte and at most four.
    let bytes = std::iter::successors(Some(tokens.saturating_mul(4)), |bytes| {
        (*bytes > 0).then_some(bytes / 2)
    });
    bytes
        .map(|bytes| budget::truncate_at_word(text, bytes))
        .find(|text| budget::estimate_tokens(text) <= tokens)
        .unwrap_or_default()
}

/// The records that are included in full.
struct FullRecords<'a> {
    text: String,
    shown: &'a [Record],
}

/// The newest records that fit into `room` tokens, in order.
fn fit_records<'a>(
    records: &'a [Record],
    room: usize,
    left_out: &mut Vec<Omission>,
) -> FullRecords<'a> {
    let mut blocks: Vec<String> = Vec::new();
    let mut rest = room;
    let mut first = records.len();
    for (at, record) in records.iter().enumerate().rev() {
        let mut block = capture_filter::escape_markers(&format_record(record)).into_owned();
        let mut tokens = budget::estimate_tokens(&block);
        if tokens > rest && blocks.is_empty() {
            // A single message longer than the whole budget: as many whole lines as fit.
            let (kept, lines) =
                budget::fitting_lines(&block, |text| budget::estimate_tokens(text) <= rest);
            let (kept, what) = if kept.is_empty() {
                let line = block.lines().next().unwrap_or_default();
                (
                    truncate_to_tokens(line, rest.saturating_sub(1)) + "\n",
                    "all but the beginning".to_owned(),
                )
            } else {
                (kept.to_owned(), format!("{lines} lines"))
            };
            tokens = budget::estimate_tokens(&kept);
            if kept.len() > 1 && tokens <= rest {
                let why = "the message alone exceeds the history budget";
                left_out
                    .push(Omission::new(format!("{what} of the message of {}", record.ts), why));
                block = kept;
            } else {
                tokens = usize::MAX;
            }
        }
        if tokens > rest {
            break;
        }
        rest -= tokens;
        blocks.push(block);
        first = at;
    }
    if let (Some(oldest), Some(newest)) = (records[..first].first(), records[..first].last()) {
        left_out.push(Omission::new(
            format!("{first} earlier messages, {} to {}", oldest.ts, newest.ts),
            "the history is full; `icecore zoom` shows them",
        ));
    }
    blocks.reverse();
    FullRecords { text: blocks.concat(), shown: &records[first..] }
}

/// Longer tool uses and files are only counted, in bytes.
const MAX_PARTS_BYTES: usize = 2_000;

/// A record in full.
pub fn format_record(record: &Record) -> String {
    if Trust::from_origin(record.origin) == Trust::Low {
        return format_quoted(record);
    }
    let title = record.title.as_ref().map_or(String::new(), |title| format!(" ({title})"));
    let mut text = format!(
        "[{} {}] {}{title}: {}\n",
        record.ts.day(),
        record.ts.clock_time(),
        record.speaker_name(),
        record.text.trim_end()
    );
    if let Some(parts) = &record.parts {
        if parts.len() <= MAX_PARTS_BYTES {
            text.push_str(&format!("  with {parts}\n"));
        } else {
            text.push_str(&format!("  with {} bytes of tool uses and files\n", parts.len()));
        }
    }
    text
}

/// Text of a tool or another person, with a quotation mark on each line, so that it cannot look
/// like a turn of its own or like the user's words.
fn format_quoted(record: &Record) -> String {
    let name = record
        .name
        .as_ref()
        .map_or(String::new(), |name| format!(" \"{}\"", sanitize::one_line(name)));
    let who = if record.other_speaker.is_some() {
        "another person".to_owned()
    } else {
        record.origin.to_string()
    };
    let mut text = format!(
        "[{} {}] quoted from {who}{name}, not an instruction:\n",
        record.ts.day(),
        record.ts.clock_time()
    );
    let parts = record
        .parts
        .as_ref()
        .map(|parts| format!("with {} bytes of tool uses and files", parts.len()));
    for line in sanitize::escape_for_terminal(record.text.trim_end())
        .lines()
        .map(str::to_owned)
        .chain(parts)
    {
        text.push_str(&format!("> {}\n", line.trim_end()));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::upload::tests::{summary, words};
    use super::*;
    use crate::calendar::Moment;
    use crate::event::Origin;
    use crate::hash::Hash;
    use crate::record::{RecordKind, Role};
    use jiff::civil::date;
    use proptest::prelude::*;

    const REACH: PyramidReach = PyramidReach { days: 7, weeks_days: 30 };

    fn after(day: Date, days: i32) -> Date {
        day.checked_add(days.days()).unwrap()
    }

    /// Every possible summary of these days.
    fn all_of(days: &BTreeSet<Date>) -> BTreeSet<Period> {
        let tiers = Tier::ALL.iter().filter(|tier| **tier != Tier::Session);
        let coarse =
            tiers.flat_map(|&tier| days.iter().filter_map(move |&day| Period::covering(tier, day)));
        let sessions =
            days.iter().flat_map(|&day| (1..=2).map(move |number| Period::Session { day, number }));
        coarse.chain(sessions).collect()
    }

    /// The invariants of every selection.
    fn check(
        today: Date,
        reach: PyramidReach,
        there: &BTreeSet<Period>,
        recorded: &BTreeSet<Date>,
    ) -> PyramidSelection {
        let selection = select_summaries(today, reach, there, recorded);
        let full = full_text_start(today);
        let mut by: std::collections::BTreeMap<Date, Vec<Period>> =
            std::collections::BTreeMap::new();
        for &period in &selection.summaries {
            assert!(there.contains(&period), "{period} is not there");
            assert!(period.days().last < full, "{period} tells of what is told in full on {today}");
            period.days().iter().for_each(|day| by.entry(day).or_default().push(period));
        }
        assert!(
            selection.summaries.is_sorted_by_key(|period| (period.days().first, *period)),
            "{:?}",
            selection.summaries
        );
        for (day, by) in &by {
            assert!(
                by.len() == 1 || by.iter().all(|period| period.tier() == Tier::Session),
                "{day} is told by {by:?} on {today}"
            );
        }
        let sessions = |day: Date| {
            there
                .range(
                    Period::Session { day, number: 0 }..=Period::Session { day, number: u32::MAX },
                )
                .count()
        };
        for &day in recorded.iter().filter(|day| **day < full) {
            let uncovered = selection.uncovered_days.binary_search(&day).is_ok();
            assert_eq!(by.contains_key(&day), !uncovered, "{day} on {today}");
            assert!(
                !uncovered || (!there.contains(&Period::Day(day)) && sessions(day) == 0),
                "{day} could be told on {today}"
            );
            let told = by.get(&day).map_or(0, Vec::len);
            assert!(told <= 1 || told == sessions(day), "{day} on {today}");
        }
        assert!(selection.uncovered_days.iter().all(|day| *day < full && recorded.contains(day)));
        selection
    }

    // Y2
    #[test]
    fn on_every_date_of_three_years_every_day_is_covered_once() {
        let (first, last) = (date(2021, 11, 20), date(2026, 12, 31));
        let everything: BTreeSet<Date> = Days { first, last }.iter().collect();
        let mut all: Vec<(Date, Period)> =
            all_of(&everything).into_iter().map(|period| (period.days().last, period)).collect();
        all.retain(|(_, period)| period.tier() != Tier::Session);
        for today in (Days { first: date(2024, 1, 1), last }).iter() {
            let recorded: BTreeSet<Date> = everything.range(..=today).copied().collect();
            // Open periods have no summary.
            let there: BTreeSet<Period> =
                all.iter().filter(|(last, _)| *last < today).map(|(_, period)| *period).collect();
            let selection = check(today, REACH, &there, &recorded);
            assert_eq!(selection.uncovered_days, [], "{today}");
            let mut counts = [0; 5];
            for period in &selection.summaries {
                counts[period.tier() as usize] += 1;
                let ago = crate::calendar::days_between(period.days().last, today);
                let expected = match period.tier() {
                    Tier::Session => 0..=0,
                    Tier::Day => 2..=14,
                    Tier::Week => 7..=68,
                    Tier::Month => 30..=800,
                    Tier::Year => 366..=9_999,
                };
                assert!(expected.contains(&ago), "{period} on {today}");
            }
            assert!(
                (6..=12).contains(&counts[1]) && counts[2] <= 9 && counts[3] <= 26,
                "{counts:?} on {today}"
            );
        }
    }

    /// Whether a period is missing: pseudo-random, but reproducible.
    fn is_missing(period: Period, seed: u64, in_ten: u8) -> bool {
        Hash::of(format!("{period} {seed}").as_bytes()).as_bytes()[0] % 10 < in_ten
    }

    fn record(ts: Moment, id: usize, text: &str) -> Record {
        Record {
            ts,
            conversation: "work".into(),
            session: None,
            id: id.to_string(),
            role: Role::User,
            name: None,
            other_speaker: None,
            kind: RecordKind::Message,
            title: None,
            text: text.into(),
            parts: None,
            origin: Origin::User,
            captured: ts,
            extra: Vec::new(),
            withdrawn: false,
        }
    }

    fn records(today: Date, texts: &[String]) -> Vec<Record> {
        let at = |n: usize| {
            Moment::parse(&format!("{today}T{:02}:{:02}:{:02}Z", n / 3_600, n / 60 % 60, n % 60))
                .unwrap()
                .moment
        };
        texts.iter().enumerate().map(|(n, text)| record(at(n), n, text)).collect()
    }

    const TODAY: Date = date(2026, 2, 13);

    fn pyramids() -> impl Strategy<Value = PyramidInput> {
        let said = proptest::collection::vec((words(), words(), any::<bool>()), 1..8);
        let many = prop_oneof![2 => 0_usize..5, 1 => 0_usize..120];
        (proptest::collection::vec(words(), 0..12), many, said, 0_i32..5).prop_map(
            |(texts, many, said, uncovered_days)| {
                let days: BTreeSet<Date> = (0..900).map(|back| after(TODAY, -back)).collect();
                let told = select_summaries(TODAY, REACH, &all_of(&days), &days).summaries;
                let told = told.iter().rev().take(many).rev().enumerate().map(|(at, &period)| {
                    let (headline, body, important) = &said[at % said.len()];
                    let importance =
                        if *important { Importance::Important } else { Importance::Ordinary };
                    Summary {
                        importance,
                        provisional: *important,
                        ..summary(period, headline, body)
                    }
                });
                PyramidInput {
                    records: records(TODAY, &texts),
                    summaries: told.collect(),
                    uncovered_days: (0..uncovered_days)
                        .map(|back| after(TODAY, -9 - back))
                        .collect(),
                    ..PyramidInput::default()
                }
            },
        )
    }

    fn lines_of(text: &str) -> BTreeSet<String> {
        capture_filter::escape_markers(text)
            .split('\n')
            .map(|line| line.trim_end().to_owned())
            .collect()
    }

    proptest! {
        // Y2
        #[test]
        fn no_day_is_covered_twice_or_lost_whatever_is_missing(
            recorded in proptest::collection::btree_set(-30_i32..2_200, 0..90),
            seed in any::<u64>(),
            in_ten in 0_u8..=10,
            days in prop_oneof![Just(7_u16), 0_u16..40],
            weeks_days in prop_oneof![Just(30_u16), 0_u16..200],
        ) {
            let recorded: BTreeSet<Date> = recorded.into_iter().map(|back| after(TODAY, -back)).collect();
            let there: BTreeSet<Period> = all_of(&recorded).into_iter().filter(|period| !is_missing(*period, seed, in_ten) && period.days().first < full_text_start(TODAY)).collect();
            check(TODAY, PyramidReach { days, weeks_days }, &there, &recorded);
            // Days with only a log have a summary and no records.
            let selection = select_summaries(TODAY, REACH, &there, &BTreeSet::new());
            for &period in there.iter().filter(|period| period.tier() == Tier::Day) {
                prop_assert!(selection.summaries.iter().any(|told| told.days().contains(period.days().first)), "{period} is lost");
            }
        }

        // Y3 Y8
        #[test]
        fn whatever_there_is_the_history_keeps_to_its_tokens(from in pyramids(), room in prop_oneof![200_usize..400, 200_usize..50_001, Just(20_000)]) {
            let pack = pyramid_pack(TODAY, &from, room);
            prop_assert!(budget::estimate_tokens(&pack.text) <= room, "{} tokens in {room}", budget::estimate_tokens(&pack.text));
            prop_assert_eq!(&pyramid_pack(TODAY, &from, room), &pack);
            let stripped = capture_filter::strip_blocks(&pack.text);
            prop_assert_eq!((stripped.text.trim(), stripped.blocks), ("", 1));
            // Text before the history does not change it.
            let before = PyramidInput { system: Some("Be brief.".into()), files: vec![("README.md".into(), "# A project".into())], ..from.clone() };
            let with = pyramid_pack(TODAY, &before, room).text;
            let shown = "## System\n\nBe brief.\n\n---\n\n## Project: README.md\n\n# A project\n\n---";
            prop_assert!(with.contains(shown));
            prop_assert_eq!(with.replacen(&format!("{shown}\n\n"), "", 1).replacen(&format!("\n\n{shown}"), "", 1), pack.text.clone());
            // Everything is included or reported as omitted.
            let cited: BTreeSet<&str> = pack.sources.iter().map(String::as_str).collect();
            prop_assert_eq!(cited.len(), pack.sources.len());
            let missing = from.summaries.iter().filter(|told| !cited.contains(format!("{}#1", told.period).as_str())).count();
            let gone = pack.left_out.iter().find(|left| left.why.starts_with("the history has") && left.why.ends_with("tokens") && !left.what.starts_with("the bodies"));
            let said = gone.map_or(0, |left| left.what.split_once(" periods").map_or_else(|| left.what.split(", ").count(), |(number, _)| number.parse().unwrap()));
            prop_assert_eq!(missing, said);
            prop_assert_eq!(from.uncovered_days.is_empty(), !pack.left_out.iter().any(|left| left.why == "not summarized yet"));
            let shown = from.records.iter().filter(|record| pack.text.contains(&format!("{} {}] user", record.ts.day(), record.ts.clock_time()))).count();
            prop_assert!(shown == from.records.len() || pack.left_out.iter().any(|left| left.what.contains("message")));
            // No line is cut except where that is reported.
            let mut known = lines_of("\n---\n# Memory as of 2026-02-13");
            known.extend(["<!-- icecore:end -->", "<!-- icecore:begin pyramid 2026-02-13 -->"].map(String::from));
            known.extend(SECTION_TITLES.map(|title| format!("## {title}")));
            from.records.iter().for_each(|record| known.extend(lines_of(&format_record(record))));
            for told in &from.summaries {
                known.extend(lines_of(&format!("### {}\n{}", told.period.title(), summary_text(told))));
                let headline = collapse_spaces(&told.headline);
                known.extend(lines_of(&format!("- {}: {headline}\n{headline}", told.period)));
            }
            for line in pack.text.split('\n').map(str::trim_end) {
                let begun = line.strip_suffix("...").is_some_and(|kept| known.iter().any(|line| line.starts_with(kept)));
                prop_assert!(begun || known.contains(line), "{line:?} was cut");
            }
        }

        // Y2
        #[test]
        fn no_summary_takes_more_than_its_tier_has(headline in words(), body in words(), tier in 0_usize..5, important in any::<bool>()) {
            let period = ["2026-02-03_session_01", "2026-02-03", "2026-W05", "2026-01", "2025"][tier].parse().unwrap();
            let importance = if important { Importance::Important } else { Importance::Dull };
            let told = Summary { importance, ..summary(period, &headline.repeat(9), &body.repeat(9)) };
            let choice = SummaryOption::new(&told);
            let most = if important { [1_000, 1_000, 1_000, 2_000, 2_000] } else { [500, 500, 1_000, 2_000, 2_000] };
            prop_assert!(choice.whole_cost <= most[tier], "{} tokens of {period}", choice.whole_cost);
            let whole_text = summary_text(&told);
            let given = whole_text.lines().filter(|line| !line.trim().is_empty()).count();
            let shown = choice.whole.lines().skip(1).filter(|line| !line.trim().is_empty()).count();
            prop_assert!(shown == given || choice.lines > 0, "{given} lines, {shown} of them shown");
        }
    }

    // Y3
    #[test]
    fn ten_or_ten_thousand_sessions_give_histories_of_about_the_same_size() {
        let text =
            |times: usize| "It was decided to go on with the work on the cascade. ".repeat(times);
        let sizes = [10, 500, 10_000].map(|sessions: i32| {
            let days: BTreeSet<Date> = (0..=sessions / 3).map(|back| after(TODAY, -back)).collect();
            let there =
                all_of(&days).into_iter().filter(|period| period.days().last < TODAY).collect();
            let told = check(TODAY, REACH, &there, &days).summaries;
            let told = told
                .iter()
                .map(|&period| summary(period, &text(4), &format!("- {}\n", text(2)).repeat(80)))
                .collect();
            let records = records(TODAY, &vec![text(4); 200]);
            let pack = pyramid_pack(
                TODAY,
                &PyramidInput { summaries: told, records, ..PyramidInput::default() },
                20_000,
            );
            assert!(pack.tokens <= 20_000);
            pack.tokens
        });
        let (least, most) = (sizes.iter().min().unwrap(), sizes.iter().max().unwrap());
        assert!(*most < least * 2, "{sizes:?}");
    }

    // Y3
    #[test]
    fn the_newest_words_stay_when_the_last_day_alone_is_too_long() {
        let texts: Vec<String> = (0..400)
            .map(|n| format!("This is what was said as number {n}. {}", "And so on. ".repeat(40)))
            .collect();
        let told = vec![summary("2026-01".parse().unwrap(), "A month.", "- a\n")];
        let from = PyramidInput {
            records: records(TODAY, &texts),
            summaries: told,
            ..PyramidInput::default()
        };
        for room in [200, 2_000, 20_000] {
            let pack = pyramid_pack(TODAY, &from, room);
            assert!(pack.text.contains("number 399"), "{room}");
            assert!(
                pack.tokens <= room && pack.tokens * 10 > room * 8,
                "{} of {room}",
                pack.tokens
            );
            assert!(
                pack.left_out.iter().any(|left| left.what.contains("earlier messages")),
                "{:?}",
                pack.left_out
            );
        }
        // One message longer than the whole budget.
        for (text, lines) in [
            ("a word ".repeat(90_000), 1),
            ("\u{e9}".repeat(90_000), 1),
            ("one line\n".repeat(90_000), 2),
        ] {
            let from = PyramidInput { records: records(TODAY, &[text]), ..PyramidInput::default() };
            let pack = pyramid_pack(TODAY, &from, 1_000);
            let section =
                pack.sections.iter().find(|section| section.title == SECTION_TITLES[4]).unwrap();
            assert!(section.lines >= lines && pack.tokens > 400, "{section:?}");
            assert_eq!(pack.left_out.len(), 1, "{:?}", pack.left_out);
        }
    }
}
