//! The PostgreSQL store.

use std::sync::Arc;

use icecore_domain::calendar::Moment;
use icecore_domain::event::{Event, EventDraft, EventType, Priority};
use icecore_domain::layout::DocPath;
use icecore_domain::ledger::conflict;
use icecore_domain::ledger::query::EventQuery;
use icecore_domain::ledger::{Ledger, LedgerEntry};
use icecore_store::postgres::{Postgres, PostgresOptions};
use icecore_store::prelude::*;
use icecore_store::testing::cluster::{Durability, TestCluster};
use icecore_store::testing::conformance;
use icecore_store::{Error, ErrorKind};
use pollster::block_on;

use crate::postgres_isolation::RawConnection;

// L2
#[test]
fn postgres_sits_the_exam() {
    let cluster = TestCluster::start(Durability::Unflushed);
    let home = Postgres::for_url(&cluster.url(), PostgresOptions::default()).unwrap();
    block_on(async {
        home.migrate().await.unwrap();
        assert_eq!(home.migration_plan().await.unwrap().pending, []);
        let mut count = 0;
        conformance::run_all(async || {
            count += 1;
            Arc::into_inner(
                home.create_space(&format!("exam-{count}"), "zone = \"UTC\"\n").await.unwrap(),
            )
            .unwrap()
        })
        .await;
    });
}

/// A database with its tables.
pub fn migrated_database(cluster: &TestCluster) -> Arc<Postgres> {
    let home = Postgres::for_url(&cluster.url(), PostgresOptions::default()).unwrap();
    block_on(home.migrate()).unwrap();
    home
}

pub fn draft(text: &str) -> EventDraft {
    let at = Moment::parse("2026-02-13T09:30:00+01:00").unwrap().moment;
    EventDraft::new(at, EventType::Fact, Priority::P2, text)
}

// L2, L3: two `Postgres` values behave like two processes, but for the memory that they do not
// share
#[test]
fn many_append_at_once_and_everybody_sees_everything() {
    const THREADS: usize = 8;
    const EVENTS: usize = 200;
    let cluster = TestCluster::start(Durability::Unflushed);
    let homes = [migrated_database(&cluster), migrated_database(&cluster)];
    block_on(homes[0].create_space("shared", "zone = \"UTC\"\n")).unwrap();
    let spaces = homes.each_ref().map(|home| block_on(home.open_space("shared")).unwrap().unwrap());
    let append = |home: usize, thread: usize| {
        let space = spaces[home].clone();
        std::thread::spawn(move || {
            (0..EVENTS / THREADS)
                .map(|n| {
                    block_on(space.append(vec![draft(&format!("{home} {thread} {n}"))], None))
                        .unwrap()
                        .remove(0)
                })
                .collect::<Vec<_>>()
        })
    };
    let threads: Vec<_> = (0..2)
        .flat_map(|home| (0..THREADS).map(move |thread| (home, thread)))
        .map(|(h, t)| append(h, t))
        .collect();
    let mut told: Vec<Event> =
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
    told.sort_by_key(|event| event.id);
    let numbers: Vec<usize> = told.iter().map(|event| event.id.number() as usize).collect();
    assert_eq!(
        numbers,
        (1..=2 * EVENTS).collect::<Vec<_>>(),
        "every number is given once, and none is left out"
    );
    for space in &spaces {
        let found = block_on(space.events(&EventQuery::all())).unwrap();
        let read = Ledger::parse(&block_on(space.ledger()).unwrap().bytes, None);
        assert_eq!(found.entries, read.entries());
        let events: Vec<Event> = found.entries.into_iter().map(|entry| entry.event).collect();
        assert_eq!(events, told, "whatever was acknowledged is there, once");
    }
    // One after the other: each sees at once what the other wrote.
    for n in 0..20 {
        let (one, other) = (&spaces[n % 2], &spaces[(n + 1) % 2]);
        let before = block_on(other.position()).unwrap();
        let event = block_on(one.append(vec![draft(&format!("turn {n}"))], Some(before)))
            .unwrap()
            .remove(0);
        let seen = block_on(other.events(&EventQuery::for_ids(&[event.id]))).unwrap();
        assert_eq!(seen.entries[0].event, event);
        assert_eq!(seen.position, block_on(one.position()).unwrap());
        assert!(matches!(
            block_on(other.append(vec![draft("late")], Some(before))),
            Err(Error { kind: ErrorKind::Conflict, .. })
        ));
    }
    assert_eq!(block_on(spaces[0].line_faults()).unwrap(), []);
}

