//! The files that show summaries: primers, the cascade files, the upload package.
//!
//! - The files are views; the summaries are stored elsewhere. A missing file is written again.
//! - A file that the user changed becomes the next version of its summary.
//! - A file whose time is over moves to the archive. No file is deleted.
//! - A file or cascade entry that icecore did not write stays unchanged. It becomes a version of
//!   its summary (`made_by: file`), and only its owner can replace it, by accepting a draft in
//!   review.

use std::collections::{BTreeMap, BTreeSet};

use icecore_domain::calendar::{Days, Week};
use icecore_domain::cascade::plan::PlanningInput;
use icecore_domain::cascade::retain;
use icecore_domain::event::Origin;
use icecore_domain::forget::{self, FORGOTTEN_MARK};
use icecore_domain::hash::Hash;
use icecore_domain::layout::{self, DocPath};
use icecore_domain::packs::states;
use icecore_domain::record::{self, Record, RecordKind, Role};
use icecore_domain::sanitize;
use icecore_domain::summary::{
    self, Importance, Period, Summary, SummaryAuthor, SummaryFileState, SummaryQuery, Tier,
};
use icecore_store::{ContentVersion, Error as StoreError, ErrorKind as StoreErrorKind};
use jiff::ToSpan;
use jiff::civil::Date;
use serde::Serialize;

use crate::capture::STATES_CONVERSATION;
use crate::rollup::RollupReport;
use crate::{Memory, Result};

/// What a run did with the view files.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize)]
pub struct ViewFilesReport {
    pub written: usize,
    /// Moved to the archive.
    pub archived: usize,
    /// Written again because they were missing or unreadable.
    pub restored: usize,
    /// Written or changed by a user or another program, and adopted as new versions.
    pub adopted: Vec<Period>,
    /// Saved by a user during the run, and left for the next run.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub left: Vec<String>,
}

/// The folders of recent primers.
const PRIMER_FOLDERS: &[&str] =
    &["primers/daily", "primers/weekly", "primers/monthly", "primers/yearly"];
/// The end of the summary log that is searched for files which a run did not finish.
const TAIL_BYTES: u64 = 256 * 1024;

fn doc_path(text: &str) -> Result<DocPath> {
    Ok(text.parse().map_err(StoreError::from)?)
}

/// The period of a primer's file.
fn period_of_file(path: &DocPath) -> Option<Period> {
    path.name().strip_suffix(".md")?.parse().ok()
}

impl Memory {
    fn view_path(&self, period: Period, importance: Importance) -> DocPath {
        retain::summary_path(
            period,
            importance,
            self.now().day(),
            self.policy.retention.primer_retention(),
        )
    }

    /// Writes the files of new versions.
    pub(crate) async fn write_views(
        &self,
        summaries: &[Summary],
        report: &mut RollupReport,
    ) -> Result<()> {
        let mut paths = Vec::new();
        for summary in summaries {
            let path = self.view_path(summary.period, summary.importance);
            if self.write_view(&path, summary, report).await? {
                report.files.written += 1;
                paths.push((path, summary.to_markdown().into_bytes()));
            }
        }
        self.mark_own_writes_seen(&paths).await
    }

    /// Writes a view and returns whether it did. A file that the user changed since the last run
    /// stays for the next run, which adopts it. A file that icecore did not write stays too.
    async fn write_view(
        &self,
        place: &DocPath,
        summary: &Summary,
        report: &mut RollupReport,
    ) -> Result<bool> {
        let text = summary.to_markdown();
        let known = self.store.document(place).await?;
        let stays = match known.as_deref().filter(|bytes| *bytes != text.as_bytes()) {
            Some(bytes) => match summary::classify_summary_file(&String::from_utf8_lossy(bytes)) {
                SummaryFileState::Edited { .. } => true,
                // Only its owner can replace it, by accepting a draft: then there is a version
                // after the file's own.
                SummaryFileState::Foreign { .. } => {
                    let is_approved = summary.version > 1 && summary.maker != SummaryAuthor::File;
                    !is_approved
                        || !self
                            .store
                            .changed_since_seen(std::slice::from_ref(place))
                            .await?
                            .is_empty()
                }
                SummaryFileState::Ours | SummaryFileState::Broken => false,
            },
            None => false,
        };
        if stays {
            report.files.left.push(place.to_string());
            return Ok(false);
        }
        self.replace_view(place, &text, ContentVersion::of(known.as_deref()), report).await
    }

