//! Forgetting, proven from outside: canaries through every entry path, summarized, stored in
//! snapshots, forgotten, and searched for in every byte that is left.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::faults::{Reply, Server, good};
use crate::program::{CommandOutput, Vault, command_output, copy};

/// The prefix of every canary, and of nothing else.
const MARK: &str = "zqcanary";
const CANARIES: usize = 50;
/// Long ago, so that the clock of any machine is later.
const TUESDAY: &str = "2024-02-13T09:30:00+01:00";

fn canary(number: usize) -> String {
    format!("{MARK}{number:02} velvet umbrella{number:02}")
}

/// Text next to a canary that has nothing to do with it.
fn control(number: usize) -> String {
    format!("plainword{number:02}")
}

/// Two lines, of which only the first is forgotten.
fn lines(number: usize) -> String {
    format!("We said {} then.\nThe {} stays for good.", canary(number), control(number))
}

/// Every file below a folder, with its name.
fn files(root: &Path) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap().flatten() {
            match entry.file_type().unwrap().is_dir() {
                true => folders.push(entry.path()),
                false => found.push((
                    entry.path().strip_prefix(root).unwrap().display().to_string(),
                    fs::read(entry.path()).unwrap(),
                )),
            }
        }
    }
    found
}

fn has(bytes: &[u8], wanted: &str) -> bool {
    let wanted = wanted.as_bytes();
    bytes.windows(wanted.len()).any(|piece| piece.eq_ignore_ascii_case(wanted))
}

