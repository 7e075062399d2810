//! The command line: its definition for clap, and the dispatch to the modules that implement it.

mod capture;
mod capture_control;
mod chat;
mod conversation;
mod dashboard;
mod database_access;
mod demo;
mod event_format;
mod forget;
mod help;
mod import;
mod insights;
mod install;
mod lazy;
mod ledger;
mod maintenance;
mod mcp;
mod memory_tool;
mod merge;
pub mod output;
mod packs;
mod quarantine;
mod search;
mod serve;
mod summaries;
mod transfer;
mod vault;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, CommandFactory, FromArgMatches as _, Parser, Subcommand, ValueEnum};
use icecore_domain::calendar::Moment;
use icecore_domain::event::{EntityKind, EventType, Origin, ParseEnumError, Priority, Scope};
use icecore_domain::id::{EventId, ParseEventIdError};
use icecore_domain::natural_date::NaturalDate;
use icecore_domain::record::Role;
use icecore_domain::summary::{ParsePeriodError, Period};
use icecore_domain::transcript::TranscriptFormat;
use secrecy::SecretString;

use self::lazy::Lazy;
use self::output::Output;
use crate::bootstrap;

/// Long-term memory for LLM assistants, kept in files you can read
#[derive(Debug, Parser)]
#[command(
    name = "icecore",
    version,
    after_help = help::EXIT_CODES,
    arg_required_else_help = true,
    disable_help_subcommand = true
)]
pub struct Cli {
    /// Options of every command.
    #[command(flatten)]
    pub global: GlobalArgs,
    #[command(subcommand)]
    command: CliCommand,
}

impl Cli {
    /// Parses a command line.
    pub fn parse_words(
        words: impl IntoIterator<Item = impl Into<std::ffi::OsString>>,
    ) -> Result<Self, clap::Error> {
        let words: Vec<std::ffi::OsString> = words.into_iter().map(Into::into).collect();
        Self::parse_raw(&words).map_err(|error| help::explain(&words, error))
    }

    fn parse_raw(words: &[std::ffi::OsString]) -> Result<Self, clap::Error> {
        let mut matches = match Self::match_one_command(words) {
            Some(matches) => matches,
            None => leak(Self::command()).try_get_matches_from_mut(words)?,
        };
        let is_meant =
            |name: &str| matches.value_source(name) == Some(clap::parser::ValueSource::CommandLine);
        let (vault_is_meant, space_is_meant) = (is_meant("vault"), is_meant("space"));
        let command = command_path(&matches);
        let mut cli = Self::from_arg_matches_mut(&mut matches)
            .map_err(|error| error.format(&mut Self::command()))?;
        (cli.global.vault_is_meant, cli.global.space_is_meant) = (vault_is_meant, space_is_meant);
        cli.global.command = command;
        match cli.global.location_conflict() {
            Some(said) => {
                Err(Self::command().error(clap::error::ErrorKind::ArgumentConflict, said))
            }
            None => Ok(cli),
        }
    }

    /// Matches the words with a parser that knows only the command they name: every command that
    /// it knows gets its own copy of the global options, and copying them costs more than parsing.
    ///
    /// `None` if the words do not match. Then the parser of all commands decides, and writes the
    /// help or the error.
    fn match_one_command(words: &[std::ffi::OsString]) -> Option<clap::ArgMatches> {
        let name = command_words(words).next()?;
        let one = leak(Self::command()).find_subcommand_mut(name).map(std::mem::take)?;
        let program = clap::Command::new("icecore").disable_help_subcommand(true).subcommand(one);
        leak(GlobalArgs::augment_args(program)).try_get_matches_from_mut(words).ok()
    }

    /// Runs the merge driver if git calls it: git wants an exit code and nothing else.
    pub fn run_merge_driver(&self) -> Option<ExitCode> {
        match &self.command {
            CliCommand::MergeDriver(driver) => Some(merge::answer_git(driver)),
            _ => None,
        }
    }

    /// Whether the command serves many clients at once and needs several threads.
    pub fn needs_threads(&self) -> bool {
        match &self.command {
            CliCommand::Serve(_) | CliCommand::Chat(_) | CliCommand::Mcp(_) => true,
            CliCommand::Daemon(daemon) => daemon.all_spaces,
            _ => false,
        }
    }
}

/// Options that are allowed before or after any command.
#[derive(Debug, Clone, Args)]
pub struct GlobalArgs {
    /// The vault; if not given, the nearest one above this folder, else your own
    #[arg(
        long,
        global = true,
        value_name = "DIR",
        env = "ICECORE_VAULT",
        help_heading = "Global options"
    )]
    pub vault: Option<PathBuf>,
    /// A database: postgres://user@host/name; also ICECORE_STORE or ICECORE_STORE_FILE
    #[arg(long, global = true, value_name = "URL", value_parser = parse::secret, help_heading = "Global options")]
    pub store: Option<SecretString>,
    /// The space in that database; `default` if not given
    #[arg(
        long,
        global = true,
        value_name = "NAME",
        env = "ICECORE_SPACE",
        help_heading = "Global options"
    )]
    pub space: Option<String>,
    /// Whether the vault was given on the command line, which wins over a database from the
    /// environment
    #[arg(skip)]
    pub vault_is_meant: bool,
    /// Whether the space was given on the command line
    #[arg(skip)]
    pub space_is_meant: bool,
    /// The command with its subcommands, such as `db token add`
    #[arg(skip)]
    pub command: String,
    /// Print JSON for machines
    #[arg(long, global = true, help_heading = "Global options")]
    pub json: bool,
    /// Run as of this moment, e.g. 2026-02-13T09:30:00+01:00; newer memory is invisible
    #[arg(long, global = true, value_name = "RFC3339", help_heading = "Global options")]
    pub now: Option<String>,
    /// Print only data, warnings and errors
    #[arg(short, long, global = true, help_heading = "Global options")]
    pub quiet: bool,
    /// Print details
    #[arg(short, long, global = true, conflicts_with = "quiet", help_heading = "Global options")]
    pub verbose: bool,
    /// Colours: auto, always, never (NO_COLOR is respected)
    #[arg(
        long,
        global = true,
        value_name = "WHEN",
        default_value = "auto",
        hide_default_value = true,
        hide_possible_values = true,
        help_heading = "Global options"
    )]
    pub color: Color,
}

impl GlobalArgs {
    /// The store that these options select.
    pub fn store_selection(&self) -> bootstrap::StoreSelection {
        let (vault, store, space) = (self.vault.clone(), self.store.clone(), self.space.clone());
        bootstrap::StoreSelection {
            vault,
            is_meant: self.vault_is_meant,
            store,
            space,
            is_hurried: false,
        }
    }

