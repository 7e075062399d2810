//! Finds the conversation that a request continues, and the turn that it follows.
//!
//! - An id from the client names the conversation. Without one the history decides: a request
//!   continues the conversation with the most turns that all occur in the sent history, at the same
//!   positions.
//! - Memory adds only turns that the client's own history shows. So two chats with the same
//!   beginning never see each other, and a turn that was edited away does not come back.

use std::collections::{HashMap, HashSet};

use icecore_domain::converse::branch::{self, Branches, ExchangeMatch, TurnSet};
use icecore_domain::converse::conversation_facts::{self, ConversationFact};
use icecore_domain::converse::turn_detection::{self, ClientMessage, NewTurn, SentExchange};
use icecore_domain::hash::Hash;
use icecore_domain::rank::passage::PassageKind;
use icecore_domain::record::Record;
use jiff::civil::Date;

use super::folder::ConversationFolder;
use super::{Chats, ConversationState, Exchange, OpenConversation, exchanges_of, last_turn};
use crate::search::SearchHit;
use crate::{Memory, Result};

/// The exchanges by which a conversation is looked up.
const OPENING_EXCHANGES: usize = 2;
/// The most conversations with the same beginning that are compared, newest first.
pub(super) const MAX_CANDIDATES: usize = 32;
/// The most branches of a conversation that are compared, newest first.
const MAX_BRANCHES: usize = 64;
/// The last messages in which the last turn of a conversation is searched.
const MAX_RECENT_MESSAGES: usize = 16;
/// A reply of this length is not equal by chance.
const MIN_DISTINCT_REPLY_BYTES: usize = 40;

/// What a client is known to send with every request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ClientHistory {
    /// The whole history or only the newest messages; its earlier requests show which.
    #[default]
    Unknown,
    Whole,
    /// Only the newest messages.
    Newest,
}

/// A recorded exchange in the form that is compared with histories.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RecordedExchange {
    turn: u64,
    before: usize,
    day: Date,
    asked: Hash,
    replied: Hash,
}

impl RecordedExchange {
    pub(super) fn from_exchange(exchange: &Exchange) -> Self {
        Self {
            turn: exchange.turn,
            before: exchange.before,
            day: exchange.ts.day(),
            asked: turn_detection::message_hash(&exchange.asked),
            replied: turn_detection::message_hash(&exchange.replied),
        }
    }
}

/// The turns that a request refers to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RequestPath {
    /// The turns that memory may come from.
    pub(super) path: TurnSet,
    /// The turns before the new one, if the client's history shows them; otherwise it follows the
    /// head.
    pub(super) follows: Option<TurnSet>,
    /// The recorded turns in the history that the client sent.
    pub(super) sent: TurnSet,
    /// Whether every exchange of that history is recorded.
    pub(super) is_recorded: bool,
}

/// A sent history with the hashes for comparison.
pub(super) struct SentHistory<'a> {
    exchanges: &'a [SentExchange],
    hashes: Vec<(Hash, Hash)>,
}

impl<'a> SentHistory<'a> {
    pub(super) fn new(exchanges: &'a [SentExchange]) -> Self {
        let hashes = exchanges
            .iter()
            .map(|one| {
                (
                    turn_detection::message_hash(&one.asked),
                    turn_detection::message_hash(&one.replied),
                )
            })
            .collect();
        Self { exchanges, hashes }
    }

    fn is_empty(&self) -> bool {
        self.exchanges.is_empty()
    }
}

impl ConversationState {
    /// The last recorded turn.
    pub(super) fn last_turn(&self) -> u64 {
        self.recent.last().map_or(0, |last| last.turn).max(last_turn(&self.log))
    }

    /// The turns of the active branch.
    pub(super) fn active_turns(&self) -> TurnSet {
        self.branches.active(self.last_turn())
    }

