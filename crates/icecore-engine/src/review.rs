//! Review of rejected summary drafts, and importance marks of days.
//!
//! Invariant: a summary that a user wrote is never replaced without the user's consent.

use std::collections::{BTreeMap, BTreeSet};

use icecore_domain::calendar::Moment;
use icecore_domain::cascade::judge::SummaryDraft;
use icecore_domain::cascade::plan::DueSummary;
use icecore_domain::hash::Hash;
use icecore_domain::layout::{self, DocPath};
use icecore_domain::summary::{
    self, Importance, Period, Summary, SummaryAuthor, SummaryCost, SummaryFileState,
};
use icecore_store::Error as StoreError;
use jiff::civil::Date;
use serde::{Deserialize, Serialize};

use crate::rollup::{DeferredNode, RollupReport};
use crate::{Error, Memory, Result};

/// The state of a rejected draft.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReviewState {
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
    pub state: ReviewState,
    /// Why it was rejected.
    #[serde(default)]
    pub complaint: String,
    #[serde(default)]
    pub headline: String,
    #[serde(default)]
    pub body: String,
    #[serde(default)]
    pub cost: SummaryCost,
}

/// The user's decision about a rejected draft.
#[derive(Debug, Clone)]
pub enum ReviewDecision {
    /// Use the draft as it is.
    Accept,
    /// Use this text instead: a headline, a blank line, a body; or a whole primer.
    Edit(String),
    /// Ask a model again at the next run.
    Retry,
}

/// An importance mark, as stored.
#[derive(Serialize, Deserialize)]
struct ImportanceMark {
    ts: String,
    date: String,
    mark: String,
}

fn doc_path(text: &str) -> Result<DocPath> {
    Ok(text.parse().map_err(StoreError::from)?)
}

impl Memory {
    /// Appends a line to a document that is only appended to.
    pub(crate) async fn append_line(&self, path: &DocPath, line: &str) -> Result<()> {
        Ok(self.store.append_to_document(path, format!("{line}\n").as_bytes()).await?)
    }

    /// The latest entry of every draft that was ever rejected.
    async fn load_latest_reviews(&self) -> Result<BTreeMap<String, Review>> {
        let text = self.store.document(&doc_path(layout::REVIEW)?).await?.unwrap_or_default();
        let lines = text
            .split(|&byte| byte == b'\n')
            .filter_map(|line| serde_json::from_slice::<Review>(line).ok());
        Ok(lines.map(|review| (review.period.clone(), review)).collect())
    }

    /// Drafts that wait for review.
    pub async fn list_pending_reviews(&self) -> Result<Vec<Review>> {
        Ok(self
            .load_latest_reviews()
            .await?
            .into_values()
            .filter(|review| review.state == ReviewState::Open)
            .collect())
    }

    /// Drafts that must not be requested again, by period and source.
    pub(crate) async fn list_rejected_drafts(&self) -> Result<BTreeSet<(String, String)>> {
        Ok(self
            .list_pending_reviews()
            .await?
            .into_iter()
            .map(|review| (review.period, review.source))
            .collect())
    }

    /// How often the user requested a new draft; earlier answers do not count for it.
    pub(crate) async fn count_retries(&self, period: Period) -> Result<usize> {
        let (text, period) = (
            self.store.document(&doc_path(layout::REVIEW)?).await?.unwrap_or_default(),
            period.to_string(),
        );
        let lines = text
            .split(|&byte| byte == b'\n')
            .filter_map(|line| serde_json::from_slice::<Review>(line).ok());
        Ok(lines
            .filter(|review| review.period == period && review.state == ReviewState::Retry)
            .count())
    }

    /// The periods with a draft that waits for review.
    pub(crate) async fn list_flagged_periods(&self) -> Result<BTreeSet<Period>> {
        Ok(self
            .list_pending_reviews()
            .await?
            .iter()
            .filter_map(|review| review.period.parse().ok())
            .collect())
    }

    /// The periods whose draft waited for review at a moment.
    pub(crate) async fn list_flagged_periods_as_of(
        &self,
        until: Option<jiff::Timestamp>,
    ) -> Result<Vec<String>> {
        let text = self.store.document(&doc_path(layout::REVIEW)?).await?.unwrap_or_default();
        let lines = text
            .split(|&byte| byte == b'\n')
            .filter_map(|line| serde_json::from_slice::<Review>(line).ok());
        let known = |review: &Review| {
            Moment::parse(&review.ts)
                .is_some_and(|read| until.is_none_or(|until| read.moment.timestamp() <= until))
        };
        let last: BTreeMap<String, ReviewState> =
            lines.filter(known).map(|review| (review.period, review.state)).collect();
        Ok(last
            .into_iter()
            .filter(|(_, state)| *state == ReviewState::Open)
            .map(|(period, _)| period)
            .collect())
    }

    async fn write_review(&self, review: &Review) -> Result<()> {
        self.append_line(
            &doc_path(layout::REVIEW)?,
            &serde_json::to_string(review).unwrap_or_default(),
        )
        .await
    }

