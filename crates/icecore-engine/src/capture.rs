//! Capture: messages, bulk lines, transcripts and saved states enter through one filter.
//!
//! - The filter replaces secrets before anything is written, sets the origin of the text, and
//!   removes text that icecore itself handed to a model, so that memory does not feed on itself.
//! - A [`CaptureReport`] counts everything that was changed, cut or skipped.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::time::Duration;

use icecore_domain::calendar::Moment;
use icecore_domain::event::{EventDraftError, Origin};
use icecore_domain::hash::Hash;
use icecore_domain::layout::{self, DocPath};
use icecore_domain::packs::states;
use icecore_domain::pause::Pauses;
use icecore_domain::record::{
    self, IncomingMessage, MAX_NAME_BYTES, MAX_PARTS_BYTES, MAX_TEXT_BYTES, Record, RecordKind,
    Role, SessionKey,
};
use icecore_domain::secrets::UnkeyedMarks;
use icecore_domain::speaker::{self, ConversationExtent};
use icecore_domain::transcript::{self, TranscriptFormat};
use icecore_domain::{budget, capture_filter, private, sanitize, secrets};
use icecore_store::{ContentVersion, Error as StoreError, ErrorKind as StoreErrorKind};
use jiff::tz::Offset;
use serde::Serialize;

use crate::{Error, MAX_ATTEMPTS, Memory, Result};

/// The conversation of messages that name none.
pub const NOTES_CONVERSATION: &str = "notes";
/// The conversation of transcripts that name none, and of live sessions.
pub const TRANSCRIPTS_CONVERSATION: &str = "sessions";
/// The conversation of saved states.
pub const STATES_CONVERSATION: &str = "state";

/// Values for what a captured message leaves open.
#[derive(Debug, Clone, Default)]
pub struct CaptureDefaults {
    pub conversation: Option<String>,
    pub session: Option<String>,
    /// The author, if it differs from what the role implies.
    pub origin: Option<Origin>,
    /// How much of a conversation arrives at once.
    pub extent: ConversationExtent,
}

/// What capture did with its input.
#[derive(Debug, Default, Serialize)]
pub struct CaptureReport {
    /// Stored for the first time.
    pub new: usize,
    /// Stored already, with the same text.
    pub same: usize,
    /// Stored already with another text, by id; the new text replaces it.
    pub revised: Vec<String>,
    /// Secrets that were replaced, by kind.
    pub secrets: BTreeMap<String, usize>,
    /// Bytes of icecore's own text that were removed.
    pub own_bytes: usize,
    /// Messages that were empty, or empty without icecore's own text.
    pub passed_over: usize,
    /// Messages that the user excluded: paused, or private.
    #[serde(skip_serializing_if = "is_zero")]
    pub withheld: usize,
    /// Messages of people who are not known to be the owner, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub others: BTreeMap<String, usize>,
    /// Messages with forgotten content; it was removed from them, or they were skipped.
    #[serde(skip_serializing_if = "is_zero")]
    pub forgotten: usize,
    /// What could not be captured, and why.
    pub complaints: Vec<String>,
    /// Messages that were shortened.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cut: Vec<String>,
    /// The marks that version 0.1 wrote for the replaced secrets.
    #[serde(skip)]
    pub(crate) unkeyed_marks: UnkeyedMarks,
}

fn is_zero(count: &usize) -> bool {
    *count == 0
}

impl CaptureReport {
    /// Continues with a default value after a failure, and reports the failure.
    pub(crate) fn or_complain<T: Default>(&mut self, outcome: Result<T>) -> T {
        outcome.unwrap_or_else(|error| {
            self.complaints.push(error.to_string());
            T::default()
        })
    }

    /// Adds the counts of another report.
    pub fn merge(&mut self, other: Self) {
        self.new += other.new;
        self.same += other.same;
        self.revised.extend(other.revised);
        for (kind, count) in other.secrets {
            *self.secrets.entry(kind).or_default() += count;
        }
        self.own_bytes += other.own_bytes;
        self.passed_over += other.passed_over;
        self.withheld += other.withheld;
        self.forgotten += other.forgotten;
        for (name, count) in other.others {
            *self.others.entry(name).or_default() += count;
        }
        let room = MAX_COMPLAINTS.saturating_sub(self.complaints.len());
        self.complaints.extend(other.complaints.into_iter().take(room));
        let room = MAX_COMPLAINTS.saturating_sub(self.cut.len());
        self.cut.extend(other.cut.into_iter().take(room));
        self.unkeyed_marks.merge(other.unkeyed_marks);
    }
}

