//! The lifecycle of a running assistant session, as its hooks report it (K1, K12, L7, L8): records
//! what is said, and injects what the session should know, each item once.
//!
//! - A client reports a turn before its transcript does, and the transcript reports it again. Both
//!   become one record, because the id is derived from the text.
//! - A turn that is private or paused is never recorded.
//! - What a session received is a private note of the store. Losing it costs a repetition, never
//!   memory.
//! - A hook waits for another process only briefly. If the store stays busy, records go to pending
//!   notes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use icecore_domain::budget;
use icecore_domain::calendar::{Days, Moment, days_between};
use icecore_domain::event::{Origin, Scope};
use icecore_domain::hash::Hash;
use icecore_domain::import::{ImportBatch, ImportFormat, ImportPosition, ImportReader};
use icecore_domain::layout::{self, DocPath};
use icecore_domain::packs::Pack;
use icecore_domain::packs::working::{self, WorkingContext};
use icecore_domain::pause::{self, Pause, PauseScope, Pauses};
use icecore_domain::record::{self, IncomingMessage, Record, RecordKind, Role};
use icecore_domain::{private, sanitize};
use icecore_store::{Error as StoreError, ErrorKind as StoreErrorKind, Lease};
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::capture::{TRANSCRIPTS_CONVERSATION, message_label};
use crate::recall::StartingSession;
pub use crate::recall::{PackBudget, PackItem};
use crate::{
    CaptureDefaults, CaptureReport, Error, Memory, Result, SavedState, SessionKind,
    TranscriptReport,
};

/// A session as its client reports it. Its names are untrusted; they become part of no path.
#[derive(Debug, Clone, Default)]
pub struct LiveSession {
    pub session: String,
    pub project: Option<String>,
    pub client: String,
    /// The path of the transcript, as the client reports it.
    pub transcript: Option<String>,
    /// The client's own id of this turn, if it has one.
    pub turn: Option<String>,
}

/// A subagent of a session, as the client reports it.
#[derive(Debug, Clone, Default)]
pub struct SubagentReport {
    /// Its id within the session.
    pub id: String,
    pub kind: Option<String>,
    /// Its final answer.
    pub reply: Option<String>,
    /// Its transcript, as far as it is written.
    pub transcript: Option<String>,
}

/// How a session starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionStart {
    /// With an empty context.
    New,
    /// With the conversation so far.
    Resumed,
    /// With a summary of the conversation so far.
    Compacted,
}

/// The context injected into a session.
#[derive(Debug, Clone, Default)]
pub struct InjectedContext {
    /// `None` if there is nothing to say.
    pub text: Option<String>,
    /// What the text contains, and why.
    pub items: Vec<PackItem>,
    /// What failed along the way. A pack is delivered even if nothing can be written.
    pub complaints: Vec<String>,
    /// Why the prompt could not be saved anywhere, if it could not.
    pub unsaved: Option<String>,
}

impl InjectedContext {
    /// Continues with a default value after a failure, and reports the failure.
    fn or_complain<T: Default>(&mut self, outcome: Result<T>) -> T {
        outcome.unwrap_or_else(|error| {
            self.complaints.push(error.to_string());
            T::default()
        })
    }
}

/// An entry of the injection log: what a session received.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct InjectionRecord {
    pub ts: String,
    /// The hook event.
    pub event: String,
    pub session: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    /// The beginning of the prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    pub chars: usize,
    /// What the text contains, and why.
    pub items: Vec<PackItem>,
    /// What did not fit.
    #[serde(default)]
    pub left_out: Vec<String>,
    pub text: String,
}

/// Work that a hook could not do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HookFailure {
    pub ts: String,
    /// The hook event.
    pub event: String,
    pub what: String,
}

/// An ended session whose transcript still has to be imported.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct EndedSession {
    pub session: String,
    #[serde(default)]
    pub project: Option<String>,
    /// The path of the transcript, as the client reported it.
    #[serde(default)]
    pub transcript: Option<String>,
    #[serde(default)]
    pub client: String,
}

/// An ended session that could not be read, with the time of the next attempt.
#[derive(Debug, Serialize, Deserialize)]
struct Retry {
    #[serde(flatten)]
    due: EndedSession,
    failures: u32,
    /// No attempt before this time.
    not_before: String,
}

/// The note about a session.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
struct SessionNote {
    session: String,
    project: Option<String>,
    client: String,
    transcript: Option<String>,
    /// The time of the last report about it.
    at: Option<String>,
    /// The items injected since its context was last empty.
    given: BTreeSet<String>,
    /// How often each text occurred in it.
    heard: BTreeMap<String, usize>,
    /// The last prompt: its text key, its turn and its time.
    prompted: Option<(String, Option<String>, i64)>,
    /// The text keys of the answers to that prompt.
    replied: BTreeSet<String>,
    /// The current turn is private.
    private: bool,
    /// Something in it was withheld, so a summary of the session is not recorded either.
    withheld: bool,
    /// Its working state before the context was compacted.
    state: Option<String>,
    /// It was imported to its end.
    finished: bool,
    /// The settings mistake that the user was last warned about.
    warned: Option<String>,
}

