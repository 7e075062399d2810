//! The one writer. stdout is data, stderr is talk, and a reader that goes away is no error.

use std::io::{self, BufWriter, ErrorKind, IsTerminal, Write};

use anstream::{AutoStream, ColorChoice};
use anstyle::{AnsiColor, Style};
use comfy_table::{Cell, ColumnConstraint, ContentArrangement, Table, presets};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use super::{Color, Global};
use crate::error::{Exit, Stop};

/// What a bare heading looks like.
pub const BOLD: Style = Style::new().bold();
/// What matters less.
pub const DIM: Style = Style::new().dimmed();
/// What is wrong.
pub const RED: Style = AnsiColor::Red.on_default();
/// What wants attention.
pub const YELLOW: Style = AnsiColor::Yellow.on_default();
/// What is well.
pub const GREEN: Style = AnsiColor::Green.on_default();
/// Names of things.
pub const CYAN: Style = AnsiColor::Cyan.on_default();

/// Whoever read our output has closed it.
#[derive(Debug, thiserror::Error)]
#[error("the output was closed")]
pub struct Closed;

/// Where everything printed goes.
pub struct Out {
    data: AutoStream<Box<dyn Write>>,
    talk: AutoStream<Box<dyn Write>>,
    json: bool,
    quiet: bool,
    verbose: bool,
    wide: bool,
    muted: bool,
}

fn choice(color: Color, terminal: bool) -> ColorChoice {
    match color {
        Color::Always => ColorChoice::AlwaysAnsi,
        Color::Never => ColorChoice::Never,
        Color::Auto => {
            // The rules of NO_COLOR, CLICOLOR and TERM are the stream's; a pipe gets no colours
            // either way.
            if terminal { AutoStream::choice(&io::stdout()) } else { ColorChoice::Never }
        }
    }
}

impl Out {
    /// The terminal, as these options want it.
    pub fn new(global: &Global) -> Self {
        let (terminal, talking) = (io::stdout().is_terminal(), io::stderr().is_terminal());
        Self {
            data: AutoStream::new(
                Box::new(BufWriter::new(io::stdout())) as Box<dyn Write>,
                choice(global.color, terminal),
            ),
            talk: AutoStream::new(
                Box::new(io::stderr()) as Box<dyn Write>,
                choice(global.color, talking),
            ),
            json: global.json,
            quiet: global.quiet,
            verbose: global.verbose,
            wide: !terminal,
            muted: false,
        }
    }

    /// Nobody: for what is done without being shown.
    pub fn muted(global: &Global) -> Self {
        let nobody = || AutoStream::new(Box::new(io::sink()) as Box<dyn Write>, ColorChoice::Never);
        Self { data: nobody(), talk: nobody(), json: false, muted: true, ..Self::new(global) }
    }

    /// The same reader for another command, its talk among its data, as a person would see it.
    pub fn together(&self, global: &Global) -> Self {
        if self.muted {
            return Self::muted(global);
        }
        Self {
            talk: AutoStream::new(
                Box::new(io::stdout()) as Box<dyn Write>,
                choice(global.color, io::stdout().is_terminal()),
            ),
            ..Self::new(global)
        }
    }

    /// Whether everything is to be told.
    pub fn is_verbose(&self) -> bool {
        self.verbose
    }

    /// Whether little is to be printed.
    pub fn is_quiet(&self) -> bool {
        self.quiet
    }

    /// Whether the caller is a machine.
    pub fn is_json(&self) -> bool {
        self.json
    }

    /// Prints a line of data.
    pub fn line(&mut self, text: impl AsRef<str>) -> anyhow::Result<()> {
        written(writeln!(self.data, "{}", text.as_ref()))
    }

    /// Prints text as it is; it ends its own lines.
    pub fn raw(&mut self, text: &str) -> anyhow::Result<()> {
        written(write!(self.data, "{text}"))
    }

    /// Prints a value as JSON, on one line.
    pub fn json(&mut self, value: &impl Serialize) -> anyhow::Result<()> {
        let text = serde_json::to_string(value)?;
        self.line(text)
    }

    /// Prints a value as JSON under one name.
    pub fn json_named(&mut self, name: &str, value: &impl Serialize) -> anyhow::Result<()> {
        // Not by way of a JSON tree: that would sort the fields and round big numbers of other
        // programs.
        let value = serde_json::to_string(value)?;
        self.line(format!("{{{}:{value}}}", serde_json::to_string(name)?))
    }

    /// Says something that is not data.
    pub fn say(&mut self, text: impl AsRef<str>) {
        if !self.quiet && !self.json {
            let _ = self.flush();
            let _ = writeln!(self.talk, "{}", text.as_ref());
        }
    }

