//! How thoroughly an exchange is summarized, by its size and content (C7).

use icecore_text::markdown;
use serde::Serialize;

use super::conversation_facts::is_hard;
use crate::budget;

/// The sizes above which an exchange is no longer short, or is long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExchangeSizes {
    /// An exchange with fewer words than this on both sides is short.
    pub short_words: usize,
    /// An exchange with more words than this on one side is long.
    pub long_words: usize,
}

impl Default for ExchangeSizes {
    fn default() -> Self {
        Self { short_words: 40, long_words: 200 }
    }
}

/// What the summarizer is asked for, and what is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct SummaryDepth {
    /// Whether to extract facts, not only a summary.
    pub diff: bool,
    /// Whether to keep the raw exchange longer.
    pub keep_raw_longer: bool,
}

impl SummaryDepth {
    /// The word written to the turn log.
    pub fn as_str(self) -> &'static str {
        match (self.diff, self.keep_raw_longer) {
            (false, _) => "summary",
            (true, false) => "diff",
            (true, true) => "diff and raw",
        }
    }
}

/// Chooses the depth for this exchange.
pub fn summary_depth(user: &str, assistant: &str, sizes: &ExchangeSizes) -> SummaryDepth {
    let (asked, answered) = (budget::count_words(user), budget::count_words(assistant));
    let short = asked < sizes.short_words && answered < sizes.short_words;
    let long = asked > sizes.long_words || answered > sizes.long_words;
    let telling =
        || [user, assistant].into_iter().any(|text| has_code(text) || text.lines().any(is_hard));
    SummaryDepth { diff: !short || telling(), keep_raw_longer: long }
}

/// Whether a text contains code: fenced, indented, or lines that are clearly code.
pub fn has_code(text: &str) -> bool {
    let mut code_lines = 0;
    let mut blank_before = true;
    for line in text.lines() {
        let bare = line.trim();
        if markdown::fence_line(bare).is_some() {
            return true;
        }
        let indented = (line.starts_with("    ") || line.starts_with('\t')) && !bare.is_empty();
        let listed = bare.starts_with(['-', '*', '•', '>'])
            || bare.starts_with(|c: char| c.is_ascii_digit());
        if looks_like_code(bare)
            || (indented
                && !listed
                && (blank_before || code_lines > 0)
                && bare.contains(['(', '=', '{', ';', '<', '$']))
        {
            code_lines += 1;
            if indented || code_lines > 1 || is_plainly_code(bare) {
                return true;
            }
        }
        blank_before = bare.is_empty();
    }
    false
}

/// Whether a line is very unlikely in prose.
fn is_plainly_code(line: &str) -> bool {
    const STARTS: &[&str] = &[
        "def ",
        "fn ",
        "pub fn ",
        "func ",
        "function ",
        "#include ",
        "#!/",
        "package ",
        "public class ",
        "public static ",
        "SELECT ",
        "INSERT INTO ",
        "CREATE TABLE ",
        "impl ",
        "struct ",
        "enum ",
        "const ",
        "let mut ",
        "namespace ",
    ];
    const ENDS: &[char] = &['{', ';', ':', ')', '}', '>', ','];
    let bare = line.strip_prefix("async ").unwrap_or(line);
    let starts = STARTS.iter().any(|start| bare.starts_with(start));
    let marks = line.contains(['(', '{', '=', ';', '<', '*']);
    (starts && (marks || line.starts_with("SELECT ") && line.contains(" FROM ")))
        || (line.starts_with("#include ") || line.starts_with("#!/"))
        || (line.ends_with(ENDS) && line.contains(" = ") && line.ends_with(';'))
}

fn looks_like_code(line: &str) -> bool {
    if line.is_empty() {
        return false;
    }
    let first = line.split_whitespace().next().unwrap_or_default();
    let import = (first == "import" && line.split_whitespace().count() <= 4)
        || (first == "from" && line.contains(" import "))
        || (first == "use" && line.ends_with(';'));
    let ends = line.ends_with([';', '{', '}']) && line.contains(['(', '=', '{', '}']);
    let shell = line.starts_with("$ ") || line.starts_with(">>> ");
    let arrow =
        line.contains(" => ") && line.contains('(') || line.contains("->") && line.contains('(');
    is_plainly_code(line) || import || ends || shell || arrow
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(count: usize) -> String {
        vec!["word"; count].join(" ")
    }

    fn check(user: &str, assistant: &str, diff: bool, keep_raw_longer: bool) {
        assert_eq!(
            summary_depth(user, assistant, &ExchangeSizes::default()),
            SummaryDepth { diff, keep_raw_longer },
            "{user:?} / {assistant:?}"
        );
    }

    // C7
    #[test]
    fn depth_goes_by_size() {
        check("Hi there", "Hello, how can I help?", false, false);
        check("", "", false, false);
        check(&words(39), &words(39), false, false);
        check(&words(40), "yes", true, false);
        check("yes", &words(40), true, false);
        check(&words(200), &words(200), true, false);
        check("Explain it", &words(201), true, true);
        check(&words(201), "ok", true, true);
        assert_eq!(
            summary_depth(&words(5), "", &ExchangeSizes { short_words: 5, long_words: 6 }).as_str(),
            "diff"
        );
    }

    // C7, C10
    #[test]
    fn a_hard_word_in_a_short_exchange_counts() {
        for text in [
            "Never deploy on Fridays",
            "You must use tabs",
            "We can't use GPL code",
            "Niemals freitags deployen",
            "Il ne faut jamais dormir",
            "Nunca borres nada",
        ] {
            check(text, "Understood.", true, false);
            check("ok?", text, true, false);
        }
        check("Never mind, thanks", "Sure.", false, false);
        check("As always, great", "Thanks!", false, false);
    }

    // C7
    #[test]
    fn code_always_counts() {
        for text in [
            "```py\nx = 1\n```",
            "~~~\nx\n~~~",
            "Use this:\n\n    let x = compute(1);\n",
            "def sort(xs):\n  return sorted(xs)",
            "fn main() { run() }",
            "#include <stdio.h>",
            "SELECT name FROM users",
            "import os\nimport sys",
            "const x = 5;",
            "total = a + b;",
            "$ cargo build\n$ cargo test",
        ] {
            check("Show me", text, true, false);
        }
        for text in [
            "I import wine from Spain",
            "Let me think about it",
            "use the stairs",
            "    indented poem line",
            "from Rome to Oslo",
            "1. one\n2. two",
            "const is a keyword",
        ] {
            check("Show me", text, false, false);
        }
    }
}
