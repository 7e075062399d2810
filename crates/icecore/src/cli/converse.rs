//! `conversation`: inspecting and deleting chats.

use anyhow::Result;
use clap::{Args, Subcommand};
use comfy_table::Cell;
use icecore_domain::converse::truth::Fact;
use icecore_domain::converse::turn::{self, TurnLine};
use icecore_domain::id::EventId;
use icecore_domain::plain;
use icecore_engine::PARTS_CUT;
use icecore_engine::converse::{CUT, Chats};
use serde_json::json;

use super::out::{BOLD, CYAN, DIM, GREEN, Out, RED, YELLOW};
use super::{Global, read};
use crate::error::{Exit, Stop};
use crate::told;
use crate::wire::{self, Open};

#[derive(Debug, Subcommand)]
pub enum Conversation {
    /// List conversations, the latest first
    #[command(
        after_help = "Examples:\n  icecore conversation list\n  icecore conversation list --user ann --json"
    )]
    List(Whose),
    /// Show a conversation: its facts, its last turns, its artifacts
    #[command(
        after_help = "Examples:\n  icecore conversation show trip\n  icecore conversation show trip --turn 3   its messages, verbatim"
    )]
    Show(Show),
    /// List the facts, now or at the end of a turn
    #[command(
        after_help = "Examples:\n  icecore conversation facts trip\n  icecore conversation facts trip --turn 12"
    )]
    Facts(AtTurn),
    /// List the turns, one per line
    #[command(
        after_help = "Examples:\n  icecore conversation turns trip\n  icecore conversation turns trip --unsummarized"
    )]
    Turns(Turns),
    /// List code and drafts, or print one version of one
    #[command(
        after_help = "Examples:\n  icecore conversation artifacts trip\n  icecore conversation artifacts trip sort.py@turn-3\n  icecore conversation artifacts trip sort.py@v1 --diff sort.py@v2"
    )]
    Artifacts(Artifacts),
    /// Show what changed in the facts between the ends of two turns
    #[command(
        after_help = "Examples:\n  icecore conversation diff trip 3 12\n  icecore conversation diff trip 0 5   since the beginning"
    )]
    Diff(Diff),
    /// Summarize the turns that could not be summarized
    #[command(after_help = "Example:\n  icecore conversation retry trip")]
    Retry(One),
    /// Promote a fact: it holds in all conversations
    #[command(after_help = "Example:\n  icecore conversation promote trip EVT-20260213-004")]
    Promote(Promote),
    /// Export everything stored of a conversation, as JSON
    #[command(after_help = "Example:\n  icecore conversation export trip > trip.json")]
    Export(One),
    /// Delete a conversation: its messages, facts, turns and artifacts
    #[command(
        after_help = "Example:\n  icecore conversation delete trip --yes\n\nPromoted facts stay. Summaries of this conversation alone are emptied; others are rebuilt. Their earlier versions stay:\n`icecore forget conversation/trip` erases those, too."
    )]
    Delete(Delete),
}

#[derive(Debug, Args)]
pub struct Whose {
    /// Of this end user's space
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
}

#[derive(Debug, Args)]
pub struct One {
    /// The conversation
    #[arg(value_name = "CONVERSATION")]
    name: String,
    #[command(flatten)]
    whose: Whose,
}

#[derive(Debug, Args)]
pub struct Show {
    #[command(flatten)]
    one: One,
    /// The messages of this turn, verbatim
    #[arg(long, value_name = "N")]
    turn: Option<u64>,
}

#[derive(Debug, Args)]
pub struct AtTurn {
    #[command(flatten)]
    one: One,
    /// At the end of this turn
    #[arg(long, value_name = "N")]
    turn: Option<u64>,
}

#[derive(Debug, Args)]
pub struct Turns {
    #[command(flatten)]
    one: One,
    /// Only turns that could not be summarized
    #[arg(long)]
    unsummarized: bool,
}