    /// Replaces a file in the version that was read; false if it was saved meanwhile.
    async fn replace_view(
        &self,
        place: &DocPath,
        text: &str,
        from: ContentVersion,
        report: &mut RollupReport,
    ) -> Result<bool> {
        match self.store.compare_and_swap(place, text.as_bytes(), from).await {
            Err(StoreError { kind: StoreErrorKind::Conflict, .. }) => {
                report.files.left.push(place.to_string());
                Ok(false)
            }
            other => Ok(other.map(|()| true)?),
        }
    }

    pub(crate) async fn recent_primers(&self) -> Result<Vec<DocPath>> {
        let mut files = Vec::new();
        for folder in PRIMER_FOLDERS {
            files.extend(
                self.store
                    .documents(folder)
                    .await?
                    .into_iter()
                    .filter(|path| period_of_file(path).is_some()),
            );
        }
        Ok(files)
    }

    /// The newest version of a summary.
    pub async fn find_newest_summary(&self, period: Period) -> Result<Option<Summary>> {
        let days = Days { first: period.days().first, last: period.days().first };
        let found =
            self.store.summaries(&SummaryQuery::for_tier_within(period.tier(), days)).await?;
        Ok(found.into_iter().find(|summary| summary.period == period))
    }

    /// Finishes what a crashed run left, and adopts the user's changes.
    pub(crate) async fn repair_views(&self, report: &mut RollupReport) -> Result<()> {
        // Each file is written right after its summary, so only the newest summaries can lack their
        // file.
        let (tail, _) = self.store.read_tail(&doc_path(layout::SUMMARIES)?, TAIL_BYTES).await?;
        let tail: BTreeMap<Period, Summary> = tail
            .split(|&byte| byte == b'\n')
            .filter_map(|line| Summary::parse_line(line).ok())
            .map(|summary| (summary.period, summary))
            .collect();
        let mut places: BTreeSet<DocPath> = self.recent_primers().await?.into_iter().collect();
        for summary in tail.values() {
            let place = self.view_path(summary.period, summary.importance);
            // A file that waits for the archive is still in its old place.
            if !places.contains(&summary.period.path())
                && self.store.document(&place).await?.is_none()
                && self
                    .replace_view(&place, &summary.to_markdown(), ContentVersion::ABSENT, report)
                    .await?
            {
                report.files.restored += 1;
            }
            places.insert(place);
        }
        let places: Vec<DocPath> = places.into_iter().collect();
        let unseen = self.store.changed_since_seen(&places).await?;
        // In the version that was read: a later change is found by the next run.
        let (mut seen, mut own) = (Vec::new(), Vec::new());
        for (place, stamp) in unseen {
            let known = self.store.document(&place).await?;
            let text = known.as_deref().map(String::from_utf8_lossy).unwrap_or_default();
            let from = ContentVersion::of(known.as_deref());
            let period = period_of_file(&place);
            let newest = match period {
                Some(period) => self.find_newest_summary(period).await?,
                None => None,
            };
            let view = match (summary::classify_summary_file(&text), newest) {
                (_, Some(newest)) if text == newest.to_markdown() => {
                    seen.push((place, stamp));
                    continue;
                }
                (SummaryFileState::Ours | SummaryFileState::Broken, Some(newest)) => {
                    let view = newest.to_markdown();
                    let is_written = self.replace_view(&place, &view, from, report).await?;
                    report.files.restored += usize::from(is_written);
                    is_written.then_some(view)
                }
                (SummaryFileState::Edited { headline, body }, Some(newest)) => {
                    self.adopt_edit(newest, &headline, &body, &place, from, report).await?
                }
                (SummaryFileState::Foreign { headline, body }, newest) => {
                    if let Some(period) = period.filter(|period| place == period.path()) {
                        self.adopt_foreign_text(
                            period,
                            newest,
                            &headline,
                            &body,
                            &mut report.files,
                        )
                        .await?;
                    }
                    seen.push((place, stamp));
                    continue;
                }
                (_, None) => {
                    seen.push((place, stamp));
                    continue;
                }
            };
            own.extend(view.map(|view| (place, view.into_bytes())));
        }
        self.store.mark_seen(&seen).await?;
        self.mark_own_writes_seen(&own).await
    }

