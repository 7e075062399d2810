//! The timeline: every session, day, week, month and year with its volume and summary state.
//!
//! The data is columnar: ten years are fifteen thousand periods, and a client that draws them needs
//! one property at a time. Texts are not included, only their sizes.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use jiff::civil::Date;
use serde::Serialize;

use crate::calendar::{Days, days_between};
use crate::record::{SessionKey, SessionStats};
use crate::summary::{Importance, Period, SummaryHead, Tier};

/// State bit: the summary is provisional and waits for a model.
pub const PROVISIONAL_BIT: u8 = 1;
/// State bit: a refused draft waits for review.
pub const FLAGGED_BIT: u8 = 2;
/// State bit: a person edited the summary.
pub const BY_HAND_BIT: u8 = 4;
/// State bit: the content was forgotten.
pub const FORGOTTEN_BIT: u8 = 8;

/// The input of the timeline.
#[derive(Debug, Clone, Copy)]
pub struct TimelineInput<'a> {
    /// The records, session by session.
    pub sessions: &'a [SessionStats],
    /// The newest version of each summary.
    pub heads: &'a [SummaryHead],
    /// The number of events recorded on each day.
    pub events: &'a [(Date, usize)],
    /// Days with an explicit importance.
    pub marks: &'a BTreeMap<Date, Importance>,
    /// Periods with a draft that waits for review.
    pub flagged: &'a BTreeSet<Period>,
}

/// The periods of one tier, one column per property.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct TierColumns {
    /// The period names; empty for a session without a summary.
    pub period: Vec<String>,
    /// The first days, counted from the origin.
    pub first: Vec<i64>,
    /// The numbers of days covered.
    pub days: Vec<usize>,
    /// The numbers of captured messages and states.
    pub messages: Vec<u64>,
    /// The bytes of the records.
    pub bytes: Vec<u64>,
    /// The coarsest summary tier: 0 none, 1 sessions, 2 days, 3 weeks, 4 months, 5 years.
    #[serde(rename = "pressed")]
    pub summary_tiers: Vec<u8>,
    /// The sum of `PROVISIONAL_BIT`, `FLAGGED_BIT`, `BY_HAND_BIT` and `FORGOTTEN_BIT`.
    pub state: Vec<u8>,
    /// 0 dull, 1 ordinary, 2 important.
    pub importance: Vec<u8>,
    /// The version of the summary; 0 if there is none.
    pub version: Vec<u32>,
    /// The bytes of the headline.
    pub headline: Vec<u64>,
    /// The bytes of the body.
    pub body: Vec<u64>,
    /// The number of sessions.
    pub sessions: Vec<u32>,
    /// The number of events recorded.
    pub events: Vec<usize>,
}

/// The additional columns of sessions.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct SessionColumns {
    /// The columns of every tier.
    #[serde(flatten)]
    pub layer: TierColumns,
    /// The conversations, as indices into the names.
    pub conversation: Vec<usize>,
    /// The session names, as indices into the names; -1 for none.
    pub name: Vec<i64>,
    /// The start, in minutes of the day.
    pub from: Vec<u16>,
    /// The end, in minutes of the day.
    pub to: Vec<u16>,
}

/// The complete timeline.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Timeline {
    /// The day from which days are counted, if there is any.
    pub origin: Option<String>,
    /// The last day.
    pub last: Option<String>,
    /// The names of conversations and sessions.
    pub names: Vec<String>,
    /// The requested tiers.
    pub layers: TimelineTiers,
}

/// The columns of each requested tier.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct TimelineTiers {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub year: Option<TierColumns>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub month: Option<TierColumns>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub week: Option<TierColumns>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub day: Option<TierColumns>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionColumns>,
}

/// The volume of the records of a period.
#[derive(Debug, Clone, Copy, Default)]
struct PeriodVolume {
    messages: u64,
    bytes: u64,
    sessions: u32,
    events: usize,
}

impl PeriodVolume {
    fn add(&mut self, other: Self) {
        self.messages += other.messages;
        self.bytes += other.bytes;
        self.sessions += other.sessions;
        self.events += other.events;
    }
}

fn tier_level(tier: Tier) -> u8 {
    match tier {
        Tier::Session => 1,
        Tier::Day => 2,
        Tier::Week => 3,
        Tier::Month => 4,
        Tier::Year => 5,
    }
}

fn importance_code(importance: Importance) -> u8 {
    match importance {
        Importance::Dull => 0,
        Importance::Ordinary => 1,
        Importance::Important => 2,
    }
}

