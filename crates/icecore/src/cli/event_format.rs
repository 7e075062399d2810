//! Formatting of events for a terminal.

use anyhow::Result;
use comfy_table::{Attribute, Cell, Color};
use icecore_domain::calendar::{Moment, days_between};
use icecore_domain::event::Priority;
use icecore_domain::ledger::{EventState, LedgerEntry};
use icecore_domain::sanitize;
use icecore_engine::EventDetails;
use jiff::civil::Date;

use super::output::{BOLD, CYAN, DIM, Output, YELLOW};
pub use crate::json_output::one_line_excerpt;

fn id_cell(entry: &LedgerEntry) -> Cell {
    Cell::new(entry.event.id).fg(Color::Cyan)
}

fn priority_cell(priority: Priority) -> Cell {
    let cell = Cell::new(priority);
    match priority {
        Priority::P0 => cell.fg(Color::Red).add_attribute(Attribute::Bold),
        Priority::P1 => cell.fg(Color::Yellow),
        Priority::P2 | Priority::P3 => cell,
    }
}

/// A row of `events`; on a narrow terminal missing columns follow the content.
pub fn event_row(entry: &LedgerEntry, all: bool, narrow: bool) -> Vec<Cell> {
    let event = &entry.event;
    let kind = if event.is_statement() { event.type_name() } else { event.act.to_string() };
    let entity = one_line_excerpt(event.entity.as_deref().unwrap_or(""));
    let mut row = vec![id_cell(entry), Cell::new(kind), priority_cell(event.priority)];
    if narrow {
        let mut content = one_line_excerpt(&event.content);
        if !entity.is_empty() {
            content.push_str(&format!(" ({entity})"));
        }
        if all && !entry.state.is_active() {
            content.push_str(&format!(" [{}]", format_state(entry.state)));
        }
        row.push(Cell::new(content));
        return row;
    }
    row.push(Cell::new(entity));
    if all {
        row.push(Cell::new(format_state(entry.state)));
    }
    row.push(Cell::new(one_line_excerpt(&event.content)));
    row
}

fn format_state(standing: EventState) -> String {
    standing
        .ended_by()
        .map_or_else(|| standing.word().into(), |by| format!("{} by {by}", standing.word()))
}

/// A row of `commitments`.
pub fn commitment_row(entry: &LedgerEntry, now: Moment, narrow: bool) -> Vec<Cell> {
    let event = &entry.event;
    let due = event.due.map_or_else(
        || Cell::new(""),
        |due| {
            let cell = Cell::new(format_due(due, now.day()));
            match days_between(now.day(), due) {
                left if left < 0 => cell.fg(Color::Red),
                left if left <= 7 => cell.fg(Color::Yellow),
                _ => cell,
            }
        },
    );
    let waiting = one_line_excerpt(event.waiting_on.as_deref().unwrap_or(""));
    if narrow {
        let content = if waiting.is_empty() {
            one_line_excerpt(&event.content)
        } else {
            format!("{} (waiting on {waiting})", one_line_excerpt(&event.content))
        };
        return vec![
            id_cell(entry),
            Cell::new(format_age(event.ts.day(), now.day())),
            due,
            Cell::new(content),
        ];
    }
    vec![
        id_cell(entry),
        priority_cell(event.priority),
        Cell::new(format_age(event.ts.day(), now.day())),
        due,
        Cell::new(waiting),
        Cell::new(one_line_excerpt(&event.content)),
    ]
}

/// The age of something, in a few characters.
pub fn format_age(day: Date, today: Date) -> String {
    match days_between(day, today) {
        days if days <= 0 => "today".into(),
        days => format!("{days} d"),
    }
}

/// The distance of a due date.
pub fn format_due(due: Date, today: Date) -> String {
    match days_between(today, due) {
        0 => "today".into(),
        1 => "tomorrow".into(),
        days if days < 0 => format!("{} d overdue", -days),
        days if days <= 31 => format!("in {days} d"),
        _ => due.to_string(),
    }
}

/// Prints one event with all its fields.
pub fn print_event(entry: &LedgerEntry, out: &mut Output) -> Result<()> {
    let event = &entry.event;
    let kind = if event.is_statement() {
        event.type_name()
    } else {
        format!("{} of a {}", event.act, event.type_name())
    };
    out.line(format!(
        "{CYAN}{BOLD}{}{BOLD:#}{CYAN:#}  {kind} {}  {}",
        event.id,
        event.priority,
        format_state(entry.state)
    ))?;
    for line in sanitize::escape_for_terminal(&event.content).lines() {
        out.line(format!("  {BOLD}{line}{BOLD:#}"))?;
    }
    let mut field = |name: &str, value: String| {
        if value.is_empty() {
            Ok(())
        } else {
            out.line(format!("  {DIM}{name:<11}{DIM:#}{}", sanitize::one_line(&value)))
        }
    };
    let joined = |ids: &[icecore_domain::id::EventId]| {
        ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
    };
    field("recorded", event.ts.to_string())?;
    if entry.verified != event.ts {
        field("confirmed", entry.verified.to_string())?;
    }
    let kind = event.entity_kind.map_or(String::new(), |kind| format!(" ({kind})"));
    field(
        "entity",
        event.entity.as_ref().map_or(String::new(), |entity| format!("{entity}{kind}")),
    )?;
    field("tags", event.tags.join(", "))?;
    field("due", event.due.map_or(String::new(), |due| due.to_string()))?;
    field("waiting on", event.waiting_on.clone().unwrap_or_default())?;
    field("origin", event.origin.to_string())?;
    field("source", event.source.clone())?;
    field("session", event.session.clone().unwrap_or_default())?;
    if event.scope != icecore_domain::event::Scope::Everywhere {
        field("scope", event.scope.to_string())?;
    }
    field("replaces", joined(&event.supersedes))?;
    field("related", joined(&event.related))?;
    for (name, value) in &event.extra {
        field(&one_line_excerpt(name), one_line_excerpt(value))?;
    }
    Ok(())
}

/// Prints the chain, the archived events and the conflicts of an event.
pub fn print_chain(story: &EventDetails, out: &mut Output) -> Result<()> {
    if story.chain.len() > 1 {
        out.line("")?;
        out.line(format!("{BOLD}Its chain, oldest first{BOLD:#}"))?;
        for entry in &story.chain {
            let event = &entry.event;
            let mark = if event.id == story.entry.event.id { ">" } else { " " };
            let what = match (event.is_statement(), entry.state.is_active()) {
                (true, _) => format_state(entry.state),
                (false, true) => format!("{}s", event.act),
                (false, false) => format!("{}s, {}", event.act, format_state(entry.state)),
            };
            out.line(format!(
                "{mark} {CYAN}{}{CYAN:#}  {}  {what:<34}  {}",
                event.id,
                event.ts.day(),
                one_line_excerpt(&event.content)
            ))?;
        }
    }
    if !story.stands_for.is_empty() {
        out.line("")?;
        out.line(format!("{BOLD}It replaces these archived events{BOLD:#}"))?;
        for entry in &story.stands_for {
            out.line(format!(
                "  {CYAN}{}{CYAN:#}  {}  {}",
                entry.event.id,
                entry.event.ts.day(),
                one_line_excerpt(&entry.event.content)
            ))?;
        }
    }
    for conflict in &story.conflicts {
        let ids: Vec<String> = conflict.events.iter().map(ToString::to_string).collect();
        out.line(format!(
            "{YELLOW}⚠ {} disagree about {}{YELLOW:#}",
            ids.join(" and "),
            one_line_excerpt(&conflict.about)
        ))?;
    }
    Ok(())
}
