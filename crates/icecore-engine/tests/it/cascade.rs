//! Rollups, day by day: a run that is stopped anywhere ends like an undisturbed one, and a whole
//! year keeps all invariants.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use icecore_domain::calendar::{Moment, Zone};
use icecore_domain::cascade::coverage;
use icecore_domain::event::{Act, EventType, Origin, Priority};
use icecore_domain::forget::Scrub;
use icecore_domain::layout::DocPath;
use icecore_domain::record::{IncomingMessage, Role};
use icecore_domain::summary::{Importance, Period, SummaryHead, SummaryQuery, Tier};
use icecore_engine::clock::FixedClock;
use icecore_engine::{
    CaptureDefaults, Error, Memory, PackPreamble, RememberRequest, ReviewDecision, RollupRequest,
};
use icecore_store::prelude::*;
use icecore_store::testing::FailingStore;
use icecore_store::vault::Vault;
use icecore_store::{Error as StoreError, ErrorKind as StoreErrorKind, RewriteReport, Snapshot};
use jiff::civil::{Date, Time, date};
use jiff::{Timestamp, ToSpan};
use pollster::block_on;
use tempfile::TempDir;

/// No git: nightly snapshots are not what is tested here.
pub(crate) struct NoHistory;

impl MachineMerge for NoHistory {}

#[async_trait]
impl SnapshotStore for NoHistory {
    async fn check_available(&self) -> Result<(), StoreError> {
        Err(StoreError::no_snapshots("there is none here".into()))
    }

    async fn create_snapshot(&self, _: &str, _: Timestamp) -> Result<Option<Snapshot>, StoreError> {
        Ok(None)
    }

    async fn snapshots(&self, _: usize) -> Result<Vec<Snapshot>, StoreError> {
        Ok(Vec::new())
    }

    async fn changes_since(&self, _: &str) -> Result<Vec<(DocPath, Option<Vec<u8>>)>, StoreError> {
        Ok(Vec::new())
    }

    async fn count_containing(&self, _: &Scrub) -> Result<(usize, usize), StoreError> {
        Ok((0, 0))
    }

    async fn rewrite_snapshots(&self, _: &Scrub) -> Result<RewriteReport, StoreError> {
        Ok(RewriteReport::default())
    }

    async fn repair(&self) -> Result<Vec<String>, StoreError> {
        Ok(Vec::new())
    }
}

/// A vault in a time zone.
pub(crate) struct ZonedVault {
    _folder: TempDir,
    pub(crate) root: PathBuf,
    zone: Zone,
}

impl ZonedVault {
    pub(crate) fn new(zone: &str) -> Self {
        // Flushing is not tested here, and a year has many writes.
        let memory = std::path::Path::new("/dev/shm");
        let folder = if memory.is_dir() {
            TempDir::new_in(memory).unwrap()
        } else {
            TempDir::new().unwrap()
        };
        let root = folder.path().join("vault");
        Vault::create(&root, &format!("zone = \"{zone}\"\n")).unwrap();
        Self { _folder: folder, root, zone: Zone::from_name(zone).unwrap() }
    }

    pub(crate) fn moment(&self, day: Date, hour: i8, minute: i8) -> Moment {
        self.zone.moment(self.zone.instant_at(day, Time::constant(hour, minute, 0, 0)))
    }

    pub(crate) fn open(&self, store: Arc<dyn Store>, now: Moment) -> Memory {
        block_on(Memory::open(store, Arc::new(NoHistory), Box::new(FixedClock(now.timestamp()))))
            .unwrap()
    }

    pub(crate) fn at(&self, now: Moment) -> Memory {
        self.open(Arc::new(Vault::open(&self.root).unwrap()), now)
    }

    pub(crate) fn stopping(&self, now: Moment, writes: usize) -> Memory {
        self.open(Arc::new(FailingStore::new(Vault::open(&self.root).unwrap(), writes)), now)
    }

