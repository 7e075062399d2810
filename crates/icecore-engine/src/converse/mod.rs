//! Conversing (C1–C14): what a chat model is told before it answers, and what is kept of the
//! exchange afterwards.
//!
//! A turn has two phases. Before the reply, what is known is put together; after it, the exchange
//! is kept, and only then remembered: summarised into the turn log, its facts into the
//! conversation's own ledger. What waits to be remembered is found by comparing the records with
//! the turn log, so a process that died in between loses nothing.

mod branching;
mod folder;
mod order;
mod reflect;

pub use branching::ClientHistory;
pub use folder::{Conversation, Forgotten, Kept};
pub(crate) use folder::{files_of, folder_of};
pub use order::LEASE;
pub use reflect::Reflected;

use branching::{History, RecordedExchange};

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex as StdMutex, MutexGuard, PoisonError};
use std::time::Duration;

use icecore_domain::budget::{self, LeftOut};
use icecore_domain::calendar::{Days, Moment};
use icecore_domain::converse::artifact::Index;
use icecore_domain::converse::branch::{Branches, Turns};
use icecore_domain::converse::hear::{self, New, Sent, SentExchange};
use icecore_domain::converse::truth::{self, Fact};
use icecore_domain::converse::turn::{self, TurnLine, TurnLog};
use icecore_domain::event::{Kind, Origin, Priority, Scope};
use icecore_domain::gate;
use icecore_domain::hash::Hash;
use icecore_domain::ledger::Ledger;
use icecore_domain::ledger::query::EventQuery;
use icecore_domain::packs::Pack;
use icecore_domain::packs::chat::{self, Line, Material, Told};
use icecore_domain::plain;
use icecore_domain::record::{Digest, MAX_TEXT_BYTES, Record, Role, Said};
use icecore_domain::speaker::{self, Extent};
use icecore_domain::summary::{Summary, SummaryQuery, Tier};
use icecore_store::Position;
use tokio::sync::{Mutex, oneshot, watch};

use crate::config::{Mode, Placement};
use crate::prompts::Prompts;
use crate::{Error, Memory, Result};

/// So many records of a conversation are read when it is opened: a turn with tools has more than
/// two.
const RECENT_RECORDS: usize = 200;
/// A server looks for turns of so many days that wait to be remembered.
pub const REACH_DAYS: u16 = 14;
/// What holds everywhere is told up to so many lines.
const EVERYWHERE: usize = 60;
/// So many conversations stay open; what is not in use is opened again when it is needed.
const OPEN_ROOMS: usize = 10_000;
/// After so many more turns it is looked up what older stretches came to.
const LOOK_AT_OLDER: usize = 40;
/// The field of what another person asked the model in the place of the owner.
const ASKS: &str = "asks";
/// The field that says how many bytes a text had before it was cut.
pub const CUT: &str = "cut_from_bytes";
/// The tag of what was lifted from a conversation to everywhere.
pub const PROMOTED: &str = "promoted";

/// A message that a client sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Who speaks, in the client's word.
    pub role: String,
    /// By which name, if the client says so.
    pub name: Option<String>,
    /// What it says.
    pub text: String,
    /// The message as it came, as JSON.
    pub raw: String,
    /// Whether it calls tools or brings what they gave back.
    pub has_tools: bool,
}

/// A request, as far as memory is concerned.
#[derive(Debug, Clone, Default)]
pub struct Heard {
    /// The conversation, if the client names one.
    pub conversation: Option<String>,
    /// What the client is known to send with every request.
    pub history: ClientHistory,
    /// A key of the client's that several conversations may share. Without a name it narrows down
    /// which one is meant.
    pub shared_key: Option<String>,
    /// What becomes of the client's history, if the client says so.
    pub mode: Option<Mode>,
    /// Everything that was sent.
    pub messages: Vec<Message>,
}

