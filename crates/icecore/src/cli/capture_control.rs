//! `pause`, `resume` and `hook log`: controlling capture, and showing what hooks injected.

use anyhow::Result;
use clap::{Args, Subcommand};
use icecore_domain::pause::{Pause as Paused, PauseScope};
use icecore_domain::sanitize;
use icecore_engine::project;
use serde_json::json;

use super::output::{BOLD, CYAN, DIM, Output};
use crate::bootstrap::OpenMemory;
use crate::error::{AppError, Exit};
use crate::json_output;

/// What clap knows of hooks: their help, and `hook log`. Hooks themselves are answered before the
/// command line is parsed.
#[derive(Debug, Args)]
pub struct HookArgs {
    #[command(subcommand)]
    command: Option<HookCommand>,
    /// The event of the client
    #[arg(value_name = "EVENT")]
    event: Option<String>,
    /// The client, if its input does not show it: claude-code, codex
    #[arg(long, value_name = "CLIENT")]
    client: Option<String>,
}

impl HookArgs {
    /// The arguments of `hook log`, if it is called.
    pub fn log(&self) -> Option<&HookLogArgs> {
        self.command.as_ref().map(|HookCommand::Log(log)| log)
    }
}

#[derive(Debug, Subcommand)]
enum HookCommand {
    /// Show exactly what the last prompts were given, and why
    #[command(
        after_help = "Examples:\n  icecore hook log\n  icecore hook log --last 20 --json | jq '.injected[].items'\n  icecore hook log --session last"
    )]
    Log(HookLogArgs),
}

/// What a pause applies to.
#[derive(Debug, Args)]
struct PauseTargetArgs {
    /// Only this session; `last` is the most recent one
    #[arg(long, value_name = "ID")]
    session: Option<String>,
    /// Only this project; without a name, the project of this folder
    #[arg(long, value_name = "NAME", num_args = 0..=1, conflicts_with = "session")]
    project: Option<Option<String>>,
}

#[derive(Debug, Args)]
pub struct PauseArgs {
    #[command(flatten)]
    about: PauseTargetArgs,
    /// How long, e.g. 30m, 1h, 2d; without it until `icecore resume`
    #[arg(long = "for", value_name = "TIME", value_parser = icecore_domain::pause::parse_duration_secs)]
    length: Option<i64>,
    /// End the pause instead
    #[arg(long, conflicts_with_all = ["length", "list"])]
    off: bool,
    /// List the pauses instead
    #[arg(long, conflicts_with_all = ["length", "session", "project"])]
    list: bool,
}

#[derive(Debug, Args)]
pub struct ResumeArgs {
    #[command(flatten)]
    about: PauseTargetArgs,
}

#[derive(Debug, Args)]
pub struct HookLogArgs {
    /// At most this many
    #[arg(long, short = 'n', value_name = "N", default_value = "5")]
    last: usize,
    /// Only to this session; `last` is the most recent one
    #[arg(long, value_name = "ID")]
    session: Option<String>,
}

async fn resolve_session(open: &OpenMemory, name: &str) -> Result<String> {
    if name != "last" {
        return Ok(name.to_owned());
    }
    let last = open.memory.newest_session().await?;
    last.ok_or_else(|| {
        AppError::new(
            Exit::NotFound,
            "no hook has reported a session yet; name one with --session ID",
        )
        .into()
    })
}

async fn pause_reach(open: &OpenMemory, about: &PauseTargetArgs) -> Result<PauseScope> {
    Ok(match (&about.session, &about.project) {
        (Some(name), _) => PauseScope::Session(resolve_session(open, name).await?),
        (None, Some(Some(name))) => PauseScope::Project(name.clone()),
        (None, Some(None)) => {
            let name = std::env::current_dir().ok().and_then(|folder| project::project_of(&folder));
            PauseScope::Project(name.ok_or_else(|| {
                AppError::new(
                    Exit::NotFound,
                    "this folder is in no git repository; name one with --project NAME",
                )
            })?)
        }
        (None, None) => PauseScope::Everything,
    })
}

