//! Imports an older memory folder (L18, K11).
//!
//! Invariants: nothing of the old folder is lost, every line of it is accounted for, and a second
//! run changes nothing.

use std::collections::{BTreeMap, HashMap};

use icecore_domain::calendar::{Days, Moment};
use icecore_domain::event::{Event, EventDraft, Origin};
use icecore_domain::id::EventId;
use icecore_domain::layout::DocPath;
use icecore_domain::ledger::query::EventQuery;
use icecore_domain::migrate::{
    self, FileAccount, MigrationPlan, MigrationStep, OLD_ID_FIELD, SourceFile, VaultView,
};
use icecore_domain::record::{self, Record, RecordKind, Role};
use icecore_domain::sanitize;
use icecore_store::{ContentVersion, Error as StoreError, ErrorKind as StoreErrorKind};
use jiff::Timestamp;
use serde::Serialize;

use crate::capture::STATES_CONVERSATION;
use crate::{Error, Memory, Result, SecretCounts};

/// A file of the old folder.
#[derive(Debug, Clone)]
pub struct OldFolderFile {
    /// Its path in the folder, parts separated by `/`.
    pub path: String,
    pub bytes: Vec<u8>,
    pub modified: Option<Timestamp>,
}

/// What happened to one old file.
#[derive(Debug, Clone, Serialize)]
pub struct FileOutcome {
    pub path: String,
    /// Its non-blank lines.
    pub lines: usize,
    pub bytes: usize,
    /// The files that contain its lines afterwards, and how many of them.
    pub stands: Vec<(String, usize)>,
    /// What else was made of its lines.
    pub becomes: Vec<(String, usize)>,
    /// Lines that are nowhere afterwards.
    pub missing: usize,
}

/// What a migration did, or would do.
#[derive(Debug, Default, Serialize)]
pub struct MigrationReport {
    pub inventory: Vec<FileOutcome>,
    /// Documents that were added or extended.
    #[serde(rename = "kept")]
    pub stored: usize,
    /// Events that were added.
    pub learnt: usize,
    /// States that were added as records.
    pub recorded: usize,
    /// Old files that were moved to the archive.
    pub moved: usize,
    /// Files without any change.
    pub unchanged: usize,
    /// Secrets that were replaced in the copy, by kind.
    pub secrets: SecretCounts,
    /// What the user should look at.
    pub complaints: Vec<String>,
    /// The path of the inventory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub report: Option<String>,
    /// The inventory as a table.
    #[serde(skip)]
    pub table: String,
}

fn to_file_outcome(account: &FileAccount) -> FileOutcome {
    FileOutcome {
        path: account.path.clone(),
        lines: account.lines,
        bytes: account.bytes,
        stands: account.stored_in.clone(),
        becomes: account.produced.clone(),
        missing: account.missing_lines(),
    }
}

impl Memory {
    /// Imports a folder; with `dry_run` it only plans.
    pub async fn migrate(
        &self,
        files: Vec<OldFolderFile>,
        empty: Vec<String>,
        in_place: bool,
        dry_run: bool,
    ) -> Result<MigrationReport> {
        let now = self.now();
        if self.is_looking_back().await? {
            return Err(Error::NotFound("the ledger has events after that moment; migrate works only in the present, without --now".into()));
        }
        let _alone = if dry_run { None } else { Some(self.acquire_consolidation_lease().await?) };
        let mut secrets = SecretCounts::new();
        let mut complaints = Vec::new();
        let found: Vec<SourceFile> = files
            .into_iter()
            .map(|file| {
                let before = secrets.values().sum::<usize>();
                // A file that is in the vault already is not imported.
                let bytes = if in_place {
                    file.bytes
                } else {
                    self.filter_file(&file.path, file.bytes, &mut secrets)
                };
                let hidden = secrets.values().sum::<usize>() - before;
                if hidden > 0 {
                    let many = if hidden == 1 {
                        "a secret, which is".into()
                    } else {
                        format!("{hidden} secrets, which are")
                    };
                    complaints.push(format!(
                        "{} contains {many} hidden in the copy; the folder itself is not changed",
                        file.path
                    ));
                }
                SourceFile {
                    path: file.path,
                    bytes,
                    modified: file.modified.map(|at| self.zone.moment(at)),
                }
            })
            .collect();
        let plan = self.plan_migration(&found, &empty, in_place).await?;
        complaints.extend(plan.complaints.iter().cloned());
        let mut migrated = MigrationReport {
            inventory: plan.inventory.iter().map(to_file_outcome).collect(),
            complaints,
            secrets,
            table: migrate::render_report(&plan),
            ..MigrationReport::default()
        };
        for step in &plan.steps {
            match step {
                MigrationStep::Keep { .. } | MigrationStep::Merge { .. } => migrated.stored += 1,
                MigrationStep::Learn { .. } => migrated.learnt += 1,
                MigrationStep::Record { .. } => migrated.recorded += 1,
                MigrationStep::Move { .. } => migrated.moved += 1,
                MigrationStep::Nothing { .. } => migrated.unchanged += 1,
                MigrationStep::RemoveFolder(_) => {}
            }
        }
        if dry_run || plan.is_done() {
            return Ok(migrated);
        }
        if self.history.check_available().await.is_ok() {
            let _ = self.snapshot_without_secrets("before migration", &mut migrated.secrets).await;
        }
        // The inventory comes first: whatever happens next, it records what was there.
        let report: DocPath =
            format!("{}/inventory-{}.md", migrate::ARCHIVE, sanitize::entity_key(&now.to_string()))
                .parse()
                .map_err(StoreError::from)?;
        self.store.put(&report, migrated.table.as_bytes()).await?;
        migrated.report = Some(report.to_string());
        self.run_migration(plan, &mut migrated).await?;
        Ok(migrated)
    }

