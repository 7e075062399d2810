//! Names of artifacts: slugs that are valid on every file system, languages, file names in prose,
//! and main definitions.

use icecore_text::normalize::without_marks;

use crate::hash::Hash;

/// Maximum length of an artifact name, in bytes.
pub const MAX_ARTIFACT_NAME_BYTES: usize = 60;
/// Maximum number of lines searched for a block's main definition.
const MAX_SCANNED_LINES: usize = 400;
/// Maximum number of characters of a title that a name is made from.
const MAX_TITLE_CHARS: usize = 200;

/// Languages: our canonical name, the file extension, and aliases.
const LANGUAGES: &[(&str, &str, &[&str])] = &[
    ("python", "py", &["py", "python3", "pyi", "py3"]),
    ("rust", "rs", &["rs"]),
    ("javascript", "js", &["js", "mjs", "cjs", "node", "jsx"]),
    ("typescript", "ts", &["ts", "tsx", "mts"]),
    ("go", "go", &["golang"]),
    ("java", "java", &[]),
    ("kotlin", "kt", &["kt", "kts"]),
    ("swift", "swift", &[]),
    ("c", "c", &["h"]),
    ("cpp", "cpp", &["c++", "cc", "cxx", "hpp", "hh"]),
    ("csharp", "cs", &["cs", "c#"]),
    ("fsharp", "fs", &["f#"]),
    ("ruby", "rb", &["rb"]),
    ("php", "php", &[]),
    ("perl", "pl", &["pl", "pm"]),
    ("lua", "lua", &[]),
    ("r", "r", &[]),
    ("julia", "jl", &["jl"]),
    ("scala", "scala", &[]),
    ("haskell", "hs", &["hs"]),
    ("elixir", "ex", &["ex", "exs"]),
    ("erlang", "erl", &["erl"]),
    ("clojure", "clj", &["clj"]),
    ("dart", "dart", &[]),
    ("zig", "zig", &[]),
    ("nix", "nix", &[]),
    ("ocaml", "ml", &["ml"]),
    (
        "shell",
        "sh",
        &["sh", "bash", "zsh", "fish", "console", "shell-session", "terminal", "shellscript"],
    ),
    ("powershell", "ps1", &["ps1", "pwsh"]),
    ("batch", "bat", &["bat", "cmd"]),
    ("sql", "sql", &["postgresql", "postgres", "mysql", "sqlite", "plpgsql"]),
    ("html", "html", &["htm", "xhtml"]),
    ("vue", "vue", &[]),
    ("svelte", "svelte", &[]),
    ("css", "css", &[]),
    ("scss", "scss", &["sass"]),
    ("xml", "xml", &["svg"]),
    ("json", "json", &["jsonc", "json5"]),
    ("jsonl", "jsonl", &["ndjson"]),
    ("yaml", "yaml", &["yml"]),
    ("toml", "toml", &[]),
    ("ini", "ini", &["cfg", "conf", "properties"]),
    ("dockerfile", "dockerfile", &["docker"]),
    ("makefile", "mk", &["make", "mk"]),
    ("terraform", "tf", &["tf", "hcl"]),
    ("protobuf", "proto", &["proto"]),
    ("graphql", "graphql", &["gql"]),
    ("latex", "tex", &["tex"]),
    ("markdown", "md", &["md", "mdx"]),
    ("email", "md", &["mail", "eml"]),
    ("csv", "csv", &["tsv"]),
    ("diff", "diff", &["patch", "udiff"]),
    ("text", "txt", &["txt", "plaintext", "plain", "output", "log"]),
];

/// Files without an extension, and their language.
const EXTENSIONLESS_FILES: &[(&str, &str)] = &[
    ("dockerfile", "dockerfile"),
    ("makefile", "makefile"),
    ("justfile", "makefile"),
    ("rakefile", "ruby"),
    ("gemfile", "ruby"),
];

/// Words that look like file names but are not.
const NON_FILES: &[&str] = &[
    "node.js",
    "vue.js",
    "next.js",
    "nuxt.js",
    "react.js",
    "express.js",
    "three.js",
    "d3.js",
    "nest.js",
    "chart.js",
    "p5.js",
    "asp.net",
];

