//! The rollup: summarizes sessions into days, days into weeks, weeks into months, months into
//! years.
//!
//! - Every node is made in the same way: read its sources, plan, ask a model or extract sentences,
//!   judge, write.
//! - The plan is computed from stored data only, so the next run finishes a run that crashed
//!   anywhere.
//! - One run at a time holds the rollup lease of a store.
//! - An answer of a model is stored before it is used, so it is never paid for twice.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use icecore_domain::budget::{self, Omission};
use icecore_domain::calendar::Days;
use icecore_domain::cascade::compose::{self, SummarySize};
use icecore_domain::cascade::extractive::{self, SourceText};
use icecore_domain::cascade::importance;
use icecore_domain::cascade::judge::{
    self, DraftComplaint, DraftCriteria, RequiredItem, SummaryDraft,
};
use icecore_domain::cascade::plan::{
    DueSummary, PlanRequest, PlanningInput, SummaryHeads, WaitingSummary,
};
use icecore_domain::event::{Event, EventType, Priority};
use icecore_domain::hash::Hash;
use icecore_domain::insights::similar::SimilarityIndex;
use icecore_domain::layout::DocPath;
use icecore_domain::ledger::query::EventQuery;
use icecore_domain::record::{Record, Role, SessionKey, Trust};
use icecore_domain::sanitize;
use icecore_domain::schedule::Job;
use icecore_domain::summary::{
    self, Importance, Period, Summary, SummaryAuthor, SummaryCost, SummaryQuery, Tier,
};
use icecore_store::Lease;
use jiff::ToSpan;
use jiff::civil::Date;
use serde::Serialize;

use crate::config::WithoutModel;
use crate::llm::{AnswerSchema, FinishReason, Llm, ModelError, ModelRequest, reply};
use crate::prompts::{PromptSource, Prompts, RollupPrompt};
use crate::{Error, Memory, Result};

/// A model that may be asked, and its token limits.
pub struct ModelBudget<'a> {
    pub llm: &'a dyn Llm,
    /// The most tokens a day.
    pub ceiling: u64,
    /// The most input tokens of one question.
    pub input_tokens: usize,
    /// The most output tokens of one question, from the user's settings.
    pub output_tokens: u64,
}

/// What to roll up.
#[derive(Debug, Clone, Default)]
pub struct RollupRequest {
    /// Only this tier; `None` for everything that is due.
    pub tier: Option<Tier>,
    /// Only nodes that touch these days, whether they are due or not.
    pub days: Option<Days>,
    pub sessions: Option<Vec<SessionKey>>,
}

impl RollupRequest {
    /// Requests one tier, one period, or everything that is due. Fails if the period is of another
    /// tier.
    pub fn for_period(tier: Option<Tier>, period: Option<Period>) -> Result<Self, String> {
        let Some(period) = period else { return Ok(Self { tier, ..Self::default() }) };
        match tier {
            // A day may also be requested as the tier of its sessions.
            Some(Tier::Session) if period.tier() == Tier::Day => {}
            Some(tier) if tier != period.tier() => {
                return Err(format!(
                    "{period} is a {}, not a {tier}; `icecore rollup {} --period {period}`",
                    period.tier(),
                    period.tier()
                ));
            }
            _ => {}
        }
        Ok(Self {
            tier: Some(tier.unwrap_or(period.tier())),
            days: Some(period.days()),
            sessions: None,
        })
    }
}

/// A summary that a run wrote.
#[derive(Debug, Clone, Serialize)]
pub struct WrittenSummary {
    pub period: Period,
    pub version: u32,
    /// Why it was due.
    pub why: &'static str,
    /// Its maker: a model, the extractive summarizer, a file or a person.
    pub made_by: String,
    /// A model replaces it as soon as one is available.
    pub provisional: bool,
    /// The size of its sources.
    pub bytes_in: u64,
    /// The size of its text.
    pub bytes_out: u64,
    /// The number of attempts by the model.
    pub attempts: u32,
    pub headline: String,
}

/// A node that could not be summarized now.
#[derive(Debug, Clone, Serialize)]
pub struct DeferredNode {
    pub period: Period,
    pub why: String,
}

/// The result of a run.
#[derive(Debug, Default, Serialize)]
pub struct RollupReport {
    /// The new summaries.
    #[serde(rename = "pressed")]
    pub summaries: Vec<WrittenSummary>,
    /// Drafts that the judge refused; they wait for review.
    pub flagged: Vec<DeferredNode>,
    pub deferred: Vec<DeferredNode>,
    /// Files that were written, moved or adopted from a user's editor.
    pub files: crate::views::ViewFilesReport,
    /// Why the model was not asked any more in this run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub silent: Option<String>,
}

impl RollupReport {
    /// Whether there was nothing to do.
    pub fn is_idle(&self) -> bool {
        self.summaries.is_empty() && self.deferred.is_empty() && self.flagged.is_empty()
    }
}

/// The result of summarizing the past.
#[derive(Debug, Serialize)]
pub struct BackfillReport {
    pub rolled: RollupReport,
    /// The number of periods that are left for the next run.
    pub left: usize,
    /// Whether the token ceiling of the day stopped the run.
    pub ceiling_reached: bool,
}

/// What a run would do.
#[derive(Debug, Default, Serialize)]
pub struct RollupPlan {
    /// Due now, tier by tier; the tiers above follow.
    pub due: Vec<DueNode>,
    /// Due, but sources are missing.
    pub waiting: Vec<DeferredNode>,
}

/// A node that is due.
#[derive(Debug, Serialize)]
pub struct DueNode {
    pub period: Period,
    pub tier: Tier,
    pub why: &'static str,
    /// The number of records it covers.
    pub messages: u64,
}

/// Reports progress: the current node, the number of finished nodes, the total.
pub type ProgressFn<'a> = &'a (dyn Fn(&str, usize, usize) + Send + Sync);

