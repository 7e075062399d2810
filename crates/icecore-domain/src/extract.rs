//! The daily log: how a line is added to it, and how its `## Priority Extracts` become events (L1).
//!
//! People and agents write the log with their own editors, so everything here is worked out from the text
//! as it is now and the events already taken from it. Nothing is remembered in between: reading the same
//! text again, after any edit elsewhere in it, takes nothing twice.

use jiff::civil::Date;

use crate::calendar::{Moment, Week, weekday};
use crate::event::{Draft, Kind, Origin, Priority, guess_kind};
use crate::id::EventId;
use crate::layout::DocPath;
use crate::ledger::{Entry, Standing};
use crate::plain;

/// One line of a `## Priority Extracts` section.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Extract {
    /// The line of the log it starts on, counted from 1.
    pub line: usize,
    /// Its priority.
    pub priority: Priority,
    /// Its type, said or guessed.
    pub kind: Kind,
    /// Its text.
    pub text: String,
}

/// An extract that is to become an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taking {
    /// What was found.
    pub extract: Extract,
    /// The event it was before somebody edited the line.
    pub replaces: Option<EventId>,
}

/// Every extract of a log, in order, each text once.
pub fn extracts(log: &str) -> Vec<Extract> {
    let mut found: Vec<Extract> = Vec::new();
    let (mut section, mut fenced, mut open) = (None, false, false);
    for (at, raw) in log.lines().enumerate() {
        let line = raw.trim_end().trim_start_matches('\u{feff}');
        if line.trim_start().starts_with("```") || line.trim_start().starts_with("~~~") {
            fenced = !fenced;
            open = false;
            continue;
        }
        if fenced {
            continue;
        }
        if let Some((level, title)) = heading(line) {
            open = false;
            if is_extracts(title) {
                section = Some(level);
            } else if section.is_some_and(|within| level <= within) {
                section = None;
            }
            continue;
        }
        if section.is_none() || line.trim().is_empty() {
            open = false;
            continue;
        }
        match bullet(line) {
            Some(item) => {
                open = false;
                if let Some(mut extract) = read_item(item) {
                    extract.line = at + 1;
                    found.push(extract);
                    open = true;
                }
            }
            // An indented line goes on with the item above it.
            None if open && line.starts_with([' ', '\t']) => {
                if let Some(last) = found.last_mut() {
                    last.text.push(' ');
                    last.text.push_str(line.trim());
                }
            }
            None => open = false,
        }
    }
    let mut seen: Vec<String> = Vec::new();
    found.retain(|extract| {
        let key = plain::sameness_key(&extract.text);
        let new = !seen.contains(&key);
        seen.push(key);
        new
    });
    found
}

fn heading(line: &str) -> Option<(usize, &str)> {
    let level = line.bytes().take_while(|&b| b == b'#').count();
    let rest = &line[level..];
    ((1..=6).contains(&level) && rest.starts_with([' ', '\t'])).then(|| (level, rest.trim().trim_end_matches('#').trim()))
}

fn is_extracts(title: &str) -> bool {
    title.trim_end_matches(':').eq_ignore_ascii_case("priority extracts")
}

fn bullet(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let rest = line.strip_prefix(['-', '*', '+'])?;
    rest.starts_with([' ', '\t']).then(|| rest.trim_start())
}

/// `[P1] text`, `[P1 decision] text`, `**[P1]** text`, with an optional check box before it.
fn read_item(item: &str) -> Option<Extract> {
    let item = ["[ ] ", "[x] ", "[X] "].iter().find_map(|tick| item.strip_prefix(tick)).unwrap_or(item);
    let item = item.trim_start().trim_start_matches("**");
    let (label, text) = item.strip_prefix('[')?.split_once(']')?;
    let mut words = label.split([' ', ':', ',', '/']).filter(|word| !word.is_empty());
    let priority: Priority = words.next()?.parse().ok()?;
    let text = plain::clean(text.trim_start_matches("**").trim_start_matches(':')).text;
    let kind = words.next().and_then(|word| word.parse().ok()).unwrap_or_else(|| guess_kind(&text));
    (!text.is_empty()).then_some(Extract { line: 0, priority, kind, text })
}

/// How alike two texts must be for one to count as an edit of the other.
const EDITED: f64 = 0.7;

