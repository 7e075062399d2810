//! Everything at once on one vault: writers of every kind, hooks, two maintenance loops, an editor,
//! a program that appends to the same files, a second machine that is merged in, and processes
//! killed at random. Afterwards every acknowledged word is there exactly once and `verify` is
//! clean.
//!
//! `./test` runs one short round; `just chaos` runs thirty (`ICECORE_CHAOS=30`) and appends a line
//! for each to `ICECORE_CHAOS_REPORT`.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::program::{bare, command_output, program};

/// How long the writers of a round run.
const SAMPLE_SECS: u64 = 6;
const ROUND_SECS: u64 = 12;
/// One call in so many is killed.
const KILLED_ONE_IN: u64 = 9;
/// A killed call ends within this time after its start.
const MAX_KILL_MILLIS: u64 = 60;

/// Where an acknowledged word must be stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    /// One event, in the ledger or an archive.
    Event,
    /// One line of a daily log.
    LogLine,
    /// One message.
    Message,
    /// One saved state.
    State,
    /// A page or a primer that an editor saved: there, in the ledger, in a summary or in a
    /// snapshot.
    Page,
}

struct Round {
    _folder: TempDir,
    root: PathBuf,
    /// The vault of the other machine.
    other: PathBuf,
    end: Instant,
    seed: AtomicU64,
    words: AtomicUsize,
    acknowledged: Mutex<Vec<(Kind, String)>>,
    killed: AtomicUsize,
    forgotten: AtomicUsize,
    /// How many events the other program appended. It has its own counter, so that no id is
    /// skipped.
    appended: AtomicUsize,
}

impl Round {
    fn new(number: u64, seconds: u64) -> Self {
        let folder = TempDir::new().unwrap();
        let root = folder.path().join("vault");
        let other = folder.path().join("other");
        let mut round = Self {
            root,
            other,
            end: Instant::now(),
            seed: AtomicU64::new(number * 7_919 + 17),
            words: AtomicUsize::new(0),
            acknowledged: Mutex::default(),
            killed: AtomicUsize::new(0),
            forgotten: AtomicUsize::new(0),
            appended: AtomicUsize::new(0),
            _folder: folder,
        };
        assert_eq!(round.run(&["init", "--tz", "UTC", "-q"]).0, Some(0));
        for n in 0..6 {
            assert_eq!(
                round
                    .run(&[
                        "remember",
                        &format!("The size of thing{n} is {n}"),
                        "--entity",
                        &format!("thing{}", n % 2),
                        "-q"
                    ])
                    .0,
                Some(0)
            );
        }
        assert_eq!(round.run(&["consolidate", "-q"]).0, Some(0));
        assert_eq!(round.run(&["snapshot", "-q"]).0, Some(0));
        let (root, other) = (round.root.to_str().unwrap(), round.other.to_str().unwrap());
        assert!(round.git(&["clone", "-q", root, other]));
        assert!(bare(program()).args(["init", other, "-q"]).output().unwrap().status.success());
        assert!(round.git(&["remote", "add", "other", other]));
        round.end = Instant::now() + Duration::from_secs(seconds);
        round
    }

    fn git(&self, arguments: &[&str]) -> bool {
        bare("git")
            .args(["-C", self.root.to_str().unwrap()])
            .args(arguments)
            .output()
            .unwrap()
            .status
            .success()
    }

    /// One write on the other machine, which counts once this one can fetch it.
    fn write_elsewhere(&self) {
        let word = self.word();
        let run = |arguments: &[&str]| {
            bare(program())
                .args(["--vault", self.other.to_str().unwrap()])
                .args(arguments)
                .output()
                .unwrap()
                .status
                .success()
        };
        let (kind, is_written) = match self.random(2) {
            0 => (Kind::Event, run(&["remember", &format!("The place of {word} is known"), "-q"])),
            _ => (Kind::LogLine, run(&["log", &format!("saw {word}"), "-q"])),
        };
        if is_written && run(&["snapshot", "-q"]) {
            self.acknowledge(kind, word);
        }
    }

    fn is_over(&self) -> bool {
        Instant::now() >= self.end
    }

