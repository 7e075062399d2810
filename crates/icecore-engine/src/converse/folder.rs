//! The folder of a conversation: its ledger, turn log and artifacts, and the queries on them.

use std::collections::BTreeMap;

use icecore_domain::calendar::{Days, Moment};
use icecore_domain::converse::artifact::{self, ArtifactIndex};
use icecore_domain::converse::branch::{Branches, TurnSet};
use icecore_domain::converse::conversation_facts::{self, ConversationFact, FactComparison};
use icecore_domain::converse::turn_detection;
use icecore_domain::converse::turn_log::{self, TurnLine};
use icecore_domain::event::{Act, Event, EventDraft, Scope};
use icecore_domain::format::line;
use icecore_domain::hash::Hash;
use icecore_domain::id::EventId;
use icecore_domain::layout::DocPath;
use icecore_domain::ledger::Ledger;
use icecore_domain::packs::chat::ChatPackLine;
use icecore_domain::record::Record;
use icecore_domain::{page, sanitize};
use icecore_store::{ContentVersion, Error as StoreError, ErrorKind as StoreErrorKind};
use serde::{Deserialize, Serialize};

use super::branching::MAX_CANDIDATES;
use super::{Chats, PROMOTED_TAG, last_turn};
use crate::{Error, MAX_ATTEMPTS, Result, SecretCounts};

/// The folder of all conversations.
pub const CONVERSATIONS_FOLDER: &str = "conversations";
/// The index of conversations by their first exchanges, beneath it.
const OPENINGS_FOLDER: &str = "openings";
/// The most bytes of artifacts that are inserted word for word on request.
const MAX_RECALLED_BYTES: usize = 48 * 1024;

/// The path of a conversation's folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ConversationFolder(String);

impl ConversationFolder {
    pub(super) fn of(conversation: &str) -> Self {
        let slug = page::slug(conversation);
        let short = slug[..slug.floor_char_boundary(60)].trim_matches('-').to_owned();
        Self(format!(
            "{CONVERSATIONS_FOLDER}/{short}-{}",
            Hash::of(conversation.as_bytes()).short_hex()
        ))
    }

    fn file(&self, name: &str) -> String {
        format!("{}/{name}", self.0)
    }

    pub(super) fn about(&self) -> String {
        self.file("conversation.json")
    }

    pub(super) fn events(&self) -> String {
        self.file("events.jsonl")
    }

    pub(super) fn turns(&self) -> String {
        self.file("turn-log.jsonl")
    }

    pub(super) fn branches(&self) -> String {
        self.file("branches.jsonl")
    }

    pub(super) fn artifacts(&self) -> String {
        self.file("artifacts/index.jsonl")
    }

    pub(super) fn base_truth(&self) -> String {
        self.file("base-truth.json")
    }

    pub(super) fn snapshot(&self, turn: u64) -> String {
        self.file(&format!("snapshots/turn-{turn:05}.json"))
    }

    /// The path of a file that the artifact index names.
    pub(super) fn artifact(&self, file: &str) -> String {
        self.file(file)
    }
}

/// The files of a conversation that change as it goes on.
pub(crate) fn files_of(conversation: &str) -> [String; 4] {
    let folder = ConversationFolder::of(conversation);
    [folder.events(), folder.turns(), folder.artifacts(), folder.branches()]
}

/// The path of a conversation's folder.
pub(crate) fn folder_of(conversation: &str) -> String {
    ConversationFolder::of(conversation).0
}

/// The content of a conversation's own file.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct ConversationFile {
    pub(super) id: String,
    begun: String,
    /// Hashes of its first exchanges, which find it if the client sends no id.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    openings: Vec<String>,
}

/// The list of the conversations with this beginning, newest last.
fn opening_path(opening: &str) -> Result<DocPath> {
    doc_path(&format!("{CONVERSATIONS_FOLDER}/{OPENINGS_FOLDER}/{opening}.txt"))
}

/// The names in such a list, newest first.
fn names_of_opening(list: &[u8]) -> Vec<String> {
    String::from_utf8_lossy(list)
        .lines()
        .rev()
        .filter_map(turn_detection::conversation_name)
        .take(MAX_CANDIDATES)
        .collect()
}

