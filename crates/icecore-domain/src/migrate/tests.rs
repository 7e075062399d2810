//! Migrations of a realistic folder, hostile ones, and random ones: whole, repeated, and
//! interrupted after every step.

use std::collections::{BTreeMap, BTreeSet};

use jiff::civil::date;
use proptest::prelude::*;

use super::*;
use crate::calendar::Zone;
use crate::event::{EventType, LoopStatus, Origin, Priority};
use crate::record::{Record, RecordKind, Role, derived_id};

/// A vault in memory, and the old folder; in place they are one.
#[derive(Debug, Clone, Default, PartialEq)]
struct World {
    documents: BTreeMap<String, Vec<u8>>,
    old: BTreeMap<String, Vec<u8>>,
    folders: BTreeSet<String>,
    events: Vec<EventDraft>,
    in_place: bool,
    /// The file system ignores case.
    ignores_case: bool,
    undated: bool,
}

fn moment(text: &str) -> Moment {
    Moment::parse(text).unwrap().moment
}

fn now() -> Moment {
    moment("2026-03-01T12:00:00+01:00")
}

impl World {
    fn of(files: &[(&str, &str)], in_place: bool) -> Self {
        let mut world = Self { in_place, ..Self::default() };
        for (path, text) in files {
            world.old.insert((*path).to_owned(), text.as_bytes().to_vec());
        }
        world.with_documents()
    }

    /// In place, the old files are documents.
    fn with_documents(mut self) -> Self {
        if self.in_place {
            let old = std::mem::take(&mut self.old);
            self.documents.extend(old);
        }
        for path in self.documents.keys() {
            self.folders.extend(path.match_indices('/').map(|(at, _)| path[..at].to_owned()));
        }
        self
    }

    fn files(&self) -> &BTreeMap<String, Vec<u8>> {
        if self.in_place { &self.documents } else { &self.old }
    }

    fn is_empty(&self, folder: &str) -> bool {
        let inside = format!("{folder}/");
        !self.documents.keys().chain(&self.folders).any(|path| path.starts_with(&inside))
    }

    fn plan(&self) -> MigrationPlan {
        self.plan_at(now())
    }

    fn plan_at(&self, now: Moment) -> MigrationPlan {
        let modified = (!self.undated).then(|| moment("2026-02-20T08:30:00+01:00"));
        let found: Vec<SourceFile> = self
            .files()
            .iter()
            .map(|(path, bytes)| SourceFile { path: path.clone(), bytes: bytes.clone(), modified })
            .collect();
        let empty: Vec<String> =
            self.folders.iter().filter(|folder| self.is_empty(folder)).cloned().collect();
        let id = |at: usize| EventId::new(date(2026, 3, 1), u32::try_from(at).unwrap() + 1);
        let key = |draft: &EventDraft| sanitize::sameness_key(&draft.content);
        let vault = VaultView {
            documents: &|path| match self.ignores_case {
                false => self.documents.get(path.as_str()).cloned(),
                true => {
                    let same =
                        |known: &&String| known.to_lowercase() == path.as_str().to_lowercase();
                    self.documents
                        .keys()
                        .find(same)
                        .and_then(|known| self.documents.get(known))
                        .cloned()
                }
            },
            event_with_content: &|wanted| {
                self.events.iter().position(|draft| key(draft) == wanted).map(id)
            },
            migrated_event: &|was, wanted| {
                let same = |draft: &EventDraft| {
                    draft.extra_field::<String>(OLD_ID_FIELD).as_deref() == Some(was)
                        && key(draft) == wanted
                };
                self.events.iter().position(same).map(id)
            },
            in_place: self.in_place,
        };
        plan_migration(&found, &empty, &vault, now, &Zone::from_name("Europe/Berlin").unwrap())
    }

    fn apply(&mut self, steps: &[MigrationStep]) {
        for step in steps {
            match step {
                MigrationStep::Keep { to, bytes, .. } => {
                    assert_eq!(
                        self.documents.insert(to.to_string(), bytes.clone()),
                        None,
                        "{to} was there"
                    );
                }
                MigrationStep::Merge { to, bytes, .. } => {
                    self.documents.entry(to.to_string()).or_default().extend_from_slice(bytes)
                }
                MigrationStep::Learn { draft, .. } => self.events.push((**draft).clone()),
                MigrationStep::Record { at, title, text, .. } => {
                    let record = Record {
                        ts: *at,
                        conversation: "state".into(),
                        session: None,
                        id: derived_id(None, Role::Assistant, title.as_deref(), text, Some(*at), 0),
                        role: Role::Assistant,
                        name: None,
                        other_speaker: None,
                        kind: RecordKind::State,
                        title: title.clone(),
                        text: text.clone(),
                        parts: None,
                        origin: Origin::File,
                        captured: now(),
                        extra: Vec::new(),
                        withdrawn: false,
                    };
                    self.documents
                        .entry(record.path().to_string())
                        .or_default()
                        .extend_from_slice(record.to_line().as_bytes());
                }
                MigrationStep::Move { from, to } => {
                    assert!(self.in_place);
                    let bytes = self.documents.remove(from).unwrap();
                    let before = self.documents.insert(to.to_string(), bytes.clone());
                    assert!(before.is_none_or(|before| before == bytes), "{to} was something else");
                }
                MigrationStep::RemoveFolder(folder) => {
                    assert!(self.in_place && self.is_empty(folder), "{folder} is not empty");
                    assert!(self.folders.remove(folder), "{folder} is not there");
                }
                MigrationStep::Nothing { .. } => {}
            }
            for path in self.documents.keys() {
                self.folders.extend(path.match_indices('/').map(|(at, _)| path[..at].to_owned()));
            }
        }
    }