/// The source texts of one node.
struct SourceMaterial {
    shown: Vec<PromptSource>,
    must: Vec<RequiredItem>,
    importance: Importance,
    left_out: Vec<Omission>,
}

impl SourceMaterial {
    /// Adds records. Text that comes only from tools and strangers is left out: a summary states
    /// what happened, and their text could make it state something false.
    fn add_records(&mut self, records: &[&Record]) {
        let (instructions, spoken): (Vec<&Record>, Vec<&Record>) =
            records.iter().partition(|record| record.is_instructions());
        let (withdrawn, spoken): (Vec<&Record>, Vec<&Record>) =
            spoken.iter().partition(|record| record.withdrawn);
        let (told, strangers): (Vec<&Record>, Vec<&Record>) =
            spoken.iter().partition(|record| Trust::from_origin(record.origin) != Trust::Low);
        let messages = |count: usize, one: &str, many: &str| match count {
            1 => format!("a message of {one}"),
            count => format!("{count} messages of {many}"),
        };
        if !instructions.is_empty() {
            let what =
                messages(instructions.len(), "a client to its model", "a client to its model");
            if spoken.is_empty() {
                self.shown.push(PromptSource {
                    name: "client".into(),
                    text: format!("Nothing was said but {what}."),
                });
            }
            self.left_out.push(Omission::new(
                what,
                "a client's instructions are not summarized; `icecore zoom` shows them",
            ));
        }
        if !withdrawn.is_empty() {
            let what = messages(withdrawn.len(), "a withdrawn turn", "withdrawn turns");
            if spoken.is_empty() {
                self.shown.push(PromptSource {
                    name: "client".into(),
                    text: format!("Nothing remains but {what}."),
                });
            }
            self.left_out.push(Omission::new(
                what,
                "the conversation goes on without them; `icecore zoom` shows them",
            ));
        }
        if !strangers.is_empty() {
            let what = messages(strangers.len(), "a tool or stranger", "tools and strangers");
            if told.is_empty() {
                self.shown.push(PromptSource {
                    name: "tools".into(),
                    text: format!("Nothing was said but {what}."),
                });
            }
            self.left_out.push(Omission::new(
                what,
                "their messages are not summarized; `icecore zoom` and `icecore search` find them",
            ));
        }
        for record in told {
            self.must.extend(marked_lines(&record.text, false));
            let title = record.title.as_ref().map_or(String::new(), |title| format!(" ({title})"));
            // Tool results have the user's role too. The parts of an assistant's record are its own
            // calls.
            let parts = record.parts.as_deref().filter(|_| record.role == Role::Assistant);
            let parts = parts.map_or(String::new(), |parts| {
                format!("\n{}", budget::truncate_at_word(parts, 300))
            });
            self.shown.push(PromptSource {
                name: format!("{} {}{title}", record.ts.clock_time(), record.speaker_name()),
                text: format!("{}{parts}", record.text.trim()),
            });
        }
    }

    /// Removes duplicate statements: text that an event id covers already, and repeated text.
    fn remove_duplicates(&mut self) {
        let ids: HashSet<String> = self.must.iter().filter_map(|must| must.id.clone()).collect();
        let mut seen = HashSet::new();
        self.must.retain(|must| {
            let doubled = must.id.is_none() && ids.iter().any(|id| must.text.contains(id.as_str()));
            !doubled
                && seen
                    .insert(must.id.clone().unwrap_or_else(|| sanitize::sameness_key(&must.text)))
        });
        // Remove a line that repeats an event.
        let events: Vec<String> =
            self.must.iter().filter(|must| must.id.is_some()).map(RequiredItem::to_line).collect();
        let events = events.join("\n");
        self.must.retain(|must| {
            must.id.is_some()
                || !judge::missing_items(
                    &[RequiredItem { is_optional: false, ..must.clone() }],
                    &events,
                )
                .is_empty()
        });
        // Remove a line that is the beginning of another one.
        let texts: Vec<String> = self.must.iter().map(|must| must.text.clone()).collect();
        self.must.retain(|must| {
            let begun = must.text.trim_end_matches("...").trim_end();
            !must.text.ends_with("...")
                || !texts.iter().any(|text| *text != must.text && text.starts_with(begun))
        });
    }

    fn bytes(&self) -> usize {
        self.shown.iter().map(|source| source.text.len()).sum()
    }
}

/// The most attempts at a draft (P5).
const MAX_DRAFT_ATTEMPTS: u32 = 3;
/// The number of provisional summaries that are written at once.
const WRITE_BATCH_SUMMARIES: usize = 64;

enum DraftOutcome {
    Draft {
        draft: SummaryDraft,
        maker: SummaryAuthor,
        cost: SummaryCost,
        left_out: Vec<Omission>,
    },
    Refused {
        draft: SummaryDraft,
        complaints: Vec<DraftComplaint>,
        cost: SummaryCost,
    },
    /// `all` if the rest of the run is deferred too, `ceiling` if the day's tokens are spent.
    Deferred {
        why: String,
        all: bool,
        ceiling: bool,
    },
}

/// Why a question to the model is deferred.
pub(crate) struct ModelDeferral {
    pub(crate) why: String,
    /// The rest of the run is deferred too.
    pub(crate) all: bool,
    /// The day's tokens are spent.
    ceiling: bool,
}

/// The state of one rollup run.
struct RollupRun<'a> {
    alone: Lease,
    asking: Option<&'a ModelBudget<'a>>,
    prompts: Option<Prompts>,
    known: PlanningInput,
    rolled: RollupReport,
    /// Why the model is not asked any more.
    silent: Option<String>,
    ceiling_reached: bool,
}

impl Memory {
    /// Acquires the rollup lease.
    async fn acquire_rollup_lease(&self) -> Result<Lease> {
        self.store.acquire_lease("pressing").await?.ok_or_else(|| {
            Error::Busy("another run is summarizing this memory; try again when it is done".into())
        })
    }

