//! The command line: its definition for clap, and the dispatch to the modules that implement it.

mod access;
mod across;
mod capture;
mod care;
mod carry;
mod chat;
mod converse;
mod dashboard;
mod demo;
mod find;
mod forget;
mod help;
mod hooks;
mod import;
mod install;
mod join;
mod lazy;
mod ledger;
mod mcp;
mod memory_tool;
mod night;
pub mod out;
mod packs;
mod press;
mod quarantine;
mod serve;
mod show;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, CommandFactory, FromArgMatches as _, Parser, Subcommand, ValueEnum};
use icecore_domain::calendar::Moment;
use icecore_domain::event::{EntityKind, Kind, NotAWord, Origin, Priority, Scope};
use icecore_domain::id::{EventId, NotAnId};
use icecore_domain::record::Role;
use icecore_domain::summary::{NotAPeriod, Period};
use icecore_domain::transcript::Shape;
use icecore_domain::when::When;
use secrecy::SecretString;

use self::lazy::Lazy;
use self::out::Out;
use crate::wire;

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
    pub global: Global,
    #[command(subcommand)]
    command: Command,
}

impl Cli {
    /// Parses a command line.
    pub fn read(
        words: impl IntoIterator<Item = impl Into<std::ffi::OsString>>,
    ) -> Result<Self, clap::Error> {
        let words: Vec<std::ffi::OsString> = words.into_iter().map(Into::into).collect();
        Self::parse_raw(&words).map_err(|error| help::explain(&words, error))
    }

    fn parse_raw(words: &[std::ffi::OsString]) -> Result<Self, clap::Error> {
        // Leaked, once in each process: dropping the parser costs as much as parsing.
        let mut matches = Box::leak(Box::new(Self::command())).try_get_matches_from_mut(words)?;
        let is_meant =
            |name: &str| matches.value_source(name) == Some(clap::parser::ValueSource::CommandLine);
        let (vault_is_meant, space_is_meant) = (is_meant("vault"), is_meant("space"));
        let command = called(&matches);
        let mut cli = Self::from_arg_matches_mut(&mut matches)
            .map_err(|error| error.format(&mut Self::command()))?;
        (cli.global.vault_is_meant, cli.global.space_is_meant) = (vault_is_meant, space_is_meant);
        cli.global.command = command;
        match cli.global.contradiction() {
            Some(said) => {
                Err(Self::command().error(clap::error::ErrorKind::ArgumentConflict, said))
            }
            None => Ok(cli),
        }
    }

    /// Runs the merge driver if git calls it: git wants an exit code and nothing else.
    pub fn drives(&self) -> Option<ExitCode> {
        match &self.command {
            Command::MergeDriver(driver) => Some(join::drive(driver)),
            _ => None,
        }
    }

    /// Whether the command serves many clients at once and needs several threads.
    pub fn serves_many(&self) -> bool {
        match &self.command {
            Command::Serve(_) | Command::Chat(_) | Command::Mcp(_) => true,
            Command::Daemon(daemon) => daemon.all_spaces,
            _ => false,
        }
    }
}

/// Options that are allowed before or after any command.
#[derive(Debug, Clone, Args)]
pub struct Global {
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
    #[arg(long, global = true, value_name = "URL", value_parser = read::secret, help_heading = "Global options")]
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

impl Global {
    /// The store that these options select.
    pub fn named(&self) -> wire::Named {
        let (vault, store, space) = (self.vault.clone(), self.store.clone(), self.space.clone());
        wire::Named { vault, is_meant: self.vault_is_meant, store, space, is_hurried: false }
    }

