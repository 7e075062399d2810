//! Chat conversations (C1–C14): the context that a chat model gets before it answers, and the
//! record of the exchange afterwards.
//!
//! - A turn has two phases. [`Chats::prepare_turn`] builds the context. After the reply,
//!   [`Chats::record_exchange`] stores the exchange.
//! - Reflection follows later: it summarizes the turn for the turn log, and its facts enter the
//!   conversation's own ledger.
//! - A turn is pending if it has records but no line in the turn log. So a crash in between loses
//!   nothing.

mod branching;
mod folder;
mod reflection;
mod turn_lease;

pub use branching::ClientHistory;
pub use folder::{ArtifactVersion, ConversationInfo, DeletedConversation};
pub(crate) use folder::{files_of, folder_of};
pub use reflection::ReflectionReport;
pub use turn_lease::LEASE_DURATION;

use branching::{RecordedExchange, SentHistory};

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex as StdMutex, MutexGuard, PoisonError};
use std::time::Duration;

use icecore_domain::budget::{self, Omission};
use icecore_domain::calendar::{Days, Moment};
use icecore_domain::capture_filter;
use icecore_domain::converse::artifact::ArtifactIndex;
use icecore_domain::converse::branch::{Branches, TurnSet};
use icecore_domain::converse::conversation_facts::{self, ConversationFact};
use icecore_domain::converse::turn_detection::{self, ClientMessage, NewTurn, SentExchange};
use icecore_domain::converse::turn_log::{self, TurnLine, TurnLog};
use icecore_domain::event::{EventType, Origin, Priority, Scope};
use icecore_domain::hash::Hash;
use icecore_domain::ledger::Ledger;
use icecore_domain::ledger::query::EventQuery;
use icecore_domain::packs::Pack;
use icecore_domain::packs::chat::{self, ChatMaterial, ChatPackLine, TurnDigest};
use icecore_domain::record::{IncomingMessage, MAX_TEXT_BYTES, Record, RecordSetDigest, Role};
use icecore_domain::sanitize;
use icecore_domain::speaker::{self, ConversationExtent};
use icecore_domain::summary::{Summary, SummaryQuery, Tier};
use icecore_store::Position;
use tokio::sync::{Mutex, oneshot, watch};

use crate::config::{ChatMode, MemoryPlacement};
use crate::prompts::Prompts;
use crate::{Error, Memory, Result};

/// The records that are read when a conversation is opened: a turn with tools has more than two.
const MAX_RECENT_RECORDS: usize = 200;
/// The days in which a server looks for pending turns.
pub const REFLECTION_DAYS: u16 = 14;
/// The most lines of facts that hold everywhere.
const MAX_GLOBAL_FACTS: usize = 60;
/// The most conversations in memory; idle ones are opened again when they are needed.
const MAX_OPEN_CONVERSATIONS: usize = 10_000;
/// The headlines of older sessions are read again after this many turns.
const HEADLINE_REFRESH_TURNS: usize = 40;
/// The record field with the question of another person than the owner.
const ASKS_FIELD: &str = "asks";
/// The record field with the size of a text in bytes before it was cut.
pub const CUT_FIELD: &str = "cut_from_bytes";
/// The tag of a fact that was promoted from a conversation to everywhere.
pub const PROMOTED_TAG: &str = "promoted";

/// A message from a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChatMessage {
    /// The role, as the client sends it.
    pub role: String,
    /// The speaker's name, if the client sends one.
    pub name: Option<String>,
    pub text: String,
    /// The message as it came, as JSON.
    pub raw: String,
    /// Whether it calls tools or contains their results.
    pub has_tools: bool,
}

/// A chat request, as far as memory is concerned.
#[derive(Debug, Clone, Default)]
pub struct ChatRequest {
    /// The conversation, if the client names one.
    pub conversation: Option<String>,
    /// What the client is known to send with every request.
    pub history: ClientHistory,
    /// A key of the client that several conversations may share. Without a name it narrows down the
    /// candidates.
    pub shared_key: Option<String>,
    /// How to treat the client's history, if the client says so.
    pub mode: Option<ChatMode>,
    /// All messages of the request.
    pub messages: Vec<ChatMessage>,
}

