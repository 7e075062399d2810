//! The cascade with a real model: llama.cpp's server on loopback, sessions to the month, through
//! the program itself.
//!
//! The model is a very small one and mostly writes nonsense, so its words are not looked at, but
//! the path they take: every node comes to stand, by the model's draft or, where the judge refuses
//! that, without it; budgets and the ceiling hold; every token is accounted for; and nothing is
//! asked twice.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use serde_json::Value;

use crate::faults::totals;
use crate::program::{CommandOutput, Vault, command_output};

const MODEL: &str = "model openai:smollm2";
const BUDGET_BYTES: usize = 1024;

pub fn repository_root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_owned()
}

/// The model server; it ends when its standard input closes, at the latest with this process.
pub struct SmallModel {
    child: Child,
    pub address: SocketAddr,
}

impl SmallModel {
    pub fn start() -> Self {
        let python = repository_root().join("target/model-venv/bin/python");
        assert!(
            python.exists(),
            "there is no model to test with: {} is missing. `./test` installs it with pip, which needs a network; \
             `./tests/model/install` does only that",
            python.display()
        );
        let mut child = Command::new(&python)
            .arg(repository_root().join("tests/model/serve.py"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // Read by a thread, so that a verbose server is not blocked.
        let mut errors = BufReader::new(child.stderr.take().unwrap());
        let talk = thread::spawn(move || {
            let mut last = Vec::new();
            let mut line = Vec::new();
            while matches!(errors.read_until(b'\n', &mut line), Ok(1..)) {
                last.push(String::from_utf8_lossy(&std::mem::take(&mut line)).into_owned());
                let spare = last.len().saturating_sub(20);
                last.drain(..spare);
            }
            last.concat()
        });
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let Some(port) =
            line.strip_prefix("port ").and_then(|port| port.trim().parse::<u16>().ok())
        else {
            let _ = child.kill();
            panic!(
                "the model's server did not start (`./tests/model/install` installs it): {line}{}",
                talk.join().unwrap()
            );
        };
        Self { child, address: SocketAddr::from(([127, 0, 0, 1], port)) }
    }
}

impl Drop for SmallModel {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// A proxy in front of the model that counts connections. The program opens one for every request.
struct Counter {
    address: SocketAddr,
    requests: Arc<AtomicUsize>,
}

impl Counter {
    fn before(model: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let requests = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&requests);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                counted.fetch_add(1, Ordering::SeqCst);
                let server = TcpStream::connect(model).unwrap();
                for (from, to) in [(&client, &server), (&server, &client)] {
                    let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    thread::spawn(move || {
                        let _ = std::io::copy(&mut from, &mut to);
                        let _ = to.flush();
                        let _ = to.shutdown(Shutdown::Write);
                    });
                }
            }
        });
        Self { address, requests }
    }

    fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }
}

fn ask(
    vault: &Vault,
    counter: &Counter,
    more: &[(&str, &str)],
    arguments: &[&str],
) -> CommandOutput {
    let mut command = vault.command(arguments);
    command
        .env("ICECORE_SUMMARIZER_BASE_URL", format!("http://{}/v1", counter.address))
        .env("ICECORE_SUMMARIZER_MODEL", "smollm2")
        .env("ICECORE_SUMMARIZER_TIMEOUT_SECS", "120")
        .env("ICECORE_SUMMARIZER_MAX_INPUT_TOKENS", "2000")
        // So small a model does not know when to end; a truncated draft is judged too.
        .env(
            "ICECORE_SUMMARIZER_EXTRA",
            "{ max_tokens = 160, temperature = 0.0, repeat_penalty = 1.1 }",
        )
        .envs(more.iter().copied());
    let said = command_output(command.output().unwrap());
    assert_eq!(said.code, Some(0), "{arguments:?}: {said:?}");
    said
}

