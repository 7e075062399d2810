//! Long documents: stored whole, version by version, with the changes between versions (C12).
//!
//! A document is an artifact of kind [`Kind::Document`](super::artifact::Kind). The same rules
//! name, version and match it.

use std::collections::HashMap;

use super::artifact::{self, Line, Sketch};

/// Minimum number of words of a document.
pub const DOCUMENT_WORDS: usize = 1_500;
/// Minimum number of words of a pasted text with headings that counts as a document.
const PASTED_WORDS: usize = 300;
/// Minimum number of headings of such a pasted text.
const PASTED_HEADINGS: usize = 3;
/// Minimum similarity of a text to a document of which it is an edited version.
const SAME_LIKENESS: f32 = 0.6;
/// Maximum number of lines of an outline.
pub const MOST_OUTLINED: usize = 60;
/// Maximum number of reported changes.
pub const MOST_CHANGES: usize = 40;
/// Maximum length of a quoted heading, in characters.
const HEADING_CHARS: usize = 80;
/// Maximum length of a stored diff, in lines.
const MOST_DIFF_LINES: usize = 20_000;
/// With more sections than this, sections with new headings are not compared with each other.
const MOST_COMPARED: usize = 200;

/// Whether a text is long enough to be stored as a document. Code in it does not count.
pub fn is_document(text: &str) -> bool {
    let blocks = artifact::blocks(text);
    has_words(&artifact::lines(text, &blocks), DOCUMENT_WORDS + 1)
}

/// Like [`is_document`], but a pasted text may be shorter if it is structured like a document.
pub(super) fn is_document_by(text: &str, lines: &[Line<'_>], pasted: bool) -> bool {
    let headings = || {
        lines
            .iter()
            .filter(|line| !line.fenced && artifact::heading(line.text).is_some())
            .take(PASTED_HEADINGS)
            .count()
    };
    text.len() > PASTED_WORDS
        && (has_words(lines, DOCUMENT_WORDS + 1)
            || pasted && headings() == PASTED_HEADINGS && has_words(lines, PASTED_WORDS))
}

fn has_words(lines: &[Line<'_>], least: usize) -> bool {
    let mut words = 0;
    for line in lines.iter().filter(|line| !line.fenced) {
        words += artifact::count(line.text);
        if words >= least {
            return true;
        }
    }
    false
}

/// Whether one text is an edited version of the other.
pub fn is_same(old: &str, new: &str) -> bool {
    Sketch::of_prose(old).likeness(&Sketch::of_prose(new)) >= SAME_LIKENESS
}

/// The changes as a diff with one line of context: in a document, a line is a paragraph.
pub fn diff(old: &str, new: &str, old_name: &str, new_name: &str) -> String {
    artifact::diff_within(old, new, old_name, new_name, 1, MOST_DIFF_LINES)
}

/// A heading and the text below it.
#[derive(Debug)]
struct Section<'a> {
    level: usize,
    /// `None` for the text before the first heading.
    title: Option<&'a str>,
    words: Vec<&'a str>,
}

impl Section<'_> {
    fn name(&self) -> String {
        match self.title {
            Some(title) if title.chars().count() > HEADING_CHARS => {
                format!("section `{}…`", title.chars().take(HEADING_CHARS).collect::<String>())
            }
            Some(title) => format!("section `{title}`"),
            None => "the beginning".to_owned(),
        }
    }
}

/// Splits a text by its headings: `# Title`, or a title underlined with `===` or `---`.
fn sections(text: &str) -> Vec<Section<'_>> {
    let blocks = artifact::blocks(text);
    let lines = artifact::lines(text, &blocks);
    let mut sections = vec![Section { level: 0, title: None, words: Vec::new() }];
    let mut at = 0;
    while let Some(line) = lines.get(at) {
        let below = lines
            .get(at + 1)
            .filter(|below| !below.fenced)
            .map_or("", |below| below.text.trim_end());
        let stands_alone = at == 0 || lines[at - 1].text.trim().is_empty();
        let underlined = |mark: char| {
            below.len() >= 3
                && below.chars().all(|c| c == mark)
                && stands_alone
                && !line.text.trim().is_empty()
                && line.text.len() <= 120
        };
        let found = match artifact::heading(line.text).filter(|_| !line.fenced) {
            Some(found) => Some((found, 1)),
            None if !line.fenced && underlined('=') => Some(((1, line.text.trim()), 2)),
            None if !line.fenced && underlined('-') => Some(((2, line.text.trim()), 2)),
            None => None,
        };
        if let Some(((level, title), taken)) = found {
            sections.push(Section { level, title: Some(title), words: Vec::new() });
            at += taken;
            continue;
        }
        if let Some(section) = sections.last_mut() {
            section.words.extend(artifact::words(line.text));
        }
        at += 1;
    }
    if sections[0].words.is_empty() {
        sections.remove(0);
    }
    sections
}

fn counted(number: usize, one: &str) -> String {
    if number == 1 { format!("1 {one}") } else { format!("{number} {one}s") }
}

