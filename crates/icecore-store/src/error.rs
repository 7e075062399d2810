//! What a store can fail with: one type for every backend.
//!
//! The kind decides what a caller does; the message says what happened, where, and what to do. A
//! message contains the text of its cause.

use std::fmt;
use std::io;
use std::path::PathBuf;

use icecore_domain::id::EventId;
use icecore_domain::layout::DocPathError;
use jiff::civil::Date;

/// How a caller can react to an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The ledger or a document changed since the caller read it. Read again and decide again.
    Conflict,
    /// Another process holds a lock.
    Busy,
    /// A restore into the space has not finished.
    RestoreInProgress,
    /// The database is overloaded.
    Overloaded,
    /// The database cannot be reached, or the connection broke.
    Unreachable,
    /// The server is read-only.
    ReadOnly,
    /// The server is a standby.
    Standby,
    /// The disk is full. Nothing of the write remains.
    DiskFull,
    /// There is no vault or space.
    NoStore,
    /// The server has no such database.
    NoDatabase,
    /// The space was erased during the write.
    SpaceErased,
    /// Snapshots are not available, or not the one that was asked for.
    NoSnapshots,
    /// There is a vault or space already.
    AlreadyExists,
    /// Every event number of a day is used.
    NoIdLeft,
    /// A merge has conflicts that a person must resolve.
    UnresolvedMerge,
    /// An address or a name has an invalid form.
    InvalidInput,
    /// The path would lead out of the vault.
    InvalidPath,
    /// A symbolic link stands where a file or folder of the vault should be.
    Link,
    NotAFile,
    /// The marker key file has other content.
    InvalidMarkerKey,
    /// The operating system denied permission.
    PermissionDenied,
    /// Authentication failed, or the role lacks a privilege.
    AccessDenied,
    /// The connection would not be encrypted or the server not be authenticated.
    Insecure,
    /// The git repository is foreign, or its configuration could run a foreign program.
    UntrustedRepository,
    /// The tables do not fit this program.
    Schema,
    /// The tables are those of a later version.
    NewerSchema,
    /// The database rejected a statement.
    Database,
    /// Another error of the operating system.
    Io,
    /// A test stopped the store here.
    Stopped,
    /// Git, SQLite or icecore itself failed; only a person can help.
    Failed,
}

type Cause = Box<dyn std::error::Error + Send + Sync>;

/// What a store failed with.
#[derive(Debug)]
pub struct Error {
    pub kind: ErrorKind,
    message: String,
    source: Option<Cause>,
}

/// The result of a store call.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}

impl From<DocPathError> for Error {
    fn from(error: DocPathError) -> Self {
        Self::new(ErrorKind::InvalidPath, error.to_string()).caused_by(error)
    }
}

