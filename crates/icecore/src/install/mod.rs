//! Connecting clients: `icecore install` and `icecore uninstall`.
//!
//! The content of a settings file is a pure function from text to text (`hooks`, `servers`,
//! `codex`, on top of `json`); `clients` knows where the files are. Changes of all files of a
//! client are planned before any is written. Uninstalling restores a file byte for byte if nothing
//! else changed since, and otherwise removes only our entries.

pub mod clients;
mod codex;
mod hooks;
mod json;
mod servers;
#[cfg(test)]
mod tests;
mod version;

use std::path::{Path, PathBuf};

use icecore_domain::hash::Hash;
use icecore_domain::page;
use icecore_store::foreign_files;
use serde::{Deserialize, Serialize};

use self::clients::{ClientApp, ClientMachine, SettingsFile};
pub use self::hooks::ASSUMED_CLAUDE_CODE;
use self::json::{JsonNode, JsonTree, PathStep, SettingsSyntaxError};
pub use self::version::Version;

/// How a client calls icecore.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invocation {
    /// The program, by name or path.
    pub command: String,
    pub vault: Option<String>,
    /// The version of the client, if known: unsupported settings are not written.
    pub version: Option<Version>,
}

/// Why settings were not changed.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    #[error("{0}")]
    Malformed(#[from] SettingsSyntaxError),
    #[error("it is not UTF-8 from byte {0} on")]
    NotText(usize),
    #[error("{0} is not {1}")]
    Unlike(&'static str, &'static str),
    #[error(
        "it has `{0}` at its top, and Codex reads no hooks from a file that has anything but `description` and `hooks` there"
    )]
    Unknown(String),
    #[error("it has two fields named `{0}`; leave only one")]
    Twice(String),
    #[error(
        "it has a server named `icecore` that does not start `icecore mcp`; rename or remove that server"
    )]
    ForeignServer,
    /// A project must not redirect writes to files outside of it.
    #[error("it is a link that leads out of the project, to {}", .0.display())]
    Outside(PathBuf),
    #[error("{0} has no settings of a project; leave --project out")]
    NoProject(&'static str),
}

/// Requires that a field occurs at most once.
fn require_unique(node: &JsonNode, name: &str) -> Result<(), SettingsError> {
    let many = node.members().iter().filter(|member| member.name == name).count();
    if many > 1 { Err(SettingsError::Twice(name.to_owned())) } else { Ok(()) }
}

/// Settings with this value, after any comments of the text.
fn with_root_value(text: &str, tree: &JsonTree) -> String {
    let whole = json::render_document(tree);
    let whole = if text.contains("\r\n") { whole.replace('\n', "\r\n") } else { whole };
    match text.trim_start_matches('\u{FEFF}').trim() {
        "" => format!("{}{whole}", if text.starts_with('\u{FEFF}') { "\u{FEFF}" } else { "" }),
        // The text has comments only.
        _ => format!(
            "{}{}{whole}",
            text.trim_end(),
            if text.contains("\r\n") { "\r\n" } else { "\n" }
        ),
    }
}

