//! Summaries of a space: every version is appended; queries return the newest.

use std::sync::Arc;

use async_trait::async_trait;
use icecore_domain::layout::{self, DocPath};
use icecore_domain::summary::{Summary, SummaryHead, SummaryQuery};

use super::Space;
use super::cache::ParsedDocument;
use super::documents::conflict_error;
use super::ledger::ledger_position;
use crate::{Position, Result, SummaryStore};

/// Every version in the order of writing; invalid lines are skipped.
#[derive(Debug, Clone, Default)]
struct SummaryVersions(Vec<Arc<Summary>>);

impl ParsedDocument for SummaryVersions {
    fn parse_more(&mut self, bytes: &[u8]) {
        self.0.extend(
            bytes
                .split(|&byte| byte == b'\n')
                .filter_map(|line| Summary::parse_line(line.trim_ascii()).ok())
                .map(Arc::new),
        );
    }

    fn memory_bytes(&self) -> usize {
        self.0.len() * size_of::<Summary>()
    }
}

impl SummaryVersions {
    fn newest(&self, which: &SummaryQuery) -> Vec<&Summary> {
        which.select_newest(self.0.iter().map(|summary| &**summary), |summary| {
            (summary.period, summary.recorded)
        })
    }
}

impl Space {
    fn summaries_path() -> Result<DocPath> {
        Ok(layout::SUMMARIES.parse()?)
    }

    async fn read_versions(&self) -> Result<(Arc<SummaryVersions>, Position)> {
        let tx = self.begin_reading().await?;
        let (versions, look) =
            self.read_parsed::<SummaryVersions>(&tx, &Self::summaries_path()?).await?;
        tx.commit().await?;
        Ok((versions, ledger_position(look)))
    }
}

#[async_trait]
impl SummaryStore for Space {
    async fn add_summaries(
        &self,
        summaries: &[Summary],
        after: Option<Position>,
    ) -> Result<Position> {
        let path = Self::summaries_path()?;
        let tx = self.begin().await?;
        let before = self.lock_document(&tx, &path).await?;
        if after.is_some_and(|after| after != ledger_position(Some(before))) {
            return Err(conflict_error(&path));
        }
        let text: String = summaries.iter().map(Summary::to_line).collect();
        let (_, now) = self.append_locked(&tx, &path, before, text.as_bytes()).await?;
        self.derive_appended(&tx, &path, text.as_bytes()).await?;
        tx.commit().await?;
        self.parse_own::<SummaryVersions>(&path, before, now, text.as_bytes());
        Ok(ledger_position(Some(now)))
    }

    async fn summary_heads(&self, which: &SummaryQuery) -> Result<(Vec<SummaryHead>, Position)> {
        let (versions, position) = self.read_versions().await?;
        Ok((versions.newest(which).into_iter().map(Summary::head).collect(), position))
    }

    async fn summaries(&self, which: &SummaryQuery) -> Result<Vec<Summary>> {
        let (versions, _) = self.read_versions().await?;
        Ok(versions.newest(which).into_iter().cloned().collect())
    }
}