/// A prepared turn: the context for the model.
#[derive(Debug, Clone)]
pub struct PreparedChatTurn {
    pub conversation: String,
    pub turn: u64,
    /// The memory block with its marks; `None` if it is empty.
    pub memory: Option<String>,
    /// Where the block is inserted.
    pub placement: MemoryPlacement,
    /// How to treat the client's history.
    pub mode: ChatMode,
    /// Turns that are inserted word for word, as messages: role and text.
    pub window: Vec<(&'static str, String)>,
    /// Where the new turn begins among the messages.
    pub new_from: usize,
    /// The ids of injected events, turns and artifacts.
    pub injected: Vec<String>,
    /// The estimated size.
    pub tokens: usize,
    /// What did not fit, and why.
    pub left_out: Vec<Omission>,
    /// The tokens that reflection has used for this conversation so far.
    pub cost_tokens: u64,
    new: NewTurn,
    said: Vec<ChatMessage>,
    /// The speaker of each message, if several people speak and it is not the owner.
    others: Vec<Option<String>>,
    /// The owner's part of the messages.
    own_text: String,
    /// The last stored turn when this one began.
    last_stored: u64,
    /// Distinguishes this exchange from others that get the same number.
    mark: String,
    /// The id of the exchange that this one continues or repeats.
    repeated_id: Option<String>,
    /// The turns that this one follows, if the client's history shows them.
    follows: Option<TurnSet>,
    /// The client's history, if the conversation is found by it.
    sent_history: Option<Vec<SentExchange>>,
    shared_key: Option<String>,
    /// The reserved number, unless it is that of an earlier exchange.
    number: Option<Arc<TurnNumber>>,
}

/// The model's reply.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ChatReply {
    pub text: String,
    /// Tool calls and other parts, as raw JSON.
    pub parts: Option<String>,
    /// Whether it was received completely.
    pub complete: bool,
}

/// One exchange, word for word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Exchange {
    /// The prefix of its records' ids. Two processes may give one number to two exchanges; the ids
    /// differ.
    pub(crate) id: String,
    pub(crate) turn: u64,
    /// The number of its records.
    pub(crate) records: usize,
    pub(crate) ts: Moment,
    pub(crate) before: usize,
    /// The text of all users in the exchange.
    pub(crate) asked: String,
    /// The text of the owner of this memory.
    pub(crate) own: String,
    pub(crate) replied: String,
}

/// The state of an open conversation.
#[derive(Debug, Default)]
struct ConversationState {
    /// The last exchanges, oldest first.
    recent: Vec<Exchange>,
    /// The digest of the recent days' records when they were read; `None` if they must be read
    /// again.
    recent_digest: Option<(Days, RecordSetDigest)>,
    /// The conversation's ledger folded into facts, and its size at that time.
    facts: Vec<ConversationFact>,
    ledger: Ledger,
    ledger_bytes: u64,
    /// The order of the turns.
    branches: Branches,
    branch_bytes: u64,
    /// Every exchange, for comparison with histories; `None` until a client sends a history.
    recorded: Option<Vec<RecordedExchange>>,
    log: Arc<TurnLog>,
    log_bytes: u64,
    artifacts: ArtifactIndex,
    artifact_bytes: u64,
    /// The headlines of older sessions, and the turn as of which they were read.
    older: Vec<(jiff::civil::Date, ChatPackLine)>,
    older_turns: usize,
}

/// A conversation in memory.
struct OpenConversation {
    state: Mutex<Option<ConversationState>>,
    /// Held during reflection: one turn at a time.
    reflecting: Mutex<()>,
    /// The last pending turn; 0 if there is none.
    waiting: watch::Sender<u64>,
    /// The numbers of turns under way.
    under_way: StdMutex<BTreeSet<u64>>,
}

impl OpenConversation {
    fn under_way(&self) -> MutexGuard<'_, BTreeSet<u64>> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The reserved number of a turn under way.
struct TurnNumber {
    room: Arc<OpenConversation>,
    turn: u64,
    is_over: AtomicBool,
}

impl TurnNumber {
    /// Reserves the next number after those that are stored or under way.
    fn reserve(room: &Arc<OpenConversation>, kept: u64) -> Self {
        let mut under_way = room.under_way();
        let turn = under_way.last().copied().unwrap_or(0).max(kept) + 1;
        under_way.insert(turn);
        Self { room: room.clone(), turn, is_over: AtomicBool::new(false) }
    }

    fn release(&self) {
        if !self.is_over.swap(true, Ordering::Relaxed) {
            self.room.under_way().remove(&self.turn);
        }
    }
}

impl Drop for TurnNumber {
    fn drop(&mut self) {
        self.release();
    }
}

impl fmt::Debug for TurnNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Number({})", self.turn)
    }
}

/// The conversations of one memory.
pub struct Chats {
    memory: Arc<Memory>,
    prompts: Prompts,
    open_conversations: StdMutex<HashMap<String, Arc<OpenConversation>>>,
    /// The facts that hold everywhere, as of a position of the ledger.
    everywhere: StdMutex<Option<(Position, GlobalFacts)>>,
    /// Messages to be written, and the callers that wait for them.
    queue: StdMutex<Vec<(Vec<IncomingMessage>, WriteResultSender)>>,
    writing: Mutex<()>,
    waits: AtomicBool,
    /// Conversations without pending turns.
    settled: StdMutex<HashMap<String, reflection::SettledState>>,
    /// A unique seed, and how often it was used.
    seed: Hash,
    marks: AtomicU64,
    /// The name of this instance among processes that share a store.
    who: String,
}

/// The number of instances in this process.
static INSTANCES: AtomicU64 = AtomicU64::new(0);

/// The facts that hold in every conversation.
#[derive(Debug, Clone, Default)]
struct GlobalFacts {
    hard: Vec<ChatPackLine>,
    others: Vec<ChatPackLine>,
}

