//! Exclusive leases on jobs.

use async_trait::async_trait;

use crate::{Result, TurnLeases};

/// An exclusive lease on a job. Dropping it releases the job.
pub struct Lease(pub Box<dyn LeaseHandle>);

impl Lease {
    /// Whether the lease is still exclusive. Ask before writing the result of a long job.
    pub async fn is_held(&self) -> Result<bool> {
        self.0.is_held().await
    }
}

/// The backend's side of a lease. Dropping it releases the lease.
#[async_trait]
pub trait LeaseHandle: Send + Sync {
    /// Whether the lease is still exclusive. A backend that expects heartbeats gives the lease to
    /// another process when they stop for too long.
    async fn is_held(&self) -> Result<bool>;
}

/// Leases on jobs and on the turns of conversations.
#[async_trait]
pub trait LeaseStore: Send + Sync {
    /// Acquires the exclusive lease on a job until it is dropped or the process dies; `None` if
    /// another process holds it.
    async fn acquire_lease(&self, work: &str) -> Result<Option<Lease>>;

    /// The leases that order the turns of a conversation between processes; `None` where locks
    /// within one process suffice, as in a vault.
    fn turn_lease(&self) -> Option<&dyn TurnLeases> {
        None
    }
}
