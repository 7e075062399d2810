//! `pack` and `zoom`: context packs for a model, and the original words of any time.

use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, Subcommand, ValueEnum};
use icecore_domain::event::Scope;
use icecore_domain::packs::Pack;
use icecore_domain::{layout, plain};
use icecore_engine::Before;

use super::capture::read_input;
use super::out::{BOLD, CYAN, DIM, Out, YELLOW};
use super::{Global, read};
use crate::error::{Exit, Stop};
use crate::told;
use crate::wire::Open;

#[derive(Debug, Subcommand)]
pub enum PackKind {
    /// The context of a new session: the latest month, this week, today's sessions; at most 35,840
    /// bytes
    #[command(
        after_help = "Examples:\n  icecore pack upload                       also written to primers/upload/UPLOAD_PACKAGE.md\n  icecore pack upload --date 2026-02-13     as it was on that day\n  icecore pack upload --json | jq .left_out"
    )]
    Upload(Upload),
    /// Yesterday and today in full, then days, weeks, months, years; at most 20,000 tokens
    #[command(
        after_help = "Examples:\n  icecore pack pyramid\n  icecore pack pyramid --budget 8000\n  icecore pack pyramid --project . --system prompt.md"
    )]
    Pyramid(Pyramid),
    /// What matters now, on one page of eight sections; at most 3,000 words
    #[command(
        after_help = "Examples:\n  icecore pack recall                     also written to recall/pack.md\n  icecore pack recall --date 2026-02-13   as it was at the end of that day\n  icecore pack recall --scope project:app with what holds in one project\n  icecore pack recall --json | jq .left_out"
    )]
    Recall(Recall),
    /// The context of one prompt: the three oldest commitments and the pages its words trigger
    #[command(
        after_help = "Examples:\n  icecore pack delta \"how is the shopify store doing?\"\n  some-program | icecore pack delta -"
    )]
    Delta(Delta),
    /// The start of an assistant's session: who is who, the recall pack, the saved state, the last
    /// logs; at most 9,000 characters
    #[command(
        after_help = "Examples:\n  icecore pack session-start\n  icecore pack session-start --kind side       without MEMORY.md\n  icecore pack session-start --budget 4000c"
    )]
    SessionStart(SessionStart),
    /// The context of a chat: rules, facts, turns in short, the last turns verbatim
    #[command(
        after_help = "Examples:\n  icecore pack chat --conversation trip\n  icecore pack chat --conversation trip --user ann --json | jq .left_out"
    )]
    Chat(ChatPack),
}

#[derive(Debug, Args)]
pub struct ChatPack {
    /// The conversation
    #[arg(long, value_name = "NAME")]
    conversation: String,
    /// In this end user's space
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
}

#[derive(Debug, Args)]
pub struct Recall {
    /// As of this day: 2026-02-13, yesterday …
    #[arg(long, value_name = "DATE")]
    date: Option<String>,
    /// Also statements of this scope: project:NAME, conversation:ID; may be given several times
    #[arg(long, value_name = "SCOPE", value_parser = read::scope)]
    scope: Vec<Scope>,
}

