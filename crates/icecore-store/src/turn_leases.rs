//! Leases that order the turns of a conversation between processes.

use std::time::Duration;

use async_trait::async_trait;
use icecore_domain::record::Record;

use crate::{AddReport, Result};

/// Leases that order the turns of a conversation between processes that share a store: whether
/// stored exchanges still wait to be remembered, and which process works on them. A dead process is
/// waited for no longer than its lease.
#[async_trait]
pub trait TurnLeases: Send + Sync {
    /// Stores records like [`RecordStore::add_records`](crate::RecordStore::add_records) and sets the pending flag of their conversations
    /// in the same transaction. Setting the flag earlier lets another process clear it; setting it
    /// later loses it on a crash.
    async fn append_pending(&self, records: Vec<Record>, lease: Duration) -> Result<AddReport>;

    /// Whether a stored exchange waits to be remembered.
    async fn has_pending(&self, conversation: &str) -> Result<bool>;

    /// Acquires or renews the exclusive lease on a conversation; `None` if another process holds
    /// it. Returns the number of writes to the conversation so far.
    async fn acquire(&self, conversation: &str, who: &str, lease: Duration) -> Result<Option<i64>>;

    /// Releases the conversation. With `again`, it becomes pending again after that time. Otherwise
    /// it is no longer pending, unless records were written after the `known` count.
    async fn release(
        &self,
        conversation: &str,
        who: &str,
        known: i64,
        again: Option<Duration>,
    ) -> Result<()>;
}
