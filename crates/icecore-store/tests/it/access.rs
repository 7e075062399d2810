//! Tokens, quotas and the audit log in a database.

use std::sync::Arc;

use icecore_domain::calendar::Days;
use icecore_domain::hash::Hash;
use icecore_store::postgres::{
    AccessToken, AuditEvent, Postgres, PostgresOptions, Quota, QuotaLimit, RotationOutcome,
    all_spaces_of,
};
use icecore_store::prelude::*;
use icecore_store::testing::cluster::{Durability, TestCluster};
use jiff::{SignedDuration, Timestamp};
use pollster::block_on;

use crate::postgres_isolation::record;

/// A database whose tables belong to a login that is not a superuser, so that every policy applies
/// to it too.
fn migrated_database(cluster: &TestCluster) -> Arc<Postgres> {
    cluster.sql("CREATE ROLE keeper LOGIN CREATEROLE");
    cluster.sql("CREATE DATABASE memory OWNER keeper");
    let url = cluster.database_url("memory").replace("postgres@", "keeper@");
    let home = Postgres::for_url(&url, PostgresOptions::default()).unwrap();
    block_on(home.migrate()).unwrap();
    home
}

/// Runs SQL in a space, as the role of every transaction.
fn as_app(cluster: &TestCluster, space: &str, sql: &str) -> Result<String, String> {
    let text = format!(
        "BEGIN; SET LOCAL ROLE icecore_app; SET LOCAL icecore.space = '{space}'; {sql}; COMMIT"
    );
    let url = cluster.database_url("memory").replace("postgres@", "keeper@");
    let out = std::process::Command::new("psql")
        .args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-d", &url, "-c", &text])
        .output()
        .unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap().trim().to_owned();
    if out.status.success() { Ok(text(out.stdout)) } else { Err(text(out.stderr)) }
}

fn now() -> Timestamp {
    let since = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap();
    Timestamp::from_microsecond(i64::try_from(since.as_micros()).unwrap()).unwrap()
}

fn token(id: &str, space: &str, expires: Option<Timestamp>) -> AccessToken {
    AccessToken {
        id: id.into(),
        space: space.into(),
        label: "a test".into(),
        scopes: vec!["read".into(), "proxy".into()],
        created: now(),
        expires,
        revoked: None,
        last_used: None,
    }
}

fn audit_event(space: &str, verb: &str, what: &str) -> AuditEvent {
    AuditEvent {
        at: now(),
        space: space.into(),
        token: "home".into(),
        interface: "cli".into(),
        who: "somebody".into(),
        action: verb.into(),
        target: what.into(),
        status: 200,
    }
}

