//! The storage layer: the [`Store`] traits and their two backends, the vault (files) and
//! PostgreSQL.
//!
//! A store saves and returns data. It holds no policy: `icecore-domain` decides the state of an
//! event, what conflicts and which lines are valid, and a backend at most caches the answer. The
//! conformance suite in `testing` defines what every backend must do.

pub mod foreign_files;
mod ledger_view;
pub mod postgres;
mod record_dedup;
pub mod search_index;
mod snapshot_redaction;
pub mod staged_dir;
pub mod vault;

#[cfg(feature = "testing")]
pub mod testing;

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use async_trait::async_trait;
use icecore_domain::calendar::Days;
use icecore_domain::event::{Event, EventDraft, EventType, Priority};
use icecore_domain::forget::Scrub;
use icecore_domain::hash::Hash;
use icecore_domain::id::EventId;
use icecore_domain::layout::{self, DocPath, DocPathError};
use icecore_domain::ledger::conflict::Claim;
use icecore_domain::ledger::integrity::IntegrityFinding;
use icecore_domain::ledger::query::EventQuery;
use icecore_domain::ledger::{LedgerEntry, LineFault};
use icecore_domain::record::{BadRecordLine, Record, RecordKey, RecordSetDigest, SessionStats};
use icecore_domain::secrets::MarkerKey;
use icecore_domain::summary::{Summary, SummaryHead, SummaryQuery};
use jiff::civil::Date;

