//! Copies of whole memories: byte for byte, never over another one, complete or not at all.

use std::io::{Cursor, Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use icecore_domain::layout::{self, DocPath};
use icecore_domain::secrets::MarkerKey;
use icecore_engine::{Error, back_up, check_backup, restore_backup, transfer};
use icecore_store::postgres::{Postgres, PostgresOptions};
use icecore_store::prelude::*;
use icecore_store::testing::cluster::{Durability, TestCluster};
use icecore_store::vault::Vault;
use icecore_store::{Error as StoreError, ErrorKind as StoreErrorKind, Progress, RestoreTarget};
use pollster::block_on;
use tempfile::TempDir;

fn vault(folder: &TempDir, name: &str) -> Vault {
    Vault::create(&folder.path().join(name), "zone = \"UTC\"\n").unwrap()
}

fn path(text: &str) -> DocPath {
    text.parse().unwrap()
}

fn everything(store: &dyn Store) -> Vec<(DocPath, Vec<u8>)> {
    block_on(async {
        let mut all = vec![(path(layout::LEDGER), store.ledger().await.unwrap().bytes)];
        for path in store.documents("").await.unwrap() {
            let bytes = store.document(&path).await.unwrap().unwrap();
            all.push((path, bytes));
        }
        all
    })
}

fn create_filled_vault(folder: &TempDir) -> Vault {
    let vault = vault(folder, "from");
    block_on(async {
        // Odd bytes stay unchanged: no line break at the end, empty, not text.
        vault.append_lines(b"not an event\n{\"odd\": 1 }\r\n").await.unwrap();
        vault.put(&path("knowledge/entities/apollo.md"), b"no end").await.unwrap();
        vault
            .put(&path("memory/messages/2026-02-13.jsonl"), b"{\"conversation\":\"c\"}\n")
            .await
            .unwrap();
        vault
            .put(&path("conversations/trip-00000000/artifacts/a.bin"), b"\0\xff\r\n")
            .await
            .unwrap();
        vault.put(&path("memory/2026-02-13.md"), b"").await.unwrap();
    });
    vault
}

const QUIET: Progress<'static> = &|_, _| {};

// P8
#[test]
fn a_memory_moves_byte_for_byte_and_never_over_another() {
    let folder = TempDir::new().unwrap();
    let (from, to) = (create_filled_vault(&folder), vault(&folder, "to"));
    // The key of the secret marks is copied too, also over an existing one.
    let key = MarkerKey::new([3; 32]);
    block_on(from.set_marker_key(&key, true)).unwrap();
    block_on(to.set_marker_key(&MarkerKey::new([4; 32]), true)).unwrap();
    let carried = block_on(transfer(&from, &to, QUIET)).unwrap();
    assert_eq!(everything(&from), everything(&to));
    assert_eq!(block_on(to.marker_key()).unwrap(), Some(key));
    assert_eq!(carried.documents, everything(&to).len());
    assert!(matches!(block_on(transfer(&from, &to, QUIET)), Err(Error::AlreadyExists(_))));
    // An interrupted copy is started again.
    block_on(to.put_note(&path("filling"), b"begun\n")).unwrap();
    block_on(to.put(&path("recall/pack.md"), b"left behind")).unwrap();
    block_on(transfer(&from, &to, QUIET)).unwrap();
    assert_eq!(everything(&from), everything(&to));
}

// P8
#[test]
fn a_backup_comes_back_whole_or_not_at_all() {
    let folder = TempDir::new().unwrap();
    let from = create_filled_vault(&folder);
    let key = MarkerKey::new([5; 32]);
    block_on(from.set_marker_key(&key, true)).unwrap();
    let mut file = Cursor::new(Vec::new());
    let made = block_on(back_up(&from, "test", "2026-02-13T09:00:00Z", &mut file, QUIET)).unwrap();
    let checked = check_backup(&mut file, QUIET).unwrap();
    assert_eq!((checked.holds.clone(), checked.odd_lines), (made, 2));
    let to = vault(&folder, "to");
    assert_eq!(block_on(restore_backup(&mut file, &to, QUIET)).unwrap(), checked.holds);
    assert_eq!(everything(&from), everything(&to));
    assert_eq!(block_on(to.marker_key()).unwrap(), Some(key));
    // Any changed byte is detected, and then nothing is written.
    let sound = file.into_inner();
    let mut empty = vault(&folder, "empty-0");
    let before = everything(&empty);
    let mut unnoticed = 0;
    for at in (0..sound.len()).step_by(7) {
        let mut broken = sound.clone();
        broken[at] ^= 0x55;
        match block_on(restore_backup(Cursor::new(&broken), &empty, QUIET)) {
            Err(_) => assert_eq!(everything(&empty), before),
            // A byte of the container without meaning, such as a date.
            Ok(_) => {
                unnoticed += 1;
                assert_eq!(everything(&from), everything(&empty));
                empty = vault(&folder, &format!("empty-{unnoticed}"));
            }
        }
    }
    assert!(unnoticed < sound.len() / 7 / 2, "{unnoticed} of {}", sound.len() / 7);
    for cut in [0, 1, sound.len() / 2, sound.len() - 1] {
        assert!(check_backup(Cursor::new(&sound[..cut]), QUIET).is_err());
    }
}

// P8
#[test]
fn what_is_written_meanwhile_is_copied_again() {
    let folder = TempDir::new().unwrap();
    let from = create_filled_vault(&folder);
    let mut file = Cursor::new(Vec::new());
    let once = AtomicBool::new(false);
    let disturb = |done: u64, _: u64| {
        if done == 3 && !once.swap(true, Ordering::Relaxed) {
            block_on(from.put(&path("knowledge/entities/apollo.md"), b"other words\n")).unwrap();
            block_on(from.put(&path(".gitignore"), b"other\n")).unwrap();
            block_on(from.remove(&path("memory/2026-02-13.md"))).unwrap();
        }
    };
    block_on(back_up(&from, "test", "2026-02-13T09:00:00Z", &mut file, &disturb)).unwrap();
    let to = vault(&folder, "to");
    block_on(restore_backup(&mut file, &to, QUIET)).unwrap();
    assert_eq!(everything(&from), everything(&to));
}

/// A backup with another manifest, and its documents under other names if wanted.
fn rewritten(
    backup: &[u8],
    manifest: impl Fn(&mut serde_json::Value),
    named: impl Fn(&str) -> String,
) -> Vec<u8> {
    let mut from = zip::ZipArchive::new(Cursor::new(backup)).unwrap();
    let mut to = zip::ZipWriter::new(Cursor::new(Vec::new()));
    for at in 0..from.len() {
        let mut entry = from.by_index(at).unwrap();
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes).unwrap();
        let mut name = entry.name().unwrap().into_owned();
        if name == "manifest.json" {
            let mut told = serde_json::from_slice(&bytes).unwrap();
            manifest(&mut told);
            bytes = serde_json::to_vec(&told).unwrap();
        } else {
            name = named(&name);
        }
        to.start_file(name, zip::write::SimpleFileOptions::default()).unwrap();
        to.write_all(&bytes).unwrap();
    }
    to.finish().unwrap().into_inner()
}

