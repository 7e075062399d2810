//! Context packs: the recall pack, the pack of one prompt, and the pack of a session start (L6, L7,
//! L8, L17).
//!
//! - A pack of now and a pack of a past moment come from the same queries and rules. Only the
//!   source differs: the store's index, or the ledger as it was at that moment.
//! - A pack never contains statements of other projects.

use std::collections::{BTreeMap, BTreeSet};

use icecore_domain::budget::{self, Omission};
use icecore_domain::calendar::{Days, Moment, days_between};
use icecore_domain::event::{Event, EventType, Priority, Scope};
use icecore_domain::id::EventId;
use icecore_domain::layout::{self, DocPath};
use icecore_domain::ledger::archive;
use icecore_domain::ledger::conflict::{self, Conflict};
use icecore_domain::ledger::decay;
use icecore_domain::ledger::query::{EventQuery, EventStateFilter};
use icecore_domain::ledger::{Ledger, LedgerEntry};
use icecore_domain::packs::delta::{self, DeltaInput};
use icecore_domain::packs::recall::{self, RecallInput};
use icecore_domain::packs::session::{self, SessionSection};
use icecore_domain::packs::{Pack, pyramid, working};
use icecore_domain::page::{self, PageKey, PageKind};
use icecore_domain::rank::question::Question;
use icecore_domain::rank::relevance;
use icecore_domain::rank::terms::Analyzer;
use icecore_domain::record::RecordKind;
use icecore_domain::sanitize;
use icecore_domain::schedule::Job;
use icecore_domain::summary::{Summary, SummaryQuery, Tier};
use icecore_domain::trigger::{self, Trigger};
use icecore_store::{ContentVersion, Error as StoreError};
use jiff::ToSpan;
use jiff::civil::Date;
use serde::{Deserialize, Serialize};

use crate::pack_input::AsOf;
use crate::{Memory, Result};

/// The most statements per time range; a section has room for fewer.
const MAX_WINDOW_STATEMENTS: usize = 150;
/// The most entities and labels that may come up today.
const MAX_ENTITIES: usize = 30;
/// The most entities with a paragraph of their own.
const MAX_ENTITY_PARAGRAPHS: usize = 10;
/// The most older statements per entity.
const MAX_STATEMENTS_PER_ENTITY: usize = 10;
/// The most statements awaiting confirmation that are counted.
const MAX_COUNTED_QUARANTINED_EVENTS: usize = 1_000;
/// A ledger with at most this many lines is read at once.
const SHORT_LEDGER_LINES: usize = 2_000;
/// The part of an append-only file that is searched for recent runs.
const TAIL_BYTES: u64 = 256 * 1024;
/// The recall pack's part of a session start, in percent.
const RECALL_PERCENT: usize = 55;
/// The characters of each other section that count before the recall pack gets the rest.
const MIN_SECTION_CHARS: usize = 1_500;
/// The most statements that are scored against a prompt, the most important first.
const MAX_SCORED_STATEMENTS: usize = 3_000;
/// The most statements and pages in the pack of a prompt.
const MAX_PROMPT_STATEMENTS: usize = 6;
const MAX_PROMPT_PAGES: usize = 4;
/// The most recent sessions in a session start.
const MAX_RECENT_SESSIONS: usize = 12;
/// The most bytes of messages that are summarized while a session start waits.
const MAX_INLINE_SUMMARY_BYTES: u64 = 128 * 1024;
/// A pack with a smaller budget is empty.
const MIN_PACK_CHARS: usize = 512;
/// The label of a continued session's working state.
const SESSION_STATE_LABEL: &str = "the state of this session";

/// The kind of a starting session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionKind {
    /// The user's own session.
    Main,
    /// A subagent's session, or another person's: it does not get MEMORY.md.
    Side,
}

/// The triggers in force, and the mistakes in their file.
#[derive(Debug, Clone, Serialize)]
pub struct TriggerList {
    pub triggers: Vec<TriggerInfo>,
    /// The mistakes in `recall/triggers.json`.
    pub complaints: Vec<String>,
}

/// A trigger as output.
#[derive(Debug, Clone, Serialize)]
pub struct TriggerInfo {
    pub patterns: Vec<String>,
    /// The pages it loads.
    pub load: Vec<String>,
    /// Whether the user wrote it.
    pub by_hand: bool,
}

/// The source of ledger queries.
enum LedgerSource {
    /// The store. A short ledger is read once, which is faster than forty queries.
    Now(Option<Box<Ledger>>),
    Then(Box<Ledger>),
}

fn doc_path(text: &str) -> Result<DocPath> {
    Ok(text.parse().map_err(StoreError::from)?)
}

fn days_before(day: Date, days: i32) -> Date {
    day.checked_sub(days.days()).unwrap_or(Date::MIN)
}

