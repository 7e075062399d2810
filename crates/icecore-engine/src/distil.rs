//! Extraction (L13, K4): turns messages and log lines since the checkpoint into typed events.
//!
//! - A model proposes events. Rules over explicit marks propose events too, so that a commitment or
//!   a rule is found without a model.
//! - The domain judges every proposal.
//! - No lock is held while a model works. What arrives meanwhile belongs to the next run.

use std::collections::{BTreeSet, HashMap};

use icecore_domain::budget;
use icecore_domain::calendar::{Days, Moment};
use icecore_domain::distil::judge::{self, Verdict};
use icecore_domain::distil::same::KnownTexts;
use icecore_domain::distil::{self, Piece, Proposal, rules};
use icecore_domain::event::{Draft, Event, Origin, SAID, Scope};
use icecore_domain::extract;
use icecore_domain::id::EventId;
use icecore_domain::layout::DocPath;
use icecore_domain::ledger::Standing;
use icecore_domain::ledger::query::EventQuery;
use icecore_domain::plain;
use icecore_domain::record::{Record, SessionKey, SessionStat, Trust};
use icecore_domain::summary::Cost;
use jiff::ToSpan;
use jiff::civil::Date;
use serde::Serialize;

use crate::checkpoint::Checkpoint;
use crate::llm::{Ask, Schema, reply};
use crate::prompts::{Prompts, Shown};
use crate::rollup::{Asking, Later, Question, Watch, breaks_off};
use crate::{Memory, Result, Secrets};

/// The newest statements that a proposal is compared with. An exact repetition is found however old
/// it is.
const RECENT: usize = 2_000;
/// The known statements that a model is shown, so that it does not propose them again.
const SHOWN: usize = 60;
/// The most questions per chunk if the answer cannot be read.
const ATTEMPTS: u32 = 2;
/// The longest text of a piece that a model is shown; the rest is left to the rules.
const PIECE_BYTES: usize = 6_000;
/// The token limit of an answer.
const ANSWER_TOKENS: u32 = 2_400;
/// The most refusals in a report.
const TOLD: usize = 200;

/// The result of an extraction.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Distilled {
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
    #[serde(skip_serializing_if = "Secrets::is_empty")]
    pub secrets: Secrets,
    /// Corrections to the new events.
    pub changed: Vec<String>,
    /// Days older than the extraction limit.
    pub too_old: usize,
    /// Why the model is asked later.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deferred: Option<String>,
}

/// A unit of work: the new records of a session, or the new part of a log.
enum Batch {
    Session(Box<SessionStat>, Option<Moment>),
    Log(Date, usize),
}

impl Memory {
    /// The units that are not extracted yet, oldest first.
    async fn batches(
        &self,
        checkpoint: &Checkpoint,
        distilled: &mut Distilled,
    ) -> Result<Vec<Batch>> {
        let (today, until) = (self.now().day(), self.horizon());
        let first = today
            .checked_sub(i32::from(self.policy.extraction.max_age_days).days())
            .unwrap_or(today);
        let mut batches = Vec::new();
        let mut sessions = self.store.sessions(Some(Days { first, last: today })).await?;
        sessions.retain(|stat| until.is_none_or(|until| stat.first.at() <= until));
        sessions.sort_by(|a, b| (a.first, &a.key).cmp(&(b.first, &b.key)));
        for stat in sessions {
            if let Some(since) = checkpoint.is_new(&stat) {
                batches.push(Batch::Session(Box::new(stat), since));
            }
        }
        if checkpoint.last_run().is_none() {
            distilled.too_old =
                self.store.record_days().await?.into_iter().filter(|day| *day < first).count();
        }
        for day in (Days { first, last: today }).iter() {
            let log = self.store.document(&DocPath::log(day)).await?.unwrap_or_default();
            if let Some(from) = checkpoint.new_from(day, &log) {
                batches.push(Batch::Log(day, from));
            }
        }
        Ok(batches)
    }

    /// The number of sessions and logs that are not extracted yet.
    pub(crate) async fn undistilled(&self) -> Result<usize> {
        Ok(self.batches(&self.checkpoint().await?, &mut Distilled::default()).await?.len())
    }

