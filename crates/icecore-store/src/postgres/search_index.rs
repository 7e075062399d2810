//! The search index of a space: passages and terms in tables, ranking data in memory.
//!
//! It is updated by the next search. Terms come from the domain and are stored as `tsvector`s,
//! prefixed by a tag of the space; the domain ranks the passages, as in a vault.

use std::sync::Arc;

use async_trait::async_trait;
use icecore_domain::layout::DocPath;
use icecore_domain::rank::corpus::{Corpus, ROW_BYTES};
use icecore_domain::rank::passage;
use icecore_domain::rank::posting::Posting;
use icecore_domain::rank::vector::SignVector;
use tokio_postgres::Row;

use super::search::cache::CachedPieces;
use super::search::encoding::{SignBits, TAG_CHARS, any_of_query, space_tag, tag_term};
use super::{Space, Tx};
use crate::{IndexReport, LocatedPassage, MAX_DEAD_PASSAGES, SearchIndex};
use crate::{Progress, Result};

/// The number of passages in a packed row: as many as fit without TOAST.
pub(super) const PASSAGES_PER_PIECE: u32 = 64;
pub(super) const SIGNS_PER_PIECE: u32 = 32;

/// Converts a passage number for a column.
pub(super) fn number_to_column(number: u32) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

pub(super) fn number_from_column(number: i32) -> u32 {
    u32::try_from(number).unwrap_or(0)
}

/// SQL that returns the pieces of a table, with the content of those that changed since the known
/// generations, as of one moment.
macro_rules! changed_pieces_sql {
    ($table:literal, $column:literal) => {
        concat!(
            "SELECT state.generation, many.piece, many.generation, CASE WHEN known.generation IS DISTINCT FROM many.generation THEN many.",
            $column,
            " END FROM icecore.search_state AS state LEFT JOIN icecore.",
            $table,
            " AS many ON many.space_id = $1 LEFT JOIN unnest($2::integer[], $3::bigint[]) AS known (piece, generation) USING (piece) \
              WHERE state.space_id = $1 ORDER BY many.piece"
        )
    };
}

impl Space {
    async fn search_generation(&self, tx: &Tx) -> Result<Option<i64>> {
        let row = tx
            .query_opt(
                "SELECT generation FROM icecore.search_state WHERE space_id = $1",
                &[&self.id],
            )
            .await?;
        Ok(row.map(|row| row.get(0)))
    }

    /// The metadata of all passages; reads only what changed.
    async fn current_corpus(&self, tx: &Tx) -> Result<Arc<Corpus>> {
        let Some(now) = self.search_generation(tx).await? else { return Ok(Arc::default()) };
        let held = self.database.search.corpus(self.id).unwrap_or_default();
        if held.generation == now {
            return Ok(held.what);
        }
        let (pieces, generations) = held.known_generations();
        let rows = tx
            .query(changed_pieces_sql!("corpus", "rows"), &[&self.id, &pieces, &generations])
            .await?;
        let mut bytes = Vec::new();
        let mut fresh = CachedPieces { generation: now, ..CachedPieces::default() };
        for row in &rows {
            fresh.generation = row.get(0);
            let Some(piece) = row.get::<_, Option<i32>>(1) else { continue };
            fresh.pieces.push((piece, row.get(2)));
            let first = number_from_column(piece) * PASSAGES_PER_PIECE;
            bytes.resize(first as usize * ROW_BYTES, 0);
            match row.get::<_, Option<&[u8]>>(3) {
                Some(rows) => bytes.extend_from_slice(rows),
                None => {
                    let known = (first..held.what.passage_end().min(first + PASSAGES_PER_PIECE))
                        .flat_map(|number| held.what.row(number).to_bytes());
                    bytes.extend(known);
                }
            }
        }
        fresh.what = Arc::new(Corpus::from_bytes(&bytes));
        self.database.search.put_corpus(self.id, fresh.clone());
        Ok(fresh.what)
    }

