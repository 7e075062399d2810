//! Search: every kind of passage, by words, by meaning, by time; any question, and any damage to
//! the index.

use std::fs;

use icecore_domain::calendar::Moment;
use icecore_domain::event::{Act, Origin};
use icecore_domain::rank::passage::PassageKind;
use icecore_domain::record::{IncomingMessage, Role};
use icecore_engine::embed::Embedder;
use icecore_engine::{CaptureDefaults, Memory, RememberRequest, SearchRequest};
use pollster::block_on;

use crate::TestVault;

const EVENING: &str = "2026-02-13T21:00:00+01:00";

fn message(id: &str, ts: &str, role: Role, text: &str) -> IncomingMessage {
    IncomingMessage {
        id: Some(id.into()),
        ts: Some(Moment::parse(ts).unwrap().moment),
        conversation: Some(if id.starts_with('x') { "other" } else { "work" }.into()),
        session: Some(ts[..10].into()),
        role: Some(role),
        text: text.into(),
        ..IncomingMessage::default()
    }
}

fn add_conversation(memory: &Memory) {
    let lines = [
        (
            "a1",
            "2025-11-03T10:00:00+01:00",
            Role::User,
            "The spare key lies under the blue flower pot.",
        ),
        ("a2", "2025-11-03T10:01:00+01:00", Role::Assistant, "Good to know. Who else has a key?"),
        ("a3", "2025-11-03T10:02:00+01:00", Role::User, "Only my neighbour Ines."),
        (
            "b1",
            "2026-01-12T09:00:00+01:00",
            Role::User,
            "We use MySQL for the shop, with nightly dumps.",
        ),
        ("b2", "2026-01-12T09:01:00+01:00", Role::Assistant, "A dump each night at 02:00 is fine."),
        (
            "c1",
            "2026-02-10T09:00:00+01:00",
            Role::User,
            "The shop runs on PostgreSQL now, MySQL is gone.",
        ),
        (
            "x1",
            "2026-02-11T09:00:00+01:00",
            Role::User,
            "我昨天买了一辆自行车。 The café in Zürich was closed. Größe 42.",
        ),
        (
            "x2",
            "2026-02-12T09:00:00+01:00",
            Role::User,
            "see `OrderContext` in src/order_context.rs 🎉",
        ),
    ];
    let said = lines.iter().map(|(id, ts, role, text)| message(id, ts, *role, text)).collect();
    block_on(memory.add_messages(said, &CaptureDefaults::default())).unwrap();
}

fn ids(memory: &Memory, looking: &SearchRequest, embed: Option<&dyn Embedder>) -> Vec<String> {
    let answer = block_on(async {
        memory.open_searcher(embed, &|_, _| {}).await.unwrap().search(looking).await.unwrap()
    });
    answer.hits.into_iter().map(|hit| hit.placed.passage.id).collect()
}

fn ask(text: &str) -> SearchRequest {
    SearchRequest { text: text.into(), limit: 10, ..SearchRequest::default() }
}

// Y9
#[test]
fn words_find_what_was_said_in_any_script() {
    let home = TestVault::new();
    let memory = home.at(EVENING);
    add_conversation(&memory);
    for (question, first) in [
        ("where is the spare key?", "a1"),
        ("flower pots", "a1"),
        ("Who has a key besides me?", "a3"),
        ("cafe zurich", "x1"),
        ("grösse", "x1"),
        ("自行车", "x1"),
        ("order context", "x2"),
        ("🎉", "x2"),
        ("ordercont", "x2"),
        ("\"nightly dumps\"", "b1"),
    ] {
        let found = ids(&memory, &ask(question), None);
        assert!(found.iter().take(2).any(|id| id == first), "{question}: {found:?}");
    }
    assert_eq!(ids(&memory, &ask("\"dumps nightly\""), None), Vec::<String>::new());
    // The current statement ranks above the outdated one.
    assert_eq!(ids(&memory, &ask("Which database does the shop use?"), None)[0], "c1");
}

