//! Page sync (L4, K4, K8): pages and memory files follow the ledger, and edits in them enter the
//! ledger.
//!
//! - A page is a view of events. An edit is first appended to the ledger, then the page is rendered
//!   from the ledger. So edits survive every rebuild, and a deleted or damaged page loses nothing.
//! - A page with an edit that cannot be imported, or that was saved during the run, is not
//!   overwritten.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use icecore_domain::event::{Draft, Event, Kind, Origin, Priority};
use icecore_domain::forget::is_forgotten;
use icecore_domain::id::EventId;
use icecore_domain::layout::{self, DocPath};
use icecore_domain::ledger::query::EventQuery;
use icecore_domain::ledger::{Entry, Ledger, archive};
use icecore_domain::memo::{self, MemoEdit, ReadMemo};
use icecore_domain::page::edit::{self, Edit};
use icecore_domain::page::{self, PageKey, PageKind};
use icecore_domain::plain;
use icecore_store::{ContentVersion, Error as StoreError, Position, Replacement, Stamp};
use serde::Serialize;

use crate::{ATTEMPTS, Error, Memory, Result, Secrets};

/// What a run did with pages and memory files.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Curated {
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
    pub secrets: Secrets,
    /// Edits that could not be imported, and why.
    pub complaints: Vec<String>,
}

impl Curated {
    /// Whether the file was imported in exactly this version.
    pub(crate) fn has_taken(&self, place: &DocPath, stamp: &Stamp) -> bool {
        self.taken.get(place) == Some(stamp)
    }
}

fn path(text: &str) -> Result<DocPath> {
    Ok(text.parse().map_err(StoreError::Path)?)
}

fn is_page(path: &DocPath) -> bool {
    PageKey::of_path(path).is_some()
}

fn is_foreign_page(file: &[u8], rendered: &[u8]) -> bool {
    edit::is_foreign(&String::from_utf8_lossy(file), &String::from_utf8_lossy(rendered))
}

/// The result of importing a page's edits.
enum Adopted {
    /// There were none.
    Nothing,
    /// The edits are in the ledger; the page has to be written again.
    Taken,
    /// The page must not be overwritten.
    Held,
}

/// The warning about a file in the pages folder that is no page.
fn misnamed(path: &DocPath) -> Option<String> {
    let name = path.name().strip_suffix(".md")?;
    let mut folders = path.as_str().split('/').skip(1);
    let (kind, only) = (folders.next()?.parse::<PageKind>().ok()?, folders.nth(1).is_none());
    let right = PageKey::new(kind, name).path();
    only.then(|| format!("{path} is not a valid page name and was ignored; rename it to {right}"))
}

fn saved_meanwhile(place: &DocPath) -> String {
    format!("{place} was saved during the run and was not overwritten; the next run imports it")
}

/// Whether an error concerns one file only, not the whole vault.
fn is_of_one_file(error: &StoreError) -> bool {
    matches!(
        error,
        StoreError::Link(_)
            | StoreError::NotAFile(_)
            | StoreError::Denied { .. }
            | StoreError::Path(_)
    )
}

