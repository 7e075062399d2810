//! The layout of a vault: the paths of its files, and the kind of each file.

use std::fmt;
use std::str::FromStr;

use jiff::civil::Date;

use crate::record::RecordKind;

/// The policy of a vault; a folder with this file is a vault.
pub const CONFIG: &str = "icecore.toml";
/// The event ledger.
pub const LEDGER: &str = "memory/ledger.jsonl";
/// Ids of open commitments, for readers without icecore.
pub const OPEN_LOOPS: &str = "memory/index/open-loops.json";
/// The path prefix of compaction archives; a year and `.jsonl` follow.
pub const LEDGER_ARCHIVE: &str = "memory/ledger-archive-";
/// The folder of pruned events.
pub const PRUNED: &str = "memory/archive/";
/// The progress of consolidation.
pub const CHECKPOINT: &str = "memory/checkpoint.json";
/// The last result of `verify`.
pub const INTEGRITY: &str = "memory/integrity.json";
/// Every result of `verify` that changed something, for people.
pub const INTEGRITY_LOG: &str = "memory/integrity-log.md";
/// All messages, one file per local day.
pub const MESSAGES: &str = "memory/messages";
/// All saved states, one file per local day.
pub const SNAPSHOTS: &str = "memory/snapshots";
/// Every accepted version of every summary.
pub const SUMMARIES: &str = "memory/summaries.jsonl";
/// The runs of the jobs.
pub const RUNS: &str = "memory/runs.jsonl";
/// The progress of imports by file.
pub const IMPORTS: &str = "memory/imports.jsonl";
/// Days that the user marked as important or dull.
pub const MARKS: &str = "memory/marks.jsonl";
/// Rejected summaries that wait for a person, and their outcome.
pub const REVIEW: &str = "memory/review.jsonl";
/// Tombstones of forgotten content.
pub const FORGOTTEN: &str = "memory/forgotten.jsonl";
/// The state that an assistant saved last.
pub const STATE: &str = "memory/state/assistant-state.md";
/// The states of the last days, in full.
pub const LAST_DAY: &str = "memory/summaries/24hr.md";
/// The last thirty days, a few sentences each.
pub const LAST_MONTH: &str = "memory/summaries/30day.md";
/// The pack with which a new session starts.
pub const UPLOAD: &str = "primers/upload/UPLOAD_PACKAGE.md";
/// The recall pack: what a session needs to know, on one page.
pub const RECALL: &str = "recall/pack.md";
/// The triggers: words of a prompt that load pages.
pub const TRIGGERS: &str = "recall/triggers.json";
/// The reports of consolidation runs.
pub const REPORTS: &str = "knowledge/consolidation-reports";
/// One file per distilled memory.
pub const MEMORIES: &str = "memory/memories";
/// The files of Anthropic's memory tool.
pub const TOOL: &str = "memory/tool";
/// Earlier versions of those files, one file per month.
pub const TOOL_VERSIONS: &str = "memory/tool-versions";
/// The pauses of capture that the user requested.
pub const PAUSES: &str = "memory/pauses.jsonl";
/// Derived and private files.
pub const PRIVATE: &str = ".icecore";

/// The top-level entries of a vault, which are what a snapshot contains; other files in the folder
/// are foreign.
pub const VAULT_ENTRIES: &[&str] = &[
    CONFIG,
    ".gitignore",
    ".gitattributes",
    "SOUL.md",
    "USER.md",
    "MEMORY.md",
    "prompts",
    "memory",
    "primers",
    "knowledge",
    "recall",
];

/// A path inside a vault: relative, of plain names, never leading out of it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DocPath(String);

/// Why a text is not a path inside a vault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{path}` is no path inside a vault: {why}")]
pub struct DocPathError {
    path: String,
    why: &'static str,
}

impl DocPath {
    /// The path as text, parts separated by `/`.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The daily log of that day.
    pub fn log(day: Date) -> Self {
        Self(format!("memory/{day}.md"))
    }

    /// The record file of that kind and local day.
    pub fn records(kind: RecordKind, day: Date) -> Self {
        Self(match kind {
            RecordKind::Message => format!("{MESSAGES}/{day}.jsonl"),
            RecordKind::State => format!("{SNAPSHOTS}/{day}.jsonl"),
        })
    }

