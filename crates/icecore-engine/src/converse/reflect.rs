//! Reflection (C4–C9): after a reply, the exchange is summarized: artifacts, a line of the turn
//! log, a change of the facts.
//!
//! - The exchange itself is stored before. A failure here loses nothing.
//! - If the model fails or its answer is invalid, the log gets a line with the raw text. The turn
//!   counts as unsummarized and is tried again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::PoisonError;
use std::time::Duration;

use icecore_domain::budget;
use icecore_domain::calendar::Days;
use icecore_domain::converse::artifact::{self, Index};
use icecore_domain::converse::branch::Turns;
use icecore_domain::converse::depth::{self, Depth, Sizes};
use icecore_domain::converse::document;
use icecore_domain::converse::hear;
use icecore_domain::converse::support;
use icecore_domain::converse::truth::{self, Diff, Fact, Whence};
use icecore_domain::converse::turn::{self, State, TurnLine, TurnLog, TurnSummary};
use icecore_domain::distil::{Piece, rules};
use icecore_domain::event::{Origin, Scope};
use icecore_domain::ledger::Ledger;
use icecore_domain::plain;
use icecore_domain::record::{Digest, Record};
use icecore_domain::summary::Cost;
use serde::Serialize;
use serde_json::json;

use super::folder::path;
use super::{Chats, Exchange, REACH_DAYS, RECENT_RECORDS, by_turn, exchanges, last_turn};
use crate::llm::{Ask, Schema, reply};
use crate::prompts::Exchanged;
use crate::rollup::{Asking, Question};
use crate::{Memory, Result};

/// The token limit of a summary with its changes.
const ANSWER_TOKENS: u32 = 1_200;
/// The token limit of consolidated facts.
const FACTS_TOKENS: u32 = 4_000;
/// The most bytes of a message that a model is shown.
const SHOWN_BYTES: usize = 24_000;
/// The most facts that the summarizer is shown.
const SHOWN_FACTS: usize = 200;
/// The least number of facts that is worth a consolidation.
const WORTH_CONSOLIDATING: usize = 8;
/// The least letters of a word.
const LEAST_LETTERS: usize = 2;
/// Up to this many conversations, records are read per conversation.
const FEW_UNSETTLED: usize = 8;
/// The most conversations that are remembered as settled.
const MOST_SETTLED: usize = 100_000;
/// The delay of the first retry; each further delay is twice as long.
const RETRY_MINUTES: i64 = 1;
const MOST_RETRY_MINUTES: i64 = 360;

/// The result of a reflection.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Reflected {
    /// The summarized turns.
    pub summarized: Vec<u64>,
    /// The turns with raw text in the log, and why.
    pub raw: Vec<(u64, String)>,
    /// The number of changed facts.
    pub changes: usize,
    /// Refused proposals, and other remarks.
    pub notes: Vec<String>,
    /// Whether the facts were consolidated.
    pub consolidated: bool,
    /// The number of stored artifact versions.
    pub artifacts: usize,
}

/// The state of a conversation in which nothing was pending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Settled {
    reach: Days,
    /// The digest of its records in these days.
    digest: Digest,
    /// With a model, turns with raw text are pending too.
    has_model: bool,
}

/// The result of a question to the summarizer.
enum Asked {
    Answered(TurnSummary, Cost),
    /// The raw text is used instead.
    Failed(String, Cost),
}

impl Chats {
    /// Summarizes every pending turn, oldest first. With `again`, also those whose retry is not due
    /// yet.
    pub async fn reflect(
        &self,
        conversation: &str,
        asking: Option<&Asking<'_>>,
        again: bool,
    ) -> Result<Reflected> {
        let room = self.room(conversation);
        let _alone = room.reflecting.lock().await;
        let newest = *room.waiting.borrow();
        let done =
            self.in_order(conversation, self.reflect_alone(conversation, asking, again)).await;
        // This turn is no longer waited for, whatever the result. A turn that ended meanwhile still
        // is.
        room.waiting
            .send_modify(|waiting| *waiting = if *waiting == newest { 0 } else { *waiting });
        done
    }

