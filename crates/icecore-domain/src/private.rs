//! Private text, which is not captured: `#private` excludes a whole turn, `<private>…</private>` a
//! part of it.

use std::borrow::Cow;

/// The tag that excludes a whole turn. It counts only as the first or the last word of a prompt:
/// elsewhere it is more likely part of the subject, such as a private field of a class.
pub const PRIVATE_TURN_TAG: &str = "#private";
const OPEN_TAG: &str = "<private>";
const CLOSE_TAG: &str = "</private>";

/// Whether a prompt and its answer are excluded.
pub fn is_private_turn(prompt: &str) -> bool {
    let is = |word: &str| {
        word.trim_end_matches(['.', ',', ';', ':', '!']).eq_ignore_ascii_case(PRIVATE_TURN_TAG)
    };
    let mut words = prompt.split_whitespace();
    words.next().is_some_and(is) || words.next_back().is_some_and(is)
}

/// The text without its private parts, and their number. A part without a closing tag extends to
/// the end.
pub fn strip_private_parts(text: &str) -> (Cow<'_, str>, usize) {
    let find = |from: usize, what: &str| {
        let bytes = text.as_bytes().get(from..)?;
        // Tags are case-insensitive.
        memchr::memchr_iter(b'<', bytes)
            .find(|&at| {
                bytes
                    .get(at..at + what.len())
                    .is_some_and(|found| found.eq_ignore_ascii_case(what.as_bytes()))
            })
            .map(|at| from + at)
    };
    let (mut kept, mut from, mut parts) = (String::new(), 0, 0);
    while let Some(open) = find(from, OPEN_TAG) {
        kept.push_str(&text[from..open]);
        from = find(open, CLOSE_TAG).map_or(text.len(), |close| close + CLOSE_TAG.len());
        parts += 1;
    }
    if parts == 0 {
        return (Cow::Borrowed(text), 0);
    }
    kept.push_str(&text[from..]);
    (Cow::Owned(kept), parts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_word_counts_at_either_end_of_a_prompt() {
        for turn in [
            "#private",
            "#private my salary is 5",
            "my salary is 5 #private",
            "My salary\n#PRIVATE.",
            "  #Private: x",
        ] {
            assert!(is_private_turn(turn), "{turn}");
        }
        for other in [
            "",
            "class A { #private = 1 } is a field",
            "#privately",
            "private",
            "the #private field",
            "##private x",
        ] {
            assert!(!is_private_turn(other), "{other}");
        }
    }

    #[test]
    fn parts_are_taken_out_and_the_rest_stays() {
        for (text, kept, parts) in [
            ("a <private>b</private> c", "a  c", 1),
            ("<Private>b</PRIVATE>c<private>d", "c", 2),
            ("é<private>ü</private>ß", "éß", 1),
            ("a </private> b", "a </private> b", 0),
            ("a < private >", "a < private >", 0),
        ] {
            assert_eq!(strip_private_parts(text), (kept.into(), parts), "{text}");
        }
    }

    proptest! {
        #[test]
        fn nothing_between_the_marks_is_left(before in "[^<]*", secret in "[a-z]{8,20}", after in "[A-Z0-9]*") {
            let text = format!("{before}<private>{secret}</private>{after}");
            prop_assert_eq!(strip_private_parts(&text), (format!("{before}{after}").into(), 1));
        }
    }
}
