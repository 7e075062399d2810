//! Connecting clients as a user does: a home in a temporary folder, the real program, and the files
//! before and after.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::process::Stdio;

use serde_json::Value;
use tempfile::TempDir;

use crate::mcp::StdioServer;
use crate::model::repository_root;
use crate::program::{Vault, bare, command_output, program};
use crate::test_user::Person;

const CLIENTS: [(&str, &[&str], &[&str]); 5] = [
    (
        "claude-code",
        &[".claude/settings.json", ".claude.json"],
        &[".claude/settings.json", ".mcp.json"],
    ),
    (
        "codex",
        &[".codex/hooks.json", ".codex/config.toml"],
        &[".codex/hooks.json", ".codex/config.toml"],
    ),
    ("claude-desktop", &[".config/Claude/claude_desktop_config.json"], &[]),
    ("cursor", &[".cursor/mcp.json"], &[".cursor/mcp.json"]),
    ("vscode", &[".config/Code/User/mcp.json"], &[".vscode/mcp.json"]),
];

// Each client, without settings and with its own, installed and uninstalled: nothing is left
#[test]
fn every_client_is_connected_and_left_as_it_was() {
    for (client, own, shared) in CLIENTS {
        for furnished in [false, true] {
            for project in [false, true] {
                let (files, prefix) = if project { (shared, "project/") } else { (own, "") };
                if files.is_empty() {
                    continue;
                }
                let person = Person::new();
                person.ok(&["init", "-q"]);
                let name = format!("{client}, furnished {furnished}, project {project}");
                let first = if client == "codex" {
                    "{ \"description\": \"mine\" }"
                } else {
                    "{\r\n\t\"theirs\": [1, 2], // kept\r\n}"
                };
                if furnished {
                    for file in files {
                        person.write(
                            &format!("{prefix}{file}"),
                            if file.ends_with(".toml") { "model = \"x\" # mine" } else { first },
                        );
                        let mode = fs::Permissions::from_mode(0o640);
                        fs::set_permissions(person.at(&format!("{prefix}{file}")), mode).unwrap();
                    }
                }
                let before = person.everything();
                let options: Vec<&str> = if project {
                    vec!["install", client, "--project"]
                } else {
                    vec!["install", client]
                };
                // Shown, but not written.
                let shown = person.ok(&[&options[..], &["--dry-run"]].concat());
                assert!(
                    shown.out.contains("+++") && shown.out.contains("icecore"),
                    "{name}: {shown:?}"
                );
                assert!(!shown.out.contains('\u{1b}'), "{name}");
                // Without a terminal there is no confirmation.
                let said = person.run(&options);
                assert_eq!(said.code, Some(2), "{name}: {said:?}");
                assert!(
                    said.err.contains("--yes") && said.err.contains("--dry-run"),
                    "{name}: {said:?}"
                );
                assert_eq!(person.everything(), before, "{name}");
                let told = person.json(&[&options[..], &["--yes"]].concat());
                assert_eq!(told["done"], true, "{name}: {told}");
                for (file, change) in files.iter().zip(told["changes"].as_array().unwrap()) {
                    assert_eq!(
                        change["file"],
                        person.at(&format!("{prefix}{file}")).to_str().unwrap(),
                        "{name}"
                    );
                    assert_eq!(
                        change["did"],
                        if furnished { "change" } else { "create" },
                        "{name}"
                    );
                    assert_eq!(change["backup"].is_string(), furnished, "{name}");
                    if let Some(backup) = change["backup"].as_str() {
                        let known =
                            &before[&person.at(&format!("{prefix}{file}")).display().to_string()].1;
                        assert_eq!(&fs::read_to_string(backup).unwrap(), known, "{name}");
                        assert_eq!(
                            fs::metadata(backup).unwrap().permissions().mode() & 0o777,
                            0o600,
                            "{name}"
                        );
                    }
                    let text = person.read(&format!("{prefix}{file}"));
                    assert!(
                        text.contains("icecore")
                            && (!furnished || text.contains("theirs") || text.contains("mine")),
                        "{name}: {text}"
                    );
                }
                if !project {
                    assert!(
                        person.state(client).iter().all(|state| state.ends_with(" connected")),
                        "{name}: {:?}",
                        person.state(client)
                    );
                }
                // A second run changes nothing.
                let after = person.everything();
                let again = person.json(&options);
                assert!(
                    again["done"] == false
                        && again["changes"]
                            .as_array()
                            .unwrap()
                            .iter()
                            .all(|change| change["did"] == "nothing"),
                    "{name}: {again}"
                );
                assert_eq!(person.everything(), after, "{name}");
                let leave: Vec<&str> =
                    std::iter::once("uninstall").chain(options[1..].iter().copied()).collect();
                person.ok(&[&leave[..], &["--yes"]].concat());
                assert_eq!(person.everything(), before, "{name}: left as it was");
                person.ok(&leave);
            }
        }
    }
}

