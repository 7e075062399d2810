//! Tending the wiki (L4, K4, K8): pages and memory files follow the ledger, and what people write into them enters it.
//!
//! A page is a view of events. What somebody changed in one is first taken into the ledger, then the page is written again
//! from all there is: so a person's words survive every rebuild, and a page that is deleted or garbled loses nothing.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use icecore_domain::event::{Act, Draft, Event, Kind, Origin, Priority};
use icecore_domain::id::EventId;
use icecore_domain::layout::{self, DocPath};
use icecore_domain::ledger::query::EventQuery;
use icecore_domain::ledger::{Entry, Ledger, archive};
use icecore_domain::memo::{self, MemoEdit, ReadMemo};
use icecore_domain::page::edit::{self, Edit};
use icecore_domain::page::{self, PageKey, PageKind};
use icecore_domain::plain;
use icecore_store::{Error as StoreError, Position, Stamp};
use serde::Serialize;

use crate::{ATTEMPTS, Memory, Result};

/// What became of pages and memory files.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Curated {
    /// Pages that were written.
    pub pages: Vec<String>,
    /// Memory files that were written.
    pub memories: Vec<String>,
    /// Events that people wrote into pages and memory files.
    pub learnt: Vec<EventId>,
    /// What could not be taken over, and why.
    pub complaints: Vec<String>,
}

fn path(text: &str) -> Result<DocPath> {
    Ok(text.parse().map_err(StoreError::Path)?)
}

fn is_page(path: &DocPath) -> bool {
    PageKey::of_path(path).is_some()
}

fn is_memory(path: &DocPath) -> bool {
    path.as_str().strip_prefix(layout::MEMORIES).is_some_and(|rest| rest.starts_with('/')) && path.as_str().ends_with(".md")
}

impl Memory {
    /// Pages and memory files that somebody has changed since they were last looked at.
    pub(crate) async fn edited(&self) -> Result<Vec<String>> {
        let mut files: Vec<DocPath> = self.store.documents("knowledge").await?.into_iter().filter(is_page).collect();
        files.extend(self.store.documents(layout::MEMORIES).await?.into_iter().filter(is_memory));
        Ok(self.store.unseen(&files).await?.into_iter().map(|(place, _)| place.to_string()).collect())
    }

    /// The pages and memory files that these events are seen in, and the pages that are named.
    pub(crate) async fn views_of(&self, new: &[Event], touched: BTreeSet<PageKey>) -> Result<(Vec<String>, Vec<String>)> {
        let ids: BTreeSet<EventId> =
            new.iter().flat_map(|event| std::iter::once(event.id).chain(event.effects().map(|(target, _)| target))).collect();
        let around = self.folded(&ids.iter().copied().collect::<Vec<_>>()).await?;
        let mut pages: BTreeSet<String> = touched.iter().map(|key| key.path().to_string()).collect();
        for (key, entries) in page::sorted(&around) {
            if entries.iter().any(|entry| ids.contains(&entry.event.id)) {
                pages.insert(key.path().to_string());
            }
        }
        let mut memories = Vec::new();
        for entry in around.entries().iter().filter(|entry| ids.contains(&entry.event.id) && memo::has_file(&entry.event)) {
            memories.push(self.memory_file(&entry.event, &BTreeMap::new()).await?.0.to_string());
        }
        Ok((pages.into_iter().collect(), memories))
    }

    /// Everything that is to be seen on pages and in memory files, wherever it stands, by id.
    async fn all_events(&self) -> Result<Ledger> {
        let text = self.store.ledger().await?.bytes;
        let archives = self.archive_texts().await?;
        let archives: Vec<&[u8]> = archives.iter().map(Vec::as_slice).collect();
        Ok(archive::everything(&text, &archives))
    }

