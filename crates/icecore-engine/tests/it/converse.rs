//! Conversations: what a chat model receives, what is stored, and what happens when a summarizer
//! fails.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use icecore_domain::converse::turn_log::TurnState;
use icecore_domain::record::{IncomingMessage, Role};
use icecore_engine::config::ChatMode;
use icecore_engine::converse::{
    ChatMessage, ChatReply, ChatRequest, Chats, LEASE_DURATION, PreparedChatTurn, REFLECTION_DAYS,
};
use icecore_engine::llm::{FinishReason, Llm, ModelAnswer, ModelCheck, ModelError, ModelRequest};
use icecore_engine::{CaptureDefaults, Memory, ModelBudget};
use serde_json::{Value, json};

use crate::TestVault;

const NOON: &str = "2026-02-13T12:00:00+01:00";
const LATER: &str = "2026-02-13T13:00:00+01:00";

/// A summarizer with a scripted answer; `None` means that it hangs.
struct Summarizer<F> {
    answers: F,
    asked: AtomicUsize,
}

impl<F: Fn(&ModelRequest, usize) -> Option<String> + Send + Sync> Summarizer<F> {
    fn new(answers: F) -> Self {
        Self { answers, asked: AtomicUsize::new(0) }
    }
}

#[async_trait]
impl<F: Fn(&ModelRequest, usize) -> Option<String> + Send + Sync> Llm for Summarizer<F> {
    fn name(&self) -> String {
        "scripted".into()
    }

    async fn complete(
        &self,
        ask: &ModelRequest,
        _: &(dyn Fn(usize) + Send + Sync),
    ) -> Result<ModelAnswer, ModelError> {
        let asked = self.asked.fetch_add(1, Ordering::SeqCst);
        match (self.answers)(ask, asked) {
            Some(text) => Ok(ModelAnswer {
                text,
                tokens_in: 100,
                tokens_out: 10,
                measured: true,
                finish: FinishReason::Done,
                retries: 0,
                streamed: false,
            }),
            None => {
                tokio::time::sleep(Duration::from_secs(3_600)).await;
                Err(ModelError::Unreachable { place: "nowhere".into(), said: "never".into() })
            }
        }
    }

    async fn check_abilities(&self) -> Vec<ModelCheck> {
        Vec::new()
    }
}

fn asking(llm: &dyn Llm) -> ModelBudget<'_> {
    ModelBudget { llm, ceiling: 10_000_000, input_tokens: 24_000, output_tokens: 0 }
}

/// The last user text in a prompt.
fn user_said(ask: &ModelRequest) -> String {
    let after = ask.user.split(" the user, turn ").nth(1).unwrap_or_default();
    after.lines().skip(1).take_while(|line| !line.starts_with("===")).collect::<Vec<_>>().join("\n")
}

fn answer(user: &str, add: &[&str], update: &[&str], remove: &[&str]) -> String {
    json!({ "user_summary": user, "assistant_summary": "said fine", "base_truth_diff": { "add": add, "update": update, "remove": remove } })
        .to_string()
}

fn message(role: &str, text: &str) -> ChatMessage {
    ChatMessage {
        role: role.into(),
        name: None,
        text: text.into(),
        raw: json!({ "role": role, "content": text }).to_string(),
        has_tools: false,
    }
}

fn with_tools(role: &str, text: &str) -> ChatMessage {
    ChatMessage { has_tools: true, ..message(role, text) }
}

fn chat_request(conversation: &str, messages: Vec<ChatMessage>) -> ChatRequest {
    ChatRequest { conversation: Some(conversation.into()), messages, ..ChatRequest::default() }
}

fn reply(text: &str) -> ChatReply {
    ChatReply { text: text.into(), parts: None, complete: true }
}

fn run<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

/// A vault with short waiting times.
fn hasty() -> TestVault {
    let home = TestVault::new();
    home.write(
        "icecore.toml",
        "zone = \"Europe/Berlin\"\n[chat]\nmax_wait_for_last_turn_ms = 20\n",
    );
    home
}

async fn chats(home: &TestVault, now: &str) -> Chats {
    Chats::open(Arc::new(home.at(now))).await.unwrap()
}

/// One turn of a client that sends only the newest message.
async fn turn(chats: &Chats, conversation: &str, asked: &str, replied: &str) -> PreparedChatTurn {
    let prepared_turn =
        chats.prepare_turn(chat_request(conversation, vec![message("user", asked)])).await.unwrap();
    chats.record_exchange(&prepared_turn, &reply(replied)).await.unwrap();
    prepared_turn
}

/// Enough words that an exchange is not short.
fn long(text: &str) -> String {
    format!("{text}. {}", "It went on with many more words of no great weight. ".repeat(5))
}

