//! The operations of icecore on a memory.
//!
//! - Every operation reads from the store, plans with the domain, and writes to the store.
//! - A plan is computed from stored data, never from process state. So the next run finishes an
//!   operation that crashed, and a second run changes nothing.
//! - Time comes from the [`clock::Clock`] of the caller.

pub mod clock;
pub mod config;
pub mod embed;
pub mod llm;
pub mod prompts;
pub mod settings;

mod capture;
mod capture_filter;
pub mod change_feed;
mod checkpoint;
mod compact;
mod consolidate;
pub mod converse;
mod daily_log;
mod extraction;
mod forget;
mod health;
mod history;
mod import;
mod insights;
mod jobs;
mod live_session;
mod machine_merge;
mod maintenance;
mod memory_tool;
mod migrate;
mod model_spend;
mod pack_input;
mod page_sync;
mod pages;
pub mod project;
mod provenance;
mod quarantine;
mod recall;
mod remember;
mod review;
mod rollup;
mod search;
mod status;
mod timeline;
mod transfer;
mod views;

pub use capture::{
    CaptureDefaults, CaptureReport, NOTES_CONVERSATION, PARTS_CUT_FIELD, SavedState,
    TRANSCRIPTS_CONVERSATION, TranscriptReport,
};
pub use capture_filter::SecretCounts;
pub use compact::CompactionReport;
pub use consolidate::{ConsolidationPreview, ConsolidationReport};
pub use daily_log::{ImportedExtract, LogReport, LogScanReport};
pub use extraction::ExtractionReport;
pub use forget::{ForgetPlan, ForgetReport, ForgetRequest, ForgottenFile};
pub use health::{
    CoverageReport, DailyFigures, JobRun, LedgerFacets, LedgerPage,
    LedgerStateFilter as EventStatus, NameCount,
};
pub use history::{UndoReport, UndoneFile};
pub use import::{FactImportPlan, FilteredBatch, ImportProgress, ImportedFacts};
pub use insights::{LookbackReport, SimilarSummaries, TrendReport};
pub use jobs::{JobsReport, SummaryRun};
pub use live_session::{
    EndedSession, HookFailure, InjectedContext, InjectionRecord, LiveSession, PackBudget, PackItem,
    SessionStart, SubagentReport,
};
pub use machine_merge::{MergeReport, MergeStatus};
pub use maintenance::{RepairReport, VerifyReport};
pub use memory_tool::{ToolAnswer, ToolVersion};
pub use migrate::{FileOutcome, MigrationReport, OldFolderFile};
pub use model_spend::DailySpend;
pub use pack_input::{PackPreamble, TimeContents};
pub use page_sync::PageSyncReport;
pub use pages::{PageContents, PageEvent, PageListItem, PageSaveReport};
pub use provenance::{
    EventDetails, EventGraph, EventLink, EventProvenance, OriginalSource, Provenance,
    ProvenanceStep, SummaryProvenance,
};
pub use quarantine::{QuarantineFilter, QuarantinedEvent};
pub use recall::{SessionKind, TriggerInfo, TriggerList};
pub use remember::{ActReport, RememberReport, RememberRequest};
pub use review::{Review, ReviewDecision};
pub use rollup::{
    BackfillReport, DeferredNode, DueNode, ModelBudget, ProgressFn, RollupPlan, RollupReport,
    RollupRequest, WrittenSummary,
};
pub use search::{
    EMBED_NIGHTLY_PASSAGES, EMBED_ROUND_PASSAGES, SearchHit, SearchRequest, SearchResults, Searcher,
};
pub use status::{IntegrityStatus, MemoryStatus};
pub use timeline::{SummaryLine, TimelineChild, TimelineHeadline, TimelineNode};
pub use transfer::{
    BackupCheck, BackupManifest, TransferReport, back_up, check_backup, restore_backup, transfer,
};
pub use views::ViewFilesReport;

use std::sync::{Arc, Mutex};

use icecore_domain::calendar::{Moment, Zone};
use icecore_domain::event::EventDraftError;
use icecore_domain::forget::Tombstones;
use icecore_domain::ledger::query::EventQuery;
use icecore_domain::ledger::revise::RevisionError;
use icecore_domain::secrets::MarkerKey;
use icecore_store::{ContentVersion, SnapshotStore, Store};

use crate::clock::Clock;
use crate::config::Policy;

