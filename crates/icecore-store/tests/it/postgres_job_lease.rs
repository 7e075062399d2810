//! Job leases: one holder at a time, on any machine, and never permanently.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Waker};
use std::thread;
use std::time::{Duration, Instant};

use icecore_store::postgres::{Postgres, PostgresOptions, Space};
use icecore_store::prelude::*;
use icecore_store::testing::cluster::{Durability, TestCluster};
use icecore_store::{Error, ErrorKind, Lease};
use pollster::block_on;

use crate::postgres::draft;

const LEASE: Duration = Duration::from_millis(900);

fn options() -> PostgresOptions {
    PostgresOptions {
        lease_duration: LEASE,
        connect_timeout: Duration::from_secs(2),
        ..PostgresOptions::default()
    }
}

/// The same space in two processes.
fn two(cluster: &TestCluster, options: PostgresOptions) -> [Arc<Space>; 2] {
    let homes = [0, 1].map(|_| Postgres::for_url(&cluster.url(), options).unwrap());
    block_on(homes[0].migrate()).unwrap();
    block_on(homes[0].create_space("x", "zone = \"UTC\"\n")).unwrap();
    homes.map(|home| block_on(home.open_space("x")).unwrap().unwrap())
}

fn claim(space: &Space, work: &str) -> Option<Lease> {
    block_on(space.acquire_lease(work)).unwrap()
}

/// How long it takes until another process has the lease.
fn until_had(space: &Space, work: &str) -> (Duration, Lease) {
    let begun = Instant::now();
    loop {
        if let Some(claimed) = claim(space, work) {
            return (begun.elapsed(), claimed);
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "`{work}` is never free");
        thread::sleep(Duration::from_millis(10));
    }
}

// K5: a nightly run summarizes and forgets while it holds the lease; more at once than there are
// connections
#[test]
fn more_may_hold_claims_than_there_are_connections_and_still_read_and_write() {
    let cluster = TestCluster::start(Durability::Unflushed);
    let [one, other] = two(&cluster, PostgresOptions { max_connections: 2, ..options() });
    let held: Vec<Lease> = (0..8).map(|n| claim(&one, &format!("work {n}")).unwrap()).collect();
    assert_eq!(one.database().pool_stats().in_use, 0);
    thread::scope(|scope| {
        for n in 0..8 {
            let (one, other) = (&one, &other);
            scope.spawn(move || {
                let nested = claim(one, &format!("nested {n}")).unwrap();
                block_on(one.append(vec![draft(&format!("{n}"))], None)).unwrap();
                assert!(claim(other, &format!("nested {n}")).is_none());
                drop(nested);
            });
        }
    });
    for (n, held) in held.iter().enumerate() {
        assert!(block_on(held.is_held()).unwrap() && claim(&other, &format!("work {n}")).is_none());
    }
    drop(held);
    assert!(
        claim(&one, "work 3").is_some(),
        "what was let go a moment ago in this process is free"
    );
    until_had(&other, "work 5");
}

// K5
#[test]
fn a_claim_is_held_for_as_long_as_its_holder_is_there_and_free_when_it_has_parted() {
    let cluster = TestCluster::start(Durability::Unflushed);
    let [one, other] = two(&cluster, options());
    let held = claim(&one, "night").unwrap();
    let over = Instant::now() + LEASE * 3;
    while Instant::now() < over {
        assert!(claim(&other, "night").is_none());
        thread::sleep(Duration::from_millis(50));
    }
    assert!(block_on(held.is_held()).unwrap());
    drop(held);
    one.database().drain_releases(Duration::from_secs(5));
    assert!(claim(&other, "night").is_some());
    // A failed attempt leaves nothing behind, and neither does a released lease.
    other.database().drain_releases(Duration::from_secs(5));
    assert_eq!(cluster.sql("SELECT count(*) FROM icecore.claim"), "0");
    // No lease is granted in an erased space.
    let held = claim(&one, "night").unwrap();
    assert!(block_on(one.database().erase_space("x")).unwrap());
    assert!(matches!(
        block_on(other.acquire_lease("night")),
        Err(Error { kind: ErrorKind::SpaceErased, .. })
    ));
    thread::sleep(LEASE);
    assert!(!block_on(held.is_held()).unwrap());
}

// K5: a process that is killed while acquiring holds nothing afterwards
#[test]
fn who_goes_away_while_asking_keeps_nothing() {
    let cluster = TestCluster::start(Durability::Unflushed);
    // Long enough that only a release frees it.
    let [one, other] = two(
        &cluster,
        PostgresOptions {
            max_connections: 1,
            lease_duration: Duration::from_secs(600),
            ..options()
        },
    );
    for pause_us in (0..60).map(|n| n * 150) {
        {
            let mut asking = pin!(one.acquire_lease("night"));
            // What is done already is not asked for again.
            if asking.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
                thread::sleep(Duration::from_micros(pause_us));
                let _ = asking.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            }
        }
        let (waited, held) = until_had(&other, "night");
        assert!(waited < Duration::from_secs(5), "{waited:?}");
        drop(held);
        other.database().drain_releases(Duration::from_secs(5));
    }
}

// K5: a holder whose machine is cut off; its lease ends, and it finds out
#[test]
fn a_holder_that_stops_renewing_loses_its_lease_and_learns_of_it() {
    let cluster = TestCluster::start(Durability::Unflushed);
    let [_, other] = two(&cluster, options());
    let is_cut = Arc::new(AtomicBool::new(false));
    let port = cut_off(cluster.port(), is_cut.clone());
    let hasty = PostgresOptions { connect_timeout: Duration::from_millis(200), ..options() };
    let home = Postgres::for_url(&format!("postgres://postgres@127.0.0.1:{port}/postgres"), hasty)
        .unwrap();
    let space = block_on(home.open_space("x")).unwrap().unwrap();
    let held = claim(&space, "night").unwrap();
    is_cut.store(true, Ordering::SeqCst);
    let (waited, mine) = until_had(&other, "night");
    assert!(waited > LEASE / 3 && waited < LEASE * 4, "{waited:?}");
    // It cannot know, so it does not claim to hold the lease.
    assert!(!matches!(block_on(held.is_held()), Ok(true)));
    is_cut.store(false, Ordering::SeqCst);
    assert!(!block_on(held.is_held()).unwrap());
    drop(held);
    home.drain_releases(Duration::from_secs(5));
    assert!(block_on(mine.is_held()).unwrap(), "what another has is not given back");
    assert!(claim(&space, "night").is_none());
}

/// A proxy that drops everything for as long as `is_cut`.
fn cut_off(target: u16, is_cut: Arc<AtomicBool>) -> u16 {
    use std::io::{Read, Write};
    use std::net::{Shutdown, TcpListener, TcpStream};
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            if is_cut.load(Ordering::SeqCst) {
                continue;
            }
            let Ok(server) = TcpStream::connect(("127.0.0.1", target)) else { continue };
            for (mut from, mut to) in
                [(client.try_clone().unwrap(), server.try_clone().unwrap()), (server, client)]
            {
                let is_cut = is_cut.clone();
                thread::spawn(move || {
                    let mut bytes = [0; 8_192];
                    while let Ok(read @ 1..) = from.read(&mut bytes) {
                        if is_cut.load(Ordering::SeqCst) || to.write_all(&bytes[..read]).is_err() {
                            break;
                        }
                    }
                    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
                });
            }
        }
    });
    port
}
