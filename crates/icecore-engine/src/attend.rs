//! Attending a session of an assistant while it goes on (K1, K12, L7, L8): what its client tells is
//! kept, and what it is to know is given to it, each thing once.
//!
//! A client tells of a turn before its transcript does, and its transcript tells of it again. Both
//! are one record, known by its words. What a session was given already is a note of the home:
//! losing it costs a repetition, never memory.

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

/// A session as its client tells of it. Names are a stranger's words; they become part of no path.
#[derive(Debug, Clone, Default)]
pub struct Attended {
    /// Its name.
    pub session: String,
    /// The project it is in.
    pub project: Option<String>,
    /// The client, in a word.
    pub client: String,
    /// Where its transcript is, as the client says.
    pub transcript: Option<String>,
    /// The client's own name for this turn, if it has one.
    pub turn: Option<String>,
}

/// A helper that an assistant set to work, as its client tells of it.
#[derive(Debug, Clone, Default)]
pub struct Helper {
    /// Its name within the session.
    pub id: String,
    /// Its kind.
    pub kind: Option<String>,
    /// What it answered.
    pub reply: Option<String>,
    /// Its transcript, as far as it is written.
    pub transcript: Option<String>,
}

/// Why a session starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Begun {
    /// With an empty context.
    Anew,
    /// With what was said before.
    Again,
    /// With a summary of what was said before.
    Compacted,
}

/// What was given to a session.
#[derive(Debug, Clone, Default)]
pub struct Given {
    /// The text; none if there is nothing to say.
    pub text: Option<String>,
    /// What is in it, and why.
    pub items: Vec<Item>,
    /// What could not be done along with it. A pack is given even if nothing can be written.
    pub complaints: Vec<String>,
    /// Why the words that came with it could be saved nowhere, if they could not.
    pub unsaved: Option<String>,
}

impl Given {
    /// Goes on without what failed, and says so.
    fn despite<T: Default>(&mut self, outcome: Result<T>) -> T {
        outcome.unwrap_or_else(|error| {
            self.complaints.push(error.to_string());
            T::default()
        })
    }
}

/// What a session was given, as it is kept for people who ask.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Injected {
    /// When.
    pub ts: String,
    /// On what occasion.
    pub event: String,
    /// To which session.
    pub session: String,
    /// In which project.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    /// The beginning of what the person said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    /// How many characters it has.
    pub chars: usize,
    /// What is in it, and why.
    pub items: Vec<Item>,
    /// What is not.
    #[serde(default)]
    pub left_out: Vec<String>,
    /// The text itself.
    pub text: String,
}

/// Something that a hook could not do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trouble {
    /// When.
    pub ts: String,
    /// On what occasion.
    pub event: String,
    /// What, and why.
    pub what: String,
}

/// A session that has ended and has to be read to its end.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Due {
    /// Its name.
    pub session: String,
    /// The project it was in.
    #[serde(default)]
    pub project: Option<String>,
    /// Where its transcript is, as the client said.
    #[serde(default)]
    pub transcript: Option<String>,
    /// The client.
    #[serde(default)]
    pub client: String,
}

/// An ended session that could not be read and is to be read again.
#[derive(Debug, Serialize, Deserialize)]
struct Retry {
    #[serde(flatten)]
    due: Due,
    /// How often reading it has failed.
    failures: u32,
    /// Before this moment it is not tried again.
    not_before: String,
}

/// What is noted of a session.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
struct Noted {
    session: String,
    project: Option<String>,
    client: String,
    transcript: Option<String>,
    /// When something was last heard of it.
    at: Option<String>,
    /// What was given to it since its context was last empty.
    given: BTreeSet<String>,
    /// How often each thing was said in it.
    heard: BTreeMap<String, usize>,
    /// The last prompt: its words, its turn and when.
    prompted: Option<(String, Option<String>, i64)>,
    /// What was answered to it.
    replied: BTreeSet<String>,
    /// The turn that goes on is not to be kept.
    private: bool,
    /// Something in it was not to be kept, so neither is a summary of all of it.
    withheld: bool,
    /// Where it stood before its context was compacted.
    state: Option<String>,
    /// It was read to its end.
    finished: bool,
    /// The mistake in the settings that its person was last told of.
    warned: Option<String>,
}

