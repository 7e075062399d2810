//! Summaries: every version is appended, queries return the newest.

use async_trait::async_trait;
use icecore_domain::summary::{Summary, SummaryHead, SummaryQuery};

use crate::{Position, Result};

/// Summary versions.
#[async_trait]
pub trait SummaryStore: Send + Sync {
    /// Appends summary versions, if the summaries are still at position `after`.
    async fn add_summaries(
        &self,
        summaries: &[Summary],
        after: Option<Position>,
    ) -> Result<Position>;

    /// The newest version of each matching summary without its text, by first day and period.
    async fn summary_heads(&self, which: &SummaryQuery) -> Result<(Vec<SummaryHead>, Position)>;

    /// Like [`SummaryStore::summary_heads`], with the text.
    async fn summaries(&self, which: &SummaryQuery) -> Result<Vec<Summary>>;
}
