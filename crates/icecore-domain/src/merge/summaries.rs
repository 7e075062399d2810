//! Summaries: every accepted version of every period. If both machines summarized a period, both
//! versions stay, one after the other.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::{MergeInput, lines};
use crate::record::SessionKey;
use crate::summary::{Period, Summary};

/// A set merge of the lines. Two sessions with the same number get two numbers, and so do two
/// versions with the same number; the older one keeps it.
pub(super) fn merge_summaries(sides: MergeInput<'_>) -> Vec<u8> {
    let merged = lines::merge_lines(sides);
    let (mut sessions, mut given): (HashMap<Period, SessionKey>, HashMap<SessionKey, Period>) =
        (HashMap::new(), HashMap::new());
    let mut numbers: BTreeMap<jiff::civil::Date, BTreeSet<u32>> = BTreeMap::new();
    let read: Vec<(&[u8], Option<Summary>)> = lines::content_lines(&merged)
        .map(|line| (line, Summary::parse_line(line.trim_ascii()).ok()))
        .collect();
    for summary in read.iter().filter_map(|(_, summary)| summary.as_ref()) {
        if let Period::Session { day, number } = summary.period {
            numbers.entry(day).or_default().insert(number);
        }
    }
    let mut versions: HashMap<Period, BTreeSet<u32>> = HashMap::new();
    let mut out = Vec::new();
    for (line, summary) in read {
        let Some(mut summary) = summary else {
            out.extend(lines::join_lines([line]));
            continue;
        };
        let before = (summary.period, summary.version);
        if let (Period::Session { day, .. }, Some(key)) = (summary.period, summary.session.clone())
        {
            let owner = sessions.entry(summary.period).or_insert_with(|| key.clone()).clone();
            if let Some(period) = given.get(&key).filter(|_| owner != key) {
                summary.period = *period;
            } else if owner != key {
                let taken = numbers.entry(day).or_default();
                let number = taken.last().copied().unwrap_or(0) + 1;
                taken.insert(number);
                summary.period = Period::Session { day, number };
                sessions.insert(summary.period, key.clone());
            }
            given.entry(key).or_insert(summary.period);
        }
        let known = versions.entry(summary.period).or_default();
        if known.contains(&summary.version) {
            summary.version = known.last().copied().unwrap_or(0) + 1;
        }
        known.insert(summary.version);
        match before == (summary.period, summary.version) {
            true => out.extend(lines::join_lines([line])),
            false => out.extend_from_slice(summary.to_line().as_bytes()),
        }
    }
    out
}
