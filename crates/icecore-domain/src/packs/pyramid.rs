//! The pyramid (Y2): the last day in full, the days before by day, the weeks before those by week, then months, then years.
//!
//! No time is told twice, and the history stays within its budget however long it is (Y3). Each step down begins at a
//! border of the coarser step, so that a week is never told half by its days and half by itself.

use std::collections::{BTreeMap, BTreeSet};

use jiff::ToSpan;
use jiff::civil::Date;

use super::{Pack, Part, assemble, cited, whole};
use crate::budget::{self, LeftOut};
use crate::calendar::{Days, Month, Week};
use crate::gate;
use crate::record::Record;
use crate::summary::{Importance, Period, Summary, Tier};

/// How many days back each step reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reach {
    /// Told by day.
    pub days: u16,
    /// Told by week.
    pub weeks_days: u16,
}

/// The most tokens of a summary of each tier.
fn most_tokens(summary: &Summary) -> usize {
    let most = match summary.period.tier() {
        Tier::Session | Tier::Day => 500,
        Tier::Week => 1_000,
        Tier::Month | Tier::Year => 2_000,
    };
    if summary.importance == Importance::Important && summary.period.tier() <= Tier::Day { most * 2 } else { most }
}

/// What of the past is told by which summary, oldest first, and which days with records nobody tells of yet.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Telling {
    /// The summaries to tell.
    pub told: Vec<Period>,
    /// Days with records that no summary tells of.
    pub untold: Vec<Date>,
}

/// Where the part told in full begins: yesterday.
pub fn full_from(today: Date) -> Date {
    today.checked_sub(1.day()).unwrap_or(today)
}

/// Chooses what is told by what, among the summaries there are.
pub fn choose(today: Date, reach: Reach, there: &BTreeSet<Period>, recorded: &BTreeSet<Date>) -> Telling {
    let back = |days: u16| today.checked_sub(i32::from(days).days()).unwrap_or(Date::MIN);
    let full = full_from(today);
    let days_from = Week::of(back(reach.days)).monday();
    let month = Week::of(back(reach.weeks_days.max(reach.days))).month();
    let weeks_from = month.span_of_weeks().first.min(days_from);
    let mut telling = Telling::default();
    let mut covered: Vec<Days> = Vec::new();
    let mut tell = |period: Period, telling: &mut Telling| {
        covered.push(period.days());
        telling.told.push(period);
    };
    // Whole years of which nobody needs the months any more.
    let months_from_year = month.first().year() - 1;
    for &period in there {
        if let Period::Year(year) = period
            && year < months_from_year
        {
            tell(period, &mut telling);
        }
    }
    let years: BTreeSet<i16> =
        telling.told.iter().filter_map(|period| if let Period::Year(year) = period { Some(*year) } else { None }).collect();
    let before: BTreeSet<Month> = recorded
        .iter()
        .filter(|day| **day < weeks_from)
        .map(|&day| Week::of(day).month())
        .chain(there.iter().filter_map(|period| if let Period::Month(month) = period { Some(*month) } else { None }))
        .filter(|month| month.span_of_weeks().last < weeks_from && !years.contains(&month.first().year()))
        .collect();
    for month in before {
        if there.contains(&Period::Month(month)) {
            tell(Period::Month(month), &mut telling);
        } else {
            month.weeks().into_iter().for_each(|week| tell_week(week, there, &mut |period| tell(period, &mut telling)));
        }
    }
    let mut week = Week::of(weeks_from);
    while week.monday() < days_from {
        tell_week(week, there, &mut |period| tell(period, &mut telling));
        week = week.next();
    }
    let mut day = days_from;
    while day < full {
        tell_day(day, there, &mut |period| tell(period, &mut telling));
        day = day.checked_add(1.day()).unwrap_or(full);
    }
    telling.told.sort_by_key(|period| (period.days().first, *period));
    telling.untold = recorded.iter().copied().filter(|&day| day < full && !covered.iter().any(|days| days.contains(day))).collect();
    telling
}

