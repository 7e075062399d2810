//! Walking back: from an event, a summary, a page or any line of a pack to the words it came from.

use std::collections::{BTreeSet, HashMap, HashSet};

use icecore_domain::calendar::{Days, Moment};
use icecore_domain::event::{COMPACTS, Effect, Event, Origin, QUOTE};
use icecore_domain::id::EventId;
use icecore_domain::layout::{self, DocPath};
use icecore_domain::ledger::conflict::Conflict;
use icecore_domain::ledger::query::EventQuery;
use icecore_domain::ledger::revise::Refusal;
use icecore_domain::ledger::{Entry, Ledger};
use icecore_domain::record::Record;
use icecore_domain::summary::{Period, Summary, SummaryQuery, Tier};
use icecore_domain::{budget, memo, page, plain};
use jiff::civil::Date;
use serde::Serialize;

use crate::{Error, Memory, Result};

/// An event with everything that hangs on it.
#[derive(Debug, Serialize)]
pub struct Story {
    /// The event.
    pub entry: Entry,
    /// Where its line is.
    pub place: String,
    /// What it replaced, what replaced it, and the acts upon these, oldest first; itself included.
    pub chain: Vec<Entry>,
    /// What it names as related.
    pub related: Vec<Entry>,
    /// What it stands for since a compaction.
    pub stands_for: Vec<Entry>,
    /// What it contradicts.
    pub conflicts: Vec<Conflict>,
}

/// The way from an event back to the words it came from.
#[derive(Debug, Serialize)]
pub struct Trail {
    /// The event and what hangs on it.
    #[serde(flatten)]
    pub story: Story,
    /// Where its line is.
    pub ledger: String,
    /// The very words it was distilled from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quote: Option<String>,
    /// Where the words are.
    pub source: TrailSource,
}

/// Where the words of an event are.
#[derive(Debug, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum TrailSource {
    /// Said directly; the ledger line is the first record of it.
    Live,
    /// In a file of the vault.
    File {
        /// The file.
        path: String,
        /// The line that says it, if it is still there.
        line: Option<usize>,
        /// That line with its neighbours.
        context: Vec<(usize, String)>,
    },
    /// In a record.
    Record {
        /// The file it is kept in.
        path: String,
        /// Its id.
        id: String,
        /// Its conversation.
        conversation: String,
        /// When it was said.
        ts: Moment,
        /// By whom.
        speaker: String,
        /// Whose words they are.
        origin: Origin,
        /// Its words.
        text: String,
        /// Its conversation goes on without it.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        withdrawn: bool,
    },
    /// In a file that is not there any more.
    Gone {
        /// The file.
        path: String,
    },
    /// Somewhere icecore cannot look.
    Elsewhere {
        /// As the event names it.
        name: String,
    },
}

/// One step of the way from a summary down to what was said.
#[derive(Debug, Serialize)]
pub struct Step {
    /// Which summary.
    pub period: String,
    /// Which version of it.
    pub version: u32,
    /// Who made it.
    pub made_by: String,
    /// The file that shows it.
    pub path: String,
    /// What of it says what was asked about.
    pub says: String,
}

/// The way from a summary, or a line of one, down to what was said.
#[derive(Debug, Serialize)]
pub struct SummaryTrail {
    /// From the summary that was named to the finest there is.
    pub steps: Vec<Step>,
    /// What it was made from, where no line was asked about.
    pub sources: Vec<String>,
    /// What was said, most telling first.
    pub records: Vec<TrailSource>,
}

/// An event and those it hangs together with.
#[derive(Debug, Serialize)]
pub struct Graph {
    /// The one that was asked about.
    pub id: EventId,
    /// All of them, by id.
    pub nodes: Vec<Entry>,
    /// What one does to another.
    pub edges: Vec<Edge>,
    /// How many more there are.
    pub left_out: usize,
}

/// What one event does to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Edge {
    /// The one that does it.
    pub from: EventId,
    /// To which.
    pub to: EventId,
    /// `supersedes`, `closes`, `confirms`, `retracts`, `related` or `compacts`.
    pub kind: &'static str,
}

