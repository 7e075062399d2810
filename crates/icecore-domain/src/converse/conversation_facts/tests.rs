//! Tests: diffs, consolidations and snapshots, in tables and as properties.

use jiff::civil::date;
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::event::Event;

fn moment() -> Moment {
    Moment::parse("2026-02-13T09:30:00+01:00").unwrap().moment
}

fn id(number: usize) -> EventId {
    EventId::new(date(2026, 2, 13), u32::try_from(number).unwrap())
}

fn facts_with_texts(texts: &[&str]) -> Vec<ConversationFact> {
    let fact = |(at, text): (usize, &&str)| ConversationFact {
        id: id(at + 1),
        text: (*text).into(),
        hard: is_hard(text),
        since: moment(),
        turn: Some(1),
    };
    texts.iter().enumerate().map(fact).collect()
}

fn diff(remove: &[&str], update: &[&str], add: &[&str]) -> FactDiff {
    let list = |all: &[&str]| all.iter().map(|text| (*text).to_owned()).collect();
    FactDiff { add: list(add), update: list(update), remove: list(remove), notes: Vec::new() }
}

fn check(before: &[&str], diff: &FactDiff, expected: &[&str], notes: usize) {
    let facts = facts_with_texts(before);
    let applied = apply_diff(&facts, diff);
    assert_eq!(facts_after(&facts, &applied.changes), expected, "{diff:?}\n{applied:?}");
    assert_eq!(applied.notes.len(), notes, "{:?}", applied.notes);
}

// C5 C8
#[test]
fn a_turn_that_is_remembered_late_overrules_nothing_newer() {
    let mut facts = facts_with_texts(&["Editor: Emacs", "Shell: zsh", "User lives in Rome"]);
    facts[0].turn = Some(9);
    facts[2].turn = Some(9);
    let late = diff(&["User lives in Rome"], &["Editor: Vim", "Shell: fish"], &["Terminal: kitty"]);
    let check = |turn, expected: &[&str], notes| {
        let applied = apply_diff(&facts, &late).as_of(&facts, turn);
        assert_eq!(facts_after(&facts, &applied.changes), expected, "{turn}: {applied:?}");
        assert_eq!(applied.notes.len(), notes, "{:?}", applied.notes);
    };
    check(4, &["Editor: Emacs", "Shell: fish", "User lives in Rome", "Terminal: kitty"], 2);
    check(9, &["Editor: Vim", "Shell: fish", "Terminal: kitty"], 0);
}

// C8 C10
#[test]
fn a_hard_exception_gets_other_words_only_from_the_person() {
    let (rule, new) = ("Answer language: always German", "Answer language: English");
    let facts = facts_with_texts(&[rule]);
    for diff in [
        diff(&[], &[new], &[]),
        diff(&[], &[], &[new]),
        diff(&[rule], &[new], &[]),
        diff(&[rule], &[], &[new]),
    ] {
        let applied = apply_diff(&facts, &diff);
        assert_eq!(facts_after(&facts, &applied.changes), [new], "{diff:?}");
        let mut refused = applied.clone();
        let why = refused.refuse_removals(
            &facts,
            "What is the capital of Spain?",
            "Madrid. From now on the answer language is English.",
        );
        assert_eq!(
            (facts_after(&facts, &refused.changes), why.len()),
            (vec![rule.to_owned()], 1),
            "{diff:?}: {why:?}"
        );
        let mut granted = applied;
        assert!(
            granted.refuse_removals(&facts, "From now on answer in English", "Sure.").is_empty()
        );
        assert_eq!(facts_after(&facts, &granted.changes), [new], "{diff:?}");
    }
}

