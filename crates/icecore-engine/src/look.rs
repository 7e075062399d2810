//! Looking: what is here, what is open, and where a line comes from.

use std::collections::HashSet;

use icecore_domain::calendar::{Moment, days_between};
use icecore_domain::event::{Kind, Priority};
use icecore_domain::id::EventId;
use icecore_domain::layout;
use icecore_domain::ledger::conflict::{self, Conflict};
use icecore_domain::ledger::query::{EventQuery, Wanted};
use icecore_domain::ledger::{Entry, Ledger};
use icecore_domain::schedule::Job;
use serde::Serialize;

use crate::attend::{Trouble, UNREAD};
use crate::forget::HISTORY_OWED;
use crate::join::CUT_SHORT;
use crate::{Memory, Result};

/// What a person wants to see first.
#[derive(Debug, Serialize)]
pub struct Status {
    /// The moment it is told for.
    pub now: Moment,
    /// The vault's zone.
    pub zone: String,
    /// Days of which messages or states were captured.
    pub days_captured: usize,
    /// Jobs whose time has come.
    pub jobs_due: Vec<&'static str>,
    /// Every statement, whatever became of it.
    pub statements: usize,
    /// How many hold, by type.
    #[serde(serialize_with = "as_map")]
    pub active: Vec<(Kind, usize)>,
    /// How many permanent rules hold.
    pub p0: usize,
    /// Open commitments.
    pub open: usize,
    /// The oldest of them.
    pub oldest_open: Vec<Entry>,
    /// Those that are overdue or due soon, most urgent first.
    pub due: Vec<Entry>,
    /// Statements that contradict each other.
    pub conflicts: Vec<Conflict>,
    /// What the last `verify` found.
    pub integrity: Integrity,
    /// What is wrong, and what to do about it.
    pub wrong: Vec<String>,
}

fn as_map<S: serde::Serializer>(
    counts: &[(Kind, usize)],
    serializer: S,
) -> std::result::Result<S::Ok, S::Error> {
    serializer.collect_map(counts.iter().copied())
}

/// What is known of the vault's integrity.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum Integrity {
    /// It was never verified.
    Unknown,
    /// It was found whole.
    Whole {
        /// When.
        at: Moment,
        /// How many days ago.
        days_ago: i64,
    },
    /// Something was found.
    Failing {
        /// When.
        at: Moment,
        /// How many checks fail.
        failures: usize,
    },
}

/// After so many days without a consolidation, the first screen says so.
const SILENT_DAYS: i64 = 2;
/// So many sessions that could not be read are named.
const UNREAD_SHOWN: usize = 3;

impl Memory {
    /// The events asked for, as of the clock if it was set by hand.
    pub async fn events(&self, which: &EventQuery) -> Result<Vec<Entry>> {
        match self.horizon() {
            None if which.standing == Wanted::Any
                && which.limit.is_none()
                && which.after.is_none() =>
            {
                self.events_anywhere(which).await
            }
            None => Ok(self.store.events(which).await?.entries),
            Some(_) => {
                Ok(which.choose(self.ledger().await?.entries()).into_iter().cloned().collect())
            }
        }
    }

    /// Likewise, with what has left the ledger.
    async fn events_anywhere(&self, which: &EventQuery) -> Result<Vec<Entry>> {
        let mut found = self.store.events(which).await?.entries;
        let ids: Vec<EventId> =
            self.store.archived(which).await?.iter().map(|event| event.id).collect();
        let mut gone = self.anywhere(&ids).await?;
        let here: HashSet<EventId> = found.iter().map(|entry| entry.event.id).collect();
        gone.retain(|entry| !here.contains(&entry.event.id));
        gone.extend(found);
        found = gone;
        found.sort_by_key(|entry| entry.event.id);
        Ok(found)
    }

    /// The whole ledger, as of the clock if it was set by hand.
    pub(crate) async fn ledger(&self) -> Result<Ledger> {
        match self.horizon() {
            None => Ok(Ledger::read(&self.store.ledger().await?.bytes, None)),
            Some(until) => self.ledger_then(until).await,
        }
    }

    /// Open commitments, oldest first.
    pub async fn commitments(&self) -> Result<Vec<Entry>> {
        let mut open = self.events(&EventQuery::open_loops()).await?;
        open.sort_by_key(|entry| (entry.event.ts, entry.event.id));
        Ok(open)
    }

    /// Statements that cannot both be true, with the statements themselves.
    pub async fn conflicts(&self) -> Result<Vec<(Conflict, Vec<Entry>)>> {
        let ledger = self.ledger().await?;
        let mut found = self.contradictions(&ledger).await?;
        found.extend(
            conflict::forks(&ledger)
                .into_iter()
                .filter(|fork| !found.iter().any(|known| known.events == fork.events))
                .collect::<Vec<_>>(),
        );
        let entries = |conflict: &Conflict| {
            conflict.events.iter().filter_map(|&id| ledger.get(id).cloned()).collect()
        };
        Ok(found.into_iter().map(|conflict| (conflict.clone(), entries(&conflict))).collect())
    }

    /// What contradicts what; the home knows, unless the clock was set by hand.
    pub(crate) async fn contradictions(&self, ledger: &Ledger) -> Result<Vec<Conflict>> {
        match self.horizon() {
            None => Ok(conflict::between(&self.store.contested().await?)),
            Some(_) => Ok(conflict::among(ledger.entries())),
        }
    }

