//! The chat pack (C3, C10): the context that a chat model gets besides the messages. Hard
//! exceptions first, then facts, then turns. When the budget is exceeded, the oldest turns go
//! first, then facts; hard exceptions are never omitted.

use std::fmt::Write as _;

use jiff::civil::Date;

use super::{Pack, PackSection};
use crate::budget::{self, Omission};

/// One line with its source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChatPackLine {
    /// The id of the event or turn.
    pub id: String,
    /// The text, on one line.
    pub text: String,
}

/// The digest of a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TurnDigest {
    pub turn: u64,
    /// The user's request.
    pub user: String,
    /// The result.
    pub assistant: String,
}

/// All candidate content, oldest first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ChatMaterial {
    /// Rules: must, must not, always, never.
    pub hard: Vec<ChatPackLine>,
    /// Facts that hold in every conversation of this user.
    pub everywhere: Vec<ChatPackLine>,
    /// Facts of this conversation.
    pub facts: Vec<ChatPackLine>,
    /// Summaries of older turns, if there are too many turns.
    pub older: Vec<ChatPackLine>,
    pub turns: Vec<TurnDigest>,
    /// Available artifacts: code and drafts.
    pub artifacts: Vec<ChatPackLine>,
}

/// The selected content, and what was omitted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ChatSelection {
    /// The selected content.
    pub selected: ChatMaterial,
    /// What was omitted, and why.
    pub left_out: Vec<Omission>,
}

impl ChatSelection {
    /// The ids of the selected events, turns and artifacts.
    pub fn ids(&self) -> Vec<String> {
        let told = &self.selected;
        let lines = [&told.hard, &told.everywhere, &told.facts, &told.older]
            .into_iter()
            .flatten()
            .map(|line| line.id.clone());
        lines
            .chain(told.turns.iter().map(|told| format!("turn-{}", told.turn)))
            .chain(told.artifacts.iter().map(|line| line.id.clone()))
            .collect()
    }

    /// Whether nothing was selected.
    pub fn is_empty(&self) -> bool {
        self.ids().is_empty()
    }
}

/// The context that a chat would get now, as a pack: the block of a request, and the turns that are
/// sent verbatim.
pub fn chat_pack(
    date: Date,
    block: &str,
    window: &[(&str, String)],
    sources: Vec<String>,
    left_out: Vec<Omission>,
) -> Pack {
    let mut text = block.trim_end().to_owned();
    for (role, said) in window {
        let _ = write!(text, "\n\n[{role}]\n{}", said.trim_end());
    }
    text.push('\n');
    let mut sections: Vec<PackSection> = Vec::new();
    for line in text.lines() {
        match line.strip_prefix("## ") {
            Some(title) => sections.push(PackSection { title: title.into(), words: 0, lines: 0 }),
            None => {
                if let Some(section) = sections.last_mut() {
                    section.words += budget::count_words(line);
                    section.lines += usize::from(!line.trim().is_empty());
                }
            }
        }
    }
    Pack {
        kind: "chat",
        date,
        bytes: text.len(),
        words: budget::count_words(&text),
        tokens: budget::estimate_tokens(&text),
        sections,
        left_out,
        sources,
        text,
    }
}

/// The tokens of a line with its bullet.
fn line_tokens(text: &str) -> usize {
    budget::estimate_tokens(text) + 2
}

/// The newest items that fit, in their order, and the number of omitted ones.
fn newest_fitting<T: Clone>(
    lines: &[T],
    room: usize,
    cost: impl Fn(&T) -> usize,
) -> (Vec<T>, usize, usize) {
    let mut used = 0;
    let mut first = lines.len();
    while first > 0 {
        let next = cost(&lines[first - 1]);
        if used + next > room {
            break;
        }
        used += next;
        first -= 1;
    }
    (lines[first..].to_vec(), first, used)
}

