//! Snapshots, and repositories with settings that would run programs.

use std::fs;
use std::path::Path;
use std::process::Command;

use icecore_store::prelude::*;
use icecore_store::vault::Vault;
use icecore_store::{Error, ErrorKind, MergeOutcome};
use jiff::Timestamp;
use pollster::block_on;

use crate::vault::{draft, new_vault};

fn now() -> Timestamp {
    "2026-02-13T09:30:00Z".parse().unwrap()
}

fn git(root: &Path, arguments: &[&str]) -> String {
    let output = Command::new("git").current_dir(root).args(arguments).output().unwrap();
    assert!(
        output.status.success(),
        "git {arguments:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

// L16
#[test]
fn a_snapshot_is_a_commit_and_knows_what_changed_since() {
    let (_folder, vault) = new_vault();
    let page = "knowledge/entities/apollo.md".parse().unwrap();
    block_on(vault.put(&page, b"first\r\n")).unwrap();
    let first = block_on(vault.create_snapshot("first", now())).unwrap().unwrap();
    assert_eq!(block_on(vault.create_snapshot("nothing new", now())).unwrap(), None);
    block_on(vault.put(&page, b"second\n")).unwrap();
    block_on(vault.put(&"recall/pack.md".parse().unwrap(), b"pack")).unwrap();
    block_on(vault.append(vec![draft("one")], None)).unwrap();
    block_on(vault.create_snapshot("second", now())).unwrap().unwrap();
    let notes: Vec<String> =
        block_on(vault.snapshots(10)).unwrap().into_iter().map(|snapshot| snapshot.note).collect();
    assert_eq!(notes, ["second", "first"]);
    let changes = block_on(vault.changes_since(&first.id)).unwrap();
    let changes: Vec<(&str, Option<&[u8]>)> =
        changes.iter().map(|(path, then)| (path.as_str(), then.as_deref())).collect();
    assert_eq!(
        changes,
        [
            ("knowledge/entities/apollo.md", Some(b"first\r\n".as_slice())),
            ("memory/ledger.jsonl", Some(b"".as_slice())),
            ("recall/pack.md", None),
        ]
    );
    let versions =
        |path: &str| block_on(vault.document_versions(&path.parse().unwrap(), 10)).unwrap();
    let notes: Vec<String> = versions("knowledge/entities/apollo.md")
        .into_iter()
        .map(|snapshot| snapshot.note)
        .collect();
    assert_eq!(notes, ["second", "first"]);
    assert_eq!(versions("recall/pack.md").len(), 1);
    assert!(versions("recall/nothing.md").is_empty());
    let then = |id: &str, path: &str| block_on(vault.document_at(id, &path.parse().unwrap()));
    assert_eq!(
        then(&first.id, "knowledge/entities/apollo.md").unwrap().as_deref(),
        Some(b"first\r\n".as_slice())
    );
    assert_eq!(then(&first.id[..12], "recall/pack.md").unwrap(), None);
    for odd in ["--output=x", "HEAD", "", "0000000"] {
        assert!(then(odd, "recall/pack.md").is_err(), "{odd}");
    }
    assert!(block_on(vault.changes_since("--output=x")).is_err());
    assert!(block_on(vault.changes_since("0000000")).is_err());
    let tracked = git(vault.root(), &["ls-files"]);
    assert!(!tracked.contains(".icecore/"), "{tracked}");
}

// L16: snapshots take little space and are complete
#[test]
fn snapshots_are_packed_and_lose_nothing() {
    let (_folder, vault) = new_vault();
    let page = "knowledge/entities/apollo.md".parse().unwrap();
    let text = |n: usize| {
        (0..n)
            .map(|line| format!("- line {line} of what is known, {:x}\n", line * 7_919))
            .collect::<String>()
    };
    let mut kept = Vec::new();
    for n in 0..30 {
        block_on(vault.put(&page, text(3_000 + n).as_bytes())).unwrap();
        kept.push(block_on(vault.create_snapshot(&format!("night {n}"), now())).unwrap().unwrap());
        if n % 10 == 9 {
            block_on(vault.pack()).unwrap();
        }
    }
    let counted = git(vault.root(), &["count-objects", "-v"]);
    let figure = |name: &str| {
        let line =
            counted.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": ")).unwrap();
        line.parse::<usize>().unwrap()
    };
    assert_eq!(figure("count"), 0, "{counted}");
    assert!(figure("size-pack") < 3 * text(3_000).len() / 1_024, "{counted}");
    for (n, snapshot) in kept.iter().enumerate() {
        assert_eq!(
            block_on(vault.document_at(&snapshot.id, &page)).unwrap().unwrap(),
            text(3_000 + n).as_bytes()
        );
    }
    git(vault.root(), &["fsck", "--strict"]);
    block_on(vault.pack()).unwrap();
}

