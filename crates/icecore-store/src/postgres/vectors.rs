//! Vectors of passages in the search index of a space.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use icecore_domain::rank::vector::{PackedVector, SignVector};
use tokio_postgres::Row;

use super::Space;
use super::search::encoding::SignBits;
use super::search_index::{SIGNS_PER_PIECE, number_from_column, number_to_column};
use crate::{Result, VectorIndex};

#[async_trait]
impl VectorIndex for Space {
    async fn vectors(&self, numbers: &[u32]) -> Result<Vec<Option<PackedVector>>> {
        const SQL: &str = "SELECT asked.nth, vector.packed FROM unnest($2::integer[]) WITH ORDINALITY AS asked (number, nth) \
            JOIN icecore.passage ON passage.space_id = $1 AND passage.number = asked.number \
            JOIN icecore.vector ON vector.space_id = $1 AND vector.key = passage.key AND vector.wording = passage.wording";
        let mut found = vec![None; numbers.len()];
        for (nth, row) in self.query_passages(SQL, numbers).await? {
            if let Some(place) = found.get_mut(nth) {
                *place = PackedVector::from_bytes(row.get(1));
            }
        }
        Ok(found)
    }

    async fn vector_signs(&self) -> Result<Arc<Vec<SignVector>>> {
        let tx = self.begin_reading().await?;
        let signs = self.current_signs(&tx).await?;
        tx.commit().await?;
        Ok(signs)
    }

    async fn vector_signs_of(&self, numbers: &[u32]) -> Result<Vec<SignVector>> {
        const SQL: &str =
            "SELECT piece, signs FROM icecore.sign WHERE space_id = $1 AND piece = ANY ($2)";
        let mut pieces: Vec<i32> =
            numbers.iter().map(|number| number_to_column(number / SIGNS_PER_PIECE)).collect();
        pieces.sort_unstable();
        pieces.dedup();
        let tx = self.begin_reading().await?;
        let rows = tx.query(SQL, &[&self.id, &pieces]).await?;
        tx.commit().await?;
        let found: HashMap<u32, Vec<SignBits>> =
            rows.iter().map(|row| (number_from_column(row.get(0)), row.get(1))).collect();
        let signs = |number: u32| {
            found
                .get(&(number / SIGNS_PER_PIECE))?
                .get((number % SIGNS_PER_PIECE) as usize)
                .map(|bits| bits.0)
        };
        Ok(numbers.iter().map(|&number| signs(number).unwrap_or(SignVector::NONE)).collect())
    }

    fn prefers_nearest_query(&self, passages: u32) -> bool {
        passages >= self.database.options.nearest_query_min_passages
    }

    async fn nearest_by_signs(&self, to: &SignVector, most: usize) -> Result<Vec<(u32, u32)>> {
        const SQL: &str = "SELECT piece, nth, distance FROM icecore.nearest($1, $2)";
        let tx = self.begin_reading().await?;
        let most = i32::try_from(most).unwrap_or(i32::MAX);
        let rows = tx.query(SQL, &[&SignBits(*to), &most]).await?;
        tx.commit().await?;
        let number = |row: &Row| {
            number_from_column(row.get(0)) * SIGNS_PER_PIECE + number_from_column(row.get(1)) - 1
        };
        Ok(rows.iter().map(|row| (number(row), number_from_column(row.get(2)))).collect())
    }

    async fn store_vectors(&self, vectors: &[(u32, PackedVector)]) -> Result<()> {
        self.write_vectors(vectors).await
    }
}