/// A vault with five short sessions over two weeks of February, each captured at its own time.
fn create_captured_vault() -> Vault {
    let mut vault = Vault::new();
    let config = vault.read("icecore.toml");
    let budgets = ["session", "day", "week", "month"]
        .map(|tier| format!("{tier}_bytes = {BUDGET_BYTES}\n"))
        .concat();
    vault.write("icecore.toml", format!("{config}\n[budget]\n{budgets}"));
    for (number, (at, user, assistant)) in [
        (
            "2026-02-03T09:00:00+01:00",
            "Anna wants the shop to open in spring.",
            "The shop needs a list of products first.",
        ),
        (
            "2026-02-03T15:00:00+01:00",
            "The list of products is done.",
            "The prices are still missing.",
        ),
        (
            "2026-02-10T09:00:00+01:00",
            "The test of the shop went well.",
            "The payment page was slow.",
        ),
        (
            "2026-02-12T09:00:00+01:00",
            "The payment page is fast now.",
            "The shop is ready to open.",
        ),
    ]
    .into_iter()
    .enumerate()
    {
        vault.at(at);
        let (talk, name) =
            (format!("user: {user}\n\nassistant: {assistant}\n"), format!("s{number}"));
        let taken = vault.feed(
            &["session", "add", "-", "--conversation", "shop", "--session", &name, "--no-primer"],
            talk.as_bytes(),
        );
        assert_eq!(taken.code, Some(0), "{taken:?}");
    }
    vault.at("2026-02-12T16:00:00+01:00");
    for (role, text) in
        [("user", "Anna is happy with the shop."), ("assistant", "The shop opens on Monday.")]
    {
        vault.ok(&[
            "message",
            "add",
            text,
            "--role",
            role,
            "--conversation",
            "shop",
            "--session",
            "last",
        ]);
    }
    vault
}

const DAYS: &[&str] = &[
    "2026-02-03_session_01",
    "2026-02-03_session_02",
    "2026-02-10_session_01",
    "2026-02-12_session_01",
    "2026-02-12_session_02",
    "2026-02-03",
    "2026-02-10",
    "2026-02-12",
];

fn list<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value[name].as_array().unwrap_or_else(|| panic!("no {name} in {value}"))
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_else(|| panic!("no {name} in {value}"))
}

fn sum<'a>(values: impl IntoIterator<Item = &'a Value>, name: &str) -> u64 {
    values.into_iter().map(|value| value[name].as_u64().unwrap()).sum()
}

/// The day's work according to the spend file and the list of runs.
// P10
fn accounts(vault: &Vault, day: &str) {
    let spend = vault.read(&format!("memory/spend/{day}.jsonl"));
    let lines: Vec<Value> = spend.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |state: &str| lines.iter().filter(|line| line["state"] == state).collect::<Vec<_>>();
    let (reserved, spent) = (of("reserved"), of("spent"));
    assert!(!spent.is_empty() && reserved.len() == spent.len(), "{spend}");
    for (before, after) in reserved.iter().zip(&spent) {
        assert_eq!(before["id"], after["id"], "{spend}");
        for tokens in ["tokens_in", "tokens_out"] {
            let (most, real) = (before[tokens].as_u64().unwrap(), after[tokens].as_u64().unwrap());
            assert!(real > 0 && real <= most, "{tokens} of {after} against {before}");
        }
    }
    // Extraction makes no summary, and so has no run.
    let spent: Vec<&Value> = spent.into_iter().filter(|line| line["job"] != "distil").collect();
    // The run of each node lists every request: of the accepted draft, or of the refused one.
    let runs = vault.json(&["jobs", "runs", "--limit", "100"]);
    let of_day: Vec<&Value> =
        list(&runs, "runs").iter().filter(|run| text(run, "ts").starts_with(day)).collect();
    for tokens in ["tokens_in", "tokens_out"] {
        assert_eq!(
            sum(of_day.iter().copied(), tokens),
            sum(spent.iter().copied(), tokens),
            "{tokens} of {day}: {runs}\n{spend}"
        );
    }
    assert_eq!(sum(of_day.iter().copied(), "attempts"), spent.len() as u64, "{runs}");
}