/// A conversation in a list.
#[derive(Debug, Clone, Serialize)]
pub struct ConversationInfo {
    pub conversation: String,
    pub messages: u64,
    /// The number of turns, if it went through the server.
    pub turns: u64,
    /// The number of active facts.
    pub facts: usize,
    /// The number of pending turns.
    pub unsummarized: usize,
    /// The time of the first message.
    pub first: Moment,
    /// The time of the last message.
    pub last: Moment,
}

/// A version of an artifact.
#[derive(Debug, Clone, Serialize)]
pub struct ArtifactVersion {
    pub name: String,
    pub version: u32,
    pub turn: u64,
    pub ts: Moment,
    /// Code or a document.
    pub kind: String,
    /// The programming language.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub language: Option<String>,
    pub lines: usize,
    pub bytes: usize,
    /// The path of the file.
    pub file: String,
}

/// The result of deleting a conversation.
#[derive(Debug, Clone, Serialize)]
pub struct DeletedConversation {
    pub conversation: String,
    /// The number of deleted messages.
    pub messages: usize,
    /// The number of deleted files.
    pub files: usize,
}

pub(super) fn doc_path(text: &str) -> Result<DocPath> {
    Ok(text.parse().map_err(StoreError::from)?)
}

/// The context lines about artifacts, one per artifact with its versions.
pub(super) fn artifact_lines(index: &ArtifactIndex) -> Vec<ChatPackLine> {
    let mut latest: Vec<&artifact::ArtifactVersion> =
        index.names().filter_map(|name| index.latest(name)).collect();
    latest.sort_by_key(|entry| entry.turn);
    let told = |entry: &&artifact::ArtifactVersion| {
        let turns: Vec<String> = index
            .versions(&entry.name)
            .map(|version| format!("v{} of turn {}", version.version, version.turn))
            .collect();
        let first = turns.len().saturating_sub(6);
        let text = format!("{} ({} lines): {}", entry.name, entry.lines, turns[first..].join(", "));
        ChatPackLine { id: format!("artifact:{}", entry.name), text }
    };
    latest.iter().map(told).collect()
}

/// Gives new events the next ids of a conversation's ledger.
fn assign_ids(ledger: &Ledger, drafts: Vec<EventDraft>) -> Vec<Event> {
    let mut next: BTreeMap<jiff::civil::Date, u32> = BTreeMap::new();
    for entry in ledger.entries() {
        let known = next.entry(entry.event.id.day()).or_default();
        *known = (*known).max(entry.event.id.number());
    }
    let number = |draft: EventDraft| {
        let day = draft.ts.day();
        let number = next.entry(day).or_default();
        *number += 1;
        draft.with_id(EventId::new(day, *number))
    };
    drafts.into_iter().map(number).collect()
}

impl Chats {
    pub(super) fn folder(&self, conversation: &str) -> ConversationFolder {
        ConversationFolder::of(conversation)
    }

    pub(super) async fn read_document(&self, place: &str) -> Result<Vec<u8>> {
        Ok(self.memory.store.document(&doc_path(place)?).await?.unwrap_or_default())
    }

    /// Reads a file of a conversation if its size differs from `bytes`, the size at the last read.
    pub(super) async fn read_if_grown(
        &self,
        place: &str,
        bytes: &mut u64,
    ) -> Result<Option<Vec<u8>>> {
        let place = doc_path(place)?;
        if self.memory.store.document_len(&place).await? == *bytes {
            return Ok(None);
        }
        let text = self.memory.store.document(&place).await?.unwrap_or_default();
        *bytes = text.len() as u64;
        Ok(Some(text))
    }

    async fn read_conversation_file(&self, conversation: &str) -> Result<Option<ConversationFile>> {
        Ok(serde_json::from_slice(&self.read_document(&self.folder(conversation).about()).await?)
            .ok())
    }

    /// The conversations with this beginning, newest first.
    pub(super) async fn conversations_with_opening(&self, opening: &str) -> Result<Vec<String>> {
        Ok(names_of_opening(
            &self.memory.store.document(&opening_path(opening)?).await?.unwrap_or_default(),
        ))
    }

    /// Creates the file of a new conversation.
    pub(super) async fn create_conversation(&self, conversation: &str) -> Result<()> {
        let about = ConversationFile {
            id: conversation.to_owned(),
            begun: self.memory.now().to_string(),
            openings: Vec::new(),
        };
        self.write_conversation_file(&about).await
    }

