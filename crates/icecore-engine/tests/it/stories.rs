//! Stories over several days, with a fixed clock.

use std::sync::Arc;

use icecore_domain::event::{Act, EventType, Origin, Priority};
use icecore_domain::ledger::query::EventQuery;
use icecore_engine::clock::FixedClock;
use icecore_engine::{
    CaptureDefaults, ForgetRequest, IntegrityStatus, LiveSession, Memory, OriginalSource,
    PackBudget, RememberRequest,
};
use icecore_store::vault::Vault;
use pollster::block_on;

use crate::{MORNING, TestVault, statement};

fn active(home: &TestVault, now: &str) -> Vec<String> {
    block_on(home.at(now).query_events(&EventQuery::default()))
        .unwrap()
        .into_iter()
        .map(|entry| entry.event.draft.content)
        .collect()
}

// L2: ids belong to the local day, not to UTC's
#[test]
fn ids_count_within_the_local_day() {
    let home = TestVault::new();
    let late = block_on(home.at("2026-02-13T22:59:00Z").remember(statement("late"))).unwrap();
    let after_midnight =
        block_on(home.at("2026-02-13T23:01:00Z").remember(statement("after midnight"))).unwrap();
    assert_eq!(late.event.id.to_string(), "EVT-20260213-001");
    assert_eq!(after_midnight.event.id.to_string(), "EVT-20260214-001");
    // The clock may go backwards.
    let back = block_on(home.at("2026-02-13T22:00:00Z").remember(statement("back"))).unwrap();
    assert_eq!(back.event.id.to_string(), "EVT-20260213-002");
}

// L3
#[test]
fn a_commitment_is_open_until_it_is_closed_and_again_when_that_is_taken_back() {
    let home = TestVault::new();
    let memory = home.at(MORNING);
    let offer = block_on(memory.remember(RememberRequest {
        due: Some("2026-02-20".parse().unwrap()),
        ..statement("The offer for Client X")
    }))
    .unwrap();
    assert_eq!(offer.event.kind, EventType::Commitment);
    let open = || block_on(home.at(MORNING).list_open_commitments()).unwrap().len();
    assert_eq!(open(), 1);
    let closed =
        block_on(memory.append_act(Act::Close, vec![offer.event.id], None, Origin::User, None))
            .unwrap();
    assert_eq!(open(), 0);
    block_on(memory.append_act(Act::Retract, vec![closed[0].event.id], None, Origin::User, None))
        .unwrap();
    assert_eq!(open(), 1);
}

// L3: all or none
#[test]
fn acting_on_many_is_all_or_nothing() {
    let home = TestVault::new();
    let memory = home.at(MORNING);
    let one = block_on(memory.remember(statement("Send one"))).unwrap().event.id;
    let fact = block_on(memory.remember(statement("a fact"))).unwrap().event.id;
    assert!(
        block_on(memory.append_act(Act::Close, vec![one, fact], None, Origin::User, None)).is_err()
    );
    assert_eq!(block_on(memory.list_open_commitments()).unwrap().len(), 1);
}

// L2: what was known at a moment
#[test]
fn the_past_is_read_as_it_was_known() {
    let home = TestVault::new();
    let first =
        block_on(home.at("2026-02-01T09:00:00Z").remember(statement("The budget is 500 EUR")))
            .unwrap()
            .event
            .id;
    let change = RememberRequest { supersedes: vec![first], ..statement("The budget is 600 EUR") };
    block_on(home.at("2026-02-10T09:00:00Z").remember(change)).unwrap();
    assert_eq!(active(&home, "2026-01-01T00:00:00Z"), [] as [String; 0]);
    assert_eq!(active(&home, "2026-02-05T00:00:00Z"), ["The budget is 500 EUR"]);
    assert_eq!(active(&home, "2026-02-11T00:00:00Z"), ["The budget is 600 EUR"]);
    assert_eq!(block_on(home.at("2026-02-05T00:00:00Z").load_status()).unwrap().statements, 1);
}

