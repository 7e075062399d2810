//! One line of the ledger: compact JSON, one event.
//!
//! Reading never fails. Agents and people append by hand, so parsing returns the events of a line
//! together with its faults; lines that are not events stay in the file as foreign lines. Fields of
//! other programs are preserved as raw text.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::value::RawValue;

use crate::calendar::Moment;
use crate::event::{Act, Event, EventDraft, EventType, LoopStatus, Origin, Priority, Scope};
use crate::id::EventId;

/// The longest line that is read as an event, in bytes.
pub const MAX_LINE_BYTES: usize = 4 * 1024 * 1024;
/// The most fields one line may have.
pub const MAX_FIELDS: usize = 256;
/// The deepest nesting of a foreign field's value.
pub const MAX_DEPTH: usize = 128;

/// How bad a fault is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Readable, but not in the canonical form.
    Odd,
    /// Something is missing, doubled or unreadable.
    Bad,
}

/// A fault of a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParseFault {
    pub severity: Severity,
    /// A description that completes the sentence "this line …".
    pub what: String,
}

/// The content of a line.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ParsedLine {
    /// The events; one, unless a writer forgot a line break.
    pub events: Vec<Event>,
    pub faults: Vec<ParseFault>,
}

impl ParsedLine {
    fn add_fault(&mut self, severity: Severity, what: impl Into<String>) {
        self.faults.push(ParseFault { severity, what: what.into() });
    }

    /// Whether every byte of the line was understood.
    pub fn is_sound(&self) -> bool {
        self.faults.iter().all(|fault| fault.severity == Severity::Odd)
    }
}

/// Reads one line, without its line break.
pub fn parse_line(line: &[u8]) -> ParsedLine {
    let mut parsed = ParsedLine::default();
    if line.len() > MAX_LINE_BYTES {
        parsed.add_fault(
            Severity::Bad,
            format!("has {} bytes, at most {MAX_LINE_BYTES} are read", line.len()),
        );
        return parsed;
    }
    let text = match std::str::from_utf8(line) {
        Ok(text) => text.strip_suffix('\r').unwrap_or(text),
        Err(error) => {
            parsed.add_fault(
                Severity::Bad,
                format!("is not UTF-8 from byte {} on", error.valid_up_to() + 1),
            );
            return parsed;
        }
    };
    let text = match text.strip_prefix('\u{feff}') {
        Some(rest) => {
            parsed.add_fault(Severity::Odd, "starts with a byte order mark");
            rest
        }
        None => text,
    };
    if text.trim().is_empty() {
        return parsed;
    }
    if ["<<<<<<<", "=======", ">>>>>>>", "|||||||"].iter().any(|marker| text.starts_with(marker)) {
        parsed.add_fault(Severity::Bad, "is a git conflict marker of an unfinished merge");
        return parsed;
    }
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<RawFields<'_>>();
    let mut count = 0;
    while let Some(value) = values.next() {
        count += 1;
        match value {
            Ok(fields) => read_event(&fields, &mut parsed),
            Err(error) => {
                parsed.add_fault(
                    Severity::Bad,
                    format!(
                        "is not a JSON object at column {}: {}",
                        values.byte_offset() + 1,
                        error_reason(&error)
                    ),
                );
                break;
            }
        }
    }
    if count > 1 {
        parsed.add_fault(
            Severity::Odd,
            format!("holds {count} values; a line break is missing between them"),
        );
    }
    parsed
}

/// The parser's reason without its position.
fn error_reason(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.split(" at line ").next().unwrap_or_default().to_owned()
}

