//! Sanitizes untrusted text for storage and display.
//!
//! Stored text has no control characters, so it cannot manipulate a terminal, page or diff; removed
//! characters are counted and reported. Text of a model is also normalized typographically: no
//! headings below `##`, no smart quotes, dashes or emoji.

use crate::markdown::{CodeFence, heading};
pub use crate::normalize::{entity_key, sameness_key};
use crate::scripts::is_mark;

/// A sanitized text, with the number of removed characters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CleanedText {
    /// Line breaks are `\n`; there is no surrounding white space.
    pub text: String,
    /// The number of removed control, bidirectional-override and invisible tag characters.
    pub removed: usize,
}

/// Sanitizes a text for storage: normalizes line breaks, removes control characters, and trims.
pub fn clean(text: &str) -> CleanedText {
    if is_printable_ascii(text) {
        return CleanedText { text: text.trim().to_owned(), removed: 0 };
    }
    // Unicode's line and paragraph separators become line breaks.
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
    CleanedText { text: kept.trim().to_owned(), removed }
}

/// The text on one line for a table or a log, without terminal control characters.
pub fn one_line(text: &str) -> String {
    if is_printable_ascii(text) {
        return text.replace(['\n', '\t'], " ");
    }
    let shown: String =
        text.chars().map(|c| if c == '\n' || c == '\t' { ' ' } else { c }).collect();
    escape_for_terminal(&shown)
}

/// The text for a terminal: control and invisible characters are shown as `\u{..}`.
pub fn escape_for_terminal(text: &str) -> String {
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

/// Whether the text is printable ASCII, so that there is nothing to sanitize.
fn is_printable_ascii(text: &str) -> bool {
    text.bytes().all(|byte| matches!(byte, b' '..=b'~' | b'\n' | b'\t'))
}

/// Invisible characters that change how text is displayed: control characters, bidirectional overrides,
/// line separators, and the tag block that can smuggle invisible instructions.
fn is_deceptive(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}' | '\u{200E}' | '\u{200F}' | '\u{2028}' | '\u{2029}')
        || matches!(c, '\u{E0000}'..='\u{E007F}' | '\u{FEFF}')
}

/// The text in the typography of summaries: headings at most `##`, no em-dashes, smart quotes or
/// emoji (P11).
///
/// Ornaments are replaced, not refused. Letters of every script stay as they are, and fenced code
/// keeps its white space.
pub fn strip_ornaments(text: &str) -> String {
    let cleaned = clean(text).text;
    let mut out = String::with_capacity(cleaned.len());
    let mut fence = CodeFence::default();
    let mut empty_before = false;
    for line in cleaned.lines() {
        let inside = fence.is_open();
        let mut plain = replace_ornaments(line, inside);
        // Check the sanitized line: removed characters may have hidden the fence.
        let code = !fence.is_fence_line(&plain) && inside;
        if !code {
            plain.truncate(plain.trim_end().len());
            if let Some(hashes) = deep_heading(&plain) {
                plain.replace_range(hashes, "##");
            }
        }
        let empty = !code && plain.is_empty();
        if !(empty && empty_before) {
            out.push_str(&plain);
            out.push('\n');
        }
        empty_before = empty;
    }
    out.trim().to_owned()
}

