//! Anthropic's memory tool on the command line, for programs that run a model's tools.

use std::path::Path;

use anyhow::Result;
use clap::Args;
use icecore_domain::sanitize;
use serde_json::json;

use super::capture;
use super::output::{CYAN, Output};
use crate::bootstrap::OpenMemory;
use crate::error::{AppError, Exit};

#[derive(Debug, Args)]
pub struct MemoryToolArgs {
    /// List earlier versions of a file, instead of reading a call from standard input
    #[arg(long, value_name = "PATH")]
    versions: Option<String>,
    /// Print that version of the file, from 1
    #[arg(long, value_name = "NUMBER", requires = "versions")]
    version: Option<usize>,
}

/// Runs `icecore memory-tool`.
pub async fn run_memory_tool(
    open: &OpenMemory,
    asked: &MemoryToolArgs,
    out: &mut Output,
) -> Result<()> {
    if let Some(path) = &asked.versions {
        return print_versions(open, path, asked.version, out).await;
    }
    let input = capture::read_input(Path::new("-"), out)?;
    let answer = open.memory.run_memory_tool(input.trim()).await?;
    if out.is_json() {
        return out.json(&answer);
    }
    for (kind, many) in &answer.secrets {
        out.warn(format!(
            "{many} \u{d7} a secret ({kind}) was replaced before anything was written"
        ));
    }
    if answer.is_error {
        let told = answer.content.strip_prefix("Error: ").unwrap_or(&answer.content);
        return Err(AppError::new(Exit::Usage, sanitize::escape_for_terminal(told)).into());
    }
    out.line(sanitize::escape_for_terminal(&answer.content))
}

async fn print_versions(
    open: &OpenMemory,
    path: &str,
    number: Option<usize>,
    out: &mut Output,
) -> Result<()> {
    let all = open.memory.list_memory_tool_versions(path).await?;
    if let Some(number) = number {
        let version = number.checked_sub(1).and_then(|at| all.get(at));
        let version = version.ok_or_else(|| {
            AppError::new(
                Exit::NotFound,
                format!(
                    "there is no version {number} of {}; there are {}",
                    sanitize::one_line(path),
                    all.len()
                ),
            )
        })?;
        return if out.is_json() { out.json(version) } else { out.raw(&version.text) };
    }
    if out.is_json() {
        return out.json(&json!({ "path": path, "versions": all }));
    }
    for (at, version) in all.iter().enumerate() {
        let to = version
            .to
            .as_ref()
            .map_or(String::new(), |to| format!(" to {}", sanitize::one_line(to)));
        out.line(format!(
            "{CYAN}{:>4}{CYAN:#}  {}  {} bytes, before {} {}{to}",
            at + 1,
            sanitize::one_line(&version.ts),
            version.text.len(),
            sanitize::one_line(&version.did),
            sanitize::one_line(&version.path)
        ))?;
    }
    if all.is_empty() {
        out.info("There are no earlier versions.");
    }
    Ok(())
}