#[derive(Debug, Args)]
pub struct Artifacts {
    #[command(flatten)]
    one: One,
    /// NAME, NAME@v2 or NAME@turn-3; without it, all are listed
    #[arg(value_name = "ARTIFACT")]
    which: Option<String>,
    /// Show how this version differs from it
    #[arg(long, value_name = "ARTIFACT", requires = "which")]
    diff: Option<String>,
}

#[derive(Debug, Args)]
pub struct Diff {
    #[command(flatten)]
    one: One,
    /// The earlier turn; 0 for the beginning
    from: u64,
    /// The later turn
    to: u64,
}

#[derive(Debug, Args)]
pub struct Promote {
    #[command(flatten)]
    one: One,
    /// The fact
    #[arg(value_name = "ID", value_parser = read::id)]
    id: EventId,
}

#[derive(Debug, Args)]
pub struct Delete {
    #[command(flatten)]
    one: One,
    /// Do not ask for confirmation
    #[arg(long)]
    yes: bool,
}

fn whose(conversation: &Conversation) -> Option<&str> {
    let whose = match conversation {
        Conversation::List(whose) => whose,
        Conversation::Show(show) => &show.one.whose,
        Conversation::Facts(at) => &at.one.whose,
        Conversation::Turns(turns) => &turns.one.whose,
        Conversation::Artifacts(artifacts) => &artifacts.one.whose,
        Conversation::Diff(diff) => &diff.one.whose,
        Conversation::Retry(one) | Conversation::Export(one) => &one.whose,
        Conversation::Promote(promote) => &promote.one.whose,
        Conversation::Delete(delete) => &delete.one.whose,
    };
    whose.user.as_deref()
}

pub async fn conversation(
    open: &Open,
    global: &Global,
    conversation: &Conversation,
    out: &mut Out,
) -> Result<()> {
    let chats = open.chats(global, whose(conversation)).await?;
    match conversation {
        Conversation::List(_) => list(&chats, out).await,
        Conversation::Show(Show { one, turn: Some(turn) }) => {
            said(&chats, &one.name, *turn, out).await
        }
        Conversation::Show(Show { one, turn: None }) => show(&chats, &one.name, out).await,
        Conversation::Facts(at) => facts(&chats.facts(&at.one.name, at.turn).await?, out),
        Conversation::Turns(turns) => self::turns(&chats, turns, out).await,
        Conversation::Artifacts(artifacts) => self::artifacts(&chats, artifacts, out).await,
        Conversation::Diff(diff) => self::diff(&chats, diff, out).await,
        Conversation::Retry(one) => retry(&chats, &one.name, out).await,
        Conversation::Promote(promote) => {
            let event = chats.promote(&promote.one.name, promote.id).await?;
            if out.is_json() {
                return out.json(&json!({ "id": event.id.to_string(), "content": event.content }));
            }
            out.line(format!("{CYAN}{}{CYAN:#} {}", event.id, plain::visible(&event.content)))?;
            out.say("It holds everywhere now; `icecore retract` undoes that");
            Ok(())
        }
        Conversation::Export(one) => out.json(&chats.export(&one.name).await?),
        Conversation::Delete(delete) => self::delete(&chats, delete, out).await,
    }
}

async fn list(chats: &Chats, out: &mut Out) -> Result<()> {
    let all = chats.conversations().await?;
    if out.is_json() {
        return out.json_named("conversations", &all);
    }
    if all.is_empty() {
        out.say("There are no conversations yet. `icecore chat` starts one, `icecore serve` stores those of your clients");
        return Ok(());
    }
    let rows = all.iter().map(|one| {
        let or_blank = |number: u64| if number == 0 { String::new() } else { number.to_string() };
        vec![
            plain::one_line(&one.conversation),
            one.messages.to_string(),
            or_blank(one.turns),
            or_blank(one.facts as u64),
            or_blank(one.unsummarized as u64),
            one.last.to_string(),
        ]
    });
    out.table(
        &["Conversation", "Messages", "Turns", "Facts", "Unsummarized", "Last"],
        rows.map(|row| row.into_iter().map(Cell::new).collect()).collect(),
    )
}

