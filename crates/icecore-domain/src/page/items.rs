//! Parses a page as a person left it: its frame, headings, items and the marks at their ends (L4).
//!
//! This module judges and rejects nothing: everything in the file is an item of some section, or a
//! line of the frame.

use std::collections::HashSet;

use icecore_text::markdown;
use jiff::civil::Date;

use super::render::is_count_line;
use super::{MAX_TITLE_BYTES, PageKind, heading_name};
use crate::id::EventId;
use crate::sanitize;

/// Maximum length of a code block or comment, in lines; a longer one is parsed line by line.
const MAX_BLOCK_LINES: usize = 1_000;

/// The marks at the end of a generated item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ItemMarks {
    pub id: EventId,
    pub verified: Option<Date>,
    /// Only the id is present, without source and date.
    pub bare: bool,
}

/// Where an item is on the page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ItemLocation {
    /// Above the first heading.
    Head,
    /// In a section that a person may edit.
    Section(String),
    /// In a section of derived lines.
    Derived,
}

/// An item: a bullet with the lines indented below it, a paragraph, a code block or a comment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PageItem {
    pub place: ItemLocation,
    pub lines: Vec<String>,
    pub numbered: bool,
    /// Whether it follows the previous item without an empty line or heading in between.
    pub adjacent: bool,
}

/// A parsed page file.
#[derive(Debug, Default)]
pub(super) struct ParsedPage {
    /// The title, without the prefix of its kind.
    pub title: Option<String>,
    /// Lines like `*Type: person*` above the first heading.
    pub frame: Vec<String>,
    /// The names of sections that are not in the template, without duplicates.
    pub headings: Vec<String>,
    pub items: Vec<PageItem>,
}

/// Splits a line into its text and the marks at its end.
pub(super) fn split_marks(line: &str) -> Option<(String, ItemMarks)> {
    let line = line.trim();
    // Struck through as a whole, including the marks.
    if let Some(inner) = line.strip_suffix("~~") {
        return split_marks(inner)
            .filter(|(text, _)| text.starts_with("~~"))
            .map(|(text, marks)| (format!("{text}~~"), marks));
    }
    let (rest, id) = split_mark(line, "EVT-")?;
    let id: EventId = format!("EVT-{id}").parse().ok()?;
    let dated = split_mark(rest, "verified: ")
        .and_then(|(rest, day)| day.trim().parse().ok().map(|day: Date| (rest, day)));
    let (rest, verified) = dated.map_or((rest, None), |(rest, day)| (rest, Some(day)));
    let sourced = split_mark(rest, "source: ");
    let marks = ItemMarks { id, verified, bare: verified.is_none() && sourced.is_none() };
    Some((sourced.map_or(rest, |(rest, _)| rest).to_owned(), marks))
}

/// Splits a text that ends with `[NAME value]`. Only the last mark counts, and a space must precede
/// it.
fn split_mark<'a>(text: &'a str, name: &str) -> Option<(&'a str, &'a str)> {
    let inner = text.trim_end().strip_suffix(']')?;
    let at = inner.rfind('[')?;
    let value = inner[at + 1..].strip_prefix(name)?;
    let before = &text[..at];
    (!value.contains(']') && (before.is_empty() || before.ends_with(char::is_whitespace)))
        .then(|| (before.trim_end(), value))
}

/// Splits off the ids at the end of a text.
pub(super) fn split_ids(text: &str) -> (&str, Vec<EventId>) {
    let (mut rest, mut ids) = (text.trim(), Vec::new());
    while let Some((before, id)) = split_mark(rest, "EVT-") {
        let Ok(id) = format!("EVT-{id}").parse() else { break };
        ids.insert(0, id);
        rest = before;
    }
    (rest, ids)
}

/// The text after a bullet or number, its indentation, and whether it was a number.
pub(super) fn split_bullet(line: &str) -> Option<(&str, usize, bool)> {
    let bullet = markdown::bullet(line)?;
    Some((bullet.text, bullet.width(), bullet.number.is_some()))
}

