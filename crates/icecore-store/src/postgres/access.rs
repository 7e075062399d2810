//! Access control of a database: tokens, quotas and the audit log.
//!
//! Spaces cannot read these tables. Transactions that have named no space query them through
//! functions with one purpose each. This module does not decide what a token permits.

use std::sync::Arc;

use icecore_domain::hash::Hash;
use jiff::Timestamp;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::{Postgres, Tx, space_id};
use crate::Result;

/// What is stored about a token; never the token itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessToken {
    pub id: String,
    /// The space it gives access to, with those below.
    pub space: String,
    /// The purpose, in a person's words.
    pub label: String,
    /// Its permissions: read, write, admin, proxy.
    pub scopes: Vec<String>,
    pub created: Timestamp,
    pub expires: Option<Timestamp>,
    pub revoked: Option<Timestamp>,
    /// The last use, to the minute.
    pub last_used: Option<Timestamp>,
}

/// What a presented token permits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenGrant {
    pub id: String,
    /// The space it gives access to, with those below.
    pub space: String,
    pub scopes: Vec<String>,
    pub expires: Option<Timestamp>,
}

/// An audited action: who did what, where; never the content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditEvent {
    pub at: Timestamp,
    pub space: String,
    /// The id of the token used.
    pub token: String,
    /// api, chat, mcp or cli.
    pub interface: String,
    /// The caller, as far as known.
    pub who: String,
    pub action: String,
    /// A path or an id.
    pub target: String,
    /// The HTTP status of the result.
    pub status: u16,
}

/// An entry of the audit log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditEntry {
    /// Increases with every entry.
    pub number: i64,
    pub event: AuditEvent,
}

/// A configured limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuotaLimit {
    AtMost(u64),
    /// No limit.
    Unlimited,
}

/// The limits of a space. Where a value is missing, that of the whole store applies.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Quota {
    /// Requests per minute and serving process.
    pub requests_per_minute: Option<QuotaLimit>,
    /// Stored messages per day, in UTC.
    pub messages_per_day: Option<QuotaLimit>,
    /// Bytes of documents.
    pub bytes: Option<QuotaLimit>,
    /// Model tokens read and written per day, in UTC.
    pub model_tokens_per_day: Option<QuotaLimit>,
}

/// The limits of a space and its usage.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct QuotaUsage {
    /// The space's own limits combined with those for all spaces.
    pub quota: Quota,
    /// Messages stored today.
    pub messages: u64,
    /// Model tokens used today.
    pub model_tokens: u64,
    /// Bytes of documents.
    pub bytes: u64,
}

/// The most tokens to count in one report: more must be a false report and could overflow the
/// counter.
const MAX_COUNTED_TOKENS: u64 = 1 << 40;

/// The result of a token rotation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RotationOutcome {
    /// The new token replaces the old one.
    Replaced,
    /// The old token was rotated before.
    AlreadyReplaced {
        /// The id of its replacement.
        new: String,
    },
    /// The old token was no longer valid.
    Expired,
}

/// The pseudo-space name for limits that apply to all spaces of a store.
pub fn all_spaces_of(home: &str) -> String {
    format!("{home}/")
}

fn limit_from_column(kept: Option<i64>) -> Option<QuotaLimit> {
    kept.map(|most| u64::try_from(most).map_or(QuotaLimit::Unlimited, QuotaLimit::AtMost))
}

fn limit_to_column(limit: Option<QuotaLimit>) -> Option<i64> {
    limit.map(|limit| match limit {
        QuotaLimit::AtMost(most) => i64::try_from(most).unwrap_or(i64::MAX),
        QuotaLimit::Unlimited => -1,
    })
}

fn count_column(row: &Row, at: usize) -> u64 {
    u64::try_from(row.get::<_, i64>(at)).unwrap_or(0)
}

impl Postgres {
    /// What the token with this hash permits; `None` if it is unknown or no longer valid. Updates
    /// its last use once a minute.
    pub async fn authenticate_token(&self, hash: Hash) -> Result<Option<TokenGrant>> {
        self.check_schema().await?;
        let tx = self.begin(None).await?;
        let sql = "SELECT token_id, space, scopes, expires FROM icecore.token_shown($1)";
        let found = tx.query_opt(sql, &[&hash.as_bytes().as_slice()]).await?;
        tx.commit().await?;
        Ok(found.map(|row| TokenGrant {
            id: row.get(0),
            space: row.get(1),
            scopes: row.get(2),
            expires: row.get(3),
        }))
    }