    fn lines(&self) -> BTreeSet<Vec<u8>> {
        self.documents
            .values()
            .flat_map(|bytes| merge::comparable_lines(bytes).map(<[u8]>::to_vec))
            .collect()
    }
}

/// Checks every guarantee for a folder. The run is interrupted and restarted after the steps in
/// `stops`.
fn check(world: &World, stops: impl Fn(usize) -> Vec<usize>) -> (MigrationPlan, World) {
    let plan = world.plan();
    let mut done = world.clone();
    done.apply(&plan.steps);
    // The old folder is not touched.
    assert_eq!(done.old, world.old);
    // Every line is accounted for, and stored where the account says.
    assert_eq!(
        plan.inventory.iter().map(|account| &account.path).collect::<Vec<_>>(),
        world.files().keys().collect::<Vec<_>>()
    );
    let lines = done.lines();
    for account in &plan.inventory {
        let bytes = &world.files()[&account.path];
        let stands: usize = account.stored_in.iter().map(|(_, lines)| lines).sum();
        assert_eq!(
            (account.lines, account.bytes, account.missing_lines()),
            (merge::comparable_lines(bytes).count(), bytes.len(), 0)
        );
        assert_eq!(stands, account.lines);
        for (place, _) in &account.stored_in {
            if place == LEFT_IN_PLACE {
                assert!(
                    done.files().get(&account.path) == Some(bytes),
                    "{} is not where it was left",
                    account.path
                );
                continue;
            }
            let there: BTreeSet<&[u8]> = merge::comparable_lines(&done.documents[place]).collect();
            for line in merge::comparable_lines(bytes) {
                assert!(
                    there.contains(line),
                    "{}: {:?} is lost",
                    account.path,
                    String::from_utf8_lossy(line)
                );
                assert!(lines.contains(line));
            }
        }
    }
    // The vault keeps what it had.
    for line in world.lines() {
        assert!(lines.contains(&line), "{:?} is lost", String::from_utf8_lossy(&line));
    }
    // Only documents of the vault, and none that a reader would mistake for something else.
    for step in &plan.steps {
        if let MigrationStep::Keep { to, .. }
        | MigrationStep::Merge { to, .. }
        | MigrationStep::Move { to, .. } = step
        {
            assert!(to.is_vault_file() && !to.as_str().ends_with(".jsonl"), "{to}");
        }
    }
    let again = done.plan();
    assert!(
        again.is_done(),
        "a second run would do {:?}",
        again
            .steps
            .iter()
            .filter(|step| !matches!(step, MigrationStep::Nothing { .. }))
            .collect::<Vec<_>>()
    );
    assert!(done.undated || done.plan_at(moment("2027-05-05T05:05:05+02:00")).is_done());
    for stop in stops(plan.steps.len()) {
        let mut stopped = world.clone();
        stopped.apply(&plan.steps[..stop]);
        let rest = stopped.plan();
        stopped.apply(&rest.steps);
        assert_eq!(
            stopped.documents.keys().collect::<Vec<_>>(),
            done.documents.keys().collect::<Vec<_>>(),
            "stopped after {stop}"
        );
        for (path, bytes) in &done.documents {
            assert!(
                stopped.documents.get(path) == Some(bytes),
                "{path} differs, stopped after {stop}"
            );
        }
        let events = |world: &World| {
            world.events.iter().map(|draft| format!("{draft:?}")).collect::<Vec<_>>()
        };
        assert_eq!(events(&stopped), events(&done), "stopped after {stop}");
        assert_eq!(stopped.folders, done.folders, "stopped after {stop}");
        assert!(stopped.plan().is_done());
    }
    (plan, done)
}

fn every(steps: usize) -> Vec<usize> {
    (0..=steps).collect()
}

