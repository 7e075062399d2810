//! The durability contract, literally: the process is killed, or a system call fails, at every call that touches
//! the vault, for every writing command. Afterwards nothing acknowledged is missing or doubled, `verify` is clean,
//! and the command can be given again.
//!
//! `./test` runs a sample of the points; `just sweep` runs all of them (`ICECORE_SWEEP=full`).

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use crate::program::{NOW, Said, Vault, bare, copy, program, said};

/// The system calls that can change a file, or open one.
const CALLS: &str = "write,pwrite64,fsync,fdatasync,syncfs,ftruncate,rename,renameat,renameat2,unlink,unlinkat,link,mkdir,mkdirat,openat";

/// One writing command and the vault it runs in.
struct Scenario {
    /// Sets the vault up.
    furnish: fn(&Vault),
    command: &'static [&'static str],
    /// A text that the command adds to the ledger: at most once, and exactly once if it was acknowledged.
    adds: Option<&'static str>,
    /// The files it may change; all others must stay as they were.
    touches: &'static [&'static str],
    /// The codes that a second call may end with.
    again: &'static [i32],
    /// What must hold once the command was acknowledged.
    done: fn(&Path) -> bool,
}

fn text(root: &Path, path: &str) -> String {
    fs::read_to_string(root.join(path)).unwrap_or_default()
}

fn set_aside(root: &Path, bytes: &str) -> bool {
    fs::read_dir(root.join(".icecore/quarantine"))
        .into_iter()
        .flatten()
        .flatten()
        .any(|entry| fs::read_to_string(entry.path()).is_ok_and(|text| text == bytes))
}

fn commits(root: &Path) -> usize {
    let output = bare("git").current_dir(root).args(["rev-list", "--count", "HEAD"]).output().unwrap();
    String::from_utf8_lossy(&output.stdout).trim().parse().unwrap_or(0)
}

fn one_open_loop(root: &Path) -> bool {
    text(root, LOOPS).split_whitespace().collect::<String>() == "[\"EVT-20260213-002\"]"
}

const LEDGER: &str = "memory/ledger.jsonl";
const LOOPS: &str = "memory/index/open-loops.json";
const INTEGRITY: &[&str] = &["memory/integrity.json", "memory/integrity-log.md", LOOPS];

fn some_events(vault: &Vault) {
    vault.remember(&["The budget is 500 EUR", "--entity", "apollo"]);
    vault.remember(&["Send the offer", "--due", "friday"]);
    vault.remember(&["Never deploy on Fridays", "--priority", "P0"]);
    vault.ok(&["log", "first line"]);
}

fn with_extracts(vault: &Vault) {
    some_events(vault);
    let log = vault.read("memory/2026-02-13.md");
    vault.write("memory/2026-02-13.md", format!("{log}\n## Priority Extracts\n- [P1] taken from the log\n"));
}

fn damaged(vault: &Vault) {
    some_events(vault);
    let text = vault.read(LEDGER);
    let (first, rest) = text.split_once('\n').unwrap();
    vault.write(LEDGER, format!("{first}\nnot an event\n{rest}{first}\n"));
}

fn torn(vault: &Vault) {
    some_events(vault);
    let text = vault.read(LEDGER);
    vault.write(LEDGER, format!("{text}{{\"ts\":\"2026-02-13T09:3"));
}

fn with_snapshot(vault: &Vault) {
    some_events(vault);
    fs::create_dir_all(vault.path("recall")).unwrap();
    vault.write("recall/pack.md", "as it was\n");
    vault.ok(&["snapshot", "-q"]);
    vault.write("recall/pack.md", "changed\n");
    vault.write("recall/new.md", "new\n");
    vault.remember(&["after the snapshot"]);
}

fn with_messages(vault: &Vault) {
    some_events(vault);
    for (id, at, said) in
        [("m1", "2026-02-03T10:00:00+01:00", "Decision: the boat is painted"), ("m2", "2026-02-13T08:00:00+01:00", "first of the day")]
    {
        vault.ok(&["message", "add", said, "--conversation", "harbour", "--id", id, "--ts", at]);
    }
}