impl Error {
    fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), source: None }
    }

    /// Adds the cause, whose text the message contains.
    #[must_use]
    fn caused_by(self, source: impl Into<Cause>) -> Self {
        Self { source: Some(source.into()), ..self }
    }

    /// Another process changed `what` since it was read.
    pub fn conflict(what: String) -> Self {
        Self::new(ErrorKind::Conflict, format!("{what} changed in the meantime; try again"))
    }

    pub(crate) fn busy(vault: PathBuf) -> Self {
        let vault = vault.display();
        Self::new(
            ErrorKind::Busy,
            format!("another process holds the lock of {vault}; try again when it has finished"),
        )
    }

    pub(crate) fn not_a_vault(root: PathBuf) -> Self {
        let root = root.display();
        Self::new(
            ErrorKind::NoStore,
            format!(
                "{root} is not a vault: it has no icecore.toml. Run `icecore init` there, or choose another vault with --vault"
            ),
        )
    }

    pub(crate) fn already_a_vault(root: PathBuf) -> Self {
        let root = root.display();
        Self::new(
            ErrorKind::AlreadyExists,
            format!("{root} is a vault already; `icecore status` shows it"),
        )
    }

    pub(crate) fn link(path: PathBuf) -> Self {
        let path = path.display();
        Self::new(
            ErrorKind::Link,
            format!(
                "{path} is a link; icecore does not follow links inside a vault. Replace the link by the file itself"
            ),
        )
    }

    /// There is no space for the file.
    pub fn disk_full(path: PathBuf) -> Self {
        let path = path.display();
        Self::new(
            ErrorKind::DiskFull,
            format!("{path}: the disk is full; nothing was written. Free some space and try again"),
        )
    }

    pub(crate) fn invalid_marker_key(path: PathBuf) -> Self {
        let path = path.display();
        Self::new(
            ErrorKind::InvalidMarkerKey,
            format!(
                "{path} is not a key of 64 hex digits; delete it, the next command creates a new one"
            ),
        )
    }

    pub(crate) fn not_a_file(path: PathBuf) -> Self {
        let path = path.display();
        Self::new(ErrorKind::NotAFile, format!("{path} is not a regular file; move it away"))
    }

    /// `what` is the operation.
    pub(crate) fn permission_denied(what: &str, path: PathBuf) -> Self {
        let path = path.display();
        Self::new(
            ErrorKind::PermissionDenied,
            format!(
                "{what} {path} is not permitted; check who owns the vault and whether its disk is writable"
            ),
        )
    }

    /// `what` is the operation.
    pub fn io(what: &str, path: PathBuf, reason: io::Error) -> Self {
        let path = path.display();
        Self::new(ErrorKind::Io, format!("{what} {path} failed: {reason}")).caused_by(reason)
    }

    /// The linked SQLite version has a known defect.
    pub(crate) fn old_sqlite(version: String) -> Self {
        Self::new(
            ErrorKind::Failed,
            format!(
                "this program was built with SQLite {version}, which can damage an index; 3.51.3 or later is needed"
            ),
        )
    }

    pub(crate) fn index(why: impl Into<Cause>) -> Self {
        let why = why.into();
        Self::new(
            ErrorKind::Failed,
            format!(
                "the index of the vault cannot be used: {why}. Rebuild it with `icecore vault reindex`"
            ),
        )
        .caused_by(why)
    }

    pub(crate) fn no_id_left(day: Date) -> Self {
        Self::new(
            ErrorKind::NoIdLeft,
            format!(
                "no event id is left for {day}: a line of that day already has the highest number. `icecore events --all` shows it"
            ),
        )
    }

    /// The event would not survive a write and a read.
    pub(crate) fn unreadable(id: EventId) -> Self {
        Self::new(
            ErrorKind::Failed,
            format!(
                "{id} could not be read back from the ledger, so it was not written. Please report the text you entered"
            ),
        )
    }

    /// The store cannot take or read snapshots.
    pub fn no_snapshots(why: String) -> Self {
        Self::new(ErrorKind::NoSnapshots, why)
    }

    /// The git repository does not belong to icecore.
    pub(crate) fn foreign_repository(why: String) -> Self {
        Self::new(ErrorKind::UntrustedRepository, why)
    }

    pub(crate) fn hostile_git(key: String) -> Self {
        Self::new(
            ErrorKind::UntrustedRepository,
            format!(
                "the git configuration of this vault sets `{key}`, which icecore does not trust. Remove it with `git config --local --unset-all {key}`"
            ),
        )
    }

    /// `what` is the operation, `why` the output of git.
    pub(crate) fn git(what: String, why: String) -> Self {
        Self::new(ErrorKind::Failed, format!("git {what} failed: {why}"))
    }

    /// A git process that icecore did not start holds its lock.
    pub(crate) fn git_at_work(lock: PathBuf) -> Self {
        let lock = lock.display();
        Self::new(
            ErrorKind::Busy,
            format!(
                "another git process is running in this vault ({lock} exists); try again when it has finished. `icecore doctor --fix` removes the lock of a crashed git process"
            ),
        )
    }

    /// A merge is waiting for a person.
    pub fn unresolved_merge(why: String) -> Self {
        Self::new(ErrorKind::UnresolvedMerge, why)
    }

    pub(crate) fn unreachable(place: String, why: String) -> Self {
        Self::new(
            ErrorKind::Unreachable,
            format!(
                "{place} cannot be reached: {why}. Check that it runs and that its address is right; an unacknowledged write may or may not have been stored"
            ),
        )
    }

    pub(crate) fn address(why: String) -> Self {
        Self::new(
            ErrorKind::InvalidInput,
            format!(
                "the address of the database cannot be read: {why}. Write it like postgres://user@host:5432/name"
            ),
        )
    }

    pub(crate) fn no_database(place: String, why: String) -> Self {
        Self::new(
            ErrorKind::NoDatabase,
            format!(
                "{place} does not exist: {why}. Create it with `createdb`, or name another database in the address"
            ),
        )
    }

    pub(crate) fn access_denied(place: String, why: String) -> Self {
        Self::new(ErrorKind::AccessDenied, format!("{place} does not permit that: {why}"))
    }

    pub(crate) fn insecure(place: String, why: String) -> Self {
        Self::new(ErrorKind::Insecure, format!("{place} cannot be reached safely: {why}"))
    }

    pub(crate) fn read_only(place: String, is_standby: bool, why: String) -> Self {
        Self::new(
            if is_standby { ErrorKind::Standby } else { ErrorKind::ReadOnly },
            format!(
                "{place} takes no writes: {why}. With `target_session_attrs=read-write` an address of several hosts finds the one that does"
            ),
        )
    }

    pub(crate) fn overload(why: String) -> Self {
        Self::new(ErrorKind::Overloaded, format!("{why}; try again in a moment"))
    }

    pub(crate) fn schema(why: String) -> Self {
        Self::new(ErrorKind::Schema, format!("the database cannot be used: {why}"))
    }

    pub(crate) fn newer_schema(why: String) -> Self {
        Self::new(ErrorKind::NewerSchema, format!("the database cannot be used: {why}"))
    }

    pub(crate) fn database(why: String) -> Self {
        Self::new(ErrorKind::Database, format!("the database refused: {why}"))
    }

    /// The database has no space of this name.
    pub fn not_a_space(name: String) -> Self {
        Self::new(
            ErrorKind::NoStore,
            format!(
                "there is no space `{name}`; `icecore init --store … --space {name}` creates it; --space or ICECORE_SPACE selects another"
            ),
        )
    }

    /// The space was erased while it was in use.
    pub fn space_erased() -> Self {
        Self::new(
            ErrorKind::SpaceErased,
            "the space was erased in the meantime, so nothing was stored",
        )
    }

    pub(crate) fn restore_in_progress() -> Self {
        Self::new(
            ErrorKind::RestoreInProgress,
            "a restore into this space is not complete; try again in a minute. If it was interrupted, run it again, or remove what it left with `icecore db space erase`",
        )
    }

    pub(crate) fn already_a_space(name: String) -> Self {
        Self::new(
            ErrorKind::AlreadyExists,
            format!("there is a space `{name}` already; `icecore status` shows it"),
        )
    }

    pub(crate) fn invalid_space_name(name: String) -> Self {
        Self::new(
            ErrorKind::InvalidInput,
            format!(
                "`{name}` cannot be the name of a space: use 1 to 600 bytes of plain text without surrounding blanks"
            ),
        )
    }

    /// A test let the store fail at this write.
    pub fn test_stop(write: usize) -> Self {
        Self::new(ErrorKind::Stopped, format!("stopped before write {write}, as the test asked"))
    }
}
