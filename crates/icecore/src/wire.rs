//! Where the parts are put together: the only place that picks a concrete store and a concrete clock.

use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::Result;
use etcetera::BaseStrategy;
use icecore_domain::calendar::{Moment, Zone};
use icecore_domain::layout;
use icecore_engine::clock::{Clock, FixedClock, SystemClock, system_zone_name};
use icecore_engine::converse::Chats;
use icecore_engine::embed::MiniLm;
use icecore_engine::llm::{self, Llm};
use icecore_engine::settings::Settings;
use icecore_engine::{Asking, Error as EngineError, Memory};
use icecore_store::vault::Vault;

use crate::cli::Global;
use crate::error::{Exit, Stop};

/// A memory in use, and where it is.
pub struct Open {
    /// The memory.
    pub memory: Memory,
    /// Its folder.
    pub root: PathBuf,
    vault: Arc<Vault>,
}

impl Open {
    async fn of(vault: Arc<Vault>, clock: Box<dyn Clock>) -> Result<Self> {
        let memory = Memory::open(vault.clone(), vault.clone(), clock).await?;
        Ok(Self { memory, root: vault.root().to_owned(), vault })
    }

    /// The conversations of this vault, or of an end user's space beneath it.
    pub async fn chats(&self, global: &Global, user: Option<&str>) -> Result<Chats> {
        let memory = match user {
            None => self.at(global).await?.memory,
            Some(user) => {
                let root = crate::spaces::folder(&self.root, user);
                if !root.join(layout::CONFIG).is_file() {
                    let message =
                        format!("there is no user `{}` here; a space is made when one first chats", icecore_domain::plain::one_line(user));
                    return Err(Stop::new(Exit::NotFound, message).into());
                }
                let vault = Arc::new(Vault::open(&root)?);
                Memory::open(vault.clone(), vault, clock(global)?).await?
            }
        };
        Ok(Chats::open(Arc::new(memory)).await?)
    }

    /// The same memory at the moment that these options name.
    pub async fn at(&self, global: &Global) -> Result<Self> {
        Self::of(self.vault.clone(), clock(global)?).await
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
        let input_tokens = usize::try_from(self.settings.summarizer.max_input_tokens).unwrap_or(usize::MAX);
        let own = ["max_tokens", "max_completion_tokens", "max_output_tokens"].map(|name| self.settings.summarizer.extra.get(name));
        let output_tokens = own.into_iter().flatten().filter_map(serde_json::Value::as_u64).max().unwrap_or(0);
        Some(Asking { llm, ceiling: self.settings.spend.tokens_per_day, input_tokens, output_tokens })
    }
}

