//! Import of other programs' histories: messages pass the capture filter like everything else, and
//! facts become events.
//!
//! The progress of a file is stored after its records are safe. A run that crashed reads some
//! records again and recognizes them; lost progress costs time only.

use std::collections::{HashMap, HashSet};

use icecore_domain::event::{Draft, Kind, Origin, Priority, SAID, Scope, Unfit, guess_kind};
use icecore_domain::id::EventId;
use icecore_domain::import::Fact;
use icecore_domain::layout::{self, DocPath};
use icecore_domain::ledger::query::EventQuery;
use icecore_domain::migrate::WAS;
use icecore_domain::plain;
use icecore_domain::record::{Record, Said};
use icecore_store::Error as StoreError;
use serde::{Deserialize, Serialize};

use crate::capture::{Gaps, Taken};
use crate::{Memory, Result};

/// The number of events that are appended at once.
const STEP: usize = 2_000;

/// The import progress of a file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadSoFar {
    /// Its path, or the path of an archive, `!` and the name within.
    pub path: String,
    pub format: String,
    /// The size of the file.
    pub size: u64,
    /// Its modification time, in nanoseconds since 1970.
    pub modified: i128,
    /// The bytes that were read.
    pub bytes: u64,
    /// The pieces that were read.
    pub pieces: usize,
    /// A hash of the last of these bytes, to recognize the file.
    pub tail: String,
    /// It was read completely.
    pub done: bool,
    /// The reader's state, to continue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left: Option<String>,
}

/// Messages that passed the capture filter and are not stored yet.
#[derive(Debug, Default)]
pub struct Gated {
    pub records: Vec<Record>,
    /// What the filter did.
    pub taken: Taken,
}

/// The facts that were imported before.
#[derive(Debug, Default)]
pub struct KnownFacts {
    /// By their id in the source.
    was: HashMap<String, (EventId, String)>,
    /// By their text.
    said: HashSet<String>,
}

/// The plan of a fact import.
#[derive(Debug, Default)]
pub struct Facts {
    /// New or changed facts.
    pub drafts: Vec<Draft>,
    /// The number of facts that are known.
    pub known: usize,
    /// Facts that cannot be imported, and why.
    pub complaints: Vec<String>,
}

impl Memory {
    /// Passes messages through the capture filter. `place` names the source of the message at a
    /// position.
    pub async fn gated(
        &self,
        said: Vec<Said>,
        gaps: &Gaps,
        place: &dyn Fn(usize) -> String,
    ) -> Result<Gated> {
        self.renew_tombstones().await?;
        let mut gated = Gated::default();
        let pauses = self.pauses().await?;
        let records =
            self.through_the_gate(said, gaps, self.now(), &pauses, place, &mut gated.taken);
        gated.records = self.recognised(records, false, &mut gated.taken).await?;
        Ok(gated)
    }

    /// Stores filtered messages.
    pub async fn keep_gated(&self, gated: Gated) -> Result<Taken> {
        let Gated { records, mut taken } = gated;
        self.keep(records, &mut taken).await?;
        Ok(taken)
    }

    /// Reads the facts that were imported before.
    pub async fn known_facts(&self) -> Result<KnownFacts> {
        let mut known = KnownFacts::default();
        let archived = self.store.archived(&EventQuery::everything()).await?;
        let ledger = self.ledger().await?;
        for event in archived.iter().chain(ledger.entries().iter().map(|entry| &entry.event)) {
            let key = plain::sameness_key(&event.content);
            if let Some(was) = event.field::<String>(WAS) {
                known.was.insert(was, (event.id, key.clone()));
            }
            if event.is_statement() {
                known.said.insert(key);
            }
        }
        Ok(known)
    }