/// The fields of one JSON object, each value still as raw text.
struct RawFields<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'de> Deserialize<'de> for RawFields<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct FieldsVisitor;
        impl<'de> Visitor<'de> for FieldsVisitor {
            type Value = RawFields<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut fields: Vec<(Cow<'de, str>, &'de RawValue)> = Vec::with_capacity(12);
                while let Some(BorrowedString(name)) = map.next_key()? {
                    if fields.len() == MAX_FIELDS {
                        return Err(serde::de::Error::custom(format!(
                            "more than {MAX_FIELDS} fields"
                        )));
                    }
                    if fields.iter().any(|(known, _)| *known == name) {
                        return Err(serde::de::Error::custom(format!(
                            "the field `{name}` appears twice"
                        )));
                    }
                    fields.push((name, map.next_value()?));
                }
                Ok(RawFields(fields))
            }
        }
        deserializer.deserialize_map(FieldsVisitor)
    }
}

/// A string that borrows from the line unless it has escapes.
struct BorrowedString<'a>(Cow<'a, str>);

impl<'de> Deserialize<'de> for BorrowedString<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct StringVisitor;
        impl<'de> Visitor<'de> for StringVisitor {
            type Value = BorrowedString<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(BorrowedString(Cow::Borrowed(text)))
            }

            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(BorrowedString(Cow::Owned(text.to_owned())))
            }
        }
        deserializer.deserialize_str(StringVisitor)
    }
}

fn as_text<'a>(raw: &'a RawValue) -> Option<Cow<'a, str>> {
    let inner = raw.get().strip_prefix('"')?.strip_suffix('"')?;
    // serde_json has validated the text: without a backslash it needs no unescaping.
    if memchr::memchr(b'\\', inner.as_bytes()).is_none() {
        return Some(Cow::Borrowed(inner));
    }
    serde_json::from_str::<BorrowedString<'a>>(raw.get()).ok().map(|name| name.0)
}

/// A list of texts; a single text counts as a list of one.
fn as_text_list(raw: &RawValue) -> Option<Vec<Cow<'_, str>>> {
    if let Some(one) = as_text(raw) {
        return Some(vec![one]);
    }
    serde_json::from_str::<Vec<BorrowedString<'_>>>(raw.get())
        .ok()
        .map(|names| names.into_iter().map(|name| name.0).collect())
}