    fn random(&self, below: u64) -> u64 {
        let seed = self.seed.fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::Relaxed);
        let mixed = (seed ^ (seed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB) % below
    }

    /// A unique word.
    fn word(&self) -> String {
        format!("wq{:06}x", self.words.fetch_add(1, Ordering::Relaxed))
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = bare(program());
        command
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .args(["--vault", self.root.to_str().unwrap()])
            .args(arguments);
        command
    }

    fn run(&self, arguments: &[&str]) -> (Option<i32>, String) {
        let said = command_output(self.command(arguments).output().unwrap());
        (said.code, said.out + &said.err)
    }

    /// Runs a command, which may be killed. `true` if it was acknowledged.
    fn attempt(&self, arguments: &[&str], input: &str) -> (bool, String) {
        let mut child = self
            .command(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
        if self.random(KILLED_ONE_IN) == 0 {
            thread::sleep(Duration::from_micros(self.random(MAX_KILL_MILLIS * 1_000)));
            let _ = child.kill();
            self.killed.fetch_add(1, Ordering::Relaxed);
        }
        let said = command_output(child.wait_with_output().unwrap());
        (said.code == Some(0), said.out)
    }

    fn acknowledge(&self, kind: Kind, word: String) {
        self.acknowledged.lock().unwrap().push((kind, word));
    }

    fn today(&self) -> PathBuf {
        self.root.join(format!("memory/{}.md", jiff::Timestamp::now().strftime("%Y-%m-%d")))
    }

    /// One write of a user or an assistant.
    fn write_something(&self) {
        let word = self.word();
        let hook = |event: &str, fields: Value| {
            let mut payload = json!({"session_id": format!("s-{}", self.random(5)), "cwd": "/nonexistent", "hook_event_name": event});
            payload.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
            payload.to_string()
        };
        let (kind, (is_acknowledged, _)) = match self.random(7) {
            0 => (
                Kind::Event,
                self.attempt(&["remember", &format!("The value of {word} is set"), "-q"], ""),
            ),
            1 => (
                Kind::Event,
                self.attempt(
                    &[
                        "remember",
                        &format!("Send {word} to Client X"),
                        "--type",
                        "commitment",
                        "-q",
                    ],
                    "",
                ),
            ),
            2 => (Kind::LogLine, self.attempt(&["log", &format!("did {word}"), "-q"], "")),
            3 => (
                Kind::Message,
                self.attempt(
                    &[
                        "message",
                        "add",
                        &format!("said {word}"),
                        "--conversation",
                        "chat",
                        "--id",
                        &word,
                        "-q",
                    ],
                    "",
                ),
            ),
            4 => (
                Kind::State,
                self.attempt(&["save-state", "-", "-q"], &format!("working on {word}")),
            ),
            5 => {
                let (ok, out) = self.attempt(
                    &["hook", "user-prompt-submit"],
                    &hook("UserPromptSubmit", json!({"prompt": format!("please do {word}")})),
                );
                // A hook that could not record the text says so.
                (Kind::Message, (ok && !out.contains("systemMessage"), out))
            }
            _ => {
                let (ok, out) = self.attempt(
                    &["hook", "stop"],
                    &hook("Stop", json!({"last_assistant_message": format!("done {word}")})),
                );
                (Kind::Message, (ok && !out.contains("systemMessage"), out))
            }
        };
        if is_acknowledged {
            self.acknowledge(kind, word);
        }
    }

    fn maintain(&self) {
        let forget = format!("zebra{}", self.random(1_000_000));
        let commands: [&[&str]; 15] = [
            &["consolidate", "-q"],
            &["rollup", "due", "-q"],
            &["compact", "-q"],
            &["prune", "-q"],
            &["snapshot", "-q"],
            &["merge", "other/main", "-q"],
            &["undo", "-q"],
            &["vault", "reindex", "-q"],
            &["doctor", "--fix", "-q"],
            &["verify", "-q"],
            &["status", "-q"],
            &["search", "value", "-q"],
            &["forget", "--matching", &forget, "--yes", "-q"],
            &["forget", "--matching", &forget, "--history", "--yes", "-q"],
            &[],
        ];
        let command = commands[self.random(commands.len() as u64) as usize];
        match command.first() {
            None => drop(fs::remove_file(self.root.join(".icecore/index.db"))),
            Some(&"merge") => {
                self.git(&["fetch", "-q", "other"]);
                self.attempt(command, "");
            }
            Some(&"forget") => {
                self.run(&["log", &format!("the {forget} door"), "-q"]);
                self.attempt(command, "");
                self.forgotten.fetch_add(1, Ordering::Relaxed);
            }
            Some(_) => drop(self.attempt(command, "")),
        }
    }

    /// Saves a page or a primer as an editor does: a new file that is renamed, or the old one
    /// overwritten in place. Logs are not saved this way: an editor that has not seen the latest
    /// lines would remove them.
    fn edit_page(&self) {
        let folders = ["knowledge/entities", "primers/daily", "primers/weekly"]
            .map(|folder| self.root.join(folder));
        let pages: Vec<PathBuf> = folders
            .iter()
            .flat_map(fs::read_dir)
            .flatten()
            .flatten()
            .map(|entry| entry.path())
            .filter(|page| page.extension().is_some_and(|ending| ending == "md"))
            .collect();
        if pages.is_empty() {
            return;
        }
        let page = &pages[self.random(pages.len() as u64) as usize];
        let Ok(text) = fs::read_to_string(page) else { return };
        let word = self.word();
        let text = format!("{}\n- The colour of {word} is blue\n", text.trim_end());
        if self.random(2) == 0 {
            fs::write(page, text).unwrap();
        } else {
            let swap = page.with_extension("swp");
            fs::write(&swap, text).unwrap();
            fs::rename(&swap, page).unwrap();
        }
        self.acknowledge(Kind::Page, word);
    }

    /// Appends a whole line in one write, without any lock.
    fn append_line(&self, path: &Path, line: &str) -> bool {
        OpenOptions::new()
            .append(true)
            .open(path)
            .is_ok_and(|mut file| file.write_all(line.as_bytes()).is_ok())
    }

    fn append_as_another_program(&self) {
        let word = self.word();
        if self.random(2) == 0 {
            if self.append_line(&self.today(), &format!("- 09:00 {word}\n")) {
                self.acknowledge(Kind::LogLine, word);
            }
        } else {
            let now = jiff::Timestamp::now();
            let number = self.appended.load(Ordering::Relaxed) + 1;
            let line = format!(
                "{{\"ts\":\"{now}\",\"id\":\"EVT-20200101-{number:03}\",\"type\":\"fact\",\"priority\":\"P2\",\"content\":\"{word}\",\"source\":\"live\"}}\n"
            );
            if self.append_line(&self.root.join("memory/ledger.jsonl"), &line) {
                self.appended.store(number, Ordering::Relaxed);
                self.acknowledge(Kind::Event, word);
            }
        }
    }

    /// How often each word is where it must be, and what is wrong.
    fn missing_and_doubled(&self) -> (Vec<String>, Vec<String>) {
        let read =
            |folder: &str, ending: &str| -> String { texts(&self.root.join(folder), ending) };
        let events = read("memory", "ledger.jsonl") + &read("memory/archive", ".jsonl");
        let places: BTreeMap<Kind, String> = [
            (Kind::Event, statements(&events)),
            (Kind::LogLine, logs(&self.root)),
            (Kind::Message, read("memory/messages", ".jsonl")),
            (Kind::State, read("memory/snapshots", ".jsonl")),
            (
                Kind::Page,
                events
                    + &read("knowledge", ".md")
                    + &read("primers", ".md")
                    + &read("memory", "summaries.jsonl"),
            ),
        ]
        .into();
        let (mut missing, mut doubled) = (Vec::new(), Vec::new());
        for (kind, word) in self.acknowledged.lock().unwrap().iter() {
            let found = places[kind].lines().filter(|line| line.contains(word.as_str())).count();
            if found == 0 && !(*kind == Kind::Page && self.is_in_a_snapshot(word)) {
                missing.push(format!("{kind:?} {word}"));
            }
            if found > 1 && *kind != Kind::Page {
                doubled.push(format!("{kind:?} {word}"));
            }
        }
        (missing, doubled)
    }

    fn is_in_a_snapshot(&self, word: &str) -> bool {
        let found = bare("git")
            .args([
                "-C",
                self.root.to_str().unwrap(),
                "log",
                "--all",
                "--oneline",
                &format!("-S{word}"),
            ])
            .output();
        found.is_ok_and(|found| !found.stdout.is_empty())
    }
}

/// The lines of all files below a folder with this ending.
fn texts(folder: &Path, ending: &str) -> String {
    let mut all = String::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            all += &texts(&path, ending);
        } else if path.to_string_lossy().ends_with(ending) {
            all += &fs::read_to_string(&path).unwrap_or_default();
        }
    }
    all
}