/// Receives the result of a write.
type WriteResultSender = oneshot::Sender<std::result::Result<Vec<String>, String>>;

impl Chats {
    /// Opens the conversations of a memory. The prompts are read once.
    pub async fn open(memory: Arc<Memory>) -> Result<Self> {
        let prompts = Prompts::load(memory.store.as_ref()).await?;
        let (process, opened) = (std::process::id(), INSTANCES.fetch_add(1, Ordering::Relaxed));
        // Processes on two machines may have the same id and start at the same moment.
        let chance = RandomState::new().hash_one(process);
        let seed = Hash::of(
            format!("{} {process} {opened} {chance}", memory.now().timestamp()).as_bytes(),
        );
        Ok(Self {
            memory,
            seed,
            who: seed.short_hex(),
            marks: AtomicU64::new(0),
            prompts,
            open_conversations: StdMutex::default(),
            everywhere: StdMutex::default(),
            queue: StdMutex::default(),
            writing: Mutex::default(),
            waits: AtomicBool::new(true),
            settled: StdMutex::default(),
        })
    }

    /// The memory of these conversations.
    pub fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }

    fn open_conversation(&self, conversation: &str) -> Arc<OpenConversation> {
        let mut rooms = self.open_conversations.lock().unwrap_or_else(PoisonError::into_inner);
        if rooms.len() >= MAX_OPEN_CONVERSATIONS && !rooms.contains_key(conversation) {
            // An idle conversation can be opened again.
            rooms.retain(|_, room| Arc::strong_count(room) > 1);
        }
        let new = || {
            Arc::new(OpenConversation {
                state: Mutex::default(),
                reflecting: Mutex::default(),
                waiting: watch::Sender::new(0),
                under_way: StdMutex::default(),
            })
        };
        rooms.entry(conversation.to_owned()).or_insert_with(new).clone()
    }

    /// A unique id.
    fn unique_id(&self) -> String {
        self.seed.chain(&self.marks.fetch_add(1, Ordering::Relaxed).to_be_bytes()).short_hex()
    }

    /// Identifies an exchange among those of the same number by its question and history. A
    /// repeated request gets the same mark, so it revises the exchange. A client that sends only
    /// the newest message may repeat it on purpose.
    fn exchange_mark(&self, new: &NewTurn, sent: &[ClientMessage<'_>]) -> String {
        if !new.has_history() {
            return self.unique_id();
        }
        let before = sent[..new.from].last().map_or("", |sent| sent.text);
        Hash::of(b"exchange")
            .chain(&new.before.to_be_bytes())
            .chain(before.as_bytes())
            .chain(new.asked.as_bytes())
            .short_hex()
    }

    /// Prepares a turn: builds the context for the model. Waits a short time if the last turn is
    /// still being summarized.
    pub async fn prepare_turn(&self, request: ChatRequest) -> Result<PreparedChatTurn> {
        let policy = &self.memory.policy.chat;
        let texts: Vec<String> = request
            .messages
            .iter()
            .map(|message| self.memory.filter_without_report(&message.text))
            .collect();
        let sent: Vec<ClientMessage<'_>> = request
            .messages
            .iter()
            .zip(&texts)
            .map(|(message, text)| ClientMessage {
                role: &message.role,
                text,
                has_tools: message.has_tools,
            })
            .collect();
        let named = request
            .conversation
            .as_deref()
            .and_then(turn_detection::conversation_name)
            .map(|name| self.memory.filter_without_report(&name));
        let new = turn_detection::detect_new_turn(&sent);
        let told = turn_detection::sent_exchanges(&sent[..new.from]);
        let is_named = named.is_some();
        let shared_key = request.shared_key.as_deref().and_then(turn_detection::conversation_name);
        let conversation = match named {
            Some(name) => name,
            None => self.find_by_history(&sent, &told, &new, shared_key.as_deref()).await?,
        };
        let room = self.open_conversation(&conversation);
        let mut waiting = room.waiting.subscribe();
        // After the timeout the last exchange is inserted word for word.
        let remembered = async {
            let _ = waiting.wait_for(|waiting| *waiting == 0).await;
            if self.waits.load(Ordering::Relaxed) {
                self.wait_for_other_processes(&conversation).await;
            }
        };
        let _ = tokio::time::timeout(
            Duration::from_millis(policy.max_wait_for_last_turn_ms),
            remembered,
        )
        .await;
        let mut state = room.state.lock().await;
        let state = self.refresh_state(&conversation, &mut state).await?;
        if !told.is_empty() || !state.branches.is_empty() {
            self.read_recorded_exchanges(&conversation, state).await?;
        }
        let shown = if request.messages.is_empty() {
            state.match_request(&SentHistory::new(&[]), &new, ClientHistory::Newest)
        } else {
            state.match_request(&SentHistory::new(&told), &new, request.history)
        };
        let mark = self.exchange_mark(&new, &sent);
        let again = repeated_exchange(&new, &state.recent)
            .filter(|exchange| state.is_at_position(exchange, shown.follows.as_ref()))
            .cloned();
        let known = state.last_turn();
        let (turn, again, number) = match again {
            Some(exchange) => (exchange.turn, Some(exchange.id), None),
            None => {
                let number = TurnNumber::reserve(&room, known);
                (number.turn, None, Some(Arc::new(number)))
            }
        };
        // Nothing can replace a history that is not recorded.
        let mode = request.mode.unwrap_or_else(|| policy.mode());
        let mode = if shown.is_recorded { mode } else { ChatMode::Augment };

        // Raw turns are those of the path in which both sides spoke.
        let is_before = |exchange: &&Exchange| {
            shown.path.contains(exchange.turn) && Some(&exchange.id) != again.as_ref()
        };
        let before: Vec<&Exchange> = state.recent.iter().filter(is_before).collect();
        let mut raw = self.raw_window(&before);
        let mut window = Vec::new();
        if mode == ChatMode::Augment && !told.is_empty() {
            // Recorded turns are never inserted before or between those that the client sent
            // itself.
            raw.retain(|exchange| shown.sent.contains(exchange.turn));
        } else {
            window.extend(raw.iter().flat_map(|exchange| {
                [("user", exchange.asked.clone()), ("assistant", exchange.replied.clone())]
            }));
        }

        let material =
            self.context_material(&conversation, state, &before, &raw, &shown.path, turn).await?;
        let chosen = chat::select_material(&material, policy.max_memory_tokens);
        // Artifacts that the user asks for, and those that the model marked in its last reply.
        let marked = before.last().map_or("", |last| last.replied.as_str());
        let recalled =
            self.recalled_artifacts(&conversation, &new.asked, marked, &shown.path).await?;
        let mut injected = chosen.ids();
        injected.extend(recalled.iter().map(|(name, version, _)| format!("{name}@{version}")));
        let memory = if injected.is_empty() {
            None
        } else {
            let text = self.prompts.fill_chat(&chosen.selected, &recalled)?;
            Some(capture_filter::wrap_block("chat", self.memory.now().day(), text.trim_end()))
        };
        let tokens = memory.as_deref().map_or(0, budget::estimate_tokens)
            + window.iter().map(|(_, text)| budget::estimate_tokens(text)).sum::<usize>();
        let said = request.messages[new.from..].to_vec();
        let others =
            self.other_speakers(&conversation, &request.messages).await?.split_off(new.from);
        let own = turn_detection::user_text(
            sent[new.from..]
                .iter()
                .zip(&others)
                .filter(|(_, other)| other.is_none())
                .map(|(sent, _)| sent),
        );
        Ok(PreparedChatTurn {
            conversation,
            turn,
            memory,
            placement: policy.placement(),
            mode,
            window,
            new_from: new.from,
            injected,
            tokens,
            left_out: chosen.left_out,
            cost_tokens: state
                .log
                .turns
                .values()
                .map(|line| line.tokens_in + line.tokens_out)
                .sum(),
            last_stored: known,
            mark,
            repeated_id: again,
            follows: shown.follows,
            sent_history: (!is_named).then_some(told),
            shared_key,
            number,
            new,
            said,
            others,
            own_text: own,
        })
    }

    /// The speaker of each message, if it is not the owner. All speakers of the conversation so far
    /// count.
    async fn other_speakers(
        &self,
        conversation: &str,
        messages: &[ChatMessage],
    ) -> Result<Vec<Option<String>>> {
        if messages.iter().all(|message| message.name.is_none()) {
            return Ok(vec![None; messages.len()]);
        }
        let sent = messages.iter().map(|message| IncomingMessage {
            role: Some(Role::from_client(Some(&message.role))),
            name: message.name.clone().filter(|_| message.role == "user"),
            ..IncomingMessage::default()
        });
        let recorded = self
            .memory
            .store
            .recent_records(conversation, MAX_RECENT_RECORDS)
            .await?
            .into_iter()
            .map(|record| IncomingMessage {
                role: Some(record.role),
                name: record.name.clone(),
                ..IncomingMessage::default()
            });
        let mut all: Vec<IncomingMessage> = sent.chain(recorded).collect();
        speaker::attribute_speakers(
            &mut all,
            &self.memory.policy.person.names(),
            ConversationExtent::Whole,
        );
        all.truncate(messages.len());
        Ok(all.into_iter().map(|said| said.other_speaker).collect())
    }

    /// Builds the context that a conversation would get now.
    pub async fn build_pack(&self, conversation: &str) -> Result<Pack> {
        self.ensure_exists(conversation).await?;
        let begun = self
            .prepare_turn(ChatRequest {
                conversation: Some(conversation.to_owned()),
                ..ChatRequest::default()
            })
            .await?;
        let block = begun.memory.unwrap_or_default();
        Ok(chat::chat_pack(
            self.memory.now().day(),
            &block,
            &begun.window,
            begun.injected,
            begun.left_out,
        ))
    }

    /// Stores an exchange durably, and returns what of it was cut. It is pending until
    /// [`Chats::reflect`] has run.
    pub async fn record_exchange(
        &self,
        prepared: &PreparedChatTurn,
        reply: &ChatReply,
    ) -> Result<Vec<String>> {
        let conversation = &prepared.conversation;
        let now = self.memory.now();
        let room = self.open_conversation(conversation);
        let mut state = room.state.lock().await;
        let state = self.recent_exchanges(conversation, &mut state).await?;
        self.read_branches(conversation, state).await?;
        if prepared.follows.is_some() {
            self.read_recorded_exchanges(conversation, state).await?;
        }
        let (turn, id) = record_position(prepared, state, &room);
        let known = state.recent.iter().find(|exchange| exchange.id == id).cloned();
        let field = |name: &str, value: String| (name.to_owned(), value);
        let mut said: Vec<IncomingMessage> = Vec::new();
        for (at, message) in prepared.said.iter().enumerate() {
            // An unknown role is stored as a name: it is not the owner.
            let role = Role::from_alias(&message.role);
            let other = prepared.others.get(at).cloned().flatten();
            let name = match role {
                None => Some(message.role.clone()),
                Some(Role::User) => message.name.clone(),
                Some(_) => None,
            };
            let parts = message.has_tools.then(|| message.raw.clone());
            let mut extra = vec![field("turn", turn.to_string())];
            if at == 0 {
                extra.push(field("before", prepared.new.before.to_string()));
            }
            if other.is_some() {
                extra.push(field(ASKS_FIELD, "true".into()));
            }
            let id = Some(format!("{id}.{at}"));
            let (origin, other_speaker) = (other.is_some().then_some(Origin::Import), other);
            said.push(IncomingMessage {
                ts: Some(now),
                id,
                role,
                name,
                other_speaker,
                origin,
                text: message.text.clone(),
                parts,
                extra,
                ..IncomingMessage::default()
            });
        }
        let mut extra = vec![field("turn", turn.to_string())];
        if !reply.complete {
            extra.push(field("complete", "false".into()));
        }
        said.push(IncomingMessage {
            ts: Some(now),
            id: Some(format!("{id}.{}", prepared.said.len())),
            role: Some(Role::Assistant),
            text: reply.text.clone(),
            parts: reply.parts.clone(),
            extra,
            ..IncomingMessage::default()
        });
        let mut cut = Vec::new();
        for (at, one) in said.iter_mut().enumerate() {
            one.conversation = Some(conversation.clone());
            if one.text.len() > MAX_TEXT_BYTES {
                cut.push(format!(
                    "message {} has {} bytes, of which {MAX_TEXT_BYTES} are stored",
                    at + 1,
                    one.text.len()
                ));
                one.extra.push(field(CUT_FIELD, one.text.len().to_string()));
                one.text.truncate(one.text.floor_char_boundary(MAX_TEXT_BYTES));
            }
        }
        if prepared.last_stored == 0 {
            self.create_conversation(conversation).await?;
        }
        let opening = |told: &Vec<SentExchange>| {
            self.new_opening(
                told,
                &prepared.new,
                &reply.text,
                prepared.last_stored == 0,
                prepared.shared_key.as_deref(),
            )
        };
        if let Some(opening) = prepared.sent_history.as_ref().and_then(opening) {
            self.register_opening(conversation, &opening).await?;
        }
        // Before the records: a recorded turn must have its position.
        let line = known
            .is_none()
            .then(|| self.branch_line(state, turn, prepared.follows.as_ref(), &prepared.new.asked))
            .flatten();
        if let Some(line) = line {
            self.append_lines(&self.folder(conversation).branches(), &line).await?;
            self.read_branches(conversation, state).await?;
        }
        let records = said.len();
        cut.extend(self.write_messages(said).await?);
        let replied = self.memory.filter_without_report(&reply.text).trim().to_owned();
        state.recent.retain(|exchange| exchange.id != id);
        state.recent.push(Exchange {
            id,
            turn,
            records,
            ts: now,
            before: prepared.new.before,
            asked: prepared.new.asked.clone(),
            own: prepared.own_text.clone(),
            // A tool call without text does not remove the text before it.
            replied: if replied.is_empty() {
                known.as_ref().map_or(replied, |known| known.replied.clone())
            } else {
                replied
            },
        });
        state.recent.sort_by_key(|exchange| exchange.turn);
        state.add_recorded_turn(turn);
        let most = self.memory.policy.chat.window_turns
            + self.memory.policy.chat.extra_turns_for_long_replies;
        let surplus = state.recent.len().saturating_sub(most + 1);
        state.recent.drain(..surplus);
        if let Some(number) = &prepared.number {
            number.release();
        }
        // More records than this exchange has added come from another process; then read them
        // again.
        let new = records.saturating_sub(known.map_or(0, |known| known.records)) as u64;
        let before = state.recent_digest.take();
        let is_ours = |said: &(Days, RecordSetDigest)| {
            before.is_some_and(|before| {
                said.0 == before.0 && said.1.records == before.1.records + new
            })
        };
        state.recent_digest = self.recent_digest(conversation).await.ok().filter(is_ours);
        if self.waits.load(Ordering::Relaxed) {
            room.waiting.send_modify(|waiting| *waiting = turn);
        }
        Ok(cut)
    }

    /// Writes messages. Messages that arrive during a write form the next batch: a disk syncs many
    /// as quickly as one.
    async fn write_messages(&self, message: Vec<IncomingMessage>) -> Result<Vec<String>> {
        let (done, kept) = oneshot::channel();
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).push((message, done));
        {
            let _alone = self.writing.lock().await;
            let batch =
                std::mem::take(&mut *self.queue.lock().unwrap_or_else(PoisonError::into_inner));
            let (message, waiting): (Vec<Vec<IncomingMessage>>, Vec<_>) = batch.into_iter().unzip();
            if !message.is_empty() {
                let outcomes = match self.memory.add_exchanges(message, LEASE_DURATION).await {
                    Ok(lots) => lots
                        .into_iter()
                        .map(|taken| {
                            if taken.complaints.is_empty() {
                                Ok(taken.cut)
                            } else {
                                Err(taken.complaints.join("; "))
                            }
                        })
                        .collect(),
                    Err(error) => vec![Err(error.to_string()); waiting.len()],
                };
                for (done, outcome) in waiting.into_iter().zip(outcomes) {
                    let _ = done.send(outcome);
                }
            }
        }
        match kept.await {
            Ok(Ok(cut)) => Ok(cut),
            Ok(Err(why)) => Err(Error::Busy(format!("the exchange was not saved: {why}"))),
            Err(_) => {
                Err(Error::Busy("the exchange was not saved: the write was interrupted".into()))
            }
        }
    }

    /// Sets whether a turn waits for the summary of the last one. Without a model there is nothing
    /// to wait for: the exchange is inserted word for word.
    pub fn set_wait_for_summary(&self, waits: bool) {
        self.waits.store(waits, Ordering::Relaxed);
    }

    /// The turns that are inserted word for word: the last ones, and a long reply a little longer.
    fn raw_window<'a>(&self, before: &[&'a Exchange]) -> Vec<&'a Exchange> {
        let policy = &self.memory.policy.chat;
        let has_both_sides =
            |exchange: &&&Exchange| !exchange.asked.is_empty() && !exchange.replied.is_empty();
        let before: Vec<&Exchange> = before.iter().filter(has_both_sides).copied().collect();
        let from = before.len().saturating_sub(policy.window_turns);
        let longer =
            before.len().saturating_sub(policy.window_turns + policy.extra_turns_for_long_replies);
        let is_long = |exchange: &&&Exchange| {
            budget::count_words(&exchange.replied) > policy.long_exchange_words
        };
        before[longer..from].iter().filter(is_long).chain(&before[from..]).copied().collect()
    }

    /// The context of a conversation before a turn, without the turns that are inserted word for
    /// word.
    async fn context_material(
        &self,
        conversation: &str,
        state: &ConversationState,
        before: &[&Exchange],
        raw: &[&Exchange],
        path: &TurnSet,
        turn: u64,
    ) -> Result<ChatMaterial> {
        let line = |fact: &ConversationFact| ChatPackLine {
            id: fact.id.to_string(),
            text: sanitize::one_line(&fact.text),
        };
        let facts = state.facts_of(conversation, path);
        let (hard, facts): (Vec<&ConversationFact>, Vec<&ConversationFact>) =
            facts.iter().partition(|fact| fact.hard);
        let mut material = ChatMaterial {
            hard: hard.into_iter().map(line).collect(),
            facts: facts.into_iter().map(line).collect(),
            artifacts: folder::artifact_lines(&state.artifacts.clone().for_turns(path)),
            ..ChatMaterial::default()
        };
        let everywhere = self.global_facts().await?;
        material.hard.splice(0..0, everywhere.hard);
        material.everywhere = everywhere.others;
        let is_raw = |exchange: &&&Exchange| raw.iter().any(|raw| raw.id == exchange.id);
        let (shown, hidden): (Vec<&Exchange>, Vec<&Exchange>) = before.iter().partition(is_raw);
        let stands = |turn: u64| {
            shown.iter().any(|exchange| exchange.turn == turn)
                && !hidden.iter().any(|other| other.turn == turn)
        };
        let mut told: BTreeMap<u64, TurnDigest> = BTreeMap::new();
        let is_told = |line: &&TurnLine| {
            line.turn < turn && path.contains(line.turn) && !stands(line.turn) && !line.is_empty()
        };
        for line in state.log.turns.values().filter(is_told) {
            told.insert(
                line.turn,
                TurnDigest {
                    turn: line.turn,
                    user: line.user_summary.clone(),
                    assistant: line.assistant_summary.clone(),
                },
            );
        }
        // A turn without a log line is represented by its first words.
        for exchange in
            hidden.iter().filter(|exchange| !state.log.turns.contains_key(&exchange.turn))
        {
            let line =
                TurnLine::raw(exchange.turn, exchange.ts, &exchange.asked, &exchange.replied, "");
            told.insert(
                line.turn,
                TurnDigest {
                    turn: line.turn,
                    user: line.user_summary,
                    assistant: line.assistant_summary,
                },
            );
        }
        material.turns = told.into_values().collect();
        // A day's headline would also cover turns of that day that are excluded.
        let days = state.days_outside(path);
        material.older = state
            .older
            .iter()
            .filter(|(day, _)| !days.contains(day))
            .map(|(_, line)| line.clone())
            .collect();
        Ok(material)
    }

    /// The facts that hold in every conversation, read again when the ledger has changed.
    async fn global_facts(&self) -> Result<GlobalFacts> {
        // Taken before any read: a change in between is found by the next call.
        let position = self.memory.store.position().await?;
        if let Some((known, everywhere)) =
            &*self.everywhere.lock().unwrap_or_else(PoisonError::into_inner)
            && *known == position
        {
            return Ok(everywhere.clone());
        }
        let weighty =
            EventQuery { priorities: vec![Priority::P0, Priority::P1], ..EventQuery::default() };
        let promoted = EventQuery { tags: vec![PROMOTED_TAG.into()], ..EventQuery::default() };
        let mut seen = BTreeSet::new();
        let mut found = GlobalFacts::default();
        for query in [weighty, promoted] {
            let query = EventQuery {
                limit: Some(MAX_GLOBAL_FACTS),
                weightiest: true,
                quarantined: Some(false),
                ..query
            };
            for entry in self.memory.store.events(&query).await?.entries {
                let event = &entry.event;
                if event.scope != Scope::Everywhere || !seen.insert(event.id) {
                    continue;
                }
                let line = ChatPackLine {
                    id: event.id.to_string(),
                    text: sanitize::one_line(&event.content),
                };
                let is_hard = event.priority == Priority::P0 && event.kind == EventType::Constraint;
                if is_hard { &mut found.hard } else { &mut found.others }.push(line);
            }
        }
        *self.everywhere.lock().unwrap_or_else(PoisonError::into_inner) =
            Some((position, found.clone()));
        Ok(found)
    }

    /// The headlines of a conversation's sessions, oldest first.
    async fn session_headlines(
        &self,
        conversation: &str,
    ) -> Result<Vec<(jiff::civil::Date, ChatPackLine)>> {
        let (heads, _) =
            self.memory.store.summary_heads(&SummaryQuery::for_tier(Tier::Session)).await?;
        let own = heads.iter().filter(|head| {
            head.session.as_ref().is_some_and(|key| key.conversation == conversation)
        });
        let days: Vec<jiff::civil::Date> =
            own.filter_map(|head| head.session.as_ref().map(|key| key.day)).collect();
        let (Some(&first), Some(&last)) = (days.first(), days.last()) else {
            return Ok(Vec::new());
        };
        let summaries = self
            .memory
            .store
            .summaries(&SummaryQuery::for_tier_within(Tier::Session, Days { first, last }))
            .await?;
        let own = summaries.iter().filter(|summary| {
            summary.session.as_ref().is_some_and(|key| key.conversation == conversation)
        });
        let line = |summary: &Summary| {
            let day = summary.session.as_ref()?.day;
            Some((
                day,
                ChatPackLine {
                    id: summary.period.to_string(),
                    text: sanitize::one_line(&summary.headline),
                },
            ))
        };
        Ok(own.filter_map(line).collect())
    }

    /// The digest of a conversation's records on the days that may still change.
    async fn recent_digest(&self, conversation: &str) -> Result<(Days, RecordSetDigest)> {
        let today = self.memory.now().day();
        let days = Days { first: today.yesterday().unwrap_or(today), last: today };
        Ok((days, self.memory.store.conversation_digest(conversation, days).await?))
    }

    /// The last exchanges of a conversation: read when they are first needed, and again if another
    /// process has added some.
    async fn recent_exchanges<'a>(
        &self,
        conversation: &str,
        state: &'a mut Option<ConversationState>,
    ) -> Result<&'a mut ConversationState> {
        // Taken before the read: a change in between is found by the next call.
        let said = self.recent_digest(conversation).await?;
        let state = state.get_or_insert_default();
        if state.recent_digest != Some(said) {
            state.recent = exchanges_of(
                &self.memory.store.recent_records(conversation, MAX_RECENT_RECORDS).await?,
            );
            state.recent_digest = Some(said);
            state.recorded = None;
        }
        Ok(state)
    }

    /// The current state of a conversation, with its files, which are read again if they have
    /// grown.
    async fn refresh_state<'a>(
        &self,
        conversation: &str,
        state: &'a mut Option<ConversationState>,
    ) -> Result<&'a mut ConversationState> {
        let state = self.recent_exchanges(conversation, state).await?;
        let folder = self.folder(conversation);
        if let Some(ledger) = self.read_if_grown(&folder.events(), &mut state.ledger_bytes).await? {
            state.ledger = Ledger::parse(&ledger, None);
            state.facts = conversation_facts::facts(&state.ledger, conversation);
        }
        if let Some(log) = self.read_if_grown(&folder.turns(), &mut state.log_bytes).await? {
            state.log = Arc::new(turn_log::parse_turn_log(&log));
        }
        if let Some(index) =
            self.read_if_grown(&folder.artifacts(), &mut state.artifact_bytes).await?
        {
            state.artifacts = ArtifactIndex::parse(&index).0;
        }
        self.read_branches(conversation, state).await?;
        if state.log.turns.len() >= state.older_turns + HEADLINE_REFRESH_TURNS {
            state.older = self.session_headlines(conversation).await?;
            state.older_turns = state.log.turns.len();
        }
        Ok(state)
    }
}

