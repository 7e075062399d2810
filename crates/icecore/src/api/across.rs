//! Insights: recurring topics, the same time in earlier periods, similar periods.

use icecore_domain::summary::Period;

use super::call::{Answer, Call, wrong};
use super::route::{Doing, Field, Form, READ, Route};
use crate::error::{Exit, Stop};
use crate::told;

const GROUP: &str = "Across time";
/// The default number of topics.
const TOPICS: usize = 20;
/// The most topics.
const MOST_TOPICS: usize = 1_000;

/// The default size of a merged text, in bytes.
const MERGED_BYTES: usize = 8_192;

/// The routes of insights.
pub const ROUTES: &[Route] = &[
    Route::get(READ, "/api/trends", GROUP, "Recurring topics, by session and month", "Trends", trends)
        .query(&[
            Field::new("when", Form::When, "Only this time range; default the last twelve months"),
            Field::text("about", "Only topics that occur together with this"),
            Field::new("limit", Form::Number, "Maximum number of topics; default 20"),
        ])
        .example("/api/trends?when=last%2090%20days&limit=5", None),
    Route::get(READ, "/api/lookback", GROUP, "What happened a month, half a year and whole years before a date", "Lookback", lookback)
        .query(&[Field::new("date", Form::When, "The date to look back from; default today")])
        .example("/api/lookback?date=yesterday", None),
    Route::get(READ, "/api/similar", GROUP, "The periods similar in content to a given one", "Similar", similar)
        .query(&[Field::text(
            "period",
            "The session, day, week, month or year to compare with; default the latest week, else the latest month",
        )])
        .example("/api/similar?period=2026-W07", None),
    Route::get(READ, "/api/similar/merged", GROUP, "A period and similar ones merged into one text, without repetitions", "SimilarMerged", similar_merged)
        .query(&[
            Field::text("period", "The period; default the latest week, else the latest month"),
            Field::new("budget", Form::Between(512, 1_000_000), "Maximum size in bytes; default 8192"),
        ])
        .example("/api/similar/merged?period=2026-W07", None),
];

fn trends(call: Call) -> Doing {
    Box::pin(async move {
        let memory = call.memory().await?;
        let (asked, today) = (&call.query, memory.now().day());
        let days = asked.when("when", today)?.map(|when| when.span());
        if let Some(days) = days.filter(|days| days.first > today) {
            return Err(wrong(format!("`when`: {days} is in the future")));
        }
        let limit = asked.number("limit").unwrap_or(TOPICS);
        if limit == 0 || limit > MOST_TOPICS {
            return Err(wrong(format!("`limit`: choose between 1 and {MOST_TOPICS}")));
        }
        memory.notice().await;
        Answer::of(&told::trends(
            &memory.trends(days, limit, asked.one("about"), &|_, _, _| {}).await?,
        ))
    })
}

fn lookback(call: Call) -> Doing {
    Box::pin(async move {
        let memory = call.memory().await?;
        let date = call.query.one_day("date", memory.now().day())?;
        memory.notice().await;
        Answer::of(&told::lookback(&memory.lookback(date).await?))
    })
}

fn similar(call: Call) -> Doing {
    Box::pin(async move {
        let period = call.query.read("period", str::parse::<Period>)?;
        Answer::of(&told::similar(call.memory().await?.similar(period).await?.as_ref()))
    })
}

fn similar_merged(call: Call) -> Doing {
    Box::pin(async move {
        let period = call.query.read("period", str::parse::<Period>)?;
        let memory = call.memory().await?;
        let Some(alike) = memory.similar(period).await? else {
            return Err(Stop::new(
                Exit::NotFound,
                "nothing is summarized yet, so there is nothing to merge",
            )
            .into());
        };
        let budget = call.query.number("budget").unwrap_or(MERGED_BYTES);
        Answer::of(&told::alike_merged(&memory, &alike, budget).2)
    })
}