/// The record field with the size of its parts in bytes before they were cut.
pub const PARTS_CUT_FIELD: &str = "parts_cut_from_bytes";
/// The most complaints of one report.
const MAX_COMPLAINTS: usize = 1_000;
/// The recent messages of a conversation that show who speaks in it.
const MAX_SPEAKER_MESSAGES: usize = 500;

/// The result of importing a transcript.
#[derive(Debug, Serialize)]
pub struct TranscriptReport {
    /// The format it was read as.
    pub shape: String,
    /// The number of turns.
    pub turns: usize,
    /// What was skipped, and how often.
    pub skipped: Vec<(String, usize)>,
    #[serde(rename = "taken")]
    pub capture: CaptureReport,
    /// The sessions it belongs to.
    #[serde(skip)]
    pub sessions: Vec<SessionKey>,
}

/// A saved state.
#[derive(Debug, Serialize)]
pub struct SavedState {
    pub ts: Moment,
    pub title: Option<String>,
    /// The path of the state.
    pub state: &'static str,
    /// The path of the snapshot.
    pub snapshot: String,
    /// Whether `24hr.md` got an entry.
    pub entered: bool,
    /// If not, why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why_not: Option<String>,
    #[serde(rename = "taken")]
    pub capture: CaptureReport,
}

/// The name of a message in an error, by its position in the input.
pub(crate) fn message_label(at: usize) -> String {
    format!("message {}", at + 1)
}

/// Text that passed the capture filter.
pub(crate) struct FilteredText {
    pub(crate) text: String,
    pub(crate) own_bytes: usize,
}

/// Applies pauses and privacy to a sequence of messages. It concerns sessions of assistants; other
/// input was handed over on purpose.
struct PrivacyFilter<'a> {
    pauses: &'a Pauses,
    /// Whether a private turn is under way, by session.
    private: HashMap<Option<String>, bool>,
    /// Projects by folder.
    projects: HashMap<String, Option<String>>,
}

impl PrivacyFilter<'_> {
    /// The message as it may be stored, with its project; `None` if it is withheld.
    fn admit(
        &mut self,
        mut message: IncomingMessage,
        defaults: &CaptureDefaults,
        when: Moment,
    ) -> Option<IncomingMessage> {
        if message.conversation.as_ref().or(defaults.conversation.as_ref()).map(String::as_str)
            != Some(TRANSCRIPTS_CONVERSATION)
        {
            return Some(message);
        }
        let session = message.session.clone().or_else(|| defaults.session.clone());
        let noted = message
            .extra
            .iter()
            .find(|(name, _)| name == record::PROJECT_FIELD)
            .map(|(_, raw)| raw);
        let project = match (noted, &message.folder) {
            (Some(raw), _) => serde_json::from_str(raw).ok(),
            (None, Some(folder)) => {
                let found = self
                    .projects
                    .entry(folder.clone())
                    .or_insert_with(|| crate::project::project_of(Path::new(folder)))
                    .clone();
                if let Some(name) = &found {
                    message.extra.push((
                        record::PROJECT_FIELD.into(),
                        serde_json::Value::from(name.as_str()).to_string(),
                    ));
                }
                found
            }
            (None, None) => None,
        };
        let at = message.ts.map_or(when, |ts| ts).timestamp();
        if message.role.unwrap_or(Role::User) == Role::User
            && message.other_speaker.is_none()
            && !message.text.trim().is_empty()
        {
            let own = capture_filter::strip_blocks(&message.text).text;
            let is_private = private::is_private_turn(&own);
            // Input typed into a running turn does not end the turn.
            let is_queued = message.extra.iter().any(|(name, _)| name == record::QUEUED_FIELD);
            if is_private || !is_queued {
                self.private.insert(session.clone(), is_private);
            }
            let (rest, parts) = private::strip_private_parts(&message.text);
            if parts > 0 {
                message.text = rest.trim().to_owned();
            }
        }
        let is_private = self.private.get(&session).copied().unwrap_or(false);
        let is_paused = self.pauses.covering(session.as_deref(), project.as_deref(), at).is_some();
        (!is_private && !is_paused).then_some(message)
    }
}

