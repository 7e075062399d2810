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

mod across;
mod assemble;
mod attend;
mod capture;
mod carry;
mod checkpoint;
mod compact;
mod consolidate;
pub mod converse;
mod curate;
mod distil;
mod find;
mod forget;
mod gate;
mod health;
mod history;
mod import;
mod jobs;
mod join;
mod layers;
mod log;
mod look;
mod memory_tool;
mod migrate;
mod pages;
pub mod project;
pub mod pulse;
mod quarantine;
mod recall;
mod remember;
mod review;
mod rollup;
mod spend;
mod tend;
mod trail;
mod views;

pub use across::{Alike, LookedBack, Trended};
pub use assemble::{Before, Zoomed};
pub use attend::{Attended, Begun, Due, Given, Helper, Injected, Item, Room, Trouble};
pub use capture::{
    Gaps, OWN_CONVERSATION, PARTS_CUT, SessionTaken, StateSaved, TRANSCRIPTS, Taken,
};
pub use carry::{Carried, Checked, Manifest, back_up, carry, check_backup, restore};
pub use compact::Compacted;
pub use consolidate::{Consolidated, NightOutlook};
pub use curate::Curated;
pub use distil::Distilled;
pub use find::{Answer, EMBED_IN_A_NIGHT, EMBED_IN_A_ROUND, Finder, Hit, Looking};
pub use forget::{Forget, Forgetting, Forgot, Place};
pub use gate::Secrets;
pub use health::{Counted, Coverage, Facets, Figures, JobRan, LedgerPage, Status as EventStatus};
pub use history::{Undone, UndoneFile};
pub use import::{Facts, Gated, KnownFacts, ReadSoFar};
pub use jobs::{Ran, Run};
pub use join::{MergeStatus, Merged};
pub use layers::{Child, Headline, Node, NodeLine};
pub use log::{Logged, Noticed, TakenIn};
pub use look::{Integrity, Status};
pub use memory_tool::{ToolAnswer, ToolVersion};
pub use migrate::{Accounted, Migrated, OldFile};
pub use pages::{PageEvent, PageLine, PageSaved, PageTold};
pub use quarantine::{Held, Waiting};
pub use recall::{SessionKind, TriggerTold, Triggers};
pub use remember::{Acted, Remember, Remembered};
pub use review::{Review, Settle};
pub use rollup::{
    Asking, Backfilled, Deferred, DueNode, Outlook, PressedNode, Rolled, Watch, Wish,
};
pub use spend::Spent;
pub use tend::{Repairs, Verdict};
pub use trail::{Because, Edge, Graph, Step, Story, SummaryTrail, Trail, TrailSource};
pub use views::Files;

use std::sync::{Arc, Mutex};

use icecore_domain::calendar::{Moment, Zone};
use icecore_domain::event::Unfit;
use icecore_domain::forget::Tombstones;
use icecore_domain::ledger::query::EventQuery;
use icecore_domain::ledger::revise::Refusal;
use icecore_domain::secrets::MarkerKey;
use icecore_store::{ContentVersion, History, Store};

use crate::clock::Clock;
use crate::config::Policy;

/// Why an operation failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Store(#[from] icecore_store::Error),
    /// The ledger forbids the change.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The input cannot be an event.
    #[error(transparent)]
    Unfit(#[from] Unfit),
    /// The vault's settings are invalid.
    #[error(transparent)]
    Config(#[from] config::Mistake),
    /// A size limit is exceeded.
    #[error("{0}")]
    TooMuch(String),
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
    Unclear(String),
    /// The requested item does not exist.
    #[error("{0}")]
    Nothing(String),
    /// The target exists already.
    #[error("{0}")]
    Occupied(String),
}

/// The result of an operation.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// How often an operation reads and decides again when other processes write in between.
const ATTEMPTS: usize = 50;

/// One memory: a store, a snapshot history, a clock and a policy.
pub struct Memory {
    store: Arc<dyn Store>,
    history: Arc<dyn History>,
    clock: Box<dyn Clock>,
    policy: Policy,
    zone: Zone,
    /// Today's model costs, as far as they are known.
    tally: Mutex<spend::Tally>,
    /// The key for the marks of hidden secrets.
    marker_key: MarkerKey,
    /// The tombstones of forgotten content, and the version of their file.
    stones: std::sync::RwLock<(ContentVersion, Arc<Tombstones>)>,
    /// The settings could not be read: records become pending notes until they can be.
    is_provisional: bool,
}

impl Memory {
    /// Opens a memory; the policy is read from the store.
    pub async fn open(
        store: Arc<dyn Store>,
        history: Arc<dyn History>,
        clock: Box<dyn Clock>,
    ) -> Result<Self> {
        let policy = config::load(store.as_ref()).await?;
        let zone = policy.zone()?;
        let marker_key = gate::marker_key(store.as_ref()).await?;
        let (tally, stones) = Default::default();
        let memory = Self {
            store,
            history,
            clock,
            policy,
            zone,
            tally,
            marker_key,
            stones,
            is_provisional: false,
        };
        memory.renew_tombstones().await?;
        Ok(memory)
    }

    /// Opens a memory with default settings, whatever the store's settings say: to repair a vault
    /// with broken settings, and to capture messages meanwhile.
    pub fn open_with_defaults(
        store: Arc<dyn Store>,
        history: Arc<dyn History>,
        clock: Box<dyn Clock>,
    ) -> Result<Self> {
        let policy = Policy::read("")?;
        let zone = policy.zone()?;
        let marker_key = gate::new_marker_key()?;
        let (tally, stones) = Default::default();
        Ok(Self {
            store,
            history,
            clock,
            policy,
            zone,
            tally,
            marker_key,
            stones,
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
    async fn looks_back(&self) -> Result<bool> {
        let Some(until) = self.horizon() else { return Ok(false) };
        let newest = EventQuery { limit: Some(1), ..EventQuery::everything() };
        let newest = self.store.events(&newest).await?.entries.pop();
        Ok(newest.is_some_and(|entry| entry.event.ts.at() > until))
    }

    /// The start of a local day.
    pub fn start_of(&self, day: jiff::civil::Date) -> jiff::Timestamp {
        self.zone.start_of(day)
    }

    /// The moment after which nothing is visible, if the clock was set by hand.
    fn horizon(&self) -> Option<jiff::Timestamp> {
        self.clock.is_set_by_hand().then(|| self.clock.now())
    }
}
