//! The rules of docs/STYLE.md and of the layers, checked on the source itself.

use std::fs;
use std::path::{Path, PathBuf};

/// The top folder of the repository.
pub fn project_root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_owned()
}

/// Every file of the repository with that ending, without build output.
pub fn project_files(ending: &str) -> Vec<(String, String)> {
    fn walk(folder: &Path, ending: &str, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).unwrap().flatten() {
            let (path, name) = (entry.path(), entry.file_name().into_string().unwrap());
            if path.is_dir()
                && !["target", ".git", "snapshots", "node_modules"].contains(&name.as_str())
            {
                walk(&path, ending, found);
            } else if name.ends_with(ending) {
                found.push(path);
            }
        }
    }
    let (root, mut found) = (project_root(), Vec::new());
    walk(&root, ending, &mut found);
    found.sort();
    let read = |path: PathBuf| {
        (
            path.strip_prefix(&root).unwrap().to_str().unwrap().to_owned(),
            fs::read_to_string(&path).unwrap(),
        )
    };
    found.into_iter().map(read).collect()
}

fn none(broken: Vec<String>) {
    assert!(broken.is_empty(), "\n{}", broken.join("\n"));
}

#[test]
fn every_file_says_what_it_is_for() {
    none(
        project_files(".rs")
            .into_iter()
            .filter(|(_, text)| !text.starts_with("//!"))
            .map(|(path, _)| format!("{path} does not begin with //!"))
            .collect(),
    );
}

#[test]
fn every_path_that_the_docs_name_exists() {
    let root = project_root();
    let tops: Vec<String> = fs::read_dir(&root)
        .unwrap()
        .flatten()
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect();
    let mut broken = Vec::new();
    for (file, text) in project_files(".md") {
        let (mut fenced, folder) = (false, Path::new(&file).parent().unwrap().to_owned());
        for line in text.lines() {
            if line.trim_start().starts_with("```") {
                fenced = !fenced;
                continue;
            }
            if fenced {
                continue;
            }
            // `crates/…` in code marks, from the top folder.
            for code in line.split('`').skip(1).step_by(2) {
                let path = code.split([' ', ':']).next().unwrap_or_default().trim_end_matches('/');
                let ours = path
                    .split('/')
                    .next()
                    .is_some_and(|top| ["crates", "docs", ".ci"].contains(&top));
                let plain = path.bytes().all(|b| b.is_ascii_alphanumeric() || b"/._-".contains(&b));
                if ours && plain && !root.join(path).exists() {
                    broken.push(format!("{file} names {path}, which does not exist"));
                }
            }
            // [text](path), from where the file is.
            for link in line.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
                let path = link.split('#').next().unwrap_or_default();
                if !path.is_empty()
                    && !path.contains("://")
                    && !root.join(&folder).join(path).exists()
                {
                    broken.push(format!("{file} links to {link}, which does not exist"));
                }
            }
        }
    }
    assert!(tops.contains(&"README.md".to_owned()));
    none(broken);
}

#[test]
fn the_floors_know_only_what_is_above_them() {
    let manifest = |name: &str| {
        fs::read_to_string(project_root().join(format!("crates/{name}/Cargo.toml"))).unwrap()
    };
    let needs = |name: &str| -> Vec<String> {
        let text = manifest(name);
        let section = text.split("\n[dependencies]\n").nth(1).unwrap_or_default();
        let section = section.split("\n[").next().unwrap_or_default();
        section
            .lines()
            .filter_map(|line| line.split(['.', ' ', '=']).next())
            .filter(|name| !name.is_empty())
            .map(str::to_owned)
            .collect()
    };
    // Pure crates: none of them opens a file, a socket or a clock.
    let pure = [
        "frostem",
        "jiff",
        "memchr",
        "serde",
        "serde_json",
        "sha2",
        "hmac",
        "similar",
        "strsim",
        "thiserror",
        "unicode-normalization",
        "unicode-segmentation",
    ];
    let mut broken: Vec<String> = needs("icecore-domain")
        .into_iter()
        .filter(|need| !pure.contains(&need.as_str()))
        .map(|need| format!("icecore-domain needs {need}, which is not known to be pure"))
        .collect();
    for (floor, below) in [
        ("icecore-store", vec!["icecore-engine", "icecore", "clap"]),
        ("icecore-engine", vec!["icecore", "clap", "rusqlite", "tempfile"]),
    ] {
        broken.extend(
            needs(floor)
                .into_iter()
                .filter(|need| below.contains(&need.as_str()))
                .map(|need| format!("{floor} needs {need}")),
        );
    }
    let outside = [
        "std::fs",
        "std::net",
        "std::process",
        "std::env",
        "std::time",
        "std::thread",
        "async fn",
        "std::io",
        "tz-system",
    ];
    for (path, text) in project_files(".rs")
        .into_iter()
        .filter(|(path, _)| path.starts_with("crates/icecore-domain/src"))
    {
        broken.extend(
            outside
                .iter()
                .filter(|word| text.contains(*word))
                .map(|word| format!("{path} reaches outside: {word}")),
        );
    }
    for (path, text) in project_files(".rs")
        .into_iter()
        .filter(|(path, _)| path.starts_with("crates/icecore-engine/src"))
    {
        broken.extend(
            ["icecore_store::vault", "clap::", "axum::"]
                .iter()
                .filter(|word| text.contains(*word))
                .map(|word| format!("{path} knows {word}")),
        );
    }
    none(broken);
}