// C1, C2, C3, C5, C6, C10
#[test]
fn a_conversation_is_remembered_turn_by_turn() {
    let home = hasty();
    run(async {
        let chats = chats(&home, NOON).await;
        let llm = Summarizer::new(|ask: &ModelRequest, _| {
            let said = user_said(ask);
            Some(match said.split(':').next().unwrap_or_default() {
                "one" => answer(
                    "asked one",
                    &["Python version: 3.12", "Never deploy on Fridays"],
                    &[],
                    &[],
                ),
                "two" => answer(
                    "asked two",
                    &["The zebra is called Zebulon of Nowhere"],
                    &["Python version: 3.13"],
                    &[],
                ),
                _ => answer("asked something", &[], &[], &[]),
            })
        });
        let first = turn(
            &chats,
            "app",
            &long("one: we use Python version 3.12. Never deploy on Fridays."),
            "fine",
        )
        .await;
        assert_eq!((first.turn, first.memory, first.window.len()), (1, None, 0));
        let done = chats.reflect("app", Some(&asking(&llm)), false).await.unwrap();
        assert_eq!((done.summarized.as_slice(), done.changes), (&[1][..], 2));
        let second = turn(&chats, "app", &long("two: Python version is 3.13 now"), "fine").await;
        let told = second.memory.unwrap();
        let (rules, facts) = (
            told.find("- Never deploy on Fridays").unwrap(),
            told.find("- Python version: 3.12").unwrap(),
        );
        assert!(rules < facts && told.starts_with("<!-- icecore:begin chat"), "{told}");
        assert_eq!(
            second.window.len(),
            2,
            "the first turn stands word for word, because the client did not send it"
        );
        let done = chats.reflect("app", Some(&asking(&llm)), false).await.unwrap();
        assert_eq!(done.changes, 1);
        assert!(done.notes.iter().any(|note| note.contains("Zebulon")), "{:?}", done.notes);
        let facts: Vec<String> =
            chats.facts("app", None).await.unwrap().into_iter().map(|fact| fact.text).collect();
        assert_eq!(facts, ["Never deploy on Fridays", "Python version: 3.13"]);
        assert_eq!(chats.facts("app", Some(1)).await.unwrap()[1].text, "Python version: 3.12");
        let changes = chats.compare_facts("app", 1, 2).await.unwrap();
        assert_eq!(
            changes.changed,
            [("Python version: 3.12".to_owned(), "Python version: 3.13".to_owned())]
        );
        for n in 3..=12 {
            turn(&chats, "app", &format!("number {n}"), &format!("answer {n}")).await;
            chats.reflect("app", Some(&asking(&llm)), false).await.unwrap();
        }
        let last = chats
            .prepare_turn(chat_request("app", vec![message("user", "and now?")]))
            .await
            .unwrap();
        assert_eq!((last.turn, last.window.len()), (13, 12));
        assert_eq!(last.window[0], ("user", "number 7".to_owned()));
        let told = last.memory.unwrap();
        assert!(
            told.contains("Turn 6: User: asked something | You: said fine")
                && !told.contains("Turn 7:"),
            "{told}"
        );
        assert_eq!(last.cost_tokens, 12 * 110);
        let snapshots: Vec<(String, String)> = home
            .files()
            .into_iter()
            .filter(|(path, _)| path.contains("/snapshots/turn-"))
            .collect();
        assert!(
            snapshots.len() == 1
                && snapshots[0].0.ends_with("turn-00010.json")
                && snapshots[0].1.contains("Python version: 3.13")
        );
    });
}

// C8
#[test]
fn a_summarizer_that_fails_loses_nothing_and_is_asked_again() {
    let home = TestVault::new();
    home.write("icecore.toml", "zone = \"Europe/Berlin\"\n[chat]\nsummarizer_timeout_secs = 1\n");
    run(async {
        let chats = chats(&home, NOON).await;
        let broken = Summarizer::new(|_: &ModelRequest, _| Some("I would rather not.".into()));
        turn(&chats, "a", &long("one thing must be said"), "said").await;
        let done = chats.reflect("a", Some(&asking(&broken)), false).await.unwrap();
        assert_eq!(
            (done.raw.len(), broken.asked.load(Ordering::SeqCst)),
            (1, 2),
            "asked once more, then the raw words stand in"
        );
        let line = chats.turns("a").await.unwrap().remove(0);
        assert_eq!(line.state, TurnState::Raw);
        assert!(
            line.user_summary.starts_with("one thing must be said")
                && line.why.unwrap().contains("could not be read")
        );
        // Well-formed nonsense is not a summary either.
        let nonsense = Summarizer::new(|_: &ModelRequest, _| {
            Some(answer("1b1052ef", &["1b1052ef"], &[], &[]).replace("said fine", "0x00"))
        });
        assert_eq!(chats.reflect("a", Some(&asking(&nonsense)), true).await.unwrap().raw.len(), 1);
        let silent = Summarizer::new(|_: &ModelRequest, _| None);
        turn(&chats, "b", &long("another thing"), "said").await;
        let done = chats.reflect("b", Some(&asking(&silent)), false).await.unwrap();
        assert!(done.raw[0].1.contains("longer than 1 s"), "{done:?}");
        // Not at once, but later in the background, or on request.
        let well =
            Summarizer::new(|_: &ModelRequest, _| Some(answer("asked for a thing", &[], &[], &[])));
        assert_eq!(
            chats.reflect("b", Some(&asking(&well)), false).await.unwrap().summarized.len(),
            0
        );
        assert_eq!(chats.pending_conversations(7, true).await.unwrap(), ["a", "b"]);
        let later = self::chats(&home, LATER).await;
        assert_eq!(later.reflect("b", Some(&asking(&well)), false).await.unwrap().summarized, [1]);
        assert_eq!(chats.reflect("a", Some(&asking(&well)), true).await.unwrap().summarized, [1]);
        assert!(later.pending_conversations(7, true).await.unwrap().is_empty());
    });
}

