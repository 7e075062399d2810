//! Importing: finds files, reads them piece by piece, and stores them in batches.
//!
//! The progress of each file is saved after every batch, so an interrupted run resumes where it
//! stopped, and a second run reads only what is new. Memory use is bounded by one piece and one
//! batch.

pub mod source;
pub mod unpack;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use anyhow::Result;
use icecore_domain::hash::Hash;
use icecore_domain::import::{
    ElementScanner, HEAD_BYTES, ImportBatch, ImportDocument, ImportFormat, ImportPosition,
    ImportReader, MAX_LINE_BYTES, detect_format, list_fields,
};
use icecore_domain::record::IncomingMessage;
use icecore_domain::sanitize;
use icecore_engine::{CaptureDefaults, CaptureReport, ImportProgress, ImportedFacts, Memory};
use jiff::civil::Date;
use serde::Serialize;

use self::source::{ImportSource, Packing, SourceLayout};
use crate::error::{AppError, Exit};

const CHUNK_BYTES: usize = 1 << 20;
/// A batch is stored at this size.
const BATCH_BYTES: usize = 16 * 1024 * 1024;
/// Or at this number of messages and facts.
const BATCH_ITEMS: usize = 50_000;
/// A longer note is refused.
const MAX_DOCUMENT_BYTES: u64 = 32 * 1024 * 1024;
/// This many bytes before a position identify it in the next run.
const TAIL_BYTES: u64 = 1024;
const MAX_COMPLAINTS: usize = 1_000;

/// The result of an import, or of a dry run.
#[derive(Debug, Default, Serialize)]
pub struct ImportReport {
    pub dry_run: bool,
    /// Files that were read, by format.
    pub files: BTreeMap<&'static str, usize>,
    /// Files that did not change since an earlier run.
    pub unchanged: usize,
    pub bytes: u64,
    /// Pieces read: lines, conversations and notes.
    pub lines: usize,
    /// Conversations, or sessions of them.
    pub conversations: usize,
    /// Messages with text.
    pub messages: usize,
    pub days: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_day: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_day: Option<String>,
    #[serde(rename = "taken")]
    pub capture: CaptureReport,
    /// Facts that became events.
    pub learnt: usize,
    pub facts_known: usize,
    /// Facts that are quarantined because of their origin.
    pub facts_waiting: usize,
    pub skipped: BTreeMap<String, usize>,
    /// Pieces that could not be read.
    pub broken: usize,
    /// Sources that were refused.
    pub refused: Vec<String>,
    pub seconds: f64,
    #[serde(skip)]
    seen_conversations: HashSet<u64>,
    #[serde(skip)]
    seen_days: BTreeSet<Date>,
}

impl ImportReport {
    /// Whether no source had anything that was imported, known or skipped for a reason.
    pub fn is_empty(&self) -> bool {
        self.messages
            + self.learnt
            + self.facts_known
            + self.unchanged
            + self.capture.passed_over
            + self.capture.forgotten
            + self.capture.withheld
            == 0
    }

    /// Records that something could not be read.
    pub fn add_complaint(&mut self, what: String) {
        if self.capture.complaints.len() < MAX_COMPLAINTS {
            self.capture.complaints.push(what);
        }
    }

    fn count_skipped(&mut self, what: &str, count: usize) {
        *self.skipped.entry(what.to_owned()).or_default() += count;
    }
}

/// A running import.
pub struct ImportRun<'a> {
    memory: &'a Memory,
    gaps: CaptureDefaults,
    /// The progress of earlier runs by file; empty with `--again`.
    known: HashMap<String, ImportProgress>,
    facts: Option<ImportedFacts>,
    batch: PendingImport,
    pub report: ImportReport,
    projects: RefCell<HashMap<String, Option<String>>>,
    gathered: usize,
    moved: &'a dyn Fn(u64),
}

