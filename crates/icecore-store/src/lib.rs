//! Where memory *rests*: the [`Store`] every home implements, and the homes.
//!
//! A store keeps nouns and gives them back; it holds no policy. What an event is worth, what
//! contradicts what and which lines are sound is decided by `icecore-domain`, and a home at most
//! remembers the answer. What "all of it" means for a home is written down as an exam in `testing`.

mod arrivals;
mod folded;
pub mod neighbour;
pub mod passages;
mod past;
pub mod postgres;
pub mod shelf;
pub mod vault;

#[cfg(feature = "testing")]
pub mod testing;

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use async_trait::async_trait;
use icecore_domain::calendar::Days;
use icecore_domain::event::{Draft, Event, Kind, Priority};
use icecore_domain::forget::Scrub;
use icecore_domain::hash::Hash;
use icecore_domain::id::EventId;
use icecore_domain::layout::{self, DocPath, NotAPath};
use icecore_domain::ledger::conflict::Claim;
use icecore_domain::ledger::integrity::Finding;
use icecore_domain::ledger::query::EventQuery;
use icecore_domain::ledger::{Entry, LineFault};
use icecore_domain::record::{BadLine, Digest, Key, Record, SessionStat};
use icecore_domain::secrets::MarkerKey;
use icecore_domain::summary::{Head, Summary, SummaryQuery};
use jiff::civil::Date;