    /// The error if the command line names two stores at once.
    fn location_conflict(&self) -> Option<&'static str> {
        if self.vault_is_meant && self.store.is_some() {
            return Some("--vault names a folder and --store a database; give one of them");
        }
        if self.vault_is_meant && self.space_is_meant {
            return Some(
                "--vault names a folder, and a folder has no spaces; leave --space out, or name a database with --store",
            );
        }
        if self.space_is_meant && self.space.as_deref().is_some_and(|space| space.trim().is_empty())
        {
            return Some("--space is empty; give it a name, or leave it out for `default`");
        }
        None
    }

    /// The same options for another vault.
    pub fn with_vault(&self, vault: PathBuf) -> Self {
        Self {
            vault: Some(vault),
            vault_is_meant: true,
            store: None,
            space: None,
            space_is_meant: false,
            ..self.clone()
        }
    }
}

/// When to use colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Color {
    Auto,
    Always,
    Never,
}

#[derive(Debug, Subcommand)]
enum CliCommand {
    /// Create a vault: a folder of files with its history in git
    #[command(
        after_help = "Examples:\n  icecore init                     # in your data folder\n  icecore init ./memory            # in a folder of your choice\n  icecore init --tz Europe/Berlin  # with days as in Berlin\n  icecore init --store postgres://me@host/name --space team   # in a database"
    )]
    Init(Lazy<vault::InitArgs>),
    /// Show contents, open commitments, due jobs and problems
    #[command(after_help = "Examples:\n  icecore status\n  icecore status --json | jq .open")]
    Status,
    /// Append a line to today's log
    #[command(
        after_help = "Examples:\n  icecore log \"Met Client X, they want two more weeks\"\n  some-command | icecore log -"
    )]
    Log(Lazy<ledger::LogArgs>),
    /// Record a fact, decision, commitment or other statement
    #[command(
        after_help = "Examples:\n  icecore remember \"Decided on one price for all\" --entity pricing\n  icecore remember \"Never deploy on Fridays\" --priority P0\n  icecore remember \"Send the offer to Client X\" --due friday --waiting-on \"the lawyers\"\n  icecore remember \"The budget is 600 EUR\" --supersedes EVT-20260213-001\n  echo \"long text\" | icecore remember - --type fact\n\nTypes: fact, decision, commitment, preference, constraint, procedure, relationship; guessed from the words without --type."
    )]
    Remember(Lazy<ledger::RememberArgs>),
    /// Close commitments that are done or dropped
    #[command(
        after_help = "Examples:\n  icecore close EVT-20260213-002\n  icecore close 20260213-2 --note \"sent by mail\""
    )]
    Close(Lazy<ledger::EventIdsArgs>),
    /// Confirm that a statement still holds
    #[command(after_help = "Example:\n  icecore confirm EVT-20260213-001")]
    Confirm(Lazy<ledger::EventIdsArgs>),
    /// Retract a statement, a closing or a retraction
    #[command(
        after_help = "Examples:\n  icecore retract EVT-20260213-001 --note \"misheard\"\n  icecore retract EVT-20260213-007   # if 007 closed a commitment, it is open again"
    )]
    Retract(Lazy<ledger::EventIdsArgs>),
    /// Review what only tools and strangers said: confirm or drop it
    #[command(
        subcommand,
        after_help = "Examples:\n  icecore quarantine list\n  icecore quarantine confirm EVT-20260213-001\n  icecore quarantine drop --session app/s1\n\nNothing in quarantine reaches a pack, page or summary until you confirm it."
    )]
    Quarantine(Lazy<quarantine::QuarantineCommand>),
    /// List events of the ledger
    #[command(
        after_help = "Examples:\n  icecore events                          # what holds now\n  icecore events --type decision --since 2026-01-01\n  icecore events --entity client_x --all  # with everything that was replaced or retracted\n  icecore events pricing --json           # by text, for machines"
    )]
    Events(Lazy<ledger::EventsArgs>),
    /// List open commitments, oldest first
    #[command(
        after_help = "Examples:\n  icecore commitments\n  icecore commitments --json | jq -r '.commitments[] | select(.due) | .id'"
    )]
    Commitments,
    /// List statements that contradict each other
    #[command(
        after_help = "Example:\n  icecore conflicts      # with the commands that settle each of them"
    )]
    Conflicts,
    /// Show an event and the chain it belongs to
    #[command(
        after_help = "Example:\n  icecore show EVT-20260213-001     # what it replaced, what replaced it, who closed it"
    )]
    Show(Lazy<ledger::ShowArgs>),
    /// Trace an event, a summary or a line of a pack to its source
    #[command(
        after_help = "Examples:\n  icecore why EVT-20260213-001\n  icecore why 2026-W07\n  icecore why knowledge/entities/apollo.md\n  icecore why \"- Never deploy on Fridays (EVT-20260213-002)\"\n  icecore why \"the port moved to 7431\"        # a line of a summary or pack"
    )]
    Why(Lazy<ledger::WhyArgs>),
    /// Store messages verbatim
    #[command(
        subcommand,
        after_help = "Example:\n  icecore message add \"we use port 7431\" --conversation app"
    )]
    Message(Lazy<capture::MessageCommand>),
    /// Store whole sessions and write their primers
    #[command(subcommand, after_help = "Example:\n  icecore session add talk.md")]
    Session(Lazy<capture::SessionCommand>),
    /// Save an assistant's working state for its next session
    #[command(
        after_help = "Examples:\n  icecore save-state state.md --title \"before lunch\"\n  some-program | icecore save-state --title \"auto-save\"\n\nThe state is also kept as a snapshot and entered in 24hr.md."
    )]
    SaveState(Lazy<capture::SaveStateArgs>),
    /// Import conversation history: Claude Code, Codex, ChatGPT, …
    #[command(
        after_help = "Examples:\n  icecore import claude-code                   # everything in ~/.claude/projects\n  icecore import claude-code --dry-run         # what would be imported\n  icecore import chatgpt-export.zip            # the format is detected\n  icecore import ~/notes --format markdown\n  icecore import history.jsonl                 # one JSON object per line\n\nFormats: claude-code, codex (also .zst), chatgpt and claude-ai (zip or json), mem0, mcp-memory, markdown, jsonl.\nFields of jsonl: conversation, session, role, name, ts, id, text; ts and text are required.\nAn interrupted run resumes where it stopped; a second run reads only what is new, and nothing is imported twice."
    )]
    Import(Lazy<import::ImportArgs>),
    /// Summarize sessions into days, weeks, months and years
    #[command(
        after_help = "Examples:\n  icecore rollup                         # everything that is due\n  icecore rollup --dry-run               # what would be summarized\n  icecore rollup week --period 2026-W07  # this week, now\n  icecore rollup due --backfill          # the past, newest first, after an import\n\nWithout a model, summaries consist of the sources' own sentences and are marked provisional; `icecore model check` shows what is configured."
    )]
    Rollup(Lazy<summaries::RollupArgs>),
    /// Run the nightly job now: learn, update pages, roll up, check
    #[command(
        after_help = "Examples:\n  icecore consolidate             # what the daemon does at 03:00\n  icecore consolidate --dry-run   # what would be done\n\nA report is written to knowledge/consolidation-reports/. The next run finishes one that was interrupted."
    )]
    Consolidate(Lazy<maintenance::ConsolidateArgs>),
    /// Archive superseded lines: one event per finished chain
    #[command(
        after_help = "Examples:\n  icecore compact --dry-run\n  icecore compact\n\nPermanent and open events stay. Archived ids still resolve: `icecore show`, `icecore why`."
    )]
    Compact(Lazy<maintenance::CompactArgs>),
    /// Archive expired events (P2 after 90 days, P3 after 30)
    #[command(after_help = "Examples:\n  icecore prune --dry-run\n  icecore prune")]
    Prune(Lazy<maintenance::CompactArgs>),
    /// Migrate an existing memory folder
    #[command(
        after_help = "Examples:\n  icecore migrate ~/old-memory --dry-run   # the plan and the inventory\n  icecore migrate ~/old-memory\n  icecore migrate ~/.claude/projects/app/memory\n\nA folder elsewhere is only read. In the vault itself old files move to memory/archive/migrated once their content is stored.\nThe tables of a database are migrated by `icecore db migrate`."
    )]
    Migrate(Lazy<maintenance::MigrateArgs>),
    /// List the trigger words that load pages
    #[command(
        after_help = "Examples:\n  icecore triggers\n  icecore triggers --keep     # write the suggestions into recall/triggers.json, to be edited"
    )]
    Triggers(Lazy<maintenance::TriggersArgs>),
    /// Review refused drafts, mark days as important or dull
    #[command(
        subcommand,
        after_help = "Examples:\n  icecore summary review\n  icecore summary mark yesterday important"
    )]
    Summary(Lazy<SummaryCommand>),
    /// Assemble context for a model
    #[command(
        subcommand,
        after_help = "Examples:\n  icecore pack upload --budget 8k\n  icecore pack recall"
    )]
    Pack(Lazy<packs::PackCommand>),
    /// Show the original words of any day, week or month
    #[command(
        after_help = "Examples:\n  icecore zoom yesterday\n  icecore zoom last tuesday --summary\n  icecore zoom 2026-W07 --conversation app\n  icecore zoom feb 2026 --json"
    )]
    Zoom(Lazy<packs::ZoomArgs>),
    /// Search everything ever said, learnt or written
    #[command(
        after_help = "Examples:\n  icecore search where did we keep the spare key\n  icecore search postgres --when \"last month\" --kind message --kind event\n  icecore search '\"the very words\"' --context 2\n  icecore search --queries questions.jsonl --limit 20 > answers.jsonl\n\nKeyword search only, until `icecore model fetch` has fetched the model for semantic search. -v shows how to zoom to each hit."
    )]
    Search(Lazy<search::SearchArgs>),
    /// Show recurring topics, past periods and similar periods
    #[command(
        subcommand,
        after_help = "Examples:\n  icecore insights trends\n  icecore insights lookback\n  icecore insights similar 2026-W07"
    )]
    Insights(Lazy<InsightsCommand>),
    /// Inspect chats: facts, turns, artifacts; delete a chat
    #[command(
        subcommand,
        after_help = "Examples:\n  icecore conversation list\n  icecore conversation show trip"
    )]
    Conversation(Lazy<conversation::ConversationCommand>),
    /// Chat with the configured model, with memory
    #[command(
        after_help = "Examples:\n  icecore chat                       # continue the conversation `terminal`\n  icecore chat --conversation trip   # another one\n  echo \"what do you know about me?\" | icecore chat\n\nThe model is [chat] of your config.toml; `icecore model check` tries it. Memory that was injected is shown in dim letters; -q hides it."
    )]
    Chat(Lazy<chat::ChatArgs>),
    /// Serve the OpenAI- and Anthropic-compatible API with memory
    #[command(
        after_help = "Examples:\n  icecore serve                        # on 127.0.0.1:7431, for this machine\n  icecore serve --addr 127.0.0.1:0     # on a free port, which is printed\n  icecore serve --root ./chats         # a store of its own, with a space for every end user\n  icecore serve --store postgres://…   # memory in a database, for as many servers as you like\n\nPoint a client's base URL at http://127.0.0.1:7431/v1 (Anthropic's clients: without /v1) and give it the token as its key.\nThe model behind it is [chat] of your config.toml; [summarizer] writes summaries and extracts facts."
    )]
    Serve(Lazy<serve::ServeArgs>),
    /// Print a login link for the dashboard of a running server
    #[command(
        after_help = "Examples:\n  icecore serve                                 # in one terminal\n  icecore dashboard                             # in another: open the link that it prints\n  xdg-open \"$(icecore dashboard -q)\"\n\nThe link works once, within ten minutes; its code never reaches a log."
    )]
    Dashboard(Lazy<dashboard::DashboardArgs>),
    /// Serve the Model Context Protocol on standard input and output
    #[command(
        after_help = "Examples:\n  claude mcp add icecore -- icecore mcp     # Claude Code starts it by itself\n  icecore mcp --read-only                   # only tools that read\n  icecore --vault ~/team mcp                # another vault\n\nClients start it; it has no use on a terminal. Its vault is the one named, else your own, never one that belongs to the\ncurrent folder. `icecore serve` serves the same at /mcp over HTTP."
    )]
    Mcp(Lazy<mcp::McpArgs>),
    /// Answer Anthropic's memory tool: JSON on standard input
    #[command(
        after_help = "Examples:\n  echo '{\"command\":\"view\",\"path\":\"/memories\"}' | icecore memory-tool --json\n  icecore memory-tool --versions /memories/plan.md\n  icecore memory-tool --versions /memories/plan.md --version 2 > plan.md\n\n/memories is the folder memory/tool of the vault. Every earlier version of a file is kept."
    )]
    MemoryTool(Lazy<memory_tool::MemoryToolArgs>),
    /// Connect a client: Claude Code, Codex, Cursor, VS Code, …
    #[command(
        after_help = "Examples:\n  icecore install                          # the clients of this machine\n  icecore install claude-code --dry-run    # what would change\n  icecore install claude-code              # shows the change, then asks\n  icecore install cursor --project --yes   # for this project only, without asking\n  icecore install codex --vault ~/memory   # bound to one vault\n\nComments, order and all other settings stay, and a backup is kept. `icecore uninstall` restores it."
    )]
    Install(Lazy<install::InstallArgs>),
    /// Remove icecore from a client's settings
    #[command(
        after_help = "Examples:\n  icecore uninstall claude-code --dry-run\n  icecore uninstall claude-code --yes\n\nIf nothing else changed since, the file comes back byte for byte; otherwise only the entries of icecore are removed."
    )]
    Uninstall(Lazy<install::UninstallArgs>),
    /// Answer a client's hook; show what hooks injected
    #[command(
        after_help = "Examples:\n  icecore hook session-start          # what Claude Code and Codex call; see docs/hooks.md\n  icecore hook user-prompt-submit --client codex --vault ~/memory\n  echo '{\"session_id\":\"s1\",\"prompt\":\"which port?\"}' | icecore hook user-prompt-submit\n  icecore hook log                    # what the last prompts were given, and why\n\nEvents: session-start, user-prompt-submit, pre-compact, post-compact, stop, subagent-stop, session-end; any other word does\nnothing. A hook reads one JSON object, prints one and exits with 0. `icecore status` and `icecore doctor` report what failed."
    )]
    Hook(Lazy<capture_control::HookArgs>),
    /// Stop capturing: for a while, a session or a project
    #[command(
        after_help = "Examples:\n  icecore pause --for 1h             # everything, for an hour\n  icecore pause --session last       # the current session\n  icecore pause --project            # the project of this folder\n  icecore pause --list\n  icecore pause --off                # or `icecore resume`\n\nWhat is said meanwhile is not captured later either, when the transcript is read. A prompt that begins or ends with #private and\nthe answer to it are never captured; nor is text between <private> and </private>."
    )]
    Pause(Lazy<capture_control::PauseArgs>),
    /// Resume capturing
    #[command(
        after_help = "Examples:\n  icecore resume                     # all pauses end\n  icecore resume --project app"
    )]
    Resume(Lazy<capture_control::ResumeArgs>),
    /// Show the schedule, the calendar and past runs
    #[command(
        subcommand,
        after_help = "Examples:\n  icecore jobs schedule\n  icecore jobs runs --limit 5"
    )]
    Jobs(Lazy<JobsCommand>),
    /// Keep running and run jobs when they are due
    #[command(
        after_help = "Examples:\n  icecore daemon\n  icecore daemon --once                                      # for cron\n  icecore daemon --all-spaces --store postgres://db/chat     # every space of a database"
    )]
    Daemon(Lazy<summaries::DaemonArgs>),
    /// Check the configured models, fetch the embedding model
    #[command(subcommand, after_help = "Examples:\n  icecore model check\n  icecore model fetch")]
    Model(Lazy<summaries::ModelCommand>),
    /// Check the integrity of everything stored
    #[command(
        after_help = "Examples:\n  icecore verify                 # exit 6 if anything fails\n  icecore verify --json | jq .ok"
    )]
    Verify,
    /// Diagnose problems; --fix repairs them
    #[command(
        after_help = "Examples:\n  icecore doctor         # check only\n  icecore doctor --fix   # restore lost lines, quarantine broken ones, rebuild derived data"
    )]
    Doctor(Lazy<vault::DoctorArgs>),
    /// Take a snapshot to return to, or list snapshots
    #[command(
        after_help = "Examples:\n  icecore snapshot --note \"before the migration\"\n  icecore snapshot --list"
    )]
    Snapshot(Lazy<vault::SnapshotArgs>),
    /// Return to the last snapshot; a second undo comes back
    #[command(
        after_help = "Examples:\n  icecore undo\n  icecore undo --to 1a2b3c4d\n\nPages and settings are restored. The ledger only grows: new events retract what was recorded since."
    )]
    Undo(Lazy<vault::UndoArgs>),
    /// Erase words, events, messages or a conversation permanently
    #[command(
        after_help = "Examples:\n  icecore forget --matching \"the door code is 4711\" --dry-run   # what would be erased, and where\n  icecore forget EVT-20260213-004 --reason \"she asked for it\"\n  icecore forget conversation/trip --history --yes              # also from every snapshot\n\nWhole words match, whatever their case and spacing; a line that holds them is removed, with everything derived from it. A\ntombstone keeps the time, the actor and a hash, so that a later import does not bring them back. Backups and other clones are\nout of reach: docs/forgetting.md."
    )]
    Forget(Lazy<forget::ForgetArgs>),
    /// Reindex, export, back up or configure a vault
    #[command(
        subcommand,
        after_help = "Examples:\n  icecore vault reindex\n  icecore vault backup create memory.zip\n  icecore vault config show"
    )]
    Vault(Lazy<VaultCommand>),
    /// Merge the changes another machine made to the same vault
    #[command(
        after_help = "Examples:\n  git fetch && icecore merge && git push    # the upstream of this vault\n  icecore merge origin/main\n\nLines of both are kept, each once; what one machine has compacted or forgotten stays so. Ids that both gave are replaced on this\nmachine, with every reference to them. If a decision is needed, it is named and nothing is changed: docs/two-machines.md."
    )]
    Merge(Lazy<merge::MergeArgs>),
    /// Merge one file for git: what `.git/config` names
    #[command(hide = true)]
    MergeDriver(Lazy<merge::MergeDriverArgs>),
    /// Administer a memory in PostgreSQL
    #[command(
        subcommand,
        after_help = "Examples:\n  icecore db migrate --store postgres://host/name\n  icecore db token list\n  icecore db audit --since 12h"
    )]
    Db(Lazy<DbCommand>),
    /// Show a sample day and ninety days in a temporary vault
    #[command(after_help = "Example:\n  icecore demo")]
    Demo,
    /// Print shell completions and manual pages
    #[command(
        name = "self",
        subcommand,
        after_help = "Examples:\n  icecore self completions bash\n  icecore self man remember"
    )]
    Program(Lazy<ProgramCommand>),
    /// Show help for a command; --all lists every command
    #[command(
        after_help = "Examples:\n  icecore help --all\n  icecore help remember\n  icecore help db token"
    )]
    Help(Lazy<help::HelpArgs>),
}

