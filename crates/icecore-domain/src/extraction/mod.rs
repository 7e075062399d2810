//! Extraction: turns captured text into events (L13, K4). A model or the rules of [`rules`]
//! propose; pure code validates.
//!
//! No proposal is trusted. Each one quotes the words it is based on, and [`validation`] accepts it
//! only if the source contains these words and they support it. [`equivalence`] finds what is
//! already known in other words. Every rejection is reported.

pub(crate) mod due_dates;
pub mod equivalence;
pub(crate) mod markers;
pub mod rules;
mod sentences;
pub mod validation;

use std::ops::Range;

use jiff::civil::Date;
use memchr::memmem;
use serde_json::{Map, Value, json};

use crate::calendar::Moment;
use crate::event::{
    EntityKind, EventDraft, EventType, Origin, Priority, QUOTE_FIELD, SPEAKER_FIELD, Scope,
};
use crate::id::EventId;
use crate::sanitize;

/// Maximum number of proposals used from one answer.
pub const MAX_PROPOSALS: usize = 40;
/// Maximum number of events a model is asked for in one answer.
pub const MAX_REQUESTED_EVENTS: usize = 12;
/// Maximum length of an extracted event's content, in bytes.
pub const MAX_CONTENT_BYTES: usize = 600;
/// Maximum length of the quote stored with an event, in bytes.
pub const MAX_QUOTE_BYTES: usize = 1_000;
/// Maximum number of tags per proposal.
pub const MAX_TAGS: usize = 8;
/// Maximum length of a tag, entity or other short field of a proposal, in bytes.
pub const MAX_FIELD_BYTES: usize = 120;
/// The field with the byte range of the quote in its source: first byte and end.
pub const SPAN_FIELD: &str = "span";

/// A passage of captured text that may be worth remembering.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourcePassage<'a> {
    /// Where it is stored: `memory/messages/2026-02-13.jsonl#m17`, `memory/2026-02-13.md:12`.
    pub source: String,
    pub text: &'a str,
    /// Whose words they are.
    pub origin: Origin,
    /// The speaker, if it is not the owner.
    pub speaker: Option<&'a str>,
    /// When it was said; relative days such as `tomorrow` are resolved from here.
    pub said_at: Moment,
    pub session: Option<String>,
    /// Where its statements hold.
    pub scope: Scope,
}

/// An event that a model or a rule proposes to store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proposal {
    pub kind: EventType,
    pub priority: Priority,
    /// The statement to remember.
    pub content: String,
    /// The thing it is about.
    pub entity: Option<String>,
    pub entity_kind: Option<EntityKind>,
    pub tags: Vec<String>,
    /// The words of the source it is based on.
    pub quote: String,
    /// Index of the passage that contains the quote.
    pub passage: usize,
    pub due: Option<Date>,
    /// The person or thing it waits for.
    pub waiting_on: Option<String>,
    /// Events it replaces.
    pub supersedes: Vec<EventId>,
}

/// Phrases that say something holds in every project.
const GLOBAL_SCOPE_PHRASES: &[&str] = &[
    "everywhere",
    "all projects",
    "all my projects",
    "every project",
    "each project",
    "any project",
    "across projects",
    "all repos",
    "all repositories",
    "every repo",
    "every repository",
    "in general",
    "generally",
    "überall",
    "in allen projekten",
    "jedem projekt",
    "allen meinen projekten",
    "generell",
];

impl Proposal {
    /// The scope of the event. Statements from a project hold in that project, except statements
    /// about people (preferences, identities) and statements that say they hold everywhere.
    fn scope(&self, piece: &SourcePassage<'_>) -> Scope {
        let about_people = matches!(self.kind, EventType::Preference | EventType::Relationship)
            || matches!(self.entity_kind, Some(EntityKind::Person))
            || self.tags.iter().any(|tag| tag == "mantra");
        let said = format!("{} {}", self.content, self.quote).to_lowercase();
        // Only the owner can widen the scope: the word of an assistant or a tool must not extend a
        // rule beyond its project.
        let widely = piece.origin == Origin::User
            && GLOBAL_SCOPE_PHRASES.iter().any(|words| said.contains(words));
        match &piece.scope {
            Scope::Project(_) if about_people || widely => Scope::Everywhere,
            scope => scope.clone(),
        }
    }

