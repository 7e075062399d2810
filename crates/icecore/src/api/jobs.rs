//! Jobs: the schedule, running jobs, and their results.

use icecore_domain::schedule;
use icecore_domain::summary::{Importance, Period, Tier};
use icecore_engine::{EMBED_NIGHTLY_PASSAGES, ReviewDecision, RollupRequest};
use serde_json::json;

use super::call::{ApiAnswer, ApiCall, ParsedInput, usage_error};
use super::route::{
    BodySpec, HandlerFuture, InputField, PERIOD_TYPE, READ, RouteSpec, ValueType, WRITE,
};
use crate::json_output;

const GROUP: &str = "Jobs";
const REVIEW_ACTION_TYPE: ValueType = ValueType::Word(|| vec!["accept", "edit", "retry"]);
const MARK_TYPE: ValueType = ValueType::Word(|| vec!["important", "dull", "none"]);
const TIER_TYPE: ValueType = ValueType::Word(|| Tier::ALL.iter().map(|tier| tier.word()).collect());
const ROLLUP_FIELDS: &[InputField] = &[
    InputField::new("tier", TIER_TYPE, "Only this tier"),
    InputField::new(
        "period",
        PERIOD_TYPE,
        "Only this period, whether it is due or not: 2026-02-13, 2026-W07, 2026-02, 2026, or a session",
    ),
];
const DAYS_FIELD: &[InputField] =
    &[InputField::new("days", ValueType::Between(1, 400), "Days ahead; default 14")];
/// The default number of calendar days.
const DEFAULT_CALENDAR_DAYS: u16 = 14;
const JOB_TYPE: ValueType = ValueType::Word(|| vec!["rollup", "consolidate"]);
/// The default number of runs.
const DEFAULT_RUNS: usize = 20;
/// The most runs.
const MAX_RUNS: usize = 10_000;

