//! Branches of conversations: chats with the same beginning, messages that were edited or deleted,
//! requests of front ends.

use std::sync::Arc;

use icecore_domain::calendar::Days;
use icecore_domain::natural_date::NaturalDate;
use icecore_domain::summary::{Period, SummaryQuery, Tier};
use icecore_engine::RollupRequest;
use icecore_engine::SearchRequest;
use icecore_engine::config::ChatMode;
use icecore_engine::converse::{
    ChatMessage, ChatReply, ChatRequest, Chats, ClientHistory, PreparedChatTurn,
};
use serde_json::json;

use crate::TestVault;

const NOON: &str = "2026-02-13T12:00:00+01:00";
const LATER: &str = "2026-02-13T13:00:00+01:00";
const TITLE: &str = "### Task:\nGenerate a concise title.\n### Chat History:\n<chat_history>\nUSER: I plan a garden.\n</chat_history>";

fn run<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

async fn chats(home: &TestVault, now: &str) -> Chats {
    Chats::open(Arc::new(home.at(now))).await.unwrap()
}

/// A client that sends its whole history, alternating between the user and the model.
struct Client<'a> {
    chats: &'a Chats,
    heard: ChatRequest,
}

impl<'a> Client<'a> {
    fn without_id(chats: &'a Chats) -> Self {
        Self { chats, heard: ChatRequest::default() }
    }

    fn with_id(chats: &'a Chats, name: &str) -> Self {
        Self {
            chats,
            heard: ChatRequest { conversation: Some(name.into()), ..ChatRequest::default() },
        }
    }

    async fn begin(&self, said: &[&str]) -> PreparedChatTurn {
        let message = |(at, text): (usize, &&str)| {
            let role = if at % 2 == 0 { "user" } else { "assistant" };
            ChatMessage {
                role: role.into(),
                name: None,
                text: (*text).into(),
                raw: json!({ "role": role, "content": text }).to_string(),
                has_tools: false,
            }
        };
        let messages = said.iter().enumerate().map(message).collect();
        self.chats.prepare_turn(ChatRequest { messages, ..self.heard.clone() }).await.unwrap()
    }

    /// Sends a turn, records the reply, and summarizes the exchange.
    async fn exchange(&self, said: &[&str], reply: &str) -> PreparedChatTurn {
        let prepared_turn = self.begin(said).await;
        self.chats
            .record_exchange(
                &prepared_turn,
                &ChatReply { text: reply.into(), parts: None, complete: true },
            )
            .await
            .unwrap();
        self.chats.reflect(&prepared_turn.conversation, None, false).await.unwrap();
        prepared_turn
    }
}

/// All that memory adds to a request.
fn memory_text(prepared_turn: &PreparedChatTurn) -> String {
    let window: Vec<&str> = prepared_turn.window.iter().map(|(_, text)| text.as_str()).collect();
    format!("{}\n{}", prepared_turn.memory.clone().unwrap_or_default(), window.join("\n"))
}

async fn facts(chats: &Chats, name: &str) -> Vec<String> {
    chats.facts(name, None).await.unwrap().into_iter().map(|fact| fact.text).collect()
}

// C1, C3
#[test]
fn chats_that_begin_alike_stay_two() {
    let home = TestVault::new();
    run(async {
        let chats = chats(&home, NOON).await;
        let client = Client::without_id(&chats);
        let hello = "Hello! How can I help?";
        let code = "Never use the door code 7731. I work for Alpha.";
        let (a1, b1) =
            (client.exchange(&["hi"], hello).await, client.exchange(&["hi"], hello).await);
        assert_ne!(a1.conversation, b1.conversation);
        let a2 = client.exchange(&["hi", hello, code], "Noted.").await;
        let b2 = client.exchange(&["hi", hello, "I work for Beta"], "Good.").await;
        assert_ne!(a2.conversation, b2.conversation);
        assert_eq!((a2.turn, b2.turn), (2, 2));
        assert!(!memory_text(&b2).contains("7731") && b2.window.is_empty(), "{}", memory_text(&b2));
        // A third one with the same beginning, whose first turn was not recorded.
        let c2 = client.exchange(&["hi", hello, "I work for Gamma"], "Fine.").await;
        assert!(
            !memory_text(&c2).contains("7731") && !memory_text(&c2).contains("Beta"),
            "{}",
            memory_text(&c2)
        );
        // Each continues at its own position, also after a restart, in any order.
        let again = self::chats(&home, LATER).await;
        for client in [client, Client::without_id(&again)] {
            let c = client.begin(&["hi", hello, "I work for Gamma", "Fine.", "and?"]).await;
            let b = client.begin(&["hi", hello, "I work for Beta", "Good.", "and?"]).await;
            let a = client.begin(&["hi", hello, code, "Noted.", "and?"]).await;
            assert_eq!(
                (&a.conversation, &b.conversation, &c.conversation),
                (&a2.conversation, &b2.conversation, &c2.conversation)
            );
            assert!(memory_text(&a).contains("7731"), "{}", memory_text(&a));
            for other in [&b, &c] {
                assert!(
                    !memory_text(other).contains("7731") && other.window.is_empty(),
                    "{}",
                    memory_text(other)
                );
            }
        }
        // A client's key separates chats with the same beginning, and does not join chats that
        // begin differently.
        let keyed = |key: &str| Client {
            chats: &again,
            heard: ChatRequest { shared_key: Some(key.into()), ..ChatRequest::default() },
        };
        let (x, y) =
            (keyed("x").exchange(&["hi"], hello).await, keyed("y").exchange(&["hi"], hello).await);
        assert_eq!(keyed("x").begin(&["hi", hello, "go on"]).await.conversation, x.conversation);
        assert_eq!(keyed("y").begin(&["hi", hello, "go on"]).await.conversation, y.conversation);
        assert_ne!(keyed("x").begin(&["ho", "Ho ho", "go on"]).await.conversation, x.conversation);
    });
}

