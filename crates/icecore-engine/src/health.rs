//! How a memory does: figures for a person who looks after it.

use std::collections::BTreeMap;

use icecore_domain::calendar::{Days, Moment};
use icecore_domain::cascade::coverage;
use icecore_domain::event::{Kind, Priority};
use icecore_domain::layout::{self, DocPath};
use icecore_domain::ledger::Entry;
use icecore_domain::ledger::integrity::Finding;
use icecore_domain::ledger::query::{EventQuery, Wanted};
use icecore_domain::summary::Head;
use icecore_store::Error as StoreError;
use jiff::civil::Date;
use serde::{Deserialize, Serialize};

use crate::{Memory, Result};

/// So many of the newest makings of summaries are looked at for figures.
const FIGURED: usize = 10_000;
/// So many names are told in a summary of what was found.
const FACETS: usize = 100;
/// How much of the run log is looked at.
const TAIL_BYTES: u64 = 1024 * 1024;

/// What a day's runs came to.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Figures {
    /// Summaries that were made.
    pub runs: usize,
    /// Drafts that were refused.
    pub refused: usize,
    /// Bytes of their sources.
    pub bytes_in: u64,
    /// Bytes of their texts.
    pub bytes_out: u64,
    /// How long it took.
    pub millis: u64,
    /// Tokens that went to models, for whatever.
    pub tokens_in: u64,
    /// Tokens that came back.
    pub tokens_out: u64,
    /// How often a model was asked.
    pub asked: usize,
}

/// A job that ran.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct JobRan {
    /// When.
    pub ts: String,
    /// Which.
    pub job: String,
    /// For which date.
    pub date: String,
}

/// Whether what was said is covered by what was pressed.
#[derive(Debug, Serialize)]
pub struct Coverage {
    /// Whether every record lies where it should.
    pub ok: bool,
    /// Sessions that have records.
    pub sessions: usize,
    /// Summaries, of every tier the newest versions.
    pub summaries: usize,
    /// What was found.
    pub findings: Vec<Finding>,
}

/// Which standing of events is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Status {
    /// Those that hold.
    #[default]
    Active,
    /// All of them.
    Any,
    /// Those with that word for their standing.
    Is(&'static str),
    /// Those that wait for confirmation.
    Quarantined,
}

/// A part of the ledger, and what all of it comes to.
#[derive(Debug, Serialize)]
pub struct LedgerPage {
    /// The events, the newest first.
    pub events: Vec<Entry>,
    /// How many there are of them.
    pub total: usize,
    /// From which on these are.
    pub offset: usize,
    /// What all of them are, counted.
    pub facets: Facets,
}

/// A name, and how many have it.
#[derive(Debug, Serialize)]
pub struct Counted {
    /// The name.
    pub name: String,
    /// How many.
    pub count: usize,
}

/// Counts by name, most first.
fn counted<'a>(names: impl Iterator<Item = &'a str>) -> Vec<Counted> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for name in names {
        *counts.entry(name).or_default() += 1;
    }
    let mut counts: Vec<Counted> = counts.into_iter().map(|(name, count)| Counted { name: name.to_owned(), count }).collect();
    counts.sort_by_key(|counted| std::cmp::Reverse(counted.count));
    counts
}

/// Events, counted.
#[derive(Debug, Serialize)]
pub struct Facets {
    /// By type.
    #[serde(rename = "type")]
    pub kinds: Vec<Counted>,
    /// By priority.
    pub priority: Vec<Counted>,
    /// By standing.
    pub status: Vec<Counted>,
    /// By what they are about, the most frequent.
    pub entity: Vec<Counted>,
    /// By label, the most frequent.
    pub tag: Vec<Counted>,
}

fn path(text: &str) -> Result<DocPath> {
    Ok(text.parse().map_err(StoreError::Path)?)
}

