//! Anthropic's memory tool (`memory_20250818`): its commands on the model's folder, and the texts
//! of its results.
//!
//! The model sees one folder, `/memories`, which is `memory/tool` of the vault. A path is split and
//! every name in it must be a plain one: nothing is resolved, decoded or followed, so no path leads
//! out of the folder. The texts are those of the tool's documentation, verbatim, because models
//! were trained on them.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use crate::layout::{DocPath, TOOL};
use crate::sanitize;

/// The folder as the model sees it.
pub const ROOT: &str = "/memories";
/// The maximum size of a file.
pub const MAX_FILE_BYTES: usize = 256 * 1024;
/// The maximum number of files.
pub const MAX_FILES: usize = 2_000;
/// The maximum nesting of folders.
pub const MAX_DEPTH: usize = 16;
/// The maximum number of lines of a file that can be viewed.
const MAX_LINES: usize = 999_999;
/// How much of an invalid path is repeated in an error.
const MAX_SHOWN_CHARS: usize = 120;

/// A path in the model's folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolPath {
    /// The path as requested.
    asked: String,
    /// The names below the root, separated by slashes.
    inner: String,
    /// The vault's file; `None` for the root.
    document: Option<DocPath>,
}

impl ToolPath {
    /// Parses a path; the error is the answer to the model.
    pub fn parse(text: &str) -> Result<Self, String> {
        let shown = || crate::budget::truncate_at_word(&sanitize::one_line(text), MAX_SHOWN_CHARS);
        let refuse = |why: &str| Err(format!("Error: The path {} is not allowed: {why}", shown()));
        let Some(rest) =
            text.strip_prefix(ROOT).filter(|rest| rest.is_empty() || rest.starts_with('/'))
        else {
            return refuse("it has to be /memories or to begin with /memories/");
        };
        let inner = rest.strip_prefix('/').unwrap_or(rest);
        let inner = inner.strip_suffix('/').unwrap_or(inner);
        if inner.is_empty() && rest.len() <= 1 {
            return Ok(Self { asked: text.to_owned(), inner: String::new(), document: None });
        }
        let names: Vec<&str> = inner.split('/').collect();
        if names.len() > MAX_DEPTH {
            return refuse("there are too many folders in it");
        }
        for name in names {
            let is_encoded = name
                .as_bytes()
                .windows(3)
                .any(|w| w[0] == b'%' && w[1].is_ascii_hexdigit() && w[2].is_ascii_hexdigit());
            if is_encoded {
                return refuse("write names as they are, without percent signs for characters");
            }
            if name.starts_with(['~', ' ']) || sanitize::escape_for_terminal(name) != name {
                return refuse(
                    "a name in it begins with a blank or `~`, or has a character that cannot be seen",
                );
            }
        }
        // The rules of vault paths: no `..`, nothing hidden, no name that a system reserves for a
        // device.
        match format!("{TOOL}/{inner}").parse::<DocPath>() {
            Ok(document) => Ok(Self {
                asked: text.to_owned(),
                inner: inner.to_owned(),
                document: Some(document),
            }),
            Err(_) => refuse(
                "every name in it has to be a plain one, without `..` and without \\ : * ? \" < > |",
            ),
        }
    }

    /// Whether it is the root folder.
    pub fn is_root(&self) -> bool {
        self.inner.is_empty()
    }

    /// The vault's file; `None` for the root.
    pub fn document(&self) -> Option<&DocPath> {
        self.document.as_ref()
    }

    /// The path as requested.
    pub fn requested_path(&self) -> &str {
        &self.asked
    }

    /// Whether a file is below it.
    fn contains_file(&self, file: &str) -> bool {
        self.is_root()
            || file.strip_prefix(self.inner.as_str()).is_some_and(|rest| rest.starts_with('/'))
    }

    fn child_path(&self, name: &str) -> String {
        format!("{}/{name}", self.asked.trim_end_matches('/'))
    }
}

