//! The question that most short texts answer with no: can a rule of the secret filter apply at all?
//!
//! The answer comes from tables that the compiler computes from `formats.txt` and `words.txt`. A
//! process that stores one harmless sentence then never parses the rules.

use super::rules::fold_byte;

const SLOTS_LOG2: u32 = 15;
const MAX_ANCHORS: usize = 512;
const MAX_TEXT_BYTES: usize = 8 * 1024;
/// A text with more stops is left to the rules, which find the anchor of a stop faster.
const MAX_STOPS: usize = 16;

/// The anchors that an ASCII text can contain.
struct AsciiAnchors {
    /// A bit for each three folded bytes at which the scan may stop.
    stops: [u64; 1 << (SLOTS_LOG2 - 6)],
    /// For each anchor where its text begins in `text`, its length, and the offset of its stop.
    anchors: [(usize, usize, usize); MAX_ANCHORS],
    count: usize,
    text: [u8; MAX_TEXT_BYTES],
    length: usize,
}

static ANCHORS: AsciiAnchors = {
    let mut all = AsciiAnchors {
        stops: [0; 1 << (SLOTS_LOG2 - 6)],
        anchors: [(0, 0, 0); MAX_ANCHORS],
        count: 0,
        text: [0; MAX_TEXT_BYTES],
        length: 0,
    };
    add_formats(&mut all, include_bytes!("formats.txt"));
    add_words(&mut all, include_bytes!("words.txt"));
    all
};

/// Whether a text may contain an anchor. False is certain; a text beyond ASCII always may.
pub(super) fn may_contain_anchor(text: &str) -> bool {
    if !text.is_ascii() {
        return true;
    }
    let (bytes, mut trigram, mut stops) = (text.as_bytes(), 0, 0);
    for (at, byte) in bytes.iter().enumerate() {
        trigram = fold_byte(trigram, *byte);
        let slot = slot_index(trigram);
        if at < 2 || ANCHORS.stops[slot >> 6] >> (slot & 63) & 1 == 0 {
            continue;
        }
        stops += 1;
        if stops > MAX_STOPS || ANCHORS.is_any_at(bytes, at - 2) {
            return true;
        }
    }
    false
}

impl AsciiAnchors {
    /// Whether there is an anchor, in any case of letters, whose stop is at `stop`.
    fn is_any_at(&self, bytes: &[u8], stop: usize) -> bool {
        self.anchors[..self.count].iter().any(|&(from, length, offset)| {
            let anchor = &self.text[from..from + length];
            let start = stop.checked_sub(offset);
            start.and_then(|start| bytes.get(start..start + length)).is_some_and(|there| {
                there.iter().zip(anchor).all(|(one, other)| one | 0x20 == other | 0x20)
            })
        })
    }
}

const fn slot_index(trigram: u32) -> usize {
    (trigram.wrapping_mul(0x9E37_79B1) >> (32 - SLOTS_LOG2)) as usize
}

/// Adds the texts of `formats.txt`: `rule | TEXT | … | @n`.
const fn add_formats(all: &mut AsciiAnchors, text: &[u8]) {
    let mut at = 0;
    while at < text.len() {
        let end = find(text, at, text.len(), b'\n');
        if at < end && text[at] != b'#' {
            let start = find(text, at, end, b'|') + 2;
            let mut until = start;
            while until < end
                && text[until] != b'<'
                && !(text[until] == b' ' && until + 1 < end && text[until + 1] == b'|')
            {
                until += 1;
            }
            add_anchor(all, text, (start, until), offset_before(text, until, end), b' ');
        }
        at = end + 1;
    }
}

