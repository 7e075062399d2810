//! What is to be done in spaces, and who does it: rows that workers take for some time.
//!
//! The database's clock counts, so that workers need not agree on theirs. A worker that dies lets
//! its row go free by itself; one that was only slow finds that the row has been taken again, and
//! stops. What jobs do is worked out from what is kept, so doing one again does nothing twice.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio_postgres::AsyncMessage;

use super::{Postgres, Space, id_of, said};
use crate::{Error, Result};

/// Everything that a space's timetable asks for.
pub const TEND: &str = "tend";

/// What all documents of a space look like, in a number. By every one of them: the greatest version
/// does not tell that a smaller one, given out before, is written after.
const LOOK: &str = "SELECT coalesce(bit_xor(hashtextextended(path, version)), 0) FROM icecore.document WHERE space_id = $1";
/// So much is kept of what went wrong.
const TROUBLE_BYTES: usize = 500;

/// Some work that was taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Work {
    /// The space it is to be done in.
    pub space: String,
    /// What kind of work, such as [`TEND`].
    pub kind: String,
    /// Another number whenever it is taken, greater than those before.
    pub epoch: i64,
    /// How often it failed since it last went well.
    pub failures: i32,
}

/// How much there is to do of a kind.
#[derive(Debug, Clone, PartialEq)]
pub struct Backlog {
    /// What kind of work.
    pub kind: String,
    /// So many spaces wait.
    pub waiting: i64,
    /// So many are being worked on.
    pub at_work: i64,
    /// So many failed when they were last tried.
    pub failing: i64,
    /// So long the first of them has waited, in seconds.
    pub oldest_seconds: f64,
}

/// When there is more to do for a space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Then.
    At(jiff::Timestamp),
    /// When something is written.
    Asleep,
}

impl Postgres {
    /// Takes the work that has waited longest, for so long; `None` if nothing waits.
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

    /// Says that somebody is still at it; false if it was taken by somebody else meanwhile.
    pub async fn keep(self: &Arc<Self>, work: &Work, lease: Duration) -> Result<bool> {
        let sql = "UPDATE icecore.job SET until = now() + $4 * interval '1 second' WHERE space_id = $1 AND kind = $2 AND epoch = $3";
        let space = id_of(&work.space)?;
        let tx = self.begin(Some(space)).await?;
        let kept = tx.run(sql, &[&space, &work.kind, &work.epoch, &lease.as_secs_f64()]).await?;
        tx.commit().await?;
        Ok(kept == 1)
    }

    /// It is done. False if it was taken by somebody else meanwhile, whose word counts then.
    ///
    /// A space falls asleep only if its documents are what they were when they were `seen`; else it
    /// is due again at once.
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
            // Somebody who is in the middle of writing has found it awake and will not wake it:
            // what they write is waited for. Whoever comes later finds it asleep.
            tx.run("SELECT icecore.enter_alone()", &[]).await?;
        }
        let kept = tx.run(&sql, &[&space, &work.kind, &work.epoch, &at, &seen]).await?;
        tx.commit().await?;
        Ok(kept == 1)
    }

    /// It failed, and is tried again later, each time later.
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

    /// How much there is to do.
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

    /// Tells whoever waits, on whichever machine, that there is something to do.
    pub fn ear(self: &Arc<Self>) -> Result<Ear> {
        let (heard, home) = (Arc::new(Notify::new()), Arc::downgrade(self));
        let (config, tls, told) = (self.config.clone(), super::tls_or_error()?, heard.clone());
        let listening = self.threads()?.spawn(async move {
            let mut pause = super::FIRST_PAUSE;
            while home.strong_count() > 0 {
                if listen(&config, tls.clone(), &told).await.is_ok() {
                    pause = super::FIRST_PAUSE;
                }
                // What was said while nobody listened is found by looking.
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

/// Hears that there is something to do.
pub struct Ear {
    heard: Arc<Notify>,
    listening: tokio::task::JoinHandle<()>,
}

impl Ear {
    /// Returns when something was said, or when it may have been.
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
    /// Asks for work here, at the latest in so long. What is asked for already is done then, or
    /// sooner.
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

    /// When something was last said or learnt here; `None` if nothing ever was.
    pub async fn last_heard(&self) -> Result<Option<jiff::Timestamp>> {
        let sql = "SELECT max(changed) FROM icecore.document WHERE space_id = $1 AND length > 0 AND (path = 'memory/ledger.jsonl' \
            OR path >= 'memory/messages/' AND path < 'memory/messages0' OR path >= 'memory/snapshots/' AND path < 'memory/snapshots0')";
        let tx = self.begin_reading().await?;
        let row = tx.one(sql, &[&self.id]).await?;
        tx.commit().await?;
        Ok(row.get(0))
    }

    /// What its documents look like: another number after every write to any of them.
    pub async fn outline(&self) -> Result<i64> {
        let tx = self.begin_reading().await?;
        let row = tx.one(LOOK, &[&self.id]).await?;
        tx.commit().await?;
        Ok(row.get(0))
    }
}
