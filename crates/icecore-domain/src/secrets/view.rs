//! Decoded views of a text: escapes decoded, invisible characters removed. A secret that contains
//! escapes is found in a view and hidden at its position in the source text.
//!
//! A view covers only the lines that need decoding, and maps every byte to its source position.

use std::ops::Range;

use super::marker::mark_over;
use crate::escapes;

/// How far a view extends around an escape, on its line.
const MAX_REACH_BYTES: usize = 1024;

/// A decoded stretch of a text.
pub(super) struct View {
    pub text: String,
    /// The source position of each byte of `text`, and the end.
    from: Vec<usize>,
}

impl View {
    /// The source range of a span of the view.
    pub fn source_range(&self, span: &Range<usize>) -> Range<usize> {
        self.from[span.start]..self.from[span.end]
    }
}

/// The views of the stretches of `text` with escapes or invisible characters.
pub(super) fn find_views(text: &str) -> Vec<View> {
    stretches_with_escapes(text).into_iter().map(|stretch| build_view(text, stretch)).collect()
}

/// The character that an escape at `at` encodes, and the escape's length; `None` for an invisible
/// character.
fn decode_escape(text: &str, at: usize) -> Option<(Option<char>, usize)> {
    let rest = &text[at..];
    match rest.as_bytes()[0] {
        b'\\' => {
            let slashes = rest.bytes().take_while(|byte| *byte == b'\\').count();
            let escaped = &rest[slashes..];
            match escaped.as_bytes().first()? {
                // A line break or a quotation mark within JSON.
                b'n' | b'r' => Some((Some('\n'), slashes + 1)),
                b'"' => Some((Some('"'), slashes + 1)),
                _ => escapes::decode_unicode(escaped)
                    .map(|(c, length)| (visible_char(c), slashes + length)),
            }
        }
        b'%' => escapes::decode_percent(rest).map(|(c, length)| (visible_char(c), length)),
        b'&' => escapes::decode_entity(rest).map(|(c, length)| (visible_char(c), length)),
        0xC2 | 0xE2 | 0xEF => {
            let c = rest.chars().next()?;
            escapes::is_invisible(c).then_some((None, c.len_utf8()))
        }
        _ => None,
    }
}

fn visible_char(c: char) -> Option<char> {
    if c.is_control() { Some('\n') } else { Some(c).filter(|c| !escapes::is_invisible(*c)) }
}

/// Iterates over the bytes that may begin an escape. ASCII and wide characters are searched
/// separately, each only once.
struct EscapeScanner<'a> {
    bytes: &'a [u8],
    ascii: Option<usize>,
    wide: Option<usize>,
}

impl<'a> EscapeScanner<'a> {
    fn from(bytes: &'a [u8], at: usize) -> Self {
        let mut triggers = Self { bytes, ascii: Some(at), wide: Some(at) };
        (triggers.ascii, triggers.wide) = (triggers.next_ascii(at), triggers.next_wide(at));
        triggers
    }

    fn next_ascii(&self, at: usize) -> Option<usize> {
        memchr::memchr3(b'\\', b'%', b'&', self.bytes.get(at..)?).map(|hit| at + hit)
    }

    fn next_wide(&self, at: usize) -> Option<usize> {
        memchr::memchr3(0xC2, 0xE2, 0xEF, self.bytes.get(at..)?).map(|hit| at + hit)
    }

    /// The first one at or after `at`.
    fn next_from(&mut self, at: usize) -> Option<usize> {
        if self.ascii.is_some_and(|hit| hit < at) {
            self.ascii = self.next_ascii(at);
        }
        if self.wide.is_some_and(|hit| hit < at) {
            self.wide = self.next_wide(at);
        }
        match (self.ascii, self.wide) {
            (Some(ascii), Some(wide)) => Some(ascii.min(wide)),
            (one, other) => one.or(other),
        }
    }
}

/// The lines around escapes, limited to the reach of a view, in order and disjoint.
fn stretches_with_escapes(text: &str) -> Vec<Range<usize>> {
    let bytes = text.as_bytes();
    let mut found: Vec<Range<usize>> = Vec::new();
    let (mut at, mut triggers) = (0, EscapeScanner::from(bytes, 0));
    while let Some(hit) = triggers.next_from(at) {
        let Some((_, length)) = decode_escape(text, hit) else {
            at = hit + text[hit..].chars().next().map_or(1, char::len_utf8);
            continue;
        };
        at = hit + length;
        let reach = text.floor_char_boundary(hit.saturating_sub(MAX_REACH_BYTES));
        // Half a mark would be taken for a keyword with its value.
        let reach = mark_over(bytes, reach).map_or(reach, |mark| mark.start);
        let start =
            memchr::memrchr(b'\n', &bytes[reach..hit]).map_or(reach, |line| reach + line + 1);
        let reach = text.ceil_char_boundary((at + MAX_REACH_BYTES).min(text.len()));
        let reach = mark_over(bytes, reach).map_or(reach, |mark| mark.end);
        // Include the next line: a value may be there.
        let mut lines = memchr::memchr_iter(b'\n', &bytes[at..reach]);
        let end = lines.nth(1).map_or(reach, |line| at + line);
        match found.last_mut().filter(|last| last.end >= start) {
            Some(last) => last.end = last.end.max(end),
            None => found.push(start..end),
        }
    }
    found
}

fn build_view(text: &str, stretch: Range<usize>) -> View {
    let mut view = View {
        text: String::with_capacity(stretch.len()),
        from: Vec::with_capacity(stretch.len() + 1),
    };
    let (mut at, mut triggers) =
        (stretch.start, EscapeScanner::from(&text.as_bytes()[..stretch.end], stretch.start));
    while at < stretch.end {
        let hit = triggers.next_from(at).unwrap_or(stretch.end);
        view.text.push_str(&text[at..hit]);
        view.from.extend(at..hit);
        at = hit;
        if at >= stretch.end {
            break;
        }
        let (c, length) = match decode_escape(text, at) {
            Some((c, length)) if at + length <= stretch.end => (c, length),
            _ => {
                let c = text[at..].chars().next();
                (c, c.map_or(1, char::len_utf8))
            }
        };
        if let Some(c) = c {
            view.text.push(c);
            view.from.extend(std::iter::repeat_n(at, c.len_utf8()));
        }
        at += length;
    }
    view.from.push(stretch.end);
    view
}