    /// Returns also whether something is left to be tried again.
    async fn reflect_alone(
        &self,
        conversation: &str,
        asking: Option<&Asking<'_>>,
        again: bool,
    ) -> Result<(Reflected, bool)> {
        let mut reflected = Reflected::default();
        let (reach, has_model) = (self.reach(REACH_DAYS), asking.is_some());
        // Taken before the read: if something arrives in between, the conversation is not settled.
        let digest = self.memory.store.said_in(conversation, reach).await?;
        let (log, mut said, branches) = {
            let room = self.room(conversation);
            let mut state = room.state.lock().await;
            let state = self.fresh(conversation, &mut state).await?;
            (state.log.clone(), by_turn(state.recent.clone()), state.branches.clone())
        };
        let last = said.last().map_or(0, |exchange| exchange.turn).max(last_turn(&log));
        let active = branches.active(last);
        let mut pending = turn::pending(&log, last);
        // If several exchanges were read, the oldest may be incomplete.
        let whole = said.get(usize::from(said.len() > 1)..).unwrap_or_default();
        let grown: BTreeSet<u64> = whole
            .iter()
            .filter(|exchange| has_grown(&log, exchange))
            .map(|exchange| exchange.turn)
            .collect();
        pending.extend(grown.iter().filter(|turn| !pending.contains(turn)).collect::<Vec<_>>());
        // Filter before any read: without a model every turn ever is pending.
        let is_due = |turn: &u64| {
            again
                || grown.contains(turn)
                || log.turns.get(turn).is_none_or(|line| self.is_time(line, asking.is_some()))
        };
        let waiting = pending.len();
        pending.retain(is_due);
        // Failed turns wait for their retry; without a model there is nothing to wait for.
        let mut is_settled = !has_model || pending.len() == waiting;
        if pending
            .first()
            .is_some_and(|first| said.first().is_none_or(|oldest| oldest.turn > *first))
        {
            said =
                by_turn(exchanges(&self.memory.store.last_said(conversation, usize::MAX).await?));
        }
        for turn in pending {
            let Some(exchange) = said.iter().find(|exchange| exchange.turn == turn) else {
                is_settled &= self.close_gap(conversation, turn, &log).await?;
                continue;
            };
            // A turn changes the facts of its own branch.
            let path = if active.contains(turn) {
                active.clone()
            } else {
                branches.before(turn).with(turn)
            };
            self.reflect_turn(
                conversation,
                exchange,
                &path,
                log.turns.get(&turn),
                asking,
                &mut reflected,
            )
            .await?;
        }
        self.consolidate_facts(conversation, last, asking, &mut reflected).await?;
        self.write_truth(conversation, last, &reflected).await?;
        let is_settled = is_settled && (!has_model || reflected.raw.is_empty());
        if is_settled {
            self.settle(conversation, Settled { reach, digest, has_model });
        }
        Ok((reflected, !is_settled))
    }

    /// Adds a log line for a turn number without records, so that nobody looks for it again. If the
    /// number belongs to another process, its exchange will have another reply than noted here, and
    /// counts as grown. False if the number must stay open for now.
    async fn close_gap(&self, conversation: &str, turn: u64, log: &TurnLog) -> Result<bool> {
        if log.turns.contains_key(&turn) || self.room(conversation).under_way().contains(&turn) {
            return Ok(false);
        }
        let mut line = TurnLine::nothing(turn, self.memory.now());
        line.extra.insert(REPLY.into(), hear::reply_hash("").into());
        self.extend(&self.folder(conversation).turns(), &line.line()).await?;
        Ok(true)
    }

    /// Whether a failed turn is due for a retry; the delay grows.
    fn is_time(&self, line: &TurnLine, has_model: bool) -> bool {
        // A line that was made without a model is made again as soon as there is one.
        if line.model.is_none() {
            return has_model;
        }
        let minutes = RETRY_MINUTES
            .saturating_mul(1 << tries(line).saturating_sub(1).min(10))
            .min(MOST_RETRY_MINUTES);
        self.memory.now().at().as_second() - line.ts.at().as_second() >= minutes * 60
    }