/// The same prompt within this time is a duplicate report: a client may run one hook from two
/// places.
const DUPLICATE_PROMPT_SECS: i64 = 3;
/// The most items that a session note lists as injected or heard.
const MAX_NOTED_ITEMS: usize = 5_000;
/// The hook event of a failure after which a session is not tried again.
pub(crate) const UNREAD_SESSION: &str = "unread-session";
/// Size limits of the logs.
const MAX_INJECTION_LOG_BYTES: u64 = 2 * 1024 * 1024;
const MAX_FAILURE_LOG_BYTES: u64 = 64 * 1024;
const MAX_PROJECT_LOG_BYTES: u64 = 256 * 1024;
/// The most pending notes.
const MAX_PENDING_NOTES: usize = 10_000;
/// The most pending notes that are stored at once.
const PENDING_BATCH_NOTES: usize = 500;
/// The folder of pending notes.
const PENDING_FOLDER: &str = "hooks/waiting";
/// The length of a prompt excerpt in the injection log.
const MAX_EXCERPT_BYTES: usize = 160;
/// A session without a report for this long has ended, whether its client said so or not.
const SILENT_SESSION_SECS: i64 = 6 * 3_600;
/// The most attempts to read a session.
const MAX_READ_ATTEMPTS: u32 = 6;
/// The delay of the second attempt; each further delay is four times as long.
const RETRY_SECS: i64 = 30;
/// How long notes of finished sessions are retained.
const NOTE_RETENTION_SECS: i64 = 30 * 24 * 3_600;
/// The most recent records that are searched for a session without records in the last two days.
const MAX_RECENT_RECORDS: usize = 500;
/// A subagent's last messages may reach its transcript this long after the client reports them.
const TRANSCRIPT_DELAY: SignedDuration = SignedDuration::from_secs(60);
/// How long failures are reported.
const FAILURE_REPORT_DAYS: i64 = 7;
/// A state that the assistant saved itself within this time is added to a state that icecore
/// collected.
const OWN_STATE_MINUTES: i64 = 60;

fn doc_path(text: &str) -> Result<DocPath> {
    Ok(text.parse().map_err(StoreError::from)?)
}

fn session_note_path(session: &str) -> Result<DocPath> {
    doc_path(&format!("hooks/sessions/{}.json", &Hash::of(session.as_bytes()).to_string()[..20]))
}

fn retry_note_path(session: &str) -> Result<DocPath> {
    doc_path(&format!("hooks/retry/{}.json", &Hash::of(session.as_bytes()).to_string()[..20]))
}

/// Whether a write failed only because another process was writing.
fn is_busy(error: &Error) -> bool {
    matches!(
        error,
        Error::Store(StoreError { kind: StoreErrorKind::Busy | StoreErrorKind::Conflict, .. })
    )
}

/// Waits without blocking the other tasks of a runtime, if there is one; hooks run without.
async fn sleep(time: Duration) {
    match tokio::runtime::Handle::try_current() {
        Ok(_) => tokio::time::sleep(time).await,
        Err(_) => std::thread::sleep(time),
    }
}

fn project_scopes(project: Option<&str>) -> Vec<Scope> {
    project.map(|name| Scope::Project(name.to_owned())).into_iter().collect()
}

impl SessionNote {
    fn touch(&mut self, session: &LiveSession, now: Moment) {
        self.session.clone_from(&session.session);
        self.client.clone_from(&session.client);
        self.project.clone_from(&session.project);
        if session.transcript.is_some() {
            self.transcript.clone_from(&session.transcript);
        }
        self.at = Some(now.to_string());
        self.finished = false;
    }

    fn add_injected(&mut self, pack: &Pack) {
        if self.given.len() < MAX_NOTED_ITEMS {
            self.given.extend(pack.sources.iter().cloned());
        }
    }

    /// Counts a text and returns how often it occurred before.
    fn count_text(&mut self, words: String) -> usize {
        if self.heard.len() >= MAX_NOTED_ITEMS {
            self.heard.clear();
        }
        let times = self.heard.entry(words).or_default();
        *times += 1;
        *times - 1
    }
}

impl Memory {
    /// Every pause on record.
    pub async fn pauses(&self) -> Result<Pauses> {
        Ok(self
            .store
            .document(&doc_path(layout::PAUSES)?)
            .await?
            .map_or_else(Pauses::default, |text| Pauses::parse(&text)))
    }

    /// Starts a pause: nothing within its reach is recorded from now on.
    pub async fn pause(&self, reach: PauseScope, until: Option<Moment>) -> Result<Pause> {
        let now = self.now();
        self.append_line(&doc_path(layout::PAUSES)?, &pause::pause_line(now, &reach, until))
            .await?;
        Ok(Pause { scope: reach, from: now, until })
    }

    /// Starts a pause for a number of seconds; without a number, until it is ended.
    pub async fn pause_for(&self, reach: PauseScope, seconds: Option<i64>) -> Result<Pause> {
        let until = match seconds {
            Some(seconds) => {
                let end = self.now().timestamp().checked_add(SignedDuration::from_secs(seconds));
                Some(self.zone.moment(end.map_err(|_| {
                    Error::InvalidRequest("the pause is too long; choose a shorter one".into())
                })?))
            }
            None => None,
        };
        self.pause(reach, until).await
    }

    /// Ends the pauses of a reach and returns them. `Everything` ends all of them.
    pub async fn resume(&self, reach: &PauseScope) -> Result<Vec<Pause>> {
        let now = self.now();
        let pauses = self.pauses().await?;
        let ending: Vec<Pause> = pauses
            .active_at(now.timestamp())
            .filter(|pause| *reach == PauseScope::Everything || pause.scope == *reach)
            .cloned()
            .collect();
        if !ending.is_empty() {
            self.append_line(&doc_path(layout::PAUSES)?, &pause::resume_line(now, reach)).await?;
        }
        Ok(ending)
    }