    async fn plan_migration(
        &self,
        found: &[SourceFile],
        empty: &[String],
        in_place: bool,
    ) -> Result<MigrationPlan> {
        let mut documents: HashMap<DocPath, Vec<u8>> = HashMap::new();
        for path in self.store.documents("").await? {
            // Records are not migrated, and there may be very many.
            if path.record_day().is_none()
                && let Some(bytes) = self.store.document(&path).await?
            {
                documents.insert(path, bytes);
            }
        }
        let mut events: Vec<Event> =
            self.load_ledger().await?.entries().iter().map(|entry| entry.event.clone()).collect();
        events.extend(self.store.archived_events(&EventQuery::all()).await?);
        events.sort_by_key(|event| event.id);
        let (mut said, mut taken): (HashMap<String, EventId>, HashMap<(String, String), EventId>) =
            Default::default();
        for event in events.iter().filter(|event| {
            event.is_statement() || event.extra_field::<String>(OLD_ID_FIELD).is_some()
        }) {
            let key = sanitize::sameness_key(&event.content);
            if let Some(was) = event.extra_field::<String>(OLD_ID_FIELD) {
                taken.entry((was, key.clone())).or_insert(event.id);
            }
            said.entry(key).or_insert(event.id);
        }
        let vault = VaultView {
            documents: &|path| documents.get(path).cloned(),
            event_with_content: &|key| said.get(key).copied(),
            migrated_event: &|was, key| taken.get(&(was.to_owned(), key.to_owned())).copied(),
            in_place,
        };
        let mut plan = migrate::plan_migration(found, empty, &vault, self.now(), &self.zone);
        for file in found {
            let text = String::from_utf8_lossy(&file.bytes);
            if self.policy.capture.hide_secrets
                && self.filter_without_report(&text).contains("[secret:")
                && !text.contains("[secret:")
            {
                plan.complaints
                    .push(format!("{} contains secrets; the file is not changed, but the ledger and every pack hide them", file.path));
            }
        }
        // Drops states that are stored already.
        for step in &mut plan.steps {
            // An event that was added with its secrets hidden is recognized by the filtered text.
            if let MigrationStep::Learn { from, draft, was, .. } = step {
                let gated = sanitize::sameness_key(&self.filter_without_report(&draft.content));
                let known = match was {
                    Some(was) => taken.contains_key(&(was.clone(), gated.clone())),
                    None => said.contains_key(&gated),
                };
                if gated != sanitize::sameness_key(&draft.content) && known {
                    *step = MigrationStep::Nothing {
                        from: from.clone(),
                        why: "it is in the ledger already, with its secrets hidden".into(),
                    };
                }
            }
            if let MigrationStep::Record { from, at, title, text } = step {
                let record = self.old_state_record(*at, title.clone(), text);
                let kept = self
                    .store
                    .records(Days { first: record.ts.day(), last: record.ts.day() })
                    .await?;
                if kept.iter().any(|kept| kept.key() == record.key()) {
                    *step = MigrationStep::Nothing {
                        from: from.clone(),
                        why: "the state is stored already".into(),
                    };
                }
            }
        }
        Ok(plan)
    }

    /// Passes a file of an old folder through the capture filter. JSON lines are filtered one by
    /// one, and stay valid JSON.
    fn filter_file(&self, name: &str, bytes: Vec<u8>, hidden: &mut SecretCounts) -> Vec<u8> {
        let Ok(text) = std::str::from_utf8(&bytes) else { return bytes };
        let mut pass = |text: &str| self.filter_and_count(text, hidden);
        let lines = name.ends_with(".jsonl");
        let passed: String = if lines {
            let is_json = |line: &str| serde_json::from_str::<serde::de::IgnoredAny>(line).is_ok();
            text.split_inclusive('\n')
                .map(|line| {
                    let passed = pass(line);
                    if passed == line || is_json(&passed) || !is_json(line) {
                        passed
                    } else {
                        format!(
                            "{{\"hidden\":\"{}\"}}\n",
                            self.marker_key.mark("line", line.as_bytes())
                        )
                    }
                })
                .collect()
        } else {
            pass(text)
        };
        if passed == text { bytes } else { passed.into_bytes() }
    }

