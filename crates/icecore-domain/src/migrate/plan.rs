//! The planner: works out the steps file by file, in an order in which a run can stop after any
//! step and be planned again.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use icecore_text::markdown;
use jiff::civil::{Date, Time};

use super::old_file::{self, OldFileKind};
use super::read::{self, StatementSelection};
use super::{
    FileAccount, LEFT_IN_PLACE, MAX_BINARY_BYTES, MAX_COMPLAINTS, MigrationPlan, MigrationStep,
    SourceFile, VaultView, merge,
};
use crate::calendar::{Moment, Zone};
use crate::hash::Hash;
use crate::id::EventId;
use crate::layout::{self, DocPath};
use crate::ledger;
use crate::packs::states;
use crate::record::{self, RecordKind};
use crate::sanitize;
use crate::summary::Summary;

/// Plans the migration of the files of an old folder into the vault. `empty` are its empty folders.
pub fn plan_migration(
    found: &[SourceFile],
    empty: &[String],
    vault: &VaultView<'_>,
    now: Moment,
    zone: &Zone,
) -> MigrationPlan {
    let mut files = classify_files(found);
    files.sort_by(|(one, a), (other, b)| {
        let depth = |path: &str| path.matches('/').count();
        (one, depth(&a.path), &a.path).cmp(&(other, depth(&b.path), &b.path))
    });
    let mut planner = Planner::new(vault, now, zone);
    planner.load_migrated_events(
        files.iter().filter(|(shape, _)| *shape == OldFileKind::Ledger).map(|(_, found)| *found),
    );
    for (shape, found) in &files {
        planner.plan_file(found, shape);
    }
    planner.remove_empty_folders(found, empty);
    planner.finish()
}

/// The kind of each file; topic files are known only from the `MEMORY.md` that lists them.
fn classify_files(found: &[SourceFile]) -> Vec<(OldFileKind, &SourceFile)> {
    let mut topics: HashSet<String> = HashSet::new();
    let mut indices: HashSet<&str> = HashSet::new();
    for index in
        found.iter().filter(|found| old_file::classify(&found.path) == OldFileKind::Curated)
    {
        let folder = index.path.strip_suffix("MEMORY.md").unwrap_or_default();
        let text = String::from_utf8_lossy(&index.bytes);
        let Some(listed) = read::listed_topics(&text) else { continue };
        indices.insert(&index.path);
        topics.extend(listed.iter().map(|name| format!("{folder}{name}")));
        let beside = found.iter().filter(|found| {
            found
                .path
                .strip_prefix(folder)
                .is_some_and(|name| !name.contains('/') && name.ends_with(".md"))
        });
        for other in beside.filter(|other| old_file::classify(&other.path) == OldFileKind::Other) {
            let text = String::from_utf8_lossy(&other.bytes);
            let is_topic = markdown::front_matter(&text).is_some_and(|matter| {
                ["name", "type"]
                    .iter()
                    .any(|name| read::front_matter_field(&matter, name).is_some())
            });
            if is_topic {
                topics.insert(other.path.clone());
            }
        }
    }
    let shape = |found: &SourceFile| match old_file::classify(&found.path) {
        OldFileKind::Curated if indices.contains(found.path.as_str()) => OldFileKind::Index,
        _ if topics.contains(&found.path) => OldFileKind::Topic,
        other => other,
    };
    found.iter().map(|found| (shape(found), found)).collect()
}

/// Whether a path in the vault is free for some bytes.
#[derive(PartialEq, Eq)]
enum Availability {
    Free,
    Same,
    Occupied,
}

pub(super) struct Planner<'a> {
    pub(super) vault: &'a VaultView<'a>,
    pub(super) now: Moment,
    pub(super) zone: &'a Zone,
    pub(super) plan: MigrationPlan,
    complaints_beyond: usize,
    /// The files that this plan creates, by [`Planner::path_key`].
    claimed: HashMap<String, (DocPath, Hash)>,
    /// Logs after the planned steps.
    logs: BTreeMap<Date, Option<Vec<u8>>>,
    /// Saved states after the planned steps: time and text.
    states: BTreeMap<Date, HashSet<(String, String)>>,
    /// Sameness keys of the events this plan adds.
    pub(super) learnt: HashSet<String>,
    /// Lines of older ledgers that this plan has processed, by old id and key.
    pub(super) lines_taken: HashSet<(String, String)>,
    /// Events that earlier runs created from older ledgers.
    pub(super) migrated_events: HashSet<EventId>,
    /// The lines of the vault's summaries.
    summary_lines: Option<HashSet<String>>,
    moved: HashSet<String>,
    hidden: BTreeMap<String, usize>,
}

