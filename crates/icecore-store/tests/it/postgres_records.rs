//! Records in PostgreSQL: stored once, from any number of writers and through any failure, and byte
//! for byte as in a vault.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use icecore_domain::calendar::{Days, Moment};
use icecore_domain::event::Origin;
use icecore_domain::forget::{Needles, Scrub};
use icecore_domain::hash::Hash;
use icecore_domain::layout::DocPath;
use icecore_domain::record::{self, Record, RecordKey, RecordKind, Role};
use icecore_store::postgres::{Postgres, Space};
use icecore_store::prelude::*;
use icecore_store::testing::cluster::{Durability, TestCluster};
use icecore_store::vault::Vault;
use icecore_store::{ContentVersion, ScrubOutcome};
use pollster::block_on;

use crate::postgres::migrated_database;

const CONFIG: &str = "zone = \"UTC\"\n";

fn space(home: &Arc<Postgres>, name: &str) -> Arc<Space> {
    block_on(home.create_space(name, CONFIG)).unwrap()
}

fn path(text: &str) -> DocPath {
    text.parse().unwrap()
}

pub fn record(id: &str, day: u32, text: &str) -> Record {
    let ts = Moment::parse(&format!("2026-02-{:02}T09:{:02}:00+01:00", 1 + day % 28, day % 60))
        .unwrap()
        .moment;
    Record {
        ts,
        conversation: "work".into(),
        session: None,
        id: id.into(),
        role: Role::User,
        name: None,
        other_speaker: None,
        kind: RecordKind::Message,
        title: None,
        text: text.into(),
        parts: None,
        origin: Origin::User,
        captured: ts,
        extra: Vec::new(),
        withdrawn: false,
    }
}

fn all_days() -> Days {
    Days { first: "2026-01-01".parse().unwrap(), last: "2026-12-31".parse().unwrap() }
}

/// Every document with records.
async fn documents(store: &dyn Store) -> BTreeMap<DocPath, Vec<u8>> {
    let mut found = BTreeMap::new();
    for folder in ["memory/messages", "memory/snapshots"] {
        for path in store.documents(folder).await.unwrap() {
            let bytes = store.document(&path).await.unwrap().unwrap();
            found.insert(path, bytes);
        }
    }
    found
}

async fn failures(store: &dyn Store) -> Vec<String> {
    store
        .inspect()
        .await
        .unwrap()
        .into_iter()
        .filter(|finding| finding.fails)
        .map(|finding| finding.what)
        .collect()
}

/// Pseudo-random numbers, the same in every run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }

    fn record(&mut self) -> Record {
        let conversation =
            ["work", "trip", "a \"quoted\"\\name", "with\0nothing", "ü/ä"][self.roll(5) as usize];
        let session = [None, None, Some("s1"), Some("\0"), Some("zwei")][self.roll(5) as usize];
        let day = self.roll(4) as u32;
        let minutes = self.roll(30);
        let mut record =
            record(&format!("m{}", self.roll(24)), day, &"word ".repeat(self.roll(4) as usize));
        record.ts = Moment::parse(&format!("2026-02-{:02}T09:{minutes:02}:00+01:00", 10 + day))
            .unwrap()
            .moment;
        record.captured =
            Moment::parse(&format!("2026-03-{:02}T09:00:00Z", 1 + self.roll(20))).unwrap().moment;
        record.kind = if self.roll(5) == 0 { RecordKind::State } else { RecordKind::Message };
        record.extra = if self.roll(3) == 0 {
            vec![("turn".into(), self.roll(90).to_string())]
        } else {
            Vec::new()
        };
        Record { conversation: conversation.into(), session: session.map(str::to_owned), ..record }
    }
}

