//! Provenance: traces an event, a summary, a page or any line of a pack back to the original text.
//!
//! Invariant: events that left the ledger are found in the archives.

use std::collections::{BTreeSet, HashMap, HashSet};

use icecore_domain::calendar::{Days, Moment};
use icecore_domain::event::{COMPACTS_FIELD, Effect, Event, Origin, QUOTE_FIELD};
use icecore_domain::id::EventId;
use icecore_domain::layout::{self, DocPath};
use icecore_domain::ledger::conflict::Conflict;
use icecore_domain::ledger::query::EventQuery;
use icecore_domain::ledger::revise::RevisionError;
use icecore_domain::ledger::{Ledger, LedgerEntry};
use icecore_domain::record::Record;
use icecore_domain::summary::{Period, Summary, SummaryQuery, Tier};
use icecore_domain::{budget, memory_file, page, sanitize};
use jiff::civil::Date;
use serde::Serialize;

use crate::{Error, Memory, Result};

/// An event with its ledger line and all linked events.
#[derive(Debug, Serialize)]
pub struct EventDetails {
    pub entry: LedgerEntry,
    /// The file and line of the event.
    pub place: String,
    /// What it superseded, what superseded it, and the acts upon these, oldest first; itself
    /// included.
    pub chain: Vec<LedgerEntry>,
    pub related: Vec<LedgerEntry>,
    /// The events that a compaction merged into it.
    pub stands_for: Vec<LedgerEntry>,
    pub conflicts: Vec<Conflict>,
}

/// The provenance of an event.
#[derive(Debug, Serialize)]
pub struct EventProvenance {
    #[serde(flatten)]
    pub story: EventDetails,
    /// The file and line of the event.
    pub ledger: String,
    /// The sentence it was extracted from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quote: Option<String>,
    /// Where the original text is.
    pub source: OriginalSource,
}

/// Where the original text of an event is.
#[derive(Debug, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum OriginalSource {
    /// Entered directly; the ledger line is the original.
    Live,
    File {
        path: String,
        /// The line with the text, if it is still there.
        line: Option<usize>,
        /// That line with its neighbours.
        context: Vec<(usize, String)>,
    },
    /// In a record of a conversation.
    Record {
        path: String,
        id: String,
        conversation: String,
        ts: Moment,
        speaker: String,
        origin: Origin,
        text: String,
        /// The message was edited or deleted later.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        withdrawn: bool,
    },
    /// In a file that does not exist any more.
    Gone { path: String },
    /// In a source outside the vault.
    Elsewhere { name: String },
}

/// One step from a summary down to the original text.
#[derive(Debug, Serialize)]
pub struct ProvenanceStep {
    pub period: String,
    pub version: u32,
    pub made_by: String,
    pub path: String,
    /// The part of the summary that matches.
    pub says: String,
}

/// The provenance of a summary, or of one of its lines.
#[derive(Debug, Serialize)]
pub struct SummaryProvenance {
    /// From the named summary to the finest one.
    pub steps: Vec<ProvenanceStep>,
    /// What it was made from, if no line was asked about.
    pub sources: Vec<String>,
    /// The original messages, best match first.
    pub records: Vec<OriginalSource>,
}

/// An event and the events linked to it.
#[derive(Debug, Serialize)]
pub struct EventGraph {
    pub id: EventId,
    /// All events, by id.
    pub nodes: Vec<LedgerEntry>,
    pub edges: Vec<EventLink>,
    /// How many linked events exceeded the limit.
    pub left_out: usize,
}

/// A link between two events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct EventLink {
    pub from: EventId,
    pub to: EventId,
    /// `supersedes`, `closes`, `confirms`, `retracts`, `related` or `compacts`.
    pub kind: &'static str,
}

