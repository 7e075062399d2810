//! The memory tool on a real vault: its answers, what it stores, and that nothing leads out of its
//! folder.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use icecore_engine::{Memory, SearchRequest, ToolAnswer};
use pollster::block_on;
use serde_json::{Value, json};

use crate::{MORNING, TestVault};

fn ask(memory: &Memory, input: &Value) -> ToolAnswer {
    block_on(memory.run_memory_tool(&input.to_string()))
        .unwrap_or_else(|error| panic!("{input}: {error}"))
}

fn check(memory: &Memory, input: Value, content: &str) {
    let answer = ask(memory, &input);
    assert_eq!((answer.content.as_str(), answer.is_error), (content, false), "{input}");
}

fn wrong(memory: &Memory, input: Value, content: &str) {
    let answer = ask(memory, &input);
    assert_eq!((answer.content.as_str(), answer.is_error), (content, true), "{input}");
}

const LISTED: &str = "Here're the files and directories up to 2 levels deep in /memories, excluding hidden items and node_modules:\n";

// The texts of the tool's documentation, verbatim
#[test]
fn a_model_keeps_its_notes_and_is_answered_as_documented() {
    let home = TestVault::new();
    let memory = home.at(MORNING);
    check(
        &memory,
        json!({"command": "view", "path": "/memories"}),
        &format!("{LISTED}0B\t/memories"),
    );
    wrong(
        &memory,
        json!({"command": "view", "path": "/memories/a.md"}),
        "The path /memories/a.md does not exist. Please provide a valid path.",
    );
    let create = json!({"command": "create", "path": "/memories/work/a.md", "file_text": "# Plan\nport 1\nend\n"});
    check(&memory, create.clone(), "File created successfully at: /memories/work/a.md");
    wrong(&memory, create, "Error: File /memories/work/a.md already exists");
    check(
        &memory,
        json!({"command": "view", "path": "/memories/"}),
        &format!(
            "{}18B\t/memories/\n18B\t/memories/work\n18B\t/memories/work/a.md",
            LISTED.replace("in /memories,", "in /memories/,")
        ),
    );
    check(
        &memory,
        json!({"command": "str_replace", "path": "/memories/work/a.md", "old_str": "port 1", "new_str": "port 7431"}),
        "The memory file has been edited. Here is the snippet showing the change (with line numbers):\n     1\t# Plan\n     2\tport 7431\n     3\tend",
    );
    let gone = "Error: The path /memories/b.md does not exist. Please provide a valid path.";
    wrong(
        &memory,
        json!({"command": "str_replace", "path": "/memories/b.md", "old_str": "x", "new_str": "y"}),
        gone,
    );
    let folder = "Error: The path /memories/work does not exist. Please provide a valid path.";
    wrong(
        &memory,
        json!({"command": "str_replace", "path": "/memories/work", "old_str": "x", "new_str": "y"}),
        folder,
    );
    check(
        &memory,
        json!({"command": "insert", "path": "/memories/work/a.md", "insert_line": 1, "insert_text": "by Ann\n"}),
        "The file /memories/work/a.md has been edited.",
    );
    wrong(
        &memory,
        json!({"command": "insert", "path": "/memories/work/b.md", "insert_line": 1, "insert_text": "x"}),
        "Error: The path /memories/work/b.md does not exist",
    );
    wrong(
        &memory,
        json!({"command": "insert", "path": "/memories/work/a.md", "insert_line": 9, "insert_text": "x"}),
        "Error: Invalid `insert_line` parameter: 9. It should be within the range of lines of the file: [0, 4]",
    );
    check(
        &memory,
        json!({"command": "view", "path": "/memories/work/a.md", "view_range": [2, -1]}),
        "Here's the content of /memories/work/a.md with line numbers:\n     2\tby Ann\n     3\tport 7431\n     4\tend",
    );
    check(
        &memory,
        json!({"command": "rename", "old_path": "/memories/work", "new_path": "/memories/done/2026"}),
        "Successfully renamed /memories/work to /memories/done/2026",
    );
    wrong(
        &memory,
        json!({"command": "rename", "old_path": "/memories/work", "new_path": "/memories/x"}),
        "Error: The path /memories/work does not exist",
    );
    wrong(
        &memory,
        json!({"command": "rename", "old_path": "/memories/done/2026/a.md", "new_path": "/memories/done"}),
        "Error: The destination /memories/done already exists",
    );
    assert_eq!(home.read("memory/tool/done/2026/a.md"), "# Plan\nby Ann\nport 7431\nend\n");
    assert!(!home.root.join("memory/tool/work").exists());
    // Search finds it like everything else.
    let found = |memory: &Memory| {
        let finder = block_on(memory.open_searcher(None, &|_, _| {})).unwrap();
        let looking =
            SearchRequest { text: "port 7431".into(), limit: 5, ..SearchRequest::default() };
        block_on(finder.search(&looking)).unwrap().hits.len()
    };
    assert_eq!(found(&memory), 1);
    check(
        &memory,
        json!({"command": "delete", "path": "/memories/done"}),
        "Successfully deleted /memories/done",
    );
    wrong(
        &memory,
        json!({"command": "delete", "path": "/memories/done"}),
        "Error: The path /memories/done does not exist",
    );
    wrong(
        &memory,
        json!({"command": "delete", "path": "/memories"}),
        "Error: The /memories directory itself cannot be deleted",
    );
    assert_eq!(found(&memory), 0);
    // Every version can be restored, through all its names.
    let versions = block_on(memory.list_memory_tool_versions("/memories/done/2026/a.md")).unwrap();
    let told: Vec<(&str, &str)> =
        versions.iter().map(|version| (version.did.as_str(), version.text.as_str())).collect();
    assert_eq!(
        told,
        [
            ("str_replace", "# Plan\nport 1\nend\n"),
            ("insert", "# Plan\nport 7431\nend\n"),
            ("rename", "# Plan\nby Ann\nport 7431\nend\n"),
            ("delete", "# Plan\nby Ann\nport 7431\nend\n"),
        ]
    );
    assert!(block_on(memory.list_memory_tool_versions("/memories/never.md")).is_err());
    assert!(block_on(memory.list_memory_tool_versions("/memories")).is_err());
    assert!(block_on(memory.verify()).unwrap().ok);
}

