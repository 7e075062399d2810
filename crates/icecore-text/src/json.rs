//! Lenient JSON parsing. JavaScript programs truncate strings inside an emoji and then write half
//! of a surrogate pair (`"\ud83d"`), which is not a character. All foreign JSON is parsed here, so
//! that the rest of the text is not lost.

use std::borrow::Cow;

use serde::de::DeserializeOwned;

/// The length of `\uXXXX`.
const ESCAPE_BYTES: usize = 6;

/// Parses a JSON value; an unpaired surrogate becomes U+FFFD.
pub fn parse<T: DeserializeOwned>(json: &str) -> serde_json::Result<T> {
    serde_json::from_str(&replace_unpaired(json))
}

/// Replaces every escape of an unpaired surrogate by that of U+FFFD. Backslashes occur only in
/// strings, so no JSON parser is needed.
pub fn replace_unpaired(json: &str) -> Cow<'_, str> {
    let bytes = json.as_bytes();
    let (mut out, mut copied, mut at) = (String::new(), 0, 0);
    while let Some(found) = memchr::memchr(b'\\', bytes.get(at..).unwrap_or_default()) {
        at += found;
        match (surrogate_half(bytes, at), surrogate_half(bytes, at + ESCAPE_BYTES)) {
            (Some(SurrogateHalf::High), Some(SurrogateHalf::Low)) => at += 2 * ESCAPE_BYTES,
            (Some(_), _) => {
                out.push_str(&json[copied..at]);
                out.push_str("\\ufffd");
                at += ESCAPE_BYTES;
                copied = at;
            }
            // The escaped character cannot begin another escape.
            (None, _) => at += 2,
        }
    }
    if out.is_empty() {
        return Cow::Borrowed(json);
    }
    out.push_str(&json[copied..]);
    Cow::Owned(out)
}

enum SurrogateHalf {
    High,
    Low,
}

/// The half of a surrogate pair whose escape begins at `at`.
fn surrogate_half(bytes: &[u8], at: usize) -> Option<SurrogateHalf> {
    let escape = bytes.get(at..at + ESCAPE_BYTES)?;
    let [b'\\', b'u', b'd' | b'D', second, third, fourth] = escape else { return None };
    if !third.is_ascii_hexdigit() || !fourth.is_ascii_hexdigit() {
        return None;
    }
    match second {
        b'8' | b'9' | b'a' | b'b' | b'A' | b'B' => Some(SurrogateHalf::High),
        b'c'..=b'f' | b'C'..=b'F' => Some(SurrogateHalf::Low),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::Value;

    #[test]
    fn an_unpaired_surrogate_is_a_replacement_character() {
        for (json, text) in [
            (r#""plain""#, "plain"),
            (r#""\ud83d\ude00""#, "😀"),
            (r#""\uD83D\uDE00 \u00e9""#, "😀 é"),
            (r#""cut \ud83d""#, "cut \u{fffd}"),
            (r#""cut \ud83d end""#, "cut \u{fffd} end"),
            (r#""\ude00 low""#, "\u{fffd} low"),
            (r#""\ude00\ud83d turned""#, "\u{fffd}\u{fffd} turned"),
            (r#""\ud83d\ud83d\ude00""#, "\u{fffd}😀"),
            (r#""\ud83d\n""#, "\u{fffd}\n"),
            (r#""\\ud83d is a backslash""#, "\\ud83d is a backslash"),
            (r#""\\\ud83d""#, "\\\u{fffd}"),
            (r#""\ud7ff\ue000""#, "\u{d7ff}\u{e000}"),
        ] {
            assert_eq!(parse::<Value>(json).unwrap(), Value::from(text), "{json}");
        }
        assert_eq!(
            parse::<Value>(r#"{"\ud83d":["\ud83d"]}"#).unwrap(),
            serde_json::json!({ "\u{fffd}": ["\u{fffd}"] })
        );
        for broken in ["\"\\ud83", "\"\\u", "\"\\", "{\"a\":\"\\ud83d"] {
            assert!(parse::<Value>(broken).is_err(), "{broken}");
        }
    }

    proptest! {
        // Valid JSON keeps its value, and no text makes it fail.
        #[test]
        fn good_json_is_left_alone(text in any::<String>(), noise in "([\\\\\"ud83cDEF€]){0,30}") {
            let json = Value::from(text.as_str()).to_string();
            prop_assert_eq!(replace_unpaired(&json), json.as_str());
            replace_unpaired(&noise);
        }
    }
}
