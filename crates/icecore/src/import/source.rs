//! The sources of an import: files below the named paths, each with its detected format.
//!
//! Links are not followed, and the vault itself is never a source.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use icecore_domain::import::{HEAD_BYTES, ImportFormat, detect_format, list_fields};
use icecore_domain::sanitize;

use super::unpack::{self, ArchiveEntry};
use crate::error::{AppError, Exit};

const MAX_FILES: usize = 1_000_000;
const MAX_FOLDER_DEPTH: usize = 64;

/// How a source is packed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Packing {
    Plain,
    Zstd,
    Zip(ArchiveEntry),
}

/// How a source is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourceLayout {
    /// A line at a time.
    Lines,
    /// An element of a list at a time.
    Elements,
    /// At once, as a note.
    Note,
    /// At once, as what an assistant noted.
    Memory,
}

/// A file, or a part of an archive, to import.
#[derive(Debug, Clone)]
pub struct ImportSource {
    pub path: PathBuf,
    /// Its name relative to the named path, for display and for ids.
    pub name: String,
    /// Its identity across runs.
    pub key: String,
    pub format: ImportFormat,
    pub shape: SourceLayout,
    pub packed: Packing,
    /// The fields that may hold its list.
    pub lists: &'static [&'static str],
    /// Bytes of the file.
    pub size: u64,
    /// When it was last written, in nanoseconds since 1970.
    pub modified: i128,
    /// The project of an assistant's notes.
    pub project: Option<String>,
}

impl ImportSource {
    /// Its size on disk, in bytes.
    pub fn disk_bytes(&self) -> u64 {
        match &self.packed {
            Packing::Zip(entry) => entry.packed,
            _ => self.size,
        }
    }
}

/// The sources found so far.
#[derive(Debug, Default)]
pub struct SourceScan {
    pub sources: Vec<ImportSource>,
    pub skipped: BTreeMap<String, usize>,
    pub complaints: Vec<String>,
    /// Paths that were refused.
    pub refused: Vec<AppError>,
    /// The vault, which is not a source.
    vault: Option<PathBuf>,
}

impl SourceScan {
    /// An empty scan that excludes this vault.
    pub fn for_vault(vault: Option<&Path>) -> Self {
        Self {
            vault: vault.map(|vault| vault.canonicalize().unwrap_or_else(|_| vault.to_owned())),
            ..Self::default()
        }
    }

    fn count_skipped(&mut self, what: &str) {
        *self.skipped.entry(what.to_owned()).or_default() += 1;
    }

