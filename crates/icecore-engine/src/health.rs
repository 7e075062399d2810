//! Figures about a memory for its maintainer: model use, jobs, coverage, ledger pages.

use std::collections::BTreeMap;

use icecore_domain::calendar::{Days, Moment};
use icecore_domain::cascade::coverage;
use icecore_domain::event::{EventType, Priority};
use icecore_domain::id::EventId;
use icecore_domain::layout::{self, DocPath};
use icecore_domain::ledger::LedgerEntry;
use icecore_domain::ledger::integrity::IntegrityFinding;
use icecore_domain::ledger::query::{EventQuery, EventStateFilter};
use icecore_domain::summary::SummaryHead;
use icecore_store::Error as StoreError;
use jiff::civil::Date;
use serde::{Deserialize, Serialize};

use crate::{Memory, Result};

/// How many of the newest summary runs are counted.
const MAX_COUNTED_RUNS: usize = 10_000;
/// How many names a facet lists.
const MAX_FACET_NAMES: usize = 100;
/// How many bytes of the run log's end are read.
const RUN_LOG_TAIL_BYTES: u64 = 1024 * 1024;

/// The figures of one day's runs.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct DailyFigures {
    /// Summaries that were made.
    pub runs: usize,
    /// Drafts that were rejected.
    pub refused: usize,
    /// The size of their sources.
    pub bytes_in: u64,
    /// The size of their texts.
    pub bytes_out: u64,
    /// Their duration.
    pub millis: u64,
    /// Input tokens of all models.
    pub tokens_in: u64,
    /// Output tokens of all models.
    pub tokens_out: u64,
    /// The number of requests to models.
    pub asked: usize,
}

/// A job that ran.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct JobRun {
    pub ts: String,
    pub job: String,
    pub date: String,
}

/// Whether summaries cover all records.
#[derive(Debug, Serialize)]
pub struct CoverageReport {
    /// Whether every record is where it should be.
    pub ok: bool,
    /// Sessions with records.
    pub sessions: usize,
    /// The newest versions of all tiers.
    pub summaries: usize,
    pub findings: Vec<IntegrityFinding>,
}

/// A filter by an event's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LedgerStateFilter {
    /// Active ones.
    #[default]
    Active,
    Any,
    /// Those with this state.
    Is(&'static str),
    /// Those that wait for confirmation.
    Quarantined,
}

/// A page of the ledger, and counts of all of it.
#[derive(Debug, Serialize)]
pub struct LedgerPage {
    /// Newest first.
    pub events: Vec<LedgerEntry>,
    /// Those of them that wait for confirmation.
    pub waiting: Vec<EventId>,
    /// The number of events that match.
    pub total: usize,
    pub offset: usize,
    /// Counts by field, each of what the other filters let through.
    pub facets: LedgerFacets,
}

/// A name with its count.
#[derive(Debug, Serialize)]
pub struct NameCount {
    pub name: String,
    pub count: usize,
}

/// Counts by name, most frequent first.
fn count_names<'a>(names: impl Iterator<Item = &'a str>) -> Vec<NameCount> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for name in names {
        *counts.entry(name).or_default() += 1;
    }
    let mut counts: Vec<NameCount> = counts
        .into_iter()
        .map(|(name, count)| NameCount { name: name.to_owned(), count })
        .collect();
    counts.sort_by_key(|counted| std::cmp::Reverse(counted.count));
    counts
}

/// Counts of events by field.
#[derive(Debug, Serialize)]
pub struct LedgerFacets {
    #[serde(rename = "type")]
    pub kinds: Vec<NameCount>,
    pub priority: Vec<NameCount>,
    pub status: Vec<NameCount>,
    /// The most frequent subjects.
    pub entity: Vec<NameCount>,
    /// The most frequent tags.
    pub tag: Vec<NameCount>,
}

fn doc_path(text: &str) -> Result<DocPath> {
    Ok(text.parse().map_err(StoreError::from)?)
}

impl Memory {
    /// The figures of each of these days; days without runs are omitted.
    pub async fn load_daily_figures(&self, days: Days) -> Result<BTreeMap<Date, DailyFigures>> {
        let mut all: BTreeMap<Date, DailyFigures> = BTreeMap::new();
        for run in self.list_summary_runs(MAX_COUNTED_RUNS).await? {
            let Some(day) = Moment::parse(&run.ts)
                .map(|read| read.moment.day())
                .filter(|day| days.contains(*day))
            else {
                continue;
            };
            let figures = all.entry(day).or_default();
            figures.refused += usize::from(run.refused);
            figures.runs += usize::from(!run.refused);
            figures.bytes_in += run.bytes_in;
            figures.bytes_out += run.bytes_out;
            figures.millis += run.millis;
        }
        for place in self.store.documents("memory/spend").await? {
            let day =
                place.name().strip_suffix(".jsonl").and_then(|name| name.parse::<Date>().ok());
            let Some(day) = day.filter(|day| days.contains(*day)) else { continue };
            let spent = self.load_daily_spend(day).await?;
            let figures = all.entry(day).or_default();
            (figures.tokens_in, figures.tokens_out, figures.asked) =
                (spent.tokens_in, spent.tokens_out, spent.asked);
        }
        Ok(all)
    }

