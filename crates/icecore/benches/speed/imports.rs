//! Importing what other programs kept: how fast, and how much memory it takes at most, each import
//! a process of its own.
//!
//! `ICECORE_BENCH_MB` says how large the histories are; `ICECORE_BENCH_TRANSCRIPTS` may name a
//! folder of real transcripts of Claude Code, which is measured beside the ones that are made here.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

use super::{SeededRandom, icecore, run};

/// The default size of a history.
const MEGABYTES: usize = 500;
/// The clock ticks per second of processor time on Linux.
const TICKS: f64 = 100.0;

/// The cost of a process.
struct Cost {
    wall: Duration,
    /// Processor seconds, in the program and in the system for it.
    cpu: f64,
    peak_mb: f64,
}

/// Runs a command to its end and returns its cost. The system keeps the figures of a process until
/// its exit status is read.
fn cost(command: &mut Command) -> Cost {
    let start = Instant::now();
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let place = PathBuf::from(format!("/proc/{}", child.id()));
    let (mut peak, mut cpu) = (0.0_f64, 0.0);
    loop {
        let status = fs::read_to_string(place.join("status")).unwrap_or_default();
        let field = |name: &str| {
            status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().trim()
        };
        let kilobytes = field("VmHWM:").trim_end_matches(" kB").parse::<f64>().unwrap_or(0.0);
        peak = peak.max(kilobytes / 1024.0);
        if field("State:").starts_with('Z') || status.is_empty() {
            break;
        }
        std::thread::sleep(Duration::from_millis(3));
    }
    let wall = start.elapsed();
    let stat = fs::read_to_string(place.join("stat")).unwrap_or_default();
    let after: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    for at in [11, 12] {
        cpu += after.get(at).and_then(|ticks| ticks.parse::<f64>().ok()).unwrap_or(0.0) / TICKS;
    }
    assert!(child.wait().unwrap().success());
    // A cost below the resolution is less than one tick.
    Cost { wall, cpu: cpu.max(1.0 / TICKS), peak_mb: peak }
}

fn sentence(chance: &mut SeededRandom, words: usize) -> String {
    (0..words).map(|_| chance.word()).collect::<Vec<_>>().join(" ")
}

fn moment(seconds: usize) -> String {
    let at = jiff::Timestamp::from_second(1_735_689_600 + i64::try_from(seconds).unwrap()).unwrap();
    format!("{at}").replace('Z', ".000Z")
}

/// Transcripts in Claude Code's format, of so many bytes: each turn has a prompt, an answer, and
/// tool calls with their results, which are most of it. Every tenth session has a subagent's
/// transcript next to it.
fn transcripts(folder: &Path, bytes: usize) -> usize {
    let mut chance = SeededRandom(11);
    let (mut written, mut session, mut clock) = (0, 0, 0);
    while written < bytes {
        session += 1;
        let id = format!("{session:08x}-0000-4000-8000-000000000000");
        let project = folder.join(format!("-home-u-app{}", session % 20));
        let is_side = session % 10 == 0;
        let place = if is_side {
            project.join(&id).join("subagents/agent-a1.jsonl")
        } else {
            project.join(format!("{id}.jsonl"))
        };
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        let mut file = BufWriter::new(File::create(place).unwrap());
        for turn in 0..if is_side { 3 } else { 25 } {
            clock += 240;
            let mut line = |kind: &str, part: usize, message: Value, more: Value| {
                let mut fields = json!({
                    "parentUuid": format!("{session}-{turn}-{}", part.wrapping_sub(1)), "isSidechain": is_side, "userType": "external",
                    "cwd": "/home/u/app", "sessionId": id, "version": "2.1.240", "gitBranch": "main", "type": kind, "message": message,
                    "uuid": format!("{session}-{turn}-{part}"), "timestamp": moment(clock + part),
                });
                fields.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
                let line = format!("{fields}\n");
                file.write_all(line.as_bytes()).unwrap();
                written += line.len();
            };
            let answered = |part: usize, content: Value| json!({ "model": "claude-x", "id": format!("msg_{session}_{turn}_{part}"), "type": "message", "role": "assistant", "content": [content], "stop_reason": null, "usage": { "input_tokens": 3, "output_tokens": 20 } });
            line(
                "user",
                0,
                json!({ "role": "user", "content": sentence(&mut chance, 30) }),
                json!({}),
            );
            for tool in 0..4 {
                let part = 1 + tool * 3;
                let asked = json!({ "type": "tool_use", "id": format!("toolu_{session}_{turn}_{tool}"), "name": "Bash", "input": { "command": sentence(&mut chance, 12) } });
                line("assistant", part, answered(part, asked), json!({}));
                line(
                    "progress",
                    part + 1,
                    Value::Null,
                    json!({ "data": { "type": "hook_progress", "hookEvent": "PreToolUse", "command": "check" } }),
                );
                let output = sentence(&mut chance, 300);
                let said = json!({ "role": "user", "content": [{ "type": "tool_result", "tool_use_id": format!("toolu_{session}_{turn}_{tool}"), "content": output }] });
                line(
                    "user",
                    part + 2,
                    said,
                    json!({ "toolUseResult": { "stdout": output, "stderr": "", "interrupted": false } }),
                );
            }
            line(
                "assistant",
                20,
                answered(20, json!({ "type": "text", "text": sentence(&mut chance, 80) })),
                json!({}),
            );
        }
        file.flush().unwrap();
    }
    written
}

