//! Records: captured messages and saved states, kept permanently and verbatim (Y1).
//!
//! A record is identified by its conversation and id. A record without an id gets one derived from
//! a hash of its content, never a random one, so capturing the same thing twice stores it once. The
//! same key with other words is a revision: it comes later in the file, and the last one counts.
use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;

use icecore_text::normalize::collapse_spaces;
use jiff::civil::Date;
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::calendar::Moment;
use crate::event::{Origin, ParseEnumError};
use crate::hash::Hash;
use crate::layout::DocPath;
use crate::secrets::strip_mark_codes;
use crate::string_enum::string_enum;

/// The longest text of one record; its JSON line stays below the line limit.
pub const MAX_TEXT_BYTES: usize = 2 * 1024 * 1024;
/// The longest parts of one record; longer texts within them are truncated, and the record says so.
pub const MAX_PARTS_BYTES: usize = 1024 * 1024;
/// The longest conversation, session, id or name.
pub const MAX_NAME_BYTES: usize = 512;

/// The field with the project of a message.
pub const PROJECT_FIELD: &str = "project";
/// The field that marks a prompt typed while the assistant was working.
pub const QUEUED_FIELD: &str = "queued";
/// Its value, as raw JSON, if the prompt was delivered.
pub const DELIVERED_JSON: &str = "\"delivered\"";
/// Its value, as raw JSON, if the prompt had not been delivered when it was read.
pub const UNDELIVERED_JSON: &str = "\"undelivered\"";
/// The field in which a subagent's record names its parent session.
pub const PARENT_SESSION_FIELD: &str = "parent_session";
/// Separates a session's name from its subagent's.
const HELPER_SEPARATOR: &str = "/agent-";

string_enum! {
    /// Who speaks.
    Role: "a role" {
        /// A person: the owner, unless the record names another speaker.
        User = "user",
        /// The assistant.
        Assistant = "assistant",
        /// Instructions to the assistant.
        System = "system",
        /// A tool's output.
        Tool = "tool",
    }
}

impl Role {
    /// The role that other programs mean by this word.
    pub fn from_alias(word: &str) -> Option<Self> {
        match word.trim().to_ascii_lowercase().as_str() {
            "user" | "human" | "me" | "you" | "customer" | "prompt" => Some(Self::User),
            "assistant" | "ai" | "bot" | "model" | "agent" | "claude" | "chatgpt" | "codex" => {
                Some(Self::Assistant)
            }
            "system" | "developer" => Some(Self::System),
            "tool" | "function" | "tool_result" => Some(Self::Tool),
            _ => None,
        }
    }

    /// The role in a client's request. An unknown word does not count as the user.
    pub fn from_client(word: Option<&str>) -> Self {
        word.and_then(Self::from_alias).unwrap_or(Self::Tool)
    }
}

string_enum! {
    /// The kind of a record.
    RecordKind: "a kind of record" {
        /// A message.
        Message = "message",
        /// A state that an assistant saved.
        State = "state",
    }
}

string_enum! {
    /// The trust in the words of a record.
    Trust: "a trust" {
        /// The owner's own words.
        High = "high",
        /// An assistant's words.
        Medium = "medium",
        /// The words of a tool, a web page or a foreign file.
        Low = "low",
    }
}

impl Trust {
    /// The trust that words of this origin deserve.
    pub fn from_origin(origin: Origin) -> Self {
        match origin {
            Origin::User => Self::High,
            Origin::Assistant | Origin::File => Self::Medium,
            Origin::Tool | Origin::Import => Self::Low,
        }
    }
}

/// A captured message or saved state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// When it was said.
    pub ts: Moment,
    pub conversation: String,
    /// The session within the conversation, if any.
    pub session: Option<String>,
    /// The id within the conversation.
    pub id: String,
    pub role: Role,
    /// The speaker's name, if known.
    pub name: Option<String>,
    /// The speaker, if it is another person than the owner of this memory. Their words are of low
    /// trust.
    pub other_speaker: Option<String>,
    pub kind: RecordKind,
    /// A saved state's title, or that of the session which a message begins.
    pub title: Option<String>,
    pub text: String,
    /// Tool uses, files and other content, as raw JSON.
    pub parts: Option<String>,
    pub origin: Origin,
    /// When it was captured.
    pub captured: Moment,
    /// Fields of other programs, as raw JSON, in order.
    pub extra: Vec<(String, String)>,
    /// Whether its conversation continues without it. The engine computes this when it reads; it is
    /// not stored.
    pub withdrawn: bool,
}

