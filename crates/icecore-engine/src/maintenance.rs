//! Maintenance of a vault: verifies it, repairs it and rebuilds derived data (L10, L12).
//!
//! Invariants: a repair never loses an event that any snapshot still has, and never restores
//! forgotten text. Checks run concurrently with other commands; a failure is confirmed under the
//! exclusive lease before it is reported.

use std::collections::{BTreeSet, HashMap, HashSet};

use icecore_domain::calendar::{Moment, days_between};
use icecore_domain::cascade::coverage;
use icecore_domain::event::Event;
use icecore_domain::format::line;
use icecore_domain::hash::Hash;
use icecore_domain::id::EventId;
use icecore_domain::layout::{self, DocPath};
use icecore_domain::ledger::integrity::{self, IntegrityCheck, IntegrityFinding, LedgerPrefix};
use icecore_domain::ledger::query::EventQuery;
use icecore_domain::ledger::{self, Ledger};
use icecore_domain::summary::{Summary, SummaryHead};
use icecore_domain::undo;
use icecore_store::{Lease, LedgerText, Progress, Snapshot};
use serde::Serialize;
use serde_json::{Value, json};

use crate::daily_log::LogScanReport;
use crate::forget::{ForgetRequest, HISTORY_UNFINISHED_WARNING};
use crate::machine_merge::MERGE_UNFINISHED_WARNING;
use crate::status::{IntegrityStatus, count_with_noun};
use crate::{Memory, Result};

/// How many snapshots back lost lines are searched. The next command already notices lost lines, so
/// a few are enough.
const MAX_SEARCHED_SNAPSHOTS: usize = 20;
/// The prefix of the notes of snapshots that were taken before an operation, in whatever state the
/// vault was.
const BEFORE_PREFIX: &str = "before ";
/// How often the exclusive lease is tried: for about half a second, and for half a minute.
const SHORT_LEASE_TRIES: usize = 5;
const LONG_LEASE_TRIES: usize = 300;

/// The result of `verify`.
#[derive(Debug, Serialize)]
pub struct VerifyReport {
    pub checked_at: Moment,
    pub ok: bool,
    pub events: usize,
    pub bytes: usize,
    /// Every check, and whether it passed.
    pub checks: Vec<(IntegrityCheck, bool)>,
    pub findings: Vec<IntegrityFinding>,
    /// Repairs made while opening the vault.
    pub mended: Vec<String>,
    /// Log lines that were missing from the ledger.
    pub noticed: LogScanReport,
}

/// The result of `doctor --fix`.
#[derive(Debug, Serialize)]
pub struct RepairReport {
    pub done: Vec<String>,
    pub verdict: VerifyReport,
}

/// What earlier verifications recorded.
#[derive(Debug, Default)]
struct IntegrityRecord {
    prefix: Option<LedgerPrefix>,
    /// What an unfinished compaction was about to write.
    next: Option<LedgerPrefix>,
    gaps: BTreeSet<EventId>,
    at: Option<Moment>,
    failures: usize,
    unreadable: bool,
}

/// The result of the checks, and the files they read.
struct Examination {
    verdict: VerifyReport,
    text: LedgerText,
    report: Option<Vec<u8>>,
    known: IntegrityRecord,
}

/// Whether a snapshot was taken before an operation, possibly of a damaged vault, rather than as a
/// state to return to.
fn is_before_snapshot(snapshot: &Snapshot) -> bool {
    snapshot.note.starts_with(BEFORE_PREFIX)
}

fn doc_path(text: &str) -> Result<DocPath> {
    Ok(text.parse().map_err(icecore_store::Error::from)?)
}

impl Memory {
    /// Checks that every record is readable and covered by summaries.
    async fn check_coverage(&self) -> Result<Vec<IntegrityFinding>> {
        let mut findings: Vec<IntegrityFinding> = self
            .store
            .bad_records()
            .await?
            .into_iter()
            .map(|(file, bad)| {
                IntegrityFinding::failure(
                    IntegrityCheck::Coverage,
                    format!(
                        "{file}:{} {}. Correct the line by hand, or remove it",
                        bad.line, bad.what
                    ),
                )
            })
            .collect();
        let text = self.store.document(&doc_path(layout::SUMMARIES)?).await?.unwrap_or_default();
        for (at, line) in text
            .split(|&byte| byte == b'\n')
            .enumerate()
            .filter(|(_, line)| !line.trim_ascii().is_empty())
        {
            if let Err(what) = Summary::parse_line(line.trim_ascii()) {
                findings.push(IntegrityFinding::failure(
                    IntegrityCheck::Coverage,
                    format!(
                        "{}:{} {what}. Correct the line by hand, or remove it",
                        layout::SUMMARIES,
                        at + 1
                    ),
                ));
            }
        }
        let mut known = self.planning_input(false).await?;
        // Ignores the clock: sessions in the future were captured too.
        known.sessions = self.store.sessions(None).await?;
        let heads: Vec<SummaryHead> = known.heads.all().cloned().collect();
        let mut covered = coverage::check_coverage(&known, &heads);
        if self.may_have_records_elsewhere().await? {
            for finding in covered.iter_mut().filter(|finding| finding.fails) {
                finding.fails = false;
                finding
                    .what
                    .push_str("; messages are not in git here, so these may be on another machine");
            }
        }
        findings.extend(covered);
        Ok(findings)
    }