    pub(crate) fn read(&self, path: &str) -> String {
        fs::read_to_string(self.root.join(path)).unwrap_or_default()
    }

    pub(crate) fn files(&self) -> Vec<(String, String)> {
        let mut found = Vec::new();
        crate::collect(&self.root, &self.root, &mut found);
        found.sort();
        found
    }
}

pub(crate) fn night(memory: &Memory) -> Result<icecore_engine::JobsReport, Error> {
    block_on(memory.run_due_jobs(None, &|_, _, _| {}))
}

pub(crate) fn message(
    place: &ZonedVault,
    day: Date,
    hour: i8,
    session: &str,
    role: Role,
    text: &str,
) -> IncomingMessage {
    IncomingMessage {
        ts: Some(place.moment(day, hour, 5)),
        conversation: Some("work".into()),
        session: Some(session.into()),
        role: Some(role),
        text: text.into(),
        ..IncomingMessage::default()
    }
}

const TOPICS: [&str; 7] = [
    "the shop",
    "the login",
    "the garden plan",
    "the talk",
    "the invoice",
    "the search page",
    "the backup",
];
const THINGS: [&str; 5] =
    ["Postgres", "the payment service", "the old server", "the mail queue", "the image cache"];

/// Adds the `n`-th day: the same on every run.
fn live(place: &ZonedVault, memory: &Memory, day: Date, n: usize) {
    let (topic, thing) = (TOPICS[n % 7], THINGS[n % 5]);
    let mut said = vec![
        message(
            place,
            day,
            9,
            "morning",
            Role::User,
            &format!("Today we work on {topic}; {thing} needs attention first."),
        ),
        message(
            place,
            day,
            9,
            "morning",
            Role::Assistant,
            &format!("The plan for {topic}: check {thing}, then write {} tests.", n % 9 + 2),
        ),
        message(
            place,
            day,
            10,
            "morning",
            Role::User,
            &format!(
                "Fixed the error in {thing} that broke {topic}; {} requests failed.",
                n * 3 + 1
            ),
        ),
        message(place, day, 15, "afternoon", Role::User, "ok thanks"),
        message(
            place,
            day,
            15,
            "afternoon",
            Role::Assistant,
            &format!("Next step for {topic} is the review on day {}.", n + 2),
        ),
    ];
    if n.is_multiple_of(6) {
        said.push(message(
            place,
            day,
            16,
            "afternoon",
            Role::User,
            &format!("Decision: {topic} moves to {thing}, because it is simpler."),
        ));
    }
    if n.is_multiple_of(17)
        && let Ok(before) = day.checked_sub(3.days())
    {
        // A machine was offline: a record of an earlier day arrives.
        said.push(message(
            place,
            before,
            11,
            "late",
            Role::User,
            &format!("Late note about {topic}: {thing} was restarted."),
        ));
    }
    if n.is_multiple_of(29) {
        // Just before midnight.
        said.push(IncomingMessage {
            ts: Some(place.moment(day, 23, 58)),
            ..message(place, day, 23, "evening", Role::User, &format!("Still awake for {topic}."))
        });
    }
    let taken = block_on(memory.add_messages(said, &CaptureDefaults::default())).unwrap();
    assert!(taken.complaints.is_empty());
    if n % 4 == 1 {
        block_on(memory.save_state(
            &format!("**Current Task**: {topic}\n- [ ] {thing}, day {n}"),
            Some("auto-save"),
            Origin::Assistant,
        ))
        .unwrap();
    }
    if n % 10 == 3 {
        let said = RememberRequest {
            text: format!("Ship {topic} before {thing}, number {n}"),
            kind: Some(EventType::Decision),
            priority: Some(Priority::P1),
            ..RememberRequest::default()
        };
        let found = block_on(memory.store().events(&icecore_domain::ledger::query::EventQuery {
            text: Some(said.text.clone()),
            ..Default::default()
        }))
        .unwrap();
        if found.entries.is_empty() {
            block_on(memory.remember(said)).unwrap();
        }
    }
    if n % 13 == 5 && !block_on(memory.list_importance_marks()).unwrap().contains_key(&day) {
        block_on(memory.set_importance(
            day,
            Some(if n.is_multiple_of(2) { Importance::Dull } else { Importance::Important }),
        ))
        .unwrap();
    }
}