// Secrets do not get in, not even in parts
#[test]
fn what_a_model_keeps_passes_the_gate_and_is_bounded() {
    let home = TestVault::new();
    let memory = home.at(MORNING);
    let key = format!("AKIA{}", "IOSFODNN7EXAMPLE");
    let answer = ask(
        &memory,
        &json!({"command": "create", "path": "/memories/a.md", "file_text": format!("the key is {key}\n")}),
    );
    assert!(!answer.is_error && answer.secrets.values().sum::<usize>() == 1, "{answer:?}");
    ask(
        &memory,
        &json!({"command": "create", "path": "/memories/b.md", "file_text": "the key is AKIA_HERE\n"}),
    );
    let answer = ask(
        &memory,
        &json!({"command": "str_replace", "path": "/memories/b.md", "old_str": "AKIA_HERE", "new_str": &key}),
    );
    assert!(!answer.is_error && !answer.content.contains(&key), "{answer:?}");
    for (path, text) in home.files() {
        assert!(!text.contains(&key), "{path}");
    }
    let long = "x".repeat(256 * 1024 + 1);
    let answer =
        ask(&memory, &json!({"command": "create", "path": "/memories/long.md", "file_text": long}));
    assert!(answer.is_error && answer.content.contains("a file may have 262144"), "{answer:?}");
    let answer = ask(
        &memory,
        &json!({"command": "create", "path": "/memories/null.md", "file_text": "a\0b"}),
    );
    assert!(answer.is_error, "{answer:?}");
    home.write("memory/tool/binary.bin", "");
    fs::write(home.root.join("memory/tool/binary.bin"), b"\xff\xfe").unwrap();
    wrong(
        &memory,
        json!({"command": "view", "path": "/memories/binary.bin"}),
        "Error: /memories/binary.bin is not a text",
    );
}

