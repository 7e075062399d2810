//! Reading a page as a person left it: its frame, its headings, its items and the marks at their
//! ends (L4).
//!
//! Nothing is judged here and nothing is refused: whatever stands in the file is an item of some
//! section, or a line of the frame around them.

use std::collections::HashSet;

use jiff::civil::Date;

use super::render::is_count_line;
use super::{MAX_NAME_BYTES, PageKind, heading_name};
use crate::id::EventId;
use crate::plain;

/// The longest block of code or comment, in lines; a longer one is read line by line.
const MAX_BLOCK_LINES: usize = 1_000;

/// The marks that a generated item ends with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Marks {
    pub id: EventId,
    pub verified: Option<Date>,
    /// Only the id stands there, neither a source nor a date.
    pub bare: bool,
}

/// Where an item stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    /// Above the first heading there is.
    Head,
    /// In a section that a person may fill.
    Section(String),
    /// Among lines that only tell of others.
    Derived,
}

/// One item: a bullet with all that is indented below it, a paragraph, a block of code or a
/// comment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Item {
    pub place: Place,
    pub lines: Vec<String>,
    /// It was a numbered one.
    pub numbered: bool,
    /// It follows the item before without an empty line or heading between.
    pub adjacent: bool,
}

/// A file, read.
#[derive(Debug, Default)]
pub(super) struct Sheet {
    /// The title, without what its kind puts before it.
    pub title: Option<String>,
    /// Lines like `*Type: person*` above the first heading.
    pub frame: Vec<String>,
    /// The names of sections that no template has, each once.
    pub headings: Vec<String>,
    pub items: Vec<Item>,
}

/// A line without the marks at its end, and these.
pub(super) fn split_marks(line: &str) -> Option<(String, Marks)> {
    let line = line.trim();
    // Struck through as a whole, marks included.
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
    let marks = Marks { id, verified, bare: verified.is_none() && sourced.is_none() };
    Some((sourced.map_or(rest, |(rest, _)| rest).to_owned(), marks))
}

/// A text that ends with `[NAME value]`, taken apart. Only the last one counts, and it stands by
/// itself.
fn split_mark<'a>(text: &'a str, name: &str) -> Option<(&'a str, &'a str)> {
    let inner = text.trim_end().strip_suffix(']')?;
    let at = inner.rfind('[')?;
    let value = inner[at + 1..].strip_prefix(name)?;
    let before = &text[..at];
    (!value.contains(']') && (before.is_empty() || before.ends_with(char::is_whitespace)))
        .then(|| (before.trim_end(), value))
}

/// The ids at the end of a text, and what stands before them.
pub(super) fn split_ids(text: &str) -> (&str, Vec<EventId>) {
    let (mut rest, mut ids) = (text.trim(), Vec::new());
    while let Some((before, id)) = split_mark(rest, "EVT-") {
        let Ok(id) = format!("EVT-{id}").parse() else { break };
        ids.insert(0, id);
        rest = before;
    }
    (rest, ids)
}

fn heading(line: &str) -> Option<(usize, &str)> {
    let level = line.bytes().take_while(|&byte| byte == b'#').count();
    let rest = &line[level..];
    ((1..=6).contains(&level) && (rest.is_empty() || rest.starts_with([' ', '\t'])))
        .then(|| (level, rest.trim()))
}

/// What a bullet or a number stands before, how far that is indented, and whether it was a number.
pub(super) fn bullet(line: &str) -> Option<(&str, usize, bool)> {
    let digits = line.bytes().take_while(u8::is_ascii_digit).count();
    let numbered =
        (1..=9).contains(&digits).then(|| line[digits..].strip_prefix(['.', ')'])).flatten();
    let rest = numbered.or_else(|| line.strip_prefix(['-', '*', '+']))?;
    rest.starts_with([' ', '\t']).then(|| {
        (rest.trim_start(), if numbered.is_some() { digits + 2 } else { 2 }, numbered.is_some())
    })
}

/// A line that only separates: it says nothing.
fn is_rule(line: &str) -> bool {
    line.chars().all(|c| matches!(c, '-' | '*' | '_' | '=' | '+'))
}

fn is_indented(line: &str) -> bool {
    line.starts_with("  ") || line.starts_with('\t')
}

/// The line without the blanks that make it part of an item.
fn dedented(line: &str, width: usize) -> &str {
    if let Some(rest) = line.strip_prefix('\t') {
        return rest;
    }
    let blanks = line.bytes().take(width).take_while(|&byte| byte == b' ').count();
    &line[blanks..]
}

/// How the lines of a page's head begin.
const FRAME: &[&str] = &[
    "*Type: ",
    "*Aliases: ",
    "*Last updated: ",
    "*Source: ",
    "*Established: ",
    "*Learned: ",
    "*Priority: ",
];