/// An export of ChatGPT whose conversations have so many bytes.
fn export(place: &Path, bytes: usize) -> usize {
    let mut chance = SeededRandom(12);
    let mut zip = ZipWriter::new(BufWriter::new(File::create(place).unwrap()));
    zip.start_file("conversations.json", SimpleFileOptions::default()).unwrap();
    zip.write_all(b"[").unwrap();
    let (mut written, mut number) = (0, 0);
    while written < bytes {
        number += 1;
        let began = 1_735_689_600.0 + f64::from(number) * 700.0;
        let node = |at: u32| format!("c{number}-{at}");
        let mut mapping = serde_json::Map::new();
        mapping.insert(
            node(0),
            json!({ "id": node(0), "message": null, "parent": null, "children": [node(1)] }),
        );
        for at in 1..=40_u32 {
            let role = if at % 2 == 1 { "user" } else { "assistant" };
            let text = sentence(&mut chance, if at % 2 == 1 { 30 } else { 200 });
            let message = json!({ "id": node(at), "author": { "role": role, "name": null, "metadata": {} }, "create_time": began + f64::from(at) * 15.0, "content": { "content_type": "text", "parts": [text] }, "status": "finished_successfully", "weight": 1.0, "metadata": { "model_slug": "m" }, "recipient": "all", "channel": null });
            let children: Vec<String> = (at < 40).then(|| node(at + 1)).into_iter().collect();
            mapping.insert(node(at), json!({ "id": node(at), "parent": node(at - 1), "children": children, "message": message }));
        }
        let talk = json!({ "id": format!("c{number}"), "conversation_id": format!("c{number}"), "title": "Talk", "create_time": began, "update_time": began + 600.0, "current_node": node(40), "mapping": mapping });
        let text = format!("{}{talk}", if number > 1 { "," } else { "" });
        zip.write_all(text.as_bytes()).unwrap();
        written += text.len();
    }
    zip.write_all(b"]").unwrap();
    zip.finish().unwrap().flush().unwrap();
    written
}

fn measure_import(folder: &Path, what: &str, from: &Path, bytes: usize) {
    let megabytes = bytes as f64 / 1e6;
    let root = folder.join(format!("vault-{}", what.replace(' ', "-")));
    run(icecore(&root, &["init", "--tz", "UTC"]).arg("-q"));
    let from = from.to_str().unwrap();
    for (how, arguments) in [
        ("looked at (`--dry-run`)", vec!["import", from, "--dry-run"]),
        ("taken in", vec!["import", from]),
        ("again", vec!["import", from]),
    ] {
        let cost = cost(&mut icecore(&root, &arguments));
        println!(
            "| {what} of {megabytes:.0} MB, {how} | {:.2} s, {:.0} MB/s | {:.2} s of work, {:.0} MB/s; at most {:.0} MB of memory |",
            cost.wall.as_secs_f64(),
            megabytes / cost.wall.as_secs_f64(),
            cost.cpu,
            megabytes / cost.cpu,
            cost.peak_mb
        );
    }
}

fn size_of(folder: &Path) -> usize {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries
        .map(|path| {
            if path.is_dir() {
                size_of(&path)
            } else {
                usize::try_from(path.metadata().unwrap().len()).unwrap()
            }
        })
        .sum()
}

pub fn measure_imports(folder: &Path) {
    let bytes = std::env::var("ICECORE_BENCH_MB")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(MEGABYTES)
        * 1_000_000;
    if let Some(real) = std::env::var_os("ICECORE_BENCH_TRANSCRIPTS").map(PathBuf::from) {
        // A few megabytes are imported before anything can be measured: as many copies as make a
        // hundred, each in a project of its own.
        let copies = folder.join("real");
        let times = 100_000_000 / size_of(&real).max(1) + 1;
        for n in 0..times {
            copy_with_new_ids(&real, &copies.join(format!("-home-u-{n}")), n);
        }
        measure_import(folder, "real transcripts", &copies, size_of(&copies));
        fs::remove_dir_all(&copies).unwrap();
    }
    let tree = folder.join("projects");
    let written = transcripts(&tree, bytes);
    measure_import(folder, "transcripts", &tree, written);
    fs::remove_dir_all(&tree).unwrap();
    let zip = folder.join("chatgpt.zip");
    let written = export(&zip, bytes);
    measure_import(folder, "ChatGPT export", &zip, written);
}

/// Copies a folder like another person's: with other ids, so that nothing of it is known.
fn copy_with_new_ids(from: &Path, to: &Path, n: usize) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() {
            copy_with_new_ids(&path, &target, n);
        } else if let Ok(text) = fs::read_to_string(&path) {
            let own = text
                .replace("\"uuid\":\"", &format!("\"uuid\":\"{n:04}"))
                .replace("\"sessionId\":\"", &format!("\"sessionId\":\"{n:04}"));
            fs::write(target, own).unwrap();
        }
    }
}