impl Memory {
    /// What the runs of each of these days came to; days without any are left out.
    pub async fn figures(&self, days: Days) -> Result<BTreeMap<Date, Figures>> {
        let mut all: BTreeMap<Date, Figures> = BTreeMap::new();
        for run in self.runs(FIGURED).await? {
            let Some(day) = Moment::read(&run.ts).map(|read| read.moment.day()).filter(|day| days.contains(*day)) else { continue };
            let figures = all.entry(day).or_default();
            figures.refused += usize::from(run.refused);
            figures.runs += usize::from(!run.refused);
            figures.bytes_in += run.bytes_in;
            figures.bytes_out += run.bytes_out;
            figures.millis += run.millis;
        }
        for place in self.store.documents("memory/spend").await? {
            let day = place.name().strip_suffix(".jsonl").and_then(|name| name.parse::<Date>().ok());
            let Some(day) = day.filter(|day| days.contains(*day)) else { continue };
            let spent = self.spent(day).await?;
            let figures = all.entry(day).or_default();
            (figures.tokens_in, figures.tokens_out, figures.asked) = (spent.tokens_in, spent.tokens_out, spent.asked);
        }
        Ok(all)
    }

    /// The jobs that ran, the newest first.
    pub async fn jobs_ran(&self, most: usize) -> Result<Vec<JobRan>> {
        let (text, _) = self.store.tail(&path(layout::RUNS)?, TAIL_BYTES).await?;
        let mut ran: Vec<JobRan> = text.split(|&byte| byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect();
        ran.reverse();
        ran.truncate(most);
        Ok(ran)
    }

    /// Whether what was said is covered by what was pressed.
    pub async fn coverage(&self) -> Result<Coverage> {
        let known = self.known(false).await?;
        let heads: Vec<Head> = known.heads.all().cloned().collect();
        let findings = coverage::examine(&known, &heads);
        let ok = !findings.iter().any(|finding| finding.fails);
        Ok(Coverage { ok, sessions: known.sessions.len(), summaries: heads.len(), findings })
    }

    /// Events page by page, the newest first, with what all of those asked for come to.
    pub async fn ledger_page(&self, which: EventQuery, status: Status, acts: bool, offset: usize, limit: usize) -> Result<LedgerPage> {
        let standing = if status == Status::Active && !acts { Wanted::Active } else { Wanted::Any };
        let quarantined = if status == Status::Quarantined { Some(true) } else { which.quarantined };
        let mut found = self.events(&EventQuery { standing, quarantined, limit: None, ..which }).await?;
        found.retain(|entry| {
            (acts || entry.event.is_statement())
                && match status {
                    Status::Any => true,
                    Status::Active | Status::Quarantined => entry.standing.is_active(),
                    Status::Is(word) => entry.standing.word() == word,
                }
        });
        let words = |list: Vec<&'static str>, of: &dyn Fn(&Entry) -> &'static str| -> Vec<Counted> {
            list.into_iter()
                .map(|word| Counted { name: word.to_owned(), count: found.iter().filter(|entry| of(entry) == word).count() })
                .filter(|counted| counted.count > 0)
                .collect()
        };
        let mut facets = Facets {
            kinds: words(Kind::ALL.iter().map(|kind| kind.word()).collect(), &|entry| entry.event.kind.word()),
            priority: words(Priority::ALL.iter().map(|priority| priority.word()).collect(), &|entry| entry.event.priority.word()),
            status: words(vec!["active", "superseded", "closed", "retracted"], &|entry| entry.standing.word()),
            entity: counted(found.iter().filter_map(|entry| entry.event.entity.as_deref())),
            tag: counted(found.iter().flat_map(|entry| entry.event.tags.iter().map(String::as_str))),
        };
        facets.entity.truncate(FACETS);
        facets.tag.truncate(FACETS);
        let total = found.len();
        let events = found.into_iter().rev().skip(offset).take(limit).collect();
        Ok(LedgerPage { events, total, offset, facets })
    }
}
