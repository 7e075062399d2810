//! All output of the program. stdout carries data, stderr carries messages, and a closed pipe is
//! not an error.

use std::io::{self, BufWriter, ErrorKind, IsTerminal, Write};

use anstream::{AutoStream, ColorChoice};
use anstyle::{AnsiColor, Style};
use comfy_table::{Cell, ColumnConstraint, ContentArrangement, Table, presets};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use super::{Color, GlobalArgs};
use crate::error::{AppError, Exit};

/// Headings.
pub const BOLD: Style = Style::new().bold();
/// Less important text.
pub const DIM: Style = Style::new().dimmed();
/// Errors.
pub const RED: Style = AnsiColor::Red.on_default();
/// Warnings.
pub const YELLOW: Style = AnsiColor::Yellow.on_default();
/// Success.
pub const GREEN: Style = AnsiColor::Green.on_default();
/// Identifiers and commands.
pub const CYAN: Style = AnsiColor::Cyan.on_default();

/// The reader of our output has closed it.
#[derive(Debug, thiserror::Error)]
#[error("the output was closed")]
pub struct OutputClosed;

/// Writes data to stdout and messages to stderr, in the form that the global options ask for.
pub struct Output {
    data: AutoStream<Box<dyn Write>>,
    talk: AutoStream<Box<dyn Write>>,
    json: bool,
    quiet: bool,
    verbose: bool,
    wide: bool,
    muted: bool,
}

fn color_choice(color: Color, terminal: bool) -> ColorChoice {
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

impl Output {
    /// Standard output and standard error, styled by these options.
    pub fn new(global: &GlobalArgs) -> Self {
        let (terminal, talking) = (io::stdout().is_terminal(), io::stderr().is_terminal());
        Self {
            data: AutoStream::new(
                Box::new(BufWriter::new(io::stdout())) as Box<dyn Write>,
                color_choice(global.color, terminal),
            ),
            talk: AutoStream::new(
                Box::new(io::stderr()) as Box<dyn Write>,
                color_choice(global.color, talking),
            ),
            json: global.json,
            quiet: global.quiet,
            verbose: global.verbose,
            wide: !terminal,
            muted: false,
        }
    }

    /// Discards everything.
    pub fn silent(global: &GlobalArgs) -> Self {
        let nobody = || AutoStream::new(Box::new(io::sink()) as Box<dyn Write>, ColorChoice::Never);
        Self { data: nobody(), talk: nobody(), json: false, muted: true, ..Self::new(global) }
    }

    /// For running another command inside this one: its messages go to stdout too, in order.
    pub fn with_merged_streams(&self, global: &GlobalArgs) -> Self {
        if self.muted {
            return Self::silent(global);
        }
        Self {
            talk: AutoStream::new(
                Box::new(io::stdout()) as Box<dyn Write>,
                color_choice(global.color, io::stdout().is_terminal()),
            ),
            ..Self::new(global)
        }
    }

    /// Whether details are printed.
    pub fn is_verbose(&self) -> bool {
        self.verbose
    }

    /// Whether only data, warnings and errors are printed.
    pub fn is_quiet(&self) -> bool {
        self.quiet
    }

    /// Whether data is printed as JSON.
    pub fn is_json(&self) -> bool {
        self.json
    }

    /// Prints a line of data.
    pub fn line(&mut self, text: impl AsRef<str>) -> anyhow::Result<()> {
        check_write(writeln!(self.data, "{}", text.as_ref()))
    }

    /// Prints text without adding a line end.
    pub fn raw(&mut self, text: &str) -> anyhow::Result<()> {
        check_write(write!(self.data, "{text}"))
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

    /// Writes a line to stderr. One call writes it, so that it is never there in part or mixed with
    /// the line of another process.
    fn message_line(&mut self, text: &str) {
        let _ = self.talk.write_all(format!("{text}\n").as_bytes());
    }

    /// Prints a message; not with --quiet or --json.
    pub fn info(&mut self, text: impl AsRef<str>) {
        if !self.quiet && !self.json {
            let _ = self.flush();
            self.message_line(text.as_ref());
        }
    }

    /// Prints a message with --verbose.
    pub fn detail(&mut self, text: impl AsRef<str>) {
        if self.verbose {
            self.info(format!("{DIM}{}{DIM:#}", text.as_ref()));
        }
    }

    /// Prints a warning, whatever the options.
    pub fn warn(&mut self, text: impl AsRef<str>) {
        let _ = self.flush();
        self.message_line(&format!("{YELLOW}warning:{YELLOW:#} {}", text.as_ref()));
    }

    /// Prints an error.
    pub fn error(&mut self, text: &str) {
        self.message_line(&format!("{RED}error:{RED:#} {text}"));
    }

    /// Prints an error as JSON.
    pub fn error_json(&mut self, value: &serde_json::Value) {
        self.message_line(&value.to_string());
    }

    /// Whether messages go to a terminal, not to the journal of a service or a file.
    pub fn is_on_terminal(&self) -> bool {
        !self.muted && io::stderr().is_terminal()
    }

    /// Whether questions can be asked: stdin and stderr are terminals.
    pub fn can_ask(&self) -> bool {
        io::stdin().is_terminal() && io::stderr().is_terminal()
    }

    /// Asks a yes/no question; anything but yes is no.
    pub fn ask(&mut self, question: &str) -> anyhow::Result<bool> {
        check_write(write!(self.talk, "{question} [y/N] "))?;
        check_write(self.talk.flush())?;
        let mut answer = String::new();
        check_write(io::stdin().read_line(&mut answer).map(|_| ()))?;
        Ok(["y", "yes"].contains(&answer.trim().to_ascii_lowercase().as_str()))
    }

    /// Flushes the data printed so far.
    pub fn flush(&mut self) -> anyhow::Result<()> {
        check_write(self.data.flush())
    }

    /// Whether the terminal is too narrow for all columns of a table.
    pub fn is_narrow(&self) -> bool {
        const ROOMY_COLUMNS: u16 = 110;
        !self.wide && Table::new().width().is_some_and(|width| width < ROOMY_COLUMNS)
    }

    /// Prints rows under a header; the last column gets the remaining width.
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

    /// A progress bar over named steps.
    pub fn step_bar(&self, what: &'static str) -> ProgressBar {
        if self.quiet || self.json || self.muted || !io::stderr().is_terminal() {
            return ProgressBar::hidden();
        }
        let style = ProgressStyle::with_template("{prefix} {bar:32} {pos}/{len} {msg}")
            .unwrap_or_else(|_| ProgressStyle::default_bar());
        ProgressBar::new(0).with_style(style).with_prefix(what)
    }

    /// A progress bar over bytes, shown on a terminal only.
    pub fn byte_bar(&self, what: &'static str) -> ProgressBar {
        if self.quiet || self.json || !io::stderr().is_terminal() {
            return ProgressBar::hidden();
        }
        let style = ProgressStyle::with_template("{msg} {bar:32} {bytes}/{total_bytes} {eta}")
            .unwrap_or_else(|_| ProgressStyle::default_bar());
        ProgressBar::new(0).with_style(style).with_message(what)
    }
}

/// A callback that updates a progress bar.
pub fn progress_updater(bar: &ProgressBar) -> impl Fn(u64, u64) + Send + Sync + '_ {
    |done, all| {
        bar.set_length(all);
        bar.set_position(done);
    }
}

fn check_write(result: io::Result<()>) -> anyhow::Result<()> {
    match result {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Err(OutputClosed.into()),
        Err(error) => {
            Err(AppError::new(Exit::Failure, format!("the output could not be written: {error}"))
                .into())
        }
    }
}