    /// Summarizes one turn; `before` is its log line of an earlier attempt.
    async fn reflect_turn(
        &self,
        conversation: &str,
        exchange: &Exchange,
        path: &Turns,
        before: Option<&TurnLine>,
        asking: Option<&Asking<'_>>,
        reflected: &mut Reflected,
    ) -> Result<()> {
        if hear::is_background_task(&exchange.asked) {
            let mut line = TurnLine::nothing(exchange.turn, self.memory.now());
            line.why = Some("a front end asked on its own behalf".into());
            line.extra.insert(REPLY.into(), hear::reply_hash(&exchange.replied).into());
            return self.extend(&self.folder(conversation).turns(), &line.line()).await;
        }
        let policy = &self.memory.policy.chat;
        reflected.artifacts += self.keep_artifacts(conversation, exchange).await?;
        let depth = depth::depth(
            &exchange.asked,
            &exchange.replied,
            &Sizes {
                short_words: policy.short_exchange_words,
                long_words: policy.long_exchange_words,
            },
        );
        let asked = match asking {
            Some(asking) => {
                let ledger =
                    Ledger::read(&self.read(&self.folder(conversation).events()).await?, None);
                let facts = truth::facts_of(&ledger, conversation, path);
                self.ask_summarizer(exchange, depth, &facts, before.map_or(0, tries), asking)
                    .await?
            }
            None => Asked::Answered(extracted(exchange), Cost::default()),
        };
        let now = self.memory.now();
        let (mut line, mut diff, cost) = match asked {
            Asked::Answered(summary, cost) if asking.is_some() => {
                let line = TurnLine::new(
                    exchange.turn,
                    now,
                    State::Summarized,
                    &summary.user_summary,
                    &summary.assistant_summary,
                );
                reflected.notes.extend(summary.notes);
                (line, if depth.diff { summary.diff } else { Diff::default() }, cost)
            }
            Asked::Answered(summary, cost) => (
                TurnLine::raw(
                    exchange.turn,
                    now,
                    &exchange.asked,
                    &exchange.replied,
                    "there is no summarizer",
                ),
                summary.diff,
                cost,
            ),
            Asked::Failed(why, cost) => (
                TurnLine::raw(exchange.turn, now, &exchange.asked, &exchange.replied, why),
                Diff::default(),
                cost,
            ),
        };
        line.depth = depth.word().into();
        line.long = depth.keep_raw_longer;
        line.model = asking.map(|asking| asking.llm.name());
        line.extra.insert(REPLY.into(), hear::reply_hash(&exchange.replied).into());
        // The cost of earlier attempts belongs to this turn too.
        line.tokens_in = cost.tokens_in + before.map_or(0, |line| line.tokens_in);
        line.tokens_out = cost.tokens_out + before.map_or(0, |line| line.tokens_out);
        // A message of another person makes no fact of the owner's; a binding rule must be in the
        // owner's own words.
        let texts = [exchange.own.as_str(), exchange.replied.as_str()];
        let is_anothers = |entry: &str| {
            exchange.own != exchange.asked
                && truth::is_hard(entry)
                && support::unsupported(entry, &texts[..1]).is_some()
        };
        let mut refused = Vec::new();
        for list in [&mut diff.add, &mut diff.update] {
            let why = |entry: &str| {
                is_anothers(entry)
                    .then(|| "another person said it".to_owned())
                    .or_else(|| support::unsupported(entry, &texts))
            };
            list.retain(|entry| match why(entry) {
                Some(why) => {
                    let told =
                        format!("\"{}\": {why}", budget::shortened(&plain::one_line(entry), 120));
                    if !refused.contains(&told) {
                        refused.push(told);
                    }
                    false
                }
                None => true,
            });
        }
        let whence = Whence {
            ts: exchange.ts,
            conversation: conversation.to_owned(),
            turn: exchange.turn,
            session: None,
            source: format!("turn-{}", exchange.turn),
        };
        let (mut notes, mut refused_removals) = (Vec::new(), Vec::new());
        // Most turns change nothing; then the ledger need not be read.
        let changes = if diff.is_empty() && diff.notes.is_empty() {
            0
        } else {
            self.append(conversation, |ledger| {
                let known = truth::facts_of(ledger, conversation, path);
                let mut applied = truth::apply(&known, &diff).as_of(&known, exchange.turn);
                refused_removals =
                    applied.refuse_removals(&known, &exchange.own, &exchange.replied);
                notes.clone_from(&applied.notes);
                truth::drafts(&applied, ledger, &whence)
            })
            .await?
        };
        reflected.changes += changes;
        refused.append(&mut refused_removals);
        line.refused.clone_from(&refused);
        reflected.notes.extend(refused.into_iter().chain(notes));
        if line.state == State::Raw {
            line.extra.insert(TRIES.into(), (before.map_or(0, tries) + 1).into());
            reflected.raw.push((exchange.turn, line.why.clone().unwrap_or_default()));
        } else {
            reflected.summarized.push(exchange.turn);
        }
        self.extend(&self.folder(conversation).turns(), &line.line()).await
    }