/// The model's path of a vault file; `None` if the file is not in the model's folder.
pub fn model_path(document: &DocPath) -> Option<String> {
    document.as_str().strip_prefix(TOOL)?.strip_prefix('/').map(|inner| format!("{ROOT}/{inner}"))
}

/// A command of the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToolCommand {
    /// Views a file or lists a folder.
    View {
        path: ToolPath,
        /// The first and the last line; -1 is the end.
        range: Option<(i64, i64)>,
    },
    /// Creates a file.
    Create { path: ToolPath, text: String },
    /// Replaces a text.
    Replace {
        path: ToolPath,
        /// The text to replace.
        old: String,
        /// The replacement.
        new: String,
    },
    /// Inserts lines.
    Insert {
        path: ToolPath,
        /// The line after which to insert.
        line: i64,
        text: String,
    },
    /// Deletes a file or a folder.
    Delete { path: ToolPath },
    /// Renames a file or a folder.
    Rename { from: ToolPath, to: ToolPath },
}

/// The tool's input, before validation.
#[derive(Deserialize)]
struct ToolInput {
    #[serde(default)]
    command: Value,
    #[serde(default)]
    path: Value,
    #[serde(default)]
    view_range: Value,
    #[serde(default)]
    file_text: Value,
    #[serde(default)]
    old_str: Value,
    #[serde(default)]
    new_str: Value,
    #[serde(default)]
    insert_line: Value,
    #[serde(default)]
    insert_text: Value,
    #[serde(default)]
    old_path: Value,
    #[serde(default)]
    new_path: Value,
}

fn text_field(name: &str, value: Value) -> Result<String, String> {
    match value {
        Value::String(text) => Ok(text),
        Value::Null => Err(format!("Error: `{name}` is missing")),
        _ => Err(format!("Error: `{name}` has to be a text")),
    }
}

/// Parses the tool's `input`. Unknown fields are ignored.
pub fn parse_command(input: &str) -> Result<ToolCommand, String> {
    if !input.trim_start().starts_with('{') {
        return Err(r#"Error: this is not what the tool takes: it is a JSON object such as {"command":"view","path":"/memories"}"#.into());
    }
    let sent: ToolInput = serde_json::from_str(input)
        .map_err(|error| format!("Error: this is not what the tool takes: {error}"))?;
    let path = |name, value| text_field(name, value).and_then(|text| ToolPath::parse(&text));
    match text_field("command", sent.command)?.as_str() {
        "view" => {
            let range = match sent.view_range {
                Value::Null => None,
                value => match serde_json::from_value::<Vec<i64>>(value).as_deref() {
                    Ok([]) => None,
                    Ok(&[first, last]) => Some((first, last)),
                    _ => {
                        return Err(
                            "Error: `view_range` has to be two line numbers, [first, last]".into(),
                        );
                    }
                },
            };
            Ok(ToolCommand::View { path: path("path", sent.path)?, range })
        }
        "create" => Ok(ToolCommand::Create {
            path: path("path", sent.path)?,
            text: text_field("file_text", sent.file_text)?,
        }),
        "str_replace" => {
            let new = if sent.new_str.is_null() {
                String::new()
            } else {
                text_field("new_str", sent.new_str)?
            };
            Ok(ToolCommand::Replace {
                path: path("path", sent.path)?,
                old: text_field("old_str", sent.old_str)?,
                new,
            })
        }
        "insert" => {
            let line =
                sent.insert_line.as_i64().ok_or("Error: `insert_line` has to be a whole number")?;
            Ok(ToolCommand::Insert {
                path: path("path", sent.path)?,
                line,
                text: text_field("insert_text", sent.insert_text)?,
            })
        }
        "delete" => Ok(ToolCommand::Delete { path: path("path", sent.path)? }),
        "rename" => Ok(ToolCommand::Rename {
            from: path("old_path", sent.old_path)?,
            to: path("new_path", sent.new_path)?,
        }),
        other => {
            let other =
                crate::budget::truncate_at_word(&sanitize::one_line(other), MAX_SHOWN_CHARS);
            Err(format!(
                "Error: there is no command `{other}`; there are view, create, str_replace, insert, delete and rename"
            ))
        }
    }
}

/// Files by path below the folder, with their sizes in bytes.
pub type FileSizes = BTreeMap<String, u64>;

/// What exists at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PathEntry {
    Nothing,
    File,
    /// A folder with these files in it.
    Folder(Vec<String>),
}

