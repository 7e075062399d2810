//! The timeline: all periods of a vault, the sources of each, and the messages below.

use icecore_domain::budget;
use icecore_domain::calendar::Days;
use icecore_domain::record::{Record, Trust};
use icecore_domain::summary::{Period, Tier};
use jiff::civil::Date;
use serde_json::{Value, json};

use super::call::{ApiAnswer, ApiCall, usage_error};
use super::route::{HandlerFuture, InputField, READ, RouteSpec, ValueType};

const GROUP: &str = "The core";
const TIER_TYPE: ValueType = ValueType::Word(|| Tier::ALL.iter().map(|tier| tier.word()).collect());
const FROM_FIELD: InputField = InputField::new("from", ValueType::Day, "The first date");
const TO_FIELD: InputField = InputField::new("to", ValueType::Day, "The last date");
/// The default number of headlines.
const DEFAULT_HEADLINES: usize = 500;
/// The most headlines.
const MAX_HEADLINES: usize = 5_000;
/// The default number of messages.
const DEFAULT_MESSAGES: usize = 100;
/// The most messages.
const MAX_MESSAGES: usize = 1_000;
/// The most characters of each message.
const MAX_MESSAGE_CHARS: usize = 100_000;

/// The routes of the timeline.
pub const ROUTES: &[RouteSpec] = &[
    RouteSpec::get(
        READ,
        "/api/core",
        GROUP,
        "The timeline of a vault: a column for each property of its years, months, weeks, days and sessions",
        "Core",
        timeline,
    )
    .query(&[FROM_FIELD, TO_FIELD, InputField::new("tier", TIER_TYPE, "Only these tiers; default all").many()])
    .example("/api/core?tier=day&from=-90d", None),
    RouteSpec::get(
        READ,
        "/api/core/headlines",
        GROUP,
        "The headlines of a tier's periods, in order of time; the latest if there are more",
        "Headlines",
        list_headlines,
    )
    .query(&[
        InputField::new("tier", TIER_TYPE, "The tier").require(),
        FROM_FIELD,
        TO_FIELD,
        InputField::new("limit", ValueType::Between(1, MAX_HEADLINES), "Maximum number; default 500"),
    ])
    .example("/api/core/headlines?tier=week&from=-90d", None),
    RouteSpec::get(READ, "/api/core/{period}", GROUP, "A period: its summary line by line, and the periods below it", "Node", show_period)
        .example("/api/core/2026-W07", None),
    RouteSpec::get(
        READ,
        "/api/core/{period}/why",
        GROUP,
        "The sources of a line of a period's summary: the events it names, else the summaries and messages below it",
        "ProvenanceList",
        trace_line,
    )
    .query(&[InputField::new("line", ValueType::Number, "The line number; 0 is the headline").require()])
    .example("/api/core/2026-W07/why?line=0", None),
    RouteSpec::get(
        READ,
        "/api/core/{period}/messages",
        GROUP,
        "The messages of a session, a day or a week, in order, page by page",
        "PeriodMessages",
        list_messages,
    )
    .query(&[
        InputField::text("conversation", "Only from this conversation"),
        InputField::text("session", "Only from this session of it; empty for messages without a session"),
        InputField::new("offset", ValueType::Number, "Number to skip; default 0"),
        InputField::new("limit", ValueType::Between(1, MAX_MESSAGES), "Maximum number; default 100"),
        InputField::new("characters", ValueType::Between(1, MAX_MESSAGE_CHARS), "Maximum characters of each message; default all"),
    ])
    .example("/api/core/2026-02-13/messages?limit=20&characters=120", None),
];

fn day_range(call: &ApiCall, today: Date) -> anyhow::Result<Option<Days>> {
    let (from, to) = (call.query.get_date("from", today)?, call.query.get_date("to", today)?);
    if from.is_none() && to.is_none() {
        return Ok(None);
    }
    let days = Days { first: from.unwrap_or(Date::MIN), last: to.unwrap_or(Date::MAX) };
    if days.first > days.last {
        return Err(usage_error("`from` is after `to`"));
    }
    Ok(Some(days))
}

fn timeline(call: ApiCall) -> HandlerFuture {
    Box::pin(async move {
        let memory = call.open_memory().await?;
        let within = day_range(&call, memory.now().day())?;
        let tiers = call.query.parse_all("tier", str::parse::<Tier>)?;
        ApiAnswer::from_value(&memory.load_timeline(within, &tiers).await?)
    })
}

fn list_headlines(call: ApiCall) -> HandlerFuture {
    Box::pin(async move {
        let memory = call.open_memory().await?;
        let within = day_range(&call, memory.now().day())?;
        let Some(tier) = call.query.parse_field("tier", str::parse::<Tier>)? else {
            return Err(usage_error("`tier` is missing"));
        };
        let most = call.query.get_number("limit").unwrap_or(DEFAULT_HEADLINES);
        ApiAnswer::with_key("headlines", &memory.list_headlines(tier, within, most).await?)
    })
}

fn period_param(call: &ApiCall) -> anyhow::Result<Period> {
    call.path_param("period").parse::<Period>().map_err(|error| usage_error(error.to_string()))
}

fn show_period(call: ApiCall) -> HandlerFuture {
    Box::pin(async move {
        let period = period_param(&call)?;
        ApiAnswer::from_value(&call.open_memory().await?.load_timeline_node(period).await?)
    })
}

fn trace_line(call: ApiCall) -> HandlerFuture {
    Box::pin(async move {
        let (period, line) = (period_param(&call)?, call.query.get_number("line").unwrap_or(0));
        ApiAnswer::with_key(
            "because",
            &call.open_memory().await?.trace_summary_line(period, line).await?,
        )
    })
}

/// A message, cut to a number of characters.
fn message_json(record: &Record, characters: usize) -> Value {
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
        "words": budget::count_words(&record.text),
        "cut": text.len() < record.text.len(),
        "has_parts": record.parts.is_some(),
        "origin": record.origin,
        "trust": Trust::from_origin(record.origin),
    });
    crate::json_output::with_speaker(record, fields)
}

fn list_messages(call: ApiCall) -> HandlerFuture {
    Box::pin(async move {
        let (period, asked) = (period_param(&call)?, &call.query);
        let records = call
            .open_memory()
            .await?
            .load_period_records(period, asked.get("conversation"), asked.get("session"))
            .await?;
        let (offset, limit) = (
            asked.get_number("offset").unwrap_or(0),
            asked.get_number("limit").unwrap_or(DEFAULT_MESSAGES),
        );
        let characters = asked.get_number("characters").unwrap_or(usize::MAX);
        let page: Vec<Value> = records
            .iter()
            .skip(offset)
            .take(limit)
            .map(|record| message_json(record, characters))
            .collect();
        ApiAnswer::from_value(
            &json!({ "messages": page, "total": records.len(), "offset": offset }),
        )
    })
}
