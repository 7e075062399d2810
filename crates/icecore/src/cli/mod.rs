//! The command line: what can be said, and who answers it.

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
mod hooks;
mod import;
mod install;
mod join;
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

use self::out::Out;
use crate::wire;

const AFTER: &str = "\
Examples:
  icecore init                                     make your memory, once
  icecore remember \"Decided on Postgres\"           write something down
  icecore remember \"Send the offer\" --due friday   promise something
  icecore commitments                              what is open
  icecore status                                   the screen to look at first

Exit codes: 0 ok, 1 failure, 2 usage, 3 not found, 4 conflict, 5 not allowed, 6 damaged vault, 75 try later.";

/// Long-term memory for LLM assistants: every day kept, nothing lost, all of it in files you can
/// read.
#[derive(Debug, Parser)]
#[command(name = "icecore", version, after_help = AFTER, arg_required_else_help = true)]
pub struct Cli {
    /// Options that hold for every command.
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    command: Command,
}

impl Cli {
    /// Reads a command line.
    pub fn read(
        words: impl IntoIterator<Item = impl Into<std::ffi::OsString> + Clone>,
    ) -> Result<Self, clap::Error> {
        // One for each process: taking the parser apart costs as much as parsing.
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

    /// The answer to git, if it is git that calls: it wants a code and nothing else.
    pub fn drives(&self) -> Option<ExitCode> {
        match &self.command {
            Command::MergeDriver(driver) => Some(join::drive(driver)),
            _ => None,
        }
    }

    /// Whether many are served at once, so that it needs more than one thread.
    pub fn serves_many(&self) -> bool {
        match &self.command {
            Command::Serve(_) | Command::Chat(_) | Command::Mcp(_) => true,
            Command::Daemon(daemon) => daemon.all_spaces,
            _ => false,
        }
    }
}

/// Options that may stand before or after any command.
#[derive(Debug, Clone, Args)]
pub struct Global {
    /// The vault; else the nearest parent folder that is one, else your own
    #[arg(
        long,
        global = true,
        value_name = "DIR",
        env = "ICECORE_VAULT",
        help_heading = "Global options"
    )]
    pub vault: Option<PathBuf>,
    /// A database that memory is in, such as postgres://user@host/name; also ICECORE_STORE, or a
    /// file named by ICECORE_STORE_FILE
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
    /// Whether the vault stood on the command line, so that the environment does not name a
    /// database instead
    #[arg(skip)]
    pub vault_is_meant: bool,
    /// Whether the space stood there
    #[arg(skip)]
    pub space_is_meant: bool,
    /// What the command is called, with the one beneath it
    #[arg(skip)]
    pub command: String,
    /// Print JSON for machines
    #[arg(long, global = true, help_heading = "Global options")]
    pub json: bool,
    /// Run as of this moment, e.g. 2026-02-13T09:30:00+01:00; what is newer is not known
    #[arg(long, global = true, value_name = "RFC3339", help_heading = "Global options")]
    pub now: Option<String>,
    /// Say nothing but data, warnings and errors
    #[arg(short, long, global = true, help_heading = "Global options")]
    pub quiet: bool,
    /// Say more
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
    /// What they say of where memory is.
    pub fn named(&self) -> wire::Named {
        let (vault, store, space) = (self.vault.clone(), self.store.clone(), self.space.clone());
        wire::Named { vault, is_meant: self.vault_is_meant, store, space, is_hurried: false }
    }

    /// What is wrong with naming memory in two ways at once, where both stand on the command line.
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

    /// The same, about a vault.
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
    /// On a terminal.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Make a vault: a folder of files, a git repository, your time zone
    #[command(
        after_help = "Examples:\n  icecore init                     in your data folder\n  icecore init ./memory            in a folder of your choice\n  icecore init --tz Europe/Berlin  with days as in Berlin\n  icecore init --store postgres://me@host/name --space team   in a database: its tables, and a space"
    )]
    Init(care::Init),
    /// Show what is here, what is open, what is due and what is wrong
    #[command(after_help = "Examples:\n  icecore status\n  icecore status --json | jq .open")]
    Status,
    /// Add a line with the time to today's log
    #[command(
        after_help = "Examples:\n  icecore log \"Met Client X, they want two more weeks\"\n  some-command | icecore log -"
    )]
    Log(ledger::Log),
    /// Write down a fact, decision, commitment, preference, constraint, procedure or relationship
    #[command(
        after_help = "Examples:\n  icecore remember \"Decided on one price for all\" --entity pricing\n  icecore remember \"Never deploy on Fridays\" --priority P0\n  icecore remember \"Send the offer to Client X\" --due friday --waiting-on \"the lawyers\"\n  icecore remember \"The budget is 600 EUR\" --supersedes EVT-20260213-001\n  echo \"long text\" | icecore remember - --type fact\n\nThe type is guessed from the words if --type is not given."
    )]
    Remember(ledger::Remember),
    /// Close commitments that are done or dropped
    #[command(
        after_help = "Examples:\n  icecore close EVT-20260213-002\n  icecore close 20260213-2 --note \"sent by mail\""
    )]
    Close(ledger::OnEvents),
    /// Say that something still holds, so that it counts as fresh
    #[command(after_help = "Example:\n  icecore confirm EVT-20260213-001")]
    Confirm(ledger::OnEvents),
    /// Take something back: a statement, a closing, even a retraction
    #[command(
        after_help = "Examples:\n  icecore retract EVT-20260213-001 --note \"misheard\"\n  icecore retract EVT-20260213-007   (if 007 closed a commitment, it is open again)"
    )]
    Retract(ledger::OnEvents),
    /// Look at what only tools and strangers said, and confirm or drop it
    #[command(
        subcommand,
        after_help = "Examples:\n  icecore quarantine list\n  icecore quarantine confirm EVT-20260213-001\n  icecore quarantine drop --session app/s1\n\nWhat waits here is in no pack, page or summary until somebody confirms it."
    )]
    Quarantine(quarantine::Quarantine),
    /// List events
    #[command(
        after_help = "Examples:\n  icecore events                          what holds now\n  icecore events --type decision --since 2026-01-01\n  icecore events --entity client_x --all  with everything that was replaced or taken back\n  icecore events pricing --json           by text, for machines"
    )]
    Events(ledger::Events),
    /// List open commitments, oldest first
    #[command(
        after_help = "Examples:\n  icecore commitments\n  icecore commitments --json | jq -r '.commitments[] | select(.due) | .id'"
    )]
    Commitments,
    /// List statements that cannot both be true
    #[command(
        after_help = "Example:\n  icecore conflicts      with the commands that settle each of them"
    )]
    Conflicts,
    /// Show an event with its chain: what it replaced, what replaced it, who closed it
    #[command(after_help = "Example:\n  icecore show EVT-20260213-001")]
    Show(ledger::OneEvent),
    /// Walk an event, a summary, a page or any line of a pack back to the words it came from
    #[command(
        after_help = "Examples:\n  icecore why EVT-20260213-001\n  icecore why 2026-W07\n  icecore why knowledge/entities/apollo.md\n  icecore why \"- Never deploy on Fridays (EVT-20260213-002)\"\n  icecore why \"the port moved to 7431\"        a line of a summary or pack"
    )]
    Why(ledger::Why),
    /// Keep messages, word for word, for good
    #[command(subcommand)]
    Message(capture::Message),
    /// Keep whole sessions, and write their primers
    #[command(subcommand)]
    Session(capture::Session),
    /// Save an assistant's state: for the next session, for good, and in 24hr.md
    #[command(
        after_help = "Examples:\n  icecore save-state state.md --title \"before lunch\"\n  some-program | icecore save-state --title \"auto-save\""
    )]
    SaveState(capture::SaveState),
    /// Take in a history in bulk
    #[command(
        after_help = "Examples:\n  icecore import claude-code                   everything in ~/.claude/projects\n  icecore import claude-code --dry-run         what that would be\n  icecore import chatgpt-export.zip            the form is recognised\n  icecore import ~/notes --format markdown\n  icecore import history.jsonl                 {\"conversation\",\"session\",\"role\",\"name\",\"ts\",\"id\",\"text\"} a line; ts and text must be there\n\nForms: claude-code, codex (also .zst), chatgpt and claude-ai (zip or json), mem0, mcp-memory, markdown, jsonl.\nA run that was ended goes on where it was; a second run reads only what is new, and nothing is taken twice."
    )]
    Import(import::Import),
    /// Press sessions into days, weeks, months and years
    #[command(
        after_help = "Examples:\n  icecore rollup                         everything that is due\n  icecore rollup --dry-run               what that would be\n  icecore rollup week --period 2026-W07  this week, now\n  icecore rollup due --backfill          the past, newest first, after an import\n\nWithout a model, summaries are made from the sources' own sentences and marked provisional; `icecore model check` says what is configured."
    )]
    Rollup(press::Rollup),
    /// Do the night's work now: learn from the day, tend pages, press, check, rebuild the recall
    /// pack
    #[command(
        after_help = "Examples:\n  icecore consolidate             what the daemon does at 03:00\n  icecore consolidate --dry-run   what that would be\n\nA report is written to knowledge/consolidation-reports/. A run that is cut short is finished by the next one."
    )]
    Consolidate(night::Consolidate),
    /// Make one event of every chain that is done with; old lines go to the archive
    #[command(
        after_help = "Examples:\n  icecore compact --dry-run\n  icecore compact\n\nPermanent and open events stay. Ids that leave still resolve: `icecore show`, `icecore why`."
    )]
    Compact(night::DryRun),
    /// Move what has expired (P2 after 90 days, P3 after 30) to the archive
    #[command(after_help = "Examples:\n  icecore prune --dry-run\n  icecore prune")]
    Prune(night::DryRun),
    /// Take an existing memory folder over; nothing in it is lost
    #[command(
        after_help = "Examples:\n  icecore migrate ~/old-memory --dry-run   the plan and the inventory\n  icecore migrate ~/old-memory\n  icecore migrate ~/.claude/projects/app/memory\n  icecore migrate --store postgres://host/name   the tables of a database, after a new version\n\nA folder elsewhere is only read. In the vault itself old files move to memory/archive/migrated once what they hold is kept."
    )]
    Migrate(night::Migrate),
    /// List the words that load pages, or keep the suggested ones
    #[command(
        after_help = "Examples:\n  icecore triggers\n  icecore triggers --keep     write the suggestions into recall/triggers.json, to be edited"
    )]
    Triggers(night::Triggers),
    /// Show drafts that were refused, and settle them
    #[command(
        after_help = "Examples:\n  icecore review                        what waits, and why\n  icecore review 2026-W07               the draft\n  icecore review 2026-W07 --accept      let it stand\n  icecore review 2026-W07 --edit new.md put another in its place\n  icecore review 2026-W07 --retry       ask again"
    )]
    Review(press::Review),
    /// Say that a day was important or dull; it is pressed accordingly
    #[command(
        after_help = "Examples:\n  icecore mark 2026-02-13 important\n  icecore mark yesterday dull\n  icecore mark 2026-02-13 none"
    )]
    Mark(press::Mark),
    /// Assemble text for a model
    #[command(subcommand)]
    Pack(packs::PackKind),
    /// Go back to the words of any day, week or month
    #[command(
        after_help = "Examples:\n  icecore zoom yesterday\n  icecore zoom last tuesday --summary\n  icecore zoom 2026-W07 --conversation app\n  icecore zoom feb 2026 --json"
    )]
    Zoom(packs::Zoom),
    /// Find anything that was ever said, learnt or written
    #[command(
        after_help = "Examples:\n  icecore search where did we keep the spare key\n  icecore search postgres --when \"last month\" --kind message --kind event\n  icecore search '\"the very words\"' --context 2\n  icecore search --queries questions.jsonl --limit 20 > answers.jsonl\n\nBy words alone until `icecore model fetch` has brought the model that compares meanings. -v shows how to zoom to each hit."
    )]
    Search(find::Search),
    /// Show what came up again and again, on how many occasions, and when
    #[command(
        after_help = "Examples:\n  icecore trends                     the last twelve months\n  icecore trends --when 2026 --limit 40\n  icecore trends --about auth        what comes up together with it\n  icecore trends --json | jq -r '.topics[] | \"\\(.occasions) \\(.topic)\"'\n\nAn occasion is a session, or a day on which something was logged or learnt outside of one."
    )]
    Trends(across::Trends),
    /// Show what was at this time a month, half a year, one year and more years ago
    #[command(
        after_help = "Examples:\n  icecore lookback                   from today\n  icecore lookback 2026-02-13        from that day\n  icecore lookback yesterday --json"
    )]
    Lookback(across::Lookback),
    /// List the periods that were about the same things as one, or make one text of them
    #[command(
        after_help = "Examples:\n  icecore similar                    the latest week, else the latest month\n  icecore similar 2026-W07\n  icecore similar 2026-02 --merge    what those months say, each thing once"
    )]
    Similar(across::SimilarTo),
    /// Look at chats: what was established, turn by turn, every version of what was made; and take
    /// one away
    #[command(subcommand)]
    Conversation(converse::Conversation),
    /// Chat with the configured model on the terminal, with memory
    #[command(
        after_help = "Examples:\n  icecore chat                       go on with the conversation `terminal`\n  icecore chat --conversation trip   another one\n  echo \"what do you know about me?\" | icecore chat\n\nThe model is [chat] of your config.toml; `icecore model check` tries it. What memory was told is shown in dim letters; -q hides it."
    )]
    Chat(chat::Chat),
    /// Serve chat clients: an OpenAI- and Anthropic-compatible address with memory behind it
    #[command(
        after_help = "Examples:\n  icecore serve                        on 127.0.0.1:7431, for this machine\n  icecore serve --addr 127.0.0.1:0     on a free port, which is printed\n  icecore serve --root ./chats         a home of its own, with a space for every end user\n  icecore serve --store postgres://…   memory in a database, for as many servers as you like\n\nPoint a client's base URL at http://127.0.0.1:7431/v1 (Anthropic's clients: without /v1) and give it the token as its key.\nThe model behind it is [chat] of your config.toml, what remembers is [summarizer]."
    )]
    Serve(serve::Serve),
    /// Print a link that lets a browser into a server that runs
    #[command(
        after_help = "Examples:\n  icecore serve                                 in one terminal\n  icecore dashboard                             in another: open what it prints\n  xdg-open \"$(icecore dashboard -q)\"\n\nThe link is good once, for ten minutes; the code in it never reaches a log."
    )]
    Dashboard(dashboard::Dashboard),
    /// Look after the tokens of a home in a database: make, list, rotate, revoke
    #[command(subcommand)]
    Token(access::Token),
    /// Look after the spaces of end users in a database: list, show, erase, limit
    #[command(subcommand)]
    Space(access::Space),
    /// Show who read and wrote what in a home in a database; never what it said
    #[command(
        after_help = "Examples:\n  icecore audit --since 12h\n  icecore audit --user ann --limit 20 --json"
    )]
    Audit(access::Audit),
    /// Serve an assistant over the Model Context Protocol, on standard input and output
    #[command(
        after_help = "Examples:\n  claude mcp add icecore -- icecore mcp     Claude Code starts it by itself\n  icecore mcp --read-only                   only what looks, nothing that writes\n  icecore --vault ~/team mcp                another vault\n\nClients start it; a person has no use for it on a terminal. Its vault is the one named, else your own, and never one that\nthe folder brings along. `icecore serve` serves the same at /mcp over HTTP."
    )]
    Mcp(mcp::Mcp),
    /// Do what a model asks by Anthropic's memory tool: its input as JSON on standard input
    #[command(
        after_help = "Examples:\n  echo '{\"command\":\"view\",\"path\":\"/memories\"}' | icecore memory-tool --json\n  icecore memory-tool --versions /memories/plan.md\n  icecore memory-tool --versions /memories/plan.md --version 2 > plan.md\n\n/memories is the folder memory/tool of the vault. Nothing is lost: what a file was before is kept."
    )]
    MemoryTool(memory_tool::MemoryTool),
    /// Connect a client: Claude Code, Codex, Claude Desktop, Cursor or VS Code
    #[command(
        after_help = "Examples:\n  icecore install                          the clients of this machine\n  icecore install claude-code --dry-run    what would change\n  icecore install claude-code              shows the change, then asks\n  icecore install cursor --project --yes   for this project only, without asking\n  icecore install codex --vault ~/memory   bound to one vault\n\nComments, order and everything else in the settings stay; what was there is kept. `icecore uninstall` brings it back."
    )]
    Install(install::Install),
    /// Take icecore out of a client's settings; they are as they were before
    #[command(
        after_help = "Examples:\n  icecore uninstall claude-code --dry-run\n  icecore uninstall claude-code --yes\n\nWhere nothing else changed since, the file comes back byte for byte; where something did, only what is icecore's goes."
    )]
    Uninstall(install::Uninstall),
    /// Answer a client's hook: read one JSON object, keep what was said, print what is to be known
    #[command(
        after_help = "Examples:\n  icecore hook session-start          what Claude Code and Codex call; see docs/hooks.md\n  icecore hook user-prompt-submit --client codex --vault ~/memory\n  echo '{\"session_id\":\"s1\",\"prompt\":\"which port?\"}' | icecore hook user-prompt-submit\n\nEvents: session-start, user-prompt-submit, pre-compact, post-compact, stop, subagent-stop, session-end; any other word does\nnothing. It always ends with 0 and prints one JSON object. What it could not do is told by `icecore status` and `icecore doctor`."
    )]
    Hook(hooks::Hook),
    /// Keep nothing of what is said to assistants: for a while, in a session, in a project
    #[command(
        after_help = "Examples:\n  icecore pause --for 1h             everything, for an hour\n  icecore pause --session last       the session that is going on\n  icecore pause --project            the project of this folder\n  icecore pause --list\n  icecore pause --off                or `icecore resume`\n\nWhat is said meanwhile is not kept later either, when the transcript is read. A prompt that begins or ends with #private, and what\nis answered to it, is not kept; nor is what stands between <private> and </private>."
    )]
    Pause(hooks::Pause),
    /// Keep what is said again
    #[command(
        after_help = "Examples:\n  icecore resume                     all pauses end\n  icecore resume --project app"
    )]
    Resume(hooks::Resume),
    /// Show exactly what the last prompts were given, and why
    #[command(
        after_help = "Examples:\n  icecore injected\n  icecore injected --last 20 --json | jq '.injected[].items'\n  icecore injected --session last"
    )]
    Injected(hooks::Injected),
    /// Show when each job runs and what is due; print a unit or a crontab line
    #[command(
        after_help = "Examples:\n  icecore schedule\n  icecore schedule --systemd > ~/.config/systemd/user/icecore.service\n  icecore schedule --crontab"
    )]
    Schedule(press::Schedule),
    /// List what runs in the next days, as a table or an .ics file
    #[command(
        after_help = "Examples:\n  icecore calendar --days 30\n  icecore calendar --ics > icecore.ics"
    )]
    Calendar(press::Calendar),
    /// Keep running and do what is due
    #[command(
        after_help = "Examples:\n  icecore daemon\n  icecore daemon --once                                      for cron\n  icecore daemon --all-spaces --store postgres://db/chat     every space of a database, in turn with other workers"
    )]
    Daemon(press::Daemon),
    /// List what was pressed, with its cost
    #[command(
        after_help = "Examples:\n  icecore runs\n  icecore runs --limit 100 --json | jq '.runs[].ratio'"
    )]
    Runs(press::Runs),
    /// Look at the configured models
    #[command(subcommand, after_help = "Example:\n  icecore model check")]
    Model(press::Model),
    /// Check everything: ids, references, the index, what was verified before
    #[command(
        after_help = "Examples:\n  icecore verify                 exit 6 if anything fails\n  icecore verify --json | jq .ok"
    )]
    Verify,
    /// Say what is wrong and what to do; with --fix, do it
    #[command(
        after_help = "Examples:\n  icecore doctor         look only\n  icecore doctor --fix   bring lost lines back from snapshots, set broken ones aside, make what is derived anew"
    )]
    Doctor(care::Doctor),
    /// Make everything derived anew from the files
    #[command(
        after_help = "Examples:\n  icecore reindex            the index, open-loops.json and what search needs; nothing else changes\n  icecore reindex --words    without the vectors, which take longest"
    )]
    Reindex(care::Reindex),
    /// Show or check the vault's settings
    #[command(
        subcommand,
        after_help = "Examples:\n  icecore config show\n  icecore config check\n  icecore config set icecore.toml --space ann   for a memory in a database"
    )]
    Config(care::Config),
    /// Keep the state as it is, to be able to come back
    #[command(
        after_help = "Examples:\n  icecore snapshot --note \"before the migration\"\n  icecore snapshot --list"
    )]
    Snapshot(care::Snapshot),
    /// Go back to the last snapshot; the state before is kept, so a second undo comes back
    #[command(
        after_help = "Examples:\n  icecore undo\n  icecore undo --to 1a2b3c4d\n\nPages and settings come back as they were. The ledger only grows: what was recorded since is taken back by new events."
    )]
    Undo(care::Undo),
    /// Forget something for good: words, events, messages, a conversation; and everything that goes
    /// back to them
    #[command(
        after_help = "Examples:\n  icecore forget --matching \"the door code is 4711\" --dry-run   what would go, and from where\n  icecore forget EVT-20260213-004 --reason \"she asked for it\"\n  icecore forget conversation/trip --history --yes              also from every snapshot\n\nWhole words count, whatever their case and spacing; a line that holds them goes. A tombstone keeps when, who and a hash, so that\na later import does not bring them back. Backups and other clones are out of reach: docs/forgetting.md."
    )]
    Forget(forget::Forget),
    /// Copy everything into a new vault: a memory in a database becomes a folder of files
    #[command(
        after_help = "Examples:\n  icecore export ./copy --store postgres://db/chat --space anna   out of a database\n  icecore export /mnt/stick/memory                               another copy of a vault\n\nEvery document goes over byte for byte and is compared. `icecore import --whole DIR` is the way back."
    )]
    Export(carry::Export),
    /// Keep everything in one file, check such a file, or make a memory of it
    #[command(
        subcommand,
        after_help = "Examples:\n  icecore backup create memory.zip\n  icecore backup verify memory.zip --drill\n  icecore backup restore memory.zip --vault ./again\n  icecore backup restore memory.zip --store postgres://db/chat --space anna\n\nA zip that any tool opens, with a SHA-256 of every document. What changes meanwhile is taken again, so that everything in it\nwas there together at one moment. Indexes and vectors are not in it; they are made again."
    )]
    Backup(carry::Backup),
    /// Bring in what another machine has done with the same vault
    #[command(
        after_help = "Examples:\n  git fetch && icecore merge && git push    what this vault follows\n  icecore merge origin/main\n\nLines of both are kept, each once; what one machine has compacted or forgotten stays so. Ids that both gave are given anew on this\nmachine, with everything that names them. What needs a person is named, and then nothing is changed: docs/two-machines.md."
    )]
    Merge(join::Merge),
    /// Merge one file for git: what `.git/config` names
    #[command(hide = true)]
    MergeDriver(join::MergeDriver),
    /// Make a sample vault in a temporary folder and show a day and ninety days with icecore
    Demo,
    /// Print shell completions
    #[command(
        after_help = "Example:\n  icecore completions bash > ~/.local/share/bash-completion/completions/icecore"
    )]
    Completions {
        /// For which shell
        shell: clap_complete::Shell,
    },
    /// Print the manual page, or of one command
    #[command(
        after_help = "Examples:\n  icecore man | man -l -\n  icecore man remember > icecore-remember.1"
    )]
    Man {
        /// Which command
        command: Option<String>,
    },
}