    async fn write_conversation_file(&self, about: &ConversationFile) -> Result<()> {
        let text = serde_json::to_string_pretty(about).unwrap_or_default() + "\n";
        Ok(self
            .memory
            .store
            .put(&doc_path(&self.folder(&about.id).about())?, text.as_bytes())
            .await?)
    }

    /// Changes the list of conversations with this beginning, which other processes change too.
    /// Returns whether it has any entry left.
    async fn change_opening(
        &self,
        opening: &str,
        change: impl Fn(&mut Vec<String>),
    ) -> Result<bool> {
        let place = opening_path(opening)?;
        let mut last = StoreError::conflict(place.to_string());
        for _ in 0..MAX_ATTEMPTS {
            let known = self.memory.store.document(&place).await?;
            let mut names = names_of_opening(known.as_deref().unwrap_or_default());
            change(&mut names);
            let text: String = names.iter().rev().flat_map(|name| [name.as_str(), "\n"]).collect();
            match self
                .memory
                .store
                .compare_and_swap(&place, text.as_bytes(), ContentVersion::of(known.as_deref()))
                .await
            {
                Err(moved @ StoreError { kind: StoreErrorKind::Conflict, .. }) => last = moved,
                other => return other.map(|()| !names.is_empty()).map_err(Error::from),
            }
        }
        Err(last.into())
    }

    /// Indexes a conversation by its beginning, for clients that send no id.
    pub(super) async fn register_opening(&self, conversation: &str, opening: &str) -> Result<()> {
        let Some(mut about) = self.read_conversation_file(conversation).await? else {
            return Ok(());
        };
        if about.openings.iter().any(|known| known == opening) {
            return Ok(());
        }
        self.change_opening(opening, |names| {
            names.retain(|name| name != conversation);
            names.truncate(MAX_CANDIDATES - 1);
            names.insert(0, conversation.to_owned());
        })
        .await?;
        about.openings.push(opening.to_owned());
        self.write_conversation_file(&about).await
    }

    /// Appends lines to a file of a conversation.
    pub(super) async fn append_lines(&self, place: &str, lines: &str) -> Result<()> {
        Ok(self.memory.store.append_to_document(&doc_path(place)?, lines.as_bytes()).await?)
    }

    /// Appends lines to a file of a conversation. `lines` makes them from the present content, and
    /// is called again if another process was faster.
    pub(super) async fn append_lines_with(
        &self,
        place: &str,
        mut lines: impl FnMut(&[u8]) -> String,
    ) -> Result<String> {
        let place = doc_path(place)?;
        let mut last = StoreError::conflict(place.to_string());
        for _ in 0..MAX_ATTEMPTS {
            let known = self.memory.store.document(&place).await?;
            let text = lines(known.as_deref().unwrap_or_default());
            if text.is_empty() {
                return Ok(text);
            }
            match self
                .memory
                .store
                .append_if_unchanged(&place, text.as_bytes(), ContentVersion::of(known.as_deref()))
                .await
            {
                Err(moved @ StoreError { kind: StoreErrorKind::Conflict, .. }) => last = moved,
                other => return other.map(|()| text).map_err(Error::from),
            }
        }
        Err(last.into())
    }

    /// Appends events to a conversation's ledger; `drafts` makes them from the present ledger.
    pub(super) async fn append_events(
        &self,
        conversation: &str,
        mut drafts: impl FnMut(&Ledger) -> Vec<EventDraft>,
    ) -> Result<usize> {
        let mut many = 0;
        self.append_lines_with(&self.folder(conversation).events(), |known| {
            let ledger = Ledger::parse(known, None);
            let gated = drafts(&ledger)
                .into_iter()
                .map(|draft| self.memory.filter_draft(draft, &mut SecretCounts::new()));
            let cleaned =
                gated.filter_map(|draft| draft.sanitize().ok().map(|(draft, _)| draft)).collect();
            let events = assign_ids(&ledger, cleaned);
            many = events.len();
            events.iter().map(line::format_line).collect()
        })
        .await?;
        Ok(many)
    }

