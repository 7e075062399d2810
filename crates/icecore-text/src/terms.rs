//! The tokenizer and analyzer of search: the terms of texts and questions, as the inverted index
//! contains them.
//!
//! A word becomes its stem in the language of the text, without accents. `OrderContext` is also
//! indexed by its parts. Scripts without spaces become character bigrams. Texts and questions are
//! analyzed by the same rules, so that their terms match.

use std::borrow::Cow;
use std::collections::HashMap;

use crate::language::Language;
use crate::normalize::{compose, fold_accents};
use crate::scripts::{is_mark, is_unspaced};

/// Longer words are truncated.
const MAX_WORD_CHARS: usize = 64;

/// The terms of a text.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Terms {
    /// Each term with its count, sorted.
    pub counts: Vec<(String, u32)>,
    /// The number of words.
    pub length: u32,
    /// The language in which it was analyzed, if detected.
    pub language: Option<Language>,
}

/// A word of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextWord<'a> {
    /// The word as written.
    pub text: &'a str,
    /// The word in lower case, with plain apostrophes.
    pub lower: String,
    /// The byte offset of the word.
    pub at: usize,
}

fn is_apostrophe(c: char) -> bool {
    matches!(c, '\'' | '’' | '‘' | 'ʼ')
}

/// Whether a character belongs to a word. Emoji count: people search for them.
fn is_word_char(c: char) -> bool {
    c.is_alphanumeric()
        || is_mark(c)
        || ('\u{1f000}'..='\u{1faff}').contains(&c)
        || ('\u{2600}'..='\u{27bf}').contains(&c)
}

/// The words of a text, in order.
pub fn tokenize(text: &str) -> Vec<TextWord<'_>> {
    let mut found = Vec::new();
    let mut rest = text.char_indices().peekable();
    while let Some((at, first)) = rest.next() {
        if !is_word_char(first) {
            continue;
        }
        let mut end = at + first.len_utf8();
        while let Some(&(next, c)) = rest.peek() {
            // `10,000` and `don't` are one word.
            let ties = is_apostrophe(c)
                || (c == ',' && text[at..next].ends_with(|c: char| c.is_ascii_digit()));
            let after = text[next + c.len_utf8()..].chars().next();
            let goes_on = is_word_char(c) && is_unspaced(c) == is_unspaced(first)
                || ties
                    && after.is_some_and(|after| {
                        if c == ',' {
                            starts_with_thousands_group(&text[next + 1..])
                        } else {
                            after.is_alphabetic()
                        }
                    })
                    && !is_unspaced(first);
            if !goes_on {
                break;
            }
            end = next + c.len_utf8();
            rest.next();
        }
        let word = &text[at..end];
        let lower: String = word
            .chars()
            .filter(|&c| c != ',')
            .map(|c| if is_apostrophe(c) { '\'' } else { c })
            .flat_map(char::to_lowercase)
            .collect();
        found.push(TextWord { text: word, lower, at });
    }
    found
}

/// Whether a text begins with exactly three digits: the next group of a large number.
fn starts_with_thousands_group(text: &str) -> bool {
    text.bytes().take_while(u8::is_ascii_digit).count() == 3
}

/// The parts of a compound word such as `OrderContext` or `http2`; empty for a plain word.
fn compound_parts(word: &str) -> Vec<String> {
    let mut cuts = Vec::new();
    let mut before: Option<char> = None;
    for (at, c) in word.char_indices() {
        if let Some(before) = before {
            let hump = before.is_lowercase() && c.is_uppercase();
            let digits = before.is_numeric() != c.is_numeric();
            if hump || digits {
                cuts.push(at);
            }
        }
        before = Some(c);
    }
    if cuts.is_empty() {
        return Vec::new();
    }
    let mut from = 0;
    let mut found = Vec::new();
    for cut in cuts.into_iter().chain([word.len()]) {
        let part = &word[from..cut];
        if part.chars().count() > 1 {
            found.push(part.to_lowercase());
        }
        from = cut;
    }
    found
}

/// Turns text into terms; holds the stemmers of all languages.
pub struct Analyzer {
    stemmers: HashMap<Language, frostem::Stemmer>,
}

