//! The planner: works out the steps file by file, in an order in which a run can stop after any
//! step and be planned again.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use jiff::civil::{Date, Time};

use super::place::{self, Shape};
use super::read::{self, Which};
use super::{Account, Found, LEFT, MAX_BINARY_BYTES, MAX_COMPLAINTS, Plan, Step, Vault, merge};
use crate::calendar::{Moment, Zone};
use crate::hash::Hash;
use crate::id::EventId;
use crate::layout::{self, DocPath};
use crate::ledger;
use crate::packs::states;
use crate::plain;
use crate::record::{self, Captured};
use crate::summary::Summary;

/// Plans the migration of the files of an old folder into the vault. `empty` are its empty folders.
pub fn plan(
    found: &[Found],
    empty: &[String],
    vault: &Vault<'_>,
    now: Moment,
    zone: &Zone,
) -> Plan {
    let mut files = shaped(found);
    files.sort_by(|(one, a), (other, b)| {
        let depth = |path: &str| path.matches('/').count();
        (one, depth(&a.path), &a.path).cmp(&(other, depth(&b.path), &b.path))
    });
    let mut planner = Planner::new(vault, now, zone);
    planner
        .know(files.iter().filter(|(shape, _)| *shape == Shape::Ledger).map(|(_, found)| *found));
    for (shape, found) in &files {
        planner.take(found, shape);
    }
    planner.clear_folders(found, empty);
    planner.finish()
}

/// The kind of each file; topic files are known only from the `MEMORY.md` that lists them.
fn shaped(found: &[Found]) -> Vec<(Shape, &Found)> {
    let mut topics: HashSet<String> = HashSet::new();
    let mut indices: HashSet<&str> = HashSet::new();
    for index in found.iter().filter(|found| place::shape(&found.path) == Shape::Curated) {
        let folder = index.path.strip_suffix("MEMORY.md").unwrap_or_default();
        let text = String::from_utf8_lossy(&index.bytes);
        let Some(listed) = read::topics(&text) else { continue };
        indices.insert(&index.path);
        topics.extend(listed.iter().map(|name| format!("{folder}{name}")));
        let beside = found.iter().filter(|found| {
            found
                .path
                .strip_prefix(folder)
                .is_some_and(|name| !name.contains('/') && name.ends_with(".md"))
        });
        for other in beside.filter(|other| place::shape(&other.path) == Shape::Other) {
            let text = String::from_utf8_lossy(&other.bytes);
            let is_topic = read::front_matter(&text).is_some_and(|matter| {
                ["name", "type"].iter().any(|name| read::field(&matter, name).is_some())
            });
            if is_topic {
                topics.insert(other.path.clone());
            }
        }
    }
    let shape = |found: &Found| match place::shape(&found.path) {
        Shape::Curated if indices.contains(found.path.as_str()) => Shape::Index,
        _ if topics.contains(&found.path) => Shape::Topic,
        other => other,
    };
    found.iter().map(|found| (shape(found), found)).collect()
}

/// Whether a path in the vault is free for some bytes.
#[derive(PartialEq, Eq)]
enum Room {
    Free,
    Same,
    Taken,
}

pub(super) struct Planner<'a> {
    pub(super) vault: &'a Vault<'a>,
    pub(super) now: Moment,
    pub(super) zone: &'a Zone,
    pub(super) plan: Plan,
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
    pub(super) taken: HashSet<EventId>,
    /// The lines of the vault's summaries.
    told: Option<HashSet<String>>,
    moved: HashSet<String>,
    hidden: BTreeMap<String, usize>,
}

impl<'a> Planner<'a> {
    fn new(vault: &'a Vault<'a>, now: Moment, zone: &'a Zone) -> Self {
        Self {
            vault,
            now,
            zone,
            plan: Plan::default(),
            complaints_beyond: 0,
            claimed: HashMap::new(),
            logs: BTreeMap::new(),
            states: BTreeMap::new(),
            learnt: HashSet::new(),
            lines_taken: HashSet::new(),
            taken: HashSet::new(),
            told: None,
            moved: HashSet::new(),
            hidden: BTreeMap::new(),
        }
    }

    pub(super) fn complain(&mut self, complaint: String) {
        if self.plan.complaints.len() < MAX_COMPLAINTS {
            self.plan.complaints.push(complaint);
        } else {
            self.complaints_beyond += 1;
        }
    }

