//! Jobs: the schedule, running jobs, and their results.

use icecore_domain::schedule;
use icecore_domain::summary::{Importance, Period, Tier};
use icecore_engine::{EMBED_IN_A_NIGHT, Settle, Wish};
use serde_json::json;

use super::call::{Answer, Call, Given, wrong};
use super::route::{Body, Doing, Field, Form, READ, Route, WRITE};
use crate::told;

const GROUP: &str = "Jobs";
const SETTLE: Form = Form::Word(|| vec!["accept", "edit", "retry"]);
const MARK: Form = Form::Word(|| vec!["important", "dull", "none"]);
const TIER: Form = Form::Word(|| Tier::ALL.iter().map(|tier| tier.word()).collect());
const PRESS: &[Field] = &[
    Field::new("tier", TIER, "Only this tier"),
    Field::text(
        "period",
        "Only this period, whether it is due or not: 2026-02-13, 2026-W07, 2026-02, 2026, or a session",
    ),
];
const DAYS: &[Field] = &[Field::new("days", Form::Between(1, 400), "Days ahead; default 14")];
/// The default number of calendar days.
const CALENDAR_DAYS: u16 = 14;
const JOB: Form = Form::Word(|| vec!["rollup", "consolidate"]);
/// The default number of runs.
const RUNS: usize = 20;
/// The most runs.
const MOST_RUNS: usize = 10_000;

