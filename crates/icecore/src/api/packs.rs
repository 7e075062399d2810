//! Recall: packs, transcripts of a time, summaries, search.

use icecore_domain::budget;
use icecore_domain::calendar::Moment;
use icecore_domain::event::Scope;
use icecore_domain::packs::Pack;
use icecore_domain::rank::mark;
use icecore_domain::rank::passage::PassageKind;
use icecore_domain::rank::terms::Reader;
use icecore_domain::summary::{SummaryQuery, Tier};
use icecore_engine::converse::{ClientHistory, Heard, Message};
use icecore_engine::embed::Embed;
use icecore_engine::{Before, Looking, SessionKind};

use serde_json::json;

use super::call::{Answer, Call, Given, wrong};
use super::route::{Doing, Field, Form, READ, Route};
use crate::error::{Exit, Stop};
use crate::told;

const GROUP: &str = "Packs and search";
const SESSION_KIND: Form = Form::Word(|| vec!["main", "side"]);
const TIER: Form = Form::Word(|| Tier::ALL.iter().map(|tier| tier.word()).collect());
const PASSAGE: Form = Form::Word(|| PassageKind::ALL.iter().map(|kind| kind.word()).collect());
const DATE: Field = Field::new("date", Form::When, "As of this date; default today");

/// The smallest useful pack budget.
const LEAST_PACK: usize = 512;
/// The default size of a session start pack, in characters.
const SESSION_START_CHARS: usize = 9_000;
/// The most hits of one search.
const MOST_HITS: usize = 1_000;
/// The default number of hits.
const HITS: usize = 10;
/// The size of a marked excerpt, in bytes.
const MARKED_BYTES: usize = 400;
/// The most summaries.
const MOST_SUMMARIES: usize = 1_000;
/// The default number of summaries.
const SUMMARIES: usize = 100;

/// The routes of packs and search.
pub const ROUTES: &[Route] = &[
    Route::get(
        READ,
        "/api/packs/recall",
        GROUP,
        "The recall pack: what a session needs to know, in eight sections",
        "Pack",
        recall,
    )
    .query(&[
        DATE,
        Field::text(
            "scope",
            "Also include what applies in this scope: project:NAME, conversation:ID",
        )
        .many(),
    ])
    .example("/api/packs/recall?date=yesterday", None),
    Route::get(
        READ,
        "/api/packs/upload",
        GROUP,
        "The upload pack: the latest month, this week, today's sessions",
        "Pack",
        upload,
    )
    .query(&[DATE, Field::new("budget", Form::Number, "Maximum size in bytes")])
    .example("/api/packs/upload?budget=20000", None),
    Route::get(
        READ,
        "/api/packs/pyramid",
        GROUP,
        "The pyramid pack: yesterday and today in full, then days, weeks, months, years",
        "Pack",
        pyramid,
    )
    .query(&[DATE, Field::new("budget", Form::Number, "Maximum size in tokens")])
    .example("/api/packs/pyramid?budget=8000", None),
    Route::get(
        READ,
        "/api/packs/session-start",
        GROUP,
        "The session start pack: recall pack, saved state, last logs",
        "Pack",
        session_start,
    )
    .query(&[
        DATE,
        Field::new("kind", SESSION_KIND, "The kind of session; a side session gets no MEMORY.md"),
        Field::new("budget", Form::Number, "Maximum size in characters; default 9000"),
    ])
    .example("/api/packs/session-start?kind=side", None),
    Route::get(
        READ,
        "/api/packs/delta",
        GROUP,
        "The text injected into one prompt: the oldest commitments and the pages it triggers",
        "Pack",
        delta,
    )
    .query(&[
        Field::text("prompt", "The prompt").must(),
        DATE,
        Field::new("budget", Form::Number, "Maximum size in characters"),
    ])
    .example("/api/packs/delta?prompt=how%20is%20the%20store%20doing", None),
    Route::get(
        READ,
        "/api/packs/chat",
        GROUP,
        "The memory given to a chat model before the next turn of a conversation",
        "Pack",
        chat,
    )
    .query(&[
        Field::text("conversation", "The conversation").must(),
        Field::text("prompt", "The user's next message"),
    ])
    .example("/api/packs/chat?conversation=trip", None),
    Route::get(
        READ,
        "/api/zoom",
        GROUP,
        "The messages of a time range, or its summaries",
        "Zoom",
        zoom,
    )
    .query(&[
        Field::new(
            "when",
            Form::When,
            "The time: yesterday, 2026-02-13, 2026-W07, feb 2026, last month",
        )
        .must(),
        Field::text("conversation", "Only from this conversation"),
        Field::new("summary", Form::Yes, "Return summaries instead of messages"),
    ])
    .example("/api/zoom?when=yesterday&summary=true", None),
    Route::get(
        READ,
        "/api/summaries",
        GROUP,
        "The summaries of sessions, days, weeks, months and years",
        "Summaries",
        summaries,
    )
    .query(&[
        Field::new("tier", TIER, "Only these tiers").many(),
        Field::new("when", Form::When, "Only from this time"),
        Field::new("limit", Form::Number, "Maximum number, latest first; default 100"),
    ])
    .example("/api/summaries?tier=week&when=this%20year", None),
    Route::get(
        READ,
        "/api/search",
        GROUP,
        "Search all messages, events, summaries, pages and logs",
        "Found",
        search,
    )
    .query(&[
        Field::text("q", "The question, or a few key words; \"in quotes\" for the exact words")
            .must(),
        Field::new("when", Form::When, "Only from this time"),
        Field::new("before", Form::When, "Only what is older than this date or timestamp"),
        Field::new("kind", PASSAGE, "Only these kinds").many(),
        Field::text("conversation", "Only from this conversation"),
        Field::new("limit", Form::Number, "Maximum number of hits; default 10"),
        Field::new("context", Form::Number, "Number of passages before and after each hit"),
        Field::new("mark", Form::Yes, "Return the matching words of each hit as `marked`"),
        Field::new("explain", Form::Yes, "Explain the rank of each hit"),
        Field::new(
            "rerank",
            Form::Yes,
            "Rerank the best candidates by embeddings, even if that takes a moment",
        ),
        Field::new("words", Form::Yes, "Keyword search only"),
    ])
    .example("/api/search?q=which%20port%20do%20we%20use&limit=5", None),
];