fn git(vault: &Vault, arguments: &[&str]) -> Vec<u8> {
    let output = Command::new("git").arg("-C").arg(&vault.root).args(arguments).output().unwrap();
    assert!(
        output.status.success(),
        "git {arguments:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    output.stdout
}

/// Where a text occurs: in the bytes of files and databases, in their names, and in every object of
/// git.
fn places_of(vault: &Vault, wanted: &str) -> Vec<String> {
    let mut found: Vec<String> = files(&vault.root)
        .into_iter()
        .filter(|(path, bytes)| has(path.as_bytes(), wanted) || has(bytes, wanted))
        .map(|(path, _)| path)
        .collect();
    if has(&git(vault, &["cat-file", "--batch-all-objects", "--batch", "--unordered"]), wanted) {
        found.push("an object of git".into());
    }
    // Again without what is between letters: a text may be spaced out, emphasised or escaped.
    let bare = |bytes: &[u8]| -> Vec<u8> {
        bytes.iter().copied().filter(u8::is_ascii_alphanumeric).collect()
    };
    found.extend(
        files(&vault.root)
            .into_iter()
            .filter(|(path, bytes)| !path.starts_with(".git/") && has(&bare(bytes), wanted))
            .map(|(path, _)| path),
    );
    found
}

/// The model: it chats, and it summarizes verbatim.
fn model(question: &Value, _: usize) -> Reply {
    if question["response_format"].is_null() {
        let code = (0..8)
            .map(|line| {
                format!(
                    "step_{line} = {line}  # {}",
                    if line == 3 { canary(30) } else { control(30) }
                )
            })
            .collect::<Vec<_>>();
        return Reply::Says(format!(
            "Here it is, {}.\n\nAnd {}.\n\n```python\n# plan.py\n{}\n```\n",
            canary(31),
            control(31),
            code.join("\n")
        ));
    }
    Reply::Says(good(question).to_string())
}

fn ask(vault: &Vault, server: &Server, arguments: &[&str]) -> CommandOutput {
    let mut command = vault.command(arguments);
    with_model(&mut command, server);
    let said = command_output(command.output().unwrap());
    assert_eq!(said.code, Some(0), "{arguments:?}: {said:?}");
    said
}

fn with_model(command: &mut Command, server: &Server) {
    for section in ["SUMMARIZER", "CHAT"] {
        command
            .env(format!("ICECORE_{section}_BASE_URL"), format!("http://{}/v1", server.address))
            .env(format!("ICECORE_{section}_MODEL"), "tiny")
            .env(format!("ICECORE_{section}_TIMEOUT_SECS"), "30");
    }
}

/// Chats for a turn, at the real time.
fn chat(vault: &Vault, server: &Server, words: &str) {
    let mut command = crate::program::bare(crate::program::program());
    command.args([
        "--vault",
        vault.root.to_str().unwrap(),
        "chat",
        "--conversation",
        "trip",
        words,
    ]);
    with_model(&mut command, server);
    let said = command_output(command.output().unwrap());
    assert_eq!(said.code, Some(0), "{said:?}");
}

fn import_file(folder: &Path) -> String {
    let line = |number: usize, more: Value| {
        let mut line = json!({ "ts": format!("2024-02-13T08:{number:02}:00+01:00"), "conversation": "old", "text": lines(number) });
        line.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        line.to_string()
    };
    let inner = json!({ "note": canary(7), "kept": control(7) }).to_string();
    let text = [
        line(5, json!({ "id": "m5" })),
        line(6, json!({ "role": canary(6) })),
        line(7, json!({ "parts": [{ "arguments": inner }] })),
        line(8, json!({ "about": { canary(8): 1 }, "text": control(8) })),
        line(9, json!({ "session": canary(9), "text": control(9) })),
        // In capitals, with gaps, and by its own id.
        line(
            47,
            json!({ "text": format!("{}\n{}", canary(47).to_uppercase().replace(' ', "\n\n   "), control(47)) }),
        ),
        line(46, json!({ "id": canary(46), "text": control(46) })),
    ];
    let place = folder.join("old.jsonl");
    fs::write(&place, text.join("\n")).unwrap();
    place.to_str().unwrap().to_owned()
}

/// Plants fifty canaries, each next to text that must stay.
fn plant(vault: &mut Vault, server: &Server, folder: &Path) -> String {
    let told = |number: usize| format!("{} is about {}", canary(number), control(number));
    vault.at(TUESDAY);
    // Messages: in the text, the parts, the name and the session.
    vault.ok(&["message", "add", &lines(0), "--conversation", "app", "--session", "s1"]);
    vault.ok(&[
        "message",
        "add",
        &lines(1),
        "--role",
        "assistant",
        "--conversation",
        "app",
        "--session",
        "s1",
    ]);
    vault.ok(&[
        "message",
        "add",
        &control(2),
        "--conversation",
        "app",
        "--session",
        "s1",
        "--parts",
        &json!([{ "text": lines(2) }, 7]).to_string(),
    ]);
    vault.ok(&[
        "message",
        "add",
        &control(3),
        "--conversation",
        "app",
        "--session",
        "s1",
        "--name",
        &canary(3),
    ]);
    vault.ok(&[
        "message",
        "add",
        &lines(4),
        "--role",
        "tool",
        "--conversation",
        "app",
        "--session",
        "s2",
    ]);
    let import = import_file(folder);
    vault.ok(&["import", &import]);
    // A transcript.
    let talk: String = (10..15)
        .map(|number| format!("user: {}\n\nassistant: {}\n\n", lines(number), control(number)))
        .collect();
    assert_eq!(
        vault
            .feed(
                &["session", "add", "-", "--conversation", "shop", "--session", "talk"],
                talk.as_bytes()
            )
            .code,
        Some(0)
    );
    // The ledger: content, entity, tags, waiting-on, notes.
    vault.remember(&[
        &format!("Decided that {}", told(15)),
        "--entity",
        "apollo",
        "--priority",
        "P0",
    ]);
    vault.remember(&[&control(16), "--entity", &canary(16)]);
    vault.remember(&[&control(17), "--tag", &canary(17)]);
    vault.remember(&[&control(18), "--type", "commitment", "--waiting-on", &canary(18)]);
    let offer = vault.remember(&[&format!("Send the {}", control(19)), "--type", "commitment"]);
    vault.ok(&["close", &offer, "--note", &canary(19)]);
    let wrong = vault.remember(&[&format!("It is {}", canary(20)), "--type", "fact"]);
    vault.ok(&["retract", &wrong]);
    vault.remember(&[&format!("apollo {}", control(20)), "--entity", "apollo"]);
    // The log, by command and by hand.
    vault.ok(&["log", &lines(21)]);
    let log = vault.read("memory/2024-02-13.md");
    vault.write(
        "memory/2024-02-13.md",
        format!(
            "{log}\n{}\n\n## Priority Extracts\n- [P1] {}\n- [P1] The {} extract\n",
            lines(22),
            told(23),
            control(23)
        ),
    );
    vault.ok(&["status"]);
    // States.
    for (number, at) in [(24, "T10:00:00+01:00"), (25, "T11:00:00+01:00")] {
        vault.at(&format!("2024-02-13{at}"));
        let title = if number == 25 { canary(25) } else { control(24) };
        assert_eq!(
            vault.feed(&["save-state", "-", "--title", &title], lines(number).as_bytes()).code,
            Some(0)
        );
    }
    // A person's own files.
    vault.write("SOUL.md", lines(26));
    fs::create_dir_all(vault.path("recall")).unwrap();
    vault.write(
        "recall/triggers.json",
        json!({ "triggers": [{ "words": [canary(27), control(27)], "pages": ["knowledge/entities/apollo.md"] }] }).to_string(),
    );
    // Quarantined bytes of a torn line.
    let ledger = vault.read("memory/ledger.jsonl");
    vault.write("memory/ledger.jsonl", format!("{ledger}{{\"id\":\"EVT-2024 {}", canary(28)));
    assert!(vault.run(&["status"]).err.contains("moved to quarantine"));
    vault.at(TUESDAY);
    vault.remember(&[&format!("For a month: {}", told(29)), "--priority", "P3", "--type", "fact"]);
    // More of the ledger, so that there are pages with content.
    for number in 32..40 {
        vault.remember(&[
            &format!("We prefer {}", told(number)),
            "--entity",
            "apollo",
            "--type",
            "preference",
            "--priority",
            "P1",
        ]);
        vault.remember(&[
            &format!("We prefer {} always", control(number)),
            "--entity",
            "apollo",
            "--type",
            "preference",
            "--priority",
            "P1",
        ]);
    }
    // Days and weeks are summarized by the model, whose answers are cached; then the month, and the
    // event expires.
    vault.at("2024-02-19T06:00:00+01:00");
    ask(vault, server, &["consolidate"]);
    vault.ok(&["snapshot", "--note", &format!("about {}", canary(40))]);
    // By hand: a page, a memory, a primer.
    let page = "knowledge/entities/apollo.md";
    let text = vault.read(page);
    assert!(text.contains(MARK), "{text}");
    let at = text.find("- ").unwrap();
    vault.write(
        page,
        format!("{}- {}\n- {} by hand\n{}", &text[..at], told(41), control(41), &text[at..]),
    );
    fs::create_dir_all(vault.path("memory/memories")).unwrap();
    vault.write("memory/memories/by-hand.md", format!("{}\n", told(42)));
    let primer = "primers/daily/2024-02-13.md";
    let text = vault.read(primer);
    assert!(!text.is_empty());
    vault.write(primer, format!("{text}\n- {}\n- {} was added\n", canary(43), control(43)));
    vault.at("2024-03-20T06:00:00+01:00");
    ask(vault, server, &["consolidate"]);
    ask(vault, server, &["prune"]);
    vault.write(
        "memory/review.jsonl",
        format!("{}\n", json!({ "ts": TUESDAY, "period": "2024-02-13", "source": "0".repeat(64), "state": "open", "complaint": "x", "headline": canary(44), "body": control(44) })),
    );
    vault.ok(&["snapshot", "--note", "all of it"]);
    // Chats, at the real time: a turn, code, a long text.
    chat(vault, server, &format!("Please plan {} for me, and mind {}", canary(45), control(45)));
    chat(
        vault,
        server,
        &format!("{} {}", "Some prose about nothing much.\n".repeat(400), lines(48)),
    );
    vault.ok(&[
        "message",
        "add",
        &format!("中文 {}\n{}", canary(49), control(49)),
        "--conversation",
        "app",
    ]);
    // Search results and packs of all of it.
    vault.ok(&["search", "umbrella"]);
    vault.ok(&["pack", "upload"]);
    vault.ok(&["snapshot"]);
    import
}

// Fifty canaries through all entry paths, summarized, forgotten; no file, database page or git
// object contains any
#[test]
fn fifty_canaries_are_forgotten_everywhere() {
    let server = Server::play(model);
    let folder = tempfile::TempDir::new().unwrap();
    let mut vault = Vault::new();
    let import = plant(&mut vault, &server, folder.path());
    let planted: Vec<usize> = (0..CANARIES)
        .filter(|number| places_of(&vault, &format!("{MARK}{number:02}")).is_empty())
        .collect();
    assert_eq!(planted, Vec::<usize>::new(), "these canaries were not kept at all");
    for place in [
        ".icecore/answers",
        ".icecore/quarantine",
        ".icecore/index.db",
        ".icecore/search.db",
        "memory/summaries.jsonl",
        "knowledge/",
        "memory/memories",
        "conversations/",
        "primers/",
        "recall/",
        "memory/archive/",
        "memory/snapshots/",
        "an object of git",
    ] {
        assert!(
            places_of(&vault, MARK).iter().any(|path| path.starts_with(place)),
            "no canary in {place}"
        );
    }
    assert_eq!(vault.run(&["verify"]).code, Some(0));
    let kept = folder.path().join("backup");
    copy(&vault.root, &kept);

    let words: Vec<String> = (0..CANARIES).map(canary).collect();
    let all: Vec<&str> = ["forget"]
        .into_iter()
        .chain(words.iter().flat_map(|words| ["--matching", words]))
        .collect();
    let would = vault.json(&[&all[..], &["--dry-run"]].concat());
    assert!(
        would["records"].as_u64().unwrap() > 15 && would["events"].as_array().unwrap().len() > 15,
        "{would}"
    );
    assert!(
        !would.to_string().contains(MARK) || would["places"].to_string().contains(MARK),
        "{would}"
    );
    assert_eq!(vault.run(&all).code, Some(2), "it is not done unasked");
    assert!(!places_of(&vault, MARK).is_empty());

    // Without --history: gone from the files, and the receipt names where it still is.
    let forgot =
        ask(&vault, &server, &[&all[..], &["--yes", "--reason", "a proof", "--json"]].concat())
            .json();
    assert!(forgot["snapshots"][0].as_u64().unwrap() >= 2, "{forgot}");
    assert!(!forgot["pressed"].as_array().unwrap().is_empty(), "{forgot}");
    let left: Vec<String> = places_of(&vault, MARK)
        .into_iter()
        .filter(|path| !path.starts_with(".git/") && path != "an object of git")
        .collect();
    assert_eq!(left, Vec::<String>::new());
    let verified = vault.run(&["verify"]);
    assert_eq!(verified.code, Some(0), "{verified:?}");
    // Restoring a snapshot does not bring it back, nor does a repair.
    vault.ok(&["doctor", "--fix"]);
    let left = |vault: &Vault| {
        places_of(vault, MARK)
            .into_iter()
            .filter(|path| !path.starts_with(".git/") && path != "an object of git")
            .collect::<Vec<_>>()
    };
    assert_eq!(left(&vault), Vec::<String>::new());

    // With it: from every snapshot.
    let forgot =
        ask(&vault, &server, &[&all[..], &["--yes", "--history", "--json"]].concat()).json();
    assert!(forgot["rewritten"][1].as_u64().unwrap() > 0, "{forgot}");
    vault.ok(&["search", "plainword"]);
    vault.ok(&["pack", "upload"]);
    assert_eq!(places_of(&vault, MARK), Vec::<String>::new());
    assert_eq!(places_of(&vault, "velvet umbrella"), Vec::<String>::new());
    let verified = vault.run(&["verify"]);
    assert_eq!(verified.code, Some(0), "{verified:?}");
    git(&vault, &["fsck", "--strict"]);

    // Everything unrelated is still there.
    let text: Vec<u8> = files(&vault.root)
        .into_iter()
        .filter(|(path, _)| !path.starts_with(".icecore/") && !path.starts_with(".git/"))
        .flat_map(|(_, bytes)| bytes)
        .collect();
    let lost: Vec<usize> = [
        0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 20, 21, 22, 23, 24, 26, 27, 30, 32, 33,
        38, 41, 46, 47, 48, 49,
    ]
    .into_iter()
    .filter(|number| !has(&text, &control(*number)))
    .collect();
    assert_eq!(lost, Vec::<usize>::new(), "these words were not to go");

    // A later import does not bring it back, and no other entry path does; nothing is stored twice.
    let again = vault.json(&["import", &import, "--again"])["taken"].take();
    assert_eq!(
        (again["new"].as_u64(), again["forgotten"].as_u64().map(|many| many >= 5)),
        (Some(0), Some(true)),
        "{again}"
    );
    assert_eq!(vault.run(&["remember", &canary(15)]).code, Some(2));
    assert_eq!(vault.run(&["log", &canary(21)]).code, Some(2));
    vault.feed(&["save-state", "-"], lines(24).as_bytes());
    vault.ok(&["message", "add", &lines(0), "--conversation", "new"]);
    let log = vault.read("memory/2024-02-13.md");
    vault.write(
        "memory/2024-02-13.md",
        log.replace(
            "## Priority Extracts\n",
            &format!("## Priority Extracts\n- [P1] {}\n", canary(23)),
        ),
    );
    vault.ok(&["vault", "reindex", "--words"]);
    let left = places_of(&vault, MARK);
    // The line written by hand stays where it is; only search has read it.
    assert!(
        left.iter()
            .all(|path| path == "memory/2024-02-13.md" || path.starts_with(".icecore/search.db")),
        "{left:?}"
    );
    let nothing = vault.json(&[&all[..], &["--yes"]].concat());
    assert!(places_of(&vault, MARK).is_empty(), "{nothing}");

    // A repetition does nothing.
    let before: BTreeSet<(String, Vec<u8>)> = files(&vault.root)
        .into_iter()
        .filter(|(path, _)| path.starts_with("memory/") || path.starts_with("knowledge/"))
        .collect();
    let nothing = vault.json(&[&all[..], &["--yes"]].concat());
    assert!(
        nothing["tombstone"].is_null() && nothing["places"].as_array().unwrap().is_empty(),
        "{nothing}"
    );
    let after: BTreeSet<(String, Vec<u8>)> = files(&vault.root)
        .into_iter()
        .filter(|(path, _)| path.starts_with("memory/") || path.starts_with("knowledge/"))
        .collect();
    assert!(before == after);

    // An old backup with the tombstones added forgets again.
    fs::copy(vault.path("memory/forgotten.jsonl"), kept.join("memory/forgotten.jsonl")).unwrap();
    let text = fs::read_to_string(kept.join("memory/forgotten.jsonl")).unwrap();
    let begun: String = text
        .lines()
        .filter(|line| !line.contains("\"done\""))
        .map(|line| format!("{line}\n"))
        .collect();
    fs::write(kept.join("memory/forgotten.jsonl"), begun).unwrap();
    let mut restored = crate::program::bare(crate::program::program());
    restored.args([
        "--vault",
        kept.to_str().unwrap(),
        "--now",
        &vault.now,
        "forget",
        "--unfinished",
        "--history",
        "--yes",
        "--json",
    ]);
    let output = command_output(restored.output().unwrap());
    assert_eq!(output.code, Some(0), "{output:?}");
    let left: Vec<String> = files(&kept)
        .into_iter()
        .filter(|(path, bytes)| has(path.as_bytes(), MARK) || has(bytes, MARK))
        .map(|(path, _)| path)
        .collect();
    assert_eq!(left, Vec::<String>::new());
}

#[test]
fn what_a_person_writes_again_is_taken_out_before_a_snapshot_has_it() {
    let mut vault = Vault::new();
    vault.at(TUESDAY);
    let words = "The purple walrus sleeps in the attic";
    vault.remember(&[words, "--entity", "walrus"]);
    vault.remember(&["The port is 7431", "--entity", "api"]);
    vault.ok(&["consolidate"]);
    vault.ok(&["forget", "--matching", "purple walrus", "--history", "--yes"]);
    let edit = |place: &str, more: &str| {
        let file = vault.root.join(place);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, format!("{}{more}", fs::read_to_string(&file).unwrap_or_default()))
            .unwrap();
    };
    // In a log of today and one of long ago, on the page of the entity, and on another; in any
    // spelling.
    edit("memory/2024-02-13.md", &format!("\n- {words}\n- bread was bought\n"));
    edit(
        "memory/2023-06-01.md",
        "\n- purple&nbsp;walrus\n- <b>purple</b> walrus\n- see https://example.com/purple%20walrus\n- milk was bought\n",
    );
    edit("knowledge/entities/walrus.md", &format!("# Walrus\n\n## Facts\n\n- {words}\n"));
    edit("knowledge/entities/api.md", "\n- the PURPLE   walrus knows the port\n");
    vault.ok(&["snapshot"]);
    assert_eq!(places_of(&vault, "purple walrus"), Vec::<String>::new());
    for spelling in ["purple&nbsp;walrus", "<b>purple</b>", "purple%20walrus", "PURPLE   walrus"] {
        assert_eq!(places_of(&vault, spelling), Vec::<String>::new(), "{spelling}");
    }
    assert!(
        vault.read("memory/2024-02-13.md").contains("bread was bought")
            && vault.read("memory/2024-02-13.md").contains("[forgotten]")
    );
    assert!(vault.read("memory/2023-06-01.md").contains("milk was bought"));
    assert_eq!(vault.run(&["verify"]).code, Some(0));
    // Other words that only share letters stay.
    edit("memory/2024-02-13.md", "- purplewalrus is one word\n- p u r p l e  w a l r u s\n");
    vault.ok(&["consolidate"]);
    assert!(vault.read("memory/2024-02-13.md").contains("purplewalrus is one word"));
}