fn backed_up(from: &Vault) -> Vec<u8> {
    let mut file = Cursor::new(Vec::new());
    block_on(back_up(from, "test", "2026-02-13T09:00:00Z", &mut file, QUIET)).unwrap();
    file.into_inner()
}

// P8
#[test]
fn a_document_may_be_called_like_anything_in_a_backup() {
    let folder = TempDir::new().unwrap();
    let from = create_filled_vault(&folder);
    for name in [
        "manifest.json",
        "documents/manifest.json",
        "later/1/manifest.json",
        "documents/icecore.toml",
    ] {
        block_on(from.put(&path(name), name.as_bytes())).unwrap();
    }
    let (backup, to) = (backed_up(&from), vault(&folder, "to"));
    block_on(restore_backup(Cursor::new(&backup), &to, QUIET)).unwrap();
    assert_eq!(everything(&from), everything(&to));
    // The first backup format had the documents next to the manifest, under their own paths.
    for name in [
        "manifest.json",
        "documents/manifest.json",
        "later/1/manifest.json",
        "documents/icecore.toml",
    ] {
        block_on(from.remove(&path(name))).unwrap();
    }
    let unnamed = |told: &mut serde_json::Value| {
        told["documents"]
            .as_array_mut()
            .unwrap()
            .iter_mut()
            .for_each(|kept| drop(kept.as_object_mut().unwrap().remove("entry")));
    };
    let first = rewritten(&backed_up(&from), unnamed, |name| {
        name.strip_prefix("documents/").unwrap().to_owned()
    });
    let again = vault(&folder, "again");
    block_on(restore_backup(Cursor::new(&first), &again, QUIET)).unwrap();
    assert_eq!(everything(&from), everything(&again));
}

