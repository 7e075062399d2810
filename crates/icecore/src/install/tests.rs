//! Tests of the settings editors: tables of results, and that uninstalling restores every file
//! exactly.

use std::path::{Path, PathBuf};

use proptest::prelude::*;
use tempfile::TempDir;

use super::clients::{ClientApp, ClientMachine, OperatingSystem, SettingsFile, SettingsPart};
use super::hooks::{self, HOOKS, HookDialect};
use super::*;

fn plain() -> Invocation {
    Invocation { command: "icecore".into(), vault: None, version: Some(NEWEST) }
}

fn bound_invocation() -> Invocation {
    Invocation {
        command: "/opt/my tools/icecore".into(),
        vault: Some("/home/ann/it's here".into()),
        ..plain()
    }
}

/// A version that supports everything, of every client.
const NEWEST: Version = Version(2, 1, 327);

const CLAUDE: SettingsPart = SettingsPart::Hooks(HookDialect::ClaudeCode);
const CODEX: SettingsPart = SettingsPart::Hooks(HookDialect::Codex);
const SERVER: SettingsPart = SettingsPart::Server(servers::COMMON_FORMAT);
const VS_CODE: SettingsPart = SettingsPart::Server(servers::VS_CODE_FORMAT);
const PARTS: [SettingsPart; 5] = [CLAUDE, CODEX, SERVER, VS_CODE, SettingsPart::Toml];

/// Settings with foreign hooks, comments and an unusual style.
const FOREIGN_HOOKS: &str = r#"{
  // how I like it
  "model": "opus", /* for now */
  "hooks": {
    "Stop": [
      { "hooks": [{ "type": "command", "command": "say done" }] } // loud
    ],
    "PreToolUse": [{ "matcher": "Bash", "hooks": [{ "type": "command", "command": "./check.sh" }] }]
  },
  "permissions": { "allow": ["Bash(ls:*)"] } // the end
}
"#;

const OLDER_HOOKS: &str = r#"{
  "hooks": {
    "Stop": [
      {
        "matcher": "",
        "hooks": [
          { "type": "command", "command": "/old/bin/icecore hook stop --vault '/a b'", "statusMessage": "remembering" }
        ]
      }
    ],
    "Notification": [
      { "hooks": [{ "type": "command", "command": "icecore", "args": ["hook", "notification"] }] }
    ],
    "SessionStart": [
      { "hooks": [
        { "type": "command", "command": "theirs" },
        { "type": "command", "command": "icecore", "args": ["hook", "session-start"] }
      ] }
    ]
  }
}
"#;

const OLDER_SERVER: &str = r#"{
  "mcpServers": {
    "icecore": { "command": "/old/icecore", "args": ["mcp", "--quiet"], "env": { "RUST_LOG": "debug" }, "disabled": false },
    "other": { "command": "npx", "args": ["-y", "thing"] }
  }
}"#;

const CONFIG: &str = r#"# my settings
model = "gpt-x"   # the big one

[mcp_servers.other]
command = "npx"
args = ["-y", "thing"]
"#;

const OLDER_CONFIG: &str = r#"[mcp_servers.icecore]   # memory
command = '/old/icecore'
# started like this
args = ["mcp", "-v"]
startup_timeout_sec = 20

# the next one
[mcp_servers.other]
command = "npx"
"#;

