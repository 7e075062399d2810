//! Two machines on one vault, with real git between them.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use crate::program::{CommandOutput, Vault, bare, command_output, program};

fn git_said(folder: &Path, arguments: &[&str]) -> CommandOutput {
    let output = bare("git")
        .current_dir(folder)
        .args([
            "-c",
            "user.name=Ann",
            "-c",
            "user.email=ann@example.com",
            "-c",
            "init.defaultBranch=main",
        ])
        .args(arguments)
        .output()
        .unwrap();
    command_output(output)
}

fn git(folder: &Path, arguments: &[&str]) -> String {
    let said = git_said(folder, arguments);
    assert_eq!(said.code, Some(0), "git {arguments:?}: {said:?}");
    said.out
}

/// One vault on two machines, and the repository between them.
struct Machines {
    folder: TempDir,
    one: Vault,
    two: Vault,
}

impl Machines {
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let one = Vault::new();
        one.remember(&["The port is 7431", "--entity", "api"]);
        one.remember(&["Send the offer", "--type", "commitment"]);
        one.ok(&["snapshot", "--note", "begin"]);
        let between = folder.path().join("between.git");
        git(folder.path(), &["init", "-q", "--bare", "between.git"]);
        git(&one.root, &["remote", "add", "origin", between.to_str().unwrap()]);
        git(&one.root, &["push", "-q", "-u", "origin", "main"]);
        let root = folder.path().join("two");
        git(folder.path(), &["clone", "-q", between.to_str().unwrap(), "two"]);
        let two = Vault::at_root(root);
        Self { folder, one, two }
    }

    /// Set up on both.
    fn ready() -> Self {
        let machines = Self::new();
        let said = command_output(
            bare(program()).args(["init", machines.two.root.to_str().unwrap()]).output().unwrap(),
        );
        assert_eq!(said.code, Some(0), "{said:?}");
        assert!(said.out.contains("Set up"), "{said:?}");
        machines
    }

    /// What the user types on each machine.
    fn sync(vault: &Vault) -> CommandOutput {
        git(&vault.root, &["fetch", "-q"]);
        let said = vault.run(&["merge"]);
        assert_eq!(said.code, Some(0), "{said:?}");
        git(&vault.root, &["push", "-q"]);
        said
    }

    /// Both have all of each other's content at that moment.
    fn round(&mut self, now: &str) {
        self.one.at(now);
        self.two.at(now);
        Self::sync(&self.one);
        Self::sync(&self.two);
        Self::sync(&self.one);
    }

    fn check(&self, about: &str) {
        for vault in [&self.one, &self.two] {
            let said = vault.run(&["verify"]);
            assert_eq!(
                said.code,
                Some(0),
                "{about}: {said:?}\n{}",
                vault.read("memory/ledger.jsonl")
            );
        }
        assert_eq!(
            self.one.read("memory/ledger.jsonl"),
            self.two.read("memory/ledger.jsonl"),
            "{about}"
        );
    }
}

