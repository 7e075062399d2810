//! Parsing of model output: the JSON object in a text, or the prose without its thinking.
//!
//! - A model wraps its object in thoughts, fences and phrases, and breaks it when it is cut off.
//! - A valid object is returned unchanged; a repaired one says so.
//! - No input causes a panic or a long run.

use std::borrow::Cow;

use serde_json::Value;

/// The longest text that is parsed.
pub const MAX_REPLY_BYTES: usize = 1 << 20;
/// The deepest nesting that is repaired; the JSON parser has a limit of its own (128).
const MAX_REPAIR_DEPTH: usize = 64;
/// The most candidates, and the most unmatched brackets, of a text.
const MAX_CANDIDATES: usize = 4096;
const MAX_UNMATCHED_BRACKETS: usize = 32;
const THINK_TAGS: [(&str, bool); 4] =
    [("<think>", true), ("</think>", false), ("<thinking>", true), ("</thinking>", false)];

/// A JSON object in a model's text.
#[derive(Debug, Clone, PartialEq)]
pub struct JsonReply {
    pub value: Value,
    /// Whether it was repaired, so that parts may be missing or guessed.
    pub repaired: bool,
}

/// The JSON object in `text`, if any: the last complete one, else the longest incomplete one,
/// repaired.
pub fn json_object(text: &str) -> Option<JsonReply> {
    if text.len() > MAX_REPLY_BYTES {
        return None;
    }
    // A complete object may mention think tags in its strings, so it is tried before any text is
    // removed.
    if let Some(value) = parse_object(text.trim()) {
        return Some(JsonReply { value, repaired: false });
    }
    let spoken = without_thinking(text);
    let pieces = bracketed_parts(&spoken);
    if let Some(value) = pieces.iter().rev().find_map(|piece| parse_object(piece)) {
        return Some(JsonReply { value, repaired: false });
    }
    let mut broken = pieces;
    broken.sort_by_key(|piece| std::cmp::Reverse(piece.len()));
    // The longest few: each costs a pass, and the answer is never the shortest piece.
    let value = broken.into_iter().take(4).find_map(repair_object)?;
    Some(JsonReply { value, repaired: true })
}

/// The text without the model's thinking. Text before a lone closing tag is thinking too (the
/// opening tag was part of the prompt), and so is all text after an unclosed opening tag.
pub fn without_thinking(text: &str) -> Cow<'_, str> {
    let (mut kept, mut from, mut thinking, mut seen) = (String::new(), 0, false, false);
    for (at, _) in text.match_indices('<') {
        let Some((opens, length)) = think_tag(&text.as_bytes()[at..]) else { continue };
        if !thinking && (opens || seen) {
            kept.push_str(&text[from..at]);
        }
        (thinking, seen, from) = (opens, true, at + length);
    }
    if !seen {
        return Cow::Borrowed(text);
    }
    if !thinking {
        kept.push_str(&text[from..]);
    }
    Cow::Owned(kept)
}

/// The think tag at the start of a text: whether it opens, and its length.
fn think_tag(text: &[u8]) -> Option<(bool, usize)> {
    let found = THINK_TAGS.into_iter().find(|(tag, _)| {
        text.get(..tag.len()).is_some_and(|start| start.eq_ignore_ascii_case(tag.as_bytes()))
    });
    found.map(|(tag, opens)| (opens, tag.len()))
}

/// The value as it is: an object, or an array with one object, as some models wrap it.
fn parse_object(text: &str) -> Option<Value> {
    if !text.starts_with(['{', '[']) {
        return None;
    }
    single_object(serde_json::from_str(text).ok()?)
}

fn single_object(value: Value) -> Option<Value> {
    match value {
        Value::Object(object) if !object.is_empty() => Some(Value::Object(object)),
        Value::Array(mut items) if items.len() == 1 => {
            items.pop().filter(Value::is_object).and_then(single_object)
        }
        _ => None,
    }
}

/// The outermost bracketed parts of a text, in order. The last one may be incomplete: the small
/// objects within a cut-off reply are not the reply.
fn bracketed_parts(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let (mut at, mut lone) = (0, 0);
    while let Some(step) = text[at..].find(['{', '[']) {
        let start = at + step;
        match bracketed_len(&text[start..]) {
            Some(length) => {
                found.push(&text[start..start + length]);
                at = start + length;
            }
            None if text[start..].starts_with('{')
                || text[start + 1..].trim_start().starts_with('{') =>
            {
                found.push(&text[start..]);
                break;
            }
            // A bracket in prose; each costs a pass over the rest.
            None => (at, lone) = (start + 1, lone + 1),
        }
        if found.len() >= MAX_CANDIDATES || lone >= MAX_UNMATCHED_BRACKETS {
            break;
        }
    }
    found
}

/// The length of the bracketed part at the start of `text`; brackets in strings do not count.
fn bracketed_len(text: &str) -> Option<usize> {
    let (mut depth, mut quoted, mut escaped) = (0_usize, false, false);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b'{' | b'[' if !quoted => depth += 1,
            b'}' | b']' if !quoted => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return Some(at + 1);
                }
            }
            _ => {}
        }
    }
    None
}

/// The repaired object, up to its last brace or else all of it.
fn repair_object(piece: &str) -> Option<Value> {
    let upto = piece.rfind('}').map(|end| &piece[..=end]);
    [upto, Some(piece)]
        .into_iter()
        .flatten()
        .filter(|text| max_depth(text) <= MAX_REPAIR_DEPTH)
        .find_map(|text| {
            let repaired = jsonrepair_rs::jsonrepair(text).ok()?;
            single_object(serde_json::from_str(&repaired).ok()?)
        })
}

