//! The nightly consolidation (L13, K3, K5): extracts events, updates pages, summaries and the
//! recall pack, compacts the ledger and checks the vault.
//!
//! Invariants: every step is planned from what is stored, so the next run finishes a run that died.
//! No lock is held while a model is asked; what arrives meanwhile is processed by the next run.

use std::collections::BTreeSet;

use icecore_domain::calendar::Moment;
use icecore_domain::id::EventId;
use icecore_domain::layout::{self, DocPath};
use icecore_domain::ledger::archive::{self, ArchiveReason};
use icecore_domain::ledger::decay::{self, Freshness};
use icecore_domain::ledger::integrity::{IntegrityCheck, IntegrityFinding};
use icecore_domain::ledger::query::EventQuery;
use icecore_domain::ledger::{LedgerEntry, conflict};
use icecore_domain::report::{self, NightlyRun};
use icecore_domain::schedule::{Job, Occurrence};
use icecore_domain::summary::SummaryQuery;
use icecore_store::{ContentVersion, Error as StoreError, ErrorKind as StoreErrorKind, Lease};
use serde::Serialize;

use crate::checkpoint::Checkpoint;
use crate::compact::CompactionReport;
use crate::daily_log::LogScanReport;
use crate::extraction::ExtractionReport;
use crate::page_sync::PageSyncReport;
use crate::rollup::{ModelBudget, ProgressFn, RollupPlan, RollupReport, RollupRequest};
use crate::{Error, MAX_ATTEMPTS, Memory, Result};

/// How many bytes of an archive's end are searched for what this run moved there.
const ARCHIVE_TAIL_BYTES: u64 = 1024 * 1024;
/// From this many new events on, all pages are rebuilt instead of single ones.
const MANY_EVENTS: usize = 2_000;

/// The result of a consolidation.
#[derive(Debug, Serialize)]
pub struct ConsolidationReport {
    pub at: Moment,
    /// Log lines that were missing from the ledger.
    pub noticed: LogScanReport,
    /// Events that were extracted.
    pub distilled: ExtractionReport,
    /// Changes of pages and memory files.
    pub curated: PageSyncReport,
    /// What was moved out of the ledger.
    pub compacted: CompactionReport,
    /// What the checks found; empty if everything is in order.
    pub findings: Vec<String>,
    /// The path of the report.
    pub report: String,
}

/// What a consolidation would do.
#[derive(Debug, Serialize)]
pub struct ConsolidationPreview {
    /// Sessions and logs with something new.
    pub to_distil: usize,
    /// Events that are not on pages yet.
    pub new_events: usize,
    /// Pages and memory files with manual edits.
    pub edited: Vec<String>,
    /// Summaries that would be made.
    pub rollup: RollupPlan,
    /// What would be moved out of the ledger.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compaction: Option<CompactionReport>,
    /// Whether everything would be verified.
    pub full_check: bool,
}

fn doc_path(text: &str) -> Result<DocPath> {
    Ok(text.parse().map_err(StoreError::from)?)
}

impl Memory {
    pub(crate) async fn acquire_consolidation_lease(&self) -> Result<Lease> {
        self.store.acquire_lease("consolidation").await?.ok_or_else(|| {
            Error::Busy("another run is working on this memory; try again when it is done".into())
        })
    }

    /// Fails if another run took over the lease meanwhile. Appends to the ledger are safe without
    /// it, since they name their position; this protects files that would be overwritten, or work
    /// that would be done twice.
    pub(crate) async fn ensure_lease(&self, alone: &Lease) -> Result<()> {
        if alone.is_held().await? {
            return Ok(());
        }
        Err(Error::Busy("this run was suspended for so long that another run may have taken over; try again when that is done".into()))
    }

    /// The number of lines in the ledger.
    pub(crate) async fn count_ledger_lines(&self) -> Result<usize> {
        let last = self
            .store
            .events(&EventQuery { limit: Some(1), ..EventQuery::all() })
            .await?
            .entries
            .pop();
        Ok(last.map_or(0, |entry| entry.line))
    }