/// Adds the words of the lists `part`, `word` and `pin` of `words.txt`: `word@n word …`.
const fn add_words(all: &mut AsciiAnchors, text: &[u8]) {
    let mut at = 0;
    while at < text.len() {
        let end = find(text, at, text.len(), b'\n');
        let name = find(text, at, if at + 5 < end { at + 5 } else { end }, b':');
        let is_list = matches!(
            text.split_at(at).1.split_at(name - at).0,
            [b'p', b'a', b'r', b't'] | [b'w', b'o', b'r', b'd'] | [b'p', b'i', b'n']
        );
        let mut from = name + 2;
        while is_list && from < end {
            let until = find(text, from, end, b' ');
            let span = (from, find(text, from, until, b'@'));
            add_anchor(all, text, span, offset_before(text, from, until), b'_');
            from = until + 1;
        }
        at = end + 1;
    }
}

/// Adds `text[from..until]`, in which `␣` and `blank` stand for a blank.
const fn add_anchor(
    all: &mut AsciiAnchors,
    text: &[u8],
    (from, until): (usize, usize),
    offset: usize,
    blank: u8,
) {
    let (start, mut length, mut at) = (all.length, 0, from);
    while at < until {
        all.text[start + length] = if text[at] == blank { b' ' } else { text[at] };
        if text[at] == 0xE2 && text[at + 1] == 0x90 && text[at + 2] == 0xA3 {
            all.text[start + length] = b' ';
            at += 2;
        } else if !text[at].is_ascii() {
            // It only occurs in a text that is not ASCII.
            return;
        }
        (length, at) = (length + 1, at + 1);
    }
    let stop = start + offset;
    if length == 2 && offset == 0 {
        // A prefix of two bytes is looked for with each hex digit that can follow it.
        let mut digit = 0;
        while digit < 16 {
            add_trigram(all, [all.text[start], all.text[start + 1], b"0123456789abcdef"[digit]]);
            digit += 1;
        }
    } else if offset + 3 <= length {
        add_trigram(all, [all.text[stop], all.text[stop + 1], all.text[stop + 2]]);
    }
    all.anchors[all.count] = (start, length, offset);
    (all.count, all.length) = (all.count + 1, start + length);
}

const fn add_trigram(all: &mut AsciiAnchors, [first, second, third]: [u8; 3]) {
    let slot = slot_index(fold_byte(fold_byte(fold_byte(0, first), second), third));
    all.stops[slot >> 6] |= 1 << (slot & 63);
}

/// The position of `byte` in `text[from..end]`, or `end`.
const fn find(text: &[u8], from: usize, end: usize, byte: u8) -> usize {
    let mut at = from;
    while at < end && text[at] != byte {
        at += 1;
    }
    at
}

/// The number after the last `@` of `text[from..end]`, if nothing but digits follows it; else 0.
const fn offset_before(text: &[u8], from: usize, end: usize) -> usize {
    let (mut at, mut number, mut factor) = (end, 0, 1);
    while at > from && text[at - 1].is_ascii_digit() {
        at -= 1;
        number += (text[at] - b'0') as usize * factor;
        factor *= 10;
    }
    if at > from && text[at - 1] == b'@' { number } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::super::rules::RULES;
    use super::*;

    #[test]
    fn a_text_with_an_anchor_is_looked_at_by_the_rules() {
        for anchor in &RULES.anchors {
            let hex = if anchor.text.len() == 2 { "0123456789abcdef" } else { " " };
            for after in hex.chars() {
                for text in [
                    format!("{}{after}", anchor.text),
                    format!("The {}{after}", anchor.text.to_ascii_lowercase()),
                    format!("of {}{after}.", anchor.text.to_ascii_uppercase()),
                ] {
                    assert!(may_contain_anchor(&text), "{text}");
                }
            }
        }
    }

    #[test]
    fn an_ordinary_sentence_needs_no_rules() {
        for text in
            ["", "ab", "The office moved to Hamburg in the spring", "We meet on Fridays at noon"]
        {
            assert!(!may_contain_anchor(text), "{text}");
        }
        assert!(may_contain_anchor(&"in the spring in the ".repeat(MAX_STOPS + 1)));
    }
}
