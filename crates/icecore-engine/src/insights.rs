//! Insights across time: recurring topics, what happened at this time in earlier years, similar
//! periods (Y11).
//!
//! Invariants: the only thing written is the reference of a new summary to a similar one. Records
//! are read day by day, so that memory use stays bounded.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use icecore_domain::calendar::Days;
use icecore_domain::event::Event;
use icecore_domain::id::EventId;
use icecore_domain::insights::event_day;
use icecore_domain::insights::lookback::{self, Lookback};
use icecore_domain::insights::similar::{
    self, MIN_SIMILARITY, MergedSummaries, SimilarityIndex, SimilarityMatch,
};
use icecore_domain::insights::trend::{MentionVoice, Occasion, TrendCounter, Trends};
use icecore_domain::layout::DocPath;
use icecore_domain::ledger::query::EventQuery;
use icecore_domain::ledger::{Ledger, LedgerEntry};
use icecore_domain::record::{Record, RecordKind, Role, SessionKey};
use icecore_domain::summary::{Period, Summary, SummaryQuery, Tier};
use jiff::ToSpan;
use jiff::civil::Date;

use crate::pack_input::AsOf;
use crate::rollup::ProgressFn;
use crate::{Error, Memory, Result};

/// How many months `trends` covers if no time is given.
const DEFAULT_TREND_MONTHS: i32 = 12;

/// The topics of a span of days.
#[derive(Debug)]
pub struct TrendReport {
    pub days: Days,
    pub trends: Trends,
    /// The days from the first to the last record or event of this memory.
    pub memory: Option<Days>,
}

/// What happened at this time in earlier months and years.
#[derive(Debug)]
pub struct LookbackReport {
    /// The day to look back from.
    pub day: Date,
    /// The nearest first.
    pub looks: Vec<Lookback>,
    /// The first day of this memory.
    pub first_day: Option<Date>,
}

/// A summary and similar ones.
#[derive(Debug)]
pub struct SimilarSummaries {
    pub summary: Summary,
    /// The similar ones, most similar first, each with its similarity.
    pub like: Vec<(SimilarityMatch, Summary)>,
    /// How many others of its tier there are.
    pub others: usize,
}

impl Memory {
    /// Every known statement, of any state but retracted.
    async fn load_statements(&self) -> Result<Vec<LedgerEntry>> {
        let mut entries = match self.view_horizon() {
            None => self.query_events(&EventQuery::all()).await?,
            Some(until) => {
                // What had expired by then was in the archive, but was still known.
                let ledger = self.load_ledger().await?;
                let mut gone = self.store.archived_events(&EventQuery::all()).await?;
                gone.retain(|event| {
                    event.ts.timestamp() <= until && ledger.get(event.id).is_none()
                });
                let ids: Vec<EventId> = gone.iter().map(|event| event.id).collect();
                let mut tied = if ids.is_empty() {
                    Vec::new()
                } else {
                    self.store.linked_events(&ids, &[]).await?
                };
                tied.retain(|event| event.ts.timestamp() <= until);
                let tied = Ledger::from_events(tied);
                let mut entries: Vec<LedgerEntry> =
                    ids.iter().filter_map(|&id| tied.get(id).cloned()).collect();
                entries.extend(ledger.entries().iter().cloned());
                entries.sort_by_key(|entry| entry.event.id);
                entries
            }
        };
        entries.retain(|entry| entry.event.is_statement() && entry.state.word() != "retracted");
        Ok(entries)
    }

    /// The days from the first to the last record or event.
    async fn find_memory_span(
        &self,
        entries: &[LedgerEntry],
        vantage: AsOf,
    ) -> Result<Option<Days>> {
        let today = vantage.now.day();
        let mut days = self.store.record_days().await?;
        days.extend(entries.iter().map(|entry| event_day(&entry.event)));
        // A year or a month begins before its first record.
        let heads = self
            .store
            .summary_heads(&SummaryQuery {
                until: vantage.until,
                ..SummaryQuery::for_tier(Tier::Day)
            })
            .await?
            .0;
        days.extend(heads.iter().map(|head| head.period.days().first));
        days.retain(|day| *day <= today);
        Ok(days
            .iter()
            .min()
            .zip(days.iter().max())
            .map(|(first, last)| Days { first: *first, last: *last }))
    }