/// The invariants of every day (P9, Y3 and the sizes).
fn check_day(place: &ZonedVault, memory: &Memory) {
    let mut files = Vec::new();
    for folder in ["daily", "weekly", "monthly", "yearly", "upload"]
        .map(|folder| place.root.join("primers").join(folder))
    {
        if folder.is_dir() {
            crate::collect(&place.root, &folder, &mut files);
        }
    }
    for (path, text) in files {
        let period = path.rsplit('/').next().unwrap().trim_end_matches(".md").parse::<Period>();
        let most = match period.map(Period::tier) {
            Ok(Tier::Session | Tier::Day) => 8_192,
            Ok(Tier::Week) => 12_288,
            Ok(Tier::Month | Tier::Year) => 15_360,
            Err(_) => 35_840,
        };
        assert!(text.len() <= most, "{path} has {} bytes", text.len());
        assert!(
            icecore_domain::sanitize::ornament_complaints(&text).is_empty()
                || path.ends_with("UPLOAD_PACKAGE.md"),
            "{path} is not plain"
        );
    }
    let upload = block_on(memory.assemble_upload(None, None)).unwrap();
    assert!(upload.bytes <= 35_840);
    let pyramid = block_on(memory.assemble_pyramid(None, None, &PackPreamble::default())).unwrap();
    assert!(pyramid.tokens <= 20_000, "{}", pyramid.tokens);
    let known = block_on(memory.planning_input(false)).unwrap();
    let heads: Vec<SummaryHead> = known.heads.all().cloned().collect();
    let wrong: Vec<_> = coverage::check_coverage(&known, &heads)
        .into_iter()
        .filter(|finding| finding.fails)
        .collect();
    assert!(wrong.is_empty(), "{wrong:?}");
}

/// A small generator, so that crashes are the same on every run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

/// A year from the first of October, with both clock changes, a turn of the year and a 53rd week.
fn year(zone: &str, crashes: bool, thorough: bool) -> ZonedVault {
    let place = ZonedVault::new(zone);
    let first = date(2026, 10, 1);
    let mut dice = Dice(7);
    for n in 0..365_usize {
        let day = first.checked_add(i32::try_from(n).unwrap().days()).unwrap();
        live(&place, &place.at(place.moment(day, 20, 0)), day, n);
        // The following night, and on Sundays and on the first of the month the evening too.
        let mut times = vec![];
        if day.weekday() == jiff::civil::Weekday::Sunday || day.day() == 1 {
            times.push(place.moment(day, 22, 45));
        }
        let next = day.tomorrow().unwrap();
        times.push(place.moment(next, 3, 0));
        for time in times {
            if crashes && dice.roll(3) == 0 {
                let writes = usize::try_from(dice.roll(14)).unwrap();
                match night(&place.stopping(time, writes)) {
                    Ok(_) | Err(Error::Store(StoreError { kind: StoreErrorKind::Stopped, .. })) => {
                    }
                    Err(other) => panic!("{day}: {other}"),
                }
            }
            night(&place.at(time)).unwrap();
            if thorough && n % 7 == 2 {
                // A second run changes nothing (P9).
                let before = place.files();
                let again = night(&place.at(time)).unwrap();
                assert!(again.rolled.summaries.is_empty(), "{day}: {:?}", again.rolled.summaries);
                assert_eq!(place.files(), before, "{day}");
            }
        }
        if thorough {
            check_day(&place, &place.at(place.moment(next, 8, 0)));
        }
    }
    place
}