/// A turn that has begun: what the model is to be told.
#[derive(Debug, Clone)]
pub struct Begun {
    /// The conversation.
    pub conversation: String,
    /// The number of the turn.
    pub turn: u64,
    /// The block of memory, marked as ours; none if there is nothing to tell.
    pub memory: Option<String>,
    /// Where it stands.
    pub placement: Placement,
    /// What becomes of the client's history.
    pub mode: Mode,
    /// Turns to be told word for word, as messages: role and text.
    pub window: Vec<(&'static str, String)>,
    /// Where the new turn begins among the messages.
    pub new_from: usize,
    /// What is told: ids of events, turns and artifacts.
    pub injected: Vec<String>,
    /// About how many tokens it has.
    pub tokens: usize,
    /// What is not told, and why.
    pub left_out: Vec<LeftOut>,
    /// What remembering this conversation has cost so far, in tokens.
    pub cost_tokens: u64,
    new: New,
    said: Vec<Message>,
    /// Who of several people says each of these, if it is not the owner.
    others: Vec<Option<String>>,
    /// What the owner says in them.
    own: String,
    /// The last turn that was kept when this one began.
    after: u64,
    /// What tells this exchange from others that get the same number.
    mark: String,
    /// The exchange that is gone on with or asked for again.
    again: Option<String>,
    /// The turns that this one follows, if the client's history says so.
    follows: Option<Turns>,
    /// The history that the client sent, if its conversation is found by that.
    told: Option<Vec<SentExchange>>,
    shared_key: Option<String>,
    /// Its number, unless it is that of an earlier exchange.
    number: Option<Arc<Number>>,
}

/// What the model replied.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Reply {
    /// Its words.
    pub text: String,
    /// Tool calls and whatever else came with it, as raw JSON.
    pub parts: Option<String>,
    /// Whether it came to its end.
    pub complete: bool,
}

/// One exchange, word for word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Exchange {
    /// What the ids of its records begin with. Two processes may give the same number to two
    /// exchanges; they are two all the same.
    pub(crate) id: String,
    pub(crate) turn: u64,
    /// How many records it has.
    pub(crate) records: usize,
    pub(crate) ts: Moment,
    pub(crate) before: usize,
    /// The words of every user in the exchange.
    pub(crate) asked: String,
    /// What the owner of this memory asked.
    pub(crate) own: String,
    pub(crate) replied: String,
}

/// What is known of an open conversation.
#[derive(Debug, Default)]
struct State {
    /// The last exchanges, oldest first.
    recent: Vec<Exchange>,
    /// What the records of which days came to when these were read; none if they must be read
    /// again.
    said: Option<(Days, Digest)>,
    /// The conversation's ledger, folded into facts, and how many bytes it had.
    facts: Vec<Fact>,
    ledger: Ledger,
    ledger_bytes: u64,
    /// Which turns follow which.
    branches: Branches,
    branch_bytes: u64,
    /// Every exchange, for comparing histories with; none if no client has sent a history yet.
    recorded: Option<Vec<RecordedExchange>>,
    log: Arc<TurnLog>,
    log_bytes: u64,
    artifacts: Index,
    artifact_bytes: u64,
    /// What the sessions of older days came to, looked up as of so many turns.
    older: Vec<(jiff::civil::Date, Line)>,
    older_turns: usize,
}

/// An open conversation.
struct Room {
    state: Mutex<Option<State>>,
    /// Held while the conversation is remembered: one turn after the other.
    reflecting: Mutex<()>,
    /// The last turn that waits to be remembered; 0 if none does.
    waiting: watch::Sender<u64>,
    /// The numbers of turns that have begun and are not over.
    under_way: StdMutex<BTreeSet<u64>>,
}

impl Room {
    fn under_way(&self) -> MutexGuard<'_, BTreeSet<u64>> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The number of a turn that is under way: nobody else gets it until it is over.
struct Number {
    room: Arc<Room>,
    turn: u64,
    is_over: AtomicBool,
}

impl Number {
    /// The next one after what is kept and what is under way.
    fn next(room: &Arc<Room>, kept: u64) -> Self {
        let mut under_way = room.under_way();
        let turn = under_way.last().copied().unwrap_or(0).max(kept) + 1;
        under_way.insert(turn);
        Self { room: room.clone(), turn, is_over: AtomicBool::new(false) }
    }

    fn end(&self) {
        if !self.is_over.swap(true, Ordering::Relaxed) {
            self.room.under_way().remove(&self.turn);
        }
    }
}

impl Drop for Number {
    fn drop(&mut self) {
        self.end();
    }
}

impl fmt::Debug for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Number({})", self.turn)
    }
}

