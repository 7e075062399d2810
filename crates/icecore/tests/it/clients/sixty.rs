//! A conversation of sixty turns in which facts change, told by official clients: at the end the
//! model is told exactly the facts that hold.
//!
//! The chat's model and the summarizer are scripted. The summarizer also invents, talks nonsense,
//! hangs, and would drop what must stay; the server is killed in the middle; and another
//! user chats at the same time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use super::{Answer, Client, Package, ReceivedRequest, Scripted, Server, TestHome, until};

const HARD: &str = "The berth must never be left without a guard at night.";
const INVENTED: &str = "Owner: Baron Kessel of Trieste";
const GALLEY: &str = "The galley smells of fresh varnish";
const DECK: &str = "The deck smells of tar";
const CATS: [&str; 2] = ["Ship cats: Misha", "Cat food: salmon"];
const CATS_MERGED: &str = "Ship cats: Misha, cat food: salmon";
/// The turn whose summary hangs names a captain that is replaced before the turn is summarized
/// again.
const LATE_CAPTAIN: &str = "Captain: Ghost Lindqvist";
const POLICY: &str = "summarizer_timeout_secs = 5\nmax_wait_for_last_turn_ms = 9000\n";

/// The facts that change, each with its successive values.
const TOPICS: [(&str, [&str; 5]); 12] = [
    ("Captain", ["Marta Olsen", "Jonas Berg", "Vera Lund", "Nils Aker", "Ida Strand"]),
    ("Home port", ["Bergen", "Oslo", "Malmö", "Tallinn", "Riga"]),
    ("Engine version", ["3.1", "3.2", "3.3", "3.4", "3.5"]),
    ("Crew size", ["11", "12", "13", "14", "15"]),
    ("Cargo", ["timber", "salt", "wool", "barley", "slate"]),
    ("Radio channel", ["12", "68", "71", "8", "6"]),
    ("Paint colour", ["blue", "green", "white", "black", "amber"]),
    ("Fuel supplier", ["Nordfuel", "Baltoil", "Petrix", "Havnegass", "Skagen Energy"]),
    ("Mast height", ["21 m", "22 m", "23 m", "24 m", "25 m"]),
    ("Next survey", ["2026-05-03", "2026-06-04", "2026-07-05", "2026-08-06", "2026-09-07"]),
    ("Insurance premium", ["500 EUR", "510 EUR", "520 EUR", "530 EUR", "540 EUR"]),
    ("Deck rota", ["two sailors", "three sailors", "four sailors", "five sailors", "six sailors"]),
];

/// A fact in the summarizer's wording; the same key is spelled differently each time.
fn fact(topic: usize, round: usize) -> String {
    let (key, values) = TOPICS[topic];
    let key = match round {
        0 => key.to_owned(),
        1 => format!("The {}", key.to_lowercase()),
        2 => key.to_uppercase(),
        3 => format!("Current {}", key.to_lowercase()),
        _ => key.to_lowercase().replace(' ', "_"),
    };
    format!("{key}: {}", values[round])
}

