//! Runs the documents. A `console` fence is executed and its output compared with what is printed;
//! every other line that begins with `icecore` must be a command line the program accepts.
//! CONTRIBUTING.md describes the convention. `ICECORE_ACCEPT` rewrites the printed outputs.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use tempfile::TempDir;

use crate::program::{NOW, bare, program};
use crate::tidy::{project_files, project_root};

/// A line of a document that stands for any number of lines of output.
const ANY_LINES: &str = "…";
const CONSOLE: &str = "console";
/// `<!-- now: 2026-02-14T09:00:00+01:00 -->` sets the clock for the fences below it.
const CLOCK: &str = "<!-- now: ";

/// One fence of a document.
struct Fence<'a> {
    language: &'a str,
    /// The clock at this place of the document.
    now: String,
    /// The number of its first line, counted from 0, and its lines.
    start: usize,
    lines: Vec<&'a str>,
}

fn fences(text: &str) -> Vec<Fence<'_>> {
    let (mut found, mut now) = (Vec::new(), NOW.to_owned());
    let mut open: Option<(&str, Fence)> = None;
    for (at, line) in text.lines().enumerate() {
        let indented = line.trim_start();
        let ticks = &indented[..indented.len() - indented.trim_start_matches('`').len()];
        match open.take() {
            Some((mark, fence)) if ticks.len() >= mark.len() && indented == ticks => {
                found.push(fence);
            }
            Some((mark, mut fence)) => {
                fence.lines.push(line);
                open = Some((mark, fence));
            }
            None if ticks.len() >= 3 => {
                let language = indented[ticks.len()..].trim();
                let fence = Fence { language, now: now.clone(), start: at + 1, lines: Vec::new() };
                open = Some((ticks, fence));
            }
            None => {
                if let Some(rest) = line.strip_prefix(CLOCK) {
                    now = rest.trim_end_matches("-->").trim().to_owned();
                }
            }
        }
    }
    assert!(open.is_none(), "a fence is not closed");
    found
}

/// A command of a `console` fence and the output that is printed below it.
struct Step {
    now: String,
    command: String,
    printed: Vec<String>,
    /// The number of the first line of the output, counted from 0.
    start: usize,
}

fn steps(text: &str) -> Vec<Step> {
    let mut found: Vec<Step> = Vec::new();
    for fence in fences(text).into_iter().filter(|fence| fence.language == CONSOLE) {
        let first = found.len();
        for (at, line) in fence.lines.iter().enumerate() {
            let start = fence.start + at + 1;
            if let Some(command) = line.strip_prefix("$ ") {
                let command = command.to_owned();
                found.push(Step { now: fence.now.clone(), command, printed: Vec::new(), start });
                continue;
            }
            assert!(found.len() > first, "line {start}: a console fence begins with `$ `");
            let step = found.last_mut().unwrap();
            match line.strip_prefix("> ").filter(|_| step.printed.is_empty()) {
                Some(continued) => {
                    step.command += "\n";
                    step.command += continued;
                    step.start = start;
                }
                None => step.printed.push(line.trim_end().to_owned()),
            }
        }
    }
    found
}

/// Whether the output is what is printed, where [`ANY_LINES`] matches any lines.
fn matches(printed: &[String], output: &[String]) -> bool {
    match printed.split_first() {
        None => output.is_empty(),
        Some((line, rest)) if line == ANY_LINES => {
            (0..=output.len()).any(|skipped| matches(rest, &output[skipped..]))
        }
        Some((line, rest)) => {
            output.first().is_some_and(|first| normalize_line(first) == normalize_line(line))
                && matches(rest, &output[1..])
        }
    }
}

/// The output as it is to be printed. Where the document left lines out, as many lines as it had
/// before the first gap and after the last one stay.
fn merge_output(printed: &[String], output: &[String]) -> Vec<String> {
    let is_gap = |line: &String| line == ANY_LINES;
    let Some(before) = printed.iter().position(is_gap) else { return output.to_vec() };
    let after = printed.iter().rev().position(is_gap).unwrap_or_default();
    if before + after >= output.len() {
        return output.to_vec();
    }
    let (head, tail) = (&output[..before], &output[output.len() - after..]);
    [head, &[ANY_LINES.to_owned()], tail].concat()
}

