//! The PostgreSQL backend: many memories in one database, for many processes on many machines.
//!
//! The layout follows the vault. Documents are the source of truth, byte for byte; derived rows are
//! written in the same transaction, so the two never diverge. A space is one person's memory. Every
//! transaction uses a role that sees only the space it has named.

mod access;
mod address;
mod cache;
mod catalog;
mod documents;
mod errors;
mod events;
pub mod jobs;
mod leases;
mod ledger;
mod login;
mod machine_merge;
mod maintenance;
mod migrate;
mod notes;
mod records;
mod restore;
mod scrub;
mod search;
mod search_index;
mod snapshots;
mod summaries;
mod transaction;
mod turn_leases;
mod vectors;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use deadpool_postgres::{Manager, ManagerConfig, Object, Pool, PoolError, RecyclingMethod};
use icecore_domain::hash::Hash;
use tokio::runtime::{Handle, Runtime};
use tokio_postgres::Config;
use uuid::Uuid;

pub use self::access::{
    AccessToken, AuditEntry, AuditEvent, Quota, QuotaLimit, QuotaUsage, RotationOutcome,
    TokenGrant, all_spaces_of,
};
pub use self::migrate::{MigrationPlan, MigrationStep};
use self::transaction::Tx;

use self::errors::{AddressOptions, is_transient, map_connect_error, map_query_error};
use self::transaction::{timeout_error, within};
use crate::{Error, ErrorKind, Result};

/// How a process uses the database.
#[derive(Debug, Clone, Copy)]
pub struct PostgresOptions {
    /// The size of the connection pool.
    pub max_connections: usize,
    /// How long to wait for a connection, reconnects included.
    pub connect_timeout: Duration,
    /// The limit for one statement.
    pub statement_timeout: Duration,
    /// How long to wait for a lock of another transaction.
    pub lock_timeout: Duration,
    /// How long a job lease lasts without a renewal.
    pub lease_duration: Duration,
    /// From this many passages on, the database selects the nearest vectors instead of returning
    /// the signs of all.
    pub nearest_query_min_passages: u32,
}

impl Default for PostgresOptions {
    fn default() -> Self {
        Self {
            max_connections: 16,
            connect_timeout: Duration::from_secs(10),
            statement_timeout: Duration::from_secs(60),
            lock_timeout: Duration::from_secs(10),
            lease_duration: Duration::from_secs(15),
            nearest_query_min_passages: 20_000,
        }
    }
}

/// The first pause before a reconnect; each is twice as long as the one before.
const FIRST_RETRY_PAUSE: Duration = Duration::from_millis(20);
const MAX_RETRY_PAUSE: Duration = Duration::from_secs(1);
/// How much longer than the statement limit to wait for an answer: a machine without power does not
/// close connections.
const ANSWER_GRACE: Duration = Duration::from_secs(5);
/// The longest name of a space, in bytes.
pub const MAX_NAME_BYTES: usize = 600;
/// How often to try an erasure that conflicts with writers.
const MAX_ERASE_ATTEMPTS: usize = 20;
/// The number of space names to read at once.
const NAMES_PER_PAGE: i64 = 1_000;

/// A database with memories.
pub struct Postgres {
    pool: Pool,
    config: Config,
    options: PostgresOptions,
    address_options: AddressOptions,
    /// The runtime that drives connections, because callers may have none.
    runtime: Option<Runtime>,
    /// The database for display, never with the password.
    display_name: String,
    cache: cache::DocumentCache,
    search: search::SearchCache,
    waits: AtomicU64,
    failures: AtomicU64,
    releases: leases::PendingReleases,
}

/// The state of the connection pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolStats {
    /// The limit of connections.
    pub max_size: usize,
    /// Open connections.
    pub open: usize,
    /// Connections in use.
    pub in_use: usize,
    /// Callers that wait for a connection now.
    pub waiting: usize,
    /// How often a caller found no free connection, so far.
    pub waits: u64,
    /// How often a caller got no connection in time, so far.
    pub timeouts: u64,
}

/// Identifies a space and its settings; differs if the space was recreated or must be reopened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpaceFingerprint {
    life: Uuid,
    /// A number that changes whenever the policy or a prompt is changed, added or removed.
    settings: Option<i64>,
}

