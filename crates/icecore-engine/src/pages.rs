//! Pages as users read and edit them: the list, one page, its versions, and saving a new text.
//!
//! Invariant: a saved text is handled like every manual edit: its statements are added to the
//! ledger, then the page is rendered again.

use std::collections::{BTreeSet, HashMap};

use icecore_domain::calendar::Moment;
use icecore_domain::converse::artifact;
use icecore_domain::hash::Hash;
use icecore_domain::id::EventId;
use icecore_domain::layout::DocPath;
use icecore_domain::ledger::LedgerEntry;
use icecore_domain::ledger::decay::{self, Freshness};
use icecore_domain::ledger::query::EventQuery;
use icecore_domain::page::edit::MAX_PAGE_BYTES;
use icecore_domain::page::{self, KNOWLEDGE_DIR, PageKey};
use icecore_domain::sanitize;
use icecore_store::{ContentVersion, Error as StoreError, Snapshot};
use serde::Serialize;

use crate::page_sync::PageSyncReport;
use crate::{Error, Memory, Result, SecretCounts};

/// A page in a list.
#[derive(Debug, Serialize)]
pub struct PageListItem {
    pub path: String,
    /// Its kind, by its folder.
    pub kind: &'static str,
    /// Its name in the file system.
    pub slug: String,
    pub title: String,
    pub bytes: u64,
    pub changed_at: Moment,
    /// Whether it was edited since its edits were last imported.
    pub edited: bool,
    /// The number of active statements on it.
    pub statements: usize,
    /// How many of them were added or confirmed recently.
    pub fresh: usize,
    /// How many of them were not.
    pub stale: usize,
    /// How many of them packs no longer show.
    pub dropped: usize,
    /// When a statement on it was last confirmed.
    pub verified: Option<Moment>,
}

/// A page with its text.
#[derive(Debug, Serialize)]
pub struct PageContents {
    #[serde(flatten)]
    pub line: PageListItem,
    pub text: String,
    /// The hash of `text`, to be sent back with an edit.
    pub hash: String,
    /// The events on the page.
    pub events: Vec<PageEvent>,
}

/// An event on a page.
#[derive(Debug, Serialize)]
pub struct PageEvent {
    pub freshness: Freshness,
    #[serde(flatten)]
    pub entry: LedgerEntry,
}

/// The result of saving a page.
#[derive(Debug, Serialize)]
pub struct PageSaveReport {
    pub path: String,
    /// The text as rendered again.
    pub text: String,
    pub hash: String,
    /// Events that were added.
    pub learnt: Vec<EventId>,
    /// Whether the page stays as it was sent, because a part of it could not be imported.
    pub held: bool,
    /// What could not be imported, and why.
    pub complaints: Vec<String>,
    /// Secrets that were replaced, by kind.
    pub secrets: SecretCounts,
}

fn page_title(text: &str, key: &PageKey) -> String {
    let first = text.lines().find_map(|line| line.strip_prefix("# "));
    first.map_or_else(|| key.slug.clone(), |title| sanitize::one_line(title.trim()))
}

impl Memory {
    /// Every page, by kind and name.
    pub async fn list_pages(&self) -> Result<Vec<PageListItem>> {
        self.load_pages(None).await.map(|pages| pages.into_iter().map(|(line, ..)| line).collect())
    }

    async fn load_pages(
        &self,
        only: Option<&PageKey>,
    ) -> Result<Vec<(PageListItem, String, Vec<LedgerEntry>)>> {
        let looked = self.store.list(KNOWLEDGE_DIR).await?;
        let mut found = Vec::new();
        for look in looked {
            let Some(key) =
                PageKey::from_path(&look.path).filter(|key| only.is_none_or(|only| only == key))
            else {
                continue;
            };
            let text = self.store.document(&look.path).await?.unwrap_or_default();
            let text = String::from_utf8_lossy(&text).into_owned();
            found.push((key, look, page::referenced_ids(&text), text));
        }
        let places: Vec<DocPath> = found.iter().map(|(_, look, ..)| look.path.clone()).collect();
        let unseen: BTreeSet<DocPath> = self
            .store
            .changed_since_seen(&places)
            .await?
            .into_iter()
            .map(|(place, _)| place)
            .collect();
        let ids: Vec<EventId> = found
            .iter()
            .flat_map(|(_, _, ids, _)| ids.iter().copied())
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect();
        let known = if ids.is_empty() {
            Vec::new()
        } else {
            self.store.events(&EventQuery::for_ids(&ids)).await?.entries
        };
        let mut known: HashMap<EventId, LedgerEntry> =
            known.into_iter().map(|entry| (entry.event.id, entry)).collect();
        if known.len() < ids.len() {
            // Archived events are still on their page.
            let gone: Vec<EventId> =
                ids.iter().copied().filter(|id| !known.contains_key(id)).collect();
            known.extend(
                self.load_events_with_archives(&gone)
                    .await?
                    .into_iter()
                    .map(|entry| (entry.event.id, entry)),
            );
        }
        let (today, ages) = (self.now().day(), self.policy().decay.ages());
        let mut pages = Vec::new();
        for (key, look, ids, text) in found {
            let entries: Vec<LedgerEntry> =
                ids.iter().filter_map(|id| known.get(id).cloned()).collect();
            let held: Vec<&LedgerEntry> = entries
                .iter()
                .filter(|entry| entry.state.is_active() && entry.event.is_statement())
                .collect();
            let of = |wanted: Freshness| {
                held.iter().filter(|entry| decay::freshness(entry, today, ages) == wanted).count()
            };
            let line = PageListItem {
                kind: key.kind.word(),
                title: page_title(&text, &key),
                bytes: look.bytes,
                changed_at: self.zone.moment(look.changed),
                edited: unseen.contains(&look.path),
                statements: held.len(),
                fresh: of(Freshness::Fresh),
                stale: of(Freshness::Stale),
                dropped: of(Freshness::Dropped),
                verified: held.iter().map(|entry| entry.verified).max(),
                path: look.path.to_string(),
                slug: key.slug,
            };
            pages.push((line, text, entries));
        }
        Ok(pages)
    }

