//! The core: a vault's whole time as layers, one of them with what it was made from, and the words
//! below.

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
const FROM: Field = Field::new("from", Form::Day, "From this day on");
const TO: Field = Field::new("to", Form::Day, "Until this day");
/// Headlines of one answer, if nobody says how many.
const HEADLINES: usize = 500;
/// The most headlines of one answer.
const MOST_HEADLINES: usize = 5_000;
/// Messages of one answer, if nobody says how many.
const MESSAGES: usize = 100;
/// The most messages of one answer.
const MOST_MESSAGES: usize = 1_000;
/// The longest beginning of a message that can be asked for.
const MOST_CHARACTERS: usize = 100_000;

/// The routes of the core.
pub const ROUTES: &[Route] = &[
    Route::get(
        READ,
        "/api/core",
        GROUP,
        "The vault's whole time as layers: a column for each property of its years, months, weeks, days and sessions",
        "Core",
        core,
    )
    .query(&[FROM, TO, Field::new("tier", TIER, "Only these tiers; all if not given").many()])
    .example("/api/core?tier=day&from=-90d", None),
    Route::get(
        READ,
        "/api/core/headlines",
        GROUP,
        "What the periods of a tier came to in a few sentences, in the order of time; the latest if there are more",
        "Headlines",
        headlines,
    )
    .query(&[
        Field::new("tier", TIER, "Of this tier").must(),
        FROM,
        TO,
        Field::new("limit", Form::Between(1, MOST_HEADLINES), "At most so many; 500 if not given"),
    ])
    .example("/api/core/headlines?tier=week&from=-90d", None),
    Route::get(READ, "/api/core/{period}", GROUP, "A period: what it came to line by line, and what lies below it", "Node", node)
        .example("/api/core/2026-W07", None),
    Route::get(
        READ,
        "/api/core/{period}/why",
        GROUP,
        "Where a line of a period's summary comes from: the events it names, else down the summaries to the words",
        "Because",
        why,
    )
    .query(&[Field::new("line", Form::Number, "The number of the line; 0 is the headline").must()])
    .example("/api/core/2026-W07/why?line=0", None),
    Route::get(
        READ,
        "/api/core/{period}/messages",
        GROUP,
        "The words of a session, a day or a week, page by page, in the order they were said",
        "Words",
        messages,
    )
    .query(&[
        Field::text("conversation", "Only of this conversation"),
        Field::text("session", "Only of this session of it; empty for messages without one"),
        Field::new("offset", Form::Number, "So many are passed over; none if not given"),
        Field::new("limit", Form::Between(1, MOST_MESSAGES), "At most so many; 100 if not given"),
        Field::new("characters", Form::Between(1, MOST_CHARACTERS), "At most so many characters of each; all if not given"),
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
        return Err(wrong("`from` lies after `to`"));
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

/// A message, or its beginning.
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
