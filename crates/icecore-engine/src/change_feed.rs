//! The change feed: cheap fingerprints of a memory's parts, so that an observer knows what to read
//! again.

use std::collections::BTreeMap;

use icecore_domain::calendar::Days;
use icecore_domain::layout::{self, DocPath};
use icecore_domain::page::KNOWLEDGE_DIR;
use icecore_domain::record::RecordKind;
use icecore_store::Error as StoreError;
use jiff::ToSpan;
use serde::Serialize;

use crate::converse::files_of;
use crate::{Memory, Result};

/// How many of the latest conversations are watched.
const MAX_WATCHED_CONVERSATIONS: usize = 64;

/// A part of a memory that can change.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct ChangedPart {
    /// `ledger`, `conversation`, `summaries`, `runs`, `reviews`, `knowledge`, `messages`, `logs` or
    /// `config`.
    pub what: &'static str,
    /// The conversation, page or day, where there are several.
    pub name: Option<String>,
}

/// The fingerprints of all parts at one moment.
pub type Fingerprints = BTreeMap<ChangedPart, String>;

fn doc_path(text: &str) -> Result<DocPath> {
    Ok(text.parse().map_err(StoreError::from)?)
}

impl Memory {
    /// The current fingerprints. Only parts that users and chats change are included: the past does
    /// not change by itself.
    pub async fn compute_fingerprints(&self) -> Result<Fingerprints> {
        let today = self.now().day();
        let days: Vec<_> =
            [Some(today), today.checked_sub(1.day()).ok()].into_iter().flatten().collect();
        let mut watched: Vec<(ChangedPart, DocPath)> = Vec::new();
        let plain = |what| ChangedPart { what, name: None };
        for (what, place) in [
            ("ledger", layout::LEDGER),
            ("summaries", layout::SUMMARIES),
            ("runs", layout::RUNS),
            ("reviews", layout::REVIEW),
            ("config", layout::CONFIG),
        ] {
            watched.push((plain(what), doc_path(place)?));
        }
        for &day in &days {
            let name = Some(day.to_string());
            watched.push((ChangedPart { what: "logs", name: name.clone() }, DocPath::log(day)));
            watched.push((
                ChangedPart { what: "messages", name },
                DocPath::records(RecordKind::Message, day),
            ));
        }
        let span = Days { first: days.last().copied().unwrap_or(today), last: today };
        let mut spoken = self.store.sessions(Some(span)).await?;
        spoken.sort_by_key(|stat| std::cmp::Reverse(stat.last));
        let mut pulse = Fingerprints::new();
        for stat in spoken.iter().take(MAX_WATCHED_CONVERSATIONS) {
            let thing =
                ChangedPart { what: "conversation", name: Some(stat.key.conversation.clone()) };
            pulse.entry(thing.clone()).or_default().push_str(&format!("{} ", stat.digest.records));
            for place in files_of(&stat.key.conversation) {
                watched.push((thing.clone(), doc_path(&place)?));
            }
        }
        for look in self.store.list(KNOWLEDGE_DIR).await? {
            pulse.insert(
                ChangedPart { what: "knowledge", name: Some(look.path.to_string()) },
                look.stamp.0,
            );
        }
        let places: Vec<DocPath> = watched.iter().map(|(_, place)| place.clone()).collect();
        for ((thing, _), stamp) in watched.into_iter().zip(self.store.stamps(&places).await?) {
            pulse
                .entry(thing)
                .or_default()
                .push_str(&stamp.map_or_else(String::new, |stamp| format!("{} ", stamp.0)));
        }
        Ok(pulse)
    }
}

/// The parts that differ between two moments.
pub fn changed_parts(before: &Fingerprints, after: &Fingerprints) -> Vec<ChangedPart> {
    let new = after
        .iter()
        .filter(|(thing, stamp)| before.get(thing) != Some(stamp))
        .map(|(thing, _)| thing.clone());
    let gone = before.keys().filter(|thing| !after.contains_key(thing)).cloned();
    // A conversation that is no longer among the latest, or a past day, has not changed.
    new.chain(gone.filter(|thing| thing.what == "knowledge")).collect()
}