fn compare(zone: &str) {
    let (whole, crashed) = std::thread::scope(|scope| {
        let whole = scope.spawn(|| year(zone, false, true));
        let crashed = scope.spawn(|| year(zone, true, false));
        (whole.join().unwrap(), crashed.join().unwrap())
    });
    let (one, other) = (whole.files(), crashed.files());
    for ((path, text), (other_path, other_text)) in one.iter().zip(&other) {
        assert_eq!((path, text), (other_path, other_text), "{zone}");
    }
    assert_eq!(one.len(), other.len());
    // The year was complete.
    let count = |tier| {
        block_on(
            whole
                .at(whole.moment(date(2027, 10, 3), 8, 0))
                .store()
                .summary_heads(&SummaryQuery::for_tier(tier)),
        )
        .unwrap()
        .0
        .len()
    };
    assert!(
        count(Tier::Day) >= 365
            && count(Tier::Week) >= 52
            && count(Tier::Month) >= 11
            && count(Tier::Year) == 1,
        "{}",
        count(Tier::Month)
    );
    assert!(
        one.iter().any(|(path, _)| path == "primers/weekly/2026-W53.md"
            || path.ends_with("2026-Q4/2026-W53.md"))
    );
    assert!(one.iter().any(|(path, _)| path == "memory/summaries/2026.md"));
}

// P9 P12 Y3 Y4
#[test]
fn a_year_in_berlin_with_crashes_ends_like_one_without() {
    compare("Europe/Berlin");
}

// P9 P12 Y3 Y4
#[test]
fn a_year_in_los_angeles_with_crashes_ends_like_one_without() {
    compare("America/Los_Angeles");
}

// P9 P12 Y3 Y4
#[test]
fn a_year_on_lord_howe_island_with_crashes_ends_like_one_without() {
    compare("Australia/Lord_Howe");
}

/// Adds some weeks, up to the evening before a run that summarizes every tier.
fn add_history(place: &ZonedVault) {
    for n in 0..40 {
        let day = date(2026, 1, 20).checked_add(i32::try_from(n).unwrap().days()).unwrap();
        live(place, &place.at(place.moment(day, 20, 0)), day, n);
        if n == 12 {
            fs::write(
                place.root.join(format!("memory/{day}.md")),
                "# Log\n- Met Client X; they want two more weeks\n",
            )
            .unwrap();
        }
    }
    // One earlier run, so that there is something to archive.
    night(&place.at(place.moment(date(2026, 2, 10), 3, 0))).unwrap();
}

// P9 K3
#[test]
fn a_run_stopped_at_any_write_is_finished_by_the_next() {
    let now = |place: &ZonedVault| place.moment(date(2026, 3, 5), 3, 0);
    let whole = ZonedVault::new("Europe/Berlin");
    add_history(&whole);
    night(&whole.at(now(&whole))).unwrap();
    let mut writes = 0;
    loop {
        let place = ZonedVault::new("Europe/Berlin");
        add_history(&place);
        let stopped = match night(&place.stopping(now(&place), writes)) {
            Ok(_) => false,
            Err(Error::Store(StoreError { kind: StoreErrorKind::Stopped, .. })) => true,
            Err(other) => panic!("stopped after {writes}: {other}"),
        };
        night(&place.at(now(&place))).unwrap();
        let (one, other) = (whole.files(), place.files());
        for ((path, text), (other_path, other_text)) in one.iter().zip(&other) {
            assert_eq!((path, text), (other_path, other_text), "stopped after {writes}");
        }
        assert_eq!(one.len(), other.len());
        if !stopped {
            break;
        }
        // Every write at first, then in steps: the views of many sessions are written in the same
        // way.
        writes += if writes < 12 { 1 } else { 7 };
    }
    assert!(writes > 100, "{writes}");
}

fn berlin() -> ZonedVault {
    ZonedVault::new("Europe/Berlin")
}

