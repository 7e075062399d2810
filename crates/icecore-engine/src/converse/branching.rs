//! Which conversation a request continues, and after which of its turns.
//!
//! An id that the client sends names the conversation. Without one the history decides: a request
//! continues the conversation with the most turns that all stand in the history it sent, at the
//! same places. Whatever memory adds to a request comes from turns that the client's own history
//! shows, so two chats that began alike never see each other, and a turn that was edited away does
//! not come back.

use std::collections::{HashMap, HashSet};

use icecore_domain::converse::branch::{self, Branches, Fit, Turns};
use icecore_domain::converse::hear::{self, New, Sent, SentExchange};
use icecore_domain::converse::truth::{self, Fact};
use icecore_domain::hash::Hash;
use icecore_domain::rank::passage::PassageKind;
use icecore_domain::record::Record;
use jiff::civil::Date;

use super::folder::Folder;
use super::{Chats, Exchange, Room, State, exchanges, last_turn};
use crate::find::Hit;
use crate::{Memory, Result};

/// The exchanges that a conversation is first looked up by.
const OPENING_EXCHANGES: usize = 2;
/// So many conversations that began alike are compared with a history, the newest first.
pub(super) const MAX_CANDIDATES: usize = 32;
/// So many branches of a conversation are compared with a history, the newest first.
const MAX_BRANCHES: usize = 64;
/// The messages among which the last turn of a conversation is.
const RECENT_MESSAGES: usize = 16;
/// A reply of so many bytes is not the same by chance.
const TELLING_REPLY_BYTES: usize = 40;

/// What a client is known to send with every request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ClientHistory {
    /// The whole history or only the newest words; what it sent before tells which.
    #[default]
    Unknown,
    /// The whole history.
    Whole,
    /// Only the newest words.
    Newest,
}

/// A recorded exchange as a history is compared with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RecordedExchange {
    turn: u64,
    before: usize,
    day: Date,
    asked: Hash,
    replied: Hash,
}

impl RecordedExchange {
    pub(super) fn of(exchange: &Exchange) -> Self {
        Self {
            turn: exchange.turn,
            before: exchange.before,
            day: exchange.ts.day(),
            asked: hear::said_hash(&exchange.asked),
            replied: hear::said_hash(&exchange.replied),
        }
    }
}

/// The turns that a request is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Shown {
    /// The turns that memory may come from.
    pub(super) path: Turns,
    /// What the new turn follows, if the client's history says so; otherwise it follows the head.
    pub(super) follows: Option<Turns>,
    /// The recorded turns among the history that the client sent.
    pub(super) sent: Turns,
    /// Whether every exchange of that history is recorded.
    pub(super) is_recorded: bool,
}

/// A sent history with the hashes it is compared by.
pub(super) struct History<'a> {
    exchanges: &'a [SentExchange],
    hashes: Vec<(Hash, Hash)>,
}

impl<'a> History<'a> {
    pub(super) fn of(exchanges: &'a [SentExchange]) -> Self {
        let hashes = exchanges
            .iter()
            .map(|one| (hear::said_hash(&one.asked), hear::said_hash(&one.replied)))
            .collect();
        Self { exchanges, hashes }
    }

    fn is_empty(&self) -> bool {
        self.exchanges.is_empty()
    }
}

impl State {
    /// The last turn that is recorded.
    pub(super) fn last(&self) -> u64 {
        self.recent.last().map_or(0, |last| last.turn).max(last_turn(&self.log))
    }

    /// The turns of the conversation as it stands.
    pub(super) fn active(&self) -> Turns {
        self.branches.active(self.last())
    }

    /// Facts of these turns.
    pub(super) fn facts_of(&self, conversation: &str, path: &Turns) -> Vec<Fact> {
        if self.branches.is_empty() && *path == Turns::up_to(self.last()) {
            return self.facts.clone();
        }
        truth::facts_of(&self.ledger, conversation, path)
    }

    /// The days on which something was said that is not among these turns.
    pub(super) fn days_outside(&self, path: &Turns) -> HashSet<Date> {
        let outside = self.recorded.iter().flatten().filter(|one| !path.contains(one.turn));
        outside.map(|one| one.day).collect()
    }

