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
use icecore_domain::converse::artifact::{self, ArtifactIndex};
use icecore_domain::converse::branch::TurnSet;
use icecore_domain::converse::conversation_facts::{
    self, ChangeSource, ConversationFact, FactDiff,
};
use icecore_domain::converse::depth::{self, ExchangeSizes, SummaryDepth};
use icecore_domain::converse::document;
use icecore_domain::converse::grounding;
use icecore_domain::converse::turn_detection;
use icecore_domain::converse::turn_log::{self, TurnLine, TurnLog, TurnState, TurnSummary};
use icecore_domain::event::{Origin, Scope};
use icecore_domain::extraction::{SourcePassage, rules};
use icecore_domain::ledger::Ledger;
use icecore_domain::record::{Record, RecordSetDigest};
use icecore_domain::sanitize;
use icecore_domain::summary::SummaryCost;
use serde::Serialize;
use serde_json::json;

use super::folder::doc_path;
use super::{
    Chats, Exchange, MAX_RECENT_RECORDS, REFLECTION_DAYS, exchanges_of, last_turn, merge_by_turn,
};
use crate::llm::{AnswerSchema, ModelRequest, reply};
use crate::prompts::PromptExchange;
use crate::rollup::{ModelBudget, ModelQuestion};
use crate::{Memory, Result};

/// The token limit of a summary with its changes.
const MAX_ANSWER_TOKENS: u32 = 1_200;
/// The token limit of consolidated facts.
const MAX_FACTS_TOKENS: u32 = 4_000;
/// The most bytes of a message that a model is shown.
const MAX_SHOWN_BYTES: usize = 24_000;
/// The most facts that the summarizer is shown.
const MAX_SHOWN_FACTS: usize = 200;
/// The least number of facts that is worth a consolidation.
const MIN_CONSOLIDATED_FACTS: usize = 8;
/// The least letters of a word.
const MIN_WORD_LETTERS: usize = 2;
/// Up to this many conversations, records are read per conversation.
const MAX_SINGLE_LOOKUPS: usize = 8;
/// The most conversations that are remembered as settled.
const MAX_SETTLED_CONVERSATIONS: usize = 100_000;
/// The delay of the first retry; each further delay is twice as long.
const RETRY_MINUTES: i64 = 1;
const MAX_RETRY_MINUTES: i64 = 360;

/// The result of a reflection.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ReflectionReport {
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
pub(super) struct SettledState {
    reach: Days,
    /// The digest of its records in these days.
    digest: RecordSetDigest,
    /// With a model, turns with raw text are pending too.
    has_model: bool,
}

/// The result of a question to the summarizer.
enum SummarizerResult {
    Answered(TurnSummary, SummaryCost),
    /// The raw text is used instead.
    Failed(String, SummaryCost),
}

impl Chats {
    /// Summarizes every pending turn, oldest first. With `again`, also those whose retry is not due
    /// yet.
    pub async fn reflect(
        &self,
        conversation: &str,
        budget: Option<&ModelBudget<'_>>,
        again: bool,
    ) -> Result<ReflectionReport> {
        let room = self.open_conversation(conversation);
        let _alone = room.reflecting.lock().await;
        let newest = *room.waiting.borrow();
        let done = self
            .with_turn_lease(conversation, self.reflect_locked(conversation, budget, again))
            .await;
        // This turn is no longer waited for, whatever the result. A turn that ended meanwhile still
        // is.
        room.waiting
            .send_modify(|waiting| *waiting = if *waiting == newest { 0 } else { *waiting });
        done
    }