// L2: reading as of a moment changes nothing
#[test]
fn looking_back_writes_nothing() {
    let home = TestVault::new();
    let first =
        block_on(home.at("2026-02-01T09:00:00Z").remember(statement("The budget is 500 EUR")))
            .unwrap()
            .event
            .id;
    let change = RememberRequest { supersedes: vec![first], ..statement("The budget is 600 EUR") };
    let second = block_on(home.at("2026-02-10T09:00:00Z").remember(change)).unwrap().event.id;
    assert!(block_on(home.at("2026-02-10T09:00:00Z").verify()).unwrap().ok);
    home.write("memory/2026-02-04.md", "## Priority Extracts\n- [P1] written on the tenth\n");
    let before = home.files();
    let then = home.at("2026-02-05T00:00:00Z");
    assert!(block_on(then.scan_recent_logs()).imported.is_empty());
    assert!(block_on(then.verify()).unwrap().ok);
    assert!(block_on(then.load_status()).is_ok());
    assert_eq!(home.files(), before);
    // Later events are unknown, and their effects have not happened yet.
    assert!(
        block_on(then.append_act(Act::Confirm, vec![second], None, Origin::User, None)).is_err()
    );
    assert!(block_on(then.append_act(Act::Confirm, vec![first], None, Origin::User, None)).is_ok());
    // A command in the present imports the extract.
    assert_eq!(block_on(home.at("2026-02-11T00:00:00Z").scan_recent_logs()).imported.len(), 1);
}

// L12: a garbled report is no reason to stop
#[test]
fn a_garbled_report_is_rebuilt() {
    let home = TestVault::new();
    block_on(home.at(MORNING).remember(statement("one"))).unwrap();
    for report in [
        "",
        "nonsense",
        "[]",
        "{\"checked_at\":\"aéééééééé\",\"ok\":true,\"checks\":[{\"ok\":false}],\"ledger\":{\"bytes\":-1,\"sha256\":\"é\"},\"known_gaps\":[7,\"x\"]}",
    ] {
        home.write("memory/integrity.json", report);
        assert!(block_on(home.at(MORNING).load_status()).is_ok(), "{report}");
        assert!(block_on(home.at(MORNING).verify()).unwrap().ok, "{report}");
    }
}

// L2, L12: an id that was lost permanently is not assigned again
#[test]
fn lost_ids_stay_spent() {
    let home = TestVault::new();
    for text in ["one", "two", "three"] {
        block_on(home.at(MORNING).remember(statement(text))).unwrap();
    }
    let text = home.read("memory/ledger.jsonl");
    let short: String = text.lines().take(2).map(|line| format!("{line}\n")).collect();
    home.write("memory/ledger.jsonl", &short);
    std::fs::remove_dir_all(home.root.join(".git")).unwrap();
    assert!(block_on(home.at(MORNING).repair()).unwrap().verdict.ok);
    assert_eq!(
        block_on(home.at(MORNING).remember(statement("four"))).unwrap().event.id.number(),
        4
    );
    home.write("memory/ledger.jsonl", &short);
    assert!(block_on(home.at(MORNING).repair()).unwrap().verdict.ok);
    // Not even without the index, which is derived.
    std::fs::remove_dir_all(home.root.join(".icecore")).unwrap();
    assert_eq!(
        block_on(home.at(MORNING).remember(statement("five"))).unwrap().event.id.number(),
        5
    );
}