impl Memory {
    /// The ledger as it was at a moment, including lines that have left it since.
    pub(crate) async fn ledger_as_of(&self, until: jiff::Timestamp) -> Result<Ledger> {
        let text = self.store.ledger().await?.bytes;
        let archives = self.read_archives().await?;
        let archives: Vec<&[u8]> = archives.iter().map(Vec::as_slice).collect();
        Ok(archive::ledger_as_of(&text, &archives, until))
    }

    /// The archive files of the ledger.
    pub(crate) async fn read_archives(&self) -> Result<Vec<Vec<u8>>> {
        let mut texts = Vec::new();
        for document in self.store.documents("memory").await? {
            if document.is_archive() {
                texts.extend(self.store.document(&document).await?);
            }
        }
        Ok(texts)
    }

    async fn ledger_source(&self, vantage: AsOf) -> Result<LedgerSource> {
        Ok(match vantage.until {
            Some(until) if self.has_changed_since(until).await? => {
                LedgerSource::Then(Box::new(self.ledger_as_of(until).await?))
            }
            _ if self.count_ledger_lines().await? <= SHORT_LEDGER_LINES => LedgerSource::Now(Some(
                Box::new(Ledger::parse(&self.store.ledger().await?.bytes, None)),
            )),
            _ => LedgerSource::Now(None),
        })
    }

    /// Whether the ledger has changed since a moment: an event was recorded later, or left it.
    async fn has_changed_since(&self, until: jiff::Timestamp) -> Result<bool> {
        // One day earlier, because each event's day is in its own time zone.
        let since = self.zone.day_of(until).yesterday().unwrap_or(Date::MIN);
        let recent = self
            .store
            .events(&EventQuery { since: Some(since), ..EventQuery::all() })
            .await?
            .entries;
        if recent.iter().any(|entry| entry.event.ts.timestamp() > until) {
            return Ok(true);
        }
        let texts = self.read_archives().await?;
        Ok(texts.iter().any(|text| archive::last_archived_at(text).is_none_or(|at| at > until)))
    }

    async fn select_events(
        &self,
        knows: &LedgerSource,
        which: &EventQuery,
    ) -> Result<Vec<LedgerEntry>> {
        Ok(match knows {
            LedgerSource::Now(None) => self.store.events(which).await?.entries,
            LedgerSource::Now(Some(ledger)) | LedgerSource::Then(ledger) => {
                which.select(ledger.entries()).into_iter().cloned().collect()
            }
        })
    }

    async fn known_conflicts(&self, knows: &LedgerSource) -> Result<Vec<Conflict>> {
        Ok(match knows {
            LedgerSource::Now(_) => {
                conflict::conflicting_claims(&self.store.contested_claims().await?)
            }
            LedgerSource::Then(ledger) => conflict::find_conflicts(ledger.entries()),
        })
    }

    /// Builds the recall pack (L6).
    pub async fn build_recall_pack(&self, date: Option<Date>, scopes: &[Scope]) -> Result<Pack> {
        let gathered = self.read_recall_input(self.as_of(date)?, scopes).await?;
        Ok(recall::recall_pack(
            gathered.day,
            &gathered.pack_input(),
            self.policy.recall.section_words(),
            self.policy.decay.ages(),
        ))
    }