/// Identifies a record: a hash of conversation and id.
pub type RecordKey = [u8; 16];

/// Identifies a session: the records of a conversation, under one session name, within one local
/// day.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionKey {
    /// The local day. A session that crosses midnight is two.
    pub day: Date,
    pub conversation: String,
    /// The session's name; `None` for records that came without one.
    pub session: Option<String>,
}

/// A digest of a set of records, independent of their order. It changes whenever a record is added
/// or revised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct RecordSetDigest {
    /// The number of records.
    pub records: u64,
    sum: u128,
}

impl RecordSetDigest {
    /// Adds a record's content hash.
    pub fn add(&mut self, content: RecordKey) {
        self.records += 1;
        self.sum = self.sum.wrapping_add(u128::from_be_bytes(content));
    }

    /// The digest of both sets.
    pub fn combine(self, other: Self) -> Self {
        Self { records: self.records + other.records, sum: self.sum.wrapping_add(other.sum) }
    }

    /// The stored form.
    pub fn to_bytes(&self) -> [u8; 16] {
        self.sum.to_be_bytes()
    }

    /// Reads the stored form.
    pub fn from_parts(records: u64, bytes: [u8; 16]) -> Self {
        Self { records, sum: u128::from_be_bytes(bytes) }
    }

    /// The digest as a [`Hash`].
    pub fn hash(&self) -> Hash {
        Hash::of(format!("{} {:032x}", self.records, self.sum).as_bytes())
    }
}

/// Statistics of a session's records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionStats {
    pub key: SessionKey,
    pub digest: RecordSetDigest,
    /// The number of saved states.
    pub states: u64,
    /// The bytes of text.
    pub bytes: u64,
    /// The time of the first record.
    pub first: Moment,
    /// The time of the last record.
    pub last: Moment,
    /// When the first of them was captured.
    pub captured: Moment,
    /// The last chat turn among them; 0 if there is none.
    pub turn: u64,
}

fn truncate_hash(hash: Hash) -> RecordKey {
    let mut key = [0; 16];
    key.copy_from_slice(&hash.as_bytes()[..16]);
    key
}

impl Record {
    /// The record's key.
    pub fn key(&self) -> RecordKey {
        record_key(&self.conversation, &self.id)
    }

    /// A hash of the content, independent of the capture. It includes time and session, because
    /// summaries depend on them.
    pub fn content_hash(&self) -> RecordKey {
        let mut said = Vec::with_capacity(self.text.len() + 128);
        let ts = self.ts.timestamp().as_second().to_be_bytes();
        let fields = [
            self.conversation.as_bytes(),
            self.session.as_deref().unwrap_or_default().as_bytes(),
            self.id.as_bytes(),
            self.role.word().as_bytes(),
            self.name.as_deref().unwrap_or_default().as_bytes(),
            self.title.as_deref().unwrap_or_default().as_bytes(),
            self.parts.as_deref().unwrap_or_default().as_bytes(),
            ts.as_slice(),
        ];
        for field in fields {
            said.extend_from_slice(&(field.len() as u64).to_be_bytes());
            said.extend_from_slice(field);
        }
        said.extend_from_slice(self.text.as_bytes());
        truncate_hash(Hash::of(&said))
    }

    /// A hash of the words alone: two records with the same key and wording are one record,
    /// whenever they came. For a hidden secret only the kind counts, because the mark may come from
    /// another key.
    pub fn wording_hash(&self) -> RecordKey {
        let (text, parts) =
            (strip_mark_codes(&self.text), self.parts.as_deref().map(strip_mark_codes));
        let lengths = [self.name.as_deref(), parts.as_deref()]
            .map(|text| text.map_or(u64::MAX, |text| text.len() as u64));
        let mut said = Vec::with_capacity(text.len() + 64);
        said.extend(lengths.iter().flat_map(|length| length.to_be_bytes()));
        for text in [
            self.role.word(),
            self.name.as_deref().unwrap_or_default(),
            parts.as_deref().unwrap_or_default(),
            &text,
        ] {
            said.extend_from_slice(text.as_bytes());
        }
        truncate_hash(Hash::of(&said))
    }

    /// Whether it is a client's instructions to its model: stored, but excluded from summaries,
    /// extraction and search.
    pub fn is_instructions(&self) -> bool {
        self.role == Role::System
    }