/// What a night writes.
const CONSOLIDATED: &[&str] = &["memory/*", "primers/*", "knowledge/*", "recall/*"];

/// Half a year ago: a fact that was replaced, a promise that was kept, and a rule that stays.
fn with_chains(vault: &Vault) {
    let line = |n: u8, rest: &str| {
        format!("{{\"ts\":\"2025-08-01T09:0{n}:00+02:00\",\"id\":\"EVT-20250801-00{n}\",{rest},\"source\":\"live\"}}\n")
    };
    let lines = [
        line(1, r#""type":"fact","priority":"P2","content":"The budget is 500 EUR""#),
        line(2, r#""type":"fact","priority":"P1","content":"The budget is 600 EUR","supersedes":["EVT-20250801-001"]"#),
        line(3, r#""type":"commitment","priority":"P1","content":"Send the offer","status":"open""#),
        line(4, r#""type":"commitment","priority":"P1","content":"sent","act":"close","related":["EVT-20250801-003"],"status":"closed""#),
        line(5, r#""type":"constraint","priority":"P0","content":"Never deploy on Fridays""#),
    ];
    vault.write(LEDGER, lines.concat());
}

/// What pressing writes.
const PRESSED: &[&str] =
    &["memory/messages/*", "memory/summaries.jsonl", "memory/summaries/*", "memory/runs.jsonl", "memory/review.jsonl", "primers/*", LOOPS];

fn scenario(name: &str) -> Scenario {
    let plain = Scenario { furnish: some_events, command: &[], adds: None, touches: &[LEDGER], again: &[0], done: |_| true };
    match name {
        "init" => Scenario {
            furnish: |vault| fs::remove_dir_all(&vault.root).unwrap(),
            command: &["init", "--tz", "Europe/Berlin"],
            touches: &["*"],
            again: &[0, 4],
            done: |root| root.join(LEDGER).exists() && root.join("icecore.toml").exists(),
            ..plain
        },
        "remember_first" => Scenario { furnish: |_| {}, command: &["remember", "a new fact"], adds: Some("a new fact"), ..plain },
        "remember" => Scenario { command: &["remember", "a new fact"], adds: Some("a new fact"), ..plain },
        "remember_torn" => Scenario {
            furnish: torn,
            command: &["remember", "a new fact"],
            adds: Some("a new fact"),
            done: |root| set_aside(root, "{\"ts\":\"2026-02-13T09:3"),
            ..plain
        },
        "supersede" => Scenario {
            command: &["remember", "a new budget", "--supersedes", "20260213-1"],
            adds: Some("a new budget"),
            again: &[0, 4],
            ..plain
        },
        "close" => Scenario { command: &["close", "20260213-2", "--note", "all done"], adds: Some("all done"), again: &[0, 4], ..plain },
        "confirm" => Scenario { command: &["confirm", "20260213-1", "--note", "still so"], adds: Some("still so"), ..plain },
        "retract" => Scenario { command: &["retract", "20260213-3", "--note", "not so"], adds: Some("not so"), again: &[0, 4], ..plain },
        "log" => Scenario {
            command: &["log", "second line"],
            touches: &["memory/2026-02-13.md"],
            done: |root| text(root, "memory/2026-02-13.md") == "# 2026-02-13 Friday, 2026-W07\n\n- 09:30 first line\n- 09:30 second line\n",
            ..plain
        },
        "extracts" => Scenario { furnish: with_extracts, command: &["events"], adds: Some("taken from the log"), ..plain },
        "log_first" => Scenario {
            furnish: |_| {},
            command: &["log", "second line"],
            touches: &["memory/2026-02-13.md"],
            done: |root| text(root, "memory/2026-02-13.md") == "# 2026-02-13 Friday, 2026-W07\n\n- 09:30 second line\n",
            ..plain
        },
        "commitments" => Scenario { command: &["commitments"], touches: &[LOOPS], done: one_open_loop, ..plain },
        "verify" => Scenario {
            furnish: with_extracts,
            command: &["verify"],
            adds: Some("taken from the log"),
            touches: &["*integrity", LEDGER],
            ..plain
        },
        "doctor" => Scenario {
            furnish: damaged,
            command: &["doctor", "--fix"],
            touches: &["*integrity", LEDGER],
            done: |root| {
                set_aside(root, "not an event")
                    && ["500 EUR", "Send the offer", "Never deploy"].iter().all(|said| text(root, LEDGER).matches(said).count() == 1)
            },
            ..plain
        },
        "reindex" => Scenario { command: &["reindex"], touches: &[LOOPS], done: one_open_loop, ..plain },
        "snapshot" => Scenario { command: &["snapshot"], touches: &[LOOPS], done: |root| commits(root) >= 2, ..plain },
        "undo" => Scenario {
            furnish: with_snapshot,
            command: &["undo"],
            touches: &[LEDGER, LOOPS, "recall/pack.md", "recall/new.md"],
            done: |root| {
                text(root, "recall/pack.md") == "as it was\n"
                    && !root.join("recall/new.md").exists()
                    && text(root, LEDGER).contains("Undone")
            },
            ..plain
        },
        "message" => Scenario {
            furnish: with_messages,
            command: &["message", "add", "the boat is green", "--conversation", "harbour", "--id", "m9"],
            touches: &["memory/messages/2026-02-13.jsonl"],
            done: |root| {
                let kept = text(root, "memory/messages/2026-02-13.jsonl");
                kept.matches("the boat is green").count() == 1 && kept.matches("first of the day").count() == 1
            },
            ..plain
        },
        "state" => Scenario {
            command: &["save-state", "icecore.toml", "--title", "t"],
            touches: &["memory/state/assistant-state.md", "memory/snapshots/2026-02-13.jsonl", "memory/summaries/24hr.md"],
            done: |root| {
                text(root, "memory/state/assistant-state.md").contains("zone")
                    && text(root, "memory/snapshots/2026-02-13.jsonl").lines().count() == 1
                    && text(root, "memory/summaries/24hr.md").matches("### 2026-02-13 09:30").count() == 1
            },
            ..plain
        },
        "session_add" => Scenario {
            command: &["session", "add", "icecore.toml", "--session", "s"],
            touches: PRESSED,
            done: |root| {
                text(root, "memory/messages/2026-02-13.jsonl").lines().count() == 1
                    && root.join("primers/daily/2026-02-13_session_01.md").exists()
            },
            ..plain
        },
        "rollup" => Scenario {
            furnish: with_messages,
            command: &["rollup", "due"],
            touches: CONSOLIDATED,
            done: |root| {
                let kept = text(root, "memory/summaries.jsonl");
                ["2026-02-03_session_01", "2026-02-03", "2026-W06"]
                    .iter()
                    .all(|node| kept.matches(&format!("\"id\":\"{node}#1\"")).count() == 1 && !kept.contains(&format!("{node}#2")))
                    && root.join("primers/weekly/2026-W06.md").exists()
                    && root.join("primers/upload/UPLOAD_PACKAGE.md").exists()
            },
            ..plain
        },
        "import" => Scenario {
            furnish: |vault| {
                some_events(vault);
                let line = |day: u8| format!("{{\"ts\":\"2026-02-0{day}T10:00:00+01:00\",\"id\":\"m{day}\",\"text\":\"told on {day}\"}}\n");
                vault.write("history.jsonl", (1..=6).map(line).collect::<String>());
            },
            command: &["import", "history.jsonl"],
            touches: &["memory/messages/*", "memory/imports.jsonl"],
            done: |root| (1..=6).all(|day| text(root, &format!("memory/messages/2026-02-0{day}.jsonl")).matches("told on").count() == 1),
            ..plain
        },
        "consolidate" => Scenario {
            furnish: |vault| {
                with_messages(vault);
                let log = vault.read("memory/2026-02-13.md");
                vault.write("memory/2026-02-13.md", format!("{log}\n## Priority Extracts\n- [P1] taken from the log\n"));
            },
            command: &["consolidate"],
            adds: Some("taken from the log"),
            touches: CONSOLIDATED,
            done: |root| {
                let ledger = text(root, LEDGER);
                ledger.matches("the boat is painted").count() == 2
                    && text(root, "knowledge/entities/apollo.md").contains("- The budget is 500 EUR")
                    && text(root, "recall/pack.md").contains("- Never deploy on Fridays (EVT-20260213-003)")
                    && text(root, "knowledge/consolidation-reports/2026-02-13.md").contains("## Run 2026-02-13T09:30:00+01:00")
            },
            ..plain
        },
        "compact" => Scenario {
            furnish: with_chains,
            command: &["compact"],
            touches: &[LEDGER, "memory/ledger-archive-2026.jsonl", "memory/archive/*", "memory/integrity.json", "memory/checkpoint.json"],
            done: |root| {
                let (ledger, archive) = (text(root, LEDGER), text(root, "memory/ledger-archive-2026.jsonl"));
                !ledger.contains("The budget is 500 EUR")
                    // A run that died after it had put the line away puts it away once more; it counts once.
                    && archive.contains("The budget is 500 EUR")
                    && ledger.contains("Never deploy")
                    && ledger.matches("Done: Send the offer").count() == 1
            },
            ..plain
        },
        "migrate" => Scenario {
            furnish: |vault| {
                some_events(vault);
                vault.write("memory.md", "- Never send mail on Sundays\n");
                vault.write("briefing.md", "stale\n");
            },
            command: &["migrate", "."],
            adds: Some("Never send mail on Sundays"),
            touches: &[LEDGER, "memory.md", "briefing.md", "memory/archive/*"],
            done: |root| {
                !root.join("memory.md").exists()
                    && text(root, "memory/archive/migrated/memory.md").contains("Never send mail")
                    && text(root, "memory/archive/migrated/briefing.md") == "stale\n"
            },
            ..plain
        },
        "mark" => Scenario {
            command: &["mark", "2026-02-12", "important"],
            touches: &["memory/marks.jsonl"],
            done: |root| text(root, "memory/marks.jsonl").contains("\"date\":\"2026-02-12\""),
            ..plain
        },
        other => panic!("no scenario {other}"),
    }
}

/// A run of the program under strace.
fn strace(root: &Path, arguments: &[&str], options: &[String], log: &Path) -> Said {
    let mut command = bare("strace");
    command.args(["-qq", "-y", "-o"]).arg(log).arg("-e").arg(format!("trace={CALLS}")).args(options).arg("--");
    command.arg(program()).args(["--vault", root.to_str().unwrap(), "--now", NOW, "--json"]).args(arguments);
    // Files that a command takes in are named from the vault.
    command.current_dir(if root.is_dir() { root } else { Path::new("/") });
    said(command.output().expect("strace is needed; ./test installs it"))
}

/// One system call of a run: its name, and the how-manieth of that name it is. That is how strace counts.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Point {
    call: String,
    ordinal: usize,
}

/// The traced calls that touch the vault, in order.
fn points(log: &Path, root: &Path) -> Vec<Point> {
    let text = fs::read(log).unwrap();
    let text = String::from_utf8_lossy(&text);
    let root = root.to_str().unwrap();
    let mut seen: HashMap<String, usize> = HashMap::new();
    let mut found = Vec::new();
    for line in text.lines().filter(|line| !line.starts_with("---") && !line.starts_with("+++")) {
        let Some((call, _)) = line.split_once('(') else { continue };
        let ordinal = seen.entry(call.to_owned()).or_default();
        *ordinal += 1;
        if line.contains(root) {
            found.push(Point { call: call.to_owned(), ordinal: *ordinal });
        }
    }
    found
}

fn full() -> bool {
    std::env::var("ICECORE_SWEEP").is_ok_and(|mode| mode == "full")
}

/// Every point in a full sweep; in a sample, a handful spread over the whole.
fn sample(points: &[Point], most: usize) -> Vec<Point> {
    if full() || points.len() <= most {
        return points.to_vec();
    }
    (0..most).map(|at| points[at * points.len() / most].clone()).collect()
}

/// The files of a vault with their bytes, but for what is derived, private or git's.
fn files(root: &Path) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let (path, name) = (entry.path(), entry.file_name());
            if name == ".git" || name == ".icecore" {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
            } else {
                found.push((path.strip_prefix(root).unwrap().to_str().unwrap().to_owned(), fs::read(&path).unwrap()));
            }
        }
    }
    found.sort();
    found
}

fn may_touch(scenario: &Scenario, path: &str) -> bool {
    scenario.touches.iter().any(|touched| match *touched {
        "*" => true,
        "*integrity" => INTEGRITY.contains(&path),
        other => other.strip_suffix('*').map_or(other == path, |folder| path.starts_with(folder)),
    })
}

/// Looks at a vault after something happened to it, and gives every violation of the contract a line.
fn violations(scenario: &Scenario, golden: &Path, root: &Path, first: &Said, fault: bool) -> Vec<String> {
    let mut wrong = Vec::new();
    let call = |arguments: &[&str]| {
        let mut command = bare(program());
        command.args(["--vault", root.to_str().unwrap(), "--now", NOW, "--json"]).args(arguments);
        command.current_dir(if root.is_dir() { root } else { Path::new("/") });
        said(command.output().unwrap())
    };
    // A reader that could not take something in says so; that is no acknowledgement of it.
    let acknowledged = first.code == Some(0) && !first.err.contains("warning:") && !first.out.contains("\"complaints\":[\"");
    if fault && first.code.is_some_and(|code| code != 0) && !first.err.contains("\"error\"") {
        // The dynamic loader fails before the program begins; it has words of its own.
        if !first.err.contains("shared libraries") && !first.out.contains("\"ok\":false") {
            wrong.push(format!("it failed without an error: {first:?}"));
        }
    }
    if scenario.command[0] == "init" && !root.join("icecore.toml").exists() {
        if acknowledged {
            wrong.push("acknowledged, and there is no vault".into());
        }
    } else {
        // What was there is there, byte for byte.
        for (path, bytes) in files(golden).into_iter().filter(|(path, _)| !may_touch(scenario, path)) {
            if fs::read(root.join(&path)).ok().as_ref() != Some(&bytes) {
                wrong.push(format!("{path} changed"));
            }
        }
        let text = fs::read(root.join(LEDGER)).unwrap_or_default();
        let before = fs::read(golden.join(LEDGER)).unwrap_or_default();
        let whole = before.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
        if acknowledged && !(scenario.done)(root) {
            wrong.push("acknowledged, and not done".into());
        }
        // A log only grows.
        let log = "memory/2026-02-13.md";
        if !fs::read(root.join(log)).unwrap_or_default().starts_with(&fs::read(golden.join(log)).unwrap_or_default()) {
            wrong.push("the log lost what it had".into());
        }
        let said = |text: &[u8]| String::from_utf8_lossy(text).matches("\"content\"").count();
        if scenario.command[0] == "doctor" && said(&text) + 1 < said(&before) {
            wrong.push("doctor lost an event".into());
        }
        // What leaves the ledger is in the archive, as it was.
        let kept = String::from_utf8_lossy(&text).into_owned() + &self::text(root, "memory/ledger-archive-2026.jsonl");
        let lost = match scenario.command[0] {
            "doctor" => false,
            "compact" => !String::from_utf8_lossy(&before[..whole]).lines().all(|line| kept.contains(line)),
            _ => !text.starts_with(&before[..whole]),
        };
        if lost {
            wrong.push("the ledger lost what it had".into());
        }
        let added = |text: &[u8]| scenario.adds.map(|adds| String::from_utf8_lossy(text).matches(adds).count());
        match added(&text) {
            Some(0) if acknowledged => wrong.push("acknowledged, and not there".into()),
            Some(many) if many > 1 => wrong.push(format!("there {many} times")),
            Some(1)
                if fault
                    && first.code.is_some_and(|code| code != 0)
                    && fs::read(root.join(LEDGER)).is_ok_and(|text| text.ends_with(b"\n"))
                    && scenario.command[0] == "remember" =>
            {
                wrong.push("refused, and there all the same".into());
            }
            _ => {}
        }
        if scenario.command[0] != "doctor" {
            let verified = call(&["verify"]);
            if verified.code != Some(0) {
                wrong.push(format!("verify: {verified:?}"));
            }
        }
    }
    let again = call(scenario.command);
    // An undo that was acknowledged is taken back by the second one; a log line is there twice.
    let unheard = first.code.is_none_or(|code| code == 0) || first.err.contains("the output could not be written");
    let repeats = acknowledged || unheard && scenario.command[0] == "log";
    if again.code == Some(0) && !(repeats && matches!(scenario.command[0], "undo" | "log" | "save-state")) && !(scenario.done)(root) {
        wrong.push("given again, and not done".into());
    }
    if !again.code.is_some_and(|code| scenario.again.contains(&code)) {
        wrong.push(format!("given again: {again:?}"));
    }
    let verified = call(&["verify"]);
    if verified.code != Some(0) {
        wrong.push(format!("verify after giving it again: {verified:?}"));
    }
    if scenario.command[0] != "remember" && scenario.command[0] != "confirm" {
        let text = fs::read(root.join(LEDGER)).unwrap_or_default();
        if let Some(adds) = scenario.adds
            && String::from_utf8_lossy(&text).matches(adds).count() != 1
        {
            wrong.push("given again, it is not there exactly once".into());
        }
    }
    wrong
}

/// Runs one scenario with one kind of fault at each of its points.
fn sweep(name: &str, kinds: &[&str], most: usize) {
    let scenario = scenario(name);
    let vault = Vault::new();
    (scenario.furnish)(&vault);
    let golden = vault.root.clone();
    let folder = TempDir::new().unwrap();
    let (root, log) = (folder.path().join("vault"), folder.path().join("log"));
    let (mut count, mut wrong) = (0, Vec::new());
    let reset = || {
        let _ = fs::remove_dir_all(&root);
        if golden.exists() {
            copy(&golden, &root);
            // The copy has other inodes; with the index up to date, the command takes its usual way.
            let mut look = bare(program());
            look.args(["--vault", root.to_str().unwrap(), "--now", NOW, "show", "20260213-1", "-q"]);
            let _ = look.output();
        }
    };
    reset();
    let undisturbed = strace(&root, scenario.command, &[], &log);
    assert_eq!(undisturbed.code, Some(0), "{name}: {undisturbed:?}");
    assert_eq!(violations(&scenario, &golden, &root, &undisturbed, false), [] as [String; 0], "{name}, undisturbed");
    let all = points(&log, &root);
    assert!(all.len() > 3, "{name} touches the vault {} times", all.len());
    for fault in kinds {
        for Point { call, ordinal } in sample(&all, most) {
            reset();
            let inject = format!("inject={call}:{fault}:when={ordinal}");
            let first = strace(&root, scenario.command, &["-e".into(), inject], &log);
            count += 1;
            let found = violations(&scenario, &golden, &root, &first, !fault.starts_with("signal"));
            wrong.extend(found.into_iter().map(|found| format!("{name}, {fault} at {call} {ordinal}: {found}")));
        }
    }
    if full() {
        let line = format!("{name}: {count} points, {} violations\n", wrong.len());
        use std::io::Write;
        let report = std::env::var_os("ICECORE_SWEEP_REPORT");
        if let Some(mut file) = report.and_then(|path| fs::OpenOptions::new().create(true).append(true).open(path).ok()) {
            file.write_all(line.as_bytes()).unwrap();
        }
    }
    assert_eq!(wrong, [] as [String; 0], "{} violations at {count} points", wrong.len());
}

const KILL: &[&str] = &["signal=SIGKILL"];
const FAULTS: &[&str] = &["error=EIO", "error=ENOSPC"];
const MORE_FAULTS: &[&str] = &["error=EIO", "error=ENOSPC", "error=EDQUOT", "error=EROFS", "error=EMFILE", "error=EINTR"];

fn faults() -> &'static [&'static str] {
    if full() { MORE_FAULTS } else { FAULTS }
}

