//! The conformance suite that every backend must pass.
//!
//! Each check is a function of an empty store; the backend's own test calls [`run_all`] with a way
//! to create one.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a failing check panics")]

use std::future::Future;
use std::pin::Pin;

use icecore_domain::calendar::{Days, Moment};
use icecore_domain::event::{Act, EventDraft, EventType, Origin, Priority};
use icecore_domain::forget::{Needles, Scrub};
use icecore_domain::hash::Hash;
use icecore_domain::id::EventId;
use icecore_domain::layout::DocPath;
use icecore_domain::ledger::Ledger;
use icecore_domain::ledger::conflict;
use icecore_domain::ledger::query::EventQuery;
use icecore_domain::rank::vector::{self, DIMENSIONS, PackedVector};
use icecore_domain::record::{self, Record, RecordKind, Role};
use icecore_domain::secrets::MarkerKey;
use icecore_domain::summary::{
    Importance, Summary, SummaryAuthor, SummaryCost, SummaryQuery, Tier,
};

use crate::{ContentVersion, Error, ErrorKind, Position, Replacement, ScrubOutcome, Store};

type CheckFuture<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;
type Check = for<'a> fn(&'a dyn Store) -> CheckFuture<'a>;

/// Every check with its name.
pub const CHECKS: &[(&str, Check)] = &[
    ("ids count up within each local day", |store| Box::pin(ids(store))),
    ("an append against an old position is refused", |store| Box::pin(positions(store))),
    ("appended events are read back with their states", |store| Box::pin(standing(store))),
    ("every query returns what the domain would select", |store| Box::pin(queries(store))),
    ("counts and claims match the ledger", |store| Box::pin(counts(store))),
    ("foreign lines are kept as they are", |store| Box::pin(foreign(store))),
    ("archived lines are not lost", |store| Box::pin(archives(store))),
    ("a ledger is copied byte for byte", |store| Box::pin(moves(store))),
    ("documents are kept verbatim", |store| Box::pin(documents(store))),
    ("a conditional append needs the version that was read", |store| Box::pin(growth(store))),
    ("a changed document is reported until it is marked as seen", |store| Box::pin(seeing(store))),
    ("a record is stored once, and its last revision counts", |store| Box::pin(records(store))),
    ("the sums of sessions do not depend on the order", |store| Box::pin(sessions(store))),
    ("the newest version of a summary is returned, as of any moment", |store| {
        Box::pin(summaries(store))
    }),
    ("answers are cached, and a job lease has one holder", |store| Box::pin(answers(store))),
    ("many documents are replaced, except changed ones", |store| Box::pin(replacing_many(store))),
    ("notes are not documents, and growing ones stay small", |store| Box::pin(notes(store))),
    ("everything stored is found, in its last revision", |store| Box::pin(passages(store))),
    ("vectors belong to their text", |store| Box::pin(vectors(store))),
    ("forgotten text is nowhere returned", |store| Box::pin(forgetting(store))),
    ("derived data can be rebuilt and agrees", |store| Box::pin(derived_data(store))),
];

/// Runs all checks, each with an empty store.
pub async fn run_all<S: Store>(mut empty: impl AsyncFnMut() -> S) {
    for (name, question) in CHECKS {
        let store = empty().await;
        // The name appears in the output of a failing check.
        assert!(store.ledger().await.unwrap().bytes.is_empty(), "{name}: the store is not empty");
        question(&store).await;
    }
}

fn at(text: &str) -> Moment {
    Moment::parse(text).unwrap().moment
}

fn fact(ts: &str, text: &str) -> EventDraft {
    EventDraft::new(at(ts), EventType::Fact, Priority::P2, text)
}

const FRIDAY: &str = "2026-02-13T09:30:00+01:00";
const SATURDAY: &str = "2026-02-14T00:10:00+01:00";

fn path(text: &str) -> DocPath {
    text.parse().unwrap()
}

// L2
async fn ids(store: &dyn Store) {
    let drafts = vec![fact(FRIDAY, "a"), fact(SATURDAY, "b"), fact(FRIDAY, "c")];
    let events = store.append(drafts, None).await.unwrap();
    let ids: Vec<String> = events.iter().map(|event| event.id.to_string()).collect();
    assert_eq!(ids, ["EVT-20260213-001", "EVT-20260214-001", "EVT-20260213-002"]);
    let more = store.append(vec![fact(FRIDAY, "d"); 1000], None).await.unwrap();
    assert_eq!(more[996].id.to_string(), "EVT-20260213-999");
    assert_eq!(more[997].id.to_string(), "EVT-20260213-1000");
    // An id used by another program is not assigned again.
    store
        .append_lines(
            br#"{"ts":"2026-02-15T09:00:00Z","id":"EVT-20260215-007","type":"fact","priority":"P2","content":"x","source":"live"}"#,
        )
        .await
        .unwrap();
    let next = store.append(vec![fact("2026-02-15T10:00:00Z", "e")], None).await.unwrap();
    assert_eq!(next[0].id.to_string(), "EVT-20260215-008");
}

async fn positions(store: &dyn Store) {
    let before = store.ledger().await.unwrap().position;
    store.append(vec![fact(FRIDAY, "first")], Some(before)).await.unwrap();
    match store.append(vec![fact(FRIDAY, "second")], Some(before)).await {
        Err(Error { kind: ErrorKind::Conflict, .. }) => {}
        other => panic!("{other:?}"),
    }
    let text = store.ledger().await.unwrap();
    assert_eq!(Ledger::parse(&text.bytes, None).entries().len(), 1);
    assert_eq!(store.events(&EventQuery::all()).await.unwrap().position, text.position);
    assert_eq!(store.position().await.unwrap(), text.position);
    assert_ne!(store.position().await.unwrap(), before);
    match store.replace_ledger(b"", Position(text.position.0 ^ 1)).await {
        Err(Error { kind: ErrorKind::Conflict, .. }) => {}
        other => panic!("{other:?}"),
    }
    assert!(store.lost_events().await.unwrap().is_empty());
    store.replace_ledger(b"", text.position).await.unwrap();
    assert!(store.lost_events().await.unwrap().is_empty(), "replacing decides what is there");
    assert!(store.events(&EventQuery::all()).await.unwrap().entries.is_empty());
}