    fn finish(mut self) -> Plan {
        for (name, count) in std::mem::take(&mut self.hidden) {
            self.complain(format!(
                "{}: {count} hidden file{} {LEFT}",
                shown(&name),
                if count == 1 { "" } else { "s" }
            ));
        }
        if self.complaints_beyond > 0 {
            self.plan.complaints.push(format!("{} more like these", self.complaints_beyond));
        }
        self.plan.inventory.sort_by(|one, other| one.path.cmp(&other.path));
        self.plan
    }

    fn take(&mut self, found: &Found, shape: &Shape) {
        let begun = self.plan.steps.len();
        let mut account = Account {
            path: found.path.clone(),
            lines: merge::lines(&found.bytes).count(),
            bytes: found.bytes.len(),
            stands: Vec::new(),
            becomes: Vec::new(),
        };
        let (place, why) = if place::is_hidden(&found.path) {
            if !self.vault.in_place {
                let part = place::core(&found.path)
                    .split('/')
                    .find(|part| part.starts_with('.'))
                    .unwrap_or_default();
                *self.hidden.entry(part.to_owned()).or_default() += 1;
            }
            (None, "hidden; not part of a memory")
        } else if found.bytes.len() > MAX_BINARY_BYTES && is_binary(&found.bytes) {
            self.complain(format!(
                "{}: binary file of {} bytes; {LEFT}",
                shown(&found.path),
                found.bytes.len()
            ));
            (None, "a large binary file")
        } else if self.is_at_home(found, shape) {
            self.stay(found, shape, &mut account);
            (Some(found.path.clone()), "already in its place")
        } else if self.vault.in_place && *shape == Shape::Other {
            (None, "not part of the vault")
        } else {
            let place = self.bring(found, shape, &mut account);
            if place.is_none() {
                self.complain(format!(
                    "{}: no valid path in the vault; {LEFT}",
                    shown(&found.path)
                ));
            }
            (place.map(|place| place.to_string()), "already migrated")
        };
        account.stands.push((place.unwrap_or_else(|| LEFT.into()), account.lines));
        account.becomes.retain(|(_, count)| *count > 0);
        if self.plan.steps.len() == begun {
            self.plan.steps.push(Step::Nothing { from: found.path.clone(), why: why.into() });
        }
        self.plan.inventory.push(account);
    }

    /// Whether the file already is a document of the vault, at its own path.
    pub(super) fn is_at_home(&self, found: &Found, shape: &Shape) -> bool {
        let Some(here) = self.vault.in_place.then(|| found.path.parse::<DocPath>().ok()).flatten()
        else {
            return false;
        };
        match shape {
            Shape::Other => here.is_kept(),
            Shape::Topic => here.as_str().starts_with(place::MEMORIES),
            _ => shape.home(&found.path).is_some_and(|home| home == here),
        }
    }

    /// Plans the steps for a document of the vault itself.
    fn stay(&mut self, found: &Found, shape: &Shape, account: &mut Account) {
        match shape {
            Shape::Curated => self.learn(found, Which::All, account),
            // icecore rewrites these files, so foreign content is copied first.
            Shape::States => {
                let new = self.unrecorded(found);
                if !new.is_empty() {
                    self.copy(found);
                    self.record_all(found, new, account);
                }
            }
            Shape::Days | Shape::Year => {
                let text = String::from_utf8_lossy(&found.bytes);
                if text.lines().any(|line| !self.is_told(line)) {
                    self.copy(found);
                    if *shape == Shape::Days {
                        self.tell_days(found, account);
                    }
                }
            }
            _ => {}
        }
    }

