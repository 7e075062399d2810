//! Where consolidation stands (L11): which events the pages have taken up, and what has been
//! distilled.
//!
//! A lost or broken checkpoint costs work, never memory: what was done is recognised when it is
//! done again.

use std::collections::BTreeMap;

use icecore_domain::calendar::Moment;
use icecore_domain::cascade::plan::Known;
use icecore_domain::hash::Hash;
use icecore_domain::id::EventId;
use icecore_domain::layout::{self, DocPath};
use icecore_domain::record::SessionStat;
use icecore_store::Error as StoreError;
use jiff::civil::Date;
use serde::{Deserialize, Serialize};

use crate::{Memory, Result};

/// As it is kept in `memory/checkpoint.json`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Checkpoint {
    /// The last event that pages and memories have taken up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_processed_event_id: Option<String>,
    /// When consolidation last came to its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_run_ts: Option<String>,
    /// How many events it has taken up in all.
    #[serde(default)]
    pub events_processed: u64,
    /// How many events a compaction left that could not make do with fewer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settled_lines: Option<usize>,
    /// What has been distilled of the last days.
    #[serde(default)]
    distilled: Distilled,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Distilled {
    /// Sessions, by day, conversation and name.
    #[serde(default)]
    sessions: BTreeMap<String, SessionMark>,
    /// Daily logs, by day.
    #[serde(default)]
    logs: BTreeMap<String, LogMark>,
}

/// How far a session has been distilled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct SessionMark {
    /// What all its records came to.
    sum: String,
    /// When the newest of them was captured.
    until: String,
}

/// How far a log has been distilled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct LogMark {
    bytes: usize,
    sum: String,
}

fn session_name(stat: &SessionStat) -> String {
    format!(
        "{}/{}/{}",
        stat.key.day,
        stat.key.conversation,
        stat.key.session.as_deref().unwrap_or_default()
    )
}

/// What the records of a session come to: changes whenever one is added or reworded.
fn session_sum(stat: &SessionStat) -> String {
    Known::session_source(stat).short()
}

impl Checkpoint {
    /// The last event that was taken up.
    pub fn last_event(&self) -> Option<EventId> {
        self.last_processed_event_id.as_deref().and_then(|id| id.parse().ok())
    }

    /// When consolidation last came to its end.
    pub fn last_run(&self) -> Option<Moment> {
        self.last_run_ts.as_deref().and_then(Moment::read).map(|read| read.moment)
    }

    /// Whether the session has records that were not distilled; if so, from which capture on.
    pub fn is_new(&self, stat: &SessionStat) -> Option<Option<Moment>> {
        match self.distilled.sessions.get(&session_name(stat)) {
            Some(mark) if mark.sum == session_sum(stat) => None,
            Some(mark) => Some(Moment::read(&mark.until).map(|read| read.moment)),
            None => Some(None),
        }
    }

    /// Notes that the session has been distilled as it stands; the newest of its records was
    /// captured at `until`.
    pub fn note_session(&mut self, stat: &SessionStat, until: Moment) {
        let mark = SessionMark { sum: session_sum(stat), until: until.to_string() };
        self.distilled.sessions.insert(session_name(stat), mark);
    }

    /// Where the part of a log begins that was not distilled yet; none if there is no such part.
    pub fn new_from(&self, day: Date, log: &[u8]) -> Option<usize> {
        let from = match self.distilled.logs.get(&day.to_string()) {
            Some(mark)
                if log
                    .get(..mark.bytes)
                    .is_some_and(|known| Hash::of(known).short() == mark.sum) =>
            {
                mark.bytes
            }
            // Somebody has rewritten it; what is still there is recognised.
            _ => 0,
        };
        (from < log.len()).then_some(from)
    }

    /// Notes that a log has been distilled as it stands.
    pub fn note_log(&mut self, day: Date, log: &[u8]) {
        self.distilled
            .logs
            .insert(day.to_string(), LogMark { bytes: log.len(), sum: Hash::of(log).short() });
    }

    /// Forgets what lies before `day`: it is not looked at again.
    pub fn forget_before(&mut self, day: Date) {
        let day = day.to_string();
        self.distilled.sessions.retain(|name, _| name.as_str() >= day.as_str());
        self.distilled.logs.retain(|name, _| *name >= day);
    }
}

impl Memory {
    fn checkpoint_path() -> Result<DocPath> {
        Ok(layout::CHECKPOINT.parse().map_err(StoreError::Path)?)
    }

    /// Where consolidation stands; one that cannot be read says nothing.
    pub(crate) async fn checkpoint(&self) -> Result<Checkpoint> {
        let text = self.store.document(&Self::checkpoint_path()?).await?.unwrap_or_default();
        Ok(serde_json::from_slice(&text).unwrap_or_default())
    }

    /// Writes it down, if it says something new.
    pub(crate) async fn keep_checkpoint(&self, checkpoint: &Checkpoint) -> Result<()> {
        let path = Self::checkpoint_path()?;
        let text = format!("{}\n", serde_json::to_string_pretty(checkpoint).unwrap_or_default());
        if self.store.document(&path).await?.as_deref() != Some(text.as_bytes()) {
            self.store.put(&path, text.as_bytes()).await?;
        }
        Ok(())
    }
}
