//! Hooks, each call a process of its own, on a vault with a long history.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::{history, icecore, ledger, run};

/// The number of active statements: a ledger with many rules.
const STATEMENTS: usize = 1_000;
const ROUNDS: usize = 100;

/// The times of `ROUNDS` calls, sorted; `input` makes the client's payload of each.
fn calls(root: &Path, event: &str, input: impl Fn(usize) -> serde_json::Value) -> Vec<Duration> {
    let mut times = Vec::new();
    for n in 0..ROUNDS + 5 {
        let text = input(n).to_string();
        let start = Instant::now();
        let mut child = icecore(root, &["hook", event])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        let took = start.elapsed();
        assert!(output.status.success() && output.stdout.starts_with(b"{"));
        if n >= 5 {
            times.push(took);
        }
    }
    times.sort();
    times
}

pub fn hooks(folder: &Path) {
    let root = history(folder, "hooks", 10_000, 20);
    fs::write(root.join("memory/ledger.jsonl"), ledger(STATEMENTS)).unwrap();
    let project = folder.join("app");
    fs::create_dir_all(project.join(".git")).unwrap();
    run(&mut icecore(&root, &["vault", "reindex", "--words"]));
    run(&mut icecore(&root, &["status"]));
    let told = |n: usize, more: serde_json::Value| {
        let mut fields = serde_json::json!({ "session_id": format!("bench-{n}"), "transcript_path": "/nonexistent.jsonl", "cwd": project, "permission_mode": "default" });
        fields.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        fields
    };
    let mut bare: Vec<Duration> = (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            run(&mut icecore(&root, &["--version"]));
            start.elapsed()
        })
        .collect();
    bare.sort();
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    let at = |times: &[Duration], part: usize| {
        ms(times[(times.len() * part / 100).min(times.len() - 1)])
    };
    let cases = [
        (
            "session-start",
            calls(&root, "session-start", |n| told(n, serde_json::json!({ "source": "startup" }))),
        ),
        (
            "user-prompt-submit",
            calls(&root, "user-prompt-submit", |n| {
                told(
                    n / 10,
                    serde_json::json!({ "prompt": format!("what did we learn about number {n} and the printer in the office?"), "prompt_id": n.to_string() }),
                )
            }),
        ),
        (
            "stop",
            calls(&root, "stop", |n| {
                told(
                    n / 10,
                    serde_json::json!({ "last_assistant_message": format!("Answer {n}.") }),
                )
            }),
        ),
        ("pre-tool-use", calls(&root, "pre-tool-use", |n| told(n, serde_json::json!({})))),
    ];
    for (event, times) in cases {
        println!(
            "| `icecore hook {event}`, cold, 10,000 sessions, {STATEMENTS} statements | p50 {:.1} ms, p95 {:.1} ms | `icecore --version`: p50 {:.1} ms |",
            at(&times, 50),
            at(&times, 95),
            at(&bare, 50)
        );
    }
}
