//! The search index: a SQLite file with the terms, metadata and vectors of all passages.
//!
//! It is separate from the ledger's index so that capture never waits for it: it catches up at the
//! next search. A file with appended lines is indexed from its old end; after any other change the
//! whole file is indexed again. Postings of removed passages stay until the index is rebuilt, and
//! readers skip them.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use icecore_domain::hash::Hash;
use icecore_domain::layout::DocPath;
use icecore_domain::rank::corpus::{Corpus, NO_GROUP, NO_VOICE, PassageRow, ROW_BYTES};
use icecore_domain::rank::passage::{self, Passage};
use icecore_domain::rank::posting::{Posting, PostingBlock};
use icecore_domain::rank::terms::Analyzer;
use icecore_domain::rank::vector::{DIMENSIONS, PackedVector, SignVector};
use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior, params};

use super::index::{self, SqlResult};
use super::vault_fs::{FileStat, VaultFs};
use crate::{Error, ErrorKind, Result};

/// Increment whenever the tables or their content change; an index of another version is rebuilt.
const SCHEMA_VERSION: i64 = 1;
/// The number of passages to index in one transaction; then other processes get a turn.
const BATCH_PASSAGES: usize = 20_000;
/// The number of passages per row in the tables that pack several.
const PASSAGES_PER_ROW: u32 = 1_024;
const SIGN_BYTES: usize = DIMENSIONS / 8;
/// The open search index and its caches.
pub(super) struct SearchDb {
    pub connection: Connection,
    /// The file; `None` if the index is in memory.
    path: Option<PathBuf>,
    reader: Analyzer,
    corpus: Option<(i64, Arc<Corpus>)>,
    signs: Option<(i64, Arc<Vec<SignVector>>)>,
    /// The fingerprint of the files and the generation of the index when nothing was left to index.
    /// While both are unchanged, the hundreds of files of a long history need not be compared one
    /// by one.
    pub up_to_date: Option<(u64, i64)>,
}

/// The search index, opened on first use.
#[derive(Default)]
pub(super) struct SearchSlot(pub Mutex<Option<Box<SearchDb>>>);

/// Reads a file with its stat.
type ReadFile<'a> = dyn Fn(&DocPath) -> Result<(Option<FileStat>, Vec<u8>)> + 'a;
/// The place of a passage: the file, offset, length, and its number among passages at the same
/// place.
type PassageLocation = (String, u64, usize, u8);

/// Passages to write to the index.
#[derive(Default)]
struct PassageBatch {
    terms: HashMap<String, Vec<Posting>>,
    rows: BTreeMap<u32, PassageRow>,
    passages: usize,
}

pub(super) fn search_error(error: &rusqlite::Error) -> Error {
    Error::index(error.to_string())
}

pub(super) fn key_column(key: u64) -> i64 {
    key.cast_signed()
}

impl SearchDb {
    pub(super) fn open(vault_fs: &VaultFs, path: &Path) -> SqlResult<Self> {
        vault_fs.make_private_file(path);
        match Self::try_open(path) {
            Ok(Some(search)) => Ok(search),
            Ok(None) => Self::recreate(vault_fs, path),
            Err(error) if index::is_damage(&error) => Self::recreate(vault_fs, path),
            Err(error) => Err(error),
        }
    }

    pub(super) fn recreate(vault_fs: &VaultFs, path: &Path) -> SqlResult<Self> {
        vault_fs.remove_index(path);
        vault_fs.make_private_file(path);
        Self::try_open(path)?.ok_or(rusqlite::Error::InvalidQuery)
    }

    pub(super) fn try_open(path: &Path) -> SqlResult<Option<Self>> {
        Self::with_tables(index::connect(path)?, Some(path))
    }

    /// A temporary index, for a read-only vault.
    pub fn in_memory() -> SqlResult<Self> {
        Self::with_tables(Connection::open_in_memory()?, None)?.ok_or(rusqlite::Error::InvalidQuery)
    }