    /// The record of a state of an old folder.
    fn old_state_record(&self, at: Moment, title: Option<String>, text: &str) -> Record {
        let (text, ts) = (self.filter_without_report(text), self.zone.moment(at.timestamp()));
        Record {
            ts,
            conversation: STATES_CONVERSATION.into(),
            session: None,
            id: record::derived_id(None, Role::Assistant, title.as_deref(), &text, Some(ts), 0),
            role: Role::Assistant,
            name: None,
            other_speaker: None,
            kind: RecordKind::State,
            title,
            text,
            parts: None,
            origin: Origin::File,
            captured: self.now(),
            extra: Vec::new(),
            withdrawn: false,
        }
    }

    async fn run_migration(&self, plan: MigrationPlan, report: &mut MigrationReport) -> Result<()> {
        let mut known: BTreeMap<String, EventId> = plan.known_old_ids.into_iter().collect();
        let mut waiting: Vec<(EventDraft, Option<String>)> = Vec::new();
        for step in plan.steps {
            if !matches!(step, MigrationStep::Learn { .. }) {
                // In the order of the plan: a file is moved only after its content is stored.
                self.append_old_events(&mut waiting, &mut known).await?;
            }
            match step {
                MigrationStep::Learn { draft, was, replaces, related, from, line } => {
                    let named =
                        |was: &String| waiting.iter().any(|(_, other)| other.as_ref() == Some(was));
                    if replaces.iter().chain(&related).any(named) {
                        self.append_old_events(&mut waiting, &mut known).await?;
                    }
                    let mut draft = *draft;
                    draft.supersedes.extend(replaces.iter().filter_map(|was| known.get(was)));
                    draft.related.extend(related.iter().filter_map(|was| known.get(was)));
                    match self.filter_draft(draft, &mut report.secrets).sanitize() {
                        Ok((draft, _)) => waiting.push((draft, was)),
                        Err(unfit) => {
                            report.complaints.push(format!("{from}:{line} was not added: {unfit}"))
                        }
                    }
                }
                // If another process was faster, the next run starts from the new content.
                MigrationStep::Keep { to, bytes, .. } => {
                    match self.store.compare_and_swap(&to, &bytes, ContentVersion::ABSENT).await {
                        Err(StoreError { kind: StoreErrorKind::Conflict, .. }) => report
                            .complaints
                            .push(format!("{to} was created meanwhile; run the migration again")),
                        other => other?,
                    }
                }
                MigrationStep::Merge { to, bytes, .. } => {
                    self.store.append_to_document(&to, &bytes).await?
                }
                MigrationStep::Record { at, title, text, .. } => {
                    self.store.add_records(vec![self.old_state_record(at, title, &text)]).await?;
                }
                MigrationStep::Move { from, to } => {
                    let Ok(old) = from.parse::<DocPath>() else {
                        report.complaints.push(format!(
                            "{from} was not moved: its name is not a valid path of a vault"
                        ));
                        continue;
                    };
                    let Some(bytes) = self.store.document(&old).await? else { continue };
                    let there = self.store.document(&to).await?;
                    if there.as_ref() != Some(&bytes) {
                        self.store
                            .compare_and_swap(&to, &bytes, ContentVersion::of(there.as_deref()))
                            .await?;
                    }
                    self.store.remove_unchanged(&old, ContentVersion::of(Some(&bytes))).await?;
                }
                MigrationStep::RemoveFolder(name) => {
                    if let Ok(folder) = name.parse::<DocPath>() {
                        self.store.remove_empty_folder(&folder).await?;
                    }
                }
                MigrationStep::Nothing { .. } => {}
            }
        }
        self.append_old_events(&mut waiting, &mut known).await
    }

    /// Appends the collected events, and records the new ids of old ones.
    async fn append_old_events(
        &self,
        waiting: &mut Vec<(EventDraft, Option<String>)>,
        known: &mut BTreeMap<String, EventId>,
    ) -> Result<()> {
        if waiting.is_empty() {
            return Ok(());
        }
        let (drafts, were): (Vec<EventDraft>, Vec<Option<String>>) =
            std::mem::take(waiting).into_iter().unzip();
        for (event, was) in self.store.append(drafts, None).await?.iter().zip(were) {
            known.extend(was.map(|was| (was, event.id)));
        }
        Ok(())
    }
}
