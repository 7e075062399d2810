//! Statements that cannot both be true. Conflicts are shown, never resolved silently (L6).
//!
//! A statement is reduced to *claims*: an attribute of an entity and its value. Two active
//! statements about the same entity conflict if their claims give the same attribute different
//! values. A false conflict costs trust, so only attributes with a single value at a time are read
//! as claims. Untrusted statements make claims too; displays of a conflict name the origin.

use std::collections::{BTreeMap, HashSet};

use crate::id::EventId;
pub use crate::ledger::claim::{Claim, claims};
use crate::ledger::{Ledger, LedgerEntry};

/// A conflict between events.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Conflict {
    /// The disputed attribute.
    pub about: String,
    /// The events, oldest first.
    pub events: Vec<EventId>,
}

/// All conflicts between the claims of active statements among `entries`.
pub fn find_conflicts<'a>(entries: impl IntoIterator<Item = &'a LedgerEntry>) -> Vec<Conflict> {
    let mut held: Vec<(EventId, Claim)> = Vec::new();
    for entry in entries {
        if entry.state.is_active() {
            held.extend(claims(&entry.event).into_iter().map(|claim| (entry.event.id, claim)));
        }
    }
    conflicting_claims(&held)
}

/// The conflicts between these claims, sorted by their events. Each event appears once per
/// conflict.
pub fn conflicting_claims(held: &[(EventId, Claim)]) -> Vec<Conflict> {
    let mut by_attribute: BTreeMap<&str, Vec<(EventId, &str)>> = BTreeMap::new();
    for (id, claim) in held {
        by_attribute.entry(&claim.attribute).or_default().push((*id, &claim.value));
    }
    let mut found: Vec<Conflict> = Vec::new();
    let mut seen: HashSet<Vec<EventId>> = HashSet::new();
    for (attribute, values) in by_attribute {
        if values.iter().all(|(_, value)| *value == values[0].1) {
            continue;
        }
        let mut events: Vec<EventId> = values.iter().map(|(id, _)| *id).collect();
        events.sort();
        events.dedup();
        let about = readable_attribute(attribute);
        if seen.insert(events.clone()) {
            found.push(Conflict { about, events });
        }
    }
    found.sort_by(|a, b| a.events.cmp(&b.events));
    found
}

/// Active events that replace the same event.
pub fn find_forks(ledger: &Ledger) -> Vec<Conflict> {
    let mut heads: BTreeMap<EventId, Vec<EventId>> = BTreeMap::new();
    for entry in ledger
        .entries()
        .iter()
        .filter(|entry| entry.state.is_active() && entry.event.is_statement())
    {
        for &replaced in &entry.event.supersedes {
            heads.entry(replaced).or_default().push(entry.event.id);
        }
    }
    heads
        .into_iter()
        .filter(|(_, heads)| heads.len() > 1)
        .map(|(replaced, events)| Conflict {
            about: format!("which of them replaces {replaced}"),
            events,
        })
        .collect()
}

