//! Scripts: which characters are written without spaces between words.
//!
//! The ranges stand here once. What a caller treats as a word in such a script differs, and so does
//! the class it asks for: stored hashes of phrases take one Chinese or Japanese character per word,
//! search takes pairs of characters in every script without spaces.

use unicode_normalization::char::is_combining_mark;

/// Whether a character is Chinese or Japanese: Han, Hiragana, Katakana.
pub fn is_han_or_kana(c: char) -> bool {
    matches!(c, '\u{3040}'..='\u{30ff}' | '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}')
        || matches!(c, '\u{f900}'..='\u{faff}' | '\u{20000}'..='\u{3ffff}')
}

/// Whether a character is a Korean syllable. Korean has spaces, and attaches endings to its words.
pub fn is_hangul(c: char) -> bool {
    matches!(c, '\u{ac00}'..='\u{d7af}')
}

/// Whether a character is Thai, Lao, Burmese or Khmer.
pub fn is_southeast_asian(c: char) -> bool {
    matches!(c, '\u{0e00}'..='\u{0eff}' | '\u{1000}'..='\u{109f}' | '\u{1780}'..='\u{17ff}')
}

/// Whether a character belongs to a script in which spaces do not tell where a word begins: those
/// without spaces, and Korean.
pub fn is_unspaced(c: char) -> bool {
    is_han_or_kana(c) || is_hangul(c) || is_southeast_asian(c)
}

/// Whether a character belongs to the letter before it: accents, vowel signs.
pub fn is_mark(c: char) -> bool {
    is_combining_mark(c)
}

/// Whether a character belongs to the Cyrillic script.
pub fn is_cyrillic(c: char) -> bool {
    ('\u{400}'..='\u{52f}').contains(&c)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_script_has_its_class() {
        for c in "我買駅きカ豈𠀀".chars() {
            assert!(is_han_or_kana(c) && is_unspaced(c) && !is_hangul(c), "{c}");
        }
        assert!(is_hangul('회') && is_unspaced('회') && !is_han_or_kana('회'));
        for c in "กລကខ".chars() {
            assert!(is_southeast_asian(c) && is_unspaced(c), "{c}");
        }
        for c in "aäжéαअع1 🎉、".chars() {
            assert!(!is_unspaced(c), "{c}");
        }
        assert!(is_mark('\u{301}') && !is_mark('e') && is_cyrillic('ж') && !is_cyrillic('z'));
    }
}
