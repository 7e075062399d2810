//! Prompt relevance: which of a few statements relate to a prompt, by keywords alone.
//!
//! Search ranks everything. This decides whether a statement is worth a line beside a prompt that
//! did not ask for it, so it prefers precision: one shared word must be rare, several may be
//! common.

use std::collections::HashMap;

use super::language::Language;
use super::question::{QueryTerm, Question};
use super::terms::Analyzer;

/// With fewer statements than this, word frequencies say nothing.
const MIN_STATEMENTS: usize = 50;
/// A single shared word must occur in at most this many statements.
const MAX_STATEMENTS_PER_RARE_WORD: usize = 3;
/// The minimum summed weight when several words are shared.
const MIN_SHARED_WEIGHT: f32 = 3.5;
/// A word that begins words in more than one of this many statements is ignored.
const COMMON_WORD_DIVISOR: usize = 5;
/// The shortest word that counts.
const MIN_WORD_CHARS: usize = 3;

/// A statement that relates to a prompt.
#[derive(Debug, Clone, PartialEq)]
pub struct RelevantStatement {
    /// The index of the statement.
    pub at: usize,
    /// The score; comparable within one prompt only.
    pub score: f32,
    /// The shared words as the prompt has them.
    pub words: Vec<String>,
}

/// The statements that relate to a question, the most relevant first; ties go to the later
/// statement.
pub fn relevant_statements(
    question: &Question,
    statements: &[String],
    reader: &Analyzer,
) -> Vec<RelevantStatement> {
    let telling: Vec<&QueryTerm> =
        question.terms.iter().filter(|asked| is_informative(&asked.word)).collect();
    // Most statements share no informative word with a prompt, so a cheap prefix check comes
    // before tokenizing.
    let lower: Vec<String> = statements.iter().map(|statement| statement.to_lowercase()).collect();
    let begins = |prefix: &str| lower.iter().filter(|statement| statement.contains(prefix)).count();
    let common = (statements.len() / COMMON_WORD_DIVISOR).max(MIN_STATEMENTS);
    let mut widely = vec![0_usize; telling.len()];
    let mut prefixes: Vec<String> = Vec::new();
    for (word, asked) in telling.iter().enumerate() {
        for prefix in asked.terms.iter().map(|term| stem_prefix(term)) {
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
    // Not every statement with a common word is inspected; the estimate is good enough.
    let mut among = vec![0_usize; telling.len()];
    shared.iter().flat_map(|(_, words)| words).for_each(|&word| among[word] += 1);
    among.iter_mut().zip(widely).for_each(|(among, widely)| *among = (*among).max(widely));
    let all = statements.len().max(MIN_STATEMENTS);
    #[expect(clippy::cast_precision_loss, reason = "counts of statements")]
    let rarity = |word: usize| {
        (1.0 + (all.saturating_sub(among[word]) as f32 + 0.5) / (among[word] as f32 + 0.5)).ln()
    };
    let mut found: Vec<RelevantStatement> = shared
        .into_iter()
        .filter_map(|(at, words)| {
            let score: f32 = words.iter().map(|&word| rarity(word)).sum();
            let enough = match words.as_slice() {
                // A number alone is not informative.
                [one] => {
                    among[*one] <= MAX_STATEMENTS_PER_RARE_WORD
                        && telling[*one].word.chars().count() >= MIN_WORD_CHARS
                }
                _ => score >= MIN_SHARED_WEIGHT,
            };
            enough.then(|| RelevantStatement {
                at,
                score,
                words: words.iter().map(|&word| telling[word].word.clone()).collect(),
            })
        })
        .collect();
    found.sort_by(|a, b| b.score.total_cmp(&a.score).then(b.at.cmp(&a.at)));
    found
}

fn is_informative(word: &str) -> bool {
    let chars = word.chars().count();
    let short = chars < MIN_WORD_CHARS
        && word.is_ascii()
        && !word.bytes().any(|byte| byte.is_ascii_digit());
    !short && !Language::English.is_function_word(word)
}

/// A prefix that all forms of a word share, as far as it can be found without the language.
fn stem_prefix(term: &str) -> String {
    let chars = term.chars().count();
    term.chars().take(chars.saturating_sub(2).max(2)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::civil::date;
    use proptest::prelude::*;

    fn relevant_positions(prompt: &str, statements: &[&str]) -> Vec<usize> {
        let reader = Analyzer::default();
        let question = Question::parse(prompt, &[], date(2026, 2, 13), &reader);
        let statements: Vec<String> = statements.iter().map(|text| (*text).to_owned()).collect();
        relevant_statements(&question, &statements, &reader).into_iter().map(|one| one.at).collect()
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
        assert_eq!(relevant_positions("which port did we pick?", &known), [0]);
        assert_eq!(relevant_positions("who looks at a policy?", &known), [1]);
        assert_eq!(relevant_positions("was liefert der Müller?", &known), [2]);
        assert_eq!(relevant_positions("can we deploy this today?", &known), [3]);
        for silent in [
            "ok",
            "go on",
            "do it, please",
            "thanks!",
            "and then?",
            "what about the weather in Lisbon",
            "",
        ] {
            assert_eq!(relevant_positions(silent, &known), [0_usize; 0], "{silent}");
        }
    }

    #[test]
    fn a_word_that_stands_everywhere_is_not_enough() {
        let many: Vec<String> = (0..60).map(|n| format!("The project has part {n}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(relevant_positions("how is the project", &many), [0_usize; 0]);
        assert_eq!(relevant_positions("how is part 17 of the project", &many).first(), Some(&17));
    }

    proptest! {
        #[test]
        fn skimming_never_fails_and_leaves_out_what_shares_nothing(prompt in "\\PC{0,80}", statements in prop::collection::vec("\\PC{0,60}", 0..20)) {
            let texts: Vec<&str> = statements.iter().map(String::as_str).collect();
            for at in relevant_positions(&prompt, &texts) {
                prop_assert!(at < texts.len());
            }
        }
    }
}
