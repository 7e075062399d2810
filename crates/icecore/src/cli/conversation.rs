//! `conversation`: inspecting and deleting chats.

use anyhow::Result;
use clap::{Args, Subcommand};
use comfy_table::Cell;
use icecore_domain::converse::conversation_facts::ConversationFact;
use icecore_domain::converse::turn_log::{self, TurnLine};
use icecore_domain::id::EventId;
use icecore_domain::sanitize;
use icecore_engine::PARTS_CUT_FIELD;
use icecore_engine::converse::{CUT_FIELD, Chats};
use serde_json::json;

use super::output::{BOLD, CYAN, DIM, GREEN, Output, RED, YELLOW};
use super::{GlobalArgs, parse};
use crate::bootstrap::{self, OpenMemory};
use crate::error::{AppError, Exit};
use crate::json_output;

#[derive(Debug, Subcommand)]
pub enum ConversationCommand {
    /// List conversations, the latest first
    #[command(
        after_help = "Examples:\n  icecore conversation list\n  icecore conversation list --user ann --json"
    )]
    List(UserArgs),
    /// Show a conversation: its facts, its last turns, its artifacts
    #[command(
        after_help = "Examples:\n  icecore conversation show trip\n  icecore conversation show trip --turn 3   # its messages, verbatim"
    )]
    Show(ShowConversationArgs),
    /// List the facts, now or at the end of a turn
    #[command(
        after_help = "Examples:\n  icecore conversation facts trip\n  icecore conversation facts trip --turn 12"
    )]
    Facts(FactsArgs),
    /// List the turns, one per line
    #[command(
        after_help = "Examples:\n  icecore conversation turns trip\n  icecore conversation turns trip --unsummarized"
    )]
    Turns(TurnsArgs),
    /// List code and drafts, or print one version of one
    #[command(
        after_help = "Examples:\n  icecore conversation artifacts trip\n  icecore conversation artifacts trip sort.py@turn-3\n  icecore conversation artifacts trip sort.py@v1 --diff sort.py@v2"
    )]
    Artifacts(ArtifactsArgs),
    /// Show what changed in the facts between the ends of two turns
    #[command(
        after_help = "Examples:\n  icecore conversation diff trip 3 12\n  icecore conversation diff trip 0 5   # since the beginning"
    )]
    Diff(DiffArgs),
    /// Summarize the turns that could not be summarized
    #[command(after_help = "Example:\n  icecore conversation retry trip")]
    Retry(ConversationArgs),
    /// Promote a fact: it holds in all conversations
    #[command(after_help = "Example:\n  icecore conversation promote trip EVT-20260213-004")]
    Promote(PromoteArgs),
    /// Export everything stored of a conversation, as JSON
    #[command(after_help = "Example:\n  icecore conversation export trip > trip.json")]
    Export(ConversationArgs),
    /// Delete a conversation: its messages, facts, turns and artifacts
    #[command(
        after_help = "Example:\n  icecore conversation delete trip --yes\n\nPromoted facts stay. Summaries of this conversation alone are emptied; others are rebuilt. Their earlier versions stay:\n`icecore forget conversation/trip` erases those, too."
    )]
    Delete(DeleteConversationArgs),
}

#[derive(Debug, Args)]
pub struct UserArgs {
    /// In this end user's space
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
}

#[derive(Debug, Args)]
pub struct ConversationArgs {
    /// The conversation
    #[arg(value_name = "CONVERSATION")]
    name: String,
    #[command(flatten)]
    whose: UserArgs,
}

#[derive(Debug, Args)]
pub struct ShowConversationArgs {
    #[command(flatten)]
    one: ConversationArgs,
    /// The messages of this turn, verbatim
    #[arg(long, value_name = "N")]
    turn: Option<u64>,
}

#[derive(Debug, Args)]
pub struct FactsArgs {
    #[command(flatten)]
    one: ConversationArgs,
    /// At the end of this turn
    #[arg(long, value_name = "N")]
    turn: Option<u64>,
}

