//! The event: something learnt, and everything that is known about how it was learnt (L2, L3).

use std::fmt;
use std::ops::Deref;
use std::str::FromStr;

use jiff::civil::Date;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::calendar::Moment;
use crate::id::EventId;
use crate::plain;
pub use crate::words::NotAWord;
use crate::words::words;

/// The longest content of an event, in bytes. An event is a sentence or a paragraph; longer things
/// are logs.
pub const MAX_CONTENT_BYTES: usize = 64 * 1024;
/// The longest of the short fields (entity, tag, source, session, …), in bytes.
pub const MAX_FIELD_BYTES: usize = 1024;
/// The field with the very words an event was distilled from.
pub const QUOTE: &str = "quote";
/// The field with the person who said those words, if it was not the owner.
pub const SPEAKER: &str = "speaker";
/// The field with when those words were said.
pub const SAID: &str = "said";
/// The field with the section of a page that an event was written into.
pub const SECTION: &str = "section";
/// The field with the ids of the events that one stands for since a compaction.
pub const COMPACTS: &str = "compacts";
/// The most tags or references one event may carry.
pub const MAX_ITEMS: usize = 64;

words! {
    /// The seven types of event. Insights and milestones are tags, not types.
    Kind: "an event type" {
        /// A piece of information.
        Fact = "fact",
        /// A choice that was made.
        Decision = "decision",
        /// How somebody likes things.
        Preference = "preference",
        /// Something promised or owed; open until it is closed.
        Commitment = "commitment",
        /// A limit or rule.
        Constraint = "constraint",
        /// How something is done.
        Procedure = "procedure",
        /// How two things hang together.
        Relationship = "relationship",
    }
}

words! {
    /// How long an event matters: P0 and P1 for good, P2 for 90 days, P3 for 30.
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

words! {
    /// What an event does. All but `assert` act on the events named in `related`.
    Act: "an act" {
        /// States something.
        Assert = "assert",
        /// Fulfils or ends a commitment.
        Close = "close",
        /// Says that something still holds.
        Confirm = "confirm",
        /// Takes something back.
        Retract = "retract",
        /// Lifts something from a conversation to everywhere.
        Promote = "promote",
    }
}

words! {
    /// Whose words an event goes back to.
    Origin: "an origin" {
        /// The person.
        User = "user",
        /// An assistant.
        Assistant = "assistant",
        /// A tool's or a web page's output.
        Tool = "tool",
        /// A bulk import.
        Import = "import",
        /// A file in the vault, written by somebody's editor.
        File = "file",
    }
}

words! {
    /// What kind of thing an entity is.
    EntityKind: "an entity kind" {
        /// A human being.
        Person = "person",
        /// A company or other organisation.
        Company = "company",
        /// A project.
        Project = "project",
        /// An account.
        Account = "account",
        /// A tool.
        Tool = "tool",
    }
}

words! {
    /// Whether a commitment was written down as open or as closed.
    Status: "a status" {
        /// Still owed.
        Open = "open",
        /// Done with.
        Closed = "closed",
    }
}

/// Where an event holds.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub enum Scope {
    /// In everything.
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
    type Err = NotAWord;

    fn from_str(text: &str) -> Result<Self, NotAWord> {
        match text.trim().split_once(':') {
            None if text.trim() == "everywhere" => Ok(Self::Everywhere),
            Some(("project", name)) if !name.is_empty() => Ok(Self::Project(name.into())),
            Some(("conversation", id)) if !id.is_empty() => Ok(Self::Conversation(id.into())),
            _ => Err(NotAWord {
                what: "a scope",
                text: text.into(),
                choices: "everywhere, project:NAME, conversation:ID".into(),
            }),
        }
    }
}

/// Everything about an event but its id, which only the home that keeps it can give.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Draft {
    /// When it was recorded.
    pub ts: Moment,
    /// Its type.
    pub kind: Kind,
    /// How long it matters.
    pub priority: Priority,
    /// What was learnt, in words a person can read.
    pub content: String,
    /// The thing it is about, in snake_case.
    pub entity: Option<String>,
    /// What kind of thing that is.
    pub entity_kind: Option<EntityKind>,
    /// Free labels.
    pub tags: Vec<String>,
    /// Where it was learnt: `live`, or a path in the vault.
    pub source: String,
    /// The session it was learnt in.
    pub session: Option<String>,
    /// Where it holds.
    pub scope: Scope,
    /// Whose words it goes back to.
    pub origin: Origin,
    /// What it does.
    pub act: Act,
    /// Events it belongs with; for an act other than `assert`, its targets.
    pub related: Vec<EventId>,
    /// Events it replaces.
    pub supersedes: Vec<EventId>,
    /// Open or closed, for commitments.
    pub status: Option<Status>,
    /// The day it is due.
    pub due: Option<Date>,
    /// Whom or what it waits for.
    pub waiting_on: Option<String>,
    /// Fields of other programs, as raw JSON, in their order.
    pub extra: Vec<(String, String)>,
}