fn describe_pause(pause: &Paused) -> String {
    let until = pause.until.map_or("until `icecore resume`".into(), |until| {
        format!("until {} {}", until.day(), until.clock_time())
    });
    format!("{CYAN}{}{CYAN:#} {until}", sanitize::one_line(&pause.scope.to_string()))
}

/// Runs `icecore pause`.
pub async fn pause(open: &OpenMemory, pause: &PauseArgs, out: &mut Output) -> Result<()> {
    let now = open.memory.now();
    if pause.list {
        let pauses = open.memory.pauses().await?;
        let held: Vec<&Paused> = pauses.active_at(now.timestamp()).collect();
        if out.is_json() {
            return out.json(&json!({ "paused": held.iter().map(|pause| json_output::pause(pause)).collect::<Vec<_>>() }));
        }
        if held.is_empty() {
            return out.line("Nothing is paused.");
        }
        return held.iter().try_for_each(|pause| out.line(describe_pause(pause)));
    }
    let reach = pause_reach(open, &pause.about).await?;
    if pause.off {
        return end_pause(open, &reach, out).await;
    }
    let begun = open.memory.pause_for(reach, pause.length).await?;
    if out.is_json() {
        return out.json(&json!({ "paused": [json_output::pause(&begun)] }));
    }
    out.line(format!("Capture is paused: {}", describe_pause(&begun)))
}

/// Runs `icecore resume`.
pub async fn resume(open: &OpenMemory, resume: &ResumeArgs, out: &mut Output) -> Result<()> {
    let reach = pause_reach(open, &resume.about).await?;
    end_pause(open, &reach, out).await
}

async fn end_pause(open: &OpenMemory, reach: &PauseScope, out: &mut Output) -> Result<()> {
    let ended = open.memory.resume(reach).await?;
    if out.is_json() {
        return out
            .json(&json!({ "resumed": ended.iter().map(json_output::pause).collect::<Vec<_>>() }));
    }
    if ended.is_empty() {
        return out.line("There was no such pause.");
    }
    ended.iter().try_for_each(|pause| {
        out.line(format!("Capture is resumed: {}", sanitize::one_line(&pause.scope.to_string())))
    })
}

/// Runs `icecore hook log`.
pub async fn print_hook_log(
    open: &OpenMemory,
    injected: &HookLogArgs,
    out: &mut Output,
) -> Result<()> {
    let name = match &injected.session {
        Some(name) => Some(resolve_session(open, name).await?),
        None => None,
    };
    let found = open.memory.injections(injected.last, name.as_deref()).await?;
    if out.is_json() {
        return out.json_named("injected", &found);
    }
    if found.is_empty() {
        return match name {
            Some(name) => out.line(format!(
                "Nothing was injected into session {} lately.",
                sanitize::one_line(&name)
            )),
            None => out.line("Nothing was injected into any session yet."),
        };
    }
    for one in &found {
        let project = one
            .project
            .as_ref()
            .map_or(String::new(), |name| format!(", project {}", sanitize::one_line(name)));
        let at = one.ts.get(..16).unwrap_or(&one.ts).replace('T', " ");
        out.line(format!(
            "{BOLD}{at}  {}{BOLD:#}  {DIM}session {}{project}, {} characters{DIM:#}",
            one.event,
            sanitize::one_line(&one.session),
            one.chars
        ))?;
        if let Some(prompt) = &one.prompt {
            out.line(format!("  {DIM}>{DIM:#} {}", sanitize::one_line(prompt)))?;
        }
        for item in &one.items {
            out.line(format!(
                "  {CYAN}{}{CYAN:#}  {}",
                sanitize::one_line(&item.what),
                sanitize::one_line(&item.why)
            ))?;
        }
        for left in &one.left_out {
            out.line(format!("  {DIM}left out: {}{DIM:#}", sanitize::one_line(left)))?;
        }
        out.line("")?;
        for line in sanitize::escape_for_terminal(one.text.trim_end()).lines() {
            out.line(format!("    {line}").trim_end())?;
        }
        out.line("")?;
    }
    Ok(())
}