    /// Reads everything that a recall pack is made from.
    async fn read_recall_input(&self, vantage: AsOf, scopes: &[Scope]) -> Result<RecallContent> {
        let day = vantage.now.day();
        let knows = self.ledger_source(vantage).await?;
        let mut statements: BTreeMap<EventId, LedgerEntry> = BTreeMap::new();
        let mut take = |entries: Vec<LedgerEntry>| {
            statements.extend(entries.into_iter().map(|entry| (entry.event.id, entry)))
        };
        let trusted = || EventQuery { quarantined: Some(false), ..EventQuery::default() };
        take(
            self.select_events(&knows, &EventQuery { priorities: vec![Priority::P0], ..trusted() })
                .await?,
        );
        for tag in ["mantra", "account"] {
            take(
                self.select_events(&knows, &EventQuery { tags: vec![tag.into()], ..trusted() })
                    .await?,
            );
        }
        let few =
            || EventQuery { limit: Some(MAX_WINDOW_STATEMENTS), weightiest: true, ..trusted() };
        take(
            self.select_events(&knows, &EventQuery { kinds: vec![EventType::Procedure], ..few() })
                .await?,
        );
        let told = vec![
            EventType::Fact,
            EventType::Decision,
            EventType::Preference,
            EventType::Relationship,
            EventType::Constraint,
        ];
        let stale = i32::from(self.policy.decay.ages().dropped_days);
        for (first, last) in [(1, None), (7, Some(2)), (30, Some(8)), (stale.max(31), Some(31))] {
            let window = EventQuery {
                kinds: told.clone(),
                verified_since: Some(days_before(day, first)),
                verified_until: last.map(|last| days_before(day, last)),
                ..few()
            };
            take(self.select_events(&knows, &window).await?);
        }
        // Statements that do not age are relevant however old they are.
        let lasting = EventQuery {
            kinds: vec![EventType::Preference, EventType::Relationship, EventType::Constraint],
            verified_until: Some(days_before(day, stale.max(31) + 1)),
            ..few()
        };
        take(self.select_events(&knows, &lasting).await?);
        let weighty = EventQuery {
            priorities: vec![Priority::P0, Priority::P1],
            limit: Some(MAX_WINDOW_STATEMENTS),
            ..trusted()
        };
        take(self.select_events(&knows, &weighty).await?);

        let mut open = self
            .select_events(
                &knows,
                &EventQuery { quarantined: Some(false), ..EventQuery::open_loops() },
            )
            .await?;
        let log = self.store.document(&DocPath::log(day)).await?.unwrap_or_default();
        let log = recall::log_until(
            &self.filter_without_report(&String::from_utf8_lossy(&log)),
            &vantage.now.clock_time(),
        );
        // Older facts about what may come up today.
        let (things, tags) =
            self.upcoming_entities(&knows, &open, statements.values(), &log).await?;
        let mut older = Vec::new();
        for thing in &things {
            older.extend(
                self.select_events(
                    &knows,
                    &EventQuery {
                        entity: Some(thing.clone()),
                        limit: Some(MAX_STATEMENTS_PER_ENTITY),
                        ..trusted()
                    },
                )
                .await?,
            );
        }
        for tag in &tags {
            older.extend(
                self.select_events(
                    &knows,
                    &EventQuery {
                        tags: vec![tag.clone()],
                        limit: Some(MAX_STATEMENTS_PER_ENTITY),
                        ..trusted()
                    },
                )
                .await?,
            );
        }
        statements.extend(older.into_iter().map(|entry| (entry.event.id, entry)));

        let mut conflicts = self.known_conflicts(&knows).await?;
        let named: Vec<_> = conflicts
            .iter()
            .flat_map(|conflict| conflict.events.iter().copied())
            .take(200)
            .collect();
        if !named.is_empty() {
            let entries = self
                .select_events(
                    &knows,
                    &EventQuery { state: EventStateFilter::Active, ..EventQuery::for_ids(&named) },
                )
                .await?;
            statements.extend(entries.into_iter().map(|entry| (entry.event.id, entry)));
        }
        let seen = |entry: &LedgerEntry| is_visible(&entry.event, scopes);
        statements.retain(|_, entry| seen(entry));
        open.retain(seen);
        conflicts.retain(|conflict| conflict.events.iter().all(|id| statements.contains_key(id)));

        let mut about = BTreeMap::new();
        // Only entities that are likely to come up get a paragraph.
        for thing in things.iter().take(MAX_ENTITY_PARAGRAPHS) {
            // The newest statements are enough for a paragraph.
            let of_thing = EventQuery {
                entity: Some(thing.clone()),
                limit: Some(MAX_WINDOW_STATEMENTS),
                weightiest: true,
                ..trusted()
            };
            let entries: Vec<LedgerEntry> =
                self.select_events(&knows, &of_thing).await?.into_iter().filter(seen).collect();
            let key = PageKey { kind: PageKind::Entity, slug: page::slug(thing) };
            let summary = page::render::render(&key, &entries).summary;
            if !summary.is_empty() {
                about.insert(thing.clone(), summary);
            }
        }
        let waiting = EventQuery {
            quarantined: Some(true),
            limit: Some(MAX_COUNTED_QUARANTINED_EVENTS),
            ..EventQuery::default()
        };
        let quarantined =
            self.select_events(&knows, &waiting).await?.iter().filter(|entry| seen(entry)).count();
        let troubles = self.pack_warnings(vantage).await?;
        Ok(RecallContent {
            day,
            statements: statements.into_values().collect(),
            open,
            conflicts,
            log,
            about,
            troubles,
            quarantined,
        })
    }

