//! Speed: the figures of docs/benchmarks.md, each next to a reference measured in the same run on
//! the same disk.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    reason = "a benchmark reads the clock and prints"
)]
#![allow(clippy::unwrap_used, reason = "a benchmark fails loudly")]

#[path = "speed/assistants.rs"]
mod assistants;
#[path = "speed/chats.rs"]
mod chats;
#[path = "speed/database.rs"]
mod database;
#[path = "speed/hooks.rs"]
mod hooks;
#[path = "speed/imports.rs"]
mod imports;

use std::collections::{BTreeSet, HashMap};
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use icecore_domain::calendar::Moment;
use icecore_domain::cascade::plan::PlanningInput;
use icecore_domain::event::{EventDraft, EventType, LoopStatus, Priority};
use icecore_domain::format::line;
use icecore_domain::hash::Hash;
use icecore_domain::id::EventId;
use icecore_domain::ledger::Ledger;
use icecore_domain::packs::upload::{self, UploadInput};
use icecore_domain::rank::vector::{self, PackedVector};
use icecore_domain::record::{SessionKey, SessionStats};
use icecore_domain::summary::{Importance, Period, Summary, SummaryAuthor, SummaryQuery, Tier};
use icecore_engine::clock::{Clock, FixedClock};
use icecore_engine::embed::{Embedder, MiniLm};
use icecore_engine::{CaptureDefaults, Memory, SearchRequest, Searcher};
use icecore_store::prelude::*;
use icecore_store::vault::Vault;
use jiff::civil::{Date, date};
use jiff::{Timestamp, ToSpan};
use pollster::block_on;