fn read_event(fields: &RawFields<'_>, parsed: &mut ParsedLine) {
    const REQUIRED: [&str; 5] = ["ts", "id", "type", "priority", "content"];
    let field = |name: &str| fields.0.iter().find(|(known, _)| known == name).map(|(_, raw)| *raw);
    let said = REQUIRED.map(|name| field(name).and_then(as_text));
    let missing: Vec<&str> = REQUIRED
        .into_iter()
        .zip(&said)
        .filter(|(_, said)| said.is_none())
        .map(|(name, _)| name)
        .collect();
    if !missing.is_empty() {
        parsed.add_fault(
            Severity::Bad,
            format!("is not an event: {} missing or not a text", missing.join(", ")),
        );
        return;
    }
    let [ts, id, kind, priority, content] = said.map(Option::unwrap_or_default);

    let Some(ts) = Moment::parse(&ts) else {
        return parsed.add_fault(
            Severity::Bad,
            format!("is not an event: ts `{}` is not a time", truncate_for_display(&ts)),
        );
    };
    let id: EventId = match id.parse() {
        Ok(id) => id,
        Err(error) => return parsed.add_fault(Severity::Bad, format!("is not an event: {error}")),
    };
    // Words that a newer version may have introduced. They stay in the line unchanged.
    let mut unknown: Vec<&str> = Vec::new();
    let mut tags = Vec::new();
    let kind = match kind.parse::<EventType>() {
        Ok(kind) => kind,
        // `insight` and `milestone` were types once; they are tags now.
        Err(_) if ["insight", "milestone"].contains(&kind.as_ref()) => {
            parsed.add_fault(
                Severity::Odd,
                format!("has type `{kind}`, which is a tag; read as a fact"),
            );
            tags.push(kind.into_owned());
            EventType::Fact
        }
        Err(_) => {
            parsed.add_fault(
                Severity::Odd,
                format!(
                    "has an unknown type `{}`; kept unchanged and read as a fact",
                    truncate_for_display(&kind)
                ),
            );
            unknown.push("type");
            EventType::Fact
        }
    };
    let priority = match priority.parse() {
        Ok(priority) => priority,
        Err(_) => {
            let what = format!(
                "has an unknown priority `{}`; kept unchanged and read as P1",
                truncate_for_display(&priority)
            );
            parsed.add_fault(Severity::Odd, what);
            unknown.push("priority");
            Priority::P1
        }
    };
    if content.trim().is_empty() {
        return parsed.add_fault(Severity::Bad, "is not an event: its content is empty");
    }
    if ts.offset_assumed {
        parsed.add_fault(Severity::Odd, "has a ts without an offset; read as UTC");
    }
    if field("source").and_then(as_text).is_none() {
        parsed.add_fault(Severity::Odd, "has no `source`");
    }

    let mut draft = EventDraft::new(ts.moment, kind, priority, content.into_owned());
    // Only commitments with a status are open; a line without an origin was written outside of
    // icecore.
    draft.status = None;
    draft.origin = Origin::File;
    draft.source = "unknown".into();
    for (name, raw) in &fields.0 {
        let understood = match name.as_ref() {
            "type" | "priority" if unknown.contains(&name.as_ref()) => {
                draft.extra.push((name.clone().into_owned(), raw.get().to_owned()));
                true
            }
            "ts" | "id" | "type" | "priority" | "content" => true,
            "entity" => set_text(&mut draft.entity, raw),
            "session" => set_text(&mut draft.session, raw),
            "waiting_on" => set_text(&mut draft.waiting_on, raw),
            "source" => as_text(raw).map(|source| draft.source = source.into_owned()).is_some(),
            "tags" => as_text_list(raw)
                .map(|list| tags.extend(list.into_iter().map(Cow::into_owned)))
                .is_some(),
            "entity_kind" => parse_word(raw).map(|kind| draft.entity_kind = Some(kind)).is_some(),
            "status" => parse_word(raw).map(|status| draft.status = Some(status)).is_some(),
            "act" => parse_word(raw).map(|act| draft.act = act).is_some(),
            "scope" => parse_word(raw).map(|scope| draft.scope = scope).is_some(),
            "origin" => parse_word(raw).map(|origin| draft.origin = origin).is_some(),
            "due" => parse_word(raw).map(|due| draft.due = Some(due)).is_some(),
            "related" => parse_ids(raw).map(|list| draft.related = list).is_some(),
            "supersedes" => parse_ids(raw).map(|list| draft.supersedes = list).is_some(),
            _ => {
                if nesting_depth(raw.get()) > MAX_DEPTH {
                    parsed.add_fault(
                        Severity::Odd,
                        format!(
                            "has a field `{}` nested deeper than {MAX_DEPTH}",
                            truncate_for_display(name)
                        ),
                    );
                }
                draft.extra.push((name.clone().into_owned(), raw.get().to_owned()));
                true
            }
        };
        if !understood && raw.get() != "null" {
            parsed.add_fault(
                Severity::Odd,
                format!("has a `{name}` that cannot be read: {}", truncate_for_display(raw.get())),
            );
            draft.extra.push((name.clone().into_owned(), raw.get().to_owned()));
            if name == "origin" {
                // An unknown origin gets the lowest trust.
                draft.origin = Origin::Tool;
            }
        }
    }
    if draft.kind == EventType::Commitment && draft.status.is_none() && draft.act == Act::Assert {
        draft.status = Some(LoopStatus::Open);
    }
    draft.tags = tags;
    parsed.events.push(draft.with_id(id));
}

fn set_text(field: &mut Option<String>, raw: &RawValue) -> bool {
    as_text(raw).map(|text| *field = Some(text.into_owned())).is_some()
}

