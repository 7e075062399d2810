//! The vault: the conformance tests, torn lines, foreign writers, and an index that may break at
//! any time.

use std::fs;
use std::path::Path;

use icecore_domain::calendar::Moment;
use icecore_domain::event::{EventDraft, EventType, Origin, Priority};
use icecore_domain::format::line;
use icecore_domain::ledger::Ledger;
use icecore_domain::ledger::query::EventQuery;
use icecore_domain::record::{Record, RecordKind, Role};
use icecore_domain::secrets::MarkerKey;
use icecore_store::prelude::*;
use icecore_store::testing::conformance;
use icecore_store::vault::Vault;
use icecore_store::{ContentVersion, Error, ErrorKind};
use pollster::block_on;
use proptest::prelude::*;
use tempfile::TempDir;

pub fn draft(text: &str) -> EventDraft {
    let ts = Moment::parse("2026-02-13T09:30:00+01:00").unwrap().moment;
    EventDraft::new(ts, EventType::Fact, Priority::P2, text)
}

pub fn new_vault() -> (TempDir, Vault) {
    let folder = TempDir::new().unwrap();
    let vault = Vault::create(&folder.path().join("vault"), "zone = \"UTC\"\n").unwrap();
    (folder, vault)
}

fn contents(store: &dyn Store) -> Vec<String> {
    let found = block_on(store.events(&EventQuery::all())).unwrap();
    found.entries.into_iter().map(|entry| entry.event.draft.content).collect()
}

/// Makes a file look as if it had not been written to for a while.
fn long_ago(file: &Path) {
    assert!(
        std::process::Command::new("touch")
            .args(["-d", "1 hour ago"])
            .arg(file)
            .status()
            .unwrap()
            .success()
    );
}

fn ledger_file(vault: &Vault) -> std::path::PathBuf {
    vault.root().join("memory/ledger.jsonl")
}

#[test]
fn the_vault_passes_the_exam() {
    let mut folders = Vec::new();
    block_on(conformance::run_all(async || {
        let (folder, vault) = new_vault();
        folders.push(folder);
        vault
    }));
}

/// The conformance tests again, on a vault whose index can never be opened: the files must suffice.
#[test]
fn the_vault_passes_the_exam_without_an_index() {
    let mut folders = Vec::new();
    block_on(async {
        for (name, question) in conformance::CHECKS {
            // Seen documents and derived data need the index.
            if name.contains("derived") || name.contains("marked as seen") {
                continue;
            }
            let (folder, vault) = new_vault();
            fs::create_dir_all(vault.root().join(".icecore/index.db")).unwrap();
            question(&vault).await;
            folders.push(folder);
        }
    });
}

// A hook that must not wait opens a vault in which one writer died and another one works.
#[test]
fn opening_a_torn_vault_does_not_wait_for_its_lock() {
    let (_folder, vault) = new_vault();
    block_on(vault.append(vec![draft("one")], None)).unwrap();
    let root = vault.root().to_owned();
    let ledger = [fs::read(ledger_file(&vault)).unwrap(), b"{\"ts\":\"2026-02".to_vec()].concat();
    fs::write(ledger_file(&vault), ledger).unwrap();
    long_ago(&ledger_file(&vault));
    drop(vault);
    let lock = fs::OpenOptions::new().write(true).open(root.join(".icecore/lock")).unwrap();
    lock.lock().unwrap();
    for open in [Vault::open, Vault::open_with_short_wait] {
        let begun = std::time::Instant::now();
        let vault = open(&root).unwrap();
        assert!(begun.elapsed() < std::time::Duration::from_millis(700), "{:?}", begun.elapsed());
        assert_eq!(contents(&vault), ["one"]);
    }
    let busy =
        block_on(Vault::open_with_short_wait(&root).unwrap().append(vec![draft("two")], None));
    assert!(matches!(busy, Err(Error { kind: ErrorKind::Busy, .. })), "{busy:?}");
    drop(lock);
    // Writers repair.
    let vault = Vault::open(&root).unwrap();
    block_on(vault.append(vec![draft("two")], None)).unwrap();
    assert_eq!(contents(&vault), ["one", "two"]);
    assert_eq!(Ledger::parse(&fs::read(ledger_file(&vault)).unwrap(), None).faults(), []);
}

