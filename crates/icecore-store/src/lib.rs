//! The storage layer: the capability traits of a [`Store`] and their two backends, the vault
//! (files) and PostgreSQL.
//!
//! A store saves and returns data. It holds no policy: `icecore-domain` decides the state of an
//! event, what conflicts and which lines are valid, and a backend at most caches the answer. Every
//! trait has a file here and a file of the same name in each backend. The conformance suite in
//! `testing` defines what every backend must do.

mod catalog;
mod documents;
mod error;
mod events;
pub mod foreign_files;
mod leases;
mod ledger;
mod ledger_view;
mod machine_merge;
mod maintenance;
mod notes;
pub mod postgres;
mod record_dedup;
mod records;
mod search_index;
mod snapshot_redaction;
mod snapshots;
pub mod staged_dir;
mod summaries;
mod turn_leases;
pub mod vault;
mod vectors;

#[cfg(feature = "testing")]
pub mod testing;

pub use self::catalog::{DiskUsage, DocumentCatalog, DocumentStat, Stamp};
pub use self::documents::{ContentVersion, DocumentStore, Replacement};
pub use self::error::{Error, ErrorKind, Result};
pub use self::events::{EventQueries, EventSelection, StatementCount};
pub use self::leases::{Lease, LeaseHandle, LeaseStore};
pub use self::ledger::{LedgerStore, LedgerText, Position};
pub use self::machine_merge::{
    Divergence, MERGE_NOTE_PREFIX, MachineMerge, MergeOutcome, RESOLVED_MERGE_NOTE, UnfinishedMerge,
};
pub use self::maintenance::{Maintenance, Progress, RestoreTarget, ScrubOutcome, ScrubbedFile};
pub(crate) use self::notes::MARKER_KEY;
pub use self::notes::NoteStore;
pub use self::records::{AddReport, RecordStore};
pub use self::search_index::{IndexReport, LocatedPassage, SearchIndex};
pub(crate) use self::search_index::{MAX_DEAD_PASSAGES, SEARCHED_FOLDERS, is_searchable};
pub use self::snapshots::{RewriteReport, Snapshot, SnapshotStore};
pub use self::summaries::SummaryStore;
pub use self::turn_leases::TurnLeases;
pub use self::vectors::{EmbeddingCoverage, VectorIndex};

/// A store of memory: all capabilities that every backend has.
///
/// Every write is durable when its call returns, and it is atomic.
pub trait Store:
    LedgerStore
    + EventQueries
    + DocumentStore
    + DocumentCatalog
    + RecordStore
    + SummaryStore
    + NoteStore
    + LeaseStore
    + Maintenance
    + SearchIndex
    + VectorIndex
{
}

impl<T> Store for T where
    T: LedgerStore
        + EventQueries
        + DocumentStore
        + DocumentCatalog
        + RecordStore
        + SummaryStore
        + NoteStore
        + LeaseStore
        + Maintenance
        + SearchIndex
        + VectorIndex
{
}

/// The traits of a store, for code that holds a backend by its own type.
pub mod prelude {
    pub use crate::{
        DocumentCatalog, DocumentStore, EventQueries, LeaseStore, LedgerStore, MachineMerge,
        Maintenance, NoteStore, RecordStore, SearchIndex, SnapshotStore, Store, SummaryStore,
        TurnLeases, VectorIndex,
    };
}