// L1: people write with their own editors, and each line is imported once
#[test]
fn extracts_written_by_hand_enter_the_ledger_once() {
    let home = TestVault::new();
    let log = "memory/2026-02-12.md";
    home.write(log, "free text\n\n## Priority Extracts\n- [P0] The pilot starts on March 15\n");
    let take = || block_on(home.at(MORNING).scan_recent_logs()).imported.len();
    assert_eq!((take(), take()), (1, 0));
    // Touched, moved and with another line ending: still the same.
    home.write(
        log,
        "# Title\r\n\r\n## Priority Extracts\r\n\r\n* [P0]  The pilot starts on March 15\r\n",
    );
    assert_eq!(take(), 0);
    // Edited: replaced.
    home.write(
        log,
        "## Priority Extracts\n- [P0] The pilot starts on March 16\n- [P1] Decided on tiers\n",
    );
    assert_eq!((take(), take()), (2, 0));
    assert_eq!(active(&home, MORNING), ["The pilot starts on March 16", "Decided on tiers"]);
    // Retracted by the user: it does not return.
    let id = block_on(home.at(MORNING).query_events(&EventQuery::default())).unwrap()[1].event.id;
    block_on(home.at(MORNING).append_act(Act::Retract, vec![id], None, Origin::User, None))
        .unwrap();
    home.write(log, "## Priority Extracts\n- [P0] The pilot starts on March 16\n- [P1] Decided on tiers\n\nmore\n");
    assert_eq!(take(), 0);
    // Without the index, nothing is known of earlier scans, and still nothing is imported twice.
    std::fs::remove_dir_all(home.root.join(".icecore")).unwrap();
    assert_eq!(take(), 0);
    // Older logs are imported by `verify`, those of future days not yet.
    home.write("memory/2025-06-01.md", "## Priority Extracts\n- [P2] long ago\n");
    home.write("memory/2027-01-01.md", "## Priority Extracts\n- [P2] not yet\n");
    assert_eq!(take(), 0);
    let verdict = block_on(home.at(MORNING).verify()).unwrap();
    assert_eq!(
        verdict.noticed.imported.iter().map(|taken| taken.place.as_str()).collect::<Vec<_>>(),
        ["memory/2025-06-01.md:2"]
    );
}

// L1: a line logged by icecore never becomes an event by itself
#[test]
fn logging_appends_and_keeps_what_others_wrote() {
    let home = TestVault::new();
    home.write("memory/2026-02-13.md", "mine, without an end of line");
    block_on(home.at(MORNING).append_to_log("ours")).unwrap();
    block_on(home.at(MORNING).append_to_log("two\nlines")).unwrap();
    assert_eq!(
        home.read("memory/2026-02-13.md"),
        "mine, without an end of line\n- 09:30 ours\n- 09:30 two\n  lines\n"
    );
    block_on(home.at("2026-02-14T09:00:00+01:00").append_to_log("first of its day")).unwrap();
    assert_eq!(
        home.read("memory/2026-02-14.md"),
        "# 2026-02-14 Saturday, 2026-W07\n\n- 09:00 first of its day\n"
    );
}