// C5
#[test]
fn a_diff_removes_then_updates_then_adds() {
    check(
        &[
            "Sorting function: recursive quicksort",
            "User open to recursive approaches",
            "User lives in Rome",
        ],
        &diff(
            &["User open to recursive approaches"],
            &["Sorting function: now iterative quicksort, O(n log n)"],
            &["User prefers iterative over recursive solutions"],
        ),
        &[
            "Sorting function: now iterative quicksort, O(n log n)",
            "User lives in Rome",
            "User prefers iterative over recursive solutions",
        ],
        0,
    );
    // Unknown, already known, known key, duplicate within the diff.
    check(&["Editor: Vim"], &diff(&[], &["Shell: zsh"], &[]), &["Editor: Vim", "Shell: zsh"], 1);
    check(&["Editor: Vim"], &diff(&[], &[], &["The editor: vim"]), &["Editor: Vim"], 1);
    check(&["Editor: Vim"], &diff(&[], &[], &["Editor: Emacs"]), &["Editor: Emacs"], 1);
    check(
        &[],
        &diff(&[], &[], &["Editor: Emacs", "editor: emacs", "Editor: Vim"]),
        &["Editor: Vim"],
        2,
    );
    check(&["Editor: Vim"], &diff(&["Editor"], &[], &["Editor: Emacs"]), &["Editor: Emacs"], 1);
    check(
        &["Editor: Vim"],
        &diff(&["Editor: Vim"], &["Editor: Emacs"], &[]),
        &["Editor: Emacs"],
        1,
    );
    check(&["Editor: Vim"], &diff(&["Editor: Vim"], &[], &["Editor: Vim"]), &["Editor: Vim"], 1);
    check(
        &["User likes tea", "Python: fun"],
        &diff(&["User", "a", "", "Python 3"], &[], &[]),
        &["User likes tea", "Python: fun"],
        4,
    );
    check(
        &["Python version: 3.11", "Python virtualenv: .venv"],
        &diff(&[], &["Python version: 3.12"], &[]),
        &["Python version: 3.12", "Python virtualenv: .venv"],
        0,
    );
    check(
        &["Allergies: nuts"],
        &diff(&[], &[], &["Allergies: pollen"]),
        &["Allergies: nuts, pollen"],
        1,
    );
    check(&["Allergies: nuts"], &diff(&[], &["Allergies: pollen"], &[]), &["Allergies: pollen"], 0);
    check(
        &["Allergies: nuts, pollen"],
        &diff(&["Allergies: nuts"], &[], &[]),
        &["Allergies: nuts, pollen"],
        1,
    );
    check(&["User has 2 cats"], &diff(&[], &[], &["User has 3 cats"]), &["User has 3 cats"], 1);
    check(
        &["Paid 100 EUR to Anna"],
        &diff(&[], &[], &["Paid 200 EUR to Anna"]),
        &["Paid 100 EUR to Anna", "Paid 200 EUR to Anna"],
        0,
    );
}

// C5
#[test]
fn what_is_replaced_in_one_diff_is_one_change() {
    let facts = facts_with_texts(&["Editor: Vim", "Shell: zsh"]);
    let applied = apply_diff(&facts, &diff(&["Editor: Vim"], &[], &["Editor: Emacs"]));
    assert_eq!(
        applied.changes,
        [FactChange::Replace { id: id(1), text: "Editor: Emacs".into(), hard: false }]
    );
    let applied = apply_diff(&facts, &diff(&["Shell"], &["Editor: Helix"], &["Theme: dark"]));
    assert!(
        matches!(
            applied.changes.as_slice(),
            [FactChange::Remove { .. }, FactChange::Replace { .. }, FactChange::Add { .. }]
        ),
        "{applied:?}"
    );
}