#[derive(Debug, Args)]
pub struct Delta {
    /// The prompt; `-` reads standard input
    #[arg(required = true, value_name = "PROMPT")]
    prompt: Vec<String>,
    /// As of this day: 2026-02-13, yesterday …; pages are as they are now
    #[arg(long, value_name = "DATE")]
    date: Option<String>,
    /// At most this many characters
    #[arg(long, value_name = "CHARACTERS", value_parser = read::amount)]
    budget: Option<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SessionKind {
    /// Your own session
    Main,
    /// A subagent's session: without MEMORY.md
    Side,
}

#[derive(Debug, Args)]
pub struct SessionStart {
    /// The kind of session
    #[arg(long, value_name = "KIND", default_value = "main")]
    kind: SessionKind,
    /// As of this day: 2026-02-13, yesterday …; your own files and the saved state are as they are
    /// now
    #[arg(long, value_name = "DATE")]
    date: Option<String>,
    /// At most this many characters
    #[arg(long, value_name = "CHARACTERS", default_value = "9000", value_parser = read::amount)]
    budget: usize,
}

#[derive(Debug, Args)]
pub struct Upload {
    /// As of this day: 2026-02-13, yesterday …
    #[arg(long, value_name = "DATE")]
    date: Option<String>,
    /// At most this many bytes
    #[arg(long, value_name = "BYTES", value_parser = read::amount)]
    budget: Option<usize>,
}

#[derive(Debug, Args)]
pub struct Pyramid {
    /// As of this day: 2026-02-13, yesterday …
    #[arg(long, value_name = "DATE")]
    date: Option<String>,
    /// At most this many tokens of history, up to 50,000
    #[arg(long, value_name = "TOKENS", value_parser = read::amount)]
    budget: Option<usize>,
    /// Instructions to put before everything
    #[arg(long, value_name = "FILE")]
    system: Option<PathBuf>,
    /// A project whose CLAUDE.md, AGENTS.md and README.md are put before the history
    #[arg(long, value_name = "DIR")]
    project: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct Zoom {
    /// When: yesterday, last tuesday, 2026-02-13, 2026-W07, feb 2026, last month, "3 days ago" …
    #[arg(required = true, value_name = "WHEN")]
    when: Vec<String>,
    /// The summary instead of the original words
    #[arg(long)]
    summary: bool,
    /// Only of this conversation
    #[arg(long, value_name = "NAME")]
    conversation: Option<String>,
}

/// Files that describe a project.
const PROJECT_FILES: &[&str] = &["CLAUDE.md", "AGENTS.md", "README.md"];
/// Below this size a pack has no room for content.
const LEAST_UPLOAD_BYTES: usize = 512;

fn day(text: Option<&str>, open: &Open) -> Result<Option<jiff::civil::Date>> {
    let Some(text) = text else { return Ok(None) };
    let span = read::when(text, open.memory.now().day())?.span();
    if span.first != span.last {
        return Err(Stop::new(Exit::Usage, format!("--date: `{text}` is more than one day")).into());
    }
    Ok(Some(span.first))
}

pub async fn pack(open: &Open, global: &Global, kind: &PackKind, out: &mut Out) -> Result<()> {
    let pack = match kind {
        PackKind::Chat(chat) => {
            open.chats(global, chat.user.as_deref()).await?.pack(&chat.conversation).await?
        }
        PackKind::Upload(upload) => {
            let most = open.memory.policy().budget.upload_bytes;
            if let Some(budget) = upload.budget
                && !(LEAST_UPLOAD_BYTES..=most).contains(&budget)
            {
                return Err(Stop::new(
                    Exit::Usage,
                    format!("--budget: choose between {LEAST_UPLOAD_BYTES} and {most} bytes"),
                )
                .into());
            }
            let date = day(upload.date.as_deref(), open)?;
            let pack = open.memory.pack_upload(date, upload.budget).await?;
            if date.is_none() && upload.budget.is_none() {
                open.memory.write_upload(&pack).await?;
            }
            pack
        }
        PackKind::Pyramid(pyramid) => {
            let mut before = Before::default();
            if let Some(file) = &pyramid.system {
                before.system = Some(read_input(file, out)?);
            }
            if let Some(folder) = &pyramid.project {
                if !folder.is_dir() {
                    return Err(Stop::new(
                        Exit::NotFound,
                        format!("{} is not a folder", folder.display()),
                    )
                    .into());
                }
                for name in PROJECT_FILES {
                    let path = folder.join(name);
                    if path.is_file() {
                        before.files.push(((*name).to_owned(), read_input(&path, out)?));
                    }
                }
            }
            open.memory
                .pack_pyramid(day(pyramid.date.as_deref(), open)?, pyramid.budget, &before)
                .await?
        }
        PackKind::Recall(recall) => {
            super::ledger::notice(open, out).await;
            let date = day(recall.date.as_deref(), open)?;
            let pack = open.memory.pack_recall(date, &recall.scope).await?;
            if date.is_none() && recall.scope.is_empty() {
                // A full or read-only disk must not keep it from being printed.
                if let Err(error) = open.memory.write_recall(&pack).await {
                    out.warn(format!("{} was not written: {error}", layout::RECALL));
                }
            }
            pack
        }
        PackKind::Delta(delta) => {
            if delta.budget.is_some_and(|budget| budget < LEAST_UPLOAD_BYTES) {
                return Err(Stop::new(
                    Exit::Usage,
                    format!("--budget: at least {LEAST_UPLOAD_BYTES} characters are needed"),
                )
                .into());
            }
            let date = day(delta.date.as_deref(), open)?;
            open.memory
                .pack_delta(&super::ledger::text_of(&delta.prompt)?, delta.budget, date)
                .await?
        }
        PackKind::SessionStart(start) => {
            if start.budget < LEAST_UPLOAD_BYTES {
                return Err(Stop::new(
                    Exit::Usage,
                    format!("--budget: at least {LEAST_UPLOAD_BYTES} characters are needed"),
                )
                .into());
            }
            let kind = match start.kind {
                SessionKind::Main => icecore_engine::SessionKind::Main,
                SessionKind::Side => icecore_engine::SessionKind::Side,
            };
            open.memory
                .pack_session_start(kind, start.budget, day(start.date.as_deref(), open)?)
                .await?
        }
    };
    tell(&pack, out)
}

fn tell(pack: &Pack, out: &mut Out) -> Result<()> {
    if out.is_json() {
        return out.json(pack);
    }
    out.raw(&plain::visible(&pack.text))?;
    out.whisper(format!(
        "{} bytes, {} words, about {} tokens",
        pack.bytes, pack.words, pack.tokens
    ));
    for left in &pack.left_out {
        out.say(format!("left out: {} ({})", left.what, left.why));
    }
    Ok(())
}

pub async fn zoom(open: &Open, zoom: &Zoom, out: &mut Out) -> Result<()> {
    let when = read::when(&zoom.when.join(" "), open.memory.now().day())?;
    let zoomed = open.memory.zoom(when, zoom.conversation.as_deref(), zoom.summary).await?;
    if zoom.summary {
        if zoomed.summaries.is_empty() {
            return Err(nothing(
                &when.to_string(),
                "has been summarized of it yet; `icecore zoom` without --summary shows the words",
            )
            .into());
        }
        if out.is_json() {
            return out.json(&told::zoomed(&zoomed, true));
        }
        for (at, summary) in zoomed.summaries.iter().enumerate() {
            if at > 0 {
                out.line("")?;
            }
            out.line(format!(
                "{BOLD}{}{BOLD:#}{}",
                summary.period.title(),
                if summary.provisional { "  (provisional)" } else { "" }
            ))?;
            out.line(plain::visible(&summary.headline))?;
            if !summary.body.is_empty() {
                out.line("")?;
                out.line(plain::visible(&summary.body))?;
            }
            if let Some(similar) = &summary.similar {
                out.line("")?;
                out.line(format!("{DIM}Similar: {similar}{DIM:#}"))?;
            }
        }
        return Ok(());
    }
    if zoomed.records.is_empty() {
        let what = zoom.conversation.as_ref().map_or("was said then".into(), |name| {
            format!("was said in {} then", plain::one_line(name))
        });
        return Err(nothing(&when.to_string(), &what).into());
    }
    if out.is_json() {
        return out.json(&told::zoomed(&zoomed, false));
    }
    let mut last = None;
    for record in &zoomed.records {
        if last != Some(record.ts.day()) {
            if last.is_some() {
                out.line("")?;
            }
            last = Some(record.ts.day());
            out.line(format!(
                "{BOLD}{} {}{BOLD:#}",
                icecore_domain::calendar::weekday(record.ts.day()),
                record.ts.day()
            ))?;
        }
        let title = record
            .title
            .as_ref()
            .map_or(String::new(), |title| format!(" ({})", plain::one_line(title)));
        let text = plain::visible(record.text.trim_end());
        let withdrawn = if record.withdrawn {
            format!(" {YELLOW}(withdrawn){YELLOW:#}")
        } else {
            String::new()
        };
        let mut lines = text.lines();
        let first = lines.next().unwrap_or_default();
        let spoken = format!(
            "{DIM}{}{DIM:#} {CYAN}{}{CYAN:#}{title}{withdrawn}: {first}",
            record.ts.clock(),
            plain::one_line(record.speaker())
        );
        out.line(spoken.trim_end())?;
        lines.try_for_each(|line| out.line(format!("      {line}").trim_end()))?;
        if let Some(parts) = &record.parts {
            out.line(format!(
                "      {DIM}with {}{DIM:#}",
                icecore_domain::budget::shortened(&plain::one_line(parts), 200)
            ))?;
        }
    }
    Ok(())
}

fn nothing(when: &str, what: &str) -> Stop {
    Stop::new(Exit::NotFound, format!("{when}: nothing {what}"))
}
