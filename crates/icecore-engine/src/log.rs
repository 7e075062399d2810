//! The daily log: appends to it, and imports extracts that others wrote into it (L1).
//!
//! Invariant: an extract becomes one event, however often the logs are scanned.

use icecore_domain::event::{Event, Unfit};
use icecore_domain::extract;
use icecore_domain::forget::is_forgotten;
use icecore_domain::id::EventId;
use icecore_domain::layout::{DocPath, Nature};
use icecore_domain::ledger::Entry;
use icecore_domain::ledger::query::EventQuery;
use icecore_domain::plain;
use icecore_store::{ContentVersion, Error as StoreError};
use jiff::ToSpan;
use serde::Serialize;

use crate::{ATTEMPTS, Memory, Result, Secrets};

/// The maximum size of one log line's text.
const MAX_LOG_BYTES: usize = 1024 * 1024;

/// A line that was added to a log.
#[derive(Debug, Serialize)]
pub struct Logged {
    /// The path of the log in the vault.
    pub path: String,
    /// The appended text.
    pub appended: String,
    /// The number of control characters that were removed.
    pub characters_removed: usize,
    /// Secrets that were replaced, by kind.
    pub secrets: Secrets,
}

/// The result of scanning logs.
#[derive(Debug, Default, Serialize)]
pub struct Noticed {
    /// Extracts that became events.
    pub taken: Vec<TakenIn>,
    /// Secrets that were replaced in the logs, by kind.
    pub secrets: Secrets,
    /// What could not be read or imported, and why.
    pub complaints: Vec<String>,
}

/// An extract that became an event.
#[derive(Debug, Serialize)]
pub struct TakenIn {
    pub event: Event,
    /// The log and line of the extract.
    pub place: String,
    /// The event it supersedes, because the line was edited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replaces: Option<EventId>,
}

