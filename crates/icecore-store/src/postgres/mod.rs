//! PostgreSQL: many memories in one place, for many processes on many machines.
//!
//! The shape is the vault's. Documents are the truth, byte for byte; what is derived from them is written in the same transaction,
//! so the two never part. A space is one person's memory. Every transaction takes a role that sees only the space it has named.

mod access;
mod address;
mod cache;
mod documents;
mod history;
pub mod jobs;
mod ledger;
mod migrate;
mod order;
mod private;
mod records;
mod scrub;
mod search;
mod store;
mod summaries;

use std::fmt;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use deadpool_postgres::{Manager, ManagerConfig, Object, Pool, PoolError, RecyclingMethod, Timeouts};
use icecore_domain::hash::Hash;
use jiff::Timestamp;
use tokio::runtime::{Handle, Runtime};
use tokio::task::JoinHandle;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Config, Row};
use uuid::Uuid;

pub use self::access::{Deed, Limit, Noted, Quota, Rotated, Shown, Standing, Token, all_of};
pub use self::migrate::{Plan, Step};
use crate::{Error, Result};

/// How a process uses the database.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// So many connections at most.
    pub connections: usize,
    /// How long somebody waits for a connection, lost ones being made again meanwhile.
    pub patience: Duration,
    /// How long one statement may take.
    pub statement: Duration,
    /// How long somebody waits for a lock that another transaction holds.
    pub lock: Duration,
    /// From so many passages on the database says which are nearest in meaning, instead of giving out the signs of all.
    pub many_passages: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            connections: 16,
            patience: Duration::from_secs(10),
            statement: Duration::from_secs(60),
            lock: Duration::from_secs(10),
            many_passages: 20_000,
        }
    }
}

/// The first pause before a lost connection is made again; each is twice as long as the one before.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// The longest name of a space, in bytes.
pub const MAX_NAME_BYTES: usize = 600;
/// So often an erasure is tried that stands in each other's way with somebody who writes.
const ERASING: usize = 20;
/// So many names are read at once.
const NAMES: i64 = 1_000;

/// A database that memories live in.
pub struct Postgres {
    pool: Pool,
    config: Config,
    options: Options,
    /// Where connections are driven: callers may have no runtime of their own.
    threads: Option<Runtime>,
    /// For people: never with the password.
    place: String,
    cache: cache::Cache,
    search: search::Cache,
    waits: AtomicU64,
    failures: AtomicU64,
    /// Claims that are being given back.
    letting_go: Mutex<Vec<JoinHandle<()>>>,
}

/// How the connections are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Figures {
    /// So many there may be.
    pub most: usize,
    /// So many there are.
    pub open: usize,
    /// So many are in use.
    pub in_use: usize,
    /// So many wait for one now.
    pub waiting: usize,
    /// So often somebody found none free, so far.
    pub waits: u64,
    /// So often somebody got none, so far.
    pub failures: u64,
}

/// A space at a glance: other if it was made anew or is to be opened anew.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Glance {
    made: Timestamp,
    /// The last change of its policy and its prompts.
    settings: Option<i64>,
}

impl Glance {
    /// Whether it is the same space, whatever was changed in it.
    pub fn is_same_life(&self, other: &Self) -> bool {
        self.made == other.made
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // Whoever drops this may be somebody who must not be held up.
        if let Some(threads) = self.threads.take() {
            threads.shutdown_background();
        }
    }
}

impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Postgres({})", self.place)
    }
}

