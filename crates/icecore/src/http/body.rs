//! Edits a request body in place, without reserializing the rest.
//!
//! A body is parsed into ranges of its own text, and edits replace such ranges. Unknown fields,
//! number spellings, key order and whitespace stay byte for byte.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use serde::de::{Deserializer as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

/// The deepest nesting that is parsed.
pub const MAX_DEPTH: usize = 128;

/// Why memory cannot work with a body.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    /// Not UTF-8.
    #[error("the body is not UTF-8 (byte {at}); send JSON in UTF-8")]
    NotText { at: usize },
    #[error("the body is not JSON: {said}; send a JSON object")]
    NotJson { said: String },
    #[error("{what} is not a JSON object; send one")]
    NotAnObject { what: String },
    /// A duplicate key: parsers differ on which one counts.
    #[error("{what} has the key `{key}` twice, so it is ambiguous; send it once")]
    Twice { what: String, key: String },
    #[error("the body is nested deeper than {MAX_DEPTH} levels; flatten it")]
    TooDeep,
}

/// A JSON object as ranges of the text it was parsed from.
#[derive(Debug, Clone)]
pub struct RawObject<'a> {
    fields: Vec<(String, &'a RawValue)>,
}

impl<'a> RawObject<'a> {
    /// The value of a key; `null` counts as missing.
    pub fn get(&self, key: &str) -> Option<&'a RawValue> {
        self.fields
            .iter()
            .find(|(name, _)| name == key)
            .map(|(_, value)| *value)
            .filter(|value| value.get() != "null")
    }

    /// The value of a key, even if it is `null`.
    pub fn get_or_null(&self, key: &str) -> Option<&'a RawValue> {
        self.fields.iter().find(|(name, _)| name == key).map(|(_, value)| *value)
    }

    /// The string value of a key.
    pub fn text(&self, key: &str) -> Option<Cow<'a, str>> {
        parse_string(self.get(key)?)
    }

    /// Whether it has no fields.
    pub fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }
}

/// A request body.
#[derive(Debug)]
pub struct RequestBody<'a> {
    /// The whole text.
    pub whole: &'a str,
    /// Its top-level object.
    pub object: RawObject<'a>,
}

impl<'a> RequestBody<'a> {
    /// Parses the top-level keys of a body.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, BodyError> {
        let whole = std::str::from_utf8(bytes)
            .map_err(|error| BodyError::NotText { at: error.valid_up_to() })?;
        if nesting_depth(bytes) > MAX_DEPTH {
            return Err(BodyError::TooDeep);
        }
        Ok(Self { whole, object: parse_object(whole, "the body")? })
    }

    /// The range of a value within the body.
    pub fn range_of(&self, value: &RawValue) -> Range<usize> {
        let start = (value.get().as_ptr() as usize).saturating_sub(self.whole.as_ptr() as usize);
        start..start + value.get().len()
    }
}

/// Parses an object; `what` names it in errors.
pub fn parse_object<'a>(text: &'a str, what: &str) -> Result<RawObject<'a>, BodyError> {
    struct Fields;
    impl<'de> Visitor<'de> for Fields {
        type Value = Vec<(String, &'de RawValue)>;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }
        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut fields = Vec::new();
            while let Some(field) = map.next_entry()? {
                fields.push(field);
            }
            Ok(fields)
        }
    }
    let not_json = |error: serde_json::Error| BodyError::NotJson { said: error.to_string() };
    if !text.trim_start().starts_with('{') {
        serde_json::from_str::<IgnoredAny>(text).map_err(not_json)?;
        return Err(BodyError::NotAnObject { what: what.to_owned() });
    }
    let mut reader = serde_json::Deserializer::from_str(text);
    let fields = reader.deserialize_map(Fields).map_err(not_json)?;
    reader.end().map_err(not_json)?;
    let mut names: Vec<&str> = fields.iter().map(|(name, _)| name.as_str()).collect();
    names.sort_unstable();
    match names.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(BodyError::Twice { what: what.to_owned(), key: pair[0].to_owned() }),
        None => Ok(RawObject { fields }),
    }
}

/// The items of an array; `None` for other values.
pub fn parse_array(value: &RawValue) -> Option<Vec<&RawValue>> {
    struct Items;
    impl<'de> Visitor<'de> for Items {
        type Value = Vec<&'de RawValue>;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an array")
        }
        fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
            let mut items = Vec::new();
            while let Some(item) = seq.next_element()? {
                items.push(item);
            }
            Ok(items)
        }
    }
    serde_json::Deserializer::from_str(value.get()).deserialize_seq(Items).ok()
}

/// The text of a string; `None` for other values. Lone surrogates become �.
pub fn parse_string(value: &RawValue) -> Option<Cow<'_, str>> {
    struct Text;
    impl<'de> Visitor<'de> for Text {
        type Value = Cow<'de, str>;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a text")
        }
        fn visit_borrowed_bytes<E>(self, bytes: &'de [u8]) -> Result<Self::Value, E> {
            Ok(String::from_utf8_lossy(bytes))
        }
        fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Self::Value, E> {
            Ok(String::from_utf8_lossy(bytes).into_owned().into())
        }
    }
    if !value.get().starts_with('"') {
        return None;
    }
    serde_json::Deserializer::from_str(value.get()).deserialize_bytes(Text).ok()
}

/// A text as a JSON string.
pub fn json_string(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// The nesting depth of brackets, outside of strings.
fn nesting_depth(bytes: &[u8]) -> usize {
    let (mut now, mut most, mut within, mut escaped) = (0_usize, 0_usize, false, false);
    for byte in bytes {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if within => escaped = true,
            b'"' => within = !within,
            b'{' | b'[' if !within => {
                now += 1;
                most = most.max(now);
            }
            b'}' | b']' if !within => now = now.saturating_sub(1),
            _ => {}
        }
    }
    most
}

