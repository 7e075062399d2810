//! The status screen and queries of the ledger: events, commitments, conflicts.
//!
//! Invariant: with a clock set by hand, everything is as it was known at that moment.

use std::collections::HashSet;

use icecore_domain::calendar::{Moment, days_between};
use icecore_domain::event::{EventType, Priority};
use icecore_domain::id::EventId;
use icecore_domain::layout;
use icecore_domain::ledger::conflict::{self, Conflict};
use icecore_domain::ledger::query::{EventQuery, EventStateFilter};
use icecore_domain::ledger::{Ledger, LedgerEntry};
use icecore_domain::schedule::Job;
use serde::Serialize;

use crate::forget::HISTORY_UNFINISHED_WARNING;
use crate::live_session::{HookFailure, UNREAD_SESSION};
use crate::machine_merge::MERGE_UNFINISHED_WARNING;
use crate::{Memory, Result};

/// What `icecore` without a command shows.
#[derive(Debug, Serialize)]
pub struct MemoryStatus {
    pub now: Moment,
    pub zone: String,
    /// The number of days with messages or states.
    pub days_captured: usize,
    pub jobs_due: Vec<&'static str>,
    /// The number of statements, of any state.
    pub statements: usize,
    /// The number of active statements, by type.
    #[serde(serialize_with = "as_map")]
    pub active: Vec<(EventType, usize)>,
    /// The number of active permanent rules.
    pub p0: usize,
    /// The number of open commitments.
    pub open: usize,
    pub oldest_open: Vec<LedgerEntry>,
    /// Commitments that are overdue or due soon, most urgent first.
    pub due: Vec<LedgerEntry>,
    pub conflicts: Vec<Conflict>,
    pub integrity: IntegrityStatus,
    /// Problems, and what to do about them.
    pub wrong: Vec<String>,
}

fn serialize_as_map<S: serde::Serializer>(
    counts: &[(EventType, usize)],
    serializer: S,
) -> std::result::Result<S::Ok, S::Error> {
    serializer.collect_map(counts.iter().copied())
}

/// The result of the last `verify`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum IntegrityStatus {
    /// There was no `verify` yet.
    Unknown,
    /// Every check passed.
    Whole { at: Moment, days_ago: i64 },
    /// Some checks failed.
    Failing { at: Moment, failures: usize },
}

/// After this many days without a consolidation, the status warns.
const MAX_DAYS_WITHOUT_CONSOLIDATION: i64 = 2;
/// How many unreadable sessions are named.
const MAX_SHOWN_UNREADABLE_SESSIONS: usize = 3;

impl Memory {
    /// The events of a query, as of the clock if it was set by hand.
    pub async fn query_events(&self, which: &EventQuery) -> Result<Vec<LedgerEntry>> {
        match self.view_horizon() {
            None if which.state == EventStateFilter::Any
                && which.limit.is_none()
                && which.after.is_none() =>
            {
                self.query_events_with_archives(which).await
            }
            None => Ok(self.store.events(which).await?.entries),
            Some(_) => {
                Ok(which.select(self.load_ledger().await?.entries()).into_iter().cloned().collect())
            }
        }
    }

    /// The events of a query, archived ones included.
    async fn query_events_with_archives(&self, which: &EventQuery) -> Result<Vec<LedgerEntry>> {
        let mut found = self.store.events(which).await?.entries;
        let ids: Vec<EventId> =
            self.store.archived_events(which).await?.iter().map(|event| event.id).collect();
        let mut gone = self.load_events_with_archives(&ids).await?;
        let here: HashSet<EventId> = found.iter().map(|entry| entry.event.id).collect();
        gone.retain(|entry| !here.contains(&entry.event.id));
        gone.extend(found);
        found = gone;
        found.sort_by_key(|entry| entry.event.id);
        Ok(found)
    }

    /// The whole ledger, as of the clock if it was set by hand.
    pub(crate) async fn load_ledger(&self) -> Result<Ledger> {
        match self.view_horizon() {
            None => Ok(Ledger::parse(&self.store.ledger().await?.bytes, None)),
            Some(until) => self.ledger_as_of(until).await,
        }
    }