/// A sample of everything: replaced, closed, confirmed, retracted, reinstated, contradicting.
async fn add_sample_events(store: &dyn Store) -> Vec<EventId> {
    let mut ids = Vec::new();
    let put = async |draft: EventDraft| store.append(vec![draft], None).await.unwrap().remove(0);
    let budget =
        put(EventDraft { entity: Some("apollo".into()), ..fact(FRIDAY, "The budget is 500 EUR") })
            .await;
    ids.push(budget.id);
    let offer = put(EventDraft {
        tags: vec!["sales".into()],
        ..EventDraft::new(at(FRIDAY), EventType::Commitment, Priority::P1, "Send the offer")
    })
    .await;
    ids.push(offer.id);
    ids.push(
        put(EventDraft {
            supersedes: vec![budget.id],
            entity: Some("apollo".into()),
            ..fact(SATURDAY, "The budget is 600 EUR")
        })
        .await
        .id,
    );
    let closing = put(EventDraft::new_act(&offer, Act::Close, at(SATURDAY), "sent")).await;
    ids.push(closing.id);
    let rule = put(EventDraft {
        source: "memory/2026-02-13.md".into(),
        ..EventDraft::new(
            at(SATURDAY),
            EventType::Constraint,
            Priority::P0,
            "Never deploy on Fridays",
        )
    })
    .await;
    ids.push(rule.id);
    ids.push(put(EventDraft::new_act(&rule, Act::Confirm, at(SATURDAY), "still so")).await.id);
    ids.push(
        put(EventDraft::new_act(&closing, Act::Retract, at(SATURDAY), "it came back")).await.id,
    );
    ids.push(put(fact(SATURDAY, "Deploy on Fridays")).await.id);
    ids
}

// L3
async fn standing(store: &dyn Store) {
    let ids = add_sample_events(store).await;
    let entries = store.events(&EventQuery::for_ids(&ids)).await.unwrap().entries;
    let words: Vec<&str> = entries.iter().map(|entry| entry.state.word()).collect();
    assert_eq!(
        words,
        ["superseded", "active", "active", "retracted", "active", "active", "active", "active"]
    );
    assert_eq!(entries[4].verified, at(SATURDAY));
    let folded = Ledger::parse(&store.ledger().await.unwrap().bytes, None);
    assert_eq!(entries, folded.entries());
}

async fn queries(store: &dyn Store) {
    let ids = add_sample_events(store).await;
    let folded = Ledger::parse(&store.ledger().await.unwrap().bytes, None);
    let all = EventQuery::all;
    for query in [
        EventQuery::default(),
        all(),
        EventQuery::open_loops(),
        EventQuery::for_ids(&ids[2..5]),
        EventQuery { entity: Some("apollo".into()), ..all() },
        EventQuery { entity: Some("apollo".into()), ..EventQuery::default() },
        EventQuery { source: Some("memory/2026-02-13.md".into()), ..all() },
        EventQuery { tags: vec!["sales".into()], ..all() },
        EventQuery { priorities: vec![Priority::P0, Priority::P1], ..all() },
        EventQuery { kinds: vec![EventType::Fact], limit: Some(1), ..all() },
        EventQuery { text: Some("BUDGET".into()), ..all() },
        EventQuery { since: Some(at(SATURDAY).day()), ..all() },
        EventQuery { until: Some(at(FRIDAY).day()), ..all() },
        EventQuery { limit: Some(0), ..all() },
        EventQuery { verified_since: Some(at(SATURDAY).day()), ..EventQuery::default() },
        EventQuery { verified_until: Some(at(FRIDAY).day()), ..EventQuery::default() },
        EventQuery { after: Some(ids[3]), ..all() },
        EventQuery { after: Some(EventId::new(at(FRIDAY).day(), 99)), ..all() },
        EventQuery { saying: Some("the  BUDGET is 600 eur.".into()), ..all() },
        EventQuery { quarantined: Some(true), ..EventQuery::default() },
        EventQuery { quarantined: Some(false), ..EventQuery::default() },
        EventQuery { limit: Some(2), weightiest: true, ..EventQuery::default() },
        EventQuery {
            limit: Some(1),
            weightiest: true,
            text: Some("deploy".into()),
            ..EventQuery::default()
        },
        EventQuery { ids: vec![EventId::new(at(FRIDAY).day(), 99)], ..all() },
    ] {
        let found = store.events(&query).await.unwrap().entries;
        let chosen: Vec<_> = query.select(folded.entries()).into_iter().cloned().collect();
        assert_eq!(found, chosen, "{query:?}");
    }
}

async fn counts(store: &dyn Store) {
    add_sample_events(store).await;
    let folded = Ledger::parse(&store.ledger().await.unwrap().bytes, None);
    let tally = store.count_statements().await.unwrap();
    let statements = folded.entries().iter().filter(|entry| entry.event.is_statement()).count();
    assert_eq!(tally.iter().map(|count| count.events).sum::<usize>(), statements);
    let active = tally
        .iter()
        .filter(|count| count.state == "active" && count.kind == EventType::Fact)
        .map(|count| count.events)
        .sum::<usize>();
    assert_eq!(active, 2);
    assert_eq!(
        conflict::conflicting_claims(&store.contested_claims().await.unwrap()),
        conflict::find_conflicts(folded.entries())
    );
    assert_eq!(conflict::find_conflicts(folded.entries()).len(), 1);
}