/// What a store can fail with. Each message says what happened, where, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The ledger or a document changed since the caller read it. Read again and decide again.
    #[error("{what} changed in the meantime; try again")]
    Conflict { what: String },
    /// Another process holds the write lock.
    #[error("another process holds the lock of {vault}; try again when it has finished")]
    Busy { vault: PathBuf },
    #[error(
        "{0} is not a vault: it has no icecore.toml. Run `icecore init` there, or choose another vault with --vault"
    )]
    NotAVault(PathBuf),
    /// The folder to initialize already holds a vault.
    #[error("{0} is a vault already; `icecore status` shows it")]
    AlreadyAVault(PathBuf),
    /// The path would lead out of the vault.
    #[error(transparent)]
    Path(#[from] DocPathError),
    /// A symbolic link stands where a file or folder of the vault should be.
    #[error(
        "{0} is a link; icecore does not follow links inside a vault. Replace the link by the file itself"
    )]
    Link(PathBuf),
    /// The disk is full. Nothing of the write remains.
    #[error("{path}: the disk is full; nothing was written. Free some space and try again")]
    DiskFull { path: PathBuf },
    /// The marker key file has other content.
    #[error("{0} is not a key of 64 hex digits; delete it, the next command creates a new one")]
    InvalidMarkerKey(PathBuf),
    #[error("{0} is not a regular file; move it away")]
    NotAFile(PathBuf),
    /// The operating system denied permission.
    #[error(
        "{what} {path} is not permitted; check who owns the vault and whether its disk is writable"
    )]
    PermissionDenied {
        /// The operation.
        what: &'static str,
        path: PathBuf,
    },
    /// Another error of the operating system.
    #[error("{what} {path} failed: {reason}")]
    Io {
        /// The operation.
        what: &'static str,
        path: PathBuf,
        reason: io::Error,
    },
    /// The linked SQLite version has a known defect.
    #[error(
        "this program was built with SQLite {0}, which can damage an index; 3.51.3 or later is needed"
    )]
    OldSqlite(String),
    #[error("the index of the vault cannot be used: {0}. Rebuild it with `icecore vault reindex`")]
    Index(String),
    /// Every event number of a day is used.
    #[error(
        "no event id is left for {0}: a line of that day already has the highest number. `icecore events --all` shows it"
    )]
    NoIdLeft(Date),
    /// The event would not survive a write and a read.
    #[error(
        "{0} could not be read back from the ledger, so it was not written. Please report the text you entered"
    )]
    Unreadable(EventId),
    /// Snapshots are not available.
    #[error("{0}")]
    NoSnapshots(String),
    /// The git repository does not belong to icecore.
    #[error("{0}")]
    ForeignRepository(String),
    /// The git configuration could run a foreign program.
    #[error(
        "the git configuration of this vault sets `{key}`, which icecore does not trust. Remove it with `git config --local --unset-all {key}`"
    )]
    HostileGit { key: String },
    #[error("git {what} failed: {why}")]
    Git {
        /// The operation.
        what: String,
        /// The output of git.
        why: String,
    },
    /// A git process that icecore did not start holds its lock.
    #[error(
        "another git process is running in this vault ({lock} exists); try again when it has finished. `icecore doctor --fix` removes the lock of a crashed git process"
    )]
    GitAtWork { lock: PathBuf },
    /// A merge has conflicts that a person must resolve.
    #[error("{0}")]
    UnresolvedMerge(String),
    /// The database cannot be reached, or the connection broke.
    #[error(
        "{place} cannot be reached: {why}. Check that it runs and that its address is right; an unacknowledged write may or may not have been stored"
    )]
    Unreachable { place: String, why: String },
    /// The database address has an invalid form.
    #[error(
        "the address of the database cannot be read: {0}. Write it like postgres://user@host:5432/name"
    )]
    Address(String),
    /// The server has no such database.
    #[error(
        "{place} does not exist: {why}. Create it with `createdb`, or name another database in the address"
    )]
    NoDatabase {
        place: String,
        /// The server's message.
        why: String,
    },
    /// Authentication failed, or the role lacks a privilege.
    #[error("{place} does not permit that: {why}")]
    AccessDenied {
        place: String,
        /// The server's message.
        why: String,
    },
    /// The connection would not be encrypted or the server not be authenticated.
    #[error("{place} cannot be reached safely: {why}")]
    Insecure { place: String, why: String },
    /// The server is a standby or read-only.
    #[error(
        "{place} takes no writes: {why}. With `target_session_attrs=read-write` an address of several hosts finds the one that does"
    )]
    ReadOnly { place: String, is_standby: bool, why: String },
    /// The database is overloaded.
    #[error("{0}; try again in a moment")]
    Overloaded(String),
    /// The tables do not fit this program.
    #[error("the database cannot be used: {0}")]
    Schema(String),
    /// The tables are those of a later version.
    #[error("the database cannot be used: {0}")]
    NewerSchema(String),
    /// The database rejected a statement.
    #[error("the database refused: {0}")]
    Database(String),
    #[error(
        "there is no space `{0}`; `icecore init --store … --space {0}` creates it; --space or ICECORE_SPACE selects another"
    )]
    NotASpace(String),
    /// The space was erased during the write.
    #[error("the space was erased in the meantime, so nothing was stored")]
    SpaceErased,
    /// A restore into the space has not finished.
    #[error(
        "a restore into this space is not complete; try again in a minute. If it was interrupted, run it again, or remove what it left with `icecore db space erase`"
    )]
    RestoreInProgress,
    #[error("there is a space `{0}` already; `icecore status` shows it")]
    AlreadyASpace(String),
    #[error(
        "`{0}` cannot be the name of a space: use 1 to 600 bytes of plain text without surrounding blanks"
    )]
    InvalidSpaceName(String),
    /// A test stopped the store here.
    #[error("stopped before write {0}, as the test asked")]
    Stopped(usize),
}

/// What the target of a restore already holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RestoreTarget {
    /// Only the files that every store has from the start.
    New,
    /// The remains of an interrupted restore.
    Unfinished,
    /// A memory.
    Occupied {
        documents: usize,
        /// One of the documents.
        such_as: DocPath,
    },
}

impl RestoreTarget {
    /// Classifies a target by its documents, unless a restore was interrupted there.
    fn from_documents(looks: &[DocumentStat]) -> Self {
        let mut others = looks.iter().filter(|look| !look.is_initial());
        match others.next() {
            None => Self::New,
            Some(look) => {
                Self::Occupied { documents: 1 + others.count(), such_as: look.path.clone() }
            }
        }
    }
}

/// The name of the marker key: a file in the vault's private folder, a note in a PostgreSQL space.
pub(crate) const MARKER_KEY: &str = "secret.key";

/// The result of a store call.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The position of the ledger at a read. Its value has a meaning only for the store that returned
/// it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position(pub u64);

/// The bytes of the ledger and its position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LedgerText {
    /// All lines, foreign ones included.
    pub bytes: Vec<u8>,
    pub position: Position,
}

/// The events that match a query, and the position of the ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventSelection {
    /// In ledger order.
    pub entries: Vec<LedgerEntry>,
    pub position: Position,
}