    /// The project it was said in, if recorded.
    pub fn project(&self) -> Option<String> {
        let raw = self.extra.iter().find(|(name, _)| name == PROJECT_FIELD).map(|(_, raw)| raw)?;
        serde_json::from_str(raw).ok()
    }

    /// Whether it was typed while the assistant was working and had not been delivered when it was
    /// read.
    pub fn is_undelivered(&self) -> bool {
        self.extra.iter().any(|(name, raw)| name == QUEUED_FIELD && raw == UNDELIVERED_JSON)
    }

    /// The session it belongs to.
    pub fn session_key(&self) -> SessionKey {
        SessionKey {
            day: self.ts.day(),
            conversation: self.conversation.clone(),
            session: self.session.clone(),
        }
    }

    /// The chat turn it belongs to, if it came through the server.
    pub fn turn(&self) -> Option<u64> {
        self.extra_number("turn")
    }

    /// A number among the fields of other programs, limited to 32 bits.
    pub fn extra_number(&self, name: &str) -> Option<u64> {
        let (_, raw) = self.extra.iter().find(|(field, _)| field == name)?;
        raw.trim_matches('"').parse::<u32>().ok().map(u64::from)
    }

    /// The file it is stored in.
    pub fn path(&self) -> DocPath {
        DocPath::records(self.kind, self.ts.day())
    }

    /// The speaker's name or role, for a reader.
    pub fn speaker_name(&self) -> &str {
        match (&self.name, self.kind) {
            (Some(name), _) => name,
            (None, RecordKind::State) => "state",
            (None, RecordKind::Message) => self.role.word(),
        }
    }

    /// The JSON line, with the line break.
    pub fn to_line(&self) -> String {
        let mut line = String::with_capacity(
            self.text.len() + self.parts.as_ref().map_or(0, String::len) + 256,
        );
        let mut field = |name: &str, value: &str| {
            line.push(if line.is_empty() { '{' } else { ',' });
            line.push('"');
            line.push_str(name);
            line.push_str("\":");
            push_json(&mut line, value);
        };
        field("ts", &self.ts.to_string());
        field("conversation", &self.conversation);
        if let Some(session) = &self.session {
            field("session", session);
        }
        field("id", &self.id);
        field("role", self.role.word());
        if let Some(name) = &self.name {
            field("name", name);
        }
        if let Some(speaker) = &self.other_speaker {
            field("speaker", speaker);
        }
        if self.kind != RecordKind::Message {
            field("kind", self.kind.word());
        }
        if let Some(title) = &self.title {
            field("title", title);
        }
        field("text", &self.text);
        field("origin", self.origin.word());
        field("trust", Trust::from_origin(self.origin).word());
        field("captured", &self.captured.to_string());
        let raws = self
            .parts
            .iter()
            .map(|parts| ("parts", parts))
            .chain(self.extra.iter().map(|(name, raw)| (name.as_str(), raw)));
        for (name, raw) in raws {
            line.push(',');
            push_json(&mut line, name);
            line.push(':');
            line.push_str(raw);
        }
        line.push_str("}\n");
        line
    }
}

/// The key of a record with that conversation and id.
pub fn record_key(conversation: &str, id: &str) -> RecordKey {
    let mut bytes = Vec::with_capacity(conversation.len() + id.len() + 1);
    bytes.extend_from_slice(conversation.as_bytes());
    bytes.push(0);
    bytes.extend_from_slice(id.as_bytes());
    truncate_hash(Hash::of(&bytes))
}

/// The id of a message without one: a hash of its content and of the number of equal messages
/// before it. For a hidden secret only the kind counts.
pub fn derived_id(
    session: Option<&str>,
    role: Role,
    name: Option<&str>,
    text: &str,
    ts: Option<Moment>,
    before: usize,
) -> String {
    unkeyed_derived_id(session, role, name, &strip_mark_codes(text), ts, before)
}

/// The same as version 0.1 derived it: from a text whose marks count. `text` must have the marks of
/// that version.
pub fn unkeyed_derived_id(
    session: Option<&str>,
    role: Role,
    name: Option<&str>,
    text: &str,
    ts: Option<Moment>,
    before: usize,
) -> String {
    let said = [
        session.unwrap_or_default(),
        role.word(),
        name.unwrap_or_default(),
        &ts.map_or(String::new(), |ts| ts.timestamp().to_string()),
        &before.to_string(),
        text,
    ];
    format!("h{}", &Hash::of(said.join("\0").as_bytes()).to_string()[..16])
}