fn facts(facts: &[Fact], out: &mut Out) -> Result<()> {
    if out.is_json() {
        return out.json_named("facts", &told::facts(facts));
    }
    if facts.is_empty() {
        out.say("There are no facts yet");
    }
    for fact in facts {
        let mark = if fact.hard { format!("{RED}!{RED:#} ") } else { "  ".into() };
        let turn = fact.turn.map_or_else(String::new, |turn| format!(", turn {turn}"));
        out.line(format!("{mark}{} {DIM}({}{turn}){DIM:#}", plain::visible(&fact.text), fact.id))?;
    }
    Ok(())
}

async fn show(chats: &Chats, name: &str, out: &mut Out) -> Result<()> {
    let (facts, turns, artifacts) =
        (chats.facts(name, None).await?, chats.turns(name).await?, chats.artifacts(name).await?);
    if out.is_json() {
        return out.json(&told::conversation(name, &facts, &turns, &artifacts));
    }
    out.line(format!("{BOLD}{}{BOLD:#}", plain::one_line(name)))?;
    out.line("")?;
    self::facts(&facts, out)?;
    if !turns.is_empty() {
        out.line("")?;
    }
    for line in turns.iter().rev().take(10).rev() {
        turn_line(line, out)?;
    }
    if turns.len() > 10 {
        out.say(format!("{} earlier turns: `icecore conversation turns`", turns.len() - 10));
    }
    if !artifacts.is_empty() {
        let names: std::collections::BTreeSet<&str> =
            artifacts.iter().map(|kept| kept.name.as_str()).collect();
        out.line("")?;
        out.line(format!(
            "{DIM}Artifacts:{DIM:#} {}",
            names.into_iter().collect::<Vec<_>>().join(", ")
        ))?;
    }
    Ok(())
}

fn is_withdrawn(line: &TurnLine) -> bool {
    line.extra.contains_key(turn::WITHDRAWN)
}

fn turn_line(line: &TurnLine, out: &mut Out) -> Result<()> {
    let mark = match &line.why {
        _ if is_withdrawn(line) => format!(" {YELLOW}(withdrawn){YELLOW:#}"),
        Some(why) => format!(" {YELLOW}(raw: {}){YELLOW:#}", plain::one_line(why)),
        None => String::new(),
    };
    out.line(format!(
        "{CYAN}{:>3}{CYAN:#} {} {DIM}|{DIM:#} {}{mark}",
        line.turn,
        plain::one_line(&line.user_summary),
        plain::one_line(&line.assistant_summary)
    ))
}

async fn said(chats: &Chats, name: &str, turn: u64, out: &mut Out) -> Result<()> {
    let records = chats.said(name, turn).await?;
    if out.is_json() {
        return out.json_named("messages", &told::messages(&records));
    }
    if chats.turns(name).await?.iter().any(|line| line.turn == turn && is_withdrawn(line)) {
        out.say(format!("Turn {turn} is withdrawn: the conversation continued without it"));
    }
    for record in records {
        out.line(format!("{BOLD}{}{BOLD:#} {DIM}{}{DIM:#}", record.role, record.ts))?;
        out.line(plain::visible(record.text.trim_end()))?;
        for (field, what) in [(CUT, "text"), (PARTS_CUT, "tool calls and results")] {
            if let Some(bytes) = record.number(field) {
                out.line(format!(
                    "{YELLOW}(its {what} had {bytes} bytes and was truncated){YELLOW:#}"
                ))?;
            }
        }
        out.line("")?;
    }
    Ok(())
}

async fn turns(chats: &Chats, turns: &Turns, out: &mut Out) -> Result<()> {
    let mut lines = chats.turns(&turns.one.name).await?;
    if turns.unsummarized {
        lines.retain(|line| line.state == turn::State::Raw);
    }
    if out.is_json() {
        return out.json_named("turns", &told::turns(&lines));
    }
    if lines.is_empty() {
        out.say(if turns.unsummarized {
            "Every turn is summarized"
        } else {
            "There are no turns yet"
        });
    }
    lines.iter().try_for_each(|line| turn_line(line, out))
}

