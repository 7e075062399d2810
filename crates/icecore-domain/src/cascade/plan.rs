//! Plans which summaries are due, from stored data only.
//!
//! A summary is due when its time has come and its sources changed since it was made. Therefore
//! planning again finishes an interrupted run, a late record reopens its day and everything built
//! on it, and planning twice in a row finds nothing the second time.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use jiff::ToSpan;
use jiff::civil::Date;

use crate::calendar::{Days, Moment, Month, Week, Zone};
use crate::hash::Hash;
use crate::record::{SessionKey, SessionStats};
use crate::summary::{Importance, Period, SummaryHead, Tier};

/// The newest version of every summary, without texts.
#[derive(Debug, Clone, Default)]
pub struct SummaryHeads {
    by_period: BTreeMap<Period, SummaryHead>,
    by_session: HashMap<SessionKey, Period>,
    /// The highest session number of each day.
    numbers: HashMap<Date, u32>,
}

impl SummaryHeads {
    /// Collects these versions; a later one replaces an earlier one.
    pub fn new(heads: impl IntoIterator<Item = SummaryHead>) -> Self {
        let mut all = Self::default();
        heads.into_iter().for_each(|head| all.insert(head));
        all
    }

    /// Adds a newer version.
    pub fn insert(&mut self, head: SummaryHead) {
        if let Period::Session { day, number } = head.period {
            // A foreign primer has a number but no session.
            if let Some(key) = &head.session {
                self.by_session.insert(key.clone(), head.period);
            }
            let highest = self.numbers.entry(day).or_default();
            *highest = (*highest).max(number);
        }
        self.by_period.insert(head.period, head);
    }

    /// The newest version for a period.
    pub fn get(&self, period: Period) -> Option<&SummaryHead> {
        self.by_period.get(&period)
    }

    /// The newest version for a session.
    pub fn get_session(&self, key: &SessionKey) -> Option<&SummaryHead> {
        self.by_period.get(self.by_session.get(key)?)
    }

    /// Every summary, by tier and time.
    pub fn all(&self) -> impl Iterator<Item = &SummaryHead> {
        self.by_period.values()
    }

    /// The next free session number of that day.
    pub fn next_session_number(&self, day: Date) -> u32 {
        self.numbers.get(&day).map_or(1, |highest| highest + 1)
    }
}

/// The complete input of planning.
#[derive(Debug, Clone)]
pub struct PlanningInput {
    /// The current time.
    pub now: Moment,
    /// The time zone that defines days.
    pub zone: Zone,
    /// The records, session by session.
    pub sessions: Vec<SessionStats>,
    /// The existing summaries.
    pub heads: SummaryHeads,
    /// The number of events recorded on each day.
    pub event_days: BTreeMap<Date, usize>,
    /// Hashes of the day logs that were read. Logs of other days count as unchanged.
    pub logs: BTreeMap<Date, Option<Hash>>,
    /// Days with an explicit importance.
    pub marks: BTreeMap<Date, Importance>,
    /// Refused drafts: not requested again while their sources are the same.
    pub refused: BTreeSet<(String, String)>,
    /// The last day on which the weekly job was scheduled.
    pub week_run: Option<Date>,
    /// The last day on which the monthly job was scheduled.
    pub month_run: Option<Date>,
    /// A session is over after this many minutes without records.
    pub idle_minutes: u16,
    /// Whether a model is available.
    pub has_model: bool,
}

/// Why a summary is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DueReason {
    /// It does not exist yet.
    New,
    /// Its sources changed.
    Changed,
    /// It was made without a model, and a model is available now.
    Provisional,
}

impl DueReason {
    /// The word for tables.
    pub fn word(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Changed => "changed",
            Self::Provisional => "provisional",
        }
    }
}

/// A summary to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DueSummary {
    pub period: Period,
    /// The session's records, for a session summary.
    pub session: Option<SessionKey>,
    /// A hash of the sources.
    pub source: Hash,
    /// The summaries that are its sources.
    pub children: Vec<Period>,
    /// A hash of the day's log, for a day that has one.
    pub log: Option<Hash>,
    /// The number of records covered.
    pub messages: u64,
    /// The number of saved states among them.
    pub states: u64,
    /// The first moment covered.
    pub start: Moment,
    /// The last moment covered.
    pub end: Moment,
    pub why: DueReason,
    /// The next version number.
    pub version: u32,
    /// Whether a person edited the newest version.
    pub by_hand: bool,
    /// A draft from the same sources was refused; an extractive summary is used until the draft is
    /// reviewed.
    pub refused: bool,
}

/// A summary whose time has come but whose sources are incomplete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitingSummary {
    pub period: Period,
    /// The first missing source.
    pub for_what: String,
}

/// The plan for one tier.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RollupPlan {
    /// The summaries to write, in this order.
    pub due: Vec<DueSummary>,
    /// The summaries that wait for sources.
    pub waiting: Vec<WaitingSummary>,
}

