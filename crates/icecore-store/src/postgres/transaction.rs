//! Transactions, and waiting for answers with a limit.

use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use deadpool_postgres::{Object, Pool};
use tokio::runtime::Handle;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Row, Statement};

use super::errors::map_query_error;
use crate::{Error, Result};

/// A transaction of a space, or of none. Dropping it without a commit rolls it back.
pub(super) struct Tx {
    pub(super) client: Option<Object>,
    pub(super) pool: Pool,
    pub(super) threads: Handle,
    /// How long to wait for an answer.
    pub(super) limit: Duration,
    /// An answer did not come in time: a later one would be taken for that of the next statement.
    pub(super) has_timed_out: AtomicBool,
}

impl Drop for Tx {
    fn drop(&mut self) {
        let Some(client) = self.client.take() else { return };
        if *self.has_timed_out.get_mut() {
            return discard_connection(&self.pool, client);
        }
        let (pool, limit) = (self.pool.clone(), self.limit);
        self.threads.spawn(async move {
            match tokio::time::timeout(limit, client.batch_execute("ROLLBACK")).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => drop(Object::take(client)),
                Err(_) => discard_connection(&pool, client),
            }
        });
    }
}

type SqlParams<'a> = &'a [&'a (dyn ToSql + Sync)];

type QueryResult<T> = std::result::Result<T, tokio_postgres::Error>;

impl Tx {
    pub(super) fn client(&self) -> &Object {
        match &self.client {
            Some(client) => client,
            None => {
                unreachable!("a transaction has its connection until it is committed or dropped")
            }
        }
    }

    /// Waits for an answer, at most `limit`.
    pub(super) async fn within_limit<T>(
        &self,
        answer: impl Future<Output = QueryResult<T>>,
    ) -> Result<T> {
        match within(&self.threads, self.limit, answer).await {
            Some(answer) => answer.map_err(map_query_error),
            None => {
                self.has_timed_out.store(true, Ordering::Relaxed);
                Err(timeout_error(self.limit))
            }
        }
    }

    pub(super) async fn prepare(&self, sql: &str) -> Result<Statement> {
        self.within_limit(self.client().prepare_cached(sql)).await
    }

    pub(super) async fn query(&self, sql: &str, params: SqlParams<'_>) -> Result<Vec<Row>> {
        let statement = self.prepare(sql).await?;
        self.within_limit(self.client().query(&statement, params)).await
    }

    pub(super) async fn query_one(&self, sql: &str, params: SqlParams<'_>) -> Result<Row> {
        let statement = self.prepare(sql).await?;
        self.within_limit(self.client().query_one(&statement, params)).await
    }

    pub(super) async fn query_opt(&self, sql: &str, params: SqlParams<'_>) -> Result<Option<Row>> {
        let statement = self.prepare(sql).await?;
        self.within_limit(self.client().query_opt(&statement, params)).await
    }

    /// Returns the number of affected rows.
    pub(super) async fn execute(&self, sql: &str, params: SqlParams<'_>) -> Result<u64> {
        let statement = self.prepare(sql).await?;
        self.within_limit(self.client().execute(&statement, params)).await
    }

    /// Commits. If the connection breaks or no answer comes, the outcome is unknown.
    pub(super) async fn commit(mut self) -> Result<()> {
        let Some(client) = self.client.take() else { return Ok(()) };
        match within(&self.threads, self.limit, client.batch_execute("COMMIT")).await {
            Some(Ok(())) => Ok(()),
            Some(Err(error)) => {
                drop(Object::take(client));
                Err(map_query_error(error))
            }
            None => {
                discard_connection(&self.pool, client);
                let why = format!(
                    "a commit got no answer for {} s; check what was stored, then try again",
                    self.limit.as_secs_f64()
                );
                Err(Error::unreachable("the database".into(), why))
            }
        }
    }
}

/// Awaits a future with a time limit. Uses the timer of our own runtime, because callers may have
/// none.
pub(super) async fn within<T>(
    threads: &Handle,
    limit: Duration,
    answer: impl Future<Output = T>,
) -> Option<T> {
    let waiting = {
        let _entered = threads.enter();
        tokio::time::timeout(limit, answer)
    };
    waiting.await.ok()
}

/// Closes a connection that does not answer. Idle ones lead to the same machine, so they are closed
/// too and reopened when needed.
pub(super) fn discard_connection(pool: &Pool, client: Object) {
    drop(Object::take(client));
    pool.retain(|_, _| false);
}

pub(super) fn timeout_error(limit: Duration) -> Error {
    Error::unreachable(
        "the database".into(),
        format!("it has not answered for {} s", limit.as_secs_f64()),
    )
}