    /// Reads everything that the planner needs.
    pub async fn planning_input(&self, has_model: bool) -> Result<PlanningInput> {
        let now = self.now();
        let (heads, _) = self.store.summary_heads(&SummaryQuery::default()).await?;
        let until = self.view_horizon();
        let mut sessions = self.store.sessions(None).await?;
        // Records after this moment are ignored.
        sessions.retain(|stat| until.is_none_or(|until| stat.first.timestamp() <= until));
        let timetable = self.policy.schedule.timetable()?;
        let last = |job| timetable.last_due(job, now.timestamp(), &self.zone).map(|due| due.date);
        Ok(PlanningInput {
            sessions,
            heads: SummaryHeads::new(heads),
            event_days: self.store.event_days().await?.into_iter().collect(),
            logs: self.log_hashes(now.day()).await?,
            marks: self.list_importance_marks().await?,
            refused: self.list_rejected_drafts().await?,
            week_run: last(Job::Week),
            month_run: last(Job::Month),
            idle_minutes: self.policy.session_idle_minutes(),
            has_model,
            zone: self.zone.clone(),
            now,
        })
    }

    /// The hashes of the recent logs.
    async fn log_hashes(&self, today: Date) -> Result<BTreeMap<Date, Option<Hash>>> {
        let mut logs = BTreeMap::new();
        for back in 0..self.policy.log.scan_days {
            let Ok(day) = today.checked_sub(i32::from(back).days()) else { continue };
            let text = self.store.document(&DocPath::log(day)).await?;
            let told = text.filter(|text| !text.trim_ascii().is_empty());
            logs.insert(day, told.map(|text| Hash::of(&text)));
        }
        Ok(logs)
    }

    /// What is due, without a run.
    pub async fn plan_rollup(
        &self,
        request: &RollupRequest,
        has_model: bool,
    ) -> Result<RollupPlan> {
        let known = self.planning_input(has_model).await?;
        let mut outlook = RollupPlan::default();
        for tier in requested_tiers(request) {
            let plan = known.plan_tier(tier, due_override(request, tier));
            outlook.due.extend(plan.due.into_iter().filter(|due| is_requested(request, due)).map(
                |due| DueNode {
                    period: due.period,
                    tier,
                    why: due.why.word(),
                    messages: due.messages,
                },
            ));
            outlook.waiting.extend(plan.waiting.into_iter().map(deferred_node));
        }
        Ok(outlook)
    }

    /// Summarizes what is due, until nothing is.
    pub async fn run_rollup(
        &self,
        request: &RollupRequest,
        budget: Option<&ModelBudget<'_>>,
        progress: ProgressFn<'_>,
    ) -> Result<RollupReport> {
        let mut run = self.begin_rollup(budget).await?;
        for tier in requested_tiers(request) {
            let waiting = self
                .summarize_tier(
                    &mut run,
                    tier,
                    due_override(request, tier),
                    &|due| is_requested(request, due),
                    progress,
                )
                .await?;
            run.rolled.deferred.extend(waiting.into_iter().map(deferred_node));
        }
        self.finish_rollup(run).await
    }

    /// Summarizes what is due from the newest to the oldest, until nothing is due, or the model
    /// fails or the token ceiling is reached. The next run does the rest.
    pub async fn backfill(
        &self,
        budget: Option<&ModelBudget<'_>>,
        progress: ProgressFn<'_>,
    ) -> Result<BackfillReport> {
        let mut run = self.begin_rollup(budget).await?;
        let left = |known: &PlanningInput| {
            let plans = Tier::ALL.iter().map(|&tier| known.plan_tier(tier, None));
            plans.map(|plan| plan.due.len() + plan.waiting.len()).sum::<usize>()
        };
        let all = left(&run.known);
        for (tier, span) in run.known.backfill_order() {
            let before = run.rolled.summaries.len() + run.rolled.flagged.len();
            let only = |due: &DueSummary| match due.period {
                Period::Session { day, .. } | Period::Day(day) => span.contains(day),
                period => period.days() == span,
            };
            self.summarize_tier(&mut run, tier, None, &only, &|what, done, _| {
                progress(what, before + done, all.max(before + done))
            })
            .await?;
            if run.silent.is_some() {
                break;
            }
        }
        let (left, ceiling_reached) = (left(&run.known), run.ceiling_reached);
        Ok(BackfillReport { rolled: self.finish_rollup(run).await?, left, ceiling_reached })
    }

    async fn begin_rollup<'a>(&self, budget: Option<&'a ModelBudget<'a>>) -> Result<RollupRun<'a>> {
        let alone = self.acquire_rollup_lease().await?;
        let mut rolled = RollupReport::default();
        let prompts =
            if budget.is_some() { Some(Prompts::load(self.store.as_ref()).await?) } else { None };
        self.repair_views(&mut rolled).await?;
        let known = self.planning_input(budget.is_some()).await?;
        Ok(RollupRun {
            alone,
            asking: budget,
            rolled,
            prompts,
            known,
            silent: None,
            ceiling_reached: false,
        })
    }

    async fn finish_rollup(&self, run: RollupRun<'_>) -> Result<RollupReport> {
        // The lease is held until everything is written.
        let RollupRun { alone: _alone, mut rolled, known, silent, .. } = run;
        rolled.silent = silent;
        self.refresh_views(&known, &mut rolled).await?;
        Ok(rolled)
    }