// C1, C3
#[test]
fn an_edited_message_is_a_branch() {
    for name in [None, Some("garden")] {
        let home = TestVault::new();
        run(async {
            let chats = chats(&home, NOON).await;
            let client = name
                .map_or_else(|| Client::without_id(&chats), |name| Client::with_id(&chats, name));
            let garden = ["I plan a garden.", "Nice!"];
            let (roses, tulips) = ("We must always use roses", "We must always use tulips");
            let first = client.exchange(&garden[..1], garden[1]).await;
            let name = first.conversation.clone();
            client.exchange(&[garden[0], garden[1], roses], "Roses it is.").await;
            assert!(facts(&chats, &name).await.iter().any(|fact| fact.contains("roses")));
            // Repeating the request is the same turn.
            assert_eq!(
                client.exchange(&[garden[0], garden[1], roses], "Roses, then.").await.turn,
                2
            );
            let edited = client.exchange(&[garden[0], garden[1], tulips], "Tulips it is.").await;
            assert_eq!((&edited.conversation, edited.turn), (&name, 3));
            assert!(
                !memory_text(&edited).contains("roses") && edited.window.is_empty(),
                "{}",
                memory_text(&edited)
            );
            // It does not come back: not in the facts, not in the log, not in later requests.
            assert!(
                facts(&chats, &name).await.iter().all(|fact| !fact.contains("roses")),
                "{:?}",
                facts(&chats, &name).await
            );
            let shown = [garden[0], garden[1], tulips, "Tulips it is.", "and the path?"];
            let next = client.exchange(&shown, "Gravel.").await;
            assert_eq!((&next.conversation, next.turn), (&name, 4));
            assert!(
                memory_text(&next).contains("tulips") && !memory_text(&next).contains("roses"),
                "{}",
                memory_text(&next)
            );
            let pack = chats.build_pack(&name).await.unwrap().text;
            assert!(
                pack.contains("tulips") && pack.contains("Gravel") && !pack.contains("oses"),
                "{pack}"
            );
            // The text stays readable and is marked as withdrawn.
            assert_eq!(chats.turn_records(&name, 2).await.unwrap().len(), 2);
            let withdrawn: Vec<u64> = chats
                .turns(&name)
                .await
                .unwrap()
                .iter()
                .filter(|line| line.extra.contains_key("withdrawn"))
                .map(|line| line.turn)
                .collect();
            assert_eq!(withdrawn, [2]);
            let day = NaturalDate::Day(chats.memory().now().day());
            let said =
                chats.memory().load_time_contents(day, Some(&name), false).await.unwrap().records;
            assert!(
                said.iter().all(|record| record.withdrawn == (record.turn() == Some(2))),
                "{said:?}"
            );
            // A new process sees the same.
            let started = self::chats(&home, LATER).await;
            assert!(facts(&started, &name).await.iter().all(|fact| !fact.contains("roses")));
            let client = Client { chats: &started, heard: client.heard };
            let next = client.begin(&[&shown[..], &["Gravel.", "thanks"]].concat()).await;
            assert!(
                next.turn == 5 && !memory_text(&next).contains("roses"),
                "{}",
                memory_text(&next)
            );
            // The user switches back to the first version, which counts again.
            let back = client
                .exchange(&[garden[0], garden[1], roses, "Roses, then.", "red ones"], "Red.")
                .await;
            assert_eq!(back.conversation, name);
            assert!(
                memory_text(&back).contains("roses") && !memory_text(&back).contains("ulips"),
                "{}",
                memory_text(&back)
            );
            assert!(facts(&started, &name).await.iter().all(|fact| !fact.contains("tulips")));
        });
    }
}