    /// Migrates a file and returns the document that holds all of it.
    fn bring(&mut self, found: &Found, shape: &Shape, account: &mut Account) -> Option<DocPath> {
        let home = shape.home(&found.path);
        match shape {
            Shape::Identity(name) => match self.keep(found, home) {
                Some(home) => self.retire(found, home),
                None => {
                    let copy = self.put_away(found)?;
                    self.complain(format!(
                        "{}: differs from the vault's {name}; stored as {copy}",
                        shown(&found.path)
                    ));
                    Some(copy)
                }
            },
            Shape::Ledger => {
                self.learn_ledger(found, account);
                self.put_away(found)
            }
            Shape::Curated => {
                // Events first: once the document is in place, a restarted run would find it
                // there and record it as the source.
                self.learn(found, Which::All, account);
                match self.keep(found, home) {
                    Some(home) => self.retire(found, home),
                    None => self.put_away(found),
                }
            }
            Shape::Facts => {
                self.learn(found, Which::All, account);
                self.put_away(found)
            }
            Shape::Briefing => {
                self.learn(found, Which::Marked, account);
                self.put_away(found)
            }
            Shape::Log(day, _) => {
                let new = self.log(found, *day);
                account.becomes.push(("log line".into(), new));
                self.retire(found, DocPath::log(*day))
            }
            Shape::States => {
                let new = self.unrecorded(found);
                self.record_all(found, new, account);
                self.put_away(found)
            }
            Shape::Days => {
                self.tell_days(found, account);
                self.put_away(found)
            }
            Shape::State => {
                // The last saved state is soon overwritten, so it becomes a record, too.
                self.keep(found, home);
                let new = self.state(found);
                account.becomes.push(("state".into(), new));
                self.put_away(found)
            }
            Shape::Memory => {
                let place = self.keep_beside(found, home?)?;
                self.retire(found, place)
            }
            Shape::Inbox(_) => {
                let place = self.keep_beside(found, home?)?;
                self.learn(found, Which::Marked, account);
                self.retire(found, place)
            }
            Shape::Topic => self.topic(found),
            // An index of topic files stays in use, so it is never moved.
            Shape::Index | Shape::Other => self.copy(found),
            Shape::Year => self.put_away(found),
        }
    }

    fn room(&self, place: &DocPath, bytes: &[u8]) -> Room {
        if let Some((claimed, hash)) = self.claimed.get(&self.as_seen(place)) {
            return if claimed == place && *hash == Hash::of(bytes) {
                Room::Same
            } else {
                Room::Taken
            };
        }
        match (self.vault.documents)(place) {
            None => Room::Free,
            Some(there) if there == bytes => Room::Same,
            Some(_) => Room::Taken,
        }
    }

    fn claim(&mut self, place: &DocPath, bytes: &[u8]) {
        self.claimed.insert(self.as_seen(place), (place.clone(), Hash::of(bytes)));
    }

    /// A path as the vault's file system compares it. For files from elsewhere, names that differ
    /// in case may collide; for files of the vault itself they do not.
    fn as_seen(&self, place: &DocPath) -> String {
        if self.vault.in_place { place.to_string() } else { place.as_str().to_lowercase() }
    }

    /// Keeps the file at that path; `None` if other content is there.
    fn keep(&mut self, found: &Found, place: Option<DocPath>) -> Option<DocPath> {
        let place = place?;
        match self.room(&place, &found.bytes) {
            Room::Taken => return None,
            Room::Same => {}
            Room::Free => self.plan.steps.push(Step::Keep {
                from: found.path.clone(),
                to: place.clone(),
                bytes: found.bytes.clone(),
            }),
        }
        self.claim(&place, &found.bytes);
        Some(place)
    }

    /// Keeps the file at that path, or at an alternative path if other content is there.
    fn keep_beside(&mut self, found: &Found, place: DocPath) -> Option<DocPath> {
        let other = place::beside(&place, &found.bytes);
        self.keep(found, Some(place)).or_else(|| self.keep(found, other))
    }

    /// Keeps a copy in the archive.
    fn copy(&mut self, found: &Found) -> Option<DocPath> {
        self.keep_beside(found, place::archived(&found.path)?)
    }

    /// Moves the file to the archive, or copies it where the old folder must not be touched.
    fn put_away(&mut self, found: &Found) -> Option<DocPath> {
        if !self.vault.in_place || !place::is_inside(&found.path) {
            return self.copy(found);
        }
        let first = place::archived(&found.path)?;
        let second = place::beside(&first, &found.bytes);
        let to = [Some(first), second]
            .into_iter()
            .flatten()
            .find(|place| self.room(place, &found.bytes) != Room::Taken)?;
        self.claim(&to, &found.bytes);
        self.moved.insert(found.path.clone());
        self.plan.steps.push(Step::Move { from: found.path.clone(), to: to.clone() });
        Some(to)
    }