    /// One page with its text.
    pub async fn load_page(&self, key: &PageKey) -> Result<PageContents> {
        let found = self.load_pages(Some(key)).await?.pop();
        let (line, text, events) =
            found.ok_or_else(|| Error::NotFound(format!("there is no page {}", key.path())))?;
        let (today, ages) = (self.now().day(), self.policy().decay.ages());
        let fresh = |entry: LedgerEntry| PageEvent {
            freshness: decay::freshness(&entry, today, ages),
            entry,
        };
        let events = events.into_iter().map(fresh).collect();
        Ok(PageContents { line, hash: Hash::of(text.as_bytes()).to_string(), text, events })
    }

    /// Saves a user's text of a page, if the page is still what the user read (`read`; `None` if
    /// there was none), and imports its statements at once.
    pub async fn save_page(
        &self,
        key: &PageKey,
        text: &str,
        read: Option<&str>,
    ) -> Result<PageSaveReport> {
        if text.len() > MAX_PAGE_BYTES {
            return Err(Error::LimitExceeded(format!(
                "a page has at most {MAX_PAGE_BYTES} bytes, this one has {}",
                text.len()
            )));
        }
        // Not while a consolidation changes pages.
        let _alone = self.acquire_consolidation_lease().await?;
        if self.is_looking_back().await? {
            return Err(Error::NotFound(
                "the ledger has events after that moment; pages can be edited only in the present, without --now".into(),
            ));
        }
        self.refresh_tombstones().await?;
        let place = key.path();
        let mut curated = PageSyncReport::default();
        // Edits that another user saved meanwhile are not part of this one, and are imported first.
        let known = self.store.document(&place).await?;
        let hash = known.as_deref().map(|bytes| Hash::of(bytes).to_string());
        if hash.as_deref() != read {
            return Err(StoreError::conflict(place.to_string()).into());
        }
        match &known {
            Some(bytes) if bytes == text.as_bytes() => {}
            known => {
                self.store
                    .compare_and_swap(&place, text.as_bytes(), ContentVersion::of(known.as_deref()))
                    .await?
            }
        }
        let held = self.import_page_edits(key, &mut curated).await?;
        self.refresh_open_loops().await?;
        let text = String::from_utf8_lossy(&self.store.document(&place).await?.unwrap_or_default())
            .into_owned();
        Ok(PageSaveReport {
            path: place.to_string(),
            hash: Hash::of(text.as_bytes()).to_string(),
            text,
            learnt: curated.learnt,
            held,
            complaints: curated.complaints,
            secrets: curated.secrets,
        })
    }

    /// The snapshots that changed a page, newest first.
    pub async fn list_page_versions(&self, key: &PageKey, most: usize) -> Result<Vec<Snapshot>> {
        Ok(self.history.document_versions(&key.path(), most).await?)
    }

    /// A page as of a snapshot; `now` is the current page.
    pub async fn load_page_at_snapshot(&self, key: &PageKey, id: &str) -> Result<String> {
        let place = key.path();
        let bytes = if id == "now" {
            self.store.document(&place).await?
        } else {
            self.history.document_at(id, &place).await?
        };
        let bytes = bytes.ok_or_else(|| {
            Error::NotFound(format!("there was no {place} in {}", sanitize::one_line(id)))
        })?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// The difference of a page between two snapshots; `now` is the current page.
    pub async fn diff_page(&self, key: &PageKey, from: &str, to: &str) -> Result<String> {
        let (old, new) = (
            self.load_page_at_snapshot(key, from).await?,
            self.load_page_at_snapshot(key, to).await?,
        );
        let short = |id: &str| id.get(..12).unwrap_or(id).to_owned();
        Ok(artifact::unified_diff(&old, &new, &short(from), &short(to)))
    }

    /// The reports of the consolidations, newest first.
    pub async fn list_consolidation_reports(&self) -> Result<Vec<(String, DocPath, u64)>> {
        let mut found = Vec::new();
        for (path, bytes) in self.store.document_sizes(icecore_domain::layout::REPORTS).await? {
            if let Some(day) = path
                .name()
                .strip_suffix(".md")
                .filter(|name| name.parse::<jiff::civil::Date>().is_ok())
            {
                found.push((day.to_owned(), path.clone(), bytes));
            }
        }
        found.sort_by(|a, b| b.0.cmp(&a.0));
        Ok(found)
    }
}
