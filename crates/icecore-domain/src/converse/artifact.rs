//! Artifacts: code blocks, drafts and documents that a user will refer back to. They are recognized
//! in an exchange, named and stored version by version (C11).
//!
//! [`find_artifacts`] reads an exchange, [`assign_versions`] decides which artifact each candidate
//! is the next version of, [`ArtifactIndex`] lists all versions, and [`ArtifactReference`] is what
//! a phrase such as "the version from turn 3" refers to. A version's text equals the block's
//! content byte for byte.

mod difference;
mod fence;
mod index;
mod like;
mod name;
mod prose;
mod refer;

pub use difference::{MOST_DIFF_LINES, diff, diff_within};
pub use index::{Entry, INDEX, Index};
pub use like::{Sketch, count};
pub use name::{MAX_NAME_BYTES, extension, is_name, slug};
pub use refer::{At, MOST_REFERENCES, Reference, markers};

pub(crate) use difference::{longest_rising, matches, runs};
pub(crate) use fence::blocks;
pub(crate) use like::words;
pub(crate) use prose::{Line, heading, lines};

use std::collections::BTreeSet;

use crate::calendar::Moment;
use crate::hash::Hash;
use crate::record::Role;
use crate::words::words as written_words;

use super::document;

/// Maximum number of candidates per speaker and exchange.
pub const MOST_FOUND: usize = 64;
/// Minimum similarity of unnamed code to an artifact of which it is the next version.
const CODE_LIKENESS: f32 = 0.5;
/// The same minimum for drafts.
const DRAFT_LIKENESS: f32 = 0.5;
/// The same minimum for text without the marks of a draft.
const TEXT_LIKENESS: f32 = 0.6;
/// Number of turns for which "make it shorter" still refers to the last draft.
const TURNS_IN_MIND: u64 = 3;

written_words! {
    /// The kind of an artifact.
    Kind: "a kind of artifact" {
        /// A block of code.
        Code = "code",
        /// A letter, a poem, a plan.
        Draft = "draft",
        /// A long text.
        Document = "document",
    }
}

impl Kind {
    /// Whether it consists of sentences.
    pub fn is_prose(self) -> bool {
        self != Self::Code
    }
}

written_words! {
    /// How much of an artifact a candidate contains.
    Extent: "an extent" {
        Whole = "whole",
        /// It says that lines are omitted: `# ... rest unchanged`.
        Part = "part",
        /// The reply ended within it.
        Cut = "cut",
        /// A text without the marks of a draft. It counts only if it matches a known artifact.
        Perhaps = "perhaps",
    }
}

/// An artifact found in an exchange, not yet matched to an existing one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Its name, or a suggestion for it.
    pub name: Option<String>,
    /// Whether a title or file name gave it that name; otherwise the name comes from its content.
    pub named: bool,
    pub kind: Kind,
    /// The canonical language name.
    pub language: Option<String>,
    /// The content, byte for byte. If a block is indented with its fence, that indentation is
    /// removed.
    pub text: String,
    pub by: Role,
    pub extent: Extent,
    /// The first thing it defines.
    pub main: Option<String>,
    /// Whether the surrounding text says that it replaces an earlier version.
    pub revises: bool,
}

/// The candidates of one exchange.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Finds {
    /// The user's first, each in text order.
    pub found: Vec<Found>,
    /// Number of further blocks that were not examined.
    pub passed_over: usize,
}

/// A version to be stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewVersion {
    /// Its entry in the index.
    pub entry: Entry,
    /// The content of the file that the entry names.
    pub text: String,
}

/// Finds what the user and the assistant wrote that may be referred to later.
pub fn find(user: &str, assistant: &str) -> Finds {
    let mut finds = Finds::default();
    let request = prose::Request::read(user);
    find_in(user, Role::User, prose::Request::default(), &mut finds);
    find_in(assistant, Role::Assistant, request, &mut finds);
    finds
}

