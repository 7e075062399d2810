//! Who may do what in a database, how much, and who did what: tokens, quotas, the audit log.
//!
//! None of it is a space's own to read: it is asked by transactions that have named no space,
//! through functions that answer one question each. What a token may do is not decided here.

use std::sync::Arc;

use icecore_domain::hash::Hash;
use jiff::Timestamp;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::{Postgres, Tx, id_of};
use crate::Result;

/// What is known of a token; never the token itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    /// What it is called by.
    pub id: String,
    /// The space that it is good for, with those beneath it.
    pub space: String,
    /// What it is for, in a person's words.
    pub label: String,
    /// What it may do: read, write, admin, proxy.
    pub scopes: Vec<String>,
    /// When it was made.
    pub made: Timestamp,
    /// Until when it is good.
    pub expires: Option<Timestamp>,
    /// Since when it is not any more.
    pub revoked: Option<Timestamp>,
    /// When it was last used, to the minute.
    pub used: Option<Timestamp>,
}

/// What a token that somebody shows is good for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown {
    /// What it is called by.
    pub id: String,
    /// The space that it is good for, with those beneath it.
    pub space: String,
    /// What it may do.
    pub scopes: Vec<String>,
    /// Until when.
    pub expires: Option<Timestamp>,
}

/// Something that was done: by whom, where, and what it was about; never what it said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deed {
    /// When.
    pub at: Timestamp,
    /// The space it was about.
    pub space: String,
    /// The token that was shown, by what it is called.
    pub token: String,
    /// The way in: api, chat, mcp, cli.
    pub door: String,
    /// Who it was, as far as is known.
    pub who: String,
    /// What they did, in a word.
    pub verb: String,
    /// With what: a path or an id.
    pub what: String,
    /// What came of it, as a status of HTTP.
    pub status: u16,
}

/// A deed in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Noted {
    /// Its number, which only grows.
    pub number: i64,
    /// What was done.
    pub deed: Deed,
}

/// A limit that somebody set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// So much.
    Most(u64),
    /// As much as it likes.
    None,
}

/// How much a space may do. Where nothing is set, what holds for all of them does.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Quota {
    /// Requests in a minute, for each process that serves it.
    pub requests_per_minute: Option<Limit>,
    /// Messages kept in a day of UTC.
    pub messages_per_day: Option<Limit>,
    /// Bytes of documents.
    pub bytes: Option<Limit>,
    /// Tokens that models read and write for it in a day of UTC.
    pub model_tokens_per_day: Option<Limit>,
}

/// How much a space may do and has done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Standing {
    /// How much it may do: its own limits over those of all.
    pub quota: Quota,
    /// Messages kept today.
    pub messages: u64,
    /// Tokens of models today.
    pub model_tokens: u64,
    /// Bytes of its documents.
    pub bytes: u64,
}

/// So many tokens of a model are counted at once at most: whoever says more does not count but
/// invent, and what is counted would run over.
const MOST_SPENT: u64 = 1 << 40;

/// What came of putting a token in the place of another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rotated {
    /// It is in its place.
    Now,
    /// Another one is already.
    Before {
        /// What that one is called by.
        new: String,
    },
    /// The other was not good any more.
    Over,
}

/// The name under which what holds for every space of a home is set.
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
    /// What the token with this hash is good for; `None` if there is none, or not any more. That it
    /// was used is noted, once a minute.
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

    /// Keeps a token, of which only the hash is given, and notes who made it.
    pub async fn add_token(self: &Arc<Self>, token: &Token, hash: Hash, deed: &Deed) -> Result<()> {
        self.check().await?;
        let place = id_of(&token.space)?;
        let tx = self.begin(Some(place)).await?;
        keep_token(&tx, place, token, hash).await?;
        self.keep_deed(&tx, deed).await?;
        tx.commit().await
    }

    /// The tokens of a home that there ever were, those of one of its spaces if one is named, the
    /// newest first.
    pub async fn tokens(&self, home: &str, space: Option<&str>, most: i64) -> Result<Vec<Token>> {
        self.known_tokens(home, space, None, most).await
    }

    /// The token of that id, if it is one of that home.
    pub async fn token(&self, home: &str, id: &str) -> Result<Option<Token>> {
        // The database would refuse to look for it.
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

    /// Lets a token be good no longer, and notes who did; false if it was not.
    pub async fn revoke_token(self: &Arc<Self>, token: &Token, deed: &Deed) -> Result<bool> {
        let place = id_of(&token.space)?;
        let tx = self.begin(Some(place)).await?;
        let ended = end_token(&tx, place, &token.id, None).await?;
        self.keep_deed(&tx, deed).await?;
        tx.commit().await?;
        Ok(ended)
    }

    /// Puts a token in the place of another, which is good until then, or no longer at all; both or
    /// neither.
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
        // How long it was good for is not known any more: its end is that of its grace. Asked after
        // it is held, so that of two who rotate it at once the second finds the first.
        if let Some(new) = rotated_to(&tx, place, old).await? {
            return Ok(Rotated::Before { new });
        }
        keep_token(&tx, place, new, hash).await?;
        self.keep_deed(&tx, deed).await?;
        tx.commit().await?;
        Ok(Rotated::Now)
    }

    /// Takes a space away with everything in it, its tokens and its quota too, and notes who did;
    /// false if there is none.
    pub async fn erase_as(self: &Arc<Self>, name: &str, deed: &Deed) -> Result<bool> {
        self.erase_noting(name, Some(deed)).await
    }

    /// Notes what was done, in one go. The machine may lose the last moments of it, and nothing
    /// else waits for it. What cannot be noted because of what it says itself keeps nothing else
    /// from being noted: so many of them there were.
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

    /// What was done since then, the newest first: in one space of a home, or in all of them.
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

    /// How much a space of a home may do and has done.
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

    /// What is set for a space itself; for all of a home, see [`all_of`].
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

    /// Likewise, to set it, and notes who did.
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

    /// Counts what models have read and written for spaces today. What is said of something that
    /// can be no space keeps nothing else from being counted: so many of them there were.
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

    /// Notes a deed together with what was done: in the log of the space that the transaction has
    /// named.
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

/// The token that was put in the place of this one, as its space's log says.
async fn rotated_to(tx: &Tx, place: Uuid, old: &Token) -> Result<Option<String>> {
    // Clocks of two machines may differ, but not by a day.
    let sql = "SELECT split_part(what, ' ', 2) FROM icecore.audit WHERE space_id = $1 AND at > $2::timestamptz - interval '1 day' \
        AND verb = 'token rotate' AND split_part(what, ' ', 1) = $3 ORDER BY number DESC LIMIT 1";
    Ok(tx.maybe(sql, &[&place, &old.made, &old.id]).await?.map(|row| row.get(0)))
}

/// Ends a token, at once or at that moment; false if it was not good any more.
async fn end_token(tx: &Tx, place: Uuid, id: &str, until: Option<Timestamp>) -> Result<bool> {
    let sql = "UPDATE icecore.token SET expires = least(expires, $3), revoked = CASE WHEN $3::timestamptz IS NULL THEN now() END \
        WHERE space_id = $1 AND token_id = $2 AND revoked IS NULL AND (expires IS NULL OR expires > now())";
    Ok(tx.run(sql, &[&place, &id, &until]).await? > 0)
}