// C8
#[test]
fn settled_turns_are_checked_again_after_another_process_wrote() {
    let home = hasty();
    run(async {
        let (ours, theirs) = (chats(&home, NOON).await, chats(&home, LATER).await);
        let names: Vec<String> = (0..12).map(|n| format!("app-{n:02}")).collect();
        for name in &names {
            turn(&ours, name, &long("a thing"), "said").await;
        }
        assert_eq!(ours.pending_conversations(REFLECTION_DAYS, false).await.unwrap(), names);
        for name in &names[1..] {
            ours.reflect(name, None, false).await.unwrap();
        }
        assert_eq!(ours.pending_conversations(REFLECTION_DAYS, false).await.unwrap(), names[..1]);
        // A turn that is settled without a model is not settled with one, and neither is one that
        // another process changed.
        assert_eq!(ours.pending_conversations(REFLECTION_DAYS, true).await.unwrap(), names);
        assert_eq!(theirs.pending_conversations(REFLECTION_DAYS, false).await.unwrap(), names[..1]);
        turn(&theirs, &names[3], &long("another thing"), "said").await;
        assert_eq!(
            ours.pending_conversations(REFLECTION_DAYS, false).await.unwrap(),
            [&*names[0], &names[3]]
        );
        for name in [&names[0], &names[3]] {
            ours.reflect(name, None, false).await.unwrap();
        }
        assert!(ours.pending_conversations(REFLECTION_DAYS, false).await.unwrap().is_empty());
        assert!(theirs.pending_conversations(REFLECTION_DAYS, false).await.unwrap().is_empty());
    });
}

// C8
#[test]
fn what_was_kept_before_a_crash_is_remembered_after_it() {
    let home = hasty();
    run(async {
        let before = chats(&home, NOON).await;
        turn(&before, "app", &long("we must never use tabs"), "noted").await;
        drop(before);
        let after = chats(&home, LATER).await;
        assert_eq!(after.pending_conversations(7, true).await.unwrap(), ["app"]);
        let prepared_turn =
            after.prepare_turn(chat_request("app", vec![message("user", "go on")])).await.unwrap();
        assert_eq!(
            (prepared_turn.turn, prepared_turn.window.len()),
            (2, 2),
            "the raw words are there"
        );
        // Without a model, rules extract marked facts; with one the exchange is summarized.
        assert_eq!(after.reflect("app", None, false).await.unwrap().raw.len(), 1);
        assert_eq!(after.facts("app", None).await.unwrap().len(), 1);
        assert!(
            after.pending_conversations(7, false).await.unwrap().is_empty()
                && !after.pending_conversations(7, true).await.unwrap().is_empty()
        );
        assert!(after.facts("app", None).await.unwrap()[0].hard);
        let llm = Summarizer::new(|_: &ModelRequest, _| {
            Some(answer("asked never to use tabs", &["Must never use tabs"], &[], &[]))
        });
        assert_eq!(after.reflect("app", Some(&asking(&llm)), false).await.unwrap().summarized, [1]);
        assert_eq!(after.facts("app", None).await.unwrap().len(), 1, "said twice, known once");
    });
}

// C8
#[test]
fn the_next_turn_waits_for_the_last_one_but_not_for_ever() {
    let home = TestVault::new();
    home.write(
        "icecore.toml",
        "zone = \"Europe/Berlin\"\n[chat]\nmax_wait_for_last_turn_ms = 400\n",
    );
    run(async {
        let chats = Arc::new(chats(&home, NOON).await);
        turn(&chats, "app", "one", "1").await;
        let clock = std::time::Instant::now();
        chats.prepare_turn(chat_request("app", vec![message("user", "two")])).await.unwrap();
        assert!(
            clock.elapsed() >= Duration::from_millis(390),
            "nobody remembers, so it waits as long as it may"
        );
        let remembering = {
            let chats = chats.clone();
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(50)).await;
                chats.reflect("app", None, false).await.unwrap();
            })
        };
        let clock = std::time::Instant::now();
        chats.prepare_turn(chat_request("app", vec![message("user", "two")])).await.unwrap();
        assert!(clock.elapsed() < Duration::from_millis(390), "{:?}", clock.elapsed());
        remembering.await.unwrap();
    });
}