/// The number of statements with one type, priority and state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct StatementCount {
    pub kind: EventType,
    pub priority: Priority,
    pub state: &'static str,
    pub events: usize,
}

/// The version of a document at a read: the hash of its bytes, or absent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ContentVersion(Option<Hash>);

impl ContentVersion {
    /// The document did not exist.
    pub const ABSENT: Self = Self(None);

    /// The version of a document that was read.
    pub fn of(document: Option<&[u8]>) -> Self {
        Self(document.map(Hash::of))
    }
}

/// New content for a document, valid only if the document is still at version `from`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replacement {
    pub path: DocPath,
    pub bytes: Vec<u8>,
    pub from: ContentVersion,
}

/// An opaque value that changes whenever the document changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stamp(pub String);

/// What a store knows about a document without reading it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DocumentStat {
    pub path: DocPath,
    pub bytes: u64,
    /// The time of the last write.
    pub changed: jiff::Timestamp,
    pub stamp: Stamp,
}

impl DocumentStat {
    /// Whether every store has this document from its creation.
    pub fn is_initial(&self) -> bool {
        let path = self.path.as_str();
        [layout::CONFIG, ".gitignore", ".gitattributes"].contains(&path)
            || path == layout::LEDGER && self.bytes == 0
    }
}

/// The disk usage of one part of a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskUsage {
    /// A top-level folder, an item in `memory`, the logs in it, or the settings.
    pub part: String,
    pub files: u64,
    pub bytes: u64,
}

/// What happened to the records of one call.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AddReport {
    /// Records stored for the first time.
    pub new: usize,
    /// Duplicates with equal text.
    pub same: usize,
    /// Ids of records whose text differs from the stored one.
    pub revised: Vec<String>,
}

/// What forgetting changed in a file, or would change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScrubbedFile {
    /// Relative to the root of the store.
    pub path: String,
    pub outcome: ScrubOutcome,
    /// The versions before and after.
    pub versions: (ContentVersion, ContentVersion),
}

/// What forgetting did with one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScrubOutcome {
    /// This many lines were redacted.
    Changed(usize),
    /// The file was removed.
    Removed,
    /// The file does not belong to the store and still has the text.
    Untouched,
}

/// The result of rewriting the snapshots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RewriteReport {
    pub snapshots: usize,
    /// The number of files that changed in them.
    pub files: usize,
}

/// An exclusive lease on a job. Dropping it releases the job.
pub struct Lease(pub Box<dyn LeaseHandle>);

/// The backend's side of a lease. Dropping it releases the lease.
#[async_trait]
pub trait LeaseHandle: Send + Sync {
    /// Whether the lease is still exclusive. A backend that expects heartbeats gives the lease to
    /// another process when they stop for too long.
    async fn is_held(&self) -> Result<bool>;
}

impl Lease {
    /// Whether the lease is still exclusive. Ask before writing the result of a long job.
    pub async fn is_held(&self) -> Result<bool> {
        self.0.is_held().await
    }
}

/// Receives the progress of a long operation: units done and units in total.
pub type Progress<'a> = &'a (dyn Fn(u64, u64) + Send + Sync);

/// A store of memory.
///
/// Every write is durable when its call returns, and it is atomic.
#[async_trait]
pub trait Store: search_index::SearchIndex {
    /// Appends events and assigns their ids: the next numbers of their local days. With `after`,
    /// fails with [`Error::Conflict`] unless the ledger is still at that position.
    async fn append(&self, drafts: Vec<EventDraft>, after: Option<Position>) -> Result<Vec<Event>>;

    /// Appends complete lines verbatim, foreign ones included. Copies a ledger between stores.
    async fn append_lines(&self, lines: &[u8]) -> Result<()>;

    /// Reads the whole ledger.
    async fn ledger(&self) -> Result<LedgerText>;

    /// Replaces the ledger if it is still at `at`. The one exception to append-only, for repair and
    /// compaction.
    async fn replace_ledger(&self, text: &[u8], at: Position) -> Result<()>;

    /// Moves lines from the ledger into archives: appends to each archive, then replaces the ledger
    /// by `ledger` if it is still at `at`. After an interruption some lines are in both and count
    /// as lines of the ledger; no line is lost.
    async fn archive(
        &self,
        archives: &[(DocPath, Vec<u8>)],
        ledger: &[u8],
        at: Position,
    ) -> Result<()>;

