//! The walls between spaces: what the database itself refuses, whoever asks and whatever the program forgets.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use icecore_domain::calendar::Moment;
use icecore_domain::event::Origin;
use icecore_domain::hash::Hash;
use icecore_domain::layout::DocPath;
use icecore_domain::rank::vector::{self, DIMENSIONS};
use icecore_domain::record::{Captured, Record, Role};
use icecore_store::passages::Passages as _;
use icecore_store::postgres::{Options, Postgres, Space};
use icecore_store::testing::cluster::{Cluster, Flush};
use icecore_store::{Error, Store};
use pollster::block_on;
use tokio_postgres::{Client, NoTls, SimpleQueryMessage};

use crate::postgres::draft;

const CONFIG: &str = "zone = \"UTC\"\n";
/// What outlives a space on purpose: who did what, and what was paid.
const OUTLIVES: [&str; 2] = ["audit", "job_run"];

/// A connection without anything of ours in between.
struct Raw {
    threads: tokio::runtime::Runtime,
    client: Client,
}

type Said = Result<Vec<String>, String>;

impl Raw {
    fn to(url: &str) -> Self {
        let threads = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let (client, connection) = threads.block_on(tokio_postgres::connect(url, NoTls)).unwrap();
        threads.spawn(connection);
        Self { threads, client }
    }

    /// The first column of every row; or what class of error it was.
    fn ask(&self, sql: &str) -> Said {
        match self.threads.block_on(self.client.simple_query(sql)) {
            Ok(rows) => Ok((rows.iter())
                .filter_map(|row| match row {
                    SimpleQueryMessage::Row(row) => Some(row.get(0).unwrap_or_default().to_owned()),
                    _ => None,
                })
                .collect()),
            Err(error) => Err(error.code().map_or_else(|| error.to_string(), |code| code.code().to_owned())),
        }
    }

