//! Rollouts of Codex: each message once, though a rollout contains it as an item and again as a
//! display event.

use jiff::tz::Offset;
use serde::{Deserialize, Serialize};

use super::{Format, Harvest, Place, Projects, raw};
use crate::record::Said;
use crate::transcript::{Lines, Strand};

/// The most displayed messages that wait for the items that would make them duplicates.
const WAITING: usize = 10_000;

/// Which of the two representations is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Telling {
    Unknown,
    Items,
    /// Display events: the rollout has no items.
    Shown,
}

/// What is needed to continue an import.
#[derive(Serialize, Deserialize)]
struct Left {
    session: Option<String>,
    folder: Option<String>,
    telling: Telling,
}

/// Reads a rollout.
pub(super) struct Reading {
    lines: Lines,
    telling: Telling,
    shown: Vec<(Place, Said)>,
}

impl Reading {
    pub(super) fn new(offset: Offset) -> Self {
        Self { lines: Lines::new(offset, true), telling: Telling::Unknown, shown: Vec::new() }
    }

    pub(super) fn resume(&mut self, left: &str) {
        if let Ok(left) = serde_json::from_str::<Left>(left) {
            self.lines.within = left.session;
            self.lines.about.folder = left.folder;
            self.telling = left.telling;
        }
    }

    pub(super) fn leaves(&self) -> Option<String> {
        let left = Left {
            session: self.lines.within.clone(),
            folder: self.lines.about.folder.clone(),
            telling: self.telling,
        };
        serde_json::to_string(&left).ok()
    }

    pub(super) fn waits_for(&self) -> Option<Place> {
        self.shown.first().map(|(place, _)| *place)
    }

    pub(super) fn line(
        &mut self,
        place: Place,
        json: &str,
        projects: Projects<'_>,
        into: &mut Harvest,
    ) {
        self.lines.line(place.number, json);
        let turns: Vec<(Said, Strand)> = self.lines.take().collect();
        for (mut said, strand) in turns {
            said.conversation = Format::Codex.conversation().map(str::to_owned);
            if let Some(project) = self.lines.about.folder.as_deref().and_then(projects) {
                said.extra.push(("project".into(), raw(&project)));
            }
            self.turn(place, said, strand, into);
        }
        into.hear(&mut self.lines);
    }

    fn turn(&mut self, place: Place, said: Said, strand: Strand, into: &mut Harvest) {
        match (strand, self.telling) {
            (Strand::Echo, Telling::Unknown) => {
                self.shown.push((place, said));
                if self.shown.len() > WAITING {
                    self.finish(into);
                }
            }
            (Strand::Echo, Telling::Items) | (Strand::Item, Telling::Shown) => {
                into.skip("duplicate message", 1)
            }
            (Strand::Item, _) => {
                self.telling = Telling::Items;
                into.skip("duplicate message", self.shown.len());
                self.shown.clear();
                into.say(place.number, said);
            }
            _ => into.say(place.number, said),
        }
    }

    pub(super) fn finish(&mut self, into: &mut Harvest) {
        if !self.shown.is_empty() {
            self.telling = Telling::Shown;
        }
        for (place, said) in self.shown.drain(..) {
            into.say(place.number, said);
        }
    }
}
