//! The nightly consolidation (L13, K3, K5): extracts events, updates pages, summaries and the
//! recall pack, compacts the ledger and checks the vault.
//!
//! Invariants: every step is planned from what is stored, so the next run finishes a run that died.
//! No lock is held while a model is asked; what arrives meanwhile is processed by the next run.

use std::collections::BTreeSet;

use icecore_domain::calendar::Moment;
use icecore_domain::id::EventId;
use icecore_domain::layout::{self, DocPath};
use icecore_domain::ledger::archive::{self, Why};
use icecore_domain::ledger::decay::{self, Freshness};
use icecore_domain::ledger::integrity::{Check, Finding};
use icecore_domain::ledger::query::EventQuery;
use icecore_domain::ledger::{Entry, conflict};
use icecore_domain::report::{self, Night};
use icecore_domain::schedule::{Job, Occurrence};
use icecore_domain::summary::SummaryQuery;
use icecore_store::{Claimed, ContentVersion, Error as StoreError};
use serde::Serialize;

use crate::checkpoint::Checkpoint;
use crate::compact::Compacted;
use crate::curate::Curated;
use crate::distil::Distilled;
use crate::log::Noticed;
use crate::rollup::{Asking, Outlook, Rolled, Watch, Wish};
use crate::{ATTEMPTS, Error, Memory, Result};

/// How many bytes of an archive's end are searched for what this run moved there.
const TAIL_BYTES: u64 = 1024 * 1024;
/// From this many new events on, all pages are rebuilt instead of single ones.
const MANY: usize = 2_000;

/// The result of a consolidation.
#[derive(Debug, Serialize)]
pub struct Consolidated {
    pub at: Moment,
    /// Log lines that were missing from the ledger.
    pub noticed: Noticed,
    /// Events that were extracted.
    pub distilled: Distilled,
    /// Changes of pages and memory files.
    pub curated: Curated,
    /// What was moved out of the ledger.
    pub compacted: Compacted,
    /// What the checks found; empty if everything is in order.
    pub findings: Vec<String>,
    /// The path of the report.
    pub report: String,
}

/// What a consolidation would do.
#[derive(Debug, Serialize)]
pub struct NightOutlook {
    /// Sessions and logs with something new.
    pub to_distil: usize,
    /// Events that are not on pages yet.
    pub new_events: usize,
    /// Pages and memory files with manual edits.
    pub edited: Vec<String>,
    /// Summaries that would be made.
    pub rollup: Outlook,
    /// What would be moved out of the ledger.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compaction: Option<Compacted>,
    /// Whether everything would be verified.
    pub full_check: bool,
}

fn path(text: &str) -> Result<DocPath> {
    Ok(text.parse().map_err(StoreError::Path)?)
}

impl Memory {
    pub(crate) async fn claim_night(&self) -> Result<Claimed> {
        self.store.claim("consolidation").await?.ok_or_else(|| {
            Error::Busy("another run is working on this memory; try again when it is done".into())
        })
    }

    /// Fails if another run took over the lease meanwhile. Appends to the ledger are safe without
    /// it, since they name their position; this protects files that would be overwritten, or work
    /// that would be done twice.
    pub(crate) async fn still_alone(&self, alone: &Claimed) -> Result<()> {
        if alone.is_held().await? {
            return Ok(());
        }
        Err(Error::Busy("this run was suspended for so long that another run may have taken over; try again when that is done".into()))
    }

    /// The number of lines in the ledger.
    pub(crate) async fn ledger_lines(&self) -> Result<usize> {
        let last = self
            .store
            .events(&EventQuery { limit: Some(1), ..EventQuery::everything() })
            .await?
            .entries
            .pop();
        Ok(last.map_or(0, |entry| entry.line))
    }

    /// Whether the ledger is so large that it is compacted whatever the day.
    async fn is_crowded(&self, checkpoint: &Checkpoint) -> Result<bool> {
        let (lines, most) = (self.ledger_lines().await?, self.policy.limits().most);
        // A ledger that could not be made smaller the last time is tried again only after it has
        // grown considerably.
        let settled = checkpoint.settled_lines.map_or(0, |lines| lines + lines / 10 + most / 3);
        Ok(lines > most.max(settled))
    }

