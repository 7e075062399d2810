//! Question analysis: search terms, quoted phrases, named people and times, and whether the newest
//! statement counts.

use std::collections::BTreeMap;

use icecore_text::lexicon::{self, WordList};
use icecore_text::normalize::collapse_spaces;
use jiff::civil::Date;

use super::language::Language;
use super::terms::{Analyzer, TextWord, tokenize};
use crate::calendar::Days;
use crate::natural_date::{self, NaturalDate};

/// A longer question is a poor search query.
const MAX_LAST_QUESTION_BYTES: usize = 300;
/// The longest question that is analyzed; the rest is ignored.
pub const MAX_QUESTION_BYTES: usize = 8 * 1024;
/// The most search terms of a question.
const MAX_TERMS: usize = 256;
/// The most words of a time expression, such as `in the first week of february 2026`.
const MAX_TIME_WORDS: usize = 6;

/// Words of asking: they say how something is asked, not what about.
const ASKING_WORDS: &[&str] = &[
    "ask",
    "asked",
    "chat",
    "conversation",
    "discuss",
    "discussed",
    "earlier",
    "erinnerst",
    "erwähnt",
    "gesagt",
    "kind",
    "know",
    "long",
    "many",
    "mention",
    "mentioned",
    "much",
    "often",
    "please",
    "previous",
    "previously",
    "recall",
    "remember",
    "remind",
    "said",
    "say",
    "sort",
    "talk",
    "talked",
    "tell",
    "think",
    "time",
    "type",
    "weißt",
];
/// Words that begin a question about a fact.
const QUESTION_OPENERS: &[&str] = &[
    "what", "which", "who", "whom", "whose", "when", "where", "why", "how", "did", "do", "does",
    "is", "are", "was", "were", "has", "have", "had", "can", "could", "would", "will", "should",
    "in", "for", "on", "at", "of", "was", "wer", "wem", "wen", "wann", "wo", "warum", "wie",
    "welche", "welcher", "welches", "hat", "habe", "haben", "ist", "war",
];
/// Verbs for what the assistant did, as the user says it.
const ASSISTANT_VERBS: &[&str] = &[
    "created",
    "explained",
    "gave",
    "helped",
    "listed",
    "made",
    "mentioned",
    "provided",
    "recommended",
    "said",
    "shared",
    "suggested",
    "told",
    "wrote",
];
/// Words that ask for the newest statement.
const NEWEST_WORDS: &[&str] = &[
    "current",
    "currently",
    "latest",
    "nowadays",
    "newest",
    "recent",
    "recently",
    "still",
    "aktuell",
    "derzeit",
    "jetzt",
    "zuletzt",
    "neueste",
];
/// Verbs that ask for the current state.
const PRESENT_VERBS: &[&str] = &[
    "am", "are", "can", "do", "does", "has", "have", "is", "must", "what's", "where's", "who's",
    "bin", "habe", "hat", "heißt", "ist", "sind",
];
/// Words that ask for a former state.
const PAST_WORDS: &[&str] = &[
    "ago",
    "been",
    "before",
    "did",
    "earlier",
    "ever",
    "first",
    "former",
    "had",
    "initially",
    "originally",
    "previous",
    "previously",
    "used",
    "was",
    "were",
    "damals",
    "früher",
    "hatte",
    "hatten",
    "war",
    "waren",
    "zuerst",
];
/// Words that look like past tense and describe the current state.
const STATE_PARTICIPLES: &[&str] =
    &["based", "called", "located", "married", "named", "need", "supposed"];
/// Words that name a time only together with other words.
const AMBIGUOUS_TIME_WORDS: &[&str] = &[
    "may", "march", "mar", "sun", "sat", "wed", "mon", "fri", "second", "now", "day", "week",
    "month", "year", "spring", "fall",
];
/// Words that come before a time.
const TIME_PREPOSITIONS: &[&str] = &[
    "in", "during", "since", "until", "till", "by", "of", "early", "late", "mid", "im", "seit",
    "bis",
];
/// The number of past years in which a month without a year is looked for.
const MAX_YEARS_BACK: i16 = 10;

/// A word to search for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueryTerm {
    /// The word as written in the question.
    pub word: String,
    /// The index terms it may stand for; any of them matches.
    pub terms: Vec<String>,
    /// How often the question contains it.
    pub count: u32,
}