// C1, C3
#[test]
fn clients_that_send_their_history_are_understood() {
    let home = hasty();
    run(async {
        let chats = chats(&home, NOON).await;
        let mut history = vec![message("system", "be kind"), message("user", "hi")];
        let prepared_turn = chats
            .prepare_turn(ChatRequest { messages: history.clone(), ..ChatRequest::default() })
            .await
            .unwrap();
        chats.record_exchange(&prepared_turn, &reply("hello")).await.unwrap();
        let name = prepared_turn.conversation;
        assert!(name.starts_with("chat-"), "{name}");
        // The same first words from another speaker begin another conversation.
        let other = chats
            .prepare_turn(ChatRequest { messages: history.clone(), ..ChatRequest::default() })
            .await
            .unwrap();
        assert_ne!(other.conversation, name);
        history.extend([message("assistant", "hello"), message("user", "weather?")]);
        let prepared_turn = chats
            .prepare_turn(ChatRequest { messages: history.clone(), ..ChatRequest::default() })
            .await
            .unwrap();
        assert_eq!(
            (
                prepared_turn.conversation.as_str(),
                prepared_turn.turn,
                prepared_turn.new_from,
                prepared_turn.window.len()
            ),
            (name.as_str(), 2, 3, 0)
        );
        chats
            .record_exchange(
                &prepared_turn,
                &ChatReply { parts: Some("[{\"id\":\"call_1\"}]".into()), ..reply("") },
            )
            .await
            .unwrap();
        // The tool loop continues in the same turn; a repeated request replaces the reply.
        history.extend([with_tools("assistant", ""), with_tools("tool", "12 degrees")]);
        for words in ["It is 12 degrees.", "Twelve degrees."] {
            let prepared_turn = chats
                .prepare_turn(ChatRequest { messages: history.clone(), ..ChatRequest::default() })
                .await
                .unwrap();
            assert_eq!((prepared_turn.turn, prepared_turn.new_from), (2, 3));
            chats.record_exchange(&prepared_turn, &reply(words)).await.unwrap();
        }
        let said = chats.turn_records(&name, 2).await.unwrap();
        let texts: Vec<&str> = said.iter().map(|record| record.text.as_str()).collect();
        assert_eq!(texts, ["weather?", "", "12 degrees", "Twelve degrees."]);
        history.extend([message("assistant", "Twelve degrees."), message("user", "thanks")]);
        let replaced = chats
            .prepare_turn(ChatRequest {
                mode: Some(ChatMode::Replace),
                messages: history,
                ..ChatRequest::default()
            })
            .await
            .unwrap();
        let told: Vec<&str> = replaced.window.iter().map(|(_, text)| text.as_str()).collect();
        assert_eq!((replaced.turn, told), (3, vec!["hi", "hello", "weather?", "Twelve degrees."]));
    });
}

// C11
#[test]
fn a_version_of_an_earlier_turn_is_quoted_in_full() {
    let home = hasty();
    run(async {
        let chats = chats(&home, NOON).await;
        let code = |body: &str| {
            format!("Here it is:\n\n```python\n# sort.py\ndef quicksort(items):\n    {body}\n```\n")
        };
        for body in ["return sorted(items)  # first", "items.sort()  # second"] {
            turn(&chats, "app", "write a quicksort in python", &code(body)).await;
            chats.reflect("app", None, false).await.unwrap();
        }
        let kept = chats.artifacts("app").await.unwrap();
        assert_eq!(
            kept.iter()
                .map(|kept| (kept.name.as_str(), kept.version, kept.turn))
                .collect::<Vec<_>>(),
            [("sort.py", 1, 1), ("sort.py", 2, 2)]
        );
        let prepared_turn = chats
            .prepare_turn(chat_request(
                "app",
                vec![message("user", "go back to the version from turn 1 of sort.py")],
            ))
            .await
            .unwrap();
        let told = prepared_turn.memory.unwrap();
        assert!(
            told.contains("return sorted(items)  # first")
                && told.contains("sort.py (3 lines): v1 of turn 1, v2 of turn 2"),
            "{told}"
        );
        let (_, text) = chats.artifact("app", "sort.py@turn-1").await.unwrap();
        assert_eq!(text, "# sort.py\ndef quicksort(items):\n    return sorted(items)  # first\n");
        assert!(chats.artifact("app", "nothing.py").await.is_err());
    });
}

// C5, C14
#[test]
fn facts_are_lifted_to_everywhere_and_conversations_forgotten() {
    let home = hasty();
    run(async {
        let chats = chats(&home, NOON).await;
        let llm = Summarizer::new(|_: &ModelRequest, _| {
            Some(answer("asked for tea", &["Favourite drink: green tea"], &[], &[]))
        });
        turn(&chats, "a", &long("my favourite drink is green tea"), "noted").await;
        turn(&chats, "b", "hello", "hi").await;
        chats.reflect("a", Some(&asking(&llm)), false).await.unwrap();
        let fact = chats.facts("a", None).await.unwrap().remove(0);
        let other = chats
            .prepare_turn(chat_request("b", vec![message("user", "what do I drink?")]))
            .await
            .unwrap();
        assert!(
            other.memory.is_none_or(|told| !told.contains("green tea")),
            "one conversation's facts are its own"
        );
        let lifted = chats.promote("a", fact.id).await.unwrap();
        assert_eq!(chats.promote("a", fact.id).await.unwrap().id, lifted.id, "lifted once");
        let other = chats
            .prepare_turn(chat_request("b", vec![message("user", "what do I drink?")]))
            .await
            .unwrap();
        assert!(other.memory.unwrap().contains("- Favourite drink: green tea"));
        let export: Value = chats.export("a").await.unwrap();
        assert_eq!(export["messages"].as_array().unwrap().len(), 2);
        assert_eq!(chats.conversations().await.unwrap().len(), 2);
        let gone = chats.delete_conversation("a").await.unwrap();
        assert_eq!(gone.messages, 2);
        assert!(!home.files().iter().any(|(path, text)| path.starts_with("conversations/a-")
            || path.contains("messages") && text.contains("favourite")));
        assert!(chats.facts("a", None).await.is_err());
        assert_eq!(chats.conversations().await.unwrap().len(), 1);
    });
}

