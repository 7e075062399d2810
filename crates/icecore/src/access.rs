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
use icecore_store::postgres::{
    AccessToken, AuditEvent, Postgres, Quota, QuotaLimit, QuotaUsage, RotationOutcome,
    all_spaces_of,
};
use jiff::{SignedDuration, Timestamp};
use tokio::sync::{Semaphore, mpsc, oneshot};

use crate::api::call;
use crate::error::{AppError, Exit};
use crate::http::LogFn;
use crate::permissions::{Grant, Permission, Permissions};
use crate::store_location::StoreLocation;

/// How long a lookup is cached.
const LOOKUP_CACHE_MS: u64 = 5_000;
/// The most tokens, and the most spaces, in a cache.
const MAX_CACHE_ENTRIES: usize = 10_000;
/// The most lookups of unknown tokens at once, so that made-up tokens leave database connections to
/// other callers.
const MAX_UNKNOWN_LOOKUPS: usize = 2;
/// The most lookups of unknown tokens that wait; further ones are rejected with "try again".
const MAX_QUEUED_LOOKUPS: usize = 64;
/// How long they wait.
const LOOKUP_QUEUE_TIMEOUT: Duration = Duration::from_secs(5);
/// The shortest time between two log lines about failed lookups.
const LOOKUP_LOG_INTERVAL_MS: u64 = 5_000;
/// The first characters of every token, so that secret scanners find it.
pub const TOKEN_PREFIX: &str = "icecore_";
/// The random part of a token, in bytes.
const SECRET_BYTES: usize = 32;
/// The length of the audit queue. When it is full, events are lost, which is logged.
const AUDIT_QUEUE_LEN: usize = 20_000;
/// The most audit events in one write.
const AUDIT_BATCH_LEN: usize = 1_000;
/// How long the writer waits for more events.
const AUDIT_BATCH_DELAY: Duration = Duration::from_millis(200);
/// The pause between two attempts to write the same batch.
const AUDIT_RETRY_DELAY: Duration = Duration::from_secs(1);
const MAX_AUDIT_ATTEMPTS: usize = 30;
const MAX_LABEL_BYTES: usize = 200;

/// What a request consumes, and so which quotas apply to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuotaClass {
    /// Only server time.
    Compute,
    /// Storage: something may be stored.
    Storage,
    /// Storage and model tokens.
    Model,
}

/// A space has used up a quota.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuotaExceeded {
    /// The name of the limit.
    pub limit: &'static str,
    /// Its value.
    pub most: u64,
    /// Seconds until it is reset; `None` if waiting does not help.
    pub seconds: Option<u64>,
}

impl QuotaExceeded {
    /// The message for the caller.
    pub fn message(&self) -> String {
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
pub enum AdmissionError {
    QuotaExceeded(QuotaExceeded),
    /// The quota was never looked up here, and cannot be now.
    UnknownQuota,
}

impl fmt::Display for AdmissionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::QuotaExceeded(over) => f.write_str(&over.message()),
            Self::UnknownQuota => f.write_str(
                "the quota of this space cannot be read from the database now; retry in a moment",
            ),
        }
    }
}

impl From<QuotaExceeded> for AdmissionError {
    fn from(over: QuotaExceeded) -> Self {
        Self::QuotaExceeded(over)
    }
}

/// Requests per minute, as a bucket that refills over time.
struct RateBucket {
    filled: f64,
    at: u64,
}

impl RateBucket {
    /// Takes one request; if there is none, the seconds until there is one.
    fn try_take(&mut self, now: u64, most: u64) -> Option<u64> {
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
struct CachedSpace {
    /// `None` if it was never looked up.
    standing: Option<QuotaUsage>,
    at: u64,
    asking: bool,
    bucket: RateBucket,
}

/// Marks that a lookup of a space is running. If the client disconnects, dropping the guard lets
/// the next request look it up.
struct LookupGuard<'a> {
    spaces: &'a Mutex<HashMap<String, CachedSpace>>,
    name: &'a str,
}

impl Drop for LookupGuard<'_> {
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
struct TokenCache {
    /// Valid tokens, and when they were looked up.
    good: HashMap<[u8; 32], (Arc<Grant>, u64)>,
    /// Invalid tokens. A separate map, so that made-up tokens do not evict valid ones.
    bad: HashMap<[u8; 32], u64>,
}

/// Makes room for one more entry: drops expired entries and, if there are none, all of them.
fn evict_for_one<T>(known: &mut HashMap<[u8; 32], T>, is_believed: impl Fn(&T) -> bool) {
    if known.len() >= MAX_CACHE_ENTRIES {
        known.retain(|_, looked| is_believed(looked));
        if known.len() >= MAX_CACHE_ENTRIES {
            known.clear();
        }
    }
}

impl TokenCache {
    /// The cached result for a token, if it is not too old.
    fn get(&self, hash: &[u8; 32], now: u64) -> Option<Option<Arc<Grant>>> {
        let good = self
            .good
            .get(hash)
            .filter(|(_, at)| now < at + LOOKUP_CACHE_MS)
            .map(|(grant, _)| Some(grant.clone()));
        good.or_else(|| self.bad.get(hash).filter(|at| now < *at + LOOKUP_CACHE_MS).map(|_| None))
    }