/// What a question asks for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Question {
    /// The words to search for.
    pub terms: Vec<QueryTerm>,
    /// Quoted phrases, in lower case.
    pub phrases: Vec<String>,
    /// Whether the phrases must match literally. In a question a quoted phrase may be a title.
    pub is_exact: bool,
    /// Whether the text is a plain keyword query.
    pub is_bare: bool,
    /// The numbers of the speakers it names.
    pub voices: Vec<u16>,
    /// The times it names.
    pub times: Vec<Days>,
    /// Whether it asks for a fact; otherwise it continues some work.
    pub for_fact: bool,
    /// Whether it asks for what the assistant said.
    pub of_assistant: bool,
    /// Whether it asks for the current state.
    pub for_newest: bool,
    /// The question in the first person of whom it names, for comparing embeddings.
    pub spoken: String,
}

impl Question {
    /// Whether there is nothing to search for.
    pub fn is_empty(&self) -> bool {
        self.terms.is_empty() && self.phrases.is_empty()
    }

    /// Analyzes a question asked on `today`, in a memory with these speakers.
    pub fn parse(text: &str, voices: &[(u16, String)], today: Date, reader: &Analyzer) -> Self {
        let text = truncate_bytes(text, MAX_QUESTION_BYTES);
        let all = tokenize(text);
        let lower: Vec<&str> = all.iter().map(|word| strip_possessive(&word.lower)).collect();
        let called = |word: &str| {
            voices.iter().find(|(_, name)| matches_name(name, word)).map(|(number, _)| *number)
        };
        let mut question = Self {
            phrases: quoted_phrases(text),
            times: named_times(text, &all, today),
            ..Self::default()
        };
        for word in &lower {
            question.voices.extend(called(word).filter(|voice| !question.voices.contains(voice)));
        }
        let language = Language::detect(lower.iter().copied());
        let is_function = |word: &str| language.unwrap_or(Language::English).is_function_word(word);
        // The first filter that leaves a word to search for wins.
        let telling = [
            lower
                .iter()
                .map(|word| {
                    !is_function(word) && called(word).is_none() && !ASKING_WORDS.contains(word)
                })
                .collect::<Vec<_>>(),
            lower.iter().map(|word| !is_function(word) && called(word).is_none()).collect(),
            lower.iter().map(|word| called(word).is_none()).collect(),
            vec![true; lower.len()],
        ];
        let chosen = telling.into_iter().find(|chosen| chosen.contains(&true)).unwrap_or_default();
        question.is_exact = !text.trim_end().ends_with('?');
        question.is_bare = question.is_exact && chosen.iter().all(|chosen| *chosen);
        let mut asked: BTreeMap<Vec<String>, QueryTerm> = BTreeMap::new();
        for (word, _) in all.iter().zip(chosen).filter(|(_, chosen)| *chosen) {
            for terms in term_alternatives(word, language, reader) {
                let one = asked.entry(terms.clone()).or_insert_with(|| QueryTerm {
                    word: strip_possessive(&word.lower).to_owned(),
                    terms,
                    count: 0,
                });
                one.count += 1;
            }
        }
        question.terms = asked.into_values().collect();
        question.terms.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.word.cmp(&b.word)));
        question.terms.truncate(MAX_TERMS);

        let says = |phrase: &[&str]| lower.windows(phrase.len()).any(|window| window == phrase);
        let deed =
            lower.windows(2).any(|pair| pair[0] == "you" && ASSISTANT_VERBS.contains(&pair[1]));
        let before = lower.windows(2).any(|pair| {
            ["our", "previous", "last", "earlier"].contains(&pair[0])
                && ["conversation", "chat", "discussion", "session"].contains(&pair[1])
        });
        let recalls = deed
            || before
            || says(&["remind", "me"])
            || says(&["did", "you"])
            || says(&["you", "had"]);
        question.of_assistant = deed
            || before
            || says(&["did", "you"])
            || says(&["you", "had"])
            || lower.windows(2).any(|pair| {
                pair[0] == "your"
                    && ["advice", "answer", "list", "recommendation", "suggestion"]
                        .contains(&pair[1])
            });
        let opens = lower.first().is_some_and(|first| QUESTION_OPENERS.contains(first));
        let sentences = text
            .split_inclusive(['.', '!', '?'])
            .filter(|sentence| sentence.chars().any(char::is_alphanumeric))
            .count();
        // A few bare words are a lookup.
        let is_lookup = lower.len() <= 12 && sentences <= 1;
        question.for_fact = is_lookup
            || text.trim_end().ends_with('?')
                && (recalls || (lower.len() <= 30 && opens && sentences <= 2));
        let asks_state = question.for_fact
            && text.trim_end().ends_with('?')
            && (lower.iter().take(6).any(|word| PRESENT_VERBS.contains(word))
                || all.first().is_some_and(|first| first.lower.ends_with("'s"))
                || lower.first().is_some_and(|first| {
                    ["how", "what", "where", "which", "who", "whom", "whose"].contains(first)
                }))
            && !lower.iter().any(|word| {
                PAST_WORDS.contains(word)
                    || word.len() > 4 && word.ends_with("ed") && !STATE_PARTICIPLES.contains(word)
            })
            && question.times.is_empty();
        question.for_newest = asks_state
            || lower.iter().any(|word| NEWEST_WORDS.contains(word))
            || says(&["right", "now"])
            || says(&["these", "days"]);
        if !question.for_fact {
            // A prompt that continues work is about now: a time in it is no search range, and its
            // quotes are prose.
            question.times.clear();
            question.phrases.clear();
        }
        question.spoken = first_person_form(text, &all, |word| called(word).is_some());
        question
    }
}

