//! The fate of each kind of file.

use super::*;
use crate::calendar::Moment;
use crate::event::{EventType, Origin, Priority};
use crate::record::{RecordKind, Role};
use crate::summary::{Importance, SummaryCost};
use proptest::prelude::*;

const WORDS: &str = "Launch code seven-alpha";

fn scrub() -> Scrub {
    Scrub { needles: Needles::from_texts(&[WORDS]), ..Scrub::default() }
}

fn check(scrub: &Scrub, path: &str, text: &str, becomes: Option<&str>) {
    match (scrub.fate(path, text.as_bytes()), becomes) {
        (FileFate::Same, None) => {}
        (FileFate::Gone, Some("")) => {}
        (FileFate::Changed { bytes, lines }, Some(expected)) => {
            let changed = String::from_utf8(bytes.clone()).unwrap();
            assert_eq!(changed, expected, "{path}");
            assert!(lines > 0);
            assert_eq!(
                scrub.fate(path, &bytes),
                FileFate::Same,
                "{path}: forgetting twice does nothing"
            );
        }
        (fate, _) => panic!("{path}: {fate:?}, not {becomes:?}"),
    }
}

#[test]
fn lines_with_the_words_go_and_others_stay() {
    let scrub = scrub();
    check(&scrub, "memory/2026-02-13.md", "# Log\n\n- 09:30 tea\n", None);
    check(
        &scrub,
        "memory/2026-02-13.md",
        "- tea\n- the LAUNCH **code** seven alpha!\n- rest",
        Some("- tea\n[forgotten]\n- rest"),
    );
    // Words that span lines remove all of them and leave one mark.
    check(
        &scrub,
        "memory/2026-02-13.md",
        "a\nb launch\ncode\nseven-alpha c\nd\n",
        Some("a\n[forgotten]\nd\n"),
    );
    check(
        &scrub,
        "MEMORY.md",
        "## launch code seven alpha\ntext\n",
        Some("## [forgotten]\ntext\n"),
    );
    check(
        &scrub,
        "knowledge/x/y.md",
        "---\ntitle: Launch code seven alpha\nn: 1\n---\nbody\n",
        Some("---\ntitle: forgotten\nn: 1\n---\nbody\n"),
    );
    check(
        &scrub,
        "notes.txt",
        "one\r\nlaunch code seven alpha\r\nthree\r\n",
        Some("one\r\n[forgotten]\r\nthree\r\n"),
    );
    check(
        &scrub,
        "memory/marks.jsonl",
        "{\"a\":\"launch code seven alpha\"}\n{torn launch code seven alpha",
        Some("{\"a\":\"[forgotten]\"}\n[forgotten]"),
    );
    // Not in part, and not within other words.
    check(&scrub, "a.md", "launch code seven\nprelaunch code seven alphabet\n", None);
    // Settings are a person's to change.
    check(&scrub, layout::CONFIG, "# launch code seven alpha\n", None);
}

#[test]
fn files_that_are_called_after_it_go() {
    let scrub = scrub();
    check(&scrub, "knowledge/entities/launch-code-seven-alpha.md", "x", Some(""));
    check(&scrub, "memory/memories/20260213-launch-code-seven-alpha-is.md", "x", Some(""));
    check(&scrub, "conversations/a-1/artifacts/launch_code_seven_alpha/v1.py", "x", Some(""));
    check(&scrub, "conversations/launch-code-seven-alpha-1/conversation.json", "{}", None);
    check(&scrub, "recall/pack.md", "whatever", Some(""));
    check(&scrub, "memory/summaries/2026.md", "words before the first entry", None);
    check(&scrub, "memory/summaries/24hr.md", "whatever", None);
    check(&scrub, ".icecore/quarantine/x.jsonl.7.abc", "half of launch code seven alpha", Some(""));
}

fn moment() -> Moment {
    Moment::parse("2026-02-13T09:30:00+01:00").unwrap().moment
}

fn event(number: u32, content: &str) -> Event {
    let mut draft = EventDraft::new(moment(), EventType::Fact, Priority::P1, content);
    draft.entity = Some("apollo".into());
    draft.source = "memory/messages/2026-02-13.jsonl#m17".into();
    draft
        .with_extra_field("quote", &"his own words")
        .with_extra_field("said", &"2026-02-13")
        .with_id(EventId::new(moment().day(), number))
}

