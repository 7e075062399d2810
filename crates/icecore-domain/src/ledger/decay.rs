//! The age at which packs stop showing a statement (L5).
//!
//! Decay affects only packs: the ledger, pages, memories and search keep everything. A repeated or
//! confirmed statement is fresh again.

use jiff::civil::Date;

use crate::calendar::days_between;
use crate::event::{EventType, Priority};
use crate::ledger::LedgerEntry;
use crate::string_enum::string_enum;

string_enum! {
    /// How reliable a statement is by its age.
    Freshness: "a freshness" {
        /// Recent or recently confirmed, or of a kind that does not age.
        Fresh = "fresh",
        /// Shown with a warning.
        Stale = "stale",
        /// Shown only where it matters today.
        Dropped = "dropped",
    }
}

/// The ages in days at which an unconfirmed statement changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DecayLimits {
    /// Stale from this age on.
    pub stale_days: u16,
    /// Dropped beyond this age.
    pub dropped_days: u16,
    /// A P2 event expires after this many days.
    pub p2_days: u16,
    /// A P3 event expires after this many days.
    pub p3_days: u16,
}

impl DecayLimits {
    /// The defaults of a vault policy.
    pub const DEFAULT: Self = Self { stale_days: 30, dropped_days: 60, p2_days: 90, p3_days: 30 };
}

/// Tags of statements that never age, whatever their type.
const LASTING_TAGS: &[&str] = &["identity", "principle", "mantra", "account"];

/// Whether the entry ages: facts and decisions do, unless they are P0 or describe someone's
/// identity.
pub fn can_age(entry: &LedgerEntry) -> bool {
    let event = &entry.event;
    matches!(event.kind, EventType::Fact | EventType::Decision)
        && event.priority != Priority::P0
        && !event.tags.iter().any(|tag| LASTING_TAGS.contains(&tag.as_str()))
}

/// The freshness of the entry on `day`.
pub fn freshness(entry: &LedgerEntry, day: Date, after: DecayLimits) -> Freshness {
    let age = days_between(entry.verified.day(), day);
    if !can_age(entry) || age < i64::from(after.stale_days) {
        Freshness::Fresh
    } else if age <= i64::from(after.dropped_days) {
        Freshness::Stale
    } else {
        Freshness::Dropped
    }
}

/// Whether the statement has expired on `day`: P2 and P3 expire, open commitments never do (L14).
pub fn has_expired(entry: &LedgerEntry, day: Date, after: DecayLimits) -> bool {
    let most = match entry.event.priority {
        Priority::P0 | Priority::P1 => return false,
        Priority::P2 => after.p2_days,
        Priority::P3 => after.p3_days,
    };
    !entry.is_open_loop() && days_between(entry.verified.day(), day) > i64::from(most)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calendar::Moment;
    use crate::event::EventDraft;
    use crate::id::EventId;
    use jiff::ToSpan;

    fn entry(kind: EventType, priority: Priority, tag: Option<&str>) -> LedgerEntry {
        let ts = Moment::parse("2026-02-13T09:30:00+01:00").unwrap().moment;
        let draft = EventDraft {
            tags: tag.map(Into::into).into_iter().collect(),
            ..EventDraft::new(ts, kind, priority, "x")
        };
        LedgerEntry::from_event(draft.with_id(EventId::new(ts.day(), 1)), 1)
    }

    fn after(days: i32) -> Date {
        jiff::civil::date(2026, 2, 13).checked_add(days.days()).unwrap()
    }

    // L5
    #[test]
    fn facts_age_and_what_lasts_does_not() {
        let check = |kind, priority, tag, days, expected| {
            assert_eq!(
                freshness(&entry(kind, priority, tag), after(days), DecayLimits::DEFAULT),
                expected,
                "{kind} {priority} {tag:?} {days}"
            );
        };
        for (days, expected) in [
            (0, Freshness::Fresh),
            (29, Freshness::Fresh),
            (30, Freshness::Stale),
            (60, Freshness::Stale),
            (61, Freshness::Dropped),
            (900, Freshness::Dropped),
        ] {
            check(EventType::Fact, Priority::P1, None, days, expected);
            check(EventType::Decision, Priority::P2, None, days, expected);
            for kind in [
                EventType::Preference,
                EventType::Constraint,
                EventType::Relationship,
                EventType::Procedure,
                EventType::Commitment,
            ] {
                check(kind, Priority::P2, None, days, Freshness::Fresh);
            }
            check(EventType::Fact, Priority::P0, None, days, Freshness::Fresh);
            check(EventType::Fact, Priority::P1, Some("identity"), days, Freshness::Fresh);
        }
    }

    // L5
    #[test]
    fn confirming_renews() {
        let mut confirmed = entry(EventType::Fact, Priority::P2, None);
        assert_eq!(freshness(&confirmed, after(80), DecayLimits::DEFAULT), Freshness::Dropped);
        confirmed.verified = Moment::parse("2026-04-20T09:30:00+02:00").unwrap().moment;
        assert_eq!(freshness(&confirmed, after(80), DecayLimits::DEFAULT), Freshness::Fresh);
        assert!(!has_expired(&confirmed, after(100), DecayLimits::DEFAULT));
    }

    // L14
    #[test]
    fn only_passing_things_expire() {
        for (kind, priority, days, expected) in [
            (EventType::Fact, Priority::P2, 90, false),
            (EventType::Fact, Priority::P2, 91, true),
            (EventType::Preference, Priority::P3, 30, false),
            (EventType::Preference, Priority::P3, 31, true),
            (EventType::Fact, Priority::P1, 9_000, false),
            (EventType::Fact, Priority::P0, 9_000, false),
            (EventType::Commitment, Priority::P3, 9_000, false),
        ] {
            assert_eq!(
                has_expired(&entry(kind, priority, None), after(days), DecayLimits::DEFAULT),
                expected,
                "{kind} {priority} {days}"
            );
        }
    }
}
