//! Whole memories between folders and a database, and workers and servers that die at any time.

use std::collections::{BTreeMap, HashMap};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use icecore_store::testing::cluster::Durability;
use serde_json::{Value, json};

use crate::api::{TOKEN, answering};
use crate::postgres::{TestDatabase, model_settings};
use crate::program::{Vault, bare, program};

/// Every file of a vault except private files and git's.
fn files(root: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap().flatten() {
            let (path, name) = (entry.path(), entry.file_name());
            match path.is_dir() {
                true if name == ".git" || name == ".icecore" => {}
                true => folders.push(path),
                false => drop(found.insert(
                    path.strip_prefix(root).unwrap().display().to_string(),
                    std::fs::read(&path).unwrap(),
                )),
            }
        }
    }
    found
}

/// Messages of some days and people, as lines to be imported.
fn messages(name: &str, days: u32) -> String {
    let line = |day: u32, n: u32| {
        let text = format!(
            "{name} {n}: we talked about the harbour and decided to paint boat {n} blue on day {day}"
        );
        json!({ "conversation": "trip", "role": if n.is_multiple_of(2) { "assistant" } else { "user" }, "ts": format!("2026-01-{day:02}T09:{n:02}:00Z"), "id": format!("{day}-{n}"), "text": text })
    };
    (1..=days).flat_map(|day| (0..12).map(move |n| line(day, n).to_string() + "\n")).collect()
}

// P8: a memory is copied from a folder to a database and back, byte for byte, and a backup of it is
// restored in both
#[test]
fn a_whole_memory_moves_both_ways_and_a_backup_comes_back_in_both_homes() {
    let house = TestDatabase::new();
    let vault = Vault::new();
    vault.remember(&["Never deploy on Fridays", "--priority", "P0"]);
    vault.remember(&["Send the offer to Client X", "--due", "friday"]);
    vault.ok(&["log", "Met Client X"]);
    assert_eq!(
        vault.feed(&["import", "-", "--format", "jsonl"], messages("anna", 9).as_bytes()).code,
        Some(0)
    );
    vault.ok(&["rollup"]);
    vault.ok(&["consolidate"]);
    // What a person left, and what no program would write.
    vault.write("memory/odd.bin", b"\r\n\0\xff no end".as_slice());
    let text = vault.read("memory/ledger.jsonl");
    vault.write("memory/ledger.jsonl", format!("{text}<<<<<<< HEAD\n"));
    let root = vault.root.to_str().unwrap();
    let before = files(&vault.root);
    let moved = house.json(&["import", "--whole", root, "--space", "anna"]);
    assert_eq!(moved["documents"], before.len());
    house.ok(&["vault", "export", "back", "--space", "anna"]);
    assert_eq!(files(&house.folder.path().join("back")), before);
    // Never over another memory, and not onto itself.
    assert_eq!(house.run(&["import", "--whole", root, "--space", "anna"]).code, Some(4));
    assert_eq!(house.run(&["vault", "export", "back", "--space", "anna"]).code, Some(4));
    // The same answers from both.
    for question in [
        &["search", "harbour", "--json"][..],
        &["pack", "recall"],
        &["pack", "upload"],
        &["zoom", "2026-01-03"],
    ] {
        let here = house.ok(&[question, &["--space", "anna"]].concat());
        assert_eq!(here, vault.ok(question), "{question:?}");
    }
    // The drill: a backup of each store is restored in the other.
    house.ok(&["vault", "backup", "create", "database.zip", "--space", "anna"]);
    // The odd line is damage that the memory had before.
    assert_eq!(house.run(&["vault", "backup", "verify", "database.zip", "--drill"]).code, Some(6));
    let checked = house.json(&["vault", "backup", "verify", "database.zip"]);
    assert_eq!(
        (&checked["holds"]["documents"], &checked["odd_lines"]),
        (&json!(before.len()), &json!(1))
    );
    let again = Vault::at_root(house.folder.path().join("again"));
    again.ok(&[
        "vault",
        "backup",
        "restore",
        house.folder.path().join("database.zip").to_str().unwrap(),
    ]);
    let mut restored = files(&again.root);
    restored.retain(|path, _| path != "memory/integrity.json" && path != "memory/integrity-log.md");
    let mut expected = before.clone();
    expected.retain(|path, _| path != "memory/integrity.json" && path != "memory/integrity-log.md");
    assert_eq!(restored, expected);
    vault.write("memory/ledger.jsonl", text);
    let file = house.folder.path().join("vault.zip").display().to_string();
    vault.ok(&["vault", "backup", "create", &file]);
    vault.ok(&["vault", "backup", "verify", &file, "--drill"]);
    house.ok(&["vault", "backup", "restore", &file, "--space", "bo"]);
    assert!(house.ok(&["events", "--space", "bo"]).contains("Never deploy on Fridays"));
    assert_eq!(house.run(&["vault", "backup", "restore", &file, "--space", "bo"]).code, Some(4));
    assert_eq!(house.run(&["verify", "--space", "bo"]).code, Some(0));
}