    /// Turns the proposal into an event draft. Only commitments have a due date and a `waiting_on`;
    /// other types lose them.
    pub fn draft(&self, piece: &SourcePassage<'_>, now: Moment) -> EventDraft {
        let owed = self.kind == EventType::Commitment;
        let draft = EventDraft {
            entity: self.entity.clone(),
            entity_kind: self.entity_kind,
            tags: self.tags.clone(),
            source: piece.source.clone(),
            session: piece.session.clone(),
            scope: self.scope(piece),
            origin: piece.origin,
            supersedes: self.supersedes.clone(),
            due: self.due.filter(|_| owed),
            waiting_on: self.waiting_on.clone().filter(|_| owed),
            ..EventDraft::new(now, self.kind, self.priority, self.content.clone())
        };
        let draft = match piece.speaker {
            Some(speaker) => draft.with_extra_field(SPEAKER_FIELD, &speaker),
            None => draft,
        };
        match NormalizedText::new(piece.text).find(&self.quote) {
            Some(span) => {
                let words = piece.text.get(span.clone()).unwrap_or(&self.quote);
                draft
                    .with_extra_field(QUOTE_FIELD, &truncate_at_char(words, MAX_QUOTE_BYTES))
                    .with_extra_field(SPAN_FIELD, &[span.start, span.end])
            }
            None => {
                draft.with_extra_field(QUOTE_FIELD, &truncate_at_char(&self.quote, MAX_QUOTE_BYTES))
            }
        }
    }
}

/// The start of a text, cut at a character boundary.
fn truncate_at_char(text: &str, bytes: usize) -> &str {
    &text[..text.floor_char_boundary(bytes)]
}

/// A text for searches that ignore case, white space, and the kind of quotation marks and dashes.
struct NormalizedText {
    text: String,
    /// For each byte of `text`, the byte range of its character in the original.
    places: Vec<(usize, usize)>,
}

impl NormalizedText {
    fn new(text: &str) -> Self {
        let mut folded = Self {
            text: String::with_capacity(text.len()),
            places: Vec::with_capacity(text.len()),
        };
        for (at, c) in text.char_indices() {
            let place = (at, at + c.len_utf8());
            match c {
                c if c.is_whitespace() => {
                    if !folded.text.ends_with(' ') {
                        folded.push(' ', place);
                    }
                }
                '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{2060}' | '\u{feff}' => {}
                '“' | '”' | '„' | '‟' | '«' | '»' => folded.push('"', place),
                '‘' | '’' | '‚' | '‛' | '‹' | '›' | '`' => folded.push('\'', place),
                '—' | '―' | '–' | '‐' | '‑' | '‒' | '−' => folded.push('-', place),
                '…' => (0..3).for_each(|_| folded.push('.', place)),
                c => c.to_lowercase().for_each(|lower| folded.push(lower, place)),
            }
        }
        folded
    }

    fn push(&mut self, c: char, place: (usize, usize)) {
        self.text.push(c);
        self.places.extend(std::iter::repeat_n(place, c.len_utf8()));
    }

    /// Finds the words as whole words and returns their range in the original.
    fn find(&self, words: &str) -> Option<Range<usize>> {
        let wanted = Self::new(words);
        self.find_normalized(wanted.text.trim())
    }

    fn find_normalized(&self, wanted: &str) -> Option<Range<usize>> {
        if wanted.is_empty() {
            return None;
        }
        let inside = |before: Option<char>, after: Option<char>| {
            before.is_some_and(char::is_alphanumeric) && after.is_some_and(char::is_alphanumeric)
        };
        memmem::find_iter(self.text.as_bytes(), wanted.as_bytes())
            .find(|&at| {
                let end = at + wanted.len();
                let (before, after) = (self.text.get(..at), self.text.get(end..));
                let cuts_word =
                    inside(before.and_then(|text| text.chars().next_back()), wanted.chars().next())
                        || inside(
                            wanted.chars().next_back(),
                            after.and_then(|text| text.chars().next()),
                        );
                !cuts_word
            })
            .and_then(|at| Some(self.places.get(at)?.0..self.places.get(at + wanted.len() - 1)?.1))
    }
}

