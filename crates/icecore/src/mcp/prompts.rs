//! The prompts a user can choose: starting and ending a session.
//!
//! The prompt texts are fixed. Memory is attached as a resource, marked as such, and never becomes
//! part of the text.

use anyhow::Result;
use icecore_domain::budget;
use icecore_engine::Memory;
use rmcp::model::{GetPromptResult, JsonObject, Prompt, PromptArgument, PromptMessage, Role};

use super::tools;
use crate::api::call::{shown, wrong};

/// The prompt that starts a session.
const START: &str = include_str!("../../prompts/session-start.md");
/// The prompt that ends a session.
const END: &str = include_str!("../../prompts/session-end.md");
const MOST_NAME_BYTES: usize = 200;

/// Every prompt.
pub fn all() -> Vec<Prompt> {
    let project = PromptArgument::new("project")
        .with_description("Also include what applies in this project")
        .with_required(false);
    vec![
        Prompt::new(
            "session_start",
            Some("Start with what memory holds: rules, open promises, current work"),
            Some(vec![project]),
        )
        .with_title("Start a session from memory"),
        Prompt::new(
            "session_end",
            Some("Look back over this conversation and write down what will matter later"),
            None,
        )
        .with_title("End a session into memory"),
    ]
}

/// The completions of a prompt's argument.
pub async fn completions(memory: &Memory, name: &str, argument: &str) -> Result<Vec<String>> {
    let prompt = named(name)?;
    if !prompt.arguments.unwrap_or_default().iter().any(|known| known.name == argument) {
        return Err(wrong(format!("{name} takes no argument {}", shown(argument))));
    }
    Ok(memory.known_projects().await?)
}

fn named(name: &str) -> Result<Prompt> {
    let prompt = all().into_iter().find(|prompt| prompt.name == name);
    prompt.ok_or_else(|| {
        wrong(format!("there is no prompt {}; prompts/list lists them", shown(name)))
    })
}

/// A prompt with its arguments.
pub async fn get(
    memory: &Memory,
    name: &str,
    arguments: Option<JsonObject>,
) -> Result<GetPromptResult> {
    let arguments = arguments.unwrap_or_default();
    let prompt = named(name)?;
    let taken: Vec<String> =
        prompt.arguments.unwrap_or_default().into_iter().map(|argument| argument.name).collect();
    if let Some(unknown) = arguments.keys().find(|given| !taken.contains(given)) {
        return Err(wrong(format!("{name} takes no argument {}", shown(unknown))));
    }
    let mut messages = Vec::new();
    match name {
        "session_start" => {
            let project = arguments
                .get("project")
                .and_then(|value| value.as_str())
                .map(str::trim)
                .filter(|name| !name.is_empty());
            if project.is_some_and(|project| project.len() > MOST_NAME_BYTES) {
                return Err(wrong(format!(
                    "`project`: a name may have at most {MOST_NAME_BYTES} bytes, got {}",
                    shown(project.unwrap_or_default())
                )));
            }
            messages.push(PromptMessage::new_text(Role::User, START));
            let kind = if project.is_some() { "recall" } else { "session-start" };
            let pack = tools::packed(memory, kind, None, project.map(str::to_owned)).await?;
            let text = budget::shortened(&pack.text, super::told::MOST_TOKENS);
            let uri = format!("icecore://pack/{kind}");
            messages.push(PromptMessage::new_resource(
                Role::User,
                uri,
                Some("text/markdown".into()),
                Some(text),
                None,
                None,
                None,
            ));
        }
        _ => messages.push(PromptMessage::new_text(Role::User, END)),
    }
    let mut result = GetPromptResult::new(messages);
    result.description = prompt.description;
    Ok(result)
}
