//! Extraction (L13, K4): turns messages and log lines since the checkpoint into typed events.
//!
//! - A model proposes events. Rules over explicit marks propose events too, so that a commitment or
//!   a rule is found without a model.
//! - The domain judges every proposal.
//! - No lock is held while a model works. What arrives meanwhile belongs to the next run.

use std::collections::{BTreeSet, HashMap};

use icecore_domain::budget;
use icecore_domain::calendar::{Days, Moment};
use icecore_domain::event::{Event, EventDraft, Origin, SAID_AT_FIELD, Scope};
use icecore_domain::extraction::equivalence::KnownStatements;
use icecore_domain::extraction::validation::{self, ProposalVerdict};
use icecore_domain::extraction::{self, Proposal, SourcePassage, rules};
use icecore_domain::id::EventId;
use icecore_domain::layout::DocPath;
use icecore_domain::ledger::EventState;
use icecore_domain::ledger::query::EventQuery;
use icecore_domain::priority_extracts;
use icecore_domain::record::{Record, SessionKey, SessionStats, Trust};
use icecore_domain::sanitize;
use icecore_domain::summary::SummaryCost;
use jiff::ToSpan;
use jiff::civil::Date;
use serde::Serialize;

use crate::checkpoint::Checkpoint;
use crate::llm::{AnswerSchema, ModelRequest, reply};
use crate::prompts::{PromptSource, Prompts};
use crate::rollup::{ModelBudget, ModelDeferral, ModelQuestion, ProgressFn, is_cut_off};
use crate::{Memory, Result, SecretCounts};

/// The newest statements that a proposal is compared with. An exact repetition is found however old
/// it is.
const MAX_COMPARED_STATEMENTS: usize = 2_000;
/// The known statements that a model is shown, so that it does not propose them again.
const MAX_SHOWN_STATEMENTS: usize = 60;
/// The most questions per chunk if the answer cannot be read.
const MAX_ATTEMPTS: u32 = 2;
/// The longest text of a piece that a model is shown; the rest is left to the rules.
const MAX_PIECE_BYTES: usize = 6_000;
/// The token limit of an answer.
const MAX_ANSWER_TOKENS: u32 = 2_400;
/// The most refusals in a report.
const MAX_REPORTED_REFUSALS: usize = 200;

/// The result of an extraction.
#[derive(Debug, Clone, Default, Serialize)]
pub struct ExtractionReport {
    /// The number of messages, states and log lines.
    pub pieces: usize,
    /// The number of proposals.
    pub proposed: usize,
    /// The new events.
    pub learnt: Vec<EventId>,
    /// The new events that wait for confirmation.
    pub quarantined: Vec<EventId>,
    /// Proposals that repeat a known statement.
    pub duplicates: usize,
    pub refused: Vec<String>,
    /// Secrets that were replaced in the new events, by kind.
    #[serde(skip_serializing_if = "SecretCounts::is_empty")]
    pub secrets: SecretCounts,
    /// Corrections to the new events.
    pub changed: Vec<String>,
    /// Days older than the extraction limit.
    pub too_old: usize,
    /// Why the model is asked later.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deferred: Option<String>,
}

/// A unit of work: the new records of a session, or the new part of a log.
enum ExtractionBatch {
    Session(Box<SessionStats>, Option<Moment>),
    Log(Date, usize),
}

impl Memory {
    /// The units that are not extracted yet, oldest first.
    async fn pending_batches(
        &self,
        checkpoint: &Checkpoint,
        report: &mut ExtractionReport,
    ) -> Result<Vec<ExtractionBatch>> {
        let (today, until) = (self.now().day(), self.view_horizon());
        let first = today
            .checked_sub(i32::from(self.policy.extraction.max_age_days).days())
            .unwrap_or(today);
        let mut batches = Vec::new();
        let mut sessions = self.store.sessions(Some(Days { first, last: today })).await?;
        sessions.retain(|stat| until.is_none_or(|until| stat.first.timestamp() <= until));
        sessions.sort_by(|a, b| (a.first, &a.key).cmp(&(b.first, &b.key)));
        for stat in sessions {
            if let Some(since) = checkpoint.new_records_from(&stat) {
                batches.push(ExtractionBatch::Session(Box::new(stat), since));
            }
        }
        if checkpoint.last_run().is_none() {
            report.too_old =
                self.store.record_days().await?.into_iter().filter(|day| *day < first).count();
        }
        for day in (Days { first, last: today }).iter() {
            let log = self.store.document(&DocPath::log(day)).await?.unwrap_or_default();
            if let Some(from) = checkpoint.unprocessed_from(day, &log) {
                batches.push(ExtractionBatch::Log(day, from));
            }
        }
        Ok(batches)
    }