/// The links that an event has to others.
fn edges_of(event: &Event) -> Vec<EventLink> {
    let by = event.effects().filter_map(|(to, effect)| {
        Some(EventLink { from: event.id, to, kind: link_name(effect)? })
    });
    let related = event.related.iter().filter(|_| event.is_statement()).map(|&to| EventLink {
        from: event.id,
        to,
        kind: "related",
    });
    let compacted = event.extra_field::<Vec<String>>(COMPACTS_FIELD).unwrap_or_default();
    let compacts = compacted.iter().filter_map(|to| {
        Some(EventLink { from: event.id, to: to.parse().ok()?, kind: "compacts" })
    });
    by.chain(related).chain(compacts).collect()
}

fn link_name(effect: Effect) -> Option<&'static str> {
    match effect {
        Effect::Supersede => Some("supersedes"),
        Effect::Close => Some("closes"),
        Effect::Confirm => Some("confirms"),
        Effect::Retract => Some("retracts"),
        Effect::None => None,
    }
}

/// The provenance of whatever the user named.
#[derive(Debug, Serialize)]
#[serde(tag = "of", rename_all = "snake_case")]
pub enum Provenance {
    Event(Box<EventProvenance>),
    Summary(SummaryProvenance),
    /// A page or memory file, with the events on it.
    Page {
        path: String,
        events: Vec<LedgerEntry>,
    },
}

/// How many messages are shown as the origin of a line.
const MAX_SHOWN_RECORDS: usize = 3;
/// How many ids of one line are followed.
const MAX_FOLLOWED_IDS: usize = 20;
/// The percentage of a line's words that a text must contain to count as its source.
const MIN_SHARED_PERCENT: usize = 60;

/// The words that carry meaning.
fn meaningful_words(text: &str) -> HashSet<String> {
    let key = sanitize::entity_key(text);
    let telling: HashSet<String> = key
        .split('_')
        .filter(|word| word.chars().count() > 3 || word.bytes().all(|b| b.is_ascii_digit()))
        .map(|word| word.chars().take(6).collect())
        .collect();
    if telling.is_empty() { key.split('_').map(str::to_owned).collect() } else { telling }
}

/// The percentage of `wanted` that occurs in a text.
fn shared_percent(wanted: &HashSet<String>, text: &str) -> usize {
    if wanted.is_empty() {
        return 0;
    }
    let found = meaningful_words(text);
    wanted.iter().filter(|word| found.contains(*word)).count() * 100 / wanted.len()
}

/// The ids of events in a text, each once.
fn ids_in(text: &str) -> Vec<EventId> {
    let mut seen = BTreeSet::new();
    let candidates = text
        .split(|c: char| !c.is_ascii_alphanumeric() && c != '-')
        .filter(|word| word.starts_with("EVT-"));
    candidates
        .filter_map(|word| word.trim_end_matches('-').parse().ok())
        .filter(|id| seen.insert(*id))
        .take(MAX_FOLLOWED_IDS)
        .collect()
}

impl Memory {
    /// The event and all events linked to it, as of the clock if it was set by hand.
    async fn load_linked_ledger(&self, id: EventId) -> Result<Ledger> {
        match self.view_horizon() {
            None => Ok(Ledger::from_events(self.store.linked_events(&[id], &[]).await?)),
            Some(until) => {
                // Archived events are included.
                let mut events = self.store.linked_events(&[id], &[]).await?;
                events.retain(|event| event.ts.timestamp() <= until);
                Ok(Ledger::from_events(events))
            }
        }
    }

