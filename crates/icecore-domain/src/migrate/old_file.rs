//! Old files: their kind by path, and their paths in a vault.
//!
//! Old names are untrusted. Every path made here is inside the vault and valid on every file
//! system.

use jiff::civil::Date;

use crate::hash::Hash;
use crate::layout::{self, DocPath};
use crate::sanitize;

/// The archive of old files whose content is stored.
pub const ARCHIVE: &str = "memory/archive/migrated";
/// Loose notes that a person has yet to sort.
pub const INBOX: &str = "knowledge/inbox";
/// Files of single memories.
pub const MEMORIES: &str = "memory/memories";

/// Folders in which older systems kept what others have at the top level.
const SYSTEM_FOLDERS: [&str; 3] = [".claude/state/", "memory/", "state/"];
/// The longest name that is made, in bytes; leaves room for a suffix.
const MAX_NAME_BYTES: usize = 200;
/// The longest path that is made, in bytes; leaves room for a suffix.
const MAX_PATH_BYTES: usize = 900;

/// The kind of an old file. The order is that of processing: the most informative files come first,
/// so that statements in later ones are recognized as duplicates.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum OldFileKind {
    /// `SOUL.md` or `USER.md`.
    Identity(&'static str),
    Ledger,
    /// The long, curated `MEMORY.md`.
    Curated,
    /// A `MEMORY.md` that only lists topic files.
    Index,
    /// A single file of facts, the oldest layout.
    Facts,
    /// The log of a day; a file named only by its day comes before the others.
    Log(Date, bool),
    /// Saved states in full, `24hr.md`.
    States,
    /// A few sentences a day, `30day.md`.
    Days,
    /// A few sentences a month, `2026.md`.
    Year,
    /// The state saved last.
    State,
    /// A single memory with a timestamp in its name.
    Memory,
    /// A single memory without one.
    Topic,
    /// A loose note, with its path among them.
    Inbox(String),
    /// A generated page for the start of a session.
    Briefing,
    Other,
}

/// The path without the folders that only identify the system.
pub(super) fn strip_system_folder(path: &str) -> &str {
    let mut rest = path;
    // Each root at most once: `.claude/state/memory/…` is the deepest there is.
    for _ in SYSTEM_FOLDERS {
        rest = SYSTEM_FOLDERS.iter().find_map(|root| rest.strip_prefix(root)).unwrap_or(rest);
    }
    rest
}

/// Whether the file or one of its folders is hidden.
pub(super) fn is_hidden(path: &str) -> bool {
    strip_system_folder(path)
        .split('/')
        .any(|part| part.starts_with('.') && part != "." && part != "..")
}

/// Whether the path stays within its folder, so that the file may be moved.
pub(super) fn is_inside(path: &str) -> bool {
    !path.contains(['\\', '\0'])
        && path.split('/').all(|part| !part.is_empty() && part != "." && part != "..")
}

/// The kind of the file at that path.
pub(super) fn classify(path: &str) -> OldFileKind {
    let core = strip_system_folder(path);
    let (folder, name) = core.rsplit_once('/').unwrap_or(("", core));
    match core {
        "SOUL.md" => return OldFileKind::Identity("SOUL.md"),
        "USER.md" => return OldFileKind::Identity("USER.md"),
        "MEMORY.md" => return OldFileKind::Curated,
        "memory.md" | "Memory.md" => return OldFileKind::Facts,
        "briefing.md" => return OldFileKind::Briefing,
        "assistant-state.md" => return OldFileKind::State,
        "ledger.jsonl" => return OldFileKind::Ledger,
        "summaries/24hr.md" => return OldFileKind::States,
        "summaries/30day.md" => return OldFileKind::Days,
        _ => {}
    }
    let Some(stem) = name.strip_suffix(".md") else { return OldFileKind::Other };
    if let Some(inner) = core.strip_prefix("second-brain/") {
        return OldFileKind::Inbox(inner.to_owned());
    }
    let top = folder.split('/').next().unwrap_or_default();
    let for_logs =
        folder.is_empty() || ["daily", "logs"].contains(&top) || folder == "summaries/daily";
    if let Some((day, plain)) = log_day(stem).filter(|_| for_logs) {
        return OldFileKind::Log(day, !(plain && folder.is_empty()));
    }
    match folder {
        "summaries" if stem.len() == 4 && stem.bytes().all(|byte| byte.is_ascii_digit()) => {
            OldFileKind::Year
        }
        "memories" if has_timestamp_name(stem) => OldFileKind::Memory,
        "memories" => OldFileKind::Topic,
        _ => OldFileKind::Other,
    }
}

/// The day in a log's name, and whether the name is nothing else: `2026-02-13`, or
/// `2026-02-13-standup`.
fn log_day(stem: &str) -> Option<(Date, bool)> {
    let (day, rest) = stem.split_at_checked(10)?;
    let shaped = day
        .bytes()
        .enumerate()
        .all(|(at, byte)| if at == 4 || at == 7 { byte == b'-' } else { byte.is_ascii_digit() });
    let day: Date = shaped.then(|| day.parse().ok()).flatten()?;
    (rest.is_empty() || rest.starts_with(['-', '_', ' '])).then_some((day, rest.is_empty()))
}

