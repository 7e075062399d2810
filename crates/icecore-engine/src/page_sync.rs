//! Page sync (L4, K4, K8): pages and memory files follow the ledger, and edits in them enter the
//! ledger.
//!
//! - A page is a view of events. An edit is first appended to the ledger, then the page is rendered
//!   from the ledger. So edits survive every rebuild, and a deleted or damaged page loses nothing.
//! - A page with an edit that cannot be imported, or that was saved during the run, is not
//!   overwritten.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use icecore_domain::event::{Event, EventDraft, EventType, Origin, Priority};
use icecore_domain::forget::is_forgotten;
use icecore_domain::id::EventId;
use icecore_domain::layout::{self, DocPath};
use icecore_domain::ledger::query::EventQuery;
use icecore_domain::ledger::{Ledger, LedgerEntry, archive};
use icecore_domain::memory_file::{self, MemoEdit, ParsedMemo};
use icecore_domain::page::edit::{self, PageEdit};
use icecore_domain::page::{self, PageKey, PageKind};
use icecore_domain::sanitize;
use icecore_store::{
    ContentVersion, Error as StoreError, ErrorKind as StoreErrorKind, Position, Replacement, Stamp,
};
use serde::Serialize;

use crate::{Error, MAX_ATTEMPTS, Memory, Result, SecretCounts};

/// What a run did with pages and memory files.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct PageSyncReport {
    pub pages: Vec<String>,
    pub memories: Vec<String>,
    /// Missing pages that were written again.
    pub restored: Vec<String>,
    /// Events from edits in pages and memory files.
    pub learnt: Vec<EventId>,
    /// Pages that are not overwritten, because an edit in them could not be imported.
    #[serde(skip)]
    pub(crate) held: BTreeSet<DocPath>,
    /// The file stamps of pages and memory files at their import.
    #[serde(skip)]
    taken: BTreeMap<DocPath, Stamp>,
    /// The entity of each page, as far as the events read so far show.
    #[serde(skip)]
    names: BTreeMap<String, String>,
    /// The entity of each page, from all entities of the store.
    #[serde(skip)]
    things: Option<BTreeMap<String, String>>,
    /// Secrets that were replaced in pages and memory files, by kind.
    pub secrets: SecretCounts,
    /// Edits that could not be imported, and why.
    pub complaints: Vec<String>,
}

impl PageSyncReport {
    /// Whether the file was imported in exactly this version.
    pub(crate) fn is_imported(&self, place: &DocPath, stamp: &Stamp) -> bool {
        self.taken.get(place) == Some(stamp)
    }
}

fn doc_path(text: &str) -> Result<DocPath> {
    Ok(text.parse().map_err(StoreError::from)?)
}

fn is_page(path: &DocPath) -> bool {
    PageKey::from_path(path).is_some()
}

fn is_foreign_page(file: &[u8], rendered: &[u8]) -> bool {
    edit::is_foreign(&String::from_utf8_lossy(file), &String::from_utf8_lossy(rendered))
}

/// The result of importing a page's edits.
enum EditImport {
    /// There were none.
    Nothing,
    /// The edits are in the ledger; the page has to be written again.
    Imported,
    /// The page must not be overwritten.
    Blocked,
}

/// The warning about a file in the pages folder that is not a page.
fn misnamed_page_warning(path: &DocPath) -> Option<String> {
    let name = path.name().strip_suffix(".md")?;
    let mut folders = path.as_str().split('/').skip(1);
    let (kind, only) = (folders.next()?.parse::<PageKind>().ok()?, folders.nth(1).is_none());
    let right = PageKey::new(kind, name).path();
    only.then(|| format!("{path} is not a valid page name and was ignored; rename it to {right}"))
}

fn edited_meanwhile_warning(place: &DocPath) -> String {
    format!("{place} was saved during the run and was not overwritten; the next run imports it")
}

