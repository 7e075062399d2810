//! Rollouts of Codex: each message once, though a rollout contains it as an item and again as a
//! display event.

use jiff::tz::Offset;
use serde::{Deserialize, Serialize};

use super::{ImportBatch, ImportFormat, ImportPosition, ProjectLookup, to_json_string};
use crate::record::IncomingMessage;
use crate::transcript::{LineReader, TurnStrand};

/// The most displayed messages that wait for the items that would make them duplicates.
const MAX_WAITING_MESSAGES: usize = 10_000;

/// Which of the two representations is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum MessageSource {
    Unknown,
    Items,
    /// Display events: the rollout has no items.
    Shown,
}

/// What is needed to continue an import.
#[derive(Serialize, Deserialize)]
struct CodexCheckpoint {
    session: Option<String>,
    folder: Option<String>,
    telling: MessageSource,
}

/// Reads a rollout.
pub(super) struct CodexReader {
    lines: LineReader,
    telling: MessageSource,
    shown: Vec<(ImportPosition, IncomingMessage)>,
}

impl CodexReader {
    pub(super) fn new(offset: Offset) -> Self {
        Self {
            lines: LineReader::new(offset, true),
            telling: MessageSource::Unknown,
            shown: Vec::new(),
        }
    }

    pub(super) fn resume(&mut self, left: &str) {
        if let Ok(left) = serde_json::from_str::<CodexCheckpoint>(left) {
            self.lines.within = left.session;
            self.lines.about.folder = left.folder;
            self.telling = left.telling;
        }
    }

    pub(super) fn checkpoint(&self) -> Option<String> {
        let left = CodexCheckpoint {
            session: self.lines.within.clone(),
            folder: self.lines.about.folder.clone(),
            telling: self.telling,
        };
        serde_json::to_string(&left).ok()
    }

    pub(super) fn resume_position(&self) -> Option<ImportPosition> {
        self.shown.first().map(|(place, _)| *place)
    }

    pub(super) fn read_line(
        &mut self,
        place: ImportPosition,
        json: &str,
        projects: ProjectLookup<'_>,
        into: &mut ImportBatch,
    ) {
        self.lines.read_line(place.number, json);
        let turns: Vec<(IncomingMessage, TurnStrand)> = self.lines.drain_turns().collect();
        for (mut said, strand) in turns {
            said.conversation = ImportFormat::Codex.default_conversation().map(str::to_owned);
            if let Some(project) = self.lines.about.folder.as_deref().and_then(projects) {
                said.extra.push(("project".into(), to_json_string(&project)));
            }
            self.add_turn(place, said, strand, into);
        }
        into.add_lines(&mut self.lines);
    }

    fn add_turn(
        &mut self,
        place: ImportPosition,
        message: IncomingMessage,
        strand: TurnStrand,
        into: &mut ImportBatch,
    ) {
        match (strand, self.telling) {
            (TurnStrand::Echo, MessageSource::Unknown) => {
                self.shown.push((place, message));
                if self.shown.len() > MAX_WAITING_MESSAGES {
                    self.finish(into);
                }
            }
            (TurnStrand::Echo, MessageSource::Items) | (TurnStrand::Item, MessageSource::Shown) => {
                into.count_skipped("duplicate message", 1)
            }
            (TurnStrand::Item, _) => {
                self.telling = MessageSource::Items;
                into.count_skipped("duplicate message", self.shown.len());
                self.shown.clear();
                into.add_message(place.number, message);
            }
            _ => into.add_message(place.number, message),
        }
    }

    pub(super) fn finish(&mut self, into: &mut ImportBatch) {
        if !self.shown.is_empty() {
            self.telling = MessageSource::Shown;
        }
        for (place, said) in self.shown.drain(..) {
            into.add_message(place.number, said);
        }
    }
}