#[derive(Debug, Subcommand)]
enum SummaryCommand {
    /// Show drafts that were refused, and settle them
    #[command(
        after_help = "Examples:\n  icecore summary review                         # the refused drafts, and why\n  icecore summary review 2026-W07                # one draft\n  icecore summary review 2026-W07 --accept       # accept it as it is\n  icecore summary review 2026-W07 --edit new.md  # replace it\n  icecore summary review 2026-W07 --retry        # ask the model again"
    )]
    Review(summaries::ReviewArgs),
    /// Mark a day as important or dull: it gets more or less room in summaries
    #[command(
        after_help = "Examples:\n  icecore summary mark 2026-02-13 important\n  icecore summary mark yesterday dull\n  icecore summary mark 2026-02-13 none"
    )]
    Mark(summaries::MarkArgs),
}

#[derive(Debug, Subcommand)]
enum InsightsCommand {
    /// Count the topics that came up again and again, and when
    #[command(
        after_help = "Examples:\n  icecore insights trends                     # the last twelve months\n  icecore insights trends --when 2026 --limit 40\n  icecore insights trends --about auth        # what comes up together with it\n  icecore insights trends --json | jq -r '.topics[] | \"\\(.occasions) \\(.topic)\"'\n\nAn occasion is a session, or a day on which something was logged or learnt outside of one."
    )]
    Trends(insights::TrendsArgs),
    /// Show what happened a month, half a year and whole years before a day
    #[command(
        after_help = "Examples:\n  icecore insights lookback                   # from today\n  icecore insights lookback 2026-02-13        # from that day\n  icecore insights lookback yesterday --json"
    )]
    Lookback(insights::LookbackArgs),
    /// List the periods similar to one, or merge them into one text
    #[command(
        after_help = "Examples:\n  icecore insights similar                    # the latest week, else the latest month\n  icecore insights similar 2026-W07\n  icecore insights similar 2026-02 --merge    # the text of those months, each line once"
    )]
    Similar(insights::SimilarArgs),
}

