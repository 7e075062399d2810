//! Programs and people that write to a vault's files without its lock: nothing they wrote is lost,
//! and nothing that icecore wrote.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use icecore_domain::calendar::Moment;
use icecore_domain::hash::Hash;
use icecore_domain::layout::DocPath;
use icecore_domain::record::{Record, RecordKind, Role};
use icecore_domain::summary::{Importance, Summary, SummaryAuthor, SummaryCost};
use icecore_store::prelude::*;
use icecore_store::vault::Vault;
use icecore_store::{ContentVersion, Error, ErrorKind, Replacement, foreign_files};
use pollster::block_on;

use crate::vault::{draft, new_vault};

fn append(file: &Path, bytes: &[u8]) {
    OpenOptions::new().append(true).open(file).unwrap().write_all(bytes).unwrap();
}

fn message(day: usize, text: &str) -> Record {
    let ts = Moment::parse(&format!("2026-02-{day:02}T09:30:00+01:00")).unwrap().moment;
    Record {
        ts,
        conversation: "c".into(),
        session: None,
        id: text.replace(' ', "-"),
        role: Role::User,
        name: None,
        kind: RecordKind::Message,
        title: None,
        text: text.into(),
        parts: None,
        other_speaker: None,
        origin: icecore_domain::event::Origin::User,
        captured: ts,
        extra: Vec::new(),
        withdrawn: false,
    }
}

fn summary(day: usize, version: u32, headline: &str) -> Summary {
    let at = draft("").ts;
    Summary {
        period: format!("2026-02-{day:02}").parse().unwrap(),
        version,
        session: None,
        start: at,
        end: at,
        headline: headline.into(),
        body: format!("- {headline}"),
        messages: 1,
        states: 0,
        recorded: at,
        source: Hash::of(headline.as_bytes()),
        log: None,
        sources: Vec::new(),
        maker: SummaryAuthor::Extract,
        provisional: true,
        importance: Importance::Ordinary,
        left_out: Vec::new(),
        cost: SummaryCost::default(),
        similar: None,
    }
}

/// How this program writes its `n`th line to a kind of file, what another program appends, and to
/// which file.
struct Kind {
    name: &'static str,
    file: &'static str,
    own: fn(&Vault, usize),
    foreign: fn(usize) -> String,
}

const KINDS: [Kind; 5] = [
    Kind {
        name: "log",
        file: "memory/2026-02-13.md",
        own: |vault, n| {
            block_on(vault.append_to_document(
                &"memory/2026-02-13.md".parse().unwrap(),
                format!("- own {n}.\n").as_bytes(),
            ))
            .unwrap()
        },
        foreign: |n| format!("- foreign {n}.\n"),
    },
    Kind {
        name: "ledger",
        file: "memory/ledger.jsonl",
        own: |vault, n| {
            drop(block_on(vault.append(vec![draft(&format!("own {n}."))], None)).unwrap())
        },
        foreign: |n| {
            format!(
                "{{\"ts\":\"2026-02-13T09:30:00+01:00\",\"id\":\"EVT-20200101-1{n:03}\",\"type\":\"fact\",\"priority\":\"P2\",\
                 \"content\":\"foreign {n}.\",\"source\":\"live\"}}\n"
            )
        },
    },
    Kind {
        name: "records",
        file: "memory/messages/2026-02-13.jsonl",
        own: |vault, n| {
            drop(block_on(vault.add_records(vec![message(13, &format!("own {n}."))])).unwrap())
        },
        foreign: |n| message(13, &format!("foreign {n}.")).to_line(),
    },
    Kind {
        name: "records of many days",
        file: "memory/messages/2026-02-13.jsonl",
        own: |vault, n| {
            let records = (10..20).map(|day| message(day, &format!("own {n}. on {day}"))).collect();
            block_on(vault.add_records(records)).unwrap();
        },
        foreign: |n| message(13, &format!("foreign {n}.")).to_line(),
    },
    Kind {
        name: "summaries",
        file: "memory/summaries.jsonl",
        own: |vault, n| {
            block_on(vault.add_summaries(&[summary(13, n as u32 + 1, &format!("own {n}."))], None))
                .unwrap();
        },
        foreign: |n| summary(14, n as u32 + 1, &format!("foreign {n}.")).to_line(),
    },
];

