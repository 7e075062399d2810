//! Skimming: which of a few statements have to do with a prompt, by their words alone and at once.
//!
//! Search ranks everything there is; this decides whether a statement is worth a line beside a
//! prompt that did not ask for it. So it would rather stay silent: one shared word has to be a rare
//! one, several may be common.

use std::collections::HashMap;

use super::language::Language;
use super::question::{Asked, Question};
use super::terms::Reader;

/// Fewer statements than this say nothing about how rare a word is.
const LEAST_STATEMENTS: usize = 50;
/// A single shared word must stand in at most so many statements.
const RARE: usize = 3;
/// What several shared words must come to.
const ENOUGH: f32 = 3.5;
/// What more than one statement in so many begins to say is no reason to look at any of them.
const COMMON_SHARE: usize = 5;
/// The shortest word that counts.
const LEAST_CHARS: usize = 3;

/// A statement that has to do with a prompt.
#[derive(Debug, Clone, PartialEq)]
pub struct Relevant {
    /// Which of the statements.
    pub at: usize,
    /// How much; to be compared within one prompt only.
    pub score: f32,
    /// The words they share, as they were said.
    pub words: Vec<String>,
}

/// The statements that have to do with a question, the most relevant first; of equal ones the
/// later.
pub fn relevant(question: &Question, statements: &[String], reader: &Reader) -> Vec<Relevant> {
    let telling: Vec<&Asked> =
        question.asked.iter().filter(|asked| is_telling(&asked.word)).collect();
    // Most statements have nothing telling in common with a prompt, and need not be taken apart to
    // see it.
    let lower: Vec<String> = statements.iter().map(|statement| statement.to_lowercase()).collect();
    let begins = |prefix: &str| lower.iter().filter(|statement| statement.contains(prefix)).count();
    let common = (statements.len() / COMMON_SHARE).max(LEAST_STATEMENTS);
    let mut widely = vec![0_usize; telling.len()];
    let mut prefixes: Vec<String> = Vec::new();
    for (word, asked) in telling.iter().enumerate() {
        for prefix in asked.terms.iter().map(|term| prefix(term)) {
            match begins(&prefix) {
                count if count > common => widely[word] = widely[word].max(count),
                _ => prefixes.push(prefix),
            }
        }
    }
    let mut shared: Vec<(usize, Vec<usize>)> = Vec::new();
    for (at, statement) in statements.iter().enumerate() {
        if statement.is_ascii()
            && !prefixes.iter().any(|prefix| lower[at].contains(prefix.as_str()))
        {
            continue;
        }
        let terms: HashMap<String, u32> = reader.terms(statement).counts.into_iter().collect();
        let words: Vec<usize> = (0..telling.len())
            .filter(|&word| telling[word].terms.iter().any(|term| terms.contains_key(term)))
            .collect();
        if !words.is_empty() {
            shared.push((at, words));
        }
    }
    // Of a common word not every statement was looked at; how many seem to have it is near enough.
    let mut among = vec![0_usize; telling.len()];
    shared.iter().flat_map(|(_, words)| words).for_each(|&word| among[word] += 1);
    among.iter_mut().zip(widely).for_each(|(among, widely)| *among = (*among).max(widely));
    let all = statements.len().max(LEAST_STATEMENTS);
    #[expect(clippy::cast_precision_loss, reason = "counts of statements")]
    let rarity = |word: usize| {
        (1.0 + (all.saturating_sub(among[word]) as f32 + 0.5) / (among[word] as f32 + 0.5)).ln()
    };
    let mut found: Vec<Relevant> = shared
        .into_iter()
        .filter_map(|(at, words)| {
            let score: f32 = words.iter().map(|&word| rarity(word)).sum();
            let enough = match words.as_slice() {
                // A number alone says nothing.
                [one] => among[*one] <= RARE && telling[*one].word.chars().count() >= LEAST_CHARS,
                _ => score >= ENOUGH,
            };
            enough.then(|| Relevant {
                at,
                score,
                words: words.iter().map(|&word| telling[word].word.clone()).collect(),
            })
        })
        .collect();
    found.sort_by(|a, b| b.score.total_cmp(&a.score).then(b.at.cmp(&a.at)));
    found
}

fn is_telling(word: &str) -> bool {
    let chars = word.chars().count();
    let short =
        chars < LEAST_CHARS && word.is_ascii() && !word.bytes().any(|byte| byte.is_ascii_digit());
    !short && !Language::English.is_function_word(word)
}

/// What every form of a word begins with, as far as that can be told without its language.
fn prefix(term: &str) -> String {
    let chars = term.chars().count();
    term.chars().take(chars.saturating_sub(2).max(2)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::civil::date;
    use proptest::prelude::*;

    fn found(prompt: &str, statements: &[&str]) -> Vec<usize> {
        let reader = Reader::default();
        let question = Question::read(prompt, &[], date(2026, 2, 13), &reader);
        let statements: Vec<String> = statements.iter().map(|text| (*text).to_owned()).collect();
        relevant(&question, &statements, &reader).into_iter().map(|one| one.at).collect()
    }

    // L8
    #[test]
    fn what_shares_a_telling_word_is_found_and_the_rest_is_not() {
        let known = [
            "The API listens on port 7431",
            "Policies are reviewed by Mira",
            "Der Müller liefert am Montag",
            "Never deploy on Fridays",
        ];
        assert_eq!(found("which port did we pick?", &known), [0]);
        assert_eq!(found("who looks at a policy?", &known), [1]);
        assert_eq!(found("was liefert der Müller?", &known), [2]);
        assert_eq!(found("can we deploy this today?", &known), [3]);
        for silent in [
            "ok",
            "go on",
            "do it, please",
            "thanks!",
            "and then?",
            "what about the weather in Lisbon",
            "",
        ] {
            assert_eq!(found(silent, &known), [0_usize; 0], "{silent}");
        }
    }

    #[test]
    fn a_word_that_stands_everywhere_is_not_enough() {
        let many: Vec<String> = (0..60).map(|n| format!("The project has part {n}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(found("how is the project", &many), [0_usize; 0]);
        assert_eq!(found("how is part 17 of the project", &many).first(), Some(&17));
    }

    proptest! {
        #[test]
        fn skimming_never_fails_and_leaves_out_what_shares_nothing(prompt in "\\PC{0,80}", statements in prop::collection::vec("\\PC{0,60}", 0..20)) {
            let texts: Vec<&str> = statements.iter().map(String::as_str).collect();
            for at in found(&prompt, &texts) {
                prop_assert!(at < texts.len());
            }
        }
    }
}
