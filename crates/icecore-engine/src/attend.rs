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
use icecore_domain::import::{Format, Harvest, Place, Reader};
use icecore_domain::layout::{self, DocPath};
use icecore_domain::packs::Pack;
use icecore_domain::packs::working::{self, Around};
use icecore_domain::pause::{self, Pause, Pauses, Reach};
use icecore_domain::record::{self, Captured, Record, Role, Said};
use icecore_domain::{plain, private};
use icecore_store::{Claimed, Error as StoreError};
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::capture::{TRANSCRIPTS, numbered};
use crate::recall::Starting;
pub use crate::recall::{Item, Room};
use crate::{Error, Gaps, Memory, Result, SessionKind, SessionTaken, StateSaved, Taken};

/// A session as its client reports it. Its names are untrusted; they become part of no path.
#[derive(Debug, Clone, Default)]
pub struct Attended {
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
pub struct Helper {
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
pub enum Begun {
    /// With an empty context.
    Anew,
    /// With the conversation so far.
    Again,
    /// With a summary of the conversation so far.
    Compacted,
}

/// The context injected into a session.
#[derive(Debug, Clone, Default)]
pub struct Given {
    /// `None` if there is nothing to say.
    pub text: Option<String>,
    /// What the text contains, and why.
    pub items: Vec<Item>,
    /// What failed along the way. A pack is delivered even if nothing can be written.
    pub complaints: Vec<String>,
    /// Why the prompt could not be saved anywhere, if it could not.
    pub unsaved: Option<String>,
}

impl Given {
    /// Continues with a default value after a failure, and reports the failure.
    fn despite<T: Default>(&mut self, outcome: Result<T>) -> T {
        outcome.unwrap_or_else(|error| {
            self.complaints.push(error.to_string());
            T::default()
        })
    }
}

/// An entry of the injection log: what a session received.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Injected {
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
    pub items: Vec<Item>,
    /// What did not fit.
    #[serde(default)]
    pub left_out: Vec<String>,
    pub text: String,
}

/// Work that a hook could not do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trouble {
    pub ts: String,
    /// The hook event.
    pub event: String,
    pub what: String,
}

/// An ended session whose transcript still has to be imported.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Due {
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
    due: Due,
    failures: u32,
    /// No attempt before this time.
    not_before: String,
}

/// The note about a session.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
struct Noted {
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
const TWICE_SECONDS: i64 = 3;
/// The most items that a session note lists as injected or heard.
const MOST_NOTED: usize = 5_000;
/// The hook event of a failure after which a session is not tried again.
pub(crate) const UNREAD: &str = "unread-session";
/// Size limits of the logs.
const INJECTED_BYTES: u64 = 2 * 1024 * 1024;
const TROUBLE_BYTES: u64 = 64 * 1024;
const PROJECTS_BYTES: u64 = 256 * 1024;
/// The most pending notes.
const MAX_WAITING_NOTES: usize = 10_000;
/// The most pending notes that are stored at once.
const WAITING_BATCH: usize = 500;
/// The folder of pending notes.
const WAITING: &str = "hooks/waiting";
/// The length of a prompt excerpt in the injection log.
const PROMPT_BYTES: usize = 160;
/// A session without a report for this long has ended, whether its client said so or not.
const SILENT_SECONDS: i64 = 6 * 3_600;
/// The most attempts to read a session.
const MAX_READ_TRIES: u32 = 6;
/// The delay of the second attempt; each further delay is four times as long.
const RETRY_SECS: i64 = 30;
/// How long notes of finished sessions are retained.
const KEPT_SECONDS: i64 = 30 * 24 * 3_600;
/// The most recent records that are searched for a session without records in the last two days.
const LAST_SAID: usize = 500;
/// A subagent's last messages may reach its transcript this long after the client reports them.
const LATE: SignedDuration = SignedDuration::from_secs(60);
/// How long failures are reported.
const TROUBLE_DAYS: i64 = 7;
/// A state that the assistant saved itself within this time is added to a state that icecore
/// collected.
const OWN_STATE_MINUTES: i64 = 60;

fn place(text: &str) -> Result<DocPath> {
    Ok(text.parse().map_err(StoreError::Path)?)
}

fn note_of(session: &str) -> Result<DocPath> {
    place(&format!("hooks/sessions/{}.json", &Hash::of(session.as_bytes()).to_string()[..20]))
}

fn retry_of(session: &str) -> Result<DocPath> {
    place(&format!("hooks/retry/{}.json", &Hash::of(session.as_bytes()).to_string()[..20]))
}

/// Whether a write failed only because another process was writing.
fn is_busy(error: &Error) -> bool {
    matches!(error, Error::Store(StoreError::Busy { .. } | StoreError::Moved { .. }))
}

/// Waits without blocking the other tasks of a runtime, if there is one; hooks run without.
async fn sleep(time: Duration) {
    match tokio::runtime::Handle::try_current() {
        Ok(_) => tokio::time::sleep(time).await,
        Err(_) => std::thread::sleep(time),
    }
}

fn scopes(project: Option<&str>) -> Vec<Scope> {
    project.map(|name| Scope::Project(name.to_owned())).into_iter().collect()
}

impl Noted {
    fn hear(&mut self, session: &Attended, now: Moment) {
        self.session.clone_from(&session.session);
        self.client.clone_from(&session.client);
        self.project.clone_from(&session.project);
        if session.transcript.is_some() {
            self.transcript.clone_from(&session.transcript);
        }
        self.at = Some(now.to_string());
        self.finished = false;
    }

