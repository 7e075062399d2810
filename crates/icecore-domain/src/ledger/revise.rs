//! Which acts on an event are allowed, and what to do instead of a forbidden one.

use crate::event::{Effect, EventType, Origin};
use crate::id::EventId;
use crate::ledger::{EventState, LedgerEntry};
use crate::record::Trust;

/// Why an event cannot be superseded, closed, confirmed or retracted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RevisionError {
    /// There is no such event.
    #[error("there is no event {0}; `icecore events --all` lists every one")]
    Unknown(EventId),
    /// It was archived.
    #[error(
        "{0} is archived; `icecore remember … --supersedes {0}` records it again, `icecore show {0}` shows it"
    )]
    Archived(EventId),
    /// Another event was faster, or the id is outdated.
    #[error("{id} was already replaced by {by}; use {by} instead")]
    Superseded { id: EventId, by: EventId },
    /// It is already closed.
    #[error("{id} was already closed by {by}; `icecore retract {by}` reopens it")]
    Closed { id: EventId, by: EventId },
    /// It is already retracted.
    #[error("{id} was retracted by {by}; `icecore retract {by}` restores it")]
    Retracted { id: EventId, by: EventId },
    /// Only commitments can be closed.
    #[error(
        "{id} is a {kind}, and only commitments can be closed; `icecore retract {id}` retracts it, `icecore remember … --supersedes {id}` replaces it"
    )]
    NotACommitment { id: EventId, kind: EventType },
    /// An untrusted origin cannot end a trusted statement.
    #[error(
        "the source is a tool or another person, which cannot end {id}; ask the user to confirm it"
    )]
    Untrusted { id: EventId },
    /// Acts cannot be replaced, closed or confirmed.
    #[error(
        "{id} is not a statement but acts on others; only `icecore retract {id}` applies to it"
    )]
    NotAStatement { id: EventId },
}

/// Like [`check_revision`], for an act of that origin. An untrusted origin cannot end an event that
/// is in effect, because its own acts have no effect until they are confirmed.
pub fn check_revision_by(
    origin: Origin,
    id: EventId,
    entry: Option<&LedgerEntry>,
    effect: Effect,
) -> Result<(), RevisionError> {
    check_revision(id, entry, effect)?;
    let ends = matches!(effect, Effect::Supersede | Effect::Close | Effect::Retract);
    let counts = entry.is_some_and(|entry| !entry.is_quarantined());
    if ends && counts && Trust::from_origin(origin) == Trust::Low {
        Err(RevisionError::Untrusted { id })
    } else {
        Ok(())
    }
}

/// Checks whether `effect` is allowed on the event `id`, whose entry is `entry` if it exists.
pub fn check_revision(
    id: EventId,
    entry: Option<&LedgerEntry>,
    effect: Effect,
) -> Result<(), RevisionError> {
    let Some(entry) = entry else { return Err(RevisionError::Unknown(id)) };
    match (entry.state, effect) {
        (EventState::Retracted { by }, _) => return Err(RevisionError::Retracted { id, by }),
        (_, Effect::Retract | Effect::None) => return Ok(()),
        (EventState::Superseded { by }, _) => return Err(RevisionError::Superseded { id, by }),
        (EventState::Closed { by }, _) => return Err(RevisionError::Closed { id, by }),
        (EventState::Active, _) => {}
    }
    if !entry.event.is_statement() {
        return Err(RevisionError::NotAStatement { id });
    }
    if effect == Effect::Close && entry.event.kind != EventType::Commitment {
        return Err(RevisionError::NotACommitment { id, kind: entry.event.kind });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::Ledger;
    use crate::ledger::tests::story;

    fn check(words: &str, target: u32, effect: Effect, refused: Option<&str>) {
        let ledger = Ledger::from_events(story(words));
        let id = EventId::new(ledger.entries()[0].event.id.day(), target);
        let found =
            check_revision(id, ledger.get(id), effect).err().map(|refusal| refusal.to_string());
        match (&found, refused) {
            (None, None) => {}
            (Some(found), Some(part)) if found.contains(part) => {}
            _ => panic!("{words} {target} {effect:?}: {found:?}, not {refused:?}"),
        }
    }

    // L3
    #[test]
    fn a_stranger_ends_nothing_that_counts() {
        let ledger = Ledger::from_events(story("c f"));
        let id = |number: u32| EventId::new(ledger.entries()[0].event.id.day(), number);
        for effect in [Effect::Supersede, Effect::Close, Effect::Retract] {
            for origin in [Origin::Tool, Origin::Import] {
                assert_eq!(
                    check_revision_by(origin, id(1), ledger.get(id(1)), effect),
                    Err(RevisionError::Untrusted { id: id(1) }),
                    "{effect:?}"
                );
            }
            assert_eq!(
                check_revision_by(Origin::Assistant, id(1), ledger.get(id(1)), effect),
                Ok(()),
                "{effect:?}"
            );
        }
        assert_eq!(
            check_revision_by(Origin::Tool, id(2), ledger.get(id(2)), Effect::Confirm),
            Ok(())
        );
        let mut whispered = ledger.get(id(2)).unwrap().clone();
        whispered.event.draft.origin = Origin::Tool;
        assert_eq!(
            check_revision_by(Origin::Tool, id(2), Some(&whispered), Effect::Retract),
            Ok(())
        );
    }

    // L3
    #[test]
    fn what_cannot_be_done_says_what_to_do_instead() {
        check("f", 9, Effect::Close, Some("no event EVT-20260213-009"));
        check("f", 1, Effect::Supersede, None);
        check("f s1", 1, Effect::Supersede, Some("use EVT-20260213-002 instead"));
        check("f", 1, Effect::Close, Some("is a fact"));
        check("c", 1, Effect::Close, None);
        check("c x1", 1, Effect::Close, Some("closed by EVT-20260213-002"));
        check("c x1", 2, Effect::Confirm, Some("not a statement"));
        check("c x1", 2, Effect::Retract, None);
        check("f r1", 1, Effect::Retract, Some("retracted by EVT-20260213-002"));
        check("f s1", 1, Effect::Retract, None);
    }
}