// L2
async fn foreign(store: &dyn Store) {
    let lines = b"not an event\n{\"ts\":\"2026-02-13T09:00:00Z\",\"id\":\"EVT-20260213-001\",\"type\":\"fact\",\"priority\":\"P2\",\"content\":\"x\",\"source\":\"live\",\"mine\":{\"a\": 1}}\n\n<<<<<<< HEAD\n";
    store.append_lines(lines).await.unwrap();
    store.append(vec![fact(FRIDAY, "ours")], None).await.unwrap();
    let text = store.ledger().await.unwrap().bytes;
    assert!(text.starts_with(lines));
    let entries = store.events(&EventQuery::all()).await.unwrap().entries;
    let ids: Vec<String> = entries.iter().map(|entry| entry.event.id.to_string()).collect();
    assert_eq!(ids, ["EVT-20260213-001", "EVT-20260213-002"]);
    assert_eq!(entries[0].event.extra, [("mine".to_owned(), "{\"a\": 1}".to_owned())]);
    assert_eq!(entries[1].line, 5);
    let faults: Vec<usize> =
        store.line_faults().await.unwrap().iter().map(|found| found.line).collect();
    assert_eq!(faults, [1, 4]);
    // A duplicate id is skipped and reported.
    store
        .append_lines(
            br#"{"ts":"2026-02-13T09:00:00Z","id":"EVT-20260213-001","type":"fact","priority":"P2","content":"other","source":"live"}"#,
        )
        .await
        .unwrap();
    assert_eq!(store.line_faults().await.unwrap().len(), 3);
    assert_eq!(store.events(&EventQuery::all()).await.unwrap().entries.len(), 2);
    assert!(
        !store
            .quarantine(&path("memory/ledger.jsonl"), 0, b"not an event")
            .await
            .unwrap()
            .is_empty()
    );
}

// L15
async fn archives(store: &dyn Store) {
    let ids = add_sample_events(store).await;
    let days = store.event_days().await.unwrap();
    let text = store.ledger().await.unwrap();
    let (archive, other) =
        (path("memory/ledger-archive-2026.jsonl"), path("memory/archive/2026-Q1.jsonl"));
    let lines: Vec<&[u8]> = text.bytes.split_inclusive(|&byte| byte == b'\n').collect();
    // The first is replaced by the second; the closing of the third was retracted.
    let kept = [&lines[1..3].concat()[..], &lines[4..6].concat()[..], lines[7]].concat();
    let (first, closing) = (
        [b"{\"archived\":\"2026-02-15T03:00:00Z\"}\n", lines[0]].concat(),
        [lines[3], lines[6]].concat(),
    );
    let moved = [(archive.clone(), first.clone()), (other.clone(), closing.clone())];
    match store.archive(&moved, &kept, Position(7)).await {
        Err(Error { kind: ErrorKind::Conflict, .. }) => {}
        other => panic!("{other:?}"),
    }
    assert_eq!(store.document(&archive).await.unwrap(), None);
    store.archive(&moved, &kept, text.position).await.unwrap();
    assert_eq!(store.ledger().await.unwrap().bytes, kept);
    assert_eq!(store.document(&archive).await.unwrap().unwrap(), first);
    assert_eq!(store.document(&other).await.unwrap().unwrap(), closing);
    let found = |ids: Vec<icecore_domain::event::Event>| {
        ids.into_iter().map(|event| event.id).collect::<Vec<_>>()
    };
    assert_eq!(
        found(store.archived_events(&EventQuery::all()).await.unwrap()),
        [ids[0], ids[3], ids[6]]
    );
    assert_eq!(
        found(store.archived_events(&EventQuery::for_ids(&[ids[3], ids[1]])).await.unwrap()),
        [ids[3]]
    );
    for which in [
        EventQuery { entity: Some("apollo".into()), ..EventQuery::all() },
        EventQuery { saying: Some("the budget is 500 EUR".into()), ..EventQuery::all() },
        EventQuery { text: Some("500".into()), source: Some("live".into()), ..EventQuery::all() },
    ] {
        assert_eq!(found(store.archived_events(&which).await.unwrap()), [ids[0]], "{which:?}");
    }
    let none = EventQuery { source: Some("memory/2026-02-13.md".into()), ..EventQuery::all() };
    assert!(store.archived_events(&none).await.unwrap().is_empty());
    assert_eq!(found(store.linked_events(&[ids[2]], &[]).await.unwrap()), [ids[0], ids[2]]);
    assert_eq!(
        found(store.linked_events(&[ids[6], ids[7]], &[]).await.unwrap()),
        [ids[1], ids[3], ids[6], ids[7]]
    );
    assert_eq!(
        found(store.linked_events(&[ids[4]], &["apollo", "nobody"]).await.unwrap()),
        [ids[0], ids[2], ids[4], ids[5]]
    );
    assert_eq!(store.entities().await.unwrap(), ["apollo"]);
    assert!(store.lost_events().await.unwrap().is_empty());
    assert_eq!(store.event_days().await.unwrap(), days);
    // Archived ids stay in use.
    let next = store.append(vec![fact(SATURDAY, "after")], None).await.unwrap();
    assert_eq!(next[0].id.number(), ids[7].number() + 1);
    store.rebuild(&|_, _| {}).await.unwrap();
    assert_eq!(
        found(store.archived_events(&EventQuery::all()).await.unwrap()),
        [ids[0], ids[3], ids[6]]
    );
    assert!(store.inspect().await.unwrap().iter().all(|finding| !finding.fails));
    assert!(store.lost_events().await.unwrap().is_empty());
    let entries = store.events(&EventQuery::all()).await.unwrap().entries;
    assert_eq!(entries, Ledger::parse(&store.ledger().await.unwrap().bytes, None).entries());
}

async fn moves(store: &dyn Store) {
    let text = b"{\"odd\": 1 }\r\n\xff\xfe not even text\n{\"ts\":\"2026-02-13T09:00:00Z\",\"id\":\"EVT-20260213-001\",\"type\":\"fact\",\"priority\":\"P2\",\"content\":\"x\"}\n";
    store.append_lines(text).await.unwrap();
    assert_eq!(store.ledger().await.unwrap().bytes, text);
}

