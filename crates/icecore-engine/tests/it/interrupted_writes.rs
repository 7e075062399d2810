//! Each operation is stopped after its n-th write, for every n, and run again: the result equals
//! that of an undisturbed run.

use icecore_domain::event::{Act, Origin};
use icecore_engine::{Error, Memory};
use pollster::block_on;

use crate::{MORNING, TestVault, statement};

type Verb = fn(&Memory) -> Result<(), Error>;

/// Runs `verb` in a vault filled by `furnish`, stopped at every write.
fn check(name: &str, furnish: fn(&TestVault), verb: Verb, least_writes: usize) {
    let whole = TestVault::new();
    furnish(&whole);
    verb(&whole.at(MORNING)).unwrap();
    let mut stops = 0;
    for writes in 0.. {
        let home = TestVault::new();
        furnish(&home);
        match verb(&home.stopping(writes)) {
            Ok(()) => break,
            Err(Error::Store(icecore_store::Error {
                kind: icecore_store::ErrorKind::Stopped,
                ..
            })) => stops += 1,
            Err(other) => panic!("{name} stopped after {writes}: {other}"),
        }
        assert!(stops < 100, "{name} never ends");
        verb(&home.at(MORNING))
            .unwrap_or_else(|error| panic!("{name} again after {writes}: {error}"));
        let same = |home: &TestVault| -> Vec<(String, String)> {
            // Each run of `verify` adds a line.
            home.files().into_iter().filter(|(path, _)| path != "memory/integrity-log.md").collect()
        };
        assert_eq!(same(&home), same(&whole), "{name} stopped after {writes} and run again");
    }
    assert!(stops >= least_writes, "{name} has {stops} writes");
}

fn furnish(home: &TestVault) {
    let memory = home.at(MORNING);
    block_on(memory.remember(statement("The budget is 500 EUR"))).unwrap();
    block_on(memory.remember(statement("Send the offer"))).unwrap();
    home.write("memory/2026-02-12.md", "## Priority Extracts\n- [P1] Decided on one price for all\n- [P0] Never deploy on Fridays\n");
    home.write("memory/2026-02-13.md", "## Priority Extracts\n- [P2] Client X prefers mornings\n");
}

fn damage(home: &TestVault) {
    furnish(home);
    let ledger = home.read("memory/ledger.jsonl");
    let again = ledger.lines().next().unwrap().replace("500", "700");
    home.write("memory/ledger.jsonl", &format!("{ledger}not an event\n{again}\n<<<<<<< HEAD\n"));
    home.write("memory/checkpoint.json", "{\"last_processed_event_id\":\"EVT-20200101-001\"}");
}

fn first() -> icecore_domain::id::EventId {
    "EVT-20260213-001".parse().unwrap()
}

// L1, L2, L9
#[test]
fn verbs_that_write_once() {
    check("remember", furnish, |memory| block_on(memory.remember(statement("new"))).map(drop), 1);
    check(
        "supersede",
        furnish,
        |memory| {
            let new = icecore_engine::RememberRequest {
                supersedes: vec![first()],
                ..statement("The budget is 600 EUR")
            };
            block_on(memory.remember(new)).map(drop)
        },
        1,
    );
    check("log", furnish, |memory| block_on(memory.append_to_log("a line")).map(drop), 1);
    for act in [Act::Confirm, Act::Retract] {
        let verb: Verb = match act {
            Act::Confirm => |memory| {
                block_on(memory.append_act(Act::Confirm, vec![first()], None, Origin::User, None))
                    .map(drop)
            },
            _ => |memory| {
                block_on(memory.append_act(Act::Retract, vec![first()], None, Origin::User, None))
                    .map(drop)
            },
        };
        check("act", furnish, verb, 1);
    }
}

// L1
#[test]
fn noticing_takes_every_extract_exactly_once() {
    // What could not be imported is a complaint, not an error; make it one to see the stop.
    check(
        "notice",
        furnish,
        |memory| {
            let noticed = block_on(memory.scan_all_logs())?;
            match noticed.complaints.first() {
                Some(complaint) if complaint.contains("stopped") => {
                    Err(icecore_store::Error::test_stop(0).into())
                }
                Some(complaint) => panic!("{complaint}"),
                None => Ok(()),
            }
        },
        3,
    );
}