    /// The signs of all vectors; reads only what changed.
    pub(super) async fn current_signs(&self, tx: &Tx) -> Result<Arc<Vec<SignVector>>> {
        let Some(now) = self.search_generation(tx).await? else { return Ok(Arc::default()) };
        let held = self.database.search.signs(self.id).unwrap_or_default();
        if held.generation == now {
            return Ok(held.what);
        }
        let (pieces, generations) = held.known_generations();
        let rows = tx
            .query(changed_pieces_sql!("sign", "signs"), &[&self.id, &pieces, &generations])
            .await?;
        let mut signs: Vec<SignVector> = Vec::new();
        let mut fresh = CachedPieces { generation: now, ..CachedPieces::default() };
        for row in &rows {
            fresh.generation = row.get(0);
            let Some(piece) = row.get::<_, Option<i32>>(1) else { continue };
            fresh.pieces.push((piece, row.get(2)));
            let first = (number_from_column(piece) * SIGNS_PER_PIECE) as usize;
            signs.resize(first, SignVector::NONE);
            match row.get::<_, Option<Vec<SignBits>>>(3) {
                Some(some) => signs.extend(some.iter().map(|bits| bits.0)),
                None => signs.extend(held.what.iter().skip(first).take(SIGNS_PER_PIECE as usize)),
            }
        }
        fresh.what = Arc::new(signs);
        self.database.search.put_signs(self.id, fresh.clone());
        Ok(fresh.what)
    }
}

impl Space {
    /// Rows of these passages, each with its position in `numbers`. The first column has the
    /// position, from 1.
    pub(super) async fn query_passages(
        &self,
        sql: &str,
        numbers: &[u32],
    ) -> Result<Vec<(usize, Row)>> {
        if numbers.is_empty() {
            return Ok(Vec::new());
        }
        let asked: Vec<i32> = numbers.iter().copied().map(number_to_column).collect();
        let tx = self.begin_reading().await?;
        let rows = tx.query(sql, &[&self.id, &asked]).await?;
        tx.commit().await?;
        Ok(rows
            .into_iter()
            .filter_map(|row| Some((usize::try_from(row.get::<_, i64>(0) - 1).ok()?, row)))
            .collect())
    }
}

#[async_trait]
impl SearchIndex for Space {
    async fn update_index(&self, anew: bool, progress: Progress<'_>) -> Result<IndexReport> {
        let taken = self.index_passages(anew, progress).await?;
        if taken.files > 0 {
            let corpus = self.corpus().await?;
            let gone = corpus.passage_end().saturating_sub(corpus.passages);
            if gone > MAX_DEAD_PASSAGES && gone > corpus.passages {
                return self.index_passages(true, progress).await;
            }
        }
        Ok(taken)
    }

    async fn corpus(&self) -> Result<Arc<Corpus>> {
        let tx = self.begin_reading().await?;
        let corpus = self.current_corpus(&tx).await?;
        tx.commit().await?;
        Ok(corpus)
    }

    async fn postings(&self, terms: &[String]) -> Result<Vec<Vec<Posting>>> {
        let mut found = vec![Vec::new(); terms.len()];
        if terms.is_empty() {
            return Ok(found);
        }
        let tag = space_tag(self.id);
        let sought: Vec<String> = terms.iter().map(|term| tag_term(&tag, term)).collect();
        let tx = self.begin_reading().await?;
        let rows = tx
            .query(
                "SELECT nth, numbers, counts FROM icecore.postings($1, $2)",
                &[&any_of_query(&sought), &sought],
            )
            .await?;
        tx.commit().await?;
        for row in rows {
            let (nth, numbers, counts): (i32, Vec<i32>, Vec<i32>) =
                (row.get(0), row.get(1), row.get(2));
            if let Some(postings) =
                (number_from_column(nth) as usize).checked_sub(1).and_then(|at| found.get_mut(at))
            {
                *postings = numbers
                    .iter()
                    .zip(&counts)
                    .map(|(&passage, &count)| Posting {
                        passage: number_from_column(passage),
                        count: number_from_column(count),
                    })
                    .collect();
            }
        }
        Ok(found)
    }