    pub(super) fn with_tables(
        mut connection: Connection,
        path: Option<&Path>,
    ) -> SqlResult<Option<Self>> {
        match connection.query_row("PRAGMA user_version", [], |row| row.get::<_, i64>(0))? {
            SCHEMA_VERSION => {}
            0 => {
                let transaction =
                    connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
                if transaction.query_row("PRAGMA user_version", [], |row| row.get::<_, i64>(0))?
                    == 0
                {
                    transaction.execute_batch(include_str!("search.sql"))?;
                    transaction.pragma_update(None, "user_version", SCHEMA_VERSION)?;
                }
                transaction.commit()?;
            }
            _ => return Ok(None),
        }
        connection.execute_batch("PRAGMA cache_size = -65536")?;
        Ok(Some(Self {
            connection,
            path: path.map(Path::to_owned),
            reader: Analyzer::default(),
            corpus: None,
            signs: None,
            up_to_date: None,
        }))
    }

    /// The indexed files with the stamps they had.
    pub fn indexed_files(&self) -> SqlResult<HashMap<String, String>> {
        self.connection
            .prepare_cached("SELECT path, stamp FROM file")?
            .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?
            .collect()
    }

    /// Deletes everything but the vectors.
    pub fn clear(&mut self) -> SqlResult<()> {
        let transaction =
            self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        for table in ["file", "passage", "piece", "grouping", "voice", "term", "posting", "sign"] {
            transaction.execute(&format!("DELETE FROM {table}"), [])?;
        }
        transaction.execute("UPDATE state SET next = 1, generation = generation + 1", [])?;
        transaction.commit()?;
        self.shorten_log()
    }

    pub(super) fn shorten_log(&self) -> SqlResult<()> {
        self.path.as_deref().map_or(Ok(()), |path| index::truncate_log(&self.connection, path))
    }

    /// Indexes as many of these files as make a batch; returns the numbers of files and passages.
    pub fn index_batch(
        &mut self,
        files: &[DocPath],
        read: &ReadFile<'_>,
    ) -> Result<SqlResult<(usize, usize)>> {
        let Self { connection, reader, .. } = self;
        let transaction = match connection.transaction_with_behavior(TransactionBehavior::Immediate)
        {
            Ok(transaction) => transaction,
            Err(error) => return Ok(Err(error)),
        };
        let mut batch = PassageBatch::default();
        let mut done = 0;
        for path in files {
            let (look, text) = match read(path) {
                // Skips an unreadable file until it can be read; `doctor` reports it.
                Err(Error {
                    kind: ErrorKind::PermissionDenied | ErrorKind::Io | ErrorKind::NotAFile,
                    ..
                }) => (None, Vec::new()),
                other => other?,
            };
            if let Err(error) = index_file(&transaction, reader, &mut batch, path, look, &text) {
                return Ok(Err(error));
            }
            done += 1;
            if batch.passages >= BATCH_PASSAGES {
                break;
            }
        }
        let passages = batch.passages;
        let written = batch.write(&transaction).and_then(|()| transaction.commit());
        Ok(written.and_then(|()| self.shorten_log()).map(|()| (done, passages)))
    }

    /// A description of the damage, if there is any.
    pub fn find_damage(&self) -> SqlResult<Option<String>> {
        let found: String =
            self.connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
        if found != "ok" {
            return Ok(Some(found));
        }
        let strays = "SELECT count(*) FROM passage WHERE file NOT IN (SELECT file FROM file)";
        let strays: usize = self.connection.query_row(strays, [], |row| row.get(0))?;
        Ok((strays > 0).then(|| format!("{strays} passages do not belong to any file")))
    }

    pub(super) fn generation(&self) -> SqlResult<i64> {
        self.connection
            .prepare_cached("SELECT generation FROM state")?
            .query_row([], |row| row.get(0))
    }