/// The routes of jobs.
pub const ROUTES: &[Route] = &[
    Route::get(READ, "/api/jobs", GROUP, "When each job runs, and what is due", "Jobs", jobs),
    Route::post(
        WRITE,
        "/api/jobs/run",
        GROUP,
        "Summarize what is due, or consolidate; responds when it is done",
        "Ran",
        run,
    )
    .body(Body::One(&[Field::new(
        "job",
        JOB,
        "rollup: summarize what is due; consolidate: run the nightly job now",
    )
    .must()]))
    .example("/api/jobs/run", Some(r#"{"job":"rollup"}"#)),
    Route::get(READ, "/api/calendar", GROUP, "The jobs of the next days", "Calendar", calendar)
        .query(DAYS)
        .example("/api/calendar?days=30", None),
    Route::get(
        READ,
        "/api/calendar/ics",
        GROUP,
        "The jobs of the next days as an iCalendar file",
        "Ics",
        ics,
    )
    .query(DAYS)
    .example("/api/calendar/ics?days=30", None),
    Route::get(READ, "/api/rollup", GROUP, "What a rollup would do now", "Outlook", outlook)
        .query(PRESS)
        .example("/api/rollup?tier=week", None),
    Route::post(
        WRITE,
        "/api/rollup",
        GROUP,
        "Summarize one tier or one period now; POST /api/jobs/run summarizes what is due",
        "RolledUp",
        rollup,
    )
    .body(Body::One(PRESS))
    .example("/api/rollup", Some(r#"{"tier":"session"}"#)),
    Route::post(
        WRITE,
        "/api/backfill",
        GROUP,
        "Summarize the past, newest first, until it is done or the day's tokens are spent",
        "Backfilled",
        backfill,
    )
    .body(Body::One(&[]))
    .example("/api/backfill", Some("{}")),
    Route::get(
        READ,
        "/api/consolidate",
        GROUP,
        "What the nightly job would do now; POST /api/jobs/run runs it",
        "NightOutlook",
        night_outlook,
    ),
    Route::get(
        READ,
        "/api/compact",
        GROUP,
        "The events that compaction would archive",
        "CompactedNow",
        would_compact,
    ),
    Route::post(
        WRITE,
        "/api/compact",
        GROUP,
        "Compact the ledger: replace each finished chain by one event and archive the old lines",
        "CompactedNow",
        compact,
    )
    .body(Body::One(&[]))
    .example("/api/compact", Some("{}")),
    Route::get(
        READ,
        "/api/prune",
        GROUP,
        "The expired events that would be archived",
        "Pruned",
        would_prune,
    ),
    Route::post(WRITE, "/api/prune", GROUP, "Archive expired events", "Pruned", prune)
        .body(Body::One(&[]))
        .example("/api/prune", Some("{}")),
    Route::get(READ, "/api/runs", GROUP, "The rollup runs, with their cost", "Runs", runs)
        .query(&[Field::new("limit", Form::Number, "Maximum number; default 20")])
        .example("/api/runs?limit=5", None),
    Route::get(
        READ,
        "/api/reviews",
        GROUP,
        "Rejected summary drafts that wait for review",
        "Reviews",
        reviews,
    ),
    Route::post(
        WRITE,
        "/api/reviews/{period}",
        GROUP,
        "Resolve a rejected draft: accept it, edit it, or retry",
        "Settled",
        settle,
    )
    .body(Body::One(&[
        Field::new(
            "settle",
            SETTLE,
            "accept: use the draft; edit: use `text` instead; retry: ask the model again",
        )
        .must(),
        Field::text("text", "For edit: a few sentences, a blank line, the rest"),
    ]))
    .example("/api/reviews/2026-W07", Some(r#"{"settle":"retry"}"#)),
    Route::post(
        WRITE,
        "/api/marks",
        GROUP,
        "Mark a day as important or dull, which changes how much of it is summarized",
        "Marked",
        mark,
    )
    .body(Body::One(&[
        Field::new("date", Form::When, "The date").must(),
        Field::new("mark", MARK, "The mark; none removes it").must(),
    ]))
    .example("/api/marks", Some(r#"{"date":"yesterday","mark":"important"}"#)),
    Route::post(
        WRITE,
        "/api/verify",
        GROUP,
        "Verify everything: ids, references, the index, earlier checksums",
        "Verdict",
        verify,
    )
    .body(Body::One(&[]))
    .example("/api/verify", Some("{}")),
];

fn jobs(call: Call) -> Doing {
    Box::pin(
        async move { Answer::of(&told::jobs(&told::plan(call.memory().await?.as_ref()).await?)) },
    )
}

fn run(call: Call) -> Doing {
    Box::pin(async move {
        let job = call.body()?.text("job").unwrap_or_default();
        let models = call.api.spaces.models();
        let (asking, watch) = (models.asking(), |_: &str, _: usize, _: usize| {});
        let ran = match job.as_str() {
            "rollup" => call.memory().await?.run_due(asking.as_ref(), &watch).await?,
            "consolidate" => call.memory().await?.consolidate(asking.as_ref(), &watch).await?,
            _ => return Err(wrong("`job`: choose rollup or consolidate")),
        };
        // The job is done; an embedding error must not make it look failed.
        if let Some(model) = call.api.embedder()
            && let Err(error) =
                call.memory().await?.embed_passages(model, EMBED_IN_A_NIGHT, &|_, _| {}).await
        {
            (call.api.log)(&format!("new passages could not be embedded: {error}"));
        }
        Answer::of(&ran)
    })
}

fn runs(call: Call) -> Doing {
    Box::pin(async move {
        let limit = call.query.number("limit").unwrap_or(RUNS);
        if limit > MOST_RUNS {
            return Err(wrong(format!("`limit`: choose at most {MOST_RUNS}")));
        }
        let ceiling = call.api.spaces.models().settings.spend.tokens_per_day;
        Answer::of(&told::runs(call.memory().await?.as_ref(), limit, ceiling).await?)
    })
}

fn reviews(call: Call) -> Doing {
    Box::pin(async move { Answer::named("reviews", &call.memory().await?.reviews().await?) })
}

fn settle(call: Call) -> Doing {
    Box::pin(async move {
        let (period, said) = (
            call.path("period").parse::<Period>().map_err(|error| wrong(error.to_string()))?,
            call.body()?,
        );
        let settle = match (said.one("settle"), said.text("text")) {
            (Some("accept"), None) => Settle::Accept,
            (Some("retry"), None) => Settle::Retry,
            (Some("edit"), Some(text)) => Settle::Edit(text),
            (Some("edit"), None) => {
                return Err(wrong("`text` is missing: the new summary"));
            }
            (Some("accept" | "retry"), Some(_)) => {
                return Err(wrong("`text` is only for `edit`; omit it"));
            }
            _ => return Err(wrong("`settle`: choose accept, edit or retry")),
        };
        let kept = call.memory().await?.settle_review(period, settle).await?;
        Answer::of(&json!({ "period": period, "version": kept.map(|summary| summary.version) }))
    })
}

fn mark(call: Call) -> Doing {
    Box::pin(async move {
        let (memory, said) = (call.memory().await?, call.body()?);
        let importance = said.read("mark", |text| match text {
            "none" => Ok(None),
            "important" => Ok(Some(Importance::Important)),
            "dull" => Ok(Some(Importance::Dull)),
            _ => Err("choose important, dull or none"),
        })?;
        let (Some(day), Some(importance)) = (said.one_day("date", memory.now().day())?, importance)
        else {
            return Err(wrong("`date` and `mark` are needed"));
        };
        memory.mark(day, importance).await?;
        Answer::of(
            &json!({ "days": [day.to_string()], "mark": importance.map_or("none", Importance::word) }),
        )
    })
}

fn verify(call: Call) -> Doing {
    Box::pin(async move { Answer::of(&told::verdict(&call.memory().await?.verify().await?)) })
}

fn ahead(call: &Call) -> u16 {
    call.query.number("days").and_then(|days| u16::try_from(days).ok()).unwrap_or(CALENDAR_DAYS)
}

fn calendar(call: Call) -> Doing {
    Box::pin(async move {
        Answer::named("calendar", &told::calendar(&call.memory().await?.upcoming(ahead(&call))?))
    })
}

fn ics(call: Call) -> Doing {
    Box::pin(async move {
        let memory = call.memory().await?;
        let name = call.api.spaces.place(call.user.as_deref()).title();
        Answer::named(
            "ics",
            &schedule::ics(&name, &memory.upcoming(ahead(&call))?, memory.now().at()),
        )
    })
}

fn wish(given: &Given) -> anyhow::Result<(Wish, Option<Period>)> {
    let period = given.read("period", str::parse::<Period>)?;
    Ok((Wish::of(given.read("tier", str::parse::<Tier>)?, period).map_err(wrong)?, period))
}

fn outlook(call: Call) -> Doing {
    Box::pin(async move {
        let (wish, _) = wish(&call.query)?;
        Answer::of(
            &call
                .memory()
                .await?
                .outlook(&wish, call.api.spaces.models().summarizer.is_some())
                .await?,
        )
    })
}

fn rollup(call: Call) -> Doing {
    Box::pin(async move {
        let (wish, period) = wish(call.body()?)?;
        if wish.tier.is_none() {
            return Err(wrong(
                "`tier` or `period` is missing: what to summarize. POST /api/jobs/run summarizes everything that is due",
            ));
        }
        let (memory, models) = (call.memory().await?, call.api.spaces.models());
        let rolled = memory.roll(&wish, models.asking().as_ref(), &|_, _, _| {}).await?;
        if let Some(period) =
            period.filter(|period| rolled.is_idle() && wish.tier == Some(period.tier()))
            && memory.newest_summary(period).await?.is_none()
        {
            return Err(told::nothing_said(period).into());
        }
        Answer::named("rolled", &rolled)
    })
}

fn backfill(call: Call) -> Doing {
    Box::pin(async move {
        let models = call.api.spaces.models();
        Answer::of(&call.memory().await?.backfill(models.asking().as_ref(), &|_, _, _| {}).await?)
    })
}

fn night_outlook(call: Call) -> Doing {
    Box::pin(async move {
        let has_model = call.api.spaces.models().summarizer.is_some();
        Answer::of(&call.memory().await?.consolidation_outlook(has_model).await?)
    })
}

fn would_compact(call: Call) -> Doing {
    Box::pin(async move {
        Answer::named("compacted", &call.memory().await?.compaction_outlook(false).await?)
    })
}

fn compact(call: Call) -> Doing {
    Box::pin(async move { Answer::named("compacted", &call.memory().await?.compact().await?) })
}

fn would_prune(call: Call) -> Doing {
    Box::pin(async move {
        Answer::named("pruned", &call.memory().await?.compaction_outlook(true).await?)
    })
}

fn prune(call: Call) -> Doing {
    Box::pin(async move { Answer::named("pruned", &call.memory().await?.prune().await?) })
}
