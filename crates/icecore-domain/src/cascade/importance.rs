//! The importance of a day (Y10): detected from its content, unless it was set explicitly.

use super::extractive::{self, SentenceKind};
use crate::event::{Event, EventType, Priority};
use crate::summary::Importance;

/// The content of a day.
#[derive(Debug, Clone, Copy)]
pub struct DayActivity<'a> {
    /// The importance that was set explicitly.
    pub mark: Option<Importance>,
    /// The statements recorded on the day.
    pub events: &'a [Event],
    /// Lines of text about the day.
    pub lines: &'a [&'a str],
    /// The number of records.
    pub messages: u64,
    /// The bytes of text.
    pub bytes: u64,
}

/// The points from which a day is important.
const MIN_IMPORTANT_POINTS: u64 = 6;
/// A day with fewer records and no events is dull,
const DULL_BELOW_MESSAGES: u64 = 6;
/// and so is one with less text.
const DULL_BELOW_BYTES: u64 = 1_200;

/// Detects the importance of a day.
pub fn detect_importance(day: DayActivity<'_>) -> Importance {
    if let Some(mark) = day.mark {
        return mark;
    }
    let of_events: u64 = day
        .events
        .iter()
        .map(|event| match (event.priority, event.kind) {
            (Priority::P0, _) => 4,
            (Priority::P1, _) => 3,
            (_, EventType::Decision) => 2,
            (_, EventType::Commitment | EventType::Constraint) => 1,
            _ => 0,
        })
        .sum();
    let (mut decisions, mut happenings) = (0_u64, 0_u64);
    for line in day.lines {
        match extractive::classify_sentence(line) {
            SentenceKind::Decision | SentenceKind::Constraint => decisions += 1,
            SentenceKind::Event => happenings += 1,
            SentenceKind::Commitment | SentenceKind::Other => {}
        }
    }
    // Words alone count only in combination: a mention of a release is not a release.
    let points =
        of_events + decisions.min(3) + happenings.min(3) + u64::from(day.messages >= 100) * 2;
    if points >= MIN_IMPORTANT_POINTS {
        Importance::Important
    } else if points == 0 && day.messages < DULL_BELOW_MESSAGES && day.bytes < DULL_BELOW_BYTES {
        Importance::Dull
    } else {
        Importance::Ordinary
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calendar::Moment;
    use crate::event::EventDraft;
    use crate::id::EventId;

    // Y10
    #[test]
    fn what_happened_decides_and_a_persons_mark_wins() {
        let at = Moment::parse("2026-02-13T09:30:00Z").unwrap().moment;
        let event = |kind, priority| {
            EventDraft::new(at, kind, priority, "x").with_id(EventId::new(at.day(), 1))
        };
        let busy =
            [event(EventType::Decision, Priority::P1), event(EventType::Constraint, Priority::P0)];
        let told = [
            "Decision: we ship on Monday.",
            "Released version 2.0 to all customers.",
            "Incident: the database was down for an hour.",
        ];
        let quiet =
            DayActivity { mark: None, events: &[], lines: &["Had tea."], messages: 2, bytes: 40 };
        for (day, importance) in [
            (quiet, Importance::Dull),
            (DayActivity { messages: 40, bytes: 9_000, ..quiet }, Importance::Ordinary),
            (DayActivity { events: &busy, ..quiet }, Importance::Important),
            (DayActivity { lines: &told, events: &busy[..1], ..quiet }, Importance::Important),
            (
                DayActivity { lines: &told, messages: 20, bytes: 5_000, ..quiet },
                Importance::Ordinary,
            ),
            (DayActivity { mark: Some(Importance::Important), ..quiet }, Importance::Important),
            (
                DayActivity { mark: Some(Importance::Dull), events: &busy, ..quiet },
                Importance::Dull,
            ),
        ] {
            assert_eq!(detect_importance(day), importance, "{day:?}");
        }
    }
}