/// The conversations of one memory.
pub struct Chats {
    memory: Arc<Memory>,
    prompts: Prompts,
    rooms: StdMutex<HashMap<String, Arc<Room>>>,
    /// What holds everywhere, as of a position of the ledger: hard exceptions, and the rest.
    everywhere: StdMutex<Option<(Position, Everywhere)>>,
    /// Messages that wait to be written, and who waits for them.
    queue: StdMutex<Vec<(Vec<Said>, Waiting)>>,
    writing: Mutex<()>,
    waits: AtomicBool,
    /// Conversations in which nothing waited to be remembered.
    settled: StdMutex<HashMap<String, reflect::Settled>>,
    /// A seed that no other has, and how often it was used.
    seed: Hash,
    marks: AtomicU64,
    /// What this one is called among processes that share a home.
    who: String,
}

/// How often conversations were opened in this process.
static OPENED: AtomicU64 = AtomicU64::new(0);

/// What holds in every conversation.
#[derive(Debug, Clone, Default)]
struct Everywhere {
    hard: Vec<Line>,
    others: Vec<Line>,
}

/// Who waits for messages to be written.
type Waiting = oneshot::Sender<std::result::Result<Vec<String>, String>>;

impl Chats {
    /// The conversations of this memory. The prompts are read once.
    pub async fn open(memory: Arc<Memory>) -> Result<Self> {
        let prompts = Prompts::load(memory.store.as_ref()).await?;
        let (process, opened) = (std::process::id(), OPENED.fetch_add(1, Ordering::Relaxed));
        // Processes on two machines may have the same number and begin at the same moment.
        let chance = RandomState::new().hash_one(process);
        let seed =
            Hash::of(format!("{} {process} {opened} {chance}", memory.now().at()).as_bytes());
        Ok(Self {
            memory,
            seed,
            who: seed.short(),
            marks: AtomicU64::new(0),
            prompts,
            rooms: StdMutex::default(),
            everywhere: StdMutex::default(),
            queue: StdMutex::default(),
            writing: Mutex::default(),
            waits: AtomicBool::new(true),
            settled: StdMutex::default(),
        })
    }