    fn give(&mut self, pack: &Pack) {
        if self.given.len() < MOST_NOTED {
            self.given.extend(pack.sources.iter().cloned());
        }
    }

    /// Counts a text and returns how often it occurred before.
    fn count(&mut self, words: String) -> usize {
        if self.heard.len() >= MOST_NOTED {
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
            .document(&place(layout::PAUSES)?)
            .await?
            .map_or_else(Pauses::default, |text| Pauses::read(&text)))
    }

    /// Starts a pause: nothing within its reach is recorded from now on.
    pub async fn pause(&self, reach: Reach, until: Option<Moment>) -> Result<Pause> {
        let now = self.now();
        self.append_line(&place(layout::PAUSES)?, &pause::begun(now, &reach, until)).await?;
        Ok(Pause { reach, from: now, until })
    }

    /// Starts a pause for a number of seconds; without a number, until it is ended.
    pub async fn pause_for(&self, reach: Reach, seconds: Option<i64>) -> Result<Pause> {
        let until = match seconds {
            Some(seconds) => {
                let end = self.now().at().checked_add(SignedDuration::from_secs(seconds));
                Some(self.zone.moment(end.map_err(|_| {
                    Error::Unclear("the pause is too long; choose a shorter one".into())
                })?))
            }
            None => None,
        };
        self.pause(reach, until).await
    }

    /// Ends the pauses of a reach and returns them. `Everything` ends all of them.
    pub async fn resume(&self, reach: &Reach) -> Result<Vec<Pause>> {
        let now = self.now();
        let pauses = self.pauses().await?;
        let ending: Vec<Pause> = pauses
            .at(now.at())
            .filter(|pause| *reach == Reach::Everything || pause.reach == *reach)
            .cloned()
            .collect();
        if !ending.is_empty() {
            self.append_line(&place(layout::PAUSES)?, &pause::ended(now, reach)).await?;
        }
        Ok(ending)
    }

    /// The session that was reported last.
    pub async fn last_session(&self) -> Result<Option<String>> {
        let notes = self.store.notes(&place("hooks/sessions")?).await?;
        let Some((name, _)) = notes.into_iter().max_by_key(|(_, at)| *at) else { return Ok(None) };
        Ok(self.read_note(&name).await?.map(|noted| noted.session).filter(|name| !name.is_empty()))
    }

    async fn read_note(&self, name: &DocPath) -> Result<Option<Noted>> {
        // A note that cannot be read counts as missing.
        Ok(self.store.note(name).await?.and_then(|bytes| serde_json::from_slice(&bytes).ok()))
    }

    async fn keep_note(&self, name: &DocPath, noted: &Noted) -> Result<()> {
        Ok(self.store.put_note(name, &serde_json::to_vec(noted).unwrap_or_default()).await?)
    }

    /// Locks the note of a session. Hooks of one session may run at the same time. A hook that does
    /// not get the lock soon continues without it; at worst an item is injected twice.
    async fn alone_with(&self, session: &str) -> Result<Option<Claimed>> {
        let work = format!("session-{:x}", Hash::of(session.as_bytes()).bytes()[0] % 16);
        // Longer each time, so that a slow store is asked only a few times.
        for pause_ms in [5, 15, 40, 80, 160, 0] {
            if let Some(claimed) = self.store.claim(&work).await? {
                return Ok(Some(claimed));
            }
            sleep(Duration::from_millis(pause_ms)).await;
        }
        Ok(None)
    }

