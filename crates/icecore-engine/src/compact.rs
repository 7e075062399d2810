//! Compaction (L14, L15): moves expired events and finished chains from the ledger to an archive.
//!
//! Invariants: lines are in the archive, byte for byte, before they leave the ledger, and every
//! reference to them still resolves. Compaction never changes the state of a retained event.

use std::collections::HashSet;

use icecore_domain::calendar::Moment;
use icecore_domain::hash::Hash;
use icecore_domain::id::EventId;
use icecore_domain::layout::{self, DocPath};
use icecore_domain::ledger::Ledger;
use icecore_domain::ledger::archive::{self, ArchiveReason};
use icecore_domain::ledger::compact::{self, CompactionMode, CompactionPlan, LedgerOverflow};
use icecore_domain::ledger::integrity::LedgerPrefix;
use icecore_store::{Error as StoreError, ErrorKind as StoreErrorKind};
use serde::Serialize;

use crate::{Error, MAX_ATTEMPTS, Memory, Result};

/// What was moved out of the ledger.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct CompactionReport {
    /// The number of events before.
    pub before: usize,
    /// The number of events after.
    pub after: usize,
    /// Events that were added, each of which replaces a finished chain.
    pub summaries: Vec<EventId>,
    /// How many were moved because their chain is finished.
    pub compacted: usize,
    /// How many were moved because they expired.
    pub pruned: usize,
    /// How many active ones were moved because there were too many. They can still be read,
    /// superseded and retracted.
    pub crowded: usize,
    /// Why there are still too many events.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub over: Option<String>,
}

impl CompactionReport {
    /// Whether nothing was moved.
    pub fn is_empty(&self) -> bool {
        self.compacted + self.pruned + self.crowded + self.summaries.len() == 0
    }

    fn count_moved(&mut self, ledger: &Ledger, leaving: &CompactionPlan) {
        let holds = |id: &&EventId| {
            ledger
                .get(**id)
                .is_some_and(|entry| entry.state.is_active() && entry.event.is_statement())
        };
        self.crowded = leaving.compacted.iter().filter(holds).count();
        (self.compacted, self.pruned) =
            (leaving.compacted.len() - self.crowded, leaving.pruned.len());
        self.after = self.before - leaving.compacted.len() - leaving.pruned.len();
    }
}

fn describe_surplus(over: &LedgerOverflow) -> String {
    format!(
        "{} events are left; {} of them are permanent, open or recent and stay",
        over.events, over.permanent
    )
}

impl Memory {
    /// What `compact`, or with `prune` pruning alone, would do.
    pub async fn preview_compaction(&self, prune: bool) -> Result<CompactionReport> {
        let text = self.store.ledger().await?;
        let ledger = Ledger::parse(&text.bytes, None);
        let now = self.now();
        let what = if prune { CompactionMode::Prune } else { CompactionMode::Compact };
        let leaving =
            compact::plan_compaction(&ledger, now.day(), self.policy.ledger_limits(), what);
        let chains = if prune { Vec::new() } else { compact::chain_summaries(&ledger, now) };
        // A chain that gets a replacing event is moved as well.
        let members: usize = chains
            .iter()
            .filter_map(|draft| {
                draft.extra_field::<Vec<String>>(icecore_domain::event::COMPACTS_FIELD)
            })
            .map(|ids| ids.len())
            .sum();
        let mut outlook = CompactionReport {
            before: ledger.entries().len(),
            over: leaving.over.as_ref().map(describe_surplus),
            ..CompactionReport::default()
        };
        outlook.count_moved(&ledger, &leaving);
        outlook.compacted += members;
        outlook.after = (outlook.after + chains.len()).saturating_sub(members);
        Ok(outlook)
    }

    /// Replaces every finished chain by one event, and moves surplus events to the archive.
    pub async fn compact_ledger(&self) -> Result<CompactionReport> {
        let _alone = self.acquire_consolidation_lease().await?;
        self.compact_ledger_at(self.now()).await
    }

    /// Moves expired events to the archive.
    pub async fn prune_ledger(&self) -> Result<CompactionReport> {
        let _alone = self.acquire_consolidation_lease().await?;
        self.prune_ledger_at(self.now()).await
    }

