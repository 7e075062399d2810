//! Summaries of a space: every version is appended; queries return the newest.

use std::sync::Arc;

use icecore_domain::layout::{self, DocPath};
use icecore_domain::summary::{Head, Summary, SummaryQuery};

use super::Space;
use super::cache::Reading;
use super::documents::moved;
use super::ledger::position;
use crate::{Position, Result};

/// Every version in the order of writing; invalid lines are skipped.
#[derive(Debug, Clone, Default)]
struct Versions(Vec<Arc<Summary>>);

impl Reading for Versions {
    fn read_on(&mut self, bytes: &[u8]) {
        self.0.extend(
            bytes
                .split(|&byte| byte == b'\n')
                .filter_map(|line| Summary::read(line.trim_ascii()).ok())
                .map(Arc::new),
        );
    }

    fn weight(&self) -> usize {
        self.0.len() * size_of::<Summary>()
    }
}

impl Versions {
    fn chosen(&self, which: &SummaryQuery) -> Vec<&Summary> {
        which.choose(self.0.iter().map(|summary| &**summary), |summary| {
            (summary.period, summary.recorded)
        })
    }
}

impl Space {
    fn summaries_path() -> Result<DocPath> {
        Ok(layout::SUMMARIES.parse()?)
    }

    async fn versions_of_summaries(&self) -> Result<(Arc<Versions>, Position)> {
        let tx = self.begin_reading().await?;
        let (versions, look) = self.reading::<Versions>(&tx, &Self::summaries_path()?).await?;
        tx.commit().await?;
        Ok((versions, position(look)))
    }

    pub(super) async fn keep_summaries(
        &self,
        summaries: &[Summary],
        after: Option<Position>,
    ) -> Result<Position> {
        let path = Self::summaries_path()?;
        let tx = self.begin().await?;
        let before = self.hold(&tx, &path).await?;
        if after.is_some_and(|after| after != position(Some(before))) {
            return Err(moved(&path));
        }
        let text: String = summaries.iter().map(Summary::line).collect();
        let (_, now) = self.append_held(&tx, &path, before, text.as_bytes()).await?;
        self.derive_more(&tx, &path, text.as_bytes()).await?;
        tx.commit().await?;
        self.read_own::<Versions>(&path, before, now, text.as_bytes());
        Ok(position(Some(now)))
    }

    pub(super) async fn heads_of(&self, which: &SummaryQuery) -> Result<(Vec<Head>, Position)> {
        let (versions, position) = self.versions_of_summaries().await?;
        Ok((versions.chosen(which).into_iter().map(Summary::head).collect(), position))
    }

    pub(super) async fn summaries_of(&self, which: &SummaryQuery) -> Result<Vec<Summary>> {
        let (versions, _) = self.versions_of_summaries().await?;
        Ok(versions.chosen(which).into_iter().cloned().collect())
    }
}
