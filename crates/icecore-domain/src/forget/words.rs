//! Word folding for forgetting: words are sequences of letters and digits, regardless of case,
//! accents, punctuation and spacing.
//!
//! The same sentence occurs in a log, in JSON, in JSON within JSON, in a page with emphasis and in
//! a file name. Folding makes it equal everywhere, so that it can be found, or recognized by a
//! hash, wherever it was written.

use std::collections::{HashMap, HashSet};

use icecore_text::normalize::without_marks;
use icecore_text::scripts::{is_han_or_kana, is_mark};
use memchr::memmem;

use crate::escapes;
use crate::hash::Hash;

/// The number of hash bytes that identify a phrase.
const HASH_BYTES: usize = 16;

/// A text folded into words, with their source positions.
pub(super) struct FoldedText {
    /// The words, separated by a blank.
    text: String,
    words: Vec<FoldedWord>,
}

struct FoldedWord {
    /// The offset in the folded text.
    start: usize,
    end: usize,
    /// The offset in the source text.
    from: usize,
    to: usize,
}

/// Folds a text into words separated by a blank.
pub(super) fn fold_text(text: &str) -> FoldedText {
    let mut folded = FoldedText { text: String::with_capacity(text.len()), words: Vec::new() };
    let mut open = false;
    let mut rest = text.char_indices().peekable();
    while let Some((at, mut c)) = rest.next() {
        let mut end = at + c.len_utf8();
        if c == '\\' {
            // Text may be escaped more than once: backslashes are ignored, and an escape is a gap
            // or a character.
            while rest.next_if(|(_, next)| *next == '\\').is_some() {}
            let next = rest.peek().copied();
            c = match next {
                Some((_, 'n' | 'r' | 't' | 'b' | 'f')) => {
                    rest.next();
                    ' '
                }
                Some((from, 'u')) => match escapes::decode_unicode(&text[from..]) {
                    Some((c, length)) => {
                        end = from + length;
                        while rest.next_if(|(at, _)| *at < end).is_some() {}
                        c
                    }
                    None => ' ',
                },
                _ => ' ',
            };
        }
        let stands_for = match c {
            '%' => escapes::decode_percent(&text[at..]),
            '&' => escapes::decode_entity(&text[at..]),
            '<' => inline_tag_length(&text[at..]).map(|length| ('\u{200b}', length)),
            _ => None,
        };
        if let Some((meant, length)) = stands_for {
            (c, end) = (meant, at + length);
            while rest.next_if(|(at, _)| *at < end).is_some() {}
        }
        if is_ignorable(c) {
            continue;
        }
        let known = folded.text.len();
        let mut say = |part: char| {
            let alone = is_han_or_kana(part);
            let begins = !open || alone;
            if begins && !folded.text.is_empty() {
                folded.text.push(' ');
            }
            let start = folded.text.len();
            folded.text.push(part);
            match folded.words.last_mut() {
                Some(word) if !begins => (word.end, word.to) = (folded.text.len(), end),
                _ => folded.words.push(FoldedWord {
                    start,
                    end: folded.text.len(),
                    from: at,
                    to: end,
                }),
            }
            open = !alone;
        };
        if c.is_ascii() {
            if c.is_ascii_alphanumeric() {
                say(c.to_ascii_lowercase());
            }
        } else {
            // One character may fold to several letters, each of which may be a word of its own.
            let parts = without_marks(std::iter::once(c)).flat_map(char::to_lowercase);
            parts.filter(|part| part.is_alphanumeric() && !is_mark(*part)).for_each(say);
        }
        if folded.text.len() == known {
            // Neither letter nor digit: a gap.
            open = false;
        }
    }
    folded
}

/// The length of an HTML tag that only changes the look of words or allows a line break.
fn inline_tag_length(text: &str) -> Option<usize> {
    const INLINE_TAGS: [&str; 16] = [
        "b", "i", "u", "s", "em", "strong", "span", "mark", "small", "big", "code", "font", "sub",
        "sup", "wbr", "a",
    ];
    const MAX_TAG_BYTES: usize = 200;
    let inner = text.strip_prefix('<')?;
    let length = inner.bytes().take(MAX_TAG_BYTES).position(|byte| byte == b'>')?;
    let inner = inner.get(..length)?;
    let name = inner.strip_prefix('/').unwrap_or(inner);
    let name = name.split([' ', '/', '\t', '\n']).next().unwrap_or_default();
    INLINE_TAGS.iter().any(|known| name.eq_ignore_ascii_case(known)).then_some(length + 2)
}