/// What a store can fail with. Each says what, where and what now.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The ledger or a document is not what the caller read any more. Read again and decide again.
    #[error("{what} changed in the meantime; try again")]
    Moved {
        /// What changed.
        what: String,
    },
    /// Somebody else is writing and does not finish.
    #[error("another process holds the lock of {vault}; try again when it is done")]
    Busy {
        /// The vault.
        vault: PathBuf,
    },
    /// The folder is not a vault.
    #[error(
        "{0} is not a vault: it has no icecore.toml. Run `icecore init` there, or name another with --vault"
    )]
    NotAVault(PathBuf),
    /// There is something where the vault is to be made.
    #[error("{0} is a vault already; `icecore status` shows it")]
    AlreadyAVault(PathBuf),
    /// The path would lead out of the vault.
    #[error(transparent)]
    Path(#[from] NotAPath),
    /// A link stands where a file or folder of the vault should be.
    #[error(
        "{0} is a link; icecore does not follow links inside a vault. Put the file itself there"
    )]
    Link(PathBuf),
    /// No room left for the write. Nothing of it was kept.
    #[error("{path}: the disk is full; nothing was written. Make room and try again")]
    Full {
        /// What was to be written.
        path: PathBuf,
    },
    /// The file of the key for the marks of hidden secrets holds something else.
    #[error("{0} is not a key of 64 hex digits; delete it, and the next command makes a new one")]
    NotAKey(PathBuf),
    /// Something else than a file stands where a file should be.
    #[error("{0} is not a file; put it out of the way")]
    NotAFile(PathBuf),
    /// The user may not do that here.
    #[error(
        "{what} {path} is not permitted; check who owns the vault and whether its disk is writable"
    )]
    Denied {
        /// What was tried.
        what: &'static str,
        /// On what.
        path: PathBuf,
    },
    /// Something the operating system refused.
    #[error("{what} {path} failed: {reason}")]
    Io {
        /// What was tried.
        what: &'static str,
        /// On what.
        path: PathBuf,
        /// The system's reason.
        reason: io::Error,
    },
    /// The SQLite library is one with a known defect.
    #[error(
        "this program was built with SQLite {0}, which can damage an index; 3.51.3 or later is needed"
    )]
    OldSqlite(String),
    /// The index cannot be used at all.
    #[error("the index of the vault cannot be used: {0}. `icecore vault reindex` makes it anew")]
    Index(String),
    /// Every number of a day is taken.
    #[error(
        "there is no id left for {0}: a line of that day has the highest number there is. `icecore events --all` shows it"
    )]
    NoIdLeft(Date),
    /// An event that could not be read back.
    #[error(
        "{0} would be unreadable in the ledger; it was not written. Please report what you typed"
    )]
    Unreadable(EventId),
    /// The safety net is not there.
    #[error("{0}")]
    NoHistory(String),
    /// The repository is somebody else's.
    #[error("{0}")]
    NotOurs(String),
    /// The repository could run somebody else's program.
    #[error(
        "the git configuration of this vault sets `{key}`, which icecore does not trust. Remove it with `git config --local --unset-all {key}`"
    )]
    HostileGit {
        /// The setting.
        key: String,
    },
    /// git failed.
    #[error("git {what} failed: {why}")]
    Git {
        /// What was tried.
        what: String,
        /// What git said.
        why: String,
    },
    /// A git that icecore did not start has its lock.
    #[error(
        "another git is at work in this vault ({lock} is there); try again when it has ended. `icecore doctor --fix` removes what one that died has left"
    )]
    GitAtWork {
        /// Its lock.
        lock: PathBuf,
    },
    /// A merge waits for a person.
    #[error("{0}")]
    Unsettled(String),
    /// The database cannot be reached, or the connection broke off.
    #[error(
        "{place} cannot be reached: {why}. Check that it runs and that its address is right; what was not acknowledged may or may not be kept"
    )]
    Unreachable {
        /// Which.
        place: String,
        /// Why not.
        why: String,
    },
    /// What was given as the address of a database is none.
    #[error(
        "the address of the database cannot be read: {0}. Write it like postgres://user@host:5432/name"
    )]
    Address(String),
    /// There is a server, and no such database on it.
    #[error("{place} is not there: {why}. Make it with `createdb`, or name another in the address")]
    NoDatabase {
        /// Which.
        place: String,
        /// What the server says.
        why: String,
    },
    /// Whoever the address names may not come in, or may not do that.
    #[error("{place} does not permit that: {why}")]
    Unwelcome {
        /// Which.
        place: String,
        /// What the server says.
        why: String,
    },
    /// What was said on the way could be read by others, or the server be another.
    #[error("{place} cannot be reached safely: {why}")]
    Insecure {
        /// Which.
        place: String,
        /// Why not.
        why: String,
    },
    /// It answers, and keeps nothing.
    #[error(
        "{place} takes no writes: {why}. With `target_session_attrs=read-write` an address of several hosts finds the one that does"
    )]
    ReadOnly {
        /// Which.
        place: String,
        /// Whether that is because it follows another.
        is_standby: bool,
        /// Why not.
        why: String,
    },
    /// The database has too much to do.
    #[error("{0}; try again in a moment")]
    Overrun(String),
    /// The tables are not those that this program works with.
    #[error("the database cannot be used: {0}")]
    Schema(String),
    /// They are those of a later version.
    #[error("the database cannot be used: {0}")]
    Newer(String),
    /// Something the database refused.
    #[error("the database refused: {0}")]
    Database(String),
    /// There is no such space.
    #[error(
        "there is no space `{0}`; `icecore init --store … --space {0}` makes it, --space or ICECORE_SPACE names another"
    )]
    NotASpace(String),
    /// It was taken away while somebody was writing.
    #[error("the space was taken away meanwhile, so nothing was kept in it")]
    Gone,
    /// It is not whole yet.
    #[error(
        "a memory is being brought in here and is not whole yet; try again in a minute. If that was cut short, bring it in again, or take away what there is of it with `icecore db space erase`"
    )]
    Filling,
    /// There is one already.
    #[error("there is a space `{0}` already; `icecore status` shows it")]
    AlreadyASpace(String),
    /// Nothing can be called that.
    #[error(
        "`{0}` cannot be the name of a space: 1 to 600 bytes of plain text, without blanks around it"
    )]
    NotAName(String),
    /// A test stopped the store here.
    #[error("stopped before write {0}, as the test asked")]
    Stopped(usize),
}

/// What is found where a whole memory is to go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ground {
    /// Nothing but what a home has from the start.
    New,
    /// What an earlier attempt left in the middle.
    Unfinished,
    /// A memory.
    Occupied {
        /// So many documents.
        documents: usize,
        /// One of them.
        such_as: DocPath,
    },
}

impl Ground {
    /// What these documents come to, if nobody was in the middle of bringing something in.
    fn of(looks: &[Looked]) -> Self {
        let mut others = looks.iter().filter(|look| !look.is_from_the_start());
        match others.next() {
            None => Self::New,
            Some(look) => {
                Self::Occupied { documents: 1 + others.count(), such_as: look.path.clone() }
            }
        }
    }
}

/// What the key for the marks of hidden secrets is called in a home: a file of a vault's private
/// folder, a note of a space.
pub(crate) const MARKER_KEY: &str = "secret.key";

