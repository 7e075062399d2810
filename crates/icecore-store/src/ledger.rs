//! The ledger: an append-only file of event lines.

use async_trait::async_trait;
use icecore_domain::event::{Event, EventDraft};
use icecore_domain::id::EventId;
use icecore_domain::layout::DocPath;
use icecore_domain::ledger::LineFault;

use crate::Result;

/// The position of the ledger at a read. Its value has a meaning only for the store that returned
/// it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position(pub u64);

/// The bytes of the ledger and its position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LedgerText {
    /// All lines, foreign ones included.
    pub bytes: Vec<u8>,
    pub position: Position,
}

/// The ledger of a store: reading, appending, and the two replacements that repair and compaction need.
#[async_trait]
pub trait LedgerStore: Send + Sync {
    /// Appends events and assigns their ids: the next numbers of their local days. With `after`,
    /// fails with [`ErrorKind::Conflict`](ErrorKind::Conflict) unless the ledger is still at that position.
    async fn append(&self, drafts: Vec<EventDraft>, after: Option<Position>) -> Result<Vec<Event>>;

    /// Appends complete lines verbatim, foreign ones included. Copies a ledger between stores.
    async fn append_lines(&self, lines: &[u8]) -> Result<()>;

    /// Reads the whole ledger.
    async fn ledger(&self) -> Result<LedgerText>;

    /// The position of the ledger, without reading it.
    async fn position(&self) -> Result<Position>;

    /// Replaces the ledger if it is still at `at`. The one exception to append-only, for repair and
    /// compaction.
    async fn replace_ledger(&self, text: &[u8], at: Position) -> Result<()>;

    /// Moves lines from the ledger into archives: appends to each archive, then replaces the ledger
    /// by `ledger` if it is still at `at`. After an interruption some lines are in both and count
    /// as lines of the ledger; no line is lost.
    async fn archive(
        &self,
        archives: &[(DocPath, Vec<u8>)],
        ledger: &[u8],
        at: Position,
    ) -> Result<()>;

    /// Lines of the ledger that are not, or not completely, valid events.
    async fn line_faults(&self) -> Result<Vec<LineFault>>;

    /// Events that were in the ledger at the last read and are missing now: another program removed
    /// their lines. [`LedgerStore::replace_ledger`] clears the list.
    async fn lost_events(&self) -> Result<Vec<EventId>>;

    /// Moves damaged bytes, found in `from` at offset `at`, to quarantine and returns their new
    /// location.
    async fn quarantine(&self, from: &DocPath, at: u64, bytes: &[u8]) -> Result<String>;
}
