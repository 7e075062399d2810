//! The search index of a vault: a SQLite file derived from the documents.

use std::collections::BTreeMap;
use std::sync::{Arc, MutexGuard, PoisonError};

use async_trait::async_trait;
use icecore_domain::layout::{self, DocPath};
use icecore_domain::rank::corpus::Corpus;
use icecore_domain::rank::passage;
use icecore_domain::rank::posting::Posting;
use rusqlite::{OptionalExtension, params};

use super::Vault;
use super::index::{self, SqlResult};
use super::search_db::{SearchDb, key_column, search_error};
use super::vault_fs::FileStat;
use crate::{
    Error, IndexReport, LocatedPassage, MAX_DEAD_PASSAGES, Progress, Result, SEARCHED_FOLDERS,
    SearchIndex,
};

#[async_trait]
impl SearchIndex for Vault {
    async fn update_index(&self, anew: bool, progress: Progress<'_>) -> Result<IndexReport> {
        let failed = std::cell::RefCell::new(None);
        let taken = self.query_search(|search| {
            if anew {
                search.clear()?;
            }
            match self.catch_up_files(search, progress) {
                Ok(Ok(taken)) => {
                    let corpus = search.read_corpus()?;
                    let gone = corpus.passage_end().saturating_sub(corpus.passages);
                    if gone > MAX_DEAD_PASSAGES && gone > corpus.passages {
                        search.clear()?;
                        return match self.catch_up_files(search, progress) {
                            Ok(again) => again,
                            Err(error) => {
                                *failed.borrow_mut() = Some(error);
                                Ok(taken)
                            }
                        };
                    }
                    Ok(taken)
                }
                Ok(Err(error)) => Err(error),
                Err(error) => {
                    *failed.borrow_mut() = Some(error);
                    Ok(IndexReport::default())
                }
            }
        })?;
        failed.into_inner().map_or(Ok(taken), Err)
    }

    async fn corpus(&self) -> Result<Arc<Corpus>> {
        self.query_search(SearchDb::read_corpus)
    }

    async fn postings(&self, terms: &[String]) -> Result<Vec<Vec<Posting>>> {
        self.query_search(|search| search.read_postings(terms))
    }

    async fn terms_containing(&self, part: &str, most: usize) -> Result<Vec<String>> {
        self.query_search(|search| {
            let mut query =
                search.connection.prepare_cached("SELECT term FROM term WHERE instr(term, ?1) > 0 ORDER BY length(term), term LIMIT ?2")?;
            query.query_map(params![part, most], |row| row.get(0))?.collect()
        })
    }

    async fn locate_passages(&self, numbers: &[u32]) -> Result<Vec<Option<LocatedPassage>>> {
        let places = self.query_search(|search| search.passage_locations(numbers))?;
        let mut by_file: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (at, place) in places.iter().enumerate() {
            if let Some((path, ..)) = place {
                by_file.entry(path).or_default().push(at);
            }
        }
        let mut found: Vec<Option<LocatedPassage>> = vec![None; numbers.len()];
        for (path, which) in by_file {
            let path: DocPath = path.parse()?;
            let pieces: Vec<(u64, usize, u8)> = which
                .iter()
                .filter_map(|&at| {
                    places[at].as_ref().map(|&(_, start, length, nth)| (start, length, nth))
                })
                .collect();
            let ranges: Vec<(u64, usize)> =
                pieces.iter().map(|&(start, length, _)| (start, length)).collect();
            // A file that changed since it was indexed yields nothing; the next update corrects
            // that.
            let Ok(read) = self.fs.read_pieces(&path, &ranges) else { continue };
            for ((at, bytes), (_, _, nth)) in which.iter().zip(read).zip(pieces) {
                found[*at] = passage::read_passage(&path, &bytes, nth)
                    .map(|passage| LocatedPassage { passage, source: path.clone() });
            }
        }
        Ok(found)
    }

    async fn passage_number(&self, key: u64) -> Result<Option<u32>> {
        self.query_search(|search| {
            let mut query =
                search.connection.prepare_cached("SELECT number FROM passage WHERE key = ?1")?;
            query.query_row([key_column(key)], |row| row.get(0)).optional()
        })
    }

    async fn conversation_groups(&self, conversation: &str) -> Result<Vec<u32>> {
        self.query_search(|search| {
            let mut query = search
                .connection
                .prepare_cached("SELECT number FROM grouping WHERE conversation = ?1")?;
            query.query_map([conversation], |row| row.get(0))?.collect()
        })
    }

    async fn speakers(&self) -> Result<Vec<(u16, String)>> {
        self.query_search(|search| {
            let mut query = search.connection.prepare_cached(
                "SELECT number, name FROM voice WHERE number <= 65535 ORDER BY number",
            )?;
            query.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
        })
    }
}

impl Vault {
    pub(super) fn search_slot(&self) -> MutexGuard<'_, Option<Box<SearchDb>>> {
        self.search_slot.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Deletes the search index; the next search rebuilds it.
    pub(super) fn delete_search_index(&self) {
        let mut shelf = self.search_slot();
        *shelf = None;
        self.fs.remove_index(&self.fs.private("search.db"));
    }

