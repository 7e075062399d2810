//! Isolation between spaces: what the database itself refuses, for every login and whatever the
//! program forgets to check.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use icecore_domain::calendar::{Days, Moment};
use icecore_domain::event::Origin;
use icecore_domain::hash::Hash;
use icecore_domain::layout::DocPath;
use icecore_domain::rank::vector::{self, DIMENSIONS};
use icecore_domain::record::{Record, RecordKind, Role};
use icecore_store::postgres::jobs::{MAINTENANCE_JOB, NextRun};
use icecore_store::postgres::{Postgres, PostgresOptions, Space};
use icecore_store::prelude::*;
use icecore_store::testing::cluster::{Durability, TestCluster};
use icecore_store::{ContentVersion, Error, ErrorKind, RestoreTarget};
use pollster::block_on;
use tokio_postgres::{Client, NoTls, SimpleQueryMessage};

use crate::postgres::draft;

const CONFIG: &str = "zone = \"UTC\"\n";
/// What outlives a space on purpose: the audit log and the usage.
const OUTLIVES: [&str; 2] = ["audit", "job_run"];
/// What may exist before the space does.
const PRECEDES: [&str; 2] = ["token", "quota"];

/// A plain connection without the store.
pub struct RawConnection {
    threads: tokio::runtime::Runtime,
    client: Client,
}

type SqlResult = Result<Vec<String>, String>;

impl RawConnection {
    pub fn to(url: &str) -> Self {
        let threads = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let (client, connection) = threads.block_on(tokio_postgres::connect(url, NoTls)).unwrap();
        threads.spawn(connection);
        Self { threads, client }
    }

    /// The first column of every row, or the error code.
    pub fn ask(&self, sql: &str) -> SqlResult {
        match self.threads.block_on(self.client.simple_query(sql)) {
            Ok(rows) => Ok((rows.iter())
                .filter_map(|row| match row {
                    SimpleQueryMessage::Row(row) => Some(row.get(0).unwrap_or_default().to_owned()),
                    _ => None,
                })
                .collect()),
            Err(error) => {
                Err(error.code().map_or_else(|| error.to_string(), |code| code.code().to_owned()))
            }
        }
    }