    /// The error if the command line names two stores at once.
    fn contradiction(&self) -> Option<&'static str> {
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
    pub fn about(&self, vault: PathBuf) -> Self {
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
enum Command {
    /// Create a vault: a folder of files with its history in git
    #[command(
        after_help = "Examples:\n  icecore init                     in your data folder\n  icecore init ./memory            in a folder of your choice\n  icecore init --tz Europe/Berlin  with days as in Berlin\n  icecore init --store postgres://me@host/name --space team   in a database: its tables, and a space"
    )]
    Init(Lazy<care::Init>),
    /// Show what is known, open, due and wrong
    #[command(after_help = "Examples:\n  icecore status\n  icecore status --json | jq .open")]
    Status,
    /// Append a line to today's log
    #[command(
        after_help = "Examples:\n  icecore log \"Met Client X, they want two more weeks\"\n  some-command | icecore log -"
    )]
    Log(Lazy<ledger::Log>),
    /// Record a fact, decision, commitment or other statement
    #[command(
        after_help = "Examples:\n  icecore remember \"Decided on one price for all\" --entity pricing\n  icecore remember \"Never deploy on Fridays\" --priority P0\n  icecore remember \"Send the offer to Client X\" --due friday --waiting-on \"the lawyers\"\n  icecore remember \"The budget is 600 EUR\" --supersedes EVT-20260213-001\n  echo \"long text\" | icecore remember - --type fact\n\nTypes: fact, decision, commitment, preference, constraint, procedure, relationship; guessed from the words without --type."
    )]
    Remember(Lazy<ledger::Remember>),
    /// Close commitments that are done or dropped
    #[command(
        after_help = "Examples:\n  icecore close EVT-20260213-002\n  icecore close 20260213-2 --note \"sent by mail\""
    )]
    Close(Lazy<ledger::OnEvents>),
    /// Confirm that a statement still holds
    #[command(after_help = "Example:\n  icecore confirm EVT-20260213-001")]
    Confirm(Lazy<ledger::OnEvents>),
    /// Retract a statement, a closing or a retraction
    #[command(
        after_help = "Examples:\n  icecore retract EVT-20260213-001 --note \"misheard\"\n  icecore retract EVT-20260213-007   if 007 closed a commitment, it is open again"
    )]
    Retract(Lazy<ledger::OnEvents>),
    /// Review what only tools and strangers said: confirm or drop it
    #[command(
        subcommand,
        after_help = "Examples:\n  icecore quarantine list\n  icecore quarantine confirm EVT-20260213-001\n  icecore quarantine drop --session app/s1\n\nNothing in quarantine reaches a pack, page or summary until you confirm it."
    )]
    Quarantine(Lazy<quarantine::Quarantine>),
    /// List events of the ledger
    #[command(
        after_help = "Examples:\n  icecore events                          what holds now\n  icecore events --type decision --since 2026-01-01\n  icecore events --entity client_x --all  with everything that was replaced or retracted\n  icecore events pricing --json           by text, for machines"
    )]
    Events(Lazy<ledger::Events>),
    /// List open commitments, oldest first
    #[command(
        after_help = "Examples:\n  icecore commitments\n  icecore commitments --json | jq -r '.commitments[] | select(.due) | .id'"
    )]
    Commitments,
    /// List statements that contradict each other
    #[command(
        after_help = "Example:\n  icecore conflicts      with the commands that settle each of them"
    )]
    Conflicts,
    /// Show an event and the chain it belongs to
    #[command(
        after_help = "Example:\n  icecore show EVT-20260213-001     what it replaced, what replaced it, who closed it"
    )]
    Show(Lazy<ledger::OneEvent>),
    /// Trace an event, a summary or a line of a pack to its source
    #[command(
        after_help = "Examples:\n  icecore why EVT-20260213-001\n  icecore why 2026-W07\n  icecore why knowledge/entities/apollo.md\n  icecore why \"- Never deploy on Fridays (EVT-20260213-002)\"\n  icecore why \"the port moved to 7431\"        a line of a summary or pack"
    )]
    Why(Lazy<ledger::Why>),
    /// Store messages verbatim
    #[command(
        subcommand,
        after_help = "Example:\n  icecore message add \"we use port 7431\" --conversation app"
    )]
    Message(Lazy<capture::Message>),
    /// Store whole sessions and write their primers
    #[command(subcommand, after_help = "Example:\n  icecore session add talk.md")]
    Session(Lazy<capture::Session>),
    /// Save an assistant's working state for its next session
    #[command(
        after_help = "Examples:\n  icecore save-state state.md --title \"before lunch\"\n  some-program | icecore save-state --title \"auto-save\"\n\nThe state is also kept as a snapshot and entered in 24hr.md."
    )]
    SaveState(Lazy<capture::SaveState>),
    /// Import conversation history: Claude Code, Codex, ChatGPT, …
    #[command(
        after_help = "Examples:\n  icecore import claude-code                   everything in ~/.claude/projects\n  icecore import claude-code --dry-run         what would be imported\n  icecore import chatgpt-export.zip            the format is detected\n  icecore import ~/notes --format markdown\n  icecore import history.jsonl                 {\"conversation\",\"session\",\"role\",\"name\",\"ts\",\"id\",\"text\"} a line; ts and text are required\n\nFormats: claude-code, codex (also .zst), chatgpt and claude-ai (zip or json), mem0, mcp-memory, markdown, jsonl.\nAn interrupted run resumes where it stopped; a second run reads only what is new, and nothing is imported twice."
    )]
    Import(Lazy<import::Import>),
    /// Summarize sessions into days, weeks, months and years
    #[command(
        after_help = "Examples:\n  icecore rollup                         everything that is due\n  icecore rollup --dry-run               what would be summarized\n  icecore rollup week --period 2026-W07  this week, now\n  icecore rollup due --backfill          the past, newest first, after an import\n\nWithout a model, summaries consist of the sources' own sentences and are marked provisional; `icecore model check` shows what is configured."
    )]
    Rollup(Lazy<press::Rollup>),
    /// Run the nightly job now: learn, update pages, roll up, check
    #[command(
        after_help = "Examples:\n  icecore consolidate             what the daemon does at 03:00\n  icecore consolidate --dry-run   what would be done\n\nA report is written to knowledge/consolidation-reports/. The next run finishes one that was interrupted."
    )]
    Consolidate(Lazy<night::Consolidate>),
    /// Archive superseded lines: one event per finished chain
    #[command(
        after_help = "Examples:\n  icecore compact --dry-run\n  icecore compact\n\nPermanent and open events stay. Archived ids still resolve: `icecore show`, `icecore why`."
    )]
    Compact(Lazy<night::DryRun>),
    /// Archive expired events (P2 after 90 days, P3 after 30)
    #[command(after_help = "Examples:\n  icecore prune --dry-run\n  icecore prune")]
    Prune(Lazy<night::DryRun>),
    /// Take over an existing memory folder
    #[command(
        after_help = "Examples:\n  icecore migrate ~/old-memory --dry-run   the plan and the inventory\n  icecore migrate ~/old-memory\n  icecore migrate ~/.claude/projects/app/memory\n\nA folder elsewhere is only read. In the vault itself old files move to memory/archive/migrated once their content is stored.\nThe tables of a database are migrated by `icecore db migrate`."
    )]
    Migrate(Lazy<night::Migrate>),
    /// List the words that load pages
    #[command(
        after_help = "Examples:\n  icecore triggers\n  icecore triggers --keep     write the suggestions into recall/triggers.json, to be edited"
    )]
    Triggers(Lazy<night::Triggers>),
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
    Pack(Lazy<packs::PackKind>),
    /// Show the original words of any day, week or month
    #[command(
        after_help = "Examples:\n  icecore zoom yesterday\n  icecore zoom last tuesday --summary\n  icecore zoom 2026-W07 --conversation app\n  icecore zoom feb 2026 --json"
    )]
    Zoom(Lazy<packs::Zoom>),
    /// Search everything ever said, learnt or written
    #[command(
        after_help = "Examples:\n  icecore search where did we keep the spare key\n  icecore search postgres --when \"last month\" --kind message --kind event\n  icecore search '\"the very words\"' --context 2\n  icecore search --queries questions.jsonl --limit 20 > answers.jsonl\n\nKeyword search only, until `icecore model fetch` has fetched the model for semantic search. -v shows how to zoom to each hit."
    )]
    Search(Lazy<find::Search>),
    /// Show what recurs, what was before and what is similar
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
    Conversation(Lazy<converse::Conversation>),
    /// Chat with the configured model, with memory
    #[command(
        after_help = "Examples:\n  icecore chat                       continue the conversation `terminal`\n  icecore chat --conversation trip   another one\n  echo \"what do you know about me?\" | icecore chat\n\nThe model is [chat] of your config.toml; `icecore model check` tries it. Memory that was injected is shown in dim letters; -q hides it."
    )]
    Chat(Lazy<chat::Chat>),
    /// Serve the OpenAI- and Anthropic-compatible API with memory
    #[command(
        after_help = "Examples:\n  icecore serve                        on 127.0.0.1:7431, for this machine\n  icecore serve --addr 127.0.0.1:0     on a free port, which is printed\n  icecore serve --root ./chats         a store of its own, with a space for every end user\n  icecore serve --store postgres://…   memory in a database, for as many servers as you like\n\nPoint a client's base URL at http://127.0.0.1:7431/v1 (Anthropic's clients: without /v1) and give it the token as its key.\nThe model behind it is [chat] of your config.toml; [summarizer] writes summaries and extracts facts."
    )]
    Serve(Lazy<serve::Serve>),
    /// Print a login link for the dashboard of a running server
    #[command(
        after_help = "Examples:\n  icecore serve                                 in one terminal\n  icecore dashboard                             in another: open the link that it prints\n  xdg-open \"$(icecore dashboard -q)\"\n\nThe link works once, within ten minutes; its code never reaches a log."
    )]
    Dashboard(Lazy<dashboard::Dashboard>),
    /// Serve the Model Context Protocol on standard input and output
    #[command(
        after_help = "Examples:\n  claude mcp add icecore -- icecore mcp     Claude Code starts it by itself\n  icecore mcp --read-only                   only tools that read\n  icecore --vault ~/team mcp                another vault\n\nClients start it; it is of no use on a terminal. Its vault is the one named, else your own, never one that belongs to the\ncurrent folder. `icecore serve` serves the same at /mcp over HTTP."
    )]
    Mcp(Lazy<mcp::Mcp>),
    /// Answer Anthropic's memory tool: JSON on standard input
    #[command(
        after_help = "Examples:\n  echo '{\"command\":\"view\",\"path\":\"/memories\"}' | icecore memory-tool --json\n  icecore memory-tool --versions /memories/plan.md\n  icecore memory-tool --versions /memories/plan.md --version 2 > plan.md\n\n/memories is the folder memory/tool of the vault. Every earlier version of a file is kept."
    )]
    MemoryTool(Lazy<memory_tool::MemoryTool>),
    /// Connect a client: Claude Code, Codex, Cursor, VS Code, …
    #[command(
        after_help = "Examples:\n  icecore install                          the clients of this machine\n  icecore install claude-code --dry-run    what would change\n  icecore install claude-code              shows the change, then asks\n  icecore install cursor --project --yes   for this project only, without asking\n  icecore install codex --vault ~/memory   bound to one vault\n\nComments, order and all other settings stay, and a backup is kept. `icecore uninstall` restores it."
    )]
    Install(Lazy<install::Install>),
    /// Remove icecore from a client's settings
    #[command(
        after_help = "Examples:\n  icecore uninstall claude-code --dry-run\n  icecore uninstall claude-code --yes\n\nIf nothing else changed since, the file comes back byte for byte; otherwise only the entries of icecore are removed."
    )]
    Uninstall(Lazy<install::Uninstall>),
    /// Answer a client's hook; show what hooks injected
    #[command(
        after_help = "Examples:\n  icecore hook session-start          what Claude Code and Codex call; see docs/hooks.md\n  icecore hook user-prompt-submit --client codex --vault ~/memory\n  echo '{\"session_id\":\"s1\",\"prompt\":\"which port?\"}' | icecore hook user-prompt-submit\n  icecore hook log                    what the last prompts were given, and why\n\nEvents: session-start, user-prompt-submit, pre-compact, post-compact, stop, subagent-stop, session-end; any other word does\nnothing. A hook reads one JSON object, prints one and exits with 0. `icecore status` and `icecore doctor` report what failed."
    )]
    Hook(Lazy<hooks::Hook>),
    /// Stop capturing: for a while, a session or a project
    #[command(
        after_help = "Examples:\n  icecore pause --for 1h             everything, for an hour\n  icecore pause --session last       the current session\n  icecore pause --project            the project of this folder\n  icecore pause --list\n  icecore pause --off                or `icecore resume`\n\nWhat is said meanwhile is not captured later either, when the transcript is read. A prompt that begins or ends with #private and\nthe answer to it are never captured; nor is text between <private> and </private>."
    )]
    Pause(Lazy<hooks::Pause>),
    /// Resume capturing
    #[command(
        after_help = "Examples:\n  icecore resume                     all pauses end\n  icecore resume --project app"
    )]
    Resume(Lazy<hooks::Resume>),
    /// Show the schedule, the calendar and past runs
    #[command(
        subcommand,
        after_help = "Examples:\n  icecore jobs schedule\n  icecore jobs runs --limit 5"
    )]
    Jobs(Lazy<JobsCommand>),
    /// Keep running and do the jobs that are due
    #[command(
        after_help = "Examples:\n  icecore daemon\n  icecore daemon --once                                      for cron\n  icecore daemon --all-spaces --store postgres://db/chat     every space of a database, shared with other workers"
    )]
    Daemon(Lazy<press::Daemon>),
    /// Check the configured models, fetch the embedding model
    #[command(subcommand, after_help = "Examples:\n  icecore model check\n  icecore model fetch")]
    Model(Lazy<press::Model>),
    /// Check the integrity of everything stored
    #[command(
        after_help = "Examples:\n  icecore verify                 exit 6 if anything fails\n  icecore verify --json | jq .ok"
    )]
    Verify,
    /// Diagnose problems; --fix repairs them
    #[command(
        after_help = "Examples:\n  icecore doctor         check only\n  icecore doctor --fix   restore lost lines from snapshots, quarantine broken ones, rebuild what is derived"
    )]
    Doctor(Lazy<care::Doctor>),
    /// Take a snapshot to return to, or list snapshots
    #[command(
        after_help = "Examples:\n  icecore snapshot --note \"before the migration\"\n  icecore snapshot --list"
    )]
    Snapshot(Lazy<care::Snapshot>),
    /// Return to the last snapshot; a second undo comes back
    #[command(
        after_help = "Examples:\n  icecore undo\n  icecore undo --to 1a2b3c4d\n\nPages and settings are restored. The ledger only grows: new events retract what was recorded since."
    )]
    Undo(Lazy<care::Undo>),
    /// Erase words, events, messages or a conversation permanently
    #[command(
        after_help = "Examples:\n  icecore forget --matching \"the door code is 4711\" --dry-run   what would be erased, and where\n  icecore forget EVT-20260213-004 --reason \"she asked for it\"\n  icecore forget conversation/trip --history --yes              also from every snapshot\n\nWhole words match, whatever their case and spacing; a line that holds them is removed, with everything derived from it. A\ntombstone keeps the time, the actor and a hash, so that a later import does not bring them back. Backups and other clones are\nout of reach: docs/forgetting.md."
    )]
    Forget(Lazy<forget::Forget>),
    /// Reindex, export, back up or configure a vault
    #[command(
        subcommand,
        after_help = "Examples:\n  icecore vault reindex\n  icecore vault backup create memory.zip\n  icecore vault config show"
    )]
    Vault(Lazy<VaultCommand>),
    /// Merge the changes another machine made to the same vault
    #[command(
        after_help = "Examples:\n  git fetch && icecore merge && git push    the upstream of this vault\n  icecore merge origin/main\n\nLines of both are kept, each once; what one machine has compacted or forgotten stays so. Ids that both gave are replaced on this\nmachine, with every reference to them. If a decision is needed, it is named and nothing is changed: docs/two-machines.md."
    )]
    Merge(Lazy<join::Merge>),
    /// Merge one file for git: what `.git/config` names
    #[command(hide = true)]
    MergeDriver(Lazy<join::MergeDriver>),
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
        after_help = "Examples:\n  icecore summary review                        the refused drafts, and why\n  icecore summary review 2026-W07               one draft\n  icecore summary review 2026-W07 --accept      accept it as it is\n  icecore summary review 2026-W07 --edit new.md replace it\n  icecore summary review 2026-W07 --retry       ask the model again"
    )]
    Review(press::Review),
    /// Mark a day as important or dull: it gets more or less room in summaries
    #[command(
        after_help = "Examples:\n  icecore summary mark 2026-02-13 important\n  icecore summary mark yesterday dull\n  icecore summary mark 2026-02-13 none"
    )]
    Mark(press::Mark),
}

