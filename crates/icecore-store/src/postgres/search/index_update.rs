//! Updates the search index: splits changed documents into passages and writes the search tables.
//!
//! The updating transaction locks the row of the search state, so that numbers are assigned in the
//! same order as in a vault. Of a document that has only grown, only the new part is indexed.

use std::collections::{BTreeMap, HashMap, HashSet};

use icecore_domain::layout::{self, DocPath};
use icecore_domain::rank::corpus::{NO_GROUP, NO_VOICE, PassageRow, ROW_BYTES};
use icecore_domain::rank::passage::{self, LocatedPassage};
use icecore_domain::rank::vector::{PackedVector, SignVector};

use super::super::documents::{to_signed, to_unsigned};
use super::super::search_index::{
    PASSAGES_PER_PIECE, SIGNS_PER_PIECE, number_from_column, number_to_column,
};
use super::super::{Space, Tx};
use super::encoding::{SignBits, TermRow, space_tag};
use crate::{IndexReport, is_searchable};
use crate::{Progress, Result};

/// The number of passages to index in one transaction; then other processes get a turn.
const BATCH_PASSAGES: usize = 5_000;
/// The number of bytes to read at once, per document and in total.
const WINDOW_BYTES: u64 = 4 << 20;
const BATCH_BYTES: u64 = 8 << 20;
/// The number of documents to read at once.
const MAX_DOCUMENTS: usize = 500;

/// A document that changed since it was indexed.
#[derive(Debug)]
struct StaleDocument {
    path: DocPath,
    /// Its length in bytes; `None` if it was removed.
    length: Option<u64>,
}

/// The locked search state of a space.
#[derive(Debug)]
struct SearchState {
    next: u32,
    next_document: i32,
    next_group: u32,
    next_voice: i32,
}

/// A stale document with its new content.
#[derive(Debug)]
struct ReadDocument {
    path: DocPath,
    /// Its number, if it was indexed before, and whether it is indexed as a whole.
    known: Option<i32>,
    anew: bool,
    /// Version and length; `None` if it was removed.
    meta: Option<(i64, i64)>,
    /// The offset where reading began.
    from: u64,
    /// The end of the indexed part, and whether nothing remains after it.
    upto: u64,
    whole: bool,
    pieces: Vec<LocatedPassage>,
}

/// A passage to insert.
#[derive(Debug)]
struct NewPassage {
    key: i64,
    wording: i64,
    document: i32,
    start: i64,
    length: i32,
    nth: i16,
    terms: Vec<TermRow>,
}

/// The changes of a batch.
#[derive(Debug, Default)]
struct PassageBatch {
    /// Passages that no longer exist in this form.
    gone: HashSet<u32>,
    fresh: BTreeMap<u32, NewPassage>,
    rows: BTreeMap<u32, PassageRow>,
    groups: Vec<(Vec<u8>, Option<Vec<u8>>, u32)>,
    voices: Vec<(Vec<u8>, i32)>,
    passages: u64,
}

impl Space {
    pub(in super::super) async fn index_passages(
        &self,
        anew: bool,
        progress: Progress<'_>,
    ) -> Result<IndexReport> {
        let mut taken = IndexReport::default();
        if anew {
            let tx = self.begin().await?;
            self.lock_search_state(&tx).await?;
            self.clear_search(&tx).await?;
            tx.commit().await?;
        }
        let mut all = None;
        loop {
            // Usually nothing is stale; then no lock is taken.
            let tx = self.begin_reading().await?;
            let stale = self.stale_documents(&tx).await?;
            tx.commit().await?;
            let left: u64 = stale.iter().map(|stale| stale.length.unwrap_or(0) + 1).sum();
            let all = *all.get_or_insert(left);
            if taken.files > 0 {
                progress(all.saturating_sub(left), all.max(left));
            }
            if stale.is_empty() {
                return Ok(taken);
            }
            let tx = self.begin().await?;
            let state = self.lock_search_state(&tx).await?;
            let (documents, passages) = self.index_batch(&tx, state, &stale).await?;
            tx.commit().await?;
            taken.files += documents;
            taken.new += passages;
        }
    }

