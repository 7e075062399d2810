//! What was acknowledged stays, exactly once, whatever happens to the database and the network.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use icecore_domain::event::Origin;
use icecore_domain::ledger::query::EventQuery;
use icecore_domain::record::{Record, RecordKind, Role};
use icecore_store::postgres::{Postgres, PostgresOptions, Space};
use icecore_store::prelude::*;
use icecore_store::testing::cluster::{Durability, TestCluster};
use icecore_store::{Error, ErrorKind};
use pollster::block_on;

use crate::vault::draft;

const WRITERS: usize = 6;

fn record(name: &str) -> Record {
    let ts = draft("x").ts;
    Record {
        ts,
        conversation: "busy".into(),
        session: None,
        id: name.into(),
        role: Role::User,
        name: None,
        other_speaker: None,
        kind: RecordKind::Message,
        title: None,
        text: name.into(),
        parts: None,
        origin: Origin::User,
        captured: ts,
        extra: Vec::new(),
        withdrawn: false,
    }
}

/// The outcome that a writer saw for each of its writes.
#[derive(Debug, Default)]
struct WriteLog {
    acknowledged: Vec<String>,
    unclear: Vec<String>,
}

/// Lets writers write events and records until `over`, each under its own name.
fn write_until(over: &AtomicBool, home: &Arc<Postgres>, round: &str) -> WriteLog {
    let told = Mutex::new(WriteLog::default());
    thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (told, home) = (&told, home.clone());
            scope.spawn(move || {
                let mut count = 0;
                while !over.load(Ordering::SeqCst) {
                    count += 1;
                    let name = format!("{round} {writer} {count}");
                    let done = block_on(async {
                        let space = home
                            .open_space("busy")
                            .await?
                            .ok_or_else(|| Error::not_a_space("busy".into()))?;
                        match count % 2 {
                            0 => space.append(vec![draft(&name)], None).await.map(|_| ()),
                            _ => space.add_records(vec![record(&name)]).await.map(|_| ()),
                        }
                    });
                    let mut told = told.lock().unwrap();
                    match done {
                        Ok(()) => told.acknowledged.push(name),
                        Err(Error {
                            kind:
                                ErrorKind::Unreachable
                                | ErrorKind::ReadOnly
                                | ErrorKind::Standby
                                | ErrorKind::Overloaded
                                | ErrorKind::Conflict,
                            ..
                        }) => {
                            told.unclear.push(name);
                            drop(told);
                            thread::sleep(Duration::from_millis(20));
                        }
                        Err(other) => panic!("{other:?}"),
                    }
                }
            });
        }
    });
    told.into_inner().unwrap()
}

/// How often each name is stored.
fn count_records(space: &Space) -> HashMap<String, usize> {
    let mut kept: HashMap<String, usize> = HashMap::new();
    block_on(async {
        for entry in space.events(&EventQuery::all()).await.unwrap().entries {
            *kept.entry(entry.event.draft.content).or_default() += 1;
        }
        let days = icecore_domain::calendar::Days {
            first: draft("x").ts.day(),
            last: draft("x").ts.day(),
        };
        for record in space.records(days).await.unwrap() {
            *kept.entry(record.text).or_default() += 1;
        }
        assert!(space.inspect().await.unwrap().iter().all(|finding| !finding.fails));
        assert!(space.line_faults().await.unwrap().is_empty());
    });
    kept
}

fn check(told: &WriteLog, space: &Space, least: usize) {
    let kept = count_records(space);
    let missing: Vec<&String> =
        told.acknowledged.iter().filter(|name| kept.get(*name) != Some(&1)).collect();
    assert!(missing.is_empty(), "acknowledged, and not there exactly once: {missing:?}");
    let doubled: Vec<&String> = told
        .unclear
        .iter()
        .filter(|name| kept.get(*name).is_some_and(|&count| count > 1))
        .collect();
    assert!(doubled.is_empty(), "there more than once: {doubled:?}");
    assert!(told.acknowledged.len() >= least, "only {} were acknowledged", told.acknowledged.len());
}

fn open(url: &str) -> Arc<Postgres> {
    let options =
        PostgresOptions { connect_timeout: Duration::from_secs(30), ..PostgresOptions::default() };
    Postgres::for_url(url, options).unwrap()
}

