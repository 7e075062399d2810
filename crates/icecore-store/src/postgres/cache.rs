//! Parsed documents that this process read recently, of all spaces. Every use checks the document's
//! version, so writes of other processes are always visible. Of a document that has only grown,
//! only the new part is read.

use std::any::Any;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use icecore_domain::layout::DocPath;
use uuid::Uuid;

use super::documents::{DocumentChange, DocumentMeta};
use super::{Space, Tx};
use crate::Result;

/// The memory limit: two ledgers of 100,000 events, or very many small documents.
const MAX_CACHE_BYTES: usize = 256 << 20;
/// The overhead of an entry.
const ENTRY_OVERHEAD_BYTES: usize = 512;
/// How often another process may be faster before the whole document is read.
const MAX_TRIES: usize = 3;

/// The parsed content of a document.
pub(super) trait ParsedDocument: Clone + Default + Send + Sync + 'static {
    /// Parses what follows the parsed part, which ended with a line break.
    fn parse_more(&mut self, bytes: &[u8]);

    /// The memory it uses beyond about the size of its bytes.
    fn memory_bytes(&self) -> usize;
}

/// A parsed document with the metadata of its version.
struct CachedVersion {
    look: DocumentMeta,
    reading: Arc<dyn Any + Send + Sync>,
}

/// A slot of the cache.
#[derive(Default)]
struct CacheEntry(Mutex<Option<CachedVersion>>);

impl CacheEntry {
    fn lock(&self) -> MutexGuard<'_, Option<CachedVersion>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The cached version and its length.
    fn known_version(&self) -> (i64, u64) {
        self.lock().as_ref().map_or((0, 0), |held| {
            (held.look.version, if held.look.is_terminated { held.look.length } else { 0 })
        })
    }

    /// The parsed content, if it is of that version.
    fn at_version<T: ParsedDocument>(&self, version: i64) -> Option<(Arc<T>, DocumentMeta)> {
        let held = self.lock();
        let held = held.as_ref().filter(|held| held.look.version == version)?;
        Some((held.reading.clone().downcast().ok()?, held.look))
    }

    /// Parses the new part; the entry then has a new version.
    fn extend<T: ParsedDocument>(
        &self,
        version: i64,
        meta: DocumentMeta,
        bytes: &[u8],
    ) -> Option<Arc<T>> {
        let mut place = self.lock();
        let held = place.take_if(|held| held.look.version == version)?;
        // In place, unless a reader holds it.
        let mut reading: Arc<T> = held.reading.downcast().ok()?;
        Arc::make_mut(&mut reading).parse_more(bytes);
        *place = Some(CachedVersion { look: meta, reading: reading.clone() });
        Some(reading)
    }

    /// Replaces the entry if it still has the `known` version; a newer one stays.
    fn put<T: ParsedDocument>(&self, known: i64, meta: DocumentMeta, reading: &Arc<T>) {
        let mut place = self.lock();
        if place
            .as_ref()
            .is_none_or(|held| held.look.version == known || held.look.version < meta.version)
        {
            *place = Some(CachedVersion { look: meta, reading: reading.clone() });
        }
    }
}

type DocumentKey = (Uuid, DocPath);

#[derive(Default)]
struct Lru {
    places: HashMap<DocumentKey, LruSlot>,
    /// By time of last use, oldest first.
    order: BTreeMap<u64, DocumentKey>,
    uses: u64,
    bytes: usize,
}

struct LruSlot {
    place: Arc<CacheEntry>,
    used: u64,
    bytes: usize,
}

impl Lru {
    /// The entry for a document; marks it as used.
    fn entry(&mut self, key: &DocumentKey) -> Arc<CacheEntry> {
        self.uses += 1;
        let (uses, bytes) = (self.uses, &mut self.bytes);
        let seat = self.places.entry(key.clone()).or_insert_with(|| {
            *bytes += ENTRY_OVERHEAD_BYTES;
            LruSlot { place: Arc::default(), used: uses, bytes: ENTRY_OVERHEAD_BYTES }
        });
        self.order.remove(&seat.used);
        seat.used = uses;
        self.order.insert(uses, key.clone());
        seat.place.clone()
    }

    /// Sets the size of an entry; evicts the least recently used ones until the limit holds.
    fn set_bytes(&mut self, key: &DocumentKey, bytes: usize, most: usize) {
        if let Some(seat) = self.places.get_mut(key) {
            self.bytes = self.bytes - seat.bytes + bytes;
            seat.bytes = bytes;
        }
        while self.bytes > most
            && let Some((_, key)) = self.order.pop_first()
        {
            if let Some(seat) = self.places.remove(&key) {
                self.bytes -= seat.bytes;
            }
        }
    }
}

