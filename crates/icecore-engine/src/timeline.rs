//! The timeline: periods by tier, one period with its children, and the original messages below.

use icecore_domain::budget::Omission;
use icecore_domain::calendar::{Days, Moment};
use icecore_domain::cascade::timeline::{self, TierColumns, Timeline, TimelineInput};
use icecore_domain::id::EventId;
use icecore_domain::layout::DocPath;
use icecore_domain::record::Record;
use icecore_domain::summary::{
    Importance, Period, SimilarSummary, Summary, SummaryCost, SummaryQuery, Tier,
};
use icecore_domain::{calendar, page};
use jiff::ToSpan;
use jiff::civil::Date;
use serde::Serialize;

use crate::{Error, Memory, Result};

/// A period, with its summary and its children.
#[derive(Debug, Serialize)]
pub struct TimelineNode {
    pub period: Period,
    pub tier: Tier,
    pub title: String,
    pub first: String,
    pub last: String,
    pub parent: Option<Period>,
    /// The version of its summary; 0 if there is none.
    pub version: u32,
    pub made_by: Option<String>,
    pub created_at: Option<Moment>,
    /// Whether it is replaced once there is a model.
    pub provisional: bool,
    /// Whether a draft of it was rejected and waits for review.
    pub flagged: bool,
    pub importance: Importance,
    /// The number of records it covers.
    pub messages: u64,
    /// The size of these records' text.
    pub bytes: u64,
    /// The number of events recorded in it.
    pub events: usize,
    /// The summary: the headline, then the body line by line.
    pub lines: Vec<SummaryLine>,
    /// What the summary had to omit.
    pub left_out: Vec<Omission>,
    /// An earlier similar summary.
    pub similar: Option<SimilarSummary>,
    pub cost: Option<SummaryCost>,
    pub path: String,
    /// The log of the day, if there is one.
    pub log: Option<String>,
    /// In order of time.
    pub children: Vec<TimelineChild>,
}

/// A line of a summary.
#[derive(Debug, Serialize)]
pub struct SummaryLine {
    /// Its number; 0 is the headline.
    pub n: usize,
    pub text: String,
    /// Events that it names.
    pub events: Vec<EventId>,
}

/// A child of a period.
#[derive(Debug, Serialize)]
pub struct TimelineChild {
    /// Its name; `None` for a session without a summary.
    pub period: Option<String>,
    pub tier: Tier,
    pub first: String,
    pub last: String,
    /// Empty if there is no summary.
    pub headline: String,
    /// The version of its summary; 0 if there is none.
    pub version: u32,
    /// Whether it is replaced once there is a model.
    pub provisional: bool,
    /// Whether a draft of it was rejected and waits for review.
    pub flagged: bool,
    pub importance: Importance,
    /// The number of records it covers.
    pub messages: u64,
    /// The size of these records' text.
    pub bytes: u64,
    /// The conversation of a session.
    pub conversation: Option<String>,
    /// The session's name within it.
    pub session: Option<String>,
    /// When a session began, in minutes of its day.
    pub from: Option<u16>,
    pub to: Option<u16>,
}

/// A period and its headline.
#[derive(Debug, Serialize)]
pub struct TimelineHeadline {
    pub period: Period,
    pub headline: String,
}

/// A span of at most this many days is read day by day.
const MAX_DAYS_READ_SINGLY: usize = 62;

fn tier_below(tier: Tier) -> Option<Tier> {
    match tier {
        Tier::Year => Some(Tier::Month),
        Tier::Month => Some(Tier::Week),
        Tier::Week => Some(Tier::Day),
        Tier::Day => Some(Tier::Session),
        Tier::Session => None,
    }
}

fn period_above(period: Period) -> Option<Period> {
    let day = match period {
        // A month belongs to the year it is named after, whatever the first of its weeks is.
        Period::Month(month) => return Some(Period::Year(month.year())),
        Period::Year(_) => return None,
        Period::Session { day, .. } => return Some(Period::Day(day)),
        Period::Day(day) => day,
        Period::Week(week) => week.thursday(),
    };
    Period::covering(if period.tier() == Tier::Day { Tier::Week } else { Tier::Month }, day)
}

fn importance_from_code(code: u8) -> Importance {
    match code {
        0 => Importance::Dull,
        1 => Importance::Ordinary,
        _ => Importance::Important,
    }
}

/// The lines of a summary: the headline, then the non-blank lines of the body.
fn summary_lines(summary: &Summary) -> Vec<SummaryLine> {
    let body = summary.body.lines().map(str::trim_end).filter(|line| !line.trim().is_empty());
    let all = std::iter::once(summary.headline.trim()).chain(body);
    all.enumerate()
        .map(|(n, text)| SummaryLine {
            n,
            text: text.to_owned(),
            events: page::referenced_ids(text),
        })
        .collect()
}