async fn documents(store: &dyn Store) {
    let (page, pack) = (path("knowledge/entities/apollo.md"), path("recall/pack.md"));
    assert_eq!(store.document(&page).await.unwrap(), None);
    assert_eq!(store.document_len(&page).await.unwrap(), 0);
    for bytes in [b"".as_slice(), b"no end", b"\r\n\0\xff binary", &vec![b'x'; 300_000]] {
        store.put(&page, bytes).await.unwrap();
        assert_eq!(store.document_len(&page).await.unwrap(), bytes.len() as u64);
        assert_eq!(store.document(&page).await.unwrap().as_deref(), Some(bytes));
    }
    store.put(&pack, b"pack").await.unwrap();
    let many: Vec<(DocPath, Vec<u8>)> =
        (0..9).map(|n| (path(&format!("many/{}/{n}.md", n % 3)), vec![b'x'; n])).collect();
    store.put_many(&many).await.unwrap();
    store.put_many(&many[..2]).await.unwrap();
    for (path, bytes) in &many {
        assert_eq!(store.document(path).await.unwrap().as_ref(), Some(bytes));
    }
    let all = store.documents("").await.unwrap();
    let ours: Vec<&str> = all
        .iter()
        .map(DocPath::as_str)
        .filter(|path| path.contains("apollo") || path.contains("pack"))
        .collect();
    assert_eq!(ours, [page.as_str(), pack.as_str()]);
    assert_eq!(store.document_sizes("recall").await.unwrap(), [(pack, 4)]);
    assert_eq!(
        store
            .document_sizes("many/1")
            .await
            .unwrap()
            .iter()
            .map(|(_, bytes)| *bytes)
            .collect::<Vec<_>>(),
        [1, 4, 7]
    );
    assert_eq!(store.document_sizes("nowhere").await.unwrap(), []);
    let pack = path("recall/pack.md");
    let looked = store.list("recall").await.unwrap();
    assert_eq!((looked.len(), &looked[0].path, looked[0].bytes), (1, &pack, 4));
    let stamps = store.stamps(&[pack.clone(), path("recall/nothing.md")]).await.unwrap();
    assert_eq!(stamps, [Some(looked[0].stamp.clone()), None]);
    store.put(&pack, b"another").await.unwrap();
    assert_ne!(store.stamps(std::slice::from_ref(&pack)).await.unwrap(), [stamps[0].clone()]);
    assert!(store.list("recall").await.unwrap()[0].changed >= looked[0].changed);
    assert_eq!(store.list("nowhere").await.unwrap(), []);
    let weights = store.disk_usage().await.unwrap();
    let recall = weights.iter().find(|weight| weight.part == "recall").unwrap();
    assert_eq!((recall.files, recall.bytes), (1, 7));
    store.remove(&page).await.unwrap();
    store.remove(&page).await.unwrap();
    assert_eq!(store.document(&page).await.unwrap(), None);
}

// L1
async fn growth(store: &dyn Store) {
    let log = path("memory/2026-02-13.md");
    let version = |text: &str| ContentVersion::of(Some(text.as_bytes()));
    store.append_if_unchanged(&log, b"one\n", ContentVersion::ABSENT).await.unwrap();
    match store.append_if_unchanged(&log, b"lost\n", ContentVersion::ABSENT).await {
        Err(Error { kind: ErrorKind::Conflict, .. }) => {}
        other => panic!("{other:?}"),
    }
    // Equal length with other content is another version.
    assert!(matches!(
        store.append_if_unchanged(&log, b"lost\n", version("eno\n")).await,
        Err(Error { kind: ErrorKind::Conflict, .. })
    ));
    store.append_if_unchanged(&log, b"two\n", version("one\n")).await.unwrap();
    assert_eq!(store.document(&log).await.unwrap().unwrap(), b"one\ntwo\n");
    // An incomplete last line is ended.
    store.put(&log, b"no end").await.unwrap();
    store.append_if_unchanged(&log, b"three\n", version("no end")).await.unwrap();
    assert_eq!(store.document(&log).await.unwrap().unwrap(), b"no end\nthree\n");
}

async fn seeing(store: &dyn Store) {
    let log = path("memory/2026-02-13.md");
    let paths = [log.clone(), path("memory/2026-02-12.md")];
    assert!(store.changed_since_seen(&paths).await.unwrap().is_empty());
    store.put(&log, b"one\n").await.unwrap();
    let unseen = store.changed_since_seen(&paths).await.unwrap();
    assert_eq!(unseen.len(), 1);
    store.mark_seen(&unseen).await.unwrap();
    assert!(store.changed_since_seen(&paths).await.unwrap().is_empty());
    store.put(&log, b"one\ntwo\n").await.unwrap();
    assert_eq!(store.changed_since_seen(&paths).await.unwrap()[0].0, log);
}

// L12
async fn derived_data(store: &dyn Store) {
    add_sample_events(store).await;
    store
        .add_records(vec![record_at("a", FRIDAY, "one"), record_at("b", SATURDAY, "two")])
        .await
        .unwrap();
    store
        .add_records(vec![
            record_at("c", FRIDAY, "three"),
            record_at("a", FRIDAY, "one, corrected"),
        ])
        .await
        .unwrap();
    store.add_summaries(&[summary("2026-02-13", 1, FRIDAY, "one")], None).await.unwrap();
    store.add_summaries(&[summary("2026-02-13", 2, SATURDAY, "two")], None).await.unwrap();
    let before = store.events(&EventQuery::all()).await.unwrap();
    let derived = async || {
        (
            store.sessions(None).await.unwrap(),
            store.summary_heads(&SummaryQuery::default()).await.unwrap().0,
        )
    };
    let kept = derived().await;
    let fails =
        async || store.inspect().await.unwrap().into_iter().filter(|finding| finding.fails).count();
    assert_eq!(fails().await, 0);
    assert_eq!(store.rebuild(&|_, _| {}).await.unwrap(), before.entries.len());
    assert_eq!(fails().await, 0);
    assert_eq!(store.events(&EventQuery::all()).await.unwrap(), before);
    assert_eq!(derived().await, kept);
}