    /// What a consolidation would do now.
    pub async fn consolidation_outlook(&self, has_model: bool) -> Result<NightOutlook> {
        let checkpoint = self.checkpoint().await?;
        let due = self.due_jobs().await?;
        let is_due = |job: Job| due.iter().any(|occurrence| occurrence.job == job);
        let new = EventQuery { after: checkpoint.last_event(), ..EventQuery::everything() };
        let compaction = if is_due(Job::Compact) || self.is_crowded(&checkpoint).await? {
            Some(self.compaction_outlook(false).await?)
        } else if is_due(Job::Prune) {
            Some(self.compaction_outlook(true).await?)
        } else {
            None
        };
        Ok(NightOutlook {
            to_distil: self.undistilled().await?,
            new_events: self.store.events(&new).await?.entries.len(),
            edited: self.edited().await?,
            rollup: self.outlook(&Wish::default(), has_model).await?,
            compaction,
            full_check: is_due(Job::Check),
        })
    }

    /// Extracts events from what was recorded and logged since the checkpoint, without the other
    /// steps, so that the next session knows what this one decided.
    pub async fn learn_now(
        &self,
        asking: Option<&Asking<'_>>,
        watch: Watch<'_>,
    ) -> Result<Distilled> {
        let alone = self.claim_night().await?;
        if self.looks_back().await? {
            return Ok(Distilled::default());
        }
        let mut checkpoint = self.checkpoint().await?;
        let distilled = self.distil(&mut checkpoint, asking, watch).await?;
        self.still_alone(&alone).await?;
        self.keep_checkpoint(&checkpoint).await?;
        Ok(distilled)
    }

