//! Documents of a vault: its files.

use async_trait::async_trait;
use icecore_domain::hash::Hash;
use icecore_domain::layout::DocPath;

use super::Vault;
use super::vault_fs::{Expected, WriteLock};
use crate::{ContentVersion, DocumentStore, Error, Replacement, Result};

/// The number of locks that all conversations share.
pub(super) const CONVERSATION_LOCK_COUNT: u8 = 16;

#[async_trait]
impl DocumentStore for Vault {
    async fn document(&self, path: &DocPath) -> Result<Option<Vec<u8>>> {
        self.fs.read(path)
    }

    async fn read_tail(&self, path: &DocPath, bytes: u64) -> Result<(Vec<u8>, bool)> {
        let length = self.fs.stat(path)?.map_or(0, |look| look.len);
        if length <= bytes {
            return Ok((self.fs.read(path)?.unwrap_or_default(), true));
        }
        let piece = (length - bytes, usize::try_from(bytes).unwrap_or(usize::MAX));
        let mut text = self.fs.read_pieces(path, &[piece])?.pop().unwrap_or_default();
        let whole = memchr::memchr(b'\n', &text).map_or(text.len(), |at| at + 1);
        Ok((text.split_off(whole), false))
    }

    async fn put(&self, path: &DocPath, bytes: &[u8]) -> Result<()> {
        let held = self.lock_document(path)?;
        self.fs.replace(&held, path, bytes)
    }

    async fn put_many(&self, documents: &[(DocPath, Vec<u8>)]) -> Result<()> {
        let held = self.lock_and_repair()?;
        self.fs.replace_many(&held, documents)
    }

    async fn compare_and_swap(
        &self,
        path: &DocPath,
        bytes: &[u8],
        from: ContentVersion,
    ) -> Result<()> {
        let (held, _conversation) = self.lock_for_swap(path)?;
        self.fs.replace_if(&held, path, bytes, &Expected::Content(from))
    }

    async fn compare_and_swap_many(&self, replacements: &[Replacement]) -> Result<Vec<DocPath>> {
        let held = self.lock_and_repair()?;
        let expected = |one: &Replacement| Expected::Content(one.from);
        let documents: Vec<_> = replacements
            .iter()
            .map(|one| (&one.path, one.bytes.as_slice(), expected(one)))
            .collect();
        let changed = self.fs.replace_many_if(&held, &documents)?;
        Ok(changed.into_iter().map(|at| replacements[at].path.clone()).collect())
    }

    async fn append_to_document(&self, path: &DocPath, bytes: &[u8]) -> Result<()> {
        let held = self.lock_document(path)?;
        self.fs.append(&held, path, bytes).map(|_| ())
    }

    async fn append_if_unchanged(
        &self,
        path: &DocPath,
        bytes: &[u8],
        from: ContentVersion,
    ) -> Result<()> {
        let held = self.lock_document(path)?;
        let moved = || Error::conflict(path.to_string());
        if ContentVersion::of(self.fs.read(path)?.as_deref()) != from {
            return Err(moved());
        }
        self.fs.try_append(&held, path, bytes)?.map(|_| ()).ok_or_else(moved)
    }

    async fn remove(&self, path: &DocPath) -> Result<()> {
        let held = self.lock_document(path)?;
        self.fs.remove(&held, path)
    }

    async fn remove_unchanged(&self, path: &DocPath, from: ContentVersion) -> Result<()> {
        let (held, _conversation) = self.lock_for_swap(path)?;
        self.fs.remove_if(&held, path, &Expected::Content(from))
    }

    async fn remove_empty_folder(&self, path: &DocPath) -> Result<()> {
        let held = self.lock_and_repair()?;
        self.fs.remove_folder(&held, path)
    }
}

impl Vault {
    /// The lock for a document. Conversations have their own locks, so that they wait neither for
    /// each other nor for the ledger; nothing written under the vault's lock touches them.
    pub(super) fn lock_document(&self, path: &DocPath) -> Result<WriteLock> {
        let mut parts = path.as_str().split('/');
        match (parts.next(), parts.next()) {
            (Some("conversations"), Some(folder)) => {
                let share = Hash::of(folder.as_bytes()).as_bytes()[0] % CONVERSATION_LOCK_COUNT;
                self.fs.lock_named(&format!("conversations-{share}.lock"))
            }
            _ => self.lock_and_repair(),
        }
    }

    /// The vault's lock and that of the document: a file that is being swapped must not be removed
    /// as stale.
    pub(super) fn lock_for_swap(&self, path: &DocPath) -> Result<(WriteLock, Option<WriteLock>)> {
        let held = self.lock_and_repair()?;
        let conversation = if path.as_str().starts_with("conversations/") {
            Some(self.lock_document(path)?)
        } else {
            None
        };
        Ok((held, conversation))
    }
}
