//! The order of turns between processes, and spaces that are taken away under somebody's hands.

use std::sync::Arc;
use std::time::Duration;

use icecore_store::postgres::{Options, Postgres};
use icecore_store::testing::cluster::{Cluster, Flush};
use icecore_store::{Error, Order, Store};
use pollster::block_on;

const LONG: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(150);

fn past(lease: Duration) {
    std::thread::sleep(lease + Duration::from_millis(50));
}

async fn home(cluster: &Cluster) -> Arc<Postgres> {
    let home = Postgres::at(&cluster.url(), Options::default()).unwrap();
    home.migrate().await.unwrap();
    home
}

// C8
#[test]
fn a_conversation_is_remembered_by_one_at_a_time_and_awaited_no_longer_than_a_lease() {
    let cluster = Cluster::start(Flush::No);
    block_on(async {
        let home = home(&cluster).await;
        let space = home.create("chat/ann", "zone = \"UTC\"\n").await.unwrap();
        assert!(!space.is_awaited("talk").await.unwrap());
        space.announce("talk", LONG).await.unwrap();
        assert!(space.is_awaited("talk").await.unwrap() && !space.is_awaited("other").await.unwrap());
        // One has it; who has it may take it again.
        assert_eq!(space.take("talk", "one", LONG).await.unwrap(), Some(1));
        assert_eq!(space.take("talk", "one", LONG).await.unwrap(), Some(1));
        assert_eq!(space.take("talk", "other", LONG).await.unwrap(), None);
        // What is announced meanwhile stays awaited when the first is done.
        space.announce("talk", LONG).await.unwrap();
        space.release("talk", "one", 1, None).await.unwrap();
        assert!(space.is_awaited("talk").await.unwrap());
        assert_eq!(space.take("talk", "other", LONG).await.unwrap(), Some(2));
        space.release("talk", "other", 2, None).await.unwrap();
        assert!(!space.is_awaited("talk").await.unwrap());
        assert_eq!(cluster.sql("SELECT count(*) FROM icecore.waiting"), "0");

        // Whoever dies is waited for no longer than their lease, and another takes over.
        space.announce("talk", SHORT).await.unwrap();
        assert_eq!(space.take("talk", "one", SHORT).await.unwrap(), Some(1));
        assert_eq!(home.unremembered("chat", 10, LONG).await.unwrap(), []);
        past(SHORT);
        assert!(!space.is_awaited("talk").await.unwrap());
        let left = vec![("chat/ann".to_owned(), "talk".to_owned())];
        assert_eq!(home.unremembered("else", 10, LONG).await.unwrap(), []);
        assert_eq!(home.unremembered("chat", 10, LONG).await.unwrap(), left);
        assert_eq!(home.unremembered("chat", 10, LONG).await.unwrap(), [], "each is given to one process");
        assert_eq!(space.take("talk", "other", LONG).await.unwrap(), Some(1));
        // The first comes back to life: what is the other's stays the other's.
        space.release("talk", "one", 1, None).await.unwrap();
        assert_eq!(space.take("talk", "one", LONG).await.unwrap(), None);

        // Something that failed is looked at again later, and nobody waits for it.
        space.release("talk", "other", 1, Some(SHORT)).await.unwrap();
        assert!(!space.is_awaited("talk").await.unwrap());
        assert_eq!(home.unremembered("chat", 10, LONG).await.unwrap(), []);
        past(SHORT);
        assert_eq!(home.unremembered("chat", 10, LONG).await.unwrap(), left);
    });
}

// C14
#[test]
fn a_space_that_was_taken_away_comes_back_by_nobody_s_hand() {
    let cluster = Cluster::start(Flush::No);
    block_on(async {
        let home = home(&cluster).await;
        for round in 0..5 {
            let space = home.create("ann", "zone = \"UTC\"\n").await.unwrap();
            let glance = home.glance("ann").await.unwrap().unwrap();
            space.put(&"icecore.toml".parse().unwrap(), b"zone = \"Europe/Berlin\"\n").await.unwrap();
            let changed = home.glance("ann").await.unwrap().unwrap();
            assert!(glance != changed && glance.is_same_life(&changed));
            let writers: Vec<_> = (0..4)
                .map(|n| {
                    let space = space.clone();
                    std::thread::spawn(move || {
                        for nth in 0..200 {
                            let path = format!("memory/state/{}.md", nth % 3).parse().unwrap();
                            match block_on(space.put(&path, format!("{n} {nth}\n").as_bytes())) {
                                Ok(()) | Err(Error::Moved { .. }) => {}
                                Err(Error::Gone) => return,
                                Err(error) => panic!("{error}"),
                            }
                        }
                        panic!("the space was never gone");
                    })
                })
                .collect();
            std::thread::sleep(Duration::from_millis(20 * round));
            assert!(home.erase("ann").await.unwrap());
            for writer in writers {
                writer.join().unwrap();
            }
            assert!(matches!(space.announce("talk", LONG).await, Err(Error::Gone)));
            assert!(matches!(space.put_note(&"a.txt".parse().unwrap(), b"x").await, Err(Error::Gone)));
            for table in ["document", "chunk", "note", "waiting", "space"] {
                assert_eq!(cluster.sql(&format!("SELECT count(*) FROM icecore.{table}")), "0", "{table}");
            }
            assert!(home.glance("ann").await.unwrap().is_none() && !home.erase("ann").await.unwrap());
        }
    });
}

// Spaces beneath a space, in an order that does not depend on the language of the database
#[test]
fn spaces_beneath_a_space_are_its_own() {
    let cluster = Cluster::start(Flush::No);
    block_on(async {
        let home = home(&cluster).await;
        let names = ["a", "a/b", "a/B", "a/ä", "a b", "a-b/c", "aa/b", "b"];
        for name in names {
            home.create(name, "zone = \"UTC\"\n").await.unwrap();
        }
        assert_eq!(home.spaces_below("a").await.unwrap(), ["a/B", "a/b", "a/ä"]);
        assert_eq!(home.spaces_below("b").await.unwrap(), Vec::<String>::new());
        assert_eq!(home.spaces("", 100).await.unwrap().len(), names.len());
    });
}