/// The events for which Claude Code calls icecore.
fn events(person: &Person) -> Vec<String> {
    let settings: Value = serde_json::from_str(&person.read(".claude/settings.json")).unwrap();
    settings["hooks"].as_object().unwrap().keys().cloned().collect()
}

// A client's version is asked for, and it gets what that version supports
#[test]
fn the_version_of_the_client_decides_what_is_written() {
    let older =
        ["PreCompact", "SessionEnd", "SessionStart", "Stop", "SubagentStop", "UserPromptSubmit"];
    let newer = [
        "PostCompact",
        "PreCompact",
        "SessionEnd",
        "SessionStart",
        "Stop",
        "SubagentStop",
        "UserPromptSubmit",
    ];
    for (script, version, known) in [
        ("echo '2.1.39 (Claude Code)'", Some("2.1.39"), &older[..]),
        ("echo '2.1.138 (Claude Code)'", Some("2.1.138"), &newer),
        ("echo 'node: command not found' >&2; exit 127", None, &older),
        ("echo '2.1.327 (Claude Code)'; sleep 60", Some("2.1.327"), &newer),
        ("sleep 60", None, &older),
    ] {
        let person = Person::new();
        person.put_program("claude", script);
        let told = person.json(&["install", "claude-code", "--yes"]);
        assert_eq!(told["version"].as_str(), version, "{script}: {told}");
        assert_eq!(events(&person), known, "{script}");
        let noted = told["notes"].to_string();
        assert_eq!(
            noted.contains("PostCompact (2.1.76)"),
            known.len() == older.len(),
            "{script}: {noted}"
        );
        if script == "sleep 60" {
            continue;
        }
        assert_eq!(person.state("claude-code"), ["hooks connected", "mcp connected"], "{script}");
        // After an upgrade the list says so, and a second run adds what is new.
        if known.len() == older.len() {
            person.put_program("claude", "echo '2.1.327 (Claude Code)'");
            assert_eq!(
                person.state("claude-code"),
                ["hooks outdated", "mcp connected"],
                "{script}"
            );
            assert!(
                person
                    .ok(&["install"])
                    .err
                    .contains("`icecore install claude-code` updates Claude Code.")
            );
            person.ok(&["install", "claude-code", "--yes"]);
            assert_eq!(events(&person), newer, "{script}");
        }
        person.ok(&["uninstall", "claude-code", "--yes"]);
        assert!(!person.at(".claude").exists(), "{script}");
    }
    // With several versions the oldest counts: all read the same settings.
    let person = Person::new();
    person.write(".local/bin/claude", "#!/bin/sh\necho '2.1.50 (Claude Code)'\n");
    fs::set_permissions(person.at(".local/bin/claude"), fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(person.json(&["install", "claude-code", "--yes"])["version"], "2.1.50");
    assert_eq!(events(&person), older);
    // A project's settings are read by everyone who works on it, with any version.
    let person = Person::new();
    person.put_program("claude", "echo '2.1.327 (Claude Code)'");
    let told = person.json(&["install", "claude-code", "--project", "--yes"]);
    assert!(told["notes"].to_string().contains("left out: PostCompact"), "{told}");
    assert!(!person.read("project/.claude/settings.json").contains("PostCompact"));
    // The server alone needs no version.
    assert_eq!(
        person.json(&["install", "claude-code", "--only", "mcp", "--dry-run"])["version"],
        Value::Null
    );
}

// Without a vault a client would fail: it is created with the connection, and shown before
#[test]
fn a_missing_vault_is_made_and_what_follows_is_said() {
    let person = Person::new();
    let vault = person.vault();
    let shown = person.ok(&["install", "claude-code", "--dry-run"]);
    assert!(
        shown.out.contains(&format!("a new one in {} will hold your memory", vault.display())),
        "{shown:?}"
    );
    assert!(!person.run(&["install", "claude-code"]).out.is_empty() && !vault.exists());
    let told = person.ok(&["install", "claude-code", "--yes"]);
    for part in [
        "Claude Code is connected",
        "are kept in",
        "is summarized when it ends",
        "icecore hook log",
        "icecore uninstall claude-code",
    ] {
        assert!((told.out.clone() + &told.err).contains(part), "{part}: {told:?}");
    }
    person.ok(&["verify"]);
    // The server that the settings name answers.
    let servers: Value = serde_json::from_str(&person.read(".claude.json")).unwrap();
    assert_eq!(servers["mcpServers"]["icecore"]["args"], serde_json::json!(["mcp"]));
    let mut server = StdioServer::with_handshake({
        let mut command = person.start("icecore");
        command.arg("mcp");
        command
    });
    server.call_tool("remember", serde_json::json!({ "text": "We decided that the beacon is painted green", "type": "decision" }));
    server.ends();
    assert!(person.json(&["install", "claude-code"])["new_vault"].is_null());
    // Uninstalling leaves memory alone.
    assert!(person.ok(&["uninstall", "claude-code", "--yes"]).err.contains("Your memory stays"));
    assert!(person.ok(&["events"]).out.contains("painted green"));
    // Settings from before the vault was deleted: only the vault is missing.
    let person = Person::new();
    person.ok(&["install", "codex", "--yes"]);
    fs::remove_dir_all(person.vault()).unwrap();
    let told = person.json(&["install", "codex", "--yes"]);
    assert!(
        told["done"] == true && told["new_vault"] == person.vault().to_str().unwrap(),
        "{told}"
    );
    person.ok(&["verify"]);
    // A client that is bound to another vault needs none.
    let person = Person::new();
    person.ok(&["init", "-q", "elsewhere"]);
    let elsewhere = person.at("project/src/elsewhere");
    person.ok(&["install", "cursor", "--yes", "--vault", elsewhere.to_str().unwrap()]);
    person.ok(&["install", "cursor", "--yes"]);
    assert!(!person.vault().exists());
    // With --quiet little is printed.
    let person = Person::new();
    let said = person.ok(&["install", "claude-code", "--yes", "-q"]);
    assert_eq!(
        (said.out.as_str(), said.err.as_str()),
        ("Claude Code is connected.\n", ""),
        "{said:?}"
    );
    assert!(person.ok(&["uninstall", "claude-code", "--dry-run", "-q"]).out.lines().count() > 50);
}

// A dry run of a migration needs no vault
#[test]
fn a_dry_run_of_a_migration_needs_no_vault() {
    let person = Person::new();
    person.write("old/MEMORY.md", "# Memory\n- The old port was 7430\n");
    let before = person.everything();
    let old = person.at("old");
    let shown = person.ok(&["migrate", old.to_str().unwrap(), "--dry-run"]);
    assert!(shown.out.contains("MEMORY.md") && shown.err.contains("`icecore init`"), "{shown:?}");
    assert_eq!(person.everything(), before);
    assert!(!person.vault().exists());
    assert_eq!(person.run(&["migrate", old.to_str().unwrap()]).code, Some(3));
}

// Later changes by the user are kept; only icecore's entries are removed
#[test]
fn later_changes_by_the_user_stay() {
    let person = Person::new();
    person.write(
        ".claude/settings.json",
        "{\n  \"model\": \"opus\",\n  \"hooks\": {\n    \"Stop\": []\n  }\n}\n",
    );
    person.ok(&["install", "claude-code", "--yes"]);
    // Claude Code writes its own file all the time.
    let text = person.read(".claude.json");
    person.write(".claude.json", &text.replacen('{', "{\n  \"numStartups\": 7,", 1));
    let text = person.read(".claude/settings.json");
    person.write(".claude/settings.json", &text.replace("\"opus\"", "\"haiku\""));
    assert_eq!(person.state("claude-code"), ["hooks connected", "mcp connected"]);
    // Meanwhile another version is installed with a fixed vault: updated in place.
    let vault = person.at(".local/share/icecore");
    person.ok(&["install", "claude-code", "--yes", "--vault", vault.to_str().unwrap()]);
    let settings: Value = serde_json::from_str(&person.read(".claude/settings.json")).unwrap();
    assert_eq!(
        settings["hooks"]["Stop"][0]["hooks"][0]["command"],
        format!("icecore hook stop --vault {}", vault.display())
    );
    assert_eq!(settings["hooks"]["Stop"].as_array().unwrap().len(), 1);
    let servers: Value = serde_json::from_str(&person.read(".claude.json")).unwrap();
    assert_eq!(servers["mcpServers"]["icecore"]["env"]["ICECORE_VAULT"], vault.to_str().unwrap());
    // A fixed vault stays fixed.
    assert_eq!(person.json(&["install", "claude-code"])["changes"][0]["did"], "nothing");
    assert!(
        person
            .ok(&["status", "--now", crate::program::NOW])
            .out
            .contains("connected: Claude Code (hooks, mcp)")
    );
    person.ok(&["uninstall", "claude-code", "--yes"]);
    assert_eq!(
        person.read(".claude/settings.json"),
        "{\n  \"model\": \"haiku\",\n  \"hooks\": {\n    \"Stop\": []\n  }\n}\n"
    );
    let left: Value = serde_json::from_str(&person.read(".claude.json")).unwrap();
    assert_eq!(left, serde_json::json!({ "numStartups": 7 }));
    assert!(!person.at(".local/state").exists());
}

// Only the hooks, only the server; by name, or by path
#[test]
fn a_part_can_be_chosen_and_the_program_is_found_again() {
    let person = Person::new();
    person.ok(&["install", "claude-code", "--only", "mcp", "--yes"]);
    assert!(!person.at(".claude").exists());
    assert_eq!(person.state("claude-code"), ["hooks absent", "mcp connected"]);
    person.ok(&["install", "claude-code", "--only", "hooks", "--yes"]);
    person.ok(&["uninstall", "claude-code", "--only", "mcp", "--yes"]);
    assert_eq!(person.state("claude-code"), ["hooks connected", "mcp absent"]);
    let said = person.run(&["install", "cursor", "--only", "hooks"]);
    assert!(said.code == Some(2) && said.err.contains("Cursor has no hooks"), "{said:?}");
    let said = person.run(&["install", "claude-desktop", "--project"]);
    assert!(said.code == Some(2) && said.err.contains("no settings of a project"), "{said:?}");
    // Without icecore on the search path, and for programs started from a desktop: the full path.
    let command = |path: &str, name: &str| -> String {
        let settings: Value = serde_json::from_str(&person.read(path)).unwrap();
        settings.pointer(name).unwrap().as_str().unwrap().to_owned()
    };
    assert_eq!(
        command(".claude/settings.json", "/hooks/Stop/0/hooks/0/command"),
        "icecore hook stop"
    );
    person.ok(&["install", "cursor", "--yes"]);
    assert_eq!(command(".cursor/mcp.json", "/mcpServers/icecore/command"), program());
    let mut elsewhere = person.command(&["install", "claude-code", "--yes"]);
    let said = command_output(elsewhere.env("PATH", "/usr/bin:/bin").output().unwrap());
    assert_eq!(said.code, Some(0), "{said:?}");
    assert_eq!(
        command(".claude/settings.json", "/hooks/Stop/0/hooks/0/command"),
        format!("{} hook stop", program())
    );
    // All folders moved by environment variables.
    let mut moved = person.command(&["install", "codex", "--yes"]);
    moved.env("CODEX_HOME", person.at("x/codex"));
    assert!(moved.output().unwrap().status.success());
    let mut moved = person.command(&["install", "claude-code", "--yes"]);
    moved.env("CLAUDE_CONFIG_DIR", person.at("x/claude"));
    assert!(moved.output().unwrap().status.success());
    for file in [
        "x/codex/hooks.json",
        "x/codex/config.toml",
        "x/claude/settings.json",
        "x/claude/.claude.json",
    ] {
        assert!(person.read(file).contains("icecore"), "{file}");
    }
    assert!(!person.at(".codex").exists());
    // A created folder is removed with its last file.
    for order in [["hooks", "mcp"], ["mcp", "hooks"]] {
        for only in ["hooks", "mcp"] {
            person.ok(&["install", "codex", "--only", only, "--yes"]);
        }
        for only in order {
            assert!(person.at(".codex").exists());
            person.ok(&["uninstall", "codex", "--only", only, "--yes"]);
        }
        assert!(!person.at(".codex").exists(), "{order:?}");
    }
}

// Dotfiles: the link stays, the file behind it changes
#[test]
fn a_link_is_written_through() {
    let person = Person::new();
    person.ok(&["init", "-q"]);
    person.write("dotfiles/claude.json", "{}\n");
    fs::create_dir(person.at(".claude")).unwrap();
    symlink("../dotfiles/claude.json", person.at(".claude/settings.json")).unwrap();
    // A link whose target does not exist yet.
    symlink(person.at("dotfiles/new.json"), person.at(".claude.json")).unwrap();
    let before = person.everything();
    person.ok(&["install", "claude-code", "--yes"]);
    assert!(
        fs::symlink_metadata(person.at(".claude/settings.json")).unwrap().file_type().is_symlink()
    );
    assert!(
        person.read("dotfiles/claude.json").contains("session-start")
            && person.read("dotfiles/new.json").contains("mcpServers")
    );
    person.ok(&["uninstall", "claude-code", "--yes"]);
    assert_eq!(person.everything(), before);
    // A project's links to files outside of it are refused.
    person.write("private.json", "{}");
    symlink("../private.json", person.at("project/.mcp.json")).unwrap();
    let said = person.run(&["install", "claude-code", "--project", "--yes"]);
    assert!(said.code == Some(4) && said.err.contains("leads out of the project"), "{said:?}");
    assert!(person.read("private.json") == "{}" && !person.at("project/.claude").exists());
    symlink("ring-b", person.at("ring-a")).unwrap();
    symlink("ring-a", person.at("ring-b")).unwrap();
    fs::create_dir(person.at(".cursor")).unwrap();
    symlink("../ring-a", person.at(".cursor/mcp.json")).unwrap();
    let said = person.run(&["install", "cursor", "--yes"]);
    assert!(said.code == Some(1) && said.err.contains("links"), "{said:?}");
}

// An unreadable file is never overwritten; nothing is written if any file of a client is refused
#[test]
fn broken_settings_are_refused_with_line_and_column() {
    let person = Person::new();
    person.write(".claude.json", "{\n  \"mcpServers\": {\n    oops\n  }\n}\n");
    let before = person.everything();
    let said = person.run(&["install", "claude-code", "--yes"]);
    assert_eq!(said.code, Some(4), "{said:?}");
    assert!(
        said.err.contains(".claude.json: line 3, column 5: a name in double quotes was expected here. Nothing was written"),
        "{said:?}"
    );
    assert_eq!(person.everything(), before);
    fs::write(person.at(".claude.json"), b"{\"a\": \"\xff\"}").unwrap();
    let said = person.run(&["install", "claude-code", "--yes"]);
    assert!(said.err.contains("not UTF-8 from byte 8 on"), "{said:?}");
    let listed = person.run(&["install"]);
    assert!(
        listed.code == Some(0) && listed.out.contains("unreadable") && listed.err.contains("UTF-8"),
        "{listed:?}"
    );
    // Hooks that are disabled by the settings are written with a warning.
    person.write(".claude.json", "{}");
    person.write(".claude/settings.json", "{ \"disableAllHooks\": true }");
    assert!(
        person
            .ok(&["install", "claude-code", "--yes"])
            .err
            .contains("no hook runs until you remove it")
    );
    // A vault that does not exist is not bound.
    let said = person.run(&["install", "cursor", "--yes", "--vault", "nowhere"]);
    assert!(said.code == Some(3) && said.err.contains("nowhere is not a vault"), "{said:?}");
}

// On a terminal the user is asked; colours are for terminals; other keys are not shown
#[test]
fn a_person_is_shown_the_change_and_asked() {
    let person = Person::new();
    let key = format!("sk-ant-api03-{}", "abcDEF123456_-".repeat(7));
    person.write(
        ".cursor/mcp.json",
        &format!("{{\n  \"mcpServers\": {{\n    \"other\": {{ \"env\": {{ \"ANTHROPIC_API_KEY\": \"{key}\" }} }}\n  }}\n}}\n"),
    );
    let at_terminal = |answer: &str| {
        // `script` provides a terminal.
        let line = format!("'{}' install cursor", program());
        let mut child = bare("script");
        child
            .env("HOME", person.home_dir())
            .env("TERM", "xterm")
            .current_dir(person.at("project"))
            .args(["-qec", &line, "/dev/null"]);
        let mut child = child.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(answer.as_bytes()).unwrap();
        String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap()
    };
    let before = person.everything();
    let shown = at_terminal("n\n");
    assert!(
        shown.contains("\u{1b}[32m+")
            && shown.contains("Write this? [y/N]")
            && shown.contains("Nothing was written"),
        "{shown}"
    );
    assert!(!shown.contains(&key), "{shown}");
    assert_eq!(person.everything(), before);
    let shown = at_terminal("y\n");
    assert!(shown.contains("Cursor is connected."), "{shown}");
    assert!(
        person.read(".cursor/mcp.json").contains(&key)
            && person.read(".cursor/mcp.json").contains("\"icecore\"")
    );
}

// The bundle for Claude Desktop: a zip of a manifest and an executable program
#[test]
fn the_bundle_is_whole() {
    let folder = TempDir::new().unwrap();
    let (bundle, binary) = (folder.path().join("icecore.mcpb"), folder.path().join("icecore"));
    // Any program serves; this one with its debug information would take minutes.
    fs::write(&binary, "#!/bin/sh\necho icecore\n").unwrap();
    let pack = || {
        let said = command_output(
            bare(repository_root().join("plugin/mcpb/pack"))
                .arg(&binary)
                .arg(&bundle)
                .arg("linux")
                .output()
                .unwrap(),
        );
        assert_eq!(said.code, Some(0), "{said:?}");
        fs::read(&bundle).unwrap()
    };
    let bytes = pack();
    let mut archive = zip::ZipArchive::new(std::io::Cursor::new(&bytes)).unwrap();
    let names: Vec<String> = archive.file_names().map(|name| name.unwrap().into_owned()).collect();
    assert_eq!(names, ["manifest.json", "server/icecore"]);
    let mut read = |name: &str| {
        let mut file = archive.by_name(name).unwrap();
        let mut bytes = Vec::new();
        std::io::copy(&mut file, &mut bytes).unwrap();
        (bytes, file.unix_mode().unwrap() & 0o777)
    };
    let (manifest, _) = read("manifest.json");
    let manifest: Value = serde_json::from_slice(&manifest).unwrap();
    assert_eq!(
        (&manifest["manifest_version"], &manifest["version"]),
        (&"0.3".into(), &env!("CARGO_PKG_VERSION").into())
    );
    let server = &manifest["server"];
    assert_eq!(
        (&server["type"], &server["mcp_config"]["args"]),
        (&"binary".into(), &serde_json::json!(["mcp"]))
    );
    let entry = server["entry_point"].as_str().unwrap();
    assert_eq!(server["mcp_config"]["command"], format!("${{__dirname}}/{entry}"));
    assert!(
        ["name", "description"].iter().all(|field| manifest[field].is_string())
            && manifest["author"]["name"].is_string()
    );
    assert_eq!(manifest["compatibility"]["platforms"], serde_json::json!(["linux"]));
    // Values from the user must be asked for.
    let env = server["mcp_config"]["env"]["ICECORE_VAULT"].as_str().unwrap();
    assert!(
        env == "${user_config.vault}" && manifest["user_config"]["vault"]["type"] == "directory"
    );
    let (packed, mode) = read(entry);
    assert_eq!(mode, 0o755);
    assert_eq!(packed, fs::read(&binary).unwrap());
    assert_eq!(pack(), bytes, "the same input gives the same bundle");
}

// As Claude Desktop uses it: unpacked, placeholders replaced, started, called
#[test]
fn the_program_in_the_bundle_answers() {
    let folder = TempDir::new().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::copy(program(), at("icecore")).unwrap();
    // Debug information is most of it, and takes minutes to pack.
    assert!(bare("strip").arg(at("icecore")).status().unwrap().success());
    let packed = command_output(
        bare(repository_root().join("plugin/mcpb/pack"))
            .arg(at("icecore"))
            .arg(at("icecore.mcpb"))
            .arg("linux")
            .output()
            .unwrap(),
    );
    assert_eq!(packed.code, Some(0), "{packed:?}");
    let mut archive = zip::ZipArchive::new(fs::File::open(at("icecore.mcpb")).unwrap()).unwrap();
    archive.extract(at("unpacked")).unwrap();
    let manifest: Value =
        serde_json::from_slice(&fs::read(at("unpacked/manifest.json")).unwrap()).unwrap();
    let vault = Vault::new();
    vault.remember(&["The bundle was opened in spring"]);
    let filled = |text: &Value| {
        let text = text.as_str().unwrap().replace("${__dirname}", at("unpacked").to_str().unwrap());
        text.replace("${user_config.vault}", vault.root.to_str().unwrap())
    };
    let config = &manifest["server"]["mcp_config"];
    let mut command = bare(filled(&config["command"]));
    command.args(config["args"].as_array().unwrap().iter().map(filled));
    command
        .envs(config["env"].as_object().unwrap().iter().map(|(name, value)| (name, filled(value))));
    let mut piped = StdioServer::with_handshake(command);
    let tools = piped.gets("tools/list", serde_json::json!({}));
    assert!(
        tools["tools"].as_array().unwrap().iter().any(|tool| tool["name"] == "recall"),
        "{tools}"
    );
    let told =
        piped.call_tool("recall", serde_json::json!({ "query": "when was the bundle opened?" }));
    assert!(told.to_string().contains("opened in spring"), "{told}");
    piped.ends();
    // All required fields of the manifest, and no unknown ones.
    let known = [
        "manifest_version",
        "name",
        "display_name",
        "version",
        "description",
        "author",
        "license",
        "keywords",
        "server",
        "user_config",
        "compatibility",
    ];
    assert!(
        manifest.as_object().unwrap().keys().all(|field| known.contains(&field.as_str())),
        "{manifest}"
    );
    for (name, asked) in manifest["user_config"].as_object().unwrap() {
        assert!(
            asked["type"].is_string()
                && asked["title"].is_string()
                && asked["description"].is_string(),
            "{name}: {asked}"
        );
    }
}
