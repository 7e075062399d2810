//! Anthropic's memory tool as a verb: what a model asks of its folder is done in the vault.
//!
//! What a file was before it is changed or taken away is written down first, so every version can
//! be had back; what is kept passes the gate. Whatever a model asks for wrongly is an answer to the
//! model, never an error of ours.

use std::collections::BTreeMap;
use std::time::Duration;

use icecore_domain::calendar::Moment;
use icecore_domain::hash::Hash;
use icecore_domain::layout::{self, DocPath};
use icecore_domain::memory_tool::{self, Command, Files, There, ToolPath};
use icecore_domain::plain;
use icecore_store::{Claimed, ContentVersion, Error as StoreError};
use serde::{Deserialize, Serialize};

use crate::{Error, Memory, Result};

/// So long somebody who wants to write waits until another one is done.
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// How long it waits before it asks again.
const WAIT: Duration = Duration::from_millis(10);

/// What a model is answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Default)]
pub struct ToolAnswer {
    /// The words, for the content of a `tool_result`.
    pub content: String,
    /// Whether it did not work, for its `is_error`.
    pub is_error: bool,
    /// Secrets that were replaced before anything was written, by kind.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub secrets: BTreeMap<String, usize>,
}

/// What a file was before something was done to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolVersion {
    /// When that was done.
    pub ts: String,
    /// The file, as the model knows it.
    pub path: String,
    /// What was done: `str_replace`, `insert`, `delete` or `rename`.
    pub did: String,
    /// Its new name, if it got one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// The SHA-256 of what it was.
    pub sha256: String,
    /// What it was.
    pub text: String,
}

/// An answer to the model, or a failure of ours.
enum Wrong {
    Told(String),
    Failed(Error),
}

impl From<String> for Wrong {
    fn from(told: String) -> Self {
        Self::Told(told)
    }
}

impl From<StoreError> for Wrong {
    fn from(error: StoreError) -> Self {
        match error {
            // Somebody put something else where a file should be; that is no file.
            StoreError::Link(_) | StoreError::NotAFile(_) | StoreError::Path(_) => Self::Told(
                "Error: there is something at this path that is not a file of memory".into(),
            ),
            error => Self::Failed(error.into()),
        }
    }
}

impl Memory {
    /// Does what a model asks by the memory tool; `input` is the tool's input as it came, JSON.
    pub async fn memory_tool(&self, input: &str) -> Result<ToolAnswer> {
        let mut secrets = BTreeMap::new();
        let answer = match memory_tool::read(input) {
            Ok(command) => self.memory_command(command, &mut secrets).await,
            Err(told) => Err(Wrong::Told(told)),
        };
        match answer {
            Ok(content) => Ok(ToolAnswer { content, is_error: false, secrets }),
            Err(Wrong::Told(content)) => Ok(ToolAnswer { content, is_error: true, secrets }),
            Err(Wrong::Failed(error)) => Err(error),
        }
    }