    pub(super) async fn ensure_exists(&self, conversation: &str) -> Result<()> {
        if self.read_conversation_file(conversation).await?.is_some()
            || !self.memory.store.recent_records(conversation, 1).await?.is_empty()
        {
            return Ok(());
        }
        let name = sanitize::one_line(conversation);
        Err(Error::NotFound(format!(
            "there is no conversation `{name}`; `icecore conversation list` lists all"
        )))
    }

    /// Every conversation, the most recent first.
    pub async fn conversations(&self) -> Result<Vec<ConversationInfo>> {
        let mut found: BTreeMap<String, ConversationInfo> = BTreeMap::new();
        for stat in self.memory.store.sessions(None).await? {
            let entry =
                found.entry(stat.key.conversation.clone()).or_insert_with(|| ConversationInfo {
                    conversation: stat.key.conversation.clone(),
                    messages: 0,
                    turns: 0,
                    facts: 0,
                    unsummarized: 0,
                    first: stat.first,
                    last: stat.last,
                });
            entry.messages += stat.digest.records;
            entry.turns = entry.turns.max(stat.turn);
            entry.first = entry.first.min(stat.first);
            entry.last = entry.last.max(stat.last);
        }
        // Only conversations through the server have a log and facts.
        for entry in found.values_mut().filter(|entry| entry.turns > 0) {
            let log = turn_log::parse_turn_log(
                &self.read_document(&self.folder(&entry.conversation).turns()).await?,
            );
            entry.turns = entry.turns.max(last_turn(&log));
            entry.unsummarized = turn_log::unsummarized_turns(&log, entry.turns).len();
            entry.facts = self.current_facts(&entry.conversation, entry.turns).await?.len();
        }
        let mut found: Vec<ConversationInfo> = found.into_values().collect();
        found.sort_by(|a, b| b.last.cmp(&a.last).then_with(|| a.conversation.cmp(&b.conversation)));
        Ok(found)
    }

    /// The order of the turns.
    pub(super) async fn branches(&self, conversation: &str) -> Result<Branches> {
        Ok(Branches::parse(&self.read_document(&self.folder(conversation).branches()).await?))
    }

    /// The active facts of a conversation; `last` is its last turn.
    pub(super) async fn current_facts(
        &self,
        conversation: &str,
        last: u64,
    ) -> Result<Vec<ConversationFact>> {
        let ledger =
            Ledger::parse(&self.read_document(&self.folder(conversation).events()).await?, None);
        let branches = self.branches(conversation).await?;
        if branches.is_empty() {
            return Ok(conversation_facts::facts(&ledger, conversation));
        }
        Ok(conversation_facts::facts_on_path(&ledger, conversation, &branches.active(last)))
    }

    /// The last turn of a conversation.
    async fn last_turn_of(&self, conversation: &str) -> Result<u64> {
        let room = self.open_conversation(conversation);
        let mut state = room.state.lock().await;
        Ok(self.refresh_state(conversation, &mut state).await?.last_turn())
    }

    /// The facts of a conversation, now or at the end of a turn.
    pub async fn facts(
        &self,
        conversation: &str,
        turn: Option<u64>,
    ) -> Result<Vec<ConversationFact>> {
        self.ensure_exists(conversation).await?;
        let Some(turn) = turn else {
            let last = self.last_turn_of(conversation).await?;
            return self.current_facts(conversation, last).await;
        };
        let ledger =
            Ledger::parse(&self.read_document(&self.folder(conversation).events()).await?, None);
        let path = self.branches(conversation).await?.turns_before(turn).with(turn);
        Ok(conversation_facts::facts_on_path(&ledger, conversation, &path))
    }

    /// The difference between the facts at the ends of two turns.
    pub async fn compare_facts(
        &self,
        conversation: &str,
        from: u64,
        to: u64,
    ) -> Result<FactComparison> {
        let (older, newer) = (
            self.facts(conversation, Some(from)).await?,
            self.facts(conversation, Some(to)).await?,
        );
        Ok(conversation_facts::compare_facts(&older, &newer))
    }

    /// The turns of a conversation from the turn log; the last line of each counts. Turns outside
    /// the active branch are marked as withdrawn.
    pub async fn turns(&self, conversation: &str) -> Result<Vec<TurnLine>> {
        self.ensure_exists(conversation).await?;
        let mut log = turn_log::parse_turn_log(
            &self.read_document(&self.folder(conversation).turns()).await?,
        );
        let branches = self.branches(conversation).await?;
        if !branches.is_empty() {
            let active = branches.active(self.last_turn_of(conversation).await?);
            for line in log.turns.values_mut().filter(|line| !active.contains(line.turn)) {
                line.extra.insert(turn_log::WITHDRAWN_FIELD.into(), true.into());
            }
        }
        Ok(log.turns.into_values().collect())
    }