impl SpaceFingerprint {
    /// Whether it is the same space, regardless of changed settings.
    pub fn is_same_space(&self, other: &Self) -> bool {
        self.life == other.life
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // The caller that drops this may not be blocked.
        if let Some(threads) = self.runtime.take() {
            threads.shutdown_background();
        }
    }
}

impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Postgres({})", self.display_name)
    }
}

impl Postgres {
    /// Prepares the use of the database at `url`, such as `postgres://user:password@host/name`,
    /// without connecting.
    pub fn for_url(url: &str, options: PostgresOptions) -> Result<Arc<Self>> {
        let wrong = |why: String| Error::unreachable("the database".into(), why);
        let mut config = address::parse(url)?;
        // Generic plans made while a table was nearly empty scan a whole space and would stay while
        // the table grows. And the queries are small, however large the tables: JIT compilation or
        // parallel workers would take longer than the query.
        let settings = format!(
            "-c statement_timeout={} -c lock_timeout={} -c idle_in_transaction_session_timeout={} -c timezone=UTC \
             -c plan_cache_mode=force_custom_plan -c jit=off -c max_parallel_workers_per_gather=0",
            options.statement_timeout.as_millis(),
            options.lock_timeout.as_millis(),
            options.statement_timeout.as_millis()
        );
        let own = config.get_options().map(|own| format!("{own} {settings}")).unwrap_or(settings);
        config
            .options(own)
            .keepalives_idle(Duration::from_secs(30))
            .tcp_user_timeout(options.statement_timeout);
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(Duration::from_secs(5));
        }
        if config.get_application_name().is_none() {
            config.application_name("icecore");
        }
        let place = address::display_name(&config);
        let demands = AddressOptions::from_config(&mut config);
        let threads = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("postgres")
            .enable_all()
            .build()
            .map_err(|error| wrong(error.to_string()))?;
        let tls = tls_or_error()?;
        let manager = Manager::from_config(
            config.clone(),
            tls,
            ManagerConfig { recycling_method: RecyclingMethod::Fast },
        );
        let pool = Pool::builder(manager)
            .max_size(options.max_connections)
            .runtime(deadpool_postgres::Runtime::Tokio1)
            .build()
            .map_err(|error| wrong(error.to_string()))?;
        Ok(Arc::new(Self {
            pool,
            config,
            options,
            address_options: demands,
            runtime: Some(threads),
            display_name: place,
            cache: cache::DocumentCache::default(),
            search: search::SearchCache::default(),
            waits: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            releases: leases::PendingReleases::default(),
        }))
    }

    /// The database for display, without the password.
    pub fn display_name(&self) -> &str {
        &self.display_name
    }

    fn runtime_handle(&self) -> Result<&Handle> {
        self.runtime
            .as_ref()
            .map(Runtime::handle)
            .ok_or_else(|| Error::database("the program is stopping".into()))
    }

    /// Gets a connection. Retries until `connect_timeout` while the database cannot be reached.
    async fn connection(&self) -> Result<Object> {
        let (pool, patience, demands) =
            (self.pool.clone(), self.options.connect_timeout, self.address_options);
        let figures = self.pool_stats();
        if figures.in_use >= figures.max_size {
            self.waits.fetch_add(1, Ordering::Relaxed);
        }
        let getting = async move {
            // One deadline for everything: a machine that does not even refuse delays every
            // attempt.
            let deadline = tokio::time::Instant::now() + patience;
            let mut pause = FIRST_RETRY_PAUSE;
            loop {
                match tokio::time::timeout_at(deadline, pool.get()).await {
                    Ok(Err(PoolError::Backend(error))) if is_transient(&error, demands) => {
                        if tokio::time::timeout_at(deadline, tokio::time::sleep(pause))
                            .await
                            .is_err()
                        {
                            return Some(Err(PoolError::Backend(error)));
                        }
                        pause = (pause * 2).min(MAX_RETRY_PAUSE);
                    }
                    Ok(got) => return Some(got),
                    Err(_) => return None,
                }
            }
        };
        let got = self.runtime_handle()?.spawn(getting).await;
        if !matches!(got, Ok(Some(Ok(_)))) {
            self.failures.fetch_add(1, Ordering::Relaxed);
        }
        let unreachable = |why: String| Error::unreachable(self.display_name.clone(), why);
        match got {
            Ok(Some(Ok(client))) => Ok(client),
            Ok(Some(Err(PoolError::Backend(error)))) => {
                Err(map_connect_error(&self.display_name, &error, self.address_options))
            }
            Ok(Some(Err(error))) => Err(unreachable(error.to_string())),
            // All connections of the pool are open and in use, or none could be opened.
            Ok(None) if self.pool_stats().open >= figures.max_size => {
                Err(Error::overload(format!("{} has no connection free", self.display_name)))
            }
            Ok(None) => {
                Err(unreachable(format!("it has not answered for {} s", patience.as_secs_f64())))
            }
            Err(_) => Err(unreachable("the program is stopping".into())),
        }
    }

    /// How long the database may take to start a transaction.
    fn begin_timeout(&self) -> Duration {
        self.options.connect_timeout.max(ANSWER_GRACE)
    }

    /// Begins a transaction that sees one space, or none. Writers to a space use [`Space::begin`].
    async fn begin(&self, space: Option<Uuid>) -> Result<Tx> {
        self.begin_with(space, "", "").await
    }

    /// Begins a transaction with this mode and calls `first` at once. Everything goes in one
    /// message, also the check that this program is new enough for the tables: a migration can make
    /// it too old while it runs.
    async fn begin_with(&self, space: Option<Uuid>, mode: &str, first: &str) -> Result<Tx> {
        let threads = self.runtime_handle()?.clone();
        let named = space.map(|space| space.to_string()).unwrap_or_default();
        let begin = format!(
            "BEGIN {mode}; SET LOCAL ROLE icecore_app; SET LOCAL icecore.space = '{named}'; SELECT icecore.require_known({}){first}",
            migrate::MIGRATION_COUNT
        );
        loop {
            // If this future is dropped, `Tx` rolls the transaction back.
            let mut tx = Tx {
                client: Some(self.connection().await?),
                pool: self.pool.clone(),
                threads: threads.clone(),
                limit: self.options.statement_timeout + ANSWER_GRACE,
                has_timed_out: AtomicBool::new(false),
            };
            match within(&threads, self.begin_timeout(), tx.client().batch_execute(&begin)).await {
                Some(Ok(())) => return Ok(tx),
                // Rejected, and rolled back like any other.
                Some(Err(error)) if error.as_db_error().is_some() => {
                    return Err(map_query_error(error));
                }
                Some(Err(error)) => {
                    // The connection may be inside a transaction: it must not be reused.
                    drop(tx.client.take().map(Object::take));
                    // The connection broke while idle, before anything was done; try another one.
                    if !error.is_closed() {
                        return Err(map_query_error(error));
                    }
                }
                None => {
                    tx.has_timed_out.store(true, Ordering::Relaxed);
                    return Err(timeout_error(self.begin_timeout()));
                }
            }
        }
    }

    /// Opens the space of that name; `None` if it does not exist.
    pub async fn open_space(self: &Arc<Self>, name: &str) -> Result<Option<Arc<Space>>> {
        self.check_schema().await?;
        let id = space_id(name)?;
        let tx = self.begin(Some(id)).await?;
        let found = tx
            .query_opt(
                "SELECT life, filling IS NOT NULL FROM icecore.space WHERE space_id = $1",
                &[&id],
            )
            .await?;
        tx.commit().await?;
        match found {
            Some(row) if row.get(1) => Err(Error::restore_in_progress()),
            found => Ok(found.map(|row| Arc::new(self.space_handle(name, id, row.get(0))))),
        }
    }

    fn space_handle(self: &Arc<Self>, name: &str, id: Uuid, life: Uuid) -> Space {
        Space {
            database: self.clone(),
            id,
            life,
            name: name.to_owned(),
            filling: restore::RestoreState::default(),
        }
    }

    /// Creates a space with `config` as its policy.
    pub async fn create_space(self: &Arc<Self>, name: &str, config: &str) -> Result<Arc<Space>> {
        self.check_schema().await?;
        let id = space_id(name)?;
        let tx = self.begin(Some(id)).await?;
        let sql = "INSERT INTO icecore.space (space_id, name) VALUES ($1, $2) ON CONFLICT DO NOTHING RETURNING life";
        let Some(made) = tx.query_opt(sql, &[&id, &name]).await? else {
            return Err(Error::already_a_space(name.to_owned()));
        };
        let space = self.space_handle(name, id, made.get(0));
        space.create_initial_documents(&tx, config).await?;
        tx.commit().await?;
        Ok(Arc::new(space))
    }

    /// The names of the spaces after `after`, in order.
    pub async fn list_spaces(&self, after: &str, most: i64) -> Result<Vec<String>> {
        // PostgreSQL rejects NUL in text, also in comparisons.
        if after.contains('\0') {
            return Err(Error::invalid_space_name(after.chars().take(40).collect()));
        }
        self.check_schema().await?;
        let tx = self.begin(None).await?;
        let rows = tx.query("SELECT name FROM icecore.spaces($1, $2)", &[&after, &most]).await?;
        tx.commit().await?;
        Ok(rows.iter().map(|row| row.get(0)).collect())
    }

    /// The names of the spaces below a space, in order: those that start with its name and a slash.
    pub async fn list_spaces_below(&self, name: &str) -> Result<Vec<String>> {
        let beginning = format!("{name}/");
        let mut found: Vec<String> = Vec::new();
        loop {
            let after = found.last().unwrap_or(&beginning).clone();
            let more = self.list_spaces(&after, NAMES_PER_PAGE).await?;
            let many = more.len();
            let before = found.len();
            found.extend(more.into_iter().take_while(|name| name.starts_with(&beginning)));
            if many < usize::try_from(NAMES_PER_PAGE).unwrap_or(0) || found.len() < before + many {
                return Ok(found);
            }
        }
    }

    /// A cheap way to see whether a space is still the same; `None` if it does not exist.
    pub async fn space_fingerprint(
        self: &Arc<Self>,
        name: &str,
    ) -> Result<Option<SpaceFingerprint>> {
        const SQL: &str = "SELECT life, (SELECT bit_xor(hashtextextended(path, version)) FROM icecore.document WHERE space_id = $1 \
            AND (path = $2 OR (path >= 'prompts/' AND path < 'prompts0'))), filling IS NOT NULL FROM icecore.space WHERE space_id = $1";
        self.check_schema().await?;
        let id = space_id(name)?;
        let tx = self.begin(Some(id)).await?;
        let found = tx.query_opt(SQL, &[&id, &icecore_domain::layout::CONFIG]).await?;
        tx.commit().await?;
        match found {
            Some(row) if row.get(2) => Err(Error::restore_in_progress()),
            found => {
                Ok(found.map(|row| SpaceFingerprint { life: row.get(0), settings: row.get(1) }))
            }
        }
    }

    /// The state of the connection pool.
    pub fn pool_stats(&self) -> PoolStats {
        let status = self.pool.status();
        PoolStats {
            max_size: status.max_size,
            open: status.size,
            in_use: status.size.saturating_sub(status.available),
            waiting: status.waiting,
            waits: self.waits.load(Ordering::Relaxed),
            timeouts: self.failures.load(Ordering::Relaxed),
        }
    }

    /// Checks that the database answers, has the tables this program needs, and accepts writes.
    pub async fn check_ready(&self) -> Result<()> {
        check_plan(&self.migration_plan().await?)?;
        self.check_writable().await
    }

    /// Fails for a standby, or a primary that is read-only: it would answer queries and reject
    /// writes.
    pub async fn check_writable(&self) -> Result<()> {
        let client = self.connection().await?;
        let sql = "SELECT pg_is_in_recovery(), current_setting('transaction_read_only') = 'on'";
        let row = client.query_one(sql, &[]).await.map_err(map_query_error)?;
        let (is_standby, is_read_only) = (row.get::<_, bool>(0), row.get::<_, bool>(1));
        let why = match (is_standby, is_read_only) {
            (true, _) => "it is a standby",
            (false, true) => "it is set to read only (`default_transaction_read_only`)",
            (false, false) => return Ok(()),
        };
        Err(Error::read_only(self.display_name.clone(), is_standby, why.into()))
    }

    /// Erases a space with everything in it; false if it does not exist.
    pub async fn erase_space(self: &Arc<Self>, name: &str) -> Result<bool> {
        self.erase_with_audit(name, None).await
    }

    /// Erases a space and records `deed` in the same transaction.
    async fn erase_with_audit(
        self: &Arc<Self>,
        name: &str,
        event: Option<&AuditEvent>,
    ) -> Result<bool> {
        self.check_schema().await?;
        let (id, mut tries) = (space_id(name)?, 0);
        loop {
            let tx = self.begin(Some(id)).await?;
            // A space with an unfinished restore is erased too.
            if tx
                .query_opt("SELECT FROM icecore.space WHERE space_id = $1", &[&id])
                .await?
                .is_none()
            {
                return Ok(false);
            }
            let taken = async {
                tx.query("SELECT icecore.erase()", &[]).await?;
                match event {
                    Some(event) => self.record_audit(&tx, event).await,
                    None => Ok(()),
                }
            };
            let erased = match taken.await {
                Ok(()) => tx.commit().await,
                Err(error) => Err(error),
            };
            match erased {
                Err(Error { kind: ErrorKind::Conflict, .. }) if tries < MAX_ERASE_ATTEMPTS => {
                    tries += 1
                }
                other => return other.map(|()| true),
            }
        }
    }

    /// Checks once that the database has the tables that this program needs.
    async fn check_schema(&self) -> Result<()> {
        if self.cache.is_schema_checked() {
            return Ok(());
        }
        check_plan(&self.migration_plan().await?)?;
        self.cache.set_schema_checked();
        Ok(())
    }
}

