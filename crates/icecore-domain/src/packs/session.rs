//! The session start pack (K6): the last saved state, the people, the logs of yesterday and today,
//! and the current status, within the client's limit.

use jiff::civil::Date;

use super::{Pack, PackPart, assemble_pack};
use crate::budget::{self, Omission};
use crate::capture_filter;

/// One section of the pack: heading, source and text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionSection {
    pub title: String,
    /// The path of its source.
    pub source: String,
    pub text: String,
}

/// Assembles the sections in order, in at most `room` characters. Each gets at least its first
/// lines while there is space; omitted lines are reported with their source.
pub fn session_start_pack(day: Date, openings: &[SessionSection], room: usize) -> Pack {
    const FRAME_CHARS: usize = 160;
    const MIN_HEADING_CHARS: usize = 60;
    let openings: Vec<&SessionSection> =
        openings.iter().filter(|opening| !opening.text.trim().is_empty()).collect();
    let mut left_out = Vec::new();
    let mut rest = room.saturating_sub(FRAME_CHARS);
    let mut parts = Vec::new();
    for (at, opening) in openings.iter().enumerate() {
        // Later sections keep a fair share, so that a long state does not displace them.
        let later = openings.len() - at - 1;
        let share =
            if later == 0 { rest } else { (rest / 2).max(rest.saturating_sub(later * 1_200)) };
        let room = share.saturating_sub(opening.title.chars().count() + MIN_HEADING_CHARS);
        let text = capture_filter::escape_markers(opening.text.trim());
        let (shown, lines) = budget::fitting_lines(&text, |text| text.chars().count() <= room);
        if lines > 0 {
            left_out.push(Omission::new(
                format!("{lines} lines of {}", opening.source),
                "the client's limit at the start of a session",
            ));
        }
        if shown.trim().is_empty() {
            continue;
        }
        let mut text = shown.trim_end().to_owned();
        if lines > 0 {
            text.push_str(&format!(
                "\n({lines} more lines in {})",
                budget::truncate_at_word(&opening.source, 40)
            ));
        }
        rest = rest.saturating_sub(text.chars().count() + opening.title.chars().count() + 16);
        parts.push(PackPart::new(opening.title.clone(), text));
    }
    let sources = openings.iter().map(|opening| opening.source.clone()).collect();
    let intro = if parts.is_empty() {
        "# Memory is empty\n\nNothing has been saved yet."
    } else {
        "# Memory at the start of this session"
    };
    assemble_pack("session-start", day, intro, &parts, left_out, sources)
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::civil::date;
    use proptest::prelude::*;

    proptest! {
        // K6
        #[test]
        fn it_never_has_more_characters_than_a_client_takes(texts in proptest::collection::vec("(?s).{0,400}|([a-z ]{0,30}\n){0,200}", 0..7), room in 600_usize..9_000) {
            let openings: Vec<SessionSection> = texts.iter().enumerate().map(|(at, text)| SessionSection { title: format!("Part {at}"), source: format!("memory/{at}.md"), text: text.clone() }).collect();
            let pack = session_start_pack(date(2026, 2, 13), &openings, room);
            prop_assert!(pack.text.chars().count() <= room, "{} > {room}", pack.text.chars().count());
            prop_assert_eq!(session_start_pack(date(2026, 2, 13), &openings, room), pack);
        }
    }

    // K6
    #[test]
    fn the_saved_state_comes_first() {
        let opening = |title: &str, text: &str| SessionSection {
            title: title.into(),
            source: "x".into(),
            text: text.into(),
        };
        let pack = session_start_pack(
            date(2026, 2, 13),
            &[opening("Saved state", "on the cascade"), opening("Log", "- met X")],
            9_000,
        );
        let (state, log) =
            (pack.text.find("on the cascade").unwrap(), pack.text.find("met X").unwrap());
        assert!(state < log);
    }
}