#[test]
fn forgetting_is_finished_by_the_next_run() {
    let furnished = |home: &TestVault| {
        furnish(home);
        let memory = home.at(MORNING);
        let said = |text: &str| icecore_domain::record::IncomingMessage {
            text: text.into(),
            id: Some(text[..3].into()),
            ..Default::default()
        };
        let told = vec![said("The budget is 500 EUR\nand tea is green"), said("Tea is green")];
        block_on(memory.add_messages(told, &icecore_engine::CaptureDefaults::default())).unwrap();
        block_on(memory.scan_all_logs()).unwrap();
        block_on(memory.consolidate_now(None, &|_, _, _| {})).unwrap();
    };
    let forget = |memory: &Memory| {
        let wish = icecore_engine::ForgetRequest {
            matching: vec!["budget is 500".into()],
            by: "test".into(),
            ..Default::default()
        };
        block_on(memory.forget(&wish, None, &|_, _, _| {}))
    };
    let end = |home: &TestVault| -> Vec<(String, String)> {
        // The number of runs shows in the tombstones, and how much of the ledger each of them read
        // shows in the check.
        let apart = |path: &str| {
            ["memory/integrity-log.md", "memory/integrity.json", icecore_domain::layout::FORGOTTEN]
                .contains(&path)
        };
        home.files().into_iter().filter(|(path, _)| !apart(path)).collect()
    };
    let whole = TestVault::new();
    furnished(&whole);
    assert!(end(&whole).iter().any(|(_, text)| text.contains("500 EUR")));
    let forgot = forget(&whole.at(MORNING)).unwrap();
    assert!(forgot.gone.records == 1 && forgot.gone.events.len() == 1, "{forgot:?}");
    assert!(
        end(&whole).iter().all(|(_, text)| !text.contains("500 EUR"))
            && end(&whole).iter().any(|(_, text)| text.contains("and tea is green"))
    );
    let mut stops = 0;
    for writes in 0.. {
        let home = TestVault::new();
        furnished(&home);
        match forget(&home.stopping(writes)) {
            Ok(_) => break,
            Err(Error::Store(icecore_store::Error {
                kind: icecore_store::ErrorKind::Stopped,
                ..
            })) => stops += 1,
            Err(other) => panic!("stopped after {writes}: {other}"),
        }
        assert!(stops < 100, "forgetting never ends");
        forget(&home.at(MORNING)).unwrap_or_else(|error| panic!("again after {writes}: {error}"));
        assert_eq!(end(&home), end(&whole), "stopped after {writes} and run again");
        assert!(block_on(home.at(MORNING).verify()).unwrap().ok, "stopped after {writes}");
    }
    assert!(stops >= 4, "{stops} writes");
}

// L10, L12
#[test]
fn tending_is_finished_by_the_next_run() {
    check("loops", furnish, |memory| block_on(memory.refresh_open_loops()), 1);
    check(
        "reindex",
        |home| {
            furnish(home);
            block_on(home.at(MORNING).scan_all_logs()).unwrap();
        },
        |memory| block_on(memory.reindex(&|_, _| {})).map(drop),
        2,
    );
    check(
        "verify",
        |home| {
            furnish(home);
            block_on(home.at(MORNING).scan_all_logs()).unwrap();
        },
        |memory| {
            let verdict = block_on(memory.verify())?;
            assert!(verdict.ok, "{verdict:?}");
            Ok(())
        },
        3,
    );
}

// L12
#[test]
fn mending_is_finished_by_the_next_run_and_loses_nothing() {
    check(
        "doctor",
        |home| {
            damage(home);
            block_on(home.at(MORNING).scan_all_logs()).unwrap();
        },
        |memory| {
            let repairs = block_on(memory.repair())?;
            assert!(repairs.verdict.ok, "{repairs:?}");
            Ok(())
        },
        6,
    );
    let home = TestVault::new();
    damage(&home);
    let repairs = block_on(home.at(MORNING).repair()).unwrap();
    let done = repairs.done.join("\n");
    for part in [
        "moved line 3 of memory/ledger.jsonl to ",
        "gave the second event with the id EVT-20260213-001 the id EVT-20260213-003",
        "moved memory/checkpoint.json to ",
    ] {
        assert!(done.contains(part), "{done}");
    }
    let ledger = home.read("memory/ledger.jsonl");
    assert!(
        ledger.contains("The budget is 700 EUR") && ledger.contains("The budget is 500 EUR"),
        "{ledger}"
    );
    let aside: Vec<String> = std::fs::read_dir(home.root.join(".icecore/quarantine"))
        .unwrap()
        .flatten()
        .map(|entry| std::fs::read_to_string(entry.path()).unwrap())
        .collect();
    assert!(
        aside.contains(&"not an event".to_owned()) && aside.contains(&"<<<<<<< HEAD".to_owned()),
        "{aside:?}"
    );
}