impl<'a> Planner<'a> {
    fn new(vault: &'a VaultView<'a>, now: Moment, zone: &'a Zone) -> Self {
        Self {
            vault,
            now,
            zone,
            plan: MigrationPlan::default(),
            complaints_beyond: 0,
            claimed: HashMap::new(),
            logs: BTreeMap::new(),
            states: BTreeMap::new(),
            learnt: HashSet::new(),
            lines_taken: HashSet::new(),
            migrated_events: HashSet::new(),
            summary_lines: None,
            moved: HashSet::new(),
            hidden: BTreeMap::new(),
        }
    }

    pub(super) fn add_complaint(&mut self, complaint: String) {
        if self.plan.complaints.len() < MAX_COMPLAINTS {
            self.plan.complaints.push(complaint);
        } else {
            self.complaints_beyond += 1;
        }
    }

    fn finish(mut self) -> MigrationPlan {
        for (name, count) in std::mem::take(&mut self.hidden) {
            self.add_complaint(format!(
                "{}: {count} hidden file{} {LEFT_IN_PLACE}",
                display_name(&name),
                if count == 1 { "" } else { "s" }
            ));
        }
        if self.complaints_beyond > 0 {
            self.plan.complaints.push(format!("{} more like these", self.complaints_beyond));
        }
        self.plan.inventory.sort_by(|one, other| one.path.cmp(&other.path));
        self.plan
    }

    fn plan_file(&mut self, found: &SourceFile, shape: &OldFileKind) {
        let begun = self.plan.steps.len();
        let mut account = FileAccount {
            path: found.path.clone(),
            lines: merge::comparable_lines(&found.bytes).count(),
            bytes: found.bytes.len(),
            stored_in: Vec::new(),
            produced: Vec::new(),
        };
        let (place, why) = if old_file::is_hidden(&found.path) {
            if !self.vault.in_place {
                let part = old_file::strip_system_folder(&found.path)
                    .split('/')
                    .find(|part| part.starts_with('.'))
                    .unwrap_or_default();
                *self.hidden.entry(part.to_owned()).or_default() += 1;
            }
            (None, "hidden; not part of a memory")
        } else if found.bytes.len() > MAX_BINARY_BYTES && is_binary(&found.bytes) {
            self.add_complaint(format!(
                "{}: binary file of {} bytes; {LEFT_IN_PLACE}",
                display_name(&found.path),
                found.bytes.len()
            ));
            (None, "a large binary file")
        } else if self.is_in_place(found, shape) {
            self.plan_in_place(found, shape, &mut account);
            (Some(found.path.clone()), "already in its place")
        } else if self.vault.in_place && *shape == OldFileKind::Other {
            (None, "not part of the vault")
        } else {
            let place = self.migrate_file(found, shape, &mut account);
            if place.is_none() {
                self.add_complaint(format!(
                    "{}: no valid path in the vault; {LEFT_IN_PLACE}",
                    display_name(&found.path)
                ));
            }
            (place.map(|place| place.to_string()), "already migrated")
        };
        account.stored_in.push((place.unwrap_or_else(|| LEFT_IN_PLACE.into()), account.lines));
        account.produced.retain(|(_, count)| *count > 0);
        if self.plan.steps.len() == begun {
            self.plan
                .steps
                .push(MigrationStep::Nothing { from: found.path.clone(), why: why.into() });
        }
        self.plan.inventory.push(account);
    }