/// Complaints about ornaments in a text: each kind once, with its count and first line. Empty if
/// there are none.
pub fn ornament_complaints(text: &str) -> Vec<String> {
    let mut counts: Vec<(&'static str, usize, usize)> = Vec::new();
    let mut count = |what: &'static str, line: usize| match counts
        .iter_mut()
        .find(|(known, ..)| *known == what)
    {
        Some((_, times, _)) => *times += 1,
        None => counts.push((what, 1, line)),
    };
    let mut fence = CodeFence::default();
    for (at, line) in text.lines().enumerate() {
        let inside = fence.is_open();
        let code = !fence.is_fence_line(line) && inside;
        if !code && deep_heading(line).is_some() {
            count("heading deeper than ##", at + 1);
        }
        let mut before = None;
        for c in line.chars() {
            if is_deceptive(c) && c != '\t' {
                count("control character", at + 1);
            } else if let Some((ornament, _)) = classify_ornament(c, before) {
                count(ornament.name(), at + 1);
            }
            before = Some(c);
        }
    }
    counts
        .iter()
        .map(|(what, times, line)| format!("{what}: {times}, first on line {line}"))
        .collect()
}

/// The hashes of a heading below the second level, at any indentation: trimming could move it to
/// the start of the line.
fn deep_heading(line: &str) -> Option<std::ops::Range<usize>> {
    let start = line.len() - line.trim_start().len();
    let (level, _) = heading(&line[start..]).filter(|(level, _)| *level > 2)?;
    Some(start..start + level)
}

/// The kinds of ornament.
#[derive(Clone, Copy, PartialEq)]
enum Ornament {
    LongDash,
    ShortDash,
    Quote,
    Blank,
    Sign,
    Invisible,
    Emoji,
}

impl Ornament {
    fn name(self) -> &'static str {
        match self {
            Ornament::LongDash => "em-dash",
            Ornament::ShortDash => "typographic dash",
            Ornament::Quote => "smart quote",
            Ornament::Blank => "typographic blank",
            Ornament::Sign => "typographic sign",
            Ornament::Invisible => "invisible character",
            Ornament::Emoji => "emoji",
        }
    }
}

/// The kind of ornament that a character is after `before`, and its plain replacement.
fn classify_ornament(c: char, before: Option<char>) -> Option<(Ornament, &'static str)> {
    const DIGITS: [&str; 10] = ["1", "2", "3", "4", "5", "6", "7", "8", "9", "10"];
    const LETTERS: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZ";
    // In the scripts of India and Arabia a joiner after a letter is spelling; elsewhere it joins
    // emoji.
    let after_letter = before.is_some_and(|before| {
        before >= '\u{600}'
            && (before.is_alphanumeric() || is_mark(before))
            && classify_ornament(before, None).is_none()
    });
    Some(match c {
        ..'\u{a0}' => return None,
        '—' | '―' | '⸺' | '⸻' | '﹘' | '︱' => (Ornament::LongDash, "-"),
        '–' | '‐' | '‑' | '‒' | '−' | '︲' => (Ornament::ShortDash, "-"),
        '“' | '”' | '„' | '‟' | '«' | '»' => (Ornament::Quote, "\""),
        '‘' | '’' | '‚' | '‛' | '‹' | '›' => (Ornament::Quote, "'"),
        '\u{a0}' | '\u{2000}'..='\u{200a}' | '\u{202f}' | '\u{205f}' => (Ornament::Blank, " "),
        '…' => (Ornament::Sign, "..."),
        '→' | '⟶' | '➔' | '\u{2799}'..='\u{27a1}' => (Ornament::Sign, "->"),
        '←' | '⟵' | '⬅' => (Ornament::Sign, "<-"),
        '↔' | '⟷' => (Ornament::Sign, "<->"),
        '⇒' | '⟹' => (Ornament::Sign, "=>"),
        '‼' => (Ornament::Sign, "!!"),
        '⁉' => (Ornament::Sign, "!?"),
        '\u{1f130}'..='\u{1f149}' | '\u{1f150}'..='\u{1f169}' | '\u{1f170}'..='\u{1f189}' => {
            let letter = (u32::from(c) - 0x1f130) as usize % 32;
            (Ornament::Sign, LETTERS.get(letter..=letter)?)
        }
        '\u{2776}'..='\u{2793}' => (Ornament::Sign, DIGITS[(u32::from(c) - 0x2776) as usize % 10]),
        '\u{200c}' | '\u{200d}' if after_letter => return None,
        '\u{ad}' | '\u{200b}'..='\u{200d}' | '\u{2060}'..='\u{2064}' => (Ornament::Invisible, ""),
        '\u{fe00}'..='\u{fe0f}' | '\u{e0100}'..='\u{e01ef}' => (Ornament::Invisible, ""),
        '\u{20e3}'
        | '\u{231a}'
        | '\u{231b}'
        | '\u{2328}'
        | '\u{23cf}'
        | '\u{23e9}'..='\u{23fa}' => (Ornament::Emoji, ""),
        '\u{25fd}'
        | '\u{25fe}'
        | '\u{2600}'..='\u{27bf}'
        | '\u{2b06}'
        | '\u{2b07}'
        | '\u{2b1b}'
        | '\u{2b1c}' => (Ornament::Emoji, ""),
        '\u{2b50}' | '\u{2b55}' | '〰' | '〽' | '\u{1f000}'..='\u{1faff}' => {
            (Ornament::Emoji, "")
        }
        _ => return None,
    })
}

