//! Composes a summary from the sources' own sentences, for use without a model or after its draft
//! was refused.

use super::extractive::{self, ExtractLimits, SourceText};
use super::judge::{RequiredItem, SummaryDraft};
use crate::budget::{self, Omission};
use crate::sanitize;
use crate::summary::{Importance, Tier};

/// The size limits of a summary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SummarySize {
    /// The most bytes of headline and body together.
    pub bytes: usize,
    /// The most tokens.
    pub tokens: usize,
    /// The target size in bytes, given the sources.
    pub wanted: usize,
}

/// The longest headline, in bytes.
const MAX_HEADLINE_BYTES: usize = 480;
/// The longest line for a dull day, in bytes.
const MAX_DULL_LINE_BYTES: usize = 240;
/// The shortest text of a required item; below this only its id is named.
const MIN_KEPT_TEXT_BYTES: usize = 60;

/// The target size of a summary: proportional to its sources, between a few lines and the limit of
/// its tier.
pub fn target_bytes(tier: Tier, importance: Importance, sources: usize, most: usize) -> usize {
    let (share, least, patience) = match tier {
        Tier::Session => (35, 300, 4_000),
        Tier::Day => (45, 240, 2_000),
        Tier::Week => (45, 400, 7_000),
        Tier::Month => (40, 600, 9_000),
        Tier::Year => (40, 600, 10_000),
    };
    let wanted = (sources.saturating_mul(share) / 100).clamp(least, patience);
    let wanted = match importance {
        Importance::Important => wanted.saturating_mul(2),
        Importance::Ordinary => wanted,
        Importance::Dull => wanted.min(MAX_DULL_LINE_BYTES),
    };
    wanted.min(most)
}