#[test]
fn only_the_rooms_that_may_are_excused() {
    let excused = [
        "crates/icecore-store/src/testing/cluster.rs",
        "crates/icecore-store/src/vault/door.rs",
        "crates/icecore-store/src/shelf.rs",
        "crates/icecore-store/src/neighbour.rs",
        "crates/icecore-engine/src/clock.rs",
    ];
    let wrong = project_files(".rs").into_iter().filter(|(path, text)| {
        path.contains("/src/")
            && text.contains("clippy::disallowed")
            && !excused.contains(&path.as_str())
    });
    none(
        wrong
            .map(|(path, _)| format!("{path} excuses itself from the rules of clippy.toml"))
            .collect(),
    );
}

#[test]
fn every_default_and_prompt_is_read_by_somebody() {
    let defaults: toml::Table =
        fs::read_to_string(project_root().join("crates/icecore-engine/defaults.toml"))
            .unwrap()
            .parse()
            .unwrap();
    let sources: String = project_files(".rs")
        .into_iter()
        .filter(|(path, _)| path.contains("/src/"))
        .map(|(_, text)| text)
        .collect();
    fn leaves(table: &toml::Table, found: &mut Vec<String>) {
        for (key, value) in table {
            match value {
                toml::Value::Table(inner) => leaves(inner, found),
                _ => found.push(key.clone()),
            }
        }
    }
    let mut keys = Vec::new();
    leaves(&defaults, &mut keys);
    assert!(keys.len() >= 6);
    let read = |key: &String| {
        sources.contains(&format!(".{key}")) || sources.contains(&format!("get(\"{key}\")"))
    };
    none(
        keys.into_iter()
            .filter(|key| !read(key))
            .map(|key| format!("defaults.toml: nobody reads {key}"))
            .collect(),
    );
    let prompts = project_files(".yaml").into_iter().filter(|(path, _)| path.contains("/prompts/"));
    none(
        prompts
            .filter(|(path, _)| !sources.contains(path.rsplit('/').next().unwrap()))
            .map(|(path, _)| format!("nobody reads {path}"))
            .collect(),
    );
}

#[test]
fn no_test_is_switched_off_and_nothing_is_left_undone() {
    let marks =
        ["#[igno".to_owned() + "re", "to".to_owned() + "do!(", "unimple".to_owned() + "mented!("];
    let mut broken = Vec::new();
    for (path, text) in project_files(".rs") {
        broken.extend(
            marks
                .iter()
                .filter(|mark| text.contains(mark.as_str()))
                .map(|mark| format!("{path} has {mark}")),
        );
        // A calendar year beside a week number is wrong on the days that matter.
        let wrong_week = text.lines().any(|line| {
            line.contains("%Y")
                && ["%V", "%U", "%W"].iter().any(|week| line.contains(week))
                && !path.ends_with("tidy.rs")
        });
        if wrong_week {
            broken.push(format!("{path} puts %Y beside a week number"));
        }
    }
    none(broken);
}

#[test]
fn the_readme_names_its_two_commands_and_the_change_log_this_version() {
    let read = |name: &str| fs::read_to_string(project_root().join(name)).unwrap();
    let readme = read("README.md");
    assert!(readme.contains("cargo run --release -- demo") && readme.contains("./test"));
    assert!(read(".ci/run").contains("./test"));
    assert!(
        read("CHANGELOG.md").contains(env!("CARGO_PKG_VERSION"))
            || read("CHANGELOG.md").contains("Unreleased")
    );
    // Every command of the help is in the README or a guide.
    let docs: String = project_files(".md").into_iter().map(|(_, text)| text).collect();
    let help = crate::program::said(
        crate::program::bare(crate::program::program())
            .args(["help", "--all", "--json"])
            .output()
            .unwrap(),
    )
    .json();
    let groups = help["groups"].as_array().unwrap().iter();
    let commands = groups.flat_map(|group| group["commands"].as_array().unwrap());
    let unknown = commands
        .filter_map(|command| command["name"].as_str())
        .filter(|name| !docs.contains(&format!("icecore {name}")));
    none(unknown.map(|name| format!("no document mentions `icecore {name}`")).collect());
}