    /// Asks for a summary, and once more if the answer cannot be read; never longer than a few
    /// seconds.
    ///
    /// `tries` is the number of failed attempts. It makes this another question; otherwise the
    /// stored answer of the first attempt would be used again.
    async fn ask_summarizer(
        &self,
        exchange: &Exchange,
        depth: Depth,
        facts: &[Fact],
        tries: u64,
        asking: &Asking<'_>,
    ) -> Result<Asked> {
        let memory: &Memory = &self.memory;
        let first = facts.len().saturating_sub(SHOWN_FACTS);
        let known: Vec<String> =
            facts[first..].iter().map(|fact| plain::one_line(&fact.text)).collect();
        let (user, assistant) = (
            budget::shortened(&exchange.asked, SHOWN_BYTES),
            budget::shortened(&exchange.replied, SHOWN_BYTES),
        );
        let exchanged = Exchanged {
            turn: exchange.turn,
            user: &user,
            assistant: &assistant,
            facts: &known,
            wants_diff: depth.diff,
        };
        let patience = Duration::from_secs(memory.policy.chat.summarizer_timeout_secs);
        let mut cost = Cost::default();
        let mut complaints = String::new();
        for attempt in 0..2 {
            let (system, user) = self.prompts.fill_turn(&exchanged, attempt, &complaints)?;
            let ask = Ask {
                system,
                user,
                schema: Some(Schema { name: "turn", json: turn::answer_schema(depth.diff) }),
                max_tokens: ANSWER_TOKENS,
                attempt,
            };
            let question = Question {
                ask: &ask,
                job: "chat",
                retries: usize::try_from(tries).unwrap_or(usize::MAX),
            };
            let heard =
                match tokio::time::timeout(patience, memory.ask(question, asking, &mut cost)).await
                {
                    Err(_) => {
                        return Ok(Asked::Failed(
                            format!("the summarizer took longer than {} s", patience.as_secs()),
                            cost,
                        ));
                    }
                    Ok(heard) => heard?,
                };
            let heard = match heard {
                Ok(heard) => heard,
                Err(later) => return Ok(Asked::Failed(later.why, cost)),
            };
            complaints = match (&heard.nothing, reply::json_object(&heard.text)) {
                (Some(why), _) => why.clone(),
                (None, None) => "there is no JSON object in it".into(),
                (None, Some(read)) => match turn::read_answer(&read.value) {
                    Ok(summary) if !says_something(&summary) => {
                        "the summaries contain no words".into()
                    }
                    Ok(summary) => return Ok(Asked::Answered(summary, cost)),
                    Err(why) => why,
                },
            };
        }
        Ok(Asked::Failed(format!("the summarizer's answer could not be read: {complaints}"), cost))
    }

