//! The dashboard's requests, as a browser sends them: login, the core, pages that are edited, and
//! live updates.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::api::{Answer, Server, TOKEN, TestHome, operation, start_filled_server, unlike};
use crate::program::{bare, command_output, program};

const READ_TOKEN: &str = "a-token-that-may-only-read";

/// The cookie that a response sets, as it is sent back.
fn cookie(answer: &Answer) -> String {
    let line = answer
        .head
        .lines()
        .find(|line| line.starts_with("set-cookie:"))
        .unwrap_or_else(|| panic!("{answer:?}"));
    line["set-cookie:".len()..].trim().split(';').next().unwrap().to_owned()
}

fn fits(server: &Server, method: &str, target: &str, value: &Value) {
    let document = server.get("/api/openapi.json").json();
    let (mut wrong, (_, operation)) = (Vec::new(), operation(&document, method, target));
    unlike(
        &document,
        &operation["responses"]["200"]["content"]["application/json"]["schema"],
        value,
        target,
        &mut wrong,
    );
    assert!(wrong.is_empty(), "{wrong:?}");
}

// A login link is in no system journal, which other users may read.
#[test]
fn a_login_link_is_printed_to_a_terminal_and_never_logged() {
    let home = TestHome::new();
    let stderr = home.folder.path().join("journal");
    let mut child = bare(program())
        .env("HOME", home.folder.path())
        .env("ICECORE_TOKEN", TOKEN)
        .args(["serve", "--addr", "127.0.0.1:0", "--root", home.root().to_str().unwrap()])
        .stdout(Stdio::piped())
        .stderr(std::fs::File::create(&stderr).unwrap())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let address = line
        .trim()
        .strip_prefix("Listening on http://")
        .unwrap_or_else(|| panic!("{line}"))
        .to_owned();
    let said = || std::fs::read_to_string(&stderr).unwrap();
    let began = Instant::now();
    while !said().contains("  routes ") && began.elapsed() < Duration::from_secs(20) {
        std::thread::sleep(Duration::from_millis(20));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let said = said();
    assert!(
        !said.contains("code=") && said.contains(&format!("icecore dashboard --addr {address}")),
        "{said}"
    );
}

// A browser's cookie is accepted from the server's own pages only, and writes need a header that
// other sites cannot send
#[test]
fn a_browser_is_let_in_by_its_cookie_and_by_nothing_else() {
    let home = TestHome::new();
    let stderr = home.folder.path().join("stderr");
    let server = home.serve_with(
        &[("ICECORE_READ_TOKEN", READ_TOKEN)],
        std::fs::File::create(&stderr).unwrap().into(),
    );
    let origin = format!("http://{}", server.address);
    let logged = server.send(
        "POST",
        "/api/login",
        &[("Origin", &origin), ("Sec-Fetch-Site", "same-origin")],
        &json!({ "token": TOKEN }).to_string(),
    );
    assert_eq!((logged.status, &logged.json()["right"]), (200, &json!("write")), "{logged:?}");
    fits(&server, "POST", "/api/login", &logged.json());
    let set = logged.head.lines().find(|line| line.starts_with("set-cookie:")).unwrap();
    assert!(
        set.contains("httponly")
            && set.contains("samesite=strict")
            && set.contains("path=/")
            && !set.contains("secure;"),
        "{set}"
    );
    let own = cookie(&logged);
    let reading = cookie(&server.send(
        "POST",
        "/api/login",
        &[],
        &json!({ "token": READ_TOKEN }).to_string(),
    ));
    let (event, csrf) = (r#"{"text":"by a browser"}"#, ("X-Icecore-Csrf", "1"));
    let site = |word: &'static str| ("Sec-Fetch-Site", word);
    let mine = ("Cookie", own.as_str());
    let theirs = ("Cookie", reading.as_str());
    let made_up = format!("{}=0000", own.split('=').next().unwrap());
    for (method, target, head, status) in [
        // Reading.
        ("GET", "/api/status", vec![mine], 200),
        ("GET", "/api/status", vec![mine, site("same-origin")], 200),
        ("GET", "/api/status", vec![mine, site("none")], 200),
        ("GET", "/api/status", vec![mine, ("Origin", &origin)], 200),
        ("GET", "/api/session", vec![theirs], 200),
        ("GET", "/api/status", vec![], 401),
        ("GET", "/api/status", vec![("Cookie", &made_up)], 401),
        ("GET", "/api/status", vec![("Cookie", "icecore=x")], 401),
        ("GET", "/api/status", vec![mine, site("cross-site")], 403),
        ("GET", "/api/status", vec![mine, site("same-site")], 403),
        ("GET", "/api/status", vec![mine, ("Origin", "https://evil.example")], 403),
        ("GET", "/api/status", vec![mine, ("Origin", "null")], 403),
        // Writing.
        ("POST", "/api/events", vec![mine, csrf, site("same-origin"), ("Origin", &origin)], 200),
        ("POST", "/api/events", vec![mine, csrf], 200),
        ("POST", "/api/events", vec![mine], 403),
        ("POST", "/api/events", vec![mine, ("X-Icecore-Csrf", "")], 403),
        ("POST", "/api/events", vec![mine, site("same-origin"), ("Origin", &origin)], 403),
        ("POST", "/api/events", vec![mine, csrf, site("none")], 403),
        ("POST", "/api/events", vec![mine, csrf, site("same-site")], 403),
        ("POST", "/api/events", vec![mine, csrf, site("cross-site")], 403),
        ("POST", "/api/events", vec![mine, csrf, ("Origin", "http://127.0.0.1:1")], 403),
        ("POST", "/api/events", vec![theirs, csrf], 403),
        ("POST", "/api/events", vec![csrf], 401),
        ("DELETE", "/api/users/nobody", vec![mine], 403),
        ("DELETE", "/api/users/nobody", vec![mine, csrf], 404),
        // Elsewhere it is not accepted.
        ("GET", "/metrics", vec![mine], 401),
        ("GET", "/v1/models", vec![mine], 401),
        ("POST", "/v1/chat/completions", vec![mine, csrf], 401),
        ("POST", "/mcp", vec![mine, csrf], 401),
        ("POST", "/state/append-log", vec![mine, csrf], 401),
        // A login needs no cookie, and pages of other sites cannot send it.
        ("POST", "/api/login", vec![site("cross-site")], 403),
        ("POST", "/api/login", vec![("Origin", "https://evil.example")], 403),
        ("GET", "/api/login", vec![], 401),
        ("POST", "/api/login/code", vec![], 401),
        ("POST", "/api/login/code", vec![theirs, csrf], 403),
        ("POST", "/api/login/code", vec![mine, csrf], 200),
        ("POST", "/api/logout", vec![theirs], 403),
        ("POST", "/api/logout", vec![theirs, csrf], 200),
        ("GET", "/api/session", vec![theirs], 401),
    ] {
        let answer = server.send(
            method,
            target,
            &head,
            if method == "POST" && target == "/api/events" { event } else { "{}" },
        );
        assert_eq!(answer.status, status, "{method} {target} {head:?}: {answer:?}");
        assert!(!answer.head.contains("access-control"), "{answer:?}");
    }
    assert_eq!(server.ok(None, "GET", "/api/ledger?text=browser", "")["total"], 2);
    let session = server.send("GET", "/api/session", &[mine], "").json();
    assert_eq!((&session["right"], &session["by"]), (&json!("write"), &json!("cookie")));

    // The printed link logs one browser in, once.
    let code = server.link.split_once("/#code=").unwrap().1.to_owned();
    let by_code =
        |code: &str| server.send("POST", "/api/login", &[], &json!({ "code": code }).to_string());
    assert_eq!(by_code(&code[1..]).status, 401);
    assert_eq!(by_code(&code).status, 200);
    assert_eq!(by_code(&code).status, 401);
    // And so does the link that the command requests.
    let mut command = bare(program());
    command.env("HOME", home.folder.path()).env("ICECORE_TOKEN", TOKEN);
    let link = command_output(
        command
            .args(["dashboard", "--json", "--addr", &server.address.to_string()])
            .output()
            .unwrap(),
    )
    .json();
    let code = link["url"].as_str().unwrap().split_once("/#code=").unwrap().1.to_owned();
    assert!(link["url"].as_str().unwrap().starts_with(&origin));
    assert_eq!(by_code(&code).status, 200);
    let mut wrong = bare(program());
    wrong.env("HOME", home.folder.path()).env("ICECORE_TOKEN", "another-token-than-the-one");
    let refused = command_output(
        wrong.args(["dashboard", "--addr", &server.address.to_string()]).output().unwrap(),
    );
    assert!(refused.code == Some(5) && !refused.err.contains("another-token"), "{refused:?}");
    let mut nobody = bare(program());
    nobody.env("HOME", home.folder.path()).env("ICECORE_TOKEN", TOKEN);
    assert_eq!(
        command_output(nobody.args(["dashboard", "--addr", "127.0.0.1:1"]).output().unwrap()).code,
        Some(3)
    );
    // After a restart of the server a browser has to log in again.
    drop(server);
    let again = home.serve();
    assert_eq!(again.send("GET", "/api/status", &[mine], "").status, 401);
    let log = std::fs::read_to_string(stderr).unwrap();
    for secret in [TOKEN, READ_TOKEN, &code, own.split_once('=').unwrap().1] {
        assert!(!log.contains(secret), "{log}");
    }
}

// One table separates reading from writing, for every route
#[test]
fn a_read_only_login_sees_everything_and_changes_nothing() {
    let home = TestHome::new();
    let server = home.serve_with(&[("ICECORE_READ_TOKEN", READ_TOKEN)], Stdio::inherit());
    let document = server.get("/api/openapi.json").json();
    let bearer = format!("Bearer {READ_TOKEN}");
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let target = operation["x-icecore-example"]["target"].as_str().unwrap();
            let open = ["/api/login", "/api/logout"].contains(&path.as_str());
            if path == "/api/live" {
                continue;
            }
            let status = server
                .send(&method.to_uppercase(), target, &[("Authorization", &bearer)], "{}")
                .status;
            // Tokens, quotas and the audit log are for the administrator of the server.
            let is_admins = operation["tags"][0] == "Access";
            assert_eq!(
                status == 403,
                (method != "get" && !open) || is_admins,
                "{method} {path}: {status}"
            );
        }
    }
}