    /// These events, from the ledger or the archives.
    pub(crate) async fn load_events_with_archives(
        &self,
        ids: &[EventId],
    ) -> Result<Vec<LedgerEntry>> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let ledger = Ledger::from_events(self.store.linked_events(ids, &[]).await?);
        Ok(ids.iter().filter_map(|&id| ledger.get(id).cloned()).collect())
    }

    /// An event with its ledger line and all linked events.
    pub async fn load_event_details(&self, id: EventId) -> Result<EventDetails> {
        let ledger = self.load_linked_ledger(id).await?;
        let mut entry = ledger.get(id).ok_or(RevisionError::Unknown(id))?.clone();
        let here = self.store.events(&EventQuery::for_ids(&[id])).await?.entries.pop();
        let place = match here {
            Some(here) => {
                entry.line = here.line;
                format!("{}:{}", layout::LEDGER, here.line)
            }
            None => self.find_archive_of(id).await?,
        };
        let mut conflicts = match self.view_horizon() {
            None => icecore_domain::ledger::conflict::conflicting_claims(
                &self.store.contested_claims().await?,
            ),
            Some(_) => self.find_conflicts(&self.load_ledger().await?).await?,
        };
        conflicts.retain(|conflict| conflict.events.contains(&id));
        let compacted: Vec<EventId> = entry
            .event
            .extra_field::<Vec<String>>(COMPACTS_FIELD)
            .unwrap_or_default()
            .iter()
            .filter_map(|id| id.parse().ok())
            .collect();
        let mut chain: Vec<LedgerEntry> = ledger.chain(id).into_iter().cloned().collect();
        let (mut related, mut stands_for) = (
            self.load_events_with_archives(&entry.event.related).await?,
            self.load_events_with_archives(&compacted).await?,
        );
        for entries in [&mut chain, &mut related, &mut stands_for] {
            self.set_ledger_lines(entries).await?;
        }
        Ok(EventDetails { place, chain, related, stands_for, conflicts, entry })
    }

    /// Sets the ledger line of each entry; 0 for archived ones.
    async fn set_ledger_lines(&self, entries: &mut [LedgerEntry]) -> Result<()> {
        let ids: Vec<EventId> = entries.iter().map(|entry| entry.event.id).collect();
        if ids.is_empty() {
            return Ok(());
        }
        let here = self.store.events(&EventQuery::for_ids(&ids)).await?.entries;
        let lines: HashMap<EventId, usize> =
            here.iter().map(|entry| (entry.event.id, entry.line)).collect();
        entries
            .iter_mut()
            .for_each(|entry| entry.line = lines.get(&entry.event.id).copied().unwrap_or(0));
        Ok(())
    }

    /// The archive and line of an event that left the ledger.
    async fn find_archive_of(&self, id: EventId) -> Result<String> {
        for document in
            self.store.documents("memory").await?.into_iter().filter(DocPath::is_archive)
        {
            let text = self.store.document(&document).await?.unwrap_or_default();
            let name = format!("\"{id}\"");
            let at = icecore_domain::ledger::raw_lines(&text, 1).find(|line| {
                contains_bytes(line.bytes, name.as_bytes())
                    && icecore_domain::format::line::parse_line(line.bytes)
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

    /// The provenance of an event.
    pub async fn trace_event(&self, id: EventId) -> Result<EventProvenance> {
        let story = self.load_event_details(id).await?;
        let source = self.find_original_source(&story.entry.event).await?;
        Ok(EventProvenance {
            ledger: story.place.clone(),
            quote: story.entry.event.extra_field(QUOTE_FIELD),
            story,
            source,
        })
    }

    /// The provenance of whatever `what` names: an event, a summary, a page, a memory, or any line
    /// of a pack.
    pub async fn trace_provenance(&self, what: &str) -> Result<Vec<Provenance>> {
        let what = what.trim();
        if what.is_empty() {
            return Err(icecore_domain::event::EventDraftError::Empty.into());
        }
        if let Ok(id) = EventId::parse_lenient(what) {
            return Ok(vec![Provenance::Event(Box::new(self.trace_event(id).await?))]);
        }
        if let Ok(period) = what.split('#').next().unwrap_or(what).parse::<Period>() {
            return Ok(vec![Provenance::Summary(self.trace_summary(period, None).await?)]);
        }
        if let Some(found) = self.trace_file(what).await? {
            return Ok(vec![found]);
        }
        let ids = ids_in(what);
        if !ids.is_empty() {
            let mut found = Vec::new();
            for id in ids {
                found.push(Provenance::Event(Box::new(self.trace_event(id).await?)));
            }
            return Ok(found);
        }
        self.trace_text(what).await
    }

    /// The provenance of a line of a summary: the events it names, or the messages it was made
    /// from.
    pub async fn trace_summary_line(&self, period: Period, n: usize) -> Result<Vec<Provenance>> {
        let line = self.load_summary_line(period, n).await?;
        let mut found = Vec::new();
        for entry in self.load_events_with_archives(&ids_in(&line)).await? {
            found.push(Provenance::Event(Box::new(self.trace_event(entry.event.id).await?)));
        }
        if found.is_empty() {
            found.push(Provenance::Summary(
                self.trace_summary(period, Some(&meaningful_words(strip_line_markup(&line))))
                    .await?,
            ));
        }
        Ok(found)
    }

    /// The events linked to an event by superseding, closing, confirming, retracting or relation:
    /// at most `most`, the nearest.
    pub async fn load_event_graph(&self, id: EventId, most: usize) -> Result<EventGraph> {
        let ledger = self.load_linked_ledger(id).await?;
        let root = ledger.get(id).ok_or(RevisionError::Unknown(id))?;
        let mut related = self.load_events_with_archives(&root.event.related).await?;
        // Links point in one direction only, so events that refer to this one need a scan of all.
        let all = self.store.events(&EventQuery::all()).await?.entries;
        related.extend(
            all.into_iter()
                .filter(|entry| entry.event.is_statement() && entry.event.related.contains(&id)),
        );
        let mut edges: BTreeSet<EventLink> = ledger
            .entries()
            .iter()
            .chain(&related)
            .flat_map(|entry| edges_of(&entry.event))
            .collect();
        let mut far: Vec<EventId> = vec![id];
        // Breadth-first, so that the farthest events are left out.
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
        let known = self.load_events_with_archives(&far).await?;
        let left_out = known.len().saturating_sub(most);
        let mut nodes: Vec<LedgerEntry> = known.into_iter().take(most).collect();
        edges.extend(nodes.iter().flat_map(|entry| edges_of(&entry.event)));
        self.set_ledger_lines(&mut nodes).await?;
        nodes.sort_by_key(|entry| entry.event.id);
        let shown: BTreeSet<EventId> = nodes.iter().map(|entry| entry.event.id).collect();
        edges.retain(|edge| shown.contains(&edge.from) && shown.contains(&edge.to));
        Ok(EventGraph { id, nodes, edges: edges.into_iter().collect(), left_out })
    }

    /// A page or a memory file, by its path or as `[mem:NAME]`.
    async fn trace_file(&self, what: &str) -> Result<Option<Provenance>> {
        let named = memory_file::find_references(&format!(
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
                return Ok(Some(Provenance::Summary(self.trace_summary(period, None).await?)));
            }
            let ids: Vec<EventId> = match memory_file::parse(&text).event {
                Some(id) if place.as_str().starts_with(layout::MEMORIES) => vec![id],
                _ => page::referenced_ids(&text),
            };
            if !ids.is_empty() {
                return Ok(Some(Provenance::Page {
                    path: place.to_string(),
                    events: self.load_events_with_archives(&ids).await?,
                }));
            }
        }
        Ok(None)
    }

    /// A line without an id: an event with the same words, else the summaries that contain it.
    async fn trace_text(&self, line: &str) -> Result<Vec<Provenance>> {
        let bare = strip_line_markup(line);
        let same = EventQuery { saying: Some(bare.to_owned()), ..EventQuery::all() };
        let mut found = Vec::new();
        for entry in self
            .store
            .events(&same)
            .await?
            .entries
            .iter()
            .filter(|entry| entry.event.is_statement())
            .take(MAX_FOLLOWED_IDS)
        {
            found.push(Provenance::Event(Box::new(self.trace_event(entry.event.id).await?)));
        }
        if !found.is_empty() {
            return Ok(found);
        }
        // A line about a subject as a whole comes from its page.
        if let Some((name, _)) = bare.split_once(": ") {
            let place =
                page::PageKey::new(page::PageKind::Entity, &sanitize::entity_key(name)).path();
            if let Some(found) = self.trace_file(place.as_str()).await? {
                return Ok(vec![found]);
            }
        }
        let wanted = meaningful_words(bare);
        let mut best: Option<(usize, Summary)> = None;
        for &tier in Tier::ALL.iter().rev() {
            for summary in self
                .store
                .summaries(&SummaryQuery::for_tier(tier).as_of(self.view_horizon()))
                .await?
            {
                let score = best_line(&summary, &wanted).0;
                if score >= MIN_SHARED_PERCENT
                    && best.as_ref().is_none_or(|(most, _)| score > *most)
                {
                    best = Some((score, summary));
                }
            }
        }
        match best {
            Some((_, summary)) => Ok(vec![Provenance::Summary(self.trace_summary(summary.period, Some(&wanted)).await?)]),
            None => Err(Error::NotFound(
                "no event and no summary contains this. Give an id such as EVT-20260213-001, a period such as 2026-W07, a page's path, or a line of a pack".into(),
            )),
        }
    }

    /// From a summary down to the messages; with `wanted`, along the line with these words.
    async fn trace_summary(
        &self,
        period: Period,
        wanted: Option<&HashSet<String>>,
    ) -> Result<SummaryProvenance> {
        let mut trail =
            SummaryProvenance { steps: Vec::new(), sources: Vec::new(), records: Vec::new() };
        let until = self.view_horizon();
        let newest = async |period: Period| -> Result<Option<Summary>> {
            let days = Days { first: period.days().first, last: period.days().first };
            let found = self
                .store
                .summaries(&SummaryQuery::for_tier_within(period.tier(), days).as_of(until))
                .await?;
            Ok(found.into_iter().find(|summary| summary.period == period))
        };
        let first = newest(period).await?;
        let mut next = Some(
            first.ok_or_else(|| Error::NotFound(format!("there is no summary of {period} yet")))?,
        );
        while let Some(summary) = next.take() {
            let says = wanted
                .map_or_else(|| summary.headline.clone(), |wanted| best_line(&summary, wanted).1);
            trail.steps.push(ProvenanceStep {
                period: summary.period.to_string(),
                version: summary.version,
                made_by: summary.maker.to_string(),
                path: summary.period.path().to_string(),
                says: budget::truncate_at_word(&sanitize::one_line(&says), 400),
            });
            if let Some(key) = &summary.session {
                let mut records =
                    self.store.records(Days { first: key.day, last: key.day }).await?;
                records.retain(|record| {
                    record.session_key() == *key
                        && until.is_none_or(|until| record.ts.timestamp() <= until)
                });
                if let Some(wanted) = wanted {
                    records.sort_by_key(|record| {
                        std::cmp::Reverse(shared_percent(wanted, &record.text))
                    });
                }
                records.truncate(MAX_SHOWN_RECORDS);
                self.mark_withdrawn(&mut records).await?;
                trail.records.extend(records.iter().map(record_source));
                break;
            }
            // A day's summary is also made from its log.
            if let (Some(wanted), Period::Day(day)) = (wanted, summary.period)
                && let Some(line) = self.find_log_line(day, wanted).await?
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
            // When the log has the words, a session that happens to share a few of them is no
            // source.
            let least = if trail.records.is_empty() { 1 } else { MIN_SHARED_PERCENT };
            next = best.filter(|(score, _)| *score >= least).map(|(_, child)| child);
        }
        Ok(trail)
    }

    /// The line of a day's log that has these words.
    async fn find_log_line(
        &self,
        day: Date,
        wanted: &HashSet<String>,
    ) -> Result<Option<OriginalSource>> {
        let path = DocPath::log(day);
        let text = self.store.document(&path).await?.unwrap_or_default();
        let text = String::from_utf8_lossy(&text).into_owned();
        let best = text
            .lines()
            .enumerate()
            .max_by_key(|(_, line)| shared_percent(wanted, line))
            .filter(|(_, line)| shared_percent(wanted, line) >= MIN_SHARED_PERCENT);
        Ok(best.map(|(at, line)| OriginalSource::File {
            path: path.to_string(),
            line: Some(at + 1),
            context: vec![(at + 1, line.to_owned())],
        }))
    }

    async fn find_original_source(&self, event: &Event) -> Result<OriginalSource> {
        let name = event.source.clone();
        if name == "live" {
            return Ok(OriginalSource::Live);
        }
        if let Some((file, id)) = name.split_once('#')
            && let Ok(path) = file.parse::<DocPath>()
            && let Some(day) = path.record_day()
        {
            let mut records = self.store.records(Days { first: day, last: day }).await?;
            records.retain(|record| record.id == id && record.path() == path);
            self.mark_withdrawn(&mut records).await?;
            return Ok(match records.first() {
                Some(record) => record_source(record),
                None => OriginalSource::Gone { path: name },
            });
        }
        // `path`, or `path:line`, which other programs write.
        let (file, _) = name
            .rsplit_once(':')
            .filter(|(_, line)| line.bytes().all(|b| b.is_ascii_digit()))
            .unwrap_or((&name, ""));
        let Ok(path) = file.parse::<DocPath>() else {
            return Ok(OriginalSource::Elsewhere { name });
        };
        let looks_like_file = path.as_str().contains('/') || path.as_str().contains('.');
        match self.store.document(&path).await {
            Ok(Some(bytes)) => {
                let text = String::from_utf8_lossy(&bytes).into_owned();
                let quote: String =
                    event.extra_field(QUOTE_FIELD).unwrap_or_else(|| event.content.clone());
                let wanted = sanitize::sameness_key(&quote);
                let lines: Vec<&str> = text.lines().collect();
                let line =
                    lines.iter().position(|line| sanitize::sameness_key(line).contains(&wanted));
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
                Ok(OriginalSource::File {
                    path: path.to_string(),
                    line: line.map(|at| at + 1),
                    context,
                })
            }
            Ok(None) if looks_like_file => Ok(OriginalSource::Gone { path: path.to_string() }),
            _ => Ok(OriginalSource::Elsewhere { name }),
        }
    }
}

fn contains_bytes(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

fn record_source(record: &Record) -> OriginalSource {
    OriginalSource::Record {
        path: record.path().to_string(),
        id: record.id.clone(),
        conversation: record.conversation.clone(),
        ts: record.ts,
        speaker: record.speaker_name().to_owned(),
        origin: record.origin,
        text: record.text.clone(),
        withdrawn: record.withdrawn,
    }
}

/// The line of a summary with most of the words, and the percentage.
fn best_line(summary: &Summary, wanted: &HashSet<String>) -> (usize, String) {
    let lines = summary.headline.split_inclusive(". ").chain(summary.body.lines());
    let scored = lines.map(|line| (shared_percent(wanted, line), line.trim().to_owned()));
    let whole = (shared_percent(wanted, &summary.headline), summary.headline.clone());
    scored.chain(std::iter::once(whole)).max_by_key(|(score, _)| *score).unwrap_or_default()
}

/// A line of a pack without its bullet and label.
fn strip_line_markup(line: &str) -> &str {
    let line = line.trim().trim_start_matches(['-', '*', '>', '#', ' ']).trim();
    match line.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((label, rest)) if label.len() < 40 => rest.trim(),
        _ => line,
    }
}