async fn artifacts(chats: &Chats, artifacts: &Artifacts, out: &mut Out) -> Result<()> {
    let name = &artifacts.one.name;
    if let (Some(which), Some(other)) = (&artifacts.which, &artifacts.diff) {
        let ((old, before), (new, after)) =
            (chats.artifact(name, which).await?, chats.artifact(name, other).await?);
        let text = told::artifact_diff((&old, &before), (&new, &after));
        return if out.is_json() {
            out.json_named("diff", &text)
        } else {
            out.raw(&plain::visible(&text))
        };
    }
    if let Some(which) = &artifacts.which {
        let (kept, text) = chats.artifact(name, which).await?;
        if out.is_json() {
            return out.json(&json!({ "artifact": kept, "text": text }));
        }
        return out.raw(&text);
    }
    let all = chats.artifacts(name).await?;
    if out.is_json() {
        return out.json_named("artifacts", &all);
    }
    if all.is_empty() {
        out.say("There are no artifacts yet");
        return Ok(());
    }
    let rows = all.iter().map(|kept| {
        let language = kept.language.clone().unwrap_or_default();
        vec![
            kept.name.clone(),
            format!("v{}", kept.version),
            kept.turn.to_string(),
            kept.kind.clone(),
            language,
            kept.lines.to_string(),
        ]
    });
    out.table(
        &["Name", "Version", "Turn", "Kind", "Language", "Lines"],
        rows.map(|row| row.into_iter().map(Cell::new).collect()).collect(),
    )
}

async fn diff(chats: &Chats, diff: &Diff, out: &mut Out) -> Result<()> {
    let compared = chats.changes(&diff.one.name, diff.from, diff.to).await?;
    if out.is_json() {
        return out.json(&told::changes(&compared));
    }
    if compared.added.is_empty() && compared.changed.is_empty() && compared.removed.is_empty() {
        out.say("Nothing changed");
    }
    for text in &compared.removed {
        out.line(format!("{RED}- {}{RED:#}", plain::visible(text)))?;
    }
    for (old, new) in &compared.changed {
        out.line(format!("{YELLOW}~ {}{YELLOW:#}", plain::visible(old)))?;
        out.line(format!("{YELLOW}  {}{YELLOW:#}", plain::visible(new)))?;
    }
    for text in &compared.added {
        out.line(format!("{GREEN}+ {}{GREEN:#}", plain::visible(text)))?;
    }
    Ok(())
}

async fn retry(chats: &Chats, name: &str, out: &mut Out) -> Result<()> {
    // An unknown name is refused before the model is called.
    chats.turns(name).await?;
    let models = wire::models()?;
    if models.summarizer.is_none() {
        return Err(Stop::new(
            Exit::NotFound,
            "there is no model to summarize with; set [summarizer] in your config.toml",
        )
        .into());
    }
    let reflected = chats.reflect(name, models.asking().as_ref(), true).await?;
    if out.is_json() {
        return out.json(&reflected);
    }
    out.line(format!(
        "{} turns summarized, {} still raw, {} facts changed",
        reflected.summarized.len(),
        reflected.raw.len(),
        reflected.changes
    ))?;
    for (turn, why) in &reflected.raw {
        out.say(format!("  turn {turn}: {}", plain::one_line(why)));
    }
    for note in &reflected.notes {
        out.say(format!("  {}", plain::one_line(note)));
    }
    Ok(())
}

async fn delete(chats: &Chats, delete: &Delete, out: &mut Out) -> Result<()> {
    if !delete.yes {
        let message = format!(
            "this deletes `{}` permanently; pass --yes to do it",
            plain::one_line(&delete.one.name)
        );
        chats.turns(&delete.one.name).await?;
        return Err(Stop::new(Exit::Usage, message).into());
    }
    let gone = chats.forget(&delete.one.name).await?;
    if out.is_json() {
        return out.json(&gone);
    }
    out.line(format!(
        "{} is deleted: {} messages, {} files",
        plain::one_line(&gone.conversation),
        gone.messages,
        gone.files
    ))?;
    out.say("Summaries of its days and promoted facts stay");
    Ok(())
}