fn cases() -> Vec<(&'static str, SettingsPart, Invocation, String)> {
    let crlf = |text: &str| text.replace('\n', "\r\n");
    let tabs = |text: &str| text.replace("  ", "\t");
    vec![
        ("claude-code hooks: missing or empty", CLAUDE, plain(), String::new()),
        ("claude-code hooks: an empty object", CLAUDE, plain(), "{}\n".into()),
        ("claude-code hooks: others' hooks and comments", CLAUDE, plain(), FOREIGN_HOOKS.into()),
        (
            "claude-code hooks: tabs, CRLF, a mark at the start",
            CLAUDE,
            plain(),
            format!("\u{FEFF}{}", crlf(&tabs(FOREIGN_HOOKS))),
        ),
        ("claude-code hooks: an older entry of ours", CLAUDE, plain(), OLDER_HOOKS.into()),
        (
            "claude-code hooks: one line, bound to a vault",
            CLAUDE,
            bound_invocation(),
            r#"{"model":"opus"}"#.into(),
        ),
        ("codex hooks: missing, bound to a vault", CODEX, bound_invocation(), String::new()),
        (
            "codex hooks: with a description",
            CODEX,
            plain(),
            "{\n    \"description\": \"mine\",\n    \"hooks\": {}\n}\n".into(),
        ),
        ("server: missing", SERVER, plain(), String::new()),
        (
            "server: another one, a trailing comma",
            SERVER,
            plain(),
            "{\n  \"mcpServers\": {\n    \"other\": {},\n  },\n}\n".into(),
        ),
        ("server: an older entry of ours", SERVER, bound_invocation(), OLDER_SERVER.into()),
        (
            "server: settings of everything else",
            SERVER,
            bound_invocation(),
            "{\n  \"numStartups\": 3,\n  \"projects\": {}\n}".into(),
        ),
        (
            "vscode: inputs and comments, tabs",
            VS_CODE,
            plain(),
            "{\n\t// asked for\n\t\"inputs\": [],\n\t\"servers\": {\n\t\t// none yet\n\t}\n}\n"
                .into(),
        ),
        ("codex server: missing", SettingsPart::Toml, bound_invocation(), String::new()),
        ("codex server: others and comments", SettingsPart::Toml, plain(), CONFIG.into()),
        (
            "codex server: CRLF, no line end",
            SettingsPart::Toml,
            plain(),
            crlf(CONFIG).trim_end().to_owned(),
        ),
        (
            "codex server: an older entry of ours",
            SettingsPart::Toml,
            bound_invocation(),
            OLDER_CONFIG.into(),
        ),
        (
            "codex server: servers in one line",
            SettingsPart::Toml,
            plain(),
            "mcp_servers = { other = { command = \"npx\" } }\n".into(),
        ),
    ]
}

/// Makes invisible bytes visible.
fn escape_invisible(text: &str) -> String {
    text.replace('\u{FEFF}', "<BOM>").replace('\r', "<CR>").replace('\t', "<TAB>")
}

// Every client's file before and after, byte for byte
#[test]
fn every_file_is_changed_as_reviewed() {
    let mut told = String::new();
    for (name, part, caller, before) in cases() {
        let after =
            part.connect(&before, &caller).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(part.connect(&after, &caller).unwrap(), after, "{name}: a second time");
        told.push_str(&format!(
            "=== {name}\n--- before\n{}\n--- after\n{}\n",
            escape_invisible(&before),
            escape_invisible(&after)
        ));
    }
    insta::assert_snapshot!("settings_before_and_after", told);
}

// Other line endings and indentations give the same file, except for those
#[test]
fn line_ends_and_indentation_are_the_files_own() {
    for (name, part, caller, before) in cases()
        .into_iter()
        .filter(|(_, _, _, before)| !before.contains('\r') && before.contains('\n'))
    {
        let crlf = |text: &str| text.replace('\n', "\r\n");
        let after = part.connect(&before, &caller).unwrap();
        assert_eq!(part.connect(&crlf(&before), &caller).unwrap(), crlf(&after), "{name}");
        let marked = |text: &str| format!("\u{FEFF}{text}");
        assert_eq!(part.connect(&marked(&before), &caller).unwrap(), marked(&after), "{name}");
    }
    let wide = |text: &str| text.replace("  ", "    ");
    let after = CLAUDE.connect("{\n  \"a\": 1\n}\n", &plain()).unwrap();
    assert_eq!(CLAUDE.connect("{\n    \"a\": 1\n}\n", &plain()).unwrap(), wide(&after));
}

#[test]
fn what_was_put_in_is_taken_out_without_a_trace() {
    for (name, part, caller, before) in
        cases().into_iter().filter(|(name, ..)| !name.contains("older"))
    {
        let after = part.connect(&before, &caller).unwrap();
        let left = part.disconnect(&after, Some(&before)).unwrap();
        // A file that was missing, or empty, is restored from its backup.
        if part.is_blank(&before) {
            assert!(part.is_blank(&left), "{name}: {left}");
        } else if part == SettingsPart::Toml && !before.ends_with('\n') {
            assert_eq!(left.trim_end(), before, "{name}");
        } else if !before.contains("// none yet") {
            assert_eq!(left, before, "{name}");
        }
        assert_eq!(part.disconnect(&left, Some(&before)).unwrap(), left, "{name}: a second time");
    }
    // An older entry of icecore is removed like a new one; others stay.
    for (part, before) in
        [(CLAUDE, OLDER_HOOKS), (SERVER, OLDER_SERVER), (SettingsPart::Toml, OLDER_CONFIG)]
    {
        let left = part.disconnect(before, None).unwrap();
        assert!(
            !left.contains("icecore") && (left.contains("theirs") || left.contains("npx")),
            "{left}"
        );
        assert!(
            !part
                .disconnect(&part.connect(before, &plain()).unwrap(), None)
                .unwrap()
                .contains("icecore")
        );
    }
    let left = codex::disconnect(OLDER_CONFIG).unwrap();
    assert_eq!(left, "\n# the next one\n[mcp_servers.other]\ncommand = \"npx\"\n");
}

