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

use super::documents::{Look, News};
use super::{Space, Tx};
use crate::Result;

/// The memory limit: two ledgers of 100,000 events, or very many small documents.
const MOST_BYTES: usize = 256 << 20;
/// The overhead of an entry.
const PLACE_BYTES: usize = 512;
/// How often another process may be faster before the whole document is read.
const TRIES: usize = 3;

/// The parsed content of a document.
pub(super) trait Reading: Clone + Default + Send + Sync + 'static {
    /// Parses what follows the parsed part, which ended with a line break.
    fn read_on(&mut self, bytes: &[u8]);

    /// The memory it uses beyond about the size of its bytes.
    fn weight(&self) -> usize;
}

/// A parsed document with the metadata of its version.
struct Held {
    look: Look,
    reading: Arc<dyn Any + Send + Sync>,
}

/// A slot of the cache.
#[derive(Default)]
struct Place(Mutex<Option<Held>>);

impl Place {
    fn lock(&self) -> MutexGuard<'_, Option<Held>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The cached version and its length.
    fn known(&self) -> (i64, u64) {
        self.lock().as_ref().map_or((0, 0), |held| {
            (held.look.version, if held.look.ended { held.look.length } else { 0 })
        })
    }

    /// The parsed content, if it is of that version.
    fn reading<T: Reading>(&self, version: i64) -> Option<(Arc<T>, Look)> {
        let held = self.lock();
        let held = held.as_ref().filter(|held| held.look.version == version)?;
        Some((held.reading.clone().downcast().ok()?, held.look))
    }

    /// Parses the new part; the entry then has a new version.
    fn read_on<T: Reading>(&self, version: i64, look: Look, bytes: &[u8]) -> Option<Arc<T>> {
        let mut place = self.lock();
        let held = place.take_if(|held| held.look.version == version)?;
        // In place, unless a reader holds it.
        let mut reading: Arc<T> = held.reading.downcast().ok()?;
        Arc::make_mut(&mut reading).read_on(bytes);
        *place = Some(Held { look, reading: reading.clone() });
        Some(reading)
    }

    /// Replaces the entry if it still has the `known` version; a newer one stays.
    fn put<T: Reading>(&self, known: i64, look: Look, reading: &Arc<T>) {
        let mut place = self.lock();
        if place
            .as_ref()
            .is_none_or(|held| held.look.version == known || held.look.version < look.version)
        {
            *place = Some(Held { look, reading: reading.clone() });
        }
    }
}

type Key = (Uuid, DocPath);

#[derive(Default)]
struct Shelf {
    places: HashMap<Key, Seat>,
    /// By time of last use, oldest first.
    order: BTreeMap<u64, Key>,
    uses: u64,
    bytes: usize,
}

struct Seat {
    place: Arc<Place>,
    used: u64,
    bytes: usize,
}

impl Shelf {
    /// The entry for a document; marks it as used.
    fn place(&mut self, key: &Key) -> Arc<Place> {
        self.uses += 1;
        let (uses, bytes) = (self.uses, &mut self.bytes);
        let seat = self.places.entry(key.clone()).or_insert_with(|| {
            *bytes += PLACE_BYTES;
            Seat { place: Arc::default(), used: uses, bytes: PLACE_BYTES }
        });
        self.order.remove(&seat.used);
        seat.used = uses;
        self.order.insert(uses, key.clone());
        seat.place.clone()
    }

    /// Sets the size of an entry; evicts the least recently used ones until the limit holds.
    fn weigh(&mut self, key: &Key, bytes: usize, most: usize) {
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
pub(super) struct Cache {
    checked: AtomicBool,
    shelf: Mutex<Shelf>,
}

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache").finish_non_exhaustive()
    }
}

impl Cache {
    pub fn is_checked(&self) -> bool {
        self.checked.load(Ordering::Relaxed)
    }

    pub fn checked(&self) {
        self.checked.store(true, Ordering::Relaxed);
    }

    fn shelf(&self) -> MutexGuard<'_, Shelf> {
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn weigh<T: Reading>(&self, key: &Key, look: Look, reading: &T) {
        let text = usize::try_from(look.length).unwrap_or(usize::MAX);
        self.shelf().weigh(
            key,
            PLACE_BYTES.saturating_add(text).saturating_add(reading.weight()),
            MOST_BYTES,
        );
    }
}

impl Space {
    /// The parsed content of a document as this transaction sees it, and its metadata; empty if it
    /// does not exist.
    pub(super) async fn reading<T: Reading>(
        &self,
        tx: &Tx,
        path: &DocPath,
    ) -> Result<(Arc<T>, Option<Look>)> {
        let key = (self.id, path.clone());
        let place = self.home.cache.shelf().place(&key);
        for nth in 1.. {
            // After too many conflicts, read everything, which needs no cached version.
            let (version, length) = if nth < TRIES { place.known() } else { (0, 0) };
            let Some((look, news)) = self.news(tx, path, version, length).await? else { break };
            let reading = match news {
                News::Same => match place.reading::<T>(look.version) {
                    Some((reading, look)) => return Ok((reading, Some(look))),
                    None => continue,
                },
                News::Grown(bytes) => match place.read_on::<T>(version, look, &bytes) {
                    Some(reading) => reading,
                    None => continue,
                },
                News::Other(bytes) => {
                    let mut reading = T::default();
                    reading.read_on(&bytes);
                    let reading = Arc::new(reading);
                    place.put(version, look, &reading);
                    reading
                }
            };
            self.home.cache.weigh(&key, look, &*reading);
            return Ok((reading, Some(look)));
        }
        *place.lock() = None;
        Ok((Arc::new(T::default()), None))
    }

    /// Like [`Space::read_parsed`] for a document with known metadata: a cache hit needs no query.
    pub(super) async fn reading_at<T: Reading>(
        &self,
        tx: &Tx,
        path: &DocPath,
        look: Look,
    ) -> Result<Arc<T>> {
        let place = self.home.cache.shelf().place(&(self.id, path.clone()));
        match place.reading(look.version) {
            Some((reading, _)) => Ok(reading),
            None => Ok(self.reading(tx, path).await?.0),
        }
    }

    /// Updates the cache after this process appended to a document and committed.
    pub(super) fn read_own<T: Reading>(
        &self,
        path: &DocPath,
        before: Look,
        after: Look,
        bytes: &[u8],
    ) {
        let key = (self.id, path.clone());
        let place = self.home.cache.shelf().place(&key);
        if before.ended
            && let Some(reading) = place.read_on::<T>(before.version, after, bytes)
        {
            self.home.cache.weigh(&key, after, &*reading);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: u8) -> Key {
        (Uuid::from_bytes([n; 16]), "memory/ledger.jsonl".parse().unwrap())
    }

    #[test]
    fn what_was_not_used_for_the_longest_time_makes_room() {
        let mut shelf = Shelf::default();
        for n in 1..=3 {
            shelf.place(&key(n));
            shelf.weigh(&key(n), 1000, 3000);
        }
        shelf.place(&key(1));
        shelf.place(&key(4));
        shelf.weigh(&key(4), 1500, 3000);
        let mut left: Vec<u8> = shelf.places.keys().map(|(space, _)| space.as_bytes()[0]).collect();
        left.sort_unstable();
        assert_eq!((left, shelf.bytes, shelf.order.len()), (vec![1, 4], 2500, 2));
        // A document larger than the limit is not cached.
        shelf.weigh(&key(4), 5000, 3000);
        assert_eq!((shelf.places.len(), shelf.bytes), (0, 0));
    }
}