/// Messages and facts to be stored together.
#[derive(Default)]
struct PendingImport {
    said: Vec<IncomingMessage>,
    /// The source of each message: an index into `names`, and the number of its piece.
    places: Vec<(usize, usize)>,
    names: Vec<String>,
    harvest: ImportBatch,
    bytes: usize,
    /// Files that were read to their end.
    done: Vec<ImportProgress>,
}

impl<'a> ImportRun<'a> {
    /// Starts a run. `moved` receives the bytes read since its last call.
    pub fn new(
        memory: &'a Memory,
        defaults: CaptureDefaults,
        known: HashMap<String, ImportProgress>,
        dry_run: bool,
        moved: &'a dyn Fn(u64),
    ) -> Self {
        let report = ImportReport { dry_run, ..ImportReport::default() };
        Self {
            memory,
            gaps: defaults,
            known,
            facts: None,
            batch: PendingImport::default(),
            report,
            projects: RefCell::default(),
            gathered: 0,
            moved,
        }
    }

    /// Reads what earlier runs have not read of a source.
    pub async fn import_source(&mut self, source: &ImportSource) -> Result<()> {
        let before = self.known.get(&source.key).filter(|read| read.format == source.format.word());
        let from = match before.map(|read| remaining_input(read, source)) {
            Some(RemainingInput::Nothing) => {
                self.report.unchanged += 1;
                (self.moved)(source.disk_bytes());
                return Ok(());
            }
            Some(RemainingInput::After) => before.cloned().unwrap_or_default(),
            Some(RemainingInput::Whole) | None => ImportProgress::default(),
        };
        *self.report.files.entry(source.format.word()).or_default() += 1;
        let start = ImportProgress {
            path: source.key.clone(),
            format: source.format.word().into(),
            size: source.size,
            modified: source.modified,
            done: false,
            tail: String::new(),
            ..from
        };
        let place = source::display_path(&source.path);
        let unreadable = |error: std::io::Error| {
            AppError::new(Exit::Failure, format!("{place} cannot be read: {error}"))
        };
        match &source.packed {
            Packing::Plain => {
                let mut file = File::open(&source.path).map_err(unreadable)?;
                file.seek(SeekFrom::Start(if source.shape == SourceLayout::Lines {
                    start.bytes
                } else {
                    0
                }))
                .map_err(unreadable)?;
                (self.moved)(if source.shape == SourceLayout::Lines { start.bytes } else { 0 });
                self.read_stream(&mut file, source, start).await
            }
            Packing::Zstd => {
                let mut stream =
                    File::open(&source.path).and_then(unpack::zstd_stream).map_err(unreadable)?;
                self.read_stream(&mut stream, source, ImportProgress { bytes: 0, ..start }).await
            }
            Packing::Zip(entry) => {
                let (mut archive, _) = unpack::open_archive(&source.path)?;
                let mut stream = unpack::entry_stream(&mut archive, entry, &place)?;
                self.read_stream(&mut stream, source, ImportProgress { bytes: 0, ..start }).await
            }
        }
    }

    /// Reads standard input; its format is detected from its beginning if not given.
    pub async fn import_stream(
        &mut self,
        stream: &mut dyn Read,
        name: &str,
        wanted: Option<ImportFormat>,
    ) -> Result<()> {
        let mut head = Vec::new();
        (&mut *stream).take(HEAD_BYTES as u64).read_to_end(&mut head)?;
        let text = String::from_utf8_lossy(&head).into_owned();
        let format =
            wanted.or_else(|| detect_format("-.jsonl", &text)).unwrap_or(ImportFormat::Jsonl);
        let lists = list_fields(format, &text);
        let shape = match format {
            ImportFormat::Markdown => SourceLayout::Note,
            ImportFormat::ChatGpt | ImportFormat::ClaudeAi | ImportFormat::Mem0 => {
                SourceLayout::Elements
            }
            ImportFormat::McpMemory if !lists.is_empty() => SourceLayout::Elements,
            _ => SourceLayout::Lines,
        };
        let source = ImportSource {
            path: PathBuf::from("-"),
            name: name.into(),
            key: String::new(),
            format,
            shape,
            packed: Packing::Plain,
            lists,
            size: 0,
            modified: 0,
            project: None,
        };
        *self.report.files.entry(format.word()).or_default() += 1;
        let mut stream = head.as_slice().chain(stream);
        self.read_stream(&mut stream, &source, ImportProgress::default()).await
    }

