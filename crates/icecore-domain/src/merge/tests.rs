//! Merges, as tables and as set properties.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

fn event(id: &str, time: &str, content: &str, rest: &str) -> String {
    format!(
        r#"{{"ts":"2026-02-13T{time}:00+01:00","id":"EVT-20260213-{id}","type":"fact","priority":"P1","content":"{content}","source":"live"{rest}}}"#
    )
}

fn join_lines(lines: &[&str]) -> Vec<u8> {
    lines.iter().flat_map(|line| [line.as_bytes(), b"\n"].concat()).collect()
}

fn merge_lines(
    path: &str,
    base: &[&str],
    ours: &[&str],
    theirs: &[&str],
) -> Result<Vec<String>, MergeConflict> {
    let (base, ours, theirs) = (join_lines(base), join_lines(ours), join_lines(theirs));
    match merge_file(path, MergeInput { base: &base, ours: &ours, theirs: &theirs }, false)? {
        MergedFile::Whole(bytes) => {
            Ok(String::from_utf8(bytes).unwrap().lines().map(str::to_owned).collect())
        }
        MergedFile::ByLines => Ok(vec!["BY LINES".into()]),
    }
}

/// The merge in both directions has the same result.
fn check(path: &str, base: &[&str], ours: &[&str], theirs: &[&str], wanted: &[&str]) {
    assert_eq!(merge_lines(path, base, ours, theirs).unwrap(), wanted, "{path}");
    assert_eq!(
        merge_lines(path, base, theirs, ours).unwrap(),
        wanted,
        "{path}, the other way round"
    );
}

#[test]
fn the_ledger_has_what_either_added_and_neither_took_out() {
    let (one, two) = (&*event("001", "09:00", "one", ""), &*event("002", "09:01", "two", ""));
    let (three, four) = (&*event("003", "09:02", "three", ""), &*event("004", "09:03", "four", ""));
    let ledger = layout::LEDGER;
    check(ledger, &[one], &[one, two], &[one, three], &[one, two, three]);
    // What a compaction removed stays removed, also if the other side only added.
    check(ledger, &[one, two], &[two, three], &[one, two, four], &[two, three, four]);
    // Both archived it.
    check(ledger, &[one, two], &[two, three], &[two, four], &[two, three, four]);
    // Both added it: it exists once.
    check(ledger, &[one], &[one, two, three], &[one, two, four], &[one, two, three, four]);
    // A line that is not an event is a line.
    check(ledger, &[one, "what?"], &[one, two], &[one, "what?", three], &[one, two, three]);
}

#[test]
fn what_was_forgotten_wins() {
    let (one, two, three) = (
        &*event("001", "09:00", "one", ""),
        &*event("002", "09:01", "two", ""),
        &*event("003", "09:02", "three", ""),
    );
    let gone = &*event("001", "09:00", "[forgotten]", "");
    let ledger = layout::LEDGER;
    // It keeps its position, so that lines that refer to it come after it.
    check(ledger, &[one, two], &[gone, two], &[one, two, three], &[gone, two, three]);
    // Forgotten here and archived there: the archive has it.
    check(ledger, &[one, two], &[gone, two], &[two, three], &[two, three]);
    // Forgotten here and edited there.
    check(ledger, &[one], &[gone], &[&event("001", "09:00", "uno", "")], &[gone]);
}

#[test]
fn an_id_never_means_two_things() {
    let (here, there) = (&*event("001", "09:00", "here", ""), &*event("001", "09:01", "there", ""));
    let clash = merge_lines(layout::LEDGER, &[], &[here], &[there]).unwrap_err();
    let told = clash.to_string();
    for word in ["EVT-20260213-001", "“here”", "“there”", "icecore merge"] {
        assert!(told.contains(word), "{told}");
    }
    // Both machines recorded the same statement: it is one event.
    let later = &*event("001", "09:05", "here", "");
    check(layout::LEDGER, &[], &[here], &[later], &[here]);
    // Both sides edited one event.
    let base = &*event("001", "09:00", "as it was", "");
    assert!(matches!(
        merge_lines(layout::LEDGER, &[base], &[here], &[there]),
        Err(MergeConflict::Changed { .. })
    ));
    // Edited and archived.
    assert!(matches!(
        merge_lines(layout::LEDGER, &[base], &[here], &[]),
        Err(MergeConflict::Changed { .. })
    ));
}