// L2
#[test]
fn both_homes_write_the_same_bytes_and_derive_the_same() {
    let cluster = TestCluster::start(Durability::Unflushed);
    let home = migrated_database(&cluster);
    let folder = tempfile::tempdir().unwrap();
    let vault = Vault::create(folder.path(), CONFIG).unwrap();
    let space = space(&home, "both");
    let mut dice = Dice(7);
    block_on(async {
        for turn in 0..60 {
            match dice.roll(8) {
                // Replaces a document, appends to it, or removes it.
                0 if turn > 10 => {
                    let there: Vec<DocPath> = documents(&vault).await.into_keys().collect();
                    let one = &there[dice.roll(there.len() as u64) as usize];
                    let bytes = vault.document(one).await.unwrap().unwrap();
                    let own = Record {
                        conversation: "by hand".into(),
                        ..record(&format!("{turn}"), 0, "own\0words")
                    };
                    let mut own = own.to_line().into_bytes();
                    own.extend_from_slice(b"no record\n\n");
                    for store in [&vault as &dyn Store, &*space] {
                        match turn % 3 {
                            0 => store.put(one, &[&bytes[..], &own].concat()).await.unwrap(),
                            1 => store
                                .append_if_unchanged(one, &own, ContentVersion::of(Some(&bytes)))
                                .await
                                .unwrap(),
                            _ => store.remove(one).await.unwrap(),
                        }
                    }
                }
                1 if turn > 10 => {
                    let conversation = dice.record().conversation;
                    let days = Days {
                        first: "2026-02-10".parse().unwrap(),
                        last: format!("2026-02-1{}", dice.roll(3)).parse().unwrap(),
                    };
                    let gone = (
                        vault.forget_records(days, &conversation).await.unwrap(),
                        space.forget_records(days, &conversation).await.unwrap(),
                    );
                    assert_eq!(gone.0, gone.1);
                }
                _ => {
                    let batch: Vec<Record> =
                        (0..1 + dice.roll(12)).map(|_| dice.record()).collect();
                    assert_eq!(
                        vault.add_records(batch.clone()).await.unwrap(),
                        space.add_records(batch).await.unwrap(),
                        "{turn}"
                    );
                }
            }
            assert_eq!(documents(&vault).await, documents(&*space).await, "{turn}");
            assert_eq!(
                vault.sessions(None).await.unwrap(),
                space.sessions(None).await.unwrap(),
                "{turn}"
            );
            assert_eq!(failures(&*space).await, [""; 0], "{turn}");
        }
        assert_eq!(
            vault.records(all_days()).await.unwrap(),
            space.records(all_days()).await.unwrap()
        );
        assert_eq!(vault.record_days().await.unwrap(), space.record_days().await.unwrap());
        assert_eq!(vault.bad_records().await.unwrap(), space.bad_records().await.unwrap());
        for conversation in ["work", "trip", "a \"quoted\"\\name", "with\0nothing", "ü/ä"] {
            for most in [0, 1, 3, usize::MAX] {
                let (theirs, ours) = (
                    vault.recent_records(conversation, most).await.unwrap(),
                    space.recent_records(conversation, most).await.unwrap(),
                );
                assert_eq!(theirs, ours, "{conversation:?} {most}");
            }
            let (theirs, ours) = (
                vault.conversation_digest(conversation, all_days()).await.unwrap(),
                space.conversation_digest(conversation, all_days()).await.unwrap(),
            );
            assert_eq!(theirs, ours);
        }
        let sessions = space.sessions(None).await.unwrap();
        space.rebuild(&|_, _| {}).await.unwrap();
        assert_eq!(
            (space.sessions(None).await.unwrap(), failures(&*space).await),
            (sessions, Vec::new())
        );
    });
}