// L16
#[test]
fn an_undo_that_died_can_be_finished_and_nothing_is_lost() {
    let prepare = |home: &TestVault| -> String {
        furnish(home);
        home.write("recall/pack.md", "as it was\n");
        home.write("knowledge/entities/apollo.md", "as it was\n");
        let snapshot = block_on(home.at(MORNING).take_snapshot("good")).unwrap().unwrap();
        home.write("recall/pack.md", "changed\n");
        home.write("knowledge/entities/apollo.md", "changed\n");
        home.write("recall/new.md", "new\n");
        block_on(home.at(MORNING).remember(statement("since then"))).unwrap();
        snapshot.id
    };
    let mut stopped = 0;
    for (writes, by_name) in (0..20).flat_map(|writes| [(writes, false), (writes, true)]) {
        let home = TestVault::new();
        let id = prepare(&home);
        let to = by_name.then_some(id.as_str());
        if block_on(home.stopping(writes).undo(to)).is_ok() {
            break;
        }
        stopped += 1;
        block_on(home.at(MORNING).undo(to)).unwrap().unwrap();
        assert_eq!(home.read("recall/pack.md"), "as it was\n", "after {writes}");
        assert_eq!(home.read("knowledge/entities/apollo.md"), "as it was\n", "after {writes}");
        assert_eq!(home.read("recall/new.md"), "", "after {writes}");
        let events = block_on(
            home.at(MORNING).query_events(&icecore_domain::ledger::query::EventQuery::default()),
        )
        .unwrap();
        assert!(events.iter().all(|entry| entry.event.content != "since then"), "after {writes}");
        assert!(block_on(home.at(MORNING).verify()).unwrap().ok, "after {writes}");
    }
    assert!(stopped >= 8, "{stopped}");
}

fn notes(home: &TestVault) {
    let memory = home.at(MORNING);
    for name in ["plan/a.md", "plan/b.md", "plan/c/d.md", "other.md"] {
        let input = format!(
            r#"{{"command":"create","path":"/memories/{name}","file_text":"one\ntwo {name}\n"}}"#
        );
        assert!(!block_on(memory.run_memory_tool(&input)).unwrap().is_error, "{input}");
    }
}

fn tool(memory: &Memory, input: &str) -> Result<(), Error> {
    let answer = block_on(memory.run_memory_tool(input))?;
    assert!(!answer.is_error, "{input}: {answer:?}");
    Ok(())
}

// The memory tool: the previous content is stored before it is changed, and once
#[test]
fn the_memory_tool() {
    check(
        "create",
        notes,
        |memory| {
            tool(memory, r#"{"command":"create","path":"/memories/new/x.md","file_text":"x"}"#)
        },
        1,
    );
    check(
        "insert",
        notes,
        |memory| {
            tool(
                memory,
                r#"{"command":"insert","path":"/memories/other.md","insert_line":1,"insert_text":"x"}"#,
            )
        },
        2,
    );
    let replace: Verb = |memory| {
        tool(
            memory,
            r#"{"command":"str_replace","path":"/memories/other.md","old_str":"one","new_str":"1"}"#,
        )
    };
    check("str_replace", notes, replace, 2);
    check(
        "delete",
        notes,
        |memory| tool(memory, r#"{"command":"delete","path":"/memories/plan"}"#),
        6,
    );
    check(
        "rename",
        notes,
        |memory| {
            tool(
                memory,
                r#"{"command":"rename","old_path":"/memories/plan","new_path":"/memories/old/plan"}"#,
            )
        },
        9,
    );
}