// P1
#[test]
fn lines_that_another_program_appends_are_never_cut_off() {
    const OWN: usize = 60;
    for kind in KINDS {
        let (_folder, vault) = new_vault();
        let file = vault.root().join(kind.file);
        (kind.own)(&vault, 0);
        let is_over = AtomicBool::new(false);
        let foreign = AtomicUsize::new(0);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    append(
                        &file,
                        (kind.foreign)(foreign.fetch_add(1, Ordering::Relaxed)).as_bytes(),
                    );
                    thread::sleep(Duration::from_micros(200));
                }
            });
            // A refused write panics here, and the other thread must end nevertheless.
            let written = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                (1..OWN).for_each(|n| (kind.own)(&vault, n))
            }));
            is_over.store(true, Ordering::Relaxed);
            written.unwrap_or_else(|_| panic!("{}: a write was refused", kind.name));
        });
        let (text, foreign) = (fs::read_to_string(&file).unwrap(), foreign.into_inner());
        assert!(foreign > 0);
        for (who, many) in [("own", OWN), ("foreign", foreign)] {
            for n in 0..many {
                let lines =
                    text.lines().filter(|line| line.contains(&format!("{who} {n}."))).count();
                assert_eq!(lines, 1, "{}: {who} {n} of {many}", kind.name);
            }
        }
        // The index contains both.
        let failures: Vec<_> = block_on(vault.inspect())
            .unwrap()
            .into_iter()
            .filter(|finding| finding.fails)
            .collect();
        assert!(failures.is_empty(), "{}: {failures:?}", kind.name);
        if kind.name == "ledger" {
            assert_eq!(
                block_on(vault.count_statements())
                    .unwrap()
                    .iter()
                    .map(|count| count.events)
                    .sum::<usize>(),
                OWN + foreign
            );
        }
    }
}

#[test]
fn a_line_is_not_glued_to_what_another_program_has_not_ended() {
    let (_folder, vault) = new_vault();
    let log: DocPath = "memory/2026-02-13.md".parse().unwrap();
    let file = vault.root().join(log.as_str());
    block_on(vault.append_to_document(&log, b"# Friday\n")).unwrap();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                append(&file, b"half a foreign line");
                thread::sleep(Duration::from_micros(100));
                append(&file, b", ended\n");
            }
        });
        for n in 0..150 {
            block_on(vault.append_to_document(&log, format!("- own {n}\n").as_bytes())).unwrap();
        }
        is_over.store(true, Ordering::Relaxed);
    });
    let text = fs::read_to_string(&file).unwrap();
    for n in 0..150 {
        assert_eq!(
            text.lines().filter(|line| *line == format!("- own {n}")).count(),
            1,
            "{n} in {text}"
        );
    }
}

/// How an editor saves a file.
type Save = fn(&Path, &str);

const SAVES: [(&str, Save); 2] = [
    ("by a new file and a rename", |file, text| {
        let new = file.with_extension("swp");
        fs::write(&new, text).unwrap();
        fs::rename(new, file).unwrap();
    }),
    ("in place", |file, text| fs::write(file, text).unwrap()),
];

// P1: an editor saves what it read plus a word, while the same file is rewritten from what was read
#[test]
fn what_a_person_saves_while_a_file_is_rewritten_stays() {
    for ((how, save), many) in SAVES.into_iter().flat_map(|save| [(save, 1), (save, 8)]) {
        let (_folder, vault) = new_vault();
        let pages: Vec<DocPath> =
            (0..many).map(|n| format!("knowledge/entities/page-{n}.md").parse().unwrap()).collect();
        for page in &pages {
            block_on(vault.put(page, b"# Page\n")).unwrap();
        }
        let file = vault.root().join(pages[0].as_str());
        let is_over = AtomicBool::new(false);
        let (words, written, refused) = thread::scope(|scope| {
            let editor = scope.spawn(|| {
                let mut words = 0;
                while !is_over.load(Ordering::Relaxed) {
                    let text = fs::read_to_string(&file).unwrap();
                    save(&file, &format!("{text}word{words}.\n"));
                    words += 1;
                    // A longer rest now and then lets even a slow rewrite succeed.
                    let rest = if words % 16 == 0 { 20_000 } else { words % 7 * 300 };
                    thread::sleep(Duration::from_micros(rest));
                }
                words
            });
            let (mut written, mut refused) = (0, 0);
            for n in 0..2_000 {
                if n >= 150 && written > 0 {
                    break;
                }
                let mut replacements = Vec::new();
                for path in &pages {
                    let text = block_on(vault.document(path)).unwrap().unwrap();
                    // A file that is being saved in place is still empty.
                    let Some(first) = text.iter().position(|&byte| byte == b'\n') else {
                        thread::sleep(Duration::from_millis(1));
                        continue;
                    };
                    let bytes = [format!("# Page, rewritten {n} times").as_bytes(), &text[first..]]
                        .concat();
                    replacements.push(Replacement {
                        path: path.clone(),
                        bytes,
                        from: ContentVersion::of(Some(&text)),
                    });
                }
                let left = block_on(vault.compare_and_swap_many(&replacements)).unwrap();
                assert!(left.iter().all(|page| *page == pages[0]), "{left:?}");
                let is_tried = replacements.iter().any(|one| one.path == pages[0]);
                (written, refused) =
                    (written + usize::from(is_tried) - left.len(), refused + left.len());
            }
            is_over.store(true, Ordering::Relaxed);
            (editor.join().unwrap(), written, refused)
        });
        let mut text = fs::read_to_string(&file).unwrap();
        // Of two edits saved at the same moment, the older may be stored there.
        for kept in
            fs::read_dir(vault.root().join(".icecore/quarantine")).into_iter().flatten().flatten()
        {
            text += &fs::read_to_string(kept.path()).unwrap();
        }
        let lost: Vec<u64> =
            (0..words).filter(|word| !text.contains(&format!("word{word}."))).collect();
        assert!(
            lost.is_empty(),
            "{how}, {many}: lost {lost:?} of {words}; {written} written, {refused} refused"
        );
        // Both must have been seen, or the test proves nothing.
        assert!(words > 10 && written > 0, "{how}, {many}: {words} saved, {written} written");
        assert_eq!(fs::read_dir(vault.root().join(".icecore/tmp")).unwrap().count(), 0);
    }
}

