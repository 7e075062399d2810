//! The daily log: appends to it, and imports extracts that others wrote into it (L1).
//!
//! Invariant: an extract becomes one event, however often the logs are scanned.

use icecore_domain::event::{Event, EventDraftError};
use icecore_domain::forget::is_forgotten;
use icecore_domain::id::EventId;
use icecore_domain::layout::{DocPath, FileKind};
use icecore_domain::ledger::LedgerEntry;
use icecore_domain::ledger::query::EventQuery;
use icecore_domain::priority_extracts;
use icecore_domain::sanitize;
use icecore_store::{ContentVersion, Error as StoreError, ErrorKind as StoreErrorKind};
use jiff::ToSpan;
use serde::Serialize;

use crate::{MAX_ATTEMPTS, Memory, Result, SecretCounts};

/// The maximum size of one log line's text.
const MAX_LOG_LINE_BYTES: usize = 1024 * 1024;

/// A line that was added to a log.
#[derive(Debug, Serialize)]
pub struct LogReport {
    /// The path of the log in the vault.
    pub path: String,
    /// The appended text.
    pub appended: String,
    /// The number of control characters that were removed.
    pub characters_removed: usize,
    /// Secrets that were replaced, by kind.
    pub secrets: SecretCounts,
}

/// The result of scanning logs.
#[derive(Debug, Default, Serialize)]
pub struct LogScanReport {
    /// Extracts that became events.
    #[serde(rename = "taken")]
    pub imported: Vec<ImportedExtract>,
    /// Secrets that were replaced in the logs, by kind.
    pub secrets: SecretCounts,
    /// What could not be read or imported, and why.
    pub complaints: Vec<String>,
}

/// An extract that became an event.
#[derive(Debug, Serialize)]
pub struct ImportedExtract {
    pub event: Event,
    /// The log and line of the extract.
    pub place: String,
    /// The event it supersedes, because the line was edited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replaces: Option<EventId>,
}

impl Memory {
    /// Appends a line with the time to today's log.
    pub async fn append_to_log(&self, text: &str) -> Result<LogReport> {
        self.refresh_tombstones().await?;
        let mut secrets = SecretCounts::new();
        let cleaned = sanitize::clean(&self.filter_and_count(text, &mut secrets));
        self.refuse_forgotten(&cleaned.text)?;
        if cleaned.text.is_empty() {
            return Err(EventDraftError::Empty.into());
        }
        if cleaned.text.len() > MAX_LOG_LINE_BYTES {
            return Err(crate::Error::LimitExceeded(format!(
                "the text has {} bytes, the maximum of a log line is {MAX_LOG_LINE_BYTES}; split it",
                cleaned.text.len()
            )));
        }
        let now = self.now();
        let path = DocPath::log(now.day());
        let mut last = StoreError::conflict(path.to_string());
        for _ in 0..MAX_ATTEMPTS {
            let so_far = self.store.document(&path).await?;
            let from = ContentVersion::of(so_far.as_deref());
            let so_far = so_far.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
            let ended = so_far.as_ref().is_none_or(|text| text.is_empty() || text.ends_with('\n'));
            let appended =
                priority_extracts::format_log_line(so_far.as_deref(), &cleaned.text, now);
            // The store ends an unfinished line by itself.
            let bytes = if ended {
                appended.as_str()
            } else {
                appended.strip_prefix('\n').unwrap_or(&appended)
            };
            match self.store.append_if_unchanged(&path, bytes.as_bytes(), from).await {
                Err(moved @ StoreError { kind: StoreErrorKind::Conflict, .. }) => last = moved,
                other => {
                    other?;
                    return Ok(LogReport {
                        path: path.to_string(),
                        appended: bytes.to_owned(),
                        characters_removed: cleaned.removed,
                        secrets,
                    });
                }
            }
        }
        Err(last.into())
    }

    /// Imports extracts of the last days' logs that are not in the ledger yet.
    pub async fn scan_recent_logs(&self) -> LogScanReport {
        let today = self.now().day();
        let days = (0..self.policy.log.scan_days)
            .filter_map(|back| today.checked_sub(i32::from(back).days()).ok());
        self.scan_logs(days.map(DocPath::log).collect()).await
    }

    /// Imports extracts of all logs that are not in the ledger yet.
    pub async fn scan_all_logs(&self) -> Result<LogScanReport> {
        let today = self.now().day();
        let mut paths = self.store.documents("memory").await?;
        // A log of a future day is a plan; it is imported when the day has come.
        paths.retain(|path| matches!(path.file_kind(), FileKind::Log(day) if day <= today));
        Ok(self.scan_logs(paths).await)
    }