/// The session of a subagent that worked for another session.
pub fn helper_session(parent: &str, helper: &str) -> String {
    format!("{parent}{HELPER_SEPARATOR}{helper}")
}

/// The parent session of a subagent's session; `None` for any other session.
pub fn parent_session(session: &str) -> Option<&str> {
    session
        .split_once(HELPER_SEPARATOR)
        .map(|(parent, _)| parent)
        .filter(|parent| !parent.is_empty())
}

/// The id of a turn derived from its words: the same whether a hook captured it live or its
/// transcript was read later. White space does not count, since the two differ in it, and of a
/// hidden secret only the kind does. `before` is the number of equal turns before it in the
/// session.
pub fn turn_id(session: Option<&str>, role: Role, text: &str, before: usize) -> String {
    unkeyed_turn_id(session, role, &strip_mark_codes(text), before)
}

/// The same as version 0.1 derived it: from a text whose marks count. `text` must have the marks of
/// that version.
pub fn unkeyed_turn_id(session: Option<&str>, role: Role, text: &str, before: usize) -> String {
    format!(
        "t{}",
        &turn_hash(session, role, &format!("{before}\0{}", collapse_spaces(text))).to_string()
            [..16]
    )
}

/// A key shared by equal words of the same speaker in one session.
pub fn turn_words_key(session: Option<&str>, role: Role, text: &str) -> String {
    turn_hash(session, role, &collapse_spaces(&strip_mark_codes(text))).to_string()[..16].to_owned()
}

fn turn_hash(session: Option<&str>, role: Role, said: &str) -> Hash {
    Hash::of([session.unwrap_or_default(), role.word(), said].join("\0").as_bytes())
}

fn push_json(line: &mut String, text: &str) {
    // Most text has nothing to escape but line breaks and quotes.
    line.push('"');
    let mut clean = 0;
    for (at, byte) in text.bytes().enumerate() {
        let escaped = match byte {
            b'"' => "\\\"",
            b'\\' => "\\\\",
            b'\n' => "\\n",
            b'\r' => "\\r",
            b'\t' => "\\t",
            0..=0x1f => "",
            _ => continue,
        };
        line.push_str(&text[clean..at]);
        if escaped.is_empty() {
            line.push_str(&format!("\\u{byte:04x}"));
        } else {
            line.push_str(escaped);
        }
        clean = at + 1;
    }
    line.push_str(&text[clean..]);
    line.push('"');
}

/// The known fields of a line.
#[derive(Default)]
struct RecordFields<'a> {
    ts: Option<Cow<'a, str>>,
    conversation: Option<Cow<'a, str>>,
    session: Option<Cow<'a, str>>,
    id: Option<Cow<'a, str>>,
    role: Option<Cow<'a, str>>,
    name: Option<Cow<'a, str>>,
    speaker: Option<Cow<'a, str>>,
    kind: Option<Cow<'a, str>>,
    title: Option<Cow<'a, str>>,
    text: Option<Cow<'a, str>>,
    origin: Option<Cow<'a, str>>,
    captured: Option<Cow<'a, str>>,
    parts: Option<&'a RawValue>,
    extra: Vec<(String, &'a RawValue)>,
}

/// A text that borrows from the line if it contains no escapes.
struct JsonText<'a>(Option<Cow<'a, str>>);

impl<'de> Deserialize<'de> for JsonText<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = JsonText<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(JsonText(Some(Cow::Borrowed(text))))
            }

            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(JsonText(Some(Cow::Owned(text.to_owned()))))
            }

            fn visit_u64<E>(self, number: u64) -> Result<Self::Value, E> {
                Ok(JsonText(Some(Cow::Owned(number.to_string()))))
            }

            fn visit_i64<E>(self, number: i64) -> Result<Self::Value, E> {
                Ok(JsonText(Some(Cow::Owned(number.to_string()))))
            }

            fn visit_unit<E>(self) -> Result<Self::Value, E> {
                Ok(JsonText(None))
            }

            fn visit_none<E>(self) -> Result<Self::Value, E> {
                Ok(JsonText(None))
            }
        }
        deserializer.deserialize_any(Reader)
    }
}

