//! A user with a home directory in a temporary folder, and the real program.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use crate::program::{CommandOutput, bare, command_output, program};

/// A home directory with a project in it, and clients that print a version.
pub struct Person {
    folder: TempDir,
    programs: TempDir,
}

impl Person {
    pub fn new() -> Self {
        let folder = TempDir::new().unwrap();
        fs::create_dir_all(folder.path().join("project/.git")).unwrap();
        fs::create_dir_all(folder.path().join("project/src")).unwrap();
        let person = Self { folder, programs: TempDir::new().unwrap() };
        person.put_program("claude", "echo '2.1.327 (Claude Code)'");
        person.put_program("codex", "echo codex-cli 0.169.0");
        person
    }

    /// Puts a shell script on the search path, in front of this machine's programs.
    pub fn put_program(&self, name: &str, script: &str) {
        let place = self.programs.path().join(name);
        fs::write(&place, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(place, fs::Permissions::from_mode(0o755)).unwrap();
    }

    pub fn home_dir(&self) -> PathBuf {
        fs::canonicalize(self.folder.path()).unwrap()
    }

    pub fn at(&self, path: &str) -> PathBuf {
        self.home_dir().join(path)
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.start(program());
        command.args(arguments);
        command
    }

    /// A program as one of the user's programs starts it.
    pub fn start(&self, called: &str) -> Command {
        // With the program on the search path, as after an installation.
        let path = std::env::join_paths(
            [Path::new(program()).parent().unwrap().to_owned(), self.programs.path().to_owned()]
                .into_iter()
                .chain(std::env::split_paths(&std::env::var_os("PATH").unwrap())),
        );
        let path = path.unwrap();
        // As a shell finds it.
        let place = std::env::split_paths(&path)
            .map(|folder| folder.join(called))
            .find(|place| place.is_file());
        let mut command = bare(place.unwrap_or_else(|| called.into()));
        command.env("HOME", self.home_dir()).env("PATH", path).current_dir(self.at("project/src"));
        command
    }

    pub fn run(&self, arguments: &[&str]) -> CommandOutput {
        command_output(self.command(arguments).output().unwrap())
    }

    pub fn ok(&self, arguments: &[&str]) -> CommandOutput {
        let said = self.run(arguments);
        assert_eq!(said.code, Some(0), "{arguments:?}: {said:?}");
        said
    }

    pub fn json(&self, arguments: &[&str]) -> Value {
        self.ok(&[arguments, &["--json"]].concat()).json()
    }

    pub fn write(&self, path: &str, text: &str) {
        let place = self.at(path);
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        fs::write(place, text).unwrap();
    }

    pub fn read(&self, path: &str) -> String {
        fs::read_to_string(self.at(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    /// The user's own vault.
    pub fn vault(&self) -> PathBuf {
        self.at(".local/share/icecore")
    }

    /// Every file and folder outside of the vault, with its content and mode.
    pub fn everything(&self) -> BTreeMap<String, (u32, String)> {
        fn walk(folder: &Path, vault: &Path, found: &mut BTreeMap<String, (u32, String)>) {
            for entry in fs::read_dir(folder).unwrap().flatten() {
                let path = entry.path();
                if path == vault {
                    continue;
                }
                let mode = entry.metadata().unwrap().permissions().mode();
                let name = path.display().to_string();
                if entry.file_type().unwrap().is_symlink() {
                    found.insert(name, (0, fs::read_link(&path).unwrap().display().to_string()));
                } else if path.is_dir() {
                    found.insert(name, (mode, String::new()));
                    walk(&path, vault, found);
                } else {
                    found.insert(name, (mode, fs::read_to_string(&path).unwrap()));
                }
            }
        }
        let mut found = BTreeMap::new();
        walk(&self.home_dir(), &self.vault(), &mut found);
        found
    }

    pub fn state(&self, client: &str) -> Vec<String> {
        let told = self.json(&["install"]);
        let one =
            told["clients"].as_array().unwrap().iter().find(|one| one["client"] == client).unwrap();
        one["files"]
            .as_array()
            .unwrap()
            .iter()
            .map(|file| {
                format!("{} {}", file["what"].as_str().unwrap(), file["state"].as_str().unwrap())
            })
            .collect()
    }
}