    /// Adopts the user's text as the next version, and returns the new content of the file; `None`
    /// if it was saved again meanwhile.
    async fn adopt_edit(
        &self,
        newest: Summary,
        headline: &str,
        body: &str,
        place: &DocPath,
        from: ContentVersion,
        report: &mut RollupReport,
    ) -> Result<Option<String>> {
        let own = Summary {
            version: newest.version + 1,
            headline: sanitize::clean(&self.filter_without_report(headline))
                .text
                .split_whitespace()
                .collect::<Vec<_>>()
                .join(" "),
            body: sanitize::clean(&self.filter_without_report(body)).text,
            recorded: self.now(),
            maker: SummaryAuthor::Hand,
            provisional: false,
            left_out: Vec::new(),
            cost: Default::default(),
            ..newest
        };
        self.store.add_summaries(std::slice::from_ref(&own), None).await?;
        let view = own.to_markdown();
        let is_written = self.replace_view(place, &view, from, report).await?;
        report.files.adopted.push(own.period);
        Ok(is_written.then_some(view))
    }

    /// Adopts text that icecore did not write as a version of its summary, without a change to the
    /// file. Returns the version, or `None` if the newest one has the same text.
    async fn adopt_foreign_text(
        &self,
        period: Period,
        newest: Option<Summary>,
        headline: &str,
        body: &str,
        files: &mut ViewFilesReport,
    ) -> Result<Option<Summary>> {
        let headline =
            self.filter_without_report(headline).split_whitespace().collect::<Vec<_>>().join(" ");
        let body = self.filter_without_report(body);
        if newest.as_ref().is_some_and(|newest| {
            newest.maker == SummaryAuthor::File
                && newest.headline == headline
                && newest.body == body
        }) {
            return Ok(None);
        }
        let now = self.now();
        let days = period.days();
        let start = self.zone.moment(self.zone.day_start(days.first));
        let end = days
            .last
            .checked_add(1.day())
            .map_or(start, |next| self.zone.moment(self.zone.day_start(next)));
        let base = newest.unwrap_or(Summary {
            period,
            version: 0,
            session: None,
            start,
            end,
            headline: String::new(),
            body: String::new(),
            messages: 0,
            states: 0,
            recorded: now,
            source: Hash::of(format!("{headline}\0{body}").as_bytes()),
            log: None,
            sources: Vec::new(),
            maker: SummaryAuthor::File,
            provisional: false,
            importance: Importance::Ordinary,
            left_out: Vec::new(),
            cost: Default::default(),
            similar: None,
        });
        let version = Summary {
            version: base.version + 1,
            headline,
            body,
            recorded: now,
            maker: SummaryAuthor::File,
            provisional: false,
            left_out: Vec::new(),
            cost: Default::default(),
            similar: None,
            ..base
        };
        self.store.add_summaries(std::slice::from_ref(&version), None).await?;
        files.adopted.push(period);
        Ok(Some(version))
    }