/// Edits of a body, each at a range of the original text.
#[derive(Debug, Default)]
pub struct BodyEdits(Vec<(Range<usize>, String)>);

impl BodyEdits {
    /// Inserts text before the byte `at`.
    pub fn insert(&mut self, at: usize, text: String) {
        self.replace(at..at, text);
    }

    /// Replaces a range.
    pub fn replace(&mut self, place: Range<usize>, text: String) {
        self.0.push((place, text));
    }

    /// Appends text to a string value.
    pub fn append_to_string(&mut self, place: &Range<usize>, text: &str) {
        let quoted = json_string(text);
        self.insert(place.end - 1, quoted[1..quoted.len() - 1].to_owned());
    }

    /// Appends an item to an array.
    pub fn append_to_array(&mut self, place: &Range<usize>, is_empty: bool, item: &str) {
        self.insert(place.end - 1, if is_empty { item.to_owned() } else { format!(",{item}") });
    }

    /// Appends a field to the body.
    pub fn append_field(&mut self, body: &RequestBody<'_>, key: &str, value: &str) {
        let end = body.whole.trim_end().len() - 1;
        let comma = if body.object.is_empty() { "" } else { "," };
        self.insert(end, format!("{comma}{}:{value}", json_string(key)));
    }

    /// The text with all edits applied. They must not overlap.
    pub fn apply(mut self, whole: &str) -> String {
        self.0.sort_by_key(|(place, _)| (place.start, place.end));
        let mut changed = String::with_capacity(
            whole.len() + self.0.iter().map(|(_, text)| text.len()).sum::<usize>(),
        );
        let mut from = 0;
        for (place, text) in self.0 {
            changed.push_str(whole.get(from..place.start).unwrap_or_default());
            changed.push_str(&text);
            from = place.end;
        }
        changed.push_str(whole.get(from..).unwrap_or_default());
        changed
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn complaint(body: &[u8]) -> String {
        RequestBody::parse(body).unwrap_err().to_string()
    }

    // C3
    #[test]
    fn unusable_bodies_are_distinguished() {
        for (body, said) in [
            (&b"{\"a\":1,\"a\":2}"[..], "`a` twice"),
            // The same key, spelled with an escape.
            (b"{\"a\":1,\"\\u0061\":2}", "`a` twice"),
            (b"[1]", "not a JSON object"),
            (b"\"x\"", "not a JSON object"),
            (b"", "not JSON"),
            (b"{\"a\":1", "not JSON"),
            (b"{\"a\":1} x", "not JSON"),
            (b"{\"a\":\xff}", "not UTF-8 (byte 5)"),
        ] {
            assert!(complaint(body).contains(said), "{body:?}: {}", complaint(body));
        }
        let nested =
            |levels: usize| format!("{{\"a\":{}1{}}}", "[".repeat(levels), "]".repeat(levels));
        assert!(RequestBody::parse(nested(MAX_DEPTH - 1).as_bytes()).is_ok());
        assert_eq!(
            RequestBody::parse(nested(MAX_DEPTH).as_bytes()).unwrap_err(),
            BodyError::TooDeep
        );
        // A million brackets use neither stack nor time.
        assert_eq!(
            RequestBody::parse(nested(1_000_000).as_bytes()).unwrap_err(),
            BodyError::TooDeep
        );
        // Brackets in strings do not count.
        assert!(
            RequestBody::parse(format!("{{\"a\":\"\\\"{}\"}}", "[".repeat(500)).as_bytes()).is_ok()
        );
    }

    #[test]
    fn halves_of_characters_are_read() {
        let body = RequestBody::parse(br#"{"a":"x\ud800y","b":"\u00e9\ud83d\ude42"}"#).unwrap();
        assert_eq!(body.object.text("b").unwrap(), "é🙂");
        assert!(body.object.text("a").unwrap().starts_with('x'));
    }

    // C3
    #[test]
    fn what_is_not_touched_stays() {
        let whole = "{ \"n\" : 1.0e+2,\n\"big\":123456789012345678901234567890, \"a\":[ ] , \"s\":\"\\u0041\" }\n";
        let body = RequestBody::parse(whole.as_bytes()).unwrap();
        let mut edits = BodyEdits::default();
        edits.append_field(&body, "z", "[1]");
        edits.append_to_string(&body.range_of(body.object.get("s").unwrap()), "\"é\n");
        edits.append_to_array(&body.range_of(body.object.get("a").unwrap()), true, "2");
        let expected = "{ \"n\" : 1.0e+2,\n\"big\":123456789012345678901234567890, \"a\":[ 2] , \"s\":\"\\u0041\\\"é\\n\" ,\"z\":[1]}\n";
        assert_eq!(edits.apply(whole), expected);
        assert_eq!(BodyEdits::default().apply(whole), whole);
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = RequestBody::parse(&bytes);
        }

        #[test]
        fn a_text_that_is_put_in_is_read_again(before in ".*", added in ".*") {
            let whole = format!("{{\"s\":{}}}", json_string(&before));
            let body = RequestBody::parse(whole.as_bytes()).unwrap();
            let mut edits = BodyEdits::default();
            edits.append_to_string(&body.range_of(body.object.get("s").unwrap()), &added);
            let changed = edits.apply(&whole);
            let body = RequestBody::parse(changed.as_bytes()).unwrap();
            prop_assert_eq!(body.object.text("s").unwrap(), format!("{before}{added}"));
        }
    }
}
