//! Where a memory is stored: a vault in a folder, or a space in a PostgreSQL database.
//!
//! The space of an end user lies below the main space: in a subfolder `spaces/`, or as `MAIN/USER`
//! in the database. The address of a database is a secret; messages show only its host and name.

use std::fmt;
use std::hash::{Hash as StdHash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Result;
use icecore_domain::hash::Hash;
use icecore_domain::{layout, page};
use icecore_store::postgres::{MAX_NAME_BYTES, Postgres, SpaceFingerprint};
use icecore_store::vault::Vault;
use icecore_store::{Error as StoreError, ErrorKind as StoreErrorKind, SnapshotStore, Store};
use serde::{Deserialize, Serialize};

use crate::error::{AppError, Exit};
use crate::spaces::MAX_USER_BYTES;

/// The folder below a vault that holds the spaces of end users.
const SPACES_DIR: &str = "spaces";
/// The file with the end user's name. The name of the folder is a hash and cannot be read back.
pub const USER_NAME_FILE: &str = "space.json";
/// Separates the name of a space from that of its end user.
const USER_SEPARATOR: char = '/';

/// Where a memory is stored.
#[derive(Clone)]
pub enum StoreLocation {
    Folder(PathBuf),
    Space { database: Arc<Postgres>, name: String },
}

/// The store of a memory and its snapshots.
pub type StoreHandles = (Arc<dyn Store>, Arc<dyn SnapshotStore>);

/// The state of a memory, to notice later whether it was replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LocationState {
    Folder,
    Space(SpaceFingerprint),
}

impl LocationState {
    /// Whether it is the same space, whatever changed in it, and not one that was erased and
    /// created again. `None` for a folder, which does not tell.
    pub fn is_same_incarnation(&self, other: &Self) -> Option<bool> {
        match (self, other) {
            (Self::Space(one), Self::Space(other)) => Some(one.is_same_space(other)),
            _ => None,
        }
    }
}

/// The owner of a space, as stored in `space.json`.
#[derive(Serialize, Deserialize)]
pub struct SpaceOwner {
    pub user: String,
}

impl fmt::Debug for StoreLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Place({self})")
    }
}

impl fmt::Display for StoreLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Folder(root) => write!(f, "{}", root.display()),
            Self::Space { name, .. } => write!(f, "{}, space {name}", self.base_name()),
        }
    }
}

impl PartialEq for StoreLocation {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Folder(one), Self::Folder(other)) => one == other,
            (
                Self::Space { database: here, name: one },
                Self::Space { database: there, name: other },
            ) => Arc::ptr_eq(here, there) && one == other,
            _ => false,
        }
    }
}

impl Eq for StoreLocation {}

impl StdHash for StoreLocation {
    fn hash<H: Hasher>(&self, state: &mut H) {
        match self {
            Self::Folder(root) => root.hash(state),
            Self::Space { name, .. } => name.hash(state),
        }
    }
}

fn is_vault(folder: &Path) -> bool {
    folder.join(layout::CONFIG).is_file()
}

impl StoreLocation {
    /// The folder, or the database without its password.
    pub fn base_name(&self) -> String {
        match self {
            Self::Folder(root) => root.display().to_string(),
            Self::Space { database, .. } => format!("postgres://{}", database.display_name()),
        }
    }

    /// The name of the space, in a database.
    pub fn space_name(&self) -> Option<&str> {
        match self {
            Self::Folder(_) => None,
            Self::Space { name, .. } => Some(name),
        }
    }

    /// The folder, if it is one.
    pub fn folder(&self) -> Option<&Path> {
        match self {
            Self::Folder(root) => Some(root),
            Self::Space { .. } => None,
        }
    }

    /// The database, if it is one.
    pub fn database(&self) -> Option<&Arc<Postgres>> {
        match self {
            Self::Folder(_) => None,
            Self::Space { database, .. } => Some(database),
        }
    }

