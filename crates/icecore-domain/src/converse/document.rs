//! Long documents: stored whole, version by version, with the changes between versions (C12).
//!
//! A document is an artifact of kind [`ArtifactKind::Document`](super::artifact::ArtifactKind). The same rules
//! name, version and match it.

use std::collections::HashMap;

use super::artifact::{self, SimilaritySketch, TextLine};

/// Minimum number of words of a document.
pub const MIN_DOCUMENT_WORDS: usize = 1_500;
/// Minimum number of words of a pasted text with headings that counts as a document.
const MIN_PASTED_WORDS: usize = 300;
/// Minimum number of headings of such a pasted text.
const MIN_PASTED_HEADINGS: usize = 3;
/// Minimum similarity of a text to a document of which it is an edited version.
const MIN_SAME_SIMILARITY: f32 = 0.6;
/// Maximum number of lines of an outline.
pub const MAX_OUTLINE_LINES: usize = 60;
/// Maximum number of reported changes.
pub const MAX_CHANGE_LINES: usize = 40;
/// Maximum length of a quoted heading, in characters.
const MAX_HEADING_CHARS: usize = 80;
/// Maximum length of a stored diff, in lines.
const MAX_DOCUMENT_DIFF_LINES: usize = 20_000;
/// With more sections than this, sections with new headings are not compared with each other.
const MAX_COMPARED_SECTIONS: usize = 200;

/// Whether a text is long enough to be stored as a document. Code in it does not count.
pub fn is_document(text: &str) -> bool {
    let blocks = artifact::fenced_blocks(text);
    has_min_words(&artifact::text_lines(text, &blocks), MIN_DOCUMENT_WORDS + 1)
}

/// Like [`is_document`], but a pasted text may be shorter if it is structured like a document.
pub(super) fn is_document_or_paste(text: &str, lines: &[TextLine<'_>], pasted: bool) -> bool {
    let headings = || {
        lines
            .iter()
            .filter(|line| !line.fenced && artifact::heading(line.text).is_some())
            .take(MIN_PASTED_HEADINGS)
            .count()
    };
    text.len() > MIN_PASTED_WORDS
        && (has_min_words(lines, MIN_DOCUMENT_WORDS + 1)
            || pasted
                && headings() == MIN_PASTED_HEADINGS
                && has_min_words(lines, MIN_PASTED_WORDS))
}

fn has_min_words(lines: &[TextLine<'_>], least: usize) -> bool {
    let mut words = 0;
    for line in lines.iter().filter(|line| !line.fenced) {
        words += artifact::word_count(line.text);
        if words >= least {
            return true;
        }
    }
    false
}

/// Whether one text is an edited version of the other.
pub fn is_same_document(old: &str, new: &str) -> bool {
    SimilaritySketch::of_prose(old).dice_similarity(&SimilaritySketch::of_prose(new))
        >= MIN_SAME_SIMILARITY
}

/// The changes as a diff with one line of context: in a document, a line is a paragraph.
pub fn diff(old: &str, new: &str, old_name: &str, new_name: &str) -> String {
    artifact::bounded_diff(old, new, old_name, new_name, 1, MAX_DOCUMENT_DIFF_LINES)
}

/// A heading and the text below it.
#[derive(Debug)]
struct DocumentSection<'a> {
    level: usize,
    /// `None` for the text before the first heading.
    title: Option<&'a str>,
    words: Vec<&'a str>,
}

impl DocumentSection<'_> {
    fn name(&self) -> String {
        match self.title {
            Some(title) if title.chars().count() > MAX_HEADING_CHARS => {
                format!("section `{}…`", title.chars().take(MAX_HEADING_CHARS).collect::<String>())
            }
            Some(title) => format!("section `{title}`"),
            None => "the beginning".to_owned(),
        }
    }
}

/// Splits a text by its headings: `# Title`, or a title underlined with `===` or `---`.
fn sections(text: &str) -> Vec<DocumentSection<'_>> {
    let blocks = artifact::fenced_blocks(text);
    let lines = artifact::text_lines(text, &blocks);
    let mut sections = vec![DocumentSection { level: 0, title: None, words: Vec::new() }];
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
            sections.push(DocumentSection { level, title: Some(title), words: Vec::new() });
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