    /// The facts of these turns.
    pub(super) fn facts_of(&self, conversation: &str, path: &TurnSet) -> Vec<ConversationFact> {
        if self.branches.is_empty() && *path == TurnSet::up_to(self.last_turn()) {
            return self.facts.clone();
        }
        conversation_facts::facts_on_path(&self.ledger, conversation, path)
    }

    /// The days with messages that are not in these turns.
    pub(super) fn days_outside(&self, path: &TurnSet) -> HashSet<Date> {
        let outside = self.recorded.iter().flatten().filter(|one| !path.contains(one.turn));
        outside.map(|one| one.day).collect()
    }

    /// Whether an exchange follows these turns; `None` means the head.
    pub(super) fn is_at_position(&self, exchange: &Exchange, follows: Option<&TurnSet>) -> bool {
        follows.is_none_or(|follows| self.is_following(exchange.turn, follows))
    }

    /// Adds the exchanges of a turn that was just recorded.
    pub(super) fn add_recorded_turn(&mut self, turn: u64) {
        let Some(recorded) = &mut self.recorded else { return };
        recorded.retain(|one| one.turn != turn);
        recorded.extend(
            self.recent
                .iter()
                .filter(|exchange| exchange.turn == turn)
                .map(RecordedExchange::from_exchange),
        );
        recorded.sort_by_key(|one| one.turn);
    }

    fn recorded_exchanges(&self) -> &[RecordedExchange] {
        self.recorded.as_deref().unwrap_or_default()
    }

    /// The exchanges of a path.
    fn exchanges_on(&self, path: &TurnSet) -> Vec<&RecordedExchange> {
        self.recorded_exchanges().iter().filter(|one| path.contains(one.turn)).collect()
    }

    /// Whether a turn follows these, as far as they are recorded.
    pub(super) fn is_following(&self, turn: u64, follows: &TurnSet) -> bool {
        let before = self.branches.turns_before(turn);
        self.recorded_exchanges()
            .iter()
            .filter(|one| one.turn != turn)
            .all(|one| before.contains(one.turn) == follows.contains(one.turn))
    }

    /// Compares a sent exchange with a recorded one of a conversation that the client named.
    fn fit_exchange(
        &self,
        history: &SentHistory<'_>,
        at: usize,
        recorded: &RecordedExchange,
    ) -> ExchangeMatch {
        let (Some(sent), Some((asked, replied))) =
            (history.exchanges.get(at), history.hashes.get(at))
        else {
            return ExchangeMatch::No;
        };
        match (*asked == recorded.asked, *replied == recorded.replied) {
            (true, true) => ExchangeMatch::Whole,
            (true, false) => ExchangeMatch::Partly,
            (false, true) => {
                // Front ends add documents to a question when they ask it, and later send the
                // question alone.
                let own = self.recent.iter().find(|exchange| exchange.turn == recorded.turn);
                let is_within = match own {
                    Some(own) => !sent.asked.is_empty() && own.asked.contains(&sent.asked),
                    None => sent.replied.len() >= MIN_DISTINCT_REPLY_BYTES,
                };
                if is_within { ExchangeMatch::Partly } else { ExchangeMatch::No }
            }
            (false, false) => ExchangeMatch::No,
        }
    }

    /// The branch that fits a sent history best.
    fn match_branch(&self, history: &SentHistory<'_>) -> RequestPath {
        let head = self.branches.head(self.last_turn());
        let mut best: Option<(usize, TurnSet, TurnSet, bool)> = None;
        for end in
            std::iter::once(head).chain(self.branches.heads(self.last_turn())).take(MAX_BRANCHES)
        {
            let path = self.exchanges_on(&self.branches.turns_before(end).with(end));
            let aligned = branch::align_history(history.exchanges.len(), path.len(), |sent, at| {
                self.fit_exchange(history, sent, path[at])
            });
            if best.as_ref().is_some_and(|(score, ..)| aligned.score <= *score) {
                continue;
            }
            let turn = |at: usize| path[at].turn;
            let shown: TurnSet = aligned.shown_positions().into_iter().map(turn).collect();
            let sent: TurnSet = aligned.pairs.iter().map(|(_, at)| turn(*at)).collect();
            let is_recorded = aligned.pairs.len() == history.exchanges.len();
            best = Some((aligned.score, shown, sent, is_recorded));
            if is_recorded && aligned.pairs.len() == path.len() {
                break;
            }
        }
        let (_, path, sent, is_recorded) = best.unwrap_or_default();
        RequestPath { follows: Some(path.clone()), path, sent, is_recorded }
    }

