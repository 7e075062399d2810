//! Turn leases between processes, and spaces that are erased while in use.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use icecore_store::postgres::{Postgres, PostgresOptions, Space};
use icecore_store::prelude::*;
use icecore_store::testing::cluster::{Durability, TestCluster};
use icecore_store::{Error, ErrorKind};
use pollster::block_on;

use crate::postgres_records::record;

const LONG: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(150);

fn wait_past(lease: Duration) {
    std::thread::sleep(lease + Duration::from_millis(50));
}

async fn migrated_database(cluster: &TestCluster) -> Arc<Postgres> {
    let home = Postgres::for_url(&cluster.url(), PostgresOptions::default()).unwrap();
    home.migrate().await.unwrap();
    home
}

/// Appends a pending exchange of the conversation `work`.
async fn append_exchange(space: &Space, id: &str, lease: Duration) -> Result<(), Error> {
    space.append_pending(vec![record(id, 1, "hi")], lease).await.map(|_| ())
}

// C8
#[test]
fn a_conversation_is_remembered_by_one_at_a_time_and_awaited_no_longer_than_a_lease() {
    let cluster = TestCluster::start(Durability::Unflushed);
    block_on(async {
        let home = migrated_database(&cluster).await;
        let space = home.create_space("chat/ann", "zone = \"UTC\"\n").await.unwrap();
        assert!(!space.has_pending("work").await.unwrap());
        append_exchange(&space, "m1", LONG).await.unwrap();
        assert!(
            space.has_pending("work").await.unwrap() && !space.has_pending("other").await.unwrap()
        );
        // One process has the lease, and may acquire it again.
        assert_eq!(space.acquire("work", "one", LONG).await.unwrap(), Some(1));
        assert_eq!(space.acquire("work", "one", LONG).await.unwrap(), Some(1));
        assert_eq!(space.acquire("work", "other", LONG).await.unwrap(), None);
        // What is appended meanwhile stays pending when the first is done.
        append_exchange(&space, "m2", LONG).await.unwrap();
        space.release("work", "one", 1, None).await.unwrap();
        assert!(space.has_pending("work").await.unwrap());
        assert_eq!(space.acquire("work", "other", LONG).await.unwrap(), Some(2));
        space.release("work", "other", 2, None).await.unwrap();
        assert!(!space.has_pending("work").await.unwrap());
        assert_eq!(cluster.sql("SELECT count(*) FROM icecore.waiting"), "0");

        // A dead holder is waited for no longer than its lease, then another takes over.
        append_exchange(&space, "m3", SHORT).await.unwrap();
        assert_eq!(space.acquire("work", "one", SHORT).await.unwrap(), Some(1));
        assert_eq!(home.acquire_abandoned("chat", 10, LONG).await.unwrap(), []);
        wait_past(SHORT);
        assert!(!space.has_pending("work").await.unwrap());
        let left = vec![("chat/ann".to_owned(), "work".to_owned())];
        assert_eq!(home.acquire_abandoned("else", 10, LONG).await.unwrap(), []);
        assert_eq!(home.acquire_abandoned("chat", 10, LONG).await.unwrap(), left);
        assert_eq!(
            home.acquire_abandoned("chat", 10, LONG).await.unwrap(),
            [],
            "each is given to one process"
        );
        assert_eq!(space.acquire("work", "other", LONG).await.unwrap(), Some(1));
        // The first holder comes back: the lease stays with the second.
        space.release("work", "one", 1, None).await.unwrap();
        assert_eq!(space.acquire("work", "one", LONG).await.unwrap(), None);

        // A failed turn is retried later, and turns do not wait for it.
        space.release("work", "other", 1, Some(SHORT)).await.unwrap();
        assert!(!space.has_pending("work").await.unwrap());
        assert_eq!(home.acquire_abandoned("chat", 10, LONG).await.unwrap(), []);
        wait_past(SHORT);
        assert_eq!(home.acquire_abandoned("chat", 10, LONG).await.unwrap(), left);
    });
}