/// Each scenario is two tests, so that they run side by side.
macro_rules! scenarios {
    ($($name:ident)+) => {
        // L2, L12
        mod killed {
            $(#[test] fn $name() { super::sweep(stringify!($name), super::KILL, 25); })+
        }
        // L2, L12
        mod faulty {
            $(#[test] fn $name() { super::sweep(stringify!($name), super::faults(), 8); })+
        }
    };
}

scenarios! {
    init remember_first remember remember_torn supersede close confirm retract log log_first extracts commitments verify doctor reindex snapshot undo
    message state session_add import rollup mark consolidate compact migrate
}

// L16: git itself dies, at each of the calls that a snapshot or an undo makes
#[test]
fn a_git_that_dies_leaves_a_vault_that_can_go_on() {
    let real = String::from_utf8(bare("sh").args(["-c", "command -v git"]).output().unwrap().stdout).unwrap();
    for (command, after_work) in [("snapshot", false), ("snapshot", true), ("undo", false), ("undo", true)] {
        for call in 1..60 {
            let vault = Vault::new();
            with_snapshot(&vault);
            let folder = TempDir::new().unwrap();
            let count = folder.path().join("count");
            let script = format!(
                "#!/bin/sh\nn=$(($(cat '{0}' 2>/dev/null || echo 0) + 1)); echo $n > '{0}'\nif [ $n -eq {call} ]; then {1} kill -9 $$; fi\nexec {2} \"$@\"\n",
                count.display(),
                if after_work { format!("{} \"$@\";", real.trim()) } else { String::new() },
                real.trim()
            );
            fs::write(folder.path().join("git"), script).unwrap();
            assert!(Command::new("chmod").arg("+x").arg(folder.path().join("git")).status().unwrap().success());
            let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap());
            let first = said(vault.command(&[command]).env("PATH", path).output().unwrap());
            let calls: usize = fs::read_to_string(&count).unwrap().trim().parse().unwrap();
            assert_eq!(vault.run(&["verify"]).code, Some(0), "{command} {call}: {first:?}");
            assert!(vault.read(LEDGER).contains("after the snapshot"));
            let again = vault.run(&[command]);
            assert_eq!(again.code, Some(0), "{command} {call}: {again:?}");
            if calls < call {
                assert_eq!(first.code, Some(0), "{command} {call}: {first:?}");
                break;
            }
        }
    }
}

// The system says that only a part was written, and for `retval` not even that is true
#[test]
fn a_short_write_never_leaves_half_a_line() {
    for name in ["remember", "log", "commitments", "supersede"] {
        let scenario = scenario(name);
        let vault = Vault::new();
        (scenario.furnish)(&vault);
        let folder = TempDir::new().unwrap();
        let (root, log) = (folder.path().join("vault"), folder.path().join("log"));
        for point in 1..=4 {
            for taken in [0, 1, 7] {
                let _ = fs::remove_dir_all(&root);
                copy(&vault.root, &root);
                let first = strace(&root, scenario.command, &["-e".into(), format!("inject=write:retval={taken}:when={point}")], &log);
                let found = violations(&scenario, &vault.root, &root, &first, false);
                assert_eq!(found, [] as [String; 0], "{name}, {taken} bytes of write {point}");
            }
        }
    }
}

// File, rename, folder, in that order
#[test]
fn a_file_is_flushed_before_it_is_renamed_and_its_folder_after() {
    let vault = Vault::new();
    some_events(&vault);
    let folder = TempDir::new().unwrap();
    let log = folder.path().join("log");
    assert_eq!(strace(&vault.root, &["commitments"], &[], &log).code, Some(0));
    let text = fs::read_to_string(&log).unwrap();
    let calls: Vec<&str> = text.lines().collect();
    let at = |from: usize, wanted: &dyn Fn(&str) -> bool| {
        calls[from..].iter().position(|line| wanted(line)).map(|at| from + at).unwrap_or_else(|| panic!("{text}"))
    };
    let rename = at(0, &|line| line.starts_with("rename") && line.contains("open-loops.json"));
    let temporary = calls[rename].split('"').nth(1).unwrap();
    let flush = at(0, &|line| line.starts_with("fsync(") && line.contains(temporary));
    let folder_flush = at(rename, &|line| line.starts_with("fsync(") && line.contains("/memory/index>"));
    assert!(flush < rename && rename < folder_flush);
    // A file that an append makes: its folder is flushed before anything is written into it.
    assert_eq!(strace(&vault.root, &["log", "x", "--now", "2026-03-01T09:00:00Z"], &[], &log).code, Some(0));
    let text = fs::read_to_string(&log).unwrap();
    let calls: Vec<&str> = text.lines().collect();
    let first = |wanted: &dyn Fn(&str) -> bool| calls.iter().position(|line| wanted(line)).unwrap_or_else(|| panic!("{text}"));
    let made = first(&|line| line.starts_with("openat") && line.contains("O_CREAT") && line.contains("2026-03-01.md"));
    let folder_flush = first(&|line| line.starts_with("fsync(") && line.contains("/memory>"));
    let written = first(&|line| line.starts_with("write(") && line.contains("2026-03-01.md"));
    let flushed = first(&|line| line.starts_with("fdatasync(") && line.contains("2026-03-01.md"));
    assert!(made < folder_flush && folder_flush < written && written < flushed, "{text}");
}

// L2: one line is one write, flushed before it is acknowledged
#[test]
fn a_remembered_line_is_one_write_and_one_flush_before_the_answer() {
    let vault = Vault::new();
    some_events(&vault);
    let folder = TempDir::new().unwrap();
    let log = folder.path().join("log");
    assert_eq!(strace(&vault.root, &["remember", "x"], &[], &log).code, Some(0));
    let text = fs::read_to_string(&log).unwrap();
    let calls: Vec<&str> = text.lines().filter(|line| line.contains("ledger.jsonl") || line.starts_with("write(1")).collect();
    let names: Vec<&str> = calls.iter().filter(|line| !line.starts_with("openat")).map(|line| line.split('(').next().unwrap()).collect();
    assert_eq!(names, ["write", "fdatasync", "write"], "{calls:?}");
}

// A disk that is really full
#[test]
fn a_full_disk_refuses_writes_keeps_reads_and_recovers() {
    let folder = TempDir::new().unwrap();
    let script = folder.path().join("script.sh");
    let body = r#"
set -eu
mount -t tmpfs -o size=4m,mode=700 none "$1"
V="$1/vault"; I="$2 --vault $V"
$2 init "$V" --tz UTC -q
head -c 2000000 /dev/zero > "$1/ballast"
n=0; code=0
text=$(head -c 3000 /dev/zero | tr '\0' x)
while [ $n -lt 2000 ]; do
  set +e; $I remember "$n $text" -q > "$1.out" 2> "$1.err"; code=$?; set -e
  [ $code -eq 0 ] || break
  n=$((n + 1))
done
echo "acknowledged $n"
echo "refused with $code"
cat "$1.err"
echo "readable: $($I events --json -q 2>/dev/null | tr '{' '\n' | grep -c '"content"')"
$I status -q > /dev/null; echo "status $?"
rm "$1/ballast"
$I remember "room again" -q > /dev/null; echo "recovered $?"
$I verify -q > /dev/null; echo "verified $?"
echo "now: $($I events --json -q | tr '{' '\n' | grep -c '"content"')"
"#;
    fs::write(&script, body).unwrap();
    let mount = folder.path().join("mount");
    fs::create_dir(&mount).unwrap();
    let root = Command::new("id").arg("-u").output().unwrap().stdout.starts_with(b"0\n");
    let mut command = bare("unshare");
    command.arg(if root { "-m" } else { "-rm" }).arg("sh").arg(&script).arg(&mount).arg(program());
    let said = said(command.output().unwrap());
    let number = |label: &str| -> usize {
        let line = said.out.lines().find(|line| line.starts_with(label)).unwrap_or_else(|| panic!("no `{label}`: {said:?}"));
        line.rsplit(' ').next().unwrap().parse().unwrap()
    };
    assert!(number("acknowledged") > 50, "{said:?}");
    assert_eq!(number("refused with"), 75, "{said:?}");
    assert!(said.out.contains("the disk is full; nothing was written"), "{said:?}");
    assert_eq!(number("readable:"), number("acknowledged"), "{said:?}");
    assert_eq!((number("status"), number("recovered"), number("verified")), (0, 0, 0), "{said:?}");
    assert_eq!(number("now:"), number("acknowledged") + 1, "{said:?}");
}