    fn insert(&mut self, hash: [u8; 32], grant: Option<Arc<Grant>>, now: u64) {
        match grant {
            Some(grant) => {
                evict_for_one(&mut self.good, |(_, at)| now < at + LOOKUP_CACHE_MS);
                self.good.insert(hash, (grant, now));
            }
            None => {
                self.good.remove(&hash);
                evict_for_one(&mut self.bad, |at| now < at + LOOKUP_CACHE_MS);
                self.bad.insert(hash, now);
            }
        }
    }
}

/// Whether a string has the format of an issued token.
pub fn is_token_format(shown: &[u8]) -> bool {
    let digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    shown
        .strip_prefix(TOKEN_PREFIX.as_bytes())
        .is_some_and(|rest| rest.len() == 2 * SECRET_BYTES && rest.iter().all(digit))
}

enum AuditMessage {
    Event(AuditEvent),
    TokensSpent(String, u64),
    Flush(oneshot::Sender<()>),
}

/// A store in a database: the main space, and one space for each end user.
#[derive(Debug, Clone)]
pub struct DatabaseStore {
    pub database: Arc<Postgres>,
    /// The name of the main space.
    pub name: String,
}

impl DatabaseStore {
    /// The database store at a location; an error if the location is a folder.
    pub fn from_location(place: &StoreLocation) -> Result<Self> {
        match place {
            StoreLocation::Folder(_) => Err(database_required()),
            StoreLocation::Space { database, name } => {
                Ok(Self { database: database.clone(), name: name.clone() })
            }
        }
    }

    /// The name of an end user's space, or of the main space.
    pub fn space_name(&self, user: Option<&str>) -> String {
        let place =
            StoreLocation::Space { database: self.database.clone(), name: self.name.clone() };
        let of_user =
            user.and_then(|user| place.user_location(user).space_name().map(str::to_owned));
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
    pub async fn list_users(&self, after: &str, most: usize) -> Result<Vec<String>> {
        let (first, many) = (self.space_name(Some(after)), i64::try_from(most).unwrap_or(i64::MAX));
        let found = self.database.list_spaces(&first, many).await?;
        Ok(found
            .iter()
            .map_while(|name| self.user_of(name).ok().flatten())
            .map(str::to_owned)
            .collect())
    }
}

/// The error where there is no database, so no tokens.
pub fn database_required() -> anyhow::Error {
    let said = "tokens, quotas and the audit log need a database, and this memory is in a folder; name a database with --store postgres://…";
    AppError::new(Exit::NotFound, said).into()
}

/// Checks tokens and quotas of a store in a database and writes its audit log.
pub struct AccessControl {
    home: DatabaseStore,
    requests_per_minute: u64,
    clock: Arc<dyn Clock>,
    tokens: Mutex<TokenCache>,
    looking: Semaphore,
    lined_up: Semaphore,
    told_at: AtomicU64,
    spaces: Mutex<HashMap<String, CachedSpace>>,
    told: mpsc::Sender<AuditMessage>,
    log: LogFn,
}

impl AccessControl {
    /// For a store; `requests_per_minute` applies to spaces that have no limit of their own.
    pub fn new(
        postgres: DatabaseStore,
        requests_per_minute: u64,
        clock: Arc<dyn Clock>,
        log: LogFn,
    ) -> Arc<Self> {
        let (told, heard) = mpsc::channel(AUDIT_QUEUE_LEN);
        tokio::spawn(run_audit_writer(postgres.database.clone(), heard, log.clone()));
        Arc::new(Self {
            home: postgres,
            requests_per_minute,
            clock,
            tokens: Mutex::default(),
            looking: Semaphore::new(MAX_UNKNOWN_LOOKUPS),
            lined_up: Semaphore::new(MAX_QUEUED_LOOKUPS),
            told_at: AtomicU64::new(0),
            spaces: Mutex::default(),
            told,
            log,
        })
    }

    /// The store it guards.
    pub fn store(&self) -> &DatabaseStore {
        &self.home
    }

    /// Looks up what the token with this hash allows, if it is valid. An error means that the
    /// lookup failed; only the log says why, because the caller is not authenticated yet.
    pub async fn lookup_grant(&self, hash: [u8; 32]) -> Result<Option<Arc<Grant>>> {
        let now = self.clock.elapsed_millis();
        let was_good = {
            let tokens = self.lock_tokens();
            if let Some(believed) = tokens.get(&hash, now) {
                return Ok(believed);
            }
            tokens.good.contains_key(&hash)
        };
        // A token that was valid a while ago does not queue behind made-up ones.
        let found = if was_good {
            self.lookup_in_database(hash).await
        } else {
            self.lookup_queued(hash).await
        };
        let grant = found.map_err(|error| {
            if now >= self.told_at.load(Ordering::Relaxed).saturating_add(LOOKUP_LOG_INTERVAL_MS) {
                self.told_at.store(now, Ordering::Relaxed);
                (self.log)(&format!("a token could not be looked up: {error}"));
            }
            AppError::new(Exit::TryLater, "your token cannot be checked now; retry in a moment")
        })?;
        self.lock_tokens().insert(hash, grant.clone(), now);
        Ok(grant)
    }