// Unreadable settings are refused with the place of the error, and foreign entries are left alone
#[test]
fn what_is_not_understood_is_refused_with_its_place() {
    for (part, text, why) in [
        (
            CLAUDE,
            "{\n  \"hooks\": {,}\n}",
            "line 2, column 13: a name in double quotes was expected here",
        ),
        (
            CLAUDE,
            "{\n  'hooks': {}\n}",
            "line 2, column 3: a name in double quotes was expected here",
        ),
        (CLAUDE, "{\"a\": 1", "line 1, column 8: the text ends before its `}`"),
        (CLAUDE, "{\"a\" 1}", "line 1, column 6: `:` was expected here"),
        (CLAUDE, "{\"a\": 01}", "line 1, column 7: this is not a JSON value"),
        (CLAUDE, "{\"a\": tru}", "line 1, column 7: this is not a JSON value"),
        (
            CLAUDE,
            "{\"\u{e9}\u{e9}\": \"\\x\"}",
            "line 1, column 8: this text has an escape or a character that JSON does not know",
        ),
        (CLAUDE, "{\"a\": \"b\n\"}", "line 1, column 7: this text has no closing quote"),
        (CLAUDE, "{} /* a", "line 1, column 4: this comment has no end"),
        (CLAUDE, "{} {}", "line 1, column 4: there is text after the end"),
        (CLAUDE, "[]", "the content is not an object"),
        (CLAUDE, "{\"hooks\": []}", "`hooks` is not an object"),
        (CLAUDE, "{\"hooks\": {\"Stop\": {}}}", "Stop is not a list"),
        (
            CLAUDE,
            "{\"hooks\": {}, \"hooks\": {}}",
            "it has two fields named `hooks`; leave only one",
        ),
        (
            CODEX,
            "{\"hooks\": {}, \"more\": 1}",
            "it has `more` at its top, and Codex reads no hooks",
        ),
        (SERVER, "{\"mcpServers\": 1}", "mcpServers is not an object"),
        (
            SERVER,
            "{\"mcpServers\": {\"icecore\": {\"url\": \"http://x\", \"type\": \"http\"}}}",
            "it has a server named `icecore` that does not",
        ),
        (
            SERVER,
            "{\"mcpServers\": {\"icecore\": {\"command\": \"npx\", \"args\": [\"mcp\"]}}}",
            "it has a server named `icecore` that does not",
        ),
        (SettingsPart::Toml, "a = 1\na = 2\n", "line 2, column 1: duplicate key"),
        (SettingsPart::Toml, "a = \n", "line 1, column 5"),
        (SettingsPart::Toml, "mcp_servers = 3\n", "`mcp_servers` is not a table"),
        (
            SettingsPart::Toml,
            "[mcp_servers.icecore]\nurl = \"http://x\"\n",
            "it has a server named `icecore` that does not",
        ),
    ] {
        let error = part.connect(text, &plain()).expect_err(text).to_string();
        assert!(error.starts_with(why), "{text}: {error}");
    }
    let deep = format!("{}{}", "[".repeat(5_000), "]".repeat(5_000));
    assert!(json::parse(&deep).unwrap_err().what.contains("nested"));
}

