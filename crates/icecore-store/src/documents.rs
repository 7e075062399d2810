//! Documents: any file of a store, verbatim.

use async_trait::async_trait;
use icecore_domain::hash::Hash;
use icecore_domain::layout::DocPath;

use crate::Result;

/// The version of a document at a read: the hash of its bytes, or absent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ContentVersion(pub(crate) Option<Hash>);

impl ContentVersion {
    /// The document did not exist.
    pub const ABSENT: Self = Self(None);

    /// The version of a document that was read.
    pub fn of(document: Option<&[u8]>) -> Self {
        Self(document.map(Hash::of))
    }
}

/// New content for a document, valid only if the document is still at version `from`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replacement {
    pub path: DocPath,
    pub bytes: Vec<u8>,
    pub from: ContentVersion,
}

/// Reads and writes documents.
#[async_trait]
pub trait DocumentStore: Send + Sync {
    /// Reads a document.
    async fn document(&self, path: &DocPath) -> Result<Option<Vec<u8>>>;

    /// The last complete lines of a document, about `bytes` of them, and whether they are the whole
    /// document.
    async fn read_tail(&self, path: &DocPath, bytes: u64) -> Result<(Vec<u8>, bool)>;

    /// Writes a document atomically, whatever it held before. Only for documents that people do not
    /// edit.
    async fn put(&self, path: &DocPath, bytes: &[u8]) -> Result<()>;

    /// Writes many documents, each atomically. Cheaper than single calls.
    async fn put_many(&self, documents: &[(DocPath, Vec<u8>)]) -> Result<()>;

    /// Replaces a document that is still at version `from`; otherwise leaves it and fails with
    /// [`ErrorKind::Conflict`](ErrorKind::Conflict).
    async fn compare_and_swap(
        &self,
        path: &DocPath,
        bytes: &[u8],
        from: ContentVersion,
    ) -> Result<()>;

    /// Replaces every document that is still at its expected version and returns the paths of the
    /// others, which stay unchanged. Cheaper than single calls.
    async fn compare_and_swap_many(&self, replacements: &[Replacement]) -> Result<Vec<DocPath>>;

    /// Appends to a document unconditionally. Ends an incomplete last line first.
    async fn append_to_document(&self, path: &DocPath, bytes: &[u8]) -> Result<()>;

    /// Appends to a document that is still at version `from`; otherwise fails with
    /// [`ErrorKind::Conflict`](ErrorKind::Conflict). Ends an incomplete last line first.
    async fn append_if_unchanged(
        &self,
        path: &DocPath,
        bytes: &[u8],
        from: ContentVersion,
    ) -> Result<()>;

    /// Removes a document. A missing one is not an error.
    async fn remove(&self, path: &DocPath) -> Result<()>;

    /// Removes a document that is still at version `from`; otherwise leaves it and fails with
    /// [`ErrorKind::Conflict`](ErrorKind::Conflict).
    async fn remove_unchanged(&self, path: &DocPath, from: ContentVersion) -> Result<()>;

    /// Removes an empty folder. Leaves a folder that is missing or not empty.
    async fn remove_empty_folder(&self, path: &DocPath) -> Result<()>;
}
