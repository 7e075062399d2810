//! Looking across time: what comes up again, what was at this time before, what is like what.

use icecore_domain::summary::Period;

use super::call::{Answer, Call, wrong};
use super::route::{Doing, Field, Form, READ, Route};
use crate::error::{Exit, Stop};
use crate::told;

const GROUP: &str = "Across time";
/// Topics of one answer, if nobody says how many.
const TOPICS: usize = 20;
/// The most topics of one answer.
const MOST_TOPICS: usize = 1_000;

/// Bytes of a merged text, if nobody says how many.
const MERGED_BYTES: usize = 8_192;

/// The routes that look across time.
pub const ROUTES: &[Route] = &[
    Route::get(READ, "/api/trends", GROUP, "What came up again and again, by session and month", "Trends", trends)
        .query(&[
            Field::new("when", Form::When, "Of this time; the last twelve months if not given"),
            Field::text("about", "Only what comes up together with this"),
            Field::new("limit", Form::Number, "At most so many topics; 20 if not given"),
        ])
        .example("/api/trends?when=last%2090%20days&limit=5", None),
    Route::get(READ, "/api/lookback", GROUP, "What was a month, half a year and years before a day", "Lookback", lookback)
        .query(&[Field::new("date", Form::When, "From this day; today if not given")])
        .example("/api/lookback?date=yesterday", None),
    Route::get(READ, "/api/similar", GROUP, "The periods that were about the same things as one", "Similar", similar)
        .query(&[Field::text(
            "period",
            "Like this session, day, week, month or year; the latest week, else the latest month, if not given",
        )])
        .example("/api/similar?period=2026-W07", None),
    Route::get(READ, "/api/similar/merged", GROUP, "What a period and those like it say, each thing once", "SimilarMerged", similar_merged)
        .query(&[
            Field::text("period", "Like this one; the latest week, else the latest month, if not given"),
            Field::new("budget", Form::Between(512, 1_000_000), "At most so many bytes; 8192 if not given"),
        ])
        .example("/api/similar/merged?period=2026-W07", None),
];

fn trends(call: Call) -> Doing {
    Box::pin(async move {
        let memory = call.memory().await?;
        let (asked, today) = (&call.query, memory.now().day());
        let days = asked.when("when", today)?.map(|when| when.span());
        if let Some(days) = days.filter(|days| days.first > today) {
            return Err(wrong(format!("`when`: {days} has not come yet")));
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
                "nothing was pressed yet, so there is nothing to put together",
            )
            .into());
        };
        let budget = call.query.number("budget").unwrap_or(MERGED_BYTES);
        Answer::of(&told::alike_merged(&memory, &alike, budget).2)
    })
}