// L2, L3, L15: a cached fold is never older than the ledger, however the ledger was changed
#[test]
fn a_remembered_fold_follows_every_kind_of_write() {
    let cluster = TestCluster::start(Durability::Unflushed);
    let homes = [migrated_database(&cluster), migrated_database(&cluster)];
    let one = block_on(homes[0].create_space("x", "zone = \"UTC\"\n")).unwrap();
    let other = block_on(homes[1].open_space("x")).unwrap().unwrap();
    let everything = EventQuery::all();
    let check = |what: &str| {
        let text = block_on(one.ledger()).unwrap();
        let read = Ledger::parse(&text.bytes, None);
        for space in [&one, &other] {
            let found = block_on(space.events(&everything)).unwrap();
            assert_eq!(
                (found.entries.as_slice(), found.position),
                (read.entries(), text.position),
                "{what}"
            );
            assert_eq!(block_on(space.line_faults()).unwrap(), read.unreadable_lines(), "{what}");
            assert_eq!(
                conflict::conflicting_claims(&block_on(space.contested_claims()).unwrap()),
                conflict::find_conflicts(read.entries()),
                "{what}"
            );
            let same =
                EventQuery { saying: Some("the budget is 600 EUR.".into()), ..EventQuery::all() };
            let chosen: Vec<LedgerEntry> =
                same.select(read.entries()).into_iter().cloned().collect();
            assert_eq!(block_on(space.events(&same)).unwrap().entries, chosen, "{what}");
        }
        text
    };
    let path: DocPath = "memory/ledger.jsonl".parse().unwrap();
    let first = block_on(one.append(vec![draft("one"), draft("two")], None)).unwrap();
    check("appended");
    block_on(
        other.append(
            vec![EventDraft { supersedes: vec![first[0].id], ..draft("another one") }],
            None,
        ),
    )
    .unwrap();
    check("replaced by another");
    block_on(
        other.append(vec![draft("The budget is 500 EUR"), draft("The budget is 600 EUR")], None),
    )
    .unwrap();
    let text = check("contested");
    block_on(one.append_lines(b"not an event\n\nnor this")).unwrap();
    check("foreign lines");
    // Same length, other text: only the version differs.
    let other_words =
        String::from_utf8(text.bytes.clone()).unwrap().replace("two", "TWO").into_bytes();
    block_on(one.replace_ledger(&other_words, check("").position)).unwrap();
    check("other words");
    block_on(other.put(&path, &text.bytes[..text.bytes.len() - 1])).unwrap();
    check("without its end");
    let events = block_on(one.append(vec![draft("four")], None)).unwrap();
    assert_eq!(events[0].id.number(), 6);
    check("after one without its end");
    block_on(other.put(&path, b"{\"torn\":")).unwrap();
    check("torn");
    block_on(one.append(vec![draft("five")], None)).unwrap();
    check("after a torn one");
    assert_eq!(block_on(one.line_faults()).unwrap()[0].line, 1, "what was torn is kept, and told");
    block_on(other.remove(&path)).unwrap();
    block_on(one.append(vec![draft("anew")], Some(check("gone").position))).unwrap();
    check("anew");
    // Ids that are known to be lost are not assigned again.
    block_on(other.put(
        &"memory/integrity.json".parse().unwrap(),
        b"{\"known_gaps\":[\"EVT-20260213-041\"]}",
    ))
    .unwrap();
    assert_eq!(block_on(one.append(vec![draft("later")], None)).unwrap()[0].id.number(), 42);
}