    /// Documents that changed since they were indexed: removed ones first, because their content
    /// may be elsewhere now; the ledger last, because an event in two documents counts as in the
    /// ledger.
    async fn stale_documents(&self, tx: &Tx) -> Result<Vec<StaleDocument>> {
        const SQL: &str = "SELECT path, document.length FROM (SELECT path, version, length FROM icecore.document WHERE space_id = $1) AS document \
            FULL JOIN (SELECT path, version, whole FROM icecore.indexed WHERE space_id = $1) AS indexed USING (path) \
            WHERE document.version IS DISTINCT FROM indexed.version OR NOT whole";
        let mut found: Vec<StaleDocument> = Vec::new();
        for row in tx.query(SQL, &[&self.id]).await? {
            let path: DocPath = row.get::<_, String>(0).parse()?;
            if is_searchable(&path) {
                found.push(StaleDocument {
                    path,
                    length: row.get::<_, Option<i64>>(1).map(to_unsigned),
                });
            }
        }
        let place =
            |stale: &StaleDocument| (stale.length.is_some(), stale.path.as_str() == layout::LEDGER);
        found.sort_by(|a, b| place(a).cmp(&place(b)).then_with(|| a.path.cmp(&b.path)));
        Ok(found)
    }

    /// Locks the search state until the transaction ends.
    async fn lock_search_state(&self, tx: &Tx) -> Result<SearchState> {
        const HELD: &str = "SELECT next, next_document, next_group, next_voice FROM icecore.search_state WHERE space_id = $1 FOR UPDATE";
        const MADE: &str =
            "INSERT INTO icecore.search_state (space_id) VALUES ($1) ON CONFLICT DO NOTHING";
        let row = match tx.query_opt(HELD, &[&self.id]).await? {
            Some(row) => row,
            None => {
                tx.execute(MADE, &[&self.id]).await?;
                tx.query_one(HELD, &[&self.id]).await?
            }
        };
        Ok(SearchState {
            next: number_from_column(row.get(0)),
            next_document: row.get(1),
            next_group: number_from_column(row.get(2)),
            next_voice: row.get(3),
        })
    }

    /// Deletes everything but the vectors.
    async fn clear_search(&self, tx: &Tx) -> Result<()> {
        for table in ["indexed", "passage", "passage_more", "corpus", "sign", "grouping", "voice"] {
            tx.execute(&format!("DELETE FROM icecore.{table} WHERE space_id = $1"), &[&self.id])
                .await?;
        }
        const SQL: &str = "UPDATE icecore.search_state SET generation = icecore.version_after(generation), \
            next = 1, next_document = 1, next_group = 1, next_voice = 1 WHERE space_id = $1";
        tx.execute(SQL, &[&self.id]).await?;
        Ok(())
    }

    /// Deletes the index with the vectors, so that forgotten words leave no trace. The next search
    /// rebuilds it.
    pub(in super::super) async fn delete_search_index(&self, tx: &Tx) -> Result<()> {
        self.lock_search_state(tx).await?;
        self.clear_search(tx).await?;
        tx.execute("DELETE FROM icecore.vector WHERE space_id = $1", &[&self.id]).await?;
        Ok(())
    }

    /// Indexes as many documents as make a batch; returns the numbers of documents and passages.
    /// The state is locked.
    async fn index_batch(
        &self,
        tx: &Tx,
        mut state: SearchState,
        stale: &[StaleDocument],
    ) -> Result<(u64, u64)> {
        let mut room = BATCH_BYTES;
        let some: Vec<&StaleDocument> = stale
            .iter()
            .take(MAX_DOCUMENTS)
            .enumerate()
            .take_while(|(at, stale)| {
                let fits = *at == 0 || room > 0;
                room = room.saturating_sub(stale.length.unwrap_or(0).min(WINDOW_BYTES));
                fits
            })
            .map(|(_, stale)| stale)
            .collect();
        let mut read = self.read_stale(tx, &some, WINDOW_BYTES).await?;
        let mut passages = 0;
        let enough = read.iter().position(|read| {
            passages += read.pieces.len();
            passages >= BATCH_PASSAGES
        });
        read.truncate(enough.map_or(read.len(), |last| last + 1));
        let batch = self.plan_batch(tx, &mut state, &mut read).await?;
        self.write_batch(tx, &state, &read, &batch).await?;
        Ok((read.iter().filter(|read| read.whole).count() as u64, batch.passages))
    }