impl Memory {
    /// Captures messages.
    pub async fn add_messages(
        &self,
        message: Vec<IncomingMessage>,
        defaults: &CaptureDefaults,
    ) -> Result<CaptureReport> {
        self.refresh_tombstones().await?;
        let mut taken = CaptureReport::default();
        let pauses = self.pauses().await?;
        let records = self.filter_messages(
            message,
            defaults,
            self.now(),
            &pauses,
            &message_label,
            &mut taken,
        );
        let records = self.match_stored_ids(records, false, &mut taken).await?;
        self.append_records(records, &mut taken).await?;
        Ok(taken)
    }

    /// Captures the exchanges of many conversations with one write and returns a report for each
    /// batch. The reports do not say what was new. Turn leases for the exchanges last for `lease`.
    pub async fn add_exchanges(
        &self,
        lots: Vec<Vec<IncomingMessage>>,
        lease: Duration,
    ) -> Result<Vec<CaptureReport>> {
        self.refresh_tombstones().await?;
        let (now, gaps, pauses) = (self.now(), CaptureDefaults::default(), self.pauses().await?);
        let mut records = Vec::new();
        let passed = |said| {
            let mut taken = CaptureReport::default();
            records.extend(self.filter_messages(
                said,
                &gaps,
                now,
                &pauses,
                &message_label,
                &mut taken,
            ));
            taken
        };
        let taken = lots.into_iter().map(passed).collect();
        if !records.is_empty() {
            match self.store.turn_lease() {
                Some(order) => order.append_pending(records, lease).await?,
                None => self.store.add_records(records).await?,
            };
        }
        Ok(taken)
    }

    /// Recognizes turns that are stored already: a client reports a turn, and its transcript
    /// contains it again, under different ids. New turns of a `live` transcript get the id under
    /// which the client would report them, and so does a prompt that was read before its delivery.
    pub(crate) async fn match_stored_ids(
        &self,
        mut records: Vec<Record>,
        live: bool,
        report: &mut CaptureReport,
    ) -> Result<Vec<Record>> {
        self.attribute_by_conversation(&mut records, report).await?;
        self.match_unkeyed_ids(&mut records, report).await?;
        let mut before: HashMap<String, usize> = HashMap::new();
        let heard: Vec<Option<String>> = records
            .iter()
            .map(|record| {
                let spoken = matches!(record.role, Role::User | Role::Assistant)
                    && record.name.is_none()
                    && record.parts.is_none();
                if record.conversation != TRANSCRIPTS_CONVERSATION
                    || record.session.is_none()
                    || !spoken
                    || record.text.trim().is_empty()
                {
                    return None;
                }
                let session = record.session.as_deref();
                let times = before
                    .entry(record::turn_words_key(session, record.role, &record.text))
                    .or_default();
                *times += 1;
                Some(record::turn_id(session, record.role, &record.text, *times - 1))
            })
            .collect();
        if heard.iter().all(Option::is_none) {
            return Ok(records);
        }
        let own: Vec<record::RecordKey> = records.iter().map(Record::key).collect();
        let told: Vec<record::RecordKey> = heard
            .iter()
            .map(|id| {
                record::record_key(TRANSCRIPTS_CONVERSATION, id.as_deref().unwrap_or_default())
            })
            .collect();
        let (own, told) =
            (self.store.contains_records(&own).await?, self.store.contains_records(&told).await?);
        let mut kept = Vec::with_capacity(records.len());
        for (((mut record, heard), own), told) in records.into_iter().zip(heard).zip(own).zip(told)
        {
            match heard {
                Some(id) if !own && told && record.id != id => report.same += 1,
                Some(id) if !own && (live || record.is_undelivered()) => {
                    record.id = id;
                    kept.push(record);
                }
                _ => kept.push(record),
            }
        }
        Ok(kept)
    }