/// Options of every command that take a value.
pub const GLOBAL_VALUES: [&str; 5] = ["--vault", "--store", "--space", "--now", "--color"];

/// The words of the command line, as they are to be parsed.
pub fn arguments() -> Vec<std::ffi::OsString> {
    without_bullets(std::env::args_os().collect())
}

/// A line that was copied from a pack begins with a dash and is no option: for the commands that
/// take such a line, what comes after their name loses it. Nothing else is changed.
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

/// The command line as a value, to be looked at.
#[cfg(test)]
pub fn command() -> clap::Command {
    Cli::command()
}

/// Whether a word is the name of a command.
pub fn is_command(word: &str) -> bool {
    // Cheaper than asking for all of them, and a hook has no time to lose.
    word == "hook"
        || word == "help"
        || Cli::command().get_subcommands().any(|command| command.get_name() == word)
}

/// Answers a call without any argument that no person at a terminal made. A client whose settings
/// lost their arguments calls us like that: its exit code must not be 2, which erases a prompt, and
/// it must print nothing, which would be context.
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

/// Answers a wrong call, or prints the help that was asked for.
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

/// Does what was asked.
pub async fn run(cli: &Cli, out: &mut Out) -> Result<()> {
    let global = &cli.global;
    match &cli.command {
        Command::Init(init) => return care::init(global, init, out).await,
        Command::Demo => return demo::run(global, out).await,
        Command::Completions { shell } => return completions(*shell, out),
        Command::Man { command } => return manual(command.as_deref(), out),
        Command::Model(model) => return press::model(model, out).await,
        Command::Install(install) => return install::install(global, install, out).await,
        Command::Uninstall(uninstall) => return install::uninstall(uninstall, out),
        Command::Serve(serve) => return serve::serve(global, serve, out).await,
        Command::Dashboard(dashboard) => return dashboard::dashboard(dashboard, out).await,
        Command::Token(token) => return access::token(global, token, out).await,
        Command::Space(space) => return access::space(global, space, out).await,
        Command::Audit(audit) => return access::audit(global, audit, out).await,
        Command::Backup(backup) => return carry::backup(global, backup, out).await,
        Command::Import(import) if import.whole => {
            return carry::import_whole(global, &import.paths, out).await;
        }
        Command::Daemon(daemon) if daemon.all_spaces => {
            return press::worker(global, daemon, out).await;
        }
        Command::Chat(chat) => return chat::chat(global, chat, out).await,
        Command::Mcp(mcp) => return mcp::mcp(global, mcp, out).await,
        // Tables that are not there yet cannot be opened.
        Command::Migrate(migrate) if migrate.is_of_tables() => {
            return night::migrate_tables(global, migrate, out).await;
        }
        Command::Migrate(migrate) if migrate.is_dry_run() && wire::has_no_vault(global) => {
            return night::migrate_without_vault(global, migrate, out).await;
        }
        // Answered before the command line is read at all; only its help is asked for here.
        Command::Hook(_) | Command::MergeDriver(_) => return Ok(()),
        _ => {}
    }
    let open = if matches!(
        cli.command,
        Command::Doctor(_)
            | Command::Undo(_)
            | Command::Verify
            | Command::Config(care::Config::Set { .. })
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
        Command::Review(review) => press::review(&open, review, out).await,
        Command::Mark(mark) => press::mark(&open, mark, out).await,
        Command::Pack(kind) => packs::pack(&open, global, kind, out).await,
        Command::Zoom(zoom) => packs::zoom(&open, zoom, out).await,
        Command::Search(search) => find::search(&open, search, out).await,
        Command::Trends(trends) => across::trends(&open, trends, out).await,
        Command::Lookback(lookback) => across::lookback(&open, lookback, out).await,
        Command::Similar(similar) => across::similar(&open, similar, out).await,
        Command::Conversation(conversation) => {
            converse::conversation(&open, global, conversation, out).await
        }
        Command::MemoryTool(asked) => memory_tool::memory_tool(&open, asked, out).await,
        Command::Pause(pause) => hooks::pause(&open, pause, out).await,
        Command::Resume(resume) => hooks::resume(&open, resume, out).await,
        Command::Injected(injected) => hooks::injected(&open, injected, out).await,
        Command::Schedule(schedule) => press::schedule(&open, schedule, out).await,
        Command::Calendar(calendar) => press::calendar(&open, calendar, out).await,
        Command::Daemon(daemon) => press::daemon(&open, daemon, global, out).await,
        Command::Runs(runs) => press::runs(&open, runs, out).await,
        Command::Verify => care::verify(&open, out).await,
        Command::Doctor(doctor) => care::doctor(&open, doctor, out).await,
        Command::Reindex(reindex) => care::reindex(&open, reindex, out).await,
        Command::Config(config) => care::config(&open, config, out).await,
        Command::Snapshot(snapshot) => care::snapshot(&open, snapshot, out).await,
        Command::Undo(undo) => care::undo(&open, undo, out).await,
        Command::Forget(forget) => forget::forget(&open, forget, out).await,
        Command::Export(export) => carry::export(&open, export, out).await,
        Command::Merge(merge) => join::merge(&open, merge, out).await,
        Command::Init(_)
        | Command::Demo
        | Command::Completions { .. }
        | Command::Man { .. }
        | Command::Model(_)
        | Command::Install(_)
        | Command::Uninstall(_)
        | Command::Serve(_)
        | Command::Dashboard(_)
        | Command::Token(_)
        | Command::Space(_)
        | Command::Audit(_)
        | Command::Backup(_)
        | Command::Chat(_)
        | Command::Mcp(_) => Ok(()),
        Command::Hook(_) | Command::MergeDriver(_) => Ok(()),
    };
    if let Err(error) = access::note(&open.place, &global.command, &outcome).await {
        out.warn(format!("that this was done could not be noted in the audit log: {error}"));
    }
    let tells_itself = matches!(
        cli.command,
        Command::Status | Command::Verify | Command::Doctor(_) | Command::Undo(_)
    );
    // The command is done; that this look fails must not make it look undone.
    if outcome.is_ok()
        && !tells_itself
        && let Err(error) = ledger::tell_damage(&open, out).await
    {
        out.warn(format!("whether the ledger is whole could not be looked at: {error}"));
    }
    outcome
}

/// What a command is called, with the one beneath it: `conversation show`.
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

fn manual(name: Option<&str>, out: &mut Out) -> Result<()> {
    let mut command = Cli::command();
    command.build();
    let page = match name {
        None => clap_mangen::Man::new(command),
        Some(name) => {
            let known = command.find_subcommand(name).cloned();
            let known = known.ok_or_else(|| {
                crate::error::Stop::new(
                    crate::error::Exit::NotFound,
                    format!("there is no command `{name}`; `icecore --help` lists them"),
                )
            })?;
            clap_mangen::Man::new(known)
        }
    };
    let mut text = Vec::new();
    page.render(&mut text)?;
    self::text(String::from_utf8_lossy(&text).trim_end(), out)
}

/// Readers for what can be typed, so that a wrong word is answered before anything is opened.
mod read {
    use super::*;

    pub fn id(text: &str) -> Result<EventId, NotAnId> {
        EventId::from_hand(text)
    }

    #[expect(clippy::unnecessary_wraps, reason = "whatever it is, it is told to nobody")]
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
        // `9000c` says characters, where characters are meant anyway.
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