/// Whether an error concerns one file only, not the whole vault.
fn is_single_file_error(error: &StoreError) -> bool {
    matches!(
        error,
        StoreError {
            kind: StoreErrorKind::Link
                | StoreErrorKind::NotAFile
                | StoreErrorKind::PermissionDenied
                | StoreErrorKind::InvalidPath,
            ..
        }
    )
}

/// Whether an event waits for confirmation. One that was retracted or replaced does not.
fn is_awaiting_confirmation(entry: &LedgerEntry) -> bool {
    entry.state.is_active() && entry.is_quarantined()
}

fn is_memory(path: &DocPath) -> bool {
    path.as_str().strip_prefix(layout::MEMORIES).is_some_and(|rest| rest.starts_with('/'))
        && path.as_str().ends_with(".md")
}

impl Memory {
    /// Every page and memory file.
    pub(crate) async fn pages_and_memories(&self) -> Result<Vec<DocPath>> {
        let mut files: Vec<DocPath> =
            self.store.documents("knowledge").await?.into_iter().filter(is_page).collect();
        files.extend(self.store.documents(layout::MEMORIES).await?.into_iter().filter(is_memory));
        Ok(files)
    }

    /// Pages and memory files that were edited since the last run.
    pub(crate) async fn edited_files(&self) -> Result<Vec<String>> {
        let files = self.pages_and_memories().await?;
        Ok(self
            .store
            .changed_since_seen(&files)
            .await?
            .into_iter()
            .map(|(place, _)| place.to_string())
            .collect())
    }

    /// The pages and memory files that show these events, and the named pages.
    pub(crate) async fn files_showing(
        &self,
        new: &[Event],
        touched: BTreeSet<PageKey>,
    ) -> Result<(Vec<String>, Vec<String>)> {
        let ids: BTreeSet<EventId> = new
            .iter()
            .flat_map(|event| {
                std::iter::once(event.id).chain(event.effects().map(|(target, _)| target))
            })
            .collect();
        let around = self.fold_linked(&ids.iter().copied().collect::<Vec<_>>()).await?;
        let mut pages: BTreeSet<String> =
            touched.iter().map(|key| key.path().to_string()).collect();
        for (key, entries) in page::entries_by_page(&around) {
            if entries.iter().any(|entry| ids.contains(&entry.event.id)) {
                pages.insert(key.path().to_string());
            }
        }
        let mut memories = Vec::new();
        let own = |entry: &&LedgerEntry| {
            ids.contains(&entry.event.id)
                && memory_file::has_file(&entry.event)
                && !is_awaiting_confirmation(entry)
        };
        for entry in around.entries().iter().filter(own) {
            memories.push(self.memory_file_of(&entry.event, &BTreeMap::new()).await?.0.to_string());
        }
        Ok((pages.into_iter().collect(), memories))
    }

    /// All events that pages and memory files show, archived ones included.
    async fn displayed_events(&self) -> Result<Ledger> {
        let text = self.store.ledger().await?.bytes;
        let archives = self.read_archives().await?;
        let archives: Vec<&[u8]> = archives.iter().map(Vec::as_slice).collect();
        Ok(archive::ledger_with_archives(&text, &archives))
    }

