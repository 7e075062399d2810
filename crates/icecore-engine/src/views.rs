//! The files that show what was pressed: primers, the cascade files, the upload package.
//!
//! They are views; the summaries are kept elsewhere. A file that is gone is written again. A file that a person has changed
//! becomes the next version of its summary. When its time is over a file is put into the archive, never away.

use std::collections::{BTreeMap, BTreeSet};

use icecore_domain::calendar::{Days, Week};
use icecore_domain::cascade::plan::Known;
use icecore_domain::cascade::retain;
use icecore_domain::event::Origin;
use icecore_domain::layout::{self, DocPath};
use icecore_domain::packs::states;
use icecore_domain::plain;
use icecore_domain::record::{self, Captured, Record, Role};
use icecore_domain::summary::{self, Importance, Maker, Period, ReadView, Summary, SummaryQuery, Tier};
use icecore_store::Error as StoreError;
use jiff::ToSpan;
use jiff::civil::Date;
use serde::Serialize;

use crate::capture::STATES;
use crate::rollup::Rolled;
use crate::{Memory, Result};

/// What happened to the files of a run.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize)]
pub struct Files {
    /// Written.
    pub written: usize,
    /// Put into the archive.
    pub archived: usize,
    /// Written again because they were gone or unreadable.
    pub restored: usize,
    /// Changed by a person, and taken over as new versions.
    pub adopted: Vec<Period>,
}

/// The folders where people look first.
const FRESH: &[&str] = &["primers/daily", "primers/weekly", "primers/monthly", "primers/yearly"];
/// How much of the newest summaries is looked at for files that a run could not finish.
const TAIL_BYTES: u64 = 256 * 1024;

fn path(text: &str) -> Result<DocPath> {
    Ok(text.parse().map_err(StoreError::Path)?)
}

/// The period that a primer's file shows.
fn shown_by(path: &DocPath) -> Option<Period> {
    path.name().strip_suffix(".md")?.parse().ok()
}

impl Memory {
    fn place(&self, period: Period, importance: Importance) -> DocPath {
        retain::place(period, importance, self.now().day(), self.policy.retention.primers())
    }

    /// Writes the files of versions that were just pressed.
    pub(crate) async fn write_views(&self, summaries: &[Summary], rolled: &mut Rolled) -> Result<()> {
        let mut paths = Vec::new();
        for summary in summaries {
            let path = self.place(summary.period, summary.importance);
            self.store.put(&path, summary.view().as_bytes()).await?;
            rolled.files.written += 1;
            paths.push(path);
        }
        self.seen(&paths).await
    }

    async fn seen(&self, paths: &[DocPath]) -> Result<()> {
        let stamps = self.store.unseen(paths).await?;
        Ok(self.store.see(&stamps).await?)
    }

    pub(crate) async fn fresh_files(&self) -> Result<Vec<DocPath>> {
        let mut files = Vec::new();
        for folder in FRESH {
            files.extend(self.store.documents(folder).await?.into_iter().filter(|path| shown_by(path).is_some()));
        }
        Ok(files)
    }

    /// The newest version of a summary.
    pub async fn newest_summary(&self, period: Period) -> Result<Option<Summary>> {
        let days = Days { first: period.days().first, last: period.days().first };
        let found = self.store.summaries(&SummaryQuery::within(period.tier(), days)).await?;
        Ok(found.into_iter().find(|summary| summary.period == period))
    }

    /// Finishes what a run that died left undone, and takes over what people changed.
    pub(crate) async fn finish_views(&self, rolled: &mut Rolled) -> Result<()> {
        // Each file is written right after its summary, so only the newest summaries can lack theirs.
        let (tail, _) = self.store.tail(&path(layout::SUMMARIES)?, TAIL_BYTES).await?;
        let tail: BTreeMap<Period, Summary> = tail
            .split(|&byte| byte == b'\n')
            .filter_map(|line| Summary::read(line).ok())
            .map(|summary| (summary.period, summary))
            .collect();
        let mut places: BTreeSet<DocPath> = self.fresh_files().await?.into_iter().collect();
        for summary in tail.values() {
            let place = self.place(summary.period, summary.importance);
            // One that waits to be put away is still where it was.
            if !places.contains(&summary.period.path()) && self.store.document(&place).await?.is_none() {
                self.store.put(&place, summary.view().as_bytes()).await?;
                rolled.files.restored += 1;
            }
            places.insert(place);
        }
        let places: Vec<DocPath> = places.into_iter().collect();
        let unseen = self.store.unseen(&places).await?;
        for (place, _) in &unseen {
            let Some(period) = shown_by(place) else { continue };
            let Some(newest) = self.newest_summary(period).await? else { continue };
            let text = String::from_utf8_lossy(&self.store.document(place).await?.unwrap_or_default()).into_owned();
            if text == newest.view() {
                continue;
            }
            match summary::read_file(&text) {
                ReadView::Ours | ReadView::Broken => {
                    self.store.put(place, newest.view().as_bytes()).await?;
                    rolled.files.restored += 1;
                }
                ReadView::Edited { headline, body } => self.adopt(newest, &headline, &body, place, rolled).await?,
            }
        }
        self.seen(&unseen.into_iter().map(|(path, _)| path).collect::<Vec<_>>()).await
    }

