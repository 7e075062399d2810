//! Forgetting: removes text from memory together with everything derived from it, and keeps it from
//! being imported again.
//!
//! It plans first, in rounds: words lead to records and events, records to the events extracted
//! from them. Then it writes a tombstone, so that the next run finishes an interrupted one. Then it
//! scrubs every file, rebuilds derived data and summarizes again.
//!
//! Invariant: text of a tombstone is never stored, restored or shown again.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, PoisonError};

use icecore_domain::calendar::Moment;
use icecore_domain::event::{Act, COMPACTS_FIELD, Event, EventDraft, Origin, QUOTE_FIELD};
use icecore_domain::forget::{
    self, FORGOTTEN_MARK, FileFate, MIN_CHARS, MIN_WORDS, Scrub, Tombstone, Tombstones,
};
use icecore_domain::format::line;
use icecore_domain::hash::Hash;
use icecore_domain::id::EventId;
use icecore_domain::layout::{self, DocPath};
use icecore_domain::ledger::integrity::LedgerPrefix;
use icecore_domain::ledger::revise::RevisionError;
use icecore_domain::ledger::{EventState, Ledger};
use icecore_domain::page::PageKey;
use icecore_domain::record::{self, Record, SessionKey};
use icecore_domain::summary::{Period, Summary, SummaryAuthor, SummaryCost, SummaryQuery, Tier};
use icecore_domain::{memory_file, sanitize};
use icecore_store::{
    ContentVersion, Error as StoreError, ErrorKind as StoreErrorKind, RewriteReport, ScrubOutcome,
    ScrubbedFile,
};
use jiff::civil::Date;
use serde::Serialize;

use crate::capture::CaptureReport;
use crate::converse::folder_of;
use crate::page_sync::PageSyncReport;
use crate::rollup::{ModelBudget, ProgressFn, RollupReport, RollupRequest};
use crate::{Error, Memory, Result};

/// The prefix of an id that names a whole conversation.
const CONVERSATION_PREFIX: &str = "conversation/";
/// The note that a forgetting also has to rewrite every snapshot, with its tombstone. It belongs to
/// this machine: snapshots on other machines are not rewritten because of it.
const HISTORY_NOTE: &str = "forgetting-history.txt";
/// The warning while that note exists.
pub(crate) const HISTORY_UNFINISHED_WARNING: &str = "forgetting was interrupted before every snapshot was rewritten; run `icecore forget --unfinished` to finish it";
const MAX_NOTE_BYTES: u64 = 64 * 1024;

/// How many rounds follow from one find to the next.
const MAX_ROUNDS: usize = 8;

/// What to forget. What an interrupted run left unfinished is always added.
#[derive(Debug, Clone, Default)]
pub struct ForgetRequest {
    /// Ids of events, records or memories, or `conversation/NAME`.
    pub ids: Vec<String>,
    /// Words, wherever they occur.
    pub matching: Vec<String>,
    /// Rewrite every snapshot too.
    pub history: bool,
    pub reason: Option<String>,
    pub by: String,
}

impl ForgetRequest {
    /// Whether it names nothing: the run only finishes what others began.
    fn is_empty(&self) -> bool {
        self.ids.is_empty() && self.matching.is_empty()
    }
}

/// A file in which text is forgotten.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ForgottenFile {
    pub path: String,
    /// How many of its lines; `None` if the whole file is removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lines: Option<usize>,
}

/// What a forgetting removes, or would remove.
#[derive(Debug, Clone, Default, Serialize)]
pub struct ForgetPlan {
    /// Events of the ledger and its archives.
    pub events: Vec<EventId>,
    /// The number of messages and states.
    pub records: usize,
    /// Summaries of the days concerned.
    pub summaries: Vec<String>,
    /// The number of turns of conversations.
    pub turns: usize,
    /// The files that contain it.
    pub places: Vec<ForgottenFile>,
    /// Files with the text that icecore must not change.
    pub left: Vec<String>,
    /// Events with too few words to search for their text elsewhere.
    pub by_id_only: Vec<EventId>,
}

impl ForgetPlan {
    /// Whether nothing is to be forgotten.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }
}

/// What was forgotten, and where it still is.
#[derive(Debug, Serialize)]
pub struct ForgetReport {
    /// `None` if there was nothing to forget.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tombstone: Option<String>,
    #[serde(flatten)]
    pub gone: ForgetPlan,
    /// Summaries that were rebuilt from what is left.
    #[serde(rename = "pressed")]
    pub rebuilt: Vec<String>,
    /// How many snapshots were rewritten, and how many of their files changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rewritten: Option<(usize, usize)>,
    /// How many snapshots still contain it, and how many there are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshots: Option<(usize, usize)>,
    /// Further messages for the user.
    pub notes: Vec<String>,
}

