//! Collects the input of packs, and finds the original messages of any day.
//!
//! Packs are pure functions of the domain. This module reads what they need, as it was known at the
//! requested moment.
//!
//! Invariant: nothing that was captured later appears in a pack.

use std::collections::BTreeSet;

use icecore_domain::calendar::{Days, Moment};
use icecore_domain::cascade::plan::{DueReason, DueSummary, PlanningInput, SummaryHeads};
use icecore_domain::natural_date::NaturalDate;
use icecore_domain::packs::Pack;
use icecore_domain::packs::pyramid::{self, PyramidInput};
use icecore_domain::packs::upload::{self, UploadInput};
use icecore_domain::record::{self, Record, SessionStats};
use icecore_domain::summary::{Importance, Period, Summary, SummaryAuthor, SummaryQuery, Tier};
use jiff::civil::{Date, Time};
use jiff::{Timestamp, ToSpan};

use crate::config::{MAX_PYRAMID_TOKENS, MIN_PYRAMID_TOKENS};
use crate::{Error, Memory, Result};

/// The moment a pack is made for: what is newer is not known.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AsOf {
    pub(crate) now: Moment,
    pub(crate) until: Option<Timestamp>,
}

/// How many weeks replace a month without a summary, and how many days a week (P7).
const MAX_FALLBACK_WEEKS: usize = 4;
const MAX_FALLBACK_DAYS: usize = 7;
/// How many days back sessions are searched that no weekly summary covers yet.
const MAX_UNCOVERED_DAYS: i32 = 21;

/// What the caller wants to place before the history.
#[derive(Debug, Clone, Default)]
pub struct PackPreamble {
    pub system: Option<String>,
    /// Files, by name.
    pub files: Vec<(String, String)>,
}

/// The result of `zoom`.
#[derive(Debug, Clone)]
pub struct TimeContents {
    /// How the time was understood.
    pub when: NaturalDate,
    pub days: Days,
    pub records: Vec<Record>,
    pub summaries: Vec<Summary>,
}

impl Memory {
    pub(crate) fn as_of(&self, date: Option<Date>) -> Result<AsOf> {
        let now = self.now();
        match date {
            Some(date) if date > now.day() => {
                Err(Error::NotFound(format!("{date} is in the future; there is no pack for it")))
            }
            Some(date) if date < now.day() => {
                let end =
                    self.zone.moment(self.zone.instant_at(date, Time::constant(23, 59, 59, 0)));
                Ok(AsOf { now: end, until: Some(end.timestamp()) })
            }
            _ => Ok(AsOf { now, until: self.view_horizon() }),
        }
    }

    /// The records of these days, as they were known.
    async fn load_records_as_of(&self, days: Days, vantage: AsOf) -> Result<Vec<Record>> {
        let mut records = self.store.records(days).await?;
        self.mark_withdrawn(&mut records).await?;
        let Some(until) = vantage.until else { return Ok(records) };
        records.retain(|record| record.ts.timestamp() <= until);
        // If nothing was captured by then, records were imported later: then the time of the
        // message counts instead of the time of the capture.
        if records.iter().any(|record| record.captured.timestamp() > until) {
            let begun = self
                .store
                .sessions(None)
                .await?
                .iter()
                .any(|stat| stat.captured.timestamp() <= until);
            records.retain(|record| !begun || record.captured.timestamp() <= until);
        }
        Ok(records)
    }

    /// An extractive summary of a session that has none yet; it is not stored.
    async fn summarize_session_extractively(
        &self,
        stat: &SessionStats,
        records: &[Record],
        number: u32,
        vantage: AsOf,
    ) -> Result<Summary> {
        let period = Period::Session { day: stat.key.day, number };
        let due = DueSummary {
            period,
            session: Some(stat.key.clone()),
            source: PlanningInput::session_source_hash(stat),
            children: Vec::new(),
            log: None,
            messages: stat.digest.records,
            states: stat.states,
            start: stat.first,
            end: stat.last,
            why: DueReason::New,
            version: 0,
            by_hand: false,
            refused: false,
        };
        let own: Vec<&Record> =
            records.iter().filter(|record| record.session_key() == stat.key).collect();
        let (draft, left_out) = self.extractive_draft_of(&due, &own);
        Ok(Summary {
            period,
            version: 0,
            session: due.session,
            start: due.start,
            end: due.end,
            headline: draft.headline,
            body: draft.body,
            messages: due.messages,
            states: due.states,
            recorded: vantage.now,
            source: due.source,
            log: None,
            sources: Vec::new(),
            maker: SummaryAuthor::Extract,
            provisional: true,
            importance: Importance::Ordinary,
            left_out,
            cost: Default::default(),
            similar: None,
        })
    }