/// What went right or wrong.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Where the ledger stood when it was read. Only the home that gave it knows what it means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position(pub u64);

/// The ledger, byte for byte, and where it stood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LedgerText {
    /// Its lines as they are, foreign ones included.
    pub bytes: Vec<u8>,
    /// Where it stood.
    pub position: Position,
}

/// Events that were asked for, and where the ledger stood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// The events, in the order of the ledger.
    pub entries: Vec<Entry>,
    /// Where the ledger stood.
    pub position: Position,
}

/// How many statements there are of one kind, priority and standing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Count {
    /// Their type.
    pub kind: Kind,
    /// Their priority.
    pub priority: Priority,
    /// The word for their standing.
    pub standing: &'static str,
    /// How many.
    pub events: usize,
}

/// What a document said when it was read: the hash of its bytes, or that there was no document.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ContentVersion(Option<Hash>);

impl ContentVersion {
    /// There was no document.
    pub const ABSENT: Self = Self(None);

    /// The version of a document that was read.
    pub fn of(document: Option<&[u8]>) -> Self {
        Self(document.map(Hash::of))
    }
}

/// A document that is to say something else, if it still says what was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replacement {
    /// Its path.
    pub path: DocPath,
    /// What it is to say.
    pub bytes: Vec<u8>,
    /// What it said when it was read.
    pub from: ContentVersion,
}

/// What a document looked like when somebody last looked: changes whenever the document does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stamp(pub String);

/// What a home says of a document without reading it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Looked {
    /// Which.
    pub path: DocPath,
    /// How many bytes it has.
    pub bytes: u64,
    /// When it was last written.
    pub changed: jiff::Timestamp,
    /// Changes whenever it does.
    pub stamp: Stamp,
}

impl Looked {
    /// Whether every home has it, also one in which nothing was ever kept.
    pub fn is_from_the_start(&self) -> bool {
        let path = self.path.as_str();
        [layout::CONFIG, ".gitignore", ".gitattributes"].contains(&path)
            || path == layout::LEDGER && self.bytes == 0
    }
}

/// How much room a part of a home takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Weight {
    /// The part: a folder of the top level, something in `memory`, the logs in it, or the settings.
    pub part: String,
    /// How many files.
    pub files: u64,
    /// How many bytes in them.
    pub bytes: u64,
}

/// What became of records that were handed in.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Added {
    /// Kept for the first time.
    pub new: usize,
    /// Known already, word for word.
    pub same: usize,
    /// Known with other words; the ids.
    pub revised: Vec<String>,
}

/// What forgetting did to a file, or would do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scrubbed {
    /// The file, as seen from the home.
    pub path: String,
    /// What became of it.
    pub what: Became,
    /// What it said before, and what it says since.
    pub versions: (ContentVersion, ContentVersion),
}

/// What became of a file in which something was to be forgotten.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Became {
    /// So many of its lines say nothing any more.
    Changed(usize),
    /// It is gone.
    Gone,
    /// It is not the home's to change, and still says it.
    Left,
}

/// What became of the snapshots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rewritten {
    /// How many snapshots there are.
    pub snapshots: usize,
    /// How many files of them were changed.
    pub files: usize,
}

/// The right to be the only one at some work, while it is held.
pub struct Claimed(pub Box<dyn Hold>);

/// What a home holds a claim by. When it is dropped, the claim is given back.
#[async_trait]
pub trait Hold: Send + Sync {
    /// Whether nobody else can have it. A home that counts on hearing of its holders gives it to
    /// others if it did not for too long.
    async fn is_held(&self) -> Result<bool>;
}

impl Claimed {
    /// Whether nobody else can have it: to be asked before something is written that was long in
    /// the making.
    pub async fn is_held(&self) -> Result<bool> {
        self.0.is_held().await
    }
}

/// How far a long work is: done and all of it.
pub type Progress<'a> = &'a (dyn Fn(u64, u64) + Send + Sync);

/// A home of memory.
///
/// Every write is durable when its call returns, and either happened whole or not at all.
#[async_trait]
pub trait Store: passages::Passages {
    /// Appends events and gives them their ids: the next numbers of their local days. With `after`,
    /// only if the ledger still stands there.
    async fn append(&self, drafts: Vec<Draft>, after: Option<Position>) -> Result<Vec<Event>>;

    /// Appends whole lines verbatim, foreign ones included: how a ledger moves from one home to
    /// another.
    async fn append_lines(&self, lines: &[u8]) -> Result<()>;