/// Composes a draft that fits, contains all required items, and adds nothing to the sources.
pub fn compose_draft(
    sources: &[SourceText<'_>],
    must: &[RequiredItem],
    importance: Importance,
    size: SummarySize,
) -> (SummaryDraft, Vec<Omission>) {
    let mut left_out = Vec::new();
    let headline_bytes =
        if importance == Importance::Dull { MAX_DULL_LINE_BYTES } else { MAX_HEADLINE_BYTES }
            .min(size.bytes / 3)
            .max(40);
    let kept = required_lines(must, size.bytes.saturating_sub(headline_bytes + 64), &mut left_out);
    let kept_bytes: usize = kept.iter().map(|line| line.len() + 1).sum();
    let room = size
        .wanted
        .saturating_sub(headline_bytes / 2)
        .max(120)
        .min(size.bytes.saturating_sub(headline_bytes + kept_bytes + 64));
    let lines = if importance == Importance::Dull { 1 } else { 400 };
    let pressed =
        extractive::summarize(sources, ExtractLimits { headline_bytes, body_bytes: room, lines });
    let mut told: Vec<String> =
        pressed.lines.iter().map(|line| sanitize::strip_ornaments(&line.text)).collect();
    told.retain(|line| !line.is_empty() && !must.iter().any(|must| repeats_item(line, must)));
    if importance == Importance::Dull {
        told.clear();
    }
    let mut draft =
        SummaryDraft { headline: strip_labels(&pressed.headline), body: String::new() }.normalize();
    if draft.headline.is_empty() {
        // Only required items, or nothing at all.
        draft.headline = kept.first().map_or("Nothing was said.".into(), |line| {
            budget::truncate_at_word(line.trim_start_matches("- "), headline_bytes)
        });
    }
    let mut gone = pressed.left_out;
    loop {
        draft.body = format_body(&kept, &told);
        let text = format!("{}\n{}", draft.headline, draft.body);
        if text.len() <= size.bytes && budget::estimate_tokens(&text) <= size.tokens {
            break;
        }
        // Sanitizing can lengthen the text, and other scripts cost more tokens; drop the least
        // important line.
        if told.pop().is_some() {
            gone += 1;
        } else if draft.headline.len() > 40 {
            draft.headline = budget::truncate_at_word(&draft.headline, draft.headline.len() / 2);
        } else {
            draft.body = budget::fitting_lines(&draft.body, |text| {
                text.len() + 41 <= size.bytes && budget::estimate_tokens(text) + 11 <= size.tokens
            })
            .0
            .trim_end()
            .to_owned();
            break;
        }
    }
    if gone > 0 {
        left_out.push(Omission::new(format!("{gone} sentences of the sources"), "size limit"));
    }
    (draft, left_out)
}

/// The headline is also read on its own; labels and ids belong in the body.
fn strip_labels(headline: &str) -> String {
    let mut out = String::with_capacity(headline.len());
    let mut rest = headline;
    while let Some(at) = rest.find(['[', '(']) {
        let (before, from) = rest.split_at(at);
        let close = if from.starts_with('[') { ']' } else { ')' };
        let inside = from[1..].split(close).next().unwrap_or_default();
        let label = from.starts_with('[')
            && (inside == "decision"
                || (inside.starts_with('P')
                    && inside.as_bytes().get(1).is_some_and(u8::is_ascii_digit)));
        let id = from.starts_with('(') && inside.starts_with("EVT-") && inside.len() < 20;
        out.push_str(before);
        let end = 1 + inside.len() + close.len_utf8();
        if (label || id) && end <= from.len() {
            if id && out.ends_with(' ') {
                out.pop();
            }
            rest = if label { from[end..].trim_start() } else { &from[end..] };
        } else {
            out.push_str(&from[..1]);
            rest = &from[1..];
        }
    }
    out.push_str(rest);
    out
}

fn format_body(kept: &[String], told: &[String]) -> String {
    let mut text = String::new();
    for (title, lines) in [("## Decided and open", kept), ("## What happened", told)] {
        if lines.is_empty() {
            continue;
        }
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(title);
        text.push('\n');
        for line in lines {
            text.push_str(if line.starts_with("- ") { "" } else { "- " });
            text.push_str(line);
            text.push('\n');
        }
    }
    text.trim_end().to_owned()
}

/// Whether a line repeats a required item.
fn repeats_item(line: &str, must: &RequiredItem) -> bool {
    let begun = line.trim_end_matches("...").trim_end();
    must.id.as_ref().is_some_and(|id| line.contains(id.as_str()))
        || line.contains(&must.text)
        || must.text.contains(begun)
        || begun.ends_with(&must.text)
}

/// The lines of the required items: complete if they fit, else shortened, else by id.
fn required_lines(must: &[RequiredItem], room: usize, left_out: &mut Vec<Omission>) -> Vec<String> {
    let line = |must: &RequiredItem| sanitize::strip_ornaments(&must.to_line());
    let size = |lines: &[String]| lines.iter().map(|line| line.len() + 1).sum::<usize>();
    let mut wanted: Vec<&RequiredItem> = must.iter().collect();
    let mut lines: Vec<String> = wanted.iter().map(|must| line(must)).collect();
    if size(&lines) <= room {
        return lines;
    }
    // Optional decisions go first, and are named.
    let light: Vec<String> = wanted
        .iter()
        .filter(|must| must.is_optional)
        .map(|must| must.id.clone().unwrap_or_else(|| must.text.clone()))
        .collect();
    if !light.is_empty() {
        wanted.retain(|must| !must.is_optional);
        left_out.push(Omission::new(
            format!("decisions {}", budget::truncate_at_word(&light.join(", "), 2_000)),
            "size limit",
        ));
        lines = wanted.iter().map(|must| line(must)).collect();
    }
    if size(&lines) <= room {
        return lines;
    }
    let share = (room / wanted.len().max(1)).saturating_sub(30).max(MIN_KEPT_TEXT_BYTES);
    lines = wanted
        .iter()
        .map(|must| {
            line(&RequiredItem {
                text: budget::truncate_at_word(&must.text, share),
                ..(*must).clone()
            })
        })
        .collect();
    if size(&lines) <= room {
        return lines;
    }
    left_out.push(Omission::new(
        format!("the text of {} events; their ids remain", wanted.len()),
        "size limit",
    ));
    let ids: Vec<String> = wanted
        .iter()
        .map(|must| {
            must.id
                .clone()
                .unwrap_or_else(|| budget::truncate_at_word(&must.text, MIN_KEPT_TEXT_BYTES))
        })
        .collect();
    let mut kept = String::from("-");
    let mut over = 0;
    for id in ids {
        if over > 0 || kept.len() + id.len() + 24 > room {
            over += 1;
        } else {
            kept.push(' ');
            kept.push_str(&id);
        }
    }
    if over > 0 {
        kept.push_str(&format!(" and {over} more"));
        left_out
            .push(Omission::new(format!("{over} required events"), "even their ids do not fit"));
    }
    vec![sanitize::strip_ornaments(&kept)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calendar::Days;
    use crate::cascade::judge::{self, DraftComplaint, DraftCriteria};
    use jiff::civil::date;
    use proptest::prelude::*;

    #[test]
    fn a_headline_has_no_labels() {
        for (text, plain) in [
            ("[P1 decision] Ship it (EVT-20260213-001). Then rest.", "Ship it. Then rest."),
            ("A list [a] and (b) stay.", "A list [a] and (b) stay."),
            ("[decision] we paint [P0", "we paint [P0"),
        ] {
            assert_eq!(strip_labels(text), plain);
        }
    }

    proptest! {
        // P5 P11
        #[test]
        fn whatever_the_sources_the_draft_may_stand(
            texts in proptest::collection::vec("(?s).{0,160}|[A-Z][a-z ]{5,60}\\.", 0..12),
            events in proptest::collection::vec("[A-Za-z0-9 ]{4,200}", 0..12),
            bytes in 700_usize..9_000,
        ) {
            let sources: Vec<SourceText<'_>> = texts.iter().map(|text| SourceText { text, weight: 1.0, speaker: None }).collect();
            let must: Vec<RequiredItem> = events.iter().enumerate().map(|(at, text)| RequiredItem {
                id: Some(format!("EVT-20260213-{:03}", at + 1)),
                label: "P1 fact".into(),
                text: text.clone(),
                is_optional: false,
            }).collect();
            let size = SummarySize { bytes, tokens: bytes / 3, wanted: bytes / 2 };
            let (draft, _) = compose_draft(&sources, &must, Importance::Ordinary, size);
            let all = texts.join("\n") + &must.iter().map(RequiredItem::to_line).collect::<Vec<_>>().join("\n") + "Nothing was said.";
            let days = Days { first: date(2026, 2, 13), last: date(2026, 2, 13) };
            let case = DraftCriteria { days, bytes, tokens: bytes / 3, required: &must, sources: &all, count: texts.len() };
            let complaints = judge::judge_draft(&case, &draft);
            let grave: Vec<&DraftComplaint> = complaints.iter().filter(|complaint| !matches!(complaint, DraftComplaint::Invented(_) | DraftComplaint::Empty)).collect();
            prop_assert!(grave.is_empty(), "{:?} in {:?}", grave, draft);
        }
    }
}