    /// Archives the old file if its content is stored under another path.
    fn retire(&mut self, found: &Found, place: DocPath) -> Option<DocPath> {
        if self.vault.in_place {
            self.put_away(found);
        }
        Some(place)
    }

    // Logs and summaries of days

    fn log(&mut self, found: &Found, day: Date) -> usize {
        if self.log_of(day).is_none() {
            self.plan.steps.push(Step::Keep {
                from: found.path.clone(),
                to: DocPath::log(day),
                bytes: found.bytes.clone(),
            });
            self.logs.insert(day, Some(found.bytes.clone()));
            return merge::lines(&found.bytes).count();
        }
        self.append(found, day, &format!("from {}", shown(&found.path)), &found.bytes)
    }

    fn log_of(&mut self, day: Date) -> Option<&Vec<u8>> {
        self.logs.entry(day).or_insert_with(|| (self.vault.documents)(&DocPath::log(day))).as_ref()
    }

    /// Appends missing lines to a log and returns their number.
    fn append(&mut self, found: &Found, day: Date, title: &str, source: &[u8]) -> usize {
        let so_far = self.log_of(day).map(Vec::as_slice);
        let Some((bytes, new)) = merge::missing(so_far, day, title, source) else { return 0 };
        self.logs.entry(day).or_default().get_or_insert_default().extend_from_slice(&bytes);
        self.plan.steps.push(Step::Merge {
            from: found.path.clone(),
            to: DocPath::log(day),
            bytes,
        });
        new
    }

    /// Appends summaries of days to the logs of those days, where the daily summary will use them.
    fn tell_days(&mut self, found: &Found, account: &mut Account) {
        let text = String::from_utf8_lossy(&found.bytes);
        let mut days: BTreeMap<Date, Vec<&str>> = BTreeMap::new();
        for told in read::days(&text).1 {
            let foreign =
                told.lines.into_iter().filter(|line| line.trim().is_empty() || !self.is_told(line));
            days.entry(told.day).or_default().extend(foreign);
        }
        let mut new = 0;
        for (day, lines) in days {
            new += self.append(found, day, "Migrated summary", lines.join("\n").as_bytes());
        }
        account.becomes.push(("log line".into(), new));
    }

    /// Whether the vault's own summaries contain that line.
    fn is_told(&mut self, line: &str) -> bool {
        let line = line.trim_matches(['\u{feff}', ' ', '\r', '\t']);
        if line.is_empty() || line == "---" || read::heading(line).is_some() {
            return true;
        }
        // Elsewhere icecore does not generate these files.
        if !self.vault.in_place {
            return false;
        }
        let documents = self.vault.documents;
        let told = self.told.get_or_insert_with(|| {
            let bytes = layout::SUMMARIES
                .parse()
                .ok()
                .and_then(|place| documents(&place))
                .unwrap_or_default();
            let summaries =
                ledger::lines(&bytes, 1).filter_map(|line| Summary::read(line.bytes).ok());
            summaries
                .flat_map(|summary| {
                    summary.headline.lines().map(|line| line.trim().to_owned()).collect::<Vec<_>>()
                })
                .collect()
        });
        told.contains(line)
    }

    // Saved states

    fn unrecorded(&mut self, found: &Found) -> Vec<(Moment, Option<String>, String)> {
        let text = String::from_utf8_lossy(&found.bytes);
        let (_, entries) = states::entries(text.trim_start_matches('\u{feff}'));
        let mut new = Vec::new();
        for entry in entries {
            let time: Time = entry.clock.parse().unwrap_or_default();
            let at = self.zone.moment(self.zone.at(entry.day, time));
            let state = (at.clock(), entry.text);
            if !state.1.is_empty() && !self.states_of(at.day()).contains(&state) {
                new.push((at, entry.title.as_deref().map(plain::one_line), state.1));
            }
        }
        new
    }

    fn record_all(
        &mut self,
        found: &Found,
        new: Vec<(Moment, Option<String>, String)>,
        account: &mut Account,
    ) {
        let count = new
            .into_iter()
            .filter(|(at, title, text)| self.record(found, *at, title.clone(), text))
            .count();
        account.becomes.push(("state".into(), count));
    }