// C9, C10
#[test]
fn fewer_facts_stand_only_if_nothing_hard_is_lost() {
    let home = TestVault::new();
    home.write("icecore.toml", "zone = \"Europe/Berlin\"\n[chat]\nconsolidate_every_turns = 2\n");
    run(async {
        let chats = chats(&home, NOON).await;
        let added = [
            "Never share the budget",
            "Editor: Helix",
            "City: Oslo",
            "Language: Rust",
            "Database: PostgreSQL",
            "Cat: Mia",
            "Dog: Rex",
            "Team: four people",
            "Office: third floor",
        ];
        let llm = Summarizer::new(move |ask: &ModelRequest, _| {
            if ask.schema.as_ref().is_some_and(|schema| schema.name == "facts") {
                // The summarizer dropped the rule, which is refused.
                return Some(json!({ "facts": added[1..] }).to_string());
            }
            Some(answer("told many facts", &added, &[], &[]))
        });
        let text = long(&added.join(". "));
        for _ in 0..2 {
            turn(&chats, "app", &text, "noted").await;
            let done = chats.reflect("app", Some(&asking(&llm)), false).await.unwrap();
            assert!(!done.consolidated);
        }
        let facts = chats.facts("app", None).await.unwrap();
        assert_eq!((facts.len(), facts[0].text.as_str()), (9, "Never share the budget"));
    });
}

/// A turn is stopped before each of its writes: what was acknowledged is stored, and the rest is
/// completed later.
// C8
#[test]
fn a_turn_that_is_cut_short_anywhere_is_finished_later() {
    let mut acknowledged = 0;
    for writes in 0..12 {
        let home = TestVault::new();
        run(async {
            let memory: Memory = home.stopping(writes);
            let chats = Chats::open(Arc::new(memory)).await.unwrap();
            let text = long(
                "We must never use tabs.\n```python\nx = 1\ny = 2\nprint(x + y, 'and something more')\n```\nSee",
            );
            let prepared_turn = chats
                .prepare_turn(chat_request("app", vec![message("user", &text)]))
                .await
                .unwrap();
            let kept = chats.record_exchange(&prepared_turn, &reply("noted")).await.is_ok();
            let _ = chats.reflect("app", None, false).await;
            let after = self::chats(&home, LATER).await;
            if kept {
                acknowledged += 1;
                assert_eq!(
                    after.turn_records("app", 1).await.unwrap().len(),
                    2,
                    "stopped before write {writes}"
                );
                after.reflect("app", None, true).await.unwrap();
                assert_eq!(
                    after.turns("app").await.unwrap().len(),
                    1,
                    "stopped before write {writes}"
                );
                assert_eq!(
                    after.facts("app", None).await.unwrap().len(),
                    1,
                    "stopped before write {writes}"
                );
                assert_eq!(
                    after.artifacts("app").await.unwrap().len(),
                    1,
                    "stopped before write {writes}"
                );
            }
        });
    }
    assert!((1..12).contains(&acknowledged), "{acknowledged}");
}

fn words(records: &[icecore_domain::record::Record]) -> Vec<String> {
    records.iter().map(|record| record.text.clone()).collect()
}

/// A process that has not seen another one's writes.
async fn unseen(home: &TestVault, exchange: &str, turn: u64, asked: &str, replied: &str) {
    let said = |at: usize, role, text: &str| IncomingMessage {
        conversation: Some("app".into()),
        id: Some(format!("{exchange}.{at}")),
        role: Some(role),
        text: text.into(),
        extra: vec![("turn".into(), turn.to_string())],
        ..IncomingMessage::default()
    };
    let both = vec![said(0, Role::User, asked), said(1, Role::Assistant, replied)];
    home.at(NOON).add_messages(both, &CaptureDefaults::default()).await.unwrap();
}

// C1, C8
#[test]
fn two_processes_in_one_conversation_lose_no_words() {
    let home = hasty();
    run(async {
        let (a, b) = (chats(&home, NOON).await, chats(&home, NOON).await);
        let mut all = Vec::new();
        for at in 0..4 {
            for (who, chats) in [("a", &a), ("b", &b)] {
                let (asked, replied) = (format!("{who} asks {at}"), format!("{who} hears {at}"));
                let prepared_turn = turn(chats, "app", &asked, &replied).await;
                all.extend([asked, replied]);
                assert_eq!(
                    prepared_turn.turn,
                    all.len() as u64 / 2,
                    "each sees what the other has kept"
                );
            }
        }
        // Concurrently, with different and with equal text.
        for asked in [["one", "two"], ["go on", "go on"]] {
            let prepared_turn = [
                a.prepare_turn(chat_request("app", vec![message("user", asked[0])])).await.unwrap(),
                b.prepare_turn(chat_request("app", vec![message("user", asked[1])])).await.unwrap(),
            ];
            for ((chats, prepared_turn), asked) in
                [&a, &b].into_iter().zip(&prepared_turn).zip(asked)
            {
                let replied = format!("{asked}, then {}", all.len());
                chats.record_exchange(prepared_turn, &reply(&replied)).await.unwrap();
                all.extend([asked.to_owned(), replied]);
            }
        }
        let third = chats(&home, LATER).await;
        let exported = third.export("app").await.unwrap();
        let kept: Vec<&str> = exported["messages"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|one| one["text"].as_str())
            .collect();
        assert_eq!(kept, all);
        let window = |prepared_turn: PreparedChatTurn| {
            prepared_turn.window.into_iter().map(|(_, text)| text).collect::<Vec<_>>()
        };
        let now = || chat_request("app", vec![message("user", "and now?")]);
        for chats in [&a, &b, &third] {
            assert_eq!(
                window(chats.prepare_turn(now()).await.unwrap()),
                all[all.len() - 12..],
                "the last six, whoever said them"
            );
        }
    });
}