/// Parses a model's answer leniently: `{"events": [...]}`, a bare list or a single event.
/// Everything that could not be used is reported.
pub fn parse_answer(value: &Value, pieces: usize) -> (Vec<Proposal>, Vec<String>) {
    let mut complaints = Vec::new();
    let single;
    let events: &[Value] = match value {
        Value::Array(events) => events,
        Value::Object(fields) => match fields.get("events") {
            Some(Value::Array(events)) => events,
            Some(Value::Object(event)) => {
                single = [Value::Object(event.clone())];
                &single
            }
            Some(Value::Null) => &[],
            None if fields.contains_key("content") => std::slice::from_ref(value),
            _ => {
                complaints.push("the answer has no list of events".into());
                &[]
            }
        },
        Value::Null => &[],
        _ => {
            complaints.push("the answer is not an object with a list of events".into());
            &[]
        }
    };
    if events.len() > MAX_PROPOSALS {
        complaints.push(format!(
            "{} events were proposed, only the first {MAX_PROPOSALS} were read",
            events.len()
        ));
    }
    let mut proposals = Vec::new();
    for (at, event) in events.iter().take(MAX_PROPOSALS).enumerate() {
        match parse_event(event, pieces) {
            Ok((proposal, odd)) => {
                complaints.extend(odd.into_iter().map(|what| format!("event {}: {what}", at + 1)));
                proposals.push(proposal);
            }
            Err(why) => complaints.push(format!("event {} rejected: {why}", at + 1)),
        }
    }
    (proposals, complaints)
}

fn parse_event(value: &Value, pieces: usize) -> Result<(Proposal, Vec<String>), String> {
    let Value::Object(fields) = value else { return Err("it is not an object".into()) };
    let mut odd = Vec::new();
    let content = text_field(fields, &["content", "text"]).ok_or("it has no content")?;
    let quote = text_field(fields, &["quote"]).ok_or("it has no quote")?;
    let mut tags = tags_field(fields, &mut odd);
    let word = text_field(fields, &["type", "kind"]).ok_or("it has no type")?;
    let kind = match word.to_lowercase().as_str() {
        tag @ ("insight" | "milestone") => {
            odd.push(format!("`{tag}` is a tag, not a type; used as a fact with that tag"));
            tags.push(tag.to_owned());
            EventType::Fact
        }
        _ => word.parse().map_err(|_| format!("`{}` is not an event type", excerpt(&word)))?,
    };
    let priority = match text_field(fields, &["priority"]) {
        Some(word) => {
            word.parse().map_err(|_| format!("`{}` is not a priority", excerpt(&word)))?
        }
        None => {
            odd.push("it has no priority; P2 used".into());
            Priority::P2
        }
    };
    let piece = match fields.get("source").or_else(|| fields.get("piece")) {
        Some(Value::Number(number)) => {
            number.as_u64().and_then(|number| usize::try_from(number).ok())
        }
        Some(Value::String(text)) => text.trim().trim_start_matches("source ").parse().ok(),
        None | Some(Value::Null) if pieces == 1 => Some(1),
        _ => None,
    };
    let piece = piece
        .filter(|number| (1..=pieces).contains(number))
        .ok_or_else(|| format!("its source is not a number from 1 to {pieces}"))?;
    let entity_kind = text_field(fields, &["entity_kind"]).and_then(|word| {
        let kind = word.parse().ok();
        if kind.is_none() {
            odd.push(format!("`{}` is not an entity kind; ignored", excerpt(&word)));
        }
        kind
    });
    let due = text_field(fields, &["due"]).and_then(|text| {
        let day = text.get(..10).unwrap_or(&text).parse().ok();
        if day.is_none() {
            odd.push(format!("`{}` is not a date like 2026-02-13; ignored", excerpt(&text)));
        }
        day
    });
    let proposal = Proposal {
        kind,
        priority,
        content,
        entity: text_field(fields, &["entity"]),
        entity_kind,
        tags,
        quote,
        passage: piece - 1,
        due,
        waiting_on: text_field(fields, &["waiting_on"]),
        supersedes: Vec::new(),
    };
    Ok((proposal, odd))
}

