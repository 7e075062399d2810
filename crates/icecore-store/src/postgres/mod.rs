//! PostgreSQL: many memories in one place, for many processes on many machines.
//!
//! The shape is the vault's. Documents are the truth, byte for byte; what is derived from them is
//! written in the same transaction, so the two never part. A space is one person's memory. Every
//! transaction takes a role that sees only the space it has named.

mod access;
mod address;
mod cache;
mod claim;
mod documents;
mod fill;
mod history;
pub mod jobs;
mod ledger;
mod login;
mod migrate;
mod order;
mod private;
mod records;
mod scrub;
mod search;
mod store;
mod summaries;

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use deadpool_postgres::{Manager, ManagerConfig, Object, Pool, PoolError, RecyclingMethod};
use icecore_domain::hash::Hash;
use tokio::runtime::{Handle, Runtime};
use tokio_postgres::config::{SslMode, TargetSessionAttrs};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Config, Row, Statement};
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
    /// How long a claim on work is somebody's who is not heard of any more.
    pub lease: Duration,
    /// From so many passages on the database says which are nearest in meaning, instead of giving
    /// out the signs of all.
    pub many_passages: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            connections: 16,
            patience: Duration::from_secs(10),
            statement: Duration::from_secs(60),
            lock: Duration::from_secs(10),
            lease: Duration::from_secs(15),
            many_passages: 20_000,
        }
    }
}

/// The first pause before a lost connection is made again; each is twice as long as the one before.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// So much longer than the database gives a statement its answer is waited for: a machine that has
/// lost its power does not hang up.
const SLACK: Duration = Duration::from_secs(5);
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
    demands: Demands,
    /// Where connections are driven: callers may have no runtime of their own.
    threads: Option<Runtime>,
    /// For people: never with the password.
    place: String,
    cache: cache::Cache,
    search: search::Cache,
    waits: AtomicU64,
    failures: AtomicU64,
    letting_go: claim::LettingGo,
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
    life: Uuid,
    /// What its policy and its prompts look like, in a number: another one if any is changed, added
    /// or taken away.
    settings: Option<i64>,
}

impl Glance {
    /// Whether it is the same space, whatever was changed in it.
    pub fn is_same_life(&self, other: &Self) -> bool {
        self.life == other.life
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
    /// Gets ready to use the database at `url`, such as `postgres://user:password@host/name`.
    /// Nothing is connected yet.
    pub fn at(url: &str, options: Options) -> Result<Arc<Self>> {
        let wrong = |why: String| Error::Unreachable { place: "the database".into(), why };
        let mut config = address::read(url)?;
        // A plan that was made while a table was all but empty, and reads all of a space, would be
        // kept while the table grows. And what is asked is small, however large the tables are:
        // compiling it, or starting others to help, takes longer than doing it.
        let settings = format!(
            "-c statement_timeout={} -c lock_timeout={} -c idle_in_transaction_session_timeout={} -c timezone=UTC \
             -c plan_cache_mode=force_custom_plan -c jit=off -c max_parallel_workers_per_gather=0",
            options.statement.as_millis(),
            options.lock.as_millis(),
            options.statement.as_millis()
        );
        let own = config.get_options().map(|own| format!("{own} {settings}")).unwrap_or(settings);
        config
            .options(own)
            .keepalives_idle(Duration::from_secs(30))
            .tcp_user_timeout(options.statement);
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(Duration::from_secs(5));
        }
        if config.get_application_name().is_none() {
            config.application_name("icecore");
        }
        let place = address::place(&config);
        let demands = Demands::take(&mut config);
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
            .max_size(options.connections)
            .runtime(deadpool_postgres::Runtime::Tokio1)
            .build()
            .map_err(|error| wrong(error.to_string()))?;
        Ok(Arc::new(Self {
            pool,
            config,
            options,
            demands,
            threads: Some(threads),
            place,
            cache: cache::Cache::default(),
            search: search::Cache::default(),
            waits: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            letting_go: claim::LettingGo::default(),
        }))
    }

    /// What it is called, for people.
    pub fn place(&self) -> &str {
        &self.place
    }

    fn threads(&self) -> Result<&Handle> {
        self.threads
            .as_ref()
            .map(Runtime::handle)
            .ok_or_else(|| Error::Database("the program is stopping".into()))
    }