    /// Version 0.1 derived ids from texts with unkeyed marks. Records with hidden secrets that it
    /// stored keep those ids, so that importing them again adds nothing.
    async fn match_unkeyed_ids(&self, records: &mut [Record], taken: &CaptureReport) -> Result<()> {
        let mut counts: HashMap<String, usize> = HashMap::new();
        let mut candidates: Vec<(usize, String)> = Vec::new();
        for (at, record) in records.iter().enumerate() {
            let Cow::Owned(text) = taken.unkeyed_marks.apply(&record.text) else { continue };
            let (session, role, name) =
                (record.session.as_deref(), record.role, record.name.as_deref());
            let id = |ts, before| record::derived_id(session, role, name, &record.text, ts, before);
            // A message without a time has an id without one.
            for ts in [Some(record.ts), None] {
                let before =
                    counts.entry(record::derived_id(session, role, None, &record.text, ts, 0));
                let before = before.or_default();
                if id(ts, *before) == record.id {
                    let unkeyed =
                        record::unkeyed_derived_id(session, role, name, &text, ts, *before);
                    candidates.push((at, unkeyed));
                    *before += 1;
                }
            }
            if record.conversation == TRANSCRIPTS_CONVERSATION && session.is_some() {
                let before = counts.entry(record::turn_id(session, role, &record.text, 0));
                let before = before.or_default();
                candidates.push((at, record::unkeyed_turn_id(session, role, &text, *before)));
                *before += 1;
            }
        }
        if candidates.is_empty() {
            return Ok(());
        }
        let keys: Vec<record::RecordKey> = candidates
            .iter()
            .map(|(at, id)| record::record_key(&records[*at].conversation, id))
            .collect();
        let stored = self.store.contains_records(&keys).await?;
        for ((at, id), _) in candidates.into_iter().zip(stored).filter(|(_, stored)| *stored) {
            records[at].id = id;
        }
        Ok(())
    }

    /// The session of a transcript that names none: its label and its beginning, so that a
    /// transcript that has grown is the same session. A hidden secret does not count.
    async fn transcript_session(
        &self,
        label: &str,
        beginning: &str,
        marks: &UnkeyedMarks,
    ) -> Result<String> {
        let session = |text: &str| format!("{label}-{}", Hash::of(text.as_bytes()).short_hex());
        let redacted = match self.policy.capture.hide_secrets {
            true => secrets::redact(beginning, &self.marker_key).text,
            false => Cow::Borrowed(beginning),
        };
        let own = session(&secrets::strip_mark_codes(&redacted));
        // Earlier versions counted the mark, and in JSON the secret itself.
        let mut earlier = vec![session(beginning), session(&marks.apply(beginning))];
        earlier.retain(|name| *name != own);
        if earlier.is_empty() {
            return Ok(own);
        }
        let stored = self.store.sessions(None).await?;
        let is_stored = |name: &String| {
            stored.iter().any(|stat| stat.key.session.as_deref() == Some(name.as_str()))
        };
        Ok(earlier.into_iter().find(is_stored).unwrap_or(own))
    }

    /// A named user is not the owner if another named user has spoken in the conversation before.
    /// Messages may come one by one, so the stored conversation counts too.
    async fn attribute_by_conversation(
        &self,
        records: &mut [Record],
        report: &mut CaptureReport,
    ) -> Result<()> {
        let owner = self.policy.person.names();
        let mut names: HashMap<String, Vec<String>> = HashMap::new();
        for record in records
            .iter_mut()
            .filter(|record| record.role == Role::User && record.other_speaker.is_none())
        {
            let Some(name) = record.name.clone() else { continue };
            if !names.contains_key(&record.conversation) {
                let before =
                    self.store.recent_records(&record.conversation, MAX_SPEAKER_MESSAGES).await?;
                let users = before.into_iter().filter(|record| record.role == Role::User);
                names.insert(
                    record.conversation.clone(),
                    users.filter_map(|record| record.name).collect(),
                );
            }
            let users = names.get(&record.conversation).into_iter().flatten().map(String::as_str);
            if owner.is_one_of_several(&name, users) {
                *report.others.entry(name.clone()).or_default() += 1;
                record.other_speaker = Some(name);
                record.origin =
                    if record.origin == Origin::Tool { Origin::Tool } else { Origin::Import };
            }
        }
        Ok(())
    }