fn record_at(id: &str, ts: &str, text: &str) -> Record {
    Record {
        ts: at(ts),
        conversation: "work".into(),
        session: None,
        id: id.into(),
        role: Role::User,
        name: None,
        other_speaker: None,
        kind: RecordKind::Message,
        title: None,
        text: text.into(),
        parts: None,
        origin: Origin::User,
        captured: at(ts),
        extra: Vec::new(),
        withdrawn: false,
    }
}

fn days(first: &str, last: &str) -> Days {
    Days { first: first.parse().unwrap(), last: last.parse().unwrap() }
}

// Y1
async fn forgetting(store: &dyn Store) {
    let mut scrub = Scrub { needles: Needles::from_texts(&["launch code"]), ..Scrub::default() };
    let events = store
        .append(vec![fact(FRIDAY, "The Launch  code is 7"), fact(FRIDAY, "Tea is green")], None)
        .await
        .unwrap();
    store
        .add_records(vec![
            record_at("a", FRIDAY, "one\nlaunch code\nthree"),
            record_at("b", FRIDAY, "two"),
            record_at("c", FRIDAY, "three"),
        ])
        .await
        .unwrap();
    scrub.records.insert(record_at("b", FRIDAY, "").key());
    let (page, other): (DocPath, DocPath) =
        ("knowledge/x.md".parse().unwrap(), "knowledge/y.md".parse().unwrap());
    store.put(&page, b"a\nlaunch code\nb\n").await.unwrap();
    store.put(&other, b"a\nb\n").await.unwrap();
    store.cache_answer(Hash::of(b"q"), b"a paraphrase").await.unwrap();
    store.update_index(false, &|_, _| {}).await.unwrap();
    // A dry run reports the same and changes nothing.
    let would = store.scrub(&scrub, true).await.unwrap();
    assert_eq!(store.document(&page).await.unwrap().as_deref(), Some(&b"a\nlaunch code\nb\n"[..]));
    assert_eq!(store.scrub(&scrub, false).await.unwrap(), would);
    assert!(
        would
            .iter()
            .any(|one| one.path == page.as_str() && one.outcome == ScrubOutcome::Changed(1)),
        "{would:?}"
    );
    assert!(would.iter().all(|one| one.path != other.as_str()), "{would:?}");
    assert_eq!(store.document(&page).await.unwrap().as_deref(), Some(&b"a\n[forgotten]\nb\n"[..]));
    let told: Vec<String> = store
        .events(&EventQuery::all())
        .await
        .unwrap()
        .entries
        .into_iter()
        .map(|entry| entry.event.draft.content)
        .collect();
    assert_eq!(told, ["[forgotten]", "Tea is green"]);
    assert_eq!(
        (events.len(), store.lost_events().await.unwrap(), store.line_faults().await.unwrap()),
        (2, vec![], vec![])
    );
    let friday = store.records(days("2026-02-13", "2026-02-13")).await.unwrap();
    assert_eq!(
        friday.iter().map(|record| record.text.as_str()).collect::<Vec<_>>(),
        ["one\n[forgotten]\nthree", "[forgotten]", "three"]
    );
    assert_eq!(store.cached_answer(Hash::of(b"q")).await.unwrap(), None);
    store.update_index(false, &|_, _| {}).await.unwrap();
    assert!(store.terms_containing("launch", 10).await.unwrap().is_empty());
    assert!(store.inspect().await.unwrap().iter().all(|finding| !finding.fails));
    assert_eq!(store.scrub(&scrub, true).await.unwrap(), []);
}