fn parse_word<T: std::str::FromStr>(raw: &RawValue) -> Option<T> {
    as_text(raw)?.parse().ok()
}

fn parse_ids(raw: &RawValue) -> Option<Vec<EventId>> {
    as_text_list(raw)?.iter().map(|id| id.parse().ok()).collect()
}

fn truncate_for_display(text: &str) -> String {
    let mut shown: String = crate::sanitize::one_line(text).chars().take(60).collect();
    if text.chars().count() > 60 {
        shown.push('…');
    }
    shown
}

/// The nesting depth of well-formed JSON.
fn nesting_depth(raw: &str) -> usize {
    let (mut deepest, mut level, mut in_text, mut escaped) = (0_usize, 0_usize, false, false);
    for byte in raw.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_text => escaped = true,
            b'"' => in_text = !in_text,
            b'[' | b'{' if !in_text => {
                level += 1;
                deepest = deepest.max(level);
            }
            b']' | b'}' if !in_text => level = level.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

/// Writes an event as one line, with its line break.
pub fn format_line(event: &Event) -> String {
    // A map of strings and raw JSON always serializes.
    let mut line = serde_json::to_string(event).unwrap_or_default();
    line.push('\n');
    line
}

impl Serialize for Event {
    /// Writes the required fields first, in fixed order, then the optional ones. Absent and default
    /// values are omitted.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("ts", &self.ts)?;
        map.serialize_entry("id", &self.id)?;
        // A field that could not be read is also among the foreign fields; it is written only once.
        let ours = |name: &str| !self.extra.iter().any(|(foreign, _)| foreign == name);
        if ours("type") {
            map.serialize_entry("type", &self.kind)?;
        }
        if ours("priority") {
            map.serialize_entry("priority", &self.priority)?;
        }
        map.serialize_entry("content", &self.content)?;
        if let Some(entity) = self.entity.as_ref().filter(|_| ours("entity")) {
            map.serialize_entry("entity", entity)?;
        }
        if let Some(kind) = self.entity_kind.as_ref().filter(|_| ours("entity_kind")) {
            map.serialize_entry("entity_kind", kind)?;
        }
        if !self.tags.is_empty() && ours("tags") {
            map.serialize_entry("tags", &self.tags)?;
        }
        if ours("source") {
            map.serialize_entry("source", &self.source)?;
        }
        if let Some(session) = self.session.as_ref().filter(|_| ours("session")) {
            map.serialize_entry("session", session)?;
        }
        if self.scope != Scope::Everywhere && ours("scope") {
            map.serialize_entry("scope", &self.scope.to_string())?;
        }
        if ours("origin") {
            map.serialize_entry("origin", &self.origin)?;
        }
        if self.act != Act::Assert && ours("act") {
            map.serialize_entry("act", &self.act)?;
        }
        if !self.related.is_empty() && ours("related") {
            map.serialize_entry("related", &self.related)?;
        }
        match self.supersedes.as_slice() {
            _ if !ours("supersedes") => {}
            [] => {}
            [one] => map.serialize_entry("supersedes", one)?,
            many => map.serialize_entry("supersedes", many)?,
        }
        if let Some(status) = self.status.as_ref().filter(|_| ours("status")) {
            map.serialize_entry("status", status)?;
        }
        if let Some(due) = self.due.filter(|_| ours("due")) {
            map.serialize_entry("due", &due.to_string())?;
        }
        if let Some(whom) = self.waiting_on.as_ref().filter(|_| ours("waiting_on")) {
            map.serialize_entry("waiting_on", whom)?;
        }
        for (name, raw) in &self.extra {
            let value = RawValue::from_string(raw.clone()).map_err(serde::ser::Error::custom)?;
            map.serialize_entry(name, &value)?;
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LINE: &str = r#"{"ts":"2026-01-28T14:03:11-05:00","id":"EVT-20260128-001","type":"commitment","priority":"P0","content":"Call the printer back by March 1","entity":"printer","tags":["office","deadline"],"source":"memory/2026-01-28.md","session":"main"}"#;

    // L2
    #[test]
    fn a_line_of_the_classic_form_is_an_open_commitment() {
        let parsed = parse_line(LINE.as_bytes());
        assert_eq!(parsed.faults, []);
        let event = &parsed.events[0];
        assert_eq!(event.id.to_string(), "EVT-20260128-001");
        assert_eq!(event.status, Some(LoopStatus::Open));
        assert_eq!(event.origin, Origin::File);
        assert_eq!(event.tags, ["office", "deadline"]);
    }

    /// `(events, bad faults, odd faults)` of a line.
    fn check(line: &[u8], events: usize, bad: usize, odd: usize) {
        let parsed = parse_line(line);
        let count =
            |severity| parsed.faults.iter().filter(|fault| fault.severity == severity).count();
        let found = (parsed.events.len(), count(Severity::Bad), count(Severity::Odd));
        assert_eq!(
            found,
            (events, bad, odd),
            "{} {:?}",
            String::from_utf8_lossy(&line[..line.len().min(80)]),
            parsed.faults
        );
    }

    // L12
    #[test]
    fn every_line_of_the_corpus_has_a_defined_result() {
        let good = LINE.as_bytes();
        let with = |field: &str| LINE.replace(r#""session":"main""#, field).into_bytes();
        check(&good[..good.len() - 9], 0, 1, 0); // torn
        check(&[good, good].concat(), 2, 0, 1); // joined
        check(&[good, b"{\"a\":"].concat(), 1, 1, 1); // joined and torn
        check(&[good, b"\r"].concat(), 1, 0, 0); // CRLF
        check(&["\u{feff}".as_bytes(), good].concat(), 1, 0, 1); // BOM
        check(b"\0\0\0\0", 0, 1, 0);
        check(&[good, b"\0\0"].concat(), 1, 1, 1); // NUL tail
        check(&with(r#""session":"a","session":"b""#), 0, 1, 0); // duplicate key
        check(b"<<<<<<< HEAD", 0, 1, 0); // conflict marker
        check(b"=======", 0, 1, 0);
        check(b"{\"content\":\"\xff\xfe\"}", 0, 1, 0); // invalid UTF-8
        check(&with(r#""weight":NaN"#), 0, 1, 0);
        check(&[b'['; 200_000], 0, 1, 0); // deep, top level
        let deep = format!(r#""x":{}{}"#, "[".repeat(200_000), "]".repeat(200_000));
        check(&with(&deep), 1, 0, 1); // deep, in a foreign field
        check(&with(r#""big":12345678901234567890123"#), 1, 0, 0); // 23 digits
        check(b"", 0, 0, 0);
        check(b"   ", 0, 0, 0);
        check(b"{}", 0, 1, 0);
        check(b"42", 0, 1, 0);
        check(&with(r#""tags":7"#), 0, 1, 0); // `tags` twice
        check(&with(r#""due":"soon""#), 1, 0, 1);
        check(&with(r#""related":["EVT-042"]"#), 1, 0, 1);
        check(&with(r#""session":null"#), 1, 0, 0);
        check(&vec![b'x'; MAX_LINE_BYTES + 1], 0, 1, 0);
    }

    impl ParsedLine {
        fn only(mut self) -> Event {
            assert_eq!(self.events.len(), 1, "{:?}", self.faults);
            self.events.remove(0)
        }
    }

    // L2
    #[test]
    fn fields_of_others_come_back_as_they_were() {
        let line = LINE.replace(
            r#""session":"main""#,
            r#""big":12345678901234567890123,"z":{"b":1.0,"a":[1,2]}"#,
        );
        let event = parse_line(line.as_bytes()).only();
        assert_eq!(event.extra[0], ("big".into(), "12345678901234567890123".into()));
        let again = parse_line(format_line(&event).trim_end().as_bytes()).only();
        assert_eq!(again, event);
    }

    // L2
    #[test]
    fn odd_fields_survive_being_written_again() {
        for field in [
            r#""origin":"robot""#,
            r#""status":"maybe""#,
            r#""scope":7"#,
            r#""act":["x"]"#,
            r#""due":"soon""#,
            r#""supersedes":"EVT-1""#,
            r#""related":{}"#,
            r#""waiting_on":false"#,
            r#""line":9,"standing":"x""#,
            r#""origin":null"#,
        ] {
            let event = parse_line(LINE.replace(r#""session":"main""#, field).as_bytes()).only();
            assert_eq!(
                parse_line(format_line(&event).trim_end().as_bytes()).only(),
                event,
                "{field}"
            );
        }
        let event = parse_line(
            LINE.replace(r#""source":"memory/2026-01-28.md""#, r#""source":{}"#).as_bytes(),
        )
        .only();
        assert_eq!(parse_line(format_line(&event).trim_end().as_bytes()).only(), event);
    }

    #[test]
    fn words_of_a_newer_version_are_kept_and_readable() {
        for (field, kind, priority) in [
            (r#""type":"hypothesis","priority":"P0""#, EventType::Fact, Priority::P0),
            (r#""type":"decision","priority":"P7""#, EventType::Decision, Priority::P1),
        ] {
            let parsed = parse_line(
                LINE.replace(r#""type":"commitment","priority":"P0""#, field).as_bytes(),
            );
            assert!(
                parsed.is_sound() && parsed.faults[0].what.contains("unknown"),
                "{:?}",
                parsed.faults
            );
            let event = parsed.only();
            assert_eq!((event.kind, event.priority), (kind, priority), "{field}");
            let line = format_line(&event);
            for word in field.split(',') {
                assert_eq!(line.matches(word).count(), 1, "{line}");
            }
            assert_eq!(parse_line(line.trim_end().as_bytes()).only(), event, "{field}");
        }
        let event = parse_line(LINE.replace("commitment", "hypothesis").as_bytes()).only();
        assert_eq!(event.type_name(), "unknown type `hypothesis`");
        assert_eq!(parse_line(LINE.as_bytes()).only().type_name(), "commitment");
    }

    // L2
    #[test]
    fn former_types_become_tags() {
        let event = parse_line(LINE.replace("commitment", "insight").as_bytes()).only();
        assert_eq!((event.kind, event.tags[0].as_str()), (EventType::Fact, "insight"));
    }

    proptest! {
        #[test]
        fn no_bytes_can_upset_the_reader(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = parse_line(&bytes);
        }

        #[test]
        fn a_damaged_line_never_panics(cut in 0_usize..230, flip in 0_usize..230, with in any::<u8>()) {
            let mut line = LINE.as_bytes().to_vec();
            line.truncate(cut.max(1));
            let at = flip % line.len();
            line[at] = with;
            let _ = parse_line(&line);
        }

        #[test]
        fn what_is_written_is_read_back(content in "\\PC{1,200}", entity in "[a-z_]{1,20}", seconds in 0_i64..4_000_000_000, offset in -840_i32..840, kind in 0_usize..7, priority in 0_usize..4) {
            prop_assume!(!content.trim().is_empty());
            let offset = jiff::tz::Offset::from_seconds(offset * 60).unwrap();
            let ts = Moment::new(jiff::Timestamp::from_second(seconds).unwrap(), offset);
            let mut draft = EventDraft::new(ts, EventType::ALL[kind], Priority::ALL[priority], content);
            draft.entity = Some(entity);
            draft.related = vec![EventId::new(ts.day(), 1)];
            let event = draft.with_id(EventId::new(ts.day(), 2));
            let line = format_line(&event);
            prop_assert_eq!(line.matches('\n').count(), 1);
            prop_assert_eq!(parse_line(line.trim_end_matches('\n').as_bytes()).only(), event);
        }
    }
}