fn tell_week(week: Week, there: &BTreeSet<Period>, tell: &mut dyn FnMut(Period)) {
    if there.contains(&Period::Week(week)) {
        tell(Period::Week(week));
    } else {
        week.days().iter().for_each(|day| tell_day(day, there, tell));
    }
}

fn tell_day(day: Date, there: &BTreeSet<Period>, tell: &mut dyn FnMut(Period)) {
    if there.contains(&Period::Day(day)) {
        tell(Period::Day(day));
        return;
    }
    let sessions = there.range(Period::Session { day, number: 0 }..=Period::Session { day, number: u32::MAX });
    sessions.copied().for_each(tell);
}

/// What the pyramid is made from.
#[derive(Debug, Clone, Default)]
pub struct Pyramid {
    /// Instructions that stand before everything.
    pub system: Option<String>,
    /// Files of the project, by name.
    pub files: Vec<(String, String)>,
    /// The records of yesterday and today, in order.
    pub records: Vec<Record>,
    /// What is told of the past, oldest first.
    pub told: Vec<Summary>,
    /// Days that nobody tells of yet.
    pub untold: Vec<Date>,
}

/// Makes the context for a day; its history has at most `room` tokens.
pub fn pyramid(day: Date, from: &Pyramid, room: usize) -> Pack {
    let mut left_out = Vec::new();
    let mut parts: Vec<Part> = Vec::new();
    parts.extend(from.system.iter().map(|text| Part::new("System", gate::disarm(text).into_owned())));
    parts.extend(from.files.iter().map(|(name, text)| Part::new(format!("Project: {name}"), gate::disarm(text).into_owned())));
    let mut sources: Vec<String> = from.files.iter().map(|(name, _)| name.clone()).collect();
    // Headings and rules around the parts; there are at most five of them.
    const FRAME: usize = 160;
    let room_inside = room.saturating_sub(FRAME);
    let wholes: Vec<(String, usize)> = from
        .told
        .iter()
        .map(|summary| {
            let most = most_tokens(summary);
            let title = format!("### {}\n", summary.period.title());
            let text = format!("{title}{}\n", whole(summary));
            let (kept, lines) = budget::whole_lines(&text, |text| budget::tokens(text) <= most);
            (
                if kept.len() <= title.len() {
                    format!("{title}{}\n", budget::shortened(&summary.headline, most * 2))
                } else {
                    kept.to_owned()
                },
                lines,
            )
        })
        .collect();
    let costs: Vec<usize> = wholes.iter().map(|(text, _)| budget::tokens(text) + 1).collect();
    let of_past: usize = costs.iter().sum();
    // What is fresh may take half, and whatever the past does not need.
    let (full, full_tokens) = in_full(&from.records, room_inside.saturating_sub(of_past).max(room_inside / 2), &mut left_out);
    let mut rest = room_inside.saturating_sub(full_tokens);
    let headlines: Vec<String> =
        from.told.iter().map(|summary| format!("- {}: {}\n", summary.period, budget::shortened(&summary.headline, 400))).collect();
    let least: Vec<usize> = headlines.iter().map(|text| budget::tokens(text) + 1).collect();
    // From the newest to the oldest: whole while the headlines of everything older still fit, then headlines, then nothing.
    let mut reserved: usize = least.iter().sum();
    let mut shown: Vec<Option<String>> = vec![None; from.told.len()];
    let (mut reduced, mut gone) = (Vec::new(), Vec::new());
    for at in (0..from.told.len()).rev() {
        reserved -= least[at];
        let period = from.told[at].period;
        if costs[at] + reserved <= rest || (costs[at] <= rest && reserved > rest && least[at] >= costs[at]) {
            rest -= costs[at];
            shown[at] = Some(wholes[at].0.clone());
            if wholes[at].1 > 0 {
                left_out.push(LeftOut::new(format!("{} lines of {period}", wholes[at].1), "its tier's budget"));
            }
        } else if least[at] <= rest {
            rest -= least[at];
            shown[at] = Some(headlines[at].clone());
            reduced.push(period.to_string());
        } else {
            gone.push(period.to_string());
        }
    }
    let why = format!("the history has {room} tokens");
    if !reduced.is_empty() {
        left_out.push(LeftOut::new(format!("the bodies of {}", span(&reduced)), why.clone()));
    }
    if !gone.is_empty() {
        left_out.push(LeftOut::new(span(&gone), why));
    }
    if let (Some(first), Some(last)) = (from.untold.first(), from.untold.last()) {
        left_out.push(LeftOut::new(format!("{} days from {first} to {last}", from.untold.len()), "not pressed yet"));
    }
    let mut groups: BTreeMap<usize, String> = BTreeMap::new();
    let titles = ["Years", "Months", "Weeks", "Days"];
    for (summary, text) in from.told.iter().zip(&shown) {
        let Some(text) = text else { continue };
        let group = match summary.period.tier() {
            Tier::Year => 0,
            Tier::Month => 1,
            Tier::Week => 2,
            Tier::Day | Tier::Session => 3,
        };
        sources.push(cited(summary));
        groups.entry(group).or_default().push_str(&gate::disarm(text));
    }
    parts.extend(groups.into_iter().map(|(group, text)| Part::new(titles[group], text)));
    if !full.is_empty() {
        let days: BTreeSet<Date> = from.records.iter().map(|record| record.ts.day()).collect();
        sources.extend(days.iter().map(|day| format!("messages {day}")));
        parts.push(Part::new("Yesterday and today, in full", gate::disarm(&full).into_owned()));
    }
    assemble("pyramid", day, &format!("# Memory as of {day}"), &parts, left_out, sources)
}