/// Summaries requested before their time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlanRequest {
    /// The tier.
    pub tier: Tier,
    /// Only periods that touch these days; all if absent.
    pub days: Option<Days>,
}

impl PlanningInput {
    fn today(&self) -> Date {
        self.now.day()
    }

    /// Whether the local day is over.
    fn is_day_over(&self, day: Date) -> bool {
        day < self.today()
    }

    /// The backfill order of everything that is due: from the newest week to the oldest its
    /// sessions, its days and itself; each month after its earliest week, each year after its
    /// earliest month.
    pub fn backfill_order(&self) -> Vec<(Tier, Days)> {
        let mut weeks = BTreeSet::new();
        let (mut months, mut years) = (BTreeSet::new(), BTreeSet::new());
        for &tier in Tier::ALL {
            let plan = self.plan_tier(tier, None);
            for period in plan
                .due
                .iter()
                .map(|due| due.period)
                .chain(plan.waiting.iter().map(|waiting| waiting.period))
            {
                match period {
                    Period::Month(month) => _ = months.insert(month),
                    Period::Year(year) => _ = years.insert(year),
                    period => _ = weeks.insert(Week::containing(period.days().first)),
                }
            }
        }
        months.extend(weeks.iter().map(|week| week.month()));
        years.extend(months.iter().map(|month| month.year()));
        let mut way = Vec::new();
        for &year in years.iter().rev() {
            for &month in months.iter().rev().filter(|month| month.year() == year) {
                for &week in weeks.iter().rev().filter(|week| week.month() == month) {
                    way.extend(
                        [Tier::Session, Tier::Day, Tier::Week].map(|tier| (tier, week.days())),
                    );
                }
                way.push((Tier::Month, Period::Month(month).days()));
            }
            way.push((Tier::Year, Period::Year(year).days()));
        }
        way
    }

    /// The plan for a tier; with `asked`, also for requested periods before their time.
    pub fn plan_tier(&self, tier: Tier, asked: Option<PlanRequest>) -> RollupPlan {
        let asked = asked.filter(|asked| asked.tier == tier);
        let mut plan = match tier {
            Tier::Session => self.plan_sessions(asked),
            Tier::Day => self.plan_days(asked),
            Tier::Week => self.plan_weeks(asked),
            Tier::Month => self.plan_months(asked),
            Tier::Year => self.plan_years(asked),
        };
        // First what is missing or outdated, oldest first; then what could be improved, newest
        // first.
        plan.due.sort_by_key(|due| due.why == DueReason::Provisional);
        let better = plan
            .due
            .iter()
            .position(|due| due.why == DueReason::Provisional)
            .unwrap_or(plan.due.len());
        plan.due[better..].reverse();
        plan
    }

    /// The source hash of a session's records.
    pub fn session_source_hash(stat: &SessionStats) -> Hash {
        Hash::of(b"session").chain(stat.digest.hash().as_bytes())
    }

    fn is_requested(&self, asked: Option<PlanRequest>, days: Days) -> bool {
        asked.is_some_and(|asked| {
            asked.days.is_none_or(|wanted| wanted.first <= days.last && days.first <= wanted.last)
        })
    }

    fn plan_sessions(&self, asked: Option<PlanRequest>) -> RollupPlan {
        let mut plan = RollupPlan::default();
        let mut order: Vec<&SessionStats> =
            self.sessions.iter().filter(|stat| stat.key.day <= self.today()).collect();
        order.sort_by(|a, b| (a.key.day, a.first, &a.key).cmp(&(b.key.day, b.first, &b.key)));
        let mut given: HashMap<Date, u32> = HashMap::new();
        for stat in order {
            let day = stat.key.day;
            let quiet = self.now.timestamp().as_second() - stat.last.timestamp().as_second()
                >= i64::from(self.idle_minutes) * 60;
            if !(self.is_day_over(day)
                || quiet
                || self.is_requested(asked, Days { first: day, last: day }))
            {
                continue;
            }
            let head = self.heads.get_session(&stat.key);
            let period = head.map_or_else(
                || {
                    let number =
                        given.entry(day).or_insert_with(|| self.heads.next_session_number(day));
                    let period = Period::Session { day, number: *number };
                    *number += 1;
                    period
                },
                |head| head.period,
            );
            let shape = SourceTotals {
                messages: stat.digest.records,
                states: stat.states,
                start: stat.first,
                end: stat.last,
            };
            let due =
                self.due_summary(period, Self::session_source_hash(stat), Vec::new(), None, shape);
            plan.due.extend(due.map(|due| DueSummary { session: Some(stat.key.clone()), ..due }));
        }
        plan
    }