    /// Starts or continues a session: returns what it should know (L17, K6).
    pub async fn attend_start(
        &self,
        session: &Attended,
        begun: Begun,
        room: Room,
    ) -> Result<Given> {
        let name = note_of(&session.session)?;
        let mut given = Given::default();
        let _alone = given.despite(self.alone_with(&session.session).await);
        let known = given.despite(self.read_note(&name).await);
        if known.is_none() {
            given.despite(self.note_project(session).await);
        }
        let mut noted = known.unwrap_or_default();
        noted.hear(session, self.now());
        if self.is_provisional {
            given.despite(self.keep_note(&name, &noted).await);
            return Ok(given);
        }
        if begun != Begun::Again {
            // The context is empty: what was injected before is gone.
            noted.given.clear();
        }
        given.despite(self.take_waiting().await);
        let state = noted.state.clone().filter(|_| begun != Begun::Anew);
        let projects = given.despite(self.projects().await);
        let starting = Starting {
            session: &session.session,
            project: session.project.as_deref(),
            state: state.as_deref(),
            projects: &projects,
        };
        let (pack, items) = self
            .session_start(self.vantage(None)?, SessionKind::Main, room, Some(&starting))
            .await?;
        noted.give(&pack);
        given.despite(self.keep_note(&name, &noted).await);
        if !pack.sections.is_empty() {
            given.despite(self.note_given("session-start", session, None, &pack, &items).await);
            (given.text, given.items) = (Some(pack.text), items);
        }
        Ok(given)
    }

    /// Records a prompt, and returns the context that belongs to it (L7, L8).
    pub async fn attend_prompt(
        &self,
        session: &Attended,
        prompt: &str,
        room: Room,
    ) -> Result<Given> {
        let name = note_of(&session.session)?;
        let mut given = Given::default();
        let _alone = given.despite(self.alone_with(&session.session).await);
        let known = given.despite(self.read_note(&name).await);
        if known.is_none() {
            given.despite(self.note_project(session).await);
        }
        let mut noted = known.unwrap_or_default();
        let now = self.now();
        noted.hear(session, now);
        let text = self.gate_text(prompt).trim().to_owned();
        let words = record::heard_words(Some(&session.session), Role::User, &text);
        let this = (words, session.turn.clone(), now.at().as_second());
        let twice = noted.prompted.as_ref().is_some_and(|(words, turn, at)| {
            *words == this.0
                && if turn.is_some() && this.1.is_some() {
                    *turn == this.1
                } else {
                    this.2 - at < TWICE_SECONDS
                }
        });
        if twice || text.is_empty() {
            return Ok(given);
        }
        noted.prompted = Some(this);
        noted.replied.clear();
        noted.private = private::is_turn(&text);
        // Without the list of pauses nobody knows whether this may be recorded.
        let paused = match self.pauses().await {
            Ok(pauses) => {
                pauses.over(Some(&session.session), session.project.as_deref(), now.at()).is_some()
            }
            Err(error) => {
                given.unsaved = Some(error.to_string());
                true
            }
        };
        let (open, parts) = private::without_parts(&text);
        noted.withheld |= noted.private || paused || parts > 0;
        if !noted.private && !paused {
            match self.hear(session, Role::User, None, &open, &mut noted).await {
                Ok(taken) => given.complaints.extend(taken.complaints),
                Err(error) => given.unsaved = Some(error.to_string()),
            }
        }
        // Before any lookup: however long that takes, the prompt is safe.
        given.despite(self.keep_note(&name, &noted).await);
        if self.is_provisional {
            return Ok(given);
        }
        let outcome = self
            .pack_prompt(&text, &scopes(session.project.as_deref()), &noted.given, room)
            .await
            .map(Some);
        let pack = given.despite(outcome);
        if let Some((pack, _)) = &pack {
            noted.give(pack);
            given.despite(self.keep_note(&name, &noted).await);
        }
        if let Some((pack, items)) = pack.filter(|(pack, _)| !pack.text.is_empty()) {
            let shown = Some(text.as_str()).filter(|_| !noted.private && !paused);
            given.despite(
                self.note_given("user-prompt-submit", session, shown, &pack, &items).await,
            );
            (given.text, given.items) = (Some(pack.text), items);
        }
        Ok(given)
    }

