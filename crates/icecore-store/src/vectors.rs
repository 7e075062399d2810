//! Embeddings of passages.

use std::sync::Arc;

use async_trait::async_trait;
use icecore_domain::rank::vector::{PackedVector, SignVector};

use crate::{Result, SearchIndex};

/// How many passages have a vector.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EmbeddingCoverage {
    pub embedded: u64,
    pub total: u64,
}

/// The vectors of passages in the search index.
#[async_trait]
pub trait VectorIndex: SearchIndex {
    /// The vectors of these passages, where they exist.
    async fn vectors(&self, numbers: &[u32]) -> Result<Vec<Option<PackedVector>>>;

    /// The sign bits of every passage's vector, by number; all zero without a vector. A vector
    /// reduced to one sign bit per dimension is enough to preselect by Hamming distance.
    async fn vector_signs(&self) -> Result<Arc<Vec<SignVector>>>;

    /// The signs of these passages' vectors; all zero without a vector.
    async fn vector_signs_of(&self, numbers: &[u32]) -> Result<Vec<SignVector>> {
        let all = self.vector_signs().await?;
        Ok(numbers
            .iter()
            .map(|&number| all.get(number as usize).copied().unwrap_or(SignVector::NONE))
            .collect())
    }

    /// Whether this store answers [`VectorIndex::nearest_by_signs`] for this many passages faster
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