fn create_tables(home: &Arc<Postgres>) {
    block_on(async {
        home.migrate().await.unwrap();
        home.create_space("busy", "zone = \"Europe/Berlin\"\n").await.unwrap();
    });
}

// L2: the machine of the database loses power, and its standby takes over
#[test]
fn a_primary_that_dies_under_load_loses_nothing_that_was_acknowledged() {
    let primary = TestCluster::start(Durability::Flushed);
    let standby = primary.standby();
    primary.sql("ALTER SYSTEM SET synchronous_standby_names = '*'");
    primary.sql("SELECT pg_reload_conf()");
    let both = format!(
        "postgres://postgres@127.0.0.1:{},127.0.0.1:{}/postgres?target_session_attrs=read-write",
        primary.port(),
        standby.port()
    );
    let home = open(&both);
    create_tables(&home);
    let over = AtomicBool::new(false);
    let told = thread::scope(|scope| {
        let writing = scope.spawn(|| write_until(&over, &home, "failover"));
        thread::sleep(Duration::from_secs(2));
        primary.kill();
        thread::sleep(Duration::from_millis(300));
        standby.promote();
        thread::sleep(Duration::from_secs(3));
        over.store(true, Ordering::SeqCst);
        writing.join().unwrap()
    });
    let space = block_on(home.open_space("busy")).unwrap().unwrap();
    check(&told, &space, 50);
    assert!(!told.unclear.is_empty(), "nobody was writing when it died");
}

/// A proxy in front of the database whose connections can be cut.
struct Proxy {
    port: u16,
    cuts: Arc<AtomicU64>,
    open: Arc<Mutex<Vec<TcpStream>>>,
}

impl Proxy {
    /// Forwards data and cuts every connection after some bytes, a different number each time, so
    /// that statements, answers and commits are all hit.
    fn before(target: u16, cutting: Arc<AtomicBool>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (cuts, open) = (Arc::new(AtomicU64::new(0)), Arc::new(Mutex::new(Vec::new())));
        let (counted, held) = (cuts.clone(), open.clone());
        thread::spawn(move || {
            for (nth, client) in (1_u64..).zip(listener.incoming()) {
                let (Ok(client), Ok(server)) = (client, TcpStream::connect(("127.0.0.1", target)))
                else {
                    continue;
                };
                held.lock()
                    .unwrap()
                    .extend([client.try_clone().unwrap(), server.try_clone().unwrap()]);
                // After the handshake, within the bytes of two or three transactions.
                let most = Arc::new(AtomicU64::new(3_000 + nth * 7_919 % 9_000));
                for (mut from, mut to) in
                    [(client.try_clone().unwrap(), server.try_clone().unwrap()), (server, client)]
                {
                    let (most, cutting, counted) = (most.clone(), cutting.clone(), counted.clone());
                    thread::spawn(move || {
                        let mut bytes = [0; 512];
                        while let Ok(read @ 1..) = from.read(&mut bytes) {
                            let left = most.load(Ordering::SeqCst);
                            if cutting.load(Ordering::SeqCst) && left < read as u64 {
                                // Half of it is still forwarded.
                                let _ = to.write_all(&bytes[..read / 2]);
                                counted.fetch_add(1, Ordering::SeqCst);
                                break;
                            }
                            most.store(left.saturating_sub(read as u64), Ordering::SeqCst);
                            if to.write_all(&bytes[..read]).is_err() {
                                break;
                            }
                        }
                        let _ = from.shutdown(Shutdown::Both);
                        let _ = to.shutdown(Shutdown::Both);
                    });
                }
            }
        });
        Self { port, cuts, open }
    }

