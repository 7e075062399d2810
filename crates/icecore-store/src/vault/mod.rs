//! The vault: memory as a folder of Markdown and JSONL files for people, agents and git.
//!
//! The files are the source of truth. The index beside them is derived: every query works without
//! it, only slower, so a broken or missing index never stops a read or a write.

mod catalog;
mod documents;
mod events;
mod git;
mod index;
mod leases;
mod ledger;
mod machine_merge;
mod maintenance;
mod notes;
mod records;
mod scrub;
mod search_db;
mod search_index;
mod snapshots;
mod summaries;
pub(crate) mod vault_fs;
mod vectors;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use icecore_domain::layout::{self, DocPath};
use icecore_domain::ledger::find_torn_tail;

pub use self::git::merge_lines;
use self::index::{CurrentFile, CurrentLedger, Index, SqlResult};
use self::vault_fs::{VaultFs, WriteLock};

use crate::{Error, ErrorKind, Result};

/// An open vault.
pub struct Vault {
    fs: VaultFs,
    ledger: DocPath,
    index: Mutex<IndexHandle>,
    mended: Mutex<Vec<String>>,
    /// Record files that this process is appending to.
    appending: Mutex<BTreeSet<DocPath>>,
    search_slot: search_db::SearchSlot,
}

/// The index, opened on first use.
enum IndexHandle {
    Unopened,
    Open(Box<Index>),
    /// It cannot be opened, such as on a full or read-only disk. Queries use the files.
    Unusable(String),
}

impl Vault {
    /// Creates a vault in `root`, which may exist but must not be a vault, with `config` as its
    /// `icecore.toml`. Makes it a git repository if git is installed.
    pub fn create(root: &Path, config: &str) -> Result<Self> {
        let vault = Self::with_root(root)?;
        vault.fs.make_root()?;
        vault.fs.guard_private()?;
        let held = vault.fs.lock()?;
        let config_path: DocPath = layout::CONFIG.parse()?;
        if vault.fs.stat(&config_path)?.is_some() {
            return Err(Error::already_a_vault(root.to_owned()));
        }
        let ignore: DocPath = ".gitignore".parse()?;
        if vault.fs.stat(&ignore)?.is_none() {
            vault.fs.replace(&held, &ignore, include_bytes!("gitignore"))?;
        }
        let attributes: DocPath = ".gitattributes".parse()?;
        if vault.fs.stat(&attributes)?.is_none() {
            vault.fs.replace(&held, &attributes, include_bytes!("gitattributes"))?;
        }
        vault.fs.make_folder(&vault.fs.root().join("memory"))?;
        if vault.fs.stat(&vault.ledger)?.is_none() {
            vault.fs.replace(&held, &vault.ledger, b"")?;
        }
        // Last, because this file makes the folder a vault: a crash before it leaves no half-made
        // vault.
        vault.fs.replace(&held, &config_path, config.as_bytes())?;
        drop(held);
        if let Err(error) = git::make_repository(&vault.fs) {
            vault.note_repair(format!("no git repository was created: {error}"));
        }
        Ok(vault)
    }

    /// Opens the vault at `root` and repairs what a crash may have left.
    pub fn open(root: &Path) -> Result<Self> {
        Self::with_root(root)?.finish_open(root)
    }

    /// Like [`Vault::open`] for a caller that cannot wait: what takes longer than about a second
    /// fails as busy.
    pub fn open_with_short_wait(root: &Path) -> Result<Self> {
        let mut vault = Self::with_root(root)?;
        vault.fs = vault.fs.with_short_wait();
        vault.finish_open(root)
    }

    fn finish_open(self, root: &Path) -> Result<Self> {
        let vault = self;
        if vault.fs.stat(&layout::CONFIG.parse()?)?.is_none() {
            return Err(Error::not_a_vault(root.to_owned()));
        }
        vault.fs.guard_private()?;
        vault.repair_on_open()?;
        Ok(vault)
    }

