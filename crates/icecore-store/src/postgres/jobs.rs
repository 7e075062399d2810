//! The job queue of a database: rows that workers lease for some time.
//!
//! The database's clock counts, so that workers need not agree on the time. The lease of a dead
//! worker ends by itself; a worker that was only slow learns that another one has the job, and
//! stops. Jobs compute from stored data, so repeating one has no further effect.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio_postgres::AsyncMessage;

use super::{Postgres, Space, id_of, said};
use crate::{Error, Result};

/// The job of a space's schedule.
pub const TEND: &str = "tend";

/// A number over the versions of all documents of a space. The highest version alone is not enough:
/// a smaller one that was assigned earlier may be written later.
const LOOK: &str = "SELECT coalesce(bit_xor(hashtextextended(path, version)), 0) FROM icecore.document WHERE space_id = $1";
/// The limit of a stored error message.
const TROUBLE_BYTES: usize = 500;

/// A job that this process leased.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Work {
    pub space: String,
    /// The kind of job, such as [`MAINTENANCE_JOB`].
    pub kind: String,
    /// Increases with every lease of this job.
    pub epoch: i64,
    /// Failures since the last success.
    pub failures: i32,
}

/// The number of jobs of one kind.
#[derive(Debug, Clone, PartialEq)]
pub struct Backlog {
    pub kind: String,
    /// Spaces that wait.
    pub waiting: i64,
    /// Spaces in progress.
    pub at_work: i64,
    /// Spaces whose last attempt failed.
    pub failing: i64,
    /// How long the first of them has waited, in seconds.
    pub oldest_seconds: f64,
}

/// When the next job of a space is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// At that time.
    At(jiff::Timestamp),
    /// After the next write.
    Asleep,
}

impl Postgres {
    /// Leases the job that has waited longest; `None` if none waits.
    pub async fn take(
        &self,
        kinds: &[&str],
        worker: &str,
        lease: Duration,
    ) -> Result<Option<Work>> {
        let tx = self.begin(None).await?;
        let sql = "SELECT space, kind, epoch, failures FROM icecore.take_job($1, $2, $3 * interval '1 second')";
        let found = tx.maybe(sql, &[&kinds, &worker, &lease.as_secs_f64()]).await?;
        tx.commit().await?;
        Ok(found.map(|row| Work {
            space: row.get(0),
            kind: row.get(1),
            epoch: row.get(2),
            failures: row.get(3),
        }))
    }

    /// Renews the lease; false if another worker has it.
    pub async fn keep(self: &Arc<Self>, work: &Work, lease: Duration) -> Result<bool> {
        let sql = "UPDATE icecore.job SET until = now() + $4 * interval '1 second' WHERE space_id = $1 AND kind = $2 AND epoch = $3";
        let space = id_of(&work.space)?;
        let tx = self.begin(Some(space)).await?;
        let kept = tx.run(sql, &[&space, &work.kind, &work.epoch, &lease.as_secs_f64()]).await?;
        tx.commit().await?;
        Ok(kept == 1)
    }

    /// Finishes a job. False if another worker has the lease; its result counts then.
    ///
    /// A space with [`NextRun::OnWrite`] sleeps only if its documents are still those of `seen`;
    /// otherwise it is due again at once.
    pub async fn done(self: &Arc<Self>, work: &Work, next: Next, seen: i64) -> Result<bool> {
        let sql = format!(
            "UPDATE icecore.job SET worker = NULL, until = NULL, failures = 0, trouble = NULL, \
            due = least(asked, CASE WHEN $4::timestamptz IS NOT NULL THEN $4 WHEN ({LOOK}) <> $5 THEN now() ELSE 'infinity' END) \
            WHERE space_id = $1 AND kind = $2 AND epoch = $3"
        );
        let at = match next {
            Next::At(at) => Some(at),
            Next::Asleep => None,
        };
        let space = id_of(&work.space)?;
        let tx = self.begin(Some(space)).await?;
        if at.is_none() {
            // Wait for writers that found the space awake and will not wake it. Later writers find
            // it asleep.
            tx.run("SELECT icecore.enter_alone()", &[]).await?;
        }
        let kept = tx.run(&sql, &[&space, &work.kind, &work.epoch, &at, &seen]).await?;
        tx.commit().await?;
        Ok(kept == 1)
    }