    /// Extracts events from everything since the checkpoint, and moves the checkpoint.
    pub(crate) async fn distil(
        &self,
        checkpoint: &mut Checkpoint,
        asking: Option<&Asking<'_>>,
        watch: Watch<'_>,
    ) -> Result<Distilled> {
        let mut distilled = Distilled::default();
        let batches = self.batches(checkpoint, &mut distilled).await?;
        if batches.is_empty() {
            return Ok(distilled);
        }
        let prompts =
            if asking.is_some() { Some(Prompts::load(self.store.as_ref()).await?) } else { None };
        let recent =
            self.events(&EventQuery { limit: Some(RECENT), ..EventQuery::default() }).await?;
        let lines: Vec<String> = recent
            .iter()
            .rev()
            .filter(|entry| !entry.is_quarantined())
            .take(SHOWN)
            .map(|entry| plain::one_line(&entry.event.content))
            .collect();
        // A quarantined statement of a stranger must not turn the user's own statement into a
        // duplicate.
        let recent: Vec<Event> = recent
            .into_iter()
            .filter(|entry| !entry.is_quarantined())
            .map(|entry| entry.event)
            .collect();
        let mut worlds = Worlds { recent, known: HashMap::new() };
        let all = batches.len();
        for (done, batch) in batches.into_iter().enumerate() {
            watch("extracting", done, all);
            let before = distilled.learnt.len();
            let (records, log) = match &batch {
                Batch::Session(stat, since) => {
                    (self.new_records(&stat.key, *since).await?, Vec::new())
                }
                Batch::Log(day, from) => {
                    let text = self.store.document(&DocPath::log(*day)).await?.unwrap_or_default();
                    let mut lines = log_lines(*day, &text, *from, self.now());
                    lines.iter_mut().for_each(|line| line.text = self.gate_text(&line.text));
                    lines.retain(|line| !icecore_domain::forget::is_forgotten(&line.text));
                    (Vec::new(), lines)
                }
            };
            let pieces: Vec<Piece<'_>> = if records.is_empty() {
                log.iter().map(LogLine::piece).collect()
            } else {
                records.iter().map(piece).collect()
            };
            distilled.pieces += pieces.len();
            let mut proposals = Vec::new();
            let mut settled = true;
            if let (Some(asking), Some(prompts), None) = (asking, &prompts, &distilled.deferred) {
                match self.proposals(&pieces, &lines, asking, prompts, &mut distilled).await? {
                    Ok(found) => proposals = found,
                    Err(later) => {
                        settled = !later.all;
                        distilled.deferred = Some(later.why).filter(|_| later.all);
                    }
                }
            } else if asking.is_some() {
                settled = false;
            }
            // The rules run whether a model answers or not.
            proposals.extend(rules::propose(&pieces));
            let scope = pieces.first().map_or(Scope::Everywhere, |piece| piece.scope.clone());
            self.learn(proposals, &pieces, worlds.of(&scope), &mut distilled).await?;
            if distilled.learnt.len() > before {
                let learnt = self
                    .store
                    .events(&EventQuery::these(&distilled.learnt[before..]))
                    .await?
                    .entries;
                worlds.add(learnt.into_iter().map(|entry| entry.event).collect(), &scope);
            }
            if !settled {
                continue;
            }
            match &batch {
                Batch::Session(stat, _) => {
                    let newest = records
                        .iter()
                        .map(|record| record.captured)
                        .max()
                        .unwrap_or_else(|| self.now());
                    checkpoint.note_session(stat, newest);
                }
                Batch::Log(day, _) => {
                    let text = self.store.document(&DocPath::log(*day)).await?.unwrap_or_default();
                    // Only what was read; a line that arrived meanwhile belongs to the next run.
                    let seen = log.last().map_or(text.len(), |line| line.end.min(text.len()));
                    checkpoint.note_log(*day, &text[..seen]);
                }
            }
            if asking.is_some() {
                // A chunk with a stored answer is not paid for again.
                self.keep_checkpoint(checkpoint).await?;
            }
        }
        watch("", all, all);
        let first = self
            .now()
            .day()
            .checked_sub(i32::from(self.policy.extraction.max_age_days).days())
            .unwrap_or(Date::MIN);
        checkpoint.forget_before(first);
        Ok(distilled)
    }

    async fn new_records(&self, key: &SessionKey, since: Option<Moment>) -> Result<Vec<Record>> {
        let mut records = self.store.records(Days { first: key.day, last: key.day }).await?;
        let until = self.horizon();
        records.retain(|record| {
            record.session_key() == *key
                && !record.is_instructions()
                && until.is_none_or(|until| record.ts.at() <= until)
                // The last moment again: something may have been captured within the same second.
                && since.is_none_or(|since| record.captured >= since)
        });
        self.mark_withdrawn(&mut records).await?;
        records.retain(|record| !record.withdrawn);
        Ok(records)
    }

    /// A model's proposals for these pieces; `Err` if the question is deferred.
    async fn proposals(
        &self,
        pieces: &[Piece<'_>],
        known: &[String],
        asking: &Asking<'_>,
        prompts: &Prompts,
        distilled: &mut Distilled,
    ) -> Result<Result<Vec<Proposal>, Later>> {
        let room = self
            .policy
            .extraction
            .max_source_tokens
            .min(asking.input_tokens.saturating_sub(2_500).max(500));
        let mut found = Vec::new();
        let mut from = 0;
        while from < pieces.len() {
            let mut shown: Vec<Shown> = Vec::new();
            let mut tokens = 0;
            for piece in &pieces[from..] {
                let text = budget::shortened(piece.text.trim(), PIECE_BYTES);
                let cost = budget::tokens(&text) + 20;
                if !shown.is_empty() && tokens + cost > room {
                    break;
                }
                tokens += cost;
                let who = match piece.speaker {
                    Some(speaker) => format!("another person, {}", plain::one_line(speaker)),
                    None => piece.origin.to_string(),
                };
                shown.push(Shown { name: format!("{} {who}", piece.said.clock()), text });
            }
            let chunk = &pieces[from..from + shown.len()];
            match self.ask_about(chunk, &shown, known, asking, prompts, distilled).await? {
                Ok(proposals) => found.extend(
                    proposals
                        .into_iter()
                        .map(|proposal| Proposal { piece: proposal.piece + from, ..proposal }),
                ),
                Err(later) => return Ok(Err(later)),
            }
            from += shown.len();
        }
        Ok(Ok(found))
    }

    async fn ask_about(
        &self,
        chunk: &[Piece<'_>],
        shown: &[Shown],
        known: &[String],
        asking: &Asking<'_>,
        prompts: &Prompts,
        distilled: &mut Distilled,
    ) -> Result<Result<Vec<Proposal>, Later>> {
        let title = format!("{} to {}", chunk[0].said, chunk[chunk.len() - 1].said);
        let mut complaints = String::new();
        for attempt in 0..=ATTEMPTS {
            let (system, user) = prompts.fill_distil(&title, shown, known, attempt, &complaints)?;
            let schema = Schema { name: "events", json: distil::schema(shown.len()) };
            let ask =
                Ask { system, user, schema: Some(schema), max_tokens: ANSWER_TOKENS, attempt };
            let question = Question { ask: &ask, job: "distil", retries: 0 };
            let heard = match self.ask(question, asking, &mut Cost::default()).await? {
                Ok(heard) => heard,
                Err(later) => return Ok(Err(later)),
            };
            complaints = match (&heard.nothing, reply::json_object(&heard.text)) {
                (Some(why), _) => why.clone(),
                _ if heard.cut_off || breaks_off(&heard.text) => "it was cut off".into(),
                (None, None) => "there is no JSON object in it".into(),
                (None, Some(read)) => {
                    let (proposals, complaints) = distil::read_answer(&read.value, shown.len());
                    for complaint in complaints {
                        note(&mut distilled.refused, complaint);
                    }
                    return Ok(Ok(proposals));
                }
            };
        }
        // The model answers, but not in a readable form: only the rules apply.
        note(
            &mut distilled.refused,
            format!("the answer about {title} could not be read: {complaints}"),
        );
        Ok(Ok(Vec::new()))
    }

    /// Judges proposals and appends the accepted ones.
    async fn learn(
        &self,
        proposals: Vec<Proposal>,
        pieces: &[Piece<'_>],
        known: &mut KnownTexts,
        distilled: &mut Distilled,
    ) -> Result<()> {
        distilled.proposed += proposals.len();
        let mut drafts: Vec<Draft> = Vec::new();
        let now = self.now();
        for (proposal, verdict) in judge::judge(proposals, pieces, known, now) {
            let about = plain::one_line(&proposal.content);
            match verdict {
                Verdict::Keep(kept, changes) => {
                    let Some(piece) = pieces.get(kept.piece) else { continue };
                    if self.was_said(&kept.content, piece).await? {
                        distilled.duplicates += 1;
                        continue;
                    }
                    for change in changes {
                        note(
                            &mut distilled.changed,
                            format!("\"{}\": {change}", budget::shortened(&about, 120)),
                        );
                    }
                    let draft = kept.draft(piece, now).with_field(SAID, &piece.said.to_string());
                    // A model may have joined words that were apart.
                    match self.gate_draft(draft, &mut distilled.secrets).cleaned() {
                        Ok((draft, _)) => drafts.push(draft),
                        Err(unfit) => note(
                            &mut distilled.refused,
                            format!("\"{}\": {unfit}", budget::shortened(&about, 120)),
                        ),
                    }
                }
                Verdict::Refused(why) => note(
                    &mut distilled.refused,
                    format!("\"{}\": {why}", budget::shortened(&about, 120)),
                ),
                Verdict::Duplicate(_) | Verdict::DuplicateInBatch(_) => distilled.duplicates += 1,
            }
        }
        if drafts.is_empty() {
            return Ok(());
        }
        for event in self.append_replacing(drafts).await? {
            known.add(event.id, event.entity.as_deref().unwrap_or_default(), &event.content);
            if icecore_domain::ledger::Entry::fresh(event.clone(), 0).is_quarantined() {
                distilled.quarantined.push(event.id);
            }
            distilled.learnt.push(event.id);
        }
        Ok(())
    }

    /// Whether exactly this statement is known: it is active, or it was extracted from the same
    /// source and has ended since. A statement that the user retracted is not extracted again from
    /// the same source, unless the whole nightly run was undone. A new message may say it again.
    async fn was_said(&self, content: &str, piece: &Piece<'_>) -> Result<bool> {
        let same = EventQuery { saying: Some(content.to_owned()), ..EventQuery::everything() };
        let mut ids: Vec<EventId> =
            self.store.events(&same).await?.entries.iter().map(|entry| entry.event.id).collect();
        ids.extend(self.store.archived(&same).await?.iter().map(|event| event.id));
        let trusted = Trust::of(piece.origin) != Trust::Low;
        let concerns =
            |event: &Event| event.scope == Scope::Everywhere || event.scope == piece.scope;
        for entry in self
            .anywhere(&ids)
            .await?
            .iter()
            .filter(|entry| entry.event.is_statement() && concerns(&entry.event))
        {
            if entry.standing.is_active() && !(trusted && entry.is_quarantined()) {
                return Ok(true);
            }
            let undone = match entry.standing {
                Standing::Retracted { by } => self
                    .anywhere(&[by])
                    .await?
                    .iter()
                    .any(|act| act.event.content.starts_with(crate::history::UNDONE)),
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
    async fn append_replacing(&self, drafts: Vec<Draft>) -> Result<Vec<Event>> {
        let targets: BTreeSet<EventId> =
            drafts.iter().flat_map(|draft| draft.supersedes.iter().copied()).collect();
        let targets: Vec<EventId> = targets.into_iter().collect();
        self.against(&targets, |found| {
            let active = |id: &EventId| {
                found
                    .entries
                    .iter()
                    .any(|entry| entry.event.id == *id && entry.standing.is_active())
            };
            Ok(drafts
                .iter()
                .map(|draft| Draft {
                    supersedes: draft.supersedes.iter().copied().filter(active).collect(),
                    ..draft.clone()
                })
                .collect())
        })
        .await
    }
}

fn note(list: &mut Vec<String>, what: String) {
    if list.len() < TOLD {
        list.push(what);
    }
}

/// A record as input of the extraction.
fn piece(record: &Record) -> Piece<'_> {
    let session = record.session.as_ref().map_or_else(
        || record.conversation.clone(),
        |name| format!("{}/{name}", record.conversation),
    );
    Piece {
        source: format!("{}#{}", record.path(), record.id),
        text: &record.text,
        origin: record.origin,
        speaker: record.other_speaker.as_deref(),
        said: record.ts,
        session: Some(session),
        scope: record.project().map_or(Scope::Everywhere, Scope::Project),
    }
}

/// The known statements from the view of each project: those that hold everywhere and its own.
/// Decisions of another project are neither known nor replaced.
struct Worlds {
    recent: Vec<Event>,
    known: HashMap<Scope, KnownTexts>,
}

impl Worlds {
    fn of(&mut self, scope: &Scope) -> &mut KnownTexts {
        let seen = self
            .recent
            .iter()
            .filter(|event| event.scope == Scope::Everywhere || event.scope == *scope);
        let texts = seen.map(|event| {
            (event.id, event.entity.as_deref().unwrap_or_default(), event.content.as_str())
        });
        self.known.entry(scope.clone()).or_insert_with(|| KnownTexts::of(texts))
    }

    /// Adds the statements learnt in one project to the views of the others, where they apply.
    fn add(&mut self, events: Vec<Event>, learnt_in: &Scope) {
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
    fn piece(&self) -> Piece<'_> {
        Piece {
            source: self.source.clone(),
            text: &self.text,
            origin: Origin::File,
            speaker: None,
            said: self.said,
            session: None,
            scope: Scope::Everywhere,
        }
    }
}

/// The lines of a log from a byte on, without the priority extracts, which are captured separately.
fn log_lines(day: Date, log: &[u8], from: usize, now: Moment) -> Vec<LogLine> {
    let text = String::from_utf8_lossy(log);
    let extracts: BTreeSet<usize> = extract::section_lines(&text).collect();
    let said = if now.day() == day {
        now
    } else {
        Moment::read(&format!("{day}T12:00:00{}", offset(now))).map_or(now, |read| read.moment)
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
                text: untimed(line).to_owned(),
                said,
                end,
            }),
        }
    }
    lines
}

/// A log line without its bullet and time.
fn untimed(line: &str) -> &str {
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