/// Definition names that are too common to identify anything.
const COMMON_DEFINITIONS: &[&str] = &[
    "main", "test", "tests", "foo", "bar", "baz", "init", "new", "run", "setup", "app", "index",
    "handler", "example", "demo", "default", "self", "module", "exports", "props", "state", "args",
    "config", "root", "of", "the", "is", "and", "for", "if", "while", "switch", "return",
];

/// The canonical name of a language: `py` is `python`. Returns `None` for anything else, such as a
/// path.
pub fn canonical_language(word: &str) -> Option<String> {
    let word = word.trim().to_lowercase();
    if let Some((name, ..)) =
        LANGUAGES.iter().find(|(name, _, others)| *name == word || others.contains(&word.as_str()))
    {
        return Some((*name).to_owned());
    }
    let plain = (1..=20).contains(&word.len())
        && word.bytes().all(|b| b.is_ascii_alphanumeric() || b"+#-_".contains(&b));
    (plain && word.starts_with(|c: char| c.is_ascii_lowercase())).then_some(word)
}

/// The file extension of a language; `txt` if it is unknown.
pub fn extension(language: Option<&str>) -> &'static str {
    language
        .and_then(|word| LANGUAGES.iter().find(|(name, ..)| *name == word))
        .map_or("txt", |(_, ending, _)| ending)
}

/// The language of a file with this name.
pub fn language_of_file(name: &str) -> Option<String> {
    let base = name.rsplit(['/', '\\', '-']).next().unwrap_or(name).to_lowercase();
    if let Some((_, language)) = EXTENSIONLESS_FILES.iter().find(|(plain, _)| *plain == base) {
        return Some((*language).to_owned());
    }
    let ending = base.rsplit_once('.')?.1;
    LANGUAGES
        .iter()
        .find(|(_, own, others)| *own == ending || others.contains(&ending))
        .map(|(name, ..)| (*name).to_owned())
}

/// The file that a word of prose names, without surrounding punctuation: `**src/sort.py**:` is
/// `src/sort.py`.
pub fn file_name(word: &str) -> Option<&str> {
    let word = word
        .trim_matches(|c: char| !(c.is_alphanumeric() || "._/\\-@".contains(c)))
        .trim_matches('_')
        .trim_end_matches('.');
    let base = word.rsplit(['/', '\\']).next().unwrap_or(word);
    let plain = !word.is_empty()
        && word.len() <= 200
        && word.chars().all(|c| c.is_alphanumeric() || "._/\\-@+".contains(c));
    if !plain || word.contains("//") || NON_FILES.contains(&word.to_lowercase().as_str()) {
        return None;
    }
    if EXTENSIONLESS_FILES.iter().any(|(plain, _)| {
        base.eq_ignore_ascii_case(plain) && base.starts_with(|c: char| c.is_ascii_uppercase())
    }) {
        return Some(word);
    }
    let (stem, ending) = base.rsplit_once('.')?;
    let known = LANGUAGES.iter().any(|(_, own, others)| {
        let ending = ending.to_lowercase();
        *own == ending || (others.contains(&ending.as_str()) && ending.len() <= 5)
    });
    let hidden = stem.is_empty()
        && ["gitignore", "env", "dockerignore", "editorconfig", "bashrc", "zshrc"]
            .contains(&ending);
    ((known && stem.chars().any(char::is_alphanumeric)) || hidden).then_some(word)
}

