//! What is refused where memory is in a database: each with a code of its own, and with words that say what to do.

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use icecore_store::testing::cluster::Flush;
use serde_json::{Value, json};

use crate::api::Server;
use crate::postgres::House;
use crate::program::{Said, bare, program, said};

/// The program with a database of one's own choice, now.
fn at(house: &House, address: &str, arguments: &[&str]) -> Said {
    let mut command = bare(program());
    command.env("HOME", house.folder.path()).env("ICECORE_STORE", address).current_dir(house.folder.path()).args(arguments);
    said(command.output().unwrap())
}

fn now(house: &House, arguments: &[&str]) -> Said {
    at(house, &house.cluster.url(), arguments)
}

fn check(said: &Said, code: i32, words: &str) {
    assert!(said.code == Some(code) && said.err.contains(words), "wanted {code} and `{words}`: {said:?}");
}

/// Nothing that was not reached is said not to be.
fn check_reached(said: &Said, code: i32, words: &str) {
    check(said, code, words);
    assert!(!said.err.contains("cannot be reached:") && !said.err.contains("Check that it runs"), "{said:?}");
}

#[test]
fn what_a_server_refuses_has_a_code_of_its_own_and_is_not_asked_again() {
    let house = House::new();
    house.ok(&["init", "--tz", "UTC"]);
    let data = house.cluster.sql("SHOW data_directory");
    let rules = "local all all trust\nhost all postgres 127.0.0.1/32 trust\nhost all all 127.0.0.1/32 scram-sha-256\n";
    std::fs::write(Path::new(&data).join("pg_hba.conf"), rules).unwrap();
    house.cluster.sql("CREATE ROLE ann LOGIN PASSWORD 'right'");
    house.cluster.sql("SELECT pg_reload_conf()");
    let port = house.cluster.port();
    let address = |rest: &str| format!("postgres://{}", rest.replace("HOST", &format!("127.0.0.1:{port}")));
    let status = |rest: &str| at(&house, &address(rest), &["status"]);
    let began = Instant::now();
    check_reached(&status("ann:wrong@HOST/postgres"), 5, "password authentication failed");
    check_reached(&status("ann@HOST/postgres"), 5, "asks for a password");
    check_reached(&status("postgres@HOST/elsewhere"), 3, "createdb");
    check_reached(&status("postgres@HOST/postgres?sslmode=require"), 1, "sslmode=require");
    check_reached(&status("ann:right@HOST/postgres"), 5, "permission denied");
    assert!(began.elapsed() < Duration::from_secs(8), "somebody waited for what does not come: {:?}", began.elapsed());
    check(&status("postgres@HOST/postgres?bogus=1"), 2, "no option `bogus`");
    check(&at(&house, "mysql://me@host/x", &["status"]), 2, "begins with mysql://");
    // In a second database of the same cluster only the membership is missing.
    house.cluster.sql("CREATE DATABASE second OWNER ann");
    let second = at(&house, &address("ann:right@HOST/second"), &["init"]);
    check_reached(&second, 5, "GRANT icecore_app TO \"ann\"");
    assert!(!second.err.contains("CREATE ROLE"), "{second:?}");
    // Tables of a later version.
    house.cluster.sql("INSERT INTO icecore.migration (number, name, fingerprint) VALUES (99, 'later', 'x')");
    check_reached(&now(&house, &["status"]), 5, "newer");
}

#[test]
fn who_tends_all_spaces_says_that_there_are_no_tables_and_which_failed() {
    let house = House::new();
    let tend = |more: &[&str]| now(&house, &[&["daemon", "--all-spaces", "--once"], more].concat());
    check(&tend(&[]), 1, "no tables of icecore yet; `icecore init --store …` makes them");
    // A model that is silent may speak later.
    house.settings("[summarizer]\nprovider = \"openai\"\nbase_url = \"http://127.0.0.1:1/v1\"\nmodel = \"stub\"\nretry_cap_secs = 0\n");
    house.ok(&["init", "--tz", "UTC", "--space", "chat"]);
    let said: String = (0..12)
        .map(|n| {
            let text = format!("we talked about the harbour and decided to paint boat {n} blue");
            json!({ "conversation": "trip", "role": "user", "ts": format!("2026-01-03T09:{n:02}:00Z"), "text": text }).to_string() + "\n"
        })
        .collect();
    assert_eq!(house.feed(&["import", "-", "--format", "jsonl", "--space", "chat"], &said).code, Some(0));
    let silent = tend(&["--json"]);
    assert_eq!((silent.code, silent.json()), (Some(75), json!({ "done": 0, "failed": 1 })), "{silent:?}");
    // A memory that cannot be read does not mend itself. The others are tended nevertheless.
    house.settings("");
    house.ok(&["init", "--tz", "UTC", "--space", "other"]);
    house.cluster.sql("UPDATE icecore.job SET due = now(), until = NULL");
    house.cluster.sql(
        "DELETE FROM icecore.chunk USING icecore.space WHERE chunk.space_id = space.space_id AND name = 'chat' AND path = 'icecore.toml'",
    );
    let broken = tend(&[]);
    assert!(
        broken.code == Some(1)
            && broken.out.trim_end().ends_with(" done, 1 failed")
            && !broken.out.starts_with('0')
            && broken.err.contains("chat"),
        "{broken:?}"
    );
}

fn readyz(server: &Server) -> (u16, String) {
    let answer = server.get("/readyz");
    (answer.status, answer.text)
}

#[test]
fn a_server_is_not_ready_where_nothing_can_be_written() {
    let house = House::with(Flush::Yes);
    house.ok(&["init", "--tz", "UTC"]);
    // A primary that is set to read only, under a server that runs.
    let server = house.serve();
    assert_eq!(readyz(&server).0, 200);
    house.cluster.sql("ALTER DATABASE postgres SET default_transaction_read_only = on");
    // Connections take a setting when they begin.
    house.cluster.restart();
    let read_only = readyz(&server);
    assert_eq!(read_only, (503, "not ready: the database is set to read only, so it takes no writes\n".into()));
    house.cluster.sql("BEGIN READ WRITE; ALTER DATABASE postgres RESET default_transaction_read_only; COMMIT");
    house.cluster.restart();
    assert_eq!(readyz(&server).0, 200);
    drop(server);
    let standby = house.cluster.standby();
    let mut child = bare(program())
        .env("HOME", house.folder.path())
        .env("ICECORE_TOKEN", crate::api::TOKEN)
        .env("ICECORE_STORE", standby.url())
        .args(["serve", "--addr", "127.0.0.1:0", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(child.stdout.take().unwrap()), &mut line).unwrap();
    let told: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
    let mut server = Server { child, address: told["addr"].as_str().unwrap().parse().unwrap(), link: String::new() };
    assert_eq!(readyz(&server), (503, "not ready: the database is a standby, which takes no writes\n".into()));
    server.child.kill().unwrap();
    let mut words = String::new();
    std::io::Read::read_to_string(&mut server.child.stderr.take().unwrap(), &mut words).unwrap();
    assert!(words.contains("takes no writes: it is a standby") && words.contains("target_session_attrs=read-write"), "{words}");
    check(&at(&house, &standby.url(), &["remember", "The harbour is quiet"]), 75, "takes no writes");
}
