//! Programs and tables of different versions: a program that has become too old writes nothing, and
//! older tables are migrated.

use std::time::Duration;

use icecore_domain::layout::DocPath;
use icecore_store::postgres::{Postgres, PostgresOptions};
use icecore_store::prelude::*;
use icecore_store::testing::cluster::{Durability, TestCluster};
use icecore_store::{Error, ErrorKind};
use pollster::block_on;

use crate::postgres::draft;
use crate::postgres_isolation::{
    RawConnection, create_filled_space, create_owned_database, record,
};

const CONFIG: &str = "zone = \"UTC\"\n";
/// The migration steps of every database before this version.
const OLD_STEPS: [(&str, &str); 6] = [
    ("home", include_str!("../../src/postgres/migrations/0001_home.sql")),
    ("history", include_str!("../../src/postgres/migrations/0002_history.sql")),
    ("search", include_str!("../../src/postgres/migrations/0003_search.sql")),
    ("access", include_str!("../../src/postgres/migrations/0004_access.sql")),
    ("jobs", include_str!("../../src/postgres/migrations/0005_jobs.sql")),
    ("order", include_str!("../../src/postgres/migrations/0006_order.sql")),
];

/// A migration step of a later version.
fn take_step(all: &RawConnection, least: i32) {
    all.must(&format!("INSERT INTO icecore.migration (number, name, fingerprint, least) VALUES (8, 'next', 'x', {least})"));
}

#[test]
fn a_program_that_runs_writes_nothing_once_the_tables_are_too_new_for_it() {
    let cluster = TestCluster::start(Durability::Unflushed);
    let (url, all) = create_owned_database(&cluster);
    let home = Postgres::for_url(&url, PostgresOptions::default()).unwrap();
    block_on(home.migrate()).unwrap();
    let space = create_filled_space(&home, "A");
    let page: DocPath = "knowledge/x.md".parse().unwrap();
    // A later step that this program can work with.
    take_step(&all, 7);
    block_on(space.append(vec![draft("still at work")], None)).unwrap();
    block_on(home.create_space("B", CONFIG)).unwrap();
    all.must("DELETE FROM icecore.migration WHERE number = 8");

    let everything = "SELECT string_agg(t::text, ' ' ORDER BY t::text) FROM (SELECT md5(d::text) FROM icecore.document d UNION ALL \
        SELECT md5(s::text) FROM icecore.space s UNION ALL SELECT md5(a::text) FROM icecore.audit a UNION ALL SELECT md5(j::text) FROM icecore.job j) t";
    let before = all.must(everything);
    take_step(&all, 8);
    let check = |what: &str, error: Option<Error>| {
        let told = error.as_ref().map(ToString::to_string).unwrap_or_default();
        assert!(
            matches!(error, Some(Error { kind: ErrorKind::NewerSchema, .. }))
                && told.contains("newer (8 steps) than this program knows (7)"),
            "{what}: {error:?}"
        );
    };
    block_on(async {
        check("append", space.append(vec![draft("too late")], None).await.err());
        check("add_records", space.add_records(vec![record("z", "too late")]).await.err());
        check("put", space.put(&page, b"too late").await.err());
        check("document", space.document(&page).await.err());
        check("tail", space.read_tail(&page, 10).await.err());
        check("claim", space.acquire_lease("night").await.err());
        check("create", home.create_space("C", CONFIG).await.err());
        check("erase", home.erase_space("B").await.err());
        check("take", home.acquire_job(&["tend"], "w", Duration::from_secs(60)).await.err());
        check("spend", home.add_model_tokens(&[("A".into(), 5)]).await.err());
        check("ready", home.check_ready().await.err());
    });
    assert_eq!(all.must(everything), before);
    // The newer program was undone, for example by a restored backup.
    all.must("DELETE FROM icecore.migration WHERE number = 8");
    block_on(space.append(vec![draft("at work again")], None)).unwrap();
}