/// Characters that are neither part of a word nor end one: combining accents and invisible ones.
fn is_ignorable(c: char) -> bool {
    !c.is_ascii() && (is_mark(c) || escapes::is_invisible(c))
}

/// The folded words of a text; empty if it has none.
pub(super) fn fold_phrase(text: &str) -> String {
    fold_text(text).text
}

/// The number of words in a folded phrase.
pub fn count_words(text: &str) -> usize {
    fold_text(text).words.len()
}

/// Phrases that are known only by their hashes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct HashedPhrases {
    groups: Vec<SaltGroup>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct SaltGroup {
    salt: String,
    /// The first bytes of the first words' hashes: a cheap pre-check.
    firsts: HashSet<u8>,
    /// The phrase hashes by number of words.
    runs: HashMap<usize, HashSet<[u8; HASH_BYTES]>>,
}

/// A byte of the hash of a phrase's first word.
pub(super) fn first_word_byte(salt: &str, phrase: &str) -> u8 {
    let first = phrase.split(' ').next().unwrap_or_default();
    Hash::of(format!("{salt}\0first\0{first}").as_bytes()).as_bytes()[0]
}

/// The hash of a phrase.
pub(super) fn phrase_hash(salt: &str, phrase: &str) -> [u8; HASH_BYTES] {
    let whole = Hash::of(format!("{salt}\0words\0{phrase}").as_bytes());
    std::array::from_fn(|at| whole.as_bytes()[at])
}

impl HashedPhrases {
    pub(super) fn add(&mut self, salt: &str, words: usize, first: u8, hash: [u8; HASH_BYTES]) {
        let at = self.groups.iter().position(|group| group.salt == salt).unwrap_or_else(|| {
            self.groups.push(SaltGroup {
                salt: salt.to_owned(),
                firsts: HashSet::new(),
                runs: HashMap::new(),
            });
            self.groups.len() - 1
        });
        let group = &mut self.groups[at];
        group.firsts.insert(first);
        group.runs.entry(words).or_default().insert(hash);
    }

    pub(super) fn merge(&mut self, others: &Self) {
        for group in &others.groups {
            for (&words, hashes) in &group.runs {
                // The first byte of each phrase is not stored, so all of them are candidates.
                for (&first, &hash) in group
                    .firsts
                    .iter()
                    .flat_map(|first| hashes.iter().map(move |hash| (first, hash)))
                {
                    self.add(&group.salt, words, first, hash);
                }
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }
}

impl FoldedText {
    /// The source spans of a phrase, as whole words.
    pub(super) fn find_phrase<'a>(
        &'a self,
        phrase: &'a str,
    ) -> impl Iterator<Item = (usize, usize)> + 'a {
        let text = self.text.as_bytes();
        let finder = memmem::Finder::new(phrase);
        let mut from = 0;
        std::iter::from_fn(move || {
            loop {
                let start = from + finder.find(text.get(from..).filter(|_| !phrase.is_empty())?)?;
                // Continue one byte on: a match within another word may overlap the next one.
                from = start + 1;
                let end = start + phrase.len();
                let whole = (start == 0 || text[start - 1] == b' ')
                    && text.get(end).is_none_or(|byte| *byte == b' ');
                if let Some(place) = whole.then(|| self.source_span(start, end)).flatten() {
                    return Some(place);
                }
            }
        })
    }

    fn source_span(&self, start: usize, end: usize) -> Option<(usize, usize)> {
        let first = self.words.binary_search_by_key(&start, |word| word.start).ok()?;
        let last = self.words.binary_search_by_key(&end, |word| word.end).ok()?;
        Some((self.words[first].from, self.words[last].to))
    }