/// A folder in which a document is run: a home folder, and the program on the search path.
struct Machine {
    folder: TempDir,
    /// The exit code of the last command.
    code: i32,
}

impl Machine {
    fn new() -> Self {
        let machine = Self { folder: TempDir::new().unwrap(), code: 0 };
        for name in ["bin", "home"] {
            fs::create_dir(machine.folder.path().join(name)).unwrap();
        }
        let script = format!(
            "#!/bin/sh\ncase \" $* \" in *' --now'*) exec {0} \"$@\";; esac\n\
             exec {0} --now \"$DOCUMENT_NOW\" \"$@\"\n",
            program()
        );
        write_script(&machine.folder.path().join("bin/icecore"), &script);
        machine
    }

    /// Runs a command; standard output and standard error are merged, as on a terminal.
    fn run(&mut self, step: &Step) -> Vec<String> {
        let (bin, home) = (self.folder.path().join("bin"), self.folder.path().join("home"));
        let log = self.folder.path().join("output");
        let file = File::create(&log).unwrap();
        // `$?` of this command is the exit code of the last one.
        let script = format!("(exit {})\n{}", self.code, step.command);
        let status = bare("sh")
            .args(["-c", &script])
            // Clients that are installed on this machine are not found.
            .env("PATH", format!("{}:/usr/bin:/bin", bin.display()))
            .env("HOME", &home)
            .env("TZ", "Europe/Berlin")
            .env("DOCUMENT_NOW", &step.now)
            .current_dir(&home)
            .stdout(file.try_clone().unwrap())
            .stderr(file)
            .status()
            .unwrap();
        self.code = status.code().unwrap();
        let output = String::from_utf8(fs::read(&log).unwrap()).unwrap();
        let output = output.replace(home.to_str().unwrap(), "/home/you");
        let output = output.replace(program(), "/usr/local/bin/icecore");
        output.lines().map(|line| line.trim_end().to_owned()).collect()
    }
}

fn write_script(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// The text before an id that differs from run to run: of snapshots, of tombstones, of secrets.
const VOLATILE_IDS: &[&str] = &["Back to ", "undo to ", "snapshot ", "FGT-", ":aws-key-id:"];

/// A line without the ids that differ from run to run, and without sizes of files.
fn normalize_line(line: &str) -> String {
    let mut rest = line;
    let mut text = String::new();
    let hex = |text: &str| text.bytes().take_while(u8::is_ascii_hexdigit).count();
    if hex(rest) == 8 && rest[8..].starts_with("  ") {
        (text, rest) = ("#".to_owned(), &rest[8..]);
    }
    while let Some(end) =
        VOLATILE_IDS.iter().filter_map(|mark| rest.find(mark).map(|at| at + mark.len())).min()
    {
        text += &rest[..end];
        rest = &rest[end..];
        if hex(rest) >= 8 {
            text += "#";
            rest = &rest[hex(rest)..];
        }
    }
    text += rest;
    while let Some((before, after)) = text.split_once(" bytes") {
        let before = before.trim_end_matches(|c: char| c.is_ascii_digit()).to_owned();
        text = format!("{before}# B{after}");
    }
    text
}

/// Runs the `console` fences of a document, and returns what is wrong and the corrected text.
fn play(name: &str, text: &str) -> (Vec<String>, String) {
    let (mut machine, mut wrong) = (Machine::new(), Vec::new());
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let steps = steps(text);
    let mut outputs = Vec::new();
    for (at, step) in steps.iter().enumerate() {
        let output = machine.run(step);
        let place = format!("{name}:{}: $ {}", step.start, step.command);
        let code_is_shown = steps.get(at + 1).is_some_and(|next| next.command == "echo $?");
        if machine.code != 0 && !code_is_shown {
            wrong.push(format!("{place}\nexit code {}\n{}\n", machine.code, output.join("\n")));
        }
        if matches(&step.printed, &output) {
            outputs.push(step.printed.clone());
        } else {
            let (printed, output) = (step.printed.join("\n"), output.join("\n"));
            wrong.push(format!("{place}\n--- printed\n{printed}\n--- output\n{output}\n"));
            let output: Vec<String> = output.lines().map(str::to_owned).collect();
            outputs.push(merge_output(&step.printed, &output));
        }
    }
    for (step, output) in steps.iter().zip(outputs).rev() {
        lines.splice(step.start..step.start + step.printed.len(), output);
    }
    (wrong, lines.join("\n") + "\n")
}

/// The words of each simple command in a line of shell.
fn simple_commands(line: &str) -> Vec<Vec<String>> {
    let (mut commands, mut words) = (Vec::new(), Vec::new());
    let (mut word, mut is_word, mut quote) = (String::new(), false, None);
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        match (c, quote) {
            (_, Some(mark)) if c == mark => quote = None,
            (_, Some(_)) => word.push(c),
            ('"' | '\'', None) => (quote, is_word) = (Some(c), true),
            ('\\', None) => word.extend(chars.next()),
            ('#', None) if !is_word => break,
            (' ' | '|' | '&' | ';' | '>' | '<', None) => {
                if is_word {
                    words.push(std::mem::take(&mut word));
                }
                is_word = false;
                match c {
                    '|' | '&' | ';' => commands.push(std::mem::take(&mut words)),
                    // The next word is a file, not a word of the command.
                    '>' | '<' => words.push(c.to_string()),
                    _ => {}
                }
            }
            _ => {
                word.push(c);
                is_word = true;
            }
        }
    }
    if is_word {
        words.push(word);
    }
    commands.push(words);
    for words in &mut commands {
        while let Some(at) = words.iter().position(|word| word == ">" || word == "<") {
            words.drain(at..words.len().min(at + 2));
        }
    }
    commands
}