/// What one pass over all files found.
#[derive(Default)]
struct ForgetMatches {
    events: BTreeSet<EventId>,
    phrases: BTreeSet<String>,
    by_id_only: BTreeSet<EventId>,
    records: usize,
    days: BTreeSet<Date>,
    sessions: BTreeSet<SessionKey>,
    turns: BTreeMap<String, BTreeSet<u64>>,
    /// Conversations with this name.
    called: BTreeSet<String>,
}

fn doc_path(text: &str) -> Result<DocPath> {
    Ok(text.parse().map_err(StoreError::from)?)
}

fn turn_of(record: &Record) -> Option<u64> {
    let (_, raw) = record.extra.iter().find(|(name, _)| name == "turn")?;
    raw.trim_matches('"').parse().ok()
}

impl Memory {
    /// The tombstones, as last read.
    pub(crate) fn tombstones(&self) -> Arc<Tombstones> {
        self.tombstones.read().unwrap_or_else(PoisonError::into_inner).1.clone()
    }

    /// Reads the tombstones again if the file changed.
    pub(crate) async fn refresh_tombstones(&self) -> Result<()> {
        let text = self.store.document(&doc_path(layout::FORGOTTEN)?).await?;
        let version = ContentVersion::of(text.as_deref());
        let known = self.tombstones.read().unwrap_or_else(PoisonError::into_inner).0;
        if version != known {
            let stones = Tombstones::parse(text.as_deref().unwrap_or_default());
            *self.tombstones.write().unwrap_or_else(PoisonError::into_inner) =
                (version, Arc::new(stones));
        }
        Ok(())
    }

    /// Removes forgotten text from `text`.
    pub(crate) fn scrub_text(&self, text: String) -> String {
        let stones = self.tombstones();
        if stones.is_empty() {
            return text;
        }
        stones.needles().redact(&text).map_or(text, |redacted| redacted.text)
    }

    /// Removes forgotten text from a record; `None` if the record itself was forgotten.
    pub(crate) fn scrub_record(
        &self,
        record: Record,
        report: &mut CaptureReport,
    ) -> Option<Record> {
        let stones = self.tombstones();
        if stones.is_empty() {
            return Some(record);
        }
        if stones.has_record(&record.key()) {
            report.forgotten += 1;
            return None;
        }
        match stones.needles().scrub_record(&record) {
            None => Some(record),
            Some(scrubbed) => {
                report.forgotten += 1;
                Some(scrubbed)
            }
        }
    }

    /// Refuses text that consists of nothing but forgotten words.
    pub(crate) fn refuse_forgotten(&self, text: &str) -> Result<()> {
        if !forget::is_forgotten(text) {
            return Ok(());
        }
        Err(Error::InvalidRequest(format!(
            "these words were forgotten, so nothing was saved. To save them anyway, remove their line from {}",
            layout::FORGOTTEN
        )))
    }

