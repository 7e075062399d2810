//! Runs jobs by one timetable, for the daemon, for cron and for manual runs.
//!
//! Invariant: what is due is computed from what is stored, so one run makes up for every missed
//! one.

use std::collections::HashMap;

use icecore_domain::calendar::Moment;
use icecore_domain::layout::{self, DocPath};
use icecore_domain::schedule::{Job, Occurrence, Timetable};
use icecore_domain::summary::Summary;
use icecore_store::Error as StoreError;
use jiff::civil::Date;
use serde::{Deserialize, Serialize};

use crate::consolidate::ConsolidationReport;
use crate::rollup::{ModelBudget, ProgressFn, RollupReport, RollupRequest};
use crate::{Memory, Result};

/// A job run, as stored.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct JobRunLine {
    ts: String,
    job: String,
    date: String,
}

/// The result of running due jobs.
#[derive(Debug, Serialize)]
pub struct JobsReport {
    /// The jobs, and the dates they ran for.
    pub jobs: Vec<(String, String)>,
    pub rolled: RollupReport,
    /// The consolidation, if it was due.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub consolidated: Option<ConsolidationReport>,
}

/// A run that made a summary, with its cost (P10).
#[derive(Debug, Clone, Serialize)]
pub struct SummaryRun {
    pub ts: String,
    pub period: String,
    pub version: u32,
    pub made_by: String,
    /// The number of requests to the model.
    pub attempts: u32,
    /// The size of the sources.
    pub bytes_in: u64,
    /// The size of the summary.
    pub bytes_out: u64,
    /// How many times shorter the summary is.
    pub ratio: f64,
    pub tokens_in: u64,
    pub tokens_out: u64,
    /// Its duration.
    pub millis: u64,
    /// Whether the judge rejected the draft.
    pub refused: bool,
}

/// How many bytes of the run log's end are searched for the last run of each job.
const RUN_LOG_TAIL_BYTES: u64 = 64 * 1024;
/// How many bytes of the newest summaries are read for each requested run.
const BYTES_PER_RUN: u64 = 24 * 1024;

fn doc_path(text: &str) -> Result<DocPath> {
    Ok(text.parse().map_err(StoreError::from)?)
}

impl Memory {
    /// The timetable in force.
    pub fn timetable(&self) -> Result<Timetable> {
        Ok(self.policy.schedule.timetable()?)
    }

    /// The date for which each job ran last.
    pub async fn load_last_job_runs(&self) -> Result<HashMap<Job, Date>> {
        self.load_last_job_runs_as_of(None).await
    }

    /// The date for which each job had run last at a moment.
    pub(crate) async fn load_last_job_runs_as_of(
        &self,
        until: Option<jiff::Timestamp>,
    ) -> Result<HashMap<Job, Date>> {
        let (tail, whole) =
            self.store.read_tail(&doc_path(layout::RUNS)?, RUN_LOG_TAIL_BYTES).await?;
        // For a past moment, the end of the file is not enough.
        let text = match until {
            Some(_) if !whole => {
                self.store.document(&doc_path(layout::RUNS)?).await?.unwrap_or_default()
            }
            _ => tail,
        };
        let mut ran: HashMap<Job, Date> = HashMap::new();
        let known = |line: &JobRunLine| {
            until.is_none_or(|until| {
                Moment::parse(&line.ts).is_some_and(|read| read.moment.timestamp() <= until)
            })
        };
        for line in text
            .split(|&byte| byte == b'\n')
            .filter_map(|line| serde_json::from_slice::<JobRunLine>(line).ok())
            .filter(known)
        {
            if let (Ok(job), Ok(date)) = (line.job.parse::<Job>(), line.date.parse::<Date>()) {
                let last = ran.entry(job).or_insert(date);
                *last = (*last).max(date);
            }
        }
        Ok(ran)
    }

    /// Jobs that are due and have not run yet.
    pub async fn list_due_jobs(&self) -> Result<Vec<Occurrence>> {
        let ran = self.load_last_job_runs().await?;
        Ok(self.timetable()?.due_jobs(
            &|job| ran.get(&job).copied(),
            self.now().timestamp(),
            &self.zone,
        ))
    }

    /// The next jobs, in order.
    pub fn upcoming_jobs(&self, days: u16) -> Result<Vec<Occurrence>> {
        Ok(self.timetable()?.upcoming(self.now().timestamp(), days, &self.zone))
    }

    /// Runs everything that is due, and records the jobs.
    ///
    /// What is due is computed from what is stored, so one run serves every job that was missed.
    pub async fn run_due_jobs(
        &self,
        budget: Option<&ModelBudget<'_>>,
        progress: ProgressFn<'_>,
    ) -> Result<JobsReport> {
        let due = self.list_due_jobs().await?;
        let nightly = [Job::Consolidation, Job::Compact, Job::Prune, Job::Check];
        if due.iter().any(|occurrence| nightly.contains(&occurrence.job))
            && !self.is_looking_back().await?
        {
            return self.run_consolidation_jobs(due, budget, progress).await;
        }
        let rolled = self.run_rollup(&RollupRequest::default(), budget, progress).await?;
        let jobs = self.record_job_runs(due).await?;
        self.refresh_recall_pack().await?;
        Ok(JobsReport { jobs, rolled, consolidated: None })
    }

