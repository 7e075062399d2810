//! Requests that are refused where memory is in a database: each with its own error code and a text
//! that says what to do.

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use icecore_store::testing::cluster::Durability;
use serde_json::{Value, json};

use crate::api::{Server, answering};
use crate::postgres::{TestDatabase, model_settings, send_chat};
use crate::program::{CommandOutput, Vault, bare, command_output, program};

/// The program with a given database, at the current time.
fn at(house: &TestDatabase, address: &str, arguments: &[&str]) -> CommandOutput {
    let mut command = bare(program());
    command
        .env("HOME", house.folder.path())
        .env("ICECORE_STORE", address)
        .current_dir(house.folder.path())
        .args(arguments);
    command_output(command.output().unwrap())
}

fn now(house: &TestDatabase, arguments: &[&str]) -> CommandOutput {
    at(house, &house.cluster.url(), arguments)
}

fn check(said: &CommandOutput, code: i32, words: &str) {
    assert!(
        said.code == Some(code) && said.err.contains(words),
        "wanted {code} and `{words}`: {said:?}"
    );
}

/// What was not reached is not reported as missing.
fn check_reached(said: &CommandOutput, code: i32, words: &str) {
    check(said, code, words);
    assert!(
        !said.err.contains("cannot be reached:") && !said.err.contains("Check that it runs"),
        "{said:?}"
    );
}

#[test]
fn what_a_server_refuses_has_a_code_of_its_own_and_is_not_asked_again() {
    let house = TestDatabase::new();
    house.ok(&["init", "--tz", "UTC"]);
    let data = house.cluster.sql("SHOW data_directory");
    let rules = "local all all trust\nhost all postgres 127.0.0.1/32 trust\nhost all all 127.0.0.1/32 scram-sha-256\n";
    std::fs::write(Path::new(&data).join("pg_hba.conf"), rules).unwrap();
    house.cluster.sql("CREATE ROLE ann LOGIN PASSWORD 'right'");
    house.cluster.sql("SELECT pg_reload_conf()");
    let port = house.cluster.port();
    let address =
        |rest: &str| format!("postgres://{}", rest.replace("HOST", &format!("127.0.0.1:{port}")));
    let status = |rest: &str| at(&house, &address(rest), &["status"]);
    let began = Instant::now();
    check_reached(&status("ann:wrong@HOST/postgres"), 5, "password authentication failed");
    check_reached(&status("ann@HOST/postgres"), 5, "asks for a password");
    check_reached(&status("postgres@HOST/elsewhere"), 3, "createdb");
    check_reached(&status("postgres@HOST/postgres?sslmode=require"), 1, "sslmode=require");
    check_reached(&status("ann:right@HOST/postgres"), 5, "permission denied");
    assert!(
        began.elapsed() < Duration::from_secs(8),
        "somebody waited for what does not come: {:?}",
        began.elapsed()
    );
    check(&status("postgres@HOST/postgres?bogus=1"), 2, "no option `bogus`");
    check(&at(&house, "mysql://me@host/x", &["status"]), 2, "begins with mysql://");
    // In a second database of the same cluster only the membership is missing.
    house.cluster.sql("CREATE DATABASE second OWNER ann");
    let second = at(&house, &address("ann:right@HOST/second"), &["init"]);
    check_reached(&second, 5, "GRANT icecore_app TO \"ann\"");
    assert!(!second.err.contains("CREATE ROLE"), "{second:?}");
    // Tables of a later version.
    house.cluster.sql("INSERT INTO icecore.migration (number, name, fingerprint, least) VALUES (99, 'later', 'x', 99)");
    check_reached(&now(&house, &["status"]), 5, "newer");
}