// Y9, K9
#[test]
fn time_kind_and_conversation_narrow_it_down() {
    let home = TestVault::new();
    let memory = home.at(EVENING);
    add_conversation(&memory);
    home.write(
        "memory/2026-02-12.md",
        "# Thursday\n\n- wrote down that the key fits the cellar door\n",
    );
    home.write("knowledge/entities/cellar.md", "# Cellar\n\n- the key hangs by the door\n");
    let january =
        icecore_domain::natural_date::parse("last month", memory.now().day()).unwrap().days();
    assert_eq!(
        ids(&memory, &SearchRequest { when: Some(january), ..ask("shop key dump") }, None),
        ["b1", "b2"]
    );
    let before = "2026-01-01T00:00:00Z".parse().ok();
    let found = ids(&memory, &SearchRequest { before, ..ask("shop key dump") }, None);
    assert!(found.iter().all(|id| id.starts_with('a')) && !found.is_empty(), "{found:?}");
    let of = |kind| SearchRequest { kinds: vec![kind], ..ask("key") };
    assert_eq!(ids(&memory, &of(PassageKind::Log), None), ["memory/2026-02-12.md"]);
    assert_eq!(ids(&memory, &of(PassageKind::Page), None), ["knowledge/entities/cellar.md"]);
    assert!(
        ids(
            &memory,
            &SearchRequest { conversation: Some("other".into()), ..ask("key café") },
            None
        )
        .iter()
        .all(|id| id.starts_with('x'))
    );
    // As of a moment, later text is unknown.
    assert_eq!(ids(&home.at("2026-01-20T00:00:00Z"), &ask("PostgreSQL MySQL shop"), None)[0], "b1");
    let answer = block_on(async {
        let finder = memory.open_searcher(None, &|_, _| {}).await.unwrap();
        finder.search(&SearchRequest { context: 1, ..ask("who else has a key") }).await.unwrap()
    });
    let around: Vec<&str> =
        answer.hits[0].around.iter().map(|passage| passage.id.as_str()).collect();
    assert!(around.contains(&"a2") && around.len() > 1, "{around:?}");
}

// Y9, L5
#[test]
fn what_replaces_stands_above_what_it_replaced_and_what_was_taken_back_is_gone() {
    let home = TestVault::new();
    let memory = home.at(EVENING);
    let remember = |text: &str, supersedes| {
        let said = RememberRequest {
            text: text.into(),
            entity: Some("shop".into()),
            supersedes,
            ..RememberRequest::default()
        };
        block_on(memory.remember(said)).unwrap().event.id
    };
    let first = remember("The shop opens at nine o'clock every single day of the week", vec![]);
    let second = remember("The shop opens at ten", vec![first]);
    let wrong = remember("The shop opens at noon", vec![]);
    block_on(memory.append_act(Act::Retract, vec![wrong], None, Origin::User, None)).unwrap();
    let looking = SearchRequest {
        kinds: vec![PassageKind::Event],
        ..ask("the shop opens at nine o'clock every day of the week")
    };
    assert_eq!(ids(&memory, &looking, None), [second.to_string(), first.to_string()]);
}

// Y9
#[test]
fn the_same_words_are_one_hit_that_names_the_others() {
    let home = TestVault::new();
    let memory = home.at(EVENING);
    let lines: Vec<IncomingMessage> = (1..=5)
        .map(|n| {
            message(
                &format!("r{n}"),
                &format!("2026-02-0{n}T09:00:00+01:00"),
                Role::User,
                "Remind me: the boiler is  serviced in March!",
            )
        })
        .chain([message(
            "s1",
            "2026-02-07T09:00:00+01:00",
            Role::User,
            "The boiler was serviced in April after all.",
        )])
        .chain((1..=2).map(|n| {
            message(
                &format!("t{n}"),
                &format!("2026-02-0{n}T10:00:00+01:00"),
                Role::User,
                "The boiler!",
            )
        }))
        .collect();
    block_on(memory.add_messages(lines, &CaptureDefaults::default())).unwrap();
    let answer = block_on(async {
        memory
            .open_searcher(None, &|_, _| {})
            .await
            .unwrap()
            .search(&ask("boiler serviced"))
            .await
            .unwrap()
    });
    let found: Vec<(&str, usize)> =
        answer.hits.iter().map(|hit| (hit.placed.passage.id.as_str(), hit.also.len())).collect();
    let repeated: Vec<_> = found.iter().filter(|(id, _)| id.starts_with('r')).collect();
    assert_eq!(repeated.len(), 1, "{found:?}");
    assert_eq!(repeated[0].1, 4, "{found:?}");
    // Other texts are not grouped, and neither are texts of a word or two.
    assert!(["s1", "t1", "t2"].iter().all(|id| found.contains(&(id, 0))), "{found:?}");
}