// C10
#[test]
fn a_hard_exception_goes_only_if_it_is_named() {
    let rule = "Never deploy the shop on Fridays";
    for vague in [
        "Never deploy on Fridays",
        "deploy",
        "Fridays",
        "Deploy the shop on Fridays",
        "shop deployments",
    ] {
        check(&[rule], &diff(&[vague], &[], &[]), &[rule], 1);
    }
    check(&[rule], &diff(&["never deploy the shop on Fridays."], &[], &[]), &[], 0);
    check(
        &["Deploy rule: never on Fridays"],
        &diff(&[], &["Deploy rule: never on weekends"], &[]),
        &["Deploy rule: never on weekends"],
        0,
    );
    check(
        &["The limit is always 5 MB"],
        &diff(&[], &["The limit is now 9 MB"], &[]),
        &["The limit is always 5 MB", "The limit is now 9 MB"],
        1,
    );
    for (text, hard) in [
        ("Never push to main", true),
        ("User must use tabs", true),
        ("We can't use GPL code", true),
        ("Don't log passwords", true),
        ("Antworten müssen kurz sein", true),
        ("Niemals freitags", true),
        ("Il ne faut jamais dormir", true),
        ("Siempre en español", true),
        ("Replies have at most 100 words", true),
        ("User prefers tabs", false),
        ("Never mind", false),
        ("Budget: 500 EUR", false),
        ("The user is a mustang fan", false),
        ("Every PR must have tests", true),
    ] {
        assert_eq!(is_hard(text), hard, "{text}");
    }
}

// C5
#[test]
fn too_many_or_odd_diff_entries_are_limited_and_reported() {
    let many: Vec<String> = (0..60).map(|n| format!("Setting q{n}: on")).collect();
    let applied = apply_diff(&[], &FactDiff { add: many, ..FactDiff::default() });
    assert_eq!((applied.changes.len(), applied.notes.len()), (MAX_DIFF_ENTRIES, 1));
    let applied = apply_diff(
        &[],
        &diff(&[], &[], &[&"word ".repeat(200), "\u{1b}\u{0}", "- bullet point stays"]),
    );
    assert_eq!(applied.notes.len(), 2);
    assert!(applied.changes.iter().all(
        |change| matches!(change, FactChange::Add { text, .. } if text.len() <= MAX_ENTRY_BYTES)
    ));
    let read: FactDiff =
        serde_json::from_value(json!({"add": null, "update": 7, "remove": [true, "x"], "foo": {}}))
            .unwrap();
    assert_eq!(
        (read.add.len(), read.update.len(), read.remove.as_slice(), read.notes.len()),
        (0, 0, ["x".to_owned()].as_slice(), 2)
    );
    assert_eq!(FactDiff::from_json(&json!("no")).notes.len(), 1);
    assert!(FactDiff::from_json(&json!(null)).is_empty());
}

fn whence(turn: u64) -> ChangeSource {
    ChangeSource {
        ts: moment(),
        conversation: "c1".into(),
        turn,
        session: Some("s".into()),
        source: "memory/x".into(),
    }
}

/// The ledger after the drafts of a diff were recorded.
fn record_diff(events: &mut Vec<Event>, diff: &FactDiff, turn: u64) -> AppliedDiff {
    let ledger = Ledger::from_events(events.clone());
    let applied = apply_diff(&facts(&ledger, "c1"), diff);
    for draft in event_drafts(&applied, &ledger, &whence(turn)) {
        let (draft, removed) = draft.sanitize().unwrap();
        assert_eq!(removed, 0);
        events.push(draft.with_id(id(events.len() + 1)));
    }
    applied
}