    /// Imports the edits since the last run, and returns the pages that they touched.
    pub(crate) async fn import_edits(
        &self,
        report: &mut PageSyncReport,
    ) -> Result<BTreeSet<PageKey>> {
        let mut touched = BTreeSet::new();
        let (pages, others): (Vec<DocPath>, Vec<DocPath>) =
            self.store.documents("knowledge").await?.into_iter().partition(is_page);
        report.complaints.extend(others.iter().filter_map(misnamed_page_warning));
        let unseen = self.hide_secrets_in_edited(&pages, report).await?;
        for (place, stamp) in &unseen {
            let Some(key) = PageKey::from_path(place) else { continue };
            match self.import_page(&key, place, report).await {
                Ok(EditImport::Imported) => {
                    report.taken.insert(place.clone(), stamp.clone());
                    touched.insert(key);
                }
                Ok(EditImport::Nothing) => {
                    self.store.mark_seen(&[(place.clone(), stamp.clone())]).await?
                }
                // Not marked as seen: reported every night until the user corrects the file.
                Ok(EditImport::Blocked) => {
                    report.held.insert(place.clone());
                }
                // An unreadable page does not stop the run.
                Err(Error::Store(error)) if is_single_file_error(&error) => {
                    report.complaints.push(format!("{place}: {error}"));
                    report.held.insert(place.clone());
                }
                Err(error) => return Err(error),
            }
        }
        // Write a missing page again.
        let gone: Vec<PageKey> = self
            .store
            .removed_since_seen("knowledge/")
            .await?
            .iter()
            .filter_map(PageKey::from_path)
            .collect();
        report.restored.extend(gone.iter().map(|key| key.path().to_string()));
        touched.extend(gone);
        let memories: Vec<DocPath> =
            self.store.documents(layout::MEMORIES).await?.into_iter().filter(is_memory).collect();
        for (place, stamp) in self.hide_secrets_in_edited(&memories, report).await? {
            match self.import_memory_file(&place, &stamp, report).await {
                Err(Error::Store(error)) if is_single_file_error(&error) => {
                    report.complaints.push(format!("{place}: {error}"));
                    report.held.insert(place);
                }
                other => other?,
            }
        }
        Ok(touched)
    }

    /// Imports the edits of one page and writes it again. Returns whether the page must not be
    /// overwritten.
    pub(crate) async fn import_page_edits(
        &self,
        key: &PageKey,
        report: &mut PageSyncReport,
    ) -> Result<bool> {
        let place = key.path();
        let Some((_, stamp)) =
            self.hide_secrets_in_edited(std::slice::from_ref(&place), report).await?.pop()
        else {
            return Ok(false);
        };
        match self.import_page(key, &place, report).await? {
            EditImport::Nothing => self.store.mark_seen(&[(place, stamp)]).await?,
            EditImport::Blocked => return Ok(true),
            EditImport::Imported => {
                report.taken.insert(place, stamp);
                let learnt = if report.learnt.is_empty() {
                    Vec::new()
                } else {
                    self.store.events(&EventQuery::for_ids(&report.learnt)).await?.entries
                };
                let events: Vec<Event> = learnt.into_iter().map(|entry| entry.event).collect();
                self.update_views(&events, BTreeSet::from([key.clone()]), report).await?;
            }
        }
        Ok(false)
    }

    /// The edited files, after their secrets were replaced in place: a page that is not overwritten
    /// must not keep them either.
    async fn hide_secrets_in_edited(
        &self,
        places: &[DocPath],
        report: &mut PageSyncReport,
    ) -> Result<Vec<(DocPath, Stamp)>> {
        let unseen = self.store.changed_since_seen(places).await?;
        let changed = self
            .hide_secrets_in_files(unseen.iter().map(|(place, _)| place), &mut report.secrets)
            .await?;
        Ok(if changed { self.store.changed_since_seen(places).await? } else { unseen })
    }