    /// The session that was reported last.
    pub async fn newest_session(&self) -> Result<Option<String>> {
        let notes = self.store.notes(&doc_path("hooks/sessions")?).await?;
        let Some((name, _)) = notes.into_iter().max_by_key(|(_, at)| *at) else { return Ok(None) };
        Ok(self.read_note(&name).await?.map(|noted| noted.session).filter(|name| !name.is_empty()))
    }

    async fn read_note(&self, name: &DocPath) -> Result<Option<SessionNote>> {
        // A note that cannot be read counts as missing.
        Ok(self.store.note(name).await?.and_then(|bytes| serde_json::from_slice(&bytes).ok()))
    }

    async fn write_note(&self, name: &DocPath, note: &SessionNote) -> Result<()> {
        Ok(self.store.put_note(name, &serde_json::to_vec(note).unwrap_or_default()).await?)
    }

    /// Locks the note of a session. Hooks of one session may run at the same time. A hook that does
    /// not get the lock soon continues without it; at worst an item is injected twice.
    async fn lock_session_note(&self, session: &str) -> Result<Option<Lease>> {
        let work = format!("session-{:x}", Hash::of(session.as_bytes()).as_bytes()[0] % 16);
        // Longer each time, so that a slow store is asked only a few times.
        for pause_ms in [5, 15, 40, 80, 160, 0] {
            if let Some(claimed) = self.store.acquire_lease(&work).await? {
                return Ok(Some(claimed));
            }
            sleep(Duration::from_millis(pause_ms)).await;
        }
        Ok(None)
    }

    /// Starts or continues a session: returns what it should know (L17, K6).
    pub async fn start_session(
        &self,
        session: &LiveSession,
        begun: SessionStart,
        room: PackBudget,
    ) -> Result<InjectedContext> {
        let name = session_note_path(&session.session)?;
        let mut given = InjectedContext::default();
        let _alone = given.or_complain(self.lock_session_note(&session.session).await);
        let known = given.or_complain(self.read_note(&name).await);
        if known.is_none() {
            given.or_complain(self.record_project(session).await);
        }
        let mut noted = known.unwrap_or_default();
        noted.touch(session, self.now());
        if self.is_provisional {
            given.or_complain(self.write_note(&name, &noted).await);
            return Ok(given);
        }
        if begun != SessionStart::Resumed {
            // The context is empty: what was injected before is gone.
            noted.given.clear();
        }
        given.or_complain(self.flush_pending().await);
        let state = noted.state.clone().filter(|_| begun != SessionStart::New);
        let projects = given.or_complain(self.session_projects().await);
        let starting = StartingSession {
            session: &session.session,
            project: session.project.as_deref(),
            state: state.as_deref(),
            projects: &projects,
        };
        let (pack, items) = self
            .build_client_session_start(self.as_of(None)?, SessionKind::Main, room, Some(&starting))
            .await?;
        noted.add_injected(&pack);
        given.or_complain(self.write_note(&name, &noted).await);
        if !pack.sections.is_empty() {
            given.or_complain(
                self.log_injection("session-start", session, None, &pack, &items).await,
            );
            (given.text, given.items) = (Some(pack.text), items);
        }
        Ok(given)
    }

    /// Records a prompt, and returns the context that belongs to it (L7, L8).
    pub async fn record_prompt(
        &self,
        session: &LiveSession,
        prompt: &str,
        room: PackBudget,
    ) -> Result<InjectedContext> {
        let name = session_note_path(&session.session)?;
        let mut given = InjectedContext::default();
        let _alone = given.or_complain(self.lock_session_note(&session.session).await);
        let known = given.or_complain(self.read_note(&name).await);
        if known.is_none() {
            given.or_complain(self.record_project(session).await);
        }
        let mut noted = known.unwrap_or_default();
        let now = self.now();
        noted.touch(session, now);
        let text = self.filter_without_report(prompt).trim().to_owned();
        let words = record::turn_words_key(Some(&session.session), Role::User, &text);
        let this = (words, session.turn.clone(), now.timestamp().as_second());
        let twice = noted.prompted.as_ref().is_some_and(|(words, turn, at)| {
            *words == this.0
                && if turn.is_some() && this.1.is_some() {
                    *turn == this.1
                } else {
                    this.2 - at < DUPLICATE_PROMPT_SECS
                }
        });
        if twice || text.is_empty() {
            return Ok(given);
        }
        noted.prompted = Some(this);
        noted.replied.clear();
        noted.private = private::is_private_turn(&text);
        // Without the list of pauses nobody knows whether this may be recorded.
        let paused = match self.pauses().await {
            Ok(pauses) => pauses
                .covering(Some(&session.session), session.project.as_deref(), now.timestamp())
                .is_some(),
            Err(error) => {
                given.unsaved = Some(error.to_string());
                true
            }
        };
        let (open, parts) = private::strip_private_parts(&text);
        noted.withheld |= noted.private || paused || parts > 0;
        if !noted.private && !paused {
            match self.capture_message(session, Role::User, None, &open, &mut noted).await {
                Ok(taken) => given.complaints.extend(taken.complaints),
                Err(error) => given.unsaved = Some(error.to_string()),
            }
        }
        // Before any lookup: however long that takes, the prompt is safe.
        given.or_complain(self.write_note(&name, &noted).await);
        if self.is_provisional {
            return Ok(given);
        }
        let outcome = self
            .build_session_prompt_pack(
                &text,
                &project_scopes(session.project.as_deref()),
                &noted.given,
                room,
            )
            .await
            .map(Some);
        let pack = given.or_complain(outcome);
        if let Some((pack, _)) = &pack {
            noted.add_injected(pack);
            given.or_complain(self.write_note(&name, &noted).await);
        }
        if let Some((pack, items)) = pack.filter(|(pack, _)| !pack.text.is_empty()) {
            let shown = Some(text.as_str()).filter(|_| !noted.private && !paused);
            given.or_complain(
                self.log_injection("user-prompt-submit", session, shown, &pack, &items).await,
            );
            (given.text, given.items) = (Some(pack.text), items);
        }
        Ok(given)
    }