// L12
#[test]
fn every_kind_of_damage_fails_verify_and_shows_in_status() {
    let whole = || {
        let home = TestVault::new();
        for text in ["one", "two", "three"] {
            block_on(home.at(MORNING).remember(statement(text))).unwrap();
        }
        assert!(block_on(home.at(MORNING).verify()).unwrap().ok);
        home
    };
    type Damage = fn(&TestVault);
    let damages: &[(&str, Damage)] = &[
        ("valid_lines", |home| {
            home.write(
                "memory/ledger.jsonl",
                &format!("{}garbage\n", home.read("memory/ledger.jsonl")),
            )
        }),
        ("unchanged", |home| {
            home.write(
                "memory/ledger.jsonl",
                &home.read("memory/ledger.jsonl").replace("two", "TWO"),
            )
        }),
        ("unchanged", |home| home.write("memory/ledger.jsonl", "")),
        ("sequential_ids", |home| {
            let text = home.read("memory/ledger.jsonl");
            let line = text.lines().next().unwrap().replace("-001", "-009");
            home.write("memory/ledger.jsonl", &format!("{text}{line}\n"));
        }),
        ("unique_ids", |home| {
            let text = home.read("memory/ledger.jsonl");
            home.write("memory/ledger.jsonl", &format!("{text}{}\n", text.lines().next().unwrap()));
        }),
        ("supersedes", |home| {
            let text = home.read("memory/ledger.jsonl");
            let line = text
                .lines()
                .next()
                .unwrap()
                .replace("-001", "-004")
                .replace("\"origin\"", "\"supersedes\":\"EVT-20200101-001\",\"origin\"");
            home.write("memory/ledger.jsonl", &format!("{text}{line}\n"));
        }),
        ("checkpoint", |home| {
            home.write(
                "memory/checkpoint.json",
                "{\"last_processed_event_id\":\"EVT-20260213-099\"}",
            )
        }),
        ("checkpoint", |home| home.write("memory/checkpoint.json", "not json")),
        ("files", |home| home.write("memory/ledger.sync-conflict-20260213-1.jsonl", "")),
        ("open_loops", |home| home.write("memory/index/open-loops.json", "[\"EVT-20200101-001\"]")),
    ];
    for (check, damage) in damages {
        let home = whole();
        damage(&home);
        let verdict = block_on(home.at(MORNING).verify()).unwrap();
        assert!(!verdict.ok, "{check}");
        let failed: Vec<String> = verdict
            .findings
            .iter()
            .filter(|finding| finding.fails)
            .map(|finding| serde_json::to_string(&finding.check).unwrap())
            .collect();
        assert!(failed.iter().any(|failed| failed.contains(check)), "{check}: {failed:?}");
        let status = block_on(home.at(MORNING).load_status()).unwrap();
        assert!(matches!(status.integrity, IntegrityStatus::Failing { .. }), "{check}");
        assert!(
            status.wrong.iter().any(|wrong| wrong.contains("icecore doctor")),
            "{check}: {:?}",
            status.wrong
        );
        assert!(home.read("memory/integrity-log.md").contains("FAILED"), "{check}");
        // Damage that needs a decision stays; everything else is repaired by `doctor --fix`.
        let repairs = block_on(home.at(MORNING).repair()).unwrap();
        assert_eq!(
            repairs.verdict.ok,
            !["supersedes", "files"].contains(check),
            "{check}: {repairs:?}"
        );
    }
}

// L12: other files in the folder are ignored
#[test]
fn other_files_in_the_folder_do_not_fail_verify() {
    let home = TestVault::new();
    home.write("report (1).pdf", "x");
    home.write("knowledge/apollo (1).md", "x");
    let verdict = block_on(home.at(MORNING).verify()).unwrap();
    assert!(verdict.ok);
    assert_eq!(verdict.findings.len(), 1, "{:?}", verdict.findings);
}

// L12: what another command is changing right now is not damage
#[test]
fn verify_waits_for_changes_of_several_files() {
    let home = TestVault::new();
    block_on(home.at(MORNING).remember(statement("one"))).unwrap();
    block_on(home.at(MORNING).remember(statement("two"))).unwrap();
    assert!(block_on(home.at(MORNING).verify()).unwrap().ok);
    let (whole, report) = (home.read("memory/ledger.jsonl"), home.read("memory/integrity.json"));
    std::thread::scope(|scope| {
        let vault = Vault::open(&home.root).unwrap();
        let claim = block_on(icecore_store::LeaseStore::acquire_lease(&vault, "consolidation"))
            .unwrap()
            .unwrap();
        home.write("memory/ledger.jsonl", &whole.replace("one", "[forgotten]"));
        let verified = scope.spawn(|| block_on(home.at(MORNING).verify()).unwrap());
        std::thread::sleep(std::time::Duration::from_millis(500));
        home.write("memory/ledger.jsonl", &whole);
        drop(claim);
        let verdict = verified.join().unwrap();
        assert!(verdict.ok, "{:?}", verdict.findings);
    });
    assert_eq!(home.read("memory/integrity.json"), report);
}

// L12: the checkpoint that consolidation writes is valid
#[test]
fn a_true_checkpoint_passes() {
    let home = TestVault::new();
    block_on(home.at(MORNING).remember(statement("one"))).unwrap();
    home.write(
        "memory/checkpoint.json",
        "{\"last_processed_event_id\":\"EVT-20260213-001\",\"last_run_ts\":\"2026-02-13T04:00:00-05:00\",\"events_processed\":1}",
    );
    assert!(block_on(home.at(MORNING).verify()).unwrap().ok);
}