/// Which extracts are not in the ledger yet. `known` are all events whose source is this log, whatever became
/// of them, in the order of the ledger.
pub fn plan(found: &[Extract], known: &[Entry]) -> Vec<Taking> {
    let known: Vec<&Entry> = known.iter().filter(|entry| entry.event.is_statement()).collect();
    let key = |entry: &&Entry| plain::sameness_key(&entry.event.content);
    let present: Vec<String> = found.iter().map(|extract| plain::sameness_key(&extract.text)).collect();
    // What was taken once and is no longer in the text: a line that was edited away.
    let mut gone: Vec<&Entry> =
        known.iter().copied().filter(|entry| entry.standing.is_active() && !present.contains(&key(entry))).collect();

    let mut takings = Vec::new();
    for (extract, text) in found.iter().zip(&present) {
        let same: Vec<&&Entry> = known.iter().filter(|entry| key(entry) == *text).collect();
        let standing = same
            .iter()
            .find(|entry| !matches!(entry.standing, Standing::Superseded { .. }))
            .map(|entry| (entry.standing, entry.event.priority));
        let replaces = match (standing, same.is_empty()) {
            // The same text with another priority: a person weighed it anew.
            (Some((Standing::Active, priority)), _) if priority != extract.priority => {
                same.iter().find(|entry| entry.standing.is_active()).map(|entry| entry.event.id)
            }
            (Some(_), _) => continue,
            // Edited, and edited back: what replaced it is gone from the text.
            (None, false) => match last_of_chain(&same, &gone) {
                Some(head) => Some(head),
                None => continue,
            },
            (None, true) => closest(text, &gone),
        };
        gone.retain(|entry| Some(entry.event.id) != replaces);
        takings.push(Taking { extract: extract.clone(), replaces });
    }
    takings
}

fn last_of_chain(superseded: &[&&Entry], gone: &[&Entry]) -> Option<EventId> {
    superseded.iter().rev().find_map(|entry| entry.standing.by()).filter(|by| gone.iter().any(|entry| entry.event.id == *by))
}

fn closest(text: &str, gone: &[&Entry]) -> Option<EventId> {
    gone.iter()
        .map(|entry| (strsim::normalized_levenshtein(text, &plain::sameness_key(&entry.event.content)), entry.event.id))
        .filter(|(likeness, _)| *likeness >= EDITED)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, id)| id)
}

impl Taking {
    /// The event it becomes.
    pub fn draft(&self, log: &DocPath, now: Moment) -> Draft {
        let mut draft = Draft::new(now, self.extract.kind, self.extract.priority, self.extract.text.clone());
        draft.source = log.to_string();
        draft.origin = Origin::File;
        draft.supersedes = self.replaces.into_iter().collect();
        draft
    }
}

/// The bytes to append to the log of `now`'s day so that it gains one line. `so_far` is its text up to now.
pub fn log_line(so_far: Option<&str>, text: &str, now: Moment) -> String {
    let mut out = String::new();
    match so_far {
        None | Some("") => out.push_str(&title(now.day())),
        Some(so_far) => {
            if !so_far.ends_with('\n') {
                out.push('\n');
            }
            // A plain line must not slip into a section whose lines become events.
            let last = so_far.lines().rev().find_map(heading);
            if last.is_some_and(|(_, title)| is_extracts(title)) {
                out.push_str("\n## Log\n\n");
            }
        }
    }
    let indented = text.lines().collect::<Vec<_>>().join("\n  ");
    out.push_str(&format!("- {} {indented}\n", now.clock()));
    out
}