impl Postgres {
    /// Gets ready to use the database at `url`, such as `postgres://user:password@host/name`. Nothing is connected yet.
    pub fn at(url: &str, options: Options) -> Result<Arc<Self>> {
        let wrong = |why: String| Error::Unreachable { place: "the database".into(), why };
        let mut config = address::read(url)?;
        // A plan that was made while a table was all but empty, and reads all of a space, would be kept while the table grows. And
        // what is asked is small, however large the tables are: compiling it, or starting others to help, takes longer than doing it.
        let settings = format!(
            "-c statement_timeout={} -c lock_timeout={} -c idle_in_transaction_session_timeout={} -c timezone=UTC \
             -c plan_cache_mode=force_custom_plan -c jit=off -c max_parallel_workers_per_gather=0",
            options.statement.as_millis(),
            options.lock.as_millis(),
            options.statement.as_millis()
        );
        let own = config.get_options().map(|own| format!("{own} {settings}")).unwrap_or(settings);
        config.options(own).keepalives_idle(Duration::from_secs(30)).tcp_user_timeout(options.statement);
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(Duration::from_secs(5));
        }
        if config.get_application_name().is_none() {
            config.application_name("icecore");
        }
        let place = address::place(&config);
        let threads = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("postgres")
            .enable_all()
            .build()
            .map_err(|error| wrong(error.to_string()))?;
        let tls = tls_or_error()?;
        let manager = Manager::from_config(config.clone(), tls, ManagerConfig { recycling_method: RecyclingMethod::Fast });
        let pool = Pool::builder(manager)
            .max_size(options.connections)
            .timeouts(Timeouts { wait: Some(options.patience), create: Some(options.patience), recycle: Some(options.patience) })
            .runtime(deadpool_postgres::Runtime::Tokio1)
            .build()
            .map_err(|error| wrong(error.to_string()))?;
        Ok(Arc::new(Self {
            pool,
            config,
            options,
            threads: Some(threads),
            place,
            cache: cache::Cache::default(),
            search: search::Cache::default(),
            waits: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            letting_go: Mutex::default(),
        }))
    }

    /// What it is called, for people.
    pub fn place(&self) -> &str {
        &self.place
    }

    fn threads(&self) -> Result<&Handle> {
        self.threads.as_ref().map(Runtime::handle).ok_or_else(|| Error::Database("the program is stopping".into()))
    }

    /// A connection. While the database cannot be reached it is tried again, for as long as one is patient.
    async fn client(&self) -> Result<Object> {
        let (pool, patience) = (self.pool.clone(), self.options.patience);
        let figures = self.figures();
        if figures.in_use >= figures.most {
            self.waits.fetch_add(1, Ordering::Relaxed);
        }
        let getting = async move {
            let mut pause = FIRST_PAUSE;
            let mut waited = Duration::ZERO;
            loop {
                match pool.get().await {
                    Err(PoolError::Backend(error)) if waited < patience && is_passing(&error) => {
                        tokio::time::sleep(pause).await;
                        waited += pause;
                        pause = (pause * 2).min(LONGEST_PAUSE);
                    }
                    got => return got,
                }
            }
        };
        let got = self.threads()?.spawn(getting).await;
        if !matches!(got, Ok(Ok(_))) {
            self.failures.fetch_add(1, Ordering::Relaxed);
        }
        let unreachable = |why: String| Error::Unreachable { place: self.place.clone(), why };
        match got {
            Ok(Ok(client)) => Ok(client),
            Ok(Err(PoolError::Backend(error))) => Err(unconnected(&self.place, &error)),
            Ok(Err(PoolError::Timeout(_))) => Err(Error::Overrun(format!("{} has no connection free", self.place))),
            Ok(Err(error)) => Err(unreachable(error.to_string())),
            Err(_) => Err(unreachable("the program is stopping".into())),
        }
    }

    /// Waits so long; callers may have no clock of their own that could wake them.
    async fn rest(&self, pause: Duration) -> Result<()> {
        // Made by the thread that has a clock, not only awaited there.
        let _ = self.threads()?.spawn(async move { tokio::time::sleep(pause).await }).await;
        Ok(())
    }

    /// Begins a transaction that sees one space, or none.
    async fn begin(&self, space: Option<Uuid>) -> Result<Tx> {
        let threads = self.threads()?.clone();
        let named = space.map(|space| space.to_string()).unwrap_or_default();
        let begin = format!("BEGIN; SET LOCAL ROLE icecore_app; SET LOCAL icecore.space = '{named}'");
        loop {
            // Whoever drops this while it begins has a transaction to be taken back.
            let mut tx = Tx { client: Some(self.client().await?), threads: threads.clone() };
            match tx.batch_execute(&begin).await {
                Ok(()) => return Ok(tx),
                Err(error) => {
                    // Perhaps within a transaction: it is not given to anybody else.
                    drop(tx.client.take().map(Object::take));
                    // It was lost while it lay idle, and nothing was done yet; the next one is another.
                    if !error.is_closed() {
                        return Err(broke(error));
                    }
                }
            }
        }
    }

    /// The space of that name; `None` if there is none.
    pub async fn space(self: &Arc<Self>, name: &str) -> Result<Option<Arc<Space>>> {
        self.check().await?;
        let space = Space::of(self, name)?;
        let tx = self.begin(Some(space.id)).await?;
        let found = tx.maybe("SELECT name FROM icecore.space WHERE space_id = $1", &[&space.id]).await?;
        tx.commit().await?;
        Ok(found.map(|_| Arc::new(space)))
    }

    /// Makes a space, with `config` as its policy.
    pub async fn create(self: &Arc<Self>, name: &str, config: &str) -> Result<Arc<Space>> {
        self.check().await?;
        let space = Space::of(self, name)?;
        let tx = self.begin(Some(space.id)).await?;
        let made =
            tx.run("INSERT INTO icecore.space (space_id, name) VALUES ($1, $2) ON CONFLICT DO NOTHING", &[&space.id, &space.name]).await?;
        if made == 0 {
            return Err(Error::AlreadyASpace(name.to_owned()));
        }
        space.furnish(&tx, config).await?;
        tx.commit().await?;
        Ok(Arc::new(space))
    }

    /// The names of the spaces there are, in order, those after `after`.
    pub async fn spaces(&self, after: &str, most: i64) -> Result<Vec<String>> {
        // No text in the database has one, and it refuses to compare with it.
        if after.contains('\0') {
            return Err(Error::NotAName(after.chars().take(40).collect()));
        }
        self.check().await?;
        let tx = self.begin(None).await?;
        let rows = tx.rows("SELECT name FROM icecore.spaces($1, $2)", &[&after, &most]).await?;
        tx.commit().await?;
        Ok(rows.iter().map(|row| row.get(0)).collect())
    }

    /// The names of the spaces beneath a space, in order: those that begin with its name and a slash.
    pub async fn spaces_below(&self, name: &str) -> Result<Vec<String>> {
        let beginning = format!("{name}/");
        let mut found: Vec<String> = Vec::new();
        loop {
            let after = found.last().unwrap_or(&beginning).clone();
            let more = self.spaces(&after, NAMES).await?;
            let many = more.len();
            let before = found.len();
            found.extend(more.into_iter().take_while(|name| name.starts_with(&beginning)));
            if many < usize::try_from(NAMES).unwrap_or(0) || found.len() < before + many {
                return Ok(found);
            }
        }
    }

    /// A space at a glance, to know cheaply whether it is still the same; `None` if there is none.
    pub async fn glance(self: &Arc<Self>, name: &str) -> Result<Option<Glance>> {
        const SQL: &str = "SELECT made, (SELECT max(version) FROM icecore.document WHERE space_id = $1 \
            AND (path = $2 OR (path >= 'prompts/' AND path < 'prompts0'))) FROM icecore.space WHERE space_id = $1";
        self.check().await?;
        let space = Space::of(self, name)?;
        let tx = self.begin(Some(space.id)).await?;
        let found = tx.maybe(SQL, &[&space.id, &icecore_domain::layout::CONFIG]).await?;
        tx.commit().await?;
        Ok(found.map(|row| Glance { made: row.get(0), settings: row.get(1) }))
    }

    /// How the connections are used.
    pub fn figures(&self) -> Figures {
        let status = self.pool.status();
        Figures {
            most: status.max_size,
            open: status.size,
            in_use: status.size.saturating_sub(status.available),
            waiting: status.waiting,
            waits: self.waits.load(Ordering::Relaxed),
            failures: self.failures.load(Ordering::Relaxed),
        }
    }

    /// Whether the database answers, has the tables that this program works with, and takes writes.
    pub async fn ready(&self) -> Result<()> {
        judge(&self.plan().await?)?;
        self.takes_writes().await
    }

    /// An error if it is a standby, or a primary that is set to read only: it would answer every question and refuse to keep anything.
    pub async fn takes_writes(&self) -> Result<()> {
        let client = self.client().await?;
        let sql = "SELECT pg_is_in_recovery(), current_setting('transaction_read_only') = 'on'";
        let row = client.query_one(sql, &[]).await.map_err(broke)?;
        let (is_standby, is_read_only) = (row.get::<_, bool>(0), row.get::<_, bool>(1));
        let why = match (is_standby, is_read_only) {
            (true, _) => "it is a standby",
            (false, true) => "it is set to read only (`default_transaction_read_only`)",
            (false, false) => return Ok(()),
        };
        Err(Error::ReadOnly { place: self.place.clone(), is_standby, why: why.into() })
    }

    /// Takes a space away with everything in it; false if there is none.
    pub async fn erase(self: &Arc<Self>, name: &str) -> Result<bool> {
        self.erase_noting(name, None).await
    }

    /// Likewise; what it says is noted with it.
    async fn erase_noting(self: &Arc<Self>, name: &str, deed: Option<&Deed>) -> Result<bool> {
        let mut tries = 0;
        loop {
            let Some(space) = self.space(name).await? else { return Ok(false) };
            let tx = self.begin(Some(space.id)).await?;
            let taken = async {
                tx.rows("SELECT icecore.erase()", &[]).await?;
                match deed {
                    Some(deed) => self.keep_deed(&tx, deed).await,
                    None => Ok(()),
                }
            };
            let erased = match taken.await {
                Ok(()) => tx.commit().await,
                Err(error) => Err(error),
            };
            match erased {
                Err(Error::Moved { .. }) if tries < ERASING => tries += 1,
                other => return other.map(|()| true),
            }
        }
    }

    /// Whether the tables are those that this program works with. Looked up once.
    async fn check(&self) -> Result<()> {
        if self.cache.is_checked() {
            return Ok(());
        }
        judge(&self.plan().await?)?;
        self.cache.checked();
        Ok(())
    }
}