fn is_indented(line: &str) -> bool {
    line.starts_with("  ") || line.starts_with('\t')
}

/// The line without the indentation that makes it part of an item.
fn dedent(line: &str, width: usize) -> &str {
    if let Some(rest) = line.strip_prefix('\t') {
        return rest;
    }
    let blanks = line.bytes().take(width).take_while(|&byte| byte == b' ').count();
    &line[blanks..]
}

/// Prefixes of the lines of a page's frame.
const FRAME_PREFIXES: &[&str] = &[
    "*Type: ",
    "*Aliases: ",
    "*Last updated: ",
    "*Source: ",
    "*Established: ",
    "*Learned: ",
    "*Priority: ",
];

/// The last line of the code block or comment that `lines` begins with. A block that is never
/// closed or that contains a generated item does not count: a stray fence must not swallow the
/// page.
fn block_end(lines: &[&str], is_ours: &impl Fn(EventId) -> bool) -> Option<usize> {
    let first = lines.first()?.trim_start();
    if first.starts_with("<!--") {
        // A comment also cannot extend over the frame of a page.
        let ours = |line: &str| {
            names_known_event(line, is_ours)
                || FRAME_PREFIXES.iter().any(|begin| line.starts_with(begin))
        };
        let end = lines
            .iter()
            .take(MAX_BLOCK_LINES)
            .take_while(|line| !line.contains("-->") && !ours(line))
            .count();
        return lines.get(end).filter(|line| line.contains("-->") && !ours(line)).map(|_| end);
    }
    let mark = first.chars().next().filter(|c| matches!(c, '`' | '~'))?;
    let length = first.chars().take_while(|c| *c == mark).count();
    if length < 3
        || (mark == '`' && first[length..].contains('`'))
        || first[length..].contains("~~")
    {
        return None;
    }
    for (at, line) in lines.iter().enumerate().take(MAX_BLOCK_LINES).skip(1) {
        if names_known_event(line, is_ours) {
            return None;
        }
        let line = line.trim();
        if line.len() >= length && line.chars().all(|c| c == mark) {
            return Some(at);
        }
    }
    None
}

fn names_known_event(line: &str, is_ours: &impl Fn(EventId) -> bool) -> bool {
    split_marks(line).is_some_and(|(_, marks)| is_ours(marks.id))
}

#[derive(Clone, Copy, PartialEq)]
enum OpenElement {
    Nothing,
    Paragraph,
    Bullet { width: usize, blanks: usize },
}

