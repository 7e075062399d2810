//! Removes forgotten words from JSON; every other byte stays unchanged.

use super::Needles;

/// The JSON without the forgotten words, and the number of changed strings; `None` if it contains
/// none of them, or is not JSON. Top-level field names stay, because programs identify their files
/// by them.
pub(super) fn scrub_json(text: &str, needles: &Needles) -> Option<(String, usize)> {
    scrub_value(text, needles, 0)
}

/// Whether a text is one JSON value.
pub(super) fn is_json(text: &str) -> bool {
    serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok()
}

/// The maximum depth of JSON nested in strings of JSON.
const MAX_DEPTH: usize = 8;

/// Fields with values from a fixed list, which are not a person's words.
const ENUM_FIELDS: &[&str] = &[
    "role", "type", "kind", "origin", "trust", "state", "depth", "job", "mark", "tier", "status",
    "act", "priority", "made_by",
];

fn scrub_value(text: &str, needles: &Needles, nested: usize) -> Option<(String, usize)> {
    if nested > MAX_DEPTH || !is_json(text) {
        return None;
    }
    let bytes = text.as_bytes();
    let (mut out, mut changed, mut copied) = (String::new(), 0, 0);
    let (mut depth, mut name) = (nested, String::new());
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            b'"' => {
                let end = string_end(bytes, at);
                let token = &text[at..end];
                let is_name =
                    bytes[end..].iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b':');
                let told: String = serde_json::from_str(token).unwrap_or_default();
                let stays = if is_name {
                    name.clone_from(&told);
                    depth <= 1
                } else {
                    is_generated_value(&told)
                        || (depth <= 1
                            && ENUM_FIELDS.contains(&name.as_str())
                            && !told.contains(' '))
                };
                let inner = (!stays && !is_name && told.starts_with(['{', '[']))
                    .then(|| scrub_value(&told, needles, nested.max(1) + 1))
                    .flatten();
                let new = if stays {
                    None
                } else {
                    inner.or_else(|| {
                        needles.redact(&told).map(|redacted| (redacted.text, redacted.lines))
                    })
                };
                if let Some((new, _)) = new {
                    out.push_str(&text[copied..at]);
                    out.push_str(&serde_json::to_string(&new).unwrap_or_default());
                    copied = end;
                    changed += 1;
                }
                at = end;
                continue;
            }
            b'0'..=b'9' | b'-' => {
                let length = bytes[at..]
                    .iter()
                    .take_while(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(byte))
                    .count();
                if depth > 1 && needles.is_contained_in(&text[at..at + length]) {
                    out.push_str(&text[copied..at]);
                    out.push_str("null");
                    copied = at + length;
                    changed += 1;
                }
                at += length;
                continue;
            }
            _ => {}
        }
        at += 1;
    }
    (changed > 0).then(|| {
        out.push_str(&text[copied..]);
        (out, changed)
    })
}

/// The end of the string that begins at `at`, including its closing quote.
fn string_end(bytes: &[u8], at: usize) -> usize {
    let mut end = at + 1;
    while end < bytes.len() {
        match bytes[end] {
            b'\\' => end += 2,
            b'"' => return end + 1,
            _ => end += 1,
        }
    }
    bytes.len()
}

/// Generated times, days and ids: the numbers in them are not a person's words.
fn is_generated_value(told: &str) -> bool {
    let fits = (7..=40).contains(&told.len()) && told.is_ascii() && !told.contains(' ');
    fits && (told.parse::<crate::id::EventId>().is_ok()
        || told.parse::<crate::summary::Period>().is_ok()
        || crate::calendar::Moment::parse(told).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(text: &str, becomes: Option<&str>) {
        let needles = Needles::from_texts(&["launch code", "4711"]);
        assert_eq!(scrub_json(text, &needles).map(|(text, _)| text).as_deref(), becomes, "{text}");
    }

    #[test]
    fn only_texts_with_the_words_change() {
        check(r#"{"a":"nothing"}"#, None);
        check("no json, launch code", None);
        check(r#"{ "a" : "the Launch  code",  "b":1}"#, Some(r#"{ "a" : "[forgotten]",  "b":1}"#));
        check(
            r#"{"a":"one\nlaunch code is 7\nthree"}"#,
            Some(r#"{"a":"one\n[forgotten]\nthree"}"#),
        );
        check(r#"{"a":["x","launch\u0020code"]}"#, Some(r#"{"a":["x","[forgotten]"]}"#));
        // JSON within a string stays valid JSON.
        check(
            r#"{"a":"{\"b\":\"launch code\",\"c\":2}"}"#,
            Some(r#"{"a":"{\"b\":\"[forgotten]\",\"c\":2}"}"#),
        );
        // Top-level names belong to the program; nested ones may be data.
        check(r#"{"launch code":1}"#, None);
        check(
            r#"{"a":{"launch code":1,"n":4711,"m":47110}}"#,
            Some(r#"{"a":{"[forgotten]":1,"n":null,"m":47110}}"#),
        );
        check(r#"{"turn":4711,"ts":"4711-01-01T00:00:00Z","id":"EVT-47110101-001"}"#, None);
    }

    fn value() -> impl Strategy<Value = serde_json::Value> {
        let leaf = prop_oneof![
            Just(serde_json::Value::Null),
            any::<i32>().prop_map(serde_json::Value::from),
            "[a-z \"\\\\\n]{0,10}".prop_map(serde_json::Value::from),
            "[a-z \"\\\\\n]{0,4} launch code [a-z\n]{0,4}".prop_map(serde_json::Value::from),
        ];
        leaf.prop_recursive(4, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(serde_json::Value::from),
                prop::collection::btree_map("[a-z]{0,4}|launch code", inner, 0..4)
                    .prop_map(|map| serde_json::Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_was_json_is_json_and_the_words_are_gone(value in value()) {
            let text = serde_json::json!({ "top": value }).to_string();
            let needles = Needles::from_texts(&["launch code"]);
            match scrub_json(&text, &needles) {
                None => prop_assert!(!needles.is_contained_in(&text), "{}", text),
                Some((scrubbed, _)) => {
                    prop_assert!(is_json(&scrubbed));
                    prop_assert!(!needles.is_contained_in(&scrubbed), "{}", scrubbed);
                    prop_assert!(scrub_json(&scrubbed, &needles).is_none());
                }
            }
        }
    }
}
