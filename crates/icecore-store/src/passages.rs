//! What a home must be able to do for search: hand out passages, postings and vectors. Which passage stands first is
//! the domain's to say.

use std::sync::Arc;

use async_trait::async_trait;
use icecore_domain::layout::DocPath;
use icecore_domain::rank::corpus::Corpus;
use icecore_domain::rank::passage::Passage;
use icecore_domain::rank::posting::Posting;
use icecore_domain::rank::vector::{Packed, Signs};

use crate::{Progress, Result};

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
    /// Takes in what is new since the last time. With `anew`, everything again; vectors of words that are still there stay.
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

    /// Keeps vectors of passages, for as long as their words stay the same.
    async fn keep_vectors(&self, vectors: &[(u32, Packed)]) -> Result<()>;

    /// Passages that have no vector yet, at most so many, the newest first.
    async fn without_vector(&self, most: usize) -> Result<Vec<u32>>;

    /// How many passages have a vector.
    async fn embedded(&self) -> Result<Embedded>;
}