// L12
#[test]
fn what_is_derived_and_says_something_else_is_found_and_mended() {
    let cluster = TestCluster::start(Durability::Unflushed);
    let home = migrated_database(&cluster);
    let space = space(&home, "one");
    let other = block_on(home.create_space("other", CONFIG)).unwrap();
    block_on(async {
        for store in [&space, &other] {
            store
                .add_records(vec![
                    record("a", 1, "one"),
                    record("b", 1, "two"),
                    record("c", 2, "three"),
                ])
                .await
                .unwrap();
            store.put(&path("knowledge/x.md"), b"a page without an end").await.unwrap();
        }
        for harm in [
            "DELETE FROM icecore.record WHERE key = (SELECT key FROM icecore.record ORDER BY key LIMIT 1)",
            "UPDATE icecore.record SET wording = key",
            "UPDATE icecore.session SET bytes = bytes + 1",
            "DELETE FROM icecore.session",
            "INSERT INTO icecore.session SELECT space_id, day, conversation, session, 'memory/messages/2020-01-01.jsonl', records, states, bytes, sum, \
             first, last, captured, turn FROM icecore.session JOIN icecore.space USING (space_id) WHERE name = 'one' LIMIT 1",
        ] {
            cluster.sql(harm);
            assert_ne!(failures(&*space).await, [""; 0], "{harm}");
            space.rebuild(&|_, _| {}).await.unwrap();
            assert_eq!(failures(&*space).await, [""; 0], "{harm}");
            other.rebuild(&|_, _| {}).await.unwrap();
        }
        assert_eq!(
            space
                .contains_records(&[record("a", 1, "").key(), record("z", 1, "").key()])
                .await
                .unwrap(),
            [true, false]
        );
        for (harm, undone) in [
            (
                "UPDATE icecore.document SET length = length + 1",
                "UPDATE icecore.document SET length = length - 1",
            ),
            (
                "UPDATE icecore.document SET ended = NOT ended",
                "UPDATE icecore.document SET ended = NOT ended",
            ),
            (
                "INSERT INTO icecore.chunk (space_id, path, at, version, bytes) SELECT space_id, 'nowhere.md', 0, 1, 'x' FROM icecore.space",
                "DELETE FROM icecore.chunk WHERE path = 'nowhere.md'",
            ),
        ] {
            cluster.sql(harm);
            assert_ne!(failures(&*space).await, [""; 0], "{harm}");
            cluster.sql(undone);
            assert_eq!(failures(&*space).await, [""; 0], "{harm}");
        }
    });
}

// L2
#[test]
fn a_record_that_stands_in_two_documents_is_known_as_long_as_one_has_it() {
    let cluster = TestCluster::start(Durability::Unflushed);
    let space = space(&migrated_database(&cluster), "one");
    let (first, second) =
        (path("memory/messages/2026-02-02.jsonl"), path("memory/messages/2026-02-03.jsonl"));
    block_on(async {
        let lines = record("a", 1, "one").to_line() + &record("b", 1, "two").to_line();
        space
            .put_many(&[
                (first.clone(), lines.clone().into_bytes()),
                (second.clone(), lines.into_bytes()),
            ])
            .await
            .unwrap();
        assert_eq!(failures(&*space).await, [""; 0]);
        space.remove(&first).await.unwrap();
        assert_eq!(failures(&*space).await, [""; 0]);
        let added = space
            .add_records(vec![
                record("a", 1, "one"),
                record("b", 1, "other words"),
                record("b", 9, "other words"),
            ])
            .await
            .unwrap();
        assert_eq!((added.new, added.same, added.revised.len()), (0, 2, 1));
        // The revision went where the original is, and nothing is left where it was looked for.
        let there: Vec<DocPath> = documents(&*space).await.into_keys().collect();
        assert_eq!(there, [second]);
    });
}

/// How often each text of each record occurs in the documents.
async fn copies(store: &dyn Store) -> HashMap<(RecordKey, RecordKey), usize> {
    let mut found = HashMap::new();
    for bytes in documents(store).await.into_values() {
        for line in bytes.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()) {
            let record = record::parse_line(line).unwrap();
            *found.entry((record.key(), record.wording_hash())).or_default() += 1;
        }
    }
    found
}

