//! Text normalized for phrase matching: lower case, contractions expanded, quotations removed.

use crate::lexicon::WordList;

/// A sentence's words separated by single spaces, with one at either end: ` we have not decided `.
pub fn normalize_sentence(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push(' ');
    for word in lowercase_words(&strip_quotations(text)) {
        let (stem, rest) = expand_contraction(&word);
        out.push_str(stem);
        out.push_str(rest);
        out.push(' ');
    }
    out
}

/// The words of a text in lower case, without surrounding punctuation.
pub fn lowercase_words(text: &str) -> Vec<String> {
    text.split(|c: char| c.is_whitespace() || matches!(c, '—' | '–' | '…' | ';' | '|'))
        .map(|word| {
            word.trim_matches(|c: char| !c.is_alphanumeric())
                .replace(['’', '‘', '`'], "'")
                .to_lowercase()
        })
        .filter(|word| !word.is_empty())
        .collect()
}

/// Expands a contraction into its two words.
pub fn expand_contraction(word: &str) -> (&str, &'static str) {
    match word {
        "can't" => return ("can", "not"),
        "won't" => return ("will", " not"),
        "let's" => return ("let", " us"),
        "cant" => return ("can", "not"),
        "dont" => return ("do", " not"),
        "im" => return ("i", " am"),
        _ => {}
    }
    [
        ("n't", " not"),
        ("'ll", " will"),
        ("'ve", " have"),
        ("'re", " are"),
        ("'m", " am"),
        ("'d", " would"),
    ]
    .iter()
    .find_map(|(ending, full)| Some((word.strip_suffix(ending)?, *full)))
    .unwrap_or((word, ""))
}

/// Blanks out text between quotation marks or backticks: it quotes someone else.
fn strip_quotations(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(open) = rest.find(['"', '“', '„', '«', '`']) {
        let Some(c) = rest[open..].chars().next() else { break };
        let inner = &rest[open + c.len_utf8()..];
        let closes = |closing: char| match c {
            '“' => closing == '”',
            '„' => matches!(closing, '“' | '”'),
            '«' => closing == '»',
            other => closing == other,
        };
        let Some((at, closing)) = inner.char_indices().find(|(_, closing)| closes(*closing)) else {
            break;
        };
        out.push_str(&rest[..open]);
        out.push_str(" _ ");
        rest = &inner[at + closing.len_utf8()..];
    }
    out.push_str(rest);
    out
}

/// Whether the normalized text contains one of the phrases.
pub fn has_phrase(flat: &str, phrases: &[&str]) -> bool {
    phrases.iter().any(|phrase| find_phrase(flat, phrase).is_some())
}

/// Whether the normalized text contains a phrase of the list, in any language.
pub fn has_listed_phrase(flat: &str, list: WordList) -> bool {
    list.iter().any(|phrase| find_phrase(flat, phrase).is_some())
}

/// The position of a phrase of whole words in the normalized text.
pub fn find_phrase(flat: &str, phrase: &str) -> Option<usize> {
    flat.match_indices(phrase)
        .map(|(at, _)| at)
        .find(|&at| flat[..at].ends_with(' ') && flat[at + phrase.len()..].starts_with(' '))
}

/// If the normalized text begins with one of the phrases, the text after it.
pub fn strip_phrase<'a>(flat: &'a str, phrases: &[&str]) -> Option<&'a str> {
    phrases.iter().find_map(|phrase| {
        flat.strip_prefix(' ')?.strip_prefix(phrase).filter(|rest| rest.starts_with(' '))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_compared_written_out_and_without_quotations() {
        for (text, expected) in [
            ("We haven’t decided!", " we have not decided "),
            ("I'll go, can't stay", " i will go cannot stay "),
            ("He said “you must” go", " he said _ go ".replace('_', "").as_str()),
            ("use `never` here", " use here "),
            ("an \"open one", " an open one "),
            ("", " "),
        ] {
            assert_eq!(
                normalize_sentence(text).split_whitespace().collect::<Vec<_>>(),
                expected.split_whitespace().collect::<Vec<_>>(),
                "{text}"
            );
        }
        assert!(
            has_phrase(" we decided on it ", &["decided on"])
                && !has_phrase(" we undecided on ", &["decided on"])
        );
        assert_eq!(strip_phrase(" never push ", &["always", "never"]), Some(" push "));
    }
}