/// A folder name: `a-z`, `0-9`, `.`, `_` and `-`, at most [`MAX_ARTIFACT_NAME_BYTES`] long and not
/// reserved on any system.
///
/// A hash suffix distinguishes titles whose letters cannot be represented.
pub fn slug(title: &str) -> String {
    let title = title.trim();
    let (mut name, mut lost) = (String::new(), title.chars().count() > MAX_TITLE_CHARS);
    // Of a very long title, keep the start and the end, which has the extension.
    let end = title.char_indices().rev().nth(9).map_or(0, |(at, _)| at);
    let read =
        title.chars().take(MAX_TITLE_CHARS).chain(if lost { &title[end..] } else { "" }.chars());
    for c in without_marks(read).flat_map(char::to_lowercase) {
        match c {
            'a'..='z' | '0'..='9' | '_' => name.push(c),
            '.' if !name.ends_with('.') => name.push(c),
            'ß' => name.push_str("ss"),
            '\'' | '’' => {}
            _ => {
                lost |= c.is_alphanumeric();
                if !name.ends_with('-') && c != '.' {
                    name.push('-');
                }
            }
        }
    }
    let mut name = name.trim_matches(['.', '-']).replace("-.", ".").replace(".-", ".");
    while name.contains("..") {
        name = name.replace("..", ".");
    }
    let name = name.trim_matches(['.', '-']);
    if name.is_empty() {
        return format!("x-{}", Hash::of(title.as_bytes()).short_hex());
    }
    let name = if is_reserved(name) { format!("x-{name}") } else { name.to_owned() };
    if !lost && name.len() <= MAX_ARTIFACT_NAME_BYTES {
        return name;
    }
    let (stem, ending) = match name.rsplit_once('.') {
        Some((stem, ending)) if !stem.is_empty() && ending.len() <= 8 => {
            (stem, format!(".{ending}"))
        }
        _ => (name.as_str(), String::new()),
    };
    let tail = format!("-{}{ending}", Hash::of(title.as_bytes()).short_hex());
    format!("{}{tail}", truncate_name(stem, MAX_ARTIFACT_NAME_BYTES - tail.len()))
}

/// `name` with a suffix, truncated to the maximum length.
pub fn with_suffix(name: &str, suffix: &str) -> String {
    format!("{}{suffix}", truncate_name(name, MAX_ARTIFACT_NAME_BYTES.saturating_sub(suffix.len())))
}

fn truncate_name(name: &str, room: usize) -> &str {
    name[..name.floor_char_boundary(room.min(name.len()))].trim_end_matches(['.', '-'])
}

/// Whether this is a name as [`slug`] makes it: safe as a path component on every system.
pub fn is_artifact_name(name: &str) -> bool {
    (1..=MAX_ARTIFACT_NAME_BYTES).contains(&name.len())
        && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"._-".contains(&b))
        && !name.starts_with(['.', '-'])
        && !name.ends_with(['.', '-'])
        && !name.contains("..")
        && !is_reserved(name)
}

/// Device names on some systems, and the file next to the artifact folders.
fn is_reserved(name: &str) -> bool {
    let stem = name.split('.').next().unwrap_or_default();
    let device = |kind: &&str| {
        stem.strip_prefix(kind)
            .is_some_and(|number| number.len() == 1 && number.as_bytes()[0].is_ascii_digit())
    };
    ["con", "prn", "aux", "nul"].contains(&stem)
        || ["com", "lpt"].iter().any(device)
        || name == "index.jsonl"
}

/// The parsed info string of a fence.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct FenceInfo {
    /// The canonical language name.
    pub language: Option<String>,
    /// The file or title it names.
    pub title: Option<String>,
}

/// Parses the info string of a fence: `python title="sort.py"`, `src/main.rs`, `js:app.js`,
/// `{.rust}`.
pub fn parse_fence_info(text: &str) -> FenceInfo {
    let mut info = FenceInfo::default();
    let text: &str = text.trim().get(..text.trim().floor_char_boundary(400)).unwrap_or_default();
    let lower = text.to_ascii_lowercase();
    for key in ["title", "filename", "file_name", "file", "name", "path"] {
        let Some(value) = lower.match_indices(key).find_map(|(at, _)| {
            let fresh = at == 0
                || !lower.as_bytes()[at - 1].is_ascii_alphanumeric()
                    && lower.as_bytes()[at - 1] != b'_';
            let rest = text[at + key.len()..]
                .trim_start()
                .strip_prefix(['=', ':'])
                .filter(|_| fresh)?
                .trim_start();
            match rest.chars().next()? {
                quote @ ('"' | '\'') => rest[1..].split(quote).next(),
                _ => rest.split([' ', ',', '}', ';']).next(),
            }
        }) else {
            continue;
        };
        if !value.trim().is_empty() {
            info.title = Some(value.trim().to_owned());
            break;
        }
    }
    let words = text
        .split([' ', '\t', ',', '{', '}', ';'])
        .filter(|word| !word.is_empty() && !word.contains('='));
    for (at, word) in words.enumerate().take(6) {
        // `python:sort.py`, and `12:20:src/app.ts` as editors write it.
        for part in
            word.trim_matches(['(', ')', '[', ']']).split(':').filter(|part| !part.is_empty())
        {
            if let Some(file) = file_name(part).filter(|file| {
                file.contains('.') || EXTENSIONLESS_FILES.iter().all(|(name, _)| !part.eq(*name))
            }) {
                info.title.get_or_insert_with(|| file.to_owned());
            } else if at == 0 && info.language.is_none() {
                info.language = canonical_language(part.trim_start_matches('.'));
            }
        }
    }
    if info.language.is_none() {
        info.language = info.title.as_deref().and_then(language_of_file);
    }
    info
}

