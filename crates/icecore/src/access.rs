//! Access to memory in a database: issued tokens, quotas of each space and the audit log.
//!
//! Lookups are cached for a few seconds: for that long a revoked token may still work and a process
//! may use an old quota. Each process counts requests per minute for itself; the database counts
//! everything else.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Result, bail};
use icecore_domain::hash::Hash;
use icecore_engine::clock::Clock;
use icecore_store::postgres::{Deed, Limit, Postgres, Quota, Rotated, Standing, Token, all_of};
use jiff::{SignedDuration, Timestamp};
use tokio::sync::{Semaphore, mpsc, oneshot};

use crate::api::call;
use crate::error::{Exit, Stop};
use crate::http::Log;
use crate::place::Place;
use crate::rights::{Grant, Right, Rights};

/// How long a lookup is cached.
const BELIEVED_MS: u64 = 5_000;
/// The most tokens, and the most spaces, in a cache.
const KNOWN: usize = 10_000;
/// The most lookups of unknown tokens at once, so that made-up tokens leave database connections to
/// other callers.
const LOOKED_UP: usize = 2;
/// The most lookups of unknown tokens that wait; further ones are rejected with "try again".
const LINED_UP: usize = 64;
/// How long they wait.
const IN_LINE: Duration = Duration::from_secs(5);
/// The shortest time between two log lines about failed lookups.
const TOLD_MS: u64 = 5_000;
/// The first characters of every token, so that secret scanners find it.
pub const PREFIX: &str = "icecore_";
/// The random part of a token, in bytes.
const SECRET_BYTES: usize = 32;
/// The length of the audit queue. When it is full, events are lost, which is logged.
const WAITING: usize = 20_000;
/// The most audit events in one write.
const AT_ONCE: usize = 1_000;
/// How long the writer waits for more events.
const LINGER: Duration = Duration::from_millis(200);
/// The pause between two attempts to write the same batch.
const AGAIN: Duration = Duration::from_secs(1);
const TRIES: usize = 30;
const MOST_LABEL_BYTES: usize = 200;

/// What a request consumes, and so which quotas apply to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Takes {
    /// Only server time.
    Time,
    /// Storage: something may be stored.
    Room,
    /// Storage and model tokens.
    Model,
}

/// A space has used up a quota.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Over {
    /// The name of the limit.
    pub limit: &'static str,
    /// Its value.
    pub most: u64,
    /// Seconds until it is reset; `None` if waiting does not help.
    pub seconds: Option<u64>,
}

impl Over {
    /// The message for the caller.
    pub fn said(&self) -> String {
        let Self { limit, most, seconds } = self;
        match seconds {
            Some(seconds) => {
                format!("quota exceeded: {limit} is {most} for this space; retry in {seconds} s")
            }
            None => format!(
                "quota exceeded: {limit} is {most} for this space; forget something or ask an admin to raise the limit"
            ),
        }
    }
}

/// Why a request of a space is rejected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotAdmitted {
    Over(Over),
    /// The quota was never looked up here, and cannot be now.
    UnknownQuota,
}

impl fmt::Display for NotAdmitted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Over(over) => f.write_str(&over.said()),
            Self::UnknownQuota => f.write_str(
                "the quota of this space cannot be read from the database now; retry in a moment",
            ),
        }
    }
}

impl From<Over> for NotAdmitted {
    fn from(over: Over) -> Self {
        Self::Over(over)
    }
}

/// Requests per minute, as a bucket that refills over time.
struct Bucket {
    filled: f64,
    at: u64,
}

impl Bucket {
    /// Takes one request; if there is none, the seconds until there is one.
    fn take(&mut self, now: u64, most: u64) -> Option<u64> {
        #[expect(clippy::cast_precision_loss, reason = "a rate")]
        let (full, passed) = (most as f64, now.saturating_sub(self.at) as f64);
        self.filled = (self.filled + full * passed / 60_000.0).min(full.max(0.0));
        self.at = now;
        if self.filled >= 1.0 {
            self.filled -= 1.0;
            return None;
        }
        if most == 0 {
            return Some(60);
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "at most a minute"
        )]
        let seconds = ((1.0 - self.filled) * 60.0 / full).ceil() as u64;
        Some(seconds.max(1))
    }
}

/// The cached state of a space.
struct Known {
    /// `None` if it was never looked up.
    standing: Option<Standing>,
    at: u64,
    asking: bool,
    bucket: Bucket,
}

/// Marks that a lookup of a space is running. If the client disconnects, dropping the guard lets
/// the next request look it up.
struct Asking<'a> {
    spaces: &'a Mutex<HashMap<String, Known>>,
    name: &'a str,
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        if let Some(known) =
            self.spaces.lock().unwrap_or_else(PoisonError::into_inner).get_mut(self.name)
        {
            known.asking = false;
        }
    }
}

/// Cached token lookups.
#[derive(Default)]
struct Tokens {
    /// Valid tokens, and when they were looked up.
    good: HashMap<[u8; 32], (Arc<Grant>, u64)>,
    /// Invalid tokens. A separate map, so that made-up tokens do not evict valid ones.
    bad: HashMap<[u8; 32], u64>,
}

