//! Artifacts: code blocks, drafts and documents that a user will refer back to. They are recognized
//! in an exchange, named and stored version by version (C11).
//!
//! [`find_artifacts`] reads an exchange, [`assign_versions`] decides which artifact each candidate
//! is the next version of, [`ArtifactIndex`] lists all versions, and [`ArtifactReference`] is what
//! a phrase such as "the version from turn 3" refers to. A version's text equals the block's
//! content byte for byte.

mod fence;
mod index;
mod naming;
mod prose;
mod reference;
mod similarity;
mod text_diff;

pub use index::{ArtifactIndex, ArtifactVersion, INDEX_FILE};
pub use naming::{MAX_ARTIFACT_NAME_BYTES, extension, is_artifact_name, slug};
pub use reference::{ArtifactReference, MAX_REFERENCES, VersionSelector, find_markers};
pub use similarity::{SimilaritySketch, word_count};
pub use text_diff::{MAX_DIFF_LINES, bounded_diff, unified_diff};

pub(crate) use fence::fenced_blocks;
pub(crate) use prose::{TextLine, heading, text_lines};
pub(crate) use similarity::words;
pub(crate) use text_diff::{changed_ranges, longest_increasing, matching_pairs};

use std::collections::BTreeSet;

use crate::calendar::Moment;
use crate::hash::Hash;
use crate::record::Role;
use crate::string_enum::string_enum as written_words;

use super::document;

/// Maximum number of candidates per speaker and exchange.
pub const MAX_CANDIDATES: usize = 64;
/// Minimum similarity of unnamed code to an artifact of which it is the next version.
const MIN_CODE_SIMILARITY: f32 = 0.5;
/// The same minimum for drafts.
const MIN_DRAFT_SIMILARITY: f32 = 0.5;
/// The same minimum for text without the marks of a draft.
const MIN_TEXT_SIMILARITY: f32 = 0.6;
/// Number of turns for which "make it shorter" still refers to the last draft.
const DRAFT_CONTEXT_TURNS: u64 = 3;

written_words! {
    /// The kind of an artifact.
    ArtifactKind: "a kind of artifact" {
        /// A block of code.
        Code = "code",
        /// A letter, a poem, a plan.
        Draft = "draft",
        /// A long text.
        Document = "document",
    }
}

impl ArtifactKind {
    /// Whether it consists of sentences.
    pub fn is_prose(self) -> bool {
        self != Self::Code
    }
}

written_words! {
    /// How much of an artifact a candidate contains.
    ArtifactExtent: "an extent" {
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
pub struct ArtifactCandidate {
    /// Its name, or a suggestion for it.
    pub name: Option<String>,
    /// Whether a title or file name gave it that name; otherwise the name comes from its content.
    pub named: bool,
    pub kind: ArtifactKind,
    /// The canonical language name.
    pub language: Option<String>,
    /// The content, byte for byte. If a block is indented with its fence, that indentation is
    /// removed.
    pub text: String,
    pub by: Role,
    pub extent: ArtifactExtent,
    /// The first thing it defines.
    pub main: Option<String>,
    /// Whether the surrounding text says that it replaces an earlier version.
    pub revises: bool,
}

/// The candidates of one exchange.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ArtifactCandidates {
    /// The user's first, each in text order.
    pub candidates: Vec<ArtifactCandidate>,
    /// Number of further blocks that were not examined.
    pub skipped: usize,
}

/// A version to be stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewArtifactVersion {
    /// Its entry in the index.
    pub entry: ArtifactVersion,
    /// The content of the file that the entry names.
    pub text: String,
}

/// Finds what the user and the assistant wrote that may be referred to later.
pub fn find_artifacts(user: &str, assistant: &str) -> ArtifactCandidates {
    let mut finds = ArtifactCandidates::default();
    let request = prose::DraftRequest::parse(user);
    find_in_message(user, Role::User, prose::DraftRequest::default(), &mut finds);
    find_in_message(assistant, Role::Assistant, request, &mut finds);
    finds
}