// L16
#[test]
fn undo_goes_back_and_undo_again_comes_back() {
    let home = TestVault::new();
    home.write("recall/pack.md", "good\n");
    let kept =
        block_on(home.at(MORNING).remember(statement("The budget is 500 EUR"))).unwrap().event.id;
    block_on(home.at(MORNING).take_snapshot("good")).unwrap().unwrap();
    assert!(block_on(home.at(MORNING).undo(None)).unwrap().is_none());
    home.write("recall/pack.md", "bad\n");
    home.write("memory/2026-02-13.md", "a log only grows\n");
    let change = RememberRequest { supersedes: vec![kept], ..statement("The budget is 600 EUR") };
    block_on(home.at(MORNING).remember(change)).unwrap();
    let before = home.read("memory/ledger.jsonl");
    let undone = block_on(home.at(MORNING).undo(None)).unwrap().unwrap();
    assert_eq!(undone.retracted.len(), 1);
    assert_eq!(home.read("recall/pack.md"), "good\n");
    assert_eq!(home.read("memory/2026-02-13.md"), "a log only grows\n");
    assert!(home.read("memory/ledger.jsonl").starts_with(&before), "the ledger shrank");
    assert_eq!(active(&home, MORNING), ["The budget is 500 EUR"]);
    block_on(home.at(MORNING).undo(None)).unwrap().unwrap();
    assert_eq!(home.read("recall/pack.md"), "bad\n");
    assert_eq!(active(&home, MORNING), ["The budget is 600 EUR"]);
    assert!(block_on(home.at(MORNING).verify()).unwrap().ok);
}

// L16: lines that an editor lost come back
#[test]
fn undo_brings_lost_lines_of_the_ledger_back() {
    let home = TestVault::new();
    for text in ["one", "two", "three"] {
        block_on(home.at(MORNING).remember(statement(text))).unwrap();
    }
    block_on(home.at(MORNING).take_snapshot("three events")).unwrap().unwrap();
    let text = home.read("memory/ledger.jsonl");
    home.write(
        "memory/ledger.jsonl",
        &text.lines().skip(1).map(|line| format!("{line}\n")).collect::<String>(),
    );
    block_on(home.at(MORNING).remember(statement("four"))).unwrap();
    block_on(home.at(MORNING).undo(None)).unwrap().unwrap();
    assert_eq!(active(&home, MORNING), ["one", "two", "three"]);
    assert!(home.read("memory/ledger.jsonl").contains("four"));
}

// L16: derived files do not prevent a restore
#[test]
fn a_second_undo_comes_back_after_verify_and_log_too() {
    let home = TestVault::new();
    block_on(home.at(MORNING).remember(statement("A"))).unwrap();
    block_on(home.at(MORNING).take_snapshot("good")).unwrap().unwrap();
    block_on(home.at(MORNING).remember(statement("B"))).unwrap();
    for round in 0..3 {
        block_on(home.at(MORNING).undo(None)).unwrap().unwrap();
        assert_eq!(active(&home, MORNING), ["A"], "round {round}");
        assert!(block_on(home.at(MORNING).verify()).unwrap().ok);
        block_on(home.at(MORNING).append_to_log("a line")).unwrap();
        block_on(home.at(MORNING).undo(None)).unwrap().unwrap();
        assert_eq!(active(&home, MORNING), ["A", "B"], "round {round}");
    }
    assert_eq!(home.read("memory/2026-02-13.md").matches("a line").count(), 3);
}

// L16: a file may be where a folder was, and the other way round
#[test]
fn undo_swaps_files_and_folders_back() {
    let home = TestVault::new();
    home.write("knowledge/pages/a.md", "one");
    home.write("knowledge/b.md", "one");
    block_on(home.at(MORNING).take_snapshot("good")).unwrap().unwrap();
    std::fs::remove_dir_all(home.root.join("knowledge/pages")).unwrap();
    home.write("knowledge/pages", "two");
    home.write("knowledge/b.md", "two");
    block_on(home.at(MORNING).undo(None)).unwrap().unwrap();
    assert_eq!(
        (home.read("knowledge/pages/a.md"), home.read("knowledge/b.md")),
        ("one".into(), "one".into())
    );
    block_on(home.at(MORNING).undo(None)).unwrap().unwrap();
    assert_eq!(
        (home.read("knowledge/pages"), home.read("knowledge/b.md")),
        ("two".into(), "two".into())
    );
}