#[derive(Debug, Subcommand)]
enum InsightsCommand {
    /// Count the topics that came up again and again, and when
    #[command(
        after_help = "Examples:\n  icecore insights trends                     the last twelve months\n  icecore insights trends --when 2026 --limit 40\n  icecore insights trends --about auth        what comes up together with it\n  icecore insights trends --json | jq -r '.topics[] | \"\\(.occasions) \\(.topic)\"'\n\nAn occasion is a session, or a day on which something was logged or learnt outside of one."
    )]
    Trends(across::Trends),
    /// Show what was at this time a month, half a year, one year and more years ago
    #[command(
        after_help = "Examples:\n  icecore insights lookback                   from today\n  icecore insights lookback 2026-02-13        from that day\n  icecore insights lookback yesterday --json"
    )]
    Lookback(across::Lookback),
    /// List the periods similar to one, or merge them into one text
    #[command(
        after_help = "Examples:\n  icecore insights similar                    the latest week, else the latest month\n  icecore insights similar 2026-W07\n  icecore insights similar 2026-02 --merge    the text of those months, each line once"
    )]
    Similar(across::SimilarTo),
}

#[derive(Debug, Subcommand)]
enum JobsCommand {
    /// Show when each job runs and what is due; print a systemd unit or a crontab line
    #[command(
        after_help = "Examples:\n  icecore jobs schedule\n  icecore jobs schedule --systemd > ~/.config/systemd/user/icecore.service\n  icecore jobs schedule --crontab"
    )]
    Schedule(press::Schedule),
    /// List the runs of the next days, as a table or an .ics file
    #[command(
        after_help = "Examples:\n  icecore jobs calendar --days 30\n  icecore jobs calendar --ics > icecore.ics"
    )]
    Calendar(press::Calendar),
    /// List the summaries that were made, with their cost
    #[command(
        after_help = "Examples:\n  icecore jobs runs\n  icecore jobs runs --limit 100 --json | jq '.runs[].ratio'"
    )]
    Runs(press::Runs),
}