    /// Imports the edits of a page.
    async fn import_page(
        &self,
        key: &PageKey,
        place: &DocPath,
        report: &mut PageSyncReport,
    ) -> Result<EditImport> {
        let mut last = StoreError::conflict(layout::LEDGER.into());
        for _ in 0..MAX_ATTEMPTS {
            let Some(bytes) = self.store.document(place).await? else {
                return Ok(EditImport::Imported);
            };
            let file = String::from_utf8_lossy(&bytes).into_owned();
            let position = self
                .store
                .events(&EventQuery { limit: Some(1), ..EventQuery::all() })
                .await?
                .position;
            let entity = self.entity_of_page(key, report).await?;
            let entries = self
                .entries_on_pages(&BTreeSet::from([key.clone()]), &[], report)
                .await?
                .remove(key)
                .unwrap_or_default();
            let rendered = page::render::render(key, &entries).text;
            if rendered == file {
                return Ok(EditImport::Nothing);
            }
            if let Some(other) = self.copied_page(key, &file, &entries).await? {
                report.complaints.push(format!(
                    "{place} contains the lines of {other}, so no edit was imported from it; name a page after its entity, and list other names under *Aliases*"
                ));
                return Ok(EditImport::Blocked);
            }
            let mut edits = edit::detect_edits(key, &file, &entries, self.now().day());
            if edit::is_foreign(&file, &rendered) {
                edit::supersede_changed_lines(&mut edits, &file, place.as_str(), &entries);
            }
            let before = report.complaints.len();
            let mut drafts =
                self.drafts_of(key, entity.as_deref(), &edits.drafts, &entries, place, report);
            self.drop_unknown_ids(&mut drafts).await?;
            let untaken = edits.has_rejected_text || report.complaints.len() > before;
            report.complaints.extend(edits.complaints.iter().cloned());
            match self.append_at(drafts, position).await {
                Err(Error::Store(moved @ StoreError { kind: StoreErrorKind::Conflict, .. })) => {
                    last = moved
                }
                other => {
                    report.learnt.extend(other?.iter().map(|event| event.id));
                    // An edit that could not be imported stays in the file for its author to
                    // correct.
                    return Ok(if untaken { EditImport::Blocked } else { EditImport::Imported });
                }
            }
        }
        Err(last.into())
    }

    fn drafts_of(
        &self,
        key: &PageKey,
        entity: Option<&str>,
        edits: &[PageEdit],
        entries: &[LedgerEntry],
        place: &DocPath,
        report: &mut PageSyncReport,
    ) -> Vec<EventDraft> {
        let by_id: HashMap<EventId, &Event> =
            entries.iter().map(|entry| (entry.event.id, &entry.event)).collect();
        let mut drafts = Vec::new();
        for one in edits {
            let target = match one {
                PageEdit::Confirm(id) | PageEdit::Retract(id) | PageEdit::Close(id) => {
                    by_id.get(id).copied()
                }
                PageEdit::Assert { supersedes, .. } => {
                    supersedes.first().and_then(|id| by_id.get(id).copied())
                }
            };
            let draft =
                self.filter_draft(one.draft(key, entity, target, self.now()), &mut report.secrets);
            if is_forgotten(&draft.content) {
                continue;
            }
            match draft.sanitize() {
                Ok((draft, _)) => drafts.push(draft),
                Err(unfit) => report.complaints.push(format!("{place}: {unfit}")),
            }
        }
        drafts
    }

    /// The page that a file was copied from, if none of its lines belongs to its own page.
    async fn copied_page(
        &self,
        key: &PageKey,
        file: &str,
        entries: &[LedgerEntry],
    ) -> Result<Option<DocPath>> {
        let named = page::referenced_ids(file);
        if named.is_empty() || entries.iter().any(|entry| named.contains(&entry.event.id)) {
            return Ok(None);
        }
        let others = page::entries_by_page(&self.fold_linked(&named).await?);
        Ok(others.into_keys().find(|other| other != key).map(|other| other.path()))
    }

    /// Removes references to ids that do not exist.
    async fn drop_unknown_ids(&self, drafts: &mut [EventDraft]) -> Result<()> {
        let named: BTreeSet<EventId> = drafts
            .iter()
            .flat_map(|draft| draft.related.iter().chain(&draft.supersedes).copied())
            .collect();
        if named.is_empty() {
            return Ok(());
        }
        let ids: Vec<EventId> = named.into_iter().collect();
        let known: BTreeSet<EventId> = self
            .load_events_with_archives(&ids)
            .await?
            .iter()
            .map(|entry| entry.event.id)
            .collect();
        for draft in drafts {
            draft.related.retain(|id| known.contains(id));
            draft.supersedes.retain(|id| known.contains(id));
        }
        Ok(())
    }

    async fn append_at(&self, drafts: Vec<EventDraft>, position: Position) -> Result<Vec<Event>> {
        if drafts.is_empty() {
            return Ok(Vec::new());
        }
        Ok(self.store.append(drafts, Some(position)).await?)
    }