// L2
#[test]
fn two_processes_that_bring_the_same_keep_it_once() {
    let cluster = TestCluster::start(Durability::Unflushed);
    let homes = [migrated_database(&cluster), migrated_database(&cluster)];
    space(&homes[0], "one");
    let threads: Vec<_> = (0..8_u32)
        .map(|nth| {
            let space = block_on(homes[nth as usize % 2].open_space("one")).unwrap().unwrap();
            std::thread::spawn(move || {
                let mut dice = Dice(u64::from(nth));
                let mut new = 0;
                for turn in 0..40_u32 {
                    // The same ids from every writer, on other days and in another order.
                    let mut batch: Vec<Record> = (0..3)
                        .map(|n| record(&format!("t{turn}-{n}"), dice.roll(9) as u32, "same words"))
                        .collect();
                    batch.push(record(&format!("own {nth}-{turn}"), nth, "mine"));
                    batch.push(record("revised", nth, &format!("{nth} {turn}")));
                    if dice.roll(2) == 0 {
                        batch.reverse();
                    }
                    new += block_on(space.add_records(batch)).unwrap().new;
                }
                new
            })
        })
        .collect();
    let new: usize = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
    let space = block_on(homes[0].open_space("one")).unwrap().unwrap();
    assert_eq!(new, 40 * 3 + 8 * 40 + 1);
    let copies = block_on(copies(&*space));
    assert_eq!(copies.values().filter(|&&many| many > 1).count(), 0);
    assert_eq!(copies.len(), 40 * 3 + 8 * 40 + 8 * 40);
    assert_eq!(block_on(failures(&*space)), [""; 0]);
}

// L2
#[test]
fn a_server_that_was_killed_has_what_it_acknowledged_once() {
    let cluster = TestCluster::start(Durability::Flushed);
    let home = migrated_database(&cluster);
    let space = space(&home, "one");
    let stop = Arc::new(AtomicBool::new(false));
    let threads: Vec<_> = (0..4_u32)
        .map(|nth| {
            let (space, stop) = (space.clone(), stop.clone());
            std::thread::spawn(move || {
                let mut acknowledged = BTreeSet::new();
                for turn in 0_u32.. {
                    let id = format!("{nth}-{turn}");
                    // Writers without an answer try again.
                    while block_on(space.add_records(vec![
                        record(&id, turn % 3, "words"),
                        record(&format!("{id} too"), turn % 3, "more"),
                    ]))
                    .is_err()
                    {}
                    acknowledged.extend([id.clone(), format!("{id} too")]);
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                }
                acknowledged
            })
        })
        .collect();
    for _ in 0..2 {
        std::thread::sleep(Duration::from_millis(400));
        cluster.kill();
        std::thread::sleep(Duration::from_millis(100));
        cluster.start_again();
    }
    std::thread::sleep(Duration::from_millis(400));
    stop.store(true, Ordering::Relaxed);
    let acknowledged: BTreeSet<String> =
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
    block_on(async {
        let kept = space.records(all_days()).await.unwrap();
        assert_eq!(
            kept.iter().map(|record| record.id.clone()).collect::<BTreeSet<_>>(),
            acknowledged
        );
        assert!(copies(&*space).await.values().all(|&many| many == 1));
        assert_eq!(failures(&*space).await, [""; 0]);
    });
}