/// Selects the content that fits into `tokens`.
pub fn select_material(material: &ChatMaterial, tokens: usize) -> ChatSelection {
    let mut chosen = ChatSelection::default();
    chosen.selected.hard.clone_from(&material.hard);
    let hard: usize = material.hard.iter().map(|line| line_tokens(&line.text)).sum();
    if hard > tokens {
        chosen.left_out.push(Omission::new(
            "the rest of the memory",
            format!(
                "the hard exceptions alone need {hard} of {tokens} tokens and are never omitted"
            ),
        ));
    }
    let mut room = tokens.saturating_sub(hard);
    let line_cost = |line: &ChatPackLine| line_tokens(&line.text);
    let turn_cost = |told: &TurnDigest| line_tokens(&told.user) + line_tokens(&told.assistant) + 8;
    let mut note = |what: &str, many: usize, share: usize| {
        if many > 0 {
            let plural = if many == 1 { "" } else { "s" };
            chosen.left_out.push(Omission::new(
                format!("{many} older {what}{plural}"),
                format!("the budget leaves them {share} tokens"),
            ));
        }
    };
    // Facts of other conversations get a quarter, facts of this one most of the remainder, turns
    // the rest. Unused tokens pass on to the next group.
    let share = room / 4;
    let (everywhere, dropped, used) = newest_fitting(&material.everywhere, share, line_cost);
    note("fact of other conversations", dropped, share);
    room -= used;
    let all_turns: usize = material.turns.iter().map(turn_cost).sum();
    let share = (room * 2 / 3).max(room.saturating_sub(all_turns));
    let (facts, dropped, used) = newest_fitting(&material.facts, share, line_cost);
    note("fact", dropped, share);
    room -= used;
    let artifacts_share = room / 4;
    let (artifacts, dropped, used) =
        newest_fitting(&material.artifacts, artifacts_share, line_cost);
    note("artifact", dropped, artifacts_share);
    room -= used;
    let (turns, dropped, used) = newest_fitting(&material.turns, room, turn_cost);
    // Summaries replace the omitted turns.
    let (older, missing, _) = if dropped > 0 {
        newest_fitting(&material.older, room.saturating_sub(used), line_cost)
    } else {
        (Vec::new(), 0, 0)
    };
    note("turn", dropped, room);
    note("summary", missing, room.saturating_sub(used));
    chosen.selected =
        ChatMaterial { hard: chosen.selected.hard, everywhere, facts, older, turns, artifacts };
    chosen
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn lines(what: &str, many: usize) -> Vec<ChatPackLine> {
        (1..=many)
            .map(|n| ChatPackLine {
                id: format!("{what}-{n}"),
                text: format!("{what} number {n} says a little"),
            })
            .collect()
    }

    fn material(hard: usize, facts: usize, turns: usize) -> ChatMaterial {
        let told = |turn| TurnDigest {
            turn,
            user: format!("asked for thing {turn}"),
            assistant: format!("made thing {turn}"),
        };
        ChatMaterial {
            hard: lines("hard", hard),
            everywhere: lines("everywhere", 2),
            facts: lines("fact", facts),
            older: lines("older", 3),
            turns: (1..=turns as u64).map(told).collect(),
            artifacts: lines("artifact", 1),
        }
    }

    // C3
    #[test]
    fn with_a_large_budget_everything_is_shown() {
        let all = material(2, 5, 10);
        let chosen = select_material(&all, 4_000);
        assert_eq!(chosen.selected, ChatMaterial { older: Vec::new(), ..all });
        assert_eq!(chosen.left_out, []);
    }

    // C3, C10
    #[test]
    fn the_oldest_turns_give_way_first_and_hard_ones_never() {
        let chosen = select_material(&material(2, 5, 100), 400);
        assert_eq!((chosen.selected.hard.len(), chosen.selected.facts.len()), (2, 5));
        assert!(
            chosen.selected.turns.len() < 100 && chosen.selected.turns.last().unwrap().turn == 100
        );
        assert!(
            chosen.left_out.iter().any(|left| left.what.ends_with("older turns")),
            "{:?}",
            chosen.left_out
        );
        let squeezed = select_material(&material(20, 5, 5), 50);
        assert_eq!(squeezed.selected.hard.len(), 20);
        assert!(squeezed.selected.turns.is_empty() && squeezed.selected.facts.is_empty());
        assert!(squeezed.left_out[0].why.contains("never omitted"));
        assert!(squeezed.left_out.len() >= 4);
    }

    proptest! {
        // C3
        #[test]
        fn the_budget_holds_and_what_is_left_out_is_counted(hard in 0_usize..5, facts in 0_usize..80, turns in 0_usize..80, tokens in 0_usize..3_000) {
            let all = material(hard, facts, turns);
            let chosen = select_material(&all, tokens);
            let told = &chosen.selected;
            let of_hard: usize = told.hard.iter().map(|line| line_tokens(&line.text)).sum();
            let lines: usize = [&told.everywhere, &told.facts, &told.older, &told.artifacts].into_iter().flatten().map(|line| line_tokens(&line.text)).sum();
            let turns_told: usize = told.turns.iter().map(|told| line_tokens(&told.user) + line_tokens(&told.assistant) + 8).sum();
            prop_assert!(of_hard > tokens || of_hard + lines + turns_told <= tokens);
            prop_assert_eq!(told.hard.len(), hard);
            prop_assert_eq!(told.turns.len() < turns, chosen.left_out.iter().any(|left| left.what.contains("older turn")));
            prop_assert_eq!(told.facts.len() < facts, chosen.left_out.iter().any(|left| left.what.contains("older fact") && !left.what.contains("other")));
        }
    }
}