    /// The jobs that ran, newest first.
    pub async fn list_job_runs(&self, most: usize) -> Result<Vec<JobRun>> {
        let (text, _) = self.store.read_tail(&doc_path(layout::RUNS)?, RUN_LOG_TAIL_BYTES).await?;
        let mut ran: Vec<JobRun> = text
            .split(|&byte| byte == b'\n')
            .filter_map(|line| serde_json::from_slice(line).ok())
            .collect();
        ran.reverse();
        ran.truncate(most);
        Ok(ran)
    }

    /// Checks whether summaries cover all records.
    pub async fn check_summary_coverage(&self) -> Result<CoverageReport> {
        let known = self.planning_input(false).await?;
        let heads: Vec<SummaryHead> = known.heads.all().cloned().collect();
        let findings = coverage::check_coverage(&known, &heads);
        let ok = !findings.iter().any(|finding| finding.fails);
        Ok(CoverageReport { ok, sessions: known.sessions.len(), summaries: heads.len(), findings })
    }

    /// A page of events, newest first. Each count is of what the other filters let through, so that
    /// it shows the effect of changing its own.
    pub async fn load_ledger_page(
        &self,
        which: EventQuery,
        status: LedgerStateFilter,
        acts: bool,
        offset: usize,
        limit: usize,
    ) -> Result<LedgerPage> {
        let wide = EventQuery {
            state: EventStateFilter::Any,
            kinds: Vec::new(),
            priorities: Vec::new(),
            entity: None,
            tags: Vec::new(),
            limit: None,
            ..which.clone()
        };
        let mut found = self.query_events(&wide).await?;
        found.retain(|entry| acts || entry.event.is_statement());
        let stands = |entry: &LedgerEntry| match status {
            LedgerStateFilter::Any => true,
            LedgerStateFilter::Active => entry.state.is_active(),
            LedgerStateFilter::Quarantined => entry.state.is_active() && entry.is_quarantined(),
            LedgerStateFilter::Is(word) => entry.state.word() == word,
        };
        let passes = |entry: &LedgerEntry, but: FacetFilter| {
            let event = &entry.event;
            (but == FacetFilter::Kind
                || which.kinds.is_empty()
                || which.kinds.contains(&event.kind))
                && (but == FacetFilter::Priority
                    || which.priorities.is_empty()
                    || which.priorities.contains(&event.priority))
                && (but == FacetFilter::Entity
                    || which
                        .entity
                        .as_ref()
                        .is_none_or(|entity| event.entity.as_ref() == Some(entity)))
                && which.tags.iter().all(|tag| event.tags.contains(tag))
                && (but == FacetFilter::Status || stands(entry))
        };
        let but = |filter: FacetFilter| found.iter().filter(move |entry| passes(entry, filter));
        let words = |list: Vec<&'static str>,
                     filter: FacetFilter,
                     of: &dyn Fn(&LedgerEntry) -> &'static str|
         -> Vec<NameCount> {
            let count = |word: &str| but(filter).filter(|entry| of(entry) == word).count();
            let all = list
                .into_iter()
                .map(|word| NameCount { name: word.to_owned(), count: count(word) });
            all.filter(|counted| counted.count > 0).collect()
        };
        let mut facets = LedgerFacets {
            kinds: words(
                EventType::ALL.iter().map(|kind| kind.word()).collect(),
                FacetFilter::Kind,
                &|entry| entry.event.kind.word(),
            ),
            priority: words(
                Priority::ALL.iter().map(|priority| priority.word()).collect(),
                FacetFilter::Priority,
                &|entry| entry.event.priority.word(),
            ),
            status: words(
                vec!["active", "superseded", "closed", "retracted"],
                FacetFilter::Status,
                &|entry| entry.state.word(),
            ),
            entity: count_names(
                but(FacetFilter::Entity).filter_map(|entry| entry.event.entity.as_deref()),
            ),
            // Several tags narrow the result together, so each is counted within it.
            tag: count_names(
                but(FacetFilter::None)
                    .flat_map(|entry| entry.event.tags.iter().map(String::as_str)),
            ),
        };
        facets.entity.truncate(MAX_FACET_NAMES);
        facets.tag.truncate(MAX_FACET_NAMES);
        let total = but(FacetFilter::None).count();
        let events: Vec<LedgerEntry> = found
            .iter()
            .rev()
            .filter(|entry| passes(entry, FacetFilter::None))
            .skip(offset)
            .take(limit)
            .cloned()
            .collect();
        let waiting = events
            .iter()
            .filter(|entry| entry.state.is_active() && entry.is_quarantined())
            .map(|entry| entry.event.id)
            .collect();
        Ok(LedgerPage { events, waiting, total, offset, facets })
    }
}

/// The filter that is ignored when its own field is counted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FacetFilter {
    None,
    Kind,
    Priority,
    Entity,
    Status,
}