    /// Scans a named path.
    pub fn add_path(&mut self, path: &Path, wanted: Option<ImportFormat>) {
        let outcome = match std::fs::metadata(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                Err(AppError::new(Exit::NotFound, format!("{} does not exist", path.display())))
            }
            Err(error) => Err(read_error(path, &error)),
            Ok(found) if found.is_dir() => {
                let root = path.canonicalize().unwrap_or_else(|_| path.to_owned());
                match self.vault.as_ref().is_some_and(|vault| root.starts_with(vault)) {
                    true => Err(AppError::new(
                        Exit::Usage,
                        format!(
                            "{} is inside the vault, so its content is already known",
                            path.display()
                        ),
                    )),
                    false => self.scan_folder(&root, &root, wanted, 0),
                }
            }
            Ok(found) if found.is_file() => {
                let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
                let name = path
                    .file_name()
                    .map_or_else(String::new, |name| name.to_string_lossy().into_owned());
                self.scan_file(&path, name, wanted, true)
            }
            Ok(_) => Err(AppError::new(
                Exit::Usage,
                format!("{} is neither a file nor a folder", path.display()),
            )),
        };
        self.refused.extend(outcome.err());
    }

    fn scan_folder(
        &mut self,
        root: &Path,
        folder: &Path,
        wanted: Option<ImportFormat>,
        depth: usize,
    ) -> Result<(), AppError> {
        if depth > MAX_FOLDER_DEPTH {
            self.complaints
                .push(format!("{} is nested too deeply and was skipped", display_path(folder)));
            return Ok(());
        }
        let read = std::fs::read_dir(folder).map_err(|error| read_error(folder, &error))?;
        let mut entries: Vec<_> = read.flatten().collect();
        entries.sort_by_key(std::fs::DirEntry::file_name);
        for entry in entries {
            let (path, file_name) =
                (entry.path(), entry.file_name().to_string_lossy().into_owned());
            let name =
                path.strip_prefix(root).unwrap_or(&path).to_string_lossy().replace('\\', "/");
            let Ok(kind) = entry.file_type() else {
                self.count_skipped("unreadable file");
                continue;
            };
            if kind.is_symlink() {
                // It may lead anywhere; its target can be named instead.
                self.complaints
                    .push(format!("{} is a link and was not followed", sanitize::one_line(&name)));
            } else if file_name.starts_with('.') {
                self.count_skipped("hidden file or folder");
            } else if kind.is_dir() && self.vault.as_ref() == Some(&path) {
                self.count_skipped("vault, which is this one");
            } else if kind.is_dir() && file_name == "tool-results" {
                self.count_skipped("folder of tool outputs");
            } else if kind.is_dir() {
                if let Err(stop) = self.scan_folder(root, &path, wanted, depth + 1) {
                    self.complaints.push(stop.message);
                }
            } else if kind.is_file() {
                if self.sources.len() >= MAX_FILES {
                    return Err(AppError::new(
                        Exit::Usage,
                        format!(
                            "{} has more than {MAX_FILES} files; name a smaller folder",
                            root.display()
                        ),
                    ));
                }
                if let Err(stop) = self.scan_file(&path, name, wanted, false) {
                    self.complaints.push(stop.message);
                }
            }
        }
        Ok(())
    }

    fn scan_file(
        &mut self,
        path: &Path,
        name: String,
        wanted: Option<ImportFormat>,
        alone: bool,
    ) -> Result<(), AppError> {
        let found = std::fs::metadata(path).map_err(|error| read_error(path, &error))?;
        let modified = found.modified().ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok());
        let modified = modified.map_or(0, |since| i128::try_from(since.as_nanos()).unwrap_or(0));
        let mut head = vec![0; HEAD_BYTES];
        let mut file = File::open(path).map_err(|error| read_error(path, &error))?;
        let read = fill_buffer(&mut file, &mut head).map_err(|error| read_error(path, &error))?;
        head.truncate(read);
        let base = ImportSource {
            path: path.to_owned(),
            key: path.to_string_lossy().into_owned(),
            format: ImportFormat::Jsonl,
            shape: SourceLayout::Lines,
            packed: Packing::Plain,
            lists: &[],
            size: found.len(),
            modified,
            project: None,
            name,
        };
        match head.as_slice() {
            [b'P', b'K', 3 | 5, 4 | 6, ..] => return self.scan_archive(base, wanted, alone),
            [0x28, 0xb5, 0x2f, 0xfd, ..] => {
                let mut unpacked = vec![0; HEAD_BYTES];
                let stream = File::open(path).and_then(unpack::zstd_stream);
                let read = stream
                    .and_then(|mut stream| fill_buffer(&mut stream, &mut unpacked))
                    .map_err(|error| read_error(path, &error))?;
                unpacked.truncate(read);
                let name = base.name.trim_end_matches(".zst").to_owned();
                return self.add_recognized(
                    ImportSource { packed: Packing::Zstd, name, ..base },
                    &unpacked,
                    wanted,
                    alone,
                );
            }
            _ => {}
        }
        if found.len() == 0 {
            self.count_skipped("empty file");
            return Ok(());
        }
        self.add_recognized(base, &head, wanted, alone)
    }

    fn scan_archive(
        &mut self,
        base: ImportSource,
        wanted: Option<ImportFormat>,
        alone: bool,
    ) -> Result<(), AppError> {
        let (mut archive, entries) = unpack::open_archive(&base.path)?;
        let place = display_path(&base.path);
        let mut taken = 0;
        for entry in entries {
            let name = entry.name.rsplit('/').next().unwrap_or(&entry.name).to_ascii_lowercase();
            let ends = |ends: &[&str]| ends.iter().any(|end| name.ends_with(end));
            if ends(&[".zip", ".7z", ".gz", ".zst"]) {
                self.complaints.push(format!(
                    "{place}: `{}` is an archive within the archive and was not opened",
                    entry.name
                ));
                continue;
            }
            let is_talk = name.starts_with("conversations") && ends(&[".json", ".jsonl"]);
            let is_memory = name.starts_with("memor") && ends(&[".json", ".jsonl", ".txt", ".md"]);
            if !is_talk && !is_memory {
                self.count_skipped("file of the archive without conversations");
                continue;
            }
            let mut head = vec![0; HEAD_BYTES];
            let mut stream = unpack::entry_stream(&mut archive, &entry, &place)?;
            let read = fill_buffer(&mut stream, &mut head).map_err(|error| {
                AppError::new(
                    Exit::Failure,
                    format!("{place}: `{}` cannot be unpacked: {error}", entry.name),
                )
            })?;
            drop(stream);
            head.truncate(read);
            let source = ImportSource {
                name: format!("{}/{}", base.name, entry.name),
                key: format!("{}!{}", base.key, entry.name),
                packed: Packing::Zip(entry),
                ..base.clone()
            };
            let before = self.sources.len();
            self.add_recognized(source, &head, wanted, false)?;
            taken += self.sources.len() - before;
        }
        if taken == 0 && alone {
            return Err(AppError::new(
                Exit::Usage,
                format!(
                    "{place} has no conversations in it: no conversations*.json of ChatGPT or Claude.ai, no memories"
                ),
            ));
        }
        Ok(())
    }

    /// Detects the format of a source and how to read it.
    fn add_recognized(
        &mut self,
        source: ImportSource,
        head: &[u8],
        wanted: Option<ImportFormat>,
        alone: bool,
    ) -> Result<(), AppError> {
        let lossy = String::from_utf8_lossy(head).into_owned();
        // A few zeros are the trace of a crash; many are another kind of file.
        let zeros = memchr::memchr_iter(0, head).count();
        let is_text = zeros <= head.len() / 10;
        let seen = if is_text { detect_format(&source.name, &lossy) } else { None };
        let is_memory = source.packed == Packing::Plain && is_claude_memory(&source.path, wanted);
        let format = match (seen, wanted) {
            (Some(ImportFormat::Markdown), Some(ImportFormat::ClaudeCode) | None) if is_memory => {
                Some(ImportFormat::ClaudeCode)
            }
            (Some(ImportFormat::Markdown), Some(ImportFormat::ClaudeAi))
                if matches!(source.packed, Packing::Zip(_)) || alone =>
            {
                Some(ImportFormat::ClaudeAi)
            }
            (Some(ImportFormat::Markdown), None) if matches!(source.packed, Packing::Zip(_)) => {
                Some(ImportFormat::ClaudeAi)
            }
            // An explicit format of a named file wins.
            (_, Some(wanted)) if alone && is_text => Some(wanted),
            (Some(seen), Some(wanted)) if seen == wanted => Some(seen),
            (Some(_), Some(_)) => {
                self.count_skipped("file in another format");
                return Ok(());
            }
            (seen, None) => seen,
            (None, Some(_)) => None,
        };
        let Some(format) = format else {
            if alone {
                let known = ImportFormat::ALL
                    .iter()
                    .map(|format| format.word())
                    .collect::<Vec<_>>()
                    .join(", ");
                let message = format!(
                    "nothing was imported from {}: its format is unknown; name one with --format: {known}",
                    display_path(&source.path)
                );
                return Err(AppError::new(Exit::Usage, message));
            }
            self.count_skipped("file of unknown format");
            return Ok(());
        };
        let json = lossy.trim_start_matches('\u{feff}').trim_start().starts_with(['{', '[']);
        let dated = lossy.starts_with('[')
            && lossy.lines().next().is_some_and(|line| line.contains("] - "));
        let lists = list_fields(format, &lossy);
        let shape = match format {
            ImportFormat::Markdown => SourceLayout::Note,
            ImportFormat::ClaudeCode if seen == Some(ImportFormat::Markdown) => {
                SourceLayout::Memory
            }
            ImportFormat::ClaudeAi if !json || dated => SourceLayout::Memory,
            // A graph in one object, rather than a line for each thing.
            ImportFormat::McpMemory | ImportFormat::Mem0 if !is_first_line_json(&lossy) => {
                SourceLayout::Elements
            }
            ImportFormat::Mem0 | ImportFormat::ChatGpt | ImportFormat::ClaudeAi => {
                SourceLayout::Elements
            }
            ImportFormat::McpMemory if !lists.is_empty() => SourceLayout::Elements,
            _ => SourceLayout::Lines,
        };
        let project = (shape == SourceLayout::Memory && format == ImportFormat::ClaudeCode)
            .then(|| project_beside(&source.path))
            .flatten();
        self.sources.push(ImportSource { format, shape, lists, project, ..source });
        Ok(())
    }
}