    /// Records the work of a subagent as a session of its own, which names its parent session. The
    /// answer comes from the client, since transcripts are written late. The rest comes from the
    /// transcript, now and when the session ends.
    pub async fn record_subagent(
        &self,
        session: &LiveSession,
        helper: &SubagentReport,
    ) -> Result<CaptureReport> {
        let note = session_note_path(&session.session)?;
        let mut taken = CaptureReport::default();
        // The words are stored without the note's lock, and although the note cannot be written. If
        // it cannot be read, nobody knows whether the turn is private.
        let _alone = taken.or_complain(self.lock_session_note(&session.session).await);
        let mut noted = self.read_note(&note).await?.unwrap_or_default();
        let now = self.now();
        noted.touch(session, now);
        taken.or_complain(self.write_note(&note, &noted).await);
        if noted.private {
            // The transcript stays where it is, and a later import cannot see that the turn was
            // private.
            let begun =
                noted.prompted.as_ref().and_then(|(.., at)| Timestamp::from_second(*at).ok());
            let reach = PauseScope::Session(record::helper_session(&session.session, &helper.id));
            let until = self.zone.moment(now.timestamp() + TRANSCRIPT_DELAY);
            let line = pause::pause_line(
                begun.map_or(now, |at| self.zone.moment(at)),
                &reach,
                Some(until),
            );
            self.append_line(&doc_path(layout::PAUSES)?, &line).await?;
            taken.withheld = 1;
            return Ok(taken);
        }
        taken.merge(self.import_subagent(session, helper).await?.capture);
        Ok(taken)
    }

    /// Imports the prompt, the answer and the transcript of a subagent, each message once.
    pub async fn import_subagent(
        &self,
        session: &LiveSession,
        helper: &SubagentReport,
    ) -> Result<TranscriptReport> {
        self.refresh_tombstones().await?;
        let mut harvest = ImportBatch::default();
        let mut reader =
            ImportReader::new(ImportFormat::ClaudeCode, self.zone.offset(self.now().timestamp()));
        for (at, line) in helper
            .transcript
            .as_deref()
            .unwrap_or_default()
            .lines()
            .enumerate()
            .filter(|(_, line)| !line.trim().is_empty())
        {
            // `record` finds the project from the folder, as for every transcript.
            reader.read_piece(
                ImportPosition { number: at + 1, at: 0 },
                line.trim(),
                &|_| None,
                &mut harvest,
            );
        }
        reader.finish(&mut harvest);
        let raw = |text: &str| serde_json::Value::from(text).to_string();
        let mut said: Vec<IncomingMessage> =
            harvest.messages.into_iter().map(|(_, said)| said).collect();
        // The parent's turns in a subagent's transcript are in the parent's own transcript too.
        said.retain(|said| said.session.as_deref().and_then(record::parent_session).is_some());
        let own = said.first().and_then(|said| said.session.clone());
        let own = own.unwrap_or_else(|| record::helper_session(&session.session, &helper.id));
        let turns = said.len();
        let mut taken = CaptureReport::default();
        let pauses = self.pauses().await?;
        let mut gated = |said| {
            self.filter_messages(
                said,
                &CaptureDefaults::default(),
                self.now(),
                &pauses,
                &message_label,
                &mut taken,
            )
        };
        let mut records = gated(said);
        let reply =
            helper.reply.as_deref().filter(|reply| !reply.trim().is_empty()).and_then(|reply| {
                let mut extra =
                    vec![(record::PARENT_SESSION_FIELD.to_owned(), raw(&session.session))];
                extra.extend(
                    helper.kind.as_deref().map(|kind| ("agent_type".to_owned(), raw(kind))),
                );
                extra.extend(
                    session
                        .project
                        .as_deref()
                        .map(|name| (record::PROJECT_FIELD.to_owned(), raw(name))),
                );
                let said = IncomingMessage {
                    conversation: Some(TRANSCRIPTS_CONVERSATION.into()),
                    session: Some(own.clone()),
                    role: Some(Role::Assistant),
                    text: reply.to_owned(),
                    extra,
                    ..IncomingMessage::default()
                };
                gated(vec![said]).pop()
            });
        let words = |record: &Record| {
            record::turn_words_key(record.session.as_deref(), record.role, &record.text)
        };
        // The answer may be in the transcript already.
        records.extend(
            reply.filter(|reply| !records.iter().any(|other| words(other) == words(reply))),
        );
        let records = self.match_stored_ids(records, true, &mut taken).await?;
        let mut sessions: Vec<record::SessionKey> =
            records.iter().map(Record::session_key).collect();
        sessions.sort();
        sessions.dedup();
        self.append_or_defer(records, &mut taken).await?;
        let skipped = harvest.skipped.into_iter().collect();
        Ok(TranscriptReport {
            shape: ImportFormat::ClaudeCode.to_string(),
            turns,
            skipped,
            capture: taken,
            sessions,
        })
    }

    /// Whether something in a session was withheld.
    pub async fn has_withheld(&self, session: &str) -> Result<bool> {
        Ok(self.read_note(&session_note_path(session)?).await?.is_some_and(|noted| noted.withheld))
    }