    /// Stores a token by its hash, and audits who created it.
    pub async fn add_token(
        self: &Arc<Self>,
        token: &AccessToken,
        hash: Hash,
        event: &AuditEvent,
    ) -> Result<()> {
        self.check_schema().await?;
        let place = space_id(&token.space)?;
        let tx = self.begin(Some(place)).await?;
        insert_token(&tx, place, token, hash).await?;
        self.record_audit(&tx, event).await?;
        tx.commit().await
    }

    /// All tokens ever created for a store, or for one of its spaces, newest first.
    pub async fn list_tokens(
        &self,
        home: &str,
        space: Option<&str>,
        most: i64,
    ) -> Result<Vec<AccessToken>> {
        self.query_tokens(home, space, None, most).await
    }

    /// The token with that id, if it belongs to that store.
    pub async fn find_token(&self, home: &str, id: &str) -> Result<Option<AccessToken>> {
        // PostgreSQL rejects NUL in text.
        if id.contains('\0') {
            return Ok(None);
        }
        Ok(self.query_tokens(home, None, Some(id), 1).await?.pop())
    }

    async fn query_tokens(
        &self,
        home: &str,
        space: Option<&str>,
        id: Option<&str>,
        most: i64,
    ) -> Result<Vec<AccessToken>> {
        self.check_schema().await?;
        let tx = self.begin(None).await?;
        let sql = "SELECT token_id, space, label, scopes, made, expires, revoked, used FROM icecore.tokens($1, $2, $3, $4)";
        let rows = tx.query(sql, &[&home, &space, &id, &most]).await?;
        tx.commit().await?;
        let token = |row: &Row| AccessToken {
            id: row.get(0),
            space: row.get(1),
            label: row.get(2),
            scopes: row.get(3),
            created: row.get(4),
            expires: row.get(5),
            revoked: row.get(6),
            last_used: row.get(7),
        };
        Ok(rows.iter().map(token).collect())
    }

    /// Revokes a token and audits it; false if it was not valid.
    pub async fn revoke_token(
        self: &Arc<Self>,
        token: &AccessToken,
        event: &AuditEvent,
    ) -> Result<bool> {
        let place = space_id(&token.space)?;
        let tx = self.begin(Some(place)).await?;
        let ended = expire_token(&tx, place, &token.id, None).await?;
        self.record_audit(&tx, event).await?;
        tx.commit().await?;
        Ok(ended)
    }

    /// Replaces a token by a new one in one transaction. The old one stays valid until `until`, or
    /// expires at once.
    pub async fn rotate_token(
        self: &Arc<Self>,
        old: &AccessToken,
        until: Option<Timestamp>,
        new: &AccessToken,
        hash: Hash,
        event: &AuditEvent,
    ) -> Result<RotationOutcome> {
        let place = space_id(&old.space)?;
        let tx = self.begin(Some(place)).await?;
        if !expire_token(&tx, place, &old.id, until).await? {
            return Ok(RotationOutcome::Expired);
        }
        // The old expiry is replaced by the grace period. Checked under the lock, so that of two
        // concurrent rotations the second finds the first.
        if let Some(new) = find_successor(&tx, place, old).await? {
            return Ok(RotationOutcome::AlreadyReplaced { new });
        }
        insert_token(&tx, place, new, hash).await?;
        self.record_audit(&tx, event).await?;
        tx.commit().await?;
        Ok(RotationOutcome::Replaced)
    }

    /// Erases a space with everything in it, tokens and quota included, and audits it; false if it
    /// does not exist.
    pub async fn erase_space_audited(
        self: &Arc<Self>,
        name: &str,
        event: &AuditEvent,
    ) -> Result<bool> {
        self.erase_with_audit(name, Some(event)).await
    }