// The exact shape of the newest versions: a line for a shell, which every version runs
#[test]
fn the_hooks_are_those_that_the_clients_know() {
    let told: serde_json::Value =
        serde_json::from_str(&CLAUDE.connect("", &plain()).unwrap()).unwrap();
    let expected = serde_json::json!({ "hooks": {
        "SessionStart": [{ "matcher": "startup|resume|clear|compact|fork",
            "hooks": [{ "type": "command", "command": "icecore hook session-start", "timeout": 10 }] }],
        "UserPromptSubmit": [{ "hooks": [{ "type": "command", "command": "icecore hook user-prompt-submit", "timeout": 5 }] }],
        "PreCompact": [{ "matcher": "manual|auto", "hooks": [{ "type": "command", "command": "icecore hook pre-compact", "timeout": 10 }] }],
        "PostCompact": [{ "matcher": "manual|auto", "hooks": [{ "type": "command", "command": "icecore hook post-compact", "timeout": 10 }] }],
        "Stop": [{ "hooks": [{ "type": "command", "command": "icecore hook stop", "timeout": 5 }] }],
        "SubagentStop": [{ "hooks": [{ "type": "command", "command": "icecore hook subagent-stop", "timeout": 10 }] }],
        "SessionEnd": [{ "hooks": [{ "type": "command", "command": "icecore hook session-end", "timeout": 5 }] }],
    }});
    assert_eq!(told, expected);
    // Codex has other limits: three seconds at the end of a session, and one more warning at every
    // start.
    let mut expected = expected;
    expected["hooks"]["SessionEnd"][0]["hooks"][0]["timeout"] = 3.into();
    let told: serde_json::Value =
        serde_json::from_str(&CODEX.connect("", &plain()).unwrap()).unwrap();
    assert_eq!(told, expected);
    for part in [CLAUDE, CODEX] {
        let told: serde_json::Value =
            serde_json::from_str(&part.connect("", &bound_invocation()).unwrap()).unwrap();
        for hook in HOOKS {
            let handler = &told["hooks"][hook.event][0]["hooks"][0];
            assert_eq!(
                handler["command"],
                format!(
                    r"'/opt/my tools/icecore' hook {} --vault '/home/ann/it'\''s here'",
                    hook.name
                )
            );
        }
    }
    assert_eq!(
        CODEX.bound_vault(&CODEX.connect("", &bound_invocation()).unwrap()),
        bound_invocation().vault
    );
    for part in PARTS {
        assert_eq!(
            part.bound_vault(&part.connect("", &bound_invocation()).unwrap()),
            bound_invocation().vault,
            "{part:?}"
        );
        assert_eq!(part.bound_vault(&part.connect("", &plain()).unwrap()), None, "{part:?}");
    }
}

/// The events that settings name.
fn events(text: &str) -> Vec<String> {
    let told: serde_json::Value = serde_json::from_str(text).unwrap();
    told["hooks"].as_object().unwrap().keys().cloned().collect()
}

// A version gets the events it supports: an unknown event makes a whole file invalid for some
#[test]
fn only_what_a_version_knows_is_written() {
    let all = [
        "PostCompact",
        "PreCompact",
        "SessionEnd",
        "SessionStart",
        "Stop",
        "SubagentStop",
        "UserPromptSubmit",
    ];
    for (version, without) in [
        (Some(NEWEST), &[][..]),
        (Some(Version(2, 1, 138)), &[]),
        (Some(Version(2, 1, 76)), &[]),
        (Some(Version(2, 1, 75)), &["PostCompact"]),
        (Some(Version(2, 1, 39)), &["PostCompact"]),
        (Some(Version(1, 0, 85)), &["PostCompact"]),
        // A client that does not report its version.
        (None, &["PostCompact"]),
        (Some(Version(1, 0, 84)), &["PostCompact", "SessionEnd"]),
        (Some(Version(1, 0, 61)), &["PostCompact", "SessionEnd", "SessionStart"]),
        (
            Some(Version(1, 0, 38)),
            &[
                "PostCompact",
                "SessionEnd",
                "SessionStart",
                "UserPromptSubmit",
                "PreCompact",
                "SubagentStop",
            ],
        ),
    ] {
        let caller = Invocation { version, ..plain() };
        let text = CLAUDE.connect("", &caller).unwrap();
        let known: Vec<&str> = all.into_iter().filter(|event| !without.contains(event)).collect();
        assert_eq!(events(&text), known, "{version:?}");
        assert!(!text.contains("args"), "{version:?}");
        // An upgrade adds what was missing, and a downgrade removes it again.
        let newest = CLAUDE.connect(&text, &plain()).unwrap();
        assert_eq!(events(&newest), all, "{version:?}");
        assert_eq!(events(&CLAUDE.connect(&newest, &caller).unwrap()), known, "{version:?}");
    }
    // A version without hooks gets none, and icecore's are removed.
    let none = Invocation { version: Some(Version(1, 0, 37)), ..plain() };
    assert_eq!(
        CLAUDE.connect("{ \"model\": \"opus\" }", &none).unwrap(),
        "{ \"model\": \"opus\" }"
    );
    assert!(!CLAUDE.connect(OLDER_HOOKS, &none).unwrap().contains("icecore"));
    // Codex ignores events that it does not know.
    for version in [Some(Version(0, 169, 0)), Some(Version(0, 147, 0)), None] {
        let text = CODEX.connect("", &Invocation { version, ..plain() }).unwrap();
        assert_eq!(events(&text), all, "{version:?}");
    }
    // `claude -p` ends its background hooks when it ends.
    assert!(!CLAUDE.connect("", &plain()).unwrap().contains("async"));
}

