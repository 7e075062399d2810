//! Insights: recurring topics, the same time in earlier periods, similar periods.

use icecore_domain::summary::Period;

use super::call::{ApiAnswer, ApiCall, usage_error};
use super::route::{HandlerFuture, InputField, PERIOD_TYPE, READ, RouteSpec, ValueType};
use crate::error::{AppError, Exit};
use crate::json_output;

const GROUP: &str = "Across time";
/// The default number of topics.
const DEFAULT_TOPICS: usize = 20;
/// The most topics.
const MAX_TOPICS: usize = 1_000;

/// The default size of a merged text, in bytes.
const DEFAULT_MERGED_BYTES: usize = 8_192;

/// The routes of insights.
pub const ROUTES: &[RouteSpec] = &[
    RouteSpec::get(READ, "/api/trends", GROUP, "Recurring topics, by session and month", "Trends", trends)
        .query(&[
            InputField::new("when", ValueType::When, "Only this time range; default the last twelve months"),
            InputField::text("about", "Only topics that occur together with this"),
            InputField::new("limit", ValueType::Between(1, MAX_TOPICS), "Maximum number of topics; default 20"),
        ])
        .example("/api/trends?when=last%2090%20days&limit=5", None),
    RouteSpec::get(READ, "/api/lookback", GROUP, "What happened a month, half a year and whole years before a date", "Lookback", lookback)
        .query(&[InputField::new("date", ValueType::When, "The date to look back from; default today")])
        .example("/api/lookback?date=yesterday", None),
    RouteSpec::get(READ, "/api/similar", GROUP, "The periods similar in content to a given one", "Similar", similar)
        .query(&[InputField::new(
            "period",
            PERIOD_TYPE,
            "The session, day, week, month or year to compare with; default the latest week, else the latest month",
        )])
        .example("/api/similar?period=2026-W07", None),
    RouteSpec::get(READ, "/api/similar/merged", GROUP, "A period and similar ones merged into one text, without repetitions", "MergedSimilar", similar_merged)
        .query(&[
            InputField::new("period", PERIOD_TYPE, "The period; default the latest week, else the latest month"),
            InputField::new("budget", ValueType::Between(512, 1_000_000), "Maximum size in bytes; default 8192"),
        ])
        .example("/api/similar/merged?period=2026-W07", None),
];

fn trends(call: ApiCall) -> HandlerFuture {
    Box::pin(async move {
        let memory = call.open_memory().await?;
        let (asked, today) = (&call.query, memory.now().day());
        let days = asked.get_time("when", today)?.map(|when| when.days());
        if let Some(days) = days.filter(|days| days.first > today) {
            return Err(usage_error(format!("`when`: {days} is in the future")));
        }
        let limit = asked.get_number("limit").unwrap_or(DEFAULT_TOPICS);
        memory.scan_recent_logs().await;
        ApiAnswer::from_value(&json_output::trends(
            &memory.compute_trends(days, limit, asked.get("about"), &|_, _, _| {}).await?,
        ))
    })
}

fn lookback(call: ApiCall) -> HandlerFuture {
    Box::pin(async move {
        let memory = call.open_memory().await?;
        let date = call.query.get_single_day("date", memory.now().day())?;
        memory.scan_recent_logs().await;
        ApiAnswer::from_value(&json_output::lookback(&memory.compute_lookback(date).await?))
    })
}

fn similar(call: ApiCall) -> HandlerFuture {
    Box::pin(async move {
        let period = call.query.parse_field("period", str::parse::<Period>)?;
        ApiAnswer::from_value(&json_output::similar(
            call.open_memory().await?.find_similar_summaries(period).await?.as_ref(),
        ))
    })
}

fn similar_merged(call: ApiCall) -> HandlerFuture {
    Box::pin(async move {
        let period = call.query.parse_field("period", str::parse::<Period>)?;
        let memory = call.open_memory().await?;
        let Some(alike) = memory.find_similar_summaries(period).await? else {
            return Err(AppError::new(
                Exit::NotFound,
                "nothing is summarized yet, so there is nothing to merge",
            )
            .into());
        };
        let budget = call.query.get_number("budget").unwrap_or(DEFAULT_MERGED_BYTES);
        ApiAnswer::from_value(&json_output::merge_similar(&memory, &alike, budget).2)
    })
}