/// The coarsest tier whose summary covers a day.
fn summarized_level(summarized: &BTreeSet<Period>, day: Date, has_sessions: bool) -> u8 {
    let covered = [Tier::Year, Tier::Month, Tier::Week, Tier::Day].into_iter().find(|&tier| {
        Period::covering(tier, day).is_some_and(|period| summarized.contains(&period))
    });
    covered.map_or(u8::from(has_sessions), tier_level)
}

/// One period, as a row to append.
struct TimelineRow<'a> {
    period: String,
    days: Days,
    said: PeriodVolume,
    summary_tier: u8,
    head: Option<&'a SummaryHead>,
    state: u8,
    importance: u8,
}

impl TierColumns {
    fn push(&mut self, origin: Date, row: TimelineRow<'_>) {
        let TimelineRow { period, days, said, summary_tier, head, state, importance } = row;
        self.period.push(period);
        self.first.push(days_between(origin, days.first));
        self.days.push(days.len());
        self.messages.push(said.messages);
        self.bytes.push(said.bytes);
        self.summary_tiers.push(summary_tier);
        self.state.push(state);
        self.importance.push(importance);
        self.version.push(head.map_or(0, |head| head.version));
        self.headline.push(head.map_or(0, |head| head.headline_bytes));
        self.body.push(head.map_or(0, |head| head.body_bytes));
        self.sessions.push(said.sessions);
        self.events.push(said.events);
    }
}

/// Builds the timeline of these tiers, restricted to the periods that touch these days.
pub fn build_timeline(ground: TimelineInput<'_>, within: Option<Days>, tiers: &[Tier]) -> Timeline {
    let asked = |tier: Tier| tiers.is_empty() || tiers.contains(&tier);
    let mut days: BTreeMap<Date, PeriodVolume> = BTreeMap::new();
    for stat in ground.sessions {
        let said = PeriodVolume {
            messages: stat.digest.records,
            bytes: stat.bytes,
            sessions: 1,
            events: 0,
        };
        days.entry(stat.key.day).or_default().add(said);
    }
    for &(day, events) in ground.events {
        days.entry(day).or_default().events += events;
    }
    let heads: HashMap<Period, &SummaryHead> =
        ground.heads.iter().map(|head| (head.period, head)).collect();
    for head in ground.heads.iter().filter(|head| head.period.tier() == Tier::Day) {
        days.entry(head.period.days().first).or_default();
    }
    let (Some((&first, _)), Some((&last, _))) = (days.first_key_value(), days.last_key_value())
    else {
        let empty = |tier: Tier| asked(tier).then(TierColumns::default);
        let layers = TimelineTiers {
            year: empty(Tier::Year),
            month: empty(Tier::Month),
            week: empty(Tier::Week),
            day: empty(Tier::Day),
            session: asked(Tier::Session).then(SessionColumns::default),
        };
        return Timeline { layers, ..Timeline::default() };
    };
    // A year begins on the Monday of its first week, possibly before its first record.
    let coarse = Period::covering(Tier::Year, first).map_or(first, |year| year.days().first);
    let origin = coarse.min(first);
    let summarized: BTreeSet<Period> = ground
        .heads
        .iter()
        .map(|head| head.period)
        .filter(|period| period.tier() != Tier::Session)
        .collect();
    let is_within = |span: Days| {
        within.is_none_or(|within| span.first <= within.last && span.last >= within.first)
    };
    let state = |head: Option<&SummaryHead>| {
        head.map_or(0, |head| {
            u8::from(head.provisional) * PROVISIONAL_BIT
                + u8::from(ground.flagged.contains(&head.period)) * FLAGGED_BIT
                + u8::from(head.by_hand) * BY_HAND_BIT
                + u8::from(head.is_forgotten()) * FORGOTTEN_BIT
        })
    };
    let importance = |period: Period, head: Option<&SummaryHead>| {
        let marked =
            if let Period::Day(day) = period { ground.marks.get(&day).copied() } else { None };
        importance_code(marked.or(head.map(|head| head.importance)).unwrap_or(Importance::Ordinary))
    };
    let layer = |tier: Tier| {
        let mut periods: BTreeMap<(Date, Period), (PeriodVolume, u8)> = BTreeMap::new();
        for (&day, said) in &days {
            let Some(period) = Period::covering(tier, day) else { continue };
            let (sum, far) = periods.entry((period.days().first, period)).or_default();
            sum.add(*said);
            *far = (*far).max(summarized_level(&summarized, day, false));
        }
        for head in ground.heads.iter().filter(|head| head.period.tier() == tier) {
            let (_, far) = periods.entry((head.period.days().first, head.period)).or_default();
            *far = (*far).max(tier_level(tier));
        }
        let mut layer = TierColumns::default();
        for ((_, period), (said, far)) in
            periods.into_iter().filter(|((_, period), _)| is_within(period.days()))
        {
            let head = heads.get(&period).copied();
            // A draft may wait before any version was accepted.
            let flagged = u8::from(ground.flagged.contains(&period)) * FLAGGED_BIT;
            let (state, importance) = (state(head) | flagged, importance(period, head));
            layer.push(
                origin,
                TimelineRow {
                    period: period.to_string(),
                    days: period.days(),
                    said,
                    summary_tier: far,
                    head,
                    state,
                    importance,
                },
            );
        }
        layer
    };
    let mut names = NameTable::default();
    let session = asked(Tier::Session).then(|| {
        let by_key: HashMap<&SessionKey, &SummaryHead> = ground
            .heads
            .iter()
            .filter_map(|head| head.session.as_ref().map(|key| (key, head)))
            .collect();
        let mut told = SessionColumns::default();
        for stat in ground
            .sessions
            .iter()
            .filter(|stat| is_within(Days { first: stat.key.day, last: stat.key.day }))
        {
            let day = stat.key.day;
            let head = by_key.get(&stat.key).copied();
            let said = PeriodVolume {
                messages: stat.digest.records,
                bytes: stat.bytes,
                sessions: 1,
                events: 0,
            };
            let far = summarized_level(&summarized, day, head.is_some());
            let name = head.map_or_else(String::new, |head| head.period.to_string());
            let (days, state, importance) =
                (Days { first: day, last: day }, state(head), importance(Period::Day(day), head));
            told.layer.push(
                origin,
                TimelineRow {
                    period: name,
                    days,
                    said,
                    summary_tier: far,
                    head,
                    state,
                    importance,
                },
            );
            told.conversation.push(names.intern(&stat.key.conversation));
            told.name.push(
                stat.key
                    .session
                    .as_deref()
                    .map_or(-1, |name| i64::try_from(names.intern(name)).unwrap_or(-1)),
            );
            told.from.push(stat.first.minute_of_day());
            told.to.push(stat.last.minute_of_day());
        }
        told
    });
    let layers = TimelineTiers {
        year: asked(Tier::Year).then(|| layer(Tier::Year)),
        month: asked(Tier::Month).then(|| layer(Tier::Month)),
        week: asked(Tier::Week).then(|| layer(Tier::Week)),
        day: asked(Tier::Day).then(|| layer(Tier::Day)),
        session,
    };
    Timeline {
        origin: Some(origin.to_string()),
        last: Some(last.to_string()),
        names: names.all,
        layers,
    }
}