#[test]
fn whether_the_tables_are_too_new_costs_no_message_of_its_own() {
    let cluster = TestCluster::start(Durability::Unflushed);
    cluster.configure("log_statement = 'all'\nlog_line_prefix = '%a|'\n");
    cluster.restart();
    let home = Postgres::for_url(&cluster.url(), PostgresOptions::default()).unwrap();
    block_on(home.migrate()).unwrap();
    let space = block_on(home.create_space("A", CONFIG)).unwrap();
    let page: DocPath = "knowledge/x.md".parse().unwrap();
    let write = || block_on(space.put(&page, b"x")).unwrap();
    let read = || assert_eq!(block_on(space.document_len(&page)).unwrap(), 1);
    // A first query is prepared by a message of its own.
    write();
    read();
    for (what, does) in [("write", &write as &dyn Fn()), ("read", &read)] {
        let before = cluster.log().len();
        does();
        let log = cluster.log()[before..].to_owned();
        let messages: Vec<&str> =
            log.lines().filter(|line| line.starts_with("icecore|LOG:")).collect();
        let begins: Vec<&&str> = messages.iter().filter(|line| line.contains("BEGIN")).collect();
        assert_eq!(begins.len(), 1, "{what}: {log}");
        assert!(
            begins[0].contains("SET LOCAL icecore.space")
                && begins[0].contains("icecore.require_known(7)"),
            "{what}: {log}"
        );
        assert_eq!(
            messages.iter().filter(|line| line.contains("require_known")).count(),
            1,
            "{what}: {log}"
        );
        assert_eq!(
            messages.iter().filter(|line| line.contains("COMMIT")).count(),
            1,
            "{what}: {log}"
        );
        if what == "read" {
            assert_eq!(messages.len(), 3, "begin, one statement, commit: {log}");
        }
    }
}

#[test]
fn tables_of_the_version_before_are_brought_forward_while_others_are_at_work() {
    let cluster = TestCluster::start(Durability::Unflushed);
    let (url, all) = create_owned_database(&cluster);
    // As created by the previous version: everything belongs to the login.
    all.must("CREATE ROLE icecore_app NOLOGIN NOBYPASSRLS; GRANT icecore_app TO keeper");
    let keeper = RawConnection::to(&url);
    for (number, (name, sql)) in OLD_STEPS.iter().enumerate() {
        let fingerprint = icecore_domain::hash::Hash::of(sql.as_bytes());
        keeper.must(sql);
        keeper.must(&format!(
            "INSERT INTO icecore.migration (number, name, fingerprint, least) VALUES ({}, '{name}', '{fingerprint}', 6)",
            number + 1
        ));
    }
    all.must("INSERT INTO icecore.space (space_id, name) VALUES (gen_random_uuid(), 'theirs')");
    assert_eq!(
        keeper.must("SELECT count(*) FROM icecore.space"),
        ["1"],
        "the owner that logs in saw every space"
    );

    let home = Postgres::for_url(&url, PostgresOptions::default()).unwrap();
    let lacking = block_on(home.create_space("A", CONFIG)).unwrap_err().to_string();
    assert!(lacking.contains("lack step 7"), "{lacking}");
    // A transaction that began with the old tables ends before the step is applied.
    all.must("BEGIN; SELECT max(least) FROM icecore.migration");
    let migrating = {
        let home = home.clone();
        std::thread::spawn(move || block_on(home.migrate()))
    };
    std::thread::sleep(Duration::from_millis(500));
    assert!(!migrating.is_finished());
    all.must("COMMIT");
    let steps = migrating.join().unwrap().unwrap();
    assert_eq!(steps.iter().map(|step| step.number).collect::<Vec<_>>(), [7]);
    assert_eq!(keeper.must("SELECT count(*) FROM icecore.space"), ["0"]);
    create_filled_space(&home, "A");
    assert_eq!(block_on(home.list_spaces("", 10)).unwrap(), ["A", "theirs"]);
    // Queries of the previous version are answered as before.
    keeper.must("BEGIN");
    keeper.must("SET LOCAL ROLE icecore_app; SET LOCAL icecore.space = ''");
    assert_eq!(keeper.must("SELECT name FROM icecore.spaces('', 10)"), ["A", "theirs"]);
    assert_eq!(
        keeper.must("SELECT count(*) FROM icecore.take_job('{tend}', 'me', '1 minute')"),
        ["1"]
    );
    keeper.must("COMMIT");
}

#[test]
fn the_tail_of_a_document_is_of_one_state_whatever_is_written_meanwhile() {
    let cluster = TestCluster::start(Durability::Unflushed);
    let home = Postgres::for_url(&cluster.url(), PostgresOptions::default()).unwrap();
    block_on(home.migrate()).unwrap();
    let space = block_on(home.create_space("A", CONFIG)).unwrap();
    let page: DocPath = "knowledge/x.md".parse().unwrap();
    let (long, short) = ("long\n".repeat(2_000), "short\n".repeat(3));
    block_on(space.put(&page, long.as_bytes())).unwrap();
    let is_over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for text in [&short, &long].into_iter().cycle() {
                if is_over.load(std::sync::atomic::Ordering::Relaxed) {
                    break;
                }
                block_on(space.put(&page, text.as_bytes())).unwrap();
            }
        });
        let wrong = (0..600).find_map(|_| {
            let told = block_on(space.read_tail(&page, 20)).unwrap();
            let good = [(b"long\n".repeat(3), false), (short.clone().into_bytes(), true)];
            (!good.contains(&told)).then_some(told)
        });
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        assert_eq!(wrong, None);
    });
}
