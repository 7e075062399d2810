//! Anthropic's memory tool: executes a model's commands on its folder in the vault.
//!
//! Invariants: before a file is changed or removed, its version is stored, so every version can be
//! restored. Everything that is stored passes the capture filter. A wrong command of a model is an
//! answer to the model, never an error of ours.

use std::collections::BTreeMap;
use std::time::Duration;

use icecore_domain::calendar::Moment;
use icecore_domain::hash::Hash;
use icecore_domain::layout::{self, DocPath};
use icecore_domain::memory_tool::{self, FileSizes, PathEntry, ToolCommand, ToolPath};
use icecore_domain::sanitize;
use icecore_store::{ContentVersion, Error as StoreError, ErrorKind as StoreErrorKind, Lease};
use serde::{Deserialize, Serialize};

use crate::{Error, Memory, Result};

/// How long a command waits for the lease of the tool's files.
const MAX_LEASE_WAIT: Duration = Duration::from_secs(30);
/// How long it waits between two tries.
const LEASE_RETRY_INTERVAL: Duration = Duration::from_millis(10);

/// The answer to a model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Default)]
pub struct ToolAnswer {
    /// The content of the `tool_result`.
    pub content: String,
    /// Its `is_error`.
    pub is_error: bool,
    /// Secrets that were replaced before anything was written, by kind.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub secrets: BTreeMap<String, usize>,
}

/// A version of a file before a change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolVersion {
    /// When the change was made.
    pub ts: String,
    /// The path that the model uses.
    pub path: String,
    /// The change: `str_replace`, `insert`, `delete` or `rename`.
    pub did: String,
    /// The new path of a rename.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    pub sha256: String,
    pub text: String,
}

/// An answer to the model, or an error of ours.
enum ToolError {
    Answer(String),
    Failed(Error),
}

impl From<String> for ToolError {
    fn from(told: String) -> Self {
        Self::Answer(told)
    }
}

impl From<StoreError> for ToolError {
    fn from(error: StoreError) -> Self {
        match error {
            // A link or a folder where a file should be is not a file of the tool.
            StoreError {
                kind: StoreErrorKind::Link | StoreErrorKind::NotAFile | StoreErrorKind::InvalidPath,
                ..
            } => Self::Answer(
                "Error: there is something at this path that is not a file of memory".into(),
            ),
            error => Self::Failed(error.into()),
        }
    }
}

impl Memory {
    /// Runs a command of the memory tool; `input` is the tool's JSON input, unchanged.
    pub async fn run_memory_tool(&self, input: &str) -> Result<ToolAnswer> {
        let mut secrets = BTreeMap::new();
        let answer = match memory_tool::parse_command(input) {
            Ok(command) => self.run_memory_command(command, &mut secrets).await,
            Err(told) => Err(ToolError::Answer(told)),
        };
        match answer {
            Ok(content) => Ok(ToolAnswer { content, is_error: false, secrets }),
            Err(ToolError::Answer(content)) => Ok(ToolAnswer { content, is_error: true, secrets }),
            Err(ToolError::Failed(error)) => Err(error),
        }
    }

