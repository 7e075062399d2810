//! What is due to be pressed, worked out from what is kept and from nothing else.
//!
//! A node of the cascade is due when its time has come and its sources are not those it was made from. So a run that died
//! anywhere is finished by planning again, a late record reopens its day and everything built on it, and planning twice
//! in a row gives nothing the second time.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use jiff::civil::Date;
use jiff::{Timestamp, ToSpan};

use crate::calendar::{Days, Moment, Month, Week, Zone};
use crate::hash::Hash;
use crate::record::{SessionKey, SessionStat};
use crate::summary::{Head, Importance, Period, Tier};

/// The newest version of every node, without texts.
#[derive(Debug, Clone, Default)]
pub struct Heads {
    by_period: BTreeMap<Period, Head>,
    by_session: HashMap<SessionKey, Period>,
    /// The highest session number of each day.
    numbers: HashMap<Date, u32>,
}

impl Heads {
    /// Of these versions, of which a later one replaces an earlier one.
    pub fn new(heads: impl IntoIterator<Item = Head>) -> Self {
        let mut all = Self::default();
        heads.into_iter().for_each(|head| all.put(head));
        all
    }

    /// Takes in a newer version.
    pub fn put(&mut self, head: Head) {
        if let (Period::Session { day, number }, Some(key)) = (head.period, &head.session) {
            self.by_session.insert(key.clone(), head.period);
            let highest = self.numbers.entry(day).or_default();
            *highest = (*highest).max(number);
        }
        self.by_period.insert(head.period, head);
    }

    /// The newest version of a node.
    pub fn get(&self, period: Period) -> Option<&Head> {
        self.by_period.get(&period)
    }

    /// The newest version of a session's node.
    pub fn session(&self, key: &SessionKey) -> Option<&Head> {
        self.by_period.get(self.by_session.get(key)?)
    }

    /// Every node, by tier and time.
    pub fn all(&self) -> impl Iterator<Item = &Head> {
        self.by_period.values()
    }

    /// A number for one more session of that day.
    pub fn next_number(&self, day: Date) -> u32 {
        self.numbers.get(&day).map_or(1, |highest| highest + 1)
    }
}

/// Everything that planning looks at.
#[derive(Debug, Clone)]
pub struct Known {
    /// This moment.
    pub now: Moment,
    /// The zone whose days are the days.
    pub zone: Zone,
    /// What the records come to, session by session.
    pub sessions: Vec<SessionStat>,
    /// What has been pressed.
    pub heads: Heads,
    /// How many events were recorded on each day.
    pub event_days: BTreeMap<Date, usize>,
    /// Hashes of the days' logs. Only days that were looked at; of the others the log is taken to be what it was.
    pub logs: BTreeMap<Date, Option<Hash>>,
    /// Days that somebody marked.
    pub marks: BTreeMap<Date, Importance>,
    /// Drafts that were refused: not to be asked for again as long as the sources are the same.
    pub refused: BTreeSet<(String, String)>,
    /// The last day on which the weekly job was to run.
    pub week_run: Option<Date>,
    /// The last day on which the monthly job was to run.
    pub month_run: Option<Date>,
    /// After so many quiet minutes a session is over.
    pub idle_minutes: u16,
    /// Whether a model can be asked.
    pub has_model: bool,
}

/// Why a node is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// There is none yet.
    New,
    /// Its sources are not those it was made from.
    Changed,
    /// It was made without a model, and now there is one.
    Provisional,
}

impl Why {
    /// For a table.
    pub fn word(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Changed => "changed",
            Self::Provisional => "provisional",
        }
    }
}

/// A node that is to be pressed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Due {
    /// Which.
    pub period: Period,
    /// The session's records, for a session.
    pub session: Option<SessionKey>,
    /// A hash of its sources.
    pub source: Hash,
    /// The summaries it is made from.
    pub children: Vec<Period>,
    /// A hash of the day's log, for a day that has one.
    pub log: Option<Hash>,
    /// How many records it covers.
    pub messages: u64,
    /// How many of them are saved states.
    pub states: u64,
    /// The first moment it tells of.
    pub start: Moment,
    /// The last.
    pub end: Moment,
    /// Why.
    pub why: Why,
    /// The version after the newest there is.
    pub version: u32,
    /// The newest version is a person's own.
    pub by_hand: bool,
    /// A draft from the same sources was refused; it stands without a model until somebody looks at it.
    pub refused: bool,
}

/// A node whose time has come but whose sources are not all there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    /// Which.
    pub period: Period,
    /// The first source that is missing.
    pub for_what: String,
}