/// A call of the program in a document.
struct Call {
    line: usize,
    words: Vec<String>,
    /// In a sentence a value may be left out: `icecore install CLIENT`, `icecore verify --space …`.
    is_in_prose: bool,
}

/// The calls of the program in a document: in fences for a shell, which are not run, and in code
/// marks.
fn calls(text: &str) -> Vec<Call> {
    let mut found = Vec::new();
    let fences = fences(text);
    for fence in fences.iter().filter(|fence| ["sh", "bash", ""].contains(&fence.language)) {
        for (at, line) in fence.lines.iter().enumerate() {
            let line = line.trim_start();
            let line = line.strip_prefix("$ ").unwrap_or(line);
            for words in simple_commands(line) {
                let is_setting = |word: &&String| {
                    word.split_once('=').is_some_and(|(name, _)| {
                        name.bytes().all(|b| b.is_ascii_uppercase() || b == b'_')
                    })
                };
                let set = words.iter().take_while(is_setting).count();
                if words.get(set).is_some_and(|word| word == "icecore") {
                    let line = fence.start + at + 1;
                    found.push(Call { line, words: words[set + 1..].to_vec(), is_in_prose: false });
                }
            }
        }
    }
    let is_fenced = |at: usize| {
        fences.iter().any(|fence| (fence.start - 1..=fence.start + fence.lines.len()).contains(&at))
    };
    for (at, line) in text.lines().enumerate().filter(|(at, _)| !is_fenced(*at)) {
        for code in line.split('`').skip(1).step_by(2) {
            let Some(rest) = code.strip_prefix("icecore ") else { continue };
            let words = simple_commands(rest).concat();
            let words = words.iter().map(|word| word.trim_matches(['[', ']', '…']).to_owned());
            let words = words.filter(|word| !word.is_empty()).collect();
            found.push(Call { line: at + 1, words, is_in_prose: true });
        }
    }
    found
}

/// A word in capitals that a reader replaces, such as `CLIENT`.
fn is_placeholder(word: &str) -> bool {
    word.bytes().any(|b| b.is_ascii_uppercase())
        && word.bytes().all(|b| b.is_ascii_uppercase() || b == b'-' || b == b'_')
}

/// Why the program does not accept such a call, if it does not.
fn refusal(call: &Call) -> Option<String> {
    let words = &call.words;
    let end = words.iter().position(|word| word == "--").unwrap_or(words.len());
    let output = bare(program()).args(&words[..end]).arg("--help").output().unwrap();
    if output.status.success() {
        return None;
    }
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    let is_unfinished = call.is_in_prose && error.starts_with("error: a value is required");
    let names_placeholder = error.split('\'').nth(1).is_some_and(is_placeholder);
    (!is_unfinished && !names_placeholder).then_some(error)
}