// Y9
#[test]
fn any_question_gets_an_answer() {
    let home = TestVault::new();
    let memory = home.at(EVENING);
    assert!(ids(&memory, &ask("anything in an empty vault"), None).is_empty());
    add_conversation(&memory);
    let long = "key ".repeat(30_000);
    for question in [
        "",
        " ",
        "\"",
        "\"\"\"",
        "* OR NEAR(a b)",
        "key AND NOT (pot)",
        "'; DROP TABLE passage; --",
        "\u{0}\u{1b}[31m",
        "🤷",
        "%_%",
        "col:key^2 ~",
        "a",
        "-key",
        "key*",
        "\u{202e}yek",
        "31 february",
        "NULL",
        long.as_str(),
    ] {
        let _ = ids(&memory, &ask(question), None);
    }
    assert!(ids(&memory, &ask(&long), None).contains(&"a1".to_owned()));
}

// Y9
#[test]
fn an_index_that_was_deleted_damaged_or_left_behind_gives_the_same_answers() {
    let home = TestVault::new();
    add_conversation(&home.at(EVENING));
    let questions = ["spare key", "Which database does the shop use?", "自行车", "dump"];
    let answers = |home: &TestVault| -> Vec<Vec<String>> {
        questions.iter().map(|text| ids(&home.at(EVENING), &ask(text), None)).collect()
    };
    let before = answers(&home);
    let index = home.root.join(".icecore/search.db");
    assert!(index.exists());
    for damage in ["delete", "garbage", "empty"] {
        for ending in ["-wal", "-shm"] {
            let _ = fs::remove_file(home.root.join(format!(".icecore/search.db{ending}")));
        }
        match damage {
            "delete" => fs::remove_file(&index).unwrap(),
            "garbage" => {
                fs::write(&index, b"not a database at all, but long enough to look at".repeat(100))
                    .unwrap()
            }
            _ => fs::write(&index, b"").unwrap(),
        }
        assert_eq!(answers(&home), before, "{damage}");
    }
    // Passages that were added one by one are found like those added at once, and those of a
    // removed file are not found.
    let other = TestVault::new();
    let memory = other.at(EVENING);
    add_conversation(&memory);
    assert_eq!(answers(&other), before);
    fs::remove_file(other.root.join("memory/messages/2025-11-03.jsonl")).unwrap();
    assert!(ids(&memory, &ask("flower pot"), None).is_empty());
}

// Y9
#[test]
fn meanings_are_compared_where_words_differ() {
    let home = TestVault::new();
    let memory = home.at(EVENING);
    add_conversation(&memory);
    let model = crate::embed::model();
    let asked = "How can somebody get into the house without ringing?";
    let words = ids(&memory, &ask(asked), None);
    assert!(words.first().is_none_or(|id| id != "a1"), "{words:?}");
    // Computed on demand, and stored.
    let looking = SearchRequest {
        rerank: true,
        ..ask("How could Ines enter my home, where is the thing that opens it?")
    };
    let found = ids(&memory, &looking, Some(&model));
    assert!(found.iter().take(3).any(|id| id == "a1"), "{found:?}");
    assert!(block_on(memory.count_embedded()).unwrap().embedded > 0);
    // All of them, and again after everything was rebuilt.
    let all = block_on(memory.embed_passages(&model, usize::MAX, &|_, _| {})).unwrap();
    assert_eq!(all.embedded, all.total);
    block_on(memory.rebuild_passages(&|_, _| {})).unwrap();
    assert_eq!(block_on(memory.count_embedded()).unwrap(), all);
    let found = ids(&memory, &ask(asked), Some(&model));
    assert!(found.iter().take(3).any(|id| id == "a1"), "{found:?}");
}