    /// Whether the file already is a document of the vault, at its own path.
    pub(super) fn is_in_place(&self, found: &SourceFile, shape: &OldFileKind) -> bool {
        let Some(here) = self.vault.in_place.then(|| found.path.parse::<DocPath>().ok()).flatten()
        else {
            return false;
        };
        match shape {
            OldFileKind::Other => here.is_vault_file(),
            OldFileKind::Topic => here.as_str().starts_with(old_file::MEMORIES),
            _ => shape.vault_path(&found.path).is_some_and(|home| home == here),
        }
    }

    /// Plans the steps for a document of the vault itself.
    fn plan_in_place(
        &mut self,
        found: &SourceFile,
        shape: &OldFileKind,
        account: &mut FileAccount,
    ) {
        match shape {
            OldFileKind::Curated => self.learn_statements(found, StatementSelection::All, account),
            // icecore rewrites these files, so foreign content is copied first.
            OldFileKind::States => {
                let new = self.new_states(found);
                if !new.is_empty() {
                    self.copy_to_archive(found);
                    self.record_states(found, new, account);
                }
            }
            OldFileKind::Days | OldFileKind::Year => {
                let text = String::from_utf8_lossy(&found.bytes);
                if text.lines().any(|line| !self.is_in_summaries(line)) {
                    self.copy_to_archive(found);
                    if *shape == OldFileKind::Days {
                        self.append_day_summaries(found, account);
                    }
                }
            }
            _ => {}
        }
    }

    /// Migrates a file and returns the document that holds all of it.
    fn migrate_file(
        &mut self,
        found: &SourceFile,
        shape: &OldFileKind,
        account: &mut FileAccount,
    ) -> Option<DocPath> {
        let home = shape.vault_path(&found.path);
        match shape {
            OldFileKind::Identity(name) => match self.keep_at(found, home) {
                Some(home) => self.archive_if_moved(found, home),
                None => {
                    let copy = self.archive_file(found)?;
                    self.add_complaint(format!(
                        "{}: differs from the vault's {name}; stored as {copy}",
                        display_name(&found.path)
                    ));
                    Some(copy)
                }
            },
            OldFileKind::Ledger => {
                self.learn_ledger(found, account);
                self.archive_file(found)
            }
            OldFileKind::Curated => {
                // Events first: once the document is in place, a restarted run would find it
                // there and record it as the source.
                self.learn_statements(found, StatementSelection::All, account);
                match self.keep_at(found, home) {
                    Some(home) => self.archive_if_moved(found, home),
                    None => self.archive_file(found),
                }
            }
            OldFileKind::Facts => {
                self.learn_statements(found, StatementSelection::All, account);
                self.archive_file(found)
            }
            OldFileKind::Briefing => {
                self.learn_statements(found, StatementSelection::Marked, account);
                self.archive_file(found)
            }
            OldFileKind::Log(day, _) => {
                let new = self.merge_log(found, *day);
                account.produced.push(("log line".into(), new));
                self.archive_if_moved(found, DocPath::log(*day))
            }
            OldFileKind::States => {
                let new = self.new_states(found);
                self.record_states(found, new, account);
                self.archive_file(found)
            }
            OldFileKind::Days => {
                self.append_day_summaries(found, account);
                self.archive_file(found)
            }
            OldFileKind::State => {
                // The last saved state is soon overwritten, so it becomes a record, too.
                self.keep_at(found, home);
                let new = self.record_last_state(found);
                account.produced.push(("state".into(), new));
                self.archive_file(found)
            }
            OldFileKind::Memory => {
                let place = self.keep_or_rename(found, home?)?;
                self.archive_if_moved(found, place)
            }
            OldFileKind::Inbox(_) => {
                let place = self.keep_or_rename(found, home?)?;
                self.learn_statements(found, StatementSelection::Marked, account);
                self.archive_if_moved(found, place)
            }
            OldFileKind::Topic => self.migrate_topic(found),
            // An index of topic files stays in use, so it is never moved.
            OldFileKind::Index | OldFileKind::Other => self.copy_to_archive(found),
            OldFileKind::Year => self.archive_file(found),
        }
    }

    fn availability(&self, place: &DocPath, bytes: &[u8]) -> Availability {
        if let Some((claimed, hash)) = self.claimed.get(&self.path_key(place)) {
            return if claimed == place && *hash == Hash::of(bytes) {
                Availability::Same
            } else {
                Availability::Occupied
            };
        }
        match (self.vault.documents)(place) {
            None => Availability::Free,
            Some(there) if there == bytes => Availability::Same,
            Some(_) => Availability::Occupied,
        }
    }