    /// Reads the new part or the whole of these documents and splits it into passages.
    async fn read_stale(
        &self,
        tx: &Tx,
        stale: &[&StaleDocument],
        window: u64,
    ) -> Result<Vec<ReadDocument>> {
        // One statement sees one state.
        const SQL: &str = "SELECT document.version, document.length, indexed.number, changed.yes, begun.at, chunks.at, chunks.bytes \
            FROM unnest($2::text[], $3::boolean[]) WITH ORDINALITY AS asked (path, grows, nth) \
            LEFT JOIN icecore.document ON document.space_id = $1 AND document.path = asked.path \
            LEFT JOIN icecore.indexed ON indexed.space_id = $1 AND indexed.path = asked.path \
            CROSS JOIN LATERAL (SELECT document.version IS DISTINCT FROM indexed.version OR NOT indexed.whole) AS changed (yes) \
            CROSS JOIN LATERAL (SELECT CASE WHEN asked.grows AND icecore.has_only_grown($1, asked.path, indexed.version, indexed.length) \
                THEN indexed.bytes ELSE 0 END) AS begun (at) \
            LEFT JOIN LATERAL (SELECT min(at), string_agg(bytes, ''::bytea ORDER BY at) FROM icecore.chunk \
                WHERE space_id = $1 AND path = asked.path AND at < begun.at + $4 AND at >= coalesce( \
                    (SELECT max(at) FROM icecore.chunk WHERE space_id = $1 AND path = asked.path AND at <= begun.at), 0)) AS chunks (at, bytes) \
                ON changed.yes \
            ORDER BY asked.nth";
        let paths: Vec<&str> = stale.iter().map(|stale| stale.path.as_str()).collect();
        let grow: Vec<bool> =
            stale.iter().map(|stale| passage::is_append_only(&stale.path)).collect();
        let rows = tx.query(SQL, &[&self.id, &paths, &grow, &to_signed(window)]).await?;
        let mut found = Vec::with_capacity(rows.len());
        for ((row, stale), grows) in rows.iter().zip(stale).zip(grow) {
            let (version, known): (Option<i64>, Option<i32>) = (row.get(0), row.get(2));
            let path = stale.path.clone();
            let Some(version) = version else {
                if known.is_some() {
                    found.push(ReadDocument {
                        path,
                        known,
                        anew: true,
                        meta: None,
                        from: 0,
                        upto: 0,
                        whole: true,
                        pieces: Vec::new(),
                    });
                }
                continue;
            };
            if row.get::<_, Option<bool>>(3) == Some(false) {
                // Another process was faster.
                continue;
            }
            let (from, at) =
                (to_unsigned(row.get(4)), row.get::<_, Option<i64>>(5).map_or(0, to_unsigned));
            let bytes: Vec<u8> = row.get::<_, Option<Vec<u8>>>(6).unwrap_or_default();
            let length: i64 = row.get(1);
            let is_all = at + bytes.len() as u64 >= to_unsigned(length);
            let skipped =
                usize::try_from(from.saturating_sub(at)).unwrap_or(usize::MAX).min(bytes.len());
            let text = &bytes[skipped..];
            // A last line without an end is still being written.
            let upto = if grows {
                text.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1)
            } else {
                text.len()
            };
            if upto == 0 && !is_all {
                // The line is longer than the window.
                found.extend(Box::pin(self.read_stale(tx, &[stale], window * 4)).await?);
                continue;
            }
            found.push(ReadDocument {
                pieces: passage::split_into_passages(&path, &text[..upto]),
                path,
                known,
                anew: from == 0 && known.is_some(),
                meta: Some((version, length)),
                from,
                upto: from + upto as u64,
                whole: is_all || !grows,
            });
        }
        Ok(found)
    }

    /// Decides what happens to every passage, in their order.
    async fn plan_batch(
        &self,
        tx: &Tx,
        state: &mut SearchState,
        read: &mut [ReadDocument],
    ) -> Result<PassageBatch> {
        const THERE: &str = "SELECT number, key, document FROM icecore.passage WHERE space_id = $1 AND key = ANY ($2) \
            UNION SELECT number, key, document FROM icecore.passage WHERE space_id = $1 AND document = ANY ($3)";
        let mut batch = PassageBatch::default();
        let keys: Vec<i64> =
            read_pieces(read).map(|piece| piece.passage.key().cast_signed()).collect();
        let anew: Vec<i32> =
            read.iter().filter(|read| read.anew).filter_map(|read| read.known).collect();
        let mut live: HashMap<i64, u32> = HashMap::new();
        let mut within: HashMap<i32, Vec<(i64, u32)>> = HashMap::new();
        if !keys.is_empty() || !anew.is_empty() {
            for row in tx.query(THERE, &[&self.id, &keys, &anew]).await? {
                let (number, key) = (number_from_column(row.get(0)), row.get(1));
                live.insert(key, number);
                within.entry(row.get(2)).or_default().push((key, number));
            }
        }
        let (mut groups, mut voices) = self.known_names(tx, read).await?;
        let tag = space_tag(self.id);
        for read in read {
            let document = match read.known {
                Some(document) => document,
                None => {
                    state.next_document += 1;
                    state.next_document - 1
                }
            };
            read.known = Some(document);
            if read.anew {
                for (key, number) in within.remove(&document).unwrap_or_default() {
                    if live.get(&key) == Some(&number) {
                        live.remove(&key);
                        batch.remove(number);
                    }
                }
            }
            for piece in &read.pieces {
                let (passage, key) = (&piece.passage, piece.passage.key().cast_signed());
                let number = state.next;
                state.next += 1;
                if let Some(before) = live.insert(key, number) {
                    batch.remove(before);
                }
                let group = passage.group().map_or(NO_GROUP, |name| {
                    *groups.entry(name.into_bytes()).or_insert_with_key(|name| {
                        let number = state.next_group;
                        state.next_group += 1;
                        batch.groups.push((
                            name.clone(),
                            passage.conversation.clone().map(String::into_bytes),
                            number,
                        ));
                        number
                    })
                });
                let voice = passage.voice().map_or(i32::from(NO_VOICE), |name| {
                    *voices.entry(name.as_bytes().to_vec()).or_insert_with_key(|name| {
                        let number = state.next_voice;
                        state.next_voice += 1;
                        batch.voices.push((name.clone(), number));
                        number
                    })
                });
                // So many names are not those of people.
                let voice = u16::try_from(voice).unwrap_or(NO_VOICE);
                let terms = self.database.search.reader.terms(&passage.text);
                batch
                    .rows
                    .insert(number, PassageRow::from_passage(passage, terms.length, group, voice));
                batch.fresh.insert(
                    number,
                    NewPassage {
                        key,
                        wording: passage.text_hash(),
                        document,
                        start: to_signed(read.from + piece.bytes.start as u64),
                        length: i32::try_from(piece.bytes.len()).unwrap_or(i32::MAX),
                        nth: i16::from(piece.nth),
                        terms: TermRow::rows_of(&tag, &terms),
                    },
                );
                batch.passages += 1;
            }
        }
        Ok(batch)
    }

    /// The numbers of known groups and speakers of these passages.
    async fn known_names(
        &self,
        tx: &Tx,
        read: &[ReadDocument],
    ) -> Result<(HashMap<Vec<u8>, u32>, HashMap<Vec<u8>, i32>)> {
        const SQL: &str = "SELECT true, name, number FROM icecore.grouping WHERE space_id = $1 AND name = ANY ($2) \
            UNION ALL SELECT false, name, number FROM icecore.voice WHERE space_id = $1 AND name = ANY ($3)";
        let groups: HashSet<Vec<u8>> = read_pieces(read)
            .filter_map(|piece| piece.passage.group())
            .map(String::into_bytes)
            .collect();
        let voices: HashSet<&[u8]> = read_pieces(read)
            .filter_map(|piece| piece.passage.voice())
            .map(str::as_bytes)
            .collect();
        let (mut known, mut heard) = (HashMap::new(), HashMap::new());
        if groups.is_empty() && voices.is_empty() {
            return Ok((known, heard));
        }
        let groups: Vec<&[u8]> = groups.iter().map(Vec::as_slice).collect();
        let voices: Vec<&[u8]> = voices.into_iter().collect();
        for row in tx.query(SQL, &[&self.id, &groups, &voices]).await? {
            let (is_group, name, number): (bool, Vec<u8>, i32) =
                (row.get(0), row.get(1), row.get(2));
            if is_group {
                known.insert(name, number_from_column(number));
            } else {
                heard.insert(name, number);
            }
        }
        Ok((known, heard))
    }

    async fn write_batch(
        &self,
        tx: &Tx,
        state: &SearchState,
        read: &[ReadDocument],
        batch: &PassageBatch,
    ) -> Result<()> {
        if !batch.rows.is_empty() {
            self.write_passages(tx, batch).await?;
            const SQL: &str = "UPDATE icecore.search_state SET generation = icecore.version_after(generation), next = $2, next_group = $3, \
                next_voice = $4 WHERE space_id = $1 RETURNING generation";
            let (next, next_group) =
                (number_to_column(state.next), number_to_column(state.next_group));
            let generation: i64 =
                tx.query_one(SQL, &[&self.id, &next, &next_group, &state.next_voice]).await?.get(0);
            self.write_rows(tx, generation, &batch.rows).await?;
            let mut signs: BTreeMap<u32, SignVector> =
                batch.gone.iter().map(|&number| (number, SignVector::NONE)).collect();
            signs.extend(self.known_signs(tx, batch).await?);
            self.write_signs(tx, generation, signs).await?;
        }
        let gone: Vec<&str> =
            read.iter().filter(|read| read.meta.is_none()).map(|read| read.path.as_str()).collect();
        if !gone.is_empty() {
            tx.execute(
                "DELETE FROM icecore.indexed WHERE space_id = $1 AND path = ANY ($2)",
                &[&self.id, &gone],
            )
            .await?;
        }
        const TAKEN: &str = "WITH counted AS (UPDATE icecore.search_state SET next_document = $8 WHERE space_id = $1) \
            INSERT INTO icecore.indexed (space_id, path, number, version, length, bytes, whole) \
            SELECT $1, * FROM unnest($2::text[], $3::integer[], $4::bigint[], $5::bigint[], $6::bigint[], $7::boolean[]) \
            ON CONFLICT (space_id, path) DO UPDATE \
            SET version = excluded.version, length = excluded.length, bytes = excluded.bytes, whole = excluded.whole";
        let there = || read.iter().filter_map(|read| Some((read, read.meta?)));
        let paths: Vec<&str> = there().map(|(read, _)| read.path.as_str()).collect();
        let numbers: Vec<i32> = there().filter_map(|(read, _)| read.known).collect();
        let (versions, lengths): (Vec<i64>, Vec<i64>) = there().map(|(_, look)| look).unzip();
        let (bytes, whole): (Vec<i64>, Vec<bool>) =
            there().map(|(read, _)| (to_signed(read.upto), read.whole)).unzip();
        if !paths.is_empty() {
            tx.execute(
                TAKEN,
                &[
                    &self.id,
                    &paths,
                    &numbers,
                    &versions,
                    &lengths,
                    &bytes,
                    &whole,
                    &state.next_document,
                ],
            )
            .await?;
        }
        Ok(())
    }

    async fn write_passages(&self, tx: &Tx, batch: &PassageBatch) -> Result<()> {
        const REMOVED: &str = "WITH more AS (DELETE FROM icecore.passage_more WHERE space_id = $1 AND number = ANY ($2)) \
            DELETE FROM icecore.passage WHERE space_id = $1 AND number = ANY ($2)";
        const GROUPS: &str = "INSERT INTO icecore.grouping (space_id, name, conversation, number) \
            SELECT $1, * FROM unnest($2::bytea[], $3::bytea[], $4::integer[])";
        const VOICES: &str = "INSERT INTO icecore.voice (space_id, name, number) SELECT $1, * FROM unnest($2::bytea[], $3::integer[])";
        const ADDED: &str = "INSERT INTO icecore.passage (space_id, number, key, wording, document, start, length, nth, terms) SELECT $1, * FROM \
            unnest($2::integer[], $3::bigint[], $4::bigint[], $5::integer[], $6::bigint[], $7::integer[], $8::smallint[], $9::tsvector[])";
        const MORE: &str = "INSERT INTO icecore.passage_more (space_id, number, nth, terms) \
            SELECT $1, * FROM unnest($2::integer[], $3::smallint[], $4::tsvector[])";
        if !batch.gone.is_empty() {
            let gone: Vec<i32> = batch.gone.iter().copied().map(number_to_column).collect();
            tx.execute(REMOVED, &[&self.id, &gone]).await?;
        }
        if !batch.groups.is_empty() {
            let names: Vec<&[u8]> = batch.groups.iter().map(|(name, ..)| name.as_slice()).collect();
            let conversations: Vec<Option<&[u8]>> =
                batch.groups.iter().map(|(_, conversation, _)| conversation.as_deref()).collect();
            let numbers: Vec<i32> =
                batch.groups.iter().map(|&(.., number)| number_to_column(number)).collect();
            tx.execute(GROUPS, &[&self.id, &names, &conversations, &numbers]).await?;
        }
        if !batch.voices.is_empty() {
            let names: Vec<&[u8]> = batch.voices.iter().map(|(name, _)| name.as_slice()).collect();
            let numbers: Vec<i32> = batch.voices.iter().map(|&(_, number)| number).collect();
            tx.execute(VOICES, &[&self.id, &names, &numbers]).await?;
        }
        if batch.fresh.is_empty() {
            return Ok(());
        }
        let fresh: Vec<&NewPassage> = batch.fresh.values().collect();
        let numbers: Vec<i32> = batch.fresh.keys().copied().map(number_to_column).collect();
        let (keys, wordings): (Vec<i64>, Vec<i64>) =
            fresh.iter().map(|fresh| (fresh.key, fresh.wording)).unzip();
        let (documents, starts): (Vec<i32>, Vec<i64>) =
            fresh.iter().map(|fresh| (fresh.document, fresh.start)).unzip();
        let (lengths, nths): (Vec<i32>, Vec<i16>) =
            fresh.iter().map(|fresh| (fresh.length, fresh.nth)).unzip();
        let terms: Vec<Option<&TermRow>> = fresh.iter().map(|fresh| fresh.terms.first()).collect();
        tx.execute(
            ADDED,
            &[&self.id, &numbers, &keys, &wordings, &documents, &starts, &lengths, &nths, &terms],
        )
        .await?;
        let more: Vec<(i32, i16, &TermRow)> = batch
            .fresh
            .iter()
            .flat_map(|(&number, fresh)| {
                (0_i16..)
                    .zip(&fresh.terms)
                    .skip(1)
                    .map(move |(nth, terms)| (number_to_column(number), nth, terms))
            })
            .collect();
        if !more.is_empty() {
            let numbers: Vec<i32> = more.iter().map(|&(number, ..)| number).collect();
            let (nths, terms): (Vec<i16>, Vec<&TermRow>) =
                more.iter().map(|&(_, nth, terms)| (nth, terms)).unzip();
            tx.execute(MORE, &[&self.id, &numbers, &nths, &terms]).await?;
        }
        Ok(())
    }

    /// Unchanged text keeps its vector.
    async fn known_signs(
        &self,
        tx: &Tx,
        batch: &PassageBatch,
    ) -> Result<BTreeMap<u32, SignVector>> {
        const SQL: &str = "SELECT key, wording, packed FROM icecore.vector WHERE space_id = $1 AND key = ANY ($2)";
        let keys: Vec<i64> = batch.fresh.values().map(|fresh| fresh.key).collect();
        let mut known: HashMap<(i64, i64), SignVector> = HashMap::new();
        if !keys.is_empty() {
            for row in tx.query(SQL, &[&self.id, &keys]).await? {
                if let Some(packed) = PackedVector::from_bytes(row.get(2)) {
                    known.insert((row.get(0), row.get(1)), packed.signs());
                }
            }
        }
        Ok(batch
            .fresh
            .iter()
            .filter_map(|(&number, fresh)| Some((number, *known.get(&(fresh.key, fresh.wording))?)))
            .collect())
    }

    async fn write_rows(
        &self,
        tx: &Tx,
        generation: i64,
        rows: &BTreeMap<u32, PassageRow>,
    ) -> Result<()> {
        const READ: &str =
            "SELECT piece, rows FROM icecore.corpus WHERE space_id = $1 AND piece = ANY ($2)";
        const PUT: &str = "INSERT INTO icecore.corpus (space_id, generation, piece, rows) SELECT $1, $2, * FROM unnest($3::integer[], $4::bytea[]) \
            ON CONFLICT (space_id, piece) DO UPDATE SET generation = excluded.generation, rows = excluded.rows";
        let mut pieces: BTreeMap<i32, Vec<u8>> = rows
            .keys()
            .map(|number| (number_to_column(number / PASSAGES_PER_PIECE), Vec::new()))
            .collect();
        let which: Vec<i32> = pieces.keys().copied().collect();
        for row in tx.query(READ, &[&self.id, &which]).await? {
            pieces.insert(row.get(0), row.get(1));
        }
        for (number, row) in rows {
            let piece = pieces.entry(number_to_column(number / PASSAGES_PER_PIECE)).or_default();
            let at = (number % PASSAGES_PER_PIECE) as usize * ROW_BYTES;
            piece.resize(piece.len().max(at + ROW_BYTES), 0);
            piece[at..at + ROW_BYTES].copy_from_slice(&row.to_bytes());
        }
        let (which, bytes): (Vec<i32>, Vec<Vec<u8>>) = pieces.into_iter().unzip();
        tx.execute(PUT, &[&self.id, &generation, &which, &bytes]).await?;
        Ok(())
    }

    async fn write_signs(
        &self,
        tx: &Tx,
        generation: i64,
        signs: BTreeMap<u32, SignVector>,
    ) -> Result<()> {
        const READ: &str =
            "SELECT piece, signs FROM icecore.sign WHERE space_id = $1 AND piece = ANY ($2)";
        const PUT: &str = "INSERT INTO icecore.sign (space_id, generation, piece, signs) VALUES ($1, $2, $3, $4) \
            ON CONFLICT (space_id, piece) DO UPDATE SET generation = excluded.generation, signs = excluded.signs";
        if signs.is_empty() {
            return Ok(());
        }
        let which: HashSet<i32> =
            signs.keys().map(|number| number_to_column(number / SIGNS_PER_PIECE)).collect();
        let which: Vec<i32> = which.into_iter().collect();
        let mut pieces: BTreeMap<i32, Vec<SignBits>> = BTreeMap::new();
        for row in tx.query(READ, &[&self.id, &which]).await? {
            pieces.insert(row.get(0), row.get(1));
        }
        for (number, signs) in signs {
            let (piece, at) =
                (number_to_column(number / SIGNS_PER_PIECE), (number % SIGNS_PER_PIECE) as usize);
            if signs.is_none() && pieces.get(&piece).is_none_or(|piece| piece.len() <= at) {
                continue;
            }
            let piece = pieces.entry(piece).or_default();
            piece.resize(piece.len().max(at + 1), SignBits(SignVector::NONE));
            piece[at] = SignBits(signs);
        }
        for (piece, signs) in pieces {
            tx.execute(PUT, &[&self.id, &generation, &piece, &signs]).await?;
        }
        Ok(())
    }

    pub(in super::super) async fn write_vectors(
        &self,
        vectors: &[(u32, PackedVector)],
    ) -> Result<()> {
        const SQL: &str = "WITH given AS (SELECT * FROM unnest($2::integer[], $3::bytea[]) AS given (number, packed)), \
            there AS (SELECT number, passage.key, passage.wording, given.packed FROM icecore.passage JOIN given USING (number) \
                LEFT JOIN icecore.vector AS known ON known.space_id = $1 AND known.key = passage.key \
                WHERE passage.space_id = $1 AND (known.wording, known.packed) IS DISTINCT FROM (passage.wording, given.packed)), \
            kept AS (INSERT INTO icecore.vector (space_id, key, wording, packed) SELECT $1, key, wording, packed FROM there \
                ON CONFLICT (space_id, key) DO UPDATE SET wording = excluded.wording, packed = excluded.packed) \
            SELECT number FROM there";
        if vectors.is_empty() {
            return Ok(());
        }
        let packed: BTreeMap<u32, &PackedVector> =
            vectors.iter().map(|(number, packed)| (*number, packed)).collect();
        let numbers: Vec<i32> = packed.keys().copied().map(number_to_column).collect();
        let bytes: Vec<Vec<u8>> =
            packed.values().map(|packed| packed.to_bytes().to_vec()).collect();
        let tx = self.begin().await?;
        self.lock_search_state(&tx).await?;
        // A passage removed meanwhile needs no vector, and one that has it already is skipped.
        let there = tx.query(SQL, &[&self.id, &numbers, &bytes]).await?;
        if there.is_empty() {
            return tx.commit().await;
        }
        let signs = there.iter().filter_map(|row| {
            let number = number_from_column(row.get(0));
            Some((number, packed.get(&number)?.signs()))
        });
        const NOTED: &str = "UPDATE icecore.search_state SET generation = icecore.version_after(generation) WHERE space_id = $1 RETURNING generation";
        let generation: i64 = tx.query_one(NOTED, &[&self.id]).await?.get(0);
        self.write_signs(&tx, generation, signs.collect()).await?;
        tx.commit().await
    }
}

fn read_pieces(read: &[ReadDocument]) -> impl Iterator<Item = &LocatedPassage> {
    read.iter().flat_map(|read| &read.pieces)
}

impl PassageBatch {
    fn remove(&mut self, number: u32) {
        self.rows.insert(number, PassageRow::DELETED);
        if self.fresh.remove(&number).is_none() {
            self.gone.insert(number);
        }
    }
}