    fn lock_tokens(&self) -> MutexGuard<'_, TokenCache> {
        self.tokens.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks up a token that was never seen here before, when its turn comes.
    async fn lookup_queued(&self, hash: [u8; 32]) -> Result<Option<Arc<Grant>>> {
        let Ok(_place) = self.lined_up.try_acquire() else {
            bail!("more than {MAX_QUEUED_LOOKUPS} lookups of unknown tokens are waiting")
        };
        let Ok(turn) = tokio::time::timeout(LOOKUP_QUEUE_TIMEOUT, self.looking.acquire()).await
        else {
            bail!("earlier lookups of unknown tokens took longer than {LOOKUP_QUEUE_TIMEOUT:?}")
        };
        // The semaphore is never closed. Another task may have looked the token up meanwhile.
        let _turn = turn?;
        if let Some(believed) = self.lock_tokens().get(&hash, self.clock.elapsed_millis()) {
            return Ok(believed);
        }
        self.lookup_in_database(hash).await
    }

    async fn lookup_in_database(&self, hash: [u8; 32]) -> Result<Option<Arc<Grant>>> {
        let Some(key) = Hash::from_bytes(&hash) else { return Ok(None) };
        let shown = self.home.database.authenticate_token(key).await?;
        Ok(shown.and_then(|shown| {
            // A scope that this version does not know allows nothing. A token of another store is
            // not valid here.
            let rights = Permissions::of(shown.scopes.iter().filter_map(|word| word.parse().ok()));
            let space = self.home.user_of(&shown.space).ok()?.map(str::to_owned);
            Some(Arc::new(Grant { id: shown.id, rights, space, expires: shown.expires }))
        }))
    }

    /// Empties the cache after a change.
    pub fn invalidate_cache(&self) {
        *self.lock_tokens() = TokenCache::default();
        for known in self.spaces.lock().unwrap_or_else(PoisonError::into_inner).values_mut() {
            known.at = 0;
            known.asking = false;
        }
    }

    /// Checks the space's quotas for storage and model tokens.
    pub async fn check_quota(
        &self,
        user: Option<&str>,
        takes: QuotaClass,
    ) -> Result<(), AdmissionError> {
        let standing = self.lookup_usage(user).await?;
        let limited = |limit: Option<QuotaLimit>| match limit {
            Some(QuotaLimit::AtMost(most)) => Some(most),
            Some(QuotaLimit::Unlimited) | None => None,
        };
        let Quota { messages_per_day, bytes, model_tokens_per_day, .. } = standing.quota;
        let tomorrow = Some(secs_until_tomorrow(self.clock.now()));
        if let Some(most) =
            limited(bytes).filter(|most| takes != QuotaClass::Compute && standing.bytes >= *most)
        {
            return Err(QuotaExceeded { limit: "bytes", most, seconds: None }.into());
        }
        if let Some(most) = limited(messages_per_day)
            .filter(|most| takes != QuotaClass::Compute && standing.messages >= *most)
        {
            return Err(QuotaExceeded { limit: "messages_per_day", most, seconds: tomorrow }.into());
        }
        if let Some(most) = limited(model_tokens_per_day)
            .filter(|most| takes == QuotaClass::Model && standing.model_tokens >= *most)
        {
            return Err(
                QuotaExceeded { limit: "model_tokens_per_day", most, seconds: tomorrow }.into()
            );
        }
        Ok(())
    }

    /// Counts a request of a space and checks all of its quotas.
    pub async fn admit(&self, user: Option<&str>, takes: QuotaClass) -> Result<(), AdmissionError> {
        let standing = self.lookup_usage(user).await?;
        let most = match standing.quota.requests_per_minute {
            Some(QuotaLimit::AtMost(most)) => Some(most),
            Some(QuotaLimit::Unlimited) => None,
            None => Some(self.requests_per_minute),
        };
        // Zero means no limit, as in the settings.
        let most = most.filter(|most| *most > 0);
        if let Some(most) = most {
            let now = self.clock.elapsed_millis();
            let mut spaces = self.spaces.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(seconds) = spaces
                .get_mut(&self.home.space_name(user))
                .and_then(|known| known.bucket.try_take(now, most))
            {
                return Err(QuotaExceeded {
                    limit: "requests_per_minute",
                    most,
                    seconds: Some(seconds),
                }
                .into());
            }
        }
        self.check_quota(user, takes).await
    }

    /// The usage and quota of a space, a few seconds old at most. If the lookup fails, returns the
    /// last known ones; a space that was never looked up is rejected, because its limits are not
    /// known.
    async fn lookup_usage(&self, user: Option<&str>) -> Result<QuotaUsage, AdmissionError> {
        let (name, now) = (self.home.space_name(user), self.clock.elapsed_millis());
        {
            let mut spaces = self.spaces.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(known) = spaces.get_mut(&name) {
                // While one request looks it up, the others use the cached value.
                if let Some(standing) = known
                    .standing
                    .filter(|_| known.asking || (known.at > 0 && now < known.at + LOOKUP_CACHE_MS))
                {
                    return Ok(standing);
                }
                known.asking = true;
            }
        }
        let asking = LookupGuard { spaces: &self.spaces, name: &name };
        let asked = self.home.database.quota_usage(&self.home.name, &name).await;
        drop(asking);
        let mut spaces = self.spaces.lock().unwrap_or_else(PoisonError::into_inner);
        if spaces.len() >= MAX_CACHE_ENTRIES {
            spaces.retain(|_, known| now < known.at + 60_000);
        }
        let fresh = || CachedSpace {
            standing: None,
            at: 0,
            asking: false,
            bucket: RateBucket { filled: f64::MAX, at: now },
        };
        let known = spaces.entry(name).or_insert_with(fresh);
        match asked {
            Ok(standing) => (known.standing, known.at) = (Some(standing), now.max(1)),
            Err(error) => {
                (self.log)(&format!("the quota of a space could not be looked up: {error}"))
            }
        }
        known.standing.ok_or(AdmissionError::UnknownQuota)
    }