    /// Entities and labels that may come up today: of due and important events, of open
    /// commitments, and those that today's log names.
    async fn upcoming_entities(
        &self,
        knows: &LedgerSource,
        open: &[LedgerEntry],
        statements: impl Iterator<Item = &LedgerEntry>,
        log: &str,
    ) -> Result<(Vec<String>, BTreeSet<String>)> {
        let (mut things, mut tags): (Vec<String>, BTreeSet<String>) = Default::default();
        let mut note = |entry: &LedgerEntry| {
            if let Some(thing) = entry
                .event
                .entity
                .as_ref()
                .filter(|thing| things.len() < MAX_ENTITIES && !things.contains(*thing))
            {
                things.push(thing.clone());
            }
            if tags.len() < MAX_ENTITIES {
                tags.extend(entry.event.tags.iter().cloned());
            }
        };
        let mut oldest: Vec<&LedgerEntry> = open.iter().collect();
        oldest.sort_by_key(|entry| {
            (entry.event.due.is_none(), entry.event.due, entry.event.ts, entry.event.id)
        });
        oldest.iter().take(MAX_ENTITIES).for_each(|entry| note(entry));
        let mut weighty: Vec<&LedgerEntry> =
            statements.filter(|entry| entry.event.priority <= Priority::P1).collect();
        weighty.sort_by_key(|entry| std::cmp::Reverse((entry.event.ts, entry.event.id)));
        weighty.iter().take(5).for_each(|entry| note(entry));
        if !log.trim().is_empty() {
            let named = match knows {
                LedgerSource::Now(_) => self.store.entities().await?,
                LedgerSource::Then(ledger) => {
                    ledger.entries().iter().filter_map(|entry| entry.event.entity.clone()).collect()
                }
            };
            let said = format!("_{}_", sanitize::entity_key(log));
            let named: BTreeSet<String> =
                named.into_iter().filter(|name| said.contains(&format!("_{name}_"))).collect();
            let more: Vec<String> = named
                .into_iter()
                .filter(|name| !things.contains(name))
                .take(MAX_ENTITIES)
                .collect();
            things.extend(more);
        }
        Ok((things, tags))
    }

    /// The warnings of a pack, as of its moment: failed integrity checks, drafts that wait for
    /// review, missed consolidation.
    pub(crate) async fn pack_warnings(&self, vantage: AsOf) -> Result<Vec<String>> {
        let mut troubles = Vec::new();
        let known = |ts: &str| {
            Moment::parse(ts).is_some_and(|read| {
                vantage.until.is_none_or(|until| read.moment.timestamp() <= until)
            })
        };
        let (log, _) = self.store.read_tail(&doc_path(layout::INTEGRITY_LOG)?, TAIL_BYTES).await?;
        let log = String::from_utf8_lossy(&log).into_owned();
        let mut checks = log.lines().filter_map(|line| line.strip_prefix("- ")?.split_once(' '));
        if let Some((at, said)) = checks.rfind(|(at, _)| known(at))
            && said.starts_with("FAILED")
        {
            troubles.push(format!(
                "integrity checks failed on {}: run `icecore doctor`",
                at.get(..10).unwrap_or(at)
            ));
        }
        let flagged = self.list_flagged_periods_as_of(vantage.until).await?;
        if let Some(first) = flagged.first() {
            let what = if flagged.len() == 1 {
                "a rollup draft waits".into()
            } else {
                format!("{} rollup drafts wait", flagged.len())
            };
            troubles.push(format!(
                "{what} for review, the first is {first}: run `icecore summary review`"
            ));
        }
        let today = vantage.now.day();
        match self.load_last_job_runs_as_of(vantage.until).await?.get(&Job::Consolidation) {
            Some(ran) => {
                let days = days_between(*ran, today);
                if days > i64::from(self.policy.recall.max_days_without_consolidation) {
                    troubles.push(format!(
                        "no consolidation for {days} days: run `icecore consolidate`"
                    ));
                }
            }
            None => {
                // A memory that is only a few days old needs no warning.
                let before = days_before(
                    today,
                    i32::from(self.policy.recall.max_days_without_consolidation) + 1,
                );
                let older = EventQuery { until: Some(before), limit: Some(1), ..EventQuery::all() };
                if !self.store.events(&older).await?.entries.is_empty() {
                    troubles.push("no consolidation has run yet: run `icecore consolidate`".into());
                }
            }
        }
        Ok(troubles)
    }

    /// Writes the recall pack to its file, unless it is of the past.
    pub async fn write_recall_pack(&self, pack: &Pack) -> Result<bool> {
        if self.is_looking_back().await? {
            return Ok(false);
        }
        let place = doc_path(layout::RECALL)?;
        if self.store.document(&place).await?.as_deref() == Some(pack.text.as_bytes()) {
            return Ok(false);
        }
        self.store.put(&place, pack.text.as_bytes()).await?;
        Ok(true)
    }

    /// Builds the pack of one prompt: the three oldest commitments, and the pages that its words
    /// trigger (L7, L8).
    pub async fn build_prompt_pack(
        &self,
        prompt: &str,
        room: Option<usize>,
        date: Option<Date>,
    ) -> Result<Pack> {
        let vantage = self.as_of(date)?;
        let knows = self.ledger_source(vantage).await?;
        let open = self
            .select_events(
                &knows,
                &EventQuery { quarantined: Some(false), ..EventQuery::open_loops() },
            )
            .await?;
        let open: Vec<LedgerEntry> =
            open.into_iter().filter(|entry| is_visible(&entry.event, &[])).collect();
        let pages = self.triggered_pages(&knows, prompt, &[], &BTreeSet::new()).await?;
        let from = DeltaInput { oldest: &open, found: &[], pages: &pages };
        Ok(delta::delta_pack(
            vantage.now.day(),
            &from,
            room.unwrap_or(self.policy.recall.max_chars_per_prompt),
        ))
    }