/// Sets these fields of the object at `way`; other fields stay.
fn with_fields(
    text: &str,
    way: &[PathStep<'_>],
    wanted: &[(&'static str, JsonTree)],
) -> Result<String, SettingsError> {
    let mut text = text.to_owned();
    for (name, tree) in wanted {
        let field: Vec<PathStep<'_>> = way.iter().copied().chain([PathStep::Field(name)]).collect();
        let has = json::parse(&text)?.is_some_and(|root| json::find(&root, &field).is_some());
        text = if has {
            json::replace_value(&text, &field, tree)?
        } else {
            json::insert_value(&text, way, Some(name), tree)?
        };
    }
    Ok(text)
}

/// The record of a changed file, sufficient to restore it.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct BackupRecord {
    file: PathBuf,
    /// Whether the file existed.
    was_there: bool,
    /// The SHA-256 of the written text.
    wrote: String,
    /// Folders created for it, outermost first.
    made: Vec<PathBuf>,
}

/// The folder with the backups of changed settings.
#[derive(Debug, Clone)]
pub struct BackupRecords {
    folder: PathBuf,
    home: PathBuf,
}

/// A record with the former text of the file.
struct KnownBackup {
    record: BackupRecord,
    before: Option<String>,
}

impl BackupRecords {
    /// The records in this folder of the user's home directory.
    pub fn new(folder: PathBuf, home: &Path) -> Self {
        Self { folder, home: home.to_owned() }
    }

    fn paths(&self, target: &Path) -> (PathBuf, PathBuf) {
        let name = page::slug(&target.file_name().unwrap_or_default().to_string_lossy());
        let name =
            format!("{name}-{}", Hash::of(target.as_os_str().as_encoded_bytes()).short_hex());
        (self.folder.join(format!("{name}.json")), self.folder.join(format!("{name}.before")))
    }

    fn load(&self, target: &Path) -> Option<KnownBackup> {
        let (record, before) = self.paths(target);
        let record: BackupRecord =
            serde_json::from_slice(&foreign_files::read_file(&record).ok()??).ok()?;
        if record.file != target {
            return None;
        }
        let before = match record.was_there {
            true => Some(String::from_utf8(foreign_files::read_file(&before).ok()??).ok()?),
            false => None,
        };
        Some(KnownBackup { record, before })
    }

    /// Parent folders of a file that were created for it or for another file.
    fn created_folders_above(&self, target: &Path) -> Vec<PathBuf> {
        let Ok(entries) = std::fs::read_dir(&self.folder) else { return Vec::new() };
        let record = |path: PathBuf| -> Option<BackupRecord> {
            serde_json::from_slice(&foreign_files::read_file(&path).ok()??).ok()
        };
        let records = entries
            .flatten()
            .map(|entry| entry.path())
            .filter(|path| path.extension().is_some_and(|ending| ending == "json"));
        let mut made: Vec<PathBuf> =
            records.filter_map(record).flat_map(|record| record.made).collect();
        made.retain(|folder| target.starts_with(folder));
        made.sort();
        made.dedup();
        made
    }

    fn save(&self, record: &BackupRecord, before: Option<&str>) -> icecore_store::Result<()> {
        let (place, backup) = self.paths(&record.file);
        let text = serde_json::to_string_pretty(record).unwrap_or_default() + "\n";
        // The backup first: a record without its backup would be trusted.
        for (place, bytes) in before
            .map(|before| (&backup, before.as_bytes()))
            .into_iter()
            .chain([(&place, text.as_bytes())])
        {
            foreign_files::replace_file(
                place,
                bytes,
                0o600,
                foreign_files::read_file(place)?.as_deref(),
            )?;
        }
        Ok(())
    }

    fn remove(&self, target: &Path) -> icecore_store::Result<()> {
        let (place, backup) = self.paths(target);
        for place in [place, backup] {
            if let Some(bytes) = foreign_files::read_file(&place)? {
                foreign_files::remove_file(&place, &bytes)?;
            }
        }
        // Empty folders are removed as well.
        let mut folders: Vec<PathBuf> = self
            .folder
            .ancestors()
            .take_while(|folder| folder.starts_with(&self.home) && **folder != self.home)
            .map(Path::to_owned)
            .collect();
        folders.reverse();
        foreign_files::remove_empty_folders(&folders);
        Ok(())
    }
}

/// A planned change of one file.
#[derive(Debug)]
pub struct SettingsChange {
    pub place: SettingsFile,
    /// The file itself, with links resolved.
    pub target: PathBuf,
    /// Its current text.
    pub text: Option<String>,
    /// Its new text.
    pub after: Option<String>,
    /// The text to restore on uninstall.
    before: Option<String>,
    made: Vec<PathBuf>,
    /// The mode of a new file.
    mode: u32,
    leaves: bool,
    /// The vault that the client is bound to; the user's own if `None`.
    pub vault: Option<String>,
}

/// Whether a settings file connects the client to icecore.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ConnectionState {
    Connected,
    /// It names an older version or another path of the program.
    Outdated,
    Absent,
    Refused,
}

/// Why a change failed, with the file.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    #[error("{}: {why}. Nothing was written", file.display())]
    Refused { file: PathBuf, why: SettingsError },
    #[error(transparent)]
    Store(#[from] icecore_store::Error),
    #[error(transparent)]
    Client(#[from] SettingsError),
}

fn read_settings(file: &Path) -> Result<(PathBuf, Option<String>), InstallError> {
    let target = foreign_files::resolve_links(file)?;
    let text = match foreign_files::read_file(&target)?.map(String::from_utf8) {
        Some(Err(error)) => {
            let why = SettingsError::NotText(error.utf8_error().valid_up_to() + 1);
            return Err(InstallError::Refused { file: file.to_owned(), why });
        }
        text => text.transpose().unwrap_or_default(),
    };
    Ok((target, text))
}

/// The text of a file without icecore.
fn disconnected_text(
    place: &SettingsFile,
    text: Option<&str>,
    known: Option<&KnownBackup>,
) -> Result<Option<String>, SettingsError> {
    let Some(text) = text else { return Ok(None) };
    if let Some(known) =
        known.filter(|known| known.record.wrote == Hash::of(text.as_bytes()).to_string())
    {
        return Ok(known.before.clone());
    }
    let left = place.part.disconnect(text, known.and_then(|known| known.before.as_deref()))?;
    let ours = known.is_some_and(|known| !known.record.was_there);
    Ok(Some(left).filter(|left| left == text || !ours || !place.part.is_blank(left)))
}

/// Reads a file with links resolved; a project's file must be inside the project.
fn read_settings_within(
    file: &Path,
    project: Option<&Path>,
) -> Result<(PathBuf, Option<String>), InstallError> {
    let (target, text) = read_settings(file)?;
    let inside = |project: &Path| {
        std::fs::canonicalize(project).is_ok_and(|project| target.starts_with(project))
    };
    if project.is_some_and(|project| !inside(project)) {
        return Err(InstallError::Refused {
            file: file.to_owned(),
            why: SettingsError::Outside(target),
        });
    }
    Ok((target, text))
}

/// Plans the connection of these files; nothing is written yet.
pub fn plan_connect(
    places: &[SettingsFile],
    caller: &Invocation,
    project: Option<&Path>,
    records: &BackupRecords,
) -> Result<Vec<SettingsChange>, InstallError> {
    let mode = if project.is_some() { 0o644 } else { 0o600 };
    let change = |place: &SettingsFile| {
        let refused = |why| InstallError::Refused { file: place.path.clone(), why };
        let (target, text) = read_settings_within(&place.path, project)?;
        let known = records.load(&target);
        let before = disconnected_text(place, text.as_deref(), known.as_ref()).map_err(refused)?;
        // A client stays bound to its vault unless another one is given.
        let vault = caller.vault.clone().or_else(|| place.part.bound_vault(text.as_deref()?));
        let caller = Invocation { vault, ..caller.clone() };
        let after =
            place.part.connect(text.as_deref().unwrap_or_default(), &caller).map_err(refused)?;
        let made = known.map(|known| known.record.made).unwrap_or_default();
        // A client without support for hooks gets no file for them.
        let after = Some(after).filter(|after| text.is_some() || !after.is_empty());
        Ok(SettingsChange {
            place: place.clone(),
            target,
            text,
            after,
            before,
            made,
            mode,
            leaves: false,
            vault: caller.vault,
        })
    };
    places.iter().map(change).collect()
}

/// Plans the removal of icecore from these files; nothing is written yet.
pub fn plan_disconnect(
    places: &[SettingsFile],
    project: Option<&Path>,
    records: &BackupRecords,
) -> Result<Vec<SettingsChange>, InstallError> {
    let change = |place: &SettingsFile| {
        let (target, text) = read_settings_within(&place.path, project)?;
        let known = records.load(&target);
        let after = disconnected_text(place, text.as_deref(), known.as_ref())
            .map_err(|why| InstallError::Refused { file: place.path.clone(), why })?;
        let made = known.map(|known| known.record.made).unwrap_or_default();
        let place = place.clone();
        Ok(SettingsChange {
            place,
            target,
            text,
            after: after.clone(),
            before: after,
            made,
            mode: 0o600,
            leaves: true,
            vault: None,
        })
    };
    places.iter().map(change).collect()
}

impl SettingsChange {
    /// Whether the text changes.
    pub fn has_effect(&self) -> bool {
        self.text != self.after
    }

    /// Whether the client has disabled all hooks.
    pub fn is_disabled_by_client(&self) -> bool {
        matches!(self.place.part, clients::SettingsPart::Hooks(_))
            && self.text.as_deref().is_some_and(hooks::are_disabled)
    }

    /// The path of the backup.
    pub fn backup_path(&self, records: &BackupRecords) -> Option<PathBuf> {
        (!self.leaves && self.has_effect() && self.before.is_some())
            .then(|| records.paths(&self.target).1)
    }

    /// Writes the change.
    pub fn write(&self, records: &BackupRecords) -> Result<(), InstallError> {
        let (old, new) = (self.text.as_deref(), self.after.as_deref());
        if self.leaves {
            match (old, new) {
                (Some(old), Some(new)) if old != new => drop(foreign_files::replace_file(
                    &self.target,
                    new.as_bytes(),
                    self.mode,
                    Some(old.as_bytes()),
                )?),
                (Some(old), None) => {
                    foreign_files::remove_file(&self.target, old.as_bytes())?;
                    foreign_files::remove_empty_folders(&self.made);
                }
                (None, _) => foreign_files::remove_empty_folders(&self.made),
                _ => {}
            }
            return Ok(records.remove(&self.target)?);
        }
        let Some(new) = new.filter(|_| self.has_effect()) else { return Ok(()) };
        let mut record = BackupRecord {
            file: self.target.clone(),
            was_there: self.before.is_some(),
            wrote: Hash::of(new.as_bytes()).to_string(),
            made: self.made.clone(),
        };
        // The record first, so that every later state can be undone.
        records.save(&record, self.before.as_deref())?;
        let made = foreign_files::replace_file(
            &self.target,
            new.as_bytes(),
            self.mode,
            old.map(str::as_bytes),
        )?;
        // A folder shared with another file is removed with the last of them.
        let all: std::collections::BTreeSet<PathBuf> = made
            .into_iter()
            .chain(records.created_folders_above(&self.target))
            .chain(record.made.iter().cloned())
            .collect();
        if !all.iter().eq(&record.made) {
            record.made = all.into_iter().collect();
            records.save(&record, self.before.as_deref())?;
        }
        Ok(())
    }
}

/// A settings file and its connection state.
#[derive(Debug)]
pub struct ClientFileState {
    pub place: SettingsFile,
    pub state: ConnectionState,
    /// Why it cannot be changed, if it cannot.
    pub why: Option<String>,
}

fn connection_state(
    place: &SettingsFile,
    caller: &Invocation,
) -> (ConnectionState, Option<String>) {
    let look = || -> Result<ConnectionState, InstallError> {
        let refused = |why| InstallError::Refused { file: place.path.clone(), why };
        let (_, text) = read_settings(&place.path)?;
        let Some(text) = text else { return Ok(ConnectionState::Absent) };
        let vault = place.part.bound_vault(&text);
        let wanted =
            place.part.connect(&text, &Invocation { vault, ..caller.clone() }).map_err(refused)?;
        if wanted == text {
            return Ok(ConnectionState::Connected);
        }
        Ok(if place.part.disconnect(&text, None).map_err(refused)? == text {
            ConnectionState::Absent
        } else {
            ConnectionState::Outdated
        })
    };
    match look() {
        Ok(state) => (state, None),
        Err(InstallError::Refused { why, .. }) => (ConnectionState::Refused, Some(why.to_string())),
        Err(error) => (ConnectionState::Refused, Some(error.to_string())),
    }
}

/// How a client calls icecore: by name if PATH leads to this program, else by path. `found` is the
/// program that PATH leads to.
pub fn invocation_for(
    client: ClientApp,
    own: &Path,
    found: Option<&Path>,
    shared: bool,
) -> Invocation {
    let by_name = found.is_some() && (!client.is_desktop_app() || shared);
    let command =
        if by_name { "icecore".to_owned() } else { found.unwrap_or(own).display().to_string() };
    Invocation { command, vault: None, version: None }
}

/// The clients of this machine with the states of their files.
pub fn client_states(
    machine: &ClientMachine,
    caller: impl Fn(ClientApp) -> Invocation,
) -> Vec<(ClientApp, Vec<ClientFileState>)> {
    let of = |client: ClientApp| {
        let standing = |place: SettingsFile| {
            let (state, why) = connection_state(&place, &caller(client));
            ClientFileState { place, state, why }
        };
        (
            client,
            client
                .settings_files(machine, None)
                .unwrap_or_default()
                .into_iter()
                .map(standing)
                .collect(),
        )
    };
    ClientApp::ALL.into_iter().map(of).collect()
}