#[test]
fn a_token_is_good_from_when_it_is_made_until_it_ends() {
    let cluster = TestCluster::start(Durability::Unflushed);
    let home = migrated_database(&cluster);
    let made = audit_event("h", "token add", "x");
    block_on(async {
        let hash = |text: &str| Hash::of(text.as_bytes());
        home.add_token(
            &token("t1", "h/ann", None),
            hash("one"),
            &audit_event("h/ann", "token add", "t1"),
        )
        .await
        .unwrap();
        home.add_token(
            &token("t2", "h", Some(now() + SignedDuration::from_hours(1))),
            hash("two"),
            &made,
        )
        .await
        .unwrap();
        home.add_token(
            &token("t3", "h/ben", Some(now() - SignedDuration::from_secs(1))),
            hash("three"),
            &audit_event("h/ben", "x", "t3"),
        )
        .await
        .unwrap();
        let shown = home.authenticate_token(hash("one")).await.unwrap().unwrap();
        assert_eq!((shown.id.as_str(), shown.space.as_str(), shown.expires), ("t1", "h/ann", None));
        assert_eq!(shown.scopes, ["read", "proxy"]);
        let whole = home.authenticate_token(hash("two")).await.unwrap().unwrap();
        assert!(whole.space == "h" && whole.expires.is_some());
        assert_eq!(home.authenticate_token(hash("three")).await.unwrap(), None, "it has expired");
        assert_eq!(home.authenticate_token(hash("four")).await.unwrap(), None);
        // The time of the last use is recorded to the minute.
        let known = home.list_tokens("h", Some("h/ann"), 9).await.unwrap();
        assert!(known.len() == 1 && known[0].last_used.is_some());
        let used = known[0].last_used;
        home.authenticate_token(hash("one")).await.unwrap();
        assert_eq!(home.list_tokens("h", Some("h/ann"), 9).await.unwrap()[0].last_used, used);
        assert_eq!(home.list_tokens("h", None, 9).await.unwrap().len(), 3);
        assert_eq!(home.find_token("h", "t2").await.unwrap().unwrap().space, "h");
        assert_eq!(home.find_token("g", "t2").await.unwrap(), None, "it is another home's");
        assert_eq!(home.find_token("h", "t9").await.unwrap(), None);
        // After a rotation the old token stays valid for a while; after a revocation it does not.
        let soon = now() + SignedDuration::from_hours(1);
        let rotated = audit_event("h/ann", "token rotate", "t1 t4");
        let done = home
            .rotate_token(
                &known[0],
                Some(soon),
                &token("t4", "h/ann", None),
                hash("five"),
                &rotated,
            )
            .await
            .unwrap();
        assert_eq!(done, RotationOutcome::Replaced);
        // A token is rotated only once; its remaining lifetime is not recorded.
        let later = now() + SignedDuration::from_hours(9);
        let again = home
            .rotate_token(
                &known[0],
                Some(later),
                &token("t7", "h/ann", None),
                hash("seven"),
                &rotated,
            )
            .await
            .unwrap();
        assert_eq!(again, RotationOutcome::AlreadyReplaced { new: "t4".into() });
        assert_eq!(home.authenticate_token(hash("seven")).await.unwrap(), None);
        assert_eq!(
            home.authenticate_token(hash("one"))
                .await
                .unwrap()
                .unwrap()
                .expires
                .map(Timestamp::as_second),
            Some(soon.as_second())
        );
        assert_eq!(home.authenticate_token(hash("five")).await.unwrap().unwrap().id, "t4");
        assert!(
            home.revoke_token(&known[0], &audit_event("h/ann", "token revoke", "t1"))
                .await
                .unwrap()
        );
        assert!(
            !home
                .revoke_token(&known[0], &audit_event("h/ann", "token revoke", "t1"))
                .await
                .unwrap()
        );
        assert_eq!(home.authenticate_token(hash("one")).await.unwrap(), None);
        let over = home
            .rotate_token(
                &known[0],
                None,
                &token("t5", "h/ann", None),
                hash("six"),
                &audit_event("h/ann", "x", "t1"),
            )
            .await
            .unwrap();
        assert_eq!(over, RotationOutcome::Expired);
        assert_eq!(home.authenticate_token(hash("six")).await.unwrap(), None);
        // The same secret is never stored twice.
        assert!(
            home.add_token(
                &token("t6", "h/ann", None),
                hash("five"),
                &audit_event("h/ann", "x", "t6")
            )
            .await
            .is_err()
        );
    });
}