    /// Takes a person's words over as the next version.
    async fn adopt(&self, newest: Summary, headline: &str, body: &str, place: &DocPath, rolled: &mut Rolled) -> Result<()> {
        let own = Summary {
            version: newest.version + 1,
            headline: plain::clean(&self.gate_text(headline)).text.split_whitespace().collect::<Vec<_>>().join(" "),
            body: plain::clean(&self.gate_text(body)).text,
            recorded: self.now(),
            maker: Maker::Hand,
            provisional: false,
            left_out: Vec::new(),
            cost: Default::default(),
            ..newest
        };
        self.store.add_summaries(std::slice::from_ref(&own), None).await?;
        self.store.put(place, own.view().as_bytes()).await?;
        rolled.files.adopted.push(own.period);
        Ok(())
    }

    /// Puts away what is old, writes again what is gone, and brings the cascade files and the package up to date.
    pub(crate) async fn tend_views(&self, known: &Known, rolled: &mut Rolled) -> Result<()> {
        let today = known.now.day();
        let flagged = self.flagged().await?;
        let retention = self.policy.retention.primers();
        let importance = |period: Period| match period {
            Period::Session { day, .. } => {
                let own = known.heads.get(period).map_or(Importance::Ordinary, |head| head.importance);
                known.heads.get(Period::Day(day)).map_or(own, |head| head.importance.max(own))
            }
            _ => known.heads.get(period).map_or(Importance::Ordinary, |head| head.importance),
        };
        let mut there = BTreeSet::new();
        for file in self.fresh_files().await? {
            let Some(period) = shown_by(&file).filter(|period| known.heads.get(*period).is_some()) else { continue };
            there.insert(period);
            let place = retain::place(period, importance(period), today, retention);
            // What a refused draft was to be made of stays where it is.
            let above = match period.tier() {
                Tier::Session | Tier::Day => Period::covering(Tier::Week, period.days().first),
                Tier::Week => Period::covering(Tier::Month, period.days().first),
                Tier::Month | Tier::Year => None,
            };
            if place == file || above.is_some_and(|above| flagged.contains(&above)) {
                continue;
            }
            if let Some(newest) = self.newest_summary(period).await? {
                self.store.put(&place, newest.view().as_bytes()).await?;
                self.store.remove(&file).await?;
                rolled.files.archived += 1;
            }
        }
        let oldest = today.checked_sub(i32::from(retention.important_days.max(retention.daily_days)).days()).unwrap_or(Date::MIN);
        let gone: Vec<Period> = known
            .heads
            .all()
            .map(|head| head.period)
            .filter(|period| period.days().last >= oldest || period.tier() >= Tier::Week)
            .filter(|&period| !there.contains(&period) && retain::place(period, importance(period), today, retention) == period.path())
            .collect();
        let mut restored = Vec::new();
        for period in gone {
            if let Some(newest) = self.newest_summary(period).await? {
                self.store.put(&period.path(), newest.view().as_bytes()).await?;
                rolled.files.restored += 1;
                restored.push(period.path());
            }
        }
        self.seen(&restored).await?;
        self.tend_states(known, rolled).await?;
        self.tend_upload(rolled).await
    }

    /// Writes a view if it says something new.
    async fn refresh(&self, place: &DocPath, text: &str, rolled: &mut Rolled) -> Result<()> {
        let so_far = self.store.document(place).await?;
        if so_far.as_deref() != Some(text.as_bytes()) && !(so_far.is_none() && text.is_empty()) {
            self.store.put(place, text.as_bytes()).await?;
            rolled.files.written += 1;
        }
        Ok(())
    }

