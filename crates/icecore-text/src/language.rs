//! Languages: detection, function words, and stemmers.
//!
//! A text is in the language whose function words it uses most. That works for a single sentence,
//! and the result for a text never changes. Without function words the language is unknown, and
//! callers assume English.

use frostem::{Algorithm, Stemmer};

use crate::lexicon::WordList;
use crate::scripts::is_cyrillic;
use crate::string_enum::string_enum;

string_enum! {
    /// A language whose words can be reduced to stems.
    Language: "a language" {
        English = "en",
        German = "de",
        French = "fr",
        Spanish = "es",
        Italian = "it",
        Portuguese = "pt",
        Dutch = "nl",
        Swedish = "sv",
        Russian = "ru",
    }
}

impl Language {
    /// Whether a lower-case word carries grammar and no content.
    pub fn is_function_word(self, word: &str) -> bool {
        WordList::Function.has(&[self], word)
    }

    pub(crate) fn bit(self) -> u16 {
        1 << self as u16
    }

    /// Detects the language of lower-case words; `None` if they contain no function word.
    pub fn detect<'a>(words: impl Iterator<Item = &'a str>) -> Option<Self> {
        let mut counts = [0_usize; Self::ALL.len()];
        let mut cyrillic = 0;
        for word in words {
            if let Some(languages) = WordList::Function.languages_of(word) {
                for (count, language) in counts.iter_mut().zip(Self::ALL) {
                    *count += usize::from(languages & language.bit() != 0);
                }
            }
            cyrillic += usize::from(word.chars().next().is_some_and(is_cyrillic));
        }
        counts[Self::Russian as usize] += cyrillic;
        let most = counts.iter().copied().max().filter(|&most| most > 0)?;
        // Ties go to the first language: English before the others.
        Self::ALL
            .iter()
            .copied()
            .zip(counts)
            .find(|&(_, count)| count == most)
            .map(|(language, _)| language)
    }

    /// A stemmer that can be reused for many words.
    pub(crate) fn stemmer(self) -> Stemmer {
        Stemmer::new(match self {
            Self::English => Algorithm::English,
            Self::German => Algorithm::German,
            Self::French => Algorithm::French,
            Self::Spanish => Algorithm::Spanish,
            Self::Italian => Algorithm::Italian,
            Self::Portuguese => Algorithm::Portuguese,
            Self::Dutch => Algorithm::Dutch,
            Self::Swedish => Algorithm::Swedish,
            Self::Russian => Algorithm::Russian,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Y9
    #[test]
    fn a_sentence_tells_its_language() {
        for (text, language) in [
            ("i moved to the harbour last spring and it is fine", Some(Language::English)),
            ("ich habe das auto gestern verkauft", Some(Language::German)),
            ("je ne sais pas où est la clé", Some(Language::French)),
            ("no sé dónde está la llave de mi casa", Some(Language::Spanish)),
            ("non so dove sono le chiavi della macchina", Some(Language::Italian)),
            ("não sei onde está a chave da minha casa", Some(Language::Portuguese)),
            ("ik weet niet waar mijn sleutels zijn", Some(Language::Dutch)),
            ("jag vet inte var mina nycklar är", Some(Language::Swedish)),
            ("где лежат мои ключи", Some(Language::Russian)),
            ("ключи дома", Some(Language::Russian)),
            ("postgres 17 upgrade", None),
            ("", None),
        ] {
            assert_eq!(Language::detect(text.split(' ')), language, "{text}");
        }
    }
}