    /// Returns also whether something is left to be tried again.
    async fn reflect_locked(
        &self,
        conversation: &str,
        budget: Option<&ModelBudget<'_>>,
        again: bool,
    ) -> Result<(ReflectionReport, bool)> {
        let mut reflected = ReflectionReport::default();
        let (reach, has_model) = (self.recent_days(REFLECTION_DAYS), budget.is_some());
        // Taken before the read: if something arrives in between, the conversation is not settled.
        let digest = self.memory.store.conversation_digest(conversation, reach).await?;
        let (log, mut said, branches) = {
            let room = self.open_conversation(conversation);
            let mut state = room.state.lock().await;
            let state = self.refresh_state(conversation, &mut state).await?;
            (state.log.clone(), merge_by_turn(state.recent.clone()), state.branches.clone())
        };
        let last = said.last().map_or(0, |exchange| exchange.turn).max(last_turn(&log));
        let active = branches.active(last);
        let mut pending = turn_log::unsummarized_turns(&log, last);
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
                || log.turns.get(turn).is_none_or(|line| self.is_retry_due(line, budget.is_some()))
        };
        let waiting = pending.len();
        pending.retain(is_due);
        // Failed turns wait for their retry; without a model there is nothing to wait for.
        let mut is_settled = !has_model || pending.len() == waiting;
        if pending
            .first()
            .is_some_and(|first| said.first().is_none_or(|oldest| oldest.turn > *first))
        {
            said = merge_by_turn(exchanges_of(
                &self.memory.store.recent_records(conversation, usize::MAX).await?,
            ));
        }
        for turn in pending {
            let Some(exchange) = said.iter().find(|exchange| exchange.turn == turn) else {
                is_settled &= self.fill_number_gap(conversation, turn, &log).await?;
                continue;
            };
            // A turn changes the facts of its own branch.
            let path = if active.contains(turn) {
                active.clone()
            } else {
                branches.turns_before(turn).with(turn)
            };
            self.reflect_turn(
                conversation,
                exchange,
                &path,
                log.turns.get(&turn),
                budget,
                &mut reflected,
            )
            .await?;
        }
        self.consolidate_facts(conversation, last, budget, &mut reflected).await?;
        self.write_base_truth(conversation, last, &reflected).await?;
        let is_settled = is_settled && (!has_model || reflected.raw.is_empty());
        if is_settled {
            self.mark_settled(conversation, SettledState { reach, digest, has_model });
        }
        Ok((reflected, !is_settled))
    }

    /// Adds a log line for a turn number without records, so that nobody looks for it again. If the
    /// number belongs to another process, its exchange will have another reply than noted here, and
    /// counts as grown. False if the number must stay open for now.
    async fn fill_number_gap(&self, conversation: &str, turn: u64, log: &TurnLog) -> Result<bool> {
        if log.turns.contains_key(&turn)
            || self.open_conversation(conversation).under_way().contains(&turn)
        {
            return Ok(false);
        }
        let mut line = TurnLine::empty(turn, self.memory.now());
        line.extra.insert(REPLY_FIELD.into(), turn_detection::reply_hash("").into());
        self.append_lines(&self.folder(conversation).turns(), &line.to_line()).await?;
        Ok(true)
    }

    /// Whether a failed turn is due for a retry; the delay grows.
    fn is_retry_due(&self, line: &TurnLine, has_model: bool) -> bool {
        // A line that was made without a model is made again as soon as there is one.
        if line.model.is_none() {
            return has_model;
        }
        let minutes = RETRY_MINUTES
            .saturating_mul(1 << failed_tries(line).saturating_sub(1).min(10))
            .min(MAX_RETRY_MINUTES);
        self.memory.now().timestamp().as_second() - line.ts.timestamp().as_second() >= minutes * 60
    }

    /// Summarizes one turn; `before` is its log line of an earlier attempt.
    async fn reflect_turn(
        &self,
        conversation: &str,
        exchange: &Exchange,
        path: &TurnSet,
        before: Option<&TurnLine>,
        model_budget: Option<&ModelBudget<'_>>,
        reflected: &mut ReflectionReport,
    ) -> Result<()> {
        if turn_detection::is_background_task(&exchange.asked) {
            let mut line = TurnLine::empty(exchange.turn, self.memory.now());
            line.why = Some("a front end asked on its own behalf".into());
            line.extra
                .insert(REPLY_FIELD.into(), turn_detection::reply_hash(&exchange.replied).into());
            return self.append_lines(&self.folder(conversation).turns(), &line.to_line()).await;
        }
        let policy = &self.memory.policy.chat;
        reflected.artifacts += self.store_artifacts(conversation, exchange).await?;
        let depth = depth::summary_depth(
            &exchange.asked,
            &exchange.replied,
            &ExchangeSizes {
                short_words: policy.short_exchange_words,
                long_words: policy.long_exchange_words,
            },
        );
        let asked = match model_budget {
            Some(model_budget) => {
                let ledger = Ledger::parse(
                    &self.read_document(&self.folder(conversation).events()).await?,
                    None,
                );
                let facts = conversation_facts::facts_on_path(&ledger, conversation, path);
                self.ask_summarizer(
                    exchange,
                    depth,
                    &facts,
                    before.map_or(0, failed_tries),
                    model_budget,
                )
                .await?
            }
            None => SummarizerResult::Answered(extract_marked(exchange), SummaryCost::default()),
        };
        let now = self.memory.now();
        let (mut line, mut diff, cost) = match asked {
            SummarizerResult::Answered(summary, cost) if model_budget.is_some() => {
                let line = TurnLine::new(
                    exchange.turn,
                    now,
                    TurnState::Summarized,
                    &summary.user_summary,
                    &summary.assistant_summary,
                );
                reflected.notes.extend(summary.notes);
                (line, if depth.diff { summary.diff } else { FactDiff::default() }, cost)
            }
            SummarizerResult::Answered(summary, cost) => (
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
            SummarizerResult::Failed(why, cost) => (
                TurnLine::raw(exchange.turn, now, &exchange.asked, &exchange.replied, why),
                FactDiff::default(),
                cost,
            ),
        };
        line.depth = depth.as_str().into();
        line.long = depth.keep_raw_longer;
        line.model = model_budget.map(|model_budget| model_budget.llm.name());
        line.extra.insert(REPLY_FIELD.into(), turn_detection::reply_hash(&exchange.replied).into());
        // The cost of earlier attempts belongs to this turn too.
        line.tokens_in = cost.tokens_in + before.map_or(0, |line| line.tokens_in);
        line.tokens_out = cost.tokens_out + before.map_or(0, |line| line.tokens_out);
        // A message of another person makes no fact of the owner's; a binding rule must be in the
        // owner's own words.
        let texts = [exchange.own.as_str(), exchange.replied.as_str()];
        let is_anothers = |entry: &str| {
            exchange.own != exchange.asked
                && conversation_facts::is_hard(entry)
                && grounding::unsupported_entry(entry, &texts[..1]).is_some()
        };
        let mut refused = Vec::new();
        for list in [&mut diff.add, &mut diff.update] {
            let why = |entry: &str| {
                is_anothers(entry)
                    .then(|| "another person said it".to_owned())
                    .or_else(|| grounding::unsupported_entry(entry, &texts))
            };
            list.retain(|entry| match why(entry) {
                Some(why) => {
                    let told = format!(
                        "\"{}\": {why}",
                        budget::truncate_at_word(&sanitize::one_line(entry), 120)
                    );
                    if !refused.contains(&told) {
                        refused.push(told);
                    }
                    false
                }
                None => true,
            });
        }
        let whence = ChangeSource {
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
            self.append_events(conversation, |ledger| {
                let known = conversation_facts::facts_on_path(ledger, conversation, path);
                let mut applied =
                    conversation_facts::apply_diff(&known, &diff).as_of(&known, exchange.turn);
                refused_removals =
                    applied.refuse_removals(&known, &exchange.own, &exchange.replied);
                notes.clone_from(&applied.notes);
                conversation_facts::event_drafts(&applied, ledger, &whence)
            })
            .await?
        };
        reflected.changes += changes;
        refused.append(&mut refused_removals);
        line.refused.clone_from(&refused);
        reflected.notes.extend(refused.into_iter().chain(notes));
        if line.state == TurnState::Raw {
            line.extra.insert(TRIES_FIELD.into(), (before.map_or(0, failed_tries) + 1).into());
            reflected.raw.push((exchange.turn, line.why.clone().unwrap_or_default()));
        } else {
            reflected.summarized.push(exchange.turn);
        }
        self.append_lines(&self.folder(conversation).turns(), &line.to_line()).await
    }

    /// Asks for a summary, and once more if the answer cannot be read; never longer than a few
    /// seconds.
    ///
    /// `tries` is the number of failed attempts. It makes this another question; otherwise the
    /// stored answer of the first attempt would be used again.
    async fn ask_summarizer(
        &self,
        exchange: &Exchange,
        depth: SummaryDepth,
        facts: &[ConversationFact],
        tries: u64,
        model_budget: &ModelBudget<'_>,
    ) -> Result<SummarizerResult> {
        let memory: &Memory = &self.memory;
        let first = facts.len().saturating_sub(MAX_SHOWN_FACTS);
        let known: Vec<String> =
            facts[first..].iter().map(|fact| sanitize::one_line(&fact.text)).collect();
        let (user, assistant) = (
            budget::truncate_at_word(&exchange.asked, MAX_SHOWN_BYTES),
            budget::truncate_at_word(&exchange.replied, MAX_SHOWN_BYTES),
        );
        let exchanged = PromptExchange {
            turn: exchange.turn,
            user: &user,
            assistant: &assistant,
            facts: &known,
            wants_diff: depth.diff,
        };
        let patience = Duration::from_secs(memory.policy.chat.summarizer_timeout_secs);
        let mut cost = SummaryCost::default();
        let mut complaints = String::new();
        for attempt in 0..2 {
            let (system, user) = self.prompts.fill_turn(&exchanged, attempt, &complaints)?;
            let ask = ModelRequest {
                system,
                user,
                schema: Some(AnswerSchema {
                    name: "turn",
                    json: turn_log::answer_schema(depth.diff),
                }),
                max_tokens: MAX_ANSWER_TOKENS,
                attempt,
            };
            let question = ModelQuestion {
                ask: &ask,
                job: "chat",
                retries: usize::try_from(tries).unwrap_or(usize::MAX),
            };
            let heard = match tokio::time::timeout(
                patience,
                memory.ask_model(question, model_budget, &mut cost),
            )
            .await
            {
                Err(_) => {
                    return Ok(SummarizerResult::Failed(
                        format!("the summarizer took longer than {} s", patience.as_secs()),
                        cost,
                    ));
                }
                Ok(heard) => heard?,
            };
            let heard = match heard {
                Ok(heard) => heard,
                Err(later) => return Ok(SummarizerResult::Failed(later.why, cost)),
            };
            complaints = match (&heard.nothing, reply::json_object(&heard.text)) {
                (Some(why), _) => why.clone(),
                (None, None) => "there is no JSON object in it".into(),
                (None, Some(read)) => match turn_log::parse_answer(&read.value) {
                    Ok(summary) if !has_words(&summary) => "the summaries contain no words".into(),
                    Ok(summary) => return Ok(SummarizerResult::Answered(summary, cost)),
                    Err(why) => why,
                },
            };
        }
        Ok(SummarizerResult::Failed(
            format!("the summarizer's answer could not be read: {complaints}"),
            cost,
        ))
    }

    /// Stores the code and drafts of an exchange, each version once.
    async fn store_artifacts(&self, conversation: &str, exchange: &Exchange) -> Result<usize> {
        let found = artifact::find_artifacts(&exchange.asked, &exchange.replied);
        if found.candidates.is_empty() {
            return Ok(0);
        }
        let folder = self.folder(conversation);
        let (index, _) = ArtifactIndex::parse(&self.read_document(&folder.artifacts()).await?);
        let new = artifact::assign_versions(&found.candidates, &index, exchange.turn, exchange.ts);
        for version in &new {
            // The text first: the index never names a missing file.
            self.memory
                .store
                .put(&doc_path(&folder.artifact(&version.entry.file))?, version.text.as_bytes())
                .await?;
            // For a long document also its changes, for human readers.
            let before = version
                .entry
                .version
                .checked_sub(1)
                .and_then(|before| index.get(&version.entry.name, before));
            if let (Some(place), Some(before)) = (version.entry.diff_file(), before) {
                let old = String::from_utf8_lossy(
                    &self.read_document(&folder.artifact(&before.file)).await?,
                )
                .into_owned();
                let label = |number: u32| format!("{}@v{number}", version.entry.name);
                let text = document::diff(
                    &old,
                    &version.text,
                    &label(before.version),
                    &label(version.entry.version),
                );
                self.memory
                    .store
                    .put(&doc_path(&folder.artifact(&place))?, text.as_bytes())
                    .await?;
            }
        }
        let lines: String = new.iter().map(|version| version.entry.to_line()).collect();
        let mut many = 0;
        self.append_lines_with(&folder.artifacts(), |known| {
            // Another process may have stored the same turn meanwhile.
            let (known, _) = ArtifactIndex::parse(known);
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
        model_budget: Option<&ModelBudget<'_>>,
        reflected: &mut ReflectionReport,
    ) -> Result<()> {
        let every = self.memory.policy.chat.consolidate_every_turns;
        let Some(model_budget) = model_budget else { return Ok(()) };
        // Only when a turn of that number was just summarized.
        if !reflected.summarized.iter().any(|turn| turn % every == 0) {
            return Ok(());
        }
        let facts = self.current_facts(conversation, last).await?;
        if facts.len() < MIN_CONSOLIDATED_FACTS {
            return Ok(());
        }
        self.write_snapshot(conversation, last, &facts).await?;
        let texts: Vec<String> = facts.iter().map(|fact| sanitize::one_line(&fact.text)).collect();
        let mut complaints = String::new();
        let patience =
            Duration::from_secs(self.memory.policy.chat.summarizer_timeout_secs.saturating_mul(4));
        for attempt in 0..2 {
            let (system, user) = self.prompts.fill_facts(&texts, attempt, &complaints)?;
            let ask = ModelRequest {
                system,
                user,
                schema: Some(AnswerSchema { name: "facts", json: facts_schema() }),
                max_tokens: MAX_FACTS_TOKENS,
                attempt,
            };
            let question = ModelQuestion { ask: &ask, job: "chat-facts", retries: 0 };
            let heard = match tokio::time::timeout(
                patience,
                self.memory.ask_model(question, model_budget, &mut SummaryCost::default()),
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
            match conversation_facts::check_consolidation(&facts, &proposed) {
                Ok(applied) => {
                    let branches = self.branches(conversation).await?;
                    let (active, head) = (branches.active(last), branches.head(last));
                    let (ts, source) = (self.memory.now(), format!("turn-{head}"));
                    let whence = ChangeSource {
                        ts,
                        conversation: conversation.to_owned(),
                        turn: head,
                        session: None,
                        source,
                    };
                    let before: Vec<_> = facts.iter().map(|fact| fact.id).collect();
                    let merged: BTreeSet<u64> = facts.iter().filter_map(|fact| fact.turn).collect();
                    reflected.changes += self
                        .append_events(conversation, |ledger| {
                            // A fact that changed meanwhile is left alone.
                            let current =
                                conversation_facts::facts_on_path(ledger, conversation, &active);
                            if !current.iter().map(|fact| fact.id).eq(before.iter().copied()) {
                                return Vec::new();
                            }
                            // If one of these turns is withdrawn later, the facts before the merge
                            // are valid again.
                            let drafts =
                                conversation_facts::event_drafts(&applied, ledger, &whence)
                                    .into_iter();
                            drafts
                                .map(|draft| {
                                    draft.with_extra_field(
                                        conversation_facts::MERGED_TURNS_FIELD,
                                        &merged,
                                    )
                                })
                                .collect()
                        })
                        .await?;
                    reflected.consolidated = true;
                    return Ok(());
                }
                Err(reasons) => {
                    complaints = budget::truncate_at_word(&reasons.join("; "), 600);
                    reflected
                        .notes
                        .push(format!("the consolidation of facts was refused: {complaints}"));
                }
            }
        }
        Ok(())
    }

    async fn write_snapshot(
        &self,
        conversation: &str,
        turn: u64,
        facts: &[ConversationFact],
    ) -> Result<()> {
        let text = conversation_facts::snapshot(facts, turn, self.memory.now());
        Ok(self
            .memory
            .store
            .put(&doc_path(&self.folder(conversation).snapshot(turn))?, text.as_bytes())
            .await?)
    }

    /// Writes the current facts as a file for people, and a permanent snapshot every few turns.
    async fn write_base_truth(
        &self,
        conversation: &str,
        last: u64,
        reflected: &ReflectionReport,
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
        let facts = self.current_facts(conversation, last).await?;
        if reflected.changes > 0 {
            let text = conversation_facts::snapshot(&facts, last, self.memory.now());
            self.memory
                .store
                .put(&doc_path(&self.folder(conversation).base_truth())?, text.as_bytes())
                .await?;
        }
        if is_due {
            self.write_snapshot(conversation, last, &facts).await?;
        }
        Ok(())
    }

    /// The conversations with pending turns in the last days. Without a model, turns with raw text
    /// do not count. Conversations that this process knows as settled are not read again.
    pub async fn pending_conversations(&self, days: u16, has_model: bool) -> Result<Vec<String>> {
        let reach = self.recent_days(days);
        let mut spoken: BTreeMap<String, (RecordSetDigest, u64)> = BTreeMap::new();
        for stat in self.memory.store.sessions(Some(reach)).await? {
            let (digest, turn) = spoken.entry(stat.key.conversation).or_default();
            (*digest, *turn) = (digest.combine(stat.digest), stat.turn.max(*turn));
        }
        spoken.retain(|name, (digest, turn)| {
            *turn > 0 && !self.is_settled(name, &SettledState { reach, digest: *digest, has_model })
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
        if spoken.len() <= MAX_SINGLE_LOOKUPS {
            for name in spoken.keys() {
                self.memory
                    .store
                    .recent_records(name, MAX_RECENT_RECORDS)
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
            let log =
                turn_log::parse_turn_log(&self.read_document(&self.folder(&name).turns()).await?);
            let waits = |turn: &u64| has_model || !log.turns.contains_key(turn);
            let grown = merge_by_turn(exchanges_of(&records))
                .last()
                .is_some_and(|exchange| has_grown(&log, exchange));
            if grown
                || turn_log::unsummarized_turns(&log, turn.max(last_turn(&log))).iter().any(waits)
            {
                found.push(name);
            } else if let Some(&(digest, _)) = spoken.get(&name) {
                self.mark_settled(&name, SettledState { reach, digest, has_model });
            }
        }
        Ok(found)
    }

    /// The last days, today included.
    fn recent_days(&self, days: u16) -> Days {
        let today = self.memory.now().day();
        Days {
            first: today.checked_sub(jiff::Span::new().days(i32::from(days))).unwrap_or(today),
            last: today,
        }
    }

    fn is_settled(&self, conversation: &str, as_of: &SettledState) -> bool {
        self.settled.lock().unwrap_or_else(PoisonError::into_inner).get(conversation) == Some(as_of)
    }

    fn mark_settled(&self, conversation: &str, as_of: SettledState) {
        let mut settled = self.settled.lock().unwrap_or_else(PoisonError::into_inner);
        if settled.len() >= MAX_SETTLED_CONVERSATIONS {
            // A forgotten entry costs one more lookup.
            settled.clear();
        }
        settled.insert(conversation.to_owned(), as_of);
    }
}

/// The log field with the number of failed attempts.
const TRIES_FIELD: &str = "tries";

fn failed_tries(line: &TurnLine) -> u64 {
    line.extra.get(TRIES_FIELD).and_then(serde_json::Value::as_u64).unwrap_or(0)
}

/// Whether the summaries contain words: a model that only repeats marks and numbers has not read
/// the exchange.
fn has_words(summary: &TurnSummary) -> bool {
    let texts = [&summary.user_summary, &summary.assistant_summary];
    let words = texts
        .iter()
        .flat_map(|text| text.split_whitespace())
        .filter(|word| !word.contains(|c: char| c.is_ascii_digit()));
    words.flat_map(str::chars).filter(|c| c.is_alphabetic()).count() >= MIN_WORD_LETTERS
}

/// The log field with the hash of the summarized reply.
const REPLY_FIELD: &str = "reply";

/// Whether a turn has another reply than the summarized one: tools were used in it, or it was
/// repeated.
fn has_grown(log: &TurnLog, exchange: &Exchange) -> bool {
    let told = log.turns.get(&exchange.turn).and_then(|line| line.extra.get(REPLY_FIELD)?.as_str());
    told.is_some_and(|told| told != turn_detection::reply_hash(&exchange.replied))
}

/// The schema of consolidated facts.
fn facts_schema() -> serde_json::Value {
    let facts = json!({ "type": "array", "maxItems": 200, "items": { "type": "string", "maxLength": 400 } });
    json!({ "type": "object", "properties": { "facts": facts }, "required": ["facts"], "additionalProperties": false })
}

/// The facts without a model: rules and decisions that are marked in the user's own words.
fn extract_marked(exchange: &Exchange) -> TurnSummary {
    let piece = SourcePassage {
        source: String::new(),
        text: &exchange.own,
        origin: Origin::User,
        speaker: None,
        said_at: exchange.ts,
        session: None,
        scope: Scope::Everywhere,
    };
    let add = rules::propose(&[piece]).into_iter().map(|proposal| proposal.content).collect();
    TurnSummary {
        user_summary: String::new(),
        assistant_summary: String::new(),
        diff: FactDiff { add, ..FactDiff::default() },
        notes: Vec::new(),
    }
}
