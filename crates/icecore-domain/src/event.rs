//! The event: one learnt statement or act, with its provenance (L2, L3).

use std::fmt;
use std::ops::Deref;
use std::str::FromStr;

use jiff::civil::Date;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::calendar::Moment;
use crate::id::EventId;
use crate::sanitize;
pub use crate::string_enum::ParseEnumError;
use crate::string_enum::string_enum;

/// The longest content of an event, in bytes. An event is a sentence or a paragraph; longer texts
/// belong in the log.
pub const MAX_CONTENT_BYTES: usize = 64 * 1024;
/// The longest short field (entity, tag, source, session, …), in bytes.
pub const MAX_FIELD_BYTES: usize = 1024;
/// Name of the field that holds the exact words from which an event was extracted.
pub const QUOTE_FIELD: &str = "quote";
/// Name of the field that holds who said those words, if it was not the owner.
pub const SPEAKER_FIELD: &str = "speaker";
/// Name of the field that holds when those words were said.
pub const SAID_AT_FIELD: &str = "said";
/// Name of the field that holds the page section from which an event was read.
pub const SECTION_FIELD: &str = "section";
/// Name of the field that lists the events which a compaction summary replaces.
pub const COMPACTS_FIELD: &str = "compacts";
/// The most tags or references of one event.
pub const MAX_ITEMS: usize = 64;

string_enum! {
    /// The seven types of event. Insights and milestones are tags, not types.
    EventType: "an event type" {
        /// A piece of information.
        Fact = "fact",
        /// A choice that was made.
        Decision = "decision",
        /// A preference of a person.
        Preference = "preference",
        /// Something promised or owed; open until it is closed.
        Commitment = "commitment",
        /// A limit or rule.
        Constraint = "constraint",
        /// A way of doing something.
        Procedure = "procedure",
        /// A relation between two entities.
        Relationship = "relationship",
    }
}

string_enum! {
    /// How long an event is shown: P0 and P1 permanently, P2 for 90 days, P3 for 30.
    Priority: "a priority" {
        /// Permanent: identity, security, hard rules.
        P0 = "P0",
        /// Indefinite: important decisions, relationships, accounts.
        P1 = "P1",
        /// Ninety days: context, minor preferences.
        P2 = "P2",
        /// Thirty days: passing things.
        P3 = "P3",
    }
}

string_enum! {
    /// What an event does. All acts but `assert` apply to the events named in `related`.
    Act: "an act" {
        /// States something.
        Assert = "assert",
        /// Fulfils or ends a commitment.
        Close = "close",
        /// Confirms that something still holds.
        Confirm = "confirm",
        /// Retracts something.
        Retract = "retract",
        /// Promotes something from a conversation to the global scope.
        Promote = "promote",
    }
}

string_enum! {
    /// Whose words an event is based on.
    Origin: "an origin" {
        /// The owner.
        User = "user",
        /// An assistant.
        Assistant = "assistant",
        /// The output of a tool or a web page.
        Tool = "tool",
        /// A bulk import.
        Import = "import",
        /// A file in the vault, edited outside of icecore.
        File = "file",
    }
}

string_enum! {
    /// What kind of thing an entity is.
    EntityKind: "an entity kind" {
        Person = "person",
        /// A company or other organisation.
        Company = "company",
        Project = "project",
        Account = "account",
        Tool = "tool",
    }
}

string_enum! {
    /// Whether a commitment was recorded as open or closed.
    LoopStatus: "a status" {
        Open = "open",
        /// Fulfilled or ended.
        Closed = "closed",
    }
}

/// Where an event applies.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub enum Scope {
    /// Everywhere.
    #[default]
    Everywhere,
    /// In one project.
    Project(String),
    /// In one conversation.
    Conversation(String),
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Everywhere => f.write_str("everywhere"),
            Self::Project(name) => write!(f, "project:{name}"),
            Self::Conversation(id) => write!(f, "conversation:{id}"),
        }
    }
}

impl FromStr for Scope {
    type Err = ParseEnumError;