    /// Reads a stream that can be read once, such as standard input.
    pub async fn read_stream(
        &mut self,
        stream: &mut dyn Read,
        source: &ImportSource,
        start: ImportProgress,
    ) -> Result<()> {
        let before = (self.gathered, self.batch.harvest.facts.len(), self.report.broken);
        match source.shape {
            SourceLayout::Lines => self.read_lines(stream, source, start).await,
            SourceLayout::Elements => self.read_elements(stream, source, start).await,
            SourceLayout::Note | SourceLayout::Memory => self.read_document(stream, source, start),
        }?;
        // A file of which nothing could be read is tried again next time: it may be repaired, or
        // another format given.
        if (self.gathered, self.batch.harvest.facts.len()) == (before.0, before.1)
            && self.report.broken > before.2
        {
            self.batch.done.retain(|read| read.path != source.key);
        }
        if self.batch.is_full() { self.flush(None).await } else { Ok(()) }
    }

    async fn read_lines(
        &mut self,
        stream: &mut dyn Read,
        source: &ImportSource,
        start: ImportProgress,
    ) -> Result<()> {
        let offset = self.memory.now().offset();
        let mut reader = ImportReader::new(source.format, offset);
        if let Some(left) = &start.left {
            reader.resume(left);
        }
        // Packed files cannot be seeked: read pieces are skipped.
        let known = if source.packed == Packing::Plain { 0 } else { start.pieces };
        let mut place =
            ImportPosition { number: if known > 0 { 0 } else { start.pieces }, at: start.bytes };
        let mut chunk = vec![0; CHUNK_BYTES];
        // The incomplete last line of a chunk, and the skipped bytes of a line that is too long.
        let (mut carried, mut swallowed): (Vec<u8>, u64) = (Vec::new(), 0);
        loop {
            let read =
                read_chunk(stream, &mut chunk).map_err(|error| stream_error(source, &error))?;
            self.count_bytes(source, read);
            let mut rest = &chunk[..read];
            while let Some(end) = memchr::memchr(b'\n', rest) {
                let (line, after) = (&rest[..end], &rest[end + 1..]);
                rest = after;
                place.number += 1;
                let length = (carried.len() + line.len()) as u64 + swallowed + 1;
                if swallowed > 0 || carried.len() + line.len() > MAX_LINE_BYTES {
                    self.batch.harvest.add_complaint(
                        place.number,
                        format!("has more than {MAX_LINE_BYTES} bytes and was skipped"),
                    );
                } else if place.number > known {
                    let joined;
                    let line = if carried.is_empty() {
                        line
                    } else {
                        carried.extend_from_slice(line);
                        joined = &carried;
                        joined
                    };
                    self.read_line(&mut reader, place, line);
                }
                carried.clear();
                swallowed = 0;
                place.at += length;
            }
            if read == 0 {
                break;
            }
            if carried.len() + rest.len() > MAX_LINE_BYTES {
                swallowed += (carried.len() + rest.len()) as u64;
                carried.clear();
            } else {
                carried.extend_from_slice(rest);
            }
            self.collect_harvest(source);
            if self.batch.is_full() {
                let next = ImportPosition { number: place.number + 1, at: place.at };
                let so_far = progress_record(
                    &start,
                    source,
                    reader.resume_position().unwrap_or(next),
                    reader.checkpoint(),
                    false,
                );
                self.flush(Some(so_far)).await?;
            }
        }
        // The last line may still be being written: an incomplete one is read again later.
        let mut end = ImportPosition { number: place.number + 1, at: place.at };
        if swallowed > 0 {
            self.batch.harvest.add_complaint(
                end.number,
                format!("has more than {MAX_LINE_BYTES} bytes and was skipped"),
            );
        } else if !carried.trim_ascii().is_empty() && end.number > known {
            self.read_line(&mut reader, end, &carried);
            if serde_json::from_slice::<serde::de::IgnoredAny>(&carried).is_ok() {
                end = ImportPosition { number: end.number + 1, at: end.at + carried.len() as u64 };
            }
        }
        self.report.lines += (end.number - 1).saturating_sub(start.pieces);
        let resume = reader.resume_position().unwrap_or(end);
        let left = reader.checkpoint();
        reader.finish(&mut self.batch.harvest);
        self.collect_harvest(source);
        self.batch.done.push(progress_record(&start, source, resume, left, true));
        Ok(())
    }