#[derive(Debug, Subcommand)]
enum JobsCommand {
    /// Show when each job runs and what is due; print a systemd unit or a crontab line
    #[command(
        after_help = "Examples:\n  icecore jobs schedule\n  icecore jobs schedule --systemd > ~/.config/systemd/user/icecore.service\n  icecore jobs schedule --crontab"
    )]
    Schedule(summaries::ScheduleArgs),
    /// List the runs of the next days, as a table or an .ics file
    #[command(
        after_help = "Examples:\n  icecore jobs calendar --days 30\n  icecore jobs calendar --ics > icecore.ics"
    )]
    Calendar(summaries::CalendarArgs),
    /// List the summaries that were made, with their cost
    #[command(
        after_help = "Examples:\n  icecore jobs runs\n  icecore jobs runs --limit 100 --json | jq '.runs[].ratio'"
    )]
    Runs(summaries::RunsArgs),
}

#[derive(Debug, Subcommand)]
enum VaultCommand {
    /// Rebuild everything that is derived from the files
    #[command(
        after_help = "Examples:\n  icecore vault reindex            # the index, open-loops.json and the search index\n  icecore vault reindex --words    # without the vectors, which take longest"
    )]
    Reindex(vault::ReindexArgs),
    /// Copy everything into a new vault; a memory in a database becomes a folder of files
    #[command(
        after_help = "Examples:\n  icecore vault export ./copy --store postgres://db/chat --space anna   # out of a database\n  icecore vault export /mnt/stick/memory                               # another copy of a vault\n\nEvery document is copied byte for byte and compared. `icecore import --whole DIR` is the way back."
    )]
    Export(transfer::ExportArgs),
    /// Back up everything into one file, verify such a file, or restore it
    #[command(
        subcommand,
        after_help = "Examples:\n  icecore vault backup create memory.zip\n  icecore vault backup verify memory.zip --drill\n  icecore vault backup restore memory.zip --vault ./again\n  icecore vault backup restore memory.zip --store postgres://db/chat --space anna\n\nA zip that any tool opens, with a SHA-256 of every document. Documents that change meanwhile are read again, so that the backup\nshows one moment. Indexes and vectors are not in it; they are rebuilt."
    )]
    Backup(transfer::BackupCommand),
    /// Show, check or replace the settings
    #[command(
        subcommand,
        after_help = "Examples:\n  icecore vault config show\n  icecore vault config check\n  icecore vault config set icecore.toml --space ann   # for a memory in a database"
    )]
    Config(vault::ConfigCommand),
}