    fn with_root(root: &Path) -> Result<Self> {
        index::check_sqlite()?;
        let root = std::path::absolute(root)
            .map_err(|error| vault_fs::io_error("finding", root, error))?;
        Ok(Self {
            fs: VaultFs::new(root),
            ledger: layout::LEDGER.parse()?,
            index: Mutex::new(IndexHandle::Unopened),
            mended: Mutex::default(),
            appending: Mutex::default(),
            search_slot: search_db::SearchSlot::default(),
        })
    }

    /// The folder of the vault.
    pub fn root(&self) -> &Path {
        self.fs.root()
    }

    fn note_repair(&self, what: String) {
        self.mended.lock().unwrap_or_else(PoisonError::into_inner).push(what);
    }

    /// Repairs a torn last line of the ledger and removes stale temporary files. A vault that
    /// another process writes to, or that is read-only, stays as it is: readers skip the torn line,
    /// and every writer repairs it once it has the lock. So opening a vault never waits for its
    /// lock.
    fn repair_on_open(&self) -> Result<()> {
        let torn = self.fs.unterminated_line(&self.ledger)?.is_some();
        let lost = git::is_swap_interrupted(&self.fs);
        if !torn && !lost && !self.fs.has_stale_files() {
            return Ok(());
        }
        let mended = match self.fs.try_lock_named("lock") {
            Ok(Some(held)) => {
                for place in self.fs.remove_stale_files(&held) {
                    self.note_repair(format!(
                        "a file that another program saved while icecore was interrupted is in {}",
                        place.display()
                    ));
                }
                git::restore_repository(&self.fs, &held).and_then(|()| self.repair_locked(&held))
            }
            Ok(None) => Ok(()),
            Err(error) => Err(error),
        };
        match mended {
            Err(Error {
                kind:
                    ErrorKind::Io
                    | ErrorKind::DiskFull
                    | ErrorKind::PermissionDenied
                    | ErrorKind::NotAFile,
                ..
            }) => Ok(()),
            other => other,
        }
    }

    fn repair_locked(&self, lock: &WriteLock) -> Result<()> {
        self.repair_tail(lock, &self.ledger)
    }

    /// Moves a torn last line of a file to quarantine; a complete line without a line break gets
    /// one.
    fn repair_tail(&self, lock: &WriteLock, path: &DocPath) -> Result<()> {
        let Some((mut at, mut tail)) = self.fs.unterminated_line(path)? else { return Ok(()) };
        if find_torn_tail(&tail).is_some() {
            let Some(settled) = self.fs.torn_line(lock, path)? else { return Ok(()) };
            (at, tail) = settled;
        }
        if find_torn_tail(&tail).is_none() {
            self.fs.append(lock, path, b"")?;
            self.note_repair(format!("the last line of {path} had no line break; added one"));
            return Ok(());
        }
        let place = self.fs.quarantine_bytes(lock, path, at, &tail)?;
        if !self.fs.cut_tail(lock, path, at, &tail)? {
            // Another program is still writing it.
            return Ok(());
        }
        self.note_repair(format!(
            "a torn last line of {path} ({} bytes) was moved to quarantine: {}",
            tail.len(),
            place.display()
        ));
        Ok(())
    }

