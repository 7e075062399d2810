//! Priority extracts: how a line is added to the daily log, and how its `## Priority Extracts`
//! become events (L1).
//!
//! People and agents edit the log with their own editors. Everything here is computed from the
//! current text and the events already imported from it; no other state is stored. Reading the same
//! text again, after any edit elsewhere in it, imports nothing twice.

use icecore_text::markdown::{self, CodeFence};
use jiff::civil::Date;

use crate::calendar::{Moment, Week, weekday_name};
use crate::event::{EventDraft, EventType, Origin, Priority, guess_event_type};
use crate::id::EventId;
use crate::layout::DocPath;
use crate::ledger::{EventState, LedgerEntry};
use crate::sanitize;

/// A line of a `## Priority Extracts` section.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PriorityExtract {
    /// The line of the log it starts on, counted from 1.
    pub line: usize,
    pub priority: Priority,
    /// Explicit or guessed.
    pub kind: EventType,
    /// Whether the line names its type.
    pub has_explicit_kind: bool,
    pub text: String,
}

/// An extract that will become an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExtractImport {
    pub extract: PriorityExtract,
    /// The event of this line before it was edited.
    pub replaces: Option<EventId>,
}

/// The parsed log: its extracts, and lines that are almost extracts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ParsedExtracts {
    /// In order, without duplicates.
    pub found: Vec<PriorityExtract>,
    /// Skipped or odd lines and the reasons.
    pub complaints: Vec<(usize, String)>,
    /// The heading level of the extracts section that the text ends in, if it does.
    pub open_section: Option<usize>,
}