fn at_least(given: &Given, unit: &str) -> anyhow::Result<Option<usize>> {
    match given.number("budget") {
        Some(budget) if budget < LEAST_PACK => {
            Err(wrong(format!("`budget` must be at least {LEAST_PACK} {unit}")))
        }
        budget => Ok(budget),
    }
}

fn recall(call: Call) -> Doing {
    Box::pin(async move {
        let memory = call.memory().await?;
        let date = call.query.one_day("date", memory.now().day())?;
        let scopes = call.query.read_all("scope", str::parse::<Scope>)?;
        memory.notice().await;
        Answer::of(&memory.pack_recall(date, &scopes).await?)
    })
}

fn upload(call: Call) -> Doing {
    Box::pin(async move {
        let memory = call.memory().await?;
        let (date, most) =
            (call.query.one_day("date", memory.now().day())?, memory.policy().budget.upload_bytes);
        let budget = call.query.number("budget");
        if budget.is_some_and(|budget| !(LEAST_PACK..=most).contains(&budget)) {
            return Err(wrong(format!("`budget`: choose between {LEAST_PACK} and {most} bytes")));
        }
        Answer::of(&memory.pack_upload(date, budget).await?)
    })
}

fn pyramid(call: Call) -> Doing {
    Box::pin(async move {
        let memory = call.memory().await?;
        let date = call.query.one_day("date", memory.now().day())?;
        Answer::of(
            &memory.pack_pyramid(date, call.query.number("budget"), &Before::default()).await?,
        )
    })
}

fn session_start(call: Call) -> Doing {
    Box::pin(async move {
        let kind = call.query.read("kind", |text| match text {
            "main" => Ok(SessionKind::Main),
            "side" => Ok(SessionKind::Side),
            _ => Err("choose main or side"),
        })?;
        let budget = at_least(&call.query, "characters")?.unwrap_or(SESSION_START_CHARS);
        let memory = call.memory().await?;
        let date = call.query.one_day("date", memory.now().day())?;
        Answer::of(
            &memory.pack_session_start(kind.unwrap_or(SessionKind::Main), budget, date).await?,
        )
    })
}

fn delta(call: Call) -> Doing {
    Box::pin(async move {
        let budget = at_least(&call.query, "characters")?;
        let prompt = call.query.text("prompt").unwrap_or_default();
        let memory = call.memory().await?;
        let date = call.query.one_day("date", memory.now().day())?;
        Answer::of(&memory.pack_delta(&prompt, budget, date).await?)
    })
}