    /// Whether an exchange follows these turns; without any it is at the head.
    pub(super) fn is_at(&self, exchange: &Exchange, follows: Option<&Turns>) -> bool {
        follows.is_none_or(|follows| self.follows(exchange.turn, follows))
    }

    /// Takes in the exchanges of a turn that has just been recorded.
    pub(super) fn record(&mut self, turn: u64) {
        let Some(recorded) = &mut self.recorded else { return };
        recorded.retain(|one| one.turn != turn);
        recorded.extend(
            self.recent.iter().filter(|exchange| exchange.turn == turn).map(RecordedExchange::of),
        );
        recorded.sort_by_key(|one| one.turn);
    }

    fn recorded(&self) -> &[RecordedExchange] {
        self.recorded.as_deref().unwrap_or_default()
    }

    /// The exchanges of a path.
    fn on(&self, path: &Turns) -> Vec<&RecordedExchange> {
        self.recorded().iter().filter(|one| path.contains(one.turn)).collect()
    }

    /// Whether a turn follows these, as far as they are recorded.
    pub(super) fn follows(&self, turn: u64, follows: &Turns) -> bool {
        let before = self.branches.before(turn);
        self.recorded()
            .iter()
            .filter(|one| one.turn != turn)
            .all(|one| before.contains(one.turn) == follows.contains(one.turn))
    }

    /// How well a sent exchange fits a recorded one of a conversation that the client named.
    fn fit(&self, history: &History<'_>, at: usize, recorded: &RecordedExchange) -> Fit {
        let (Some(sent), Some((asked, replied))) =
            (history.exchanges.get(at), history.hashes.get(at))
        else {
            return Fit::No;
        };
        match (*asked == recorded.asked, *replied == recorded.replied) {
            (true, true) => Fit::Whole,
            (true, false) => Fit::Partly,
            (false, true) => {
                // Front ends put documents around a question when they ask it, and later send the
                // question alone.
                let own = self.recent.iter().find(|exchange| exchange.turn == recorded.turn);
                let is_within = match own {
                    Some(own) => !sent.asked.is_empty() && own.asked.contains(&sent.asked),
                    None => sent.replied.len() >= TELLING_REPLY_BYTES,
                };
                if is_within { Fit::Partly } else { Fit::No }
            }
            (false, false) => Fit::No,
        }
    }

    /// What a request with a history is about: the branch that fits it best.
    fn shown_by(&self, history: &History<'_>) -> Shown {
        let head = self.branches.head(self.last());
        let mut best: Option<(usize, Turns, Turns, bool)> = None;
        for end in std::iter::once(head).chain(self.branches.heads(self.last())).take(MAX_BRANCHES)
        {
            let path = self.on(&self.branches.before(end).with(end));
            let aligned = branch::align(history.exchanges.len(), path.len(), |sent, at| {
                self.fit(history, sent, path[at])
            });
            if best.as_ref().is_some_and(|(score, ..)| aligned.score <= *score) {
                continue;
            }
            let turn = |at: usize| path[at].turn;
            let shown: Turns = aligned.shown().into_iter().map(turn).collect();
            let sent: Turns = aligned.pairs.iter().map(|(_, at)| turn(*at)).collect();
            let is_recorded = aligned.pairs.len() == history.exchanges.len();
            best = Some((aligned.score, shown, sent, is_recorded));
            if is_recorded && aligned.pairs.len() == path.len() {
                break;
            }
        }
        let (_, path, sent, is_recorded) = best.unwrap_or_default();
        Shown { follows: Some(path.clone()), path, sent, is_recorded }
    }