    pub fn must(&self, sql: &str) -> Vec<String> {
        self.ask(sql).unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    /// The result in a transaction like the store's, in that space; it is rolled back.
    fn within(&self, space: &str, sql: &str) -> SqlResult {
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

    /// A hash of all rows of a space, table by table, and their number, read as a superuser.
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
        self.must(&format!("SELECT space_id::text FROM icecore.space WHERE name = '{name}'"))
            .remove(0)
    }
}

/// A database with an unprivileged owner, and a superuser's connection to it.
pub fn create_owned_database(cluster: &TestCluster) -> (String, RawConnection) {
    cluster.sql("CREATE ROLE keeper LOGIN CREATEROLE");
    cluster.sql("CREATE DATABASE kept OWNER keeper");
    (
        cluster.database_url("kept").replace("postgres@", "keeper@"),
        RawConnection::to(&cluster.database_url("kept")),
    )
}

fn migrated_database(url: &str, options: PostgresOptions) -> Arc<Postgres> {
    let home = Postgres::for_url(url, options).unwrap();
    block_on(home.migrate()).unwrap();
    home
}

fn path(text: &str) -> DocPath {
    text.parse().unwrap()
}

pub fn record(id: &str, text: &str) -> Record {
    let ts = Moment::parse("2026-02-13T09:30:00+01:00").unwrap().moment;
    Record {
        ts,
        conversation: "work".into(),
        session: Some("s".into()),
        id: id.into(),
        role: Role::User,
        name: Some("Ann".into()),
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

/// A space with rows in every table.
pub fn create_filled_space(home: &Arc<Postgres>, name: &str) -> Arc<Space> {
    let space = block_on(home.create_space(name, CONFIG)).unwrap();
    block_on(async {
        space
            .add_records(vec![record("a", &format!("secret of {name}")), record("b", "both")])
            .await
            .unwrap();
        let page = path("knowledge/x.md");
        space.put(&page, format!("page of {name}\n").as_bytes()).await.unwrap();
        space.put_note(&path("hooks/one.json"), name.as_bytes()).await.unwrap();
        space.cache_answer(Hash::of(b"q"), name.as_bytes()).await.unwrap();
        space.quarantine(&page, 3, name.as_bytes()).await.unwrap();
        space.append(vec![draft(&format!("fact of {name}"))], None).await.unwrap();
        space.update_index(false, &|_, _| {}).await.unwrap();
        let waiting = space.passages_without_vector(9).await.unwrap();
        let vectors: Vec<_> = waiting
            .into_iter()
            .map(|number| (number, vector::pack_vector(&[0.1; DIMENSIONS])))
            .collect();
        space.store_vectors(&vectors).await.unwrap();
        space.mark_seen(&space.changed_since_seen(&[page]).await.unwrap()).await.unwrap();
    });
    space
}

// L2
#[test]
fn nobody_sees_or_touches_a_row_of_another_space() {
    let cluster = TestCluster::start(Durability::Unflushed);
    let (url, all) = create_owned_database(&cluster);
    let home = migrated_database(&url, PostgresOptions::default());
    create_filled_space(&home, "A");
    create_filled_space(&home, "B");
    let (a, b) = (all.id("A"), all.id("B"));
    let before = all.everything_of(&b);
    // As the transaction role, and as the login that created the tables, which is under the same
    // policies.
    let owner = RawConnection::to(&url);
    let tables = all.tables();
    assert!(tables.len() >= 9, "{tables:?}");
    for table in &tables {
        let count = |whose: &str| format!("SELECT count(*) FROM icecore.\"{table}\" WHERE {whose}");
        let foreign = count(&format!("space_id <> '{a}'"));
        assert!(
            matches!(all.within(&a, &foreign), Ok(rows) if rows == ["0"])
                || all.within(&a, &foreign) == Err("42501".into()),
            "{table}"
        );
        for nowhere in ["", &b.replace(|c: char| c.is_ascii_hexdigit(), "0")] {
            let seen = all.within(nowhere, &count("true"));
            assert!(
                matches!(&seen, Ok(rows) if rows == &["0"]) || seen == Err("42501".into()),
                "{table}: {seen:?}"
            );
        }
        let without = owner.ask(&count("true"));
        assert!(
            matches!(&without, Ok(rows) if rows == &["0"]),
            "{table}: the login that has made the tables sees {without:?}"
        );
        assert!(all.within("not a space", &count("true")).is_err(), "{table}");

        // Inserting a row of the other space.
        let row = all.must(&format!(
            "SELECT to_json(t)::text FROM icecore.\"{table}\" t WHERE space_id = '{b}' LIMIT 1"
        ));
        if let Some(row) = row.first() {
            let insert = format!(
                "INSERT INTO icecore.\"{table}\" SELECT * FROM json_populate_record(NULL::icecore.\"{table}\", $json${row}$json$)"
            );
            assert_eq!(all.within(&a, &insert), Err("42501".into()), "{table}");
            assert_eq!(all.within("", &insert), Err("42501".into()), "{table}");
        }
        let harmless = |sql: String| {
            let said = all.within(
                &a,
                &format!("WITH touched AS ({sql} RETURNING 1) SELECT count(*) FROM touched"),
            );
            assert!(
                matches!(&said, Ok(rows) if rows == &["0"]) || said == Err("42501".into()),
                "{sql}: {said:?}"
            );
        };
        harmless(format!(
            "UPDATE icecore.\"{table}\" SET space_id = space_id WHERE space_id = '{b}'"
        ));
        harmless(format!("DELETE FROM icecore.\"{table}\" WHERE space_id = '{b}'"));
        // Moving a row to another space.
        harmless(format!("UPDATE icecore.\"{table}\" SET space_id = '{b}'"));
    }
    assert_eq!(all.everything_of(&b), before);
    // Rows without a space are not visible, except for the migration steps.
    let readable = all.must(
        "SELECT relname FROM pg_class JOIN pg_namespace n ON n.oid = relnamespace WHERE nspname = 'icecore' AND relkind IN ('r', 'p', 'v', 'm') \
         AND has_table_privilege('icecore_app', pg_class.oid, 'SELECT')",
    );
    assert_eq!(
        readable.iter().filter(|table| !tables.contains(table)).collect::<Vec<_>>(),
        ["migration"]
    );
}

/// Which spaces a function of the schema may see.
#[derive(Clone, Copy, PartialEq)]
enum Reach {
    /// Only its arguments and the space that the transaction named.
    Own,
    /// All spaces; refused in a transaction that named one.
    Across,
}

/// Every function that may be called, with the arguments used here. `BETA`, `LIFE` and `TERM` are
/// the other space's.
const FUNCTIONS: &[(&str, Reach, &str)] = &[
    ("again_after", Reach::Own, "1"),
    ("clear", Reach::Own, "'knowledge/x.md'"),
    ("clear_blobs", Reach::Own, ""),
    ("clear_snapshots", Reach::Own, ""),
    ("deeds", Reach::Across, "'beta-home', NULL, NULL, 100"),
    ("door", Reach::Own, ""),
    ("enter", Reach::Own, "'LIFE', NULL"),
    ("enter_alone", Reach::Own, ""),
    ("erase", Reach::Own, ""),
    ("has_only_grown", Reach::Own, "'BETA', 'knowledge/x.md', 1, 1"),
    ("job_counts", Reach::Across, ""),
    ("nearest", Reach::Own, "repeat('1', 384)::bit(384), 10"),
    (
        "note_deeds",
        Reach::Across,
        "'{BETA}', ARRAY[now()], '{beta-home}', '{t}', '{cli}', '{x}', '{x}', '{x}', '{200}'",
    ),
    ("only_grows", Reach::Own, "'memory/ledger.jsonl'"),
    ("postings", Reach::Own, "'TERM', ARRAY['TERM']"),
    ("require_known", Reach::Own, "1000"),
    ("spaces", Reach::Across, "'', 100"),
    ("spend", Reach::Across, "'{BETA}', '{1}'"),
    ("stand_outside", Reach::Across, ""),
    ("standing", Reach::Across, "'BETA', 'BETA'"),
    ("take_job", Reach::Across, "'{tend}', 'me', '1 minute'"),
    ("this_space", Reach::Own, ""),
    ("token_shown", Reach::Across, "sha256('beta')"),
    ("tokens", Reach::Across, "'beta-home', NULL, NULL, 100"),
    ("unremembered", Reach::Across, "'beta-home', 100, 60"),
    ("version_after", Reach::Own, "0"),
];

#[test]
fn the_login_of_servers_sees_nothing_of_other_spaces_by_any_table_or_function() {
    let cluster = TestCluster::start(Durability::Unflushed);
    let (url, all) = create_owned_database(&cluster);
    let home = migrated_database(&url, PostgresOptions::default());
    let login = url.replace("keeper@", "web:secret@");
    assert_eq!(block_on(home.create_login(&login)).unwrap(), "web");
    for name in ["alpha-home", "beta-home"] {
        let space = create_filled_space(&home, name);
        let id = all.id(name);
        block_on(async {
            space.create_snapshot("first", jiff::Timestamp::UNIX_EPOCH).await.unwrap();
            space
                .append_pending(vec![record("c", &format!("waits in {name}"))], Duration::ZERO)
                .await
                .unwrap();
        });
        all.must(&format!(
            "INSERT INTO icecore.token (space_id, token_id, hash, space, label, scopes) VALUES ('{id}', 't', sha256('{0}'), '{name}', '{name}', '{{read}}');
             INSERT INTO icecore.quota (space_id, bytes) VALUES ('{id}', 1000000);
             INSERT INTO icecore.audit (space_id, space, token, door, who, verb, what, status) VALUES ('{id}', '{name}', 't', 'cli', 'x', 'x', 'x', 200);
             INSERT INTO icecore.claim VALUES ('{id}', 'night', '{id}', now());
             INSERT INTO icecore.used (space_id, messages) VALUES ('{id}', 1) ON CONFLICT DO NOTHING;
             INSERT INTO icecore.passage_more SELECT space_id, number, 1, terms FROM icecore.passage WHERE space_id = '{id}' LIMIT 1;
             UPDATE icecore.waiting SET until = now() - interval '1 hour' WHERE space_id = '{id}'",
            name.split('-').next().unwrap()
        ));
    }
    let (alpha, beta) = (all.id("alpha-home"), all.id("beta-home"));
    let life = all
        .must(&format!("SELECT life::text FROM icecore.space WHERE space_id = '{beta}'"))
        .remove(0);
    let term = all
        .must(&format!(
            "SELECT lexeme FROM icecore.passage, unnest(terms) WHERE space_id = '{beta}' LIMIT 1"
        ))
        .remove(0);
    let empty: Vec<String> = all
        .everything_of(&beta)
        .into_iter()
        .filter(|(_, rows)| rows.starts_with("0 "))
        .map(|(table, _)| table)
        .collect();
    assert_eq!(empty, [""; 0], "these tables have no row that could be seen");

    // The login itself, without a space, in a space, and in a space with the transaction role.
    let web = RawConnection::to(&login);
    let inside = format!("SET LOCAL icecore.space = '{alpha}'");
    for setting in ["SELECT 1", &inside, &format!("SET LOCAL ROLE icecore_app; {inside}")] {
        let is_outside = setting == "SELECT 1";
        let asks = |sql: &str| {
            web.must("BEGIN");
            web.must(setting);
            let said = web.ask(sql);
            web.must("ROLLBACK");
            said
        };
        for table in all.must(
            "SELECT relname FROM pg_class WHERE relnamespace = 'icecore'::regnamespace AND relkind IN ('r', 'p', 'v', 'm') ORDER BY 1",
        ) {
            if table == "migration" {
                continue;
            }
            let own = if is_outside { "true".into() } else { format!("space_id <> '{alpha}'") };
            let seen = asks(&format!("SELECT count(*) FROM icecore.\"{table}\" WHERE {own}"));
            assert!(matches!(&seen, Ok(rows) if rows == &["0"]) || seen == Err("42501".into()), "{setting}: {table} shows {seen:?}");
        }
        for name in all.must(
            "SELECT DISTINCT proname FROM pg_proc WHERE pronamespace = 'icecore'::regnamespace AND prorettype <> 'trigger'::regtype \
             AND has_function_privilege('web', oid, 'EXECUTE') ORDER BY 1",
        ) {
            let known = FUNCTIONS.iter().find(|(known, ..)| *known == name);
            let (_, reach, arguments) =
                known.unwrap_or_else(|| panic!("say in FUNCTIONS how `icecore.{name}` is called and how far it looks"));
            let arguments = arguments.replace("BETA", &beta).replace("LIFE", &life).replace("TERM", &term);
            let said = asks(&format!("SELECT answer::text FROM icecore.{name}({arguments}) AS answer"));
            match (reach, is_outside) {
                (Reach::Across, true) => assert!(said.is_ok(), "{name}: {said:?}"),
                (Reach::Across, false) => assert_eq!(said, Err("42501".into()), "{setting}: {name}"),
                (Reach::Own, _) => {
                    let told = said.unwrap_or_default().join("\n");
                    assert!(
                        !told.contains("beta") && !told.contains(&beta) && (name != "postings" || told.is_empty()),
                        "{setting}: {name} tells {told}"
                    );
                }
            }
        }
    }
    // A function that changes one space changes no other.
    let before = all.everything_of(&beta);
    for (name, _, arguments) in FUNCTIONS.iter().filter(|(_, reach, _)| *reach == Reach::Own) {
        let arguments =
            arguments.replace("BETA", &beta).replace("LIFE", &life).replace("TERM", &term);
        all.must("BEGIN");
        all.must(&format!("SET LOCAL ROLE icecore_app; {inside}; SET LOCAL icecore.replacing = 'snapshots'; SAVEPOINT called"));
        if all.ask(&format!("SELECT 1 FROM icecore.{name}({arguments})")).is_err() {
            all.must("ROLLBACK TO called");
        }
        all.must("RESET ROLE");
        assert_eq!(all.everything_of(&beta), before, "{name}");
        all.must("ROLLBACK");
    }
}

#[test]
fn nobody_logs_in_as_the_owner_and_the_login_of_servers_owns_nothing() {
    let cluster = TestCluster::start(Durability::Unflushed);
    let (url, all) = create_owned_database(&cluster);
    let home = migrated_database(&url, PostgresOptions::default());
    let owners = "SELECT DISTINCT pg_get_userbyid(owner) FROM (SELECT relowner AS owner FROM pg_class WHERE relnamespace = 'icecore'::regnamespace \
        UNION SELECT proowner FROM pg_proc WHERE pronamespace = 'icecore'::regnamespace UNION SELECT nspowner FROM pg_namespace WHERE nspname = 'icecore') AS one";
    assert_eq!(all.must(owners), ["icecore_owner"]);
    let role = "SELECT (rolsuper OR rolbypassrls OR rolcanlogin OR rolcreatedb OR rolcreaterole)::text FROM pg_roles WHERE rolname = 'icecore_owner'";
    assert_eq!(all.must(role), ["false"]);
    // The login that created the tables was a member of the owner role only meanwhile.
    assert_eq!(
        all.must("SELECT pg_has_role('keeper', 'icecore_owner', 'MEMBER')::text"),
        ["false"]
    );
    // A server's login owns nothing; creating it again changes its password only.
    for password in ["first", "second"] {
        block_on(home.create_login(&url.replace("keeper@", &format!("web:{password}@")))).unwrap();
    }
    assert_eq!(
        all.must("SELECT string_agg(roleid::regrole::text, ',') FROM pg_auth_members WHERE member = 'web'::regrole"),
        ["icecore_app"]
    );
    assert_eq!(
        all.must("SELECT left(rolpassword, 13) FROM pg_authid WHERE rolname = 'web'"),
        ["SCRAM-SHA-256"]
    );
    let served =
        Postgres::for_url(&url.replace("keeper@", "web:second@"), PostgresOptions::default())
            .unwrap();
    create_filled_space(&served, "A");
    assert!(block_on(served.erase_space("A")).unwrap());
    assert_eq!(block_on(served.login_privilege()).unwrap(), None);
    // A superuser is not accepted as a server's login.
    let refused = block_on(home.create_login(&url.replace("keeper@", "postgres:x@")))
        .unwrap_err()
        .to_string();
    assert!(
        refused.contains("`postgres` is a superuser") && refused.contains("Name another user"),
        "{refused}"
    );
    let superuser =
        Postgres::for_url(&cluster.database_url("kept"), PostgresOptions::default()).unwrap();
    assert_eq!(
        block_on(superuser.login_privilege()).unwrap().as_deref(),
        Some("`postgres` is a superuser")
    );
}

// L2
#[test]
fn every_table_is_guarded_and_keyed_by_its_space() {
    let cluster = TestCluster::start(Durability::Unflushed);
    let (url, all) = create_owned_database(&cluster);
    migrated_database(&url, PostgresOptions::default());
    let spaced = "SELECT c.oid, c.relname, c.relrowsecurity, c.relforcerowsecurity FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
        JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'space_id' WHERE n.nspname = 'icecore' AND c.relkind IN ('r', 'p')";
    let none = |sql: String, what: &str| assert_eq!(all.must(&sql), [""; 0], "{what}");
    none(
        format!(
            "SELECT relname FROM ({spaced}) t WHERE NOT relrowsecurity OR NOT relforcerowsecurity"
        ),
        "not guarded",
    );
    none(
        format!(
            "SELECT relname FROM ({spaced}) t WHERE NOT EXISTS (SELECT FROM pg_index WHERE indrelid = t.oid AND indisprimary)"
        ),
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
        format!(
            "SELECT relname FROM ({spaced}) t WHERE NOT EXISTS (SELECT FROM pg_policy WHERE polrelid = t.oid AND polroles = '{{0}}')"
        ),
        "without a law",
    );
    // No table accepts a row of a space that does not exist.
    let loose = all.must(&format!(
        "SELECT relname FROM ({spaced}) t WHERE relname <> 'space' AND NOT EXISTS (SELECT FROM pg_constraint c \
         WHERE c.conrelid = t.oid AND c.contype = 'f' AND c.confrelid = 'icecore.space'::regclass) ORDER BY 1"
    ));
    let exempt = |table: &String| [OUTLIVES, PRECEDES].concat().contains(&table.as_str());
    assert!(loose.iter().all(exempt), "{loose:?} may be written after the space was taken away");
    // Every function with its owner's permissions has a fixed search path.
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
    let cluster = TestCluster::start(Durability::Unflushed);
    let (url, all) = create_owned_database(&cluster);
    let home = migrated_database(&url, PostgresOptions::default());
    create_filled_space(&home, "A");
    let a = all.id("A");
    let owner = RawConnection::to(&url);
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
        let sql =
            format!("SET LOCAL icecore.replacing = '{replacing}'; SELECT icecore.clear('{path}')");
        assert_eq!(all.within(&a, &sql).is_ok(), goes, "{path} {replacing}");
    }
}

// L2
#[test]
fn one_connection_that_serves_two_spaces_mixes_nothing_up() {
    let cluster = TestCluster::start(Durability::Unflushed);
    let (url, all) = create_owned_database(&cluster);
    let home = migrated_database(
        &url,
        PostgresOptions {
            max_connections: 1,
            lock_timeout: Duration::from_millis(150),
            ..PostgresOptions::default()
        },
    );
    let spaces = [create_filled_space(&home, "A"), create_filled_space(&home, "B")];
    let page = path("knowledge/x.md");
    let check = |which: usize| {
        let name = ["A", "B"][which];
        block_on(async {
            let told = spaces[which].document(&page).await.unwrap().unwrap();
            assert!(
                told.starts_with(format!("page of {name}").as_bytes()),
                "{}",
                String::from_utf8_lossy(&told)
            );
            assert_eq!(
                spaces[which].recent_records("work", 9).await.unwrap()[0].text,
                format!("secret of {name}")
            );
            assert_eq!(
                spaces[which].note(&path("hooks/one.json")).await.unwrap().unwrap(),
                name.as_bytes()
            );
        });
    };
    for turn in 0..20 {
        let (one, other) = (turn % 2, (turn + 1) % 2);
        check(one);
        check(other);
        match turn % 3 {
            // Refused by the program, inside its transaction.
            0 => assert!(matches!(
                block_on(spaces[one].append_if_unchanged(
                    &page,
                    b"x",
                    ContentVersion::of(Some(b"other"))
                )),
                Err(Error { kind: ErrorKind::Conflict, .. })
            )),
            // Refused by the database: the row is locked.
            1 => {
                all.must(&format!(
                    "BEGIN; SELECT 1 FROM icecore.document WHERE path = '{page}' FOR UPDATE"
                ));
                assert!(matches!(
                    block_on(spaces[one].put(&page, b"late")),
                    Err(Error { kind: ErrorKind::Overloaded, .. })
                ));
                all.must("ROLLBACK");
            }
            // The caller stops waiting: after so many steps the work is dropped.
            _ => {
                let name = ["A", "B"][one];
                let text = format!("page of {name}, again");
                let mut work = pin!(spaces[one].put(&page, text.as_bytes()));
                for _ in 0..=turn {
                    if let Poll::Ready(done) =
                        work.as_mut().poll(&mut Context::from_waker(Waker::noop()))
                    {
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
    // Without a space, nothing of the previous space is left on the connection.
    let same = block_on(home.list_spaces("", 9)).unwrap();
    assert_eq!(same, ["A", "B"]);
    for space in &spaces {
        assert!(block_on(space.inspect()).unwrap().iter().all(|finding| !finding.fails));
    }
}

// L2
#[test]
fn what_is_erased_leaves_not_one_row_and_touches_no_other() {
    let cluster = TestCluster::start(Durability::Unflushed);
    let (url, all) = create_owned_database(&cluster);
    let home = migrated_database(&url, PostgresOptions::default());
    for name in ["A", "B", "C"] {
        create_filled_space(&home, name);
    }
    let (a, b, c) = (all.id("A"), all.id("B"), all.id("C"));
    let before = [all.everything_of(&a), all.everything_of(&c)];
    assert!(block_on(home.erase_space("B")).unwrap());
    assert!(!block_on(home.erase_space("B")).unwrap());
    for (table, told) in all.everything_of(&b) {
        assert!(told == "0 " || OUTLIVES.contains(&table.as_str()), "{table}: {told}");
    }
    assert_eq!([all.everything_of(&a), all.everything_of(&c)], before);
    assert!(block_on(home.open_space("B")).unwrap().is_none());
    // The name may be used again, for a space without the old content.
    let anew = block_on(home.create_space("B", CONFIG)).unwrap();
    assert!(block_on(anew.recent_records("work", 9)).unwrap().is_empty());
}

// L2
#[test]
fn what_was_meant_for_one_life_of_a_space_does_not_reach_the_next() {
    let cluster = TestCluster::start(Durability::Unflushed);
    let (url, all) = create_owned_database(&cluster);
    let (here, there) = (
        migrated_database(&url, PostgresOptions::default()),
        migrated_database(&url, PostgresOptions::default()),
    );
    let old = create_filled_space(&here, "ann");
    let waiting = block_on(old.passages_without_vector(9)).unwrap();
    let position = block_on(old.position()).unwrap();
    // Another process erases the space, and the next message creates it again.
    assert!(block_on(there.erase_space("ann")).unwrap());
    let new = block_on(there.create_space("ann", CONFIG)).unwrap();
    block_on(new.add_records(vec![record("n", "hello")])).unwrap();
    let before = all.everything_of(&all.id("ann"));
    block_on(async {
        let page = path("knowledge/late.md");
        let at = Moment::parse("2026-02-13T10:00:00+01:00").unwrap().moment.timestamp();
        let vectors =
            [(waiting.first().copied().unwrap_or(1), vector::pack_vector(&[0.2; DIMENSIONS]))];
        let day = jiff::civil::date(2026, 2, 13);
        let days = Days { first: day, last: day };
        for (what, outcome) in [
            (
                "append",
                old.append(vec![draft("a fact of the erased exchange")], None).await.map(|_| ()),
            ),
            ("append at", old.append(vec![draft("likewise")], Some(position)).await.map(|_| ())),
            ("append_lines", old.append_lines(b"{}\n").await),
            ("replace_ledger", old.replace_ledger(b"", new.position().await.unwrap()).await),
            ("put", old.put(&page, b"x").await),
            ("put_many", old.put_many(&[(page.clone(), b"x".to_vec())]).await),
            ("grow", old.append_if_unchanged(&page, b"x", ContentVersion::ABSENT).await),
            ("extend", old.append_to_document(&page, b"x").await),
            ("swap", old.compare_and_swap(&page, b"x", ContentVersion::ABSENT).await),
            ("remove", old.remove(&path("icecore.toml")).await),
            ("add_records", old.add_records(vec![record("o", "old")]).await.map(|_| ())),
            (
                "add_awaited",
                old.append_pending(vec![record("o", "old")], Duration::from_secs(9))
                    .await
                    .map(|_| ()),
            ),
            (
                "take",
                TurnLeases::acquire(&*old, "work", "w", Duration::from_secs(9)).await.map(|_| ()),
            ),
            ("forget_records", old.forget_records(days, "work").await.map(|_| ())),
            ("add_summaries", old.add_summaries(&[], None).await.map(|_| ())),
            ("put_note", old.put_note(&path("hooks/late.json"), b"x").await),
            ("keep_answer", old.cache_answer(Hash::of(b"late"), b"x").await),
            ("set_aside", old.quarantine(&page, 0, b"x").await.map(|_| ())),
            ("see", old.mark_seen(&[(page.clone(), icecore_store::Stamp("1".into()))]).await),
            ("take_in", old.update_index(true, &|_, _| {}).await.map(|_| ())),
            ("keep_vectors", old.store_vectors(&vectors).await),
            ("rebuild", old.rebuild(&|_, _| {}).await.map(|_| ())),
            ("snapshot", old.create_snapshot("late", at).await.map(|_| ())),
            ("want", old.request_job("tend", Duration::ZERO).await),
        ] {
            assert!(
                matches!(outcome, Err(Error { kind: ErrorKind::SpaceErased, .. })),
                "{what}: {outcome:?}"
            );
        }
    });
    assert_eq!(all.everything_of(&all.id("ann")), before);
    block_on(new.append(vec![draft("a fact of the new life")], None)).unwrap();
    let (one, other) = (
        block_on(here.space_fingerprint("ann")).unwrap().unwrap(),
        block_on(there.space_fingerprint("ann")).unwrap().unwrap(),
    );
    assert!(one.is_same_space(&other));
}

// L2
#[test]
fn a_snapshot_that_is_being_made_leaves_nothing_of_what_is_erased() {
    let cluster = TestCluster::start(Durability::Unflushed);
    let (url, all) = create_owned_database(&cluster);
    let home = migrated_database(&url, PostgresOptions::default());
    let space = create_filled_space(&home, "ann");
    let id = all.id("ann");
    all.must(&format!("BEGIN; SELECT pg_advisory_xact_lock(hashtextextended('{id}', 2))"));
    let waits = |sql: &str| {
        let raw = RawConnection::to(&cluster.database_url("kept"));
        for _ in 0..500 {
            if raw.must(&format!("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%{sql}%'")) == ["1"]
            {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    };
    let at = Moment::parse("2026-02-13T10:00:00+01:00").unwrap().moment.timestamp();
    let making = std::thread::spawn(move || block_on(space.create_snapshot("night", at)));
    waits("pg_advisory_xact_lock");
    let erasing = {
        let home = home.clone();
        std::thread::spawn(move || block_on(home.erase_space("ann")))
    };
    // The erasure waits for the snapshot, or is complete before it.
    std::thread::sleep(Duration::from_millis(300));
    all.must("ROLLBACK");
    let made = making.join().unwrap();
    assert!(matches!(made, Ok(_) | Err(Error { kind: ErrorKind::SpaceErased, .. })), "{made:?}");
    assert!(erasing.join().unwrap().unwrap());
    for (table, told) in all.everything_of(&id) {
        assert!(told == "0 " || OUTLIVES.contains(&table.as_str()), "{table}: {told}");
    }
}

// L2
#[test]
fn work_of_an_earlier_life_is_nobodys_any_more() {
    const LEASE: Duration = Duration::from_secs(60);
    let cluster = TestCluster::start(Durability::Unflushed);
    let (url, _) = create_owned_database(&cluster);
    let home = migrated_database(&url, PostgresOptions::default());
    block_on(async {
        home.create_space("ann", CONFIG).await.unwrap();
        home.create_space("ben", CONFIG).await.unwrap();
        let old = home.acquire_job(&[MAINTENANCE_JOB], "old", LEASE).await.unwrap().unwrap();
        assert_eq!(old.space, "ann");
        assert!(home.erase_space("ann").await.unwrap());
        // The usage of the erased space is not recorded; that of another space is.
        home.add_model_tokens(&[("ann".into(), 7), ("ben".into(), 9)]).await.unwrap();
        assert_eq!(home.quota_usage("ben", "ben").await.unwrap().model_tokens, 9);
        home.create_space("ann", CONFIG).await.unwrap();
        assert_eq!(home.quota_usage("ann", "ann").await.unwrap().model_tokens, 0);
        let mut new = Vec::new();
        while let Some(work) = home.acquire_job(&[MAINTENANCE_JOB], "new", LEASE).await.unwrap() {
            new.push(work);
        }
        let new = new.into_iter().find(|work| work.space == "ann").unwrap();
        assert_ne!(old.epoch, new.epoch);
        assert!(!home.renew_job(&old, LEASE).await.unwrap());
        assert!(!home.fail_job(&old, "late").await.unwrap());
        assert!(!home.finish_job(&old, NextRun::OnWrite, 0).await.unwrap());
        assert!(home.renew_job(&new, LEASE).await.unwrap());
    });
}

// P8
#[test]
fn a_space_that_is_being_filled_is_nobody_elses_until_it_is_whole() {
    let cluster = TestCluster::start(Durability::Unflushed);
    let (url, all) = create_owned_database(&cluster);
    let (here, there) = (
        migrated_database(&url, PostgresOptions::default()),
        migrated_database(&url, PostgresOptions::default()),
    );
    let page = path("knowledge/x.md");
    let refused = |what: &str, outcome: Result<(), Error>| {
        assert!(
            matches!(outcome, Err(Error { kind: ErrorKind::RestoreInProgress, .. })),
            "{what}: {outcome:?}"
        )
    };
    block_on(async {
        // As soon as a restore starts, the space is invisible and no worker takes it.
        let filler = here.create_restore_target("ann", CONFIG).await.unwrap();
        refused("space", there.open_space("ann").await.map(|_| ()));
        refused("glance", there.space_fingerprint("ann").await.map(|_| ()));
        assert_eq!(
            there.acquire_job(&[MAINTENANCE_JOB], "w", Duration::from_secs(60)).await.unwrap(),
            None
        );
        assert_eq!(filler.begin_restore().await.unwrap(), RestoreTarget::New);
        filler.put(&page, b"brought in").await.unwrap();
        // A second restore is refused too.
        let second = there.create_restore_target("ann", CONFIG).await.unwrap();
        refused("begin_filling", second.begin_restore().await.map(|_| ()));
        refused("put", second.put(&page, b"another's").await);
        // After its lease an interrupted restore may be started again by another process, and the
        // first can no longer finish.
        all.must("UPDATE icecore.space SET filled_until = now() - interval '1 second'");
        refused("space", there.open_space("ann").await.map(|_| ()));
        assert_eq!(second.begin_restore().await.unwrap(), RestoreTarget::Unfinished);
        refused("put", filler.put(&page, b"too late").await);
        refused("end_filling", filler.finish_restore().await);
        second.put(&page, b"whole").await.unwrap();
        second.finish_restore().await.unwrap();
        refused("put", filler.put(&page, b"much too late").await);
        let space = here.open_space("ann").await.unwrap().unwrap();
        assert_eq!(space.document(&page).await.unwrap().unwrap(), b"whole");
        assert_eq!(
            there
                .acquire_job(&[MAINTENANCE_JOB], "w", Duration::from_secs(60))
                .await
                .unwrap()
                .unwrap()
                .space,
            "ann"
        );
        // A restore never overwrites a memory, and checking for that locks no one out.
        let ground = there
            .create_restore_target("ann", CONFIG)
            .await
            .unwrap()
            .begin_restore()
            .await
            .unwrap();
        assert_eq!(ground, RestoreTarget::Occupied { documents: 1, such_as: page.clone() });
        space.put(&page, b"goes on").await.unwrap();
        // An existing empty space is accepted; processes that have it open are refused until the
        // restore is complete.
        let open = here.create_space("ben", CONFIG).await.unwrap();
        let filler = there.create_restore_target("ben", CONFIG).await.unwrap();
        assert_eq!(filler.begin_restore().await.unwrap(), RestoreTarget::New);
        refused("put", open.put(&page, b"a chat").await);
        filler.abort_restore().await.unwrap();
        refused("put", open.put(&page, b"a chat").await);
        // An aborted restore may be started again at once, or its space erased.
        assert_eq!(filler.begin_restore().await.unwrap(), RestoreTarget::Unfinished);
        assert!(here.erase_space("ben").await.unwrap());
        assert!(matches!(
            filler.put(&page, b"x").await,
            Err(Error { kind: ErrorKind::SpaceErased, .. })
        ));
        assert!(here.open_space("ben").await.unwrap().is_none());
    });
}

// L2: since PostgreSQL 16 the creator of a role may grant it to others, but is not a member
#[test]
fn an_owner_who_is_nobody_special_may_take_the_role_it_has_made() {
    for cluster in [
        TestCluster::start(Durability::Unflushed),
        TestCluster::with_pgvector(Durability::Unflushed),
    ] {
        let (url, all) = create_owned_database(&cluster);
        let home = migrated_database(&url, PostgresOptions::default());
        let space = block_on(home.create_space("A", CONFIG)).unwrap();
        block_on(space.append(vec![draft("said")], None)).unwrap();
        assert_eq!(all.within(&all.id("A"), "SELECT name FROM icecore.space").unwrap(), ["A"]);
        // Again, now that the role exists.
        cluster.sql("CREATE DATABASE second OWNER keeper");
        let second =
            Postgres::for_url(&url.replace("/kept", "/second"), PostgresOptions::default())
                .unwrap();
        block_on(second.migrate()).unwrap();
        block_on(second.create_space("A", CONFIG)).unwrap();
    }
}