/// What is to be done at one tier.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Plan {
    /// To be pressed, in this order.
    pub due: Vec<Due>,
    /// To be pressed later.
    pub waiting: Vec<Waiting>,
}

/// What is to be pressed whether its time has come or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asked {
    /// Of this tier.
    pub tier: Tier,
    /// Only what covers this day or is this period; everything there is if not said.
    pub days: Option<Days>,
}

impl Known {
    fn today(&self) -> Date {
        self.now.day()
    }

    /// Whether the local day is over.
    fn is_over(&self, day: Date) -> bool {
        day < self.today()
    }

    /// What is due at a tier by now; with `asked`, also what somebody wants before its time.
    pub fn plan(&self, tier: Tier, asked: Option<Asked>) -> Plan {
        let asked = asked.filter(|asked| asked.tier == tier);
        let mut plan = match tier {
            Tier::Session => self.sessions_due(asked),
            Tier::Day => self.days_due(asked),
            Tier::Week => self.weeks_due(asked),
            Tier::Month => self.months_due(asked),
            Tier::Year => self.years_due(asked),
        };
        // First what is missing or wrong, in the order of time; then what could be better, newest first.
        plan.due.sort_by_key(|due| due.why == Why::Provisional);
        let better = plan.due.iter().position(|due| due.why == Why::Provisional).unwrap_or(plan.due.len());
        plan.due[better..].reverse();
        plan
    }

    /// A hash of the session's records, as a source.
    pub fn session_source(stat: &SessionStat) -> Hash {
        Hash::of(b"session").then(stat.digest.hash().bytes())
    }

    fn wanted(&self, asked: Option<Asked>, days: Days) -> bool {
        asked.is_some_and(|asked| asked.days.is_none_or(|wanted| wanted.first <= days.last && days.first <= wanted.last))
    }

    fn sessions_due(&self, asked: Option<Asked>) -> Plan {
        let mut plan = Plan::default();
        let mut order: Vec<&SessionStat> = self.sessions.iter().filter(|stat| stat.key.day <= self.today()).collect();
        order.sort_by(|a, b| (a.key.day, a.first, &a.key).cmp(&(b.key.day, b.first, &b.key)));
        let mut given: HashMap<Date, u32> = HashMap::new();
        for stat in order {
            let day = stat.key.day;
            let quiet = self.now.at().as_second() - stat.last.at().as_second() >= i64::from(self.idle_minutes) * 60;
            if !(self.is_over(day) || quiet || self.wanted(asked, Days { first: day, last: day })) {
                continue;
            }
            let head = self.heads.session(&stat.key);
            let period = head.map_or_else(
                || {
                    let number = given.entry(day).or_insert_with(|| self.heads.next_number(day));
                    let period = Period::Session { day, number: *number };
                    *number += 1;
                    period
                },
                |head| head.period,
            );
            let shape = Shape { messages: stat.digest.records, states: stat.states, start: stat.first, end: stat.last };
            let due = self.due(period, Self::session_source(stat), Vec::new(), None, shape);
            plan.due.extend(due.map(|due| Due { session: Some(stat.key.clone()), ..due }));
        }
        plan
    }

