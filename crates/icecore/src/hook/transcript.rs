//! Reading the transcript that a client names. The path is untrusted: only a plain file that looks
//! like a transcript is read.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use icecore_domain::json;
use serde_json::Value;

/// The largest transcript that is read while a client waits.
pub const MAX_BYTES_WHILE_WAITING: u64 = 32 * 1024 * 1024;
/// The largest transcript that is read at all.
pub const MAX_TRANSCRIPT_BYTES: u64 = 256 * 1024 * 1024;
const MAX_HELPERS: usize = 1_000;
/// How much of a file is inspected to detect a transcript.
const SNIFF_BYTES: usize = 256 * 1024;

/// Why a transcript was not read.
pub struct TranscriptError {
    pub why: String,
    /// A retry cannot succeed.
    pub is_final: bool,
}

/// A transcript that was not written for this long is complete.
pub const QUIET_PERIOD: Duration = Duration::from_millis(700);

/// Waits until a transcript seems complete: some clients write the last lines after their last
/// hook.
pub async fn wait_until_quiet(path: &str) {
    const MAX_WAITS: usize = 7;
    for _ in 0..MAX_WAITS {
        let written = Path::new(path).symlink_metadata().and_then(|found| found.modified());
        // A time in the future does not count.
        let Some(age) = written
            .ok()
            .and_then(|written| written.elapsed().ok())
            .filter(|age| *age < QUIET_PERIOD)
        else {
            return;
        };
        tokio::time::sleep(QUIET_PERIOD - age).await;
    }
}

/// The text of a transcript; `None` if the file does not exist, because its client does not write
/// one.
pub fn read_transcript(path: &str, most: u64) -> Result<Option<String>, TranscriptError> {
    let shown =
        icecore_domain::budget::truncate_at_word(&icecore_domain::sanitize::one_line(path), 200);
    let path = Path::new(path);
    let refusal = |why: &str, is_final| {
        Err(TranscriptError {
            why: format!("the transcript {shown} was not read: {why}"),
            is_final,
        })
    };
    let refuse = |why: &str| refusal(why, true);
    if !path.is_absolute() {
        return refuse("its path is not absolute");
    }
    if path.extension().is_none_or(|ending| ending != "jsonl") {
        return refuse("a transcript's name ends in .jsonl");
    }
    // Checked before it is opened: opening a pipe would block.
    let found = match path.symlink_metadata() {
        Ok(found) => found,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return refusal(&error.to_string(), false),
    };
    if !found.is_file() {
        return refuse("it is not a plain file");
    }
    if found.len() > most {
        return refuse(&format!("it has {} bytes, at most {most} are read here", found.len()));
    }
    let mut bytes = Vec::with_capacity(usize::try_from(found.len()).unwrap_or(0));
    let opened = File::open(path).and_then(|file| {
        if !file.metadata()?.is_file() {
            return Err(std::io::ErrorKind::InvalidInput.into());
        }
        file.take(most).read_to_end(&mut bytes)
    });
    if let Err(error) = opened {
        return refusal(&error.to_string(), false);
    }
    let text = String::from_utf8(bytes)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
    if text.trim().is_empty() || is_in_client_folder(path) || is_transcript(&text) {
        Ok(Some(text))
    } else {
        refuse("it does not look like a transcript")
    }
}

/// The transcripts of the subagents of a session, by the names of the subagents.
pub fn helper_transcripts(path: &str) -> Vec<(String, PathBuf)> {
    let folder = Path::new(path).with_extension("").join("subagents");
    // Links are not followed: they may lead anywhere.
    let is_own = |folder: &Path| folder.symlink_metadata().is_ok_and(|found| found.is_dir());
    if !is_own(&folder) || folder.parent().is_none_or(|session| !is_own(session)) {
        return Vec::new();
    }
    let entries =
        std::fs::read_dir(&folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut found: Vec<(String, PathBuf)> = entries
        .filter_map(|path| {
            let name = path.file_name()?.to_str()?;
            Some((name.strip_prefix("agent-")?.strip_suffix(".jsonl")?.to_owned(), path))
        })
        .collect();
    found.sort();
    found.truncate(MAX_HELPERS);
    found
}

/// Whether a file is in a folder where a client keeps its transcripts.
fn is_in_client_folder(path: &Path) -> bool {
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let folder = |variable: &str, own: &str, inner: &str| {
        let named = std::env::var_os(variable).filter(|named| !named.is_empty()).map(PathBuf::from);
        named.or_else(|| home.as_ref().map(|home| home.join(own))).map(|folder| folder.join(inner))
    };
    let Ok(path) = path.canonicalize() else { return false };
    [folder("CLAUDE_CONFIG_DIR", ".claude", "projects"), folder("CODEX_HOME", ".codex", "sessions")]
        .into_iter()
        .flatten()
        .filter_map(|folder| folder.canonicalize().ok())
        .any(|folder| path.starts_with(folder))
}

/// Whether a text has lines in the format of Claude Code or Codex.
fn is_transcript(text: &str) -> bool {
    let head = &text[..text.floor_char_boundary(SNIFF_BYTES)];
    head.lines().filter_map(|line| json::parse::<Value>(line.trim()).ok()).any(|line| {
        let ours = ["sessionId", "uuid", "leafUuid"].iter().any(|field| line[field].is_string());
        line["type"].is_string() && (ours || line["payload"].is_object())
    })
}