    /// Topics that recur: in these days, or in the last twelve months; with `about`, together with
    /// these words.
    pub async fn compute_trends(
        &self,
        days: Option<Days>,
        limit: usize,
        about: Option<&str>,
        progress: ProgressFn<'_>,
    ) -> Result<TrendReport> {
        let vantage = self.as_of(None)?;
        let today = vantage.now.day();
        let days = days.unwrap_or_else(|| {
            let first = today
                .first_of_month()
                .checked_sub((DEFAULT_TREND_MONTHS - 1).months())
                .unwrap_or(today);
            Days { first, last: today }
        });
        let days = Days { first: days.first, last: days.last.min(today) };
        let entries = self.load_statements().await?;
        let entities: BTreeSet<String> =
            entries.iter().filter_map(|entry| entry.event.entity.clone()).collect();
        let mut counter = TrendCounter::new(days, &entities.into_iter().collect::<Vec<_>>(), about);
        if about.is_some() && !counter.has_significant_filter() {
            return Err(Error::InvalidRequest(
                "--about needs a word with a meaning of its own, such as a name or a thing".into(),
            ));
        }
        let mut learnt: BTreeMap<Date, Vec<&Event>> = BTreeMap::new();
        for entry in entries.iter().filter(|entry| !entry.is_quarantined()) {
            learnt.entry(event_day(&entry.event)).or_default().push(&entry.event);
        }
        let known = self.load_known_records(vantage).await?;
        let recorded: BTreeSet<Date> =
            self.store.record_days().await?.into_iter().filter(|day| days.contains(*day)).collect();
        let logs: BTreeSet<Date> = self
            .store
            .documents("memory")
            .await?
            .iter()
            .filter_map(DocPath::log_day)
            .filter(|day| days.contains(*day))
            .collect();
        let pressed = self
            .store
            .summary_heads(&SummaryQuery::for_tier_within(Tier::Day, days).as_of(vantage.until))
            .await?
            .0;
        let pressed: BTreeSet<Date> = pressed
            .iter()
            .map(|head| head.period.days().first)
            .filter(|day| !recorded.contains(day) && !logs.contains(day))
            .collect();
        let mut all: BTreeSet<Date> =
            learnt.keys().copied().filter(|day| days.contains(*day)).collect();
        all.extend(recorded.iter().chain(&logs).chain(&pressed));
        let mut speakers = HashSet::new();
        for (done, &day) in all.iter().enumerate() {
            progress(&day.to_string(), done, all.len());
            if recorded.contains(&day) {
                let mut records = self.store.records(Days { first: day, last: day }).await?;
                records.retain(|record| known.contains(record));
                for name in records.iter().filter_map(|record| record.name.as_ref()) {
                    if speakers.insert(name.clone()) {
                        counter.ignore_speaker(name);
                    }
                }
                count_sessions(&mut counter, &records);
            }
            if logs.contains(&day) {
                let log = self.store.document(&DocPath::log(day)).await?.unwrap_or_default();
                counter.add_texts(
                    Occasion::Log(day),
                    [(MentionVoice::Own, &*String::from_utf8_lossy(&log))],
                );
            }
            if pressed.contains(&day) {
                let query =
                    SummaryQuery::for_tier_within(Tier::Day, Days { first: day, last: day })
                        .as_of(vantage.until);
                for summary in self.store.summaries(&query).await? {
                    let said = [
                        (MentionVoice::Own, summary.headline.as_str()),
                        (MentionVoice::Own, summary.body.as_str()),
                    ];
                    counter.add_texts(Occasion::Summary(summary.period), said);
                }
            }
            for event in learnt.get(&day).into_iter().flatten() {
                counter.add_texts(
                    Occasion::Event(day, event.id),
                    [(MentionVoice::Own, event.content.as_str())],
                );
            }
        }
        progress("", all.len(), all.len());
        let memory = self.find_memory_span(&entries, vantage).await?;
        Ok(TrendReport { days, trends: counter.into_trends(limit), memory })
    }

    /// A filter for the records that were known at a moment, for questions about many days.
    async fn load_known_records(&self, vantage: AsOf) -> Result<KnownRecords> {
        let until = vantage.until;
        let begun = match until {
            Some(until) => self
                .store
                .sessions(None)
                .await?
                .iter()
                .any(|stat| stat.captured.timestamp() <= until),
            None => false,
        };
        Ok(KnownRecords { until, begun })
    }

    /// What happened one month, half a year, and each full number of years ago.
    pub async fn compute_lookback(&self, date: Option<Date>) -> Result<LookbackReport> {
        let vantage = self.as_of(None)?;
        let today = vantage.now.day();
        let day = date.unwrap_or(today);
        if day > today {
            return Err(Error::NotFound(format!("{day} is in the future; choose an earlier day")));
        }
        let entries = self.load_statements().await?;
        let memory = self.find_memory_span(&entries, vantage).await?;
        let mut looks = Vec::new();
        let mut seen = false;
        for vista in
            memory.map_or_else(Vec::new, |memory| lookback::lookback_periods(day, memory.first))
        {
            if vista.is_fallback && seen {
                continue;
            }
            let query = SummaryQuery {
                tiers: vec![Tier::Session, Tier::Day, Tier::Week],
                days: Some(vista.days),
                until: vantage.until,
                latest: None,
            };
            let summaries = self.store.summaries(&query).await?;
            let look = lookback::look_back(vista, &summaries, &entries);
            seen = look.is_some();
            looks.extend(look);
        }
        Ok(LookbackReport { day, looks, first_day: memory.map(|memory| memory.first) })
    }

