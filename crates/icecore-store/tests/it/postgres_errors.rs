//! Each way in which a database can be unreachable, provoked for real, and its class of error,
//! whatever the text says.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use icecore_store::postgres::{Postgres, PostgresOptions};
use icecore_store::prelude::*;
use icecore_store::testing::cluster::{Durability, TestCluster, free_port};
use icecore_store::{Error, ErrorKind};
use pollster::block_on;

const CONFIG: &str = "zone = \"UTC\"\n";

fn failure(url: &str) -> Error {
    let options =
        PostgresOptions { connect_timeout: Duration::from_secs(3), ..PostgresOptions::default() };
    block_on(Postgres::for_url(url, options).unwrap().list_spaces("", 1)).unwrap_err()
}

#[test]
fn every_way_to_find_no_connection_has_its_class() {
    let cluster = TestCluster::start(Durability::Unflushed);
    let data = cluster.sql("SHOW data_directory");
    cluster.sql("CREATE ROLE ann LOGIN PASSWORD 'right'; CREATE ROLE barred LOGIN; CREATE ROLE asleep NOLOGIN");
    let rules = "local all all trust\nhost replication all 127.0.0.1/32 trust\nhost all barred 127.0.0.1/32 reject\nhost all ann 127.0.0.1/32 scram-sha-256\nhost all all 127.0.0.1/32 trust\n";
    std::fs::write(Path::new(&data).join("pg_hba.conf"), rules).unwrap();
    cluster.sql("SELECT pg_reload_conf()");
    let at = |user: &str, rest: &str| {
        failure(&format!("postgres://{user}@127.0.0.1:{}/{rest}", cluster.port()))
    };
    for (what, error, right) in [
        ("wrong password", at("ann:wrong", "postgres"), "unwelcome"),
        ("no password", at("ann", "postgres"), "no password"),
        ("rejected by the server's rules", at("barred", "postgres"), "unwelcome"),
        ("a role that cannot log in", at("asleep", "postgres"), "unwelcome"),
        ("a role that is not there", at("ghost", "postgres"), "unwelcome"),
        ("a database that is not there", at("postgres", "elsewhere"), "no database"),
        ("TLS where there is none", at("postgres", "postgres?sslmode=require"), "insecure"),
        (
            "TLS where there is none, and no password",
            at("ann", "postgres?sslmode=require"),
            "insecure",
        ),
        (
            "nobody listens",
            failure(&format!("postgres://postgres@127.0.0.1:{}/postgres", free_port())),
            "unreachable",
        ),
        (
            "no such host",
            failure("postgres://postgres@no-such-host.invalid/postgres"),
            "unreachable",
        ),
        (
            "no such socket",
            failure("host=/no/such/folder user=postgres dbname=postgres"),
            "unreachable",
        ),
    ] {
        let class = match &error {
            Error { kind: ErrorKind::AccessDenied, .. }
                if error.to_string().contains("the address has none") =>
            {
                "no password"
            }
            Error { kind: ErrorKind::AccessDenied, .. } => "unwelcome",
            Error { kind: ErrorKind::NoDatabase, .. } => "no database",
            Error { kind: ErrorKind::Insecure, .. }
                if error.to_string().contains("sslmode=require") =>
            {
                "insecure"
            }
            Error { kind: ErrorKind::Unreachable, .. } => "unreachable",
            _ => "another",
        };
        assert_eq!(class, right, "{what}: {error:?}");
    }
    // A standby where a primary is required.
    let standby = cluster.standby();
    let error = failure(&format!("{}?target_session_attrs=read-write", standby.url()));
    assert!(matches!(error, Error { kind: ErrorKind::Standby, .. }), "{error:?}");
    drop(standby);
    // All connections are in use.
    cluster.configure("max_connections = 4\nsuperuser_reserved_connections = 3\n");
    cluster.restart();
    let holding = crate::postgres_isolation::RawConnection::to(&format!(
        "postgres://ann:right@127.0.0.1:{}/postgres",
        cluster.port()
    ));
    let error = at("ann:right", "postgres");
    assert!(matches!(error, Error { kind: ErrorKind::Unreachable, .. }), "{error:?}");
    drop(holding);
}

