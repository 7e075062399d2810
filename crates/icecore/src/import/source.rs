//! The sources of an import: files below the named paths, each with its detected format.
//!
//! Links are not followed, and the vault itself is never a source.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use icecore_domain::import::{Format, HEAD_BYTES, inside, recognise};
use icecore_domain::plain;

use super::unpack::{self, Entry};
use crate::error::{Exit, Stop};

const MAX_FILES: usize = 1_000_000;
const MAX_FOLDERS: usize = 64;

/// How a source is packed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Packed {
    Plain,
    Zstd,
    Zip(Entry),
}

/// How a source is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
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
pub struct Source {
    pub path: PathBuf,
    /// Its name relative to the named path, for display and for ids.
    pub name: String,
    /// Its identity across runs.
    pub key: String,
    pub format: Format,
    pub shape: Shape,
    pub packed: Packed,
    /// The fields that may hold its list.
    pub lists: &'static [&'static str],
    /// Bytes of the file.
    pub size: u64,
    /// When it was last written, in nanoseconds since 1970.
    pub modified: i128,
    /// The project of an assistant's notes.
    pub project: Option<String>,
}

impl Source {
    /// Its size on disk, in bytes.
    pub fn weight(&self) -> u64 {
        match &self.packed {
            Packed::Zip(entry) => entry.packed,
            _ => self.size,
        }
    }
}

/// The sources found so far.
#[derive(Debug, Default)]
pub struct Found {
    pub sources: Vec<Source>,
    pub skipped: BTreeMap<String, usize>,
    pub complaints: Vec<String>,
    /// Paths that were refused.
    pub refused: Vec<Stop>,
    /// The vault, which is not a source.
    vault: Option<PathBuf>,
}

impl Found {
    /// An empty scan that excludes this vault.
    pub fn for_vault(vault: Option<&Path>) -> Self {
        Self {
            vault: vault.map(|vault| vault.canonicalize().unwrap_or_else(|_| vault.to_owned())),
            ..Self::default()
        }
    }

    fn skip(&mut self, what: &str) {
        *self.skipped.entry(what.to_owned()).or_default() += 1;
    }