    /// The memory they belong to.
    pub fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }

    fn room(&self, conversation: &str) -> Arc<Room> {
        let mut rooms = self.rooms.lock().unwrap_or_else(PoisonError::into_inner);
        if rooms.len() >= OPEN_ROOMS && !rooms.contains_key(conversation) {
            // One that nobody is in can be opened again.
            rooms.retain(|_, room| Arc::strong_count(room) > 1);
        }
        let new = || {
            Arc::new(Room {
                state: Mutex::default(),
                reflecting: Mutex::default(),
                waiting: watch::Sender::new(0),
                under_way: StdMutex::default(),
            })
        };
        rooms.entry(conversation.to_owned()).or_insert_with(new).clone()
    }

    /// A word that nobody else has.
    fn unique(&self) -> String {
        self.seed.then(&self.marks.fetch_add(1, Ordering::Relaxed).to_be_bytes()).short()
    }

    /// What tells an exchange from others of the same number: what is asked after what. The same
    /// request gives the same, so that asking again revises; who sends only the newest words may
    /// say the same twice and mean it.
    fn mark(&self, new: &New, sent: &[Sent<'_>]) -> String {
        if !new.tells_history() {
            return self.unique();
        }
        let before = sent[..new.from].last().map_or("", |sent| sent.text);
        Hash::of(b"exchange")
            .then(&new.before.to_be_bytes())
            .then(before.as_bytes())
            .then(new.asked.as_bytes())
            .short()
    }

    /// Puts together what the model is told. Waits a little if the last turn is still being
    /// remembered.
    pub async fn begin(&self, heard: Heard) -> Result<Begun> {
        let policy = &self.memory.policy.chat;
        let texts: Vec<String> =
            heard.messages.iter().map(|message| self.memory.gate_text(&message.text)).collect();
        let sent: Vec<Sent<'_>> = heard
            .messages
            .iter()
            .zip(&texts)
            .map(|(message, text)| Sent { role: &message.role, text, has_tools: message.has_tools })
            .collect();
        let named = heard
            .conversation
            .as_deref()
            .and_then(hear::name)
            .map(|name| self.memory.gate_text(&name));
        let new = hear::new(&sent);
        let told = hear::history(&sent[..new.from]);
        let is_named = named.is_some();
        let shared_key = heard.shared_key.as_deref().and_then(hear::name);
        let conversation = match named {
            Some(name) => name,
            None => self.by_history(&sent, &told, &new, shared_key.as_deref()).await?,
        };
        let room = self.room(&conversation);
        let mut waiting = room.waiting.subscribe();
        // Whoever waited long enough goes on with the exchange word for word.
        let remembered = async {
            let _ = waiting.wait_for(|waiting| *waiting == 0).await;
            if self.waits.load(Ordering::Relaxed) {
                self.remembered_elsewhere(&conversation).await;
            }
        };
        let _ = tokio::time::timeout(
            Duration::from_millis(policy.max_wait_for_last_turn_ms),
            remembered,
        )
        .await;
        let mut state = room.state.lock().await;
        let state = self.fresh(&conversation, &mut state).await?;
        if !told.is_empty() || !state.branches.is_empty() {
            self.read_recorded(&conversation, state).await?;
        }
        let shown = if heard.messages.is_empty() {
            state.shown(&History::of(&[]), &new, ClientHistory::Newest)
        } else {
            state.shown(&History::of(&told), &new, heard.history)
        };
        let mark = self.mark(&new, &sent);
        let again = asked_again(&new, &state.recent)
            .filter(|exchange| state.is_at(exchange, shown.follows.as_ref()))
            .cloned();
        let known = state.last();
        let (turn, again, number) = match again {
            Some(exchange) => (exchange.turn, Some(exchange.id), None),
            None => {
                let number = Number::next(&room, known);
                (number.turn, None, Some(Arc::new(number)))
            }
        };
        // A history that is not recorded has nothing to take its place.
        let mode = heard.mode.unwrap_or_else(|| policy.mode());
        let mode = if shown.is_recorded { mode } else { Mode::Augment };

        // Raw turns are those of the path in which both sides said something.
        let is_before = |exchange: &&Exchange| {
            shown.path.contains(exchange.turn) && Some(&exchange.id) != again.as_ref()
        };
        let before: Vec<&Exchange> = state.recent.iter().filter(is_before).collect();
        let mut raw = self.raw_window(&before);
        let mut window = Vec::new();
        if mode == Mode::Augment && !told.is_empty() {
            // Recorded turns are never put before or between what the client sent; those it sent
            // are told by itself.
            raw.retain(|exchange| shown.sent.contains(exchange.turn));
        } else {
            window.extend(raw.iter().flat_map(|exchange| {
                [("user", exchange.asked.clone()), ("assistant", exchange.replied.clone())]
            }));
        }

        let material =
            self.material(&conversation, state, &before, &raw, &shown.path, turn).await?;
        let chosen = chat::choose(&material, policy.max_memory_tokens);
        // What the person asks for, and what the model marked in its last reply.
        let marked = before.last().map_or("", |last| last.replied.as_str());
        let recalled = self.recalled(&conversation, &new.asked, marked, &shown.path).await?;
        let mut injected = chosen.ids();
        injected.extend(recalled.iter().map(|(name, version, _)| format!("{name}@{version}")));
        let memory = if injected.is_empty() {
            None
        } else {
            let text = self.prompts.fill_chat(&chosen.told, &recalled)?;
            Some(gate::wrap("chat", self.memory.now().day(), text.trim_end()))
        };
        let tokens = memory.as_deref().map_or(0, budget::tokens)
            + window.iter().map(|(_, text)| budget::tokens(text)).sum::<usize>();
        let said = heard.messages[new.from..].to_vec();
        let others = self.other_speakers(&conversation, &heard.messages).await?.split_off(new.from);
        let own = hear::asked(
            sent[new.from..]
                .iter()
                .zip(&others)
                .filter(|(_, other)| other.is_none())
                .map(|(sent, _)| sent),
        );
        Ok(Begun {
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
            after: known,
            mark,
            again,
            follows: shown.follows,
            told: (!is_named).then_some(told),
            shared_key,
            number,
            new,
            said,
            others,
            own,
        })
    }

    /// Who says each message of a request, if it is not the owner: judged by everybody who spoke in
    /// the conversation so far.
    async fn other_speakers(
        &self,
        conversation: &str,
        messages: &[Message],
    ) -> Result<Vec<Option<String>>> {
        if messages.iter().all(|message| message.name.is_none()) {
            return Ok(vec![None; messages.len()]);
        }
        let sent = messages.iter().map(|message| Said {
            role: Some(Role::of_client(Some(&message.role))),
            name: message.name.clone().filter(|_| message.role == "user"),
            ..Said::default()
        });
        let recorded =
            self.memory.store.last_said(conversation, RECENT_RECORDS).await?.into_iter().map(
                |record| Said {
                    role: Some(record.role),
                    name: record.name.clone(),
                    ..Said::default()
                },
            );
        let mut all: Vec<Said> = sent.chain(recorded).collect();
        speaker::attribute(&mut all, &self.memory.policy.person.names(), Extent::Whole);
        all.truncate(messages.len());
        Ok(all.into_iter().map(|said| said.other_speaker).collect())
    }

    /// What a conversation would be told now.
    pub async fn pack(&self, conversation: &str) -> Result<Pack> {
        self.known(conversation).await?;
        let begun = self
            .begin(Heard { conversation: Some(conversation.to_owned()), ..Heard::default() })
            .await?;
        let block = begun.memory.unwrap_or_default();
        Ok(chat::pack(
            self.memory.now().day(),
            &block,
            &begun.window,
            begun.injected,
            begun.left_out,
        ))
    }

    /// Keeps an exchange, and says what of it was too long to be kept whole. It is on the disk when
    /// this returns; it waits to be remembered until [`Chats::reflect`] has run.
    pub async fn end(&self, begun: &Begun, reply: &Reply) -> Result<Vec<String>> {
        let conversation = &begun.conversation;
        let now = self.memory.now();
        let room = self.room(conversation);
        let mut state = room.state.lock().await;
        let state = self.recent(conversation, &mut state).await?;
        self.read_branches(conversation, state).await?;
        if begun.follows.is_some() {
            self.read_recorded(conversation, state).await?;
        }
        let (turn, id) = place(begun, state, &room);
        let known = state.recent.iter().find(|exchange| exchange.id == id).cloned();
        let field = |name: &str, value: String| (name.to_owned(), value);
        let mut said: Vec<Said> = Vec::new();
        for (at, message) in begun.said.iter().enumerate() {
            // A role that is not known is kept as a name: whoever it is, it is not the owner.
            let role = Role::meant(&message.role);
            let other = begun.others.get(at).cloned().flatten();
            let name = match role {
                None => Some(message.role.clone()),
                Some(Role::User) => message.name.clone(),
                Some(_) => None,
            };
            let parts = message.has_tools.then(|| message.raw.clone());
            let mut extra = vec![field("turn", turn.to_string())];
            if at == 0 {
                extra.push(field("before", begun.new.before.to_string()));
            }
            if other.is_some() {
                extra.push(field(ASKS, "true".into()));
            }
            let id = Some(format!("{id}.{at}"));
            let (origin, other_speaker) = (other.is_some().then_some(Origin::Import), other);
            said.push(Said {
                ts: Some(now),
                id,
                role,
                name,
                other_speaker,
                origin,
                text: message.text.clone(),
                parts,
                extra,
                ..Said::default()
            });
        }
        let mut extra = vec![field("turn", turn.to_string())];
        if !reply.complete {
            extra.push(field("complete", "false".into()));
        }
        said.push(Said {
            ts: Some(now),
            id: Some(format!("{id}.{}", begun.said.len())),
            role: Some(Role::Assistant),
            text: reply.text.clone(),
            parts: reply.parts.clone(),
            extra,
            ..Said::default()
        });
        let mut cut = Vec::new();
        for (at, one) in said.iter_mut().enumerate() {
            one.conversation = Some(conversation.clone());
            if one.text.len() > MAX_TEXT_BYTES {
                cut.push(format!(
                    "message {} has {} bytes, of which {MAX_TEXT_BYTES} are kept",
                    at + 1,
                    one.text.len()
                ));
                one.extra.push(field(CUT, one.text.len().to_string()));
                one.text.truncate(one.text.floor_char_boundary(MAX_TEXT_BYTES));
            }
        }
        if begun.after == 0 {
            self.introduce(conversation).await?;
        }
        let opening = |told: &Vec<SentExchange>| {
            self.opening_of(
                told,
                &begun.new,
                &reply.text,
                begun.after == 0,
                begun.shared_key.as_deref(),
            )
        };
        if let Some(opening) = begun.told.as_ref().and_then(opening) {
            self.register_opening(conversation, &opening).await?;
        }
        // Before the records: a turn that is recorded has its place.
        let line = known
            .is_none()
            .then(|| self.branch_line(state, turn, begun.follows.as_ref(), &begun.new.asked))
            .flatten();
        if let Some(line) = line {
            self.extend(&self.folder(conversation).branches(), &line).await?;
            self.read_branches(conversation, state).await?;
        }
        let records = said.len();
        cut.extend(self.keep(said).await?);
        let replied = self.memory.gate_text(&reply.text).trim().to_owned();
        state.recent.retain(|exchange| exchange.id != id);
        state.recent.push(Exchange {
            id,
            turn,
            records,
            ts: now,
            before: begun.new.before,
            asked: begun.new.asked.clone(),
            own: begun.own.clone(),
            // A call of a tool without words does not take away what was said before it.
            replied: if replied.is_empty() {
                known.as_ref().map_or(replied, |known| known.replied.clone())
            } else {
                replied
            },
        });
        state.recent.sort_by_key(|exchange| exchange.turn);
        state.record(turn);
        let most = self.memory.policy.chat.window_turns
            + self.memory.policy.chat.extra_turns_for_long_replies;
        let surplus = state.recent.len().saturating_sub(most + 1);
        state.recent.drain(..surplus);
        if let Some(number) = &begun.number {
            number.end();
        }
        // If there is more than this exchange has added, somebody else has spoken; then it is read
        // again.
        let new = records.saturating_sub(known.map_or(0, |known| known.records)) as u64;
        let before = state.said.take();
        let is_ours = |said: &(Days, Digest)| {
            before.is_some_and(|before| {
                said.0 == before.0 && said.1.records == before.1.records + new
            })
        };
        state.said = self.said_lately(conversation).await.ok().filter(is_ours);
        if self.waits.load(Ordering::Relaxed) {
            room.waiting.send_modify(|waiting| *waiting = turn);
        }
        Ok(cut)
    }

    /// Keeps messages. What others hand in while one is writing is written together: a disk takes
    /// many as quickly as one.
    async fn keep(&self, said: Vec<Said>) -> Result<Vec<String>> {
        let (done, kept) = oneshot::channel();
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).push((said, done));
        {
            let _alone = self.writing.lock().await;
            let batch =
                std::mem::take(&mut *self.queue.lock().unwrap_or_else(PoisonError::into_inner));
            let (said, waiting): (Vec<Vec<Said>>, Vec<_>) = batch.into_iter().unzip();
            if !said.is_empty() {
                let outcomes = match self.memory.add_lots(said, LEASE).await {
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
            Ok(Err(why)) => Err(Error::Busy(format!("the exchange was not kept: {why}"))),
            Err(_) => Err(Error::Busy("the exchange was not kept: writing broke off".into())),
        }
    }

    /// Whether the next turn of a conversation waits for the last one to be remembered. Without a
    /// model there is nothing worth waiting for: the exchange stands word for word.
    pub fn wait_for_memory(&self, waits: bool) {
        self.waits.store(waits, Ordering::Relaxed);
    }

    /// The turns that stand word for word: the last ones, and a long reply a little longer.
    fn raw_window<'a>(&self, before: &[&'a Exchange]) -> Vec<&'a Exchange> {
        let policy = &self.memory.policy.chat;
        let has_both_sides =
            |exchange: &&&Exchange| !exchange.asked.is_empty() && !exchange.replied.is_empty();
        let before: Vec<&Exchange> = before.iter().filter(has_both_sides).copied().collect();
        let from = before.len().saturating_sub(policy.window_turns);
        let longer =
            before.len().saturating_sub(policy.window_turns + policy.extra_turns_for_long_replies);
        let is_long =
            |exchange: &&&Exchange| budget::words(&exchange.replied) > policy.long_exchange_words;
        before[longer..from].iter().filter(is_long).chain(&before[from..]).copied().collect()
    }

    /// All that could be told of a conversation before a turn, but for what stands word for word.
    async fn material(
        &self,
        conversation: &str,
        state: &State,
        before: &[&Exchange],
        raw: &[&Exchange],
        path: &Turns,
        turn: u64,
    ) -> Result<Material> {
        let line =
            |fact: &Fact| Line { id: fact.id.to_string(), text: plain::one_line(&fact.text) };
        let facts = state.facts_of(conversation, path);
        let (hard, facts): (Vec<&Fact>, Vec<&Fact>) = facts.iter().partition(|fact| fact.hard);
        let mut material = Material {
            hard: hard.into_iter().map(line).collect(),
            facts: facts.into_iter().map(line).collect(),
            artifacts: folder::artifact_lines(&state.artifacts.clone().of_turns(path)),
            ..Material::default()
        };
        let everywhere = self.everywhere().await?;
        material.hard.splice(0..0, everywhere.hard);
        material.everywhere = everywhere.others;
        let is_raw = |exchange: &&&Exchange| raw.iter().any(|raw| raw.id == exchange.id);
        let (shown, hidden): (Vec<&Exchange>, Vec<&Exchange>) = before.iter().partition(is_raw);
        let stands = |turn: u64| {
            shown.iter().any(|exchange| exchange.turn == turn)
                && !hidden.iter().any(|other| other.turn == turn)
        };
        let mut told: BTreeMap<u64, Told> = BTreeMap::new();
        let is_told = |line: &&TurnLine| {
            line.turn < turn && path.contains(line.turn) && !stands(line.turn) && !line.is_empty()
        };
        for line in state.log.turns.values().filter(is_told) {
            told.insert(
                line.turn,
                Told {
                    turn: line.turn,
                    user: line.user_summary.clone(),
                    assistant: line.assistant_summary.clone(),
                },
            );
        }
        // A turn that is not in the log yet is told by its first words.
        for exchange in
            hidden.iter().filter(|exchange| !state.log.turns.contains_key(&exchange.turn))
        {
            let line =
                TurnLine::raw(exchange.turn, exchange.ts, &exchange.asked, &exchange.replied, "");
            told.insert(
                line.turn,
                Told {
                    turn: line.turn,
                    user: line.user_summary,
                    assistant: line.assistant_summary,
                },
            );
        }
        material.turns = told.into_values().collect();
        // What a day came to also tells of turns of that day that are not shown.
        let days = state.days_outside(path);
        material.older = state
            .older
            .iter()
            .filter(|(day, _)| !days.contains(day))
            .map(|(_, line)| line.clone())
            .collect();
        Ok(material)
    }

    /// What holds in every conversation. Looked up again when the ledger has changed.
    async fn everywhere(&self) -> Result<Everywhere> {
        // Taken before anything is read: what comes in between is looked up the next time.
        let position = self.memory.store.position().await?;
        if let Some((known, everywhere)) =
            &*self.everywhere.lock().unwrap_or_else(PoisonError::into_inner)
            && *known == position
        {
            return Ok(everywhere.clone());
        }
        let weighty =
            EventQuery { priorities: vec![Priority::P0, Priority::P1], ..EventQuery::default() };
        let promoted = EventQuery { tags: vec![PROMOTED.into()], ..EventQuery::default() };
        let mut seen = BTreeSet::new();
        let mut found = Everywhere::default();
        for query in [weighty, promoted] {
            let query = EventQuery {
                limit: Some(EVERYWHERE),
                weightiest: true,
                quarantined: Some(false),
                ..query
            };
            for entry in self.memory.store.events(&query).await?.entries {
                let event = &entry.event;
                if event.scope != Scope::Everywhere || !seen.insert(event.id) {
                    continue;
                }
                let line = Line { id: event.id.to_string(), text: plain::one_line(&event.content) };
                let is_hard = event.priority == Priority::P0 && event.kind == Kind::Constraint;
                if is_hard { &mut found.hard } else { &mut found.others }.push(line);
            }
        }
        *self.everywhere.lock().unwrap_or_else(PoisonError::into_inner) =
            Some((position, found.clone()));
        Ok(found)
    }

    /// What the sessions of a conversation came to, oldest first.
    async fn stretches(&self, conversation: &str) -> Result<Vec<(jiff::civil::Date, Line)>> {
        let (heads, _) = self.memory.store.heads(&SummaryQuery::tier(Tier::Session)).await?;
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
            .summaries(&SummaryQuery::within(Tier::Session, Days { first, last }))
            .await?;
        let own = summaries.iter().filter(|summary| {
            summary.session.as_ref().is_some_and(|key| key.conversation == conversation)
        });
        let line = |summary: &Summary| {
            let day = summary.session.as_ref()?.day;
            Some((
                day,
                Line { id: summary.period.to_string(), text: plain::one_line(&summary.headline) },
            ))
        };
        Ok(own.filter_map(line).collect())
    }

    /// What the records of a conversation come to on the days on which somebody may be speaking in
    /// it now.
    async fn said_lately(&self, conversation: &str) -> Result<(Days, Digest)> {
        let today = self.memory.now().day();
        let days = Days { first: today.yesterday().unwrap_or(today), last: today };
        Ok((days, self.memory.store.said_in(conversation, days).await?))
    }

    /// The last exchanges of a conversation as they are now: read when they are first needed, and
    /// again if another process has added to them.
    async fn recent<'a>(
        &self,
        conversation: &str,
        state: &'a mut Option<State>,
    ) -> Result<&'a mut State> {
        // Asked before it is read: what comes in between is seen the next time.
        let said = self.said_lately(conversation).await?;
        let state = state.get_or_insert_default();
        if state.said != Some(said) {
            state.recent =
                exchanges(&self.memory.store.last_said(conversation, RECENT_RECORDS).await?);
            state.said = Some(said);
            state.recorded = None;
        }
        Ok(state)
    }

    /// The state of a conversation as it is now, with its files, which are read again where they
    /// have grown.
    async fn fresh<'a>(
        &self,
        conversation: &str,
        state: &'a mut Option<State>,
    ) -> Result<&'a mut State> {
        let state = self.recent(conversation, state).await?;
        let folder = self.folder(conversation);
        if let Some(ledger) = self.read_if_grown(&folder.events(), &mut state.ledger_bytes).await? {
            state.ledger = Ledger::read(&ledger, None);
            state.facts = truth::facts(&state.ledger, conversation);
        }
        if let Some(log) = self.read_if_grown(&folder.turns(), &mut state.log_bytes).await? {
            state.log = Arc::new(turn::read(&log));
        }
        if let Some(index) =
            self.read_if_grown(&folder.artifacts(), &mut state.artifact_bytes).await?
        {
            state.artifacts = Index::read(&index).0;
        }
        self.read_branches(conversation, state).await?;
        if state.log.turns.len() >= state.older_turns + LOOK_AT_OLDER {
            state.older = self.stretches(conversation).await?;
            state.older_turns = state.log.turns.len();
        }
        Ok(state)
    }
}