fn check_plan(plan: &MigrationPlan) -> Result<()> {
    if plan.applied == 0 {
        return Err(Error::schema(
            "it has no icecore tables yet; `icecore init --store …` creates them".into(),
        ));
    }
    match plan.pending.first() {
        None => Ok(()),
        Some(step) => Err(Error::schema(format!(
            "its tables lack step {} (`{}`); `icecore db migrate --store …` applies it",
            step.number, step.name
        ))),
    }
}

/// The id of the space of that name, whether it exists or not: the first half of the hash of the
/// name.
fn space_id(name: &str) -> Result<Uuid> {
    let is_plain = !name.is_empty()
        && name.len() <= MAX_NAME_BYTES
        && name.trim() == name
        && !name.chars().any(char::is_control);
    if !is_plain {
        return Err(Error::invalid_space_name(name.chars().take(40).collect()));
    }
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&Hash::of(name.as_bytes()).as_bytes()[..16]);
    Ok(uuid::Builder::from_custom_bytes(bytes).into_uuid())
}

/// One person's memory in a database. A space that is erased and created again under the same name
/// is another one, with another `life`.
#[derive(Debug)]
pub struct Space {
    database: Arc<Postgres>,
    id: Uuid,
    life: Uuid,
    name: String,
    filling: restore::RestoreState,
}