    /// The turns that a request refers to.
    pub(super) fn match_request(
        &self,
        history: &SentHistory<'_>,
        new: &NewTurn,
        client: ClientHistory,
    ) -> RequestPath {
        if !history.is_empty() {
            return self.match_branch(history);
        }
        let at = |follows: Option<TurnSet>| RequestPath {
            path: follows.clone().unwrap_or_else(|| self.active_turns()),
            follows,
            sent: TurnSet::default(),
            is_recorded: true,
        };
        // After a tool call the request continues the turn of the call.
        if let Some(exchange) = super::repeated_exchange(new, &self.recent) {
            return at(Some(self.branches.turns_before(exchange.turn)));
        }
        let active = self.active_turns();
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
        let starts_anew =
            turn_detection::is_background_task(&new.asked) || (sends_whole && self.last_turn() > 0);
        at(starts_anew.then(TurnSet::default))
    }
}

/// How well a conversation fits a history; greater is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Continuation {
    /// The number of its turns in the history.
    turns: usize,
    /// Whether these are all turns of a branch.
    is_end: bool,
    /// The number of identical replies.
    same_replies: usize,
    /// Whether it has no other request under way.
    is_idle: bool,
}

/// The longest beginning of a branch that occurs in the history, at the same positions.
fn continuation(
    state: &ConversationState,
    history: &SentHistory<'_>,
    room: &OpenConversation,
) -> Option<Continuation> {
    let places: HashMap<usize, &(Hash, Hash)> =
        history.exchanges.iter().map(|one| one.before).zip(&history.hashes).collect();
    let of = |end: u64| {
        let path = state.exchanges_on(&state.branches.turns_before(end).with(end));
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
        .heads(state.last_turn())
        .into_iter()
        .filter(|end| !state.branches.is_background(*end));
    ends.take(MAX_BRANCHES).map(of).filter(|found| found.turns > 0).max()
}

impl Memory {
    /// Marks the messages of withdrawn turns: edited, deleted, or asked by a front end on its own.
    pub(crate) async fn mark_withdrawn(&self, records: &mut [Record]) -> Result<()> {
        let mut known = HashMap::new();
        for record in records {
            record.withdrawn =
                self.is_withdrawn(&record.conversation, record.turn(), &mut known).await?;
        }
        Ok(())
    }

    /// Marks search hits in withdrawn turns. A passage has no turn; its record's id begins with it.
    pub(crate) async fn mark_withdrawn_hits(&self, hits: &mut [SearchHit]) -> Result<()> {
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
        known: &mut HashMap<String, Option<TurnSet>>,
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

    /// The turns of the active branch; `None` if the conversation has no branches.
    async fn active_turns(&self, conversation: &str) -> Result<Option<TurnSet>> {
        let file = super::folder::doc_path(&ConversationFolder::of(conversation).branches())?;
        let branches = Branches::parse(&self.store.document(&file).await?.unwrap_or_default());
        if branches.is_empty() {
            return Ok(None);
        }
        let recent = self.store.recent_records(conversation, MAX_RECENT_MESSAGES).await?;
        Ok(recent.iter().filter_map(Record::turn).max().map(|last| branches.active(last)))
    }
}

impl Chats {
    /// Reads the order of the turns, if it has changed.
    pub(super) async fn read_branches(
        &self,
        conversation: &str,
        state: &mut ConversationState,
    ) -> Result<()> {
        if let Some(lines) = self
            .read_if_grown(&self.folder(conversation).branches(), &mut state.branch_bytes)
            .await?
        {
            state.branches = Branches::parse(&lines);
        }
        Ok(())
    }

    /// Reads the exchanges that histories are compared with, once.
    pub(super) async fn read_recorded_exchanges(
        &self,
        conversation: &str,
        state: &mut ConversationState,
    ) -> Result<()> {
        if state.recorded.is_none() {
            let all =
                exchanges_of(&self.memory.store.recent_records(conversation, usize::MAX).await?);
            state.recorded = Some(all.iter().map(RecordedExchange::from_exchange).collect());
        }
        Ok(())
    }

    /// The conversation that a request without an id continues; a new one if there is none, or if
    /// the choice is ambiguous.
    pub(super) async fn find_by_history(
        &self,
        sent: &[ClientMessage<'_>],
        told: &[SentExchange],
        new: &NewTurn,
        key: Option<&str>,
    ) -> Result<String> {
        let called = if told.is_empty() && new.has_tool_calls {
            turn_detection::first_tool_call(sent)
        } else {
            None
        };
        let first = called.as_ref().map_or(told, std::slice::from_ref);
        let history = SentHistory::new(told);
        let mut best: Option<(Continuation, String, bool)> = None;
        for many in (1..=first.len().min(OPENING_EXCHANGES)).rev() {
            for name in self
                .conversations_with_opening(&turn_detection::opening_fingerprint(
                    &first[..many],
                    key,
                ))
                .await?
            {
                let room = self.open_conversation(&name);
                let mut state = room.state.lock().await;
                let state = self.refresh_state(&name, &mut state).await?;
                if called.is_some() {
                    if super::repeated_exchange(new, &state.recent).is_some() {
                        return Ok(name);
                    }
                    continue;
                }
                self.read_recorded_exchanges(&name, state).await?;
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
            // Conversations that end exactly where the client is are equal so far, so any of them
            // is right.
            Some((found, name, is_tie)) if found.is_end || !is_tie => Ok(name),
            _ => {
                let first = told.first().map_or(new.asked.as_str(), |one| one.asked.as_str());
                Ok(format!(
                    "chat-{}-{}",
                    turn_detection::message_hash(first).short_hex(),
                    self.unique_id()
                ))
            }
        }
    }

    /// The line that records what a turn follows, if it is not simply the turn before.
    pub(super) fn branch_line(
        &self,
        state: &ConversationState,
        turn: u64,
        follows: Option<&TurnSet>,
        asked: &str,
    ) -> Option<String> {
        let background = turn_detection::is_background_task(asked);
        let follows = match follows {
            Some(follows) if background || !state.is_following(turn, follows) => follows.clone(),
            Some(_) => return None,
            None => {
                let active = state.branches.active(turn.saturating_sub(1));
                if active == state.branches.turns_before(turn) {
                    return None;
                }
                active
            }
        };
        (!(background && state.branches.is_background(turn)))
            .then(|| Branches::line(turn, &follows, background, self.memory.now()))
    }

    /// The beginning by which a conversation without an id will be found, if it should be.
    pub(super) fn new_opening(
        &self,
        told: &[SentExchange],
        new: &NewTurn,
        replied: &str,
        is_first: bool,
        key: Option<&str>,
    ) -> Option<String> {
        let own = SentExchange {
            before: new.before,
            asked: new.asked.clone(),
            replied: self.memory.filter_without_report(replied),
        };
        let first: Vec<SentExchange> =
            told.iter().cloned().chain([own]).take(OPENING_EXCHANGES).collect();
        (is_first || told.len() < OPENING_EXCHANGES)
            .then(|| turn_detection::opening_fingerprint(&first, key))
    }
}
