//! `install` and `uninstall`: connect a client, and remove icecore from its settings.

use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Args;
use comfy_table::Cell;
use etcetera::BaseStrategy as _;
use icecore_domain::converse::artifact;
use icecore_domain::{layout, plain, secrets};
use serde_json::{Value, json};

use super::Global;
use super::care;
use super::out::{BOLD, CYAN, DIM, GREEN, Out, RED};
use crate::error::{Exit, Stop};
use crate::install::clients::{Client, Machine, Place, System, What};
use crate::install::{self, Caller, Change, Records, State, Trouble, Version};
use crate::place::needs_folder;
use crate::wire;

#[derive(Debug, Args)]
pub struct Install {
    /// The client; without it, the clients of this machine are listed
    client: Option<Client>,
    #[command(flatten)]
    how: How,
}

#[derive(Debug, Args)]
pub struct Uninstall {
    /// The client
    client: Client,
    #[command(flatten)]
    how: How,
}

#[derive(Debug, Args)]
struct How {
    /// The settings of this project instead of your own
    #[arg(long)]
    project: bool,
    /// Only the hooks, or only the MCP server
    #[arg(long, value_name = "WHAT")]
    only: Option<What>,
    /// Show the change and write nothing
    #[arg(long)]
    dry_run: bool,
    /// Do not ask
    #[arg(long, short)]
    yes: bool,
}

fn usage(message: impl Into<String>) -> anyhow::Error {
    Stop::new(Exit::Usage, message).into()
}

fn troubled(trouble: Trouble) -> anyhow::Error {
    match trouble {
        Trouble::Store(error) => error.into(),
        Trouble::Client(why) => usage(why.to_string()),
        refused @ Trouble::Refused { .. } => Stop::new(Exit::Conflict, refused.to_string()).into(),
    }
}

/// Reads what decides where clients keep their settings on this machine.
fn machine() -> Result<Machine> {
    let folder =
        |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let system = match std::env::consts::OS {
        "macos" => System::Mac,
        "windows" => System::Windows,
        _ => System::Linux,
    };
    let home = etcetera::home_dir()
        .map_err(|_| usage("HOME is not set, so the settings of clients cannot be located"))?;
    let config = folder(if system == System::Windows { "APPDATA" } else { "XDG_CONFIG_HOME" });
    Ok(Machine {
        system,
        home,
        config,
        claude: folder("CLAUDE_CONFIG_DIR"),
        codex: folder("CODEX_HOME"),
    })
}

fn records(machine: &Machine) -> Records {
    let state = etcetera::choose_base_strategy().ok().and_then(|folders| folders.state_dir());
    Records::new(
        state
            .unwrap_or_else(|| machine.home.join(".local").join("state"))
            .join("icecore")
            .join("install"),
        &machine.home,
    )
}

/// Where the search path leads to, for a program that can be run.
fn on_path(name: impl AsRef<OsStr>) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let can_run = |place: &PathBuf| {
        std::fs::metadata(place)
            .is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    };
    std::env::split_paths(&path)
        .map(|folder| folder.join(name.as_ref()))
        .filter(|place| place.is_absolute())
        .find(can_run)
}

/// The version of a client that has hooks: the oldest of those that are installed, because all of
/// them read the same settings. `None` if there is none, or one does not tell its version.
fn version(client: Client, machine: &Machine) -> Option<Version> {
    client.dialect()?;
    let first = client.program().and_then(on_path);
    let others = client.other_programs(machine).into_iter().filter(|place| place.is_file());
    // By the name they are called with: a version manager's program decides by it what to run.
    let mut programs: Vec<PathBuf> = first.into_iter().chain(others).collect();
    programs.dedup_by_key(|place| std::fs::canonicalize(place).ok());
    let versions: Option<Vec<Version>> =
        programs.iter().map(|program| Version::ask(program, &machine.home)).collect();
    versions?.into_iter().min()
}

