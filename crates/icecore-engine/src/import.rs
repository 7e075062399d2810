//! Import of other programs' histories: messages pass the capture filter like everything else, and
//! facts become events.
//!
//! The progress of a file is stored after its records are safe. A run that crashed reads some
//! records again and recognizes them; lost progress costs time only.

use std::collections::{HashMap, HashSet};

use icecore_domain::event::{
    EventDraft, EventDraftError, EventType, Origin, Priority, SAID_AT_FIELD, Scope,
    guess_event_type,
};
use icecore_domain::id::EventId;
use icecore_domain::import::ImportedFact;
use icecore_domain::layout::{self, DocPath};
use icecore_domain::ledger::query::EventQuery;
use icecore_domain::migrate::OLD_ID_FIELD;
use icecore_domain::record::{IncomingMessage, Record};
use icecore_domain::sanitize;
use icecore_store::Error as StoreError;
use serde::{Deserialize, Serialize};

use crate::capture::{CaptureDefaults, CaptureReport};
use crate::{Memory, Result};

/// The number of events that are appended at once.
const APPEND_BATCH_EVENTS: usize = 2_000;

/// The import progress of a file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImportProgress {
    /// Its path, or the path of an archive, `!` and the name within.
    pub path: String,
    pub format: String,
    /// The size of the file.
    pub size: u64,
    /// Its modification time, in nanoseconds since 1970.
    pub modified: i128,
    /// The bytes that were read.
    pub bytes: u64,
    /// The pieces that were read.
    pub pieces: usize,
    /// A hash of the last of these bytes, to recognize the file.
    pub tail: String,
    /// It was read completely.
    pub done: bool,
    /// The reader's state, to continue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left: Option<String>,
}

/// Messages that passed the capture filter and are not stored yet.
#[derive(Debug, Default)]
pub struct FilteredBatch {
    pub records: Vec<Record>,
    /// What the filter did.
    pub report: CaptureReport,
}

/// The facts that were imported before.
#[derive(Debug, Default)]
pub struct ImportedFacts {
    /// By their id in the source.
    by_source_id: HashMap<String, (EventId, String)>,
    /// By their text.
    texts: HashSet<String>,
}

/// The plan of a fact import.
#[derive(Debug, Default)]
pub struct FactImportPlan {
    /// New or changed facts.
    pub drafts: Vec<EventDraft>,
    /// The number of facts that are known.
    pub known: usize,
    /// Facts that cannot be imported, and why.
    pub complaints: Vec<String>,
}

impl Memory {
    /// Passes messages through the capture filter. `place` names the source of the message at a
    /// position.
    pub async fn filter_for_import(
        &self,
        message: Vec<IncomingMessage>,
        defaults: &CaptureDefaults,
        place: &dyn Fn(usize) -> String,
    ) -> Result<FilteredBatch> {
        self.refresh_tombstones().await?;
        let mut gated = FilteredBatch::default();
        let pauses = self.pauses().await?;
        let records =
            self.filter_messages(message, defaults, self.now(), &pauses, place, &mut gated.report);
        gated.records = self.match_stored_ids(records, false, &mut gated.report).await?;
        Ok(gated)
    }

    /// Stores filtered messages.
    pub async fn append_filtered(&self, gated: FilteredBatch) -> Result<CaptureReport> {
        let FilteredBatch { records, mut report } = gated;
        self.append_records(records, &mut report).await?;
        Ok(report)
    }

    /// Reads the facts that were imported before.
    pub async fn imported_facts(&self) -> Result<ImportedFacts> {
        let mut known = ImportedFacts::default();
        let archived = self.store.archived_events(&EventQuery::all()).await?;
        let ledger = self.load_ledger().await?;
        for event in archived.iter().chain(ledger.entries().iter().map(|entry| &entry.event)) {
            let key = sanitize::sameness_key(&event.content);
            if let Some(was) = event.extra_field::<String>(OLD_ID_FIELD) {
                known.by_source_id.insert(was, (event.id, key.clone()));
            }
            if event.is_statement() {
                known.texts.insert(key);
            }
        }
        Ok(known)
    }

