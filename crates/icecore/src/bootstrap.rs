//! Bootstrap: finds the memory that the options and the environment select, and opens it with a
//! clock, the user's settings and the models.

use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Once, OnceLock, PoisonError};
use std::time::Duration;

use anyhow::Result;
use etcetera::BaseStrategy;
use icecore_domain::calendar::{Moment, Zone};
use icecore_domain::layout;
use icecore_engine::clock::{Clock, FixedClock, SystemClock, system_zone_name};
use icecore_engine::config::PolicyError;
use icecore_engine::converse::Chats;
use icecore_engine::embed::MiniLm;
use icecore_engine::llm::{self, Llm};
use icecore_engine::settings::Settings;
use icecore_engine::{Error as EngineError, Memory, ModelBudget};
use icecore_store::postgres::{self, Postgres};
use icecore_store::vault::Vault;
use secrecy::{ExposeSecret as _, SecretString};

use crate::cli::GlobalArgs;
use crate::cli::output::Output;
use crate::error::{AppError, Exit};
use crate::store_location::{StoreHandles, StoreLocation};

/// An open memory and its location.
pub struct OpenMemory {
    pub memory: Memory,
    pub place: StoreLocation,
    home: StoreHandles,
}

impl OpenMemory {
    async fn open_with_clock(
        place: StoreLocation,
        home: StoreHandles,
        clock: Box<dyn Clock>,
    ) -> Result<Self> {
        let memory = Memory::open(home.0.clone(), home.1.clone(), clock).await?;
        Ok(Self { memory, place, home })
    }

    /// Opens it with default settings, whatever `icecore.toml` says.
    fn open_with_defaults(
        place: StoreLocation,
        home: StoreHandles,
        clock: Box<dyn Clock>,
    ) -> Result<Self> {
        let memory = Memory::open_with_defaults(home.0.clone(), home.1.clone(), clock)?;
        Ok(Self { memory, place, home })
    }

    /// Opens the conversations of this memory, or of one of its end users.
    pub async fn open_chats(&self, global: &GlobalArgs, user: Option<&str>) -> Result<Chats> {
        let memory = match user {
            None => self.reopen_at(global).await?.memory,
            Some(user) => {
                self.place.check_can_have_users()?;
                let place = self.place.user_location(user);
                if place.read_state().await?.is_none() {
                    let message = format!(
                        "there is no user `{}` here; a space is created with a user's first chat",
                        icecore_domain::sanitize::one_line(user)
                    );
                    return Err(AppError::new(Exit::NotFound, message).into());
                }
                let home = place.open().await?;
                Memory::open(home.0, home.1, selected_clock(global)?).await?
            }
        };
        Ok(Chats::open(Arc::new(memory)).await?)
    }

    /// Opens the same memory at the moment given by `--now`.
    pub async fn reopen_at(&self, global: &GlobalArgs) -> Result<Self> {
        Self::open_with_clock(self.place.clone(), self.home.clone(), selected_clock(global)?).await
    }
}

/// The user's own settings, and the models they configure.
pub struct Models {
    pub settings: Settings,
    /// The path of `config.toml`, whether or not it exists.
    pub place: PathBuf,
    pub summarizer: Option<Box<dyn Llm>>,
}

impl Models {
    /// The summarizer and its token budget.
    pub fn model_budget(&self) -> Option<ModelBudget<'_>> {
        let llm = self.summarizer.as_deref()?;
        let input_tokens =
            usize::try_from(self.settings.summarizer.max_input_tokens).unwrap_or(usize::MAX);
        let own = ["max_tokens", "max_completion_tokens", "max_output_tokens"]
            .map(|name| self.settings.summarizer.extra.get(name));
        let output_tokens =
            own.into_iter().flatten().filter_map(serde_json::Value::as_u64).max().unwrap_or(0);
        Some(ModelBudget {
            llm,
            ceiling: self.settings.spend.tokens_per_day,
            input_tokens,
            output_tokens,
        })
    }
}

