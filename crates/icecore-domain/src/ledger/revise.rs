//! What may be done to an event, and what to do instead when it may not.

use crate::event::{Effect, Kind};
use crate::id::EventId;
use crate::ledger::{Entry, Standing};

/// Why an event cannot be superseded, closed, confirmed or retracted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// There is no such event.
    #[error("there is no event {0}; `icecore events --all` lists every one")]
    Unknown(EventId),
    /// It has left the ledger.
    #[error("{0} was put into the archive; `icecore remember … --supersedes {0}` says it anew, `icecore show {0}` shows it")]
    Archived(EventId),
    /// Somebody was faster, or the id is an old one.
    #[error("{id} was already replaced by {by}; act on {by} instead")]
    Superseded {
        /// The event.
        id: EventId,
        /// What replaced it.
        by: EventId,
    },
    /// It is done with.
    #[error("{id} was already closed by {by}; `icecore retract {by}` opens it again")]
    Closed {
        /// The event.
        id: EventId,
        /// What closed it.
        by: EventId,
    },
    /// It was taken back.
    #[error("{id} was taken back by {by}; `icecore retract {by}` brings it back")]
    Retracted {
        /// The event.
        id: EventId,
        /// What took it back.
        by: EventId,
    },
    /// Only commitments can be closed.
    #[error(
        "{id} is a {kind}, and only commitments are closed; `icecore retract {id}` takes it back, `icecore remember … --supersedes {id}` replaces it"
    )]
    NotACommitment {
        /// The event.
        id: EventId,
        /// What it is.
        kind: Kind,
    },
    /// Acts state nothing that could be replaced, closed or confirmed.
    #[error("{id} is not a statement but acts on others; the only thing to do with it is `icecore retract {id}`")]
    NotAStatement {
        /// The event.
        id: EventId,
    },
}

/// Whether `effect` may be had on the event of that id, which is `entry` if there is one.
pub fn may(id: EventId, entry: Option<&Entry>, effect: Effect) -> Result<(), Refusal> {
    let Some(entry) = entry else { return Err(Refusal::Unknown(id)) };
    match (entry.standing, effect) {
        (Standing::Retracted { by }, _) => return Err(Refusal::Retracted { id, by }),
        (_, Effect::Retract | Effect::None) => return Ok(()),
        (Standing::Superseded { by }, _) => return Err(Refusal::Superseded { id, by }),
        (Standing::Closed { by }, _) => return Err(Refusal::Closed { id, by }),
        (Standing::Active, _) => {}
    }
    if !entry.event.is_statement() {
        return Err(Refusal::NotAStatement { id });
    }
    if effect == Effect::Close && entry.event.kind != Kind::Commitment {
        return Err(Refusal::NotACommitment { id, kind: entry.event.kind });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::Ledger;
    use crate::ledger::tests::story;

    fn check(words: &str, target: u32, effect: Effect, refused: Option<&str>) {
        let ledger = Ledger::of(story(words));
        let id = EventId::new(ledger.entries()[0].event.id.day(), target);
        let found = may(id, ledger.get(id), effect).err().map(|refusal| refusal.to_string());
        match (&found, refused) {
            (None, None) => {}
            (Some(found), Some(part)) if found.contains(part) => {}
            _ => panic!("{words} {target} {effect:?}: {found:?}, not {refused:?}"),
        }
    }

    // L3
    #[test]
    fn what_cannot_be_done_says_what_to_do_instead() {
        check("f", 9, Effect::Close, Some("no event EVT-20260213-009"));
        check("f", 1, Effect::Supersede, None);
        check("f s1", 1, Effect::Supersede, Some("act on EVT-20260213-002 instead"));
        check("f", 1, Effect::Close, Some("is a fact"));
        check("c", 1, Effect::Close, None);
        check("c x1", 1, Effect::Close, Some("closed by EVT-20260213-002"));
        check("c x1", 2, Effect::Confirm, Some("not a statement"));
        check("c x1", 2, Effect::Retract, None);
        check("f r1", 1, Effect::Retract, Some("taken back by EVT-20260213-002"));
        check("f s1", 1, Effect::Retract, None);
    }
}