/// Everything below a folder: name, kind and content.
fn everything(folder: &Path, without: &[&Path]) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if without.contains(&path.as_path()) {
            continue;
        }
        let kind = entry.file_type().unwrap();
        if kind.is_symlink() {
            found.insert(format!(
                "{} -> {}",
                path.display(),
                fs::read_link(&path).unwrap().display()
            ));
        } else if kind.is_dir() {
            found.insert(format!("{}/", path.display()));
            found.extend(everything(&path, without));
        } else {
            found.insert(format!(
                "{} {}",
                path.display(),
                String::from_utf8_lossy(&fs::read(&path).unwrap())
            ));
        }
    }
    found
}

/// Known ways to name something outside of the model's own folder.
fn tricks(outside: &str) -> Vec<String> {
    let deep = "/memories/../../../../../../../..".to_owned();
    let mut tricks: Vec<String> = [
        "",
        "/",
        ".",
        "..",
        "memories",
        "memories/a.md",
        "./memories/a.md",
        "../memories/a.md",
        "//memories/a.md",
        "/memories//a.md",
        "/memories/./a.md",
        "/memories/..",
        "/memories/../memories",
        "/memories/../secret.md",
        "/memories/../ledger.jsonl",
        "/memories/x/../../secret.md",
        "/memories/../../icecore.toml",
        "/memories/..\\secret.md",
        "/memories\\..\\secret.md",
        "\\memories\\a.md",
        "/memories/..\\..\\icecore.toml",
        "/memories/%2e%2e/secret.md",
        "/memories/%2e%2e%2fsecret.md",
        "/memories/..%2fsecret.md",
        "/memories/%2E%2E%5Csecret.md",
        "/memories/%252e%252e/secret.md",
        "/memories/%c0%ae%c0%ae/secret.md",
        "/memories/..%c0%afsecret.md",
        "/memories/..;/secret.md",
        "/memories/....//secret.md",
        "/memories/.. /secret.md",
        "/memoriesX",
        "/memoriesX/a.md",
        "/memories.bak/a.md",
        "/memories-versions/2026-02.jsonl",
        "/Memories/a.md",
        "/MEMORIES/a.md",
        " /memories/a.md",
        "/memories /a.md",
        "~",
        "~/.ssh/id_rsa",
        "/memories/~",
        "/memories/~/secret.md",
        "/memories/~root/x",
        "$HOME/x",
        "/memories/$HOME/../x/../..",
        "file:///memories/a.md",
        "/memories/\u{0}",
        "/memories/a.md\u{0}.txt",
        "/memories/..\u{0}/secret.md",
        "/memories/a\nb",
        "/memories/a\rb",
        "/memories/\u{1b}[2Ja",
        "/memories/\t",
        "\\\\?\\C:\\memories\\a.md",
        "/memories/\\\\?\\x",
        "C:\\memories\\a.md",
        "C:/memories/a.md",
        "/memories/C:/x",
        "/memories/a.md:stream",
        "/memories/a.md::$DATA",
        "/memories/CON",
        "/memories/con.txt",
        "/memories/NUL",
        "/memories/aux.md",
        "/memories/COM1",
        "/memories/lpt9.txt",
        "/memories/x/PRN",
        "/memories/a.",
        "/memories/a ",
        "/memories/...",
        "/memories/.hidden",
        "/memories/.git/config",
        "/memories/x/.icecore/index.db",
        "/memories/.gitignore/..",
        "/memories/\u{202e}dm.a",
        "/memories/a\u{200f}b",
        "/memories/\u{2066}x",
        "/memories/\u{feff}a",
        "/memories/\u{e0041}a",
        "/memories/\u{2028}a",
        "/memories/\u{2024}\u{2024}/secret.md\u{202e}",
        "/memories/\u{ff0e}\u{ff0e}\u{202e}/x",
        "/memories/a*b",
        "/memories/a?b",
        "/memories/a|b",
        "/memories/<a>",
        "/memories/\"a\"",
        "/proc/self/environ",
        "/etc/passwd",
        "/dev/null",
        "/memories/../../../proc/self/environ",
        "/memories/link/canary.md",
        "/memories/link",
        "/memories/file-link",
        "/memories/loop/x",
        "/memories/up/memory/secret.md",
    ]
    .map(str::to_owned)
    .to_vec();
    tricks.push(outside.to_owned());
    tricks.push(format!("{deep}{outside}"));
    tricks.push(format!("/memories/{}{outside}", "../".repeat(30)));
    tricks.push(format!("/memories/{}", "x".repeat(256)));
    tricks.push(format!("/memories/{}", "x/".repeat(4_096)));
    tricks.push(format!("/memories/{}a", "x/".repeat(20)));
    tricks.push(format!("/memories/{}", "\u{e9}".repeat(200)));
    tricks
}

