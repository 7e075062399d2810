//! Snapshots in a database, and what happens to them when something is forgotten.

use std::sync::Arc;

use icecore_domain::forget::{Needles, Scrub};
use icecore_store::postgres::Space;
use icecore_store::prelude::*;
use icecore_store::testing::cluster::{Durability, TestCluster};
use icecore_store::{Error, ErrorKind, RewriteReport, Snapshot};
use jiff::Timestamp;
use pollster::block_on;

use crate::postgres::{draft, migrated_database};

fn now() -> Timestamp {
    "2026-02-13T09:30:00Z".parse().unwrap()
}

fn new_space() -> (TestCluster, Arc<Space>) {
    let cluster = TestCluster::start(Durability::Unflushed);
    let space =
        block_on(migrated_database(&cluster).create_space("x", "zone = \"UTC\"\n")).unwrap();
    (cluster, space)
}

fn put(space: &Space, path: &str, bytes: &[u8]) {
    block_on(space.put(&path.parse().unwrap(), bytes)).unwrap();
}

fn snap(space: &Space, note: &str) -> Option<Snapshot> {
    block_on(space.create_snapshot(note, now())).unwrap()
}

fn notes(snapshots: Vec<Snapshot>) -> Vec<String> {
    snapshots.into_iter().map(|snapshot| snapshot.note).collect()
}

fn then(space: &Space, id: &str, path: &str) -> Option<Vec<u8>> {
    block_on(space.document_at(id, &path.parse().unwrap())).unwrap()
}

// L16
#[test]
fn a_snapshot_knows_what_changed_since() {
    let (_cluster, space) = new_space();
    assert!(block_on(space.check_available()).is_ok());
    assert_eq!(block_on(space.snapshots(10)).unwrap(), []);
    let page = "knowledge/entities/apollo.md";
    put(&space, page, b"first\r\n");
    // What a vault's repository ignores, and what is not the vault's.
    put(&space, "memory/messages/2026-02-13.jsonl", b"a message\n");
    put(&space, "conversations/work/turn.md", b"a turn\n");
    put(&space, "elsewhere/x.md", b"not ours");
    let first = snap(&space, "first").unwrap();
    assert_eq!(snap(&space, "nothing new"), None);
    put(&space, "memory/messages/2026-02-13.jsonl", b"another message\n");
    put(&space, page, b"first\r\n");
    assert_eq!(snap(&space, "written again, the same"), None);
    put(&space, page, b"second\n");
    put(&space, "recall/pack.md", b"pack");
    block_on(space.append(vec![draft("one")], None)).unwrap();
    let second = snap(&space, "second\nwith a break").unwrap();
    assert_eq!(block_on(space.snapshots(10)).unwrap(), [second.clone(), first.clone()]);
    assert_eq!(block_on(space.snapshots(1)).unwrap(), std::slice::from_ref(&second));
    assert_eq!((second.note.as_str(), second.at), ("second with a break", now()));
    let changes = |id: &str| block_on(space.changes_since(id)).unwrap();
    let told = changes(&first.id);
    let told: Vec<(&str, Option<&[u8]>)> =
        told.iter().map(|(path, then)| (path.as_str(), then.as_deref())).collect();
    let expected = [
        (page, Some(b"first\r\n".as_slice())),
        ("memory/ledger.jsonl", Some(b"".as_slice())),
        ("recall/pack.md", None),
    ];
    assert_eq!(told, expected);
    assert_eq!(changes(&second.id), []);
    // What is not in a snapshot yet counts too, and so does what was removed.
    put(&space, "recall/new.md", b"new");
    block_on(space.remove(&page.parse().unwrap())).unwrap();
    let told: Vec<(String, bool)> = changes(&second.id)
        .into_iter()
        .map(|(path, then)| (path.to_string(), then.is_some()))
        .collect();
    assert_eq!(told, [(page.to_owned(), true), ("recall/new.md".to_owned(), false)]);
    let third = snap(&space, "third").unwrap();
    let versions =
        |path: &str| notes(block_on(space.document_versions(&path.parse().unwrap(), 10)).unwrap());
    assert_eq!(versions(page), ["third", "second with a break", "first"]);
    assert_eq!(versions("recall/pack.md"), ["second with a break"]);
    assert!(versions("recall/nothing.md").is_empty());
    assert_eq!(then(&space, &first.id, page).as_deref(), Some(b"first\r\n".as_slice()));
    assert_eq!(then(&space, &second.id[..12], page).as_deref(), Some(b"second\n".as_slice()));
    assert_eq!(then(&space, &third.id, page), None);
    assert_eq!(then(&space, &first.id[..12].to_ascii_uppercase(), "recall/pack.md"), None);
    assert_eq!(then(&space, &third.id, "recall/pack.md").as_deref(), Some(b"pack".as_slice()));
    assert_eq!(then(&space, &third.id, "memory/messages/2026-02-13.jsonl"), None);
    for odd in ["--output=x", "HEAD", "", "0000000", "%", &first.id[..3]] {
        assert!(
            matches!(
                block_on(space.document_at(odd, &page.parse().unwrap())),
                Err(Error { kind: ErrorKind::NoSnapshots, .. })
            ),
            "{odd}"
        );
        assert!(
            matches!(
                block_on(space.changes_since(odd)),
                Err(Error { kind: ErrorKind::NoSnapshots, .. })
            ),
            "{odd}"
        );
    }
    assert_eq!(block_on(space.repair()).unwrap(), Vec::<String>::new());
}

