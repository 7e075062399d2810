//! The job queue of a database: rows that workers lease for some time.
//!
//! The database's clock counts, so that workers need not agree on the time. The lease of a dead
//! worker ends by itself; a worker that was only slow learns that another one has the job, and
//! stops. Jobs compute from stored data, so repeating one has no further effect.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio_postgres::AsyncMessage;

use super::errors::error_text;
use super::{Postgres, Space, space_id};
use crate::{Error, Result};

/// The job of a space's schedule.
pub const MAINTENANCE_JOB: &str = "tend";

/// A number over the versions of all documents of a space. The highest version alone is not enough:
/// a smaller one that was assigned earlier may be written later.
const FINGERPRINT_SQL: &str = "SELECT coalesce(bit_xor(hashtextextended(path, version)), 0) FROM icecore.document WHERE space_id = $1";
/// The limit of a stored error message.
const MAX_ERROR_BYTES: usize = 500;

/// A job that this process leased.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeasedJob {
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
pub struct JobBacklog {
    pub kind: String,
    /// Spaces that wait.
    pub waiting: i64,
    /// Spaces in progress.
    pub running: i64,
    /// Spaces whose last attempt failed.
    pub failing: i64,
    /// How long the first of them has waited, in seconds.
    pub oldest_seconds: f64,
}

/// When the next job of a space is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextRun {
    /// At that time.
    At(jiff::Timestamp),
    /// After the next write.
    OnWrite,
}

impl Postgres {
    /// Leases the job that has waited longest; `None` if none waits.
    pub async fn acquire_job(
        &self,
        kinds: &[&str],
        worker: &str,
        lease: Duration,
    ) -> Result<Option<LeasedJob>> {
        let tx = self.begin(None).await?;
        let sql = "SELECT space, kind, epoch, failures FROM icecore.take_job($1, $2, $3 * interval '1 second')";
        let found = tx.query_opt(sql, &[&kinds, &worker, &lease.as_secs_f64()]).await?;
        tx.commit().await?;
        Ok(found.map(|row| LeasedJob {
            space: row.get(0),
            kind: row.get(1),
            epoch: row.get(2),
            failures: row.get(3),
        }))
    }

    /// Renews the lease; false if another worker has it.
    pub async fn renew_job(self: &Arc<Self>, work: &LeasedJob, lease: Duration) -> Result<bool> {
        let sql = "UPDATE icecore.job SET until = now() + $4 * interval '1 second' WHERE space_id = $1 AND kind = $2 AND epoch = $3";
        let space = space_id(&work.space)?;
        let tx = self.begin(Some(space)).await?;
        let kept =
            tx.execute(sql, &[&space, &work.kind, &work.epoch, &lease.as_secs_f64()]).await?;
        tx.commit().await?;
        Ok(kept == 1)
    }

    /// Finishes a job. False if another worker has the lease; its result counts then.
    ///
    /// A space with [`NextRun::OnWrite`] sleeps only if its documents are still those of `seen`;
    /// otherwise it is due again at once.
    pub async fn finish_job(
        self: &Arc<Self>,
        work: &LeasedJob,
        next: NextRun,
        seen: i64,
    ) -> Result<bool> {
        let sql = format!(
            "UPDATE icecore.job SET worker = NULL, until = NULL, failures = 0, trouble = NULL, \
            due = least(asked, CASE WHEN $4::timestamptz IS NOT NULL THEN $4 WHEN ({FINGERPRINT_SQL}) <> $5 THEN now() ELSE 'infinity' END) \
            WHERE space_id = $1 AND kind = $2 AND epoch = $3"
        );
        let at = match next {
            NextRun::At(at) => Some(at),
            NextRun::OnWrite => None,
        };
        let space = space_id(&work.space)?;
        let tx = self.begin(Some(space)).await?;
        if at.is_none() {
            // Wait for writers that found the space awake and will not wake it. Later writers find
            // it asleep.
            tx.execute("SELECT icecore.enter_alone()", &[]).await?;
        }
        let kept = tx.execute(&sql, &[&space, &work.kind, &work.epoch, &at, &seen]).await?;
        tx.commit().await?;
        Ok(kept == 1)
    }