#[test]
fn an_event_goes_with_its_words_and_what_it_was_learnt_from() {
    let mut vault = Vault::new();
    vault.at(TUESDAY);
    let secret = "The spare key lies under the third stone";
    vault.ok(&[
        "message",
        "add",
        &format!("Hello.\n{secret}.\nBye."),
        "--conversation",
        "app",
        "--id",
        "m1",
    ]);
    vault.ok(&[
        "message",
        "add",
        "Tea at five is a habit of ours",
        "--conversation",
        "app",
        "--id",
        "m2",
    ]);
    let event = vault.remember(&[secret, "--entity", "house"]);
    let short = vault.remember(&["Tea, green"]);
    vault.ok(&["rollup", "session", "--period", "2024-02-13"]);
    vault.ok(&["snapshot"]);
    let forgot = vault.json(&["forget", &event, "--yes", "--reason", "asked"]);
    assert_eq!(
        (forgot["records"].as_u64(), &forgot["pressed"]),
        (Some(1), &json!(["2024-02-13_session_01"])),
        "{forgot}"
    );
    // Undoing to a state before the forgetting restores nothing of it.
    vault.ok(&["undo"]);
    assert!(!vault.ok(&["events"]).contains("[forgotten]"));
    let forgot = vault.json(&["forget", &event, "--history", "--yes"]);
    assert!(forgot["rewritten"][1].as_u64() > Some(0), "{forgot}");
    assert!(places_of(&vault, "third stone").is_empty());
    assert!(vault.read("memory/messages/2024-02-13.jsonl").contains("Hello.\\n[forgotten]\\nBye."));
    let shown = vault.json(&["show", &event]);
    assert_eq!(
        (
            shown["entry"]["content"].as_str().or(shown["event"]["content"].as_str()),
            shown.to_string().contains("retracted")
        ),
        (Some("[forgotten]"), true),
        "{shown}"
    );
    // A tombstone says when, who and why, without the text.
    let stone: Value =
        serde_json::from_str(vault.read("memory/forgotten.jsonl").lines().next().unwrap()).unwrap();
    assert_eq!(
        (stone["reason"].as_str(), stone["by"].as_str(), stone["events"][0].as_str()),
        (Some("asked"), Some("command line"), Some(event.as_str()))
    );
    // A text of few words is forgotten by its id alone, and the report says so.
    let forgot = vault.json(&["forget", &short, "--yes"]);
    assert_eq!(forgot["by_id_only"][0].as_str(), Some(short.as_str()), "{forgot}");
    assert!(vault.read("memory/messages/2024-02-13.jsonl").contains("Tea at five"));
    // A record by its id, and a conversation by its name.
    vault.json(&["forget", "m2", "--history", "--yes"]);
    assert!(places_of(&vault, "Tea at five").is_empty());
    vault.ok(&[
        "message",
        "add",
        "Tea at five is a habit of ours",
        "--conversation",
        "app",
        "--id",
        "m2",
    ]);
    assert!(places_of(&vault, "Tea at five").is_empty(), "it came back");
    vault.json(&["forget", "conversation/app", "--yes"]);
    assert!(!vault.read("memory/messages/2024-02-13.jsonl").contains("\"app\""));
    assert_eq!(vault.run(&["verify"]).code, Some(0));
    for (arguments, code, complaint) in [
        (&["forget", "EVT-20240213-999", "--yes"][..], 3, "there is no event"),
        (&["forget", "nonsense", "--yes"], 3, "there is no event, record or memory"),
        (&["forget", "conversation/none", "--yes"], 3, "there is no conversation"),
        (&["forget", "--matching", "ab", "--yes"], 2, "too short"),
        (&["forget", &event], 2, "--yes"),
        (&["forget"], 2, "required"),
    ] {
        let said = vault.run(arguments);
        assert!(said.code == Some(code) && said.err.contains(complaint), "{arguments:?}: {said:?}");
    }
}