/// A ledger of `many` events, a hundred a day, of every type, some of them closed or superseded.
fn ledger(many: usize) -> String {
    let mut day = date(2024, 1, 1);
    let mut text = String::new();
    for n in 0..many {
        if n > 0 && n % 100 == 0 {
            day = day.checked_add(1.day()).unwrap();
        }
        let ts = Moment::parse(&format!("{day}T10:{:02}:{:02}+00:00", n / 60 % 60, n % 60))
            .unwrap()
            .moment;
        let kind = EventType::ALL[n % EventType::ALL.len()];
        let content = format!(
            "Something number {n} was learnt about the project and its many moving parts in the office"
        );
        let number = u32::try_from(n % 100).unwrap() + 1;
        let mut draft = EventDraft::new(ts, kind, Priority::ALL[n % 4], content);
        draft.entity = Some(format!("thing_{}", n % 50));
        draft.tags = vec!["bench".into(), "office".into()];
        draft.session = Some("main".into());
        if kind == EventType::Commitment && n % 10 != 0 {
            draft.status = Some(LoopStatus::Closed);
        }
        if kind == EventType::Fact && number > 7 {
            draft.supersedes = vec![EventId::new(day, number - 7)];
        }
        text.push_str(&line::format_line(&draft.with_id(EventId::new(day, number))));
    }
    text
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

/// The median time of `rounds` rounds, after a few to warm up.
fn time(rounds: usize, mut work: impl FnMut()) -> Duration {
    (0..rounds.div_ceil(10)).for_each(|_| work());
    let round = |_| {
        let start = Instant::now();
        work();
        start.elapsed()
    };
    median((0..rounds).map(round).collect())
}

fn run(command: &mut Command) {
    assert!(
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .unwrap()
            .success()
    );
}

fn icecore(root: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_icecore"));
    command.arg("--vault").arg(root).args(arguments);
    command
}

fn vault(folder: &Path, name: &str, many: usize) -> PathBuf {
    let root = folder.join(name);
    run(icecore(&root, &["init", "--tz", "UTC"]).arg("-q"));
    fs::write(root.join("memory/ledger.jsonl"), ledger(many)).unwrap();
    run(&mut icecore(&root, &["vault", "reindex"]));
    run(&mut icecore(&root, &["snapshot"]));
    root
}

fn bare_append(file: &Path) {
    let mut file = OpenOptions::new().append(true).create(true).open(file).unwrap();
    file.write_all(&[b'x'; 300]).unwrap();
    file.sync_data().unwrap();
}

fn row(what: &str, took: Duration, against: &str) {
    println!("| {what} | {:.2} ms | {against} |", took.as_secs_f64() * 1e3);
}

fn ratio(took: Duration, reference: Duration, what: &str) -> String {
    format!(
        "{:.2} × {what} ({:.2} ms)",
        took.as_secs_f64() / reference.as_secs_f64(),
        reference.as_secs_f64() * 1e3
    )
}

/// The sections of the benchmark, by the name that runs one alone: `cargo bench -p icecore --bench
/// speed -- packs`. A section and its name.
type Named = (&'static str, fn(&Path));

const SECTIONS: &[Named] = &[
    ("ledger", ledgers),
    ("packs", packs),
    ("year", a_year),
    ("import", imports),
    ("gate", gates),
    ("nights", nights),
    ("recall", recall),
    ("night", nights_in_turn),
    ("search", searches),
    ("chats", chats::chats),
    ("database", database::measure_database),
    ("assistants", assistants::assistants),
    ("hooks", hooks::hooks),
    ("imports-formats", imports::measure_imports),
];

fn main() {
    // The reference for a whole process, called by itself: append a line, flush it, exit.
    if let Some(file) = std::env::var_os("ICECORE_BENCH_APPEND") {
        bare_append(Path::new(&file));
        return;
    }
    let wanted: Vec<String> =
        std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let known = |name: &String| SECTIONS.iter().any(|(section, _)| section == name);
    assert!(
        wanted.iter().all(known),
        "sections are {:?}",
        SECTIONS.iter().map(|(name, _)| name).collect::<Vec<_>>()
    );
    println!("| what | median | against |\n|---|---|---|");
    for (_, section) in SECTIONS
        .iter()
        .filter(|(name, _)| wanted.is_empty() || wanted.iter().any(|wanted| wanted == name))
    {
        let folder = tempfile::TempDir::new().unwrap();
        section(folder.path());
    }
}

fn ledgers(folder: &Path) {
    let small = vault(folder, "ten-thousand", 10_000);

    let status = time(60, || run(&mut icecore(&small, &["status"])));
    let git = time(60, || run(Command::new("git").current_dir(&small).arg("status")));
    row("`icecore status`, cold start, 10,000 events", status, &ratio(status, git, "`git status`"));

    let scratch = folder.join("scratch");
    let bare = time(200, || bare_append(&scratch));
    let open = Vault::open(&small).unwrap();
    let now = Moment::parse("2026-02-13T09:30:00+01:00").unwrap().moment;
    let append = time(200, || {
        drop(
            block_on(open.append(
                vec![EventDraft::new(now, EventType::Fact, Priority::P2, "x".repeat(150))],
                None,
            ))
            .unwrap(),
        )
    });
    row(
        "a durable append, vault open, 10,000 events",
        append,
        &ratio(append, bare, "a bare append + flush"),
    );

    let this = std::env::current_exe().unwrap();
    let process = time(60, || run(Command::new(&this).env("ICECORE_BENCH_APPEND", &scratch)));
    let remember = time(60, || {
        run(&mut icecore(&small, &["remember", "The office moved to Hamburg in the spring"]))
    });
    row(
        "`icecore remember`, whole process, 10,000 events",
        remember,
        &ratio(remember, process, "a process that appends + flushes"),
    );

    let text = ledger(100_000);
    let load =
        time(9, || assert_eq!(Ledger::parse(text.as_bytes(), None).entries().len(), 100_000));
    let tenth = ledger(10_000);
    let load_tenth = time(9, || drop(Ledger::parse(tenth.as_bytes(), None)));
    row("loading 100,000 ledger lines", load, &ratio(load, load_tenth, "loading 10,000"));

    let big = vault(folder, "hundred-thousand", 100_000);
    let reindex = time(3, || run(&mut icecore(&big, &["vault", "reindex"])));
    let reindex_tenth = time(5, || run(&mut icecore(&small, &["vault", "reindex"])));
    row(
        "`icecore vault reindex`, 100,000 events",
        reindex,
        &ratio(reindex, reindex_tenth, "10,000 events"),
    );

    let status_big = time(30, || run(&mut icecore(&big, &["status"])));
    row(
        "`icecore status`, 100,000 events",
        status_big,
        &ratio(status_big, status, "10,000 events"),
    );
    let remember_big =
        time(30, || run(&mut icecore(&big, &["remember", "The office moved to Hamburg"])));
    row(
        "`icecore remember`, 100,000 events",
        remember_big,
        &ratio(remember_big, remember, "10,000 events"),
    );
}

/// The text of a message: about so many words, never quite the same.
fn message_text(n: usize, words: usize) -> String {
    const WORDS: &[&str] = &[
        "cascade", "index", "deploy", "invoice", "garden", "meeting", "budget", "printer",
        "schema", "holiday", "kitchen", "release", "customer", "parser", "train", "report",
    ];
    let mut text = String::new();
    let mut state = n as u64 * 6_364_136_223_846_793_005 + 1_442_695_040_888_963_407;
    for at in 0..words {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let word = WORDS[usize::try_from(state >> 60).unwrap()];
        text.push_str(if at % 9 == 0 { "We looked at the " } else { "and the " });
        text.push_str(word);
        text.push_str(if at % 9 == 8 { ". " } else { " " });
    }
    format!("{}{n}.", text)
}

/// A line of an import: the `n`-th message of a session that began at nine, one message every half
/// minute.
fn message(day: Date, session: usize, n: usize, words: usize) -> String {
    let role = if n.is_multiple_of(2) { "user" } else { "assistant" };
    let seconds = 9 * 3_600 + session * 7_200 + n * 30;
    let ts = format!("{day}T{:02}:{:02}:{:02}Z", seconds / 3_600, seconds / 60 % 60, seconds % 60);
    let text = message_text(n + session * 1_000 + day.day_of_year() as usize * 10_000, words);
    format!(
        "{{\"conversation\":\"work\",\"session\":\"s{session}\",\"role\":\"{role}\",\"ts\":\"{ts}\",\"id\":\"{day}-{session}-{n}\",\"text\":\"{text}\"}}"
    )
}

fn before(day: Date, days: usize) -> Date {
    day.checked_sub(i64::try_from(days).unwrap().days()).unwrap()
}

/// A vault without git.
fn bare_vault(folder: &Path, name: &str) -> Arc<Vault> {
    let root = folder.join(name);
    let vault = Vault::create(&root, "format = 1\nzone = \"UTC\"\n").unwrap();
    fs::remove_dir_all(root.join(".git")).unwrap();
    Arc::new(vault)
}

fn memory(vault: &Arc<Vault>, now: Timestamp) -> Memory {
    block_on(Memory::open(vault.clone(), vault.clone(), Box::new(FixedClock(now)))).unwrap()
}

/// That hour of a day.
fn hour(day: Date, hour: i8) -> Timestamp {
    day.at(hour, 0, 0, 0).in_tz("UTC").unwrap().timestamp()
}

fn import(memory: &Memory, lines: impl Iterator<Item = String>) -> usize {
    let mut taken = 0;
    let mut batch = Vec::new();
    let mut take = |batch: &mut Vec<String>| {
        taken += block_on(memory.import_lines(batch, 1, &CaptureDefaults::default())).unwrap().new;
        batch.clear();
    };
    for line in lines {
        batch.push(line);
        if batch.len() == 20_000 {
            take(&mut batch);
        }
    }
    take(&mut batch);
    taken
}

/// A vault with so many sessions, three a day up to today, and a summary of every finished period.
/// The summaries are written straight into the store: rollups of ten thousand sessions are measured
/// by the year and by the night.
fn history(folder: &Path, name: &str, sessions: usize, messages: usize) -> PathBuf {
    let today = Timestamp::now().in_tz("UTC").unwrap().date();
    let vault = bare_vault(folder, name);
    let days: Vec<Date> = (0..sessions.div_ceil(3)).rev().map(|back| before(today, back)).collect();
    let of = |n: usize| (days[n / 3], n % 3);
    let open = memory(&vault, Timestamp::now());
    let lines = (0..sessions).flat_map(|session| (0..messages).map(move |n| (session, n)));
    let lines = lines.map(|(session, n)| message(of(session).0, of(session).1, n, 9));
    assert_eq!(import(&open, lines), sessions * messages);
    let stats: HashMap<SessionKey, SessionStats> = block_on(vault.sessions(None))
        .unwrap()
        .into_iter()
        .map(|stat| (stat.key.clone(), stat))
        .collect();
    let now = Moment::parse(&Timestamp::now().to_string()).unwrap().moment;
    let mut periods: BTreeSet<Period> = BTreeSet::new();
    for n in 0..sessions {
        let (day, number) = of(n);
        periods.insert(Period::Session { day, number: u32::try_from(number).unwrap() + 1 });
        periods.extend(Tier::ALL.iter().filter_map(|&tier| Period::covering(tier, day)));
    }
    let summaries: Vec<Summary> = periods
        .into_iter()
        .filter(|period| period.days().last < today)
        .map(|period| {
            let lines = match period.tier() {
                Tier::Session => 20,
                Tier::Day => 10,
                Tier::Week => 30,
                Tier::Month | Tier::Year => 50,
            };
            let session = if let Period::Session { day, number } = period {
                Some(SessionKey {
                    day,
                    conversation: "work".into(),
                    session: Some(format!("s{}", number - 1)),
                })
            } else {
                None
            };
            let stat = session.as_ref().map(|key| &stats[key]);
            Summary {
                period,
                version: 1,
                start: stat.map_or(now, |stat| stat.first),
                end: stat.map_or(now, |stat| stat.last),
                headline: message_text(lines, 30),
                body: (0..lines).map(|n| format!("- {}\n", message_text(n, 20))).collect(),
                messages: stat.map_or(0, |stat| stat.digest.records),
                states: 0,
                recorded: now,
                source: stat.map_or_else(|| Hash::of(b""), PlanningInput::session_source_hash),
                session,
                log: None,
                sources: Vec::new(),
                maker: SummaryAuthor::Extract,
                provisional: true,
                importance: Importance::Ordinary,
                left_out: Vec::new(),
                cost: Default::default(),
                similar: None,
            }
        })
        .collect();
    for some in summaries.chunks(1_000) {
        block_on(vault.add_summaries(some, None)).unwrap();
    }
    vault.root().to_owned()
}

/// Packs from the command line, cold, over a short and over a very long history.
fn packs(folder: &Path) {
    let start = Instant::now();
    let small = history(folder, "short", 100, 100);
    let big = history(folder, "long", 10_000, 100);
    println!(
        "| (a vault with 1,000,000 messages in 10,000 sessions was made in {:.0} s) | | |",
        start.elapsed().as_secs_f64()
    );
    let bare = time(30, || run(&mut icecore(&small, &["--version"])));
    for kind in ["upload", "pyramid"] {
        let short = time(20, || run(&mut icecore(&small, &["pack", kind])));
        let long = time(20, || run(&mut icecore(&big, &["pack", kind])));
        row(
            &format!("`icecore pack {kind}`, cold, 100 sessions"),
            short,
            &ratio(short, bare, "`icecore --version`"),
        );
        row(
            &format!("`icecore pack {kind}`, cold, 10,000 sessions, 1,000,000 messages"),
            long,
            &ratio(long, short, "100 sessions"),
        );
    }
    let today: Vec<Summary> = {
        let vault = Vault::open(&big).unwrap();
        let day = |summary: Summary, n: u32| Summary {
            period: Period::Session { day: date(2026, 2, 13), number: n },
            ..summary
        };
        let sessions = block_on(vault.summaries(&SummaryQuery::for_tier(Tier::Session))).unwrap();
        (1..).zip(sessions).map(|(n, summary)| day(summary, n)).collect()
    };
    let some = UploadInput { today: today[..10].to_vec(), ..UploadInput::default() };
    let all = UploadInput { today, ..UploadInput::default() };
    let few = time(9, || drop(upload::upload_pack(date(2026, 2, 13), &some, 35_840)));
    let many = time(9, || drop(upload::upload_pack(date(2026, 2, 13), &all, 35_840)));
    row(
        "fitting 10,000 sessions of one day into a package, in process",
        many,
        &ratio(many, few, "10 sessions"),
    );
}

/// A year of twenty messages a day, summarized every night, without a model.
fn a_year(folder: &Path) {
    let vault = bare_vault(folder, "year");
    let first = date(2025, 1, 1);
    let start = Instant::now();
    let mut quarters = Vec::new();
    for n in 0..365 {
        let day = first.checked_add(i64::from(n).days()).unwrap();
        let lines = (0..20).map(|n| message(day, n / 10, n, 30));
        assert_eq!(import(&memory(&vault, hour(day, 20)), lines), 20);
        block_on(
            memory(&vault, hour(day.tomorrow().unwrap(), 3)).run_due_jobs(None, &|_, _, _| {}),
        )
        .unwrap();
        if n % 91 == 90 {
            quarters.push(start.elapsed() - quarters.iter().sum::<Duration>());
        }
    }
    let last = *quarters.last().unwrap();
    row(
        "a year of 20 messages a day, pressed every night, in process",
        start.elapsed(),
        &ratio(last, quarters[0], "(last quarter) the first quarter"),
    );
}

/// Bulk import, files and index together, and the index alone.
fn imports(folder: &Path) {
    const MANY: usize = 200_000;
    let lines = || {
        (0..MANY).map(|n| message(before(date(2026, 2, 13), n / 274), n % 274 / 100, n % 100, 20))
    };
    let text: Vec<String> = lines().collect();
    let plain = Instant::now();
    for (n, day) in text.chunks(274).enumerate() {
        let mut file = fs::File::create(folder.join(format!("{n}.jsonl"))).unwrap();
        file.write_all(day.join("\n").as_bytes()).unwrap();
        file.sync_data().unwrap();
    }
    let plain = plain.elapsed();
    let vault = bare_vault(folder, "import");
    let open = memory(&vault, hour(date(2026, 2, 13), 12));
    let start = Instant::now();
    let new = import(&open, text.into_iter());
    let took = start.elapsed();
    let per_second = |took: Duration| new as f64 / took.as_secs_f64();
    let against = format!(
        "{:.0} messages a second; {}",
        per_second(took),
        ratio(took, plain, "plain files, one a day, each flushed")
    );
    row(&format!("bulk import of {new} messages, files and index"), took, &against);
    let start = Instant::now();
    block_on(vault.rebuild(&|_, _| {})).unwrap();
    let rebuilt = start.elapsed();
    row(
        "the index of them made anew",
        rebuilt,
        &format!("{:.0} messages a second", per_second(rebuilt)),
    );
    let start = Instant::now();
    let again = import(&open, lines());
    let same = start.elapsed();
    assert_eq!(again, 0);
    row(
        "the same import again, nothing new",
        same,
        &format!("{:.0} messages a second", per_second(same)),
    );
}

/// The cost of the secret scanner: on prose, on text full of suspicious words, and on numbers.
fn gates(_: &Path) {
    let prose: String = (0..20_000).map(|n| message_text(n, 120) + "\n").collect();
    let telling =
        "the token budget is 2000, password: required, key: value2, see https://a.example/b?c=d\n"
            .repeat(100_000);
    let numbers = "{\"ts\":\"2026-02-13T09:30:00.123456Z\",\"id\":1700000000000001,\"n\":[4111,1111,1111,1112]}\n".repeat(100_000);
    for (what, text) in [("prose", prose), ("telling words", telling), ("numbers", numbers)] {
        let copied = time(11, || drop(std::hint::black_box(text.clone())));
        let took = time(11, || {
            drop(std::hint::black_box(icecore_domain::secrets::redact(
                &text,
                &icecore_domain::secrets::MarkerKey::new([7; 32]),
            )))
        });
        let speed = text.len() as f64 / 1e6 / took.as_secs_f64();
        row(
            &format!("{:.0} MB of {what} looked through for secrets", text.len() as f64 / 1e6),
            took,
            &format!("{speed:.0} MB/s; {}", ratio(took, copied, "a copy")),
        );
    }
}

/// The cost of one nightly run after a day with three sessions, at one, ten and a hundred times the
/// history.
fn nights(folder: &Path) {
    let last = date(2026, 2, 10);
    let mut first = None;
    for days in [10, 100, 1_000] {
        let vault = bare_vault(folder, &format!("{days}-days"));
        let lines = (0..days)
            .rev()
            .flat_map(|back| (0..15).map(move |n| message(before(last, back), n / 5, n, 30)));
        import(&memory(&vault, hour(last, 20)), lines);
        let start = Instant::now();
        block_on(
            memory(&vault, hour(last.tomorrow().unwrap(), 3)).run_due_jobs(None, &|_, _, _| {}),
        )
        .unwrap();
        let building = start.elapsed();
        let mut times = Vec::new();
        for n in 1..=5 {
            let day = last.checked_add(i64::from(n).days()).unwrap();
            import(&memory(&vault, hour(day, 20)), (0..15).map(|n| message(day, n / 5, n, 30)));
            let start = Instant::now();
            let ran = block_on(
                memory(&vault, hour(day.tomorrow().unwrap(), 3)).run_due_jobs(None, &|_, _, _| {}),
            )
            .unwrap();
            times.push(start.elapsed());
            assert!(ran.rolled.summaries.len() >= 4, "{:?}", ran.rolled.summaries);
        }
        let took = median(times);
        let against = ratio(took, *first.get_or_insert(took), "10 days");
        let all =
            format!("{against}; pressing all of it at once took {:.1} s", building.as_secs_f64());
        row(&format!("one night after {days} days of three sessions"), took, &all);
    }
}

/// A clock that stands still but counts as the real one, so that everything takes its usual path.
struct StoppedClock(Timestamp);

impl Clock for StoppedClock {
    fn now(&self) -> Timestamp {
        self.0
    }
}

/// A large ledger: `many` events up to `last`, forty a day, few of them permanent, most promises
/// fulfilled.
fn ledger_text(many: usize, last: Date) -> String {
    let mut text = String::new();
    let mut numbers: HashMap<Date, u32> = HashMap::new();
    for n in 0..many {
        let day = before(last, (many - 1 - n) / 40);
        let ts =
            Moment::parse(&format!("{day}T10:{:02}:{:02}+00:00", n % 40, n % 60)).unwrap().moment;
        let kind = [
            EventType::Fact,
            EventType::Fact,
            EventType::Decision,
            EventType::Commitment,
            EventType::Preference,
            EventType::Fact,
            EventType::Relationship,
        ][n % 7];
        let priority = match n % 100 {
            0 if n % 5_000 == 0 => Priority::P0,
            0..20 => Priority::P1,
            20..80 => Priority::P2,
            _ => Priority::P3,
        };
        let mut draft = EventDraft::new(
            ts,
            kind,
            priority,
            format!("{} number {n} of the harbour office", message_text(n, 6)),
        );
        draft.entity = Some(format!("thing_{}", n % 400));
        draft.tags = vec![format!("tag{}", n % 30)];
        if kind == EventType::Commitment && n % 500 != 3 {
            draft.status = Some(LoopStatus::Closed);
        }
        let number = numbers.entry(day).or_default();
        *number += 1;
        text.push_str(&line::format_line(&draft.with_id(EventId::new(day, *number))));
    }
    text
}

/// The recall pack and a nightly run with fifty new events, over a short and over a very long
/// ledger.
fn recall(folder: &Path) {
    let today = Timestamp::now().in_tz("UTC").unwrap().date();
    let bare = {
        let root = folder.join("empty");
        run(icecore(&root, &["init", "--tz", "UTC"]).arg("-q"));
        time(30, || run(&mut icecore(&root, &["pack", "recall"])))
    };
    for many in [1_000, 100_000] {
        let root = folder.join(format!("recall-{many}"));
        run(icecore(&root, &["init", "--tz", "UTC"]).arg("-q"));
        fs::write(root.join("memory/ledger.jsonl"), ledger_text(many, today)).unwrap();
        run(&mut icecore(&root, &["vault", "reindex"]));
        let took = time(30, || run(&mut icecore(&root, &["pack", "recall"])));
        row(
            &format!("`icecore pack recall`, cold, {many} events"),
            took,
            &ratio(took, bare, "an empty ledger"),
        );
        let now = format!("{}T12:00:00Z", before(today, 40));
        let took = time(5, || run(&mut icecore(&root, &["pack", "recall", "--now", &now])));
        row(&format!("`icecore pack recall` as of forty days ago, {many} events"), took, "");
    }
}

/// Nightly runs over a short and over a very long ledger, alternating, so that other load on the
/// machine affects both.
fn nights_in_turn(folder: &Path) {
    const NIGHTS: i32 = 15;
    let last = date(2026, 2, 10);
    let sizes = [1_000, 100_000].map(|many| {
        let root = folder.join(format!("night-{many}"));
        let vault = Arc::new(Vault::create(&root, "format = 1\nzone = \"UTC\"\n").unwrap());
        fs::write(root.join("memory/ledger.jsonl"), ledger_text(many, last)).unwrap();
        let first = night(&vault, last);
        (many, vault, first)
    });
    let mut times = sizes.each_ref().map(|_| Vec::new());
    let mut spent = [0.0; 2];
    let processor = || database::seconds(&[std::process::id()]);
    for n in 1..=NIGHTS {
        let day = last.checked_add(n.days()).unwrap();
        let ts = Moment::parse(&format!("{day}T10:00:00+00:00")).unwrap().moment;
        for (((_, vault, _), times), spent) in sizes.iter().zip(&mut times).zip(&mut spent) {
            let drafts = (0..50).map(|at| EventDraft {
                entity: Some(format!("thing_{at}")),
                ..EventDraft::new(
                    ts,
                    EventType::Fact,
                    Priority::P2,
                    format!("{} on the day {n}, {at}", message_text(at, 6)),
                )
            });
            block_on(vault.append(drafts.collect(), None)).unwrap();
            // A day's events are hours old at night. Within the same second git would read every
            // new file once more.
            std::thread::sleep(Duration::from_millis(1_100));
            let before = processor();
            times.push(night(vault, day));
            *spent += processor() - before;
        }
    }
    let mut small = None;
    for (((many, _, first), times), spent) in sizes.iter().zip(times).zip(spent) {
        let all: Vec<String> =
            times.iter().map(|took| format!("{:.0}", took.as_secs_f64() * 1e3)).collect();
        let took = median(times);
        let against = ratio(took, *small.get_or_insert(took), "1,000 events");
        let spent = spent * 1e3 / f64::from(NIGHTS);
        let told = format!(
            "{against}; {spent:.0} ms of processor; all: {}; the first night took {:.1} s",
            all.join(" "),
            first.as_secs_f64()
        );
        row(&format!("a night with 50 new events, {many} in the ledger"), took, &told);
    }
}

/// The duration of the nightly run after a day.
fn night(vault: &Arc<Vault>, day: Date) -> Duration {
    let clock = Box::new(StoppedClock(hour(day.tomorrow().unwrap(), 3)));
    let memory = block_on(Memory::open(vault.clone(), vault.clone(), clock)).unwrap();
    let start = Instant::now();
    block_on(memory.run_due_jobs(None, &|_, _, _| {})).unwrap();
    start.elapsed()
}

/// A word of an artificial language; lower numbers are more frequent.
fn made_word(number: usize) -> String {
    const SOUNDS: &[&str] = &[
        "ba", "ke", "li", "mo", "nu", "ra", "se", "ti", "vo", "zu", "pa", "de", "fi", "go", "hu",
        "ja",
    ];
    let mut word = String::new();
    let mut rest = number + 40;
    while rest > 0 {
        word.push_str(SOUNDS[rest % SOUNDS.len()]);
        rest /= SOUNDS.len();
    }
    word
}

/// Pseudo-random numbers, the same in every run.
struct SeededRandom(u64);

impl SeededRandom {
    fn next(&mut self) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    /// A word as in a language: a few hundred words make up half of the text, the others are many
    /// thousands.
    fn word(&mut self) -> String {
        let share = (self.next() % 1_000_000) as f64 / 1e6;
        made_word((60_000_f64.powf(share) - 1.0) as usize)
    }
}

/// A vault of so many messages in sessions of twenty, a hundred sessions a day at most.
fn talkative(folder: &Path, many: usize) -> Arc<Vault> {
    let vault = bare_vault(folder, &format!("search-{many}"));
    let last = date(2026, 2, 13);
    let a_day = (many / 730).max(40);
    let mut chance = SeededRandom(7);
    for (back, from) in (0..many).step_by(a_day).enumerate() {
        let day = before(last, back);
        let mut text = String::new();
        for n in from..(from + a_day).min(many) {
            let words: Vec<String> = (0..8 + chance.next() % 40).map(|_| chance.word()).collect();
            let role = if n % 2 == 0 { "user" } else { "assistant" };
            let seconds = (n - from) * 60 % 80_000;
            let ts = format!(
                "{day}T{:02}:{:02}:{:02}+00:00",
                seconds / 3_600,
                seconds / 60 % 60,
                seconds % 60
            );
            text.push_str(&format!(
                "{{\"ts\":\"{ts}\",\"conversation\":\"work\",\"session\":\"{day}-{}\",\"id\":\"m{n}\",\"role\":\"{role}\",\"text\":\"{}\",\"captured\":\"{ts}\"}}\n",
                (n - from) / 20,
                words.join(" ")
            ));
        }
        let place = vault.root().join(format!("memory/messages/{day}.jsonl"));
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        fs::write(place, text).unwrap();
    }
    vault
}

/// Gives every passage a vector: comparing a random one costs the same as a real one.
fn vectors_by_chance(vault: &Vault, many: usize) {
    let waiting = block_on(vault.passages_without_vector(many)).unwrap();
    for batch in waiting.chunks(10_000) {
        let vectors: Vec<(u32, PackedVector)> = batch
            .iter()
            .map(|&number| {
                let mut chance = SeededRandom(u64::from(number));
                (
                    number,
                    vector::pack_vector(&std::array::from_fn(|_| {
                        (chance.next() % 2_001) as f32 / 1_000.0 - 1.0
                    })),
                )
            })
            .collect();
        block_on(vault.store_vectors(&vectors)).unwrap();
    }
}

/// The folder of the tests' embedding model.
fn model_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .unwrap()
        .join("target/model-venv/minilm")
}

/// Search over small and large histories: indexing, questions in a warm process with and without
/// vectors, and one from the shell.
fn searches(folder: &Path) {
    let model = MiniLm::load(&model_folder()).expect("tests/model/install brings the model");
    let query = time(50, || {
        drop(model.embed(&["where did we put the spare key of the cellar door?"]).unwrap())
    });
    row("the vector of a question of eleven words", query, "");
    for many in [10_000, 100_000, 1_000_000] {
        let vault = talkative(folder, many);
        let open = memory(&vault, hour(date(2026, 2, 13), 23));
        let start = Instant::now();
        block_on(open.rebuild_passages(&|_, _| {})).unwrap();
        let taken = start.elapsed();
        let bytes = fs::metadata(vault.root().join(".icecore/search.db")).unwrap().len()
            + fs::metadata(vault.root().join(".icecore/search.db-wal"))
                .map_or(0, |found| found.len());
        let per_second = many as f64 / taken.as_secs_f64();
        row(
            &format!("{many} messages taken in"),
            taken,
            &format!(
                "{per_second:.0} messages a second, {} bytes of index a message",
                bytes / many as u64
            ),
        );
        let mut chance = SeededRandom(99);
        let questions: Vec<SearchRequest> = (0..200)
            .map(|_| SearchRequest {
                text: (0..6).map(|_| chance.word()).collect::<Vec<_>>().join(" "),
                limit: 10,
                ..SearchRequest::default()
            })
            .collect();
        let asked = |finder: &Searcher<'_>, what: &str| {
            let mut times: Vec<Duration> = questions
                .iter()
                .map(|looking| {
                    let start = Instant::now();
                    block_on(finder.search(looking)).unwrap();
                    start.elapsed()
                })
                .collect();
            times.sort();
            row(
                &format!("a question of six words, warm, {what}, {many} messages, p50"),
                times[times.len() / 2],
                &format!("p95 {:.2} ms", times[times.len() * 95 / 100].as_secs_f64() * 1e3),
            );
        };
        let finder = block_on(open.open_searcher(None, &|_, _| {})).unwrap();
        asked(&finder, "words");
        vectors_by_chance(&vault, many);
        let finder = block_on(open.open_searcher(Some(&model), &|_, _| {})).unwrap();
        asked(&finder, "vectors");
        let cold = time(20, || {
            run(&mut icecore(vault.root(), &["search", "--words", &questions[0].text]))
        });
        row(&format!("`icecore search`, cold, words, {many} messages"), cold, "");
        let with = |command: &mut Command| run(command.env("ICECORE_MODEL_DIR", model_folder()));
        let cold = time(20, || with(&mut icecore(vault.root(), &["search", &questions[0].text])));
        row(&format!("`icecore search`, cold, vectors, {many} messages"), cold, "");
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let peak = status.lines().find(|line| line.starts_with("VmHWM")).unwrap_or_default();
        println!(
            "| memory at most so far, {many} messages | {} | |",
            peak.trim_start_matches("VmHWM:").trim()
        );
    }
}