    /// Queries the search index. A damaged one is rebuilt and queried again. Where none can be
    /// written, one in memory replaces it.
    pub(super) fn query_search<T>(
        &self,
        question: impl Fn(&mut SearchDb) -> SqlResult<T>,
    ) -> Result<T> {
        let path = self.fs.private("search.db");
        let mut shelf = self.search_slot();
        for attempt in 0..3 {
            let search = match &mut *shelf {
                Some(search) => search,
                None => {
                    let made = self
                        .fs
                        .make_folder(&self.root().join(layout::PRIVATE))
                        .ok()
                        .and_then(|()| SearchDb::open(&self.fs, &path).ok());
                    let search = match made {
                        Some(search) if attempt < 2 => search,
                        _ => SearchDb::in_memory().map_err(|error| search_error(&error))?,
                    };
                    shelf.insert(Box::new(search))
                }
            };
            match question(search) {
                Ok(answer) => return Ok(answer),
                Err(error) if index::is_damage(&error) && attempt == 0 => {
                    *shelf = SearchDb::recreate(&self.fs, &path).ok().map(Box::new);
                    if let Some(search) = &mut *shelf {
                        self.catch_up_files(search, &|_, _| {})?
                            .map_err(|error| search_error(&error))?;
                    }
                }
                Err(_) if attempt < 2 => *shelf = None,
                Err(error) => return Err(search_error(&error)),
            }
        }
        Err(Error::index("the search index cannot be created"))
    }

    /// A description of the damage of the search index, if it exists and is damaged.
    pub(super) fn check_search_index(&self) -> Result<Option<String>> {
        if !self.fs.private("search.db").exists() {
            return Ok(None);
        }
        self.query_search(|search| search.find_damage())
    }

    /// The files with passages, with their stats.
    pub(super) fn searched_files(&self) -> Result<Vec<(DocPath, FileStat)>> {
        let mut found = Vec::new();
        for (folder, deep) in SEARCHED_FOLDERS {
            if !deep {
                found.extend(self.fs.list_folder(folder.trim_end_matches('/'))?);
                continue;
            }
            for path in self.fs.documents(folder)? {
                if let Some(look) = self.fs.stat(&path)? {
                    found.push((path, look));
                }
            }
        }
        found.retain(|(path, _)| passage::has_passages(path));
        // An event that is in two files counts as in the ledger, so the ledger comes last.
        found.sort_by(|a, b| {
            (a.0.as_str() == layout::LEDGER)
                .cmp(&(b.0.as_str() == layout::LEDGER))
                .then_with(|| a.0.cmp(&b.0))
        });
        found.dedup_by(|a, b| a.0 == b.0);
        Ok(found)
    }

    /// Updates the search index for the files.
    pub(super) fn catch_up_files(
        &self,
        search: &mut SearchDb,
        progress: Progress<'_>,
    ) -> Result<SqlResult<IndexReport>> {
        // Before anything is read: the next call sees changes from here on.
        let glance = self.fs.fingerprint(&SEARCHED_FOLDERS)?;
        let generation = match search.generation() {
            Ok(generation) => generation,
            Err(error) => return Ok(Err(error)),
        };
        if search.up_to_date == Some((glance, generation)) {
            return Ok(Ok(IndexReport::default()));
        }
        let sources = self.searched_files()?;
        let mut known = match search.indexed_files() {
            Ok(known) => known,
            Err(error) => return Ok(Err(error)),
        };
        let mut stale: Vec<(DocPath, u64)> = sources
            .into_iter()
            .filter(|(path, look)| {
                known.remove(path.as_str()).is_none_or(|stamp| stamp != look.stamp())
            })
            .map(|(path, look)| (path, look.len))
            .collect();
        // Removed files first: what moved to another file is indexed from there.
        let gone: Vec<(DocPath, u64)> =
            known.keys().filter_map(|path| Some((path.parse().ok()?, 0))).collect();
        stale.splice(0..0, gone);
        // Not after indexing something: files that could not be read are tried again.
        search.up_to_date = stale.is_empty().then_some((glance, generation));
        let all: u64 = stale.iter().map(|(_, bytes)| bytes + 1).sum();
        let paths: Vec<DocPath> = stale.iter().map(|(path, _)| path.clone()).collect();
        let mut taken = IndexReport::default();
        let mut done = 0;
        while done < paths.len() {
            let read = |path: &DocPath| -> Result<(Option<FileStat>, Vec<u8>)> {
                let now = self.current_file(path)?;
                Ok((now.look, now.text))
            };
            let (files, passages) = match search.index_batch(&paths[done..], &read)? {
                Ok(taken) => taken,
                Err(error) => return Ok(Err(error)),
            };
            done += files;
            taken.files += files as u64;
            taken.new += passages as u64;
            progress(stale[..done].iter().map(|(_, bytes)| bytes + 1).sum(), all);
        }
        Ok(Ok(taken))
    }
}
