//! What search requires of a store: passages and postings. The domain ranks them.

use std::sync::Arc;

use async_trait::async_trait;
use icecore_domain::layout::{self, DocPath};
use icecore_domain::rank::corpus::Corpus;
use icecore_domain::rank::passage::{self, Passage};
use icecore_domain::rank::posting::Posting;

use crate::{Progress, Result};

/// Folders with searchable files, and whether their subfolders count too.
pub(crate) const SEARCHED_FOLDERS: [(&str, bool); 8] = [
    ("memory", false),
    (layout::MESSAGES, false),
    (layout::SNAPSHOTS, false),
    (layout::PRUNED, false),
    (layout::MEMORIES, false),
    ("knowledge", true),
    ("conversations", true),
    (layout::TOOL, true),
];
/// The index is rebuilt when it has more dead passages than this and more dead than live ones.
pub(crate) const MAX_DEAD_PASSAGES: u32 = 1_000;

/// Whether the document of that name has passages.
pub(crate) fn is_searchable(path: &DocPath) -> bool {
    let is_in = |(folder, deep): &(&str, bool)| {
        let name = path
            .as_str()
            .strip_prefix(folder.trim_end_matches('/'))
            .and_then(|rest| rest.strip_prefix('/'));
        name.is_some_and(|name| *deep || !name.contains('/'))
    };
    SEARCHED_FOLDERS.iter().any(is_in) && passage::has_passages(path)
}

/// The result of an index update.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct IndexReport {
    /// New or changed passages.
    pub new: u64,
    /// Files that were read.
    pub files: u64,
}

/// A passage and its document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocatedPassage {
    pub passage: Passage,
    pub source: DocPath,
}

/// The search index of a store.
#[async_trait]
pub trait SearchIndex: Send + Sync {
    /// Indexes what is new since the last call. With `anew`, rebuilds the index; vectors of
    /// unchanged text stay.
    async fn update_index(&self, anew: bool, progress: Progress<'_>) -> Result<IndexReport>;

    /// The metadata of every passage, as of the last update.
    async fn corpus(&self) -> Result<Arc<Corpus>>;

    /// The postings of each of these terms. They may include removed passages.
    async fn postings(&self, terms: &[String]) -> Result<Vec<Vec<Posting>>>;

    /// Terms that contain this text, at most `most`, the shortest first.
    async fn terms_containing(&self, part: &str, most: usize) -> Result<Vec<String>>;

    /// These passages; `None` for a removed one.
    async fn locate_passages(&self, numbers: &[u32]) -> Result<Vec<Option<LocatedPassage>>>;

    /// The number of the passage with this key.
    async fn passage_number(&self, key: u64) -> Result<Option<u32>>;

    /// The passage groups of a conversation.
    async fn conversation_groups(&self, conversation: &str) -> Result<Vec<u32>>;

    /// The names of speakers, with the numbers that passages refer to.
    async fn speakers(&self) -> Result<Vec<(u16, String)>>;
}
