//! The program as a caller sees it: a vault in a temporary folder, a fixed clock, and none of this
//! machine's settings.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

pub const NOW: &str = "2026-02-13T09:30:00+01:00";

/// A vault for tests.
pub struct Vault {
    _folder: TempDir,
    pub root: PathBuf,
    pub now: String,
}

/// The result of a command.
#[derive(Debug)]
pub struct CommandOutput {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl CommandOutput {
    /// The one JSON value on standard output.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// The program under test; `ICECORE_TEST_PROGRAM` names another build, such as an optimized one for
/// a full sweep.
pub fn program() -> &'static str {
    static PROGRAM: std::sync::LazyLock<String> = std::sync::LazyLock::new(|| {
        std::env::var("ICECORE_TEST_PROGRAM")
            .unwrap_or_else(|_| env!("CARGO_BIN_EXE_icecore").into())
    });
    &PROGRAM
}

/// A command with none of this machine's settings.
pub fn bare(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(program);
    command
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", "/nonexistent")
        .stdin(Stdio::null());
    command
}

pub fn command_output(output: Output) -> CommandOutput {
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    let said = CommandOutput {
        code: output.status.code(),
        out: text(output.stdout),
        err: text(output.stderr),
    };
    assert!(!said.err.contains("panicked"), "{said:?}");
    said
}

impl Vault {
    /// A new vault.
    pub fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let vault = Self { root: folder.path().join("vault"), _folder: folder, now: NOW.into() };
        vault.ok(&["init", "--tz", "Europe/Berlin", "-q"]);
        vault
    }

    /// An existing vault.
    pub fn at_root(root: PathBuf) -> Self {
        Self { root, _folder: TempDir::new().unwrap(), now: NOW.into() }
    }

    /// Sets the clock.
    pub fn at(&mut self, now: &str) -> &mut Self {
        self.now = now.into();
        self
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = bare(program());
        command.args(["--vault", self.root.to_str().unwrap(), "--now", &self.now]).args(arguments);
        command
    }

    /// Runs the program.
    pub fn run(&self, arguments: &[&str]) -> CommandOutput {
        command_output(self.command(arguments).output().unwrap())
    }

    /// Runs the program with something on standard input.
    pub fn feed(&self, arguments: &[&str], input: &[u8]) -> CommandOutput {
        use std::io::Write;
        let mut child = self
            .command(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // A program that refuses early does not read all of it.
        let _ = child.stdin.take().unwrap().write_all(input);
        command_output(child.wait_with_output().unwrap())
    }

    /// Runs the program, which must succeed, and returns what it printed.
    pub fn ok(&self, arguments: &[&str]) -> String {
        let said = self.run(arguments);
        assert_eq!(said.code, Some(0), "{arguments:?}: {said:?}");
        said.out
    }

    /// Like [`Self::ok`], as JSON.
    pub fn json(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.ok(&[arguments, &["--json"]].concat())).unwrap()
    }

    /// Remembers something and returns its id.
    pub fn remember(&self, arguments: &[&str]) -> String {
        self.json(&[&["remember"], arguments].concat())["event"]["id"].as_str().unwrap().to_owned()
    }

    /// The contents of all events, in any state.
    pub fn contents(&self) -> Vec<String> {
        let events = self.json(&["events", "--all"]);
        events["events"]
            .as_array()
            .unwrap()
            .iter()
            .map(|event| event["content"].as_str().unwrap().to_owned())
            .collect()
    }

    pub fn path(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    pub fn read(&self, path: &str) -> String {
        std::fs::read_to_string(self.path(path)).unwrap_or_default()
    }

    pub fn write(&self, path: &str, text: impl AsRef<[u8]>) {
        std::fs::write(self.path(path), text).unwrap();
    }
}

/// Copies a folder with everything in it.
pub fn copy(from: &Path, to: &Path) {
    let status = Command::new("cp").arg("-a").arg(from).arg(to).status().unwrap();
    assert!(status.success());
}