    /// Summarizes what is due at a tier, and returns the nodes whose sources are missing.
    async fn summarize_tier(
        &self,
        run: &mut RollupRun<'_>,
        tier: Tier,
        asked: Option<PlanRequest>,
        only: &(dyn Fn(&DueSummary) -> bool + Send + Sync),
        progress: ProgressFn<'_>,
    ) -> Result<Vec<WaitingSummary>> {
        let plan = run.known.plan_tier(tier, asked);
        let mut due: Vec<DueSummary> = plan.due.into_iter().filter(|due| only(due)).collect();
        renumber_sessions(&mut due, &run.known.heads);
        let all = due.len();
        let mut batch: Vec<(DueSummary, Summary)> = Vec::new();
        let mut shelf: Option<SimilarityIndex> = None;
        for (done, due) in due.into_iter().enumerate() {
            progress(&due.period.to_string(), done, all);
            if due.by_hand && !self.ask_before_replacing_edited(&due, &mut run.rolled).await? {
                continue;
            }
            let made = match (run.asking, &run.prompts, &run.silent) {
                _ if due.refused => self.summarize_extractively(&due).await?,
                (Some(asking), Some(prompts), None) => {
                    self.draft_with_model(&due, asking, prompts).await?
                }
                (Some(_), _, Some(why)) => DraftOutcome::Deferred {
                    why: why.clone(),
                    all: true,
                    ceiling: run.ceiling_reached,
                },
                _ => match self.policy.without_model()? {
                    WithoutModel::Extract => self.summarize_extractively(&due).await?,
                    WithoutModel::Defer => DraftOutcome::Deferred {
                        why: "no model is configured, and cascade.without_model is defer".into(),
                        all: true,
                        ceiling: false,
                    },
                },
            };
            match made {
                DraftOutcome::Draft { draft, maker, cost, left_out } => {
                    let summary = self.build_summary(&due, draft, maker, cost, left_out).await?;
                    batch
                        .push((due.clone(), self.add_similar_reference(summary, &mut shelf).await?))
                }
                DraftOutcome::Refused { draft, complaints, cost } => {
                    let why =
                        complaints.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
                    self.store_rejected_draft(&due, &draft, &why, cost).await?;
                    run.rolled.flagged.push(DeferredNode { period: due.period, why });
                    // Meanwhile an extractive summary is written, so that higher tiers have the
                    // best source there is.
                    if let DraftOutcome::Draft { draft, maker, cost, left_out } =
                        self.summarize_extractively(&due).await?
                    {
                        let summary =
                            self.build_summary(&due, draft, maker, cost, left_out).await?;
                        batch.push((
                            due.clone(),
                            self.add_similar_reference(summary, &mut shelf).await?,
                        ));
                    }
                }
                DraftOutcome::Deferred { why, all, ceiling } => {
                    // A model that failed once is not asked again in this run.
                    if all && run.asking.is_some() && run.silent.is_none() {
                        (run.silent, run.ceiling_reached) = (Some(why.clone()), ceiling);
                    }
                    run.rolled.deferred.push(DeferredNode { period: due.period, why });
                }
            }
            if run.asking.is_some() || batch.len() >= WRITE_BATCH_SUMMARIES {
                self.write_summaries(std::mem::take(&mut batch), run).await?;
            }
        }
        self.write_summaries(batch, run).await?;
        progress("", all, all);
        Ok(plan.waiting)
    }

    /// Writes versions, then the files that show them.
    async fn write_summaries(
        &self,
        batch: Vec<(DueSummary, Summary)>,
        run: &mut RollupRun<'_>,
    ) -> Result<()> {
        if batch.is_empty() {
            return Ok(());
        }
        // Another run may have written the same version while the model worked.
        self.ensure_lease(&run.alone).await?;
        let RollupRun { known, rolled, .. } = run;
        let summaries: Vec<Summary> = batch.iter().map(|(_, summary)| summary.clone()).collect();
        self.store.add_summaries(&summaries, None).await?;
        for (due, summary) in &batch {
            known.heads.insert(summary.head());
            rolled.summaries.push(WrittenSummary {
                period: summary.period,
                version: summary.version,
                why: due.why.word(),
                made_by: summary.maker.to_string(),
                provisional: summary.provisional,
                bytes_in: summary.cost.bytes_in,
                bytes_out: (summary.headline.len() + summary.body.len()) as u64,
                attempts: summary.cost.attempts,
                headline: summary.headline.clone(),
            });
        }
        self.write_views(&summaries, rolled).await
    }

    async fn build_summary(
        &self,
        due: &DueSummary,
        draft: SummaryDraft,
        maker: SummaryAuthor,
        cost: SummaryCost,
        left_out: Vec<Omission>,
    ) -> Result<Summary> {
        let importance = self.node_importance(due).await?;
        Ok(Summary {
            period: due.period,
            version: due.version,
            session: due.session.clone(),
            start: due.start,
            end: due.end,
            headline: draft.headline,
            body: draft.body,
            messages: due.messages,
            states: due.states,
            recorded: self.now(),
            source: due.source,
            log: due.log,
            sources: due.children.clone(),
            provisional: maker == SummaryAuthor::Extract,
            maker,
            importance,
            left_out,
            cost,
            similar: None,
        })
    }

    /// The summaries that a node is made from, in order.
    async fn child_summaries(&self, due: &DueSummary) -> Result<Vec<Summary>> {
        let wanted: BTreeSet<Period> = due.children.iter().copied().collect();
        let tiers: Vec<Tier> = wanted
            .iter()
            .map(|period| period.tier())
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect();
        if tiers.is_empty() {
            return Ok(Vec::new());
        }
        // The span of a week or month may begin before the month or year it belongs to.
        let query =
            SummaryQuery { tiers, days: Some(due.period.days()), ..SummaryQuery::default() };
        let mut found = self.store.summaries(&query).await?;
        found.retain(|summary| wanted.contains(&summary.period));
        Ok(found)
    }

    /// The active statements that were recorded in the period.
    async fn events_in(&self, days: Days) -> Result<Vec<Event>> {
        // Statements of tools and strangers stay out until they are confirmed.
        let query = EventQuery {
            since: Some(days.first),
            until: Some(days.last),
            quarantined: Some(false),
            ..EventQuery::default()
        };
        let mut events: Vec<Event> =
            self.store.events(&query).await?.entries.into_iter().map(|entry| entry.event).collect();
        events.retain(|event| event.is_statement());
        Ok(events)
    }