/// The scripts that install what tests need.
fn install_scripts() -> Vec<(String, String)> {
    let root = project_root();
    let folders = fs::read_dir(root.join("tests"))
        .unwrap()
        .flatten()
        .map(|entry| entry.path().join("install"));
    let scripts = folders.filter(|path| path.is_file()).chain([
        root.join("test"),
        root.join("dashboard/check"),
        root.join("plugin/mcpb/pack"),
    ]);
    scripts.map(|path| (path.display().to_string(), fs::read_to_string(path).unwrap())).collect()
}

// Another package manager at work is waited for, by the one helper that all of them use
#[test]
fn a_held_package_lock_is_waited_for() {
    none(
        install_scripts()
            .into_iter()
            .filter(|(_, text)| text.contains("apt-get"))
            .map(|(path, _)| {
                format!(
                    "{path} calls apt-get; get_packages of tests/packages.sh waits for its locks"
                )
            })
            .collect(),
    );
    let folder = tempfile::TempDir::new().unwrap();
    let calls = folder.path().join("calls");
    // Fails as the real one does while somebody holds a lock: twice, then for another reason if
    // `broken` is there.
    let script = format!(
        "#!/bin/sh\necho \"$*\" >> {calls}\n[ \"$(wc -l < {calls})\" -gt 2 ] || {{ echo 'E: Could not get lock /var/lib/apt/lists/lock. It is held by process 1' >&2; exit 100; }}\n\
         [ ! -e {folder}/broken ] || {{ echo 'E: Unable to locate package' >&2; exit 100; }}\n",
        calls = calls.display(),
        folder = folder.path().display()
    );
    for name in ["apt-get", "sudo"] {
        let text = if name == "sudo" { "#!/bin/sh\nexec \"$@\"\n" } else { script.as_str() };
        fs::write(folder.path().join(name), text).unwrap();
        fs::set_permissions(
            folder.path().join(name),
            std::os::unix::fs::PermissionsExt::from_mode(0o755),
        )
        .unwrap();
    }
    let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap());
    let run = || {
        let _ = fs::remove_file(&calls);
        let words = ["-euc", ". tests/packages.sh; get_packages --no-install-recommends one two"];
        crate::program::said(
            crate::program::bare("bash")
                .args(words)
                .env("PATH", &path)
                .current_dir(project_root())
                .output()
                .unwrap(),
        )
    };
    let waited = run();
    assert_eq!(waited.code, Some(0), "{waited:?}");
    assert_eq!(waited.err.matches("waiting for another package manager").count(), 1, "{waited:?}");
    let called = fs::read_to_string(&calls).unwrap();
    assert_eq!(called.lines().filter(|line| line.ends_with(" update")).count(), 3, "{called}");
    assert!(
        called
            .contains("-o DPkg::Lock::Timeout=600 -qq install -y --no-install-recommends one two"),
        "{called}"
    );
    // What is no lock is an error at once.
    fs::write(folder.path().join("broken"), "").unwrap();
    let failed = run();
    assert!(
        failed.code == Some(1) && failed.err.contains("Unable to locate package"),
        "{failed:?}"
    );
}

/// The single words of docs/STYLE.md that are no name of a type, function or module.
const BANNED_NAMES: &[&str] = &[
    "press",
    "pressed",
    "pressing",
    "home",
    "homes",
    "floor",
    "room",
    "door",
    "doors",
    "house",
    "told",
    "heard",
    "said",
    "given",
    "taken",
    "kept",
    "begun",
    "noted",
    "unkept",
    "attend",
    "tend",
    "look",
    "carry",
    "pulse",
    "trail",
    "curate",
    "across",
    "arrivals",
    "folded",
    "past",
    "neighbour",
    "shelf",
    "mind",
    "hands",
    "deed",
    "wish",
    "anew",
    "reckoned",
    "likewise",
    "whoever",
    "somebody",
    "nobody",
    "bears",
];

/// Words that are not even a part of such a name.
const BANNED_PARTS: &[&str] =
    &["told", "heard", "pressed", "pressing", "unkept", "anew", "reckoned", "whoever", "somebody"];

/// Phrases of docs/STYLE.md that no comment, text or document contains.
const BANNED_PHRASES: &[&str] = &[
    "made anew",
    "taken in",
    "put off",
    "set aside",
    "let in",
    "reckoned",
    "likewise",
    "whoever",
    "somebody",
    "words were compared, not meanings",
    "nobody can be asked here",
    "for good",
];