    fn reserve(&mut self, place: &DocPath, bytes: &[u8]) {
        self.claimed.insert(self.path_key(place), (place.clone(), Hash::of(bytes)));
    }

    /// A path as the vault's file system compares it. For files from elsewhere, names that differ
    /// in case may collide; for files of the vault itself they do not.
    fn path_key(&self, place: &DocPath) -> String {
        if self.vault.in_place { place.to_string() } else { place.as_str().to_lowercase() }
    }

    /// Keeps the file at that path; `None` if other content is there.
    fn keep_at(&mut self, found: &SourceFile, place: Option<DocPath>) -> Option<DocPath> {
        let place = place?;
        match self.availability(&place, &found.bytes) {
            Availability::Occupied => return None,
            Availability::Same => {}
            Availability::Free => self.plan.steps.push(MigrationStep::Keep {
                from: found.path.clone(),
                to: place.clone(),
                bytes: found.bytes.clone(),
            }),
        }
        self.reserve(&place, &found.bytes);
        Some(place)
    }

    /// Keeps the file at that path, or at an alternative path if other content is there.
    fn keep_or_rename(&mut self, found: &SourceFile, place: DocPath) -> Option<DocPath> {
        let other = old_file::conflict_path(&place, &found.bytes);
        self.keep_at(found, Some(place)).or_else(|| self.keep_at(found, other))
    }

    /// Keeps a copy in the archive.
    fn copy_to_archive(&mut self, found: &SourceFile) -> Option<DocPath> {
        self.keep_or_rename(found, old_file::archive_path(&found.path)?)
    }

    /// Moves the file to the archive, or copies it where the old folder must not be touched.
    fn archive_file(&mut self, found: &SourceFile) -> Option<DocPath> {
        if !self.vault.in_place || !old_file::is_inside(&found.path) {
            return self.copy_to_archive(found);
        }
        let first = old_file::archive_path(&found.path)?;
        let second = old_file::conflict_path(&first, &found.bytes);
        let to = [Some(first), second]
            .into_iter()
            .flatten()
            .find(|place| self.availability(place, &found.bytes) != Availability::Occupied)?;
        self.reserve(&to, &found.bytes);
        self.moved.insert(found.path.clone());
        self.plan.steps.push(MigrationStep::Move { from: found.path.clone(), to: to.clone() });
        Some(to)
    }

    /// Archives the old file if its content is stored under another path.
    fn archive_if_moved(&mut self, found: &SourceFile, place: DocPath) -> Option<DocPath> {
        if self.vault.in_place {
            self.archive_file(found);
        }
        Some(place)
    }

    // Logs and summaries of days

    fn merge_log(&mut self, found: &SourceFile, day: Date) -> usize {
        if self.planned_log(day).is_none() {
            self.plan.steps.push(MigrationStep::Keep {
                from: found.path.clone(),
                to: DocPath::log(day),
                bytes: found.bytes.clone(),
            });
            self.logs.insert(day, Some(found.bytes.clone()));
            return merge::comparable_lines(&found.bytes).count();
        }
        self.append_to_log(found, day, &format!("from {}", display_name(&found.path)), &found.bytes)
    }

    fn planned_log(&mut self, day: Date) -> Option<&Vec<u8>> {
        self.logs.entry(day).or_insert_with(|| (self.vault.documents)(&DocPath::log(day))).as_ref()
    }

    /// Appends missing lines to a log and returns their number.
    fn append_to_log(
        &mut self,
        found: &SourceFile,
        day: Date,
        title: &str,
        source: &[u8],
    ) -> usize {
        let so_far = self.planned_log(day).map(Vec::as_slice);
        let Some((bytes, new)) = merge::missing_lines(so_far, day, title, source) else { return 0 };
        self.logs.entry(day).or_default().get_or_insert_default().extend_from_slice(&bytes);
        self.plan.steps.push(MigrationStep::Merge {
            from: found.path.clone(),
            to: DocPath::log(day),
            bytes,
        });
        new
    }

