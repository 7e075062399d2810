//! The same memory in a vault and in a database gives the same answers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use icecore_domain::calendar::{Days, Moment};
use icecore_domain::record::{IncomingMessage, Role};
use icecore_domain::summary::{SummaryQuery, Tier};
use icecore_engine::clock::FixedClock;
use icecore_engine::embed::{EmbedError, Embedder, Embedding};
use icecore_engine::{
    CaptureDefaults, Error, LiveSession, Memory, PackBudget, RememberRequest, RollupRequest,
    SearchRequest, transfer,
};
use icecore_store::postgres::{Postgres, PostgresOptions};
use icecore_store::prelude::*;
use icecore_store::testing::cluster::{Durability, TestCluster};
use icecore_store::vault::Vault;
use pollster::block_on;

use crate::TestVault;

const EVENING: &str = "2026-05-01T21:00:00+02:00";
const THINGS: [&str; 24] = [
    "harbour",
    "camping trip",
    "OrderContext",
    "piano lesson",
    "自行车",
    "birthday 🎉",
    "kitchen table",
    "launch",
    "paint",
    "database",
    "migration",
    "Zürich",
    "garden",
    "running shoes",
    "old bridge",
    "winter coat",
    "Straße",
    "http2 server",
    "blue car",
    "museum",
    "train to Oslo",
    "recipe",
    "violin",
    "swimming",
];
const DEEDS: [&str; 12] = [
    "I bought",
    "We saw",
    "Do you like",
    "I moved to",
    "She painted",
    "Tell me about",
    "I no longer use",
    "They closed",
    "I love",
    "He sold",
    "We planned",
    "I changed",
];
const QUESTIONS: [&str; 20] = [
    "What did Caroline paint?",
    "Where did we go camping?",
    "Which database do I use now?",
    "harbour",
    "\"piano lesson\"",
    "自行车",
    "When did Melanie buy running shoes?",
    "order context",
    "the old bridge in winter",
    "birthday",
    "What happened in March?",
    "museum and train to Oslo",
    "grösse strasse",
    "swimm",
    "arbou",
    "nothing of the kind xyzzy",
    "Who sold the blue car?",
    "what did you tell me about the recipe?",
    "zurich garden",
    "thing 7 and thing 11",
];

/// Pseudo-random numbers, the same in every run.
fn chance(seed: &mut u64) -> usize {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*seed >> 33) as usize
}

/// A model with the same vector for all texts with the same words.
struct Words;

impl Embedder for Words {
    fn name(&self) -> &str {
        "words"
    }

    fn embed(&self, texts: &[&str]) -> Result<Vec<Embedding>, EmbedError> {
        Ok(texts
            .iter()
            .map(|text| {
                let mut numbers = [0.01; 384];
                for word in text.split_whitespace() {
                    let mut seed = word.bytes().fold(7, |seed: u64, byte| {
                        seed.wrapping_mul(31).wrapping_add(u64::from(byte))
                    });
                    numbers
                        .iter_mut()
                        .for_each(|number| *number += (chance(&mut seed) % 201) as f32 - 100.0);
                }
                Embedding::normalize(&numbers).unwrap()
            })
            .collect())
    }
}

fn furnish(memory: &Memory) {
    let mut seed = 11;
    let said = (0..1_600).map(|at: usize| {
        let minute = at * 97;
        let ts = format!(
            "2026-{:02}-{:02}T{:02}:{:02}:00+01:00",
            1 + minute / 40_320,
            1 + minute / 1_440 % 28,
            minute / 60 % 24,
            minute % 60
        );
        let (deed, thing, other) = (
            DEEDS[chance(&mut seed) % 12],
            THINGS[chance(&mut seed) % 24],
            THINGS[chance(&mut seed) % 24],
        );
        let name = [Some("Caroline"), Some("Melanie"), None][at % 3];
        IncomingMessage {
            id: Some(format!("m{at}")),
            ts: Some(Moment::parse(&ts).unwrap().moment),
            conversation: Some(format!("talk-{}", at % 4)),
            session: Some(format!("s{}", at / 30)),
            role: Some(if at.is_multiple_of(2) { Role::User } else { Role::Assistant }),
            name: name.map(Into::into),
            text: format!("{deed} the {thing} near the {other}, thing {}.", chance(&mut seed) % 50),
            ..IncomingMessage::default()
        }
    });
    block_on(memory.add_messages(said.collect(), &CaptureDefaults::default())).unwrap();
    for at in 0..120 {
        let text =
            format!("{} is about the {}, number {at}", THINGS[at % 24], THINGS[(at * 7 + 3) % 24]);
        block_on(memory.remember(RememberRequest { text, ..RememberRequest::default() })).unwrap();
    }
}