    fn must(&self, sql: &str) -> Vec<String> {
        self.ask(sql).unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    /// What comes of it in a transaction as the program makes it, about that space; it is taken back.
    fn within(&self, space: &str, sql: &str) -> Said {
        self.must("BEGIN");
        self.must(&format!("SET LOCAL ROLE icecore_app; SET LOCAL icecore.space = '{space}'"));
        let said = self.ask(sql);
        self.must("ROLLBACK");
        said
    }

    /// Tables that have rows of spaces.
    fn tables(&self) -> Vec<String> {
        self.must(
            "SELECT table_name FROM information_schema.columns JOIN pg_tables ON schemaname = table_schema AND tablename = table_name
             WHERE table_schema = 'icecore' AND column_name = 'space_id' ORDER BY 1",
        )
    }

    /// A hash of everything a space has, table by table, and how many rows there are. As whoever sees everything.
    fn everything_of(&self, space: &str) -> BTreeMap<String, String> {
        let told = |table: &String| {
            let sql = format!(
                "SELECT count(*) || ' ' || coalesce(md5(string_agg(t::text, ' ' ORDER BY t::text)), '') FROM icecore.\"{table}\" t WHERE space_id = '{space}'"
            );
            (table.clone(), self.must(&sql).remove(0))
        };
        self.tables().iter().map(told).collect()
    }

    fn id(&self, name: &str) -> String {
        self.must(&format!("SELECT space_id::text FROM icecore.space WHERE name = '{name}'")).remove(0)
    }
}

/// A database whose owner is nobody special, and a connection as somebody who sees everything.
fn owned(cluster: &Cluster) -> (String, Raw) {
    cluster.sql("CREATE ROLE keeper LOGIN CREATEROLE");
    cluster.sql("CREATE DATABASE kept OWNER keeper");
    (cluster.url_of("kept").replace("postgres@", "keeper@"), Raw::to(&cluster.url_of("kept")))
}

fn home(url: &str, options: Options) -> Arc<Postgres> {
    let home = Postgres::at(url, options).unwrap();
    block_on(home.migrate()).unwrap();
    home
}

fn path(text: &str) -> DocPath {
    text.parse().unwrap()
}

fn said(id: &str, text: &str) -> Record {
    let ts = Moment::read("2026-02-13T09:30:00+01:00").unwrap().moment;
    Record {
        ts,
        conversation: "work".into(),
        session: Some("s".into()),
        id: id.into(),
        role: Role::User,
        name: Some("Ann".into()),
        kind: Captured::Message,
        title: None,
        text: text.into(),
        parts: None,
        origin: Origin::User,
        captured: ts,
        extra: Vec::new(),
    }
}

/// A space with something of everything.
fn furnished(home: &Arc<Postgres>, name: &str) -> Arc<Space> {
    let space = block_on(home.create(name, CONFIG)).unwrap();
    block_on(async {
        space.add_records(vec![said("a", &format!("secret of {name}")), said("b", "both")]).await.unwrap();
        let page = path("knowledge/x.md");
        space.put(&page, format!("page of {name}\n").as_bytes()).await.unwrap();
        space.put_note(&path("hooks/one.json"), name.as_bytes()).await.unwrap();
        space.keep_answer(Hash::of(b"q"), name.as_bytes()).await.unwrap();
        space.set_aside(&page, 3, name.as_bytes()).await.unwrap();
        space.append(vec![draft(&format!("fact of {name}"))], None).await.unwrap();
        space.take_in(false, &|_, _| {}).await.unwrap();
        let waiting = space.without_vector(9).await.unwrap();
        let vectors: Vec<_> = waiting.into_iter().map(|number| (number, vector::pack(&[0.1; DIMENSIONS]))).collect();
        space.keep_vectors(&vectors).await.unwrap();
        space.see(&space.unseen(&[page]).await.unwrap()).await.unwrap();
    });
    space
}

// L2
#[test]
fn nobody_sees_or_touches_a_row_of_another_space() {
    let cluster = Cluster::start(Flush::No);
    let (url, all) = owned(&cluster);
    let home = home(&url, Options::default());
    furnished(&home, "A");
    furnished(&home, "B");
    let (a, b) = (all.id("A"), all.id("B"));
    let before = all.everything_of(&b);
    // As the role of the program, and as the owner of the tables, who is under the same law.
    let owner = Raw::to(&url);
    let tables = all.tables();
    assert!(tables.len() >= 9, "{tables:?}");
    for table in &tables {
        let count = |whose: &str| format!("SELECT count(*) FROM icecore.\"{table}\" WHERE {whose}");
        let foreign = count(&format!("space_id <> '{a}'"));
        assert!(
            matches!(all.within(&a, &foreign), Ok(rows) if rows == ["0"]) || all.within(&a, &foreign) == Err("42501".into()),
            "{table}"
        );
        for nowhere in ["", &b.replace(|c: char| c.is_ascii_hexdigit(), "0")] {
            let seen = all.within(nowhere, &count("true"));
            assert!(matches!(&seen, Ok(rows) if rows == &["0"]) || seen == Err("42501".into()), "{table}: {seen:?}");
        }
        if table != "space" {
            let without = owner.ask(&count("true"));
            let searched = all.must(&format!(
                "SELECT count(*) FROM pg_policies WHERE schemaname = 'icecore' AND tablename = '{table}' AND 'keeper' = ANY (roles)"
            ));
            assert!(searched != ["0"] || matches!(&without, Ok(rows) if rows == &["0"]), "{table}: the owner sees {without:?}");
        }
        assert!(all.within("not a space", &count("true")).is_err(), "{table}");

        // A row of the other space, brought in by somebody who works for this one.
        let row = all.must(&format!("SELECT to_json(t)::text FROM icecore.\"{table}\" t WHERE space_id = '{b}' LIMIT 1"));
        if let Some(row) = row.first() {
            let insert =
                format!("INSERT INTO icecore.\"{table}\" SELECT * FROM json_populate_record(NULL::icecore.\"{table}\", $json${row}$json$)");
            assert_eq!(all.within(&a, &insert), Err("42501".into()), "{table}");
            assert_eq!(all.within("", &insert), Err("42501".into()), "{table}");
        }
        let harmless = |sql: String| {
            let said = all.within(&a, &format!("WITH touched AS ({sql} RETURNING 1) SELECT count(*) FROM touched"));
            assert!(matches!(&said, Ok(rows) if rows == &["0"]) || said == Err("42501".into()), "{sql}: {said:?}");
        };
        harmless(format!("UPDATE icecore.\"{table}\" SET space_id = space_id WHERE space_id = '{b}'"));
        harmless(format!("DELETE FROM icecore.\"{table}\" WHERE space_id = '{b}'"));
        // Nor is a row given away.
        harmless(format!("UPDATE icecore.\"{table}\" SET space_id = '{b}'"));
    }
    assert_eq!(all.everything_of(&b), before);
    // What is of no space is nobody's, but for which steps were taken.
    let readable = all.must(
        "SELECT relname FROM pg_class JOIN pg_namespace n ON n.oid = relnamespace WHERE nspname = 'icecore' AND relkind IN ('r', 'p', 'v', 'm') \
         AND has_table_privilege('icecore_app', pg_class.oid, 'SELECT')",
    );
    assert_eq!(readable.iter().filter(|table| !tables.contains(table)).collect::<Vec<_>>(), ["migration"]);
}

// L2
#[test]
fn every_table_is_guarded_and_keyed_by_its_space() {
    let cluster = Cluster::start(Flush::No);
    let (url, all) = owned(&cluster);
    home(&url, Options::default());
    let spaced = "SELECT c.oid, c.relname, c.relrowsecurity, c.relforcerowsecurity FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
        JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'space_id' WHERE n.nspname = 'icecore' AND c.relkind IN ('r', 'p')";
    let none = |sql: String, what: &str| assert_eq!(all.must(&sql), [""; 0], "{what}");
    none(format!("SELECT relname FROM ({spaced}) t WHERE NOT relrowsecurity OR NOT relforcerowsecurity"), "not guarded");
    none(
        format!("SELECT relname FROM ({spaced}) t WHERE NOT EXISTS (SELECT FROM pg_index WHERE indrelid = t.oid AND indisprimary)"),
        "without a primary key",
    );
    none(
        format!(
            "SELECT indexrelid::regclass::text FROM ({spaced}) t JOIN pg_index ON indrelid = t.oid AND indisunique \
             JOIN pg_attribute ON attrelid = t.oid AND attnum = indkey[0] WHERE attname <> 'space_id' \
             UNION SELECT indexrelid::regclass::text FROM ({spaced}) t JOIN pg_index ON indrelid = t.oid AND indisunique AND indkey[0] = 0"
        ),
        "unique beyond a space",
    );
    let own = "(space_id = icecore.this_space())";
    none(
        format!(
            "SELECT tablename || '.' || policyname FROM pg_policies WHERE schemaname = 'icecore' AND roles && ARRAY['public', 'icecore_app']::name[] \
             AND (qual IS DISTINCT FROM '{own}' OR with_check IS DISTINCT FROM '{own}' OR permissive <> 'PERMISSIVE')"
        ),
        "another law",
    );
    none(
        format!("SELECT relname FROM ({spaced}) t WHERE NOT EXISTS (SELECT FROM pg_policy WHERE polrelid = t.oid AND polroles = '{{0}}')"),
        "without a law",
    );
    // Whatever works with its owner's rights looks for names nowhere but where it was told.
    none(
        "SELECT proname FROM pg_proc JOIN pg_namespace n ON n.oid = pronamespace WHERE nspname = 'icecore' AND prosecdef \
         AND NOT coalesce(array_to_string(proconfig, ' ') ~ 'search_path=', false)"
            .into(),
        "a function that trusts names",
    );
    let role = all.must("SELECT (rolsuper OR rolbypassrls OR rolcanlogin OR rolcreatedb OR rolcreaterole)::text FROM pg_roles WHERE rolname = 'icecore_app'");
    assert_eq!(role, ["false"]);
    none(
        "SELECT relname FROM pg_class JOIN pg_namespace n ON n.oid = relnamespace WHERE nspname = 'icecore' AND relkind IN ('r', 'p', 'v', 'm') \
         AND (pg_get_userbyid(relowner) = 'icecore_app' OR has_table_privilege('icecore_app', pg_class.oid, 'TRUNCATE, REFERENCES, TRIGGER'))"
            .into(),
        "more rights than the work needs",
    );
}

// L2
#[test]
fn what_was_written_is_never_changed() {
    let cluster = Cluster::start(Flush::No);
    let (url, all) = owned(&cluster);
    let home = home(&url, Options::default());
    furnished(&home, "A");
    let a = all.id("A");
    let owner = Raw::to(&url);
    let denied = Err("42501".to_owned());
    owner.must(&format!("SET icecore.space = '{a}'"));
    for sql in ["UPDATE icecore.chunk SET bytes = ''", "TRUNCATE icecore.chunk"] {
        assert_eq!(all.within(&a, sql), denied, "{sql}");
        assert_eq!(owner.ask(sql), denied, "{sql}");
        assert_eq!(all.ask(sql), denied, "{sql}");
    }
    assert_eq!(all.within(&a, "DELETE FROM icecore.chunk"), denied);
    let records = "memory/messages/2026-02-13.jsonl";
    for (path, replacing, goes) in [
        (records, "", false),
        (records, "memory/messages/2026-02-14.jsonl", false),
        (records, records, true),
        ("memory/ledger.jsonl", records, false),
        ("conversations/x/events.jsonl", "", false),
        ("memory/tool/plan.jsonl", "", true),
        ("knowledge/x.md", "", true),
    ] {
        let sql = format!("SET LOCAL icecore.replacing = '{replacing}'; SELECT icecore.clear('{path}')");
        assert_eq!(all.within(&a, &sql).is_ok(), goes, "{path} {replacing}");
    }
}

// L2
#[test]
fn one_connection_that_serves_two_spaces_mixes_nothing_up() {
    let cluster = Cluster::start(Flush::No);
    let (url, all) = owned(&cluster);
    let home = home(&url, Options { connections: 1, lock: Duration::from_millis(150), ..Options::default() });
    let spaces = [furnished(&home, "A"), furnished(&home, "B")];
    let page = path("knowledge/x.md");
    let check = |which: usize| {
        let name = ["A", "B"][which];
        block_on(async {
            let told = spaces[which].document(&page).await.unwrap().unwrap();
            assert!(told.starts_with(format!("page of {name}").as_bytes()), "{}", String::from_utf8_lossy(&told));
            assert_eq!(spaces[which].last_said("work", 9).await.unwrap()[0].text, format!("secret of {name}"));
            assert_eq!(spaces[which].note(&path("hooks/one.json")).await.unwrap().unwrap(), name.as_bytes());
        });
    };
    for turn in 0..20 {
        let (one, other) = (turn % 2, (turn + 1) % 2);
        check(one);
        check(other);
        match turn % 3 {
            // Refused by the program, within its transaction.
            0 => assert!(matches!(block_on(spaces[one].grow(&page, b"x", 1)), Err(Error::Moved { .. }))),
            // Refused by the database: somebody holds what is to be written.
            1 => {
                all.must(&format!("BEGIN; SELECT 1 FROM icecore.document WHERE path = '{page}' FOR UPDATE"));
                assert!(matches!(block_on(spaces[one].put(&page, b"late")), Err(Error::Overrun(_))));
                all.must("ROLLBACK");
            }
            // Nobody waits for the end: after so many steps the work is dropped.
            _ => {
                let name = ["A", "B"][one];
                let text = format!("page of {name}, again");
                let mut work = pin!(spaces[one].put(&page, text.as_bytes()));
                for _ in 0..=turn {
                    if let Poll::Ready(done) = work.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                        done.unwrap();
                        break;
                    }
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
        }
        check(other);
        check(one);
    }
    // Where no space is named, nothing is left of the last one.
    let same = block_on(home.spaces("", 9)).unwrap();
    assert_eq!(same, ["A", "B"]);
    for space in &spaces {
        assert!(block_on(space.inspect()).unwrap().iter().all(|finding| !finding.fails));
    }
}

// L2
#[test]
fn what_is_erased_leaves_not_one_row_and_touches_no_other() {
    let cluster = Cluster::start(Flush::No);
    let (url, all) = owned(&cluster);
    let home = home(&url, Options::default());
    for name in ["A", "B", "C"] {
        furnished(&home, name);
    }
    let (a, b, c) = (all.id("A"), all.id("B"), all.id("C"));
    let before = [all.everything_of(&a), all.everything_of(&c)];
    assert!(block_on(home.erase("B")).unwrap());
    assert!(!block_on(home.erase("B")).unwrap());
    for (table, told) in all.everything_of(&b) {
        assert!(told == "0 " || OUTLIVES.contains(&table.as_str()), "{table}: {told}");
    }
    assert_eq!([all.everything_of(&a), all.everything_of(&c)], before);
    assert!(block_on(home.space("B")).unwrap().is_none());
    // The name may be given again, to somebody who has nothing of it.
    let anew = block_on(home.create("B", CONFIG)).unwrap();
    assert!(block_on(anew.last_said("work", 9)).unwrap().is_empty());
}

// L2: since PostgreSQL 16 whoever makes a role may give it to others, but not take it
#[test]
fn an_owner_who_is_nobody_special_may_take_the_role_it_has_made() {
    for cluster in [Cluster::start(Flush::No), Cluster::with_pgvector(Flush::No)] {
        let (url, all) = owned(&cluster);
        let home = home(&url, Options::default());
        let space = block_on(home.create("A", CONFIG)).unwrap();
        block_on(space.append(vec![draft("said")], None)).unwrap();
        assert_eq!(all.within(&all.id("A"), "SELECT name FROM icecore.space").unwrap(), ["A"]);
        // Once more, now that the role is there.
        cluster.sql("CREATE DATABASE second OWNER keeper");
        let second = Postgres::at(&url.replace("/kept", "/second"), Options::default()).unwrap();
        block_on(second.migrate()).unwrap();
        block_on(second.create("A", CONFIG)).unwrap();
    }
}