// L12: a line changed by hand is detected by comparison with the last snapshot; both texts are kept
#[test]
fn a_changed_line_is_put_back_and_the_change_becomes_an_event() {
    for forget in [false, true] {
        let home = TestVault::new();
        block_on(home.at(MORNING).remember(statement("The budget is 500 EUR"))).unwrap();
        let second =
            block_on(home.at(MORNING).remember(statement("Send the offer"))).unwrap().event.id;
        block_on(home.at(MORNING).append_act(Act::Close, vec![second], None, Origin::User, None))
            .unwrap();
        block_on(home.at(MORNING).take_snapshot("good")).unwrap().unwrap();
        let text = home.read("memory/ledger.jsonl");
        let intruder = text.lines().nth(1).unwrap().replace("Send the offer", "Intruder");
        home.write("memory/ledger.jsonl", &format!("{intruder}\n{}", text.replace("500", "999")));
        if forget {
            std::fs::remove_dir_all(home.root.join(".icecore")).unwrap();
        }
        assert!(!block_on(home.at(MORNING).verify()).unwrap().ok);
        let repairs = block_on(home.at(MORNING).repair()).unwrap();
        assert!(repairs.verdict.ok, "{repairs:?}");
        let all = block_on(home.at(MORNING).query_events(&EventQuery::all())).unwrap();
        let told = |id: &str| {
            all.iter()
                .find(|entry| entry.event.id.to_string().ends_with(id))
                .map(|entry| (entry.event.content.as_str(), entry.state.word()))
        };
        assert_eq!(told("-001"), Some(("The budget is 500 EUR", "active")));
        assert_eq!(told("-002"), Some(("Send the offer", "closed")));
        let rest: Vec<&str> = all[3..].iter().map(|entry| entry.event.content.as_str()).collect();
        assert!(rest.contains(&"The budget is 999 EUR") && rest.contains(&"Intruder"), "{rest:?}");
        assert!(
            block_on(home.at(MORNING).repair())
                .unwrap()
                .done
                .iter()
                .all(|done| done.starts_with("saved the previous state"))
        );
    }
}

// L12: a snapshot taken after an edit accepts it; the newest text counts
#[test]
fn an_edit_that_was_snapshotted_stays() {
    let home = TestVault::new();
    block_on(home.at(MORNING).remember(statement("The budget is 500 EUR"))).unwrap();
    block_on(home.at(MORNING).take_snapshot("first")).unwrap().unwrap();
    home.write("memory/ledger.jsonl", &home.read("memory/ledger.jsonl").replace("500", "999"));
    block_on(home.at(MORNING).take_snapshot("meant so")).unwrap().unwrap();
    assert!(block_on(home.at(MORNING).verify()).unwrap().ok);
    assert!(block_on(home.at(MORNING).repair()).unwrap().verdict.ok);
    assert_eq!(active(&home, MORNING), ["The budget is 999 EUR"]);
}