    /// Appends summaries of days to the logs of those days, where the daily summary will use them.
    fn append_day_summaries(&mut self, found: &SourceFile, account: &mut FileAccount) {
        let text = String::from_utf8_lossy(&found.bytes);
        let mut days: BTreeMap<Date, Vec<&str>> = BTreeMap::new();
        for told in read::parse_day_summaries(&text).1 {
            let foreign = told
                .lines
                .into_iter()
                .filter(|line| line.trim().is_empty() || !self.is_in_summaries(line));
            days.entry(told.day).or_default().extend(foreign);
        }
        let mut new = 0;
        for (day, lines) in days {
            new += self.append_to_log(found, day, "Migrated summary", lines.join("\n").as_bytes());
        }
        account.produced.push(("log line".into(), new));
    }

    /// Whether the vault's own summaries contain that line.
    fn is_in_summaries(&mut self, line: &str) -> bool {
        let line = line.trim_matches(['\u{feff}', ' ', '\r', '\t']);
        if line.is_empty() || line == "---" || markdown::heading(line).is_some() {
            return true;
        }
        // Elsewhere icecore does not generate these files.
        if !self.vault.in_place {
            return false;
        }
        let documents = self.vault.documents;
        let told = self.summary_lines.get_or_insert_with(|| {
            let bytes = layout::SUMMARIES
                .parse()
                .ok()
                .and_then(|place| documents(&place))
                .unwrap_or_default();
            let summaries = ledger::raw_lines(&bytes, 1)
                .filter_map(|line| Summary::parse_line(line.bytes).ok());
            summaries
                .flat_map(|summary| {
                    summary.headline.lines().map(|line| line.trim().to_owned()).collect::<Vec<_>>()
                })
                .collect()
        });
        told.contains(line)
    }

    // Saved states

    fn new_states(&mut self, found: &SourceFile) -> Vec<(Moment, Option<String>, String)> {
        let text = String::from_utf8_lossy(&found.bytes);
        let (_, entries) = states::parse_entries(text.trim_start_matches('\u{feff}'));
        let mut new = Vec::new();
        for entry in entries {
            let time: Time = entry.clock.parse().unwrap_or_default();
            let at = self.zone.moment(self.zone.instant_at(entry.day, time));
            let state = (at.clock_time(), entry.text);
            if !state.1.is_empty() && !self.recorded_states(at.day()).contains(&state) {
                new.push((at, entry.title.as_deref().map(sanitize::one_line), state.1));
            }
        }
        new
    }

    fn record_states(
        &mut self,
        found: &SourceFile,
        new: Vec<(Moment, Option<String>, String)>,
        account: &mut FileAccount,
    ) {
        let count = new
            .into_iter()
            .filter(|(at, title, text)| self.record_state(found, *at, title.clone(), text))
            .count();
        account.produced.push(("state".into(), count));
    }

    /// Records a saved state, unless it is too long for a record or there already.
    fn record_state(
        &mut self,
        found: &SourceFile,
        at: Moment,
        title: Option<String>,
        text: &str,
    ) -> bool {
        if text.len() > record::MAX_TEXT_BYTES {
            self.add_complaint(format!(
                "{}: a state of {} bytes is stored as text only",
                display_name(&found.path),
                text.len()
            ));
            return false;
        }
        // The same text twice within a minute is one state.
        if !self.recorded_states(at.day()).insert((at.clock_time(), text.to_owned())) {
            return false;
        }
        self.plan.steps.push(MigrationStep::Record {
            from: found.path.clone(),
            at,
            title,
            text: text.to_owned(),
        });
        true
    }

    fn recorded_states(&mut self, day: Date) -> &mut HashSet<(String, String)> {
        self.states.entry(day).or_insert_with(|| {
            let bytes = (self.vault.documents)(&DocPath::records(RecordKind::State, day))
                .unwrap_or_default();
            let records = record::parse_file(&bytes).0.into_iter();
            records
                .filter(|record| record.kind == RecordKind::State)
                .map(|record| (record.ts.clock_time(), record.text.trim().to_owned()))
                .collect()
        })
    }

