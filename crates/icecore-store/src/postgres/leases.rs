//! Job leases: rows of a table, so that no connection is held while a job needs others.
//!
//! The holder renews its lease again and again; the database's clock counts. The lease of a killed
//! process ends after a while. A process that was only suspended that long learns, when it asks,
//! that another one has the lease. Not flushed: a lease lost with the database server is lost for
//! every process that worked there.

use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use uuid::Uuid;

use super::{Postgres, Space};
use crate::ledger_view::lock_mutex;
use crate::{Error, Lease, LeaseHandle, LeaseStore, Result};

/// How often a lease is renewed before it would end.
const RENEWALS_PER_LEASE: u32 = 3;

/// Leases that this process is releasing, by space and job.
#[derive(Debug, Default)]
pub(super) struct PendingReleases {
    pending: Mutex<Vec<(Uuid, String)>>,
    /// `all_done` is for blocking waiters, `one_done` for async ones.
    all_done: Condvar,
    one_done: Notify,
}

impl PendingReleases {
    /// Returns when this lease is released.
    async fn wait_released(&self, space: Uuid, work: &str) {
        loop {
            // Registered before the check, so that no notification is missed.
            let told = self.one_done.notified();
            if !lock_mutex(&self.pending).iter().any(|going| going.0 == space && going.1 == work) {
                return;
            }
            told.await;
        }
    }
}

/// A release in progress.
struct PendingRelease(Arc<LeaseRow>);

impl PendingRelease {
    fn of(lease: Arc<LeaseRow>) -> Self {
        lock_mutex(&lease.home.releases.pending).push((lease.space, lease.work.clone()));
        Self(lease)
    }
}

impl Drop for PendingRelease {
    fn drop(&mut self) {
        let (lease, all) = (&self.0, &self.0.home.releases);
        let mut going = lock_mutex(&all.pending);
        if let Some(own) =
            going.iter().position(|going| going.0 == lease.space && going.1 == lease.work)
        {
            going.swap_remove(own);
        }
        drop(going);
        all.all_done.notify_all();
        all.one_done.notify_waiters();
    }
}

/// A lease row that this process holds for some time.
struct LeaseRow {
    home: Arc<Postgres>,
    space: Uuid,
    work: String,
    holder: Uuid,
    /// Until then the lease is exclusive; `None` once another process has it.
    until: Mutex<Option<Instant>>,
}

impl LeaseRow {
    /// Renews the lease; false if another process has it. An expired lease that nobody took can be
    /// renewed.
    async fn renew(&self) -> Result<bool> {
        const SQL: &str = "WITH quick AS (SELECT set_config('synchronous_commit', 'off', true)) \
            UPDATE icecore.claim SET until = now() + make_interval(secs => $4) FROM quick WHERE space_id = $1 AND work = $2 AND holder = $3";
        // Measured before the statement, so that it ends here before it ends in the database.
        let (begun, lease) = (Instant::now(), self.home.options.lease_duration);
        let tx = self.home.begin(Some(self.space)).await?;
        let is_held =
            tx.execute(SQL, &[&self.space, &self.work, &self.holder, &lease.as_secs_f64()]).await?
                == 1;
        tx.commit().await?;
        *lock_mutex(&self.until) = is_held.then(|| begun + lease);
        Ok(is_held)
    }

    async fn release(&self) -> Result<()> {
        const SQL: &str = "WITH quick AS (SELECT set_config('synchronous_commit', 'off', true)) \
            DELETE FROM icecore.claim USING quick WHERE space_id = $1 AND work = $2 AND holder = $3";
        let tx = self.home.begin(Some(self.space)).await?;
        tx.execute(SQL, &[&self.space, &self.work, &self.holder]).await?;
        tx.commit().await
    }
}

/// A lease that is renewed in the background and released when dropped.
struct RenewedLease {
    lease: Arc<LeaseRow>,
    renewing: Option<JoinHandle<()>>,
}