// C1, C3
#[test]
fn a_deleted_turn_stays_deleted() {
    let home = TestVault::new();
    run(async {
        let chats = chats(&home, NOON).await;
        let client = Client::with_id(&chats, "trip");
        let said =
            ["We go to Rome.", "Lovely.", "Never use planes.", "By train.", "In May.", "Warm."];
        for turn in 0..3 {
            client.exchange(&said[..=turn * 2], said[turn * 2 + 1]).await;
        }
        assert_eq!(facts(&chats, "trip").await, ["Never use planes."]);
        let without = [said[0], said[1], said[4], said[5], "what do we need?"];
        let next = client.exchange(&without, "Tickets.").await;
        assert!(
            next.turn == 4 && next.window.is_empty() && !memory_text(&next).contains("planes"),
            "{}",
            memory_text(&next)
        );
        assert!(facts(&chats, "trip").await.is_empty());
        // With `replace` too, only what the client still shows replaces its history.
        let heard = ChatRequest { mode: Some(ChatMode::Replace), ..client.heard.clone() };
        let replaced = Client { chats: &chats, heard }
            .begin(&[&without[..], &["Tickets.", "and?"]].concat())
            .await;
        let told: Vec<&str> = replaced.window.iter().map(|(_, text)| text.as_str()).collect();
        assert_eq!(told, [&without[..], &["Tickets."]].concat());
        // A client that truncated its history at the front deleted nothing.
        let cut = client.begin(&[said[4], said[5], "what do we need?", "Tickets.", "and?"]).await;
        assert!(
            memory_text(&cut).contains("Rome") && cut.window.is_empty(),
            "{}",
            memory_text(&cut)
        );
        // A history without recorded turns is left unchanged.
        let heard = ChatRequest { mode: Some(ChatMode::Replace), ..ChatRequest::default() };
        let unknown =
            Client { chats: &chats, heard }.begin(&["from elsewhere", "yes?", "go on"]).await;
        assert!(unknown.mode == ChatMode::Augment && unknown.window.is_empty());
    });
}

// C1
#[test]
fn requests_of_a_front_end_do_not_withdraw_a_chat() {
    let home = TestVault::new();
    run(async {
        let chats = chats(&home, NOON).await;
        let heard = ChatRequest {
            conversation: Some("owui".into()),
            history: ClientHistory::Whole,
            ..ChatRequest::default()
        };
        let client = Client { chats: &chats, heard };
        // A request for search terms comes before the first turn; one for a title comes after it.
        client.exchange(&[TITLE], "{\"queries\":[]}").await;
        let garden = ["We must always use roses.", "Nice!"];
        let first = client.exchange(&garden[..1], garden[1]).await;
        assert!(!memory_text(&first).contains("title"), "{}", memory_text(&first));
        let title = client.exchange(&[TITLE], "Garden").await;
        assert!(!memory_text(&title).contains("roses"), "{}", memory_text(&title));
        assert_eq!(facts(&chats, "owui").await, [garden[0]]);
        let pack = chats.build_pack("owui").await.unwrap().text;
        assert!(pack.contains("Nice!") && !pack.contains("title"), "{pack}");
        let next = client.exchange(&[garden[0], garden[1], "and now?"], "Water them.").await;
        assert!(
            memory_text(&next).contains("roses") && !memory_text(&next).contains("title"),
            "{}",
            memory_text(&next)
        );
        // The same from an unknown client, and any request that shares nothing with the chat.
        for (odd, reply) in [(&[TITLE][..], "Garden"), (&["Summarize: x", "ok", "shorter"], "x")] {
            client.exchange(odd, reply).await;
            assert_eq!(facts(&chats, "owui").await, [garden[0]]);
        }
        // If such a request continues, it is the chat from then on.
        client.exchange(&["Never use roses."], "Tulips?").await;
        assert_eq!(facts(&chats, "owui").await, [garden[0]]);
        client.exchange(&["Never use roses.", "Tulips?", "yes"], "Good.").await;
        assert_eq!(facts(&chats, "owui").await, ["Never use roses."]);
    });
}

// C1, C3
#[test]
fn clients_that_send_only_the_newest_words_go_on_at_the_head() {
    let home = TestVault::new();
    run(async {
        let chats = chats(&home, NOON).await;
        let client = Client::with_id(&chats, "app");
        for n in 1..=3 {
            let prepared_turn =
                client.exchange(&[&format!("number {n}")], &format!("answer {n}")).await;
            assert_eq!((prepared_turn.turn, prepared_turn.window.len()), (n, 2 * (n as usize - 1)));
        }
        client.exchange(&[TITLE], "Numbers").await;
        let prepared_turn = client.begin(&["number 4"]).await;
        let told: Vec<&str> = prepared_turn.window.iter().map(|(_, text)| text.as_str()).collect();
        assert_eq!(told, ["number 1", "answer 1", "number 2", "answer 2", "number 3", "answer 3"]);
    });
}

