//! Migration of an older memory folder into a vault (L18, K11).
//!
//! The caller reads the folder and the vault. This module plans the steps and accounts for every
//! line. Nothing is destroyed: each old text is stored in the vault verbatim, as a document or as a
//! copy in the archive; events are extracted in addition. An old file is moved to the archive only
//! after its content is stored, and only where the folder is the vault itself. Elsewhere the old
//! folder is not touched.
//!
//! A plan depends only on the current state. After an interrupted run, planning again yields the
//! remaining steps; after a complete run it yields none.

mod learn;
mod merge;
mod old_file;
mod plan;
pub(crate) mod read;

use std::fmt::Write;

use crate::calendar::Moment;
use crate::event::EventDraft;
use crate::id::EventId;
use crate::layout::DocPath;
use crate::sanitize;

pub use old_file::{ARCHIVE, INBOX, MEMORIES};
pub use plan::plan_migration;
pub use read::{MAX_ITEM_BYTES, MAX_PARAGRAPH_BYTES, MAX_STATEMENTS};

/// The event field with the id that the event had in an older ledger.
pub const OLD_ID_FIELD: &str = "was";
/// A larger binary file is not migrated.
pub const MAX_BINARY_BYTES: usize = 10 * 1024 * 1024;
/// The most complaints of a plan; a last one counts the rest.
pub const MAX_COMPLAINTS: usize = 1_000;
/// The location of lines whose file is not migrated.
pub const LEFT_IN_PLACE: &str = "left in place";

/// A file of the old folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceFile {
    /// Its path in the folder, parts separated by `/`, as found.
    pub path: String,
    pub bytes: Vec<u8>,
    pub modified: Option<Moment>,
}

/// Read access to the current vault.
pub struct VaultView<'a> {
    /// The document at a path.
    pub documents: &'a dyn Fn(&DocPath) -> Option<Vec<u8>>,
    /// The earliest event, in any state and also if archived, whose content has that
    /// [`sanitize::sameness_key`].
    pub event_with_content: &'a dyn Fn(&str) -> Option<EventId>,
    /// The event whose field [`OLD_ID_FIELD`] is that old id and whose content has that key: the
    /// line was migrated by an earlier run.
    pub migrated_event: &'a dyn Fn(&str, &str) -> Option<EventId>,
    /// The old folder is the vault itself.
    pub in_place: bool,
}

/// The steps of a migration with their inventory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MigrationPlan {
    /// In order of execution. After an interrupted run, plan again.
    pub steps: Vec<MigrationStep>,
    /// The account of each file, by path.
    pub inventory: Vec<FileAccount>,
    /// What a person should look at.
    pub complaints: Vec<String>,
    /// Old ids whose events are in the vault already, for `replaces` and `related` of
    /// [`MigrationStep::Learn`].
    pub known_old_ids: Vec<(String, EventId)>,
}

/// One step of a migration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MigrationStep {
    /// Copies a document into the vault verbatim, where there is none yet.
    Keep { from: String, to: DocPath, bytes: Vec<u8> },
    /// Appends the lines that a document does not have yet; creates the document if needed.
    Merge {
        from: String,
        /// The extended document.
        to: DocPath,
        /// The appended bytes.
        bytes: Vec<u8>,
    },
    /// Adds an event.
    Learn {
        from: String,
        /// The line number in the old file, from 1.
        line: usize,
        /// The sanitized event; its references are in `replaces` and `related`.
        draft: Box<EventDraft>,
        /// Its id in an older ledger, also in the draft's field [`OLD_ID_FIELD`].
        was: Option<String>,
        /// Old ids of the events it replaces.
        replaces: Vec<String>,
        /// Old ids of the events it is related to or acts upon.
        related: Vec<String>,
    },
    /// Turns a saved state into a record.
    Record {
        from: String,
        /// When it was saved.
        at: Moment,
        title: Option<String>,
        text: String,
    },
    /// In place only: moves the old file to the archive, after its content is stored.
    Move {
        from: String,
        /// The path in the archive. If the same content is there already, the old file is deleted.
        to: DocPath,
    },
    /// In place only: removes a folder of summaries, if it is empty.
    RemoveFolder(String),
    /// There is nothing to do.
    Nothing { from: String, why: String },
}

