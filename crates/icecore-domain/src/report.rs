//! The daily consolidation report: what each nightly run did (L13).

use std::collections::BTreeMap;

use crate::budget;
use crate::calendar::Moment;
use crate::ledger::LedgerEntry;
use crate::ledger::conflict::Conflict;
use crate::sanitize;

/// The results of one consolidation run.
#[derive(Debug, Clone, Default)]
pub struct NightlyRun<'a> {
    /// When the previous run ended.
    pub since: Option<Moment>,
    pub new: &'a [LedgerEntry],
    /// Messages, states and log lines that were read.
    pub pieces: usize,
    /// Proposals that were refused, and why.
    pub refused: &'a [String],
    /// Why model calls were deferred.
    pub deferred: Option<&'a str>,
    /// Pages that the new events touch.
    pub pages: &'a [String],
    /// Memory files that the new events touch.
    pub memories: &'a [String],
    /// Edits in files that could not be imported.
    pub complaints: &'a [String],
    /// Summaries that were written.
    pub summarized: &'a [String],
    /// Summaries that are deferred, and why.
    pub waiting: &'a [String],
    /// Numbers of fresh, stale and dropped statements.
    pub ages: (usize, usize, usize),
    /// What left the ledger, one sentence each.
    pub moved: &'a [String],
    pub conflicts: &'a [Conflict],
    /// Failures of the integrity checks.
    pub findings: &'a [String],
}

/// At most this many lines of each list are shown; the rest are counted.
const MAX_SHOWN_ITEMS: usize = 50;

fn push_list(text: &mut String, items: impl ExactSizeIterator<Item = String>) {
    let all = items.len();
    for item in items.take(MAX_SHOWN_ITEMS) {
        text.push_str(&format!(
            "- {}\n",
            budget::truncate_at_word(&sanitize::one_line(&item), 400)
        ));
    }
    if all > MAX_SHOWN_ITEMS {
        text.push_str(&format!("- and {} more\n", all - MAX_SHOWN_ITEMS));
    }
}

fn push_section(text: &mut String, title: &str, items: &[String]) {
    if !items.is_empty() {
        text.push_str(&format!("\n### {title}\n\n"));
        push_list(text, items.iter().cloned());
    }
}

