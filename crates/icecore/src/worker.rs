//! Workers run the nightly and reflection jobs of all spaces of a database. Workers on any number
//! of machines share the queue; a lease gives each job to one of them.
//!
//! A job that fails or panics counts as a failure of its space only: it is logged, retried with
//! growing delays, and the worker goes on with other spaces.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use futures_util::FutureExt as _;
use icecore_domain::sanitize;
use icecore_engine::converse::{self, Chats};
use icecore_store::postgres::jobs::{JobListener, LeasedJob, MAINTENANCE_JOB, NextRun};
use icecore_store::postgres::{Postgres, QuotaLimit, Space};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::bootstrap::{self, Models};
use crate::error::{AppError, Exit, error_message, is_transient};
use crate::store_location::StoreLocation;

/// The duration of a lease; it is renewed three times as often.
const LEASE_DURATION: Duration = Duration::from_secs(60);
/// How often the queue is polled, also without a notification.
const POLL_INTERVAL: Duration = Duration::from_secs(15);
/// A space without messages for this many days is skipped until the next one: all of its scheduled
/// jobs are done by then, and run again when it becomes active.
const ACTIVE_DAYS: i64 = 40;

/// What a worker did since it was started.
#[derive(Debug, Default)]
pub struct WorkerStats {
    /// Jobs that succeeded.
    pub done: AtomicU64,
    /// Jobs that failed.
    pub failed: AtomicU64,
    /// Failed jobs that may succeed later without a change.
    pub passing: AtomicU64,
    /// Jobs whose lease was lost to another worker.
    pub lost: AtomicU64,
}

/// Runs work and turns a panic into an error with its message.
async fn catch_panic<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    AssertUnwindSafe(work).catch_unwind().await.unwrap_or_else(|broken| {
        Err(anyhow!("it panicked, which is a bug: {}", panic_message(&*broken)))
    })
}

/// The message of a panic.
fn panic_message(broken: &(dyn Any + Send)) -> &str {
    let said = broken
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| broken.downcast_ref::<String>().map(String::as_str));
    said.unwrap_or("no message")
}

/// A worker for the spaces of a database.
pub struct Worker {
    home: Arc<Postgres>,
    models: Arc<Models>,
    name: String,
    tally: Arc<WorkerStats>,
    log: Arc<dyn Fn(&str) + Send + Sync>,
}

impl Worker {
    /// Creates a worker named after its machine and process.
    pub fn new(
        database: Arc<Postgres>,
        models: Arc<Models>,
        log: Arc<dyn Fn(&str) + Send + Sync>,
    ) -> Arc<Self> {
        let machine = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let name = format!("{machine}:{}", std::process::id());
        Arc::new(Self { home: database, models, name, tally: Arc::default(), log })
    }

    /// The counts so far.
    pub fn stats(&self) -> &Arc<WorkerStats> {
        &self.tally
    }

    /// Runs `at_once` jobs in parallel until `over` completes, then releases their leases.
    pub async fn run(
        self: &Arc<Self>,
        at_once: usize,
        over: impl Future<Output = ()>,
    ) -> Result<()> {
        let (ear, runtime) = (Arc::new(self.home.listen_for_jobs()?), Handle::current());
        let end = watch::Sender::new(false);
        let mut hands = JoinSet::new();
        for _ in 0..at_once.max(1) {
            let (worker, ear, runtime, mut end) =
                (self.clone(), ear.clone(), runtime.clone(), end.subscribe());
            // One thread per job: jobs compute for long stretches.
            hands.spawn_blocking(move || {
                runtime.block_on(async {
                    tokio::select! {
                        () = worker.work_loop(&ear) => {}
                        _ = end.wait_for(|end| *end) => {}
                    }
                });
            });
        }
        over.await;
        // An interrupted job is free when its lease expires, and leaves nothing half done.
        let _ = end.send(true);
        while hands.join_next().await.is_some() {}
        Ok(())
    }