    pub(super) fn read_corpus(&mut self) -> SqlResult<Arc<Corpus>> {
        let generation = self.generation()?;
        if let Some((known, corpus)) = &self.corpus
            && *known == generation
        {
            return Ok(corpus.clone());
        }
        let mut bytes = Vec::new();
        let mut query = self.connection.prepare_cached("SELECT rows FROM piece ORDER BY piece")?;
        let mut rows = query.query([])?;
        while let Some(row) = rows.next()? {
            bytes.extend_from_slice(
                row.get_ref(0)?.as_blob().map_err(|_| rusqlite::Error::InvalidQuery)?,
            );
        }
        let corpus = Arc::new(Corpus::from_bytes(&bytes));
        self.corpus = Some((generation, corpus.clone()));
        Ok(corpus)
    }

    pub(super) fn read_signs(&mut self) -> SqlResult<Arc<Vec<SignVector>>> {
        let generation = self.generation()?;
        if let Some((known, signs)) = &self.signs
            && *known == generation
        {
            return Ok(signs.clone());
        }
        let mut found = Vec::new();
        let mut query =
            self.connection.prepare_cached("SELECT piece, signs FROM sign ORDER BY piece")?;
        let mut rows = query.query([])?;
        while let Some(row) = rows.next()? {
            let piece: usize = row.get(0)?;
            found.resize(piece * PASSAGES_PER_ROW as usize, SignVector([0; SIGN_BYTES / 8]));
            let bytes = row.get_ref(1)?.as_blob().map_err(|_| rusqlite::Error::InvalidQuery)?;
            found.extend(
                bytes
                    .as_chunks::<SIGN_BYTES>()
                    .0
                    .iter()
                    .filter_map(|bytes| SignVector::from_bytes(bytes)),
            );
        }
        let signs = Arc::new(found);
        self.signs = Some((generation, signs.clone()));
        Ok(signs)
    }

    /// A search looks up hundreds of rows; in one transaction they need only one lock.
    pub fn begin_read(&self) -> SqlResult<Transaction<'_>> {
        self.connection.unchecked_transaction()
    }

    pub(super) fn read_postings(&self, terms: &[String]) -> SqlResult<Vec<Vec<Posting>>> {
        let _reading = self.begin_read()?;
        let mut number =
            self.connection.prepare_cached("SELECT number FROM term WHERE term = ?1")?;
        let mut blocks = self.connection.prepare_cached(
            "SELECT block FROM posting WHERE place BETWEEN ?1 AND ?2 ORDER BY place",
        )?;
        terms
            .iter()
            .map(|term| {
                let mut found = Vec::new();
                if let Some(number) =
                    number.query_row([term], |row| row.get::<_, i64>(0)).optional()?
                {
                    let mut rows = blocks.query([number << 32, number << 32 | 0xffff_ffff])?;
                    while let Some(row) = rows.next()? {
                        found.extend(PostingBlock::decode(
                            row.get_ref(0)?.as_blob().map_err(|_| rusqlite::Error::InvalidQuery)?,
                        ));
                    }
                }
                Ok(found)
            })
            .collect()
    }

    /// The places of passages.
    pub fn passage_locations(&self, numbers: &[u32]) -> SqlResult<Vec<Option<PassageLocation>>> {
        let _reading = self.begin_read()?;
        let mut query = self
            .connection
            .prepare_cached("SELECT path, start, length, nth FROM passage JOIN file USING (file) WHERE passage.number = ?1")?;
        let place =
            |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?));
        numbers.iter().map(|number| query.query_row([number], place).optional()).collect()
    }

    pub(super) fn read_vectors(&self, numbers: &[u32]) -> SqlResult<Vec<Option<PackedVector>>> {
        let _reading = self.begin_read()?;
        let mut query = self.connection.prepare_cached(
            "SELECT packed FROM passage JOIN vector USING (key, wording) WHERE number = ?1",
        )?;
        let packed = |row: &rusqlite::Row<'_>| {
            Ok(row.get_ref(0)?.as_blob().ok().and_then(PackedVector::from_bytes))
        };
        numbers
            .iter()
            .map(|number| Ok(query.query_row([number], packed).optional()?.flatten()))
            .collect()
    }

    pub(super) fn write_vectors(&mut self, vectors: &[(u32, PackedVector)]) -> SqlResult<()> {
        let transaction =
            self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let mut signs: BTreeMap<u32, SignVector> = BTreeMap::new();
        {
            let mut put =
                transaction.prepare_cached("INSERT OR REPLACE INTO vector SELECT key, wording, ?2 FROM passage WHERE number = ?1")?;
            for (number, packed) in vectors {
                // A passage removed meanwhile needs no vector.
                if put.execute(params![number, packed.to_bytes()])? > 0 {
                    signs.insert(*number, packed.signs());
                }
            }
        }
        write_signs(&transaction, &signs)?;
        transaction.execute("UPDATE state SET generation = generation + 1", [])?;
        transaction.commit()?;
        self.shorten_log()
    }
}

