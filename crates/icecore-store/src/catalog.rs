//! What a store knows about its documents without reading them.

use async_trait::async_trait;
use icecore_domain::layout::{self, DocPath};

use crate::Result;

/// An opaque value that changes whenever the document changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stamp(pub String);

/// What a store knows about a document without reading it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DocumentStat {
    pub path: DocPath,
    pub bytes: u64,
    /// The time of the last write.
    pub changed: jiff::Timestamp,
    pub stamp: Stamp,
}

impl DocumentStat {
    /// Whether every store has this document from its creation.
    pub fn is_initial(&self) -> bool {
        let path = self.path.as_str();
        [layout::CONFIG, ".gitignore", ".gitattributes"].contains(&path)
            || path == layout::LEDGER && self.bytes == 0
    }
}

/// The disk usage of one part of a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskUsage {
    /// A top-level folder, an item in `memory`, the logs in it, or the settings.
    pub part: String,
    pub files: u64,
    pub bytes: u64,
}

/// Lists documents, their sizes and stamps, and remembers which were processed.
#[async_trait]
pub trait DocumentCatalog: Send + Sync {
    /// Paths of all documents below a folder (`""` for all), sorted. Excludes the ledger and
    /// derived or private files.
    async fn documents(&self, under: &str) -> Result<Vec<DocPath>>;

    /// Like [`DocumentCatalog::documents`], with the length of each in bytes.
    async fn document_sizes(&self, under: &str) -> Result<Vec<(DocPath, u64)>>;

    /// Like [`DocumentCatalog::documents`], with metadata; includes the ledger.
    async fn list(&self, under: &str) -> Result<Vec<DocumentStat>>;

    /// The length of a document in bytes; 0 if it does not exist.
    async fn document_len(&self, path: &DocPath) -> Result<u64>;

    /// The current stamp of each document; `None` for a missing one. Cheap.
    async fn stamps(&self, paths: &[DocPath]) -> Result<Vec<Option<Stamp>>>;

    /// Disk usage by part, derived and private files included.
    async fn disk_usage(&self) -> Result<Vec<DiskUsage>>;

    /// Those of `paths` that exist and changed since [`DocumentCatalog::mark_seen`], with their stamps.
    async fn changed_since_seen(&self, paths: &[DocPath]) -> Result<Vec<(DocPath, Stamp)>>;

    /// Documents below a folder that were seen and no longer exist, as far as the store remembers.
    /// Reports each once.
    async fn removed_since_seen(&self, under: &str) -> Result<Vec<DocPath>>;

    /// Records that these documents were processed. Losing this costs only another pass.
    async fn mark_seen(&self, seen: &[(DocPath, Stamp)]) -> Result<()>;
}
