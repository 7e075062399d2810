//! Highlighting: which words of a result match the question.

use std::collections::HashSet;

use super::language::Language;
use super::question::Question;
use icecore_text::scripts::is_unspaced;

use super::terms::{Analyzer, TextWord, tokenize};

/// An excerpt of at most about `room` bytes around the first match, split into alternating pieces:
/// unmatched text first, then matched text, and so on.
pub fn highlight(text: &str, question: &Question, reader: &Analyzer, room: usize) -> Vec<String> {
    let asked: HashSet<&str> =
        question.terms.iter().flat_map(|asked| asked.terms.iter().map(String::as_str)).collect();
    let found = tokenize(text);
    let language =
        Language::detect(found.iter().map(|word| word.lower.as_str())).unwrap_or(Language::English);
    let has = |word: &TextWord<'_>, language: Language| {
        reader.word_terms(word, language).iter().any(|term| asked.contains(term.as_str()))
    };
    // A few words are not enough to detect the language, so a word with a matching prefix is
    // tried in every language.
    let begins = |word: &TextWord<'_>| {
        question.terms.iter().any(|asked| has_same_prefix(&word.lower, &asked.word))
    };
    let mut spots: Vec<(usize, usize)> = found
        .iter()
        .filter(|word| {
            has(word, language)
                || (begins(word) && Language::ALL.iter().any(|&other| has(word, other)))
        })
        .flat_map(|word| highlight_spans(word, question))
        .collect();
    for phrase in question.phrases.iter().filter(|phrase| !phrase.is_empty()) {
        // Lowercasing changes the byte length of some letters. The offsets would be wrong then, so
        // the phrase stays unmarked.
        let lower = text.to_lowercase();
        if lower.len() == text.len() {
            spots.extend(
                lower.match_indices(phrase.as_str()).map(|(at, piece)| (at, at + piece.len())),
            );
        }
    }
    spots.sort_unstable();
    let (begin, end) = excerpt_range(text, spots.first().map_or(0, |spot| spot.0), room);
    let mut pieces = vec![String::new()];
    let mut at = begin;
    for (from, to) in spots {
        if to <= at || from >= end {
            continue;
        }
        let (from, to) = (from.max(at), to.min(end));
        let (Some(before), Some(hit)) = (text.get(at..from), text.get(from..to)) else { continue };
        // Matches that touch or are separated only by white space are merged.
        if before.trim().is_empty() && pieces.len() > 1 {
            if let Some(last) = pieces.last_mut().filter(|last| last.is_empty()) {
                let _ = last;
                pieces.pop();
            }
            if let Some(last) = pieces.last_mut() {
                last.push_str(before);
                last.push_str(hit);
            }
        } else {
            if let Some(last) = pieces.last_mut() {
                last.push_str(before);
            }
            pieces.push(hit.to_owned());
        }
        pieces.push(String::new());
        at = to;
    }
    if let (Some(last), Some(rest)) = (pieces.last_mut(), text.get(at..end)) {
        last.push_str(rest);
    }
    if begin > 0
        && let Some(first) = pieces.first_mut()
    {
        first.insert(0, '…');
    }
    if end < text.len()
        && let Some(last) = pieces.last_mut()
    {
        last.push('…');
    }
    pieces
}

/// The byte ranges to highlight in a matching word: the whole word, or in scripts without spaces
/// only the part that was asked for.
fn highlight_spans(word: &TextWord<'_>, question: &Question) -> Vec<(usize, usize)> {
    let within = |piece: &str| -> Vec<(usize, usize)> {
        word.text
            .match_indices(piece)
            .map(|(at, piece)| (word.at + at, word.at + at + piece.len()))
            .collect()
    };
    let asked = question
        .terms
        .iter()
        .filter(|_| word.text.chars().any(is_unspaced))
        .map(|asked| asked.word.as_str());
    let found: Vec<(usize, usize)> =
        asked.filter(|asked| !asked.is_empty()).flat_map(within).collect();
    if found.is_empty() { vec![(word.at, word.at + word.text.len())] } else { found }
}

/// Whether two words begin with the same letters.
fn has_same_prefix(one: &str, other: &str) -> bool {
    const PREFIX_CHARS: usize = 3;
    one.chars().take(PREFIX_CHARS).eq(other.to_lowercase().chars().take(PREFIX_CHARS))
}

/// The byte range of an excerpt of about `room` bytes around `place`, cut at white space where
/// possible.
fn excerpt_range(text: &str, place: usize, room: usize) -> (usize, usize) {
    if text.len() <= room {
        return (0, text.len());
    }
    let mut begin = text.floor_char_boundary(place.saturating_sub(room / 4));
    if begin > 0 {
        begin = text
            .get(begin..place)
            .and_then(|before| before.find(char::is_whitespace))
            .map_or(begin, |blank| begin + blank);
        begin += text.get(begin..).map_or(0, |rest| rest.len() - rest.trim_start().len());
    }
    let end = text.floor_char_boundary((begin + room).min(text.len()));
    let whole = text
        .get(begin..end)
        .filter(|_| end < text.len())
        .and_then(|piece| piece.rfind(char::is_whitespace));
    (begin, whole.map_or(end, |blank| begin + blank))
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::civil::date;

    fn check(text: &str, asked: &str, room: usize, expected: &[&str]) {
        let reader = Analyzer::default();
        let question = Question::parse(asked, &[], date(2026, 2, 13), &reader);
        assert_eq!(highlight(text, &question, &reader, room), expected, "{asked}");
    }

    // Y9
    #[test]
    fn the_words_that_were_asked_for_are_marked_in_turns() {
        check("we use port 7431", "which port", 300, &["we use ", "port", " 7431"]);
        check("ports are open", "port", 300, &["", "ports", " are open"]);
        check("nothing of it", "port", 300, &["nothing of it"]);
        check("", "port", 300, &[""]);
        check("the spare key lies there", "spare key", 300, &["the ", "spare key", " lies there"]);
        check("Größe: 7 Größen", "größe", 300, &["", "Größe", ": 7 ", "Größen", ""]);
        check(
            "say \"the very words\" twice",
            "\"the very words\"",
            300,
            &["say \"", "the very words", "\" twice"],
        );
        check("東京の天気", "東京", 300, &["", "東京", "の天気"]);
    }

    #[test]
    fn a_long_text_is_shown_where_the_first_hit_is() {
        let text = format!("{} the port is 7431 {}", "before ".repeat(40), "after ".repeat(40));
        let reader = Analyzer::default();
        let question = Question::parse("port", &[], date(2026, 2, 13), &reader);
        let pieces = highlight(&text, &question, &reader, 80);
        assert!(
            pieces[0].starts_with('…') && pieces[1] == "port" && pieces[2].ends_with('…'),
            "{pieces:?}"
        );
        assert!(pieces.concat().len() <= 80 + 6, "{pieces:?}");
    }
}