    /// The records of a turn.
    pub async fn turn_records(&self, conversation: &str, turn: u64) -> Result<Vec<Record>> {
        self.ensure_exists(conversation).await?;
        let mut records = self.memory.store.recent_records(conversation, usize::MAX).await?;
        records.retain(|record| record.turn() == Some(turn));
        if records.is_empty() {
            return Err(Error::NotFound(format!(
                "there is no turn {turn} in {}",
                sanitize::one_line(conversation)
            )));
        }
        Ok(records)
    }

    /// Every version of every artifact of a conversation.
    pub async fn artifacts(&self, conversation: &str) -> Result<Vec<ArtifactVersion>> {
        self.ensure_exists(conversation).await?;
        let folder = self.folder(conversation);
        let (index, _) = ArtifactIndex::parse(&self.read_document(&folder.artifacts()).await?);
        let kept = |entry: &artifact::ArtifactVersion| ArtifactVersion {
            name: entry.name.clone(),
            version: entry.version,
            turn: entry.turn,
            ts: entry.ts,
            kind: entry.kind.to_string(),
            language: entry.language.clone(),
            lines: entry.lines,
            bytes: entry.bytes,
            file: folder.artifact(&entry.file),
        };
        Ok(index.names().flat_map(|name| index.versions(name)).map(kept).collect())
    }

    /// One version of an artifact: `NAME`, `NAME@v2` or `NAME@turn-3`.
    pub async fn artifact(
        &self,
        conversation: &str,
        which: &str,
    ) -> Result<(ArtifactVersion, String)> {
        let all = self.artifacts(conversation).await?;
        let (index, _) = ArtifactIndex::parse(
            &self.read_document(&self.folder(conversation).artifacts()).await?,
        );
        let marker = format!("[[artifact:{which}]]");
        let found = artifact::find_markers(&marker)
            .first()
            .and_then(|(_, reference)| index.resolve(reference));
        let kept = found.and_then(|(name, version)| {
            all.into_iter().find(|kept| kept.name == name && kept.version == version)
        });
        let Some(kept) = kept else {
            let which = sanitize::one_line(which);
            return Err(Error::NotFound(format!(
                "there is no artifact `{which}`; write NAME, NAME@v2 or NAME@turn-3, as `icecore conversation artifacts` lists them"
            )));
        };
        let text = String::from_utf8_lossy(&self.read_document(&kept.file).await?).into_owned();
        Ok((kept, text))
    }

    /// The artifacts that a text refers to, and those that the last reply marked: name, version and
    /// text.
    pub(super) async fn recalled_artifacts(
        &self,
        conversation: &str,
        asked: &str,
        marked: &str,
        turns: &TurnSet,
    ) -> Result<Vec<(String, String, String)>> {
        let mut references = artifact::ArtifactReference::find_all(asked);
        references
            .extend(artifact::find_markers(marked).into_iter().map(|(_, reference)| reference));
        if references.is_empty() {
            return Ok(Vec::new());
        }
        let folder = self.folder(conversation);
        let index = ArtifactIndex::parse(&self.read_document(&folder.artifacts()).await?)
            .0
            .for_turns(turns);
        let mut found: Vec<(String, String, String)> = Vec::new();
        let mut room = MAX_RECALLED_BYTES;
        for reference in &references {
            let Some(entry) =
                index.resolve(reference).and_then(|(name, version)| index.get(&name, version))
            else {
                continue;
            };
            let label = format!("v{} of turn {}", entry.version, entry.turn);
            if entry.bytes > room
                || found.iter().any(|(name, version, _)| *name == entry.name && *version == label)
            {
                continue;
            }
            room -= entry.bytes;
            let text =
                String::from_utf8_lossy(&self.read_document(&folder.artifact(&entry.file)).await?)
                    .into_owned();
            found.push((entry.name.clone(), label, text));
        }
        Ok(found)
    }