/// What exists at a path. The root folder always exists.
pub fn entry_at(path: &ToolPath, files: &FileSizes) -> PathEntry {
    if files.contains_key(&path.inner) {
        return PathEntry::File;
    }
    let inside: Vec<String> =
        files.keys().filter(|file| path.contains_file(file)).cloned().collect();
    if inside.is_empty() && !path.is_root() {
        PathEntry::Nothing
    } else {
        PathEntry::Folder(inside)
    }
}

/// Files to rename, old and new paths.
pub type FileMoves = Vec<(ToolPath, ToolPath)>;

/// The renames of all files at a path. `begun`: an interrupted rename is resumed, so existing files
/// at the new path are not a conflict.
pub fn plan_rename(
    from: &ToolPath,
    to: &ToolPath,
    files: &FileSizes,
    begun: bool,
) -> Result<FileMoves, String> {
    if from.is_root() || to.is_root() {
        return Err("Error: The /memories directory itself cannot be renamed".into());
    }
    let inside = match entry_at(from, files) {
        PathEntry::Nothing => return Err(format!("Error: The path {} does not exist", from.asked)),
        PathEntry::File => vec![from.inner.clone()],
        PathEntry::Folder(inside) => inside,
    };
    let is_above = |file: &String| {
        to.inner.strip_prefix(file.as_str()).is_some_and(|rest| rest.starts_with('/'))
    };
    if !begun && entry_at(to, files) != PathEntry::Nothing || files.keys().any(is_above) {
        return Err(format!("Error: The destination {} already exists", to.asked));
    }
    if from.contains_file(&to.inner) {
        return Err(format!("Error: The path {} cannot be moved into itself", from.asked));
    }
    let name = |file: &String| {
        let new = format!("{}{}", to.inner, &file[from.inner.len()..]);
        Ok((
            ToolPath::parse(&format!("{ROOT}/{file}"))?,
            ToolPath::parse(&format!("{ROOT}/{new}"))?,
        ))
    };
    inside.iter().map(name).collect()
}