    /// A short name for a title.
    pub fn title(&self) -> String {
        match self {
            Self::Folder(root) => root
                .file_name()
                .map_or("icecore".into(), |name| name.to_string_lossy().into_owned()),
            Self::Space { name, .. } => name.clone(),
        }
    }

    /// Reads the state of the memory; `None` if it does not exist.
    pub async fn read_state(&self) -> Result<Option<LocationState>> {
        match self {
            Self::Folder(root) => Ok(is_vault(root).then_some(LocationState::Folder)),
            Self::Space { database, name } => {
                Ok(database.space_fingerprint(name).await?.map(LocationState::Space))
            }
        }
    }

    /// Opens the store.
    pub async fn open(&self) -> Result<StoreHandles> {
        match self {
            Self::Folder(root) => Ok(as_handles(Arc::new(Vault::open(root)?))),
            Self::Space { database, name } => match database.open_space(name).await? {
                Some(space) => Ok(as_handles(space)),
                None => Err(StoreError::not_a_space(name.clone()).into()),
            },
        }
    }

    /// Opens the store with a short lock timeout, for hooks.
    pub async fn open_with_short_timeout(&self) -> Result<StoreHandles> {
        match self {
            Self::Folder(root) => Ok(as_handles(Arc::new(Vault::open_with_short_wait(root)?))),
            Self::Space { .. } => self.open().await,
        }
    }

    /// Creates the store with a policy (the text of `icecore.toml`).
    pub async fn create(&self, policy: &str) -> Result<StoreHandles> {
        match self {
            Self::Folder(root) => Ok(as_handles(Arc::new(Vault::create(root, policy)?))),
            Self::Space { database, name } => {
                check_space_name(name)?;
                Ok(as_handles(database.create_space(name, policy).await?))
            }
        }
    }

    /// Opens the store. If it does not exist, creates it with the policy of another one.
    pub async fn open_or_create_like(&self, like: &Self) -> Result<StoreHandles> {
        if self.read_state().await?.is_some() {
            return self.open().await;
        }
        let policy = match like {
            Self::Folder(root) => {
                let place = root.join(layout::CONFIG);
                std::fs::read_to_string(&place).map_err(|error| {
                    AppError::new(
                        Exit::Failure,
                        format!("{} cannot be read: {error}", place.display()),
                    )
                })?
            }
            Self::Space { .. } => {
                let policy = like
                    .open()
                    .await?
                    .0
                    .document(&layout::CONFIG.parse()?)
                    .await?
                    .unwrap_or_default();
                String::from_utf8(policy).map_err(|_| {
                    AppError::new(Exit::Damaged, format!("{} is not UTF-8", layout::CONFIG))
                })?
            }
        };
        match self.create(&policy).await {
            // Another request or process created it first.
            Err(error)
                if matches!(
                    error.downcast_ref(),
                    Some(StoreError { kind: StoreErrorKind::AlreadyExists, .. })
                ) =>
            {
                self.open().await
            }
            made => made,
        }
    }

    /// Deletes the store and everything in it; false if there is none.
    pub async fn erase(&self) -> Result<bool> {
        match self {
            Self::Folder(root) => {
                Ok(is_vault(root) && icecore_store::staged_dir::remove_dir(root)?)
            }
            Self::Space { database, name } => Ok(database.erase_space(name).await?),
        }
    }

    /// The location of an end user's space, whether or not it exists.
    pub fn user_location(&self, user: &str) -> Self {
        match self {
            Self::Folder(root) => {
                let slug = page::slug(user);
                let short = slug[..slug.floor_char_boundary(40)].trim_matches('-');
                Self::Folder(
                    root.join(SPACES_DIR)
                        .join(format!("{short}-{}", Hash::of(user.as_bytes()).short_hex())),
                )
            }
            Self::Space { database, name } => Self::Space {
                database: database.clone(),
                name: format!("{name}{USER_SEPARATOR}{user}"),
            },
        }
    }