/// The statements among these ledger lines, one per line; acts on a statement may repeat its text.
fn statements(lines: &str) -> String {
    let events = lines.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let statements =
        events.filter(|event| event.get("act").is_none() && event.get("compacts").is_none());
    statements.map(|event| format!("{} {}\n", event["id"], event["content"])).collect()
}

/// The daily logs.
fn logs(root: &Path) -> String {
    let mut all = String::new();
    for entry in fs::read_dir(root.join("memory")).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.extension().is_some_and(|ending| ending == "md")
            && path.file_stem().is_some_and(|name| name.len() == 10)
        {
            all += &fs::read_to_string(&path).unwrap_or_default();
        }
    }
    all
}

fn play(number: u64, seconds: u64) -> String {
    let round = Round::new(number, seconds);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !round.is_over() {
                    round.write_something();
                }
            });
        }
        for _ in 0..2 {
            scope.spawn(|| {
                while !round.is_over() {
                    round.maintain();
                }
            });
        }
        scope.spawn(|| {
            while !round.is_over() {
                round.edit_page();
                thread::sleep(Duration::from_millis(round.random(60)));
            }
        });
        scope.spawn(|| {
            while !round.is_over() {
                round.write_elsewhere();
            }
        });
        scope.spawn(|| {
            while !round.is_over() {
                round.append_as_another_program();
                thread::sleep(Duration::from_millis(5 + round.random(10)));
            }
        });
    });
    // What the next session, the next nightly run and a merge do by themselves; nothing is repaired
    // by hand.
    assert!(round.git(&["fetch", "-q", "other"]));
    let commands = [
        &["consolidate", "-q"][..],
        &["merge", "other/main", "-q"],
        &["merge", "other/main", "-q"],
        &["consolidate", "-q"],
    ];
    let settled: Vec<_> = commands.into_iter().map(|command| round.run(command)).collect();
    let (verified, report) = round.run(&["verify"]);
    let (missing, doubled) = round.missing_and_doubled();
    let words = round.acknowledged.lock().unwrap().len();
    assert!(words > 20, "round {number}: only {words} words in {seconds} s");
    let (killed, forgotten) =
        (round.killed.load(Ordering::Relaxed), round.forgotten.load(Ordering::Relaxed));
    assert!(
        missing.is_empty() && doubled.is_empty(),
        "round {number}: missing {missing:?}, doubled {doubled:?}; {settled:?}\n{report}"
    );
    assert_eq!(verified, Some(0), "round {number}: {settled:?}\n{report}");
    format!(
        "round {number} acknowledged {words} killed {killed} forgotten {forgotten} lost 0 doubled 0 verify 0"
    )
}

// L2 L12 K5
#[test]
fn chaos_loses_and_doubles_nothing() {
    let rounds = std::env::var("ICECORE_CHAOS").ok().and_then(|rounds| rounds.parse::<u64>().ok());
    for number in 0..rounds.unwrap_or(1) {
        let line = play(number, if rounds.is_some() { ROUND_SECS } else { SAMPLE_SECS });
        if let Some(report) = std::env::var_os("ICECORE_CHAOS_REPORT") {
            let mut file = OpenOptions::new().create(true).append(true).open(report).unwrap();
            writeln!(file, "{line}").unwrap();
        }
    }
}