impl RenewedLease {
    fn start_renewal(&mut self) -> Result<()> {
        let (lease, pause) = (
            Arc::downgrade(&self.lease),
            self.lease.home.options.lease_duration / RENEWALS_PER_LEASE,
        );
        let renewing = async move {
            loop {
                tokio::time::sleep(pause).await;
                let Some(lease) = lease.upgrade() else { return };
                // A database that is unreachable now may be back before the lease ends.
                if matches!(lease.renew().await, Ok(false)) {
                    return;
                }
            }
        };
        self.renewing = Some(self.lease.home.runtime_handle()?.spawn(renewing));
        Ok(())
    }
}

#[async_trait]
impl LeaseHandle for RenewedLease {
    async fn is_held(&self) -> Result<bool> {
        let until = *lock_mutex(&self.lease.until);
        match until {
            None => Ok(false),
            Some(until) if Instant::now() < until => Ok(true),
            Some(_) => self.lease.renew().await,
        }
    }
}

impl Drop for RenewedLease {
    fn drop(&mut self) {
        if let Some(renewing) = self.renewing.take() {
            renewing.abort();
        }
        let Ok(threads) = self.lease.home.runtime_handle() else { return };
        let going = PendingRelease::of(self.lease.clone());
        threads.spawn(async move {
            // If the release fails, the lease ends by itself.
            let _ = going.0.release().await;
        });
    }
}

impl Postgres {
    async fn try_acquire(self: Arc<Self>, space: Uuid, work: String) -> Result<Option<Lease>> {
        // A held lease is only read, so that polling writes nothing.
        const SQL: &str = "WITH quick AS (SELECT set_config('synchronous_commit', 'off', true)) \
            INSERT INTO icecore.claim (space_id, work, holder, until) \
            SELECT $1, $2, gen_random_uuid(), now() + make_interval(secs => $3) FROM quick \
            WHERE NOT EXISTS (SELECT FROM icecore.claim WHERE space_id = $1 AND work = $2 AND until >= now()) \
            ON CONFLICT (space_id, work) DO UPDATE SET holder = excluded.holder, until = excluded.until WHERE claim.until < now() RETURNING holder";
        let (begun, lease) = (Instant::now(), self.options.lease_duration);
        let tx = self.begin(Some(space)).await?;
        let Some(row) = tx.query_opt(SQL, &[&space, &work, &lease.as_secs_f64()]).await? else {
            return Ok(None);
        };
        let lease = LeaseRow {
            home: self,
            space,
            work,
            holder: row.get(0),
            until: Mutex::new(Some(begun + lease)),
        };
        // From here on it is released in any case, also if the commit's outcome is unknown.
        let mut holding = RenewedLease { lease: Arc::new(lease), renewing: None };
        tx.commit().await?;
        holding.start_renewal()?;
        Ok(Some(Lease(Box::new(holding))))
    }

    /// Waits until all releases are done, at most `most`. For a process that ends.
    pub fn drain_releases(&self, most: Duration) {
        let going = lock_mutex(&self.releases.pending);
        drop(self.releases.all_done.wait_timeout_while(going, most, |going| !going.is_empty()));
    }
}

#[async_trait]
impl LeaseStore for Space {
    async fn acquire_lease(&self, work: &str) -> Result<Option<Lease>> {
        let (home, space, work) = (self.database.clone(), self.id, work.to_owned());
        // In a task of its own: if the caller is cancelled, the lease is still released.
        let taking = self.database.runtime_handle()?.spawn(async move {
            // Wait for a release of the same lease by this process.
            home.releases.wait_released(space, &work).await;
            home.try_acquire(space, work).await
        });
        taking.await.map_err(|_| Error::database("the program is stopping".into()))?
    }

    fn turn_lease(&self) -> Option<&dyn crate::TurnLeases> {
        Some(self)
    }
}
