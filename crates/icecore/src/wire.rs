//! Where the parts are put together: which memory is meant, and with which clock it is opened.

use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use anyhow::Result;
use etcetera::BaseStrategy;
use icecore_domain::calendar::{Moment, Zone};
use icecore_domain::layout;
use icecore_engine::clock::{Clock, FixedClock, SystemClock, system_zone_name};
use icecore_engine::config::Mistake;
use icecore_engine::converse::Chats;
use icecore_engine::embed::MiniLm;
use icecore_engine::llm::{self, Llm};
use icecore_engine::settings::Settings;
use icecore_engine::{Asking, Error as EngineError, Memory};
use icecore_store::postgres::{self, Postgres};
use icecore_store::vault::Vault;
use secrecy::{ExposeSecret as _, SecretString};

use crate::cli::Global;
use crate::cli::out::Out;
use crate::error::{Exit, Stop};
use crate::place::{Home, Place};

/// A memory in use, and where it is.
pub struct Open {
    /// The memory.
    pub memory: Memory,
    /// Where it is.
    pub place: Place,
    home: Home,
}

impl Open {
    async fn of(place: Place, home: Home, clock: Box<dyn Clock>) -> Result<Self> {
        let memory = Memory::open(home.0.clone(), home.1.clone(), clock).await?;
        Ok(Self { memory, place, home })
    }

    /// Whatever its settings are: the defaults do.
    fn with_defaults(place: Place, home: Home, clock: Box<dyn Clock>) -> Result<Self> {
        let memory = Memory::open_with_defaults(home.0.clone(), home.1.clone(), clock)?;
        Ok(Self { memory, place, home })
    }

    /// The conversations of this memory, or of an end user's space beneath it.
    pub async fn chats(&self, global: &Global, user: Option<&str>) -> Result<Chats> {
        let memory = match user {
            None => self.at(global).await?.memory,
            Some(user) => {
                self.place.check_home()?;
                let place = self.place.of_user(user);
                if place.look().await?.is_none() {
                    let message = format!(
                        "there is no user `{}` here; a space is made when one first chats",
                        icecore_domain::plain::one_line(user)
                    );
                    return Err(Stop::new(Exit::NotFound, message).into());
                }
                let home = place.open().await?;
                Memory::open(home.0, home.1, clock(global)?).await?
            }
        };
        Ok(Chats::open(Arc::new(memory)).await?)
    }

    /// The same memory at the moment that these options name.
    pub async fn at(&self, global: &Global) -> Result<Self> {
        Self::of(self.place.clone(), self.home.clone(), clock(global)?).await
    }
}

/// The person's own settings, and the models they name.
pub struct Models {
    /// The settings.
    pub settings: Settings,
    /// Where they stand, or would.
    pub place: PathBuf,
    /// The model that makes summaries.
    pub summarizer: Option<Box<dyn Llm>>,
}

impl Models {
    /// The summarizer and how much of it may be used.
    pub fn asking(&self) -> Option<Asking<'_>> {
        let llm = self.summarizer.as_deref()?;
        let input_tokens =
            usize::try_from(self.settings.summarizer.max_input_tokens).unwrap_or(usize::MAX);
        let own = ["max_tokens", "max_completion_tokens", "max_output_tokens"]
            .map(|name| self.settings.summarizer.extra.get(name));
        let output_tokens =
            own.into_iter().flatten().filter_map(serde_json::Value::as_u64).max().unwrap_or(0);
        Some(Asking {
            llm,
            ceiling: self.settings.spend.tokens_per_day,
            input_tokens,
            output_tokens,
        })
    }
}

/// Reads the person's settings, and where they stand or would. A vault has no say in them: it may
/// come from a stranger.
fn settings() -> Result<(Settings, PathBuf)> {
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
            return Err(Stop::new(
                Exit::Failure,
                format!("{} cannot be read: {error}", place.display()),
            )
            .into());
        }
    };
    if let Some(text) = &text
        && Settings::holds_a_key(text)
        && std::fs::metadata(&place).is_ok_and(|found| found.permissions().mode() & 0o077 != 0)
    {
        let message = format!(
            "{} holds a key and others can read it; `chmod 600 {}`",
            place.display(),
            place.display()
        );
        return Err(Stop::new(Exit::NotAllowed, message).into());
    }
    let environment = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let settings =
        Settings::read(text.as_deref(), &environment, &|path| std::fs::read_to_string(path))
            .map_err(|error| Stop::new(Exit::Usage, placed(&place, &error.to_string())))?;
    Ok((settings, place))
}