/// All fields of an answer, for comparison.
fn answers(memory: &Memory, embed: Option<&dyn Embedder>) -> Vec<String> {
    let mut told = Vec::new();
    block_on(async {
        let finder = memory.open_searcher(embed, &|_, _| {}).await.unwrap();
        for (at, question) in QUESTIONS.iter().cycle().take(60).enumerate() {
            let conversation = (at / 20 == 1).then(|| format!("talk-{}", at % 4));
            let before = (at / 20 == 2).then(|| "2026-02-20T00:00:00Z".parse().unwrap());
            let looking = SearchRequest {
                text: (*question).into(),
                limit: 10,
                conversation,
                before,
                context: at % 3,
                ..SearchRequest::default()
            };
            told.push(format!("{:?}", finder.search(&looking).await.unwrap()));
        }
    });
    told
}

// L17: a user waits for a hook
#[test]
fn a_session_leased_by_another_process_continues_soon() {
    let (home, cluster) = (TestVault::new(), TestCluster::start(Durability::Unflushed));
    let space = block_on(async {
        let database = Postgres::for_url(&cluster.url(), PostgresOptions::default()).unwrap();
        database.migrate().await.unwrap();
        database.create_space("one", "zone = \"Europe/Berlin\"\n").await.unwrap()
    });
    let other = Arc::new(Vault::open(&home.root).unwrap());
    let clock = Box::new(FixedClock(EVENING.parse().unwrap()));
    let there = block_on(Memory::open(space.clone(), other.clone(), clock)).unwrap();
    for (memory, store) in [(home.at(EVENING), other as Arc<dyn Store>), (there, space)] {
        let held: Vec<_> = (0..16)
            .map(|n| block_on(store.acquire_lease(&format!("session-{n:x}"))).unwrap().unwrap())
            .collect();
        let session =
            LiveSession { session: "s".into(), client: "test".into(), ..LiveSession::default() };
        let start = Instant::now();
        block_on(memory.record_prompt(
            &session,
            "may we deploy on Friday?",
            PackBudget { chars: 9_000, tokens: None },
        ))
        .unwrap();
        let waited = start.elapsed();
        assert!(
            waited > Duration::from_millis(250) && waited < Duration::from_secs(3),
            "{waited:?}"
        );
        drop(held);
    }
}

#[test]
fn waiting_for_another_hook_of_a_session_lets_other_tasks_go_on() {
    let home = TestVault::new();
    let store = Vault::open(&home.root).unwrap();
    let _held: Vec<_> = (0..16)
        .map(|n| block_on(store.acquire_lease(&format!("session-{n:x}"))).unwrap().unwrap())
        .collect();
    let (memory, session) =
        (home.at(EVENING), LiveSession { session: "s".into(), ..LiveSession::default() });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let ticks = runtime.block_on(async {
        let attended = memory.record_prompt(
            &session,
            "may we deploy on Friday?",
            PackBudget { chars: 9_000, tokens: None },
        );
        tokio::pin!(attended);
        let mut ticks = 0;
        loop {
            tokio::select! {
                given = &mut attended => return given.map(|_| ticks),
                () = tokio::time::sleep(Duration::from_millis(5)) => ticks += 1,
            }
        }
    });
    assert!(ticks.unwrap() >= 10);
}