    /// Archives old files, restores missing ones, and updates the cascade files and the upload
    /// package.
    pub(crate) async fn refresh_views(
        &self,
        known: &PlanningInput,
        report: &mut RollupReport,
    ) -> Result<()> {
        let today = known.now.day();
        let flagged = self.list_flagged_periods().await?;
        let retention = self.policy.retention.primer_retention();
        let importance = |period: Period| match period {
            Period::Session { day, .. } => {
                let own =
                    known.heads.get(period).map_or(Importance::Ordinary, |head| head.importance);
                known.heads.get(Period::Day(day)).map_or(own, |head| head.importance.max(own))
            }
            _ => known.heads.get(period).map_or(Importance::Ordinary, |head| head.importance),
        };
        let mut there = BTreeSet::new();
        for file in self.recent_primers().await? {
            let Some(period) =
                period_of_file(&file).filter(|period| known.heads.get(*period).is_some())
            else {
                continue;
            };
            there.insert(period);
            let place = retain::summary_path(period, importance(period), today, retention);
            // The sources of a refused draft stay where they are.
            let above = match period.tier() {
                Tier::Session | Tier::Day => Period::covering(Tier::Week, period.days().first),
                Tier::Week => Period::covering(Tier::Month, period.days().first),
                Tier::Month | Tier::Year => None,
            };
            if place == file || above.is_some_and(|above| flagged.contains(&above)) {
                continue;
            }
            let Some(bytes) = self.store.document(&file).await? else { continue };
            match summary::classify_summary_file(&String::from_utf8_lossy(&bytes)) {
                // Adopt the user's text first.
                SummaryFileState::Edited { .. } => {
                    report.files.left.push(file.to_string());
                    continue;
                }
                // A file that icecore did not write is not moved.
                SummaryFileState::Foreign { .. } => continue,
                SummaryFileState::Ours | SummaryFileState::Broken => {}
            }
            if let Some(newest) = self.find_newest_summary(period).await?
                && self.write_view(&place, &newest, report).await?
            {
                match self.store.remove_unchanged(&file, ContentVersion::of(Some(&bytes))).await {
                    Err(StoreError { kind: StoreErrorKind::Conflict, .. }) => {
                        report.files.left.push(file.to_string())
                    }
                    other => {
                        other?;
                        report.files.archived += 1;
                    }
                }
            }
        }
        let oldest = today
            .checked_sub(i32::from(retention.important_days.max(retention.daily_days)).days())
            .unwrap_or(Date::MIN);
        let gone: Vec<Period> = known
            .heads
            .all()
            .map(|head| head.period)
            .filter(|period| period.days().last >= oldest || period.tier() >= Tier::Week)
            .filter(|&period| {
                !there.contains(&period)
                    && retain::summary_path(period, importance(period), today, retention)
                        == period.path()
            })
            .collect();
        let mut restored = Vec::new();
        for period in gone {
            if let Some(newest) = self.find_newest_summary(period).await?
                && self.write_view(&period.path(), &newest, report).await?
            {
                report.files.restored += 1;
                restored.push((period.path(), newest.to_markdown().into_bytes()));
            }
        }
        self.mark_own_writes_seen(&restored).await?;
        self.refresh_cascade_files(known, report).await?;
        self.refresh_upload_package(report).await
    }

    /// Writes a view if its text is new.
    async fn refresh_view(
        &self,
        place: &DocPath,
        text: &str,
        report: &mut RollupReport,
    ) -> Result<()> {
        let so_far = self.store.document(place).await?;
        if so_far.as_deref() != Some(text.as_bytes()) && !(so_far.is_none() && text.is_empty()) {
            let is_written = self
                .replace_view(place, text, ContentVersion::of(so_far.as_deref()), report)
                .await?;
            report.files.written += usize::from(is_written);
        }
        Ok(())
    }