    /// A connection. While the database cannot be reached it is tried again, for as long as one is
    /// patient.
    async fn client(&self) -> Result<Object> {
        let (pool, patience, demands) = (self.pool.clone(), self.options.patience, self.demands);
        let figures = self.figures();
        if figures.in_use >= figures.most {
            self.waits.fetch_add(1, Ordering::Relaxed);
        }
        let getting = async move {
            // One deadline for all of it: a machine that does not even refuse takes its time over
            // every try.
            let deadline = tokio::time::Instant::now() + patience;
            let mut pause = FIRST_PAUSE;
            loop {
                match tokio::time::timeout_at(deadline, pool.get()).await {
                    Ok(Err(PoolError::Backend(error))) if is_passing(&error, demands) => {
                        if tokio::time::timeout_at(deadline, tokio::time::sleep(pause))
                            .await
                            .is_err()
                        {
                            return Some(Err(PoolError::Backend(error)));
                        }
                        pause = (pause * 2).min(LONGEST_PAUSE);
                    }
                    Ok(got) => return Some(got),
                    Err(_) => return None,
                }
            }
        };
        let got = self.threads()?.spawn(getting).await;
        if !matches!(got, Ok(Some(Ok(_)))) {
            self.failures.fetch_add(1, Ordering::Relaxed);
        }
        let unreachable = |why: String| Error::Unreachable { place: self.place.clone(), why };
        match got {
            Ok(Some(Ok(client))) => Ok(client),
            Ok(Some(Err(PoolError::Backend(error)))) => {
                Err(unconnected(&self.place, &error, self.demands))
            }
            Ok(Some(Err(error))) => Err(unreachable(error.to_string())),
            // All there may be are there, and others have them; or none came about.
            Ok(None) if self.figures().open >= figures.most => {
                Err(Error::Overrun(format!("{} has no connection free", self.place)))
            }
            Ok(None) => {
                Err(unreachable(format!("it has not answered for {} s", patience.as_secs_f64())))
            }
            Err(_) => Err(unreachable("the program is stopping".into())),
        }
    }

    /// How long the database may take to begin with something.
    fn beginning(&self) -> Duration {
        self.options.patience.max(SLACK)
    }

    /// Begins a transaction that sees one space, or none. Whoever writes into a space begins with
    /// [`Space::begin`].
    async fn begin(&self, space: Option<Uuid>) -> Result<Tx> {
        self.begin_with(space, "", "").await
    }

    /// Begins a transaction of that mode, which calls `first` at once. Everything goes in one
    /// message, also the question whether this program is still new enough for the tables: a step
    /// that makes it too old may be taken while it runs.
    async fn begin_with(&self, space: Option<Uuid>, mode: &str, first: &str) -> Result<Tx> {
        let threads = self.threads()?.clone();
        let named = space.map(|space| space.to_string()).unwrap_or_default();
        let begin = format!(
            "BEGIN {mode}; SET LOCAL ROLE icecore_app; SET LOCAL icecore.space = '{named}'; SELECT icecore.require_known({}){first}",
            migrate::KNOWN_STEPS
        );
        loop {
            // Whoever drops this while it begins has a transaction to be taken back.
            let mut tx = Tx {
                client: Some(self.client().await?),
                pool: self.pool.clone(),
                threads: threads.clone(),
                limit: self.options.statement + SLACK,
                is_silent: AtomicBool::new(false),
            };
            match within(&threads, self.beginning(), tx.client().batch_execute(&begin)).await {
                Some(Ok(())) => return Ok(tx),
                // Refused, and taken back like any other.
                Some(Err(error)) if error.as_db_error().is_some() => return Err(broke(error)),
                Some(Err(error)) => {
                    // Perhaps within a transaction: it is not given to anybody else.
                    drop(tx.client.take().map(Object::take));
                    // It was lost while it lay idle, and nothing was done yet; the next one is
                    // another.
                    if !error.is_closed() {
                        return Err(broke(error));
                    }
                }
                None => {
                    tx.is_silent.store(true, Ordering::Relaxed);
                    return Err(silent(self.beginning()));
                }
            }
        }
    }

    /// The space of that name; `None` if there is none.
    pub async fn space(self: &Arc<Self>, name: &str) -> Result<Option<Arc<Space>>> {
        self.check().await?;
        let id = id_of(name)?;
        let tx = self.begin(Some(id)).await?;
        let found = tx
            .maybe(
                "SELECT life, filling IS NOT NULL FROM icecore.space WHERE space_id = $1",
                &[&id],
            )
            .await?;
        tx.commit().await?;
        match found {
            Some(row) if row.get(1) => Err(Error::Filling),
            found => Ok(found.map(|row| Arc::new(self.known(name, id, row.get(0))))),
        }
    }