fn judge(plan: &Plan) -> Result<()> {
    if plan.taken == 0 {
        return Err(Error::Schema("it has no tables of icecore yet; `icecore init --store …` makes them".into()));
    }
    match plan.due.first() {
        None => Ok(()),
        Some(step) => {
            Err(Error::Schema(format!("its tables lack step {} (`{}`); `icecore migrate --store …` takes it", step.number, step.name)))
        }
    }
}

/// One person's memory in a database.
#[derive(Debug)]
pub struct Space {
    home: Arc<Postgres>,
    id: Uuid,
    name: String,
}

impl Space {
    fn of(home: &Arc<Postgres>, name: &str) -> Result<Self> {
        let is_plain = !name.is_empty() && name.len() <= MAX_NAME_BYTES && name.trim() == name && !name.chars().any(char::is_control);
        if !is_plain {
            return Err(Error::NotAName(name.chars().take(40).collect()));
        }
        // The first half of the hash of its name.
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&Hash::of(name.as_bytes()).bytes()[..16]);
        Ok(Self { home: home.clone(), id: uuid::Builder::from_custom_bytes(bytes).into_uuid(), name: name.to_owned() })
    }

    /// What it is called.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where it is.
    pub fn home(&self) -> &Arc<Postgres> {
        &self.home
    }

    async fn begin(&self) -> Result<Tx> {
        self.home.begin(Some(self.id)).await
    }
}

