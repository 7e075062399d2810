//! Three-way merge of a vault's files that were changed on two machines.
//!
//! Every decision depends on three texts only: the common base, ours and theirs. In files that only
//! grow, a line that one side removed stays removed, a line that one side added exists once, and a
//! line that one side changed has that wording. Forgetting wins over every change. Anything else is
//! a [`MergeConflict`] for a person. A merge never loses a line, restores a removed one, or lets an
//! id mean two things.

mod archive;
mod events;
mod ids;
mod lines;
mod log;
mod report;
mod summaries;

use crate::id::EventId;
use crate::layout::{self, DocPath, FileKind};
use crate::page::{self, PageKey};
use crate::summary::{Period, SummaryFileState, classify_summary_file};

pub use self::archive::dedup_archives;
pub use self::ids::{Renumbering, extend_renumbering, renumber_file, renumbering};

/// Three versions of a file; a missing file is empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MergeInput<'a> {
    /// The common base.
    pub base: &'a [u8],
    /// The version on this machine.
    pub ours: &'a [u8],
    /// The version on the other machine.
    pub theirs: &'a [u8],
}

impl MergeInput<'_> {
    /// The result if only one side changed anything.
    fn one_sided(&self) -> Option<Vec<u8>> {
        if self.ours == self.theirs || self.theirs == self.base {
            Some(self.ours.to_vec())
        } else if self.ours == self.base {
            Some(self.theirs.to_vec())
        } else {
            None
        }
    }
}

/// The result of a merge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MergeOutcome {
    /// The merged content.
    Whole(Vec<u8>),
    /// A line-based merge decides, if it has no conflicts.
    ByLines,
}

/// A conflict that a person has to resolve.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MergeConflict {
    /// Two events have one id.
    #[error(
        "both machines used {id} for a new event: here “{ours}”, there “{theirs}”. Run `git merge --abort`, then `icecore merge`, which renumbers ours"
    )]
    SameId {
        id: EventId,
        /// The content here.
        ours: String,
        /// The content there.
        theirs: String,
    },
    /// One event was changed on both sides, or changed on one and removed on the other.
    #[error(
        "{id} was edited by hand: here “{ours}”, there “{theirs}”. Make the line equal on both machines, commit, and merge again"
    )]
    Changed {
        id: EventId,
        /// The content here.
        ours: String,
        /// The content there.
        theirs: String,
    },
    /// The common part of an archive was changed.
    #[error(
        "an old part of the archive differs between the machines. Make the file equal on both, commit, and merge again"
    )]
    Rewritten,
    /// Both sides edited a person's text.
    #[error(
        "the file was edited on both machines. Copy what is missing from one into the other, commit, and merge again"
    )]
    BothEdited,
}

/// The merge strategy for a kind of file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MergeStrategy {
    Ledger,
    Archive,
    Summaries,
    /// JSON lines that only grow.
    Lines,
    /// Text that only grows.
    Grown,
    Integrity,
    Checkpoint,
    /// Derived from other files; either side is fine.
    Derived,
    /// A view of a summary that records whether it was edited.
    View,
    /// A view of events; edits are found by comparison.
    Page,
    /// Written by a person or a model.
    Own,
}

fn strategy(path: &str) -> MergeStrategy {
    match path {
        layout::LEDGER => return MergeStrategy::Ledger,
        layout::SUMMARIES => return MergeStrategy::Summaries,
        layout::INTEGRITY => return MergeStrategy::Integrity,
        layout::CHECKPOINT => return MergeStrategy::Checkpoint,
        layout::OPEN_LOOPS | layout::RECALL | layout::STATE => return MergeStrategy::Derived,
        _ => {}
    }
    let Ok(document) = path.parse::<DocPath>() else { return MergeStrategy::Own };
    if document.is_archive() {
        return MergeStrategy::Archive;
    }
    if document.is_tool_file() {
        return MergeStrategy::Own;
    }
    match document.file_kind() {
        FileKind::Log(_) => return MergeStrategy::Grown,
        FileKind::AppendOnly if path.ends_with(".jsonl") => return MergeStrategy::Lines,
        FileKind::AppendOnly => return MergeStrategy::Grown,
        _ => {}
    }
    let is_period =
        || document.name().strip_suffix(".md").is_some_and(|name| name.parse::<Period>().is_ok());
    if path.starts_with("conversations/") && path.ends_with(".jsonl") {
        MergeStrategy::Lines
    } else if path.starts_with(layout::REPORTS) {
        MergeStrategy::Grown
    } else if path.starts_with("primers/upload/") || path.starts_with("memory/summaries/") {
        MergeStrategy::Derived
    } else if path.starts_with("primers/") && is_period() {
        MergeStrategy::View
    } else if PageKey::from_path(&document).is_some() || path.starts_with(layout::MEMORIES) {
        MergeStrategy::Page
    } else {
        MergeStrategy::Own
    }
}

/// Merges the file at `path`. `adopted`: edits of our pages are in the ledger already, so the other
/// side's page may replace ours.
pub fn merge_file(
    path: &str,
    sides: MergeInput<'_>,
    adopted: bool,
) -> Result<MergeOutcome, MergeConflict> {
    if let Some(settled) = sides.one_sided() {
        return Ok(MergeOutcome::Whole(settled));
    }
    let whole = match strategy(path) {
        MergeStrategy::Ledger => events::merge_ledger(sides)?,
        MergeStrategy::Archive => archive::merge_archives(sides)?,
        MergeStrategy::Summaries => summaries::merge_summaries(sides),
        MergeStrategy::Lines => lines::merge_lines(sides),
        MergeStrategy::Grown => log::merge_log(sides),
        MergeStrategy::Integrity => report::merge_integrity(sides),
        MergeStrategy::Checkpoint => report::merge_checkpoint(sides),
        MergeStrategy::Derived => sides.ours.to_vec(),
        MergeStrategy::View => merge_view(sides)?,
        MergeStrategy::Page if adopted && !is_own_page(path, sides.ours) => sides.theirs.to_vec(),
        MergeStrategy::Page | MergeStrategy::Own => return Ok(MergeOutcome::ByLines),
    };
    Ok(MergeOutcome::Whole(whole))
}

/// Whether a person or another program wrote a page: none of its lines names an event. Its content
/// is in the ledger, but not its form.
fn is_own_page(path: &str, text: &[u8]) -> bool {
    let is_page = path.parse().is_ok_and(|path| PageKey::from_path(&path).is_some());
    is_page
        && !text.trim_ascii().is_empty()
        && page::referenced_ids(&String::from_utf8_lossy(text)).is_empty()
}

/// The number of copies of a line: each side's change applies, and the same change on both sides
/// applies once.
fn merged_count(base: usize, ours: usize, theirs: usize) -> usize {
    if ours == base {
        theirs
    } else if theirs == base {
        ours
    } else if ours > base && theirs > base {
        ours.max(theirs)
    } else {
        ours.min(theirs)
    }
}

/// Merges the view of a summary: the edited one wins, if only one was edited.
fn merge_view(sides: MergeInput<'_>) -> Result<Vec<u8>, MergeConflict> {
    let is_ours = |bytes: &[u8]| {
        std::str::from_utf8(bytes)
            .is_ok_and(|text| classify_summary_file(text) == SummaryFileState::Ours)
    };
    match (is_ours(sides.ours), is_ours(sides.theirs)) {
        (true, _) => Ok(sides.theirs.to_vec()),
        (false, true) => Ok(sides.ours.to_vec()),
        (false, false) => Err(MergeConflict::BothEdited),
    }
}

#[cfg(test)]
mod tests;