#[test]
fn a_file_that_changed_is_neither_replaced_nor_removed() {
    let (_folder, vault) = new_vault();
    let page: DocPath = "knowledge/entities/page.md".parse().unwrap();
    let file = vault.root().join(page.as_str());
    let version = |text: &str| ContentVersion::of(Some(text.as_bytes()));
    block_on(vault.compare_and_swap(&page, b"one", ContentVersion::ABSENT)).unwrap();
    // Same length, other text.
    fs::write(&file, "two").unwrap();
    assert!(matches!(
        block_on(vault.compare_and_swap(&page, b"three", version("one"))),
        Err(Error { kind: ErrorKind::Conflict, .. })
    ));
    assert!(matches!(
        block_on(vault.compare_and_swap(&page, b"three", ContentVersion::ABSENT)),
        Err(Error { kind: ErrorKind::Conflict, .. })
    ));
    assert!(matches!(
        block_on(vault.append_if_unchanged(&page, b"three", version("one"))),
        Err(Error { kind: ErrorKind::Conflict, .. })
    ));
    assert!(matches!(
        block_on(vault.remove_unchanged(&page, version("one"))),
        Err(Error { kind: ErrorKind::Conflict, .. })
    ));
    assert_eq!(fs::read_to_string(&file).unwrap(), "two");
    fs::remove_file(&file).unwrap();
    assert!(matches!(
        block_on(vault.compare_and_swap(&page, b"three", version("two"))),
        Err(Error { kind: ErrorKind::Conflict, .. })
    ));
    assert!(!file.exists());
    // The ledger, appended to after it was read.
    block_on(vault.append(vec![draft("first")], None)).unwrap();
    let position = block_on(vault.position()).unwrap();
    append(&vault.root().join("memory/ledger.jsonl"), (KINDS[1].foreign)(1).as_bytes());
    assert!(matches!(
        block_on(vault.replace_ledger(b"", position)),
        Err(Error { kind: ErrorKind::Conflict, .. })
    ));
    assert_eq!(fs::read_dir(vault.root().join(".icecore/tmp")).unwrap().count(), 0);
}

// A file that was being replaced when a process died: what a person saved at that moment is not
// deleted
#[test]
fn what_was_saved_in_the_moment_of_a_crash_is_not_swept() {
    let (_folder, vault) = new_vault();
    let tmp = vault.root().join(".icecore/tmp");
    let aside = tmp.join("4242-00000001.0123456789abcdef-fedcba9876543210");
    fs::write(&aside, "saved by a person").unwrap();
    let vault = Vault::open(vault.root()).unwrap();
    assert!(!aside.exists());
    let kept: Vec<PathBuf> = fs::read_dir(vault.root().join(".icecore/quarantine"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    assert_eq!(kept.len(), 1);
    assert_eq!(fs::read_to_string(&kept[0]).unwrap(), "saved by a person");
    assert!(block_on(vault.opening_repairs())[0].contains("saved while icecore was interrupted"));
}

#[test]
fn temporary_files_of_living_writers_are_not_swept() {
    let (_folder, vault) = new_vault();
    let written = vault.root().join(".icecore/tmp/4242-deadbeef");
    fs::write(&written, "half a file").unwrap();
    let file = fs::File::open(&written).unwrap();
    file.lock().unwrap();
    Vault::open(vault.root()).unwrap();
    assert!(written.exists());
    drop(file);
    Vault::open(vault.root()).unwrap();
    assert!(!written.exists());
    // Conversations are written under their own locks while other threads open the vault.
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                Vault::open(vault.root()).unwrap();
            }
        });
        let place: DocPath = "conversations/race/conversation.json".parse().unwrap();
        let outcome =
            (0..400).try_for_each(|n| block_on(vault.put(&place, format!("{n}").as_bytes())));
        is_over.store(true, Ordering::Relaxed);
        outcome.unwrap();
    });
}