    /// Records an answer of the assistant, or of the subagent `name`.
    pub async fn record_reply(
        &self,
        session: &LiveSession,
        reply: &str,
        name: Option<&str>,
    ) -> Result<CaptureReport> {
        let note = session_note_path(&session.session)?;
        let mut taken = CaptureReport::default();
        // A session goes on without its note; at worst a message is recorded twice.
        let _alone = taken.or_complain(self.lock_session_note(&session.session).await);
        let mut noted: SessionNote =
            taken.or_complain(self.read_note(&note).await).unwrap_or_default();
        noted.touch(session, self.now());
        // The same answer to the same prompt is a duplicate report.
        let words =
            record::turn_words_key(name, Role::Assistant, &self.filter_without_report(reply));
        if noted.private {
            taken.withheld = 1;
        } else if !noted.replied.insert(words) {
            taken.same = 1;
        } else {
            taken.merge(
                self.capture_message(session, Role::Assistant, name, reply, &mut noted).await?,
            );
        }
        taken.or_complain(self.write_note(&note, &noted).await);
        Ok(taken)
    }

    /// Records a message, or defers it if the store is unavailable. An error means that it was
    /// saved nowhere.
    async fn capture_message(
        &self,
        session: &LiveSession,
        role: Role,
        name: Option<&str>,
        text: &str,
        note: &mut SessionNote,
    ) -> Result<CaptureReport> {
        let mut taken = CaptureReport::default();
        let text = self.filter_without_report(text);
        if text.trim().is_empty() {
            taken.passed_over = 1;
            return Ok(taken);
        }
        let times = note.count_text(record::turn_words_key(
            Some(&session.session),
            role,
            &format!("{}{text}", name.unwrap_or_default()),
        ));
        let project = session.project.as_ref().map(|name| {
            (record::PROJECT_FIELD.to_owned(), serde_json::Value::from(name.as_str()).to_string())
        });
        let said = IncomingMessage {
            conversation: Some(TRANSCRIPTS_CONVERSATION.into()),
            session: Some(session.session.clone()),
            // A subagent's answer is not one of the session's own turns.
            id: Some(record::turn_id(
                Some(&session.session),
                role,
                &format!("{}{text}", name.unwrap_or_default()),
                times,
            )),
            role: Some(role),
            name: name.map(str::to_owned),
            text,
            extra: project.into_iter().collect(),
            ..IncomingMessage::default()
        };
        let pauses = self.pauses().await?;
        let records = self.filter_messages(
            vec![said],
            &CaptureDefaults::default(),
            self.now(),
            &pauses,
            &message_label,
            &mut taken,
        );
        self.append_or_defer(records, &mut taken).await?;
        Ok(taken)
    }

    /// Appends records. If the store is unavailable, or older records are pending, they become
    /// pending too.
    async fn append_or_defer(
        &self,
        records: Vec<Record>,
        report: &mut CaptureReport,
    ) -> Result<()> {
        if !self.flush_leaves_pending(report).await {
            match self.append_records(records.clone(), report).await {
                Err(error) if !is_busy(&error) => report
                    .complaints
                    .push(format!("the message is saved as a pending note for now: {error}")),
                Err(_) => {}
                Ok(()) => return Ok(()),
            }
        }
        self.defer_records(&records).await
    }

    /// Saves records as one pending note. That needs neither the store's lock nor a readable ledger
    /// nor settings.
    async fn defer_records(&self, records: &[Record]) -> Result<()> {
        if records.is_empty() {
            return Ok(());
        }
        let folder = doc_path(PENDING_FOLDER)?;
        let waiting = self.store.notes(&folder).await?;
        if waiting.len() >= MAX_PENDING_NOTES {
            let why = "run `icecore doctor` to see why the vault cannot be written";
            return Err(Error::LimitExceeded(format!(
                "{MAX_PENDING_NOTES} messages are pending already, which is the limit; {why}"
            )));
        }
        // Numbered, so that they are stored in the order in which they came.
        let number = |(name, _): &(DocPath, i64)| {
            name.as_str().strip_prefix(PENDING_FOLDER)?.get(1..9)?.parse::<u32>().ok()
        };
        let next = waiting.iter().filter_map(number).max().map_or(0, |last| last + 1);
        let lines: String = records.iter().map(Record::to_line).collect();
        let name = doc_path(&format!(
            "{folder}/{next:08}-{}.jsonl",
            &Hash::of(lines.as_bytes()).to_string()[..20]
        ))?;
        let written = self.store.append_note(&name, lines.trim_end(), u64::MAX, true).await;
        if written.is_err() {
            // On a full disk half of the note may exist.
            let _ = self.store.remove_note(&name).await;
        }
        Ok(written?)
    }

    /// Stores pending notes and returns whether some are left. New records then have to wait behind
    /// them. Notes that cannot be listed block nothing.
    async fn flush_leaves_pending(&self, report: &mut CaptureReport) -> bool {
        self.is_provisional || report.or_complain(self.flush_pending().await) > 0
    }