    async fn session_records(&self, key: &SessionKey) -> Result<Vec<Record>> {
        let mut records = self.store.records(Days { first: key.day, last: key.day }).await?;
        let until = self.view_horizon();
        records.retain(|record| {
            record.session_key() == *key && until.is_none_or(|until| record.ts.timestamp() <= until)
        });
        self.mark_withdrawn(&mut records).await?;
        // A summary does not mention that something was forgotten.
        records
            .iter_mut()
            .for_each(|record| record.text = icecore_domain::forget::strip_marks(&record.text));
        Ok(records)
    }

    async fn node_importance(&self, due: &DueSummary) -> Result<Importance> {
        match due.period {
            Period::Day(day) => {
                let events = self.events_in(due.period.days()).await?;
                let children = self.child_summaries(due).await?;
                let log = self.log_text(day).await?;
                let mut lines: Vec<&str> = children
                    .iter()
                    .flat_map(|child| child.body.lines())
                    .filter(|line| line.starts_with("- "))
                    .collect();
                lines.extend(log.lines().filter(|line| line.starts_with("- ")));
                lines.sort_unstable();
                lines.dedup();
                let bytes = children.iter().map(|child| child.cost.bytes_in).sum::<u64>()
                    + log.len() as u64;
                let mark = self.list_importance_marks().await?.get(&day).copied();
                Ok(importance::detect_importance(importance::DayActivity {
                    mark,
                    events: &events,
                    lines: &lines,
                    messages: due.messages,
                    bytes,
                }))
            }
            Period::Session { day, .. } => Ok(self
                .list_importance_marks()
                .await?
                .get(&day)
                .copied()
                .filter(|mark| *mark == Importance::Important)
                .unwrap_or(Importance::Ordinary)),
            _ => Ok(Importance::Ordinary),
        }
    }

    async fn log_text(&self, day: Date) -> Result<String> {
        // A log may have been written by hand.
        Ok(self.filter_without_report(&String::from_utf8_lossy(
            &self.store.document(&DocPath::log(day)).await?.unwrap_or_default(),
        )))
    }

    /// Reads the sources of a node. `room` is the token limit of the reader.
    async fn read_material(&self, due: &DueSummary, room: usize) -> Result<SourceMaterial> {
        let importance = self.node_importance(due).await?;
        let mut material = SourceMaterial {
            shown: Vec::new(),
            must: Vec::new(),
            importance,
            left_out: Vec::new(),
        };
        if let Some(key) = &due.session {
            let records = self.session_records(key).await?;
            material.add_records(&records.iter().collect::<Vec<_>>());
        } else {
            let light = due.period.tier() >= Tier::Month;
            let events = self.events_in(due.period.days()).await?;
            material
                .must
                .extend(events.iter().filter_map(|event| required_statement(event, light)));
            let mut children = self.child_summaries(due).await?;
            if due.period.tier() == Tier::Week {
                children =
                    self.replace_session_primers(children, room, &mut material.left_out).await?;
            }
            for child in &children {
                material.must.extend(marked_lines(&child.body, light));
                material.shown.push(PromptSource {
                    name: child.period.title(),
                    text: format!("{}\n{}", child.headline, child.body).trim_end().to_owned(),
                });
            }
            if let Period::Day(day) = due.period {
                let log = self.log_text(day).await?;
                if !log.trim().is_empty() {
                    material.must.extend(marked_lines(&log, light));
                    material.shown.push(PromptSource {
                        name: "the day's log".into(),
                        text: sanitize::clean(&log).text,
                    });
                }
            }
        }
        material.remove_duplicates();
        Ok(material)
    }

    /// Replaces the oldest session primers of a week by day summaries until the rest fits.
    async fn replace_session_primers(
        &self,
        children: Vec<Summary>,
        room: usize,
        left_out: &mut Vec<Omission>,
    ) -> Result<Vec<Summary>> {
        let tokens = |children: &[Summary]| {
            children
                .iter()
                .map(|child| {
                    budget::estimate_tokens(&child.body)
                        + budget::estimate_tokens(&child.headline)
                        + 20
                })
                .sum::<usize>()
        };
        let mut children = children;
        let days: BTreeSet<Date> = children
            .iter()
            .filter(|child| child.period.tier() == Tier::Session)
            .map(|child| child.period.days().first)
            .collect();
        for day in days {
            if tokens(&children) <= room {
                break;
            }
            let of_day = SummaryQuery::for_tier_within(Tier::Day, Days { first: day, last: day });
            let Some(summary) = self.store.summaries(&of_day).await?.pop() else { continue };
            let at =
                children.iter().position(|child| child.period.days().first == day).unwrap_or(0);
            let before = children.len();
            children.retain(|child| child.period.days().first != day);
            left_out.push(Omission::new(
                format!(
                    "{} session primers of {day}; the day summary replaces them",
                    before - children.len()
                ),
                "the model's input limit",
            ));
            children.insert(at, summary);
        }
        Ok(children)
    }

    fn summary_size(
        &self,
        due: &DueSummary,
        importance: Importance,
        sources: usize,
    ) -> SummarySize {
        let tier = due.period.tier();
        let file = self.policy.budget.max_summary_bytes(tier, importance);
        // The file has a header too.
        let bytes =
            file.saturating_sub(summary::max_header_bytes(due.session.as_ref())).max(file / 4);
        SummarySize {
            bytes,
            tokens: bytes / 3,
            wanted: compose::target_bytes(tier, importance, sources, bytes),
        }
    }

    /// A draft by the extractive summarizer.
    pub(crate) async fn extractive_draft(&self, due: &DueSummary) -> Result<SummaryDraft> {
        Ok(self.compose_extract(due, &self.read_material(due, usize::MAX).await?).0)
    }