    /// Records the work of a subagent as a session of its own, which names its parent session. The
    /// answer comes from the client, since transcripts are written late. The rest comes from the
    /// transcript, now and when the session ends.
    pub async fn attend_helper(&self, session: &Attended, helper: &Helper) -> Result<Taken> {
        let note = note_of(&session.session)?;
        let _alone = self.alone_with(&session.session).await?;
        let mut noted = self.read_note(&note).await?.unwrap_or_default();
        let now = self.now();
        noted.hear(session, now);
        self.keep_note(&note, &noted).await?;
        if noted.private {
            // The transcript stays where it is, and a later import cannot see that the turn was
            // private.
            let begun =
                noted.prompted.as_ref().and_then(|(.., at)| Timestamp::from_second(*at).ok());
            let reach = Reach::Session(record::helper_session(&session.session, &helper.id));
            let until = self.zone.moment(now.at() + LATE);
            let line =
                pause::begun(begun.map_or(now, |at| self.zone.moment(at)), &reach, Some(until));
            self.append_line(&place(layout::PAUSES)?, &line).await?;
            return Ok(Taken { withheld: 1, ..Taken::default() });
        }
        Ok(self.take_helper(session, helper).await?.taken)
    }

    /// Imports the prompt, the answer and the transcript of a subagent, each message once.
    pub async fn take_helper(&self, session: &Attended, helper: &Helper) -> Result<SessionTaken> {
        self.renew_tombstones().await?;
        let mut harvest = Harvest::default();
        let mut reader = Reader::new(Format::ClaudeCode, self.zone.offset(self.now().at()));
        for (at, line) in helper
            .transcript
            .as_deref()
            .unwrap_or_default()
            .lines()
            .enumerate()
            .filter(|(_, line)| !line.trim().is_empty())
        {
            // `record` finds the project from the folder, as for every transcript.
            reader.piece(Place { number: at + 1, at: 0 }, line.trim(), &|_| None, &mut harvest);
        }
        reader.finish(&mut harvest);
        let raw = |text: &str| serde_json::Value::from(text).to_string();
        let mut said: Vec<Said> = harvest.said.into_iter().map(|(_, said)| said).collect();
        // The parent's turns in a subagent's transcript are in the parent's own transcript too.
        said.retain(|said| said.session.as_deref().and_then(record::parent_session).is_some());
        let own = said.first().and_then(|said| said.session.clone());
        let own = own.unwrap_or_else(|| record::helper_session(&session.session, &helper.id));
        let turns = said.len();
        let mut taken = Taken::default();
        let pauses = self.pauses().await?;
        let mut gated = |said| {
            self.through_the_gate(
                said,
                &Gaps::default(),
                self.now(),
                &pauses,
                &numbered,
                &mut taken,
            )
        };
        let mut records = gated(said);
        let reply =
            helper.reply.as_deref().filter(|reply| !reply.trim().is_empty()).and_then(|reply| {
                let mut extra = vec![(record::PARENT_SESSION.to_owned(), raw(&session.session))];
                extra.extend(
                    helper.kind.as_deref().map(|kind| ("agent_type".to_owned(), raw(kind))),
                );
                extra.extend(
                    session.project.as_deref().map(|name| (record::PROJECT.to_owned(), raw(name))),
                );
                let said = Said {
                    conversation: Some(TRANSCRIPTS.into()),
                    session: Some(own.clone()),
                    role: Some(Role::Assistant),
                    text: reply.to_owned(),
                    extra,
                    ..Said::default()
                };
                gated(vec![said]).pop()
            });
        let words = |record: &Record| {
            record::heard_words(record.session.as_deref(), record.role, &record.text)
        };
        // The answer may be in the transcript already.
        records.extend(
            reply.filter(|reply| !records.iter().any(|other| words(other) == words(reply))),
        );
        let records = self.recognised(records, true, &mut taken).await?;
        let mut sessions: Vec<record::SessionKey> =
            records.iter().map(Record::session_key).collect();
        sessions.sort();
        sessions.dedup();
        self.keep_or_defer(records, &mut taken).await?;
        let skipped = harvest.skipped.into_iter().collect();
        Ok(SessionTaken { shape: Format::ClaudeCode.to_string(), turns, skipped, taken, sessions })
    }

    /// Whether something in a session was withheld.
    pub async fn is_withheld_in(&self, session: &str) -> Result<bool> {
        Ok(self.read_note(&note_of(session)?).await?.is_some_and(|noted| noted.withheld))
    }

    /// Records an answer of the assistant, or of the subagent `name`.
    pub async fn attend_reply(
        &self,
        session: &Attended,
        reply: &str,
        name: Option<&str>,
    ) -> Result<Taken> {
        let note = note_of(&session.session)?;
        let mut taken = Taken::default();
        // A session goes on without its note; at worst a message is recorded twice.
        let _alone = taken.despite(self.alone_with(&session.session).await);
        let mut noted: Noted = taken.despite(self.read_note(&note).await).unwrap_or_default();
        noted.hear(session, self.now());
        // The same answer to the same prompt is a duplicate report.
        let words = record::heard_words(name, Role::Assistant, &self.gate_text(reply));
        if noted.private {
            taken.withheld = 1;
        } else if !noted.replied.insert(words) {
            taken.same = 1;
        } else {
            taken.add(self.hear(session, Role::Assistant, name, reply, &mut noted).await?);
        }
        taken.despite(self.keep_note(&note, &noted).await);
        Ok(taken)
    }