// P8
#[test]
fn what_a_backup_says_of_itself_is_not_believed_without_end() {
    let folder = TempDir::new().unwrap();
    let from = create_filled_vault(&folder);
    let backup = backed_up(&from);
    let said = |change: &dyn Fn(&mut serde_json::Value)| {
        let to = vault(&folder, &format!("to-{}", folder.path().read_dir().unwrap().count()));
        let changed = rewritten(&backup, |told| change(&mut told["documents"]), str::to_owned);
        let error =
            block_on(restore_backup(Cursor::new(&changed), &to, QUIET)).unwrap_err().to_string();
        assert_eq!(check_backup(Cursor::new(&changed), QUIET).unwrap_err().to_string(), error);
        error
    };
    let large = said(&|documents| documents[0]["bytes"] = (2_u64 << 30).into());
    assert!(large.contains("the maximum is 1073741824"), "{large}");
    let largest = said(&|documents| documents[0]["bytes"] = u64::MAX.into());
    assert!(largest.contains("the maximum is"), "{largest}");
    // The same entry again and again, each time unpacked.
    let many = said(&|documents| {
        documents[0]["bytes"] = (1_u64 << 20).into();
        let first = documents[0].clone();
        documents.as_array_mut().unwrap().extend(std::iter::repeat_n(first, 1_000));
    });
    assert!(many.contains("times as many"), "{many}");
    for bytes in [0_u64, 1 << 20] {
        let other = said(&|documents| documents[0]["bytes"] = bytes.into());
        assert!(other.contains("has changed since the backup was made"), "{other}");
    }
}

// P8
#[test]
fn what_is_brought_into_a_database_is_used_by_nobody_before_it_is_whole() {
    let folder = TempDir::new().unwrap();
    let from = create_filled_vault(&folder);
    let cluster = TestCluster::start(Durability::Unflushed);
    let [here, there] =
        [(); 2].map(|()| Postgres::for_url(&cluster.url(), PostgresOptions::default()).unwrap());
    block_on(async {
        here.migrate().await.unwrap();
        let policy = "zone = \"UTC\"\n";
        let to = here.create_restore_target("ann", policy).await.unwrap();
        let tried = AtomicBool::new(false);
        let meanwhile = |_, _| {
            block_on(async {
                // A server that has a chat to store, and a second restore of the same backup.
                assert!(matches!(
                    there.open_space("ann").await,
                    Err(StoreError { kind: StoreErrorKind::RestoreInProgress, .. })
                ));
                let second = there.create_restore_target("ann", policy).await.unwrap();
                let put = second.put(&path("memory/messages/2026-02-13.jsonl"), b"a chat\n").await;
                assert!(
                    matches!(put, Err(StoreError { kind: StoreErrorKind::RestoreInProgress, .. })),
                    "{put:?}"
                );
                assert!(matches!(
                    transfer(&from, second.as_ref(), QUIET).await,
                    Err(Error::Store(StoreError { kind: StoreErrorKind::RestoreInProgress, .. }))
                ));
            });
            tried.store(true, Ordering::Relaxed);
        };
        transfer(&from, to.as_ref(), &meanwhile).await.unwrap();
        assert!(tried.load(Ordering::Relaxed));
        let space = there.open_space("ann").await.unwrap().unwrap();
        assert_eq!(everything(&from), everything(space.as_ref()));
        // From now on acknowledged messages stay, and further restores are refused.
        space.put(&path("knowledge/new.md"), b"kept").await.unwrap();
        let again = here.create_restore_target("ann", policy).await.unwrap();
        assert!(matches!(
            transfer(&from, again.as_ref(), QUIET).await,
            Err(Error::AlreadyExists(_))
        ));
        assert_eq!(space.document(&path("knowledge/new.md")).await.unwrap().unwrap(), b"kept");
        // A backup that turns out to be broken halfway leaves nothing to wait for.
        let mut file = Cursor::new(Vec::new());
        back_up(&from, "a vault", "now", &mut file, QUIET).await.unwrap();
        let ben = here.create_restore_target("ben", policy).await.unwrap();
        assert_eq!(ben.begin_restore().await.unwrap(), RestoreTarget::New);
        ben.put(&path("knowledge/half.md"), b"half").await.unwrap();
        ben.abort_restore().await.unwrap();
        let again = there.create_restore_target("ben", policy).await.unwrap();
        restore_backup(&mut file, again.as_ref(), QUIET).await.unwrap();
        assert_eq!(
            everything(&from),
            everything(here.open_space("ben").await.unwrap().unwrap().as_ref())
        );
    });
}