    /// Runs jobs in a loop.
    async fn work_loop(&self, ear: &JobListener) {
        let mut trouble = String::new();
        loop {
            match catch_panic(self.run_next_job()).await {
                Ok(true) => continue,
                Ok(false) => trouble.clear(),
                Err(error) => {
                    let now = sanitize::one_line(&error_message(&error));
                    if now != trouble {
                        (self.log)(&now);
                    }
                    trouble = now;
                }
            }
            let _ = tokio::time::timeout(POLL_INTERVAL, ear.wait()).await;
        }
    }

    /// Runs everything that is due, one job after the other, and returns the number of jobs.
    pub async fn run_once(self: &Arc<Self>) -> Result<u64> {
        let before = self.tally.done.load(Ordering::Relaxed);
        while self.run_next_job().await? {}
        Ok(self.tally.done.load(Ordering::Relaxed) - before)
    }

    /// Runs the next job; false if none is due.
    async fn run_next_job(&self) -> Result<bool> {
        let Some(work) =
            self.home.acquire_job(&[MAINTENANCE_JOB], &self.name, LEASE_DURATION).await?
        else {
            return Ok(false);
        };
        let Some(space) = self.home.open_space(&work.space).await? else { return Ok(true) };
        let seen = space.documents_fingerprint().await?;
        let outcome = tokio::select! {
            outcome = catch_panic(self.maintain_within_quota(&space)) => Some(outcome),
            () = self.renew_lease_until_lost(&work) => None,
        };
        match outcome {
            Some(Ok(next)) => {
                self.home.finish_job(&work, next, seen).await?;
                self.tally.done.fetch_add(1, Ordering::Relaxed);
            }
            Some(Err(error)) => {
                let why = sanitize::one_line(&error_message(&error));
                (self.log)(&format!("{} in {}: {why}", work.kind, work.space));
                self.home.fail_job(&work, &why).await?;
                self.tally.failed.fetch_add(1, Ordering::Relaxed);
                if is_transient(&error) {
                    self.tally.passing.fetch_add(1, Ordering::Relaxed);
                }
            }
            None => {
                (self.log)(&format!(
                    "{} in {} was taken over by another worker",
                    work.kind, work.space
                ));
                self.tally.lost.fetch_add(1, Ordering::Relaxed);
            }
        }
        Ok(true)
    }

    /// Renews the lease while the job runs; returns when another worker holds it.
    async fn renew_lease_until_lost(&self, work: &LeasedJob) {
        loop {
            tokio::time::sleep(LEASE_DURATION / 3).await;
            // While the database is unreachable, no other worker can take the job either.
            if let Ok(false) = self.home.renew_job(work, LEASE_DURATION).await {
                return;
            }
        }
    }

    /// The model tokens that the space's quota leaves for today.
    async fn remaining_tokens(&self, space: &Space) -> Result<u64> {
        let home = space.name().split('/').next().unwrap_or_default();
        let standing = self.home.quota_usage(home, space.name()).await?;
        Ok(match standing.quota.model_tokens_per_day {
            Some(QuotaLimit::AtMost(most)) => most.saturating_sub(standing.model_tokens),
            _ => u64::MAX,
        })
    }

    /// Runs what is due in a space within its quota, and counts the tokens used.
    async fn maintain_within_quota(&self, space: &Arc<Space>) -> Result<NextRun> {
        let chats = bootstrap::open_chats(
            &StoreLocation::Space { database: self.home.clone(), name: space.name().to_owned() },
            None,
        )
        .await?;
        let memory = chats.memory();
        let day = memory.now().day();
        let before = memory.load_daily_spend(day).await?.total();
        let ceiling = before.saturating_add(self.remaining_tokens(space).await?);
        let outcome = self.maintain_space(space, &chats, ceiling).await;
        let spent = memory.load_daily_spend(day).await?.total().saturating_sub(before);
        if spent > 0 {
            self.home.add_model_tokens(&[(space.name().to_owned(), spent)]).await?;
        }
        outcome
    }