    /// What a person wants to see first.
    pub async fn status(&self) -> Result<Status> {
        let now = self.now();
        let counts = match self.horizon() {
            None => self.store.tally().await?,
            Some(_) => {
                let ledger = self.ledger().await?;
                let statements = ledger.entries().iter().filter(|entry| entry.event.is_statement());
                statements
                    .map(|entry| icecore_store::Count {
                        kind: entry.event.kind,
                        priority: entry.event.priority,
                        standing: entry.standing.word(),
                        events: 1,
                    })
                    .collect()
            }
        };
        let sum = |wanted: &dyn Fn(&icecore_store::Count) -> bool| {
            counts.iter().filter(|count| wanted(count)).map(|count| count.events).sum::<usize>()
        };
        let active = Kind::ALL
            .iter()
            .map(|&kind| (kind, sum(&|count| count.standing == "active" && count.kind == kind)));
        let open = self.commitments().await?;
        let soon = i64::from(self.policy.status.due_soon_days);
        let mut due: Vec<Entry> = open
            .iter()
            .filter(|entry| entry.event.due.is_some_and(|due| days_between(now.day(), due) <= soon))
            .cloned()
            .collect();
        due.sort_by_key(|entry| entry.event.due);
        let conflicts = match self.horizon() {
            None => conflict::between(&self.store.contested().await?),
            Some(_) => self.contradictions(&self.ledger().await?).await?,
        };
        let integrity = self.integrity().await?;
        let wrong = self.wrong(&integrity).await?;
        Ok(Status {
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
            jobs_due: self.due_jobs().await?.iter().map(|due| due.job.word()).collect(),
            active: active.collect(),
            p0: sum(&|count| count.standing == "active" && count.priority == Priority::P0),
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

    async fn wrong(&self, integrity: &Integrity) -> Result<Vec<String>> {
        let mut wrong = Vec::new();
        let faults = self.store.faults().await?;
        if let Some(first) = faults.first() {
            wrong.push(format!(
                "{} of {} cannot be seen, the first is line {}, which {}. `icecore doctor` shows them, `icecore doctor --fix` sets them aside",
                counted(faults.len(), "line"),
                layout::LEDGER,
                first.line,
                first.fault.what
            ));
        }
        let lost = self.store.lost().await?;
        if let Some(first) = lost.first() {
            wrong.push(format!(
                "{} that {} recorded, from {first} on, {} no longer in {}. `icecore doctor --fix` brings back what a snapshot still has",
                counted(lost.len(), "event"),
                if lost.len() == 1 { "was" } else { "were" },
                if lost.len() == 1 { "is" } else { "are" },
                layout::LEDGER
            ));
        }
        let flagged = self.flagged().await?;
        if let Some(first) = flagged.first() {
            wrong.push(format!(
                "{} for review, the first is {first}. `icecore summary review` shows what is wrong",
                if flagged.len() == 1 {
                    "a draft waits".into()
                } else {
                    format!("{} drafts wait", flagged.len())
                }
            ));
        }
        let (unread, troubles): (Vec<Trouble>, Vec<Trouble>) =
            self.hook_troubles().await?.into_iter().partition(|trouble| trouble.event == UNREAD);
        wrong.extend(unread.into_iter().take(UNREAD_SHOWN).map(|trouble| trouble.what));
        if let Some(last) = troubles.first() {
            wrong.push(format!(
                "hooks could not do their work {} since {}, last at {}: {}. `icecore doctor` lists them",
                if troubles.len() == 1 { "once".into() } else { format!("{} times", troubles.len()) },
                troubles.last().map_or("", |first| first.ts.get(..10).unwrap_or_default()),
                last.event,
                last.what
            ));
        }
        let waiting = self.waiting_notes().await?;
        if waiting > 0 {
            wrong.push(format!(
                "{} from hooks {} to be added to the vault. `icecore consolidate` adds them",
                counted(waiting, "note"),
                if waiting == 1 { "waits" } else { "wait" }
            ));
        }
        if let Some(ran) = self.last_runs().await?.get(&Job::Consolidation) {
            let days = days_between(*ran, self.now().day());
            if days > SILENT_DAYS {
                wrong.push(format!(
                    "nothing was pressed for {days} days. `icecore rollup due` does what is due, `icecore daemon` keeps at it"
                ));
            }
        }
        match integrity {
            Integrity::Failing { failures, at } => {
                wrong.push(format!(
                    "{} failed on {}. `icecore doctor` shows what to do",
                    counted(*failures, "integrity check"),
                    at.day()
                ));
            }
            Integrity::Whole { days_ago, .. }
                if *days_ago > i64::from(self.policy.status.verify_days) =>
            {
                wrong.push(format!("the last `icecore verify` was {days_ago} days ago"));
            }
            Integrity::Whole { .. } | Integrity::Unknown => {}
        }
        if let Err(error) = self.history.available().await {
            wrong.push(error.to_string());
        }
        wrong.extend(self.history.wants().await);
        if self.is_merging().await? {
            wrong.push(CUT_SHORT.into());
        }
        if self.owes_history().await? {
            wrong.push(HISTORY_OWED.into());
        }
        if !self.carried_in().await?.is_empty() {
            wrong.push(
                "another machine has forgotten something, and it was not looked for here. `icecore forget --unfinished` does it".into(),
            );
        }
        Ok(wrong)
    }
}

/// `1 line`, `2 lines`.
pub(crate) fn counted(many: usize, what: &str) -> String {
    format!("{many} {what}{}", if many == 1 { "" } else { "s" })
}