/// The last turn in the log.
fn last_turn(log: &TurnLog) -> u64 {
    log.turns.keys().next_back().copied().unwrap_or(0)
}

/// The number under which an exchange is stored, and the prefix of its records' ids.
fn record_position(
    prepared: &PreparedChatTurn,
    state: &ConversationState,
    room: &OpenConversation,
) -> (u64, String) {
    let recent = &state.recent;
    let id = |turn: u64| format!("turn-{turn}-{}", prepared.mark);
    if let Some(id) = &prepared.repeated_id {
        return (prepared.turn, id.clone());
    }
    // Another client may have sent the same request meanwhile, or this exchange was stored and only
    // the acknowledgement failed.
    let again = repeated_exchange(&prepared.new, recent)
        .filter(|exchange| state.is_at_position(exchange, prepared.follows.as_ref()));
    let known =
        again.or_else(|| recent.iter().rev().find(|exchange| exchange.id == id(exchange.turn)));
    if let Some(known) = known {
        return (known.turn, known.id.clone());
    }
    let last = recent.last().map_or(0, |last| last.turn).max(prepared.last_stored);
    let under_way = room.under_way();
    let turn = if recent.iter().any(|exchange| exchange.turn == prepared.turn) {
        // Another process has given the same number.
        under_way.last().copied().unwrap_or(0).max(last) + 1
    } else if prepared.turn > last && under_way.range(last + 1..prepared.turn).next().is_none() {
        // The turns with the numbers before this one have failed.
        last + 1
    } else {
        prepared.turn
    };
    (turn, id(turn))
}

