//! Two machines on one vault: what a file becomes that both have changed.
//!
//! Everything is decided from three texts: what both began with, ours and theirs. Of files that
//! only grow, a line that one side took out stays out, a line that one side has added is there
//! once, and a line that one side has changed is there in that wording. What was forgotten goes
//! over everything. What cannot be decided so is a [`Clash`] and is left to a person; no merge ever
//! loses a line, brings one back or lets an id mean two things.

mod archive;
mod events;
mod ids;
mod lines;
mod log;
mod report;
mod summaries;

use crate::id::EventId;
use crate::layout::{self, DocPath, Nature};
use crate::page::{self, PageKey};
use crate::summary::{Period, ReadView, read_file};

pub use self::archive::once;
pub use self::ids::{Renumbering, extend_renumbering, rename, renumbering};

/// Three versions of a file; one that is not there is empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sides<'a> {
    /// What both began with.
    pub base: &'a [u8],
    /// What it is here.
    pub ours: &'a [u8],
    /// What it is on the other machine.
    pub theirs: &'a [u8],
}

impl Sides<'_> {
    /// The answer where only one side has changed anything.
    fn settled(&self) -> Option<Vec<u8>> {
        if self.ours == self.theirs || self.theirs == self.base {
            Some(self.ours.to_vec())
        } else if self.ours == self.base {
            Some(self.theirs.to_vec())
        } else {
            None
        }
    }
}

/// What a file becomes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Merged {
    /// These bytes.
    Whole(Vec<u8>),
    /// Whatever a merge of its lines makes of it, if nothing in that contradicts.
    ByLines,
}

/// What cannot be decided here.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Clash {
    /// Two events have one id.
    #[error(
        "both machines gave {id} to an event of their own: here “{ours}”, there “{theirs}”. `git merge --abort`, then `icecore merge` gives ours an id of its own"
    )]
    SameId {
        /// The id.
        id: EventId,
        /// What it says here.
        ours: String,
        /// What it says there.
        theirs: String,
    },
    /// One event was changed on both sides, or changed on one and taken out on the other.
    #[error(
        "{id} was changed by hand: here “{ours}”, there “{theirs}”. Make the line the same on both machines, commit, and merge again"
    )]
    Changed {
        /// The event.
        id: EventId,
        /// What it says here.
        ours: String,
        /// What it says there.
        theirs: String,
    },
    /// The older part of an archive is not what it was.
    #[error(
        "what was archived long ago is another on the two machines. Make the file the same on both, commit, and merge again"
    )]
    Rewritten,
    /// A person wrote on both sides.
    #[error(
        "somebody has edited it on both machines. Put into one what is missing from the other, commit, and merge again"
    )]
    BothEdited,
}

/// How files of a kind are merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum How {
    Ledger,
    Archive,
    Summaries,
    /// JSON lines that only grow.
    Lines,
    /// Text that only grows.
    Grown,
    Integrity,
    Checkpoint,
    /// Made again from the rest; either side does.
    Derived,
    /// Shows a summary, and says whether it was edited.
    View,
    /// Shows events; what was written into it is known by comparing.
    Page,
    /// A person's or a model's own.
    Own,
}

fn how(path: &str) -> How {
    match path {
        layout::LEDGER => return How::Ledger,
        layout::SUMMARIES => return How::Summaries,
        layout::INTEGRITY => return How::Integrity,
        layout::CHECKPOINT => return How::Checkpoint,
        layout::OPEN_LOOPS | layout::RECALL | layout::STATE => return How::Derived,
        _ => {}
    }
    let Ok(document) = path.parse::<DocPath>() else { return How::Own };
    if document.is_archive() {
        return How::Archive;
    }
    if document.is_tool_file() {
        return How::Own;
    }
    match document.nature() {
        Nature::Log(_) => return How::Grown,
        Nature::AppendOnly if path.ends_with(".jsonl") => return How::Lines,
        Nature::AppendOnly => return How::Grown,
        _ => {}
    }
    let is_period =
        || document.name().strip_suffix(".md").is_some_and(|name| name.parse::<Period>().is_ok());
    if path.starts_with("conversations/") && path.ends_with(".jsonl") {
        How::Lines
    } else if path.starts_with(layout::REPORTS) {
        How::Grown
    } else if path.starts_with("primers/upload/") || path.starts_with("memory/summaries/") {
        How::Derived
    } else if path.starts_with("primers/") && is_period() {
        How::View
    } else if PageKey::of_path(&document).is_some() || path.starts_with(layout::MEMORIES) {
        How::Page
    } else {
        How::Own
    }
}

/// What becomes of the file at `path`. `adopted`: what people wrote into our pages is in the ledger
/// already, so that theirs may take their place.
pub fn merge(path: &str, sides: Sides<'_>, adopted: bool) -> Result<Merged, Clash> {
    if let Some(settled) = sides.settled() {
        return Ok(Merged::Whole(settled));
    }
    let whole = match how(path) {
        How::Ledger => events::merge(sides)?,
        How::Archive => archive::merge(sides)?,
        How::Summaries => summaries::merge(sides),
        How::Lines => lines::merge(sides),
        How::Grown => log::merge(sides),
        How::Integrity => report::integrity(sides),
        How::Checkpoint => report::checkpoint(sides),
        How::Derived => sides.ours.to_vec(),
        How::View => view(sides)?,
        How::Page if adopted && !is_own_page(path, sides.ours) => sides.theirs.to_vec(),
        How::Page | How::Own => return Ok(Merged::ByLines),
    };
    Ok(Merged::Whole(whole))
}

/// Whether a person or another program wrote a page: none of its lines names an event. What it says
/// is in the ledger, and not how it says it.
fn is_own_page(path: &str, text: &[u8]) -> bool {
    let is_page = path.parse().is_ok_and(|path| PageKey::of_path(&path).is_some());
    is_page && !text.trim_ascii().is_empty() && page::ids(&String::from_utf8_lossy(text)).is_empty()
}

/// How often a line is to be there: what one side did to it is done, and what both did is done
/// once.
fn wanted(base: usize, ours: usize, theirs: usize) -> usize {
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

/// The file of a summary: the one that somebody has edited, if only one is.
fn view(sides: Sides<'_>) -> Result<Vec<u8>, Clash> {
    let is_ours = |bytes: &[u8]| {
        std::str::from_utf8(bytes).is_ok_and(|text| read_file(text) == ReadView::Ours)
    };
    match (is_ours(sides.ours), is_ours(sides.theirs)) {
        (true, _) => Ok(sides.theirs.to_vec()),
        (false, true) => Ok(sides.ours.to_vec()),
        (false, false) => Err(Clash::BothEdited),
    }
}

#[cfg(test)]
mod tests;