/// Reads the user's `config.toml` and returns its path. A vault cannot change these settings: it
/// may come from a stranger.
fn read_settings() -> Result<(Settings, PathBuf)> {
    let place = match etcetera::choose_base_strategy() {
        Ok(folders) => folders.config_dir().join("icecore").join("config.toml"),
        Err(_) => PathBuf::from("config.toml"),
    };
    let text = match std::fs::read_to_string(&place) {
        Ok(text) => Some(text),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            None
        }
        Err(error) => {
            return Err(AppError::new(
                Exit::Failure,
                format!("{} cannot be read: {error}", place.display()),
            )
            .into());
        }
    };
    if let Some(text) = &text
        && Settings::contains_key(text)
        && std::fs::metadata(&place).is_ok_and(|found| found.permissions().mode() & 0o077 != 0)
    {
        let message = format!(
            "{} contains a key and other users can read it; run `chmod 600 {}`",
            place.display(),
            place.display()
        );
        return Err(AppError::new(Exit::NotAllowed, message).into());
    }
    let environment = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let settings =
        Settings::read(text.as_deref(), &environment, &|path| std::fs::read_to_string(path))
            .map_err(|error| {
                AppError::new(Exit::Usage, with_settings_path(&place, &error.to_string()))
            })?;
    static WARN_ONCE: Once = Once::new();
    WARN_ONCE.call_once(|| {
        for warning in &settings.warnings {
            let _ = writeln!(std::io::stderr(), "warning: {}", with_settings_path(&place, warning));
        }
    });
    Ok((settings, place))
}

/// Reads the user's settings and opens the models they configure.
pub fn open_models() -> Result<Models> {
    let (settings, place) = read_settings()?;
    let summarizer = llm::open(&settings.summarizer)
        .map_err(|error| AppError::new(Exit::Usage, error.to_string()))?;
    Ok(Models { settings, place, summarizer })
}

/// The embedding model, loaded on first use.
pub struct LazyEmbedder {
    model: OnceLock<Option<MiniLm>>,
    log: Arc<dyn Fn(&str) + Send + Sync>,
}

impl LazyEmbedder {
    /// Loads nothing yet. Load errors are written to `log`.
    pub fn new(log: Arc<dyn Fn(&str) + Send + Sync>) -> Arc<Self> {
        Arc::new(Self { model: OnceLock::new(), log })
    }

    /// The model, if it could be loaded on first use.
    pub fn get(&self) -> Option<&MiniLm> {
        let load = || match load_embedder() {
            Ok(model) => model,
            Err(error) => {
                (self.log)(&format!("keyword search only: {error}"));
                None
            }
        };
        self.model.get_or_init(load).as_ref()
    }
}

/// The folder of the embedding model, whether or not it exists.
pub fn model_dir() -> PathBuf {
    if let Some(folder) = std::env::var_os("ICECORE_MODEL_DIR").filter(|folder| !folder.is_empty())
    {
        return PathBuf::from(folder);
    }
    match etcetera::choose_base_strategy() {
        Ok(folders) => folders.data_dir().join("icecore").join("models").join("all-MiniLM-L6-v2"),
        Err(_) => PathBuf::from("all-MiniLM-L6-v2"),
    }
}

/// Loads the embedding model, if it was fetched.
pub fn load_embedder() -> Result<Option<MiniLm>> {
    let folder = model_dir();
    if !folder.join("model.safetensors").exists() {
        return Ok(None);
    }
    MiniLm::load(&folder)
        .map(Some)
        .map_err(|error| AppError::new(Exit::Failure, error.to_string()).into())
}

/// A settings error with the path of the file, once.
fn with_settings_path(place: &Path, said: &str) -> String {
    match said.split_once("config.toml") {
        Some((before, rest)) => format!("{before}{}{rest}", place.display()),
        // An environment variable has no path.
        None if said.starts_with("ICECORE_") => said.to_owned(),
        None => format!("{}: {said}", place.display()),
    }
}

/// Measures elapsed time.
pub struct Stopwatch(u64);

/// Starts a stopwatch.
pub fn start_stopwatch() -> Stopwatch {
    Stopwatch(SystemClock.elapsed_millis())
}

impl Stopwatch {
    /// Seconds since the start.
    pub fn seconds(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
        let seconds = (SystemClock.elapsed_millis() - self.0) as f64 / 1_000.0;
        seconds
    }
}