/// Why a draft cannot become an event.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// Nothing is left of the text.
    #[error("the text is empty; say in a sentence what is to be remembered")]
    Empty,
    /// The text is no event any more.
    #[error(
        "the text has {bytes} bytes, an event at most {MAX_CONTENT_BYTES}; remember its gist and keep the whole in the log"
    )]
    TooLong {
        /// How long it is.
        bytes: usize,
    },
    /// Nothing of a name is a letter or a digit.
    #[error("`{name}` cannot be the name of an entity: it has no letter and no digit")]
    NotAName {
        /// The name.
        name: String,
    },
    /// Only promises are due.
    #[error(
        "only a commitment is due or waits for somebody; this is a {kind}. Leave --type out, or make it a commitment"
    )]
    NotOwed {
        /// Its type.
        kind: Kind,
    },
    /// A short field is not short.
    #[error("{field} has {bytes} bytes, at most {MAX_FIELD_BYTES} are kept")]
    FieldTooLong {
        /// Which field.
        field: &'static str,
        /// How long it is.
        bytes: usize,
    },
    /// A list is too long.
    #[error("{field} names {count} things, at most {MAX_ITEMS} are kept")]
    TooMany {
        /// Which field.
        field: &'static str,
        /// How many it names.
        count: usize,
    },
}

impl Draft {
    /// A plain statement, everything optional left out.
    pub fn new(ts: Moment, kind: Kind, priority: Priority, content: impl Into<String>) -> Self {
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
            status: (kind == Kind::Commitment).then_some(Status::Open),
            due: None,
            waiting_on: None,
            extra: Vec::new(),
        }
    }

    /// An act upon `target`; it takes over the target's type, priority, entity and scope.
    pub fn upon(target: &Event, act: Act, ts: Moment, content: impl Into<String>) -> Self {
        Self {
            entity: target.entity.clone(),
            entity_kind: target.entity_kind,
            scope: target.scope.clone(),
            act,
            related: vec![target.id],
            status: (act == Act::Close).then_some(Status::Closed),
            ..Self::new(ts, target.kind, target.priority, content)
        }
    }

    /// Gives the draft its id.
    pub fn with_id(self, id: EventId) -> Event {
        Event { id, draft: self }
    }

    /// Makes every text fit to keep and says how many characters had to go for that.
    pub fn cleaned(mut self) -> Result<(Self, usize), Unfit> {
        let mut removed = 0;
        let mut tidy = |text: &str| {
            let cleaned = plain::clean(text);
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
            let key = plain::entity_key(&name);
            if key.is_empty() {
                return Err(Unfit::NotAName {
                    name: plain::one_line(&name).chars().take(60).collect(),
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
            return Err(Unfit::Empty);
        }
        if (self.due.is_some() || self.waiting_on.is_some()) && self.kind != Kind::Commitment {
            return Err(Unfit::NotOwed { kind: self.kind });
        }
        if self.content.len() > MAX_CONTENT_BYTES {
            return Err(Unfit::TooLong { bytes: self.content.len() });
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
                return Err(Unfit::FieldTooLong { field, bytes });
            }
        }
        for (field, count) in [
            ("tags", self.tags.len()),
            ("related", self.related.len()),
            ("supersedes", self.supersedes.len()),
        ] {
            if count > MAX_ITEMS {
                return Err(Unfit::TooMany { field, count });
            }
        }
        Ok((self, removed))
    }

    /// The value of a field beyond the known ones, if it can be read as that.
    pub fn field<T: DeserializeOwned>(&self, name: &str) -> Option<T> {
        let (_, raw) = self.extra.iter().find(|(known, _)| known == name)?;
        serde_json::from_str(raw).ok()
    }

    /// The same draft with one more field.
    #[must_use]
    pub fn with_field(mut self, name: &str, value: &impl Serialize) -> Self {
        self.extra.retain(|(known, _)| known != name);
        if let Ok(raw) = serde_json::to_string(value) {
            self.extra.push((name.into(), raw));
        }
        self
    }

    /// Whether this states something, rather than acting on another event.
    pub fn is_statement(&self) -> bool {
        self.act == Act::Assert
    }

    /// What this event does to others, in order.
    pub fn effects(&self) -> impl Iterator<Item = (EventId, Effect)> + '_ {
        let (targets, effect) = match (self.act, self.status) {
            // The older form of closing: a commitment with status closed that supersedes the open
            // one.
            (Act::Assert, Some(Status::Closed)) => (&self.supersedes, Effect::Close),
            (Act::Assert, _) => (&self.supersedes, Effect::Supersede),
            (Act::Close, _) => (&self.related, Effect::Close),
            (Act::Confirm, _) => (&self.related, Effect::Confirm),
            (Act::Retract, _) => (&self.related, Effect::Retract),
            (Act::Promote, _) => (&self.related, Effect::None),
        };
        targets.iter().map(move |&target| (target, effect))
    }
}

