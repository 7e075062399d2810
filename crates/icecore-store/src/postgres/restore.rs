//! Restores a memory into a space: no other process uses the space until it is complete, and an
//! interrupted restore starts over.
//!
//! The restoring process holds a lease on the space and renews it in the background, because
//! verification may take longer than the lease. Every write names the restoring process, so that
//! one that was too slow cannot overwrite another's data.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::task::JoinHandle;
use uuid::Uuid;

use super::{Postgres, Space, space_id};
use crate::{Error, Result};

/// How long a space is reserved for a restoring process without a renewal.
pub(super) const RESTORE_LEASE: Duration = Duration::from_secs(60);

/// The restoring process and its renewal task.
#[derive(Debug)]
pub(super) struct RestoreHeartbeat {
    pub(super) id: Uuid,
    renewing: JoinHandle<()>,
}

impl Drop for RestoreHeartbeat {
    fn drop(&mut self) {
        self.renewing.abort();
    }
}

/// Whether this handle restores into the space.
#[derive(Debug, Default)]
pub(super) struct RestoreState(Mutex<Option<RestoreHeartbeat>>);

impl RestoreState {
    pub(super) fn lock(&self) -> MutexGuard<'_, Option<RestoreHeartbeat>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The id of the restoring process, if it is this one.
    pub fn holder(&self) -> Option<Uuid> {
        self.lock().as_ref().map(|filler| filler.id)
    }
}

impl Postgres {
    /// The space of that name as the target of a restore. Creates a missing one, invisible for
    /// others until the restore is complete.
    pub async fn create_restore_target(
        self: &Arc<Self>,
        name: &str,
        config: &str,
    ) -> Result<Arc<Space>> {
        const MADE: &str = "INSERT INTO icecore.space (space_id, name, filling, filled_until) \
            SELECT $1, $2, gen_random_uuid(), now() + make_interval(secs => $3) ON CONFLICT DO NOTHING RETURNING life, filling";
        self.check_schema().await?;
        let id = space_id(name)?;
        let tx = self.begin(Some(id)).await?;
        if let Some(row) = tx.query_opt(MADE, &[&id, &name, &RESTORE_LEASE.as_secs_f64()]).await? {
            let space = Arc::new(self.space_handle(name, id, row.get(0)));
            space.create_initial_documents(&tx, config).await?;
            tx.commit().await?;
            space.start_heartbeat(row.get(1))?;
            return Ok(space);
        }
        let found = tx
            .query_opt("SELECT life FROM icecore.space WHERE space_id = $1", &[&id])
            .await?
            .ok_or(Error::space_erased())?;
        tx.commit().await?;
        Ok(Arc::new(self.space_handle(name, id, found.get(0))))
    }
}

impl Space {
    /// Renews the lease in the background until the restore ends.
    pub(super) fn start_heartbeat(&self, filler: Uuid) -> Result<()> {
        const SQL: &str = "UPDATE icecore.space SET filled_until = now() + make_interval(secs => $3) WHERE space_id = $1 AND filling = $2";
        // Weak, so that it does not keep the database open.
        let (home, id) = (Arc::downgrade(&self.database), self.id);
        let renewing = self.database.runtime_handle()?.spawn(async move {
            loop {
                tokio::time::sleep(RESTORE_LEASE / 3).await;
                let Some(home) = home.upgrade() else { return };
                // A failed renewal is tried again: the lease covers several, and every write checks
                // the ownership.
                let Ok(tx) = home.begin(Some(id)).await else { continue };
                if tx.execute(SQL, &[&id, &filler, &RESTORE_LEASE.as_secs_f64()]).await.is_ok() {
                    let _ = tx.commit().await;
                }
            }
        });
        *self.filling.lock() = Some(RestoreHeartbeat { id: filler, renewing });
        Ok(())
    }
}