    async fn memory_command(
        &self,
        command: Command,
        secrets: &mut BTreeMap<String, usize>,
    ) -> Result<String, Wrong> {
        if let Command::View { path, range } = &command {
            let files = self.tool_files().await?;
            return match memory_tool::there(path, &files) {
                There::Nothing => Err(memory_tool::not_there(path).into()),
                There::Folder(_) => Ok(memory_tool::listing(path, &files)),
                There::File => Ok(memory_tool::viewed(path, &self.tool_text(path).await?, *range)?),
            };
        }
        // One at a time from here on: what is changed is what was read.
        let _alone = self.alone_with_tool_files().await?;
        let files = self.tool_files().await?;
        let is_file = |path: &ToolPath| memory_tool::there(path, &files) == There::File;
        match command {
            Command::View { .. } => Ok(String::new()),
            Command::Create { path, text } => {
                memory_tool::may_create(&path, &files)?;
                self.put_tool_file(&path, &text, None, secrets).await?;
                Ok(memory_tool::created(&path))
            }
            Command::Replace { path, old, new } => {
                if !is_file(&path) {
                    return Err(memory_tool::no_file(&path, true).into());
                }
                let text = self.tool_text(&path).await?;
                let (changed, at) = memory_tool::replaced(&path, &text, &old, &new)?;
                memory_tool::may_keep(&path, &changed)?;
                self.keep_tool_version(&path, "str_replace", None, text.clone()).await?;
                let kept = self.put_tool_file(&path, &changed, Some(&text), secrets).await?;
                Ok(memory_tool::snippet(&kept, at))
            }
            Command::Insert { path, line, text: new } => {
                if !is_file(&path) {
                    return Err(memory_tool::no_file(&path, false).into());
                }
                let text = self.tool_text(&path).await?;
                let changed = memory_tool::inserted(&text, line, &new)?;
                memory_tool::may_keep(&path, &changed)?;
                self.keep_tool_version(&path, "insert", None, text.clone()).await?;
                self.put_tool_file(&path, &changed, Some(&text), secrets).await?;
                Ok(memory_tool::edited(&path))
            }
            Command::Delete { path } => {
                for file in memory_tool::deleted(&path, &files)? {
                    let text = self.tool_text(&file).await?;
                    self.keep_tool_version(&file, "delete", None, text.clone()).await?;
                    self.take_tool_file_away(&file, &text).await?;
                }
                Ok(memory_tool::gone(&path))
            }
            Command::Rename { from, to } => {
                let last = self.last_tool_version().await?;
                let begun = last.is_some_and(|last| {
                    last.to.is_some_and(|new| memory_tool::is_part_of(&from, &to, &last.path, &new))
                });
                for (old, new) in memory_tool::moved(&from, &to, &files, begun)? {
                    let text = self.tool_text(&old).await?;
                    // Looked at before anything is written down: a link may stand there, which no
                    // listing shows.
                    let there = match new.document() {
                        Some(document) => self.store.document(document).await?,
                        None => None,
                    };
                    if there.as_ref().is_some_and(|there| there != text.as_bytes()) {
                        return Err(format!(
                            "Error: The destination {} already exists",
                            new.asked()
                        )
                        .into());
                    }
                    self.keep_tool_version(
                        &old,
                        "rename",
                        Some(new.asked().to_owned()),
                        text.clone(),
                    )
                    .await?;
                    if let Some(document) = new.document() {
                        self.store
                            .swap(document, text.as_bytes(), ContentVersion::of(there.as_deref()))
                            .await?;
                    }
                    self.take_tool_file_away(&old, &text).await?;
                }
                Ok(memory_tool::renamed(&from, &to))
            }
        }
    }

    /// Every version that a file once was, oldest first; the one that is there now is not among
    /// them.
    pub async fn memory_tool_versions(&self, path: &str) -> Result<Vec<ToolVersion>> {
        // A person reads this, not a model.
        let path = ToolPath::read(path)
            .map_err(|told| Error::Unclear(told.trim_start_matches("Error: ").to_owned()))?;
        let Some(name) = path.document().and_then(memory_tool::shown) else {
            return Err(Error::Unclear("name a file; /memories is a folder".into()));
        };
        let mut all = Vec::new();
        for document in self.store.documents(layout::TOOL_VERSIONS).await? {
            let text = self.store.document(&document).await?.unwrap_or_default();
            // A line that somebody broke takes only itself along.
            let lines = text
                .split(|byte| *byte == b'\n')
                .filter_map(|line| serde_json::from_slice::<ToolVersion>(line).ok());
            all.extend(lines);
        }
        // A file that was renamed has the past of its old name, as far as it was the same file.
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
        if found.is_empty() && self.tool_text(&path).await.is_err() {
            return Err(Error::Nothing(format!(
                "there is no {} and there never was",
                plain::one_line(path.asked())
            )));
        }
        Ok(found)
    }