// L16
#[test]
fn a_snapshot_leaves_git_nothing_to_do_and_ends_a_merge() {
    let (_folder, vault) = new_vault();
    block_on(vault.append(vec![draft("one")], None)).unwrap();
    let first = block_on(vault.create_snapshot("first", now())).unwrap().unwrap();
    let head = |format: &str| {
        git(vault.root(), &["log", "-1", &format!("--format={format}")]).trim().to_owned()
    };
    assert_eq!(
        head("%H|%P|%s|%an|%ct"),
        format!("{}||first|icecore|{}", first.id, now().as_second())
    );
    assert_eq!(git(vault.root(), &["status", "--porcelain"]), "");
    assert_eq!(git(vault.root(), &["log", "-g", "--format=%gs"]), "commit (initial): first\n");
    let tree = head("%T");
    let who = ["-c", "user.name=x", "-c", "user.email=x@localhost"];
    let other = git(vault.root(), &[&who[..], &["commit-tree", "-m", "other", &tree]].concat());
    fs::write(vault.root().join(".git/MERGE_HEAD"), &other).unwrap();
    block_on(vault.append(vec![draft("two")], None)).unwrap();
    block_on(vault.create_snapshot("second", now())).unwrap().unwrap();
    assert_eq!(head("%P|%s"), format!("{} {}|second", first.id, other.trim()));
    assert!(!vault.root().join(".git/MERGE_HEAD").exists());
}

#[test]
fn a_hostile_repository_runs_nothing() {
    let canary_settings = |canary: &str| {
        [
            ("core.fsmonitor", canary.to_owned()),
            ("core.sshCommand", canary.to_owned()),
            ("core.editor", canary.to_owned()),
            ("core.pager", canary.to_owned()),
            ("core.askPass", canary.to_owned()),
            ("core.gitProxy", canary.to_owned()),
            ("core.alternateRefsCommand", canary.to_owned()),
            ("core.worktree", "/".to_owned()),
            ("diff.external", canary.to_owned()),
            ("diff.evil.textconv", canary.to_owned()),
            ("diff.evil.command", canary.to_owned()),
            ("filter.evil.clean", canary.to_owned()),
            ("filter.evil.smudge", canary.to_owned()),
            ("filter.evil.process", canary.to_owned()),
            ("merge.evil.driver", canary.to_owned()),
            ("gpg.program", canary.to_owned()),
            ("commit.gpgSign", "true".to_owned()),
            ("credential.helper", format!("!{canary}")),
            ("remote.origin.uploadpack", canary.to_owned()),
            ("remote.origin.promisor", "true".to_owned()),
            ("include.path", "evil.config".to_owned()),
            ("alias.add", format!("!{canary}")),
            ("uploadpack.packObjectsHook", canary.to_owned()),
            ("sequence.editor", canary.to_owned()),
            ("extensions.partialClone", "origin".to_owned()),
        ]
    };
    let folder = tempfile::TempDir::new().unwrap();
    let (canary, ran) = (folder.path().join("canary"), folder.path().join("ran"));
    fs::write(&canary, format!("#!/bin/sh\ntouch {}\n", ran.display())).unwrap();
    Command::new("chmod").args(["+x", canary.to_str().unwrap()]).status().unwrap();
    let canary = canary.to_str().unwrap();
    for (key, value) in canary_settings(canary) {
        let (_folder, vault) = new_vault();
        block_on(vault.create_snapshot("before", now())).unwrap();
        fs::write(vault.root().join(".gitattributes"), "* filter=evil diff=evil merge=evil\n")
            .unwrap();
        git(vault.root(), &["config", "--local", key, &value]);
        block_on(vault.append(vec![draft("one")], None)).unwrap();
        match block_on(vault.create_snapshot("after", now())) {
            Err(error) if error.kind == ErrorKind::UntrustedRepository => {
                let (named, key) = (error.to_string().to_lowercase(), key.to_lowercase());
                assert!(named.contains(&format!("sets `{key}`")), "{named} for {key}")
            }
            other => panic!("{key}: {other:?}"),
        }
        assert!(
            matches!(
                block_on(vault.snapshots(9)),
                Err(Error { kind: ErrorKind::UntrustedRepository, .. })
            ),
            "{key}"
        );
        assert!(
            matches!(
                block_on(vault.changes_since("abcd")),
                Err(Error { kind: ErrorKind::UntrustedRepository, .. })
            ),
            "{key}"
        );
        assert!(!ran.exists(), "{key} ran a program");
    }
    // A repository within the vault has its own settings.
    for staged in [false, true] {
        let (_folder, vault) = new_vault();
        let inner = vault.root().join("memory/sub");
        fs::create_dir_all(&inner).unwrap();
        git(&inner, &["init", "-q", "."]);
        fs::write(inner.join("file"), "x").unwrap();
        git(&inner, &["add", "."]);
        git(&inner, &["-c", "user.name=x", "-c", "user.email=x@x", "commit", "-qm", "x"]);
        if staged {
            git(vault.root(), &["add", "memory/sub"]);
        }
        fs::write(inner.join(".gitattributes"), "* filter=evil\n").unwrap();
        git(&inner, &["config", "filter.evil.clean", canary]);
        git(&inner, &["config", "core.fsmonitor", canary]);
        fs::write(inner.join("file"), "changed").unwrap();
        assert!(matches!(
            block_on(vault.create_snapshot("x", now())),
            Err(Error { kind: ErrorKind::UntrustedRepository, .. })
        ));
        if staged {
            // Even if the folder is gone, the index still contains it.
            fs::remove_dir_all(&inner).unwrap();
            assert!(matches!(
                block_on(vault.create_snapshot("x", now())),
                Err(Error { kind: ErrorKind::UntrustedRepository, .. })
            ));
        }
        assert!(!ran.exists(), "a submodule ran a program");
    }
    // Hooks need no setting.
    let (_folder, vault) = new_vault();
    fs::create_dir_all(vault.root().join(".git/hooks")).unwrap();
    for hook in [
        "pre-commit",
        "commit-msg",
        "prepare-commit-msg",
        "post-commit",
        "post-index-change",
        "reference-transaction",
        "fsmonitor-watchman",
    ] {
        fs::copy(canary, vault.root().join(".git/hooks").join(hook)).unwrap();
    }
    block_on(vault.append(vec![draft("one")], None)).unwrap();
    block_on(vault.create_snapshot("with hooks", now())).unwrap().unwrap();
    assert!(!ran.exists(), "a hook ran");
    // The canary does run when git is used without precautions.
    let _ = Command::new("git")
        .current_dir(vault.root())
        .args(["-c", "user.name=x", "-c", "user.email=x@x", "commit", "--allow-empty", "-qm", "x"])
        .status();
    assert!(ran.exists(), "the canary is mute, so this test proves nothing");
}