/// What a person should know about the version that the hooks are written for.
fn version_note(client: Client, version: Option<Version>, is_shared: bool) -> Option<String> {
    let missing: Vec<String> = client
        .dialect()?
        .unknown_events(version)
        .map(|hook| format!("{} ({})", hook.event, hook.since))
        .collect();
    if missing.is_empty() {
        return None;
    }
    let (name, missing) = (client.name(), missing.join(", "));
    if is_shared {
        let why = "Older versions ignore a whole settings file that names an unknown event, and everyone on the project shares these files";
        return Some(format!("{why}. These hooks are left out: {missing}."));
    }
    let who = match version {
        Some(version) => format!("{name} {version} does not know"),
        None => format!(
            "No {name} on this machine reports its version, so hooks that need a newer one are left out:"
        ),
    };
    let again = format!("After an upgrade, run `icecore install {}` again.", client.word());
    Some(format!("{who} {missing}. {again}"))
}

/// This program, and where the search path leads to it.
fn ourselves() -> Result<(PathBuf, Option<PathBuf>)> {
    let own = std::env::current_exe().map_err(|error| {
        Stop::new(Exit::Failure, format!("the path of this program cannot be determined: {error}"))
    })?;
    let same = |place: &PathBuf| {
        std::fs::canonicalize(place)
            .is_ok_and(|place| std::fs::canonicalize(&own).is_ok_and(|own| own == place))
    };
    let found = on_path("icecore").filter(same);
    Ok((own, found))
}

/// The folder of this project: the nearest above that is a repository, else this one.
fn project() -> Result<PathBuf> {
    let here = std::env::current_dir().map_err(|error| {
        Stop::new(Exit::Failure, format!("the current folder cannot be determined: {error}"))
    })?;
    Ok(here.ancestors().find(|folder| folder.join(".git").exists()).unwrap_or(&here).to_owned())
}

/// The vault to bind a client to: an absolute path, and a vault.
fn pinned(global: &Global) -> Result<Option<String>> {
    if global.store.is_some() || global.space_is_meant {
        let instead = "its address does not belong in a client's settings. Set ICECORE_STORE_FILE and ICECORE_SPACE where the client is started, and leave --store and --space out";
        return Err(needs_folder("binding a client", instead));
    }
    let Some(named) = global.vault.as_ref().filter(|named| !named.as_os_str().is_empty()) else {
        return Ok(None);
    };
    let place =
        std::fs::canonicalize(named).ok().filter(|place| place.join(layout::CONFIG).is_file());
    let Some(place) = place else {
        let message = format!(
            "{} is not a vault, so no client can be bound to it; `icecore init {}` creates one",
            named.display(),
            named.display()
        );
        return Err(Stop::new(Exit::NotFound, message).into());
    };
    place
        .into_os_string()
        .into_string()
        .map(Some)
        .map_err(|_| usage("the path of the vault is not UTF-8; settings files cannot express it"))
}

struct Asked {
    client: Client,
    project: Option<PathBuf>,
    places: Vec<Place>,
    records: Records,
}

/// What an installation does besides changing settings, and its notes.
#[derive(Default)]
struct Plan {
    /// Where to create a vault, because the client would find none.
    new_vault: Option<PathBuf>,
    /// The memory that the client will use, for display.
    memory: String,
    notes: Vec<String>,
}

fn asked(client: Client, how: &How, machine: &Machine) -> Result<Asked> {
    let project = if how.project { Some(project()?) } else { None };
    let mut places =
        client.places(machine, project.as_deref()).map_err(|why| troubled(why.into()))?;
    places.retain(|place| how.only.is_none_or(|only| place.part.what() == only));
    if places.is_empty() {
        return Err(usage(format!("{} has no hooks; leave --only out", client.name())));
    }
    Ok(Asked { client, project, places, records: records(machine) })
}