/// A line without ornaments. Outside of code the white space around removed characters is
/// collapsed.
fn replace_ornaments(line: &str, code: bool) -> String {
    let mut out = String::with_capacity(line.len());
    let mut chars = line.chars().peekable();
    let mut before = None;
    // A character was removed right before.
    let mut gap = false;
    while let Some(c) = chars.next() {
        let found = classify_ornament(c, before);
        let previous = before.replace(c);
        match found {
            Some((Ornament::Emoji, _)) => {
                gap = true;
                continue;
            }
            Some((Ornament::Invisible, _)) => continue,
            Some((Ornament::LongDash, _)) if !code => {
                while chars
                    .next_if(|next| {
                        matches!(classify_ornament(*next, None), Some((Ornament::LongDash, _)))
                    })
                    .is_some()
                {}
                let next = chars.peek().copied();
                let range = out.ends_with(|c: char| c.is_ascii_digit())
                    && next.is_some_and(|next| next.is_ascii_digit());
                let opens = out.is_empty()
                    || out.ends_with(|c: char| {
                        c.is_whitespace() || matches!(c, '(' | '[' | '{' | '"' | '\'')
                    });
                let closes = next
                    .is_none_or(|next| next.is_whitespace() || ".,;:!?)]}\"'”’»".contains(next));
                out.push_str(if range || opens { "-" } else { " -" });
                out.push_str(if range || closes { "" } else { " " });
            }
            // French quotes have inner blanks that straight quotes do not have.
            Some((Ornament::Quote, plain)) => {
                let sets_off = |c: char| matches!(c, '\u{a0}' | '\u{202f}');
                if matches!(c, '»' | '›') && previous.is_some_and(sets_off) && out.ends_with(' ')
                {
                    out.pop();
                }
                out.push_str(plain);
                if matches!(c, '«' | '‹') {
                    before = chars.next_if(|next| sets_off(*next)).or(before);
                }
            }
            Some((_, plain)) => {
                if gap && !code && plain == " " && (out.is_empty() || out.ends_with([' ', '\t'])) {
                    continue;
                }
                out.push_str(plain);
            }
            None if gap && !code => {
                if c == ' ' && (out.is_empty() || out.ends_with([' ', '\t'])) {
                    continue;
                }
                if matches!(c, '.' | ',' | ';' | ':' | '!' | '?' | ')')
                    && out.trim_end().ends_with(char::is_alphanumeric)
                {
                    out.truncate(out.trim_end_matches(' ').len());
                }
                out.push(c);
            }
            None => out.push(c),
        }
        gap = false;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(text: &str, kept: &str, removed: usize) {
        assert_eq!(clean(text), CleanedText { text: kept.into(), removed }, "{text:?}");
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

    fn check_plain(text: &str, plain: &str) {
        assert_eq!(strip_ornaments(text), plain, "{text:?}");
        assert_eq!(strip_ornaments(plain), plain, "again {plain:?}");
        assert_eq!(ornament_complaints(plain), [""; 0], "{plain:?}");
    }

    // P11
    #[test]
    fn summaries_are_plain() {
        check_plain(
            "# One\n## Two\n### Three\n  #### Four ####\n####### no heading\n###neither",
            "# One\n## Two\n## Three\n  ## Four ####\n####### no heading\n###neither",
        );
        check_plain(
            "one — two—three, 3–5 and 2019—2020, Paris–London",
            "one - two - three, 3-5 and 2019-2020, Paris-London",
        );
        check_plain("— said she\nhe stopped—\n(—)", "- said she\nhe stopped -\n(-)");
        check_plain("她来了——真的", "她来了 - 真的");
        check_plain(
            "“Don’t” ‘go’ „hier“ «là» «\u{a0}là\u{a0}» 「そこ」",
            "\"Don't\" 'go' \"hier\" \"là\" \"là\" 「そこ」",
        );
        check_plain("wait… 10\u{a0}km x → y ⇒ z", "wait... 10 km x -> y => z");
        check_plain(
            "🎯 Goal\n- ✅ done 🎉.\n- all 👨‍👩‍👧 here 🇩🇪 now ❤️",
            "Goal\n- done.\n- all here now",
        );
        check_plain("1️⃣ first ✓ ❷ second 👍🏽 🅱️", "1 first 2 second B");
        check_plain("a  \n\n\n\nb\t\n🎯\n\nc", "a\n\nb\n\nc");
        check_plain(
            "© 20 °C, 5 €, naïve Ærø, Ελλάδα, 日本語, क्‍ष, نمی‌خواهم",
            "© 20 °C, 5 €, naïve Ærø, Ελλάδα, 日本語, क्‍ष, نمی‌خواهم",
        );
        check_plain("red\u{1b}[31m\r\ntext", "red[31m\ntext");
    }

    // P11
    #[test]
    fn code_keeps_its_blanks() {
        check_plain(
            "see\n```sh\n### note  \n\n\n  a  —  b 🎯 c\n```  \n### Next",
            "see\n```sh\n### note  \n\n\n  a  -  b  c\n```\n## Next",
        );
        check_plain("~~~\n```\n### x\n~~~\n### y", "~~~\n```\n### x\n~~~\n## y");
        check_plain("```inline```\n### x", "```inline```\n## x");
        check_plain("`\u{200b}``\n### x", "```\n### x");
    }

    #[test]
    fn violations_of_plain_text_are_reported() {
        let told = ornament_complaints("# Fine\n### Deep\nit’s “so” — 🎯🎯");
        assert_eq!(
            told,
            [
                "heading deeper than ##: 1, first on line 2",
                "smart quote: 3, first on line 3",
                "em-dash: 1, first on line 3",
                "emoji: 2, first on line 3"
            ]
        );
        assert_eq!(ornament_complaints("plain - \"text\"\n\n```\n### code\n```"), [""; 0]);
    }

    /// Ornaments, blanks and line beginnings, in any order.
    fn ornate_text() -> impl Strategy<Value = String> {
        const PIECES: [&str; 36] = [
            "—", "–", "―", "“", "’", "«", "»", "\u{a0}", "\u{202f}", "…", "→", "🎯", "👨",
            "\u{200d}", "\u{200c}", "\u{fe0f}", "\u{20e3}", "🇩", "❶", "✓", "###", "####", "# ",
            "```", "`", "~~~", "\n", "\n\n", " ", "    ", "\t", "1", "a", "क्", "日", "\u{1b}",
        ];
        let piece = prop_oneof![4 => prop::sample::select(PIECES.to_vec()).prop_map(str::to_owned), 1 => any::<char>().prop_map(String::from)];
        prop::collection::vec(piece, 0..30).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        // P11
        #[test]
        fn unadorned_text_is_plain_and_stays_so(text in ornate_text()) {
            let plain = strip_ornaments(&text);
            prop_assert_eq!(ornament_complaints(&plain), [""; 0]);
            prop_assert_eq!(strip_ornaments(&plain), plain);
        }

        #[test]
        fn plain_text_keeps_every_letter(text in ornate_text()) {
            let letters = |text: &str| text.chars().filter(|c| !c.is_whitespace()).collect::<String>();
            if ornament_complaints(&text).is_empty() {
                prop_assert_eq!(letters(&strip_ornaments(&text)), letters(&text));
            }
            // Words survive whatever the ornaments.
            let said = |text: &str| text.chars().filter(|c| c.is_alphabetic()).count();
            prop_assert_eq!(said(&strip_ornaments(&text)), said(&text));
        }

        #[test]
        fn nothing_shown_can_steer_a_terminal(text in ".*") {
            let shown = one_line(&text);
            prop_assert!(!shown.chars().any(is_deceptive));
            let kept = clean(&text);
            prop_assert_eq!(clean(&kept.text).removed, 0);
        }
    }
}