    /// The summary, if it is missing or outdated.
    fn due_summary(
        &self,
        period: Period,
        source: Hash,
        children: Vec<Period>,
        log: Option<Hash>,
        shape: SourceTotals,
    ) -> Option<DueSummary> {
        let head = self.heads.get(period);
        let refused = !self.refused.is_empty()
            && self.refused.contains(&(period.to_string(), source.to_string()));
        let why = match head {
            None => DueReason::New,
            Some(head) if head.source != source => DueReason::Changed,
            Some(head) if head.provisional && self.has_model && !refused => DueReason::Provisional,
            Some(_) => return None,
        };
        Some(DueSummary {
            period,
            session: None,
            source,
            children,
            log,
            messages: shape.messages,
            states: shape.states,
            start: shape.start,
            end: shape.end,
            why,
            version: head.map_or(1, |head| head.version + 1),
            by_hand: head.is_some_and(|head| head.by_hand),
            refused,
        })
    }

    /// The sessions of each day, in the order of their keys.
    fn sessions_by_day(&self) -> BTreeMap<Date, Vec<&SessionStats>> {
        let mut days: BTreeMap<Date, Vec<&SessionStats>> = BTreeMap::new();
        for stat in &self.sessions {
            days.entry(stat.key.day).or_default().push(stat);
        }
        days
    }

    /// The hash of the day's log: as read, else as it was when the day was summarized.
    fn log_hash(&self, day: Date) -> Option<Hash> {
        match self.logs.get(&day) {
            Some(&log) => log,
            None => self.heads.get(Period::Day(day)).and_then(|head| head.log),
        }
    }

    /// The session's summary, if it matches the current records.
    fn current_summary(&self, stat: &SessionStats) -> Option<&SummaryHead> {
        self.heads
            .get_session(&stat.key)
            .filter(|head| head.source == Self::session_source_hash(stat))
    }

    /// The totals of these summaries as sources of those days.
    fn source_totals(&self, days: Days, children: &[&SummaryHead]) -> SourceTotals {
        let start = self.zone.moment(self.zone.day_start(days.first));
        let end = days
            .last
            .checked_add(1.day())
            .map_or(start, |next| self.zone.moment(self.zone.day_start(next)));
        SourceTotals {
            messages: children.iter().map(|head| head.messages).sum(),
            states: children.iter().map(|head| head.states).sum(),
            start,
            end,
        }
    }

    fn plan_days(&self, asked: Option<PlanRequest>) -> RollupPlan {
        let mut plan = RollupPlan::default();
        let by_day = self.sessions_by_day();
        let logged = self.logs.iter().filter(|(_, log)| log.is_some()).map(|(&day, _)| day);
        let days: BTreeSet<Date> =
            by_day.keys().copied().chain(logged).filter(|&day| day <= self.today()).collect();
        for day in days {
            if !(self.is_day_over(day) || self.is_requested(asked, Days { first: day, last: day }))
            {
                continue;
            }
            match self.plan_day(day, by_day.get(&day).map_or(&[], Vec::as_slice)) {
                Ok(due) => plan.due.extend(due),
                Err(for_what) => {
                    plan.waiting.push(WaitingSummary { period: Period::Day(day), for_what })
                }
            }
        }
        plan
    }

    /// The day's summary, if it is missing or outdated; the error names what it waits for.
    fn plan_day(&self, day: Date, stats: &[&SessionStats]) -> Result<Option<DueSummary>, String> {
        let current = |stat: &&SessionStats| {
            self.current_summary(stat).ok_or_else(|| describe_session(&stat.key))
        };
        let mut children =
            stats.iter().map(current).collect::<Result<Vec<&SummaryHead>, String>>()?;
        children.sort_by_key(|head| head.period);
        let log = self.log_hash(day);
        let source = hash_children("day", &children)
            .chain(&self.event_days.get(&day).map_or([0; 8], |count| (*count as u64).to_be_bytes()))
            .chain(log.map_or(String::new(), |log| log.to_string()).as_bytes())
            .chain(self.marks.get(&day).map_or("", |mark| mark.word()).as_bytes());
        let shape = self.source_totals(Days { first: day, last: day }, &children);
        Ok(self.due_summary(
            Period::Day(day),
            source,
            children.iter().map(|head| head.period).collect(),
            log,
            shape,
        ))
    }

    /// Whether every day of a week is over.
    fn is_week_over(&self, week: Week) -> bool {
        self.is_day_over(week.sunday())
    }

    /// The sources of a week: its session primers, and the day summaries of days with a log.
    fn week_children(
        &self,
        week: Week,
        by_day: &BTreeMap<Date, Vec<&SessionStats>>,
    ) -> Result<Vec<&SummaryHead>, String> {
        let closed = self.is_week_over(week);
        let mut children = Vec::new();
        for day in week.days().iter() {
            let stats = by_day.get(&day).map_or(&[][..], Vec::as_slice);
            if self.log_hash(day).is_some() {
                if closed
                    && self
                        .plan_day(day, stats)?
                        .is_some_and(|due| due.why != DueReason::Provisional)
                {
                    return Err(day.to_string());
                }
                children.extend(self.heads.get(Period::Day(day)));
                continue;
            }
            let mut sessions = Vec::new();
            for stat in stats {
                match self.current_summary(stat) {
                    Some(head) => sessions.push(head),
                    None if closed => return Err(describe_session(&stat.key)),
                    None => {}
                }
            }
            sessions.sort_by_key(|head| head.period);
            children.extend(sessions);
        }
        Ok(children)
    }