/// What an event does to others, and which it names.
fn edges_of(event: &Event) -> Vec<Edge> {
    let by = event
        .effects()
        .filter_map(|(to, effect)| Some(Edge { from: event.id, to, kind: link(effect)? }));
    let related = event.related.iter().filter(|_| event.is_statement()).map(|&to| Edge {
        from: event.id,
        to,
        kind: "related",
    });
    let compacted = event.field::<Vec<String>>(COMPACTS).unwrap_or_default();
    let compacts = compacted
        .iter()
        .filter_map(|to| Some(Edge { from: event.id, to: to.parse().ok()?, kind: "compacts" }));
    by.chain(related).chain(compacts).collect()
}

fn link(effect: Effect) -> Option<&'static str> {
    match effect {
        Effect::Supersede => Some("supersedes"),
        Effect::Close => Some("closes"),
        Effect::Confirm => Some("confirms"),
        Effect::Retract => Some("retracts"),
        Effect::None => None,
    }
}

/// Why something stands where it stands.
#[derive(Debug, Serialize)]
#[serde(tag = "of", rename_all = "snake_case")]
pub enum Because {
    /// An event.
    Event(Box<Trail>),
    /// A summary or a line of one.
    Summary(SummaryTrail),
    /// A page or memory file: the events on it.
    Page {
        /// The file.
        path: String,
        /// The events.
        events: Vec<Entry>,
    },
}

/// So many records are shown at the end of a way.
const RECORDS: usize = 3;
/// So many ids of one line are followed.
const IDS: usize = 20;
/// How much of a line's words something must have to count as its source, in parts of a hundred.
const ENOUGH: usize = 60;

/// The words that carry meaning.
fn words(text: &str) -> HashSet<String> {
    let key = plain::entity_key(text);
    let telling: HashSet<String> = key
        .split('_')
        .filter(|word| word.chars().count() > 3 || word.bytes().all(|b| b.is_ascii_digit()))
        .map(|word| word.chars().take(6).collect())
        .collect();
    if telling.is_empty() { key.split('_').map(str::to_owned).collect() } else { telling }
}

/// How much of `wanted` a text has, in parts of a hundred.
fn share(wanted: &HashSet<String>, text: &str) -> usize {
    if wanted.is_empty() {
        return 0;
    }
    let found = words(text);
    wanted.iter().filter(|word| found.contains(*word)).count() * 100 / wanted.len()
}

/// The ids of events that a text names, each once.
fn ids_in(text: &str) -> Vec<EventId> {
    let mut seen = BTreeSet::new();
    let candidates = text
        .split(|c: char| !c.is_ascii_alphanumeric() && c != '-')
        .filter(|word| word.starts_with("EVT-"));
    candidates
        .filter_map(|word| word.trim_end_matches('-').parse().ok())
        .filter(|id| seen.insert(*id))
        .take(IDS)
        .collect()
}

impl Memory {
    /// The event and all that hangs on it, as of the clock if it was set by hand.
    async fn around(&self, id: EventId) -> Result<Ledger> {
        match self.horizon() {
            None => Ok(Ledger::of(self.store.tied(&[id], &[]).await?)),
            Some(until) => {
                // What has left the ledger is still there to be asked about.
                let mut events = self.store.tied(&[id], &[]).await?;
                events.retain(|event| event.ts.at() <= until);
                Ok(Ledger::of(events))
            }
        }
    }