// C1, C8
#[test]
fn two_exchanges_with_one_number_are_both_shown_and_summarized() {
    let home = hasty();
    run(async {
        let chats = chats(&home, NOON).await;
        turn(&chats, "app", "hello", "hi").await;
        unseen(&home, "turn-2-aaaaaaaa", 2, "Never use tabs.", "noted").await;
        chats.reflect("app", None, false).await.unwrap();
        unseen(&home, "turn-2-bbbbbbbb", 2, "We must always use UTC.", "noted too").await;
        assert_eq!(chats.pending_conversations(7, false).await.unwrap(), ["app"]);
        let prepared_turn =
            chats.prepare_turn(chat_request("app", vec![message("user", "go on")])).await.unwrap();
        let told: Vec<&str> = prepared_turn.window.iter().map(|(_, text)| text.as_str()).collect();
        assert_eq!(
            (prepared_turn.turn, told),
            (
                3,
                vec![
                    "hello",
                    "hi",
                    "Never use tabs.",
                    "noted",
                    "We must always use UTC.",
                    "noted too"
                ]
            )
        );
        assert_eq!(chats.turn_records("app", 2).await.unwrap().len(), 4);
        chats.reflect("app", None, false).await.unwrap();
        let facts: Vec<String> =
            chats.facts("app", None).await.unwrap().into_iter().map(|fact| fact.text).collect();
        assert!(facts.len() == 2 && facts.iter().any(|fact| fact.contains("UTC")), "{facts:?}");
        assert!(chats.pending_conversations(7, false).await.unwrap().is_empty());
    });
}

// C1, C7
#[test]
fn no_turn_vanishes_between_the_window_and_the_log() {
    let home = hasty();
    run(async {
        let chats = chats(&home, NOON).await;
        for n in 1..=12 {
            // The long reply is repeated in full a little longer; the next turn, with only one
            // side, is not.
            let replied = if n == 5 { "word ".repeat(300) } else { format!("answer {n}") };
            turn(&chats, "app", &format!("number {n}"), if n == 6 { "" } else { &replied }).await;
            if n < 12 {
                chats.reflect("app", None, false).await.unwrap();
            }
        }
        let prepared_turn = chats
            .prepare_turn(chat_request("app", vec![message("user", "and now?")]))
            .await
            .unwrap();
        let told = prepared_turn.memory.unwrap();
        for n in 1..=12 {
            let in_log = told.contains(&format!("Turn {n}:"));
            let in_window =
                prepared_turn.window.iter().any(|(_, text)| *text == format!("number {n}"));
            assert!(
                in_log != in_window,
                "turn {n} stands in the log ({in_log}) or in the window ({in_window})\n{told}"
            );
        }
        assert!(
            told.contains("Turn 6:")
                && prepared_turn.window.iter().any(|(_, text)| text == "number 5"),
            "{told}"
        );
    });
}

// C3
#[test]
fn conversations_without_a_name_that_begin_alike_are_kept_apart() {
    let home = hasty();
    run(async {
        let chats = chats(&home, NOON).await;
        let unnamed = |messages: &[ChatMessage]| ChatRequest {
            messages: messages.to_vec(),
            ..ChatRequest::default()
        };
        let hi = message("user", "hi");
        // Both begin before either has a reply.
        let prepared_turn = [
            chats.prepare_turn(unnamed(std::slice::from_ref(&hi))).await.unwrap(),
            chats.prepare_turn(unnamed(std::slice::from_ref(&hi))).await.unwrap(),
        ];
        assert_ne!(prepared_turn[0].conversation, prepared_turn[1].conversation);
        for (at, prepared_turn) in prepared_turn.iter().enumerate() {
            chats.record_exchange(prepared_turn, &reply(&format!("hello {at}"))).await.unwrap();
        }
        for (at, first) in prepared_turn.iter().enumerate() {
            let history = [
                hi.clone(),
                message("assistant", &format!("hello {at}")),
                message("user", "go on"),
            ];
            let prepared_turn = chats.prepare_turn(unnamed(&history)).await.unwrap();
            assert_eq!((&prepared_turn.conversation, prepared_turn.turn), (&first.conversation, 2));
        }
        // A conversation that began elsewhere continues as one conversation.
        let mut history = vec![
            message("user", "elsewhere"),
            message("assistant", "yes?"),
            message("user", "one"),
        ];
        let first = chats.prepare_turn(unnamed(&history)).await.unwrap();
        chats.record_exchange(&first, &reply("1")).await.unwrap();
        history.extend([message("assistant", "1"), message("user", "two")]);
        let second = chats.prepare_turn(unnamed(&history)).await.unwrap();
        assert_eq!((&second.conversation, second.turn), (&first.conversation, 2));
        // So does one whose first reply is a tool call.
        let mut history = vec![message("user", "weather?")];
        let first = chats.prepare_turn(unnamed(&history)).await.unwrap();
        chats
            .record_exchange(
                &first,
                &ChatReply { parts: Some("[{\"id\":\"call_1\"}]".into()), ..reply("") },
            )
            .await
            .unwrap();
        history.extend([with_tools("assistant", ""), with_tools("tool", "12 degrees")]);
        let second = chats.prepare_turn(unnamed(&history)).await.unwrap();
        assert_eq!((&second.conversation, second.turn), (&first.conversation, 1));
        // A deleted conversation is not found again.
        chats.delete_conversation(&first.conversation).await.unwrap();
        assert_ne!(
            chats.prepare_turn(unnamed(&history)).await.unwrap().conversation,
            first.conversation
        );
    });
}