    async fn terms_containing(&self, part: &str, most: usize) -> Result<Vec<String>> {
        const SQL: &str = "SELECT DISTINCT term COLLATE \"C\", length(term) FROM ( \
                SELECT terms FROM icecore.passage WHERE space_id = $1 UNION ALL SELECT terms FROM icecore.passage_more WHERE space_id = $1) AS rows \
            CROSS JOIN LATERAL (SELECT substr(lexeme, $4) FROM unnest(terms)) AS words (term) WHERE strpos(term, $2) > 0 \
            ORDER BY length(term), term COLLATE \"C\" LIMIT $3";
        let tx = self.begin_reading().await?;
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        let rows = tx.query(SQL, &[&self.id, &part, &most, &(TAG_CHARS + 1)]).await?;
        tx.commit().await?;
        Ok(rows.iter().map(|row| row.get(0)).collect())
    }

    async fn locate_passages(&self, numbers: &[u32]) -> Result<Vec<Option<LocatedPassage>>> {
        // A document replaced since it was indexed yields nothing; the next update corrects that.
        // Places come first, so that only chunks of the passage's document are read.
        const SQL: &str = "WITH placed AS MATERIALIZED ( \
                SELECT asked.nth, indexed.path, passage.start, passage.start + passage.length AS stop, passage.nth AS which \
                FROM unnest($2::integer[]) WITH ORDINALITY AS asked (number, nth) \
                JOIN icecore.passage ON passage.space_id = $1 AND passage.number = asked.number \
                JOIN icecore.indexed ON indexed.space_id = $1 AND indexed.number = passage.document \
                WHERE icecore.has_only_grown($1, indexed.path, indexed.version, indexed.length)) \
            SELECT placed.nth, placed.path, placed.which, piece.bytes FROM placed \
            CROSS JOIN LATERAL (SELECT string_agg(substr(bytes, greatest(placed.start - at, 0)::integer + 1, \
                    greatest(least(placed.stop - at, length(bytes)) - greatest(placed.start - at, 0), 0)::integer), ''::bytea ORDER BY at) \
                FROM icecore.chunk WHERE space_id = $1 AND path = placed.path AND at < placed.stop AND at >= coalesce( \
                    (SELECT max(at) FROM icecore.chunk WHERE space_id = $1 AND path = placed.path AND at <= placed.start), 0)) AS piece (bytes)";
        let mut found: Vec<Option<LocatedPassage>> = vec![None; numbers.len()];
        for (nth_asked, row) in self.query_passages(SQL, numbers).await? {
            let source: DocPath = row.get::<_, &str>(1).parse()?;
            let (nth, bytes): (i16, Option<&[u8]>) = (row.get(2), row.get(3));
            let passage = passage::read_passage(
                &source,
                bytes.unwrap_or_default(),
                u8::try_from(nth).unwrap_or(u8::MAX),
            );
            if let (Some(place), Some(passage)) = (found.get_mut(nth_asked), passage) {
                *place = Some(LocatedPassage { passage, source });
            }
        }
        Ok(found)
    }

    async fn passage_number(&self, key: u64) -> Result<Option<u32>> {
        let tx = self.begin_reading().await?;
        let row = tx
            .query_opt(
                "SELECT number FROM icecore.passage WHERE space_id = $1 AND key = $2",
                &[&self.id, &key.cast_signed()],
            )
            .await?;
        tx.commit().await?;
        Ok(row.map(|row| number_from_column(row.get(0))))
    }

    async fn conversation_groups(&self, conversation: &str) -> Result<Vec<u32>> {
        const SQL: &str = "SELECT number FROM icecore.grouping WHERE space_id = $1 AND conversation = $2 ORDER BY number";
        let tx = self.begin_reading().await?;
        let rows = tx.query(SQL, &[&self.id, &conversation.as_bytes()]).await?;
        tx.commit().await?;
        Ok(rows.iter().map(|row| number_from_column(row.get(0))).collect())
    }

    async fn speakers(&self) -> Result<Vec<(u16, String)>> {
        const SQL: &str = "SELECT number, name FROM icecore.voice WHERE space_id = $1 AND number <= 65535 ORDER BY number";
        let tx = self.begin_reading().await?;
        let rows = tx.query(SQL, &[&self.id]).await?;
        tx.commit().await?;
        let voice = |row: &Row| {
            Some((u16::try_from(row.get::<_, i32>(0)).ok()?, String::from_utf8(row.get(1)).ok()?))
        };
        Ok(rows.iter().filter_map(voice).collect())
    }
}