    /// Open commitments, oldest first.
    pub async fn list_open_commitments(&self) -> Result<Vec<LedgerEntry>> {
        let mut open = self.query_events(&EventQuery::open_loops()).await?;
        open.sort_by_key(|entry| (entry.event.ts, entry.event.id));
        Ok(open)
    }

    /// Conflicts between statements, with the statements.
    pub async fn list_conflicts(&self) -> Result<Vec<(Conflict, Vec<LedgerEntry>)>> {
        let ledger = self.load_ledger().await?;
        let mut found = self.find_conflicts(&ledger).await?;
        found.extend(
            conflict::find_forks(&ledger)
                .into_iter()
                .filter(|fork| !found.iter().any(|known| known.events == fork.events))
                .collect::<Vec<_>>(),
        );
        let entries = |conflict: &Conflict| {
            conflict.events.iter().filter_map(|&id| ledger.get(id).cloned()).collect()
        };
        Ok(found.into_iter().map(|conflict| (conflict.clone(), entries(&conflict))).collect())
    }

    /// The conflicts. The store knows them, unless the clock was set by hand.
    pub(crate) async fn find_conflicts(&self, ledger: &Ledger) -> Result<Vec<Conflict>> {
        match self.view_horizon() {
            None => Ok(conflict::conflicting_claims(&self.store.contested_claims().await?)),
            Some(_) => Ok(conflict::find_conflicts(ledger.entries())),
        }
    }

    /// The status of this memory.
    pub async fn load_status(&self) -> Result<MemoryStatus> {
        let now = self.now();
        let counts = match self.view_horizon() {
            None => self.store.count_statements().await?,
            Some(_) => {
                let ledger = self.load_ledger().await?;
                let statements = ledger.entries().iter().filter(|entry| entry.event.is_statement());
                statements
                    .map(|entry| icecore_store::StatementCount {
                        kind: entry.event.kind,
                        priority: entry.event.priority,
                        state: entry.state.word(),
                        events: 1,
                    })
                    .collect()
            }
        };
        let sum = |wanted: &dyn Fn(&icecore_store::StatementCount) -> bool| {
            counts.iter().filter(|count| wanted(count)).map(|count| count.events).sum::<usize>()
        };
        let active = EventType::ALL
            .iter()
            .map(|&kind| (kind, sum(&|count| count.state == "active" && count.kind == kind)));
        let open = self.list_open_commitments().await?;
        let soon = i64::from(self.policy.status.due_soon_days);
        let mut due: Vec<LedgerEntry> = open
            .iter()
            .filter(|entry| entry.event.due.is_some_and(|due| days_between(now.day(), due) <= soon))
            .cloned()
            .collect();
        due.sort_by_key(|entry| entry.event.due);
        let conflicts = match self.view_horizon() {
            None => conflict::conflicting_claims(&self.store.contested_claims().await?),
            Some(_) => self.find_conflicts(&self.load_ledger().await?).await?,
        };
        let integrity = self.load_integrity_status().await?;
        let wrong = self.find_problems(&integrity).await?;
        Ok(MemoryStatus {
            now,
            zone: self.zone.name().to_owned(),
            statements: sum(&|_| true),
            days_captured: self
                .store
                .record_days()
                .await?
                .into_iter()
                .filter(|day| *day <= now.day())
                .count(),
            jobs_due: self.list_due_jobs().await?.iter().map(|due| due.job.word()).collect(),
            active: active.collect(),
            p0: sum(&|count| count.state == "active" && count.priority == Priority::P0),
            open: open.len(),
            oldest_open: open
                .into_iter()
                .take(usize::from(self.policy.status.commitments_shown))
                .collect(),
            due,
            conflicts,
            integrity,
            wrong,
        })
    }