// Every trick in every field that takes a path
#[test]
fn no_path_leads_out_of_the_folder() {
    let home = TestVault::new();
    let above = home.root.parent().unwrap().to_owned();
    const CANARY: &str = "canary-7431-outside";
    home.write("memory/secret.md", CANARY);
    home.write("memory/tool/own.md", "own\n");
    let outside = above.join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("canary.md"), CANARY).unwrap();
    let tool = home.root.join("memory/tool");
    symlink(&outside, tool.join("link")).unwrap();
    symlink(home.root.join("memory/secret.md"), tool.join("file-link")).unwrap();
    symlink("loop", tool.join("loop")).unwrap();
    symlink("../..", tool.join("up")).unwrap();
    let memory = home.at(MORNING);
    let private = home.root.join(".icecore");
    let before = everything(&above, &[&private]);
    let mut asked = 0;
    for path in tricks(outside.join("canary.md").to_str().unwrap()) {
        for input in [
            json!({"command": "view", "path": path}),
            json!({"command": "create", "path": path, "file_text": "mine now"}),
            json!({"command": "str_replace", "path": path, "old_str": "canary", "new_str": "mine"}),
            json!({"command": "insert", "path": path, "insert_line": 0, "insert_text": "mine"}),
            json!({"command": "delete", "path": path}),
            json!({"command": "rename", "old_path": path, "new_path": "/memories/taken.md"}),
            json!({"command": "rename", "old_path": "/memories/own.md", "new_path": path}),
        ] {
            asked += 1;
            let answer = ask(&memory, &input);
            assert!(answer.is_error, "{input}: {answer:?}");
            assert!(!answer.content.contains(CANARY), "{input}: {answer:?}");
            assert!(
                answer.content.chars().all(|c| c == '\n' || c == '\t' || !c.is_control()),
                "{input}: {answer:?}"
            );
        }
    }
    assert!(asked >= 300, "{asked}");
    assert_eq!(everything(&above, &[&private]), before);
    // A file that another program put there is not visible.
    let seen = ask(&memory, &json!({"command": "view", "path": "/memories"})).content;
    assert_eq!(seen, format!("{LISTED}4B\t/memories\n4B\t/memories/own.md"));
    // The folder itself may not be a link either.
    fs::rename(&tool, above.join("elsewhere")).unwrap();
    symlink(&outside, &tool).unwrap();
    for input in [
        json!({"command": "view", "path": "/memories"}),
        json!({"command": "view", "path": "/memories/canary.md"}),
        json!({"command": "create", "path": "/memories/new.md", "file_text": "x"}),
        json!({"command": "delete", "path": "/memories/canary.md"}),
    ] {
        let answer = ask(&memory, &input);
        assert!(answer.is_error && !answer.content.contains("canary-"), "{input}: {answer:?}");
    }
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
}