/// Sleeps; false if a signal asks the program to end.
pub async fn sleep_unless_stopped(seconds: u64) -> bool {
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut end), Ok(mut interrupt)) =
        (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
    else {
        return false;
    };
    tokio::select! {
        () = tokio::time::sleep(Duration::from_secs(seconds)) => true,
        _ = end.recv() => false,
        _ = interrupt.recv() => false,
    }
}

/// Returns when a signal asks the program to end.
pub async fn wait_for_stop() {
    while sleep_unless_stopped(3_600).await {}
}

/// Whether no vault is named and none is found. A database is not contacted.
pub fn has_no_vault(global: &GlobalArgs) -> bool {
    find_location(global).is_err_and(|error| {
        error.downcast_ref::<AppError>().is_some_and(|stop| stop.exit == Exit::NotFound)
    })
}

/// The path of the user's own vault, whether or not it exists.
pub fn own_vault_path() -> Result<PathBuf> {
    default_vault_dir()
}

/// The same path, if there is no vault there.
pub fn missing_own_vault() -> Result<Option<PathBuf>> {
    Ok(Some(default_vault_dir()?).filter(|home| !home.join(layout::CONFIG).is_file()))
}

/// Opens the memory that the options select.
pub async fn open_memory(global: &GlobalArgs) -> Result<OpenMemory> {
    let place = find_location(global)?;
    let home = place.open().await?;
    OpenMemory::open_with_clock(place, home, selected_clock(global)?).await
}

/// Opens the named memory, else the user's own, never one found in the current folder. A client
/// starts this program in whatever folder the user works in, and a stranger's folder must not
/// choose what the model remembers.
pub async fn open_own_memory(global: &GlobalArgs) -> Result<OpenMemory> {
    let place = match named_location(&global.store_selection())? {
        Some(named) => named,
        None => StoreLocation::Folder(require_own_vault("")?),
    };
    let home = place.open().await?;
    OpenMemory::open_with_clock(place, home, selected_clock(global)?).await
}

/// Opens the memory for repair commands. If the settings cannot be read, uses the defaults and
/// returns the error as a warning.
pub async fn open_for_repair(global: &GlobalArgs) -> Result<(OpenMemory, Option<String>)> {
    match open_memory(global).await {
        Err(error) if error.downcast_ref::<EngineError>().is_some_and(is_repairable) => {
            let place = find_location(global)?;
            let home = place.open().await?;
            Ok((
                OpenMemory::open_with_defaults(place, home, selected_clock(global)?)?,
                Some(error.to_string()),
            ))
        }
        other => Ok((other?, None)),
    }
}

/// Whether repair can go on with defaults. A vault of a newer version is not repaired: what this
/// version does not know would count as damage.
fn is_repairable(error: &EngineError) -> bool {
    matches!(error, EngineError::Config(mistake) if !matches!(mistake, PolicyError::Newer { .. }))
}

/// Opens a clone of a vault that was not yet set up on this machine, and sets it up; `None` if the
/// folder is not one.
pub async fn adopt_clone(global: &GlobalArgs, folder: Option<&Path>) -> Result<Option<OpenMemory>> {
    let StoreLocation::Folder(root) = resolve_new_location(global, folder)? else {
        return Ok(None);
    };
    if !root.join(layout::CONFIG).is_file() || !root.join(".git").is_dir() {
        return Ok(None);
    }
    match Vault::adopt(&root)? {
        Some(vault) => {
            let vault = Arc::new(vault);
            Ok(Some(
                OpenMemory::open_with_clock(
                    StoreLocation::Folder(root),
                    (vault.clone(), vault),
                    selected_clock(global)?,
                )
                .await?,
            ))
        }
        None => Ok(None),
    }
}

/// The location at which to create a memory.
fn resolve_new_location(global: &GlobalArgs, folder: Option<&Path>) -> Result<StoreLocation> {
    match (folder, named_location(&global.store_selection())?) {
        (Some(_), Some(StoreLocation::Space { .. })) => Err(AppError::new(
            Exit::Usage,
            "a memory in a database has no folder; omit DIR and name a space with --space",
        )
        .into()),
        (Some(folder), _) => Ok(StoreLocation::Folder(folder.to_owned())),
        (None, Some(place)) => Ok(place),
        (None, None) => Ok(StoreLocation::Folder(default_vault_dir()?)),
    }
}

