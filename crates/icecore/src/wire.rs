//! Where the parts are put together: the only place that picks a concrete store and a concrete clock.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Result;
use etcetera::BaseStrategy;
use icecore_domain::calendar::{Moment, Zone};
use icecore_domain::layout;
use icecore_engine::clock::{Clock, FixedClock, SystemClock, system_zone_name};
use icecore_engine::{Error as EngineError, Memory};
use icecore_store::vault::Vault;

use crate::cli::Global;
use crate::error::{Exit, Stop};

/// A memory in use, and where it is.
pub struct Open {
    /// The memory.
    pub memory: Memory,
    /// Its folder.
    pub root: PathBuf,
}

/// Opens the vault that these options mean.
pub async fn open(global: &Global) -> Result<Open> {
    let root = find(global)?;
    let vault = Arc::new(Vault::open(&root)?);
    Ok(Open { root: vault.root().to_owned(), memory: Memory::open(vault.clone(), vault, clock(global)?).await? })
}

/// Likewise, for commands that mend: with settings that cannot be read, the defaults do, and the complaint is returned.
pub async fn open_to_mend(global: &Global) -> Result<(Open, Option<String>)> {
    match open(global).await {
        Err(error) if error.downcast_ref::<EngineError>().is_some_and(|error| matches!(error, EngineError::Config(_))) => {
            let vault = Arc::new(Vault::open(&find(global)?)?);
            let memory = Memory::open_with_defaults(vault.clone(), vault.clone(), clock(global)?)?;
            Ok((Open { root: vault.root().to_owned(), memory }, Some(error.to_string())))
        }
        other => Ok((other?, None)),
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
    Ok((Open { root: vault.root().to_owned(), memory: Memory::open(vault.clone(), vault, clock(global)?).await? }, guessed))
}

/// The vault that was named; an empty `ICECORE_VAULT` names none.
fn named(global: &Global) -> Option<PathBuf> {
    global.vault.clone().filter(|named| !named.as_os_str().is_empty())
}

fn clock(global: &Global) -> Result<Box<dyn Clock>> {
    let Some(text) = &global.now else { return Ok(Box::new(SystemClock)) };
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
    let home = home()?;
    if home.join(layout::CONFIG).is_file() {
        return Ok(home);
    }
    Err(Stop::new(
        Exit::NotFound,
        format!(
            "there is no vault yet: none above this folder, none in {}. `icecore init` makes one; --vault or ICECORE_VAULT names another",
            home.display()
        ),
    )
    .into())
}

fn home() -> Result<PathBuf> {
    let folders = etcetera::choose_base_strategy()
        .map_err(|_| Stop::new(Exit::Usage, "HOME is not set, so there is no folder of your own; name a vault with --vault DIR"))?;
    Ok(folders.data_dir().join("icecore"))
}