    /// Runs a consolidation; `due` are the other jobs that are due.
    pub(crate) async fn night(
        &self,
        due: &[Occurrence],
        asking: Option<&Asking<'_>>,
        watch: Watch<'_>,
    ) -> Result<(Consolidated, Rolled)> {
        self.finish_forgetting(asking, watch).await?;
        let alone = self.claim_night().await?;
        if self.looks_back().await? {
            return Err(Error::Nothing(
                "the ledger has events after that moment; consolidation works only in the present, without --now"
                    .into(),
            ));
        }
        let now = self.now();
        let is_due = |job: Job| due.iter().any(|occurrence| occurrence.job == job);
        let mut curated = Curated::default();
        if let Err(error) = self.take_all_waiting().await {
            curated.complaints.push(format!("captured notes could not be imported: {error}"));
        }
        if self.history.available().await.is_ok() {
            // A snapshot before the work (L16). Without git there is none, and the work is done
            // anyway.
            let _ = self
                .keep_state(&format!("before consolidation {}", now.day()), &mut curated.secrets)
                .await;
        }
        let mut checkpoint = self.checkpoint().await?;
        let since = checkpoint.last_run();
        let noticed = self.notice().await;
        let touched = self.adopt_edits(&mut curated).await?;
        let distilled = self.distil(&mut checkpoint, asking, watch).await?;
        self.still_alone(&alone).await?;

        let new = self
            .store
            .events(&EventQuery { after: checkpoint.last_event(), ..EventQuery::everything() })
            .await?
            .entries;
        let events: Vec<_> = new.iter().map(|entry| entry.event.clone()).collect();
        if new.len() > MANY || is_due(Job::Check) {
            self.rebuild_views(&mut curated).await?;
        } else {
            self.update_views(&events, touched.clone(), &mut curated).await?;
        }
        let known: BTreeSet<EventId> = events.iter().map(|event| event.id).collect();
        let rolled = self.roll(&Wish::default(), asking, watch).await?;
        self.still_alone(&alone).await?;

        // Pages and memories contain by now what compaction moves out.
        let mut findings = Vec::new();
        let mut compacted = Compacted::default();
        let crowded = self.is_crowded(&checkpoint).await?;
        if is_due(Job::Compact) || is_due(Job::Prune) || crowded {
            let done = if is_due(Job::Compact) || crowded {
                self.compact_at(now).await
            } else {
                self.prune_at(now).await
            };
            match done {
                Ok(done) => compacted = done,
                // A damaged ledger is not changed; the other steps run, and the report says so.
                Err(Error::Damaged(why)) => findings.push(why),
                Err(other) => return Err(other),
            }
            checkpoint.settled_lines = compacted.over.as_ref().map(|_| compacted.after);
            // The event of the checkpoint may have been moved to an archive.
            checkpoint.last_processed_event_id = self.checkpoint().await?.last_processed_event_id;
        }
        let (new, left, moved) = self.taken_up(&checkpoint, since, now).await?;
        let events: Vec<_> = new.iter().chain(&left).map(|entry| entry.event.clone()).collect();
        let since_then: Vec<_> =
            events.iter().filter(|event| !known.contains(&event.id)).cloned().collect();
        if !since_then.is_empty() {
            self.update_views(&since_then, BTreeSet::new(), &mut curated).await?;
        }
        self.refresh_loops().await?;
        findings.extend(
            self.check_night(
                &new.iter().map(|entry| entry.event.id).collect::<Vec<_>>(),
                is_due(Job::Check),
            )
            .await?,
        );
        if is_due(Job::Check) && self.history.available().await.is_ok() {
            // The leases of consolidation and of forgetting are held; only forgetting rewrites
            // snapshots.
            let packed = self.history.pack().await;
            curated.complaints.extend(
                packed.err().map(|error| format!("the snapshots could not be packed: {error}")),
            );
        }

        let (pages, memories) = if events.len() > MANY {
            (curated.pages.clone(), curated.memories.clone())
        } else {
            self.views_of(&events, touched).await?
        };
        let moved: Vec<String> = moved.into_iter().chain(compacted.over.clone()).collect();
        let pressed = self.pressed_since(since, now).await?;
        let waiting: Vec<String> = rolled
            .deferred
            .iter()
            .chain(&rolled.flagged)
            .map(|one| format!("{}: {}", one.period, one.why))
            .collect();
        let complaints: Vec<String> =
            noticed.complaints.iter().chain(&curated.complaints).cloned().collect();
        let conflicts = conflict::between(&self.store.contested().await?);
        let night = Night {
            since,
            new: &[new.clone(), left.clone()].concat(),
            pieces: distilled.pieces,
            refused: &distilled.refused,
            deferred: distilled.deferred.as_deref().or(rolled.silent.as_deref()),
            pages: &pages,
            memories: &memories,
            complaints: &complaints,
            pressed: &pressed,
            waiting: &waiting,
            ages: self.ages().await?,
            moved: &moved,
            conflicts: &conflicts,
            findings: &findings,
        };
        self.still_alone(&alone).await?;
        let place = path(&format!("{}/{}.md", layout::REPORTS, now.day()))?;
        let run = report::run(now, &night);
        let mut written = Ok(());
        for _ in 0..ATTEMPTS {
            let bytes = self.store.document(&place).await?;
            let known = bytes.as_deref().map(String::from_utf8_lossy);
            let text = report::with_run(known.as_deref(), now, &run);
            // An earlier run that died right after its last step has written its report already.
            if since == Some(now) || known.as_deref() == Some(text.as_str()) {
                break;
            }
            written = self
                .store
                .swap(&place, text.as_bytes(), ContentVersion::of(bytes.as_deref()))
                .await;
            // The report was edited meanwhile.
            if !matches!(written, Err(StoreError::Moved { .. })) {
                break;
            }
        }
        written?;
        if let Some(last) = new.last() {
            checkpoint.last_processed_event_id = Some(last.event.id.to_string());
        }
        checkpoint.events_processed += events.len() as u64;
        checkpoint.last_run_ts = Some(now.to_string());
        self.keep_checkpoint(&checkpoint).await?;
        let consolidated = Consolidated {
            at: now,
            noticed,
            distilled,
            curated,
            compacted,
            findings,
            report: place.to_string(),
        };
        Ok((consolidated, rolled))
    }

    /// What is new in the ledger since the checkpoint, what this run moved out of it, and the
    /// archives it moved it to.
    async fn taken_up(
        &self,
        checkpoint: &Checkpoint,
        since: Option<Moment>,
        now: Moment,
    ) -> Result<(Vec<Entry>, Vec<Entry>, Vec<String>)> {
        let new = self
            .store
            .events(&EventQuery { after: checkpoint.last_event(), ..EventQuery::everything() })
            .await?
            .entries;
        let (mut left, mut moved) = (Vec::new(), Vec::new());
        for why in [Why::Compaction, Why::Pruning] {
            let place = archive::path(why, now.day());
            // Batches are in order of time, so this run's is the last.
            let (text, _) = self.store.tail(&place, TAIL_BYTES).await?;
            let gone = archive::left_at(&text, now);
            if !gone.is_empty() {
                moved.push(format!("{} events to {place}", gone.len()));
            }
            let recent =
                gone.into_iter().filter(|event| since.is_none_or(|since| event.ts > since));
            left.extend(recent.map(|event| Entry::fresh(event, 0)));
        }
        let here: BTreeSet<EventId> = new.iter().map(|entry| entry.event.id).collect();
        left.retain(|entry| !here.contains(&entry.event.id));
        Ok((new, left, moved))
    }