#[test]
fn all_who_make_a_key_at_once_get_the_same_and_nobody_else_can_read_it() {
    use std::os::unix::fs::PermissionsExt;
    let (_folder, vault) = new_vault();
    let root = vault.root().to_owned();
    let kept: Vec<MarkerKey> = std::thread::scope(|scope| {
        let make = |n: u8| {
            let root = root.clone();
            scope.spawn(move || {
                block_on(
                    Vault::open(&root).unwrap().set_marker_key(&MarkerKey::new([n; 32]), false),
                )
                .unwrap()
            })
        };
        let threads: Vec<_> = (0..16).map(make).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(kept.iter().all(|key| *key == kept[0]));
    assert_eq!(block_on(vault.marker_key()).unwrap().as_ref(), Some(&kept[0]));
    let file = root.join(".icecore/secret.key");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    fs::write(&file, "no key").unwrap();
    assert!(matches!(
        block_on(vault.marker_key()),
        Err(Error { kind: ErrorKind::InvalidMarkerKey, .. })
    ));
    block_on(vault.set_marker_key(&kept[0], true)).unwrap();
    assert_eq!(block_on(vault.marker_key()).unwrap().as_ref(), Some(&kept[0]));
}

#[test]
fn a_record_with_another_mark_of_the_same_kind_is_the_same_record() {
    let (_folder, vault) = new_vault();
    let ts = Moment::parse("2026-02-13T09:30:00+01:00").unwrap().moment;
    let record = |text: &str| Record {
        ts,
        conversation: "app".into(),
        session: None,
        id: "m1".into(),
        role: Role::User,
        name: None,
        kind: RecordKind::Message,
        title: None,
        text: text.into(),
        parts: None,
        other_speaker: None,
        origin: Origin::User,
        captured: ts,
        extra: Vec::new(),
        withdrawn: false,
    };
    let add = |text: &str| {
        let added = block_on(vault.add_records(vec![record(text)])).unwrap();
        (added.new, added.same, added.revised.len())
    };
    assert_eq!(add("the PIN is [secret:pin:0f1e2d3c]"), (1, 0, 0));
    let file = vault.root().join("memory/messages/2026-02-13.jsonl");
    let before = fs::read(&file).unwrap();
    assert_eq!(add("the PIN is [secret:pin:00000000]"), (0, 1, 0));
    assert_eq!(fs::read(&file).unwrap(), before);
    assert_eq!(add("the PIN is [secret:card:00000000]"), (0, 0, 1));
    // An index with an outdated hash does not override the file.
    let index = rusqlite::Connection::open(vault.root().join(".icecore/index.db")).unwrap();
    assert_eq!(index.execute("UPDATE record SET wording = zeroblob(16)", []).unwrap(), 1);
    drop(index);
    assert_eq!(add("the PIN is [secret:card:11111111]"), (0, 1, 0));
}

// L12: a real file, cut at every byte, opened, written to and read again
#[test]
fn a_ledger_cut_at_every_byte_opens_and_loses_only_its_torn_line() {
    let (_folder, vault) = new_vault();
    block_on(
        vault.append(vec![draft("one"), draft("two \u{1F3AF} ünïcode"), draft("three")], None),
    )
    .unwrap();
    let whole = fs::read(ledger_file(&vault)).unwrap();
    let root = vault.root().to_owned();
    let quarantine = root.join(".icecore/quarantine");
    drop(vault);
    for cut in 0..=whole.len() {
        fs::write(root.join("memory/ledger.jsonl"), &whole[..cut]).unwrap();
        long_ago(&root.join("memory/ledger.jsonl"));
        // The last line had not been read yet, as after a crash.
        let _ = fs::remove_dir_all(root.join(".icecore"));
        let vault = Vault::open(&root).unwrap();
        let ended = whole[..cut].iter().filter(|&&b| b == b'\n').count();
        let torn = whole[..cut].last().is_some_and(|&b| b != b'\n');
        let saved = contents(&vault);
        assert!(
            saved.len() == ended || (torn && saved.len() == ended + 1),
            "cut at {cut}: {saved:?}"
        );
        let aside: Vec<_> =
            fs::read_dir(&quarantine).map(|found| found.flatten().collect()).unwrap_or_default();
        if saved.len() == ended && torn {
            // Exactly the torn bytes are quarantined.
            let start = whole[..cut].iter().rposition(|&b| b == b'\n').map_or(0, |at| at + 1);
            assert_eq!(fs::read(aside[0].path()).unwrap(), &whole[start..cut], "cut at {cut}");
            assert!(block_on(vault.opening_repairs())[0].contains("torn"));
        } else {
            assert!(aside.is_empty(), "cut at {cut}");
        }
        let added = block_on(vault.append(vec![draft("after")], None)).unwrap();
        assert_eq!(added[0].id.number() as usize, saved.len() + 1, "cut at {cut}");
        let ledger = Ledger::parse(&fs::read(ledger_file(&vault)).unwrap(), None);
        assert_eq!(ledger.faults(), [], "cut at {cut}");
        assert!(
            block_on(vault.inspect()).unwrap().iter().all(|finding| !finding.fails),
            "cut at {cut}"
        );
    }
}

// L12: events that the index has seen and the ledger lacks are reported, and their ids are not
// assigned again
#[test]
fn ledger_lines_that_an_editor_removed_are_reported() {
    let (_folder, vault) = new_vault();
    block_on(vault.append(vec![draft("one"), draft("two"), draft("three")], None)).unwrap();
    let whole = fs::read_to_string(ledger_file(&vault)).unwrap();
    let numbers = |vault: &Vault| {
        block_on(vault.lost_events()).unwrap().iter().map(|id| id.number()).collect::<Vec<_>>()
    };
    assert!(numbers(&vault).is_empty());
    let first: String = whole.lines().take(1).map(|line| format!("{line}\n")).collect();
    for (damaged, missed) in
        [(first.as_str(), vec![2, 3]), ("", vec![1, 2, 3]), (&whole[..whole.len() - 30], vec![3])]
    {
        fs::write(ledger_file(&vault), damaged).unwrap();
        let opened = Vault::open(vault.root()).unwrap();
        assert_eq!(numbers(&opened), missed, "{damaged:?}");
        // Not even a new index loses this.
        block_on(opened.rebuild(&|_, _| {})).unwrap();
        assert_eq!(numbers(&opened), missed, "{damaged:?}");
        assert_eq!(block_on(opened.append(vec![draft("new")], None)).unwrap()[0].id.number(), 4);
        fs::write(ledger_file(&vault), &whole).unwrap();
        assert_eq!(numbers(&opened), [4], "the lines are back, the new one is gone");
        let position = block_on(opened.ledger()).unwrap().position;
        block_on(opened.replace_ledger(whole.as_bytes(), position)).unwrap();
        assert!(numbers(&opened).is_empty(), "decided by whoever replaces the ledger");
        assert_eq!(
            block_on(opened.append(vec![draft("again")], None)).unwrap()[0].id.number(),
            5,
            "what was given is spent"
        );
        let position = block_on(opened.ledger()).unwrap().position;
        block_on(opened.replace_ledger(whole.as_bytes(), position)).unwrap();
        fs::remove_dir_all(vault.root().join(".icecore")).unwrap();
        assert_eq!(
            block_on(Vault::open(vault.root()).unwrap().events(&EventQuery::all()))
                .unwrap()
                .entries
                .len(),
            3
        );
    }
    fs::remove_file(ledger_file(&vault)).unwrap();
    assert_eq!(numbers(&vault), [1, 2, 3]);
}

// Something that is not a file is not waited for
#[test]
fn a_pipe_in_the_place_of_a_file_is_refused_at_once() {
    let (_folder, vault) = new_vault();
    let log = "memory/2026-02-13.md";
    assert!(
        std::process::Command::new("mkfifo")
            .arg(vault.root().join(log))
            .status()
            .unwrap()
            .success()
    );
    let path = log.parse().unwrap();
    assert!(matches!(
        block_on(vault.document(&path)),
        Err(Error { kind: ErrorKind::NotAFile, .. })
    ));
    assert!(matches!(
        block_on(vault.append_if_unchanged(&path, b"x", ContentVersion::ABSENT)),
        Err(Error { kind: ErrorKind::NotAFile, .. })
    ));
    // A folder that cannot be created is an error, not an endless attempt.
    assert!(Vault::create(Path::new("/proc/x/vault"), "").is_err());
}

// L2
#[test]
fn a_missing_line_break_and_a_nul_tail_are_mended() {
    let (_folder, vault) = new_vault();
    block_on(vault.append(vec![draft("one")], None)).unwrap();
    let file = ledger_file(&vault);
    let foreign = line::format_line(&draft("two").with_id("EVT-20260213-002".parse().unwrap()));
    let mut text = fs::read(&file).unwrap();
    text.extend_from_slice(foreign.trim_end().as_bytes());
    fs::write(&file, &text).unwrap();
    // Without reopening: a writer that finds the line unterminated.
    block_on(vault.append(vec![draft("three")], None)).unwrap();
    assert_eq!(contents(&vault), ["one", "two", "three"]);

    let mut text = fs::read(&file).unwrap();
    text.extend_from_slice(&[0; 4096]);
    fs::write(&file, &text).unwrap();
    let vault = Vault::open(vault.root()).unwrap();
    assert_eq!(contents(&vault), ["one", "two", "three"]);
    block_on(vault.append(vec![draft("four")], None)).unwrap();
    assert_eq!(contents(&vault), ["one", "two", "three", "four"]);
}

// L12: all kinds of hand edits are noticed
#[test]
fn a_hand_edit_anywhere_reaches_the_index() {
    let (_folder, vault) = new_vault();
    block_on(vault.append(vec![draft("one"), draft("two"), draft("three")], None)).unwrap();
    assert_eq!(contents(&vault).len(), 3);
    let text = fs::read_to_string(ledger_file(&vault)).unwrap();
    for edited in [
        text.replace("two", "TWO"),
        text.replace("\"two\"", "\"a much longer text\""),
        text.lines().rev().map(|line| format!("{line}\n")).collect(),
        text.lines().take(1).map(|line| format!("{line}\n")).collect(),
        String::new(),
        format!("{text}garbage\n{text}"),
    ] {
        fs::write(ledger_file(&vault), &edited).unwrap();
        let folded = Ledger::parse(edited.as_bytes(), None);
        let found = block_on(vault.events(&EventQuery::all())).unwrap().entries;
        assert_eq!(found, folded.entries(), "{edited}");
        assert!(block_on(vault.inspect()).unwrap().iter().all(|finding| !finding.fails));
    }
}

// L12: a changed index is detected or harmless
#[test]
fn a_damaged_index_never_changes_what_is_read() {
    let (_folder, vault) = new_vault();
    for n in 0..40 {
        block_on(vault.append(vec![draft(&format!("event {n}"))], None)).unwrap();
    }
    block_on(vault.rebuild(&|_, _| {})).unwrap();
    let root = vault.root().to_owned();
    drop(vault);
    let folded = Ledger::parse(&fs::read(root.join("memory/ledger.jsonl")).unwrap(), None);
    let index = root.join(".icecore/index.db");
    for damage in ["gone", "empty", "garbage", "half", "header"] {
        let _ = fs::remove_file(root.join(".icecore/index.db-wal"));
        let _ = fs::remove_file(root.join(".icecore/index.db-shm"));
        match damage {
            "gone" => fs::remove_file(&index).unwrap(),
            "empty" => fs::write(&index, b"").unwrap(),
            "garbage" => fs::write(&index, vec![7; 9_000]).unwrap(),
            "half" => {
                let bytes = fs::read(&index).unwrap();
                fs::write(&index, &bytes[..bytes.len() / 2]).unwrap();
            }
            _ => {
                let mut bytes = fs::read(&index).unwrap();
                bytes[..100].fill(0xff);
                fs::write(&index, &bytes).unwrap();
            }
        }
        let vault = Vault::open(&root).unwrap();
        assert_eq!(
            block_on(vault.events(&EventQuery::all())).unwrap().entries,
            folded.entries(),
            "{damage}"
        );
        drop(vault);
        let vault = Vault::open(&root).unwrap();
        block_on(vault.rebuild(&|_, _| {})).unwrap();
        assert!(
            block_on(vault.inspect()).unwrap().iter().all(|finding| !finding.fails),
            "{damage}"
        );
    }
}

// L12: every wrong row is detected
#[test]
fn an_index_that_says_something_else_is_found() {
    let (_folder, vault) = new_vault();
    block_on(vault.append(vec![draft("The budget is 500 EUR"), draft("two")], None)).unwrap();
    assert_eq!(contents(&vault).len(), 2);
    for change in [
        "UPDATE event SET standing = 'closed', ended_by = id WHERE seq = 1",
        "UPDATE event SET entity = 'x' WHERE seq = 2",
        "DELETE FROM event WHERE seq = 2",
        "DELETE FROM claim WHERE seq = 1",
        "INSERT INTO contested VALUES ('x')",
        "UPDATE covered SET lines = 7",
    ] {
        block_on(vault.rebuild(&|_, _| {})).unwrap();
        let sqlite = rusqlite::Connection::open(vault.root().join(".icecore/index.db")).unwrap();
        sqlite.execute_batch(change).unwrap();
        drop(sqlite);
        assert!(block_on(vault.inspect()).unwrap().iter().any(|finding| finding.fails), "{change}");
    }
}

// L12, Y9
#[test]
fn a_search_index_that_says_something_else_is_found() {
    let (_folder, vault) = new_vault();
    block_on(vault.append(vec![draft("The budget is 500 EUR"), draft("two")], None)).unwrap();
    block_on(vault.update_index(false, &|_, _| {})).unwrap();
    let told = || -> Vec<String> {
        block_on(vault.inspect())
            .unwrap()
            .into_iter()
            .filter(|finding| finding.fails)
            .map(|finding| finding.what)
            .collect()
    };
    assert_eq!(told(), Vec::<String>::new());
    let sqlite = rusqlite::Connection::open(vault.root().join(".icecore/search.db")).unwrap();
    assert_eq!(sqlite.execute("DELETE FROM file", []).unwrap(), 1);
    assert!(
        told().len() == 1
            && told()[0].contains("search index")
            && told()[0].contains("icecore vault reindex"),
        "{:?}",
        told()
    );
    block_on(vault.update_index(true, &|_, _| {})).unwrap();
    assert_eq!(told(), Vec::<String>::new());
}

// L2: more ids than SQLite takes as parameters
#[test]
fn any_number_of_events_can_be_asked_for_by_id() {
    let (_folder, vault) = new_vault();
    let many = 40_000;
    let drafts = (0..many).map(|n| draft(&format!("event {n}"))).collect();
    let ids: Vec<_> =
        block_on(vault.append(drafts, None)).unwrap().into_iter().map(|event| event.id).collect();
    let asked: Vec<_> = ids.iter().copied().filter(|id| id.number() % 10 != 0).collect();
    let found = block_on(vault.events(&EventQuery::for_ids(&asked))).unwrap().entries;
    assert_eq!(found.iter().map(|entry| entry.event.id).collect::<Vec<_>>(), asked);
    assert_eq!(block_on(vault.linked_events(&asked, &[])).unwrap().len(), asked.len());
}

// L2
#[test]
fn lines_are_read_wherever_they_stand() {
    let (_folder, vault) = new_vault();
    let drafts = (0..60).map(|n| draft(&format!("{n} {}", "long ".repeat(n * n)))).collect();
    let events = block_on(vault.append(drafts, None)).unwrap();
    for step in [1, 2, 7, 59] {
        let asked: Vec<_> = events.iter().step_by(step).cloned().collect();
        let ids: Vec<_> = asked.iter().map(|event| event.id).collect();
        let found = block_on(vault.events(&EventQuery::for_ids(&ids))).unwrap().entries;
        assert_eq!(found.into_iter().map(|entry| entry.event).collect::<Vec<_>>(), asked, "{step}");
        assert_eq!(block_on(vault.linked_events(&ids, &[])).unwrap(), asked, "{step}");
    }
}

// L15: a move that was interrupted, and lines that a user restored
#[test]
fn an_event_in_the_ledger_and_in_an_archive_counts_once() {
    let (_folder, vault) = new_vault();
    block_on(vault.append(vec![draft("one"), draft("two")], None)).unwrap();
    let days = block_on(vault.event_days()).unwrap();
    let text = fs::read_to_string(ledger_file(&vault)).unwrap();
    let (one, two) = text.split_at(text.find('\n').unwrap() + 1);
    let archive = vault.root().join("memory/ledger-archive-2026.jsonl");
    let check = |archived: usize| {
        assert_eq!(block_on(vault.archived_events(&EventQuery::all())).unwrap().len(), archived);
        assert_eq!(block_on(vault.event_days()).unwrap(), days);
        let failed: Vec<_> = block_on(vault.inspect())
            .unwrap()
            .into_iter()
            .filter(|finding| finding.fails)
            .collect();
        assert!(failed.is_empty(), "{failed:?}");
    };
    check(0);
    fs::write(&archive, &text).unwrap();
    check(2);
    fs::write(ledger_file(&vault), two).unwrap();
    check(2);
    block_on(vault.append_lines(one.as_bytes())).unwrap();
    check(2);
    block_on(vault.rebuild(&|_, _| {})).unwrap();
    check(2);
    fs::remove_file(&archive).unwrap();
    check(0);
}

// P1: readers see the previous state during a write, and the whole new state afterwards
#[test]
fn conversations_are_read_while_others_are_written() {
    let (_folder, vault) = new_vault();
    let said = |conversation: &str, n: usize| Record {
        ts: draft("").ts,
        conversation: conversation.into(),
        session: None,
        id: format!("m{n}"),
        role: Role::User,
        name: None,
        other_speaker: None,
        kind: RecordKind::Message,
        title: None,
        text: format!("message {n} of {conversation} \\ \"quoted\""),
        parts: None,
        origin: Origin::User,
        captured: draft("").ts,
        extra: Vec::new(),
        withdrawn: false,
    };
    let names = ["plain", "with \"quotes\"", "naïve/ünï", "back\\slash"];
    std::thread::scope(|scope| {
        for name in names {
            let (vault, said) = (&vault, &said);
            scope.spawn(move || {
                for n in 0..60 {
                    block_on(vault.add_records(vec![said(name, n)])).unwrap();
                    let own = block_on(vault.recent_records(name, usize::MAX)).unwrap();
                    assert_eq!(own.len(), n + 1, "{name}");
                    assert!(own.iter().all(|record| record.conversation == name));
                }
            });
        }
    });
    assert!(block_on(vault.inspect()).unwrap().iter().all(|finding| !finding.fails));
    // Another program may spell a name in its own way.
    let file = vault.root().join("memory/messages/2026-02-13.jsonl");
    let text = fs::read_to_string(&file).unwrap().replace("na\u{ef}ve/", "na\\u00efve\\/");
    assert!(text.contains("\\u00ef"));
    fs::write(&file, text).unwrap();
    assert_eq!(block_on(vault.recent_records(names[2], usize::MAX)).unwrap().len(), 60);
}

// L2: threads of one process
#[test]
fn eight_threads_append_without_losing_or_doubling() {
    let (_folder, vault) = new_vault();
    let root = vault.root().to_owned();
    std::thread::scope(|scope| {
        for writer in 0..8 {
            let root = &root;
            scope.spawn(move || {
                let vault = Vault::open(root).unwrap();
                for n in 0..50 {
                    block_on(vault.append(
                        vec![draft(&format!("{writer}/{n} {}", "x".repeat(n * 97)))],
                        None,
                    ))
                    .unwrap();
                }
            });
        }
    });
    let mut found = contents(&vault);
    found.sort();
    found.dedup();
    assert_eq!(found.len(), 400);
    let ledger = Ledger::parse(&fs::read(ledger_file(&vault)).unwrap(), None);
    assert_eq!((ledger.entries().len(), ledger.faults().len()), (400, 0));
    assert!(block_on(vault.inspect()).unwrap().iter().all(|finding| !finding.fails));
}

#[test]
fn links_inside_a_vault_are_not_followed() {
    let (folder, vault) = new_vault();
    let outside = folder.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("secret.md"), "secret").unwrap();
    std::os::unix::fs::symlink(&outside, vault.root().join("knowledge")).unwrap();
    std::os::unix::fs::symlink(
        outside.join("secret.md"),
        vault.root().join("memory/2026-02-13.md"),
    )
    .unwrap();
    for path in ["knowledge/secret.md", "memory/2026-02-13.md"] {
        let path = path.parse().unwrap();
        assert!(matches!(
            block_on(vault.document(&path)),
            Err(Error { kind: ErrorKind::Link, .. })
        ));
        assert!(matches!(
            block_on(vault.put(&path, b"x")),
            Err(Error { kind: ErrorKind::Link, .. })
        ));
        assert!(matches!(
            block_on(vault.append_if_unchanged(&path, b"x", ContentVersion::ABSENT)),
            Err(Error { kind: ErrorKind::Link, .. })
        ));
    }
    assert_eq!(fs::read_to_string(outside.join("secret.md")).unwrap(), "secret");
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
}

#[test]
fn files_and_folders_are_the_owners_alone() {
    use std::os::unix::fs::PermissionsExt;
    let (_folder, vault) = new_vault();
    block_on(vault.append(vec![draft("one")], None)).unwrap();
    block_on(vault.put(&"knowledge/entities/x.md".parse().unwrap(), b"x")).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    for folder in ["", "memory", "knowledge/entities", ".icecore"] {
        assert_eq!(mode(&vault.root().join(folder)), 0o700, "{folder}");
    }
    for file in [
        "icecore.toml",
        "memory/ledger.jsonl",
        "knowledge/entities/x.md",
        ".icecore/index.db",
        ".icecore/index.db-wal",
    ] {
        assert_eq!(mode(&vault.root().join(file)), 0o600, "{file}");
    }
}

// A process that appends piece by piece is not interrupted
#[test]
fn a_line_that_is_still_being_written_is_waited_for() {
    let (_folder, vault) = new_vault();
    let line = line::format_line(&draft("slowly").with_id("EVT-20260213-001".parse().unwrap()));
    let (first, second) = line.split_at(line.len() / 2);
    let append = |text: &str| {
        use std::io::Write;
        fs::OpenOptions::new()
            .append(true)
            .open(ledger_file(&vault))
            .unwrap()
            .write_all(text.as_bytes())
            .unwrap();
    };
    append(first);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| contents(&Vault::open(vault.root()).unwrap()));
        std::thread::sleep(std::time::Duration::from_millis(150));
        append(second);
        assert_eq!(reader.join().unwrap(), ["slowly"]);
    });
    assert!(!vault.root().join(".icecore/quarantine").exists());
}