#[test]
fn a_server_that_runs_keeps_nothing_in_tables_that_have_become_too_new() {
    let house = TestDatabase::new();
    house.settings(&model_settings("chat", answering(Duration::ZERO, |_| "Noted.".into())));
    house.ok(&["init", "--tz", "UTC"]);
    let server = house.serve();
    let chat = |user: &str| {
        let told = send_chat(&server, Some(user), "work", &format!("the plan of {user} is blue"));
        let memory = told.head.to_lowercase().lines().find_map(|line| {
            line.strip_prefix("x-icecore-memory: ").map(|word| word.trim().to_owned())
        });
        (told.status, memory.unwrap_or_default())
    };
    let step = |least: i32| {
        house.cluster.sql(&format!(
            "DELETE FROM icecore.migration WHERE number = 8; INSERT INTO icecore.migration (number, name, fingerprint, least) VALUES (8, 'next', 'x', {least})"
        ))
    };
    assert_eq!(chat("ann"), (200, "on".into()));
    // A step that this program can work with.
    step(7);
    assert_eq!(chat("ben"), (200, "on".into()));
    assert_eq!(server.get("/api/status").status, 200);
    step(8);
    // The model answers, and the header says that nothing is recorded.
    assert_eq!(chat("ann"), (200, "failed".into()));
    // The quota of a space that was never looked up is unknown now, so the request is refused.
    assert_eq!(chat("cleo"), (503, String::new()));
    for (method, path, body) in [
        ("GET", "/api/status", ""),
        ("POST", "/api/events", r#"{"text":"too late"}"#),
        ("GET", "/api/users", ""),
    ] {
        let refused = server.ask(None, method, path, body);
        assert!(
            refused.status == 503
                && refused.text.contains("newer (8 steps) than this program knows (7)"),
            "{method} {path}: {refused:?}"
        );
    }
    assert_eq!(server.get("/readyz").status, 503);
    assert_eq!(
        house.cluster.sql("SELECT string_agg(name, ' ' ORDER BY name) FROM icecore.space"),
        "default default/ann default/ben"
    );
    let kept = |words: &str| {
        house.cluster.sql(&format!(
            "SELECT count(*) > 0 FROM icecore.chunk WHERE position('{words}'::bytea IN bytes) > 0"
        ))
    };
    assert_eq!(
        (kept("cleo"), kept("too late"), kept("plan of ann")),
        ("f".into(), "f".into(), "t".into())
    );
    house.cluster.sql("DELETE FROM icecore.migration WHERE number = 8");
    assert_eq!(chat("cleo"), (200, "on".into()));
}

#[test]
fn who_tends_all_spaces_says_that_there_are_no_tables_and_which_failed() {
    let house = TestDatabase::new();
    let tend = |more: &[&str]| now(&house, &[&["daemon", "--all-spaces", "--once"], more].concat());
    check(&tend(&[]), 1, "no icecore tables yet; `icecore init --store …` creates them");
    // A model that does not answer now may answer later.
    house.settings("[summarizer]\nprovider = \"openai\"\nbase_url = \"http://127.0.0.1:1/v1\"\nmodel = \"stub\"\nmax_retry_wait_secs = 0\n");
    house.ok(&["init", "--tz", "UTC", "--space", "chat"]);
    let said: String = (0..12)
        .map(|n| {
            let text = format!("we talked about the harbour and decided to paint boat {n} blue");
            json!({ "conversation": "trip", "role": "user", "ts": format!("2026-01-03T09:{n:02}:00Z"), "text": text }).to_string() + "\n"
        })
        .collect();
    assert_eq!(
        house.feed(&["import", "-", "--format", "jsonl", "--space", "chat"], &said).code,
        Some(0)
    );
    let silent = tend(&["--json"]);
    assert_eq!(
        (silent.code, silent.json()),
        (Some(75), json!({ "done": 0, "failed": 1 })),
        "{silent:?}"
    );
    // An unreadable memory does not repair itself. Jobs of other spaces run nevertheless.
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

#[test]
fn a_home_that_is_not_there_has_no_tokens_limits_or_log() {
    let house = TestDatabase::new();
    house.ok(&["init", "--tz", "UTC", "--space", "chat"]);
    let everything: [&[&str]; 8] = [
        &["db", "token", "add", "--scope", "read"],
        &["db", "token", "list"],
        &["db", "token", "revoke", "00c0ffee00c0ffee"],
        &["db", "space", "list"],
        &["db", "space", "quota"],
        &["db", "space", "quota", "--bytes", "10"],
        &["db", "space", "erase", "--whole-store", "--yes"],
        &["db", "audit"],
    ];
    for arguments in everything {
        let said = house.run(arguments);
        check(&said, 3, "there is no space `default`");
        assert!(said.err.contains("--space") && said.err.contains("ICECORE_SPACE"), "{said:?}");
    }
    // Nothing of it was written, and the existing memory answers.
    assert_eq!(
        house.cluster.sql(
            "SELECT (SELECT count(*) FROM icecore.token) + (SELECT count(*) FROM icecore.quota)"
        ),
        "0"
    );
    house.ok(&["db", "token", "add", "--scope", "read", "--space", "chat"]);
    // `init` prints how to select the new memory.
    let made = house.run(&["init", "--tz", "UTC", "--space", "team"]);
    assert!(made.err.contains("icecore status --space team"), "{made:?}");
}

#[test]
fn a_home_is_erased_with_everybody_in_it_and_its_log_stays() {
    let house = TestDatabase::new();
    for space in ["chat", "chat/ann", "chat/ben", "chatter", "chatter/ann"] {
        house.ok(&["init", "--tz", "UTC", "--space", space]);
        house.ok(&["remember", "The harbour is quiet", "--space", space]);
    }
    let of_chat = ["--space", "chat"];
    for more in [&["--user", "ann"][..], &["--user", "never-came"], &[]] {
        house.ok(&[&["db", "token", "add", "--scope", "read"], more, &of_chat].concat());
    }
    house.ok(&["db", "token", "add", "--scope", "read", "--space", "chatter"]);
    house.ok(&["db", "space", "quota", "--bytes", "1000", "--space", "chat"]);
    let asked = house.run(&["db", "space", "erase", "--whole-store", "--space", "chat"]);
    check(&asked, 2, "the store `chat` with 2 end users (ann, ben)");
    assert_eq!(
        house.run(&["db", "space", "erase", "ann", "--whole-store", "--space", "chat"]).code,
        Some(2)
    );
    assert_eq!(house.run(&["db", "space", "erase", "--space", "chat"]).code, Some(2));
    let erased = house.json(&["db", "space", "erase", "--whole-store", "--yes", "--space", "chat"]);
    assert_eq!(erased, json!({ "store": "chat", "users": 2, "erased": true }));
    assert_eq!(
        house.cluster.sql("SELECT string_agg(name, ' ' ORDER BY name) FROM icecore.space"),
        "chatter chatter/ann"
    );
    assert_eq!(house.run(&["status", "--space", "chat"]).code, Some(3));
    let left = "SELECT count(*) FROM icecore.document WHERE space_id NOT IN (SELECT space_id FROM icecore.space)";
    assert_eq!(house.cluster.sql(left), "0");
    let good = "SELECT string_agg(space, ' ') FROM icecore.token WHERE revoked IS NULL";
    assert_eq!(house.cluster.sql(good), "chatter", "a home made anew would let old tokens in");
    assert_eq!(
        house.cluster.sql("SELECT count(*) FROM icecore.quota WHERE bytes IS NOT NULL"),
        "0"
    );
    let log = now(&house, &["db", "audit", "--json", "--space", "chat"]);
    assert!(
        log.json()["deeds"]
            .as_array()
            .unwrap()
            .iter()
            .any(|deed| deed["verb"] == "space erase" && deed["space"] == "chat"),
        "{log:?}"
    );
    check(
        &house.run(&["db", "space", "erase", "--whole-store", "--yes", "--space", "chat"]),
        3,
        "there is no space `chat`",
    );
    assert!(house.ok(&["events", "--space", "chatter"]).contains("harbour"));
}

#[test]
fn tokens_limits_and_names_are_what_they_say() {
    let house = TestDatabase::new();
    house.ok(&["init", "--tz", "UTC"]);
    house.ok(&["init", "--tz", "UTC", "--space", "default/ben"]);
    // A rotated token has the lifetime of its grace period, and its replacement would have it too.
    let made =
        now(&house, &["db", "token", "add", "--scope", "read", "--expires", "90d", "--json"])
            .json();
    let id = made["token"]["id"].as_str().unwrap().to_owned();
    let rotated = now(&house, &["db", "token", "rotate", &id, "--json"]).json();
    let new = rotated["token"]["id"].as_str().unwrap().to_owned();
    let lasts = |token: &Value| {
        let moment =
            |name: &str| token["token"][name].as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
        moment("expires").duration_since(moment("made")).as_hours()
    };
    assert_eq!((lasts(&made), lasts(&rotated)), (90 * 24, 90 * 24));
    let again = now(&house, &["db", "token", "rotate", &id]);
    check(&again, 4, "was already rotated");
    assert!(again.err.contains(&new), "{again:?}");
    assert_eq!(lasts(&now(&house, &["db", "token", "rotate", &new, "--json"]).json()), 90 * 24);
    check(
        &now(&house, &["db", "token", "add", "--scope", "read", "--expires", "0"]),
        2,
        "cannot expire at once",
    );
    // Names leave room for child spaces.
    check(&house.run(&["init", "--space", &"h".repeat(344)]), 2, "at most 343 are allowed");
    check(&house.run(&["init", "--space", &"h".repeat(600)]), 2, "at most 343 are allowed");
    house.ok(&["init", "--space", &"h".repeat(343)]);
    house.ok(&["init", "--space", &format!("{}/{}", "h".repeat(343), "u".repeat(256))]);
    // Zero means no limit, as in the settings; other quotas are listed with their usage.
    house.ok(&[
        "db",
        "space",
        "quota",
        "ben",
        "--requests-per-minute",
        "0",
        "--messages-per-day",
        "500",
    ]);
    let shown = house.ok(&["db", "space", "show", "ben"]);
    let row = |name: &str| {
        shown
            .lines()
            .find(|line| line.starts_with(name))
            .unwrap_or_else(|| panic!("{shown}"))
            .to_owned()
    };
    assert!(
        shown.contains("used") && shown.contains("limit") && shown.matches("bytes").count() == 1,
        "{shown}"
    );
    assert!(
        row("requests_per_minute").contains("none") && row("messages_per_day").ends_with("500"),
        "{shown}"
    );
    // The log as of a moment.
    let deeds = |moment: &str| {
        let said = now(&house, &["db", "audit", "--since", "2h", "--json", "--now", moment]);
        said.json()["deeds"].as_array().unwrap().len()
    };
    assert!(
        now(&house, &["db", "audit", "--since", "2h", "--json"]).json()["deeds"]
            .as_array()
            .unwrap()
            .len()
            > 3
    );
    assert_eq!((deeds("2026-01-01T00:00:00Z"), deeds("2199-01-01T00:00:00Z")), (0, 0));
}

#[test]
fn odd_names_and_numbers_at_the_api_are_answered_and_do_not_break_it() {
    let house = TestDatabase::new();
    house.ok(&["init", "--tz", "UTC"]);
    house.ok(&["init", "--tz", "UTC", "--space", "default/ben"]);
    let server = house.serve();
    assert_eq!(server.ask(None, "DELETE", "/api/tokens/a%00b", "").status, 404);
    assert_eq!(server.ask(None, "POST", "/api/tokens/a%00b/rotate", "{}").status, 404);
    assert_eq!(server.ask(None, "GET", "/api/spaces?after=%00", "").status, 400);
    assert_eq!(server.ask(None, "GET", "/api/spaces/a%00b", "").status, 400);
    let set = |body: &str| server.ask(None, "POST", "/api/spaces/ben/quota", body);
    assert_eq!(set(r#"{"bytes":1000000}"#).json()["quota"]["bytes"], 1_000_000);
    assert_eq!(
        set(r#"{"bytes":"2_000_000","messages_per_day":"none"}"#).json()["quota"]["bytes"],
        2_000_000
    );
    for wrong in [
        r#"{"bytes":1.5}"#,
        r#"{"bytes":-1}"#,
        r#"{"bytes":true}"#,
        r#"{"bytes":99999999999999999999}"#,
    ] {
        assert_eq!(set(wrong).status, 400, "{wrong}");
    }
    // A limit of zero locks no one out.
    assert_eq!(set(r#"{"requests_per_minute":0}"#).json()["quota"]["requests_per_minute"], "none");
    assert_eq!(server.ask(Some("ben"), "GET", "/api/status", "").status, 200);
    assert_eq!(
        server.ask(None, "POST", "/api/tokens", r#"{"scopes":["read"],"expires":"0"}"#).status,
        400
    );
    // The scope that a refusal names is the scope of a token that would be accepted.
    let reader = house.json(&["db", "token", "add", "--scope", "read"]);
    let bearer = format!("Bearer {}", reader["secret"].as_str().unwrap());
    let refused = server.send("POST", "/v1/chat/completions", &[("Authorization", &bearer)], "{}");
    assert_eq!(refused.status, 403, "{refused:?}");
    let named = refused
        .text
        .split("needs the scope ")
        .nth(1)
        .unwrap_or_else(|| panic!("{refused:?}"))
        .split('"')
        .next()
        .unwrap();
    house.ok(&["db", "token", "add", "--scope", named]);
}

fn readyz(server: &Server) -> (u16, String) {
    let answer = server.get("/readyz");
    (answer.status, answer.text)
}

#[test]
fn a_server_is_not_ready_where_nothing_can_be_written() {
    let house = TestDatabase::with(Durability::Flushed);
    house.ok(&["init", "--tz", "UTC"]);
    // A primary that becomes read-only under a running server.
    let server = house.serve();
    assert_eq!(readyz(&server).0, 200);
    house.cluster.sql("ALTER DATABASE postgres SET default_transaction_read_only = on");
    // Connections read a setting when they begin.
    house.cluster.restart();
    let read_only = readyz(&server);
    assert_eq!(
        read_only,
        (503, "not ready: the database is read-only and accepts no writes\n".into())
    );
    house.cluster.sql(
        "BEGIN READ WRITE; ALTER DATABASE postgres RESET default_transaction_read_only; COMMIT",
    );
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
    std::io::BufRead::read_line(
        &mut std::io::BufReader::new(child.stdout.take().unwrap()),
        &mut line,
    )
    .unwrap();
    let told: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
    let mut server = Server {
        child,
        address: told["addr"].as_str().unwrap().parse().unwrap(),
        link: String::new(),
    };
    assert_eq!(
        readyz(&server),
        (503, "not ready: the database is a standby and accepts no writes\n".into())
    );
    server.child.kill().unwrap();
    let mut words = String::new();
    std::io::Read::read_to_string(&mut server.child.stderr.take().unwrap(), &mut words).unwrap();
    assert!(
        words.contains("takes no writes: it is a standby")
            && words.contains("target_session_attrs=read-write"),
        "{words}"
    );
    check(
        &at(&house, &standby.url(), &["remember", "The harbour is quiet"]),
        75,
        "takes no writes",
    );
}

#[test]
fn what_is_moved_goes_only_where_there_is_room_and_says_what_stays() {
    let house = TestDatabase::new();
    let vault = Vault::new();
    vault.remember(&["Never deploy on Fridays"]);
    std::os::unix::fs::symlink("/etc/hostname", vault.root.join("memory/elsewhere.md")).unwrap();
    let root = vault.root.to_str().unwrap();
    let moved = house.run(&["import", "--whole", root, "--space", "anna", "--json"]);
    assert_eq!(
        (moved.code, &moved.json()["left_links"]),
        (Some(0), &json!(["memory/elsewhere.md"])),
        "{moved:?}"
    );
    assert!(moved.err.contains("memory/elsewhere.md"), "{moved:?}");
    let of_anna = ["--space", "anna"];
    let run = |arguments: &[&str]| house.run(&[arguments, &of_anna].concat());
    check(&run(&["import", "--whole", root]), 4, "there is a memory already");
    assert_eq!(run(&["vault", "export", "out"]).code, Some(0));
    check(&run(&["vault", "export", "out"]), 4, "there is a memory already");
    check(&run(&["vault", "export", "nowhere/out"]), 3, "mkdir -p");
    check(&run(&["vault", "export", "out/memory/inside"]), 2, "is inside the vault");
    check(&run(&["vault", "backup", "create", "nowhere/whole.zip"]), 3, "mkdir -p");
    assert!(!house.folder.path().join("nowhere").exists());
    let kept = run(&["vault", "backup", "create", "whole.zip", "--json"]);
    assert_eq!((kept.code, &kept.json()["file"]), (Some(0), &json!("whole.zip")), "{kept:?}");
    let named =
        run(&["vault", "backup", "create", "--json"]).json()["file"].as_str().unwrap().to_owned();
    assert!(house.folder.path().join(&named).is_file(), "{named}");
    check(&run(&["vault", "backup", "restore", "whole.zip"]), 4, "there is a memory already");
}

#[test]
fn a_client_is_not_bound_to_a_database() {
    let house = TestDatabase::new();
    house.settings(&model_settings("chat", answering(Duration::ZERO, |_| "Hello.".into())));
    house.ok(&["init", "--tz", "UTC", "--space", "team"]);
    let url = house.cluster.url();
    for named in [&["--store", url.as_str(), "--space", "team"][..], &["--space", "team"]] {
        let said = house.run(&[&["install", "claude-code", "--dry-run"], named].concat());
        check(&said, 2, "needs a vault in a folder");
        assert!(said.err.contains("ICECORE_STORE_FILE") && said.out.is_empty(), "{said:?}");
    }
    let noted = house.run(&["install", "claude-code", "--dry-run"]);
    assert!(noted.code == Some(0) && (noted.out + &noted.err).contains("ICECORE_STORE_FILE"));
    // One name for a memory, and an existing one.
    for wrong in [
        &["--vault", "x", "--space", "team"][..],
        &["--vault", "x", "--store", &url],
        &["--space", ""],
    ] {
        check(&house.run(&[&["status"], wrong].concat()), 2, "");
    }
}