/// A folder as an assistant leaves it after two months.
const OLD: &[(&str, &str)] = &[
    ("SOUL.md", "# Who I am\n\nA calm helper for the bindery.\n"),
    ("USER.md", "# Who you are\n\nIlse, who binds books in Lübeck.\n"),
    (
        "MEMORY.md",
        "# Memory\n*Last updated: 2026-02-18*\n\n## Rules\n- Never promise a delivery before the glue is dry\n- Invoices are in euro\n\n\
         ## Preferences\n- Ilse prefers short mails\n\n## People\n### Tomas Ried\n- **Phone**: 0451 5550199\n- works for the paper mill\n\n\
         ## Accounts\n- Shop: shop-20417\n\n## Mission\nBooks that outlive us.\n\n## Notes\n```sh\n- not a fact\n```\n",
    ),
    (
        "memory/2026-02-03.md",
        "# 2026-02-03\r\n\r\n- 09:10 ordered linen\r\n\r\n## Priority Extracts\r\n- [P1] Linen comes from Ried from now on\r\n",
    ),
    (
        "memory/2026-02-03-fair.md",
        "# 2026-02-03\n\n- 09:10 ordered linen\n- 17:00 booth at the fair is ours\n\n## Priority Extracts\n- [P2] The fair opens at ten\n",
    ),
    ("daily/2026-02-04.md", "- quiet day\n"),
    ("memory.md", "Name: Ilse Brandt\nBirthday: 3 May\n\n- Ilse prefers short mails\n"),
    ("briefing.md", "# Briefing\n\n- generated nightly\n- [P1] The press needs oil every month\n"),
    (
        "second-brain/ideas/covers.md",
        "# Covers\n\n- marbled paper, maybe\n- Decided on cloth spines for the atlas\n",
    ),
    (".claude/state/assistant-state.md", "**Current Task**: the atlas\n"),
    (
        ".claude/state/memory/summaries/24hr.md",
        "---\n### 2026-02-19 09:15 \u{2014} Auto-save\n\n**Current Task**: glue tests\n\n---\n---\n### 2026-02-19 18:40\n\nGlue holds.\n\n---\n",
    ),
    (
        ".claude/state/memory/summaries/30day.md",
        "---\n### 2026-02-03 (from 4 snapshots)\n\nLinen ordered, booth won.\n\n---\n---\n### 2026-02-10\n\nThe press broke and was mended.\n\n---\n",
    ),
    (
        ".claude/state/memory/summaries/2026.md",
        "---\n### January 2026\n\nThe bindery moved.\n\n---\n",
    ),
    (
        ".claude/state/memory/memories/20260203-0930-ried.md",
        "---\ntype: person\n---\n\nTomas Ried sells linen.\n",
    ),
    (
        "ledger.jsonl",
        "{\"ts\":\"2026-01-28T14:03:11+01:00\",\"id\":\"EVT-20260128-001\",\"type\":\"commitment\",\"priority\":\"P1\",\"content\":\"Send Ried the swatches\",\"source\":\"live\",\"status\":\"open\"}\n\
         {\"ts\":\"2026-01-30T10:00:00+01:00\",\"id\":\"EVT-20260130-001\",\"type\":\"commitment\",\"priority\":\"P1\",\"content\":\"Send Ried the swatches\",\"source\":\"live\",\"status\":\"closed\",\"supersedes\":\"EVT-20260128-001\"}\n\
         half a line\n",
    ),
    ("heartbeat-state.json", "{\"beats\": 12}\n"),
    (".obsidian/app.json", "{}\n"),
];

fn describe_step(step: &MigrationStep) -> String {
    match step {
        MigrationStep::Keep { from, to, bytes } => {
            format!("keep {from} -> {to} ({} bytes)", bytes.len())
        }
        MigrationStep::Merge { from, to, bytes } => {
            format!("merge {from} -> {to} {:?}", String::from_utf8_lossy(bytes))
        }
        MigrationStep::Learn { from, line, draft, was, replaces, .. } => {
            let status = draft.status.map_or(String::new(), |status| format!(" {status}"));
            let entity =
                draft.entity.as_deref().map_or(String::new(), |entity| format!(" @{entity}"));
            let was = was
                .as_deref()
                .map_or(String::new(), |was| format!(" was {was} replaces {replaces:?}"));
            format!(
                "learn {from}:{line} {} {}{status}{entity} {}{was}",
                draft.priority, draft.kind, draft.content
            )
        }
        MigrationStep::Record { from, at, title, text } => {
            format!("record {from} {at} {} {text:?}", title.as_deref().unwrap_or("-"))
        }
        MigrationStep::Move { from, to } => format!("move {from} -> {to}"),
        MigrationStep::RemoveFolder(folder) => format!("remove {folder}"),
        MigrationStep::Nothing { from, why } => format!("nothing {from}: {why}"),
    }
}

fn steps(plan: &MigrationPlan) -> Vec<String> {
    plan.steps.iter().map(describe_step).collect()
}