/// Formats one run as a section of the day's report.
pub fn format_run(at: Moment, night: &NightlyRun<'_>) -> String {
    let mut text = format!("## Run {at}\n\n");
    let since =
        night.since.map_or_else(|| "the first run".to_owned(), |since| format!("since {since}"));
    let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
    for entry in night.new {
        let word = if entry.event.is_statement() {
            entry.event.kind.word()
        } else {
            entry.event.act.word()
        };
        *kinds.entry(word).or_default() += 1;
    }
    let kinds: Vec<String> =
        kinds.into_iter().map(|(word, many)| format!("{many} {word}")).collect();
    let kinds = if kinds.is_empty() { String::new() } else { format!(" ({})", kinds.join(", ")) };
    let waiting = night.new.iter().filter(|entry| entry.is_quarantined()).count();
    let (fresh, stale, dropped) = night.ages;
    text.push_str(&format!("- Period: {since}\n"));
    text.push_str(&format!("- Read: {} messages, states and log lines\n", night.pieces));
    text.push_str(&format!("- New events: {}{kinds}\n", night.new.len()));
    if waiting > 0 {
        text.push_str(&format!(
            "- Waiting for confirmation: {waiting} (`icecore quarantine list`)\n"
        ));
    }
    text.push_str(&format!(
        "- Pages: {}, memory files: {}\n",
        night.pages.len(),
        night.memories.len()
    ));
    text.push_str(&format!("- Summaries written: {}\n", night.summarized.len()));
    text.push_str(&format!(
        "- Statements: {fresh} fresh, {stale} stale, {dropped} no longer shown\n"
    ));
    text.push_str(&format!("- Conflicts: {}\n", night.conflicts.len()));
    text.push_str(&format!(
        "- Integrity: {}\n",
        if night.findings.is_empty() { "ok" } else { "FAILED" }
    ));
    if let Some(why) = night.deferred {
        text.push_str(&format!("- Deferred: {}\n", sanitize::one_line(why)));
    }
    let events: Vec<String> = night
        .new
        .iter()
        .map(|entry| {
            let event = &entry.event;
            let what = if event.is_statement() {
                format!("{} {}", event.priority, event.kind)
            } else {
                event.act.to_string()
            };
            // Quarantined statements are not presented as true.
            if entry.is_quarantined() {
                return format!(
                    "{} [{what}] waits for confirmation, from {} [source: {}]",
                    event.id, event.origin, event.source
                );
            }
            format!("{} [{what}] {} [source: {}]", event.id, event.content, event.source)
        })
        .collect();
    push_section(&mut text, "New events", &events);
    push_section(&mut text, "Pages", night.pages);
    push_section(&mut text, "Memory files", night.memories);
    push_section(&mut text, "Pressed", night.summarized);
    push_section(&mut text, "Waiting", night.waiting);
    push_section(&mut text, "Moved to the archive", night.moved);
    let conflicts: Vec<String> = night
        .conflicts
        .iter()
        .map(|conflict| {
            let ids: Vec<String> = conflict.events.iter().map(ToString::to_string).collect();
            format!("{}: {}", ids.join(" / "), conflict.about)
        })
        .collect();
    push_section(&mut text, "Conflicts", &conflicts);
    if !night.refused.is_empty() {
        // The text comes from a model and is quoted, so that it is not read as a statement.
        text.push_str("\n### Refused or changed proposals\n\n");
        for line in night.refused.iter().take(MAX_SHOWN_ITEMS) {
            text.push_str(&format!(
                "> {}\n>\n",
                budget::truncate_at_word(&sanitize::one_line(line), 400)
            ));
        }
        if night.refused.len() > MAX_SHOWN_ITEMS {
            text.push_str(&format!("> and {} more\n", night.refused.len() - MAX_SHOWN_ITEMS));
        }
    }
    push_section(&mut text, "Could not be imported", night.complaints);
    push_section(&mut text, "Integrity findings", night.findings);
    text
}

/// Adds a run to a day's report. A repeated run replaces its earlier section.
pub fn upsert_run(report: Option<&str>, at: Moment, run: &str) -> String {
    let title = format!("# Consolidation {}\n", at.day());
    let mut text = report.map_or_else(|| title.clone(), str::to_owned);
    let head = format!("## Run {at}\n");
    if let Some(start) = text.find(&head) {
        let end = text[start + head.len()..]
            .find("\n## Run ")
            .map_or(text.len(), |end| start + head.len() + end);
        text.replace_range(start..end, run);
        return text;
    }
    if !text.ends_with("\n\n") {
        text.push('\n');
    }
    text.push_str(run);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    // L13
    #[test]
    fn every_run_of_a_day_stands_in_its_report_once() {
        let at = |text: &str| Moment::parse(text).unwrap().moment;
        let (night, noon) = (at("2026-02-14T03:00:00+01:00"), at("2026-02-14T12:00:00+01:00"));
        let refused = ["\"x\": no source says 7".to_owned()];
        let one = format_run(night, &NightlyRun { refused: &refused, ..NightlyRun::default() });
        let two = format_run(noon, &NightlyRun::default());
        let report = upsert_run(None, night, &one);
        assert!(
            report.starts_with("# Consolidation 2026-02-14\n\n## Run 2026-02-14T03:00:00+01:00\n"),
            "{report}"
        );
        assert!(report.contains("no source says 7"));
        assert_eq!(upsert_run(Some(&report), night, &one), report);
        let both = upsert_run(Some(&report), noon, &two);
        assert_eq!(both.matches("## Run ").count(), 2);
        assert_eq!(upsert_run(Some(&both), night, &one), both);
        assert_eq!(upsert_run(Some(&both), noon, &two), both);
    }
}