    /// Builds the pack of a prompt in a session, with a reason for each item: the oldest
    /// commitments, the related statements and the triggered pages, without what the session
    /// received before. The pack is empty if nothing is new.
    pub(crate) async fn build_session_prompt_pack(
        &self,
        prompt: &str,
        scopes: &[Scope],
        given: &BTreeSet<String>,
        room: PackBudget,
    ) -> Result<(Pack, Vec<PackItem>)> {
        let vantage = self.as_of(None)?;
        let day = vantage.now.day();
        let knows = self.ledger_source(vantage).await?;
        let new = |entry: &LedgerEntry| {
            is_visible(&entry.event, scopes) && !given.contains(&entry.event.id.to_string())
        };
        let open = self
            .select_events(
                &knows,
                &EventQuery { quarantined: Some(false), ..EventQuery::open_loops() },
            )
            .await?;
        let mut oldest: Vec<LedgerEntry> =
            open.into_iter().filter(|entry| is_visible(&entry.event, scopes)).collect();
        oldest.sort_by_key(|entry| (entry.event.ts, entry.event.id));
        oldest.truncate(recall::ALWAYS_SHOWN_COMMITMENTS);
        oldest.retain(new);
        let holding = EventQuery {
            quarantined: Some(false),
            limit: Some(MAX_SCORED_STATEMENTS),
            weightiest: true,
            ..EventQuery::default()
        };
        let mut known: Vec<LedgerEntry> =
            self.select_events(&knows, &holding).await?.into_iter().filter(new).collect();
        let ages = self.policy.decay.ages();
        known.retain(|entry| !decay::has_expired(entry, day, ages));
        let texts: Vec<String> = known.iter().map(|entry| search_text(&entry.event)).collect();
        let reader = Analyzer::default();
        let question = Question::parse(prompt, &[], day, &reader);
        let mut items = Vec::new();
        let mut found = Vec::new();
        for relevant in relevance::relevant_statements(&question, &texts, &reader)
            .into_iter()
            .take(MAX_PROMPT_STATEMENTS)
        {
            let Some(entry) = known.get(relevant.at) else { continue };
            items.push(PackItem::new(
                entry.event.id,
                format!(
                    "related to the prompt: {} ({:.1})",
                    relevant.words.join(", "),
                    relevant.score
                ),
            ));
            found.push(entry.clone());
        }
        // A statement that is in the context already does not trigger a page.
        let told: BTreeSet<String> = given
            .iter()
            .cloned()
            .chain(found.iter().map(|entry| entry.event.id.to_string()))
            .collect();
        let mut pages = self.triggered_pages(&knows, prompt, scopes, &told).await?;
        pages.truncate(MAX_PROMPT_PAGES);
        items.extend(pages.iter().map(|(place, pattern, _)| {
            PackItem::new(place, format!("the prompt says \"{pattern}\""))
        }));
        items.extend(
            oldest
                .iter()
                .map(|entry| PackItem::new(entry.event.id, "one of the oldest open commitments")),
        );
        let from = DeltaInput { oldest: &oldest, found: &found, pages: &pages };
        let pack = room.fit_pack(|chars| delta::delta_pack(day, &from, chars));
        items.retain(|item| pack.sources.contains(&item.what));
        Ok((pack, items))
    }

    /// The pages that the words of a prompt trigger, with those words, limited to these scopes.
    async fn triggered_pages(
        &self,
        knows: &LedgerSource,
        prompt: &str,
        scopes: &[Scope],
        given: &BTreeSet<String>,
    ) -> Result<Vec<(DocPath, String, String)>> {
        let (triggers, _) = self.read_triggers().await?;
        let mut pages = Vec::new();
        for (place, pattern) in trigger::matching_pages(&triggers, prompt) {
            if given.contains(place.as_str()) {
                continue;
            }
            if let Some(bytes) = self.store.document(&place).await? {
                let text = String::from_utf8_lossy(&bytes).into_owned();
                let Some(text) = self.page_for_scopes(knows, &place, text, scopes).await? else {
                    continue;
                };
                // The history section is outdated by definition.
                let holds = text.split("\n## History").next().unwrap_or_default();
                let ids = ids_in(holds);
                if !ids.is_empty() && ids.iter().all(|id| given.contains(&id.to_string())) {
                    continue;
                }
                pages.push((place, pattern, self.filter_without_report(holds)));
            }
        }
        Ok(pages)
    }

