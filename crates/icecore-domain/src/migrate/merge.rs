//! Merging two texts of one day: lines of the second that the first lacks are appended under a
//! heading of their own.

use std::collections::HashSet;

use icecore_text::markdown::{self, CodeFence};
use jiff::civil::Date;

use crate::calendar::{Week, weekday_name};
use crate::priority_extracts;

/// A line normalized for comparison: without what editors put around it.
pub(super) fn line_key(mut line: &[u8]) -> &[u8] {
    while let Some(rest) = line.strip_prefix("\u{feff}".as_bytes()) {
        line = rest;
    }
    line.trim_ascii_end()
}

/// The normalized lines of a text that are not blank.
pub(super) fn comparable_lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|&byte| byte == b'\n').map(line_key).filter(|line| !line.trim_ascii().is_empty())
}

/// What has to be appended to `so_far`, the log of `day`, so that it has every line of `source`:
/// the missing lines, in order, under `title` and their headings. `None` if nothing is missing.
pub(super) fn missing_lines(
    so_far: Option<&[u8]>,
    day: Date,
    title: &str,
    source: &[u8],
) -> Option<(Vec<u8>, usize)> {
    let have: HashSet<&[u8]> =
        so_far.map_or(HashSet::new(), |text| comparable_lines(text).collect());
    let mut gathered =
        MergedLog { have: &have, out: Vec::new(), headings: Vec::new(), titled: false, gap: false };
    let mut new = 0;
    for block in split_blocks(source) {
        new += block.lines.iter().filter(|line| gathered.is_new(line)).count();
        gathered.add_block(&block);
    }
    if gathered.out.is_empty() {
        return None;
    }
    let mut bytes = Vec::new();
    let mut level = 2;
    match so_far {
        None | Some([]) => bytes.extend_from_slice(
            format!("# {day} {}, {}\n", weekday_name(day), Week::containing(day)).as_bytes(),
        ),
        Some(text) => {
            if !text.ends_with(b"\n") {
                bytes.push(b'\n');
            }
            // The appended lines must not end up in a section whose lines become events.
            level = priority_extracts::parse_extracts(&String::from_utf8_lossy(text))
                .open_section
                .map_or(level, |open| open.min(level));
        }
    }
    bytes.extend_from_slice(format!("\n{} {title}\n\n", "#".repeat(level)).as_bytes());
    bytes.extend_from_slice(&gathered.out);
    Some((bytes, new))
}

/// Lines that belong together: a fenced block, or an item with its continuation lines.
struct LineBlock<'a> {
    level: Option<usize>,
    lines: Vec<&'a [u8]>,
    /// It follows a blank line.
    apart: bool,
}

fn split_blocks(text: &[u8]) -> Vec<LineBlock<'_>> {
    let mut found: Vec<LineBlock<'_>> = Vec::new();
    let mut fence = CodeFence::default();
    let (mut apart, mut goes_on) = (false, false);
    for line in text.split(|&byte| byte == b'\n').map(line_key) {
        let bare = line.trim_ascii();
        let text = String::from_utf8_lossy(line);
        if fence.is_open()
            && let Some(open) = found.last_mut()
        {
            open.lines.push(line);
            fence.is_fence_line(&text);
            continue;
        }
        if bare.is_empty() {
            (apart, goes_on) = (true, false);
            continue;
        }
        let indented = line.starts_with(b"  ") || line.starts_with(b"\t");
        if let Some(open) = found.last_mut().filter(|_| goes_on && indented) {
            open.lines.push(line);
            continue;
        }
        let opens = fence.is_fence_line(&text);
        goes_on = !opens && markdown::bullet(text.trim_start()).is_some();
        found.push(LineBlock {
            level: markdown::heading(&text).map(|(level, _)| level),
            lines: vec![line],
            apart,
        });
        apart = false;
    }
    found
}

struct MergedLog<'a> {
    have: &'a HashSet<&'a [u8]>,
    out: Vec<u8>,
    /// The headings above that have not been written yet.
    headings: Vec<(usize, &'a [u8])>,
    titled: bool,
    gap: bool,
}

