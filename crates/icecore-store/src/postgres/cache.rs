//! What this process has read lately and what it came to, of whichever space. Every use of it is
//! checked against the document's version, so that what another process wrote is always seen; where
//! a document has only grown, only what is new is read.

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

/// So much is remembered, in bytes: two ledgers of 100,000 events, or very many small ones.
const MOST_BYTES: usize = 256 << 20;
/// What remembering anything costs besides what is remembered, in bytes.
const PLACE_BYTES: usize = 512;
/// How often somebody else may have been faster before everything is read.
const TRIES: usize = 3;

/// What the bytes of a document come to.
pub(super) trait Reading: Clone + Default + Send + Sync + 'static {
    /// Takes in what follows what it has; that was ended with a line break.
    fn read_on(&mut self, bytes: &[u8]);

    /// How much it takes in memory, besides about as much as the bytes that it was read from.
    fn weight(&self) -> usize;
}

/// A reading and the document that it is of.
struct Held {
    look: Look,
    reading: Arc<dyn Any + Send + Sync>,
}

/// Where a reading is remembered.
#[derive(Default)]
struct Place(Mutex<Option<Held>>);

impl Place {
    fn lock(&self) -> MutexGuard<'_, Option<Held>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The version that is known, and how many bytes of it can be read on from.
    fn known(&self) -> (i64, u64) {
        self.lock().as_ref().map_or((0, 0), |held| {
            (held.look.version, if held.look.ended { held.look.length } else { 0 })
        })
    }

    /// What is remembered, if it is of that version.
    fn reading<T: Reading>(&self, version: i64) -> Option<(Arc<T>, Look)> {
        let held = self.lock();
        let held = held.as_ref().filter(|held| held.look.version == version)?;
        Some((held.reading.clone().downcast().ok()?, held.look))
    }

    /// Likewise, with what is new since; it is another version then.
    fn read_on<T: Reading>(&self, version: i64, look: Look, bytes: &[u8]) -> Option<Arc<T>> {
        let mut place = self.lock();
        let held = place.take_if(|held| held.look.version == version)?;
        // In place, unless somebody is just reading it.
        let mut reading: Arc<T> = held.reading.downcast().ok()?;
        Arc::make_mut(&mut reading).read_on(bytes);
        *place = Some(Held { look, reading: reading.clone() });
        Some(reading)
    }

    /// Remembers a reading instead of the version that was known; one that is newer stays.
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
    /// Which was used when, the longest ago first.
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
    /// The place for a document, used just now.
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

    /// Notes what a place takes now; what was not used for the longest time goes until there is
    /// room.
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

/// What was read lately, and whether the tables were looked at.
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
    /// What a document comes to as this transaction sees it, and what it looks like; nothing, if it
    /// is not there.
    pub(super) async fn reading<T: Reading>(
        &self,
        tx: &Tx,
        path: &DocPath,
    ) -> Result<(Arc<T>, Option<Look>)> {
        let key = (self.id, path.clone());
        let place = self.home.cache.shelf().place(&key);
        for nth in 1.. {
            // After so many others were faster, everything is read, which needs nobody.
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

    /// Likewise, of a document that looks like that: if it is remembered, nothing is asked.
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

    /// Remembers what a document comes to that this process has just appended to and committed.
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
        // What is larger than everything is not remembered at all.
        shelf.weigh(&key(4), 5000, 3000);
        assert_eq!((shelf.places.len(), shelf.bytes), (0, 0));
    }
}