    /// Records a message, or defers it if the store is unavailable. An error means that it was
    /// saved nowhere.
    async fn hear(
        &self,
        session: &Attended,
        role: Role,
        name: Option<&str>,
        text: &str,
        noted: &mut Noted,
    ) -> Result<Taken> {
        let mut taken = Taken::default();
        let text = self.gate_text(text);
        if text.trim().is_empty() {
            taken.passed_over = 1;
            return Ok(taken);
        }
        let times = noted.count(record::heard_words(
            Some(&session.session),
            role,
            &format!("{}{text}", name.unwrap_or_default()),
        ));
        let project = session.project.as_ref().map(|name| {
            (record::PROJECT.to_owned(), serde_json::Value::from(name.as_str()).to_string())
        });
        let said = Said {
            conversation: Some(TRANSCRIPTS.into()),
            session: Some(session.session.clone()),
            // A subagent's answer is not one of the session's own turns.
            id: Some(record::heard_id(
                Some(&session.session),
                role,
                &format!("{}{text}", name.unwrap_or_default()),
                times,
            )),
            role: Some(role),
            name: name.map(str::to_owned),
            text,
            extra: project.into_iter().collect(),
            ..Said::default()
        };
        let pauses = self.pauses().await?;
        let records = self.through_the_gate(
            vec![said],
            &Gaps::default(),
            self.now(),
            &pauses,
            &numbered,
            &mut taken,
        );
        self.keep_or_defer(records, &mut taken).await?;
        Ok(taken)
    }

    /// Appends records. If the store is unavailable, or older records are pending, they become
    /// pending too.
    async fn keep_or_defer(&self, records: Vec<Record>, taken: &mut Taken) -> Result<()> {
        if !self.is_waiting_behind(taken).await {
            match self.keep(records.clone(), taken).await {
                Err(error) if !is_busy(&error) => taken
                    .complaints
                    .push(format!("the message is saved as a pending note for now: {error}")),
                Err(_) => {}
                Ok(()) => return Ok(()),
            }
        }
        self.defer(&records).await
    }

    /// Saves records as one pending note. That needs neither the store's lock nor a readable ledger
    /// nor settings.
    async fn defer(&self, records: &[Record]) -> Result<()> {
        if records.is_empty() {
            return Ok(());
        }
        let folder = place(WAITING)?;
        let waiting = self.store.notes(&folder).await?;
        if waiting.len() >= MAX_WAITING_NOTES {
            let why = "run `icecore doctor` to see why the vault cannot be written";
            return Err(Error::TooMuch(format!(
                "{MAX_WAITING_NOTES} messages are pending already, which is the limit; {why}"
            )));
        }
        // Numbered, so that they are stored in the order in which they came.
        let number = |(name, _): &(DocPath, i64)| {
            name.as_str().strip_prefix(WAITING)?.get(1..9)?.parse::<u32>().ok()
        };
        let next = waiting.iter().filter_map(number).max().map_or(0, |last| last + 1);
        let lines: String = records.iter().map(Record::line).collect();
        let name = place(&format!(
            "{folder}/{next:08}-{}.jsonl",
            &Hash::of(lines.as_bytes()).to_string()[..20]
        ))?;
        let written = self.store.add_note(&name, lines.trim_end(), u64::MAX, true).await;
        if written.is_err() {
            // On a full disk half of the note may exist.
            let _ = self.store.remove_note(&name).await;
        }
        Ok(written?)
    }

    /// Stores pending notes and returns whether some are left. New records then have to wait behind
    /// them. Notes that cannot be listed block nothing.
    async fn is_waiting_behind(&self, taken: &mut Taken) -> bool {
        self.is_provisional || taken.despite(self.take_waiting().await) > 0
    }