/// The last line of the block of code or the comment that `lines` begins with. A block that is
/// never closed, or that has an item of ours in it, is none: a stray fence must not swallow the
/// page.
fn block_end(lines: &[&str], is_ours: &impl Fn(EventId) -> bool) -> Option<usize> {
    let first = lines.first()?.trim_start();
    if first.starts_with("<!--") {
        // Nor does a comment reach over the head of a page, which names whatever somebody's source
        // is called.
        let ours = |line: &str| {
            has_ours(line, is_ours) || FRAME.iter().any(|begin| line.starts_with(begin))
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
        if has_ours(line, is_ours) {
            return None;
        }
        let line = line.trim();
        if line.len() >= length && line.chars().all(|c| c == mark) {
            return Some(at);
        }
    }
    None
}

fn has_ours(line: &str, is_ours: &impl Fn(EventId) -> bool) -> bool {
    split_marks(line).is_some_and(|(_, marks)| is_ours(marks.id))
}

#[derive(Clone, Copy, PartialEq)]
enum Open {
    Nothing,
    Paragraph,
    Bullet { width: usize, blanks: usize },
}

/// Reads a file. `is_title` knows the titles the page ever had, `is_ours` the events.
pub(super) fn read(
    kind: PageKind,
    file: &str,
    is_title: impl Fn(&str) -> bool,
    is_ours: impl Fn(EventId) -> bool,
) -> Sheet {
    let lines: Vec<&str> = file.trim_start_matches('\u{feff}').lines().map(str::trim_end).collect();
    let title_text = |text: &str| heading_name(text.strip_prefix(kind.prefix()).unwrap_or(text));
    let knows_title = lines
        .iter()
        .filter_map(|line| heading(line))
        .any(|(level, text)| level == 1 && is_title(&title_text(text)));
    let mut sheet = Sheet::default();
    let mut seen: HashSet<String> = HashSet::new();
    let mut place = Place::Head;
    let mut in_head = true;
    let mut open = Open::Nothing;
    let mut gap = true;
    let mut at = 0;
    while let Some(&raw) = lines.get(at) {
        at += 1;
        if raw.trim().is_empty() {
            match &mut open {
                Open::Bullet { blanks, .. } => *blanks += 1,
                _ => open = Open::Nothing,
            }
            gap = true;
            continue;
        }
        if let (Open::Bullet { width, blanks }, true) = (open, is_indented(raw)) {
            if let Some(item) = sheet.items.last_mut() {
                item.lines.extend(std::iter::repeat_n(String::new(), blanks));
                item.lines.push(dedented(raw, width).to_owned());
            }
            open = Open::Bullet { width, blanks: 0 };
            gap = false;
            continue;
        }
        let line = raw.trim_start();
        if matches!(open, Open::Bullet { .. }) {
            open = Open::Nothing;
        }
        if let Some((level, text)) =
            heading(line).filter(|(_, text)| text.len() <= MAX_NAME_BYTES && !is_indented(raw))
        {
            (open, gap) = (Open::Nothing, true);
            let title = title_text(text);
            if level == 1
                && ((in_head && sheet.title.is_none() && !knows_title) || is_title(&title))
            {
                sheet.title.get_or_insert(title);
                continue;
            }
            let name = heading_name(&plain::clean(text).text);
            if name.is_empty() {
                continue;
            }
            in_head &= !kind.is_derived(&name) && kind.template(&name).is_none();
            place = if kind.is_derived(&name) {
                Place::Derived
            } else {
                Place::Section(kind.section(&name))
            };
            if let Place::Section(name) = &place
                && kind.template(name).is_none()
                && seen.insert(name.clone())
            {
                sheet.headings.push(name.clone());
            }
            continue;
        }
        let item = |lines: Vec<String>, numbered: bool| Item {
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
            (open, gap) = (Open::Nothing, false);
            continue;
        }
        if is_rule(line) || is_count_line(line) {
            (open, gap) = (Open::Nothing, true);
            continue;
        }
        if in_head && is_frame(kind, line) {
            sheet.frame.push(line.to_owned());
            (open, gap) = (Open::Nothing, true);
            continue;
        }
        if let Some((text, width, numbered)) = bullet(line) {
            sheet.items.push(item(vec![text.to_owned()], numbered));
            (open, gap) = (Open::Bullet { width, blanks: 0 }, false);
            continue;
        }
        if is_indented(raw) {
            sheet.items.push(item(vec![line.to_owned()], false));
            (open, gap) = (Open::Bullet { width: raw.len() - line.len(), blanks: 0 }, false);
            continue;
        }
        let marked = split_marks(line);
        match (&marked, sheet.items.last_mut()) {
            // Marks on a line of their own belong to what stands right above.
            (Some((text, _)), Some(last)) if text.is_empty() && !gap && last.place == place => {
                last.lines.push(line.to_owned())
            }
            (None, Some(last)) if open == Open::Paragraph => last.lines.push(line.to_owned()),
            _ => sheet.items.push(item(vec![line.to_owned()], false)),
        }
        open = if marked.is_some() { Open::Nothing } else { Open::Paragraph };
        gap = false;
    }
    sheet
}

/// Whether a line is one that the frame of such a page has.
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