    /// Updates the cascade files (K3).
    async fn refresh_cascade_files(
        &self,
        known: &PlanningInput,
        report: &mut RollupReport,
    ) -> Result<()> {
        let today = known.now.day();
        let span = self.policy.retention.states_span();
        let memories = self.memory_file_names().await?;
        self.remove_summarized_states(known, &memories, report).await?;
        let months: BTreeSet<icecore_domain::calendar::Month> = known
            .heads
            .all()
            .filter_map(
                |head| if let Period::Month(month) = head.period { Some(month) } else { None },
            )
            .collect();
        // Days that no month in the file of its year covers.
        let told = |day: Date| {
            let month = Week::containing(day).month();
            day < today.checked_sub(i32::from(span.days).days()).unwrap_or(day)
                && months.contains(&month)
                && states::enters_year_file(month, today, span)
        };
        let first = known
            .heads
            .all()
            .filter_map(|head| if let Period::Day(day) = head.period { Some(day) } else { None })
            .find(|&day| !told(day));
        let days = match first {
            Some(first) => {
                self.store
                    .summaries(&SummaryQuery::for_tier_within(
                        Tier::Day,
                        Days { first, last: today },
                    ))
                    .await?
            }
            None => Vec::new(),
        };
        let rendered = states::render_thirty_days(today, span, &days, &months, &memories);
        self.refresh_cascade_file(&doc_path(layout::LAST_MONTH)?, &rendered, &days, report).await?;
        let pressed: BTreeSet<i16> = report
            .summaries
            .iter()
            .filter_map(|node| {
                if let Period::Month(month) = node.period {
                    Some(month.first().year())
                } else {
                    None
                }
            })
            .collect();
        let mut years: BTreeMap<i16, DocPath> = BTreeMap::new();
        for year in months.iter().map(|month| month.first().year()) {
            years.insert(year, doc_path(&format!("memory/summaries/{year:04}.md"))?);
        }
        // Entries of other programs.
        let files = self.store.documents("memory/summaries").await?;
        let foreign = files
            .into_iter()
            .filter_map(|file| Some((file.name().strip_suffix(".md")?.parse().ok()?, file)));
        foreign.for_each(|(year, file)| _ = years.entry(year).or_insert(file));
        let places: Vec<DocPath> = years.values().cloned().collect();
        let unseen = self.store.changed_since_seen(&places).await?;
        for (year, place) in years {
            let recent = year >= today.year() - 1 || pressed.contains(&year);
            let is_seen = unseen.iter().all(|(file, _)| *file != place);
            if !recent && is_seen && self.store.document(&place).await?.is_some() {
                continue;
            }
            let days = Period::Year(year).days();
            let months =
                self.store.summaries(&SummaryQuery::for_tier_within(Tier::Month, days)).await?;
            self.refresh_cascade_file(
                &place,
                &states::render_year(today, span, &months, &memories),
                &months,
                report,
            )
            .await?;
        }
        Ok(self.store.mark_seen(&unseen).await?)
    }

    /// Writes a cascade file rendered from these summaries. Entries that icecore did not write stay
    /// unchanged, and each is a version of the summary of its day or month.
    async fn refresh_cascade_file(
        &self,
        place: &DocPath,
        rendered: &str,
        summaries: &[Summary],
        report: &mut RollupReport,
    ) -> Result<()> {
        let Some(bytes) = self.store.document(place).await? else {
            return self.refresh_view(place, rendered, report).await;
        };
        let existing = String::from_utf8_lossy(&bytes).into_owned();
        let mut foreign: BTreeSet<Period> = summaries
            .iter()
            .filter(|summary| summary.maker == SummaryAuthor::File)
            .map(|summary| summary.period)
            .collect();
        foreign.extend(
            self.foreign_entries(&existing, rendered, report)
                .await?
                .into_iter()
                .map(|(period, _)| period),
        );
        // A summary adopted from another file has no entry here yet.
        foreign.retain(|period| {
            states::parse_blocks(&existing).1.iter().any(|block| block.period == *period)
        });
        let text = states::keep_foreign(&existing, rendered, &foreign);
        if text != existing
            && self.replace_view(place, &text, ContentVersion::of(Some(&bytes)), report).await?
        {
            report.files.written += 1;
        }
        Ok(())
    }

