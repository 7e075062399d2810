//! Taking an older memory folder into a vault (L18, K11).
//!
//! The caller reads the folder and the vault; here it is said what is to be done, step by step, and
//! what becomes of every line. Nothing is destroyed: each old text comes to stand in the vault word
//! for word, as the document it is or as a copy in the archive, and events are learnt from it
//! besides. An old file goes to the archive only after what it holds is kept, and only where the
//! folder is the vault itself; elsewhere the old folder is not touched.
//!
//! A plan is worked out from what is there now, so one that was carried out in part is finished by
//! planning again, and one that was carried out whole leaves nothing to do.

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

/// The field of an event with the id it had in an older ledger.
pub const WAS: &str = "was";
/// A file that is no text and larger than this is left where it is, in bytes.
pub const MAX_BINARY_BYTES: usize = 10 * 1024 * 1024;
/// The most complaints one plan makes; how many more there were is the last of them.
pub const MAX_COMPLAINTS: usize = 1_000;
/// Where the lines of a file stand that is not brought into the vault.
pub const LEFT: &str = "left where it is";

/// A file of the old folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Its path in the folder, parts separated by `/`, as it was found.
    pub path: String,
    /// What it holds.
    pub bytes: Vec<u8>,
    /// When it was last written, if that is known.
    pub modified: Option<Moment>,
}

/// What the vault holds now.
pub struct Vault<'a> {
    /// The document at a path.
    pub documents: &'a dyn Fn(&DocPath) -> Option<Vec<u8>>,
    /// The earliest event, in any standing and also if archived, whose content has that
    /// [`plain::sameness_key`].
    pub said: &'a dyn Fn(&str) -> Option<EventId>,
    /// The event whose field [`WAS`] is that old id and whose content has that key: the line has
    /// been taken before.
    pub taken: &'a dyn Fn(&str, &str) -> Option<EventId>,
    /// The old folder is the vault itself.
    pub in_place: bool,
}

/// What is to be done, and what it comes to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// What to do, in this order. A run that stops anywhere is finished by planning again.
    pub steps: Vec<Step>,
    /// What becomes of each file, by path.
    pub inventory: Vec<Account>,
    /// What a person should look at.
    pub complaints: Vec<String>,
    /// Old ids whose events are in the vault already, for [`Step::Learn`]'s `replaces` and
    /// `related`.
    pub known: Vec<(String, EventId)>,
}

/// One thing to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// A document comes into the vault word for word, where there is none yet.
    Keep {
        /// The old file.
        from: String,
        /// Where it goes.
        to: DocPath,
        /// What it holds.
        bytes: Vec<u8>,
    },
    /// Lines that a document does not have yet are appended to it; it begins with them if there is
    /// none.
    Merge {
        /// The old file.
        from: String,
        /// The document that grows.
        to: DocPath,
        /// What is appended.
        bytes: Vec<u8>,
    },
    /// Something is learnt.
    Learn {
        /// The old file.
        from: String,
        /// Its line, counted from 1.
        line: usize,
        /// The event, cleaned; its references are in `replaces` and `related`.
        draft: Box<Draft>,
        /// Its id in an older ledger, also in the draft's field [`WAS`].
        was: Option<String>,
        /// Old ids of the events it replaces.
        replaces: Vec<String>,
        /// Old ids of the events it belongs with or acts upon.
        related: Vec<String>,
    },
    /// A saved state becomes a record.
    Record {
        /// The old file.
        from: String,
        /// When it was saved.
        at: Moment,
        /// Its title.
        title: Option<String>,
        /// What was saved.
        text: String,
    },
    /// In place only: the old file goes to the archive, now that what it holds is kept.
    Move {
        /// The old file.
        from: String,
        /// Its place there; if a document of the same content stands there, the old file just goes.
        to: DocPath,
    },
    /// In place only: an empty folder of summaries goes; if something is in it after all, it stays.
    RemoveFolder(String),
    /// There is nothing to do.
    Nothing {
        /// The old file.
        from: String,
        /// Why.
        why: String,
    },
}

/// What becomes of one old file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// Its path.
    pub path: String,
    /// Its lines that are not blank.
    pub lines: usize,
    /// Its size.
    pub bytes: usize,
    /// Where its lines stand afterwards, and how many of them: together all of `lines`.
    pub stands: Vec<(String, usize)>,
    /// What is made of them besides: events, log lines, states.
    pub becomes: Vec<(String, usize)>,
}

impl Account {
    /// How many of its lines stand nowhere afterwards; none ever does.
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

/// The plan for people: the inventory before and after, what will be done, and what needs a look.
pub fn report(plan: &Plan) -> String {
    let mut out = String::from(
        "# Migration\n\n## Inventory\n\n| file | lines | bytes | stands in | becomes |\n|---|---:|---:|---|---|\n",
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
        // Writing to a text cannot fail.
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
    out.push_str(&counted("documents kept", &|step| matches!(step, Step::Keep { .. })));
    out.push_str(&counted("documents that grow", &|step| matches!(step, Step::Merge { .. })));
    out.push_str(&counted("events learnt", &|step| matches!(step, Step::Learn { .. })));
    out.push_str(&counted("states recorded", &|step| matches!(step, Step::Record { .. })));
    out.push_str(&counted("old files moved to the archive", &|step| {
        matches!(step, Step::Move { .. })
    }));
    out.push_str(&counted("empty folders removed", &|step| matches!(step, Step::RemoveFolder(_))));
    out.push_str(&counted("files with nothing to do", &|step| {
        matches!(step, Step::Nothing { .. })
    }));
    if !plan.complaints.is_empty() {
        out.push_str("\n## To look at\n\n");
        for complaint in &plan.complaints {
            let _ = writeln!(out, "- {}", plain::one_line(complaint));
        }
    }
    out
}

#[cfg(test)]
mod tests;
