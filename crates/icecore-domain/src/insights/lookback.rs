//! Lookback: what happened at this time a month, half a year, one year and more years ago.
//!
//! `This week last year` is the week that contains the same day a year ago.

use jiff::ToSpan;
use jiff::civil::Date;

use super::event_day;
use crate::calendar::{Days, Week};
use crate::event::EventType;
use crate::ledger::LedgerEntry;
use crate::sanitize;
use crate::summary::{Period, Summary, Tier};

/// The furthest lookback, in years.
pub const MAX_LOOKBACK_YEARS: i16 = 30;
/// The most lines of each kind that are shown per period.
const MAX_SHOWN_ITEMS: usize = 7;
/// The tag of an event that completed something.
const MILESTONE_TAG: &str = "milestone";

/// A period to look back at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LookbackPeriod {
    /// The display name: `a month ago today`.
    pub name: String,
    pub days: Days,
    /// Used only if the previous period is empty.
    pub is_fallback: bool,
}

/// What is known of one lookback period.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lookback {
    pub period: LookbackPeriod,
    /// Its week's summary, else its days' summaries, else its sessions'.
    pub headlines: Vec<PeriodHeadline>,
    /// Decisions and milestones of the period, in any state.
    pub decided: Vec<LedgerEntry>,
    /// Commitments of the period that are still open.
    pub open: Vec<LedgerEntry>,
    /// The number of omitted lines.
    pub left_out: usize,
}

/// The headline of a period.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeriodHeadline {
    pub period: Period,
    pub headline: String,
}

/// The lookback periods of a day, the nearest first. None begins before `begun`, the first day of
/// memory.
pub fn lookback_periods(day: Date, begun: Date) -> Vec<LookbackPeriod> {
    let mut found = Vec::new();
    let mut add = |name: String, days: Option<Days>, instead: bool| {
        if let Some(days) = days.filter(|days| days.last >= begun) {
            found.push(LookbackPeriod { name, days, is_fallback: instead });
        }
    };
    let back = |span: jiff::Span| day.checked_sub(span).ok();
    let week = |day: Option<Date>| day.map(|day| Week::containing(day).days());
    add(
        "a month ago today".into(),
        back(1.month()).map(|day| Days { first: day, last: day }),
        false,
    );
    add("this week a month ago".into(), week(back(1.month())), true);
    add("this week half a year ago".into(), week(back(6.months())), false);
    add("this week last year".into(), week(back(1.year())), false);
    for years in 2..=MAX_LOOKBACK_YEARS {
        add(format!("this week {years} years ago"), week(back(i64::from(years).years())), false);
    }
    found
}