    async fn run_memory_command(
        &self,
        command: ToolCommand,
        secrets: &mut BTreeMap<String, usize>,
    ) -> Result<String, ToolError> {
        if let ToolCommand::View { path, range } = &command {
            let files = self.list_tool_files().await?;
            return match memory_tool::entry_at(path, &files) {
                PathEntry::Nothing => Err(memory_tool::missing_path_message(path).into()),
                PathEntry::Folder(_) => Ok(memory_tool::render_listing(path, &files)),
                PathEntry::File => {
                    Ok(memory_tool::render_view(path, &self.read_tool_file(path).await?, *range)?)
                }
            };
        }
        // Exclusive from here on, so that what is changed is what was read.
        let _alone = self.acquire_tool_lease().await?;
        let files = self.list_tool_files().await?;
        let is_file = |path: &ToolPath| memory_tool::entry_at(path, &files) == PathEntry::File;
        match command {
            ToolCommand::View { .. } => Ok(String::new()),
            ToolCommand::Create { path, text } => {
                memory_tool::check_create(&path, &files)?;
                self.write_tool_file(&path, &text, None, secrets).await?;
                Ok(memory_tool::created_message(&path))
            }
            ToolCommand::Replace { path, old, new } => {
                if !is_file(&path) {
                    return Err(memory_tool::missing_file_message(&path, true).into());
                }
                let text = self.read_tool_file(&path).await?;
                let (changed, at) = memory_tool::replace_text(&path, &text, &old, &new)?;
                memory_tool::check_content(&path, &changed)?;
                self.store_tool_version(&path, "str_replace", None, text.clone()).await?;
                let kept = self.write_tool_file(&path, &changed, Some(&text), secrets).await?;
                Ok(memory_tool::render_snippet(&kept, at))
            }
            ToolCommand::Insert { path, line, text: new } => {
                if !is_file(&path) {
                    return Err(memory_tool::missing_file_message(&path, false).into());
                }
                let text = self.read_tool_file(&path).await?;
                let changed = memory_tool::insert_lines(&text, line, &new)?;
                memory_tool::check_content(&path, &changed)?;
                self.store_tool_version(&path, "insert", None, text.clone()).await?;
                self.write_tool_file(&path, &changed, Some(&text), secrets).await?;
                Ok(memory_tool::edited_message(&path))
            }
            ToolCommand::Delete { path } => {
                for file in memory_tool::plan_delete(&path, &files)? {
                    let text = self.read_tool_file(&file).await?;
                    self.store_tool_version(&file, "delete", None, text.clone()).await?;
                    self.remove_tool_file(&file, &text).await?;
                }
                Ok(memory_tool::deleted_message(&path))
            }
            ToolCommand::Rename { from, to } => {
                let last = self.last_stored_tool_version().await?;
                let begun = last.is_some_and(|last| {
                    last.to.is_some_and(|new| {
                        memory_tool::is_part_of_rename(&from, &to, &last.path, &new)
                    })
                });
                for (old, new) in memory_tool::plan_rename(&from, &to, &files, begun)? {
                    let text = self.read_tool_file(&old).await?;
                    // Checked before anything is stored: there may be a link, which listings omit.
                    let there = match new.document() {
                        Some(document) => self.store.document(document).await?,
                        None => None,
                    };
                    if there.as_ref().is_some_and(|there| there != text.as_bytes()) {
                        return Err(format!(
                            "Error: The destination {} already exists",
                            new.requested_path()
                        )
                        .into());
                    }
                    self.store_tool_version(
                        &old,
                        "rename",
                        Some(new.requested_path().to_owned()),
                        text.clone(),
                    )
                    .await?;
                    if let Some(document) = new.document() {
                        self.store
                            .compare_and_swap(
                                document,
                                text.as_bytes(),
                                ContentVersion::of(there.as_deref()),
                            )
                            .await?;
                    }
                    self.remove_tool_file(&old, &text).await?;
                }
                Ok(memory_tool::renamed_message(&from, &to))
            }
        }
    }

    /// Every earlier version of a file, oldest first, without the current one.
    pub async fn list_memory_tool_versions(&self, path: &str) -> Result<Vec<ToolVersion>> {
        // This error is for the user, not for a model.
        let path = ToolPath::parse(path)
            .map_err(|told| Error::InvalidRequest(told.trim_start_matches("Error: ").to_owned()))?;
        let Some(name) = path.document().and_then(memory_tool::model_path) else {
            return Err(Error::InvalidRequest("/memories is a folder; name a file in it".into()));
        };
        let mut all = Vec::new();
        for document in self.store.documents(layout::TOOL_VERSIONS).await? {
            let text = self.store.document(&document).await?.unwrap_or_default();
            // A broken line is skipped, the others are read.
            let lines = text
                .split(|byte| *byte == b'\n')
                .filter_map(|line| serde_json::from_slice::<ToolVersion>(line).ok());
            all.extend(lines);
        }
        // A renamed file includes the versions under its old names.
        let mut names = vec![name];
        let mut found = Vec::new();
        for version in all.into_iter().rev() {
            let was_here = names.contains(&version.path);
            if let Some(to) = &version.to
                && names.last() == Some(to)
            {
                names.push(version.path.clone());
                found.push(version);
            } else if was_here {
                found.push(version);
            }
        }
        found.reverse();
        if found.is_empty() && self.read_tool_file(&path).await.is_err() {
            return Err(Error::NotFound(format!(
                "{} does not exist and has no earlier versions",
                sanitize::one_line(path.requested_path())
            )));
        }
        Ok(found)
    }