#[derive(Debug, Args)]
pub struct TurnsArgs {
    #[command(flatten)]
    one: ConversationArgs,
    /// Only turns that could not be summarized
    #[arg(long)]
    unsummarized: bool,
}

#[derive(Debug, Args)]
pub struct ArtifactsArgs {
    #[command(flatten)]
    one: ConversationArgs,
    /// NAME, NAME@v2 or NAME@turn-3; without it, all are listed
    #[arg(value_name = "ARTIFACT")]
    which: Option<String>,
    /// Show how this version differs from it
    #[arg(long, value_name = "ARTIFACT", requires = "which")]
    diff: Option<String>,
}

#[derive(Debug, Args)]
pub struct DiffArgs {
    #[command(flatten)]
    one: ConversationArgs,
    /// The earlier turn; 0 for the beginning
    from: u64,
    /// The later turn
    to: u64,
}

#[derive(Debug, Args)]
pub struct PromoteArgs {
    #[command(flatten)]
    one: ConversationArgs,
    /// The fact
    #[arg(value_name = "ID", value_parser = parse::id)]
    id: EventId,
}

#[derive(Debug, Args)]
pub struct DeleteConversationArgs {
    #[command(flatten)]
    one: ConversationArgs,
    /// Do not ask for confirmation
    #[arg(long)]
    yes: bool,
}

fn user_of(conversation: &ConversationCommand) -> Option<&str> {
    let whose = match conversation {
        ConversationCommand::List(whose) => whose,
        ConversationCommand::Show(show) => &show.one.whose,
        ConversationCommand::Facts(at) => &at.one.whose,
        ConversationCommand::Turns(turns) => &turns.one.whose,
        ConversationCommand::Artifacts(artifacts) => &artifacts.one.whose,
        ConversationCommand::Diff(diff) => &diff.one.whose,
        ConversationCommand::Retry(one) | ConversationCommand::Export(one) => &one.whose,
        ConversationCommand::Promote(promote) => &promote.one.whose,
        ConversationCommand::Delete(delete) => &delete.one.whose,
    };
    whose.user.as_deref()
}

/// Runs `icecore conversation`.
pub async fn run_conversation(
    open: &OpenMemory,
    global: &GlobalArgs,
    conversation: &ConversationCommand,
    out: &mut Output,
) -> Result<()> {
    let chats = open.open_chats(global, user_of(conversation)).await?;
    match conversation {
        ConversationCommand::List(_) => list_conversations(&chats, out).await,
        ConversationCommand::Show(ShowConversationArgs { one, turn: Some(turn) }) => {
            print_messages(&chats, &one.name, *turn, out).await
        }
        ConversationCommand::Show(ShowConversationArgs { one, turn: None }) => {
            show_conversation(&chats, &one.name, out).await
        }
        ConversationCommand::Facts(at) => {
            print_facts(&chats.facts(&at.one.name, at.turn).await?, out)
        }
        ConversationCommand::Turns(turns) => list_turns(&chats, turns, out).await,
        ConversationCommand::Artifacts(artifacts) => list_artifacts(&chats, artifacts, out).await,
        ConversationCommand::Diff(diff) => print_fact_changes(&chats, diff, out).await,
        ConversationCommand::Retry(one) => retry_summaries(&chats, &one.name, out).await,
        ConversationCommand::Promote(promote) => {
            let event = chats.promote(&promote.one.name, promote.id).await?;
            if out.is_json() {
                return out.json(&json!({ "id": event.id.to_string(), "content": event.content }));
            }
            out.line(format!(
                "{CYAN}{}{CYAN:#} {}",
                event.id,
                sanitize::escape_for_terminal(&event.content)
            ))?;
            out.info("It holds everywhere now; `icecore retract` undoes that");
            Ok(())
        }
        ConversationCommand::Export(one) => out.json(&chats.export(&one.name).await?),
        ConversationCommand::Delete(delete) => delete_conversation(&chats, delete, out).await,
    }
}