#[test]
fn a_pipe_in_the_place_of_the_lock_is_refused_at_once() {
    let (_folder, vault) = new_vault();
    let lock = vault.root().join(".icecore/lock");
    fs::remove_file(&lock).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(&lock).status().unwrap().success());
    assert!(
        matches!(block_on(vault.append(vec![draft("one")], None)), Err(error) if error.kind == ErrorKind::NotAFile && error.to_string().contains(&lock.display().to_string()))
    );
}

#[test]
fn an_empty_file_of_records_is_no_day() {
    let (_folder, vault) = new_vault();
    block_on(vault.add_records(vec![message(13, "hello")])).unwrap();
    fs::write(vault.root().join("memory/messages/2026-01-01.jsonl"), "").unwrap();
    assert_eq!(block_on(vault.record_days()).unwrap(), [jiff::civil::date(2026, 2, 13)]);
}

#[test]
fn notes_are_whole_and_trimming_drops_no_new_line() {
    let (_folder, vault) = new_vault();
    let (state, log): (DocPath, DocPath) =
        ("hooks/state.json".parse().unwrap(), "hooks/log.jsonl".parse().unwrap());
    let text = |n: usize| format!("{n}").repeat(20_000);
    block_on(vault.put_note(&state, text(0).as_bytes())).unwrap();
    thread::scope(|scope| {
        for writer in 0..3 {
            let (vault, state, log, text) = (&vault, &state, &log, &text);
            scope.spawn(move || {
                for n in 0..400 {
                    block_on(vault.put_note(state, text(writer).as_bytes())).unwrap();
                    let found = block_on(vault.note(state)).unwrap().unwrap();
                    assert!(
                        found.len() == 20_000 && found.iter().all(|byte| *byte == found[0]),
                        "{}",
                        found.len()
                    );
                    block_on(vault.append_note(log, &format!("{writer} {n:04}"), 4_000, false))
                        .unwrap();
                }
            });
        }
    });
    // The oldest lines are gone; the newer ones of each writer are all there. Those at the cut may
    // have changed places.
    let kept = String::from_utf8(block_on(vault.note(&log)).unwrap().unwrap()).unwrap();
    let mut by_writer: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (writer, n) in kept.lines().filter_map(|line| line.split_once(' ')) {
        by_writer.entry(writer).or_default().push(n.parse().unwrap());
    }
    assert!(kept.len() <= 4_100, "{}", kept.len());
    for (writer, mut lines) in by_writer {
        lines.sort();
        let first = lines[0] + 5;
        lines.retain(|n| *n >= first);
        assert_eq!(lines, (first..400).collect::<Vec<_>>(), "{writer}");
    }
}

#[test]
fn a_full_disk_under_another_programs_file_is_called_that() {
    assert!(matches!(
        foreign_files::overwrite_in_place(Path::new("/dev/full"), b"x"),
        Err(Error { kind: ErrorKind::DiskFull, .. })
    ));
}

// A handle that must not wait does not wait for threads of its own process either
#[test]
fn a_hurried_vault_waits_for_no_thread_longer_than_for_a_process() {
    let (_folder, vault) = new_vault();
    let lock = OpenOptions::new().write(true).open(vault.root().join(".icecore/lock")).unwrap();
    let hurried = Vault::open_with_short_wait(vault.root()).unwrap();
    lock.lock().unwrap();
    let began = Instant::now();
    thread::scope(|scope| {
        for n in 0..12 {
            let hurried = &hurried;
            scope.spawn(move || {
                assert!(matches!(
                    block_on(hurried.append(vec![draft(&format!("{n}"))], None)),
                    Err(Error { kind: ErrorKind::Busy, .. })
                ));
            });
        }
    });
    assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
}