    async fn acquire_tool_lease(&self) -> Result<Lease, ToolError> {
        let asked = async || self.store.acquire_lease("memory-tool").await;
        if let Some(claimed) = asked().await? {
            return Ok(claimed);
        }
        let waiting = async {
            loop {
                tokio::time::sleep(LEASE_RETRY_INTERVAL).await;
                if let Some(claimed) = asked().await? {
                    return Ok(claimed);
                }
            }
        };
        tokio::time::timeout(MAX_LEASE_WAIT, waiting).await.unwrap_or_else(|_| {
            Err(ToolError::Failed(Error::Busy(
                "another process is changing the memory tool's files; try again in a moment".into(),
            )))
        })
    }

    async fn list_tool_files(&self) -> Result<FileSizes, ToolError> {
        let inner = |(path, bytes): (DocPath, u64)| {
            Some((path.as_str().strip_prefix(layout::TOOL)?.strip_prefix('/')?.to_owned(), bytes))
        };
        Ok(self.store.document_sizes(layout::TOOL).await?.into_iter().filter_map(inner).collect())
    }

    async fn read_tool_file(&self, path: &ToolPath) -> Result<String, ToolError> {
        let bytes = match path.document() {
            Some(document) => self.store.document(document).await?,
            None => None,
        };
        let Some(bytes) = bytes else { return Err(memory_tool::missing_path_message(path).into()) };
        String::from_utf8(bytes).map_err(|_| {
            ToolError::Answer(format!("Error: {} is not a text", path.requested_path()))
        })
    }

    /// Filters `text` and writes it in place of what was read. Returns what was written.
    async fn write_tool_file(
        &self,
        path: &ToolPath,
        text: &str,
        read: Option<&str>,
        secrets: &mut BTreeMap<String, usize>,
    ) -> Result<String, ToolError> {
        // Filtered as a whole: two halves of a secret would pass one by one.
        let mut hidden = BTreeMap::new();
        let kept = self.filter_and_count(text, &mut hidden);
        memory_tool::check_content(path, &kept)?;
        *secrets = hidden;
        if let Some(document) = path.document() {
            self.store
                .compare_and_swap(
                    document,
                    kept.as_bytes(),
                    ContentVersion::of(read.map(str::as_bytes)),
                )
                .await?;
        }
        Ok(kept)
    }

    async fn remove_tool_file(&self, path: &ToolPath, read: &str) -> Result<(), ToolError> {
        match path.document() {
            Some(document) => Ok(self
                .store
                .remove_unchanged(document, ContentVersion::of(Some(read.as_bytes())))
                .await?),
            None => Ok(()),
        }
    }

    /// The version that was stored last.
    async fn last_stored_tool_version(&self) -> Result<Option<ToolVersion>, ToolError> {
        let Some(log) = self.store.documents(layout::TOOL_VERSIONS).await?.pop() else {
            return Ok(None);
        };
        // JSON may need six bytes for one.
        let most = memory_tool::MAX_FILE_BYTES as u64 * 6 + 4_096;
        let (text, _) = self.store.read_tail(&log, most).await?;
        let last = text.trim_ascii_end().rsplit(|byte| *byte == b'\n').next().unwrap_or_default();
        Ok(serde_json::from_slice(last).ok())
    }

    /// Stores the version of a file before it is changed.
    async fn store_tool_version(
        &self,
        path: &ToolPath,
        did: &str,
        to: Option<String>,
        text: String,
    ) -> Result<(), ToolError> {
        let now: Moment = self.now();
        let name = path.document().and_then(memory_tool::model_path).unwrap_or_default();
        let version = ToolVersion {
            ts: now.to_string(),
            path: name,
            did: did.to_owned(),
            to,
            sha256: Hash::of(text.as_bytes()).to_string(),
            text,
        };
        // A command that died right after this step and is repeated finds its version stored.
        let is_known =
            |last: ToolVersion| last == ToolVersion { ts: last.ts.clone(), ..version.clone() };
        if self.last_stored_tool_version().await?.is_some_and(is_known) {
            return Ok(());
        }
        let line = serde_json::to_string(&version)
            .map_err(|error| ToolError::Failed(Error::LimitExceeded(error.to_string())))?
            + "\n";
        let log: DocPath =
            format!("{}/{}.jsonl", layout::TOOL_VERSIONS, now.day().strftime("%Y-%m"))
                .parse()
                .map_err(StoreError::from)?;
        Ok(self.store.append_to_document(&log, line.as_bytes()).await?)
    }
}
