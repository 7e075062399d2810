//! Vectors of passages in the search index of a vault.

use std::sync::Arc;

use async_trait::async_trait;
use icecore_domain::rank::vector::{PackedVector, SignVector};

use super::Vault;
use super::search_db::SearchDb;
use crate::{Result, VectorIndex};

#[async_trait]
impl VectorIndex for Vault {
    async fn vectors(&self, numbers: &[u32]) -> Result<Vec<Option<PackedVector>>> {
        self.query_search(|search| search.read_vectors(numbers))
    }

    async fn vector_signs(&self) -> Result<Arc<Vec<SignVector>>> {
        self.query_search(SearchDb::read_signs)
    }

    async fn store_vectors(&self, vectors: &[(u32, PackedVector)]) -> Result<()> {
        self.query_search(|search| search.write_vectors(vectors))
    }
}