/// Parses the extracts of a log.
pub fn parse_extracts(log: &str) -> ParsedExtracts {
    let mut found: Vec<PriorityExtract> = Vec::new();
    let mut complaints = Vec::new();
    let (mut section, mut hidden, mut open) = (None, HiddenBlocks::default(), false);
    for (at, raw) in log.lines().enumerate() {
        let line = raw.trim_end().trim_start_matches('\u{feff}');
        if hidden.covers(line) {
            open = false;
            continue;
        }
        let indented = is_indented(line);
        if let Some((level, title)) = markdown::heading(line) {
            open = false;
            if is_extracts_title(title) {
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
        match markdown::bullet(line.trim_start()) {
            Some(item) if !indented => {
                open = false;
                match parse_item(item.text) {
                    Ok((extract, complaint)) => {
                        found.push(PriorityExtract { line: at + 1, ..extract });
                        complaints.extend(complaint.map(|complaint| (at + 1, complaint)));
                        open = true;
                    }
                    Err(complaint) => complaints.push((at + 1, complaint)),
                }
            }
            // An indented line continues the item above it.
            _ if open && indented => {
                if let Some(last) = found.last_mut() {
                    last.text.push(' ');
                    last.text.push_str(line.trim());
                }
            }
            _ => open = false,
        }
    }
    let mut seen: Vec<String> = Vec::new();
    found.retain(|extract| {
        let key = sanitize::sameness_key(&extract.text);
        let new = !seen.contains(&key);
        if !new {
            complaints.push((extract.line, "repeats a line above; skipped".into()));
        }
        seen.push(key);
        new
    });
    ParsedExtracts { found, complaints, open_section: section }
}

/// The numbers of all lines in a section of extracts, whether they are extracts or not.
pub fn section_lines(log: &str) -> impl Iterator<Item = usize> + '_ {
    let (mut section, mut hidden) = (None, HiddenBlocks::default());
    log.lines().enumerate().filter_map(move |(at, line)| {
        let line = line.trim_end().trim_start_matches('\u{feff}');
        if !hidden.covers(line)
            && let Some((level, title)) = markdown::heading(line)
        {
            if is_extracts_title(title) {
                section = Some(level);
            } else if section.is_some_and(|within| level <= within) {
                section = None;
            }
        }
        section.map(|_| at + 1)
    })
}

/// Parts of a log that contain neither headings nor extracts: fenced code and comments.
#[derive(Default)]
struct HiddenBlocks {
    fence: CodeFence,
    is_comment: bool,
}

impl HiddenBlocks {
    /// Reads the next line and returns whether it belongs to such a part.
    fn covers(&mut self, line: &str) -> bool {
        let is_fenced = self.fence.is_open();
        if self.is_comment || (!is_fenced && !is_indented(line) && line.starts_with("<!--")) {
            self.is_comment = !line.contains("-->");
            return true;
        }
        // Only an unindented line opens a fence.
        (is_fenced || !is_indented(line)) && self.fence.covers_line(line)
    }
}

/// Whether a line is indented and therefore continues the line above. The further lines of text
/// added by `log` are indented, so they cannot be parsed as a bullet, a heading or a fence.
fn is_indented(line: &str) -> bool {
    line.starts_with("  ") || line.starts_with('\t')
}

fn is_extracts_title(title: &str) -> bool {
    title.trim_end_matches(':').eq_ignore_ascii_case("priority extracts")
}

/// Parses `[P1] text`, `[P1 decision] text`, `**[P1]** text`, `P1: text`, with an optional check
/// box before it. Returns a complaint next to the extract, or the reason why it is not one.
fn parse_item(item: &str) -> Result<(PriorityExtract, Option<String>), String> {
    let none = || "has no priority like [P1]; skipped".to_owned();
    let item = markdown::check_box(item).map_or(item, |(rest, _)| rest);
    let item = item.trim_start().trim_start_matches("**");
    let (label, text) = match item.strip_prefix('[') {
        Some(rest) => rest.split_once(']'),
        None => item.split_once(':').filter(|(label, _)| label.len() == 2),
    }
    .ok_or_else(none)?;
    let mut words = label.split([' ', ':', ',', '/']).filter(|word| !word.is_empty());
    let priority: Priority = words.next().unwrap_or_default().parse().map_err(|_| none())?;
    let cleaned = sanitize::clean(text.trim_start_matches("**").trim_start_matches(':'));
    let text = cleaned.text;
    if text.is_empty() {
        return Err("has a priority but no text; skipped".into());
    }
    if text.len() > 4 && text.starts_with("~~") && text.ends_with("~~") {
        return Err(
            "is struck through; skipped (use `icecore retract` to retract its event)".into()
        );
    }
    let said = words.next().map(str::parse::<EventType>);
    let complaint = match &said {
        Some(Err(error)) => Some(format!("names an unknown type; guessed one instead: {error}")),
        _ if cleaned.removed > 0 => {
            Some(format!("had {} control characters; removed them", cleaned.removed))
        }
        _ => None,
    };
    let (kind, kind_said) = said
        .and_then(Result::ok)
        .map_or_else(|| (guess_event_type(&text), false), |kind| (kind, true));
    Ok((PriorityExtract { line: 0, priority, kind, has_explicit_kind: kind_said, text }, complaint))
}

/// Minimum similarity of an edited text to the original, wherever it is.
const MIN_EDIT_SIMILARITY: f64 = 0.7;
/// Minimum similarity of an edited text that is exactly where the original was.
const MIN_IN_PLACE_SIMILARITY: f64 = 0.45;

/// Plans which extracts to import. `known` are all events whose source is this log, in any state,
/// in ledger order.
pub fn plan_imports(found: &[PriorityExtract], known: &[LedgerEntry]) -> Vec<ExtractImport> {
    let known: Vec<&LedgerEntry> =
        known.iter().filter(|entry| entry.event.is_statement()).collect();
    let key = |entry: &&LedgerEntry| sanitize::sameness_key(&entry.event.content);
    let present: Vec<String> =
        found.iter().map(|extract| sanitize::sameness_key(&extract.text)).collect();
    // Imported before and no longer in the text: a line that was edited or removed.
    let mut gone: Vec<&LedgerEntry> = known
        .iter()
        .copied()
        .filter(|entry| entry.state.is_active() && !present.contains(&key(entry)))
        .collect();

    let mut takings = Vec::new();
    for (at, (extract, text)) in found.iter().zip(&present).enumerate() {
        let same: Vec<&&LedgerEntry> = known.iter().filter(|entry| key(entry) == *text).collect();
        let is_gone = |id: &EventId| gone.iter().any(|entry| entry.event.id == *id);
        let standing =
            same.iter().rev().find(|entry| !matches!(entry.state, EventState::Superseded { .. }));
        let replaces = match (standing, same.is_empty()) {
            // The same text with another priority or type: a person reclassified it.
            (Some(entry), _) if entry.state.is_active() && is_reclassified(extract, entry) => {
                Some(entry.event.id)
            }
            (Some(_), _) => continue,
            // Edited and reverted: the event that replaced it is no longer in the text.
            (None, false) => match head_of_chain(&same, &known).filter(is_gone) {
                Some(head) => Some(head),
                None => continue,
            },
            (None, true) => closest(text, &gone)
                .or_else(|| replaced_in_place(at, &present, &known).filter(is_gone)),
        };
        gone.retain(|entry| Some(entry.event.id) != replaces);
        takings.push(ExtractImport { extract: extract.clone(), replaces });
    }
    takings
}

fn is_reclassified(extract: &PriorityExtract, entry: &LedgerEntry) -> bool {
    extract.priority != entry.event.priority
        || (extract.has_explicit_kind && extract.kind != entry.event.kind)
}

/// The event at the end of the chain that replaced these, as far as it stays within this log.
fn head_of_chain(superseded: &[&&LedgerEntry], known: &[&LedgerEntry]) -> Option<EventId> {
    let mut head = superseded.last()?.state.ended_by()?;
    // Acts refer only to earlier events, so a chain has no more links than there are events.
    for _ in 0..known.len() {
        match known.iter().find(|entry| entry.event.id == head).map(|entry| entry.state) {
            Some(EventState::Superseded { by }) => head = by,
            _ => break,
        }
    }
    Some(head)
}

/// The event that was between the same two lines, if the texts are similar enough for an edit.
fn replaced_in_place(at: usize, present: &[String], known: &[&LedgerEntry]) -> Option<EventId> {
    let keys: Vec<String> =
        known.iter().map(|entry| sanitize::sameness_key(&entry.event.content)).collect();
    let place = |text: &String| keys.iter().rposition(|key| key == text);
    let after = match at.checked_sub(1) {
        None => 0,
        Some(before) => place(&present[before])? + 1,
    };
    let until = present.get(at + 1).map_or(Some(keys.len()), place)?;
    let between: Vec<usize> = (after..until).filter(|&at| known[at].state.is_active()).collect();
    let [only] = between.as_slice() else { return None };
    (text_similarity(&present[at], &keys[*only]) >= MIN_IN_PLACE_SIMILARITY)
        .then(|| known[*only].event.id)
}

/// Similarity of two texts, from 0 to 1. Only the beginning of long texts counts, because the cost
/// is quadratic.
fn text_similarity(one: &str, other: &str) -> f64 {
    const MAX_COMPARED_CHARS: usize = 600;
    let beginning = |text: &str| text.chars().take(MAX_COMPARED_CHARS).collect::<String>();
    strsim::normalized_levenshtein(&beginning(one), &beginning(other))
}

fn closest(text: &str, gone: &[&LedgerEntry]) -> Option<EventId> {
    gone.iter()
        .map(|entry| {
            (text_similarity(text, &sanitize::sameness_key(&entry.event.content)), entry.event.id)
        })
        .filter(|(likeness, _)| *likeness >= MIN_EDIT_SIMILARITY)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, id)| id)
}