    /// Archived events by id. Archives do not know states, so the query's state filter is ignored.
    async fn archived_events(&self, which: &EventQuery) -> Result<Vec<Event>>;

    /// All events linked to these events, or to events about these entities, by any chain of
    /// effects, archives included, in ledger order.
    async fn linked_events(&self, ids: &[EventId], about: &[&str]) -> Result<Vec<Event>>;

    /// Names of all entities that events are about, archives included.
    async fn entities(&self) -> Result<Vec<String>>;

    /// The events that match a query, each with its state.
    async fn events(&self, which: &EventQuery) -> Result<EventSelection>;

    /// The position of the ledger, without reading it.
    async fn position(&self) -> Result<Position>;

    /// Counts the statements by type, priority and state.
    async fn count_statements(&self) -> Result<Vec<StatementCount>>;

    /// Claims of active events for whose attribute another event has a different value.
    async fn contested_claims(&self) -> Result<Vec<(EventId, Claim)>>;

    /// Lines of the ledger that are not, or not completely, valid events.
    async fn line_faults(&self) -> Result<Vec<LineFault>>;

    /// Events that were in the ledger at the last read and are missing now: another program removed
    /// their lines. [`Store::replace_ledger`] clears the list.
    async fn lost_events(&self) -> Result<Vec<EventId>>;

    /// Moves damaged bytes, found in `from` at offset `at`, to quarantine and returns their new
    /// location.
    async fn quarantine(&self, from: &DocPath, at: u64, bytes: &[u8]) -> Result<String>;

    /// Reads a document.
    async fn document(&self, path: &DocPath) -> Result<Option<Vec<u8>>>;

    /// The length of a document in bytes; 0 if it does not exist.
    async fn document_len(&self, path: &DocPath) -> Result<u64>;

    /// Writes a document atomically, whatever it held before. Only for documents that people do not
    /// edit.
    async fn put(&self, path: &DocPath, bytes: &[u8]) -> Result<()>;

    /// Writes many documents, each atomically. Cheaper than single calls.
    async fn put_many(&self, documents: &[(DocPath, Vec<u8>)]) -> Result<()>;

    /// Replaces a document that is still at version `from`; otherwise leaves it and fails with
    /// [`Error::Conflict`].
    async fn compare_and_swap(
        &self,
        path: &DocPath,
        bytes: &[u8],
        from: ContentVersion,
    ) -> Result<()>;

    /// Replaces every document that is still at its expected version and returns the paths of the
    /// others, which stay unchanged. Cheaper than single calls.
    async fn compare_and_swap_many(&self, replacements: &[Replacement]) -> Result<Vec<DocPath>>;

    /// Appends to a document that is still at version `from`; otherwise fails with
    /// [`Error::Conflict`]. Ends an incomplete last line first.
    async fn append_if_unchanged(
        &self,
        path: &DocPath,
        bytes: &[u8],
        from: ContentVersion,
    ) -> Result<()>;

    /// Appends to a document unconditionally. Ends an incomplete last line first.
    async fn append_to_document(&self, path: &DocPath, bytes: &[u8]) -> Result<()>;

    /// Removes a document that is still at version `from`; otherwise leaves it and fails with
    /// [`Error::Conflict`].
    async fn remove_unchanged(&self, path: &DocPath, from: ContentVersion) -> Result<()>;

    /// Removes a document. A missing one is not an error.
    async fn remove(&self, path: &DocPath) -> Result<()>;

    /// Removes an empty folder. Leaves a folder that is missing or not empty.
    async fn remove_empty_folder(&self, path: &DocPath) -> Result<()>;

    /// Paths of all documents below a folder (`""` for all), sorted. Excludes the ledger and
    /// derived or private files.
    async fn documents(&self, under: &str) -> Result<Vec<DocPath>>;

    /// Like [`Store::documents`], with the length of each in bytes.
    async fn document_sizes(&self, under: &str) -> Result<Vec<(DocPath, u64)>>;

    /// Like [`Store::documents`], with metadata; includes the ledger.
    async fn list(&self, under: &str) -> Result<Vec<DocumentStat>>;