    fn index_handle(&self) -> MutexGuard<'_, IndexHandle> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn index_path(&self) -> PathBuf {
        self.fs.private("index.db")
    }

    /// Queries the index after it has caught up with the ledger; `None` if it cannot be used. A
    /// damaged index is rebuilt and queried again; one that another process replaced meanwhile is
    /// opened again.
    fn query_index<T>(&self, question: impl Fn(&mut Index) -> SqlResult<T>) -> Result<Option<T>> {
        const ATTEMPTS: usize = 3;
        let mut handle = self.index_handle();
        for attempt in 1..=ATTEMPTS {
            if let IndexHandle::Unopened = *handle {
                let opened = self
                    .fs
                    .make_folder(&self.root().join(layout::PRIVATE))
                    .ok()
                    .map(|()| Index::open(&self.fs, &self.index_path()));
                *handle = match opened {
                    Some(Ok(index)) => IndexHandle::Open(Box::new(index)),
                    Some(Err(error)) if index::is_replaced(&error) && attempt < ATTEMPTS => {
                        continue;
                    }
                    Some(Err(error)) => IndexHandle::Unusable(error.to_string()),
                    None => IndexHandle::Unusable("its folder cannot be created".into()),
                };
            }
            let IndexHandle::Open(index) = &mut *handle else { return Ok(None) };
            let answer = match self.catch_up(index)? {
                Ok(()) => question(index),
                Err(error) => Err(error),
            };
            match answer {
                Ok(answer) => return Ok(Some(answer)),
                Err(error) if index::is_damage(&error) => {
                    let path = index.path().to_owned();
                    *handle = match Index::recreate(&self.fs, &path) {
                        Ok(index) => IndexHandle::Open(Box::new(index)),
                        Err(error) => IndexHandle::Unusable(error.to_string()),
                    };
                }
                Err(error) if index::is_replaced(&error) && attempt < ATTEMPTS => {
                    *handle = IndexHandle::Unopened;
                }
                Err(error) => {
                    *handle = IndexHandle::Unusable(error.to_string());
                    return Ok(None);
                }
            }
        }
        Ok(None)
    }

    fn catch_up(&self, index: &mut Index) -> Result<SqlResult<()>> {
        let look = self.fs.stat(&self.ledger)?;
        match index.is_current(look) {
            Ok(true) => Ok(Ok(())),
            Ok(false) => index.catch_up(
                || {
                    let look = self.fs.stat(&self.ledger)?;
                    let text = self.fs.read(&self.ledger)?.unwrap_or_default();
                    Ok(CurrentLedger { text, look, spent: self.spent_ids()?, archives: Vec::new() })
                },
                || self.current_archives(),
            ),
            Err(error) => Ok(Err(error)),
        }
    }

    fn lock_and_repair(&self) -> Result<WriteLock> {
        let held = self.fs.lock()?;
        self.repair_locked(&held)?;
        Ok(held)
    }
}

impl Vault {
    /// Updates the index for these files; false if there is no usable index.
    pub(super) fn refresh_files(&self, files: &[DocPath]) -> Result<bool> {
        let Some(mut stale) = self.stale_files(files)? else { return Ok(false) };
        if !stale.is_empty() {
            // By now the index has what this process appended a moment ago. Appending begins and
            // ends with this lock, so files without a mark do not change during the comparison. No
            // holder of the index takes this lock.
            let appending = self.appending.lock().unwrap_or_else(PoisonError::into_inner);
            stale.retain(|path| !appending.contains(path));
            let Some(still) = self.stale_files(&stale)? else { return Ok(false) };
            stale = still;
        }
        for path in stale {
            let unread = std::cell::RefCell::new(None);
            let taken = self.query_index(|index| {
                index.index_file(&path, || {
                    self.current_file(&path).map_err(|error| {
                        *unread.borrow_mut() = Some(error);
                        rusqlite::Error::ExecuteReturnedResults
                    })
                })
            })?;
            if let Some(error) = unread.take() {
                return Err(error);
            }
            if taken.is_none() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Those of the files that changed since they were indexed; `None` if there is no usable index.
    pub(super) fn stale_files(&self, files: &[DocPath]) -> Result<Option<Vec<DocPath>>> {
        let looks = files
            .iter()
            .map(|path| Ok((path.clone(), self.fs.stat(path)?)))
            .collect::<Result<Vec<_>>>()?;
        self.query_index(|index| index.stale_files(&looks))
    }

    /// The current state of a file.
    fn current_file(&self, path: &DocPath) -> Result<CurrentFile> {
        Ok(CurrentFile { look: self.fs.stat(path)?, text: self.fs.read(path)?.unwrap_or_default() })
    }
}