// L16
#[test]
fn a_snapshot_is_of_one_moment_and_made_by_one() {
    let cluster = TestCluster::start(Durability::Unflushed);
    let (one, other) = (migrated_database(&cluster), migrated_database(&cluster));
    block_on(one.create_space("x", "zone = \"UTC\"\n")).unwrap();
    let spaces = [&one, &other].map(|home| block_on(home.open_space("x")).unwrap().unwrap());
    // Both pages are always written together; a snapshot with only one of them mixes two moments.
    let paths = ["knowledge/a.md", "knowledge/b.md"];
    let writers = spaces.clone().map(|space| {
        std::thread::spawn(move || {
            for n in 0..20 {
                let text = format!("{n}").into_bytes();
                let both: Vec<_> =
                    paths.iter().map(|path| (path.parse().unwrap(), text.clone())).collect();
                block_on(space.put_many(&both)).unwrap();
            }
        })
    });
    let makers = spaces.clone().map(|space| {
        std::thread::spawn(move || (0..15).filter_map(|n| snap(&space, &format!("{n}"))).count())
    });
    writers.into_iter().for_each(|thread| thread.join().unwrap());
    let made: usize = makers.into_iter().map(|thread| thread.join().unwrap()).sum();
    let all = block_on(spaces[0].snapshots(100)).unwrap();
    assert_eq!(all.len(), made);
    for snapshot in &all {
        assert_eq!(
            then(&spaces[1], &snapshot.id, paths[0]),
            then(&spaces[1], &snapshot.id, paths[1]),
            "{}",
            snapshot.note
        );
    }
}