// The form with `args` of earlier installations, which Claude Code before 2.1.139 runs as a bare
// `icecore`
#[test]
fn an_installation_with_args_is_recognised_and_replaced() {
    let mut old = String::from("{\n  \"model\": \"opus\",\n  \"hooks\": {");
    for (at, hook) in HOOKS.iter().enumerate() {
        let comma = if at == 0 { "" } else { "," };
        old += &format!(
            "{comma}\n    \"{}\": [{{ \"hooks\": [{{ \"type\": \"command\", \"command\": \"icecore\", \"args\": [\"hook\", \"{}\", \"--vault\", \"/a b\"] }}] }}]",
            hook.event, hook.name
        );
    }
    old += "\n  }\n}\n";
    assert_eq!(CLAUDE.bound_vault(&old).as_deref(), Some("/a b"));
    assert_eq!(CLAUDE.disconnect(&old, None).unwrap(), "{\n  \"model\": \"opus\"\n}\n");
    let new = CLAUDE.connect(&old, &Invocation { vault: Some("/a b".into()), ..plain() }).unwrap();
    assert!(!new.contains("args"), "{new}");
    assert_eq!(new.matches("icecore hook ").count(), HOOKS.len(), "{new}");
    assert!(
        new.contains("\"icecore hook stop --vault '/a b'\"") && new.contains("\"model\": \"opus\""),
        "{new}"
    );
}