/// The last question of a text, unless it is too long.
pub fn last_question(text: &str) -> Option<&str> {
    const MARKS: [char; 2] = ['?', '？'];
    let mut sentences =
        text.split_inclusive(['.', '!', '?', '\n', '。', '！', '？']).map(str::trim);
    sentences.rfind(|sentence| {
        sentence.ends_with(MARKS)
            && sentence.len() > MARKS[1].len_utf8()
            && sentence.len() <= MAX_LAST_QUESTION_BYTES
    })
}

/// The beginning of a text, at most `bytes` long, cut at a character boundary.
fn truncate_bytes(text: &str, bytes: usize) -> &str {
    &text[..text.floor_char_boundary(bytes.min(text.len()))]
}

/// A word without a possessive `'s`.
fn strip_possessive(word: &str) -> &str {
    word.strip_suffix("'s").unwrap_or(word)
}

/// Whether a name is a person's; some programs put a role where a name belongs.
pub fn is_person_name(name: &str) -> bool {
    !["user", "assistant", "system", "human", "ai", "bot", "tool", "state", ""]
        .contains(&name.trim().to_lowercase().as_str())
}

/// Whether a word is that name or a part of it.
fn matches_name(name: &str, word: &str) -> bool {
    is_person_name(name)
        && word.chars().count() > 1
        && name
            .split(|c: char| !c.is_alphanumeric())
            .any(|part| part.chars().flat_map(char::to_lowercase).eq(word.chars()))
}

/// The index terms a word of a question may stand for. A compound word gives one list per part.
fn term_alternatives(
    word: &TextWord<'_>,
    language: Option<Language>,
    reader: &Analyzer,
) -> Vec<Vec<String>> {
    let languages = match &language {
        Some(language) => std::slice::from_ref(language),
        None => Language::ALL,
    };
    let mut readings: Vec<Vec<String>> =
        languages.iter().map(|&language| reader.word_terms(word, language)).collect();
    let most = readings.iter().map(Vec::len).max().unwrap_or(0);
    (0..most)
        .map(|at| {
            let mut terms: Vec<String> = readings
                .iter_mut()
                .filter_map(|reading| reading.get_mut(at))
                .map(std::mem::take)
                .collect();
            terms.sort_unstable();
            terms.dedup();
            terms
        })
        .collect()
}

/// The phrases in double quotes that contain a word.
fn quoted_phrases(text: &str) -> Vec<String> {
    let marks = |c: char| matches!(c, '"' | '“' | '”' | '„');
    let pieces: Vec<&str> = text.split(marks).collect();
    let inner = pieces.iter().enumerate().filter(|(at, _)| at % 2 == 1 && at + 1 < pieces.len());
    inner.map(|(_, piece)| normalize_phrase(piece)).filter(|piece| !piece.is_empty()).collect()
}

/// A text normalized for phrase matching: words in lower case, separated by one space.
pub fn normalize_phrase(text: &str) -> String {
    tokenize(text).into_iter().map(|word| word.lower).collect::<Vec<_>>().join(" ")
}

/// The times a question names, each widened a little because people remember roughly.
fn named_times(text: &str, all: &[TextWord<'_>], today: Date) -> Vec<Days> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < all.len() {
        let longest = MAX_TIME_WORDS.min(all.len() - at);
        let read = (1..=longest).rev().find_map(|many| {
            Some((many, parse_time(text, &all[..at], &all[at..at + many], today)?))
        });
        match read {
            Some((many, days)) => {
                found.extend(days);
                at += many;
            }
            None => at += 1,
        }
    }
    found
}

