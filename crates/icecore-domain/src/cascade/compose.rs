//! Composes a summary from the sources' own sentences, for use without a model or after its draft
//! was refused.

use super::judge::{Draft, Must};
use super::press::{self, Room, Source};
use crate::budget::{self, LeftOut};
use crate::plain;
use crate::summary::{Importance, Tier};

/// The size limits of a summary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// The most bytes of headline and body together.
    pub bytes: usize,
    /// The most tokens.
    pub tokens: usize,
    /// The target size in bytes, given the sources.
    pub wanted: usize,
}

/// The longest headline, in bytes.
const HEADLINE_BYTES: usize = 480;
/// The longest line for a dull day, in bytes.
const DULL_BYTES: usize = 240;
/// The shortest text of a required item; below this only its id is named.
const SHORTEST_BYTES: usize = 60;

/// The target size of a summary: proportional to its sources, between a few lines and the limit of
/// its tier.
pub fn wanted(tier: Tier, importance: Importance, sources: usize, most: usize) -> usize {
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
        Importance::Dull => wanted.min(DULL_BYTES),
    };
    wanted.min(most)
}

/// Composes a draft that fits, contains all required items, and adds nothing to the sources.
pub fn compose(
    sources: &[Source<'_>],
    must: &[Must],
    importance: Importance,
    size: Size,
) -> (Draft, Vec<LeftOut>) {
    let mut left_out = Vec::new();
    let headline_bytes = if importance == Importance::Dull { DULL_BYTES } else { HEADLINE_BYTES }
        .min(size.bytes / 3)
        .max(40);
    let kept = keep(must, size.bytes.saturating_sub(headline_bytes + 64), &mut left_out);
    let kept_bytes: usize = kept.iter().map(|line| line.len() + 1).sum();
    let room = size
        .wanted
        .saturating_sub(headline_bytes / 2)
        .max(120)
        .min(size.bytes.saturating_sub(headline_bytes + kept_bytes + 64));
    let lines = if importance == Importance::Dull { 1 } else { 400 };
    let pressed = press::press(sources, Room { headline_bytes, body_bytes: room, lines });
    let mut told: Vec<String> =
        pressed.lines.iter().map(|line| plain::unadorned(&line.text)).collect();
    told.retain(|line| !line.is_empty() && !must.iter().any(|must| says(line, must)));
    if importance == Importance::Dull {
        told.clear();
    }
    let mut draft =
        Draft { headline: without_labels(&pressed.headline), body: String::new() }.tidied();
    if draft.headline.is_empty() {
        // Only required items, or nothing at all.
        draft.headline = kept.first().map_or("Nothing was said.".into(), |line| {
            budget::shortened(line.trim_start_matches("- "), headline_bytes)
        });
    }
    let mut gone = pressed.left_out;
    loop {
        draft.body = body(&kept, &told);
        let text = format!("{}\n{}", draft.headline, draft.body);
        if text.len() <= size.bytes && budget::tokens(&text) <= size.tokens {
            break;
        }
        // Sanitizing can lengthen the text, and other scripts cost more tokens; drop the least
        // important line.
        if told.pop().is_some() {
            gone += 1;
        } else if draft.headline.len() > 40 {
            draft.headline = budget::shortened(&draft.headline, draft.headline.len() / 2);
        } else {
            draft.body = budget::whole_lines(&draft.body, |text| {
                text.len() + 41 <= size.bytes && budget::tokens(text) + 11 <= size.tokens
            })
            .0
            .trim_end()
            .to_owned();
            break;
        }
    }
    if gone > 0 {
        left_out.push(LeftOut::new(format!("{gone} sentences of the sources"), "size limit"));
    }
    (draft, left_out)
}

/// The headline is also read on its own; labels and ids belong in the body.
fn without_labels(headline: &str) -> String {
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

fn body(kept: &[String], told: &[String]) -> String {
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
fn says(line: &str, must: &Must) -> bool {
    let begun = line.trim_end_matches("...").trim_end();
    must.id.as_ref().is_some_and(|id| line.contains(id.as_str()))
        || line.contains(&must.text)
        || must.text.contains(begun)
        || begun.ends_with(&must.text)
}

/// The lines of the required items: complete if they fit, else shortened, else by id.
fn keep(must: &[Must], room: usize, left_out: &mut Vec<LeftOut>) -> Vec<String> {
    let line = |must: &Must| plain::unadorned(&must.line());
    let size = |lines: &[String]| lines.iter().map(|line| line.len() + 1).sum::<usize>();
    let mut wanted: Vec<&Must> = must.iter().collect();
    let mut lines: Vec<String> = wanted.iter().map(|must| line(must)).collect();
    if size(&lines) <= room {
        return lines;
    }
    // Optional decisions go first, and are named.
    let light: Vec<String> = wanted
        .iter()
        .filter(|must| must.may_go)
        .map(|must| must.id.clone().unwrap_or_else(|| must.text.clone()))
        .collect();
    if !light.is_empty() {
        wanted.retain(|must| !must.may_go);
        left_out.push(LeftOut::new(
            format!("decisions {}", budget::shortened(&light.join(", "), 2_000)),
            "size limit",
        ));
        lines = wanted.iter().map(|must| line(must)).collect();
    }
    if size(&lines) <= room {
        return lines;
    }
    let share = (room / wanted.len().max(1)).saturating_sub(30).max(SHORTEST_BYTES);
    lines = wanted
        .iter()
        .map(|must| line(&Must { text: budget::shortened(&must.text, share), ..(*must).clone() }))
        .collect();
    if size(&lines) <= room {
        return lines;
    }
    left_out.push(LeftOut::new(
        format!("the text of {} events; their ids remain", wanted.len()),
        "size limit",
    ));
    let ids: Vec<String> = wanted
        .iter()
        .map(|must| {
            must.id.clone().unwrap_or_else(|| budget::shortened(&must.text, SHORTEST_BYTES))
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
        left_out.push(LeftOut::new(format!("{over} required events"), "even their ids do not fit"));
    }
    vec![plain::unadorned(&kept)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calendar::Days;
    use crate::cascade::judge::{self, Case, Complaint};
    use jiff::civil::date;
    use proptest::prelude::*;

    #[test]
    fn a_headline_has_no_labels() {
        for (text, plain) in [
            ("[P1 decision] Ship it (EVT-20260213-001). Then rest.", "Ship it. Then rest."),
            ("A list [a] and (b) stay.", "A list [a] and (b) stay."),
            ("[decision] we paint [P0", "we paint [P0"),
        ] {
            assert_eq!(without_labels(text), plain);
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
            let sources: Vec<Source<'_>> = texts.iter().map(|text| Source { text, weight: 1.0, speaker: None }).collect();
            let must: Vec<Must> = events.iter().enumerate().map(|(at, text)| Must {
                id: Some(format!("EVT-20260213-{:03}", at + 1)),
                label: "P1 fact".into(),
                text: text.clone(),
                may_go: false,
            }).collect();
            let size = Size { bytes, tokens: bytes / 3, wanted: bytes / 2 };
            let (draft, _) = compose(&sources, &must, Importance::Ordinary, size);
            let all = texts.join("\n") + &must.iter().map(Must::line).collect::<Vec<_>>().join("\n") + "Nothing was said.";
            let days = Days { first: date(2026, 2, 13), last: date(2026, 2, 13) };
            let case = Case { days, bytes, tokens: bytes / 3, must: &must, sources: &all, count: texts.len() };
            let complaints = judge::judge(&case, &draft);
            let grave: Vec<&Complaint> = complaints.iter().filter(|complaint| !matches!(complaint, Complaint::Invented(_) | Complaint::Empty)).collect();
            prop_assert!(grave.is_empty(), "{:?} in {:?}", grave, draft);
        }
    }
}