// Y1
#[test]
fn what_is_forgotten_leaves_documents_notes_and_what_is_derived() {
    let cluster = TestCluster::start(Durability::Unflushed);
    let home = migrated_database(&cluster);
    let (space, other) = (space(&home, "one"), space(&home, "other"));
    block_on(async {
        let (log, config) = (path("hooks/log.jsonl"), path("icecore.toml"));
        for store in [&space, &other] {
            store
                .add_records(vec![
                    record("a", 1, "the launch code is 7"),
                    record("b", 1, "tea"),
                    record("c", 2, "gone"),
                ])
                .await
                .unwrap();
            store
                .put(&path("knowledge/launch-code.md"), b"a page that is called so\n")
                .await
                .unwrap();
            store.put(&path("elsewhere/x.md"), b"the launch code\n").await.unwrap();
            store.put(&config, b"# launch code\nzone = \"UTC\"\n").await.unwrap();
            store
                .put_note(&log, b"{\"said\":\"launch code\"}\n{\"said\":\"tea\"}\n")
                .await
                .unwrap();
            store
                .quarantine(&path("memory/ledger.jsonl"), 7, b"{\"torn launch code")
                .await
                .unwrap();
            store.quarantine(&path("memory/ledger.jsonl"), 9, b"{\"torn tea").await.unwrap();
            store.cache_answer(Hash::of(b"q"), b"a paraphrase").await.unwrap();
            let seen = store.changed_since_seen(std::slice::from_ref(&config)).await.unwrap();
            store.mark_seen(&seen).await.unwrap();
        }
        let before = documents(&*space).await;
        let scrub = Scrub { needles: Needles::from_texts(&["launch code"]), ..Scrub::default() };
        let would = space.scrub(&scrub, true).await.unwrap();
        assert_eq!(
            (
                documents(&*space).await,
                space.cached_answer(Hash::of(b"q")).await.unwrap().is_some()
            ),
            (before, true)
        );
        assert_eq!(space.scrub(&scrub, false).await.unwrap(), would);
        let mut became: Vec<(&str, ScrubOutcome)> =
            would.iter().map(|one| (one.path.as_str(), one.outcome)).collect();
        became.retain(|(path, _)| {
            !path.starts_with(".icecore/answers/") && !path.starts_with(".icecore/quarantine/")
        });
        assert_eq!(
            became,
            [
                (".icecore/notes/hooks/log.jsonl", ScrubOutcome::Changed(1)),
                ("elsewhere/x.md", ScrubOutcome::Untouched),
                ("icecore.toml", ScrubOutcome::Untouched),
                ("knowledge/launch-code.md", ScrubOutcome::Removed),
                ("memory/messages/2026-02-02.jsonl", ScrubOutcome::Changed(1)),
            ]
        );
        assert_eq!(would.len(), became.len() + 2);
        assert_eq!(
            space.note(&log).await.unwrap().unwrap(),
            b"{\"said\":\"[forgotten]\"}\n{\"said\":\"tea\"}\n"
        );
        // Only files that a person has to change still contain it.
        let still = |id: &str| {
            let words = "convert_from(bytes, 'UTF8') ILIKE '%launch%'";
            let one = |table: &str| {
                format!("SELECT count(*) FROM icecore.{table} WHERE space_id = '{id}' AND {words}")
            };
            cluster.sql(&format!(
                "SELECT ({}) + ({}) + ({})",
                one("chunk"),
                one("note"),
                one("aside")
            ))
        };
        let id = |name: &str| {
            cluster.sql(&format!("SELECT space_id FROM icecore.space WHERE name = '{name}'"))
        };
        assert_eq!((still(&id("one")), still(&id("other"))), ("2".to_owned(), "5".to_owned()));
        assert_eq!(
            space
                .contains_records(&[record("a", 1, "").key(), record("c", 1, "").key()])
                .await
                .unwrap(),
            [true, true]
        );
        assert_eq!(failures(&*space).await, [""; 0]);
        // What is left to a person is reported again; everything else is done.
        assert!(
            space
                .scrub(&scrub, false)
                .await
                .unwrap()
                .iter()
                .all(|one| one.outcome == ScrubOutcome::Untouched)
        );
        // Deleting a whole conversation removes its lines.
        let key = record("b", 1, "").key();
        let scrub = Scrub {
            records: [key].into(),
            conversations: ["work".to_owned()].into(),
            ..Scrub::default()
        };
        space.scrub(&scrub, false).await.unwrap();
        assert_eq!(space.contains_records(&[key]).await.unwrap(), [false]);
        assert_eq!(failures(&*space).await, [""; 0]);
    });
}