    /// Stores the code and drafts of an exchange, each version once.
    async fn keep_artifacts(&self, conversation: &str, exchange: &Exchange) -> Result<usize> {
        let found = artifact::find(&exchange.asked, &exchange.replied);
        if found.found.is_empty() {
            return Ok(0);
        }
        let folder = self.folder(conversation);
        let (index, _) = Index::read(&self.read(&folder.artifacts()).await?);
        let new = artifact::settle(&found.found, &index, exchange.turn, exchange.ts);
        for version in &new {
            // The text first: the index never names a missing file.
            self.memory
                .store
                .put(&path(&folder.artifact(&version.entry.file))?, version.text.as_bytes())
                .await?;
            // For a long document also its changes, for human readers.
            let before = version
                .entry
                .version
                .checked_sub(1)
                .and_then(|before| index.get(&version.entry.name, before));
            if let (Some(place), Some(before)) = (version.entry.diff_file(), before) {
                let old =
                    String::from_utf8_lossy(&self.read(&folder.artifact(&before.file)).await?)
                        .into_owned();
                let label = |number: u32| format!("{}@v{number}", version.entry.name);
                let text = document::diff(
                    &old,
                    &version.text,
                    &label(before.version),
                    &label(version.entry.version),
                );
                self.memory.store.put(&path(&folder.artifact(&place))?, text.as_bytes()).await?;
            }
        }
        let lines: String = new.iter().map(|version| version.entry.line()).collect();
        let mut many = 0;
        self.grow(&folder.artifacts(), |known| {
            // Another process may have stored the same turn meanwhile.
            let (known, _) = Index::read(known);
            let is_new = new
                .iter()
                .any(|version| known.get(&version.entry.name, version.entry.version).is_none());
            many = if is_new { new.len() } else { 0 };
            if is_new { lines.clone() } else { String::new() }
        })
        .await?;
        Ok(many)
    }

    /// Consolidates the facts, if it is due and the result is accepted.
    async fn consolidate_facts(
        &self,
        conversation: &str,
        last: u64,
        asking: Option<&Asking<'_>>,
        reflected: &mut Reflected,
    ) -> Result<()> {
        let every = self.memory.policy.chat.consolidate_every_turns;
        let Some(asking) = asking else { return Ok(()) };
        // Only when a turn of that number was just summarized.
        if !reflected.summarized.iter().any(|turn| turn % every == 0) {
            return Ok(());
        }
        let facts = self.facts_now(conversation, last).await?;
        if facts.len() < WORTH_CONSOLIDATING {
            return Ok(());
        }
        self.write_snapshot(conversation, last, &facts).await?;
        let texts: Vec<String> = facts.iter().map(|fact| plain::one_line(&fact.text)).collect();
        let mut complaints = String::new();
        let patience =
            Duration::from_secs(self.memory.policy.chat.summarizer_timeout_secs.saturating_mul(4));
        for attempt in 0..2 {
            let (system, user) = self.prompts.fill_facts(&texts, attempt, &complaints)?;
            let ask = Ask {
                system,
                user,
                schema: Some(Schema { name: "facts", json: facts_schema() }),
                max_tokens: FACTS_TOKENS,
                attempt,
            };
            let question = Question { ask: &ask, job: "chat-facts", retries: 0 };
            let heard = match tokio::time::timeout(
                patience,
                self.memory.ask(question, asking, &mut Cost::default()),
            )
            .await
            {
                Ok(Ok(Ok(heard))) => heard,
                Ok(Err(error)) => return Err(error),
                // Not urgent: it is tried again after as many turns.
                Ok(Ok(Err(_))) | Err(_) => return Ok(()),
            };
            let proposed: Option<Vec<String>> = reply::json_object(&heard.text).and_then(|read| {
                let list = read.value.get("facts")?.as_array()?;
                Some(list.iter().filter_map(|fact| fact.as_str().map(str::to_owned)).collect())
            });
            let Some(proposed) = proposed else {
                complaints = "there is no list of facts in it".into();
                continue;
            };
            match truth::consolidated(&facts, &proposed) {
                Ok(applied) => {
                    let branches = self.branches(conversation).await?;
                    let (active, head) = (branches.active(last), branches.head(last));
                    let (ts, source) = (self.memory.now(), format!("turn-{head}"));
                    let whence = Whence {
                        ts,
                        conversation: conversation.to_owned(),
                        turn: head,
                        session: None,
                        source,
                    };
                    let before: Vec<_> = facts.iter().map(|fact| fact.id).collect();
                    let merged: BTreeSet<u64> = facts.iter().filter_map(|fact| fact.turn).collect();
                    reflected.changes += self
                        .append(conversation, |ledger| {
                            // A fact that changed meanwhile is left alone.
                            let current = truth::facts_of(ledger, conversation, &active);
                            if !current.iter().map(|fact| fact.id).eq(before.iter().copied()) {
                                return Vec::new();
                            }
                            // If one of these turns is withdrawn later, the facts before the merge
                            // are valid again.
                            let drafts = truth::drafts(&applied, ledger, &whence).into_iter();
                            drafts.map(|draft| draft.with_field(truth::MERGED, &merged)).collect()
                        })
                        .await?;
                    reflected.consolidated = true;
                    return Ok(());
                }
                Err(reasons) => {
                    complaints = budget::shortened(&reasons.join("; "), 600);
                    reflected
                        .notes
                        .push(format!("the consolidation of facts was refused: {complaints}"));
                }
            }
        }
        Ok(())
    }

