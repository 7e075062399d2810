//! Turn leases in a table, so that no connection is held while a model runs.
//!
//! The pending flag of an exchange is written in the same transaction as the exchange. Leases are
//! not flushed: a lost one only costs waiting.

use std::collections::BTreeSet;
use std::time::Duration;

use async_trait::async_trait;
use icecore_domain::record::Record;

use super::{Postgres, Space, Tx};
use crate::{AddReport, Result, TurnLeases};

#[async_trait]
impl TurnLeases for Space {
    async fn append_pending(&self, records: Vec<Record>, lease: Duration) -> Result<AddReport> {
        self.write_records(records, Some(lease)).await
    }

    async fn has_pending(&self, conversation: &str) -> Result<bool> {
        const SQL: &str = "SELECT FROM icecore.waiting WHERE space_id = $1 AND conversation = $2 AND awaited AND until > now()";
        let tx = self.begin_reading().await?;
        let found = tx.query_opt(SQL, &[&self.id, &conversation]).await?;
        tx.commit().await?;
        Ok(found.is_some())
    }

    async fn acquire(&self, conversation: &str, who: &str, lease: Duration) -> Result<Option<i64>> {
        const SQL: &str = "WITH quick AS (SELECT set_config('synchronous_commit', 'off', true)) \
            INSERT INTO icecore.waiting (space_id, conversation, announced, awaited, until, holder, held) \
            SELECT $1, $2, 0, false, now() + make_interval(secs => $4), $3, now() + make_interval(secs => $4) FROM quick \
            ON CONFLICT (space_id, conversation) DO UPDATE SET holder = excluded.holder, held = excluded.held, \
            until = CASE WHEN waiting.awaited THEN greatest(waiting.until, excluded.until) ELSE waiting.until END \
            WHERE waiting.holder IS NULL OR waiting.holder = excluded.holder OR waiting.held < now() RETURNING announced";
        let tx = self.begin().await?;
        let taken =
            tx.query_opt(SQL, &[&self.id, &conversation, &who, &lease.as_secs_f64()]).await?;
        tx.commit().await?;
        Ok(taken.map(|row| row.get(0)))
    }

    async fn release(
        &self,
        conversation: &str,
        who: &str,
        known: i64,
        again: Option<Duration>,
    ) -> Result<()> {
        // Exchanges announced meanwhile belong to other processes and stay pending.
        const DONE: &str = "WITH quick AS (SELECT set_config('synchronous_commit', 'off', true)) \
            DELETE FROM icecore.waiting USING quick WHERE space_id = $1 AND conversation = $2 AND holder = $3 AND announced = $4";
        const LEFT: &str = "WITH quick AS (SELECT set_config('synchronous_commit', 'off', true)) \
            UPDATE icecore.waiting SET holder = NULL, held = NULL, awaited = awaited AND announced <> $4, \
            until = CASE WHEN announced = $4 THEN now() + make_interval(secs => $5) ELSE until END FROM quick \
            WHERE space_id = $1 AND conversation = $2 AND holder = $3";
        let tx = self.begin().await?;
        let gone = match again {
            None => tx.execute(DONE, &[&self.id, &conversation, &who, &known]).await?,
            Some(_) => 0,
        };
        if gone == 0 {
            tx.execute(
                LEFT,
                &[&self.id, &conversation, &who, &known, &again.unwrap_or_default().as_secs_f64()],
            )
            .await?;
        }
        tx.commit().await
    }
}

impl Space {
    /// Sets the pending flag of these conversations in the transaction that writes their records.
    pub(super) async fn set_pending(
        &self,
        tx: &Tx,
        conversations: &BTreeSet<&str>,
        lease: Duration,
    ) -> Result<()> {
        // The retry time of a failure is not a pending exchange. In order, to prevent deadlocks
        // between announcements.
        const SQL: &str = "INSERT INTO icecore.waiting (space_id, conversation, announced, awaited, until) \
            SELECT $1, conversation, 1, true, now() + make_interval(secs => $3) FROM unnest($2::text[]) AS kept (conversation) ORDER BY conversation \
            ON CONFLICT (space_id, conversation) DO UPDATE SET announced = waiting.announced + 1, awaited = true, \
            until = CASE WHEN waiting.awaited THEN greatest(waiting.until, excluded.until) ELSE excluded.until END";
        let names: Vec<&str> = conversations.iter().copied().collect();
        tx.execute(SQL, &[&self.id, &names, &lease.as_secs_f64()]).await?;
        Ok(())
    }
}

impl Postgres {
    /// Conversations with pending exchanges that no process works on, of a space and the spaces
    /// below, at most `most`: names of space and conversation. Leases them, so that no other
    /// process gets them meanwhile.
    pub async fn acquire_abandoned(
        &self,
        home: &str,
        most: i64,
        lease: Duration,
    ) -> Result<Vec<(String, String)>> {
        let tx = self.begin(None).await?;
        let sql = "SELECT space, conversation FROM icecore.unremembered($1, $2, $3)";
        let rows = tx.query(sql, &[&home, &most, &lease.as_secs_f64()]).await?;
        tx.commit().await?;
        Ok(rows.iter().map(|row| (row.get(0), row.get(1))).collect())
    }
}
