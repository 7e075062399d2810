//! How fast: the figures of docs/benchmarks.md, each beside a reference measured in the same run on the same disk.
#![allow(clippy::disallowed_methods, clippy::disallowed_macros, reason = "a benchmark reads the clock and prints")]
#![allow(clippy::unwrap_used, reason = "a benchmark fails loudly")]

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use icecore_domain::calendar::Moment;
use icecore_domain::event::{Draft, Kind, Priority, Status};
use icecore_domain::format::line;
use icecore_domain::id::EventId;
use icecore_domain::ledger::Ledger;
use icecore_store::Store;
use icecore_store::vault::Vault;
use jiff::ToSpan;
use pollster::block_on;

/// A ledger of `many` events, a hundred a day, of every type, some of them closed or replaced.
fn ledger(many: usize) -> String {
    let mut day = jiff::civil::date(2024, 1, 1);
    let mut text = String::new();
    for n in 0..many {
        if n > 0 && n % 100 == 0 {
            day = day.checked_add(1.day()).unwrap();
        }
        let ts = Moment::read(&format!("{day}T10:{:02}:{:02}+00:00", n / 60 % 60, n % 60)).unwrap().moment;
        let kind = Kind::ALL[n % Kind::ALL.len()];
        let content = format!("Something number {n} was learnt about the project and its many moving parts in the office");
        let number = u32::try_from(n % 100).unwrap() + 1;
        let mut draft = Draft::new(ts, kind, Priority::ALL[n % 4], content);
        draft.entity = Some(format!("thing_{}", n % 50));
        draft.tags = vec!["bench".into(), "office".into()];
        draft.session = Some("main".into());
        if kind == Kind::Commitment && n % 10 != 0 {
            draft.status = Some(Status::Closed);
        }
        if kind == Kind::Fact && number > 7 {
            draft.supersedes = vec![EventId::new(day, number - 7)];
        }
        text.push_str(&line::write(&draft.with_id(EventId::new(day, number))));
    }
    text
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

/// The median time of `rounds` rounds, after a few to warm up.
fn time(rounds: usize, mut work: impl FnMut()) -> Duration {
    (0..rounds.div_ceil(10)).for_each(|_| work());
    let round = |_| {
        let start = Instant::now();
        work();
        start.elapsed()
    };
    median((0..rounds).map(round).collect())
}

fn run(command: &mut Command) {
    assert!(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap().success());
}

fn icecore(root: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_icecore"));
    command.arg("--vault").arg(root).args(arguments);
    command
}

fn vault(folder: &Path, name: &str, many: usize) -> std::path::PathBuf {
    let root = folder.join(name);
    run(icecore(&root, &["init", "--tz", "UTC"]).arg("-q"));
    fs::write(root.join("memory/ledger.jsonl"), ledger(many)).unwrap();
    run(&mut icecore(&root, &["reindex"]));
    run(&mut icecore(&root, &["snapshot"]));
    root
}

fn bare_append(file: &Path) {
    let mut file = OpenOptions::new().append(true).create(true).open(file).unwrap();
    file.write_all(&[b'x'; 300]).unwrap();
    file.sync_data().unwrap();
}

fn row(what: &str, took: Duration, against: &str) {
    println!("| {what} | {:.2} ms | {against} |", took.as_secs_f64() * 1e3);
}

fn ratio(took: Duration, reference: Duration, what: &str) -> String {
    format!("{:.2} × {what} ({:.2} ms)", took.as_secs_f64() / reference.as_secs_f64(), reference.as_secs_f64() * 1e3)
}

fn main() {
    // Called by itself as the reference for a whole process: append a line, flush it, be gone.
    if let Some(file) = std::env::var_os("ICECORE_BENCH_APPEND") {
        bare_append(Path::new(&file));
        return;
    }
    let folder = tempfile::TempDir::new().unwrap();
    let small = vault(folder.path(), "ten-thousand", 10_000);
    println!("| what | median | against |\n|---|---|---|");

    let status = time(60, || run(&mut icecore(&small, &["status"])));
    let git = time(60, || run(Command::new("git").current_dir(&small).arg("status")));
    row("`icecore status`, cold start, 10,000 events", status, &ratio(status, git, "`git status`"));

    let scratch = folder.path().join("scratch");
    let bare = time(200, || bare_append(&scratch));
    let open = Vault::open(&small).unwrap();
    let now = Moment::read("2026-02-13T09:30:00+01:00").unwrap().moment;
    let append = time(200, || drop(block_on(open.append(vec![Draft::new(now, Kind::Fact, Priority::P2, "x".repeat(150))], None)).unwrap()));
    row("a durable append, vault open, 10,000 events", append, &ratio(append, bare, "a bare append + flush"));

    let this = std::env::current_exe().unwrap();
    let process = time(60, || run(Command::new(&this).env("ICECORE_BENCH_APPEND", &scratch)));
    let remember = time(60, || run(&mut icecore(&small, &["remember", "The office moved to Hamburg in the spring"])));
    row("`icecore remember`, whole process, 10,000 events", remember, &ratio(remember, process, "a process that appends + flushes"));

    let text = ledger(100_000);
    let load = time(9, || assert_eq!(Ledger::read(text.as_bytes(), None).entries().len(), 100_000));
    let tenth = ledger(10_000);
    let load_tenth = time(9, || drop(Ledger::read(tenth.as_bytes(), None)));
    row("loading 100,000 ledger lines", load, &ratio(load, load_tenth, "loading 10,000"));

    let big = vault(folder.path(), "hundred-thousand", 100_000);
    let reindex = time(3, || run(&mut icecore(&big, &["reindex"])));
    let reindex_tenth = time(5, || run(&mut icecore(&small, &["reindex"])));
    row("`icecore reindex`, 100,000 events", reindex, &ratio(reindex, reindex_tenth, "10,000 events"));

    let status_big = time(30, || run(&mut icecore(&big, &["status"])));
    row("`icecore status`, 100,000 events", status_big, &ratio(status_big, status, "10,000 events"));
    let remember_big = time(30, || run(&mut icecore(&big, &["remember", "The office moved to Hamburg"])));
    row("`icecore remember`, 100,000 events", remember_big, &ratio(remember_big, remember, "10,000 events"));
}