    async fn scan_logs(&self, paths: Vec<DocPath>) -> LogScanReport {
        let mut noticed = LogScanReport::default();
        // Events are recorded as of now, so a look at the past must not add any.
        match self.is_looking_back().await {
            Ok(false) => {}
            Ok(true) => return noticed,
            Err(error) => {
                noticed.complaints.push(error.to_string());
                return noticed;
            }
        }
        let mut unseen = match self.store.changed_since_seen(&paths).await {
            Ok(found) => found,
            // Only one of them is unreadable; the others are scanned.
            Err(_) => {
                let mut unseen = Vec::new();
                for path in &paths {
                    match self.store.changed_since_seen(std::slice::from_ref(path)).await {
                        Ok(found) => unseen.extend(found),
                        Err(error) => noticed.complaints.push(error.to_string()),
                    }
                }
                unseen
            }
        };
        unseen.sort_by(|a, b| a.0.cmp(&b.0));
        if let Err(error) = self
            .hide_secrets_in_files(unseen.iter().map(|(path, _)| path), &mut noticed.secrets)
            .await
        {
            noticed.complaints.push(format!("the logs could not be scanned for secrets: {error}"));
        }
        let mut seen = Vec::new();
        for (path, stamp) in unseen {
            match self.import_extracts(&path).await {
                Ok((taken, complaints)) => {
                    noticed.imported.extend(taken);
                    noticed.complaints.extend(complaints);
                    seen.push((path, stamp));
                }
                Err(error) => noticed
                    .complaints
                    .push(format!("the extracts of {path} were not imported: {error}")),
            }
        }
        if let Err(error) = self.store.mark_seen(&seen).await {
            noticed.complaints.push(error.to_string());
        }
        noticed
    }

    async fn import_extracts(&self, path: &DocPath) -> Result<(Vec<ImportedExtract>, Vec<String>)> {
        let text = self.store.document(path).await?.unwrap_or_default();
        let read = priority_extracts::parse_extracts(&String::from_utf8_lossy(&text));
        let mut complaints: Vec<String> =
            read.complaints.iter().map(|(line, what)| format!("{path}:{line} {what}")).collect();
        if std::str::from_utf8(&text).is_err() {
            complaints.push(format!(
                "{path} is not UTF-8; what could not be read is replaced by \u{fffd}"
            ));
        }
        let now = self.now();
        let mut found = read.found;
        found
            .iter_mut()
            .for_each(|extract| extract.text = self.filter_without_report(&extract.text));
        found.retain(|extract| !is_forgotten(&extract.text));
        found.retain(|extract| {
            let fit = priority_extracts::ExtractImport { extract: extract.clone(), replaces: None }
                .draft(path, now)
                .sanitize();
            complaints.extend(
                fit.as_ref()
                    .err()
                    .map(|unfit| format!("{path}:{} was not imported: {unfit}", extract.line)),
            );
            fit.is_ok()
        });
        if found.is_empty() {
            return Ok((Vec::new(), complaints));
        }
        let known = EventQuery { source: Some(path.to_string()), ..EventQuery::all() };
        // An extract whose event moved to an archive was imported already.
        let gone: Vec<EventId> =
            self.store.archived_events(&known).await?.iter().map(|event| event.id).collect();
        let gone = if gone.is_empty() {
            Vec::new()
        } else {
            self.load_events_with_archives(&gone).await?
        };
        let mut takings = Vec::new();
        let events = self
            .append_planned_for_query(&known, |known| {
                let mut known: Vec<LedgerEntry> =
                    gone.iter().chain(&known.entries).cloned().collect();
                known.sort_by_key(|entry| entry.event.id);
                known.dedup_by_key(|entry| entry.event.id);
                takings = priority_extracts::plan_imports(&found, &known);
                takings.iter().map(|taking| Ok(taking.draft(path, now).sanitize()?.0)).collect()
            })
            .await?;
        let place =
            |taking: &priority_extracts::ExtractImport| format!("{path}:{}", taking.extract.line);
        let taken = events.into_iter().zip(&takings).map(|(event, taking)| ImportedExtract {
            event,
            place: place(taking),
            replaces: taking.replaces,
        });
        Ok((taken.collect(), complaints))
    }
}
