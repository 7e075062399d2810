//! Private data that no snapshot carries: notes, cached answers, the marker key.

use async_trait::async_trait;
use icecore_domain::hash::Hash;
use icecore_domain::layout::DocPath;
use icecore_domain::secrets::MarkerKey;

use crate::Result;

/// The name of the marker key: a file in the vault's private folder, a note in a PostgreSQL space.
pub(crate) const MARKER_KEY: &str = "secret.key";

/// Private data that no snapshot carries: notes, cached answers, the marker key.
#[async_trait]
pub trait NoteStore: Send + Sync {
    /// Reads a note: a small, dispensable, private file of this store, such as the list of what a
    /// session already received.
    async fn note(&self, name: &DocPath) -> Result<Option<Vec<u8>>>;

    /// Writes a note atomically, without waiting for a lock.
    async fn put_note(&self, name: &DocPath, bytes: &[u8]) -> Result<()>;

    /// Appends a line to a note without waiting for a lock; durably if `flush`. Beyond `most_bytes`
    /// the older half is dropped.
    async fn append_note(
        &self,
        name: &DocPath,
        line: &str,
        most_bytes: u64,
        flush: bool,
    ) -> Result<()>;

    /// The notes of a folder with the time of the last write of each, in seconds since 1970.
    async fn notes(&self, folder: &DocPath) -> Result<Vec<(DocPath, i64)>>;

    /// Removes a note. A missing one is not an error.
    async fn remove_note(&self, name: &DocPath) -> Result<()>;

    /// A cached model answer to this prompt.
    async fn cached_answer(&self, question: Hash) -> Result<Option<Vec<u8>>>;

    /// Caches a model answer, so that the prompt is not paid for twice. Keeps only the newest.
    async fn cache_answer(&self, question: Hash, answer: &[u8]) -> Result<()>;

    /// The key for the markers of hidden secrets; `None` if the store has none yet.
    async fn marker_key(&self) -> Result<Option<MarkerKey>>;

    /// Sets the marker key durably and outside of all snapshots; without `replace` only if there is
    /// none. Returns the key in force: processes that set one concurrently all get the same.
    async fn set_marker_key(&self, key: &MarkerKey, replace: bool) -> Result<MarkerKey>;
}
