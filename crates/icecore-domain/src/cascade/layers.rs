//! The whole time of a memory as layers: every session, day, week, month and year, how much was said in it and how far it is pressed.
//!
//! Columns rather than rows: ten years are fifteen thousand periods, and a reader that draws them wants all of one kind at once. What is
//! said in them is not here, only how long it is.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use jiff::civil::Date;
use serde::Serialize;

use crate::calendar::{Days, days_between};
use crate::record::{SessionKey, SessionStat};
use crate::summary::{Head, Importance, Period, Tier};

/// A summary that waits to be made by a model.
pub const PROVISIONAL: u8 = 1;
/// A draft of it was refused and waits for a person.
pub const FLAGGED: u8 = 2;
/// A person's editor made it.
pub const BY_HAND: u8 = 4;
/// What it told of was forgotten.
pub const FORGOTTEN: u8 = 8;

/// What layers are made of.
#[derive(Debug, Clone, Copy)]
pub struct Ground<'a> {
    /// What was said, session by session.
    pub sessions: &'a [SessionStat],
    /// What was pressed, the newest version of each.
    pub heads: &'a [Head],
    /// How many events were recorded on each day.
    pub events: &'a [(Date, usize)],
    /// Days that somebody marked.
    pub marks: &'a BTreeMap<Date, Importance>,
    /// Of what a draft waits for a person.
    pub flagged: &'a BTreeSet<Period>,
}

/// The periods of one tier, a column for each of their properties.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Layer {
    /// Their names; empty for a session that was not pressed yet.
    pub period: Vec<String>,
    /// Their first days, counted from the origin.
    pub first: Vec<i64>,
    /// How many days they cover.
    pub days: Vec<usize>,
    /// How many messages and states were captured in them.
    pub messages: Vec<u64>,
    /// Bytes of what was said.
    pub bytes: Vec<u64>,
    /// How far they are pressed: 0 not at all, 1 sessions, 2 days, 3 weeks, 4 months, 5 years.
    pub pressed: Vec<u8>,
    /// `PROVISIONAL`, `FLAGGED`, `BY_HAND` and `FORGOTTEN`, added up.
    pub state: Vec<u8>,
    /// 0 dull, 1 ordinary, 2 important.
    pub importance: Vec<u8>,
    /// Which version their summary is; 0 if there is none.
    pub version: Vec<u32>,
    /// Bytes of its headline.
    pub headline: Vec<u64>,
    /// Bytes of the rest of it.
    pub body: Vec<u64>,
    /// How many sessions were in them.
    pub sessions: Vec<u32>,
    /// How many events were recorded in them.
    pub events: Vec<usize>,
}

/// What sessions have besides.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct SessionLayer {
    /// What every tier has.
    #[serde(flatten)]
    pub layer: Layer,
    /// Their conversations, as places among the names.
    pub conversation: Vec<usize>,
    /// What they are called within it, likewise; -1 for none.
    pub name: Vec<i64>,
    /// When they began, in minutes of their day.
    pub from: Vec<u16>,
    /// When they ended.
    pub to: Vec<u16>,
}

/// All of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Core {
    /// The day that others are counted from, if there is any.
    pub origin: Option<String>,
    /// The last day there is.
    pub last: Option<String>,
    /// The names of conversations and sessions.
    pub names: Vec<String>,
    /// The tiers that were asked for.
    pub layers: Layers,
}

/// The tiers, as far as they were asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Layers {
    /// Years.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub year: Option<Layer>,
    /// Months.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub month: Option<Layer>,
    /// Weeks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub week: Option<Layer>,
    /// Days.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub day: Option<Layer>,
    /// Sessions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionLayer>,
}

/// What was said in a period.
#[derive(Debug, Clone, Copy, Default)]
struct Said {
    messages: u64,
    bytes: u64,
    sessions: u32,
    events: usize,
}

impl Said {
    fn add(&mut self, other: Self) {
        self.messages += other.messages;
        self.bytes += other.bytes;
        self.sessions += other.sessions;
        self.events += other.events;
    }
}

fn rank(tier: Tier) -> u8 {
    match tier {
        Tier::Session => 1,
        Tier::Day => 2,
        Tier::Week => 3,
        Tier::Month => 4,
        Tier::Year => 5,
    }
}

fn weight(importance: Importance) -> u8 {
    match importance {
        Importance::Dull => 0,
        Importance::Ordinary => 1,
        Importance::Important => 2,
    }
}

/// The coarsest tier that covers a day with a summary.
fn reach(pressed: &BTreeSet<Period>, day: Date, has_sessions: bool) -> u8 {
    let covered = [Tier::Year, Tier::Month, Tier::Week, Tier::Day]
        .into_iter()
        .find(|&tier| Period::covering(tier, day).is_some_and(|period| pressed.contains(&period)));
    covered.map_or(u8::from(has_sessions), rank)
}

impl Layer {
    fn push(&mut self, period: String, days: Days, origin: Date, said: Said, pressed: u8, head: Option<(&Head, u8)>, importance: u8) {
        self.period.push(period);
        self.first.push(days_between(origin, days.first));
        self.days.push(days.len());
        self.messages.push(said.messages);
        self.bytes.push(said.bytes);
        self.pressed.push(pressed);
        self.state.push(head.map_or(0, |(_, state)| state));
        self.importance.push(importance);
        self.version.push(head.map_or(0, |(head, _)| head.version));
        self.headline.push(head.map_or(0, |(head, _)| head.headline_bytes));
        self.body.push(head.map_or(0, |(head, _)| head.body_bytes));
        self.sessions.push(said.sessions);
        self.events.push(said.events);
    }
}