// L9: `why` leads from any event to its original text
#[test]
fn why_leads_to_the_line_in_the_log() {
    let home = TestVault::new();
    home.write(
        "memory/2026-02-12.md",
        "intro\n## Priority Extracts\n- [P1] Decided on one price for all\n",
    );
    block_on(home.at(MORNING).scan_recent_logs());
    let entry = block_on(home.at(MORNING).query_events(&EventQuery::default())).unwrap().remove(0);
    let source =
        |home: &TestVault| block_on(home.at(MORNING).trace_event(entry.event.id)).unwrap().source;
    assert!(matches!(source(&home), OriginalSource::File { line: Some(3), .. }));
    home.write("memory/2026-02-12.md", "all gone\n");
    assert!(matches!(source(&home), OriginalSource::File { line: None, .. }));
    std::fs::remove_file(home.root.join("memory/2026-02-12.md")).unwrap();
    assert!(matches!(source(&home), OriginalSource::Gone { .. }));
    let live = block_on(home.at(MORNING).remember(statement("live"))).unwrap().event.id;
    assert!(matches!(
        block_on(home.at(MORNING).trace_event(live)).unwrap().source,
        OriginalSource::Live
    ));
    let web = block_on(home.at(MORNING).remember(RememberRequest {
        source: Some("https://example.org/x".into()),
        ..statement("web")
    }))
    .unwrap()
    .event
    .id;
    assert!(matches!(
        block_on(home.at(MORNING).trace_event(web)).unwrap().source,
        OriginalSource::Elsewhere { .. }
    ));
    let out =
        block_on(home.at(MORNING).remember(RememberRequest {
            source: Some("../../etc/passwd".into()),
            ..statement("out")
        }))
        .unwrap()
        .event
        .id;
    assert!(matches!(
        block_on(home.at(MORNING).trace_event(out)).unwrap().source,
        OriginalSource::Elsewhere { .. }
    ));
}

// L10
#[test]
fn open_loops_are_stored_and_can_be_rebuilt() {
    let home = TestVault::new();
    let offer = block_on(home.at(MORNING).remember(statement("Send the offer"))).unwrap().event.id;
    block_on(home.at(MORNING).remember(statement("Send the invoice"))).unwrap();
    block_on(home.at(MORNING).refresh_open_loops()).unwrap();
    let listed = |home: &TestVault| -> Vec<String> {
        serde_json::from_str(&home.read("memory/index/open-loops.json")).unwrap()
    };
    assert_eq!(listed(&home), ["EVT-20260213-001", "EVT-20260213-002"]);
    block_on(home.at(MORNING).append_act(Act::Close, vec![offer], None, Origin::User, None))
        .unwrap();
    block_on(home.at(MORNING).refresh_open_loops()).unwrap();
    assert_eq!(listed(&home), ["EVT-20260213-002"]);
    home.write("memory/index/open-loops.json", "garbled");
    let (events, open, _) = block_on(home.at(MORNING).reindex(&|_, _| {})).unwrap();
    assert_eq!((events, open), (3, 1));
    assert_eq!(listed(&home), ["EVT-20260213-002"]);
}

/// Whether any snapshot of the vault contains the text.
fn is_in_history(home: &TestVault, words: &str) -> bool {
    let log = std::process::Command::new("git")
        .arg("-C")
        .arg(&home.root)
        .args(["log", "-p", "--all"])
        .output()
        .unwrap();
    assert!(log.status.success(), "{log:?}");
    String::from_utf8_lossy(&log.stdout).contains(words)
}

// L16
#[test]
fn what_was_forgotten_and_is_typed_again_is_in_no_snapshot() {
    type Verb = fn(&Memory);
    let verbs: [(&str, Verb); 3] = [
        ("undo", |memory| _ = block_on(memory.undo(None))),
        ("doctor", |memory| _ = block_on(memory.repair())),
        // There is nothing to merge with, which is found out after the previous state was stored.
        ("merge", |memory| _ = block_on(memory.merge_from(None, None, &|_, _, _| {}))),
    ];
    for (verb, run) in verbs {
        let home = TestVault::new();
        block_on(home.at(MORNING).append_to_log("The purple walrus sings")).unwrap();
        let wish = ForgetRequest {
            matching: vec!["purple walrus".into()],
            by: "user".into(),
            ..Default::default()
        };
        block_on(home.at(MORNING).forget(&wish, None, &|_, _, _| {})).unwrap();
        block_on(home.at(MORNING).take_snapshot("clean")).unwrap().unwrap();
        let log = home.read("memory/2026-02-13.md");
        home.write("memory/2026-02-13.md", &(log + "- 09:31 a purple walrus again\n- 09:32 tea\n"));
        home.write(
            "primers/weekly/2026-W07.md",
            "The week.\n\nA purple walrus again\nand coffee\n",
        );
        run(&home.at(MORNING));
        assert!(
            is_in_history(&home, "and coffee") && is_in_history(&home, "09:32 tea"),
            "{verb} kept no state"
        );
        assert!(!is_in_history(&home, "walrus"), "{verb}");
    }
}

