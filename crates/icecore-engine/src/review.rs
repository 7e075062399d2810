//! Review of rejected summary drafts, and importance marks of days.
//!
//! Invariant: a summary that a user wrote is never replaced without the user's consent.

use std::collections::{BTreeMap, BTreeSet};

use icecore_domain::calendar::Moment;
use icecore_domain::cascade::judge::Draft;
use icecore_domain::cascade::plan::Due;
use icecore_domain::hash::Hash;
use icecore_domain::layout::{self, DocPath};
use icecore_domain::summary::{self, Cost, Importance, Maker, Period, ReadView, Summary};
use icecore_store::Error as StoreError;
use jiff::civil::Date;
use serde::{Deserialize, Serialize};

use crate::rollup::{Deferred, Rolled};
use crate::{Error, Memory, Result};

/// The state of a rejected draft.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    Open,
    /// The user accepted the draft.
    Accepted,
    /// The user replaced it.
    Edited,
    /// A model is asked again at the next run.
    Retry,
}

/// A rejected draft.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Review {
    pub ts: String,
    pub period: String,
    /// A hash of its sources.
    pub source: String,
    pub state: State,
    /// Why it was rejected.
    #[serde(default)]
    pub complaint: String,
    #[serde(default)]
    pub headline: String,
    #[serde(default)]
    pub body: String,
    #[serde(default)]
    pub cost: Cost,
}

/// The user's decision about a rejected draft.
#[derive(Debug, Clone)]
pub enum Settle {
    /// Use the draft as it is.
    Accept,
    /// Use this text instead: a headline, a blank line, a body; or a whole primer.
    Edit(String),
    /// Ask a model again at the next run.
    Retry,
}

/// An importance mark, as stored.
#[derive(Serialize, Deserialize)]
struct Mark {
    ts: String,
    date: String,
    mark: String,
}

fn path(text: &str) -> Result<DocPath> {
    Ok(text.parse().map_err(StoreError::Path)?)
}

impl Memory {
    /// Appends a line to a document that is only appended to.
    pub(crate) async fn append_line(&self, path: &DocPath, line: &str) -> Result<()> {
        Ok(self.store.extend(path, format!("{line}\n").as_bytes()).await?)
    }

    /// The latest entry of every draft that was ever rejected.
    async fn all_reviews(&self) -> Result<BTreeMap<String, Review>> {
        let text = self.store.document(&path(layout::REVIEW)?).await?.unwrap_or_default();
        let lines = text
            .split(|&byte| byte == b'\n')
            .filter_map(|line| serde_json::from_slice::<Review>(line).ok());
        Ok(lines.map(|review| (review.period.clone(), review)).collect())
    }

    /// Drafts that wait for review.
    pub async fn reviews(&self) -> Result<Vec<Review>> {
        Ok(self
            .all_reviews()
            .await?
            .into_values()
            .filter(|review| review.state == State::Open)
            .collect())
    }

    /// Drafts that must not be requested again, by period and source.
    pub(crate) async fn refused(&self) -> Result<BTreeSet<(String, String)>> {
        Ok(self.reviews().await?.into_iter().map(|review| (review.period, review.source)).collect())
    }

    /// How often the user requested a new draft; earlier answers do not count for it.
    pub(crate) async fn retries(&self, period: Period) -> Result<usize> {
        let (text, period) = (
            self.store.document(&path(layout::REVIEW)?).await?.unwrap_or_default(),
            period.to_string(),
        );
        let lines = text
            .split(|&byte| byte == b'\n')
            .filter_map(|line| serde_json::from_slice::<Review>(line).ok());
        Ok(lines.filter(|review| review.period == period && review.state == State::Retry).count())
    }

    /// The periods with a draft that waits for review.
    pub(crate) async fn flagged(&self) -> Result<BTreeSet<Period>> {
        Ok(self.reviews().await?.iter().filter_map(|review| review.period.parse().ok()).collect())
    }

    /// The periods whose draft waited for review at a moment.
    pub(crate) async fn flagged_then(&self, until: Option<jiff::Timestamp>) -> Result<Vec<String>> {
        let text = self.store.document(&path(layout::REVIEW)?).await?.unwrap_or_default();
        let lines = text
            .split(|&byte| byte == b'\n')
            .filter_map(|line| serde_json::from_slice::<Review>(line).ok());
        let known = |review: &Review| {
            Moment::read(&review.ts)
                .is_some_and(|read| until.is_none_or(|until| read.moment.at() <= until))
        };
        let last: BTreeMap<String, State> =
            lines.filter(known).map(|review| (review.period, review.state)).collect();
        Ok(last
            .into_iter()
            .filter(|(_, state)| *state == State::Open)
            .map(|(period, _)| period)
            .collect())
    }

    async fn write_review(&self, review: &Review) -> Result<()> {
        self.append_line(&path(layout::REVIEW)?, &serde_json::to_string(review).unwrap_or_default())
            .await
    }

    /// Stores a rejected draft for review.
    pub(crate) async fn flag(&self, due: &Due, draft: &Draft, why: &str, cost: Cost) -> Result<()> {
        self.write_review(&Review {
            ts: self.now().to_string(),
            period: due.period.to_string(),
            source: due.source.to_string(),
            state: State::Open,
            complaint: why.to_owned(),
            headline: draft.headline.clone(),
            body: draft.body.clone(),
            cost,
        })
        .await
    }