    /// Imports the edits of a memory file.
    async fn import_memory_file(
        &self,
        place: &DocPath,
        stamp: &Stamp,
        report: &mut PageSyncReport,
    ) -> Result<()> {
        let Some(bytes) = self.store.document(place).await? else { return Ok(()) };
        let file = String::from_utf8_lossy(&bytes).into_owned();
        let read = memory_file::parse(&file);
        let known = match read.event {
            Some(id) => self.fold_linked(&[id]).await?.get(id).cloned(),
            None => None,
        };
        let (edit, complaints) = memory_file::detect_edit(&file, known.as_ref());
        report
            .complaints
            .extend(complaints.iter().map(|complaint| format!("{place}: {complaint}")));
        let now = self.now();
        let draft = match edit {
            MemoEdit::None => None,
            MemoEdit::Changed { supersedes, content } => known.as_ref().map(|entry| {
                let supersedes =
                    if entry.state.is_active() { vec![supersedes] } else { Vec::new() };
                let related = if supersedes.is_empty() { vec![entry.event.id] } else { Vec::new() };
                EventDraft {
                    content,
                    ts: now,
                    origin: Origin::File,
                    source: place.to_string(),
                    supersedes,
                    related,
                    extra: Vec::new(),
                    ..entry.event.draft.clone()
                }
            }),
            MemoEdit::New { memo } => {
                // A repetition of a known statement needs no event of its own.
                let same = EventQuery { saying: Some(memo.content.clone()), ..EventQuery::all() };
                let mut known = self.event_ids(&same).await?;
                known.extend(self.store.archived_events(&same).await?.iter().map(|event| event.id));
                let ParsedMemo { content, event, fields, .. } = *memo;
                known.is_empty().then(|| EventDraft {
                    entity: fields.entity,
                    tags: fields.tags,
                    related: event.into_iter().collect(),
                    origin: Origin::File,
                    source: place.to_string(),
                    ..EventDraft::new(
                        now,
                        fields.kind.unwrap_or(EventType::Fact),
                        fields.priority.unwrap_or(Priority::P1),
                        content,
                    )
                })
            }
        };
        let mut written = None;
        let draft = draft
            .map(|draft| EventDraft { content: self.scrub_text(draft.content.clone()), ..draft });
        if let Some(mut draft) = draft.filter(|draft| !is_forgotten(&draft.content)) {
            self.drop_unknown_ids(std::slice::from_mut(&mut draft)).await?;
            match self.filter_draft(draft, &mut report.secrets).sanitize() {
                Ok((draft, _)) => {
                    let event = self.store.append(vec![draft], None).await?.remove(0);
                    report.learnt.push(event.id);
                    if read.event.is_none() {
                        // From now on the file belongs to the event; foreign content in it stays.
                        let text =
                            memory_file::render(&LedgerEntry::from_event(event, 0), &read.foreign);
                        match self
                            .store
                            .compare_and_swap(
                                place,
                                text.as_bytes(),
                                ContentVersion::of(Some(&bytes)),
                            )
                            .await
                        {
                            Err(StoreError { kind: StoreErrorKind::Conflict, .. }) => {
                                report.complaints.push(edited_meanwhile_warning(place));
                                return Ok(());
                            }
                            other => other?,
                        }
                        report.memories.push(place.to_string());
                        written = Some(text.into_bytes());
                    }
                }
                Err(unfit) => report.complaints.push(format!("{place}: {unfit}")),
            }
        }
        if let Some(text) = written {
            return self.mark_own_writes_seen(&[(place.clone(), text)]).await;
        }
        // In the version that was read: a later change is found by the next run.
        report.taken.insert(place.clone(), stamp.clone());
        Ok(self.store.mark_seen(&[(place.clone(), stamp.clone())]).await?)
    }

    /// These events and the events linked to them, folded.
    async fn fold_linked(&self, ids: &[EventId]) -> Result<Ledger> {
        Ok(Ledger::from_events(self.store.linked_events(ids, &[]).await?))
    }