    /// Records audit events in one batch, without waiting for the flush, so a crash can lose the
    /// last moments. One invalid event does not cause the rest of the batch to be dropped. Returns
    /// the number of invalid events.
    pub async fn record_audit_events(self: &Arc<Self>, deeds: &[AuditEvent]) -> Result<usize> {
        let is_text = |deed: &&AuditEvent| {
            ![&deed.token, &deed.interface, &deed.who, &deed.action, &deed.target]
                .iter()
                .any(|text| text.contains('\0'))
        };
        let fit = deeds
            .iter()
            .filter(is_text)
            .filter_map(|deed| Some((space_id(&deed.space).ok()?, deed)));
        let (places, fit): (Vec<Uuid>, Vec<&AuditEvent>) = fit.unzip();
        let unfit = deeds.len() - fit.len();
        if fit.is_empty() {
            return Ok(unfit);
        }
        let at: Vec<Timestamp> = fit.iter().map(|deed| deed.at).collect();
        let texts = |of: fn(&AuditEvent) -> &String| {
            fit.iter().map(|deed| of(deed).as_str()).collect::<Vec<_>>()
        };
        let (names, tokens, doors) =
            (texts(|deed| &deed.space), texts(|deed| &deed.token), texts(|deed| &deed.interface));
        let (who, verbs, what) =
            (texts(|deed| &deed.who), texts(|deed| &deed.action), texts(|deed| &deed.target));
        let status: Vec<i32> = fit.iter().map(|deed| i32::from(deed.status)).collect();
        let tx = self.begin(None).await?;
        tx.execute("SET LOCAL synchronous_commit = off", &[]).await?;
        let params: [&(dyn ToSql + Sync); 9] =
            [&places, &at, &names, &tokens, &doors, &who, &verbs, &what, &status];
        tx.execute("SELECT icecore.note_deeds($1, $2, $3, $4, $5, $6, $7, $8, $9)", &params)
            .await?;
        tx.commit().await?;
        Ok(unfit)
    }

    /// Audit entries since a time, newest first, of one space or of all spaces of a store.
    pub async fn audit_log(
        self: &Arc<Self>,
        home: &str,
        space: Option<&str>,
        since: Option<Timestamp>,
        most: i64,
    ) -> Result<Vec<AuditEntry>> {
        self.check_schema().await?;
        let place = space.map(space_id).transpose()?;
        let tx = self.begin(None).await?;
        let sql = "SELECT number, at, space, token, door, who, verb, what, status FROM icecore.deeds($1, $2, $3, $4)";
        let rows = tx.query(sql, &[&home, &place, &since, &most]).await?;
        tx.commit().await?;
        let noted = |row: &Row| AuditEntry {
            number: row.get(0),
            event: AuditEvent {
                at: row.get(1),
                space: row.get(2),
                token: row.get(3),
                interface: row.get(4),
                who: row.get(5),
                action: row.get(6),
                target: row.get(7),
                status: u16::try_from(row.get::<_, i32>(8)).unwrap_or(0),
            },
        };
        Ok(rows.iter().map(noted).collect())
    }

    /// The limits and the usage of a space.
    pub async fn quota_usage(self: &Arc<Self>, home: &str, space: &str) -> Result<QuotaUsage> {
        self.check_schema().await?;
        let (place, all) = (space_id(space)?, space_id(&all_spaces_of(home))?);
        let tx = self.begin(None).await?;
        let row = tx.query_one("SELECT * FROM icecore.standing($1, $2)", &[&place, &all]).await?;
        tx.commit().await?;
        let quota = Quota {
            requests_per_minute: limit_from_column(row.get(0)),
            messages_per_day: limit_from_column(row.get(1)),
            bytes: limit_from_column(row.get(2)),
            model_tokens_per_day: limit_from_column(row.get(3)),
        };
        Ok(QuotaUsage {
            quota,
            messages: count_column(&row, 4),
            model_tokens: count_column(&row, 5),
            bytes: count_column(&row, 6),
        })
    }

    /// The limits set for the space itself; for all spaces of a store, see [`all_spaces_of`].
    pub async fn space_quota(self: &Arc<Self>, space: &str) -> Result<Quota> {
        self.check_schema().await?;
        let place = space_id(space)?;
        let tx = self.begin(Some(place)).await?;
        let sql = "SELECT requests_per_minute, messages_per_day, bytes, model_tokens_per_day FROM icecore.quota WHERE space_id = $1";
        let found = tx.query_opt(sql, &[&place]).await?;
        tx.commit().await?;
        Ok(found.map_or_else(Quota::default, |row| Quota {
            requests_per_minute: limit_from_column(row.get(0)),
            messages_per_day: limit_from_column(row.get(1)),
            bytes: limit_from_column(row.get(2)),
            model_tokens_per_day: limit_from_column(row.get(3)),
        }))
    }