#[derive(Debug, Subcommand)]
enum VaultCommand {
    /// Rebuild everything that is derived from the files
    #[command(
        after_help = "Examples:\n  icecore vault reindex            the index, open-loops.json and the search index; nothing else changes\n  icecore vault reindex --words    without the vectors, which take longest"
    )]
    Reindex(care::Reindex),
    /// Copy everything into a new vault; a memory in a database becomes a folder of files
    #[command(
        after_help = "Examples:\n  icecore vault export ./copy --store postgres://db/chat --space anna   out of a database\n  icecore vault export /mnt/stick/memory                               another copy of a vault\n\nEvery document is copied byte for byte and compared. `icecore import --whole DIR` is the way back."
    )]
    Export(carry::Export),
    /// Back up everything into one file, verify such a file, or restore it
    #[command(
        subcommand,
        after_help = "Examples:\n  icecore vault backup create memory.zip\n  icecore vault backup verify memory.zip --drill\n  icecore vault backup restore memory.zip --vault ./again\n  icecore vault backup restore memory.zip --store postgres://db/chat --space anna\n\nA zip that any tool opens, with a SHA-256 of every document. Documents that change meanwhile are read again, so that the backup\nshows one moment. Indexes and vectors are not in it; they are rebuilt."
    )]
    Backup(carry::Backup),
    /// Show, check or replace the settings
    #[command(
        subcommand,
        after_help = "Examples:\n  icecore vault config show\n  icecore vault config check\n  icecore vault config set icecore.toml --space ann   for a memory in a database"
    )]
    Config(care::Config),
}