/// The location at which these options create a memory.
pub fn new_location(global: &GlobalArgs) -> Result<StoreLocation> {
    resolve_new_location(global, None)
}

/// The time zone of a memory that has none.
pub fn utc_zone() -> Result<Zone> {
    Ok(Zone::from_name("UTC")?)
}

/// Creates a memory and opens it. Creates the tables of an empty database first.
pub async fn create_memory(
    global: &GlobalArgs,
    folder: Option<&Path>,
    zone: Option<&str>,
) -> Result<(OpenMemory, Option<String>)> {
    let place = resolve_new_location(global, folder)?;
    let (zone, guessed) = match zone {
        Some(name) => (Zone::from_name(name).map_err(|error| AppError::new(Exit::Usage, error.to_string()))?, None),
        None => match system_zone_name().map(|name| Zone::from_name(&name)) {
            Some(Ok(zone)) => (zone, None),
            _ => (
                Zone::from_name("UTC").map_err(|error| AppError::new(Exit::Failure, error.to_string()))?,
                Some(
                    "the system's time zone is not known, so days are in UTC; set another with `--tz` or `zone` in icecore.toml"
                        .to_owned(),
                ),
            ),
        },
    };
    if let Some(database) = place.database() {
        database.create_tables().await?;
    }
    let home = place.create(&icecore_engine::config::initial_config(&zone)).await?;
    Ok((OpenMemory::open_with_clock(place, home, selected_clock(global)?).await?, guessed))
}

/// The database that the options name.
pub fn named_database(global: &GlobalArgs) -> Result<Option<Arc<Postgres>>> {
    Ok(named_location(&global.store_selection())?.and_then(|place| place.database().cloned()))
}

/// Warns if the database login of a server or worker can read every space.
pub async fn warn_of_login(database: &Postgres, out: &mut Output) {
    if let Ok(Some(reason)) = database.login_privilege().await {
        out.warn(format!(
            "the login {reason}, so a mistake could show one space to another; `icecore db migrate --create-login FILE` creates one for servers"
        ));
    }
}

/// Opens the conversations at a location. With `like`, creates a missing memory with that one's
/// policy.
pub async fn open_chats(place: &StoreLocation, like: Option<&StoreLocation>) -> Result<Chats> {
    let home = match like {
        Some(like) => place.open_or_create_like(like).await?,
        None => place.open().await?,
    };
    let memory = Memory::open(home.0, home.1, Box::new(SystemClock)).await?;
    Ok(Chats::open(Arc::new(memory)).await?)
}

/// The selected location; with `root`, the vault there, created if it is missing.
pub async fn resolve_root(global: &GlobalArgs, root: Option<&Path>) -> Result<StoreLocation> {
    let Some(root) = root else { return find_location(global) };
    if global.store.is_some() {
        return Err(AppError::new(
            Exit::Usage,
            "--root names a folder and --store a database; give one of them",
        )
        .into());
    }
    if !root.join(layout::CONFIG).is_file() {
        let zone = Zone::from_name(&system_zone_name().unwrap_or_else(|| "UTC".into()))
            .or_else(|_| Zone::from_name("UTC"))?;
        Vault::create(root, &icecore_engine::config::initial_config(&zone))?;
    }
    Ok(StoreLocation::Folder(root.to_owned()))
}

/// The path of the server's token, whether or not it exists.
pub fn token_path() -> PathBuf {
    match etcetera::choose_base_strategy() {
        Ok(folders) => folders.config_dir().join("icecore").join("token"),
        Err(_) => PathBuf::from("icecore-token"),
    }
}

/// Which store the command line and the environment select.
#[derive(Debug, Clone, Default)]
pub struct StoreSelection {
    pub vault: Option<PathBuf>,
    /// Whether the command line named the vault, so that the environment names no other.
    pub is_meant: bool,
    pub store: Option<SecretString>,
    pub space: Option<String>,
    /// Whether to use short timeouts.
    pub is_hurried: bool,
}

/// The environment variable with a database address.
pub const STORE_VAR: &str = "ICECORE_STORE";
const STORE_FILE_VAR: &str = "ICECORE_STORE_FILE";
/// The space that is used if none is named.
pub const DEFAULT_SPACE: &str = "default";

