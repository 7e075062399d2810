//! What memory *does*: every verb of icecore.
//!
//! Each verb has the same form: read from the store, plan with the domain, write to the store. A
//! plan is worked out from what is stored, never remembered, so a verb that died anywhere is
//! finished by running it again, and running it twice does nothing new. Time comes from a
//! [`clock::Clock`] that the caller hands in.

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

/// Why a verb did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The store failed or refused.
    #[error(transparent)]
    Store(#[from] icecore_store::Error),
    /// The ledger does not allow it.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// What was said cannot be an event.
    #[error(transparent)]
    Unfit(#[from] Unfit),
    /// The vault's settings are wrong.
    #[error(transparent)]
    Config(#[from] config::Mistake),
    /// It is more than can be taken at once.
    #[error("{0}")]
    TooMuch(String),
    /// Somebody else is at it.
    #[error("{0}")]
    Busy(String),
    /// A prompt cannot be used.
    #[error("{0}")]
    Prompt(String),
    /// The system has no random numbers.
    #[error("the system gives no random numbers: {0}")]
    NoRandom(String),
    /// The vault is not whole.
    #[error("{0}")]
    Damaged(String),
    /// Meanings could not be compared.
    #[error(transparent)]
    Embed(#[from] embed::EmbedError),
    /// What was asked for says nothing.
    #[error("{0}")]
    Unclear(String),
    /// There is nothing of that kind.
    #[error("{0}")]
    Nothing(String),
    /// Something is where it was to go.
    #[error("{0}")]
    Occupied(String),
}

/// What went right or wrong.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// How often a verb reads and decides again when others keep writing in between.
const ATTEMPTS: usize = 50;

/// One memory, ready to be used: a home, a safety net, a clock and a policy.
pub struct Memory {
    store: Arc<dyn Store>,
    history: Arc<dyn History>,
    clock: Box<dyn Clock>,
    policy: Policy,
    zone: Zone,
    /// What today has cost, as far as it is known.
    tally: Mutex<spend::Tally>,
    /// Under which secrets are marked.
    marker_key: MarkerKey,
    /// What must not come in again, and how long the file was that says so.
    stones: std::sync::RwLock<(ContentVersion, Arc<Tombstones>)>,
    /// Its own settings could not be read: what a session says waits in notes until they can be.
    is_provisional: bool,
}

impl Memory {
    /// Puts the parts together; the policy is read from the home.
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

    /// Likewise with the defaults, whatever the home's own settings say: for mending a vault whose
    /// settings are broken, and for capturing what is said meanwhile.
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

    /// The home.
    pub fn store(&self) -> &dyn Store {
        self.store.as_ref()
    }

    /// The policy in force.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// This moment, in the vault's zone.
    pub fn now(&self) -> Moment {
        self.zone.moment(self.clock.now())
    }

    /// Whether the clock was set by hand to a moment before the newest event: a look at the past.
    async fn looks_back(&self) -> Result<bool> {
        let Some(until) = self.horizon() else { return Ok(false) };
        let newest = EventQuery { limit: Some(1), ..EventQuery::everything() };
        let newest = self.store.events(&newest).await?.entries.pop();
        Ok(newest.is_some_and(|entry| entry.event.ts.at() > until))
    }

    /// When a local day begins.
    pub fn start_of(&self, day: jiff::civil::Date) -> jiff::Timestamp {
        self.zone.start_of(day)
    }

    /// The moment beyond which nothing is known, if the clock was set by hand.
    fn horizon(&self) -> Option<jiff::Timestamp> {
        self.clock.is_set_by_hand().then(|| self.clock.now())
    }
}
