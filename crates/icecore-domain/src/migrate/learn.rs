//! Events from old files: statements of curated texts, and the events of an older ledger.
//!
//! A text counts a statement once, however many files repeat it. A ledger line is identified by its
//! old id and its content, so closing a commitment in the words in which it was opened is no
//! duplicate.

use std::collections::BTreeMap;

use super::place::Shape;
use super::plan::{Planner, shown};
use super::read::{self, OldEvent, Statement, Which};
use super::{Account, Found, Step, WAS};
use crate::event::{Draft, MAX_FIELD_BYTES, Origin, Unfit};
use crate::ledger;
use crate::plain;

impl Planner<'_> {
    /// Adds the statements of a text that the vault does not know yet.
    pub(super) fn learn(&mut self, found: &Found, which: Which, account: &mut Account) {
        let text = String::from_utf8_lossy(&found.bytes);
        if matches!(text, std::borrow::Cow::Owned(_)) {
            self.complain(format!(
                "{}: not valid UTF-8; stored unchanged, read without the invalid bytes",
                shown(&found.path)
            ));
        }
        let reading = read::statements(&text, which);
        if reading.beyond > 0 {
            let path = shown(&found.path);
            self.complain(format!(
                "{path}: {} statements beyond the first {} are stored as text only",
                reading.beyond,
                read::MAX_STATEMENTS
            ));
        }
        let (mut new, mut known, mut lines) = (0, 0, 0);
        for said in reading.statements {
            let (line, span) = (said.line, said.lines);
            let draft = match fit(self.statement(found, said)) {
                Ok(draft) => draft,
                Err(unfit) => {
                    self.complain(format!(
                        "{}:{line} is stored as text only: {unfit}",
                        shown(&found.path)
                    ));
                    continue;
                }
            };
            let key = plain::sameness_key(&draft.content);
            if key.is_empty() {
                continue;
            }
            lines += span;
            if self.learnt.contains(&key) || (self.vault.said)(&key).is_some() {
                known += 1;
                continue;
            }
            new += 1;
            self.learnt.insert(key);
            let draft = Box::new(draft);
            self.plan.steps.push(Step::Learn {
                from: found.path.clone(),
                line,
                draft,
                was: None,
                replaces: Vec::new(),
                related: Vec::new(),
            });
        }
        account.becomes.push(("event".into(), new));
        account.becomes.push(("known event".into(), known));
        account.becomes.push(("text line".into(), account.lines.saturating_sub(lines)));
    }

    fn statement(&self, found: &Found, said: Statement) -> Draft {
        let mut draft = Draft::new(self.now, said.kind, said.priority, said.text);
        draft.origin = Origin::File;
        let path = plain::one_line(&found.path);
        draft.source =
            format!("{}:{}", &path[..path.floor_char_boundary(MAX_FIELD_BYTES - 24)], said.line);
        draft.entity = said.entity;
        draft.tags = said.tags;
        draft.status = said.status;
        draft
    }

    /// Loads the events that earlier runs created from these ledgers.
    pub(super) fn know<'f>(&mut self, ledgers: impl Iterator<Item = &'f Found>) {
        for found in ledgers {
            if self.is_at_home(found, &Shape::Ledger) {
                continue;
            }
            for line in ledger::lines(&found.bytes, 1) {
                for event in read::old_events(line.bytes, self.now, self.zone).unwrap_or_default() {
                    let key = fit(event.draft)
                        .map_or(String::new(), |draft| plain::sameness_key(&draft.content));
                    self.taken.extend((self.vault.taken)(&event.was, &key));
                }
            }
        }
    }

    pub(super) fn learn_ledger(&mut self, found: &Found, account: &mut Account) {
        let (mut new, mut known, mut foreign) = (0, 0, 0);
        let mut ids: BTreeMap<String, String> = BTreeMap::new();
        for line in
            ledger::lines(&found.bytes, 1).filter(|line| !line.bytes.trim_ascii().is_empty())
        {
            let at = format!("{}:{}", shown(&found.path), line.number);
            let events = match read::old_events(line.bytes, self.now, self.zone) {
                Ok(events) => events,
                Err(why) => {
                    foreign += 1;
                    self.complain(format!("{at} {why}; it is stored as text only"));
                    continue;
                }
            };
            for mut event in events {
                for odd in std::mem::take(&mut event.odd) {
                    self.complain(format!("{at} {odd}"));
                }
                let first =
                    ids.entry(event.was.clone()).or_insert_with(|| event.draft.content.clone());
                if *first != event.draft.content {
                    self.complain(format!(
                        "{at} uses the id {} again for other content; both are migrated",
                        shown(&event.was)
                    ));
                }
                match self.learn_event(found, line.number, event) {
                    Ok(true) => new += 1,
                    Ok(false) => known += 1,
                    Err(unfit) => {
                        foreign += 1;
                        self.complain(format!("{at} is stored as text only: {unfit}"));
                    }
                }
            }
        }
        account.becomes.push(("event".into(), new));
        account.becomes.push(("known event".into(), known));
        account.becomes.push(("text line".into(), foreign));
    }

    /// Adds an event of an older ledger; false if it is known.
    fn learn_event(&mut self, found: &Found, line: usize, event: OldEvent) -> Result<bool, Unfit> {
        let states = event.only_states();
        let draft = fit(event.draft.clone())?;
        let key = plain::sameness_key(&draft.content);
        let said = (self.vault.said)(&key);
        let OldEvent { was, replaces, related, .. } = event;
        if !self.lines_taken.insert((was.clone(), key.clone())) {
            return Ok(false);
        }
        // If an event from elsewhere has the same content, this one is the duplicate.
        let known =
            (self.vault.taken)(&was, &key).or(said.filter(|id| states && !self.taken.contains(id)));
        self.learnt.insert(key);
        if let Some(id) = known {
            self.plan.known.push((was, id));
            return Ok(false);
        }
        let draft = Box::new(draft.with_field(WAS, &was));
        self.plan.steps.push(Step::Learn {
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
fn fit(draft: Draft) -> Result<Draft, Unfit> {
    match draft.clone().cleaned() {
        Ok((draft, _)) => Ok(draft),
        Err(Unfit::NotAName { .. }) => fit(Draft { entity: None, ..draft }),
        Err(Unfit::NotOwed { .. }) => fit(Draft { due: None, waiting_on: None, ..draft }),
        Err(unfit) => Err(unfit),
    }
}