#[test]
fn an_event_keeps_when_and_loses_what() {
    let lines: Vec<String> = [
        event(1, "tea is green"),
        event(2, "The launch code: seven alpha"),
        event(3, "named by its id"),
    ]
    .iter()
    .map(line::format_line)
    .collect();
    let scrub = Scrub { events: BTreeSet::from([event(3, "").id]), ..scrub() };
    let FileFate::Changed { bytes, lines: 2 } =
        scrub.fate(layout::LEDGER, lines.concat().as_bytes())
    else {
        panic!("nothing changed")
    };
    let ledger = crate::ledger::Ledger::parse(&bytes, None);
    assert_eq!(ledger.unreadable_lines(), []);
    let told: Vec<(&str, Option<&str>)> = ledger
        .entries()
        .iter()
        .map(|entry| (entry.event.content.as_str(), entry.event.entity.as_deref()))
        .collect();
    assert_eq!(
        told,
        [("tea is green", Some("apollo")), (FORGOTTEN_MARK, None), (FORGOTTEN_MARK, None)]
    );
    assert_eq!(ledger.entries()[2].event.ts, moment());
    assert_eq!(ledger.entries()[2].event.extra_field::<String>("quote"), None);
    assert_eq!(
        ledger.entries()[2].event.extra_field::<String>("said").as_deref(),
        Some("2026-02-13")
    );
    assert_eq!(scrub.fate(layout::LEDGER, &bytes), FileFate::Same);
    // Lines that name the event are removed with it.
    check(
        &scrub,
        "knowledge/entities/apollo.md",
        "# Apollo\n\n- green [EVT-20260213-001]\n- seven [EVT-20260213-003]\n",
        Some("# Apollo\n\n- green [EVT-20260213-001]\n[forgotten]\n"),
    );
    check(&scrub, "memory/memories/x.md", "---\nevent: EVT-20260213-003\n---\nbody\n", Some(""));
}