// P6
#[test]
fn primers_go_to_the_archive_of_their_own_quarter_and_nothing_is_deleted() {
    let place = berlin();
    add_history(&place);
    night(&place.at(place.moment(date(2026, 3, 5), 3, 0))).unwrap();
    assert!(place.root.join("primers/archive/2026-Q1/2026-01-20_session_01.md").exists());
    assert!(!place.root.join("primers/daily/2026-01-20_session_01.md").exists());
    assert!(place.root.join("primers/daily/2026-02-20.md").exists());
    assert!(place.root.join("primers/monthly/2026-02.md").exists());
    night(&place.at(place.moment(date(2026, 6, 5), 3, 0))).unwrap();
    assert!(place.root.join("primers/archive/2026-Q1/2026-W05.md").exists());
    // A late record of an archived day adds a new version where the file is now.
    let late = message(
        &place,
        date(2026, 1, 21),
        12,
        "morning",
        Role::User,
        "Decision: the harbour office opens in May, says Mirabel.",
    );
    block_on(
        place
            .at(place.moment(date(2026, 6, 6), 9, 0))
            .add_messages(vec![late], &CaptureDefaults::default()),
    )
    .unwrap();
    let ran = night(&place.at(place.moment(date(2026, 6, 7), 3, 0))).unwrap();
    let pressed: Vec<String> =
        ran.rolled.summaries.iter().map(|node| node.period.to_string()).collect();
    assert_eq!(pressed, ["2026-01-21_session_01", "2026-01-21", "2026-W04", "2026-01"]);
    assert!(place.read("primers/archive/2026-Q1/2026-01-21_session_01.md").contains("Mirabel"));
    assert!(place.read("primers/monthly/2026-01.md").contains("Mirabel"));
}

// P5
#[test]
fn a_primer_edited_by_hand_is_its_next_version_and_is_not_written_over() {
    let place = berlin();
    add_history(&place);
    let now = place.moment(date(2026, 3, 5), 9, 0);
    night(&place.at(now)).unwrap();
    let path = place.root.join("primers/daily/2026-02-20.md");
    let text = fs::read_to_string(&path).unwrap();
    let (front, _) = text.split_once("\n# ").unwrap();
    fs::write(
        &path,
        format!(
            "{front}\n# Friday 2026-02-20\n\nMy own words about the harbour.\n\n- kept by me\n"
        ),
    )
    .unwrap();
    let ran = night(&place.at(now)).unwrap();
    assert_eq!(ran.rolled.files.adopted, [Period::Day(date(2026, 2, 20))]);
    let newest = block_on(place.at(now).find_newest_summary(Period::Day(date(2026, 2, 20))))
        .unwrap()
        .unwrap();
    assert_eq!(
        (newest.headline.as_str(), newest.version, newest.maker.to_string().as_str()),
        ("My own words about the harbour.", 2, "hand")
    );
    // Its sources change: the user is asked, and nothing is overwritten.
    let late = message(
        &place,
        date(2026, 2, 20),
        12,
        "morning",
        Role::User,
        "One more thing about the mail queue.",
    );
    block_on(place.at(now).add_messages(vec![late], &CaptureDefaults::default())).unwrap();
    let ran = night(&place.at(now)).unwrap();
    assert_eq!(
        ran.rolled.flagged.iter().map(|one| one.period).collect::<Vec<_>>(),
        [Period::Day(date(2026, 2, 20))]
    );
    assert!(place.read("primers/daily/2026-02-20.md").contains("My own words"));
    assert!(night(&place.at(now)).unwrap().rolled.flagged.is_empty(), "asked once");
    assert_eq!(block_on(place.at(now).list_pending_reviews()).unwrap().len(), 1);
    block_on(place.at(now).settle_review(Period::Day(date(2026, 2, 20)), ReviewDecision::Retry))
        .unwrap();
    night(&place.at(now)).unwrap();
    assert!(!place.read("primers/daily/2026-02-20.md").contains("My own words"));
    // A missing or garbled file loses nothing.
    fs::remove_file(&path).unwrap();
    fs::write(place.root.join("primers/daily/2026-02-21.md"), "").unwrap();
    let ran = night(&place.at(now)).unwrap();
    assert_eq!(ran.rolled.files.restored, 2);
    assert!(
        path.exists() && place.read("primers/daily/2026-02-21.md").contains("period: 2026-02-21")
    );
}