    /// The ledger, byte for byte.
    async fn ledger(&self) -> Result<LedgerText>;

    /// Puts another text in place of the ledger, if it still stands at `at`. The one exception to
    /// append-only, for repairs and compaction.
    async fn replace_ledger(&self, text: &[u8], at: Position) -> Result<()>;

    /// Moves lines out of the ledger: each archive grows by its bytes, and the ledger becomes
    /// `ledger`, if it still stands at `at`. If that is cut short, lines stand in both and count as
    /// in the ledger; none is ever in neither.
    async fn archive(
        &self,
        archives: &[(DocPath, Vec<u8>)],
        ledger: &[u8],
        at: Position,
    ) -> Result<()>;

    /// Events that left the ledger, by id. What became of them is not known here; of the query all
    /// but that counts.
    async fn archived(&self, which: &EventQuery) -> Result<Vec<Event>>;

    /// Everything that hangs together with these events, and with those about these things, by what
    /// one does to another, wherever it stands, in the order of the ledger.
    async fn tied(&self, ids: &[EventId], about: &[&str]) -> Result<Vec<Event>>;

    /// The things that events are about, those in archives included, by name.
    async fn entities(&self) -> Result<Vec<String>>;

    /// The events asked for, each with its standing.
    async fn events(&self, which: &EventQuery) -> Result<Found>;

    /// Where the ledger stands, without reading any of it.
    async fn position(&self) -> Result<Position>;

    /// How many statements there are, by type, priority and standing.
    async fn tally(&self) -> Result<Vec<Count>>;

    /// Claims of active events whose attribute some other event gives another value.
    async fn contested(&self) -> Result<Vec<(EventId, Claim)>>;

    /// Lines of the ledger that are not, or not wholly, events.
    async fn faults(&self) -> Result<Vec<LineFault>>;

    /// Events that were in the ledger when it was last read and are not any more, as far as the
    /// home remembers: somebody else's hand lost their lines. Replacing the ledger settles it.
    async fn lost(&self) -> Result<Vec<EventId>>;

    /// Keeps bytes that were found broken in `from` at byte `at`, apart from everything else, and
    /// says where.
    async fn set_aside(&self, from: &DocPath, at: u64, bytes: &[u8]) -> Result<String>;

    /// A document, byte for byte.
    async fn document(&self, path: &DocPath) -> Result<Option<Vec<u8>>>;

    /// How many bytes a document has; 0 if there is none.
    async fn length(&self, path: &DocPath) -> Result<u64>;

    /// Puts a document in place, whole, whatever stands there: only for documents that no person
    /// edits.
    async fn put(&self, path: &DocPath, bytes: &[u8]) -> Result<()>;

    /// Puts many documents in place, each whole; cheaper than one by one.
    async fn put_many(&self, documents: &[(DocPath, Vec<u8>)]) -> Result<()>;

    /// Replaces a document that still says what was read (`from`); otherwise it stays as it is and
    /// the call fails with [`Error::Moved`].
    async fn swap(&self, path: &DocPath, bytes: &[u8], from: ContentVersion) -> Result<()>;

    /// Replaces each of these documents that still says what was read, and returns the paths of the
    /// others, which stay as they are. Cheaper than one by one.
    async fn swap_many(&self, replacements: &[Replacement]) -> Result<Vec<DocPath>>;

    /// Appends to a document that still says what was read (`from`); otherwise fails with
    /// [`Error::Moved`]. If its last line has no end, it gets one first.
    async fn grow(&self, path: &DocPath, bytes: &[u8], from: ContentVersion) -> Result<()>;

    /// Appends to a document, whatever it says. If its last line has no end, it gets one first.
    async fn extend(&self, path: &DocPath, bytes: &[u8]) -> Result<()>;

    /// Removes a document that still says what was read (`from`); otherwise it stays and the call
    /// fails with [`Error::Moved`].
    async fn remove_unchanged(&self, path: &DocPath, from: ContentVersion) -> Result<()>;

    /// Takes a document away. One that is not there is no error.
    async fn remove(&self, path: &DocPath) -> Result<()>;

    /// Takes a folder away that has nothing in it; one that has something in it, or is not there,
    /// stays as it is.
    async fn remove_folder(&self, path: &DocPath) -> Result<()>;