fn record(id: &str, text: &str) -> Record {
    Record {
        ts: moment(),
        conversation: "c".into(),
        session: None,
        id: id.into(),
        role: Role::User,
        name: None,
        other_speaker: None,
        kind: RecordKind::Message,
        title: Some("t".into()),
        text: text.into(),
        parts: Some(r#"{"a":["launch code seven alpha",1]}"#.into()),
        origin: Origin::User,
        captured: moment(),
        extra: vec![("turn".into(), "3".into()), ("note".into(), "\"x\"".into())],
        withdrawn: false,
    }
}

#[test]
fn a_record_stays_readable_and_loses_its_words() {
    let path = "memory/messages/2026-02-13.jsonl";
    let (one, two) =
        (record("a", "tea\nlaunch code seven-alpha\nmore"), record("b", "all of this goes"));
    let scrub = Scrub { records: HashSet::from([two.key()]), ..scrub() };
    let FileFate::Changed { bytes, .. } =
        scrub.fate(path, [one.to_line(), two.to_line()].concat().as_bytes())
    else {
        panic!("nothing changed")
    };
    let (records, bad) = record::parse_file(&bytes);
    assert_eq!(bad.len(), 0);
    let parts = Some(r#"{"a":["[forgotten]",1]}"#.into());
    assert_eq!(records[0], Record { text: "tea\n[forgotten]\nmore".into(), parts, ..one.clone() });
    let extra = vec![("turn".into(), "3".into())];
    assert_eq!(
        records[1],
        Record { text: FORGOTTEN_MARK.into(), title: None, parts: None, extra, ..two.clone() }
    );
    assert_eq!(scrub.fate(path, &bytes), FileFate::Same);
    let gone = Scrub { conversations: BTreeSet::from(["c".into()]), ..scrub };
    assert_eq!(gone.fate(path, two.to_line().as_bytes()), FileFate::Gone);
}

#[test]
fn a_summary_goes_up_to_its_version() {
    let summary = |version: u32| Summary {
        period: Period::Day(moment().day()),
        version,
        session: None,
        start: moment(),
        end: moment(),
        headline: "a paraphrase".into(),
        body: "more".into(),
        messages: 1,
        states: 0,
        recorded: moment(),
        source: Hash::of(b"x"),
        log: None,
        sources: Vec::new(),
        maker: SummaryAuthor::Hand,
        provisional: false,
        importance: Importance::Ordinary,
        left_out: Vec::new(),
        cost: SummaryCost::default(),
        similar: None,
    };
    let scrub =
        Scrub { periods: BTreeMap::from([(Period::Day(moment().day()), 2)]), ..Scrub::default() };
    let text: String = (1..=3).map(|version| summary(version).to_line()).collect();
    let FileFate::Changed { bytes, lines: 2 } = scrub.fate(layout::SUMMARIES, text.as_bytes())
    else {
        panic!("nothing changed")
    };
    let read: Vec<Summary> = bytes
        .split(|byte| *byte == b'\n')
        .filter_map(|line| Summary::parse_line(line).ok())
        .collect();
    assert_eq!(
        read.iter().map(|summary| summary.headline.as_str()).collect::<Vec<_>>(),
        [FORGOTTEN_MARK, FORGOTTEN_MARK, "a paraphrase"]
    );
    assert!(read[1].provisional && read[1].source != summary(2).source && read[2] == summary(3));
    let place = Period::Day(moment().day()).path();
    check(&scrub, place.as_str(), &summary(2).to_markdown(), Some(""));
    check(&scrub, place.as_str(), &summary(3).to_markdown(), None);
}

// P13
#[test]
fn what_icecore_did_not_write_loses_forgotten_words_only() {
    let day = Period::Day(moment().day());
    let scrub = Scrub {
        periods: BTreeMap::from([(day, 9), ("2026-02-14".parse().unwrap(), 9)]),
        foreign_entries: BTreeSet::from([(day, "The yak came. Launch code: seven alpha.".into())]),
        ..scrub()
    };
    let place = day.path();
    check(&scrub, place.as_str(), "# Mine\n\nThe yak came.\n", None);
    check(
        &scrub,
        place.as_str(),
        "The yak came.\nLaunch code: seven alpha.\n",
        Some("The yak came.\n[forgotten]\n"),
    );
    let foreign = "---\n### 2026-02-13 (from 2 snapshots)\n\nThe yak came.\nLaunch code: seven alpha.\n\n---\n";
    let own = "---\n### 2026-02-14 (from 2 messages)\n\nA paraphrase.\n\n---\n";
    let other = "---\n### 2026-02-15 (from 2 messages)\n\nSomething else.\n\n---\n";
    let left = format!(
        "# My days\n\n{}{other}",
        foreign.replace("Launch code: seven alpha.", FORGOTTEN_MARK)
    );
    let run_again =
        Scrub { foreign_entries: BTreeSet::from([(day, FORGOTTEN_MARK.into())]), ..scrub.clone() };
    for scrub in [&scrub, &run_again] {
        let FileFate::Changed { bytes, .. } = scrub
            .fate(layout::LAST_MONTH, format!("# My days\n\n{foreign}{own}{other}").as_bytes())
        else {
            panic!("nothing changed")
        };
        assert_eq!(String::from_utf8(bytes).unwrap(), left);
    }
    assert_eq!(run_again.fate(layout::LAST_MONTH, left.as_bytes()), FileFate::Same);
    check(&scrub, layout::LAST_MONTH, own, Some(""));
    let version = |headline, body| {
        Summary {
            maker: SummaryAuthor::File,
            ..crate::packs::upload::tests::summary(day, headline, body)
        }
        .to_line()
    };
    let line = version("The yak came.", "Launch code: seven alpha.\nIt was hungry.");
    let FileFate::Changed { bytes, .. } = scrub.fate(layout::SUMMARIES, line.as_bytes()) else {
        panic!("nothing changed")
    };
    let read = Summary::parse_line(bytes.trim_ascii()).unwrap();
    assert_eq!(
        (read.headline.as_str(), read.body.as_str(), read.maker),
        ("The yak came.", "[forgotten]\nIt was hungry.", SummaryAuthor::File)
    );
    check(&scrub, layout::SUMMARIES, &version("The yak came.", ""), None);
}

#[test]
fn turns_and_what_was_learnt_in_them_go() {
    let scrub = Scrub {
        turns: BTreeMap::from([("conversations/c-1".into(), BTreeSet::from([2]))]),
        ..Scrub::default()
    };
    let log = "{\"turn\":1,\"ts\":\"2026-02-13T09:30:00+01:00\",\"user_summary\":\"a\",\"assistant_summary\":\"b\",\"state\":\"summarized\"}\n";
    let FileFate::Changed { bytes, lines: 1 } = scrub.fate(
        "conversations/c-1/turn-log.jsonl",
        [log, &log.replace(":1,", ":2,")].concat().as_bytes(),
    ) else {
        panic!("nothing changed")
    };
    let read = crate::converse::turn_log::parse_turn_log(&bytes);
    assert_eq!(read.turns[&1].user_summary, "a");
    assert_eq!(
        (
            read.turns[&2].user_summary.as_str(),
            crate::converse::turn_log::unsummarized_turns(&read, 2)
        ),
        (FORGOTTEN_MARK, vec![2])
    );
    check(&scrub, "conversations/c-1/base-truth.json", "{}", Some(""));
    check(&scrub, "conversations/c-2/base-truth.json", "{}", None);
    let events: String = [1u64, 2]
        .iter()
        .map(|turn| {
            line::format_line(
                &event(u32::try_from(*turn).unwrap(), "a fact")
                    .draft
                    .with_extra_field(TURN_FIELD, turn)
                    .with_id(event(u32::try_from(*turn).unwrap(), "").id),
            )
        })
        .collect();
    let FileFate::Changed { lines: 1, .. } =
        scrub.fate("conversations/c-1/events.jsonl", events.as_bytes())
    else {
        panic!("nothing changed")
    };
}

// Restoring an old backup applies the tombstones again
#[test]
fn a_tombstone_knows_what_it_has_no_words_for() {
    let scrub = Scrub {
        events: BTreeSet::from([event(3, "").id]),
        records: HashSet::from([record("b", "").key()]),
        ..scrub()
    };
    let stone =
        Tombstone::new(&scrub, "2026-02-13T09:30:00+01:00", "user", Some("because"), "5a17");
    let line = stone.to_line();
    assert!(
        !scrub.needles.is_contained_in(&line) && !line.to_lowercase().contains("alpha"),
        "{line}"
    );
    let stones = Tombstones::parse(format!("{line}\n").as_bytes());
    assert_eq!(stones.unfinished_tombstones().count(), 1);
    assert!(
        stones.needles().is_contained_in("… the launch\ncode seven alpha …")
            && !stones.needles().is_contained_in("launch code seven")
    );
    assert!(stones.has_record(&record("b", "").key()) && stones.scrub().events == scrub.events);
    let text = "tea\nthe launch code seven-alpha is\n";
    assert_eq!(stones.needles().redact(text), scrub.needles.redact(text));
    let finished = Tombstones::parse(
        format!("{line}\n{}\n", done_line(&stone.id, "2026-02-13T09:30:00+01:00")).as_bytes(),
    );
    assert_eq!(finished.unfinished_tombstones().count(), 0);
    assert!(Tombstones::parse(b"").is_empty() && finished.unfinished_scrub().is_empty());
}

proptest! {
    #[test]
    fn no_text_keeps_the_words_and_other_lines_keep_every_byte(lines in prop::collection::vec("[a-z \\\\\"é]{0,12}|.{0,8}launch CODE seven\\.alpha.{0,8}", 0..8)) {
        let text = lines.join("\n");
        let needles = scrub().needles;
        match needles.redact(&text) {
            None => prop_assert!(!needles.is_contained_in(&text)),
            Some(redacted) => {
                prop_assert!(!needles.is_contained_in(&redacted.text));
                // The end of a line is not removed with it.
                let is_forgotten = |line: &str| line.trim_end_matches('\r') == FORGOTTEN_MARK;
                let kept: Vec<&str> = redacted.text.split('\n').filter(|line| !is_forgotten(line) && !line.starts_with('#')).collect();
                prop_assert!(kept.iter().all(|line| lines.iter().any(|known| known.split('\n').any(|part| part == *line)) || line.is_empty()));
            }
        }
    }

    #[test]
    fn any_file_can_be_looked_at(path in "memory/ledger.jsonl|memory/summaries.jsonl|memory/review.jsonl|memory/messages/2026-02-13.jsonl|conversations/a/turn-log.jsonl|[a-z/]{1,12}(\\.md|\\.json)?", bytes in prop::collection::vec(any::<u8>(), 0..80)) {
        let _ = scrub().fate(&path, &bytes);
    }
}