/// The prompt of a turn and what the summarizer answers.
#[derive(Debug, Clone, Default)]
struct Step {
    asked: String,
    add: Vec<String>,
    update: Vec<String>,
    remove: Vec<String>,
    /// The facts afterwards, by topic: another text, or none.
    becomes: Vec<(&'static str, Option<String>)>,
    trouble: Option<SummarizerFault>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SummarizerFault {
    Malformed,
    Hangs,
}

impl Step {
    fn says(facts: &[&str]) -> Self {
        let facts = facts.join(". ");
        let asked = format!(
            "{facts}. Please keep this in mind for everything that follows, because the harbour office asks for it again and again, and \
             we would like to give them the same answer each time they call us on the Seabird, whoever happens to be aboard on that day \
             and whatever the weather is like."
        );
        Self { asked, ..Self::default() }
    }

    fn adds(topic: &'static str, text: &str) -> Self {
        Self {
            add: vec![text.into()],
            becomes: vec![(topic, Some(text.into()))],
            ..Self::says(&[text])
        }
    }
}

/// Ann's prompts, turn by turn.
fn steps() -> Vec<Step> {
    let mut rounds = [0_usize; TOPICS.len()];
    let mut topics: Vec<usize> = (0..12).chain((0..11).cycle().take(36)).collect();
    topics.reverse();
    let mut next = |turn: usize| {
        let topic = topics.pop().unwrap();
        let (name, text) = (TOPICS[topic].0, fact(topic, rounds[topic]));
        let new = rounds[topic] == 0;
        rounds[topic] += 1;
        let mut step = Step { becomes: vec![(name, Some(text.clone()))], ..Step::says(&[&text]) };
        if new {
            step.add.push(text)
        } else {
            step.update.push(text)
        }
        if turn == 9 {
            step.add.push(INVENTED.into());
        }
        step
    };
    let mut steps = vec![Step::default()];
    for turn in 1..=60 {
        steps.push(match turn {
            1 => Step::adds("hard", HARD),
            14 => Step {
                trouble: Some(SummarizerFault::Malformed),
                ..Step::adds("Tug name", "Tug name: Hercules")
            },
            15 => Step::adds("galley", GALLEY),
            16 => Step::adds("cats", CATS[0]),
            17 => Step::adds("food", CATS[1]),
            // Too short for facts, and time to consolidate.
            18 => {
                let becomes =
                    vec![("galley", None), ("food", None), ("cats", Some(CATS_MERGED.into()))];
                Step { asked: "Thanks, Seabird out.".into(), becomes, ..Step::default() }
            }
            23 => Step {
                update: vec![LATE_CAPTAIN.into()],
                trouble: Some(SummarizerFault::Hangs),
                ..Step::says(&[LATE_CAPTAIN])
            },
            30 => Step {
                remove: vec!["deck rota".into()],
                becomes: vec![("Deck rota", None)],
                ..Step::says(&["The deck rota is given up"])
            },
            // A hard exception is removed only if it is named.
            33 => Step {
                remove: vec!["a guard at the berth".into(), "night".into()],
                ..Step::says(&["Somebody asked about the berth"])
            },
            36 => Step { asked: "Good morning, Seabird here.".into(), ..Step::default() },
            40 => Step::adds("Deck rota", "Deck rota: seven sailors"),
            50 => Step::adds("deck", DECK),
            54 => Step {
                asked: "Good evening, Seabird here.".into(),
                becomes: vec![("deck", None)],
                ..Step::default()
            },
            59 => Step::adds("Anchor chain", "Anchor chain: 90 m"),
            60 => Step { asked: "What do you know of the Seabird now?".into(), ..Step::default() },
            turn => next(turn),
        });
    }
    steps
}

/// Bea's prompts meanwhile.
fn bea(number: usize) -> Step {
    let text = format!("Oven temperature: {} degrees", 200 + number);
    let asked = format!(
        "{text}. Please write this down for the people of the Boulangerie, who bake with it from four in the morning on, and who would \
         rather read it from the board than ask me about it while I am still asleep and dreaming of bread, butter and jam."
    );
    let list = vec![text];
    if number == 1 {
        Step { asked, add: list, ..Step::default() }
    } else {
        Step { asked, update: list, ..Step::default() }
    }
}

/// What the scripted summarizer knows.
#[derive(Debug, Default)]
struct StoryState {
    turn: usize,
    mended: bool,
    consolidations: Vec<usize>,
}

fn summarize(request: &ReceivedRequest, steps: &[Step], plot: &Mutex<StoryState>) -> Answer {
    let body = request.json();
    let prompt = body["messages"].as_array().unwrap().last().unwrap()["content"]
        .as_str()
        .unwrap()
        .to_owned();
    let says = |value: Value| Answer::says(&body, &value.to_string());
    let mut plot = plot.lock().unwrap();
    if body["response_format"]["json_schema"]["name"] == "facts" {
        // The next turn may have begun already.
        let turn = plot.turn / 18 * 18;
        plot.consolidations.push(turn);
        let attempt = plot.consolidations.iter().filter(|of| **of == turn).count();
        let mut facts: Vec<String> =
            prompt.lines().filter_map(|line| line.strip_prefix("- ")).map(str::to_owned).collect();
        facts.retain(|fact| match (turn, attempt) {
            (18, _) => fact != GALLEY && !CATS.contains(&fact.as_str()),
            (36, _) => fact != HARD,
            (54, 2) => fact != DECK,
            _ => true,
        });
        match (turn, attempt) {
            (18, _) => facts.push(CATS_MERGED.into()),
            (54, 1) => facts[1] = INVENTED.into(),
            _ => {}
        }
        return says(json!({ "facts": facts }));
    }
    let bakery = (1..=15).map(bea).find(|step| prompt.contains(&step.asked));
    let step = bakery
        .or_else(|| steps.iter().skip(1).find(|step| prompt.contains(&step.asked)).cloned())
        .unwrap_or_default();
    match step.trouble.filter(|_| !plot.mended) {
        Some(SummarizerFault::Malformed) => {
            Answer::says(&body, "I would rather not say it in JSON today.")
        }
        Some(SummarizerFault::Hangs) => Answer::hangs(),
        None => {
            let diff = json!({ "add": step.add, "update": step.update, "remove": step.remove });
            says(
                json!({ "user_summary": "Told a fact.", "assistant_summary": "Took note.", "base_truth_diff": diff }),
            )
        }
    }
}

/// The facts at the ends of turns, by topic.
type CurrentFacts = BTreeMap<&'static str, String>;

fn truth(steps: &[Step], turn: usize, with_late: bool) -> CurrentFacts {
    let mut truth = CurrentFacts::new();
    for step in steps.iter().take(turn + 1).filter(|step| with_late || step.trouble.is_none()) {
        for (topic, text) in &step.becomes {
            match text {
                Some(text) => truth.insert(topic, text.clone()),
                None => truth.remove(topic),
            };
        }
    }
    truth
}

fn texts(truth: &CurrentFacts) -> BTreeSet<String> {
    truth.values().cloned().collect()
}

/// The rules and the facts of the block in a request.
fn block(request: &ReceivedRequest) -> (Vec<String>, Vec<String>) {
    let messages = request.messages();
    let block = messages
        .iter()
        .filter_map(|message| message["content"].as_str())
        .find(|text| text.contains("icecore:begin chat"));
    let (mut rules, mut facts, mut heading) = (Vec::new(), Vec::new(), "");
    for line in block.unwrap_or_default().lines() {
        match line.strip_prefix("- ") {
            Some(fact) if heading == "## Rules That Always Hold" => rules.push(fact.to_owned()),
            Some(fact) if heading == "## Established Facts and Constraints" => {
                facts.push(fact.to_owned())
            }
            _ if line.starts_with("## ") => {
                heading = if line.contains("Rules") { "## Rules That Always Hold" } else { line }
            }
            _ => {}
        }
    }
    (rules, facts)
}

/// The story with its server, models and clients.
struct Story {
    home: TestHome,
    server: Option<Server>,
    chat: Scripted,
    summarizer: Scripted,
    plot: Arc<Mutex<StoryState>>,
    steps: Vec<Step>,
    ann: Client,
    bea: Client,
}

impl Story {
    fn begin() -> Self {
        let (plot, steps) = (Arc::new(Mutex::new(StoryState::default())), steps());
        let chat = Scripted::start(|request| Answer::says(&request.json(), "Noted."));
        let (known, script) = (plot.clone(), steps.clone());
        let summarizer = Scripted::start(move |request| summarize(request, &script, &known));
        let home = TestHome::new(POLICY)
            .with_model("chat", "openai", &chat.base(), "m")
            .with_model("summarizer", "openai", &summarizer.base(), "s");
        let (ann, bea) = (Client::start(Package::OpenAiPython), Client::start(Package::OpenAiNpm));
        Self { server: Some(Server::start(&home)), home, chat, summarizer, plot, steps, ann, bea }
    }

    fn kill(&mut self) {
        drop(self.server.take());
        self.server = Some(Server::start(&self.home));
    }

    fn ann_says(&mut self, turn: usize) {
        self.plot.lock().unwrap().turn = turn;
        let body = json!({ "model": "m", "user": "ann", "messages": [{ "role": "user", "content": self.steps[turn].asked }] });
        let told = json!({ "headers": { "X-Icecore-Conversation": "log" }, "body": body });
        // Alternating between whole replies and streams.
        let scenario = if turn.is_multiple_of(2) { "chat" } else { "chunks" };
        let seen = self.ann.gets(self.server.as_ref().unwrap(), scenario, &told);
        assert_eq!(seen["headers"]["x-icecore-turn"], json!(turn.to_string()), "{seen}");
    }

    fn bea_says(&mut self, number: usize) {
        let body =
            json!({ "model": "m", "messages": [{ "role": "user", "content": bea(number).asked }] });
        let told = json!({ "headers": { "X-Icecore-Conversation": "log", "X-Icecore-User": "bea" }, "body": body });
        let seen = self.bea.gets(self.server.as_ref().unwrap(), "chat", &told);
        assert_eq!(seen["headers"]["x-icecore-turn"], json!(number.to_string()), "{seen}");
    }

    /// A conversation as the command line prints it.
    fn conversation_json(&self, arguments: &[&str], user: &str) -> Value {
        self.home.json(&[&["conversation"], arguments, &["--user", user]].concat())
    }

    fn wait_until_settled(&self, turn: usize) {
        until(&format!("the summary of turn {turn}"), || {
            self.conversation_json(&["turns", "log"], "ann")["turns"]
                .as_array()
                .unwrap()
                .iter()
                .any(|line| line["turn"] == turn)
                .then_some(())
        });
    }

    fn unsummarized_turns(&self) -> (u64, Vec<u64>) {
        let list = self.conversation_json(&["list"], "ann");
        let log = list["conversations"]
            .as_array()
            .unwrap()
            .iter()
            .find(|one| one["conversation"] == "log")
            .unwrap()
            .clone();
        let raw = self.conversation_json(&["turns", "log", "--unsummarized"], "ann");
        let raw = raw["turns"]
            .as_array()
            .unwrap()
            .iter()
            .map(|line| line["turn"].as_u64().unwrap())
            .collect();
        (log["unsummarized"].as_u64().unwrap(), raw)
    }

    fn facts(&self) -> Vec<(String, bool)> {
        let facts = self.conversation_json(&["facts", "log"], "ann");
        facts["facts"]
            .as_array()
            .unwrap()
            .iter()
            .map(|fact| (fact["text"].as_str().unwrap().to_owned(), fact["hard"] == true))
            .collect()
    }
}

// C1 C4 C5 C8 C9 C10 C14
#[test]
fn after_sixty_turns_a_request_has_exactly_the_current_facts() {
    let mut story = Story::begin();
    // Spaces are created with a user's first message.
    for (user, client) in [("ann", &mut story.ann), ("bea", &mut story.bea)] {
        let body = json!({ "model": "m", "user": user, "messages": [{ "role": "user", "content": "hello" }] });
        client.gets(
            story.server.as_ref().unwrap(),
            "chat",
            &json!({ "headers": { "X-Icecore-Memory": "on" }, "body": body }),
        );
    }
    // A space begins with the policy of its parent.
    for space in std::fs::read_dir(story.home.vault().join("spaces")).unwrap().flatten() {
        assert!(
            std::fs::read_to_string(space.path().join("icecore.toml"))
                .unwrap()
                .contains(POLICY.trim())
        );
    }
    story.kill();

    for turn in 1..=58 {
        story.ann_says(turn);
        if turn % 4 == 0 {
            story.bea_says(turn / 4);
        }
        // Right after the reply, whatever the summarizer does: the turn was acknowledged and must
        // be stored.
        if turn == 27 || turn == 41 {
            story.kill();
            let said = story
                .conversation_json(&["show", "log", "--turn", &turn.to_string()], "ann")
                .to_string();
            assert!(
                said.contains(&fact_of(&story.steps[turn])) && said.contains("Noted."),
                "{turn}: {said}"
            );
            story.wait_until_settled(turn);
        }
    }
    story.wait_until_settled(58);

    // Two turns could not be summarized; they are counted, and their facts are missing.
    assert_eq!(story.unsummarized_turns(), (2, vec![14, 23]));
    let known: BTreeSet<String> = story.facts().into_iter().map(|(text, _)| text).collect();
    assert_eq!(known, texts(&truth(&story.steps, 58, false)));
    let refused =
        story.conversation_json(&["turns", "log"], "ann")["turns"][8]["refused"].to_string();
    assert!(refused.contains("Kessel"), "{refused}");
    assert_eq!(story.plot.lock().unwrap().consolidations, [18, 36, 36, 54, 54]);

    // The summarizer works again: nothing is pending, and replaced facts stay replaced.
    story.plot.lock().unwrap().mended = true;
    let retried = story.conversation_json(&["retry", "log"], "ann");
    assert_eq!(
        (&retried["summarized"], &retried["raw"]),
        (&json!([14, 23]), &json!([])),
        "{retried}"
    );
    assert_eq!(story.unsummarized_turns(), (0, vec![]));

    story.ann_says(59);
    story.ann_says(60);
    let last = story.chat.last();
    let expected = texts(&truth(&story.steps, 59, true));
    let (rules, facts) = block(&last);
    assert_eq!(rules, [HARD], "{last:?}");
    let told: BTreeSet<String> = rules.iter().chain(&facts).cloned().collect();
    assert_eq!(told, expected);
    assert_eq!(told.len(), rules.len() + facts.len(), "no fact is told twice: {facts:?}");

    story.wait_until_settled(60);
    let known = story.facts();
    assert_eq!(known.first(), Some(&(HARD.to_owned(), true)));
    assert_eq!(known.iter().map(|(text, _)| text.clone()).collect::<BTreeSet<_>>(), expected);
    compares(&story);
    nothing_is_lost(&story);
    nobody_hears_of_another(&story);
}

fn fact_of(step: &Step) -> String {
    step.add.iter().chain(&step.update).next().unwrap().clone()
}

/// What changed from turn 10 to turn 50.
fn compares(story: &Story) {
    let (old, new) = (truth(&story.steps, 10, true), truth(&story.steps, 50, true));
    let compared = story.conversation_json(&["diff", "log", "10", "50"], "ann");
    let set = |name: &str| -> BTreeSet<String> {
        compared[name]
            .as_array()
            .unwrap()
            .iter()
            .map(|text| text.as_str().unwrap().to_owned())
            .collect()
    };
    let without = |one: &CurrentFacts, other: &CurrentFacts| -> BTreeSet<String> {
        one.iter()
            .filter(|(topic, _)| !other.contains_key(*topic))
            .map(|(_, text)| text.clone())
            .collect()
    };
    assert_eq!(
        (set("added"), set("removed")),
        (without(&new, &old), without(&old, &new)),
        "{compared}"
    );
    let changed: BTreeSet<(String, String)> = compared["changed"]
        .as_array()
        .unwrap()
        .iter()
        .map(|pair| {
            (pair["old"].as_str().unwrap().to_owned(), pair["new"].as_str().unwrap().to_owned())
        })
        .collect();
    let expected = old.iter().filter_map(|(topic, text)| {
        Some((text.clone(), new.get(topic)?.clone())).filter(|(old, new)| old != new)
    });
    assert_eq!(changed, expected.collect(), "{compared}");
}

/// Every acknowledged message is stored verbatim.
fn nothing_is_lost(story: &Story) {
    let exported = story.conversation_json(&["export", "log"], "ann");
    let said: Vec<&str> = exported["messages"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|message| message["text"].as_str())
        .collect();
    for step in story.steps.iter().skip(1) {
        assert_eq!(
            said.iter().filter(|text| text.trim() == step.asked).count(),
            1,
            "{}",
            step.asked
        );
    }
    assert_eq!(said.len(), 120, "sixty times one said something and the other answered");
}

/// No text of one user is in a request of the other's, neither to the model nor to the summarizer.
fn nobody_hears_of_another(story: &Story) {
    let facts: BTreeSet<String> =
        story.steps.iter().flat_map(|step| step.add.iter().chain(&step.update)).cloned().collect();
    let (mut anns, mut beas) = (0, 0);
    for request in story.chat.all().into_iter().chain(story.summarizer.all()) {
        let body = String::from_utf8(request.body).unwrap();
        let (ann, bea) = (body.contains("Seabird"), body.contains("Boulangerie"));
        assert!(!(ann && bea), "{body}");
        anns += usize::from(ann);
        beas += usize::from(bea);
        assert!(!bea || !facts.iter().any(|fact| body.contains(fact.as_str())), "{body}");
        assert!(!ann || !body.contains("Oven"), "{body}");
    }
    assert!(anns >= 120 && beas >= 28, "{anns} {beas}");
    let last = story
        .chat
        .all()
        .into_iter()
        .rfind(|request| String::from_utf8_lossy(&request.body).contains("Boulangerie"))
        .unwrap();
    assert_eq!(
        block(&last).1,
        [bea(13).update[0].clone()],
        "bea's own fact is the one before the last thing she said"
    );
}

/// An answer is cached so that a crash does not cost twice; an unreadable one must not be used
/// again.
// C8
#[test]
fn a_summarizer_that_returned_nonsense_is_asked_again() {
    let mended = Arc::new(Mutex::new(false));
    let known = mended.clone();
    let chat = Scripted::start(|request| Answer::says(&request.json(), "Noted."));
    let summarizer = Scripted::start(move |request| {
        let answer = json!({ "user_summary": "Named the rule.", "assistant_summary": "Took note.", "base_truth_diff": { "add": [HARD] } });
        let text = if *known.lock().unwrap() {
            answer.to_string()
        } else {
            "Not in JSON, not today.".into()
        };
        Answer::says(&request.json(), &text)
    });
    let home = TestHome::new(POLICY).with_model("chat", "openai", &chat.base(), "m").with_model(
        "summarizer",
        "openai",
        &summarizer.base(),
        "s",
    );
    let (server, mut client) = (Server::start(&home), Client::start(Package::OpenAiPython));
    let body = json!({ "model": "m", "messages": [{ "role": "user", "content": HARD }] });
    client.gets(
        &server,
        "chat",
        &json!({ "headers": { "X-Icecore-Conversation": "log" }, "body": body }),
    );
    let turns = home.turns("log", 1);
    assert_eq!((&turns[0]["state"], summarizer.all().len()), (&json!("raw"), 2), "{turns:?}");
    *mended.lock().unwrap() = true;
    let retried = home.json(&["conversation", "retry", "log"]);
    assert_eq!((&retried["summarized"], &retried["raw"]), (&json!([1]), &json!([])), "{retried}");
    assert_eq!(home.json(&["conversation", "facts", "log"])["facts"][0]["text"], HARD);
}

/// A turn with tools is several requests; the turn that is recorded has all messages, and above all
/// the final reply.
// C4
#[test]
fn a_turn_with_tools_is_remembered_to_its_end() {
    let rule = "The pump must never run dry.";
    let chat = Scripted::start(move |request| {
        if request.messages().last().unwrap()["role"] == "tool" {
            return Answer::says(&request.json(), rule);
        }
        let call = json!({ "id": "call_a", "type": "function", "function": { "name": "look", "arguments": "{}" } });
        let message = json!({ "role": "assistant", "content": null, "tool_calls": [call] });
        let choice = json!({ "index": 0, "message": message, "finish_reason": "tool_calls" });
        Answer::json(
            &json!({ "id": "c1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice] }),
        )
    });
    let summarizer = Scripted::start(move |request| {
        let told = String::from_utf8_lossy(&request.body).contains(rule);
        let add = if told { vec![rule] } else { Vec::new() };
        let answer = json!({ "user_summary": "Asked about the pump.", "assistant_summary": "Looked.", "base_truth_diff": { "add": add } });
        Answer::says(&request.json(), &answer.to_string())
    });
    let home = TestHome::new(POLICY).with_model("chat", "openai", &chat.base(), "m").with_model(
        "summarizer",
        "openai",
        &summarizer.base(),
        "s",
    );
    let (server, mut client) = (Server::start(&home), Client::start(Package::OpenAiPython));
    let mut messages = vec![json!({ "role": "user", "content": "What holds for the pump?" })];
    let told = |messages: &[Value]| json!({ "headers": { "X-Icecore-Conversation": "pump" }, "body": { "model": "m", "messages": messages } });
    let seen = client.gets(&server, "chat", &told(&messages));
    // Tools take their time; a part of the turn may have been recorded meanwhile.
    std::thread::sleep(std::time::Duration::from_secs(1));
    messages.push(seen["reply"]["choices"][0]["message"].clone());
    messages.push(
        json!({ "role": "tool", "tool_call_id": "call_a", "content": "It says so on the pump." }),
    );
    let seen = client.gets(&server, "chat", &told(&messages));
    assert_eq!(seen["headers"]["x-icecore-turn"], "1");
    let known = until("the fact", || {
        let facts = home.json(&["conversation", "facts", "pump"])["facts"].take();
        facts[0]["text"].as_str().map(str::to_owned)
    });
    assert_eq!(known, rule);
    assert_eq!(home.turns("pump", 1).len(), 1);
}
