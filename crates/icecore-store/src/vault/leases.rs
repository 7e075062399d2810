//! Leases in a vault: advisory locks of the operating system, which end with their holder.

use async_trait::async_trait;

use super::Vault;
use super::vault_fs::WriteLock;
use crate::{Lease, LeaseHandle, LeaseStore, Result};

#[async_trait]
impl LeaseStore for Vault {
    async fn acquire_lease(&self, work: &str) -> Result<Option<Lease>> {
        Ok(self.fs.try_lock_named(&format!("{work}.lock"))?.map(|held| Lease(Box::new(held))))
    }
}

#[async_trait]
impl LeaseHandle for WriteLock {
    async fn is_held(&self) -> Result<bool> {
        // The system ends the lock only together with its holder.
        Ok(true)
    }
}
