//! A store that stops working after so many writes, as if the process had died there.

use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use icecore_domain::event::{Draft, Event};
use icecore_domain::id::EventId;
use icecore_domain::layout::DocPath;
use icecore_domain::ledger::LineFault;
use icecore_domain::ledger::conflict::Claim;
use icecore_domain::ledger::integrity::Finding;
use icecore_domain::ledger::query::EventQuery;

use crate::{Count, Error, Found, LedgerText, Position, Progress, Result, Stamp, Store};

/// Lets the first `n` writes through and refuses every later one. A verb that is stopped at each of its writes
/// in turn and run again must come to the same end as one that was never stopped.
pub struct StopAfter<S> {
    inner: S,
    left: AtomicUsize,
    allowed: usize,
}

impl<S> StopAfter<S> {
    /// Stops after `writes` writes.
    pub fn new(inner: S, writes: usize) -> Self {
        Self { inner, left: AtomicUsize::new(writes), allowed: writes }
    }

    fn write(&self) -> Result<()> {
        let taken = self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        taken.map(|_| ()).map_err(|_| Error::Stopped(self.allowed + 1))
    }
}

#[async_trait]
impl<S: Store> Store for StopAfter<S> {
    async fn append(&self, drafts: Vec<Draft>, after: Option<Position>) -> Result<Vec<Event>> {
        self.write()?;
        self.inner.append(drafts, after).await
    }

    async fn append_lines(&self, lines: &[u8]) -> Result<()> {
        self.write()?;
        self.inner.append_lines(lines).await
    }

    async fn ledger(&self) -> Result<LedgerText> {
        self.inner.ledger().await
    }

    async fn replace_ledger(&self, text: &[u8], at: Position) -> Result<()> {
        self.write()?;
        self.inner.replace_ledger(text, at).await
    }

    async fn events(&self, which: &EventQuery) -> Result<Found> {
        self.inner.events(which).await
    }

    async fn tally(&self) -> Result<Vec<Count>> {
        self.inner.tally().await
    }

    async fn contested(&self) -> Result<Vec<(EventId, Claim)>> {
        self.inner.contested().await
    }

    async fn faults(&self) -> Result<Vec<LineFault>> {
        self.inner.faults().await
    }

    async fn lost(&self) -> Result<Vec<EventId>> {
        self.inner.lost().await
    }

    async fn set_aside(&self, from: &DocPath, at: u64, bytes: &[u8]) -> Result<String> {
        self.write()?;
        self.inner.set_aside(from, at, bytes).await
    }

    async fn document(&self, path: &DocPath) -> Result<Option<Vec<u8>>> {
        self.inner.document(path).await
    }

    async fn put(&self, path: &DocPath, bytes: &[u8]) -> Result<()> {
        self.write()?;
        self.inner.put(path, bytes).await
    }

    async fn grow(&self, path: &DocPath, bytes: &[u8], from: u64) -> Result<()> {
        self.write()?;
        self.inner.grow(path, bytes, from).await
    }

    async fn remove(&self, path: &DocPath) -> Result<()> {
        self.write()?;
        self.inner.remove(path).await
    }

    async fn documents(&self) -> Result<Vec<DocPath>> {
        self.inner.documents().await
    }

    async fn unseen(&self, paths: &[DocPath]) -> Result<Vec<(DocPath, Stamp)>> {
        self.inner.unseen(paths).await
    }

    async fn see(&self, seen: &[(DocPath, Stamp)]) -> Result<()> {
        self.write()?;
        self.inner.see(seen).await
    }

    async fn inspect(&self) -> Result<Vec<Finding>> {
        self.inner.inspect().await
    }

    async fn rebuild(&self, progress: Progress<'_>) -> Result<usize> {
        self.write()?;
        self.inner.rebuild(progress).await
    }

    async fn mended(&self) -> Vec<String> {
        self.inner.mended().await
    }
}