    /// A file of a snapshot without the text that was forgotten since; `None` if the file must not
    /// be touched.
    #[expect(
        clippy::option_option,
        reason = "a file that did not exist differs from one that must not be touched"
    )]
    pub(crate) fn scrub_snapshot_file(
        &self,
        path: &DocPath,
        then: Option<Vec<u8>>,
    ) -> Option<Option<Vec<u8>>> {
        let stones = self.tombstones();
        let Some(bytes) = &then else { return Some(then) };
        match stones.scrub().fate(path.as_str(), bytes) {
            FileFate::Same => Some(then),
            // It is rendered again from what is left. Which of its entries are foreign is known
            // only for the current file.
            _ if forget::is_cascade_file(path.as_str()) => None,
            FileFate::Changed { bytes, .. } => Some(Some(bytes)),
            FileFate::Gone => None,
        }
    }

    /// Whether a forgetting that includes snapshots is unfinished.
    pub(crate) async fn has_unfinished_history(&self) -> Result<bool> {
        let Some(note) = self.store.note(&doc_path(HISTORY_NOTE)?).await? else { return Ok(false) };
        let stones = self.tombstones();
        // A run that died before it wrote its tombstone changed nothing.
        Ok(String::from_utf8_lossy(&note)
            .lines()
            .any(|id| stones.all().iter().any(|stone| stone.id == id)))
    }

    /// Notes that the text of this tombstone has to be removed from every snapshot too.
    async fn write_history_note(&self, stone: &str) -> Result<()> {
        Ok(self.store.append_note(&doc_path(HISTORY_NOTE)?, stone, MAX_NOTE_BYTES, true).await?)
    }

    /// Finishes an interrupted forgetting, before a snapshot can store the text again.
    pub(crate) async fn finish_interrupted_forget(
        &self,
        budget: Option<&ModelBudget<'_>>,
        progress: ProgressFn<'_>,
    ) -> Result<()> {
        self.refresh_tombstones().await?;
        if !self.is_looking_back().await?
            && (self.tombstones().unfinished_tombstones().next().is_some()
                || self.has_unfinished_history().await?)
        {
            self.forget(
                &ForgetRequest { by: "consolidation".into(), ..ForgetRequest::default() },
                budget,
                progress,
            )
            .await?;
        }
        Ok(())
    }

    /// Plans a forgetting; nothing is changed.
    pub async fn preview_forget(&self, request: &ForgetRequest) -> Result<ForgetPlan> {
        self.refresh_tombstones().await?;
        let (scrub, found) = self.plan_forget(request).await?;
        let touched = self.store.scrub(&scrub, true).await?;
        Ok(preview_of(&scrub, &found, &touched))
    }

    /// Forgets, and reports what was removed and where it still is.
    pub async fn forget(
        &self,
        request: &ForgetRequest,
        budget: Option<&ModelBudget<'_>>,
        progress: ProgressFn<'_>,
    ) -> Result<ForgetReport> {
        if self.is_looking_back().await? {
            return Err(Error::NotFound(
                "the ledger has events after that moment; forget works only in the present, without --now".into(),
            ));
        }
        let _alone = self.acquire_consolidation_lease().await?;
        // Manual page edits are imported first, so that they are forgotten with the rest, and the
        // remainder of them is kept.
        self.refresh_tombstones().await?;
        self.scan_all_logs().await?;
        let mut curated = PageSyncReport::default();
        self.import_edits(&mut curated).await?;

        let foreign = self.foreign_cascade_entries().await?;

        progress("searching", 0, 0);
        let (mut scrub, found) = self.plan_forget(request).await?;
        scrub.foreign_entries.extend(foreign);
        let mut gone = preview_of(&scrub, &found, &self.store.scrub(&scrub, true).await?);
        let mut forgot = ForgetReport {
            tombstone: None,
            gone: ForgetPlan::default(),
            rebuilt: Vec::new(),
            rewritten: None,
            snapshots: None,
            notes: Vec::new(),
        };
        // A run that died may have scrubbed the files without finishing the rest.
        let begun = self.tombstones().unfinished_tombstones().next().map(|stone| stone.id.clone());
        let carried_in = self.list_unapplied_tombstones().await?;
        let history = request.history || self.has_unfinished_history().await?;
        if !gone.is_empty() || begun.is_some() {
            let stone = match (begun, carried_in.first()) {
                (Some(begun), _) if gone.is_empty() => begun,
                // Text that is known only by its hashes has a tombstone already.
                (None, Some(carried))
                    if request.is_empty() && scrub.needles.phrases().next().is_none() =>
                {
                    carried.clone()
                }
                _ => self.write_tombstone(&scrub, request, history).await?,
            };
            progress("forgetting", 0, 0);
            let before = self.store.ledger().await?.bytes;
            let after = match scrub.fate(layout::LEDGER, &before) {
                FileFate::Changed { bytes, .. } => bytes,
                FileFate::Same | FileFate::Gone => before.clone(),
            };
            self.begin_ledger_change(&before, &after).await?;
            let taken_in = self.load_imported_pages(&scrub, &curated).await?;
            let touched = self.store.scrub(&scrub, false).await?;
            self.finish_ledger_change(LedgerPrefix::from_text(&after)).await?;
            gone = preview_of(&scrub, &found, &touched);
            self.retract_events(&scrub.events).await?;
            self.rebuild_views(&touched, &taken_in, &mut curated).await?;
            self.refresh_open_loops().await?;
            match self.rebuild_summaries(&scrub, budget, progress).await {
                Ok(summaries) => {
                    forgot.rebuilt = summaries.iter().map(ToString::to_string).collect()
                }
                Err(Error::Busy(why)) => {
                    forgot.notes.push(format!("summaries are not rebuilt yet: {why}"))
                }
                Err(error) => return Err(error),
            }
            if touched.iter().any(|one| one.path == layout::RECALL) || gone.is_empty() {
                let pack = self.build_recall_pack(None, &[]).await?;
                self.write_recall_pack(&pack).await?;
            }
            forgot.tombstone = Some(stone);
        }
        if let Some(last) = self.tombstones().all().last().filter(|_| history) {
            self.write_history_note(&last.id).await?;
        }
        self.scrub_snapshots(history, &scrub, &mut forgot).await?;
        for stone in self.tombstones().unfinished_tombstones() {
            self.append_line(
                &doc_path(layout::FORGOTTEN)?,
                &forget::done_line(&stone.id, &self.now().to_string()),
            )
            .await?;
        }
        self.store.remove_note(&doc_path(HISTORY_NOTE)?).await?;
        self.refresh_tombstones().await?;
        if !self.tombstones().is_empty() {
            self.mark_tombstones_applied().await?;
        }
        for name in &found.called {
            let name = sanitize::one_line(name);
            forgot.notes.push(format!(
                "there is a conversation named `{name}`; `icecore forget conversation/{name}` removes it with all its messages"
            ));
        }
        if !gone.by_id_only.is_empty() {
            forgot.notes.push(format!(
                "events with fewer than {MIN_WORDS} words were forgotten by id only; use `forget --matching` to find their text elsewhere"
            ));
        }
        forgot.gone = gone;
        Ok(forgot)
    }

    async fn write_tombstone(
        &self,
        scrub: &Scrub,
        request: &ForgetRequest,
        history: bool,
    ) -> Result<String> {
        let (stones, now) = (self.tombstones(), self.now().to_string());
        // A vault has one salt. It differs from other vaults by what the vault contains.
        let salt = match stones.salt() {
            Some(salt) => salt.to_owned(),
            None => Hash::of(&self.store.ledger().await?.bytes).chain(now.as_bytes()).to_string()
                [..32]
                .to_owned(),
        };
        let reason = request
            .reason
            .as_deref()
            .map(sanitize::one_line)
            .filter(|reason| !scrub.needles.is_contained_in(reason));
        let stone = Tombstone::new(scrub, &now, &request.by, reason.as_deref(), &salt);
        let known = stones.all().iter().any(|known| known.id == stone.id);
        if history {
            self.write_history_note(&stone.id).await?;
        }
        if !known {
            self.append_line(&doc_path(layout::FORGOTTEN)?, &stone.to_line()).await?;
        }
        self.refresh_tombstones().await?;
        Ok(stone.id)
    }

    /// The pages that are about to be scrubbed, as they were when manual edits were imported from
    /// them; a page that was saved since counts as absent.
    async fn load_imported_pages(
        &self,
        scrub: &Scrub,
        report: &PageSyncReport,
    ) -> Result<HashMap<DocPath, ContentVersion>> {
        let mut pages = HashMap::new();
        for one in self
            .store
            .scrub(scrub, true)
            .await?
            .iter()
            .filter(|one| matches!(one.outcome, ScrubOutcome::Changed(_)))
        {
            if let Some(page) =
                one.path.parse::<DocPath>().ok().filter(|place| PageKey::from_path(place).is_some())
            {
                pages.insert(page, one.versions.0);
            }
        }
        // Read after the pages, so that later edits are not missed.
        let places: Vec<DocPath> = pages.keys().cloned().collect();
        for (place, _) in self
            .store
            .changed_since_seen(&places)
            .await?
            .into_iter()
            .filter(|(place, stamp)| !report.is_imported(place, stamp))
        {
            pages.insert(place, ContentVersion::ABSENT);
        }
        Ok(pages)
    }

    /// Retracts the forgotten events.
    async fn retract_events(&self, ids: &BTreeSet<EventId>) -> Result<()> {
        let ids: Vec<EventId> = ids.iter().copied().collect();
        let now = self.now();
        let entries = self.load_events_with_archives(&ids).await?;
        let holds = entries.iter().filter(|entry| {
            entry.event.is_statement() && !matches!(entry.state, EventState::Retracted { .. })
        });
        let draft = |event: &Event| EventDraft {
            origin: Origin::User,
            ..EventDraft::new_act(event, Act::Retract, now, FORGOTTEN_MARK)
        };
        let drafts: Vec<EventDraft> = holds.map(|entry| draft(&entry.event)).collect();
        if !drafts.is_empty() {
            self.store.append(drafts, None).await?;
        }
        Ok(())
    }

    /// Rebuilds the touched pages from the remaining events. A page that a user saved after its
    /// edits were imported keeps them for the next run.
    async fn rebuild_views(
        &self,
        touched: &[ScrubbedFile],
        taken_in: &HashMap<DocPath, ContentVersion>,
        report: &mut PageSyncReport,
    ) -> Result<()> {
        for one in touched.iter().filter(|one| matches!(one.outcome, ScrubOutcome::Changed(_))) {
            let page = one.path.parse::<DocPath>().ok().filter(|place| {
                PageKey::from_path(place).is_some() && !report.held.contains(place)
            });
            let Some(page) = page else { continue };
            let (before, after) = one.versions;
            // What a run that died has scrubbed differs from what was imported, but had nothing
            // left to import.
            if taken_in.get(&page).is_some_and(|taken_in| *taken_in != before) {
                continue;
            }
            match self.store.remove_unchanged(&page, after).await {
                Err(StoreError { kind: StoreErrorKind::Conflict, .. }) => {}
                other => other?,
            }
        }
        self.rebuild_pages(report).await
    }

    /// Rebuilds the summaries that were erased: those that are due, then those that had been
    /// requested before their time.
    async fn rebuild_summaries(
        &self,
        scrub: &Scrub,
        budget: Option<&ModelBudget<'_>>,
        progress: ProgressFn<'_>,
    ) -> Result<Vec<Period>> {
        // If no summary was touched, nothing is rebuilt early: what is due waits for its time.
        if scrub.periods.is_empty() {
            return Ok(Vec::new());
        }
        let mut pressed: Vec<Period> = self
            .run_rollup(&RollupRequest::default(), budget, progress)
            .await?
            .summaries
            .iter()
            .map(|node| node.period)
            .collect();
        let (heads, _) = self.store.summary_heads(&SummaryQuery::default()).await?;
        let mut erased: Vec<_> = heads
            .into_iter()
            .filter(|head| scrub.periods.contains_key(&head.period) && head.is_forgotten())
            .collect();
        erased.sort_by_key(|head| (head.period.tier(), head.period));
        for head in erased {
            let wish = RollupRequest {
                tier: Some(head.period.tier()),
                days: Some(head.period.days()),
                sessions: head.session.map(|key| vec![key]),
            };
            pressed.extend(
                self.run_rollup(&wish, budget, progress)
                    .await?
                    .summaries
                    .iter()
                    .map(|node| node.period),
            );
        }
        Ok(pressed)
    }

    /// Empties the summaries of a conversation on these days whose records were removed, and those
    /// of the days, weeks, months and years that have nothing else. Their earlier versions stay.
    pub(crate) async fn empty_summaries(
        &self,
        conversation: &str,
        days: &BTreeSet<Date>,
    ) -> Result<()> {
        let known = self.planning_input(false).await?;
        let sessions: BTreeSet<&SessionKey> = known.sessions.iter().map(|stat| &stat.key).collect();
        let due: BTreeSet<Period> = known.overdue().into_iter().map(|(period, _)| period).collect();
        let is_of_days = |period: Period| {
            days.iter().any(|day| Period::covering(period.tier(), *day) == Some(period))
        };
        let has_records = |period: Period| {
            sessions.iter().any(|key| Period::covering(period.tier(), key.day) == Some(period))
        };
        let is_empty = |summary: &Summary| match &summary.session {
            Some(key) => key.conversation == conversation && !sessions.contains(key),
            None => {
                is_of_days(summary.period)
                    && !has_records(summary.period)
                    && !due.contains(&summary.period)
                    && summary.messages > 0
            }
        };
        let now = self.now();
        let all = self.store.summaries(&SummaryQuery::default()).await?.into_iter();
        let emptied: Vec<Summary> = all
            // A file that icecore did not write is not made from records.
            .filter(|summary| {
                summary.headline != FORGOTTEN_MARK
                    && summary.maker != SummaryAuthor::File
                    && is_empty(summary)
            })
            .map(|summary| Summary {
                version: summary.version + 1,
                headline: FORGOTTEN_MARK.into(),
                body: String::new(),
                messages: 0,
                states: 0,
                recorded: now,
                source: Hash::of(FORGOTTEN_MARK.as_bytes()),
                sources: Vec::new(),
                maker: SummaryAuthor::Extract,
                provisional: true,
                left_out: Vec::new(),
                cost: SummaryCost::default(),
                similar: None,
                ..summary
            })
            .collect();
        if emptied.is_empty() {
            return Ok(());
        }
        self.store.add_summaries(&emptied, None).await?;
        self.write_views(&emptied, &mut RollupReport::default()).await
    }

    async fn scrub_snapshots(
        &self,
        history: bool,
        scrub: &Scrub,
        report: &mut ForgetReport,
    ) -> Result<()> {
        if self.history.check_available().await.is_err() {
            return Ok(());
        }
        // By hashes as well as by words: an earlier run's text may still be there.
        let mut all = scrub.clone();
        all.merge(self.tombstones().scrub());
        if history {
            let RewriteReport { snapshots, files } = self.history.rewrite_snapshots(&all).await?;
            report.rewritten = Some((snapshots, files));
            return Ok(());
        }
        match self.history.count_containing(&all).await {
            Ok(standing) => report.snapshots = Some(standing),
            Err(error) => report.notes.push(format!("snapshots could not be searched: {error}")),
        }
        Ok(())
    }

    /// Collects everything that is to be removed.
    async fn plan_forget(&self, request: &ForgetRequest) -> Result<(Scrub, ForgetMatches)> {
        let stones = self.tombstones();
        let mut scrub = stones.unfinished_scrub();
        let carried_in = self.list_unapplied_tombstones().await?;
        stones
            .all()
            .iter()
            .filter(|stone| carried_in.contains(&stone.id))
            .for_each(|stone| stone.add_to(&mut scrub));
        if request.is_empty() {
            self.add_reappeared(&mut scrub).await?;
        }
        self.add_foreign_versions(&carried_in, &mut scrub).await?;
        for text in &request.matching {
            let letters = text.chars().filter(|c| c.is_alphanumeric()).count();
            if letters < MIN_CHARS {
                return Err(Error::InvalidRequest(format!(
                    "`{}` is too short to search for; give at least {MIN_CHARS} letters or digits",
                    sanitize::one_line(text)
                )));
            }
            scrub.needles.add(text);
        }
        let mut named = BTreeSet::new();
        for id in &request.ids {
            self.resolve_id(id.trim(), &mut scrub, &mut named).await?;
        }
        let mut by_id_only = BTreeSet::new();
        for _ in 0..MAX_ROUNDS {
            let found = self.find_matches(&scrub).await?;
            by_id_only.extend(&found.by_id_only);
            let is_new = |(folder, turns): (&String, &BTreeSet<u64>)| {
                !scrub.turns.get(folder).is_some_and(|known| turns.is_subset(known))
            };
            let mut more = !found.events.is_subset(&scrub.events) || found.turns.iter().any(is_new);
            scrub.events.extend(&found.events);
            for phrase in &found.phrases {
                more |= scrub.needles.add(phrase);
            }
            for (folder, turns) in &found.turns {
                scrub.turns.entry(folder.clone()).or_default().extend(turns);
            }
            if !more {
                break;
            }
        }
        let mut found = self.find_matches(&scrub).await?;
        found.by_id_only = by_id_only;
        self.add_periods(&found, &mut scrub).await?;
        let by_files = self
            .summary_versions()
            .await?
            .into_iter()
            .filter(|version| version.maker == SummaryAuthor::File);
        scrub.foreign_entries =
            by_files.map(|version| (version.period, version.headline)).collect();
        Ok((scrub, found))
    }

    /// Adds forgotten text that exists again, by its words, events and records: a merge may have
    /// brought it back.
    async fn add_reappeared(&self, scrub: &mut Scrub) -> Result<()> {
        let stones = self.tombstones();
        if stones.is_empty() {
            return Ok(());
        }
        scrub.needles.merge(stones.needles());
        scrub.records.extend(&stones.scrub().records);
        let erased = |event: &Event| event.content == FORGOTTEN_MARK;
        let back = self
            .load_all_events()
            .await?
            .into_iter()
            .filter(|event| stones.scrub().events.contains(&event.id) && !erased(event));
        scrub.events.extend(back.map(|event| event.id));
        Ok(())
    }

    /// Files that contain forgotten text again.
    pub(crate) async fn find_reappeared_files(&self) -> Result<Vec<String>> {
        if self.tombstones().is_empty() || !self.history.is_shared().await {
            return Ok(Vec::new());
        }
        let mut scrub = Scrub::default();
        self.add_reappeared(&mut scrub).await?;
        let touched = self.store.scrub(&scrub, true).await?;
        let is_remade =
            |path: &str| forget::is_view_of_many(path) || path.starts_with(".icecore/answers/");
        Ok(touched
            .into_iter()
            .filter(|one| one.outcome != ScrubOutcome::Untouched && !is_remade(&one.path))
            .map(|one| one.path)
            .collect())
    }

    /// Adds the summary versions that existed before another machine forgot their text, whatever
    /// those versions are called here.
    async fn add_foreign_versions(
        &self,
        carried_in: &BTreeSet<String>,
        scrub: &mut Scrub,
    ) -> Result<()> {
        let stones = self.tombstones();
        let carried: Vec<&Tombstone> =
            stones.all().iter().filter(|stone| carried_in.contains(&stone.id)).collect();
        if carried.is_empty() {
            return Ok(());
        }
        for summary in self.summary_versions().await? {
            let until = carried
                .iter()
                .filter(|stone| stone.has_period(summary.period))
                .filter_map(|stone| Moment::parse(&stone.ts));
            if until.map(|read| read.moment).any(|until| summary.recorded <= until) {
                let upto = scrub.periods.entry(summary.period).or_default();
                *upto = summary.version.max(*upto);
            }
        }
        Ok(())
    }

    /// Resolves an id that the user gave.
    async fn resolve_id(
        &self,
        id: &str,
        scrub: &mut Scrub,
        named: &mut BTreeSet<String>,
    ) -> Result<()> {
        if !named.insert(id.to_owned()) {
            return Ok(());
        }
        if let Ok(event) = EventId::parse_lenient(id) {
            if self.load_events_with_archives(&[event]).await?.is_empty() {
                return Err(RevisionError::Unknown(event).into());
            }
            scrub.events.insert(event);
            return Ok(());
        }
        if let Some(name) = id.strip_prefix(CONVERSATION_PREFIX) {
            let records = self.store.recent_records(name, usize::MAX).await?;
            let folder = folder_of(name);
            if records.is_empty() && self.store.documents(&folder).await?.is_empty() {
                let name = sanitize::one_line(name);
                return Err(Error::NotFound(format!(
                    "there is no conversation `{name}`; run `icecore conversation list` to see all"
                )));
            }
            scrub.records.extend(records.iter().map(Record::key));
            scrub.conversations.insert(name.to_owned());
            scrub.folders.insert(folder);
            return Ok(());
        }
        let name = id.trim_start_matches("[mem:").trim_end_matches(']').trim_end_matches(".md");
        let name =
            name.strip_prefix(layout::MEMORIES).map_or(name, |name| name.trim_start_matches('/'));
        if let Ok(place) = format!("{}/{name}.md", layout::MEMORIES).parse::<DocPath>()
            && let Some(bytes) = self.store.document(&place).await?
            && let Some(event) = memory_file::parse(&String::from_utf8_lossy(&bytes)).event
        {
            scrub.events.insert(event);
            return Ok(());
        }
        // A record by its id, or by the source that an event names.
        let wanted = id.rsplit_once('#').map_or(id, |(_, id)| id);
        let mut known = false;
        self.for_each_record(|_, record| {
            if record.id == wanted {
                known = true;
                scrub.records.insert(record.key());
            }
        })
        .await?;
        if known {
            return Ok(());
        }
        Err(Error::NotFound(format!(
            "there is no event, record or memory `{}`; name an EVT-…, the id of a message, a memory's name or conversation/NAME",
            sanitize::one_line(id)
        )))
    }

    /// Calls `take` for every line of every record, with its file.
    async fn for_each_record(&self, mut take: impl FnMut(&DocPath, Record)) -> Result<()> {
        for folder in [layout::MESSAGES, layout::SNAPSHOTS] {
            for place in self
                .store
                .documents(folder)
                .await?
                .into_iter()
                .filter(|place| place.record_day().is_some())
            {
                let text = self.store.document(&place).await?.unwrap_or_default();
                for line in text
                    .split(|byte| *byte == b'\n')
                    .map(<[u8]>::trim_ascii)
                    .filter(|line| !line.is_empty())
                {
                    if let Ok(record) = record::parse_line(line) {
                        take(&place, record);
                    }
                }
            }
        }
        Ok(())
    }

    /// One pass over all files: everything that goes with what is known so far.
    async fn find_matches(&self, scrub: &Scrub) -> Result<ForgetMatches> {
        let mut found = ForgetMatches::default();
        // Sources that are removed as a whole.
        let mut sources: BTreeSet<String> = BTreeSet::new();
        let mut keys = std::collections::HashSet::new();
        self.for_each_record(|place, record| {
            let key = record.key();
            if !scrub.conversations.contains(&record.conversation)
                && scrub.needles.is_contained_in(&record.conversation)
            {
                found.called.insert(record.conversation.clone());
            }
            let erased = scrub.records.contains(&key);
            if erased {
                sources.insert(format!("{place}#{}", record.id));
            }
            // Text that an interrupted run has scrubbed already leads to nothing new.
            if (erased && record.text == FORGOTTEN_MARK)
                || (!erased && scrub.needles.scrub_record(&record).is_none())
            {
                return;
            }
            if keys.insert(key) {
                found.records += 1;
            }
            found.days.insert(record.ts.day());
            found.sessions.insert(record.session_key());
            if let Some(turn) = turn_of(&record) {
                found.turns.entry(folder_of(&record.conversation)).or_default().insert(turn);
            }
        })
        .await?;
        for place in self.store.documents("conversations").await? {
            let Some(folder) = forget::conversation_folder(place.as_str())
                .filter(|_| place.name() == "events.jsonl")
            else {
                continue;
            };
            let whole = scrub.folders.contains(folder);
            let text = self.store.document(&place).await?.unwrap_or_default();
            for event in Ledger::parse(&text, None).entries().iter().map(|entry| &entry.event) {
                let turn = event.extra_field::<u64>("turn");
                let said = scrub.affects_event(event);
                if said && let Some(turn) = turn {
                    found.turns.entry(folder.to_owned()).or_default().insert(turn);
                }
                if whole
                    || said
                    || turn.is_some_and(|turn| {
                        scrub.turns.get(folder).is_some_and(|turns| turns.contains(&turn))
                    })
                {
                    sources.insert(format!("{place}#{}", event.id));
                }
            }
        }
        found.turns.retain(|folder, _| !scrub.folders.contains(folder));
        for event in self.load_all_events().await? {
            let named = scrub.events.contains(&event.id);
            let said = scrub.affects_event(&event);
            let learnt = sources.contains(&event.source);
            let compacts = || event.extra_field::<Vec<String>>(COMPACTS_FIELD).unwrap_or_default();
            let acts = event.act != Act::Assert
                && event.related.iter().any(|id| scrub.events.contains(id));
            let stands_for = compacts()
                .iter()
                .any(|id| id.parse().is_ok_and(|id: EventId| scrub.events.contains(&id)));
            if !(named || said || learnt || acts || stands_for) {
                continue;
            }
            // A scrubbed event is done.
            if event.content == FORGOTTEN_MARK {
                continue;
            }
            found.events.insert(event.id);
            found.days.insert(event.ts.day());
            // An event that was found only by its id leaves its words elsewhere; those are found by
            // text.
            if said || acts {
                continue;
            }
            for text in [Some(event.content.clone()), event.extra_field::<String>(QUOTE_FIELD)]
                .into_iter()
                .flatten()
            {
                if forget::count_words(&text) >= MIN_WORDS {
                    found.phrases.insert(text);
                } else {
                    found.by_id_only.insert(event.id);
                }
            }
        }
        for place in self.store.documents("memory").await? {
            let Some(day) = place.log_day() else { continue };
            let text = self.store.document(&place).await?.unwrap_or_default();
            if scrub.fate(place.as_str(), &text) != FileFate::Same {
                found.days.insert(day);
            }
        }
        Ok(found)
    }

    /// The events of the ledger and of every archive, unfolded.
    async fn load_all_events(&self) -> Result<Vec<Event>> {
        let mut texts = vec![self.store.ledger().await?.bytes];
        texts.extend(self.read_archives().await?);
        let lines = texts.iter().flat_map(|text| text.split(|byte| *byte == b'\n'));
        Ok(lines.flat_map(|line| line::parse_line(line).events).collect())
    }

    /// Adds the summaries of the days and sessions concerned: they are rebuilt, whatever words they
    /// used.
    async fn add_periods(&self, found: &ForgetMatches, scrub: &mut Scrub) -> Result<()> {
        let (heads, _) = self.store.summary_heads(&SummaryQuery::default()).await?;
        let mut days: BTreeSet<Date> = found.days.clone();
        // A summary that quotes the words leads to the summaries above it, too.
        let said: HashMap<Period, bool> = self
            .store
            .summaries(&SummaryQuery::default())
            .await?
            .into_iter()
            .map(|summary| {
                (
                    summary.period,
                    scrub.needles.is_contained_in(&summary.headline)
                        || scrub.needles.is_contained_in(&summary.body),
                )
            })
            .collect();
        days.extend(said.iter().filter(|(_, said)| **said).map(|(period, _)| period.days().first));
        for head in heads {
            let tier = head.period.tier();
            let goes = match tier {
                Tier::Session => {
                    head.session.as_ref().is_some_and(|key| found.sessions.contains(key))
                }
                _ => days.iter().any(|day| Period::covering(tier, *day) == Some(head.period)),
            };
            if goes || said.get(&head.period) == Some(&true) {
                let upto = scrub.periods.entry(head.period).or_default();
                *upto = head.version.max(*upto);
            }
        }
        Ok(())
    }
}