    /// The summary of a period and similar ones. Without a period: the latest week with a similar
    /// one, else such a month, else the latest week. `None` if there is no summary yet.
    pub async fn find_similar_summaries(
        &self,
        period: Option<Period>,
    ) -> Result<Option<SimilarSummaries>> {
        let until = self.view_horizon();
        if let Some(period) = period {
            let found = self.find_similar(period, until).await?;
            return found.map(Some).ok_or_else(|| {
                Error::NotFound(format!(
                    "there is no summary of {period}; `icecore rollup` makes those that are due"
                ))
            });
        }
        let mut first = None;
        for tier in [Tier::Week, Tier::Month] {
            let latest =
                SummaryQuery { latest: Some(1), ..SummaryQuery::for_tier(tier) }.as_of(until);
            let Some(head) = self.store.summary_heads(&latest).await?.0.pop() else { continue };
            let found = self.find_similar(head.period, until).await?;
            if found.as_ref().is_some_and(|found| !found.like.is_empty()) {
                return Ok(found);
            }
            first = first.or(found);
        }
        Ok(first)
    }

    async fn find_similar(
        &self,
        period: Period,
        until: Option<jiff::Timestamp>,
    ) -> Result<Option<SimilarSummaries>> {
        let mut all: BTreeMap<Period, Summary> = BTreeMap::new();
        for summary in
            self.store.summaries(&SummaryQuery::for_tier(period.tier()).as_of(until)).await?
        {
            all.insert(summary.period, summary);
        }
        let shelf = SimilarityIndex::from_summaries(all.values());
        let Some(summary) = all.remove(&period) else { return Ok(None) };
        let like = shelf.find_similar(period, |_| true, MIN_SIMILARITY);
        let others = all.len();
        let like = like
            .into_iter()
            .filter_map(|like| all.remove(&like.period).map(|summary| (like, summary)))
            .collect();
        Ok(Some(SimilarSummaries { summary, like, others }))
    }

    /// Merges several summaries into one text of at most `bytes` bytes, without repetitions.
    pub fn merge_summaries(&self, summaries: &[Summary], bytes: usize) -> MergedSummaries {
        similar::merge_summaries(summaries, bytes)
    }

    /// Adds to a new summary the earlier one it is similar to. Only what was recorded until now
    /// counts. An interrupted run finds the same as a complete one, since everything earlier of its
    /// tier exists before it.
    pub(crate) async fn add_similar_reference(
        &self,
        mut summary: Summary,
        cache: &mut Option<SimilarityIndex>,
    ) -> Result<Summary> {
        let tier = summary.period.tier();
        if tier < Tier::Week {
            return Ok(summary);
        }
        if cache.is_none() {
            let days =
                Days { first: similar::earliest_reference_day(summary.period), last: Date::MAX };
            let query =
                SummaryQuery::for_tier_within(tier, days).as_of(Some(self.now().timestamp()));
            *cache = Some(SimilarityIndex::from_summaries(&self.store.summaries(&query).await?));
        }
        if let Some(cache) = cache {
            cache.insert(&summary);
            summary.similar = cache.find_reference(summary.period);
        }
        Ok(summary)
    }
}

/// Which records are known at a moment. As in a pack, those that were captured until then; if there
/// are none, those with an earlier time.
struct KnownRecords {
    until: Option<jiff::Timestamp>,
    begun: bool,
}

impl KnownRecords {
    fn contains(&self, record: &Record) -> bool {
        self.until.is_none_or(|until| {
            record.ts.timestamp() <= until && (!self.begun || record.captured.timestamp() <= until)
        })
    }
}

fn count_sessions(counter: &mut TrendCounter, records: &[Record]) {
    let mut sessions: BTreeMap<SessionKey, Vec<(MentionVoice, &str)>> = BTreeMap::new();
    for record in records {
        let voice = match record.role {
            Role::User if record.other_speaker.is_none() => MentionVoice::Own,
            _ if record.kind == RecordKind::State => MentionVoice::Own,
            Role::Assistant => MentionVoice::Assistant,
            // The output of tools, the instructions of an assistant and other speakers are not
            // topics of the owner.
            Role::User | Role::System | Role::Tool => continue,
        };
        sessions.entry(record.session_key()).or_default().push((voice, &record.text));
    }
    for (key, said) in sessions {
        counter.add_texts(Occasion::Session(key), said);
    }
}