    /// The source spans of hashed phrases.
    pub(super) fn find_hashed(&self, hashed: &HashedPhrases) -> Vec<(usize, usize)> {
        let mut found = Vec::new();
        for group in &hashed.groups {
            let mut promising: HashMap<&str, bool> = HashMap::new();
            for (at, word) in self.words.iter().enumerate() {
                let text = &self.text[word.start..word.end];
                if !*promising
                    .entry(text)
                    .or_insert_with(|| group.firsts.contains(&first_word_byte(&group.salt, text)))
                {
                    continue;
                }
                for (&words, hashes) in &group.runs {
                    let Some(last) = self.words.get(at + words.saturating_sub(1)) else { continue };
                    if hashes.contains(&phrase_hash(&group.salt, &self.text[word.start..last.end]))
                    {
                        found.push((word.from, last.to));
                    }
                }
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(text: &str, words: &str) {
        assert_eq!(fold_phrase(text), words, "{text:?}");
    }

    #[test]
    fn words_are_the_same_however_they_are_written() {
        check("", "");
        check(" -- \n", "");
        check("The  Launch\n\tCode", "the launch code");
        check("the **launch** _code_, \"7-Alpha\"!", "the launch code 7 alpha");
        check("Café CAFE\u{301} cafe\u{ad}", "cafe cafe cafe");
        check("a\\nb \\\\n c \\\"d\\\" e\\\\\\tf", "a b c d e f");
        check("caf\\u00e9 caf\\\\u00E9 \\ud83d\\ude00x", "cafe cafe x");
        check("snake_case kebab-case 12.50", "snake case kebab case 12 50");
        check("今日は hello日", "今 日 は hello 日");
        check("ＦＵＬＬ width", "full width");
        check(
            "purple&nbsp;walrus, purple&#160;walrus, purple&#xA0;walrus",
            "purple walrus purple walrus purple walrus",
        );
        check(
            "<b>purple</b> walrus, pur<wbr>ple <span class=\"x\">walrus</span>",
            "purple walrus purple walrus",
        );
        check(
            "purple%20walrus purple%2520 caf%C3%A9 100% sure",
            "purple walrus purple 20 cafe 100 sure",
        );
        check(
            "Tom &amp; Jerry, a < b > c, AT&T; <br>next <p>one",
            "tom jerry a b c at t br next p one",
        );
    }

    #[test]
    fn only_whole_words_are_found_and_their_places_are_those_of_the_text() {
        let text = "Planning: \"Ann's plan\", ann, PLAN.";
        let found: Vec<&str> =
            fold_text(text).find_phrase("ann").map(|(from, to)| &text[from..to]).collect();
        assert_eq!(found, ["Ann", "ann"]);
        let found: Vec<&str> =
            fold_text(text).find_phrase("ann s plan").map(|(from, to)| &text[from..to]).collect();
        assert_eq!(found, ["Ann's plan"]);
        assert_eq!(fold_text(text).find_phrase("plan ning").count(), 0);
    }

    proptest! {
        #[test]
        fn a_phrase_is_found_in_json_of_any_depth(text in "[a-zäé0-9]{1,8}( [a-z0-9]{1,8}){0,4}", before in "[A-Z\"\\n\\t ,]{0,12}", depth in 0usize..4) {
            let mut told = format!("{before} {text}\n rest");
            for _ in 0..depth {
                told = serde_json::to_string(&told).unwrap();
            }
            prop_assert!(fold_text(&told).find_phrase(&fold_phrase(&text)).count() > 0, "{}", told);
        }

        #[test]
        fn hashes_find_what_the_words_find(words in prop::collection::vec("[ab]{1,2}", 1..12), from in 0usize..12, many in 1usize..4) {
            let text = words.join(" ");
            let wanted: Vec<&str> = words.iter().map(String::as_str).skip(from).take(many).collect();
            prop_assume!(!wanted.is_empty());
            let wanted = wanted.join(" ");
            let mut hashed = HashedPhrases::default();
            hashed.add("salt", count_words(&wanted), first_word_byte("salt", &wanted), phrase_hash("salt", &wanted));
            let folded = fold_text(&text);
            let plain: HashSet<(usize, usize)> = folded.find_phrase(&wanted).collect();
            let by_hash: HashSet<(usize, usize)> = folded.find_hashed(&hashed).into_iter().collect();
            prop_assert!(!plain.is_empty());
            prop_assert_eq!(plain, by_hash);
        }

        #[test]
        fn folding_takes_any_text(text in any::<String>()) {
            let folded = fold_text(&text);
            for word in &folded.words {
                prop_assert!(text.get(word.from..word.to).is_some());
            }
            prop_assert_eq!(fold_phrase(&folded.text), folded.text);
        }
    }
}
