//! Events from old files: statements of curated texts, and the events of an older ledger.
//!
//! A text counts a statement once, however many files repeat it. A ledger line is identified by its
//! old id and its content, so closing a commitment in the words in which it was opened is no
//! duplicate.

use std::collections::BTreeMap;

use super::old_file::OldFileKind;
use super::plan::{Planner, display_name};
use super::read::{self, OldEvent, Statement, StatementSelection};
use super::{FileAccount, MigrationStep, OLD_ID_FIELD, SourceFile};
use crate::event::{EventDraft, EventDraftError, MAX_FIELD_BYTES, Origin};
use crate::ledger;
use crate::sanitize;

impl Planner<'_> {
    /// Adds the statements of a text that the vault does not know yet.
    pub(super) fn learn_statements(
        &mut self,
        found: &SourceFile,
        which: StatementSelection,
        account: &mut FileAccount,
    ) {
        let text = String::from_utf8_lossy(&found.bytes);
        if matches!(text, std::borrow::Cow::Owned(_)) {
            self.add_complaint(format!(
                "{}: not valid UTF-8; stored unchanged, read without the invalid bytes",
                display_name(&found.path)
            ));
        }
        let reading = read::parse_statements(&text, which);
        if reading.beyond > 0 {
            let path = display_name(&found.path);
            self.add_complaint(format!(
                "{path}: {} statements beyond the first {} are stored as text only",
                reading.beyond,
                read::MAX_STATEMENTS
            ));
        }
        let (mut new, mut known, mut lines) = (0, 0, 0);
        for said in reading.statements {
            let (line, span) = (said.line, said.lines);
            let draft = match validate_draft(self.statement_draft(found, said)) {
                Ok(draft) => draft,
                Err(unfit) => {
                    self.add_complaint(format!(
                        "{}:{line} is stored as text only: {unfit}",
                        display_name(&found.path)
                    ));
                    continue;
                }
            };
            let key = sanitize::sameness_key(&draft.content);
            if key.is_empty() {
                continue;
            }
            lines += span;
            if self.learnt.contains(&key) || (self.vault.event_with_content)(&key).is_some() {
                known += 1;
                continue;
            }
            new += 1;
            self.learnt.insert(key);
            let draft = Box::new(draft);
            self.plan.steps.push(MigrationStep::Learn {
                from: found.path.clone(),
                line,
                draft,
                was: None,
                replaces: Vec::new(),
                related: Vec::new(),
            });
        }
        account.produced.push(("event".into(), new));
        account.produced.push(("known event".into(), known));
        account.produced.push(("text line".into(), account.lines.saturating_sub(lines)));
    }

    fn statement_draft(&self, found: &SourceFile, said: Statement) -> EventDraft {
        let mut draft = EventDraft::new(self.now, said.kind, said.priority, said.text);
        draft.origin = Origin::File;
        let path = sanitize::one_line(&found.path);
        draft.source =
            format!("{}:{}", &path[..path.floor_char_boundary(MAX_FIELD_BYTES - 24)], said.line);
        draft.entity = said.entity;
        draft.tags = said.tags;
        draft.status = said.status;
        draft
    }

    /// Loads the events that earlier runs created from these ledgers.
    pub(super) fn load_migrated_events<'f>(
        &mut self,
        ledgers: impl Iterator<Item = &'f SourceFile>,
    ) {
        for found in ledgers {
            if self.is_in_place(found, &OldFileKind::Ledger) {
                continue;
            }
            for line in ledger::raw_lines(&found.bytes, 1) {
                for event in
                    read::parse_old_events(line.bytes, self.now, self.zone).unwrap_or_default()
                {
                    let key = validate_draft(event.draft)
                        .map_or(String::new(), |draft| sanitize::sameness_key(&draft.content));
                    self.migrated_events.extend((self.vault.migrated_event)(&event.was, &key));
                }
            }
        }
    }

    pub(super) fn learn_ledger(&mut self, found: &SourceFile, account: &mut FileAccount) {
        let (mut new, mut known, mut foreign) = (0, 0, 0);
        let mut ids: BTreeMap<String, String> = BTreeMap::new();
        for line in
            ledger::raw_lines(&found.bytes, 1).filter(|line| !line.bytes.trim_ascii().is_empty())
        {
            let at = format!("{}:{}", display_name(&found.path), line.number);
            let events = match read::parse_old_events(line.bytes, self.now, self.zone) {
                Ok(events) => events,
                Err(why) => {
                    foreign += 1;
                    self.add_complaint(format!("{at} {why}; it is stored as text only"));
                    continue;
                }
            };
            for mut event in events {
                for odd in std::mem::take(&mut event.assumptions) {
                    self.add_complaint(format!("{at} {odd}"));
                }
                let first =
                    ids.entry(event.was.clone()).or_insert_with(|| event.draft.content.clone());
                if *first != event.draft.content {
                    self.add_complaint(format!(
                        "{at} uses the id {} again for other content; both are migrated",
                        display_name(&event.was)
                    ));
                }
                match self.learn_event(found, line.number, event) {
                    Ok(true) => new += 1,
                    Ok(false) => known += 1,
                    Err(unfit) => {
                        foreign += 1;
                        self.add_complaint(format!("{at} is stored as text only: {unfit}"));
                    }
                }
            }
        }
        account.produced.push(("event".into(), new));
        account.produced.push(("known event".into(), known));
        account.produced.push(("text line".into(), foreign));
    }

    /// Adds an event of an older ledger; false if it is known.
    fn learn_event(
        &mut self,
        found: &SourceFile,
        line: usize,
        event: OldEvent,
    ) -> Result<bool, EventDraftError> {
        let states = event.is_plain_statement();
        let draft = validate_draft(event.draft.clone())?;
        let key = sanitize::sameness_key(&draft.content);
        let said = (self.vault.event_with_content)(&key);
        let OldEvent { was, replaces, related, .. } = event;
        if !self.lines_taken.insert((was.clone(), key.clone())) {
            return Ok(false);
        }
        // If an event from elsewhere has the same content, this one is the duplicate.
        let known = (self.vault.migrated_event)(&was, &key)
            .or(said.filter(|id| states && !self.migrated_events.contains(id)));
        self.learnt.insert(key);
        if let Some(id) = known {
            self.plan.known_old_ids.push((was, id));
            return Ok(false);
        }
        let draft = Box::new(draft.with_extra_field(OLD_ID_FIELD, &was));
        self.plan.steps.push(MigrationStep::Learn {
            from: found.path.clone(),
            line,
            draft,
            was: Some(was),
            replaces,
            related,
        });
        Ok(true)
    }
}

/// The draft as it will be stored, without the fields that would make it invalid.
fn validate_draft(draft: EventDraft) -> Result<EventDraft, EventDraftError> {
    match draft.clone().sanitize() {
        Ok((draft, _)) => Ok(draft),
        Err(EventDraftError::InvalidEntityName { .. }) => {
            validate_draft(EventDraft { entity: None, ..draft })
        }
        Err(EventDraftError::NotACommitment { .. }) => {
            validate_draft(EventDraft { due: None, waiting_on: None, ..draft })
        }
        Err(unfit) => Err(unfit),
    }
}