/// The days that these words name, if any. A month or season without a year may be that of any
/// recent year.
fn parse_time(
    text: &str,
    before: &[TextWord<'_>],
    window: &[TextWord<'_>],
    today: Date,
) -> Option<Vec<Days>> {
    let (first, last) = (window.first()?, window.last()?);
    let written = &text[first.at..last.at + last.text.len()];
    let lower: Vec<&str> = window.iter().map(|word| strip_possessive(&word.lower)).collect();
    let is_number = |word: &str| word.bytes().all(|byte| byte.is_ascii_digit());
    let is_year = |word: &str| {
        word.len() == 4 && is_number(word) && (word.starts_with("19") || word.starts_with("20"))
    };
    let begins_with = |word: &str| lower.first() == Some(&word);
    if let [word] = lower[..] {
        let mut before =
            before.iter().rev().map(|word| word.lower.as_str()).filter(|word| *word != "the");
        // `in may` and `since march` name a month, `you may march` does not.
        let is_placed = before.next().is_some_and(|word| TIME_PREPOSITIONS.contains(&word));
        let is_part =
            AMBIGUOUS_TIME_WORDS.contains(&word) && !(is_placed && recurs_every_year(word));
        let is_ordinal = word.starts_with(|c: char| c.is_ascii_digit()) && !is_year(word);
        if is_part || is_ordinal {
            return None;
        }
    }
    // The first and last words must belong to the time, or a shorter window matches.
    let dangles =
        |word: &str| Language::English.is_function_word(word) && !["before", "may"].contains(&word);
    let opens = begins_with("this")
        || (begins_with("a") || begins_with("an")) && lower.last() == Some(&"ago");
    if !opens && lower.first().is_some_and(|word| dangles(word))
        || lower.last().is_some_and(|word| dangles(word))
    {
        return None;
    }
    // Numbers make a date only in a date format.
    if lower.len() > 1
        && lower.iter().all(|word| is_number(word))
        && (lower.len() > 3 || written.contains([' ', ':', ',']))
    {
        return None;
    }
    let of_any_year = lower.iter().any(|word| recurs_every_year(word))
        && !lower.iter().any(|word| {
            is_year(word) || ["last", "next", "this", "past", "previous"].contains(word)
        });
    let years = if of_any_year { MAX_YEARS_BACK } else { 1 };
    let found = (0..years).map_while(|ago| {
        let when = natural_date::parse(written, today.saturating_sub(jiff::Span::new().years(ago)))
            .ok()?;
        let around = match when {
            NaturalDate::Day(_) => 1,
            NaturalDate::Week(_) => 4,
            NaturalDate::Month(_) => 3,
            NaturalDate::Year(_) | NaturalDate::Days(_) => 0,
        };
        let span = when.days();
        let around = jiff::Span::new().days(around);
        Some(Days {
            first: span.first.checked_sub(around).ok()?,
            last: span.last.checked_add(around).ok()?,
        })
    });
    Some(found.collect::<Vec<_>>()).filter(|found| !found.is_empty())
}

/// A question about a named person in the first person: what they said about themselves.
fn first_person_form(text: &str, all: &[TextWord<'_>], is_voice: impl Fn(&str) -> bool) -> String {
    let mut said = String::with_capacity(text.len());
    let mut from = 0;
    for word in all {
        let own = strip_possessive(&word.lower);
        if is_voice(own) {
            said.push_str(&text[from..word.at]);
            said.push_str(if own == word.lower { "I" } else { "my" });
            from = word.at + word.text.len();
        }
    }
    said.push_str(&text[from..]);
    collapse_spaces(&said)
}

/// Whether a word names a month or a season.
fn recurs_every_year(word: &str) -> bool {
    lexicon::month(word).is_some() || WordList::Season.contains(word)
}

#[cfg(test)]
mod tests {
    use jiff::civil::date;

    use super::*;

    fn read(text: &str) -> Question {
        let voices =
            [(1, "Caroline".to_owned()), (2, "Mel Ann".to_owned()), (3, "assistant".to_owned())];
        Question::parse(text, &voices, date(2026, 2, 13), &Analyzer::default())
    }

    fn search_words(text: &str) -> Vec<String> {
        let mut found: Vec<String> = read(text).terms.into_iter().map(|asked| asked.word).collect();
        found.sort();
        found
    }

    // Y9
    #[test]
    fn only_telling_words_are_looked_for() {
        for (text, words) in [
            ("What did Caroline say about the adoption agency?", &["adoption", "agency"][..]),
            ("remind me what we talked about", &["remind", "talked"]),
            ("What?", &["what"]),
            ("who are you", &["are", "who", "you"]),
            ("Wann hat er das Auto verkauft?", &["auto", "verkauft"]),
            ("🎉", &["🎉"]),
            ("", &[]),
            ("()[]{}*\"", &[]),
        ] {
            assert_eq!(search_words(text), words, "{text}");
        }
        assert_eq!(
            read("dance, dances and dancing")
                .terms
                .iter()
                .map(|asked| asked.count)
                .collect::<Vec<_>>(),
            [3]
        );
        assert!(read(&"word ".repeat(50_000)).terms.len() == 1);
    }

    // Y9
    #[test]
    fn people_and_intentions_are_seen() {
        let question = read("What did Mel's friend and Caroline paint?");
        assert_eq!(
            (question.voices.as_slice(), question.for_fact, question.of_assistant),
            (&[2, 1][..], true, false)
        );
        assert_eq!(question.spoken, "What did my friend and I paint?");
        assert!(read("Can you remind me which hotel you recommended?").of_assistant);
        assert!(!read("Okay, let's go on with the plan. I finished the first part and it was fine. What is next?").for_fact);
        assert!(read("Where do I currently live?").for_newest);
        assert!(read("What is the guest network called?").for_newest);
        assert!(!read("Where did I live?").for_newest);
        assert!(
            read("zyzzyva").is_bare
                && !read("zyzzyva?").is_bare
                && !read("where is the zyzzyva").is_bare
        );
        assert!(
            read("the \"Four Seasons\"").is_exact
                && !read("Do I like \"The Four Seasons\"?").is_exact
        );
        assert_eq!(
            read("where does it say \"Exact Words, here\" and \"more").phrases,
            ["exact words here"]
        );
    }

    // Y9
    #[test]
    fn the_last_question_is_found() {
        for (text, asked) in [
            ("Nice. Where did you go? And when?! Tell me.", Some("And when?")),
            ("どこに行きましたか？", Some("どこに行きましたか？")),
            ("No question here.", None),
            ("?", None),
            ("", None),
        ] {
            assert_eq!(last_question(text), asked, "{text}");
        }
        assert_eq!(last_question(&format!("{}?", "so ".repeat(200))), None);
    }

    // Y9
    #[test]
    fn times_are_found_where_they_stand() {
        for (text, spans) in [
            ("What did I do yesterday?", &["2026-02-11..2026-02-13"][..]),
            ("what happened in May 2023 at work", &["2023-04-28..2023-06-03"]),
            ("two weeks ago I bought a bike", &["2026-01-22..2026-02-05"]),
            ("You may march on", &[]),
            ("I have 3 cats and 20 dogs", &[]),
            ("Who won in 2025?", &["2025-01-01..2025-12-31"]),
            (
                "on 7 May 2023 and on 2023-06-01",
                &["2023-05-06..2023-05-08", "2023-05-31..2023-06-02"],
            ),
            ("when did we meet?", &[]),
            ("Who came on May 3, 2025?", &["2025-05-02..2025-05-04"]),
            ("How much did I earn this month?", &["2026-01-29..2026-03-03"]),
            ("What did I take part in a week ago?", &["2026-01-29..2026-02-12"]),
            ("Who moved in the last few months?", &["2025-11-14..2026-02-13"]),
            ("How was my 18th birthday?", &[]),
        ] {
            let found: Vec<String> = read(text)
                .times
                .iter()
                .map(|days| format!("{}..{}", days.first, days.last))
                .collect();
            assert_eq!(found, spans, "{text}");
        }
        // The memory decides which year is meant.
        for text in
            ["Where was I in May?", "what did I plant since march", "Who came in the spring?"]
        {
            let times = read(text).times;
            assert_eq!(times.len(), usize::try_from(MAX_YEARS_BACK).unwrap(), "{text}: {times:?}");
            assert!(
                times.windows(2).all(|pair| pair[1].last < pair[0].first || text.contains("since")),
                "{text}: {times:?}"
            );
        }
    }

    proptest::proptest! {
        // Y9
        #[test]
        fn any_question_is_read_without_a_panic(text in "\\PC{0,300}") {
            let _ = read(&text);
        }
    }
}
