//! The lexicon of the insights: classifies each word form once and gives each term a number.

use std::collections::{HashMap, HashSet};

use icecore_text::lexicon::WordList;
use icecore_text::markdown::CodeFence;
use icecore_text::scripts::is_unspaced;

use crate::rank::language::Language;
use crate::rank::terms::{Analyzer, TextWord, tokenize};

/// The shortest word that can be a topic.
const MIN_WORD_CHARS: usize = 2;
/// Longer words are keys, hashes or dumps.
const MAX_WORD_CHARS: usize = 32;
/// The longest run without spaces that counts as one word.
const MAX_UNSPACED_CHARS: usize = 4;
/// Characters between two words that separate phrases.
const BREAK_CHARS: &[char] = &[
    '.', '!', '?', ';', ':', ',', '\n', '(', ')', '[', ']', '{', '}', '"', '“', '”', '„', '…', '|',
    '<', '>', '。', '，', '、',
];
/// The characters that end a sentence: capitals after them are ignored.
const SENTENCE_END_CHARS: &[char] =
    &['.', '!', '?', ':', '\n', '"', '“', '„', '…', '(', '[', '|', '。'];

/// The class of a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TermClass {
    /// A function word.
    None,
    /// A word common in texts on any topic.
    Common,
    Number,
    /// A significant word.
    Significant,
}

/// One word of a text.
#[derive(Debug, Clone, Copy)]
pub(super) struct LexiconToken {
    /// The number of its stem.
    pub(super) term: u32,
    /// The number of its written form.
    pub(super) form: u32,
    pub(super) worth: TermClass,
    /// Its index among the words of the text.
    pub(super) at: u32,
    /// The number of its phrase-separated stretch.
    pub(super) stretch: u32,
    /// Capitalized, but not because it starts a sentence.
    pub(super) capital: bool,
    /// The byte offset of its start.
    pub(super) from: usize,
    /// The byte offset of its end.
    pub(super) to: usize,
}

#[derive(Clone, Copy)]
struct WordForm {
    id: u32,
    term: u32,
    worth: TermClass,
    seen: u32,
}

struct LexiconTerm {
    /// The most frequent written form, and how often it occurs.
    shown: Box<str>,
    seen: u32,
}

/// All words seen so far.
pub(super) struct Lexicon {
    reader: Analyzer,
    common: HashMap<Language, HashSet<String>>,
    forms: HashMap<Language, HashMap<Box<str>, WordForm>>,
    /// The forms by number.
    written: Vec<Box<str>>,
    ids: HashMap<Box<str>, u32>,
    /// The terms of lower-case words, in any language.
    lower: HashMap<Box<str>, u32>,
    terms: Vec<LexiconTerm>,
}

impl Default for Lexicon {
    fn default() -> Self {
        let reader = Analyzer::default();
        let mut common: HashMap<Language, HashSet<String>> = HashMap::new();
        for &language in Language::ALL {
            let stems = WordList::Common.words(language).filter_map(|word| {
                stem_of(&reader, &TextWord { text: word, lower: word.to_owned(), at: 0 }, language)
            });
            common.insert(language, stems.collect());
        }
        Self {
            reader,
            common,
            forms: HashMap::new(),
            written: Vec::new(),
            ids: HashMap::new(),
            lower: HashMap::new(),
            terms: Vec::new(),
        }
    }
}

fn stem_of(reader: &Analyzer, word: &TextWord<'_>, language: Language) -> Option<String> {
    reader.word_terms(word, language).into_iter().next()
}

/// Whether a word is a contraction without content: `he'd`, `y'all`, `shouldn't`.
fn is_contraction(lower: &str) -> bool {
    lower.split_once('\'').is_some_and(|(before, after)| {
        before.len() <= 2 || ["ll", "ve", "re", "d", "m", "t", "all"].contains(&after)
    })
}

/// Whether a word is a hash, a key or a mask.
fn is_opaque(lower: &str) -> bool {
    let digits = lower.bytes().filter(u8::is_ascii_digit).count();
    let letters = lower.chars().count() - digits;
    lower.chars().count() > MAX_WORD_CHARS
        || (lower.len() >= 7
            && digits > 0
            && letters > 0
            && lower.bytes().all(|b| b.is_ascii_hexdigit()))
        || (digits >= 4 && letters >= 4)
}

impl Lexicon {
    /// Splits a text into tokens, in order. Fenced code is skipped.
    pub(super) fn tokenize(
        &mut self,
        text: &str,
        usual: &mut Option<Language>,
        tokens: &mut Vec<LexiconToken>,
    ) {
        tokens.clear();
        let mut fence = CodeFence::default();
        let (mut stretch, mut place, mut from, mut at) = (0, 0, 0, 0);
        for line in text.split_inclusive('\n').chain([""]) {
            // The text between two blocks of code is tokenized as a whole.
            if line.is_empty() || fence.covers_indented_line(line) {
                let first = tokens.len();
                self.tokenize_block(&text[from..at], usual, tokens, &mut stretch, &mut place);
                for token in &mut tokens[first..] {
                    (token.from, token.to) = (token.from + from, token.to + from);
                }
                stretch += 1;
                from = at + line.len();
            }
            at += line.len();
        }
    }