fn find_in_message(
    text: &str,
    by: Role,
    request: prose::DraftRequest,
    finds: &mut ArtifactCandidates,
) {
    let blocks = fenced_blocks(text);
    finds.skipped += blocks.len().saturating_sub(MAX_CANDIDATES);
    let mut found: Vec<(usize, ArtifactCandidate)> = Vec::new();
    for block in blocks.iter().take(MAX_CANDIDATES) {
        found.extend(block_candidate(text, block, by).map(|one| (block.start, one)));
    }
    let lines = text_lines(text, &blocks);
    let mut push = |range: std::ops::Range<usize>,
                    title: Option<String>,
                    kind: ArtifactKind,
                    extent: ArtifactExtent,
                    revises: bool| {
        let one = ArtifactCandidate {
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
    if document::is_document_or_paste(text, &lines, by == Role::User) {
        let range = prose::body(text, &lines);
        push(
            range.clone(),
            prose::title(&text[range]),
            ArtifactKind::Document,
            ArtifactExtent::Whole,
            revises,
        );
    } else {
        let drafts = prose::find_drafts(text, &lines, request);
        if drafts.is_empty() {
            let range = prose::body(text, &lines);
            if prose::is_long_enough_to_match(&text[range.clone()], &lines) {
                push(range, None, ArtifactKind::Draft, ArtifactExtent::Perhaps, false);
            }
        }
        for draft in drafts {
            push(
                draft.range,
                draft.title,
                ArtifactKind::Draft,
                ArtifactExtent::Whole,
                draft.revises,
            );
        }
    }
    found.sort_by_key(|(at, _)| *at);
    finds.skipped += found.len().saturating_sub(MAX_CANDIDATES);
    finds.candidates.extend(found.into_iter().take(MAX_CANDIDATES).map(|(_, one)| one));
}

/// The candidate in a fenced block, unless the block is too small to be referred to.
fn block_candidate(
    text: &str,
    block: &fence::FencedBlock<'_>,
    by: Role,
) -> Option<ArtifactCandidate> {
    let content = block.content(text);
    let info = naming::parse_fence_info(block.info);
    let before = prose::line_before(text, block.start);
    let language = info.language;
    let explicit = info
        .title
        .or_else(|| before.and_then(|line| naming::name_before_block(line, language.as_deref())))
        .or_else(|| naming::name_in_first_line(&content, language.as_deref()));
    let language = language.or_else(|| explicit.as_deref().and_then(naming::language_of_file));
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
        true if document::is_document(&content) => ArtifactKind::Document,
        true => ArtifactKind::Draft,
        false => ArtifactKind::Code,
    };
    let main = if is_prose { None } else { naming::main_definition(&content, said) };
    let named = explicit.is_some();
    let title = explicit.or_else(|| if is_prose { prose::title(&content) } else { main.clone() });
    let mut name = title.map(|title| slug(&title));
    if said == Some("diff") {
        // A patch of a file is not the file.
        name = name.map(|name| {
            if name.ends_with(".diff") || name.ends_with(".patch") {
                name
            } else {
                naming::with_suffix(&name, ".diff")
            }
        });
    }
    let extent = if !block.closed {
        ArtifactExtent::Cut
    } else if kind == ArtifactKind::Code && said != Some("diff") && fence::has_omission(&content) {
        ArtifactExtent::Part
    } else {
        ArtifactExtent::Whole
    };
    let revises = before.is_some_and(prose::announces_revision);
    Some(ArtifactCandidate {
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
pub fn assign_versions(
    found: &[ArtifactCandidate],
    known: &ArtifactIndex,
    turn: u64,
    ts: Moment,
) -> Vec<NewArtifactVersion> {
    let mut settling = VersionAssignment { known, turn, made: Vec::new() };
    let drafts = found
        .iter()
        .filter(|one| {
            one.kind.is_prose()
                && one.extent != ArtifactExtent::Perhaps
                && one.by == Role::Assistant
        })
        .count();
    for one in found {
        let sketch = if one.kind.is_prose() {
            SimilaritySketch::of_prose(&one.text)
        } else {
            SimilaritySketch::of_code(&one.text)
        };
        let hash = similarity::text_hash(&one.text);
        let Some((name, extent)) = settling.assign(one, &sketch, hash, drafts == 1) else {
            continue;
        };
        if settling.is_recorded(&name, hash) {
            continue;
        }
        let there = known.versions(&name).find(|entry| entry.turn == turn && entry.hash == hash);
        let is_new = there.is_none();
        let entry = there.cloned().unwrap_or_else(|| ArtifactVersion {
            extent,
            ..settling.index_entry(name, one, sketch, hash, ts)
        });
        let text = if is_new { one.text.clone() } else { String::new() };
        settling.made.push((NewArtifactVersion { entry, text }, is_new));
    }
    settling.made.into_iter().filter_map(|(version, is_new)| is_new.then_some(version)).collect()
}

/// The artifact a candidate belongs to.
enum CandidateName {
    Artifact(String),
    PartOfArtifact(String),
}

struct VersionAssignment<'a> {
    known: &'a ArtifactIndex,
    turn: u64,
    /// What this turn has added, and whether it is still missing from the index.
    made: Vec<(NewArtifactVersion, bool)>,
}

impl VersionAssignment<'_> {
    /// The version that is current at this point of the turn.
    fn latest(&self, name: &str) -> Option<&ArtifactVersion> {
        let made =
            self.made.iter().rev().map(|(made, _)| &made.entry).find(|entry| entry.name == name);
        made.or_else(|| self.latest_before_turn(name))
    }

    fn latest_before_turn(&self, name: &str) -> Option<&ArtifactVersion> {
        self.turn.checked_sub(1).and_then(|turn| self.known.at_turn(name, turn))
    }

    fn all_latest(&self) -> impl Iterator<Item = &ArtifactVersion> {
        // Each name once: on a second run all of them are already in the index, and the result must
        // be the same.
        let made = self.made.iter().map(|(made, _)| &made.entry);
        let added: BTreeSet<&str> = made
            .map(|entry| entry.name.as_str())
            .filter(|name| !self.known.contains(name))
            .collect();
        self.known.names().chain(added).filter_map(|name| self.latest(name))
    }

    /// Whether the text is already recorded: as the latest version, as the version this turn began
    /// with, or earlier in this turn.
    fn is_recorded(&self, name: &str, hash: Hash) -> bool {
        self.latest(name).is_some_and(|entry| entry.hash == hash)
            || self.latest_before_turn(name).is_some_and(|entry| entry.hash == hash)
            || self.made.iter().any(|(made, _)| made.entry.name == name && made.entry.hash == hash)
    }

    /// Decides which artifact a candidate is a version of, and how much of it it contains.
    fn assign(
        &self,
        one: &ArtifactCandidate,
        sketch: &SimilaritySketch,
        hash: Hash,
        only_draft: bool,
    ) -> Option<(String, ArtifactExtent)> {
        let name = self.resolve_name(one, sketch, hash, only_draft)?;
        // What was stored as a part because of its size must not become the whole later.
        Some(match (one.extent, name) {
            (ArtifactExtent::Perhaps, CandidateName::Artifact(name)) => {
                (name, ArtifactExtent::Whole)
            }
            (extent, CandidateName::Artifact(name)) => (name, extent),
            (_, CandidateName::PartOfArtifact(name)) => {
                (naming::with_suffix(&name, "-part"), ArtifactExtent::Part)
            }
        })
    }

    fn resolve_name(
        &self,
        one: &ArtifactCandidate,
        sketch: &SimilaritySketch,
        hash: Hash,
        only_draft: bool,
    ) -> Option<CandidateName> {
        if one.extent == ArtifactExtent::Perhaps {
            // Compare only with versions from before this turn: a text without marks must not match
            // its own neighbors.
            let latest = self
                .known
                .names()
                .filter_map(|name| self.latest_before_turn(name))
                .filter(|entry| entry.kind.is_prose());
            let (likeness, entry) =
                best_match(latest.map(|entry| (sketch.dice_similarity(&entry.sketch), entry)))?;
            return (likeness >= MIN_TEXT_SIMILARITY)
                .then(|| CandidateName::Artifact(entry.name.clone()));
        }
        if one.named {
            let name = one.name.as_deref().map(slug)?;
            let name = if self.latest(&name).is_some() {
                name
            } else {
                self.path_variant(&name, sketch).unwrap_or(name)
            };
            return Some(if one.extent == ArtifactExtent::Part {
                CandidateName::PartOfArtifact(name)
            } else {
                CandidateName::Artifact(name)
            });
        }
        let alike = |entry: &&ArtifactVersion| {
            entry.kind.is_prose() == one.kind.is_prose()
                && (one.kind.is_prose() || entry.language == one.language)
                && entry.extent != ArtifactExtent::Part
        };
        let same_main = |entry: &ArtifactVersion| one.main.is_some() && entry.main == one.main;
        let threshold =
            if one.kind.is_prose() { MIN_DRAFT_SIMILARITY } else { MIN_CODE_SIMILARITY };
        let best = best_match(
            self.all_latest()
                .filter(alike)
                .map(|entry| (sketch.dice_similarity(&entry.sketch), entry)),
        );
        if one.extent == ArtifactExtent::Part {
            let within = best_match(
                self.all_latest()
                    .filter(alike)
                    .map(|entry| (sketch.containment_in(&entry.sketch), entry)),
            );
            let of = self
                .all_latest()
                .filter(alike)
                .filter(|entry| same_main(entry))
                .max_by_key(age_key)
                .or(within.filter(|(share, _)| *share >= 0.5).map(|(_, entry)| entry));
            let name = of
                .map(|entry| entry.name.clone())
                .or_else(|| one.name.clone())
                .unwrap_or_else(|| format!("code-{}", language_suffix(one)));
            return Some(CandidateName::PartOfArtifact(slug(&name)));
        }
        if let Some((_, entry)) = best.filter(|(likeness, _)| *likeness >= threshold) {
            return Some(CandidateName::Artifact(entry.name.clone()));
        }
        if let Some(entry) =
            self.all_latest().filter(alike).filter(|entry| same_main(entry)).max_by_key(age_key)
        {
            // A few lines of a long artifact are an excerpt, not a new version.
            let excerpt = sketch.feature_count() * 2 < entry.sketch.feature_count()
                && sketch.containment_in(&entry.sketch) >= 0.6;
            let name = entry.name.clone();
            return Some(if excerpt {
                CandidateName::PartOfArtifact(name)
            } else {
                CandidateName::Artifact(name)
            });
        }
        if one.kind.is_prose() {
            let titled =
                one.name.as_deref().and_then(|name| self.latest(name)).filter(|entry| alike(entry));
            if let Some(entry) =
                titled.filter(|entry| one.revises || sketch.dice_similarity(&entry.sketch) >= 0.1)
            {
                return Some(CandidateName::Artifact(entry.name.clone()));
            }
            let in_mind = |entry: &&ArtifactVersion| {
                entry.kind.is_prose()
                    && entry.turn < self.turn
                    && entry.turn + DRAFT_CONTEXT_TURNS >= self.turn
            };
            if one.revises && only_draft && one.by == Role::Assistant {
                let last = self
                    .known
                    .names()
                    .filter_map(|name| self.latest_before_turn(name))
                    .filter(in_mind)
                    .max_by_key(age_key);
                if let Some(entry) = last {
                    return Some(CandidateName::Artifact(entry.name.clone()));
                }
            }
        }
        Some(CandidateName::Artifact(self.unused_name(one, hash)))
    }

    /// `main.rs` is `src/main.rs` if there is only one such file and the content is similar.
    fn path_variant(&self, name: &str, sketch: &SimilaritySketch) -> Option<String> {
        let ends = |long: &str, short: &str| {
            long.strip_suffix(short).is_some_and(|rest| rest.ends_with('-'))
        };
        let mut found =
            self.all_latest().filter(|entry| ends(&entry.name, name) || ends(name, &entry.name));
        let (one, other) = (found.next()?, found.next());
        (other.is_none() && sketch.dice_similarity(&one.sketch) >= 0.3).then(|| one.name.clone())
    }

    /// An unused name, or the one that this candidate got when the turn was first processed.
    fn unused_name(&self, one: &ArtifactCandidate, hash: Hash) -> String {
        let (base, from) = match &one.name {
            Some(name) => (slug(name), 1),
            None if one.kind == ArtifactKind::Code => (format!("code-{}", language_suffix(one)), 0),
            None => (one.kind.word().to_owned(), 0),
        };
        let ours = |entry: &ArtifactVersion| {
            entry.turn == self.turn
                && (entry.hash == hash || one.main.is_some() && entry.main == one.main)
        };
        (from..)
            .map(|number: u32| match (from, number) {
                (1, 1) => base.clone(),
                (_, number) => naming::with_suffix(&base, &format!("-{}", number + 1 - from)),
            })
            .find(|name| {
                self.latest(name).is_none()
                    && (!self.known.contains(name) || self.known.versions(name).any(ours))
            })
            .unwrap_or(base)
    }

    fn index_entry(
        &self,
        name: String,
        one: &ArtifactCandidate,
        sketch: SimilaritySketch,
        hash: Hash,
        ts: Moment,
    ) -> ArtifactVersion {
        let made = self.made.iter().map(|(made, _)| &made.entry).filter(|entry| entry.name == name);
        let all = || self.known.versions(&name).chain(made.clone());
        let version = all().map(|entry| entry.version).max().unwrap_or(0).saturating_add(1);
        let same_as = all().filter(|entry| entry.hash == hash).map(|entry| entry.version).max();
        // An artifact keeps its kind, so that all of its versions are in one folder.
        let kind = all().next().map_or(one.kind, |first| first.kind);
        let language = one.language.clone();
        let file = index::version_file(&name, version, kind, language.as_deref());
        ArtifactVersion {
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
fn language_suffix(one: &ArtifactCandidate) -> String {
    one.language.as_deref().map_or_else(|| "text".to_owned(), slug)
}

fn best_match<'a>(
    scored: impl Iterator<Item = (f32, &'a ArtifactVersion)>,
) -> Option<(f32, &'a ArtifactVersion)> {
    scored.max_by(|a, b| a.0.total_cmp(&b.0).then_with(|| age_key(&a.1).cmp(&age_key(&b.1))))
}

/// Sort key for the later of two versions. It is unique per artifact, so that the choice is
/// deterministic.
fn age_key<'a>(entry: &&'a ArtifactVersion) -> (u64, u32, &'a str) {
    (entry.turn, entry.version, &entry.name)
}

#[cfg(test)]
mod tests;