    /// Stores a rejected draft for review.
    pub(crate) async fn store_rejected_draft(
        &self,
        due: &DueSummary,
        draft: &SummaryDraft,
        why: &str,
        cost: SummaryCost,
    ) -> Result<()> {
        self.write_review(&Review {
            ts: self.now().to_string(),
            period: due.period.to_string(),
            source: due.source.to_string(),
            state: ReviewState::Open,
            complaint: why.to_owned(),
            headline: draft.headline.clone(),
            body: draft.body.clone(),
            cost,
        })
        .await
    }

    /// Asks the user before a summary that the user wrote is replaced because its sources changed.
    /// True if the user has agreed already.
    pub(crate) async fn ask_before_replacing_edited(
        &self,
        due: &DueSummary,
        report: &mut RollupReport,
    ) -> Result<bool> {
        let reviews = self.load_latest_reviews().await?;
        let known = reviews
            .get(&due.period.to_string())
            .filter(|review| review.source == due.source.to_string());
        match known.map(|review| review.state) {
            Some(ReviewState::Retry) => return Ok(true),
            Some(_) => return Ok(false),
            None => {}
        }
        let own = self.load_newest_summary(due.period).await?;
        let (draft, why) = if own.maker == SummaryAuthor::File {
            let why = "its file was not written by icecore and is not changed; accept replaces it by this draft";
            (self.extractive_draft(due).await?, why)
        } else {
            let why = "its sources changed after a person edited it; accept keeps the edited version, retry makes a new one";
            (SummaryDraft { headline: own.headline, body: own.body }, why)
        };
        self.store_rejected_draft(due, &draft, why, SummaryCost::default()).await?;
        report.flagged.push(DeferredNode { period: due.period, why: why.into() });
        Ok(false)
    }

    async fn load_newest_summary(&self, period: Period) -> Result<Summary> {
        self.find_newest_summary(period)
            .await?
            .ok_or_else(|| Error::NotFound(format!("there is no summary of {period}")))
    }

    /// Applies the user's decision about a rejected draft.
    pub async fn settle_review(
        &self,
        period: Period,
        what: ReviewDecision,
    ) -> Result<Option<Summary>> {
        let review = self
            .load_latest_reviews()
            .await?
            .remove(&period.to_string())
            .filter(|review| review.state == ReviewState::Open);
        let Some(review) = review else {
            return Err(Error::NotFound(format!(
                "there is no draft of {period} to review; `icecore summary review` lists all drafts"
            )));
        };
        let (state, words) = match what {
            ReviewDecision::Retry => (ReviewState::Retry, None),
            ReviewDecision::Accept => {
                (ReviewState::Accepted, Some((review.headline.clone(), review.body.clone())))
            }
            ReviewDecision::Edit(text) => match summary::classify_summary_file(&text) {
                SummaryFileState::Broken => {
                    return Err(Error::NotFound("the text is empty; nothing was changed".into()));
                }
                SummaryFileState::Edited { headline, body }
                | SummaryFileState::Foreign { headline, body } => {
                    (ReviewState::Edited, Some((headline, body)))
                }
                SummaryFileState::Ours => (ReviewState::Edited, summary::parse_summary_file(&text)),
            },
        };
        let mut kept = None;
        if let Some((headline, body)) = words {
            let newest = self.load_newest_summary(period).await?;
            let draft = SummaryDraft {
                headline: self.filter_without_report(&headline),
                body: self.filter_without_report(&body),
            }
            .normalize();
            if draft.headline.is_empty() {
                return Err(Error::NotFound(format!(
                    "the draft of {period} is empty; run `icecore summary review {period} --edit FILE` to replace it"
                )));
            }
            let source: Hash = review.source.parse().unwrap_or(newest.source);
            // The sources are those of the draft, which may be more than those of the version it
            // replaces.
            let plan = self.planning_input(false).await?.plan_tier(period.tier(), None);
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
                maker: SummaryAuthor::Hand,
                provisional: false,
                left_out: Vec::new(),
                cost: review.cost,
                ..newest
            };
            self.store.add_summaries(std::slice::from_ref(&own), None).await?;
            self.write_views(std::slice::from_ref(&own), &mut RollupReport::default()).await?;
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
    pub async fn list_importance_marks(&self) -> Result<BTreeMap<Date, Importance>> {
        let text = self.store.document(&doc_path(layout::MARKS)?).await?.unwrap_or_default();
        let until = self.view_horizon();
        let mut marks = BTreeMap::new();
        for mark in text
            .split(|&byte| byte == b'\n')
            .filter_map(|line| serde_json::from_slice::<ImportanceMark>(line).ok())
        {
            let known = Moment::parse(&mark.ts)
                .is_some_and(|read| until.is_none_or(|until| read.moment.timestamp() <= until));
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
    pub async fn set_importance(&self, day: Date, importance: Option<Importance>) -> Result<()> {
        let mark = ImportanceMark {
            ts: self.now().to_string(),
            date: day.to_string(),
            mark: importance.map_or("none", Importance::word).to_owned(),
        };
        self.append_line(
            &doc_path(layout::MARKS)?,
            &serde_json::to_string(&mark).unwrap_or_default(),
        )
        .await
    }
}