    fn plan_weeks(&self, asked: Option<PlanRequest>) -> RollupPlan {
        let mut plan = RollupPlan::default();
        let by_day = self.sessions_by_day();
        let logged =
            self.heads.all().filter(|head| head.log.is_some()).map(|head| head.period.days().first);
        let weeks: BTreeSet<Week> = by_day
            .keys()
            .copied()
            .chain(logged)
            .filter(|&day| day <= self.today())
            .map(Week::containing)
            .collect();
        for week in weeks {
            let days = week.days();
            // The weekly job summarizes the week so far, once; later records are added when the
            // week is over.
            let pressed = self.heads.get(Period::Week(week)).map(|head| head.recorded.day());
            let begun = self.week_run.is_some_and(|run| {
                days.contains(run) && pressed.is_none_or(|pressed| pressed < run)
            });
            if !(self.is_week_over(week) || begun || self.is_requested(asked, days)) {
                continue;
            }
            let children = match self.week_children(week, &by_day) {
                Ok(children) if children.is_empty() => continue,
                Ok(children) => children,
                Err(for_what) => {
                    plan.waiting.push(WaitingSummary { period: Period::Week(week), for_what });
                    continue;
                }
            };
            let events: usize =
                self.event_days.range(days.first..=days.last).map(|(_, count)| count).sum();
            let source = hash_children("week", &children).chain(&(events as u64).to_be_bytes());
            let shape = self.source_totals(days, &children);
            let children = children.iter().map(|head| head.period).collect();
            plan.due.extend(self.due_summary(Period::Week(week), source, children, None, shape));
        }
        plan
    }

    /// The summaries of a tier that must be written before anything that is built on them.
    fn pending_periods(&self, tier: Tier) -> Vec<Period> {
        let plan = self.plan_tier(tier, None);
        let due =
            plan.due.iter().filter(|due| due.why != DueReason::Provisional).map(|due| due.period);
        plan.waiting.iter().map(|waiting| waiting.period).chain(due).collect()
    }

    fn plan_months(&self, asked: Option<PlanRequest>) -> RollupPlan {
        let weeks = self.heads.all().filter_map(|head| {
            if let Period::Week(week) = head.period { Some((week.month(), head)) } else { None }
        });
        let mut months: BTreeMap<Month, Vec<&SummaryHead>> = BTreeMap::new();
        weeks.for_each(|(month, head)| months.entry(month).or_default().push(head));
        let unready = self.pending_periods(Tier::Week);
        let mut plan = RollupPlan::default();
        for (month, children) in months {
            let days = month.week_span();
            // From the monthly job of the next month on, and never before its last week is over.
            let time =
                self.is_day_over(days.last) && self.month_run.is_none_or(|run| run > month.last());
            if time || self.is_requested(asked, days) {
                let missing = unready
                    .iter()
                    .find(|period| matches!(period, Period::Week(week) if week.month() == month));
                self.due_from_children(
                    "month",
                    Period::Month(month),
                    &children,
                    missing,
                    &mut plan,
                );
            }
        }
        plan
    }

    fn plan_years(&self, asked: Option<PlanRequest>) -> RollupPlan {
        let months = self.heads.all().filter_map(|head| {
            if let Period::Month(month) = head.period { Some((month.year(), head)) } else { None }
        });
        let mut years: BTreeMap<i16, Vec<&SummaryHead>> = BTreeMap::new();
        months.for_each(|(year, head)| years.entry(year).or_default().push(head));
        let unready = self.pending_periods(Tier::Month);
        let mut plan = RollupPlan::default();
        for (year, children) in years {
            let days = Period::Year(year).days();
            let time =
                self.is_day_over(days.last) && self.month_run.is_none_or(|run| run.year() > year);
            if time || self.is_requested(asked, days) {
                let missing = unready
                    .iter()
                    .find(|period| matches!(period, Period::Month(month) if month.year() == year));
                self.due_from_children("year", Period::Year(year), &children, missing, &mut plan);
            }
        }
        plan
    }

    fn due_from_children(
        &self,
        tier: &str,
        period: Period,
        children: &[&SummaryHead],
        missing: Option<&Period>,
        plan: &mut RollupPlan,
    ) {
        match missing {
            Some(missing) => {
                plan.waiting.push(WaitingSummary { period, for_what: missing.to_string() })
            }
            None => {
                let names = children.iter().map(|head| head.period).collect();
                plan.due.extend(self.due_summary(
                    period,
                    hash_children(tier, children),
                    names,
                    None,
                    self.source_totals(period.days(), children),
                ));
            }
        }
    }