/// The cache, and whether the schema was checked.
#[derive(Default)]
pub(super) struct DocumentCache {
    checked: AtomicBool,
    lru: Mutex<Lru>,
}

impl fmt::Debug for DocumentCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache").finish_non_exhaustive()
    }
}

impl DocumentCache {
    /// Whether the schema version was checked.
    pub fn is_schema_checked(&self) -> bool {
        self.checked.load(Ordering::Relaxed)
    }

    /// Records that the schema version was checked.
    pub fn set_schema_checked(&self) {
        self.checked.store(true, Ordering::Relaxed);
    }

    fn lock_lru(&self) -> MutexGuard<'_, Lru> {
        self.lru.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add_bytes<T: ParsedDocument>(&self, key: &DocumentKey, meta: DocumentMeta, reading: &T) {
        let text = usize::try_from(meta.length).unwrap_or(usize::MAX);
        self.lock_lru().set_bytes(
            key,
            ENTRY_OVERHEAD_BYTES.saturating_add(text).saturating_add(reading.memory_bytes()),
            MAX_CACHE_BYTES,
        );
    }
}

impl Space {
    /// The parsed content of a document as this transaction sees it, and its metadata; empty if it
    /// does not exist.
    pub(super) async fn read_parsed<T: ParsedDocument>(
        &self,
        tx: &Tx,
        path: &DocPath,
    ) -> Result<(Arc<T>, Option<DocumentMeta>)> {
        let key = (self.id, path.clone());
        let place = self.database.cache.lock_lru().entry(&key);
        for nth in 1.. {
            // After too many conflicts, read everything, which needs no cached version.
            let (version, length) = if nth < MAX_TRIES { place.known_version() } else { (0, 0) };
            let Some((look, news)) = self.read_changes(tx, path, version, length).await? else {
                break;
            };
            let reading = match news {
                DocumentChange::Unchanged => match place.at_version::<T>(look.version) {
                    Some((reading, look)) => return Ok((reading, Some(look))),
                    None => continue,
                },
                DocumentChange::Appended(bytes) => match place.extend::<T>(version, look, &bytes) {
                    Some(reading) => reading,
                    None => continue,
                },
                DocumentChange::Replaced(bytes) => {
                    let mut reading = T::default();
                    reading.parse_more(&bytes);
                    let reading = Arc::new(reading);
                    place.put(version, look, &reading);
                    reading
                }
            };
            self.database.cache.add_bytes(&key, look, &*reading);
            return Ok((reading, Some(look)));
        }
        *place.lock() = None;
        Ok((Arc::new(T::default()), None))
    }

    /// Like [`Space::read_parsed`] for a document with known metadata: a cache hit needs no query.
    pub(super) async fn read_parsed_at<T: ParsedDocument>(
        &self,
        tx: &Tx,
        path: &DocPath,
        meta: DocumentMeta,
    ) -> Result<Arc<T>> {
        let place = self.database.cache.lock_lru().entry(&(self.id, path.clone()));
        match place.at_version(meta.version) {
            Some((reading, _)) => Ok(reading),
            None => Ok(self.read_parsed(tx, path).await?.0),
        }
    }

    /// Updates the cache after this process appended to a document and committed.
    pub(super) fn parse_own<T: ParsedDocument>(
        &self,
        path: &DocPath,
        before: DocumentMeta,
        after: DocumentMeta,
        bytes: &[u8],
    ) {
        let key = (self.id, path.clone());
        let place = self.database.cache.lock_lru().entry(&key);
        if before.is_terminated
            && let Some(reading) = place.extend::<T>(before.version, after, bytes)
        {
            self.database.cache.add_bytes(&key, after, &*reading);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: u8) -> DocumentKey {
        (Uuid::from_bytes([n; 16]), "memory/ledger.jsonl".parse().unwrap())
    }

    #[test]
    fn what_was_not_used_for_the_longest_time_makes_room() {
        let mut shelf = Lru::default();
        for n in 1..=3 {
            shelf.entry(&key(n));
            shelf.set_bytes(&key(n), 1000, 3000);
        }
        shelf.entry(&key(1));
        shelf.entry(&key(4));
        shelf.set_bytes(&key(4), 1500, 3000);
        let mut left: Vec<u8> = shelf.places.keys().map(|(space, _)| space.as_bytes()[0]).collect();
        left.sort_unstable();
        assert_eq!((left, shelf.bytes, shelf.order.len()), (vec![1, 4], 2500, 2));
        // A document larger than the limit is not cached.
        shelf.set_bytes(&key(4), 5000, 3000);
        assert_eq!((shelf.places.len(), shelf.bytes), (0, 0));
    }
}