    /// Stores pending notes, and returns how many are left.
    pub async fn flush_pending(&self) -> Result<usize> {
        let mut waiting = self.store.notes(&doc_path(PENDING_FOLDER)?).await?;
        if waiting.is_empty() {
            return Ok(0);
        }
        let all = waiting.len();
        waiting.truncate(PENDING_BATCH_NOTES);
        self.refresh_tombstones().await?;
        let (mut records, mut read) = (Vec::new(), Vec::new());
        for (name, _) in &waiting {
            // A note without a final line feed is still being written, or was cut off before it was
            // acknowledged.
            let Some(bytes) = self.store.note(name).await?.filter(|bytes| bytes.ends_with(b"\n"))
            else {
                continue;
            };
            read.push(name);
            for mut record in record::parse_file(&bytes).0 {
                // A note written without the settings has times of another zone.
                (record.ts, record.captured) = (
                    self.zone.moment(record.ts.timestamp()),
                    self.zone.moment(record.captured.timestamp()),
                );
                records.extend(self.scrub_record(record, &mut CaptureReport::default()));
            }
        }
        match self.store.add_records(records).await {
            Err(StoreError { kind: StoreErrorKind::Busy | StoreErrorKind::Conflict, .. }) => {
                return Ok(all);
            }
            other => other?,
        };
        for name in read {
            self.store.remove_note(name).await?;
        }
        Ok(all - waiting.len())
    }

    /// Stores all pending notes, for an operation that depends on them, and returns how many are
    /// left.
    pub async fn flush_all_pending(&self) -> Result<usize> {
        let mut left = self.pending_note_count().await?;
        while left > 0 && !self.is_provisional {
            let now = self.flush_pending().await?;
            // Another process is writing.
            if now >= left {
                break;
            }
            left = now;
        }
        Ok(left)
    }

    /// The number of pending notes.
    pub async fn pending_note_count(&self) -> Result<usize> {
        Ok(self.store.notes(&doc_path(PENDING_FOLDER)?).await?.len())
    }

    /// Whether the settings could not be read, so that all records become pending notes.
    pub fn is_provisional(&self) -> bool {
        self.is_provisional
    }

    /// Records that the user of a session is warned of this mistake; `false` if they were warned of
    /// it before.
    pub async fn record_warning(&self, session: &LiveSession, mistake: &str) -> Result<bool> {
        let note = session_note_path(&session.session)?;
        let _alone = self.lock_session_note(&session.session).await?;
        let mut noted = self.read_note(&note).await?.unwrap_or_default();
        if noted.warned.as_deref() == Some(mistake) {
            return Ok(false);
        }
        noted.touch(session, self.now());
        noted.warned = Some(mistake.to_owned());
        self.write_note(&note, &noted).await?;
        Ok(true)
    }

    /// Imports a transcript as far as it is written. Turns that hooks recorded already are skipped.
    pub async fn import_live_transcript(
        &self,
        session: &LiveSession,
        text: &str,
    ) -> Result<TranscriptReport> {
        let gaps = CaptureDefaults {
            conversation: Some(TRANSCRIPTS_CONVERSATION.into()),
            session: Some(session.session.clone()),
            origin: None,
            ..CaptureDefaults::default()
        };
        self.import_transcript(text, &session.session, None, None, &gaps, true).await
    }

    /// Saves the working state before the client compacts the context (K1). `None` if the session
    /// has no records.
    pub async fn save_compaction_state(
        &self,
        session: &LiveSession,
        instructions: Option<&str>,
    ) -> Result<Option<SavedState>> {
        let note = session_note_path(&session.session)?;
        let now = self.now();
        if self
            .pauses()
            .await?
            .covering(Some(&session.session), session.project.as_deref(), now.timestamp())
            .is_some()
        {
            return Ok(None);
        }
        let yesterday = now.day().yesterday().unwrap_or(now.day());
        let records = self.store.records(Days { first: yesterday, last: now.day() }).await?;
        let is_own = |record: &&Record| record.session.as_deref() == Some(&session.session);
        let mut own: Vec<Record> = records.iter().filter(is_own).cloned().collect();
        if own.is_empty() {
            // A session that was idle for days, or whose clock differs.
            own = self.store.recent_records(TRANSCRIPTS_CONVERSATION, MAX_RECENT_RECORDS).await?;
            own.retain(|record| is_own(&record));
        }
        let around = WorkingContext {
            session: &session.session,
            project: session.project.as_deref(),
            instructions,
        };
        let Some(mut state) = working::working_state(&own, &around) else { return Ok(None) };
        let last = records.iter().rev().find(|record| record.kind == RecordKind::State);
        if let Some(last) = last.filter(|last| {
            let minutes = (now.timestamp().as_second() - last.ts.timestamp().as_second()) / 60;
            minutes < OWN_STATE_MINUTES && working::state_project(&last.text).is_none()
        }) {
            state.push_str(&format!(
                "\n\n## Saved before\n{}",
                budget::truncate_at_word(last.text.trim(), 3_000)
            ));
        }
        let _alone = self.lock_session_note(&session.session).await?;
        let mut noted = self.read_note(&note).await?.unwrap_or_default();
        noted.touch(session, now);
        noted.state = Some(self.filter_without_report(&state));
        self.write_note(&note, &noted).await?;
        let title = format!(
            "before compaction{}",
            session.project.as_ref().map_or(String::new(), |name| format!(", {name}"))
        );
        self.save_state(&state, Some(&title), Origin::Assistant).await.map(Some)
    }