/// Where a text occurs in the working files, except git's own.
fn places_of(vault: &Vault, wanted: &str) -> Vec<String> {
    let found = Command::new("grep")
        .args(["-rlia", "--exclude-dir=.git", wanted])
        .arg(&vault.root)
        .output()
        .unwrap();
    String::from_utf8(found.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn machines_that_see_each_other_as_folders_come_to_one_key_for_marks() {
    let one = Vault::new();
    one.remember(&["The port is 7431"]);
    one.ok(&["snapshot"]);
    let folder = TempDir::new().unwrap();
    git(folder.path(), &["clone", "-q", one.root.to_str().unwrap(), "two"]);
    let two = Vault::at_root(folder.path().join("two"));
    assert_eq!(
        command_output(
            bare(program()).args(["init", two.root.to_str().unwrap()]).output().unwrap()
        )
        .code,
        Some(0)
    );
    git(&one.root, &["remote", "add", "two", two.root.to_str().unwrap()]);
    let key = |vault: &Vault| fs::read_to_string(vault.root.join(".icecore/secret.key")).unwrap();
    two.remember(&["Bob drives the night bus"]);
    two.ok(&["snapshot"]);
    let (ours, theirs) = (key(&one), key(&two));
    assert_ne!(ours, theirs);
    for (vault, name) in [(&one, "two"), (&two, "origin")] {
        git(&vault.root, &["fetch", "-q", name]);
        let said = vault.run(&["merge", &format!("{name}/main")]);
        assert_eq!(said.code, Some(0), "{said:?}");
    }
    assert_eq!((key(&one), key(&two)), (ours.clone().min(theirs.clone()), ours.min(theirs)));
    for vault in [&one, &two] {
        let kept = Command::new("git")
            .arg("-C")
            .arg(&vault.root)
            .args(["cat-file", "--batch", "--batch-all-objects"])
            .output()
            .unwrap();
        assert!(!String::from_utf8_lossy(&kept.stdout).contains(key(vault).trim()));
    }
}

#[test]
fn two_machines_come_to_one_memory_round_after_round() {
    let mut machines = Machines::ready();
    let canary = "The harbour gate opens with heron four eleven";
    machines.one.at("2026-02-13T10:00:00+01:00");
    machines.two.at("2026-02-13T10:05:00+01:00");
    // The same numbers for different events; and a reference within each side.
    let here = machines.one.remember(&["Anna runs the harbour office", "--entity", "harbour"]);
    let there = machines.two.remember(&["Bob drives the night bus", "--entity", "bus"]);
    assert_eq!(here, there, "both count up from the same number");
    machines.two.remember(&["Bob drives the late bus", "--supersedes", &there]);
    machines.two.ok(&["log", "bought a map"]);
    machines.one.ok(&["log", "bought a lamp"]);
    machines.one.ok(&["message", "add", canary, "--conversation", "app", "--session", "s1"]);
    machines.two.ok(&[
        "message",
        "add",
        &format!("I heard: {canary}."),
        "--conversation",
        "app",
        "--session",
        "s2",
    ]);
    machines.one.remember(&[canary]);
    machines.round("2026-02-13T11:00:00+01:00");
    machines.check("after both have remembered");
    let contents = machines.one.contents();
    for said in [
        "Anna runs the harbour office",
        "Bob drives the night bus",
        "Bob drives the late bus",
        canary,
    ] {
        assert_eq!(
            contents.iter().filter(|content| *content == said).count(),
            1,
            "{said}: {contents:?}"
        );
    }
    let late = machines.one.json(&["events", "late bus"]);
    let replaced = late["events"][0]["supersedes"]
        .as_str()
        .map(str::to_owned)
        .unwrap_or_else(|| late["events"][0]["supersedes"][0].as_str().unwrap().to_owned());
    let ledger = machines.one.read("memory/ledger.jsonl");
    let night =
        ledger.lines().find(|line| line.contains(&format!("\"id\":\"{replaced}\""))).unwrap();
    assert!(night.contains("Bob drives the night bus"), "the reference moved along: {ledger}");
    let log = machines.two.read("memory/2026-02-13.md");
    assert!(log.contains("bought a map") && log.contains("bought a lamp"), "{log}");

    // One closes and compacts what the other keeps; the other forgets what the first still has.
    let offer =
        machines.one.json(&["commitments"])["commitments"][0]["id"].as_str().unwrap().to_owned();
    machines.one.ok(&["close", &offer, "--note", "sent"]);
    machines.one.at("2026-02-20T10:00:00+01:00").ok(&["compact"]);
    machines.one.ok(&["consolidate"]);
    machines.two.at("2026-02-20T10:10:00+01:00");
    machines.two.ok(&["forget", "--matching", canary, "--yes"]);
    machines.two.remember(&["The lamp is in the cellar", "--entity", "lamp"]);
    machines.one.remember(&["The map is in the car", "--entity", "map"]);
    machines.one.ok(&["snapshot"]);
    machines.round("2026-02-20T11:00:00+01:00");
    machines.check("after compaction and forgetting");
    let archive = machines.two.read("memory/ledger-archive-2026.jsonl")
        + &machines.two.read("memory/ledger.jsonl");
    assert_eq!(
        archive.matches(&format!("\"id\":\"{offer}\"")).count(),
        1,
        "moved out once, and only there: {archive}"
    );
    assert!(machines.two.read("memory/ledger-archive-2026.jsonl").contains(&offer), "{archive}");
    for vault in [&machines.one, &machines.two] {
        assert_eq!(places_of(vault, "heron four"), Vec::<String>::new());
        let contents = vault.contents();
        assert!(
            contents.iter().any(|said| said == "The lamp is in the cellar")
                && contents.iter().any(|said| said == "The map is in the car")
        );
    }

    // Both compact, both continue; a second round changes nothing.
    for vault in [&mut machines.one, &mut machines.two] {
        vault.at("2026-03-20T10:00:00+01:00");
        vault.remember(&["A day like any other"]);
        vault.ok(&["compact"]);
    }
    machines.round("2026-03-20T11:00:00+01:00");
    machines.check("after both have compacted");
    let before = machines.one.read("memory/ledger.jsonl");
    let commit = |vault: &Vault| git(&vault.root, &["rev-parse", "HEAD"]);
    machines.round("2026-03-20T11:30:00+01:00");
    let at = commit(&machines.one);
    for vault in [&machines.one, &machines.two] {
        let said = Machines::sync(vault);
        assert!(said.out.contains("has nothing new"), "{said:?}");
    }
    assert_eq!(
        (commit(&machines.one), commit(&machines.two)),
        (at.clone(), at),
        "nothing new makes nothing new"
    );
    machines.check("once more");
    assert_eq!(machines.one.read("memory/ledger.jsonl"), before);
    drop(machines.folder);
}

#[test]
fn git_alone_merges_what_it_can_and_refuses_the_rest() {
    let mut machines = Machines::ready();
    machines.one.at("2026-02-14T10:00:00+01:00").remember(&["Said on a day of its own"]);
    machines.one.ok(&["snapshot"]);
    git(&machines.one.root, &["push", "-q"]);
    machines.two.at("2026-02-15T10:00:00+01:00").remember(&["Said on another day"]);
    machines.two.ok(&["snapshot"]);
    // No id is assigned twice, so the driver can do it.
    git(&machines.two.root, &["pull", "-q", "--no-rebase", "--no-edit"]);
    assert_eq!(machines.two.contents().len(), 4);
    let said = machines.two.run(&["verify"]);
    assert!(said.out.contains("doctor --fix"), "{said:?}");
    machines.two.ok(&["doctor", "--fix"]);
    machines.two.ok(&["verify"]);
    machines.two.ok(&["snapshot"]);
    git(&machines.two.root, &["push", "-q"]);
    machines.one.at("2026-02-15T11:00:00+01:00");
    Machines::sync(&machines.one);
    machines.check("after git alone");

    // The same id for two events: refused, with advice.
    machines.one.at("2026-02-16T10:00:00+01:00").remember(&["Mine"]);
    machines.one.ok(&["snapshot"]);
    git(&machines.one.root, &["push", "-q"]);
    machines.two.at("2026-02-16T10:00:00+01:00").remember(&["Yours"]);
    machines.two.ok(&["snapshot"]);
    let said = git_said(&machines.two.root, &["pull", "-q", "--no-rebase", "--no-edit"]);
    assert_ne!(said.code, Some(0));
    assert!(
        said.err.contains("EVT-20260216-001") && said.err.contains("icecore merge"),
        "{said:?}"
    );
    assert!(!machines.two.read("memory/ledger.jsonl").contains("<<<<"));
    // A snapshot now would end the merge with one side of it.
    let refused = machines.two.run(&["snapshot"]);
    assert_eq!(refused.code, Some(4), "{refused:?}");
    assert!(
        machines.two.run(&["status"]).out.contains("a merge is not completed"),
        "{:?}",
        machines.two.run(&["status"])
    );
    git(&machines.two.root, &["merge", "--abort"]);
    machines.round("2026-02-16T11:00:00+01:00");
    machines.check("after the refusal");
}

#[test]
fn a_clone_that_is_not_set_up_refuses_and_says_what_to_do() {
    let mut machines = Machines::new();
    let status = machines.two.run(&["status"]);
    assert!(status.out.contains("icecore init"), "{status:?}");
    machines.one.at("2026-02-14T10:00:00+01:00").remember(&["Said on a day of its own"]);
    machines.one.ok(&["snapshot"]);
    git(&machines.one.root, &["push", "-q"]);
    machines.two.at("2026-02-15T10:00:00+01:00").remember(&["Said on another day"]);
    git(&machines.two.root, &["add", "-A"]);
    git(&machines.two.root, &["commit", "-qm", "by hand"]);
    let before = machines.two.read("memory/ledger.jsonl");
    let said = git_said(&machines.two.root, &["pull", "-q", "--no-rebase", "--no-edit"]);
    assert_ne!(said.code, Some(0), "{said:?}");
    assert_eq!(machines.two.read("memory/ledger.jsonl"), before, "nothing was merged line by line");
    git(&machines.two.root, &["merge", "--abort"]);
    let said = said_init(&machines.two);
    assert_eq!(said.code, Some(0), "{said:?}");
    machines.round("2026-02-15T11:00:00+01:00");
    machines.check("after it was set up");
}

#[test]
fn what_people_wrote_on_both_is_for_a_person_to_put_together() {
    let mut machines = Machines::ready();
    for (vault, words) in [(&mut machines.one, "mine"), (&mut machines.two, "yours")] {
        vault.at("2026-02-14T10:00:00+01:00");
        vault.write("SOUL.md", format!("I am {words}.\n"));
        vault.remember(&[words]);
    }
    Machines::sync(&machines.one);
    git(&machines.two.root, &["fetch", "-q"]);
    let said = machines.two.run(&["merge"]);
    assert_eq!(said.code, Some(4), "{said:?}");
    assert!(said.err.contains("SOUL.md") && said.err.contains("git add"), "{said:?}");
    assert_eq!(machines.two.read("SOUL.md"), "I am yours.\n", "no marks");
    assert_eq!(machines.two.run(&["merge"]).code, Some(4), "not yet");
    machines.two.write("SOUL.md", "I am mine and yours.\n");
    git(&machines.two.root, &["add", "SOUL.md"]);
    machines.round("2026-02-14T11:00:00+01:00");
    machines.check("after a person has put it together");
    assert_eq!(machines.one.read("SOUL.md"), "I am mine and yours.\n");
    // A line that was edited by hand on both: nothing is changed, ids included.
    for (vault, words) in [(&mut machines.one, "Port 1"), (&mut machines.two, "Port 2")] {
        vault.at("2026-02-15T10:00:00+01:00");
        vault.remember(&[words]);
        let ledger = vault.read("memory/ledger.jsonl");
        vault.write("memory/ledger.jsonl", ledger.replace("The port is 7431", words));
    }
    git(&machines.one.root, &["commit", "-qam", "by hand"]);
    git(&machines.one.root, &["push", "-q"]);
    git(&machines.two.root, &["commit", "-qam", "by hand"]);
    git(&machines.two.root, &["fetch", "-q"]);
    let before = machines.two.read("memory/ledger.jsonl");
    let said = machines.two.run(&["merge"]);
    assert!(
        said.code == Some(4) && said.err.contains("EVT-20260213-001 was edited by hand"),
        "{said:?}"
    );
    assert!(machines.two.read("memory/ledger.jsonl").starts_with(&before), "ids are as they were");
}

// A page that was edited by hand on both machines: both changes are kept, as events, and the page
// is the same on both.
#[test]
fn a_page_edited_by_hand_on_both_keeps_both() {
    let mut machines = Machines::ready();
    let page = "knowledge/entities/api.md";
    machines.one.ok(&["consolidate"]);
    machines.round("2026-02-13T12:00:00+01:00");
    assert!(machines.two.read(page).contains("- The port is 7431"), "{}", machines.two.read(page));
    for (vault, now, changed, added) in [
        (
            &mut machines.one,
            "2026-02-14T10:00:00+01:00",
            "The port is 8000",
            "It answers in German",
        ),
        (
            &mut machines.two,
            "2026-02-14T10:05:00+01:00",
            "The port is 9000",
            "It listens on every address",
        ),
    ] {
        vault.at(now);
        let text = vault.read(page);
        vault.write(page, text.replace("- The port is 7431", &format!("- {added}\n- {changed}")));
    }
    machines.round("2026-02-14T11:00:00+01:00");
    for vault in [&mut machines.one, &mut machines.two] {
        vault.at("2026-02-15T04:00:00+01:00");
    }
    machines.one.ok(&["consolidate"]);
    machines.round("2026-02-15T05:00:00+01:00");
    machines.check("after a page was edited on both");
    let contents = machines.one.contents();
    for said in [
        "The port is 8000",
        "The port is 9000",
        "It answers in German",
        "It listens on every address",
    ] {
        assert_eq!(
            contents.iter().filter(|content| *content == said).count(),
            1,
            "{said}: {contents:?}"
        );
    }
    let (one, two) = (machines.one.read(page), machines.two.read(page));
    assert_eq!(one, two);
    assert!(
        !one.contains("<<<<")
            && one.contains("It answers in German")
            && one.contains("It listens on every address"),
        "{one}"
    );
    assert!(!machines.one.json(&["conflicts"]).to_string().is_empty());
}

fn said_init(vault: &Vault) -> CommandOutput {
    command_output(bare(program()).args(["init", vault.root.to_str().unwrap()]).output().unwrap())
}

/// Three machines, one of which brings another's lines; none of that is a conflict.
#[test]
fn logs_of_three_machines_never_wait_for_a_person() {
    let machines = Machines::ready();
    let third = machines.folder.path().join("three");
    git(machines.folder.path(), &["clone", "-q", "between.git", "three"]);
    let three = Vault::at_root(third);
    assert_eq!(
        command_output(
            bare(program()).args(["init", three.root.to_str().unwrap()]).output().unwrap()
        )
        .code,
        Some(0)
    );
    let mut all = [machines.one, machines.two, three];
    let mut expected = Vec::new();
    for round in 0..3 {
        for (at, vault) in all.iter_mut().enumerate() {
            let word = format!("line {round} of machine {at}");
            // Each logs at a time before the previous one's.
            vault.at(&format!("2026-02-13T{:02}:{:02}:00+01:00", 10 + round, 50 - 7 * at));
            vault.ok(&["log", &word]);
            vault.ok(&["verify"]);
            expected.push(word);
        }
        // Two of them change the same line by hand.
        for (at, vault) in all.iter().enumerate().take(2) {
            let log = vault.read("memory/2026-02-13.md");
            vault.write(
                "memory/2026-02-13.md",
                log.replace(
                    "line 0 of machine 2",
                    &format!("line 0 of machine 2, as seen by {at}"),
                ),
            );
        }
        for at in [0, 1, 2, 0, 1, 2] {
            all[at].at(&format!("2026-02-13T{:02}:59:00+01:00", 10 + round));
            Machines::sync(&all[at]);
        }
    }
    let logs: Vec<String> = all.iter().map(|vault| vault.read("memory/2026-02-13.md")).collect();
    for (log, vault) in logs.iter().zip(&all) {
        assert_eq!(log, &logs[0]);
        for word in &expected {
            let many = log.lines().filter(|line| line.contains(word.as_str())).count();
            let changed = word == "line 0 of machine 2";
            assert!(many == 1 || changed && many >= 1, "{word} {many}: {log}");
        }
        assert_eq!(vault.run(&["verify"]).code, Some(0));
    }
    // In order of time.
    let times: Vec<&str> =
        logs[0].lines().filter_map(|line| line.strip_prefix("- ")?.get(..5)).collect();
    let mut sorted = times.clone();
    sorted.sort_unstable();
    assert_eq!(times, sorted, "{}", logs[0]);
}

/// git died and left its lock; no other process runs.
#[test]
fn a_lock_of_a_dead_git_stops_neither_merge_nor_doctor() {
    let old = |vault: &Vault| {
        for lock in ["index.lock", "HEAD.lock", "refs/heads/main.lock"] {
            vault.write(&format!(".git/{lock}"), "");
            assert!(
                Command::new("touch")
                    .args(["-d", "2 hours ago"])
                    .arg(vault.path(&format!(".git/{lock}")))
                    .status()
                    .unwrap()
                    .success()
            );
        }
    };
    let machines = Machines::ready();
    machines.two.remember(&["Bob drives the night bus"]);
    machines.two.ok(&["snapshot"]);
    git(&machines.two.root, &["push", "-q"]);
    machines.one.remember(&["Anna runs the harbour office"]);
    git(&machines.one.root, &["fetch", "-q"]);
    old(&machines.one);
    machines.one.ok(&["merge"]);
    old(&machines.one);
    let fixed = machines.one.ok(&["doctor", "--fix"]);
    assert!(fixed.contains("removed the stale lock"), "{fixed}");
    for said in ["Bob drives the night bus", "Anna runs the harbour office"] {
        assert_eq!(machines.one.contents().iter().filter(|content| *content == said).count(), 1);
    }
    // A user's own git is not affected.
    old(&machines.one);
    let mut alive = Command::new("git")
        .current_dir(&machines.one.root)
        .args(["cat-file", "--batch"])
        .stdin(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    machines.one.remember(&["something new"]);
    let said = machines.one.run(&["snapshot"]);
    drop(alive.stdin.take());
    alive.wait().unwrap();
    assert_eq!(said.code, Some(75), "{said:?}");
    assert!(said.err.contains("another git process is running"), "{said:?}");
    machines.one.ok(&["snapshot"]);
}

/// A merge that died while it replaced files: there is a journal, some files are new, and others
/// were changed since.
#[test]
fn a_merge_cut_short_among_its_files_is_finished_by_merge_and_by_doctor() {
    for way in [&["merge"][..], &["doctor", "--fix"]] {
        let machines = Machines::ready();
        machines.two.remember(&["Bob drives the night bus", "--entity", "bus"]);
        machines.two.ok(&["log", "bought a map"]);
        machines.two.ok(&["consolidate"]);
        machines.two.ok(&["snapshot"]);
        git(&machines.two.root, &["push", "-q"]);
        machines.one.ok(&["log", "bought a lamp"]);
        machines.one.ok(&["snapshot"]);
        git(&machines.one.root, &["fetch", "-q"]);
        let id = |name: &str| git(&machines.one.root, &["rev-parse", name]).trim().to_owned();
        machines.one.write(
            ".icecore/merge-journal",
            format!("{}\n{}\norigin/main\n", id("HEAD"), id("origin/main")),
        );
        machines.one.write("memory/ledger.jsonl", machines.two.read("memory/ledger.jsonl"));
        machines.one.remember(&["Anna runs the harbour office"]);
        machines.one.ok(&["log", "after the cut"]);
        for command in ["snapshot", "undo"] {
            let refused = machines.one.run(&[command]);
            assert_eq!(refused.code, Some(4), "{refused:?}");
            assert!(refused.err.contains("`icecore merge`"), "{refused:?}");
        }
        let verified = machines.one.run(&["verify"]);
        assert!(
            verified.code == Some(6) && verified.out.contains("`icecore merge`"),
            "{verified:?}"
        );
        machines.one.ok(way);
        machines.one.ok(&["verify"]);
        let contents = machines.one.contents();
        for said in ["Bob drives the night bus", "Anna runs the harbour office", "The port is 7431"]
        {
            assert_eq!(
                contents.iter().filter(|content| *content == said).count(),
                1,
                "{way:?} {said}: {contents:?}"
            );
        }
        let log = machines.one.read("memory/2026-02-13.md");
        for line in ["bought a map", "bought a lamp", "after the cut"] {
            assert_eq!(log.matches(line).count(), 1, "{way:?}: {log}");
        }
        let merged = git(&machines.one.root, &["log", "--merges", "--format=%p"]);
        assert_eq!(merged.split_whitespace().count(), 2, "{way:?}: {merged}");
        git(&machines.one.root, &["push", "-q"]);
    }
}

/// Runs the program with a git that runs this shell script before each of its commands.
fn run_with_git(vault: &Vault, script: &str, arguments: &[&str]) -> CommandOutput {
    let folder = TempDir::new().unwrap();
    let git = Command::new("sh").args(["-c", "command -v git"]).output().unwrap();
    let git = String::from_utf8(git.stdout).unwrap();
    let place = folder.path().join("git");
    fs::write(
        &place,
        format!(
            "#!/bin/sh\nHERE='{}'\n{script}\nexec {} \"$@\"\n",
            folder.path().display(),
            git.trim()
        ),
    )
    .unwrap();
    fs::set_permissions(&place, fs::Permissions::from_mode(0o755)).unwrap();
    let paths = std::env::var("PATH").unwrap();
    command_output(
        vault
            .command(arguments)
            .env("PATH", format!("{}:{paths}", folder.path().display()))
            .output()
            .unwrap(),
    )
}

/// What the user types on the other machine before this one merges.
fn publish(vault: &Vault, fetching: &Vault) {
    vault.ok(&["snapshot"]);
    git(&vault.root, &["push", "-q"]);
    git(&fetching.root, &["fetch", "-q"]);
}

// P1: an editor and another program write after the merge has read their files and before it
// replaces them
#[test]
fn what_is_saved_while_a_merge_runs_is_merged_too() {
    let machines = Machines::ready();
    let (one, two) = (&machines.one, &machines.two);
    let text = |first: &str, last: &str| format!("{first}\n{}{last}\n", "a line\n".repeat(8));
    for file in ["SOUL.md", "USER.md"] {
        two.write(file, text("begin", "end"));
    }
    two.ok(&["log", "the first line"]);
    for vault in [two, one, two] {
        Machines::sync(vault);
    }
    two.remember(&["Bob drives the night bus"]);
    two.ok(&["log", "bought a map"]);
    for file in ["SOUL.md", "USER.md"] {
        two.write(file, text("begin there", "end"));
    }
    publish(two, one);
    one.remember(&["Anna runs the harbour office"]);
    // Merged line by line once, before the files are read.
    one.write("USER.md", text("begin", "end here"));
    let event = "{\"ts\":\"2026-02-13T08:00:00Z\",\"id\":\"EVT-20200101-001\",\"type\":\"fact\",\"priority\":\"P2\",\
                 \"content\":\"foreign event\",\"source\":\"live\"}";
    let script = format!(
        "if [ \"$1\" = merge-file ]; then echo >> $HERE/calls; case $(wc -l < $HERE/calls) in\n\
         1) echo 'saved before' >> {root}/USER.md;;\n\
         2) echo 'saved after' >> {root}/SOUL.md; echo '{event}' >> {root}/memory/ledger.jsonl;;\n\
         esac; fi",
        root = one.root.display()
    );
    let said = run_with_git(one, &script, &["merge"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    for (file, words) in
        [("SOUL.md", ["begin there", "saved after"]), ("USER.md", ["end here", "saved before"])]
    {
        for word in words {
            assert_eq!(
                one.read(file).matches(word).count(),
                1,
                "{file}: {word}: {}",
                one.read(file)
            );
        }
    }
    let contents = one.contents();
    for said in ["Bob drives the night bus", "Anna runs the harbour office", "foreign event"] {
        assert_eq!(
            contents.iter().filter(|content| *content == said).count(),
            1,
            "{said}: {contents:?}"
        );
    }
    one.ok(&["verify"]);
}

/// A git that dies, or missing content, is not the same as a deleted file.
#[test]
fn a_merge_with_contents_that_cannot_be_read_changes_nothing() {
    let machines = Machines::ready();
    let (one, two) = (&machines.one, &machines.two);
    two.write("SOUL.md", "I am theirs.\n");
    two.ok(&["log", "bought a map"]);
    publish(two, one);
    one.write("SOUL.md", "");
    one.ok(&["snapshot"]);
    let blob = git(&one.root, &["rev-parse", "origin/main:SOUL.md"]);
    let object = one.path(&format!(".git/objects/{}/{}", &blob[..2], blob[2..].trim()));
    let before = one.read("memory/ledger.jsonl");
    let dies = "case \" $* \" in *' cat-file --batch '*) kill -9 $$;; esac";
    let ends_early = "case \" $* \" in *' cat-file --batch '*) exit 0;; esac";
    let loses = format!("[ ! -e {0} ] || mv {0} {0}.away", object.display());
    for script in [dies, ends_early, &loses] {
        let said = run_with_git(one, script, &["merge"]);
        assert_eq!(said.code, Some(1), "{script}: {said:?}");
        assert!(said.err.contains("git cat-file failed"), "{script}: {said:?}");
        assert_eq!(
            (one.read("memory/ledger.jsonl"), one.read("SOUL.md")),
            (before.clone(), String::new()),
            "{script}"
        );
        assert!(
            !one.path(".git/MERGE_HEAD").exists() && !one.path(".icecore/merge-journal").exists(),
            "{script}"
        );
    }
    fs::rename(format!("{}.away", object.display()), object).unwrap();
    one.write("SOUL.md", "I am theirs.\n");
    one.ok(&["merge"]);
    assert!(one.read("memory/2026-02-13.md").contains("bought a map"));
}

// L13
#[test]
fn forgetting_in_snapshots_fails_if_git_dies() {
    let vault = Vault::new();
    let canary = "heron four eleven";
    vault.remember(&[&format!("The gate opens with {canary}")]);
    vault.ok(&["snapshot"]);
    let arguments = ["forget", "--matching", canary, "--history", "--yes"];
    let said = run_with_git(
        &vault,
        "case \" $* \" in *' rev-parse --verify --quiet HEAD^{commit} '*) kill -9 $$;; esac",
        &arguments,
    );
    assert_ne!(said.code, Some(0), "{said:?}");
    vault.ok(&["forget", "--unfinished", "--yes"]);
    assert!(!git(&vault.root, &["log", "-p", "--all"]).contains(canary));
}

/// Names that no file of a vault can have, links, and bytes that are not text: what only the other
/// machine changed is merged as it is in git; what both changed waits for the user. Nothing stops
/// the merge of memory.
#[test]
fn paths_that_are_no_files_of_a_vault_do_not_stop_a_merge() {
    let machines = Machines::ready();
    let (one, two) = (&machines.one, &machines.two);
    let odd = OsStr::from_bytes(b"knowledge/caf\xe9.md");
    for vault in [one, two] {
        fs::create_dir_all(vault.path("knowledge/.obsidian")).unwrap();
    }
    two.write("knowledge/.obsidian/app.json", "first");
    two.write("knowledge/.obsidian/gone.json", "gone");
    two.write("knowledge/what?.md", "a question");
    fs::write(two.root.join(odd), "latin").unwrap();
    symlink("/nonexistent/elsewhere", two.path("knowledge/link")).unwrap();
    two.write("memory/.DS_Store", "there");
    publish(two, one);
    one.remember(&["Anna runs the harbour office"]);
    one.ok(&["merge"]);
    assert_eq!(one.read("knowledge/.obsidian/app.json"), "first");
    assert_eq!(one.read("knowledge/what?.md"), "a question");
    assert_eq!(fs::read(one.root.join(odd)).unwrap(), b"latin");
    assert_eq!(
        fs::read_dir(one.path("knowledge"))
            .unwrap()
            .filter(|e| e.as_ref().unwrap().file_name().to_string_lossy().starts_with("caf"))
            .count(),
        1
    );
    assert_eq!(
        fs::read_link(one.path("knowledge/link")).unwrap(),
        Path::new("/nonexistent/elsewhere")
    );
    assert_eq!(git(&one.root, &["status", "--porcelain"]), "");
    git(&one.root, &["push", "-q"]);
    Machines::sync(two);
    // Changed, removed, and changed on both.
    let outside = TempDir::new().unwrap();
    fs::write(outside.path().join("x.json"), "outside").unwrap();
    two.write("knowledge/.obsidian/app.json", "second");
    fs::remove_file(two.path("knowledge/.obsidian/gone.json")).unwrap();
    two.write("memory/.DS_Store", "changed there");
    fs::remove_file(two.path("knowledge/link")).unwrap();
    fs::create_dir(two.path("knowledge/.plugins")).unwrap();
    two.write("knowledge/.plugins/x.json", "inside");
    two.remember(&["Bob drives the night bus"]);
    publish(two, one);
    one.write("memory/.DS_Store", "changed here");
    // A folder of that name is a link out of the vault here.
    symlink(outside.path(), one.path("knowledge/.plugins")).unwrap();
    one.remember(&["Carla repairs the crane"]);
    let said = one.run(&["merge"]);
    assert_eq!(said.code, Some(4), "{said:?}");
    assert!(
        said.err.contains("memory/.DS_Store") && said.err.contains("knowledge/.plugins/x.json"),
        "{said:?}"
    );
    assert!(!said.err.contains("app.json"), "{said:?}");
    assert_eq!(fs::read(outside.path().join("x.json")).unwrap(), b"outside");
    assert_eq!(one.read("memory/.DS_Store"), "changed here");
    assert_eq!(one.read("knowledge/.obsidian/app.json"), "second");
    assert!(
        !one.path("knowledge/.obsidian/gone.json").exists()
            && one.path("knowledge/link").symlink_metadata().is_err()
    );
    assert!(one.contents().iter().any(|content| content == "Bob drives the night bus"));
    assert_eq!(one.run(&["merge"]).code, Some(4), "it waits");
    fs::remove_file(one.path("knowledge/.plugins")).unwrap();
    git(&one.root, &["rm", "-q", "--cached", "knowledge/.plugins/x.json"]);
    git(&one.root, &["add", "memory/.DS_Store"]);
    one.ok(&["merge"]);
    one.ok(&["verify"]);
}

/// The other machine has a newer program: nothing of its vault is merged before this one has it
/// too.
#[test]
fn a_vault_of_a_newer_format_is_not_merged() {
    for forward in [true, false] {
        let machines = Machines::ready();
        let (one, two) = (&machines.one, &machines.two);
        two.remember(&["Bob drives the night bus"]);
        two.ok(&["snapshot"]);
        two.write("icecore.toml", two.read("icecore.toml").replace("format = 1", "format = 2"));
        git(&two.root, &["commit", "-qam", "a newer program"]);
        git(&two.root, &["push", "-q"]);
        git(&one.root, &["fetch", "-q"]);
        if !forward {
            one.remember(&["Anna runs the harbour office"]);
        }
        let before = one.read("memory/ledger.jsonl");
        let said = one.run(&["merge"]);
        assert!(
            said.code != Some(0)
                && said.err.contains("format 2")
                && said.err.contains("newer icecore"),
            "{said:?}"
        );
        assert_eq!(one.read("memory/ledger.jsonl"), before);
        assert!(
            !one.path(".git/MERGE_HEAD").exists()
                && one.read("icecore.toml").contains("format = 1")
        );
        one.remember(&["It goes on"]);
        one.ok(&["snapshot"]);
    }
}

/// A page without icecore's marks is not replaced by the other machine's version.
#[test]
fn a_persons_own_page_changed_on_both_is_for_the_person() {
    let machines = Machines::ready();
    let page = "knowledge/entities/harbour.md";
    let text =
        |gate: &str| format!("# Harbour\n\nMy own words, in my own order.\nThe gate is {gate}.\n");
    fs::create_dir_all(machines.two.path("knowledge/entities")).unwrap();
    machines.two.write(page, text("open"));
    Machines::sync(&machines.two);
    Machines::sync(&machines.one);
    machines.two.write(page, text("green"));
    Machines::sync(&machines.two);
    machines.one.write(page, text("red, and rusty at the hinges"));
    git(&machines.one.root, &["fetch", "-q"]);
    let said = machines.one.run(&["merge"]);
    assert!(said.code == Some(4) && said.err.contains(page), "{said:?}");
    assert_eq!(machines.one.read(page), text("red, and rusty at the hinges"));
    machines.one.write(page, text("green, and rusty at the hinges"));
    git(&machines.one.root, &["add", page]);
    machines.one.ok(&["merge"]);
    assert_eq!(machines.one.read(page), text("green, and rusty at the hinges"));
    assert_eq!(machines.one.run(&["verify"]).code, Some(0));
}

/// A merge died before it renumbered, and events were added under the ids that it was about to
/// assign.
#[test]
fn events_added_before_a_renumbering_is_finished_keep_ids_of_their_own() {
    let machines = Machines::ready();
    let (one, two) = (&machines.one, &machines.two);
    two.remember(&["Bob drives the night bus"]);
    publish(two, one);
    one.remember(&["Anna runs the harbour office"]);
    fs::create_dir_all(one.path(".icecore/notes")).unwrap();
    let before = one.read("memory/ledger.jsonl");
    let note = one.path(".icecore/notes/renumbering.json");
    let hash = {
        let hashed =
            Command::new("sha256sum").arg(one.path("memory/ledger.jsonl")).output().unwrap();
        String::from_utf8(hashed.stdout).unwrap()[..64].to_owned()
    };
    let begun = format!(
        "{{\"ids\":{{\"EVT-20260213-003\":\"EVT-20260213-004\"}},\"files\":{{\"memory/ledger.jsonl\":[{},\"{hash}\"]}}}}",
        before.len()
    );
    fs::write(note, begun).unwrap();
    fs::write(one.path(".icecore/notes/merging.txt"), "origin/main").unwrap();
    assert_eq!(one.remember(&["Carla repairs the crane"]), "EVT-20260213-004");
    one.ok(&["merge"]);
    one.ok(&["verify"]);
    let contents = one.contents();
    for said in
        ["Bob drives the night bus", "Anna runs the harbour office", "Carla repairs the crane"]
    {
        assert_eq!(
            contents.iter().filter(|content| *content == said).count(),
            1,
            "{said}: {contents:?}"
        );
    }
}