/// `icecore install`
pub async fn install(global: &Global, install: &Install, out: &mut Out) -> Result<()> {
    let machine = machine()?;
    let (own, found) = ourselves()?;
    let Some(client) = install.client else { return list(&machine, &own, found.as_deref(), out) };
    let asked = asked(client, &install.how, &machine)?;
    let vault = pinned(global)?;
    // Asked before the settings are read: some versions write them on --version.
    let version = if asked.places.iter().any(|place| place.part.what() == What::Hooks) {
        version(client, &machine)
    } else {
        None
    };
    // Anyone on the project may read its files with any version.
    let shared = asked
        .project
        .is_some()
        .then_some(install::ASSUMED_CLAUDE_CODE)
        .filter(|_| client == Client::ClaudeCode);
    let written = version.map(|own| shared.map_or(own, |shared| own.min(shared)));
    let caller = Caller {
        vault,
        version: written,
        ..install::caller(client, &own, found.as_deref(), asked.project.is_some())
    };
    let changes =
        install::connecting(&asked.places, &caller, asked.project.as_deref(), &asked.records)
            .map_err(troubled)?;
    let plan = plan(global, &asked, &caller, &changes)?;
    let any = changes.iter().any(Change::is_any) || plan.new_vault.is_some();
    show_plan(&changes, plan.new_vault.as_deref(), &install.how, out)?;
    let Some(done) = agreed(any, &install.how, "Write this?", out)? else { return Ok(()) };
    let mut notes = plan.notes;
    if done && let Some(folder) = &plan.new_vault {
        // Created before the settings are written: a client without a vault would fail.
        notes.extend(care::make_vault(global, Some(folder), None).await?.notes);
    }
    let backups = write(&asked, &changes, done, out)?;
    if out.is_json() {
        let told: Vec<Value> = changes
            .iter()
            .zip(&backups)
            .map(|(change, backup)| told(change, backup.as_deref()))
            .collect();
        return out.json(&json!({
            "client": client.word(),
            "version": version.map(|version| version.to_string()),
            "project": asked.project,
            "new_vault": plan.new_vault,
            "dry_run": install.how.dry_run,
            "done": done,
            "changes": told,
            "notes": notes,
        }));
    }
    let name = client.name();
    match (any, done) {
        (false, _) => out.line(format!("{name} is already connected; nothing to do."))?,
        (true, false) => out.say(format!("{DIM}Nothing was written.{DIM:#}")),
        (true, true) => out.line(format!("{GREEN}{name} is connected.{GREEN:#}"))?,
    }
    tell_backups(&backups, out);
    for note in notes {
        out.say(note);
    }
    if done {
        tell_next(&asked, &plan.memory, out);
    }
    Ok(())
}

fn plan(global: &Global, asked: &Asked, caller: &Caller, changes: &[Change]) -> Result<Plan> {
    let mut plan = Plan::default();
    if asked.project.is_some()
        && (Path::new(&caller.command).is_absolute() || caller.vault.is_some())
    {
        plan.notes.push("These files belong to the project but name a path of this machine; it differs on other machines.".to_owned());
    }
    for change in changes.iter().filter(|change| change.is_in_vain()) {
        plan.notes.push(format!(
            "{} has `disableAllHooks`, so no hook runs until you remove it.",
            change.place.path.display()
        ));
    }
    if asked.places.iter().any(|place| place.part.what() == What::Hooks) {
        plan.notes.extend(version_note(asked.client, caller.version, asked.project.is_some()));
    }
    let unbound = changes.iter().any(|change| change.vault.is_none());
    let bound_to = changes.iter().find_map(|change| change.vault.clone());
    if unbound && wire::address(&global.named())?.is_some() {
        plan.notes.push(format!(
            "Memory is in a database here, which these files do not name: set {}_FILE and ICECORE_SPACE where the client is started too.",
            wire::STORE
        ));
        plan.memory = "your database".to_owned();
    } else if unbound {
        plan.new_vault = wire::missing_own_vault()?;
        plan.memory = wire::own_vault()?.display().to_string();
    } else {
        plan.memory = bound_to.unwrap_or_default();
    }
    Ok(plan)
}

/// `icecore uninstall`
pub fn uninstall(uninstall: &Uninstall, out: &mut Out) -> Result<()> {
    let machine = machine()?;
    let asked = asked(uninstall.client, &uninstall.how, &machine)?;
    let changes = install::disconnecting(&asked.places, asked.project.as_deref(), &asked.records)
        .map_err(troubled)?;
    let any = changes.iter().any(Change::is_any);
    show_plan(&changes, None, &uninstall.how, out)?;
    let Some(done) = agreed(any, &uninstall.how, "Remove this?", out)? else { return Ok(()) };
    // Even without a change the backup records are removed.
    let backups = write(&asked, &changes, !uninstall.how.dry_run, out)?;
    if out.is_json() {
        let told: Vec<Value> = changes
            .iter()
            .zip(&backups)
            .map(|(change, backup)| told(change, backup.as_deref()))
            .collect();
        let (client, dry_run) = (asked.client.word(), uninstall.how.dry_run);
        let notes: [&str; 0] = [];
        return out.json(
            &json!({ "client": client, "project": asked.project, "dry_run": dry_run, "done": done, "changes": told, "notes": notes }),
        );
    }
    let name = asked.client.name();
    match (any, done) {
        (false, _) => out.line(format!("The settings of {name} do not mention icecore."))?,
        (true, false) => out.say(format!("{DIM}Nothing was written.{DIM:#}")),
        (true, true) => {
            out.line(format!("{GREEN}icecore is removed from the settings of {name}.{GREEN:#}"))?;
            out.say(format!("{DIM}Your memory stays where it is.{DIM:#}"));
        }
    }
    Ok(())
}

