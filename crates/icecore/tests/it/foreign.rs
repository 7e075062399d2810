//! People and other programs change the files of a vault while commands run: what they wrote stays,
//! and so does what was acknowledged.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::program::Vault;

const LOG: &str = "memory/2026-02-13.md";

fn new_vault() -> Vault {
    let mut vault = Vault::new();
    vault.at("2026-02-13T08:00:00Z");
    vault
}

// P1
#[test]
fn another_program_appends_while_commands_do() {
    let vault = new_vault();
    vault.ok(&["log", "own 0."]);
    vault.ok(&["remember", "own 0."]);
    let is_over = AtomicBool::new(false);
    let foreign = thread::scope(|scope| {
        let program = scope.spawn(|| {
            let mut n = 0;
            while !is_over.load(Ordering::Relaxed) {
                let event = format!(
                    "{{\"ts\":\"2026-02-13T09:00:00Z\",\"id\":\"EVT-20200101-{:03}\",\"type\":\"fact\",\"priority\":\"P2\",\
                     \"content\":\"foreign {n}.\",\"source\":\"live\"}}\n",
                    n + 1
                );
                for (file, line) in [(LOG, format!("- 09:00 foreign {n}.\n")), ("memory/ledger.jsonl", event)] {
                    OpenOptions::new().append(true).open(vault.path(file)).unwrap().write_all(line.as_bytes()).unwrap();
                }
                n += 1;
                thread::sleep(Duration::from_millis(1));
            }
            n
        });
        let outcomes: Vec<_> = (1..20)
            .flat_map(|n| {
                [
                    vault.run(&["log", &format!("own {n}.")]),
                    vault.run(&["remember", &format!("own {n}.")]),
                ]
            })
            .filter(|said| said.code != Some(0))
            .collect();
        is_over.store(true, Ordering::Relaxed);
        assert!(outcomes.is_empty(), "{outcomes:?}");
        program.join().unwrap()
    });
    for file in [LOG, "memory/ledger.jsonl"] {
        let text = vault.read(file);
        for (who, many) in [("own", 20), ("foreign", foreign)] {
            for n in 0..many {
                assert_eq!(
                    text.lines().filter(|line| line.contains(&format!("{who} {n}."))).count(),
                    1,
                    "{file}: {who} {n} of {many}"
                );
            }
        }
    }
    assert_eq!(vault.run(&["verify"]).code, Some(0));
}

// L16: undo restores lines of a log and removes none
#[test]
fn undo_takes_no_line_out_of_a_log() {
    let vault = new_vault();
    vault.ok(&["log", "a tpyo"]);
    vault.ok(&["log", "the second line"]);
    vault.ok(&["snapshot"]);
    let first =
        vault.json(&["snapshot", "--list"])["snapshots"][0]["id"].as_str().unwrap().to_owned();
    // A correction by hand, and a line between icecore's lines, as a merge would put it.
    let text = vault
        .read(LOG)
        .replace("a tpyo", "a typo")
        .replace("- 09:00 the second", "- 09:00 another machine's\n- 09:00 the second");
    vault.write(LOG, text);
    vault.ok(&["log", "acknowledged after that"]);
    vault.ok(&["undo", "--to", &first]);
    let text = vault.read(LOG);
    for line in
        ["a tpyo", "a typo", "another machine's", "the second line", "acknowledged after that"]
    {
        assert_eq!(text.matches(line).count(), 1, "{line} in {text}");
    }
}

/// Saves a page again and again, as an editor does, during `run`. Returns how many words were
/// saved.
fn while_a_person_saves(vault: &Vault, page: &str, run: impl FnOnce()) -> usize {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let editor = scope.spawn(|| {
            let mut words = 0;
            while !is_over.load(Ordering::Relaxed) {
                let place = vault.path(page);
                if let Ok(text) = fs::read_to_string(&place) {
                    let new = place.with_extension("swp");
                    fs::write(&new, format!("{text}- The colour of word{words}x is blue\n"))
                        .unwrap();
                    fs::rename(new, place).unwrap();
                    words += 1;
                }
                thread::sleep(Duration::from_millis(7));
            }
            words
        });
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run));
        is_over.store(true, Ordering::Relaxed);
        let words = editor.join().unwrap();
        outcome.unwrap();
        words
    })
}

// L4, L16
#[test]
fn what_a_person_saves_while_pages_are_rewritten_is_not_lost() {
    let vault = new_vault();
    for n in 0..4 {
        vault.ok(&[
            "remember",
            &format!("The size of part {n} of the harbour is {n}"),
            "--entity",
            "harbour",
        ]);
    }
    vault.ok(&["consolidate"]);
    vault.ok(&["snapshot"]);
    let page = "knowledge/entities/harbour.md";
    let words = while_a_person_saves(&vault, page, || {
        for n in 0..6 {
            vault.ok(&[
                "remember",
                &format!("The weight of item {n} of the harbour is {n}"),
                "--entity",
                "harbour",
            ]);
            vault.ok(&["consolidate"]);
        }
    });
    vault.ok(&["consolidate"]);
    let kept = vault.read(page) + &vault.read("memory/ledger.jsonl");
    let lost: Vec<usize> =
        (0..words).filter(|word| !kept.contains(&format!("word{word}x"))).collect();
    assert!(words > 0 && lost.is_empty(), "{lost:?} of {words}");
    // What an undo removes from a page is in a snapshot.
    let words = while_a_person_saves(&vault, page, || {
        for n in 0..2 {
            vault.ok(&[
                "remember",
                &format!("The depth of item {n} of the harbour is {n}"),
                "--entity",
                "harbour",
            ]);
            let undone = vault.run(&["undo"]);
            assert!([Some(0), Some(3)].contains(&undone.code), "{undone:?}");
        }
    });
    let past = Command::new("git")
        .arg("-C")
        .arg(vault.path(""))
        .args(["log", "--all", "-p", "--format="])
        .output()
        .unwrap();
    let kept = vault.read(page) + &String::from_utf8_lossy(&past.stdout);
    let lost: Vec<usize> =
        (0..words).filter(|word| !kept.contains(&format!("word{word}x"))).collect();
    assert!(words > 0 && lost.is_empty(), "{lost:?} of {words}");
}
