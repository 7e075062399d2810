//! Word lists by language, read once from the data files in `lexicon/`.
//!
//! A line is `list: words`, in lower case; phrases of several words are separated by `|`. A list
//! may take several lines. `month.3`, `weekday.1` and `number.12` give the names of one month,
//! weekday (Monday first) or number: the full name first, then abbreviations. To add a language,
//! add a file.

use std::collections::HashMap;
use std::sync::LazyLock;

use crate::language::Language;
use crate::string_enum::string_enum;

string_enum! {
    /// A list of words.
    WordList: "a word list" {
        /// Words that carry grammar and no content.
        Function = "function",
        /// Words that are common in texts on any topic.
        Common = "common",
        /// Words that carry no content in a summary; negations are excluded, they invert a
        /// sentence.
        SummaryStop = "summary-stop",
        /// Words that make no difference between two statements to remember.
        StatementStop = "statement-stop",
        /// Words that make no difference between two facts of a conversation.
        FactStop = "fact-stop",
        /// Words that negate.
        Negation = "negation",
        /// Words that forbid or end, and so negate what follows.
        Reversal = "reversal",
        /// Words that limit or qualify a statement.
        Limit = "limit",
        /// Words that say that something is no longer as it was.
        Change = "change",
        /// Phrases that say that something changed.
        ChangePhrase = "change-phrase",
        /// Words that forbid, demand or limit.
        ModalPhrase = "modal-phrase",
        /// Further words that demand or forbid, for the facts of a conversation.
        BindingPhrase = "binding-phrase",
        /// Words that make a sentence a guess.
        Guess = "guess",
        /// Days relative to today.
        Day = "day",
        /// The seasons of the year.
        Season = "season",
    }
}

/// English and German: the languages in which sentences are understood, not only searched.
pub const EN_DE: &[Language] = &[Language::English, Language::German];

const FILES: [(Language, &str); 9] = [
    (Language::English, include_str!("../lexicon/en.txt")),
    (Language::German, include_str!("../lexicon/de.txt")),
    (Language::French, include_str!("../lexicon/fr.txt")),
    (Language::Spanish, include_str!("../lexicon/es.txt")),
    (Language::Italian, include_str!("../lexicon/it.txt")),
    (Language::Portuguese, include_str!("../lexicon/pt.txt")),
    (Language::Dutch, include_str!("../lexicon/nl.txt")),
    (Language::Swedish, include_str!("../lexicon/sv.txt")),
    (Language::Russian, include_str!("../lexicon/ru.txt")),
];

/// The lines of a data file: the list's name and its words.
fn parse_lines(file: &'static str) -> impl Iterator<Item = (&'static str, Vec<&'static str>)> {
    let lines = file.lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| line.split_once(": ")).map(|(name, text)| {
        let mark = if name.ends_with("-phrase") { '|' } else { ' ' };
        (name, text.split(mark).filter(|word| !word.is_empty()).collect())
    })
}

/// The words of each list, with the languages that have them.
static WORDS: LazyLock<Vec<HashMap<&'static str, u16>>> = LazyLock::new(|| {
    let mut all: Vec<HashMap<&str, u16>> = vec![HashMap::new(); WordList::ALL.len()];
    for (language, file) in FILES {
        for (name, words) in parse_lines(file) {
            let Ok(list) = name.parse::<WordList>() else { continue };
            for word in words {
                *all[list as usize].entry(word).or_default() |= language.bit();
            }
        }
    }
    all
});

impl WordList {
    /// The words of the list in one language.
    pub fn words(self, language: Language) -> impl Iterator<Item = &'static str> {
        let file = FILES.iter().find(|(known, _)| *known == language).map_or("", |(_, file)| file);
        parse_lines(file).filter(move |(name, _)| *name == self.word()).flat_map(|(_, words)| words)
    }

    /// The word, if the list has it in one of these languages.
    pub fn find(self, languages: &[Language], word: &str) -> Option<&'static str> {
        let (known, bits) = WORDS.get(self as usize)?.get_key_value(word)?;
        languages.iter().any(|language| bits & language.bit() != 0).then_some(known)
    }

    /// Whether the list has the word in one of these languages.
    pub fn has(self, languages: &[Language], word: &str) -> bool {
        self.find(languages, word).is_some()
    }

    /// The words of the list in all languages, in no particular order.
    pub fn iter(self) -> impl Iterator<Item = &'static str> {
        WORDS.get(self as usize).into_iter().flat_map(|words| words.keys().copied())
    }

    /// Whether the list has the word in any language.
    pub fn contains(self, word: &str) -> bool {
        self.languages_of(word).is_some()
    }

    /// The languages whose list has the word, as bits.
    pub(crate) fn languages_of(self, word: &str) -> Option<u16> {
        WORDS.get(self as usize)?.get(word).copied()
    }
}