    /// Records a saved state, unless it is too long for a record or there already.
    fn record(&mut self, found: &Found, at: Moment, title: Option<String>, text: &str) -> bool {
        if text.len() > record::MAX_TEXT_BYTES {
            self.complain(format!(
                "{}: a state of {} bytes is stored as text only",
                shown(&found.path),
                text.len()
            ));
            return false;
        }
        // The same text twice within a minute is one state.
        if !self.states_of(at.day()).insert((at.clock(), text.to_owned())) {
            return false;
        }
        self.plan.steps.push(Step::Record {
            from: found.path.clone(),
            at,
            title,
            text: text.to_owned(),
        });
        true
    }

    fn states_of(&mut self, day: Date) -> &mut HashSet<(String, String)> {
        self.states.entry(day).or_insert_with(|| {
            let bytes =
                (self.vault.documents)(&DocPath::records(Captured::State, day)).unwrap_or_default();
            let records = record::read_file(&bytes).0.into_iter();
            records
                .filter(|record| record.kind == Captured::State)
                .map(|record| (record.ts.clock(), record.text.trim().to_owned()))
                .collect()
        })
    }

    /// Records the last saved state and returns the number of new records.
    fn state(&mut self, found: &Found) -> usize {
        let text =
            String::from_utf8_lossy(&found.bytes).trim_start_matches('\u{feff}').trim().to_owned();
        // Without a time of its own it would be a new state at every run; the copy in the archive
        // marks it as migrated.
        let taken = place::archived(&found.path)
            .is_some_and(|place| self.room(&place, &found.bytes) == Room::Same);
        let at = found.modified.map_or(self.now, |modified| self.zone.moment(modified.at()));
        let known = self.states_of(at.day()).iter().any(|(_, known)| *known == text);
        if text.is_empty() || known || (taken && found.modified.is_none()) {
            return 0;
        }
        usize::from(self.record(found, at, Some("Migrated state".into()), &text))
    }

    /// Stores a single memory among the others, named by the time it was made.
    fn topic(&mut self, found: &Found) -> Option<DocPath> {
        let text = String::from_utf8_lossy(&found.bytes);
        let said = read::front_matter(&text)
            .and_then(|matter| Moment::read(read::field(&matter, "modified")?));
        let said = said.map(|read| {
            if read.offset_assumed { read::in_zone(read.moment, self.zone) } else { read.moment }
        });
        let made = said.or(found.modified);
        let archived = place::archived(&found.path);
        // Without a time of its own it would get a new name at every run; a copy in the archive
        // marks it as migrated.
        if let Some(copy) =
            archived.filter(|place| made.is_none() && self.room(place, &found.bytes) == Room::Same)
        {
            return self.keep(found, Some(copy));
        }
        let at = self.zone.moment(made.unwrap_or(self.now).at());
        let name = found.path.rsplit('/').next().unwrap_or_default();
        let key = plain::entity_key(name.strip_suffix(".md").unwrap_or(name)).replace('_', "-");
        let slug = match &key[..key.floor_char_boundary(MAX_SLUG_BYTES)] {
            "" => Hash::of(name.as_bytes()).short(),
            slug => slug.to_owned(),
        };
        let stamp =
            format!("{}-{}", at.day().to_string().replace('-', ""), at.clock().replace(':', ""));
        let place = self
            .keep_beside(found, format!("{}/{stamp}-{slug}.md", place::MEMORIES).parse().ok()?)?;
        if made.is_none() {
            self.copy(found);
        }
        Some(place)
    }

    // Folders

    /// Removes folders of summaries that are empty, or will be after their files have moved.
    fn clear_folders(&mut self, found: &[Found], empty: &[String]) {
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
            .filter(|folder| place::is_summary_folder(folder) && !busy.contains(folder))
            .map(str::to_owned)
            .collect();
        // Inner folders come first.
        going.sort_by(|one, other| {
            (other.matches('/').count(), one).cmp(&(one.matches('/').count(), other))
        });
        self.plan.steps.extend(going.into_iter().map(Step::RemoveFolder));
    }
}

/// The longest name a memory gets from an old file.
const MAX_SLUG_BYTES: usize = 60;

fn is_binary(bytes: &[u8]) -> bool {
    memchr::memchr(0, bytes).is_some() || std::str::from_utf8(bytes).is_err()
}

/// A name shortened for a complaint or a heading.
pub(super) fn shown(name: &str) -> String {
    const MAX_CHARS: usize = 120;
    plain::one_line(name).chars().take(MAX_CHARS).collect()
}