// C8
#[test]
fn what_is_too_long_is_kept_and_says_what_is_missing() {
    let home = hasty();
    run(async {
        let chats = chats(&home, NOON).await;
        let text = "0123456789".repeat(500_000);
        let raw = json!({ "role": "tool", "tool_call_id": "call_1", "content": text }).to_string();
        let tool = ChatMessage {
            role: "tool".into(),
            name: None,
            text: text.clone(),
            raw,
            has_tools: true,
        };
        let prepared_turn = chats
            .prepare_turn(chat_request(
                "app",
                vec![message("user", "look"), with_tools("assistant", ""), tool],
            ))
            .await
            .unwrap();
        let cut = chats.record_exchange(&prepared_turn, &reply("a lot")).await.unwrap();
        assert_eq!(cut.len(), 2, "{cut:?}");
        let said = chats.turn_records("app", 1).await.unwrap();
        assert_eq!(said.len(), 4);
        let number = |name: &str| {
            said[2]
                .extra
                .iter()
                .find(|(field, _)| field == name)
                .map(|(_, raw)| raw.parse::<usize>().unwrap())
        };
        assert_eq!(number("cut_from_bytes"), Some(5_000_000));
        assert!(number("parts_cut_from_bytes").unwrap() > 5_000_000);
        let parts: Value = serde_json::from_str(said[2].parts.as_deref().unwrap()).unwrap();
        assert_eq!(parts["tool_call_id"], "call_1");
        assert!(parts["content"].as_str().unwrap().ends_with("more bytes left out]"));
        assert!(said.iter().all(|record| record.to_line().len() < 4 << 20));
        // A repetition changes nothing.
        assert_eq!(
            home.files().iter().filter(|(path, _)| path.starts_with("memory/messages/")).count(),
            1
        );
        let before = home.files();
        chats.record_exchange(&prepared_turn, &reply("a lot")).await.unwrap();
        assert_eq!(before, home.files());
    });
}

// C8
#[test]
fn a_complaint_about_one_exchange_is_its_own() {
    let home = hasty();
    run(async {
        let memory = home.at(NOON);
        let said = |text: String| {
            vec![IncomingMessage {
                conversation: Some("app".into()),
                text,
                ..IncomingMessage::default()
            }]
        };
        let taken = memory
            .add_exchanges(
                vec![said("one".into()), said("x".repeat(3 << 20)), said("two".into())],
                LEASE_DURATION,
            )
            .await
            .unwrap();
        let complaints: Vec<usize> = taken.iter().map(|taken| taken.complaints.len()).collect();
        assert_eq!(complaints, [0, 1, 0]);
        assert_eq!(words(&memory.store().recent_records("app", 9).await.unwrap()), ["one", "two"]);
    });
}

// C1
#[test]
fn turns_at_the_same_time_have_numbers_of_their_own() {
    let home = hasty();
    run(async {
        let chats = chats(&home, NOON).await;
        let begin = async |asked: &str| {
            chats.prepare_turn(chat_request("app", vec![message("user", asked)])).await.unwrap()
        };
        let (one, two, three) = (begin("one").await, begin("two").await, begin("three").await);
        assert_eq!([one.turn, two.turn, three.turn], [1, 2, 3]);
        // In any order, each is stored under the number it was given; a failed one leaves no number
        // behind, and ending twice equals ending once.
        chats.record_exchange(&two, &reply("2")).await.unwrap();
        for _ in 0..2 {
            chats.record_exchange(&one, &reply("1")).await.unwrap();
        }
        assert_eq!(words(&chats.turn_records("app", 1).await.unwrap()), ["one", "1"]);
        assert_eq!(words(&chats.turn_records("app", 2).await.unwrap()), ["two", "2"]);
        let four = begin("four").await;
        assert_eq!(four.turn, 4);
        drop(three);
        chats.record_exchange(&four, &reply("4")).await.unwrap();
        assert_eq!(words(&chats.turn_records("app", 3).await.unwrap()), ["four", "4"]);
        // One that fails after a later one ended is not looked for again.
        let (lost, five) = (begin("lost").await, begin("five").await);
        chats.record_exchange(&five, &reply("5")).await.unwrap();
        drop(lost);
        chats.reflect("app", None, false).await.unwrap();
        assert!(chats.pending_conversations(7, false).await.unwrap().is_empty());
        let prepared_turn = begin("and now?").await;
        assert_eq!((five.turn, prepared_turn.turn, prepared_turn.window.len()), (5, 6, 8));
        assert!(prepared_turn.memory.is_none_or(|told| !told.contains("Turn 4")));
    });
}