/// Makes room for one more entry: drops expired entries and, if there are none, all of them.
fn make_room<T>(known: &mut HashMap<[u8; 32], T>, is_believed: impl Fn(&T) -> bool) {
    if known.len() >= KNOWN {
        known.retain(|_, looked| is_believed(looked));
        if known.len() >= KNOWN {
            known.clear();
        }
    }
}

impl Tokens {
    /// The cached result for a token, if it is not too old.
    fn believed(&self, hash: &[u8; 32], now: u64) -> Option<Option<Arc<Grant>>> {
        let good = self
            .good
            .get(hash)
            .filter(|(_, at)| now < at + BELIEVED_MS)
            .map(|(grant, _)| Some(grant.clone()));
        good.or_else(|| self.bad.get(hash).filter(|at| now < *at + BELIEVED_MS).map(|_| None))
    }

    fn found(&mut self, hash: [u8; 32], grant: Option<Arc<Grant>>, now: u64) {
        match grant {
            Some(grant) => {
                make_room(&mut self.good, |(_, at)| now < at + BELIEVED_MS);
                self.good.insert(hash, (grant, now));
            }
            None => {
                self.good.remove(&hash);
                make_room(&mut self.bad, |at| now < at + BELIEVED_MS);
                self.bad.insert(hash, now);
            }
        }
    }
}

/// Whether a string has the format of an issued token.
pub fn is_token(shown: &[u8]) -> bool {
    let digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    shown
        .strip_prefix(PREFIX.as_bytes())
        .is_some_and(|rest| rest.len() == 2 * SECRET_BYTES && rest.iter().all(digit))
}

enum Told {
    Deed(Deed),
    Spent(String, u64),
    All(oneshot::Sender<()>),
}

/// A store in a database: the main space, and one space for each end user.
#[derive(Debug, Clone)]
pub struct Home {
    pub database: Arc<Postgres>,
    /// The name of the main space.
    pub name: String,
}

impl Home {
    /// The database store at a location; an error if the location is a folder.
    pub fn at(place: &Place) -> Result<Self> {
        match place {
            Place::Folder(_) => Err(needs_a_store()),
            Place::Space { database, name } => {
                Ok(Self { database: database.clone(), name: name.clone() })
            }
        }
    }

    /// The name of an end user's space, or of the main space.
    pub fn space(&self, user: Option<&str>) -> String {
        let place = Place::Space { database: self.database.clone(), name: self.name.clone() };
        let of_user = user.and_then(|user| place.of_user(user).space().map(str::to_owned));
        of_user.unwrap_or_else(|| self.name.clone())
    }

    /// The end user of a space, `None` for the main space; an error if the space belongs to another
    /// store.
    pub fn user_of<'a>(&self, space: &'a str) -> Result<Option<&'a str>, ()> {
        match space.strip_prefix(&self.name).ok_or(())? {
            "" => Ok(None),
            beneath => beneath.strip_prefix('/').map(Some).ok_or(()),
        }
    }

    /// Lists end users that have a space, in order, after a given name.
    pub async fn users(&self, after: &str, most: usize) -> Result<Vec<String>> {
        let (first, many) = (self.space(Some(after)), i64::try_from(most).unwrap_or(i64::MAX));
        let found = self.database.spaces(&first, many).await?;
        Ok(found
            .iter()
            .map_while(|name| self.user_of(name).ok().flatten())
            .map(str::to_owned)
            .collect())
    }
}

/// The error where there is no database, so no tokens.
pub fn needs_a_store() -> anyhow::Error {
    let said = "tokens, quotas and the audit log need a database, and this memory is in a folder; name a database with --store postgres://…";
    Stop::new(Exit::NotFound, said).into()
}

/// Checks tokens and quotas of a store in a database and writes its audit log.
pub struct Access {
    home: Home,
    requests_per_minute: u64,
    clock: Arc<dyn Clock>,
    tokens: Mutex<Tokens>,
    looking: Semaphore,
    lined_up: Semaphore,
    told_at: AtomicU64,
    spaces: Mutex<HashMap<String, Known>>,
    told: mpsc::Sender<Told>,
    log: Log,
}

impl Access {
    /// For a store; `requests_per_minute` applies to spaces that have no limit of their own.
    pub fn new(home: Home, requests_per_minute: u64, clock: Arc<dyn Clock>, log: Log) -> Arc<Self> {
        let (told, heard) = mpsc::channel(WAITING);
        tokio::spawn(note(home.database.clone(), heard, log.clone()));
        Arc::new(Self {
            home,
            requests_per_minute,
            clock,
            tokens: Mutex::default(),
            looking: Semaphore::new(LOOKED_UP),
            lined_up: Semaphore::new(LINED_UP),
            told_at: AtomicU64::new(0),
            spaces: Mutex::default(),
            told,
            log,
        })
    }

    /// The store it guards.
    pub fn home(&self) -> &Home {
        &self.home
    }

