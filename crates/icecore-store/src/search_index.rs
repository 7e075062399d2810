//! What search requires of a store: passages, postings and vectors. The domain ranks them.

use std::sync::Arc;

use async_trait::async_trait;
use icecore_domain::layout::{self, DocPath};
use icecore_domain::rank::corpus::Corpus;
use icecore_domain::rank::passage::{self, Passage};
use icecore_domain::rank::posting::Posting;
use icecore_domain::rank::vector::{PackedVector, SignVector};

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

/// How many passages have a vector.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EmbeddingCoverage {
    pub embedded: u64,
    pub total: u64,
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

    /// The vectors of these passages, where they exist.
    async fn vectors(&self, numbers: &[u32]) -> Result<Vec<Option<PackedVector>>>;

    /// The sign bits of every passage's vector, by number; all zero without a vector. A vector
    /// reduced to one sign bit per dimension is enough to preselect by Hamming distance.
    async fn vector_signs(&self) -> Result<Arc<Vec<SignVector>>>;

    /// Whether this store answers [`SearchIndex::nearest_by_signs`] for this many passages faster
    /// than it returns all signs.
    fn prefers_nearest_query(&self, _passages: u32) -> bool {
        false
    }

    /// The passages with the smallest Hamming distance to these signs, and the distance: at most
    /// `most`, nearest first, then by number. Skips passages without a vector.
    async fn nearest_by_signs(&self, to: &SignVector, most: usize) -> Result<Vec<(u32, u32)>> {
        let all = self.vector_signs().await?;
        let mut found: Vec<(u32, u32)> = (0..)
            .zip(all.iter())
            .filter(|(_, signs)| !signs.is_none())
            .map(|(number, signs)| (signs.hamming_distance(to), number))
            .collect();
        found.sort_unstable();
        found.truncate(most);
        Ok(found.into_iter().map(|(distance, number)| (number, distance)).collect())
    }

    /// The signs of these passages' vectors; all zero without a vector.
    async fn vector_signs_of(&self, numbers: &[u32]) -> Result<Vec<SignVector>> {
        let all = self.vector_signs().await?;
        Ok(numbers
            .iter()
            .map(|&number| all.get(number as usize).copied().unwrap_or(SignVector::NONE))
            .collect())
    }

    /// Stores vectors of passages. They are valid as long as the text stays the same.
    async fn store_vectors(&self, vectors: &[(u32, PackedVector)]) -> Result<()>;

    /// Passages without a vector, at most `most`, the newest first.
    async fn passages_without_vector(&self, most: usize) -> Result<Vec<u32>> {
        let (corpus, signs) = (self.corpus().await?, self.vector_signs().await?);
        let lacks = |number: u32| signs.get(number as usize).is_none_or(SignVector::is_none);
        let mut missing: Vec<(i64, u32)> = corpus
            .iter_rows()
            .filter(|(number, _)| lacks(*number))
            .map(|(number, row)| (row.at, number))
            .collect();
        missing.sort_unstable_by(|a, b| b.cmp(a));
        Ok(missing.into_iter().take(most).map(|(_, number)| number).collect())
    }

    /// How many passages have a vector.
    async fn embedding_coverage(&self) -> Result<EmbeddingCoverage> {
        let (corpus, signs) = (self.corpus().await?, self.vector_signs().await?);
        let has = |number: u32| signs.get(number as usize).is_some_and(|signs| !signs.is_none());
        let have = corpus.iter_rows().filter(|(number, _)| has(*number)).count() as u64;
        Ok(EmbeddingCoverage { embedded: have, total: u64::from(corpus.passages) })
    }
}