    /// Whether the ledger is so large that it is compacted whatever the day.
    async fn needs_compaction(&self, checkpoint: &Checkpoint) -> Result<bool> {
        let (lines, most) =
            (self.count_ledger_lines().await?, self.policy.ledger_limits().max_events);
        // A ledger that could not be made smaller the last time is tried again only after it has
        // grown considerably.
        let settled = checkpoint.settled_lines.map_or(0, |lines| lines + lines / 10 + most / 3);
        Ok(lines > most.max(settled))
    }

    /// What a consolidation would do now.
    pub async fn preview_consolidation(&self, has_model: bool) -> Result<ConsolidationPreview> {
        let checkpoint = self.load_checkpoint().await?;
        let due = self.list_due_jobs().await?;
        let is_due = |job: Job| due.iter().any(|occurrence| occurrence.job == job);
        let new = EventQuery { after: checkpoint.last_event(), ..EventQuery::all() };
        let compaction = if is_due(Job::Compact) || self.needs_compaction(&checkpoint).await? {
            Some(self.preview_compaction(false).await?)
        } else if is_due(Job::Prune) {
            Some(self.preview_compaction(true).await?)
        } else {
            None
        };
        Ok(ConsolidationPreview {
            to_distil: self.pending_extractions().await?,
            new_events: self.store.events(&new).await?.entries.len(),
            edited: self.edited_files().await?,
            rollup: self.plan_rollup(&RollupRequest::default(), has_model).await?,
            compaction,
            full_check: is_due(Job::Check),
        })
    }

    /// Extracts events from what was recorded and logged since the checkpoint, without the other
    /// steps, so that the next session knows what this one decided.
    pub async fn extract_new_events(
        &self,
        budget: Option<&ModelBudget<'_>>,
        progress: ProgressFn<'_>,
    ) -> Result<ExtractionReport> {
        let alone = self.acquire_consolidation_lease().await?;
        if self.is_looking_back().await? {
            return Ok(ExtractionReport::default());
        }
        let mut checkpoint = self.load_checkpoint().await?;
        let distilled = self.run_extraction(&mut checkpoint, budget, progress).await?;
        self.ensure_lease(&alone).await?;
        self.save_checkpoint(&checkpoint).await?;
        Ok(distilled)
    }

