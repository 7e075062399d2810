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

use super::{Postgres, Tx, id_of};
use crate::Result;

/// What is stored about a token; never the token itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    pub id: String,
    /// The space it gives access to, with those below.
    pub space: String,
    /// The purpose, in a person's words.
    pub label: String,
    /// Its permissions: read, write, admin, proxy.
    pub scopes: Vec<String>,
    pub made: Timestamp,
    pub expires: Option<Timestamp>,
    pub revoked: Option<Timestamp>,
    /// The last use, to the minute.
    pub used: Option<Timestamp>,
}

/// What a presented token permits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown {
    pub id: String,
    /// The space it gives access to, with those below.
    pub space: String,
    pub scopes: Vec<String>,
    pub expires: Option<Timestamp>,
}

/// An audited action: who did what, where; never the content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deed {
    pub at: Timestamp,
    pub space: String,
    /// The id of the token used.
    pub token: String,
    /// api, chat, mcp or cli.
    pub door: String,
    /// The caller, as far as known.
    pub who: String,
    pub verb: String,
    /// A path or an id.
    pub what: String,
    /// The HTTP status of the result.
    pub status: u16,
}

/// An entry of the audit log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Noted {
    /// Increases with every entry.
    pub number: i64,
    pub deed: Deed,
}

/// A configured limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    Most(u64),
    /// No limit.
    None,
}

/// The limits of a space. Where a value is missing, that of the whole store applies.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Quota {
    /// Requests per minute and serving process.
    pub requests_per_minute: Option<Limit>,
    /// Stored messages per day, in UTC.
    pub messages_per_day: Option<Limit>,
    /// Bytes of documents.
    pub bytes: Option<Limit>,
    /// Model tokens read and written per day, in UTC.
    pub model_tokens_per_day: Option<Limit>,
}

/// The limits of a space and its usage.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Standing {
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
const MOST_SPENT: u64 = 1 << 40;

/// The result of a token rotation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rotated {
    /// The new token replaces the old one.
    Now,
    /// The old token was rotated before.
    Before {
        /// The id of its replacement.
        new: String,
    },
    /// The old token was no longer valid.
    Over,
}

/// The pseudo-space name for limits that apply to all spaces of a store.
pub fn all_of(home: &str) -> String {
    format!("{home}/")
}

fn limit(kept: Option<i64>) -> Option<Limit> {
    kept.map(|most| u64::try_from(most).map_or(Limit::None, Limit::Most))
}

fn kept(limit: Option<Limit>) -> Option<i64> {
    limit.map(|limit| match limit {
        Limit::Most(most) => i64::try_from(most).unwrap_or(i64::MAX),
        Limit::None => -1,
    })
}

fn count(row: &Row, at: usize) -> u64 {
    u64::try_from(row.get::<_, i64>(at)).unwrap_or(0)
}

impl Postgres {
    /// What the token with this hash permits; `None` if it is unknown or no longer valid. Updates
    /// its last use once a minute.
    pub async fn token_shown(&self, hash: Hash) -> Result<Option<Shown>> {
        self.check().await?;
        let tx = self.begin(None).await?;
        let sql = "SELECT token_id, space, scopes, expires FROM icecore.token_shown($1)";
        let found = tx.maybe(sql, &[&hash.bytes().as_slice()]).await?;
        tx.commit().await?;
        Ok(found.map(|row| Shown {
            id: row.get(0),
            space: row.get(1),
            scopes: row.get(2),
            expires: row.get(3),
        }))
    }

    /// Stores a token by its hash, and audits who created it.
    pub async fn add_token(self: &Arc<Self>, token: &Token, hash: Hash, deed: &Deed) -> Result<()> {
        self.check().await?;
        let place = id_of(&token.space)?;
        let tx = self.begin(Some(place)).await?;
        keep_token(&tx, place, token, hash).await?;
        self.keep_deed(&tx, deed).await?;
        tx.commit().await
    }

    /// All tokens ever created for a store, or for one of its spaces, newest first.
    pub async fn tokens(&self, home: &str, space: Option<&str>, most: i64) -> Result<Vec<Token>> {
        self.known_tokens(home, space, None, most).await
    }

    /// The token with that id, if it belongs to that store.
    pub async fn token(&self, home: &str, id: &str) -> Result<Option<Token>> {
        // PostgreSQL rejects NUL in text.
        if id.contains('\0') {
            return Ok(None);
        }
        Ok(self.known_tokens(home, None, Some(id), 1).await?.pop())
    }

    async fn known_tokens(
        &self,
        home: &str,
        space: Option<&str>,
        id: Option<&str>,
        most: i64,
    ) -> Result<Vec<Token>> {
        self.check().await?;
        let tx = self.begin(None).await?;
        let sql = "SELECT token_id, space, label, scopes, made, expires, revoked, used FROM icecore.tokens($1, $2, $3, $4)";
        let rows = tx.rows(sql, &[&home, &space, &id, &most]).await?;
        tx.commit().await?;
        let token = |row: &Row| Token {
            id: row.get(0),
            space: row.get(1),
            label: row.get(2),
            scopes: row.get(3),
            made: row.get(4),
            expires: row.get(5),
            revoked: row.get(6),
            used: row.get(7),
        };
        Ok(rows.iter().map(token).collect())
    }