fn span(names: &[String]) -> String {
    match names {
        [last, .., first] if names.len() > 4 => format!("{} periods from {first} to {last}", names.len()),
        _ => names.iter().rev().cloned().collect::<Vec<_>>().join(", "),
    }
}

/// The newest records that fit, in order, and what they cost.
fn in_full(records: &[Record], room: usize, left_out: &mut Vec<LeftOut>) -> (String, usize) {
    let mut blocks: Vec<String> = Vec::new();
    let mut cost = 0;
    let mut first = records.len();
    for (at, record) in records.iter().enumerate().rev() {
        let block = shown(record);
        let tokens = budget::tokens(&block) + 1;
        if cost + tokens > room {
            // One message alone that is longer than all the room there is: as many whole lines as fit.
            if blocks.is_empty() {
                let (kept, lines) = budget::whole_lines(&block, |text| budget::tokens(text) < room);
                let kept = if kept.is_empty() {
                    format!("{}\n", budget::shortened(block.lines().next().unwrap_or_default(), room.saturating_mul(2).min(2_000)))
                } else {
                    kept.to_owned()
                };
                if budget::tokens(&kept) < room {
                    cost += budget::tokens(&kept) + 1;
                    left_out.push(LeftOut::new(
                        format!("{lines} lines of the message of {}", record.ts),
                        "the message alone is longer than the history may be",
                    ));
                    blocks.push(kept);
                    first = at;
                }
            }
            break;
        }
        cost += tokens;
        blocks.push(block);
        first = at;
    }
    if first > 0 && !records.is_empty() {
        let days = format!("{} to {}", records[0].ts, records[first - 1].ts);
        left_out.push(LeftOut::new(format!("{first} earlier messages, {days}"), "the history has no more room; `icecore zoom` shows them"));
    }
    blocks.reverse();
    (blocks.concat(), cost)
}

/// The longest tool use or file that is shown whole, in bytes.
const PARTS_BYTES: usize = 2_000;

/// A record as it is shown in full.
pub fn shown(record: &Record) -> String {
    let title = record.title.as_ref().map_or(String::new(), |title| format!(" ({title})"));
    let mut text = format!("[{} {}] {}{title}: {}\n", record.ts.day(), record.ts.clock(), record.speaker(), record.text.trim_end());
    if let Some(parts) = &record.parts {
        if parts.len() <= PARTS_BYTES {
            text.push_str(&format!("  with {parts}\n"));
        } else {
            text.push_str(&format!("  with {} bytes of tool uses and files\n", parts.len()));
        }
    }
    text
}