    /// A page limited to these scopes. If it contains statements of other projects, it is rendered
    /// again without them; `None` if nothing is left.
    async fn page_for_scopes(
        &self,
        knows: &LedgerSource,
        place: &DocPath,
        text: String,
        scopes: &[Scope],
    ) -> Result<Option<String>> {
        let ids: Vec<EventId> = ids_in(&text);
        if ids.is_empty() {
            return Ok(Some(text));
        }
        let mut events: Vec<Event> = self
            .select_events(knows, &EventQuery::for_ids(&ids))
            .await?
            .into_iter()
            .map(|entry| entry.event)
            .collect();
        let missing: Vec<EventId> =
            ids.into_iter().filter(|id| !events.iter().any(|event| event.id == *id)).collect();
        if !missing.is_empty() {
            events.extend(self.store.archived_events(&EventQuery::for_ids(&missing)).await?);
        }
        // Statements about the layout of a page belong to no project.
        let foreign =
            |event: &Event| event.scope != Scope::Everywhere && !scopes.contains(&event.scope);
        if !events.iter().any(foreign) {
            return Ok(Some(text));
        }
        let Some(key) = PageKey::from_path(place) else { return Ok(None) };
        let own: Vec<EventId> =
            events.iter().filter(|event| !foreign(event)).map(|event| event.id).collect();
        if own.is_empty() {
            return Ok(None);
        }
        let entries: Vec<LedgerEntry> = self
            .load_events_with_archives(&own)
            .await?
            .into_iter()
            .filter(|entry| entry.state.is_active())
            .collect();
        Ok((!entries.is_empty()).then(|| page::render::render(&key, &entries).text))
    }

    /// All triggers: the user's own first, then suggestions from pages.
    async fn read_triggers(&self) -> Result<(Vec<Trigger>, Vec<String>)> {
        let own = self.store.document(&doc_path(layout::TRIGGERS)?).await?;
        let (mut triggers, complaints) = own.map_or_else(Default::default, |bytes| {
            trigger::parse_triggers(&String::from_utf8_lossy(&bytes))
        });
        let complaints: Vec<String> = complaints
            .into_iter()
            .map(|complaint| format!("{}: {complaint}", layout::TRIGGERS))
            .collect();
        let aliases = EventQuery {
            tags: vec!["aliases".into()],
            quarantined: Some(false),
            ..EventQuery::default()
        };
        let mut names: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for entry in self.store.events(&aliases).await?.entries {
            let list = entry
                .event
                .content
                .split(',')
                .map(|name| name.trim().to_owned())
                .filter(|name| !name.is_empty());
            if let Some(entity) = &entry.event.entity {
                names.entry(page::slug(entity)).or_default().extend(list);
            }
        }
        let mut pages = Vec::new();
        for place in self.store.documents("knowledge/entities").await? {
            let Some(key) = PageKey::from_path(&place).filter(|key| key.kind == PageKind::Entity)
            else {
                continue;
            };
            let aliases = names.get(&key.slug).cloned().unwrap_or_default();
            pages.push((place, key.slug.replace('-', " "), aliases));
        }
        // A suggestion that the user adopted is not suggested again.
        let known = |suggested: &Trigger| {
            let own = triggers
                .iter()
                .filter(|own| own.load.iter().any(|page| suggested.load.contains(page)));
            let words: BTreeSet<String> =
                own.flat_map(|own| &own.patterns).map(|word| word.to_lowercase()).collect();
            suggested.patterns.iter().all(|word| words.contains(&word.to_lowercase()))
        };
        let suggested: Vec<Trigger> = trigger::suggest_triggers(&pages)
            .into_iter()
            .filter(|suggested| !known(suggested))
            .collect();
        triggers.extend(suggested);
        Ok((triggers, complaints))
    }

    /// Every trigger, as output.
    pub async fn list_triggers(&self) -> Result<TriggerList> {
        let (triggers, complaints) = self.read_triggers().await?;
        let told = triggers.into_iter().map(|trigger| TriggerInfo {
            patterns: trigger.patterns,
            load: trigger.load.iter().map(ToString::to_string).collect(),
            by_hand: trigger.by_hand,
        });
        Ok(TriggerList { triggers: told.collect(), complaints })
    }

    /// Appends the suggested triggers to `recall/triggers.json`, and returns how many were new.
    pub async fn adopt_suggested_triggers(&self) -> Result<usize> {
        let place = doc_path(layout::TRIGGERS)?;
        let known = self.store.document(&place).await?;
        let (triggers, complaints) = self.read_triggers().await?;
        if let Some(complaint) = complaints.first() {
            return Err(crate::Error::Damaged(format!(
                "{complaint}; correct the file first, nothing was written"
            )));
        }
        let named: BTreeSet<&DocPath> = triggers
            .iter()
            .filter(|trigger| trigger.by_hand)
            .flat_map(|trigger| &trigger.load)
            .collect();
        let new = |trigger: &&Trigger| {
            trigger.by_hand || !trigger.load.iter().any(|page| named.contains(page))
        };
        let kept: Vec<Trigger> = triggers.iter().filter(new).cloned().collect();
        let added = kept.iter().filter(|trigger| !trigger.by_hand).count();
        if added > 0 {
            self.store
                .compare_and_swap(
                    &place,
                    trigger::render_triggers(&kept).as_bytes(),
                    ContentVersion::of(known.as_deref()),
                )
                .await?;
        }
        Ok(added)
    }