// A run that died is detected and finished
#[test]
fn what_was_cut_short_is_noticed_and_finished() {
    let mut vault = Vault::new();
    vault.at(TUESDAY);
    vault.ok(&["message", "add", &lines(1), "--conversation", "app"]);
    vault.remember(&[&format!("It is {}", canary(1))]);
    let whole = tempfile::TempDir::new().unwrap();
    copy(&vault.root, &whole.path().join("vault"));
    vault.json(&["forget", "--matching", &canary(1), "--yes"]);
    let stones: String = vault
        .read("memory/forgotten.jsonl")
        .lines()
        .filter(|line| !line.contains("\"done\""))
        .map(|line| format!("{line}\n"))
        .collect();
    // As if it had died right after the tombstone.
    fs::remove_dir_all(&vault.root).unwrap();
    copy(&whole.path().join("vault"), &vault.root);
    vault.write("memory/forgotten.jsonl", stones);
    let verified = vault.run(&["verify"]);
    assert!(
        verified.code == Some(6) && verified.out.contains("forget --unfinished"),
        "{verified:?}"
    );
    vault.json(&["forget", "--unfinished", "--yes"]);
    assert!(places_of(&vault, MARK).is_empty());
    assert_eq!(vault.run(&["verify"]).code, Some(0));
}