impl<'de> Deserialize<'de> for RecordFields<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = RecordFields<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut fields = RecordFields::default();
                while let Some(JsonText(name)) = map.next_key()? {
                    let name = name.unwrap_or_default();
                    let slot = match name.as_ref() {
                        "ts" => &mut fields.ts,
                        "conversation" => &mut fields.conversation,
                        "session" => &mut fields.session,
                        "id" => &mut fields.id,
                        "role" => &mut fields.role,
                        "name" => &mut fields.name,
                        "speaker" => &mut fields.speaker,
                        "kind" => &mut fields.kind,
                        "title" => &mut fields.title,
                        "text" => &mut fields.text,
                        "origin" => &mut fields.origin,
                        "captured" => &mut fields.captured,
                        "parts" => {
                            fields.parts = Some(map.next_value()?);
                            continue;
                        }
                        // Derived from the origin at each write.
                        "trust" => {
                            map.next_value::<IgnoredAny>()?;
                            continue;
                        }
                        _ => {
                            fields.extra.push((name.into_owned(), map.next_value()?));
                            continue;
                        }
                    };
                    *slot = map.next_value::<JsonText<'de>>()?.0;
                }
                Ok(fields)
            }
        }
        deserializer.deserialize_map(Reader)
    }
}

/// Why a line is not a record, as the end of the sentence "this line …".
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NotARecord(pub String);

/// A message from an import or a transcript, before missing values are filled in.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct IncomingMessage {
    /// The time, if known.
    pub ts: Option<Moment>,
    pub conversation: Option<String>,
    pub session: Option<String>,
    pub id: Option<String>,
    /// The role; `None` if there is only a name, or nothing says who speaks.
    pub role: Option<Role>,
    pub name: Option<String>,
    /// The speaker, if it is not the owner; set by [`crate::speaker::attribute_speakers`].
    pub other_speaker: Option<String>,
    pub text: String,
    /// Tool uses and files, as raw JSON.
    pub parts: Option<String>,
    /// Fields of other programs, as raw JSON.
    pub extra: Vec<(String, String)>,
    /// The time came without an offset, and UTC was assumed.
    pub offset_assumed: bool,
    /// The working directory, if the program recorded it.
    pub folder: Option<String>,
    /// The title of the session it begins.
    pub title: Option<String>,
    /// The origin of the words, if it does not follow from the role.
    pub origin: Option<Origin>,
}

fn not_a_record(what: impl Into<String>) -> NotARecord {
    NotARecord(what.into())
}

fn json_error(error: &serde_json::Error) -> NotARecord {
    not_a_record(format!(
        "is not a JSON object: {}",
        error.to_string().split(" at line ").next().unwrap_or_default()
    ))
}

fn non_blank(text: Option<Cow<'_, str>>) -> Option<String> {
    text.filter(|text| !text.trim().is_empty()).map(Cow::into_owned)
}

/// Parses a line of an import: `{"conversation","session","role","name","ts","id","text"}`, of
/// which only `text` and `ts` are required. Other fields are kept.
pub fn parse_import_line(line: &str) -> Result<IncomingMessage, NotARecord> {
    let fields: RecordFields<'_> =
        serde_json::from_str(line).map_err(|error| json_error(&error))?;
    let (ts, offset_assumed) = match &fields.ts {
        None => {
            return Err(not_a_record(
                "has no `ts`; each message needs its time, such as 2026-02-13T09:30:00Z",
            ));
        }
        Some(text) => match Moment::parse(text).or_else(|| parse_unix_time(text)) {
            Some(read) => (Some(read.moment), read.offset_assumed),
            None => {
                return Err(not_a_record(format!(
                    "has an invalid `ts`: {}",
                    crate::sanitize::one_line(&text.chars().take(40).collect::<String>())
                )));
            }
        },
    };
    let Some(text) = fields.text else { return Err(not_a_record("has no `text`")) };
    let role = fields.role.as_deref().and_then(Role::from_alias);
    // An unknown role is kept as a name.
    let unknown = fields.role.filter(|_| role.is_none());
    let name =
        non_blank(fields.name).or_else(|| non_blank(fields.speaker)).or_else(|| non_blank(unknown));
    let role = role.or_else(|| name.is_none().then_some(Role::User));
    Ok(IncomingMessage {
        ts,
        conversation: non_blank(fields.conversation),
        session: non_blank(fields.session),
        id: non_blank(fields.id),
        role,
        name,
        text: text.into_owned(),
        parts: fields.parts.map(|raw| raw.get().to_owned()),
        extra: fields.extra.into_iter().map(|(name, raw)| (name, raw.get().to_owned())).collect(),
        offset_assumed,
        ..IncomingMessage::default()
    })
}