    pub(crate) async fn compact_ledger_at(&self, now: Moment) -> Result<CompactionReport> {
        self.ensure_undamaged().await?;
        let mut compacted = CompactionReport::default();
        // If other processes keep writing, a chain without a replacing event stays complete until
        // the next run.
        for _ in 0..MAX_ATTEMPTS {
            let text = self.store.ledger().await?;
            let drafts = compact::chain_summaries(&Ledger::parse(&text.bytes, None), now);
            if drafts.is_empty() {
                break;
            }
            match self.store.append(drafts, Some(text.position)).await {
                Err(StoreError { kind: StoreErrorKind::Conflict, .. }) => {}
                other => {
                    compacted.summaries = other?.iter().map(|event| event.id).collect();
                    break;
                }
            }
        }
        self.archive_events(CompactionMode::Compact, now, &mut compacted).await?;
        Ok(compacted)
    }

    pub(crate) async fn prune_ledger_at(&self, now: Moment) -> Result<CompactionReport> {
        self.ensure_undamaged().await?;
        let mut compacted = CompactionReport::default();
        self.archive_events(CompactionMode::Prune, now, &mut compacted).await?;
        Ok(compacted)
    }

    /// Refuses to compact a damaged ledger: the damage has to be resolved first.
    async fn ensure_undamaged(&self) -> Result<()> {
        if self.is_looking_back().await? {
            return Err(Error::NotFound(
                "the ledger has events after that moment; compaction works only in the present, without --now"
                    .into(),
            ));
        }
        let faults = self.store.line_faults().await?;
        let lost = self.store.lost_events().await?;
        if faults.is_empty() && lost.is_empty() {
            return Ok(());
        }
        Err(Error::Damaged(
            "the ledger is damaged, so nothing was moved out of it; run `icecore doctor`".into(),
        ))
    }

    async fn archive_events(
        &self,
        what: CompactionMode,
        now: Moment,
        compacted: &mut CompactionReport,
    ) -> Result<()> {
        let mut last = StoreError::conflict(layout::LEDGER.into());
        for _ in 0..MAX_ATTEMPTS {
            let text = self.store.ledger().await?;
            let ledger = Ledger::parse(&text.bytes, None);
            let leaving =
                compact::plan_compaction(&ledger, now.day(), self.policy.ledger_limits(), what);
            compacted.before = ledger.entries().len();
            compacted.over = leaving.over.as_ref().map(describe_surplus);
            compacted.count_moved(&ledger, &leaving);
            let all: HashSet<EventId> =
                leaving.compacted.iter().chain(&leaving.pruned).copied().collect();
            if all.is_empty() {
                return Ok(());
            }
            let (kept, _) = compact::split_ledger(&text.bytes, &all);
            let there = self.read_archives().await?;
            let mut archives: Vec<(DocPath, Vec<u8>)> = Vec::new();
            for (ids, why) in [
                (&leaving.compacted, ArchiveReason::Compaction),
                (&leaving.pruned, ArchiveReason::Pruning),
            ] {
                let ids: HashSet<EventId> = ids.iter().copied().collect();
                let (_, lines) = compact::split_ledger(&text.bytes, &ids);
                let place = archive::archive_path(why, now.day());
                // An interrupted run may have left lines in an archive, possibly of another
                // quarter, that are still in the ledger.
                let lines = there
                    .iter()
                    .fold(lines, |lines, archive| archive::lines_not_in(archive, lines));
                if !lines.is_empty() {
                    archives.push((place, archive::format_batch(now, why, &lines)));
                }
            }
            // From here on both the old and the new beginning of the ledger count as verified.
            self.begin_ledger_change(&text.bytes, &kept).await?;
            // Moved first, so that the checkpoint never names an archived event.
            self.move_checkpoint(&ledger, &all).await?;
            match self.store.archive(&archives, &kept, text.position).await {
                Err(moved @ StoreError { kind: StoreErrorKind::Conflict, .. }) => last = moved,
                other => {
                    other?;
                    return self
                        .finish_ledger_change(LedgerPrefix {
                            bytes: kept.len(),
                            hash: Hash::of(&kept),
                        })
                        .await;
                }
            }
        }
        Err(last.into())
    }

    /// Moves the checkpoint back to the last event that stays in the ledger.
    async fn move_checkpoint(&self, before: &Ledger, left: &HashSet<EventId>) -> Result<()> {
        let mut checkpoint = self.load_checkpoint().await?;
        let Some(last) = checkpoint.last_event().filter(|id| left.contains(id)) else {
            return Ok(());
        };
        let upto = before.entries().iter().take_while(|entry| entry.event.id != last);
        let stays = upto.filter(|entry| !left.contains(&entry.event.id)).last();
        checkpoint.last_processed_event_id = stays.map(|entry| entry.event.id.to_string());
        self.save_checkpoint(&checkpoint).await
    }
}