/// Whether a memory's name begins with a timestamp: `20260213-0915-slug`.
fn has_timestamp_name(stem: &str) -> bool {
    let stamp =
        stem.bytes().take(14).enumerate().all(|(at, byte)| {
            if at == 8 || at == 13 { byte == b'-' } else { byte.is_ascii_digit() }
        });
    stamp && stem.len() > 14
}

impl OldFileKind {
    /// The path of such a file in a vault, if its kind has one.
    pub(super) fn vault_path(&self, path: &str) -> Option<DocPath> {
        let name = || safe_name(path.rsplit('/').next().unwrap_or(path));
        match self {
            OldFileKind::Identity(name) => name.parse().ok(),
            OldFileKind::Ledger => layout::LEDGER.parse().ok(),
            OldFileKind::Curated | OldFileKind::Index => "MEMORY.md".parse().ok(),
            OldFileKind::Log(day, _) => Some(DocPath::log(*day)),
            OldFileKind::States => layout::LAST_DAY.parse().ok(),
            OldFileKind::Days => layout::LAST_MONTH.parse().ok(),
            OldFileKind::Year => format!("memory/summaries/{}", name()).parse().ok(),
            OldFileKind::State => layout::STATE.parse().ok(),
            OldFileKind::Memory => format!("{MEMORIES}/{}", name()).parse().ok(),
            OldFileKind::Inbox(inner) => safe_path(INBOX, inner),
            OldFileKind::Topic
            | OldFileKind::Facts
            | OldFileKind::Briefing
            | OldFileKind::Other => None,
        }
    }
}

/// The path of an old file in the archive.
pub(super) fn archive_path(path: &str) -> Option<DocPath> {
    let place = safe_path(ARCHIVE, path)?;
    // An archived `.jsonl` would be read as archived events, and a sync program's leftover as one
    // to clean up.
    if place.as_str().ends_with(".jsonl") || place.is_sync_leftover() {
        format!("{place}.kept").parse().ok()
    } else {
        Some(place)
    }
}

/// An alternative path for other content under the same name.
pub(super) fn conflict_path(place: &DocPath, bytes: &[u8]) -> Option<DocPath> {
    let (folder, name) = place.as_str().rsplit_once('/').unwrap_or(("", place.as_str()));
    let (stem, end) =
        name.find('.').filter(|at| *at > 0).map_or((name, ""), |at| name.split_at(at));
    let told_apart = format!("{stem}-{}{end}", Hash::of(bytes).short_hex());
    if folder.is_empty() {
        told_apart.parse().ok()
    } else {
        format!("{folder}/{told_apart}").parse().ok()
    }
}

/// `path` below `folder`, with every part valid on every file system.
fn safe_path(folder: &str, path: &str) -> Option<DocPath> {
    let parts: Vec<String> = path.split('/').map(safe_name).collect();
    let whole = format!("{folder}/{}", parts.join("/"));
    if whole.len() <= MAX_PATH_BYTES {
        return whole.parse().ok();
    }
    // Too deep: use a generated name.
    format!("{folder}/{}/{}", Hash::of(path.as_bytes()).short_hex(), parts.last()?).parse().ok()
}

/// The nearest name that is valid on every file system.
pub(super) fn safe_name(part: &str) -> String {
    let cleaned = sanitize::clean(part).text;
    let odd = |c: char| c.is_control() || "/\\:*?\"<>|".contains(c);
    let plain: String = cleaned.chars().map(|c| if odd(c) { '_' } else { c }).collect();
    let mut name =
        plain.trim_start_matches('.').trim_end_matches(['.', ' ']).trim_start().to_owned();
    if name.len() > MAX_NAME_BYTES {
        let end = name
            .rfind('.')
            .filter(|at| name.len() - at <= 16)
            .map_or(String::new(), |at| name[at..].to_owned());
        name.truncate(name.floor_char_boundary(MAX_NAME_BYTES - 32));
        name = format!(
            "{}-{}{end}",
            name.trim_end_matches(['.', ' ']),
            Hash::of(part.as_bytes()).short_hex()
        );
    }
    if name.parse::<DocPath>().is_ok() {
        return name;
    }
    let marked = format!("_{name}");
    if marked.parse::<DocPath>().is_ok() {
        marked
    } else {
        format!("_{}", Hash::of(part.as_bytes()).short_hex())
    }
}