    /// Scans a named path.
    pub fn named(&mut self, path: &Path, wanted: Option<Format>) {
        let outcome = match std::fs::metadata(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                Err(Stop::new(Exit::NotFound, format!("{} does not exist", path.display())))
            }
            Err(error) => Err(unreadable(path, &error)),
            Ok(found) if found.is_dir() => {
                let root = path.canonicalize().unwrap_or_else(|_| path.to_owned());
                match self.vault.as_ref().is_some_and(|vault| root.starts_with(vault)) {
                    true => Err(Stop::new(
                        Exit::Usage,
                        format!(
                            "{} is inside the vault, so its content is already known",
                            path.display()
                        ),
                    )),
                    false => self.folder(&root, &root, wanted, 0),
                }
            }
            Ok(found) if found.is_file() => {
                let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
                let name = path
                    .file_name()
                    .map_or_else(String::new, |name| name.to_string_lossy().into_owned());
                self.file(&path, name, wanted, true)
            }
            Ok(_) => Err(Stop::new(
                Exit::Usage,
                format!("{} is neither a file nor a folder", path.display()),
            )),
        };
        self.refused.extend(outcome.err());
    }

    fn folder(
        &mut self,
        root: &Path,
        folder: &Path,
        wanted: Option<Format>,
        depth: usize,
    ) -> Result<(), Stop> {
        if depth > MAX_FOLDERS {
            self.complaints.push(format!("{} is nested too deeply and was skipped", shown(folder)));
            return Ok(());
        }
        let read = std::fs::read_dir(folder).map_err(|error| unreadable(folder, &error))?;
        let mut entries: Vec<_> = read.flatten().collect();
        entries.sort_by_key(std::fs::DirEntry::file_name);
        for entry in entries {
            let (path, file_name) =
                (entry.path(), entry.file_name().to_string_lossy().into_owned());
            let name =
                path.strip_prefix(root).unwrap_or(&path).to_string_lossy().replace('\\', "/");
            let Ok(kind) = entry.file_type() else {
                self.skip("file that cannot be looked at");
                continue;
            };
            if kind.is_symlink() {
                // It may lead anywhere; its target can be named instead.
                self.complaints
                    .push(format!("{} is a link and was not followed", plain::one_line(&name)));
            } else if file_name.starts_with('.') {
                self.skip("hidden file or folder");
            } else if kind.is_dir() && self.vault.as_ref() == Some(&path) {
                self.skip("vault, which is this one");
            } else if kind.is_dir() && file_name == "tool-results" {
                self.skip("folder of tool outputs");
            } else if kind.is_dir() {
                if let Err(stop) = self.folder(root, &path, wanted, depth + 1) {
                    self.complaints.push(stop.message);
                }
            } else if kind.is_file() {
                if self.sources.len() >= MAX_FILES {
                    return Err(Stop::new(
                        Exit::Usage,
                        format!(
                            "{} has more than {MAX_FILES} files; name a smaller folder",
                            root.display()
                        ),
                    ));
                }
                if let Err(stop) = self.file(&path, name, wanted, false) {
                    self.complaints.push(stop.message);
                }
            }
        }
        Ok(())
    }

    fn file(
        &mut self,
        path: &Path,
        name: String,
        wanted: Option<Format>,
        alone: bool,
    ) -> Result<(), Stop> {
        let found = std::fs::metadata(path).map_err(|error| unreadable(path, &error))?;
        let modified = found.modified().ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok());
        let modified = modified.map_or(0, |since| i128::try_from(since.as_nanos()).unwrap_or(0));
        let mut head = vec![0; HEAD_BYTES];
        let mut file = File::open(path).map_err(|error| unreadable(path, &error))?;
        let read = fill(&mut file, &mut head).map_err(|error| unreadable(path, &error))?;
        head.truncate(read);
        let base = Source {
            path: path.to_owned(),
            key: path.to_string_lossy().into_owned(),
            format: Format::Jsonl,
            shape: Shape::Lines,
            packed: Packed::Plain,
            lists: &[],
            size: found.len(),
            modified,
            project: None,
            name,
        };
        match head.as_slice() {
            [b'P', b'K', 3 | 5, 4 | 6, ..] => return self.archive(base, wanted, alone),
            [0x28, 0xb5, 0x2f, 0xfd, ..] => {
                let mut unpacked = vec![0; HEAD_BYTES];
                let stream = File::open(path).and_then(unpack::zstd);
                let read = stream
                    .and_then(|mut stream| fill(&mut stream, &mut unpacked))
                    .map_err(|error| unreadable(path, &error))?;
                unpacked.truncate(read);
                let name = base.name.trim_end_matches(".zst").to_owned();
                return self.recognised(
                    Source { packed: Packed::Zstd, name, ..base },
                    &unpacked,
                    wanted,
                    alone,
                );
            }
            _ => {}
        }
        if found.len() == 0 {
            self.skip("empty file");
            return Ok(());
        }
        self.recognised(base, &head, wanted, alone)
    }

    fn archive(&mut self, base: Source, wanted: Option<Format>, alone: bool) -> Result<(), Stop> {
        let (mut archive, entries) = unpack::open(&base.path)?;
        let place = shown(&base.path);
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
                self.skip("file of the archive without conversations");
                continue;
            }
            let mut head = vec![0; HEAD_BYTES];
            let mut stream = unpack::part(&mut archive, &entry, &place)?;
            let read = fill(&mut stream, &mut head).map_err(|error| {
                Stop::new(
                    Exit::Failure,
                    format!("{place}: `{}` cannot be unpacked: {error}", entry.name),
                )
            })?;
            drop(stream);
            head.truncate(read);
            let source = Source {
                name: format!("{}/{}", base.name, entry.name),
                key: format!("{}!{}", base.key, entry.name),
                packed: Packed::Zip(entry),
                ..base.clone()
            };
            let before = self.sources.len();
            self.recognised(source, &head, wanted, false)?;
            taken += self.sources.len() - before;
        }
        if taken == 0 && alone {
            return Err(Stop::new(
                Exit::Usage,
                format!(
                    "{place} has no conversations in it: no conversations*.json of ChatGPT or Claude.ai, no memories"
                ),
            ));
        }
        Ok(())
    }

    /// Detects the format of a source and how to read it.
    fn recognised(
        &mut self,
        source: Source,
        head: &[u8],
        wanted: Option<Format>,
        alone: bool,
    ) -> Result<(), Stop> {
        let lossy = String::from_utf8_lossy(head).into_owned();
        // A few zeros are the trace of a crash; many are another kind of file.
        let zeros = memchr::memchr_iter(0, head).count();
        let is_text = zeros <= head.len() / 10;
        let seen = if is_text { recognise(&source.name, &lossy) } else { None };
        let is_memory = source.packed == Packed::Plain && is_claude_memory(&source.path, wanted);
        let format = match (seen, wanted) {
            (Some(Format::Markdown), Some(Format::ClaudeCode) | None) if is_memory => {
                Some(Format::ClaudeCode)
            }
            (Some(Format::Markdown), Some(Format::ClaudeAi))
                if matches!(source.packed, Packed::Zip(_)) || alone =>
            {
                Some(Format::ClaudeAi)
            }
            (Some(Format::Markdown), None) if matches!(source.packed, Packed::Zip(_)) => {
                Some(Format::ClaudeAi)
            }
            // An explicit format of a named file wins.
            (_, Some(wanted)) if alone && is_text => Some(wanted),
            (Some(seen), Some(wanted)) if seen == wanted => Some(seen),
            (Some(_), Some(_)) => {
                self.skip("file of another form");
                return Ok(());
            }
            (seen, None) => seen,
            (None, Some(_)) => None,
        };
        let Some(format) = format else {
            if alone {
                let known =
                    Format::ALL.iter().map(|format| format.word()).collect::<Vec<_>>().join(", ");
                let message = format!(
                    "nothing was imported from {}: its format is unknown; name one with --format: {known}",
                    shown(&source.path)
                );
                return Err(Stop::new(Exit::Usage, message));
            }
            self.skip("file of no known form");
            return Ok(());
        };
        let json = lossy.trim_start_matches('\u{feff}').trim_start().starts_with(['{', '[']);
        let dated = lossy.starts_with('[')
            && lossy.lines().next().is_some_and(|line| line.contains("] - "));
        let lists = inside(format, &lossy);
        let shape = match format {
            Format::Markdown => Shape::Note,
            Format::ClaudeCode if seen == Some(Format::Markdown) => Shape::Memory,
            Format::ClaudeAi if !json || dated => Shape::Memory,
            // A graph in one object, rather than a line for each thing.
            Format::McpMemory | Format::Mem0 if !first_line_is_whole(&lossy) => Shape::Elements,
            Format::Mem0 | Format::ChatGpt | Format::ClaudeAi => Shape::Elements,
            Format::McpMemory if !lists.is_empty() => Shape::Elements,
            _ => Shape::Lines,
        };
        let project = (shape == Shape::Memory && format == Format::ClaudeCode)
            .then(|| project_beside(&source.path))
            .flatten();
        self.sources.push(Source { format, shape, lists, project, ..source });
        Ok(())
    }
}