    /// These events, wherever they stand.
    pub(crate) async fn anywhere(&self, ids: &[EventId]) -> Result<Vec<Entry>> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let ledger = Ledger::of(self.store.tied(ids, &[]).await?);
        Ok(ids.iter().filter_map(|&id| ledger.get(id).cloned()).collect())
    }

    /// Everything about one event.
    pub async fn show(&self, id: EventId) -> Result<Story> {
        let ledger = self.around(id).await?;
        let mut entry = ledger.get(id).ok_or(Refusal::Unknown(id))?.clone();
        let here = self.store.events(&EventQuery::these(&[id])).await?.entries.pop();
        let place = match here {
            Some(here) => {
                entry.line = here.line;
                format!("{}:{}", layout::LEDGER, here.line)
            }
            None => self.archive_of(id).await?,
        };
        let mut conflicts = match self.horizon() {
            None => icecore_domain::ledger::conflict::between(&self.store.contested().await?),
            Some(_) => self.contradictions(&self.ledger().await?).await?,
        };
        conflicts.retain(|conflict| conflict.events.contains(&id));
        let compacted: Vec<EventId> = entry
            .event
            .field::<Vec<String>>(COMPACTS)
            .unwrap_or_default()
            .iter()
            .filter_map(|id| id.parse().ok())
            .collect();
        let mut chain: Vec<Entry> = ledger.chain(id).into_iter().cloned().collect();
        let (mut related, mut stands_for) =
            (self.anywhere(&entry.event.related).await?, self.anywhere(&compacted).await?);
        for entries in [&mut chain, &mut related, &mut stands_for] {
            self.number_lines(entries).await?;
        }
        Ok(Story { place, chain, related, stands_for, conflicts, entry })
    }

    /// Says of entries on which line of the ledger they stand; 0 for those that have left it.
    async fn number_lines(&self, entries: &mut [Entry]) -> Result<()> {
        let ids: Vec<EventId> = entries.iter().map(|entry| entry.event.id).collect();
        if ids.is_empty() {
            return Ok(());
        }
        let here = self.store.events(&EventQuery::these(&ids)).await?.entries;
        let lines: HashMap<EventId, usize> =
            here.iter().map(|entry| (entry.event.id, entry.line)).collect();
        entries
            .iter_mut()
            .for_each(|entry| entry.line = lines.get(&entry.event.id).copied().unwrap_or(0));
        Ok(())
    }

    /// The archive that an event was put into.
    async fn archive_of(&self, id: EventId) -> Result<String> {
        for document in
            self.store.documents("memory").await?.into_iter().filter(DocPath::is_archive)
        {
            let text = self.store.document(&document).await?.unwrap_or_default();
            let name = format!("\"{id}\"");
            let at = icecore_domain::ledger::lines(&text, 1).find(|line| {
                has(line.bytes, name.as_bytes())
                    && icecore_domain::format::line::parse(line.bytes)
                        .events
                        .iter()
                        .any(|event| event.id == id)
            });
            if let Some(line) = at {
                return Ok(format!("{document}:{}", line.number));
            }
        }
        Ok(layout::LEDGER.into())
    }

    /// Walks an event back to the words it came from.
    pub async fn why(&self, id: EventId) -> Result<Trail> {
        let story = self.show(id).await?;
        let source = self.source_of(&story.entry.event).await?;
        Ok(Trail {
            ledger: story.place.clone(),
            quote: story.entry.event.field(QUOTE),
            story,
            source,
        })
    }

    /// Walks whatever is named back to where it comes from: an event, a summary, a page, a memory,
    /// or any line of a pack.
    pub async fn because(&self, what: &str) -> Result<Vec<Because>> {
        let what = what.trim();
        if what.is_empty() {
            return Err(icecore_domain::event::Unfit::Empty.into());
        }
        if let Ok(id) = EventId::from_hand(what) {
            return Ok(vec![Because::Event(Box::new(self.why(id).await?))]);
        }
        if let Ok(period) = what.split('#').next().unwrap_or(what).parse::<Period>() {
            return Ok(vec![Because::Summary(self.summary_trail(period, None).await?)]);
        }
        if let Some(found) = self.because_file(what).await? {
            return Ok(vec![found]);
        }
        let ids = ids_in(what);
        if !ids.is_empty() {
            let mut found = Vec::new();
            for id in ids {
                found.push(Because::Event(Box::new(self.why(id).await?)));
            }
            return Ok(found);
        }
        self.because_line(what).await
    }

    /// Walks a line of a summary back to where it comes from: the events it names, else down the
    /// summaries to the words.
    pub async fn because_of(&self, period: Period, n: usize) -> Result<Vec<Because>> {
        let line = self.line_of(period, n).await?;
        let mut found = Vec::new();
        for entry in self.anywhere(&ids_in(&line)).await? {
            found.push(Because::Event(Box::new(self.why(entry.event.id).await?)));
        }
        if found.is_empty() {
            found.push(Because::Summary(
                self.summary_trail(period, Some(&words(bare(&line)))).await?,
            ));
        }
        Ok(found)
    }

    /// An event among those it hangs together with: what replaces, closes, confirms or takes back
    /// what, and what is related, at most so many, the nearest.
    pub async fn graph(&self, id: EventId, most: usize) -> Result<Graph> {
        let ledger = self.around(id).await?;
        let root = ledger.get(id).ok_or(Refusal::Unknown(id))?;
        let mut related = self.anywhere(&root.event.related).await?;
        // Those that name it in their turn: nobody but they knows of it.
        let all = self.store.events(&EventQuery::everything()).await?.entries;
        related.extend(
            all.into_iter()
                .filter(|entry| entry.event.is_statement() && entry.event.related.contains(&id)),
        );
        let mut edges: BTreeSet<Edge> = ledger
            .entries()
            .iter()
            .chain(&related)
            .flat_map(|entry| edges_of(&entry.event))
            .collect();
        let mut far: Vec<EventId> = vec![id];
        // The nearest first, so that what is left out is what is farthest.
        let mut next = 0;
        while let Some(&here) = far.get(next) {
            next += 1;
            for edge in &edges {
                for (one, other) in [(edge.from, edge.to), (edge.to, edge.from)] {
                    if one == here && !far.contains(&other) {
                        far.push(other);
                    }
                }
            }
        }
        let known = self.anywhere(&far).await?;
        let left_out = known.len().saturating_sub(most);
        let mut nodes: Vec<Entry> = known.into_iter().take(most).collect();
        edges.extend(nodes.iter().flat_map(|entry| edges_of(&entry.event)));
        self.number_lines(&mut nodes).await?;
        nodes.sort_by_key(|entry| entry.event.id);
        let shown: BTreeSet<EventId> = nodes.iter().map(|entry| entry.event.id).collect();
        edges.retain(|edge| shown.contains(&edge.from) && shown.contains(&edge.to));
        Ok(Graph { id, nodes, edges: edges.into_iter().collect(), left_out })
    }

    /// A page or a memory file, by its path or as `[mem:NAME]`.
    async fn because_file(&self, what: &str) -> Result<Option<Because>> {
        let named = memo::references(&format!(
            "[mem:{}]",
            what.trim_start_matches("[mem:").trim_start_matches("mem:").trim_end_matches(']')
        ));
        let candidates = [
            what.parse::<DocPath>().ok(),
            named
                .first()
                .and_then(|name| format!("{}/{name}.md", layout::MEMORIES).parse::<DocPath>().ok()),
        ];
        for place in candidates.into_iter().flatten() {
            if !place.as_str().ends_with(".md") {
                continue;
            }
            let Some(bytes) = self.store.document(&place).await? else { continue };
            let text = String::from_utf8_lossy(&bytes).into_owned();
            if let Some(period) =
                place.name().strip_suffix(".md").and_then(|name| name.parse::<Period>().ok())
                && place.as_str().starts_with("primers/")
            {
                return Ok(Some(Because::Summary(self.summary_trail(period, None).await?)));
            }
            let ids: Vec<EventId> = match memo::read(&text).event {
                Some(id) if place.as_str().starts_with(layout::MEMORIES) => vec![id],
                _ => page::ids(&text),
            };
            if !ids.is_empty() {
                return Ok(Some(Because::Page {
                    path: place.to_string(),
                    events: self.anywhere(&ids).await?,
                }));
            }
        }
        Ok(None)
    }

    /// A line without an id: a statement in the same words, else the summaries that say it.
    async fn because_line(&self, line: &str) -> Result<Vec<Because>> {
        let bare = bare(line);
        let same = EventQuery { saying: Some(bare.to_owned()), ..EventQuery::everything() };
        let mut found = Vec::new();
        for entry in self
            .store
            .events(&same)
            .await?
            .entries
            .iter()
            .filter(|entry| entry.event.is_statement())
            .take(IDS)
        {
            found.push(Because::Event(Box::new(self.why(entry.event.id).await?)));
        }
        if !found.is_empty() {
            return Ok(found);
        }
        // A line about a thing as a whole comes from its page.
        if let Some((name, _)) = bare.split_once(": ") {
            let place = page::PageKey::new(page::PageKind::Entity, &plain::entity_key(name)).path();
            if let Some(found) = self.because_file(place.as_str()).await? {
                return Ok(vec![found]);
            }
        }
        let wanted = words(bare);
        let mut best: Option<(usize, Summary)> = None;
        for &tier in Tier::ALL.iter().rev() {
            for summary in
                self.store.summaries(&SummaryQuery::tier(tier).as_of(self.horizon())).await?
            {
                let score = best_line(&summary, &wanted).0;
                if score >= ENOUGH && best.as_ref().is_none_or(|(most, _)| score > *most) {
                    best = Some((score, summary));
                }
            }
        }
        match best {
            Some((_, summary)) => Ok(vec![Because::Summary(self.summary_trail(summary.period, Some(&wanted)).await?)]),
            None => Err(Error::Nothing(
                "no event and no summary says that. Name an id such as EVT-20260213-001, a period such as 2026-W07, a page's path, or a line of a pack".into(),
            )),
        }
    }

    /// From a summary down to what was said; with `wanted`, along the line that has these words.
    async fn summary_trail(
        &self,
        period: Period,
        wanted: Option<&HashSet<String>>,
    ) -> Result<SummaryTrail> {
        let mut trail =
            SummaryTrail { steps: Vec::new(), sources: Vec::new(), records: Vec::new() };
        let until = self.horizon();
        let newest = async |period: Period| -> Result<Option<Summary>> {
            let days = Days { first: period.days().first, last: period.days().first };
            let found = self
                .store
                .summaries(&SummaryQuery::within(period.tier(), days).as_of(until))
                .await?;
            Ok(found.into_iter().find(|summary| summary.period == period))
        };
        let first = newest(period).await?;
        let mut next =
            Some(first.ok_or_else(|| {
                Error::Nothing(format!("nothing has been pressed of {period} yet"))
            })?);
        while let Some(summary) = next.take() {
            let says = wanted
                .map_or_else(|| summary.headline.clone(), |wanted| best_line(&summary, wanted).1);
            trail.steps.push(Step {
                period: summary.period.to_string(),
                version: summary.version,
                made_by: summary.maker.to_string(),
                path: summary.period.path().to_string(),
                says: budget::shortened(&plain::one_line(&says), 400),
            });
            if let Some(key) = &summary.session {
                let mut records =
                    self.store.records(Days { first: key.day, last: key.day }).await?;
                records.retain(|record| {
                    record.session_key() == *key
                        && until.is_none_or(|until| record.ts.at() <= until)
                });
                if let Some(wanted) = wanted {
                    records.sort_by_key(|record| std::cmp::Reverse(share(wanted, &record.text)));
                }
                records.truncate(RECORDS);
                self.mark_withdrawn(&mut records).await?;
                trail.records.extend(records.iter().map(told));
                break;
            }
            // A day is told from its log besides.
            if let (Some(wanted), Period::Day(day)) = (wanted, summary.period)
                && let Some(line) = self.log_line(day, wanted).await?
            {
                trail.records.push(line);
            }
            let Some(wanted) = wanted else {
                trail.sources = summary.sources.iter().map(ToString::to_string).collect();
                if let (Some(_), Period::Day(day)) = (summary.log, summary.period) {
                    trail.sources.push(DocPath::log(day).to_string());
                }
                break;
            };
            let mut best: Option<(usize, Summary)> = None;
            for child in &summary.sources {
                if let Some(child) = newest(*child).await? {
                    let score = best_line(&child, wanted).0;
                    if best.as_ref().is_none_or(|(most, _)| score > *most) {
                        best = Some((score, child));
                    }
                }
            }
            // Where the log says it, a session that happens to share a word does not.
            let least = if trail.records.is_empty() { 1 } else { ENOUGH };
            next = best.filter(|(score, _)| *score >= least).map(|(_, child)| child);
        }
        Ok(trail)
    }

    /// The line of a day's log that has these words.
    async fn log_line(&self, day: Date, wanted: &HashSet<String>) -> Result<Option<TrailSource>> {
        let path = DocPath::log(day);
        let text = self.store.document(&path).await?.unwrap_or_default();
        let text = String::from_utf8_lossy(&text).into_owned();
        let best = text
            .lines()
            .enumerate()
            .max_by_key(|(_, line)| share(wanted, line))
            .filter(|(_, line)| share(wanted, line) >= ENOUGH);
        Ok(best.map(|(at, line)| TrailSource::File {
            path: path.to_string(),
            line: Some(at + 1),
            context: vec![(at + 1, line.to_owned())],
        }))
    }

    async fn source_of(&self, event: &Event) -> Result<TrailSource> {
        let name = event.source.clone();
        if name == "live" {
            return Ok(TrailSource::Live);
        }
        if let Some((file, id)) = name.split_once('#')
            && let Ok(path) = file.parse::<DocPath>()
            && let Some(day) = path.record_day()
        {
            let mut records = self.store.records(Days { first: day, last: day }).await?;
            records.retain(|record| record.id == id && record.path() == path);
            self.mark_withdrawn(&mut records).await?;
            return Ok(match records.first() {
                Some(record) => told(record),
                None => TrailSource::Gone { path: name },
            });
        }
        // `path`, or `path:line` as other programs write it.
        let (file, _) = name
            .rsplit_once(':')
            .filter(|(_, line)| line.bytes().all(|b| b.is_ascii_digit()))
            .unwrap_or((&name, ""));
        let Ok(path) = file.parse::<DocPath>() else { return Ok(TrailSource::Elsewhere { name }) };
        let looks_like_file = path.as_str().contains('/') || path.as_str().contains('.');
        match self.store.document(&path).await {
            Ok(Some(bytes)) => {
                let text = String::from_utf8_lossy(&bytes).into_owned();
                let quote: String = event.field(QUOTE).unwrap_or_else(|| event.content.clone());
                let wanted = plain::sameness_key(&quote);
                let lines: Vec<&str> = text.lines().collect();
                let line =
                    lines.iter().position(|line| plain::sameness_key(line).contains(&wanted));
                let context = line.map_or(Vec::new(), |at| {
                    let from = at.saturating_sub(2);
                    lines
                        .iter()
                        .enumerate()
                        .skip(from)
                        .take(at + 3 - from)
                        .map(|(at, line)| (at + 1, (*line).to_owned()))
                        .collect()
                });
                Ok(TrailSource::File {
                    path: path.to_string(),
                    line: line.map(|at| at + 1),
                    context,
                })
            }
            Ok(None) if looks_like_file => Ok(TrailSource::Gone { path: path.to_string() }),
            _ => Ok(TrailSource::Elsewhere { name }),
        }
    }
}

fn has(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

fn told(record: &Record) -> TrailSource {
    TrailSource::Record {
        path: record.path().to_string(),
        id: record.id.clone(),
        conversation: record.conversation.clone(),
        ts: record.ts,
        speaker: record.speaker().to_owned(),
        origin: record.origin,
        text: record.text.clone(),
        withdrawn: record.withdrawn,
    }
}

/// The line of a summary that has most of the words, and how much of them.
fn best_line(summary: &Summary, wanted: &HashSet<String>) -> (usize, String) {
    let lines = summary.headline.split_inclusive(". ").chain(summary.body.lines());
    let scored = lines.map(|line| (share(wanted, line), line.trim().to_owned()));
    let whole = (share(wanted, &summary.headline), summary.headline.clone());
    scored.chain(std::iter::once(whole)).max_by_key(|(score, _)| *score).unwrap_or_default()
}

/// A line of a pack without its bullet and label.
fn bare(line: &str) -> &str {
    let line = line.trim().trim_start_matches(['-', '*', '>', '#', ' ']).trim();
    match line.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((label, rest)) if label.len() < 40 => rest.trim(),
        _ => line,
    }
}