/// What becomes of one old file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileAccount {
    pub path: String,
    /// The number of lines that are not blank.
    pub lines: usize,
    pub bytes: usize,
    /// Where its lines are stored, with the number of lines; adds up to `lines`.
    pub stored_in: Vec<(String, usize)>,
    /// What is made of them in addition: events, log lines, states.
    pub produced: Vec<(String, usize)>,
}

impl FileAccount {
    /// The number of lines that are stored nowhere; always 0.
    pub fn missing_lines(&self) -> usize {
        self.lines.saturating_sub(self.stored_in.iter().map(|(_, lines)| lines).sum())
    }
}

impl MigrationPlan {
    /// Whether nothing is to be done.
    pub fn is_done(&self) -> bool {
        self.steps.iter().all(|step| matches!(step, MigrationStep::Nothing { .. }))
    }
}

/// Renders the plan as Markdown: inventory, steps and complaints.
pub fn render_report(plan: &MigrationPlan) -> String {
    let mut out = String::from(
        "# Migration\n\n## Inventory\n\n| file | lines | bytes | stored in | produces |\n|---|---:|---:|---|---|\n",
    );
    let cell = |text: &str| sanitize::one_line(text).replace('\\', "\\\\").replace('|', "\\|");
    let list = |items: &[(String, usize)]| {
        let items: Vec<String> =
            items.iter().map(|(what, count)| format!("{}: {count}", cell(what))).collect();
        if items.is_empty() { "-".to_owned() } else { items.join(", ") }
    };
    let (mut lines, mut bytes, mut left, mut missing) = (0, 0, 0, 0);
    let mut totals: Vec<(String, usize)> = Vec::new();
    for account in &plan.inventory {
        lines += account.lines;
        bytes += account.bytes;
        missing += account.missing_lines();
        left += account
            .stored_in
            .iter()
            .filter(|(place, _)| place == LEFT_IN_PLACE)
            .map(|(_, lines)| lines)
            .sum::<usize>();
        for (what, count) in &account.produced {
            match totals.iter_mut().find(|(known, _)| known == what) {
                Some((_, total)) => *total += count,
                None => totals.push((what.clone(), *count)),
            }
        }
        let (stands, becomes) = (list(&account.stored_in), list(&account.produced));
        // Writing to a string cannot fail.
        let _ = writeln!(
            out,
            "| {} | {} | {} | {stands} | {becomes} |",
            cell(&account.path),
            account.lines,
            account.bytes
        );
    }
    totals.sort();
    let kept = lines.saturating_sub(left + missing);
    let _ = writeln!(
        out,
        "| **{} files** | {lines} | {bytes} | in the vault: {kept}, {LEFT_IN_PLACE}: {left}, missing: {missing} | {} |",
        plan.inventory.len(),
        list(&totals)
    );
    out.push_str("\n## Steps\n\n");
    let counted = |what: &str, admits: &dyn Fn(&MigrationStep) -> bool| {
        let count = plan.steps.iter().filter(|step| admits(step)).count();
        if count > 0 { format!("- {what}: {count}\n") } else { String::new() }
    };
    out.push_str(&counted("documents copied", &|step| matches!(step, MigrationStep::Keep { .. })));
    out.push_str(&counted("documents extended", &|step| {
        matches!(step, MigrationStep::Merge { .. })
    }));
    out.push_str(&counted("events extracted", &|step| matches!(step, MigrationStep::Learn { .. })));
    out.push_str(&counted("states recorded", &|step| matches!(step, MigrationStep::Record { .. })));
    out.push_str(&counted("old files moved to the archive", &|step| {
        matches!(step, MigrationStep::Move { .. })
    }));
    out.push_str(&counted("empty folders removed", &|step| {
        matches!(step, MigrationStep::RemoveFolder(_))
    }));
    out.push_str(&counted("files with nothing to do", &|step| {
        matches!(step, MigrationStep::Nothing { .. })
    }));
    if !plan.complaints.is_empty() {
        out.push_str("\n## Needs attention\n\n");
        for complaint in &plan.complaints {
            let _ = writeln!(out, "- {}", sanitize::one_line(complaint));
        }
    }
    out
}

#[cfg(test)]
mod tests;