fn first_line_is_whole(head: &str) -> bool {
    let line = head.trim_start_matches('\u{feff}').trim_start().lines().next().unwrap_or_default();
    serde_json::from_str::<serde::de::IgnoredAny>(line).is_ok()
}

/// A path for people: a name in a tree is a stranger's word.
pub fn shown(path: &Path) -> String {
    plain::one_line(&path.to_string_lossy())
}

fn unreadable(path: &Path, error: &std::io::Error) -> Stop {
    Stop::new(Exit::Failure, format!("{} cannot be read: {error}", shown(path)))
}

fn fill(stream: &mut impl Read, into: &mut [u8]) -> std::io::Result<usize> {
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
fn is_claude_memory(path: &Path, wanted: Option<Format>) -> bool {
    let Some(folder) =
        path.parent().filter(|folder| folder.file_name().is_some_and(|name| name == "memory"))
    else {
        return false;
    };
    let project = folder
        .parent()
        .and_then(Path::file_name)
        .is_some_and(|name| name.to_string_lossy().starts_with('-'));
    project || wanted == Some(Format::ClaudeCode)
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
        let read = fill(&mut File::open(path).ok()?, &mut head).ok()?;
        let text = String::from_utf8_lossy(&head[..read]).into_owned();
        text.lines().find_map(|line| {
            let line: serde_json::Value = serde_json::from_str(line).ok()?;
            line.get("cwd")?.as_str().map(str::to_owned)
        })
    });
    said.and_then(|folder| icecore_engine::project::of(Path::new(&folder)))
        .or_else(|| Some(project.file_name()?.to_string_lossy().into_owned()))
}
