//! The prompts a user can choose: starting and ending a session.
//!
//! The prompt texts are fixed. Memory is attached as a resource, marked as such, and never becomes
//! part of the text.

use anyhow::Result;
use icecore_domain::budget;
use icecore_engine::Memory;
use rmcp::model::{GetPromptResult, JsonObject, Prompt, PromptArgument, PromptMessage, Role};

use super::tools;
use crate::api::call::{quote_input, usage_error};

/// The prompt that starts a session.
const SESSION_START_PROMPT: &str = include_str!("../../prompts/session-start.md");
/// The prompt that ends a session.
const SESSION_END_PROMPT: &str = include_str!("../../prompts/session-end.md");
const MAX_PROJECT_BYTES: usize = 200;

/// Every prompt.
pub fn all_prompts() -> Vec<Prompt> {
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
pub async fn complete_argument(memory: &Memory, name: &str, argument: &str) -> Result<Vec<String>> {
    let prompt = find_prompt(name)?;
    if !prompt.arguments.unwrap_or_default().iter().any(|known| known.name == argument) {
        return Err(usage_error(format!("{name} takes no argument {}", quote_input(argument))));
    }
    Ok(memory.project_names().await?)
}

fn find_prompt(name: &str) -> Result<Prompt> {
    let prompt = all_prompts().into_iter().find(|prompt| prompt.name == name);
    prompt.ok_or_else(|| {
        usage_error(format!("there is no prompt {}; prompts/list lists them", quote_input(name)))
    })
}

/// A prompt with its arguments.
pub async fn get_prompt(
    memory: &Memory,
    name: &str,
    arguments: Option<JsonObject>,
) -> Result<GetPromptResult> {
    let arguments = arguments.unwrap_or_default();
    let prompt = find_prompt(name)?;
    let taken: Vec<String> =
        prompt.arguments.unwrap_or_default().into_iter().map(|argument| argument.name).collect();
    if let Some(unknown) = arguments.keys().find(|given| !taken.contains(given)) {
        return Err(usage_error(format!("{name} takes no argument {}", quote_input(unknown))));
    }
    let mut messages = Vec::new();
    match name {
        "session_start" => {
            let project = arguments
                .get("project")
                .and_then(|value| value.as_str())
                .map(str::trim)
                .filter(|name| !name.is_empty());
            if project.is_some_and(|project| project.len() > MAX_PROJECT_BYTES) {
                return Err(usage_error(format!(
                    "`project`: a name may have at most {MAX_PROJECT_BYTES} bytes, got {}",
                    quote_input(project.unwrap_or_default())
                )));
            }
            messages.push(PromptMessage::new_text(Role::User, SESSION_START_PROMPT));
            let kind = if project.is_some() { "recall" } else { "session-start" };
            let pack = tools::build_pack(memory, kind, None, project.map(str::to_owned)).await?;
            let text = budget::truncate_at_word(&pack.text, super::tool_output::MAX_ANSWER_TOKENS);
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
        _ => messages.push(PromptMessage::new_text(Role::User, SESSION_END_PROMPT)),
    }
    let mut result = GetPromptResult::new(messages);
    result.description = prompt.description;
    Ok(result)
}
