//! Splits a text into the sentences a person wrote, without code, quotations, machine output and
//! bullets.

use icecore_text::markdown::{self, CodeFence};

/// Maximum distance from a quote to the ends of its sentence, in bytes.
const MAX_CONTEXT_BYTES: usize = 2_000;

/// A sentence and its position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sentence<'a> {
    /// Byte offset in the text.
    pub start: usize,
    /// The original words, without a bullet.
    pub text: &'a str,
    /// Whether it is a list item with an empty check box.
    pub open_box: bool,
}

impl Sentence<'_> {
    /// Whether the sentence is a question.
    pub fn is_question(&self) -> bool {
        is_question(self.text)
    }
}

/// Whether a sentence is a question.
pub(crate) fn is_question(text: &str) -> bool {
    text.trim_end_matches(|c: char| c.is_whitespace() || "\"'”’)*!".contains(c))
        .ends_with(['?', '？'])
}

/// The sentences of this text.
pub(crate) fn split_sentences(text: &str) -> Vec<Sentence<'_>> {
    let mut found = Vec::new();
    let mut fence = CodeFence::default();
    let mut start = 0;
    for raw in text.split_inclusive('\n') {
        let at = start;
        start += raw.len();
        let line = raw.trim();
        if fence.covers_indented_line(line) {
            continue;
        }
        if is_machine_output(raw.trim_end(), line) {
            continue;
        }
        let Some((item, open_box)) = strip_bullet(line) else { continue };
        // `item` is a suffix of `line`, and `line` a part of `raw`.
        let offset = at + (raw.len() - raw.trim_start().len()) + (line.len() - item.len());
        for (from, sentence) in split_line(item) {
            found.push(Sentence { start: offset + from, text: sentence, open_box });
        }
    }
    found
}

/// Whether a line was not written by a person: quotations, code, logs, diffs, tables, bare URLs.
fn is_machine_output(raw: &str, line: &str) -> bool {
    let first = line.chars().next();
    let second = line.chars().nth(1);
    let starts = |all: &[&str]| all.iter().any(|start| line.starts_with(start));
    let bare_sign =
        matches!(first, Some('+' | '-')) && second.is_some_and(|c| !c.is_whitespace() && c != '[');
    let address =
        !line.contains(char::is_whitespace) && (line.contains("://") || line.starts_with("www."));
    let indented = (raw.starts_with("    ") || raw.starts_with('\t'))
        && strip_bullet(line).is_some_and(|(item, _)| item.len() == line.len());
    let json = matches!(first, Some('{' | '}' | ']'))
        || starts(&["[{", "[\"", "[[", "\"}"])
        || (first == Some('"') && line.contains("\":"));
    line.is_empty()
        || indented
        || bare_sign
        || address
        || json
        || matches!(first, Some('>' | '|' | '<' | '#' | '$' | '@'))
        || starts(&[
            "diff --",
            "index ",
            "+++",
            "---",
            "@@",
            "Traceback",
            "File \"",
            "at ",
            "Caused by",
            "thread '",
            "panicked",
        ])
        || starts(&[
            "error:", "error[", "Error:", "ERROR", "warning:", "WARN", "INFO", "DEBUG", "FATAL",
            "http://", "https://", "//", "/*",
        ])
        || line.ends_with(['{', ';']) && line.contains(['(', '='])
        || has_timestamp(line)
}

/// Matches `2026-02-13T10:00:00Z INFO ...`, `[2026-02-13 10:00] ...`.
fn has_timestamp(line: &str) -> bool {
    let bytes = line.trim_start_matches(['[', '(']).as_bytes();
    let day = bytes.len() > 13
        && bytes[4] == b'-'
        && bytes[7] == b'-'
        && bytes[..4].iter().all(u8::is_ascii_digit);
    day && matches!(bytes[10], b'T' | b' ')
        && bytes[11].is_ascii_digit()
        && bytes[12].is_ascii_digit()
        && bytes[13] == b':'
}

/// A line without its bullet, check box and log time; `None` if its box is checked.
fn strip_bullet(line: &str) -> Option<(&str, bool)> {
    let bullet = markdown::bullet(line);
    let rest = bullet.map_or(line, |bullet| bullet.text);
    if ["[x]", "[X]", "[-]"].iter().any(|tick| rest.starts_with(tick)) {
        return None;
    }
    let (rest, open_box) = match rest.strip_prefix("[ ]") {
        Some(rest) => (rest.trim_start(), true),
        None => (rest, false),
    };
    let clock = rest.as_bytes();
    let timed = bullet.is_some()
        && clock.len() > 6
        && clock[2] == b':'
        && clock[5] == b' '
        && [0, 1, 3, 4].iter().all(|&at| clock[at].is_ascii_digit());
    Some((if timed { rest[6..].trim_start() } else { rest }, open_box))
}

/// Words whose period does not end a sentence.
#[rustfmt::skip]
const ABBREVIATIONS: &[&str] = &[
    "e.g", "i.e", "mr", "mrs", "ms", "dr", "prof", "st", "no", "nr", "vs", "approx", "ca", "z.b", "bzw", "d.h", "u.a", "inc", "ltd",
    "etc", "evtl", "inkl", "ggf",
];