#[derive(Debug, Subcommand)]
enum DbCommand {
    /// Bring the tables of a database up to date
    #[command(
        after_help = "Examples:\n  icecore db migrate --store postgres://admin@host/name --dry-run   # the steps that are due\n  icecore db migrate --store postgres://admin@host/name\n  icecore db migrate --store postgres://admin@host/name --create-login store   # and a login"
    )]
    Migrate(maintenance::MigrateTablesArgs),
    /// Add, list, rotate or revoke tokens
    #[command(
        subcommand,
        after_help = "Examples:\n  icecore db token add --user ann --scope read,write\n  icecore db token list"
    )]
    Token(database_access::TokenCommand),
    /// List, show, erase or limit the spaces of end users
    #[command(
        subcommand,
        after_help = "Examples:\n  icecore db space list\n  icecore db space quota ann --requests-per-minute 60"
    )]
    Space(database_access::SpaceCommand),
    /// Show who read and wrote what; never its content
    #[command(
        after_help = "Examples:\n  icecore db audit --since 12h\n  icecore db audit --user ann --limit 20 --json"
    )]
    Audit(database_access::AuditArgs),
}

#[derive(Debug, Subcommand)]
enum ProgramCommand {
    /// Print shell completions
    #[command(
        after_help = "Example:\n  icecore self completions bash > ~/.local/share/bash-completion/completions/icecore"
    )]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print the manual page of icecore or of one command
    #[command(
        after_help = "Examples:\n  icecore self man | man -l -\n  icecore self man remember > icecore-remember.1"
    )]
    Man {
        /// The command, such as `remember` or `db token`
        command: Vec<String>,
    },
}

/// Keeps a parser until the process ends: dropping it costs as much as parsing.
fn leak(parser: clap::Command) -> &'static mut clap::Command {
    Box::leak(Box::new(parser))
}

/// Options of every command that take a value.
pub const GLOBAL_OPTIONS_WITH_VALUE: [&str; 5] =
    ["--vault", "--store", "--space", "--now", "--color"];

/// The arguments of the program, ready to be parsed.
pub fn arguments() -> Vec<std::ffi::OsString> {
    strip_copied_bullets(std::env::args_os().collect())
}

/// The words of a command line that are neither options nor their values: the command, its
/// subcommand, arguments.
fn command_words(words: &[std::ffi::OsString]) -> impl Iterator<Item = &str> {
    let mut skips_value = false;
    words.iter().skip(1).filter_map(|word| word.to_str()).filter(move |word| {
        let is_value =
            std::mem::replace(&mut skips_value, GLOBAL_OPTIONS_WITH_VALUE.contains(word));
        !is_value && !word.starts_with('-')
    })
}