// L2, L3: a standby that takes over may lack the last writes; what a process cached of them is gone
#[test]
fn a_fold_of_lost_writes_is_not_taken_for_the_ledger() {
    let cluster = TestCluster::start(Durability::Unflushed);
    let homes = [migrated_database(&cluster), migrated_database(&cluster)];
    let one = block_on(homes[0].create_space("x", "zone = \"UTC\"\n")).unwrap();
    let other = block_on(homes[1].open_space("x")).unwrap().unwrap();
    block_on(one.append(vec![draft("one")], None)).unwrap();
    let lost = block_on(other.append(vec![draft("two")], None)).unwrap().remove(0);
    let position = block_on(other.events(&EventQuery::all())).unwrap().position;
    cluster.sql(
        "DELETE FROM icecore.chunk WHERE at > 0;
         UPDATE icecore.document d SET length = length(c.bytes), version = c.version FROM icecore.chunk c WHERE d.path = c.path AND d.path LIKE '%ledger%'",
    );
    // Same length as what was lost, and the same id.
    let there = block_on(one.append(vec![draft("TWO")], None)).unwrap().remove(0);
    assert_eq!(there.id, lost.id);
    block_on(one.append(vec![draft("three")], None)).unwrap();
    let read = Ledger::parse(&block_on(one.ledger()).unwrap().bytes, None);
    for space in [&one, &other] {
        let found = block_on(space.events(&EventQuery::all())).unwrap();
        assert_eq!(found.entries, read.entries());
        assert_ne!(found.position, position);
    }
}

// Y1
#[test]
fn tables_are_created_once_by_the_first_process() {
    let cluster = TestCluster::start(Durability::Unflushed);
    let many: Vec<_> = (0..4)
        .map(|_| {
            let home = Postgres::for_url(&cluster.url(), PostgresOptions::default()).unwrap();
            std::thread::spawn(move || block_on(home.migrate()).unwrap().len())
        })
        .collect();
    let mut steps: Vec<usize> = many.into_iter().map(|thread| thread.join().unwrap()).collect();
    steps.sort();
    assert_eq!(steps[..3], [0, 0, 0]);
    assert!(steps[3] > 0);
}

/// Another kind of work.
const PACK: &str = "pack";
const LEASE: std::time::Duration = std::time::Duration::from_secs(60);