    /// Whether another machine may have messages that are missing here; summaries are on both.
    async fn may_have_records_elsewhere(&self) -> Result<bool> {
        if !self.history.is_shared().await {
            return Ok(false);
        }
        let ignored = self.store.document(&doc_path(".gitignore")?).await?.unwrap_or_default();
        Ok(String::from_utf8_lossy(&ignored)
            .lines()
            .any(|line| line.trim().trim_matches('/') == layout::MESSAGES))
    }

    /// Runs every check and records the result. While another command changes several files, the
    /// state in between looks like damage, so a failed check is repeated under the exclusive lease,
    /// and a newer result is not overwritten.
    pub async fn verify(&self) -> Result<VerifyReport> {
        let mut seen = self.examine().await?;
        // A command at a past moment (`--now`) records nothing.
        if self.is_looking_back().await? {
            return Ok(seen.verdict);
        }
        let Some(_alone) = self
            .wait_for_exclusive_lease(if seen.verdict.ok {
                SHORT_LEASE_TRIES
            } else {
                LONG_LEASE_TRIES
            })
            .await?
        else {
            // A concurrent command records its own result.
            if seen.verdict.ok {
                return Ok(seen.verdict);
            }
            let what = "another command is changing this memory, so this may not be damage; try again when it is done";
            return Err(crate::Error::Busy(what.into()));
        };
        if !seen.verdict.ok || !self.is_unchanged(&seen).await? {
            seen = self.examine().await?;
        }
        self.record_verdict(&seen.verdict, &seen.text, &seen.known).await?;
        Ok(seen.verdict)
    }

    /// Verifies while the caller holds the exclusive lease.
    pub(crate) async fn verify_alone(&self) -> Result<VerifyReport> {
        let seen = self.examine().await?;
        if !self.is_looking_back().await? {
            self.record_verdict(&seen.verdict, &seen.text, &seen.known).await?;
        }
        Ok(seen.verdict)
    }