    fn read_line(&mut self, reader: &mut ImportReader, place: ImportPosition, line: &[u8]) {
        let line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line).trim_ascii();
        if line.is_empty() {
            return;
        }
        let text = std::str::from_utf8(line)
            .map_or_else(|_| String::from_utf8_lossy(line), std::borrow::Cow::Borrowed);
        let projects = &self.projects;
        reader.read_piece(
            place,
            &text,
            &|folder| cached_project(projects, folder),
            &mut self.batch.harvest,
        );
    }

    async fn read_elements(
        &mut self,
        stream: &mut dyn Read,
        source: &ImportSource,
        start: ImportProgress,
    ) -> Result<()> {
        let offset = self.memory.now().offset();
        let mut reader = ImportReader::new(source.format, offset);
        let mut elements = ElementScanner::new(source.lists);
        let mut chunk = vec![0; CHUNK_BYTES];
        let mut pieces = 0;
        loop {
            let read =
                read_chunk(stream, &mut chunk).map_err(|error| stream_error(source, &error))?;
            self.count_bytes(source, read);
            let mut tell = |piece: icecore_domain::import::ListElement<'_>| {
                pieces = piece.number;
                if piece.number <= start.pieces {
                    return;
                }
                let place = ImportPosition { number: piece.number, at: 0 };
                match piece.json {
                    Ok(json) => reader.read_piece(place, json, &|_| None, &mut self.batch.harvest),
                    Err(wrong) => self.batch.harvest.add_complaint(piece.number, wrong.to_string()),
                }
            };
            if read == 0 {
                elements.finish(&mut tell);
                break;
            }
            elements.feed(&chunk[..read], &mut tell);
            self.collect_harvest(source);
            if self.batch.is_full() {
                let place = ImportPosition { number: pieces.max(start.pieces) + 1, at: 0 };
                self.flush(Some(progress_record(&start, source, place, None, false))).await?;
            }
        }
        self.report.lines += pieces.saturating_sub(start.pieces);
        self.collect_harvest(source);
        self.batch.done.push(progress_record(
            &start,
            source,
            ImportPosition { number: pieces + 1, at: 0 },
            None,
            true,
        ));
        Ok(())
    }

    fn read_document(
        &mut self,
        stream: &mut dyn Read,
        source: &ImportSource,
        start: ImportProgress,
    ) -> Result<()> {
        let mut bytes = Vec::new();
        stream
            .take(MAX_DOCUMENT_BYTES + 1)
            .read_to_end(&mut bytes)
            .map_err(|error| stream_error(source, &error))?;
        self.count_bytes(source, bytes.len());
        self.report.lines += 1;
        if bytes.len() as u64 > MAX_DOCUMENT_BYTES {
            self.batch.harvest.add_complaint(
                1,
                format!("has more than {MAX_DOCUMENT_BYTES} bytes and was skipped"),
            );
        } else {
            let text = String::from_utf8_lossy(&bytes);
            // The name is part of the identity, wherever the folder is.
            let path = match (&source.packed, source.format) {
                (_, ImportFormat::Markdown) => source.name.clone(),
                // The next export is another archive with the same content.
                (Packing::Zip(entry), format) => format!("{format}/{}", entry.name),
                (_, format) => format!("{format}/{}", source.name),
            };
            let document =
                ImportDocument { path: &path, text: &text, project: source.project.as_deref() };
            match source.shape {
                SourceLayout::Memory => document.read_memory(&mut self.batch.harvest),
                _ => document.read_note(&mut self.batch.harvest),
            }
        }
        self.collect_harvest(source);
        self.batch.done.push(progress_record(
            &start,
            source,
            ImportPosition { number: 2, at: 0 },
            None,
            true,
        ));
        Ok(())
    }

    fn count_bytes(&mut self, source: &ImportSource, read: usize) {
        self.report.bytes += read as u64;
        let share = match &source.packed {
            Packing::Zip(entry) => (read as u64).saturating_mul(entry.packed) / entry.bytes.max(1),
            Packing::Plain => read as u64,
            Packing::Zstd => 0,
        };
        (self.moved)(share);
    }

    /// Moves the harvest into the batch, with the name of its source.
    fn collect_harvest(&mut self, source: &ImportSource) {
        let batch = &mut self.batch;
        let name = batch.name_index(&source.name);
        for (number, said) in batch.harvest.messages.drain(..) {
            self.gathered += 1;
            batch.bytes += said.text.len() + said.parts.as_ref().map_or(0, String::len) + 200;
            batch.said.push(said);
            batch.places.push((name, number));
        }
        for (what, count) in std::mem::take(&mut batch.harvest.skipped) {
            self.report.count_skipped(&what, count);
        }
        self.report.broken +=
            batch.harvest.complaints.len() + std::mem::take(&mut batch.harvest.more_complaints);
        for (number, what) in std::mem::take(&mut batch.harvest.complaints) {
            self.report
                .add_complaint(format!("{}:{number} {what}", sanitize::one_line(&source.name)));
        }
    }

    /// Stores the batch, then the progress of the files.
    pub async fn flush(&mut self, so_far: Option<ImportProgress>) -> Result<()> {
        let batch = std::mem::take(&mut self.batch);
        let place = |at: usize| {
            let (name, number) = batch.places.get(at).copied().unwrap_or_default();
            sanitize::one_line(&format!(
                "{}:{number}",
                batch.names.get(name).map_or("", String::as_str)
            ))
        };
        if !self.report.dry_run {
            // Waiting notes first: turns that hooks recorded are recognized by their ids.
            self.memory.flush_all_pending().await?;
        }
        let gated = self.memory.filter_for_import(batch.said, &self.gaps, &place).await?;
        self.report.messages += gated.records.len();
        for record in &gated.records {
            let day = record.ts.day();
            self.report.seen_days.insert(day);
            let whose = format!(
                "{}\0{}",
                record.conversation,
                record.session.as_deref().unwrap_or_default()
            );
            let hash = Hash::of(whose.as_bytes());
            let short =
                hash.as_bytes().first_chunk::<8>().map_or(0, |bytes| u64::from_be_bytes(*bytes));
            self.report.seen_conversations.insert(short);
        }
        self.report.conversations = self.report.seen_conversations.len();
        self.report.days = self.report.seen_days.len();
        self.report.first_day = self.report.seen_days.first().map(Date::to_string);
        self.report.last_day = self.report.seen_days.last().map(Date::to_string);
        if !batch.harvest.facts.is_empty() {
            self.learn_facts(batch.harvest.facts).await?;
        }
        if self.report.dry_run {
            self.report.capture.merge(gated.report);
            // A dry run stores no progress.
            return Ok(());
        }
        let taken = self.memory.append_filtered(gated).await?;
        self.report.capture.merge(taken);
        let read: Vec<ImportProgress> =
            batch.done.into_iter().chain(so_far).filter(|read| !read.path.is_empty()).collect();
        self.memory.save_import_progress(&read).await?;
        Ok(())
    }

    async fn learn_facts(
        &mut self,
        facts: Vec<icecore_domain::import::ImportedFact>,
    ) -> Result<()> {
        let mut known = match self.facts.take() {
            Some(known) => known,
            None => self.memory.imported_facts().await?,
        };
        let planned = self.memory.plan_fact_import(facts, &known)?;
        self.report.facts_known += planned.known;
        let low = |origin| {
            icecore_domain::record::Trust::from_origin(origin) == icecore_domain::record::Trust::Low
        };
        self.report.facts_waiting +=
            planned.drafts.iter().filter(|draft| low(draft.origin)).count();
        for complaint in planned.complaints {
            self.report.broken += 1;
            self.report.add_complaint(complaint);
        }
        self.report.learnt += match self.report.dry_run {
            true => planned.drafts.len(),
            false => self.memory.import_facts(planned.drafts, &mut known).await?,
        };
        self.facts = Some(known);
        Ok(())
    }
}