/// Indexes one file: the appended part or everything.
fn index_file(
    transaction: &Transaction<'_>,
    reader: &Analyzer,
    batch: &mut PassageBatch,
    path: &DocPath,
    look: Option<FileStat>,
    text: &[u8],
) -> SqlResult<()> {
    let known: Option<(i64, u64, Vec<u8>, String)> = transaction
        .prepare_cached("SELECT file, bytes, running, stamp FROM file WHERE path = ?1")?
        .query_row([path.as_str()], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)))
        .optional()?;
    if known.as_ref().is_some_and(|known| look.is_some_and(|look| look.stamp() == known.3)) {
        // Another process was faster.
        return Ok(());
    }
    let by_lines = passage::is_append_only(path);
    // A last line without an end is still being written.
    let whole = if by_lines {
        text.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1)
    } else {
        text.len()
    };
    let text = &text[..whole];
    let mut from = 0;
    if let Some((file, bytes, running, _)) = &known {
        let covered = usize::try_from(*bytes).unwrap_or(usize::MAX);
        if by_lines
            && text.get(..covered).is_some_and(|covered| {
                Hash::of(covered).as_bytes().as_slice() == running.as_slice()
            })
        {
            from = covered;
        } else {
            remove_file(transaction, batch, *file)?;
        }
    }
    let Some(look) = look else {
        transaction.prepare_cached("DELETE FROM file WHERE path = ?1")?.execute([path.as_str()])?;
        return Ok(());
    };
    let file: i64 = transaction
        .prepare_cached(
            "INSERT INTO file (path, stamp, bytes, running) VALUES (?1, ?2, ?3, ?4) ON CONFLICT (path)
             DO UPDATE SET stamp = excluded.stamp, bytes = excluded.bytes, running = excluded.running RETURNING file",
        )?
        .query_row(params![path.as_str(), look.stamp(), text.len(), Hash::of(text).as_bytes().as_slice()], |row| row.get(0))?;
    for piece in passage::split_into_passages(path, &text[from..]) {
        let place = (file, from + piece.bytes.start, piece.bytes.len(), piece.nth);
        batch.add(transaction, reader, &piece.passage, place)?;
    }
    Ok(())
}

fn remove_file(
    transaction: &Transaction<'_>,
    batch: &mut PassageBatch,
    file: i64,
) -> SqlResult<()> {
    let mut query = transaction.prepare_cached("SELECT number FROM passage WHERE file = ?1")?;
    for number in query.query_map([file], |row| row.get::<_, u32>(0))? {
        batch.rows.insert(number?, PassageRow::DELETED);
    }
    transaction.prepare_cached("DELETE FROM passage WHERE file = ?1")?.execute([file])?;
    Ok(())
}