    /// Records the last saved state and returns the number of new records.
    fn record_last_state(&mut self, found: &SourceFile) -> usize {
        let text =
            String::from_utf8_lossy(&found.bytes).trim_start_matches('\u{feff}').trim().to_owned();
        // Without a time of its own it would be a new state at every run; the copy in the archive
        // marks it as migrated.
        let taken = old_file::archive_path(&found.path)
            .is_some_and(|place| self.availability(&place, &found.bytes) == Availability::Same);
        let at = found.modified.map_or(self.now, |modified| self.zone.moment(modified.timestamp()));
        let known = self.recorded_states(at.day()).iter().any(|(_, known)| *known == text);
        if text.is_empty() || known || (taken && found.modified.is_none()) {
            return 0;
        }
        usize::from(self.record_state(found, at, Some("Migrated state".into()), &text))
    }

    /// Stores a single memory among the others, named by the time it was made.
    fn migrate_topic(&mut self, found: &SourceFile) -> Option<DocPath> {
        let text = String::from_utf8_lossy(&found.bytes);
        let said = markdown::front_matter(&text)
            .and_then(|matter| Moment::parse(read::front_matter_field(&matter, "modified")?));
        let said = said.map(|read| {
            if read.offset_assumed { read::to_zone(read.moment, self.zone) } else { read.moment }
        });
        let made = said.or(found.modified);
        let archived = old_file::archive_path(&found.path);
        // Without a time of its own it would get a new name at every run; a copy in the archive
        // marks it as migrated.
        if let Some(copy) = archived.filter(|place| {
            made.is_none() && self.availability(place, &found.bytes) == Availability::Same
        }) {
            return self.keep_at(found, Some(copy));
        }
        let at = self.zone.moment(made.unwrap_or(self.now).timestamp());
        let name = found.path.rsplit('/').next().unwrap_or_default();
        let key = sanitize::entity_key(name.strip_suffix(".md").unwrap_or(name)).replace('_', "-");
        let slug = match &key[..key.floor_char_boundary(MAX_SLUG_BYTES)] {
            "" => Hash::of(name.as_bytes()).short_hex(),
            slug => slug.to_owned(),
        };
        let stamp = format!(
            "{}-{}",
            at.day().to_string().replace('-', ""),
            at.clock_time().replace(':', "")
        );
        let place = self.keep_or_rename(
            found,
            format!("{}/{stamp}-{slug}.md", old_file::MEMORIES).parse().ok()?,
        )?;
        if made.is_none() {
            self.copy_to_archive(found);
        }
        Some(place)
    }

    // Folders

    /// Removes folders of summaries that are empty, or will be after their files have moved.
    fn remove_empty_folders(&mut self, found: &[SourceFile], empty: &[String]) {
        if !self.vault.in_place {
            return;
        }
        // A folder that holds only empty folders is empty after their removal.
        let mut folders: BTreeSet<&str> = empty.iter().map(String::as_str).collect();
        for path in self.moved.iter().chain(empty) {
            folders.extend(path.match_indices('/').map(|(at, _)| &path[..at]));
        }
        let mut busy: HashSet<&str> = HashSet::new();
        for found in found.iter().filter(|found| !self.moved.contains(&found.path)) {
            busy.extend(found.path.match_indices('/').map(|(at, _)| &found.path[..at]));
        }
        let mut going: Vec<String> = folders
            .into_iter()
            .filter(|folder| old_file::is_summary_folder(folder) && !busy.contains(folder))
            .map(str::to_owned)
            .collect();
        // Inner folders come first.
        going.sort_by(|one, other| {
            (other.matches('/').count(), one).cmp(&(one.matches('/').count(), other))
        });
        self.plan.steps.extend(going.into_iter().map(MigrationStep::RemoveFolder));
    }
}

/// The longest name a memory gets from an old file.
const MAX_SLUG_BYTES: usize = 60;

fn is_binary(bytes: &[u8]) -> bool {
    memchr::memchr(0, bytes).is_some() || std::str::from_utf8(bytes).is_err()
}

/// A name shortened for a complaint or a heading.
pub(super) fn display_name(name: &str) -> String {
    const MAX_CHARS: usize = 120;
    sanitize::one_line(name).chars().take(MAX_CHARS).collect()
}