#[test]
fn what_a_person_writes_in_a_review_or_a_primer_passes_the_gate() {
    let place = berlin();
    add_history(&place);
    let (now, day) = (place.moment(date(2026, 3, 5), 9, 0), Period::Day(date(2026, 2, 20)));
    night(&place.at(now)).unwrap();
    let path = place.root.join("primers/daily/2026-02-20.md");
    let text = fs::read_to_string(&path).unwrap();
    let (front, _) = text.split_once("\n# ").unwrap();
    fs::write(&path, format!("{front}\n# Friday 2026-02-20\n\nThe password is hunter2x, keep it.\n\n- password: hunter3x\n")).unwrap();
    night(&place.at(now)).unwrap();
    let late = message(
        &place,
        date(2026, 2, 20),
        12,
        "morning",
        Role::User,
        "One more thing about the mail queue.",
    );
    block_on(place.at(now).add_messages(vec![late], &CaptureDefaults::default())).unwrap();
    assert_eq!(night(&place.at(now)).unwrap().rolled.flagged.len(), 1);
    let edit =
        ReviewDecision::Edit("The password is hunter4x now.\n\n- password: hunter5x\n".into());
    let kept = block_on(place.at(now).settle_review(day, edit)).unwrap().unwrap();
    assert!(
        kept.headline.starts_with("The password is [secret:password:")
            && kept.body.contains("[secret:password:"),
        "{kept:?}"
    );
    for (name, text) in place.files() {
        assert!(
            !["hunter2x", "hunter3x", "hunter4x", "hunter5x"]
                .iter()
                .any(|word| text.contains(word)),
            "{name}: {text}"
        );
    }
}

// K1 K2 K3 K12
#[test]
fn states_stay_two_days_then_a_day_has_a_few_sentences_then_a_month() {
    let place = berlin();
    let save = |day: Date, hour: i8, minute: i8, text: &str| {
        block_on(place.at(place.moment(day, hour, minute)).save_state(
            text,
            Some("auto-save"),
            Origin::Assistant,
        ))
        .unwrap()
    };
    let first = date(2026, 2, 3);
    assert!(save(first, 9, 15, "Working on the cascade.").entered);
    assert!(!save(first, 9, 40, "Working on the cascade.").entered, "the same again");
    assert!(!save(first, 9, 20, "Now on the tests.").entered, "too soon");
    assert!(save(first, 9, 31, "The tests of the cascade are green.").entered);
    assert_eq!(
        place.read("memory/state/assistant-state.md"),
        "The tests of the cascade are green.\n"
    );
    assert_eq!(place.read("memory/snapshots/2026-02-03.jsonl").lines().count(), 4);
    // A person writes an entry by hand.
    let mut file = place.read("memory/summaries/24hr.md");
    file.push_str(
        "---\n### 2026-02-03 22:10 \u{2014} by hand\n\nThe heron came back to the pond.\n\n---\n",
    );
    fs::write(place.root.join("memory/summaries/24hr.md"), file).unwrap();
    night(&place.at(place.moment(date(2026, 2, 4), 3, 0))).unwrap();
    assert!(
        place.read("memory/summaries/24hr.md").contains("tests of the cascade"),
        "yesterday stays"
    );
    assert!(save(date(2026, 2, 4), 10, 0, "Another day.").entered);
    night(&place.at(place.moment(date(2026, 2, 5), 3, 0))).unwrap();
    night(&place.at(place.moment(date(2026, 2, 5), 5, 0))).unwrap();
    let day = place.read("memory/summaries/24hr.md");
    assert!(
        !day.contains("tests of the cascade")
            && !day.contains("heron")
            && day.contains("Another day."),
        "{day}"
    );
    assert!(
        place.read("memory/snapshots/2026-02-03.jsonl").contains("heron"),
        "what somebody else wrote is kept"
    );
    let month = place.read("memory/summaries/30day.md");
    assert!(month.contains("### 2026-02-03 (from 5 snapshots)"), "{month}");
    night(&place.at(place.moment(date(2026, 3, 20), 3, 0))).unwrap();
    assert!(place.read("memory/summaries/2026.md").contains("### February 2026"));
    assert!(!place.read("memory/summaries/30day.md").contains("2026-02-03"));
}