/// Seconds or milliseconds since 1970, as some exports write them.
fn parse_unix_time(text: &str) -> Option<crate::calendar::ParsedMoment> {
    let number: f64 = text.trim().parse().ok()?;
    let seconds = if number.abs() > 1e11 { number / 1_000.0 } else { number };
    if !(0.0..=253_402_300_799.0).contains(&seconds) {
        return None;
    }
    #[expect(clippy::cast_possible_truncation, reason = "in the range that was just checked")]
    let at = jiff::Timestamp::from_second(seconds as i64).ok()?;
    Some(crate::calendar::ParsedMoment {
        moment: Moment::new(at, jiff::tz::Offset::UTC),
        offset_assumed: false,
    })
}

/// Parses a line of a record file.
pub fn parse_line(line: &[u8]) -> Result<Record, NotARecord> {
    let text = std::str::from_utf8(line).map_err(|error| {
        not_a_record(format!("is not UTF-8 from byte {} on", error.valid_up_to() + 1))
    })?;
    let fields: RecordFields<'_> =
        serde_json::from_str(text).map_err(|error| json_error(&error))?;
    let moment = |text: &Option<Cow<'_, str>>| {
        text.as_deref().and_then(Moment::parse).map(|read| read.moment)
    };
    let ts = moment(&fields.ts).ok_or_else(|| not_a_record("has no valid `ts`"))?;
    let word = |error: ParseEnumError| not_a_record(error.to_string());
    let other_speaker = non_blank(fields.speaker);
    let origin: Origin =
        fields.origin.as_deref().map_or(Ok(Origin::Import), str::parse).map_err(word)?;
    Ok(Record {
        ts,
        conversation: fields
            .conversation
            .ok_or_else(|| not_a_record("has no `conversation`"))?
            .into_owned(),
        session: fields.session.map(Cow::into_owned),
        id: fields.id.ok_or_else(|| not_a_record("has no `id`"))?.into_owned(),
        role: fields.role.as_deref().unwrap_or("user").parse().map_err(word)?,
        name: fields.name.map(Cow::into_owned),
        kind: fields.kind.as_deref().map_or(Ok(RecordKind::Message), str::parse).map_err(word)?,
        title: fields.title.map(Cow::into_owned),
        text: fields.text.ok_or_else(|| not_a_record("has no `text`"))?.into_owned(),
        parts: fields.parts.map(|raw| raw.get().to_owned()),
        // Another person's words never have the owner's trust, whatever the line says.
        origin: if other_speaker.is_some() && Trust::from_origin(origin) != Trust::Low {
            Origin::Import
        } else {
            origin
        },
        other_speaker,
        captured: moment(&fields.captured).unwrap_or(ts),
        extra: fields.extra.into_iter().map(|(name, raw)| (name, raw.get().to_owned())).collect(),
        withdrawn: false,
    })
}

/// An invalid line of a record file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadRecordLine {
    /// The line number, from 1.
    pub line: usize,
    /// The byte offset.
    pub offset: usize,
    /// The reason, as the end of the sentence "this line …".
    pub what: String,
}

/// A file's records in the order they were said, each key once in its last wording; and the invalid
/// lines.
pub fn parse_file(text: &[u8]) -> (Vec<Record>, Vec<BadRecordLine>) {
    let (mut records, mut bad): (Vec<Record>, _) = (Vec::new(), Vec::new());
    let mut places: HashMap<RecordKey, usize> = HashMap::new();
    let mut offset = 0;
    for (at, line) in text.split_inclusive(|&byte| byte == b'\n').enumerate() {
        let content = line.trim_ascii();
        match parse_line(content) {
            Ok(record) => match places.entry(record.key()) {
                std::collections::hash_map::Entry::Occupied(place) => {
                    records[*place.get()] = record
                }
                std::collections::hash_map::Entry::Vacant(place) => {
                    place.insert(records.len());
                    records.push(record);
                }
            },
            Err(_) if content.is_empty() => {}
            Err(NotARecord(what)) => bad.push(BadRecordLine { line: at + 1, offset, what }),
        }
        offset += line.len();
    }
    // Stable: within one second, the order of capture counts.
    records.sort_by_key(|record| record.ts.timestamp());
    (records, bad)
}

