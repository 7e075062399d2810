//! The checkpoint of consolidation (L11): which events are on pages, and from which text events
//! were extracted.
//!
//! Invariant: a lost or broken checkpoint costs work, never memory, since repeated work is
//! recognized.

use std::collections::BTreeMap;

use icecore_domain::calendar::Moment;
use icecore_domain::cascade::plan::PlanningInput;
use icecore_domain::hash::Hash;
use icecore_domain::id::EventId;
use icecore_domain::layout::{self, DocPath};
use icecore_domain::record::SessionStats;
use icecore_store::Error as StoreError;
use jiff::civil::Date;
use serde::{Deserialize, Serialize};

use crate::{Memory, Result};

/// The content of `memory/checkpoint.json`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Checkpoint {
    /// The last event that is on pages and memory files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_processed_event_id: Option<String>,
    /// When consolidation last completed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_run_ts: Option<String>,
    /// The total number of processed events.
    #[serde(default)]
    pub events_processed: u64,
    /// The size of the ledger after a compaction that could not reach its limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settled_lines: Option<usize>,
    /// What was extracted from the last days.
    #[serde(default)]
    distilled: ExtractionMarks,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct ExtractionMarks {
    /// Sessions, by day, conversation and name.
    #[serde(default)]
    sessions: BTreeMap<String, SessionMark>,
    /// Daily logs, by day.
    #[serde(default)]
    logs: BTreeMap<String, LogMark>,
}

/// How far a session was processed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct SessionMark {
    /// A digest of all its records.
    sum: String,
    /// When the newest of them was captured.
    until: String,
}

/// How far a log was processed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct LogMark {
    bytes: usize,
    sum: String,
}

fn session_name(stat: &SessionStats) -> String {
    format!(
        "{}/{}/{}",
        stat.key.day,
        stat.key.conversation,
        stat.key.session.as_deref().unwrap_or_default()
    )
}

/// The digest of a session's records; it changes whenever one is added or edited.
fn session_digest(stat: &SessionStats) -> String {
    PlanningInput::session_source_hash(stat).short_hex()
}

impl Checkpoint {
    /// The last event that is on pages.
    pub fn last_event(&self) -> Option<EventId> {
        self.last_processed_event_id.as_deref().and_then(|id| id.parse().ok())
    }

    /// When consolidation last completed.
    pub fn last_run(&self) -> Option<Moment> {
        self.last_run_ts.as_deref().and_then(Moment::parse).map(|read| read.moment)
    }

    /// Whether the session has records that were not processed; if so, from which capture on.
    pub fn new_records_from(&self, stat: &SessionStats) -> Option<Option<Moment>> {
        match self.distilled.sessions.get(&session_name(stat)) {
            Some(mark) if mark.sum == session_digest(stat) => None,
            Some(mark) => Some(Moment::parse(&mark.until).map(|read| read.moment)),
            None => Some(None),
        }
    }

    /// Marks the session as processed up to now; its newest record was captured at `until`.
    pub fn mark_session_processed(&mut self, stat: &SessionStats, until: Moment) {
        let mark = SessionMark { sum: session_digest(stat), until: until.to_string() };
        self.distilled.sessions.insert(session_name(stat), mark);
    }

    /// The offset of the unprocessed part of a log; `None` if all of it was processed.
    pub fn unprocessed_from(&self, day: Date, log: &[u8]) -> Option<usize> {
        let from = match self.distilled.logs.get(&day.to_string()) {
            Some(mark)
                if log
                    .get(..mark.bytes)
                    .is_some_and(|known| Hash::of(known).short_hex() == mark.sum) =>
            {
                mark.bytes
            }
            // The log was rewritten; known extracts are recognized.
            _ => 0,
        };
        (from < log.len()).then_some(from)
    }

    /// Marks a log as processed up to now.
    pub fn mark_log_processed(&mut self, day: Date, log: &[u8]) {
        self.distilled
            .logs
            .insert(day.to_string(), LogMark { bytes: log.len(), sum: Hash::of(log).short_hex() });
    }

    /// Drops the marks of days before `day`, which are not read again.
    pub fn drop_marks_before(&mut self, day: Date) {
        let day = day.to_string();
        self.distilled.sessions.retain(|name, _| name.as_str() >= day.as_str());
        self.distilled.logs.retain(|name, _| *name >= day);
    }
}

impl Memory {
    fn checkpoint_path() -> Result<DocPath> {
        Ok(layout::CHECKPOINT.parse().map_err(StoreError::from)?)
    }

    /// Loads the checkpoint; an unreadable one counts as empty.
    pub(crate) async fn load_checkpoint(&self) -> Result<Checkpoint> {
        let text = self.store.document(&Self::checkpoint_path()?).await?.unwrap_or_default();
        Ok(serde_json::from_slice(&text).unwrap_or_default())
    }

    /// Saves the checkpoint if it changed.
    pub(crate) async fn save_checkpoint(&self, checkpoint: &Checkpoint) -> Result<()> {
        let path = Self::checkpoint_path()?;
        let text = format!("{}\n", serde_json::to_string_pretty(checkpoint).unwrap_or_default());
        if self.store.document(&path).await?.as_deref() != Some(text.as_bytes()) {
            self.store.put(&path, text.as_bytes()).await?;
        }
        Ok(())
    }
}