// C1, C5, C10
#[test]
fn facts_are_a_view_over_the_ledger() {
    let mut events = Vec::new();
    events.push(
        EventDraft::new(moment(), EventType::Fact, Priority::P2, "Holds everywhere").with_id(id(1)),
    );
    let mut other =
        EventDraft::new(moment(), EventType::Fact, Priority::P2, "Another conversation's");
    other.scope = Scope::Conversation("c2".into());
    events.push(other.with_id(id(2)));
    record_diff(
        &mut events,
        &diff(&[], &[], &["Editor: Vim", "User prefers tabs", "Shell: zsh", "Never push to main"]),
        1,
    );
    record_diff(
        &mut events,
        &diff(&["Shell"], &["Editor: Emacs"], &["We decided to ship in May"]),
        2,
    );
    let ledger = Ledger::from_events(events);
    let now = facts(&ledger, "c1");
    let texts: Vec<&str> = now.iter().map(|fact| fact.text.as_str()).collect();
    assert_eq!(
        texts,
        ["Never push to main", "Editor: Emacs", "User prefers tabs", "We decided to ship in May"]
    );
    assert_eq!(
        now.iter().map(|fact| fact.turn).collect::<Vec<_>>(),
        [Some(1), Some(2), Some(1), Some(2)]
    );
    let kinds: Vec<(EventType, Priority)> = now
        .iter()
        .filter_map(|fact| ledger.get(fact.id))
        .map(|entry| (entry.event.kind, entry.event.priority))
        .collect();
    assert_eq!(
        kinds,
        [
            (EventType::Constraint, Priority::P0),
            (EventType::Fact, Priority::P2),
            (EventType::Preference, Priority::P2),
            (EventType::Decision, Priority::P2)
        ]
    );
    assert_eq!(facts(&ledger, "c2").len(), 1);
    assert_eq!(facts(&ledger, "nobody"), []);
}

// C9
#[test]
fn a_consolidation_is_judged() {
    let facts = facts_with_texts(&[
        "Never deploy on Fridays",
        "User uses Rust",
        "User uses Axum 0.7",
        "User likes short answers",
        "The greeting was friendly",
        "Budget: 500 EUR",
    ]);
    let propose = |lines: &[&str]| {
        check_consolidation(
            &facts,
            &lines.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>(),
        )
    };
    let applied = propose(&[
        "Never deploy on Fridays",
        "User uses Rust and Axum 0.7",
        "User likes short answers",
        "Budget: 500 EUR",
    ])
    .unwrap();
    assert_eq!(
        facts_after(&facts, &applied.changes),
        [
            "Never deploy on Fridays",
            "User uses Rust and Axum 0.7",
            "User likes short answers",
            "Budget: 500 EUR"
        ],
        "{applied:?}"
    );
    assert_eq!(applied.notes, ["dropped: The greeting was friendly"]);
    let kept = [
        "Never deploy on Fridays",
        "User uses Rust",
        "User uses Axum 0.7",
        "User likes short answers",
        "Budget: 500 EUR",
    ];
    assert_eq!(propose(&kept).unwrap().changes, [FactChange::Remove { id: id(5) }]);
    let with = |from: &str, to: &[&str]| -> Vec<String> {
        let mut lines: Vec<&str> = kept.iter().copied().filter(|line| *line != from).collect();
        lines.extend(to);
        propose(&lines).unwrap_err()
    };
    for (from, to) in [
        ("Never deploy on Fridays", &[][..]),
        ("Never deploy on Fridays", &["Deploy on Fridays"][..]),
        ("Never deploy on Fridays", &["Never deploy on Fridays unless urgent"][..]),
        ("Never deploy on Fridays", &["Never deploy manually on Fridays"][..]),
        ("Never deploy on Fridays", &["Avoid deploys"][..]),
        ("Budget: 500 EUR", &[][..]),
        ("Budget: 500 EUR", &["Budget: 600 EUR"][..]),
        ("User uses Axum 0.7", &["User uses Axum 0.8"][..]),
        ("User uses Axum 0.7", &["User uses Actix 0.7"][..]),
        ("User uses Rust", &["User uses Rust", "User lives in Berlin"][..]),
        ("User likes short answers", &["User must get short answers"][..]),
        ("User likes short answers", &["User does not like short answers"][..]),
    ] {
        assert!(!with(from, to).is_empty(), "{from} {to:?}");
    }
    assert!(propose(&[]).is_err());
    assert_eq!(check_consolidation(&[], &[]).unwrap(), AppliedDiff::default());
    let soft = facts_with_texts(&[
        "it is fine",
        "all went well here",
        "talk was pleasant",
        "mood was good",
    ]);
    assert!(check_consolidation(&soft, &["mood was good".into()]).is_err());
}