/// The last turn that the log tells of.
fn last_turn(log: &TurnLog) -> u64 {
    log.turns.keys().next_back().copied().unwrap_or(0)
}

/// The number under which an exchange is kept, and what the ids of its records begin with.
fn place(begun: &Begun, state: &State, room: &Room) -> (u64, String) {
    let recent = &state.recent;
    let id = |turn: u64| format!("turn-{turn}-{}", begun.mark);
    if let Some(id) = &begun.again {
        return (begun.turn, id.clone());
    }
    // Somebody may have asked for the same meanwhile, or this very exchange was kept, and only
    // saying so failed.
    let again = asked_again(&begun.new, recent)
        .filter(|exchange| state.is_at(exchange, begun.follows.as_ref()));
    let known =
        again.or_else(|| recent.iter().rev().find(|exchange| exchange.id == id(exchange.turn)));
    if let Some(known) = known {
        return (known.turn, known.id.clone());
    }
    let last = recent.last().map_or(0, |last| last.turn).max(begun.after);
    let under_way = room.under_way();
    let turn = if recent.iter().any(|exchange| exchange.turn == begun.turn) {
        // Another process has given the same number.
        under_way.last().copied().unwrap_or(0).max(last) + 1
    } else if begun.turn > last && under_way.range(last + 1..begun.turn).next().is_none() {
        // Whoever had the numbers before this one has failed.
        last + 1
    } else {
        begun.turn
    };
    (turn, id(turn))
}