    /// Records a failure; the next attempt comes later each time.
    pub async fn fail_job(self: &Arc<Self>, work: &LeasedJob, why: &str) -> Result<bool> {
        let sql = "UPDATE icecore.job SET worker = NULL, until = NULL, failures = failures + 1, trouble = $4, \
            due = now() + icecore.again_after(failures) \
            WHERE space_id = $1 AND kind = $2 AND epoch = $3";
        let why = &why[..why.floor_char_boundary(MAX_ERROR_BYTES)];
        let space = space_id(&work.space)?;
        let tx = self.begin(Some(space)).await?;
        let kept = tx.execute(sql, &[&space, &work.kind, &work.epoch, &why]).await?;
        tx.commit().await?;
        Ok(kept == 1)
    }

    /// The backlog of each kind of job.
    pub async fn job_backlog(&self) -> Result<Vec<JobBacklog>> {
        let tx = self.begin(None).await?;
        let rows = tx
            .query("SELECT kind, waiting, at_work, failing, oldest FROM icecore.job_counts()", &[])
            .await?;
        tx.commit().await?;
        let told = |row: &tokio_postgres::Row| JobBacklog {
            kind: row.get(0),
            waiting: row.get(1),
            running: row.get(2),
            failing: row.get(3),
            oldest_seconds: row.get(4),
        };
        Ok(rows.iter().map(told).collect())
    }

    /// Listens for new jobs, whichever machine requests them.
    pub fn listen_for_jobs(self: &Arc<Self>) -> Result<JobListener> {
        let (heard, home) = (Arc::new(Notify::new()), Arc::downgrade(self));
        let (config, tls, told) = (self.config.clone(), super::tls_or_error()?, heard.clone());
        let listening = self.runtime_handle()?.spawn(async move {
            let mut pause = super::FIRST_RETRY_PAUSE;
            while home.strong_count() > 0 {
                if run_listener(&config, tls.clone(), &told).await.is_ok() {
                    pause = super::FIRST_RETRY_PAUSE;
                }
                // Notifications missed meanwhile are found by a query.
                told.notify_one();
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(super::MAX_RETRY_PAUSE);
            }
        });
        Ok(JobListener { heard, listening })
    }
}

async fn run_listener(
    config: &tokio_postgres::Config,
    tls: tokio_postgres_rustls::MakeRustlsConnect,
    heard: &Notify,
) -> Result<()> {
    let broken = |error: &tokio_postgres::Error| {
        Error::unreachable("the database".into(), error_text(error))
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
pub struct JobListener {
    heard: Arc<Notify>,
    listening: tokio::task::JoinHandle<()>,
}

impl JobListener {
    /// Returns after a notification, or when one may have been missed.
    pub async fn wait(&self) {
        self.heard.notified().await;
    }
}

impl Drop for JobListener {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

impl Space {
    /// Requests a job here within that time. An earlier request stays.
    pub async fn request_job(&self, kind: &str, within: Duration) -> Result<()> {
        let sql = "INSERT INTO icecore.job (space_id, kind, due) VALUES ($1, $2, now() + $3 * interval '1 second') \
            ON CONFLICT (space_id, kind) DO UPDATE SET due = least(job.due, excluded.due), asked = least(job.asked, excluded.due)";
        let tx = self.begin().await?;
        tx.execute(sql, &[&self.id, &kind, &within.as_secs_f64()]).await?;
        if within.is_zero() {
            tx.execute("NOTIFY icecore_jobs", &[]).await?;
        }
        tx.commit().await
    }

    /// The time of the last record or event here; `None` if there is none.
    pub async fn last_activity(&self) -> Result<Option<jiff::Timestamp>> {
        let sql = "SELECT max(changed) FROM icecore.document WHERE space_id = $1 AND length > 0 AND (path = 'memory/ledger.jsonl' \
            OR path >= 'memory/messages/' AND path < 'memory/messages0' OR path >= 'memory/snapshots/' AND path < 'memory/snapshots0')";
        let tx = self.begin_reading().await?;
        let row = tx.query_one(sql, &[&self.id]).await?;
        tx.commit().await?;
        Ok(row.get(0))
    }

    /// A number that changes with every write to any document of the space.
    pub async fn documents_fingerprint(&self) -> Result<i64> {
        let tx = self.begin_reading().await?;
        let row = tx.query_one(FINGERPRINT_SQL, &[&self.id]).await?;
        tx.commit().await?;
        Ok(row.get(0))
    }
}