/// What one event does to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Replaces it.
    Supersede,
    /// Ends it.
    Close,
    /// Renews it.
    Confirm,
    /// Takes it back.
    Retract,
    /// Leaves it as it is.
    None,
}

/// Something learnt, with its id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Its identity.
    pub id: EventId,
    /// Everything else.
    pub draft: Draft,
}

impl Event {
    /// What its type is called, for a person; one that a newer version introduced is called
    /// unknown.
    pub fn type_name(&self) -> String {
        match self.field::<String>("type") {
            Some(unknown) => format!("unknown type `{}`", plain::one_line(&unknown)),
            None => self.kind.to_string(),
        }
    }
}

impl Deref for Event {
    type Target = Draft;

    fn deref(&self) -> &Draft {
        &self.draft
    }
}

/// Guesses the type of a statement from the words that usually mark it; a fact if none does.
///
/// Only a default for what a person did not say: `--type`, or `[P1 decision]` in a log, always
/// wins.
pub fn guess_kind(text: &str) -> Kind {
    let key = format!(" {} ", plain::sameness_key(text).replace([',', ';', ':', '.'], " "));
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
        Kind::Constraint
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
        Kind::Decision
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
        Kind::Preference
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
        Kind::Commitment
    } else if has(&["to deploy", "to release", "how to", "steps", "first", "procedure"])
        && has(&["run", "then", "steps", "procedure"])
    {
        Kind::Procedure
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
        Kind::Relationship
    } else {
        Kind::Fact
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moment() -> Moment {
        Moment::read("2026-02-13T09:30:00+01:00").unwrap().moment
    }

    // L2
    #[test]
    fn an_unfit_text_is_refused_and_says_why() {
        let draft = |text: &str| Draft::new(moment(), Kind::Fact, Priority::P2, text).cleaned();
        assert_eq!(draft(" \n\t").unwrap_err(), Unfit::Empty);
        assert_eq!(draft("\u{0}\u{1b}").unwrap_err(), Unfit::Empty);
        assert_eq!(draft(&"x".repeat(1 << 20)).unwrap_err(), Unfit::TooLong { bytes: 1 << 20 });
        assert_eq!(
            draft("a\u{7}b").unwrap(),
            (Draft::new(moment(), Kind::Fact, Priority::P2, "ab"), 1)
        );
    }

    // L2
    #[test]
    fn names_become_entities_and_tags_are_a_set() {
        let mut draft = Draft::new(moment(), Kind::Fact, Priority::P2, "x");
        draft.entity = Some("Client X".into());
        draft.tags = vec!["Sales".into(), "deadline".into(), "sales ".into()];
        let (draft, _) = draft.cleaned().unwrap();
        assert_eq!(draft.entity.as_deref(), Some("client_x"));
        assert_eq!(draft.tags, ["deadline", "sales"]);
    }

    #[test]
    fn the_type_is_guessed_from_marking_words() {
        for (text, kind) in [
            ("Decided on one price for all", Kind::Decision),
            ("Never deploy on Fridays", Kind::Constraint),
            ("Ana prefers short answers", Kind::Preference),
            ("Send the offer to Client X", Kind::Commitment),
            ("Follow up with Mira", Kind::Commitment),
            ("The office moved to Hamburg", Kind::Fact),
            ("Mira works for Northwind", Kind::Relationship),
            ("", Kind::Fact),
        ] {
            assert_eq!(guess_kind(text), kind, "{text}");
        }
    }
}