// Nothing private is a link, so that cleaning up and rebuilding stay inside the vault
#[test]
fn links_among_the_private_files_are_refused_and_nothing_behind_them_is_touched() {
    for name in ["", "tmp", "quarantine", "index.db", "lock"] {
        let (folder, vault) = new_vault();
        let outside = folder.path().join("outside");
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("4242-deadbeef"), "mine").unwrap();
        fs::write(outside.join("index.db"), "mine").unwrap();
        let place = vault.root().join(".icecore").join(name);
        let _ = fs::remove_dir_all(&place);
        let _ = fs::remove_file(&place);
        let target = if ["index.db", "lock"].contains(&name) {
            outside.join("index.db")
        } else {
            outside.clone()
        };
        let place = if name.is_empty() { vault.root().join(".icecore") } else { place };
        std::os::unix::fs::symlink(target, place).unwrap();
        assert!(
            matches!(Vault::open(vault.root()), Err(Error { kind: ErrorKind::Link, .. })),
            "{name}"
        );
        let _ = block_on(vault.append(vec![draft("one")], None));
        let _ = block_on(vault.count_statements());
        assert_eq!(fs::read_to_string(outside.join("4242-deadbeef")).unwrap(), "mine", "{name}");
        assert_eq!(fs::read_to_string(outside.join("index.db")).unwrap(), "mine", "{name}");
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 2, "{name}");
    }
}