    fn from_str(text: &str) -> Result<Self, ParseEnumError> {
        match text.trim().split_once(':') {
            None if text.trim() == "everywhere" => Ok(Self::Everywhere),
            Some(("project", name)) if !name.is_empty() => Ok(Self::Project(name.into())),
            Some(("conversation", id)) if !id.is_empty() => Ok(Self::Conversation(id.into())),
            _ => Err(ParseEnumError {
                what: "a scope",
                text: text.into(),
                choices: "everywhere, project:NAME, conversation:ID".into(),
            }),
        }
    }
}

/// Everything about an event but its id, which the store assigns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventDraft {
    /// When it was recorded.
    pub ts: Moment,
    pub kind: EventType,
    /// How long it is shown.
    pub priority: Priority,
    /// The statement, in words a person can read.
    pub content: String,
    /// The entity it is about, in snake_case.
    pub entity: Option<String>,
    pub entity_kind: Option<EntityKind>,
    pub tags: Vec<String>,
    /// Where it was learnt: `live`, or a path in the vault.
    pub source: String,
    /// The session it was learnt in.
    pub session: Option<String>,
    /// Where it applies.
    pub scope: Scope,
    /// Whose words it is based on.
    pub origin: Origin,
    pub act: Act,
    /// Related events; for an act other than `assert`, its targets.
    pub related: Vec<EventId>,
    /// Events it replaces.
    pub supersedes: Vec<EventId>,
    /// Open or closed, for commitments.
    pub status: Option<LoopStatus>,
    /// The due date.
    pub due: Option<Date>,
    /// The person or thing it waits for.
    pub waiting_on: Option<String>,
    /// Fields of other programs, as raw JSON, in their order.
    pub extra: Vec<(String, String)>,
}

