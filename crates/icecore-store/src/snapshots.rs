//! Snapshots of the documents and the ledger.

use async_trait::async_trait;
use icecore_domain::forget::Scrub;
use icecore_domain::layout::DocPath;

use crate::{Error, MachineMerge, Result};

/// A saved state of the documents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    pub id: String,
    pub at: jiff::Timestamp,
    /// The reason it was made.
    pub note: String,
}

/// The result of rewriting the snapshots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RewriteReport {
    pub snapshots: usize,
    /// The number of files that changed in them.
    pub files: usize,
}

/// Snapshots of the documents and the ledger.
#[async_trait]
pub trait SnapshotStore: MachineMerge {
    /// Whether snapshots are possible, and if not, why. Cheap; [`SnapshotStore::create_snapshot`]
    /// checks more.
    async fn check_available(&self) -> Result<()>;

    /// Saves the current state. `None` if nothing changed since the last snapshot.
    async fn create_snapshot(&self, note: &str, at: jiff::Timestamp) -> Result<Option<Snapshot>>;

    /// The snapshots, newest first.
    async fn snapshots(&self, most: usize) -> Result<Vec<Snapshot>>;

    /// The files that differ between a snapshot and now, with their content in the snapshot. `None`
    /// as content: the file did not exist.
    async fn changes_since(&self, id: &str) -> Result<Vec<(DocPath, Option<Vec<u8>>)>>;

    /// The snapshots that changed a document, newest first.
    async fn document_versions(&self, path: &DocPath, most: usize) -> Result<Vec<Snapshot>> {
        let _ = (path, most);
        Err(Error::no_snapshots("this store keeps no snapshots".into()))
    }

    /// A document as of a snapshot; `None` if it did not exist.
    async fn document_at(&self, id: &str, path: &DocPath) -> Result<Option<Vec<u8>>> {
        let _ = (id, path);
        Err(Error::no_snapshots("this store keeps no snapshots".into()))
    }

    /// The number of snapshots that contain the text to be forgotten, and the number of all.
    async fn count_containing(&self, scrub: &Scrub) -> Result<(usize, usize)>;

    /// Rewrites every snapshot without the text to be forgotten. The ids change.
    async fn rewrite_snapshots(&self, scrub: &Scrub) -> Result<RewriteReport>;

    /// Compacts the snapshots. Must not run together with [`SnapshotStore::rewrite_snapshots`].
    async fn pack(&self) -> Result<()> {
        Ok(())
    }

    /// Repairs the snapshot store as far as that is safe, and returns what it did.
    async fn repair(&self) -> Result<Vec<String>>;
}
