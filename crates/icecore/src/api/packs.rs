//! Giving memory back: packs, the words of any time, summaries, search.

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
const DATE: Field = Field::new("date", Form::When, "As of this day; today if not given");

/// The smallest pack that can say anything.
const LEAST_PACK: usize = 512;
/// How much a session start has, in characters, if nobody says.
const SESSION_START_CHARS: usize = 9_000;
/// The most hits of one search.
const MOST_HITS: usize = 1_000;
/// Hits of a search, if nobody says how many.
const HITS: usize = 10;
/// So much of a hit is shown with its words marked.
const MARKED_BYTES: usize = 400;
/// The most summaries of one answer.
const MOST_SUMMARIES: usize = 1_000;
/// Summaries of one answer, if nobody says how many.
const SUMMARIES: usize = 100;

/// The routes that give memory back.
pub const ROUTES: &[Route] = &[
    Route::get(
        READ,
        "/api/packs/recall",
        GROUP,
        "What must be known now, on one page of eight sections",
        "Pack",
        recall,
    )
    .query(&[
        DATE,
        Field::text("scope", "Also what holds there: project:NAME, conversation:ID").many(),
    ])
    .example("/api/packs/recall?date=yesterday", None),
    Route::get(
        READ,
        "/api/packs/upload",
        GROUP,
        "What a new session begins with: the latest month, this week, today's sessions",
        "Pack",
        upload,
    )
    .query(&[DATE, Field::new("budget", Form::Number, "At most so many bytes")])
    .example("/api/packs/upload?budget=20000", None),
    Route::get(
        READ,
        "/api/packs/pyramid",
        GROUP,
        "Yesterday and today in full, then days, weeks, months, years",
        "Pack",
        pyramid,
    )
    .query(&[DATE, Field::new("budget", Form::Number, "At most so many tokens")])
    .example("/api/packs/pyramid?budget=8000", None),
    Route::get(
        READ,
        "/api/packs/session-start",
        GROUP,
        "What a session starts with: the recall pack, the saved state, the last logs",
        "Pack",
        session_start,
    )
    .query(&[
        DATE,
        Field::new(
            "kind",
            SESSION_KIND,
            "Whose session starts; a side session is told without MEMORY.md",
        ),
        Field::new("budget", Form::Number, "At most so many characters; 9000 if not given"),
    ])
    .example("/api/packs/session-start?kind=side", None),
    Route::get(
        READ,
        "/api/packs/delta",
        GROUP,
        "What one prompt is given: the oldest commitments and the pages its words call for",
        "Pack",
        delta,
    )
    .query(&[
        Field::text("prompt", "The prompt").must(),
        DATE,
        Field::new("budget", Form::Number, "At most so many characters"),
    ])
    .example("/api/packs/delta?prompt=how%20is%20the%20store%20doing", None),
    Route::get(
        READ,
        "/api/packs/chat",
        GROUP,
        "What a chat model is told before the next turn of a conversation",
        "Pack",
        chat,
    )
    .query(&[
        Field::text("conversation", "The conversation").must(),
        Field::text("prompt", "What the person is about to say"),
    ])
    .example("/api/packs/chat?conversation=trip", None),
    Route::get(READ, "/api/zoom", GROUP, "The words of any time, or what it came to", "Zoom", zoom)
        .query(&[
            Field::new(
                "when",
                Form::When,
                "When: yesterday, 2026-02-13, 2026-W07, feb 2026, last month",
            )
            .must(),
            Field::text("conversation", "Only of this conversation"),
            Field::new("summary", Form::Yes, "What it came to, instead of the words themselves"),
        ])
        .example("/api/zoom?when=yesterday&summary=true", None),
    Route::get(
        READ,
        "/api/summaries",
        GROUP,
        "What sessions, days, weeks, months and years came to",
        "Summaries",
        summaries,
    )
    .query(&[
        Field::new("tier", TIER, "Only of this tier").many(),
        Field::new("when", Form::When, "Only of this time"),
        Field::new("limit", Form::Number, "At most so many, the latest ones; 100 if not given"),
    ])
    .example("/api/summaries?tier=week&when=this%20year", None),
    Route::get(
        READ,
        "/api/search",
        GROUP,
        "Search every message, event, summary, page and log there ever was",
        "Found",
        search,
    )
    .query(&[
        Field::text("q", "The question, or a few words; \"in quotes\" for the very words").must(),
        Field::new("when", Form::When, "Only of this time"),
        Field::new("before", Form::When, "Only what is older than this day or moment"),
        Field::new("kind", PASSAGE, "Only this kind").many(),
        Field::text("conversation", "Only of this conversation"),
        Field::new("limit", Form::Number, "At most so many hits; 10 if not given"),
        Field::new("context", Form::Number, "So many neighbours on each side of a hit"),
        Field::new(
            "mark",
            Form::Yes,
            "Say which words of each hit are those that were asked for, as `marked`",
        ),
        Field::new("explain", Form::Yes, "Say why each hit stands where it stands"),
        Field::new(
            "rerank",
            Form::Yes,
            "Compare the meanings of the best candidates even where that takes a moment",
        ),
        Field::new("words", Form::Yes, "Compare words only"),
    ])
    .example("/api/search?q=which%20port%20do%20we%20use&limit=5", None),
];

fn at_least(given: &Given, unit: &str) -> anyhow::Result<Option<usize>> {
    match given.number("budget") {
        Some(budget) if budget < LEAST_PACK => {
            Err(wrong(format!("`budget`: at least {LEAST_PACK} {unit} are needed")))
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
                Some("nothing has been pressed of it yet; without `summary` the words are told")
            }
            (false, _, true) => Some("nothing was said then"),
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
                "`q`: there is no word in that to look for; ask a question or give a few words",
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