/// A line copied from a pack begins with a dash but is not an option. For the commands that accept
/// such a line, arguments after their name lose the dash. Nothing else changes.
fn strip_copied_bullets(mut words: Vec<std::ffi::OsString>) -> Vec<std::ffi::OsString> {
    let mut command: Vec<&str> = Vec::new();
    let mut at = 1;
    while let Some(word) = words.get(at).and_then(|word| word.to_str()) {
        match word {
            option if GLOBAL_OPTIONS_WITH_VALUE.contains(&option) => at += 1,
            option if option.starts_with('-') => {}
            name => command.push(name),
        }
        at += 1;
        if command == ["why"] || command == ["pack", "delta"] {
            for word in &mut words[at..] {
                if let Some(line) = word.to_str().and_then(|text| text.strip_prefix("- ")) {
                    *word = line.into();
                }
            }
            break;
        }
        if command.len() > 1 {
            break;
        }
    }
    words
}

/// The whole command line, for tests.
#[cfg(test)]
pub fn command() -> clap::Command {
    let mut command = Cli::command();
    command.build();
    command
}

/// Whether a word is the name of a command.
pub fn is_command(word: &str) -> bool {
    // Hooks take this path and must be fast; building all commands is slower.
    word == "hook"
        || word == "help"
        || Cli::command().get_subcommands().any(|command| command.get_name() == word)
}

/// Refuses a call without arguments that does not come from a terminal. A client whose settings
/// lost their arguments calls us like that: exit code 2 would erase a prompt, and output would
/// become context.
pub fn refuse_bare_call(words: &[std::ffi::OsString]) -> Option<ExitCode> {
    use std::io::IsTerminal as _;
    if words.len() > 1 || std::io::stdin().is_terminal() {
        return None;
    }
    let hint = "icecore: called without arguments, so nothing was done; `icecore --help` lists the commands. If a client's hook \
                called it, run `icecore install` to see which client's settings are outdated.";
    let _ = writeln!(std::io::stderr(), "{hint}");
    Some(ExitCode::FAILURE)
}

/// Prints a usage error or the requested help.
pub fn report_usage_error(error: &clap::Error) -> ExitCode {
    let asked_json = std::env::args_os().any(|word| word == "--json");
    if asked_json && error.use_stderr() {
        let message = error.to_string();
        let message = message.trim_start_matches("error: ").trim_end();
        let told =
            serde_json::json!({ "error": { "kind": "usage", "exit": 2, "message": message } });
        let _ = std::io::stderr().write_all(format!("{told}\n").as_bytes());
        return ExitCode::from(2);
    }
    let _ = error.print();
    let _ = std::io::stdout().flush();
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
}

