//! Forgetting, checking, rebuilding and restoring a store.

use async_trait::async_trait;
use icecore_domain::forget::Scrub;
use icecore_domain::layout::DocPath;
use icecore_domain::ledger::integrity::IntegrityFinding;

use crate::{ContentVersion, DocumentStat, Result};

/// Receives the progress of a long operation: units done and units in total.
pub type Progress<'a> = &'a (dyn Fn(u64, u64) + Send + Sync);

/// What the target of a restore already holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RestoreTarget {
    /// Only the files that every store has from the start.
    New,
    /// The remains of an interrupted restore.
    Unfinished,
    /// A memory.
    Occupied {
        documents: usize,
        /// One of the documents.
        such_as: DocPath,
    },
}

impl RestoreTarget {
    /// Classifies a target by its documents, unless a restore was interrupted there.
    pub(crate) fn from_documents(looks: &[DocumentStat]) -> Self {
        let mut others = looks.iter().filter(|look| !look.is_initial());
        match others.next() {
            None => Self::New,
            Some(look) => {
                Self::Occupied { documents: 1 + others.count(), such_as: look.path.clone() }
            }
        }
    }
}

/// What forgetting changed in a file, or would change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScrubbedFile {
    /// Relative to the root of the store.
    pub path: String,
    pub outcome: ScrubOutcome,
    /// The versions before and after.
    pub versions: (ContentVersion, ContentVersion),
}

/// What forgetting did with one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScrubOutcome {
    /// This many lines were redacted.
    Changed(usize),
    /// The file was removed.
    Removed,
    /// The file does not belong to the store and still has the text.
    Untouched,
}

/// Work on a store as a whole.
#[async_trait]
pub trait Maintenance: Send + Sync {
    /// Removes the text to be forgotten from every file and deletes derived data that can be
    /// rebuilt. With `dry`, only reports. Calling it again completes an interrupted run.
    async fn scrub(&self, scrub: &Scrub, dry: bool) -> Result<Vec<ScrubbedFile>>;

    /// Checks whether the derived data agrees with the stored data.
    async fn inspect(&self) -> Result<Vec<IntegrityFinding>>;

    /// Rebuilds all derived data and returns the number of events it covers.
    async fn rebuild(&self, progress: Progress<'_>) -> Result<usize>;

    /// The repairs made when the store was opened, as sentences, oldest first.
    async fn opening_repairs(&self) -> Vec<String>;

    /// Prepares the store as the target of a restore and reports what it holds. An occupied store
    /// stays unchanged. Otherwise other processes are kept out until the restore ends, where the
    /// backend can do that.
    async fn begin_restore(&self) -> Result<RestoreTarget>;

    /// Ends a restore: the memory is complete.
    async fn finish_restore(&self) -> Result<()>;

    /// Ends a failed restore, so that the next attempt need not wait.
    async fn abort_restore(&self) -> Result<()>;
}