// K5: a process that lost its lease does not write what another one is writing
#[test]
fn a_run_that_was_away_and_lost_its_claim_writes_nothing_any_more() {
    let (home, cluster) = (TestVault::new(), TestCluster::start(Durability::Unflushed));
    let lease = Duration::from_millis(300);
    let space = block_on(async {
        let database = Postgres::for_url(
            &cluster.url(),
            PostgresOptions { lease_duration: lease, ..PostgresOptions::default() },
        )
        .unwrap();
        database.migrate().await.unwrap();
        database.create_space("one", "zone = \"Europe/Berlin\"\n").await.unwrap()
    });
    let clock = Box::new(FixedClock(EVENING.parse().unwrap()));
    let memory =
        block_on(Memory::open(space.clone(), Arc::new(Vault::open(&home.root).unwrap()), clock))
            .unwrap();
    furnish(&memory);
    let kept = || block_on(space.summary_heads(&SummaryQuery::default())).unwrap().0.len();
    let away = |_: &str, _: usize, _: usize| {
        cluster.sql("UPDATE icecore.claim SET holder = gen_random_uuid(), until = now() + interval '1 minute'");
        std::thread::sleep(lease * 2);
    };
    let day = "2026-01-02".parse().unwrap();
    let first = RollupRequest {
        tier: Some(Tier::Session),
        days: Some(Days { first: day, last: day }),
        sessions: None,
    };
    let lost = block_on(memory.run_rollup(&first, None, &away));
    assert!(matches!(lost, Err(Error::Busy(_))), "{lost:?}");
    assert_eq!(kept(), 0);
    // The other process works on it; when it ends, the work is done.
    assert!(matches!(
        block_on(memory.run_rollup(&first, None, &|_, _, _| {})),
        Err(Error::Busy(_))
    ));
    cluster.sql("DELETE FROM icecore.claim");
    block_on(memory.run_rollup(&first, None, &|_, _, _| {})).unwrap();
    assert!(kept() > 0);
}

// L2, Y9
#[test]
fn a_vault_and_a_database_give_the_same_answers() {
    let home = TestVault::new();
    let vault = home.at(EVENING);
    furnish(&vault);
    for at in 0..30 {
        let sections: Vec<String> = (0..3)
            .map(|part| {
                format!("## Part {part}\n\n- the {} and thing {at}\n", THINGS[(at + part * 5) % 24])
            })
            .collect();
        home.write(&format!("knowledge/entities/thing_{at}.md"), &sections.concat());
        home.write(
            &format!("memory/2026-03-{:02}.md", at % 28 + 1),
            &format!("# Day\n\n- saw the {}\n", THINGS[at % 24]),
        );
    }
    let cluster = TestCluster::with_pgvector(Durability::Unflushed);
    let memory_at = |many_passages: u32| -> Memory {
        block_on(async {
            let database = Postgres::for_url(
                &cluster.url(),
                PostgresOptions {
                    nearest_query_min_passages: many_passages,
                    ..PostgresOptions::default()
                },
            )
            .unwrap();
            database.migrate().await.unwrap();
            let store: Arc<dyn Store> = match database.open_space("one").await.unwrap() {
                Some(space) => space,
                None => {
                    let space =
                        database.create_space("one", "zone = \"Europe/Berlin\"\n").await.unwrap();
                    transfer(&Vault::open(&home.root).unwrap(), space.as_ref(), &|_, _| {})
                        .await
                        .unwrap();
                    space
                }
            };
            let clock = Box::new(FixedClock(EVENING.parse().unwrap()));
            Memory::open(store, Arc::new(Vault::open(&home.root).unwrap()), clock).await.unwrap()
        })
    };
    let (all, nearest) = (memory_at(u32::MAX), memory_at(0));
    let expected = answers(&vault, None);
    assert!(expected.iter().filter(|answer| answer.contains("score:")).count() > 50);
    assert_eq!(answers(&all, None), expected);
    for memory in [&vault, &all] {
        let embedded = block_on(memory.embed_passages(&Words, 1_500, &|_, _| {})).unwrap();
        assert_eq!((embedded.embedded, embedded.total > 1_800), (1_500, true));
    }
    let expected = answers(&vault, Some(&Words));
    assert!(expected.iter().all(|answer| answer.contains("by_meaning: true")));
    // With all signatures compared here, and with the database asked for the nearest ones.
    assert_eq!(answers(&all, Some(&Words)), expected);
    assert_eq!(answers(&nearest, Some(&Words)), expected);
    assert!(cluster.sql("SELECT prosrc FROM pg_proc WHERE proname = 'nearest'").contains("<~>"));
}