/// Reads the person's settings and opens the models they name.
pub fn models() -> Result<Models> {
    let (settings, place) = settings()?;
    let summarizer = llm::open(&settings.summarizer)
        .map_err(|error| Stop::new(Exit::Usage, error.to_string()))?;
    Ok(Models { settings, place, summarizer })
}

/// The model that compares meanings, loaded when it is first needed and then kept.
pub struct Meanings {
    model: OnceLock<Option<MiniLm>>,
    log: Arc<dyn Fn(&str) + Send + Sync>,
}

impl Meanings {
    /// Nothing is loaded yet; what is wrong with the model is told to `log`.
    pub fn new(log: Arc<dyn Fn(&str) + Send + Sync>) -> Arc<Self> {
        Arc::new(Self { model: OnceLock::new(), log })
    }

    /// The model, if it was there when it was first needed.
    pub fn model(&self) -> Option<&MiniLm> {
        let load = || match embedder() {
            Ok(model) => model,
            Err(error) => {
                (self.log)(&format!("meanings are not compared: {error}"));
                None
            }
        };
        self.model.get_or_init(load).as_ref()
    }
}

/// Where the embedding model is, or would be.
pub fn model_folder() -> PathBuf {
    if let Some(folder) = std::env::var_os("ICECORE_MODEL_DIR").filter(|folder| !folder.is_empty())
    {
        return PathBuf::from(folder);
    }
    match etcetera::choose_base_strategy() {
        Ok(folders) => folders.data_dir().join("icecore").join("models").join("all-MiniLM-L6-v2"),
        Err(_) => PathBuf::from("all-MiniLM-L6-v2"),
    }
}

/// The embedding model, if it was fetched.
pub fn embedder() -> Result<Option<MiniLm>> {
    let folder = model_folder();
    if !folder.join("model.safetensors").exists() {
        return Ok(None);
    }
    MiniLm::load(&folder)
        .map(Some)
        .map_err(|error| Stop::new(Exit::Failure, error.to_string()).into())
}

/// A complaint about the settings, with the place of the file named once.
fn placed(place: &Path, said: &str) -> String {
    match said.split_once("config.toml") {
        Some((before, rest)) => format!("{before}{}{rest}", place.display()),
        // What a variable says stands in no file.
        None if said.starts_with("ICECORE_") => said.to_owned(),
        None => format!("{}: {said}", place.display()),
    }
}

/// Measures how long something takes.
pub struct Stopwatch(u64);

/// Starts measuring.
pub fn stopwatch() -> Stopwatch {
    Stopwatch(SystemClock.millis())
}

impl Stopwatch {
    /// Seconds since it was started.
    pub fn seconds(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
        let seconds = (SystemClock.millis() - self.0) as f64 / 1_000.0;
        seconds
    }
}