    /// The local day of the records in the file; `None` if it is not a record file.
    pub fn record_day(&self) -> Option<Date> {
        let inner = self.0.strip_prefix(MESSAGES).or_else(|| self.0.strip_prefix(SNAPSHOTS))?;
        let day = inner.strip_prefix('/')?.strip_suffix(".jsonl")?;
        (day.len() == 10).then(|| day.parse().ok()).flatten()
    }

    /// Whether the file contains archived events.
    pub fn is_archive(&self) -> bool {
        let kept = self.0.starts_with(LEDGER_ARCHIVE) || self.0.starts_with(PRUNED);
        kept && self.0.ends_with(".jsonl") && self.0.matches('/').count() <= 2
    }

    /// The folders above the file, outermost first, as paths.
    pub fn folders(&self) -> impl Iterator<Item = &str> {
        self.0.match_indices('/').map(|(at, _)| &self.0[..at])
    }

    /// The last part.
    pub fn name(&self) -> &str {
        self.0.rsplit('/').next().unwrap_or(&self.0)
    }

    /// The kind of the file.
    pub fn file_kind(&self) -> FileKind {
        match self.0.as_str() {
            LEDGER => return FileKind::Ledger,
            OPEN_LOOPS | INTEGRITY => return FileKind::Derived,
            INTEGRITY_LOG => return FileKind::AppendOnly,
            _ => {}
        }
        if let Some(day) = self.log_day() {
            return FileKind::Log(day);
        }
        if self.is_tool_file() {
            return FileKind::View;
        }
        if self.0.starts_with("memory/") && self.0.ends_with(".jsonl") {
            FileKind::AppendOnly
        } else {
            FileKind::View
        }
    }

    /// The day, if it is a daily log.
    pub fn log_day(&self) -> Option<Date> {
        let name = self.0.strip_prefix("memory/")?.strip_suffix(".md")?;
        (name.len() == 10).then(|| name.parse().ok()).flatten()
    }

    /// Whether it is a file of the memory tool, with a name that a model chose.
    pub fn is_tool_file(&self) -> bool {
        self.0.strip_prefix(TOOL).is_some_and(|rest| rest.starts_with('/'))
    }

    /// Whether it belongs to the vault, rather than being a foreign file in its folder.
    pub fn is_vault_file(&self) -> bool {
        self.0.split('/').next().is_some_and(|top| VAULT_ENTRIES.contains(&top))
    }

    /// Whether it looks like a sync program's conflict copy or an unfinished merge.
    pub fn is_sync_leftover(&self) -> bool {
        if self.is_tool_file() {
            return false;
        }
        let name = self.name();
        let stem = name.rsplit_once('.').map_or(name, |(stem, _)| stem);
        let numbered = stem.strip_suffix(')').and_then(|stem| stem.rsplit_once(" (")).is_some_and(
            |(_, number)| {
                !number.is_empty()
                    && (number.bytes().all(|b| b.is_ascii_digit()) || number.contains("conflict"))
            },
        );
        numbered
            || name.contains(".sync-conflict-")
            || name.contains("conflicted copy")
            || name.ends_with(".orig")
            || name.ends_with(".rej")
    }
}

/// The longest path inside a vault.
const MAX_PATH_BYTES: usize = 1024;
/// The longest name that every file system accepts.
const MAX_NAME_BYTES: usize = 255;

impl FromStr for DocPath {
    type Err = DocPathError;