/// Takes what was said and pressed apart into layers: those of these tiers, and of them what touches these days.
pub fn layers(ground: Ground<'_>, within: Option<Days>, tiers: &[Tier]) -> Core {
    let asked = |tier: Tier| tiers.is_empty() || tiers.contains(&tier);
    let mut days: BTreeMap<Date, Said> = BTreeMap::new();
    for stat in ground.sessions {
        let said = Said { messages: stat.digest.records, bytes: stat.bytes, sessions: 1, events: 0 };
        days.entry(stat.key.day).or_default().add(said);
    }
    for &(day, events) in ground.events {
        days.entry(day).or_default().events += events;
    }
    let heads: HashMap<Period, &Head> = ground.heads.iter().map(|head| (head.period, head)).collect();
    for head in ground.heads.iter().filter(|head| head.period.tier() == Tier::Day) {
        days.entry(head.period.days().first).or_default();
    }
    let (Some((&first, _)), Some((&last, _))) = (days.first_key_value(), days.last_key_value()) else { return Core::default() };
    // A year begins with the Monday of its first week, before any of its days may have words.
    let coarse = Period::covering(Tier::Year, first).map_or(first, |year| year.days().first);
    let origin = coarse.min(first);
    let pressed: BTreeSet<Period> = ground.heads.iter().map(|head| head.period).filter(|period| period.tier() != Tier::Session).collect();
    let is_within = |span: Days| within.is_none_or(|within| span.first <= within.last && span.last >= within.first);
    let state = |head: &Head| {
        u8::from(head.provisional) * PROVISIONAL
            + u8::from(ground.flagged.contains(&head.period)) * FLAGGED
            + u8::from(head.by_hand) * BY_HAND
            + u8::from(head.is_forgotten()) * FORGOTTEN
    };
    let importance = |period: Period, head: Option<&Head>| {
        let marked = if let Period::Day(day) = period { ground.marks.get(&day).copied() } else { None };
        weight(marked.or(head.map(|head| head.importance)).unwrap_or(Importance::Ordinary))
    };
    let layer = |tier: Tier| {
        let mut periods: BTreeMap<(Date, Period), (Said, u8)> = BTreeMap::new();
        for (&day, said) in &days {
            let Some(period) = Period::covering(tier, day) else { continue };
            let (sum, far) = periods.entry((period.days().first, period)).or_default();
            sum.add(*said);
            *far = (*far).max(reach(&pressed, day, false));
        }
        for head in ground.heads.iter().filter(|head| head.period.tier() == tier) {
            let (_, far) = periods.entry((head.period.days().first, head.period)).or_default();
            *far = (*far).max(rank(tier));
        }
        let mut layer = Layer::default();
        for ((_, period), (said, far)) in periods.into_iter().filter(|((_, period), _)| is_within(period.days())) {
            let head = heads.get(&period).copied();
            // A draft may wait although nothing stands yet.
            let told = head.map(|head| (head, state(head)));
            layer.push(period.to_string(), period.days(), origin, said, far, told, importance(period, head));
            if told.is_none()
                && ground.flagged.contains(&period)
                && let Some(state) = layer.state.last_mut()
            {
                *state |= FLAGGED;
            }
        }
        layer
    };
    let mut names = Names::default();
    let session = asked(Tier::Session).then(|| {
        let by_key: HashMap<&SessionKey, &Head> =
            ground.heads.iter().filter_map(|head| head.session.as_ref().map(|key| (key, head))).collect();
        let mut told = SessionLayer::default();
        for stat in ground.sessions.iter().filter(|stat| is_within(Days { first: stat.key.day, last: stat.key.day })) {
            let day = stat.key.day;
            let head = by_key.get(&stat.key).copied();
            let said = Said { messages: stat.digest.records, bytes: stat.bytes, sessions: 1, events: 0 };
            let far = reach(&pressed, day, head.is_some());
            let name = head.map_or_else(String::new, |head| head.period.to_string());
            let weight = importance(Period::Day(day), head);
            told.layer.push(name, Days { first: day, last: day }, origin, said, far, head.map(|head| (head, state(head))), weight);
            told.conversation.push(names.place(&stat.key.conversation));
            told.name.push(stat.key.session.as_deref().map_or(-1, |name| i64::try_from(names.place(name)).unwrap_or(-1)));
            told.from.push(stat.first.minutes());
            told.to.push(stat.last.minutes());
        }
        told
    });
    let layers = Layers {
        year: asked(Tier::Year).then(|| layer(Tier::Year)),
        month: asked(Tier::Month).then(|| layer(Tier::Month)),
        week: asked(Tier::Week).then(|| layer(Tier::Week)),
        day: asked(Tier::Day).then(|| layer(Tier::Day)),
        session,
    };
    Core { origin: Some(origin.to_string()), last: Some(last.to_string()), names: names.all, layers }
}

/// Names, each once.
#[derive(Default)]
struct Names {
    all: Vec<String>,
    places: HashMap<String, usize>,
}

impl Names {
    fn place(&mut self, name: &str) -> usize {
        if let Some(&place) = self.places.get(name) {
            return place;
        }
        self.places.insert(name.to_owned(), self.all.len());
        self.all.push(name.to_owned());
        self.all.len() - 1
    }
}