    /// The current stamp of each document; `None` for a missing one. Cheap.
    async fn stamps(&self, paths: &[DocPath]) -> Result<Vec<Option<Stamp>>>;

    /// Disk usage by part, derived and private files included.
    async fn disk_usage(&self) -> Result<Vec<DiskUsage>>;

    /// The last complete lines of a document, about `bytes` of them, and whether they are the whole
    /// document.
    async fn read_tail(&self, path: &DocPath, bytes: u64) -> Result<(Vec<u8>, bool)>;

    /// Stores records. A record with a known key and equal text is a duplicate; one with other text
    /// is stored as a revision, at the time of the first.
    async fn add_records(&self, records: Vec<Record>) -> Result<AddReport>;

    /// Which of these keys are stored, as far as the store knows without reading all files.
    async fn contains_records(&self, keys: &[RecordKey]) -> Result<Vec<bool>>;

    /// The records of these local days, each key once in its latest revision, in the order they
    /// were spoken.
    async fn records(&self, days: Days) -> Result<Vec<Record>>;

    /// The last records of a conversation, at most `most`, each key once in its latest revision, in
    /// the order they were spoken.
    async fn recent_records(&self, conversation: &str, most: usize) -> Result<Vec<Record>>;

    /// A digest of the records of a conversation on these local days. Cheap. A caller that has read
    /// the records compares digests to learn whether other processes added to them since.
    async fn conversation_digest(&self, conversation: &str, days: Days) -> Result<RecordSetDigest>;

    /// Removes all revisions of a conversation's records on these local days and returns their
    /// number. The one exception to keeping every record, for requests to forget.
    async fn forget_records(&self, days: Days, conversation: &str) -> Result<usize>;

    /// Removes the text to be forgotten from every file and deletes derived data that can be
    /// rebuilt. With `dry`, only reports. Calling it again completes an interrupted run.
    async fn scrub(&self, scrub: &Scrub, dry: bool) -> Result<Vec<ScrubbedFile>>;

    /// All sessions with records, or those of `days`, by day, conversation and name.
    async fn sessions(&self, days: Option<Days>) -> Result<Vec<SessionStats>>;

    /// The local days that have records.
    async fn record_days(&self) -> Result<Vec<Date>>;

    /// Invalid lines of the record files.
    async fn bad_records(&self) -> Result<Vec<(DocPath, BadRecordLine)>>;

    /// Appends summary versions, if the summaries are still at position `after`.
    async fn add_summaries(
        &self,
        summaries: &[Summary],
        after: Option<Position>,
    ) -> Result<Position>;

    /// The newest version of each matching summary without its text, by first day and period.
    async fn summary_heads(&self, which: &SummaryQuery) -> Result<(Vec<SummaryHead>, Position)>;

    /// Like [`Store::summary_heads`], with the text.
    async fn summaries(&self, which: &SummaryQuery) -> Result<Vec<Summary>>;

    /// The local days with recorded events, and the number of events of each.
    async fn event_days(&self) -> Result<Vec<(Date, usize)>>;

    /// A cached model answer to this prompt.
    async fn cached_answer(&self, question: Hash) -> Result<Option<Vec<u8>>>;

    /// Caches a model answer, so that the prompt is not paid for twice. Keeps only the newest.
    async fn cache_answer(&self, question: Hash, answer: &[u8]) -> Result<()>;

    /// Reads a note: a small, dispensable, private file of this store, such as the list of what a
    /// session already received.
    async fn note(&self, name: &DocPath) -> Result<Option<Vec<u8>>>;

    /// Writes a note atomically, without waiting for a lock.
    async fn put_note(&self, name: &DocPath, bytes: &[u8]) -> Result<()>;

    /// Appends a line to a note without waiting for a lock; durably if `flush`. Beyond `most_bytes`
    /// the older half is dropped.
    async fn append_note(
        &self,
        name: &DocPath,
        line: &str,
        most_bytes: u64,
        flush: bool,
    ) -> Result<()>;

    /// The notes of a folder with the time of the last write of each, in seconds since 1970.
    async fn notes(&self, folder: &DocPath) -> Result<Vec<(DocPath, i64)>>;

    /// Removes a note. A missing one is not an error.
    async fn remove_note(&self, name: &DocPath) -> Result<()>;