/// Why an operation failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Store(#[from] icecore_store::Error),
    /// The ledger forbids the change.
    #[error(transparent)]
    Refused(#[from] RevisionError),
    /// The input cannot be an event.
    #[error(transparent)]
    InvalidEvent(#[from] EventDraftError),
    /// The vault's settings are invalid.
    #[error(transparent)]
    Config(#[from] config::PolicyError),
    /// A size limit is exceeded.
    #[error("{0}")]
    LimitExceeded(String),
    /// Another process holds a lease or lock.
    #[error("{0}")]
    Busy(String),
    /// A prompt template is invalid.
    #[error("{0}")]
    Prompt(String),
    /// The system has no random numbers.
    #[error("the system's random number generator failed: {0}")]
    NoRandom(String),
    /// A file of the vault is damaged.
    #[error("{0}")]
    Damaged(String),
    /// The embedding model failed.
    #[error(transparent)]
    Embed(#[from] embed::EmbedError),
    /// The request is ambiguous or empty.
    #[error("{0}")]
    InvalidRequest(String),
    /// The requested item does not exist.
    #[error("{0}")]
    NotFound(String),
    /// The target exists already.
    #[error("{0}")]
    AlreadyExists(String),
}

/// The result of an operation.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// How often an operation reads and decides again when other processes write in between.
const MAX_ATTEMPTS: usize = 50;

/// One memory: a store, a snapshot history, a clock and a policy.
pub struct Memory {
    store: Arc<dyn Store>,
    history: Arc<dyn SnapshotStore>,
    clock: Box<dyn Clock>,
    policy: Policy,
    zone: Zone,
    /// Today's model costs, as far as they are known.
    tally: Mutex<model_spend::SpendTally>,
    /// The key for the marks of hidden secrets.
    marker_key: MarkerKey,
    /// The tombstones of forgotten content, and the version of their file.
    tombstones: std::sync::RwLock<(ContentVersion, Arc<Tombstones>)>,
    /// The settings could not be read: records become pending notes until they can be.
    is_provisional: bool,
}

impl Memory {
    /// Opens a memory; the policy is read from the store.
    pub async fn open(
        store: Arc<dyn Store>,
        history: Arc<dyn SnapshotStore>,
        clock: Box<dyn Clock>,
    ) -> Result<Self> {
        let policy = config::load_policy(store.as_ref()).await?;
        let zone = policy.zone()?;
        let marker_key = capture_filter::load_marker_key(store.as_ref()).await?;
        let (tally, stones) = Default::default();
        let memory = Self {
            store,
            history,
            clock,
            policy,
            zone,
            tally,
            marker_key,
            tombstones: stones,
            is_provisional: false,
        };
        memory.refresh_tombstones().await?;
        Ok(memory)
    }

    /// Opens a memory with default settings, whatever the store's settings say: to repair a vault
    /// with broken settings, and to capture messages meanwhile.
    pub fn open_with_defaults(
        store: Arc<dyn Store>,
        history: Arc<dyn SnapshotStore>,
        clock: Box<dyn Clock>,
    ) -> Result<Self> {
        let policy = Policy::read("")?;
        let zone = policy.zone()?;
        let marker_key = capture_filter::new_marker_key()?;
        let (tally, stones) = Default::default();
        Ok(Self {
            store,
            history,
            clock,
            policy,
            zone,
            tally,
            marker_key,
            tombstones: stones,
            is_provisional: true,
        })
    }

    /// The store.
    pub fn store(&self) -> &dyn Store {
        self.store.as_ref()
    }

    /// The policy in force.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// The current time, in the vault's time zone.
    pub fn now(&self) -> Moment {
        self.zone.moment(self.clock.now())
    }

    /// Whether the clock was set by hand to a moment before the newest event: a view of the past.
    async fn is_looking_back(&self) -> Result<bool> {
        let Some(until) = self.view_horizon() else { return Ok(false) };
        let newest = EventQuery { limit: Some(1), ..EventQuery::all() };
        let newest = self.store.events(&newest).await?.entries.pop();
        Ok(newest.is_some_and(|entry| entry.event.ts.timestamp() > until))
    }

    /// The start of a local day.
    pub fn start_of_day(&self, day: jiff::civil::Date) -> jiff::Timestamp {
        self.zone.day_start(day)
    }

    /// The moment after which nothing is visible, if the clock was set by hand.
    fn view_horizon(&self) -> Option<jiff::Timestamp> {
        self.clock.is_set_by_hand().then(|| self.clock.now())
    }
}