/// Reads the person's settings. A vault has no say in them: it may come from a stranger.
pub fn models() -> Result<Models> {
    let place = match etcetera::choose_base_strategy() {
        Ok(folders) => folders.config_dir().join("icecore").join("config.toml"),
        Err(_) => PathBuf::from("config.toml"),
    };
    let text = match std::fs::read_to_string(&place) {
        Ok(text) => Some(text),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => None,
        Err(error) => return Err(Stop::new(Exit::Failure, format!("{} cannot be read: {error}", place.display())).into()),
    };
    if let Some(text) = &text
        && Settings::holds_a_key(text)
        && std::fs::metadata(&place).is_ok_and(|found| found.permissions().mode() & 0o077 != 0)
    {
        let message = format!("{} holds a key and others can read it; `chmod 600 {}`", place.display(), place.display());
        return Err(Stop::new(Exit::NotAllowed, message).into());
    }
    let environment = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let settings = Settings::read(text.as_deref(), &environment, &|path| std::fs::read_to_string(path))
        .map_err(|error| Stop::new(Exit::Usage, placed(&place, &error.to_string())))?;
    let summarizer = llm::open(&settings.summarizer).map_err(|error| Stop::new(Exit::Usage, error.to_string()))?;
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
    if let Some(folder) = std::env::var_os("ICECORE_MODEL_DIR").filter(|folder| !folder.is_empty()) {
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
    MiniLm::load(&folder).map(Some).map_err(|error| Stop::new(Exit::Failure, error.to_string()).into())
}

/// A complaint about the settings, with the place of the file named once.
fn placed(place: &Path, said: &str) -> String {
    match said.strip_prefix("config.toml") {
        Some(rest) => format!("{}{rest}", place.display()),
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
    let (Ok(mut end), Ok(mut interrupt)) = (signal(SignalKind::terminate()), signal(SignalKind::interrupt())) else { return false };
    tokio::select! {
        () = tokio::time::sleep(Duration::from_secs(seconds)) => true,
        _ = end.recv() => false,
        _ = interrupt.recv() => false,
    }
}

/// Whether there is a vault that these options mean.
pub fn has_vault(global: &Global) -> bool {
    find(global).is_ok()
}

/// Opens the vault that these options mean.
pub async fn open(global: &Global) -> Result<Open> {
    Open::of(Arc::new(Vault::open(&find(global)?)?), clock(global)?).await
}

/// Opens the vault that was named, else the person's own; never one that the folder brings along. A client starts this program in
/// whatever folder its person works in, and a stranger's folder must not choose what its model remembers.
pub async fn open_own(global: &Global) -> Result<Open> {
    let root = match named(global) {
        Some(named) => named,
        None => own("")?,
    };
    Open::of(Arc::new(Vault::open(&root)?), clock(global)?).await
}

/// Likewise, for commands that mend: with settings that cannot be read, the defaults do, and the complaint is returned.
pub async fn open_to_mend(global: &Global) -> Result<(Open, Option<String>)> {
    match open(global).await {
        Err(error) if error.downcast_ref::<EngineError>().is_some_and(|error| matches!(error, EngineError::Config(_))) => {
            let vault = Arc::new(Vault::open(&find(global)?)?);
            let memory = Memory::open_with_defaults(vault.clone(), vault.clone(), clock(global)?)?;
            Ok((Open { memory, root: vault.root().to_owned(), vault }, Some(error.to_string())))
        }
        other => Ok((other?, None)),
    }
}

/// Opens a clone of a vault that was not set up on this machine, and sets it up; `None` if the folder is no such.
pub async fn adopt(global: &Global, folder: Option<&Path>) -> Result<Option<Open>> {
    let root = match folder.map(Path::to_owned).or_else(|| named(global)) {
        Some(root) => root,
        None => home()?,
    };
    if !root.join(layout::CONFIG).is_file() || !root.join(".git").is_dir() {
        return Ok(None);
    }
    match Vault::adopt(&root)? {
        Some(vault) => Ok(Some(Open::of(Arc::new(vault), clock(global)?).await?)),
        None => Ok(None),
    }
}

/// Makes a vault and opens it.
pub async fn create(global: &Global, folder: Option<&Path>, zone: Option<&str>) -> Result<(Open, Option<String>)> {
    let root = match folder.map(Path::to_owned).or_else(|| named(global)) {
        Some(root) => root,
        None => home()?,
    };
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
    let vault = Arc::new(Vault::create(&root, &icecore_engine::config::first(&zone))?);
    Ok((Open::of(vault, clock(global)?).await?, guessed))
}

/// The conversations of the vault in a folder. One that is not there is made if it is to be like another: with that one's
/// policy.
pub async fn chats(root: &Path, like: Option<&Path>) -> Result<Chats> {
    let vault = match (root.join(layout::CONFIG).is_file(), like) {
        (false, Some(like)) => {
            // With the home's own policy: what holds for one holds for all.
            let place = like.join(layout::CONFIG);
            let policy = std::fs::read_to_string(&place)
                .map_err(|error| Stop::new(Exit::Failure, format!("{} cannot be read: {error}", place.display())))?;
            match Vault::create(root, &policy) {
                // Another request, or another process, was faster.
                Err(icecore_store::Error::AlreadyAVault(_)) => Vault::open(root)?,
                made => made?,
            }
        }
        _ => Vault::open(root)?,
    };
    let vault = Arc::new(vault);
    let memory = Memory::open(vault.clone(), vault, Box::new(SystemClock)).await?;
    Ok(Chats::open(Arc::new(memory)).await?)
}

/// Takes the space of an end user away, with everything in it; false if there is none.
pub fn forget_space(root: &Path) -> Result<bool> {
    if !root.join(layout::CONFIG).is_file() {
        return Ok(false);
    }
    Ok(icecore_store::shelf::discard(root)?)
}

/// The folder of the vault that is meant; with `root`, that one, made if it is not there.
pub async fn home_of(global: &Global, root: Option<&Path>) -> Result<PathBuf> {
    let Some(root) = root else { return find(global) };
    if !root.join(layout::CONFIG).is_file() {
        let zone = Zone::named(&system_zone_name().unwrap_or_else(|| "UTC".into())).or_else(|_| Zone::named("UTC"))?;
        Vault::create(root, &icecore_engine::config::first(&zone))?;
    }
    Ok(root.to_owned())
}

/// Where the server's token is, or would be.
pub fn token_file() -> PathBuf {
    match etcetera::choose_base_strategy() {
        Ok(folders) => folders.config_dir().join("icecore").join("token"),
        Err(_) => PathBuf::from("icecore-token"),
    }
}

/// The vault that was named; an empty `ICECORE_VAULT` names none.
fn named(global: &Global) -> Option<PathBuf> {
    global.vault.clone().filter(|named| !named.as_os_str().is_empty())
}

/// The vault that a hook was installed with: the one named, else the person's own. A folder that a client happens to work in has no
/// say: it may be a stranger's.
pub fn own_vault(named: Option<PathBuf>) -> Result<PathBuf> {
    named.map_or_else(home, Ok)
}

/// Opens a vault for somebody who cannot wait for others.
pub fn open_hurried(root: &Path, now: Option<&str>) -> Result<Open> {
    let vault = Arc::new(Vault::open_hurried(root)?);
    pollster::block_on(Open::of(vault, clock_at(now)?))
}

/// Opens a vault only to write down what went wrong, so that its settings do not matter.
pub fn open_to_note(root: &Path, now: Option<&str>) -> Result<Open> {
    let vault = Arc::new(Vault::open_hurried(root)?);
    let clock = clock_at(now).or_else(|_| clock_at(None))?;
    let memory = Memory::open_with_defaults(vault.clone(), vault.clone(), clock)?;
    Ok(Open { memory, root: vault.root().to_owned(), vault })
}

/// Opens the vault in a folder.
pub fn open_at(root: &Path, now: Option<&str>) -> Result<Open> {
    pollster::block_on(Open::of(Arc::new(Vault::open(root)?), clock_at(now)?))
}

fn clock(global: &Global) -> Result<Box<dyn Clock>> {
    clock_at(global.now.as_deref())
}

fn clock_at(now: Option<&str>) -> Result<Box<dyn Clock>> {
    let Some(text) = now else { return Ok(Box::new(SystemClock)) };
    match Moment::read(text) {
        Some(read) if !read.offset_assumed && (1..=9999).contains(&read.moment.day().year()) => Ok(Box::new(FixedClock(read.moment.at()))),
        _ => Err(Stop::new(Exit::Usage, format!("--now: `{text}` is not a moment; write it like 2026-02-13T09:30:00+01:00")).into()),
    }
}

/// The vault that is meant: the one named, else the nearest above this folder, else the person's own.
fn find(global: &Global) -> Result<PathBuf> {
    if let Some(named) = named(global) {
        return Ok(named);
    }
    if let Ok(here) = std::env::current_dir() {
        for folder in here.ancestors() {
            if folder.join(layout::CONFIG).is_file() {
                return Ok(folder.to_owned());
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
    own("none above this folder, ")
}

/// The person's own vault, which must be there; `looked` says where else there is none.
fn own(looked: &str) -> Result<PathBuf> {
    let home = home()?;
    if home.join(layout::CONFIG).is_file() {
        return Ok(home);
    }
    let home = home.display();
    let message =
        format!("there is no vault yet: {looked}none in {home}. `icecore init` makes one; --vault or ICECORE_VAULT names another");
    Err(Stop::new(Exit::NotFound, message).into())
}

fn home() -> Result<PathBuf> {
    let folders = etcetera::choose_base_strategy()
        .map_err(|_| Stop::new(Exit::Usage, "HOME is not set, so there is no folder of your own; name a vault with --vault DIR"))?;
    Ok(folders.data_dir().join("icecore"))
}
