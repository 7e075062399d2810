//! Conversing (C1–C14): what a chat model is told before it answers, and what is kept of the exchange afterwards.
//!
//! A turn has two phases. Before the reply, what is known is put together; after it, the exchange is kept, and only then
//! remembered: summarised into the turn log, its facts into the conversation's own ledger. What waits to be remembered is
//! found by comparing the records with the turn log, so a process that died in between loses nothing.

mod folder;
mod reflect;

pub use folder::{Conversation, FactLine, Forgotten, Kept};
pub use reflect::Reflected;

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex as StdMutex, PoisonError};
use std::time::Duration;

use icecore_domain::budget::{self, LeftOut};
use icecore_domain::calendar::{Days, Moment};
use icecore_domain::converse::hear::{self, LastTurn, New, Sent};
use icecore_domain::converse::truth::{self, Fact};
use icecore_domain::converse::turn::{self, TurnLog};
use icecore_domain::event::{Kind, Priority, Scope};
use icecore_domain::gate;
use icecore_domain::ledger::Ledger;
use icecore_domain::ledger::query::EventQuery;
use icecore_domain::packs::Pack;
use icecore_domain::packs::chat::{self, Line, Material, Told};
use icecore_domain::plain;
use icecore_domain::record::{MAX_TEXT_BYTES, Record, Role, Said};
use icecore_domain::summary::{SummaryQuery, Tier};
use icecore_store::Position;
use tokio::sync::{Mutex, oneshot, watch};

use crate::config::{Mode, Placement};
use crate::prompts::Prompts;
use crate::{Error, Gaps, Memory, Result};

/// So many records of a conversation are read when it is opened: a turn with tools has more than two.
const RECENT_RECORDS: usize = 200;
/// What holds everywhere is told up to so many lines.
const EVERYWHERE: usize = 60;
/// So many conversations stay open; what is not in use is opened again when it is needed.
const OPEN_ROOMS: usize = 10_000;
/// After so many more turns it is looked up what older stretches came to.
const LOOK_AT_OLDER: usize = 40;
/// The tag of what was lifted from a conversation to everywhere.
pub const PROMOTED: &str = "promoted";

/// A message that a client sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Who speaks, in the client's word.
    pub role: String,
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
    /// The last turn that was kept when this one began.
    after: u64,
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
    pub(crate) turn: u64,
    pub(crate) ts: Moment,
    pub(crate) before: usize,
    pub(crate) asked: String,
    pub(crate) replied: String,
}

/// What is known of an open conversation.
#[derive(Debug, Default)]
struct State {
    /// The last exchanges, oldest first.
    recent: Vec<Exchange>,
    /// The conversation's ledger, folded into facts, and how many bytes it had.
    facts: Vec<Fact>,
    ledger_bytes: usize,
    log: TurnLog,
    log_bytes: usize,
    artifacts: Vec<Line>,
    artifact_bytes: usize,
    /// What older stretches came to, looked up as of so many turns.
    older: Vec<Line>,
    older_turns: usize,
}

/// An open conversation.
struct Room {
    state: Mutex<Option<State>>,
    /// Held while the conversation is remembered: one turn after the other.
    reflecting: Mutex<()>,
    /// The last turn that waits to be remembered; 0 if none does.
    waiting: watch::Sender<u64>,
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
}

/// What holds in every conversation.
#[derive(Debug, Clone, Default)]
struct Everywhere {
    hard: Vec<Line>,
    others: Vec<Line>,
}

/// Who waits for messages to be written.
type Waiting = oneshot::Sender<std::result::Result<(), String>>;