    /// Asks the user before a summary that the user wrote is replaced because its sources changed.
    /// True if the user has agreed already.
    pub(crate) async fn ask_about_hand(&self, due: &Due, rolled: &mut Rolled) -> Result<bool> {
        let reviews = self.all_reviews().await?;
        let known = reviews
            .get(&due.period.to_string())
            .filter(|review| review.source == due.source.to_string());
        match known.map(|review| review.state) {
            Some(State::Retry) => return Ok(true),
            Some(_) => return Ok(false),
            None => {}
        }
        let own = self.newest_of(due.period).await?;
        let (draft, why) = if own.maker == Maker::File {
            let why = "its file was not written by icecore and is not changed; accept replaces it by this draft";
            (self.extract_draft(due).await?, why)
        } else {
            let why = "its sources changed after a person edited it; accept keeps the edited version, retry makes a new one";
            (Draft { headline: own.headline, body: own.body }, why)
        };
        self.flag(due, &draft, why, Cost::default()).await?;
        rolled.flagged.push(Deferred { period: due.period, why: why.into() });
        Ok(false)
    }

    async fn newest_of(&self, period: Period) -> Result<Summary> {
        self.newest_summary(period)
            .await?
            .ok_or_else(|| Error::Nothing(format!("there is no summary of {period}")))
    }

    /// Applies the user's decision about a rejected draft.
    pub async fn settle_review(&self, period: Period, what: Settle) -> Result<Option<Summary>> {
        let review = self
            .all_reviews()
            .await?
            .remove(&period.to_string())
            .filter(|review| review.state == State::Open);
        let Some(review) = review else {
            return Err(Error::Nothing(format!(
                "no draft of {period} waits for review; run `icecore summary review` to list those that do"
            )));
        };
        let (state, words) = match what {
            Settle::Retry => (State::Retry, None),
            Settle::Accept => {
                (State::Accepted, Some((review.headline.clone(), review.body.clone())))
            }
            Settle::Edit(text) => match summary::read_file(&text) {
                ReadView::Broken => {
                    return Err(Error::Nothing("the text is empty; nothing was changed".into()));
                }
                ReadView::Edited { headline, body } | ReadView::Foreign { headline, body } => {
                    (State::Edited, Some((headline, body)))
                }
                ReadView::Ours => (State::Edited, summary::read_view(&text)),
            },
        };
        let mut kept = None;
        if let Some((headline, body)) = words {
            let newest = self.newest_of(period).await?;
            let draft =
                Draft { headline: self.gate_text(&headline), body: self.gate_text(&body) }.tidied();
            if draft.headline.is_empty() {
                return Err(Error::Nothing(format!(
                    "the draft of {period} is empty; run `icecore summary review {period} --edit FILE` to replace it"
                )));
            }
            let source: Hash = review.source.parse().unwrap_or(newest.source);
            // The sources are those of the draft, which may be more than those of the version it
            // replaces.
            let plan = self.known(false).await?.plan(period.tier(), None);
            let newest =
                match plan.due.into_iter().find(|due| due.period == period && due.source == source)
                {
                    Some(due) => Summary {
                        session: due.session.or(newest.session),
                        start: due.start,
                        end: due.end,
                        messages: due.messages,
                        states: due.states,
                        log: due.log,
                        sources: due.children,
                        ..newest
                    },
                    None => newest,
                };
            let own = Summary {
                version: newest.version + 1,
                headline: draft.headline,
                body: draft.body,
                recorded: self.now(),
                source,
                maker: Maker::Hand,
                provisional: false,
                left_out: Vec::new(),
                cost: review.cost,
                ..newest
            };
            self.store.add_summaries(std::slice::from_ref(&own), None).await?;
            self.write_views(std::slice::from_ref(&own), &mut Rolled::default()).await?;
            kept = Some(own);
        }
        self.write_review(&Review {
            ts: self.now().to_string(),
            state,
            headline: String::new(),
            body: String::new(),
            ..review
        })
        .await?;
        Ok(kept)
    }

    /// The days with an importance mark, with the latest mark of each.
    pub async fn marks(&self) -> Result<BTreeMap<Date, Importance>> {
        let text = self.store.document(&path(layout::MARKS)?).await?.unwrap_or_default();
        let until = self.horizon();
        let mut marks = BTreeMap::new();
        for mark in text
            .split(|&byte| byte == b'\n')
            .filter_map(|line| serde_json::from_slice::<Mark>(line).ok())
        {
            let known = Moment::read(&mark.ts)
                .is_some_and(|read| until.is_none_or(|until| read.moment.at() <= until));
            if let (true, Ok(day)) = (known, mark.date.parse::<Date>()) {
                match mark.mark.parse::<Importance>() {
                    Ok(importance) => marks.insert(day, importance),
                    Err(_) => marks.remove(&day),
                };
            }
        }
        Ok(marks)
    }

    /// Marks the importance of a day; `None` removes the mark.
    pub async fn mark(&self, day: Date, importance: Option<Importance>) -> Result<()> {
        let mark = Mark {
            ts: self.now().to_string(),
            date: day.to_string(),
            mark: importance.map_or("none", Importance::word).to_owned(),
        };
        self.append_line(&path(layout::MARKS)?, &serde_json::to_string(&mark).unwrap_or_default())
            .await
    }
}