    /// Consolidates now, due or not, and runs whatever else is due.
    pub async fn consolidate_now(
        &self,
        budget: Option<&ModelBudget<'_>>,
        progress: ProgressFn<'_>,
    ) -> Result<JobsReport> {
        let mut due = self.list_due_jobs().await?;
        if !due.iter().any(|occurrence| occurrence.job == Job::Consolidation) {
            let now = self.now();
            due.push(Occurrence { job: Job::Consolidation, date: now.day(), at: now });
        }
        self.run_consolidation_jobs(due, budget, progress).await
    }

    async fn run_consolidation_jobs(
        &self,
        due: Vec<Occurrence>,
        budget: Option<&ModelBudget<'_>>,
        progress: ProgressFn<'_>,
    ) -> Result<JobsReport> {
        let (consolidated, mut rolled) = self.run_consolidation(&due, budget, progress).await?;
        // If the model did not answer, consolidation is not complete: the daemon tries again, at
        // growing intervals.
        let silent = consolidated.distilled.deferred.clone();
        let done = due
            .into_iter()
            .filter(|occurrence| silent.is_none() || occurrence.job != Job::Consolidation)
            .collect();
        rolled.silent = rolled.silent.or(silent);
        let jobs = self.record_job_runs(done).await?;
        // Rendered last, so that it includes this run.
        let pack = self.build_recall_pack(None, &[]).await?;
        self.write_recall_pack(&pack).await?;
        Ok(JobsReport { jobs, rolled, consolidated: Some(consolidated) })
    }

    /// Renders the recall pack again if it is of an earlier day: a new day has begun, or the
    /// consolidation died before its last step.
    async fn refresh_recall_pack(&self) -> Result<()> {
        let place = doc_path(layout::RECALL)?;
        let Some(known) = self.store.document(&place).await? else { return Ok(()) };
        let begin = format!("<!-- icecore:begin recall {} -->", self.now().day());
        if !known.starts_with(begin.as_bytes()) && !self.is_looking_back().await? {
            let pack = self.build_recall_pack(None, &[]).await?;
            self.write_recall_pack(&pack).await?;
        }
        Ok(())
    }

    /// Records the jobs that have run.
    async fn record_job_runs(&self, due: Vec<Occurrence>) -> Result<Vec<(String, String)>> {
        let now = self.now();
        let mut jobs = Vec::new();
        for occurrence in due {
            let line = JobRunLine {
                ts: now.to_string(),
                job: occurrence.job.word().into(),
                date: occurrence.date.to_string(),
            };
            self.append_line(
                &doc_path(layout::RUNS)?,
                &serde_json::to_string(&line).unwrap_or_default(),
            )
            .await?;
            jobs.push((line.job, line.date));
        }
        Ok(jobs)
    }

    /// The latest runs that made summaries, newest first.
    pub async fn list_summary_runs(&self, most: usize) -> Result<Vec<SummaryRun>> {
        let wanted =
            BYTES_PER_RUN.saturating_mul(most as u64).clamp(BYTES_PER_RUN, 64 * 1024 * 1024);
        let (text, _) = self.store.read_tail(&doc_path(layout::SUMMARIES)?, wanted).await?;
        let mut runs: Vec<SummaryRun> = text
            .split(|&byte| byte == b'\n')
            .filter_map(|line| Summary::parse_line(line).ok())
            .map(|summary| summary_run_of(&summary))
            .collect();
        for review in self.list_pending_reviews().await? {
            runs.push(SummaryRun {
                ts: review.ts,
                period: review.period,
                version: 0,
                made_by: "refused".into(),
                attempts: review.cost.attempts,
                bytes_in: review.cost.bytes_in,
                bytes_out: (review.headline.len() + review.body.len()) as u64,
                ratio: compression_ratio(
                    review.cost.bytes_in,
                    (review.headline.len() + review.body.len()) as u64,
                ),
                tokens_in: review.cost.tokens_in,
                tokens_out: review.cost.tokens_out,
                millis: review.cost.millis,
                refused: true,
            });
        }
        let until = self.view_horizon();
        runs.retain(|run| {
            until.is_none_or(|until| {
                Moment::parse(&run.ts).is_some_and(|read| read.moment.timestamp() <= until)
            })
        });
        runs.reverse();
        runs.sort_by(|a, b| b.ts.cmp(&a.ts));
        runs.truncate(most);
        Ok(runs)
    }
}

fn summary_run_of(summary: &Summary) -> SummaryRun {
    let bytes_out = (summary.headline.len() + summary.body.len()) as u64;
    SummaryRun {
        ts: summary.recorded.to_string(),
        period: summary.period.to_string(),
        version: summary.version,
        made_by: summary.maker.to_string(),
        attempts: summary.cost.attempts,
        bytes_in: summary.cost.bytes_in,
        bytes_out,
        ratio: compression_ratio(summary.cost.bytes_in, bytes_out),
        tokens_in: summary.cost.tokens_in,
        tokens_out: summary.cost.tokens_out,
        millis: summary.cost.millis,
        refused: false,
    }
}

#[expect(clippy::cast_precision_loss, reason = "a ratio for people")]
fn compression_ratio(bytes_in: u64, bytes_out: u64) -> f64 {
    if bytes_out == 0 { 0.0 } else { (bytes_in as f64 / bytes_out as f64 * 100.0).round() / 100.0 }
}