    /// Sets the limits of a space and audits it.
    pub async fn set_quota(
        self: &Arc<Self>,
        space: &str,
        quota: &Quota,
        event: &AuditEvent,
    ) -> Result<()> {
        self.check_schema().await?;
        let place = space_id(space)?;
        let tx = self.begin(Some(place)).await?;
        let sql = "INSERT INTO icecore.quota (space_id, requests_per_minute, messages_per_day, bytes, model_tokens_per_day) \
            VALUES ($1, $2, $3, $4, $5) ON CONFLICT (space_id) DO UPDATE SET requests_per_minute = excluded.requests_per_minute, \
            messages_per_day = excluded.messages_per_day, bytes = excluded.bytes, model_tokens_per_day = excluded.model_tokens_per_day";
        let own = [
            quota.requests_per_minute,
            quota.messages_per_day,
            quota.bytes,
            quota.model_tokens_per_day,
        ]
        .map(limit_to_column);
        tx.execute(sql, &[&place, &own[0], &own[1], &own[2], &own[3]]).await?;
        self.record_audit(&tx, event).await?;
        tx.commit().await
    }

    /// Adds to today's model tokens of spaces. One invalid space name does not keep the others from
    /// being counted. Returns the number of invalid names.
    pub async fn add_model_tokens(self: &Arc<Self>, spent: &[(String, u64)]) -> Result<usize> {
        let most = |many: u64| i64::try_from(many.min(MAX_COUNTED_TOKENS)).unwrap_or(i64::MAX);
        let fit = spent.iter().filter_map(|(name, many)| Some((space_id(name).ok()?, most(*many))));
        let (places, tokens): (Vec<Uuid>, Vec<i64>) = fit.unzip();
        let unfit = spent.len() - places.len();
        if places.is_empty() {
            return Ok(unfit);
        }
        let tx = self.begin(None).await?;
        tx.execute("SELECT icecore.spend($1, $2)", &[&places, &tokens]).await?;
        tx.commit().await?;
        Ok(unfit)
    }

    /// Records an audit event in the transaction of the action it describes.
    pub(super) async fn record_audit(self: &Arc<Self>, tx: &Tx, event: &AuditEvent) -> Result<()> {
        let place = space_id(&event.space)?;
        let sql = "INSERT INTO icecore.audit (space_id, at, space, token, door, who, verb, what, status) \
            VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)";
        let status = i32::from(event.status);
        tx.execute(
            sql,
            &[
                &place,
                &event.at,
                &event.space,
                &event.token,
                &event.interface,
                &event.who,
                &event.action,
                &event.target,
                &status,
            ],
        )
        .await?;
        Ok(())
    }
}

async fn insert_token(tx: &Tx, place: Uuid, token: &AccessToken, hash: Hash) -> Result<()> {
    let sql = "INSERT INTO icecore.token (space_id, token_id, hash, space, label, scopes, made, expires) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)";
    let hash = hash.as_bytes().as_slice();
    tx.execute(
        sql,
        &[
            &place,
            &token.id,
            &hash,
            &token.space,
            &token.label,
            &token.scopes,
            &token.created,
            &token.expires,
        ],
    )
    .await?;
    Ok(())
}

/// The token that replaced this one, from the audit log of its space.
async fn find_successor(tx: &Tx, place: Uuid, old: &AccessToken) -> Result<Option<String>> {
    // Clocks of two machines may differ, but not by a day.
    let sql = "SELECT split_part(what, ' ', 2) FROM icecore.audit WHERE space_id = $1 AND at > $2::timestamptz - interval '1 day' \
        AND verb = 'token rotate' AND split_part(what, ' ', 1) = $3 ORDER BY number DESC LIMIT 1";
    Ok(tx.query_opt(sql, &[&place, &old.created, &old.id]).await?.map(|row| row.get(0)))
}

/// Lets a token expire, now or at `until`; false if it was no longer valid.
async fn expire_token(tx: &Tx, place: Uuid, id: &str, until: Option<Timestamp>) -> Result<bool> {
    let sql = "UPDATE icecore.token SET expires = least(expires, $3), revoked = CASE WHEN $3::timestamptz IS NULL THEN now() END \
        WHERE space_id = $1 AND token_id = $2 AND revoked IS NULL AND (expires IS NULL OR expires > now())";
    Ok(tx.execute(sql, &[&place, &id, &until]).await? > 0)
}