// C14
#[test]
fn a_list_of_conversations_counts_their_turns() {
    let home = hasty();
    run(async {
        let chats = chats(&home, NOON).await;
        for n in 1..=3 {
            turn(&chats, "app", &format!("We must never do thing {n}."), "noted").await;
        }
        home.at(NOON)
            .add_messages(
                vec![IncomingMessage {
                    conversation: Some("notes".into()),
                    text: "x".into(),
                    ..IncomingMessage::default()
                }],
                &CaptureDefaults::default(),
            )
            .await
            .unwrap();
        let listed = async || -> Vec<(String, u64, u64, usize, usize)> {
            let one = |one: icecore_engine::converse::ConversationInfo| {
                (one.conversation, one.messages, one.turns, one.unsummarized, one.facts)
            };
            let mut all: Vec<_> =
                chats.conversations().await.unwrap().into_iter().map(one).collect();
            all.sort();
            all
        };
        assert_eq!(listed().await, [("app".into(), 6, 3, 3, 0), ("notes".into(), 1, 0, 0, 0)]);
        let llm = Summarizer::new(|_: &ModelRequest, _| {
            Some(answer("asked never to do a thing", &[], &[], &[]))
        });
        chats.reflect("app", Some(&asking(&llm)), false).await.unwrap();
        assert_eq!(listed().await[0].3, 0);
    });
}

// C8
#[test]
fn a_front_ends_own_request_asks_no_summarizer() {
    let home = hasty();
    run(async {
        let chats = chats(&home, NOON).await;
        let llm = Summarizer::new(|_: &ModelRequest, _| {
            Some(answer("asked for a garden", &[], &[], &[]))
        });
        let title = format!(
            "### Task:\nGenerate a title. {}\n### Chat History:\n<chat_history></chat_history>",
            long("Never use roses")
        );
        turn(&chats, "garden", &title, "Garden").await;
        chats.reflect("garden", Some(&asking(&llm)), false).await.unwrap();
        let lines = chats.turns("garden").await.unwrap();
        assert!(
            llm.asked.load(Ordering::SeqCst) == 0 && lines.len() == 1 && lines[0].is_empty(),
            "{lines:?}"
        );
        assert!(chats.facts("garden", None).await.unwrap().is_empty());
        // Nor is it requested later.
        chats.reflect("garden", Some(&asking(&llm)), true).await.unwrap();
        assert_eq!(llm.asked.load(Ordering::SeqCst), 0);
    });
}

// C5, C8
#[test]
fn another_person_in_a_chat_makes_no_rule_of_the_owners() {
    let rule = "Never deploy on Fridays.";
    for (owner, history, other) in [
        ("", &[("Anna", "hi all")][..], Some("Bob")),
        ("", &[], None),
        ("", &[("Bob", "hi all")], None),
        ("names = [\"Bob\"]", &[("Anna", "hi all")], None),
        ("names = [\"Anna\"]", &[], Some("Bob")),
    ] {
        let home = TestVault::new();
        home.write(
            "icecore.toml",
            &format!("zone = \"Europe/Berlin\"\n[chat]\nmax_wait_for_last_turn_ms = 20\n[person]\n{owner}\n"),
        );
        run(async {
            let chats = chats(&home, NOON).await;
            let named = |name: &str, text: &str| ChatMessage {
                name: Some(name.into()),
                ..message("user", text)
            };
            let mut sent = Vec::new();
            for (name, text) in history.iter().chain(&[("Bob", rule)]) {
                sent.push(named(name, text));
                let prepared_turn =
                    chats.prepare_turn(chat_request("group", sent.clone())).await.unwrap();
                chats.record_exchange(&prepared_turn, &reply("Understood.")).await.unwrap();
                sent.push(message("assistant", "Understood."));
            }
            let llm = Summarizer::new(|ask: &ModelRequest, _| {
                let add: &[&str] =
                    if ask.user.contains("Fridays") { &["Never deploy on Fridays"] } else { &[] };
                Some(answer("asked", add, &[], &[]))
            });
            chats.reflect("group", Some(&asking(&llm)), false).await.unwrap();
            let facts = chats.facts("group", None).await.unwrap();
            assert_eq!(facts.is_empty(), other.is_some(), "{owner} {history:?}: {facts:?}");
            let last = history.len() as u64 + 1;
            let said = chats.turn_records("group", last).await.unwrap();
            assert_eq!(
                (said[0].name.as_deref(), said[0].other_speaker.as_deref()),
                (Some("Bob"), other),
                "{owner} {history:?}"
            );
            // The turn keeps its position in the history, also for a new process.
            let started = self::chats(&home, NOON).await;
            let prepared_turn = started
                .prepare_turn(chat_request(
                    "group",
                    [sent, vec![named("Bob", "and then?")]].concat(),
                ))
                .await
                .unwrap();
            started.record_exchange(&prepared_turn, &reply("Then rest.")).await.unwrap();
            assert!(
                home.files().iter().all(|(path, _)| !path.ends_with("branches.jsonl")),
                "{owner} {history:?}"
            );
        });
    }
}