/// The statistics of a day's records by session, sorted by key.
pub fn session_stats<'a>(records: impl IntoIterator<Item = &'a Record>) -> Vec<SessionStats> {
    let mut found: std::collections::BTreeMap<SessionKey, SessionStats> =
        std::collections::BTreeMap::new();
    for record in records {
        let key = record.session_key();
        let stat = found.entry(key.clone()).or_insert_with(|| SessionStats::new(key, record));
        stat.add(record);
    }
    found.into_values().collect()
}

impl SessionStats {
    /// The statistics of a session without records; times come from `record`.
    pub fn new(key: SessionKey, record: &Record) -> Self {
        Self {
            key,
            digest: RecordSetDigest::default(),
            states: 0,
            bytes: 0,
            first: record.ts,
            last: record.ts,
            captured: record.captured,
            turn: 0,
        }
    }

    /// The statistics of both parts.
    pub fn merge(self, other: &Self) -> Self {
        Self {
            digest: self.digest.combine(other.digest),
            states: self.states + other.states,
            bytes: self.bytes + other.bytes,
            first: self.first.min(other.first),
            last: self.last.max(other.last),
            captured: self.captured.min(other.captured),
            turn: self.turn.max(other.turn),
            key: self.key,
        }
    }

    /// Adds a record.
    pub fn add(&mut self, record: &Record) {
        self.digest.add(record.content_hash());
        self.states += u64::from(record.kind == RecordKind::State);
        self.bytes += record.text.len() as u64;
        self.turn = self.turn.max(record.turn().unwrap_or(0));
        self.first = self.first.min(record.ts);
        self.last = self.last.max(record.ts);
        self.captured = self.captured.min(record.captured);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn record(text: &str) -> Record {
        let ts = Moment::parse("2026-02-13T09:30:00+01:00").unwrap().moment;
        Record {
            ts,
            conversation: "work".into(),
            session: Some("s1".into()),
            id: "m1".into(),
            role: Role::User,
            name: None,
            other_speaker: None,
            kind: RecordKind::Message,
            title: None,
            text: text.into(),
            parts: None,
            origin: Origin::User,
            captured: ts,
            extra: Vec::new(),
            withdrawn: false,
        }
    }

    // Y1
    #[test]
    fn only_a_reader_marks_a_record_as_withdrawn() {
        let foreign = Record { extra: vec![("withdrawn".into(), "true".into())], ..record("tea") };
        let read = parse_line(foreign.to_line().trim_end().as_bytes()).unwrap();
        assert_eq!((read.withdrawn, &read.extra), (false, &foreign.extra));
        let marked = Record { withdrawn: true, ..record("tea") };
        assert_eq!(marked.to_line(), record("tea").to_line());
    }

    // Y1
    #[test]
    fn a_record_is_one_line_that_a_person_can_read() {
        let said = Record {
            parts: Some(r#"[{"type":"file","name":"a.txt"}]"#.into()),
            ..record("say \"hi\"\nthen go")
        };
        assert_eq!(
            said.to_line(),
            "{\"ts\":\"2026-02-13T09:30:00+01:00\",\"conversation\":\"work\",\"session\":\"s1\",\"id\":\"m1\",\"role\":\"user\",\
             \"text\":\"say \\\"hi\\\"\\nthen go\",\"origin\":\"user\",\"trust\":\"high\",\"captured\":\"2026-02-13T09:30:00+01:00\",\
             \"parts\":[{\"type\":\"file\",\"name\":\"a.txt\"}]}\n"
        );
    }

    proptest! {
        // Y1
        #[test]
        fn what_is_written_is_read_back_word_for_word(text in any::<String>(), name in proptest::option::of(any::<String>()), session in proptest::option::of(".{0,8}")) {
            let said = Record { name, session, extra: vec![("x".into(), "[1, 2]".into())], ..record(&text) };
            let line = said.to_line();
            prop_assert_eq!(line.matches('\n').count(), 1);
            prop_assert_eq!(parse_line(line.trim_end().as_bytes()), Ok(said));
        }

        #[test]
        fn of_a_hidden_secret_only_its_kind_counts(
            before in "[a-z \\[\\]:]{0,12}", after in "[a-z \\[\\]:]{0,12}", kind in "[a-z]{1,8}(-[a-z]{1,4})?", one in "[0-9a-f]{8}", other in "[0-9a-f]{8}",
        ) {
            let said = |code: &str| record(&format!("{before}[secret:{kind}:{code}]{after}"));
            let (one, other) = (said(&one), said(&other));
            let id = |record: &Record| derived_id(None, Role::User, None, &record.text, Some(record.ts), 0);
            let heard = |record: &Record| (turn_id(Some("s"), Role::User, &record.text, 0), turn_words_key(Some("s"), Role::User, &record.text));
            prop_assert_eq!(one.wording_hash(), other.wording_hash());
            prop_assert_eq!((id(&one), heard(&one)), (id(&other), heard(&other)));
            let unlike = record(&format!("{before}[secret:x{kind}:00000000]{after}"));
            prop_assert_ne!(one.wording_hash(), unlike.wording_hash());
        }

        #[test]
        fn no_line_makes_the_reader_fall(line in any::<Vec<u8>>(), text in ".*") {
            let _ = parse_line(&line);
            let _ = parse_import_line(&text);
            let _ = parse_file(&line);
        }
    }

    #[test]
    fn the_last_wording_counts_and_order_is_that_of_time() {
        let later = Record {
            id: "m0".into(),
            ts: Moment::parse("2026-02-13T08:00:00+01:00").unwrap().moment,
            ..record("first said")
        };
        let text = [record("teh"), later.clone(), record("the")]
            .iter()
            .map(Record::to_line)
            .collect::<String>()
            + "{broken\n\n";
        let (records, bad) = parse_file(text.as_bytes());
        assert_eq!(records, [later, record("the")]);
        assert_eq!(bad.len(), 1);
        assert_eq!(bad[0].line, 4);
    }

    fn check(line: &str, outcome: Result<(&str, Option<Role>, Option<&str>), &str>) {
        match (parse_import_line(line), outcome) {
            (Ok(said), Ok((text, role, name))) => {
                assert_eq!(
                    (said.text.as_str(), said.role, said.name.as_deref()),
                    (text, role, name),
                    "{line}"
                )
            }
            (Err(error), Err(part)) => assert!(error.0.contains(part), "{line}: {error}"),
            (found, _) => panic!("{line}: {found:?}"),
        }
    }

    #[test]
    fn import_lines_are_read_as_people_have_them() {
        let user = Some(Role::User);
        check(r#"{"ts":"2026-02-13T09:30:00Z","text":"hi"}"#, Ok(("hi", user, None)));
        check(r#"{"ts":1770975000,"role":"human","text":"hi","id":7}"#, Ok(("hi", user, None)));
        check(
            r#"{"ts":"1770975000.25","role":"assistant","text":""}"#,
            Ok(("", Some(Role::Assistant), None)),
        );
        check(
            r#"{"ts":"2026-02-13","role":"Caroline","text":"hi"}"#,
            Ok(("hi", None, Some("Caroline"))),
        );
        check(
            r#"{"ts":"2026-02-13T09:30:00Z","role":null,"name":"Ann","text":"hi","zip":{"a":1}}"#,
            Ok(("hi", None, Some("Ann"))),
        );
        check(
            r#"{"ts":"2026-02-13T09:30:00Z","speaker":"Ann","text":"hi"}"#,
            Ok(("hi", None, Some("Ann"))),
        );
        check(
            r#"{"ts":"2026-02-13T09:30:00Z","role":"user","name":"Ann","text":"hi"}"#,
            Ok(("hi", user, Some("Ann"))),
        );
        check(r#"{"text":"hi"}"#, Err("has no `ts`"));
        check(r#"{"ts":"soon","text":"hi"}"#, Err("invalid `ts`: soon"));
        check(r#"{"ts":"2026-02-13T09:30:00Z"}"#, Err("has no `text`"));
        check(r#"[1]"#, Err("not a JSON object"));
        check("", Err("not a JSON object"));
    }

    #[test]
    fn a_digest_knows_no_order_and_adds_up() {
        let (a, b) = (record("a").content_hash(), record("b").content_hash());
        let of = |list: &[RecordKey]| {
            list.iter().fold(RecordSetDigest::default(), |mut sum, &content| {
                sum.add(content);
                sum
            })
        };
        assert_eq!(of(&[a, b]), of(&[b, a]));
        assert_ne!(of(&[a, b]), of(&[a, a]));
        let sum = of(&[a]).combine(of(&[b]));
        assert_eq!(sum, of(&[a, b]));
        assert_eq!(RecordSetDigest::from_parts(sum.records, sum.to_bytes()), sum);
    }
}
