//! Merging the memories of two machines.

use async_trait::async_trait;
use icecore_domain::layout::DocPath;
use icecore_domain::secrets::MarkerKey;

use crate::{Error, Result};

/// The prefix of the note of a snapshot that completes a merge.
pub const MERGE_NOTE_PREFIX: &str = "merged ";

/// The note of a snapshot that completes a merge made by another program.
pub const RESOLVED_MERGE_NOTE: &str = "settled a merge";

/// The common base of two machines' states, and the lines that decide which ids the other side
/// used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Divergence {
    /// The name of the other side.
    pub name: String,
    /// The commit of the other side.
    pub commit: String,
    /// The other side has nothing new.
    pub is_up_to_date: bool,
    /// We have nothing new, so their state can replace ours.
    pub is_fast_forward: bool,
    /// Their `icecore.toml`.
    pub settings: Option<Vec<u8>>,
    /// The ledger and its archives at the common base.
    pub base: Vec<(DocPath, Vec<u8>)>,
    /// The ledger and its archives on the other side.
    pub theirs: Vec<(DocPath, Vec<u8>)>,
}

/// The result of a merge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MergeOutcome {
    Complete,
    /// Files have conflicts that a person must resolve.
    Conflicted {
        /// The path and the reason.
        files: Vec<(String, Option<String>)>,
        /// Whether the merge waits for the resolution; otherwise nothing changed.
        left: bool,
    },
}

/// A merge that was started and not completed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnfinishedMerge {
    /// The name of the other side, or its commit.
    pub name: String,
    /// Files with unresolved conflicts.
    pub conflicts: Vec<String>,
}

/// Merges with another machine. The defaults are those of a store that cannot.
#[async_trait]
pub trait MachineMerge: Send + Sync {
    /// Steps a person must take before several machines can use this memory. Cheap.
    async fn setup_hints(&self) -> Vec<String> {
        Vec::new()
    }

    /// Whether other machines may have this memory too. Cheap.
    async fn is_shared(&self) -> bool {
        false
    }

    /// Where another machine's state diverged from ours; without a name, that of the upstream
    /// branch.
    async fn find_divergence(&self, other: Option<&str>) -> Result<Divergence> {
        let _ = other;
        Err(Error::no_snapshots("this store cannot merge with other machines".into()))
    }

    /// Merges the other side. The next snapshot completes the merge.
    async fn merge(&self, fork: &Divergence) -> Result<MergeOutcome> {
        let _ = fork;
        Err(Error::no_snapshots("this store cannot merge with other machines".into()))
    }

    /// Completes a merge that was interrupted while its files were written; `None` if there was
    /// none.
    async fn resume_merge(&self) -> Result<Option<MergeOutcome>> {
        Ok(None)
    }

    /// The other machine's marker key, if its vault is a folder of the same user on this machine.
    /// No snapshot carries the key.
    async fn other_marker_key(&self, fork: &Divergence) -> Option<MarkerKey> {
        let _ = fork;
        None
    }

    /// A merge that was started and not completed.
    async fn unfinished_merge(&self) -> Result<Option<UnfinishedMerge>> {
        Ok(None)
    }

    /// The last merge, if another program made it.
    async fn foreign_merge(&self) -> Result<Option<String>> {
        Ok(None)
    }
}