    async fn alone_with_tool_files(&self) -> Result<Claimed, Wrong> {
        let asked = async || self.store.claim("memory-tool").await;
        if let Some(claimed) = asked().await? {
            return Ok(claimed);
        }
        let waiting = async {
            loop {
                tokio::time::sleep(WAIT).await;
                if let Some(claimed) = asked().await? {
                    return Ok(claimed);
                }
            }
        };
        tokio::time::timeout(LONGEST_WAIT, waiting).await.unwrap_or_else(|_| {
            Err(Wrong::Failed(Error::Busy(
                "another process is at the files of the memory tool; try again when it is done"
                    .into(),
            )))
        })
    }

    async fn tool_files(&self) -> Result<Files, Wrong> {
        let inner = |(path, bytes): (DocPath, u64)| {
            Some((path.as_str().strip_prefix(layout::TOOL)?.strip_prefix('/')?.to_owned(), bytes))
        };
        Ok(self.store.sizes(layout::TOOL).await?.into_iter().filter_map(inner).collect())
    }

    async fn tool_text(&self, path: &ToolPath) -> Result<String, Wrong> {
        let bytes = match path.document() {
            Some(document) => self.store.document(document).await?,
            None => None,
        };
        let Some(bytes) = bytes else { return Err(memory_tool::not_there(path).into()) };
        String::from_utf8(bytes)
            .map_err(|_| Wrong::Told(format!("Error: {} is not a text", path.asked())))
    }

    /// Puts a file in place of what was read, through the gate, and returns what is in it now.
    async fn put_tool_file(
        &self,
        path: &ToolPath,
        text: &str,
        read: Option<&str>,
        secrets: &mut BTreeMap<String, usize>,
    ) -> Result<String, Wrong> {
        // The whole of it: two halves of a secret would pass one by one.
        let mut hidden = BTreeMap::new();
        let kept = self.gate_told(text, &mut hidden);
        memory_tool::may_keep(path, &kept)?;
        *secrets = hidden;
        if let Some(document) = path.document() {
            self.store
                .swap(document, kept.as_bytes(), ContentVersion::of(read.map(str::as_bytes)))
                .await?;
        }
        Ok(kept)
    }

    async fn take_tool_file_away(&self, path: &ToolPath, read: &str) -> Result<(), Wrong> {
        match path.document() {
            Some(document) => Ok(self
                .store
                .remove_unchanged(document, ContentVersion::of(Some(read.as_bytes())))
                .await?),
            None => Ok(()),
        }
    }

    /// What was written down last.
    async fn last_tool_version(&self) -> Result<Option<ToolVersion>, Wrong> {
        let Some(log) = self.store.documents(layout::TOOL_VERSIONS).await?.pop() else {
            return Ok(None);
        };
        // In JSON a byte may take six.
        let most = memory_tool::MOST_FILE_BYTES as u64 * 6 + 4_096;
        let (text, _) = self.store.tail(&log, most).await?;
        let last = text.trim_ascii_end().rsplit(|byte| *byte == b'\n').next().unwrap_or_default();
        Ok(serde_json::from_slice(last).ok())
    }

    /// Writes down what a file was, before it is something else.
    async fn keep_tool_version(
        &self,
        path: &ToolPath,
        did: &str,
        to: Option<String>,
        text: String,
    ) -> Result<(), Wrong> {
        let now: Moment = self.now();
        let name = path.document().and_then(memory_tool::shown).unwrap_or_default();
        let version = ToolVersion {
            ts: now.to_string(),
            path: name,
            did: did.to_owned(),
            to,
            sha256: Hash::of(text.as_bytes()).to_string(),
            text,
        };
        // One who died right after this and was started again: it stands there already.
        let is_known =
            |last: ToolVersion| last == ToolVersion { ts: last.ts.clone(), ..version.clone() };
        if self.last_tool_version().await?.is_some_and(is_known) {
            return Ok(());
        }
        let line = serde_json::to_string(&version)
            .map_err(|error| Wrong::Failed(Error::TooMuch(error.to_string())))?
            + "\n";
        let log: DocPath =
            format!("{}/{}.jsonl", layout::TOOL_VERSIONS, now.day().strftime("%Y-%m"))
                .parse()
                .map_err(StoreError::Path)?;
        Ok(self.store.extend(&log, line.as_bytes()).await?)
    }
}