    /// The entity of a page, if it has one.
    async fn entity_of_page(
        &self,
        key: &PageKey,
        report: &mut PageSyncReport,
    ) -> Result<Option<String>> {
        if key.kind != PageKind::Entity {
            return Ok(None);
        }
        if let Some(name) = report.names.get(&key.slug) {
            return Ok(Some(name.clone()));
        }
        if report.things.is_none() {
            let names = self.store.entities().await?;
            report.things = Some(names.into_iter().map(|name| (page::slug(&name), name)).collect());
        }
        let known = report.things.as_ref().and_then(|things| things.get(&key.slug)).cloned();
        Ok(Some(known.unwrap_or_else(|| sanitize::entity_key(&key.slug))))
    }

    /// The events that these pages show. `near` are events that are known to be on one of them.
    async fn entries_on_pages(
        &self,
        keys: &BTreeSet<PageKey>,
        near: &[EventId],
        report: &mut PageSyncReport,
    ) -> Result<BTreeMap<PageKey, Vec<LedgerEntry>>> {
        let mut ids: BTreeSet<EventId> = near.iter().copied().collect();
        let mut things = Vec::new();
        let mut whole = false;
        for key in keys {
            match self.entity_of_page(key, report).await? {
                Some(thing) => things.push(thing),
                // The events that the file itself names; without a file there may be more events
                // than these.
                None => match self.store.document(&key.path()).await? {
                    Some(text) => ids.extend(page::referenced_ids(&String::from_utf8_lossy(&text))),
                    None => whole = true,
                },
            }
            ids.extend(
                self.event_ids(&EventQuery {
                    source: Some(key.path().to_string()),
                    ..EventQuery::all()
                })
                .await?,
            );
        }
        if !whole {
            let ids: Vec<EventId> = ids.into_iter().collect();
            let things: Vec<&str> = things.iter().map(String::as_str).collect();
            let found = page::into_entries_by_page(
                Ledger::from_events(self.store.linked_events(&ids, &things).await?),
                keys,
            );
            // A page whose file is empty: read everything.
            if keys.iter().all(|key| key.kind == PageKind::Entity || found.contains_key(key)) {
                return Ok(found);
            }
        }
        Ok(page::into_entries_by_page(self.displayed_events().await?, keys))
    }

    async fn event_ids(&self, which: &EventQuery) -> Result<Vec<EventId>> {
        Ok(self
            .store
            .events(which)
            .await?
            .entries
            .into_iter()
            .map(|entry| entry.event.id)
            .collect())
    }

    /// Updates the pages and memory files that show these events, and the named pages.
    pub(crate) async fn update_views(
        &self,
        new: &[Event],
        touched: BTreeSet<PageKey>,
        report: &mut PageSyncReport,
    ) -> Result<()> {
        let ids: BTreeSet<EventId> = new
            .iter()
            .flat_map(|event| {
                std::iter::once(event.id).chain(event.effects().map(|(target, _)| target))
            })
            .collect();
        let ids: Vec<EventId> = ids.into_iter().collect();
        let around = self.fold_linked(&ids).await?;
        let mut keys = touched;
        let near = page::entries_by_page(&around);
        let named: BTreeSet<EventId> = ids.iter().copied().collect();
        keys.extend(
            near.iter()
                .filter(|(_, entries)| entries.iter().any(|entry| named.contains(&entry.event.id)))
                .map(|(key, _)| key.clone()),
        );
        let at_hand: Vec<EventId> = near
            .iter()
            .filter(|(key, _)| keys.contains(key))
            .flat_map(|(_, entries)| entries.iter().map(|entry| entry.event.id))
            .collect();
        let told = near.values().flatten().filter_map(|entry| entry.event.entity.as_ref());
        report.names.extend(told.map(|name| (page::slug(name), name.clone())));
        let shown = self.entries_on_pages(&keys, &at_hand, report).await?;
        let pages = shown
            .iter()
            .map(|(key, entries)| (key.path(), page::render::render(key, entries).text))
            .collect();
        self.write_pages(pages, report).await?;
        self.update_memory_files(&around, &named, report).await
    }