/// The first of these fields that holds a non-empty text. Models write `"none"` for an empty value.
fn text_field(fields: &Map<String, Value>, names: &[&str]) -> Option<String> {
    let text = names.iter().find_map(|name| fields.get(*name)?.as_str())?.trim();
    let nothing = text.is_empty()
        || ["null", "none", "n/a"].iter().any(|word| text.eq_ignore_ascii_case(word));
    (!nothing).then(|| text.to_owned())
}

fn tags_field(fields: &Map<String, Value>, odd: &mut Vec<String>) -> Vec<String> {
    let all: Vec<&str> = match fields.get("tags") {
        Some(Value::Array(tags)) => tags.iter().filter_map(Value::as_str).collect(),
        Some(Value::String(tags)) => tags.split(',').collect(),
        _ => Vec::new(),
    };
    let count = all.len();
    let mut tags: Vec<String> = all
        .into_iter()
        .map(|tag| tag.trim().to_lowercase())
        .filter(|tag| !tag.is_empty())
        .collect();
    tags.retain(|tag| tag.len() <= MAX_FIELD_BYTES);
    tags.truncate(MAX_TAGS);
    if tags.len() < count {
        odd.push(format!(
            "{} of {count} tags were empty, too long or too many",
            count - tags.len()
        ));
    }
    tags
}

fn excerpt(text: &str) -> String {
    sanitize::one_line(text).chars().take(40).collect()
}

/// The JSON Schema of a model's answer.
pub fn answer_schema(pieces: usize) -> Value {
    let words = |words: Vec<&str>| json!({"type": "string", "enum": words});
    let short = json!({"type": ["string", "null"], "maxLength": MAX_FIELD_BYTES});
    json!({
        "type": "object",
        "additionalProperties": false,
        "required": ["events"],
        "properties": {
            "events": {
                "type": "array",
                "maxItems": MAX_REQUESTED_EVENTS,
                "items": {
                    "type": "object",
                    "additionalProperties": false,
                    "required": ["type", "priority", "content", "quote", "source"],
                    "properties": {
                        "type": words(EventType::ALL.iter().map(|kind| kind.word()).collect()),
                        "priority": words(Priority::ALL.iter().map(|priority| priority.word()).collect()),
                        "content": {"type": "string", "minLength": 1, "maxLength": MAX_CONTENT_BYTES},
                        "entity": short,
                        "entity_kind": words(EntityKind::ALL.iter().map(|kind| kind.word()).collect()),
                        "tags": {"type": "array", "maxItems": MAX_TAGS, "items": {"type": "string", "maxLength": MAX_FIELD_BYTES}},
                        "quote": {"type": "string", "minLength": 1, "maxLength": MAX_QUOTE_BYTES},
                        "source": {"type": "integer", "minimum": 1, "maximum": pieces.max(1)},
                        "due": {"type": ["string", "null"], "maxLength": 10},
                        "waiting_on": short,
                    }
                }
            }
        }
    })
}

#[cfg(test)]
pub(crate) mod testing {
    use super::*;

    /// A Friday.
    pub fn now() -> Moment {
        Moment::parse("2026-02-13T18:00:00+01:00").unwrap().moment
    }