/// The routes of jobs.
pub const ROUTES: &[RouteSpec] = &[
    RouteSpec::get(
        READ,
        "/api/jobs",
        GROUP,
        "When each job runs, and what is due",
        "Jobs",
        list_jobs,
    ),
    RouteSpec::post(
        WRITE,
        "/api/jobs/run",
        GROUP,
        "Summarize what is due, or consolidate; responds when it is done",
        "JobResults",
        run_job,
    )
    .body(BodySpec::One(&[InputField::new(
        "job",
        JOB_TYPE,
        "rollup: summarize what is due; consolidate: run the nightly job now",
    )
    .require()]))
    .example("/api/jobs/run", Some(r#"{"job":"rollup"}"#)),
    RouteSpec::get(
        READ,
        "/api/calendar",
        GROUP,
        "The jobs of the next days",
        "Calendar",
        list_upcoming,
    )
    .query(DAYS_FIELD)
    .example("/api/calendar?days=30", None),
    RouteSpec::get(
        READ,
        "/api/calendar/ics",
        GROUP,
        "The jobs of the next days as an iCalendar file",
        "CalendarFile",
        calendar_ics,
    )
    .query(DAYS_FIELD)
    .example("/api/calendar/ics?days=30", None),
    RouteSpec::get(
        READ,
        "/api/rollup",
        GROUP,
        "What a rollup would do now",
        "RollupPlan",
        rollup_outlook,
    )
    .query(ROLLUP_FIELDS)
    .example("/api/rollup?tier=week", None),
    RouteSpec::post(
        WRITE,
        "/api/rollup",
        GROUP,
        "Summarize one tier or one period now; POST /api/jobs/run summarizes what is due",
        "RollupResult",
        run_rollup,
    )
    .body(BodySpec::One(ROLLUP_FIELDS))
    .example("/api/rollup", Some(r#"{"tier":"session"}"#)),
    RouteSpec::post(
        WRITE,
        "/api/backfill",
        GROUP,
        "Summarize the past, newest first, until it is done or the day's tokens are spent",
        "BackfillReport",
        backfill,
    )
    .body(BodySpec::One(&[]))
    .example("/api/backfill", Some("{}")),
    RouteSpec::get(
        READ,
        "/api/consolidate",
        GROUP,
        "What the nightly job would do now; POST /api/jobs/run runs it",
        "ConsolidationPlan",
        night_outlook,
    ),
    RouteSpec::get(
        READ,
        "/api/compact",
        GROUP,
        "The events that compaction would archive",
        "CompactionResult",
        compaction_outlook,
    ),
    RouteSpec::post(
        WRITE,
        "/api/compact",
        GROUP,
        "Compact the ledger: replace each finished chain by one event and archive the old lines",
        "CompactionResult",
        run_compaction,
    )
    .body(BodySpec::One(&[]))
    .example("/api/compact", Some("{}")),
    RouteSpec::get(
        READ,
        "/api/prune",
        GROUP,
        "The expired events that would be archived",
        "PruneResult",
        prune_outlook,
    ),
    RouteSpec::post(WRITE, "/api/prune", GROUP, "Archive expired events", "PruneResult", run_prune)
        .body(BodySpec::One(&[]))
        .example("/api/prune", Some("{}")),
    RouteSpec::get(READ, "/api/runs", GROUP, "The rollup runs, with their cost", "Runs", list_runs)
        .query(&[InputField::new(
            "limit",
            ValueType::Between(0, MAX_RUNS),
            "Maximum number; default 20",
        )])
        .example("/api/runs?limit=5", None),
    RouteSpec::get(
        READ,
        "/api/reviews",
        GROUP,
        "Rejected summary drafts that wait for review",
        "Reviews",
        list_reviews,
    ),
    RouteSpec::post(
        WRITE,
        "/api/reviews/{period}",
        GROUP,
        "Resolve a rejected draft: accept it, edit it, or retry",
        "ReviewResult",
        resolve_review,
    )
    .body(BodySpec::One(&[
        InputField::new(
            "settle",
            REVIEW_ACTION_TYPE,
            "accept: use the draft; edit: use `text` instead; retry: ask the model again",
        )
        .require(),
        InputField::text("text", "For edit: a few sentences, a blank line, the rest"),
    ]))
    .example("/api/reviews/2026-W07", Some(r#"{"settle":"retry"}"#)),
    RouteSpec::post(
        WRITE,
        "/api/marks",
        GROUP,
        "Mark a day as important or dull, which changes how much of it is summarized",
        "DayMarks",
        mark_day,
    )
    .body(BodySpec::One(&[
        InputField::new("date", ValueType::When, "The date").require(),
        InputField::new("mark", MARK_TYPE, "The mark; none removes it").require(),
    ]))
    .example("/api/marks", Some(r#"{"date":"yesterday","mark":"important"}"#)),
    RouteSpec::post(
        WRITE,
        "/api/verify",
        GROUP,
        "Verify everything: ids, references, the index, earlier checksums",
        "IntegrityReport",
        verify,
    )
    .body(BodySpec::One(&[]))
    .example("/api/verify", Some("{}")),
];

fn list_jobs(call: ApiCall) -> HandlerFuture {
    Box::pin(async move {
        ApiAnswer::from_value(&json_output::jobs(
            &json_output::plan_jobs(call.open_memory().await?.as_ref()).await?,
        ))
    })
}

fn run_job(call: ApiCall) -> HandlerFuture {
    Box::pin(async move {
        let job = call.body()?.get_owned("job").unwrap_or_default();
        let models = call.api.spaces.models();
        let (asking, watch) = (models.model_budget(), |_: &str, _: usize, _: usize| {});
        let ran = match job.as_str() {
            "rollup" => call.open_memory().await?.run_due_jobs(asking.as_ref(), &watch).await?,
            "consolidate" => {
                call.open_memory().await?.consolidate_now(asking.as_ref(), &watch).await?
            }
            _ => return Err(usage_error("`job`: choose rollup or consolidate")),
        };
        // The job is done; an embedding error must not make it look failed.
        if let Some(model) = call.api.embedder()
            && let Err(error) = call
                .open_memory()
                .await?
                .embed_passages(model, EMBED_NIGHTLY_PASSAGES, &|_, _| {})
                .await
        {
            (call.api.log)(&format!("new passages could not be embedded: {error}"));
        }
        ApiAnswer::from_value(&ran)
    })
}

fn list_runs(call: ApiCall) -> HandlerFuture {
    Box::pin(async move {
        let limit = call.query.get_number("limit").unwrap_or(DEFAULT_RUNS);
        let ceiling = call.api.spaces.models().settings.spend.tokens_per_day;
        ApiAnswer::from_value(
            &json_output::read_runs(call.open_memory().await?.as_ref(), limit, ceiling).await?,
        )
    })
}

fn list_reviews(call: ApiCall) -> HandlerFuture {
    Box::pin(async move {
        ApiAnswer::with_key("reviews", &call.open_memory().await?.list_pending_reviews().await?)
    })
}

fn resolve_review(call: ApiCall) -> HandlerFuture {
    Box::pin(async move {
        let (period, said) = (
            call.path_param("period")
                .parse::<Period>()
                .map_err(|error| usage_error(error.to_string()))?,
            call.body()?,
        );
        let settle = match (said.get("settle"), said.get_owned("text")) {
            (Some("accept"), None) => ReviewDecision::Accept,
            (Some("retry"), None) => ReviewDecision::Retry,
            (Some("edit"), Some(text)) => ReviewDecision::Edit(text),
            (Some("edit"), None) => {
                return Err(usage_error("`text` is missing: the new summary"));
            }
            (Some("accept" | "retry"), Some(_)) => {
                return Err(usage_error("`text` is only for `edit`; omit it"));
            }
            _ => return Err(usage_error("`settle`: choose accept, edit or retry")),
        };
        let kept = call.open_memory().await?.settle_review(period, settle).await?;
        ApiAnswer::from_value(
            &json!({ "period": period, "version": kept.map(|summary| summary.version) }),
        )
    })
}

fn mark_day(call: ApiCall) -> HandlerFuture {
    Box::pin(async move {
        let (memory, said) = (call.open_memory().await?, call.body()?);
        let importance = said.parse_field("mark", |text| match text {
            "none" => Ok(None),
            "important" => Ok(Some(Importance::Important)),
            "dull" => Ok(Some(Importance::Dull)),
            _ => Err("choose important, dull or none"),
        })?;
        let (Some(day), Some(importance)) =
            (said.get_single_day("date", memory.now().day())?, importance)
        else {
            return Err(usage_error("`date` and `mark` are needed"));
        };
        memory.set_importance(day, importance).await?;
        ApiAnswer::from_value(
            &json!({ "days": [day.to_string()], "mark": importance.map_or("none", Importance::word) }),
        )
    })
}

fn verify(call: ApiCall) -> HandlerFuture {
    Box::pin(async move {
        ApiAnswer::from_value(&json_output::verdict(&call.open_memory().await?.verify().await?))
    })
}

fn days_ahead(call: &ApiCall) -> u16 {
    call.query
        .get_number("days")
        .and_then(|days| u16::try_from(days).ok())
        .unwrap_or(DEFAULT_CALENDAR_DAYS)
}

fn list_upcoming(call: ApiCall) -> HandlerFuture {
    Box::pin(async move {
        ApiAnswer::with_key(
            "calendar",
            &json_output::calendar(&call.open_memory().await?.upcoming_jobs(days_ahead(&call))?),
        )
    })
}

fn calendar_ics(call: ApiCall) -> HandlerFuture {
    Box::pin(async move {
        let memory = call.open_memory().await?;
        let name = call.api.spaces.location_of(call.user.as_deref()).title();
        ApiAnswer::with_key(
            "ics",
            &schedule::render_ics(
                &name,
                &memory.upcoming_jobs(days_ahead(&call))?,
                memory.now().timestamp(),
            ),
        )
    })
}

fn rollup_request(input: &ParsedInput) -> anyhow::Result<(RollupRequest, Option<Period>)> {
    let period = input.parse_field("period", str::parse::<Period>)?;
    Ok((
        RollupRequest::for_period(input.parse_field("tier", str::parse::<Tier>)?, period)
            .map_err(usage_error)?,
        period,
    ))
}

fn rollup_outlook(call: ApiCall) -> HandlerFuture {
    Box::pin(async move {
        let (wish, _) = rollup_request(&call.query)?;
        ApiAnswer::from_value(
            &call
                .open_memory()
                .await?
                .plan_rollup(&wish, call.api.spaces.models().summarizer.is_some())
                .await?,
        )
    })
}

fn run_rollup(call: ApiCall) -> HandlerFuture {
    Box::pin(async move {
        let (wish, period) = rollup_request(call.body()?)?;
        if wish.tier.is_none() {
            return Err(usage_error(
                "`tier` or `period` is missing: what to summarize. POST /api/jobs/run summarizes everything that is due",
            ));
        }
        let (memory, models) = (call.open_memory().await?, call.api.spaces.models());
        let rolled =
            memory.run_rollup(&wish, models.model_budget().as_ref(), &|_, _, _| {}).await?;
        if let Some(period) =
            period.filter(|period| rolled.is_idle() && wish.tier == Some(period.tier()))
            && memory.find_newest_summary(period).await?.is_none()
        {
            return Err(json_output::nothing_to_summarize(period).into());
        }
        ApiAnswer::with_key("rolled", &rolled)
    })
}

fn backfill(call: ApiCall) -> HandlerFuture {
    Box::pin(async move {
        let models = call.api.spaces.models();
        ApiAnswer::from_value(
            &call
                .open_memory()
                .await?
                .backfill(models.model_budget().as_ref(), &|_, _, _| {})
                .await?,
        )
    })
}

fn night_outlook(call: ApiCall) -> HandlerFuture {
    Box::pin(async move {
        let has_model = call.api.spaces.models().summarizer.is_some();
        ApiAnswer::from_value(&call.open_memory().await?.preview_consolidation(has_model).await?)
    })
}

fn compaction_outlook(call: ApiCall) -> HandlerFuture {
    Box::pin(async move {
        ApiAnswer::with_key(
            "compacted",
            &call.open_memory().await?.preview_compaction(false).await?,
        )
    })
}

fn run_compaction(call: ApiCall) -> HandlerFuture {
    Box::pin(async move {
        ApiAnswer::with_key("compacted", &call.open_memory().await?.compact_ledger().await?)
    })
}

fn prune_outlook(call: ApiCall) -> HandlerFuture {
    Box::pin(async move {
        ApiAnswer::with_key("pruned", &call.open_memory().await?.preview_compaction(true).await?)
    })
}

fn run_prune(call: ApiCall) -> HandlerFuture {
    Box::pin(async move {
        ApiAnswer::with_key("pruned", &call.open_memory().await?.prune_ledger().await?)
    })
}