    /// Promotes a fact of a conversation to everywhere: from then on it is part of every
    /// conversation's context.
    pub async fn promote(&self, conversation: &str, id: EventId) -> Result<Event> {
        self.ensure_exists(conversation).await?;
        let ledger =
            Ledger::parse(&self.read_document(&self.folder(conversation).events()).await?, None);
        let Some(entry) = ledger.get(id) else {
            return Err(Error::NotFound(format!(
                "there is no fact {id} in {}; `icecore conversation facts` lists them",
                sanitize::one_line(conversation)
            )));
        };
        if !entry.state.is_active() || !entry.event.is_statement() {
            return Err(Error::NotFound(format!(
                "{id} is no longer active, so it cannot be promoted to everywhere"
            )));
        }
        let source = format!("{}#{id}", self.folder(conversation).events());
        let same = icecore_domain::ledger::query::EventQuery {
            source: Some(source.clone()),
            ..Default::default()
        };
        if let Some(known) = self.memory.store.events(&same).await?.entries.pop() {
            return Ok(known.event);
        }
        let mut draft = EventDraft {
            scope: Scope::Everywhere,
            source,
            ts: self.memory.now(),
            related: Vec::new(),
            supersedes: Vec::new(),
            extra: Vec::new(),
            ..entry.event.draft.clone()
        };
        if !draft.tags.iter().any(|tag| tag == PROMOTED_TAG) {
            draft.tags.push(PROMOTED_TAG.into());
        }
        let event = self.memory.store.append(vec![draft], None).await?.remove(0);
        let target = entry.event.clone();
        let now = self.memory.now();
        let note = format!("lifted to everywhere as {}", event.id);
        self.append_events(conversation, |_| {
            vec![EventDraft {
                scope: target.scope.clone(),
                ..EventDraft::new_act(&target, Act::Promote, now, note.clone())
            }]
        })
        .await?;
        Ok(event)
    }

    /// Exports all data of a conversation: its records and its files.
    pub async fn export(&self, conversation: &str) -> Result<serde_json::Value> {
        self.ensure_exists(conversation).await?;
        let records = self.memory.store.recent_records(conversation, usize::MAX).await?;
        let messages: Vec<serde_json::Value> = records
            .iter()
            .filter_map(|record| serde_json::from_str(&record.to_line()).ok())
            .collect();
        let mut files = serde_json::Map::new();
        for place in self.memory.store.documents(&self.folder(conversation).0).await? {
            let text = String::from_utf8_lossy(
                &self.memory.store.document(&place).await?.unwrap_or_default(),
            )
            .into_owned();
            files.insert(place.to_string(), text.into());
        }
        Ok(
            serde_json::json!({ "conversation": conversation, "messages": messages, "files": files }),
        )
    }

    /// Deletes a conversation: its folder and its messages. Facts promoted to everywhere stay.
    /// Summaries of nothing else become empty; others are due again.
    pub async fn delete_conversation(&self, conversation: &str) -> Result<DeletedConversation> {
        self.ensure_exists(conversation).await?;
        let room = self.open_conversation(conversation);
        let _alone = room.reflecting.lock().await;
        let mut state = room.state.lock().await;
        let forgotten = self
            .with_turn_lease(conversation, async {
                Ok((self.delete_locked(conversation).await?, false))
            })
            .await?;
        *state = None;
        Ok(forgotten)
    }

    async fn delete_locked(&self, conversation: &str) -> Result<DeletedConversation> {
        let records = self.memory.store.recent_records(conversation, usize::MAX).await?;
        let days: std::collections::BTreeSet<jiff::civil::Date> =
            records.iter().map(|record| record.ts.day()).collect();
        for &day in &days {
            self.memory.store.forget_records(Days { first: day, last: day }, conversation).await?;
        }
        self.memory.empty_summaries(conversation, &days).await?;
        let mut files = self.memory.store.documents(&self.folder(conversation).0).await?;
        for opening in self
            .read_conversation_file(conversation)
            .await?
            .map(|about| about.openings)
            .unwrap_or_default()
        {
            if !self
                .change_opening(&opening, |names| names.retain(|name| name != conversation))
                .await?
            {
                files.push(opening_path(&opening)?);
            }
        }
        for place in &files {
            self.memory.store.remove(place).await?;
        }
        Ok(DeletedConversation {
            conversation: conversation.to_owned(),
            messages: records.len(),
            files: files.len(),
        })
    }
}