// L2: an absurd number in a foreign line neither becomes an id nor exhausts the numbers
#[test]
fn ids_stay_readable_whatever_others_wrote() {
    let (_folder, vault) = new_vault();
    let foreign = |number: &str| {
        format!(
            r#"{{"ts":"2026-02-13T09:00:00Z","id":"EVT-20260213-{number}","type":"fact","priority":"P2","content":"x","source":"live"}}"#
        )
    };
    block_on(vault.append_lines(foreign("999999999").as_bytes())).unwrap();
    assert_eq!(block_on(vault.append(vec![draft("one")], None)).unwrap()[0].id.number(), 1);
    block_on(vault.append_lines(foreign("999999").as_bytes())).unwrap();
    assert!(matches!(
        block_on(vault.append(vec![draft("two")], None)),
        Err(Error { kind: ErrorKind::NoIdLeft, .. })
    ));
}

#[test]
fn temporary_files_of_the_dead_are_swept() {
    let (_folder, vault) = new_vault();
    let tmp = vault.root().join(".icecore/tmp");
    fs::write(tmp.join("4242-deadbeef"), "half a file").unwrap();
    let vault = Vault::open(vault.root()).unwrap();
    assert_eq!(fs::read_dir(tmp).unwrap().count(), 0);
    assert!(contents(&vault).is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// The incremental index equals one built from the files, whatever the operations and their
    /// order.
    #[test]
    fn the_incremental_index_equals_a_rebuilt_one(steps in proptest::collection::vec((0_usize..6, 0_usize..12), 1..24)) {
        use icecore_domain::event::Act;
        let (_folder, vault) = new_vault();
        let mut events: Vec<icecore_domain::event::Event> = Vec::new();
        for (what, which) in steps {
            let target = events.get(which % events.len().max(1)).cloned();
            let next = match (what, target) {
                (1, Some(target)) => EventDraft { supersedes: vec![target.id], ..draft("The budget is 600 EUR") },
                (2, Some(target)) => EventDraft::new_act(&target, Act::Close, target.ts, "done"),
                (3, Some(target)) => EventDraft::new_act(&target, Act::Retract, target.ts, "wrong"),
                (4, Some(target)) => EventDraft::new_act(&target, Act::Confirm, target.ts, "yes"),
                (5, _) => {
                    block_on(vault.append_lines(b"{\"foreign\": true}")).unwrap();
                    continue;
                }
                _ => draft("The budget is 500 EUR"),
            };
            events.extend(block_on(vault.append(vec![next], None)).unwrap());
            if which % 3 == 0 {
                let _ = block_on(vault.count_statements()).unwrap();
            }
        }
        let found = block_on(vault.events(&EventQuery::all())).unwrap().entries;
        let folded = Ledger::parse(&fs::read(ledger_file(&vault)).unwrap(), None);
        prop_assert_eq!(found.as_slice(), folded.entries());
        let findings = block_on(vault.inspect()).unwrap();
        prop_assert!(findings.iter().all(|finding| !finding.fails), "{:?}", findings);
    }
}

#[test]
fn the_bundled_sqlite_has_no_known_defect() {
    assert!(rusqlite::version_number() >= 3_051_003, "{}", rusqlite::version());
}