/// The attribute for display: entity and topic, without scope and facet.
fn readable_attribute(attribute: &str) -> String {
    let mut parts = attribute.splitn(3, '|');
    let (entity, _scope, what) =
        (parts.next().unwrap_or(""), parts.next(), parts.next().unwrap_or(""));
    let what = what.rsplit_once('|').map_or(what, |(what, _side)| what).replace('#', "…");
    match (entity, what.trim()) {
        ("", what) => what.to_owned(),
        (entity, "") => entity.to_owned(),
        (entity, what) => format!("{entity}: {what}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calendar::Moment;
    use crate::event::{Event, EventDraft, EventType, Origin, Priority, Scope};
    use proptest::prelude::*;

    fn event(number: u32, kind: EventType, text: &str) -> Event {
        let ts = Moment::parse("2026-02-13T09:30:00+01:00").unwrap().moment;
        // `name| text` is about an entity.
        let (entity, text) = text
            .split_once("| ")
            .map_or((None, text), |(entity, text)| (Some(entity.to_owned()), text));
        EventDraft { entity, ..EventDraft::new(ts, kind, Priority::P2, text) }
            .with_id(EventId::new(ts.day(), number))
    }

    fn conflicts(kind: EventType, one: &str, other: &str) -> Vec<Conflict> {
        find_conflicts(Ledger::from_events([event(1, kind, one), event(2, kind, other)]).entries())
    }

    /// Pairs of which at most one is true.
    const CONTRADICTING: &[(&str, &str)] = &[
        ("The budget is 500 EUR", "The budget is 600 EUR."),
        ("budget = 500", "budget of 600 EUR"),
        ("budget=500", "The budget is 600"),
        ("Budget: 500", "The current budget is now €600"),
        ("The budget is 500 EUR", "The budget is 500 USD"),
        ("The budget is 1,000 EUR", "The budget is 10,000 EUR"),
        ("The budget is 5k", "The budget is 6000 EUR"),
        ("The budget was raised to 600 EUR", "The budget is 500 EUR"),
        ("The budget of Apollo is 500", "Apollo's budget is 600"),
        ("apollo| The budget is 500", "apollo| Apollo's budget is 600"),
        ("apollo| Budget: 500", "The budget for Apollo is 600 EUR"),
        ("Apollo has a budget of 500 EUR", "Apollo has a budget of 700 EUR"),
        ("Das Budget ist 500 EUR", "Das Budget beträgt 600 EUR"),
        ("Das Budget beträgt 500 EUR", "The budget is 600 EUR"),
        ("Python version: 3.11", "python version: 3.12"),
        ("Python version: 3.1", "The Python version is 3.10"),
        ("The runtime is Python 3.11", "The runtime is Python 3.12"),
        ("The runtime is Python 3.11", "The runtime is Node 20"),
        ("Uses Postgres 15 in production", "Uses Postgres 16 in production"),
        ("We use Postgres 15 in production", "Uses Postgres 16 in production."),
        ("Alice has 2 children", "Alice has 3 children"),
        ("The build takes 5 minutes", "The build takes 12 minutes"),
        ("The server needs 8GB of RAM", "The server needs 16GB of RAM"),
        ("Das Training dauert 2 Stunden", "Das Training dauert 3 Stunden"),
        ("The ticket costs 50 EUR", "The ticket costs 60 EUR"),
        ("Das Ticket kostet 50 EUR", "Das Ticket kostet 60 EUR"),
        ("The timeout is 30 seconds", "The timeout is 60 seconds"),
        ("The timeout is 30s", "The timeout is 60s"),
        ("The discount is 10%", "The discount is 15%"),
        ("The deadline moved to March 20", "The deadline is March 15"),
        ("The deadline is March 15", "The deadline is 2026-03-20"),
        ("The deadline is 15 March", "The deadline is April"),
        ("The deadline is March 15, 2026", "The deadline is March 15, 2027"),
        ("The deadline was moved to Friday", "The deadline is on Thursday"),
        ("Die Frist ist am 15. März", "Die Frist ist am 20. März"),
        ("Die Frist ist am 15.03.2026", "Die Frist ist am 20. März"),
        ("The release is on Monday", "the release is on Tuesday"),
        ("The release is scheduled for March 3", "The release was postponed to March 10"),
        ("The review is due 2026-02-13", "The review is due 2026-02-14"),
        ("The review is due on Friday", "The review is due by Monday"),
        ("The standup starts at 9:30", "The standup starts at 10"),
        ("The standup starts at 9am", "The standup begins at 10 am"),
        ("The shop opens at 9:00", "The shop opens at 10:00"),
        ("The contract ends on May 31", "The contract expires on June 30"),
        ("Alice's birthday is March 3", "The birthday of Alice is March 4"),
        ("Alice lives in Berlin", "Alice lives in Hamburg"),
        ("Alice lives in Berlin", "Alice moved to Hamburg"),
        ("alice| Lives in Berlin", "alice| Alice lives in Hamburg"),
        ("Alice wohnt in Berlin", "Alice lives in Hamburg"),
        ("The office is in Berlin", "The office is in Hamburg"),
        ("Acme is based in Berlin", "Acme is headquartered in Hamburg"),
        ("Mira works for Northwind", "Mira works at Contoso"),
        ("Mira reports to Anna", "Mira reports to Bert"),
        ("Alice is married to Bob", "Alice is married to Carl"),
        ("The database is Postgres", "The database is MySQL"),
        ("The dog is called Rex", "The dog is named Bello"),
        ("Anna is the contact for X", "Bert is the contact for X"),
        ("Anna is the contact for X", "The contact for X is Bert"),
        ("anna| Anna is the contact for X", "bert| Bert is the contact for X"),
        ("Anna is the contact for X", "x| The contact is Bert"),
        ("Anna is CEO of Acme", "Bert is the CEO of Acme"),
        ("Anna ist die Ansprechpartnerin für X", "Berta ist die Ansprechpartnerin für X"),
        ("Bob is the husband of Alice", "Alice's husband is Carl"),
        ("Berlin is the capital of Germany", "Bonn is the capital of Germany"),
        ("Alice's favourite colour is blue", "Alice's favourite colour is green"),
        ("The default editor is vim", "The default editor is emacs"),
        ("Editor: vim", "Editor: emacs"),
        ("Status: blocked", "Status: done"),
        ("Deploy on Fridays", "Never deploy on Fridays"),
        ("Always deploy on Fridays", "Do not deploy on Fridays"),
        ("Deploys happen on Fridays", "Deploys never happen on Fridays"),
        ("No longer uses Redis", "Uses Redis"),
        ("We stopped using Redis", "We use Redis"),
        ("Alice does not eat meat", "Alice eats meat"),
        ("Alice doesn’t eat meat", "Alice eats meat"),
        ("Alice has no dog", "Alice has a dog"),
        ("The contract is not signed yet", "The contract is signed"),
        ("Alice isn't available", "Alice is available"),
        ("Alice is unavailable", "Alice is available"),
        ("Two-factor login is enabled", "Two-factor login is disabled"),
        ("The repository is public", "The repository is private"),
        ("Smoking is allowed", "Smoking is forbidden"),
        ("Alice isst kein Fleisch", "Alice isst Fleisch"),
        ("Wir deployen nie am Freitag", "Wir deployen immer am Freitag"),
        ("Alice can not swim", "Alice can swim"),
        ("Kickoff went well. The budget is 500 EUR.", "The budget is 600 EUR."),
    ];

    /// Pairs that can both be true, or say the same.
    const COMPATIBLE: &[(&str, &str)] = &[
        ("The budget is 500 EUR", "the budget is 500 EUR"),
        ("budget = 500", "budget of 500 EUR"),
        ("The budget is 1,000 EUR", "The budget is 1.000,00 EUR"),
        ("The budget is 5k EUR", "The budget is 5000 EUR"),
        ("The budget is 500 EUR", "The budget is tight"),
        ("The budget is at least 500 EUR", "The budget is at least 600 EUR"),
        ("The budget is at least 500 EUR", "The budget is at most 600 EUR"),
        ("The budget is about 500 EUR", "The budget is 520 EUR"),
        ("The budget is between 400 and 600 EUR", "The budget is 500 EUR"),
        ("The budget is up to 600 EUR", "The budget is 500 EUR"),
        ("The budget is more than 400 EUR", "The budget is 500 EUR"),
        ("The budget was 500 EUR", "The budget is 600 EUR"),
        ("The budget used to be 500 EUR", "The budget is 600 EUR"),
        ("The budget is 500 EUR in 2024", "The budget is 600 EUR in 2025"),
        ("In 2024 the budget is 500", "In 2025 the budget is 600"),
        ("The budget for travel is 500", "The budget for food is 600"),
        ("apollo| The budget for travel is 500", "zeus| The budget for travel is 600"),
        ("apollo| The budget is 500", "zeus| The budget is 600"),
        ("Apollo's budget is 500", "Zeus's budget is 600"),
        ("The travel budget is 500", "The food budget is 600"),
        ("The budget is 500 EUR per month", "The budget is 6000 EUR per year"),
        ("Maybe the budget is 500", "The budget is 600"),
        ("The budget might be 500", "The budget is 600"),
        ("Is the budget 500?", "The budget is 600"),
        ("If we win, the budget is 500", "The budget is 600"),
        ("Mindestens 500 EUR Budget", "Höchstens 600 EUR Budget"),
        ("Python version: 3.11", "Python virtualenv: .venv"),
        ("The Python version is 3.11", "The Node version is 20"),
        ("Supports Python 3.11", "Supports Python 3.12"),
        ("Uses Postgres 15", "Uses Redis 7"),
        ("Uses Postgres 15 in production", "Uses Postgres 16 in staging"),
        ("Uses port 80", "Uses port 443"),
        ("The service runs on port 80", "The service runs on port 443"),
        ("Requires at least 8 GB", "Requires at least 16 GB"),
        ("Alice has 2 meetings on Monday", "Alice has 3 meetings on Tuesday"),
        ("Alice has 2 dogs", "Alice has 3 cats"),
        ("Needs 2 more days", "Needs 3 more days"),
        ("The app runs on iOS", "The app runs on Android"),
        ("Paid invoice 1001", "Paid invoice 1002"),
        ("Bought 3 tickets", "Bought 4 tickets"),
        ("Alice paid 500 EUR", "Alice paid 600 EUR"),
        ("Phone: +49 151 1111", "Phone: +49 151 2222"),
        ("Alice's phone is 0151 1111", "Alice's phone is 0151 2222"),
        ("Email: a@example.com", "Email: b@example.com"),
        ("Note: call Bob", "Note: call Anna"),
        ("Decision: use Rust", "Decision: use Postgres"),
        ("Members: Alice, Bob", "Members: Carl, Dora"),
        ("Office hours: mornings", "Office hours: evenings"),
        ("The release is on Monday", "The release is March 16"),
        ("The deadline is March", "The deadline is March 15"),
        ("The deadline is 2026-03-15", "The deadline is 15 March"),
        ("The deadline is 15.03.2026", "The deadline is March 15th"),
        ("The deadline is tight", "The deadline is March 15"),
        ("The deadline was March 15", "The deadline is March 20"),
        (
            "The deadline for the draft is March 15",
            "The deadline for the final version is March 20",
        ),
        ("The meeting is at 10:00", "The meeting is on Monday"),
        ("The meeting is at 10am", "The meeting is at 10:00"),
        ("The meeting on Monday is at 10:00", "The meeting on Tuesday is at 11:00"),
        ("A meeting is on Monday", "A meeting is on Tuesday"),
        ("Yoga is on Mondays", "Yoga is on Thursdays"),
        ("Standup is on Monday and Thursday", "Standup is on Monday"),
        ("The review is due Friday or Monday", "The review is due Friday"),
        ("The shop opens at 9:00", "The shop closes at 18:00"),
        ("The course starts on March 1", "The course ends on March 5"),
        ("Met Alice on March 3", "Met Alice on March 4"),
        ("Alice was in Berlin", "Alice is in Hamburg"),
        ("Alice lived in Berlin", "Alice lives in Hamburg"),
        ("Alice lives in Berlin", "Alice lives in Germany"),
        ("Alice lives in Berlin", "Bob lives in Hamburg"),
        ("alice| Lives in Berlin", "bob| Lives in Hamburg"),
        ("Alice is in Berlin", "Alice is tall"),
        ("Alice is in Berlin", "Alice lives in Hamburg"),
        ("Alice is in marketing", "Alice is in Berlin"),
        ("Alice works at night", "Alice works for Acme"),
        ("Alice is a developer", "Alice is a mother"),
        ("Alice is tall", "Alice is kind"),
        ("Alice is German", "Alice is Catholic"),
        ("The client is German", "The client is Acme"),
        ("Alice has a dog", "Alice has a cat"),
        ("Alice has a dog", "Bob has no dog"),
        ("Alice prefers tea", "Alice prefers coffee"),
        ("Alice likes Berlin", "Alice likes Hamburg"),
        ("Alice speaks German", "Alice speaks French"),
        ("Alice's sister is Anna", "Alice's sister is Berta"),
        ("The database is slow", "The database is large"),
        ("The database is slow", "The database is Postgres"),
        ("The problem is DNS", "The problem is Docker"),
        ("We moved to Slack", "We moved to Linear"),
        ("It is 500", "It is 600"),
        ("One of the owners is Anna", "One of the owners is Bert"),
        ("Anna is the contact for X", "Bert is the contact for Y"),
        ("Anna is the contact for X", "Bert is a contact for X"),
        ("Anna is the contact for X", "The contact for X is Anna Smith"),
        ("Anna is also the contact for X", "Bert is the contact for X"),
        ("Anna was the contact for X", "Bert is the contact for X"),
        ("Anna and Bert are the contacts for X", "Carl is the contact for X"),
        ("Anna is the mother of Tom", "Bert is the father of Tom"),
        ("Anna is the best", "Bert is the best"),
        ("Anna is the CEO of Acme", "Bert is the CTO of Acme"),
        ("Never deploy on Fridays", "Never deploy on Mondays"),
        ("Deploys do not always happen on Fridays", "Deploys happen on Fridays"),
        ("Alice does not only eat meat", "Alice eats meat"),
        ("Not all servers are patched", "Servers are patched"),
        ("No later than Friday", "Later than Friday"),
        ("The shop is closed on Sundays", "The shop is open on Mondays"),
        ("The server was not reachable", "The server is reachable"),
        ("Alice might not come", "Alice comes"),
        ("Uses Redis for caching", "No longer uses Redis for queues"),
        ("Colours: red, blue", "Colours: green"),
        ("The logo is blue and white", "The logo is blue"),
        ("The range is 5 to 10", "The range is 5 to 12"),
        ("The flight is LH 123", "The hotel is Hilton"),
        ("Das Budget ist 500 EUR", "The budget is 500 EUR"),
        ("Alice hat einen Hund", "Alice hat eine Katze"),
        ("Read chapter 3", "Read chapter 4"),
        ("", "."),
    ];

    fn wrong(pairs: &[(&str, &str)], expected: bool) -> Vec<String> {
        let mut wrong = Vec::new();
        for (one, other) in pairs {
            for (one, other) in [(one, other), (other, one)] {
                let found = conflicts(EventType::Fact, one, other);
                if found.is_empty() == expected {
                    wrong.push(format!(
                        "{one} / {other}: {found:?} {:?} {:?}",
                        claims(&event(1, EventType::Fact, one)),
                        claims(&event(2, EventType::Fact, other))
                    ));
                    break;
                }
            }
        }
        wrong
    }

    // L6
    #[test]
    fn another_value_for_the_same_attribute_is_a_conflict() {
        assert!(CONTRADICTING.len() >= 60);
        let missed = wrong(CONTRADICTING, true);
        assert!(missed.is_empty(), "{}", missed.join("\n"));
    }

    // L6
    #[test]
    fn what_can_both_be_true_is_no_conflict() {
        assert!(COMPATIBLE.len() >= 80);
        let found = wrong(COMPATIBLE, false);
        assert!(found.is_empty(), "{}", found.join("\n"));
        assert_eq!(
            conflicts(
                EventType::Commitment,
                "The offer is due 2026-02-13",
                "The offer is due 2026-02-14"
            ),
            []
        );
    }

    // L6
    #[test]
    fn scopes_are_worlds_of_their_own_and_little_trust_still_claims() {
        let (one, mut other) = (
            event(1, EventType::Fact, "The budget is 500 EUR"),
            event(2, EventType::Fact, "The budget is 600 EUR"),
        );
        other.draft.origin = Origin::Tool;
        let found = find_conflicts(Ledger::from_events([one.clone(), other.clone()]).entries());
        assert_eq!(found, [Conflict { about: "budget".into(), events: vec![one.id, other.id] }]);
        other.draft.scope = Scope::Project("zeus".into());
        assert_eq!(find_conflicts(Ledger::from_events([one, other]).entries()), []);
    }

    #[test]
    fn a_conflict_says_what_it_is_about() {
        for (one, other, about) in [
            ("The deadline is March 15", "The deadline moved to April 20", "deadline"),
            ("alice| Lives in Berlin", "alice| Lives in Hamburg", "alice: lives in"),
            (
                "Uses Postgres 15 in production",
                "Uses Postgres 16 in production",
                "use postgres … in production",
            ),
            ("Anna is the contact for X", "Bert is the contact for X", "x: contact"),
            ("Deploy on Fridays", "Never deploy on Fridays", "deploy on friday"),
        ] {
            let found = conflicts(EventType::Fact, one, other);
            assert_eq!(
                found.iter().map(|conflict| conflict.about.as_str()).collect::<Vec<_>>(),
                [about],
                "{one}"
            );
        }
    }

    proptest! {
        #[test]
        fn any_text_can_be_read_and_never_contradicts_itself(
            text in "\\PC{0,60}|((the|is|of|for|budget|500|€|EUR|not|no|:|=|Anna's|March|15\\.|am|at|10|'s|is in|moved to|[.,;|'\"v]) ?){0,14}",
        ) {
            prop_assert_eq!(conflicts(EventType::Fact, &text, &text), vec![]);
        }
    }
}