fn find_in(text: &str, by: Role, request: prose::Request, finds: &mut Finds) {
    let blocks = blocks(text);
    finds.passed_over += blocks.len().saturating_sub(MOST_FOUND);
    let mut found: Vec<(usize, Found)> = Vec::new();
    for block in blocks.iter().take(MOST_FOUND) {
        found.extend(block_found(text, block, by).map(|one| (block.start, one)));
    }
    let lines = lines(text, &blocks);
    let mut push = |range: std::ops::Range<usize>,
                    title: Option<String>,
                    kind: Kind,
                    extent: Extent,
                    revises: bool| {
        let one = Found {
            name: title.map(|title| slug(&title)),
            named: false,
            kind,
            language: None,
            text: text[range.clone()].to_owned(),
            by,
            extent,
            main: None,
            revises,
        };
        found.push((range.start, one));
    };
    let revises = request.revises;
    if document::is_document_by(text, &lines, by == Role::User) {
        let range = prose::body(text, &lines);
        push(range.clone(), prose::title(&text[range]), Kind::Document, Extent::Whole, revises);
    } else {
        let drafts = prose::drafts(text, &lines, request);
        if drafts.is_empty() {
            let range = prose::body(text, &lines);
            if prose::is_long_enough_to_know_again(&text[range.clone()], &lines) {
                push(range, None, Kind::Draft, Extent::Perhaps, false);
            }
        }
        for draft in drafts {
            push(draft.range, draft.title, Kind::Draft, Extent::Whole, draft.revises);
        }
    }
    found.sort_by_key(|(at, _)| *at);
    finds.passed_over += found.len().saturating_sub(MOST_FOUND);
    finds.found.extend(found.into_iter().take(MOST_FOUND).map(|(_, one)| one));
}

/// The candidate in a fenced block, unless the block is too small to be referred to.
fn block_found(text: &str, block: &fence::Block<'_>, by: Role) -> Option<Found> {
    let content = block.content(text);
    let info = name::info(block.info);
    let before = prose::line_before(text, block.start);
    let language = info.language;
    let explicit = info
        .title
        .or_else(|| before.and_then(|line| name::named_before(line, language.as_deref())))
        .or_else(|| name::named_within(&content, language.as_deref()));
    let language = language.or_else(|| explicit.as_deref().and_then(name::language_of_file));
    let said = language.as_deref();
    let (filled, long) = (
        content.lines().filter(|line| !line.trim().is_empty()).take(3).count(),
        content.trim().chars().take(40).count() == 40,
    );
    if filled == 0 {
        return None;
    }
    let brief =
        filled < 2 && !long || filled <= 2 && said == Some("shell") || content.trim().len() < 16;
    if brief && explicit.is_none() {
        return None;
    }
    let is_prose = matches!(said, Some("markdown" | "email"))
        || matches!(said, None | Some("text")) && prose::is_letter(&content);
    let kind = match is_prose {
        true if document::is_document(&content) => Kind::Document,
        true => Kind::Draft,
        false => Kind::Code,
    };
    let main = if is_prose { None } else { name::main_definition(&content, said) };
    let named = explicit.is_some();
    let title = explicit.or_else(|| if is_prose { prose::title(&content) } else { main.clone() });
    let mut name = title.map(|title| slug(&title));
    if said == Some("diff") {
        // A patch of a file is not the file.
        name = name.map(|name| {
            if name.ends_with(".diff") || name.ends_with(".patch") {
                name
            } else {
                name::with_suffix(&name, ".diff")
            }
        });
    }
    let extent = if !block.closed {
        Extent::Cut
    } else if kind == Kind::Code && said != Some("diff") && fence::leaves_out(&content) {
        Extent::Part
    } else {
        Extent::Whole
    };
    let revises = before.is_some_and(prose::says_revised);
    Some(Found {
        name,
        named,
        kind,
        language,
        text: content.into_owned(),
        by,
        extent,
        main,
        revises,
    })
}

/// Decides which versions an exchange adds. Processing the same exchange again adds nothing.
///
/// Every decision depends only on what was known before this turn and on what this turn has added
/// so far. A turn that is processed late, or again after an interruption, has the same result.
pub fn settle(found: &[Found], known: &Index, turn: u64, ts: Moment) -> Vec<NewVersion> {
    let mut settling = Settling { known, turn, made: Vec::new() };
    let drafts = found
        .iter()
        .filter(|one| {
            one.kind.is_prose() && one.extent != Extent::Perhaps && one.by == Role::Assistant
        })
        .count();
    for one in found {
        let sketch = if one.kind.is_prose() {
            Sketch::of_prose(&one.text)
        } else {
            Sketch::of_code(&one.text)
        };
        let hash = like::hash(&one.text);
        let Some((name, extent)) = settling.place(one, &sketch, hash, drafts == 1) else {
            continue;
        };
        if settling.stands(&name, hash) {
            continue;
        }
        let there = known.versions(&name).find(|entry| entry.turn == turn && entry.hash == hash);
        let is_new = there.is_none();
        let entry = there
            .cloned()
            .unwrap_or_else(|| Entry { extent, ..settling.entry(name, one, sketch, hash, ts) });
        let text = if is_new { one.text.clone() } else { String::new() };
        settling.made.push((NewVersion { entry, text }, is_new));
    }
    settling.made.into_iter().filter_map(|(version, is_new)| is_new.then_some(version)).collect()
}