// Y10
#[test]
fn a_marked_day_is_summarized_accordingly() {
    let place = berlin();
    add_history(&place);
    let now = place.moment(date(2026, 3, 5), 3, 0);
    night(&place.at(now)).unwrap();
    let bytes = |day: &str| place.read(&format!("primers/daily/{day}.md")).len();
    let before = bytes("2026-02-25");
    block_on(place.at(now).set_importance(date(2026, 2, 25), Some(Importance::Dull))).unwrap();
    night(&place.at(now)).unwrap();
    assert!(
        bytes("2026-02-25") < before
            && place.read("primers/daily/2026-02-25.md").contains("importance: dull")
    );
    // An important day is not archived as early.
    block_on(place.at(now).set_importance(date(2026, 2, 25), Some(Importance::Important))).unwrap();
    night(&place.at(now)).unwrap();
    night(&place.at(place.moment(date(2026, 4, 10), 3, 0))).unwrap();
    assert!(bytes("2026-02-25") > 0 && bytes("2026-02-26") == 0);
}

// P7 Y2
#[test]
fn a_pack_of_a_past_day_has_the_same_bytes_whatever_came_later() {
    let place = berlin();
    add_history(&place);
    let then = place.moment(date(2026, 3, 5), 12, 0);
    night(&place.at(then)).unwrap();
    let packs = |memory: &Memory| {
        let upload = block_on(memory.assemble_upload(None, None)).unwrap().text;
        (
            upload,
            block_on(memory.assemble_pyramid(None, None, &PackPreamble::default())).unwrap().text,
        )
    };
    let before = packs(&place.at(then));
    for n in 45..60 {
        let day = date(2026, 1, 20).checked_add(n.days()).unwrap();
        live(&place, &place.at(place.moment(day, 20, 0)), day, usize::try_from(n).unwrap());
    }
    // Late records of that day, and of the week before.
    let late = [date(2026, 3, 5), date(2026, 2, 26)]
        .map(|day| message(&place, day, 10, "late", Role::User, "This came in only now."));
    block_on(
        place
            .at(place.moment(date(2026, 3, 25), 9, 0))
            .add_messages(late.to_vec(), &CaptureDefaults::default()),
    )
    .unwrap();
    night(&place.at(place.moment(date(2026, 4, 3), 3, 0))).unwrap();
    assert_eq!(packs(&place.at(then)), before);
}

// P7
#[test]
fn todays_sessions_are_in_the_package_before_they_are_summarized() {
    let place = berlin();
    let now = place.moment(date(2026, 2, 13), 9, 10);
    let said = vec![message(
        &place,
        date(2026, 2, 13),
        9,
        "x",
        Role::User,
        "Decision: the boat is painted green.",
    )];
    block_on(place.at(now).add_messages(said, &CaptureDefaults::default())).unwrap();
    let pack = block_on(place.at(now).assemble_upload(None, None)).unwrap();
    assert!(
        pack.text.contains("## Today Session 01") && pack.text.contains("painted green"),
        "{}",
        pack.text
    );
    assert!(
        night(&place.at(now)).unwrap().rolled.summaries.is_empty(),
        "the session is still going on"
    );
}

