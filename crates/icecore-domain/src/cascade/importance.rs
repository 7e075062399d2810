//! The importance of a day (Y10): detected from its content, unless it was set explicitly.

use super::press::{self, Mark};
use crate::event::{Event, Kind, Priority};
use crate::summary::Importance;

/// The content of a day.
#[derive(Debug, Clone, Copy)]
pub struct Day<'a> {
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
const IMPORTANT_POINTS: u64 = 6;
/// A day with fewer records and no events is dull,
const DULL_MESSAGES: u64 = 6;
/// and so is one with less text.
const DULL_BYTES: u64 = 1_200;

/// Detects the importance of a day.
pub fn detect(day: Day<'_>) -> Importance {
    if let Some(mark) = day.mark {
        return mark;
    }
    let of_events: u64 = day
        .events
        .iter()
        .map(|event| match (event.priority, event.kind) {
            (Priority::P0, _) => 4,
            (Priority::P1, _) => 3,
            (_, Kind::Decision) => 2,
            (_, Kind::Commitment | Kind::Constraint) => 1,
            _ => 0,
        })
        .sum();
    let (mut decisions, mut happenings) = (0_u64, 0_u64);
    for line in day.lines {
        match press::mark(line) {
            Mark::Decision | Mark::Constraint => decisions += 1,
            Mark::Event => happenings += 1,
            Mark::Commitment | Mark::Told => {}
        }
    }
    // Words alone count only in combination: a mention of a release is not a release.
    let points =
        of_events + decisions.min(3) + happenings.min(3) + u64::from(day.messages >= 100) * 2;
    if points >= IMPORTANT_POINTS {
        Importance::Important
    } else if points == 0 && day.messages < DULL_MESSAGES && day.bytes < DULL_BYTES {
        Importance::Dull
    } else {
        Importance::Ordinary
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calendar::Moment;
    use crate::event::Draft;
    use crate::id::EventId;

    // Y10
    #[test]
    fn what_happened_decides_and_a_persons_mark_wins() {
        let at = Moment::read("2026-02-13T09:30:00Z").unwrap().moment;
        let event =
            |kind, priority| Draft::new(at, kind, priority, "x").with_id(EventId::new(at.day(), 1));
        let busy = [event(Kind::Decision, Priority::P1), event(Kind::Constraint, Priority::P0)];
        let told = [
            "Decision: we ship on Monday.",
            "Released version 2.0 to all customers.",
            "Incident: the database was down for an hour.",
        ];
        let quiet = Day { mark: None, events: &[], lines: &["Had tea."], messages: 2, bytes: 40 };
        for (day, importance) in [
            (quiet, Importance::Dull),
            (Day { messages: 40, bytes: 9_000, ..quiet }, Importance::Ordinary),
            (Day { events: &busy, ..quiet }, Importance::Important),
            (Day { lines: &told, events: &busy[..1], ..quiet }, Importance::Important),
            (Day { lines: &told, messages: 20, bytes: 5_000, ..quiet }, Importance::Ordinary),
            (Day { mark: Some(Importance::Important), ..quiet }, Importance::Important),
            (Day { mark: Some(Importance::Dull), events: &busy, ..quiet }, Importance::Dull),
        ] {
            assert_eq!(detect(day), importance, "{day:?}");
        }
    }
}
