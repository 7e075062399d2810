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

/// Text as summaries have it (P11): headings at most `##`, no em-dashes, curly quotes or emoji, no blanks at the ends of lines,
/// at most one empty line in a row. What stands in a code fence keeps its blanks.
pub fn unadorned(text: &str) -> String {
    let text = clean(text).text;
    let mut out = String::with_capacity(text.len());
    let (mut fenced, mut empty) = (false, false);
    for line in text.lines() {
        let mark = line.trim_start().starts_with("```");
        fenced ^= mark;
        let mut shown = straight(line);
        if !fenced && !mark {
            shown = lower_heading(&single_spaced(&shown));
        }
        let shown = shown.trim_end();
        if shown.is_empty() && !fenced {
            empty = !out.is_empty();
            continue;
        }
        if empty {
            out.push('\n');
            empty = false;
        }
        out.push_str(shown);
        out.push('\n');
    }
    out.trim().to_owned()
}

/// What in a text is not plain; empty if everything is.
pub fn adornments(text: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let mut note = |what: String| {
        if found.len() < 8 && !found.contains(&what) {
            found.push(what);
        }
    };
    for c in text.chars().filter(|&c| plain_form(c, false).is_some()) {
        note(format!("the character {} (U+{:04X})", c.escape_unicode(), u32::from(c)));
    }
    let mut fenced = false;
    for line in text.lines() {
        fenced ^= line.trim_start().starts_with("```");
        if !fenced && line.starts_with("###") && line.trim_start_matches('#').starts_with(' ') {
            note("a heading below ##".to_owned());
        }
    }
    found
}

/// What stands for a character that is not plain: `None` if it may stay. `tight` says that there are digits on both sides.
fn plain_form(c: char, tight: bool) -> Option<&'static str> {
    Some(match c {
        '\u{2018}' | '\u{2019}' | '\u{201A}' | '\u{201B}' | '\u{2032}' => "'",
        '\u{201C}' | '\u{201D}' | '\u{201E}' | '\u{201F}' | '\u{2033}' | '\u{AB}' | '\u{BB}' => "\"",
        '\u{2010}' | '\u{2011}' | '\u{2212}' | '\u{AD}' => "-",
        '\u{2012}'..='\u{2015}' => {
            if tight {
                "-"
            } else {
                " - "
            }
        }
        '\u{2026}' => "...",
        '\u{2190}'..='\u{21FF}' => "->",
        '\u{A0}' | '\u{2007}' | '\u{202F}' | '\u{2000}'..='\u{200A}' => " ",
        '\u{2022}' | '\u{2023}' | '\u{25E6}' => "-",
        '\u{200B}'..='\u{200D}' | '\u{2060}' | '\u{FE00}'..='\u{FE0F}' | '\u{20E3}' => "",
        '\u{2300}'..='\u{23FF}' | '\u{2460}'..='\u{24FF}' | '\u{25A0}'..='\u{27BF}' | '\u{2900}'..='\u{297F}' | '\u{2B00}'..='\u{2BFF}' => {
            ""
        }
        '\u{1F000}'..='\u{1FAFF}' | '\u{3030}' | '\u{303D}' | '\u{3297}' | '\u{3299}' => "",
        _ => return None,
    })
}

fn straight(line: &str) -> String {
    let mut out = String::with_capacity(line.len());
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        let tight = out.ends_with(|c: char| c.is_ascii_digit()) && chars.peek().is_some_and(char::is_ascii_digit);
        match plain_form(c, tight) {
            None => out.push(c),
            Some(form) => out.push_str(form),
        }
    }
    out
}

/// Blanks within a line once each; those that indent it stay.
fn single_spaced(line: &str) -> String {
    let content = line.trim_start();
    let indent = &line[..line.len() - content.len()];
    if !content.contains("  ") {
        return line.to_owned();
    }
    format!("{indent}{}", content.split(' ').filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" "))
}

fn lower_heading(line: &str) -> String {
    let marks = line.bytes().take_while(|&byte| byte == b'#').count();
    if marks > 2 && line[marks..].starts_with(' ') { format!("##{}", &line[marks..]) } else { line.to_owned() }
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

    // P11
    #[test]
    fn summaries_are_plain() {
        for (text, plain) in [
            ("It won \u{2014} at last", "It won - at last"),
            ("3\u{2013}5 days", "3-5 days"),
            ("\u{201c}so\u{201d} it\u{2019}s", "\"so\" it's"),
            ("### Deep\n#### Deeper\n#tag", "## Deep\n## Deeper\n#tag"),
            ("\u{1F680} launched \u{2705} today\u{2026}", " launched today..."),
            ("a\n\n\n\nb   c  ", "a\n\nb c"),
            ("```\na    b\n```", "```\na    b\n```"),
            ("caf\u{e9} \u{6771}\u{4eac} 20 \u{b0}C \u{20ac}", "caf\u{e9} \u{6771}\u{4eac} 20 \u{b0}C \u{20ac}"),
        ] {
            assert_eq!(unadorned(text).trim(), plain.trim(), "{text}");
        }
    }

    proptest! {
        // P11
        #[test]
        fn what_was_made_plain_is_plain_and_stays_so(text in "(?s).{0,80}|[#\u{2014}\u{2026}\u{1F680}\u{201c} a0`\n-]{0,40}") {
            let once = unadorned(&text);
            prop_assert_eq!(adornments(&once), Vec::<String>::new());
            prop_assert_eq!(unadorned(&once), once);
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