/// Why a draft cannot become an event.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EventDraftError {
    /// The text is empty.
    #[error("the text is empty; pass a sentence to remember")]
    Empty,
    /// The text is too long for an event.
    #[error(
        "the text has {bytes} bytes; the limit is {MAX_CONTENT_BYTES}. Remember a short version and keep the full text in the log"
    )]
    TooLong { bytes: usize },
    /// An entity name without a letter or digit.
    #[error("`{name}` is not a valid entity name: it has no letter and no digit")]
    InvalidEntityName { name: String },
    /// Only commitments have a due date.
    #[error(
        "only a commitment has a due date or waits on a person; this is a {kind}. Omit --type, or use `--type commitment`"
    )]
    NotACommitment { kind: EventType },
    /// A short field is too long.
    #[error("{field} has {bytes} bytes; the limit is {MAX_FIELD_BYTES}")]
    FieldTooLong { field: &'static str, bytes: usize },
    /// A list is too long.
    #[error("{field} lists {count} items; the limit is {MAX_ITEMS}")]
    TooMany { field: &'static str, count: usize },
}

impl EventDraft {
    /// A plain statement without optional fields.
    pub fn new(
        ts: Moment,
        kind: EventType,
        priority: Priority,
        content: impl Into<String>,
    ) -> Self {
        Self {
            ts,
            kind,
            priority,
            content: content.into(),
            entity: None,
            entity_kind: None,
            tags: Vec::new(),
            source: "live".into(),
            session: None,
            scope: Scope::Everywhere,
            origin: Origin::User,
            act: Act::Assert,
            related: Vec::new(),
            supersedes: Vec::new(),
            status: (kind == EventType::Commitment).then_some(LoopStatus::Open),
            due: None,
            waiting_on: None,
            extra: Vec::new(),
        }
    }

    /// An act on `target`. It inherits the target's type, priority, entity and scope.
    pub fn new_act(target: &Event, act: Act, ts: Moment, content: impl Into<String>) -> Self {
        Self {
            entity: target.entity.clone(),
            entity_kind: target.entity_kind,
            scope: target.scope.clone(),
            act,
            related: vec![target.id],
            status: (act == Act::Close).then_some(LoopStatus::Closed),
            ..Self::new(ts, target.kind, target.priority, content)
        }
    }

    /// Turns the draft into an event with this id.
    pub fn with_id(self, id: EventId) -> Event {
        Event { id, draft: self }
    }

    /// Validates the draft and removes unsafe characters. Returns how many characters were removed.
    pub fn sanitize(mut self) -> Result<(Self, usize), EventDraftError> {
        let mut removed = 0;
        let mut tidy = |text: &str| {
            let cleaned = sanitize::clean(text);
            removed += cleaned.removed;
            cleaned.text
        };
        self.content = tidy(&self.content);
        self.source = tidy(&self.source).replace(['\n', '\t'], " ");
        self.session = self.session.map(|text| tidy(&text)).filter(|text| !text.is_empty());
        self.waiting_on = self.waiting_on.map(|text| tidy(&text)).filter(|text| !text.is_empty());
        self.scope = match self.scope {
            Scope::Everywhere => Scope::Everywhere,
            Scope::Project(name) => Scope::Project(tidy(&name)),
            Scope::Conversation(id) => Scope::Conversation(tidy(&id)),
        };
        if let Some(name) = self.entity.take().filter(|name| !name.trim().is_empty()) {
            let key = sanitize::entity_key(&name);
            if key.is_empty() {
                return Err(EventDraftError::InvalidEntityName {
                    name: sanitize::one_line(&name).chars().take(60).collect(),
                });
            }
            self.entity = Some(key);
        }
        self.tags = self
            .tags
            .iter()
            .map(|tag| tidy(tag).replace(['\n', '\t'], " ").to_lowercase())
            .filter(|tag| !tag.is_empty())
            .collect();
        self.tags.sort();
        self.tags.dedup();
        if self.content.is_empty() {
            return Err(EventDraftError::Empty);
        }
        if (self.due.is_some() || self.waiting_on.is_some()) && self.kind != EventType::Commitment {
            return Err(EventDraftError::NotACommitment { kind: self.kind });
        }
        if self.content.len() > MAX_CONTENT_BYTES {
            return Err(EventDraftError::TooLong { bytes: self.content.len() });
        }
        let scope = self.scope.to_string();
        let short = [
            ("the entity", self.entity.as_deref()),
            ("the source", Some(self.source.as_str())),
            ("the session", self.session.as_deref()),
            ("waiting-on", self.waiting_on.as_deref()),
            ("the scope", Some(scope.as_str())),
        ];
        for (field, text) in
            short.into_iter().chain(self.tags.iter().map(|tag| ("a tag", Some(tag.as_str()))))
        {
            let bytes = text.map_or(0, str::len);
            if bytes > MAX_FIELD_BYTES {
                return Err(EventDraftError::FieldTooLong { field, bytes });
            }
        }
        for (field, count) in [
            ("tags", self.tags.len()),
            ("related", self.related.len()),
            ("supersedes", self.supersedes.len()),
        ] {
            if count > MAX_ITEMS {
                return Err(EventDraftError::TooMany { field, count });
            }
        }
        Ok((self, removed))
    }

    /// The value of an extra field, if it has the requested type.
    pub fn extra_field<T: DeserializeOwned>(&self, name: &str) -> Option<T> {
        let (_, raw) = self.extra.iter().find(|(known, _)| known == name)?;
        serde_json::from_str(raw).ok()
    }

    /// The same draft with one more extra field.
    #[must_use]
    pub fn with_extra_field(mut self, name: &str, value: &impl Serialize) -> Self {
        self.extra.retain(|(known, _)| known != name);
        if let Ok(raw) = serde_json::to_string(value) {
            self.extra.push((name.into(), raw));
        }
        self
    }

    /// Whether this states something rather than acting on another event.
    pub fn is_statement(&self) -> bool {
        self.act == Act::Assert
    }

    /// The effects of this event on others, in order.
    pub fn effects(&self) -> impl Iterator<Item = (EventId, Effect)> + '_ {
        let (targets, effect) = match (self.act, self.status) {
            // The older way to close: a commitment with status closed that supersedes the open one.
            (Act::Assert, Some(LoopStatus::Closed)) => (&self.supersedes, Effect::Close),
            (Act::Assert, _) => (&self.supersedes, Effect::Supersede),
            (Act::Close, _) => (&self.related, Effect::Close),
            (Act::Confirm, _) => (&self.related, Effect::Confirm),
            (Act::Retract, _) => (&self.related, Effect::Retract),
            (Act::Promote, _) => (&self.related, Effect::None),
        };
        targets.iter().map(move |&target| (target, effect))
    }
}

/// The effect of one event on another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Replaces it.
    Supersede,
    /// Ends it.
    Close,
    /// Confirms it.
    Confirm,
    /// Retracts it.
    Retract,
    /// Has no effect.
    None,
}