/// Whether renaming a file was part of renaming these paths.
pub fn is_part_of_rename(from: &ToolPath, to: &ToolPath, old: &str, new: &str) -> bool {
    let below = |path: &ToolPath, name: &str| {
        name.strip_prefix(&format!("{ROOT}/{}", path.inner)).map(str::to_owned)
    };
    let rest = below(from, old);
    rest.is_some()
        && rest == below(to, new)
        && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The files to delete with a path.
pub fn plan_delete(path: &ToolPath, files: &FileSizes) -> Result<Vec<ToolPath>, String> {
    if path.is_root() {
        return Err("Error: The /memories directory itself cannot be deleted".into());
    }
    let inside = match entry_at(path, files) {
        PathEntry::Nothing => return Err(format!("Error: The path {} does not exist", path.asked)),
        PathEntry::File => vec![path.inner.clone()],
        PathEntry::Folder(inside) => inside,
    };
    inside.iter().map(|file| ToolPath::parse(&format!("{ROOT}/{file}"))).collect()
}

/// Checks that a file may be created.
pub fn check_create(path: &ToolPath, files: &FileSizes) -> Result<(), String> {
    let is_above = |file: &String| {
        path.inner.strip_prefix(file.as_str()).is_some_and(|rest| rest.starts_with('/'))
    };
    if path.is_root() || entry_at(path, files) != PathEntry::Nothing {
        return Err(format!("Error: File {} already exists", path.asked));
    }
    if let Some(file) = files.keys().find(|file| is_above(file)) {
        return Err(format!("Error: {ROOT}/{file} is a file, so there can be nothing in it"));
    }
    if files.len() >= MAX_FILES {
        return Err(format!("Error: there are {MAX_FILES} files already; delete some first"));
    }
    Ok(())
}

/// Checks that a text may be stored.
pub fn check_content(path: &ToolPath, text: &str) -> Result<(), String> {
    if text.len() > MAX_FILE_BYTES {
        return Err(format!(
            "Error: {} would have {} bytes; a file may have {MAX_FILE_BYTES}",
            path.asked,
            text.len()
        ));
    }
    if text.contains('\0') {
        return Err(format!(
            "Error: {} would not be a text: there is a null character in it",
            path.asked
        ));
    }
    Ok(())
}

/// The answer for a view of a missing path.
pub fn missing_path_message(path: &ToolPath) -> String {
    format!("The path {} does not exist. Please provide a valid path.", path.asked)
}

/// The answer for a change of a missing file.
pub fn missing_file_message(path: &ToolPath, whole: bool) -> String {
    let more = if whole { ". Please provide a valid path." } else { "" };
    format!("Error: The path {} does not exist{more}", path.asked)
}

/// The answer after a file was created.
pub fn created_message(path: &ToolPath) -> String {
    format!("File created successfully at: {}", path.asked)
}

/// The answer after lines were edited.
pub fn edited_message(path: &ToolPath) -> String {
    format!("The file {} has been edited.", path.asked)
}

/// The answer after a deletion.
pub fn deleted_message(path: &ToolPath) -> String {
    format!("Successfully deleted {}", path.asked)
}

/// The answer after a rename.
pub fn renamed_message(from: &ToolPath, to: &ToolPath) -> String {
    format!("Successfully renamed {} to {}", from.asked, to.asked)
}

fn format_size(bytes: u64) -> String {
    const UNITS: [&str; 3] = ["K", "M", "G"];
    if bytes < 1024 {
        return format!("{bytes}B");
    }
    let unit = if bytes < 1024 * 1024 {
        0
    } else if bytes < 1024 * 1024 * 1024 {
        1
    } else {
        2
    };
    let whole = 1024_u64.pow(u32::try_from(unit).unwrap_or(0) + 1);
    let tenths = (u128::from(bytes) * 10).div_ceil(u128::from(whole));
    format!("{}.{}{}", tenths / 10, tenths % 10, UNITS[unit])
}

/// The listing of a folder, two levels deep.
pub fn render_listing(path: &ToolPath, files: &FileSizes) -> String {
    let skip = if path.is_root() { 0 } else { path.inner.len() + 1 };
    let mut all = 0;
    let mut shown: BTreeMap<Vec<&str>, u64> = BTreeMap::new();
    for (file, bytes) in files.iter().filter(|(file, _)| path.contains_file(file)) {
        let names: Vec<&str> = file[skip..].split('/').collect();
        if names.contains(&"node_modules") {
            continue;
        }
        all += bytes;
        for depth in 1..=names.len().min(2) {
            *shown.entry(names[..depth].to_vec()).or_default() += bytes;
        }
    }
    let mut lines = vec![format!(
        "Here're the files and directories up to 2 levels deep in {}, excluding hidden items and node_modules:",
        path.asked
    )];
    lines.push(format!("{}\t{}", format_size(all), path.asked));
    lines.extend(shown.iter().map(|(names, bytes)| {
        format!("{}\t{}", format_size(*bytes), path.child_path(&names.join("/")))
    }));
    lines.join("\n")
}

fn number_lines<'a>(lines: impl Iterator<Item = (usize, &'a str)>) -> String {
    lines.map(|(number, line)| format!("{number:>6}\t{line}")).collect::<Vec<_>>().join("\n")
}