    /// Looks up what the token with this hash allows, if it is valid. An error means that the
    /// lookup failed; only the log says why, because the caller is not authenticated yet.
    pub async fn grant(&self, hash: [u8; 32]) -> Result<Option<Arc<Grant>>> {
        let now = self.clock.millis();
        let was_good = {
            let tokens = self.tokens();
            if let Some(believed) = tokens.believed(&hash, now) {
                return Ok(believed);
            }
            tokens.good.contains_key(&hash)
        };
        // A token that was valid a while ago does not queue behind made-up ones.
        let found = if was_good { self.looked_up(hash).await } else { self.in_line(hash).await };
        let grant = found.map_err(|error| {
            if now >= self.told_at.load(Ordering::Relaxed).saturating_add(TOLD_MS) {
                self.told_at.store(now, Ordering::Relaxed);
                (self.log)(&format!("a token could not be looked up: {error}"));
            }
            Stop::new(Exit::TryLater, "your token cannot be checked now; retry in a moment")
        })?;
        self.tokens().found(hash, grant.clone(), now);
        Ok(grant)
    }

    fn tokens(&self) -> MutexGuard<'_, Tokens> {
        self.tokens.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks up a token that was never seen here before, when its turn comes.
    async fn in_line(&self, hash: [u8; 32]) -> Result<Option<Arc<Grant>>> {
        let Ok(_place) = self.lined_up.try_acquire() else {
            bail!("more than {LINED_UP} lookups of unknown tokens are waiting")
        };
        let Ok(turn) = tokio::time::timeout(IN_LINE, self.looking.acquire()).await else {
            bail!("earlier lookups of unknown tokens took longer than {IN_LINE:?}")
        };
        // The semaphore is never closed. Another task may have looked the token up meanwhile.
        let _turn = turn?;
        if let Some(believed) = self.tokens().believed(&hash, self.clock.millis()) {
            return Ok(believed);
        }
        self.looked_up(hash).await
    }

    async fn looked_up(&self, hash: [u8; 32]) -> Result<Option<Arc<Grant>>> {
        let Some(key) = Hash::from_bytes(&hash) else { return Ok(None) };
        let shown = self.home.database.token_shown(key).await?;
        Ok(shown.and_then(|shown| {
            // A scope that this version does not know allows nothing. A token of another store is
            // not valid here.
            let rights = Rights::of(shown.scopes.iter().filter_map(|word| word.parse().ok()));
            let space = self.home.user_of(&shown.space).ok()?.map(str::to_owned);
            Some(Arc::new(Grant { id: shown.id, rights, space, expires: shown.expires }))
        }))
    }

    /// Empties the cache after a change.
    pub fn look_again(&self) {
        *self.tokens() = Tokens::default();
        for known in self.spaces.lock().unwrap_or_else(PoisonError::into_inner).values_mut() {
            known.at = 0;
            known.asking = false;
        }
    }

    /// Checks the space's quotas for storage and model tokens.
    pub async fn has(&self, user: Option<&str>, takes: Takes) -> Result<(), NotAdmitted> {
        let standing = self.standing(user).await?;
        let limited = |limit: Option<Limit>| match limit {
            Some(Limit::Most(most)) => Some(most),
            Some(Limit::None) | None => None,
        };
        let Quota { messages_per_day, bytes, model_tokens_per_day, .. } = standing.quota;
        let tomorrow = Some(until_tomorrow(self.clock.now()));
        if let Some(most) =
            limited(bytes).filter(|most| takes != Takes::Time && standing.bytes >= *most)
        {
            return Err(Over { limit: "bytes", most, seconds: None }.into());
        }
        if let Some(most) = limited(messages_per_day)
            .filter(|most| takes != Takes::Time && standing.messages >= *most)
        {
            return Err(Over { limit: "messages_per_day", most, seconds: tomorrow }.into());
        }
        if let Some(most) = limited(model_tokens_per_day)
            .filter(|most| takes == Takes::Model && standing.model_tokens >= *most)
        {
            return Err(Over { limit: "model_tokens_per_day", most, seconds: tomorrow }.into());
        }
        Ok(())
    }

    /// Counts a request of a space and checks all of its quotas.
    pub async fn admit(&self, user: Option<&str>, takes: Takes) -> Result<(), NotAdmitted> {
        let standing = self.standing(user).await?;
        let most = match standing.quota.requests_per_minute {
            Some(Limit::Most(most)) => Some(most),
            Some(Limit::None) => None,
            None => Some(self.requests_per_minute),
        };
        // Zero means no limit, as in the settings.
        let most = most.filter(|most| *most > 0);
        if let Some(most) = most {
            let now = self.clock.millis();
            let mut spaces = self.spaces.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(seconds) = spaces
                .get_mut(&self.home.space(user))
                .and_then(|known| known.bucket.take(now, most))
            {
                return Err(
                    Over { limit: "requests_per_minute", most, seconds: Some(seconds) }.into()
                );
            }
        }
        self.has(user, takes).await
    }

