//! In-memory search data of recently searched spaces, so that a search only reads what changed.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use icecore_domain::rank::corpus::Corpus;
use icecore_domain::rank::terms::Analyzer;
use icecore_domain::rank::vector::SignVector;
use uuid::Uuid;

/// The memory limit for all spaces together.
const MAX_CACHE_BYTES: usize = 64 << 20;
/// The approximate size of a passage in a corpus.
const PASSAGE_BYTES: usize = 40;
/// The overhead of a space.
const SPACE_BYTES: usize = 512;

/// Search data of a space as of a generation.
#[derive(Debug, Clone, Default)]
pub(in super::super) struct CachedPieces<T> {
    pub generation: i64,
    /// The pieces it was built from, each with its own generation.
    pub pieces: Vec<(i32, i64)>,
    pub what: Arc<T>,
}

impl<T> CachedPieces<T> {
    /// The pieces and generations as query parameters.
    pub fn known_generations(&self) -> (Vec<i32>, Vec<i64>) {
        self.pieces.iter().copied().unzip()
    }
}

#[derive(Default)]
struct SpaceCache {
    corpus: Option<CachedPieces<Corpus>>,
    signs: Option<CachedPieces<Vec<SignVector>>>,
    used: u64,
}

impl SpaceCache {
    fn bytes(&self) -> usize {
        let corpus =
            self.corpus.as_ref().map_or(0, |held| held.what.passage_end() as usize * PASSAGE_BYTES);
        let signs = self.signs.as_ref().map_or(0, |held| held.what.len() * size_of::<SignVector>());
        SPACE_BYTES + corpus + signs
    }
}

#[derive(Default)]
struct CacheLru {
    spaces: HashMap<Uuid, SpaceCache>,
    uses: u64,
    bytes: usize,
}

impl CacheLru {
    fn put(&mut self, space: Uuid, put: impl FnOnce(&mut SpaceCache)) {
        self.uses += 1;
        let shelf = self.spaces.entry(space).or_default();
        let before = if shelf.used == 0 { 0 } else { shelf.bytes() };
        put(shelf);
        shelf.used = self.uses;
        self.bytes = self.bytes + shelf.bytes() - before;
        while self.bytes > MAX_CACHE_BYTES {
            let oldest =
                self.spaces.iter().min_by_key(|(_, shelf)| shelf.used).map(|(&space, _)| space);
            let Some(gone) = oldest.and_then(|space| self.spaces.remove(&space)) else { break };
            self.bytes -= gone.bytes();
        }
    }

    fn get(&mut self, space: Uuid) -> Option<&SpaceCache> {
        self.uses += 1;
        let shelf = self.spaces.get_mut(&space)?;
        shelf.used = self.uses;
        Some(shelf)
    }
}

/// The cache, and the tools to read texts.
#[derive(Default)]
pub(in super::super) struct SearchCache {
    lru: Mutex<CacheLru>,
    pub(in super::super) reader: Analyzer,
}

impl fmt::Debug for SearchCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cache({} bytes)", self.lock_lru().bytes)
    }
}

impl SearchCache {
    fn lock_lru(&self) -> MutexGuard<'_, CacheLru> {
        self.lru.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(in super::super) fn corpus(&self, space: Uuid) -> Option<CachedPieces<Corpus>> {
        self.lock_lru().get(space)?.corpus.clone()
    }

    pub(in super::super) fn signs(&self, space: Uuid) -> Option<CachedPieces<Vec<SignVector>>> {
        self.lock_lru().get(space)?.signs.clone()
    }

    pub(in super::super) fn put_corpus(&self, space: Uuid, corpus: CachedPieces<Corpus>) {
        self.lock_lru().put(space, |shelf| shelf.corpus = Some(corpus));
    }

    pub(in super::super) fn put_signs(&self, space: Uuid, signs: CachedPieces<Vec<SignVector>>) {
        self.lock_lru().put(space, |shelf| shelf.signs = Some(signs));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_used_for_longest_goes_first() {
        let cache = SearchCache::default();
        let what = Arc::new(vec![SignVector::NONE; MAX_CACHE_BYTES / size_of::<SignVector>() / 3]);
        let signs = CachedPieces { generation: 1, pieces: Vec::new(), what };
        let spaces: Vec<Uuid> = (0..4).map(Uuid::from_u128).collect();
        for &space in &spaces[..2] {
            cache.put_signs(space, signs.clone());
        }
        assert!(cache.signs(spaces[0]).is_some());
        cache.put_signs(spaces[2], signs.clone());
        assert!(cache.lock_lru().bytes <= MAX_CACHE_BYTES);
        assert_eq!(
            spaces.iter().map(|&space| cache.signs(space).is_some()).collect::<Vec<_>>(),
            [true, false, true, false]
        );
        // A repetition takes no more memory.
        let before = cache.lock_lru().bytes;
        cache.put_signs(spaces[2], signs);
        assert_eq!(cache.lock_lru().bytes, before);
    }
}