    /// Stores pending notes, and returns how many are left.
    pub async fn take_waiting(&self) -> Result<usize> {
        let mut waiting = self.store.notes(&place(WAITING)?).await?;
        if waiting.is_empty() {
            return Ok(0);
        }
        let all = waiting.len();
        waiting.truncate(WAITING_BATCH);
        self.renew_tombstones().await?;
        let (mut records, mut read) = (Vec::new(), Vec::new());
        for (name, _) in &waiting {
            // A note without a final line feed is still being written, or was cut off before it was
            // acknowledged.
            let Some(bytes) = self.store.note(name).await?.filter(|bytes| bytes.ends_with(b"\n"))
            else {
                continue;
            };
            read.push(name);
            for mut record in record::read_file(&bytes).0 {
                // A note written without the settings has times of another zone.
                (record.ts, record.captured) =
                    (self.zone.moment(record.ts.at()), self.zone.moment(record.captured.at()));
                records.extend(self.record_unless_forgotten(record, &mut Taken::default()));
            }
        }
        match self.store.add_records(records).await {
            Err(StoreError::Busy { .. } | StoreError::Moved { .. }) => return Ok(all),
            other => other?,
        };
        for name in read {
            self.store.remove_note(name).await?;
        }
        Ok(all - waiting.len())
    }

    /// Stores all pending notes, for an operation that depends on them, and returns how many are
    /// left.
    pub async fn take_all_waiting(&self) -> Result<usize> {
        let mut left = self.waiting_notes().await?;
        while left > 0 && !self.is_provisional {
            let now = self.take_waiting().await?;
            // Another process is writing.
            if now >= left {
                break;
            }
            left = now;
        }
        Ok(left)
    }

    /// The number of pending notes.
    pub async fn waiting_notes(&self) -> Result<usize> {
        Ok(self.store.notes(&place(WAITING)?).await?.len())
    }

    /// Whether the settings could not be read, so that all records become pending notes.
    pub fn is_provisional(&self) -> bool {
        self.is_provisional
    }

    /// Records that the user of a session is warned of this mistake; `false` if they were warned of
    /// it before.
    pub async fn warns_first(&self, session: &Attended, mistake: &str) -> Result<bool> {
        let note = note_of(&session.session)?;
        let _alone = self.alone_with(&session.session).await?;
        let mut noted = self.read_note(&note).await?.unwrap_or_default();
        if noted.warned.as_deref() == Some(mistake) {
            return Ok(false);
        }
        noted.hear(session, self.now());
        noted.warned = Some(mistake.to_owned());
        self.keep_note(&note, &noted).await?;
        Ok(true)
    }

    /// Imports a transcript as far as it is written. Turns that hooks recorded already are skipped.
    pub async fn attend_transcript(&self, session: &Attended, text: &str) -> Result<SessionTaken> {
        let gaps = Gaps {
            conversation: Some(TRANSCRIPTS.into()),
            session: Some(session.session.clone()),
            origin: None,
            ..Gaps::default()
        };
        self.take_transcript(text, &session.session, None, None, &gaps, true).await
    }

    /// Saves the working state before the client compacts the context (K1). `None` if the session
    /// has no records.
    pub async fn attend_compaction(
        &self,
        session: &Attended,
        wish: Option<&str>,
    ) -> Result<Option<StateSaved>> {
        let note = note_of(&session.session)?;
        let now = self.now();
        if self
            .pauses()
            .await?
            .over(Some(&session.session), session.project.as_deref(), now.at())
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
            own = self.store.last_said(TRANSCRIPTS, LAST_SAID).await?;
            own.retain(|record| is_own(&record));
        }
        let around =
            Around { session: &session.session, project: session.project.as_deref(), wish };
        let Some(mut state) = working::state(&own, &around) else { return Ok(None) };
        let last = records.iter().rev().find(|record| record.kind == Captured::State);
        if let Some(last) = last.filter(|last| {
            let minutes = (now.at().as_second() - last.ts.at().as_second()) / 60;
            minutes < OWN_STATE_MINUTES && working::made_in(&last.text).is_none()
        }) {
            state.push_str(&format!(
                "\n\n## Saved before\n{}",
                budget::shortened(last.text.trim(), 3_000)
            ));
        }
        let _alone = self.alone_with(&session.session).await?;
        let mut noted = self.read_note(&note).await?.unwrap_or_default();
        noted.hear(session, now);
        noted.state = Some(self.gate_text(&state));
        self.keep_note(&note, &noted).await?;
        let title = format!(
            "before compaction{}",
            session.project.as_ref().map_or(String::new(), |name| format!(", {name}"))
        );
        self.save_state(&state, Some(&title), Origin::Assistant).await.map(Some)
    }