    /// The usage and quota of a space, a few seconds old at most. If the lookup fails, returns the
    /// last known ones; a space that was never looked up is rejected, because its limits are not
    /// known.
    async fn standing(&self, user: Option<&str>) -> Result<Standing, NotAdmitted> {
        let (name, now) = (self.home.space(user), self.clock.millis());
        {
            let mut spaces = self.spaces.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(known) = spaces.get_mut(&name) {
                // While one request looks it up, the others use the cached value.
                if let Some(standing) = known
                    .standing
                    .filter(|_| known.asking || (known.at > 0 && now < known.at + BELIEVED_MS))
                {
                    return Ok(standing);
                }
                known.asking = true;
            }
        }
        let asking = Asking { spaces: &self.spaces, name: &name };
        let asked = self.home.database.standing(&self.home.name, &name).await;
        drop(asking);
        let mut spaces = self.spaces.lock().unwrap_or_else(PoisonError::into_inner);
        if spaces.len() >= KNOWN {
            spaces.retain(|_, known| now < known.at + 60_000);
        }
        let fresh = || Known {
            standing: None,
            at: 0,
            asking: false,
            bucket: Bucket { filled: f64::MAX, at: now },
        };
        let known = spaces.entry(name).or_insert_with(fresh);
        match asked {
            Ok(standing) => (known.standing, known.at) = (Some(standing), now.max(1)),
            Err(error) => {
                (self.log)(&format!("the quota of a space could not be looked up: {error}"))
            }
        }
        known.standing.ok_or(NotAdmitted::UnknownQuota)
    }

    /// Counts model tokens used by a space.
    pub fn spent(&self, user: Option<&str>, tokens: u64) {
        let name = self.home.space(user);
        let mut spaces = self.spaces.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(standing) = spaces.get_mut(&name).and_then(|known| known.standing.as_mut()) {
            standing.model_tokens = standing.model_tokens.saturating_add(tokens);
        }
        drop(spaces);
        self.tell(Told::Spent(name, tokens));
    }

    /// Queues an event for the audit log.
    pub fn note(&self, deed: Deed) {
        self.tell(Told::Deed(deed));
    }

    fn tell(&self, told: Told) {
        if self.told.try_send(told).is_err() {
            (self.log)("an audit event was lost: the audit queue is full");
        }
    }

    /// Waits until the queue is written, at most `most`.
    pub async fn settle(&self, most: Duration) -> bool {
        let (done, noted) = oneshot::channel();
        let settled =
            async { self.told.send(Told::All(done)).await.is_ok() && noted.await.is_ok() };
        tokio::time::timeout(most, settled).await.unwrap_or(false)
    }
}

/// Writes queued events in batches until the queue is closed.
async fn note(home: Arc<Postgres>, mut heard: mpsc::Receiver<Told>, log: Log) {
    loop {
        let Some(first) = heard.recv().await else { return };
        let (mut deeds, mut spent, mut waiting) = (Vec::new(), Vec::new(), Vec::new());
        let mut take = |told: Told| match told {
            Told::Deed(deed) => deeds.push(deed),
            Told::Spent(space, tokens) => spent.push((space, tokens)),
            Told::All(done) => waiting.push(done),
        };
        let is_urgent = matches!(first, Told::All(_));
        take(first);
        if !is_urgent {
            tokio::time::sleep(LINGER).await;
        }
        for _ in 0..AT_ONCE {
            let Ok(more) = heard.try_recv() else { break };
            take(more);
        }
        let mut tries = 0;
        while let Err(error) = noted(&home, &mut deeds, &mut spent, &log).await {
            tries += 1;
            if tries >= TRIES {
                log(&format!(
                    "{} audit events could not be written and are lost: {error}",
                    deeds.len()
                ));
                break;
            }
            tokio::time::sleep(AGAIN).await;
        }
        for done in waiting {
            let _ = done.send(());
        }
    }
}

/// Writes the events and token counts, and clears what was written.
async fn noted(
    home: &Arc<Postgres>,
    deeds: &mut Vec<Deed>,
    spent: &mut Vec<(String, u64)>,
    log: &Log,
) -> Result<()> {
    let tell = |unfit: usize, what: &str| {
        if unfit > 0 {
            log(&format!(
                "{unfit} {what}, because their names are not valid, and are lost; this is a bug"
            ));
        }
    };
    if !deeds.is_empty() {
        tell(home.note_deeds(deeds).await?, "audit events could not be written");
        deeds.clear();
    }
    if !spent.is_empty() {
        tell(home.spend(spent).await?, "counts of model tokens could not be stored");
        spent.clear();
    }
    Ok(())
}

/// The seconds until the next day in UTC.
fn until_tomorrow(now: Timestamp) -> u64 {
    const DAY: i64 = 86_400;
    u64::try_from(DAY - now.as_second().rem_euclid(DAY)).unwrap_or(1)
}

/// The caller of an administrative operation, for the audit log.
#[derive(Debug, Clone)]
pub struct By {
    /// The id of the token.
    pub token: String,
    /// The interface that was used.
    pub door: &'static str,
    /// The caller's name, as far as it is known.
    pub who: String,
    pub now: Timestamp,
}

