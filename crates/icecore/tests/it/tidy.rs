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

/// Fails with every broken rule at once.
fn assert_none(broken: Vec<String>) {
    assert!(broken.is_empty(), "\n{}", broken.join("\n"));
}

#[test]
fn every_file_begins_with_a_module_comment() {
    assert_none(
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
    assert_none(broken);
}

#[test]
fn layers_depend_only_on_lower_layers() {
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
        "icecore-text",
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
    let mut broken = Vec::new();
    for layer in ["icecore-text", "icecore-domain"] {
        broken.extend(
            needs(layer)
                .into_iter()
                .filter(|need| !pure.contains(&need.as_str()))
                .map(|need| format!("{layer} needs {need}, which is not known to be pure")),
        );
    }
    for (layer, above) in [
        ("icecore-text", vec!["icecore-text", "icecore-domain", "jiff"]),
        ("icecore-store", vec!["icecore-engine", "icecore", "clap"]),
        ("icecore-engine", vec!["icecore", "clap", "rusqlite", "tempfile"]),
    ] {
        broken.extend(
            needs(layer)
                .into_iter()
                .filter(|need| above.contains(&need.as_str()))
                .map(|need| format!("{layer} depends on {need}")),
        );
    }
    let effects = [
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
    for (path, text) in project_files(".rs").into_iter().filter(|(path, _)| {
        path.starts_with("crates/icecore-domain/src") || path.starts_with("crates/icecore-text/src")
    }) {
        broken.extend(
            effects
                .iter()
                .filter(|word| text.contains(*word))
                .map(|word| format!("{path} does I/O: {word}")),
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
                .map(|word| format!("{path} uses {word}")),
        );
    }
    assert_none(broken);
}

/// The primitives of text analysis that a source file writes again instead of calling icecore-text.
fn rewritten_text_primitives(source: &str) -> Vec<&'static str> {
    const MONTHS: [&str; 6] = ["january", "february", "april", "june", "august", "october"];
    const WEEKDAYS: [&str; 4] = ["monday", "tuesday", "wednesday", "thursday"];
    // Tests quote what they check.
    let code = source.split("\n#[cfg(test)]\nmod ").next().unwrap_or_default().to_lowercase();
    let lists = |names: &[&str]| {
        names.iter().filter(|name| code.contains(&format!("\"{name}\""))).count() > 2
    };
    let has = |parts: &[&str]| parts.iter().any(|part| code.contains(part));
    [
        ("the names of months", lists(&MONTHS)),
        ("the names of weekdays", lists(&WEEKDAYS)),
        ("a test for code fences", has(&["\"```\"", "\"~~~\""])),
        ("a list of stop words", has(&["const stop_words", "const stopwords"])),
        ("a list of negations", has(&["const negations", "const negation_words"])),
        ("a list of number words", has(&["const number_words"])),
        ("ranges of scripts", has(&["'\\u{4e00}'", "'\\u{3400}'", "'\\u{3040}'", "'\\u{ac00}'"])),
        ("a stemmer", has(&["frostem"])),
        ("Unicode normalization", has(&["unicode_normalization"])),
    ]
    .into_iter()
    .filter_map(|(what, found)| found.then_some(what))
    .collect()
}

#[test]
fn text_is_analyzed_in_one_place() {
    for planted in [
        "const M: [&str; 4] = [\"January\", \"February\", \"March\", \"April\", \"June\"];",
        "let days = [\"monday\", \"tuesday\", \"wednesday\"];",
        "let fenced = line.starts_with(\"```\");",
        "fence = [b\"~~~\"].into_iter().find(|mark| bare.starts_with(mark));",
        "const STOP_WORDS: &[&str] = &[\"the\"];",
        "const NEGATIONS: &[&str] = &[\"not\"];",
        "const NUMBER_WORDS: &[&str] = &[\"two\"];",
        "matches!(c, '\\u{4E00}'..='\\u{9FFF}')",
        "use frostem::Stemmer;",
        "use unicode_normalization::UnicodeNormalization;",
    ] {
        assert_eq!(rewritten_text_primitives(planted).len(), 1, "{planted}");
    }
    assert!(
        rewritten_text_primitives("fn a() {}\n\n#[cfg(test)]\nmod tests { \"```\" }").is_empty()
    );
    // The embedding model was trained with its own rules for splitting words.
    let model = "crates/icecore-engine/src/embed/wordpiece.rs";
    let sources = project_files(".rs").into_iter().filter(|(path, _)| {
        path.contains("/src/")
            && !path.starts_with("crates/icecore-text/")
            && !path.ends_with("/tests.rs")
            && path != model
    });
    assert_none(
        sources
            .flat_map(|(path, text)| {
                rewritten_text_primitives(&text)
                    .into_iter()
                    .map(move |what| format!("{path} has {what}; call icecore-text"))
            })
            .collect(),
    );
}

#[test]
fn only_listed_modules_bypass_the_disallowed_methods() {
    let excused = [
        "crates/icecore-store/src/testing/cluster.rs",
        "crates/icecore-store/src/vault/vault_fs/mod.rs",
        "crates/icecore-store/src/staged_dir.rs",
        "crates/icecore-store/src/foreign_files.rs",
        "crates/icecore-engine/src/clock.rs",
    ];
    let wrong = project_files(".rs").into_iter().filter(|(path, text)| {
        path.contains("/src/")
            && text.contains("clippy::disallowed")
            && !excused.contains(&path.as_str())
    });
    assert_none(
        wrong.map(|(path, _)| format!("{path} allows what clippy.toml disallows")).collect(),
    );
}

#[test]
fn every_default_and_prompt_is_used() {
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
    assert_none(
        keys.into_iter()
            .filter(|key| !read(key))
            .map(|key| format!("defaults.toml: {key} is not used"))
            .collect(),
    );
    let prompts = project_files(".yaml").into_iter().filter(|(path, _)| path.contains("/prompts/"));
    assert_none(
        prompts
            .filter(|(path, _)| !sources.contains(path.rsplit('/').next().unwrap()))
            .map(|(path, _)| format!("{path} is not used"))
            .collect(),
    );
}

#[test]
fn no_test_is_ignored_and_no_code_is_unfinished() {
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
    assert_none(broken);
}

#[test]
fn the_documents_mention_every_command_and_the_change_log_this_version() {
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
    let help = crate::program::command_output(
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
    assert_none(unknown.map(|name| format!("no document mentions `icecore {name}`")).collect());
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

// All install scripts share one helper that waits for a locked package manager
#[test]
fn package_installs_wait_for_a_held_lock() {
    assert_none(
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
    // Fails twice like apt-get while another process holds its lock, then for another reason if
    // the file `broken` exists.
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
        crate::program::command_output(
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
    // Any other failure is reported at once.
    fs::write(folder.path().join("broken"), "").unwrap();
    let failed = run();
    assert!(
        failed.code == Some(1) && failed.err.contains("Unable to locate package"),
        "{failed:?}"
    );
}

/// The single words of docs/STYLE.md that are not the name of a type, function or module.
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
const BANNED_PARTS: &[&str] = &[
    "told", "heard", "pressed", "pressing", "unkept", "anew", "reckoned", "likewise", "whoever",
    "somebody",
];

/// Phrases of docs/STYLE.md that no comment, text or document contains. "Nobody" and "bears" are
/// ordinary English in a sentence, so they are banned as names only.
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

/// Past participles that do not end in `ed`. `read`, `put` and the like are also the verb.
const IRREGULAR_PARTICIPLES: &[&str] = &[
    "begun", "broken", "built", "found", "given", "gone", "heard", "held", "kept", "known", "left",
    "lost", "made", "said", "seen", "sent", "shown", "sought", "spoken", "taken", "told", "torn",
    "written",
];

/// Words in `ed` that are verbs, or that field names and libraries prescribe.
const VERBS_IN_ED: &[&str] = &["embed", "exceed", "feed", "need", "proceed", "seed"];

/// Words in the names of constants that are numbers without a unit.
const UNITLESS: &[&str] = &[
    "bit",
    "bm25",
    "count",
    "damping",
    "depth",
    "divisor",
    "factor",
    "id",
    "length",
    "len",
    "level",
    "lift",
    "ln",
    "log2",
    "number",
    "penalty",
    "percent",
    "position",
    "ratio",
    "section",
    "share",
    "shift",
    "similarity",
    "size",
    "step",
    "version",
    "weight",
    "width",
];

/// The kind and the name of what a line of Rust defines.
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

/// The name of the public type that a line defines, by itself or with `string_enum!`.
fn public_type(line: &str) -> Option<&str> {
    if let Some(("struct" | "enum" | "trait" | "type", name)) = definition(line) {
        // An indented `type` belongs to a trait.
        let is_associated = line.starts_with(' ') && line.trim_start().starts_with("type");
        return (line.trim_start().starts_with("pub") && !is_associated).then_some(name);
    }
    let (name, rest) = line.strip_prefix("    ")?.split_once(": \"")?;
    let is_type = name.starts_with(|c: char| c.is_ascii_uppercase())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric());
    (is_type && rest.ends_with("\" {")).then_some(name)
}

/// `SearchHit` and `search_hit` as their words.
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
    let code = |text: String| {
        let starts = ["mod", "pub mod", "pub(crate) mod"];
        let end = starts
            .iter()
            .filter_map(|start| text.find(&format!("\n#[cfg(test)]\n{start} tests {{")))
            .min();
        text[..end.unwrap_or(text.len())].to_owned()
    };
    let files = project_files(".rs").into_iter().filter(|(path, _)| {
        path.contains("/src/") && !path.ends_with("tests.rs") && !path.ends_with("testing.rs")
    });
    files.map(|(path, text)| (path, code(text))).collect()
}

#[test]
fn names_are_words_of_the_field() {
    let mut broken = Vec::new();
    for (path, text) in project_files(".rs") {
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
    assert_none(broken);
}

#[test]
fn functions_are_not_named_by_a_participle() {
    let is_participle = |name: &str| {
        name.ends_with("ed") && !name.contains('_') && !VERBS_IN_ED.contains(&name)
            || IRREGULAR_PARTICIPLES.contains(&name)
    };
    let mut broken = Vec::new();
    for (path, text) in project_files(".rs") {
        for (at, line) in text.lines().enumerate() {
            if let Some(("fn", name)) = definition(line)
                && is_participle(name)
            {
                broken.push(format!("{path}:{}: fn {name}", at + 1));
            }
        }
    }
    assert_none(broken);
}

#[test]
fn two_public_types_of_a_crate_never_share_a_name() {
    let mut places: std::collections::BTreeMap<(String, String), Vec<String>> = Default::default();
    for (path, text) in sources() {
        let package = path.split('/').nth(1).unwrap().to_owned();
        for (at, line) in text.lines().enumerate() {
            if let Some(name) = public_type(line) {
                let place = format!("{path}:{}", at + 1);
                places.entry((package.clone(), name.to_owned())).or_default().push(place);
            }
        }
    }
    let shared = places.into_iter().filter(|(_, places)| places.len() > 1);
    assert_none(
        shared.map(|((_, name), places)| format!("{name}: {}", places.join(", "))).collect(),
    );
}

#[test]
fn numeric_constants_carry_their_unit() {
    let numbers = ["usize", "u32", "u64", "i32", "i64", "f32", "f64"];
    let mut broken = Vec::new();
    for (path, text) in sources() {
        for (at, line) in text.lines().enumerate() {
            let Some((_, rest)) = line.split_once("const ") else { continue };
            let Some((name, rest)) = rest.split_once(": ") else { continue };
            let Some((kind, value)) = rest.split_once(" = ") else { continue };
            let is_constant =
                name.bytes().all(|b| b.is_ascii_uppercase() || b"_0123456789".contains(&b));
            // A largest value marks what is missing, and zero an empty place.
            let is_marker = value.contains("::MAX") || value.starts_with("0;");
            if !is_constant || !numbers.contains(&kind) || is_marker {
                continue;
            }
            let has_unit = name
                .to_lowercase()
                .split('_')
                .any(|word| word.len() > 1 && word.ends_with('s') || UNITLESS.contains(&word));
            if !has_unit {
                broken.push(format!("{path}:{}: const {name}", at + 1));
            }
        }
    }
    assert_none(broken);
}

/// Texts that people read or grep, with what is checked of each: everything, or comments only.
fn prose() -> Vec<(String, String)> {
    // A database stores the hash of each migration it has applied, comments included.
    let is_fixed = |path: &str| {
        path == "docs/STYLE.md"
            || path.ends_with("tidy.rs")
            || path.contains("/data/")
            || path.contains("/migrations/")
    };
    let comments = |text: &str| -> String {
        let lines = text.lines().map(|line| match line.trim_start() {
            comment if comment.starts_with("//") => comment,
            _ => "",
        });
        lines.collect::<Vec<_>>().join("\n")
    };
    // Strings of tests are what people and models say.
    let tests = project_files(".rs").into_iter().map(|(path, text)| (path, comments(&text)));
    let endings =
        [".md", ".ts", ".tsx", ".mjs", ".yaml", ".toml", ".service", ".sh", ".sql", "justfile"];
    let others = endings.into_iter().flat_map(project_files);
    sources().into_iter().chain(tests).chain(others).filter(|(path, _)| !is_fixed(path)).collect()
}

#[test]
fn texts_are_in_plain_words() {
    let mut broken = Vec::new();
    for (path, text) in prose() {
        for (at, line) in text.lines().enumerate() {
            // Lists of words that users write.
            if line.trim_start().starts_with('"') && line.contains("\", \"") {
                continue;
            }
            let lower = line.to_lowercase();
            for phrase in BANNED_PHRASES {
                let found = lower.match_indices(phrase).any(|(start, _)| {
                    let is_letter =
                        |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
                    !is_letter(lower[..start].chars().next_back())
                        && !is_letter(lower[start + phrase.len()..].chars().next())
                });
                if found {
                    broken.push(format!("{path}:{}: {phrase}", at + 1));
                }
            }
        }
    }
    broken.sort();
    broken.dedup();
    assert_none(broken);
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
            let mut is_in_attribute = false;
            let mut above = lines[..at].iter().rev().map(|line| line.trim()).skip_while(|line| {
                let is_skipped = is_in_attribute
                    || line.starts_with("#[")
                    || line.ends_with(")]")
                    || line.starts_with("//") && !line.starts_with("///");
                is_in_attribute = is_skipped && !line.starts_with("#[") && !line.starts_with("//");
                is_skipped
            });
            let mut attributes = lines[..at].iter().rev().take_while(|line| line.starts_with("#["));
            // The doc comments of clap's types are help texts.
            let is_command_line = attributes.any(|line| {
                ["Args", "Subcommand", "Parser", "ValueEnum"].iter().any(|name| {
                    line.contains(&format!("{name})")) || line.contains(&format!("{name},"))
                })
            });
            let is_documented =
                is_command_line || above.next().is_some_and(|line| line.starts_with("///"));
            if !is_documented && kind != "mod" {
                broken.push(format!("{path}:{}: {kind} {name}", at + 1));
            }
        }
    }
    assert_none(broken);
}