    fn known(self: &Arc<Self>, name: &str, id: Uuid, life: Uuid) -> Space {
        Space {
            home: self.clone(),
            id,
            life,
            name: name.to_owned(),
            filling: fill::Filling::default(),
        }
    }

    /// Makes a space, with `config` as its policy.
    pub async fn create(self: &Arc<Self>, name: &str, config: &str) -> Result<Arc<Space>> {
        self.check().await?;
        let id = id_of(name)?;
        let tx = self.begin(Some(id)).await?;
        let sql = "INSERT INTO icecore.space (space_id, name) VALUES ($1, $2) ON CONFLICT DO NOTHING RETURNING life";
        let Some(made) = tx.maybe(sql, &[&id, &name]).await? else {
            return Err(Error::AlreadyASpace(name.to_owned()));
        };
        let space = self.known(name, id, made.get(0));
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

    /// The names of the spaces beneath a space, in order: those that begin with its name and a
    /// slash.
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
        const SQL: &str = "SELECT life, (SELECT bit_xor(hashtextextended(path, version)) FROM icecore.document WHERE space_id = $1 \
            AND (path = $2 OR (path >= 'prompts/' AND path < 'prompts0'))), filling IS NOT NULL FROM icecore.space WHERE space_id = $1";
        self.check().await?;
        let id = id_of(name)?;
        let tx = self.begin(Some(id)).await?;
        let found = tx.maybe(SQL, &[&id, &icecore_domain::layout::CONFIG]).await?;
        tx.commit().await?;
        match found {
            Some(row) if row.get(2) => Err(Error::Filling),
            found => Ok(found.map(|row| Glance { life: row.get(0), settings: row.get(1) })),
        }
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

    /// An error if it is a standby, or a primary that is set to read only: it would answer every
    /// question and refuse to keep anything.
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
        self.check().await?;
        let (id, mut tries) = (id_of(name)?, 0);
        loop {
            let tx = self.begin(Some(id)).await?;
            // One that is only half brought in goes as well.
            if tx.maybe("SELECT FROM icecore.space WHERE space_id = $1", &[&id]).await?.is_none() {
                return Ok(false);
            }
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
        return Err(Error::Schema(
            "it has no tables of icecore yet; `icecore init --store …` makes them".into(),
        ));
    }
    match plan.due.first() {
        None => Ok(()),
        Some(step) => Err(Error::Schema(format!(
            "its tables lack step {} (`{}`); `icecore db migrate --store …` takes it",
            step.number, step.name
        ))),
    }
}

/// The id of the space of that name, whether there is one or not: the first half of the hash of its
/// name.
fn id_of(name: &str) -> Result<Uuid> {
    let is_plain = !name.is_empty()
        && name.len() <= MAX_NAME_BYTES
        && name.trim() == name
        && !name.chars().any(char::is_control);
    if !is_plain {
        return Err(Error::NotAName(name.chars().take(40).collect()));
    }
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&Hash::of(name.as_bytes()).bytes()[..16]);
    Ok(uuid::Builder::from_custom_bytes(bytes).into_uuid())
}

/// One person's memory in a database, in one life of it: what is taken away and made again is
/// another, under the same name.
#[derive(Debug)]
pub struct Space {
    home: Arc<Postgres>,
    id: Uuid,
    life: Uuid,
    name: String,
    filling: fill::Filling,
}

impl Space {
    /// What it is called.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where it is.
    pub fn home(&self) -> &Arc<Postgres> {
        &self.home
    }

    /// Begins a transaction that writes: the space is not taken away before it has ended, and it is
    /// an error if it was already, or if somebody else fills it.
    async fn begin(&self) -> Result<Tx> {
        let filler = self.filling.by().map_or("NULL".to_owned(), |filler| format!("'{filler}'"));
        self.home
            .begin_with(Some(self.id), "", &format!(", icecore.enter('{}', {filler})", self.life))
            .await
    }

    /// Begins one that only reads, and holds nothing.
    async fn begin_reading(&self) -> Result<Tx> {
        self.home.begin_with(Some(self.id), "READ ONLY", "").await
    }
}

/// A transaction, of a space or of none. Dropped before it is committed, nothing of it happened.
struct Tx {
    client: Option<Object>,
    pool: Pool,
    threads: Handle,
    /// How long an answer is waited for.
    limit: Duration,
    /// An answer did not come: whatever comes now would be taken for another's.
    is_silent: AtomicBool,
}