    /// The entries of a cascade file that icecore did not write: period and text. New ones become
    /// versions.
    async fn foreign_entries(
        &self,
        existing: &str,
        rendered: &str,
        report: &mut RollupReport,
    ) -> Result<BTreeSet<(Period, String)>> {
        let ours: BTreeSet<(Period, String)> = states::parse_blocks(rendered)
            .1
            .into_iter()
            .map(|block| (block.period, block.one_line_text()))
            .collect();
        let mut foreign = BTreeSet::new();
        let mut versions: Option<Vec<Summary>> = None;
        let blocks = states::parse_blocks(existing).1;
        for block in
            blocks.iter().filter(|block| !ours.contains(&(block.period, block.one_line_text())))
        {
            let newest = self.find_newest_summary(block.period).await?;
            let says = |version: &Summary, block: &states::PeriodBlock| {
                let said = self.filter_without_report(&block.one_line_text());
                version.period == block.period
                    && version.headline.split_whitespace().eq(said.split_whitespace())
            };
            if let Some(newest) = newest.as_ref().filter(|newest| says(newest, block)) {
                if newest.maker == SummaryAuthor::File {
                    foreign.insert((block.period, block.one_line_text()));
                }
                continue;
            }
            if versions.is_none() {
                versions = Some(self.summary_versions().await?);
            }
            let of_period =
                || versions.iter().flatten().filter(|version| version.period == block.period);
            // Text of an older version is icecore's own too.
            if of_period()
                .any(|version| version.maker != SummaryAuthor::File && says(version, block))
            {
                continue;
            }
            // So is text of a version that is being forgotten.
            let is_erased = of_period().any(|version| {
                version.maker != SummaryAuthor::File && version.headline == FORGOTTEN_MARK
            });
            if is_erased
                && (self.tombstones().unfinished_tombstones().next().is_some()
                    || !self.list_unapplied_tombstones().await?.is_empty())
            {
                continue;
            }
            foreign.insert((block.period, block.one_line_text()));
            // With several entries for one period, each becomes a version once, and the newest
            // version is one of them.
            let is_newest_here = |newest: &Summary| {
                newest.maker != SummaryAuthor::File
                    || blocks.iter().any(|other| says(newest, other))
            };
            if of_period().any(|version| says(version, block))
                && newest.as_ref().is_some_and(is_newest_here)
            {
                continue;
            }
            if let Some(version) = self
                .adopt_foreign_text(
                    block.period,
                    newest,
                    &block.one_line_text(),
                    "",
                    &mut report.files,
                )
                .await?
            {
                self.write_views(&[version], report).await?;
            }
        }
        Ok(foreign)
    }

    /// The entries of all cascade files that icecore did not write.
    pub(crate) async fn foreign_cascade_entries(&self) -> Result<BTreeSet<(Period, String)>> {
        let mut foreign = BTreeSet::new();
        for place in self.store.documents("memory/summaries").await? {
            if let Some(bytes) = self
                .store
                .document(&place)
                .await?
                .filter(|_| forget::is_cascade_file(place.as_str()))
            {
                foreign.extend(
                    self.foreign_entries(
                        &String::from_utf8_lossy(&bytes),
                        "",
                        &mut RollupReport::default(),
                    )
                    .await?,
                );
            }
        }
        Ok(foreign)
    }

    /// Every version of every summary.
    pub(crate) async fn summary_versions(&self) -> Result<Vec<Summary>> {
        let lines = self.store.document(&doc_path(layout::SUMMARIES)?).await?.unwrap_or_default();
        Ok(lines
            .split(|&byte| byte == b'\n')
            .filter_map(|line| Summary::parse_line(line.trim_ascii()).ok())
            .collect())
    }