    /// What a request is about.
    pub(super) fn shown(&self, history: &History<'_>, new: &New, client: ClientHistory) -> Shown {
        if !history.is_empty() {
            return self.shown_by(history);
        }
        let at = |follows: Option<Turns>| Shown {
            path: follows.clone().unwrap_or_else(|| self.active()),
            follows,
            sent: Turns::default(),
            is_recorded: true,
        };
        // A tool was called: the request goes on with the turn that called it.
        if let Some(exchange) = super::asked_again(new, &self.recent) {
            return at(Some(self.branches.before(exchange.turn)));
        }
        let active = self.active();
        let sends_whole = match client {
            ClientHistory::Whole => true,
            ClientHistory::Newest => false,
            ClientHistory::Unknown => self
                .recent
                .iter()
                .rev()
                .find(|exchange| active.contains(exchange.turn))
                .is_some_and(|last| last.before > 0),
        };
        let starts_anew = hear::is_background_task(&new.asked) || (sends_whole && self.last() > 0);
        at(starts_anew.then(Turns::default))
    }
}

/// How well a conversation fits a history: the higher, the better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Continuation {
    /// How many of its turns stand in the history.
    turns: usize,
    /// Whether these are all of a branch.
    is_end: bool,
    /// How many replies are the same word for word.
    same_replies: usize,
    /// Whether no other request is under way in it.
    is_idle: bool,
}

/// The longest beginning of a branch that stands in the history, at the same places.
fn continuation(state: &State, history: &History<'_>, room: &Room) -> Option<Continuation> {
    let places: HashMap<usize, &(Hash, Hash)> =
        history.exchanges.iter().map(|one| one.before).zip(&history.hashes).collect();
    let of = |end: u64| {
        let path = state.on(&state.branches.before(end).with(end));
        let fits = |one: &&&RecordedExchange| {
            places.get(&one.before).is_some_and(|(asked, _)| *asked == one.asked)
        };
        let turns = path.iter().take_while(fits).count();
        let is_same = |one: &&&RecordedExchange| {
            places.get(&one.before).is_some_and(|(_, replied)| *replied == one.replied)
        };
        let same_replies = path.iter().take(turns).filter(is_same).count();
        Continuation {
            turns,
            is_end: turns == path.len(),
            same_replies,
            is_idle: room.under_way().is_empty(),
        }
    };
    let ends = state
        .branches
        .heads(state.last())
        .into_iter()
        .filter(|end| !state.branches.is_background(*end));
    ends.take(MAX_BRANCHES).map(of).filter(|found| found.turns > 0).max()
}

impl Memory {
    /// Marks the messages of turns that their conversations go on without: edited, deleted, or
    /// asked by a front end.
    pub(crate) async fn mark_withdrawn(&self, records: &mut [Record]) -> Result<()> {
        let mut known = HashMap::new();
        for record in records {
            record.withdrawn =
                self.is_withdrawn(&record.conversation, record.turn(), &mut known).await?;
        }
        Ok(())
    }

    /// Marks search hits in withdrawn turns. A passage has no turn; the id of its record begins
    /// with it.
    pub(crate) async fn mark_withdrawn_hits(&self, hits: &mut [Hit]) -> Result<()> {
        let mut known = HashMap::new();
        for hit in hits.iter_mut().filter(|hit| hit.placed.passage.kind == PassageKind::Message) {
            let turn = hit
                .placed
                .passage
                .id
                .strip_prefix("turn-")
                .and_then(|rest| rest.split('-').next()?.parse().ok());
            let conversation = hit.placed.passage.conversation.as_deref().unwrap_or_default();
            hit.withdrawn = self.is_withdrawn(conversation, turn, &mut known).await?;
        }
        Ok(())
    }

    async fn is_withdrawn(
        &self,
        conversation: &str,
        turn: Option<u64>,
        known: &mut HashMap<String, Option<Turns>>,
    ) -> Result<bool> {
        let Some(turn) = turn else { return Ok(false) };
        if !known.contains_key(conversation) {
            known.insert(conversation.to_owned(), self.active_turns(conversation).await?);
        }
        Ok(known
            .get(conversation)
            .and_then(Option::as_ref)
            .is_some_and(|turns| !turns.contains(turn)))
    }

    /// The turns of a conversation as it stands; `None` if it has no branches.
    async fn active_turns(&self, conversation: &str) -> Result<Option<Turns>> {
        let file = super::folder::path(&Folder::of(conversation).branches())?;
        let branches = Branches::read(&self.store.document(&file).await?.unwrap_or_default());
        if branches.is_empty() {
            return Ok(None);
        }
        let recent = self.store.last_said(conversation, RECENT_MESSAGES).await?;
        Ok(recent.iter().filter_map(Record::turn).max().map(|last| branches.active(last)))
    }
}