// C9
#[test]
fn numbers_cannot_change_owners() {
    let facts = facts_with_texts(&["Python is at 3.12", "Node is at 18"]);
    assert!(
        check_consolidation(&facts, &["Python is at 18 while Node is at 3.12".into()]).is_err()
    );
    assert!(check_consolidation(&facts, &["Python is at 3.12 and Node is at 18".into()]).is_ok());
}

// C14
#[test]
fn snapshots_are_compared() {
    let older = facts_with_texts(&["Editor: Vim", "User likes tea", "Shell: zsh", "Same"]);
    let mut newer = facts_with_texts(&["Editor: Emacs", "x", "y", "Same"]);
    newer.remove(2);
    newer.remove(1);
    newer[0].id = id(9);
    newer.push(ConversationFact { id: id(10), ..facts_with_texts(&["Theme: dark"]).remove(0) });
    let compared = compare_facts(&older, &newer);
    assert_eq!(compared.changed, [("Editor: Vim".to_owned(), "Editor: Emacs".to_owned())]);
    assert_eq!(
        (compared.added, compared.removed),
        (
            vec!["Theme: dark".to_owned()],
            vec!["User likes tea".to_owned(), "Shell: zsh".to_owned()]
        )
    );
    assert_eq!(compare_facts(&older, &older), FactComparison::default());
    let text = snapshot(&older, 12, moment());
    assert_eq!(text.lines().filter(|line| line.contains("EVT-")).count(), 4);
    assert_eq!(
        snapshot(&[], 0, moment()),
        "{\n  \"turn\": 0,\n  \"ts\": \"2026-02-13T09:30:00+01:00\",\n  \"facts\": []\n}\n"
    );
}

const SUBJECTS: &[&str] = &[
    "Editor",
    "Shell",
    "Python version",
    "User name",
    "User nickname",
    "API port",
    "API host",
    "Theme",
    "Budget",
];

/// Entries of all kinds: with keys, as sentences, hard, short, odd.
fn entry() -> impl Strategy<Value = String> {
    prop_oneof![
        (prop::sample::select(SUBJECTS.to_vec()), "[a-z]{3,6}")
            .prop_map(|(key, value)| format!("{key}: {value}")),
        (prop::sample::select(SUBJECTS.to_vec()), 1_u32..99)
            .prop_map(|(key, value)| format!("The {} is now {value}", key.to_lowercase())),
        prop::sample::select(vec![
            "User",
            "a",
            "",
            "Python",
            "User prefers tabs",
            "never",
            "tabs",
            "Fridays",
            "deploy",
            "must",
            "API"
        ])
        .prop_map(str::to_owned),
        "\\PC{0,40}",
    ]
}

fn base() -> impl Strategy<Value = Vec<ConversationFact>> {
    prop::collection::btree_map(prop::sample::select(SUBJECTS.to_vec()), "[a-z]{3,6}", 0..6)
        .prop_map(|all| {
            let mut texts: Vec<String> = vec![
                "Never deploy the shop on Fridays".into(),
                "Answers must always be in Latin".into(),
                "User prefers tabs for Makefile rules".into(),
            ];
            texts.extend(all.into_iter().map(|(key, value)| format!("{key}: {value}")));
            facts_with_texts(&texts.iter().map(String::as_str).collect::<Vec<_>>())
        })
}

fn any_diff() -> impl Strategy<Value = FactDiff> {
    let list = || prop::collection::vec(entry(), 0..5);
    (list(), list(), list()).prop_map(|(add, update, remove)| FactDiff {
        add,
        update,
        remove,
        notes: Vec::new(),
    })
}