    /// The cascade files (K3).
    async fn tend_states(&self, known: &Known, rolled: &mut Rolled) -> Result<()> {
        let today = known.now.day();
        let span = self.policy.retention.states();
        let memories = self.memory_names().await?;
        self.clear_states(known, &memories, rolled).await?;
        let months: BTreeSet<icecore_domain::calendar::Month> =
            known.heads.all().filter_map(|head| if let Period::Month(month) = head.period { Some(month) } else { None }).collect();
        // Days that no month in the file of its year tells of.
        let told = |day: Date| {
            let month = Week::of(day).month();
            day < today.checked_sub(i32::from(span.days).days()).unwrap_or(day)
                && months.contains(&month)
                && states::enters(month, today, span)
        };
        let first =
            known.heads.all().filter_map(|head| if let Period::Day(day) = head.period { Some(day) } else { None }).find(|&day| !told(day));
        let days = match first {
            Some(first) => self.store.summaries(&SummaryQuery::within(Tier::Day, Days { first, last: today })).await?,
            None => Vec::new(),
        };
        self.refresh(&path(layout::LAST_MONTH)?, &states::thirty_days(today, span, &days, &months, &memories), rolled).await?;
        let pressed: BTreeSet<i16> = rolled
            .pressed
            .iter()
            .filter_map(|node| if let Period::Month(month) = node.period { Some(month.first().year()) } else { None })
            .collect();
        for year in months.iter().map(|month| month.first().year()).collect::<BTreeSet<_>>() {
            let place = path(&format!("memory/summaries/{year:04}.md"))?;
            let recent = year >= today.year() - 1 || pressed.contains(&year);
            if !recent && self.store.document(&place).await?.is_some() {
                continue;
            }
            let days = Period::Year(year).days();
            let months = self.store.summaries(&SummaryQuery::within(Tier::Month, days)).await?;
            self.refresh(&place, &states::year(today, span, &months, &memories), rolled).await?;
        }
        Ok(())
    }

    /// Takes the states of days that have been pressed out of `24hr.md`. What somebody else wrote there is kept as a
    /// snapshot first.
    async fn clear_states(&self, known: &Known, memories: &[String], rolled: &mut Rolled) -> Result<()> {
        let today = known.now.day();
        let span = self.policy.retention.states();
        let place = path(layout::LAST_DAY)?;
        let Some(bytes) = self.store.document(&place).await? else { return Ok(()) };
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let (before, entries) = states::entries(&text);
        // Each names the memories that came of it.
        let named: Vec<states::Entry> = entries.iter().cloned().map(|entry| entry.with_memories(memories)).collect();
        let renamed = named != entries;
        let entries = named;
        let old = |day: Date| states::has_left(day, today, span, true);
        let mut foreign: BTreeMap<Date, Vec<Record>> = BTreeMap::new();
        for entry in entries.iter().filter(|entry| old(entry.day)) {
            let kept = self.store.records(Days { first: entry.day, last: entry.day }).await?;
            if kept.iter().any(|record| record.kind == Captured::State && record.text.trim() == entry.text) {
                continue;
            }
            let ts = self.zone.moment(self.zone.at(entry.day, entry.clock.parse().unwrap_or_default()));
            let passed = self.gate_text(&entry.text);
            foreign.entry(entry.day).or_default().push(Record {
                ts,
                conversation: STATES.into(),
                session: None,
                id: record::made_id(None, Role::Assistant, entry.title.as_deref(), &passed, Some(ts), 0),
                role: Role::Assistant,
                name: None,
                other_speaker: None,
                kind: Captured::State,
                title: entry.title.clone(),
                text: passed,
                parts: None,
                origin: Origin::File,
                captured: known.now,
                extra: Vec::new(),
            });
        }
        // Their days are pressed again with them before they leave.
        let late: BTreeSet<Date> = foreign.keys().copied().collect();
        for records in foreign.into_values() {
            self.store.add_records(records).await?;
        }
        let stays = |day: Date| {
            let pressed = known.heads.get(Period::Day(day)).is_some() && !late.contains(&day);
            !states::has_left(day, today, span, pressed)
        };
        let mut left = if before.is_empty() { String::new() } else { format!("{before}\n") };
        for entry in entries.iter().filter(|entry| stays(entry.day)) {
            left.push_str(&states::entry_text(entry));
        }
        if !renamed && entries.iter().all(|entry| stays(entry.day)) {
            return Ok(());
        }
        match self.store.swap(&place, left.as_bytes(), bytes.len() as u64).await {
            // Somebody saved a state meanwhile; the next run clears.
            Err(StoreError::Moved { .. }) => {}
            other => {
                other?;
                rolled.files.written += 1;
            }
        }
        Ok(())
    }

    /// Puts the upload package where people and programs find it, unless it is of the past.
    pub async fn write_upload(&self, pack: &icecore_domain::packs::Pack) -> Result<()> {
        if self.looks_back().await? {
            return Ok(());
        }
        self.refresh(&path(layout::UPLOAD)?, &pack.text, &mut Rolled::default()).await
    }

    /// The upload package, as of now.
    async fn tend_upload(&self, rolled: &mut Rolled) -> Result<()> {
        if self.looks_back().await? {
            return Ok(());
        }
        let pack = self.pack_upload(None, None).await?;
        self.refresh(&path(layout::UPLOAD)?, &pack.text, rolled).await
    }
}