/// The artifact a candidate belongs to.
enum Name {
    Of(String),
    PartOf(String),
}

struct Settling<'a> {
    known: &'a Index,
    turn: u64,
    /// What this turn has added, and whether it is still missing from the index.
    made: Vec<(NewVersion, bool)>,
}

impl Settling<'_> {
    /// The version that is current at this point of the turn.
    fn latest(&self, name: &str) -> Option<&Entry> {
        let made =
            self.made.iter().rev().map(|(made, _)| &made.entry).find(|entry| entry.name == name);
        made.or_else(|| self.before(name))
    }

    fn before(&self, name: &str) -> Option<&Entry> {
        self.turn.checked_sub(1).and_then(|turn| self.known.at_turn(name, turn))
    }

    fn all_latest(&self) -> impl Iterator<Item = &Entry> {
        // Each name once: on a second run all of them are already in the index, and the result must
        // be the same.
        let made = self.made.iter().map(|(made, _)| &made.entry);
        let added: BTreeSet<&str> =
            made.map(|entry| entry.name.as_str()).filter(|name| !self.known.has(name)).collect();
        self.known.names().chain(added).filter_map(|name| self.latest(name))
    }

    /// Whether the text is already recorded: as the latest version, as the version this turn began
    /// with, or earlier in this turn.
    fn stands(&self, name: &str, hash: Hash) -> bool {
        self.latest(name).is_some_and(|entry| entry.hash == hash)
            || self.before(name).is_some_and(|entry| entry.hash == hash)
            || self.made.iter().any(|(made, _)| made.entry.name == name && made.entry.hash == hash)
    }

    /// Decides which artifact a candidate is a version of, and how much of it it contains.
    fn place(
        &self,
        one: &Found,
        sketch: &Sketch,
        hash: Hash,
        only_draft: bool,
    ) -> Option<(String, Extent)> {
        let name = self.name(one, sketch, hash, only_draft)?;
        // What was stored as a part because of its size must not become the whole later.
        Some(match (one.extent, name) {
            (Extent::Perhaps, Name::Of(name)) => (name, Extent::Whole),
            (extent, Name::Of(name)) => (name, extent),
            (_, Name::PartOf(name)) => (name::with_suffix(&name, "-part"), Extent::Part),
        })
    }

    fn name(&self, one: &Found, sketch: &Sketch, hash: Hash, only_draft: bool) -> Option<Name> {
        if one.extent == Extent::Perhaps {
            // Compare only with versions from before this turn: a text without marks must not match
            // its own neighbors.
            let latest = self
                .known
                .names()
                .filter_map(|name| self.before(name))
                .filter(|entry| entry.kind.is_prose());
            let (likeness, entry) =
                most(latest.map(|entry| (sketch.likeness(&entry.sketch), entry)))?;
            return (likeness >= TEXT_LIKENESS).then(|| Name::Of(entry.name.clone()));
        }
        if one.named {
            let name = one.name.as_deref().map(slug)?;
            let name = if self.latest(&name).is_some() {
                name
            } else {
                self.longer_or_shorter(&name, sketch).unwrap_or(name)
            };
            return Some(if one.extent == Extent::Part {
                Name::PartOf(name)
            } else {
                Name::Of(name)
            });
        }
        let alike = |entry: &&Entry| {
            entry.kind.is_prose() == one.kind.is_prose()
                && (one.kind.is_prose() || entry.language == one.language)
                && entry.extent != Extent::Part
        };
        let same_main = |entry: &Entry| one.main.is_some() && entry.main == one.main;
        let threshold = if one.kind.is_prose() { DRAFT_LIKENESS } else { CODE_LIKENESS };
        let best = most(
            self.all_latest().filter(alike).map(|entry| (sketch.likeness(&entry.sketch), entry)),
        );
        if one.extent == Extent::Part {
            let within = most(
                self.all_latest()
                    .filter(alike)
                    .map(|entry| (sketch.part_within(&entry.sketch), entry)),
            );
            let of = self
                .all_latest()
                .filter(alike)
                .filter(|entry| same_main(entry))
                .max_by_key(age)
                .or(within.filter(|(share, _)| *share >= 0.5).map(|(_, entry)| entry));
            let name = of
                .map(|entry| entry.name.clone())
                .or_else(|| one.name.clone())
                .unwrap_or_else(|| format!("code-{}", word(one)));
            return Some(Name::PartOf(slug(&name)));
        }
        if let Some((_, entry)) = best.filter(|(likeness, _)| *likeness >= threshold) {
            return Some(Name::Of(entry.name.clone()));
        }
        if let Some(entry) =
            self.all_latest().filter(alike).filter(|entry| same_main(entry)).max_by_key(age)
        {
            // A few lines of a long artifact are an excerpt, not a new version.
            let excerpt =
                sketch.size() * 2 < entry.sketch.size() && sketch.part_within(&entry.sketch) >= 0.6;
            let name = entry.name.clone();
            return Some(if excerpt { Name::PartOf(name) } else { Name::Of(name) });
        }
        if one.kind.is_prose() {
            let titled =
                one.name.as_deref().and_then(|name| self.latest(name)).filter(|entry| alike(entry));
            if let Some(entry) =
                titled.filter(|entry| one.revises || sketch.likeness(&entry.sketch) >= 0.1)
            {
                return Some(Name::Of(entry.name.clone()));
            }
            let in_mind = |entry: &&Entry| {
                entry.kind.is_prose()
                    && entry.turn < self.turn
                    && entry.turn + TURNS_IN_MIND >= self.turn
            };
            if one.revises && only_draft && one.by == Role::Assistant {
                let last = self
                    .known
                    .names()
                    .filter_map(|name| self.before(name))
                    .filter(in_mind)
                    .max_by_key(age);
                if let Some(entry) = last {
                    return Some(Name::Of(entry.name.clone()));
                }
            }
        }
        Some(Name::Of(self.fresh(one, hash)))
    }

    /// `main.rs` is `src/main.rs` if there is only one such file and the content is similar.
    fn longer_or_shorter(&self, name: &str, sketch: &Sketch) -> Option<String> {
        let ends = |long: &str, short: &str| {
            long.strip_suffix(short).is_some_and(|rest| rest.ends_with('-'))
        };
        let mut found =
            self.all_latest().filter(|entry| ends(&entry.name, name) || ends(name, &entry.name));
        let (one, other) = (found.next()?, found.next());
        (other.is_none() && sketch.likeness(&one.sketch) >= 0.3).then(|| one.name.clone())
    }

    /// An unused name, or the one that this candidate got when the turn was first processed.
    fn fresh(&self, one: &Found, hash: Hash) -> String {
        let (base, from) = match &one.name {
            Some(name) => (slug(name), 1),
            None if one.kind == Kind::Code => (format!("code-{}", word(one)), 0),
            None => (one.kind.word().to_owned(), 0),
        };
        let ours = |entry: &Entry| {
            entry.turn == self.turn
                && (entry.hash == hash || one.main.is_some() && entry.main == one.main)
        };
        (from..)
            .map(|number: u32| match (from, number) {
                (1, 1) => base.clone(),
                (_, number) => name::with_suffix(&base, &format!("-{}", number + 1 - from)),
            })
            .find(|name| {
                self.latest(name).is_none()
                    && (!self.known.has(name) || self.known.versions(name).any(ours))
            })
            .unwrap_or(base)
    }

    fn entry(&self, name: String, one: &Found, sketch: Sketch, hash: Hash, ts: Moment) -> Entry {
        let made = self.made.iter().map(|(made, _)| &made.entry).filter(|entry| entry.name == name);
        let all = || self.known.versions(&name).chain(made.clone());
        let version = all().map(|entry| entry.version).max().unwrap_or(0).saturating_add(1);
        let same_as = all().filter(|entry| entry.hash == hash).map(|entry| entry.version).max();
        // An artifact keeps its kind, so that all of its versions are in one folder.
        let kind = all().next().map_or(one.kind, |first| first.kind);
        let language = one.language.clone();
        let file = index::file(&name, version, kind, language.as_deref());
        Entry {
            version,
            turn: self.turn,
            ts,
            kind,
            language,
            by: one.by,
            extent: one.extent,
            bytes: one.text.len(),
            lines: one.text.lines().count(),
            hash,
            file,
            main: one.main.clone(),
            same_as,
            sketch,
            other: serde_json::Map::new(),
            name,
        }
    }
}

/// The candidate's language, for use in a name.
fn word(one: &Found) -> String {
    one.language.as_deref().map_or_else(|| "text".to_owned(), slug)
}

fn most<'a>(scored: impl Iterator<Item = (f32, &'a Entry)>) -> Option<(f32, &'a Entry)> {
    scored.max_by(|a, b| a.0.total_cmp(&b.0).then_with(|| age(&a.1).cmp(&age(&b.1))))
}

/// Sort key for the later of two versions. It is unique per artifact, so that the choice is
/// deterministic.
fn age<'a>(entry: &&'a Entry) -> (u64, u32, &'a str) {
    (entry.turn, entry.version, &entry.name)
}

#[cfg(test)]
mod tests;