// L18
#[test]
fn a_folder_elsewhere_comes_into_the_vault_and_stays_where_it_is() {
    let (plan, done) = check(&World::of(OLD, false), every);
    assert_eq!(
        steps(&plan),
        [
            "keep SOUL.md -> SOUL.md (43 bytes)",
            "keep USER.md -> USER.md (49 bytes)",
            "learn ledger.jsonl:1 P1 commitment open Send Ried the swatches was EVT-20260128-001 replaces []",
            "learn ledger.jsonl:2 P1 commitment closed Send Ried the swatches was EVT-20260130-001 replaces [\"EVT-20260128-001\"]",
            "keep ledger.jsonl -> memory/archive/migrated/ledger.jsonl.kept (370 bytes)",
            "learn MEMORY.md:5 P0 constraint Never promise a delivery before the glue is dry",
            "learn MEMORY.md:6 P1 constraint Invoices are in euro",
            "learn MEMORY.md:9 P1 preference Ilse prefers short mails",
            "learn MEMORY.md:13 P1 fact @tomas_ried Tomas Ried: Phone: 0451 5550199",
            "learn MEMORY.md:14 P1 relationship @tomas_ried Tomas Ried: works for the paper mill",
            "learn MEMORY.md:17 P1 fact Shop: shop-20417",
            "learn MEMORY.md:20 P2 fact Books that outlive us.",
            "keep MEMORY.md -> MEMORY.md (341 bytes)",
            "learn memory.md:1 P1 fact Name: Ilse Brandt",
            "learn memory.md:2 P1 fact Birthday: 3 May",
            "keep memory.md -> memory/archive/migrated/memory.md (62 bytes)",
            "keep memory/2026-02-03.md -> memory/2026-02-03.md (105 bytes)",
            "merge memory/2026-02-03-fair.md -> memory/2026-02-03.md \"\\n## from memory/2026-02-03-fair.md\\n\\n- 17:00 booth at the fair is ours\\n\\n## Priority Extracts\\n\\n- [P2] The fair opens at ten\\n\"",
            "keep daily/2026-02-04.md -> memory/2026-02-04.md (12 bytes)",
            "record .claude/state/memory/summaries/24hr.md 2026-02-19T09:15:00+01:00 Auto-save \"**Current Task**: glue tests\"",
            "record .claude/state/memory/summaries/24hr.md 2026-02-19T18:40:00+01:00 - \"Glue holds.\"",
            "keep .claude/state/memory/summaries/24hr.md -> memory/archive/migrated/claude/state/memory/summaries/24hr.md (117 bytes)",
            "merge .claude/state/memory/summaries/30day.md -> memory/2026-02-03.md \"\\n## Migrated summary\\n\\nLinen ordered, booth won.\\n\"",
            "merge .claude/state/memory/summaries/30day.md -> memory/2026-02-10.md \"# 2026-02-10 Tuesday, 2026-W07\\n\\n## Migrated summary\\n\\nThe press broke and was mended.\\n\"",
            "keep .claude/state/memory/summaries/30day.md -> memory/archive/migrated/claude/state/memory/summaries/30day.md (127 bytes)",
            "keep .claude/state/memory/summaries/2026.md -> memory/archive/migrated/claude/state/memory/summaries/2026.md (46 bytes)",
            "keep .claude/state/assistant-state.md -> memory/state/assistant-state.md (28 bytes)",
            "record .claude/state/assistant-state.md 2026-02-20T08:30:00+01:00 Migrated state \"**Current Task**: the atlas\"",
            "keep .claude/state/assistant-state.md -> memory/archive/migrated/claude/state/assistant-state.md (28 bytes)",
            "keep .claude/state/memory/memories/20260203-0930-ried.md -> memory/memories/20260203-0930-ried.md (46 bytes)",
            "keep second-brain/ideas/covers.md -> knowledge/inbox/ideas/covers.md (73 bytes)",
            "learn second-brain/ideas/covers.md:4 P1 decision Decided on cloth spines for the atlas",
            "learn briefing.md:4 P1 fact The press needs oil every month",
            "keep briefing.md -> memory/archive/migrated/briefing.md (71 bytes)",
            "keep heartbeat-state.json -> memory/archive/migrated/heartbeat-state.json (14 bytes)",
            "nothing .obsidian/app.json: hidden; not part of a memory",
        ]
    );
    assert_eq!(plan.complaints.len(), 2, "{:?}", plan.complaints);
    let phone = done.events.iter().find(|draft| draft.content.contains("Phone")).unwrap();
    assert_eq!(
        (phone.source.as_str(), phone.origin, phone.ts),
        ("MEMORY.md:13", Origin::File, now())
    );
    assert_eq!(phone.tags, ["people", "ried", "tomas"]);
    let closing = &done.events[1];
    assert_eq!(
        (closing.status, closing.extra_field::<String>(OLD_ID_FIELD).as_deref()),
        (Some(LoopStatus::Closed), Some("EVT-20260130-001"))
    );
    assert!(closing.supersedes.is_empty(), "old ids name other events here");
    // Once the lines are migrated, their old ids are known.
    assert_eq!(done.plan().known_old_ids.len(), 2);
}