    /// A summary by the extractive summarizer.
    async fn summarize_extractively(&self, due: &DueSummary) -> Result<DraftOutcome> {
        let start_millis = self.clock.elapsed_millis();
        let material = self.read_material(due, usize::MAX).await?;
        let (draft, left_out) = self.compose_extract(due, &material);
        let cost = SummaryCost {
            bytes_in: material.bytes() as u64,
            millis: self.clock.elapsed_millis() - start_millis,
            ..SummaryCost::default()
        };
        Ok(DraftOutcome::Draft {
            draft,
            maker: SummaryAuthor::Extract,
            cost,
            left_out: [material.left_out, left_out].concat(),
        })
    }

    /// A draft by the extractive summarizer, from records that are already read.
    pub(crate) fn extractive_draft_of(
        &self,
        due: &DueSummary,
        records: &[&Record],
    ) -> (SummaryDraft, Vec<Omission>) {
        let mut material = SourceMaterial {
            shown: Vec::new(),
            must: Vec::new(),
            importance: Importance::Ordinary,
            left_out: Vec::new(),
        };
        material.add_records(records);
        material.remove_duplicates();
        self.compose_extract(due, &material)
    }

    fn compose_extract(
        &self,
        due: &DueSummary,
        material: &SourceMaterial,
    ) -> (SummaryDraft, Vec<Omission>) {
        let count = material.shown.len().max(1);
        // Headings of summaries carry no information.
        let texts: Vec<String> = material
            .shown
            .iter()
            .map(|source| match due.session {
                Some(_) => source.text.clone(),
                None => source
                    .text
                    .lines()
                    .filter(|line| !line.starts_with('#'))
                    .collect::<Vec<_>>()
                    .join("\n"),
            })
            .collect();
        let sources: Vec<SourceText<'_>> = material
            .shown
            .iter()
            .zip(&texts)
            .enumerate()
            .map(|(at, (source, text))| {
                // Later sources count a little more.
                #[expect(clippy::cast_precision_loss, reason = "a weight")]
                let weight = 1.0 + 0.2 * at as f32 / count as f32;
                let speaker = due
                    .session
                    .as_ref()
                    .map(|_| source.name.split_whitespace().nth(1).unwrap_or_default());
                SourceText { text, weight, speaker }
            })
            .collect();
        let size = self.summary_size(due, material.importance, material.bytes());
        compose::compose_draft(&sources, &material.must, material.importance, size)
    }

    /// Asks a model for a draft until the judge accepts it, at most three times.
    async fn draft_with_model(
        &self,
        due: &DueSummary,
        budget: &ModelBudget<'_>,
        prompts: &Prompts,
    ) -> Result<DraftOutcome> {
        let start_millis = self.clock.elapsed_millis();
        let room = budget.input_tokens.saturating_sub(1_500).max(500);
        let mut material = self.read_material(due, room).await?;
        let bytes_in = material.bytes();
        let size = self.summary_size(due, material.importance, bytes_in);
        shorten_to_fit(&mut material, room);
        let sources = source_text(&material);
        let case = DraftCriteria {
            days: due.period.days(),
            bytes: size.bytes,
            tokens: size.tokens,
            required: &material.must,
            sources: &sources,
            count: material.shown.len().max(due.children.len()),
        };
        let mut cost = SummaryCost { bytes_in: bytes_in as u64, ..SummaryCost::default() };
        let mut last: (SummaryDraft, Vec<DraftComplaint>) = Default::default();
        for attempt in 0..MAX_DRAFT_ATTEMPTS {
            let days = due.period.days();
            let filling = RollupPrompt {
                tier: due.period.tier(),
                title: due.period.title(),
                span: if days.first == days.last {
                    days.first.to_string()
                } else {
                    format!("{} to {}", days.first, days.last)
                },
                tokens: target_tokens(due.period.tier(), material.importance).min(size.tokens),
                sentences: if due.period.tier() >= Tier::Month { "3 to 5" } else { "2 to 4" },
                must: material.must.iter().map(RequiredItem::to_line).collect(),
                sources: &material.shown,
                attempt,
                complaints: last.1.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "),
            };
            let (system, user) = prompts.fill_rollup(&filling)?;
            let ask = ModelRequest {
                system,
                user,
                schema: Some(draft_schema()),
                max_tokens: u32::try_from(size.tokens + 400).unwrap_or(u32::MAX),
                attempt,
            };
            let question = ModelQuestion {
                ask: &ask,
                job: due.period.tier().word(),
                retries: self.count_retries(due.period).await?,
            };
            let heard = match self.ask_model(question, budget, &mut cost).await? {
                Ok(heard) => heard,
                Err(ModelDeferral { why, all, ceiling }) => {
                    return Ok(DraftOutcome::Deferred { why, all, ceiling });
                }
            };
            cost.attempts += 1;
            cost.millis = self.clock.elapsed_millis() - start_millis;
            let draft = parse_draft(&heard.text).normalize();
            let mut complaints = judge::judge_draft(&case, &draft);
            if let Some(why) = heard.nothing {
                complaints = vec![DraftComplaint::NoAnswer(why)];
            } else if heard.cut_off || is_cut_off(&heard.text) {
                complaints.push(DraftComplaint::NoAnswer("it was cut off".into()));
            }
            if complaints.is_empty() {
                let maker = SummaryAuthor::Model(budget.llm.name());
                return Ok(DraftOutcome::Draft { draft, maker, cost, left_out: material.left_out });
            }
            last = (draft, complaints);
        }
        Ok(DraftOutcome::Refused { draft: last.0, complaints: last.1, cost })
    }