impl PendingImport {
    fn name_index(&mut self, name: &str) -> usize {
        if self.names.last().is_none_or(|last| last != name) {
            self.names.push(name.to_owned());
        }
        self.names.len() - 1
    }

    fn is_full(&self) -> bool {
        self.bytes >= BATCH_BYTES || self.said.len() + self.harvest.facts.len() >= BATCH_ITEMS
    }
}

/// The part of a file that is left to read.
enum RemainingInput {
    Nothing,
    After,
    Whole,
}

fn remaining_input(read: &ImportProgress, source: &ImportSource) -> RemainingInput {
    let as_it_was = read.size == source.size && read.modified == source.modified;
    if source.shape == SourceLayout::Lines && source.packed == Packing::Plain {
        // A file that only grew still begins with the part that was read.
        let same = read.bytes <= source.size && tail_hash(&source.path, read.bytes) == read.tail;
        return match (same, as_it_was && read.done) {
            (true, true) => RemainingInput::Nothing,
            (true, false) => RemainingInput::After,
            (false, _) => RemainingInput::Whole,
        };
    }
    match (as_it_was, read.done) {
        (true, true) => RemainingInput::Nothing,
        (true, false) => RemainingInput::After,
        (false, _) => RemainingInput::Whole,
    }
}

/// The progress of a file that was read up to this piece.
fn progress_record(
    start: &ImportProgress,
    source: &ImportSource,
    next: ImportPosition,
    left: Option<String>,
    done: bool,
) -> ImportProgress {
    let plain = source.shape == SourceLayout::Lines && source.packed == Packing::Plain;
    let bytes = if plain { next.at } else { 0 };
    let tail = if plain && !start.path.is_empty() {
        tail_hash(&source.path, bytes)
    } else {
        String::new()
    };
    ImportProgress {
        bytes,
        pieces: next.number.saturating_sub(1),
        tail,
        done,
        left,
        ..start.clone()
    }
}