#[derive(Debug, Subcommand)]
enum DbCommand {
    /// Bring the tables of a database up to date
    #[command(
        after_help = "Examples:\n  icecore db migrate --store postgres://admin@host/name --dry-run   the steps that are due\n  icecore db migrate --store postgres://admin@host/name\n  icecore db migrate --store postgres://admin@host/name --create-login store   also the login of servers"
    )]
    Migrate(night::MigrateTablesArgs),
    /// Add, list, rotate or revoke tokens
    #[command(
        subcommand,
        after_help = "Examples:\n  icecore db token add --user ann --scope read,write\n  icecore db token list"
    )]
    Token(access::Token),
    /// List, show, erase or limit the spaces of end users
    #[command(
        subcommand,
        after_help = "Examples:\n  icecore db space list\n  icecore db space quota ann --requests-per-minute 60"
    )]
    Space(access::Space),
    /// Show who read and wrote what; never its content
    #[command(
        after_help = "Examples:\n  icecore db audit --since 12h\n  icecore db audit --user ann --limit 20 --json"
    )]
    Audit(access::Audit),
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

/// Options of every command that take a value.
pub const GLOBAL_VALUES: [&str; 5] = ["--vault", "--store", "--space", "--now", "--color"];

/// The arguments of the program, ready to be parsed.
pub fn arguments() -> Vec<std::ffi::OsString> {
    without_bullets(std::env::args_os().collect())
}