fn split_lines(text: &str) -> Vec<&str> {
    text.strip_suffix('\n').unwrap_or(text).split('\n').collect()
}

/// A file with line numbers, all of it or the requested range.
pub fn render_view(
    path: &ToolPath,
    text: &str,
    range: Option<(i64, i64)>,
) -> Result<String, String> {
    let lines = split_lines(text);
    if lines.len() > MAX_LINES {
        return Err(format!("File {} exceeds maximum line limit of 999,999 lines.", path.asked));
    }
    let count = i64::try_from(lines.len()).unwrap_or(i64::MAX);
    let (first, last) = range.map_or((1, count), |(first, last)| {
        (first.max(1), if last == -1 { count } else { last.min(count) })
    });
    if first > last {
        let (first, last) = range.unwrap_or_default();
        return Err(format!(
            "Error: Invalid `view_range` parameter: [{first}, {last}]. It should be within the range of lines of the file: [1, {count}]"
        ));
    }
    let (skip, take) =
        (usize::try_from(first - 1).unwrap_or(0), usize::try_from(last - first + 1).unwrap_or(0));
    let shown = lines.iter().enumerate().skip(skip).take(take).map(|(at, line)| (at + 1, *line));
    Ok(format!("Here's the content of {} with line numbers:\n{}", path.asked, number_lines(shown)))
}

/// Replaces the only occurrence of `old`; returns the text and the position of the change.
pub fn replace_text(
    path: &ToolPath,
    text: &str,
    old: &str,
    new: &str,
) -> Result<(String, usize), String> {
    let mut places = Vec::new();
    let mut from = 0;
    while let Some(at) =
        text.get(from..).filter(|_| !old.is_empty()).and_then(|rest| rest.find(old))
    {
        places.push(from + at);
        from += at + text[from + at..].chars().next().map_or(1, char::len_utf8);
    }
    match places[..] {
        [] => Err(format!(
            "No replacement was performed, old_str `{old}` did not appear verbatim in {}.",
            path.asked
        )),
        [at] => Ok((format!("{}{new}{}", &text[..at], &text[at + old.len()..]), at)),
        _ => {
            let line = |at: &usize| (text[..*at].matches('\n').count() + 1).to_string();
            let lines: Vec<String> = places.iter().map(line).collect();
            Err(format!(
                "No replacement was performed. Multiple occurrences of old_str `{old}` in lines: {}. Please ensure it is unique",
                lines.join(", ")
            ))
        }
    }
}

/// The answer to a replacement: the lines around it, after the change.
pub fn render_snippet(text: &str, at: usize) -> String {
    let changed = text[..text.floor_char_boundary(at)].matches('\n').count();
    let around = split_lines(text)
        .into_iter()
        .enumerate()
        .skip(changed.saturating_sub(2))
        .take(changed.min(2) + 3);
    let shown = number_lines(around.map(|(at, line)| (at + 1, line)));
    format!(
        "The memory file has been edited. Here is the snippet showing the change (with line numbers):\n{shown}"
    )
}