/// The exchange of the last turn that a request goes on with or asks for again.
fn asked_again<'a>(new: &New, recent: &'a [Exchange]) -> Option<&'a Exchange> {
    let last = recent.last()?.turn;
    let mut of_last_turn = recent.iter().rev().take_while(|exchange| exchange.turn == last);
    of_last_turn.find(|exchange| new.is_again(exchange.before, &exchange.asked))
}

/// One exchange for each turn, for what has one line for each: where two have the same number, both
/// are told in it.
pub(crate) fn by_turn(exchanges: Vec<Exchange>) -> Vec<Exchange> {
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

/// The exchanges of records: turn by turn, what was asked and what was replied.
pub(crate) fn exchanges(records: &[Record]) -> Vec<Exchange> {
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
        if let Some(before) = record.number("before") {
            exchange.before = before as usize;
        }
        let text = record.text.trim();
        match record.role {
            Role::User if record.parts.is_none() && !text.is_empty() => {
                let is_own = record.other_speaker.is_none();
                let asks = is_own || record.extra.iter().any(|(name, _)| name == ASKS);
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
            // The last words of the assistant are its reply.
            Role::Assistant if !text.is_empty() => text.clone_into(&mut exchange.replied),
            _ => {}
        }
    }
    found.sort_by_key(|exchange| exchange.turn);
    found
}