fn is_first_line_json(head: &str) -> bool {
    let line = head.trim_start_matches('\u{feff}').trim_start().lines().next().unwrap_or_default();
    serde_json::from_str::<serde::de::IgnoredAny>(line).is_ok()
}

/// A path for people: a name in a tree is a stranger's word.
pub fn display_path(path: &Path) -> String {
    sanitize::one_line(&path.to_string_lossy())
}

fn read_error(path: &Path, error: &std::io::Error) -> AppError {
    AppError::new(Exit::Failure, format!("{} cannot be read: {error}", display_path(path)))
}

fn fill_buffer(stream: &mut impl Read, into: &mut [u8]) -> std::io::Result<usize> {
    let mut filled = 0;
    while filled < into.len() {
        match stream.read(&mut into[filled..]) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// Whether a file belongs to Claude Code's own memory: `PROJECT/memory/*.md`, where PROJECT encodes
/// a folder.
fn is_claude_memory(path: &Path, wanted: Option<ImportFormat>) -> bool {
    let Some(folder) =
        path.parent().filter(|folder| folder.file_name().is_some_and(|name| name == "memory"))
    else {
        return false;
    };
    let project = folder
        .parent()
        .and_then(Path::file_name)
        .is_some_and(|name| name.to_string_lossy().starts_with('-'));
    project || wanted == Some(ImportFormat::ClaudeCode)
}

/// The project of a memory file of Claude Code, as the transcripts beside it name it.
fn project_beside(path: &Path) -> Option<String> {
    let project = path.parent()?.parent()?;
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(project).ok()?.flatten().map(|entry| entry.path()).collect();
    files.retain(|path| path.extension().is_some_and(|end| end == "jsonl"));
    files.sort();
    let said = files.iter().take(20).find_map(|path| {
        let mut head = vec![0; HEAD_BYTES / 4];
        let read = fill_buffer(&mut File::open(path).ok()?, &mut head).ok()?;
        let text = String::from_utf8_lossy(&head[..read]).into_owned();
        text.lines().find_map(|line| {
            let line: serde_json::Value = serde_json::from_str(line).ok()?;
            line.get("cwd")?.as_str().map(str::to_owned)
        })
    });
    said.and_then(|folder| icecore_engine::project::project_of(Path::new(&folder)))
        .or_else(|| Some(project.file_name()?.to_string_lossy().into_owned()))
}