impl<'a> MergedLog<'a> {
    fn is_new(&self, line: &[u8]) -> bool {
        !line.trim_ascii().is_empty() && !self.have.contains(line)
    }

    fn add_block(&mut self, block: &LineBlock<'a>) {
        let new = block.lines.iter().any(|line| self.is_new(line));
        let first = !std::mem::replace(&mut self.titled, true);
        self.gap |= block.apart;
        if let (Some(level), Some(line)) = (block.level, block.lines.first()) {
            self.headings.retain(|(outer, _)| *outer < level);
            // The title of the day is not repeated. Section headings are, so that their lines keep
            // their meaning.
            if new || !(first && level == 1) {
                self.headings.push((level, line));
            }
            if new {
                self.write_headings();
            }
            return;
        }
        if new {
            self.write_headings();
            for line in &block.lines {
                self.write_line(line);
            }
        }
    }

    fn write_headings(&mut self) {
        for (_, line) in std::mem::take(&mut self.headings) {
            self.gap = true;
            self.write_line(line);
            self.gap = true;
        }
    }

    fn write_line(&mut self, line: &[u8]) {
        if std::mem::take(&mut self.gap) && !self.out.is_empty() {
            self.out.push(b'\n');
        }
        self.out.extend_from_slice(line);
        self.out.push(b'\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::civil::date;
    use proptest::prelude::*;

    fn check(so_far: Option<&str>, source: &str, added: &str) {
        let found = missing_lines(
            so_far.map(str::as_bytes),
            date(2026, 2, 3),
            "from b.md",
            source.as_bytes(),
        );
        assert_eq!(
            found.map_or(String::new(), |(bytes, _)| String::from_utf8(bytes).unwrap()),
            added,
            "{so_far:?} + {source:?}"
        );
    }

    // L18
    #[test]
    fn only_what_is_new_is_added_under_its_headings() {
        check(Some("# Day\n- a\n"), "# Day\n- a\r\n\n\n", "");
        check(Some("# Day\n- a\n"), "\u{feff}# Day\n- a\n- b", "\n## from b.md\n\n- b\n");
        check(Some("- a"), "- a\n- b\n", "\n\n## from b.md\n\n- b\n");
        check(None, "x\n", "# 2026-02-03 Tuesday, 2026-W06\n\n## from b.md\n\nx\n");
        check(None, "\n \n", "");
        check(Some("x\n"), "```\nx\n\ny\n```\n", "\n## from b.md\n\n```\nx\n\ny\n```\n");
        check(Some("- a\n  more\n"), "- a\n  other\n", "\n## from b.md\n\n- a\n  other\n");
    }

    // L18, L1
    #[test]
    fn extracts_stay_extracts_and_other_lines_do_not_become_some() {
        let so_far = "# Day\n\n## Priority Extracts\n- [P1] one\n";
        check(
            Some(so_far),
            "# Day\n- [P1] a mere line\n\n## Priority Extracts\n- [P1] one\n- [P2] two\n",
            "\n## from b.md\n\n- [P1] a mere line\n\n## Priority Extracts\n\n- [P2] two\n",
        );
        check(
            Some("# Priority Extracts\n- [P1] one\n"),
            "- [P0] no extract\n",
            "\n# from b.md\n\n- [P0] no extract\n",
        );
    }

    proptest! {
        // L18
        #[test]
        fn no_line_is_lost_and_no_second_time_adds(a in "([-#` ]{0,4}[abc]{0,2}\r?\n){0,12}", b in "([-#`~ ]{0,4}[abcd]{0,2}\n){0,12}") {
            let day = date(2026, 2, 3);
            let mut text = a.clone().into_bytes();
            if let Some((more, new)) = missing_lines(Some(&text), day, "from b", b.as_bytes()) {
                prop_assert!(new > 0);
                text.extend_from_slice(&more);
            }
            let have: HashSet<&[u8]> = comparable_lines(&text).collect();
            for line in comparable_lines(a.as_bytes()).chain(comparable_lines(b.as_bytes())) {
                prop_assert!(have.contains(line), "{:?} is lost", String::from_utf8_lossy(line));
            }
            prop_assert_eq!(missing_lines(Some(&text), day, "from b", b.as_bytes()), None);
        }
    }
}
