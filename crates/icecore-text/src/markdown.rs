//! Markdown by lines: fences, headings, bullets, rules, front matter.
//!
//! The rules are those of CommonMark, read one line at a time; models and people write malformed
//! Markdown, so nothing here needs the whole document to be well-formed.

/// A line that starts with a code fence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FenceLine<'a> {
    /// The text before the fence.
    pub indent: &'a str,
    /// A backtick or a tilde.
    pub mark: char,
    /// How often the mark is repeated; at least three times.
    pub width: usize,
    /// The text after the fence, trimmed.
    pub info: &'a str,
}

impl FenceLine<'_> {
    /// Whether the line can open a block: `` ```like this``` `` is inline code.
    pub fn opens(&self) -> bool {
        !(self.mark == '`' && self.info.contains('`'))
    }

    /// Whether the line closes a block that was opened by this mark, this often.
    pub fn closes(&self, mark: char, width: usize) -> bool {
        self.mark == mark && self.width >= width && self.info.is_empty()
    }
}

/// The code fence at the start of a line, at any indentation.
pub fn fence_line(line: &str) -> Option<FenceLine<'_>> {
    let bare = line.trim_start();
    let mark = bare.chars().next().filter(|c| matches!(c, '`' | '~'))?;
    let width = bare.bytes().take_while(|byte| char::from(*byte) == mark).count();
    (width >= 3).then(|| FenceLine {
        indent: &line[..line.len() - bare.len()],
        mark,
        width,
        info: bare[width..].trim(),
    })
}

/// The state of fenced code while a document is read: a fence is closed only by its own mark, at
/// least as often, with nothing after it.
#[derive(Debug, Clone, Copy, Default)]
pub struct CodeFence {
    open: Option<(char, usize)>,
}

impl CodeFence {
    /// Whether a fence is open.
    pub fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Reads the next line of a document and returns whether it belongs to fenced code: a fence
    /// itself, or a line between two. A line indented by four columns is indented code, never a
    /// fence.
    pub fn covers_line(&mut self, line: &str) -> bool {
        let inside = self.is_open();
        let bare = line.trim_start_matches(' ');
        let can_be_fence = line.len() - bare.len() <= 3 && !bare.starts_with('\t');
        (can_be_fence && self.is_fence_line(line)) || inside
    }

    /// Like [`Self::covers_line`], for text whose indentation says nothing: a fence counts at any
    /// indentation.
    pub fn covers_indented_line(&mut self, line: &str) -> bool {
        let inside = self.is_open();
        self.is_fence_line(line) || inside
    }

    /// Reads the next line and returns whether it is a fence itself.
    pub fn is_fence_line(&mut self, line: &str) -> bool {
        let Some(fence) = fence_line(line) else { return false };
        match self.open {
            Some((mark, width)) if fence.closes(mark, width) => self.open = None,
            None if fence.opens() => self.open = Some((fence.mark, fence.width)),
            _ => return false,
        }
        true
    }
}

/// The level and the title of a heading, which may be empty. Closing `#` do not belong to the
/// title.
pub fn heading(line: &str) -> Option<(usize, &str)> {
    let level = line.bytes().take_while(|&byte| byte == b'#').count();
    let rest = &line[level..];
    if !(1..=6).contains(&level) || !rest.chars().next().is_none_or(char::is_whitespace) {
        return None;
    }
    let title = rest.trim();
    let bare = title.trim_end_matches('#');
    let closed = bare.is_empty() || bare.ends_with(char::is_whitespace);
    Some((level, if closed { bare.trim_end() } else { title }))
}

/// An item of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bullet<'a> {
    /// The text of the item.
    pub text: &'a str,
    /// The number, in a numbered list.
    pub number: Option<&'a str>,
}

impl Bullet<'_> {
    /// The indentation of the lines that continue the item.
    pub fn width(&self) -> usize {
        self.number.map_or(2, |number| number.len() + 2)
    }
}

/// The bullet or number at the start of a line.
pub fn bullet(line: &str) -> Option<Bullet<'_>> {
    let digits = line.bytes().take_while(u8::is_ascii_digit).count();
    let numbered =
        (1..=9).contains(&digits).then(|| line[digits..].strip_prefix(['.', ')'])).flatten();
    let rest = numbered.or_else(|| line.strip_prefix(['-', '*', '+', '•']))?;
    rest.starts_with([' ', '\t'])
        .then(|| Bullet { text: rest.trim_start(), number: numbered.map(|_| &line[..digits]) })
}

/// An item after its check box and a blank, and whether the box is checked; `None` without a box.
pub fn check_box(item: &str) -> Option<(&str, bool)> {
    let (mark, rest) = item.strip_prefix('[')?.split_once("] ")?;
    match mark {
        " " => Some((rest, false)),
        "x" | "X" => Some((rest, true)),
        _ => None,
    }
}

/// Whether a line is a thematic break: three or more `-`, `*` or `_`.
pub fn is_rule(line: &str) -> bool {
    is_line_of(line, &['-', '*', '_'])
}

/// Whether a line only divides: a thematic break, or what people draw instead of one.
pub fn is_divider(line: &str) -> bool {
    is_line_of(line, &['-', '*', '_', '=', '—'])
}

/// Whether a line consists of three or more of one of these marks, apart from spaces.
fn is_line_of(line: &str, marks: &[char]) -> bool {
    let line = line.trim();
    let Some(mark) = line.chars().next().filter(|mark| marks.contains(mark)) else { return false };
    line.chars().all(|c| c == mark || c == ' ')
        && line.chars().filter(|c| *c == mark).take(3).count() == 3
}