fn chat(call: Call) -> Doing {
    Box::pin(async move {
        let chats = call.chats().await?;
        let asked = |text: &str| Message {
            role: "user".into(),
            name: None,
            text: text.to_owned(),
            raw: String::new(),
            has_tools: false,
        };
        let messages = call.query.one("prompt").map(asked).into_iter().collect();
        let conversation = call.query.text("conversation");
        let begun = chats
            .begin(Heard {
                conversation,
                history: ClientHistory::Newest,
                messages,
                ..Heard::default()
            })
            .await?;
        let text = begun.memory.unwrap_or_default();
        Answer::of(&Pack {
            kind: "chat",
            date: chats.memory().now().day(),
            bytes: text.len(),
            words: budget::words(&text),
            tokens: budget::tokens(&text),
            sections: Vec::new(),
            left_out: begun.left_out,
            sources: begun.injected,
            text,
        })
    })
}

fn zoom(call: Call) -> Doing {
    Box::pin(async move {
        let memory = call.memory().await?;
        let Some(when) = call.query.when("when", memory.now().day())? else {
            return Err(wrong("`when` is missing"));
        };
        let summary = call.query.yes("summary");
        let zoomed = memory.zoom(when, call.query.one("conversation"), summary).await?;
        let nothing = match (summary, zoomed.summaries.is_empty(), zoomed.records.is_empty()) {
            (true, true, _) => {
                Some("nothing of it is summarized yet; omit `summary` to get the messages")
            }
            (false, _, true) => Some("there are no messages then"),
            _ => None,
        };
        match nothing {
            Some(why) => Err(Stop::new(Exit::NotFound, format!("{when}: {why}")).into()),
            None => Answer::of(&told::zoomed(&zoomed, summary)),
        }
    })
}

fn summaries(call: Call) -> Doing {
    Box::pin(async move {
        let memory = call.memory().await?;
        let limit = call.query.number("limit").unwrap_or(SUMMARIES);
        if limit > MOST_SUMMARIES {
            return Err(wrong(format!("`limit`: choose at most {MOST_SUMMARIES}")));
        }
        let query = SummaryQuery {
            tiers: call.query.read_all("tier", str::parse::<Tier>)?,
            days: call.query.when("when", memory.now().day())?.map(|when| when.span()),
            until: None,
            latest: Some(limit),
        };
        Answer::named("summaries", &told::summaries(&memory.store().summaries(&query).await?))
    })
}

fn search(call: Call) -> Doing {
    Box::pin(async move {
        let memory = call.memory().await?;
        let (asked, now) = (&call.query, memory.now());
        let limit = asked.number("limit").unwrap_or(HITS);
        if limit == 0 || limit > MOST_HITS {
            return Err(wrong(format!("`limit`: choose between 1 and {MOST_HITS}")));
        }
        let before = match asked.one("before").and_then(Moment::read) {
            Some(read) => Some(read.moment.at()),
            None => asked.when("before", now.day())?.map(|when| memory.start_of(when.span().first)),
        };
        let looking = Looking {
            text: asked.text("q").unwrap_or_default(),
            limit,
            when: asked.when("when", now.day())?.map(|when| when.span()),
            before,
            now: None,
            kinds: asked.read_all("kind", str::parse::<PassageKind>)?,
            conversation: asked.text("conversation"),
            context: asked.number("context").unwrap_or(0),
            rerank: asked.yes("rerank"),
        };
        let embed = if asked.yes("words") {
            None
        } else {
            call.api.embedder().map(|model| model as &dyn Embed)
        };
        let finder = memory.finder(embed, &|_, _| {}).await?;
        let answer = finder.search(&looking).await?;
        if answer.question.is_empty() {
            return Err(wrong(
                "`q` contains no searchable word; ask a question or give a few key words",
            ));
        }
        let mut told = told::answer(&answer, asked.yes("explain"));
        if asked.yes("mark") {
            let reader = Reader::default();
            for (hit, told) in
                answer.hits.iter().zip(told["hits"].as_array_mut().into_iter().flatten())
            {
                told["marked"] = json!(mark::marked(
                    &hit.placed.passage.text,
                    &answer.question,
                    &reader,
                    MARKED_BYTES
                ));
            }
        }
        Answer::of(&told)
    })
}