    /// Says something only the curious want to know.
    pub fn whisper(&mut self, text: impl AsRef<str>) {
        if self.verbose {
            self.say(format!("{DIM}{}{DIM:#}", text.as_ref()));
        }
    }

    /// Says that something is not as it should be, whatever the options.
    pub fn warn(&mut self, text: impl AsRef<str>) {
        let _ = self.flush();
        let _ = writeln!(self.talk, "{YELLOW}warning:{YELLOW:#} {}", text.as_ref());
    }

    /// Tells an error.
    pub fn complain(&mut self, text: &str) {
        let _ = writeln!(self.talk, "{RED}error:{RED:#} {text}");
    }

    /// Tells an error to a machine.
    pub fn complain_json(&mut self, value: &serde_json::Value) {
        let _ = writeln!(self.talk, "{value}");
    }

    /// Whether what is said is seen by a person and kept by nobody: not in a service's journal, not
    /// in a file.
    pub fn is_seen(&self) -> bool {
        !self.muted && io::stderr().is_terminal()
    }

    /// Whether there is a person to be asked.
    pub fn can_ask(&self) -> bool {
        io::stdin().is_terminal() && io::stderr().is_terminal()
    }

    /// Asks a person; anything but yes is no.
    pub fn ask(&mut self, question: &str) -> anyhow::Result<bool> {
        written(write!(self.talk, "{question} [y/N] "))?;
        written(self.talk.flush())?;
        let mut answer = String::new();
        written(io::stdin().read_line(&mut answer).map(|_| ()))?;
        Ok(["y", "yes"].contains(&answer.trim().to_ascii_lowercase().as_str()))
    }

    /// Lets everything printed so far go out.
    pub fn flush(&mut self) -> anyhow::Result<()> {
        written(self.data.flush())
    }

    /// Whether there is little room in a line, so that a table has to do with few columns.
    pub fn is_narrow(&self) -> bool {
        const ROOMY_COLUMNS: u16 = 110;
        !self.wide && Table::new().width().is_some_and(|width| width < ROOMY_COLUMNS)
    }

    /// Prints rows under a header; the last column takes what room is left.
    pub fn table(&mut self, header: &[&str], rows: Vec<Vec<Cell>>) -> anyhow::Result<()> {
        let mut table = Table::new();
        table.load_style(presets::NOTHING).enforce_styling();
        table.style_text_only();
        let arrangement =
            if self.wide { ContentArrangement::Disabled } else { ContentArrangement::Dynamic };
        table.set_content_arrangement(arrangement);
        table.set_header(
            header
                .iter()
                .map(|name| Cell::new(name).add_attribute(comfy_table::Attribute::Dim))
                .collect::<Vec<_>>(),
        );
        table.add_rows(rows);
        let last = table.column_count().saturating_sub(1);
        for (at, column) in table.column_iter_mut().enumerate() {
            column.set_padding((0, 2));
            if at < last {
                column.set_constraint(ColumnConstraint::ContentWidth);
            }
        }
        let lines: Vec<String> = table.lines().collect();
        lines.iter().try_for_each(|line| self.line(line.trim_end()))
    }

    /// A bar for work of so many steps, each with its name.
    pub fn steps(&self, what: &'static str) -> ProgressBar {
        if self.quiet || self.json || self.muted || !io::stderr().is_terminal() {
            return ProgressBar::hidden();
        }
        let style = ProgressStyle::with_template("{prefix} {bar:32} {pos}/{len} {msg}")
            .unwrap_or_else(|_| ProgressStyle::default_bar());
        ProgressBar::new(0).with_style(style).with_prefix(what)
    }

    /// A bar for long work, seen only by a person at a terminal.
    pub fn bar(&self, what: &'static str) -> ProgressBar {
        if self.quiet || self.json || !io::stderr().is_terminal() {
            return ProgressBar::hidden();
        }
        let style = ProgressStyle::with_template("{msg} {bar:32} {bytes}/{total_bytes} {eta}")
            .unwrap_or_else(|_| ProgressStyle::default_bar());
        ProgressBar::new(0).with_style(style).with_message(what)
    }
}

/// Moves a bar as far as long work says it is.
pub fn moves(bar: &ProgressBar) -> impl Fn(u64, u64) + Send + Sync + '_ {
    |done, all| {
        bar.set_length(all);
        bar.set_position(done);
    }
}

fn written(result: io::Result<()>) -> anyhow::Result<()> {
    match result {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Err(Closed.into()),
        Err(error) => {
            Err(Stop::new(Exit::Failure, format!("the output could not be written: {error}"))
                .into())
        }
    }
}