    /// Builds the pack of a session start (L17, K6): identity files, the recall pack, the saved
    /// state, the logs of today and yesterday, and for a main session MEMORY.md. Missing parts are
    /// skipped.
    pub async fn build_session_start(
        &self,
        kind: SessionKind,
        room: usize,
        date: Option<Date>,
    ) -> Result<Pack> {
        let vantage = self.as_of(date)?;
        Ok(self
            .build_client_session_start(
                vantage,
                kind,
                PackBudget { chars: room, tokens: None },
                None,
            )
            .await?
            .0)
    }

    /// Builds the session start for a client's session, limited to its project, with a reason for
    /// each item.
    pub(crate) async fn build_client_session_start(
        &self,
        vantage: AsOf,
        kind: SessionKind,
        room: PackBudget,
        own: Option<&StartingSession<'_>>,
    ) -> Result<(Pack, Vec<PackItem>)> {
        let today = vantage.now.day();
        let yesterday = pyramid::full_text_start(today);
        let scopes: Vec<Scope> = own
            .and_then(|own| own.project)
            .map(|name| Scope::Project(name.to_owned()))
            .into_iter()
            .collect();
        let mut openings = Vec::new();
        let file =
            async |title: &str, source: String, openings: &mut Vec<SessionSection>| -> Result<()> {
                if let Some(bytes) = self.store.document(&doc_path(&source)?).await? {
                    // The user's own files may contain text that a model must not see.
                    openings.push(SessionSection {
                        title: title.into(),
                        source,
                        text: self.filter_without_report(&String::from_utf8_lossy(&bytes)),
                    });
                }
                Ok(())
            };
        file("Who I am", "SOUL.md".into(), &mut openings).await?;
        file("Who you are", "USER.md".into(), &mut openings).await?;
        let at = openings.len();
        let gathered = self.read_recall_input(vantage, &scopes).await?;
        let (words, ages) = (self.policy.recall.section_words(), self.policy.decay.ages());
        let left = own.and_then(|own| own.state);
        if let Some(text) = left {
            openings.push(SessionSection {
                title: "Where this session stood".into(),
                source: SESSION_STATE_LABEL.into(),
                text: self.filter_without_report(text),
            });
        }
        file("Saved state", layout::STATE.into(), &mut openings).await?;
        if let Some(own) = own {
            // Skip a state that was saved for another project's session, or that is in the pack
            // already.
            let foreign = |text: &str| {
                working::state_project(text).is_some_and(|made_in| made_in != own.project)
            };
            openings.retain(|opening| {
                opening.source != layout::STATE
                    || !(foreign(&opening.text)
                        || left.is_some_and(|left| left.trim() == opening.text.trim()))
            });
        }
        file("Today's log", DocPath::log(today).to_string(), &mut openings).await?;
        file("Yesterday's log", DocPath::log(yesterday).to_string(), &mut openings).await?;
        // The headlines of recent summaries, newest first: today's sessions and the days before.
        let span = Days { first: days_before(today, 7), last: today };
        let tier = if own.is_some() { Tier::Session } else { Tier::Day };
        let mut recent = self
            .store
            .summaries(&SummaryQuery::for_tier_within(tier, span).as_of(vantage.until))
            .await?;
        let pressed: Vec<Summary> = recent
            .extract_if(.., |summary| own.is_some() && summary.period.days().first == today)
            .collect();
        // On a busy day only sessions with a summary: summarizing the rest takes longer than a
        // client waits.
        let quiet = own.is_none()
            || self
                .store
                .read_tail(&DocPath::records(RecordKind::Message, today), MAX_INLINE_SUMMARY_BYTES)
                .await?
                .1;
        recent.extend(if quiet {
            self.load_todays_sessions(today, &pressed, vantage).await?
        } else {
            pressed
        });
        recent.reverse();
        if let Some(own) = own {
            // A day summary covers every project. Use the sessions of this project, and those
            // without a project, instead.
            recent.retain(|summary| {
                let name = summary.session.as_ref().and_then(|key| key.session.as_deref());
                let theirs = name.and_then(|name| own.projects.get(name)).map(String::as_str);
                name != Some(own.session) && (theirs.is_none() || theirs == own.project)
            });
            recent.truncate(MAX_RECENT_SESSIONS);
        }
        let lines: Vec<String> = recent
            .iter()
            .map(|summary| format!("- {}: {}", summary.period, summary.headline))
            .collect();
        openings.push(SessionSection {
            title: "The last days".into(),
            source: "primers/daily".into(),
            text: lines.join("\n"),
        });
        if kind == SessionKind::Main {
            file("Long-term notes", "MEMORY.md".into(), &mut openings).await?;
        }
        // The recall pack gets what the others leave, and never less than its share.
        let others: usize = openings
            .iter()
            .map(|opening| opening.text.chars().count().min(MIN_SECTION_CHARS) + 100)
            .sum();
        let known = gathered.pack_input();
        let pack = room.fit_pack(|chars| {
            let share = (chars * RECALL_PERCENT / 100).max(chars.saturating_sub(others + 300));
            let (mut text, left_out, sources) =
                recall::condensed_recall(today, &known, words, ages, share);
            if own.is_some() && sources.is_empty() && known.troubles.is_empty() {
                // A pack of headings only is useless.
                text.clear();
            }
            let mut openings = openings.clone();
            openings.insert(
                at,
                SessionSection { title: "Recall".into(), source: layout::RECALL.into(), text },
            );
            let mut pack = session::session_start_pack(today, &openings, chars);
            pack.left_out.extend(
                left_out
                    .into_iter()
                    .map(|left| Omission::new(format!("recall: {}", left.what), left.why)),
            );
            pack.sources.extend(sources);
            pack
        });
        let entries: BTreeMap<EventId, &LedgerEntry> = gathered
            .statements
            .iter()
            .chain(&gathered.open)
            .map(|entry| (entry.event.id, entry))
            .collect();
        let why =
            |source: &String| match source.parse().ok().and_then(|id: EventId| entries.get(&id)) {
                Some(entry) if entry.event.priority == Priority::P0 => {
                    PackItem::new(source, format!("P0 {}, {}", entry.event.kind, entry.event.scope))
                }
                Some(entry) if entry.is_open_loop() => {
                    PackItem::new(source, format!("open commitment, {}", entry.event.scope))
                }
                Some(entry) => PackItem::new(
                    source,
                    format!("{} {}, {}", entry.event.priority, entry.event.kind, entry.event.scope),
                ),
                None => PackItem::new(source, "read at every start"),
            };
        let items = pack.sources.iter().map(why).collect();
        Ok((pack, items))
    }
}