fn preview_of(scrub: &Scrub, found: &ForgetMatches, touched: &[ScrubbedFile]) -> ForgetPlan {
    let is_remade =
        |path: &str| forget::is_view_of_many(path) || path.starts_with(".icecore/answers/");
    let kept: Vec<&ScrubbedFile> = touched
        .iter()
        .filter(|one| one.outcome != ScrubOutcome::Untouched && !is_remade(&one.path))
        .collect();
    // Views of everything are always rebuilt; alone they do not count as a match.
    let places = kept.iter().map(|one| ForgottenFile {
        path: one.path.clone(),
        lines: if let ScrubOutcome::Changed(lines) = one.outcome { Some(lines) } else { None },
    });
    let places: Vec<ForgottenFile> = places.collect();
    if places.is_empty() {
        let left = touched
            .iter()
            .filter(|one| one.outcome == ScrubOutcome::Untouched)
            .map(|one| one.path.clone())
            .collect();
        return ForgetPlan { left, ..ForgetPlan::default() };
    }
    ForgetPlan {
        events: scrub.events.iter().copied().collect(),
        records: found.records,
        summaries: scrub.periods.keys().map(ToString::to_string).collect(),
        turns: found.turns.values().map(BTreeSet::len).sum(),
        places,
        left: touched
            .iter()
            .filter(|one| one.outcome == ScrubOutcome::Untouched)
            .map(|one| one.path.clone())
            .collect(),
        by_id_only: found.by_id_only.iter().copied().collect(),
    }
}