    /// Saves the summary that the client made when it compacted the context: the best description
    /// of the working state.
    pub async fn save_compaction_summary(
        &self,
        session: &LiveSession,
        summary: &str,
    ) -> Result<Option<SavedState>> {
        let note = session_note_path(&session.session)?;
        let now = self.now();
        let paused = self
            .pauses()
            .await?
            .covering(Some(&session.session), session.project.as_deref(), now.timestamp())
            .is_some();
        // The client summarizes its whole context, including private turns, and nothing marks
        // those.
        let withheld = self.read_note(&note).await?.is_some_and(|noted| noted.withheld);
        if paused || withheld || summary.trim().is_empty() {
            return Ok(None);
        }
        let project = session
            .project
            .as_ref()
            .map_or(String::new(), |name| format!(" in project {}", sanitize::one_line(name)));
        let head = format!(
            "{}\n\nSession {}{project}.\n\n## Summary\n",
            working::STATE_TITLE,
            sanitize::one_line(&session.session)
        );
        let state = format!("{head}{}", self.filter_without_report(summary).trim());
        let _alone = self.lock_session_note(&session.session).await?;
        let mut noted = self.read_note(&note).await?.unwrap_or_default();
        noted.touch(session, now);
        noted.state = Some(budget::truncate_at_word(&state, 16 * 1024));
        self.write_note(&note, &noted).await?;
        let title = Some("compaction summary");
        match self.is_provisional {
            true => self.defer_state(&state, title).await,
            false => match self.save_state(&state, title, Origin::Assistant).await {
                Err(error) if is_busy(&error) => self.defer_state(&state, title).await,
                saved => saved.map(Some),
            },
        }
    }

    /// Saves a snapshot of a state as a pending note; it does not become the state to load next
    /// time.
    async fn defer_state(&self, state: &str, title: Option<&str>) -> Result<Option<SavedState>> {
        let (record, _) = self.build_state_record(state, title, Origin::Assistant)?;
        self.defer_records(&[record]).await?;
        Ok(None)
    }

    /// Lists an ended session for import.
    pub async fn end_session(&self, session: &LiveSession) -> Result<()> {
        let due = EndedSession {
            session: session.session.clone(),
            project: session.project.clone(),
            transcript: session.transcript.clone(),
            client: session.client.clone(),
        };
        // The importing process takes it off the list first; if that process dies, this note says
        // that the session is still to be imported.
        let note = session_note_path(&session.session)?;
        {
            let _alone = self.lock_session_note(&session.session).await?;
            let mut noted = self.read_note(&note).await?.unwrap_or_default();
            noted.touch(session, self.now());
            self.write_note(&note, &noted).await?;
        }
        let line = serde_json::to_string(&due).unwrap_or_default();
        let name = doc_path(&format!(
            "hooks/ended/{}.jsonl",
            &Hash::of(line.as_bytes()).to_string()[..20]
        ))?;
        // The same session may end twice; it is imported once for both.
        self.store.put_note(&name, format!("{line}\n").as_bytes()).await?;
        Ok(())
    }

    /// Ended sessions that were not imported yet. With `silent`, also sessions whose clients never
    /// reported the end, and sessions that could not be read before.
    pub async fn ended_sessions(&self, silent: bool) -> Result<Vec<(DocPath, EndedSession)>> {
        let mut found = Vec::new();
        for (name, _) in self.store.notes(&doc_path("hooks/ended")?).await? {
            let due = self
                .store
                .note(&name)
                .await?
                .and_then(|bytes| serde_json::from_slice(bytes.trim_ascii()).ok());
            match due {
                Some(due) => found.push((name, due)),
                // A partial line: the client will report the end again, or the session counts as
                // silent.
                None => self.store.remove_note(&name).await?,
            }
        }
        if !silent {
            return Ok(found);
        }
        let mut resting = BTreeSet::new();
        for (name, _) in self.store.notes(&doc_path("hooks/retry")?).await? {
            let Some(retry) = self.read_retry(&name).await? else {
                self.store.remove_note(&name).await?;
                continue;
            };
            let is_time = Moment::parse(&retry.not_before)
                .is_none_or(|read| read.moment.timestamp() <= self.now().timestamp());
            if !is_time {
                resting.insert(retry.due.session);
            } else if !found.iter().any(|(_, due)| due.session == retry.due.session) {
                found.push((name, retry.due));
            }
        }
        let now = self.now().timestamp().as_second();
        for (name, at) in self.store.notes(&doc_path("hooks/sessions")?).await? {
            if now - at < SILENT_SESSION_SECS {
                continue;
            }
            let noted = self.read_note(&name).await?.unwrap_or_default();
            if noted.finished || noted.session.is_empty() {
                if now - at > NOTE_RETENTION_SECS {
                    self.store.remove_note(&name).await?;
                }
                continue;
            }
            if !resting.contains(&noted.session)
                && !found.iter().any(|(_, due)| due.session == noted.session)
            {
                let due = EndedSession {
                    session: noted.session,
                    project: noted.project,
                    transcript: noted.transcript,
                    client: noted.client,
                };
                found.push((name, due));
            }
        }
        Ok(found)
    }

    /// Takes a session off the list before it is imported. If it ends again meanwhile, it is
    /// imported again; if the import dies, the session counts as silent later.
    pub async fn begin_session_import(&self, name: &DocPath, due: &EndedSession) -> Result<()> {
        if *name != session_note_path(&due.session)? && *name != retry_note_path(&due.session)? {
            self.store.remove_note(name).await?;
        }
        Ok(())
    }

    async fn read_retry(&self, name: &DocPath) -> Result<Option<Retry>> {
        Ok(self.store.note(name).await?.and_then(|bytes| serde_json::from_slice(&bytes).ok()))
    }