/// Whether a file of that name can contain a block in that language.
fn can_hold_language(file: &str, language: Option<&str>) -> bool {
    match (language_of_file(file), language) {
        (Some(of_file), Some(said)) => {
            of_file == said
                || said == "diff"
                || matches!((of_file.as_str(), said), ("c", "cpp") | ("ini", "toml"))
        }
        _ => true,
    }
}

/// The file that the line before a block names: `**src/sort.py**`, `In sort.py:`, `### sort.py`.
pub fn name_before_block(line: &str, language: Option<&str>) -> Option<String> {
    let line = line.trim();
    if line.is_empty() || line.len() > 200 {
        return None;
    }
    let words: Vec<&str> = line.split_whitespace().collect();
    let mut files = words.iter().filter_map(|word| file_name(word));
    let file = files.next()?;
    if files.any(|other| other != file) || !can_hold_language(file, language) {
        return None;
    }
    let prose: Vec<String> = words
        .iter()
        .filter(|word| file_name(word).is_none())
        .map(|word| word.trim_matches(|c: char| !c.is_alphanumeric()).to_lowercase())
        .filter(|word| !word.is_empty() && !word.bytes().all(|b| b.is_ascii_digit()))
        .collect();
    // The line consists of the file name only, or says that the block belongs to it.
    let said_plainly = prose.iter().all(|word| {
        [
            "in", "file", "filename", "datei", "updated", "new", "create", "edit", "path", "here",
            "is", "here's", "heres", "the", "now", "full",
        ]
        .contains(&word.as_str())
    });
    let about_it = [
        "run", "test", "output", "usage", "call", "import", "use", "using", "from", "execute",
        "with", "delete", "ausgabe", "against",
    ];
    let said_so = language.is_some()
        && line.ends_with(':')
        && !prose.iter().any(|word| about_it.contains(&word.as_str()));
    (said_plainly || said_so).then(|| file.to_owned())
}

/// The file that a comment on a block's first line names: `# sort.py`, `// file: a.rs`, `<!--
/// index.html -->`.
pub fn name_in_first_line(text: &str, language: Option<&str>) -> Option<String> {
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let mut first = lines.next()?;
    if first.starts_with("#!") || first.eq_ignore_ascii_case("<!doctype html>") {
        first = lines.next()?;
    }
    if first.len() > 200 || language == Some("markdown") {
        return None;
    }
    let mark = [
        "<!--", "/**", "/*", "///", "//", "##", "#", "--", "%%", "%", ";;", ";", "\"\"\"", "'''",
        "REM ",
    ];
    let comment = mark.iter().find_map(|mark| first.strip_prefix(mark))?;
    let comment =
        comment.trim_end_matches("-->").trim_end_matches("*/").trim_end_matches("\"\"\"").trim();
    let lower = comment.to_ascii_lowercase();
    let skip = ["file:", "filename:", "file name:", "path:", "datei:"]
        .iter()
        .find(|key| lower.starts_with(**key))
        .map_or(0, |key| key.len());
    let mut words = comment.get(skip..)?.split_whitespace();
    let file = file_name(words.next()?)?;
    let rest = words.next().is_none_or(|word| {
        skip > 0 || ["-", "–", "—", "("].iter().any(|mark| word.starts_with(mark))
    });
    (rest && can_hold_language(file, language)).then(|| file.to_owned())
}

/// The first definition in a block: `fn quicksort`, `def parse`, `class Foo`, a table. Very common
/// names do not count.
pub fn main_definition(text: &str, language: Option<&str>) -> Option<String> {
    if language.is_some_and(|language| {
        ["diff", "text", "markdown", "email", "json", "jsonl", "yaml", "csv", "html", "css"]
            .contains(&language)
    }) {
        return None;
    }
    text.lines()
        .take(MAX_SCANNED_LINES)
        .filter(|line| line.len() <= 400)
        .filter_map(|line| definition_name(line, language))
        .find(|name| name.len() >= 2 && !COMMON_DEFINITIONS.contains(&name.to_lowercase().as_str()))
}