    /// The key for the markers of hidden secrets; `None` if the store has none yet.
    async fn marker_key(&self) -> Result<Option<MarkerKey>>;

    /// Sets the marker key durably and outside of all snapshots; without `replace` only if there is
    /// none. Returns the key in force: processes that set one concurrently all get the same.
    async fn set_marker_key(&self, key: &MarkerKey, replace: bool) -> Result<MarkerKey>;

    /// Prepares the store as the target of a restore and reports what it holds. An occupied store
    /// stays unchanged. Otherwise other processes are kept out until the restore ends, where the
    /// backend can do that.
    async fn begin_restore(&self) -> Result<RestoreTarget>;

    /// Ends a restore: the memory is complete.
    async fn finish_restore(&self) -> Result<()>;

    /// Ends a failed restore, so that the next attempt need not wait.
    async fn abort_restore(&self) -> Result<()>;

    /// Acquires the exclusive lease on a job until it is dropped or the process dies; `None` if
    /// another process holds it.
    async fn acquire_lease(&self, work: &str) -> Result<Option<Lease>>;

    /// Those of `paths` that exist and changed since [`Store::mark_seen`], with their stamps.
    async fn changed_since_seen(&self, paths: &[DocPath]) -> Result<Vec<(DocPath, Stamp)>>;

    /// Documents below a folder that were seen and no longer exist, as far as the store remembers.
    /// Reports each once.
    async fn removed_since_seen(&self, under: &str) -> Result<Vec<DocPath>>;

    /// Records that these documents were processed. Losing this costs only another pass.
    async fn mark_seen(&self, seen: &[(DocPath, Stamp)]) -> Result<()>;

    /// Checks whether the derived data agrees with the stored data.
    async fn inspect(&self) -> Result<Vec<IntegrityFinding>>;

    /// Rebuilds all derived data and returns the number of events it covers.
    async fn rebuild(&self, progress: Progress<'_>) -> Result<usize>;

    /// The repairs made when the store was opened, as sentences, oldest first.
    async fn opening_repairs(&self) -> Vec<String>;

    /// The leases that order the turns of a conversation between processes; `None` where locks
    /// within one process suffice, as in a vault.
    fn turn_lease(&self) -> Option<&dyn TurnLease> {
        None
    }
}

/// Leases that order the turns of a conversation between processes that share a store: whether
/// stored exchanges still wait to be remembered, and which process works on them. A dead process is
/// waited for no longer than its lease.
#[async_trait]
pub trait TurnLease: Send + Sync {
    /// Stores records like [`Store::add_records`] and sets the pending flag of their conversations
    /// in the same transaction. Setting the flag earlier lets another process clear it; setting it
    /// later loses it on a crash.
    async fn append_pending(&self, records: Vec<Record>, lease: Duration) -> Result<AddReport>;

    /// Whether a stored exchange waits to be remembered.
    async fn has_pending(&self, conversation: &str) -> Result<bool>;

    /// Acquires or renews the exclusive lease on a conversation; `None` if another process holds
    /// it. Returns the number of writes to the conversation so far.
    async fn acquire(&self, conversation: &str, who: &str, lease: Duration) -> Result<Option<i64>>;

    /// Releases the conversation. With `again`, it becomes pending again after that time. Otherwise
    /// it is no longer pending, unless records were written after the `known` count.
    async fn release(
        &self,
        conversation: &str,
        who: &str,
        known: i64,
        again: Option<Duration>,
    ) -> Result<()>;
}

/// A saved state of the documents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    pub id: String,
    pub at: jiff::Timestamp,
    /// The reason it was made.
    pub note: String,
}

/// Snapshots of the documents and the ledger.
#[async_trait]
pub trait SnapshotStore: Send + Sync {
    /// Whether snapshots are possible, and if not, why. Cheap; [`SnapshotStore::create_snapshot`]
    /// checks more.
    async fn check_available(&self) -> Result<()>;

    /// Saves the current state. `None` if nothing changed since the last snapshot.
    async fn create_snapshot(&self, note: &str, at: jiff::Timestamp) -> Result<Option<Snapshot>>;

    /// The snapshots, newest first.
    async fn snapshots(&self, most: usize) -> Result<Vec<Snapshot>>;