impl Space {
    /// The name of the space.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The database of the space.
    pub fn database(&self) -> &Arc<Postgres> {
        &self.database
    }

    /// Begins a write transaction. The space cannot be erased before it ends. Fails if the space is
    /// erased already or another process restores into it.
    async fn begin(&self) -> Result<Tx> {
        let filler =
            self.filling.holder().map_or("NULL".to_owned(), |filler| format!("'{filler}'"));
        self.database
            .begin_with(Some(self.id), "", &format!(", icecore.enter('{}', {filler})", self.life))
            .await
    }

    /// Begins a transaction that only reads and takes no locks.
    async fn begin_reading(&self) -> Result<Tx> {
        self.database.begin_with(Some(self.id), "READ ONLY", "").await
    }
}

fn tls_connector() -> std::result::Result<tokio_postgres_rustls::MakeRustlsConnect, rustls::Error> {
    use rustls_platform_verifier::BuilderVerifierExt as _;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?;
    Ok(tokio_postgres_rustls::MakeRustlsConnect::new(
        builder.with_platform_verifier()?.with_no_client_auth(),
    ))
}

fn tls_or_error() -> Result<tokio_postgres_rustls::MakeRustlsConnect> {
    let wrong = |why| {
        Error::unreachable("the database".into(), format!("certificates cannot be checked: {why}"))
    };
    tls_connector().map_err(wrong)
}
