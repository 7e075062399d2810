//! Many processes on one vault: nothing lost, nothing duplicated, no id assigned twice.

use std::collections::HashSet;
use std::process::{Child, Stdio};
use std::thread;

use serde_json::Value;

use crate::program::{Vault, command_output};

fn ids(vault: &Vault) -> Vec<String> {
    let events = vault.json(&["events", "--all"]);
    events["events"]
        .as_array()
        .unwrap()
        .iter()
        .map(|event| event["id"].as_str().unwrap().to_owned())
        .collect()
}

// L2
#[test]
fn eight_processes_append_five_hundred_events_each() {
    let vault = Vault::new();
    let acknowledged: Vec<(String, String)> = thread::scope(|scope| {
        let writers: Vec<_> = (0..8)
            .map(|writer| {
                let vault = &vault;
                scope.spawn(move || {
                    let mut acknowledged = Vec::new();
                    for n in 0..500 {
                        let text = format!("{writer}/{n} {}", "x".repeat(n % 50 * 40));
                        let said = command_output(
                            vault.command(&["remember", &text, "--json", "-q"]).output().unwrap(),
                        );
                        assert_eq!(said.code, Some(0), "{said:?}");
                        acknowledged.push((
                            said.json()["event"]["id"].as_str().unwrap().to_owned(),
                            text.trim().to_owned(),
                        ));
                    }
                    acknowledged
                })
            })
            .collect();
        writers.into_iter().flat_map(|writer| writer.join().unwrap()).collect()
    });
    assert_eq!(acknowledged.len(), 4_000);
    let distinct: HashSet<&String> = acknowledged.iter().map(|(id, _)| id).collect();
    assert_eq!(distinct.len(), 4_000);
    let events = vault.json(&["events", "--all"]);
    let kept: HashSet<(String, String)> = events["events"]
        .as_array()
        .unwrap()
        .iter()
        .map(|event| {
            (
                event["id"].as_str().unwrap().to_owned(),
                event["content"].as_str().unwrap().to_owned(),
            )
        })
        .collect();
    assert_eq!(kept, acknowledged.into_iter().collect());
    assert_eq!(vault.run(&["verify"]).code, Some(0));
}

// L3: of several concurrent replacements of one event one succeeds and the others fail
#[test]
fn a_race_to_replace_the_same_event_has_one_winner() {
    let vault = Vault::new();
    let first = vault.remember(&["The budget is 500 EUR"]);
    let racers: Vec<Child> = (0..8)
        .map(|n| {
            let text = format!("The budget is {n} EUR");
            vault
                .command(&["remember", &text, "--supersedes", &first, "-q"])
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap()
        })
        .collect();
    let codes: Vec<Option<i32>> = racers
        .into_iter()
        .map(|racer| command_output(racer.wait_with_output().unwrap()).code)
        .collect();
    assert_eq!(codes.iter().filter(|code| **code == Some(0)).count(), 1, "{codes:?}");
    assert_eq!(codes.iter().filter(|code| **code == Some(4)).count(), 7, "{codes:?}");
    assert_eq!(ids(&vault).len(), 2);
}

// L2: writers that are killed at random, and a lock that dies with its holder
#[test]
fn killed_writers_lose_nothing_that_was_acknowledged_and_leave_no_lock() {
    let vault = Vault::new();
    let mut acknowledged = Vec::new();
    for round in 0..40 {
        let writers: Vec<Child> = (0..4)
            .map(|n| {
                let text = format!("round {round} writer {n}");
                vault
                    .command(&["remember", &text, "--json"])
                    .stdout(Stdio::piped())
                    .stderr(Stdio::piped())
                    .spawn()
                    .unwrap()
            })
            .collect();
        for (n, mut writer) in writers.into_iter().enumerate() {
            if (round + n) % 2 == 0 {
                thread::sleep(std::time::Duration::from_micros(200 * (round as u64 % 25)));
                let _ = writer.kill();
            }
            let output = writer.wait_with_output().unwrap();
            if output.status.success() {
                let value: Value = serde_json::from_slice(&output.stdout).unwrap();
                acknowledged.push(value["event"]["id"].as_str().unwrap().to_owned());
            }
        }
    }
    let kept = ids(&vault);
    assert!(
        acknowledged.iter().all(|id| kept.contains(id)),
        "lost {:?}",
        acknowledged.iter().filter(|id| !kept.contains(id)).collect::<Vec<_>>()
    );
    let distinct: HashSet<&String> = kept.iter().collect();
    assert_eq!(distinct.len(), kept.len());
    assert_eq!(vault.run(&["verify"]).code, Some(0));
}

// L12: a verification sees one state during concurrent writes
#[test]
fn verify_stays_clean_while_others_write() {
    let vault = Vault::new();
    vault.remember(&["first"]);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| (0..60).for_each(|n| drop(vault.remember(&[&format!("writer {n}")]))));
        }
        for _ in 0..2 {
            scope.spawn(|| {
                (0..12).for_each(|_| {
                    let verified = vault.run(&["verify"]);
                    assert_eq!(verified.code, Some(0), "{verified:?}");
                });
            });
        }
    });
    assert_eq!(ids(&vault).len(), 121);
}

// Readers, writers and rebuilds of one index at once
#[test]
fn an_index_rebuilt_during_reads_and_writes_stays_right() {
    let vault = Vault::new();
    vault.remember(&["first"]);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| (0..30).for_each(|n| drop(vault.remember(&[&format!("writer {n}")]))));
        }
        scope.spawn(|| (0..15).for_each(|_| drop(vault.ok(&["vault", "reindex", "-q"]))));
        scope.spawn(|| (0..30).for_each(|_| drop(vault.json(&["events"]))));
        scope.spawn(|| {
            (0..10).for_each(|_| {
                let _ = std::fs::remove_file(vault.path(".icecore/index.db"));
                thread::sleep(std::time::Duration::from_millis(20));
            });
        });
    });
    assert_eq!(ids(&vault).len(), 61);
    let verified = vault.run(&["verify"]);
    assert_eq!(verified.code, Some(0), "{verified:?}");
}

// L12: what another process has just written is never reported as lost
#[test]
fn nothing_is_missed_that_is_only_new() {
    let vault = Vault::new();
    vault.remember(&["first"]);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| (0..80).for_each(|n| drop(vault.remember(&[&format!("writer {n}")]))));
        }
        for _ in 0..2 {
            scope.spawn(|| {
                (0..80).for_each(|_| {
                    // A foreign change makes every reader read the whole ledger again.
                    let _ = std::process::Command::new("touch")
                        .arg(vault.path("memory/ledger.jsonl"))
                        .status();
                    let read = vault.run(&["events"]);
                    assert_eq!((read.code, read.err.as_str()), (Some(0), ""), "{read:?}");
                });
            });
        }
    });
    assert_eq!(ids(&vault).len(), 161);
}