/// The front matter of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FrontMatter<'a> {
    /// The lines between the marks.
    pub lines: Vec<&'a str>,
    /// The text below.
    pub body: &'a str,
}

/// The longest front matter that is read, in lines.
const MAX_FRONT_MATTER_LINES: usize = 400;

/// The front matter of a text: the lines between `---` at its very beginning and `---` or `...`.
pub fn front_matter(text: &str) -> Option<FrontMatter<'_>> {
    let mut rest = text.trim_start_matches('\u{feff}');
    let mut lines = Vec::new();
    for at in 0..=MAX_FRONT_MATTER_LINES {
        let (line, below) = rest.split_once('\n')?;
        match at {
            0 if line.trim_end() != "---" => return None,
            0 => {}
            _ if is_front_matter_end(line) => return Some(FrontMatter { lines, body: below }),
            _ => lines.push(line.strip_suffix('\r').unwrap_or(line)),
        }
        rest = below;
        if !rest.contains('\n') {
            break;
        }
    }
    is_front_matter_end(rest).then_some(FrontMatter { lines, body: "" })
}

/// Whether a line ends front matter.
pub fn is_front_matter_end(line: &str) -> bool {
    matches!(line.trim_end(), "---" | "...")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn fenced_lines(text: &str) -> Vec<&str> {
        let mut fence = CodeFence::default();
        text.lines().filter(|line| fence.covers_line(line)).collect()
    }

    #[test]
    fn a_fence_is_closed_by_its_own_mark() {
        for (text, code) in [
            ("a\n```\nb\n```\nc", 3),
            ("~~~\n```\n~~~\nc", 3),
            ("````\n```\n````\nc", 3),
            ("```sh\n```sh\n```\nc", 3),
            ("```\na\n    ```\nb", 4),
            ("```one line```\nb", 0),
            ("    ```\nb", 0),
        ] {
            assert_eq!(fenced_lines(text).len(), code, "{text:?}");
        }
        let mut fence = CodeFence::default();
        assert!(fence.covers_indented_line("      ```") && fence.covers_indented_line("a"));
        let line = fence_line("  ~~~~ py  ").unwrap();
        assert_eq!((line.indent, line.mark, line.width, line.info), ("  ", '~', 4, "py"));
        assert!(fence_line("``").is_none() && !fence_line("```a`").unwrap().opens());
    }

    #[test]
    fn headings_have_a_level_and_a_title() {
        for (line, found) in [
            ("# One", Some((1, "One"))),
            ("###### Six ##", Some((6, "Six"))),
            ("## C#", Some((2, "C#"))),
            ("##", Some((2, ""))),
            ("## ##", Some((2, ""))),
            ("#\tTab", Some((1, "Tab"))),
            ("####### Seven", None),
            ("#tag", None),
            (" # Indented", None),
            ("", None),
        ] {
            assert_eq!(heading(line), found, "{line:?}");
        }
    }

    #[test]
    fn bullets_and_boxes_are_taken_off() {
        for (line, text, number, width) in [
            ("- one", "one", None, 2),
            ("*\tone", "one", None, 2),
            ("•  one", "one", None, 2),
            ("12. one", "one", Some("12"), 4),
            ("3) one", "one", Some("3"), 3),
        ] {
            let found = bullet(line).unwrap();
            assert_eq!((found.text, found.number, found.width()), (text, number, width), "{line}");
        }
        for line in ["-one", "1.5 m", "one", "1234567890. one", "—", ""] {
            assert_eq!(bullet(line), None, "{line}");
        }
        assert_eq!(check_box("[ ] a"), Some(("a", false)));
        assert_eq!(check_box("[X] a"), Some(("a", true)));
        assert_eq!(check_box("[P1] a"), None);
    }

    #[test]
    fn rules_divide() {
        for rule in ["---", "***", "_ _ _", "  ----------  "] {
            assert!(is_rule(rule) && is_divider(rule), "{rule}");
        }
        assert!(is_divider("=====") && is_divider("———") && !is_rule("====="));
        for line in ["", "--", "-*-", "- - x", "+++"] {
            assert!(!is_rule(line) && !is_divider(line), "{line}");
        }
    }

    #[test]
    fn front_matter_is_between_its_marks() {
        for (text, lines, body) in [
            ("---\na: 1\n---\nb\n", &["a: 1"][..], "b\n"),
            ("\u{feff}---\r\na: 1\r\n...\r\nb", &["a: 1"], "b"),
            ("---\n---", &[], ""),
            ("---\na: 1\n---", &["a: 1"], ""),
        ] {
            let found = front_matter(text).unwrap();
            assert_eq!((found.lines.as_slice(), found.body), (lines, body), "{text:?}");
        }
        for text in ["", "---", "a\n---\nb\n---", "---\na", "----\na\n---"] {
            assert_eq!(front_matter(text), None, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn no_line_is_too_strange(text in "([-*#`~\\[\\] .1x\n]|\\PC){0,60}") {
            let mut fence = CodeFence::default();
            for line in text.lines() {
                let _ = (fence.covers_line(line), is_rule(line));
                let _ = (heading(line), bullet(line), check_box(line));
            }
            if let Some(found) = front_matter(&text) {
                prop_assert!(text.ends_with(found.body));
            }
        }
    }
}