    /// Revokes a token and audits it; false if it was not valid.
    pub async fn revoke_token(self: &Arc<Self>, token: &Token, deed: &Deed) -> Result<bool> {
        let place = id_of(&token.space)?;
        let tx = self.begin(Some(place)).await?;
        let ended = end_token(&tx, place, &token.id, None).await?;
        self.keep_deed(&tx, deed).await?;
        tx.commit().await?;
        Ok(ended)
    }

    /// Replaces a token by a new one in one transaction. The old one stays valid until `until`, or
    /// expires at once.
    pub async fn rotate_token(
        self: &Arc<Self>,
        old: &Token,
        until: Option<Timestamp>,
        new: &Token,
        hash: Hash,
        deed: &Deed,
    ) -> Result<Rotated> {
        let place = id_of(&old.space)?;
        let tx = self.begin(Some(place)).await?;
        if !end_token(&tx, place, &old.id, until).await? {
            return Ok(Rotated::Over);
        }
        // The old expiry is replaced by the grace period. Checked under the lock, so that of two
        // concurrent rotations the second finds the first.
        if let Some(new) = rotated_to(&tx, place, old).await? {
            return Ok(Rotated::Before { new });
        }
        keep_token(&tx, place, new, hash).await?;
        self.keep_deed(&tx, deed).await?;
        tx.commit().await?;
        Ok(Rotated::Now)
    }

    /// Erases a space with everything in it, tokens and quota included, and audits it; false if it
    /// does not exist.
    pub async fn erase_as(self: &Arc<Self>, name: &str, deed: &Deed) -> Result<bool> {
        self.erase_noting(name, Some(deed)).await
    }

    /// Records audit events in one batch, without waiting for the flush, so a crash can lose the
    /// last moments. One invalid event does not cause the rest of the batch to be dropped. Returns
    /// the number of invalid events.
    pub async fn note_deeds(self: &Arc<Self>, deeds: &[Deed]) -> Result<usize> {
        let is_text = |deed: &&Deed| {
            ![&deed.token, &deed.door, &deed.who, &deed.verb, &deed.what]
                .iter()
                .any(|text| text.contains('\0'))
        };
        let fit =
            deeds.iter().filter(is_text).filter_map(|deed| Some((id_of(&deed.space).ok()?, deed)));
        let (places, fit): (Vec<Uuid>, Vec<&Deed>) = fit.unzip();
        let unfit = deeds.len() - fit.len();
        if fit.is_empty() {
            return Ok(unfit);
        }
        let at: Vec<Timestamp> = fit.iter().map(|deed| deed.at).collect();
        let texts =
            |of: fn(&Deed) -> &String| fit.iter().map(|deed| of(deed).as_str()).collect::<Vec<_>>();
        let (names, tokens, doors) =
            (texts(|deed| &deed.space), texts(|deed| &deed.token), texts(|deed| &deed.door));
        let (who, verbs, what) =
            (texts(|deed| &deed.who), texts(|deed| &deed.verb), texts(|deed| &deed.what));
        let status: Vec<i32> = fit.iter().map(|deed| i32::from(deed.status)).collect();
        let tx = self.begin(None).await?;
        tx.run("SET LOCAL synchronous_commit = off", &[]).await?;
        let params: [&(dyn ToSql + Sync); 9] =
            [&places, &at, &names, &tokens, &doors, &who, &verbs, &what, &status];
        tx.run("SELECT icecore.note_deeds($1, $2, $3, $4, $5, $6, $7, $8, $9)", &params).await?;
        tx.commit().await?;
        Ok(unfit)
    }

    /// Audit entries since a time, newest first, of one space or of all spaces of a store.
    pub async fn deeds(
        self: &Arc<Self>,
        home: &str,
        space: Option<&str>,
        since: Option<Timestamp>,
        most: i64,
    ) -> Result<Vec<Noted>> {
        self.check().await?;
        let place = space.map(id_of).transpose()?;
        let tx = self.begin(None).await?;
        let sql = "SELECT number, at, space, token, door, who, verb, what, status FROM icecore.deeds($1, $2, $3, $4)";
        let rows = tx.rows(sql, &[&home, &place, &since, &most]).await?;
        tx.commit().await?;
        let noted = |row: &Row| Noted {
            number: row.get(0),
            deed: Deed {
                at: row.get(1),
                space: row.get(2),
                token: row.get(3),
                door: row.get(4),
                who: row.get(5),
                verb: row.get(6),
                what: row.get(7),
                status: u16::try_from(row.get::<_, i32>(8)).unwrap_or(0),
            },
        };
        Ok(rows.iter().map(noted).collect())
    }