    /// Every document below a folder (`""` for all), sorted by path. The ledger is not among them,
    /// nor is anything derived and private.
    async fn documents(&self, under: &str) -> Result<Vec<DocPath>>;

    /// Likewise, with the length of each in bytes.
    async fn sizes(&self, under: &str) -> Result<Vec<(DocPath, u64)>>;

    /// Likewise, with everything that can be said of a document without reading it; the ledger is
    /// among them.
    async fn looks(&self, under: &str) -> Result<Vec<Looked>>;

    /// What these documents look like now; `None` for one that is not there. Cheap.
    async fn stamps(&self, paths: &[DocPath]) -> Result<Vec<Option<Stamp>>>;

    /// How much room each part takes, what is derived and private included, by name.
    async fn weights(&self) -> Result<Vec<Weight>>;

    /// The last whole lines of a document, about so many bytes of them, and whether they are all of
    /// it.
    async fn tail(&self, path: &DocPath, bytes: u64) -> Result<(Vec<u8>, bool)>;

    /// Keeps records. One whose key is known and whose words are the same is kept already; one with
    /// other words is kept as a revision of the first, at the time of the first.
    async fn add_records(&self, records: Vec<Record>) -> Result<Added>;

    /// Which records of these keys are kept, as far as the home knows without reading everything.
    async fn known(&self, keys: &[Key]) -> Result<Vec<bool>>;

    /// The records of these local days, each key once in its last wording, in the order they were
    /// said.
    async fn records(&self, days: Days) -> Result<Vec<Record>>;

    /// The last records of a conversation, at most so many, each key once in its last wording, in
    /// the order they were said.
    async fn last_said(&self, conversation: &str, most: usize) -> Result<Vec<Record>>;

    /// What the records of a conversation on these local days come to, as far as those who added
    /// them have told. Cheap: whoever has read them asks it to know whether somebody else has added
    /// to them since.
    async fn said_in(&self, conversation: &str, days: Days) -> Result<Digest>;

    /// Takes the records of a conversation away, all wordings of them, from these local days: the
    /// one exception to keeping everything, for somebody who asks to be forgotten. Returns how many
    /// there were.
    async fn forget_records(&self, days: Days, conversation: &str) -> Result<usize>;

    /// Takes out of every file what is to be forgotten, and takes away whatever was derived from it
    /// and can be made anew; with `dry`, only says what that would change. Where it was cut short,
    /// the same call finishes it.
    async fn scrub(&self, scrub: &Scrub, dry: bool) -> Result<Vec<Scrubbed>>;

    /// Every session that has records, or those of these days, by day, conversation and name.
    async fn sessions(&self, days: Option<Days>) -> Result<Vec<SessionStat>>;

    /// Local days that have records.
    async fn record_days(&self) -> Result<Vec<Date>>;

    /// Lines of the record files that are none.
    async fn bad_records(&self) -> Result<Vec<(DocPath, BadLine)>>;

    /// Appends versions of summaries, if the summaries still stand at `after`.
    async fn add_summaries(
        &self,
        summaries: &[Summary],
        after: Option<Position>,
    ) -> Result<Position>;

    /// The newest version of each summary asked for, without its text, by first day and period.
    async fn heads(&self, which: &SummaryQuery) -> Result<(Vec<Head>, Position)>;

    /// Likewise, with the text.
    async fn summaries(&self, which: &SummaryQuery) -> Result<Vec<Summary>>;

    /// Local days on which events were recorded, and how many.
    async fn event_days(&self) -> Result<Vec<(Date, usize)>>;

    /// A model's answer to that question, if it was kept.
    async fn answer(&self, question: Hash) -> Result<Option<Vec<u8>>>;

    /// Keeps a model's answer, so that the question need not be paid for again. Only the newest are
    /// kept.
    async fn keep_answer(&self, question: Hash, answer: &[u8]) -> Result<()>;

    /// A note: something small that is private to this home and can be done without, such as what a
    /// session was given already.
    async fn note(&self, name: &DocPath) -> Result<Option<Vec<u8>>>;

    /// Puts a note in place, whole. It waits for nobody.
    async fn put_note(&self, name: &DocPath, bytes: &[u8]) -> Result<()>;

    /// Appends a line to a note, durably if that is wanted. It waits for nobody. Past `most_bytes`
    /// the older half goes.
    async fn add_note(
        &self,
        name: &DocPath,
        line: &str,
        most_bytes: u64,
        flush: bool,
    ) -> Result<()>;

