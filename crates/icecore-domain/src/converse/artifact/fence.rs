//! Fenced Markdown blocks, including malformed ones that models write.

use std::borrow::Cow;
use std::ops::Range;

/// Maximum number of failed searches for nested fences; each one scans to the end of the text.
const MAX_NESTING_ATTEMPTS: usize = 8;

/// A fenced block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FencedBlock<'a> {
    /// Offset of the line with the opening fence.
    pub start: usize,
    /// Offset of the line after the closing fence.
    pub end: usize,
    /// The text after the opening fence.
    pub info: &'a str,
    /// The range of its content.
    pub inner: Range<usize>,
    /// The text before the opening fence.
    pub indent: &'a str,
    pub closed: bool,
}

impl FencedBlock<'_> {
    /// The content of the block. A block in a list item is indented together with its fence. That
    /// indentation is removed if every line has it.
    pub fn content<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let inner = &text[self.inner.clone()];
        let own = |line: &str| line.starts_with(self.indent) || line.trim().is_empty();
        if self.indent.is_empty() || !inner.split_inclusive('\n').all(own) {
            return Cow::Borrowed(inner);
        }
        inner
            .split_inclusive('\n')
            .map(|line| {
                line.strip_prefix(self.indent)
                    .unwrap_or_else(|| line.trim_start_matches([' ', '\t']))
            })
            .collect()
    }
}

/// A line that starts with a fence.
struct FenceLine<'a> {
    start: usize,
    end: usize,
    indent: &'a str,
    mark: u8,
    len: usize,
    info: &'a str,
}

/// The fenced blocks of a text.
pub fn fenced_blocks(text: &str) -> Vec<FencedBlock<'_>> {
    let marks = fence_lines(text);
    let (mut blocks, mut at, mut tries) = (Vec::new(), 0, MAX_NESTING_ATTEMPTS);
    while let Some(open) = marks.get(at) {
        // A backtick fence followed by more backticks is inline code.
        if open.mark == b'`' && open.info.contains('`') {
            at += 1;
            continue;
        }
        let mut close = None;
        if tries > 0 && is_markdown(open.info) {
            close = nested_closing_fence(&marks, at);
            tries -= usize::from(close.is_none());
        }
        let close = close.or_else(|| closing_fence(&marks, at));
        let (inner, end) = close.map_or((open.end..text.len(), text.len()), |close| {
            (open.end..marks[close].start, marks[close].end)
        });
        blocks.push(FencedBlock {
            start: open.start,
            end,
            info: open.info,
            inner,
            indent: open.indent,
            closed: close.is_some(),
        });
        let Some(close) = close else { break };
        at = close + 1;
    }
    blocks
}

fn fence_lines(text: &str) -> Vec<FenceLine<'_>> {
    let (mut marks, mut start) = (Vec::new(), 0);
    while start < text.len() {
        let end = memchr::memchr(b'\n', &text.as_bytes()[start..])
            .map_or(text.len(), |at| start + at + 1);
        let line = &text[start..end];
        let trimmed = line.trim_start_matches([' ', '\t']);
        if let Some(mark @ (b'`' | b'~')) = trimmed.bytes().next() {
            let len = trimmed.bytes().take_while(|byte| *byte == mark).count();
            if len >= 3 {
                let indent = &line[..line.len() - trimmed.len()];
                marks.push(FenceLine {
                    start,
                    end,
                    indent,
                    mark,
                    len,
                    info: trimmed[len..].trim(),
                });
            }
        }
        start = end;
    }
    marks
}

fn is_closing(open: &FenceLine<'_>, mark: &FenceLine<'_>) -> bool {
    mark.mark == open.mark && mark.len >= open.len && mark.info.is_empty()
}

fn closing_fence(marks: &[FenceLine<'_>], open: usize) -> Option<usize> {
    (open + 1..marks.len()).find(|&at| is_closing(&marks[open], &marks[at]))
}

/// Finds the closing fence of a Markdown block that contains blocks with equally long fences. A
/// fence that names a language opens an inner block.
fn nested_closing_fence(marks: &[FenceLine<'_>], open: usize) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, mark) in
        marks.iter().enumerate().skip(open + 1).filter(|(_, mark)| mark.mark == marks[open].mark)
    {
        if is_closing(&marks[open], mark) {
            if depth == 0 {
                return Some(at);
            }
            depth -= 1;
        } else if !mark.info.is_empty() && !mark.info.contains('`') && mark.len >= marks[open].len {
            depth += 1;
        }
    }
    None
}

fn is_markdown(info: &str) -> bool {
    let word = info.split([' ', ',', ':', '{']).next().unwrap_or_default();
    ["markdown", "md", "mdx"].iter().any(|language| word.eq_ignore_ascii_case(language))
        || info.ends_with(".md")
}

/// Whether code says that it leaves lines out.
pub fn has_omission(text: &str) -> bool {
    text.lines().filter(|line| line.len() <= 160).any(|line| {
        let line = line.trim();
        let Some(said) = ["//", "#", "--", "/*", "<!--", "{/*", ";", "%"]
            .iter()
            .find_map(|mark| line.strip_prefix(mark))
        else {
            return false;
        };
        let said = said
            .trim_matches(|c: char| c.is_whitespace() || "*/->{}()[]".contains(c))
            .to_lowercase();
        let dots = said.starts_with("...")
            || said.starts_with('…')
            || said.ends_with("...")
            || said.ends_with('…');
        let left = [
            "existing",
            "unchanged",
            "rest of",
            "remaining",
            "same as before",
            "omitted",
            "as before",
            "unverändert",
            "wie zuvor",
            "wie bisher",
            "bleibt",
        ];
        dots && (said.chars().all(|c| c == '.' || c == '…')
            || left.iter().any(|word| said.contains(word)))
            || [
                "rest unchanged",
                "rest of the code",
                "rest of code",
                "existing code",
                "rest bleibt",
            ]
            .iter()
            .any(|words| said.starts_with(words))
    })
}