/// The headings of a text with the word count below each, at most [`MAX_OUTLINE_LINES`] lines.
pub fn outline(text: &str) -> Vec<String> {
    let sections = sections(text);
    let line = |section: &Section<'_>| {
        let indent = "  ".repeat(section.level.saturating_sub(1));
        let title = section.title.unwrap_or("(beginning)");
        let title: String = title.chars().take(HEADING_CHARS).collect();
        format!("{indent}{title} ({})", counted(section.words.len(), "word"))
    };
    let mut outline: Vec<String> = sections.iter().take(MOST_OUTLINED).map(line).collect();
    if sections.len() > MOST_OUTLINED {
        outline.push(format!("… {} more", counted(sections.len() - MOST_OUTLINED, "section")));
    }
    outline
}

/// The changes between two versions of a document, section by section, at most [`MAX_CHANGE_LINES`]
/// lines.
pub fn changed(old: &str, new: &str) -> Vec<String> {
    if old == new {
        return Vec::new();
    }
    let (old, new) = (sections(old), sections(new));
    let pairs = paired(&old, &new);
    let of_new: HashMap<usize, usize> = pairs.iter().map(|&(old, new)| (new, old)).collect();
    let mut by_old = pairs.clone();
    by_old.sort_unstable();
    let in_place = artifact::longest_rising(&by_old);
    let mut told = Vec::new();
    for (at, section) in new.iter().enumerate() {
        let Some(&before) = of_new.get(&at) else {
            told.push(format!(
                "{} added ({})",
                section.name(),
                counted(section.words.len(), "word")
            ));
            continue;
        };
        let was = &old[before];
        let mut what = Vec::new();
        if was.title != section.title {
            what.push(format!("was {}", was.name()));
        }
        if in_place.binary_search(&(before, at)).is_err() {
            what.push("moved".to_owned());
        }
        what.extend(words_changed(&was.words, &section.words));
        if !what.is_empty() {
            told.push(format!("{}: {}", section.name(), what.join(", ")));
        }
    }
    let kept: std::collections::HashSet<usize> = pairs.iter().map(|(old, _)| *old).collect();
    let removed = old.iter().enumerate().filter(|(at, _)| !kept.contains(at));
    told.extend(removed.map(|(_, section)| {
        format!("{} removed ({})", section.name(), counted(section.words.len(), "word"))
    }));
    if told.is_empty() {
        told.push("only white space, punctuation or code changed".to_owned());
    }
    if told.len() > MOST_CHANGES {
        let more = told.len() - MOST_CHANGES;
        told.truncate(MOST_CHANGES);
        told.push(format!("… {} more", counted(more, "change")));
    }
    told
}

/// Pairs old sections with new ones: by heading first, then by content.
fn paired(old: &[Section<'_>], new: &[Section<'_>]) -> Vec<(usize, usize)> {
    let mut places: HashMap<(Option<&str>, usize), usize> = HashMap::new();
    let mut seen: HashMap<Option<&str>, usize> = HashMap::new();
    let nth = |seen: &mut HashMap<_, usize>, title| {
        let count = seen.entry(title).or_insert(0);
        *count += 1;
        *count
    };
    for (at, section) in old.iter().enumerate() {
        places.insert((section.title, nth(&mut seen, section.title)), at);
    }
    seen.clear();
    let (mut pairs, mut fresh) = (Vec::new(), Vec::new());
    for (at, section) in new.iter().enumerate() {
        match places.remove(&(section.title, nth(&mut seen, section.title))) {
            Some(before) => pairs.push((before, at)),
            None => fresh.push(at),
        }
    }
    let mut left: Vec<usize> = places.into_values().collect();
    left.sort_unstable();
    if left.len() <= MOST_COMPARED && fresh.len() <= MOST_COMPARED {
        let sketch = |section: &Section<'_>| Sketch::of_prose(&section.words.join(" "));
        let mut left: Vec<(usize, Sketch)> =
            left.into_iter().map(|at| (at, sketch(&old[at]))).collect();
        for at in fresh {
            let mine = sketch(&new[at]);
            let best = left
                .iter()
                .enumerate()
                .map(|(place, (_, other))| (mine.likeness(other), place))
                .max_by(|a, b| a.0.total_cmp(&b.0));
            if let Some((_, place)) = best.filter(|(likeness, _)| *likeness >= SAME_LIKENESS) {
                pairs.push((left.remove(place).0, at));
            }
        }
    }
    pairs
}

/// "12 words changed" where words were replaced; otherwise "3 words added", "5 words removed".
fn words_changed(old: &[&str], new: &[&str]) -> Option<String> {
    let (mut changed, mut added, mut removed) = (0, 0, 0);
    for run in artifact::runs(&artifact::matches(old, new), old.len(), new.len()) {
        let (gone, come) = (run.old.1 - run.old.0, run.new.1 - run.new.0);
        match (gone, come) {
            (0, come) => added += come,
            (gone, 0) => removed += gone,
            _ => changed += gone.max(come),
        }
    }
    let parts = [(changed, "changed"), (added, "added"), (removed, "removed")];
    let told: Vec<String> = parts
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{} {what}", counted(*count, "word")))
        .collect();
    (!told.is_empty()).then(|| told.join(", "))
}

#[cfg(test)]
mod tests;