    async fn write_snapshot(&self, conversation: &str, turn: u64, facts: &[Fact]) -> Result<()> {
        let text = truth::snapshot(facts, turn, self.memory.now());
        Ok(self
            .memory
            .store
            .put(&path(&self.folder(conversation).snapshot(turn))?, text.as_bytes())
            .await?)
    }

    /// Writes the current facts as a file for people, and a permanent snapshot every few turns.
    async fn write_truth(
        &self,
        conversation: &str,
        last: u64,
        reflected: &Reflected,
    ) -> Result<()> {
        let every = self.memory.policy.chat.snapshot_every_turns;
        let is_due = reflected
            .summarized
            .iter()
            .chain(reflected.raw.iter().map(|(turn, _)| turn))
            .any(|turn| turn % every == 0);
        if reflected.changes == 0 && !is_due {
            return Ok(());
        }
        let facts = self.facts_now(conversation, last).await?;
        if reflected.changes > 0 {
            let text = truth::snapshot(&facts, last, self.memory.now());
            self.memory
                .store
                .put(&path(&self.folder(conversation).base_truth())?, text.as_bytes())
                .await?;
        }
        if is_due {
            self.write_snapshot(conversation, last, &facts).await?;
        }
        Ok(())
    }

    /// The conversations with pending turns in the last days. Without a model, turns with raw text
    /// do not count. Conversations that this process knows as settled are not read again.
    pub async fn unremembered(&self, days: u16, has_model: bool) -> Result<Vec<String>> {
        let reach = self.reach(days);
        let mut spoken: BTreeMap<String, (Digest, u64)> = BTreeMap::new();
        for stat in self.memory.store.sessions(Some(reach)).await? {
            let (digest, turn) = spoken.entry(stat.key.conversation).or_default();
            (*digest, *turn) = (digest.with(stat.digest), stat.turn.max(*turn));
        }
        spoken.retain(|name, (digest, turn)| {
            *turn > 0 && !self.is_settled(name, &Settled { reach, digest: *digest, has_model })
        });
        let mut last: BTreeMap<String, (u64, Vec<Record>)> = BTreeMap::new();
        let mut take = |record: Record| {
            let Some(turn) = record.turn() else { return };
            let (known, records) = last.entry(record.conversation.clone()).or_default();
            if turn > *known {
                *known = turn;
                records.clear();
            }
            if turn == *known {
                records.push(record);
            }
        };
        if spoken.len() <= FEW_UNSETTLED {
            for name in spoken.keys() {
                self.memory
                    .store
                    .last_said(name, RECENT_RECORDS)
                    .await?
                    .into_iter()
                    .for_each(&mut take);
            }
        } else {
            // Each day's records are read once, however many conversations there are; only the last
            // turn of each is retained.
            for day in reach.iter() {
                let records = self.memory.store.records(Days { first: day, last: day }).await?;
                records
                    .into_iter()
                    .filter(|record| spoken.contains_key(&record.conversation))
                    .for_each(&mut take);
            }
        }
        let mut found = Vec::new();
        for (name, (turn, records)) in last {
            let log = turn::read(&self.read(&self.folder(&name).turns()).await?);
            let waits = |turn: &u64| has_model || !log.turns.contains_key(turn);
            let grown = by_turn(exchanges(&records))
                .last()
                .is_some_and(|exchange| has_grown(&log, exchange));
            if grown || turn::pending(&log, turn.max(last_turn(&log))).iter().any(waits) {
                found.push(name);
            } else if let Some(&(digest, _)) = spoken.get(&name) {
                self.settle(&name, Settled { reach, digest, has_model });
            }
        }
        Ok(found)
    }