fn worker(house: &TestDatabase) -> Child {
    bare(program())
        .env("HOME", house.folder.path())
        .env("ICECORE_STORE", house.cluster.url())
        .args(["daemon", "--all-spaces", "--at-once", "2", "-q"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

// K3, K5: workers that are killed in the middle of their work lose nothing, and their successors do
// nothing twice
#[test]
fn workers_that_are_killed_leave_nothing_undone_and_nothing_done_twice() {
    const SPACES: usize = 5;
    let house = TestDatabase::with(Durability::Flushed);
    house.ok(&["init", "--tz", "UTC", "--space", "s0"]);
    for n in 0..SPACES {
        let space = format!("s{n}");
        if n > 0 {
            house.ok(&["init", "--tz", "UTC", "--space", &space]);
        }
        let said = house
            .feed(&["import", "-", "--format", "jsonl", "--space", &space], &messages(&space, 6));
        assert_eq!(said.code, Some(0), "{said:?}");
    }
    for round in 0..8 {
        let mut workers: Vec<Child> = (0..2).map(|_| worker(&house)).collect();
        thread::sleep(Duration::from_millis(150 + 170 * round));
        for worker in &mut workers {
            worker.kill().unwrap();
            worker.wait().unwrap();
        }
        // As if hours had passed: the leases of dead workers have ended, however often the jobs
        // failed.
        house.cluster.sql(
            "UPDATE icecore.job SET until = now() - interval '2 hours' WHERE until IS NOT NULL",
        );
        house.cluster.sql("UPDATE icecore.job SET due = now() WHERE failures > 0");
        house.cluster.sql("UPDATE icecore.claim SET until = now() - interval '1 second'");
    }
    let done = house.cluster.sql("SELECT count(*) FROM icecore.job WHERE epoch > 0");
    assert!(done.parse::<usize>().unwrap() > 0, "no worker ever took anything");
    let mut last = bare(program());
    last.env("HOME", house.folder.path()).env("ICECORE_STORE", house.cluster.url()).args([
        "daemon",
        "--all-spaces",
        "--once",
    ]);
    assert!(last.status().unwrap().success());
    let waiting =
        "SELECT count(*) FROM icecore.job WHERE due <= now() OR failures > 0 OR until > now()";
    assert_eq!(
        house.cluster.sql(waiting),
        "0",
        "{}",
        house.cluster.sql("SELECT kind, failures, trouble FROM icecore.job")
    );
    for n in 0..SPACES {
        let space = format!("s{n}");
        house.ok(&["vault", "export", &space, "--space", &space]);
        let root = house.folder.path().join(&space);
        let text = std::fs::read_to_string(root.join("memory/summaries.jsonl")).unwrap();
        let mut versions: HashMap<(String, String), usize> = HashMap::new();
        for line in text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()) {
            *versions
                .entry((
                    line["period"].to_string() + &line["session"].to_string(),
                    line["version"].to_string(),
                ))
                .or_default() += 1;
        }
        assert!(versions.len() > 6, "{space}: {versions:?}");
        assert!(versions.values().all(|&count| count == 1), "{space}: {versions:?}");
        // A summarized period is not summarized again: nothing has a second version without a
        // reason.
        assert!(versions.keys().all(|(_, version)| version == "1"), "{space}: {versions:?}");
        let kept: usize = files(&root.join("memory/messages"))
            .values()
            .map(|text| text.split(|&byte| byte == b'\n').count() - 1)
            .sum();
        assert_eq!(kept, 6 * 12);
        assert_eq!(house.run(&["verify", "--space", &space]).code, Some(0));
    }
}

// L13: a space's own spending limit applies to the nightly run
#[test]
fn a_space_that_may_spend_nothing_asks_no_model_and_the_others_do() {
    let house = TestDatabase::new();
    let asked: Arc<Mutex<Vec<String>>> = Arc::default();
    let heard = asked.clone();
    let summarizer = answering(Duration::ZERO, move |body| {
        heard.lock().unwrap().push(body.to_owned());
        "Noted.".into()
    });
    house.settings(&model_settings("summarizer", summarizer));
    house.ok(&["init", "--tz", "UTC", "--space", "chat"]);
    for user in ["zzann", "zzbo"] {
        let space = format!("chat/{user}");
        house.ok(&["init", "--tz", "UTC", "--space", &space]);
        let said = house
            .feed(&["import", "-", "--format", "jsonl", "--space", &space], &messages(user, 2));
        assert_eq!(said.code, Some(0), "{said:?}");
    }
    house.ok(&["db", "space", "quota", "zzann", "--model-tokens-per-day", "10", "--space", "chat"]);
    let mut once = bare(program());
    once.env("HOME", house.folder.path()).env("ICECORE_STORE", house.cluster.url()).args([
        "daemon",
        "--all-spaces",
        "--once",
        "-q",
    ]);
    // What may be spent tomorrow is retried later.
    assert_eq!(once.status().unwrap().code(), Some(75));
    let asked = asked.lock().unwrap();
    let about = |user: &str| asked.iter().filter(|body| body.contains(user)).count();
    assert_eq!(about("zzann"), 0, "asked although nothing may be spent");
    assert!(about("zzbo") > 0, "nobody was asked");
    let spent = house.cluster.sql("SELECT count(*) FROM icecore.used JOIN icecore.space USING (space_id) WHERE name = 'chat/zzbo'");
    assert_eq!(spent, "1", "what was asked is not counted");
}

/// One turn at a server that may die meanwhile; returns whether it was acknowledged.
fn turn(address: SocketAddr, user: &str, words: &str) -> bool {
    let body =
        json!({ "model": "stub", "messages": [{ "role": "user", "content": words }] }).to_string();
    let Ok(mut stream) = TcpStream::connect_timeout(&address, Duration::from_millis(500)) else {
        return false;
    };
    let _ = stream.set_read_timeout(Some(Duration::from_secs(20)));
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: Bearer {TOKEN}\r\nX-Icecore-User: {user}\r\nX-Icecore-Conversation: talk\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    let mut answer = Vec::new();
    if stream.write_all((head + &body).as_bytes()).is_err()
        || stream.read_to_end(&mut answer).is_err()
    {
        return false;
    }
    let answer = String::from_utf8_lossy(&answer);
    answer.starts_with("HTTP/1.1 200") && answer.contains("Noted.")
}

// C8, L2: one of two servers is killed again and again, in the middle of turns
#[test]
fn servers_that_are_killed_lose_no_exchange_that_was_acknowledged() {
    const PEOPLE: usize = 4;
    let house = TestDatabase::with(Durability::Flushed);
    let chat = answering(Duration::from_millis(10), |_| "Noted.".into());
    house.settings(&model_settings("chat", chat));
    house.ok(&["init", "--tz", "UTC"]);
    let servers = [Mutex::new(house.serve()), Mutex::new(house.serve())];
    let addresses = [
        Mutex::new(servers[0].lock().unwrap().address),
        Mutex::new(servers[1].lock().unwrap().address),
    ];
    let over = AtomicBool::new(false);
    let acknowledged: Vec<Vec<String>> = thread::scope(|scope| {
        let people: Vec<_> = (0..PEOPLE)
            .map(|person| {
                let (over, addresses) = (&over, &addresses);
                scope.spawn(move || {
                    let (mut acknowledged, mut n) = (Vec::new(), 0);
                    while !over.load(Ordering::SeqCst) {
                        n += 1;
                        let words = format!("person {person} says number {n}.");
                        let address = *addresses[(n + person) % 2].lock().unwrap();
                        if turn(address, &format!("p{person}"), &words) {
                            acknowledged.push(words);
                        }
                    }
                    acknowledged
                })
            })
            .collect();
        for round in 0..6 {
            thread::sleep(Duration::from_millis(700 + 90 * round));
            let which = usize::try_from(round).unwrap() % 2;
            let mut server = servers[which].lock().unwrap();
            server.child.kill().unwrap();
            server.child.wait().unwrap();
            *server = house.serve();
            *addresses[which].lock().unwrap() = server.address;
        }
        over.store(true, Ordering::SeqCst);
        people.into_iter().map(|person| person.join().unwrap()).collect()
    });
    let total: usize = acknowledged.iter().map(Vec::len).sum();
    assert!(total > 40, "only {total} turns were acknowledged");
    for (person, words) in acknowledged.iter().enumerate() {
        let server = servers[0].lock().unwrap();
        let kept =
            server.ok(Some(&format!("p{person}")), "GET", "/api/conversations/talk/export", "");
        let mut counts: HashMap<&str, usize> = HashMap::new();
        for message in kept["messages"].as_array().unwrap() {
            *counts.entry(message["text"].as_str().unwrap()).or_default() += 1;
        }
        let wrong: Vec<&String> =
            words.iter().filter(|words| counts.get(words.as_str()) != Some(&1)).collect();
        assert!(wrong.is_empty(), "acknowledged, and not there exactly once: {wrong:?}");
    }
}

// P8: a copy includes the end users, and says where it does not
#[test]
fn a_home_moves_with_everybody_in_it() {
    let house = TestDatabase::new();
    house.ok(&["init", "--tz", "UTC", "--space", "chat"]);
    house.ok(&["remember", "The shop opens at nine", "--space", "chat"]);
    for (user, what) in [("ann", "The harbour opens at six"), ("Bo Ek", "The ferry is blue")] {
        let space = format!("chat/{user}");
        house.ok(&["init", "--tz", "UTC", "--space", &space]);
        house.ok(&["remember", what, "--space", &space]);
    }
    assert_eq!(house.json(&["vault", "export", "home", "--space", "chat"])["users"], 2);
    let home = house.folder.path().join("home");
    house.json(&["import", "--whole", home.to_str().unwrap(), "--space", "copy"]);
    for (user, what) in [("ann", "The harbour opens at six"), ("Bo Ek", "The ferry is blue")] {
        assert!(house.ok(&["events", "--space", &format!("copy/{user}")]).contains(what), "{user}");
    }
    assert!(!house.ok(&["events", "--space", "copy"]).contains("harbour"));
    house.ok(&["vault", "export", "again", "--space", "copy"]);
    assert_eq!(files(&house.folder.path().join("again")), files(&home));
    // A user has no users of its own, and a backup is of one memory, which it says.
    assert_eq!(
        house.run(&["import", "--whole", home.to_str().unwrap(), "--space", "copy/x"]).code,
        Some(2)
    );
    let kept = house.run(&["vault", "backup", "create", "chat.zip", "--space", "chat"]);
    assert!(
        kept.code == Some(0) && kept.err.contains("2 end users") && kept.err.contains("Bo Ek, ann"),
        "{kept:?}"
    );
}