// P1 P2 P3 P5 P9 P10 K7
#[test]
fn a_real_model_presses_sessions_to_the_month() {
    let smol = SmallModel::start();
    let counter = Counter::before(smol.address);
    let mut vault = create_captured_vault();

    let checked = ask(&vault, &counter, &[], &["model", "check", "--json"]).json();
    assert_eq!(checked["ok"], true, "{checked}");
    assert_eq!(checked["model"], "openai:smollm2");

    vault.at("2026-02-16T06:00:00+01:00");
    out_of_tokens(&vault, &counter);

    let mut nodes: Vec<Value> = Vec::new();
    let mut flagged: BTreeSet<String> = BTreeSet::new();
    for (now, periods) in [
        ("2026-02-16T06:00:00+01:00", [DAYS, &["2026-W06", "2026-W07"]].concat()),
        // The month is over, and so is its last week.
        ("2026-03-03T06:00:00+01:00", vec!["2026-02"]),
    ] {
        vault.at(now);
        let before = counter.requests();
        let rolled =
            ask(&vault, &counter, &[], &["rollup", "due", "--json"]).json()["rolled"].take();
        assert_eq!(list(&rolled, "deferred").len(), 0, "{rolled}");
        assert!(rolled["silent"].is_null(), "{rolled}");
        let pressed: Vec<&str> =
            list(&rolled, "pressed").iter().map(|node| text(node, "period")).collect();
        assert_eq!(pressed, periods, "{rolled}");
        let asked = vault
            .read(&format!("memory/spend/{}.jsonl", &now[..10]))
            .matches("\"reserved\"")
            .count();
        assert_eq!(
            counter.requests() - before,
            asked,
            "every request is reserved, and every reservation is one request"
        );
        accounts(&vault, &now[..10]);
        nodes.extend(list(&rolled, "pressed").iter().cloned());
        flagged.extend(list(&rolled, "flagged").iter().map(|one| text(one, "period").to_owned()));
    }

    // The messages were extracted once, by the same model.
    let distilled = |day: &str| {
        vault.read(&format!("memory/spend/{day}.jsonl")).matches("\"job\":\"distil\"").count()
    };
    assert!(distilled("2026-02-16") > 0 && distilled("2026-03-03") == 0);

    // Each summary is the model's and accepted, or waits for review and consists of source
    // sentences meanwhile.
    let reviews = vault.json(&["summary", "review"]);
    let waiting: BTreeSet<String> =
        list(&reviews, "reviews").iter().map(|one| text(one, "period").to_owned()).collect();
    assert_eq!(waiting, flagged, "{reviews}");
    assert!(
        list(&reviews, "reviews").iter().all(|one| !text(one, "complaint").is_empty()),
        "{reviews}"
    );
    for node in &nodes {
        let refused = flagged.contains(text(node, "period"));
        assert_eq!(node["provisional"], refused, "{node}");
        assert_eq!(text(node, "made_by"), if refused { "extract" } else { MODEL }, "{node}");
        assert!(refused || (1..=3).contains(&node["attempts"].as_u64().unwrap()), "{node}");
    }
    assert!(
        flagged.len() < nodes.len(),
        "not one draft was let stand, so that path was not taken: {reviews}"
    );
    for (folder, periods) in
        [("daily", DAYS), ("weekly", &["2026-W06", "2026-W07"]), ("monthly", &["2026-02"])]
    {
        for period in periods {
            let file = vault.read(&format!("primers/{folder}/{period}.md"));
            assert!(
                (1..=BUDGET_BYTES).contains(&file.len()),
                "{period} has {} bytes: {file}",
                file.len()
            );
            assert_eq!(file.contains("provisional: true"), flagged.contains(*period), "{file}");
        }
    }
    assert_eq!(vault.run(&["verify"]).code, Some(0));

    // P9: existing summaries are not requested again, not even by a program that has lost its
    // index.
    let before = counter.requests();
    let again = ask(&vault, &counter, &[], &["rollup", "due", "--json"]).json();
    assert_eq!(list(&again["rolled"], "pressed").len(), 0, "{again}");
    vault.ok(&["vault", "reindex"]);
    let again = ask(&vault, &counter, &[], &["rollup", "due", "--json"]).json();
    assert_eq!(list(&again["rolled"], "pressed").len(), 0, "{again}");
    assert_eq!(counter.requests(), before);
}