    /// How many statements are fresh, stale and hidden.
    async fn ages(&self) -> Result<(usize, usize, usize)> {
        let (today, ages) = (self.now().day(), self.policy.decay.ages());
        let active: usize = self
            .store
            .tally()
            .await?
            .iter()
            .filter(|count| count.standing == "active")
            .map(|count| count.events)
            .sum();
        let stale_from =
            today.checked_sub(jiff::Span::new().days(i32::from(ages.stale_days))).unwrap_or(today);
        let older = self
            .store
            .events(&EventQuery { verified_until: Some(stale_from), ..EventQuery::default() })
            .await?;
        let of = |wanted: Freshness| {
            older
                .entries
                .iter()
                .filter(|entry| decay::freshness(entry, today, ages) == wanted)
                .count()
        };
        let (stale, dropped) = (of(Freshness::Stale), of(Freshness::Dropped));
        Ok((active.saturating_sub(stale + dropped), stale, dropped))
    }

    /// The summaries that were made since the last run, this one included.
    async fn pressed_since(&self, since: Option<Moment>, now: Moment) -> Result<Vec<String>> {
        let (heads, _) = self.store.heads(&SummaryQuery::default()).await?;
        let new = heads
            .iter()
            .filter(|head| since.is_none_or(|since| head.recorded > since) && head.recorded <= now);
        Ok(new
            .map(|head| {
                format!("{}{}", head.period, if head.provisional { " (provisional)" } else { "" })
            })
            .collect())
    }

    /// The nightly check reads what is new; the weekly one rebuilds all derived data and checks
    /// everything (L12).
    async fn check_night(&self, new: &[EventId], full: bool) -> Result<Vec<String>> {
        if full {
            self.reindex(&|_, _| {}).await?;
            let verdict = self.verify_alone().await?;
            return Ok(verdict
                .findings
                .iter()
                .filter(|finding| finding.fails)
                .map(|finding| finding.what.clone())
                .collect());
        }
        let findings = self.check_new(new).await?;
        self.note_check(&findings).await?;
        Ok(findings
            .iter()
            .filter(|finding| finding.fails)
            .map(|finding| finding.what.clone())
            .collect())
    }

    async fn check_new(&self, new: &[EventId]) -> Result<Vec<Finding>> {
        let mut findings: Vec<Finding> = self
            .store
            .faults()
            .await?
            .into_iter()
            .map(|found| {
                Finding::failure(
                    Check::ValidLines,
                    format!("line {} {}", found.line, found.fault.what),
                )
                .on_line(found.line)
            })
            .collect();
        for id in self.store.lost().await? {
            findings.push(
                Finding::failure(
                    Check::Unchanged,
                    format!("{id} is no longer in {}", layout::LEDGER),
                )
                .about(id),
            );
        }
        let entries: Vec<Entry> = if new.is_empty() {
            Vec::new()
        } else {
            self.store.events(&EventQuery::these(new)).await?.entries
        };
        let named: BTreeSet<EventId> = entries
            .iter()
            .filter(|entry| {
                !matches!(entry.standing, icecore_domain::ledger::Standing::Retracted { .. })
            })
            .flat_map(|entry| entry.event.supersedes.iter().chain(&entry.event.related).copied())
            .collect();
        if !named.is_empty() {
            let ids: Vec<EventId> = named.into_iter().collect();
            let mut known: BTreeSet<EventId> = self
                .store
                .events(&EventQuery::these(&ids))
                .await?
                .entries
                .iter()
                .map(|entry| entry.event.id)
                .collect();
            known.extend(
                self.store.archived(&EventQuery::these(&ids)).await?.iter().map(|event| event.id),
            );
            for id in ids.iter().filter(|id| !known.contains(id)) {
                findings.push(
                    Finding::failure(
                        Check::Related,
                        format!("{id} is referred to and does not exist"),
                    )
                    .about(*id),
                );
            }
        }
        Ok(findings)
    }
}
