//! Size budgets: measuring texts and cutting them to fit.
//!
//! Bytes are exact. Tokens are estimated identically on every machine, without a tokenizer: four
//! bytes of ASCII per token, and one token for every other character. That overestimates, which is
//! safe for scripts that cost more.

use std::borrow::Cow;

use serde::Serialize;

/// Estimates how many tokens a model makes of this text.
pub fn estimate_tokens(text: &str) -> usize {
    let ascii = text.bytes().filter(u8::is_ascii).count();
    let other = text.chars().count() - ascii;
    ascii.div_ceil(4) + other
}

/// An upper bound for the tokens of this text, for any kind of text: ids, dates and code cost more
/// than prose.
pub fn tokens_upper_bound(text: &str) -> usize {
    let (mut letters, mut others, mut foreign) = (0_usize, 0_usize, 0_usize);
    for c in text.chars() {
        match c {
            'a'..='z' | 'A'..='Z' | ' ' => letters += 1,
            c if c.is_ascii() => others += 1,
            _ => foreign += 1,
        }
    }
    letters.div_ceil(4) + others.div_ceil(2) + foreign * 3 / 2
}

/// Counts the words, separated by white space.
pub fn count_words(text: &str) -> usize {
    text.split_whitespace().count()
}

/// Something that was omitted, and why. Nothing is dropped without such a note.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Omission {
    pub what: String,
    pub why: String,
}

impl Omission {
    /// Builds a note that `what` was omitted because of `why`.
    pub fn new(what: impl Into<String>, why: impl Into<String>) -> Self {
        Self { what: what.into(), why: why.into() }
    }
}

/// The longest prefix of whole lines that fits, and the number of remaining non-empty lines.
pub fn fitting_lines(text: &str, fits: impl Fn(&str) -> bool) -> (&str, usize) {
    if fits(text) {
        return (text, 0);
    }
    // Binary search for the longest prefix of whole lines that fits.
    let ends: Vec<usize> = text.match_indices('\n').map(|(at, _)| at + 1).collect();
    let (mut low, mut high) = (0, ends.len());
    while low < high {
        let middle = (low + high).div_ceil(2);
        if fits(&text[..ends[middle - 1]]) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    let end = if low == 0 { 0 } else { ends[low - 1] };
    (&text[..end], text[end..].lines().filter(|line| !line.trim().is_empty()).count())
}

/// Cuts the text at a word boundary to at most `bytes` bytes and appends `...` if anything is
/// missing.
pub fn truncate_at_word(text: &str, bytes: usize) -> String {
    if text.len() <= bytes {
        return text.to_owned();
    }
    let room = bytes.saturating_sub(3);
    let mut end = text.floor_char_boundary(room);
    if let Some(blank) = text[..end].rfind(char::is_whitespace)
        && blank * 2 > end
    {
        end = blank;
    }
    let kept = text[..end].trim_end();
    if bytes < 3 { kept.to_owned() } else { format!("{kept}...") }
}

/// Cuts JSON to at most `bytes` bytes. Long strings are shortened and say how many bytes are
/// missing. If that is not enough, one string that says so replaces the whole value. The structure
/// of everything else is preserved.
pub fn truncate_json(raw: &str, bytes: usize) -> Cow<'_, str> {
    if raw.len() <= bytes {
        return Cow::Borrowed(raw);
    }
    let mut most = bytes / 2;
    while most >= 64 {
        let cut = truncate_json_strings(raw, most);
        if cut.len() <= bytes {
            return Cow::Owned(cut);
        }
        most /= 4;
    }
    Cow::Owned(format!("\"[{} bytes of JSON left out]\"", raw.len()))
}