    /// Rebuilds every page and memory file.
    pub(crate) async fn rebuild_pages(&self, report: &mut PageSyncReport) -> Result<()> {
        let all = self.displayed_events().await?;
        let pages = page::entries_by_page(&all);
        let pages = pages
            .iter()
            .map(|(key, entries)| (key.path(), page::render::render(key, entries).text))
            .collect();
        self.write_pages(pages, report).await?;
        let ids: BTreeSet<EventId> = all.entries().iter().map(|entry| entry.event.id).collect();
        self.update_memory_files(&all, &ids, report).await
    }

    /// Writes changed pages; a page that was edited meanwhile waits for the next run.
    async fn write_pages(
        &self,
        pages: Vec<(DocPath, String)>,
        report: &mut PageSyncReport,
    ) -> Result<()> {
        let files = pages.into_iter().map(|(place, text)| (place, text.into_bytes())).collect();
        let written = self.write_files(files, report).await?;
        report.pages.extend(written);
        Ok(())
    }

    /// Writes changed files and returns them. A file that was edited since the last run waits for
    /// the next one. A page that icecore did not write is not overwritten.
    async fn write_files(
        &self,
        files: Vec<(DocPath, Vec<u8>)>,
        report: &mut PageSyncReport,
    ) -> Result<Vec<String>> {
        let mut read = Vec::new();
        for (place, bytes) in files.into_iter().filter(|(place, _)| !report.held.contains(place)) {
            match self.store.document(&place).await {
                Ok(known) => read.push((place, known, bytes)),
                Err(error) => report.complaints.push(format!("{place}: {error}")),
            }
        }
        // Stat after reading, so that no earlier change is missed.
        let places: Vec<DocPath> = read.iter().map(|(place, ..)| place.clone()).collect();
        let unseen: BTreeMap<DocPath, Stamp> =
            self.store.changed_since_seen(&places).await?.into_iter().collect();
        let (mut changed, mut same, mut foreign) = (Vec::new(), Vec::new(), Vec::new());
        for (path, known, bytes) in read {
            let stamp = unseen.get(&path);
            if known.as_ref() == Some(&bytes) {
                same.push((path, bytes));
            } else if stamp.is_some_and(|stamp| !report.is_imported(&path, stamp)) {
                // Saved after its import: the next run imports it.
            } else if is_page(&path)
                && known.as_deref().is_some_and(|known| is_foreign_page(known, &bytes))
            {
                report.complaints.push(format!(
                    "{path} was not written by icecore and is not overwritten; its statements are in the ledger, but new ones are not added to it"
                ));
                foreign.extend(stamp.map(|stamp| (path.clone(), stamp.clone())));
            } else {
                changed.push(Replacement {
                    from: ContentVersion::of(known.as_deref()),
                    path,
                    bytes,
                });
            }
        }
        let mut denied = BTreeSet::new();
        let left: BTreeSet<DocPath> = match self.store.compare_and_swap_many(&changed).await {
            Ok(left) => left.into_iter().collect(),
            Err(error) if is_single_file_error(&error) => {
                // One file cannot be written; the others can.
                let mut left = BTreeSet::new();
                for one in &changed {
                    // The first attempt wrote the files before the one that failed.
                    if self
                        .store
                        .document(&one.path)
                        .await
                        .is_ok_and(|now| now.as_ref() == Some(&one.bytes))
                    {
                        continue;
                    }
                    match self.store.compare_and_swap_many(std::slice::from_ref(one)).await {
                        Ok(some) => left.extend(some),
                        Err(error) if is_single_file_error(&error) => {
                            report.complaints.push(format!("{}: {error}", one.path));
                            denied.insert(one.path.clone());
                        }
                        Err(error) => return Err(error.into()),
                    }
                }
                left
            }
            Err(error) => return Err(error.into()),
        };
        report.complaints.extend(left.iter().map(edited_meanwhile_warning));
        changed.retain(|one| !left.contains(&one.path) && !denied.contains(&one.path));
        let names = changed.iter().map(|one| one.path.to_string()).collect();
        same.extend(changed.into_iter().map(|one| (one.path, one.bytes)));
        self.mark_own_writes_seen(&same).await?;
        self.store.mark_seen(&foreign).await?;
        Ok(names)
    }