    /// Records that a session could not be read. It is tried again later unless that is hopeless;
    /// then `status` names it.
    pub async fn record_read_failure(
        &self,
        due: &EndedSession,
        why: &str,
        is_hopeless: bool,
    ) -> Result<()> {
        let name = retry_note_path(&due.session)?;
        let failures = self.read_retry(&name).await?.map_or(0, |retry| retry.failures) + 1;
        if is_hopeless || failures >= MAX_READ_ATTEMPTS {
            let by_hand = due.transcript.as_deref().map_or(String::new(), |path| {
                format!("; run `icecore import {}`", sanitize::one_line(path))
            });
            self.record_hook_failure(
                UNREAD_SESSION,
                &format!(
                    "session {} was not imported completely: {why}{by_hand}",
                    sanitize::one_line(&due.session)
                ),
            )
            .await?;
            return self.finish_session_import(due).await;
        }
        let pause = SignedDuration::from_secs(RETRY_SECS * 4_i64.pow(failures - 1));
        let not_before = self.zone.moment(self.now().timestamp() + pause).to_string();
        let retry = Retry { due: due.clone(), failures, not_before };
        self.store.put_note(&name, &serde_json::to_vec(&retry).unwrap_or_default()).await?;
        self.record_hook_failure(
            "session-end",
            &format!(
                "session {} could not be imported and will be tried again: {why}",
                sanitize::one_line(&due.session)
            ),
        )
        .await
    }

    /// Records that a session was imported to its end, or is given up.
    pub async fn finish_session_import(&self, due: &EndedSession) -> Result<()> {
        self.store.remove_note(&retry_note_path(&due.session)?).await?;
        let note = session_note_path(&due.session)?;
        if let Some(mut noted) = self.read_note(&note).await? {
            noted.finished = true;
            self.write_note(&note, &noted).await?;
        }
        Ok(())
    }

    /// The names of the projects of sessions and of the ledger, sorted.
    pub async fn project_names(&self) -> Result<Vec<String>> {
        let mut names: BTreeSet<String> = self.session_projects().await?.into_values().collect();
        names.extend(self.load_ledger().await?.entries().iter().filter_map(|entry| {
            match &entry.event.scope {
                Scope::Project(name) => Some(name.clone()),
                _ => None,
            }
        }));
        Ok(names.into_iter().collect())
    }

    /// The project of every recent session.
    async fn session_projects(&self) -> Result<BTreeMap<String, String>> {
        let text = self.store.note(&doc_path("hooks/projects.jsonl")?).await?.unwrap_or_default();
        let lines = text
            .split(|&byte| byte == b'\n')
            .filter_map(|line| serde_json::from_slice::<(String, String)>(line).ok());
        Ok(lines.collect())
    }

    async fn record_project(&self, session: &LiveSession) -> Result<()> {
        let Some(project) = &session.project else { return Ok(()) };
        let line = serde_json::to_string(&(&session.session, project)).unwrap_or_default();
        Ok(self
            .store
            .append_note(&doc_path("hooks/projects.jsonl")?, &line, MAX_PROJECT_LOG_BYTES, false)
            .await?)
    }

    async fn log_injection(
        &self,
        event: &str,
        session: &LiveSession,
        prompt: Option<&str>,
        pack: &Pack,
        items: &[PackItem],
    ) -> Result<()> {
        let injected = InjectionRecord {
            ts: self.now().to_string(),
            event: event.into(),
            session: session.session.clone(),
            project: session.project.clone(),
            prompt: prompt.map(|text| {
                budget::truncate_at_word(
                    &sanitize::one_line(&private::strip_private_parts(text).0),
                    MAX_EXCERPT_BYTES,
                )
            }),
            chars: pack.text.chars().count(),
            items: items.to_vec(),
            left_out: pack
                .left_out
                .iter()
                .map(|left| format!("{}: {}", left.what, left.why))
                .collect(),
            text: pack.text.clone(),
        };
        let line = serde_json::to_string(&injected).unwrap_or_default();
        Ok(self
            .store
            .append_note(&doc_path("hooks/injected.jsonl")?, &line, MAX_INJECTION_LOG_BYTES, false)
            .await?)
    }

    /// What sessions received, newest first.
    pub async fn injections(
        &self,
        most: usize,
        session: Option<&str>,
    ) -> Result<Vec<InjectionRecord>> {
        let text = self.store.note(&doc_path("hooks/injected.jsonl")?).await?.unwrap_or_default();
        let lines = text
            .split(|&byte| byte == b'\n')
            .filter_map(|line| serde_json::from_slice::<InjectionRecord>(line).ok());
        let mut found: Vec<InjectionRecord> =
            lines.filter(|one| session.is_none_or(|name| one.session == name)).collect();
        found.reverse();
        found.truncate(most);
        Ok(found)
    }

    /// Records a failure of a hook, for `status` and `doctor`.
    pub async fn record_hook_failure(&self, event: &str, what: &str) -> Result<()> {
        let trouble = HookFailure {
            ts: self.now().to_string(),
            event: event.into(),
            what: budget::truncate_at_word(
                &sanitize::one_line(&self.filter_without_report(what)),
                400,
            ),
        };
        let line = serde_json::to_string(&trouble).unwrap_or_default();
        Ok(self
            .store
            .append_note(&doc_path("hooks/troubles.jsonl")?, &line, MAX_FAILURE_LOG_BYTES, false)
            .await?)
    }

    /// The failures of hooks in the last days, newest first.
    pub async fn hook_failures(&self) -> Result<Vec<HookFailure>> {
        let today = self.now().day();
        let text = self.store.note(&doc_path("hooks/troubles.jsonl")?).await?.unwrap_or_default();
        let lines = text
            .split(|&byte| byte == b'\n')
            .filter_map(|line| serde_json::from_slice::<HookFailure>(line).ok());
        let recent = |trouble: &HookFailure| {
            Moment::parse(&trouble.ts).is_some_and(|read| {
                (0..=FAILURE_REPORT_DAYS).contains(&days_between(read.moment.day(), today))
            })
        };
        let mut found: Vec<HookFailure> = lines.filter(recent).collect();
        found.reverse();
        Ok(found)
    }
}