impl Chats {
    /// The conversations of this memory. The prompts are read once.
    pub async fn open(memory: Arc<Memory>) -> Result<Self> {
        let prompts = Prompts::load(memory.store.as_ref()).await?;
        Ok(Self {
            memory,
            prompts,
            rooms: StdMutex::default(),
            everywhere: StdMutex::default(),
            queue: StdMutex::default(),
            writing: Mutex::default(),
            waits: AtomicBool::new(true),
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
        let new = || Arc::new(Room { state: Mutex::default(), reflecting: Mutex::default(), waiting: watch::Sender::new(0) });
        rooms.entry(conversation.to_owned()).or_insert_with(new).clone()
    }

    /// How many conversations are open.
    pub fn open_rooms(&self) -> usize {
        self.rooms.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Puts together what the model is told. Waits a little if the last turn is still being remembered.
    pub async fn begin(&self, heard: Heard) -> Result<Begun> {
        let policy = &self.memory.policy.chat;
        let texts: Vec<String> = heard.messages.iter().map(|message| self.memory.gate_text(&message.text)).collect();
        let sent: Vec<Sent<'_>> = heard
            .messages
            .iter()
            .zip(&texts)
            .map(|(message, text)| Sent { role: &message.role, text, has_tools: message.has_tools })
            .collect();
        let named = heard.conversation.as_deref().and_then(hear::name).map(|name| self.memory.gate_text(&name));
        let conversation = match named {
            Some(name) => name,
            None => self.by_opening(&sent).await?,
        };
        let room = self.room(&conversation);
        let mut waiting = room.waiting.subscribe();
        // Whoever waited long enough goes on with the exchange word for word.
        let _ = tokio::time::timeout(Duration::from_millis(policy.wait_ms), waiting.wait_for(|waiting| *waiting == 0)).await;
        let mut state = room.state.lock().await;
        let state = self.fresh(&conversation, &mut state).await?;
        let new = hear::new(&sent);
        let last = state.recent.last().map(|last| LastTurn { turn: last.turn, before: last.before, asked: last.asked.clone() });
        let known = last.as_ref().map_or_else(|| last_turn(&state.log), |last| last.turn.max(last_turn(&state.log)));
        let turn = hear::turn(&new, last.as_ref()).max(if last.is_none() { known + 1 } else { 1 });
        let mode = heard.mode.unwrap_or_else(|| policy.mode());

        // Raw turns are those before this one.
        let before: Vec<&Exchange> = state.recent.iter().filter(|exchange| exchange.turn < turn).collect();
        let raw = self.raw_window(&before);
        let asked: Vec<&str> = raw.iter().map(|exchange| exchange.asked.as_str()).collect();
        let shown = match mode {
            Mode::Replace => vec![true; raw.len()],
            Mode::Augment => hear::unsent(&asked, &sent),
        };
        let window: Vec<(&'static str, String)> = raw
            .iter()
            .zip(shown)
            .filter(|(exchange, shown)| *shown && !exchange.asked.is_empty() && !exchange.replied.is_empty())
            .flat_map(|(exchange, _)| [("user", exchange.asked.clone()), ("assistant", exchange.replied.clone())])
            .collect();

        let first_raw = raw.first().map_or(turn, |exchange| exchange.turn);
        let material = self.material(state, first_raw).await?;
        let chosen = chat::choose(&material, policy.memory_tokens);
        // What the person asks for, and what the model marked in its last reply.
        let marked = before.last().map_or("", |last| last.replied.as_str());
        let recalled = self.recalled(&conversation, &new.asked, marked).await?;
        let mut injected = chosen.ids();
        injected.extend(recalled.iter().map(|(name, version, _)| format!("{name}@{version}")));
        let memory = if injected.is_empty() {
            None
        } else {
            let text = self.prompts.fill_chat(&chosen.told, &recalled)?;
            Some(gate::wrap("chat", self.memory.now().day(), text.trim_end()))
        };
        let tokens = memory.as_deref().map_or(0, budget::tokens) + window.iter().map(|(_, text)| budget::tokens(text)).sum::<usize>();
        let said = heard.messages[new.from..].to_vec();
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
            cost_tokens: state.log.turns.values().map(|line| line.tokens_in + line.tokens_out).sum(),
            after: known,
            new,
            said,
        })
    }

    /// What a conversation would be told now.
    pub async fn pack(&self, conversation: &str) -> Result<Pack> {
        self.known(conversation).await?;
        let begun = self.begin(Heard { conversation: Some(conversation.to_owned()), ..Heard::default() }).await?;
        let block = begun.memory.unwrap_or_default();
        Ok(chat::pack(self.memory.now().day(), &block, &begun.window, begun.injected, begun.left_out))
    }

    /// Keeps an exchange. It is on the disk when this returns; it waits to be remembered until [`Chats::reflect`] has run.
    pub async fn end(&self, begun: &Begun, reply: &Reply) -> Result<()> {
        let conversation = &begun.conversation;
        let now = self.memory.now();
        let room = self.room(conversation);
        let mut state = room.state.lock().await;
        // Whoever spoke at the same time may have been given the same number and have ended first; two exchanges under one number
        // would be taken for one that was sent twice.
        let last = state.as_ref().and_then(|state| state.recent.last()).filter(|last| begun.turn > begun.after && last.turn >= begun.turn);
        let turn = last.map_or(begun.turn, |last| {
            hear::turn(&begun.new, Some(&LastTurn { turn: last.turn, before: last.before, asked: last.asked.clone() }))
        });
        let field = |name: &str, value: String| (name.to_owned(), value);
        let mut said: Vec<Said> = Vec::new();
        for (at, message) in begun.said.iter().enumerate() {
            // A role that nobody knows is not the person's.
            let role = Role::meant(&message.role).unwrap_or(Role::Tool);
            let parts = message.has_tools.then(|| message.raw.clone());
            let mut extra = vec![field("turn", turn.to_string())];
            if at == 0 {
                extra.push(field("before", begun.new.before.to_string()));
            }
            let id = Some(format!("turn-{turn}.{at}"));
            said.push(Said { ts: Some(now), id, role: Some(role), text: message.text.clone(), parts, extra, ..Said::default() });
        }
        let mut extra = vec![field("turn", turn.to_string())];
        if !reply.complete {
            extra.push(field("complete", "false".into()));
        }
        let id = Some(format!("turn-{turn}.{}", begun.said.len()));
        said.push(Said {
            ts: Some(now),
            id,
            role: Some(Role::Assistant),
            text: reply.text.clone(),
            parts: reply.parts.clone(),
            extra,
            ..Said::default()
        });
        for one in &mut said {
            one.conversation = Some(conversation.clone());
            if one.text.len() > MAX_TEXT_BYTES {
                one.extra.push(field("cut_from_bytes", one.text.len().to_string()));
                one.text.truncate(one.text.floor_char_boundary(MAX_TEXT_BYTES));
            }
        }
        if begun.after == 0 {
            self.introduce(conversation, begun, reply).await?;
        }
        self.keep(said).await?;
        if let Some(state) = state.as_mut() {
            let exchange = Exchange {
                turn,
                ts: now,
                before: begun.new.before,
                asked: begun.new.asked.clone(),
                replied: self.memory.gate_text(&reply.text).trim().to_owned(),
            };
            state.recent.retain(|known| known.turn != exchange.turn);
            state.recent.push(exchange);
            let most = self.memory.policy.chat.window_turns + self.memory.policy.chat.long_extra_turns;
            let surplus = state.recent.len().saturating_sub(most + 1);
            state.recent.drain(..surplus);
        }
        if self.waits.load(Ordering::Relaxed) {
            room.waiting.send_modify(|waiting| *waiting = turn);
        }
        Ok(())
    }

    /// Keeps messages. What others hand in while one is writing is written together: a disk takes many as quickly as one.
    async fn keep(&self, said: Vec<Said>) -> Result<()> {
        let (done, kept) = oneshot::channel();
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).push((said, done));
        {
            let _alone = self.writing.lock().await;
            let batch = std::mem::take(&mut *self.queue.lock().unwrap_or_else(PoisonError::into_inner));
            let (said, waiting): (Vec<Vec<Said>>, Vec<_>) = batch.into_iter().unzip();
            if !said.is_empty() {
                let taken = self.memory.add_messages(said.concat(), &Gaps::default()).await;
                let outcome = match taken {
                    Ok(taken) if taken.complaints.is_empty() => Ok(()),
                    Ok(taken) => Err(taken.complaints.join("; ")),
                    Err(error) => Err(error.to_string()),
                };
                for done in waiting {
                    let _ = done.send(outcome.clone());
                }
            }
        }
        match kept.await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(why)) => Err(Error::Busy(format!("the exchange was not kept: {why}"))),
            Err(_) => Err(Error::Busy("the exchange was not kept: writing broke off".into())),
        }
    }

    /// Whether the next turn of a conversation waits for the last one to be remembered. Without a model there is nothing worth
    /// waiting for: the exchange stands word for word.
    pub fn wait_for_memory(&self, waits: bool) {
        self.waits.store(waits, Ordering::Relaxed);
    }

    /// The turns that stand word for word: the last ones, and a long reply a little longer.
    fn raw_window<'a>(&self, before: &[&'a Exchange]) -> Vec<&'a Exchange> {
        let policy = &self.memory.policy.chat;
        let from = before.len().saturating_sub(policy.window_turns);
        let longer = before.len().saturating_sub(policy.window_turns + policy.long_extra_turns);
        let is_long = |exchange: &&&Exchange| budget::words(&exchange.replied) > policy.long_words;
        before[longer..from].iter().filter(is_long).chain(&before[from..]).copied().collect()
    }

    /// All that could be told of a conversation, but for the turns that stand word for word.
    async fn material(&self, state: &State, first_raw: u64) -> Result<Material> {
        let line = |fact: &Fact| Line { id: fact.id.to_string(), text: plain::one_line(&fact.text) };
        let (hard, facts): (Vec<&Fact>, Vec<&Fact>) = state.facts.iter().partition(|fact| fact.hard);
        let mut material = Material {
            hard: hard.into_iter().map(line).collect(),
            facts: facts.into_iter().map(line).collect(),
            artifacts: state.artifacts.clone(),
            ..Material::default()
        };
        let everywhere = self.everywhere().await?;
        material.hard.splice(0..0, everywhere.hard);
        material.everywhere = everywhere.others;
        for summary in state.log.turns.values().filter(|line| line.turn < first_raw) {
            material.turns.push(Told {
                turn: summary.turn,
                user: summary.user_summary.clone(),
                assistant: summary.assistant_summary.clone(),
            });
        }
        material.older.clone_from(&state.older);
        Ok(material)
    }

    /// What holds in every conversation. Looked up again when the ledger has changed.
    async fn everywhere(&self) -> Result<Everywhere> {
        let newest = EventQuery { limit: Some(1), ..EventQuery::everything() };
        let position = self.memory.store.events(&newest).await?.position;
        if let Some((known, everywhere)) = &*self.everywhere.lock().unwrap_or_else(PoisonError::into_inner)
            && *known == position
        {
            return Ok(everywhere.clone());
        }
        let weighty = EventQuery { priorities: vec![Priority::P0, Priority::P1], ..EventQuery::default() };
        let promoted = EventQuery { tags: vec![PROMOTED.into()], ..EventQuery::default() };
        let mut seen = BTreeSet::new();
        let mut found = Everywhere::default();
        for query in [weighty, promoted] {
            let query = EventQuery { limit: Some(EVERYWHERE), weightiest: true, quarantined: Some(false), ..query };
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
        *self.everywhere.lock().unwrap_or_else(PoisonError::into_inner) = Some((position, found.clone()));
        Ok(found)
    }

    /// What the sessions of a conversation came to, oldest first.
    async fn stretches(&self, conversation: &str) -> Result<Vec<Line>> {
        let (heads, _) = self.memory.store.heads(&SummaryQuery::tier(Tier::Session)).await?;
        let own = heads.iter().filter(|head| head.session.as_ref().is_some_and(|key| key.conversation == conversation));
        let days: Vec<jiff::civil::Date> = own.filter_map(|head| head.session.as_ref().map(|key| key.day)).collect();
        let (Some(&first), Some(&last)) = (days.first(), days.last()) else { return Ok(Vec::new()) };
        let summaries = self.memory.store.summaries(&SummaryQuery::within(Tier::Session, Days { first, last })).await?;
        let own = summaries.iter().filter(|summary| summary.session.as_ref().is_some_and(|key| key.conversation == conversation));
        Ok(own.map(|summary| Line { id: summary.period.to_string(), text: plain::one_line(&summary.headline) }).collect())
    }

    /// The state of a conversation as it is now: read when it is first needed, and again where its files have grown.
    async fn fresh<'a>(&self, conversation: &str, state: &'a mut Option<State>) -> Result<&'a mut State> {
        let state = match state {
            Some(state) => state,
            None => {
                let records = self.memory.store.last_said(conversation, RECENT_RECORDS).await?;
                state.insert(State { recent: exchanges(&records), ..State::default() })
            }
        };
        let folder = self.folder(conversation);
        let ledger = self.read(&folder.events()).await?;
        if ledger.len() != state.ledger_bytes {
            state.facts = truth::facts(&Ledger::read(&ledger, None), conversation);
            state.ledger_bytes = ledger.len();
        }
        let log = self.read(&folder.turns()).await?;
        if log.len() != state.log_bytes {
            state.log = turn::read(&log);
            state.log_bytes = log.len();
        }
        let index = self.read(&folder.artifacts()).await?;
        if index.len() != state.artifact_bytes {
            state.artifacts = folder::artifact_lines(&index);
            state.artifact_bytes = index.len();
        }
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

