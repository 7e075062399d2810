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
mod place;
mod plan;
pub(crate) mod read;

use std::fmt::Write;

use crate::calendar::Moment;
use crate::event::Draft;
use crate::id::EventId;
use crate::layout::DocPath;
use crate::plain;

pub use place::{ARCHIVE, INBOX, MEMORIES};
pub use plan::plan;
pub use read::{MAX_ITEM_BYTES, MAX_PARAGRAPH_BYTES, MAX_STATEMENTS};

/// The event field with the id that the event had in an older ledger.
pub const WAS: &str = "was";
/// A larger binary file is not migrated.
pub const MAX_BINARY_BYTES: usize = 10 * 1024 * 1024;
/// The most complaints of a plan; a last one counts the rest.
pub const MAX_COMPLAINTS: usize = 1_000;
/// The location of lines whose file is not migrated.
pub const LEFT: &str = "left in place";

/// A file of the old folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Its path in the folder, parts separated by `/`, as found.
    pub path: String,
    pub bytes: Vec<u8>,
    pub modified: Option<Moment>,
}

/// Read access to the current vault.
pub struct Vault<'a> {
    /// The document at a path.
    pub documents: &'a dyn Fn(&DocPath) -> Option<Vec<u8>>,
    /// The earliest event, in any state and also if archived, whose content has that
    /// [`sanitize::sameness_key`].
    pub said: &'a dyn Fn(&str) -> Option<EventId>,
    /// The event whose field [`OLD_ID_FIELD`] is that old id and whose content has that key: the
    /// line was migrated by an earlier run.
    pub taken: &'a dyn Fn(&str, &str) -> Option<EventId>,
    /// The old folder is the vault itself.
    pub in_place: bool,
}

/// The steps of a migration with their inventory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// In order of execution. After an interrupted run, plan again.
    pub steps: Vec<Step>,
    /// The account of each file, by path.
    pub inventory: Vec<Account>,
    /// What a person should look at.
    pub complaints: Vec<String>,
    /// Old ids whose events are in the vault already, for `replaces` and `related` of
    /// [`MigrationStep::Learn`].
    pub known: Vec<(String, EventId)>,
}

/// One step of a migration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
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
        draft: Box<Draft>,
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
pub struct Account {
    pub path: String,
    /// The number of lines that are not blank.
    pub lines: usize,
    pub bytes: usize,
    /// Where its lines are stored, with the number of lines; adds up to `lines`.
    pub stands: Vec<(String, usize)>,
    /// What is made of them in addition: events, log lines, states.
    pub becomes: Vec<(String, usize)>,
}

impl Account {
    /// The number of lines that are stored nowhere; always 0.
    pub fn missing(&self) -> usize {
        self.lines.saturating_sub(self.stands.iter().map(|(_, lines)| lines).sum())
    }
}

impl Plan {
    /// Whether nothing is to be done.
    pub fn is_done(&self) -> bool {
        self.steps.iter().all(|step| matches!(step, Step::Nothing { .. }))
    }
}

/// Renders the plan as Markdown: inventory, steps and complaints.
pub fn report(plan: &Plan) -> String {
    let mut out = String::from(
        "# Migration\n\n## Inventory\n\n| file | lines | bytes | stored in | produces |\n|---|---:|---:|---|---|\n",
    );
    let cell = |text: &str| plain::one_line(text).replace('\\', "\\\\").replace('|', "\\|");
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
        missing += account.missing();
        left += account
            .stands
            .iter()
            .filter(|(place, _)| place == LEFT)
            .map(|(_, lines)| lines)
            .sum::<usize>();
        for (what, count) in &account.becomes {
            match totals.iter_mut().find(|(known, _)| known == what) {
                Some((_, total)) => *total += count,
                None => totals.push((what.clone(), *count)),
            }
        }
        let (stands, becomes) = (list(&account.stands), list(&account.becomes));
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
        "| **{} files** | {lines} | {bytes} | in the vault: {kept}, {LEFT}: {left}, missing: {missing} | {} |",
        plan.inventory.len(),
        list(&totals)
    );
    out.push_str("\n## Steps\n\n");
    let counted = |what: &str, admits: &dyn Fn(&Step) -> bool| {
        let count = plan.steps.iter().filter(|step| admits(step)).count();
        if count > 0 { format!("- {what}: {count}\n") } else { String::new() }
    };
    out.push_str(&counted("documents copied", &|step| matches!(step, Step::Keep { .. })));
    out.push_str(&counted("documents extended", &|step| matches!(step, Step::Merge { .. })));
    out.push_str(&counted("events learned", &|step| matches!(step, Step::Learn { .. })));
    out.push_str(&counted("states recorded", &|step| matches!(step, Step::Record { .. })));
    out.push_str(&counted("old files moved to the archive", &|step| {
        matches!(step, Step::Move { .. })
    }));
    out.push_str(&counted("empty folders removed", &|step| matches!(step, Step::RemoveFolder(_))));
    out.push_str(&counted("files with nothing to do", &|step| {
        matches!(step, Step::Nothing { .. })
    }));
    if !plan.complaints.is_empty() {
        out.push_str("\n## Needs attention\n\n");
        for complaint in &plan.complaints {
            let _ = writeln!(out, "- {}", plain::one_line(complaint));
        }
    }
    out
}

#[cfg(test)]
mod tests;