    /// Rejects a space that is itself the space of an end user: its users could be another's.
    pub fn check_can_have_users(&self) -> Result<()> {
        match self {
            Self::Space { name, .. } if name.contains(USER_SEPARATOR) => {
                let message = format!(
                    "`{name}` has a slash in it, so it is the space of an end user and cannot have users of its own; name another space with --space"
                );
                Err(AppError::new(Exit::Usage, message).into())
            }
            _ => Ok(()),
        }
    }

    /// Lists the spaces of end users, each with the user's name if it is known.
    pub async fn list_users(&self) -> Result<Vec<(Option<String>, Self)>> {
        match self {
            Self::Folder(root) => {
                // Hidden folders are being deleted.
                let is_seen = |entry: &std::fs::DirEntry| {
                    !entry.file_name().to_string_lossy().starts_with('.')
                };
                let found = std::fs::read_dir(root.join(SPACES_DIR))
                    .map_or_else(|_| Vec::new(), |found| found.flatten().collect());
                let folders = found
                    .iter()
                    .filter(|entry| is_seen(entry))
                    .map(std::fs::DirEntry::path)
                    .filter(|folder| is_vault(folder));
                let named = |folder: PathBuf| {
                    let text = std::fs::read(folder.join(USER_NAME_FILE)).ok();
                    let named =
                        text.and_then(|text| serde_json::from_slice::<SpaceOwner>(&text).ok());
                    (named.map(|named| named.user), Self::Folder(folder))
                };
                Ok(folders.map(named).collect())
            }
            Self::Space { database, name } => {
                let beginning = name.len() + USER_SEPARATOR.len_utf8();
                let names = database.list_spaces_below(name).await?;
                let named = |name: String| {
                    (
                        name.get(beginning..).map(str::to_owned),
                        Self::Space { database: database.clone(), name },
                    )
                };
                Ok(names.into_iter().map(named).collect())
            }
        }
    }
}

/// Rejects a name so long that no end user could have a space below it.
fn check_space_name(name: &str) -> Result<()> {
    const MAX_MAIN_SPACE_BYTES: usize = MAX_NAME_BYTES - USER_SEPARATOR.len_utf8() - MAX_USER_BYTES;
    let (home, user) =
        name.split_once(USER_SEPARATOR).map_or((name, None), |(home, user)| (home, Some(user)));
    if home.len() > MAX_MAIN_SPACE_BYTES {
        let message = format!(
            "the space name has {} bytes; at most {MAX_MAIN_SPACE_BYTES} are allowed before the slash, so that names of end users fit after it",
            home.len()
        );
        return Err(AppError::new(Exit::Usage, message).into());
    }
    match user {
        Some(user) if user.len() > MAX_USER_BYTES => {
            let message = format!(
                "a user's name has at most {MAX_USER_BYTES} bytes, and this one has {}",
                user.len()
            );
            Err(AppError::new(Exit::Usage, message).into())
        }
        _ => Ok(()),
    }
}

/// A store that keeps its own snapshots.
pub fn as_handles<T: Store + SnapshotStore + 'static>(home: Arc<T>) -> StoreHandles {
    (home.clone(), home)
}

/// The error of a command that works only on a vault in a folder.
pub fn folder_required(what: &str, instead: &str) -> anyhow::Error {
    AppError::new(
        Exit::Usage,
        format!("{what} needs a vault in a folder, and this memory is in a database; {instead}"),
    )
    .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_home_leaves_room_for_the_longest_user() {
        let check = |home: usize, user: usize| {
            let user = if user == 0 { String::new() } else { format!("/{}", "u".repeat(user)) };
            check_space_name(&format!("{}{user}", "h".repeat(home))).is_ok()
        };
        assert!(check(343, 0) && check(343, MAX_USER_BYTES) && check(1, 1));
        assert!(
            !check(344, 0) && !check(344, 1) && !check(600, 0) && !check(4, MAX_USER_BYTES + 1)
        );
    }
}