// C8: when nothing is pending, everything that was stored has been summarized
#[test]
fn nothing_that_was_kept_is_taken_for_remembered() {
    const WRITERS: usize = 3;
    const EXCHANGES: usize = 40;
    let cluster = TestCluster::start(Durability::Unflushed);
    let home = block_on(migrated_database(&cluster));
    let space = block_on(home.create_space("chat", "zone = \"UTC\"\n")).unwrap();
    let remembered = Mutex::new(BTreeSet::new());
    std::thread::scope(|scope| {
        let write = |writer: usize| {
            let (space, remembered) = (&space, &remembered);
            scope.spawn(move || {
                for nth in 0..EXCHANGES {
                    let id = format!("{writer}-{nth}");
                    block_on(append_exchange(space, &id, LONG)).unwrap();
                    if !block_on(space.has_pending("work")).unwrap() {
                        assert!(
                            remembered.lock().unwrap().contains(&id),
                            "{id} is neither awaited nor remembered"
                        );
                    }
                }
            })
        };
        let writers: Vec<_> = (0..WRITERS).map(write).collect();
        while !writers.iter().all(std::thread::ScopedJoinHandle::is_finished) {
            let known = block_on(space.acquire("work", "one", LONG)).unwrap().unwrap();
            let read = block_on(space.recent_records("work", usize::MAX)).unwrap();
            remembered.lock().unwrap().extend(read.into_iter().map(|record| record.id));
            block_on(space.release("work", "one", known, None)).unwrap();
        }
    });
    assert_eq!(
        block_on(space.recent_records("work", usize::MAX)).unwrap().len(),
        WRITERS * EXCHANGES
    );
}

// C14
#[test]
fn a_space_that_was_taken_away_comes_back_by_nobody_s_hand() {
    let cluster = TestCluster::start(Durability::Unflushed);
    block_on(async {
        let home = migrated_database(&cluster).await;
        for round in 0..5 {
            let space = home.create_space("ann", "zone = \"UTC\"\n").await.unwrap();
            let glance = home.space_fingerprint("ann").await.unwrap().unwrap();
            space
                .put(&"icecore.toml".parse().unwrap(), b"zone = \"Europe/Berlin\"\n")
                .await
                .unwrap();
            let changed = home.space_fingerprint("ann").await.unwrap().unwrap();
            assert!(glance != changed && glance.is_same_space(&changed));
            let writers: Vec<_> = (0..4)
                .map(|n| {
                    let space = space.clone();
                    std::thread::spawn(move || {
                        let deadline = Instant::now() + Duration::from_secs(60);
                        for nth in 0.. {
                            assert!(Instant::now() < deadline, "the space was never gone");
                            let path = format!("memory/state/{}.md", nth % 3).parse().unwrap();
                            match block_on(space.put(&path, format!("{n} {nth}\n").as_bytes())) {
                                Ok(()) | Err(Error { kind: ErrorKind::Conflict, .. }) => {}
                                Err(Error { kind: ErrorKind::SpaceErased, .. }) => return,
                                Err(error) => panic!("{error}"),
                            }
                        }
                    })
                })
                .collect();
            std::thread::sleep(Duration::from_millis(20 * round));
            assert!(home.erase_space("ann").await.unwrap());
            for writer in writers {
                writer.join().unwrap();
            }
            assert!(matches!(
                append_exchange(&space, "m4", LONG).await,
                Err(Error { kind: ErrorKind::SpaceErased, .. })
            ));
            assert!(matches!(
                space.put_note(&"a.txt".parse().unwrap(), b"x").await,
                Err(Error { kind: ErrorKind::SpaceErased, .. })
            ));
            for table in ["document", "chunk", "note", "waiting", "space"] {
                assert_eq!(
                    cluster.sql(&format!("SELECT count(*) FROM icecore.{table}")),
                    "0",
                    "{table}"
                );
            }
            assert!(
                home.space_fingerprint("ann").await.unwrap().is_none()
                    && !home.erase_space("ann").await.unwrap()
            );
        }
    });
}

// Child spaces, in an order that does not depend on the database's locale
#[test]
fn spaces_beneath_a_space_are_its_own() {
    let cluster = TestCluster::start(Durability::Unflushed);
    block_on(async {
        let home = migrated_database(&cluster).await;
        let names = ["a", "a/b", "a/B", "a/ä", "a b", "a-b/c", "aa/b", "b"];
        for name in names {
            home.create_space(name, "zone = \"UTC\"\n").await.unwrap();
        }
        assert_eq!(home.list_spaces_below("a").await.unwrap(), ["a/B", "a/b", "a/ä"]);
        assert_eq!(home.list_spaces_below("b").await.unwrap(), Vec::<String>::new());
        assert_eq!(home.list_spaces("", 100).await.unwrap().len(), names.len());
    });
}