    pub(crate) async fn append_records(
        &self,
        records: Vec<Record>,
        report: &mut CaptureReport,
    ) -> Result<()> {
        if !records.is_empty() {
            let added = self.store.add_records(records).await?;
            report.new += added.new;
            report.same += added.same;
            report.revised.extend(added.revised);
        }
        Ok(())
    }

    /// The capture filter: the only way of text into the store.
    pub(crate) fn filter_text(&self, text: &str, report: &mut CaptureReport) -> FilteredText {
        let stripped = capture_filter::strip_blocks(text);
        let own_bytes = stripped.bytes;
        report.own_bytes += own_bytes;
        let text = if own_bytes > 0 {
            stripped.text.trim().to_owned()
        } else {
            stripped.text.into_owned()
        };
        if !self.policy.capture.hide_secrets {
            return FilteredText { text, own_bytes };
        }
        let redacted = secrets::redact(&text, &self.marker_key);
        for hidden in &redacted.hidden {
            *report.secrets.entry(hidden.kind.to_owned()).or_default() += 1;
            report.unkeyed_marks.insert(&hidden.mark, &hidden.unkeyed_mark);
        }
        let text = match redacted.text {
            Cow::Borrowed(_) => text,
            Cow::Owned(text) => text,
        };
        FilteredText { text, own_bytes }
    }

    /// Filters a text without a report.
    pub fn filter_without_report(&self, text: &str) -> String {
        self.scrub_text(self.filter_text(text, &mut CaptureReport::default()).text)
    }

    /// Filters raw JSON; the result is still JSON.
    fn filter_json(&self, raw: String, report: &mut CaptureReport) -> String {
        // First each string without its JSON escapes, then the whole, where a key shows what its
        // value is.
        let raw = crate::capture_filter::map_json_strings(&raw, &mut |text| {
            self.filter_text(&text, report).text
        })
        .unwrap_or(raw);
        let passed = self.filter_text(&raw, report).text;
        if passed == raw || serde_json::from_str::<serde::de::IgnoredAny>(&passed).is_ok() {
            return passed;
        }
        format!("\"{}\"", self.marker_key.mark("parts", raw.as_bytes()))
    }

    /// Filters messages and turns them into records. `when` is the time of messages without one,
    /// `place` names the message at a position.
    pub(crate) fn filter_messages(
        &self,
        message: Vec<IncomingMessage>,
        defaults: &CaptureDefaults,
        when: Moment,
        pauses: &Pauses,
        place: &dyn Fn(usize) -> String,
        report: &mut CaptureReport,
    ) -> Vec<Record> {
        let mut message = message;
        speaker::attribute_speakers(&mut message, &self.policy.person.names(), defaults.extent);
        let mut records = Vec::with_capacity(message.len());
        let mut withholding =
            PrivacyFilter { pauses, private: HashMap::new(), projects: HashMap::new() };
        // How often the same text occurred before, among messages without an id.
        let mut before: HashMap<(Option<String>, String), usize> = HashMap::new();
        for (at, message) in message.into_iter().enumerate() {
            let Some(message) = withholding.admit(message, defaults, when) else {
                report.withheld += 1;
                continue;
            };
            match self.build_record(message, defaults, when, &mut before, report) {
                Ok(Some(record)) => {
                    if let Some((_, bytes)) =
                        record.extra.iter().find(|(name, _)| name == PARTS_CUT_FIELD)
                        && report.cut.len() < MAX_COMPLAINTS
                    {
                        report.cut.push(format!(
                            "{} has parts of {bytes} bytes; long texts in them were cut",
                            place(at)
                        ));
                    }
                    if let Some(speaker) = &record.other_speaker {
                        let is_counted = report.others.len() < MAX_COMPLAINTS
                            || report.others.contains_key(speaker);
                        *report
                            .others
                            .entry(if is_counted { speaker.clone() } else { "others".into() })
                            .or_default() += 1;
                    }
                    records.extend(self.scrub_record(record, report));
                }
                Ok(None) => report.passed_over += 1,
                Err(why) if report.complaints.len() < MAX_COMPLAINTS => {
                    report.complaints.push(format!("{} {why}", place(at)))
                }
                Err(_) => {}
            }
        }
        records
    }