/// A stream that stays open.
struct Line(BufReader<TcpStream>);

impl Line {
    fn open(server: &Server, head: &[(&str, &str)]) -> Self {
        let mut stream = TcpStream::connect(server.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut request = format!(
            "GET /api/live HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {TOKEN}\r\n",
            server.address
        );
        head.iter().for_each(|(name, value)| request.push_str(&format!("{name}: {value}\r\n")));
        stream.write_all(format!("{request}\r\n").as_bytes()).unwrap();
        Self(BufReader::new(stream))
    }

    /// The next event; `None` if the stream ends.
    fn next(&mut self) -> Option<Value> {
        let mut line = String::new();
        loop {
            line.clear();
            if self.0.read_line(&mut line).unwrap() == 0 {
                return None;
            }
            if let Some(data) = line.strip_prefix("data: ") {
                return Some(serde_json::from_str(data).unwrap());
            }
        }
    }

    fn until(&mut self, what: &str, name: Option<&str>) {
        let wanted = json!({ "what": what, "name": name });
        for _ in 0..50 {
            match self.next() {
                Some(told) if told == wanted => return,
                Some(_) => {}
                None => panic!("the line ended before {wanted}"),
            }
        }
        panic!("{wanted} was not told");
    }
}

// Live update: a subscriber learns what changed, by any writer, and the stream ends with the server
#[test]
fn changes_are_streamed_to_subscribers() {
    let home = TestHome::new();
    let mut server = start_filled_server(&home);
    let (mut one, mut other) = (Line::open(&server, &[]), Line::open(&server, &[]));
    one.until("everything", None);
    other.until("everything", None);
    server.remember(None, "Something new");
    one.until("ledger", None);
    other.until("ledger", None);
    // By another process.
    let run = |words: &[&str]| {
        let mut command = bare(program());
        let done = command_output(
            command
                .env("HOME", home.folder.path())
                .args(["--vault", home.root().to_str().unwrap()])
                .args(words)
                .output()
                .unwrap(),
        );
        assert_eq!(done.code, Some(0), "{done:?}");
    };
    run(&["message", "add", "hello there", "--conversation", "a b"]);
    one.until("conversation", Some("a b"));
    run(&["consolidate"]);
    other.until("knowledge", Some("knowledge/entities/client-x.md"));
    // An end user's stream reports their space alone.
    assert_eq!(
        server
            .send(
                "GET",
                "/api/live",
                &[("Authorization", &format!("Bearer {TOKEN}")), ("X-Icecore-User", "ann")],
                ""
            )
            .status,
        404
    );
    server.remember(Some("ann"), "hers");
    let mut hers = Line::open(&server, &[("X-Icecore-User", "ann")]);
    hers.until("everything", None);
    server.remember(None, "not hers");
    server.remember(Some("ann"), "hers as well");
    assert_eq!(hers.next().unwrap(), json!({ "what": "ledger", "name": null }));
    // The number of subscribers is public.
    assert_eq!(server.send("GET", "/api/live", &[], "").status, 401);
    // The number of subscribers is limited.
    let mut lines: Vec<Line> = (0..70).map(|_| Line::open(&server, &[])).collect();
    let refused = lines.iter_mut().map(|line| {
        let mut first = String::new();
        line.0.read_line(&mut first).unwrap();
        usize::from(first.contains("503"))
    });
    assert_eq!(refused.sum::<usize>(), 70 - (64 - 3));
    // The streams end with the server, which does not wait for them.
    let begun = Instant::now();
    let mut command = std::process::Command::new("kill");
    assert!(command.arg(server.child.id().to_string()).status().unwrap().success());
    let mut rest = Vec::new();
    one.0.read_to_end(&mut rest).unwrap();
    assert!(
        server.child.wait().unwrap().success() && begun.elapsed() < Duration::from_secs(15),
        "{:?}",
        begun.elapsed()
    );
}

// P2, P3: the whole timeline, down to the messages and from a line to its source
#[test]
fn the_core_goes_from_years_to_words() {
    let home = TestHome::new();
    let server = home.serve();
    for (day, words) in [
        ("2026-01-05", "We decided to use Postgres for the store."),
        ("2026-01-06", "The parser must never lose a line."),
        ("2026-02-13", "The port is 7431 from now on."),
    ] {
        let message = |n: usize| {
            let said = if n == 0 {
                words.to_owned()
            } else {
                format!("And number {n} of {day} was said as well, at some length.")
            };
            json!({ "conversation": "app", "session": format!("s{}", n / 3), "id": format!("{day}-{n}"), "text": said, "ts": format!("{day}T09:{n:02}:00Z") })
        };
        server.ok(
            None,
            "POST",
            "/api/messages",
            &Value::from((0..6).map(message).collect::<Vec<_>>()).to_string(),
        );
    }
    server.ok(None, "POST", "/api/marks", r#"{"date":"2026-01-06","mark":"important"}"#);
    let before = server.ok(None, "GET", "/api/core", "");
    assert_eq!(before["layers"]["day"]["pressed"], json!([0, 0, 0]));
    server.ok(None, "POST", "/api/jobs/run", r#"{"job":"rollup"}"#);
    let core = server.ok(None, "GET", "/api/core", "");
    fits(&server, "GET", "/api/core", &core);
    for (tier, many) in [("year", 1), ("month", 2), ("week", 2), ("day", 3), ("session", 6)] {
        for (name, column) in core["layers"][tier].as_object().unwrap() {
            assert_eq!(column.as_array().unwrap().len(), many, "{tier} {name}");
        }
        assert_eq!(
            core["layers"][tier]["messages"]
                .as_array()
                .unwrap()
                .iter()
                .map(|n| n.as_u64().unwrap())
                .sum::<u64>(),
            18,
            "{tier}"
        );
    }
    let day = &core["layers"]["day"];
    assert_eq!(day["period"], json!(["2026-01-05", "2026-01-06", "2026-02-13"]));
    // 2026 begins with the Monday of its first week.
    assert_eq!((&core["origin"], &day["first"]), (&json!("2025-12-29"), &json!([7, 8, 46])));
    assert_eq!(day["importance"][1], 2);
    assert!(
        day["pressed"].as_array().unwrap().iter().all(|tier| tier.as_u64().unwrap() >= 2),
        "{day}"
    );
    assert!(day["headline"][0].as_u64().unwrap() > 0 && day["state"][0] == 1, "{day}");
    assert_eq!(
        (&core["names"], &core["layers"]["session"]["from"][1]),
        (&json!(["app", "s0", "s1"]), &json!(9 * 60 + 3))
    );
    // Only the requested days and tiers are returned.
    let part = server.ok(None, "GET", "/api/core?tier=day&from=2026-01-06&to=2026-01-31", "");
    assert_eq!(part["layers"].as_object().unwrap().keys().collect::<Vec<_>>(), ["day"]);
    assert_eq!(part["layers"]["day"]["period"], json!(["2026-01-06"]));
    let told = server.ok(None, "GET", "/api/core/headlines?tier=day&from=2026-02-01", "");
    assert_eq!(told["headlines"].as_array().unwrap().len(), 1);
    // Down to the messages.
    let node = server.ok(None, "GET", "/api/core/2026-W02", "");
    fits(&server, "GET", "/api/core/2026-W02", &node);
    assert_eq!((node["messages"].as_u64(), &node["parent"]), (Some(12), &json!("2026-01")));
    let children: Vec<&str> = node["children"]
        .as_array()
        .unwrap()
        .iter()
        .map(|child| child["period"].as_str().unwrap())
        .collect();
    assert_eq!(children, ["2026-01-05", "2026-01-06"]);
    let node = server.ok(None, "GET", "/api/core/2026-02-13", "");
    let (session, lines) = (&node["children"][0], node["lines"].as_array().unwrap());
    assert_eq!(
        (&session["conversation"], &session["session"], &session["messages"]),
        (&json!("app"), &json!("s0"), &json!(3))
    );
    let n = lines.iter().position(|line| line["text"].as_str().unwrap().contains("7431")).unwrap();
    let why = server.ok(None, "GET", &format!("/api/core/2026-02-13/why?line={n}"), "");
    fits(&server, "GET", "/api/core/2026-02-13/why?line=0", &why);
    assert!(
        why["because"][0]["records"].to_string().contains("The port is 7431 from now on."),
        "{why}"
    );
    let target = format!(
        "/api/core/{}/messages?offset=1&limit=1&characters=10",
        session["period"].as_str().unwrap()
    );
    let words = server.ok(None, "GET", &target, "");
    fits(&server, "GET", "/api/core/2026-02-13/messages", &words);
    assert_eq!(
        (&words["total"], &words["messages"][0]["text"], &words["messages"][0]["cut"]),
        (&json!(3), &json!("And number"), &json!(true))
    );
    let all =
        server.ok(None, "GET", "/api/core/2026-02-13/messages?conversation=app&session=s1", "");
    assert_eq!(all["total"], 3);
    // A cached page is not sent again.
    let tag = |answer: &Answer| {
        answer.head.lines().find_map(|line| line.strip_prefix("etag: ").map(str::to_owned)).unwrap()
    };
    let (bearer, first) = (format!("Bearer {TOKEN}"), server.get("/api/core"));
    let again = server.send(
        "GET",
        "/api/core",
        &[("Authorization", &bearer), ("If-None-Match", &tag(&first))],
        "",
    );
    assert_eq!((again.status, again.text.as_str()), (304, ""));
    server.remember(None, "today");
    // A range without an end is no longer than the memory.
    for target in ["/api/core?from=2026-02-01", "/api/core?to=2026-02-01&tier=day"] {
        let part = server.ok(None, "GET", target, "");
        assert!(part["layers"]["day"]["period"].as_array().unwrap().len() < 4, "{part}");
    }
    let parts = server.ok(None, "GET", "/api/health", "")["disk"]["parts"].clone();
    let parts: Vec<&str> =
        parts.as_array().unwrap().iter().map(|part| part["part"].as_str().unwrap()).collect();
    assert!(
        parts.contains(&"memory/messages")
            && parts.contains(&"settings")
            && !parts.contains(&"icecore.toml"),
        "{parts:?}"
    );
    assert_eq!(
        server
            .send(
                "GET",
                "/api/core",
                &[("Authorization", &bearer), ("If-None-Match", &tag(&first))],
                ""
            )
            .status,
        200
    );
}

// L4, K4: what a person writes into a page enters the ledger at once, and concurrent edits are
// never overwritten
#[test]
fn a_page_is_edited_in_place_and_its_past_can_be_seen() {
    let home = TestHome::new();
    let server = home.serve();
    let said = r#"{"text":"Apollo runs on port 7430","entity":"apollo","entity_kind":"project","type":"fact","priority":"P1"}"#;
    let id =
        server.ok(None, "POST", "/api/events", said)["event"]["id"].as_str().unwrap().to_owned();
    server.ok(None, "POST", "/api/jobs/run", r#"{"job":"consolidate"}"#);
    server.ok(None, "POST", "/api/snapshots", r#"{"note":"the first page"}"#);
    let list = server.ok(None, "GET", "/api/pages", "")["pages"].clone();
    assert_eq!(
        (&list[0]["path"], &list[0]["kind"], &list[0]["fresh"]),
        (&json!("knowledge/entities/apollo.md"), &json!("entities"), &json!(1))
    );
    let page = server.ok(None, "GET", "/api/pages/entities/apollo", "");
    let (text, hash) = (page["text"].as_str().unwrap(), page["hash"].as_str().unwrap());
    assert!(text.contains("Apollo runs on port 7430") && page["events"][0]["id"] == json!(id));
    let fact = text
        .lines()
        .find(|line| line.starts_with("- Apollo runs on port 7430 ["))
        .unwrap_or_else(|| panic!("{text}"));
    let changed =
        text.replace(fact, &fact.replace("port 7430", "port 7431")) + "- It was begun in March\n";
    let save = |text: &str, hash: &str| {
        server
            .post("/api/pages/entities/apollo", &json!({ "text": text, "hash": hash }).to_string())
    };
    let saved = save(&changed, hash);
    assert_eq!(saved.status, 200, "{saved:?}");
    let saved = saved.json();
    assert_eq!(
        (saved["learnt"].as_array().unwrap().len(), &saved["held"]),
        (2, &json!(false)),
        "{saved}"
    );
    // The old statement was superseded by an edit.
    let story = server.ok(None, "GET", &format!("/api/events/{id}"), "");
    assert_eq!(story["entry"]["standing"], "superseded");
    let graph = server.ok(None, "GET", &format!("/api/events/{id}/graph"), "");
    assert!(
        graph["edges"]
            .as_array()
            .unwrap()
            .iter()
            .any(|edge| edge["kind"] == "supersedes" && edge["to"] == json!(id)),
        "{graph}"
    );
    // Linked pages are listed, in both directions.
    let naming =
        json!({ "text": "Tell everybody about the port", "type": "commitment", "related": [id] })
            .to_string();
    let named = server.ok(None, "POST", "/api/events", &naming)["event"]["id"].clone();
    let graph = server.ok(None, "GET", &format!("/api/events/{id}/graph"), "");
    let related = json!({ "from": named, "to": id, "kind": "related" });
    assert!(graph["edges"].as_array().unwrap().contains(&related), "{graph}");
    let line = graph["nodes"].as_array().unwrap().iter().find(|node| node["id"] == named).unwrap()
        ["line"]
        .clone();
    assert_eq!(
        line,
        server.ok(None, "GET", &format!("/api/events/{}", named.as_str().unwrap()), "")["entry"]["line"]
    );
    let now = server.ok(None, "GET", "/api/pages/entities/apollo", "");
    assert_eq!((&now["hash"], &now["edited"]), (&saved["hash"], &json!(false)));
    assert!(
        now["text"].as_str().unwrap().contains("port 7431")
            && now["text"].as_str().unwrap().contains("begun in March")
    );
    // A client with an older version is refused, and nothing is overwritten.
    let late = save("# Apollo\n", hash);
    assert_eq!(
        (late.status, &late.json()["error"]["kind"]),
        (409, &json!("try_later")),
        "{late:?}"
    );
    assert_eq!(server.ok(None, "GET", "/api/pages/entities/apollo", "")["hash"], now["hash"]);
    // The nightly run has nothing left to import.
    let outlook = server.ok(None, "GET", "/api/consolidate", "");
    assert_eq!(outlook["edited"], json!([]));
    // The old text, and what replaced it.
    server.ok(None, "POST", "/api/snapshots", r#"{"note":"the second page"}"#);
    let versions =
        server.ok(None, "GET", "/api/pages/entities/apollo/versions", "")["versions"].clone();
    assert_eq!(
        (&versions[0]["note"], &versions[1]["note"]),
        (&json!("the second page"), &json!("the first page")),
        "{versions}"
    );
    let old = versions[1]["id"].as_str().unwrap();
    let then = server.ok(None, "GET", &format!("/api/pages/entities/apollo/versions/{old}"), "");
    assert_eq!(then["text"], page["text"]);
    let diff =
        server.ok(None, "GET", &format!("/api/pages/entities/apollo/diff?from={old}"), "")["diff"]
            .as_str()
            .unwrap()
            .to_owned();
    assert!(
        diff.lines().any(|line| line.starts_with('-') && line.contains("7430"))
            && diff.contains("+- It was begun in March"),
        "{diff}"
    );
    // Saving a page that does not exist creates it; a secret is not stored.
    let made = server.post(
        "/api/pages/procedures/deploy",
        &json!({ "text": "# Procedure: Deploy\n\n## Steps\n1. Use the key AKIAIOSFODNN7EXAMPLE\n" }).to_string(),
    );
    assert_eq!(made.status, 200, "{made:?}");
    assert!(!made.text.contains("AKIAIOSFODNN7EXAMPLE"), "{made:?}");
}