impl PassageBatch {
    pub(super) fn add(
        &mut self,
        transaction: &Transaction<'_>,
        reader: &Analyzer,
        passage: &Passage,
        place: (i64, usize, usize, u8),
    ) -> SqlResult<()> {
        let key = key_column(passage.key());
        let before: Option<u32> = transaction
            .prepare_cached("SELECT number FROM passage WHERE key = ?1")?
            .query_row([key], |row| row.get(0))
            .optional()?;
        if let Some(before) = before {
            self.rows.insert(before, PassageRow::DELETED);
            transaction
                .prepare_cached("DELETE FROM passage WHERE number = ?1")?
                .execute([before])?;
        }
        let number: u32 = transaction
            .prepare_cached("UPDATE state SET next = next + 1 RETURNING next - 1")?
            .query_row([], |row| row.get(0))?;
        let (file, start, length, nth) = place;
        transaction
            .prepare_cached("INSERT INTO passage VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)")?
            .execute(params![number, key, file, start, length, nth, passage.text_hash()])?;
        let group = match passage.group() {
            None => NO_GROUP,
            Some(name) => {
                let find = "SELECT number FROM grouping WHERE name = ?1";
                let put =
                    "INSERT INTO grouping (name, conversation) VALUES (?1, ?2) RETURNING number";
                match transaction
                    .prepare_cached(find)?
                    .query_row([&name], |row| row.get(0))
                    .optional()?
                {
                    Some(number) => number,
                    None => transaction
                        .prepare_cached(put)?
                        .query_row(params![name, passage.conversation], |row| row.get(0))?,
                }
            }
        };
        let voice = match passage.voice() {
            None => NO_VOICE,
            Some(name) => {
                let find = "SELECT number FROM voice WHERE name = ?1";
                let put = "INSERT INTO voice (name) VALUES (?1) RETURNING number";
                let known = transaction
                    .prepare_cached(find)?
                    .query_row([name], |row| row.get::<_, i64>(0))
                    .optional()?;
                let number = match known {
                    Some(number) => number,
                    None => transaction.prepare_cached(put)?.query_row([name], |row| row.get(0))?,
                };
                // So many names are not those of people.
                u16::try_from(number).unwrap_or(NO_VOICE)
            }
        };
        let terms = reader.terms(&passage.text);
        for (term, count) in terms.counts {
            self.terms.entry(term).or_default().push(Posting { passage: number, count });
        }
        self.rows.insert(number, PassageRow::from_passage(passage, terms.length, group, voice));
        self.passages += 1;
        Ok(())
    }

