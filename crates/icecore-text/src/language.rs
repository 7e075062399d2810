//! Languages: detection, function words, and stemmers.
//!
//! A text is in the language whose function words it uses most. That works for a single sentence,
//! and the result for a text never changes. Without function words the language is unknown, and
//! callers assume English.

use std::collections::HashMap;
use std::sync::LazyLock;

use frostem::{Algorithm, Stemmer};

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

/// Words that carry grammar and no content, sorted.
const ENGLISH: &[&str] = &[
    "a",
    "about",
    "above",
    "after",
    "again",
    "against",
    "all",
    "also",
    "am",
    "an",
    "and",
    "any",
    "are",
    "aren't",
    "as",
    "at",
    "be",
    "because",
    "been",
    "before",
    "being",
    "below",
    "between",
    "both",
    "but",
    "by",
    "can",
    "can't",
    "could",
    "couldn't",
    "did",
    "didn't",
    "do",
    "does",
    "doesn't",
    "doing",
    "don't",
    "down",
    "during",
    "each",
    "few",
    "for",
    "from",
    "further",
    "had",
    "hadn't",
    "has",
    "hasn't",
    "have",
    "haven't",
    "having",
    "he",
    "he'd",
    "he'll",
    "he's",
    "her",
    "here",
    "here's",
    "hers",
    "herself",
    "him",
    "himself",
    "his",
    "how",
    "how's",
    "i",
    "i'd",
    "i'll",
    "i'm",
    "i've",
    "if",
    "in",
    "into",
    "is",
    "isn't",
    "it",
    "it's",
    "its",
    "itself",
    "just",
    "let's",
    "may",
    "me",
    "might",
    "mine",
    "more",
    "most",
    "must",
    "my",
    "myself",
    "no",
    "nor",
    "not",
    "now",
    "of",
    "off",
    "on",
    "once",
    "only",
    "onto",
    "or",
    "other",
    "our",
    "ours",
    "ourselves",
    "out",
    "over",
    "own",
    "same",
    "shall",
    "she",
    "she'd",
    "she'll",
    "she's",
    "should",
    "shouldn't",
    "so",
    "some",
    "such",
    "than",
    "that",
    "that's",
    "the",
    "their",
    "theirs",
    "them",
    "themselves",
    "then",
    "there",
    "there's",
    "these",
    "they",
    "they'd",
    "they'll",
    "they're",
    "they've",
    "this",
    "those",
    "through",
    "to",
    "too",
    "under",
    "until",
    "up",
    "us",
    "very",
    "was",
    "wasn't",
    "we",
    "we'd",
    "we'll",
    "we're",
    "we've",
    "were",
    "weren't",
    "what",
    "what's",
    "when",
    "when's",
    "where",
    "where's",
    "which",
    "while",
    "who",
    "who's",
    "whom",
    "whose",
    "why",
    "why's",
    "will",
    "with",
    "won't",
    "would",
    "wouldn't",
    "you",
    "you'd",
    "you'll",
    "you're",
    "you've",
    "your",
    "yours",
    "yourself",
    "yourselves",
];
const GERMAN: &[&str] = &[
    "aber", "als", "also", "am", "an", "auch", "auf", "aus", "bei", "beim", "bin", "bis", "bist",
    "da", "damit", "dann", "das", "dass", "dein", "deine", "dem", "den", "denn", "der", "des",
    "dich", "die", "dies", "diese", "diesem", "diesen", "dieser", "dieses", "dir", "doch", "du",
    "durch", "ein", "eine", "einem", "einen", "einer", "eines", "er", "es", "euch", "für", "gegen",
    "hab", "habe", "haben", "hat", "hatte", "hatten", "ich", "ihm", "ihn", "ihr", "ihre", "im",
    "in", "ist", "ja", "kann", "kein", "keine", "keinen", "man", "mein", "meine", "meinem",
    "meinen", "meiner", "mich", "mir", "mit", "nach", "nicht", "noch", "nur", "ob", "oder", "ohne",
    "schon", "sehr", "sein", "seine", "sich", "sie", "sind", "so", "über", "um", "und", "uns",
    "unser", "unsere", "unter", "vom", "von", "vor", "wann", "war", "waren", "warum", "was",
    "welche", "welchen", "welcher", "welches", "wem", "wen", "wenn", "wer", "werden", "wie", "wir",
    "wird", "wo", "wurde", "zu", "zum", "zur",
];
const FRENCH: &[&str] = &[
    "à", "ai", "as", "au", "aux", "avec", "avez", "avons", "c", "c'est", "ce", "ces", "cet",
    "cette", "comme", "comment", "d", "dans", "de", "des", "donc", "du", "elle", "elles", "en",
    "est", "et", "être", "eu", "il", "ils", "j", "j'ai", "je", "l", "la", "le", "les", "leur",
    "leurs", "lui", "ma", "mais", "me", "mes", "moi", "mon", "ne", "nos", "notre", "nous", "on",
    "ont", "ou", "où", "par", "pas", "pour", "pourquoi", "qu", "quand", "que", "quel", "quelle",
    "quelles", "quels", "qui", "sa", "sans", "se", "ses", "si", "son", "sont", "sur", "ta", "te",
    "tes", "toi", "ton", "tu", "un", "une", "vos", "votre", "vous", "y", "été",
];
const SPANISH: &[&str] = &[
    "a", "al", "ante", "como", "con", "cuál", "cuándo", "cómo", "de", "del", "desde", "donde",
    "dónde", "e", "el", "ella", "ellas", "ellos", "en", "entre", "era", "es", "esa", "ese", "eso",
    "esta", "este", "esto", "está", "están", "estoy", "fue", "ha", "hace", "han", "hasta", "hay",
    "he", "la", "las", "le", "les", "lo", "los", "me", "mi", "mis", "muy", "más", "ni", "no",
    "nos", "nosotros", "o", "para", "pero", "por", "porque", "que", "quién", "qué", "se", "ser",
    "si", "sin", "sobre", "son", "soy", "su", "sus", "sí", "también", "te", "tengo", "tiene", "tu",
    "tus", "un", "una", "unas", "uno", "unos", "y", "ya", "yo", "él",
];
const ITALIAN: &[&str] = &[
    "a", "ad", "ai", "al", "alla", "alle", "anche", "che", "chi", "ci", "come", "con", "cosa",
    "da", "dai", "dal", "dalla", "dei", "del", "della", "delle", "di", "dove", "e", "ed", "era",
    "gli", "ha", "hai", "hanno", "ho", "i", "il", "in", "io", "l", "la", "le", "lei", "lo", "loro",
    "lui", "ma", "me", "mi", "mia", "mie", "miei", "mio", "nei", "nel", "nella", "no", "noi",
    "non", "o", "per", "perché", "più", "quale", "quali", "quando", "quella", "quello", "questa",
    "questo", "se", "sei", "si", "sono", "su", "sua", "sul", "sulla", "suo", "ti", "tu", "tua",
    "tuo", "un", "una", "uno", "vi", "voi", "è",
];
const PORTUGUESE: &[&str] = &[
    "a", "ao", "aos", "as", "com", "como", "da", "das", "de", "dele", "do", "dos", "e", "ela",
    "elas", "ele", "eles", "em", "era", "essa", "esse", "esta", "este", "está", "estou", "eu",
    "foi", "foram", "há", "isso", "isto", "já", "lhe", "mais", "mas", "me", "meu", "meus", "minha",
    "minhas", "muito", "na", "nas", "no", "nos", "nossa", "nosso", "não", "nós", "o", "onde", "os",
    "ou", "para", "pela", "pelo", "por", "porque", "qual", "quando", "que", "quem", "se", "sem",
    "ser", "seu", "seus", "sou", "sua", "suas", "são", "também", "te", "tem", "tenho", "tu", "um",
    "uma", "você", "vocês", "à", "às", "é",
];
const DUTCH: &[&str] = &[
    "aan", "als", "bij", "dan", "dat", "de", "deze", "die", "dit", "door", "dus", "een", "en",
    "er", "geen", "had", "heb", "hebben", "heeft", "hem", "het", "hij", "hoe", "hun", "ik", "in",
    "is", "ja", "je", "jij", "jouw", "jullie", "kan", "maar", "me", "met", "mij", "mijn", "na",
    "naar", "niet", "nog", "nu", "of", "om", "omdat", "onder", "ons", "onze", "ook", "op", "over",
    "te", "tegen", "toch", "toen", "tot", "u", "uit", "uw", "van", "veel", "voor", "waar",
    "waarom", "wanneer", "want", "waren", "was", "wat", "we", "welke", "werd", "wie", "wij", "wil",
    "worden", "wordt", "zal", "ze", "zich", "zij", "zijn", "zo", "zonder", "zou",
];
const SWEDISH: &[&str] = &[
    "alla", "att", "av", "blev", "bli", "blir", "de", "dem", "den", "denna", "deras", "dess",
    "det", "detta", "dig", "din", "dina", "ditt", "du", "där", "då", "efter", "eller", "en", "er",
    "ett", "från", "för", "ha", "hade", "han", "hans", "har", "hon", "hur", "här", "i", "icke",
    "inte", "ja", "jag", "kan", "man", "med", "men", "mig", "min", "mina", "mitt", "mot", "mycket",
    "ni", "nu", "när", "någon", "något", "några", "och", "om", "oss", "på", "samma", "sedan",
    "sig", "sin", "sina", "ska", "som", "så", "till", "under", "upp", "ut", "vad", "var", "varför",
    "vem", "vi", "vid", "vilka", "vilken", "vilket", "vår", "våra", "än", "är", "över",
];
const RUSSIAN: &[&str] = &[
    "а",
    "без",
    "бы",
    "был",
    "была",
    "были",
    "было",
    "в",
    "вам",
    "вас",
    "во",
    "вот",
    "все",
    "всё",
    "вы",
    "где",
    "да",
    "для",
    "до",
    "его",
    "ее",
    "если",
    "есть",
    "ещё",
    "же",
    "за",
    "и",
    "из",
    "или",
    "им",
    "их",
    "к",
    "как",
    "какая",
    "какие",
    "какой",
    "ко",
    "когда",
    "кто",
    "ли",
    "меня",
    "мне",
    "мой",
    "моя",
    "мы",
    "на",
    "нас",
    "не",
    "него",
    "нет",
    "но",
    "ну",
    "о",
    "об",
    "он",
    "она",
    "они",
    "от",
    "по",
    "под",
    "почему",
    "при",
    "с",
    "свой",
    "себя",
    "со",
    "так",
    "там",
    "то",
    "только",
    "ты",
    "у",
    "уже",
    "чем",
    "что",
    "чтобы",
    "это",
    "этот",
    "я",
];