/// Shows everything that would be done, unless both --quiet and --yes are given.
fn show_plan(changes: &[Change], new_vault: Option<&Path>, how: &How, out: &mut Out) -> Result<()> {
    if out.is_json() || out.is_quiet() && how.yes {
        return Ok(());
    }
    for change in changes.iter().filter(|change| change.is_any()) {
        show(change, out)?;
    }
    if let Some(folder) = new_vault {
        out.line(format!(
            "There is no vault yet; a new one in {BOLD}{}{BOLD:#} will hold your memory.",
            folder.display()
        ))?;
    }
    Ok(())
}

/// Whether to apply the change: asks on a terminal. `None` if the answer is no.
fn agreed(any: bool, how: &How, question: &str, out: &mut Out) -> Result<Option<bool>> {
    if !any || how.dry_run {
        return Ok(Some(false));
    }
    if how.yes {
        return Ok(Some(true));
    }
    if out.is_json() || !out.can_ask() {
        return Err(usage(
            "not a terminal; pass --yes to apply this change, or --dry-run to see it",
        ));
    }
    out.flush()?;
    if out.ask(question)? {
        return Ok(Some(true));
    }
    out.say("Nothing was written.");
    Ok(None)
}

/// Writes the changes and returns the paths of the backups.
fn write(
    asked: &Asked,
    changes: &[Change],
    done: bool,
    out: &mut Out,
) -> Result<Vec<Option<PathBuf>>> {
    out.flush()?;
    let backups = changes
        .iter()
        .map(|change| if done { change.backup(&asked.records) } else { None })
        .collect();
    if done {
        changes.iter().try_for_each(|change| change.write(&asked.records)).map_err(troubled)?;
    }
    Ok(backups)
}

fn tell_backups(backups: &[Option<PathBuf>], out: &mut Out) {
    for backup in backups.iter().flatten() {
        out.say(format!("{DIM}What was there is kept in {}{DIM:#}", backup.display()));
    }
}

/// Tells what happens from now on, where to see it, and how to undo it.
fn tell_next(asked: &Asked, memory: &str, out: &mut Out) {
    let client = asked.client;
    out.say("");
    out.say(format!("Next:  {CYAN}{}{CYAN:#}", client.next()));
    if asked.places.iter().any(|place| place.part.what() == What::Hooks) {
        out.say(format!("  From then on your prompts and its answers are kept in {memory}; secrets are replaced first."));
        out.say(
            "  A session is summarized when it ends; days, weeks and months when they are over.",
        );
        out.say(format!(
            "  {CYAN}icecore hook log{CYAN:#} shows what a session was given and why; {CYAN}icecore status{CYAN:#} what there is."
        ));
        out.say(format!("  {CYAN}icecore pause{CYAN:#} stops capturing for a while."));
    } else {
        out.say(format!("  Its model can then search {memory} and record statements there. Nothing is captured automatically."));
    }
    let project = if asked.project.is_some() { " --project" } else { "" };
    out.say(format!(
        "  {CYAN}icecore uninstall {}{project}{CYAN:#} undoes this; your memory stays.",
        client.word()
    ));
}

fn difference(change: &Change) -> String {
    let named = |text: Option<&str>, file: &Path| {
        text.map_or_else(|| "/dev/null".to_owned(), |_| file.display().to_string())
    };
    let (old, new) = (change.text.as_deref(), change.after.as_deref());
    let file = &change.target;
    let shown = |text: Option<&str>| text.unwrap_or_default().replace("\r\n", "\n");
    let diff = artifact::diff(&shown(old), &shown(new), &named(old, file), &named(new, file));
    // Settings hold other programs' keys, and printed diffs end up in logs.
    secrets::redact_for_display(&diff)
}