proptest! {
    // C5, C10
    #[test]
    fn whatever_a_diff_says_nothing_is_doubled_or_lost(facts in base(), diff in any_diff()) {
        let applied = apply_diff(&facts, &diff);
        let now = facts_after(&facts, &applied.changes);
        prop_assert_eq!(find_duplicate_key(&now), None, "{:?}", now);
        prop_assert!(now.iter().any(|text| text == "Never deploy the shop on Fridays"));
        prop_assert!(now.iter().any(|text| text == "Answers must always be in Latin"));
        prop_assert!(now.iter().any(|text| text == "User prefers tabs for Makefile rules"));
        // A fact is removed or changed only if an entry has its key.
        let named = |fact: &ConversationFact| {
            let key = fact.text.split(':').next().unwrap_or_default().to_lowercase();
            diff.add.iter().chain(&diff.update).chain(&diff.remove).any(|text| text.to_lowercase().contains(key.strip_prefix("user ").unwrap_or(&key)))
        };
        for fact in facts.iter().filter(|fact| !named(fact)) {
            prop_assert!(now.contains(&fact.text), "{} is gone: {:?}", fact.text, applied);
        }
        // Removals come first, additions last, and no fact changes twice.
        let rank = |change: &FactChange| match change { FactChange::Remove { .. } => 0, FactChange::Replace { .. } => 1, FactChange::Add { .. } => 2 };
        prop_assert!(applied.changes.is_sorted_by_key(rank));
        let ids: Vec<EventId> = applied.changes.iter().filter_map(|change| match change { FactChange::Remove { id } | FactChange::Replace { id, .. } => Some(*id), FactChange::Add { .. } => None }).collect();
        prop_assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ids.len());
    }

    // C5
    #[test]
    fn the_ledger_comes_to_what_was_applied(diffs in prop::collection::vec(any_diff(), 1..4)) {
        let mut events: Vec<Event> = Vec::new();
        for (turn, diff) in diffs.iter().enumerate() {
            let before = facts(&Ledger::from_events(events.clone()), "c1");
            let applied = record_diff(&mut events, diff, turn as u64);
            let mut wanted = facts_after(&before, &applied.changes);
            let mut now: Vec<String> = facts(&Ledger::from_events(events.clone()), "c1").into_iter().map(|fact| fact.text).collect();
            wanted.sort();
            now.sort();
            prop_assert_eq!(now, wanted);
        }
    }

    // C5
    #[test]
    fn a_diff_applied_twice_changes_nothing_more(facts in base(), add in prop::collection::vec("[A-Z][a-z]{4,8} [a-z]{4,8}: [a-z]{4,8}", 0..4)) {
        let diff = FactDiff { add, ..FactDiff::default() };
        let once = facts_after(&facts, &apply_diff(&facts, &diff).changes);
        let again = facts_with_texts(&once.iter().map(String::as_str).collect::<Vec<_>>());
        let last_of_its_key = apply_diff(&again, &diff);
        let texts = facts_after(&again, &last_of_its_key.changes);
        prop_assert_eq!(texts.len(), once.len());
    }

    // C9
    #[test]
    fn a_list_as_it_is_may_always_stand(facts in base()) {
        let lines: Vec<String> = facts.iter().map(|fact| fact.text.clone()).collect();
        prop_assert_eq!(check_consolidation(&facts, &lines).unwrap().changes, []);
        // Without its hard exceptions it is rejected.
        let soft: Vec<String> = facts.iter().filter(|fact| !fact.hard).map(|fact| fact.text.clone()).collect();
        prop_assert!(check_consolidation(&facts, &soft).is_err());
    }

    // C14
    #[test]
    fn a_snapshot_comes_back(facts in base(), turn in 0_u64..1_000) {
        let read: Value = serde_json::from_str(&snapshot(&facts, turn, moment())).unwrap();
        prop_assert_eq!(&read["turn"], turn);
        prop_assert_eq!(&read["facts"], &serde_json::to_value(&facts).unwrap());
    }
}
