//! Which route corresponds to which command, and why some commands have none. A test checks the
//! table against the command line.

/// How a command is available over HTTP.
pub enum CommandRoutes {
    /// By these routes.
    By(&'static [&'static str]),
    /// Not available, for this reason.
    Not(&'static str),
}

use CommandRoutes::{By, Not};

const CHANGES_LOCAL_SETTINGS: &str = "it changes settings of other programs on the local machine";
const IS_A_PROCESS: &str = "it is a process of its own";
const USES_LOCAL_FILES: &str = "it reads and writes local files";
const CONCERNS_THE_PROGRAM: &str = "it concerns the program, not memory";

/// Every command, in the order of the help.
pub const COMMANDS: &[(&str, CommandRoutes)] = &[
    (
        "init",
        Not(
            "it creates a vault in a local folder; `serve --root` and the first message of an end user create theirs",
        ),
    ),
    ("status", By(&["GET /api/status"])),
    ("log", By(&["POST /api/log"])),
    ("remember", By(&["POST /api/events"])),
    ("close", By(&["POST /api/events/{id}/close"])),
    ("confirm", By(&["POST /api/events/{id}/confirm"])),
    ("retract", By(&["POST /api/events/{id}/retract"])),
    ("quarantine list", By(&["GET /api/quarantine"])),
    ("quarantine confirm", By(&["POST /api/quarantine/{id}/confirm"])),
    ("quarantine drop", By(&["POST /api/quarantine/{id}/drop"])),
    ("events", By(&["GET /api/events", "GET /api/ledger"])),
    ("commitments", By(&["GET /api/commitments"])),
    ("conflicts", By(&["GET /api/conflicts"])),
    ("show", By(&["GET /api/events/{id}", "GET /api/events/{id}/graph"])),
    ("why", By(&["GET /api/why", "GET /api/core/{period}/why"])),
    ("message add", By(&["POST /api/messages"])),
    ("session add", By(&["POST /api/sessions"])),
    ("save-state", By(&["POST /api/state", "POST /state/append-log"])),
    ("import", By(&["POST /api/import"])),
    (
        "rollup",
        By(&["POST /api/jobs/run", "GET /api/rollup", "POST /api/rollup", "POST /api/backfill"]),
    ),
    ("consolidate", By(&["POST /api/jobs/run", "GET /api/consolidate"])),
    ("compact", By(&["GET /api/compact", "POST /api/compact"])),
    ("prune", By(&["GET /api/prune", "POST /api/prune"])),
    ("migrate", By(&["POST /api/migrate"])),
    ("triggers", By(&["GET /api/triggers", "POST /api/triggers"])),
    ("summary review", By(&["GET /api/reviews", "POST /api/reviews/{period}"])),
    ("summary mark", By(&["POST /api/marks"])),
    ("pack upload", By(&["GET /api/packs/upload"])),
    ("pack pyramid", By(&["GET /api/packs/pyramid"])),
    ("pack recall", By(&["GET /api/packs/recall"])),
    ("pack delta", By(&["GET /api/packs/delta"])),
    ("pack session-start", By(&["GET /api/packs/session-start"])),
    ("pack chat", By(&["GET /api/packs/chat"])),
    ("zoom", By(&["GET /api/zoom", "GET /api/core/{period}/messages"])),
    ("search", By(&["GET /api/search"])),
    ("insights trends", By(&["GET /api/trends"])),
    ("insights lookback", By(&["GET /api/lookback"])),
    ("insights similar", By(&["GET /api/similar", "GET /api/similar/merged"])),
    ("conversation list", By(&["GET /api/conversations"])),
    (
        "conversation show",
        By(&["GET /api/conversations/{name}", "GET /api/conversations/{name}/turns"]),
    ),
    ("conversation facts", By(&["GET /api/conversations/{name}/facts"])),
    ("conversation turns", By(&["GET /api/conversations/{name}/turns"])),
    (
        "conversation artifacts",
        By(&[
            "GET /api/conversations/{name}/artifacts",
            "GET /api/conversations/{name}/artifacts/{which}",
            "GET /api/conversations/{name}/artifacts/{which}/diff",
        ]),
    ),
    ("conversation diff", By(&["GET /api/conversations/{name}/diff"])),
    ("conversation retry", By(&["POST /api/conversations/{name}/retry"])),
    ("conversation promote", By(&["POST /api/conversations/{name}/promote"])),
    ("conversation export", By(&["GET /api/conversations/{name}/export"])),
    ("conversation delete", By(&["DELETE /api/conversations/{name}"])),
    ("chat", Not("it is a client of the chat routes: POST /v1/chat/completions")),
    ("serve", Not("it is the server itself")),
    ("dashboard", By(&["POST /api/login/code"])),
    ("mcp", Not("it uses stdio; POST /mcp is the same over HTTP")),
    ("memory-tool", By(&["POST /api/memory-tool", "GET /api/memory-tool/versions"])),
    ("install", Not(CHANGES_LOCAL_SETTINGS)),
    ("uninstall", Not(CHANGES_LOCAL_SETTINGS)),
    (
        "hook",
        Not("clients run it as a program, within milliseconds, and it reads local transcripts"),
    ),
    ("hook log", By(&["GET /api/injected"])),
    ("pause", By(&["GET /api/pauses", "POST /api/pauses"])),
    ("resume", By(&["POST /api/resume"])),
    ("jobs schedule", By(&["GET /api/jobs"])),
    ("jobs calendar", By(&["GET /api/calendar", "GET /api/calendar/ics"])),
    ("jobs runs", By(&["GET /api/runs", "GET /api/runs/days"])),
    ("daemon", Not(IS_A_PROCESS)),
    ("model check", By(&["POST /api/model/check"])),
    (
        "model fetch",
        Not("it would let any token holder make the server read its files and any URL"),
    ),
    ("verify", By(&["POST /api/verify"])),
    ("doctor", By(&["POST /api/doctor"])),
    ("snapshot", By(&["GET /api/snapshots", "POST /api/snapshots"])),
    ("undo", By(&["POST /api/undo"])),
    ("forget", By(&["POST /api/forget"])),
    ("vault reindex", By(&["POST /api/reindex"])),
    ("vault export", Not("it creates a vault in a local folder")),
    ("vault backup create", Not(USES_LOCAL_FILES)),
    ("vault backup verify", Not(USES_LOCAL_FILES)),
    ("vault backup restore", Not(USES_LOCAL_FILES)),
    ("vault config show", By(&["GET /api/config"])),
    ("vault config check", By(&["GET /api/config/check"])),
    ("vault config set", Not("retention is decided by the operator of the server")),
    ("merge", By(&["GET /api/merge", "POST /api/merge"])),
    ("merge-driver", Not("git runs it on a local file")),
    ("db migrate", Not("an administrator changes the tables of a database, not a server")),
    ("db token add", By(&["POST /api/tokens"])),
    ("db token list", By(&["GET /api/tokens"])),
    ("db token rotate", By(&["POST /api/tokens/{token}/rotate"])),
    ("db token revoke", By(&["DELETE /api/tokens/{token}"])),
    ("db space list", By(&["GET /api/spaces"])),
    ("db space show", By(&["GET /api/spaces/{name}"])),
    ("db space erase", By(&["DELETE /api/spaces/{name}"])),
    (
        "db space quota",
        By(&[
            "GET /api/spaces/{name}/quota",
            "POST /api/spaces/{name}/quota",
            "GET /api/quota",
            "POST /api/quota",
        ]),
    ),
    ("db audit", By(&["GET /api/audit"])),
    ("demo", Not("it creates a sample vault in a temporary local folder")),
    ("self completions", Not(CONCERNS_THE_PROGRAM)),
    ("self man", Not(CONCERNS_THE_PROGRAM)),
    ("help", Not(CONCERNS_THE_PROGRAM)),
];