    /// Assembles the upload package (P7).
    pub async fn assemble_upload(&self, date: Option<Date>, room: Option<usize>) -> Result<Pack> {
        let vantage = self.as_of(date)?;
        let today = vantage.now.day();
        let before_today = |period: Period| period.days().first <= today;
        let mut months = self
            .store
            .summary_heads(&SummaryQuery::for_tier(Tier::Month).as_of(vantage.until))
            .await?
            .0;
        months.retain(|head| head.period.days().last < today);
        let month = match months.last() {
            Some(head) => self.load_summaries_as_of(&[head.period], vantage).await?.pop(),
            None => None,
        };
        let mut weeks: Vec<Period> = self
            .store
            .summary_heads(&SummaryQuery::for_tier(Tier::Week).as_of(vantage.until))
            .await?
            .0
            .iter()
            .map(|head| head.period)
            .collect();
        weeks.retain(|&week| {
            before_today(week)
                && month.as_ref().is_none_or(|month| week.days().first > month.period.days().last)
        });
        if month.is_none() {
            weeks = weeks.split_off(weeks.len().saturating_sub(MAX_FALLBACK_WEEKS));
        }
        let weeks = self.load_summaries_as_of(&weeks, vantage).await?;
        // Weeks that the month covers are omitted.
        let after_month = month
            .as_ref()
            .and_then(|month| month.period.days().last.tomorrow().ok())
            .unwrap_or(Date::MIN);
        let days = if weeks.is_empty() {
            let span =
                Days { first: after_month, last: today.checked_sub(1.day()).unwrap_or(today) };
            let query = SummaryQuery {
                latest: Some(MAX_FALLBACK_DAYS),
                ..SummaryQuery::for_tier_within(Tier::Day, span)
            };
            self.store.summaries(&query.as_of(vantage.until)).await?
        } else {
            Vec::new()
        };
        // Sessions that none of these covers.
        let told_until = weeks.last().or(days.last()).map(|summary| summary.period.days().last);
        let told: BTreeSet<Period> =
            weeks.iter().chain(&days).flat_map(|summary| summary.sources.iter().copied()).collect();
        let earliest = today
            .checked_sub(MAX_UNCOVERED_DAYS.days())
            .unwrap_or(today)
            .max(after_month)
            .min(today);
        let span = Days { first: earliest, last: today };
        let sessions = self
            .store
            .summaries(&SummaryQuery::for_tier_within(Tier::Session, span).as_of(vantage.until))
            .await?;
        let open_sessions = sessions.iter().filter(|session| {
            let day = session.period.days().first;
            let covered = told.contains(&session.period)
                || told_until.is_some_and(|until| {
                    day <= until && day < today && !is_open(&weeks, until, today)
                });
            day < today && !covered
        });
        let open_sessions: Vec<Summary> = open_sessions.cloned().collect();
        let today_sessions = self.load_todays_sessions(today, &sessions, vantage).await?;
        let from = UploadInput { month, weeks, days, open_sessions, today: today_sessions };
        Ok(upload::upload_pack(today, &from, room.unwrap_or(self.policy.budget.upload_bytes)))
    }

    /// Today's sessions, with their stored or extractive summaries.
    pub(crate) async fn load_todays_sessions(
        &self,
        today: Date,
        pressed: &[Summary],
        vantage: AsOf,
    ) -> Result<Vec<Summary>> {
        let records = self.load_records_as_of(Days { first: today, last: today }, vantage).await?;
        let mut stats = record::session_stats(&records);
        stats.sort_by(|a, b| (a.first, &a.key).cmp(&(b.first, &b.key)));
        let heads = SummaryHeads::new(pressed.iter().map(Summary::head));
        let mut next = heads.next_session_number(today);
        let mut found = Vec::new();
        for stat in &stats {
            let head = heads.get_session(&stat.key);
            match head.filter(|head| head.source == PlanningInput::session_source_hash(stat)) {
                Some(head) => found
                    .extend(pressed.iter().find(|summary| summary.period == head.period).cloned()),
                None => {
                    let number = match head.map(|head| head.period) {
                        Some(Period::Session { number, .. }) => number,
                        _ => {
                            next += 1;
                            next - 1
                        }
                    };
                    found.push(
                        self.summarize_session_extractively(stat, &records, number, vantage)
                            .await?,
                    );
                }
            }
        }
        found.sort_by_key(|summary| summary.period);
        Ok(found)
    }

    /// These summaries, as they were known.
    async fn load_summaries_as_of(
        &self,
        periods: &[Period],
        vantage: AsOf,
    ) -> Result<Vec<Summary>> {
        let wanted: BTreeSet<Period> = periods.iter().copied().collect();
        let mut found = Vec::new();
        for &tier in Tier::ALL {
            let of_tier: Vec<Date> = wanted
                .iter()
                .filter(|period| period.tier() == tier)
                .map(|period| period.days().first)
                .collect();
            let (Some(&first), Some(&last)) = (of_tier.iter().min(), of_tier.iter().max()) else {
                continue;
            };
            let query =
                SummaryQuery::for_tier_within(tier, Days { first, last }).as_of(vantage.until);
            found.extend(
                self.store
                    .summaries(&query)
                    .await?
                    .into_iter()
                    .filter(|summary| wanted.contains(&summary.period)),
            );
        }
        found.sort_by_key(|summary| (summary.period.days().first, summary.period));
        Ok(found)
    }