/// The same prompt within so many seconds is told twice, not said twice: a client may run one hook
/// from two places.
const TWICE_SECONDS: i64 = 3;
/// More things than this are not remembered as given or heard.
const MOST_NOTED: usize = 5_000;
/// The occasion of a trouble with a session that is not tried any more.
pub(crate) const UNREAD: &str = "unread-session";
/// Notes that grow have at most so many bytes.
const INJECTED_BYTES: u64 = 2 * 1024 * 1024;
const TROUBLE_BYTES: u64 = 64 * 1024;
const PROJECTS_BYTES: u64 = 256 * 1024;
/// So many records wait in notes at most.
const MAX_WAITING_NOTES: usize = 10_000;
/// So many of them are written down at once.
const WAITING_BATCH: usize = 500;
/// The folder of their notes.
const WAITING: &str = "hooks/waiting";
/// So much of a prompt stands in the list of what was given.
const PROMPT_BYTES: usize = 160;
/// A session of which nothing was heard for so long has ended, whether its client said so or not.
const SILENT_SECONDS: i64 = 6 * 3_600;
/// A session that cannot be read is tried so many times.
const MAX_READ_TRIES: u32 = 6;
/// So long after the first failure it is tried again; after each further one four times as long.
const RETRY_SECS: i64 = 30;
/// Notes of sessions are kept so long.
const KEPT_SECONDS: i64 = 30 * 24 * 3_600;
/// So many of the last records of all sessions are looked at for one that has none of the last
/// days.
const LAST_SAID: usize = 500;
/// A helper's last words may be written down so much after its client tells of them.
const LATE: SignedDuration = SignedDuration::from_secs(60);
/// Troubles are told so many days.
const TROUBLE_DAYS: i64 = 7;
/// A state that an assistant saved itself within so many minutes is not lost to one that was only
/// gathered.
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

    /// How often this was said before.
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
    /// Every pause there was.
    pub async fn pauses(&self) -> Result<Pauses> {
        Ok(self
            .store
            .document(&place(layout::PAUSES)?)
            .await?
            .map_or_else(Pauses::default, |text| Pauses::read(&text)))
    }

    /// Keeps nothing of what that reaches from now on.
    pub async fn pause(&self, reach: Reach, until: Option<Moment>) -> Result<Pause> {
        let now = self.now();
        self.append_line(&place(layout::PAUSES)?, &pause::begun(now, &reach, until)).await?;
        Ok(Pause { reach, from: now, until })
    }

    /// Likewise for so many seconds; without, until it is ended.
    pub async fn pause_for(&self, reach: Reach, seconds: Option<i64>) -> Result<Pause> {
        let until = match seconds {
            Some(seconds) => {
                let end = self.now().at().checked_add(SignedDuration::from_secs(seconds));
                Some(self.zone.moment(
                    end.map_err(|_| Error::Unclear("that is too long for a pause".into()))?,
                ))
            }
            None => None,
        };
        self.pause(reach, until).await
    }

    /// Ends the pauses of that reach, of everything all of them; those that ended.
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

    /// The session that was heard of last.
    pub async fn last_session(&self) -> Result<Option<String>> {
        let notes = self.store.notes(&place("hooks/sessions")?).await?;
        let Some((name, _)) = notes.into_iter().max_by_key(|(_, at)| *at) else { return Ok(None) };
        Ok(self.read_note(&name).await?.map(|noted| noted.session).filter(|name| !name.is_empty()))
    }

    async fn read_note(&self, name: &DocPath) -> Result<Option<Noted>> {
        // A note that cannot be read is as good as none.
        Ok(self.store.note(name).await?.and_then(|bytes| serde_json::from_slice(&bytes).ok()))
    }

    async fn keep_note(&self, name: &DocPath, noted: &Noted) -> Result<()> {
        Ok(self.store.put_note(name, &serde_json::to_vec(noted).unwrap_or_default()).await?)
    }

    /// The right to look at and change what is noted of a session. Hooks of one session may run at
    /// the same time; who cannot have it soon goes on without, and at worst something is given
    /// twice.
    async fn alone_with(&self, session: &str) -> Result<Option<Claimed>> {
        let work = format!("session-{:x}", Hash::of(session.as_bytes()).bytes()[0] % 16);
        // Longer each time: where asking takes its time, it is asked a few times only.
        for pause_ms in [5, 15, 40, 80, 160, 0] {
            if let Some(claimed) = self.store.claim(&work).await? {
                return Ok(Some(claimed));
            }
            sleep(Duration::from_millis(pause_ms)).await;
        }
        Ok(None)
    }

    /// A session begins or goes on: what it is to know (L17, K6).
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
            // The context is empty: what was given before is not there any more.
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

    /// A person says something to a session: it is kept, and what has to do with it is given along
    /// (L7, L8).
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
        // What cannot be known to be wanted is not kept.
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
        // Before anything is looked up: however long that takes, the words are safe.
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

    /// A helper has done its work: what it was told and what it said is a session of its own that
    /// names the one it worked for. Its answer is what the client says, since transcripts are
    /// written late; the rest is what its transcript has, now and when the session ends.
    pub async fn attend_helper(&self, session: &Attended, helper: &Helper) -> Result<Taken> {
        let note = note_of(&session.session)?;
        let _alone = self.alone_with(&session.session).await?;
        let mut noted = self.read_note(&note).await?.unwrap_or_default();
        let now = self.now();
        noted.hear(session, now);
        self.keep_note(&note, &noted).await?;
        if noted.private {
            // Its transcript stays where it is, and nobody who reads it later can tell that the
            // turn was private.
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

    /// Keeps what a helper was told and said, each thing once however often it is told.
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
            // The project is found below, from the folder, as for every transcript.
            reader.piece(Place { number: at + 1, at: 0 }, line.trim(), &|_| None, &mut harvest);
        }
        reader.finish(&mut harvest);
        let raw = |text: &str| serde_json::Value::from(text).to_string();
        let mut said: Vec<Said> = harvest.said.into_iter().map(|(_, said)| said).collect();
        // What is no helper's turn in a helper's transcript stands in the session's own.
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
        // It may stand in the transcript already.
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

    /// Whether something in a session was not to be kept.
    pub async fn is_withheld_in(&self, session: &str) -> Result<bool> {
        Ok(self.read_note(&note_of(session)?).await?.is_some_and(|noted| noted.withheld))
    }

    /// An assistant has answered; `name` is a helper's, if it is one's answer.
    pub async fn attend_reply(
        &self,
        session: &Attended,
        reply: &str,
        name: Option<&str>,
    ) -> Result<Taken> {
        let note = note_of(&session.session)?;
        let mut taken = Taken::default();
        // Without its notes a session goes on; at worst something is told twice.
        let _alone = taken.despite(self.alone_with(&session.session).await);
        let mut noted: Noted = taken.despite(self.read_note(&note).await).unwrap_or_default();
        noted.hear(session, self.now());
        // The same answer to the same prompt is told twice, not said twice.
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

    /// Keeps what was heard, or defers it if the store cannot take it now. An error means that it
    /// could be saved nowhere.
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
            // A helper's answer is none of the session's own turns.
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

    /// Keeps records. If the store cannot take them now, they wait in notes, behind those that wait
    /// already.
    async fn keep_or_defer(&self, records: Vec<Record>, taken: &mut Taken) -> Result<()> {
        if !self.is_waiting_behind(taken).await {
            match self.keep(records.clone(), taken).await {
                Err(error) if !is_busy(&error) => {
                    taken.complaints.push(format!("what was said waits in a note: {error}"))
                }
                Err(_) => {}
                Ok(()) => return Ok(()),
            }
        }
        self.defer(&records).await
    }

    /// Puts records into one note until the store can take them. A note needs neither the lock nor
    /// a whole ledger nor settings.
    async fn defer(&self, records: &[Record]) -> Result<()> {
        if records.is_empty() {
            return Ok(());
        }
        let folder = place(WAITING)?;
        let waiting = self.store.notes(&folder).await?;
        if waiting.len() >= MAX_WAITING_NOTES {
            let why = "more than that wait already; `icecore doctor` says what keeps the vault from being written to";
            return Err(Error::TooMuch(format!(
                "at most {MAX_WAITING_NOTES} messages wait in notes: {why}"
            )));
        }
        // Numbered, so that they are written down in the order in which they came.
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
            // On a full disk half of it may be there.
            let _ = self.store.remove_note(&name).await;
        }
        Ok(written?)
    }

    /// Writes down what waits, and says whether something is left that waits: then what comes now
    /// has to wait behind it. Notes that cannot be read keep nothing from being written.
    async fn is_waiting_behind(&self, taken: &mut Taken) -> bool {
        self.is_provisional || taken.despite(self.take_waiting().await) > 0
    }

    /// Writes down what waits in notes; how many of them are left.
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
            // One without the end of its line is still being written, or broke off before it was
            // acknowledged.
            let Some(bytes) = self.store.note(name).await?.filter(|bytes| bytes.ends_with(b"\n"))
            else {
                continue;
            };
            read.push(name);
            for mut record in record::read_file(&bytes).0 {
                // One that was written without the settings has the time of another zone.
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

    /// Writes down everything that waits in notes, before something that has to know of it; how
    /// many notes are left.
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

    /// How many notes hold words that are not written down yet.
    pub async fn waiting_notes(&self) -> Result<usize> {
        Ok(self.store.notes(&place(WAITING)?).await?.len())
    }

    /// Whether the settings could not be read, so that everything waits in notes.
    pub fn is_provisional(&self) -> bool {
        self.is_provisional
    }

    /// Whether the person in a session has not been told of this mistake yet; from now on they
    /// have.
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

    /// A transcript as far as it goes. Turns that were heard already are not kept twice.
    pub async fn attend_transcript(&self, session: &Attended, text: &str) -> Result<SessionTaken> {
        let gaps = Gaps {
            conversation: Some(TRANSCRIPTS.into()),
            session: Some(session.session.clone()),
            origin: None,
            ..Gaps::default()
        };
        self.take_transcript(text, &session.session, None, None, &gaps, true).await
    }

    /// A session's context is about to be compacted: where it stands is saved (K1). `None` if
    /// nothing is known of it.
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
            // A session that rested for days, or whose clock is another's.
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

    /// A session's context was compacted, and this is what came of it: the best there is of where
    /// it stands.
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
        // The client summarises its whole context, what was private in it included, and nobody can
        // tell which words those are.
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

    /// Puts a snapshot of a state into a note; it does not become the state to load next time.
    async fn defer_state(&self, state: &str, title: Option<&str>) -> Result<Option<StateSaved>> {
        let (record, _) = self.state_record(state, title, Origin::Assistant)?;
        self.defer(&[record]).await?;
        Ok(None)
    }

    /// A session has ended: it is put on the list of those that are to be read.
    pub async fn attend_end(&self, session: &Attended) -> Result<()> {
        let due = Due {
            session: session.session.clone(),
            project: session.project.clone(),
            transcript: session.transcript.clone(),
            client: session.client.clone(),
        };
        // Whoever reads it takes it off the list first; if that one dies, this note says that it is
        // still to be read.
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
        // The same session may end twice; it is read once for both.
        self.store.put_note(&name, format!("{line}\n").as_bytes()).await?;
        Ok(())
    }

    /// Sessions that have ended and were not read yet; with `silent`, also those whose clients
    /// never said so and those that could not be read before.
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
                // Half a line: whoever wrote it will say it again, or the session counts as silent.
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

    /// A session is being read now. It leaves the list first: if it ends once more meanwhile, it is
    /// read once more, and if reading dies, it counts as silent later.
    pub async fn session_is_begun(&self, name: &DocPath, due: &Due) -> Result<()> {
        if *name != note_of(&due.session)? && *name != retry_of(&due.session)? {
            self.store.remove_note(name).await?;
        }
        Ok(())
    }

    async fn read_retry(&self, name: &DocPath) -> Result<Option<Retry>> {
        Ok(self.store.note(name).await?.and_then(|bytes| serde_json::from_slice(&bytes).ok()))
    }

    /// A session could not be read. It is tried again later unless that is hopeless; then it is
    /// left alone, and `status` names it.
    pub async fn session_is_unread(&self, due: &Due, why: &str, is_hopeless: bool) -> Result<()> {
        let name = retry_of(&due.session)?;
        let failures = self.read_retry(&name).await?.map_or(0, |retry| retry.failures) + 1;
        if is_hopeless || failures >= MAX_READ_TRIES {
            let by_hand = due.transcript.as_deref().map_or(String::new(), |path| {
                format!(". `icecore import {}` reads it", plain::one_line(path))
            });
            self.note_trouble(
                UNREAD,
                &format!(
                    "session {} was not read to its end: {why}{by_hand}",
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
            &format!("session {} is to be read again: {why}", plain::one_line(&due.session)),
        )
        .await
    }

    /// A session was read to its end, or is not to be read any more.
    pub async fn session_is_read(&self, due: &Due) -> Result<()> {
        self.store.remove_note(&retry_of(&due.session)?).await?;
        let note = note_of(&due.session)?;
        if let Some(mut noted) = self.read_note(&note).await? {
            noted.finished = true;
            self.keep_note(&note, &noted).await?;
        }
        Ok(())
    }

    /// The names of the projects that sessions were in or statements hold in, sorted.
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

    /// The project of every session of the last time.
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

    /// What sessions were given, the newest first.
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

    /// Notes that a hook could not do its work, for `status` and `doctor`.
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

    /// What hooks could not do in the last days, the newest first.
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