impl Drop for Tx {
    fn drop(&mut self) {
        let Some(client) = self.client.take() else { return };
        if *self.is_silent.get_mut() {
            return forsake(&self.pool, client);
        }
        let (pool, limit) = (self.pool.clone(), self.limit);
        self.threads.spawn(async move {
            match tokio::time::timeout(limit, client.batch_execute("ROLLBACK")).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => drop(Object::take(client)),
                Err(_) => forsake(&pool, client),
            }
        });
    }
}

type Params<'a> = &'a [&'a (dyn ToSql + Sync)];
type Answer<T> = std::result::Result<T, tokio_postgres::Error>;

impl Tx {
    fn client(&self) -> &Object {
        match &self.client {
            Some(client) => client,
            None => {
                unreachable!("a transaction has its connection until it is committed or dropped")
            }
        }
    }

    /// What the database answers, if it does.
    async fn answered<T>(&self, answer: impl Future<Output = Answer<T>>) -> Result<T> {
        match within(&self.threads, self.limit, answer).await {
            Some(answer) => answer.map_err(broke),
            None => {
                self.is_silent.store(true, Ordering::Relaxed);
                Err(silent(self.limit))
            }
        }
    }

    async fn prepared(&self, sql: &str) -> Result<Statement> {
        self.answered(self.client().prepare_cached(sql)).await
    }

    async fn rows(&self, sql: &str, params: Params<'_>) -> Result<Vec<Row>> {
        let statement = self.prepared(sql).await?;
        self.answered(self.client().query(&statement, params)).await
    }

    async fn one(&self, sql: &str, params: Params<'_>) -> Result<Row> {
        let statement = self.prepared(sql).await?;
        self.answered(self.client().query_one(&statement, params)).await
    }

    async fn maybe(&self, sql: &str, params: Params<'_>) -> Result<Option<Row>> {
        let statement = self.prepared(sql).await?;
        self.answered(self.client().query_opt(&statement, params)).await
    }

    /// How many rows it was about.
    async fn run(&self, sql: &str, params: Params<'_>) -> Result<u64> {
        let statement = self.prepared(sql).await?;
        self.answered(self.client().execute(&statement, params)).await
    }

    /// Makes it so. Where the connection is lost before the answer comes, or the answer does not
    /// come, it may have happened or not.
    async fn commit(mut self) -> Result<()> {
        let Some(client) = self.client.take() else { return Ok(()) };
        match within(&self.threads, self.limit, client.batch_execute("COMMIT")).await {
            Some(Ok(())) => Ok(()),
            Some(Err(error)) => {
                drop(Object::take(client));
                Err(broke(error))
            }
            None => {
                forsake(&self.pool, client);
                let why = format!(
                    "a commit has got no answer for {} s; look what is kept, then try again",
                    self.limit.as_secs_f64()
                );
                Err(Error::Unreachable { place: "the database".into(), why })
            }
        }
    }
}

/// What comes of it, if it comes in time. By the clock of these threads: callers may have none that
/// could wake them.
async fn within<T>(
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

/// Gives a connection up that does not answer. Those that lie idle lead to the same machine; they
/// are made anew when they are needed.
fn forsake(pool: &Pool, client: Object) {
    drop(Object::take(client));
    pool.retain(|_, _| false);
}

fn silent(limit: Duration) -> Error {
    Error::Unreachable {
        place: "the database".into(),
        why: format!("it has not answered for {} s", limit.as_secs_f64()),
    }
}

fn tls() -> std::result::Result<tokio_postgres_rustls::MakeRustlsConnect, rustls::Error> {
    use rustls_platform_verifier::BuilderVerifierExt as _;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?;
    Ok(tokio_postgres_rustls::MakeRustlsConnect::new(
        builder.with_platform_verifier()?.with_no_client_auth(),
    ))
}

fn tls_or_error() -> Result<tokio_postgres_rustls::MakeRustlsConnect> {
    let wrong = |why| Error::Unreachable {
        place: "the database".into(),
        why: format!("certificates cannot be checked: {why}"),
    };
    tls().map_err(wrong)
}

/// What the address asks for. An error that has neither a code nor a cause of a known type is
/// classified by it, never by its text.
#[derive(Debug, Clone, Copy)]
struct Demands {
    has_password: bool,
    tls: bool,
    primary: bool,
}

impl Demands {
    /// Those of an address. Where it has no password an empty one is set: the server then answers a
    /// missing password with a code.
    fn take(config: &mut Config) -> Self {
        let demands = Self {
            has_password: config.get_password().is_some(),
            tls: config.get_ssl_mode() == SslMode::Require,
            primary: config.get_target_session_attrs() == TargetSessionAttrs::ReadWrite,
        };
        if !demands.has_password {
            config.password("");
        }
        demands
    }
}

/// Why a connection failed before the server said anything.
enum ConnectCause<'a> {
    /// The system: no route, refused, no such name, timed out.
    Io(&'a std::io::Error),
    /// The handshake of TLS, or the certificate.
    Tls,
    /// The driver itself, with a reason of its own.
    Driver,
    /// Nothing is known.
    Unknown,
}

fn connect_cause(error: &tokio_postgres::Error) -> ConnectCause<'_> {
    let first = std::error::Error::source(error);
    let mut next = first;
    while let Some(cause) = next {
        if cause.is::<rustls::Error>() {
            return ConnectCause::Tls;
        }
        if let Some(io) = cause.downcast_ref::<std::io::Error>() {
            // What an I/O error wraps is not its source, but the source's own cause.
            let is_tls = io.get_ref().is_some_and(|inner| inner.is::<rustls::Error>());
            return if is_tls { ConnectCause::Tls } else { ConnectCause::Io(io) };
        }
        next = cause.source();
    }
    if first.is_some() { ConnectCause::Driver } else { ConnectCause::Unknown }
}

/// Whether it may be better in a moment: the server is starting, stopping, full, or cannot be
/// reached.
fn is_passing(error: &tokio_postgres::Error, demands: Demands) -> bool {
    match error.code() {
        Some(code) => code.code().starts_with("57P") || *code == SqlState::TOO_MANY_CONNECTIONS,
        None => matches!(
            unconnected("", error, demands),
            Error::Unreachable { .. } | Error::ReadOnly { .. }
        ),
    }
}

/// What it comes to that there is no connection.
fn unconnected(place: &str, error: &tokio_postgres::Error, demands: Demands) -> Error {
    let (place, why) = (place.to_owned(), said(error));
    if let Some(code) = error.code() {
        return match *code {
            SqlState::INVALID_CATALOG_NAME => Error::NoDatabase { place, why },
            SqlState::INVALID_PASSWORD if !demands.has_password => Error::Unwelcome {
                place,
                why: "it asks for a password, and its address has none. Put it there: postgres://user:password@host/name".into(),
            },
            SqlState::INVALID_PASSWORD | SqlState::INVALID_AUTHORIZATION_SPECIFICATION | SqlState::INSUFFICIENT_PRIVILEGE => {
                Error::Unwelcome {
                    place,
                    why: format!("{why}. Check the user and the password in its address, and whom the server lets in"),
                }
            }
            _ => Error::Unreachable { place, why },
        };
    }
    match connect_cause(error) {
        ConnectCause::Tls => Error::Insecure { place, why },
        // The driver's own word for a server that is none of those asked for; the system's has a
        // number.
        ConnectCause::Io(io)
            if demands.primary
                && io.kind() == std::io::ErrorKind::PermissionDenied
                && io.raw_os_error().is_none() =>
        {
            Error::ReadOnly {
                place,
                is_standby: true,
                why: "no server that its address names is a primary".into(),
            }
        }
        ConnectCause::Driver if demands.tls => Error::Insecure {
            place,
            why: format!(
                "its address asks for TLS (`sslmode=require`), which the server does not offer: {why}"
            ),
        },
        ConnectCause::Io(_) | ConnectCause::Driver | ConnectCause::Unknown => {
            Error::Unreachable { place, why }
        }
    }
}

/// What the database said, in one line.
fn said(error: &tokio_postgres::Error) -> String {
    match error.as_db_error() {
        Some(error) => match error.detail() {
            Some(detail) if error.code().code().starts_with("42") => {
                format!("{} ({detail})", error.message())
            }
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
        "55006" => Error::Filling,
        // `require_known` of the tables.
        "IC001" => Error::Newer(said(&error)),
        // Somebody else was there first.
        "40001" | "40P01" => Error::Moved { what: "the memory".into() },
        "55P03" => Error::Overrun("somebody else holds a lock for too long".into()),
        "57014" => Error::Overrun("the database took too long".into()),
        "53100" | "53200" | "53300" | "53400" => Error::Overrun(said(&error)),
        "25006" => Error::ReadOnly {
            place: "the database".into(),
            is_standby: false,
            why: "it is a standby, or set to read only".into(),
        },
        "42501" => Error::Unwelcome {
            place: "the database".into(),
            why: format!("{}. Whoever owns it can grant it", said(&error)),
        },
        _ if code.starts_with("57P") || code.starts_with("08") => {
            Error::Unreachable { place: "the database".into(), why: said(&error) }
        }
        _ => Error::Database(said(&error)),
    }
}