// K3
#[test]
fn work_is_taken_by_one_in_turn_and_goes_free_when_its_taker_is_gone() {
    use icecore_store::postgres::jobs::{LeasedJob, MAINTENANCE_JOB, NextRun};
    use std::time::Duration;
    let cluster = TestCluster::start(Durability::Unflushed);
    let home = Postgres::for_url(&cluster.url(), PostgresOptions::default()).unwrap();
    block_on(async {
        home.migrate().await.unwrap();
        for name in ["a", "b", "c"] {
            home.create_space(name, "zone = \"UTC\"\n").await.unwrap();
        }
        let take =
            async |lease: Duration| home.acquire_job(&[MAINTENANCE_JOB], "w", lease).await.unwrap();
        // Each space once; no worker gets a job that another one has.
        let mut taken = Vec::new();
        while let Some(work) = take(LEASE).await {
            taken.push(work);
        }
        let names: Vec<&str> = taken.iter().map(|work| work.space.as_str()).collect();
        assert_eq!(names, ["a", "b", "c"]);
        // A worker dies: its job is free when the lease ends, and a worker that was only slow can
        // no longer finish it. The job itself may have killed the worker, so this counts as a
        // failure and the job is retried, each time later.
        assert!(home.renew_job(&taken[0], Duration::ZERO).await.unwrap());
        assert_eq!(take(LEASE).await, None);
        assert_eq!(home.job_backlog().await.unwrap()[0].failing, 1);
        let wait = || {
            cluster.sql("SELECT round(extract(epoch FROM due - now())) FROM icecore.job WHERE failures > 0").parse::<i64>().unwrap()
        };
        assert!((13..=15).contains(&wait()), "{}", wait());
        cluster.sql("UPDATE icecore.job SET due = now() WHERE failures > 0");
        let again = take(Duration::ZERO).await.unwrap();
        assert_eq!(again.failures, 1);
        assert_eq!(take(LEASE).await, None);
        assert!((28..=30).contains(&wait()), "{}", wait());
        cluster.sql("UPDATE icecore.job SET due = now() WHERE failures > 0");
        let again = take(LEASE).await.unwrap();
        assert_eq!(again, LeasedJob { epoch: again.epoch, failures: 2, ..taken[0].clone() });
        assert!(again.epoch > taken[0].epoch);
        assert!(!home.renew_job(&taken[0], LEASE).await.unwrap());
        assert!(!home.finish_job(&taken[0], NextRun::OnWrite, i64::MAX).await.unwrap());
        assert!(!home.fail_job(&taken[0], "too late").await.unwrap());
        // A sleeping job wakes when something is written, and a write meanwhile keeps it awake.
        let (a, b) = (
            home.open_space("a").await.unwrap().unwrap(),
            home.open_space("b").await.unwrap().unwrap(),
        );
        let seen = a.documents_fingerprint().await.unwrap();
        assert!(home.finish_job(&again, NextRun::OnWrite, seen).await.unwrap());
        assert_eq!(take(LEASE).await, None);
        let line = b"{\"conversation\":\"c\"}\n";
        DocumentStore::append_to_document(
            &*a,
            &"memory/messages/2026-02-13.jsonl".parse().unwrap(),
            line,
        )
        .await
        .unwrap();
        assert_eq!(take(LEASE).await.unwrap().space, "a");
        let seen = b.documents_fingerprint().await.unwrap();
        DocumentStore::append_to_document(
            &*b,
            &"memory/messages/2026-02-13.jsonl".parse().unwrap(),
            line,
        )
        .await
        .unwrap();
        assert!(home.finish_job(&taken[1], NextRun::OnWrite, seen).await.unwrap());
        assert_eq!(take(LEASE).await.unwrap().space, "b");
        // A job that is requested while it runs is run again.
        a.request_job(PACK, Duration::ZERO).await.unwrap();
        let first = home.acquire_job(&[PACK], "w", LEASE).await.unwrap().unwrap();
        a.request_job(PACK, Duration::ZERO).await.unwrap();
        assert_eq!(home.acquire_job(&[PACK], "w", LEASE).await.unwrap(), None);
        assert!(home.finish_job(&first, NextRun::OnWrite, i64::MAX).await.unwrap());
        let second = home.acquire_job(&[PACK], "w", LEASE).await.unwrap().unwrap();
        assert!(home.fail_job(&second, "the model is silent").await.unwrap());
        assert_eq!(home.acquire_job(&[PACK], "w", LEASE).await.unwrap(), None);
        let backlog = home.job_backlog().await.unwrap();
        assert_eq!(backlog.iter().find(|kind| kind.kind == PACK).unwrap().failing, 1);
    });
}