/// Parses a file. `is_title` recognizes all titles the page ever had, `is_ours` the page's events.
pub(super) fn parse_page(
    kind: PageKind,
    file: &str,
    is_title: impl Fn(&str) -> bool,
    is_ours: impl Fn(EventId) -> bool,
) -> ParsedPage {
    let lines: Vec<&str> = file.trim_start_matches('\u{feff}').lines().map(str::trim_end).collect();
    let title_text =
        |text: &str| heading_name(text.strip_prefix(kind.title_prefix()).unwrap_or(text));
    let knows_title = lines
        .iter()
        .filter_map(|line| markdown::heading(line))
        .any(|(level, text)| level == 1 && is_title(&title_text(text)));
    let mut sheet = ParsedPage::default();
    let mut seen: HashSet<String> = HashSet::new();
    let mut place = ItemLocation::Head;
    let mut in_head = true;
    let mut open = OpenElement::Nothing;
    let mut gap = true;
    let mut at = 0;
    while let Some(&raw) = lines.get(at) {
        at += 1;
        if raw.trim().is_empty() {
            match &mut open {
                OpenElement::Bullet { blanks, .. } => *blanks += 1,
                _ => open = OpenElement::Nothing,
            }
            gap = true;
            continue;
        }
        if let (OpenElement::Bullet { width, blanks }, true) = (open, is_indented(raw)) {
            if let Some(item) = sheet.items.last_mut() {
                item.lines.extend(std::iter::repeat_n(String::new(), blanks));
                item.lines.push(dedent(raw, width).to_owned());
            }
            open = OpenElement::Bullet { width, blanks: 0 };
            gap = false;
            continue;
        }
        let line = raw.trim_start();
        if matches!(open, OpenElement::Bullet { .. }) {
            open = OpenElement::Nothing;
        }
        if let Some((level, text)) = markdown::heading(line)
            .filter(|(_, text)| text.len() <= MAX_TITLE_BYTES && !is_indented(raw))
        {
            (open, gap) = (OpenElement::Nothing, true);
            let title = title_text(text);
            if level == 1
                && ((in_head && sheet.title.is_none() && !knows_title) || is_title(&title))
            {
                sheet.title.get_or_insert(title);
                continue;
            }
            let name = heading_name(&sanitize::clean(text).text);
            if name.is_empty() {
                continue;
            }
            in_head &= !kind.is_derived_section(&name) && kind.template_section(&name).is_none();
            place = if kind.is_derived_section(&name) {
                ItemLocation::Derived
            } else {
                ItemLocation::Section(kind.canonical_section(&name))
            };
            if let ItemLocation::Section(name) = &place
                && kind.template_section(name).is_none()
                && seen.insert(name.clone())
            {
                sheet.headings.push(name.clone());
            }
            continue;
        }
        let item = |lines: Vec<String>, numbered: bool| PageItem {
            place: place.clone(),
            lines,
            numbered,
            adjacent: !gap,
        };
        if let Some(end) = block_end(&lines[at - 1..], &is_ours) {
            sheet.items.push(item(
                lines[at - 1..at + end].iter().map(|line| (*line).to_owned()).collect(),
                false,
            ));
            at += end;
            (open, gap) = (OpenElement::Nothing, false);
            continue;
        }
        if markdown::is_divider(line) || is_count_line(line) {
            (open, gap) = (OpenElement::Nothing, true);
            continue;
        }
        if in_head && is_frame(kind, line) {
            sheet.frame.push(line.to_owned());
            (open, gap) = (OpenElement::Nothing, true);
            continue;
        }
        if let Some((text, width, numbered)) = split_bullet(line) {
            sheet.items.push(item(vec![text.to_owned()], numbered));
            (open, gap) = (OpenElement::Bullet { width, blanks: 0 }, false);
            continue;
        }
        if is_indented(raw) {
            sheet.items.push(item(vec![line.to_owned()], false));
            (open, gap) = (OpenElement::Bullet { width: raw.len() - line.len(), blanks: 0 }, false);
            continue;
        }
        let marked = split_marks(line);
        match (&marked, sheet.items.last_mut()) {
            // Marks on a line of their own belong to the item directly above.
            (Some((text, _)), Some(last)) if text.is_empty() && !gap && last.place == place => {
                last.lines.push(line.to_owned())
            }
            (None, Some(last)) if open == OpenElement::Paragraph => {
                last.lines.push(line.to_owned())
            }
            _ => sheet.items.push(item(vec![line.to_owned()], false)),
        }
        open = if marked.is_some() { OpenElement::Nothing } else { OpenElement::Paragraph };
        gap = false;
    }
    sheet
}

/// Whether a line belongs to the frame of a page of this kind.
fn is_frame(kind: PageKind, line: &str) -> bool {
    let names: &[&str] = match kind {
        PageKind::Entity => &["Type", "Aliases", "Last updated"],
        PageKind::Procedure => &["Last updated", "Source"],
        PageKind::Principle => &["Priority", "Established", "Source"],
        PageKind::Insight => &["Learned", "Source"],
    };
    frame_value(line, names).is_some()
}

/// The value of a line like `*Name: value*`, if it has one of these names.
pub(super) fn frame_value<'a>(line: &'a str, names: &[&str]) -> Option<&'a str> {
    let (name, value) = line.strip_prefix('*')?.strip_suffix('*')?.split_once(':')?;
    names.iter().any(|known| known.eq_ignore_ascii_case(name.trim())).then(|| value.trim())
}