/// With too low a spending limit nothing is requested; everything is deferred and reported.
fn out_of_tokens(vault: &Vault, counter: &Counter) {
    let before = counter.requests();
    let ceiling = [("ICECORE_SPEND_TOKENS_PER_DAY", "1000")];
    let rolled =
        ask(vault, counter, &ceiling, &["rollup", "due", "--json"]).json()["rolled"].take();
    assert_eq!(
        (list(&rolled, "pressed").len(), list(&rolled, "flagged").len()),
        (0, 0),
        "{rolled}"
    );
    let put_off: BTreeSet<&str> =
        list(&rolled, "deferred").iter().map(|one| text(one, "period")).collect();
    let expected: BTreeSet<&str> = DAYS.iter().copied().chain(["2026-W06", "2026-W07"]).collect();
    assert_eq!(put_off, expected, "{rolled}");
    assert!(
        text(&rolled["deferred"][0], "why").contains("the daily limit of 1000 leaves"),
        "{rolled}"
    );
    let told = ask(vault, counter, &ceiling, &["rollup", "due"]);
    assert!(told.err.contains("is deferred") && told.err.contains("daily limit"), "{told:?}");
    assert_eq!(counter.requests(), before);
    assert!(
        totals(&vault.read("memory/spend/2026-02-16.jsonl")).iter().all(|total| *total <= 1000)
    );
    assert_eq!(vault.read("memory/summaries.jsonl"), "");
}

// L6 L7 L13 L15
#[test]
fn a_quarter_of_nights_with_a_real_model() {
    let smol = SmallModel::start();
    let counter = Counter::before(smol.address);
    let mut vault = Vault::new();
    let config = vault.read("icecore.toml");
    let budgets = ["session", "day", "week", "month"]
        .map(|tier| format!("{tier}_bytes = {BUDGET_BYTES}\n"))
        .concat();
    vault.write("icecore.toml", format!("{config}\n[budget]\n{budgets}"));
    let mut day = jiff::civil::date(2026, 1, 5);
    let (mut open, mut superseded): (Vec<String>, Vec<String>) = (Vec::new(), Vec::new());
    let mut berth: Option<String> = None;
    for n in 0..91_usize {
        vault.at(&format!("{day}T18:00:00+01:00"));
        if n == 2 {
            let talk = "user: We decided to paint the pier green.\n\nassistant: The pier needs ten buckets.\n";
            let taken = vault.feed(
                &["session", "add", "-", "--conversation", "pier", "--session", "s", "--no-primer"],
                talk.as_bytes(),
            );
            assert_eq!(taken.code, Some(0), "{taken:?}");
        }
        let said = |arguments: &[&str]| text(&vault.json(arguments)["event"], "id").to_owned();
        open.push(said(&[
            "remember",
            &format!("Call the pilot of voyage {n}"),
            "--type",
            "commitment",
        ]));
        let lies = format!("The Aurora lies at berth {}", n + 1);
        let mut arguments = vec!["remember", lies.as_str(), "--entity", "aurora", "--type", "fact"];
        if let Some(before) = &berth {
            arguments.extend(["--supersedes", before.as_str()]);
        }
        let now = said(&arguments);
        superseded.extend(berth.replace(now));
        // Most promises are fulfilled within the week.
        if n >= 5 && n % 7 != 0 {
            vault.ok(&["close", &open.remove(open.len() - 5), "--note", "done"]);
        }
        day = day.tomorrow().unwrap();
        vault.at(&format!("{day}T03:00:00+01:00"));
        let ran = ask(&vault, &counter, &[], &["consolidate", "--json"]).json();
        assert_eq!(list(&ran["consolidated"], "findings").len(), 0, "{day}: {ran}");
        assert!(
            vault
                .read(&format!("knowledge/consolidation-reports/{day}.md"))
                .contains("Integrity: ok"),
            "{day}"
        );
        let pack = vault.read("recall/pack.md");
        assert!(pack.split_whitespace().count() <= 3_000, "{day}");
        let named = open.iter().filter(|id| pack.contains(id.as_str())).count();
        let more = pack
            .lines()
            .find_map(|line| {
                line.strip_prefix("- and ")?.strip_suffix(" more")?.parse::<usize>().ok()
            })
            .unwrap_or(0);
        assert!(
            named + more >= open.len(),
            "{day}: {} of {} open\n{pack}",
            named + more,
            open.len()
        );
        assert!(superseded.iter().all(|id| !pack.contains(id.as_str())), "{day}: {pack}");
        assert!(vault.read("memory/ledger.jsonl").lines().count() <= 160, "{day}");
    }
    assert!(counter.requests() > 0);
    assert!(
        vault.read("memory/ledger.jsonl").contains("paint the pier green"),
        "what was decided was learnt"
    );
    assert_eq!(vault.run(&["verify"]).code, Some(0));
}