/// The exchange of the last turn that a request continues or repeats.
fn repeated_exchange<'a>(new: &NewTurn, recent: &'a [Exchange]) -> Option<&'a Exchange> {
    let last = recent.last()?.turn;
    let mut of_last_turn = recent.iter().rev().take_while(|exchange| exchange.turn == last);
    of_last_turn.find(|exchange| new.is_repeat_of(exchange.before, &exchange.asked))
}

/// Merges exchanges with the same number, for lists with one line per turn.
pub(crate) fn merge_by_turn(exchanges: Vec<Exchange>) -> Vec<Exchange> {
    let mut found: Vec<Exchange> = Vec::new();
    for exchange in exchanges {
        match found.last_mut().filter(|last| last.turn == exchange.turn) {
            Some(last) => {
                for (text, more) in [
                    (&mut last.asked, &exchange.asked),
                    (&mut last.own, &exchange.own),
                    (&mut last.replied, &exchange.replied),
                ] {
                    *text = [text.as_str(), more]
                        .iter()
                        .filter(|text| !text.is_empty())
                        .copied()
                        .collect::<Vec<_>>()
                        .join("\n\n");
                }
            }
            None => found.push(exchange),
        }
    }
    found
}

/// Groups records into exchanges: turn by turn, question and reply.
pub(crate) fn exchanges_of(records: &[Record]) -> Vec<Exchange> {
    let mut found: Vec<Exchange> = Vec::new();
    let mut places: HashMap<&str, usize> = HashMap::new();
    for record in records {
        let Some(turn) = record.turn() else { continue };
        let id = record.id.rsplit_once('.').map_or(record.id.as_str(), |(exchange, _)| exchange);
        let at = *places.entry(id).or_insert_with(|| {
            let (asked, own, replied) = Default::default();
            found.push(Exchange {
                id: id.to_owned(),
                turn,
                records: 0,
                ts: record.ts,
                before: 0,
                asked,
                own,
                replied,
            });
            found.len() - 1
        });
        let exchange = &mut found[at];
        exchange.records += 1;
        if let Some(before) = record.extra_number("before") {
            exchange.before = before as usize;
        }
        let text = record.text.trim();
        match record.role {
            Role::User if record.parts.is_none() && !text.is_empty() => {
                let is_own = record.other_speaker.is_none();
                let asks = is_own || record.extra.iter().any(|(name, _)| name == ASKS_FIELD);
                for asked in
                    [asks.then_some(&mut exchange.asked), is_own.then_some(&mut exchange.own)]
                        .into_iter()
                        .flatten()
                {
                    if !asked.is_empty() {
                        asked.push_str("\n\n");
                    }
                    asked.push_str(text);
                }
            }
            // The last text of the assistant is its reply.
            Role::Assistant if !text.is_empty() => text.clone_into(&mut exchange.replied),
            _ => {}
        }
    }
    found.sort_by_key(|exchange| exchange.turn);
    found
}