/// Kills `forget --history` while it replaces the old history by the new one, and lets four
/// commands finish it.
#[test]
fn a_forgotten_past_that_was_cut_short_is_finished() {
    const SECRET: &str = "heron four eleven opens the gate";
    let golden = Vault::new();
    golden.remember(&[SECRET]);
    golden.ok(&["snapshot"]);
    golden.remember(&["The boat is green"]);
    golden.ok(&["snapshot"]);
    fs::create_dir_all(golden.path(".git/hooks")).unwrap();
    golden.write(".git/hooks/post-commit", "mine\n");
    let command = ["forget", "--matching", SECRET, "--history", "--yes"];
    let ways: [&[&str]; 4] =
        [&command, &["forget", "--unfinished", "--yes"], &["doctor", "--fix"], &["consolidate"]];
    // Before and after the swap of the two; what is deleted then is the old history.
    for (call, when, is_exchanged) in [("renameat2", "1", false), ("unlinkat", "30", true)] {
        for way in ways {
            let folder = tempfile::TempDir::new().unwrap();
            let vault = Vault::at_root(folder.path().join("vault"));
            copy(&golden.root, &vault.root);
            let mut killed = crate::program::bare("strace");
            killed.args(["-f", "-qq", "-o", "/dev/null", "-e", &format!("trace={call}")]);
            killed.args([
                "-e",
                &format!("inject={call}:signal=SIGKILL:when={when}"),
                crate::program::program(),
            ]);
            killed
                .args(["--vault", vault.root.to_str().unwrap(), "--now", &vault.now])
                .args(command);
            let killed = command_output(killed.output().unwrap());
            assert_ne!(killed.code, Some(0), "{call}: {killed:?}");
            assert!(
                vault.path(".git/info/attributes").exists()
                    && vault.path(".git/hooks/post-commit").exists(),
                "{call}"
            );
            let verified = vault.run(&["verify"]);
            assert_eq!(verified.code, Some(6), "{call}: {verified:?}");
            assert!(verified.out.contains("icecore forget --unfinished"), "{call}: {verified:?}");
            if !is_exchanged {
                vault.ok(&["snapshot"]);
            }
            vault.ok(way);
            vault.ok(&["verify"]);
            assert!(
                places_of(&vault, SECRET).is_empty(),
                "{call} {way:?}: {:?}",
                places_of(&vault, SECRET)
            );
            assert!(!vault.path(".icecore/new-repository").exists(), "{call} {way:?}");
            assert_eq!(vault.read(".git/hooks/post-commit"), "mine\n");
            assert!(vault.read(".git/info/attributes").contains("merge=icecore"));
            assert!(vault.contents().iter().any(|content| content == "The boat is green"));
        }
    }
}

