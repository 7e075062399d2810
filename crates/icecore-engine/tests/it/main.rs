//! The engine on a real vault: stories that span days, and every operation stopped at each of its
//! writes.
#![allow(clippy::disallowed_methods, reason = "these tests write files as other programs would")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails loudly")]

mod branches;
mod cascade;
mod consolidation;
mod converse;
mod embed;
mod foreign;
mod insights;
mod interrupted_writes;
mod llm;
mod memory_tool;
mod poison;
mod prompts;
mod scripted;
mod search;
mod store_parity;
mod stories;
mod transfer;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use icecore_engine::clock::FixedClock;
use icecore_engine::{Memory, RememberRequest};
use icecore_store::prelude::*;
use icecore_store::testing::FailingStore;
use icecore_store::vault::Vault;
use pollster::block_on;
use tempfile::TempDir;

pub(crate) const MORNING: &str = "2026-02-13T09:30:00+01:00";

/// A vault in a temporary folder.
pub(crate) struct TestVault {
    _folder: TempDir,
    pub(crate) root: PathBuf,
}

impl TestVault {
    pub(crate) fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let root = folder.path().join("vault");
        Vault::create(&root, "zone = \"Europe/Berlin\"\n").unwrap();
        Self { _folder: folder, root }
    }

    /// Opens its memory at that moment.
    pub(crate) fn at(&self, now: &str) -> Memory {
        self.memory(Arc::new(Vault::open(&self.root).unwrap()), now)
    }

    /// Like `at`, with a store that fails after so many writes.
    pub(crate) fn stopping(&self, writes: usize) -> Memory {
        self.memory(Arc::new(FailingStore::new(Vault::open(&self.root).unwrap(), writes)), MORNING)
    }

    fn memory(&self, store: Arc<dyn Store>, now: &str) -> Memory {
        let clock = Box::new(FixedClock(now.parse().unwrap()));
        block_on(Memory::open(store, Arc::new(Vault::open(&self.root).unwrap()), clock)).unwrap()
    }

    pub(crate) fn write(&self, path: &str, text: &str) {
        let place = self.root.join(path);
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        fs::write(place, text).unwrap();
    }

    pub(crate) fn read(&self, path: &str) -> String {
        fs::read_to_string(self.root.join(path)).unwrap_or_default()
    }

    /// Every file with its text, except derived, private and git files.
    pub(crate) fn files(&self) -> Vec<(String, String)> {
        let mut found = Vec::new();
        collect(&self.root, &self.root, &mut found);
        found.sort();
        found
    }
}

pub(crate) fn collect(root: &Path, folder: &Path, found: &mut Vec<(String, String)>) {
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if entry.file_name() == ".git" || entry.file_name() == ".icecore" {
            continue;
        }
        if path.is_dir() {
            collect(root, &path, found);
        } else {
            let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
            found.push((name, String::from_utf8_lossy(&fs::read(&path).unwrap()).into_owned()));
        }
    }
}

pub(crate) fn statement(text: &str) -> RememberRequest {
    RememberRequest { text: text.into(), ..RememberRequest::default() }
}