/// Waits so long; false if the person or the system wants the program to end.
pub async fn rest(seconds: u64) -> bool {
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

/// Returns when the person or the system wants the program to end.
pub async fn stopped() {
    while rest(3_600).await {}
}

/// Whether none is named and none is found; a database is not asked.
pub fn has_no_vault(global: &Global) -> bool {
    find(global).is_err_and(|error| {
        error.downcast_ref::<Stop>().is_some_and(|stop| stop.exit == Exit::NotFound)
    })
}

/// Where the person's own vault is, or would be.
pub fn own_vault() -> Result<PathBuf> {
    home()
}

/// The same, if there is none yet.
pub fn missing_own_vault() -> Result<Option<PathBuf>> {
    Ok(Some(home()?).filter(|home| !home.join(layout::CONFIG).is_file()))
}

/// Opens the memory that these options mean.
pub async fn open(global: &Global) -> Result<Open> {
    let place = find(global)?;
    let home = place.open().await?;
    Open::of(place, home, clock(global)?).await
}

/// Opens the memory that was named, else the person's own; never one that the folder brings along.
/// A client starts this program in whatever folder its person works in, and a stranger's folder
/// must not choose what its model remembers.
pub async fn open_own(global: &Global) -> Result<Open> {
    let place = match named(&global.named())? {
        Some(named) => named,
        None => Place::Folder(own("")?),
    };
    let home = place.open().await?;
    Open::of(place, home, clock(global)?).await
}

/// Likewise, for commands that mend: with settings that cannot be read, the defaults do, and the
/// complaint is returned.
pub async fn open_to_mend(global: &Global) -> Result<(Open, Option<String>)> {
    match open(global).await {
        Err(error) if error.downcast_ref::<EngineError>().is_some_and(can_be_mended) => {
            let place = find(global)?;
            let home = place.open().await?;
            Ok((Open::with_defaults(place, home, clock(global)?)?, Some(error.to_string())))
        }
        other => Ok((other?, None)),
    }
}

/// Whether the defaults do. A vault of a newer version is not this one's to mend: what it does not
/// know would count as broken.
fn can_be_mended(error: &EngineError) -> bool {
    matches!(error, EngineError::Config(mistake) if !matches!(mistake, Mistake::Newer { .. }))
}

/// Opens a clone of a vault that was not set up on this machine, and sets it up; `None` if the
/// folder is no such.
pub async fn adopt(global: &Global, folder: Option<&Path>) -> Result<Option<Open>> {
    let Place::Folder(root) = to_make(global, folder)? else { return Ok(None) };
    if !root.join(layout::CONFIG).is_file() || !root.join(".git").is_dir() {
        return Ok(None);
    }
    match Vault::adopt(&root)? {
        Some(vault) => {
            let vault = Arc::new(vault);
            Ok(Some(Open::of(Place::Folder(root), (vault.clone(), vault), clock(global)?).await?))
        }
        None => Ok(None),
    }
}

/// Where a memory is to be made.
fn to_make(global: &Global, folder: Option<&Path>) -> Result<Place> {
    match (folder, named(&global.named())?) {
        (Some(_), Some(Place::Space { .. })) => Err(Stop::new(
            Exit::Usage,
            "a memory in a database has no folder; leave DIR out, and name a space with --space",
        )
        .into()),
        (Some(folder), _) => Ok(Place::Folder(folder.to_owned())),
        (None, Some(place)) => Ok(place),
        (None, None) => Ok(Place::Folder(home()?)),
    }
}

/// Where these options want a memory to be made.
pub fn place_to_make(global: &Global) -> Result<Place> {
    to_make(global, None)
}

/// The zone of a memory of which no other is known.
pub fn utc() -> Result<Zone> {
    Ok(Zone::named("UTC")?)
}

/// Makes a memory and opens it. A database that has no tables gets them first.
pub async fn create(
    global: &Global,
    folder: Option<&Path>,
    zone: Option<&str>,
) -> Result<(Open, Option<String>)> {
    let place = to_make(global, folder)?;
    let (zone, guessed) = match zone {
        Some(name) => (Zone::named(name).map_err(|error| Stop::new(Exit::Usage, error.to_string()))?, None),
        None => match system_zone_name().map(|name| Zone::named(&name)) {
            Some(Ok(zone)) => (zone, None),
            _ => (
                Zone::named("UTC").map_err(|error| Stop::new(Exit::Failure, error.to_string()))?,
                Some(
                    "the system's time zone is not known, so days are those of UTC; `--tz` or `zone` in icecore.toml sets another"
                        .to_owned(),
                ),
            ),
        },
    };
    if let Some(database) = place.database() {
        database.prepare().await?;
    }
    let home = place.create(&icecore_engine::config::first(&zone)).await?;
    Ok((Open::of(place, home, clock(global)?).await?, guessed))
}

/// The database that these options name.
pub fn database(global: &Global) -> Result<Option<Arc<Postgres>>> {
    Ok(named(&global.named())?.and_then(|place| place.database().cloned()))
}

/// Warns an operator whose servers or workers use a login that sees every space.
pub async fn warn_of_login(database: &Postgres, out: &mut Out) {
    if let Ok(Some(reason)) = database.login_privilege().await {
        out.warn(format!(
            "the login {reason}, so a mistake could show one space to another; `icecore db migrate --create-login FILE` creates one for servers"
        ));
    }
}

/// The conversations of the memory in a place. One that is not there is made if it is to be like
/// another: with that one's policy.
pub async fn chats(place: &Place, like: Option<&Place>) -> Result<Chats> {
    let home = match like {
        Some(like) => place.open_like(like).await?,
        None => place.open().await?,
    };
    let memory = Memory::open(home.0, home.1, Box::new(SystemClock)).await?;
    Ok(Chats::open(Arc::new(memory)).await?)
}

/// The memory that is meant; with `root`, the vault there, made if it is not there.
pub async fn home_of(global: &Global, root: Option<&Path>) -> Result<Place> {
    let Some(root) = root else { return find(global) };
    if global.store.is_some() {
        return Err(Stop::new(
            Exit::Usage,
            "--root names a folder and --store a database; give one of them",
        )
        .into());
    }
    if !root.join(layout::CONFIG).is_file() {
        let zone = Zone::named(&system_zone_name().unwrap_or_else(|| "UTC".into()))
            .or_else(|_| Zone::named("UTC"))?;
        Vault::create(root, &icecore_engine::config::first(&zone))?;
    }
    Ok(Place::Folder(root.to_owned()))
}

/// Where the server's token is, or would be.
pub fn token_file() -> PathBuf {
    match etcetera::choose_base_strategy() {
        Ok(folders) => folders.config_dir().join("icecore").join("token"),
        Err(_) => PathBuf::from("icecore-token"),
    }
}

/// What was said of where memory is.
#[derive(Debug, Clone, Default)]
pub struct Named {
    /// The vault.
    pub vault: Option<PathBuf>,
    /// Whether that stood on the command line, so that the environment does not name another.
    pub is_meant: bool,
    /// The address of a database, from the command line.
    pub store: Option<SecretString>,
    /// The space in it.
    pub space: Option<String>,
    /// Whether somebody waits who will not wait long.
    pub is_hurried: bool,
}

/// The variables that name a database.
pub const STORE: &str = "ICECORE_STORE";
const STORE_FILE: &str = "ICECORE_STORE_FILE";
/// The space of somebody who names none.
pub const SPACE: &str = "default";

/// The address of the database that is meant, if one is: the command line's, else the environment's
/// or that of the file it names.
pub fn address(named: &Named) -> Result<Option<SecretString>> {
    if named.store.is_some() {
        return Ok(named.store.clone());
    }
    if named.is_meant {
        return Ok(None);
    }
    let environment =
        |name: &str| std::env::var(name).ok().filter(|value| !value.trim().is_empty());
    if let Some(address) = environment(STORE) {
        return Ok(Some(address.trim().into()));
    }
    let Some(file) = environment(STORE_FILE) else { return Ok(None) };
    address_in(Path::new(&file))
        .map(Some)
        .map_err(|error| error.context(format!("{STORE_FILE} names {file}")))
}

/// The address of a database that stands in a file.
pub fn address_in(file: &Path) -> Result<SecretString> {
    let unreadable = |why: String| Stop::new(Exit::Usage, format!("{} {why}", file.display()));
    let text = std::fs::read_to_string(file)
        .map_err(|error| unreadable(format!("cannot be read: {error}")))?;
    match text.trim() {
        "" => Err(unreadable("is empty; put the address of the database into it".into()).into()),
        address => Ok(address.into()),
    }
}

/// The memory that was named; an empty name names none in the environment.
fn named(named: &Named) -> Result<Option<Place>> {
    if let Some(address) = address(named)? {
        let name =
            named.space.clone().filter(|name| !name.is_empty()).unwrap_or_else(|| SPACE.into());
        return Ok(Some(Place::Space { database: reach(&address, named.is_hurried)?, name }));
    }
    Ok(named.vault.clone().filter(|named| !named.as_os_str().is_empty()).map(Place::Folder))
}

/// Databases in use, by their address: whoever opens a memory again uses the same connections.
static REACHED: Mutex<Vec<(SecretString, bool, Arc<Postgres>)>> = Mutex::new(Vec::new());
/// How long somebody who is in a hurry waits for a database, for a lock and for a statement.
const HURRY: Duration = Duration::from_secs(2);

fn reach(address: &SecretString, is_hurried: bool) -> Result<Arc<Postgres>> {
    let mut reached = REACHED.lock().unwrap_or_else(PoisonError::into_inner);
    let is_same = |known: &SecretString| known.expose_secret() == address.expose_secret();
    if let Some((.., database)) =
        reached.iter().find(|(known, hurried, _)| is_same(known) && *hurried == is_hurried)
    {
        return Ok(database.clone());
    }
    let store = settings()?.0.store;
    let mut options = postgres::Options {
        connections: store.connections,
        patience: store.patience,
        statement: store.statement,
        ..postgres::Options::default()
    };
    if is_hurried {
        options = postgres::Options {
            patience: options.patience.min(HURRY),
            statement: options.statement.min(HURRY),
            lock: options.lock.min(HURRY),
            ..options
        };
    }
    let database = Postgres::at(address.expose_secret(), options)
        .map_err(|error| Stop::new(Exit::Usage, error.to_string()))?;
    reached.push((address.clone(), is_hurried, database.clone()));
    Ok(database)
}

/// The last that a process does, so that what it claimed and let go is free for the one after it.
/// It waits for each database at most so long.
pub fn part(most: Duration) {
    let reached = REACHED.lock().unwrap_or_else(PoisonError::into_inner);
    for (.., database) in reached.iter() {
        database.part(most);
    }
}

/// The memory that a hook was installed with: the one named, else the person's own. A folder that a
/// client happens to work in has no say: it may be a stranger's.
pub fn own_place(what: &Named) -> Result<Place> {
    match named(what)? {
        Some(place) => Ok(place),
        None => Ok(Place::Folder(home()?)),
    }
}

/// Opens a memory for somebody who cannot wait for others. If its settings cannot be read, what is
/// said can still be captured: it is opened with the defaults, and the mistake is returned.
pub fn open_hurried(place: Place, now: Option<&str>) -> Result<(Open, Option<anyhow::Error>)> {
    pollster::block_on(async {
        let home = place.open_hurried().await?;
        let opened = match clock_at(now) {
            Ok(clock) => Open::of(place.clone(), home.clone(), clock).await,
            Err(error) => Err(error),
        };
        match opened {
            Ok(open) => Ok((open, None)),
            Err(mistake) => {
                let clock = clock_at(now).or_else(|_| clock_at(None))?;
                Ok((Open::with_defaults(place, home, clock)?, Some(mistake)))
            }
        }
    })
}

/// Opens a memory only to write down what went wrong, so that its settings do not matter.
pub fn open_to_note(place: Place, now: Option<&str>) -> Result<Open> {
    let home = pollster::block_on(place.open_hurried())?;
    let clock = clock_at(now).or_else(|_| clock_at(None))?;
    Open::with_defaults(place, home, clock)
}

/// Opens the memory in a place.
pub fn open_at(place: Place, now: Option<&str>) -> Result<Open> {
    pollster::block_on(async {
        let home = place.open().await?;
        Open::of(place, home, clock_at(now)?).await
    })
}

/// The moment that these options name, if they name one.
pub fn as_of(global: &Global) -> Result<Option<jiff::Timestamp>> {
    global.now.as_deref().map(|now| Ok(clock_at(Some(now))?.now())).transpose()
}

fn clock(global: &Global) -> Result<Box<dyn Clock>> {
    clock_at(global.now.as_deref())
}

fn clock_at(now: Option<&str>) -> Result<Box<dyn Clock>> {
    let Some(text) = now else { return Ok(Box::new(SystemClock)) };
    match Moment::read(text) {
        Some(read) if !read.offset_assumed && (1..=9999).contains(&read.moment.day().year()) => {
            Ok(Box::new(FixedClock(read.moment.at())))
        }
        _ => Err(Stop::new(
            Exit::Usage,
            format!("--now: `{text}` is not a moment; write it like 2026-02-13T09:30:00+01:00"),
        )
        .into()),
    }
}

/// The memory that is meant: the one named, else the nearest vault above this folder, else the
/// person's own.
fn find(global: &Global) -> Result<Place> {
    if let Some(named) = named(&global.named())? {
        return Ok(named);
    }
    if global.space_is_meant {
        return Err(Stop::new(
            Exit::Usage,
            "--space names a space of a database; name the database with --store or ICECORE_STORE",
        )
        .into());
    }
    if let Ok(here) = std::env::current_dir() {
        for folder in here.ancestors() {
            if folder.join(layout::CONFIG).is_file() {
                return Ok(Place::Folder(folder.to_owned()));
            }
            // To write into another vault instead would put things where nobody looks for them.
            if folder.join(layout::LEDGER).is_file() {
                let message = format!(
                    "{} has a ledger but no icecore.toml; `icecore init {}` makes it a vault again",
                    folder.display(),
                    folder.display()
                );
                return Err(Stop::new(Exit::Damaged, message).into());
            }
        }
    }
    own("none above this folder, ").map(Place::Folder)
}

/// The person's own vault, which must be there; `looked` says where else there is none.
fn own(looked: &str) -> Result<PathBuf> {
    let home = home()?;
    if home.join(layout::CONFIG).is_file() {
        return Ok(home);
    }
    let home = home.display();
    let message = format!(
        "there is no vault yet: {looked}none in {home}. `icecore init` makes one; --vault or ICECORE_VAULT names another"
    );
    Err(Stop::new(Exit::NotFound, message).into())
}

fn home() -> Result<PathBuf> {
    let folders = etcetera::choose_base_strategy().map_err(|_| {
        Stop::new(
            Exit::Usage,
            "HOME is not set, so there is no folder of your own; name a vault with --vault DIR",
        )
    })?;
    Ok(folders.data_dir().join("icecore"))
}