// K11
#[test]
fn in_place_old_files_move_once_they_are_kept_and_empty_folders_go() {
    let mut world = World::of(OLD, true);
    world.documents.insert("src/main.rs".into(), b"fn main() {}\n".to_vec());
    world.documents.insert("memory/ledger.jsonl".into(), b"{}\n".to_vec());
    world
        .documents
        .insert("summaries/daily/2026-02-05.md".into(), b"- from the old job\n".to_vec());
    world.folders.extend(
        [
            "summaries/weekly",
            "summaries/daily",
            "summaries/monthly/2026",
            "summaries/monthly",
            "attic",
        ]
        .map(str::to_owned),
    );
    let (plan, done) = check(&world.with_documents(), every);
    let told: Vec<String> = steps(&plan)
        .into_iter()
        .filter(|step| !step.starts_with("learn") && !step.starts_with("nothing"))
        .collect();
    assert_eq!(
        told.iter()
            .map(|step| step.split(" (").next().unwrap().split(" \"").next().unwrap())
            .collect::<Vec<_>>(),
        [
            "move ledger.jsonl -> memory/archive/migrated/ledger.jsonl.kept",
            "move memory.md -> memory/archive/migrated/memory.md",
            "merge memory/2026-02-03-fair.md -> memory/2026-02-03.md",
            "move memory/2026-02-03-fair.md -> memory/archive/migrated/memory/2026-02-03-fair.md",
            "keep daily/2026-02-04.md -> memory/2026-02-04.md",
            "move daily/2026-02-04.md -> memory/archive/migrated/daily/2026-02-04.md",
            "keep summaries/daily/2026-02-05.md -> memory/2026-02-05.md",
            "move summaries/daily/2026-02-05.md -> memory/archive/migrated/summaries/daily/2026-02-05.md",
            "record .claude/state/memory/summaries/24hr.md 2026-02-19T09:15:00+01:00 Auto-save",
            "record .claude/state/memory/summaries/24hr.md 2026-02-19T18:40:00+01:00 -",
            "move .claude/state/memory/summaries/24hr.md -> memory/archive/migrated/claude/state/memory/summaries/24hr.md",
            "merge .claude/state/memory/summaries/30day.md -> memory/2026-02-03.md",
            "merge .claude/state/memory/summaries/30day.md -> memory/2026-02-10.md",
            "move .claude/state/memory/summaries/30day.md -> memory/archive/migrated/claude/state/memory/summaries/30day.md",
            "move .claude/state/memory/summaries/2026.md -> memory/archive/migrated/claude/state/memory/summaries/2026.md",
            "keep .claude/state/assistant-state.md -> memory/state/assistant-state.md",
            "record .claude/state/assistant-state.md 2026-02-20T08:30:00+01:00 Migrated state",
            "move .claude/state/assistant-state.md -> memory/archive/migrated/claude/state/assistant-state.md",
            "keep .claude/state/memory/memories/20260203-0930-ried.md -> memory/memories/20260203-0930-ried.md",
            "move .claude/state/memory/memories/20260203-0930-ried.md -> memory/archive/migrated/claude/state/memory/memories/20260203-0930-ried.md",
            "keep second-brain/ideas/covers.md -> knowledge/inbox/ideas/covers.md",
            "move second-brain/ideas/covers.md -> memory/archive/migrated/second-brain/ideas/covers.md",
            "move briefing.md -> memory/archive/migrated/briefing.md",
            "remove summaries/monthly/2026",
            "remove summaries/daily",
            "remove summaries/monthly",
            "remove summaries/weekly",
        ]
    );
    // A file that is not a memory is not moved.
    for path in [
        "src/main.rs",
        "heartbeat-state.json",
        ".obsidian/app.json",
        "memory/ledger.jsonl",
        "MEMORY.md",
    ] {
        assert!(done.documents.contains_key(path), "{path}");
    }
    assert!(done.folders.contains("attic"));
}

// L18
#[test]
fn what_the_vault_already_has_stays_and_the_other_stands_beside_it() {
    let mut world = World::of(
        &[
            ("SOUL.md", "other soul\n"),
            ("MEMORY.md", "- Tea at four\n- The door is blue\n"),
            ("memory/2026-02-03.md", "- a\n- b\n"),
            ("assistant-state.md", "old state\n"),
            ("second-brain/x.md", "mine\n"),
            ("memories/20260203-0930-x.md", "mine\n"),
        ],
        false,
    );
    for (path, text) in [
        ("SOUL.md", "my soul\n"),
        ("MEMORY.md", "- The door is green\n"),
        ("memory/2026-02-03.md", "- a"),
        ("memory/state/assistant-state.md", "new state\n"),
        ("knowledge/inbox/x.md", "theirs\n"),
        ("memory/memories/20260203-0930-x.md", "theirs\n"),
    ] {
        world.documents.insert(path.into(), text.as_bytes().to_vec());
    }
    world.events.push(EventDraft::new(now(), EventType::Fact, Priority::P1, "the door is blue"));
    let (plan, _) = check(&world, every);
    assert_eq!(
        steps(&plan),
        [
            "keep SOUL.md -> memory/archive/migrated/SOUL.md (11 bytes)",
            "learn MEMORY.md:1 P1 fact Tea at four",
            "keep MEMORY.md -> memory/archive/migrated/MEMORY.md (33 bytes)",
            "merge memory/2026-02-03.md -> memory/2026-02-03.md \"\\n\\n## from memory/2026-02-03.md\\n\\n- b\\n\"",
            "record assistant-state.md 2026-02-20T08:30:00+01:00 Migrated state \"old state\"",
            "keep assistant-state.md -> memory/archive/migrated/assistant-state.md (10 bytes)",
            "keep memories/20260203-0930-x.md -> memory/memories/20260203-0930-x-fcbc800d.md (5 bytes)",
            "keep second-brain/x.md -> knowledge/inbox/x-fcbc800d.md (5 bytes)",
        ]
    );
    assert_eq!(
        plan.complaints,
        ["SOUL.md: differs from the vault's SOUL.md; stored as memory/archive/migrated/SOUL.md"]
    );
}