/// A hash of the bytes before a position of a file; empty if they cannot be read.
fn tail_hash(path: &Path, before: u64) -> String {
    let read = || -> std::io::Result<Vec<u8>> {
        let from = before.saturating_sub(TAIL_BYTES);
        let mut file = File::open(path)?;
        file.seek(SeekFrom::Start(from))?;
        let mut bytes = Vec::new();
        file.take(before - from).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    read().map(|bytes| Hash::of(&bytes).short_hex()).unwrap_or_default()
}

fn read_chunk(stream: &mut dyn Read, into: &mut [u8]) -> std::io::Result<usize> {
    loop {
        match stream.read(into) {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

fn stream_error(source: &ImportSource, error: &std::io::Error) -> AppError {
    let exit =
        if error.kind() == std::io::ErrorKind::Other { Exit::NotAllowed } else { Exit::Failure };
    AppError::new(
        exit,
        format!("{} could not be read to its end: {error}", sanitize::one_line(&source.key)),
    )
}

fn cached_project(
    projects: &RefCell<HashMap<String, Option<String>>>,
    folder: &str,
) -> Option<String> {
    if let Some(known) = projects.borrow().get(folder) {
        return known.clone();
    }
    let project = icecore_engine::project::project_of(Path::new(folder));
    projects.borrow_mut().insert(folder.to_owned(), project.clone());
    project
}