    /// Marks files as seen in the version that icecore wrote, unless they were saved since.
    pub(crate) async fn mark_own_writes_seen(&self, files: &[(DocPath, Vec<u8>)]) -> Result<()> {
        let places: Vec<DocPath> = files.iter().map(|(place, _)| place.clone()).collect();
        let mut seen = self.store.changed_since_seen(&places).await?;
        let ours: BTreeMap<&DocPath, &Vec<u8>> =
            files.iter().map(|(place, bytes)| (place, bytes)).collect();
        let mut own = Vec::new();
        for (place, stamp) in seen.drain(..) {
            if self.store.document(&place).await?.as_ref() == ours.get(&place).copied() {
                own.push((place, stamp));
            }
        }
        Ok(self.store.mark_seen(&own).await?)
    }

    /// Updates the memory files of these events.
    async fn update_memory_files(
        &self,
        ledger: &Ledger,
        ids: &BTreeSet<EventId>,
        report: &mut PageSyncReport,
    ) -> Result<()> {
        let mut files: BTreeMap<DocPath, Vec<u8>> = BTreeMap::new();
        // An unconfirmed event has no memory file.
        let own = |entry: &&LedgerEntry| {
            ids.contains(&entry.event.id)
                && memory_file::has_file(&entry.event)
                && !is_awaiting_confirmation(entry)
        };
        for entry in ledger.entries().iter().filter(own) {
            let (place, known) = self.memory_file_of(&entry.event, &files).await?;
            let foreign =
                known.as_deref().map_or_else(Vec::new, |text| memory_file::parse(text).foreign);
            let text = memory_file::render(entry, &foreign);
            if known.as_deref() != Some(text.as_str()) {
                files.insert(place, text.into_bytes());
            }
        }
        let written = self.write_files(files.into_iter().collect(), report).await?;
        report.memories.extend(written);
        Ok(())
    }

    /// The path of an event's memory file, and its present content.
    async fn memory_file_of(
        &self,
        event: &Event,
        writing: &BTreeMap<DocPath, Vec<u8>>,
    ) -> Result<(DocPath, Option<String>)> {
        // A file that was written by hand keeps its path.
        if let Some(place) = event
            .source
            .strip_prefix(layout::MEMORIES)
            .and_then(|_| event.source.parse::<DocPath>().ok())
            && let Some(bytes) = self.store.document(&place).await?
        {
            let text = String::from_utf8_lossy(&bytes).into_owned();
            if memory_file::parse(&text).event.is_none_or(|id| id == event.id) {
                return Ok((place, Some(text)));
            }
        }
        let mut taken = BTreeSet::new();
        loop {
            let name = memory_file::file_name(event, |name| taken.contains(name));
            let place = doc_path(&format!("{}/{name}.md", layout::MEMORIES))?;
            let text = match writing.get(&place) {
                Some(bytes) => Some(bytes.clone()),
                None => self.store.document(&place).await?,
            };
            let text = text.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
            match &text {
                None => return Ok((place, None)),
                Some(found) if memory_file::parse(found).event == Some(event.id) => {
                    return Ok((place, text));
                }
                Some(_) => taken.insert(name),
            };
        }
    }

    /// The names of memory files, by their days.
    pub(crate) async fn memory_file_names(&self) -> Result<Vec<String>> {
        let files = self.store.documents(layout::MEMORIES).await?;
        Ok(files
            .iter()
            .filter(|path| is_memory(path))
            .filter_map(|path| path.name().strip_suffix(".md").map(str::to_owned))
            .collect())
    }
}