    /// The notes in a folder, with when each was last written, in seconds since 1970.
    async fn notes(&self, folder: &DocPath) -> Result<Vec<(DocPath, i64)>>;

    /// Takes a note away. One that is not there is no error.
    async fn remove_note(&self, name: &DocPath) -> Result<()>;

    /// The key for the marks of hidden secrets; `None` if this home has none yet.
    async fn marker_key(&self) -> Result<Option<MarkerKey>>;

    /// Sets the key for the marks of hidden secrets, durably and without a trace in any snapshot;
    /// without `replace` only if there is none. Returns the key that holds now: processes that set
    /// one at the same time all get the same.
    async fn set_marker_key(&self, key: &MarkerKey, replace: bool) -> Result<MarkerKey>;

    /// Takes this home to bring a whole memory in, and says what is there. Where something is
    /// there, nothing is changed; else nobody uses it until it is whole, where a home can keep
    /// others out.
    async fn begin_filling(&self) -> Result<Ground>;

    /// The memory that was brought in is whole.
    async fn end_filling(&self) -> Result<()>;

    /// It is not, and nobody is at it any more: whoever begins anew need not wait.
    async fn stop_filling(&self) -> Result<()>;

    /// The right to be the only one at some long work, until it is dropped or the process dies;
    /// `None` if somebody has it.
    async fn claim(&self, work: &str) -> Result<Option<Claimed>>;

    /// Those of `paths` that exist and are not as they were when last seen, with what they look
    /// like now.
    async fn unseen(&self, paths: &[DocPath]) -> Result<Vec<(DocPath, Stamp)>>;

    /// Documents below a folder that were looked at and are not there any more, as far as the home
    /// remembers; told once.
    async fn gone(&self, under: &str) -> Result<Vec<DocPath>>;

    /// Notes that these documents were looked at. Forgetting it costs only another look.
    async fn see(&self, seen: &[(DocPath, Stamp)]) -> Result<()>;

    /// Looks for what only the home can see: whether what it derived still agrees with what it
    /// keeps.
    async fn inspect(&self) -> Result<Vec<Finding>>;

    /// Makes everything derived anew and says how many events it covers.
    async fn rebuild(&self, progress: Progress<'_>) -> Result<usize>;

    /// What the home had to mend when it was opened, for a person, oldest first.
    async fn mended(&self) -> Vec<String>;

    /// Who keeps the turns of conversations in order between processes; `None` where only locks of
    /// one process do, as in a vault.
    fn order(&self) -> Option<&dyn Order> {
        None
    }
}

/// The order of a conversation's turns between processes that share a home: whether a turn that was
/// kept is being remembered, and by whom. Whoever dies is waited for no longer than their lease.
#[async_trait]
pub trait Order: Send + Sync {
    /// Keeps records, as [`Store::add_records`] does, of exchanges that are about to be remembered:
    /// whoever can see them sees also that their conversations are awaited. Had it been said
    /// before, somebody who remembers meanwhile could take it for done; said after, nobody would
    /// know of it if we died in between.
    async fn add_awaited(&self, records: Vec<Record>, lease: Duration) -> Result<Added>;

    /// Whether an exchange that was kept is about to be remembered.
    async fn is_awaited(&self, conversation: &str) -> Result<bool>;

    /// Takes the conversation, to be the only one who remembers it until the lease ends; `None` if
    /// somebody else has it. Whoever has it takes it again to keep it. The answer is how often
    /// something was kept in it so far.
    async fn take(&self, conversation: &str, who: &str, lease: Duration) -> Result<Option<i64>>;

    /// Gives the conversation back. With `again`, something in it is to be looked at again then;
    /// else, if nothing was kept in it but what was `known` when it was taken, nothing waits in it
    /// any more.
    async fn release(
        &self,
        conversation: &str,
        who: &str,
        known: i64,
        again: Option<Duration>,
    ) -> Result<()>;
}

/// A state of the documents that can be gone back to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// Its name.
    pub id: String,
    /// When it was made.
    pub at: jiff::Timestamp,
    /// Why it was made.
    pub note: String,
}

/// A home's safety net: snapshots of its documents and its ledger.
#[async_trait]
pub trait History: Send + Sync {
    /// Whether there is a safety net at all, and if not, why not. Cheap; a snapshot looks closer.
    async fn available(&self) -> Result<()>;