    fn build_record(
        &self,
        message: IncomingMessage,
        defaults: &CaptureDefaults,
        when: Moment,
        before: &mut HashMap<(Option<String>, String), usize>,
        report: &mut CaptureReport,
    ) -> Result<Option<Record>, String> {
        if message.text.len() > MAX_TEXT_BYTES {
            return Err(format!(
                "has {} bytes, the limit is {MAX_TEXT_BYTES}; save the text as a file of its own",
                message.text.len()
            ));
        }
        let mut short = |name: &str, value: Option<String>| match value {
            Some(value) if value.len() > MAX_NAME_BYTES => {
                Err(format!("has a {name} of {} bytes, the limit is {MAX_NAME_BYTES}", value.len()))
            }
            Some(value) => {
                Ok(Some(sanitize::one_line(self.filter_text(&value, report).text.trim()))
                    .filter(|value| !value.is_empty()))
            }
            None => Ok(None),
        };
        let conversation =
            short("conversation", message.conversation.or_else(|| defaults.conversation.clone()))?
                .unwrap_or_else(|| NOTES_CONVERSATION.into());
        let session = short("session", message.session.or_else(|| defaults.session.clone()))?;
        let name = short("name", message.name)?;
        let other_speaker = short("speaker", message.other_speaker)?;
        let id = short("id", message.id)?;
        let role = message.role.unwrap_or(Role::User);
        let passed = match &name {
            Some(name) => self.filter_spoken(name, &message.text, report),
            None => self.filter_text(&message.text, report),
        };
        let whole = message.parts.map(|parts| self.filter_json(parts, report));
        let parts = whole
            .as_deref()
            .map(|parts| budget::truncate_json(parts, MAX_PARTS_BYTES).into_owned());
        let silent = passed.text.trim().is_empty() && parts.is_none();
        if silent && (passed.own_bytes > 0 || id.is_none()) {
            return Ok(None);
        }
        let ts = match message.ts {
            None => when,
            // A time without an offset is in the vault's zone.
            Some(ts) if message.offset_assumed => {
                let civil = Offset::UTC.to_datetime(ts.timestamp());
                self.zone.moment(self.zone.instant_at(civil.date(), civil.time()))
            }
            Some(ts) => self.zone.moment(ts.timestamp()),
        };
        let words = secrets::strip_mark_codes(&passed.text);
        let id = id.unwrap_or_else(|| {
            let told = message.ts.map(|_| ts);
            let key =
                format!("{role}\0{}\0{words}", told.map_or(String::new(), |ts| ts.to_string()));
            let same = before.entry((session.clone(), key)).or_default();
            *same += 1;
            record::derived_id(session.as_deref(), role, name.as_deref(), &words, told, *same - 1)
        });
        let title = message
            .title
            .map(|title| sanitize::one_line(self.filter_text(&title, report).text.trim()));
        let title = title
            .filter(|title| !title.is_empty())
            .map(|title| title[..title.floor_char_boundary(MAX_NAME_BYTES)].to_owned());
        let origin = message.origin.or(defaults.origin).unwrap_or(match role {
            Role::User => Origin::User,
            Role::Assistant | Role::System => Origin::Assistant,
            Role::Tool => Origin::Tool,
        });
        let mut extra: Vec<(String, String)> = message
            .extra
            .into_iter()
            .map(|(name, raw)| {
                self.filter_field(name, raw, &mut |raw| self.filter_text(&raw, report).text)
            })
            .filter(|(name, _)| name != PARTS_CUT_FIELD)
            .collect();
        extra.extend(
            whole
                .filter(|whole| Some(whole) != parts.as_ref())
                .map(|whole| (PARTS_CUT_FIELD.to_owned(), whole.len().to_string())),
        );
        let kind = RecordKind::Message;
        Ok(Some(Record {
            ts,
            conversation,
            session,
            id,
            role,
            name,
            other_speaker,
            kind,
            title,
            text: passed.text,
            parts,
            origin,
            captured: self.now(),
            extra,
            withdrawn: false,
        }))
    }