    /// Plans the import of facts; their text passes the capture filter.
    pub fn plan_fact_import(
        &self,
        facts: Vec<ImportedFact>,
        known: &ImportedFacts,
    ) -> Result<FactImportPlan> {
        let mut out = FactImportPlan::default();
        let mut seen = HashSet::new();
        for fact in facts {
            let (was, source) = (fact.external_id.clone(), fact.source.clone());
            let draft = match clean_draft(self.draft_of_fact(fact)?) {
                Ok(draft) => draft,
                Err(unfit) => {
                    out.complaints
                        .push(format!("{} was not imported: {unfit}", sanitize::one_line(&source)));
                    continue;
                }
            };
            let key = sanitize::sameness_key(&draft.content);
            let before = known.by_source_id.get(&was);
            let same = before.is_some_and(|(_, before)| *before == key);
            // A statement that is known, from any source, is not repeated.
            if same || (before.is_none() && known.texts.contains(&key)) || !seen.insert(key) {
                out.known += 1;
                continue;
            }
            out.drafts.push(
                EventDraft { supersedes: before.map(|(id, _)| *id).into_iter().collect(), ..draft }
                    .with_extra_field(OLD_ID_FIELD, &was),
            );
        }
        Ok(out)
    }

    fn draft_of_fact(&self, fact: ImportedFact) -> Result<EventDraft> {
        let text = self.filter_without_report(&fact.text);
        let kind = fact.kind.unwrap_or_else(|| guess_event_type(&text));
        let mut priority = self.policy.default_priority()?;
        let mut kind = kind;
        if fact.origin == Origin::Import {
            // Another person's memory makes no rules here.
            priority = priority.max(Priority::P2);
            if matches!(kind, EventType::Constraint | EventType::Preference | EventType::Procedure)
            {
                kind = EventType::Fact;
            }
        }
        let draft = EventDraft {
            entity: fact.entity,
            entity_kind: fact.entity_kind,
            tags: fact.tags.into_iter().take(16).collect(),
            source: fact.source,
            scope: fact.project.map_or(Scope::Everywhere, Scope::Project),
            origin: fact.origin,
            ..EventDraft::new(self.now(), kind, priority, text)
        };
        Ok(match fact.learned_at {
            Some(said) => draft
                .with_extra_field(SAID_AT_FIELD, &self.zone.moment(said.timestamp()).to_string()),
            None => draft,
        })
    }

    /// Appends facts and adds them to the known ones.
    pub async fn import_facts(
        &self,
        drafts: Vec<EventDraft>,
        known: &mut ImportedFacts,
    ) -> Result<usize> {
        let mut learnt = 0;
        let mut rest = drafts;
        while !rest.is_empty() {
            let later = rest.split_off(rest.len().min(APPEND_BATCH_EVENTS));
            for event in self.store.append(rest, None).await? {
                let key = sanitize::sameness_key(&event.content);
                if let Some(was) = event.extra_field::<String>(OLD_ID_FIELD) {
                    known.by_source_id.insert(was, (event.id, key.clone()));
                }
                known.texts.insert(key);
                learnt += 1;
            }
            rest = later;
        }
        Ok(learnt)
    }

    /// The import progress of all files.
    pub async fn import_progress(&self) -> Result<HashMap<String, ImportProgress>> {
        let text = self.store.document(&import_progress_path()?).await?.unwrap_or_default();
        let lines = text
            .split(|&byte| byte == b'\n')
            .filter_map(|line| serde_json::from_slice::<ImportProgress>(line).ok());
        Ok(lines.map(|line| (line.path.clone(), line)).collect())
    }

    /// Stores the import progress of files; their records must be stored by then.
    pub async fn save_import_progress(&self, read: &[ImportProgress]) -> Result<()> {
        // A file whose name was forgotten gets no entry. It is read again each time, which costs
        // time only.
        let is_known = |line: &String| self.scrub_text(line.clone()) == *line;
        let lines: String = read
            .iter()
            .filter_map(|line| serde_json::to_string(line).ok())
            .filter(is_known)
            .map(|line| line + "\n")
            .collect();
        if lines.is_empty() {
            return Ok(());
        }
        Ok(self.store.append_to_document(&import_progress_path()?, lines.as_bytes()).await?)
    }
}

fn import_progress_path() -> Result<DocPath> {
    Ok(layout::IMPORTS.parse().map_err(StoreError::from)?)
}

/// The draft without the fields that would make it invalid.
fn clean_draft(draft: EventDraft) -> std::result::Result<EventDraft, EventDraftError> {
    match draft.clone().sanitize() {
        Ok((draft, _)) => Ok(draft),
        Err(EventDraftError::InvalidEntityName { .. }) => {
            clean_draft(EventDraft { entity: None, entity_kind: None, ..draft })
        }
        Err(unfit) => Err(unfit),
    }
}
