//! `install` and `uninstall`: connect a client, and remove icecore from its settings.

use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Args;
use comfy_table::Cell;
use etcetera::BaseStrategy as _;
use icecore_domain::converse::artifact;
use icecore_domain::{layout, sanitize, secrets};
use serde_json::{Value, json};

use super::GlobalArgs;
use super::output::{BOLD, CYAN, DIM, GREEN, Output, RED};
use super::vault;
use crate::bootstrap;
use crate::error::{AppError, Exit};
use crate::install::clients::{
    ClientApp, ClientMachine, IntegrationKind, OperatingSystem, SettingsFile,
};
use crate::install::{
    self, BackupRecords, ConnectionState, InstallError, Invocation, SettingsChange, Version,
};
use crate::store_location::folder_required;

#[derive(Debug, Args)]
pub struct InstallArgs {
    /// The client; without it, the clients of this machine are listed
    client: Option<ClientApp>,
    #[command(flatten)]
    how: InstallOptions,
}

#[derive(Debug, Args)]
pub struct UninstallArgs {
    /// The client
    client: ClientApp,
    #[command(flatten)]
    how: InstallOptions,
}

#[derive(Debug, Args)]
struct InstallOptions {
    /// The settings of this project instead of your own
    #[arg(long)]
    project: bool,
    /// Only the hooks, or only the MCP server
    #[arg(long, value_name = "WHAT")]
    only: Option<IntegrationKind>,
    /// Show the change and write nothing
    #[arg(long)]
    dry_run: bool,
    /// Do not ask
    #[arg(long, short)]
    yes: bool,
}

fn usage_error(message: impl Into<String>) -> anyhow::Error {
    AppError::new(Exit::Usage, message).into()
}

fn install_error(trouble: InstallError) -> anyhow::Error {
    match trouble {
        InstallError::Store(error) => error.into(),
        InstallError::Client(why) => usage_error(why.to_string()),
        refused @ InstallError::Refused { .. } => {
            AppError::new(Exit::Conflict, refused.to_string()).into()
        }
    }
}

/// Reads what decides where clients keep their settings on this machine.
fn detect_machine() -> Result<ClientMachine> {
    let folder =
        |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let system = match std::env::consts::OS {
        "macos" => OperatingSystem::Mac,
        "windows" => OperatingSystem::Windows,
        _ => OperatingSystem::Linux,
    };
    let home = etcetera::home_dir().map_err(|_| {
        usage_error("HOME is not set, so the settings of clients cannot be located")
    })?;
    let config =
        folder(if system == OperatingSystem::Windows { "APPDATA" } else { "XDG_CONFIG_HOME" });
    Ok(ClientMachine {
        system,
        home,
        config,
        claude: folder("CLAUDE_CONFIG_DIR"),
        codex: folder("CODEX_HOME"),
    })
}

fn backup_records(machine: &ClientMachine) -> BackupRecords {
    let state = etcetera::choose_base_strategy().ok().and_then(|folders| folders.state_dir());
    BackupRecords::new(
        state
            .unwrap_or_else(|| machine.home.join(".local").join("state"))
            .join("icecore")
            .join("install"),
        &machine.home,
    )
}