impl Default for Analyzer {
    fn default() -> Self {
        Self {
            stemmers: Language::ALL
                .iter()
                .map(|&language| (language, language.stemmer()))
                .collect(),
        }
    }
}

impl Analyzer {
    /// The terms of a text.
    pub fn terms(&self, text: &str) -> Terms {
        let words = tokenize(text);
        let language = Language::detect(words.iter().map(|word| word.lower.as_str()));
        let mut counts: HashMap<String, u32> = HashMap::new();
        let mut length = 0;
        for word in &words {
            length += 1;
            self.for_each_term(word, language.unwrap_or(Language::English), &mut |term| {
                *counts.entry(term).or_default() += 1
            });
        }
        let mut counts: Vec<(String, u32)> = counts.into_iter().collect();
        counts.sort_unstable();
        Terms { counts, length, language }
    }

    /// The terms of one word.
    pub fn word_terms(&self, word: &TextWord<'_>, language: Language) -> Vec<String> {
        let mut found = Vec::new();
        self.for_each_term(word, language, &mut |term| found.push(term));
        found
    }

    fn for_each_term(&self, word: &TextWord<'_>, language: Language, take: &mut dyn FnMut(String)) {
        let Some(first) = word.lower.chars().next() else { return };
        if is_unspaced(first) {
            let chars: Vec<char> = compose(&word.lower).collect();
            if chars.len() == 1 {
                take(chars.iter().collect());
            }
            chars.windows(2).for_each(|pair| take(pair.iter().collect()));
            return;
        }
        let whole = std::iter::once(word.lower.clone());
        whole
            .chain(compound_parts(word.text))
            .map(|part| self.stem(&part, language))
            .filter(|term| !term.is_empty())
            .for_each(take);
    }

    fn stem(&self, word: &str, language: Language) -> String {
        let word = word.char_indices().nth(MAX_WORD_CHARS).map_or(word, |(end, _)| &word[..end]);
        let stem = match self.stemmers.get(&language) {
            Some(stemmer) => stemmer.stem(word),
            None => Cow::Borrowed(word),
        };
        fold_accents(&stem).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn terms(text: &str) -> Vec<String> {
        Analyzer::default().terms(text).counts.into_iter().map(|(term, _)| term).collect()
    }

    // Y9
    #[test]
    fn what_is_asked_meets_what_was_said() {
        for (said, asked) in [
            ("We were running the migrations", "run migration"),
            ("Café Zürich", "cafe zurich"),
            ("das Haus in der Straße", "strasse"),
            ("see OrderContext.userTags", "order context"),
            ("that cost 1,500,000 won", "1500000"),
            ("Melanie's painting", "melanie paint"),
            ("the file memory/ledger.jsonl", "ledger"),
            ("我昨天买了一辆自行车", "自行车"),
            ("駅で会いましょう", "駅で"),
            ("내일 회의가 있습니다", "회의"),
            ("so happy 🎉", "🎉"),
            ("ﬁle ①", "file 1"),
            ("http2 is on", "http2"),
        ] {
            let said = terms(said);
            let asked = terms(asked);
            assert!(asked.iter().all(|term| said.contains(term)), "{said:?} {asked:?}");
        }
    }

    #[test]
    fn words_keep_their_place() {
        let found = tokenize("It's 1,500 — don’t, 3,14!");
        let found: Vec<(&str, &str, usize)> =
            found.iter().map(|word| (word.text, word.lower.as_str(), word.at)).collect();
        assert_eq!(
            found,
            [
                ("It's", "it's", 0),
                ("1,500", "1500", 5),
                ("don’t", "don't", 15),
                ("3", "3", 24),
                ("14", "14", 26)
            ]
        );
    }

    proptest::proptest! {
        // Y9
        #[test]
        fn any_text_has_terms_without_a_panic(text in "\\PC{0,200}") {
            let terms = Analyzer::default().terms(&text);
            proptest::prop_assert!(terms.counts.iter().all(|(term, count)| !term.is_empty() && *count > 0));
        }
    }
}