impl By {
    /// The audit event for what the caller did.
    pub fn deed(&self, space: &str, verb: &str, what: &str) -> Deed {
        Deed {
            at: self.now,
            space: space.into(),
            token: self.token.clone(),
            door: self.door.into(),
            who: self.who.clone(),
            verb: verb.into(),
            what: what.into(),
            status: 200,
        }
    }
}

/// A new token and its secret. The secret is shown once and never stored.
pub struct Made {
    pub token: Token,
    pub secret: String,
}

fn random<const MANY: usize>() -> Result<String> {
    let mut bytes = [0_u8; MANY];
    getrandom::fill(&mut bytes)
        .map_err(|error| anyhow::anyhow!("the system gives no random numbers: {error}"))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// The properties of a new token.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// The end user whose space it is bound to.
    pub user: Option<String>,
    pub rights: Vec<Right>,
    pub lasts: Option<SignedDuration>,
    pub label: String,
}

/// Issues a token.
pub async fn add_token(home: &Home, wanted: Wanted, by: &By) -> Result<Made> {
    let rights = Rights::of(wanted.rights);
    if rights == Rights::NONE {
        return Err(
            Stop::new(Exit::Usage, "a token needs a scope: read, write, proxy or admin").into()
        );
    }
    if wanted.lasts.is_some_and(|lasts| lasts.is_zero()) {
        return Err(Stop::new(
            Exit::Usage,
            "a token cannot expire at once; give a duration such as 90d",
        )
        .into());
    }
    let user = wanted.user.map(|name| call::user_name(&name)).transpose()?;
    let scopes = rights.words().into_iter().map(Into::into).collect();
    let made = token(home.space(user.as_deref()), wanted.label, scopes, wanted.lasts, by.now)?;
    let deed = by.deed(&made.token.space, "token add", &format!("{} {rights}", made.token.id));
    home.database.add_token(&made.token, Hash::of(made.secret.as_bytes()), &deed).await?;
    Ok(made)
}

fn token(
    space: String,
    label: String,
    scopes: Vec<String>,
    lasts: Option<SignedDuration>,
    now: Timestamp,
) -> Result<Made> {
    if label.len() > MOST_LABEL_BYTES || label.chars().any(char::is_control) {
        return Err(Stop::new(
            Exit::Usage,
            format!("a label has at most {MOST_LABEL_BYTES} bytes and no control characters"),
        )
        .into());
    }
    let token = Token {
        id: random::<8>()?,
        space,
        label,
        scopes,
        made: now,
        expires: after(now, lasts)?,
        revoked: None,
        used: None,
    };
    Ok(Made { token, secret: format!("{PREFIX}{}", random::<SECRET_BYTES>()?) })
}

/// The moment that lies `lasts` after now.
fn after(now: Timestamp, lasts: Option<SignedDuration>) -> Result<Option<Timestamp>> {
    let end = lasts.map(|lasts| now.checked_add(lasts)).transpose();
    Ok(end.map_err(|_| Stop::new(Exit::Usage, "the duration is too long"))?)
}

/// Reads the token with this id, or fails.
async fn known(home: &Home, id: &str) -> Result<Token> {
    let missing = || {
        Stop::new(
            Exit::NotFound,
            format!(
                "there is no token {}; `icecore db token list` lists all tokens",
                call::shown(id)
            ),
        )
    };
    Ok(home.database.token(&home.name, id.trim()).await?.ok_or_else(missing)?)
}

fn over(id: &str) -> anyhow::Error {
    Stop::new(
        Exit::Conflict,
        format!(
            "the token {} has expired or was revoked; create another with `icecore db token add`",
            call::shown(id)
        ),
    )
    .into()
}

/// Replaces a token. The old one stays valid for the grace period or ends at once; the new one has
/// the same lifetime, counted from now.
pub async fn rotate_token(home: &Home, id: &str, grace: SignedDuration, by: &By) -> Result<Made> {
    let old = known(home, id).await?;
    let lasts = old.expires.map(|end| end.duration_since(old.made));
    let new = token(old.space.clone(), old.label.clone(), old.scopes.clone(), lasts, by.now)?;
    let until = after(by.now, Some(grace).filter(|grace| *grace > SignedDuration::ZERO))?;
    let deed = by.deed(&old.space, "token rotate", &format!("{} {}", old.id, new.token.id));
    match home
        .database
        .rotate_token(&old, until, &new.token, Hash::of(new.secret.as_bytes()), &deed)
        .await?
    {
        Rotated::Now => Ok(new),
        Rotated::Over => Err(over(id)),
        Rotated::Before { new } => {
            let said = format!(
                "the token {} was already rotated; rotate its successor {new} instead",
                call::shown(id)
            );
            Err(Stop::new(Exit::Conflict, said).into())
        }
    }
}

/// Revokes a token.
pub async fn revoke_token(home: &Home, id: &str, by: &By) -> Result<Token> {
    let token = known(home, id).await?;
    if !home
        .database
        .revoke_token(&token, &by.deed(&token.space, "token revoke", &token.id))
        .await?
    {
        return Err(over(id));
    }
    Ok(token)
}