const INDEX: &str = "# Memory index\n\n- [Role](user_role.md) \u{2014} binds books\n- [Tests](feedback_tests.md) \u{2014} run them\n";

// L18
#[test]
fn the_topic_files_of_an_index_become_memories() {
    let files = [
        ("MEMORY.md", INDEX),
        (
            "user_role.md",
            "---\nname: role\nmetadata:\n  type: user\nmodified: 2026-01-05T07:08:09Z\n---\n\n- Binds books\n",
        ),
        ("feedback_tests.md", "no front matter, but listed\n"),
        ("unlisted.md", "---\nname: unlisted\ndescription: x\ntype: project\n---\nx\n"),
        ("readme.md", "not a topic\n"),
    ];
    let (plan, _) = check(&World::of(&files, false), every);
    assert_eq!(
        steps(&plan),
        [
            "keep MEMORY.md -> memory/archive/migrated/MEMORY.md (97 bytes)",
            "keep feedback_tests.md -> memory/memories/20260220-0830-feedback-tests.md (28 bytes)",
            "keep unlisted.md -> memory/memories/20260220-0830-unlisted.md (54 bytes)",
            "keep user_role.md -> memory/memories/20260105-0808-user-role.md (88 bytes)",
            "keep readme.md -> memory/archive/migrated/readme.md (12 bytes)",
        ]
    );
    // In place, its owner continues to use it.
    let (plan, done) = check(&World::of(&files, true), every);
    assert!(
        !plan.steps.iter().any(|step| matches!(step, MigrationStep::Move { .. })),
        "{:?}",
        steps(&plan)
    );
    assert_eq!(done.documents.keys().filter(|path| path.starts_with(MEMORIES)).count(), 3);
    // Without a time, a later run must not give it another name.
    let (_, done) = check(&World { undated: true, ..World::of(&files, false) }, every);
    assert!(done.plan_at(moment("2027-01-01T00:00:00Z")).is_done());
}

// K11
#[test]
fn files_that_icecore_writes_itself_are_no_old_files() {
    let hash = crate::hash::Hash::of(b"");
    let summary = format!(
        "{{\"id\":\"x\",\"tier\":\"day\",\"period\":\"2026-02-03\",\"version\":1,\"start\":\"2026-02-03T09:00:00Z\",\"end\":\"2026-02-03T10:00:00Z\",\
         \"headline\":\"It was done.\",\"body\":\"\",\"messages\":1,\"created_at\":\"2026-02-04T03:00:00Z\",\"source_hash\":\"{hash}\",\"made_by\":\"extract\"}}\n"
    );
    assert!(crate::summary::Summary::parse_line(summary.as_bytes()).is_ok());
    let world = |thirty: &str, states: &str| {
        let mut world = World::of(
            &[("memory/summaries/30day.md", thirty), ("memory/summaries/24hr.md", states)],
            true,
        );
        world.documents.insert(crate::layout::SUMMARIES.into(), summary.clone().into_bytes());
        let steps = [MigrationStep::Record {
            from: String::new(),
            at: moment("2026-02-19T09:15:00+01:00"),
            title: None,
            text: "Glue holds.".into(),
        }];
        world.apply(&steps);
        world
    };
    let ours = world(
        "---\n### 2026-02-03 (from 1 message)\n\nIt was done.\n\n---\n",
        "---\n### 2026-02-19 09:15\n\nGlue holds.\n\n---\n",
    );
    assert!(check(&ours, every).0.is_done());
    let theirs = world(
        "---\n### 2026-02-03\n\nIt was done.\nBy hand.\n\n---\n",
        "---\n### 2026-02-19 09:16\n\nGlue holds.\n\n---\n",
    );
    let (plan, _) = check(&theirs, every);
    let told: Vec<String> =
        steps(&plan).into_iter().filter(|step| !step.starts_with("nothing")).collect();
    assert_eq!(
        told,
        [
            "keep memory/summaries/24hr.md -> memory/archive/migrated/memory/summaries/24hr.md (43 bytes)",
            "record memory/summaries/24hr.md 2026-02-19T09:16:00+01:00 - \"Glue holds.\"",
            "keep memory/summaries/30day.md -> memory/archive/migrated/memory/summaries/30day.md (47 bytes)",
            "merge memory/summaries/30day.md -> memory/2026-02-03.md \"# 2026-02-03 Tuesday, 2026-W06\\n\\n## Migrated summary\\n\\nBy hand.\\n\"",
        ]
    );
}