/// The selected database address: from the command line, else from the environment or the file it
/// names.
pub fn database_address(named: &StoreSelection) -> Result<Option<SecretString>> {
    if named.store.is_some() {
        return Ok(named.store.clone());
    }
    if named.is_meant {
        return Ok(None);
    }
    let environment =
        |name: &str| std::env::var(name).ok().filter(|value| !value.trim().is_empty());
    if let Some(address) = environment(STORE_VAR) {
        return Ok(Some(address.trim().into()));
    }
    let Some(file) = environment(STORE_FILE_VAR) else { return Ok(None) };
    read_address_file(Path::new(&file))
        .map(Some)
        .map_err(|error| error.context(format!("{STORE_FILE_VAR} names {file}")))
}

/// Reads a database address from a file.
pub fn read_address_file(file: &Path) -> Result<SecretString> {
    let unreadable = |why: String| AppError::new(Exit::Usage, format!("{} {why}", file.display()));
    let text = std::fs::read_to_string(file)
        .map_err(|error| unreadable(format!("cannot be read: {error}")))?;
    match text.trim() {
        "" => Err(unreadable("is empty; write the database address into it".into()).into()),
        address => Ok(address.into()),
    }
}

/// The named location. An empty name in the environment names none.
fn named_location(named: &StoreSelection) -> Result<Option<StoreLocation>> {
    if let Some(address) = database_address(named)? {
        let name = named
            .space
            .clone()
            .filter(|name| !name.is_empty())
            .unwrap_or_else(|| DEFAULT_SPACE.into());
        return Ok(Some(StoreLocation::Space {
            database: connect_database(&address, named.is_hurried)?,
            name,
        }));
    }
    Ok(named.vault.clone().filter(|named| !named.as_os_str().is_empty()).map(StoreLocation::Folder))
}

/// Open databases by address, so that opening a memory again reuses the connections.
static OPEN_DATABASES: Mutex<Vec<(SecretString, bool, Arc<Postgres>)>> = Mutex::new(Vec::new());
/// The timeout of a hook for the connection, for a lock and for a statement.
const HOOK_TIMEOUT: Duration = Duration::from_secs(2);

fn connect_database(address: &SecretString, is_hurried: bool) -> Result<Arc<Postgres>> {
    let mut reached = OPEN_DATABASES.lock().unwrap_or_else(PoisonError::into_inner);
    let is_same = |known: &SecretString| known.expose_secret() == address.expose_secret();
    if let Some((.., database)) =
        reached.iter().find(|(known, hurried, _)| is_same(known) && *hurried == is_hurried)
    {
        return Ok(database.clone());
    }
    let store = read_settings()?.0.store;
    let mut options = postgres::PostgresOptions {
        max_connections: store.max_connections,
        connect_timeout: store.connection_timeout,
        statement_timeout: store.statement_timeout,
        ..postgres::PostgresOptions::default()
    };
    if is_hurried {
        options = postgres::PostgresOptions {
            connect_timeout: options.connect_timeout.min(HOOK_TIMEOUT),
            statement_timeout: options.statement_timeout.min(HOOK_TIMEOUT),
            lock_timeout: options.lock_timeout.min(HOOK_TIMEOUT),
            ..options
        };
    }
    let database = Postgres::for_url(address.expose_secret(), options)
        .map_err(|error| AppError::new(Exit::Usage, error.to_string()))?;
    reached.push((address.clone(), is_hurried, database.clone()));
    Ok(database)
}

/// Releases the process's leases before exit, so that the next process can acquire them. Waits at
/// most `most` for each database.
pub fn release_leases(most: Duration) {
    let reached = OPEN_DATABASES.lock().unwrap_or_else(PoisonError::into_inner);
    for (.., database) in reached.iter() {
        database.drain_releases(most);
    }
}

/// The memory that a hook was installed with: the named one, else the user's own. The client's
/// current folder does not count: it may be a stranger's.
pub fn own_location(what: &StoreSelection) -> Result<StoreLocation> {
    match named_location(what)? {
        Some(place) => Ok(place),
        None => Ok(StoreLocation::Folder(default_vault_dir()?)),
    }
}