#[test]
fn an_untrusted_certificate_is_distinguished_from_an_unreachable_server() {
    let cluster = TestCluster::start(Durability::Unflushed);
    let data = cluster.sql("SHOW data_directory");
    let (key, certificate) =
        (Path::new(&data).join("server.key"), Path::new(&data).join("server.crt"));
    let made = Command::new("openssl")
        .args([
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-days",
            "2",
            "-subj",
            "/CN=127.0.0.1",
            "-keyout",
        ])
        .arg(&key)
        .arg("-out")
        .arg(&certificate)
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    let owner = Command::new("chown")
        .arg("--reference")
        .arg(&data)
        .arg(&key)
        .arg(&certificate)
        .status()
        .unwrap();
    assert!(
        owner.success() && Command::new("chmod").arg("600").arg(&key).status().unwrap().success()
    );
    cluster.configure("ssl = on\n");
    cluster.restart();
    for mode in ["prefer", "require"] {
        let error = failure(&format!("{}?sslmode={mode}", cluster.url()));
        assert!(matches!(error, Error { kind: ErrorKind::Insecure, .. }), "{mode}: {error:?}");
    }
    assert!(matches!(
        failure(&format!("{}?sslmode=disable", cluster.url())),
        Error { kind: ErrorKind::Schema, .. }
    ));
}

#[test]
fn what_a_statement_fails_with_has_its_class() {
    let cluster = TestCluster::start(Durability::Unflushed);
    let home = Postgres::for_url(
        &cluster.url(),
        PostgresOptions {
            statement_timeout: Duration::from_millis(600),
            lock_timeout: Duration::from_millis(300),
            ..PostgresOptions::default()
        },
    )
    .unwrap();
    block_on(home.migrate()).unwrap();
    let space = block_on(home.create_space("A", CONFIG)).unwrap();
    let page = "knowledge/x.md".parse().unwrap();
    let trigger = |body: &str| {
        cluster.sql(&format!(
            "CREATE OR REPLACE FUNCTION public.fails() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {body}; RETURN NEW; END $$; \
             CREATE OR REPLACE TRIGGER fails BEFORE INSERT OR UPDATE ON icecore.document FOR EACH ROW EXECUTE FUNCTION public.fails()"
        ))
    };
    for (body, right) in [
        // The error that PostgreSQL reports when the disk is full; no disk can be filled here.
        (
            "RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = 'disk_full'",
            "overrun",
        ),
        ("PERFORM pg_sleep(5)", "overrun"),
        ("RAISE EXCEPTION 'no' USING ERRCODE = 'insufficient_privilege'", "unwelcome"),
        ("RAISE EXCEPTION 'no' USING ERRCODE = 'serialization_failure'", "moved"),
        ("RAISE EXCEPTION 'no' USING ERRCODE = 'admin_shutdown'", "unreachable"),
        ("RAISE EXCEPTION 'no' USING ERRCODE = 'read_only_sql_transaction'", "read only"),
        ("RAISE EXCEPTION 'no'", "database"),
    ] {
        trigger(body);
        let error = block_on(space.put(&page, b"x")).unwrap_err();
        let class = match &error {
            Error { kind: ErrorKind::Overloaded, .. } => "overrun",
            Error { kind: ErrorKind::AccessDenied, .. } => "unwelcome",
            Error { kind: ErrorKind::Conflict, .. } => "moved",
            Error { kind: ErrorKind::Unreachable, .. } => "unreachable",
            Error { kind: ErrorKind::ReadOnly | ErrorKind::Standby, .. } => "read only",
            Error { kind: ErrorKind::Database, .. } => "database",
            _ => "another",
        };
        assert_eq!(class, right, "{body}: {error:?}");
    }
    trigger("NULL");
    block_on(space.put(&page, b"x")).unwrap();
}