/// A table of distinct names.
#[derive(Default)]
struct NameTable {
    all: Vec<String>,
    places: HashMap<String, usize>,
}

impl NameTable {
    fn intern(&mut self, name: &str) -> usize {
        if let Some(&place) = self.places.get(name) {
            return place;
        }
        self.places.insert(name.to_owned(), self.all.len());
        self.all.push(name.to_owned());
        self.all.len() - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calendar::Moment;
    use crate::hash::Hash;
    use crate::record::RecordSetDigest;
    use jiff::civil::date;

    fn moment(text: &str) -> Moment {
        Moment::parse(text).unwrap().moment
    }

    fn stat(day: Date, conversation: &str, session: Option<&str>, records: u64) -> SessionStats {
        let mut digest = RecordSetDigest::default();
        (0..records).for_each(|_| digest.add([1; 16]));
        let (first, last) =
            (moment(&format!("{day}T09:30:00+01:00")), moment(&format!("{day}T10:45:00+01:00")));
        let key =
            SessionKey { day, conversation: conversation.into(), session: session.map(Into::into) };
        SessionStats {
            key,
            digest,
            states: 0,
            bytes: records * 100,
            first,
            last,
            captured: first,
            turn: 0,
        }
    }

    fn head(period: &str, session: Option<&SessionStats>, provisional: bool) -> SummaryHead {
        SummaryHead {
            period: period.parse().unwrap(),
            version: 2,
            session: session.map(|stat| stat.key.clone()),
            recorded: moment("2026-03-01T03:00:00Z"),
            source: Hash::of(b"x"),
            log: None,
            content: Hash::of(b"x"),
            messages: 1,
            states: 0,
            by_hand: !provisional,
            provisional,
            importance: Importance::Ordinary,
            headline_bytes: 20,
            body_bytes: 200,
        }
    }

    // P2, P3: every day in exactly one week, month and year, and the volumes add up
    #[test]
    fn every_layer_says_as_much_as_the_days_do() {
        let sessions = [
            stat(date(2025, 12, 30), "app", Some("s1"), 4),
            stat(date(2026, 2, 13), "app", None, 2),
            stat(date(2026, 2, 13), "trip", Some("s1"), 3),
            stat(date(2026, 2, 14), "app", Some("s2"), 1),
        ];
        let heads = [
            head("2026-02-13", None, true),
            head("2026-02-13_session_01", Some(&sessions[1]), false),
            head("2026-W07", None, false),
            head("2025-12-30", None, true),
        ];
        let marks = BTreeMap::from([(date(2026, 2, 14), Importance::Dull)]);
        let flagged = BTreeSet::from(["2026-02-13".parse().unwrap(), "2026-02".parse().unwrap()]);
        let events = [(date(2026, 2, 13), 5), (date(2026, 2, 20), 1)];
        let ground = TimelineInput {
            sessions: &sessions,
            heads: &heads,
            events: &events,
            marks: &marks,
            flagged: &flagged,
        };
        let core = build_timeline(ground, None, &[]);
        // The week of 30 December 2025 is the first of 2026, and that of its January.
        assert_eq!(
            (core.origin.as_deref(), core.last.as_deref()),
            (Some("2025-12-29"), Some("2026-02-20"))
        );
        let day = core.layers.day.unwrap();
        assert_eq!(day.period, ["2025-12-30", "2026-02-13", "2026-02-14", "2026-02-20"]);
        assert_eq!((day.first, day.days), (vec![1, 46, 47, 53], vec![1; 4]));
        assert_eq!((day.messages, day.bytes), (vec![4, 5, 1, 0], vec![400, 500, 100, 0]));
        assert_eq!((day.sessions, day.events), (vec![1, 2, 1, 0], vec![0, 5, 0, 1]));
        assert_eq!(day.summary_tiers, [2, 3, 3, 0]);
        assert_eq!(day.state, [PROVISIONAL_BIT, PROVISIONAL_BIT | FLAGGED_BIT, 0, 0]);
        assert_eq!((day.importance, day.version), (vec![1, 1, 0, 1], vec![2, 2, 0, 0]));
        assert_eq!((day.headline, day.body), (vec![20, 20, 0, 0], vec![200, 200, 0, 0]));
        let (week, month, year) =
            (core.layers.week.unwrap(), core.layers.month.unwrap(), core.layers.year.unwrap());
        assert_eq!(week.period, ["2026-W01", "2026-W07", "2026-W08"]);
        assert_eq!(
            (week.messages, week.days, week.first),
            (vec![4, 6, 0], vec![7; 3], vec![0, 42, 49])
        );
        assert_eq!((week.state, week.summary_tiers), (vec![0, BY_HAND_BIT, 0], vec![2, 3, 0]));
        assert_eq!(
            (month.period, month.messages, month.state),
            (vec!["2026-01".into(), "2026-02".into()], vec![4, 6], vec![0, FLAGGED_BIT])
        );
        assert_eq!(
            (year.period, year.messages, year.events),
            (vec!["2026".to_owned()], vec![10], vec![6])
        );
        let session = core.layers.session.unwrap();
        assert_eq!(session.layer.period, ["", "2026-02-13_session_01", "", ""]);
        assert_eq!(
            (session.layer.summary_tiers, session.layer.messages),
            (vec![2, 3, 3, 3], vec![4, 2, 3, 1])
        );
        assert_eq!(
            (core.names, session.conversation, session.name),
            (
                vec!["app".to_owned(), "s1".into(), "trip".into(), "s2".into()],
                vec![0, 0, 2, 0],
                vec![1, -1, 1, 3]
            )
        );
        assert_eq!((session.from, session.to), (vec![570; 4], vec![645; 4]));
    }

    #[test]
    fn the_timeline_contains_only_the_requested_range() {
        let sessions =
            [stat(date(2026, 2, 13), "app", None, 2), stat(date(2026, 3, 13), "app", None, 2)];
        let (marks, flagged) = (BTreeMap::new(), BTreeSet::new());
        let ground = TimelineInput {
            sessions: &sessions,
            heads: &[],
            events: &[],
            marks: &marks,
            flagged: &flagged,
        };
        let within = Days { first: date(2026, 3, 1), last: date(2026, 3, 31) };
        let core = build_timeline(ground, Some(within), &[Tier::Day, Tier::Year]);
        assert_eq!(core.layers.day.unwrap().period, ["2026-03-13"]);
        assert_eq!(core.layers.year.unwrap().period, ["2026"]);
        assert!(
            core.layers.week.is_none()
                && core.layers.month.is_none()
                && core.layers.session.is_none()
        );
        let nothing = build_timeline(TimelineInput { sessions: &[], ..ground }, None, &[Tier::Day]);
        assert_eq!((nothing.origin, nothing.layers.day), (None, Some(TierColumns::default())));
    }
}