impl Memory {
    /// Appends a line with the time to today's log.
    pub async fn log(&self, text: &str) -> Result<Logged> {
        self.renew_tombstones().await?;
        let mut secrets = Secrets::new();
        let cleaned = plain::clean(&self.gate_told(text, &mut secrets));
        self.refuse_forgotten(&cleaned.text)?;
        if cleaned.text.is_empty() {
            return Err(Unfit::Empty.into());
        }
        if cleaned.text.len() > MAX_LOG_BYTES {
            return Err(crate::Error::TooMuch(format!(
                "the text has {} bytes, the maximum of a log line is {MAX_LOG_BYTES}; split it",
                cleaned.text.len()
            )));
        }
        let now = self.now();
        let path = DocPath::log(now.day());
        let mut last = StoreError::Moved { what: path.to_string() };
        for _ in 0..ATTEMPTS {
            let so_far = self.store.document(&path).await?;
            let from = ContentVersion::of(so_far.as_deref());
            let so_far = so_far.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
            let ended = so_far.as_ref().is_none_or(|text| text.is_empty() || text.ends_with('\n'));
            let appended = extract::log_line(so_far.as_deref(), &cleaned.text, now);
            // The store ends an unfinished line by itself.
            let bytes = if ended {
                appended.as_str()
            } else {
                appended.strip_prefix('\n').unwrap_or(&appended)
            };
            match self.store.grow(&path, bytes.as_bytes(), from).await {
                Err(moved @ StoreError::Moved { .. }) => last = moved,
                other => {
                    other?;
                    return Ok(Logged {
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
    pub async fn notice(&self) -> Noticed {
        let today = self.now().day();
        let days = (0..self.policy.log.scan_days)
            .filter_map(|back| today.checked_sub(i32::from(back).days()).ok());
        self.notice_in(days.map(DocPath::log).collect()).await
    }

    /// Imports extracts of all logs that are not in the ledger yet.
    pub async fn notice_all(&self) -> Result<Noticed> {
        let today = self.now().day();
        let mut paths = self.store.documents("memory").await?;
        // A log of a future day is a plan; it is imported when the day has come.
        paths.retain(|path| matches!(path.nature(), Nature::Log(day) if day <= today));
        Ok(self.notice_in(paths).await)
    }

    async fn notice_in(&self, paths: Vec<DocPath>) -> Noticed {
        let mut noticed = Noticed::default();
        // Events are recorded as of now, so a look at the past must not add any.
        match self.looks_back().await {
            Ok(false) => {}
            Ok(true) => return noticed,
            Err(error) => {
                noticed.complaints.push(error.to_string());
                return noticed;
            }
        }
        let mut unseen = match self.store.unseen(&paths).await {
            Ok(found) => found,
            // Only one of them is unreadable; the others are scanned.
            Err(_) => {
                let mut unseen = Vec::new();
                for path in &paths {
                    match self.store.unseen(std::slice::from_ref(path)).await {
                        Ok(found) => unseen.extend(found),
                        Err(error) => noticed.complaints.push(error.to_string()),
                    }
                }
                unseen
            }
        };
        unseen.sort_by(|a, b| a.0.cmp(&b.0));
        if let Err(error) =
            self.hide_in_files(unseen.iter().map(|(path, _)| path), &mut noticed.secrets).await
        {
            noticed.complaints.push(format!("the logs could not be scanned for secrets: {error}"));
        }
        let mut seen = Vec::new();
        for (path, stamp) in unseen {
            match self.take_in(&path).await {
                Ok((taken, complaints)) => {
                    noticed.taken.extend(taken);
                    noticed.complaints.extend(complaints);
                    seen.push((path, stamp));
                }
                Err(error) => noticed
                    .complaints
                    .push(format!("the extracts of {path} were not imported: {error}")),
            }
        }
        if let Err(error) = self.store.see(&seen).await {
            noticed.complaints.push(error.to_string());
        }
        noticed
    }

    async fn take_in(&self, path: &DocPath) -> Result<(Vec<TakenIn>, Vec<String>)> {
        let text = self.store.document(path).await?.unwrap_or_default();
        let read = extract::extracts(&String::from_utf8_lossy(&text));
        let mut complaints: Vec<String> =
            read.complaints.iter().map(|(line, what)| format!("{path}:{line} {what}")).collect();
        if std::str::from_utf8(&text).is_err() {
            complaints.push(format!(
                "{path} is not UTF-8; what could not be read is replaced by \u{fffd}"
            ));
        }
        let now = self.now();
        let mut found = read.found;
        found.iter_mut().for_each(|extract| extract.text = self.gate_text(&extract.text));
        found.retain(|extract| !is_forgotten(&extract.text));
        found.retain(|extract| {
            let fit = extract::Taking { extract: extract.clone(), replaces: None }
                .draft(path, now)
                .cleaned();
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
        let known = EventQuery { source: Some(path.to_string()), ..EventQuery::everything() };
        // An extract whose event moved to an archive was imported already.
        let gone: Vec<EventId> =
            self.store.archived(&known).await?.iter().map(|event| event.id).collect();
        let gone = if gone.is_empty() { Vec::new() } else { self.anywhere(&gone).await? };
        let mut takings = Vec::new();
        let events = self
            .against_query(&known, |known| {
                let mut known: Vec<Entry> = gone.iter().chain(&known.entries).cloned().collect();
                known.sort_by_key(|entry| entry.event.id);
                known.dedup_by_key(|entry| entry.event.id);
                takings = extract::plan(&found, &known);
                takings.iter().map(|taking| Ok(taking.draft(path, now).cleaned()?.0)).collect()
            })
            .await?;
        let place = |taking: &extract::Taking| format!("{path}:{}", taking.extract.line);
        let taken = events.into_iter().zip(&takings).map(|(event, taking)| TakenIn {
            event,
            place: place(taking),
            replaces: taking.replaces,
        });
        Ok((taken.collect(), complaints))
    }
}
