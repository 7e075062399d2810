//! Overview and health: the day at a glance, run figures, reports, health.

use std::collections::BTreeMap;

use icecore_domain::calendar::Days;
use icecore_domain::ledger::Entry;
use icecore_domain::schedule;
use icecore_engine::{Figures, Memory};
use icecore_store::Weight;
use jiff::ToSpan;
use jiff::civil::Date;
use serde::Serialize;
use serde_json::{Value, json};

use super::call::{Answer, Call, wrong};
use super::route::{Doing, Field, Form, READ, Route};
use crate::error::{Exit, Stop};
use crate::told;

const GROUP: &str = "Home and health";
/// How many days ahead upcoming jobs are listed.
const AHEAD_DAYS: u16 = 2;
/// The default range of figures, in days.
const FIGURED_DAYS: i32 = 89;
/// The default number of jobs.
const JOBS: usize = 50;
/// The most jobs.
const MOST_JOBS: usize = 10_000;

/// The routes of overview and health.
pub const ROUTES: &[Route] = &[
    Route::get(
        READ,
        "/api/home",
        GROUP,
        "Today at a glance: recall pack, open commitments, conflicts, pending reviews, last nightly run, next jobs, model spend",
        "Home",
        home,
    ),
    Route::get(
        READ,
        "/api/runs/days",
        GROUP,
        "Rollup figures by day, one column per figure",
        "RunDays",
        figures,
    )
    .query(&[
        Field::new("from", Form::Day, "The first date; default 90 days ago"),
        Field::new("to", Form::Day, "The last date; default today"),
    ])
    .example("/api/runs/days?from=-30d", None),
    Route::get(READ, "/api/jobs/log", GROUP, "The jobs that ran, newest first", "JobLog", job_log)
        .query(&[Field::new("limit", Form::Between(1, MOST_JOBS), "Maximum number; default 50")])
        .example("/api/jobs/log?limit=10", None),
    Route::get(
        READ,
        "/api/reports",
        GROUP,
        "The reports of the nightly runs, newest first",
        "Reports",
        reports,
    ),
    Route::get(
        READ,
        "/api/reports/{date}",
        GROUP,
        "The report of a nightly run, as Markdown",
        "Report",
        report,
    )
    .example("/api/reports/2026-02-13", None),
    Route::get(
        READ,
        "/api/health",
        GROUP,
        "The health of the vault: integrity as last verified, coverage, index, disk, schedule, models",
        "Health",
        health,
    ),
];

/// An open commitment with its age.
#[derive(Serialize)]
struct Open {
    age_days: i64,
    due_in_days: Option<i64>,
    #[serde(flatten)]
    entry: Entry,
}

async fn last_report(memory: &Memory, date: Option<&str>) -> anyhow::Result<Option<Value>> {
    let found =
        memory.reports().await?.into_iter().find(|(day, ..)| date.is_none_or(|date| day == date));
    let Some((date, path, _)) = found else { return Ok(None) };
    let text = memory.store().document(&path).await?.unwrap_or_default();
    Ok(Some(json!({ "date": date, "path": path.as_str(), "text": String::from_utf8_lossy(&text) })))
}

fn home(call: Call) -> Doing {
    Box::pin(async move {
        let memory = call.memory().await?;
        memory.notice().await;
        let status = memory.status().await?;
        let today = memory.now().day();
        let open: Vec<Open> = memory
            .commitments()
            .await?
            .into_iter()
            .map(|entry| Open {
                age_days: memory.age_days(entry.event.ts.day()),
                due_in_days: entry.event.due.map(|due| -memory.age_days(due)),
                entry,
            })
            .collect();
        let conflicts = memory.conflicts().await?;
        let (spent, models) = (memory.spent(today).await?, call.api.spaces.models());
        let place = call.api.spaces.place(call.user.as_deref());
        // Serialized field by field: a JSON tree would sort the fields of other programs.
        let parts = [
            ("status", serde_json::to_string(&told::status(&place, &status))?),
            ("recall", serde_json::to_string(&memory.pack_recall(None, &[]).await?)?),
            ("open", serde_json::to_string(&open)?),
            ("conflicts", serde_json::to_string(&told::conflicts(&conflicts))?),
            ("reviews", serde_json::to_string(&memory.reviews().await?)?),
            ("waiting", memory.quarantine(&icecore_engine::Held::default()).await?.len().to_string()),
            ("night", serde_json::to_string(&last_report(&memory, None).await?)?),
            ("jobs", serde_json::to_string(&told::jobs(&told::plan(&memory).await?)["jobs"])?),
            ("next", serde_json::to_string(&told::calendar(&memory.upcoming(AHEAD_DAYS)?))?),
            ("spend", json!({ "spent": spent, "total": spent.total(), "ceiling": models.settings.spend.tokens_per_day }).to_string()),
            ("model", serde_json::to_string(&models.summarizer.as_ref().map(|llm| llm.name()))?),
        ];
        let parts: Vec<String> =
            parts.iter().map(|(name, value)| format!("\"{name}\":{value}")).collect();
        Ok(Answer::json(format!("{{{}}}", parts.join(","))))
    })
}