// Pending and injected items of hooks, memories of the memory tool, and imported histories of other
// programs
#[test]
fn the_newer_doors_are_forgotten_through_as_well() {
    let mut vault = Vault::new();
    vault.at(TUESDAY);
    let folder = tempfile::TempDir::new().unwrap();
    let session = |event: &str, more: Value| {
        let mut fields =
            json!({ "session_id": "s1", "cwd": folder.path(), "hook_event_name": event });
        fields.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        fields.to_string()
    };
    // Injected by a hook and in the list of injections; received by one; and waiting to be written.
    vault.remember(&[&format!("The lantern rule: {}", canary(0)), "--priority", "P0"]);
    let given = vault.feed(
        &["hook", "session-start"],
        session("SessionStart", json!({ "source": "startup" })).as_bytes(),
    );
    assert!(given.out.contains(MARK), "{given:?}");
    vault.feed(
        &["hook", "user-prompt-submit"],
        session("UserPromptSubmit", json!({ "prompt": lines(1) })).as_bytes(),
    );
    let summary = format!("We talked of {}.", canary(2));
    vault.feed(
        &["hook", "post-compact"],
        session("PostCompact", json!({ "trigger": "auto", "compact_summary": summary })).as_bytes(),
    );
    {
        let held = fs::File::create(vault.path(".icecore/lock")).unwrap();
        held.lock().unwrap();
        vault.feed(
            &["hook", "stop"],
            session("Stop", json!({ "last_assistant_message": lines(3) })).as_bytes(),
        );
    }
    assert!(
        places_of(&vault, &format!("{MARK}03"))
            .iter()
            .any(|path| path.starts_with(".icecore/notes/hooks/")),
        "{:?}",
        places_of(&vault, &format!("{MARK}03"))
    );
    // By the memory tool: in the text, in a name, in the previous content of a file.
    let tool = |input: Value| {
        let said = vault.feed(&["memory-tool"], input.to_string().as_bytes());
        assert_eq!(said.code, Some(0), "{said:?}");
    };
    tool(json!({ "command": "create", "path": "/memories/a.md", "file_text": lines(4) }));
    tool(json!({ "command": "create", "path": "/memories/b.md", "file_text": lines(5) }));
    tool(
        json!({ "command": "str_replace", "path": "/memories/b.md", "old_str": canary(5), "new_str": "nothing" }),
    );
    tool(
        json!({ "command": "create", "path": format!("/memories/{}.md", canary(6)), "file_text": control(6) }),
    );
    // Other programs' histories.
    let put = |name: &str, value: Value| {
        let place = folder.path().join(name);
        fs::write(&place, value.to_string()).unwrap();
        place.to_str().unwrap().to_owned()
    };
    let mem0 = json!({ "results": [{ "id": "f1", "memory": format!("Ann likes {}", canary(7)), "hash": "x", "created_at": "2024-01-05T10:00:00-08:00" }] });
    let chatgpt = json!([{ "id": "c1", "title": canary(8), "create_time": 1_700_000_000.0, "current_node": "n1", "mapping": {
        "n0": { "id": "n0", "message": null, "parent": null, "children": ["n1"] },
        "n1": { "id": "n1", "parent": "n0", "children": [], "message": { "id": "n1", "author": { "role": "user" }, "create_time": 1_700_000_000.0, "content": { "content_type": "text", "parts": [lines(9)] } } } } }]);
    let claude_ai = json!([{ "uuid": "c2", "name": canary(10), "summary": "", "created_at": "2024-01-06T09:00:00.000000Z", "updated_at": "2024-01-06T09:01:00.000000Z", "chat_messages": [
        { "uuid": "m1", "sender": "human", "text": lines(11), "content": [{ "type": "text", "text": lines(11) }], "created_at": "2024-01-06T09:00:00.000000Z",
          "attachments": [{ "file_name": format!("{}.txt", canary(12)), "file_size": 12, "file_type": "txt", "extracted_content": lines(13) }], "files": [{ "file_name": "b.png" }] },
        { "uuid": "m2", "sender": "assistant", "text": "", "content": [{ "type": "thinking", "thinking": canary(14) }, { "type": "text", "text": lines(14) }], "created_at": "2024-01-06T09:00:03.000000Z" }] }]);
    let rows = |rows: &[Value]| rows.iter().map(|row| format!("{row}\n")).collect::<String>();
    let text = |name: &str, text: String| {
        let place = folder.path().join(name);
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        fs::write(&place, text).unwrap();
        place.to_str().unwrap().to_owned()
    };
    let graph = rows(&[
        json!({ "type": "entity", "name": "Ann", "entityType": "person", "observations": [format!("Ann keeps {}", canary(15)), format!("Ann keeps {}", control(15))] }),
        json!({ "type": "entity", "name": canary(16), "entityType": "thing", "observations": [format!("It is {}", control(16))] }),
        json!({ "type": "relation", "from": "Ann", "to": canary(16), "relationType": "owns" }),
    ]);
    let at = "2024-01-07T09:00:00.000Z";
    let spoken = |role: &str, kind: &str, said: &str| json!({ "timestamp": at, "type": "response_item", "payload": { "type": "message", "role": role, "content": [{ "type": kind, "text": said }] } });
    let rollout = rows(&[
        json!({ "timestamp": at, "type": "session_meta", "payload": { "session_id": "t1", "id": "t1", "timestamp": at, "cwd": folder.path(), "originator": "codex_cli", "cli_version": "0.140.0", "source": "cli" } }),
        spoken("user", "input_text", &lines(17)),
        json!({ "timestamp": at, "type": "response_item", "payload": { "type": "function_call", "name": "shell", "arguments": canary(18), "call_id": "c1" } }),
        spoken("assistant", "output_text", &lines(18)),
    ]);
    let transcript = |session: &str, side: bool, said: &str| {
        let line = json!({ "type": "user", "uuid": format!("{session}{side}"), "sessionId": session, "timestamp": at, "cwd": folder.path(), "isSidechain": side, "agentId": if side { json!("x9") } else { Value::Null }, "message": { "role": "user", "content": said } });
        format!("{line}\n")
    };
    text("projects/-app/s7.jsonl", transcript("s7", false, &lines(20)));
    text("projects/-app/s7/subagents/agent-x9.jsonl", transcript("s7", true, &lines(21)));
    text(&format!("notes/{}.md", canary(22)), format!("# A note\n\n{}\n", control(22)));
    let imports = [
        ("mem0", put("mem0.json", mem0)),
        ("chatgpt", put("conversations.json", chatgpt)),
        ("claude-ai", put("claude.json", claude_ai)),
        ("mcp-memory", text("memory.jsonl", graph)),
        ("codex", text("sessions/rollout-2024-01-07T09-00-00-t1.jsonl", rollout)),
        ("claude-code", folder.path().join("projects").to_str().unwrap().to_owned()),
        (
            "markdown",
            Path::new(&text(
                "notes/a.md",
                format!("# Notes of {}\n\n{}\n", control(19), lines(19)),
            ))
            .parent()
            .unwrap()
            .to_str()
            .unwrap()
            .to_owned(),
        ),
    ];
    for (format, place) in &imports {
        let report = vault.json(&["import", place, "--format", format]);
        assert_eq!(report["broken"], 0, "{format}: {report}");
    }
    vault.at("2024-02-19T06:00:00+01:00");
    vault.ok(&["consolidate"]);
    vault.ok(&["snapshot"]);
    // The assistant's thinking, tool calls and files are not imported; everything else is.
    let missing: Vec<usize> = (0..23)
        .filter(|number| places_of(&vault, &format!("{MARK}{number:02}")).is_empty())
        .collect();
    assert_eq!(missing, Vec::<usize>::new(), "these were not kept at all");

    let words: Vec<String> = (0..23).map(canary).collect();
    let all: Vec<&str> = ["forget", "--history", "--yes"]
        .into_iter()
        .chain(words.iter().flat_map(|words| ["--matching", words]))
        .collect();
    vault.ok(&all);
    assert_eq!(places_of(&vault, MARK), Vec::<String>::new());
    // Pending items are added without it; it is not imported again.
    vault.feed(
        &["hook", "stop"],
        session("Stop", json!({ "last_assistant_message": "Good." })).as_bytes(),
    );
    for (format, place) in &imports {
        vault.ok(&["import", place, "--format", format, "--again"]);
        assert_eq!(places_of(&vault, MARK), Vec::<String>::new(), "{format}");
    }
    let kept: Vec<u8> = files(&vault.root)
        .into_iter()
        .filter(|(path, _)| !path.starts_with(".git/"))
        .flat_map(|(_, bytes)| bytes)
        .collect();
    for number in [1, 3, 4, 5, 9, 11, 14, 15, 17, 18, 19, 20, 21, 22] {
        assert!(has(&kept, &control(number)), "{number} was not to go");
    }
    assert_eq!(vault.run(&["verify"]).code, Some(0), "{:?}", vault.run(&["verify"]));
}

// Deleting a conversation leaves an intact vault, whether or not there is other text on its days
#[test]
fn a_vault_is_whole_after_a_conversation_was_deleted() {
    let mut vault = Vault::new();
    for (day, conversation) in [("13", "trip"), ("13", "work"), ("14", "trip")] {
        vault.at(&format!("2024-02-{day}T09:30:00+01:00"));
        vault.ok(&[
            "message",
            "add",
            &format!("We talked about the {conversation} at length"),
            "--conversation",
            conversation,
            "--session",
            "s",
        ]);
    }
    vault.at("2024-02-26T06:00:00+01:00");
    vault.ok(&["rollup"]);
    assert_eq!(vault.run(&["verify"]).code, Some(0));
    vault.ok(&["conversation", "delete", "trip", "--yes"]);
    let verified = vault.run(&["verify"]);
    assert_eq!(verified.code, Some(0), "{verified:?}");
    vault.ok(&["rollup"]);
    let verified = vault.run(&["verify"]);
    assert_eq!(verified.code, Some(0), "{verified:?}");
    assert!(vault.ok(&["zoom", "2024-02-13", "--summary"]).contains("work"));
}