    fn from_str(text: &str) -> Result<Self, DocPathError> {
        let refuse = |why| {
            Err(DocPathError {
                path: crate::sanitize::one_line(text).chars().take(80).collect(),
                why,
            })
        };
        if text.is_empty() || text.len() > MAX_PATH_BYTES {
            return refuse("it is empty or longer than 1024 bytes");
        }
        for part in text.split('/') {
            let stem = part.split('.').next().unwrap_or_default();
            let reserved = ["con", "prn", "aux", "nul"]
                .contains(&stem.to_ascii_lowercase().as_str())
                || (stem.len() == 4
                    && ["com", "lpt"].contains(
                        &stem[..stem.floor_char_boundary(3)].to_ascii_lowercase().as_str(),
                    )
                    && stem.ends_with(|c: char| c.is_ascii_digit()));
            if part.is_empty() || part == "." || part == ".." {
                return refuse("it is absolute, or has an empty, `.` or `..` part");
            }
            if part.len() > MAX_NAME_BYTES {
                return refuse("a name in it is longer than 255 bytes");
            }
            if part.starts_with('.') && part != ".gitignore" && part != ".gitattributes" {
                return refuse("a name in it is hidden");
            }
            if part.contains(|c: char| c.is_control() || "\\:*?\"<>|".contains(c)) {
                return refuse("a name in it has a character that not every file system takes");
            }
            if part.ends_with(['.', ' ']) || reserved {
                return refuse("a name in it is reserved on some systems");
            }
        }
        Ok(Self(text.into()))
    }
}

impl fmt::Display for DocPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// The kind of a file, which determines how it may change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    /// The ledger: grows only by whole lines.
    Ledger,
    /// A daily log: people and agents write it, icecore only appends.
    Log(Date),
    /// Any other append-only file.
    AppendOnly,
    /// Can be rebuilt at any time.
    Derived,
    /// Any other file: a page, a pack, a setting. May be rewritten; an undo restores it.
    View,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    // P8
    #[test]
    fn no_path_leads_out_or_breaks_a_file_system() {
        for good in [
            "icecore.toml",
            "memory/2026-02-13.md",
            "knowledge/entities/apollo-eleven.md",
            "a b/ü.md",
            ".gitignore",
        ] {
            assert!(good.parse::<DocPath>().is_ok(), "{good}");
        }
        let long = "x".repeat(256);
        for bad in [
            "",
            "/etc/passwd",
            "..",
            "a/../b",
            "a//b",
            "a/",
            "./a",
            ".git/config",
            ".icecore/index.db",
            "a\\b",
            "c:x",
            "nul",
            "CON.md",
            "com1.txt",
            "a/aux",
            "x.",
            "x ",
            "a\0b",
            "a\nb",
            "~/x:y",
            "a/.hidden",
            &long,
        ] {
            assert!(bad.parse::<DocPath>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn every_file_has_its_nature() {
        let nature = |path: &str| path.parse::<DocPath>().unwrap().file_kind();
        assert_eq!(nature("memory/ledger.jsonl"), FileKind::Ledger);
        assert_eq!(nature("memory/2026-02-13.md"), FileKind::Log(jiff::civil::date(2026, 2, 13)));
        assert_eq!(nature("memory/2026-02-31.md"), FileKind::View);
        assert_eq!(nature("memory/index/open-loops.json"), FileKind::Derived);
        assert_eq!(nature("memory/ledger-archive-2026.jsonl"), FileKind::AppendOnly);
        assert_eq!(nature("recall/pack.md"), FileKind::View);
        assert_eq!(nature("memory/tool/plan.jsonl"), FileKind::View);
        assert_eq!(nature("memory/tool-versions/2026-02.jsonl"), FileKind::AppendOnly);
    }

    // L12
    #[test]
    fn leftovers_of_sync_programs_are_recognised() {
        let leftover = |path: &str| path.parse::<DocPath>().unwrap().is_sync_leftover();
        for path in [
            "memory/ledger.sync-conflict-20260213-101112-ABCDEFG.jsonl",
            "memory/2026-02-13 (1).md",
            "memory/ledger (Anna's conflicted copy 2026-02-13).jsonl",
            "knowledge/x.md.orig",
        ] {
            assert!(leftover(path), "{path}");
        }
        for path in [
            "memory/2026-02-13.md",
            "knowledge/entities/apollo (program).md",
            "memory/(1)x.md",
            "memory/tool/plan (1).md",
        ] {
            assert!(!leftover(path), "{path}");
        }
    }

    proptest! {
        // P8
        #[test]
        fn whatever_is_accepted_stays_inside(text in "[a-zA-Z0-9./\\\\ ~:%]{0,40}|.{0,40}") {
            if let Ok(path) = text.parse::<DocPath>() {
                let parts = std::path::Path::new(path.as_str()).components();
                for part in parts {
                    prop_assert!(matches!(part, std::path::Component::Normal(_)));
                }
            }
        }
    }
}