// L15
#[test]
fn a_prune_that_died_and_goes_on_in_another_quarter_archives_nothing_twice() {
    let home = TestVault::new();
    let late = RememberRequest { priority: Some(Priority::P3), ..statement("The bus is late") };
    block_on(home.at("2025-08-01T09:00:00+02:00").remember(late)).unwrap();
    block_on(home.at(MORNING).remember(statement("The boat is green"))).unwrap();
    assert!(block_on(home.at(MORNING).verify()).unwrap().ok);
    let before =
        ["memory/ledger.jsonl", "memory/integrity.json"].map(|path| (path, home.read(path)));
    for (round, now) in [MORNING, "2026-04-02T09:30:00+02:00"].into_iter().enumerate() {
        assert_eq!(block_on(home.at(now).prune_ledger()).unwrap().pruned, 1, "round {round}");
        let files = home.files();
        let lines: usize =
            files.iter().map(|(_, text)| text.matches("The bus is late").count()).sum();
        assert_eq!(lines, 1, "round {round}: {files:?}");
        assert!(block_on(home.at(now).verify()).unwrap().ok);
        // As if the run had died before the ledger was replaced.
        before.iter().for_each(|(path, text)| home.write(path, text));
    }
}

/// Text of a session that a client reported while the settings were broken.
fn waiting_words(home: &TestVault, text: &str) {
    let vault = || Arc::new(Vault::open(&home.root).unwrap());
    let clock = Box::new(FixedClock(MORNING.parse().unwrap()));
    let memory = Memory::open_with_defaults(vault(), vault(), clock).unwrap();
    let session =
        LiveSession { session: "s1".into(), client: "claude-code".into(), ..Default::default() };
    block_on(memory.record_prompt(&session, text, PackBudget { chars: 9_000, tokens: None }))
        .unwrap();
    assert!(!home.read("memory/messages/2026-02-13.jsonl").contains(text));
    let wrong = block_on(home.at(MORNING).load_status()).unwrap().wrong;
    assert!(wrong.iter().any(|line| line.starts_with("1 note from hooks waits")), "{wrong:?}");
}

// K1
#[test]
fn words_that_wait_in_notes_are_added_before_a_snapshot_an_import_and_a_night() {
    let transcript = r#"{"type":"user","sessionId":"s1","uuid":"u1","timestamp":"2026-02-13T08:30:00Z","message":{"role":"user","content":"paint it green"}}"#;
    let line = r#"{"conversation":"sessions","session":"s1","id":"u1","role":"user","text":"paint it green"}"#;
    let run_session = |memory: &Memory| {
        _ = block_on(memory.import_session(
            transcript,
            "s1.jsonl",
            None,
            None,
            &CaptureDefaults::default(),
        ))
        .unwrap();
    };
    let run_import = |memory: &Memory| {
        _ = block_on(memory.import_lines(&[line.to_owned()], 1, &CaptureDefaults::default()))
            .unwrap();
    };
    type Verb<'a> = &'a dyn Fn(&Memory);
    let verbs: [(&str, Verb<'_>); 4] = [
        ("session add", &run_session),
        ("import", &run_import),
        ("snapshot", &|memory| _ = block_on(memory.take_snapshot("now")).unwrap()),
        ("consolidate", &|memory| {
            _ = block_on(memory.consolidate_now(None, &|_, _, _| {})).unwrap()
        }),
    ];
    for (verb, run) in verbs {
        let home = TestVault::new();
        waiting_words(&home, "paint it green");
        run(&home.at(MORNING));
        let messages =
            || home.read("memory/messages/2026-02-13.jsonl").matches("paint it green").count();
        let kept = messages();
        block_on(home.at(MORNING).flush_pending()).unwrap();
        assert_eq!((kept, messages()), (1, 1), "{verb}");
        let wrong = block_on(home.at(MORNING).load_status()).unwrap().wrong;
        assert!(wrong.iter().all(|line| !line.contains("from hooks")), "{verb}: {wrong:?}");
    }
}
