//! The installed version of a client. A client may ignore a whole file with an unknown setting, so
//! the written settings depend on its version.

use std::fmt;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// How long a client may take to print its version. The slowest one measured took one second.
const ANSWER_SECS: u64 = 5;
const MAX_ANSWER_BYTES: u64 = 4_096;

/// A release of a client: major, minor, patch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(pub u32, pub u32, pub u32);

impl Version {
    /// The first version number in a text such as `2.1.39 (Claude Code)` or `codex-cli 0.169.0`.
    pub fn find(text: &str) -> Option<Self> {
        text.split_whitespace().find_map(|word| {
            // A pre-release counts as its release.
            let word = word.trim_start_matches('v').split(['-', '+']).next()?;
            let numbers: Vec<u32> =
                word.split('.').map(str::parse).collect::<Result<_, _>>().ok()?;
            if let [major, minor, patch] = numbers[..] {
                Some(Self(major, minor, patch))
            } else {
                None
            }
        })
    }

    /// Runs a program with --version. `None` if it fails, prints no version, or takes too long.
    pub fn ask(program: &Path, folder: &Path) -> Option<Self> {
        let mut child = Command::new(program)
            .arg("--version")
            .current_dir(folder)
            // --version must not trigger updates or telemetry.
            .envs([("DISABLE_AUTOUPDATER", "1"), ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1")])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        let (send, receive) = mpsc::channel();
        if let Some(stdout) = child.stdout.take() {
            thread::spawn(move || {
                let mut line = String::new();
                let _ = BufReader::new(stdout.take(MAX_ANSWER_BYTES)).read_line(&mut line);
                let _ = send.send(line);
            });
        }
        let line = receive.recv_timeout(Duration::from_secs(ANSWER_SECS));
        let _ = child.kill();
        let _ = child.wait();
        Self::find(&line.ok()?)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.0, self.1, self.2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_found_in_what_clients_print() {
        for (text, version) in [
            ("2.1.39 (Claude Code)", Some(Version(2, 1, 39))),
            ("codex-cli 0.169.0", Some(Version(0, 169, 0))),
            ("codex-cli 0.170.0-alpha.3", Some(Version(0, 170, 0))),
            ("v1.0.85", Some(Version(1, 0, 85))),
            ("2.1", None),
            ("2.1.39.4", None),
            ("99999999999.1.1", None),
            ("error: no such command", None),
            ("", None),
        ] {
            assert_eq!(Version::find(text), version, "{text}");
        }
        assert!(Version(2, 1, 139) > Version(2, 1, 76) && Version(2, 1, 76) > Version(1, 0, 85));
    }
}