    /// Runs a consolidation; `due` are the other jobs that are due.
    pub(crate) async fn run_consolidation(
        &self,
        due: &[Occurrence],
        budget: Option<&ModelBudget<'_>>,
        progress: ProgressFn<'_>,
    ) -> Result<(ConsolidationReport, RollupReport)> {
        self.finish_interrupted_forget(budget, progress).await?;
        let alone = self.acquire_consolidation_lease().await?;
        if self.is_looking_back().await? {
            return Err(Error::NotFound(
                "the ledger has events after that moment; consolidation works only in the present, without --now"
                    .into(),
            ));
        }
        let now = self.now();
        let is_due = |job: Job| due.iter().any(|occurrence| occurrence.job == job);
        let mut curated = PageSyncReport::default();
        if let Err(error) = self.flush_all_pending().await {
            curated.complaints.push(format!("captured notes could not be imported: {error}"));
        }
        if self.history.check_available().await.is_ok() {
            // A snapshot before the work (L16). Without git there is none, and the work is done
            // anyway.
            let _ = self
                .snapshot_without_secrets(
                    &format!("before consolidation {}", now.day()),
                    &mut curated.secrets,
                )
                .await;
        }
        let mut checkpoint = self.load_checkpoint().await?;
        let since = checkpoint.last_run();
        let noticed = self.scan_recent_logs().await;
        let touched = self.import_edits(&mut curated).await?;
        let distilled = self.run_extraction(&mut checkpoint, budget, progress).await?;
        self.ensure_lease(&alone).await?;

        let new = self
            .store
            .events(&EventQuery { after: checkpoint.last_event(), ..EventQuery::all() })
            .await?
            .entries;
        let events: Vec<_> = new.iter().map(|entry| entry.event.clone()).collect();
        if new.len() > MANY_EVENTS || is_due(Job::Check) {
            self.rebuild_pages(&mut curated).await?;
        } else {
            self.update_views(&events, touched.clone(), &mut curated).await?;
        }
        let known: BTreeSet<EventId> = events.iter().map(|event| event.id).collect();
        let rolled = self.run_rollup(&RollupRequest::default(), budget, progress).await?;
        self.ensure_lease(&alone).await?;

        // Pages and memories contain by now what compaction moves out.
        let mut findings = Vec::new();
        let mut compacted = CompactionReport::default();
        let crowded = self.needs_compaction(&checkpoint).await?;
        if is_due(Job::Compact) || is_due(Job::Prune) || crowded {
            let done = if is_due(Job::Compact) || crowded {
                self.compact_ledger_at(now).await
            } else {
                self.prune_ledger_at(now).await
            };
            match done {
                Ok(done) => compacted = done,
                // A damaged ledger is not changed; the other steps run, and the report says so.
                Err(Error::Damaged(why)) => findings.push(why),
                Err(other) => return Err(other),
            }
            checkpoint.settled_lines = compacted.over.as_ref().map(|_| compacted.after);
            // The event of the checkpoint may have been moved to an archive.
            checkpoint.last_processed_event_id =
                self.load_checkpoint().await?.last_processed_event_id;
        }
        let (new, left, moved) =
            self.collect_changes_since_checkpoint(&checkpoint, since, now).await?;
        let events: Vec<_> = new.iter().chain(&left).map(|entry| entry.event.clone()).collect();
        let since_then: Vec<_> =
            events.iter().filter(|event| !known.contains(&event.id)).cloned().collect();
        if !since_then.is_empty() {
            self.update_views(&since_then, BTreeSet::new(), &mut curated).await?;
        }
        self.refresh_open_loops().await?;
        findings.extend(
            self.run_nightly_check(
                &new.iter().map(|entry| entry.event.id).collect::<Vec<_>>(),
                is_due(Job::Check),
            )
            .await?,
        );
        if is_due(Job::Check) && self.history.check_available().await.is_ok() {
            // The leases of consolidation and of forgetting are held; only forgetting rewrites
            // snapshots.
            let packed = self.history.pack().await;
            curated.complaints.extend(
                packed.err().map(|error| format!("the snapshots could not be packed: {error}")),
            );
        }

        let (pages, memories) = if events.len() > MANY_EVENTS {
            (curated.pages.clone(), curated.memories.clone())
        } else {
            self.files_showing(&events, touched).await?
        };
        let moved: Vec<String> = moved.into_iter().chain(compacted.over.clone()).collect();
        let pressed = self.list_summaries_since(since, now).await?;
        let waiting: Vec<String> = rolled
            .deferred
            .iter()
            .chain(&rolled.flagged)
            .map(|one| format!("{}: {}", one.period, one.why))
            .collect();
        let complaints: Vec<String> =
            noticed.complaints.iter().chain(&curated.complaints).cloned().collect();
        let conflicts = conflict::conflicting_claims(&self.store.contested_claims().await?);
        let night = NightlyRun {
            since,
            new: &[new.clone(), left.clone()].concat(),
            pieces: distilled.pieces,
            refused: &distilled.refused,
            deferred: distilled.deferred.as_deref().or(rolled.silent.as_deref()),
            pages: &pages,
            memories: &memories,
            complaints: &complaints,
            summarized: &pressed,
            waiting: &waiting,
            ages: self.count_freshness().await?,
            moved: &moved,
            conflicts: &conflicts,
            findings: &findings,
        };
        self.ensure_lease(&alone).await?;
        let place = doc_path(&format!("{}/{}.md", layout::REPORTS, now.day()))?;
        let run = report::format_run(now, &night);
        let mut written = Ok(());
        for _ in 0..MAX_ATTEMPTS {
            let bytes = self.store.document(&place).await?;
            let known = bytes.as_deref().map(String::from_utf8_lossy);
            let text = report::upsert_run(known.as_deref(), now, &run);
            // An earlier run that died right after its last step has written its report already.
            if since == Some(now) || known.as_deref() == Some(text.as_str()) {
                break;
            }
            written = self
                .store
                .compare_and_swap(&place, text.as_bytes(), ContentVersion::of(bytes.as_deref()))
                .await;
            // The report was edited meanwhile.
            if !matches!(written, Err(StoreError { kind: StoreErrorKind::Conflict, .. })) {
                break;
            }
        }
        written?;
        if let Some(last) = new.last() {
            checkpoint.last_processed_event_id = Some(last.event.id.to_string());
        }
        checkpoint.events_processed += events.len() as u64;
        checkpoint.last_run_ts = Some(now.to_string());
        self.save_checkpoint(&checkpoint).await?;
        let consolidated = ConsolidationReport {
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
    async fn collect_changes_since_checkpoint(
        &self,
        checkpoint: &Checkpoint,
        since: Option<Moment>,
        now: Moment,
    ) -> Result<(Vec<LedgerEntry>, Vec<LedgerEntry>, Vec<String>)> {
        let new = self
            .store
            .events(&EventQuery { after: checkpoint.last_event(), ..EventQuery::all() })
            .await?
            .entries;
        let (mut left, mut moved) = (Vec::new(), Vec::new());
        for why in [ArchiveReason::Compaction, ArchiveReason::Pruning] {
            let place = archive::archive_path(why, now.day());
            // Batches are in order of time, so this run's is the last.
            let (text, _) = self.store.read_tail(&place, ARCHIVE_TAIL_BYTES).await?;
            let gone = archive::events_archived_at(&text, now);
            if !gone.is_empty() {
                moved.push(format!("{} events to {place}", gone.len()));
            }
            let recent =
                gone.into_iter().filter(|event| since.is_none_or(|since| event.ts > since));
            left.extend(recent.map(|event| LedgerEntry::from_event(event, 0)));
        }
        let here: BTreeSet<EventId> = new.iter().map(|entry| entry.event.id).collect();
        left.retain(|entry| !here.contains(&entry.event.id));
        Ok((new, left, moved))
    }

    /// How many statements are fresh, stale and hidden.
    async fn count_freshness(&self) -> Result<(usize, usize, usize)> {
        let (today, ages) = (self.now().day(), self.policy.decay.ages());
        let active: usize = self
            .store
            .count_statements()
            .await?
            .iter()
            .filter(|count| count.state == "active")
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
    async fn list_summaries_since(
        &self,
        since: Option<Moment>,
        now: Moment,
    ) -> Result<Vec<String>> {
        let (heads, _) = self.store.summary_heads(&SummaryQuery::default()).await?;
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
    async fn run_nightly_check(&self, new: &[EventId], full: bool) -> Result<Vec<String>> {
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
        let findings = self.check_new_events(new).await?;
        self.record_nightly_check(&findings).await?;
        Ok(findings
            .iter()
            .filter(|finding| finding.fails)
            .map(|finding| finding.what.clone())
            .collect())
    }

    async fn check_new_events(&self, new: &[EventId]) -> Result<Vec<IntegrityFinding>> {
        let mut findings: Vec<IntegrityFinding> = self
            .store
            .line_faults()
            .await?
            .into_iter()
            .map(|found| {
                IntegrityFinding::failure(
                    IntegrityCheck::ValidLines,
                    format!("line {} {}", found.line, found.fault.what),
                )
                .with_line(found.line)
            })
            .collect();
        for id in self.store.lost_events().await? {
            findings.push(
                IntegrityFinding::failure(
                    IntegrityCheck::Unchanged,
                    format!("{id} is no longer in {}", layout::LEDGER),
                )
                .with_event(id),
            );
        }
        let entries: Vec<LedgerEntry> = if new.is_empty() {
            Vec::new()
        } else {
            self.store.events(&EventQuery::for_ids(new)).await?.entries
        };
        let named: BTreeSet<EventId> = entries
            .iter()
            .filter(|entry| {
                !matches!(entry.state, icecore_domain::ledger::EventState::Retracted { .. })
            })
            .flat_map(|entry| entry.event.supersedes.iter().chain(&entry.event.related).copied())
            .collect();
        if !named.is_empty() {
            let ids: Vec<EventId> = named.into_iter().collect();
            let mut known: BTreeSet<EventId> = self
                .store
                .events(&EventQuery::for_ids(&ids))
                .await?
                .entries
                .iter()
                .map(|entry| entry.event.id)
                .collect();
            known.extend(
                self.store
                    .archived_events(&EventQuery::for_ids(&ids))
                    .await?
                    .iter()
                    .map(|event| event.id),
            );
            for id in ids.iter().filter(|id| !known.contains(id)) {
                findings.push(
                    IntegrityFinding::failure(
                        IntegrityCheck::Related,
                        format!("{id} is referred to and does not exist"),
                    )
                    .with_event(*id),
                );
            }
        }
        Ok(findings)
    }
}