fn refused_calls(name: &str, text: &str) -> Vec<String> {
    let refused = |call: Call| {
        let reason = refusal(&call)?;
        Some(format!("{name}:{}: icecore {}\n{reason}", call.line, call.words.join(" ")))
    };
    calls(text).into_iter().filter_map(refused).collect()
}

/// The README and the guides. `docs/requirements.md` lists demands, not commands.
fn documents() -> Vec<(String, String)> {
    let is_document = |path: &String| {
        path == "README.md" || path.starts_with("docs/") && path != "docs/requirements.md"
    };
    project_files(".md").into_iter().filter(|(path, _)| is_document(path)).collect()
}

fn none(wrong: &[String]) {
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn documents_print_what_their_commands_print() {
    let (mut wrong, mut played) = (Vec::new(), 0);
    for (path, text) in documents() {
        let count = steps(&text).len();
        let least = match path.as_str() {
            "README.md" => 5,
            "docs/guide.md" => 40,
            _ => 0,
        };
        assert!(count >= least, "{path} has only {count} commands with their output");
        if count == 0 {
            continue;
        }
        played += 1;
        let (differences, corrected) = play(&path, &text);
        if std::env::var_os("ICECORE_ACCEPT").is_some() && corrected != text {
            fs::write(project_root().join(&path), corrected).unwrap();
        }
        wrong.extend(differences);
    }
    assert!(played >= 2);
    none(&wrong);
}

#[test]
fn documents_call_the_program_as_it_is() {
    let (mut wrong, mut count) = (Vec::new(), 0);
    for (path, text) in documents() {
        count += calls(&text).len();
        wrong.extend(refused_calls(&path, &text));
    }
    assert!(count >= 200, "only {count} calls found");
    none(&wrong);
}

// The two tests above find no errors, so their detection is tested here.
#[test]
fn wrong_documents_are_noticed() {
    let right = "# A page\n\n```console\n$ icecore init\n…\n$ icecore remember \"Use Postgres\" \\\n\
                 >   --priority P1\nEVT-20260213-001  fact P1  Use Postgres\n```\n\n\
                 <!-- now: 2026-02-14T09:00:00+01:00 -->\n```console\n$ icecore log started\n…\n\
                 $ icecore show EVT-20260213-009\n…\n$ echo $?\n3\n```\n";
    let (wrong, corrected) = play("right", right);
    none(&wrong);
    assert_eq!(corrected, right);
    for (old, new, complaint) in [
        ("fact P1", "fact P2", "--- output\nEVT-20260213-001  fact P1"),
        ("fact P1  Use Postgres\n", "fact P1  Use Postgres\nmore\n", "--- printed"),
        ("$ echo $?\n3\n", "", "exit code 3"),
        ("3\n```", "4\n```", "--- output\n3"),
        ("icecore log", "icecore lgo", "exit code 2"),
    ] {
        assert!(right.contains(old));
        let (wrong, corrected) = play("wrong", &right.replace(old, new));
        assert!(wrong.iter().any(|text| text.contains(complaint)), "{old} -> {new}: {wrong:?}");
        // Outputs are corrected; commands are not.
        if !new.is_empty() && !new.contains("icecore ") {
            assert_eq!(corrected, right, "{old} -> {new}");
        }
    }
    let shell = "```sh\ncat x | icecore import - --dry-run > out  # icecore nothing\n\
                 A=1 icecore search 'two words' && icecore vault reindex\n```\n";
    let words: Vec<Vec<String>> = calls(shell).into_iter().map(|call| call.words).collect();
    assert_eq!(
        words,
        [vec!["import", "-", "--dry-run"], vec!["search", "two words"], vec!["vault", "reindex"]]
    );
    none(&refused_calls("right", shell));
    for call in ["reindex", "vault reindxe", "search --wihtin X", "jobs schedule extra"] {
        let wrong = refused_calls("wrong", &format!("```\n$ icecore {call}\n```\n"));
        assert_eq!(wrong.len(), 1, "{call}");
        let wrong = refused_calls("wrong", &format!("Run `icecore {call}` now.\n"));
        assert_eq!(wrong.len(), 1, "{call}");
    }
    none(&refused_calls("right", "`icecore show ID…`, `icecore zoom [WHEN]`, `icecore log …`\n"));
}