/// Opens a memory for a hook, with short timeouts. If its settings cannot be read, opens it with
/// defaults, so that messages are still captured, and returns the error.
pub fn open_for_hook(
    place: StoreLocation,
    now: Option<&str>,
) -> Result<(OpenMemory, Option<anyhow::Error>)> {
    pollster::block_on(async {
        let home = place.open_with_short_timeout().await?;
        let opened = match clock_or_fixed(now) {
            Ok(clock) => OpenMemory::open_with_clock(place.clone(), home.clone(), clock).await,
            Err(error) => Err(error),
        };
        match opened {
            Ok(open) => Ok((open, None)),
            Err(mistake) => {
                let clock = clock_or_fixed(now).or_else(|_| clock_or_fixed(None))?;
                Ok((OpenMemory::open_with_defaults(place, home, clock)?, Some(mistake)))
            }
        }
    })
}

/// Opens a memory only to log an error, so that its settings do not matter.
pub fn open_for_error_log(place: StoreLocation, now: Option<&str>) -> Result<OpenMemory> {
    let home = pollster::block_on(place.open_with_short_timeout())?;
    let clock = clock_or_fixed(now).or_else(|_| clock_or_fixed(None))?;
    OpenMemory::open_with_defaults(place, home, clock)
}

/// Opens the memory at a location.
pub fn open_location(place: StoreLocation, now: Option<&str>) -> Result<OpenMemory> {
    pollster::block_on(async {
        let home = place.open().await?;
        OpenMemory::open_with_clock(place, home, clock_or_fixed(now)?).await
    })
}

/// The moment given by `--now`, if any.
pub fn parse_now(global: &GlobalArgs) -> Result<Option<jiff::Timestamp>> {
    global.now.as_deref().map(|now| Ok(clock_or_fixed(Some(now))?.now())).transpose()
}

fn selected_clock(global: &GlobalArgs) -> Result<Box<dyn Clock>> {
    clock_or_fixed(global.now.as_deref())
}

fn clock_or_fixed(now: Option<&str>) -> Result<Box<dyn Clock>> {
    let Some(text) = now else { return Ok(Box::new(SystemClock)) };
    match Moment::parse(text) {
        Some(read) if !read.offset_assumed && (1..=9999).contains(&read.moment.day().year()) => {
            Ok(Box::new(FixedClock(read.moment.timestamp())))
        }
        _ => Err(AppError::new(
            Exit::Usage,
            format!("--now: `{text}` is not a moment; write it like 2026-02-13T09:30:00+01:00"),
        )
        .into()),
    }
}

/// The selected memory: the named one, else the nearest vault above the current folder, else the
/// user's own.
fn find_location(global: &GlobalArgs) -> Result<StoreLocation> {
    if let Some(named) = named_location(&global.store_selection())? {
        return Ok(named);
    }
    if global.space_is_meant {
        return Err(AppError::new(
            Exit::Usage,
            "--space names a space in a database; name the database with --store or ICECORE_STORE",
        )
        .into());
    }
    if let Ok(here) = std::env::current_dir() {
        for folder in here.ancestors() {
            if folder.join(layout::CONFIG).is_file() {
                return Ok(StoreLocation::Folder(folder.to_owned()));
            }
            // Writing into another vault instead would store things where no one looks for them.
            if folder.join(layout::LEDGER).is_file() {
                let message = format!(
                    "{} has a ledger but no icecore.toml; `icecore init {}` makes it a vault again",
                    folder.display(),
                    folder.display()
                );
                return Err(AppError::new(Exit::Damaged, message).into());
            }
        }
    }
    require_own_vault("none above this folder, ").map(StoreLocation::Folder)
}

/// The user's own vault, which must exist; `looked` says where else none was found.
fn require_own_vault(looked: &str) -> Result<PathBuf> {
    let home = default_vault_dir()?;
    if home.join(layout::CONFIG).is_file() {
        return Ok(home);
    }
    let home = home.display();
    let message = format!(
        "there is no vault yet: {looked}none in {home}. `icecore init` creates one; --vault or ICECORE_VAULT names another"
    );
    Err(AppError::new(Exit::NotFound, message).into())
}

fn default_vault_dir() -> Result<PathBuf> {
    let folders = etcetera::choose_base_strategy().map_err(|_| {
        AppError::new(
            Exit::Usage,
            "HOME is not set, so there is no folder of your own; name a vault with --vault DIR",
        )
    })?;
    Ok(folders.data_dir().join("icecore"))
}