// The plugin's hooks come from the same table, and every version is that of the program
#[test]
fn the_plugin_is_made_of_the_same_table() {
    let house = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let read = |path: &str| {
        std::fs::read_to_string(house.join("plugin").join(path))
            .unwrap_or_else(|error| panic!("plugin/{path}: {error}"))
    };
    let json = |path: &str| -> serde_json::Value { serde_json::from_str(&read(path)).unwrap() };
    let described = JsonTree::text(
        "Memory at the start of a session, at every prompt, around compaction and at the end",
    );
    let hooks = json::render_document(&JsonTree::Object(vec![
        ("description", described),
        ("hooks", hooks::all_hooks(HookDialect::Plugin, &plain())),
    ]));
    assert_eq!(read("icecore/hooks/hooks.json"), hooks);
    assert_eq!(
        read("icecore/.mcp.json"),
        json::render_document(&servers::all_servers(servers::COMMON_FORMAT, &plain()))
    );
    // A timeout at the end of a session would promise what a plugin does not get.
    assert!(
        json("icecore/hooks/hooks.json")["hooks"]["SessionEnd"][0]["hooks"][0]
            .get("timeout")
            .is_none()
    );
    let version = env!("CARGO_PKG_VERSION");
    let (plugin, market, bundle) = (
        json("icecore/.claude-plugin/plugin.json"),
        json(".claude-plugin/marketplace.json"),
        json("mcpb/manifest.json"),
    );
    assert_eq!(
        (&plugin["version"], &bundle["version"], &market["plugins"][0]["version"]),
        (&version.into(), &version.into(), &version.into())
    );
    assert_eq!(
        (&plugin["name"], &bundle["name"], &market["plugins"][0]["name"]),
        (&"icecore".into(), &"icecore".into(), &"icecore".into())
    );
    let source = market["plugins"][0]["source"].as_str().unwrap();
    assert!(
        house.join("plugin").join(source).join(".claude-plugin/plugin.json").is_file(),
        "{source}"
    );
    // The fields that a skill needs to be loaded.
    let skills: Vec<PathBuf> = std::fs::read_dir(house.join("plugin/icecore/skills"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    assert!(!skills.is_empty());
    for skill in skills {
        let name = skill.file_name().unwrap().to_str().unwrap();
        let text = std::fs::read_to_string(skill.join("SKILL.md")).unwrap();
        let (head, body) = text.strip_prefix("---\n").unwrap().split_once("\n---\n").unwrap();
        let field = |field: &str| {
            head.lines()
                .find_map(|line| line.strip_prefix(field)?.strip_prefix(": "))
                .unwrap_or_default()
        };
        assert_eq!(field("name"), name);
        assert!(
            (1..=64).contains(&name.len())
                && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-')
        );
        assert!((1..=1024).contains(&field("description").len()) && body.lines().count() < 500);
    }
}

#[test]
fn each_client_has_its_files_where_it_looks_for_them() {
    let machine = |system, config: Option<&str>| ClientMachine {
        system,
        home: "/h".into(),
        config: config.map(PathBuf::from),
        claude: None,
        codex: None,
    };
    let linux = machine(OperatingSystem::Linux, None);
    let files =
        |machine: &ClientMachine, client: ClientApp, project: Option<&str>| -> Vec<String> {
            let places = client.settings_files(machine, project.map(Path::new)).unwrap();
            places.iter().map(|place| place.path.to_str().unwrap().to_owned()).collect()
        };
    for (client, own, project) in [
        (
            ClientApp::ClaudeCode,
            vec!["/h/.claude/settings.json", "/h/.claude.json"],
            vec!["/p/.claude/settings.json", "/p/.mcp.json"],
        ),
        (
            ClientApp::Codex,
            vec!["/h/.codex/hooks.json", "/h/.codex/config.toml"],
            vec!["/p/.codex/hooks.json", "/p/.codex/config.toml"],
        ),
        (ClientApp::Cursor, vec!["/h/.cursor/mcp.json"], vec!["/p/.cursor/mcp.json"]),
        (ClientApp::VsCode, vec!["/h/.config/Code/User/mcp.json"], vec!["/p/.vscode/mcp.json"]),
    ] {
        assert_eq!(files(&linux, client, None), own);
        assert_eq!(files(&linux, client, Some("/p")), project);
    }
    assert!(ClientApp::ClaudeDesktop.settings_files(&linux, Some(Path::new("/p"))).is_err());
    let desktop =
        |machine: &ClientMachine| files(machine, ClientApp::ClaudeDesktop, None)[0].clone();
    assert_eq!(desktop(&linux), "/h/.config/Claude/claude_desktop_config.json");
    assert_eq!(
        desktop(&machine(OperatingSystem::Linux, Some("/x"))),
        "/x/Claude/claude_desktop_config.json"
    );
    assert_eq!(
        desktop(&machine(OperatingSystem::Mac, None)),
        "/h/Library/Application Support/Claude/claude_desktop_config.json"
    );
    assert_eq!(
        desktop(&machine(OperatingSystem::Windows, Some("/roaming"))),
        "/roaming/Claude/claude_desktop_config.json"
    );
    assert_eq!(
        files(&machine(OperatingSystem::Mac, None), ClientApp::VsCode, None),
        ["/h/Library/Application Support/Code/User/mcp.json"]
    );
    let moved = ClientMachine { claude: Some("/c".into()), codex: Some("/x".into()), ..linux };
    assert_eq!(files(&moved, ClientApp::ClaudeCode, None), ["/c/settings.json", "/c/.claude.json"]);
    assert_eq!(files(&moved, ClientApp::Codex, None), ["/x/hooks.json", "/x/config.toml"]);
}

#[test]
fn a_program_is_called_by_name_only_where_that_leads_to_it() {
    let (own, found) = (Path::new("/build/icecore"), Path::new("/usr/bin/icecore"));
    let command = |client, found, shared| invocation_for(client, own, found, shared).command;
    assert_eq!(command(ClientApp::ClaudeCode, Some(found), false), "icecore");
    assert_eq!(command(ClientApp::ClaudeCode, None, false), "/build/icecore");
    // Programs started from a desktop have no shell's search path; shared project settings need
    // one.
    assert_eq!(command(ClientApp::ClaudeDesktop, Some(found), false), "/usr/bin/icecore");
    assert_eq!(command(ClientApp::VsCode, Some(found), true), "icecore");
}

/// A value of settings, and a style of writing it.
#[derive(Debug, Clone)]
enum SampleJson {
    Plain(&'static str),
    List(Vec<SampleJson>),
    Object(Vec<(String, SampleJson)>),
}

#[derive(Debug, Clone)]
struct WritingStyle {
    line_end: &'static str,
    indent: &'static str,
    comments: bool,
    comma: bool,
    one_line: bool,
    marked: bool,
    last_line_end: bool,
}

fn sample_json() -> impl Strategy<Value = SampleJson> {
    let plain = prop_oneof![
        Just("1"),
        Just("-2.5e3"),
        Just("null"),
        Just("true"),
        Just(r#""a \" // b""#),
        Just(r#""\u00e9, /* x */ }""#)
    ];
    let leaf = plain.prop_map(SampleJson::Plain);
    leaf.prop_recursive(4, 24, 4, |inner| {
        let name = "[a-z]{1,3}|hooks|Stop|é \\\\\\\\ x";
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(SampleJson::List),
            prop::collection::vec((name, inner), 0..4).prop_map(|mut fields| {
                fields.sort_by(|a, b| a.0.cmp(&b.0));
                fields.dedup_by(|a, b| a.0 == b.0);
                SampleJson::Object(fields)
            }),
        ]
    })
}

/// A client's settings: with other entries around, among them foreign hooks and servers.
fn settings() -> impl Strategy<Value = SampleJson> {
    let handler = Just(SampleJson::Object(vec![
        ("type".into(), SampleJson::Plain("\"command\"")),
        ("command".into(), SampleJson::Plain("\"say icecore hook\"")),
    ]));
    let group =
        (prop::collection::vec(handler, 0..3), any::<bool>()).prop_map(|(handlers, matched)| {
            let matcher =
                matched.then(|| ("matcher".to_owned(), SampleJson::Plain("\"manual|auto\"")));
            SampleJson::Object(
                matcher
                    .into_iter()
                    .chain([("hooks".to_owned(), SampleJson::List(handlers))])
                    .collect(),
            )
        });
    let events =
        prop::sample::subsequence(vec!["Stop", "SessionEnd", "PreToolUse", "PreCompact"], 0..4);
    let hooks = events.prop_flat_map(move |events| {
        let many = events.len();
        (Just(events), prop::collection::vec(prop::collection::vec(group.clone(), 0..3), many))
    });
    let hooks = hooks.prop_map(|(events, groups)| {
        SampleJson::Object(
            events
                .into_iter()
                .map(str::to_owned)
                .zip(groups.into_iter().map(SampleJson::List))
                .collect(),
        )
    });
    let servers = || {
        prop::collection::vec(("other[a-z]", sample_json()), 0..3).prop_map(|mut fields| {
            fields.dedup_by(|a, b| a.0 == b.0);
            SampleJson::Object(fields)
        })
    };
    let rest = prop::collection::vec(("[a-g]{2}", sample_json()), 0..4);
    (prop::option::of(hooks), prop::option::of(servers()), prop::option::of(servers()), rest)
        .prop_map(|(hooks, common, code, mut rest)| {
            rest.sort_by(|a, b| a.0.cmp(&b.0));
            rest.dedup_by(|a, b| a.0 == b.0);
            rest.extend(hooks.map(|hooks| ("hooks".to_owned(), hooks)));
            rest.extend(common.map(|servers| ("mcpServers".to_owned(), servers)));
            rest.extend(code.map(|servers| ("servers".to_owned(), servers)));
            SampleJson::Object(rest)
        })
}

fn hand() -> impl Strategy<Value = WritingStyle> {
    let ends = prop_oneof![Just("\n"), Just("\r\n")];
    let indents = prop_oneof![Just("  "), Just("    "), Just("\t")];
    (
        ends,
        indents,
        any::<bool>(),
        any::<bool>(),
        prop::bool::weighted(0.2),
        prop::bool::weighted(0.2),
        any::<bool>(),
    )
        .prop_map(|(line_end, indent, comments, comma, one_line, marked, last_line_end)| {
            WritingStyle { line_end, indent, comments, comma, one_line, marked, last_line_end }
        })
}

fn write_json(made: &SampleJson, hand: &WritingStyle, depth: usize) -> String {
    let block = |open: char, items: Vec<String>, close: char| {
        if items.is_empty() {
            return format!("{open}{close}");
        }
        if hand.one_line {
            return format!("{open}{}{close}", items.join(", "));
        }
        let mut out = String::from(open);
        let many = items.len();
        for (at, item) in items.into_iter().enumerate() {
            if hand.comments && at % 2 == 1 {
                out.push_str(&format!(
                    "{}{}// of its own, {{\"a\": [",
                    hand.line_end,
                    hand.indent.repeat(depth + 1)
                ));
            }
            out.push_str(&format!("{}{}{item}", hand.line_end, hand.indent.repeat(depth + 1)));
            if at + 1 < many || hand.comma {
                out.push(',');
            }
            if hand.comments && at % 2 == 0 {
                out.push_str(if at % 4 == 0 { " /* a, */ // beside it" } else { "  /* short */" });
            }
        }
        format!("{out}{}{}{close}", hand.line_end, hand.indent.repeat(depth))
    };
    match made {
        SampleJson::Plain(text) => (*text).to_owned(),
        SampleJson::List(items) => {
            block('[', items.iter().map(|item| write_json(item, hand, depth + 1)).collect(), ']')
        }
        SampleJson::Object(fields) => {
            let field = |(name, value): &(String, SampleJson)| {
                format!("\"{name}\": {}", write_json(value, hand, depth + 1))
            };
            block('{', fields.iter().map(field).collect(), '}')
        }
    }
}

fn text_of(made: &SampleJson, hand: &WritingStyle) -> String {
    let mark = if hand.marked { "\u{FEFF}" } else { "" };
    let head = if hand.comments { format!("// settings{}", hand.line_end) } else { String::new() };
    format!(
        "{mark}{head}{}{}",
        write_json(made, hand, 0),
        if hand.last_line_end { hand.line_end } else { "" }
    )
}

/// The same without comments and commas that plain JSON does not allow.
fn value(node: &JsonNode) -> serde_json::Value {
    match &node.kind {
        json::NodeKind::Object(members) => {
            members.iter().map(|member| (member.name.clone(), value(&member.value))).collect()
        }
        json::NodeKind::List(items) => items.iter().map(value).collect(),
        json::NodeKind::Text(text) => text.clone().into(),
        json::NodeKind::Flag(flag) => (*flag).into(),
        json::NodeKind::Other(raw) => serde_json::from_str(raw).unwrap(),
    }
}

fn same(made: &SampleJson) -> serde_json::Value {
    match made {
        SampleJson::Plain(text) => serde_json::from_str(text).unwrap(),
        SampleJson::List(items) => items.iter().map(same).collect(),
        SampleJson::Object(fields) => {
            let name = |name: &str| serde_json::from_str::<String>(&format!("\"{name}\"")).unwrap();
            fields.iter().map(|(key, value)| (name(key), same(value))).collect()
        }
    }
}

proptest! {
    // Whatever the settings and their style: connecting keeps all of it, is idempotent, and is
    // undone to the byte
    #[test]
    fn any_settings_come_back_byte_for_byte(made in settings(), hand in hand(), tied in any::<bool>()) {
        let text = text_of(&made, &hand);
        prop_assert_eq!(value(&json::parse(&text).unwrap().unwrap()), same(&made));
        let caller = if tied { bound_invocation() } else { plain() };
        for part in [CLAUDE, SERVER, VS_CODE] {
            let after = part.connect(&text, &caller).unwrap();
            prop_assert_ne!(&after, &text);
            prop_assert_eq!(&part.connect(&after, &caller).unwrap(), &after);
            let left = part.disconnect(&after, Some(&text)).unwrap();
            prop_assert_eq!(value(&json::parse(&left).unwrap().unwrap()), same(&made), "{}", after);
            prop_assert_eq!(left, text.clone(), "{}", after);
        }
    }

    #[test]
    fn any_text_is_read_or_refused(text in r#"[\[\]{}:,"a1\\/*\n \t-]{0,40}|\PC{0,40}"#) {
        for part in PARTS {
            if let Ok(after) = part.connect(&text, &plain()) {
                prop_assert_eq!(&part.connect(&after, &plain()).unwrap(), &after);
                prop_assert!(!part.disconnect(&after, Some(&text)).unwrap().contains("icecore"));
            }
        }
    }

}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    // Through the files themselves: the identity, whatever was there
    #[test]
    fn files_come_back_with_their_mode_and_nothing_is_left(text in prop::option::of((settings(), hand()).prop_map(|(made, hand)| text_of(&made, &hand))), mode in prop_oneof![Just(0o600), Just(0o644), Just(0o664)]) {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = TempDir::new().unwrap();
        let records = BackupRecords::new(folder.path().join("state/icecore/install"), folder.path());
        let place = SettingsFile { part: CLAUDE, path: folder.path().join("a/b/settings.json") };
        if let Some(text) = &text {
            foreign_files::replace_file(&place.path, text.as_bytes(), 0o600, None).unwrap();
            std::fs::set_permissions(&place.path, std::fs::Permissions::from_mode(mode)).unwrap();
        }
        let places = [place.clone()];
        let run = |changes: Vec<SettingsChange>| changes.iter().for_each(|change| change.write(&records).unwrap());
        run(plan_connect(&places, &plain(), None, &records).unwrap());
        prop_assert!(!plan_connect(&places, &plain(), None, &records).unwrap()[0].has_effect());
        // Another version, another vault: uninstalling still restores the original.
        run(plan_connect(&places, &bound_invocation(), None, &records).unwrap());
        prop_assert_eq!(connection_state(&place, &plain()).0, ConnectionState::Outdated);
        prop_assert_eq!(connection_state(&place, &bound_invocation()).0, ConnectionState::Connected);
        run(plan_disconnect(&places, None, &records).unwrap());
        prop_assert_eq!(foreign_files::read_file(&place.path).unwrap().map(|bytes| String::from_utf8(bytes).unwrap()), text.clone());
        let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        prop_assert_eq!(left.len(), usize::from(text.is_some()), "{:?}", left);
        if text.is_some() {
            prop_assert_eq!(std::fs::metadata(&place.path).unwrap().permissions().mode() & 0o777, mode);
        }
    }
}
