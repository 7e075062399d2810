//! Parts of the search index of a space: its update, the form of its rows, and the ranking data in
//! memory.

pub(super) mod cache;
pub(super) mod encoding;
mod index_update;

pub(super) use self::cache::SearchCache;