// K3
#[test]
fn a_space_does_not_fall_asleep_over_what_is_being_written() {
    use icecore_store::postgres::jobs::{MAINTENANCE_JOB, NextRun};
    use std::time::Duration;
    let cluster = TestCluster::start(Durability::Unflushed);
    let home = Postgres::for_url(&cluster.url(), PostgresOptions::default()).unwrap();
    block_on(async {
        home.migrate().await.unwrap();
        let space = home.create_space("a", "zone = \"UTC\"\n").await.unwrap();
        let (said, held) =
            ("memory/messages/2026-02-13.jsonl".parse().unwrap(), "notes/held.md".parse().unwrap());
        space.put(&held, b"held").await.unwrap();
        let work = home.acquire_job(&[MAINTENANCE_JOB], "w", LEASE).await.unwrap().unwrap();
        let seen = space.documents_fingerprint().await.unwrap();
        // A writer is delayed before its commit.
        let other = RawConnection::to(&cluster.url());
        other.must("BEGIN; SELECT 1 FROM icecore.document WHERE path = 'notes/held.md' FOR UPDATE");
        let writing = {
            let space = space.clone();
            let documents: [(DocPath, Vec<u8>); 2] =
                [(said, b"{\"conversation\":\"c\"}\n".to_vec()), (held, b"x".to_vec())];
            std::thread::spawn(move || block_on(space.put_many(&documents)))
        };
        std::thread::sleep(Duration::from_millis(300));
        let sleeping = {
            let (home, work) = (home.clone(), work.clone());
            std::thread::spawn(move || block_on(home.finish_job(&work, NextRun::OnWrite, seen)))
        };
        std::thread::sleep(Duration::from_millis(300));
        other.must("ROLLBACK");
        writing.join().unwrap().unwrap();
        assert!(sleeping.join().unwrap().unwrap());
        assert_eq!(
            home.acquire_job(&[MAINTENANCE_JOB], "w", LEASE).await.unwrap().unwrap().space,
            "a"
        );
    });
}

// Y1
#[test]
fn a_glance_shows_that_a_prompt_was_taken_away() {
    let cluster = TestCluster::start(Durability::Unflushed);
    let home = Postgres::for_url(&cluster.url(), PostgresOptions::default()).unwrap();
    block_on(async {
        home.migrate().await.unwrap();
        let space = home.create_space("a", "zone = \"UTC\"\n").await.unwrap();
        let prompt = "prompts/week.yaml".parse().unwrap();
        space.put(&prompt, b"old").await.unwrap();
        space.put(&"icecore.toml".parse().unwrap(), b"zone = \"UTC\"\n").await.unwrap();
        let before = home.space_fingerprint("a").await.unwrap().unwrap();
        space.put(&"knowledge/x.md".parse().unwrap(), b"x").await.unwrap();
        assert_eq!(home.space_fingerprint("a").await.unwrap().unwrap(), before);
        space.remove(&prompt).await.unwrap();
        let after = home.space_fingerprint("a").await.unwrap().unwrap();
        assert!(after != before && after.is_same_space(&before));
    });
}

// K3
#[test]
fn who_waits_for_work_hears_of_it() {
    let cluster = TestCluster::start(Durability::Unflushed);
    let home = Postgres::for_url(&cluster.url(), PostgresOptions::default()).unwrap();
    let other = Postgres::for_url(&cluster.url(), PostgresOptions::default()).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        use std::time::Duration;
        home.migrate().await.unwrap();
        let space = home.create_space("a", "zone = \"UTC\"\n").await.unwrap();
        let ear = other.listen_for_jobs().unwrap();
        let within = |seconds| Duration::from_secs(seconds);
        let spoken = async {
            // Notify again until a listener is there.
            loop {
                tokio::time::sleep(Duration::from_millis(50)).await;
                space.request_job(PACK, Duration::ZERO).await.unwrap();
            }
        };
        tokio::select! {
            heard = tokio::time::timeout(within(20), ear.wait()) => heard.unwrap(),
            () = spoken => {}
        }
        // The server restarts; the listener reconnects.
        cluster.restart();
        let spoken = async {
            loop {
                tokio::time::sleep(Duration::from_millis(50)).await;
                let _ = space.request_job(PACK, Duration::ZERO).await;
            }
        };
        tokio::select! {
            heard = tokio::time::timeout(within(20), async { ear.wait().await; ear.wait().await }) => heard.unwrap(),
            () = spoken => {}
        }
    });
}