/// The table as Markdown, as the guide has it.
#[cfg(test)]
fn table() -> String {
    let mut text = String::from("| command | over HTTP |\n|---|---|\n");
    for (command, reached) in COMMANDS {
        let reached = match reached {
            By(routes) => {
                routes.iter().map(|route| format!("`{route}`")).collect::<Vec<_>>().join(", ")
            }
            Not(why) => format!("none: {why}"),
        };
        text.push_str(&format!("| `{command}` | {reached} |\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::routes;
    use super::*;

    fn leaves(command: &clap::Command, before: &str, found: &mut Vec<String>) {
        for one in command.get_subcommands() {
            let name = format!("{before}{}", one.get_name());
            if !one.is_subcommand_required_set() {
                found.push(name.clone());
            }
            leaves(one, &format!("{name} "), found);
        }
    }

    // K12: everything the command line can do, over HTTP
    #[test]
    fn every_command_has_a_route_or_a_reason_for_none() {
        let mut there = Vec::new();
        leaves(&crate::cli::command(), "", &mut there);
        let told: Vec<&str> = COMMANDS.iter().map(|(command, _)| *command).collect();
        assert_eq!(
            told, there,
            "a command has neither a route nor a reason here, or stands elsewhere in the help"
        );
        let routes: BTreeSet<String> =
            routes().iter().map(|route| format!("{} {}", route.method, route.path)).collect();
        for (command, reached) in COMMANDS {
            match reached {
                By(named) => {
                    assert!(!named.is_empty(), "{command}");
                    for route in *named {
                        assert!(routes.contains(*route), "{command}: there is no {route}");
                    }
                }
                Not(why) => assert!(why.len() > 10, "{command}"),
            }
        }
    }

    #[test]
    fn the_guide_has_the_table() {
        let place = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/api.md");
        let guide = std::fs::read_to_string(place).unwrap();
        assert!(guide.contains(&table()), "docs/api.md is to have this table:\n{}", table());
    }
}