    /// The node, if it is not what it should be.
    fn due(&self, period: Period, source: Hash, children: Vec<Period>, log: Option<Hash>, shape: Shape) -> Option<Due> {
        let head = self.heads.get(period);
        let refused = self.refused.contains(&(period.to_string(), source.to_string()));
        let why = match head {
            None => Why::New,
            Some(head) if head.source != source => Why::Changed,
            Some(head) if head.provisional && self.has_model && !refused => Why::Provisional,
            Some(_) => return None,
        };
        Some(Due {
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
    fn by_day(&self) -> BTreeMap<Date, Vec<&SessionStat>> {
        let mut days: BTreeMap<Date, Vec<&SessionStat>> = BTreeMap::new();
        for stat in &self.sessions {
            days.entry(stat.key.day).or_default().push(stat);
        }
        days
    }

    /// The day's log: as it was looked at, else as it was when the day was pressed.
    fn log(&self, day: Date) -> Option<Hash> {
        match self.logs.get(&day) {
            Some(&log) => log,
            None => self.heads.get(Period::Day(day)).and_then(|head| head.log),
        }
    }

    /// A session's node, if it was made from the records as they are.
    fn current(&self, stat: &SessionStat) -> Option<&Head> {
        self.heads.session(&stat.key).filter(|head| head.source == Self::session_source(stat))
    }

    fn shape<'a>(&self, days: Days, stats: impl IntoIterator<Item = &'a SessionStat>) -> Shape {
        let start = self.zone.moment(self.zone.start_of(days.first));
        let end = days.last.checked_add(1.day()).map_or(start, |next| self.zone.moment(self.zone.start_of(next)));
        let mut shape = Shape { messages: 0, states: 0, start, end };
        for stat in stats {
            shape.messages += stat.digest.records;
            shape.states += stat.states;
        }
        shape
    }

    fn days_due(&self, asked: Option<Asked>) -> Plan {
        let mut plan = Plan::default();
        let by_day = self.by_day();
        let logged = self.logs.iter().filter(|(_, log)| log.is_some()).map(|(&day, _)| day);
        let days: BTreeSet<Date> = by_day.keys().copied().chain(logged).filter(|&day| day <= self.today()).collect();
        for day in days {
            let span = Days { first: day, last: day };
            if !(self.is_over(day) || self.wanted(asked, span)) {
                continue;
            }
            let stats = by_day.get(&day).map_or(&[][..], Vec::as_slice);
            if let Some(missing) = stats.iter().find(|stat| self.current(stat).is_none()) {
                plan.waiting.push(Waiting { period: Period::Day(day), for_what: told(&missing.key) });
                continue;
            }
            let log = self.log(day);
            let mut children: Vec<&Head> = stats.iter().filter_map(|stat| self.current(stat)).collect();
            children.sort_by_key(|head| head.period);
            let mut source = Hash::of(b"day");
            for head in &children {
                source = source.then(format!("{} {}", head.period, head.content).as_bytes());
            }
            source = source.then(&self.event_days.get(&day).map_or([0; 8], |count| (*count as u64).to_be_bytes()));
            source = source.then(log.map_or(String::new(), |log| log.to_string()).as_bytes());
            source = source.then(self.marks.get(&day).map_or("", |mark| mark.word()).as_bytes());
            let children = children.iter().map(|head| head.period).collect();
            plan.due.extend(self.due(Period::Day(day), source, children, log, self.shape(span, stats.iter().copied())));
        }
        plan
    }

    /// Whether every day of a week is over.
    fn is_closed(&self, week: Week) -> bool {
        self.is_over(week.sunday())
    }

    /// What a week is made of: its session primers, and the day itself where there is a log besides.
    fn week_children(&self, week: Week, by_day: &BTreeMap<Date, Vec<&SessionStat>>) -> Result<Vec<&Head>, String> {
        let closed = self.is_closed(week);
        let mut children = Vec::new();
        for day in week.days().iter() {
            if self.log(day).is_some() {
                match self.heads.get(Period::Day(day)) {
                    Some(head) => children.push(head),
                    None if closed => return Err(day.to_string()),
                    None => {}
                }
                continue;
            }
            let stats = by_day.get(&day).map_or(&[][..], Vec::as_slice);
            let mut sessions = Vec::new();
            for stat in stats {
                match self.current(stat) {
                    Some(head) => sessions.push(head),
                    None if closed => return Err(told(&stat.key)),
                    None => {}
                }
            }
            sessions.sort_by_key(|head| head.period);
            children.extend(sessions);
        }
        Ok(children)
    }

    fn weeks_due(&self, asked: Option<Asked>) -> Plan {
        let mut plan = Plan::default();
        let by_day = self.by_day();
        let logged = self.heads.all().filter(|head| head.log.is_some()).map(|head| head.period.days().first);
        let weeks: BTreeSet<Week> = by_day.keys().copied().chain(logged).filter(|&day| day <= self.today()).map(Week::of).collect();
        for week in weeks {
            let days = week.days();
            // The weekly job presses the week so far; what comes later is pressed when the week is over.
            let begun = self.week_run.is_some_and(|run| days.contains(run));
            if !(self.is_closed(week) || begun || self.wanted(asked, days)) {
                continue;
            }
            let children = match self.week_children(week, &by_day) {
                Ok(children) if children.is_empty() => continue,
                Ok(children) => children,
                Err(for_what) => {
                    plan.waiting.push(Waiting { period: Period::Week(week), for_what });
                    continue;
                }
            };
            let events: usize = self.event_days.range(days.first..=days.last).map(|(_, count)| count).sum();
            let source = hash_of("week", &children).then(&(events as u64).to_be_bytes());
            let stats = by_day.range(days.first..=days.last).flat_map(|(_, stats)| stats.iter().copied());
            let shape = self.shape(days, stats);
            let children = children.iter().map(|head| head.period).collect();
            plan.due.extend(self.due(Period::Week(week), source, children, None, shape));
        }
        plan
    }

    fn months_due(&self, asked: Option<Asked>) -> Plan {
        let mut plan = Plan::default();
        let weeks: BTreeMap<Week, &Head> =
            self.heads.all().filter_map(|head| if let Period::Week(week) = head.period { Some((week, head)) } else { None }).collect();
        let months: BTreeSet<Month> = weeks.keys().map(|week| week.month()).collect();
        let unpressed = self.plan(Tier::Week, None);
        for month in months {
            let days = month.span_of_weeks();
            // From the monthly job of the month that follows on, and never before its last week is over.
            let time = self.is_over(days.last) && self.month_run.is_none_or(|run| run > month.last());
            let asked_for = self.wanted(asked, days) && weeks.keys().any(|week| week.month() == month);
            if !(time || asked_for) {
                continue;
            }
            let missing = unpressed
                .waiting
                .iter()
                .map(|waiting| waiting.period)
                .chain(unpressed.due.iter().filter(|due| due.why != Why::Provisional).map(|due| due.period));
            let missing = missing.into_iter().find(|period| matches!(period, Period::Week(week) if week.month() == month));
            if let Some(missing) = missing {
                plan.waiting.push(Waiting { period: Period::Month(month), for_what: missing.to_string() });
                continue;
            }
            let children: Vec<&Head> = month.weeks().iter().filter_map(|week| weeks.get(week).copied()).collect();
            plan.due.extend(self.due_from("month", Period::Month(month), &children));
        }
        plan
    }

    fn years_due(&self, asked: Option<Asked>) -> Plan {
        let mut plan = Plan::default();
        let months: Vec<&Head> = self.heads.all().filter(|head| head.period.tier() == Tier::Month).collect();
        let year_of = |head: &Head| if let Period::Month(month) = head.period { month.first().year() } else { 0 };
        let years: BTreeSet<i16> = months.iter().map(|head| year_of(head)).collect();
        let unpressed = self.plan(Tier::Month, None);
        for year in years {
            let period = Period::Year(year);
            let days = period.days();
            let time = self.is_over(days.last) && self.month_run.is_none_or(|run| run.year() > year);
            if !(time || self.wanted(asked, days)) {
                continue;
            }
            let missing = unpressed
                .waiting
                .iter()
                .map(|waiting| waiting.period)
                .chain(unpressed.due.iter().filter(|due| due.why != Why::Provisional).map(|due| due.period));
            let missing = missing.into_iter().find(|missing| matches!(missing, Period::Month(month) if month.first().year() == year));
            if let Some(missing) = missing {
                plan.waiting.push(Waiting { period, for_what: missing.to_string() });
                continue;
            }
            let children: Vec<&Head> = months.iter().copied().filter(|head| year_of(head) == year).collect();
            plan.due.extend(self.due_from("year", period, &children));
        }
        plan
    }

    fn due_from(&self, tier: &str, period: Period, children: &[&Head]) -> Option<Due> {
        let mut shape = self.shape(period.days(), []);
        for head in children {
            shape.messages += head.messages;
            shape.states += head.states;
        }
        self.due(period, hash_of(tier, children), children.iter().map(|head| head.period).collect(), None, shape)
    }

    /// Everything whose time has not come, or that will be due anyway, is none of these: nodes that should be there by now
    /// and are not, or are not what they should be.
    pub fn overdue(&self) -> Vec<(Period, String)> {
        let mut found = Vec::new();
        for &tier in Tier::ALL {
            let plan = self.plan(tier, None);
            found.extend(plan.due.into_iter().filter(|due| due.why != Why::Provisional).map(|due| (due.period, due.why.word().to_owned())));
            found.extend(plan.waiting.into_iter().map(|waiting| (waiting.period, format!("waits for {}", waiting.for_what))));
        }
        found
    }

    /// When the session or day that goes on longest ends by itself, for somebody who waits.
    pub fn next_idle(&self) -> Option<Timestamp> {
        let today = self.today();
        let open = self.sessions.iter().filter(|stat| stat.key.day == today && self.current(stat).is_none());
        open.filter_map(|stat| stat.last.at().checked_add(i64::from(self.idle_minutes).minutes()).ok()).min()
    }
}

#[derive(Debug, Clone, Copy)]
struct Shape {
    messages: u64,
    states: u64,
    start: Moment,
    end: Moment,
}

fn told(key: &SessionKey) -> String {
    let session = key.session.as_ref().map_or(String::new(), |session| format!(" {}", crate::plain::one_line(session)));
    format!("the session {}{session} of {}", crate::plain::one_line(&key.conversation), key.day)
}

fn hash_of(tier: &str, children: &[&Head]) -> Hash {
    children.iter().fold(Hash::of(tier.as_bytes()), |hash, head| hash.then(format!("{} {}", head.period, head.content).as_bytes()))
}