#[test]
fn what_is_noted_stays_and_no_space_sees_what_is_anothers() {
    let cluster = TestCluster::start(Durability::Unflushed);
    let home = migrated_database(&cluster);
    let (ann, ben) = block_on(async {
        home.create_space("h/ann", "zone = \"UTC\"\n").await.unwrap();
        home.create_space("h/ben", "zone = \"UTC\"\n").await.unwrap();
        home.add_token(
            &token("t1", "h/ben", None),
            Hash::of(b"one"),
            &audit_event("h/ben", "token add", "t1"),
        )
        .await
        .unwrap();
        let both = [
            audit_event("h/ann", "GET", "/api/status"),
            audit_event("h/ben", "GET", "/api/events"),
            audit_event("h", "GET", "/api/users"),
        ];
        home.record_audit_events(&both).await.unwrap();
        assert_eq!(home.audit_log("h", None, None, 10).await.unwrap().len(), 4);
        let bens = home.audit_log("h", Some("h/ben"), None, 10).await.unwrap();
        assert_eq!(
            bens.iter().map(|noted| noted.event.action.as_str()).collect::<Vec<_>>(),
            ["GET", "token add"]
        );
        assert_eq!(
            home.audit_log("h", Some("h/ben"), Some(now() + SignedDuration::from_hours(1)), 10)
                .await
                .unwrap(),
            []
        );
        (cluster_id(&cluster, "h/ann"), cluster_id(&cluster, "h/ben"))
    });
    // Ann's transactions see nothing of Ben's, neither directly nor through functions.
    for table in ["token", "audit", "quota", "used"] {
        assert_eq!(
            as_app(
                &cluster,
                &ann,
                &format!("SELECT count(*) FROM icecore.{table} WHERE space_id = '{ben}'")
            )
            .unwrap(),
            "0",
            "{table}"
        );
    }
    for asked in [
        "icecore.tokens('h', NULL, NULL, 9)".to_owned(),
        "icecore.token_shown('x')".to_owned(),
        "icecore.deeds('h', NULL, NULL, 9)".to_owned(),
        format!("icecore.standing('{ben}', '{ben}')"),
        format!("icecore.spend(ARRAY['{ben}'::uuid], ARRAY[1::bigint])"),
    ] {
        let said = as_app(&cluster, &ann, &format!("SELECT * FROM {asked}")).unwrap_err();
        assert!(said.contains("asks about others"), "{asked}: {said}");
    }
    let forged = format!(
        "INSERT INTO icecore.audit (space_id, space, token, door, who, verb, what, status) VALUES ('{ben}', '', '', '', '', '', '', 1)"
    );
    assert!(as_app(&cluster, &ann, &forged).unwrap_err().contains("row-level security"));
    // The audit log cannot be changed, not even by the owner of the tables.
    for change in [
        "UPDATE icecore.audit SET who = 'x'",
        "DELETE FROM icecore.audit",
        "TRUNCATE icecore.audit",
    ] {
        assert!(
            as_app(&cluster, &ben, change).unwrap_err().contains("permission denied"),
            "{change}"
        );
        let own = std::process::Command::new("psql")
            .args(["-X", "-q", "-d", &cluster.database_url("memory"), "-c", change])
            .output()
            .unwrap();
        assert!(
            String::from_utf8_lossy(&own.stderr).contains("never changed"),
            "{change}: {own:?}"
        );
    }
    for change in [
        "UPDATE icecore.token SET scopes = ARRAY['admin']",
        "UPDATE icecore.token SET space = NULL",
        "DELETE FROM icecore.token",
    ] {
        assert!(
            as_app(&cluster, &ben, change).unwrap_err().contains("permission denied"),
            "{change}"
        );
    }
    // After erasing, only the audit log is left.
    block_on(async {
        assert!(
            home.erase_space_audited("h/ben", &audit_event("h/ben", "erase", "ben")).await.unwrap()
        );
        assert_eq!(home.authenticate_token(Hash::of(b"one")).await.unwrap(), None);
        assert_eq!(home.list_tokens("h", Some("h/ben"), 9).await.unwrap(), []);
        let noted = home.audit_log("h", Some("h/ben"), None, 10).await.unwrap();
        assert_eq!((noted.len(), noted[0].event.action.as_str()), (3, "erase"));
        assert!(
            !home
                .erase_space_audited("h/ben", &audit_event("h/ben", "erase", "ben"))
                .await
                .unwrap()
        );
        assert!(home.open_space("h/ann").await.unwrap().is_some());
    });
}

// An entry that cannot be stored does not drop the others.
#[test]
fn what_cannot_be_noted_keeps_nothing_else_from_being_noted() {
    let cluster = TestCluster::start(Durability::Unflushed);
    let home = migrated_database(&cluster);
    block_on(async {
        let long = format!("h/{}", "x".repeat(700));
        let unfit = [
            audit_event(&long, "GET", "/long"),
            audit_event("h/a\nb", "GET", "/line"),
            audit_event("h/cid", "GET", "/nul\0"),
        ];
        let all = [
            &[audit_event("h/ann", "GET", "/one")],
            &unfit[..],
            &[audit_event("h/ben", "GET", "/two")],
        ]
        .concat();
        assert_eq!(home.record_audit_events(&all).await.unwrap(), 3);
        let noted = home.audit_log("h", None, None, 10).await.unwrap();
        let mut what: Vec<&str> = noted.iter().map(|noted| noted.event.target.as_str()).collect();
        what.sort_unstable();
        assert_eq!(what, ["/one", "/two"]);
        assert_eq!(
            (
                home.record_audit_events(&unfit).await.unwrap(),
                home.record_audit_events(&[]).await.unwrap()
            ),
            (3, 0)
        );
        for name in ["h/ann", "h/ben"] {
            home.create_space(name, "zone = \"UTC\"\n").await.unwrap();
        }
        // A model may report more tokens than exist.
        let spent = [
            ("h/ann".into(), 5),
            (long, 9),
            ("h/ben".into(), u64::MAX),
            ("h/ben".into(), u64::MAX),
        ];
        assert_eq!(
            (
                home.add_model_tokens(&spent).await.unwrap(),
                home.add_model_tokens(&spent[2..]).await.unwrap()
            ),
            (1, 0)
        );
        assert_eq!(home.quota_usage("h", "h/ann").await.unwrap().model_tokens, 5);
        assert!(home.quota_usage("h", "h/ben").await.unwrap().model_tokens > 1 << 40);
    });
}