/// Whether an event waits for confirmation. One that was retracted or replaced does not.
fn waits(entry: &Entry) -> bool {
    entry.standing.is_active() && entry.is_quarantined()
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
    pub(crate) async fn edited(&self) -> Result<Vec<String>> {
        let files = self.pages_and_memories().await?;
        Ok(self
            .store
            .unseen(&files)
            .await?
            .into_iter()
            .map(|(place, _)| place.to_string())
            .collect())
    }

    /// The pages and memory files that show these events, and the named pages.
    pub(crate) async fn views_of(
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
        let around = self.folded(&ids.iter().copied().collect::<Vec<_>>()).await?;
        let mut pages: BTreeSet<String> =
            touched.iter().map(|key| key.path().to_string()).collect();
        for (key, entries) in page::sorted(&around) {
            if entries.iter().any(|entry| ids.contains(&entry.event.id)) {
                pages.insert(key.path().to_string());
            }
        }
        let mut memories = Vec::new();
        let own = |entry: &&Entry| {
            ids.contains(&entry.event.id) && memo::has_file(&entry.event) && !waits(entry)
        };
        for entry in around.entries().iter().filter(own) {
            memories.push(self.memory_file(&entry.event, &BTreeMap::new()).await?.0.to_string());
        }
        Ok((pages.into_iter().collect(), memories))
    }

    /// All events that pages and memory files show, archived ones included.
    async fn all_events(&self) -> Result<Ledger> {
        let text = self.store.ledger().await?.bytes;
        let archives = self.archive_texts().await?;
        let archives: Vec<&[u8]> = archives.iter().map(Vec::as_slice).collect();
        Ok(archive::everything(&text, &archives))
    }

    /// Imports the edits since the last run, and returns the pages that they touched.
    pub(crate) async fn adopt_edits(&self, curated: &mut Curated) -> Result<BTreeSet<PageKey>> {
        let mut touched = BTreeSet::new();
        let (pages, others): (Vec<DocPath>, Vec<DocPath>) =
            self.store.documents("knowledge").await?.into_iter().partition(is_page);
        curated.complaints.extend(others.iter().filter_map(misnamed));
        let unseen = self.unseen_hidden(&pages, curated).await?;
        for (place, stamp) in &unseen {
            let Some(key) = PageKey::of_path(place) else { continue };
            match self.adopt_page(&key, place, curated).await {
                Ok(Adopted::Taken) => {
                    curated.taken.insert(place.clone(), stamp.clone());
                    touched.insert(key);
                }
                Ok(Adopted::Nothing) => self.store.see(&[(place.clone(), stamp.clone())]).await?,
                // Not marked as seen: reported every night until the user corrects the file.
                Ok(Adopted::Held) => {
                    curated.held.insert(place.clone());
                }
                // An unreadable page does not stop the run.
                Err(Error::Store(error)) if is_of_one_file(&error) => {
                    curated.complaints.push(format!("{place}: {error}"));
                    curated.held.insert(place.clone());
                }
                Err(error) => return Err(error),
            }
        }
        // Write a missing page again.
        let gone: Vec<PageKey> =
            self.store.gone("knowledge/").await?.iter().filter_map(PageKey::of_path).collect();
        curated.restored.extend(gone.iter().map(|key| key.path().to_string()));
        touched.extend(gone);
        let memories: Vec<DocPath> =
            self.store.documents(layout::MEMORIES).await?.into_iter().filter(is_memory).collect();
        for (place, stamp) in self.unseen_hidden(&memories, curated).await? {
            match self.adopt_memory(&place, &stamp, curated).await {
                Err(Error::Store(error)) if is_of_one_file(&error) => {
                    curated.complaints.push(format!("{place}: {error}"));
                    curated.held.insert(place);
                }
                other => other?,
            }
        }
        Ok(touched)
    }

    /// Imports the edits of one page and writes it again. Returns whether the page must not be
    /// overwritten.
    pub(crate) async fn adopt_one(&self, key: &PageKey, curated: &mut Curated) -> Result<bool> {
        let place = key.path();
        let Some((_, stamp)) =
            self.unseen_hidden(std::slice::from_ref(&place), curated).await?.pop()
        else {
            return Ok(false);
        };
        match self.adopt_page(key, &place, curated).await? {
            Adopted::Nothing => self.store.see(&[(place, stamp)]).await?,
            Adopted::Held => return Ok(true),
            Adopted::Taken => {
                curated.taken.insert(place, stamp);
                let learnt = if curated.learnt.is_empty() {
                    Vec::new()
                } else {
                    self.store.events(&EventQuery::these(&curated.learnt)).await?.entries
                };
                let events: Vec<Event> = learnt.into_iter().map(|entry| entry.event).collect();
                self.update_views(&events, BTreeSet::from([key.clone()]), curated).await?;
            }
        }
        Ok(false)
    }

    /// The edited files, after their secrets were replaced in place: a page that is not overwritten
    /// must not keep them either.
    async fn unseen_hidden(
        &self,
        places: &[DocPath],
        curated: &mut Curated,
    ) -> Result<Vec<(DocPath, Stamp)>> {
        let unseen = self.store.unseen(places).await?;
        let changed =
            self.hide_in_files(unseen.iter().map(|(place, _)| place), &mut curated.secrets).await?;
        Ok(if changed { self.store.unseen(places).await? } else { unseen })
    }

    /// Imports the edits of a page.
    async fn adopt_page(
        &self,
        key: &PageKey,
        place: &DocPath,
        curated: &mut Curated,
    ) -> Result<Adopted> {
        let mut last = StoreError::Moved { what: layout::LEDGER.into() };
        for _ in 0..ATTEMPTS {
            let Some(bytes) = self.store.document(place).await? else { return Ok(Adopted::Taken) };
            let file = String::from_utf8_lossy(&bytes).into_owned();
            let position = self
                .store
                .events(&EventQuery { limit: Some(1), ..EventQuery::everything() })
                .await?
                .position;
            let entity = self.thing_of(key, curated).await?;
            let entries = self
                .entries_of(&BTreeSet::from([key.clone()]), &[], curated)
                .await?
                .remove(key)
                .unwrap_or_default();
            let rendered = page::render::render(key, &entries).text;
            if rendered == file {
                return Ok(Adopted::Nothing);
            }
            if let Some(other) = self.copied_from(key, &file, &entries).await? {
                curated.complaints.push(format!(
                    "{place} contains the lines of {other}, so no edit was imported from it; name a page after its entity, and list other names under *Aliases*"
                ));
                return Ok(Adopted::Held);
            }
            let mut edits = edit::edits(key, &file, &entries, self.now().day());
            if edit::is_foreign(&file, &rendered) {
                edit::supersede_changed_lines(&mut edits, &file, place.as_str(), &entries);
            }
            let before = curated.complaints.len();
            let mut drafts =
                self.drafts_of(key, entity.as_deref(), &edits.drafts, &entries, place, curated);
            self.keep_known_ids(&mut drafts).await?;
            let untaken = edits.untaken || curated.complaints.len() > before;
            curated.complaints.extend(edits.complaints.iter().cloned());
            match self.append_at(drafts, position).await {
                Err(Error::Store(moved @ StoreError::Moved { .. })) => last = moved,
                other => {
                    curated.learnt.extend(other?.iter().map(|event| event.id));
                    // An edit that could not be imported stays in the file for its author to
                    // correct.
                    return Ok(if untaken { Adopted::Held } else { Adopted::Taken });
                }
            }
        }
        Err(last.into())
    }

    fn drafts_of(
        &self,
        key: &PageKey,
        entity: Option<&str>,
        edits: &[Edit],
        entries: &[Entry],
        place: &DocPath,
        curated: &mut Curated,
    ) -> Vec<Draft> {
        let by_id: HashMap<EventId, &Event> =
            entries.iter().map(|entry| (entry.event.id, &entry.event)).collect();
        let mut drafts = Vec::new();
        for one in edits {
            let target = match one {
                Edit::Confirm(id) | Edit::Retract(id) | Edit::Close(id) => by_id.get(id).copied(),
                Edit::State { supersedes, .. } => {
                    supersedes.first().and_then(|id| by_id.get(id).copied())
                }
            };
            let draft =
                self.gate_draft(one.draft(key, entity, target, self.now()), &mut curated.secrets);
            if is_forgotten(&draft.content) {
                continue;
            }
            match draft.cleaned() {
                Ok((draft, _)) => drafts.push(draft),
                Err(unfit) => curated.complaints.push(format!("{place}: {unfit}")),
            }
        }
        drafts
    }

    /// The page that a file was copied from, if none of its lines belongs to its own page.
    async fn copied_from(
        &self,
        key: &PageKey,
        file: &str,
        entries: &[Entry],
    ) -> Result<Option<DocPath>> {
        let named = page::ids(file);
        if named.is_empty() || entries.iter().any(|entry| named.contains(&entry.event.id)) {
            return Ok(None);
        }
        let others = page::sorted(&self.folded(&named).await?);
        Ok(others.into_keys().find(|other| other != key).map(|other| other.path()))
    }

    /// Removes references to ids that do not exist.
    async fn keep_known_ids(&self, drafts: &mut [Draft]) -> Result<()> {
        let named: BTreeSet<EventId> = drafts
            .iter()
            .flat_map(|draft| draft.related.iter().chain(&draft.supersedes).copied())
            .collect();
        if named.is_empty() {
            return Ok(());
        }
        let ids: Vec<EventId> = named.into_iter().collect();
        let known: BTreeSet<EventId> =
            self.anywhere(&ids).await?.iter().map(|entry| entry.event.id).collect();
        for draft in drafts {
            draft.related.retain(|id| known.contains(id));
            draft.supersedes.retain(|id| known.contains(id));
        }
        Ok(())
    }

    async fn append_at(&self, drafts: Vec<Draft>, position: Position) -> Result<Vec<Event>> {
        if drafts.is_empty() {
            return Ok(Vec::new());
        }
        Ok(self.store.append(drafts, Some(position)).await?)
    }

    /// Imports the edits of a memory file.
    async fn adopt_memory(
        &self,
        place: &DocPath,
        stamp: &Stamp,
        curated: &mut Curated,
    ) -> Result<()> {
        let Some(bytes) = self.store.document(place).await? else { return Ok(()) };
        let file = String::from_utf8_lossy(&bytes).into_owned();
        let read = memo::read(&file);
        let known = match read.event {
            Some(id) => self.folded(&[id]).await?.get(id).cloned(),
            None => None,
        };
        let (edit, complaints) = memo::edit(&file, known.as_ref());
        curated
            .complaints
            .extend(complaints.iter().map(|complaint| format!("{place}: {complaint}")));
        let now = self.now();
        let draft = match edit {
            MemoEdit::None => None,
            MemoEdit::Changed { supersedes, content } => known.as_ref().map(|entry| {
                let supersedes =
                    if entry.standing.is_active() { vec![supersedes] } else { Vec::new() };
                let related = if supersedes.is_empty() { vec![entry.event.id] } else { Vec::new() };
                Draft {
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
                let same =
                    EventQuery { saying: Some(memo.content.clone()), ..EventQuery::everything() };
                let mut known = self.ids(&same).await?;
                known.extend(self.store.archived(&same).await?.iter().map(|event| event.id));
                let ReadMemo { content, event, fields, .. } = *memo;
                known.is_empty().then(|| Draft {
                    entity: fields.entity,
                    tags: fields.tags,
                    related: event.into_iter().collect(),
                    origin: Origin::File,
                    source: place.to_string(),
                    ..Draft::new(
                        now,
                        fields.kind.unwrap_or(Kind::Fact),
                        fields.priority.unwrap_or(Priority::P1),
                        content,
                    )
                })
            }
        };
        let mut written = None;
        let draft = draft
            .map(|draft| Draft { content: self.unless_forgotten(draft.content.clone()), ..draft });
        if let Some(mut draft) = draft.filter(|draft| !is_forgotten(&draft.content)) {
            self.keep_known_ids(std::slice::from_mut(&mut draft)).await?;
            match self.gate_draft(draft, &mut curated.secrets).cleaned() {
                Ok((draft, _)) => {
                    let event = self.store.append(vec![draft], None).await?.remove(0);
                    curated.learnt.push(event.id);
                    if read.event.is_none() {
                        // From now on the file belongs to the event; foreign content in it stays.
                        let text = memo::render(&Entry::fresh(event, 0), &read.foreign);
                        match self
                            .store
                            .swap(place, text.as_bytes(), ContentVersion::of(Some(&bytes)))
                            .await
                        {
                            Err(StoreError::Moved { .. }) => {
                                curated.complaints.push(saved_meanwhile(place));
                                return Ok(());
                            }
                            other => other?,
                        }
                        curated.memories.push(place.to_string());
                        written = Some(text.into_bytes());
                    }
                }
                Err(unfit) => curated.complaints.push(format!("{place}: {unfit}")),
            }
        }
        if let Some(text) = written {
            return self.see_own(&[(place.clone(), text)]).await;
        }
        // In the version that was read: a later change is found by the next run.
        curated.taken.insert(place.clone(), stamp.clone());
        Ok(self.store.see(&[(place.clone(), stamp.clone())]).await?)
    }

    /// These events and the events linked to them, folded.
    async fn folded(&self, ids: &[EventId]) -> Result<Ledger> {
        Ok(Ledger::of(self.store.tied(ids, &[]).await?))
    }

    /// The entity of a page, if it has one.
    async fn thing_of(&self, key: &PageKey, curated: &mut Curated) -> Result<Option<String>> {
        if key.kind != PageKind::Entity {
            return Ok(None);
        }
        if let Some(name) = curated.names.get(&key.slug) {
            return Ok(Some(name.clone()));
        }
        if curated.things.is_none() {
            let names = self.store.entities().await?;
            curated.things =
                Some(names.into_iter().map(|name| (page::slug(&name), name)).collect());
        }
        let known = curated.things.as_ref().and_then(|things| things.get(&key.slug)).cloned();
        Ok(Some(known.unwrap_or_else(|| plain::entity_key(&key.slug))))
    }

    /// The events that these pages show. `near` are events that are known to be on one of them.
    async fn entries_of(
        &self,
        keys: &BTreeSet<PageKey>,
        near: &[EventId],
        curated: &mut Curated,
    ) -> Result<BTreeMap<PageKey, Vec<Entry>>> {
        let mut ids: BTreeSet<EventId> = near.iter().copied().collect();
        let mut things = Vec::new();
        let mut whole = false;
        for key in keys {
            match self.thing_of(key, curated).await? {
                Some(thing) => things.push(thing),
                // The events that the file itself names; without a file there may be more events
                // than these.
                None => match self.store.document(&key.path()).await? {
                    Some(text) => ids.extend(page::ids(&String::from_utf8_lossy(&text))),
                    None => whole = true,
                },
            }
            ids.extend(
                self.ids(&EventQuery {
                    source: Some(key.path().to_string()),
                    ..EventQuery::everything()
                })
                .await?,
            );
        }
        if !whole {
            let ids: Vec<EventId> = ids.into_iter().collect();
            let things: Vec<&str> = things.iter().map(String::as_str).collect();
            let found = page::into_sorted(Ledger::of(self.store.tied(&ids, &things).await?), keys);
            // A page whose file is empty: read everything.
            if keys.iter().all(|key| key.kind == PageKind::Entity || found.contains_key(key)) {
                return Ok(found);
            }
        }
        Ok(page::into_sorted(self.all_events().await?, keys))
    }

    async fn ids(&self, which: &EventQuery) -> Result<Vec<EventId>> {
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
        curated: &mut Curated,
    ) -> Result<()> {
        let ids: BTreeSet<EventId> = new
            .iter()
            .flat_map(|event| {
                std::iter::once(event.id).chain(event.effects().map(|(target, _)| target))
            })
            .collect();
        let ids: Vec<EventId> = ids.into_iter().collect();
        let around = self.folded(&ids).await?;
        let mut keys = touched;
        let near = page::sorted(&around);
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
        curated.names.extend(told.map(|name| (page::slug(name), name.clone())));
        let shown = self.entries_of(&keys, &at_hand, curated).await?;
        let pages = shown
            .iter()
            .map(|(key, entries)| (key.path(), page::render::render(key, entries).text))
            .collect();
        self.write_pages(pages, curated).await?;
        self.update_memories(&around, &named, curated).await
    }

    /// Rebuilds every page and memory file.
    pub(crate) async fn rebuild_views(&self, curated: &mut Curated) -> Result<()> {
        let all = self.all_events().await?;
        let pages = page::sorted(&all);
        let pages = pages
            .iter()
            .map(|(key, entries)| (key.path(), page::render::render(key, entries).text))
            .collect();
        self.write_pages(pages, curated).await?;
        let ids: BTreeSet<EventId> = all.entries().iter().map(|entry| entry.event.id).collect();
        self.update_memories(&all, &ids, curated).await
    }

    /// Writes changed pages; a page that was edited meanwhile waits for the next run.
    async fn write_pages(
        &self,
        pages: Vec<(DocPath, String)>,
        curated: &mut Curated,
    ) -> Result<()> {
        let files = pages.into_iter().map(|(place, text)| (place, text.into_bytes())).collect();
        let written = self.write_files(files, curated).await?;
        curated.pages.extend(written);
        Ok(())
    }

    /// Writes changed files and returns them. A file that was edited since the last run waits for
    /// the next one. A page that icecore did not write is not overwritten.
    async fn write_files(
        &self,
        files: Vec<(DocPath, Vec<u8>)>,
        curated: &mut Curated,
    ) -> Result<Vec<String>> {
        let mut read = Vec::new();
        for (place, bytes) in files.into_iter().filter(|(place, _)| !curated.held.contains(place)) {
            match self.store.document(&place).await {
                Ok(known) => read.push((place, known, bytes)),
                Err(error) => curated.complaints.push(format!("{place}: {error}")),
            }
        }
        // Stat after reading, so that no earlier change is missed.
        let places: Vec<DocPath> = read.iter().map(|(place, ..)| place.clone()).collect();
        let unseen: BTreeMap<DocPath, Stamp> =
            self.store.unseen(&places).await?.into_iter().collect();
        let (mut changed, mut same, mut foreign) = (Vec::new(), Vec::new(), Vec::new());
        for (path, known, bytes) in read {
            let stamp = unseen.get(&path);
            if known.as_ref() == Some(&bytes) {
                same.push((path, bytes));
            } else if stamp.is_some_and(|stamp| !curated.has_taken(&path, stamp)) {
                // Saved after its import: the next run imports it.
            } else if is_page(&path)
                && known.as_deref().is_some_and(|known| is_foreign_page(known, &bytes))
            {
                curated.complaints.push(format!(
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
        let left: BTreeSet<DocPath> = match self.store.swap_many(&changed).await {
            Ok(left) => left.into_iter().collect(),
            Err(error) if is_of_one_file(&error) => {
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
                    match self.store.swap_many(std::slice::from_ref(one)).await {
                        Ok(some) => left.extend(some),
                        Err(error) if is_of_one_file(&error) => {
                            curated.complaints.push(format!("{}: {error}", one.path));
                            denied.insert(one.path.clone());
                        }
                        Err(error) => return Err(error.into()),
                    }
                }
                left
            }
            Err(error) => return Err(error.into()),
        };
        curated.complaints.extend(left.iter().map(saved_meanwhile));
        changed.retain(|one| !left.contains(&one.path) && !denied.contains(&one.path));
        let names = changed.iter().map(|one| one.path.to_string()).collect();
        same.extend(changed.into_iter().map(|one| (one.path, one.bytes)));
        self.see_own(&same).await?;
        self.store.see(&foreign).await?;
        Ok(names)
    }

    /// Marks files as seen in the version that icecore wrote, unless they were saved since.
    pub(crate) async fn see_own(&self, files: &[(DocPath, Vec<u8>)]) -> Result<()> {
        let places: Vec<DocPath> = files.iter().map(|(place, _)| place.clone()).collect();
        let mut seen = self.store.unseen(&places).await?;
        let ours: BTreeMap<&DocPath, &Vec<u8>> =
            files.iter().map(|(place, bytes)| (place, bytes)).collect();
        let mut own = Vec::new();
        for (place, stamp) in seen.drain(..) {
            if self.store.document(&place).await?.as_ref() == ours.get(&place).copied() {
                own.push((place, stamp));
            }
        }
        Ok(self.store.see(&own).await?)
    }

    /// Updates the memory files of these events.
    async fn update_memories(
        &self,
        ledger: &Ledger,
        ids: &BTreeSet<EventId>,
        curated: &mut Curated,
    ) -> Result<()> {
        let mut files: BTreeMap<DocPath, Vec<u8>> = BTreeMap::new();
        // An unconfirmed event has no memory file.
        let own = |entry: &&Entry| {
            ids.contains(&entry.event.id) && memo::has_file(&entry.event) && !waits(entry)
        };
        for entry in ledger.entries().iter().filter(own) {
            let (place, known) = self.memory_file(&entry.event, &files).await?;
            let foreign = known.as_deref().map_or_else(Vec::new, |text| memo::read(text).foreign);
            let text = memo::render(entry, &foreign);
            if known.as_deref() != Some(text.as_str()) {
                files.insert(place, text.into_bytes());
            }
        }
        let written = self.write_files(files.into_iter().collect(), curated).await?;
        curated.memories.extend(written);
        Ok(())
    }

    /// The path of an event's memory file, and its present content.
    async fn memory_file(
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
            if memo::read(&text).event.is_none_or(|id| id == event.id) {
                return Ok((place, Some(text)));
            }
        }
        let mut taken = BTreeSet::new();
        loop {
            let name = memo::name(event, |name| taken.contains(name));
            let place = path(&format!("{}/{name}.md", layout::MEMORIES))?;
            let text = match writing.get(&place) {
                Some(bytes) => Some(bytes.clone()),
                None => self.store.document(&place).await?,
            };
            let text = text.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
            match &text {
                None => return Ok((place, None)),
                Some(found) if memo::read(found).event == Some(event.id) => {
                    return Ok((place, text));
                }
                Some(_) => taken.insert(name),
            };
        }
    }

    /// The names of memory files, by their days.
    pub(crate) async fn memory_names(&self) -> Result<Vec<String>> {
        let files = self.store.documents(layout::MEMORIES).await?;
        Ok(files
            .iter()
            .filter(|path| is_memory(path))
            .filter_map(|path| path.name().strip_suffix(".md").map(str::to_owned))
            .collect())
    }
}