/// Collects what these summaries and events hold about a period; `None` if nothing.
pub fn look_back(
    vista: LookbackPeriod,
    summaries: &[Summary],
    entries: &[LedgerEntry],
) -> Option<Lookback> {
    let within = |summary: &&Summary| {
        let days = summary.period.days();
        vista.days.first <= days.first && days.last <= vista.days.last
    };
    let mut told: Vec<PeriodHeadline> = Vec::new();
    for tier in [Tier::Week, Tier::Day, Tier::Session] {
        if told.is_empty() {
            let of_tier =
                summaries.iter().filter(|summary| summary.period.tier() == tier).filter(within);
            told = of_tier
                .map(|summary| PeriodHeadline {
                    period: summary.period,
                    headline: sanitize::one_line(&summary.headline),
                })
                .collect();
        }
    }
    told.sort_by_key(|told| (told.period.days().first, told.period));
    let then = |entry: &&LedgerEntry| {
        entry.event.is_statement() && vista.days.contains(event_day(&entry.event))
    };
    let retracted = |entry: &LedgerEntry| entry.state.word() == "retracted";
    let is_milestone =
        |entry: &LedgerEntry| entry.event.tags.iter().any(|tag| tag == MILESTONE_TAG);
    let mut decided: Vec<LedgerEntry> = entries
        .iter()
        .filter(then)
        .filter(|entry| {
            (entry.event.kind == EventType::Decision || is_milestone(entry))
                && !retracted(entry)
                && !entry.is_quarantined()
        })
        .cloned()
        .collect();
    let mut open: Vec<LedgerEntry> = entries
        .iter()
        .filter(then)
        .filter(|entry| entry.event.kind == EventType::Commitment && entry.state.is_active())
        .cloned()
        .collect();
    if told.is_empty() && decided.is_empty() && open.is_empty() {
        return None;
    }
    // Highest priority first, then the earliest. Decisions never displace open commitments.
    for list in [&mut decided, &mut open] {
        list.sort_by_key(|entry| (entry.event.priority, event_day(&entry.event), entry.event.id));
    }
    let all = told.len() + decided.len() + open.len();
    told.truncate(MAX_SHOWN_ITEMS);
    decided.truncate(MAX_SHOWN_ITEMS);
    open.truncate(MAX_SHOWN_ITEMS);
    let left_out = all - told.len() - decided.len() - open.len();
    Some(Lookback { period: vista, headlines: told, decided, open, left_out })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calendar::Moment;
    use crate::event::{EventDraft, Priority};
    use crate::id::EventId;
    use crate::ledger::EventState;
    use crate::packs::upload::tests::summary;
    use jiff::civil::date;

    fn spans(day: Date, begun: Date) -> Vec<(String, String)> {
        lookback_periods(day, begun)
            .into_iter()
            .map(|vista| (vista.name, vista.days.to_string()))
            .collect()
    }

    fn pair(name: &str, days: &str) -> (String, String) {
        (name.into(), days.into())
    }

    // Y11
    #[test]
    fn a_day_looks_back_a_month_half_a_year_and_as_many_years_as_there_are() {
        assert_eq!(
            spans(date(2026, 3, 31), date(2024, 1, 1)),
            [
                pair("a month ago today", "2026-02-28..2026-02-28"),
                pair("this week a month ago", "2026-02-23..2026-03-01"),
                pair("this week half a year ago", "2025-09-29..2025-10-05"),
                pair("this week last year", "2025-03-31..2025-04-06"),
                pair("this week 2 years ago", "2024-03-25..2024-03-31"),
            ]
        );
        assert_eq!(
            spans(date(2028, 2, 29), date(2027, 6, 1)),
            [
                pair("a month ago today", "2028-01-29..2028-01-29"),
                pair("this week a month ago", "2028-01-24..2028-01-30"),
                pair("this week half a year ago", "2027-08-23..2027-08-29"),
            ]
        );
        assert!(spans(date(2026, 3, 31), date(2026, 3, 2)).is_empty());
        assert!(lookback_periods(Date::MIN, Date::MIN).is_empty());
    }

    fn entry(day: Date, number: u32, kind: EventType, content: &str) -> LedgerEntry {
        let ts = Moment::parse(&format!("{day}T09:30:00+01:00")).unwrap().moment;
        LedgerEntry::from_event(
            EventDraft::new(ts, kind, Priority::P2, content).with_id(EventId::new(day, number)),
            1,
        )
    }

    // Y11
    #[test]
    fn a_lookback_shows_the_week_its_decisions_and_open_items() {
        let vista = LookbackPeriod {
            name: "then".into(),
            days: "2025-W07".parse::<Week>().unwrap().days(),
            is_fallback: false,
        };
        let day = date(2025, 2, 13);
        let told = |summaries: &[Summary]| -> Vec<String> {
            look_back(vista.clone(), summaries, &[]).map_or(Vec::new(), |look| {
                look.headlines.into_iter().map(|told| told.period.to_string()).collect()
            })
        };
        let (week, friday, one) = (
            summary("2025-W07".parse().unwrap(), "The week.", ""),
            summary(Period::Day(day), "The day.", ""),
            summary(Period::Session { day, number: 1 }, "The session.", ""),
        );
        assert_eq!(told(&[one.clone(), friday.clone(), week]), ["2025-W07"]);
        assert_eq!(told(&[one.clone(), friday]), ["2025-02-13"]);
        assert_eq!(told(&[one]), ["2025-02-13_session_01"]);
        assert_eq!(
            told(&[summary("2025-02".parse().unwrap(), "The month is more than the week.", "")]),
            [""; 0]
        );

        let mut closed = entry(day, 3, EventType::Commitment, "Call Mira");
        closed.state = EventState::Closed { by: EventId::new(day, 9) };
        let entries = [
            entry(day, 1, EventType::Decision, "Use Postgres"),
            entry(day, 2, EventType::Fact, "It rained"),
            closed,
            entry(day, 4, EventType::Commitment, "Renew the certificate"),
            entry(date(2025, 2, 17), 5, EventType::Decision, "A day too late"),
            {
                let mut shipped = entry(day, 6, EventType::Fact, "Shipped 1.0");
                shipped.event.draft.tags = vec!["milestone".into()];
                shipped
            },
        ];
        let look = look_back(vista, &[], &entries).unwrap();
        let said = |entries: &[LedgerEntry]| {
            entries.iter().map(|entry| entry.event.content.clone()).collect::<Vec<_>>()
        };
        assert_eq!(said(&look.decided), ["Use Postgres", "Shipped 1.0"]);
        assert_eq!(said(&look.open), ["Renew the certificate"]);
        assert_eq!(look.left_out, 0);
    }
}