fn number(record: &Record, name: &str) -> Option<u64> {
    record.extra.iter().find(|(field, _)| field == name).and_then(|(_, raw)| raw.trim_matches('"').parse().ok())
}

/// The turn that a record belongs to, if it came through the server.
fn turn_of(record: &Record) -> Option<u64> {
    number(record, "turn")
}

/// The exchanges of records: turn by turn, what was asked and what was replied.
pub(crate) fn exchanges(records: &[Record]) -> Vec<Exchange> {
    let mut found: Vec<Exchange> = Vec::new();
    for record in records {
        let Some(turn) = turn_of(record) else { continue };
        let known = found.iter().position(|exchange| exchange.turn == turn);
        let at = known.unwrap_or_else(|| {
            let (asked, replied) = (String::new(), String::new());
            found.push(Exchange { turn, ts: record.ts, before: 0, asked, replied });
            found.len() - 1
        });
        let exchange = &mut found[at];
        if let Some(before) = number(record, "before") {
            exchange.before = before as usize;
        }
        let text = record.text.trim();
        match record.role {
            Role::User if record.parts.is_none() && !text.is_empty() => {
                if !exchange.asked.is_empty() {
                    exchange.asked.push_str("\n\n");
                }
                exchange.asked.push_str(text);
            }
            // The last words of the assistant are its reply.
            Role::Assistant if !text.is_empty() => text.clone_into(&mut exchange.replied),
            _ => {}
        }
    }
    found.sort_by_key(|exchange| exchange.turn);
    found
}