fn definition_name(line: &str, language: Option<&str>) -> Option<String> {
    if language == Some("sql")
        || line.len() >= 6 && line.is_char_boundary(6) && line[..6].eq_ignore_ascii_case("create")
    {
        return sql_table_name(line);
    }
    if !line.starts_with(|c: char| c.is_alphabetic() || c == '_') {
        return None;
    }
    if language.is_none() && !line.contains(['(', '{', ':', ';', '=']) {
        return None;
    }
    const MODIFIERS: &[&str] = &[
        "pub",
        "pub(crate)",
        "pub(super)",
        "export",
        "default",
        "async",
        "static",
        "public",
        "private",
        "protected",
        "final",
        "abstract",
        "sealed",
        "partial",
        "open",
        "data",
        "override",
        "inline",
        "extern",
        "unsafe",
        "virtual",
        "internal",
        "local",
        "suspend",
        "declare",
    ];
    const KEYWORDS: &[&str] = &[
        "fn",
        "def",
        "class",
        "struct",
        "enum",
        "trait",
        "interface",
        "function",
        "function*",
        "func",
        "fun",
        "mod",
        "module",
        "namespace",
        "record",
        "object",
        "protocol",
        "type",
        "defmodule",
        "sub",
        "proc",
        "procedure",
        "contract",
        "impl",
        "macro_rules!",
    ];
    let mut rest = line;
    let mut words = 0;
    loop {
        let word = rest.split_whitespace().next()?;
        let after = rest.trim_start()[word.len()..].trim_start();
        if KEYWORDS.contains(&word) {
            // `func (r *Reader) Read()`: the receiver precedes the name.
            let after = if word == "func" && after.starts_with('(') {
                after.split_once(')')?.1.trim_start()
            } else {
                after
            };
            return identifier(after);
        }
        if ["const", "let", "var"].contains(&word) {
            if after.starts_with("fn ") {
                rest = after;
                continue;
            }
            let made =
                after.contains("=>") || after.contains("function") || after.contains("class ");
            return if made { identifier(after) } else { None };
        }
        words += 1;
        if !MODIFIERS.contains(&word) || words > 6 {
            break;
        }
        rest = after;
    }
    let c_like = language.is_some_and(|language| {
        ["c", "cpp", "java", "csharp", "shell", "dart"].contains(&language)
    });
    if c_like && (line.trim_end().ends_with('{') || line.trim_end().ends_with(')')) {
        let head =
            line.split('(').next().filter(|head| head.len() < line.len() && !head.contains('='))?;
        let name = head.split_whitespace().last()?.trim_start_matches(['*', '&']);
        let typed = head.split_whitespace().count() >= 2
            || language == Some("shell") && line.contains("()");
        return if typed { identifier(name.rsplit("::").next().unwrap_or(name)) } else { None };
    }
    None
}

fn sql_table_name(line: &str) -> Option<String> {
    let mut words = line.split_whitespace().map(str::to_ascii_lowercase);
    if words.next()? != "create" {
        return None;
    }
    let skipped = [
        "or",
        "replace",
        "temp",
        "temporary",
        "unlogged",
        "unique",
        "materialized",
        "if",
        "not",
        "exists",
        "external",
    ];
    let mut what = false;
    for word in words.take(10) {
        if ["table", "view", "function", "procedure", "trigger", "index", "type"]
            .contains(&word.as_str())
        {
            what = true;
        } else if !skipped.contains(&word.as_str()) {
            return if what {
                identifier(word.trim_matches(['"', '`', '[', ']', '(']))
            } else {
                None
            };
        }
    }
    None
}

fn identifier(text: &str) -> Option<String> {
    let name: String =
        text.chars().take_while(|c| c.is_alphanumeric() || "_.".contains(*c)).take(60).collect();
    let name = name.trim_matches('.');
    name.starts_with(|c: char| c.is_alphabetic() || c == '_').then(|| name.to_owned())
}