fn title(day: Date) -> String {
    format!("# {day} {}, {}\n\n", weekday(day), Week::of(day))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::Ledger;

    const SEED: &str = "# Friday\n\nfree text\n\n## Priority Extracts\n- [P0] Client X deadline moved to Feb 15\n- [P1] Decided on tiered pricing model\n- [P2] User prefers bullet points over paragraphs\n";

    fn found(log: &str) -> Vec<String> {
        extracts(log).iter().map(|x| format!("{}:{} {} {}", x.line, x.priority, x.kind, x.text)).collect()
    }

    // L1
    #[test]
    fn extracts_are_found_however_they_are_written() {
        assert_eq!(
            found(SEED),
            [
                "6:P0 fact Client X deadline moved to Feb 15",
                "7:P1 decision Decided on tiered pricing model",
                "8:P2 preference User prefers bullet points over paragraphs",
            ]
        );
        assert_eq!(found(&SEED.replace('\n', "\r\n")).len(), 3);
        assert_eq!(
            found("### priority extracts:\n* [p1 commitment] **x**\n+ [ ] [P2] y\n- **[P3]** z\n"),
            ["2:P1 commitment **x**", "3:P2 fact y", "4:P3 fact z"]
        );
        assert_eq!(found("## Priority Extracts\n- [P1] one\n  goes on\n\n- [P1] One.\n"), ["2:P1 fact one goes on", "5:P1 fact One."]);
    }

    // L1
    #[test]
    fn other_lines_are_no_extracts() {
        for log in [
            "- [P0] outside any section\n",
            "## Priority Extracts\n## Next\n- [P0] after it\n",
            "## Priority Extracts\n```\n- [P0] in a fence\n```\n",
            "## Priority Extracts\n- no label\n- [P7] no such\n- [P1]\n- 14:02 [P0] a log line\nfree [P0] text\n",
            "- 14:02 a log line\n  ## Priority Extracts\n  - [P0] smuggled in by its text\n",
        ] {
            assert_eq!(found(log), [] as [String; 0], "{log}");
        }
        assert_eq!(found("## Priority Extracts\n### Sub\n- [P0] still inside\n").len(), 1);
    }

    /// Takes the extracts of each version in turn, as runs of icecore would, and returns what is active at the end.
    fn after(versions: &[&str]) -> (usize, Vec<String>) {
        let now = Moment::read("2026-02-13T18:00:00+01:00").unwrap().moment;
        let log = DocPath::log(now.day());
        let mut events = Vec::new();
        for version in versions {
            let known = Ledger::of(events.clone());
            for taking in plan(&extracts(version), known.entries()) {
                let id = EventId::new(now.day(), u32::try_from(events.len()).unwrap() + 1);
                events.push(taking.draft(&log, now).with_id(id));
            }
        }
        let ledger = Ledger::of(events);
        let active = ledger.entries().iter().filter(|entry| entry.standing.is_active());
        (ledger.entries().len(), active.map(|entry| format!("{} {}", entry.event.priority, entry.event.content)).collect())
    }

    fn check(versions: &[&str], events: usize, active: &[&str]) {
        let versions: Vec<String> = versions.iter().map(|v| format!("## Priority Extracts\n{v}")).collect();
        let versions: Vec<&str> = versions.iter().map(String::as_str).collect();
        let (count, found) = after(&versions);
        assert_eq!((count, found.iter().map(String::as_str).collect::<Vec<_>>().as_slice()), (events, active), "{versions:?}");
    }

    // L1
    #[test]
    fn each_line_is_taken_exactly_once_whatever_the_editor_did() {
        check(&["- [P1] one\n", "- [P1] one\n"], 1, &["P1 one"]);
        check(&["- [P1] one\n- [P2] two\n", "- [P2] two\n\ntext\n- [P1]  One.\n"], 2, &["P1 one", "P2 two"]);
        check(&["- [P1] one\n", "- [P1] one\n- [P1] one\n"], 1, &["P1 one"]);
        check(&["- [P1] one\n", "", "- [P1] one\n"], 1, &["P1 one"]);
    }

    // L1
    #[test]
    fn an_edited_line_replaces_what_it_was() {
        let (feb15, feb16) = ("- [P0] Client X deadline moved to Feb 15\n", "- [P0] Client X deadline moved to Feb 16\n");
        check(&[feb15, feb16], 2, &["P0 Client X deadline moved to Feb 16"]);
        check(&[feb15, feb16, feb16], 2, &["P0 Client X deadline moved to Feb 16"]);
        check(&[feb15, feb16, feb15, feb15], 3, &["P0 Client X deadline moved to Feb 15"]);
        check(&["- [P2] one\n", "- [P0] one\n", "- [P0] one\n"], 2, &["P0 one"]);
        check(&["- [P1] Call the dentist\n", "- [P1] Renew the passport\n"], 2, &["P1 Call the dentist", "P1 Renew the passport"]);
    }

    // L1
    #[test]
    fn what_was_taken_back_does_not_return() {
        let now = Moment::read("2026-02-13T18:00:00+01:00").unwrap().moment;
        let taking = Taking { extract: extracts(SEED)[0].clone(), replaces: None };
        let taken = taking.draft(&DocPath::log(now.day()), now).with_id(EventId::new(now.day(), 1));
        let back = Draft::upon(&taken, crate::event::Act::Retract, now, "wrong").with_id(EventId::new(now.day(), 2));
        let ledger = Ledger::of([taken, back]);
        assert_eq!(plan(&extracts(SEED)[..1], ledger.entries()), []);
    }

    // L1
    #[test]
    fn a_log_line_never_lands_among_the_extracts() {
        let now = Moment::read("2026-02-13T14:02:00+01:00").unwrap().moment;
        assert_eq!(log_line(None, "met Client X", now), "# 2026-02-13 Friday, 2026-W07\n\n- 14:02 met Client X\n");
        assert_eq!(log_line(Some("a"), "two\nlines", now), "\n- 14:02 two\n  lines\n");
        let after = [SEED, &log_line(Some(SEED), "x\n## Priority Extracts\n- [P0] evil", now)].concat();
        assert!(after.ends_with("\n## Log\n\n- 14:02 x\n  ## Priority Extracts\n  - [P0] evil\n"), "{after}");
        assert_eq!(extracts(&after).len(), 3);
    }
}