static FUNCTION_WORDS: LazyLock<HashMap<&str, u16>> = LazyLock::new(|| {
    let mut all = HashMap::new();
    for language in Language::ALL {
        for word in language.function_words() {
            *all.entry(*word).or_default() |= language.bit();
        }
    }
    all
});

impl Language {
    /// The function words of the language, sorted.
    pub fn function_words(self) -> &'static [&'static str] {
        match self {
            Self::English => ENGLISH,
            Self::German => GERMAN,
            Self::French => FRENCH,
            Self::Spanish => SPANISH,
            Self::Italian => ITALIAN,
            Self::Portuguese => PORTUGUESE,
            Self::Dutch => DUTCH,
            Self::Swedish => SWEDISH,
            Self::Russian => RUSSIAN,
        }
    }

    /// Whether a lower-case word carries grammar and no content.
    pub fn is_function_word(self, word: &str) -> bool {
        FUNCTION_WORDS.get(word).is_some_and(|languages| languages & self.bit() != 0)
    }

    fn bit(self) -> u16 {
        1 << self as u16
    }

    /// Detects the language of lower-case words; `None` if they contain no function word.
    pub fn detect<'a>(words: impl Iterator<Item = &'a str>) -> Option<Self> {
        let mut counts = [0_usize; Self::ALL.len()];
        let mut cyrillic = 0;
        for word in words {
            if let Some(languages) = FUNCTION_WORDS.get(word) {
                for (count, language) in counts.iter_mut().zip(Self::ALL) {
                    *count += usize::from(languages & language.bit() != 0);
                }
            }
            cyrillic += usize::from(word.chars().next().is_some_and(|first| is_cyrillic(first)));
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

    #[test]
    fn every_function_word_is_in_lower_case_and_listed_once() {
        for language in Language::ALL {
            let words = language.function_words();
            let distinct: std::collections::BTreeSet<&&str> = words.iter().collect();
            assert_eq!(distinct.len(), words.len(), "{language}");
            assert!(
                words
                    .iter()
                    .all(|word| word.to_lowercase() == **word && language.is_function_word(word)),
                "{language}"
            );
        }
    }
}