    /// Counts model tokens used by a space.
    pub fn record_spend(&self, user: Option<&str>, tokens: u64) {
        let name = self.home.space_name(user);
        let mut spaces = self.spaces.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(standing) = spaces.get_mut(&name).and_then(|known| known.standing.as_mut()) {
            standing.model_tokens = standing.model_tokens.saturating_add(tokens);
        }
        drop(spaces);
        self.enqueue(AuditMessage::TokensSpent(name, tokens));
    }

    /// Queues an event for the audit log.
    pub fn record_event(&self, event: AuditEvent) {
        self.enqueue(AuditMessage::Event(event));
    }

    fn enqueue(&self, told: AuditMessage) {
        if self.told.try_send(told).is_err() {
            (self.log)("an audit event was lost: the audit queue is full");
        }
    }

    /// Waits until the queue is written, at most `most`.
    pub async fn flush(&self, most: Duration) -> bool {
        let (done, noted) = oneshot::channel();
        let settled = async {
            self.told.send(AuditMessage::Flush(done)).await.is_ok() && noted.await.is_ok()
        };
        tokio::time::timeout(most, settled).await.unwrap_or(false)
    }
}

/// Writes queued events in batches until the queue is closed.
async fn run_audit_writer(
    database: Arc<Postgres>,
    mut heard: mpsc::Receiver<AuditMessage>,
    log: LogFn,
) {
    loop {
        let Some(first) = heard.recv().await else { return };
        let (mut deeds, mut spent, mut waiting) = (Vec::new(), Vec::new(), Vec::new());
        let mut take = |told: AuditMessage| match told {
            AuditMessage::Event(deed) => deeds.push(deed),
            AuditMessage::TokensSpent(space, tokens) => spent.push((space, tokens)),
            AuditMessage::Flush(done) => waiting.push(done),
        };
        let is_urgent = matches!(first, AuditMessage::Flush(_));
        take(first);
        if !is_urgent {
            tokio::time::sleep(AUDIT_BATCH_DELAY).await;
        }
        for _ in 0..AUDIT_BATCH_LEN {
            let Ok(more) = heard.try_recv() else { break };
            take(more);
        }
        let mut tries = 0;
        while let Err(error) = write_audit_batch(&database, &mut deeds, &mut spent, &log).await {
            tries += 1;
            if tries >= MAX_AUDIT_ATTEMPTS {
                log(&format!(
                    "{} audit events could not be written and are lost: {error}",
                    deeds.len()
                ));
                break;
            }
            tokio::time::sleep(AUDIT_RETRY_DELAY).await;
        }
        for done in waiting {
            let _ = done.send(());
        }
    }
}

/// Writes the events and token counts, and clears what was written.
async fn write_audit_batch(
    database: &Arc<Postgres>,
    deeds: &mut Vec<AuditEvent>,
    spent: &mut Vec<(String, u64)>,
    log: &LogFn,
) -> Result<()> {
    let tell = |unfit: usize, what: &str| {
        if unfit > 0 {
            log(&format!(
                "{unfit} {what}, because their names are not valid, and are lost; this is a bug"
            ));
        }
    };
    if !deeds.is_empty() {
        tell(database.record_audit_events(deeds).await?, "audit events could not be written");
        deeds.clear();
    }
    if !spent.is_empty() {
        tell(database.add_model_tokens(spent).await?, "counts of model tokens could not be stored");
        spent.clear();
    }
    Ok(())
}

/// The seconds until the next day in UTC.
fn secs_until_tomorrow(now: Timestamp) -> u64 {
    const DAY_SECS: i64 = 86_400;
    u64::try_from(DAY_SECS - now.as_second().rem_euclid(DAY_SECS)).unwrap_or(1)
}

/// The caller of an administrative operation, for the audit log.
#[derive(Debug, Clone)]
pub struct Actor {
    /// The id of the token.
    pub token: String,
    /// The interface that was used.
    pub interface: &'static str,
    /// The caller's name, as far as it is known.
    pub who: String,
    pub now: Timestamp,
}

impl Actor {
    /// The audit event for what the caller did.
    pub fn audit_event(&self, space: &str, verb: &str, what: &str) -> AuditEvent {
        AuditEvent {
            at: self.now,
            space: space.into(),
            token: self.token.clone(),
            interface: self.interface.into(),
            who: self.who.clone(),
            action: verb.into(),
            target: what.into(),
            status: 200,
        }
    }
}

/// A new token and its secret. The secret is shown once and never stored.
pub struct IssuedToken {
    pub token: AccessToken,
    pub secret: String,
}

fn random_hex<const MANY: usize>() -> Result<String> {
    let mut bytes = [0_u8; MANY];
    getrandom::fill(&mut bytes)
        .map_err(|error| anyhow::anyhow!("the system gives no random numbers: {error}"))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// The properties of a new token.
#[derive(Debug, Clone)]
pub struct TokenRequest {
    /// The end user whose space it is bound to.
    pub user: Option<String>,
    pub rights: Vec<Permission>,
    pub lasts: Option<SignedDuration>,
    pub label: String,
}

/// Issues a token.
pub async fn add_token(
    postgres: &DatabaseStore,
    wanted: TokenRequest,
    by: &Actor,
) -> Result<IssuedToken> {
    let rights = Permissions::of(wanted.rights);
    if rights == Permissions::NONE {
        return Err(AppError::new(
            Exit::Usage,
            "a token needs a scope: read, write, proxy or admin",
        )
        .into());
    }
    if wanted.lasts.is_some_and(|lasts| lasts.is_zero()) {
        return Err(AppError::new(
            Exit::Usage,
            "a token cannot expire at once; give a duration such as 90d",
        )
        .into());
    }
    let user = wanted.user.map(|name| call::parse_user_name(&name)).transpose()?;
    let scopes = rights.names().into_iter().map(Into::into).collect();
    let made = new_token(
        postgres.space_name(user.as_deref()),
        wanted.label,
        scopes,
        wanted.lasts,
        by.now,
    )?;
    let deed =
        by.audit_event(&made.token.space, "token add", &format!("{} {rights}", made.token.id));
    postgres.database.add_token(&made.token, Hash::of(made.secret.as_bytes()), &deed).await?;
    Ok(made)
}

fn new_token(
    space: String,
    label: String,
    scopes: Vec<String>,
    lasts: Option<SignedDuration>,
    now: Timestamp,
) -> Result<IssuedToken> {
    if label.len() > MAX_LABEL_BYTES || label.chars().any(char::is_control) {
        return Err(AppError::new(
            Exit::Usage,
            format!("a label has at most {MAX_LABEL_BYTES} bytes and no control characters"),
        )
        .into());
    }
    let token = AccessToken {
        id: random_hex::<8>()?,
        space,
        label,
        scopes,
        created: now,
        expires: expiry_after(now, lasts)?,
        revoked: None,
        last_used: None,
    };
    Ok(IssuedToken { token, secret: format!("{TOKEN_PREFIX}{}", random_hex::<SECRET_BYTES>()?) })
}

/// The moment that lies `lasts` after now.
fn expiry_after(now: Timestamp, lasts: Option<SignedDuration>) -> Result<Option<Timestamp>> {
    let end = lasts.map(|lasts| now.checked_add(lasts)).transpose();
    Ok(end.map_err(|_| AppError::new(Exit::Usage, "the duration is too long"))?)
}

/// Reads the token with this id, or fails.
async fn find_token(postgres: &DatabaseStore, id: &str) -> Result<AccessToken> {
    let missing = || {
        AppError::new(
            Exit::NotFound,
            format!(
                "there is no token {}; `icecore db token list` lists all tokens",
                call::quote_input(id)
            ),
        )
    };
    Ok(postgres.database.find_token(&postgres.name, id.trim()).await?.ok_or_else(missing)?)
}

fn ended_token_error(id: &str) -> anyhow::Error {
    AppError::new(
        Exit::Conflict,
        format!(
            "the token {} has expired or was revoked; create another with `icecore db token add`",
            call::quote_input(id)
        ),
    )
    .into()
}

/// Replaces a token. The old one stays valid for the grace period or ends at once; the new one has
/// the same lifetime, counted from now.
pub async fn rotate_token(
    postgres: &DatabaseStore,
    id: &str,
    grace: SignedDuration,
    by: &Actor,
) -> Result<IssuedToken> {
    let old = find_token(postgres, id).await?;
    let lasts = old.expires.map(|end| end.duration_since(old.created));
    let new = new_token(old.space.clone(), old.label.clone(), old.scopes.clone(), lasts, by.now)?;
    let until = expiry_after(by.now, Some(grace).filter(|grace| *grace > SignedDuration::ZERO))?;
    let deed = by.audit_event(&old.space, "token rotate", &format!("{} {}", old.id, new.token.id));
    match postgres
        .database
        .rotate_token(&old, until, &new.token, Hash::of(new.secret.as_bytes()), &deed)
        .await?
    {
        RotationOutcome::Replaced => Ok(new),
        RotationOutcome::Expired => Err(ended_token_error(id)),
        RotationOutcome::AlreadyReplaced { new } => {
            let said = format!(
                "the token {} was already rotated; rotate its successor {new} instead",
                call::quote_input(id)
            );
            Err(AppError::new(Exit::Conflict, said).into())
        }
    }
}

/// Revokes a token.
pub async fn revoke_token(postgres: &DatabaseStore, id: &str, by: &Actor) -> Result<AccessToken> {
    let token = find_token(postgres, id).await?;
    if !postgres
        .database
        .revoke_token(&token, &by.audit_event(&token.space, "token revoke", &token.id))
        .await?
    {
        return Err(ended_token_error(id));
    }
    Ok(token)
}

/// Deletes an end user's space with everything in it; false if there is none.
pub async fn erase_user_space(postgres: &DatabaseStore, user: &str, by: &Actor) -> Result<bool> {
    let space = postgres.space_name(Some(user));
    Ok(postgres
        .database
        .erase_space_audited(&space, &by.audit_event(&space, "space erase", user))
        .await?)
}

/// Deletes a store: the spaces of all end users, then the main space, with every token and limit.
/// If it is interrupted, calling it again continues.
pub async fn erase_store(postgres: &DatabaseStore, by: &Actor) -> Result<usize> {
    let mut erased = 0;
    loop {
        // Tokens of users without a space are not deleted with a space.
        let known = postgres.database.list_tokens(&postgres.name, None, i64::MAX).await?;
        for token in known.iter().filter(|token| token.revoked.is_none()) {
            postgres
                .database
                .revoke_token(token, &by.audit_event(&token.space, "token revoke", &token.id))
                .await?;
        }
        for space in postgres.database.list_spaces_below(&postgres.name).await? {
            let user = postgres.user_of(&space).ok().flatten().unwrap_or_default();
            erased += usize::from(
                postgres
                    .database
                    .erase_space_audited(&space, &by.audit_event(&space, "space erase", user))
                    .await?,
            );
        }
        set_quota(postgres, None, &Quota::default(), by).await?;
        // The main space last: without it an interrupted call could not be repeated. A running
        // server may have created another user's space meanwhile.
        postgres
            .database
            .erase_space_audited(
                &postgres.name,
                &by.audit_event(&postgres.name, "space erase", &postgres.name),
            )
            .await?;
        if postgres.database.list_spaces_below(&postgres.name).await?.is_empty() {
            return Ok(erased);
        }
    }
}

/// The limits of an end user's space, or the defaults for all spaces.
pub async fn read_quota(postgres: &DatabaseStore, user: Option<&str>) -> Result<Quota> {
    Ok(postgres.database.space_quota(&quota_key(postgres, user)).await?)
}

fn quota_key(database: &DatabaseStore, user: Option<&str>) -> String {
    user.map_or_else(|| all_spaces_of(&database.name), |user| database.space_name(Some(user)))
}

/// Sets the limits of an end user's space, or the defaults.
pub async fn set_quota(
    postgres: &DatabaseStore,
    user: Option<&str>,
    quota: &Quota,
    by: &Actor,
) -> Result<()> {
    let what = format!(
        "requests_per_minute={} messages_per_day={} bytes={} model_tokens_per_day={}",
        format_limit(quota.requests_per_minute),
        format_limit(quota.messages_per_day),
        format_limit(quota.bytes),
        format_limit(quota.model_tokens_per_day)
    );
    let space = quota_key(postgres, user);
    Ok(postgres.database.set_quota(&space, quota, &by.audit_event(&space, "quota", &what)).await?)
}

/// A limit as written on the command line.
pub fn format_limit(limit: Option<QuotaLimit>) -> String {
    match limit {
        None => "default".into(),
        Some(QuotaLimit::Unlimited) => "none".into(),
        Some(QuotaLimit::AtMost(most)) => most.to_string(),
    }
}

/// Parses a limit: a number, `none`, or `default` for the store's default.
pub fn parse_limit(text: &str) -> Result<Option<QuotaLimit>, String> {
    match text.trim().to_ascii_lowercase().as_str() {
        "default" => Ok(None),
        "none" => Ok(Some(QuotaLimit::Unlimited)),
        number => match number.replace(['_', ','], "").parse::<u64>() {
            Ok(most) if i64::try_from(most).is_ok() => Ok(Some(QuotaLimit::AtMost(most))),
            _ => {
                Err("write a number, `none` for no limit, or `default` for the store's default"
                    .into())
            }
        },
    }
}

/// Parses a limit of requests per minute, where zero means none, as in the settings.
pub fn parse_request_limit(text: &str) -> Result<Option<QuotaLimit>, String> {
    parse_limit(text).map(|limit| {
        if limit == Some(QuotaLimit::AtMost(0)) { Some(QuotaLimit::Unlimited) } else { limit }
    })
}

/// Parses a duration: 90d, 12h, 30m, 45s.
pub fn parse_duration(text: &str) -> Result<SignedDuration, String> {
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
pub fn parse_since(text: &str, now: Timestamp) -> Result<Timestamp> {
    if let Ok(ago) = parse_duration(text) {
        return Ok(now.checked_sub(ago).unwrap_or(Timestamp::MIN));
    }
    match text.trim().parse() {
        Ok(moment) => Ok(moment),
        Err(_) => bail!(AppError::new(
            Exit::Usage,
            "`since` must be a timestamp such as 2026-02-13T09:30:00Z or a duration such as 90d, 12h or 30m"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use icecore_store::postgres::PostgresOptions;

    #[test]
    fn a_bucket_lets_so_many_through_in_a_minute() {
        let mut bucket = RateBucket { filled: f64::MAX, at: 0 };
        let through = (0..100).filter(|_| bucket.try_take(1_000, 60).is_none()).count();
        assert_eq!(through, 60);
        assert_eq!(bucket.try_take(1_000, 60), Some(1));
        assert_eq!((bucket.try_take(2_000, 60), bucket.try_take(2_000, 60)), (None, Some(1)));
        // However long no request comes, the bucket holds no more than its capacity.
        assert_eq!((0..100).filter(|_| bucket.try_take(9_000_000, 60).is_none()).count(), 60);
        let mut slow = RateBucket { filled: f64::MAX, at: 0 };
        assert_eq!(
            (
                slow.try_take(0, 1),
                slow.try_take(0, 1),
                slow.try_take(30_000, 1),
                slow.try_take(60_000, 1)
            ),
            (None, Some(60), Some(30), None)
        );
        assert_eq!(RateBucket { filled: f64::MAX, at: 0 }.try_take(0, 0), Some(60));
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
            assert_eq!(parse_duration(text), Ok(SignedDuration::from_secs(seconds)), "{text}");
        }
        for wrong in
            ["", "90", "d", "-1d", "1.5h", "99999999999999999999d", "9223372036854775807w", "soon"]
        {
            assert!(parse_duration(wrong).is_err(), "{wrong}");
        }
        assert_eq!(
            (parse_limit("none"), parse_limit("default"), parse_limit("10_000")),
            (Ok(Some(QuotaLimit::Unlimited)), Ok(None), Ok(Some(QuotaLimit::AtMost(10_000))))
        );
        assert_eq!(
            (parse_limit("0"), parse_request_limit("0"), parse_request_limit("60")),
            (
                Ok(Some(QuotaLimit::AtMost(0))),
                Ok(Some(QuotaLimit::Unlimited)),
                Ok(Some(QuotaLimit::AtMost(60)))
            )
        );
        assert!(
            parse_limit("-1").is_err()
                && parse_limit("99999999999999999999").is_err()
                && parse_limit("18446744073709551615").is_err()
        );
        let now: Timestamp = "2026-02-13T10:00:00Z".parse().unwrap();
        assert_eq!(parse_since("2h", now).unwrap().to_string(), "2026-02-13T08:00:00Z");
        assert_eq!(
            parse_since("2026-02-13T10:00:00+01:00", now).unwrap().to_string(),
            "2026-02-13T09:00:00Z"
        );
        assert!(parse_since("yore", now).is_err());
        assert_eq!(
            (
                secs_until_tomorrow(now),
                secs_until_tomorrow("2026-02-13T23:59:59Z".parse().unwrap())
            ),
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

        fn elapsed_millis(&self) -> u64 {
            self.0.load(Ordering::Relaxed)
        }
    }

    /// An access control whose database accepts connections but never answers, and the number of
    /// connections.
    async fn silent() -> (Arc<AccessControl>, Arc<Hand>, Arc<AtomicU64>) {
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
        let home = DatabaseStore {
            database: Postgres::for_url(&url, PostgresOptions::default()).unwrap(),
            name: "h".into(),
        };
        let clock = Arc::new(Hand::default());
        clock.0.store(100_000, Ordering::Relaxed);
        (AccessControl::new(home, 60, clock.clone(), Arc::new(|_: &str| {})), clock, taken)
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn who_hangs_up_while_it_is_asked_how_a_space_stands_leaves_it_to_the_next() {
        let (access, _, _) = silent().await;
        let known = CachedSpace {
            standing: Some(QuotaUsage::default()),
            at: 1,
            asking: false,
            bucket: RateBucket { filled: 0.0, at: 0 },
        };
        access.spaces.lock().unwrap().insert("h/ann".into(), known);
        let patience = Duration::from_millis(200);
        for _ in 0..3 {
            // The lookup takes longer than the caller waits.
            assert!(
                tokio::time::timeout(patience, access.lookup_usage(Some("ann"))).await.is_err()
            );
        }
        // While one request looks it up, the others use the cached value.
        let asking = access.clone();
        let one = tokio::spawn(async move { asking.lookup_usage(Some("ann")).await });
        tokio::time::sleep(patience).await;
        assert_eq!(
            tokio::time::timeout(patience, access.lookup_usage(Some("ann"))).await,
            Ok(Ok(QuotaUsage::default()))
        );
        one.abort();
    }

    #[tokio::test]
    async fn a_space_whose_quota_was_never_looked_up_is_not_let_in_while_it_cannot_be() {
        // A database that does not run.
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("postgres://icecore@{}/icecore", listener.local_addr().unwrap());
        drop(listener);
        let home = DatabaseStore {
            database: Postgres::for_url(&url, PostgresOptions::default()).unwrap(),
            name: "h".into(),
        };
        let clock = Arc::new(Hand::default());
        clock.0.store(100_000, Ordering::Relaxed);
        let access = AccessControl::new(home, 60, clock.clone(), Arc::new(|_: &str| {}));
        for takes in [QuotaClass::Compute, QuotaClass::Storage, QuotaClass::Model] {
            assert_eq!(access.admit(Some("ann"), takes).await, Err(AdmissionError::UnknownQuota));
            assert_eq!(
                access.check_quota(Some("ann"), takes).await,
                Err(AdmissionError::UnknownQuota)
            );
        }
        // The last known values apply, however old they are.
        let standing = QuotaUsage {
            messages: 5,
            quota: Quota { messages_per_day: Some(QuotaLimit::AtMost(5)), ..Quota::default() },
            ..QuotaUsage::default()
        };
        let bucket = RateBucket { filled: f64::MAX, at: 0 };
        access.spaces.lock().unwrap().insert(
            "h/ben".into(),
            CachedSpace { standing: Some(standing), at: 1, asking: false, bucket },
        );
        assert_eq!(access.admit(Some("ben"), QuotaClass::Compute).await, Ok(()));
        assert!(
            matches!(access.admit(Some("ben"), QuotaClass::Storage).await, Err(AdmissionError::QuotaExceeded(over)) if over.limit == "messages_per_day")
        );
        access.invalidate_cache();
        assert_eq!(access.admit(Some("ben"), QuotaClass::Compute).await, Ok(()));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn lookups_of_unknown_tokens_leave_the_database_to_the_others() {
        let (access, clock, taken) = silent().await;
        let asking: Vec<_> = (0..=u8::MAX)
            .map(|n| {
                let access = access.clone();
                tokio::spawn(async move { access.lookup_grant([n; 32]).await })
            })
            .collect();
        tokio::time::sleep(Duration::from_millis(500)).await;
        // Rejected callers get the answer at once, and do not learn about the database.
        let told: Vec<_> = asking.into_iter().filter(|one| one.is_finished()).collect();
        assert!(told.len() >= usize::from(u8::MAX) - MAX_QUEUED_LOOKUPS, "{}", told.len());
        for one in told {
            let said = one.await.unwrap().unwrap_err().to_string();
            assert_eq!(said, "your token cannot be checked now; retry in a moment");
        }
        let strangers = taken.load(Ordering::Relaxed);
        assert!(
            strangers <= MAX_UNKNOWN_LOOKUPS as u64,
            "{strangers} connections for tokens that nobody has shown before"
        );
        // A caller with a cached token is served meanwhile.
        let grant = Arc::new(Grant::read_only());
        access
            .lock_tokens()
            .good
            .insert([9; 32], (grant.clone(), clock.elapsed_millis() - LOOKUP_CACHE_MS));
        let known = access.clone();
        let known = tokio::spawn(async move { known.lookup_grant([9; 32]).await });
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert!(!known.is_finished() && taken.load(Ordering::Relaxed) > strangers);
        known.abort();
        // Cached results need no lookup.
        access.lock_tokens().insert([9; 32], Some(grant.clone()), clock.elapsed_millis());
        access.lock_tokens().insert([8; 32], None, clock.elapsed_millis());
        assert_eq!(
            (
                access.lookup_grant([9; 32]).await.unwrap(),
                access.lookup_grant([8; 32]).await.unwrap()
            ),
            (Some(grant), None)
        );
    }

    #[test]
    fn however_many_are_not_good_those_that_are_stay_known() {
        let (mut tokens, grant) = (TokenCache::default(), Arc::new(Grant::read_only()));
        tokens.insert([7; 32], Some(grant.clone()), 0);
        for n in 0..3 * MAX_CACHE_ENTRIES {
            tokens.insert(*Hash::of(&n.to_le_bytes()).as_bytes(), None, 0);
        }
        assert!(tokens.bad.len() <= MAX_CACHE_ENTRIES);
        assert_eq!(tokens.get(&[7; 32], LOOKUP_CACHE_MS - 1), Some(Some(grant)));
        assert_eq!(tokens.get(&[7; 32], LOOKUP_CACHE_MS), None);
        tokens.insert([7; 32], None, LOOKUP_CACHE_MS);
        assert_eq!(tokens.get(&[7; 32], LOOKUP_CACHE_MS), Some(None), "it was revoked");
    }

    #[test]
    fn only_what_looks_like_a_token_is_looked_up() {
        let made = new_token(
            "default".into(),
            String::new(),
            vec!["read".into()],
            None,
            Timestamp::UNIX_EPOCH,
        )
        .unwrap()
        .secret;
        assert!(is_token_format(made.as_bytes()));
        for wrong in [
            "",
            "x",
            TOKEN_PREFIX,
            &made[1..],
            &made[..made.len() - 1],
            &format!("{made}0"),
            &made.to_uppercase(),
            &made.replace('_', "-"),
        ] {
            assert!(!is_token_format(wrong.as_bytes()), "{wrong}");
        }
        assert!(
            !is_token_format(format!("{TOKEN_PREFIX}{}", "g".repeat(64)).as_bytes())
                && !is_token_format(&[0xff; 72])
        );
    }

    #[test]
    fn a_token_is_long_and_never_the_same() {
        let make = || {
            new_token(
                "default".into(),
                String::new(),
                vec!["read".into()],
                None,
                Timestamp::UNIX_EPOCH,
            )
            .unwrap()
        };
        let (one, other) = (make(), make());
        assert!(
            one.secret.len() == TOKEN_PREFIX.len() + 64 && one.secret.starts_with(TOKEN_PREFIX)
        );
        assert!(
            one.secret != other.secret
                && one.token.id != other.token.id
                && !one.secret.contains(&one.token.id)
        );
    }
}