    /// The last days, today included.
    fn reach(&self, days: u16) -> Days {
        let today = self.memory.now().day();
        Days {
            first: today.checked_sub(jiff::Span::new().days(i32::from(days))).unwrap_or(today),
            last: today,
        }
    }

    fn is_settled(&self, conversation: &str, as_of: &Settled) -> bool {
        self.settled.lock().unwrap_or_else(PoisonError::into_inner).get(conversation) == Some(as_of)
    }

    fn settle(&self, conversation: &str, as_of: Settled) {
        let mut settled = self.settled.lock().unwrap_or_else(PoisonError::into_inner);
        if settled.len() >= MOST_SETTLED {
            // A forgotten entry costs one more lookup.
            settled.clear();
        }
        settled.insert(conversation.to_owned(), as_of);
    }
}

/// The log field with the number of failed attempts.
const TRIES: &str = "tries";

fn tries(line: &TurnLine) -> u64 {
    line.extra.get(TRIES).and_then(serde_json::Value::as_u64).unwrap_or(0)
}

/// Whether the summaries contain words: a model that only repeats marks and numbers has not read
/// the exchange.
fn says_something(summary: &TurnSummary) -> bool {
    let texts = [&summary.user_summary, &summary.assistant_summary];
    let words = texts
        .iter()
        .flat_map(|text| text.split_whitespace())
        .filter(|word| !word.contains(|c: char| c.is_ascii_digit()));
    words.flat_map(str::chars).filter(|c| c.is_alphabetic()).count() >= LEAST_LETTERS
}

/// The log field with the hash of the summarized reply.
const REPLY: &str = "reply";

/// Whether a turn has another reply than the summarized one: tools were used in it, or it was
/// repeated.
fn has_grown(log: &TurnLog, exchange: &Exchange) -> bool {
    let told = log.turns.get(&exchange.turn).and_then(|line| line.extra.get(REPLY)?.as_str());
    told.is_some_and(|told| told != hear::reply_hash(&exchange.replied))
}

/// The schema of consolidated facts.
fn facts_schema() -> serde_json::Value {
    let facts = json!({ "type": "array", "maxItems": 200, "items": { "type": "string", "maxLength": 400 } });
    json!({ "type": "object", "properties": { "facts": facts }, "required": ["facts"], "additionalProperties": false })
}

/// The facts without a model: rules and decisions that are marked in the user's own words.
fn extracted(exchange: &Exchange) -> TurnSummary {
    let piece = Piece {
        source: String::new(),
        text: &exchange.own,
        origin: Origin::User,
        speaker: None,
        said: exchange.ts,
        session: None,
        scope: Scope::Everywhere,
    };
    let add = rules::propose(&[piece]).into_iter().map(|proposal| proposal.content).collect();
    TurnSummary {
        user_summary: String::new(),
        assistant_summary: String::new(),
        diff: Diff { add, ..Diff::default() },
        notes: Vec::new(),
    }
}