fn show(change: &Change, out: &mut Out) -> Result<()> {
    if change.target != change.place.path {
        out.say(format!(
            "{DIM}{} is a link to {}{DIM:#}",
            change.place.path.display(),
            change.target.display()
        ));
    }
    let diff = difference(change);
    if diff.is_empty() {
        // Line breaks alone, or an empty file.
        let what = if change.after.is_none() { "is removed" } else { "is restored" };
        return out.line(format!("{} {what}", change.target.display()));
    }
    for line in diff.lines() {
        let line = plain::visible(line);
        match line.as_bytes().first() {
            _ if line.starts_with("+++") || line.starts_with("---") => {
                out.line(format!("{BOLD}{line}{BOLD:#}"))?
            }
            Some(b'+') => out.line(format!("{GREEN}{line}{GREEN:#}"))?,
            Some(b'-') => out.line(format!("{RED}{line}{RED:#}"))?,
            Some(b'@') => out.line(format!("{CYAN}{line}{CYAN:#}"))?,
            _ => out.line(line)?,
        }
    }
    out.line("")
}

fn told(change: &Change, backup: Option<&Path>) -> Value {
    let did = match (&change.text, &change.after) {
        (old, new) if old == new => "nothing",
        (None, _) => "create",
        (_, None) => "remove",
        _ => "change",
    };
    json!({
        "file": change.place.path,
        "target": change.target,
        "what": word(change.place.part.what()),
        "did": did,
        "diff": if change.is_any() { difference(change) } else { String::new() },
        "backup": backup,
    })
}

fn word(what: What) -> &'static str {
    match what {
        What::Hooks => "hooks",
        What::Mcp => "mcp",
    }
}

fn is_here(client: Client, machine: &Machine) -> bool {
    client.folder(machine).exists()
        || client.program().is_some_and(|program| on_path(program).is_some())
}

fn list(machine: &Machine, own: &Path, found: Option<&Path>, out: &mut Out) -> Result<()> {
    let all = install::connected(machine, |client| Caller {
        version: version(client, machine),
        ..install::caller(client, own, found, false)
    });
    if out.is_json() {
        let told: Vec<Value> = all
            .iter()
            .map(|(client, places)| {
                let files = places
                    .iter()
                    .map(|one| json!({ "file": one.place.path, "what": word(one.place.part.what()), "state": one.state, "why": one.why }));
                json!({ "client": client.word(), "found": is_here(*client, machine), "files": files.collect::<Vec<_>>() })
            })
            .collect();
        return out.json(&json!({ "clients": told }));
    }
    let mut rows = Vec::new();
    for (client, places) in &all {
        let of = |what: What| match places
            .iter()
            .find(|one| one.place.part.what() == what)
            .map(|one| one.state)
        {
            None => Cell::new(""),
            Some(State::Connected) => Cell::new("connected").fg(comfy_table::Color::Green),
            Some(State::Outdated) => Cell::new("outdated").fg(comfy_table::Color::Yellow),
            Some(State::Absent) => Cell::new("-"),
            Some(State::Refused) => Cell::new("unreadable").fg(comfy_table::Color::Red),
        };
        let here = if is_here(*client, machine) { "found" } else { "not found" };
        rows.push(vec![Cell::new(client.word()), Cell::new(here), of(What::Hooks), of(What::Mcp)]);
    }
    out.table(&["client", "on this machine", "hooks", "mcp"], rows)?;
    for one in all.iter().flat_map(|(_, places)| places) {
        if let Some(why) = &one.why {
            out.warn(format!("{}: {}", one.place.path.display(), plain::one_line(why)));
        }
    }
    for (client, places) in &all {
        if places.iter().any(|one| one.state == State::Outdated) {
            out.say(format!("`icecore install {}` updates {}.", client.word(), client.name()));
        }
    }
    out.say(format!("{DIM}`icecore install CLIENT --dry-run` shows what would change.{DIM:#}"));
    Ok(())
}

/// The connected clients, for `status`.
pub fn connected() -> Vec<String> {
    let Ok(machine) = machine() else { return Vec::new() };
    let caller = |_| Caller { command: "icecore".to_owned(), vault: None, version: None };
    let mut found = Vec::new();
    for (client, places) in install::connected(&machine, caller) {
        let parts: Vec<&str> = places
            .iter()
            .filter(|one| matches!(one.state, State::Connected | State::Outdated))
            .map(|one| word(one.place.part.what()))
            .collect();
        if !parts.is_empty() {
            found.push(format!("{} ({})", client.name(), parts.join(", ")));
        }
    }
    found
}