    /// The summaries that should exist by now but are missing or outdated. Excludes periods that
    /// are not over and those that the next run will write anyway.
    pub fn overdue(&self) -> Vec<(Period, String)> {
        let mut found = Vec::new();
        for &tier in Tier::ALL {
            let plan = self.plan_tier(tier, None);
            found.extend(
                plan.due
                    .into_iter()
                    .filter(|due| due.why != DueReason::Provisional)
                    .map(|due| (due.period, due.why.word().to_owned())),
            );
            found.extend(
                plan.waiting
                    .into_iter()
                    .map(|waiting| (waiting.period, format!("waits for {}", waiting.for_what))),
            );
        }
        found
    }
}

#[derive(Debug, Clone, Copy)]
struct SourceTotals {
    messages: u64,
    states: u64,
    start: Moment,
    end: Moment,
}

fn describe_session(key: &SessionKey) -> String {
    let session = key
        .session
        .as_ref()
        .map_or(String::new(), |session| format!(" {}", crate::sanitize::one_line(session)));
    format!("the session {}{session} of {}", crate::sanitize::one_line(&key.conversation), key.day)
}

/// A hash of the contents of these summaries and of their record counts: a further record counts
/// even if it changed no text.
fn hash_children(tier: &str, children: &[&SummaryHead]) -> Hash {
    let mut said = tier.as_bytes().to_vec();
    for head in children {
        said.extend_from_slice(head.period.to_string().as_bytes());
        said.extend_from_slice(head.content.as_bytes());
        said.extend_from_slice(&head.messages.to_be_bytes());
        said.extend_from_slice(&head.states.to_be_bytes());
    }
    Hash::of(&said)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cascade::coverage;
    use crate::event::Origin;
    use crate::record::{self, Record, RecordKind, Role};
    use crate::schedule::{Job, Timetable};
    use jiff::civil::date;
    use proptest::prelude::*;

    /// A simulated memory: the records, and the heads of the summaries.
    struct Story {
        known: PlanningInput,
        records: Vec<Record>,
        /// Whether summarizing the same sources again gives another text.
        same_words: bool,
    }

    impl Story {
        fn new() -> Self {
            let zone = Zone::from_name("Europe/Berlin").unwrap();
            let known = PlanningInput {
                now: zone.moment(jiff::Timestamp::UNIX_EPOCH),
                zone,
                sessions: Vec::new(),
                heads: SummaryHeads::default(),
                event_days: BTreeMap::new(),
                logs: BTreeMap::new(),
                marks: BTreeMap::new(),
                refused: BTreeSet::new(),
                week_run: None,
                month_run: None,
                idle_minutes: 30,
                has_model: false,
            };
            Self { known, records: Vec::new(), same_words: false }
        }

        fn moment(&self, local: &str) -> Moment {
            let civil: jiff::civil::DateTime = local.parse().unwrap();
            self.known.zone.moment(self.known.zone.instant_at(civil.date(), civil.time()))
        }

        fn add_message(&mut self, local: &str, conversation: &str) {
            let ts = self.moment(local);
            self.records.push(Record {
                ts,
                conversation: conversation.into(),
                session: None,
                id: self.records.len().to_string(),
                role: Role::User,
                name: None,
                other_speaker: None,
                kind: RecordKind::Message,
                title: None,
                text: "something".into(),
                parts: None,
                origin: Origin::User,
                captured: ts,
                extra: Vec::new(),
                withdrawn: false,
            });
            self.known.sessions = record::session_stats(&self.records);
        }

        fn clock(&mut self, local: &str) {
            let times =
                Timetable::parse(&[(Job::Week, "15 22 * * SUN"), (Job::Month, "30 22 1 * *")])
                    .unwrap();
            let now = self.moment(local);
            let last =
                |job| times.last_due(job, now.timestamp(), &self.known.zone).map(|due| due.date);
            (self.known.week_run, self.known.month_run, self.known.now) =
                (last(Job::Week), last(Job::Month), now);
        }

        fn record_summary(&mut self, due: &DueSummary) {
            let words = if self.same_words {
                due.period.to_string()
            } else {
                format!("{} {}", due.period, due.source)
            };
            self.known.heads.insert(SummaryHead {
                period: due.period,
                version: due.version,
                session: due.session.clone(),
                recorded: self.known.now,
                source: due.source,
                log: due.log,
                content: Hash::of(words.as_bytes()),
                messages: due.messages,
                states: due.states,
                by_hand: false,
                provisional: !self.known.has_model || due.refused,
                importance: Importance::Ordinary,
                headline_bytes: words.len() as u64,
                body_bytes: 0,
            });
        }

        /// Writes everything that is due by then and returns the periods.
        fn run(&mut self, local: &str) -> Vec<String> {
            self.clock(local);
            let mut pressed = Vec::new();
            for &tier in Tier::ALL {
                for due in self.known.plan_tier(tier, None).due {
                    self.record_summary(&due);
                    pressed.push(due.period.to_string());
                }
            }
            pressed
        }

        fn waiting(&self, tier: Tier) -> Vec<String> {
            self.known
                .plan_tier(tier, None)
                .waiting
                .iter()
                .map(|waiting| format!("{} for {}", waiting.period, waiting.for_what))
                .collect()
        }

        /// One message at noon of each of these days.
        fn said_daily(days: Days) -> Self {
            let mut story = Self::new();
            days.iter().for_each(|day| story.add_message(&format!("{day}T12:00"), "work"));
            story
        }
    }

    const NOTHING: [&str; 0] = [];

    // P9 P2 P3
    #[test]
    fn a_late_record_reopens_its_day_and_all_that_is_built_on_it() {
        let mut story = Story::said_daily(Days { first: date(2025, 1, 6), last: date(2026, 2, 1) });
        story.run("2026-03-05T03:00");
        assert_eq!(story.run("2026-03-06T03:00"), NOTHING);
        story.add_message("2025-03-12T18:00", "phone");
        assert_eq!(story.waiting(Tier::Day), ["2025-03-12 for the session phone of 2025-03-12"]);
        assert_eq!(story.waiting(Tier::Week), ["2025-W11 for the session phone of 2025-03-12"]);
        assert_eq!(story.waiting(Tier::Month), ["2025-03 for 2025-W11"]);
        assert_eq!(story.waiting(Tier::Year), ["2025 for 2025-03"]);
        assert_eq!(
            story.run("2026-03-07T03:00"),
            ["2025-03-12_session_02", "2025-03-12", "2025-W11", "2025-03", "2025"]
        );
        assert_eq!(story.known.heads.get(Period::Year(2025)).map(|head| head.version), Some(2));
        assert_eq!(story.run("2026-03-08T03:00"), NOTHING);
    }

    // P9
    #[test]
    fn a_record_more_is_counted_all_the_way_up_even_if_it_changes_no_word() {
        let mut story = Story::said_daily(Days { first: date(2026, 1, 5), last: date(2026, 1, 7) });
        story.same_words = true;
        story.run("2026-02-05T03:00");
        story.add_message("2026-01-06T13:00", "work");
        assert_eq!(
            story.run("2026-02-06T03:00"),
            ["2026-01-06_session_01", "2026-01-06", "2026-W02", "2026-01"]
        );
        let heads: Vec<SummaryHead> = story.known.heads.all().cloned().collect();
        assert_eq!(coverage::check_coverage(&story.known, &heads), []);
    }

    // P12
    #[test]
    fn the_current_week_is_summarized_on_sunday_evening_and_again_only_after_new_sources() {
        // Records after the weekly job, and what the runs of that evening and of the next nights
        // write.
        type Runs<'a> = [&'a [&'a str]; 3];
        let cases: [(&[&str], Runs<'_>); 3] = [
            (&[], [&[], &[], &[]]),
            (&["2026-02-15T22:40"], [&["2026-02-15_session_02"], &["2026-02-15", "2026-W07"], &[]]),
            (&["2026-02-15T12:30"], [&["2026-02-15_session_02"], &["2026-02-15", "2026-W07"], &[]]),
        ];
        for (said, [evening, night, next]) in cases {
            let mut story =
                Story::said_daily(Days { first: date(2026, 2, 9), last: date(2026, 2, 15) });
            story.run("2026-02-15T03:00");
            assert_eq!(
                story.run("2026-02-15T22:14"),
                ["2026-02-15_session_01"],
                "not before its time"
            );
            assert_eq!(story.run("2026-02-15T22:15"), ["2026-W07"]);
            said.iter().for_each(|at| story.add_message(at, "late"));
            assert_eq!(story.run("2026-02-15T23:50"), evening);
            let mut night = night.to_vec();
            if said.is_empty() {
                night = vec!["2026-02-15"];
            }
            assert_eq!(story.run("2026-02-16T03:00"), night);
            assert_eq!(story.run("2026-02-17T03:00"), next);
        }
    }

    // P12
    #[test]
    fn a_missed_sunday_is_caught_up() {
        let mut story =
            Story::said_daily(Days { first: date(2026, 2, 9), last: date(2026, 2, 18) });
        assert!(story.run("2026-02-19T10:00").contains(&"2026-W07".to_owned()));
        assert!(
            story.known.heads.get("2026-W08".parse().unwrap()).is_none(),
            "a week that goes on waits for its Sunday"
        );
    }

    // P3 P12
    #[test]
    fn a_month_waits_for_its_last_week_and_for_its_hour() {
        let mut story =
            Story::said_daily(Days { first: date(2026, 1, 1), last: date(2026, 4, 30) });
        for (now, months) in [
            ("2026-01-31T23:59", &[][..]),
            // Its last week ends on Sunday, the 1st.
            ("2026-02-01T22:30", &[]),
            ("2026-02-02T00:00", &["2026-01"]),
            // February's weeks end on the 1st of March, a Sunday again.
            ("2026-03-01T22:45", &[]),
            ("2026-03-02T00:00", &["2026-02"]),
            // March's end on the 29th, before the month does.
            ("2026-03-31T23:00", &[]),
            ("2026-04-01T22:29", &[]),
            ("2026-04-01T22:30", &["2026-03"]),
            ("2026-04-30T23:00", &[]),
        ] {
            let pressed = story.run(now);
            let pressed: Vec<&str> =
                pressed.iter().filter(|name| name.len() == 7).map(String::as_str).collect();
            assert_eq!(pressed, months, "{now}");
        }
        // A missing week blocks only its month.
        story.run("2026-05-04T03:00");
        story.add_message("2026-02-11T09:00", "late");
        assert_eq!(story.waiting(Tier::Month), ["2026-02 for 2026-W07"]);
    }

    // P2 P3
    #[test]
    fn the_days_around_new_year_lie_in_one_week_one_month_and_one_year() {
        let mut story =
            Story::said_daily(Days { first: date(2026, 12, 28), last: date(2027, 1, 3) });
        let pressed = story.run("2027-02-02T03:00");
        assert_eq!(pressed[14..], ["2026-W53", "2026-12", "2026"]);
        let count =
            |name: &str| story.known.heads.get(name.parse().unwrap()).map(|head| head.messages);
        assert_eq!(
            (count("2026-W53"), count("2026-12"), count("2026")),
            (Some(7), Some(7), Some(7))
        );
        let mut early =
            Story::said_daily(Days { first: date(2026, 12, 28), last: date(2027, 1, 3) });
        assert_eq!(early.run("2027-01-04T00:00")[14..], ["2026-W53", "2026-12", "2026"]);
    }

    #[test]
    fn a_session_that_crosses_midnight_is_two() {
        let mut story = Story::new();
        story.add_message("2026-02-12T23:50", "work");
        story.add_message("2026-02-13T00:10", "work");
        assert_eq!(
            story.run("2026-02-13T00:20"),
            ["2026-02-12_session_01", "2026-02-12"],
            "the second goes on"
        );
        assert_eq!(
            story.run("2026-02-13T00:40"),
            ["2026-02-13_session_01"],
            "it was quiet for half an hour"
        );
    }

    #[test]
    fn an_unfinished_period_is_summarized_only_on_request() {
        let mut story = Story::new();
        story.add_message("2026-02-13T10:00", "work");
        story.clock("2026-02-13T10:05");
        assert_eq!(story.known.plan_tier(Tier::Session, None), RollupPlan::default());
        let asked = |tier| Some(PlanRequest { tier, days: None });
        for tier in [Tier::Session, Tier::Day, Tier::Week, Tier::Month, Tier::Year] {
            assert_eq!(
                story.known.plan_tier(tier, asked(Tier::Session)).due.len(),
                usize::from(tier == Tier::Session),
                "{tier}"
            );
            let due = story.known.plan_tier(tier, asked(tier)).due;
            assert_eq!(due.len(), 1, "{tier}");
            due.iter().for_each(|due| story.record_summary(due));
        }
    }

    // P5
    #[test]
    fn a_refused_draft_is_not_asked_for_again_until_its_sources_change() {
        let mut story =
            Story::said_daily(Days { first: date(2026, 2, 10), last: date(2026, 2, 10) });
        story.known.has_model = true;
        story.run("2026-02-11T03:00");
        story.add_message("2026-02-10T20:00", "late");
        story.run("2026-02-11T04:00");
        let day: Period = "2026-02-10".parse().unwrap();
        let source = story.known.heads.get(day).unwrap().source;
        // As in the engine: the draft is refused, and the day has an extractive summary.
        story.known.refused.insert((day.to_string(), source.to_string()));
        let mut head = story.known.heads.get(day).unwrap().clone();
        head.provisional = true;
        story.known.heads.insert(head.clone());
        assert_eq!(story.run("2026-02-12T03:00"), NOTHING);
        // A refused draft without an accepted version is reported as such.
        head.source = Hash::of(b"before");
        story.known.heads.insert(head);
        let plan = story.known.plan_tier(Tier::Day, None);
        assert_eq!(
            plan.due.iter().map(|due| (due.period, due.refused)).collect::<Vec<_>>(),
            [(day, true)]
        );
        story.run("2026-02-12T04:00");
        story.add_message("2026-02-10T21:00", "later");
        let pressed = story.run("2026-02-12T05:00");
        assert_eq!(pressed, ["2026-02-10_session_03", "2026-02-10"]);
        assert_eq!(story.known.heads.get(day).map(|head| head.provisional), Some(false));
    }

    // K7
    #[test]
    fn what_is_provisional_is_made_better_newest_first_after_what_is_new() {
        let mut story =
            Story::said_daily(Days { first: date(2026, 2, 9), last: date(2026, 2, 12) });
        story.run("2026-02-13T03:00");
        story.known.has_model = true;
        story.add_message("2026-02-10T20:00", "late");
        story.clock("2026-02-13T04:00");
        let due: Vec<(String, &str)> = story
            .known
            .plan_tier(Tier::Session, None)
            .due
            .iter()
            .map(|due| (due.period.to_string(), due.why.word()))
            .collect();
        let expected = [
            ("2026-02-10_session_02", "new"),
            ("2026-02-12_session_01", "provisional"),
            ("2026-02-11_session_01", "provisional"),
            ("2026-02-10_session_01", "provisional"),
            ("2026-02-09_session_01", "provisional"),
        ];
        assert_eq!(due, expected.map(|(period, why)| (period.to_owned(), why)));
        story.run("2026-02-13T05:00");
        assert_eq!(story.run("2026-02-13T06:00"), NOTHING);
    }

    // P8
    #[test]
    fn a_session_keeps_its_number_and_no_number_is_given_twice() {
        let mut story = Story::new();
        story.add_message("2026-02-10T10:00", "b");
        story.add_message("2026-02-10T11:00", "c");
        assert_eq!(
            story.run("2026-02-10T12:00"),
            ["2026-02-10_session_01", "2026-02-10_session_02"]
        );
        // A session that began earlier is imported later; another one grows.
        story.add_message("2026-02-10T09:00", "a");
        story.add_message("2026-02-10T11:30", "c");
        assert_eq!(
            story.run("2026-02-11T03:00"),
            ["2026-02-10_session_03", "2026-02-10_session_02", "2026-02-10"]
        );
        // The records of the last session are gone; its number stays taken.
        story.records.retain(|record| record.conversation != "a");
        story.add_message("2026-02-10T08:00", "d");
        assert_eq!(story.run("2026-02-12T03:00")[0], "2026-02-10_session_04");
    }

    #[test]
    fn a_week_waits_for_a_day_that_has_a_log_and_is_not_what_it_should_be() {
        let mut story =
            Story::said_daily(Days { first: date(2026, 2, 9), last: date(2026, 2, 10) });
        story.known.logs.insert(date(2026, 2, 10), Some(Hash::of(b"log")));
        story.known.logs.insert(date(2026, 2, 14), Some(Hash::of(b"only a log")));
        story.run("2026-02-16T03:00");
        let week = story.known.heads.get("2026-W07".parse().unwrap()).cloned().unwrap();
        assert_eq!(week.messages, 2);
        story.known.logs.insert(date(2026, 2, 10), Some(Hash::of(b"log, and more")));
        assert_eq!(story.waiting(Tier::Week), ["2026-W07 for 2026-02-10"]);
        assert_eq!(story.run("2026-02-17T03:00"), ["2026-02-10", "2026-W07"]);
        // Logs that were not read again count as unchanged.
        story.known.logs.clear();
        assert_eq!(story.run("2026-03-30T03:00"), ["2026-02"]);
    }

    #[test]
    fn events_and_marks_reopen_a_day() {
        let mut story = Story::said_daily(Days { first: date(2026, 2, 9), last: date(2026, 2, 9) });
        story.run("2026-02-17T03:00");
        story.known.event_days.insert(date(2026, 2, 9), 1);
        assert_eq!(story.run("2026-02-18T03:00"), ["2026-02-09", "2026-W07"]);
        story.known.marks.insert(date(2026, 2, 9), Importance::Important);
        assert_eq!(story.run("2026-02-19T03:00"), ["2026-02-09"]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        // P9
        #[test]
        fn planning_twice_gives_nothing_and_every_record_is_counted_once_in_each_tier(
            said in proptest::collection::vec((0_i32..500, 0_u8..24, 0_u8..4), 0..60),
            runs in proptest::collection::vec((0_i32..560, 0_u8..24), 1..5),
            has_model in any::<bool>(),
            same_words in any::<bool>(),
        ) {
            let day = |after: i32| date(2025, 11, 1).checked_add(after.days()).unwrap();
            let mut story = Story::new();
            (story.known.has_model, story.same_words) = (has_model, same_words);
            let mut runs = runs;
            runs.sort_unstable();
            let mut rest = said;
            for (at, (after, hour)) in runs.iter().enumerate() {
                // A part is imported between two runs, in any order.
                let later = rest.split_off(rest.len() * (at + 1) / runs.len().max(1) / 2);
                for (after, hour, who) in std::mem::replace(&mut rest, later) {
                    story.add_message(&format!("{}T{hour:02}:07", day(after)), ["a", "b", "c", "d"][usize::from(who)]);
                }
                let now = format!("{}T{hour:02}:31", day(*after));
                story.run(&now);
                prop_assert_eq!(story.run(&now), NOTHING);
                let heads: Vec<SummaryHead> = story.known.heads.all().cloned().collect();
                prop_assert_eq!(coverage::check_coverage(&story.known, &heads), vec![]);
                for &tier in Tier::ALL {
                    prop_assert_eq!(story.known.plan_tier(tier, None).waiting, vec![]);
                }
            }
        }
    }
}
