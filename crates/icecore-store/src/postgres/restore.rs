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
use crate::{Error, RestoreTarget, Result};

/// How long a space is reserved for a restoring process without a renewal.
const RESTORE_LEASE: Duration = Duration::from_secs(60);

/// The restoring process and its renewal task.
#[derive(Debug)]
struct RestoreHeartbeat {
    id: Uuid,
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
    fn lock(&self) -> MutexGuard<'_, Option<RestoreHeartbeat>> {
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
            .ok_or(Error::SpaceErased)?;
        tx.commit().await?;
        Ok(Arc::new(self.space_handle(name, id, found.get(0))))
    }
}

impl Space {
    /// Renews the lease in the background until the restore ends.
    fn start_heartbeat(&self, filler: Uuid) -> Result<()> {
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

    pub(super) async fn claim_for_restore(&self) -> Result<RestoreTarget> {
        const FOUND: &str = "SELECT filling IS NOT NULL, filled_until > now() FROM icecore.space WHERE space_id = $1 AND life = $2";
        const TAKEN: &str = "UPDATE icecore.space SET filling = gen_random_uuid(), filled_until = now() + make_interval(secs => $2) \
            WHERE space_id = $1 RETURNING filling";
        if self.filling.holder().is_some() {
            return Ok(RestoreTarget::New);
        }
        let tx = self.database.begin(Some(self.id)).await?;
        // Running writers finish first, and later ones see the restore.
        tx.execute("SELECT icecore.enter_alone()", &[]).await?;
        let found =
            tx.query_opt(FOUND, &[&self.id, &self.life]).await?.ok_or(Error::SpaceErased)?;
        let is_unfinished = match (found.get(0), found.get(1)) {
            (true, Some(true)) => return Err(Error::RestoreInProgress),
            (is_unfinished, _) => is_unfinished,
        };
        let ground = if is_unfinished {
            RestoreTarget::Unfinished
        } else {
            RestoreTarget::from_documents(&self.query_stats(&tx, "").await?)
        };
        if !matches!(ground, RestoreTarget::Occupied { .. }) {
            let row = tx.query_one(TAKEN, &[&self.id, &RESTORE_LEASE.as_secs_f64()]).await?;
            tx.commit().await?;
            self.start_heartbeat(row.get(0))?;
        }
        Ok(ground)
    }

    pub(super) async fn complete_restore(&self) -> Result<()> {
        let Some(filler) = self.filling.holder() else { return Ok(()) };
        let tx = self.database.begin(Some(self.id)).await?;
        let sql = "UPDATE icecore.space SET filling = NULL, filled_until = NULL WHERE space_id = $1 AND filling = $2";
        if tx.execute(sql, &[&self.id, &filler]).await? == 0 {
            return Err(Error::RestoreInProgress);
        }
        // The space has work for the scheduler now.
        tx.execute("NOTIFY icecore_jobs", &[]).await?;
        tx.commit().await?;
        *self.filling.lock() = None;
        Ok(())
    }

    pub(super) async fn release_restore(&self) -> Result<()> {
        let Some(filler) = self.filling.lock().take() else { return Ok(()) };
        let tx = self.database.begin(Some(self.id)).await?;
        let sql =
            "UPDATE icecore.space SET filled_until = now() WHERE space_id = $1 AND filling = $2";
        tx.execute(sql, &[&self.id, &filler.id]).await?;
        tx.commit().await
    }
}