// L18
#[test]
fn one_state_saved_twice_is_one_state() {
    let entry = "### 2026-02-19 09:15\n\nGlue holds.\n\n---\n";
    let text = [
        entry,
        entry,
        &entry.replace("09:15", "09:16"),
        "### 2026-02-19 77:77\n\nodd clock\n",
        "### 2026-02-19 10:00\n\n",
    ]
    .concat();
    let (plan, _) = check(&World::of(&[("summaries/24hr.md", &text)], false), every);
    let at: Vec<String> = plan
        .steps
        .iter()
        .filter_map(|step| {
            if let MigrationStep::Record { at, .. } = step { Some(at.clock_time()) } else { None }
        })
        .collect();
    assert_eq!(at, ["09:15", "09:16", "00:00"]);
}

// L18
#[test]
fn lines_of_an_older_ledger_are_taken_once_each() {
    let line = |id: &str, content: &str| {
        format!(
            "{{\"ts\":\"2026-01-28T14:03:11Z\",\"id\":\"{id}\",\"type\":\"fact\",\"priority\":\"P1\",\"content\":\"{content}\",\"source\":\"live\"}}\n"
        )
    };
    let text = [
        line("EVT-20260128-001", "a"),
        line("EVT-20260128-002", "A."),
        line("EVT-20260128-001", "a"),
        line("EVT-20260128-001", "b"),
        line("old-7", "c"),
    ]
    .concat();
    let mut world = World::of(
        &[
            ("ledger.jsonl", &text),
            ("MEMORY.md", "- a\n- b\n- d\n"),
            ("memory/ledger.jsonl", "{\"content\":\"no id\"}\n"),
        ],
        false,
    );
    let (plan, done) = check(&world, every);
    // Two equal lines of the ledger stay two events; a repetition in another file is none.
    assert_eq!(
        done.events.iter().map(|draft| draft.content.as_str()).collect::<Vec<_>>(),
        ["a", "A.", "b", "c", "no id", "d"]
    );
    assert!(
        plan.complaints.iter().any(|complaint| complaint.contains("EVT-20260128-001 again")),
        "{:?}",
        plan.complaints
    );
    // An event from elsewhere is not added again, and its id is known.
    world.events.push(EventDraft::new(now(), EventType::Fact, Priority::P1, "a"));
    let (plan, done) = check(&world, every);
    assert_eq!(done.events.len(), 5);
    assert_eq!(
        plan.known_old_ids.iter().map(|(was, _)| was.as_str()).collect::<Vec<_>>(),
        ["EVT-20260128-001", "EVT-20260128-002"]
    );
}

// L18
#[test]
fn hostile_files_are_kept_as_they_are() {
    let mut world = World::of(
        &[
            ("../x", "up\n"),
            ("CON.md", "device\n"),
            ("con.MD", "other case\n"),
            ("a\u{202e}b.md", "rtl\n"),
            ("a|b.md", "pipe\n"),
        ],
        false,
    );
    world.old.insert(format!("{}.md", "n".repeat(300)), b"long name\n".to_vec());
    world.old.insert("MEMORY.md".into(), b"\xef\xbb\xbf- caf\xe9 opens\r\n- tea\r\n".to_vec());
    world.old.insert("2026-02-03.md".into(), b"- \xff\xfe\n".to_vec());
    world.old.insert("logs/2026-02-03.md".into(), b"- \xff\xfd\n".to_vec());
    world.old.insert("memory.md".into(), format!("- {}\n", "x".repeat(5 << 20)).into_bytes());
    world.old.insert("big.bin".into(), vec![0; MAX_BINARY_BYTES + 1]);
    world.old.insert("big.txt".into(), "a line of text\n".repeat(800_000).into_bytes());
    world.old.insert("empty.md".into(), Vec::new());
    for in_place in [false, true] {
        let world = World { in_place, ..world.clone() }.with_documents();
        let (plan, _) = check(&world, |steps| vec![steps / 2]);
        let left = plan
            .inventory
            .iter()
            .filter(|account| account.stored_in[0].0 == LEFT_IN_PLACE && account.path == "big.bin")
            .count();
        assert_eq!(left, 1);
        assert!(
            plan.complaints
                .iter()
                .any(|complaint| complaint.starts_with("MEMORY.md: not valid UTF-8")),
            "{:?}",
            plan.complaints
        );
        let report = render_report(&plan);
        assert!(report.contains("| a\\|b.md | 1 |") && !report.contains('\u{202e}'), "{report}");
    }
}