/// A recorded event: a draft with its id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    pub id: EventId,
    pub draft: EventDraft,
}

impl Event {
    /// The name of its type for display. A type from a newer version is shown as unknown.
    pub fn type_name(&self) -> String {
        match self.extra_field::<String>("type") {
            Some(unknown) => format!("unknown type `{}`", sanitize::one_line(&unknown)),
            None => self.kind.to_string(),
        }
    }
}

impl Deref for Event {
    type Target = EventDraft;

    fn deref(&self) -> &EventDraft {
        &self.draft
    }
}

/// Guesses the type of a statement from typical words; a fact if none matches.
///
/// Only a default: `--type`, or `[P1 decision]` in a log, always wins.
pub fn guess_event_type(text: &str) -> EventType {
    let key = format!(" {} ", sanitize::sameness_key(text).replace([',', ';', ':', '.'], " "));
    let has = |words: &[&str]| words.iter().any(|word| key.contains(&format!(" {word} ")));
    if has(&[
        "never",
        "must",
        "must not",
        "always",
        "cannot",
        "can't",
        "do not",
        "don't",
        "only",
        "at most",
        "no more than",
        "not allowed",
    ]) {
        EventType::Constraint
    } else if has(&[
        "decided",
        "decide",
        "chose",
        "agreed",
        "we will use",
        "switched to",
        "settled on",
        "going with",
    ]) {
        EventType::Decision
    } else if has(&[
        "prefers",
        "prefer",
        "likes",
        "dislikes",
        "loves",
        "hates",
        "favourite",
        "favorite",
    ]) {
        EventType::Preference
    } else if has(&[
        "todo",
        "follow up",
        "promised",
        "i will",
        "i'll",
        "owe",
        "owes",
        "send",
        "deliver",
        "remind",
        "due",
        "by tomorrow",
    ]) {
        EventType::Commitment
    } else if has(&["to deploy", "to release", "how to", "steps", "first", "procedure"])
        && has(&["run", "then", "steps", "procedure"])
    {
        EventType::Procedure
    } else if has(&[
        "works for",
        "works at",
        "reports to",
        "is married to",
        "is the contact",
        "contact for",
        "manager of",
        "belongs to",
    ]) {
        EventType::Relationship
    } else {
        EventType::Fact
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moment() -> Moment {
        Moment::parse("2026-02-13T09:30:00+01:00").unwrap().moment
    }

    // L2
    #[test]
    fn an_unfit_text_is_refused_and_says_why() {
        let draft =
            |text: &str| EventDraft::new(moment(), EventType::Fact, Priority::P2, text).sanitize();
        assert_eq!(draft(" \n\t").unwrap_err(), EventDraftError::Empty);
        assert_eq!(draft("\u{0}\u{1b}").unwrap_err(), EventDraftError::Empty);
        assert_eq!(
            draft(&"x".repeat(1 << 20)).unwrap_err(),
            EventDraftError::TooLong { bytes: 1 << 20 }
        );
        assert_eq!(
            draft("a\u{7}b").unwrap(),
            (EventDraft::new(moment(), EventType::Fact, Priority::P2, "ab"), 1)
        );
    }

    // L2
    #[test]
    fn names_become_entities_and_tags_are_a_set() {
        let mut draft = EventDraft::new(moment(), EventType::Fact, Priority::P2, "x");
        draft.entity = Some("Client X".into());
        draft.tags = vec!["Sales".into(), "deadline".into(), "sales ".into()];
        let (draft, _) = draft.sanitize().unwrap();
        assert_eq!(draft.entity.as_deref(), Some("client_x"));
        assert_eq!(draft.tags, ["deadline", "sales"]);
    }

    #[test]
    fn the_type_is_guessed_from_marking_words() {
        for (text, kind) in [
            ("Decided on one price for all", EventType::Decision),
            ("Never deploy on Fridays", EventType::Constraint),
            ("Ana prefers short answers", EventType::Preference),
            ("Send the offer to Client X", EventType::Commitment),
            ("Follow up with Mira", EventType::Commitment),
            ("The office moved to Hamburg", EventType::Fact),
            ("Mira works for Northwind", EventType::Relationship),
            ("", EventType::Fact),
        ] {
            assert_eq!(guess_event_type(text), kind, "{text}");
        }
    }
}
