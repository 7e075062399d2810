//! Merges with the vaults of other machines, through git.

use std::path::Path;

use async_trait::async_trait;
use icecore_domain::secrets::MarkerKey;

use super::Vault;
use super::git::{check_repository, merge, merge_driver};
use crate::{Divergence, MachineMerge, MergeOutcome, Result, UnfinishedMerge};

#[async_trait]
impl MachineMerge for Vault {
    async fn setup_hints(&self) -> Vec<String> {
        merge_driver::setup_hints(self.root())
    }

    async fn is_shared(&self) -> bool {
        merge_driver::is_shared(self.root())
    }

    async fn find_divergence(&self, other: Option<&str>) -> Result<Divergence> {
        merge::find_divergence(self.root(), other)
    }

    async fn merge(&self, fork: &Divergence) -> Result<MergeOutcome> {
        merge::merge(&self.fs, fork)
    }

    async fn resume_merge(&self) -> Result<Option<MergeOutcome>> {
        merge::resume_merge(&self.fs)
    }

    async fn other_marker_key(&self, fork: &Divergence) -> Option<MarkerKey> {
        merge::other_marker_key(self.root(), fork)
    }

    async fn unfinished_merge(&self) -> Result<Option<UnfinishedMerge>> {
        merge::unfinished_merge(&self.fs)
    }

    async fn foreign_merge(&self) -> Result<Option<String>> {
        merge::foreign_merge(self.root())
    }
}

impl Vault {
    /// Sets up a clone of a vault: from now on icecore keeps snapshots in its repository and merges
    /// it. `None` if it is set up already or there is no repository.
    pub fn adopt(root: &Path) -> Result<Option<Self>> {
        let vault = Self::open(root)?;
        if check_repository(vault.root()).is_err() || !merge_driver::adopt_clone(&vault.fs)? {
            return Ok(None);
        }
        Ok(Some(vault))
    }
}