// Y1
#[test]
fn nothing_secret_and_nothing_of_our_own_is_captured() {
    let place = berlin();
    let now = place.moment(date(2026, 2, 13), 9, 30);
    let memory = place.at(now);
    let key = format!("{}_{}", "ghp", "0123456789abcdefABCDEF0123456789abcd");
    let pack =
        icecore_domain::capture_filter::wrap_block("upload", date(2026, 2, 13), "secret plans");
    let said = vec![
        IncomingMessage {
            parts: Some(format!("{{\"token\":\"{key}\"}}")),
            ..message(
                &place,
                date(2026, 2, 13),
                9,
                "x",
                Role::User,
                &format!("the key is {key}, use it"),
            )
        },
        message(
            &place,
            date(2026, 2, 13),
            9,
            "x",
            Role::User,
            &format!("look at this: {pack} and go on"),
        ),
        message(&place, date(2026, 2, 13), 9, "x", Role::Tool, &pack),
    ];
    let taken = block_on(memory.add_messages(said, &CaptureDefaults::default())).unwrap();
    assert_eq!((taken.new, taken.passed_over), (2, 1));
    let kept = place.read("memory/messages/2026-02-13.jsonl");
    assert!(
        !kept.contains(&key) && kept.contains("[secret:") && !kept.contains("secret plans"),
        "{kept}"
    );
    assert!(kept.contains("look at this:") && kept.contains("and go on"));
    assert_eq!(taken.secrets.values().sum::<usize>(), 2);
}

// P1 P8
#[test]
fn the_same_transcript_twice_is_one_session_and_a_grown_one_grows() {
    let place = berlin();
    let now = place.moment(date(2026, 2, 13), 9, 30);
    let text = "User: we paint the boat\nAssistant: green?\nUser: yes\nAssistant: ok\nUser: yes\n";
    let add = |text: &str, now| {
        block_on(place.at(now).import_session(
            text,
            "../../etc/pass wd",
            None,
            None,
            &CaptureDefaults::default(),
        ))
        .unwrap()
    };
    let first = add(text, now);
    assert_eq!((first.turns, first.capture.new, first.sessions.len()), (5, 5, 1));
    assert_eq!(add(text, now).capture.same, 5);
    let later = place.moment(date(2026, 2, 13), 11, 0);
    let grown = add(&format!("{text}Assistant: done\n"), later);
    assert_eq!((grown.capture.new, grown.capture.same), (1, 5));
    let wish = RollupRequest {
        tier: Some(Tier::Session),
        sessions: Some(grown.sessions),
        ..RollupRequest::default()
    };
    let rolled = block_on(place.at(later).run_rollup(&wish, None, &|_, _, _| {})).unwrap();
    assert_eq!(rolled.summaries[0].period.to_string(), "2026-02-13_session_01");
    assert!(place.root.join("primers/daily/2026-02-13_session_01.md").exists());
}

// P3 P5
#[test]
fn what_must_be_kept_is_in_every_tier() {
    let place = berlin();
    add_history(&place);
    let memory = place.at(place.moment(date(2026, 2, 18), 12, 0));
    let said = |text: &str, kind, priority| RememberRequest {
        text: text.into(),
        kind: Some(kind),
        priority: Some(priority),
        ..RememberRequest::default()
    };
    let rule = block_on(memory.remember(said(
        "Never paint the boat on Sundays",
        EventType::Constraint,
        Priority::P0,
    )))
    .unwrap()
    .event
    .id;
    let promise = block_on(memory.remember(said(
        "Send Client X the offer",
        EventType::Commitment,
        Priority::P2,
    )))
    .unwrap()
    .event
    .id;
    let done =
        block_on(memory.remember(said("Call the harbour", EventType::Commitment, Priority::P2)))
            .unwrap()
            .event
            .id;
    block_on(memory.append_act(Act::Close, vec![done], None, Origin::User, None)).unwrap();
    night(&place.at(place.moment(date(2026, 3, 5), 3, 0))).unwrap();
    for path in
        ["primers/daily/2026-02-18.md", "primers/weekly/2026-W08.md", "primers/monthly/2026-02.md"]
    {
        let text = place.read(path);
        assert!(
            text.contains(&rule.to_string()) && text.contains(&promise.to_string()),
            "{path}: {text}"
        );
        assert!(!text.contains(&done.to_string()), "{path}");
    }
}