/// The deepest nesting that a parser could see. Brackets in strings count too: in broken JSON the
/// strings are unknown.
fn max_depth(text: &str) -> usize {
    let (mut now, mut most) = (0_usize, 0);
    for byte in text.bytes() {
        match byte {
            b'{' | b'[' => now += 1,
            b'}' | b']' => now = now.saturating_sub(1),
            _ => {}
        }
        most = most.max(now);
    }
    most
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn check(text: &str, expected: Option<(Value, bool)>) {
        let found = json_object(text).map(|read| (read.value, read.repaired));
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn an_object_is_found_whatever_stands_around_it() {
        let a = || Some((json!({"a": 1}), false));
        check("{\"a\": 1}", a());
        check("  {\"a\": 1}\n", a());
        check("```json\n{\"a\": 1}\n```", a());
        check("Sure! Here it is:\n```\n{\"a\": 1}\n```\nAnything else?", a());
        check("<think>{\"b\": 2} or so</think>{\"a\": 1}", a());
        check("<THINK>hm</THINK>\n\n{\"a\": 1}", a());
        check("the prompt opened it {\"b\": 2}</think>{\"a\": 1}", a());
        check("<thinking>a</thinking><thinking>b</thinking>{\"a\": 1}", a());
        check("Fill {name} in: {\"a\": 1}", a());
        check("See [1] and [x. Then {\"a\": 1}", a());
        check("{\"draft\": 1} – no, better: {\"a\": 1}", a());
        check("[{\"a\": 1}]", a());
        check("{\"a\": \"} <think> ``` {\"}", Some((json!({"a": "} <think> ``` {"}), false)));
        check("é{\"a\": \"ß\\\"}\"}é", Some((json!({"a": "ß\"}"}), false)));
    }

    #[test]
    fn a_broken_object_is_mended_and_marked() {
        let a = || Some((json!({"a": 1}), true));
        check("{'a': 1}", a());
        check("{\"a\": 1,}", a());
        check("{a: 1}", a());
        check("{\"a\": 1", a());
        check("```json\n{\"a\": 1,}\n```", a());
        check("{\"a\": \"one\ntwo\"}", Some((json!({"a": "one\ntwo"}), true)));
        check("{\"x\": [{\"a\": 1}, {\"b\": 2}", Some((json!({"x": [{"a": 1}, {"b": 2}]}), true)));
        check("{\"x\": \"cut in the mid", Some((json!({"x": "cut in the mid"}), true)));
    }

    #[test]
    fn where_there_is_no_object_none_is_made_up() {
        for text in [
            "",
            "no",
            "{}",
            "[]",
            "[1, 2]",
            "[{\"a\": 1}, {\"b\": 2}]",
            "7",
            "\"x\"",
            "<think>{\"a\": 1}",
            "<html></html>",
        ] {
            check(text, None);
        }
    }

    #[test]
    fn bombs_are_refused() {
        for open in ["{\"a\":", "[", "{", "{\"a\":[", "{'a':["] {
            check(&open.repeat(100_000), None);
        }
        check(&format!("{{\"a\": \"{}\"}}", "x".repeat(MAX_REPLY_BYTES)), None);
        let _ = json_object(&"{} ".repeat(300_000));
        let _ = json_object(&"[ ".repeat(500_000));
        let _ = json_object(&"<think></think>".repeat(60_000));
        let _ = json_object(&"</think>".repeat(120_000));
        let _ = json_object(&"{\"a\": 'b\", ".repeat(80_000));
    }

    #[test]
    fn prose_loses_its_thinking_only() {
        for (text, left) in [
            ("plain", "plain"),
            ("<think>a</think>b", "b"),
            ("x <think>a</think>b", "x b"),
            ("a</think>b", "b"),
            ("b<think>cut", "b"),
            ("<thinking>a</thinking><think>c</think>b", "b"),
            ("<think>a</think>b</think>c", "bc"),
            ("a < b", "a < b"),
        ] {
            assert_eq!(without_thinking(text), left, "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "(\\PC|[{}\\[\\]\",:'\\\\ntf0-9<>/`\u{e9}]|<think>|</think>|```json\n){0,80}") {
            if let Some(read) = json_object(&text) {
                prop_assert!(read.value.is_object());
            }
        }

        #[test]
        fn a_whole_object_comes_back_as_it_was(key in "\\PC{1,8}", value in "\\PC{0,40}", before in "[a-z .]{0,20}", fence: bool) {
            let object = json!({key: value});
            let text = if fence { format!("{before}\n```json\n{object}\n```\n") } else { format!("{before}{object}") };
            let spoken_of_thinking = text.to_lowercase().contains("think");
            let expected = Some(JsonReply { value: object, repaired: false });
            let found = json_object(&text);
            prop_assert!(spoken_of_thinking || found == expected, "{text} became {found:?}");
        }

        #[test]
        fn a_cut_object_never_becomes_one_of_its_parts(cut in 1_usize..60) {
            let object = "{\"title\": \"x\", \"items\": [{\"a\": 1}, {\"a\": 2}], \"end\": {\"a\": 3}}";
            let cut = &object[..cut.min(object.len() - 1)];
            if let Some(read) = json_object(cut) {
                prop_assert!(read.repaired && read.value.get("a").is_none(), "{cut} became {}", read.value);
            }
        }
    }
}