// Y1, L16
#[test]
fn what_is_forgotten_is_in_no_snapshot() {
    let (cluster, space) = new_space();
    assert_eq!(
        block_on(space.rewrite_snapshots(&Scrub::default())).unwrap(),
        RewriteReport::default()
    );
    let (page, other) = ("knowledge/x.md", "knowledge/y.md");
    put(&space, other, b"harmless\n");
    let first = snap(&space, "before").unwrap();
    put(&space, page, b"a\nlaunch code\nb\n");
    let second = snap(&space, "with the launch code").unwrap();
    block_on(space.append(vec![draft("The Launch  code is 7")], None)).unwrap();
    snap(&space, "ledger too").unwrap();
    block_on(space.remove(&page.parse().unwrap())).unwrap();
    block_on(space.append(vec![draft("Tea is green")], None)).unwrap();
    snap(&space, "page gone").unwrap();
    let scrub = Scrub { needles: Needles::from_texts(&["launch code"]), ..Scrub::default() };
    assert_eq!(block_on(space.count_containing(&scrub)).unwrap(), (3, 4));
    // The page, the ledger twice, a note.
    assert_eq!(
        block_on(space.rewrite_snapshots(&scrub)).unwrap(),
        RewriteReport { snapshots: 4, files: 4 }
    );
    assert_eq!(block_on(space.count_containing(&scrub)).unwrap(), (0, 4));
    let all = block_on(space.snapshots(10)).unwrap();
    assert_eq!(notes(all.clone()), ["page gone", "ledger too", "[forgotten]", "before"]);
    assert_eq!(all[3], first, "what had nothing of it is what it was");
    assert_ne!(all[2].id, second.id);
    assert!(block_on(space.changes_since(&second.id)).is_err());
    assert_eq!(then(&space, &all[2].id, page).as_deref(), Some(b"a\n[forgotten]\nb\n".as_slice()));
    assert_eq!(then(&space, &all[0].id, page), None);
    assert_eq!(
        cluster.sql("SELECT count(*) FROM icecore.blob WHERE position('code'::bytea in bytes) > 0"),
        "0"
    );
    // The ledger still contains it, so the next snapshot does too.
    assert_eq!(
        block_on(space.changes_since(&all[0].id)).unwrap()[0].0.as_str(),
        "memory/ledger.jsonl"
    );
    block_on(space.replace_ledger(
        &then(&space, &all[0].id, "memory/ledger.jsonl").unwrap(),
        block_on(space.position()).unwrap(),
    ))
    .unwrap();
    assert_eq!(snap(&space, "as it is in the past"), None);
    // Only a rewrite may change snapshots.
    let refused = |sql: &str| {
        let text = format!("BEGIN; SET LOCAL ROLE icecore_app; {sql}; COMMIT");
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| cluster.sql(&text))).is_err()
    };
    for sql in [
        "SELECT icecore.clear_snapshots()",
        "DELETE FROM icecore.snapshot",
        "DELETE FROM icecore.blob",
        "UPDATE icecore.kept SET number = 0",
    ] {
        assert!(refused(sql), "{sql}");
    }
    assert!(!refused("SELECT count(*) FROM icecore.snapshot"), "else this proves nothing");
}

// Y1
#[test]
fn snapshots_go_with_their_space_and_nobody_elses() {
    let cluster = TestCluster::start(Durability::Unflushed);
    let home = migrated_database(&cluster);
    let spaces =
        ["one", "two"].map(|name| block_on(home.create_space(name, "zone = \"UTC\"\n")).unwrap());
    let ids = spaces.each_ref().map(|space| snap(space, "x").unwrap().id);
    assert_eq!(ids[0], ids[1], "the same words in two spaces");
    put(&spaces[0], "recall/pack.md", b"pack");
    snap(&spaces[0], "y").unwrap();
    assert_eq!(block_on(spaces[1].snapshots(9)).unwrap().len(), 1);
    assert!(block_on(home.erase_space("one")).unwrap());
    for table in ["snapshot", "kept", "blob", "newest"] {
        assert_eq!(
            cluster.sql(&format!("SELECT count(DISTINCT space_id) FROM icecore.{table}")),
            "1",
            "{table}"
        );
    }
    assert_eq!(block_on(spaces[1].snapshots(9)).unwrap().len(), 1);
    let again = block_on(home.create_space("one", "zone = \"UTC\"\n")).unwrap();
    assert_eq!(block_on(again.snapshots(9)).unwrap(), []);
    snap(&again, "anew").unwrap();
}