    /// The files that differ between a snapshot and now, with their content in the snapshot. `None`
    /// as content: the file did not exist.
    async fn changes_since(&self, id: &str) -> Result<Vec<(DocPath, Option<Vec<u8>>)>>;

    /// The snapshots that changed a document, newest first.
    async fn document_versions(&self, path: &DocPath, most: usize) -> Result<Vec<Snapshot>> {
        let _ = (path, most);
        Err(Error::NoSnapshots("this store keeps no snapshots".into()))
    }

    /// A document as of a snapshot; `None` if it did not exist.
    async fn document_at(&self, id: &str, path: &DocPath) -> Result<Option<Vec<u8>>> {
        let _ = (id, path);
        Err(Error::NoSnapshots("this store keeps no snapshots".into()))
    }

    /// The number of snapshots that contain the text to be forgotten, and the number of all.
    async fn count_containing(&self, scrub: &Scrub) -> Result<(usize, usize)>;

    /// Rewrites every snapshot without the text to be forgotten. The ids change.
    async fn rewrite_snapshots(&self, scrub: &Scrub) -> Result<RewriteReport>;

    /// Compacts the snapshots. Must not run together with [`SnapshotStore::rewrite_snapshots`].
    async fn pack(&self) -> Result<()> {
        Ok(())
    }

    /// Repairs the snapshot store as far as that is safe, and returns what it did.
    async fn repair(&self) -> Result<Vec<String>>;

    /// Steps a person must take before several machines can use this memory. Cheap.
    async fn setup_hints(&self) -> Vec<String> {
        Vec::new()
    }

    /// Whether other machines may have this memory too. Cheap.
    async fn is_shared(&self) -> bool {
        false
    }

    /// Where another machine's state diverged from ours; without a name, that of the upstream
    /// branch.
    async fn find_divergence(&self, other: Option<&str>) -> Result<Divergence> {
        let _ = other;
        Err(Error::NoSnapshots("this store cannot merge with other machines".into()))
    }

    /// Merges the other side. The next snapshot completes the merge.
    async fn merge(&self, fork: &Divergence) -> Result<MergeOutcome> {
        let _ = fork;
        Err(Error::NoSnapshots("this store cannot merge with other machines".into()))
    }

    /// Completes a merge that was interrupted while its files were written; `None` if there was
    /// none.
    async fn resume_merge(&self) -> Result<Option<MergeOutcome>> {
        Ok(None)
    }

    /// The other machine's marker key, if its vault is a folder of the same user on this machine.
    /// No snapshot carries the key.
    async fn other_marker_key(&self, fork: &Divergence) -> Option<MarkerKey> {
        let _ = fork;
        None
    }

    /// A merge that was started and not completed.
    async fn unfinished_merge(&self) -> Result<Option<UnfinishedMerge>> {
        Ok(None)
    }

    /// The last merge, if another program made it.
    async fn foreign_merge(&self) -> Result<Option<String>> {
        Ok(None)
    }
}

/// The prefix of the note of a snapshot that completes a merge.
pub const MERGE_NOTE_PREFIX: &str = "merged ";
/// The note of a snapshot that completes a merge made by another program.
pub const RESOLVED_MERGE_NOTE: &str = "settled a merge";

/// The common base of two machines' states, and the lines that decide which ids the other side
/// used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Divergence {
    /// The name of the other side.
    pub name: String,
    /// The commit of the other side.
    pub commit: String,
    /// The other side has nothing new.
    pub is_up_to_date: bool,
    /// We have nothing new, so their state can replace ours.
    pub is_fast_forward: bool,
    /// Their `icecore.toml`.
    pub settings: Option<Vec<u8>>,
    /// The ledger and its archives at the common base.
    pub base: Vec<(DocPath, Vec<u8>)>,
    /// The ledger and its archives on the other side.
    pub theirs: Vec<(DocPath, Vec<u8>)>,
}

/// The result of a merge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MergeOutcome {
    Complete,
    /// Files have conflicts that a person must resolve.
    Conflicted {
        /// The path and the reason.
        files: Vec<(String, Option<String>)>,
        /// Whether the merge waits for the resolution; otherwise nothing changed.
        left: bool,
    },
}

/// A merge that was started and not completed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnfinishedMerge {
    /// The name of the other side, or its commit.
    pub name: String,
    /// Files with unresolved conflicts.
    pub conflicts: Vec<String>,
}