fn column_value<T: Copy + Default>(column: &[T], place: usize) -> T {
    column.get(place).copied().unwrap_or_default()
}

impl Memory {
    /// The periods of these tiers (of all, if empty) that touch these days, or of the whole memory.
    pub async fn load_timeline(&self, within: Option<Days>, tiers: &[Tier]) -> Result<Timeline> {
        let until = self.view_horizon();
        let (heads, _) = self.store.summary_heads(&SummaryQuery::default().as_of(until)).await?;
        // A few days are read one by one. For a long span, which may be unbounded, everything is
        // read at once.
        let few = within.filter(|within| within.len() <= MAX_DAYS_READ_SINGLY);
        let mut sessions = self.store.sessions(few).await?;
        sessions.retain(|stat| {
            within.is_none_or(|within| within.contains(stat.key.day))
                && until.is_none_or(|until| stat.first.timestamp() <= until)
        });
        let mut events = self.store.event_days().await?;
        events.retain(|(day, _)| {
            within.is_none_or(|within| within.contains(*day))
                && until.is_none_or(|_| *day <= self.now().day())
        });
        let heads = match within {
            None => heads,
            Some(within) => {
                let touches = |span: Days| span.first <= within.last && span.last >= within.first;
                heads.into_iter().filter(|head| touches(head.period.days())).collect()
            }
        };
        let (marks, flagged) =
            (self.list_importance_marks().await?, self.list_flagged_periods().await?);
        let ground = TimelineInput {
            sessions: &sessions,
            heads: &heads,
            events: &events,
            marks: &marks,
            flagged: &flagged,
        };
        Ok(timeline::build_timeline(ground, within, tiers))
    }

    /// The headlines of a tier's periods that begin in these days, in order of time; the latest if
    /// there are more than `most`.
    pub async fn list_headlines(
        &self,
        tier: Tier,
        within: Option<Days>,
        most: usize,
    ) -> Result<Vec<TimelineHeadline>> {
        let query = SummaryQuery {
            tiers: vec![tier],
            days: within,
            until: self.view_horizon(),
            latest: Some(most),
        };
        let found = self.store.summaries(&query).await?;
        Ok(found
            .into_iter()
            .map(|summary| TimelineHeadline { period: summary.period, headline: summary.headline })
            .collect())
    }

    /// A period with its children. Fails if it has neither records nor a summary.
    pub async fn load_timeline_node(&self, period: Period) -> Result<TimelineNode> {
        let days = period.days();
        let summary = self.find_newest_summary(period).await?;
        let child = tier_below(period.tier());
        let tiers: Vec<Tier> = [Some(period.tier()), child].into_iter().flatten().collect();
        let core = self.load_timeline(Some(days), &tiers).await?;
        let origin = core
            .origin
            .as_deref()
            .and_then(|origin| origin.parse::<Date>().ok())
            .unwrap_or(days.first);
        let name = period.to_string();
        let own = |layer: Option<&TierColumns>| {
            let layer = layer?;
            let place = layer.period.iter().position(|known| *known == name)?;
            Some((
                column_value(&layer.messages, place),
                column_value(&layer.bytes, place),
                column_value(&layer.events, place),
                column_value(&layer.importance, place),
            ))
        };
        let shelf = &core.layers;
        let sessions = shelf.session.as_ref().map(|session| &session.layer);
        let layer_of = |tier: Tier| match tier {
            Tier::Year => shelf.year.as_ref(),
            Tier::Month => shelf.month.as_ref(),
            Tier::Week => shelf.week.as_ref(),
            Tier::Day => shelf.day.as_ref(),
            Tier::Session => sessions,
        };
        let figures = own(layer_of(period.tier()));
        if figures.is_none() && summary.is_none() {
            return Err(Error::NotFound(format!(
                "there are no messages and no summary in {period}"
            )));
        }
        let (messages, bytes, events, weight) =
            figures.unwrap_or((summary.as_ref().map_or(0, |summary| summary.messages), 0, 0, 1));
        let children = match child {
            Some(tier) => self.load_child_nodes(tier, days, origin, &core, layer_of(tier)).await?,
            None => Vec::new(),
        };
        let log = match period {
            Period::Day(day) if self.store.document_len(&DocPath::log(day)).await? > 0 => {
                Some(DocPath::log(day).to_string())
            }
            _ => None,
        };
        let flagged = self.list_flagged_periods().await?.contains(&period);
        Ok(TimelineNode {
            period,
            tier: period.tier(),
            title: period.title(),
            first: days.first.to_string(),
            last: days.last.to_string(),
            parent: period_above(period),
            version: summary.as_ref().map_or(0, |summary| summary.version),
            made_by: summary.as_ref().map(|summary| summary.maker.to_string()),
            created_at: summary.as_ref().map(|summary| summary.recorded),
            provisional: summary.as_ref().is_some_and(|summary| summary.provisional),
            flagged,
            importance: importance_from_code(weight),
            messages,
            bytes,
            events,
            lines: summary.as_ref().map_or_else(Vec::new, summary_lines),
            left_out: summary.as_ref().map_or_else(Vec::new, |summary| summary.left_out.clone()),
            similar: summary.as_ref().and_then(|summary| summary.similar.clone()),
            cost: summary.as_ref().map(|summary| summary.cost),
            path: period.path().to_string(),
            log,
            children,
        })
    }