    pub(super) fn write(self, transaction: &Transaction<'_>) -> SqlResult<()> {
        if self.rows.is_empty() {
            return Ok(());
        }
        write_rows(transaction, &self.rows)?;
        let fresh: Vec<u32> = self
            .rows
            .iter()
            .filter(|(_, row)| row.kind.is_some())
            .map(|(&number, _)| number)
            .collect();
        let mut signs: BTreeMap<u32, SignVector> = self
            .rows
            .iter()
            .filter(|(_, row)| row.kind.is_none())
            .map(|(&number, _)| (number, SignVector([0; SIGN_BYTES / 8])))
            .collect();
        {
            // Unchanged text keeps its vector.
            let mut known = transaction.prepare_cached(
                "SELECT packed FROM passage JOIN vector USING (key, wording) WHERE number = ?1",
            )?;
            for number in fresh {
                let packed =
                    known.query_row([number], |row| row.get::<_, Vec<u8>>(0)).optional()?;
                if let Some(packed) = packed.as_deref().and_then(PackedVector::from_bytes) {
                    signs.insert(number, packed.signs());
                }
            }
        }
        write_signs(transaction, &signs)?;
        // In table order, so that each page is visited once.
        let mut terms: Vec<(i64, Vec<Posting>)> = Vec::with_capacity(self.terms.len());
        {
            let mut find = transaction.prepare_cached("SELECT number FROM term WHERE term = ?1")?;
            let mut put = transaction.prepare_cached("INSERT INTO term (term) VALUES (?1)")?;
            let mut sorted: Vec<(String, Vec<Posting>)> = self.terms.into_iter().collect();
            sorted.sort_unstable_by(|a, b| a.0.cmp(&b.0));
            for (term, postings) in sorted {
                let number = match find.query_row([&term], |row| row.get(0)).optional()? {
                    Some(number) => number,
                    None => {
                        put.execute([&term])?;
                        transaction.last_insert_rowid()
                    }
                };
                terms.push((number, postings));
            }
        }
        terms.sort_unstable_by_key(|(number, _)| *number);
        let mut last = transaction
            .prepare_cached("SELECT place, last, block FROM posting WHERE place BETWEEN ?1 AND ?2 ORDER BY place DESC LIMIT 1")?;
        let mut put =
            transaction.prepare_cached("INSERT OR REPLACE INTO posting VALUES (?1, ?2, ?3)")?;
        for (term, postings) in terms {
            let open = last
                .query_row([term << 32, term << 32 | 0xffff_ffff], |row| {
                    Ok((
                        row.get::<_, i64>(0)?,
                        PostingBlock { last: row.get(1)?, bytes: row.get(2)? },
                    ))
                })
                .optional()?;
            let (mut place, mut block) = open.unwrap_or((0, PostingBlock::default()));
            for posting in postings {
                if place == 0 || block.is_full() {
                    if place != 0 {
                        put.execute(params![place, block.last, block.bytes])?;
                    }
                    place = term << 32 | i64::from(posting.passage);
                    block = PostingBlock::default();
                }
                block.push(posting);
            }
            put.execute(params![place, block.last, block.bytes])?;
        }
        transaction.execute("UPDATE state SET generation = generation + 1", [])?;
        Ok(())
    }
}

/// Writes to rows that pack several values: `size` bytes per number.
fn write_many<const SIZE: usize>(
    transaction: &Transaction<'_>,
    (read, put): (&str, &str),
    values: impl Iterator<Item = (u32, [u8; SIZE])>,
) -> SqlResult<()> {
    let mut read = transaction.prepare_cached(read)?;
    let mut put = transaction.prepare_cached(put)?;
    let mut open: Option<(u32, Vec<u8>)> = None;
    for (number, bytes) in values {
        let piece = number / PASSAGES_PER_ROW;
        if open.as_ref().is_none_or(|(at, _)| *at != piece) {
            if let Some((at, bytes)) = open.take() {
                put.execute(params![at, bytes])?;
            }
            open = Some((
                piece,
                read.query_row([piece], |row| row.get(0)).optional()?.unwrap_or_default(),
            ));
        }
        if let Some((_, all)) = &mut open {
            let at = (number % PASSAGES_PER_ROW) as usize * SIZE;
            if all.len() < at + SIZE {
                all.resize(at + SIZE, 0);
            }
            all[at..at + SIZE].copy_from_slice(&bytes);
        }
    }
    if let Some((at, bytes)) = open {
        put.execute(params![at, bytes])?;
    }
    Ok(())
}

fn write_rows(transaction: &Transaction<'_>, rows: &BTreeMap<u32, PassageRow>) -> SqlResult<()> {
    let rows = rows.iter().map(|(&number, row)| (number, row.to_bytes()));
    write_many::<ROW_BYTES>(
        transaction,
        ("SELECT rows FROM piece WHERE piece = ?1", "INSERT OR REPLACE INTO piece VALUES (?1, ?2)"),
        rows,
    )
}

fn write_signs(transaction: &Transaction<'_>, signs: &BTreeMap<u32, SignVector>) -> SqlResult<()> {
    let signs = signs.iter().map(|(&number, signs)| (number, signs.to_bytes()));
    write_many::<SIGN_BYTES>(
        transaction,
        ("SELECT signs FROM sign WHERE piece = ?1", "INSERT OR REPLACE INTO sign VALUES (?1, ?2)"),
        signs,
    )
}