    /// A passage of the user's, with that origin.
    pub fn piece(text: &str, origin: Origin) -> SourcePassage<'_> {
        SourcePassage {
            source: "memory/messages/2026-02-13.jsonl#m17".into(),
            text,
            origin,
            speaker: None,
            said_at: now(),
            session: Some("s1".into()),
            scope: Scope::Everywhere,
        }
    }

    /// A proposal with an exact quote.
    pub fn proposal(kind: EventType, priority: Priority, content: &str, quote: &str) -> Proposal {
        Proposal {
            kind,
            priority,
            content: content.into(),
            entity: None,
            entity_kind: None,
            tags: Vec::new(),
            quote: quote.into(),
            passage: 0,
            due: None,
            waiting_on: None,
            supersedes: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::testing::{now, piece, proposal};
    use super::*;
    use jiff::civil::date;
    use proptest::prelude::*;

    fn read(json: &str, pieces: usize) -> (Vec<Proposal>, Vec<String>) {
        parse_answer(&serde_json::from_str(json).unwrap(), pieces)
    }

    // L13
    #[test]
    fn what_is_learnt_in_a_project_holds_there_unless_it_is_about_people_or_said_to_hold_everywhere()
     {
        let check = |kind: EventType, content: &str, origin: Origin, everywhere: bool| {
            let project = Scope::Project("app".into());
            let piece = SourcePassage { scope: project.clone(), ..piece(content, origin) };
            let scope = proposal(kind, Priority::P1, content, content).draft(&piece, now()).scope;
            assert_eq!(scope, if everywhere { Scope::Everywhere } else { project }, "{content}");
        };
        check(EventType::Decision, "We use Postgres 17", Origin::User, false);
        check(EventType::Constraint, "Never deploy on Fridays", Origin::User, false);
        check(EventType::Commitment, "Send the schema", Origin::User, false);
        check(EventType::Preference, "I like short answers", Origin::User, true);
        check(EventType::Relationship, "Mira leads the team", Origin::Assistant, true);
        check(EventType::Constraint, "In all projects: never force-push", Origin::User, true);
        check(EventType::Constraint, "In all projects: never force-push", Origin::Assistant, false);
        check(EventType::Constraint, "In allen Projekten nie force-push", Origin::User, true);
        let person = Proposal {
            entity_kind: Some(EntityKind::Person),
            ..proposal(EventType::Fact, Priority::P2, "Mira is in Bergen", "Mira")
        };
        let piece = SourcePassage {
            scope: Scope::Project("app".into()),
            ..piece("Mira is in Bergen", Origin::User)
        };
        assert_eq!(person.draft(&piece, now()).scope, Scope::Everywhere);
    }

    // L13
    #[test]
    fn an_answer_is_read_in_whatever_wrapping_it_comes() {
        let event = r#"{"type":"Decision","priority":"p1","content":"Use Postgres","quote":"use Postgres","source":2,"due":null}"#;
        for wrapped in [
            event.to_owned(),
            format!("[{event}]"),
            format!("{{\"events\":[{event}]}}"),
            format!("{{\"events\":{event}}}"),
        ] {
            let (found, complaints) = read(&wrapped, 3);
            assert_eq!(complaints, [""; 0], "{wrapped}");
            let mut expected =
                proposal(EventType::Decision, Priority::P1, "Use Postgres", "use Postgres");
            expected.passage = 1;
            assert_eq!(found, [expected], "{wrapped}");
        }
        for nothing in ["null", "[]", "{\"events\":[]}", "{\"events\":null}"] {
            assert_eq!(read(nothing, 1), (vec![], vec![]), "{nothing}");
        }
    }

    // L13
    #[test]
    fn unusable_proposals_are_reported_and_the_rest_accepted() {
        let (found, complaints) = read(
            r#"{"events":[
              {"type":"todo","priority":"P1","content":"a","quote":"a","source":1},
              {"type":"fact","priority":"urgent","content":"a","quote":"a","source":1},
              {"type":"fact","priority":"P1","content":"a","quote":"a","source":0},
              {"type":"fact","priority":"P1","content":"a","quote":"a","source":3},
              {"type":"fact","priority":"P1","content":"a","quote":"a","source":-1},
              {"type":"fact","priority":"P1","content":" ","quote":"a","source":1},
              {"type":"fact","priority":"P1","content":"a","source":1},
              "fact", 7,
              {"type":"milestone","content":"Shipped","quote":"shipped","source":"2","tags":"Sales, x","due":"soon","entity":"none","entity_kind":"god"},
              {"type":"commitment","priority":"P2","content":"c","quote":"q","source":1,"due":"2026-02-20T00:00:00Z","waiting_on":"Anna"}
            ]}"#,
            2,
        );
        assert_eq!(found.len(), 2);
        assert_eq!(
            (found[0].kind, found[0].priority, found[0].passage),
            (EventType::Fact, Priority::P2, 1)
        );
        assert_eq!(found[0].tags, ["sales", "x", "milestone"]);
        assert_eq!((found[0].due, &found[0].entity, found[0].entity_kind), (None, &None, None));
        assert_eq!(
            (found[1].due, found[1].waiting_on.as_deref()),
            (Some(date(2026, 2, 20)), Some("Anna"))
        );
        assert_eq!(complaints.len(), 13, "{complaints:#?}");
    }

    // L13
    #[test]
    fn no_answer_is_too_long_to_be_bounded() {
        let event = json!({"type": "fact", "priority": "P2", "content": "x y z", "quote": "x y z", "source": 1});
        let (found, complaints) = parse_answer(&Value::Array(vec![event; 100]), 1);
        assert_eq!(found.len(), MAX_PROPOSALS);
        assert!(complaints[0].starts_with("100 events"), "{complaints:?}");
    }

    // L13
    #[test]
    fn the_schema_knows_every_word() {
        let schema = answer_schema(7);
        let event = &schema["properties"]["events"]["items"];
        assert_eq!(schema["properties"]["events"]["maxItems"], 12);
        assert_eq!(event["properties"]["source"]["maximum"], 7);
        assert_eq!(
            event["properties"]["type"]["enum"].as_array().unwrap().len(),
            EventType::ALL.len()
        );
        assert_eq!(event["properties"]["priority"]["enum"], json!(["P0", "P1", "P2", "P3"]));
        assert_eq!(event["additionalProperties"], false);
        assert_eq!(
            answer_schema(0)["properties"]["events"]["items"]["properties"]["source"]["maximum"],
            1
        );
    }

    // K4
    #[test]
    fn a_draft_points_at_the_very_words() {
        let piece = piece("Hello!\nWe  decided\non “Postgres” – at last.", Origin::User);
        let mut kept = proposal(
            EventType::Decision,
            Priority::P1,
            "Postgres was chosen",
            "we decided on \"postgres\" - at last",
        );
        kept.due = Some(date(2026, 2, 20));
        let draft = kept.draft(&piece, now());
        assert_eq!(
            draft.extra_field::<String>(QUOTE_FIELD).as_deref(),
            Some("We  decided\non “Postgres” – at last")
        );
        let [start, end] = draft.extra_field::<[usize; 2]>(SPAN_FIELD).unwrap();
        assert_eq!(&piece.text[start..end], "We  decided\non “Postgres” – at last");
        assert_eq!(
            (draft.source.as_str(), draft.session.as_deref(), draft.origin),
            (piece.source.as_str(), Some("s1"), Origin::User)
        );
        assert_eq!(draft.due, None);
        assert!(draft.sanitize().is_ok());
        let lost = proposal(EventType::Fact, Priority::P2, "x", "ostgres").draft(&piece, now());
        assert_eq!(
            (
                lost.extra_field::<[usize; 2]>(SPAN_FIELD),
                lost.extra_field::<String>(QUOTE_FIELD).as_deref()
            ),
            (None, Some("ostgres"))
        );
    }

    fn json_value() -> impl Strategy<Value = Value> {
        let names = prop::sample::select(vec![
            "events",
            "type",
            "priority",
            "content",
            "quote",
            "source",
            "due",
            "tags",
            "entity_kind",
        ]);
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            ".{0,12}".prop_map(Value::from),
            prop::sample::select(vec!["fact", "P1", "2026-02-13", "1"]).prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 64, 10, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Value::Array),
                prop::collection::vec((names.clone(), inner), 0..10).prop_map(|fields| {
                    Value::Object(
                        fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
                    )
                }),
            ]
        })
    }

    proptest! {
        // L13
        #[test]
        fn any_answer_is_read_without_harm(value in json_value(), pieces in 0_usize..4) {
            let (found, _) = parse_answer(&value, pieces);
            prop_assert!(found.len() <= MAX_PROPOSALS);
            prop_assert!(found.iter().all(|proposal| proposal.passage < pieces && proposal.tags.len() <= MAX_TAGS + 1));
        }

        #[test]
        fn words_are_found_where_they_stand(before in "\\PC{0,20}", words in "[a-zA-Zäé“’—]{1,8}( [a-zA-Zäé“’—]{1,8}){0,3}", after in "\\PC{0,20}") {
            let text = format!("{before} {words}\n{after}");
            let span = NormalizedText::new(&text).find(&words.to_uppercase().to_lowercase()).unwrap();
            let (found, wanted) = (NormalizedText::new(&text[span]), NormalizedText::new(&words));
            prop_assert_eq!(found.text.trim(), wanted.text.trim());
        }
    }
}