    /// Imports lines of a bulk file; `first` is the number of the first line.
    pub async fn import_lines(
        &self,
        lines: &[String],
        first: usize,
        defaults: &CaptureDefaults,
    ) -> Result<CaptureReport> {
        self.refresh_tombstones().await?;
        let mut taken = CaptureReport::default();
        // Pending notes first: turns that hooks recorded are recognized by their ids.
        taken.or_complain(self.flush_all_pending().await);
        let mut said = Vec::with_capacity(lines.len());
        for (at, line) in lines.iter().enumerate() {
            let line = line.trim_start_matches('\u{feff}').trim();
            match record::parse_import_line(line) {
                _ if line.is_empty() => {}
                Ok(one) => said.push(one),
                Err(wrong) if taken.complaints.len() < MAX_COMPLAINTS => {
                    taken.complaints.push(format!("line {} {wrong}", first + at))
                }
                Err(_) => {}
            }
        }
        let complaints = std::mem::take(&mut taken.complaints);
        let pauses = self.pauses().await?;
        let records =
            self.filter_messages(said, defaults, self.now(), &pauses, &message_label, &mut taken);
        let records = self.match_stored_ids(records, false, &mut taken).await?;
        taken.complaints.splice(0..0, complaints);
        self.append_records(records, &mut taken).await?;
        Ok(taken)
    }

    /// Imports a transcript. `name` is its label, such as its file name.
    pub async fn import_session(
        &self,
        text: &str,
        name: &str,
        shape: Option<TranscriptFormat>,
        at: Option<Moment>,
        defaults: &CaptureDefaults,
    ) -> Result<TranscriptReport> {
        self.import_transcript(text, name, shape, at, defaults, false).await
    }

    pub(crate) async fn import_transcript(
        &self,
        text: &str,
        name: &str,
        shape: Option<TranscriptFormat>,
        at: Option<Moment>,
        defaults: &CaptureDefaults,
        live: bool,
    ) -> Result<TranscriptReport> {
        self.refresh_tombstones().await?;
        let now = at.unwrap_or_else(|| self.now());
        let offset = self.zone.offset(now.timestamp());
        // A secret of several lines must not be split into turns. In JSON each text is one piece.
        let mut taken = CaptureReport::default();
        let whole = if text.trim_start().starts_with(['{', '[']) {
            text.to_owned()
        } else {
            let mut filtered = CaptureReport::default();
            let whole = self.scrub_text(self.filter_text(text, &mut filtered).text);
            (taken.secrets, taken.unkeyed_marks) = (filtered.secrets, filtered.unkeyed_marks);
            whole
        };
        let read = transcript::parse_transcript(&whole, shape, now.day(), offset);
        if read.turns.is_empty() {
            let why = read
                .complaints
                .first()
                .map_or(String::new(), |(line, what)| format!(" (line {line}: {what})"));
            return Err(Error::NotFound(format!(
                "no messages found in {}{why}",
                sanitize::one_line(name)
            )));
        }
        let session = match defaults.session.clone().or(read.session.clone()) {
            Some(session) => session,
            None => {
                self.transcript_session(name, &read.turns[0].text, &taken.unkeyed_marks).await?
            }
        };
        let defaults = CaptureDefaults {
            conversation: defaults
                .conversation
                .clone()
                .or_else(|| Some(TRANSCRIPTS_CONVERSATION.into())),
            session: Some(session),
            origin: defaults.origin,
            extent: ConversationExtent::Whole,
        };
        let turns = read.turns.len();
        let mut last = now;
        let said: Vec<IncomingMessage> = read
            .turns
            .into_iter()
            .map(|mut said| {
                // A turn without a time gets the time of the turn before it.
                match said.ts {
                    Some(ts) => last = ts,
                    None if last != now => said.ts = Some(last),
                    None => {}
                }
                said
            })
            .collect();
        // Pending notes first: turns that hooks recorded are recognized by their ids.
        taken.or_complain(self.flush_all_pending().await);
        let pauses = self.pauses().await?;
        let records = self.filter_messages(
            said,
            &defaults,
            self.zone.moment(now.timestamp()),
            &pauses,
            &message_label,
            &mut taken,
        );
        let records = self.match_stored_ids(records, live, &mut taken).await?;
        let mut sessions: Vec<SessionKey> = records.iter().map(Record::session_key).collect();
        sessions.sort();
        sessions.dedup();
        self.append_records(records, &mut taken).await?;
        taken
            .complaints
            .splice(0..0, read.complaints.iter().map(|(line, what)| format!("line {line} {what}")));
        Ok(TranscriptReport {
            shape: read.shape.to_string(),
            turns,
            skipped: read.skipped,
            capture: taken,
            sessions,
        })
    }

