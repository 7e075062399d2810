//! Normal forms: texts that differ only in case, accents, composition or spacing become equal.

use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::is_combining_mark;

/// The characters in Unicode's compatibility composition (NFKC): `ﬁ` is `fi`, `①` is `1`.
pub fn compose(text: &str) -> impl Iterator<Item = char> {
    text.nfkc()
}

/// Composed and in lower case.
pub fn fold_case(text: &str) -> String {
    text.nfkc().flat_map(char::to_lowercase).collect()
}

/// The characters decomposed (NFKD), without accents and other combining marks: `é` is `e`.
pub fn without_marks(chars: impl Iterator<Item = char>) -> impl Iterator<Item = char> {
    chars.nfkd().filter(|&c| !is_combining_mark(c))
}

/// The text without accents and other combining marks; `ß` is `ss`.
pub fn fold_accents(text: &str) -> std::borrow::Cow<'_, str> {
    if text.is_ascii() {
        return text.into();
    }
    let mut folded = String::with_capacity(text.len());
    for c in without_marks(text.chars()) {
        if c == 'ß' { folded.push_str("ss") } else { folded.push(c) }
    }
    folded.into()
}

/// One word in lower case, without accents.
pub fn fold_word(word: &str) -> String {
    let lower = word.to_lowercase();
    if lower.is_ascii() { lower } else { fold_accents(&lower).into_owned() }
}

/// The words separated by single spaces.
pub fn collapse_spaces(text: &str) -> String {
    let mut collapsed = String::with_capacity(text.len());
    for word in text.split_whitespace() {
        if !collapsed.is_empty() {
            collapsed.push(' ');
        }
        collapsed.push_str(word);
    }
    collapsed
}

/// A comparison key: texts with the same key differ only in case, Unicode composition, white space
/// and closing punctuation.
pub fn sameness_key(text: &str) -> String {
    let mut key = collapse_spaces(&fold_case(text));
    key.truncate(key.trim_end_matches(['.', '!', ' ']).len());
    key
}

/// A name as a key: lower-case words joined by `_`, letters and digits of any script.
pub fn entity_key(name: &str) -> String {
    let folded = fold_case(name);
    let words: Vec<&str> =
        folded.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).collect();
    words.join("_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sameness_ignores_case_blanks_and_closing_marks() {
        assert_eq!(sameness_key("  The pilot  starts. "), sameness_key("the pilot starts"));
        assert_eq!(sameness_key("cafe\u{301}"), sameness_key("café"));
        assert_eq!(sameness_key("so be it ! ."), "so be it");
        assert_ne!(sameness_key("Feb 15"), sameness_key("Feb 16"));
        assert_eq!(entity_key("Apollo Eleven!"), "apollo_eleven");
        assert_eq!(entity_key("../../etc"), "etc");
    }

    #[test]
    fn accents_and_case_do_not_matter_to_a_folded_word() {
        for (word, folded) in
            [("Straße", "strasse"), ("ÉTÉ", "ete"), ("ﬁle①", "file1"), ("plain", "plain")]
        {
            assert_eq!(fold_word(word), folded);
        }
        assert_eq!(fold_accents("Zürich"), "Zurich");
        assert_eq!(collapse_spaces(" a \n\t b "), "a b");
    }
}