    /// Waits for the exclusive lease; each try takes a tenth of a second while another process has
    /// it.
    async fn wait_for_exclusive_lease(&self, tries: usize) -> Result<Option<Lease>> {
        for _ in 0..tries {
            match self.acquire_consolidation_lease().await {
                Ok(claimed) => return Ok(Some(claimed)),
                Err(crate::Error::Busy(_)) => {}
                // Where nothing can be written, nothing can be changed concurrently.
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// Whether the files are still as they were examined; the ledger may have grown.
    async fn is_unchanged(&self, seen: &Examination) -> Result<bool> {
        let report = self.store.document(&doc_path(layout::INTEGRITY)?).await?;
        Ok(report == seen.report && self.store.ledger().await?.bytes.starts_with(&seen.text.bytes))
    }

    /// Runs every check.
    async fn examine(&self) -> Result<Examination> {
        self.refresh_tombstones().await?;
        let noticed = self.scan_all_logs().await?;
        let mut findings = self.store.inspect().await?;
        let report = self.store.document(&doc_path(layout::INTEGRITY)?).await?;
        let text = self.store.ledger().await?;
        let known = parse_integrity(report.as_deref());
        let ledger = Ledger::parse(&text.bytes, None);
        let archived = self.load_archived_ids().await?;
        findings.extend(integrity::check_ledger(&ledger, &archived, &known.gaps));
        let holds = |prefix: &LedgerPrefix| {
            prefix.is_prefix_of(&text.bytes)
                || known.next.is_some_and(|next| next.is_prefix_of(&text.bytes))
        };
        if let Some(prefix) = known.prefix.filter(|prefix| !holds(prefix)) {
            let what = format!(
                "the first {} bytes of {}, verified on {}, were changed. `icecore doctor --fix` brings back what a snapshot still has and accepts the rest as it is",
                prefix.bytes,
                layout::LEDGER,
                known.at.map_or("an earlier day".into(), |at| at.day().to_string())
            );
            findings.push(IntegrityFinding::failure(IntegrityCheck::Unchanged, what));
        }
        let mut lost: Vec<EventId> = self.find_missing_events(&ledger, &archived).await?;
        if let Some(then) = self.load_last_good_ledger(&text.bytes).await {
            let (gone, changed) =
                integrity::compare_with_snapshot(&ledger, &undo::events_by_id(&then), &archived);
            lost.extend(gone);
            findings.extend(changed);
        }
        lost.sort();
        lost.dedup();
        if let (Some(first), Some(last)) = (lost.first(), lost.last()) {
            let which = if lost.len() == 1 {
                format!("{first} was")
            } else {
                format!("{} from {first} to {last} were", count_with_noun(lost.len(), "event"))
            };
            let what = format!(
                "{which} in {} and {} missing now; `icecore doctor --fix` restores what a snapshot still has",
                layout::LEDGER,
                if lost.len() == 1 { "is" } else { "are" }
            );
            findings.push(
                IntegrityFinding::failure(IntegrityCheck::Unchanged, what).with_event(*first),
            );
        }
        if self.tombstones().unfinished_tombstones().next().is_some() {
            let what = "forgetting was interrupted; run `icecore forget --unfinished` to finish it";
            findings.push(IntegrityFinding::failure(IntegrityCheck::Unchanged, what));
        } else if self.has_unfinished_history().await? {
            findings.push(IntegrityFinding::failure(
                IntegrityCheck::Unchanged,
                HISTORY_UNFINISHED_WARNING,
            ));
        }
        let carried_in = self.list_unapplied_tombstones().await?.len();
        if carried_in > 0 {
            let what = "another machine has forgotten text that may still be here; run `icecore forget --unfinished` to remove it";
            findings.push(IntegrityFinding::failure(IntegrityCheck::Unchanged, what));
        } else if let Some(file) = self.find_reappeared_files().await?.first() {
            let what = format!(
                "{file} contains forgotten text again; run `icecore forget --unfinished` to remove it"
            );
            findings.push(IntegrityFinding::failure(IntegrityCheck::Unchanged, what));
        }
        if self.is_merging().await? {
            findings
                .push(IntegrityFinding::failure(IntegrityCheck::Files, MERGE_UNFINISHED_WARNING));
        }
        if self.find_unsettled_merge().await?.is_some() {
            let what = "two machines were merged with git alone; run `icecore doctor --fix` to finish, and use `icecore merge` next time";
            findings.push(IntegrityFinding::failure(IntegrityCheck::Files, what));
        }
        findings.extend(
            self.history
                .setup_hints()
                .await
                .into_iter()
                .map(|what| IntegrityFinding::warning(IntegrityCheck::Files, what)),
        );
        if known.unreadable {
            findings.push(IntegrityFinding::warning(
                IntegrityCheck::Unchanged,
                format!("{} could not be read and was rebuilt", layout::INTEGRITY),
            ));
        }
        findings.extend(self.check_open_loops(&ledger).await?);
        findings.extend(self.check_checkpoint(&ledger, &archived).await?);
        findings.extend(self.check_coverage().await?);
        for document in self
            .store
            .documents("")
            .await?
            .iter()
            .filter(|document| document.is_vault_file() && document.is_sync_leftover())
        {
            let what = format!(
                "{document} looks like a conflict copy of a sync or merge program; move over what is missing and delete it"
            );
            // In `memory/` such a copy is an error; a page may have such a name on purpose.
            let of_memory = document.as_str().starts_with("memory/");
            findings.push(if of_memory {
                IntegrityFinding::failure(IntegrityCheck::Files, what)
            } else {
                IntegrityFinding::warning(IntegrityCheck::Files, what)
            });
        }
        findings.sort_by_key(|finding| (finding.check, !finding.fails, finding.line));
        let checks: Vec<(IntegrityCheck, bool)> = IntegrityCheck::ALL
            .iter()
            .map(|&check| {
                (check, !findings.iter().any(|finding| finding.check == check && finding.fails))
            })
            .collect();
        let ok = checks.iter().all(|(_, passed)| *passed);
        let verdict = VerifyReport {
            checked_at: self.now(),
            ok,
            events: ledger.entries().len(),
            bytes: text.bytes.len(),
            checks,
            findings,
            mended: self.store.opening_repairs().await,
            noticed,
        };
        Ok(Examination { verdict, text, report, known })
    }

    /// Repairs what can be repaired without losing anything: finishes interrupted work, moves
    /// broken lines to quarantine, rebuilds derived data.
    pub async fn repair(&self) -> Result<RepairReport> {
        self.refresh_tombstones().await?;
        let mut done = self.store.opening_repairs().await;
        if let Ok(repaired) = self.history.repair().await {
            done.extend(repaired);
        }
        if self.is_merging().await? {
            // Events that look lost may have new ids after the merge; restoring them first would
            // duplicate them.
            self.merge_from(None, None, &|_, _, _| {}).await?;
            done.push("finished an interrupted merge".into());
        }
        {
            let _alone = self.acquire_consolidation_lease().await?;
            // A snapshot to return to, if one can be taken.
            if let Ok(Some(snapshot)) = self
                .snapshot_without_secrets(
                    &format!("{BEFORE_PREFIX}doctor --fix"),
                    &mut crate::SecretCounts::new(),
                )
                .await
            {
                done.push(format!(
                    "saved the previous state as snapshot {}",
                    &snapshot.id[..8.min(snapshot.id.len())]
                ));
            }
            done.extend(self.settle_foreign_merge().await?);
            done.extend(self.restore_missing_events().await?);
            let inspected = self.store.inspect().await?;
            if inspected.iter().any(|finding| finding.fails) {
                let events = self.store.rebuild(&|_, _| {}).await?;
                done.push(format!("rebuilt the index from {}", count_with_noun(events, "event")));
            }
            done.extend(self.repair_checkpoint().await?);
            done.extend(self.accept_gaps().await?);
        }
        if self.tombstones().unfinished_tombstones().next().is_some()
            || self.has_unfinished_history().await?
        {
            self.forget(
                &ForgetRequest { by: "doctor --fix".into(), ..ForgetRequest::default() },
                None,
                &|_, _, _| {},
            )
            .await?;
            done.push("finished an interrupted forgetting".into());
        }
        let verdict = self.verify().await?;
        Ok(RepairReport { done, verdict })
    }

    /// Rebuilds all derived data: the index and `open-loops.json`.
    pub async fn reindex(&self, progress: Progress<'_>) -> Result<(usize, usize, LogScanReport)> {
        let noticed = self.scan_all_logs().await?;
        let events = self.store.rebuild(progress).await?;
        let ledger = Ledger::parse(&self.store.ledger().await?.bytes, None);
        let open = ledger.open_loops().len();
        self.write_open_loops(&ledger).await?;
        Ok((events, open, noticed))
    }

    /// Updates `open-loops.json` from the store's index.
    pub async fn refresh_open_loops(&self) -> Result<()> {
        let open = self.store.events(&EventQuery::open_loops()).await?.entries;
        let mut open: Vec<_> = open.iter().map(|entry| (entry.event.ts, entry.event.id)).collect();
        open.sort();
        self.put_open_loops(open.into_iter().map(|(_, id)| id).collect()).await
    }

    async fn write_open_loops(&self, ledger: &Ledger) -> Result<()> {
        self.put_open_loops(ledger.open_loops().iter().map(|entry| entry.event.id).collect()).await
    }

    async fn put_open_loops(&self, open: Vec<EventId>) -> Result<()> {
        let path = doc_path(layout::OPEN_LOOPS)?;
        let text = format!("{}\n", serde_json::to_string_pretty(&open).unwrap_or_default());
        if self.store.document(&path).await?.as_deref() != Some(text.as_bytes()) {
            self.store.put(&path, text.as_bytes()).await?;
        }
        Ok(())
    }

    /// Compares `open-loops.json` with the ledger. The file is updated when the result is recorded.
    async fn check_open_loops(&self, ledger: &Ledger) -> Result<Vec<IntegrityFinding>> {
        let before = self.store.document(&doc_path(layout::OPEN_LOOPS)?).await?;
        let found = match before {
            None => None,
            Some(bytes) => match serde_json::from_slice::<Vec<String>>(&bytes) {
                Err(_) => {
                    Some(format!("{} was not a list of ids and was rebuilt", layout::OPEN_LOOPS))
                }
                // An outdated list is normal between two runs; an id that never existed is not.
                Ok(listed)
                    if listed
                        .iter()
                        .all(|id| id.parse().is_ok_and(|id| ledger.get(id).is_some())) =>
                {
                    None
                }
                Ok(_) => Some(format!(
                    "{} named events that do not exist and was rebuilt",
                    layout::OPEN_LOOPS
                )),
            },
        };
        Ok(found
            .map(|what| IntegrityFinding::failure(IntegrityCheck::OpenLoops, what))
            .into_iter()
            .collect())
    }

    async fn check_checkpoint(
        &self,
        ledger: &Ledger,
        archived: &HashSet<EventId>,
    ) -> Result<Vec<IntegrityFinding>> {
        let Some(bytes) = self.store.document(&doc_path(layout::CHECKPOINT)?).await? else {
            return Ok(Vec::new());
        };
        let say = |what: &str| {
            Ok(vec![IntegrityFinding::failure(
                IntegrityCheck::Checkpoint,
                format!("{} {what}", layout::CHECKPOINT),
            )])
        };
        let Ok(checkpoint) = serde_json::from_slice::<Value>(&bytes) else {
            return say("is not JSON");
        };
        let known = |id: EventId| ledger.get(id).is_some() || archived.contains(&id);
        match checkpoint.get("last_processed_event_id") {
            None | Some(Value::Null) => {}
            Some(Value::String(id)) => match id.parse::<EventId>() {
                Ok(id) if known(id) => {}
                _ => return say(&format!("points to {id}, which does not exist")),
            },
            Some(_) => return say("has a last_processed_event_id that is not an id"),
        }
        if let Some(at) = checkpoint.get("last_run_ts")
            && at.as_str().and_then(Moment::parse).is_none()
        {
            return say("has a last_run_ts that is not a time");
        }
        // The total of all nightly runs; an event that is processed again, after a merge or under
        // another clock, counts again.
        match checkpoint.get("events_processed") {
            None | Some(Value::Null) => Ok(Vec::new()),
            Some(count) if count.as_u64().is_some() => Ok(Vec::new()),
            Some(_) => say("has an events_processed that is not a number"),
        }
    }

    async fn repair_checkpoint(&self) -> Result<Vec<String>> {
        let ledger = Ledger::parse(&self.store.ledger().await?.bytes, None);
        if self.check_checkpoint(&ledger, &self.load_archived_ids().await?).await?.is_empty() {
            return Ok(Vec::new());
        }
        let path = doc_path(layout::CHECKPOINT)?;
        let bytes = self.store.document(&path).await?.unwrap_or_default();
        let place = self.store.quarantine(&path, 0, &bytes).await?;
        self.store.remove(&path).await?;
        Ok(vec![format!("moved {path} to {place}; the next consolidation starts a new one")])
    }

    /// Ids of events that moved to an archive and so still resolve.
    async fn load_archived_ids(&self) -> Result<HashSet<EventId>> {
        Ok(self
            .store
            .archived_events(&EventQuery::all())
            .await?
            .iter()
            .map(|event| event.id)
            .collect())
    }

    /// Ids that were used once, but are neither in the ledger nor in an archive.
    pub(crate) async fn find_missing_events(
        &self,
        ledger: &Ledger,
        archived: &HashSet<EventId>,
    ) -> Result<Vec<EventId>> {
        let mut lost = self.store.lost_events().await?;
        lost.retain(|id| ledger.get(*id).is_none() && !archived.contains(id));
        Ok(lost)
    }

    /// The ledger of a snapshot; `now` is the current one. `None` if the snapshot cannot be read.
    async fn load_ledger_at(&self, snapshot: &Snapshot, now: &[u8]) -> Option<Vec<u8>> {
        let changes = self.history.changes_since(&snapshot.id).await.ok()?;
        match changes.into_iter().find(|(path, _)| path.as_str() == layout::LEDGER) {
            // Forgotten text is not missing, and never restored.
            Some((path, then)) => self.scrub_snapshot_file(&path, then).flatten(),
            None => Some(now.to_vec()),
        }
    }

    /// The ledger of the last snapshot that was taken as a state to return to.
    async fn load_last_good_ledger(&self, now: &[u8]) -> Option<Vec<u8>> {
        let snapshots = self.history.snapshots(MAX_SEARCHED_SNAPSHOTS).await.ok()?;
        self.load_ledger_at(snapshots.iter().find(|snapshot| !is_before_snapshot(snapshot))?, now)
            .await
    }

    /// Restores events whose lines are missing from the ledger or changed, as far as a snapshot
    /// still has them.
    async fn restore_missing_events(&self) -> Result<Vec<String>> {
        let archived = self.load_archived_ids().await?;
        let LedgerText { bytes, position } = self.store.ledger().await?;
        let (mut text, mut back, mut truth) = (bytes.clone(), Vec::new(), HashMap::new());
        let snapshots = self.history.snapshots(MAX_SEARCHED_SNAPSHOTS).await.unwrap_or_default();
        let (befores, goods): (Vec<&Snapshot>, Vec<&Snapshot>) =
            snapshots.iter().partition(|snapshot| is_before_snapshot(snapshot));
        for snapshot in goods {
            let Some(then) = self.load_ledger_at(snapshot, &bytes).await else { continue };
            let newer: HashSet<EventId> = truth.keys().copied().collect();
            let (whole, found) = undo::restore_lines(&then, &text, |id| {
                archived.contains(&id) || newer.contains(&id)
            });
            if !found.is_empty() {
                text = whole;
                back.extend(found);
            }
            for (id, event) in undo::events_by_id(&then) {
                truth.entry(id).or_insert(event);
            }
        }
        // A snapshot from before a repair or an undo may be damaged; it is used only for events
        // that no other one has.
        for snapshot in befores {
            let Some(then) = self.load_ledger_at(snapshot, &bytes).await else { continue };
            let present = undo::events_by_id(&text);
            let (whole, found) = undo::restore_lines(&then, &text, |id| {
                archived.contains(&id) || present.contains_key(&id)
            });
            if !found.is_empty() {
                text = whole;
                back.extend(found);
            }
        }
        if !back.is_empty() {
            self.store.replace_ledger(&text, position).await?;
        }
        back.sort();
        let mut done: Vec<String> =
            back.iter().map(|id| format!("restored {id} from a snapshot")).collect();
        done.extend(self.quarantine_broken_lines(&truth).await?);
        Ok(done)
    }

    /// Moves lines that are not events, and second uses of an id, out of the ledger into
    /// quarantine. Readable text of a broken line is kept, and an event whose id was taken gets a
    /// new one. An id belongs to the event that `truth` assigns it to, else to the first that uses
    /// it.
    pub(crate) async fn quarantine_broken_lines(
        &self,
        truth: &HashMap<EventId, Event>,
    ) -> Result<Vec<String>> {
        let ledger_path = doc_path(layout::LEDGER)?;
        let LedgerText { bytes, position } = self.store.ledger().await?;
        let (mut kept, mut aside, mut renumbered) =
            (Vec::with_capacity(bytes.len()), Vec::new(), Vec::new());
        let mut seen: HashMap<EventId, Event> = HashMap::new();
        let is_other =
            |event: &Event| truth.get(&event.id).is_some_and(|true_one| true_one != event);
        for raw in ledger::raw_lines(&bytes, 1) {
            let parsed = line::parse_line(raw.bytes);
            let again =
                parsed.events.iter().any(|event| seen.contains_key(&event.id) || is_other(event));
            if parsed.is_sound() && !again {
                kept.extend_from_slice(raw.bytes);
                kept.push(b'\n');
                seen.extend(parsed.events.into_iter().map(|event| (event.id, event)));
                continue;
            }
            aside.push((raw.number, raw.offset as u64, raw.bytes.to_vec()));
            for event in parsed.events {
                match seen.get(&event.id) {
                    Some(first) if *first == event => {}
                    Some(_) => renumbered.push(event),
                    None if is_other(&event) => renumbered.push(event),
                    None => {
                        kept.extend_from_slice(line::format_line(&event).as_bytes());
                        seen.insert(event.id, event);
                    }
                }
            }
        }
        if aside.is_empty() {
            return Ok(Vec::new());
        }
        let mut spent: Vec<EventId> = self.load_integrity().await?.gaps.into_iter().collect();
        spent.extend(self.store.lost_events().await?);
        spent.extend(self.load_archived_ids().await?);
        let mut done = Vec::new();
        for (number, offset, bytes) in &aside {
            let place = self.store.quarantine(&ledger_path, *offset, bytes).await?;
            done.push(format!("moved line {number} of {ledger_path} to {place}"));
        }
        for event in renumbered {
            let given = seen.keys().chain(&spent).filter(|id| id.day() == event.id.day());
            let taken = given.map(|id| id.number()).max().unwrap_or(0);
            let (old, new) = (event.id, EventId::new(event.id.day(), taken + 1));
            let event = event.draft.with_id(new);
            kept.extend_from_slice(line::format_line(&event).as_bytes());
            seen.insert(new, event);
            done.push(format!("gave the second event with the id {old} the id {new}"));
        }
        self.store.replace_ledger(&kept, position).await?;
        Ok(done)
    }

    /// Accepts the ledger as it is: gaps that cannot be filled are recorded as known.
    pub(crate) async fn accept_gaps(&self) -> Result<Vec<String>> {
        let text = self.store.ledger().await?;
        let mut known = self.load_integrity().await?;
        let ledger = Ledger::parse(&text.bytes, None);
        let archived = self.load_archived_ids().await?;
        let mut missing = integrity::missing_ids(&ledger, &archived, &known.gaps);
        let lost = self.find_missing_events(&ledger, &archived).await?;
        missing
            .extend(lost.iter().filter(|id| !known.gaps.contains(id)).copied().collect::<Vec<_>>());
        missing.sort();
        missing.dedup();
        let changed = known.prefix.is_some_and(|prefix| !prefix.is_prefix_of(&text.bytes));
        let mut done = Vec::new();
        if !missing.is_empty() {
            done.push(format!(
                "recorded {} with lost lines, from {} on",
                count_with_noun(missing.len(), "id"),
                missing[0]
            ));
            known.gaps.extend(missing);
        }
        if changed {
            done.push(format!("accepted the current {}", layout::LEDGER));
        }
        if !done.is_empty() {
            known.prefix = Some(LedgerPrefix::from_text(&text.bytes));
            let report = json!({ "known_gaps": known.gaps, "ledger": prefix_json(known.prefix) });
            self.store
                .put(&doc_path(layout::INTEGRITY)?, to_pretty_json(&report).as_bytes())
                .await?;
        }
        if !lost.is_empty() {
            // The same text is written once more: from here on it counts as whole.
            self.store.replace_ledger(&text.bytes, text.position).await?;
        }
        Ok(done)
    }

    /// Records the current ledger as verified, after a deliberate change.
    pub(crate) async fn accept_ledger(&self) -> Result<()> {
        let whole = LedgerPrefix::from_text(&self.store.ledger().await?.bytes);
        if self.load_integrity().await?.prefix == Some(whole) {
            return Ok(());
        }
        self.finish_ledger_change(whole).await
    }

    async fn record_verdict(
        &self,
        verdict: &VerifyReport,
        text: &LedgerText,
        known: &IntegrityRecord,
    ) -> Result<()> {
        // Only a ledger that passed counts as verified; a failing prefix stays recorded until the
        // user decides.
        let (prefix, next) = if verdict.ok {
            (Some(LedgerPrefix::from_text(&text.bytes)), None)
        } else {
            (known.prefix, known.next)
        };
        let failures: Vec<&IntegrityFinding> =
            verdict.findings.iter().filter(|finding| finding.fails).collect();
        let mut report = json!({
            "checked_at": verdict.checked_at,
            "ok": verdict.ok,
            "events": verdict.events,
            "ledger": prefix_json(prefix),
            "checks": verdict.checks.iter().map(|(check, passed)| json!({ "check": check, "ok": passed })).collect::<Vec<_>>(),
            "failures": failures,
            "known_gaps": known.gaps,
        });
        // A deliberate change that was interrupted is finished by its next run, however often
        // `verify` runs before that.
        if next.is_some() {
            report["ledger_next"] = prefix_json(next);
        }
        self.write_open_loops(&Ledger::parse(&text.bytes, None)).await?;
        self.store.put(&doc_path(layout::INTEGRITY)?, to_pretty_json(&report).as_bytes()).await?;
        self.append_integrity_log(verdict.checked_at, verdict.ok, verdict.events, &failures).await
    }

    async fn append_integrity_log(
        &self,
        at: Moment,
        ok: bool,
        events: usize,
        failures: &[&IntegrityFinding],
    ) -> Result<()> {
        let mut entry = format!(
            "- {at} {} {}\n",
            if ok { "ok," } else { "FAILED," },
            count_with_noun(events, "event")
        );
        for finding in failures.iter().take(20) {
            entry.push_str(&format!("  - {}\n", icecore_domain::sanitize::one_line(&finding.what)));
        }
        if failures.len() > 20 {
            entry.push_str(&format!("  - and {} more\n", failures.len() - 20));
        }
        let log = doc_path(layout::INTEGRITY_LOG)?;
        let known = self.store.document(&log).await?;
        let text = known.as_deref().unwrap_or_default();
        // A run that was interrupted and repeated adds nothing.
        if text.ends_with(entry.as_bytes()) {
            return Ok(());
        }
        let entry = if text.is_empty() { format!("# Integrity log\n\n{entry}") } else { entry };
        match self
            .store
            .append_if_unchanged(
                &log,
                entry.as_bytes(),
                icecore_store::ContentVersion::of(known.as_deref()),
            )
            .await
        {
            // A concurrent verification has just written the same.
            Err(icecore_store::Error { kind: icecore_store::ErrorKind::Conflict, .. }) => Ok(()),
            other => Ok(other?),
        }
    }

    /// Records what the nightly check of new events found; the verified length of the ledger does
    /// not change.
    pub(crate) async fn record_nightly_check(&self, findings: &[IntegrityFinding]) -> Result<()> {
        let failures: Vec<&IntegrityFinding> =
            findings.iter().filter(|finding| finding.fails).collect();
        let events = self.store.count_statements().await?.iter().map(|count| count.events).sum();
        self.append_integrity_log(self.now(), failures.is_empty(), events, &failures).await
    }

    async fn load_integrity(&self) -> Result<IntegrityRecord> {
        Ok(parse_integrity(self.store.document(&doc_path(layout::INTEGRITY)?).await?.as_deref()))
    }

    /// Records what the ledger is about to become, so that an interrupted change does not look like
    /// damage. Fails if verified lines have changed.
    pub(crate) async fn begin_ledger_change(&self, before: &[u8], after: &[u8]) -> Result<()> {
        let known = self.load_integrity().await?;
        let Some(prefix) = known.prefix else { return Ok(()) };
        if !prefix.is_prefix_of(before) && !known.next.is_some_and(|next| next.is_prefix_of(before))
        {
            return Err(crate::Error::Damaged(
                "verified lines of the ledger have changed, so nothing was moved out of it; run `icecore doctor`"
                    .into(),
            ));
        }
        self.update_report(|report| {
            report["ledger_next"] = prefix_json(Some(LedgerPrefix::from_text(after)))
        })
        .await
    }

    /// Records that the change is complete.
    pub(crate) async fn finish_ledger_change(&self, prefix: LedgerPrefix) -> Result<()> {
        if self.load_integrity().await?.prefix.is_none() {
            return Ok(());
        }
        self.update_report(|report| {
            report["ledger"] = prefix_json(Some(prefix));
            report["ledger_next"] = Value::Null;
        })
        .await
    }

    async fn update_report(&self, change: impl Fn(&mut Value)) -> Result<()> {
        let path = doc_path(layout::INTEGRITY)?;
        let bytes = self.store.document(&path).await?.unwrap_or_default();
        let mut report: Value = serde_json::from_slice(&bytes).unwrap_or_else(|_| json!({}));
        change(&mut report);
        Ok(self.store.put(&path, to_pretty_json(&report).as_bytes()).await?)
    }

    /// The result of the last `verify`.
    pub(crate) async fn load_integrity_status(&self) -> Result<IntegrityStatus> {
        let known = self.load_integrity().await?;
        Ok(match (known.at, known.failures) {
            (None, _) => IntegrityStatus::Unknown,
            (Some(at), 0) => {
                IntegrityStatus::Whole { at, days_ago: days_between(at.day(), self.now().day()) }
            }
            (Some(at), failures) => IntegrityStatus::Failing { at, failures },
        })
    }
}

fn prefix_json(prefix: Option<LedgerPrefix>) -> Value {
    prefix.map_or(
        Value::Null,
        |prefix| json!({ "bytes": prefix.bytes, "sha256": prefix.hash.to_string() }),
    )
}

fn to_pretty_json(value: &Value) -> String {
    format!("{}\n", serde_json::to_string_pretty(value).unwrap_or_default())
}

/// Parses the report of `verify`.
fn parse_integrity(report: Option<&[u8]>) -> IntegrityRecord {
    let Some(bytes) = report else { return IntegrityRecord::default() };
    let Ok(report) = serde_json::from_slice::<Value>(bytes) else {
        return IntegrityRecord { unreadable: true, ..IntegrityRecord::default() };
    };
    let prefix_of = |ledger: &Value| match (
        ledger["bytes"].as_u64(),
        ledger["sha256"].as_str().map(str::parse::<Hash>),
    ) {
        (Some(bytes), Some(Ok(hash))) => {
            usize::try_from(bytes).ok().map(|bytes| LedgerPrefix { bytes, hash })
        }
        _ => None,
    };
    let (prefix, next) = (prefix_of(&report["ledger"]), prefix_of(&report["ledger_next"]));
    let failures = report["checks"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|check| check["ok"] == Value::Bool(false))
        .count();
    IntegrityRecord {
        prefix,
        next,
        gaps: integrity::parse_known_gaps(bytes),
        at: report["checked_at"].as_str().and_then(Moment::parse).map(|read| read.moment),
        failures,
        unreadable: false,
    }
}