    /// Cuts every open connection.
    fn cut_all(&self) {
        for stream in self.open.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

// L2: the connection breaks again and again, in the middle of statements, answers and commits
#[test]
fn connections_that_are_cut_lose_and_double_nothing() {
    let cluster = TestCluster::start(Durability::Unflushed);
    let cutting = Arc::new(AtomicBool::new(false));
    let proxy = Proxy::before(cluster.port(), cutting.clone());
    let home = open(&format!("postgres://postgres@127.0.0.1:{}/postgres", proxy.port));
    create_tables(&home);
    cutting.store(true, Ordering::SeqCst);
    let over = AtomicBool::new(false);
    let told = thread::scope(|scope| {
        let writing = scope.spawn(|| write_until(&over, &home, "cut"));
        for _ in 0..8 {
            thread::sleep(Duration::from_millis(500));
            proxy.cut_all();
        }
        over.store(true, Ordering::SeqCst);
        writing.join().unwrap()
    });
    cutting.store(false, Ordering::SeqCst);
    let space = block_on(home.open_space("busy")).unwrap().unwrap();
    check(&told, &space, 20);
    assert!(
        proxy.cuts.load(Ordering::SeqCst) > 10,
        "{} connections were cut",
        proxy.cuts.load(Ordering::SeqCst)
    );
}

// L2: nothing answers for a while, then a server does
#[test]
fn connecting_waits_for_a_starting_database_and_reports_a_missing_one() {
    let cluster = TestCluster::start(Durability::Flushed);
    create_tables(&open(&cluster.url()));
    cluster.kill();
    let hasty = Postgres::for_url(
        &cluster.url(),
        PostgresOptions {
            connect_timeout: Duration::from_millis(200),
            ..PostgresOptions::default()
        },
    )
    .unwrap();
    match block_on(hasty.open_space("busy")) {
        Err(error) if error.kind == ErrorKind::Unreachable => {
            assert!(!error.to_string().contains("postgres@"), "{error}")
        }
        other => panic!("{other:?}"),
    }
    let patient = open(&cluster.url());
    let waiting = thread::spawn(move || block_on(patient.open_space("busy")).unwrap().is_some());
    thread::sleep(Duration::from_millis(500));
    cluster.start_again();
    assert!(waiting.join().unwrap());
}

/// A proxy that silently drops everything from the moment a client sends `word`.
fn way(target: u16, word: &Arc<Mutex<Option<&'static str>>>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (port, word) = (listener.local_addr().unwrap().port(), word.clone());
    thread::spawn(move || {
        for client in listener.incoming() {
            let (Ok(client), Ok(server)) = (client, TcpStream::connect(("127.0.0.1", target)))
            else {
                continue;
            };
            let is_lost = Arc::new(AtomicBool::new(false));
            for (mut from, mut to) in
                [(client.try_clone().unwrap(), server.try_clone().unwrap()), (server, client)]
            {
                let (word, is_lost) = (word.clone(), is_lost.clone());
                thread::spawn(move || {
                    let mut bytes = [0; 65_536];
                    while let Ok(read @ 1..) = from.read(&mut bytes) {
                        let said = String::from_utf8_lossy(&bytes[..read]);
                        if word.lock().unwrap().is_some_and(|word| said.contains(word)) {
                            is_lost.store(true, Ordering::SeqCst);
                        }
                        if !is_lost.load(Ordering::SeqCst) && to.write_all(&bytes[..read]).is_err()
                        {
                            break;
                        }
                    }
                });
            }
        }
    });
    port
}

/// Waits for it, with a limit.
fn in_time<T: Send + 'static>(seconds: u64, work: impl FnOnce() -> T + Send + 'static) -> T {
    let (send, receive) = std::sync::mpsc::channel();
    thread::spawn(move || send.send(work()));
    receive.recv_timeout(Duration::from_secs(seconds)).expect("it does not end")
}

// L2: a machine that lost power does not close connections; a query waits no longer than for an
// answer, and the connection is not reused
#[test]
fn a_query_to_a_silent_database_fails_and_the_next_one_succeeds() {
    let cluster = TestCluster::start(Durability::Unflushed);
    let word = Arc::default();
    let options = PostgresOptions {
        connect_timeout: Duration::from_secs(1),
        statement_timeout: Duration::from_secs(1),
        ..PostgresOptions::default()
    };
    let home = Postgres::for_url(
        &format!("postgres://postgres@127.0.0.1:{}/postgres", way(cluster.port(), &word)),
        options,
    )
    .unwrap();
    create_tables(&home);
    let space = block_on(home.open_space("busy")).unwrap().unwrap();
    for (nth, (lost_at, expected)) in [
        ("BEGIN", "has not answered"),
        ("silent 1", "has not answered"),
        ("COMMIT", "a commit got no answer"),
    ]
    .iter()
    .enumerate()
    {
        *word.lock().unwrap() = Some(*lost_at);
        let (own, name) = (space.clone(), format!("silent {nth}"));
        let lost = in_time(20, move || block_on(own.append(vec![draft(&name)], None)));
        match lost {
            Err(error @ Error { kind: ErrorKind::Unreachable, .. }) => {
                let told = error.to_string();
                assert!(
                    told.contains(expected) && told.contains("may or may not have been stored"),
                    "{lost_at}: {told}"
                );
            }
            other => panic!("{lost_at}: {other:?}"),
        }
        *word.lock().unwrap() = None;
        let (own, name) = (space.clone(), format!("heard {nth}"));
        in_time(5, move || block_on(own.append(vec![draft(&name)], None))).unwrap();
    }
    let said: Vec<String> = block_on(space.events(&EventQuery::all()))
        .unwrap()
        .entries
        .into_iter()
        .map(|entry| entry.event.draft.content)
        .collect();
    assert_eq!(said, ["heard 0", "heard 1", "heard 2"]);
    assert_eq!(home.pool_stats().in_use, 0);
}

// L2: a commit that the database completes after the client stopped waiting
#[test]
fn a_commit_that_is_not_answered_is_kept_once_however_often_it_is_tried() {
    let cluster = TestCluster::start(Durability::Flushed);
    let options =
        PostgresOptions { statement_timeout: Duration::from_secs(1), ..PostgresOptions::default() };
    let home = Postgres::for_url(&cluster.url(), options).unwrap();
    create_tables(&home);
    let space = block_on(home.open_space("busy")).unwrap().unwrap();
    // It waits for a standby that does not exist.
    cluster.sql("ALTER SYSTEM SET synchronous_standby_names = 'nobody'");
    cluster.sql("SELECT pg_reload_conf()");
    let own = space.clone();
    match in_time(20, move || block_on(own.add_records(vec![record("unclear")]))) {
        Err(error) if error.kind == ErrorKind::Unreachable => {
            assert!(error.to_string().contains("commit"), "{error}")
        }
        other => panic!("{other:?}"),
    }
    cluster.sql("ALTER SYSTEM RESET synchronous_standby_names");
    cluster.sql("SELECT pg_reload_conf()");
    block_on(space.add_records(vec![record("unclear")])).unwrap();
    assert_eq!(count_records(&space)["unclear"], 1);
}

// L2: a network that drops every packet, so that connections are not even refused
#[test]
fn nobody_waits_longer_for_a_connection_than_one_is_patient() {
    let full = TcpListener::bind("127.0.0.1:0").unwrap();
    let place = full.local_addr().unwrap();
    // Connections are not accepted; when the queue is full, new ones get no answer.
    let mut queue = Vec::new();
    while let Ok(waiting) = TcpStream::connect_timeout(&place, Duration::from_millis(300)) {
        queue.push(waiting);
    }
    let url = format!("postgres://postgres@127.0.0.1:{}/postgres?connect_timeout=1", place.port());
    let home = Postgres::for_url(
        &url,
        PostgresOptions {
            connect_timeout: Duration::from_millis(1_500),
            ..PostgresOptions::default()
        },
    )
    .unwrap();
    match in_time(4, move || block_on(home.open_space("busy"))) {
        Err(Error { kind: ErrorKind::Unreachable, .. }) => {}
        other => panic!("{other:?}"),
    }
    drop(queue);
}

#[test]
fn a_password_is_in_no_error() {
    for url in [
        "postgres://me:hunter2@127.0.0.1:1/x",
        "postgres://me:hunter2@127.0.0.1:port/x",
        "host=127.0.0.1 password=hunter2 port=no",
    ] {
        let told = match Postgres::for_url(
            url,
            PostgresOptions {
                connect_timeout: Duration::from_millis(50),
                ..PostgresOptions::default()
            },
        ) {
            Ok(home) => format!("{home:?} {}", block_on(home.list_spaces("", 1)).unwrap_err()),
            Err(error) => error.to_string(),
        };
        assert!(!told.contains("hunter2"), "{told}");
    }
}
