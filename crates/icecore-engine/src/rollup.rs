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

use icecore_domain::across::similar::Shelf;
use icecore_domain::budget::{self, LeftOut};
use icecore_domain::calendar::Days;
use icecore_domain::cascade::compose::{self, Size};
use icecore_domain::cascade::importance;
use icecore_domain::cascade::judge::{self, Case, Complaint, Draft, Must};
use icecore_domain::cascade::plan::{Asked, Due, Heads, Known, Waiting};
use icecore_domain::cascade::press::{self, Source};
use icecore_domain::event::{Event, Kind, Priority};
use icecore_domain::hash::Hash;
use icecore_domain::layout::DocPath;
use icecore_domain::ledger::query::EventQuery;
use icecore_domain::plain;
use icecore_domain::record::{Record, Role, SessionKey, Trust};
use icecore_domain::schedule::Job;
use icecore_domain::summary::{self, Cost, Importance, Maker, Period, Summary, SummaryQuery, Tier};
use icecore_store::Claimed;
use jiff::ToSpan;
use jiff::civil::Date;
use serde::Serialize;

use crate::config::WithoutModel;
use crate::llm::{Ask, Finish, Llm, Schema, Trouble, reply};
use crate::prompts::{Filling, Prompts, Shown};
use crate::{Error, Memory, Result};

/// A model that may be asked, and its token limits.
pub struct Asking<'a> {
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
pub struct Wish {
    /// Only this tier; `None` for everything that is due.
    pub tier: Option<Tier>,
    /// Only nodes that touch these days, whether they are due or not.
    pub days: Option<Days>,
    pub sessions: Option<Vec<SessionKey>>,
}