/// Splits a line after a period, question mark or exclamation mark followed by a space.
fn split_line(line: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut from = 0;
    let mut push = |from: usize, to: usize| {
        let part = &line[from..to];
        let text = part.trim();
        if !text.is_empty() {
            found.push((from + part.len() - part.trim_start().len(), text));
        }
    };
    let mut chars = line.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        // A TODO is a sentence of its own, wherever it is in a line.
        if c == ';' && line[at + 1..].trim_start().starts_with("TODO") {
            push(from, at);
            from = at + 1;
            continue;
        }
        if !matches!(c, '.' | '!' | '?' | '。' | '？' | '！') {
            continue;
        }
        let mut end = at + c.len_utf8();
        while let Some((next, closing)) = chars.next_if(|(_, c)| ".!?\"'”’)*_".contains(*c)) {
            end = next + closing.len_utf8();
        }
        let wide = matches!(c, '。' | '？' | '！');
        let ends = wide || chars.peek().is_none_or(|(_, c)| c.is_whitespace());
        if ends && !(c == '.' && is_abbreviation_end(&line[from..at], &line[end..])) {
            push(from, end);
            from = end;
        }
    }
    push(from, line.len());
    found
}

/// Whether a period belongs to the word before it: an abbreviation, an initial, the day of a German
/// date.
fn is_abbreviation_end(before: &str, after: &str) -> bool {
    let word = before
        .rsplit(char::is_whitespace)
        .next()
        .unwrap_or_default()
        .trim_start_matches(['(', '"', '[']);
    let next = after.trim_start();
    let initial = word.chars().count() == 1 && word.chars().all(char::is_uppercase) && word != "I";
    let counted =
        !word.is_empty() && word.len() <= 2 && word.bytes().all(|byte| byte.is_ascii_digit());
    let month = next.split_whitespace().next().is_some_and(super::due_dates::is_month);
    ABBREVIATIONS.contains(&word.to_lowercase().as_str())
        || (initial && next.starts_with(char::is_uppercase))
        || (counted && month)
}

/// The whole sentence, within its line, that contains this range of the text.
pub(crate) fn enclosing_sentence(text: &str, span: std::ops::Range<usize>) -> &str {
    let (Some(before), Some(after)) = (text.get(..span.start), text.get(span.end..)) else {
        return text;
    };
    let reach = (
        text.floor_char_boundary(span.start.saturating_sub(MAX_CONTEXT_BYTES)),
        text.ceil_char_boundary(span.end.saturating_add(MAX_CONTEXT_BYTES)),
    );
    let line_start = before[reach.0..].rfind('\n').map_or(reach.0, |at| reach.0 + at + 1);
    let line_end = after[..reach.1 - span.end].find('\n').map_or(reach.1, |at| span.end + at);
    let line = &text[line_start..line_end];
    // A quote over several lines is returned as it is.
    if text[span.clone()].trim().contains('\n') {
        return line;
    }
    let parts = split_line(line);
    let touched = |from: usize, part: &str| {
        from + line_start < span.end && from + line_start + part.len() > span.start
    };
    let mut all = parts.iter().filter(|(from, part)| touched(*from, part));
    let Some((first, part)) = all.next() else { return line };
    let last = all.next_back().map_or(first + part.len(), |(from, part)| from + part.len());
    line.get(*first..last).unwrap_or(line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(text: &str, found: &[&str]) {
        let all = split_sentences(text);
        assert_eq!(all.iter().map(|sentence| sentence.text).collect::<Vec<_>>(), found, "{text:?}");
    }

    // L13
    #[test]
    fn a_text_is_read_sentence_by_sentence() {
        check("One. Two! Three? Four", &["One.", "Two!", "Three?", "Four"]);
        check(
            "- one\n* two. three\n1. four\n- 14:02 five\n",
            &["one", "two.", "three", "four", "five"],
        );
        check(
            "Use v1.2.3, e.g. for J. Smith. Am 15. März ist Schluss.",
            &["Use v1.2.3, e.g. for J. Smith.", "Am 15. März ist Schluss."],
        );
        check("He said \"stop.\" Then left...", &["He said \"stop.\"", "Then left..."]);
        check("- [ ] open\n- [x] done", &["open"]);
        assert!(split_sentences("- [ ] open")[0].open_box);
    }

    // L13
    #[test]
    fn what_nobody_said_is_passed_over() {
        check("```\nWe decided.\n```\nafter", &["after"]);
        check(
            "> We decided\n| a | b |\nhttps://x.y/z\n{\"a\": 1}\n+added\n-removed\n@@ -1 +1 @@",
            &[],
        );
        check(
            "Traceback (most recent call last):\n  File \"a.py\", line 1\nERROR never do that\n    indented code",
            &[],
        );
        check(
            "2026-02-13T10:00:00Z INFO always on\n[2026-02-13 10:00:01] must\nlet x = must(never);",
            &[],
        );
        check("# Never deploy", &[]);
    }

    #[test]
    fn the_sentence_around_some_words_is_whole() {
        let text = "First. Never deploy on Fridays! Last.\nNext line";
        let at = text.find("deploy").unwrap();
        assert_eq!(enclosing_sentence(text, at..at + 6), "Never deploy on Fridays!");
        let at = text.find("First").unwrap();
        assert_eq!(enclosing_sentence(text, at..at + 12), "First. Never deploy on Fridays!");
    }

    proptest! {
        #[test]
        fn every_sentence_stands_where_it_says(text in "([-*>#`\\[\\] .!?a-zA-Z0-9äé。\n\t]|\\PC){0,80}") {
            for sentence in split_sentences(&text) {
                let end = sentence.start + sentence.text.len();
                prop_assert_eq!(&text[sentence.start..end], sentence.text);
                prop_assert!(enclosing_sentence(&text, sentence.start..end).contains(sentence.text));
            }
        }
    }
}