    /// Saves the summary that the client made when it compacted the context: the best description
    /// of the working state.
    pub async fn attend_summary(
        &self,
        session: &Attended,
        summary: &str,
    ) -> Result<Option<StateSaved>> {
        let note = note_of(&session.session)?;
        let now = self.now();
        let paused = self
            .pauses()
            .await?
            .over(Some(&session.session), session.project.as_deref(), now.at())
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
            .map_or(String::new(), |name| format!(" in project {}", plain::one_line(name)));
        let head = format!(
            "{}\n\nSession {}{project}.\n\n## Summary\n",
            working::TITLE,
            plain::one_line(&session.session)
        );
        let state = format!("{head}{}", self.gate_text(summary).trim());
        let _alone = self.alone_with(&session.session).await?;
        let mut noted = self.read_note(&note).await?.unwrap_or_default();
        noted.hear(session, now);
        noted.state = Some(budget::shortened(&state, 16 * 1024));
        self.keep_note(&note, &noted).await?;
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
    async fn defer_state(&self, state: &str, title: Option<&str>) -> Result<Option<StateSaved>> {
        let (record, _) = self.state_record(state, title, Origin::Assistant)?;
        self.defer(&[record]).await?;
        Ok(None)
    }

    /// Lists an ended session for import.
    pub async fn attend_end(&self, session: &Attended) -> Result<()> {
        let due = Due {
            session: session.session.clone(),
            project: session.project.clone(),
            transcript: session.transcript.clone(),
            client: session.client.clone(),
        };
        // The importing process takes it off the list first; if that process dies, this note says
        // that the session is still to be imported.
        let note = note_of(&session.session)?;
        {
            let _alone = self.alone_with(&session.session).await?;
            let mut noted = self.read_note(&note).await?.unwrap_or_default();
            noted.hear(session, self.now());
            self.keep_note(&note, &noted).await?;
        }
        let line = serde_json::to_string(&due).unwrap_or_default();
        let name =
            place(&format!("hooks/ended/{}.jsonl", &Hash::of(line.as_bytes()).to_string()[..20]))?;
        // The same session may end twice; it is imported once for both.
        self.store.put_note(&name, format!("{line}\n").as_bytes()).await?;
        Ok(())
    }

    /// Ended sessions that were not imported yet. With `silent`, also sessions whose clients never
    /// reported the end, and sessions that could not be read before.
    pub async fn ended_sessions(&self, silent: bool) -> Result<Vec<(DocPath, Due)>> {
        let mut found = Vec::new();
        for (name, _) in self.store.notes(&place("hooks/ended")?).await? {
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
        for (name, _) in self.store.notes(&place("hooks/retry")?).await? {
            let Some(retry) = self.read_retry(&name).await? else {
                self.store.remove_note(&name).await?;
                continue;
            };
            let is_time = Moment::read(&retry.not_before)
                .is_none_or(|read| read.moment.at() <= self.now().at());
            if !is_time {
                resting.insert(retry.due.session);
            } else if !found.iter().any(|(_, due)| due.session == retry.due.session) {
                found.push((name, retry.due));
            }
        }
        let now = self.now().at().as_second();
        for (name, at) in self.store.notes(&place("hooks/sessions")?).await? {
            if now - at < SILENT_SECONDS {
                continue;
            }
            let noted = self.read_note(&name).await?.unwrap_or_default();
            if noted.finished || noted.session.is_empty() {
                if now - at > KEPT_SECONDS {
                    self.store.remove_note(&name).await?;
                }
                continue;
            }
            if !resting.contains(&noted.session)
                && !found.iter().any(|(_, due)| due.session == noted.session)
            {
                let due = Due {
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
    pub async fn session_is_begun(&self, name: &DocPath, due: &Due) -> Result<()> {
        if *name != note_of(&due.session)? && *name != retry_of(&due.session)? {
            self.store.remove_note(name).await?;
        }
        Ok(())
    }

    async fn read_retry(&self, name: &DocPath) -> Result<Option<Retry>> {
        Ok(self.store.note(name).await?.and_then(|bytes| serde_json::from_slice(&bytes).ok()))
    }

    /// Records that a session could not be read. It is tried again later unless that is hopeless;
    /// then `status` names it.
    pub async fn session_is_unread(&self, due: &Due, why: &str, is_hopeless: bool) -> Result<()> {
        let name = retry_of(&due.session)?;
        let failures = self.read_retry(&name).await?.map_or(0, |retry| retry.failures) + 1;
        if is_hopeless || failures >= MAX_READ_TRIES {
            let by_hand = due.transcript.as_deref().map_or(String::new(), |path| {
                format!("; run `icecore import {}`", plain::one_line(path))
            });
            self.note_trouble(
                UNREAD,
                &format!(
                    "session {} was not imported completely: {why}{by_hand}",
                    plain::one_line(&due.session)
                ),
            )
            .await?;
            return self.session_is_read(due).await;
        }
        let pause = SignedDuration::from_secs(RETRY_SECS * 4_i64.pow(failures - 1));
        let not_before = self.zone.moment(self.now().at() + pause).to_string();
        let retry = Retry { due: due.clone(), failures, not_before };
        self.store.put_note(&name, &serde_json::to_vec(&retry).unwrap_or_default()).await?;
        self.note_trouble(
            "session-end",
            &format!(
                "session {} could not be imported and will be tried again: {why}",
                plain::one_line(&due.session)
            ),
        )
        .await
    }

    /// Records that a session was imported to its end, or is given up.
    pub async fn session_is_read(&self, due: &Due) -> Result<()> {
        self.store.remove_note(&retry_of(&due.session)?).await?;
        let note = note_of(&due.session)?;
        if let Some(mut noted) = self.read_note(&note).await? {
            noted.finished = true;
            self.keep_note(&note, &noted).await?;
        }
        Ok(())
    }

    /// The names of the projects of sessions and of the ledger, sorted.
    pub async fn known_projects(&self) -> Result<Vec<String>> {
        let mut names: BTreeSet<String> = self.projects().await?.into_values().collect();
        names.extend(self.ledger().await?.entries().iter().filter_map(|entry| {
            match &entry.event.scope {
                Scope::Project(name) => Some(name.clone()),
                _ => None,
            }
        }));
        Ok(names.into_iter().collect())
    }

    /// The project of every recent session.
    async fn projects(&self) -> Result<BTreeMap<String, String>> {
        let text = self.store.note(&place("hooks/projects.jsonl")?).await?.unwrap_or_default();
        let lines = text
            .split(|&byte| byte == b'\n')
            .filter_map(|line| serde_json::from_slice::<(String, String)>(line).ok());
        Ok(lines.collect())
    }

    async fn note_project(&self, session: &Attended) -> Result<()> {
        let Some(project) = &session.project else { return Ok(()) };
        let line = serde_json::to_string(&(&session.session, project)).unwrap_or_default();
        Ok(self
            .store
            .add_note(&place("hooks/projects.jsonl")?, &line, PROJECTS_BYTES, false)
            .await?)
    }

    async fn note_given(
        &self,
        event: &str,
        session: &Attended,
        prompt: Option<&str>,
        pack: &Pack,
        items: &[Item],
    ) -> Result<()> {
        let injected = Injected {
            ts: self.now().to_string(),
            event: event.into(),
            session: session.session.clone(),
            project: session.project.clone(),
            prompt: prompt.map(|text| {
                budget::shortened(&plain::one_line(&private::without_parts(text).0), PROMPT_BYTES)
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
            .add_note(&place("hooks/injected.jsonl")?, &line, INJECTED_BYTES, false)
            .await?)
    }

    /// What sessions received, newest first.
    pub async fn injected(&self, most: usize, session: Option<&str>) -> Result<Vec<Injected>> {
        let text = self.store.note(&place("hooks/injected.jsonl")?).await?.unwrap_or_default();
        let lines = text
            .split(|&byte| byte == b'\n')
            .filter_map(|line| serde_json::from_slice::<Injected>(line).ok());
        let mut found: Vec<Injected> =
            lines.filter(|one| session.is_none_or(|name| one.session == name)).collect();
        found.reverse();
        found.truncate(most);
        Ok(found)
    }

    /// Records a failure of a hook, for `status` and `doctor`.
    pub async fn note_trouble(&self, event: &str, what: &str) -> Result<()> {
        let trouble = Trouble {
            ts: self.now().to_string(),
            event: event.into(),
            what: budget::shortened(&plain::one_line(&self.gate_text(what)), 400),
        };
        let line = serde_json::to_string(&trouble).unwrap_or_default();
        Ok(self
            .store
            .add_note(&place("hooks/troubles.jsonl")?, &line, TROUBLE_BYTES, false)
            .await?)
    }

    /// The failures of hooks in the last days, newest first.
    pub async fn hook_troubles(&self) -> Result<Vec<Trouble>> {
        let today = self.now().day();
        let text = self.store.note(&place("hooks/troubles.jsonl")?).await?.unwrap_or_default();
        let lines = text
            .split(|&byte| byte == b'\n')
            .filter_map(|line| serde_json::from_slice::<Trouble>(line).ok());
        let recent = |trouble: &Trouble| {
            Moment::read(&trouble.ts).is_some_and(|read| {
                (0..=TROUBLE_DAYS).contains(&days_between(read.moment.day(), today))
            })
        };
        let mut found: Vec<Trouble> = lines.filter(recent).collect();
        found.reverse();
        Ok(found)
    }
}