    fn tokenize_block(
        &mut self,
        text: &str,
        usual: &mut Option<Language>,
        tokens: &mut Vec<LexiconToken>,
        stretch: &mut u32,
        place: &mut u32,
    ) {
        let found = tokenize(text);
        // A short text whose language is unclear takes the language of the texts around it.
        let language = Language::detect(found.iter().map(|word| word.lower.as_str())).or(*usual);
        *usual = language.or(*usual);
        let language = language.unwrap_or(Language::English);
        let mut end = 0;
        let mut opens = true;
        for word in &found {
            let gap = text.get(end..word.at).unwrap_or_default();
            if end > 0 && gap.contains(BREAK_CHARS) {
                *stretch += 1;
            }
            opens = (end == 0 && opens)
                || gap.contains(SENTENCE_END_CHARS)
                || gap.contains(['-', '*', '•']);
            end = word.at + word.text.len();
            *place += 1;
            let capital = !opens && word.text.starts_with(char::is_uppercase);
            let WordForm { id, term, worth, .. } = self.classify_form(word, language, opens);
            if worth != TermClass::None {
                tokens.push(LexiconToken {
                    term,
                    form: id,
                    worth,
                    at: *place,
                    stretch: *stretch,
                    capital,
                    from: word.at,
                    to: end,
                });
            }
            opens = false;
        }
    }

    fn classify_form(&mut self, word: &TextWord<'_>, language: Language, opens: bool) -> WordForm {
        // Capitals at the start of a sentence say little about the spelling of a word.
        let counts = u32::from(!opens || !word.text.starts_with(char::is_uppercase));
        let forms = self.forms.entry(language).or_default();
        if let Some(form) = forms.get_mut(word.text) {
            form.seen += counts;
            return *form;
        }
        let (stem, worth) = classify_word(&self.reader, &self.common, word, language);
        // The same spelling in another language counts as the same word.
        let term = match self.lower.get(word.lower.as_str()) {
            Some(&term) => term,
            None => self.intern_term(&stem, word.text),
        };
        if worth != TermClass::None {
            self.lower.entry(word.lower.as_str().into()).or_insert(term);
        }
        let id = u32::try_from(self.written.len()).unwrap_or(u32::MAX);
        self.written.push(word.text.into());
        let form = WordForm { id, term, worth, seen: counts };
        self.forms.entry(language).or_default().insert(word.text.into(), form);
        form
    }

    fn intern_term(&mut self, stem: &str, shown: &str) -> u32 {
        if let Some(&id) = self.ids.get(stem) {
            return id;
        }
        let id = u32::try_from(self.terms.len()).unwrap_or(u32::MAX);
        self.ids.insert(stem.into(), id);
        self.terms.push(LexiconTerm { shown: shown.into(), seen: 0 });
        id
    }

    /// The significant terms of a name or a query, in order.
    pub(super) fn significant_terms(&mut self, text: &str) -> Vec<u32> {
        let mut tokens = Vec::new();
        self.tokenize(&text.replace('_', " "), &mut None, &mut tokens);
        tokens.iter().map(|token| token.term).collect()
    }

    /// Chooses the most frequent written form of each term.
    pub(super) fn choose_display_forms(&mut self) {
        for term in &mut self.terms {
            term.seen = 0;
        }
        for forms in self.forms.values() {
            for (text, form) in forms {
                let Some(term) = self.terms.get_mut(form.term as usize) else { continue };
                let better = (form.seen, std::cmp::Reverse(text.len()), std::cmp::Reverse(text));
                if term.seen == 0 && form.seen == 0 {
                    // Seen only at the start of sentences: lower case, unless a shorter form is
                    // known.
                    if term.shown.len() >= text.len()
                        && (term.shown.len(), &*term.shown) > (text.len(), text)
                    {
                        term.shown = text.clone();
                    }
                } else if better
                    > (
                        term.seen,
                        std::cmp::Reverse(term.shown.len()),
                        std::cmp::Reverse(&term.shown),
                    )
                {
                    (term.shown, term.seen) = (text.clone(), form.seen);
                }
            }
        }
    }

    /// A written form of a term, without the capital of a sentence start.
    pub(super) fn form_text(&self, form: u32, term: u32) -> String {
        let text = self.written.get(form as usize).map_or("", |text| &**text);
        let small = self.display_form(term).starts_with(char::is_lowercase);
        let mut chars = text.chars();
        match chars.next() {
            Some(first) if small && chars.as_str().chars().all(char::is_lowercase) => {
                first.to_lowercase().chain(chars).collect()
            }
            _ => text.to_owned(),
        }
    }

    /// The display form of a term.
    pub(super) fn display_form(&self, term: u32) -> &str {
        self.terms.get(term as usize).map_or("", |term| &term.shown)
    }
}

fn classify_word(
    reader: &Analyzer,
    common: &HashMap<Language, HashSet<String>>,
    word: &TextWord<'_>,
    language: Language,
) -> (String, TermClass) {
    let lower = word.lower.as_str();
    let chars = lower.chars().count();
    if lower.chars().all(|c| c.is_numeric()) {
        return (lower.to_owned(), TermClass::Number);
    }
    if lower.starts_with(is_unspaced) {
        let worth = if (2..=MAX_UNSPACED_CHARS).contains(&chars) {
            TermClass::Significant
        } else {
            TermClass::None
        };
        return (lower.to_owned(), worth);
    }
    let stem = stem_of(reader, word, language).unwrap_or_else(|| lower.to_owned());
    let emoji = !lower.contains(char::is_alphanumeric);
    let nothing = emoji
        || chars < MIN_WORD_CHARS
        || language.is_function_word(lower)
        || Language::English.is_function_word(lower)
        || is_contraction(lower)
        || is_opaque(lower);
    let worth = if nothing {
        TermClass::None
    } else if common.get(&language).is_some_and(|stems| stems.contains(&stem)) {
        TermClass::Common
    } else {
        TermClass::Significant
    };
    (stem, worth)
}