fn count_label(number: usize, one: &str) -> String {
    if number == 1 { format!("1 {one}") } else { format!("{number} {one}s") }
}

/// The headings of a text with the word count below each, at most [`MAX_OUTLINE_LINES`] lines.
pub fn outline(text: &str) -> Vec<String> {
    let sections = sections(text);
    let line = |section: &DocumentSection<'_>| {
        let indent = "  ".repeat(section.level.saturating_sub(1));
        let title = section.title.unwrap_or("(beginning)");
        let title: String = title.chars().take(MAX_HEADING_CHARS).collect();
        format!("{indent}{title} ({})", count_label(section.words.len(), "word"))
    };
    let mut outline: Vec<String> = sections.iter().take(MAX_OUTLINE_LINES).map(line).collect();
    if sections.len() > MAX_OUTLINE_LINES {
        outline
            .push(format!("… {} more", count_label(sections.len() - MAX_OUTLINE_LINES, "section")));
    }
    outline
}

/// The changes between two versions of a document, section by section, at most [`MAX_CHANGE_LINES`]
/// lines.
pub fn section_changes(old: &str, new: &str) -> Vec<String> {
    if old == new {
        return Vec::new();
    }
    let (old, new) = (sections(old), sections(new));
    let pairs = pair_sections(&old, &new);
    let of_new: HashMap<usize, usize> = pairs.iter().map(|&(old, new)| (new, old)).collect();
    let mut by_old = pairs.clone();
    by_old.sort_unstable();
    let in_place = artifact::longest_increasing(&by_old);
    let mut told = Vec::new();
    for (at, section) in new.iter().enumerate() {
        let Some(&before) = of_new.get(&at) else {
            told.push(format!(
                "{} added ({})",
                section.name(),
                count_label(section.words.len(), "word")
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
        what.extend(word_change_summary(&was.words, &section.words));
        if !what.is_empty() {
            told.push(format!("{}: {}", section.name(), what.join(", ")));
        }
    }
    let kept: std::collections::HashSet<usize> = pairs.iter().map(|(old, _)| *old).collect();
    let removed = old.iter().enumerate().filter(|(at, _)| !kept.contains(at));
    told.extend(removed.map(|(_, section)| {
        format!("{} removed ({})", section.name(), count_label(section.words.len(), "word"))
    }));
    if told.is_empty() {
        told.push("only white space, punctuation or code changed".to_owned());
    }
    if told.len() > MAX_CHANGE_LINES {
        let more = told.len() - MAX_CHANGE_LINES;
        told.truncate(MAX_CHANGE_LINES);
        told.push(format!("… {} more", count_label(more, "change")));
    }
    told
}

/// Pairs old sections with new ones: by heading first, then by content.
fn pair_sections(old: &[DocumentSection<'_>], new: &[DocumentSection<'_>]) -> Vec<(usize, usize)> {
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
    if left.len() <= MAX_COMPARED_SECTIONS && fresh.len() <= MAX_COMPARED_SECTIONS {
        let sketch =
            |section: &DocumentSection<'_>| SimilaritySketch::of_prose(&section.words.join(" "));
        let mut left: Vec<(usize, SimilaritySketch)> =
            left.into_iter().map(|at| (at, sketch(&old[at]))).collect();
        for at in fresh {
            let mine = sketch(&new[at]);
            let best = left
                .iter()
                .enumerate()
                .map(|(place, (_, other))| (mine.dice_similarity(other), place))
                .max_by(|a, b| a.0.total_cmp(&b.0));
            if let Some((_, place)) = best.filter(|(likeness, _)| *likeness >= MIN_SAME_SIMILARITY)
            {
                pairs.push((left.remove(place).0, at));
            }
        }
    }
    pairs
}

/// "12 words changed" where words were replaced; otherwise "3 words added", "5 words removed".
fn word_change_summary(old: &[&str], new: &[&str]) -> Option<String> {
    let (mut changed, mut added, mut removed) = (0, 0, 0);
    for run in artifact::changed_ranges(&artifact::matching_pairs(old, new), old.len(), new.len()) {
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
        .map(|(count, what)| format!("{} {what}", count_label(*count, "word")))
        .collect();
    (!told.is_empty()).then(|| told.join(", "))
}

#[cfg(test)]
mod tests;