    /// Assembles the pyramid (Y2, Y3, Y8).
    pub async fn assemble_pyramid(
        &self,
        date: Option<Date>,
        room: Option<usize>,
        before: &PackPreamble,
    ) -> Result<Pack> {
        let vantage = self.as_of(date)?;
        let today = vantage.now.day();
        let room = room.unwrap_or(self.policy.budget.pyramid_tokens);
        if !(MIN_PYRAMID_TOKENS..=MAX_PYRAMID_TOKENS).contains(&room) {
            return Err(Error::LimitExceeded(format!(
                "the history cannot have {room} tokens; choose between {MIN_PYRAMID_TOKENS} and {MAX_PYRAMID_TOKENS}"
            )));
        }
        let full = pyramid::full_text_start(today);
        let mut records =
            self.load_records_as_of(Days { first: full, last: today }, vantage).await?;
        records.retain(|record| !record.is_instructions() && !record.withdrawn);
        let recorded: BTreeSet<Date> =
            self.store.record_days().await?.into_iter().filter(|day| *day < full).collect();
        let reach = self.policy.pyramid.pyramid_reach();
        let tiers = vec![Tier::Week, Tier::Month, Tier::Year];
        let heads = self
            .store
            .summary_heads(&SummaryQuery { tiers, until: vantage.until, ..SummaryQuery::default() })
            .await?
            .0;
        let mut there: BTreeSet<Period> = heads
            .iter()
            .map(|head| head.period)
            .filter(|period| period.days().first < full)
            .collect();
        let by_day = pyramid::daily_span(today, reach);
        let days = self
            .store
            .summary_heads(&SummaryQuery::for_tier_within(Tier::Day, by_day).as_of(vantage.until))
            .await?
            .0;
        there.extend(
            days.iter().map(|head| head.period).filter(|period| period.days().first < full),
        );
        // Days without a coarser summary are shown by their own, or by those of their sessions.
        for tier in [Tier::Day, Tier::Session] {
            let untold = |day: &Date| {
                let coarser =
                    *day < by_day.first && pyramid::is_covered(*day, today, reach, &there);
                !coarser && !there.contains(&Period::Day(*day))
            };
            let mut missing = recorded.iter().copied().filter(|day| untold(day));
            let Some(first) = missing.next() else { break };
            let last = missing.next_back().unwrap_or(first);
            let found = self
                .store
                .summary_heads(
                    &SummaryQuery::for_tier_within(tier, Days { first, last }).as_of(vantage.until),
                )
                .await?
                .0;
            there.extend(found.iter().map(|head| head.period));
        }
        let telling = pyramid::select_summaries(today, reach, &there, &recorded);
        let told = self.load_summaries_as_of(&telling.summaries, vantage).await?;
        let from = PyramidInput {
            system: before.system.clone(),
            files: before.files.clone(),
            records,
            summaries: told,
            uncovered_days: telling.uncovered_days,
        };
        Ok(pyramid::pyramid_pack(today, &from, room))
    }

    /// The messages of a time, or its summaries (Y6).
    pub async fn load_time_contents(
        &self,
        when: NaturalDate,
        conversation: Option<&str>,
        summary: bool,
    ) -> Result<TimeContents> {
        let vantage = self.as_of(None)?;
        let days = when.days();
        let mut zoomed = TimeContents { when, days, records: Vec::new(), summaries: Vec::new() };
        if summary {
            let period = match when {
                NaturalDate::Day(day) => Some(Period::Day(day)),
                NaturalDate::Week(week) => Some(Period::Week(week)),
                NaturalDate::Month(month) => Some(Period::Month(month)),
                NaturalDate::Year(year) => Some(Period::Year(year)),
                NaturalDate::Days(_) => None,
            };
            if let Some(period) = period {
                zoomed.summaries = self.load_summaries_as_of(&[period], vantage).await?;
            }
            // A coarser summary replaces a finer one that does not exist.
            for tier in [Tier::Week, Tier::Day, Tier::Session] {
                if zoomed.summaries.is_empty() {
                    zoomed.summaries = self
                        .store
                        .summaries(&SummaryQuery::for_tier_within(tier, days).as_of(vantage.until))
                        .await?;
                }
            }
            return Ok(zoomed);
        }
        let recorded: Vec<Date> =
            self.store.record_days().await?.into_iter().filter(|day| days.contains(*day)).collect();
        for day in recorded {
            zoomed.records.extend(self.store.records(Days { first: day, last: day }).await?);
        }
        zoomed.records.retain(|record| {
            vantage.until.is_none_or(|until| record.ts.timestamp() <= until)
                && conversation.is_none_or(|wanted| record.conversation == wanted)
        });
        self.mark_withdrawn(&mut zoomed.records).await?;
        Ok(zoomed)
    }
}

/// Whether the last of these weeks is still going on.
fn is_open(weeks: &[Summary], until: Date, today: Date) -> bool {
    !weeks.is_empty() && until >= today
}