    /// Records a failure; the next attempt comes later each time.
    pub async fn failed(self: &Arc<Self>, work: &Work, why: &str) -> Result<bool> {
        let sql = "UPDATE icecore.job SET worker = NULL, until = NULL, failures = failures + 1, trouble = $4, \
            due = now() + icecore.again_after(failures) \
            WHERE space_id = $1 AND kind = $2 AND epoch = $3";
        let why = &why[..why.floor_char_boundary(TROUBLE_BYTES)];
        let space = id_of(&work.space)?;
        let tx = self.begin(Some(space)).await?;
        let kept = tx.run(sql, &[&space, &work.kind, &work.epoch, &why]).await?;
        tx.commit().await?;
        Ok(kept == 1)
    }

    /// The backlog of each kind of job.
    pub async fn backlog(&self) -> Result<Vec<Backlog>> {
        let tx = self.begin(None).await?;
        let rows = tx
            .rows("SELECT kind, waiting, at_work, failing, oldest FROM icecore.job_counts()", &[])
            .await?;
        tx.commit().await?;
        let told = |row: &tokio_postgres::Row| Backlog {
            kind: row.get(0),
            waiting: row.get(1),
            at_work: row.get(2),
            failing: row.get(3),
            oldest_seconds: row.get(4),
        };
        Ok(rows.iter().map(told).collect())
    }

    /// Listens for new jobs, whichever machine requests them.
    pub fn ear(self: &Arc<Self>) -> Result<Ear> {
        let (heard, home) = (Arc::new(Notify::new()), Arc::downgrade(self));
        let (config, tls, told) = (self.config.clone(), super::tls_or_error()?, heard.clone());
        let listening = self.threads()?.spawn(async move {
            let mut pause = super::FIRST_PAUSE;
            while home.strong_count() > 0 {
                if listen(&config, tls.clone(), &told).await.is_ok() {
                    pause = super::FIRST_PAUSE;
                }
                // Notifications missed meanwhile are found by a query.
                told.notify_one();
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(super::LONGEST_PAUSE);
            }
        });
        Ok(Ear { heard, listening })
    }
}

async fn listen(
    config: &tokio_postgres::Config,
    tls: tokio_postgres_rustls::MakeRustlsConnect,
    heard: &Notify,
) -> Result<()> {
    let broken = |error: &tokio_postgres::Error| Error::Unreachable {
        place: "the database".into(),
        why: said(error),
    };
    let (client, mut connection) = config.connect(tls).await.map_err(|error| broken(&error))?;
    let asking = async {
        if client.batch_execute("LISTEN icecore_jobs").await.is_ok() {
            std::future::pending::<()>().await;
        }
    };
    let hearing = std::future::poll_fn(|context| {
        loop {
            match std::task::ready!(connection.poll_message(context)) {
                Some(Ok(AsyncMessage::Notification(_))) => heard.notify_one(),
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return std::task::Poll::Ready(()),
            }
        }
    });
    tokio::select! {
        () = asking => {}
        () = hearing => {}
    }
    Ok(())
}

/// Signals that there may be a job.
pub struct Ear {
    heard: Arc<Notify>,
    listening: tokio::task::JoinHandle<()>,
}

impl Ear {
    /// Returns after a notification, or when one may have been missed.
    pub async fn hear(&self) {
        self.heard.notified().await;
    }
}

impl Drop for Ear {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

impl Space {
    /// Requests a job here within that time. An earlier request stays.
    pub async fn want(&self, kind: &str, within: Duration) -> Result<()> {
        let sql = "INSERT INTO icecore.job (space_id, kind, due) VALUES ($1, $2, now() + $3 * interval '1 second') \
            ON CONFLICT (space_id, kind) DO UPDATE SET due = least(job.due, excluded.due), asked = least(job.asked, excluded.due)";
        let tx = self.begin().await?;
        tx.run(sql, &[&self.id, &kind, &within.as_secs_f64()]).await?;
        if within.is_zero() {
            tx.run("NOTIFY icecore_jobs", &[]).await?;
        }
        tx.commit().await
    }

    /// The time of the last record or event here; `None` if there is none.
    pub async fn last_heard(&self) -> Result<Option<jiff::Timestamp>> {
        let sql = "SELECT max(changed) FROM icecore.document WHERE space_id = $1 AND length > 0 AND (path = 'memory/ledger.jsonl' \
            OR path >= 'memory/messages/' AND path < 'memory/messages0' OR path >= 'memory/snapshots/' AND path < 'memory/snapshots0')";
        let tx = self.begin_reading().await?;
        let row = tx.one(sql, &[&self.id]).await?;
        tx.commit().await?;
        Ok(row.get(0))
    }

    /// A number that changes with every write to any document of the space.
    pub async fn outline(&self) -> Result<i64> {
        let tx = self.begin_reading().await?;
        let row = tx.one(LOOK, &[&self.id]).await?;
        tx.commit().await?;
        Ok(row.get(0))
    }
}