/// Inserts lines after a line of the text.
pub fn insert_lines(text: &str, line: i64, new: &str) -> Result<String, String> {
    let own: Vec<&str> = if text.is_empty() { Vec::new() } else { split_lines(text) };
    let Some(at) = usize::try_from(line).ok().filter(|at| *at <= own.len()) else {
        return Err(format!(
            "Error: Invalid `insert_line` parameter: {line}. It should be within the range of lines of the file: [0, {}]",
            own.len()
        ));
    };
    let new = new.strip_suffix('\n').unwrap_or(new);
    Ok(own[..at].iter().chain([&new]).chain(&own[at..]).map(|line| format!("{line}\n")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn path(text: &str) -> ToolPath {
        ToolPath::parse(text).unwrap()
    }

    fn files(names: &[(&str, u64)]) -> FileSizes {
        names.iter().map(|(name, bytes)| ((*name).to_owned(), *bytes)).collect()
    }

    #[test]
    fn a_path_is_the_folder_or_a_plain_name_in_it() {
        for (text, document) in [
            ("/memories/a.md", "memory/tool/a.md"),
            ("/memories/notes/", "memory/tool/notes"),
            ("/memories/a b/\u{fc}ber 100%.txt", "memory/tool/a b/\u{fc}ber 100%.txt"),
            ("/memories/x.jsonl", "memory/tool/x.jsonl"),
        ] {
            assert_eq!(path(text).document().unwrap().as_str(), document, "{text}");
        }
        for text in ["/memories", "/memories/"] {
            assert!(path(text).is_root(), "{text}");
        }
        for text in [
            "",
            "/",
            "memories",
            "/memoriesX",
            "/memories//a",
            "/memories//",
            "/memories/a//",
            "/memories/../a",
            "/Memories/a",
            " /memories",
        ] {
            let error = ToolPath::parse(text).unwrap_err();
            assert!(
                error.starts_with("Error: The path ") && !error.contains("memory/tool"),
                "{text}: {error}"
            );
        }
    }

    #[test]
    fn a_folder_is_listed_two_levels_deep() {
        let all = files(&[
            ("a.md", 0),
            ("b/c.md", 1536),
            ("b/d/e.md", 4096),
            ("b/d/f/g.md", 1),
            ("node_modules/x.js", 9),
        ]);
        let head = |path: &str| {
            format!(
                "Here're the files and directories up to 2 levels deep in {path}, excluding hidden items and node_modules:\n"
            )
        };
        assert_eq!(
            render_listing(&path("/memories"), &all),
            head("/memories")
                + "5.6K\t/memories\n0B\t/memories/a.md\n5.6K\t/memories/b\n1.5K\t/memories/b/c.md\n4.1K\t/memories/b/d"
        );
        assert_eq!(
            render_listing(&path("/memories/b/d"), &all),
            head("/memories/b/d")
                + "4.1K\t/memories/b/d\n4.0K\t/memories/b/d/e.md\n1B\t/memories/b/d/f\n1B\t/memories/b/d/f/g.md"
        );
        assert_eq!(
            render_listing(&path("/memories"), &files(&[])),
            head("/memories") + "0B\t/memories"
        );
        for (bytes, told) in [
            (0, "0B"),
            (1023, "1023B"),
            (1024, "1.0K"),
            (4096, "4.0K"),
            (1536, "1.5K"),
            (1 << 20, "1.0M"),
            (5 << 30, "5.0G"),
        ] {
            assert_eq!(format_size(bytes), told);
        }
    }

    #[test]
    fn a_file_is_shown_with_its_lines_numbered() {
        let at = path("/memories/a.md");
        let head = "Here's the content of /memories/a.md with line numbers:\n";
        for (text, range, told) in [
            ("one\ntwo\n", None, "     1\tone\n     2\ttwo"),
            ("one\ntwo", None, "     1\tone\n     2\ttwo"),
            ("one\n\n", None, "     1\tone\n     2\t"),
            ("", None, "     1\t"),
            ("a\nb\nc\nd\n", Some((2, 3)), "     2\tb\n     3\tc"),
            ("a\nb\nc\nd\n", Some((3, -1)), "     3\tc\n     4\td"),
            ("a\nb\n", Some((0, 99)), "     1\ta\n     2\tb"),
        ] {
            assert_eq!(render_view(&at, text, range), Ok(format!("{head}{told}")), "{text:?}");
        }
        let invalid = "Error: Invalid `view_range` parameter: [5, 9]. It should be within the range of lines of the file: [1, 2]";
        assert_eq!(render_view(&at, "a\nb\n", Some((5, 9))), Err(invalid.to_owned()));
        let long = "\n".repeat(1_000_001);
        assert_eq!(
            render_view(&at, &long, None),
            Err("File /memories/a.md exceeds maximum line limit of 999,999 lines.".to_owned())
        );
    }

    #[test]
    fn only_what_is_there_once_is_replaced() {
        let at = path("/memories/a.md");
        let (text, place) =
            replace_text(&at, "a\nb\nport 1\nd\ne\nf\n", "port 1", "port 7431").unwrap();
        assert_eq!(text, "a\nb\nport 7431\nd\ne\nf\n");
        let told = "The memory file has been edited. Here is the snippet showing the change (with line numbers):\n     1\ta\n     2\tb\n     3\tport 7431\n     4\td\n     5\te";
        assert_eq!(render_snippet(&text, place), told);
        assert_eq!(
            render_snippet("x\n", 0),
            "The memory file has been edited. Here is the snippet showing the change (with line numbers):\n     1\tx"
        );
        for (text, old, told) in [
            (
                "a",
                "b",
                "No replacement was performed, old_str `b` did not appear verbatim in /memories/a.md.",
            ),
            (
                "a",
                "",
                "No replacement was performed, old_str `` did not appear verbatim in /memories/a.md.",
            ),
            (
                "x\n\n\nx",
                "x",
                "No replacement was performed. Multiple occurrences of old_str `x` in lines: 1, 4. Please ensure it is unique",
            ),
            (
                "\u{e9}\u{e9}\u{e9}",
                "\u{e9}\u{e9}",
                "No replacement was performed. Multiple occurrences of old_str `\u{e9}\u{e9}` in lines: 1, 1. Please ensure it is unique",
            ),
        ] {
            assert_eq!(replace_text(&at, text, old, "new"), Err(told.to_owned()));
        }
        assert_eq!(replace_text(&at, "keep this", " this", "").unwrap().0, "keep");
    }

    #[test]
    fn lines_are_put_in_after_others() {
        for (text, line, new, after) in [
            ("a\nb\n", 0, "x\n", "x\na\nb\n"),
            ("a\nb\n", 1, "x", "a\nx\nb\n"),
            ("a\nb", 2, "x\ny\n", "a\nb\nx\ny\n"),
            ("", 0, "x", "x\n"),
        ] {
            assert_eq!(insert_lines(text, line, new).as_deref(), Ok(after));
        }
        for line in [-1, 3] {
            let told = format!(
                "Error: Invalid `insert_line` parameter: {line}. It should be within the range of lines of the file: [0, 2]"
            );
            assert_eq!(insert_lines("a\nb\n", line, "x"), Err(told));
        }
    }

    #[test]
    fn folders_are_moved_and_taken_away_whole() {
        let all = files(&[("a.md", 1), ("b/c.md", 1), ("b/d/e.md", 1), ("bc.md", 1)]);
        let told = |moves: FileMoves| {
            moves
                .iter()
                .map(|(from, to)| format!("{} > {}", from.inner, to.inner))
                .collect::<Vec<_>>()
                .join(", ")
        };
        assert_eq!(
            plan_rename(&path("/memories/b"), &path("/memories/x/y"), &all, false).map(told),
            Ok("b/c.md > x/y/c.md, b/d/e.md > x/y/d/e.md".into())
        );
        assert_eq!(
            plan_rename(&path("/memories/a.md"), &path("/memories/z.md"), &all, false).map(told),
            Ok("a.md > z.md".into())
        );
        for (from, to, why) in [
            ("/memories", "/memories/x", "Error: The /memories directory itself cannot be renamed"),
            (
                "/memories/a.md",
                "/memories/",
                "Error: The /memories directory itself cannot be renamed",
            ),
            ("/memories/q", "/memories/x", "Error: The path /memories/q does not exist"),
            ("/memories/a.md", "/memories/b", "Error: The destination /memories/b already exists"),
            (
                "/memories/b",
                "/memories/a.md/x",
                "Error: The destination /memories/a.md/x already exists",
            ),
            (
                "/memories/b",
                "/memories/b/x",
                "Error: The path /memories/b cannot be moved into itself",
            ),
        ] {
            assert_eq!(
                plan_rename(&path(from), &path(to), &all, false).map(told),
                Err(why.to_owned()),
                "{from} {to}"
            );
        }
        // An interrupted rename continues.
        let half = files(&[("b/d/e.md", 1), ("x/c.md", 1)]);
        assert_eq!(
            plan_rename(&path("/memories/b"), &path("/memories/x"), &half, true).map(told),
            Ok("b/d/e.md > x/d/e.md".into())
        );
        let part =
            |old, new| is_part_of_rename(&path("/memories/b"), &path("/memories/x"), old, new);
        assert!(part("/memories/b/c.md", "/memories/x/c.md") && part("/memories/b", "/memories/x"));
        assert!(
            !part("/memories/bc", "/memories/xc")
                && !part("/memories/b/c", "/memories/x/d")
                && !part("/memories/a", "/memories/x")
        );
        assert_eq!(plan_delete(&path("/memories/b/"), &all).unwrap().len(), 2);
        assert_eq!(
            plan_delete(&path("/memories"), &all),
            Err("Error: The /memories directory itself cannot be deleted".into())
        );
        assert_eq!(
            check_create(&path("/memories/a.md"), &all),
            Err("Error: File /memories/a.md already exists".into())
        );
        assert_eq!(
            check_create(&path("/memories/b"), &all),
            Err("Error: File /memories/b already exists".into())
        );
        assert!(
            check_create(&path("/memories/a.md/x"), &all).is_err()
                && check_create(&path("/memories/n.md"), &all).is_ok()
        );
    }

    #[test]
    fn what_a_model_sends_is_read_or_answered() {
        for (input, told) in [
            (
                r#"{"command":"view","path":"/memories","recursive":true,"view_range":[]}"#,
                Ok("View"),
            ),
            (r#"{"command":"str_replace","path":"/memories/a","old_str":"x"}"#, Ok("Replace")),
            (
                r#"{"command":"rename","old_path":"/memories/a","new_path":"/memories/b"}"#,
                Ok("Rename"),
            ),
            (
                r#"{"command":"fly"}"#,
                Err(
                    "Error: there is no command `fly`; there are view, create, str_replace, insert, delete and rename",
                ),
            ),
            (r#"{"path":"/memories"}"#, Err("Error: `command` is missing")),
            (r#"{"command":"create","path":"/memories/a"}"#, Err("Error: `file_text` is missing")),
            (
                r#"{"command":"create","path":"/memories/a","file_text":7}"#,
                Err("Error: `file_text` has to be a text"),
            ),
            (
                r#"{"command":"view","path":"/memories","view_range":[1]}"#,
                Err("Error: `view_range` has to be two line numbers, [first, last]"),
            ),
            (
                r#"{"command":"insert","path":"/memories/a","insert_line":"1","insert_text":""}"#,
                Err("Error: `insert_line` has to be a whole number"),
            ),
        ] {
            match (parse_command(input), told) {
                (Ok(command), Ok(name)) => {
                    assert!(format!("{command:?}").starts_with(name), "{input}")
                }
                (Err(error), Err(told)) => assert_eq!(error, told, "{input}"),
                (read, _) => panic!("{input}: {read:?}"),
            }
        }
        assert!(parse_command("[1]").is_err() && parse_command("").is_err());
    }

    proptest! {
        #[test]
        fn no_path_leads_out_of_the_folder(text in r"/memories[a-zA-Z0-9./\\ ~:%\u{202e}\u{0}-]{0,40}|.{0,40}") {
            if let Some(document) = ToolPath::parse(&text).ok().as_ref().and_then(ToolPath::document) {
                prop_assert!(document.as_str().starts_with("memory/tool/"));
                let parts = std::path::Path::new(document.as_str()).components();
                prop_assert!(parts.into_iter().all(|part| matches!(part, std::path::Component::Normal(_))));
                prop_assert!(model_path(document).is_some());
            }
        }
    }
}
