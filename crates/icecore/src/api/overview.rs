//! Overview and health: the day at a glance, run figures, reports, health.

use std::collections::BTreeMap;

use icecore_domain::calendar::Days;
use icecore_domain::ledger::LedgerEntry;
use icecore_domain::schedule;
use icecore_engine::{DailyFigures, Memory};
use icecore_store::DiskUsage;
use jiff::ToSpan;
use jiff::civil::Date;
use serde::Serialize;
use serde_json::{Value, json};

use super::call::{ApiAnswer, ApiCall, usage_error};
use super::route::{HandlerFuture, InputField, READ, RouteSpec, ValueType};
use crate::error::{AppError, Exit};
use crate::json_output;

const GROUP: &str = "Home and health";
/// How many days ahead upcoming jobs are listed.
const UPCOMING_DAYS: u16 = 2;
/// The default range of figures, in days.
const DEFAULT_FIGURE_DAYS: i32 = 89;
/// The default number of jobs.
const DEFAULT_JOBS: usize = 50;
/// The most jobs.
const MAX_JOBS: usize = 10_000;

/// The routes of overview and health.
pub const ROUTES: &[RouteSpec] = &[
    RouteSpec::get(
        READ,
        "/api/home",
        GROUP,
        "Today at a glance: recall pack, open commitments, conflicts, pending reviews, last nightly run, next jobs, model spend",
        "Home",
        overview,
    ),
    RouteSpec::get(
        READ,
        "/api/runs/days",
        GROUP,
        "Rollup figures by day, one column per figure",
        "RunDays",
        daily_figures,
    )
    .query(&[
        InputField::new("from", ValueType::Day, "The first date; default 90 days ago"),
        InputField::new("to", ValueType::Day, "The last date; default today"),
    ])
    .example("/api/runs/days?from=-30d", None),
    RouteSpec::get(
        READ,
        "/api/jobs/log",
        GROUP,
        "The jobs that ran, newest first",
        "JobLog",
        list_job_runs,
    )
    .query(&[InputField::new(
        "limit",
        ValueType::Between(1, MAX_JOBS),
        "Maximum number; default 50",
    )])
    .example("/api/jobs/log?limit=10", None),
    RouteSpec::get(
        READ,
        "/api/reports",
        GROUP,
        "The reports of the nightly runs, newest first",
        "Reports",
        list_reports,
    ),
    RouteSpec::get(
        READ,
        "/api/reports/{date}",
        GROUP,
        "The report of a nightly run, as Markdown",
        "Report",
        show_report,
    )
    .example("/api/reports/2026-02-13", None),
    RouteSpec::get(
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
struct OpenCommitment {
    age_days: i64,
    due_in_days: Option<i64>,
    #[serde(flatten)]
    entry: LedgerEntry,
}

async fn find_report(memory: &Memory, date: Option<&str>) -> anyhow::Result<Option<Value>> {
    let found = memory
        .list_consolidation_reports()
        .await?
        .into_iter()
        .find(|(day, ..)| date.is_none_or(|date| day == date));
    let Some((date, path, _)) = found else { return Ok(None) };
    let text = memory.store().document(&path).await?.unwrap_or_default();
    Ok(Some(json!({ "date": date, "path": path.as_str(), "text": String::from_utf8_lossy(&text) })))
}

fn overview(call: ApiCall) -> HandlerFuture {
    Box::pin(async move {
        let memory = call.open_memory().await?;
        memory.scan_recent_logs().await;
        let status = memory.load_status().await?;
        let today = memory.now().day();
        let open: Vec<OpenCommitment> = memory
            .list_open_commitments()
            .await?
            .into_iter()
            .map(|entry| OpenCommitment {
                age_days: memory.days_since(entry.event.ts.day()),
                due_in_days: entry.event.due.map(|due| -memory.days_since(due)),
                entry,
            })
            .collect();
        let conflicts = memory.list_conflicts().await?;
        let (spent, models) = (memory.load_daily_spend(today).await?, call.api.spaces.models());
        let place = call.api.spaces.location_of(call.user.as_deref());
        // Serialized field by field: a JSON tree would sort the fields of other programs.
        let parts = [
            ("status", serde_json::to_string(&json_output::status(&place, &status))?),
            ("recall", serde_json::to_string(&memory.build_recall_pack(None, &[]).await?)?),
            ("open", serde_json::to_string(&open)?),
            ("conflicts", serde_json::to_string(&json_output::conflicts(&conflicts))?),
            ("reviews", serde_json::to_string(&memory.list_pending_reviews().await?)?),
            ("waiting", memory.list_quarantined(&icecore_engine::QuarantineFilter::default()).await?.len().to_string()),
            ("night", serde_json::to_string(&find_report(&memory, None).await?)?),
            ("jobs", serde_json::to_string(&json_output::jobs(&json_output::plan_jobs(&memory).await?)["jobs"])?),
            ("next", serde_json::to_string(&json_output::calendar(&memory.upcoming_jobs(UPCOMING_DAYS)?))?),
            ("spend", json!({ "spent": spent, "total": spent.total(), "ceiling": models.settings.spend.tokens_per_day }).to_string()),
            ("model", serde_json::to_string(&models.summarizer.as_ref().map(|llm| llm.name()))?),
        ];
        let parts: Vec<String> =
            parts.iter().map(|(name, value)| format!("\"{name}\":{value}")).collect();
        Ok(ApiAnswer::from_json(format!("{{{}}}", parts.join(","))))
    })
}

/// One column per figure.
#[derive(Default, Serialize)]
struct FigureColumns {
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

fn figure_columns(all: &BTreeMap<Date, DailyFigures>, ceiling: u64) -> FigureColumns {
    let mut columns = FigureColumns { ceiling, ..FigureColumns::default() };
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

fn daily_figures(call: ApiCall) -> HandlerFuture {
    Box::pin(async move {
        let memory = call.open_memory().await?;
        let today = memory.now().day();
        let last = call.query.get_date("to", today)?.unwrap_or(today);
        let first = call
            .query
            .get_date("from", today)?
            .unwrap_or_else(|| last.checked_sub(DEFAULT_FIGURE_DAYS.days()).unwrap_or(last));
        if first > last {
            return Err(usage_error("`from` is after `to`"));
        }
        let ceiling = call.api.spaces.models().settings.spend.tokens_per_day;
        ApiAnswer::from_value(&figure_columns(
            &memory.load_daily_figures(Days { first, last }).await?,
            ceiling,
        ))
    })
}

fn list_job_runs(call: ApiCall) -> HandlerFuture {
    Box::pin(async move {
        ApiAnswer::with_key(
            "jobs",
            &call
                .open_memory()
                .await?
                .list_job_runs(call.query.get_number("limit").unwrap_or(DEFAULT_JOBS))
                .await?,
        )
    })
}

fn list_reports(call: ApiCall) -> HandlerFuture {
    Box::pin(async move {
        let all = call.open_memory().await?.list_consolidation_reports().await?;
        let told = all.iter().map(
            |(date, path, bytes)| json!({ "date": date, "path": path.as_str(), "bytes": bytes }),
        );
        ApiAnswer::with_key("reports", &told.collect::<Vec<_>>())
    })
}

fn show_report(call: ApiCall) -> HandlerFuture {
    Box::pin(async move {
        let date = call.path_param("date");
        date.parse::<Date>()
            .map_err(|_| usage_error("`date` must be a date such as 2026-02-13"))?;
        match find_report(call.open_memory().await?.as_ref(), Some(date)).await? {
            Some(report) => ApiAnswer::from_value(&report),
            None => Err(AppError::new(
                Exit::NotFound,
                format!("there is no report of {date}; GET /api/reports lists them"),
            )
            .into()),
        }
    })
}

fn disk_usage_json(weight: &DiskUsage) -> Value {
    json!({ "part": weight.part, "files": weight.files, "bytes": weight.bytes })
}

fn health(call: ApiCall) -> HandlerFuture {
    Box::pin(async move {
        let memory = call.open_memory().await?;
        let (status, coverage) =
            (memory.load_status().await?, memory.check_summary_coverage().await?);
        let (embedded, disk) = (memory.count_embedded().await?, memory.store().disk_usage().await?);
        let models = call.api.spaces.models();
        let (chat, looks_back) = (&models.settings.chat, schedule::LOOK_BACK_DAYS);
        ApiAnswer::from_value(&json!({
            "now": status.now,
            "integrity": status.integrity,
            "wrong": status.wrong,
            "coverage": coverage,
            "index": { "passages": embedded.total, "vectors": embedded.embedded, "meanings": call.api.embedder().is_some() },
            "disk": { "parts": disk.iter().map(disk_usage_json).collect::<Vec<_>>(), "bytes": disk.iter().map(|part| part.bytes).sum::<u64>() },
            "jobs": json_output::jobs(&json_output::plan_jobs(&memory).await?)["jobs"],
            "looks_back_days": looks_back,
            "hooks": memory.hook_failures().await?,
            "models": {
                "summarizer": models.summarizer.as_ref().map(|llm| llm.name()),
                "chat": (!chat.model.is_empty()).then_some(&chat.model),
            },
            "version": env!("CARGO_PKG_VERSION"),
        }))
    })
}