/// Runs a command.
pub async fn run_command(cli: &Cli, out: &mut Output) -> Result<()> {
    let global = &cli.global;
    match &cli.command {
        CliCommand::Init(init) => return vault::init(global, init, out).await,
        CliCommand::Demo => return demo::run_demo(global, out).await,
        CliCommand::Help(help) => return help::help(help, out),
        CliCommand::Program(Lazy(ProgramCommand::Completions { shell })) => {
            return print_completions(*shell, out);
        }
        CliCommand::Program(Lazy(ProgramCommand::Man { command })) => {
            return print_manual(command, out);
        }
        CliCommand::Model(model) => return summaries::run_model(model, out).await,
        CliCommand::Install(install) => return install::install(global, install, out).await,
        CliCommand::Uninstall(uninstall) => return install::uninstall(uninstall, out),
        CliCommand::Serve(serve) => return serve::serve(global, serve, out).await,
        CliCommand::Dashboard(dashboard) => {
            return dashboard::print_login_link(dashboard, out).await;
        }
        CliCommand::Db(db) => {
            return match &**db {
                // Opening a store needs its tables.
                DbCommand::Migrate(migrate) => {
                    maintenance::migrate_tables(global, migrate, out).await
                }
                DbCommand::Token(token) => database_access::run_token(global, token, out).await,
                DbCommand::Space(space) => database_access::run_space(global, space, out).await,
                DbCommand::Audit(audit) => database_access::print_audit(global, audit, out).await,
            };
        }
        CliCommand::Vault(Lazy(VaultCommand::Backup(backup))) => {
            return transfer::run_backup(global, backup, out).await;
        }
        CliCommand::Import(import) if import.whole => {
            return transfer::import_vault(global, &import.paths, out).await;
        }
        CliCommand::Daemon(daemon) if daemon.all_spaces => {
            return summaries::run_worker(global, daemon, out).await;
        }
        CliCommand::Chat(chat) => return chat::chat(global, chat, out).await,
        CliCommand::Mcp(mcp) => return mcp::serve_mcp(global, mcp, out).await,
        CliCommand::Migrate(migrate) if migrate.is_dry_run() && bootstrap::has_no_vault(global) => {
            return maintenance::migrate_without_vault(global, migrate, out).await;
        }
        // Hooks are answered before the command line is parsed; clap knows them for their help.
        CliCommand::Hook(hook) if hook.log().is_none() => return Ok(()),
        CliCommand::MergeDriver(_) => return Ok(()),
        _ => {}
    }
    let open = if matches!(
        cli.command,
        CliCommand::Doctor(_)
            | CliCommand::Undo(_)
            | CliCommand::Verify
            | CliCommand::Vault(Lazy(VaultCommand::Config(vault::ConfigCommand::Set { .. })))
    ) {
        let (open, complaint) = bootstrap::open_for_repair(global).await?;
        if let Some(complaint) = complaint {
            out.warn(format!("{complaint}. The defaults are used"));
        }
        open
    } else {
        bootstrap::open_memory(global).await?
    };
    for warning in &open.memory.policy().warnings {
        out.warn(warning);
    }
    for mended in open.memory.store().opening_repairs().await {
        out.warn(mended);
    }
    let outcome = match &cli.command {
        CliCommand::Status => vault::status(&open, out).await,
        CliCommand::Log(log) => ledger::log(&open, log, out).await,
        CliCommand::Remember(remember) => ledger::remember(&open, remember, out).await,
        CliCommand::Close(on) => {
            ledger::act_on_events(&open, icecore_domain::event::Act::Close, on, out).await
        }
        CliCommand::Confirm(on) => {
            ledger::act_on_events(&open, icecore_domain::event::Act::Confirm, on, out).await
        }
        CliCommand::Retract(on) => {
            ledger::act_on_events(&open, icecore_domain::event::Act::Retract, on, out).await
        }
        CliCommand::Quarantine(which) => quarantine::run_quarantine(&open, which, out).await,
        CliCommand::Events(events) => ledger::events(&open, events, out).await,
        CliCommand::Commitments => ledger::commitments(&open, out).await,
        CliCommand::Conflicts => ledger::conflicts(&open, out).await,
        CliCommand::Show(one) => ledger::show(&open, one, out).await,
        CliCommand::Why(why) => ledger::why(&open, why, out).await,
        CliCommand::Consolidate(consolidate) => {
            maintenance::consolidate(&open, consolidate, out).await
        }
        CliCommand::Compact(dry) => maintenance::compact(&open, dry, false, out).await,
        CliCommand::Prune(dry) => maintenance::compact(&open, dry, true, out).await,
        CliCommand::Migrate(migrate) => maintenance::migrate(&open, migrate, out).await,
        CliCommand::Triggers(triggers) => maintenance::triggers(&open, triggers, out).await,
        CliCommand::Message(message) => capture::add_message(&open, message, out).await,
        CliCommand::Session(session) => capture::add_session(&open, session, out).await,
        CliCommand::SaveState(save) => capture::save_state(&open, save, out).await,
        CliCommand::Import(import) => import::import(&open, import, out).await,
        CliCommand::Rollup(rollup) => summaries::rollup(&open, rollup, out).await,
        CliCommand::Summary(summary) => match &**summary {
            SummaryCommand::Review(review) => summaries::review(&open, review, out).await,
            SummaryCommand::Mark(mark) => summaries::mark_days(&open, mark, out).await,
        },
        CliCommand::Pack(kind) => packs::print_pack_for(&open, global, kind, out).await,
        CliCommand::Zoom(zoom) => packs::zoom(&open, zoom, out).await,
        CliCommand::Search(search) => search::search(&open, search, out).await,
        CliCommand::Insights(insights) => match &**insights {
            InsightsCommand::Trends(trends) => insights::trends(&open, trends, out).await,
            InsightsCommand::Lookback(lookback) => insights::lookback(&open, lookback, out).await,
            InsightsCommand::Similar(similar) => insights::similar(&open, similar, out).await,
        },
        CliCommand::Conversation(conversation) => {
            conversation::run_conversation(&open, global, conversation, out).await
        }
        CliCommand::MemoryTool(asked) => memory_tool::run_memory_tool(&open, asked, out).await,
        CliCommand::Pause(pause) => capture_control::pause(&open, pause, out).await,
        CliCommand::Resume(resume) => capture_control::resume(&open, resume, out).await,
        CliCommand::Hook(hook) => match hook.log() {
            Some(log) => capture_control::print_hook_log(&open, log, out).await,
            None => Ok(()),
        },
        CliCommand::Jobs(jobs) => match &**jobs {
            JobsCommand::Schedule(schedule) => {
                summaries::print_schedule(&open, schedule, out).await
            }
            JobsCommand::Calendar(calendar) => {
                summaries::print_calendar(&open, calendar, out).await
            }
            JobsCommand::Runs(runs) => summaries::print_runs(&open, runs, out).await,
        },
        CliCommand::Daemon(daemon) => summaries::run_daemon(&open, daemon, global, out).await,
        CliCommand::Verify => vault::verify(&open, out).await,
        CliCommand::Doctor(doctor) => vault::doctor(&open, doctor, out).await,
        CliCommand::Vault(vault) => match &**vault {
            VaultCommand::Reindex(reindex) => vault::reindex(&open, reindex, out).await,
            VaultCommand::Config(config) => vault::config(&open, config, out).await,
            VaultCommand::Export(export) => transfer::export(&open, export, out).await,
            VaultCommand::Backup(_) => Ok(()),
        },
        CliCommand::Snapshot(snapshot) => vault::snapshot(&open, snapshot, out).await,
        CliCommand::Undo(undo) => vault::undo(&open, undo, out).await,
        CliCommand::Forget(forget) => forget::forget(&open, forget, out).await,
        CliCommand::Merge(merge) => merge::merge(&open, merge, out).await,
        CliCommand::Init(_)
        | CliCommand::Demo
        | CliCommand::Program(_)
        | CliCommand::Help(_)
        | CliCommand::Model(_)
        | CliCommand::Install(_)
        | CliCommand::Uninstall(_)
        | CliCommand::Serve(_)
        | CliCommand::Dashboard(_)
        | CliCommand::Db(_)
        | CliCommand::Chat(_)
        | CliCommand::Mcp(_)
        | CliCommand::MergeDriver(_) => Ok(()),
    };
    if let Err(error) =
        database_access::record_command(&open.place, &global.command, &outcome).await
    {
        out.warn(format!("this could not be recorded in the audit log: {error}"));
    }
    let tells_itself = matches!(
        cli.command,
        CliCommand::Status | CliCommand::Verify | CliCommand::Doctor(_) | CliCommand::Undo(_)
    );
    // The command is done; a failure of this check must not hide that.
    if outcome.is_ok()
        && !tells_itself
        && let Err(error) = ledger::warn_damage(&open, out).await
    {
        out.warn(format!("the ledger could not be checked for damage: {error}"));
    }
    outcome
}

/// The command with its subcommands: `conversation show`.
fn command_path(matches: &clap::ArgMatches) -> String {
    let (mut words, mut at) = (Vec::new(), matches);
    while let Some((name, beneath)) = at.subcommand() {
        words.push(name);
        at = beneath;
    }
    words.join(" ")
}

fn print_completions(shell: clap_complete::Shell, out: &mut Output) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "icecore", &mut script);
    print_text(String::from_utf8_lossy(&script).trim_end(), out)
}

fn print_text(text: &str, out: &mut Output) -> Result<()> {
    if out.is_json() { out.json_named("text", &text) } else { out.line(text) }
}

fn print_manual(names: &[String], out: &mut Output) -> Result<()> {
    let mut command = Cli::command();
    command.build();
    let mut at = &command;
    for name in names {
        at = at.find_subcommand(name).ok_or_else(|| help::no_command(names))?;
    }
    let mut text = Vec::new();
    clap_mangen::Man::new(at.clone()).render(&mut text)?;
    print_text(String::from_utf8_lossy(&text).trim_end(), out)
}

/// Parsers of argument values, so that a wrong value is refused before anything is opened.
mod parse {
    use super::*;

    /// Parses an event id.
    pub fn id(text: &str) -> Result<EventId, ParseEventIdError> {
        EventId::parse_lenient(text)
    }

    /// Reads a secret; it is never printed.
    #[expect(clippy::unnecessary_wraps, reason = "any text is a secret; clap wants a Result")]
    pub fn secret(text: &str) -> Result<SecretString, std::convert::Infallible> {
        Ok(text.into())
    }

    /// Parses an event type.
    pub fn kind(text: &str) -> Result<EventType, ParseEnumError> {
        text.parse()
    }