/// What a month, a weekday or a number is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NumberedName {
    /// From 1: January, Monday.
    pub number: u8,
    pub language: Language,
    /// Whether it is an abbreviation: `jan`, `tues`.
    pub is_short: bool,
}

impl NumberedName {
    /// The number counted from 0.
    pub fn index(self) -> usize {
        usize::from(self.number - 1)
    }
}

/// The names of everything that has a number, by kind and name.
static NAMES: LazyLock<HashMap<(&'static str, &'static str), Vec<NumberedName>>> =
    LazyLock::new(|| {
        let mut all: HashMap<_, Vec<NumberedName>> = HashMap::new();
        for (language, file) in FILES {
            for (name, words) in parse_lines(file) {
                let Some((kind, number)) = name.split_once('.') else { continue };
                let Ok(number) = number.parse() else { continue };
                for (at, word) in words.into_iter().enumerate() {
                    let is_short = at > 0 && word.chars().count() <= 5;
                    let name = NumberedName { number, language, is_short };
                    all.entry((kind, word)).or_default().push(name);
                }
            }
        }
        all
    });

fn find_name(kind: &'static str, languages: &[Language], word: &str) -> Option<NumberedName> {
    let names = NAMES.get(&(kind, word))?;
    names.iter().copied().find(|name| languages.contains(&name.language))
}

/// The month that an English or German word names, in lower case: `march`, `sept`, `märz`.
pub fn month(word: &str) -> Option<NumberedName> {
    find_name("month", EN_DE, word)
}

/// The weekday that an English or German word names, in lower case: `monday`, `tue`, `montag`.
pub fn weekday(word: &str) -> Option<NumberedName> {
    find_name("weekday", EN_DE, word)
}

/// The number from 2 to 12 that a word names, in any language.
pub fn number(word: &str) -> Option<u8> {
    find_name("number", Language::ALL, word).map(|name| name.number)
}

/// Whether a word without accents names a day or a month in one of these languages.
pub fn names_time(languages: &[Language], folded: &str) -> bool {
    FOLDED_TIMES
        .get(folded)
        .is_some_and(|bits| languages.iter().any(|language| bits & language.bit() != 0))
}

static FOLDED_TIMES: LazyLock<HashMap<String, u16>> = LazyLock::new(|| {
    let mut all: HashMap<String, u16> = HashMap::new();
    for (language, file) in FILES {
        let times = parse_lines(file).filter(|(name, _)| {
            name.starts_with("month.") || name.starts_with("weekday.") || *name == "day"
        });
        for word in times.flat_map(|(_, words)| words) {
            *all.entry(crate::normalize::fold_word(word)).or_default() |= language.bit();
        }
    }
    all
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_data_is_known_and_in_lower_case() {
        for (language, file) in FILES {
            for line in file.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
                let (name, _) =
                    line.split_once(": ").unwrap_or_else(|| panic!("{language} {line}"));
                let numbered = name.split_once('.').is_some_and(|(kind, number)| {
                    ["month", "weekday", "number"].contains(&kind) && number.parse::<u8>().is_ok()
                });
                assert!(numbered || name.parse::<WordList>().is_ok(), "{language}: {line}");
                assert_eq!(line.to_lowercase(), line, "{language}");
            }
            for list in WordList::ALL {
                let words: Vec<&str> = list.words(language).collect();
                let distinct: std::collections::BTreeSet<&&str> = words.iter().collect();
                assert_eq!(distinct.len(), words.len(), "{language} {list}");
                assert!(words.iter().all(|word| list.has(&[language], word)), "{language} {list}");
            }
        }
        assert_eq!(FILES.len(), Language::ALL.len());
        assert!(WORDS.iter().all(|words| !words.is_empty()));
    }

    #[test]
    fn calendar_names_have_a_number() {
        for (word, number, short) in [
            ("january", 1, false),
            ("sept", 9, true),
            ("märz", 3, false),
            ("mär", 3, true),
            ("may", 5, false),
            ("dez", 12, true),
        ] {
            let found = month(word).unwrap();
            assert_eq!((found.number, found.is_short), (number, short), "{word}");
        }
        assert_eq!(weekday("sonnabend").map(|day| (day.index(), day.is_short)), Some((5, false)));
        assert_eq!(weekday("thurs").map(|day| (day.index(), day.is_short)), Some((3, true)));
        assert_eq!(month("marketing"), None);
        assert_eq!(month("janvier"), None);
        assert_eq!((number("zwölf"), number("dos"), number("one")), (Some(12), Some(2), None));
        let romance = [Language::French, Language::Spanish];
        assert!(names_time(&romance, "fevrier") && names_time(&romance, "manana"));
        assert!(!names_time(&romance, "monday"));
    }
}