    /// The limits and the usage of a space.
    pub async fn standing(self: &Arc<Self>, home: &str, space: &str) -> Result<Standing> {
        self.check().await?;
        let (place, all) = (id_of(space)?, id_of(&all_of(home))?);
        let tx = self.begin(None).await?;
        let row = tx.one("SELECT * FROM icecore.standing($1, $2)", &[&place, &all]).await?;
        tx.commit().await?;
        let quota = Quota {
            requests_per_minute: limit(row.get(0)),
            messages_per_day: limit(row.get(1)),
            bytes: limit(row.get(2)),
            model_tokens_per_day: limit(row.get(3)),
        };
        Ok(Standing {
            quota,
            messages: count(&row, 4),
            model_tokens: count(&row, 5),
            bytes: count(&row, 6),
        })
    }

    /// The limits set for the space itself; for all spaces of a store, see [`all_spaces_of`].
    pub async fn quota(self: &Arc<Self>, space: &str) -> Result<Quota> {
        self.check().await?;
        let place = id_of(space)?;
        let tx = self.begin(Some(place)).await?;
        let sql = "SELECT requests_per_minute, messages_per_day, bytes, model_tokens_per_day FROM icecore.quota WHERE space_id = $1";
        let found = tx.maybe(sql, &[&place]).await?;
        tx.commit().await?;
        Ok(found.map_or_else(Quota::default, |row| Quota {
            requests_per_minute: limit(row.get(0)),
            messages_per_day: limit(row.get(1)),
            bytes: limit(row.get(2)),
            model_tokens_per_day: limit(row.get(3)),
        }))
    }

    /// Sets the limits of a space and audits it.
    pub async fn set_quota(
        self: &Arc<Self>,
        space: &str,
        quota: &Quota,
        deed: &Deed,
    ) -> Result<()> {
        self.check().await?;
        let place = id_of(space)?;
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
        .map(kept);
        tx.run(sql, &[&place, &own[0], &own[1], &own[2], &own[3]]).await?;
        self.keep_deed(&tx, deed).await?;
        tx.commit().await
    }

    /// Adds to today's model tokens of spaces. One invalid space name does not keep the others from
    /// being counted. Returns the number of invalid names.
    pub async fn spend(self: &Arc<Self>, spent: &[(String, u64)]) -> Result<usize> {
        let most = |many: u64| i64::try_from(many.min(MOST_SPENT)).unwrap_or(i64::MAX);
        let fit = spent.iter().filter_map(|(name, many)| Some((id_of(name).ok()?, most(*many))));
        let (places, tokens): (Vec<Uuid>, Vec<i64>) = fit.unzip();
        let unfit = spent.len() - places.len();
        if places.is_empty() {
            return Ok(unfit);
        }
        let tx = self.begin(None).await?;
        tx.run("SELECT icecore.spend($1, $2)", &[&places, &tokens]).await?;
        tx.commit().await?;
        Ok(unfit)
    }

    /// Records an audit event in the transaction of the action it describes.
    pub(super) async fn keep_deed(self: &Arc<Self>, tx: &Tx, deed: &Deed) -> Result<()> {
        let place = id_of(&deed.space)?;
        let sql = "INSERT INTO icecore.audit (space_id, at, space, token, door, who, verb, what, status) \
            VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)";
        let status = i32::from(deed.status);
        tx.run(
            sql,
            &[
                &place,
                &deed.at,
                &deed.space,
                &deed.token,
                &deed.door,
                &deed.who,
                &deed.verb,
                &deed.what,
                &status,
            ],
        )
        .await?;
        Ok(())
    }
}

async fn keep_token(tx: &Tx, place: Uuid, token: &Token, hash: Hash) -> Result<()> {
    let sql = "INSERT INTO icecore.token (space_id, token_id, hash, space, label, scopes, made, expires) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)";
    let hash = hash.bytes().as_slice();
    tx.run(
        sql,
        &[
            &place,
            &token.id,
            &hash,
            &token.space,
            &token.label,
            &token.scopes,
            &token.made,
            &token.expires,
        ],
    )
    .await?;
    Ok(())
}

/// The token that replaced this one, from the audit log of its space.
async fn rotated_to(tx: &Tx, place: Uuid, old: &Token) -> Result<Option<String>> {
    // Clocks of two machines may differ, but not by a day.
    let sql = "SELECT split_part(what, ' ', 2) FROM icecore.audit WHERE space_id = $1 AND at > $2::timestamptz - interval '1 day' \
        AND verb = 'token rotate' AND split_part(what, ' ', 1) = $3 ORDER BY number DESC LIMIT 1";
    Ok(tx.maybe(sql, &[&place, &old.made, &old.id]).await?.map(|row| row.get(0)))
}

/// Lets a token expire, now or at `until`; false if it was no longer valid.
async fn end_token(tx: &Tx, place: Uuid, id: &str, until: Option<Timestamp>) -> Result<bool> {
    let sql = "UPDATE icecore.token SET expires = least(expires, $3), revoked = CASE WHEN $3::timestamptz IS NULL THEN now() END \
        WHERE space_id = $1 AND token_id = $2 AND revoked IS NULL AND (expires IS NULL OR expires > now())";
    Ok(tx.run(sql, &[&place, &id, &until]).await? > 0)
}