#[test]
fn archives_have_each_line_in_one_batch() {
    let path = "memory/ledger-archive-2026.jsonl";
    let (one, two, three) = (
        &*event("001", "09:00", "one", ""),
        &*event("002", "09:01", "two", ""),
        &*event("003", "09:02", "three", ""),
    );
    let head = |time: &str, lines: usize| {
        format!(r#"{{"archived":"2026-02-14T{time}:00+01:00","why":"compaction","lines":{lines}}}"#)
    };
    let (early, late, one_less) = (&*head("03:00", 2), &*head("04:00", 2), &*head("04:00", 1));
    check(path, &[], &[early, one, two], &[late, two, three], &[early, one, two, one_less, three]);
    // A complete duplicate of the batch is removed.
    check(path, &[], &[early, one, two], &[late, one, two], &[early, one, two]);
    // Forgotten in one of them.
    let gone = &*event("002", "09:01", "[forgotten]", "");
    check(
        path,
        &[early, one, two],
        &[early, one, gone],
        &[early, one, two, one_less, three],
        &[early, one, gone, one_less, three],
    );
    check(
        path,
        &[],
        &[early, one, two],
        &[late, gone, three],
        &[early, one, gone, one_less, three],
    );
    // Pruned on one machine, compacted on the other.
    let file = |name: &str, lines: &[&str]| (name.parse::<DocPath>().unwrap(), join_lines(lines));
    let files =
        [file("memory/archive/2026-Q1.jsonl", &[early, one, two]), file(path, &[late, two, three])];
    let changed = dedup_archives(&files);
    assert_eq!(changed, BTreeMap::from([file(path, &[one_less, three])]));
    assert!(dedup_archives(&[files[0].clone()]).is_empty());
}

#[test]
fn summaries_keep_every_version_under_a_number_of_its_own() {
    let moment = |time: &str| {
        crate::calendar::Moment::parse(&format!("2026-02-14T{time}:00+01:00")).unwrap().moment
    };
    let day = |version: u32, time: &str, said: &str| {
        let summary = crate::summary::Summary {
            period: "2026-02-13".parse().unwrap(),
            version,
            session: None,
            start: moment("01:00"),
            end: moment("02:00"),
            headline: said.into(),
            body: String::new(),
            messages: 1,
            states: 0,
            recorded: moment(time),
            source: crate::hash::Hash::of(said.as_bytes()),
            log: None,
            sources: Vec::new(),
            maker: crate::summary::SummaryAuthor::Extract,
            provisional: true,
            importance: crate::summary::Importance::Ordinary,
            left_out: Vec::new(),
            cost: Default::default(),
            similar: None,
        };
        summary.to_line().trim_end().to_owned()
    };
    let (ours, theirs) = (day(1, "03:00", "ours"), day(1, "03:30", "theirs"));
    let out = merge_lines(layout::SUMMARIES, &[], &[&ours], &[&theirs]).unwrap();
    let versions: Vec<(u32, String)> = out
        .iter()
        .map(|line| crate::summary::Summary::parse_line(line.as_bytes()).unwrap())
        .map(|summary| (summary.version, summary.headline))
        .collect();
    assert_eq!(versions, [(1, "ours".into()), (2, "theirs".into())]);
}

#[test]
fn logs_grow_on_both_sides() {
    let log = "memory/2026-02-13.md";
    let title = "# 2026-02-13 Friday, 2026-W07";
    check(
        log,
        &[title, "", "- 09:00 a"],
        &[title, "", "- 09:00 a", "- 09:10 b", "  and more"],
        &[title, "", "- 09:00 a", "- 09:05 c"],
        &[title, "", "- 09:00 a", "- 09:05 c", "- 09:10 b", "  and more"],
    );
    check(
        log,
        &[],
        &[title, "", "- 09:00 a"],
        &[title, "", "- 08:00 b"],
        &[title, "", "- 08:00 b", "- 09:00 a"],
    );
    // A third machine's line is before those of the base.
    check(
        log,
        &["- 09:00 b"],
        &["- 09:00 b", "- 09:10 c"],
        &["- 08:00 a", "- 09:00 b", "- 09:05 d"],
        &["- 08:00 a", "- 09:00 b", "- 09:05 d", "- 09:10 c"],
    );
    // A line that one side changed has that wording, one that both changed has both.
    check(
        log,
        &["- 09:00 a", "- 09:01 x"],
        &["- 09:00 A", "- 09:01 x", "- 09:10 b"],
        &["- 09:00 a", "- 09:01 x", "- 09:05 c"],
        &["- 09:00 A", "- 09:01 x", "- 09:05 c", "- 09:10 b"],
    );
    check(log, &["- 09:00 a"], &["- 09:00 one"], &["- 09:00 two"], &["- 09:00 one", "- 09:00 two"]);
    // Both have it from a third machine, in different positions.
    check(
        log,
        &["- 09:00 b"],
        &["- 08:00 a", "- 09:00 b"],
        &["- 09:00 b", "- 08:00 a"],
        &["- 08:00 a", "- 09:00 b"],
    );
    // Equal lines of different entries stay two, and so do those under different headings.
    check(
        log,
        &[title],
        &[title, "", "- 09:00 a", "  all well"],
        &[title, "", "- 09:01 b", "  all well"],
        &[title, "", "- 09:00 a", "  all well", "- 09:01 b", "  all well"],
    );
    let extracts = "## Priority Extracts";
    check(
        log,
        &[title, "", "- 09:00 a"],
        &[title, "", "- 09:00 a", "- 09:10 c"],
        &[title, "", "- 09:00 a", "", extracts, "- [P1] y"],
        &[title, "", "- 09:00 a", "- 09:10 c", "", extracts, "- [P1] y"],
    );
    check(
        log,
        &[title, "", "- 09:00 a", "", extracts, "- [P1] x"],
        &[title, "", "- 09:00 a", "", extracts, "- [P1] x", "- [P1] one"],
        &[title, "", "- 09:00 a", "", extracts, "- [P1] x", "- [P2] two"],
        &[title, "", "- 09:00 a", "", extracts, "- [P1] x", "- [P1] one", "- [P2] two"],
    );
    // One side removed a section, and the other added to it.
    check(
        log,
        &[title, extracts, "- old"],
        &[title],
        &[title, extracts, "- old", "- new"],
        &[title, extracts, "- new"],
    );
    // The log of checks, whose times may be in different zones.
    let checks = "# Integrity log";
    check(
        layout::INTEGRITY_LOG,
        &[checks, "", "- 2026-02-13T09:00:00+01:00 ok, 1 event"],
        &[
            checks,
            "",
            "- 2026-02-13T09:00:00+01:00 ok, 1 event",
            "- 2026-02-13T09:30:00+01:00 FAILED, 1 event",
            "  - it is",
        ],
        &[
            checks,
            "",
            "- 2026-02-12T23:00:00Z ok, 0 events",
            "- 2026-02-13T09:00:00+01:00 ok, 1 event",
            "- 2026-02-13T08:20:00Z ok, 2 events",
        ],
        &[
            checks,
            "",
            "- 2026-02-12T23:00:00Z ok, 0 events",
            "- 2026-02-13T09:00:00+01:00 ok, 1 event",
            "- 2026-02-13T08:20:00Z ok, 2 events",
            "- 2026-02-13T09:30:00+01:00 FAILED, 1 event",
            "  - it is",
        ],
    );
    // Two runs of one day, with the same headings below each.
    let report = "knowledge/consolidation-reports/2026-02-13.md";
    let (early, late) = ("## Run 2026-02-13T03:00:00+01:00", "## Run 2026-02-13T04:00:00+01:00");
    check(
        report,
        &["# Consolidation 2026-02-13"],
        &["# Consolidation 2026-02-13", "", late, "### Learnt", "- nothing"],
        &["# Consolidation 2026-02-13", "", early, "### Learnt", "- nothing"],
        &[
            "# Consolidation 2026-02-13",
            "",
            early,
            "### Learnt",
            "- nothing",
            "",
            late,
            "### Learnt",
            "- nothing",
        ],
    );
}

#[test]
fn every_file_is_merged_by_its_kind() {
    for (path, wanted) in [
        (layout::LEDGER, MergeStrategy::Ledger),
        ("memory/archive/2026-Q1.jsonl", MergeStrategy::Archive),
        (layout::SUMMARIES, MergeStrategy::Summaries),
        (layout::FORGOTTEN, MergeStrategy::Lines),
        (layout::RUNS, MergeStrategy::Lines),
        ("memory/messages/2026-02-13.jsonl", MergeStrategy::Lines),
        ("memory/snapshots/2026-02-13.jsonl", MergeStrategy::Lines),
        ("memory/tool-versions/2026-02.jsonl", MergeStrategy::Lines),
        ("conversations/trip/turn-log.jsonl", MergeStrategy::Lines),
        ("memory/tool/plan.jsonl", MergeStrategy::Own),
        ("memory/2026-02-13.md", MergeStrategy::Grown),
        (layout::INTEGRITY_LOG, MergeStrategy::Grown),
        ("knowledge/consolidation-reports/2026-02-13.md", MergeStrategy::Grown),
        (layout::OPEN_LOOPS, MergeStrategy::Derived),
        (layout::RECALL, MergeStrategy::Derived),
        (layout::UPLOAD, MergeStrategy::Derived),
        (layout::LAST_DAY, MergeStrategy::Derived),
        ("primers/daily/2026-02-13.md", MergeStrategy::View),
        ("knowledge/entities/apollo.md", MergeStrategy::Page),
        ("memory/memories/a.md", MergeStrategy::Page),
        ("USER.md", MergeStrategy::Own),
        (layout::CONFIG, MergeStrategy::Own),
        (layout::TRIGGERS, MergeStrategy::Own),
    ] {
        assert_eq!(strategy(path), wanted, "{path}");
    }
}

#[test]
fn our_ids_give_way_with_everything_that_names_them() {
    let base = join_lines(&[&event("001", "08:00", "known to both", "")]);
    let with = |lines: &[&str]| [base.clone(), join_lines(lines)].concat();
    let ours = with(&[
        &event("002", "09:00", "ours", ""),
        &event("003", "09:10", "ours too", r#","supersedes":"EVT-20260213-002""#),
    ]);
    let theirs = with(&[&event("002", "09:05", "theirs", "")]);
    let map = renumbering(&[&base], &[&ours], &[&theirs], &BTreeSet::new()).unwrap();
    let told: Vec<String> = map.iter().map(|(old, new)| format!("{old} {new}")).collect();
    assert_eq!(told, ["EVT-20260213-002 EVT-20260213-003", "EVT-20260213-003 EVT-20260213-004"]);
    let renamed = renumber_file(layout::LEDGER, &ours, &map).unwrap();
    let MergedFile::Whole(all) = merge_file(
        layout::LEDGER,
        MergeInput { base: &base, ours: &renamed, theirs: &theirs },
        false,
    )
    .unwrap() else {
        panic!()
    };
    let ledger = crate::ledger::Ledger::parse(&all, None);
    let said: Vec<(String, &str)> = ledger
        .entries()
        .iter()
        .map(|entry| (entry.event.id.to_string()[13..].to_owned(), entry.event.content.as_str()))
        .collect();
    assert_eq!(
        said,
        [
            ("001".into(), "known to both"),
            ("002".into(), "theirs"),
            ("003".into(), "ours"),
            ("004".into(), "ours too")
        ]
    );
    assert_eq!(ledger.entries()[3].event.supersedes, [ledger.entries()[2].event.id]);
    let text = |path: &str, text: &str| {
        renumber_file(path, text.as_bytes(), &map).map(|bytes| String::from_utf8(bytes).unwrap())
    };
    assert_eq!(
        text("knowledge/entities/a.md", "- x (EVT-20260213-002)\n").unwrap(),
        "- x (EVT-20260213-003)\n"
    );
    assert_eq!(text("a.md", "EVT-20260213-0021 EVT-20260213-001"), None);
    // Conversation ids and verbatim text are not renumbered.
    assert_eq!(text(layout::FORGOTTEN, r#""conversations/x/events.jsonl#EVT-20260213-002""#), None);
    assert_eq!(text("memory/messages/2026-02-13.jsonl", "EVT-20260213-002"), None);
    // On a day with only our events, nothing is renumbered.
    assert!(renumbering(&[&base], &[&ours], &[&base], &BTreeSet::new()).unwrap().is_empty());
}

#[test]
fn a_checkpoint_says_what_both_have_done() {
    let one = r#"{"last_processed_event_id":"EVT-20260213-009","last_run_ts":"2026-02-13T03:00:00+01:00","events_processed":9,"distilled":{"sessions":{"a":1,"b":1},"logs":{}}}"#;
    let other = r#"{"last_run_ts":"2026-02-12T03:00:00+01:00","distilled":{"sessions":{"a":2,"c":1},"logs":{}}}"#;
    let out = merge_lines(layout::CHECKPOINT, &[], &[one], &[other]).unwrap().concat();
    let out: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(out["last_run_ts"], "2026-02-12T03:00:00+01:00");
    assert_eq!(out["distilled"]["sessions"], serde_json::json!({"b": 1, "c": 1}));
    assert_eq!(out.get("last_processed_event_id"), None);
}

fn sets() -> impl Strategy<Value = BTreeSet<u8>> {
    proptest::collection::btree_set(0_u8..12, 0..9)
}

fn line_of(number: u8, kind: bool) -> String {
    let time = format!("09:{:02}", number % 7);
    if kind {
        event(&format!("{:03}", number + 1), &time, &format!("said {number}"), "")
    } else {
        format!(r#"{{"ts":"2026-02-13T{time}:00+01:00","n":{number}}}"#)
    }
}

fn text_of(set: &BTreeSet<u8>, kind: bool) -> Vec<u8> {
    set.iter().flat_map(|&number| format!("{}\n", line_of(number, kind)).into_bytes()).collect()
}

/// A log with these entries; those from `below` on are under a heading of their own. `backwards`:
/// the entries are not ordered by time.
fn log_of(set: &BTreeSet<u8>, backwards: bool, below: u8) -> Vec<u8> {
    let entry = |number: &u8| format!("- 09:{:02} said {number}\n  by somebody\n", number % 7);
    let (first, last): (Vec<&u8>, Vec<&u8>) = set.iter().partition(|number| **number < below);
    let order = |mut numbers: Vec<&u8>| {
        numbers.sort_by_key(|number| (**number % 7, **number));
        if backwards {
            numbers.reverse();
        }
        numbers.into_iter().map(entry).collect::<String>()
    };
    let rest = order(last);
    let rest = if rest.is_empty() { rest } else { format!("\n## Later\n{rest}") };
    format!("# 2026-02-13\n\n{}{rest}", order(first)).into_bytes()
}

fn merged_log(base: &[u8], ours: &[u8], theirs: &[u8]) -> Vec<u8> {
    let MergedFile::Whole(bytes) =
        merge_file("memory/2026-02-13.md", MergeInput { base, ours, theirs }, false).unwrap()
    else {
        panic!()
    };
    bytes
}

/// The lines with content, sorted. A heading without content may stay.
fn entries_in(bytes: &[u8]) -> Vec<String> {
    let lines = lines_in(bytes);
    assert!(lines.iter().filter(|line| line.starts_with("## ")).count() <= 1, "{lines:?}");
    lines.into_iter().filter(|line| !line.is_empty() && !line.starts_with("## ")).collect()
}

fn three_way(kind: bool, base: &[u8], ours: &[u8], theirs: &[u8]) -> Vec<u8> {
    let path = if kind { layout::LEDGER } else { layout::RUNS };
    let MergedFile::Whole(bytes) =
        merge_file(path, MergeInput { base, ours, theirs }, false).unwrap()
    else {
        panic!()
    };
    bytes
}

fn lines_in(bytes: &[u8]) -> Vec<String> {
    let mut lines: Vec<String> =
        String::from_utf8(bytes.to_vec()).unwrap().lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

proptest! {
    #[test]
    fn lines_are_those_of_set_theory(base in sets(), ours in sets(), theirs in sets(), kind: bool) {
        let wanted: BTreeSet<u8> = (0..12)
            .filter(|n| {
                let (b, o, t) = (base.contains(n), ours.contains(n), theirs.contains(n));
                if b { o && t } else { o || t }
            })
            .collect();
        let (b, o, t) = (text_of(&base, kind), text_of(&ours, kind), text_of(&theirs, kind));
        let one = three_way(kind, &b, &o, &t);
        prop_assert_eq!(lines_in(&one), lines_in(&text_of(&wanted, kind)));
        // In the other direction the result has the same bytes, unless one side has nothing new:
        // then its file is used unchanged.
        let other = three_way(kind, &b, &t, &o);
        prop_assert_eq!(lines_in(&other), lines_in(&one));
        if b != o && b != t {
            prop_assert_eq!(&other, &one);
        }
        // A second merge changes nothing.
        prop_assert_eq!(three_way(kind, &one, &one, &one), one.clone());
        prop_assert_eq!(lines_in(&three_way(kind, &b, &one, &t)), lines_in(&one));
        prop_assert_eq!(lines_in(&three_way(kind, &b, &o, &one)), lines_in(&one));
    }

    #[test]
    fn logs_have_every_line_of_both_once(base in sets(), ours in sets(), theirs in sets(), backwards: bool, below in 0_u8..12) {
        let wanted: BTreeSet<u8> = (0..12)
            .filter(|n| {
                let (b, o, t) = (base.contains(n), ours.contains(n), theirs.contains(n));
                if b { o && t } else { o || t }
            })
            .collect();
        let (b, o, t) = (log_of(&base, false, below), log_of(&ours, backwards, below), log_of(&theirs, false, below));
        let one = merged_log(&b, &o, &t);
        prop_assert_eq!(entries_in(&one), entries_in(&log_of(&wanted, false, below)));
        prop_assert_eq!(entries_in(&merged_log(&b, &t, &o)), entries_in(&one));
        if b != o && b != t {
            prop_assert_eq!(merged_log(&b, &t, &o), one.clone());
        }
        // A second merge changes nothing, whichever side has it already.
        prop_assert_eq!(entries_in(&merged_log(&b, &one, &t)), entries_in(&one));
        prop_assert_eq!(entries_in(&merged_log(&t, &t, &one)), entries_in(&one));
    }

    #[test]
    fn logs_of_three_machines_come_to_the_same_in_any_order(base in sets(), a in sets(), b in sets(), c in sets(), below in 0_u8..12) {
        let log = |set: &BTreeSet<u8>| log_of(set, false, below);
        let (o, a, b, c) = (log(&base), log(&a), log(&b), log(&c));
        let left = merged_log(&o, &merged_log(&o, &a, &b), &c);
        for other in [merged_log(&o, &a, &merged_log(&o, &b, &c)), merged_log(&o, &b, &merged_log(&o, &c, &a)), merged_log(&o, &merged_log(&o, &c, &b), &a)] {
            prop_assert_eq!(entries_in(&left), entries_in(&other));
        }
    }

    #[test]
    fn three_machines_come_to_the_same(base in sets(), a in sets(), b in sets(), c in sets(), kind: bool) {
        let (o, a, b, c) = (text_of(&base, kind), text_of(&a, kind), text_of(&b, kind), text_of(&c, kind));
        let left = three_way(kind, &o, &three_way(kind, &o, &a, &b), &c);
        let right = three_way(kind, &o, &a, &three_way(kind, &o, &b, &c));
        prop_assert_eq!(lines_in(&left), lines_in(&right));
    }

    #[test]
    fn no_bytes_can_upset_it(base in proptest::collection::vec(any::<u8>(), 0..80), ours in proptest::collection::vec(any::<u8>(), 0..80), theirs in proptest::collection::vec(any::<u8>(), 0..80)) {
        for path in [layout::LEDGER, "memory/ledger-archive-2026.jsonl", layout::SUMMARIES, layout::RUNS, "memory/2026-02-13.md", layout::CHECKPOINT, layout::INTEGRITY, "primers/daily/2026-02-13.md"] {
            let _ = merge_file(path, MergeInput { base: &base, ours: &ours, theirs: &theirs }, false);
        }
        let map = Renumbering::from([("EVT-20260213-001".parse().unwrap(), "EVT-20260213-002".parse().unwrap())]);
        let _ = renumber_file(layout::LEDGER, &ours, &map);
    }
}