/// A starting session, as its client reports it.
pub(crate) struct StartingSession<'a> {
    pub session: &'a str,
    pub project: Option<&'a str>,
    /// Its working state, if it continues.
    pub state: Option<&'a str>,
    /// The projects of other sessions.
    pub projects: &'a BTreeMap<String, String>,
}

/// The size limit of a pack.
#[derive(Debug, Clone, Copy)]
pub struct PackBudget {
    pub chars: usize,
    /// The token limit, by any tokenizer.
    pub tokens: Option<usize>,
}

impl PackBudget {
    /// Builds a pack that fits: with fewer characters if it has too many tokens.
    fn fit_pack(self, make: impl Fn(usize) -> Pack) -> Pack {
        let mut chars = self.chars;
        loop {
            let pack = make(chars);
            if chars < MIN_PACK_CHARS
                || self.tokens.is_none_or(|most| budget::tokens_upper_bound(&pack.text) <= most)
            {
                return pack;
            }
            chars = chars * 4 / 5;
        }
    }
}

/// An item of a pack, and the reason it is there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PackItem {
    /// An event, a page or a file.
    pub what: String,
    pub why: String,
}

impl PackItem {
    fn new(what: impl ToString, why: impl Into<String>) -> Self {
        Self { what: what.to_string(), why: why.into() }
    }
}

/// Whether an event is visible in these scopes.
fn is_visible(event: &Event, scopes: &[Scope]) -> bool {
    // Statements about the layout of a page are not recalled.
    (event.scope == Scope::Everywhere || scopes.contains(&event.scope))
        && !page::is_about_page(event)
}

/// The text by which a statement is found.
fn search_text(event: &Event) -> String {
    let thing = event.entity.as_deref().unwrap_or_default().replace(['_', '-'], " ");
    format!("{} {thing} {}", event.content, event.tags.join(" "))
}

/// The event ids in a text.
fn ids_in(text: &str) -> Vec<EventId> {
    let ids = text.match_indices("EVT-").filter_map(|(at, _)| {
        let rest = &text[at..];
        let end = rest[4..]
            .find(|c: char| !c.is_ascii_digit() && c != '-')
            .map_or(rest.len(), |end| end + 4);
        rest[..end].trim_end_matches('-').parse().ok()
    });
    let found: BTreeSet<EventId> = ids.collect();
    found.into_iter().collect()
}

/// The content of a recall pack.
struct RecallContent {
    day: Date,
    statements: Vec<LedgerEntry>,
    open: Vec<LedgerEntry>,
    conflicts: Vec<Conflict>,
    log: String,
    about: BTreeMap<String, String>,
    troubles: Vec<String>,
    quarantined: usize,
}

impl RecallContent {
    fn pack_input(&self) -> RecallInput<'_> {
        RecallInput {
            statements: &self.statements,
            open: &self.open,
            conflicts: &self.conflicts,
            log: &self.log,
            about: &self.about,
            troubles: &self.troubles,
            quarantined: self.quarantined,
            not_loaded: 0,
        }
    }
}
