//! The advisory locks of a vault: one queue per process and lock, then the operating system.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use icecore_domain::layout::PRIVATE;

use super::{VaultFs, io_error, nonblock, refuse_link};
use crate::{Error, Result};

/// The number of attempts to get a lock, a few milliseconds apart: about half a minute.
pub(super) const MAX_LOCK_ATTEMPTS: u32 = 3_000;
/// The same for a caller that cannot wait: about a second.
pub(super) const SHORT_LOCK_ATTEMPTS: u32 = 100;
/// The longest pause between two attempts to get a lock.
const LOCK_PAUSE: Duration = Duration::from_millis(11);
/// How often a lock that seems to be held is tried again, and the pause between.
const RELEASE_ATTEMPTS: u32 = 10;
pub(super) const RELEASE_PAUSE: Duration = Duration::from_millis(10);

/// Proof of the exclusive right to write. The lock belongs to the operating system and ends with
/// the process.
#[derive(Debug)]
pub struct WriteLock {
    lock: File,
    /// Kept until the file lock is released: fields are dropped in order.
    _turn: Option<QueueTurn>,
}

/// The queue of this process's threads for one lock. Only the first asks the operating system,
/// which can only be polled.
#[derive(Debug, Default)]
pub(super) struct LockQueue {
    is_taken: Mutex<bool>,
    given_back: Condvar,
}

/// The first place in a [`LockQueue`].
#[derive(Debug)]
struct QueueTurn(Arc<LockQueue>);

impl LockQueue {
    /// Waits for the first place, at most that long.
    fn wait_turn(self: &Arc<Self>, most: Duration) -> Option<QueueTurn> {
        let is_taken = self.is_taken.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut is_taken, _) = self
            .given_back
            .wait_timeout_while(is_taken, most, |is_taken| *is_taken)
            .unwrap_or_else(PoisonError::into_inner);
        if *is_taken {
            return None;
        }
        *is_taken = true;
        Some(QueueTurn(self.clone()))
    }
}

impl Drop for QueueTurn {
    fn drop(&mut self) {
        *self.0.is_taken.lock().unwrap_or_else(PoisonError::into_inner) = false;
        self.0.given_back.notify_one();
    }
}

impl WriteLock {
    /// The lock as standard input of a child process: the lock is held while the child lives,
    /// whatever happens to this process.
    pub fn as_stdin(&self) -> Result<Stdio> {
        self.lock
            .try_clone()
            .map(Stdio::from)
            .map_err(|error| io_error("duplicating", Path::new("the lock"), error))
    }

    /// The current time by the file system's clock, which also stamps the files.
    pub(super) fn file_system_time(&self) -> Option<(i64, i64)> {
        self.lock.write_at(b".", 0).ok()?;
        self.lock.metadata().ok().map(|found| (found.mtime(), found.mtime_nsec()))
    }
}

/// Locks a file that others hold for a moment at most; whether that succeeded. `None` if files
/// cannot be locked here.
pub(super) fn lock_soon(lock: impl Fn() -> std::result::Result<(), TryLockError>) -> Option<bool> {
    for _ in 0..RELEASE_ATTEMPTS {
        match lock() {
            Ok(()) => return Some(true),
            Err(TryLockError::WouldBlock) => std::thread::sleep(RELEASE_PAUSE),
            Err(TryLockError::Error(_)) => return None,
        }
    }
    Some(false)
}

/// Locks a temporary file, unless a living process has it open.
pub(super) fn lock_if_stale(file: &Path) -> Option<File> {
    let file = OpenOptions::new().read(true).custom_flags(nonblock()).open(file).ok()?;
    file.try_lock().is_ok().then_some(file)
}

impl VaultFs {
    /// Waits for the vault's write lock.
    pub fn lock(&self) -> Result<WriteLock> {
        self.lock_named("lock")
    }

    /// Waits for the lock of that name.
    pub fn lock_named(&self, name: &str) -> Result<WriteLock> {
        let queue = self
            .queues
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .entry(name.to_owned())
            .or_default()
            .clone();
        // Threads of this process wait for each other as long as processes do.
        let Some(turn) = queue.wait_turn(LOCK_PAUSE * self.lock_attempts) else {
            return Err(Error::busy(self.root.clone()));
        };
        let (file, path) = self.lock_file(name)?;
        for wait in 0..self.lock_attempts {
            match file.try_lock() {
                Ok(()) => return Ok(WriteLock { lock: file, _turn: Some(turn) }),
                Err(TryLockError::WouldBlock) => {
                    std::thread::sleep(Duration::from_millis(u64::from(wait.min(10)) + 1))
                }
                Err(TryLockError::Error(error)) if error.kind() == ErrorKind::Interrupted => {}
                Err(TryLockError::Error(error)) => return Err(io_error("locking", &path, error)),
            }
        }
        Err(Error::busy(self.root.clone()))
    }

    /// Acquires the lock of that name; `None` if it is held.
    pub fn try_lock_named(&self, name: &str) -> Result<Option<WriteLock>> {
        let (file, path) = self.lock_file(name)?;
        // A lock that was just released can still be held for a moment by a program that is
        // starting: it inherits our descriptors until it begins.
        for _ in 0..RELEASE_ATTEMPTS {
            match file.try_lock() {
                Ok(()) => return Ok(Some(WriteLock { lock: file, _turn: None })),
                Err(TryLockError::WouldBlock) => std::thread::sleep(RELEASE_PAUSE),
                Err(TryLockError::Error(error)) => return Err(io_error("locking", &path, error)),
            }
        }
        Ok(None)
    }

    fn lock_file(&self, name: &str) -> Result<(File, PathBuf)> {
        // Opening the vault checked everything; this finds links that were added since.
        refuse_link(&self.root.join(PRIVATE))?;
        let path = self.private(name);
        let open = || {
            OpenOptions::new()
                .create(true)
                .truncate(false)
                .write(true)
                .mode(0o600)
                .custom_flags(nonblock())
                .open(&path)
        };
        let file = match open() {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                self.make_folder(&self.root.join(PRIVATE))?;
                open()
            }
            other => other,
        };
        let file = file.map_err(|error| match error.raw_os_error() {
            // A pipe or a socket.
            Some(code) if code == rustix::io::Errno::NXIO.raw_os_error() => {
                Error::not_a_file(path.clone())
            }
            _ => io_error("opening", &path, error),
        })?;
        Ok((file, path))
    }
}