// C1, C3
#[test]
fn what_a_front_end_puts_around_a_question_does_not_make_a_branch() {
    let home = TestVault::new();
    run(async {
        let chats = chats(&home, NOON).await;
        let client = Client::with_id(&chats, "docs");
        let around = "Use the context.\n<context>The tower is 330 m high and must never be climbed.</context>\nhow high is it?";
        client.exchange(&[around], "It is 330 m high.").await;
        client
            .exchange(&["how high is it?", "It is 330 m high.", "and in feet?"], "1083 ft.")
            .await;
        // A model's thinking is not sent back.
        client
            .exchange(
                &["how high is it?", "It is 330 m high.", "and in feet?", "1083 ft.", "why?"],
                "<think>hm</think>To see far.",
            )
            .await;
        let shown = [
            "how high is it?",
            "It is 330 m high.",
            "and in feet?",
            "1083 ft.",
            "why?",
            "To see far.",
            "thanks",
        ];
        client.exchange(&shown, "You are welcome.").await;
        let withdrawn = chats
            .turns("docs")
            .await
            .unwrap()
            .into_iter()
            .filter(|line| line.extra.contains_key("withdrawn"))
            .count();
        assert_eq!(
            (
                withdrawn,
                home.files().iter().filter(|(path, _)| path.ends_with("branches.jsonl")).count()
            ),
            (0, 0)
        );
    });
}

// C1, P7, Y9
#[test]
fn withdrawn_turns_are_in_no_summary_and_marked_in_search() {
    let home = TestVault::new();
    run(async {
        let chats = chats(&home, NOON).await;
        let client = Client::with_id(&chats, "garden");
        let said = ["I plan a garden.", "Nice!"];
        client.exchange(&said[..1], said[1]).await;
        client
            .exchange(&[said[0], said[1], "The roses stand beside the wall"], "Roses it is.")
            .await;
        client
            .exchange(&[said[0], said[1], "The tulips stand beside the wall"], "Tulips it is.")
            .await;
        let (memory, today) = (chats.memory(), chats.memory().now().day());
        let pack = memory.assemble_upload(None, None).await.unwrap().text;
        assert!(pack.contains("ulips") && !pack.contains("oses"), "{pack}");
        let wish = RollupRequest {
            tier: Some(Tier::Session),
            days: Some(Days { first: today, last: today }),
            sessions: None,
        };
        let roll =
            async || memory.run_rollup(&wish, None, &|_, _, _| {}).await.unwrap().summaries.len();
        assert_eq!((roll().await, roll().await), (1, 0));
        let summary =
            memory.load_time_contents(NaturalDate::Day(today), None, false).await.unwrap();
        let words = memory.load_period_records(Period::Day(today), None, None).await.unwrap();
        for records in [&summary.records, &words] {
            assert!(
                records.iter().all(|record| record.withdrawn == (record.turn() == Some(2))),
                "{records:?}"
            );
        }
        let summaries =
            memory.store().summaries(&SummaryQuery::for_tier(Tier::Session)).await.unwrap();
        assert!(
            summaries.len() == 1
                && !summaries[0].body.contains("oses")
                && summaries[0].body.contains("ulips"),
            "{summaries:?}"
        );
        let looking = SearchRequest {
            text: "who stands beside the wall".into(),
            limit: 10,
            ..SearchRequest::default()
        };
        let hits = memory
            .open_searcher(None, &|_, _| {})
            .await
            .unwrap()
            .search(&looking)
            .await
            .unwrap()
            .hits;
        let withdrawn = |word: &str| {
            hits.iter().find(|hit| hit.placed.passage.text.contains(word)).map(|hit| hit.withdrawn)
        };
        assert_eq!((withdrawn("The roses"), withdrawn("The tulips")), (Some(true), Some(false)));
    });
}

// C1
#[test]
fn chats_that_end_at_once_are_all_found_by_how_they_began() {
    let home = TestVault::new();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build().unwrap();
    runtime.block_on(async {
        let chats = Arc::new(chats(&home, NOON).await);
        let mut ending = tokio::task::JoinSet::new();
        for _ in 0..12 {
            let prepared_turn = Client::without_id(&chats).begin(&["hi"]).await;
            let chats = chats.clone();
            let reply = ChatReply { text: "Hello!".into(), parts: None, complete: true };
            ending
                .spawn(async move { chats.record_exchange(&prepared_turn, &reply).await.unwrap() });
        }
        ending.join_all().await;
        let lists = home
            .files()
            .into_iter()
            .filter(|(path, _)| path.contains("openings/"))
            .map(|(_, text)| text.lines().count());
        assert_eq!(lists.collect::<Vec<_>>(), [12]);
    });
}