async fn list_conversations(chats: &Chats, out: &mut Output) -> Result<()> {
    let all = chats.conversations().await?;
    if out.is_json() {
        return out.json_named("conversations", &all);
    }
    if all.is_empty() {
        out.info("There are no conversations yet. `icecore chat` starts one, `icecore serve` stores those of your clients");
        return Ok(());
    }
    let rows = all.iter().map(|one| {
        let or_blank = |number: u64| if number == 0 { String::new() } else { number.to_string() };
        vec![
            sanitize::one_line(&one.conversation),
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

fn print_facts(facts: &[ConversationFact], out: &mut Output) -> Result<()> {
    if out.is_json() {
        return out.json_named("facts", &json_output::facts(facts));
    }
    if facts.is_empty() {
        out.info("There are no facts yet");
    }
    for fact in facts {
        let mark = if fact.hard { format!("{RED}!{RED:#} ") } else { "  ".into() };
        let turn = fact.turn.map_or_else(String::new, |turn| format!(", turn {turn}"));
        out.line(format!(
            "{mark}{} {DIM}({}{turn}){DIM:#}",
            sanitize::escape_for_terminal(&fact.text),
            fact.id
        ))?;
    }
    Ok(())
}

async fn show_conversation(chats: &Chats, name: &str, out: &mut Output) -> Result<()> {
    let (facts, turns, artifacts) =
        (chats.facts(name, None).await?, chats.turns(name).await?, chats.artifacts(name).await?);
    if out.is_json() {
        return out.json(&json_output::conversation(name, &facts, &turns, &artifacts));
    }
    out.line(format!("{BOLD}{}{BOLD:#}", sanitize::one_line(name)))?;
    out.line("")?;
    print_facts(&facts, out)?;
    if !turns.is_empty() {
        out.line("")?;
    }
    for line in turns.iter().rev().take(10).rev() {
        print_turn(line, out)?;
    }
    if turns.len() > 10 {
        out.info(format!("{} earlier turns: `icecore conversation turns`", turns.len() - 10));
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
    line.extra.contains_key(turn_log::WITHDRAWN_FIELD)
}

fn print_turn(line: &TurnLine, out: &mut Output) -> Result<()> {
    let mark = match &line.why {
        _ if is_withdrawn(line) => format!(" {YELLOW}(withdrawn){YELLOW:#}"),
        Some(why) => format!(" {YELLOW}(raw: {}){YELLOW:#}", sanitize::one_line(why)),
        None => String::new(),
    };
    out.line(format!(
        "{CYAN}{:>3}{CYAN:#} {} {DIM}|{DIM:#} {}{mark}",
        line.turn,
        sanitize::one_line(&line.user_summary),
        sanitize::one_line(&line.assistant_summary)
    ))
}

async fn print_messages(chats: &Chats, name: &str, turn: u64, out: &mut Output) -> Result<()> {
    let records = chats.turn_records(name, turn).await?;
    if out.is_json() {
        return out.json_named("messages", &json_output::messages(&records));
    }
    if chats.turns(name).await?.iter().any(|line| line.turn == turn && is_withdrawn(line)) {
        out.info(format!("Turn {turn} is withdrawn: the conversation continued without it"));
    }
    for record in records {
        out.line(format!("{BOLD}{}{BOLD:#} {DIM}{}{DIM:#}", record.role, record.ts))?;
        out.line(sanitize::escape_for_terminal(record.text.trim_end()))?;
        for (field, what) in [(CUT_FIELD, "text"), (PARTS_CUT_FIELD, "tool calls and results")] {
            if let Some(bytes) = record.extra_number(field) {
                out.line(format!(
                    "{YELLOW}(its {what} had {bytes} bytes and was truncated){YELLOW:#}"
                ))?;
            }
        }
        out.line("")?;
    }
    Ok(())
}

async fn list_turns(chats: &Chats, turns: &TurnsArgs, out: &mut Output) -> Result<()> {
    let mut lines = chats.turns(&turns.one.name).await?;
    if turns.unsummarized {
        lines.retain(|line| line.state == turn_log::TurnState::Raw);
    }
    if out.is_json() {
        return out.json_named("turns", &json_output::turns(&lines));
    }
    if lines.is_empty() {
        out.info(if turns.unsummarized {
            "Every turn is summarized"
        } else {
            "There are no turns yet"
        });
    }
    lines.iter().try_for_each(|line| print_turn(line, out))
}

async fn list_artifacts(chats: &Chats, artifacts: &ArtifactsArgs, out: &mut Output) -> Result<()> {
    let name = &artifacts.one.name;
    if let (Some(which), Some(other)) = (&artifacts.which, &artifacts.diff) {
        let ((old, before), (new, after)) =
            (chats.artifact(name, which).await?, chats.artifact(name, other).await?);
        let text = json_output::artifact_diff((&old, &before), (&new, &after));
        return if out.is_json() {
            out.json_named("diff", &text)
        } else {
            out.raw(&sanitize::escape_for_terminal(&text))
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
        out.info("There are no artifacts yet");
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

async fn print_fact_changes(chats: &Chats, diff: &DiffArgs, out: &mut Output) -> Result<()> {
    let compared = chats.compare_facts(&diff.one.name, diff.from, diff.to).await?;
    if out.is_json() {
        return out.json(&json_output::changes(&compared));
    }
    if compared.added.is_empty() && compared.changed.is_empty() && compared.removed.is_empty() {
        out.info("Nothing changed");
    }
    for text in &compared.removed {
        out.line(format!("{RED}- {}{RED:#}", sanitize::escape_for_terminal(text)))?;
    }
    for (old, new) in &compared.changed {
        out.line(format!("{YELLOW}~ {}{YELLOW:#}", sanitize::escape_for_terminal(old)))?;
        out.line(format!("{YELLOW}  {}{YELLOW:#}", sanitize::escape_for_terminal(new)))?;
    }
    for text in &compared.added {
        out.line(format!("{GREEN}+ {}{GREEN:#}", sanitize::escape_for_terminal(text)))?;
    }
    Ok(())
}

async fn retry_summaries(chats: &Chats, name: &str, out: &mut Output) -> Result<()> {
    // An unknown name is refused before the model is called.
    chats.turns(name).await?;
    let models = bootstrap::open_models()?;
    if models.summarizer.is_none() {
        return Err(AppError::new(
            Exit::NotFound,
            "there is no model to summarize with; set [summarizer] in your config.toml",
        )
        .into());
    }
    let reflected = chats.reflect(name, models.model_budget().as_ref(), true).await?;
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
        out.info(format!("  turn {turn}: {}", sanitize::one_line(why)));
    }
    for note in &reflected.notes {
        out.info(format!("  {}", sanitize::one_line(note)));
    }
    Ok(())
}

async fn delete_conversation(
    chats: &Chats,
    delete: &DeleteConversationArgs,
    out: &mut Output,
) -> Result<()> {
    if !delete.yes {
        let message = format!(
            "this deletes `{}` permanently; pass --yes to do it",
            sanitize::one_line(&delete.one.name)
        );
        chats.turns(&delete.one.name).await?;
        return Err(AppError::new(Exit::Usage, message).into());
    }
    let gone = chats.delete_conversation(&delete.one.name).await?;
    if out.is_json() {
        return out.json(&gone);
    }
    out.line(format!(
        "{} is deleted: {} messages, {} files",
        sanitize::one_line(&gone.conversation),
        gone.messages,
        gone.files
    ))?;
    out.info("Summaries of its days and promoted facts stay");
    Ok(())
}