impl Chats {
    /// Reads which turns follow which, if that has changed.
    pub(super) async fn read_branches(&self, conversation: &str, state: &mut State) -> Result<()> {
        if let Some(lines) = self
            .read_if_grown(&self.folder(conversation).branches(), &mut state.branch_bytes)
            .await?
        {
            state.branches = Branches::read(&lines);
        }
        Ok(())
    }

    /// Reads what a history is compared with, if that was not done yet.
    pub(super) async fn read_recorded(&self, conversation: &str, state: &mut State) -> Result<()> {
        if state.recorded.is_none() {
            let all = exchanges(&self.memory.store.last_said(conversation, usize::MAX).await?);
            state.recorded = Some(all.iter().map(RecordedExchange::of).collect());
        }
        Ok(())
    }

    /// The conversation that a request without an id continues; a new one if there is none, or if
    /// it cannot be told which of several is meant.
    pub(super) async fn by_history(
        &self,
        sent: &[Sent<'_>],
        told: &[SentExchange],
        new: &New,
        key: Option<&str>,
    ) -> Result<String> {
        let called = if told.is_empty() && new.goes_on { hear::first_call(sent) } else { None };
        let first = called.as_ref().map_or(told, std::slice::from_ref);
        let history = History::of(told);
        let mut best: Option<(Continuation, String, bool)> = None;
        for many in (1..=first.len().min(OPENING_EXCHANGES)).rev() {
            for name in self.opened_by(&hear::opening(&first[..many], key)).await? {
                let room = self.room(&name);
                let mut state = room.state.lock().await;
                let state = self.fresh(&name, &mut state).await?;
                if called.is_some() {
                    if super::asked_again(new, &state.recent).is_some() {
                        return Ok(name);
                    }
                    continue;
                }
                self.read_recorded(&name, state).await?;
                let Some(found) = continuation(state, &history, &room) else { continue };
                match &mut best {
                    Some((known, ..)) if found < *known => {}
                    Some((known, _, is_tie)) if found == *known => *is_tie = true,
                    _ => best = Some((found, name, false)),
                }
            }
            if best.is_some() {
                break;
            }
        }
        match best {
            // Conversations that stand exactly where the client does are the same so far; any of
            // them will do.
            Some((found, name, is_tie)) if found.is_end || !is_tie => Ok(name),
            _ => {
                let first = told.first().map_or(new.asked.as_str(), |one| one.asked.as_str());
                Ok(format!("chat-{}-{}", hear::said_hash(first).short(), self.unique()))
            }
        }
    }

    /// The line that says what a turn follows, if it does not simply follow the one before it.
    pub(super) fn branch_line(
        &self,
        state: &State,
        turn: u64,
        follows: Option<&Turns>,
        asked: &str,
    ) -> Option<String> {
        let background = hear::is_background_task(asked);
        let follows = match follows {
            Some(follows) if background || !state.follows(turn, follows) => follows.clone(),
            Some(_) => return None,
            None => {
                let active = state.branches.active(turn.saturating_sub(1));
                if active == state.branches.before(turn) {
                    return None;
                }
                active
            }
        };
        (!(background && state.branches.is_background(turn)))
            .then(|| Branches::line(turn, &follows, background, self.memory.now()))
    }

    /// Whether and by what a conversation without an id is to be found from now on.
    pub(super) fn opening_of(
        &self,
        told: &[SentExchange],
        new: &New,
        replied: &str,
        is_first: bool,
        key: Option<&str>,
    ) -> Option<String> {
        let own = SentExchange {
            before: new.before,
            asked: new.asked.clone(),
            replied: self.memory.gate_text(replied),
        };
        let first: Vec<SentExchange> =
            told.iter().cloned().chain([own]).take(OPENING_EXCHANGES).collect();
        (is_first || told.len() < OPENING_EXCHANGES).then(|| hear::opening(&first, key))
    }
}