    /// Removes the states of summarized days from `24hr.md`. Text that icecore did not write is
    /// saved as a snapshot first.
    async fn remove_summarized_states(
        &self,
        known: &PlanningInput,
        memories: &[String],
        report: &mut RollupReport,
    ) -> Result<()> {
        let today = known.now.day();
        let span = self.policy.retention.states_span();
        let place = doc_path(layout::LAST_DAY)?;
        let Some(bytes) = self.store.document(&place).await? else { return Ok(()) };
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let (before, entries) = states::parse_entries(&text);
        // Each names the memories that were derived from it.
        let named: Vec<states::StateEntry> =
            entries.iter().cloned().map(|entry| entry.with_memories(memories)).collect();
        let renamed = named != entries;
        let entries = named;
        let old = |day: Date| states::has_left_24hr(day, today, span, true);
        let mut foreign: BTreeMap<Date, Vec<Record>> = BTreeMap::new();
        for entry in entries.iter().filter(|entry| old(entry.day)) {
            let kept = self.store.records(Days { first: entry.day, last: entry.day }).await?;
            if kept
                .iter()
                .any(|record| record.kind == RecordKind::State && record.text.trim() == entry.text)
            {
                continue;
            }
            let ts = self
                .zone
                .moment(self.zone.instant_at(entry.day, entry.clock.parse().unwrap_or_default()));
            let passed = self.filter_without_report(&entry.text);
            foreign.entry(entry.day).or_default().push(Record {
                ts,
                conversation: STATES_CONVERSATION.into(),
                session: None,
                id: record::derived_id(
                    None,
                    Role::Assistant,
                    entry.title.as_deref(),
                    &passed,
                    Some(ts),
                    0,
                ),
                role: Role::Assistant,
                name: None,
                other_speaker: None,
                kind: RecordKind::State,
                title: entry.title.clone(),
                text: passed,
                parts: None,
                origin: Origin::File,
                captured: known.now,
                extra: Vec::new(),
                withdrawn: false,
            });
        }
        // Their days are summarized again, with them, before they are removed.
        let late: BTreeSet<Date> = foreign.keys().copied().collect();
        for records in foreign.into_values() {
            self.store.add_records(records).await?;
        }
        let stays = |day: Date| {
            let pressed = known.heads.get(Period::Day(day)).is_some() && !late.contains(&day);
            !states::has_left_24hr(day, today, span, pressed)
        };
        let mut left = if before.is_empty() { String::new() } else { format!("{before}\n") };
        for entry in entries.iter().filter(|entry| stays(entry.day)) {
            left.push_str(&states::render_entry(entry));
        }
        if !renamed && entries.iter().all(|entry| stays(entry.day)) {
            return Ok(());
        }
        match self
            .store
            .compare_and_swap(&place, left.as_bytes(), ContentVersion::of(Some(&bytes)))
            .await
        {
            // A state was saved meanwhile; the next run removes the old ones.
            Err(StoreError { kind: StoreErrorKind::Conflict, .. }) => {}
            other => {
                other?;
                report.files.written += 1;
            }
        }
        Ok(())
    }

    /// Writes the upload package to its file, unless it is of the past.
    pub async fn write_upload_package(&self, pack: &icecore_domain::packs::Pack) -> Result<()> {
        if self.is_looking_back().await? {
            return Ok(());
        }
        self.refresh_view(&doc_path(layout::UPLOAD)?, &pack.text, &mut RollupReport::default())
            .await
    }

    /// Updates the upload package.
    async fn refresh_upload_package(&self, report: &mut RollupReport) -> Result<()> {
        if self.is_looking_back().await? {
            return Ok(());
        }
        let pack = self.assemble_upload(None, None).await?;
        self.refresh_view(&doc_path(layout::UPLOAD)?, &pack.text, report).await
    }
}