fn cluster_id(cluster: &TestCluster, name: &str) -> String {
    let url = cluster.database_url("memory");
    let asked = format!("SELECT space_id FROM icecore.space WHERE name = '{name}'");
    let out = std::process::Command::new("psql")
        .args(["-X", "-q", "-A", "-t", "-d", &url, "-c", &asked])
        .output()
        .unwrap();
    String::from_utf8(out.stdout).unwrap().trim().to_owned()
}

#[test]
fn what_a_space_may_do_is_its_own_limit_or_that_of_all() {
    let cluster = TestCluster::start(Durability::Unflushed);
    let home = migrated_database(&cluster);
    block_on(async {
        home.create_space("h/ann", "zone = \"UTC\"\n").await.unwrap();
        let standing = home.quota_usage("h", "h/ann").await.unwrap();
        assert_eq!(standing.quota, Quota::default());
        assert!(standing.bytes > 0 && standing.messages == 0 && standing.model_tokens == 0);
        let all = Quota {
            messages_per_day: Some(QuotaLimit::AtMost(100)),
            bytes: Some(QuotaLimit::AtMost(5)),
            ..Quota::default()
        };
        home.set_quota(&all_spaces_of("h"), &all, &audit_event("h/", "quota", "")).await.unwrap();
        let own = Quota {
            bytes: Some(QuotaLimit::Unlimited),
            requests_per_minute: Some(QuotaLimit::AtMost(7)),
            ..Quota::default()
        };
        home.set_quota("h/ann", &own, &audit_event("h/ann", "quota", "ann")).await.unwrap();
        assert_eq!(home.space_quota("h/ann").await.unwrap(), own);
        assert_eq!(home.space_quota(&all_spaces_of("h")).await.unwrap(), all);
        let standing = home.quota_usage("h", "h/ann").await.unwrap();
        assert_eq!(
            standing.quota,
            Quota { messages_per_day: Some(QuotaLimit::AtMost(100)), ..own }
        );
        home.add_model_tokens(&[("h/ann".into(), 5), ("h/ann".into(), 7), ("h/ben".into(), 1)])
            .await
            .unwrap();
        home.add_model_tokens(&[("h/ann".into(), 1)]).await.unwrap();
        assert_eq!(home.quota_usage("h", "h/ann").await.unwrap().model_tokens, 13);
    });
}

/// Runs SQL as a superuser.
fn cluster_sql(cluster: &TestCluster, sql: &str) {
    let out = std::process::Command::new("psql")
        .args(["-X", "-q", "-d", &cluster.database_url("memory"), "-c", sql])
        .output()
        .unwrap();
    assert!(out.status.success(), "{out:?}");
}

#[test]
fn messages_are_counted_once_when_they_are_kept_and_by_nothing_else() {
    let cluster = TestCluster::start(Durability::Unflushed);
    let home = migrated_database(&cluster);
    block_on(async {
        let space = home.create_space("h/ann", "zone = \"UTC\"\n").await.unwrap();
        let counted = async || home.quota_usage("h", "h/ann").await.unwrap().messages;
        let old: Vec<_> = (0..5).map(|n| record(&format!("old {n}"), "long ago")).collect();
        space.add_records(old.clone()).await.unwrap();
        assert_eq!(counted().await, 5);
        // The next morning.
        cluster_sql(&cluster, "UPDATE icecore.used SET day = day - 1");
        space.add_records(old).await.unwrap();
        assert_eq!(counted().await, 0, "what is known already");
        space
            .add_records(vec![record("new", "hello"), record("old 1", "in other words")])
            .await
            .unwrap();
        assert_eq!(counted().await, 1, "other words for what is known are no new message");
        space.rebuild(&|_, _| {}).await.unwrap();
        assert_eq!(counted().await, 1, "what is derived is made anew");
        let path = "memory/messages/2026-02-13.jsonl".parse().unwrap();
        let bytes = space.document(&path).await.unwrap().unwrap();
        space.put(&path, &bytes).await.unwrap();
        space.put(&"memory/messages/2026-02-14.jsonl".parse().unwrap(), &bytes).await.unwrap();
        assert_eq!(counted().await, 1, "a document is put in place");
        space.remove(&path).await.unwrap();
        assert_eq!(counted().await, 1, "it is taken away");
        let day = jiff::civil::date(2026, 2, 14);
        space.forget_records(Days { first: day, last: day }, "work").await.unwrap();
        assert_eq!(counted().await, 1, "it is forgotten, and was kept today all the same");
    });
}