// L18
#[test]
fn the_report_counts_before_and_after() {
    let files = [
        ("MEMORY.md", "# M\n- Tea at four\n"),
        (".env", "KEY=1\n"),
        ("daily/2026-02-04.md", "- x\n\n- y\n"),
    ];
    assert_eq!(
        render_report(&World::of(&files, false).plan()),
        "# Migration\n\n## Inventory\n\n\
         | file | lines | bytes | stored in | produces |\n|---|---:|---:|---|---|\n\
         | .env | 1 | 6 | left in place: 1 | - |\n\
         | MEMORY.md | 2 | 18 | MEMORY.md: 2 | event: 1, text line: 1 |\n\
         | daily/2026-02-04.md | 2 | 9 | memory/2026-02-04.md: 2 | log line: 2 |\n\
         | **3 files** | 5 | 33 | in the vault: 4, left in place: 1, missing: 0 | event: 1, log line: 2, text line: 1 |\n\
         \n## Steps\n\n- documents copied: 2\n- events extracted: 1\n- files with nothing to do: 1\n\
         \n## Needs attention\n\n- .env: 1 hidden file left in place\n"
    );
    assert!(render_report(&MigrationPlan::default()).contains("| **0 files** | 0 | 0 |"));
}

fn any_path() -> impl Strategy<Value = String> {
    const PATHS: [&str; 30] = [
        "SOUL.md",
        "memory/SOUL.md",
        "MEMORY.md",
        "memory/MEMORY.md",
        "state/MEMORY.md",
        "memory.md",
        "Memory.md",
        "briefing.md",
        "2026-02-03.md",
        "memory/2026-02-03.md",
        "memory/2026-02-03-x.md",
        "daily/2026-02-03.md",
        "summaries/daily/2026-02-04.md",
        "second-brain/a.md",
        "second-brain/A.md",
        "assistant-state.md",
        "state/assistant-state.md",
        "memories/20260203-0930-x.md",
        "memories/x.md",
        "x.md",
        "summaries/24hr.md",
        ".claude/state/memory/summaries/24hr.md",
        "summaries/30day.md",
        "memory/summaries/30day.md",
        "summaries/2026.md",
        "ledger.jsonl",
        "memory/ledger.jsonl",
        "../x",
        ".hidden",
        "CON.md",
    ];
    prop_oneof![12 => prop::sample::select(PATHS.to_vec()).prop_map(str::to_owned), 1 => "[a-zA-Z./ ]{1,12}"]
}

fn any_text() -> impl Strategy<Value = Vec<u8>> {
    const PIECES: [&str; 31] = [
        "- one\n",
        "- two\n",
        "- [P1] one\n",
        "- [ ] two\n",
        "## Rules\n",
        "# Day\n",
        "### 2026-02-03 09:15\n",
        "### 2026-02-03 09:15\none\n",
        "### 2026-02-03\n",
        "### 2026-02-04 x\n",
        "---\n",
        "\n",
        "\r\n",
        "  more\n",
        "never this\n",
        "key: value\n",
        "```\n",
        "## Priority Extracts\n",
        "[x](x.md)\n",
        "- [x](a.md)\n",
        "\u{feff}",
        "{\"content\":\"one\"}\n",
        "{\"content\":\"two\",\"id\":\"1\"}\n",
        "{\"ts\":\"2026-01-28T14:03:11Z\",\"id\":\"EVT-20260128-001\",\"type\":\"fact\",\"priority\":\"P1\",\"content\":\"one\",\"source\":\"live\"}\n",
        "{\"ts\":\"2026-01-28T14:03:11Z\",\"id\":\"EVT-20260128-002\",\"type\":\"fact\",\"priority\":\"P1\",\"content\":\"One.\",\"source\":\"x\",\"supersedes\":\"EVT-20260128-001\"}\n",
        "half",
        "text ",
        "ü",
        "\u{202e}",
        "name: x\n",
        "**Who**: one\n",
    ];
    let piece = prop_oneof![
        15 => prop::sample::select(PIECES.to_vec()).prop_map(|piece| piece.as_bytes().to_vec()),
        1 => prop::collection::vec(any::<u8>(), 0..6),
    ];
    prop::collection::vec(piece, 0..9).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    // L18, K11
    #[test]
    fn no_line_of_any_folder_is_lost_and_nothing_is_done_twice(
        old in prop::collection::btree_map(any_path(), any_text(), 0..8),
        had in prop::collection::btree_map(any_path(), any_text(), 0..3),
        said in prop::collection::vec(prop::sample::select(vec!["one", "two", "never this"]), 0..2),
        (in_place, ignores_case, undated) in any::<(bool, bool, bool)>(),
    ) {
        let had: BTreeMap<_, _> = had.into_iter().filter(|(path, _)| path.parse::<DocPath>().is_ok_and(|path| path.is_vault_file())).collect();
        let events = said.into_iter().map(|said| EventDraft::new(now(), EventType::Fact, Priority::P1, said)).collect();
        let mut world = World { documents: had, old, events, in_place, undated, ignores_case: ignores_case && !in_place, ..World::default() }.with_documents();
        world.folders.insert("summaries/weekly".into());
        check(&world, every);
    }
}