async fn records(store: &dyn Store) {
    let state = Record {
        kind: RecordKind::State,
        title: Some("t".into()),
        conversation: "state".into(),
        ..record_at("s", FRIDAY, "saved")
    };
    let batch = vec![
        record_at("a", FRIDAY, "one"),
        record_at("b", SATURDAY, "two"),
        record_at("a", FRIDAY, "one"),
        state,
    ];
    let added = store.add_records(batch.clone()).await.unwrap();
    assert_eq!((added.new, added.same, added.revised.len()), (3, 1, 0));
    let again = store.add_records(batch).await.unwrap();
    assert_eq!((again.new, again.same), (0, 4));
    // Other text for the same key is a revision at the time of the first, whatever day it claims.
    let added = store.add_records(vec![record_at("a", SATURDAY, "one, corrected")]).await.unwrap();
    assert_eq!((added.new, added.revised), (0, vec!["a".to_owned()]));
    let friday = store.records(days("2026-02-13", "2026-02-13")).await.unwrap();
    let texts: Vec<&str> = friday.iter().map(|record| record.text.as_str()).collect();
    assert_eq!(texts, ["one, corrected", "saved"]);
    assert_eq!(store.records(days("2026-02-13", "2026-02-14")).await.unwrap().len(), 3);
    assert!(store.records(days("2026-02-15", "2026-02-20")).await.unwrap().is_empty());
    assert_eq!(store.record_days().await.unwrap().len(), 2);
    let last = async |conversation: &str, most| -> Vec<String> {
        store
            .recent_records(conversation, most)
            .await
            .unwrap()
            .into_iter()
            .map(|record| record.text)
            .collect()
    };
    let own = record_at("a", FRIDAY, "").conversation;
    assert_eq!(last(&own, 9).await, ["one, corrected", "two"]);
    assert_eq!(last(&own, 1).await, ["two"]);
    assert_eq!(last("state", 9).await, ["saved"]);
    assert!(last("nobody", 9).await.is_empty() && last(&own, 0).await.is_empty());
    // The digest changes with every change of the conversation, and only with those.
    let digest = async |conversation: &str, first, last| {
        store.conversation_digest(conversation, days(first, last)).await.unwrap()
    };
    let both = digest(&own, "2026-02-13", "2026-02-14").await;
    assert_eq!(
        both,
        digest(&own, "2026-02-13", "2026-02-13")
            .await
            .combine(digest(&own, "2026-02-14", "2026-02-14").await)
    );
    assert_eq!((both.records, digest("nobody", "2026-02-13", "2026-02-14").await.records), (2, 0));
    store
        .add_records(vec![
            record_at("b", SATURDAY, "two!"),
            Record { conversation: "other".into(), ..record_at("y", FRIDAY, "") },
        ])
        .await
        .unwrap();
    let revised = digest(&own, "2026-02-13", "2026-02-14").await;
    assert!(revised.records == 2 && revised != both);
    store.add_records(vec![record_at("b", SATURDAY, "two")]).await.unwrap();
    assert_eq!(digest(&own, "2026-02-13", "2026-02-14").await, both);
    store.forget_records(days("2026-02-13", "2026-02-13"), "other").await.unwrap();
    // Forgetting removes all revisions of the conversation; others stay.
    let other =
        |text: &str| Record { conversation: "other".into(), ..record_at("x", FRIDAY, text) };
    store.add_records(vec![other("theirs"), other("theirs, again")]).await.unwrap();
    assert_eq!(store.forget_records(days("2026-02-10", "2026-02-20"), "other").await.unwrap(), 1);
    assert_eq!(store.forget_records(days("2026-02-10", "2026-02-20"), "other").await.unwrap(), 0);
    assert!(last("other", 9).await.is_empty());
    assert_eq!(last(&own, 9).await.len(), 2);
    assert!(
        store.sessions(None).await.unwrap().iter().all(|stat| stat.key.conversation != "other")
    );
    assert!(store.bad_records().await.unwrap().is_empty());
    // The revision of a revision, and the first text again.
    for text in ["one, twice corrected", "one"] {
        assert_eq!(
            store.add_records(vec![record_at("a", FRIDAY, text)]).await.unwrap().revised.len(),
            1
        );
        assert_eq!(store.records(days("2026-02-13", "2026-02-13")).await.unwrap()[0].text, text);
    }
}

async fn sessions(store: &dyn Store) {
    let named = |id: &str, session: &str| Record {
        session: Some(session.into()),
        ..record_at(id, FRIDAY, id)
    };
    let mut all = vec![
        named("a", "x"),
        named("b", "y"),
        named("c", "x"),
        record_at("d", FRIDAY, "d"),
        record_at("e", SATURDAY, "e"),
    ];
    all[0].extra.push(("turn".into(), "7".into()));
    all[2].extra.push(("turn".into(), "6".into()));
    store.add_records(all[3..].to_vec()).await.unwrap();
    store.add_records(all[..3].to_vec()).await.unwrap();
    let found = store.sessions(None).await.unwrap();
    assert_eq!(found, record::session_stats(&all));
    assert_eq!(found.iter().map(|stat| stat.turn).collect::<Vec<_>>(), [0, 7, 0, 0]);
    let friday = store.sessions(Some(days("2026-02-13", "2026-02-13"))).await.unwrap();
    assert_eq!(friday.len(), 3);
    store.add_records(vec![Record { text: "another d".into(), ..all[3].clone() }]).await.unwrap();
    let changed = store.sessions(None).await.unwrap();
    assert_eq!(
        changed.iter().zip(&found).filter(|(now, before)| now.digest != before.digest).count(),
        1
    );
}

fn summary(period: &str, version: u32, recorded: &str, headline: &str) -> Summary {
    Summary {
        period: period.parse().unwrap(),
        version,
        session: None,
        start: at(recorded),
        end: at(recorded),
        headline: headline.into(),
        body: format!("- {headline}"),
        messages: 1,
        states: 0,
        recorded: at(recorded),
        source: Hash::of(headline.as_bytes()),
        log: None,
        sources: Vec::new(),
        maker: SummaryAuthor::Extract,
        provisional: true,
        importance: Importance::Ordinary,
        left_out: Vec::new(),
        cost: SummaryCost::default(),
        similar: None,
    }
}

/// The texts of all passages with a term, sorted.
async fn passages_with_term(store: &dyn Store, term: &str) -> Vec<String> {
    let corpus = store.corpus().await.unwrap();
    let postings = store.postings(&[term.to_owned()]).await.unwrap().remove(0);
    let numbers: Vec<u32> = postings
        .iter()
        .map(|posting| posting.passage)
        .filter(|&number| corpus.row(number).kind.is_some())
        .collect();
    let placed = store.locate_passages(&numbers).await.unwrap();
    let mut texts: Vec<String> =
        placed.into_iter().map(|placed| placed.unwrap().passage.text).collect();
    texts.sort();
    texts
}