/// Shortens every string in the JSON text to about `most` bytes.
fn truncate_json_strings(raw: &str, most: usize) -> String {
    let mut out = String::with_capacity(most);
    let mut from = 0;
    while let Some(open) = memchr::memchr(b'"', &raw.as_bytes()[from..]).map(|at| from + at + 1) {
        let (mut end, mut cut) = (open, None);
        // Steps by character, so that neither an escape nor a surrogate pair is split.
        while let Some(byte) = raw.as_bytes().get(end).filter(|byte| **byte != b'"') {
            let length = match (byte, raw.as_bytes().get(end + 1)) {
                (b'\\', Some(b'u')) => {
                    let is_first_half =
                        raw.as_bytes().get(end + 2..end + 4).is_some_and(is_high_surrogate);
                    if is_first_half { 12 } else { 6 }
                }
                (b'\\', _) => 2,
                _ => 1,
            };
            if end - open + length > most && raw.is_char_boundary(end) {
                cut = cut.or(Some(end));
            }
            end = (end + length).min(raw.len());
        }
        out.push_str(&raw[from..cut.unwrap_or(end)]);
        if let Some(cut) = cut {
            out.push_str(&format!(" … [{} more bytes left out]", end - cut));
        }
        out.push('"');
        from = (end + 1).min(raw.len());
    }
    out.push_str(&raw[from..]);
    out
}

fn is_high_surrogate(hex: &[u8]) -> bool {
    matches!(hex, [b'd' | b'D', b'8' | b'9' | b'a' | b'b' | b'A' | b'B'])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(text: &str, bytes: usize, kept: &str) {
        assert_eq!(fitting_lines(text, |text| text.len() <= bytes).0, kept, "{text:?} in {bytes}");
    }

    // P7
    #[test]
    fn a_cut_keeps_whole_lines() {
        check("one\ntwo\n", 7, "one\n");
        check("one\ntwo\n", 8, "one\ntwo\n");
        check("one\ntwo", 7, "one\ntwo");
        check("one\ntwo", 6, "one\n");
        check("h\u{e9}\u{e9}\nx\n", 2, "");
        check("", 0, "");
    }

    #[test]
    fn tokens_are_estimated_on_the_safe_side() {
        assert_eq!(estimate_tokens("four"), 1);
        assert_eq!(estimate_tokens("fours"), 2);
        assert_eq!(estimate_tokens("\u{6771}\u{4eac}"), 2);
    }

    // C8
    #[test]
    fn json_that_is_too_long_loses_only_the_ends_of_its_long_texts() {
        let long = "é\\n\\ud83d\\ude00".repeat(40);
        let raw = format!(
            "{{\"id\": \"call_1\" , \"n\":12345678901234567890123,\"list\":[\"{long}\",\"short \\\"q\\\"\"]}}"
        );
        assert_eq!(truncate_json(&raw, raw.len()), raw);
        let cut = truncate_json(&raw, 300);
        let read: serde_json::Value = serde_json::from_str(&cut).unwrap();
        assert!(
            cut.len() <= 300
                && cut.contains("\"n\":12345678901234567890123")
                && cut.starts_with("{\"id\": \"call_1\" ,"),
            "{cut}"
        );
        assert_eq!((&read["id"], &read["list"][1]), (&"call_1".into(), &"short \"q\"".into()));
        assert!(read["list"][0].as_str().unwrap().contains(" more bytes left out]"), "{cut}");
        let numbers = format!("[{}1]", "1,".repeat(400));
        assert_eq!(truncate_json(&numbers, 300), "\"[803 bytes of JSON left out]\"");
    }

    proptest! {
        #[test]
        fn json_cut_short_is_json(texts in prop::collection::vec("\\PC{0,200}|[\\x00-\\x1f\\\\\"]{0,80}", 0..8), bytes in 64_usize..600) {
            let raw = serde_json::to_string(&texts).unwrap();
            let cut = truncate_json(&raw, bytes);
            prop_assert!(cut.len() <= bytes);
            prop_assert!(serde_json::from_str::<serde_json::Value>(&cut).is_ok(), "{}", cut);
            let ascii: String = raw.chars().map(|c| if c.is_ascii() { c.to_string() } else { let mut two = [0; 2]; c.encode_utf16(&mut two).iter().map(|unit| format!("\\u{unit:04x}")).collect() }).collect();
            prop_assert!(serde_json::from_str::<serde_json::Value>(&truncate_json(&ascii, bytes)).is_ok());
        }

        // P7
        #[test]
        fn no_cut_is_too_long_or_inside_a_character(text in "(?s).{0,200}", bytes in 0_usize..220) {
            let (kept, _) = fitting_lines(&text, |text| text.len() <= bytes);
            prop_assert!(kept.len() <= bytes && text.starts_with(kept));
            let short = truncate_at_word(&text, bytes);
            prop_assert!(short.len() <= bytes, "{} > {bytes}", short.len());
        }
    }
}