    /// The number of sessions and logs that are not extracted yet.
    pub(crate) async fn pending_extractions(&self) -> Result<usize> {
        Ok(self
            .pending_batches(&self.load_checkpoint().await?, &mut ExtractionReport::default())
            .await?
            .len())
    }

    /// Extracts events from everything since the checkpoint, and moves the checkpoint.
    pub(crate) async fn run_extraction(
        &self,
        checkpoint: &mut Checkpoint,
        budget: Option<&ModelBudget<'_>>,
        progress: ProgressFn<'_>,
    ) -> Result<ExtractionReport> {
        let mut distilled = ExtractionReport::default();
        let batches = self.pending_batches(checkpoint, &mut distilled).await?;
        if batches.is_empty() {
            return Ok(distilled);
        }
        let prompts =
            if budget.is_some() { Some(Prompts::load(self.store.as_ref()).await?) } else { None };
        let recent = self
            .query_events(&EventQuery {
                limit: Some(MAX_COMPARED_STATEMENTS),
                ..EventQuery::default()
            })
            .await?;
        let lines: Vec<String> = recent
            .iter()
            .rev()
            .filter(|entry| !entry.is_quarantined())
            .take(MAX_SHOWN_STATEMENTS)
            .map(|entry| sanitize::one_line(&entry.event.content))
            .collect();
        // A quarantined statement of a stranger must not turn the user's own statement into a
        // duplicate.
        let recent: Vec<Event> = recent
            .into_iter()
            .filter(|entry| !entry.is_quarantined())
            .map(|entry| entry.event)
            .collect();
        let mut worlds = KnownByScope { recent, known: HashMap::new() };
        let all = batches.len();
        for (done, batch) in batches.into_iter().enumerate() {
            progress("extracting", done, all);
            let before = distilled.learnt.len();
            let (records, log) = match &batch {
                ExtractionBatch::Session(stat, since) => {
                    (self.records_since(&stat.key, *since).await?, Vec::new())
                }
                ExtractionBatch::Log(day, from) => {
                    let text = self.store.document(&DocPath::log(*day)).await?.unwrap_or_default();
                    let mut lines = log_lines(*day, &text, *from, self.now());
                    lines
                        .iter_mut()
                        .for_each(|line| line.text = self.filter_without_report(&line.text));
                    lines.retain(|line| !icecore_domain::forget::is_forgotten(&line.text));
                    (Vec::new(), lines)
                }
            };
            let pieces: Vec<SourcePassage<'_>> = if records.is_empty() {
                log.iter().map(LogLine::piece).collect()
            } else {
                records.iter().map(piece_of_record).collect()
            };
            distilled.pieces += pieces.len();
            let mut proposals = Vec::new();
            let mut settled = true;
            if let (Some(budget), Some(prompts), None) = (budget, &prompts, &distilled.deferred) {
                match self
                    .propose_with_model(&pieces, &lines, budget, prompts, &mut distilled)
                    .await?
                {
                    Ok(found) => proposals = found,
                    Err(later) => {
                        settled = !later.all;
                        distilled.deferred = Some(later.why).filter(|_| later.all);
                    }
                }
            } else if budget.is_some() {
                settled = false;
            }
            // The rules run whether a model answers or not.
            proposals.extend(rules::propose(&pieces));
            let scope = pieces.first().map_or(Scope::Everywhere, |piece| piece.scope.clone());
            self.append_accepted(proposals, &pieces, worlds.in_scope(&scope), &mut distilled)
                .await?;
            if distilled.learnt.len() > before {
                let learnt = self
                    .store
                    .events(&EventQuery::for_ids(&distilled.learnt[before..]))
                    .await?
                    .entries;
                worlds.add_learnt(learnt.into_iter().map(|entry| entry.event).collect(), &scope);
            }
            if !settled {
                continue;
            }
            match &batch {
                ExtractionBatch::Session(stat, _) => {
                    let newest = records
                        .iter()
                        .map(|record| record.captured)
                        .max()
                        .unwrap_or_else(|| self.now());
                    checkpoint.mark_session_processed(stat, newest);
                }
                ExtractionBatch::Log(day, _) => {
                    let text = self.store.document(&DocPath::log(*day)).await?.unwrap_or_default();
                    // Only what was read; a line that arrived meanwhile belongs to the next run.
                    let seen = log.last().map_or(text.len(), |line| line.end.min(text.len()));
                    checkpoint.mark_log_processed(*day, &text[..seen]);
                }
            }
            if budget.is_some() {
                // A chunk with a stored answer is not paid for again.
                self.save_checkpoint(checkpoint).await?;
            }
        }
        progress("", all, all);
        let first = self
            .now()
            .day()
            .checked_sub(i32::from(self.policy.extraction.max_age_days).days())
            .unwrap_or(Date::MIN);
        checkpoint.drop_marks_before(first);
        Ok(distilled)
    }

    async fn records_since(&self, key: &SessionKey, since: Option<Moment>) -> Result<Vec<Record>> {
        let mut records = self.store.records(Days { first: key.day, last: key.day }).await?;
        let until = self.view_horizon();
        records.retain(|record| {
            record.session_key() == *key
                && !record.is_instructions()
                && until.is_none_or(|until| record.ts.timestamp() <= until)
                // The last moment again: something may have been captured within the same second.
                && since.is_none_or(|since| record.captured >= since)
        });
        self.mark_withdrawn(&mut records).await?;
        records.retain(|record| !record.withdrawn);
        Ok(records)
    }

    /// A model's proposals for these pieces; `Err` if the question is deferred.
    async fn propose_with_model(
        &self,
        pieces: &[SourcePassage<'_>],
        known: &[String],
        model_budget: &ModelBudget<'_>,
        prompts: &Prompts,
        report: &mut ExtractionReport,
    ) -> Result<Result<Vec<Proposal>, ModelDeferral>> {
        let room = self
            .policy
            .extraction
            .max_source_tokens
            .min(model_budget.input_tokens.saturating_sub(2_500).max(500));
        let mut found = Vec::new();
        let mut from = 0;
        while from < pieces.len() {
            let mut shown: Vec<PromptSource> = Vec::new();
            let mut tokens = 0;
            for piece in &pieces[from..] {
                let text = budget::truncate_at_word(piece.text.trim(), MAX_PIECE_BYTES);
                let cost = budget::estimate_tokens(&text) + 20;
                if !shown.is_empty() && tokens + cost > room {
                    break;
                }
                tokens += cost;
                let who = match piece.speaker {
                    Some(speaker) => format!("another person, {}", sanitize::one_line(speaker)),
                    None => piece.origin.to_string(),
                };
                shown.push(PromptSource {
                    name: format!("{} {who}", piece.said_at.clock_time()),
                    text,
                });
            }
            let chunk = &pieces[from..from + shown.len()];
            match self.ask_about_chunk(chunk, &shown, known, model_budget, prompts, report).await? {
                Ok(proposals) => found.extend(
                    proposals
                        .into_iter()
                        .map(|proposal| Proposal { passage: proposal.passage + from, ..proposal }),
                ),
                Err(later) => return Ok(Err(later)),
            }
            from += shown.len();
        }
        Ok(Ok(found))
    }

    async fn ask_about_chunk(
        &self,
        chunk: &[SourcePassage<'_>],
        shown: &[PromptSource],
        known: &[String],
        budget: &ModelBudget<'_>,
        prompts: &Prompts,
        report: &mut ExtractionReport,
    ) -> Result<Result<Vec<Proposal>, ModelDeferral>> {
        let title = format!("{} to {}", chunk[0].said_at, chunk[chunk.len() - 1].said_at);
        let mut complaints = String::new();
        for attempt in 0..=MAX_ATTEMPTS {
            let (system, user) =
                prompts.fill_extraction(&title, shown, known, attempt, &complaints)?;
            let schema =
                AnswerSchema { name: "events", json: extraction::answer_schema(shown.len()) };
            let ask = ModelRequest {
                system,
                user,
                schema: Some(schema),
                max_tokens: MAX_ANSWER_TOKENS,
                attempt,
            };
            let question = ModelQuestion { ask: &ask, job: "distil", retries: 0 };
            let heard = match self.ask_model(question, budget, &mut SummaryCost::default()).await? {
                Ok(heard) => heard,
                Err(later) => return Ok(Err(later)),
            };
            complaints = match (&heard.nothing, reply::json_object(&heard.text)) {
                (Some(why), _) => why.clone(),
                _ if heard.cut_off || is_cut_off(&heard.text) => "it was cut off".into(),
                (None, None) => "there is no JSON object in it".into(),
                (None, Some(read)) => {
                    let (proposals, complaints) =
                        extraction::parse_answer(&read.value, shown.len());
                    for complaint in complaints {
                        push_limited(&mut report.refused, complaint);
                    }
                    return Ok(Ok(proposals));
                }
            };
        }
        // The model answers, but not in a readable form: only the rules apply.
        push_limited(
            &mut report.refused,
            format!("the answer about {title} could not be read: {complaints}"),
        );
        Ok(Ok(Vec::new()))
    }

    /// Judges proposals and appends the accepted ones.
    async fn append_accepted(
        &self,
        proposals: Vec<Proposal>,
        pieces: &[SourcePassage<'_>],
        known: &mut KnownStatements,
        report: &mut ExtractionReport,
    ) -> Result<()> {
        report.proposed += proposals.len();
        let mut drafts: Vec<EventDraft> = Vec::new();
        let now = self.now();
        for (proposal, verdict) in validation::validate_proposals(proposals, pieces, known, now) {
            let about = sanitize::one_line(&proposal.content);
            match verdict {
                ProposalVerdict::Keep(kept, changes) => {
                    let Some(piece) = pieces.get(kept.passage) else { continue };
                    if self.is_known_statement(&kept.content, piece).await? {
                        report.duplicates += 1;
                        continue;
                    }
                    for change in changes {
                        push_limited(
                            &mut report.changed,
                            format!("\"{}\": {change}", budget::truncate_at_word(&about, 120)),
                        );
                    }
                    let draft = kept
                        .draft(piece, now)
                        .with_extra_field(SAID_AT_FIELD, &piece.said_at.to_string());
                    // A model may have joined words that were apart.
                    match self.filter_draft(draft, &mut report.secrets).sanitize() {
                        Ok((draft, _)) => drafts.push(draft),
                        Err(unfit) => push_limited(
                            &mut report.refused,
                            format!("\"{}\": {unfit}", budget::truncate_at_word(&about, 120)),
                        ),
                    }
                }
                ProposalVerdict::Refused(why) => push_limited(
                    &mut report.refused,
                    format!("\"{}\": {why}", budget::truncate_at_word(&about, 120)),
                ),
                ProposalVerdict::Duplicate(_) | ProposalVerdict::DuplicateInBatch(_) => {
                    report.duplicates += 1
                }
            }
        }
        if drafts.is_empty() {
            return Ok(());
        }
        for event in self.append_superseding(drafts).await? {
            known.add(event.id, event.entity.as_deref().unwrap_or_default(), &event.content);
            if icecore_domain::ledger::LedgerEntry::from_event(event.clone(), 0).is_quarantined() {
                report.quarantined.push(event.id);
            }
            report.learnt.push(event.id);
        }
        Ok(())
    }

    /// Whether exactly this statement is known: it is active, or it was extracted from the same
    /// source and has ended since. A statement that the user retracted is not extracted again from
    /// the same source, unless the whole nightly run was undone. A new message may say it again.
    async fn is_known_statement(&self, content: &str, piece: &SourcePassage<'_>) -> Result<bool> {
        let same = EventQuery { saying: Some(content.to_owned()), ..EventQuery::all() };
        let mut ids: Vec<EventId> =
            self.store.events(&same).await?.entries.iter().map(|entry| entry.event.id).collect();
        ids.extend(self.store.archived_events(&same).await?.iter().map(|event| event.id));
        let trusted = Trust::from_origin(piece.origin) != Trust::Low;
        let concerns =
            |event: &Event| event.scope == Scope::Everywhere || event.scope == piece.scope;
        for entry in self
            .load_events_with_archives(&ids)
            .await?
            .iter()
            .filter(|entry| entry.event.is_statement() && concerns(&entry.event))
        {
            if entry.state.is_active() && !(trusted && entry.is_quarantined()) {
                return Ok(true);
            }
            let undone = match entry.state {
                EventState::Retracted { by } => self
                    .load_events_with_archives(&[by])
                    .await?
                    .iter()
                    .any(|act| act.event.content.starts_with(crate::history::UNDONE_PREFIX)),
                _ => false,
            };
            if entry.event.source == piece.source && !undone {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Appends drafts. A draft that supersedes an event which is no longer active supersedes
    /// nothing.
    async fn append_superseding(&self, drafts: Vec<EventDraft>) -> Result<Vec<Event>> {
        let targets: BTreeSet<EventId> =
            drafts.iter().flat_map(|draft| draft.supersedes.iter().copied()).collect();
        let targets: Vec<EventId> = targets.into_iter().collect();
        self.append_planned(&targets, |found| {
            let active = |id: &EventId| {
                found.entries.iter().any(|entry| entry.event.id == *id && entry.state.is_active())
            };
            Ok(drafts
                .iter()
                .map(|draft| EventDraft {
                    supersedes: draft.supersedes.iter().copied().filter(active).collect(),
                    ..draft.clone()
                })
                .collect())
        })
        .await
    }
}

fn push_limited(list: &mut Vec<String>, what: String) {
    if list.len() < MAX_REPORTED_REFUSALS {
        list.push(what);
    }
}

/// A record as input of the extraction.
fn piece_of_record(record: &Record) -> SourcePassage<'_> {
    let session = record.session.as_ref().map_or_else(
        || record.conversation.clone(),
        |name| format!("{}/{name}", record.conversation),
    );
    SourcePassage {
        source: format!("{}#{}", record.path(), record.id),
        text: &record.text,
        origin: record.origin,
        speaker: record.other_speaker.as_deref(),
        said_at: record.ts,
        session: Some(session),
        scope: record.project().map_or(Scope::Everywhere, Scope::Project),
    }
}

/// The known statements from the view of each project: those that hold everywhere and its own.
/// Decisions of another project are neither known nor replaced.
struct KnownByScope {
    recent: Vec<Event>,
    known: HashMap<Scope, KnownStatements>,
}

impl KnownByScope {
    fn in_scope(&mut self, scope: &Scope) -> &mut KnownStatements {
        let seen = self
            .recent
            .iter()
            .filter(|event| event.scope == Scope::Everywhere || event.scope == *scope);
        let texts = seen.map(|event| {
            (event.id, event.entity.as_deref().unwrap_or_default(), event.content.as_str())
        });
        self.known.entry(scope.clone()).or_insert_with(|| KnownStatements::from_statements(texts))
    }

    /// Adds the statements learnt in one project to the views of the others, where they apply.
    fn add_learnt(&mut self, events: Vec<Event>, learnt_in: &Scope) {
        for event in &events {
            for (scope, known) in &mut self.known {
                if scope != learnt_in && (event.scope == Scope::Everywhere || event.scope == *scope)
                {
                    known.add(
                        event.id,
                        event.entity.as_deref().unwrap_or_default(),
                        &event.content,
                    );
                }
            }
        }
        self.recent.extend(events);
    }
}

/// A line of a daily log.
struct LogLine {
    source: String,
    text: String,
    said: Moment,
    end: usize,
}

impl LogLine {
    fn piece(&self) -> SourcePassage<'_> {
        SourcePassage {
            source: self.source.clone(),
            text: &self.text,
            origin: Origin::File,
            speaker: None,
            said_at: self.said,
            session: None,
            scope: Scope::Everywhere,
        }
    }
}

/// The lines of a log from a byte on, without the priority extracts, which are captured separately.
fn log_lines(day: Date, log: &[u8], from: usize, now: Moment) -> Vec<LogLine> {
    let text = String::from_utf8_lossy(log);
    let extracts: BTreeSet<usize> = priority_extracts::section_lines(&text).collect();
    let said = if now.day() == day {
        now
    } else {
        Moment::parse(&format!("{day}T12:00:00{}", offset(now))).map_or(now, |read| read.moment)
    };
    let mut lines: Vec<LogLine> = Vec::new();
    let mut end = 0;
    for (at, raw) in text.split_inclusive('\n').enumerate() {
        end += raw.len();
        let line = raw.trim_end();
        if end <= from
            || line.trim().is_empty()
            || line.starts_with('#')
            || extracts.contains(&(at + 1))
        {
            if let Some(last) = lines.last_mut() {
                last.end = end;
            }
            continue;
        }
        // An indented line continues the line above.
        match lines.last_mut() {
            Some(last) if line.starts_with("  ") && last.end + raw.len() == end => {
                last.text.push('\n');
                last.text.push_str(line.trim());
                last.end = end;
            }
            _ => lines.push(LogLine {
                source: format!("{}:{}", DocPath::log(day), at + 1),
                text: strip_bullet_and_time(line).to_owned(),
                said,
                end,
            }),
        }
    }
    lines
}

/// A log line without its bullet and time.
fn strip_bullet_and_time(line: &str) -> &str {
    let line = line.trim_start_matches(['-', '*', '+', ' ']);
    match line.split_once(' ') {
        Some((clock, rest))
            if clock.len() == 5
                && clock.as_bytes()[2] == b':'
                && clock.bytes().filter(u8::is_ascii_digit).count() == 4 =>
        {
            rest
        }
        _ => line,
    }
}

fn offset(now: Moment) -> String {
    let text = now.to_string();
    text.get(19..).map_or_else(|| "Z".into(), str::to_owned)
}