#[test]
fn a_repository_that_init_did_not_make_is_left_alone() {
    let folder = tempfile::TempDir::new().unwrap();
    git(folder.path(), &["init", "-q", "."]);
    let vault = Vault::create(folder.path(), "zone = \"UTC\"\n").unwrap();
    assert!(block_on(vault.opening_repairs())[0].contains("repository already"));
    assert!(matches!(
        block_on(vault.create_snapshot("x", now())),
        Err(Error { kind: ErrorKind::UntrustedRepository, .. })
    ));
    // A repository elsewhere is not the vault's.
    let (folder, vault) = new_vault();
    let elsewhere = folder.path().join("elsewhere");
    fs::rename(vault.root().join(".git"), &elsewhere).unwrap();
    fs::write(vault.root().join(".git"), format!("gitdir: {}\n", elsewhere.display())).unwrap();
    assert!(matches!(
        block_on(vault.create_snapshot("x", now())),
        Err(Error { kind: ErrorKind::Link, .. })
    ));
}

// A repository whose swap was interrupted is restored by a repair, not created again
#[test]
fn a_repair_brings_back_the_repository_that_was_being_exchanged() {
    let (_folder, vault) = new_vault();
    block_on(vault.append(vec![draft("one")], None)).unwrap();
    block_on(vault.create_snapshot("first", now())).unwrap().unwrap();
    let apart = vault.root().join(".icecore/new-repository");
    fs::create_dir(&apart).unwrap();
    fs::rename(vault.root().join(".git"), apart.join(".git.old")).unwrap();
    block_on(vault.repair()).unwrap();
    assert_eq!(block_on(vault.snapshots(9)).unwrap().len(), 1);
    assert!(!apart.exists());
}

// A primer that a person saves here after the snapshot, and that was edited on the other machine
// too, waits for a decision
#[test]
fn a_primer_edited_on_both_sides_of_a_merge_stays_open() {
    let (folder, vault) = new_vault();
    let primer = "primers/daily/2026-02-12.md";
    let write = |root: &Path, text: &str| {
        fs::create_dir_all(root.join(primer).parent().unwrap()).unwrap();
        fs::write(root.join(primer), text).unwrap();
    };
    write(vault.root(), "by hand\n");
    block_on(vault.create_snapshot("first", now())).unwrap().unwrap();
    let place = folder.path().join("two");
    git(folder.path(), &["clone", "-q", vault.root().to_str().unwrap(), "two"]);
    let two = Vault::adopt(&place).unwrap().unwrap();
    write(two.root(), "by hand there\n");
    block_on(two.create_snapshot("there", now())).unwrap().unwrap();
    git(vault.root(), &["remote", "add", "two", place.to_str().unwrap()]);
    git(vault.root(), &["fetch", "-q", "two"]);
    let fork = block_on(vault.find_divergence(Some("two/main"))).unwrap();
    write(vault.root(), "by hand here\n");
    match block_on(vault.merge(&fork)).unwrap() {
        MergeOutcome::Conflicted { files, left: true } => assert_eq!(files[0].0, primer),
        other => panic!("{other:?}"),
    }
    assert_eq!(block_on(vault.unfinished_merge()).unwrap().unwrap().conflicts, [primer]);
    assert!(matches!(
        block_on(vault.create_snapshot("too early", now())),
        Err(Error { kind: ErrorKind::UnresolvedMerge, .. })
    ));
    write(vault.root(), "by hand here and there\n");
    git(vault.root(), &["add", primer]);
    block_on(vault.create_snapshot("merged", now())).unwrap().unwrap();
    assert_eq!(git(vault.root(), &["log", "-1", "--format=%P"]).split_whitespace().count(), 2);
    assert_eq!(git(vault.root(), &["status", "--porcelain"]), "");
}
