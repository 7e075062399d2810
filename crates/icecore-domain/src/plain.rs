//! Making strangers' text safe to keep and to show.
//!
//! What is kept has no control characters, so that no terminal, page or diff can be made to lie; what
//! was taken out is counted and told.

use unicode_normalization::UnicodeNormalization;

/// Text that is fit to keep, and how many characters had to go for that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cleaned {
    /// The text: line breaks as `\n`, no blanks around it.
    pub text: String,
    /// Control, bidirectional-override and invisible tag characters that were taken out.
    pub removed: usize,
}

/// Cleans a text for keeping: CRLF becomes LF, control characters go, surrounding blanks go.
pub fn clean(text: &str) -> Cleaned {
    // Unicode's own line and paragraph separators become the line breaks they mean.
    let unified = text.replace("\r\n", "\n").replace(['\u{2028}', '\u{2029}'], "\n");
    let mut removed = 0;
    let kept: String = unified
        .chars()
        .filter(|&c| {
            let keep = !is_deceptive(c) || c == '\n' || c == '\t';
            removed += usize::from(!keep);
            keep
        })
        .collect();
    Cleaned { text: kept.trim().to_owned(), removed }
}

/// The text on one line for a table or a log, with nothing in it that a terminal would obey.
pub fn one_line(text: &str) -> String {
    let shown: String = text.chars().map(|c| if c == '\n' || c == '\t' { ' ' } else { c }).collect();
    visible(&shown)
}

/// The text for a terminal: what a terminal would obey or hide is shown as `\u{..}` instead.
pub fn visible(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if is_deceptive(c) && c != '\n' && c != '\t' {
            out.extend(c.escape_unicode());
        } else {
            out.push(c);
        }
    }
    out
}

/// Characters that change how text is shown without being seen: C0/C1 controls, bidirectional overrides,
/// line separators, and the tag block used to smuggle invisible instructions.
fn is_deceptive(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}' | '\u{200E}' | '\u{200F}' | '\u{2028}' | '\u{2029}')
        || matches!(c, '\u{E0000}'..='\u{E007F}' | '\u{FEFF}')
}

/// Two texts with the same key say the same thing but for case, accents' encoding, blanks and closing marks.
pub fn sameness_key(text: &str) -> String {
    let folded: String = text.nfkc().flat_map(char::to_lowercase).collect();
    let words: Vec<&str> = folded.split_whitespace().collect();
    words.join(" ").trim_end_matches(['.', '!', ' ']).to_owned()
}

/// A name as an entity: lower case words joined by `_`, letters and digits of any script.
pub fn entity_key(name: &str) -> String {
    let folded: String = name.nfkc().flat_map(char::to_lowercase).collect();
    let words: Vec<&str> = folded.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).collect();
    words.join("_")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(text: &str, kept: &str, removed: usize) {
        assert_eq!(clean(text), Cleaned { text: kept.into(), removed }, "{text:?}");
    }

    #[test]
    fn control_characters_go_and_are_counted() {
        check("  plain \r\n text ", "plain \n text", 0);
        check("a\u{1b}[31mred\u{0}", "a[31mred", 2);
        check("x\u{202e}gnp.exe", "xgnp.exe", 1);
        check("tag\u{e0041}", "tag", 1);
        check("one\u{2028}two", "one\ntwo", 0);
        check("tab\tand ünïcode 🎯", "tab\tand ünïcode 🎯", 0);
    }

    #[test]
    fn sameness_ignores_case_blanks_and_closing_marks() {
        assert_eq!(sameness_key("  The pilot  starts. "), sameness_key("the pilot starts"));
        assert_eq!(sameness_key("cafe\u{301}"), sameness_key("café"));
        assert_ne!(sameness_key("Feb 15"), sameness_key("Feb 16"));
        assert_eq!(entity_key("Apollo Eleven!"), "apollo_eleven");
        assert_eq!(entity_key("../../etc"), "etc");
    }

    proptest! {
        #[test]
        fn nothing_shown_can_steer_a_terminal(text in ".*") {
            let shown = one_line(&text);
            prop_assert!(!shown.chars().any(is_deceptive));
            let kept = clean(&text);
            prop_assert_eq!(clean(&kept.text).removed, 0);
        }
    }
}