// Y9
async fn passages(store: &dyn Store) {
    let taken = async |anew: bool| store.update_index(anew, &|_, _| {}).await.unwrap();
    assert_eq!(taken(false).await.new, 0);
    store
        .add_records(vec![
            record_at("a", FRIDAY, "the harbour is frozen"),
            record_at("b", SATURDAY, "nothing here"),
        ])
        .await
        .unwrap();
    store.append(vec![fact(FRIDAY, "Harbours freeze in winter")], None).await.unwrap();
    store
        .add_summaries(&[summary("2026-02-13", 1, FRIDAY, "a day at the harbour")], None)
        .await
        .unwrap();
    store
        .put(&path("memory/2026-02-13.md"), b"# Friday\n\n- walked to the harbour\n")
        .await
        .unwrap();
    store
        .put(&path("knowledge/entities/harbour.md"), b"# Harbour\n\n- the harbour has two piers\n")
        .await
        .unwrap();
    assert_eq!(taken(false).await.new, 6);
    assert_eq!(taken(false).await.new, 0);
    let found = passages_with_term(store, "harbour").await;
    assert_eq!(found.len(), 5, "{found:?}");
    assert!(passages_with_term(store, "frozen").await == ["the harbour is frozen"]);
    assert_eq!(store.terms_containing("arbou", 5).await.unwrap(), ["harbour"]);
    assert!(passages_with_term(store, "nowhere").await.is_empty());

    // Only the last version of a message, a summary and a page counts; removed text is not found.
    store.add_records(vec![record_at("a", FRIDAY, "the harbour is open again")]).await.unwrap();
    store.add_summaries(&[summary("2026-02-13", 2, SATURDAY, "a day at sea")], None).await.unwrap();
    store
        .put(&path("knowledge/entities/harbour.md"), b"# Harbour\n\n- it has three piers\n")
        .await
        .unwrap();
    store.remove(&path("memory/2026-02-13.md")).await.unwrap();
    taken(false).await;
    let found = passages_with_term(store, "harbour").await;
    assert_eq!(
        found,
        [
            "# Harbour\n\n- it has three piers",
            "Harbours freeze in winter",
            "the harbour is open again"
        ]
    );

    // A rebuild changes nothing.
    let corpus = store.corpus().await.unwrap();
    taken(true).await;
    assert_eq!(passages_with_term(store, "harbour").await, found);
    let anew = store.corpus().await.unwrap();
    assert_eq!(
        (anew.passages, anew.length, anew.groups),
        (corpus.passages, corpus.length, corpus.groups)
    );
    assert_eq!(store.conversation_groups("work").await.unwrap().len(), 2);
    assert!(store.conversation_groups("elsewhere").await.unwrap().is_empty());
    assert_eq!(store.locate_passages(&[9_999]).await.unwrap(), [None]);
}

// Y9
async fn vectors(store: &dyn Store) {
    let named = |id: &str, name: &str, text: &str| Record {
        name: Some(name.into()),
        ..record_at(id, FRIDAY, text)
    };
    store
        .add_records(vec![
            named("a", "Ann", "one"),
            named("b", "Bo", "two"),
            named("c", "Ann", "three"),
        ])
        .await
        .unwrap();
    store.update_index(false, &|_, _| {}).await.unwrap();
    let voices: Vec<String> =
        store.speakers().await.unwrap().into_iter().map(|(_, name)| name).collect();
    assert_eq!(voices, ["Ann", "Bo"]);
    let waiting = store.passages_without_vector(10).await.unwrap();
    assert_eq!(waiting.len(), 3);
    assert_eq!(store.passages_without_vector(2).await.unwrap().len(), 2);
    let vector = |at: usize| {
        let mut numbers = [0.01; DIMENSIONS];
        numbers[at] = -1.0;
        vector::pack_vector(&numbers)
    };
    let kept: Vec<(u32, PackedVector)> =
        waiting.iter().enumerate().map(|(at, &number)| (number, vector(at))).collect();
    store.store_vectors(&kept).await.unwrap();
    let found = store.vectors(&waiting).await.unwrap();
    assert_eq!(found, kept.iter().map(|(_, packed)| Some(*packed)).collect::<Vec<_>>());
    let signs = store.vector_signs().await.unwrap();
    assert!(kept.iter().all(|(number, packed)| signs[*number as usize] == packed.signs()));
    let all = store.embedding_coverage().await.unwrap();
    assert_eq!((all.embedded, all.total), (3, 3));
    // A rebuild keeps vectors; changed text loses them.
    store.update_index(true, &|_, _| {}).await.unwrap();
    assert_eq!(store.embedding_coverage().await.unwrap(), all);
    store.add_records(vec![named("a", "Ann", "other words")]).await.unwrap();
    store.update_index(false, &|_, _| {}).await.unwrap();
    assert_eq!(store.passages_without_vector(10).await.unwrap().len(), 1);
}

// Y7
async fn summaries(store: &dyn Store) {
    let (_, start) = store.summary_heads(&SummaryQuery::default()).await.unwrap();
    let first = [summary("2026-02-13", 1, FRIDAY, "one"), summary("2026-W07", 1, FRIDAY, "week")];
    let after = store.add_summaries(&first, Some(start)).await.unwrap();
    assert!(matches!(
        store.add_summaries(&first, Some(start)).await,
        Err(Error { kind: ErrorKind::Conflict, .. })
    ));
    let second =
        [summary("2026-02-13", 2, SATURDAY, "two"), summary("2026-02-14", 1, SATURDAY, "next")];
    store.add_summaries(&second, Some(after)).await.unwrap();
    let told = async |which: SummaryQuery| -> Vec<String> {
        let found = store.summaries(&which).await.unwrap();
        let heads = store.summary_heads(&which).await.unwrap().0;
        assert_eq!(found.iter().map(Summary::head).collect::<Vec<_>>(), heads);
        found.into_iter().map(|summary| summary.headline).collect()
    };
    assert_eq!(told(SummaryQuery::for_tier(Tier::Day)).await, ["two", "next"]);
    assert_eq!(
        told(SummaryQuery::for_tier(Tier::Day).as_of(Some(at(FRIDAY).timestamp()))).await,
        ["one"]
    );
    assert_eq!(told(SummaryQuery::default()).await.len(), 3);
    assert_eq!(
        told(SummaryQuery::for_tier_within(Tier::Day, days("2026-02-14", "2026-02-20"))).await,
        ["next"]
    );
    assert_eq!(
        told(SummaryQuery { latest: Some(1), ..SummaryQuery::for_tier(Tier::Day) }).await,
        ["next"]
    );
}