    async fn load_child_nodes(
        &self,
        tier: Tier,
        days: Days,
        origin: Date,
        core: &Timeline,
        layer: Option<&TierColumns>,
    ) -> Result<Vec<TimelineChild>> {
        let Some(layer) = layer else { return Ok(Vec::new()) };
        let said = self
            .store
            .summaries(&SummaryQuery::for_tier_within(tier, days).as_of(self.view_horizon()))
            .await?;
        let headline = |period: &str| {
            let found = said.iter().find(|summary| summary.period.to_string() == period);
            found.map_or_else(String::new, |summary| summary.headline.clone())
        };
        let sessions = core.layers.session.as_ref().filter(|_| tier == Tier::Session);
        let day = |offset: i64| origin.checked_add(offset.days()).unwrap_or(origin).to_string();
        let named = |place: i64| {
            usize::try_from(place).ok().and_then(|place| core.names.get(place)).cloned()
        };
        let mut children = Vec::new();
        for (place, period) in layer.period.iter().enumerate() {
            let first = column_value(&layer.first, place);
            let state = column_value(&layer.state, place);
            let last = first + i64::try_from(column_value(&layer.days, place)).unwrap_or(1) - 1;
            children.push(TimelineChild {
                period: Some(period.clone()).filter(|period| !period.is_empty()),
                tier,
                first: day(first),
                last: day(last),
                headline: headline(period),
                version: column_value(&layer.version, place),
                provisional: state & timeline::PROVISIONAL_BIT > 0,
                flagged: state & timeline::FLAGGED_BIT > 0,
                importance: importance_from_code(column_value(&layer.importance, place)),
                messages: column_value(&layer.messages, place),
                bytes: column_value(&layer.bytes, place),
                conversation: sessions.and_then(|layer| {
                    named(i64::try_from(column_value(&layer.conversation, place)).unwrap_or(-1))
                }),
                session: sessions.and_then(|layer| named(column_value(&layer.name, place))),
                from: sessions.map(|layer| column_value(&layer.from, place)),
                to: sessions.map(|layer| column_value(&layer.to, place)),
            });
        }
        children.sort_by_key(|child| (child.first.clone(), child.from));
        Ok(children)
    }

    /// The original messages of a session, a day or a week, in order.
    pub async fn load_period_records(
        &self,
        period: Period,
        conversation: Option<&str>,
        session: Option<&str>,
    ) -> Result<Vec<Record>> {
        if matches!(period.tier(), Tier::Month | Tier::Year) {
            return Err(Error::InvalidRequest(format!(
                "{period} is too long to show every message; choose a week, a day or a session"
            )));
        }
        let mut records = self.store.records(period.days()).await?;
        let until = self.view_horizon();
        records.retain(|record| until.is_none_or(|until| record.ts.timestamp() <= until));
        if period.tier() == Tier::Session {
            let key = self.find_newest_summary(period).await?.and_then(|summary| summary.session);
            let key =
                key.ok_or_else(|| Error::NotFound(format!("there is no session {period}")))?;
            records.retain(|record| record.session_key() == key);
        }
        records.retain(|record| {
            conversation.is_none_or(|wanted| record.conversation == wanted)
                && session
                    .is_none_or(|wanted| record.session.as_deref().unwrap_or_default() == wanted)
        });
        self.mark_withdrawn(&mut records).await?;
        Ok(records)
    }

    /// A line of a summary by its number; 0 is the headline.
    pub async fn load_summary_line(&self, period: Period, n: usize) -> Result<String> {
        let summary = self.find_newest_summary(period).await?;
        let summary = summary
            .ok_or_else(|| Error::NotFound(format!("there is no summary of {period} yet")))?;
        let line = summary_lines(&summary).into_iter().nth(n);
        line.map(|line| line.text)
            .ok_or_else(|| Error::NotFound(format!("{period} has no line {n}")))
    }

    /// How many days before today this day is.
    pub fn days_since(&self, day: Date) -> i64 {
        calendar::days_between(day, self.now().day())
    }
}