    /// Keeps the state as it is. `None` if nothing changed since the last snapshot.
    async fn snapshot(&self, note: &str, at: jiff::Timestamp) -> Result<Option<Snapshot>>;

    /// The snapshots, newest first.
    async fn snapshots(&self, most: usize) -> Result<Vec<Snapshot>>;

    /// The files of a snapshot that differ from the files now, with what they were then. `None` as
    /// bytes: the file was not there.
    async fn changes_since(&self, id: &str) -> Result<Vec<(DocPath, Option<Vec<u8>>)>>;

    /// The snapshots that changed a document, newest first.
    async fn versions(&self, path: &DocPath, most: usize) -> Result<Vec<Snapshot>> {
        let _ = (path, most);
        Err(Error::NoHistory("this home keeps no snapshots".into()))
    }

    /// A document as it was in a snapshot; `None` if it was not there.
    async fn version(&self, id: &str, path: &DocPath) -> Result<Option<Vec<u8>>> {
        let _ = (id, path);
        Err(Error::NoHistory("this home keeps no snapshots".into()))
    }

    /// In how many snapshots what is to be forgotten stands, and how many there are.
    async fn stands_in(&self, scrub: &Scrub) -> Result<(usize, usize)>;

    /// Makes every snapshot anew without what is to be forgotten. Their ids change.
    async fn rewrite(&self, scrub: &Scrub) -> Result<Rewritten>;

    /// Puts what the snapshots hold together, so that the past takes little room. Not at once with
    /// [`History::rewrite`].
    async fn pack(&self) -> Result<()> {
        Ok(())
    }

    /// Mends the safety net itself, as far as that is safe, and says what it did.
    async fn repair(&self) -> Result<Vec<String>>;

    /// What a person has to do so that several machines can use this memory. Cheap.
    async fn wants(&self) -> Vec<String> {
        Vec::new()
    }

    /// Whether other machines may have this memory too. Cheap.
    async fn is_shared(&self) -> bool {
        false
    }

    /// Where another machine's state parted from ours; without a name, the one that ours follows.
    async fn fork(&self, other: Option<&str>) -> Result<Fork> {
        let _ = other;
        Err(Error::NoHistory("this home has no other machines".into()))
    }

    /// Brings the other side in. The next snapshot ends it.
    async fn join(&self, fork: &Fork) -> Result<Joined> {
        let _ = fork;
        Err(Error::NoHistory("this home has no other machines".into()))
    }

    /// Finishes putting a merge in place that was cut short while its files were written; whether
    /// there was one.
    async fn resume_join(&self) -> Result<Option<Joined>> {
        Ok(None)
    }

    /// The other machine's key for the marks of hidden secrets, if its vault is a folder of the
    /// same person on this machine. No snapshot carries it.
    async fn other_marker_key(&self, fork: &Fork) -> Option<MarkerKey> {
        let _ = fork;
        None
    }

    /// A merge that was begun and not ended.
    async fn unfinished(&self) -> Result<Option<Unfinished>> {
        Ok(None)
    }

    /// The last merge, if somebody else than icecore has made it.
    async fn foreign_merge(&self) -> Result<Option<String>> {
        Ok(None)
    }
}

/// How the note of a snapshot begins that ends a merge.
pub const MERGED: &str = "merged ";
/// How the note of one begins that settles a merge of somebody else's.
pub const SETTLED: &str = "settled a merge";

/// Where two machines parted, and what decides which ids theirs has taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fork {
    /// What the other side is called.
    pub name: String,
    /// Its state.
    pub commit: String,
    /// It has nothing that we have not.
    pub nothing: bool,
    /// We have nothing that it has not.
    pub forward: bool,
    /// Its `icecore.toml`.
    pub settings: Option<Vec<u8>>,
    /// The ledger and its archives as both began with them.
    pub base: Vec<(DocPath, Vec<u8>)>,
    /// The same as they are there.
    pub theirs: Vec<(DocPath, Vec<u8>)>,
}

/// What became of a merge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Joined {
    /// Both are in.
    Whole,
    /// Files are for a person to settle.
    Open {
        /// Which, and why.
        files: Vec<(String, Option<String>)>,
        /// Whether the merge waits for that; else nothing was changed.
        left: bool,
    },
}

/// A merge that was begun and not ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unfinished {
    /// What is being merged: its name, or its commit.
    pub name: String,
    /// Files that nobody has settled.
    pub open: Vec<String>,
}