/// Deletes an end user's space with everything in it; false if there is none.
pub async fn erase(home: &Home, user: &str, by: &By) -> Result<bool> {
    let space = home.space(Some(user));
    Ok(home.database.erase_as(&space, &by.deed(&space, "space erase", user)).await?)
}

/// Deletes a store: the spaces of all end users, then the main space, with every token and limit.
/// If it is interrupted, calling it again continues.
pub async fn erase_home(home: &Home, by: &By) -> Result<usize> {
    let mut erased = 0;
    loop {
        // Tokens of users without a space are not deleted with a space.
        let known = home.database.tokens(&home.name, None, i64::MAX).await?;
        for token in known.iter().filter(|token| token.revoked.is_none()) {
            home.database
                .revoke_token(token, &by.deed(&token.space, "token revoke", &token.id))
                .await?;
        }
        for space in home.database.spaces_below(&home.name).await? {
            let user = home.user_of(&space).ok().flatten().unwrap_or_default();
            erased += usize::from(
                home.database.erase_as(&space, &by.deed(&space, "space erase", user)).await?,
            );
        }
        set_quota(home, None, &Quota::default(), by).await?;
        // The main space last: without it an interrupted call could not be repeated. A running
        // server may have created another user's space meanwhile.
        home.database.erase_as(&home.name, &by.deed(&home.name, "space erase", &home.name)).await?;
        if home.database.spaces_below(&home.name).await?.is_empty() {
            return Ok(erased);
        }
    }
}

/// The limits of an end user's space, or the defaults for all spaces.
pub async fn quota(home: &Home, user: Option<&str>) -> Result<Quota> {
    Ok(home.database.quota(&limited(home, user)).await?)
}

fn limited(home: &Home, user: Option<&str>) -> String {
    user.map_or_else(|| all_of(&home.name), |user| home.space(Some(user)))
}

/// Sets the limits of an end user's space, or the defaults.
pub async fn set_quota(home: &Home, user: Option<&str>, quota: &Quota, by: &By) -> Result<()> {
    let what = format!(
        "requests_per_minute={} messages_per_day={} bytes={} model_tokens_per_day={}",
        word(quota.requests_per_minute),
        word(quota.messages_per_day),
        word(quota.bytes),
        word(quota.model_tokens_per_day)
    );
    let space = limited(home, user);
    Ok(home.database.set_quota(&space, quota, &by.deed(&space, "quota", &what)).await?)
}

/// A limit as written on the command line.
pub fn word(limit: Option<Limit>) -> String {
    match limit {
        None => "default".into(),
        Some(Limit::None) => "none".into(),
        Some(Limit::Most(most)) => most.to_string(),
    }
}

/// Parses a limit: a number, `none`, or `default` for the store's default.
pub fn limit(text: &str) -> Result<Option<Limit>, String> {
    match text.trim().to_ascii_lowercase().as_str() {
        "default" => Ok(None),
        "none" => Ok(Some(Limit::None)),
        number => match number.replace(['_', ','], "").parse::<u64>() {
            Ok(most) if i64::try_from(most).is_ok() => Ok(Some(Limit::Most(most))),
            _ => {
                Err("write a number, `none` for no limit, or `default` for the store's default"
                    .into())
            }
        },
    }
}

/// Parses a limit of requests per minute, where zero means none, as in the settings.
pub fn requests(text: &str) -> Result<Option<Limit>, String> {
    limit(text).map(|limit| if limit == Some(Limit::Most(0)) { Some(Limit::None) } else { limit })
}

/// Parses a duration: 90d, 12h, 30m, 45s.
pub fn lasts(text: &str) -> Result<SignedDuration, String> {
    let text = text.trim();
    let wrong = || "write a duration such as 90d, 12h or 30m".to_owned();
    let (number, unit) =
        text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let seconds: i64 = match unit {
        "" if number == "0" => 1,
        "s" => 1,
        "m" => 60,
        "h" => 3_600,
        "d" => 86_400,
        "w" => 604_800,
        _ => return Err(wrong()),
    };
    let many: i64 = number.parse().map_err(|_| wrong())?;
    many.checked_mul(seconds).map(SignedDuration::from_secs).ok_or_else(wrong)
}