    async fn find_problems(&self, integrity: &IntegrityStatus) -> Result<Vec<String>> {
        let mut wrong = Vec::new();
        let faults = self.store.line_faults().await?;
        if let Some(first) = faults.first() {
            wrong.push(format!(
                "{} of {} cannot be read, the first is line {}, which {}; run `icecore doctor` to list them, `icecore doctor --fix` to move them to quarantine",
                count_with_noun(faults.len(), "line"),
                layout::LEDGER,
                first.line,
                first.fault.what
            ));
        }
        let lost = self.store.lost_events().await?;
        if let Some(first) = lost.first() {
            wrong.push(format!(
                "{} that {} recorded, from {first} on, {} missing from {}; run `icecore doctor --fix` to restore what a snapshot still has",
                count_with_noun(lost.len(), "event"),
                if lost.len() == 1 { "was" } else { "were" },
                if lost.len() == 1 { "is" } else { "are" },
                layout::LEDGER
            ));
        }
        let flagged = self.list_flagged_periods().await?;
        if let Some(first) = flagged.first() {
            wrong.push(format!(
                "{} for review, the first is {first}; run `icecore summary review` to see why",
                if flagged.len() == 1 {
                    "a draft waits".into()
                } else {
                    format!("{} drafts wait", flagged.len())
                }
            ));
        }
        let (unread, troubles): (Vec<HookFailure>, Vec<HookFailure>) = self
            .hook_failures()
            .await?
            .into_iter()
            .partition(|trouble| trouble.event == UNREAD_SESSION);
        wrong.extend(
            unread.into_iter().take(MAX_SHOWN_UNREADABLE_SESSIONS).map(|trouble| trouble.what),
        );
        if let Some(last) = troubles.first() {
            wrong.push(format!(
                "hooks failed {} since {}, last at {}: {}; run `icecore doctor` to list the failures",
                if troubles.len() == 1 { "once".into() } else { format!("{} times", troubles.len()) },
                troubles.last().map_or("", |first| first.ts.get(..10).unwrap_or_default()),
                last.event,
                last.what
            ));
        }
        let waiting = self.pending_note_count().await?;
        if waiting > 0 {
            wrong.push(format!(
                "{} from hooks {} to be added to the vault; run `icecore consolidate` to add them",
                count_with_noun(waiting, "note"),
                if waiting == 1 { "waits" } else { "wait" }
            ));
        }
        if let Some(ran) = self.load_last_job_runs().await?.get(&Job::Consolidation) {
            let days = days_between(*ran, self.now().day());
            if days > MAX_DAYS_WITHOUT_CONSOLIDATION {
                wrong.push(format!(
                    "no summaries were made for {days} days; run `icecore rollup due` once, or `icecore daemon` permanently"
                ));
            }
        }
        match integrity {
            IntegrityStatus::Failing { failures, at } => {
                wrong.push(format!(
                    "{} failed on {}; run `icecore doctor`",
                    count_with_noun(*failures, "integrity check"),
                    at.day()
                ));
            }
            IntegrityStatus::Whole { days_ago, .. }
                if *days_ago > i64::from(self.policy.status.max_days_without_verify) =>
            {
                wrong.push(format!("the last `icecore verify` was {days_ago} days ago"));
            }
            IntegrityStatus::Whole { .. } | IntegrityStatus::Unknown => {}
        }
        if let Err(error) = self.history.check_available().await {
            wrong.push(error.to_string());
        }
        wrong.extend(self.history.setup_hints().await);
        if self.is_merging().await? {
            wrong.push(MERGE_UNFINISHED_WARNING.into());
        }
        if self.has_unfinished_history().await? {
            wrong.push(HISTORY_UNFINISHED_WARNING.into());
        }
        if !self.list_unapplied_tombstones().await?.is_empty() {
            wrong.push(
                "another machine has forgotten text that may still be here; run `icecore forget --unfinished` to remove it".into(),
            );
        }
        Ok(wrong)
    }
}

/// A count with its noun: `1 line`, `2 lines`.
pub(crate) fn count_with_noun(many: usize, what: &str) -> String {
    format!("{many} {what}{}", if many == 1 { "" } else { "s" })
}
