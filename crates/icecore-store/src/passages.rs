//! What a home must be able to do for search: hand out passages, postings and vectors. Which
//! passage stands first is the domain's to say.

use std::sync::Arc;

use async_trait::async_trait;
use icecore_domain::layout::{self, DocPath};
use icecore_domain::rank::corpus::Corpus;
use icecore_domain::rank::passage::{self, Passage};
use icecore_domain::rank::posting::Posting;
use icecore_domain::rank::vector::{Packed, Signs};

use crate::{Progress, Result};

/// Where files with passages are, and whether also below.
pub(crate) const FOLDERS: [(&str, bool); 8] = [
    ("memory", false),
    (layout::MESSAGES, false),
    (layout::SNAPSHOTS, false),
    (layout::PRUNED, false),
    (layout::MEMORIES, false),
    ("knowledge", true),
    ("conversations", true),
    (layout::TOOL, true),
];
/// Everything is made anew when there are more gone passages than this, and more of them than
/// others.
pub(crate) const MANY_GONE: u32 = 1_000;

/// Whether passages are cut from a document of that name.
pub(crate) fn is_searched(path: &DocPath) -> bool {
    let is_in = |(folder, deep): &(&str, bool)| {
        let name = path
            .as_str()
            .strip_prefix(folder.trim_end_matches('/'))
            .and_then(|rest| rest.strip_prefix('/'));
        name.is_some_and(|name| *deep || !name.contains('/'))
    };
    FOLDERS.iter().any(is_in) && passage::is_source(path)
}

/// What taking in came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TakenIn {
    /// Passages that are new or were changed.
    pub new: u64,
    /// Files that were looked into.
    pub files: u64,
}

/// A passage and where it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placed {
    /// The passage.
    pub passage: Passage,
    /// The document it was cut from.
    pub source: DocPath,
}

/// How many passages have a vector.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Embedded {
    /// So many have one.
    pub have: u64,
    /// Of so many.
    pub of: u64,
}

/// The searchable side of a home.
#[async_trait]
pub trait Passages: Send + Sync {
    /// Takes in what is new since the last time. With `anew`, everything again; vectors of words
    /// that are still there stay.
    async fn take_in(&self, anew: bool, progress: Progress<'_>) -> Result<TakenIn>;

    /// Every passage's few numbers, as of the last taking in.
    async fn corpus(&self) -> Result<Arc<Corpus>>;

    /// Where each of these terms stands; passages that are gone may be among them.
    async fn postings(&self, terms: &[String]) -> Result<Vec<Vec<Posting>>>;

    /// Terms that have this in them, at most so many, the shortest first.
    async fn terms_with(&self, part: &str, most: usize) -> Result<Vec<String>>;

    /// These passages; `None` for one that is gone.
    async fn passages(&self, numbers: &[u32]) -> Result<Vec<Option<Placed>>>;

    /// The number of a passage by its key.
    async fn passage(&self, key: u64) -> Result<Option<u32>>;

    /// The groups of a conversation.
    async fn groups_of(&self, conversation: &str) -> Result<Vec<u32>>;

    /// The names under which people speak, with the numbers that passages refer to.
    async fn voices(&self) -> Result<Vec<(u16, String)>>;

    /// The vectors of these passages, where there are any.
    async fn vectors(&self, numbers: &[u32]) -> Result<Vec<Option<Packed>>>;

    /// The signs of every passage's vector, by number; all zero where there is none.
    async fn signs(&self) -> Result<Arc<Vec<Signs>>>;

    /// Whether this home is better asked for the nearest of so many passages than for the signs of
    /// all of them.
    fn finds_nearest(&self, _passages: u32) -> bool {
        false
    }

    /// The passages whose signs differ least from these, with in how many places: at most so many,
    /// the nearest first, and of equally near ones the lowest number. Those without a vector are
    /// not among them.
    async fn nearest(&self, to: &Signs, most: usize) -> Result<Vec<(u32, u32)>> {
        let all = self.signs().await?;
        let mut found: Vec<(u32, u32)> = (0..)
            .zip(all.iter())
            .filter(|(_, signs)| !signs.is_none())
            .map(|(number, signs)| (signs.hamming(to), number))
            .collect();
        found.sort_unstable();
        found.truncate(most);
        Ok(found.into_iter().map(|(distance, number)| (number, distance)).collect())
    }

    /// The signs of these passages' vectors; all zero where there is none.
    async fn signs_of(&self, numbers: &[u32]) -> Result<Vec<Signs>> {
        let all = self.signs().await?;
        Ok(numbers
            .iter()
            .map(|&number| all.get(number as usize).copied().unwrap_or(Signs::NONE))
            .collect())
    }

    /// Keeps vectors of passages, for as long as their words stay the same.
    async fn keep_vectors(&self, vectors: &[(u32, Packed)]) -> Result<()>;

    /// Passages that have no vector yet, at most so many, the newest first.
    async fn without_vector(&self, most: usize) -> Result<Vec<u32>> {
        let (corpus, signs) = (self.corpus().await?, self.signs().await?);
        let lacks = |number: u32| signs.get(number as usize).is_none_or(Signs::is_none);
        let mut missing: Vec<(i64, u32)> = corpus
            .all()
            .filter(|(number, _)| lacks(*number))
            .map(|(number, row)| (row.at, number))
            .collect();
        missing.sort_unstable_by(|a, b| b.cmp(a));
        Ok(missing.into_iter().take(most).map(|(_, number)| number).collect())
    }

    /// How many passages have a vector.
    async fn embedded(&self) -> Result<Embedded> {
        let (corpus, signs) = (self.corpus().await?, self.signs().await?);
        let has = |number: u32| signs.get(number as usize).is_some_and(|signs| !signs.is_none());
        let have = corpus.all().filter(|(number, _)| has(*number)).count() as u64;
        Ok(Embedded { have, of: u64::from(corpus.passages) })
    }
}