/// Parses the start of a time range: a duration such as `2h` ago, or a timestamp.
pub fn since(text: &str, now: Timestamp) -> Result<Timestamp> {
    if let Ok(ago) = lasts(text) {
        return Ok(now.checked_sub(ago).unwrap_or(Timestamp::MIN));
    }
    match text.trim().parse() {
        Ok(moment) => Ok(moment),
        Err(_) => bail!(Stop::new(
            Exit::Usage,
            "`since` must be a timestamp such as 2026-02-13T09:30:00Z or a duration such as 90d, 12h or 30m"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use icecore_store::postgres::Options;

    #[test]
    fn a_bucket_lets_so_many_through_in_a_minute() {
        let mut bucket = Bucket { filled: f64::MAX, at: 0 };
        let through = (0..100).filter(|_| bucket.take(1_000, 60).is_none()).count();
        assert_eq!(through, 60);
        assert_eq!(bucket.take(1_000, 60), Some(1));
        assert_eq!((bucket.take(2_000, 60), bucket.take(2_000, 60)), (None, Some(1)));
        // However long no request comes, the bucket holds no more than its capacity.
        assert_eq!((0..100).filter(|_| bucket.take(9_000_000, 60).is_none()).count(), 60);
        let mut slow = Bucket { filled: f64::MAX, at: 0 };
        assert_eq!(
            (slow.take(0, 1), slow.take(0, 1), slow.take(30_000, 1), slow.take(60_000, 1)),
            (None, Some(60), Some(30), None)
        );
        assert_eq!(Bucket { filled: f64::MAX, at: 0 }.take(0, 0), Some(60));
    }

    #[test]
    fn what_people_write_is_read() {
        for (text, seconds) in [
            ("90d", 7_776_000),
            ("12h", 43_200),
            ("30m", 1_800),
            ("0", 0),
            ("5s", 5),
            ("2w", 1_209_600),
        ] {
            assert_eq!(lasts(text), Ok(SignedDuration::from_secs(seconds)), "{text}");
        }
        for wrong in
            ["", "90", "d", "-1d", "1.5h", "99999999999999999999d", "9223372036854775807w", "soon"]
        {
            assert!(lasts(wrong).is_err(), "{wrong}");
        }
        assert_eq!(
            (limit("none"), limit("default"), limit("10_000")),
            (Ok(Some(Limit::None)), Ok(None), Ok(Some(Limit::Most(10_000))))
        );
        assert_eq!(
            (limit("0"), requests("0"), requests("60")),
            (Ok(Some(Limit::Most(0))), Ok(Some(Limit::None)), Ok(Some(Limit::Most(60))))
        );
        assert!(
            limit("-1").is_err()
                && limit("99999999999999999999").is_err()
                && limit("18446744073709551615").is_err()
        );
        let now: Timestamp = "2026-02-13T10:00:00Z".parse().unwrap();
        assert_eq!(since("2h", now).unwrap().to_string(), "2026-02-13T08:00:00Z");
        assert_eq!(
            since("2026-02-13T10:00:00+01:00", now).unwrap().to_string(),
            "2026-02-13T09:00:00Z"
        );
        assert!(since("yore", now).is_err());
        assert_eq!(
            (until_tomorrow(now), until_tomorrow("2026-02-13T23:59:59Z".parse().unwrap())),
            (50_400, 1)
        );
    }

    /// A clock that is set by hand.
    #[derive(Default)]
    struct Hand(AtomicU64);

    impl Clock for Hand {
        fn now(&self) -> Timestamp {
            Timestamp::UNIX_EPOCH
        }

        fn millis(&self) -> u64 {
            self.0.load(Ordering::Relaxed)
        }
    }

    /// An access control whose database accepts connections but never answers, and the number of
    /// connections.
    async fn silent() -> (Arc<Access>, Arc<Hand>, Arc<AtomicU64>) {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (url, taken) = (
            format!("postgres://icecore@{}/icecore", listener.local_addr().unwrap()),
            Arc::new(AtomicU64::new(0)),
        );
        let counted = taken.clone();
        tokio::spawn(async move {
            let mut open = Vec::new();
            while let Ok((stream, _)) = listener.accept().await {
                counted.fetch_add(1, Ordering::Relaxed);
                open.push(stream);
            }
        });
        let home =
            Home { database: Postgres::at(&url, Options::default()).unwrap(), name: "h".into() };
        let clock = Arc::new(Hand::default());
        clock.0.store(100_000, Ordering::Relaxed);
        (Access::new(home, 60, clock.clone(), Arc::new(|_: &str| {})), clock, taken)
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn who_hangs_up_while_it_is_asked_how_a_space_stands_leaves_it_to_the_next() {
        let (access, _, _) = silent().await;
        let known = Known {
            standing: Some(Standing::default()),
            at: 1,
            asking: false,
            bucket: Bucket { filled: 0.0, at: 0 },
        };
        access.spaces.lock().unwrap().insert("h/ann".into(), known);
        let patience = Duration::from_millis(200);
        for _ in 0..3 {
            // The lookup takes longer than the caller waits.
            assert!(tokio::time::timeout(patience, access.standing(Some("ann"))).await.is_err());
        }
        // While one request looks it up, the others use the cached value.
        let asking = access.clone();
        let one = tokio::spawn(async move { asking.standing(Some("ann")).await });
        tokio::time::sleep(patience).await;
        assert_eq!(
            tokio::time::timeout(patience, access.standing(Some("ann"))).await,
            Ok(Ok(Standing::default()))
        );
        one.abort();
    }

    #[tokio::test]
    async fn a_space_whose_quota_was_never_looked_up_is_not_let_in_while_it_cannot_be() {
        // A database that does not run.
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("postgres://icecore@{}/icecore", listener.local_addr().unwrap());
        drop(listener);
        let home =
            Home { database: Postgres::at(&url, Options::default()).unwrap(), name: "h".into() };
        let clock = Arc::new(Hand::default());
        clock.0.store(100_000, Ordering::Relaxed);
        let access = Access::new(home, 60, clock.clone(), Arc::new(|_: &str| {}));
        for takes in [Takes::Time, Takes::Room, Takes::Model] {
            assert_eq!(access.admit(Some("ann"), takes).await, Err(NotAdmitted::UnknownQuota));
            assert_eq!(access.has(Some("ann"), takes).await, Err(NotAdmitted::UnknownQuota));
        }
        // The last known values apply, however old they are.
        let standing = Standing {
            messages: 5,
            quota: Quota { messages_per_day: Some(Limit::Most(5)), ..Quota::default() },
            ..Standing::default()
        };
        let bucket = Bucket { filled: f64::MAX, at: 0 };
        access.spaces.lock().unwrap().insert(
            "h/ben".into(),
            Known { standing: Some(standing), at: 1, asking: false, bucket },
        );
        assert_eq!(access.admit(Some("ben"), Takes::Time).await, Ok(()));
        assert!(
            matches!(access.admit(Some("ben"), Takes::Room).await, Err(NotAdmitted::Over(over)) if over.limit == "messages_per_day")
        );
        access.look_again();
        assert_eq!(access.admit(Some("ben"), Takes::Time).await, Ok(()));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn whoever_invents_tokens_leaves_the_database_to_the_others() {
        let (access, clock, taken) = silent().await;
        let asking: Vec<_> = (0..=u8::MAX)
            .map(|n| {
                let access = access.clone();
                tokio::spawn(async move { access.grant([n; 32]).await })
            })
            .collect();
        tokio::time::sleep(Duration::from_millis(500)).await;
        // Rejected callers get the answer at once, and do not learn about the database.
        let told: Vec<_> = asking.into_iter().filter(|one| one.is_finished()).collect();
        assert!(told.len() >= usize::from(u8::MAX) - LINED_UP, "{}", told.len());
        for one in told {
            let said = one.await.unwrap().unwrap_err().to_string();
            assert_eq!(said, "your token cannot be checked now; retry in a moment");
        }
        let strangers = taken.load(Ordering::Relaxed);
        assert!(
            strangers <= LOOKED_UP as u64,
            "{strangers} connections for tokens that nobody has shown before"
        );
        // A caller whose token was valid is served beside them.
        let grant = Arc::new(Grant::reader());
        access.tokens().good.insert([9; 32], (grant.clone(), clock.millis() - BELIEVED_MS));
        let known = access.clone();
        let known = tokio::spawn(async move { known.grant([9; 32]).await });
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert!(!known.is_finished() && taken.load(Ordering::Relaxed) > strangers);
        known.abort();
        // Cached results need no lookup.
        access.tokens().found([9; 32], Some(grant.clone()), clock.millis());
        access.tokens().found([8; 32], None, clock.millis());
        assert_eq!(
            (access.grant([9; 32]).await.unwrap(), access.grant([8; 32]).await.unwrap()),
            (Some(grant), None)
        );
    }

    #[test]
    fn however_many_are_not_good_those_that_are_stay_known() {
        let (mut tokens, grant) = (Tokens::default(), Arc::new(Grant::reader()));
        tokens.found([7; 32], Some(grant.clone()), 0);
        for n in 0..3 * KNOWN {
            tokens.found(*Hash::of(&n.to_le_bytes()).bytes(), None, 0);
        }
        assert!(tokens.bad.len() <= KNOWN);
        assert_eq!(tokens.believed(&[7; 32], BELIEVED_MS - 1), Some(Some(grant)));
        assert_eq!(tokens.believed(&[7; 32], BELIEVED_MS), None);
        tokens.found([7; 32], None, BELIEVED_MS);
        assert_eq!(tokens.believed(&[7; 32], BELIEVED_MS), Some(None), "it was revoked");
    }

    #[test]
    fn only_what_looks_like_a_token_is_looked_up() {
        let made = token(
            "default".into(),
            String::new(),
            vec!["read".into()],
            None,
            Timestamp::UNIX_EPOCH,
        )
        .unwrap()
        .secret;
        assert!(is_token(made.as_bytes()));
        for wrong in [
            "",
            "x",
            PREFIX,
            &made[1..],
            &made[..made.len() - 1],
            &format!("{made}0"),
            &made.to_uppercase(),
            &made.replace('_', "-"),
        ] {
            assert!(!is_token(wrong.as_bytes()), "{wrong}");
        }
        assert!(
            !is_token(format!("{PREFIX}{}", "g".repeat(64)).as_bytes()) && !is_token(&[0xff; 72])
        );
    }

    #[test]
    fn a_token_is_long_and_never_the_same() {
        let make = || {
            token("default".into(), String::new(), vec!["read".into()], None, Timestamp::UNIX_EPOCH)
                .unwrap()
        };
        let (one, other) = (make(), make());
        assert!(one.secret.len() == PREFIX.len() + 64 && one.secret.starts_with(PREFIX));
        assert!(
            one.secret != other.secret
                && one.token.id != other.token.id
                && !one.secret.contains(&one.token.id)
        );
    }
}