impl ExtractImport {
    /// The event draft.
    pub fn draft(&self, log: &DocPath, now: Moment) -> EventDraft {
        let mut draft = EventDraft::new(
            now,
            self.extract.kind,
            self.extract.priority,
            self.extract.text.clone(),
        );
        draft.source = log.to_string();
        draft.origin = Origin::File;
        draft.supersedes = self.replaces.into_iter().collect();
        draft
    }
}

/// The bytes to append to the log of `now`'s day to add one line. `so_far` is its current text.
pub fn format_log_line(so_far: Option<&str>, text: &str, now: Moment) -> String {
    let mut out = String::new();
    match so_far {
        None | Some("") => out.push_str(&log_title(now.day())),
        Some(so_far) => {
            if !so_far.ends_with('\n') {
                out.push('\n');
            }
            // A plain line must not become part of a section whose lines become events.
            if let Some(level) = parse_extracts(so_far).open_section {
                out.push_str(&format!("\n{} Log\n\n", "#".repeat(level)));
            }
        }
    }
    let indented = text.lines().collect::<Vec<_>>().join("\n  ");
    out.push_str(&format!("- {} {indented}\n", now.clock_time()));
    out
}

fn log_title(day: Date) -> String {
    format!("# {day} {}, {}\n\n", weekday_name(day), Week::containing(day))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::Ledger;

    const LOG: &str = "# Friday\n\nfree text\n\n## Priority Extracts\n- [P0] The pilot starts on March 15\n- [P1] Decided on one price for all\n- [P2] Ana prefers short answers\n";

    fn extract_lines(log: &str) -> Vec<String> {
        parse_extracts(log)
            .found
            .iter()
            .map(|x| format!("{}:{} {} {}", x.line, x.priority, x.kind, x.text))
            .collect()
    }

    // L1
    #[test]
    fn extracts_are_found_however_they_are_written() {
        assert_eq!(
            extract_lines(LOG),
            [
                "6:P0 fact The pilot starts on March 15",
                "7:P1 decision Decided on one price for all",
                "8:P2 preference Ana prefers short answers",
            ]
        );
        assert_eq!(extract_lines(&LOG.replace('\n', "\r\n")).len(), 3);
        assert_eq!(
            extract_lines(
                "### priority extracts:\n* [p1 commitment] **x**\n+ [ ] [P2] y\n- **[P3]** z\n"
            ),
            ["2:P1 commitment **x**", "3:P2 fact y", "4:P3 fact z"]
        );
        assert_eq!(
            extract_lines("## Priority Extracts\n- [P1] one\n  goes on\n\n- [P1] One.\n"),
            ["2:P1 fact one goes on", "5:P1 fact One."]
        );
    }

    // L1
    #[test]
    fn other_lines_are_no_extracts() {
        for log in [
            "- [P0] outside any section\n",
            "## Priority Extracts\n## Next\n- [P0] after it\n",
            "## Priority Extracts\n```\n- [P0] in a fence\n```\n",
            "## Priority Extracts\n- no label\n- [P7] no such\n- [P1]\n- 14:02 [P0] a log line\nfree [P0] text\n",
            "## Priority Extracts\n<!--\n- [P1] commented out\n-->\n<!-- - [P1] likewise -->\n",
            "- 14:02 a log line\n  ## Priority Extracts\n  - [P0] smuggled in by its text\n",
        ] {
            assert_eq!(extract_lines(log), [] as [String; 0], "{log}");
        }
        assert_eq!(extract_lines("## Priority Extracts\n### Sub\n- [P0] still inside\n").len(), 1);
    }

    // L1
    #[test]
    fn a_fence_ends_where_its_own_mark_ends_it() {
        let section = "## Priority Extracts\n- [P0] real\n";
        for (before, is_seen) in [
            // A mark inside another fence neither closes it nor opens one.
            ("~~~\n```\n~~~\n", true),
            ("```\n~~~\n```\n", true),
            ("````\n```\n````\n", true),
            ("```sh\n```sh\n```\n", true),
            ("````\n```\n", false),
            ("```\n~~~\n", false),
            ("```\n```text\n", false),
            // Inline code is not a fence, either.
            ("```one line```\n", true),
            ("```\n<!--\n```\n", true),
            ("```\ncode\n   ```\n", true),
            ("```\ncode\n    ```\n", false),
        ] {
            let log = format!("{before}{section}");
            assert_eq!(extract_lines(&log).len(), usize::from(is_seen), "{log}");
            assert_eq!(section_lines(&log).count(), if is_seen { 2 } else { 0 }, "{log}");
        }
        // A heading in a fence does not end the section.
        let log = "## Priority Extracts\n```\n## Other\n```\n- [P0] still inside\n";
        assert_eq!((extract_lines(log).len(), section_lines(log).count()), (1, 5));
    }

    // L1
    #[test]
    fn what_is_passed_over_is_said() {
        let read = parse_extracts(
            "## Priority Extracts\n- P1: short form\n1. [P2] numbered\n- no label\n- [P4] x\n- [P1 todo] y\n- [P1]\n",
        );
        assert_eq!(
            read.found.iter().map(|x| x.text.as_str()).collect::<Vec<_>>(),
            ["short form", "numbered", "y"]
        );
        assert_eq!(read.complaints.iter().map(|(line, _)| *line).collect::<Vec<_>>(), [4, 5, 6, 7]);
        assert!(
            read.complaints[2].1.contains("`todo` is not an event type"),
            "{:?}",
            read.complaints
        );
    }

    /// Imports the extracts of each version in turn, as separate runs would, and returns the active
    /// events at the end.
    fn after(versions: &[&str]) -> (usize, Vec<String>) {
        let now = Moment::parse("2026-02-13T18:00:00+01:00").unwrap().moment;
        let log = DocPath::log(now.day());
        let mut events = Vec::new();
        for version in versions {
            let known = Ledger::from_events(events.clone());
            for taking in plan_imports(&parse_extracts(version).found, known.entries()) {
                let id = EventId::new(now.day(), u32::try_from(events.len()).unwrap() + 1);
                events.push(taking.draft(&log, now).with_id(id));
            }
        }
        let ledger = Ledger::from_events(events);
        let active = ledger.entries().iter().filter(|entry| entry.state.is_active());
        (
            ledger.entries().len(),
            active
                .map(|entry| format!("{} {}", entry.event.priority, entry.event.content))
                .collect(),
        )
    }

    fn check(versions: &[&str], events: usize, active: &[&str]) {
        let versions: Vec<String> =
            versions.iter().map(|v| format!("## Priority Extracts\n{v}")).collect();
        let versions: Vec<&str> = versions.iter().map(String::as_str).collect();
        let (count, found) = after(&versions);
        assert_eq!(
            (count, found.iter().map(String::as_str).collect::<Vec<_>>().as_slice()),
            (events, active),
            "{versions:?}"
        );
    }

    // L1
    #[test]
    fn each_line_is_taken_exactly_once_whatever_the_editor_did() {
        check(&["- [P1] one\n", "- [P1] one\n"], 1, &["P1 one"]);
        check(
            &["- [P1] one\n- [P2] two\n", "- [P2] two\n\ntext\n- [P1]  One.\n"],
            2,
            &["P1 one", "P2 two"],
        );
        check(&["- [P1] one\n", "- [P1] one\n- [P1] one\n"], 1, &["P1 one"]);
        check(&["- [P1] one\n", "", "- [P1] one\n"], 1, &["P1 one"]);
    }

    // L1
    #[test]
    fn an_edited_line_replaces_what_it_was() {
        let (feb15, feb16) =
            ("- [P0] The pilot starts on March 15\n", "- [P0] The pilot starts on March 16\n");
        check(&[feb15, feb16], 2, &["P0 The pilot starts on March 16"]);
        check(&[feb15, feb16, feb16], 2, &["P0 The pilot starts on March 16"]);
        check(&[feb15, feb16, feb15, feb15], 3, &["P0 The pilot starts on March 15"]);
        check(&["- [P2] one\n", "- [P0] one\n", "- [P0] one\n"], 2, &["P0 one"]);
        let budget = |p: &str, n: usize| format!("- [{p}] Budget is {n} EUR\n");
        let history = [
            budget("P1", 500),
            budget("P1", 600),
            budget("P0", 600),
            budget("P0", 500),
            budget("P0", 500),
        ];
        check(&history.each_ref().map(String::as_str), 4, &["P0 Budget is 500 EUR"]);
        check(
            &[
                "- [P2 commitment] Call Carol\n",
                "- [P2 fact] Call Carol\n",
                "- [P2 fact] Call Carol\n",
            ],
            2,
            &["P2 Call Carol"],
        );
        check(&["- [P1] Use Rust\n", "- [P1] Use Zig\n"], 2, &["P1 Use Zig"]);
        check(
            &[
                "- [P1] a b c\n- [P1] Ask Bob\n- [P1] d e f\n",
                "- [P1] a b c\n- [P1] Ask Ann\n- [P1] d e f\n",
            ],
            4,
            &["P1 a b c", "P1 d e f", "P1 Ask Ann"],
        );
        check(
            &["- [P1] Call the dentist\n", "- [P1] Renew the passport\n"],
            2,
            &["P1 Call the dentist", "P1 Renew the passport"],
        );
    }

    // L1
    #[test]
    fn what_was_taken_back_does_not_return() {
        let now = Moment::parse("2026-02-13T18:00:00+01:00").unwrap().moment;
        let taking =
            ExtractImport { extract: parse_extracts(LOG).found[0].clone(), replaces: None };
        let taken = taking.draft(&DocPath::log(now.day()), now).with_id(EventId::new(now.day(), 1));
        let back = EventDraft::new_act(&taken, crate::event::Act::Retract, now, "wrong")
            .with_id(EventId::new(now.day(), 2));
        let ledger = Ledger::from_events([taken, back]);
        assert_eq!(plan_imports(&parse_extracts(LOG).found[..1], ledger.entries()), []);
    }

    // L1
    #[test]
    fn a_log_line_never_lands_among_the_extracts() {
        let now = Moment::parse("2026-02-13T14:02:00+01:00").unwrap().moment;
        assert_eq!(
            format_log_line(None, "met Client X", now),
            "# 2026-02-13 Friday, 2026-W07\n\n- 14:02 met Client X\n"
        );
        assert_eq!(format_log_line(Some("a"), "two\nlines", now), "\n- 14:02 two\n  lines\n");
        let after = [LOG, &format_log_line(Some(LOG), "x\n## Priority Extracts\n- [P0] evil", now)]
            .concat();
        assert!(
            after.ends_with("\n## Log\n\n- 14:02 x\n  ## Priority Extracts\n  - [P0] evil\n"),
            "{after}"
        );
        assert_eq!(parse_extracts(&after).found.len(), 3);
        // Not under a heading within the section, not in a section of another level, and not by
        // closing a fence.
        for so_far in [
            "## Priority Extracts\n### Client X\n",
            "# Priority Extracts\n- [P1] one\n",
            "## Priority Extracts\n```\ncode\n",
        ] {
            let before = parse_extracts(so_far).found.len();
            for text in
                ["note\n- [P0] evil", "```\n- [P0] evil\n```", "-->\n[P0] evil", "[P0] evil"]
            {
                let after = [so_far, &format_log_line(Some(so_far), text, now)].concat();
                assert_eq!(parse_extracts(&after).found.len(), before, "{after}");
            }
        }
    }
}