/// The words of a command line that are neither options nor their values: the command, its
/// subcommand, arguments.
fn command_words(words: &[std::ffi::OsString]) -> impl Iterator<Item = &str> {
    let mut skips_value = false;
    words.iter().skip(1).filter_map(|word| word.to_str()).filter(move |word| {
        let is_value = std::mem::replace(&mut skips_value, GLOBAL_VALUES.contains(word));
        !is_value && !word.starts_with('-')
    })
}

/// A line copied from a pack begins with a dash but is not an option. For the commands that accept
/// such a line, arguments after their name lose the dash. Nothing else changes.
fn without_bullets(mut words: Vec<std::ffi::OsString>) -> Vec<std::ffi::OsString> {
    let mut command: Vec<&str> = Vec::new();
    let mut at = 1;
    while let Some(word) = words.get(at).and_then(|word| word.to_str()) {
        match word {
            option if GLOBAL_VALUES.contains(&option) => at += 1,
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
pub fn usage(error: &clap::Error) -> ExitCode {
    let asked_json = std::env::args_os().any(|word| word == "--json");
    if asked_json && error.use_stderr() {
        let message = error.to_string();
        let message = message.trim_start_matches("error: ").trim_end();
        let told =
            serde_json::json!({ "error": { "kind": "usage", "exit": 2, "message": message } });
        let _ = writeln!(std::io::stderr(), "{told}");
        return ExitCode::from(2);
    }
    let _ = error.print();
    let _ = std::io::stdout().flush();
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
}

/// Runs a command.
pub async fn run(cli: &Cli, out: &mut Out) -> Result<()> {
    let global = &cli.global;
    match &cli.command {
        Command::Init(init) => return care::init(global, init, out).await,
        Command::Demo => return demo::run(global, out).await,
        Command::Help(help) => return help::help(help, out),
        Command::Program(Lazy(ProgramCommand::Completions { shell })) => {
            return completions(*shell, out);
        }
        Command::Program(Lazy(ProgramCommand::Man { command })) => return manual(command, out),
        Command::Model(model) => return press::model(model, out).await,
        Command::Install(install) => return install::install(global, install, out).await,
        Command::Uninstall(uninstall) => return install::uninstall(uninstall, out),
        Command::Serve(serve) => return serve::serve(global, serve, out).await,
        Command::Dashboard(dashboard) => return dashboard::dashboard(dashboard, out).await,
        Command::Db(db) => {
            return match &**db {
                // Opening a store needs its tables.
                DbCommand::Migrate(migrate) => night::migrate_tables(global, migrate, out).await,
                DbCommand::Token(token) => access::token(global, token, out).await,
                DbCommand::Space(space) => access::space(global, space, out).await,
                DbCommand::Audit(audit) => access::audit(global, audit, out).await,
            };
        }
        Command::Vault(Lazy(VaultCommand::Backup(backup))) => {
            return carry::backup(global, backup, out).await;
        }
        Command::Import(import) if import.whole => {
            return carry::import_whole(global, &import.paths, out).await;
        }
        Command::Daemon(daemon) if daemon.all_spaces => {
            return press::worker(global, daemon, out).await;
        }
        Command::Chat(chat) => return chat::chat(global, chat, out).await,
        Command::Mcp(mcp) => return mcp::mcp(global, mcp, out).await,
        Command::Migrate(migrate) if migrate.is_dry_run() && wire::has_no_vault(global) => {
            return night::migrate_without_vault(global, migrate, out).await;
        }
        // Hooks are answered before the command line is parsed; clap knows them for their help.
        Command::Hook(hook) if hook.log().is_none() => return Ok(()),
        Command::MergeDriver(_) => return Ok(()),
        _ => {}
    }
    let open = if matches!(
        cli.command,
        Command::Doctor(_)
            | Command::Undo(_)
            | Command::Verify
            | Command::Vault(Lazy(VaultCommand::Config(care::Config::Set { .. })))
    ) {
        let (open, complaint) = wire::open_to_mend(global).await?;
        if let Some(complaint) = complaint {
            out.warn(format!("{complaint}. The defaults are used"));
        }
        open
    } else {
        wire::open(global).await?
    };
    for warning in &open.memory.policy().warnings {
        out.warn(warning);
    }
    for mended in open.memory.store().mended().await {
        out.warn(mended);
    }
    let outcome = match &cli.command {
        Command::Status => care::status(&open, out).await,
        Command::Log(log) => ledger::log(&open, log, out).await,
        Command::Remember(remember) => ledger::remember(&open, remember, out).await,
        Command::Close(on) => ledger::act(&open, icecore_domain::event::Act::Close, on, out).await,
        Command::Confirm(on) => {
            ledger::act(&open, icecore_domain::event::Act::Confirm, on, out).await
        }
        Command::Retract(on) => {
            ledger::act(&open, icecore_domain::event::Act::Retract, on, out).await
        }
        Command::Quarantine(which) => quarantine::quarantine(&open, which, out).await,
        Command::Events(events) => ledger::events(&open, events, out).await,
        Command::Commitments => ledger::commitments(&open, out).await,
        Command::Conflicts => ledger::conflicts(&open, out).await,
        Command::Show(one) => ledger::show(&open, one, out).await,
        Command::Why(why) => ledger::why(&open, why, out).await,
        Command::Consolidate(consolidate) => night::consolidate(&open, consolidate, out).await,
        Command::Compact(dry) => night::compact(&open, dry, false, out).await,
        Command::Prune(dry) => night::compact(&open, dry, true, out).await,
        Command::Migrate(migrate) => night::migrate(&open, migrate, out).await,
        Command::Triggers(triggers) => night::triggers(&open, triggers, out).await,
        Command::Message(message) => capture::message(&open, message, out).await,
        Command::Session(session) => capture::session(&open, session, out).await,
        Command::SaveState(save) => capture::save_state(&open, save, out).await,
        Command::Import(import) => import::import(&open, import, out).await,
        Command::Rollup(rollup) => press::rollup(&open, rollup, out).await,
        Command::Summary(summary) => match &**summary {
            SummaryCommand::Review(review) => press::review(&open, review, out).await,
            SummaryCommand::Mark(mark) => press::mark(&open, mark, out).await,
        },
        Command::Pack(kind) => packs::pack(&open, global, kind, out).await,
        Command::Zoom(zoom) => packs::zoom(&open, zoom, out).await,
        Command::Search(search) => find::search(&open, search, out).await,
        Command::Insights(insights) => match &**insights {
            InsightsCommand::Trends(trends) => across::trends(&open, trends, out).await,
            InsightsCommand::Lookback(lookback) => across::lookback(&open, lookback, out).await,
            InsightsCommand::Similar(similar) => across::similar(&open, similar, out).await,
        },
        Command::Conversation(conversation) => {
            converse::conversation(&open, global, conversation, out).await
        }
        Command::MemoryTool(asked) => memory_tool::memory_tool(&open, asked, out).await,
        Command::Pause(pause) => hooks::pause(&open, pause, out).await,
        Command::Resume(resume) => hooks::resume(&open, resume, out).await,
        Command::Hook(hook) => match hook.log() {
            Some(log) => hooks::injected(&open, log, out).await,
            None => Ok(()),
        },
        Command::Jobs(jobs) => match &**jobs {
            JobsCommand::Schedule(schedule) => press::schedule(&open, schedule, out).await,
            JobsCommand::Calendar(calendar) => press::calendar(&open, calendar, out).await,
            JobsCommand::Runs(runs) => press::runs(&open, runs, out).await,
        },
        Command::Daemon(daemon) => press::daemon(&open, daemon, global, out).await,
        Command::Verify => care::verify(&open, out).await,
        Command::Doctor(doctor) => care::doctor(&open, doctor, out).await,
        Command::Vault(vault) => match &**vault {
            VaultCommand::Reindex(reindex) => care::reindex(&open, reindex, out).await,
            VaultCommand::Config(config) => care::config(&open, config, out).await,
            VaultCommand::Export(export) => carry::export(&open, export, out).await,
            VaultCommand::Backup(_) => Ok(()),
        },
        Command::Snapshot(snapshot) => care::snapshot(&open, snapshot, out).await,
        Command::Undo(undo) => care::undo(&open, undo, out).await,
        Command::Forget(forget) => forget::forget(&open, forget, out).await,
        Command::Merge(merge) => join::merge(&open, merge, out).await,
        Command::Init(_)
        | Command::Demo
        | Command::Program(_)
        | Command::Help(_)
        | Command::Model(_)
        | Command::Install(_)
        | Command::Uninstall(_)
        | Command::Serve(_)
        | Command::Dashboard(_)
        | Command::Db(_)
        | Command::Chat(_)
        | Command::Mcp(_)
        | Command::MergeDriver(_) => Ok(()),
    };
    if let Err(error) = access::note(&open.place, &global.command, &outcome).await {
        out.warn(format!("this could not be recorded in the audit log: {error}"));
    }
    let tells_itself = matches!(
        cli.command,
        Command::Status | Command::Verify | Command::Doctor(_) | Command::Undo(_)
    );
    // The command is done; a failure of this check must not hide that.
    if outcome.is_ok()
        && !tells_itself
        && let Err(error) = ledger::tell_damage(&open, out).await
    {
        out.warn(format!("the ledger could not be checked for damage: {error}"));
    }
    outcome
}

/// The command with its subcommands: `conversation show`.
fn called(matches: &clap::ArgMatches) -> String {
    let (mut words, mut at) = (Vec::new(), matches);
    while let Some((name, beneath)) = at.subcommand() {
        words.push(name);
        at = beneath;
    }
    words.join(" ")
}

fn completions(shell: clap_complete::Shell, out: &mut Out) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "icecore", &mut script);
    text(String::from_utf8_lossy(&script).trim_end(), out)
}

fn text(text: &str, out: &mut Out) -> Result<()> {
    if out.is_json() { out.json_named("text", &text) } else { out.line(text) }
}

fn manual(names: &[String], out: &mut Out) -> Result<()> {
    let mut command = Cli::command();
    command.build();
    let mut at = &command;
    for name in names {
        at = at.find_subcommand(name).ok_or_else(|| help::no_command(names))?;
    }
    let mut text = Vec::new();
    clap_mangen::Man::new(at.clone()).render(&mut text)?;
    self::text(String::from_utf8_lossy(&text).trim_end(), out)
}

/// Parsers of argument values, so that a wrong value is refused before anything is opened.
mod read {
    use super::*;

    pub fn id(text: &str) -> Result<EventId, NotAnId> {
        EventId::from_hand(text)
    }

    #[expect(clippy::unnecessary_wraps, reason = "any text is a secret; clap wants a Result")]
    pub fn secret(text: &str) -> Result<SecretString, std::convert::Infallible> {
        Ok(text.into())
    }

    pub fn kind(text: &str) -> Result<Kind, NotAWord> {
        text.parse()
    }

    pub fn priority(text: &str) -> Result<Priority, NotAWord> {
        text.parse()
    }

    pub fn origin(text: &str) -> Result<Origin, NotAWord> {
        text.parse()
    }

    pub fn entity_kind(text: &str) -> Result<EntityKind, NotAWord> {
        text.parse()
    }

    pub fn scope(text: &str) -> Result<Scope, NotAWord> {
        text.parse()
    }

    pub fn role(text: &str) -> Result<Role, NotAWord> {
        Role::meant(text).map_or_else(|| text.parse(), Ok)
    }

    pub fn moment(text: &str) -> Result<Moment, String> {
        match Moment::read(text) {
            Some(read) if !read.offset_assumed => Ok(read.moment),
            _ => Err("write a moment like 2026-02-13T09:30:00+01:00".into()),
        }
    }

    pub fn json(text: &str) -> Result<String, String> {
        let value: Result<serde_json::Value, _> = serde_json::from_str(text);
        value.map(|value| value.to_string()).map_err(|error| format!("this is not JSON: {error}"))
    }

    pub fn shape(text: &str) -> Result<Shape, NotAWord> {
        text.parse()
    }

    pub fn period(text: &str) -> Result<Period, NotAPeriod> {
        text.parse()
    }

    pub fn what(text: &str) -> Result<press::What, NotAWord> {
        if text == "due" { Ok(press::What::Due) } else { text.parse().map(press::What::Tier) }
    }

    pub fn mark(text: &str) -> Result<press::Marked, String> {
        match text {
            "none" | "ordinary" => Ok(press::Marked(None)),
            _ => text
                .parse()
                .map(|importance| press::Marked(Some(importance)))
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

    pub fn when(text: &str, today: jiff::civil::Date) -> Result<When> {
        icecore_domain::when::read(text, today).map_err(|error| {
            crate::error::Stop::new(crate::error::Exit::Usage, error.to_string()).into()
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
            assert_eq!(without_bullets(words(given)), words(parsed), "{given:?}");
        }
    }

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn memory_is_named_in_one_way() {
        let check = |words: &[&str], is_fine: bool| {
            let read = Cli::read([&["icecore", "status"], words].concat());
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
