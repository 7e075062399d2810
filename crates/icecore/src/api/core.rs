//! The timeline: all periods of a vault, the sources of each, and the messages below.

use icecore_domain::budget;
use icecore_domain::calendar::Days;
use icecore_domain::record::{Record, Trust};
use icecore_domain::summary::{Period, Tier};
use jiff::civil::Date;
use serde_json::{Value, json};

use super::call::{Answer, Call, wrong};
use super::route::{Doing, Field, Form, READ, Route};

const GROUP: &str = "The core";
const TIER: Form = Form::Word(|| Tier::ALL.iter().map(|tier| tier.word()).collect());
const FROM: Field = Field::new("from", Form::Day, "The first date");
const TO: Field = Field::new("to", Form::Day, "The last date");
/// The default number of headlines.
const HEADLINES: usize = 500;
/// The most headlines.
const MOST_HEADLINES: usize = 5_000;
/// The default number of messages.
const MESSAGES: usize = 100;
/// The most messages.
const MOST_MESSAGES: usize = 1_000;
/// The most characters of each message.
const MOST_CHARACTERS: usize = 100_000;

/// The routes of the timeline.
pub const ROUTES: &[Route] = &[
    Route::get(
        READ,
        "/api/core",
        GROUP,
        "The timeline of a vault: a column for each property of its years, months, weeks, days and sessions",
        "Core",
        core,
    )
    .query(&[FROM, TO, Field::new("tier", TIER, "Only these tiers; default all").many()])
    .example("/api/core?tier=day&from=-90d", None),
    Route::get(
        READ,
        "/api/core/headlines",
        GROUP,
        "The headlines of a tier's periods, in order of time; the latest if there are more",
        "Headlines",
        headlines,
    )
    .query(&[
        Field::new("tier", TIER, "The tier").must(),
        FROM,
        TO,
        Field::new("limit", Form::Between(1, MOST_HEADLINES), "Maximum number; default 500"),
    ])
    .example("/api/core/headlines?tier=week&from=-90d", None),
    Route::get(READ, "/api/core/{period}", GROUP, "A period: its summary line by line, and the periods below it", "Node", node)
        .example("/api/core/2026-W07", None),
    Route::get(
        READ,
        "/api/core/{period}/why",
        GROUP,
        "The sources of a line of a period's summary: the events it names, else the summaries and messages below it",
        "Because",
        why,
    )
    .query(&[Field::new("line", Form::Number, "The line number; 0 is the headline").must()])
    .example("/api/core/2026-W07/why?line=0", None),
    Route::get(
        READ,
        "/api/core/{period}/messages",
        GROUP,
        "The messages of a session, a day or a week, in order, page by page",
        "Words",
        messages,
    )
    .query(&[
        Field::text("conversation", "Only from this conversation"),
        Field::text("session", "Only from this session of it; empty for messages without a session"),
        Field::new("offset", Form::Number, "Number to skip; default 0"),
        Field::new("limit", Form::Between(1, MOST_MESSAGES), "Maximum number; default 100"),
        Field::new("characters", Form::Between(1, MOST_CHARACTERS), "Maximum characters of each message; default all"),
    ])
    .example("/api/core/2026-02-13/messages?limit=20&characters=120", None),
];

fn within(call: &Call, today: Date) -> anyhow::Result<Option<Days>> {
    let (from, to) = (call.query.day("from", today)?, call.query.day("to", today)?);
    if from.is_none() && to.is_none() {
        return Ok(None);
    }
    let days = Days { first: from.unwrap_or(Date::MIN), last: to.unwrap_or(Date::MAX) };
    if days.first > days.last {
        return Err(wrong("`from` is after `to`"));
    }
    Ok(Some(days))
}

fn core(call: Call) -> Doing {
    Box::pin(async move {
        let memory = call.memory().await?;
        let within = within(&call, memory.now().day())?;
        let tiers = call.query.read_all("tier", str::parse::<Tier>)?;
        Answer::of(&memory.layers(within, &tiers).await?)
    })
}

fn headlines(call: Call) -> Doing {
    Box::pin(async move {
        let memory = call.memory().await?;
        let within = within(&call, memory.now().day())?;
        let Some(tier) = call.query.read("tier", str::parse::<Tier>)? else {
            return Err(wrong("`tier` is missing"));
        };
        let most = call.query.number("limit").unwrap_or(HEADLINES);
        Answer::named("headlines", &memory.headlines(tier, within, most).await?)
    })
}

fn period(call: &Call) -> anyhow::Result<Period> {
    call.path("period").parse::<Period>().map_err(|error| wrong(error.to_string()))
}

fn node(call: Call) -> Doing {
    Box::pin(async move {
        let period = period(&call)?;
        Answer::of(&call.memory().await?.node(period).await?)
    })
}

fn why(call: Call) -> Doing {
    Box::pin(async move {
        let (period, line) = (period(&call)?, call.query.number("line").unwrap_or(0));
        Answer::named("because", &call.memory().await?.because_of(period, line).await?)
    })
}

/// A message, cut to a number of characters.
fn told(record: &Record, characters: usize) -> Value {
    let text = record
        .text
        .char_indices()
        .nth(characters)
        .map_or(record.text.as_str(), |(end, _)| record.text.get(..end).unwrap_or_default());
    let fields = json!({
        "ts": record.ts.to_string(),
        "conversation": record.conversation,
        "session": record.session,
        "id": record.id,
        "role": record.role,
        "name": record.name,
        "kind": record.kind,
        "title": record.title,
        "text": text,
        "bytes": record.text.len(),
        "words": budget::words(&record.text),
        "cut": text.len() < record.text.len(),
        "has_parts": record.parts.is_some(),
        "origin": record.origin,
        "trust": Trust::of(record.origin),
    });
    crate::told::with_speaker(record, fields)
}

fn messages(call: Call) -> Doing {
    Box::pin(async move {
        let (period, asked) = (period(&call)?, &call.query);
        let records = call
            .memory()
            .await?
            .words_of(period, asked.one("conversation"), asked.one("session"))
            .await?;
        let (offset, limit) =
            (asked.number("offset").unwrap_or(0), asked.number("limit").unwrap_or(MESSAGES));
        let characters = asked.number("characters").unwrap_or(usize::MAX);
        let page: Vec<Value> = records
            .iter()
            .skip(offset)
            .take(limit)
            .map(|record| told(record, characters))
            .collect();
        Answer::of(&json!({ "messages": page, "total": records.len(), "offset": offset }))
    })
}