/// A transaction, of a space or of none. Dropped before it is committed, nothing of it happened.
struct Tx {
    client: Option<Object>,
    threads: Handle,
}

impl Deref for Tx {
    type Target = Object;

    fn deref(&self) -> &Object {
        match &self.client {
            Some(client) => client,
            None => unreachable!("a transaction has its connection until it is committed or dropped"),
        }
    }
}

impl Drop for Tx {
    fn drop(&mut self) {
        if let Some(client) = self.client.take() {
            self.threads.spawn(async move {
                if client.batch_execute("ROLLBACK").await.is_err() {
                    drop(Object::take(client));
                }
            });
        }
    }
}

type Params<'a> = &'a [&'a (dyn ToSql + Sync)];

impl Tx {
    async fn rows(&self, sql: &str, params: Params<'_>) -> Result<Vec<Row>> {
        let statement = self.prepare_cached(sql).await.map_err(broke)?;
        self.query(&statement, params).await.map_err(broke)
    }

    async fn one(&self, sql: &str, params: Params<'_>) -> Result<Row> {
        let statement = self.prepare_cached(sql).await.map_err(broke)?;
        self.query_one(&statement, params).await.map_err(broke)
    }

    async fn maybe(&self, sql: &str, params: Params<'_>) -> Result<Option<Row>> {
        let statement = self.prepare_cached(sql).await.map_err(broke)?;
        self.query_opt(&statement, params).await.map_err(broke)
    }

    /// How many rows it was about.
    async fn run(&self, sql: &str, params: Params<'_>) -> Result<u64> {
        let statement = self.prepare_cached(sql).await.map_err(broke)?;
        self.execute(&statement, params).await.map_err(broke)
    }

    /// Makes it so. Where the connection is lost before the answer comes, it may have happened or not.
    async fn commit(mut self) -> Result<()> {
        let Some(client) = self.client.take() else { return Ok(()) };
        match client.batch_execute("COMMIT").await {
            Ok(()) => Ok(()),
            Err(error) => {
                drop(Object::take(client));
                Err(broke(error))
            }
        }
    }
}

fn tls() -> std::result::Result<tokio_postgres_rustls::MakeRustlsConnect, rustls::Error> {
    use rustls_platform_verifier::BuilderVerifierExt as _;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(tokio_postgres_rustls::MakeRustlsConnect::new(builder.with_platform_verifier()?.with_no_client_auth()))
}

fn tls_or_error() -> Result<tokio_postgres_rustls::MakeRustlsConnect> {
    let wrong = |why| Error::Unreachable { place: "the database".into(), why: format!("certificates cannot be checked: {why}") };
    tls().map_err(wrong)
}

/// Whether it may be better in a moment: the server is starting, stopping, full, or cannot be reached.
fn is_passing(error: &tokio_postgres::Error) -> bool {
    match error.code().map(|code| code.code()) {
        Some(code) => code.starts_with("57P") || code == "53300",
        None => matches!(unconnected("", error), Error::Unreachable { .. } | Error::ReadOnly { .. }),
    }
}

/// What it comes to that there is no connection.
fn unconnected(place: &str, error: &tokio_postgres::Error) -> Error {
    let (place, why) = (place.to_owned(), said(error));
    match error.code().map(|code| code.code()) {
        Some("3D000") => Error::NoDatabase { place, why },
        Some("28P01" | "28000" | "42501") => {
            Error::Unwelcome { place, why: format!("{why}. Check the user and the password in its address, and whom the server lets in") }
        }
        Some(_) => Error::Unreachable { place, why },
        // What has no code is told apart by its words only.
        None if why.contains("does not support TLS") => {
            Error::Insecure { place, why: "its address asks for TLS (`sslmode=require`), and the server has none".into() }
        }
        None if why.contains("invalid peer certificate") => Error::Insecure { place, why },
        None if why.contains("password missing") => Error::Unwelcome {
            place,
            why: "it asks for a password, and its address has none. Put it there: postgres://user:password@host/name".into(),
        },
        None if why.contains("does not allow writes") => {
            Error::ReadOnly { place, is_standby: true, why: "no server that its address names is a primary".into() }
        }
        None => Error::Unreachable { place, why },
    }
}

/// What the database said, in one line.
fn said(error: &tokio_postgres::Error) -> String {
    match error.as_db_error() {
        Some(error) => match error.detail() {
            Some(detail) if error.code().code().starts_with("42") => format!("{} ({detail})", error.message()),
            _ => error.message().to_owned(),
        },
        None => {
            let mut words = error.to_string();
            let mut cause = std::error::Error::source(error);
            while let Some(reason) = cause {
                words = format!("{words}: {reason}");
                cause = reason.source();
            }
            words
        }
    }
}

/// What a failed statement comes to.
fn broke(error: tokio_postgres::Error) -> Error {
    let Some(code) = error.code().map(|code| code.code().to_owned()) else {
        return Error::Unreachable { place: "the database".into(), why: said(&error) };
    };
    match code.as_str() {
        // What is written belongs to a space that is there.
        "23503" => Error::Gone,
        // Somebody else was there first.
        "40001" | "40P01" => Error::Moved { what: "the memory".into() },
        "55P03" => Error::Overrun("somebody else holds a lock for too long".into()),
        "57014" => Error::Overrun("the database took too long".into()),
        "53100" | "53200" | "53300" | "53400" => Error::Overrun(said(&error)),
        "25006" => Error::ReadOnly { place: "the database".into(), is_standby: false, why: "it is a standby, or set to read only".into() },
        "42501" => Error::Unwelcome { place: "the database".into(), why: format!("{}. Whoever owns it can grant it", said(&error)) },
        _ if code.starts_with("57P") || code.starts_with("08") => Error::Unreachable { place: "the database".into(), why: said(&error) },
        _ => Error::Database(said(&error)),
    }
}