impl Wish {
    /// Requests one tier, one period, or everything that is due. Fails if the period is of another
    /// tier.
    pub fn of(tier: Option<Tier>, period: Option<Period>) -> Result<Self, String> {
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
pub struct PressedNode {
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
pub struct Deferred {
    pub period: Period,
    pub why: String,
}

/// The result of a run.
#[derive(Debug, Default, Serialize)]
pub struct Rolled {
    /// The new summaries.
    pub pressed: Vec<PressedNode>,
    /// Drafts that the judge refused; they wait for review.
    pub flagged: Vec<Deferred>,
    pub deferred: Vec<Deferred>,
    /// Files that were written, moved or adopted from a user's editor.
    pub files: crate::views::Files,
    /// Why the model was not asked any more in this run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub silent: Option<String>,
}

impl Rolled {
    /// Whether there was nothing to do.
    pub fn is_idle(&self) -> bool {
        self.pressed.is_empty() && self.deferred.is_empty() && self.flagged.is_empty()
    }
}

/// The result of summarizing the past.
#[derive(Debug, Serialize)]
pub struct Backfilled {
    pub rolled: Rolled,
    /// The number of periods that are left for the next run.
    pub left: usize,
    /// Whether the token ceiling of the day stopped the run.
    pub ceiling_reached: bool,
}

/// What a run would do.
#[derive(Debug, Default, Serialize)]
pub struct Outlook {
    /// Due now, tier by tier; the tiers above follow.
    pub due: Vec<DueNode>,
    /// Due, but sources are missing.
    pub waiting: Vec<Deferred>,
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
pub type Watch<'a> = &'a (dyn Fn(&str, usize, usize) + Send + Sync);

/// The source texts of one node.
struct Material {
    shown: Vec<Shown>,
    must: Vec<Must>,
    importance: Importance,
    left_out: Vec<LeftOut>,
}

impl Material {
    /// Adds records. Text that comes only from tools and strangers is left out: a summary states
    /// what happened, and their text could make it state something false.
    fn take_records(&mut self, records: &[&Record]) {
        let (instructions, spoken): (Vec<&Record>, Vec<&Record>) =
            records.iter().partition(|record| record.is_instructions());
        let (withdrawn, spoken): (Vec<&Record>, Vec<&Record>) =
            spoken.iter().partition(|record| record.withdrawn);
        let (told, strangers): (Vec<&Record>, Vec<&Record>) =
            spoken.iter().partition(|record| Trust::of(record.origin) != Trust::Low);
        let messages = |count: usize, one: &str, many: &str| match count {
            1 => format!("a message of {one}"),
            count => format!("{count} messages of {many}"),
        };
        if !instructions.is_empty() {
            let what =
                messages(instructions.len(), "a client to its model", "a client to its model");
            if spoken.is_empty() {
                self.shown.push(Shown {
                    name: "client".into(),
                    text: format!("Nothing was said but {what}."),
                });
            }
            self.left_out.push(LeftOut::new(
                what,
                "a client's instructions are not summarized; `icecore zoom` shows them",
            ));
        }
        if !withdrawn.is_empty() {
            let what = messages(withdrawn.len(), "a withdrawn turn", "withdrawn turns");
            if spoken.is_empty() {
                self.shown.push(Shown {
                    name: "client".into(),
                    text: format!("Nothing remains but {what}."),
                });
            }
            self.left_out.push(LeftOut::new(
                what,
                "the conversation goes on without them; `icecore zoom` shows them",
            ));
        }
        if !strangers.is_empty() {
            let what = messages(strangers.len(), "a tool or stranger", "tools and strangers");
            if told.is_empty() {
                self.shown.push(Shown {
                    name: "tools".into(),
                    text: format!("Nothing was said but {what}."),
                });
            }
            self.left_out.push(LeftOut::new(
                what,
                "their messages are not summarized; `icecore zoom` and `icecore search` find them",
            ));
        }
        for record in told {
            self.must.extend(marked(&record.text, false));
            let title = record.title.as_ref().map_or(String::new(), |title| format!(" ({title})"));
            // Tool results have the user's role too. The parts of an assistant's record are its own
            // calls.
            let parts = record.parts.as_deref().filter(|_| record.role == Role::Assistant);
            let parts =
                parts.map_or(String::new(), |parts| format!("\n{}", budget::shortened(parts, 300)));
            self.shown.push(Shown {
                name: format!("{} {}{title}", record.ts.clock(), record.speaker()),
                text: format!("{}{parts}", record.text.trim()),
            });
        }
    }

    /// Removes duplicate statements: text that an event id covers already, and repeated text.
    fn name_once(&mut self) {
        let ids: HashSet<String> = self.must.iter().filter_map(|must| must.id.clone()).collect();
        let mut seen = HashSet::new();
        self.must.retain(|must| {
            let doubled = must.id.is_none() && ids.iter().any(|id| must.text.contains(id.as_str()));
            !doubled
                && seen.insert(must.id.clone().unwrap_or_else(|| plain::sameness_key(&must.text)))
        });
        // Remove a line that repeats an event.
        let events: Vec<String> =
            self.must.iter().filter(|must| must.id.is_some()).map(Must::line).collect();
        let events = events.join("\n");
        self.must.retain(|must| {
            must.id.is_some()
                || !judge::missing(&[Must { may_go: false, ..must.clone() }], &events).is_empty()
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
const DRAFTS: u32 = 3;
/// The number of provisional summaries that are written at once.
const BATCH: usize = 64;

enum Made {
    Draft {
        draft: Draft,
        maker: Maker,
        cost: Cost,
        left_out: Vec<LeftOut>,
    },
    Refused {
        draft: Draft,
        complaints: Vec<Complaint>,
        cost: Cost,
    },
    /// `all` if the rest of the run is deferred too, `ceiling` if the day's tokens are spent.
    Deferred {
        why: String,
        all: bool,
        ceiling: bool,
    },
}

/// Why a question to the model is deferred.
pub(crate) struct Later {
    pub(crate) why: String,
    /// The rest of the run is deferred too.
    pub(crate) all: bool,
    /// The day's tokens are spent.
    ceiling: bool,
}

/// The state of one rollup run.
struct Pressing<'a> {
    alone: Claimed,
    asking: Option<&'a Asking<'a>>,
    prompts: Option<Prompts>,
    known: Known,
    rolled: Rolled,
    /// Why the model is not asked any more.
    silent: Option<String>,
    ceiling_reached: bool,
}

impl Memory {
    /// Acquires the rollup lease.
    async fn claim_pressing(&self) -> Result<Claimed> {
        self.store.claim("pressing").await?.ok_or_else(|| {
            Error::Busy("another run is summarizing this memory; try again when it is done".into())
        })
    }

    /// Reads everything that the planner needs.
    pub async fn known(&self, has_model: bool) -> Result<Known> {
        let now = self.now();
        let (heads, _) = self.store.heads(&SummaryQuery::default()).await?;
        let until = self.horizon();
        let mut sessions = self.store.sessions(None).await?;
        // Records after this moment are ignored.
        sessions.retain(|stat| until.is_none_or(|until| stat.first.at() <= until));
        let timetable = self.policy.schedule.timetable()?;
        let last = |job| timetable.last_due(job, now.at(), &self.zone).map(|due| due.date);
        Ok(Known {
            sessions,
            heads: Heads::new(heads),
            event_days: self.store.event_days().await?.into_iter().collect(),
            logs: self.logs(now.day()).await?,
            marks: self.marks().await?,
            refused: self.refused().await?,
            week_run: last(Job::Week),
            month_run: last(Job::Month),
            idle_minutes: self.policy.session_idle_minutes(),
            has_model,
            zone: self.zone.clone(),
            now,
        })
    }

    /// The hashes of the recent logs.
    async fn logs(&self, today: Date) -> Result<BTreeMap<Date, Option<Hash>>> {
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
    pub async fn outlook(&self, wish: &Wish, has_model: bool) -> Result<Outlook> {
        let known = self.known(has_model).await?;
        let mut outlook = Outlook::default();
        for tier in tiers(wish) {
            let plan = known.plan(tier, asked(wish, tier));
            outlook.due.extend(plan.due.into_iter().filter(|due| wanted(wish, due)).map(|due| {
                DueNode { period: due.period, tier, why: due.why.word(), messages: due.messages }
            }));
            outlook.waiting.extend(plan.waiting.into_iter().map(waits));
        }
        Ok(outlook)
    }

    /// Summarizes what is due, until nothing is.
    pub async fn roll(
        &self,
        wish: &Wish,
        asking: Option<&Asking<'_>>,
        watch: Watch<'_>,
    ) -> Result<Rolled> {
        let mut run = self.begin(asking).await?;
        for tier in tiers(wish) {
            let waiting = self
                .press_tier(&mut run, tier, asked(wish, tier), &|due| wanted(wish, due), watch)
                .await?;
            run.rolled.deferred.extend(waiting.into_iter().map(waits));
        }
        self.end(run).await
    }

    /// Summarizes what is due from the newest to the oldest, until nothing is due, or the model
    /// fails or the token ceiling is reached. The next run does the rest.
    pub async fn backfill(
        &self,
        asking: Option<&Asking<'_>>,
        watch: Watch<'_>,
    ) -> Result<Backfilled> {
        let mut run = self.begin(asking).await?;
        let left = |known: &Known| {
            let plans = Tier::ALL.iter().map(|&tier| known.plan(tier, None));
            plans.map(|plan| plan.due.len() + plan.waiting.len()).sum::<usize>()
        };
        let all = left(&run.known);
        for (tier, span) in run.known.backwards() {
            let before = run.rolled.pressed.len() + run.rolled.flagged.len();
            let only = |due: &Due| match due.period {
                Period::Session { day, .. } | Period::Day(day) => span.contains(day),
                period => period.days() == span,
            };
            self.press_tier(&mut run, tier, None, &only, &|what, done, _| {
                watch(what, before + done, all.max(before + done))
            })
            .await?;
            if run.silent.is_some() {
                break;
            }
        }
        let (left, ceiling_reached) = (left(&run.known), run.ceiling_reached);
        Ok(Backfilled { rolled: self.end(run).await?, left, ceiling_reached })
    }

    async fn begin<'a>(&self, asking: Option<&'a Asking<'a>>) -> Result<Pressing<'a>> {
        let alone = self.claim_pressing().await?;
        let mut rolled = Rolled::default();
        let prompts =
            if asking.is_some() { Some(Prompts::load(self.store.as_ref()).await?) } else { None };
        self.finish_views(&mut rolled).await?;
        let known = self.known(asking.is_some()).await?;
        Ok(Pressing { alone, asking, rolled, prompts, known, silent: None, ceiling_reached: false })
    }

    async fn end(&self, run: Pressing<'_>) -> Result<Rolled> {
        // The lease is held until everything is written.
        let Pressing { alone: _alone, mut rolled, known, silent, .. } = run;
        rolled.silent = silent;
        self.tend_views(&known, &mut rolled).await?;
        Ok(rolled)
    }

    /// Summarizes what is due at a tier, and returns the nodes whose sources are missing.
    async fn press_tier(
        &self,
        run: &mut Pressing<'_>,
        tier: Tier,
        asked: Option<Asked>,
        only: &(dyn Fn(&Due) -> bool + Send + Sync),
        watch: Watch<'_>,
    ) -> Result<Vec<Waiting>> {
        let plan = run.known.plan(tier, asked);
        let mut due: Vec<Due> = plan.due.into_iter().filter(|due| only(due)).collect();
        renumber(&mut due, &run.known.heads);
        let all = due.len();
        let mut batch: Vec<(Due, Summary)> = Vec::new();
        let mut shelf: Option<Shelf> = None;
        for (done, due) in due.into_iter().enumerate() {
            watch(&due.period.to_string(), done, all);
            if due.by_hand && !self.ask_about_hand(&due, &mut run.rolled).await? {
                continue;
            }
            let made = match (run.asking, &run.prompts, &run.silent) {
                _ if due.refused => self.extract(&due).await?,
                (Some(asking), Some(prompts), None) => self.draft(&due, asking, prompts).await?,
                (Some(_), _, Some(why)) => {
                    Made::Deferred { why: why.clone(), all: true, ceiling: run.ceiling_reached }
                }
                _ => match self.policy.without_model()? {
                    WithoutModel::Extract => self.extract(&due).await?,
                    WithoutModel::Defer => Made::Deferred {
                        why: "no model is configured, and cascade.without_model is defer".into(),
                        all: true,
                        ceiling: false,
                    },
                },
            };
            match made {
                Made::Draft { draft, maker, cost, left_out } => {
                    let summary = self.summary(&due, draft, maker, cost, left_out).await?;
                    batch.push((due.clone(), self.referring(summary, &mut shelf).await?))
                }
                Made::Refused { draft, complaints, cost } => {
                    let why =
                        complaints.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
                    self.flag(&due, &draft, &why, cost).await?;
                    run.rolled.flagged.push(Deferred { period: due.period, why });
                    // Meanwhile an extractive summary is written, so that higher tiers have the
                    // best source there is.
                    if let Made::Draft { draft, maker, cost, left_out } = self.extract(&due).await?
                    {
                        let summary = self.summary(&due, draft, maker, cost, left_out).await?;
                        batch.push((due.clone(), self.referring(summary, &mut shelf).await?));
                    }
                }
                Made::Deferred { why, all, ceiling } => {
                    // A model that failed once is not asked again in this run.
                    if all && run.asking.is_some() && run.silent.is_none() {
                        (run.silent, run.ceiling_reached) = (Some(why.clone()), ceiling);
                    }
                    run.rolled.deferred.push(Deferred { period: due.period, why });
                }
            }
            if run.asking.is_some() || batch.len() >= BATCH {
                self.keep_pressed(std::mem::take(&mut batch), run).await?;
            }
        }
        self.keep_pressed(batch, run).await?;
        watch("", all, all);
        Ok(plan.waiting)
    }

    /// Writes versions, then the files that show them.
    async fn keep_pressed(&self, batch: Vec<(Due, Summary)>, run: &mut Pressing<'_>) -> Result<()> {
        if batch.is_empty() {
            return Ok(());
        }
        // Another run may have written the same version while the model worked.
        self.still_alone(&run.alone).await?;
        let Pressing { known, rolled, .. } = run;
        let summaries: Vec<Summary> = batch.iter().map(|(_, summary)| summary.clone()).collect();
        self.store.add_summaries(&summaries, None).await?;
        for (due, summary) in &batch {
            known.heads.put(summary.head());
            rolled.pressed.push(PressedNode {
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

    async fn summary(
        &self,
        due: &Due,
        draft: Draft,
        maker: Maker,
        cost: Cost,
        left_out: Vec<LeftOut>,
    ) -> Result<Summary> {
        let importance = self.importance(due).await?;
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
            provisional: maker == Maker::Extract,
            maker,
            importance,
            left_out,
            cost,
            similar: None,
        })
    }

    /// The summaries that a node is made from, in order.
    async fn children(&self, due: &Due) -> Result<Vec<Summary>> {
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
    async fn events_of(&self, days: Days) -> Result<Vec<Event>> {
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

    async fn records_of(&self, key: &SessionKey) -> Result<Vec<Record>> {
        let mut records = self.store.records(Days { first: key.day, last: key.day }).await?;
        let until = self.horizon();
        records.retain(|record| {
            record.session_key() == *key && until.is_none_or(|until| record.ts.at() <= until)
        });
        self.mark_withdrawn(&mut records).await?;
        // A summary does not mention that something was forgotten.
        records
            .iter_mut()
            .for_each(|record| record.text = icecore_domain::forget::without_marks(&record.text));
        Ok(records)
    }

    async fn importance(&self, due: &Due) -> Result<Importance> {
        match due.period {
            Period::Day(day) => {
                let events = self.events_of(due.period.days()).await?;
                let children = self.children(due).await?;
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
                let mark = self.marks().await?.get(&day).copied();
                Ok(importance::detect(importance::Day {
                    mark,
                    events: &events,
                    lines: &lines,
                    messages: due.messages,
                    bytes,
                }))
            }
            Period::Session { day, .. } => Ok(self
                .marks()
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
        Ok(self.gate_text(&String::from_utf8_lossy(
            &self.store.document(&DocPath::log(day)).await?.unwrap_or_default(),
        )))
    }

    /// Reads the sources of a node. `room` is the token limit of the reader.
    async fn material(&self, due: &Due, room: usize) -> Result<Material> {
        let importance = self.importance(due).await?;
        let mut material =
            Material { shown: Vec::new(), must: Vec::new(), importance, left_out: Vec::new() };
        if let Some(key) = &due.session {
            let records = self.records_of(key).await?;
            material.take_records(&records.iter().collect::<Vec<_>>());
        } else {
            let light = due.period.tier() >= Tier::Month;
            let events = self.events_of(due.period.days()).await?;
            material.must.extend(events.iter().filter_map(|event| to_keep(event, light)));
            let mut children = self.children(due).await?;
            if due.period.tier() == Tier::Week {
                children = self.fit_week(children, room, &mut material.left_out).await?;
            }
            for child in &children {
                material.must.extend(marked(&child.body, light));
                material.shown.push(Shown {
                    name: child.period.title(),
                    text: format!("{}\n{}", child.headline, child.body).trim_end().to_owned(),
                });
            }
            if let Period::Day(day) = due.period {
                let log = self.log_text(day).await?;
                if !log.trim().is_empty() {
                    material.must.extend(marked(&log, light));
                    material.shown.push(Shown {
                        name: "the day's log".into(),
                        text: plain::clean(&log).text,
                    });
                }
            }
        }
        material.name_once();
        Ok(material)
    }

    /// Replaces the oldest session primers of a week by day summaries until the rest fits.
    async fn fit_week(
        &self,
        children: Vec<Summary>,
        room: usize,
        left_out: &mut Vec<LeftOut>,
    ) -> Result<Vec<Summary>> {
        let tokens = |children: &[Summary]| {
            children
                .iter()
                .map(|child| budget::tokens(&child.body) + budget::tokens(&child.headline) + 20)
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
            let of_day = SummaryQuery::within(Tier::Day, Days { first: day, last: day });
            let Some(summary) = self.store.summaries(&of_day).await?.pop() else { continue };
            let at =
                children.iter().position(|child| child.period.days().first == day).unwrap_or(0);
            let before = children.len();
            children.retain(|child| child.period.days().first != day);
            left_out.push(LeftOut::new(
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

    fn size(&self, due: &Due, importance: Importance, sources: usize) -> Size {
        let tier = due.period.tier();
        let file = self.policy.budget.of(tier, importance);
        // The file has a header too.
        let bytes = file.saturating_sub(summary::header_bytes(due.session.as_ref())).max(file / 4);
        Size { bytes, tokens: bytes / 3, wanted: compose::wanted(tier, importance, sources, bytes) }
    }

    /// A draft by the extractive summarizer.
    pub(crate) async fn extract_draft(&self, due: &Due) -> Result<Draft> {
        Ok(self.compose(due, &self.material(due, usize::MAX).await?).0)
    }

    /// A summary by the extractive summarizer.
    async fn extract(&self, due: &Due) -> Result<Made> {
        let begun = self.clock.millis();
        let material = self.material(due, usize::MAX).await?;
        let (draft, left_out) = self.compose(due, &material);
        let cost = Cost {
            bytes_in: material.bytes() as u64,
            millis: self.clock.millis() - begun,
            ..Cost::default()
        };
        Ok(Made::Draft {
            draft,
            maker: Maker::Extract,
            cost,
            left_out: [material.left_out, left_out].concat(),
        })
    }

    /// A draft by the extractive summarizer, from records that are already read.
    pub(crate) fn extract_from(&self, due: &Due, records: &[&Record]) -> (Draft, Vec<LeftOut>) {
        let mut material = Material {
            shown: Vec::new(),
            must: Vec::new(),
            importance: Importance::Ordinary,
            left_out: Vec::new(),
        };
        material.take_records(records);
        material.name_once();
        self.compose(due, &material)
    }

    fn compose(&self, due: &Due, material: &Material) -> (Draft, Vec<LeftOut>) {
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
        let sources: Vec<Source<'_>> = material
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
                Source { text, weight, speaker }
            })
            .collect();
        let size = self.size(due, material.importance, material.bytes());
        compose::compose(&sources, &material.must, material.importance, size)
    }

    /// Asks a model for a draft until the judge accepts it, at most three times.
    async fn draft(&self, due: &Due, asking: &Asking<'_>, prompts: &Prompts) -> Result<Made> {
        let begun = self.clock.millis();
        let room = asking.input_tokens.saturating_sub(1_500).max(500);
        let mut material = self.material(due, room).await?;
        let bytes_in = material.bytes();
        let size = self.size(due, material.importance, bytes_in);
        fit(&mut material, room);
        let sources = said(&material);
        let case = Case {
            days: due.period.days(),
            bytes: size.bytes,
            tokens: size.tokens,
            must: &material.must,
            sources: &sources,
            count: material.shown.len().max(due.children.len()),
        };
        let mut cost = Cost { bytes_in: bytes_in as u64, ..Cost::default() };
        let mut last: (Draft, Vec<Complaint>) = Default::default();
        for attempt in 0..DRAFTS {
            let days = due.period.days();
            let filling = Filling {
                tier: due.period.tier(),
                title: due.period.title(),
                span: if days.first == days.last {
                    days.first.to_string()
                } else {
                    format!("{} to {}", days.first, days.last)
                },
                tokens: tokens_wanted(due.period.tier(), material.importance).min(size.tokens),
                sentences: if due.period.tier() >= Tier::Month { "3 to 5" } else { "2 to 4" },
                must: material.must.iter().map(Must::line).collect(),
                sources: &material.shown,
                attempt,
                complaints: last.1.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "),
            };
            let (system, user) = prompts.fill(&filling)?;
            let ask = Ask {
                system,
                user,
                schema: Some(schema()),
                max_tokens: u32::try_from(size.tokens + 400).unwrap_or(u32::MAX),
                attempt,
            };
            let question = Question {
                ask: &ask,
                job: due.period.tier().word(),
                retries: self.retries(due.period).await?,
            };
            let heard = match self.ask(question, asking, &mut cost).await? {
                Ok(heard) => heard,
                Err(Later { why, all, ceiling }) => {
                    return Ok(Made::Deferred { why, all, ceiling });
                }
            };
            cost.attempts += 1;
            cost.millis = self.clock.millis() - begun;
            let draft = read_draft(&heard.text).tidied();
            let mut complaints = judge::judge(&case, &draft);
            if let Some(why) = heard.nothing {
                complaints = vec![Complaint::NoAnswer(why)];
            } else if heard.cut_off || breaks_off(&heard.text) {
                complaints.push(Complaint::NoAnswer("it was cut off".into()));
            }
            if complaints.is_empty() {
                let maker = Maker::Model(asking.llm.name());
                return Ok(Made::Draft { draft, maker, cost, left_out: material.left_out });
            }
            last = (draft, complaints);
        }
        Ok(Made::Refused { draft: last.0, complaints: last.1, cost })
    }

    /// Asks a model, unless the same question was answered before. `Err` with the reason if the
    /// question is deferred.
    pub(crate) async fn ask(
        &self,
        question: Question<'_>,
        asking: &Asking<'_>,
        cost: &mut Cost,
    ) -> Result<Result<Heard, Later>> {
        let Question { ask, job, .. } = question;
        let question = question.hash(&asking.llm.name());
        if let Some(kept) = self.store.answer(question).await?
            && let Ok(heard) = serde_json::from_slice::<Heard>(&kept)
        {
            return Ok(Ok(heard));
        }
        // The estimate is high on purpose: its error must not exceed the ceiling.
        let tokens_in =
            (budget::tokens(&ask.system) + budget::tokens(&ask.user)) as u64 * 5 / 4 + 200;
        let tokens_out = u64::from(ask.max_tokens).max(asking.output_tokens);
        let reserved = match self
            .reserve(job, &asking.llm.name(), tokens_in, tokens_out, asking.ceiling)
            .await?
        {
            Ok(reserved) => reserved,
            Err(left) => {
                let need = tokens_in + tokens_out;
                let why = format!(
                    "the question needs up to {need} tokens, but the day's ceiling of {} leaves {left}",
                    asking.ceiling
                );
                return Ok(Err(Later { why, all: true, ceiling: true }));
            }
        };
        match asking.llm.complete(ask, &|_| {}).await {
            Ok(answer) => {
                let heard = Heard {
                    text: answer.text,
                    cut_off: answer.finish == Finish::CutOff,
                    tokens_in: answer.tokens_in,
                    tokens_out: answer.tokens_out,
                    nothing: None,
                };
                // Store the answer first: then it need not be paid for again, whatever happens
                // next.
                self.store
                    .keep_answer(question, &serde_json::to_vec(&heard).unwrap_or_default())
                    .await?;
                self.settle(&reserved, heard.tokens_in, heard.tokens_out).await?;
                cost.tokens_in += heard.tokens_in;
                cost.tokens_out += heard.tokens_out;
                Ok(Ok(heard))
            }
            Err(trouble) => {
                if !trouble.may_have_cost() {
                    self.settle(&reserved, 0, 0).await?;
                }
                // The model is available but gave no draft. The next attempt may succeed; if none
                // does, the draft goes to review. Waiting would block everything else for as long
                // as the model has no answer to this question.
                if matches!(trouble, Trouble::Empty { .. } | Trouble::TooLong { .. }) {
                    return Ok(Ok(Heard {
                        nothing: Some(trouble.to_string()),
                        ..Heard::default()
                    }));
                }
                // The model refused this one question, for example because it is too long. That
                // says nothing about the next question.
                let all = !matches!(trouble, Trouble::Refused { status: 400 | 413 | 422, .. });
                Ok(Err(Later {
                    why: format!("{} did not answer: {trouble}", asking.llm.name()),
                    all,
                    ceiling: false,
                }))
            }
        }
    }
}

/// A stored answer of the model.
#[derive(Debug, Clone, Default, Serialize, serde::Deserialize)]
pub(crate) struct Heard {
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
pub(crate) struct Question<'a> {
    pub(crate) ask: &'a Ask,
    pub(crate) job: &'static str,
    pub(crate) retries: usize,
}

impl Question<'_> {
    /// The key of the stored answer: it changes when the user requests a new answer.
    fn hash(&self, model: &str) -> Hash {
        let ask = self.ask;
        [model, &ask.system, &ask.user, &ask.max_tokens.to_string(), &self.retries.to_string()]
            .iter()
            .fold(Hash::of(b"question"), |hash, part| hash.then(part.as_bytes()))
    }
}

/// The tiers of a request. A request for days starts at the lowest tier.
fn tiers(wish: &Wish) -> Vec<Tier> {
    match (wish.tier, wish.days) {
        (Some(top), Some(_)) => Tier::ALL.iter().copied().filter(|&tier| tier <= top).collect(),
        (Some(tier), None) => vec![tier],
        (None, _) => Tier::ALL.to_vec(),
    }
}

fn asked(wish: &Wish, tier: Tier) -> Option<Asked> {
    let before_its_time = wish.tier.is_some_and(|top| tier <= top)
        && (wish.days.is_some() || wish.sessions.is_some());
    before_its_time.then_some(Asked { tier, days: wish.days })
}

fn wanted(wish: &Wish, due: &Due) -> bool {
    let days = due.period.days();
    let in_time =
        wish.days.is_none_or(|wanted| wanted.first <= days.last && days.first <= wanted.last);
    in_time
        && wish
            .sessions
            .as_ref()
            .is_none_or(|sessions| due.session.as_ref().is_some_and(|key| sessions.contains(key)))
}

/// Numbers sessions in the order of their summaries; deferred sessions get no number.
fn renumber(due: &mut [Due], heads: &Heads) {
    let mut next: BTreeMap<Date, u32> = BTreeMap::new();
    for one in due {
        if let (Period::Session { day, .. }, Some(key)) = (one.period, &one.session)
            && heads.session(key).is_none()
        {
            let number = next.entry(day).or_insert_with(|| heads.next_number(day));
            one.period = Period::Session { day, number: *number };
            *number += 1;
        }
    }
}

fn waits(waiting: Waiting) -> Deferred {
    Deferred { period: waiting.period, why: format!("waits for {}", waiting.for_what) }
}

/// The statement that a summary must keep for an event, if any.
fn to_keep(event: &Event, light: bool) -> Option<Must> {
    let weighty = event.priority <= Priority::P1 || event.kind == Kind::Commitment;
    if !(weighty || event.kind == Kind::Decision) {
        return None;
    }
    let due = event.due.map_or(String::new(), |due| format!(", due {due}"));
    Some(Must {
        id: Some(event.id.to_string()),
        label: format!("{} {}{due}", event.priority, event.kind),
        text: event.content.clone(),
        may_go: light && !weighty,
    })
}

/// Lines of a text that are marked as worth keeping.
fn marked(text: &str, light: bool) -> impl Iterator<Item = Must> + '_ {
    text.lines().filter(|line| press::is_marked(line)).map(move |line| {
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
        Must { id: None, label: label.to_owned(), text: text.to_owned(), may_go: light }
    })
}

/// The summary length that a model is asked for.
fn tokens_wanted(tier: Tier, importance: Importance) -> usize {
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
fn fit(material: &mut Material, room: usize) {
    let tokens: usize = material
        .shown
        .iter()
        .map(|source| budget::tokens(&source.text) + budget::tokens(&source.name) + 12)
        .sum();
    if tokens <= room {
        return;
    }
    let sources: Vec<Source<'_>> = material
        .shown
        .iter()
        .map(|source| Source { text: &source.text, weight: 1.0, speaker: None })
        .collect();
    // A token has at least four bytes; in other scripts fewer sentences fit.
    let pressed = press::press(
        &sources,
        press::Room { headline_bytes: 200, body_bytes: room * 2, lines: usize::MAX },
    );
    let mut lines: Vec<(usize, String)> =
        pressed.lines.into_iter().map(|line| (line.source, line.text)).collect();
    lines.sort_by_key(|(source, _)| *source);
    let mut shown: Vec<Shown> = Vec::new();
    let mut last = usize::MAX;
    for (source, text) in lines {
        if source == last {
            if let Some(one) = shown.last_mut() {
                one.text.push('\n');
                one.text.push_str(&text);
            }
        } else {
            shown.push(Shown { name: material.shown[source].name.clone(), text });
            last = source;
        }
    }
    while shown
        .iter()
        .map(|source| budget::tokens(&source.text) + budget::tokens(&source.name) + 12)
        .sum::<usize>()
        > room
        && shown.len() > 1
    {
        shown.remove(0);
    }
    material.left_out.push(LeftOut::new(
        format!("{} sentences of the sources", pressed.left_out),
        "the model's input limit",
    ));
    material.shown = shown;
}

/// All source text, as the judge compares it.
fn said(material: &Material) -> String {
    let mut text = String::new();
    for source in &material.shown {
        text.push_str(&source.name);
        text.push('\n');
        text.push_str(&source.text);
        text.push('\n');
    }
    for must in &material.must {
        text.push_str(&must.line());
        text.push('\n');
    }
    text
}

fn schema() -> Schema {
    Schema {
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
pub(crate) fn breaks_off(text: &str) -> bool {
    reply::json_object(text).is_some_and(|read| read.repaired)
        && !text.trim_end().trim_end_matches('`').trim_end().ends_with(['}', ']'])
}

/// Reads a draft from a model's answer: the JSON object that was asked for, else the first
/// paragraph and the rest.
pub(crate) fn read_draft(text: &str) -> Draft {
    if let Some(read) = reply::json_object(text) {
        let field = |name: &str| match read.value.get(name) {
            Some(serde_json::Value::String(text)) => text.clone(),
            Some(serde_json::Value::Array(lines)) => {
                lines.iter().filter_map(|line| line.as_str()).collect::<Vec<_>>().join("\n")
            }
            _ => String::new(),
        };
        let draft = Draft { headline: field("headline"), body: field("body") };
        if !draft.headline.trim().is_empty() {
            return draft;
        }
    }
    let text = reply::without_thinking(text);
    let text = text.trim();
    if text.starts_with('{') || text.starts_with('[') {
        // Text that looks like another JSON object is no draft.
        return Draft::default();
    }
    let (headline, body) = text.split_once("\n\n").unwrap_or((text, ""));
    Draft { headline: headline.to_owned(), body: body.to_owned() }
}
