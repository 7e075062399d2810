//! Summaries in a vault: one append-only file; the index knows the newest version of each.

use async_trait::async_trait;
use icecore_domain::layout::{self, DocPath};
use icecore_domain::summary::{Summary, SummaryHead, SummaryQuery};

use super::{IndexHandle, Vault};
use crate::{Error, Position, Result, SummaryStore};

#[async_trait]
impl SummaryStore for Vault {
    async fn add_summaries(
        &self,
        summaries: &[Summary],
        after: Option<Position>,
    ) -> Result<Position> {
        let held = self.lock_and_repair()?;
        let path = Self::summaries_path()?;
        if let Some(after) = after
            && self.summaries_position()? != after
        {
            return Err(Error::conflict(path.to_string()));
        }
        self.repair_tail(&held, &path)?;
        let text: String = summaries.iter().map(Summary::to_line).collect();
        let (start, look) = self.fs.append(&held, &path, text.as_bytes())?;
        if let (Some(look), IndexHandle::Open(index)) = (look, &mut *self.index_handle()) {
            let _ = index.add_own_summaries(&path, start, summaries, look);
        }
        self.summaries_position()
    }

    async fn summary_heads(&self, which: &SummaryQuery) -> Result<(Vec<SummaryHead>, Position)> {
        // The position is read first: what arrives meanwhile makes a write against it fail, never
        // pass.
        let position = self.summaries_position()?;
        if self.refresh_files(&[Self::summaries_path()?])?
            && let Some(places) = self.query_index(|index| index.summary_locations(which))?
        {
            return Ok((places.into_iter().map(|place| place.head).collect(), position));
        }
        Ok((self.read_summary_file(which)?.iter().map(Summary::head).collect(), position))
    }

    async fn summaries(&self, which: &SummaryQuery) -> Result<Vec<Summary>> {
        let path = Self::summaries_path()?;
        if self.refresh_files(std::slice::from_ref(&path))?
            && let Some(places) = self.query_index(|index| index.summary_locations(which))?
        {
            let pieces: Vec<(u64, usize)> =
                places.iter().map(|place| (place.offset, place.length)).collect();
            let read: Option<Vec<Summary>> = match pieces.is_empty() {
                true => Some(Vec::new()),
                false => self
                    .fs
                    .read_pieces(&path, &pieces)?
                    .iter()
                    .map(|line| Summary::parse_line(line).ok())
                    .collect(),
            };
            // If a line moved, another process changed the file; read the file.
            if let Some(found) = read
                && found.iter().zip(&places).all(|(found, place)| found.period == place.head.period)
            {
                return Ok(found);
            }
        }
        self.read_summary_file(which)
    }
}

impl Vault {
    pub(super) fn summaries_path() -> Result<DocPath> {
        Ok(layout::SUMMARIES.parse()?)
    }

    pub(super) fn summaries_position(&self) -> Result<Position> {
        Ok(Position(self.fs.stat(&Self::summaries_path()?)?.map_or(0, |look| look.as_number())))
    }

    pub(super) fn read_summary_file(&self, which: &SummaryQuery) -> Result<Vec<Summary>> {
        let text = self.fs.read(&Self::summaries_path()?)?.unwrap_or_default();
        let all = text
            .split(|&byte| byte == b'\n')
            .filter_map(|line| Summary::parse_line(line.trim_ascii()).ok());
        Ok(which.select_newest(all, |summary| (summary.period, summary.recorded)))
    }
}