    /// Plans the import of facts; their text passes the capture filter.
    pub fn facts(&self, facts: Vec<Fact>, known: &KnownFacts) -> Result<Facts> {
        let mut out = Facts::default();
        let mut seen = HashSet::new();
        for fact in facts {
            let (was, source) = (fact.was.clone(), fact.source.clone());
            let draft = match fit(self.drafted(fact)?) {
                Ok(draft) => draft,
                Err(unfit) => {
                    out.complaints
                        .push(format!("{} was not imported: {unfit}", plain::one_line(&source)));
                    continue;
                }
            };
            let key = plain::sameness_key(&draft.content);
            let before = known.was.get(&was);
            let same = before.is_some_and(|(_, before)| *before == key);
            // A statement that is known, from any source, is not repeated.
            if same || (before.is_none() && known.said.contains(&key)) || !seen.insert(key) {
                out.known += 1;
                continue;
            }
            out.drafts.push(
                Draft { supersedes: before.map(|(id, _)| *id).into_iter().collect(), ..draft }
                    .with_field(WAS, &was),
            );
        }
        Ok(out)
    }

    fn drafted(&self, fact: Fact) -> Result<Draft> {
        let text = self.gate_text(&fact.text);
        let kind = fact.kind.unwrap_or_else(|| guess_kind(&text));
        let mut priority = self.policy.default_priority()?;
        let mut kind = kind;
        if fact.origin == Origin::Import {
            // Another person's memory makes no rules here.
            priority = priority.max(Priority::P2);
            if matches!(kind, Kind::Constraint | Kind::Preference | Kind::Procedure) {
                kind = Kind::Fact;
            }
        }
        let draft = Draft {
            entity: fact.entity,
            entity_kind: fact.entity_kind,
            tags: fact.tags.into_iter().take(16).collect(),
            source: fact.source,
            scope: fact.project.map_or(Scope::Everywhere, Scope::Project),
            origin: fact.origin,
            ..Draft::new(self.now(), kind, priority, text)
        };
        Ok(match fact.said {
            Some(said) => draft.with_field(SAID, &self.zone.moment(said.at()).to_string()),
            None => draft,
        })
    }

    /// Appends facts and adds them to the known ones.
    pub async fn learn_facts(&self, drafts: Vec<Draft>, known: &mut KnownFacts) -> Result<usize> {
        let mut learnt = 0;
        let mut rest = drafts;
        while !rest.is_empty() {
            let later = rest.split_off(rest.len().min(STEP));
            for event in self.store.append(rest, None).await? {
                let key = plain::sameness_key(&event.content);
                if let Some(was) = event.field::<String>(WAS) {
                    known.was.insert(was, (event.id, key.clone()));
                }
                known.said.insert(key);
                learnt += 1;
            }
            rest = later;
        }
        Ok(learnt)
    }

    /// The import progress of all files.
    pub async fn imports(&self) -> Result<HashMap<String, ReadSoFar>> {
        let text = self.store.document(&imports_path()?).await?.unwrap_or_default();
        let lines = text
            .split(|&byte| byte == b'\n')
            .filter_map(|line| serde_json::from_slice::<ReadSoFar>(line).ok());
        Ok(lines.map(|line| (line.path.clone(), line)).collect())
    }

    /// Stores the import progress of files; their records must be stored by then.
    pub async fn note_imports(&self, read: &[ReadSoFar]) -> Result<()> {
        // A file whose name was forgotten gets no entry. It is read again each time, which costs
        // time only.
        let is_known = |line: &String| self.unless_forgotten(line.clone()) == *line;
        let lines: String = read
            .iter()
            .filter_map(|line| serde_json::to_string(line).ok())
            .filter(is_known)
            .map(|line| line + "\n")
            .collect();
        if lines.is_empty() {
            return Ok(());
        }
        Ok(self.store.extend(&imports_path()?, lines.as_bytes()).await?)
    }
}

fn imports_path() -> Result<DocPath> {
    Ok(layout::IMPORTS.parse().map_err(StoreError::Path)?)
}

/// The draft without the fields that would make it invalid.
fn fit(draft: Draft) -> std::result::Result<Draft, Unfit> {
    match draft.clone().cleaned() {
        Ok((draft, _)) => Ok(draft),
        Err(Unfit::NotAName { .. }) => fit(Draft { entity: None, entity_kind: None, ..draft }),
        Err(unfit) => Err(unfit),
    }
}