/// A folder of an older system's summaries, which a vault does not use.
pub(super) fn is_summary_folder(path: &str) -> bool {
    const TIERS: [&str; 5] = ["daily", "weekly", "monthly", "quarterly", "yearly"];
    let parts: Vec<&str> = path.split('/').collect();
    is_inside(path)
        && parts.windows(2).any(|pair| pair[0] == "summaries" && TIERS.contains(&pair[1]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::civil::date;
    use proptest::prelude::*;

    // L18
    #[test]
    fn old_files_are_known_by_their_path() {
        let day = date(2026, 2, 3);
        for (path, expected) in [
            ("SOUL.md", OldFileKind::Identity("SOUL.md")),
            (".claude/state/USER.md", OldFileKind::Identity("USER.md")),
            ("MEMORY.md", OldFileKind::Curated),
            ("memory/MEMORY.md", OldFileKind::Curated),
            ("memory.md", OldFileKind::Facts),
            (".claude/state/memory.md", OldFileKind::Facts),
            (".claude/state/memory/briefing.md", OldFileKind::Briefing),
            ("memory/2026-02-03.md", OldFileKind::Log(day, false)),
            ("2026-02-03.md", OldFileKind::Log(day, false)),
            ("daily/2026-02-03.md", OldFileKind::Log(day, true)),
            ("logs/2026/02/2026-02-03-standup.md", OldFileKind::Log(day, true)),
            ("memory/2026-02-03-standup.md", OldFileKind::Log(day, true)),
            (".claude/state/memory/summaries/24hr.md", OldFileKind::States),
            ("summaries/30day.md", OldFileKind::Days),
            ("summaries/2026.md", OldFileKind::Year),
            ("state/assistant-state.md", OldFileKind::State),
            ("memories/20260203-0915-mira.md", OldFileKind::Memory),
            ("memories/mira.md", OldFileKind::Topic),
            ("second-brain/ideas/a.md", OldFileKind::Inbox("ideas/a.md".into())),
            ("memory/ledger.jsonl", OldFileKind::Ledger),
            // Kinds that the name does not decide.
            ("memory/2026-02-31.md", OldFileKind::Other),
            ("2026-02-03x.md", OldFileKind::Other),
            ("projects/2026-02-03.md", OldFileKind::Other),
            ("primers/daily/2026-02-03.md", OldFileKind::Other),
            ("second-brain/scan.pdf", OldFileKind::Other),
            ("heartbeat-state.json", OldFileKind::Other),
            ("knowledge/MEMORY.md", OldFileKind::Other),
            ("", OldFileKind::Other),
        ] {
            assert_eq!(classify(path), expected, "{path}");
        }
    }

    // L18
    #[test]
    fn hostile_names_become_plain_ones() {
        for (path, place) in [
            ("a.md", "memory/archive/migrated/a.md"),
            ("../x", "memory/archive/migrated/_/x"),
            ("/etc/passwd", "memory/archive/migrated/_/etc/passwd"),
            ("CON.md", "memory/archive/migrated/_CON.md"),
            ("a\\b:c.md", "memory/archive/migrated/a_b_c.md"),
            (".claude/state/x.md", "memory/archive/migrated/claude/state/x.md"),
            ("x\u{202e}dm.exe", "memory/archive/migrated/xdm.exe"),
            ("a\nb.md ", "memory/archive/migrated/a_b.md"),
            ("ledger.jsonl", "memory/archive/migrated/ledger.jsonl.kept"),
            ("2026-02-03 (1).md", "memory/archive/migrated/2026-02-03 (1).md.kept"),
        ] {
            assert_eq!(archive_path(path).unwrap().as_str(), place, "{path:?}");
        }
        let long = format!("{}.md", "ü".repeat(150));
        let place = archive_path(&long).unwrap();
        assert!(place.name().len() <= MAX_NAME_BYTES && place.as_str().ends_with(".md"), "{place}");
        assert_ne!(
            archive_path(&format!("{}a", "x".repeat(400))),
            archive_path(&format!("{}b", "x".repeat(400)))
        );
        let deep = archive_path(&"deep/".repeat(400)).unwrap();
        assert!(deep.as_str().len() < 100, "{deep}");
    }

    // K11
    #[test]
    fn only_folders_of_summaries_go() {
        for (path, goes) in [
            ("summaries/daily", true),
            (".claude/state/memory/summaries/weekly", true),
            ("memory/summaries/monthly/2026", true),
            ("summaries", false),
            ("daily", false),
            ("primers/daily", false),
            ("../summaries/daily", false),
            ("summaries/notes", false),
        ] {
            assert_eq!(is_summary_folder(path), goes, "{path}");
        }
    }

    proptest! {
        // L18
        #[test]
        fn every_name_finds_a_place(path in "[a-zA-Z0-9./\\\\ ~:%]{0,60}|.{0,60}|(/?.{0,300}){0,3}") {
            let place = archive_path(&path);
            prop_assert!(place.is_some(), "{path:?}");
            let place = place.unwrap();
            prop_assert!(place.as_str().starts_with(ARCHIVE) && !place.as_str().ends_with(".jsonl"));
            prop_assert!(conflict_path(&place, b"x").is_some_and(|other| other != place));
            let _ = classify(&path).vault_path(&path);
        }
    }
}