async fn answers(store: &dyn Store) {
    let question = Hash::of(b"why?");
    assert_eq!(store.cached_answer(question).await.unwrap(), None);
    store.cache_answer(question, b"because").await.unwrap();
    assert_eq!(
        store.cached_answer(question).await.unwrap().as_deref(),
        Some(b"because".as_slice())
    );
    let held = store.acquire_lease("pressing").await.unwrap();
    assert!(
        held.as_ref().unwrap().is_held().await.unwrap()
            && store.acquire_lease("pressing").await.unwrap().is_none()
    );
    drop(held);
    assert!(store.acquire_lease("pressing").await.unwrap().is_some());
    let runs = path("memory/runs.jsonl");
    assert_eq!(store.read_tail(&runs, 10).await.unwrap(), (Vec::new(), true));
    store.append_to_document(&runs, b"one\ntwo\n").await.unwrap();
    store.append_to_document(&runs, b"three\n").await.unwrap();
    assert_eq!(store.read_tail(&runs, 100).await.unwrap(), (b"one\ntwo\nthree\n".to_vec(), true));
    assert_eq!(store.read_tail(&runs, 8).await.unwrap(), (b"three\n".to_vec(), false));
    assert_eq!(store.event_days().await.unwrap(), []);
    let version = |text: &str| ContentVersion::of(Some(text.as_bytes()));
    for other in [version("one\ntwo\neerht\n"), version(""), ContentVersion::ABSENT] {
        assert!(matches!(
            store.compare_and_swap(&runs, b"new\n", other).await,
            Err(Error { kind: ErrorKind::Conflict, .. })
        ));
        assert!(matches!(
            store.remove_unchanged(&runs, other).await,
            Err(Error { kind: ErrorKind::Conflict, .. })
        ));
    }
    store.compare_and_swap(&runs, b"new\n", version("one\ntwo\nthree\n")).await.unwrap();
    assert_eq!(store.document(&runs).await.unwrap().as_deref(), Some(b"new\n".as_slice()));
    store.remove_unchanged(&runs, version("new\n")).await.unwrap();
    assert_eq!(store.document(&runs).await.unwrap(), None);
    store.compare_and_swap(&runs, b"first\n", ContentVersion::ABSENT).await.unwrap();
    assert_eq!(store.document(&runs).await.unwrap().as_deref(), Some(b"first\n".as_slice()));
}

async fn replacing_many(store: &dyn Store) {
    let version = |text: &str| ContentVersion::of(Some(text.as_bytes()));
    // A few documents, and more than are handled one by one.
    for many in [2, 12] {
        let pages: Vec<DocPath> =
            (0..many).map(|n| path(&format!("knowledge/entities/{many}-{n:02}.md"))).collect();
        let all = |old: &str, new: &str| -> Vec<Replacement> {
            let from = if old.is_empty() { ContentVersion::ABSENT } else { version(old) };
            pages
                .iter()
                .map(|path| Replacement { path: path.clone(), bytes: new.into(), from })
                .collect()
        };
        assert_eq!(store.compare_and_swap_many(&all("", "one")).await.unwrap(), []);
        // One saved with an equal length, one removed: both stay as they are.
        store.put(&pages[0], b"own").await.unwrap();
        store.remove(&pages[1]).await.unwrap();
        let mut changed = store.compare_and_swap_many(&all("one", "two")).await.unwrap();
        changed.sort();
        assert_eq!(changed, pages[..2]);
        for (nth, page) in pages.iter().enumerate() {
            let wanted: Option<&[u8]> =
                [Some(b"own".as_slice()), None].get(nth).copied().unwrap_or(Some(b"two"));
            assert_eq!(store.document(page).await.unwrap().as_deref(), wanted);
        }
        assert_eq!(
            store
                .documents("knowledge")
                .await
                .unwrap()
                .iter()
                .filter(|page| pages.contains(page))
                .count(),
            many - 1
        );
    }
}

async fn notes(store: &dyn Store) {
    let (one, log) = (path("hooks/sessions/one.json"), path("hooks/log.jsonl"));
    assert_eq!(store.note(&one).await.unwrap(), None);
    store.put_note(&one, b"first").await.unwrap();
    store.put_note(&one, b"second").await.unwrap();
    assert_eq!(store.note(&one).await.unwrap().as_deref(), Some(&b"second"[..]));
    for n in 0..100 {
        store.append_note(&log, &format!("line {n}"), 200, n % 2 == 0).await.unwrap();
    }
    let text = String::from_utf8(store.note(&log).await.unwrap().unwrap()).unwrap();
    assert!(
        text.len() <= 200 && text.starts_with("line ") && text.ends_with("line 98\nline 99\n"),
        "{text}"
    );
    let names: Vec<DocPath> = store
        .notes(&path("hooks/sessions"))
        .await
        .unwrap()
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    assert_eq!(names, std::slice::from_ref(&one));
    store.remove_note(&one).await.unwrap();
    store.remove_note(&one).await.unwrap();
    assert_eq!(
        (
            store.note(&one).await.unwrap(),
            store.notes(&path("hooks/sessions")).await.unwrap().len()
        ),
        (None, 0)
    );
    // The marker key: the first one stays unless replaced. It is not a document.
    let (first, second) = (MarkerKey::new([1; 32]), MarkerKey::new([2; 32]));
    assert_eq!(store.marker_key().await.unwrap(), None);
    assert_eq!(store.set_marker_key(&first, false).await.unwrap(), first);
    assert_eq!(store.set_marker_key(&second, false).await.unwrap(), first);
    assert_eq!(store.marker_key().await.unwrap(), Some(first));
    assert_eq!(store.set_marker_key(&second, true).await.unwrap(), second);
    assert_eq!(store.marker_key().await.unwrap(), Some(second));
    assert!(
        store.list("").await.unwrap().iter().all(|look| !look.path.as_str().contains("secret.key"))
    );
    // Notes are not documents.
    assert_eq!(
        store
            .documents("")
            .await
            .unwrap()
            .iter()
            .filter(|path| path.as_str().contains("hooks"))
            .count(),
        0
    );
    let record = record_at("m1", FRIDAY, "hello");
    store.add_records(vec![record.clone()]).await.unwrap();
    let keys = [record.key(), record::record_key("work", "nobody")];
    assert_eq!(store.contains_records(&keys).await.unwrap(), [true, false]);
}