    /// Asks a model, unless the same question was answered before. `Err` with the reason if the
    /// question is deferred.
    pub(crate) async fn ask_model(
        &self,
        question: ModelQuestion<'_>,
        model_budget: &ModelBudget<'_>,
        cost: &mut SummaryCost,
    ) -> Result<Result<StoredAnswer, ModelDeferral>> {
        let ModelQuestion { ask, job, .. } = question;
        let question = question.answer_key(&model_budget.llm.name());
        if let Some(kept) = self.store.cached_answer(question).await?
            && let Ok(heard) = serde_json::from_slice::<StoredAnswer>(&kept)
        {
            return Ok(Ok(heard));
        }
        // The estimate is high on purpose: its error must not exceed the ceiling.
        let tokens_in =
            (budget::estimate_tokens(&ask.system) + budget::estimate_tokens(&ask.user)) as u64 * 5
                / 4
                + 200;
        let tokens_out = u64::from(ask.max_tokens).max(model_budget.output_tokens);
        let reserved = match self
            .reserve_tokens(
                job,
                &model_budget.llm.name(),
                tokens_in,
                tokens_out,
                model_budget.ceiling,
            )
            .await?
        {
            Ok(reserved) => reserved,
            Err(left) => {
                let need = tokens_in + tokens_out;
                let why = format!(
                    "the question needs up to {need} tokens, but the daily limit of {} leaves {left}",
                    model_budget.ceiling
                );
                return Ok(Err(ModelDeferral { why, all: true, ceiling: true }));
            }
        };
        match model_budget.llm.complete(ask, &|_| {}).await {
            Ok(answer) => {
                let heard = StoredAnswer {
                    text: answer.text,
                    cut_off: answer.finish == FinishReason::CutOff,
                    tokens_in: answer.tokens_in,
                    tokens_out: answer.tokens_out,
                    nothing: None,
                };
                // Store the answer first: then it need not be paid for again, whatever happens
                // next.
                self.store
                    .cache_answer(question, &serde_json::to_vec(&heard).unwrap_or_default())
                    .await?;
                self.settle_spend(&reserved, heard.tokens_in, heard.tokens_out).await?;
                cost.tokens_in += heard.tokens_in;
                cost.tokens_out += heard.tokens_out;
                Ok(Ok(heard))
            }
            Err(trouble) => {
                if !trouble.may_have_cost() {
                    self.settle_spend(&reserved, 0, 0).await?;
                }
                // The model is available but gave no draft. The next attempt may succeed; if none
                // does, the draft goes to review. Waiting would block everything else for as long
                // as the model has no answer to this question.
                if matches!(trouble, ModelError::Empty { .. } | ModelError::TooLong { .. }) {
                    return Ok(Ok(StoredAnswer {
                        nothing: Some(trouble.to_string()),
                        ..StoredAnswer::default()
                    }));
                }
                // The model refused this one question, for example because it is too long. That
                // says nothing about the next question.
                let all = !matches!(trouble, ModelError::Refused { status: 400 | 413 | 422, .. });
                Ok(Err(ModelDeferral {
                    why: format!("{} did not answer: {trouble}", model_budget.llm.name()),
                    all,
                    ceiling: false,
                }))
            }
        }
    }
}

/// A stored answer of the model.
#[derive(Debug, Clone, Default, Serialize, serde::Deserialize)]
pub(crate) struct StoredAnswer {
    pub(crate) text: String,
    pub(crate) cut_off: bool,
    tokens_in: u64,
    tokens_out: u64,
    /// Why there is no text; such an answer is not stored.
    #[serde(skip)]
    pub(crate) nothing: Option<String>,
}

/// A question to the model, its job, and how often the user requested a new answer.
#[derive(Clone, Copy)]
pub(crate) struct ModelQuestion<'a> {
    pub(crate) ask: &'a ModelRequest,
    pub(crate) job: &'static str,
    pub(crate) retries: usize,
}

impl ModelQuestion<'_> {
    /// The key of the stored answer: it changes when the user requests a new answer.
    fn answer_key(&self, model: &str) -> Hash {
        let ask = self.ask;
        [model, &ask.system, &ask.user, &ask.max_tokens.to_string(), &self.retries.to_string()]
            .iter()
            .fold(Hash::of(b"question"), |hash, part| hash.chain(part.as_bytes()))
    }
}

/// The tiers of a request. A request for days starts at the lowest tier.
fn requested_tiers(request: &RollupRequest) -> Vec<Tier> {
    match (request.tier, request.days) {
        (Some(top), Some(_)) => Tier::ALL.iter().copied().filter(|&tier| tier <= top).collect(),
        (Some(tier), None) => vec![tier],
        (None, _) => Tier::ALL.to_vec(),
    }
}

fn due_override(request: &RollupRequest, tier: Tier) -> Option<PlanRequest> {
    let before_its_time = request.tier.is_some_and(|top| tier <= top)
        && (request.days.is_some() || request.sessions.is_some());
    before_its_time.then_some(PlanRequest { tier, days: request.days })
}

fn is_requested(request: &RollupRequest, due: &DueSummary) -> bool {
    let days = due.period.days();
    let in_time =
        request.days.is_none_or(|wanted| wanted.first <= days.last && days.first <= wanted.last);
    in_time
        && request
            .sessions
            .as_ref()
            .is_none_or(|sessions| due.session.as_ref().is_some_and(|key| sessions.contains(key)))
}

/// Numbers sessions in the order of their summaries; deferred sessions get no number.
fn renumber_sessions(due: &mut [DueSummary], heads: &SummaryHeads) {
    let mut next: BTreeMap<Date, u32> = BTreeMap::new();
    for one in due {
        if let (Period::Session { day, .. }, Some(key)) = (one.period, &one.session)
            && heads.get_session(key).is_none()
        {
            let number = next.entry(day).or_insert_with(|| heads.next_session_number(day));
            one.period = Period::Session { day, number: *number };
            *number += 1;
        }
    }
}

fn deferred_node(waiting: WaitingSummary) -> DeferredNode {
    DeferredNode { period: waiting.period, why: format!("waits for {}", waiting.for_what) }
}