    /// Saves an assistant's state: as a permanent snapshot, as the state to load next time, and as
    /// an entry of `24hr.md` unless it says nothing new (K1, K2).
    pub async fn save_state(
        &self,
        text: &str,
        title: Option<&str>,
        origin: Origin,
    ) -> Result<SavedState> {
        self.refresh_tombstones().await?;
        let (record, mut taken) = self.build_state_record(text, title, origin)?;
        self.append_records(vec![record.clone()], &mut taken).await?;
        let path: DocPath = layout::STATE.parse().map_err(StoreError::from)?;
        self.store.put(&path, format!("{}\n", record.text).as_bytes()).await?;
        let why_not = self.append_state_entry(&record).await?;
        Ok(SavedState {
            ts: record.ts,
            title: record.title.clone(),
            state: layout::STATE,
            snapshot: record.path().to_string(),
            entered: why_not.is_none(),
            why_not,
            capture: taken,
        })
    }

    /// Filters a state and makes the record of it.
    pub(crate) fn build_state_record(
        &self,
        text: &str,
        title: Option<&str>,
        origin: Origin,
    ) -> Result<(Record, CaptureReport)> {
        let now = self.now();
        let mut taken = CaptureReport::default();
        let passed = self.filter_text(text, &mut taken);
        let text = self.scrub_text(sanitize::clean(&passed.text).text);
        self.refuse_forgotten(&text)?;
        if text.is_empty() {
            return Err(EventDraftError::Empty.into());
        }
        if text.len() > MAX_TEXT_BYTES {
            return Err(Error::LimitExceeded(format!(
                "the state has {} bytes, the limit is {MAX_TEXT_BYTES}",
                text.len()
            )));
        }
        let title = title
            .map(|title| {
                sanitize::one_line(&self.scrub_text(self.filter_text(title, &mut taken).text))
            })
            .map(|title| title.trim().to_owned())
            .filter(|title| !title.is_empty());
        let record = Record {
            ts: now,
            conversation: STATES_CONVERSATION.into(),
            session: None,
            id: record::derived_id(None, Role::Assistant, title.as_deref(), &text, Some(now), 0),
            role: Role::Assistant,
            name: None,
            other_speaker: None,
            kind: RecordKind::State,
            title,
            text,
            parts: None,
            origin,
            captured: now,
            extra: Vec::new(),
            withdrawn: false,
        };
        Ok((record, taken))
    }

    /// Appends a state to `24hr.md`, or returns why not: it equals the last entry or follows it too
    /// soon.
    async fn append_state_entry(&self, record: &Record) -> Result<Option<String>> {
        let path: DocPath = layout::LAST_DAY.parse().map_err(StoreError::from)?;
        let mut last = StoreError::conflict(path.to_string());
        for _ in 0..MAX_ATTEMPTS {
            let so_far = self.store.document(&path).await?;
            let (_, entries) = states::parse_entries(&String::from_utf8_lossy(
                so_far.as_deref().unwrap_or_default(),
            ));
            if let Some(before) = entries.last() {
                if before.text == record.text.trim() {
                    return Ok(Some("it equals the last entry".into()));
                }
                let time = before.clock.parse().unwrap_or_default();
                let apart = record.ts.timestamp().as_second()
                    - self.zone.instant_at(before.day, time).as_second();
                let least = i64::from(self.policy.capture.min_minutes_between_state_entries) * 60;
                // Entries have no seconds; an entry from the future comes from another program.
                if (0..least).contains(&apart) {
                    return Ok(Some(format!(
                        "the last entry is {} minutes old, less than {}",
                        apart / 60,
                        least / 60
                    )));
                }
            }
            match self
                .store
                .append_if_unchanged(
                    &path,
                    states::format_state_entry(record).as_bytes(),
                    ContentVersion::of(so_far.as_deref()),
                )
                .await
            {
                Err(moved @ StoreError { kind: StoreErrorKind::Conflict, .. }) => last = moved,
                other => {
                    other?;
                    return Ok(None);
                }
            }
        }
        Err(last.into())
    }
}