/// The name and the kind of what a line of Rust defines.
fn definition(line: &str) -> Option<(&str, &str)> {
    let mut rest = line.trim_start();
    if let Some(public) = rest.strip_prefix("pub") {
        rest = match public.strip_prefix('(') {
            Some(scope) => scope.split_once(')')?.1,
            None => public,
        }
        .trim_start();
    }
    for modifier in ["const fn ", "async fn ", "unsafe fn "] {
        if rest.starts_with(modifier) {
            rest = &rest[modifier.len() - 3..];
        }
    }
    let (kind, rest) = rest.split_once(' ')?;
    let known = ["fn", "struct", "enum", "trait", "type", "mod"].contains(&kind);
    let name = rest.split(|c: char| !c.is_alphanumeric() && c != '_').next()?;
    (known && !name.is_empty()).then_some((kind, name))
}

/// `MadeAnew` and `made_anew` as their words.
fn words_of(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    for c in name.chars() {
        if c == '_' || c.is_uppercase() {
            words.push(String::new());
        }
        if c != '_' {
            words.last_mut().unwrap().extend(c.to_lowercase());
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

/// The sources of the crates without their tests: what a developer greps.
fn sources() -> Vec<(String, String)> {
    let code = |text: String| match text.split_once("\n#[cfg(test)]\nmod tests {") {
        Some((code, _)) => code.to_owned(),
        None => text,
    };
    let files = project_files(".rs").into_iter().filter(|(path, _)| {
        path.contains("/src/") && !path.ends_with("tests.rs") && !path.ends_with("testing.rs")
    });
    files.map(|(path, text)| (path, code(text))).collect()
}

#[test]
fn names_are_words_of_the_field() {
    let mut broken = Vec::new();
    for (path, text) in sources() {
        for (at, line) in text.lines().enumerate() {
            let Some((kind, name)) = definition(line) else { continue };
            let words = words_of(name);
            let is_banned = BANNED_NAMES.contains(&words.join("_").as_str())
                || words.iter().any(|word| BANNED_PARTS.contains(&word.as_str()));
            if is_banned {
                broken.push(format!("{path}:{}: {kind} {name}", at + 1));
            }
        }
    }
    none(broken);
}

#[test]
fn two_public_types_of_a_crate_never_share_a_name() {
    let mut places: std::collections::BTreeMap<(String, String), Vec<String>> = Default::default();
    for (path, text) in sources() {
        let package = path.split('/').nth(1).unwrap().to_owned();
        for (at, line) in text.lines().enumerate() {
            // An associated type is the trait's own.
            if line.starts_with(' ') || !line.starts_with("pub") {
                continue;
            }
            if let Some(("struct" | "enum" | "trait" | "type", name)) = definition(line) {
                let place = format!("{path}:{}", at + 1);
                places.entry((package.clone(), name.to_owned())).or_default().push(place);
            }
        }
    }
    let shared = places.into_iter().filter(|(_, places)| places.len() > 1);
    none(shared.map(|((_, name), places)| format!("{name}: {}", places.join(", "))).collect());
}

#[test]
fn texts_are_in_plain_words() {
    let mut broken = Vec::new();
    let documents = project_files(".md").into_iter().filter(|(path, _)| path != "docs/STYLE.md");
    for (path, text) in sources().into_iter().chain(documents) {
        for (at, line) in text.lines().enumerate() {
            let lower = line.to_lowercase();
            for phrase in BANNED_PHRASES {
                let found = lower.match_indices(phrase).any(|(start, _)| {
                    let is_letter = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
                    !is_letter(lower[..start].chars().next_back())
                        && !is_letter(lower[start + phrase.len()..].chars().next())
                });
                if found {
                    broken.push(format!("{path}:{}: {phrase}", at + 1));
                }
            }
        }
    }
    none(broken);
}

#[test]
fn public_items_have_a_doc_comment() {
    let mut broken = Vec::new();
    for (path, text) in sources() {
        let lines: Vec<&str> = text.lines().collect();
        for (at, line) in lines.iter().enumerate() {
            if !line.trim_start().starts_with("pub ") {
                continue;
            }
            let Some((kind, name)) = definition(line) else { continue };
            let above = lines[..at].iter().rev().map(|line| line.trim());
            let mut above = above.skip_while(|line| {
                line.starts_with("#[")
                    || line.ends_with(']')
                    || line.starts_with("//") && !line.starts_with("///")
            });
            let is_documented = above.next().is_some_and(|line| line.starts_with("///"));
            if !is_documented && kind != "mod" {
                broken.push(format!("{path}:{}: {kind} {name}", at + 1));
            }
        }
    }
    none(broken);
}