/// The statement that a summary must keep for an event, if any.
fn required_statement(event: &Event, light: bool) -> Option<RequiredItem> {
    let weighty = event.priority <= Priority::P1 || event.kind == EventType::Commitment;
    if !(weighty || event.kind == EventType::Decision) {
        return None;
    }
    let due = event.due.map_or(String::new(), |due| format!(", due {due}"));
    Some(RequiredItem {
        id: Some(event.id.to_string()),
        label: format!("{} {}{due}", event.priority, event.kind),
        text: event.content.clone(),
        is_optional: light && !weighty,
    })
}

/// Lines of a text that are marked as worth keeping.
fn marked_lines(text: &str, light: bool) -> impl Iterator<Item = RequiredItem> + '_ {
    text.lines().filter(|line| extractive::is_marked_to_keep(line)).map(move |line| {
        let line = line.trim_start_matches(|c: char| c.is_whitespace() || "-*>".contains(c)).trim();
        // A mark in brackets becomes the label again.
        let (label, text) = match line.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((label, text)) => (label.trim(), text.trim()),
            None => ("decision", line),
        };
        // Do not repeat a word of the label.
        let text = match text.split_once(':') {
            Some((word, rest))
                if ["decision", "decided"]
                    .contains(&word.trim_matches('*').to_ascii_lowercase().as_str()) =>
            {
                rest.trim_matches(['*', ' '])
            }
            _ => text,
        };
        RequiredItem {
            id: None,
            label: label.to_owned(),
            text: text.to_owned(),
            is_optional: light,
        }
    })
}

/// The summary length that a model is asked for.
fn target_tokens(tier: Tier, importance: Importance) -> usize {
    let tokens = match tier {
        Tier::Session => 1_250,
        Tier::Day => 500,
        Tier::Week => 2_000,
        Tier::Month | Tier::Year => 2_500,
    };
    match importance {
        Importance::Important => tokens * 3 / 2,
        Importance::Ordinary => tokens,
        Importance::Dull => 100,
    }
}

/// Replaces sources by their most important sentences where they exceed the model's input limit.
fn shorten_to_fit(material: &mut SourceMaterial, room: usize) {
    let tokens: usize = material
        .shown
        .iter()
        .map(|source| {
            budget::estimate_tokens(&source.text) + budget::estimate_tokens(&source.name) + 12
        })
        .sum();
    if tokens <= room {
        return;
    }
    let sources: Vec<SourceText<'_>> = material
        .shown
        .iter()
        .map(|source| SourceText { text: &source.text, weight: 1.0, speaker: None })
        .collect();
    // A token has at least four bytes; in other scripts fewer sentences fit.
    let pressed = extractive::summarize(
        &sources,
        extractive::ExtractLimits { headline_bytes: 200, body_bytes: room * 2, lines: usize::MAX },
    );
    let mut lines: Vec<(usize, String)> =
        pressed.lines.into_iter().map(|line| (line.source, line.text)).collect();
    lines.sort_by_key(|(source, _)| *source);
    let mut shown: Vec<PromptSource> = Vec::new();
    let mut last = usize::MAX;
    for (source, text) in lines {
        if source == last {
            if let Some(one) = shown.last_mut() {
                one.text.push('\n');
                one.text.push_str(&text);
            }
        } else {
            shown.push(PromptSource { name: material.shown[source].name.clone(), text });
            last = source;
        }
    }
    while shown
        .iter()
        .map(|source| {
            budget::estimate_tokens(&source.text) + budget::estimate_tokens(&source.name) + 12
        })
        .sum::<usize>()
        > room
        && shown.len() > 1
    {
        shown.remove(0);
    }
    material.left_out.push(Omission::new(
        format!("{} sentences of the sources", pressed.left_out),
        "the model's input limit",
    ));
    material.shown = shown;
}

/// All source text, as the judge compares it.
fn source_text(material: &SourceMaterial) -> String {
    let mut text = String::new();
    for source in &material.shown {
        text.push_str(&source.name);
        text.push('\n');
        text.push_str(&source.text);
        text.push('\n');
    }
    for must in &material.must {
        text.push_str(&must.to_line());
        text.push('\n');
    }
    text
}

fn draft_schema() -> AnswerSchema {
    AnswerSchema {
        name: "summary",
        json: serde_json::json!({
            "type": "object",
            "properties": { "headline": { "type": "string", "maxLength": 900 }, "body": { "type": "string", "maxLength": 16_000 } },
            "required": ["headline", "body"],
            "additionalProperties": false,
        }),
    }
}

/// Whether a JSON object is cut off: repaired, it would pass for a complete one.
pub(crate) fn is_cut_off(text: &str) -> bool {
    reply::json_object(text).is_some_and(|read| read.repaired)
        && !text.trim_end().trim_end_matches('`').trim_end().ends_with(['}', ']'])
}

/// Reads a draft from a model's answer: the JSON object that was asked for, else the first
/// paragraph and the rest.
pub(crate) fn parse_draft(text: &str) -> SummaryDraft {
    if let Some(read) = reply::json_object(text) {
        let field = |name: &str| match read.value.get(name) {
            Some(serde_json::Value::String(text)) => text.clone(),
            Some(serde_json::Value::Array(lines)) => {
                lines.iter().filter_map(|line| line.as_str()).collect::<Vec<_>>().join("\n")
            }
            _ => String::new(),
        };
        let draft = SummaryDraft { headline: field("headline"), body: field("body") };
        if !draft.headline.trim().is_empty() {
            return draft;
        }
    }
    let text = reply::without_thinking(text);
    let text = text.trim();
    if text.starts_with('{') || text.starts_with('[') {
        // Text that looks like another JSON object is not a draft.
        return SummaryDraft::default();
    }
    let (headline, body) = text.split_once("\n\n").unwrap_or((text, ""));
    SummaryDraft { headline: headline.to_owned(), body: body.to_owned() }
}