/// Where the search path leads to, for a program that can be run.
fn find_on_path(name: impl AsRef<OsStr>) -> Option<PathBuf> {
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
fn oldest_version(client: ClientApp, machine: &ClientMachine) -> Option<Version> {
    client.dialect()?;
    let first = client.program().and_then(find_on_path);
    let others = client.other_programs(machine).into_iter().filter(|place| place.is_file());
    // By the name they are called with: a version manager's program decides by it what to run.
    let mut programs: Vec<PathBuf> = first.into_iter().chain(others).collect();
    programs.dedup_by_key(|place| std::fs::canonicalize(place).ok());
    let versions: Option<Vec<Version>> =
        programs.iter().map(|program| Version::ask(program, &machine.home)).collect();
    versions?.into_iter().min()
}

/// What a person should know about the version that the hooks are written for.
fn version_note(client: ClientApp, version: Option<Version>, is_shared: bool) -> Option<String> {
    let missing: Vec<String> = client
        .dialect()?
        .unsupported_hooks(version)
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
fn own_program() -> Result<(PathBuf, Option<PathBuf>)> {
    let own = std::env::current_exe().map_err(|error| {
        AppError::new(
            Exit::Failure,
            format!("the path of this program cannot be determined: {error}"),
        )
    })?;
    let same = |place: &PathBuf| {
        std::fs::canonicalize(place)
            .is_ok_and(|place| std::fs::canonicalize(&own).is_ok_and(|own| own == place))
    };
    let found = find_on_path("icecore").filter(same);
    Ok((own, found))
}

/// The folder of this project: the nearest above that is a repository, else this one.
fn find_project() -> Result<PathBuf> {
    let here = std::env::current_dir().map_err(|error| {
        AppError::new(Exit::Failure, format!("the current folder cannot be determined: {error}"))
    })?;
    Ok(here.ancestors().find(|folder| folder.join(".git").exists()).unwrap_or(&here).to_owned())
}

/// The vault to bind a client to: an absolute path, and a vault.
fn named_vault(global: &GlobalArgs) -> Result<Option<String>> {
    if global.store.is_some() || global.space_is_meant {
        let instead = "its address does not belong in a client's settings. Set ICECORE_STORE_FILE and ICECORE_SPACE where the client is started, and leave --store and --space out";
        return Err(folder_required("binding a client", instead));
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
        return Err(AppError::new(Exit::NotFound, message).into());
    };
    place.into_os_string().into_string().map(Some).map_err(|_| {
        usage_error("the path of the vault is not UTF-8; settings files cannot express it")
    })
}

struct InstallTarget {
    client: ClientApp,
    project: Option<PathBuf>,
    places: Vec<SettingsFile>,
    records: BackupRecords,
}

/// What an installation does besides changing settings, and its notes.
#[derive(Default)]
struct InstallPlan {
    /// Where to create a vault, because the client would find none.
    new_vault: Option<PathBuf>,
    /// The memory that the client will use, for display.
    memory: String,
    notes: Vec<String>,
}

fn resolve_target(
    client: ClientApp,
    how: &InstallOptions,
    machine: &ClientMachine,
) -> Result<InstallTarget> {
    let project = if how.project { Some(find_project()?) } else { None };
    let mut places = client
        .settings_files(machine, project.as_deref())
        .map_err(|why| install_error(why.into()))?;
    places.retain(|place| how.only.is_none_or(|only| place.part.kind() == only));
    if places.is_empty() {
        return Err(usage_error(format!("{} has no hooks; leave --only out", client.name())));
    }
    Ok(InstallTarget { client, project, places, records: backup_records(machine) })
}

/// `icecore install`
pub async fn install(global: &GlobalArgs, install: &InstallArgs, out: &mut Output) -> Result<()> {
    let machine = detect_machine()?;
    let (own, found) = own_program()?;
    let Some(client) = install.client else {
        return list_clients(&machine, &own, found.as_deref(), out);
    };
    let asked = resolve_target(client, &install.how, &machine)?;
    let vault = named_vault(global)?;
    // Asked before the settings are read: some versions write them on --version.
    let version = if asked.places.iter().any(|place| place.part.kind() == IntegrationKind::Hooks) {
        oldest_version(client, &machine)
    } else {
        None
    };
    // Anyone on the project may read its files with any version.
    let shared = asked
        .project
        .is_some()
        .then_some(install::ASSUMED_CLAUDE_CODE)
        .filter(|_| client == ClientApp::ClaudeCode);
    let written = version.map(|own| shared.map_or(own, |shared| own.min(shared)));
    let caller = Invocation {
        vault,
        version: written,
        ..install::invocation_for(client, &own, found.as_deref(), asked.project.is_some())
    };
    let changes =
        install::plan_connect(&asked.places, &caller, asked.project.as_deref(), &asked.records)
            .map_err(install_error)?;
    let plan = plan_install(global, &asked, &caller, &changes)?;
    let any = changes.iter().any(SettingsChange::has_effect) || plan.new_vault.is_some();
    show_plan(&changes, plan.new_vault.as_deref(), &install.how, out)?;
    let Some(done) = confirm_changes(any, &install.how, "Write this?", out)? else { return Ok(()) };
    let mut notes = plan.notes;
    if done && let Some(folder) = &plan.new_vault {
        // Created before the settings are written: a client without a vault would fail.
        notes.extend(vault::create_vault(global, Some(folder), None).await?.notes);
    }
    let backups = write_changes(&asked, &changes, done, out)?;
    if out.is_json() {
        let told: Vec<Value> = changes
            .iter()
            .zip(&backups)
            .map(|(change, backup)| change_json(change, backup.as_deref()))
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
        (true, false) => out.info(format!("{DIM}Nothing was written.{DIM:#}")),
        (true, true) => out.line(format!("{GREEN}{name} is connected.{GREEN:#}"))?,
    }
    print_backups(&backups, out);
    for note in notes {
        out.info(note);
    }
    if done {
        print_next_steps(&asked, &plan.memory, out);
    }
    Ok(())
}

fn plan_install(
    global: &GlobalArgs,
    asked: &InstallTarget,
    caller: &Invocation,
    changes: &[SettingsChange],
) -> Result<InstallPlan> {
    let mut plan = InstallPlan::default();
    if asked.project.is_some()
        && (Path::new(&caller.command).is_absolute() || caller.vault.is_some())
    {
        plan.notes.push("These files belong to the project but name a path of this machine; it differs on other machines.".to_owned());
    }
    for change in changes.iter().filter(|change| change.is_disabled_by_client()) {
        plan.notes.push(format!(
            "{} has `disableAllHooks`, so no hook runs until you remove it.",
            change.place.path.display()
        ));
    }
    if asked.places.iter().any(|place| place.part.kind() == IntegrationKind::Hooks) {
        plan.notes.extend(version_note(asked.client, caller.version, asked.project.is_some()));
    }
    let unbound = changes.iter().any(|change| change.vault.is_none());
    let bound_to = changes.iter().find_map(|change| change.vault.clone());
    if unbound && bootstrap::database_address(&global.store_selection())?.is_some() {
        plan.notes.push(format!(
            "Memory is in a database here, which these files do not name: set {}_FILE and ICECORE_SPACE where the client is started too.",
            bootstrap::STORE_VAR
        ));
        plan.memory = "your database".to_owned();
    } else if unbound {
        plan.new_vault = bootstrap::missing_own_vault()?;
        plan.memory = bootstrap::own_vault_path()?.display().to_string();
    } else {
        plan.memory = bound_to.unwrap_or_default();
    }
    Ok(plan)
}

/// `icecore uninstall`
pub fn uninstall(uninstall: &UninstallArgs, out: &mut Output) -> Result<()> {
    let machine = detect_machine()?;
    let asked = resolve_target(uninstall.client, &uninstall.how, &machine)?;
    let changes = install::plan_disconnect(&asked.places, asked.project.as_deref(), &asked.records)
        .map_err(install_error)?;
    let any = changes.iter().any(SettingsChange::has_effect);
    show_plan(&changes, None, &uninstall.how, out)?;
    let Some(done) = confirm_changes(any, &uninstall.how, "Remove this?", out)? else {
        return Ok(());
    };
    // Even without a change the backup records are removed.
    let backups = write_changes(&asked, &changes, !uninstall.how.dry_run, out)?;
    if out.is_json() {
        let told: Vec<Value> = changes
            .iter()
            .zip(&backups)
            .map(|(change, backup)| change_json(change, backup.as_deref()))
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
        (true, false) => out.info(format!("{DIM}Nothing was written.{DIM:#}")),
        (true, true) => {
            out.line(format!("{GREEN}icecore is removed from the settings of {name}.{GREEN:#}"))?;
            out.info(format!("{DIM}Your memory stays where it is.{DIM:#}"));
        }
    }
    Ok(())
}

/// Shows everything that would be done, unless both --quiet and --yes are given.
fn show_plan(
    changes: &[SettingsChange],
    new_vault: Option<&Path>,
    how: &InstallOptions,
    out: &mut Output,
) -> Result<()> {
    if out.is_json() || out.is_quiet() && how.yes {
        return Ok(());
    }
    for change in changes.iter().filter(|change| change.has_effect()) {
        print_change(change, out)?;
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
fn confirm_changes(
    any: bool,
    how: &InstallOptions,
    question: &str,
    out: &mut Output,
) -> Result<Option<bool>> {
    if !any || how.dry_run {
        return Ok(Some(false));
    }
    if how.yes {
        return Ok(Some(true));
    }
    if out.is_json() || !out.can_ask() {
        return Err(usage_error(
            "not a terminal; pass --yes to apply this change, or --dry-run to see it",
        ));
    }
    out.flush()?;
    if out.ask(question)? {
        return Ok(Some(true));
    }
    out.info("Nothing was written.");
    Ok(None)
}

/// Writes the changes and returns the paths of the backups.
fn write_changes(
    asked: &InstallTarget,
    changes: &[SettingsChange],
    done: bool,
    out: &mut Output,
) -> Result<Vec<Option<PathBuf>>> {
    out.flush()?;
    let backups = changes
        .iter()
        .map(|change| if done { change.backup_path(&asked.records) } else { None })
        .collect();
    if done {
        changes
            .iter()
            .try_for_each(|change| change.write(&asked.records))
            .map_err(install_error)?;
    }
    Ok(backups)
}

fn print_backups(backups: &[Option<PathBuf>], out: &mut Output) {
    for backup in backups.iter().flatten() {
        out.info(format!("{DIM}The previous file is kept in {}{DIM:#}", backup.display()));
    }
}

/// Tells what happens from now on, where to see it, and how to undo it.
fn print_next_steps(asked: &InstallTarget, memory: &str, out: &mut Output) {
    let client = asked.client;
    out.info("");
    out.info(format!("Next:  {CYAN}{}{CYAN:#}", client.next_step()));
    if asked.places.iter().any(|place| place.part.kind() == IntegrationKind::Hooks) {
        out.info(format!("  From then on your prompts and its answers are kept in {memory}; secrets are replaced first."));
        out.info(
            "  A session is summarized when it ends; days, weeks and months when they are over.",
        );
        out.info(format!(
            "  {CYAN}icecore hook log{CYAN:#} shows what was injected into a session and why, {CYAN}icecore status{CYAN:#} what is stored."
        ));
        out.info(format!("  {CYAN}icecore pause{CYAN:#} stops capturing for a while."));
    } else {
        out.info(format!("  Its model can then search {memory} and record statements there. Nothing is captured automatically."));
    }
    let project = if asked.project.is_some() { " --project" } else { "" };
    out.info(format!(
        "  {CYAN}icecore uninstall {}{project}{CYAN:#} undoes this; your memory stays.",
        client.word()
    ));
}

fn change_diff(change: &SettingsChange) -> String {
    let named = |text: Option<&str>, file: &Path| {
        text.map_or_else(|| "/dev/null".to_owned(), |_| file.display().to_string())
    };
    let (old, new) = (change.text.as_deref(), change.after.as_deref());
    let file = &change.target;
    let shown = |text: Option<&str>| text.unwrap_or_default().replace("\r\n", "\n");
    let diff =
        artifact::unified_diff(&shown(old), &shown(new), &named(old, file), &named(new, file));
    // Settings hold other programs' keys, and printed diffs end up in logs.
    secrets::redact_for_display(&diff)
}

fn print_change(change: &SettingsChange, out: &mut Output) -> Result<()> {
    if change.target != change.place.path {
        out.info(format!(
            "{DIM}{} is a link to {}{DIM:#}",
            change.place.path.display(),
            change.target.display()
        ));
    }
    let diff = change_diff(change);
    if diff.is_empty() {
        // Line breaks alone, or an empty file.
        let what = if change.after.is_none() { "is removed" } else { "is restored" };
        return out.line(format!("{} {what}", change.target.display()));
    }
    for line in diff.lines() {
        let line = sanitize::escape_for_terminal(line);
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

fn change_json(change: &SettingsChange, backup: Option<&Path>) -> Value {
    let did = match (&change.text, &change.after) {
        (old, new) if old == new => "nothing",
        (None, _) => "create",
        (_, None) => "remove",
        _ => "change",
    };
    json!({
        "file": change.place.path,
        "target": change.target,
        "what": kind_word(change.place.part.kind()),
        "did": did,
        "diff": if change.has_effect() { change_diff(change) } else { String::new() },
        "backup": backup,
    })
}

fn kind_word(what: IntegrationKind) -> &'static str {
    match what {
        IntegrationKind::Hooks => "hooks",
        IntegrationKind::Mcp => "mcp",
    }
}

fn is_installed(client: ClientApp, machine: &ClientMachine) -> bool {
    client.folder(machine).exists()
        || client.program().is_some_and(|program| find_on_path(program).is_some())
}

fn list_clients(
    machine: &ClientMachine,
    own: &Path,
    found: Option<&Path>,
    out: &mut Output,
) -> Result<()> {
    let all = install::client_states(machine, |client| Invocation {
        version: oldest_version(client, machine),
        ..install::invocation_for(client, own, found, false)
    });
    if out.is_json() {
        let told: Vec<Value> = all
            .iter()
            .map(|(client, places)| {
                let files = places
                    .iter()
                    .map(|one| json!({ "file": one.place.path, "what": kind_word(one.place.part.kind()), "state": one.state, "why": one.why }));
                json!({ "client": client.word(), "found": is_installed(*client, machine), "files": files.collect::<Vec<_>>() })
            })
            .collect();
        return out.json(&json!({ "clients": told }));
    }
    let mut rows = Vec::new();
    for (client, places) in &all {
        let of = |what: IntegrationKind| match places
            .iter()
            .find(|one| one.place.part.kind() == what)
            .map(|one| one.state)
        {
            None => Cell::new(""),
            Some(ConnectionState::Connected) => {
                Cell::new("connected").fg(comfy_table::Color::Green)
            }
            Some(ConnectionState::Outdated) => Cell::new("outdated").fg(comfy_table::Color::Yellow),
            Some(ConnectionState::Absent) => Cell::new("-"),
            Some(ConnectionState::Refused) => Cell::new("unreadable").fg(comfy_table::Color::Red),
        };
        let here = if is_installed(*client, machine) { "found" } else { "not found" };
        rows.push(vec![
            Cell::new(client.word()),
            Cell::new(here),
            of(IntegrationKind::Hooks),
            of(IntegrationKind::Mcp),
        ]);
    }
    out.table(&["client", "on this machine", "hooks", "mcp"], rows)?;
    for one in all.iter().flat_map(|(_, places)| places) {
        if let Some(why) = &one.why {
            out.warn(format!("{}: {}", one.place.path.display(), sanitize::one_line(why)));
        }
    }
    for (client, places) in &all {
        if places.iter().any(|one| one.state == ConnectionState::Outdated) {
            out.info(format!("`icecore install {}` updates {}.", client.word(), client.name()));
        }
    }
    out.info(format!("{DIM}`icecore install CLIENT --dry-run` shows what would change.{DIM:#}"));
    Ok(())
}

/// The connected clients, for `status`.
pub fn connected_clients() -> Vec<String> {
    let Ok(machine) = detect_machine() else { return Vec::new() };
    let caller = |_| Invocation { command: "icecore".to_owned(), vault: None, version: None };
    let mut found = Vec::new();
    for (client, places) in install::client_states(&machine, caller) {
        let parts: Vec<&str> = places
            .iter()
            .filter(|one| {
                matches!(one.state, ConnectionState::Connected | ConnectionState::Outdated)
            })
            .map(|one| kind_word(one.place.part.kind()))
            .collect();
        if !parts.is_empty() {
            found.push(format!("{} ({})", client.name(), parts.join(", ")));
        }
    }
    found
}
