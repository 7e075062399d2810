//! Imports an older memory folder (L18, K11).
//!
//! Invariants: nothing of the old folder is lost, every line of it is accounted for, and a second
//! run changes nothing.

use std::collections::{BTreeMap, HashMap};

use icecore_domain::calendar::{Days, Moment};
use icecore_domain::event::{Draft, Event, Origin};
use icecore_domain::id::EventId;
use icecore_domain::layout::DocPath;
use icecore_domain::ledger::query::EventQuery;
use icecore_domain::migrate::{self, Account, Found, Plan, Step, Vault, WAS};
use icecore_domain::plain;
use icecore_domain::record::{self, Captured, Record, Role};
use icecore_store::{ContentVersion, Error as StoreError};
use jiff::Timestamp;
use serde::Serialize;

use crate::capture::STATES;
use crate::{Error, Memory, Result, Secrets};

/// A file of the old folder.
#[derive(Debug, Clone)]
pub struct OldFile {
    /// Its path in the folder, parts separated by `/`.
    pub path: String,
    pub bytes: Vec<u8>,
    pub modified: Option<Timestamp>,
}

/// What happened to one old file.
#[derive(Debug, Clone, Serialize)]
pub struct Accounted {
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
pub struct Migrated {
    pub inventory: Vec<Accounted>,
    /// Documents that were added or extended.
    pub kept: usize,
    /// Events that were added.
    pub learnt: usize,
    /// States that were added as records.
    pub recorded: usize,
    /// Old files that were moved to the archive.
    pub moved: usize,
    /// Files without any change.
    pub unchanged: usize,
    /// Secrets that were replaced in the copy, by kind.
    pub secrets: Secrets,
    /// What the user should look at.
    pub complaints: Vec<String>,
    /// The path of the inventory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub report: Option<String>,
    /// The inventory as a table.
    #[serde(skip)]
    pub table: String,
}

fn accounted(account: &Account) -> Accounted {
    Accounted {
        path: account.path.clone(),
        lines: account.lines,
        bytes: account.bytes,
        stands: account.stands.clone(),
        becomes: account.becomes.clone(),
        missing: account.missing(),
    }
}

impl Memory {
    /// Imports a folder; with `dry_run` it only plans.
    pub async fn migrate(
        &self,
        files: Vec<OldFile>,
        empty: Vec<String>,
        in_place: bool,
        dry_run: bool,
    ) -> Result<Migrated> {
        let now = self.now();
        if self.looks_back().await? {
            return Err(Error::Nothing("the ledger has events after that moment; migrate works only in the present, without --now".into()));
        }
        let _alone = if dry_run { None } else { Some(self.claim_night().await?) };
        let mut secrets = Secrets::new();
        let mut complaints = Vec::new();
        let found: Vec<Found> = files
            .into_iter()
            .map(|file| {
                let before = secrets.values().sum::<usize>();
                // A file that is in the vault already is not imported.
                let bytes = if in_place {
                    file.bytes
                } else {
                    self.gate_file(&file.path, file.bytes, &mut secrets)
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
                Found {
                    path: file.path,
                    bytes,
                    modified: file.modified.map(|at| self.zone.moment(at)),
                }
            })
            .collect();
        let plan = self.plan_migration(&found, &empty, in_place).await?;
        complaints.extend(plan.complaints.iter().cloned());
        let mut migrated = Migrated {
            inventory: plan.inventory.iter().map(accounted).collect(),
            complaints,
            secrets,
            table: migrate::report(&plan),
            ..Migrated::default()
        };
        for step in &plan.steps {
            match step {
                Step::Keep { .. } | Step::Merge { .. } => migrated.kept += 1,
                Step::Learn { .. } => migrated.learnt += 1,
                Step::Record { .. } => migrated.recorded += 1,
                Step::Move { .. } => migrated.moved += 1,
                Step::Nothing { .. } => migrated.unchanged += 1,
                Step::RemoveFolder(_) => {}
            }
        }
        if dry_run || plan.is_done() {
            return Ok(migrated);
        }
        if self.history.available().await.is_ok() {
            let _ = self.keep_state("before migration", &mut migrated.secrets).await;
        }
        // The inventory comes first: whatever happens next, it records what was there.
        let report: DocPath =
            format!("{}/inventory-{}.md", migrate::ARCHIVE, plain::entity_key(&now.to_string()))
                .parse()
                .map_err(StoreError::Path)?;
        self.store.put(&report, migrated.table.as_bytes()).await?;
        migrated.report = Some(report.to_string());
        self.carry_out(plan, &mut migrated).await?;
        Ok(migrated)
    }

    async fn plan_migration(
        &self,
        found: &[Found],
        empty: &[String],
        in_place: bool,
    ) -> Result<Plan> {
        let mut documents: HashMap<DocPath, Vec<u8>> = HashMap::new();
        for path in self.store.documents("").await? {
            // Records are no target of a migration, and there may be very many.
            if path.record_day().is_none()
                && let Some(bytes) = self.store.document(&path).await?
            {
                documents.insert(path, bytes);
            }
        }
        let mut events: Vec<Event> =
            self.ledger().await?.entries().iter().map(|entry| entry.event.clone()).collect();
        events.extend(self.store.archived(&EventQuery::everything()).await?);
        events.sort_by_key(|event| event.id);
        let (mut said, mut taken): (HashMap<String, EventId>, HashMap<(String, String), EventId>) =
            Default::default();
        for event in events
            .iter()
            .filter(|event| event.is_statement() || event.field::<String>(WAS).is_some())
        {
            let key = plain::sameness_key(&event.content);
            if let Some(was) = event.field::<String>(WAS) {
                taken.entry((was, key.clone())).or_insert(event.id);
            }
            said.entry(key).or_insert(event.id);
        }
        let vault = Vault {
            documents: &|path| documents.get(path).cloned(),
            said: &|key| said.get(key).copied(),
            taken: &|was, key| taken.get(&(was.to_owned(), key.to_owned())).copied(),
            in_place,
        };
        let mut plan = migrate::plan(found, empty, &vault, self.now(), &self.zone);
        for file in found {
            let text = String::from_utf8_lossy(&file.bytes);
            if self.policy.capture.hide_secrets
                && self.gate_text(&text).contains("[secret:")
                && !text.contains("[secret:")
            {
                plan.complaints
                    .push(format!("{} contains secrets; the file is not changed, but the ledger and every pack hide them", file.path));
            }
        }
        // Drops states that are stored already.
        for step in &mut plan.steps {
            // An event that was added with its secrets hidden is recognized by the filtered text.
            if let Step::Learn { from, draft, was, .. } = step {
                let gated = plain::sameness_key(&self.gate_text(&draft.content));
                let known = match was {
                    Some(was) => taken.contains_key(&(was.clone(), gated.clone())),
                    None => said.contains_key(&gated),
                };
                if gated != plain::sameness_key(&draft.content) && known {
                    *step = Step::Nothing {
                        from: from.clone(),
                        why: "it is in the ledger already, with its secrets hidden".into(),
                    };
                }
            }
            if let Step::Record { from, at, title, text } = step {
                let record = self.old_state(*at, title.clone(), text);
                let kept = self
                    .store
                    .records(Days { first: record.ts.day(), last: record.ts.day() })
                    .await?;
                if kept.iter().any(|kept| kept.key() == record.key()) {
                    *step = Step::Nothing {
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
    fn gate_file(&self, name: &str, bytes: Vec<u8>, hidden: &mut Secrets) -> Vec<u8> {
        let Ok(text) = std::str::from_utf8(&bytes) else { return bytes };
        let mut pass = |text: &str| self.gate_told(text, hidden);
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
    fn old_state(&self, at: Moment, title: Option<String>, text: &str) -> Record {
        let (text, ts) = (self.gate_text(text), self.zone.moment(at.at()));
        Record {
            ts,
            conversation: STATES.into(),
            session: None,
            id: record::made_id(None, Role::Assistant, title.as_deref(), &text, Some(ts), 0),
            role: Role::Assistant,
            name: None,
            other_speaker: None,
            kind: Captured::State,
            title,
            text,
            parts: None,
            origin: Origin::File,
            captured: self.now(),
            extra: Vec::new(),
            withdrawn: false,
        }
    }

    async fn carry_out(&self, plan: Plan, migrated: &mut Migrated) -> Result<()> {
        let mut known: BTreeMap<String, EventId> = plan.known.into_iter().collect();
        let mut waiting: Vec<(Draft, Option<String>)> = Vec::new();
        for step in plan.steps {
            if !matches!(step, Step::Learn { .. }) {
                // In the order of the plan: a file is moved only after its content is stored.
                self.learn_old(&mut waiting, &mut known).await?;
            }
            match step {
                Step::Learn { draft, was, replaces, related, from, line } => {
                    let named =
                        |was: &String| waiting.iter().any(|(_, other)| other.as_ref() == Some(was));
                    if replaces.iter().chain(&related).any(named) {
                        self.learn_old(&mut waiting, &mut known).await?;
                    }
                    let mut draft = *draft;
                    draft.supersedes.extend(replaces.iter().filter_map(|was| known.get(was)));
                    draft.related.extend(related.iter().filter_map(|was| known.get(was)));
                    match self.gate_draft(draft, &mut migrated.secrets).cleaned() {
                        Ok((draft, _)) => waiting.push((draft, was)),
                        Err(unfit) => migrated
                            .complaints
                            .push(format!("{from}:{line} was not added: {unfit}")),
                    }
                }
                // If another process was faster, the next run starts from the new content.
                Step::Keep { to, bytes, .. } => {
                    match self.store.swap(&to, &bytes, ContentVersion::ABSENT).await {
                        Err(StoreError::Moved { .. }) => migrated
                            .complaints
                            .push(format!("{to} was created meanwhile; run the migration again")),
                        other => other?,
                    }
                }
                Step::Merge { to, bytes, .. } => self.store.extend(&to, &bytes).await?,
                Step::Record { at, title, text, .. } => {
                    self.store.add_records(vec![self.old_state(at, title, &text)]).await?;
                }
                Step::Move { from, to } => {
                    let Ok(old) = from.parse::<DocPath>() else {
                        migrated.complaints.push(format!(
                            "{from} was not moved: its name is not a valid path of a vault"
                        ));
                        continue;
                    };
                    let Some(bytes) = self.store.document(&old).await? else { continue };
                    let there = self.store.document(&to).await?;
                    if there.as_ref() != Some(&bytes) {
                        self.store.swap(&to, &bytes, ContentVersion::of(there.as_deref())).await?;
                    }
                    self.store.remove_unchanged(&old, ContentVersion::of(Some(&bytes))).await?;
                }
                Step::RemoveFolder(name) => {
                    if let Ok(folder) = name.parse::<DocPath>() {
                        self.store.remove_folder(&folder).await?;
                    }
                }
                Step::Nothing { .. } => {}
            }
        }
        self.learn_old(&mut waiting, &mut known).await
    }

    /// Appends the collected events, and records the new ids of old ones.
    async fn learn_old(
        &self,
        waiting: &mut Vec<(Draft, Option<String>)>,
        known: &mut BTreeMap<String, EventId>,
    ) -> Result<()> {
        if waiting.is_empty() {
            return Ok(());
        }
        let (drafts, were): (Vec<Draft>, Vec<Option<String>>) =
            std::mem::take(waiting).into_iter().unzip();
        for (event, was) in self.store.append(drafts, None).await?.iter().zip(were) {
            known.extend(was.map(|was| (was, event.id)));
        }
        Ok(())
    }
}