    async fn maintain_space(&self, space: &Space, chats: &Chats, ceiling: u64) -> Result<NextRun> {
        let memory = chats.memory();
        let (has_model, mut asking) =
            (self.models.summarizer.is_some(), self.models.model_budget());
        if let Some(asking) = &mut asking {
            asking.ceiling = asking.ceiling.min(ceiling);
        }
        for conversation in
            chats.pending_conversations(converse::REFLECTION_DAYS, has_model).await?
        {
            chats.reflect(&conversation, asking.as_ref(), false).await?;
        }
        let ran = memory.run_due_jobs(asking.as_ref(), &|_, _, _| {}).await?;
        if let Some(why) = ran.rolled.silent {
            return Err(AppError::new(Exit::TryLater, why.to_string()).into());
        }
        let said = space.last_activity().await?;
        let now = memory.now().timestamp();
        let is_quiet = said.is_none_or(|said| {
            now.duration_since(said) > jiff::SignedDuration::from_hours(24 * ACTIVE_DAYS)
        });
        if is_quiet {
            return Ok(NextRun::OnWrite);
        }
        let next = memory.upcoming_jobs(2)?.first().map(|next| next.at.timestamp());
        next.map(NextRun::At).context("the schedule has no job in the next two days")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use async_trait::async_trait;
    use icecore_engine::CaptureDefaults;
    use icecore_engine::llm::{Llm, ModelAnswer, ModelCheck, ModelError, ModelRequest};
    use icecore_engine::settings::Settings;
    use icecore_store::postgres::PostgresOptions;
    use icecore_store::testing::cluster::{Durability, TestCluster};
    use std::sync::Mutex;

    /// A model that panics.
    struct Poison;

    #[async_trait]
    impl Llm for Poison {
        fn name(&self) -> String {
            "poison".into()
        }

        async fn complete(
            &self,
            _: &ModelRequest,
            _: &(dyn Fn(usize) + Send + Sync),
        ) -> Result<ModelAnswer, ModelError> {
            panic!("no answer was thought of")
        }

        async fn check_abilities(&self) -> Vec<ModelCheck> {
            Vec::new()
        }
    }

    // K5
    #[tokio::test(flavor = "multi_thread")]
    async fn a_space_that_crashes_its_worker_does_not_block_other_spaces() {
        let cluster = TestCluster::start(Durability::Unflushed);
        let home = Postgres::for_url(&cluster.url(), PostgresOptions::default()).unwrap();
        home.migrate().await.unwrap();
        for name in ["a", "b", "c"] {
            home.create_space(name, "zone = \"UTC\"\n").await.unwrap();
        }
        // Only this space has something to summarize.
        let chats = bootstrap::open_chats(
            &StoreLocation::Space { database: home.clone(), name: "a".into() },
            None,
        )
        .await
        .unwrap();
        let line = |n: u32| {
            let text = format!("number {n}: we decided to paint the boat blue");
            serde_json::json!({ "conversation": "trip", "role": "user", "ts": format!("2026-01-05T09:{n:02}:00Z"), "text": text })
                .to_string()
        };
        chats
            .memory()
            .import_lines(&(0..12).map(line).collect::<Vec<_>>(), 1, &CaptureDefaults::default())
            .await
            .unwrap();
        let settings =
            Settings::read(None, &|_| None, &|path| std::fs::read_to_string(path)).unwrap();
        let models = Arc::new(Models {
            settings,
            place: Default::default(),
            summarizer: Some(Box::new(Poison)),
        });
        let said: Arc<Mutex<Vec<String>>> = Arc::default();
        let heard = said.clone();
        let worker = Worker::new(
            home.clone(),
            models,
            Arc::new(move |line: &str| heard.lock().unwrap().push(line.to_owned())),
        );
        let tally = worker.stats().clone();
        let over = async {
            for _ in 0..300 {
                if tally.done.load(Ordering::Relaxed) >= 2
                    && tally.failed.load(Ordering::Relaxed) >= 1
                {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        worker.run(1, over).await.unwrap();
        assert!(tally.failed.load(Ordering::Relaxed) >= 1, "{said:?}");
        assert_eq!(
            cluster.sql("SELECT count(*) FROM icecore.job WHERE epoch > 0 AND failures = 0"),
            "2",
            "{said:?}"
        );
        let told = said.lock().unwrap().join("\n");
        assert!(told.contains("tend in a:") && told.contains("no answer was thought of"), "{told}");
        let trouble = cluster.sql("SELECT trouble FROM icecore.job WHERE failures > 0");
        assert!(trouble.contains("no answer was thought of"), "{trouble}");
    }
}