    /// Parses a priority.
    pub fn priority(text: &str) -> Result<Priority, ParseEnumError> {
        text.parse()
    }

    /// Parses an origin.
    pub fn origin(text: &str) -> Result<Origin, ParseEnumError> {
        text.parse()
    }

    /// Parses the kind of an entity.
    pub fn entity_kind(text: &str) -> Result<EntityKind, ParseEnumError> {
        text.parse()
    }

    /// Parses a scope.
    pub fn scope(text: &str) -> Result<Scope, ParseEnumError> {
        text.parse()
    }

    /// Parses a role or an alias of one.
    pub fn role(text: &str) -> Result<Role, ParseEnumError> {
        Role::from_alias(text).map_or_else(|| text.parse(), Ok)
    }

    /// Parses a moment, which needs an offset.
    pub fn moment(text: &str) -> Result<Moment, String> {
        match Moment::parse(text) {
            Some(read) if !read.offset_assumed => Ok(read.moment),
            _ => Err("write a moment like 2026-02-13T09:30:00+01:00".into()),
        }
    }

    /// Checks that a text is JSON.
    pub fn json(text: &str) -> Result<String, String> {
        let value: Result<serde_json::Value, _> = serde_json::from_str(text);
        value.map(|value| value.to_string()).map_err(|error| format!("this is not JSON: {error}"))
    }

    /// Parses the format of a transcript.
    pub fn shape(text: &str) -> Result<TranscriptFormat, ParseEnumError> {
        text.parse()
    }

    /// Parses a period.
    pub fn period(text: &str) -> Result<Period, ParsePeriodError> {
        text.parse()
    }

    /// Parses what to roll up.
    pub fn what(text: &str) -> Result<summaries::RollupScope, ParseEnumError> {
        if text == "due" {
            Ok(summaries::RollupScope::Due)
        } else {
            text.parse().map(summaries::RollupScope::Tier)
        }
    }

    /// Parses an importance mark.
    pub fn mark(text: &str) -> Result<summaries::ImportanceMark, String> {
        match text {
            "none" | "ordinary" => Ok(summaries::ImportanceMark(None)),
            _ => text
                .parse()
                .map(|importance| summaries::ImportanceMark(Some(importance)))
                .map_err(|_| "choose important, dull or none".into()),
        }
    }

    /// A number, also as `20k` or `35,840`.
    pub fn amount(text: &str) -> Result<usize, String> {
        let plain = text.replace([',', '_'], "").to_ascii_lowercase();
        // `9000c` means characters, which is the unit anyway.
        let plain = plain.strip_suffix('c').unwrap_or(&plain).to_owned();
        let (digits, factor) =
            plain.strip_suffix('k').map_or((plain.as_str(), 1), |digits| (digits, 1_000));
        let number: Option<usize> = digits.parse().ok();
        number
            .and_then(|number| number.checked_mul(factor))
            .filter(|number| *number > 0)
            .ok_or_else(|| "write a number such as 20000 or 20k".into())
    }

    /// Parses a date in natural language.
    pub fn when(text: &str, today: jiff::civil::Date) -> Result<NaturalDate> {
        icecore_domain::natural_date::parse(text, today).map_err(|error| {
            crate::error::AppError::new(crate::error::Exit::Usage, error.to_string()).into()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copied_line_loses_its_dash_where_one_is_asked_for_and_nowhere_else() {
        let words = |line: &[&str]| {
            std::iter::once("icecore")
                .chain(line.iter().copied())
                .map(Into::into)
                .collect::<Vec<std::ffi::OsString>>()
        };
        for (given, parsed) in [
            (&["why", "- the port is 7431"][..], &["why", "the port is 7431"][..]),
            (
                &["--vault", "delta", "why", "--json", "- a", "- b"],
                &["--vault", "delta", "why", "--json", "a", "b"],
            ),
            (&["pack", "delta", "- how is it?"], &["pack", "delta", "how is it?"]),
            (
                &["message", "add", "- milk", "--conversation", "delta"],
                &["message", "add", "- milk", "--conversation", "delta"],
            ),
            (&["remember", "- why", "why"], &["remember", "- why", "why"]),
            (&["--vault", "why", "remember", "- milk"], &["--vault", "why", "remember", "- milk"]),
            (&["log", "why", "- milk"], &["log", "why", "- milk"]),
            (&[], &[]),
        ] {
            assert_eq!(strip_copied_bullets(words(given)), words(parsed), "{given:?}");
        }
    }

    #[test]
    fn the_parser_of_one_command_reads_what_the_parser_of_all_commands_reads() {
        for (line, is_matched) in [
            ("icecore remember we_meet --due friday", true),
            ("icecore --vault v --json remember we_meet -p P0 --tag a --tag b", true),
            ("icecore remember --vault v we_meet --color never --quiet", true),
            ("icecore db token list --space team", true),
            ("icecore --vault=v vault config show", true),
            ("icecore quarantine list --vault v --json", true),
            ("icecore help db token", true),
            // Another command stands before it.
            ("icecore --unknown status remember we_meet", false),
            // The value of an option is no command.
            ("icecore --vault remember", false),
            ("icecore remember", false),
            ("icecore remember --help", false),
            ("icecore remember we_meet --unknown", false),
            ("icecore --version status", false),
            ("icecore -qv status", false),
            ("icecore unknown", false),
            ("icecore", false),
        ] {
            let words: Vec<std::ffi::OsString> = line.split(' ').map(Into::into).collect();
            let one = Cli::match_one_command(&words);
            assert_eq!(one.is_some(), is_matched, "{line}");
            let all = Cli::command().try_get_matches_from(&words).ok();
            assert_eq!(all.is_some(), is_matched, "{line}");
            let read = |matches: Option<clap::ArgMatches>| {
                matches.map(|mut matches| {
                    format!("{:?}", Cli::from_arg_matches_mut(&mut matches).unwrap())
                })
            };
            assert_eq!(read(one), read(all), "{line}");
        }
    }

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn memory_is_named_in_one_way() {
        let check = |words: &[&str], is_fine: bool| {
            let read = Cli::parse_words([&["icecore", "status"], words].concat());
            assert_eq!(
                read.as_ref().map_err(|error| error.exit_code()).err(),
                if is_fine { None } else { Some(2) },
                "{words:?}"
            );
        };
        check(&["--vault", "x"], true);
        check(&["--store", "postgres://host/x", "--space", "y"], true);
        check(&["--vault", "x", "--space", "y"], false);
        check(&["--vault", "x", "--store", "postgres://host/x"], false);
        check(&["--store", "postgres://host/x", "--space", ""], false);
        check(&["--store", "postgres://host/x", "--space", " "], false);
    }
}