/// One column per figure.
#[derive(Default, Serialize)]
struct Columns {
    day: Vec<String>,
    runs: Vec<usize>,
    refused: Vec<usize>,
    bytes_in: Vec<u64>,
    bytes_out: Vec<u64>,
    ratio: Vec<Option<f64>>,
    millis: Vec<u64>,
    tokens_in: Vec<u64>,
    tokens_out: Vec<u64>,
    asked: Vec<usize>,
    ceiling: u64,
}

fn columns(all: &BTreeMap<Date, Figures>, ceiling: u64) -> Columns {
    let mut columns = Columns { ceiling, ..Columns::default() };
    for (day, figures) in all {
        #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
        let ratio = (figures.bytes_out > 0)
            .then(|| (figures.bytes_in as f64 / figures.bytes_out as f64 * 10.0).round() / 10.0);
        columns.day.push(day.to_string());
        columns.runs.push(figures.runs);
        columns.refused.push(figures.refused);
        columns.bytes_in.push(figures.bytes_in);
        columns.bytes_out.push(figures.bytes_out);
        columns.ratio.push(ratio);
        columns.millis.push(figures.millis);
        columns.tokens_in.push(figures.tokens_in);
        columns.tokens_out.push(figures.tokens_out);
        columns.asked.push(figures.asked);
    }
    columns
}

fn figures(call: Call) -> Doing {
    Box::pin(async move {
        let memory = call.memory().await?;
        let today = memory.now().day();
        let last = call.query.day("to", today)?.unwrap_or(today);
        let first = call
            .query
            .day("from", today)?
            .unwrap_or_else(|| last.checked_sub(FIGURED_DAYS.days()).unwrap_or(last));
        if first > last {
            return Err(wrong("`from` is after `to`"));
        }
        let ceiling = call.api.spaces.models().settings.spend.tokens_per_day;
        Answer::of(&columns(&memory.figures(Days { first, last }).await?, ceiling))
    })
}

fn job_log(call: Call) -> Doing {
    Box::pin(async move {
        Answer::named(
            "jobs",
            &call.memory().await?.jobs_ran(call.query.number("limit").unwrap_or(JOBS)).await?,
        )
    })
}

fn reports(call: Call) -> Doing {
    Box::pin(async move {
        let all = call.memory().await?.reports().await?;
        let told = all.iter().map(
            |(date, path, bytes)| json!({ "date": date, "path": path.as_str(), "bytes": bytes }),
        );
        Answer::named("reports", &told.collect::<Vec<_>>())
    })
}

fn report(call: Call) -> Doing {
    Box::pin(async move {
        let date = call.path("date");
        date.parse::<Date>().map_err(|_| wrong("`date` must be a date such as 2026-02-13"))?;
        match last_report(call.memory().await?.as_ref(), Some(date)).await? {
            Some(report) => Answer::of(&report),
            None => Err(Stop::new(
                Exit::NotFound,
                format!("there is no report of {date}; GET /api/reports lists them"),
            )
            .into()),
        }
    })
}

fn weight(weight: &Weight) -> Value {
    json!({ "part": weight.part, "files": weight.files, "bytes": weight.bytes })
}

fn health(call: Call) -> Doing {
    Box::pin(async move {
        let memory = call.memory().await?;
        let (status, coverage) = (memory.status().await?, memory.coverage().await?);
        let (embedded, disk) = (memory.embedded().await?, memory.store().weights().await?);
        let models = call.api.spaces.models();
        let (chat, looks_back) = (&models.settings.chat, schedule::LOOK_BACK_DAYS);
        Answer::of(&json!({
            "now": status.now,
            "integrity": status.integrity,
            "wrong": status.wrong,
            "coverage": coverage,
            "index": { "passages": embedded.of, "vectors": embedded.have, "meanings": call.api.embedder().is_some() },
            "disk": { "parts": disk.iter().map(weight).collect::<Vec<_>>(), "bytes": disk.iter().map(|part| part.bytes).sum::<u64>() },
            "jobs": told::jobs(&told::plan(&memory).await?)["jobs"],
            "looks_back_days": looks_back,
            "hooks": memory.hook_troubles().await?,
            "models": {
                "summarizer": models.summarizer.as_ref().map(|llm| llm.name()),
                "chat": (!chat.model.is_empty()).then_some(&chat.model),
            },
            "version": env!("CARGO_PKG_VERSION"),
        }))
    })
}