    /// What people wrote into pages and memory files since they were last looked at becomes events. Returns the pages that
    /// were touched.
    pub(crate) async fn adopt_edits(&self, curated: &mut Curated) -> Result<BTreeSet<PageKey>> {
        let mut touched = BTreeSet::new();
        let pages: Vec<DocPath> = self.store.documents("knowledge").await?.into_iter().filter(is_page).collect();
        let unseen = self.store.unseen(&pages).await?;
        for (place, stamp) in &unseen {
            let Some(key) = PageKey::of_path(place) else { continue };
            if self.adopt_page(&key, place, curated).await? {
                touched.insert(key);
            } else {
                self.store.see(&[(place.clone(), stamp.clone())]).await?;
            }
        }
        // A page that is gone is written again.
        touched.extend(self.store.gone("knowledge/").await?.iter().filter_map(PageKey::of_path));
        let memories: Vec<DocPath> = self.store.documents(layout::MEMORIES).await?.into_iter().filter(is_memory).collect();
        for (place, stamp) in self.store.unseen(&memories).await? {
            self.adopt_memory(&place, &stamp, curated).await?;
        }
        Ok(touched)
    }

    /// Takes over what a person wrote into a page; whether the page is to be written again.
    async fn adopt_page(&self, key: &PageKey, place: &DocPath, curated: &mut Curated) -> Result<bool> {
        let mut last = StoreError::Moved { what: layout::LEDGER.into() };
        for _ in 0..ATTEMPTS {
            let Some(bytes) = self.store.document(place).await? else { return Ok(true) };
            let file = String::from_utf8_lossy(&bytes).into_owned();
            let position = self.store.events(&EventQuery { limit: Some(1), ..EventQuery::everything() }).await?.position;
            let (entity, entries) = self.entries_of(key).await?;
            if page::render::render(key, &entries).text == file {
                return Ok(false);
            }
            let edits = edit::edits(key, &file, &entries, self.now().day());
            let drafts = self.drafts_of(key, entity.as_deref(), &edits.drafts, &entries, place, curated);
            curated.complaints.extend(edits.complaints.iter().map(|complaint| format!("{place}: {complaint}")));
            match self.append_at(drafts, position).await {
                Err(crate::Error::Store(moved @ StoreError::Moved { .. })) => last = moved,
                other => {
                    curated.learnt.extend(other?.iter().map(|event| event.id));
                    // What could not be taken over stays in the file for a person to mend.
                    return Ok(edits.complaints.is_empty());
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
        let by_id: HashMap<EventId, &Event> = entries.iter().map(|entry| (entry.event.id, &entry.event)).collect();
        let mut drafts = Vec::new();
        for one in edits {
            let target = match one {
                Edit::Confirm(id) | Edit::Retract(id) => by_id.get(id).copied(),
                Edit::State { supersedes, .. } => supersedes.first().and_then(|id| by_id.get(id).copied()),
            };
            let mut draft = one.draft(key, entity, target, self.now());
            // What a person took the trouble to write down does not expire.
            if draft.act == Act::Assert && draft.priority > Priority::P1 && target.is_none() {
                draft.priority = Priority::P1;
            }
            draft.content = self.gate_text(&draft.content);
            match draft.cleaned() {
                Ok((draft, _)) => drafts.push(draft),
                Err(unfit) => curated.complaints.push(format!("{place}: {unfit}")),
            }
        }
        drafts
    }

    async fn append_at(&self, drafts: Vec<Draft>, position: Position) -> Result<Vec<Event>> {
        if drafts.is_empty() {
            return Ok(Vec::new());
        }
        Ok(self.store.append(drafts, Some(position)).await?)
    }

    /// Likewise for a memory file.
    async fn adopt_memory(&self, place: &DocPath, stamp: &Stamp, curated: &mut Curated) -> Result<()> {
        let Some(bytes) = self.store.document(place).await? else { return Ok(()) };
        let file = String::from_utf8_lossy(&bytes).into_owned();
        let read = memo::read(&file);
        let known = match read.event {
            Some(id) => self.folded(&[id]).await?.get(id).cloned(),
            None => None,
        };
        let (edit, complaints) = memo::edit(&file, known.as_ref());
        curated.complaints.extend(complaints.iter().map(|complaint| format!("{place}: {complaint}")));
        let now = self.now();
        let draft = match edit {
            MemoEdit::None => None,
            MemoEdit::Changed { supersedes, content } => known.as_ref().map(|entry| {
                let supersedes = if entry.standing.is_active() { vec![supersedes] } else { Vec::new() };
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
                // One that says what is known needs no event of its own.
                let same = EventQuery { saying: Some(memo.content.clone()), ..EventQuery::default() };
                let known = self.store.events(&same).await?.entries;
                let ReadMemo { content, event, fields, .. } = *memo;
                known.is_empty().then(|| Draft {
                    entity: fields.entity,
                    tags: fields.tags,
                    related: event.into_iter().collect(),
                    origin: Origin::File,
                    source: place.to_string(),
                    ..Draft::new(now, fields.kind.unwrap_or(Kind::Fact), fields.priority.unwrap_or(Priority::P1), content)
                })
            }
        };
        if let Some(mut draft) = draft {
            draft.content = self.gate_text(&draft.content);
            match draft.cleaned() {
                Ok((draft, _)) => {
                    let event = self.store.append(vec![draft], None).await?.remove(0);
                    curated.learnt.push(event.id);
                    if read.event.is_none() {
                        // The file is the event's from now on; what other programs put into it stays.
                        let text = memo::render(&Entry::fresh(event, 0), &read.foreign);
                        self.store.put(place, text.as_bytes()).await?;
                        curated.memories.push(place.to_string());
                    }
                }
                Err(unfit) => curated.complaints.push(format!("{place}: {unfit}")),
            }
        }
        let seen = self.store.unseen(std::slice::from_ref(place)).await?;
        let seen = if seen.is_empty() { vec![(place.clone(), stamp.clone())] } else { seen };
        Ok(self.store.see(&seen).await?)
    }

    /// These events and all that hangs on them, folded.
    async fn folded(&self, ids: &[EventId]) -> Result<Ledger> {
        Ok(Ledger::of(self.store.tied(ids).await?))
    }

    /// The thing a page is about, and everything that is to be seen on it.
    async fn entries_of(&self, key: &PageKey) -> Result<(Option<String>, Vec<Entry>)> {
        let entity = match key.kind {
            PageKind::Entity => {
                let known = self.store.entities().await?.into_iter().find(|name| page::slug(name) == key.slug);
                Some(known.unwrap_or_else(|| plain::entity_key(&key.slug)))
            }
            _ => None,
        };
        let mut ids: BTreeSet<EventId> = BTreeSet::new();
        if let Some(entity) = &entity {
            ids.extend(self.ids(&EventQuery { entity: Some(entity.clone()), ..EventQuery::everything() }).await?);
            ids.extend(self.store.archived(&[], Some(entity)).await?.iter().map(|event| event.id));
        } else {
            // What the file itself names, and what was written into it.
            let text = self.store.document(&key.path()).await?.unwrap_or_default();
            ids.extend(page::ids(&String::from_utf8_lossy(&text)));
        }
        ids.extend(self.ids(&EventQuery { source: Some(key.path().to_string()), ..EventQuery::everything() }).await?);
        let ids: Vec<EventId> = ids.into_iter().collect();
        let found = page::sorted(&self.folded(&ids).await?).remove(key).unwrap_or_default();
        if !found.is_empty() || entity.is_some() {
            return Ok((entity, found));
        }
        // A page whose file says nothing any more: look at everything.
        let found = page::sorted(&self.all_events().await?).remove(key).unwrap_or_default();
        Ok((entity, found))
    }

    async fn ids(&self, which: &EventQuery) -> Result<Vec<EventId>> {
        Ok(self.store.events(which).await?.entries.into_iter().map(|entry| entry.event.id).collect())
    }

    /// Brings the pages and memory files up to date that these events touch, and those that are named.
    pub(crate) async fn update_views(&self, new: &[Event], touched: BTreeSet<PageKey>, curated: &mut Curated) -> Result<()> {
        let ids: BTreeSet<EventId> =
            new.iter().flat_map(|event| std::iter::once(event.id).chain(event.effects().map(|(target, _)| target))).collect();
        let ids: Vec<EventId> = ids.into_iter().collect();
        let around = self.folded(&ids).await?;
        let mut keys = touched;
        let near = page::sorted(&around);
        let named: BTreeSet<EventId> = ids.iter().copied().collect();
        keys.extend(
            near.iter().filter(|(_, entries)| entries.iter().any(|entry| named.contains(&entry.event.id))).map(|(key, _)| key.clone()),
        );
        let mut pages = Vec::new();
        for key in keys {
            let entries = match near.get(&key) {
                // A page of one chain has all of it at hand, unless somebody wrote into it.
                Some(entries) if key.kind != PageKind::Entity && !self.is_written_into(&key).await? => entries.clone(),
                _ => self.entries_of(&key).await?.1,
            };
            if !entries.is_empty() {
                pages.push((key.path(), page::render::render(&key, &entries).text));
            }
        }
        self.write_pages(pages, curated).await?;
        self.update_memories(&around, &named, curated).await
    }

    async fn is_written_into(&self, key: &PageKey) -> Result<bool> {
        Ok(!self.ids(&EventQuery { source: Some(key.path().to_string()), limit: Some(1), ..EventQuery::everything() }).await?.is_empty())
    }

    /// Writes every page and memory file anew, from everything there is.
    pub(crate) async fn rebuild_views(&self, curated: &mut Curated) -> Result<()> {
        let all = self.all_events().await?;
        let pages = page::sorted(&all);
        let pages = pages.iter().map(|(key, entries)| (key.path(), page::render::render(key, entries).text)).collect();
        self.write_pages(pages, curated).await?;
        let ids: BTreeSet<EventId> = all.entries().iter().map(|entry| entry.event.id).collect();
        self.update_memories(&all, &ids, curated).await
    }

    /// Puts pages in place that say something new; one that somebody has changed meanwhile waits for the next run.
    async fn write_pages(&self, pages: Vec<(DocPath, String)>, curated: &mut Curated) -> Result<()> {
        let mut changed = Vec::new();
        let mut there = Vec::new();
        for (place, text) in pages {
            match self.store.document(&place).await? {
                Some(known) if known == text.as_bytes() => there.push(place),
                _ => changed.push((place, text.into_bytes())),
            }
        }
        curated.pages.extend(changed.iter().map(|(place, _)| place.to_string()));
        there.extend(changed.iter().map(|(place, _)| place.clone()));
        self.store.put_many(&changed).await?;
        let seen = self.store.unseen(&there).await?;
        Ok(self.store.see(&seen).await?)
    }

    /// Brings the memory files of these events up to date.
    async fn update_memories(&self, ledger: &Ledger, ids: &BTreeSet<EventId>, curated: &mut Curated) -> Result<()> {
        let mut files: BTreeMap<DocPath, Vec<u8>> = BTreeMap::new();
        for entry in ledger.entries().iter().filter(|entry| ids.contains(&entry.event.id) && memo::has_file(&entry.event)) {
            let (place, known) = self.memory_file(&entry.event, &files).await?;
            let foreign = known.as_deref().map_or_else(Vec::new, |text| memo::read(text).foreign);
            let text = memo::render(entry, &foreign);
            if known.as_deref() != Some(text.as_str()) {
                files.insert(place, text.into_bytes());
            }
        }
        let files: Vec<(DocPath, Vec<u8>)> = files.into_iter().collect();
        curated.memories.extend(files.iter().map(|(place, _)| place.to_string()));
        self.store.put_many(&files).await?;
        let places: Vec<DocPath> = files.into_iter().map(|(place, _)| place).collect();
        let seen = self.store.unseen(&places).await?;
        Ok(self.store.see(&seen).await?)
    }

    /// Where an event's memory file is or is to be, and what stands there.
    async fn memory_file(&self, event: &Event, writing: &BTreeMap<DocPath, Vec<u8>>) -> Result<(DocPath, Option<String>)> {
        // One that was written by hand is where it was.
        if let Some(place) = event.source.strip_prefix(layout::MEMORIES).and_then(|_| event.source.parse::<DocPath>().ok())
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
                Some(found) if memo::read(found).event == Some(event.id) => return Ok((place, text)),
                Some(_) => taken.insert(name),
            };
        }
    }

    /// The names of memory files, by the day they tell of.
    pub(crate) async fn memory_names(&self) -> Result<Vec<String>> {
        let files = self.store.documents(layout::MEMORIES).await?;
        Ok(files.iter().filter(|path| is_memory(path)).filter_map(|path| path.name().strip_suffix(".md").map(str::to_owned)).collect())
    }
}
