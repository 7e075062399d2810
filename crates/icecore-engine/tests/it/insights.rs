//! Insights: a generated year in which one topic recurs and two months are alike.

use icecore_domain::calendar::Days;
use icecore_domain::event::{EventType, Priority};
use icecore_domain::insights::trend::Occasion as Where;
use icecore_domain::record::{IncomingMessage, Role};
use icecore_domain::summary::{Period, SummaryQuery, Tier};
use icecore_engine::{CaptureDefaults, Error, RememberRequest, RollupRequest};
use jiff::ToSpan;
use jiff::civil::{Date, date};
use pollster::block_on;

use crate::cascade::ZonedVault;

/// The topics of the months, except the two that are alike.
const MONTHS: [&str; 12] = [
    "the newsletter and its readers",
    "the move to Postgres and the orders",
    "the tax return and the invoices",
    "the talk about search in Hamburg",
    "the garden fence and the pond",
    "the hiring of a designer",
    "the backup and its restore",
    "the printer and its driver",
    "the piano lessons of Nora",
    "the marathon and its training",
    "the kitchen and the plumber",
    "the choir and the concert",
];
const HARBOUR: &str = "The harbour office wants more permits for the quay; Mirabel called about the crane inspection.";

/// Thirteen months of sessions, three of them about the same work, and statements made on the way.
fn create_history() -> ZonedVault {
    let place = ZonedVault::new("Europe/Berlin");
    let today = date(2026, 11, 13);
    let mut said = Vec::new();
    let mut day = date(2025, 10, 1);
    let mut n = 0_usize;
    while day < today {
        let month = usize::try_from(day.month() - 1).unwrap();
        let harbour =
            (day.year() == 2026 && day.month() == 1) || (day.year() == 2026 && day.month() == 10);
        let text = if harbour {
            HARBOUR.to_owned()
        } else {
            format!("Some progress with {}, step {n}.", MONTHS[month])
        };
        said.push(message(&place, day, "morning", Role::User, &text));
        said.push(message(
            &place,
            day,
            "morning",
            Role::Assistant,
            "Good. Shall I write that down?",
        ));
        day = day.checked_add(2.days()).unwrap();
        n += 1;
    }
    for (day, text) in [
        (date(2026, 2, 3), "We refactored auth; the session cookies are gone."),
        (date(2026, 6, 9), "Auth had to be refactored again for the tokens."),
    ] {
        said.push(message(&place, day, "evening", Role::User, text));
    }
    block_on(place.at(place.moment(today, 8, 0)).add_messages(said, &CaptureDefaults::default()))
        .unwrap();
    remember(
        &place,
        date(2026, 9, 15),
        EventType::Decision,
        "Refactor auth once more, with passkeys",
    );
    remember(&place, date(2025, 11, 12), EventType::Decision, "One price for all customers");
    remember(&place, date(2025, 11, 13), EventType::Commitment, "Send Ada the contract");
    place
}

fn message(
    place: &ZonedVault,
    day: Date,
    session: &str,
    role: Role,
    text: &str,
) -> IncomingMessage {
    IncomingMessage {
        ts: Some(place.moment(day, 9, 5)),
        conversation: Some("work".into()),
        session: Some(session.into()),
        role: Some(role),
        text: text.into(),
        ..IncomingMessage::default()
    }
}

fn remember(place: &ZonedVault, day: Date, kind: EventType, text: &str) {
    let said = RememberRequest {
        text: text.into(),
        kind: Some(kind),
        priority: Some(Priority::P1),
        ..RememberRequest::default()
    };
    block_on(place.at(place.moment(day, 12, 0)).remember(said)).unwrap();
}

// Y11
#[test]
fn a_year_shows_what_came_up_again_what_was_then_and_what_is_alike() {
    let place = create_history();
    let now = place.moment(date(2026, 11, 13), 9, 0);
    let memory = place.at(now);
    block_on(memory.run_rollup(&RollupRequest::default(), None, &|_, _, _| {})).unwrap();

    // "We have refactored auth three times this year."
    let watched = std::sync::Mutex::new(0);
    let trended = block_on(
        memory.compute_trends(None, 30, None, &|_, done, _| *watched.lock().unwrap() = done),
    )
    .unwrap();
    assert_eq!(trended.days, Days { first: date(2025, 12, 1), last: date(2026, 11, 13) });
    assert_eq!(trended.trends.months.len(), 12);
    assert!(*watched.lock().unwrap() > 100);
    let topic = |name: &str| trended.trends.topics.iter().find(|topic| topic.name == name);
    let auth = topic("refactored auth").unwrap_or_else(|| panic!("{:#?}", trended.trends));
    assert_eq!((auth.occasions, auth.first, auth.last), (3, date(2026, 2, 3), date(2026, 9, 15)));
    assert!(
        matches!(auth.places.as_slice(), [Where::Session(_), Where::Session(_), Where::Event(..)]),
        "{auth:?}"
    );
    let about = block_on(memory.compute_trends(None, 30, Some("auth"), &|_, _, _| {})).unwrap();
    assert!(about.trends.topics.iter().all(|topic| topic.occasions <= 3), "{about:#?}");
    assert!(matches!(
        block_on(memory.compute_trends(None, 30, Some("the"), &|_, _, _| {})),
        Err(Error::InvalidRequest(_))
    ));

    // "This week last year …"
    let looked = block_on(memory.compute_lookback(None)).unwrap();
    let look = looked.looks.iter().find(|look| look.period.name == "this week last year").unwrap();
    assert_eq!(
        look.headlines.iter().map(|told| told.period.to_string()).collect::<Vec<_>>(),
        ["2025-W46"]
    );
    assert!(look.headlines[0].headline.contains("kitchen"), "{look:?}");
    assert_eq!(look.decided[0].event.content, "One price for all customers");
    assert_eq!(look.open[0].event.content, "Send Ada the contract");
    // There were no messages on that day a month ago, so its week is shown.
    assert_eq!(
        (looked.looks[0].period.name.as_str(), looked.looks[0].period.days.first),
        ("this week a month ago", date(2026, 10, 12))
    );

    // "Similar to what we did in January …"
    let october: Period = "2026-10".parse().unwrap();
    let alike = block_on(memory.find_similar_summaries(Some(october))).unwrap().unwrap();
    assert_eq!(
        alike.like.iter().map(|(like, _)| like.period.to_string()).collect::<Vec<_>>(),
        ["2026-01"]
    );
    let kept = block_on(memory.find_newest_summary(october)).unwrap().unwrap();
    let similar = kept.similar.clone().unwrap();
    assert_eq!(similar.period.to_string(), "2026-01");
    assert!(
        place
            .read("primers/monthly/2026-10.md")
            .trim_end()
            .ends_with(&format!("Similar: {similar}"))
    );
    // A similarity reference is in no pack.
    assert!(!block_on(memory.assemble_upload(None, None)).unwrap().text.contains("Similar: 2026"));
    let merged = memory.merge_summaries(&[kept, alike.like[0].1.clone()], 4_096);
    let both = merged.lines.iter().find(|line| line.text.contains("harbour office")).unwrap();
    assert_eq!(both.periods.len(), 2, "{merged:?}");
    assert!(merged.repeated > 0 && merged.to_text().len() <= 4_096);
    assert!(matches!(
        block_on(memory.find_similar_summaries(Some("2020-01".parse().unwrap()))),
        Err(Error::NotFound(_))
    ));
}

// Y11
#[test]
fn nothing_that_was_recorded_later_is_looked_at() {
    let place = create_history();
    let now = place.moment(date(2026, 11, 13), 9, 0);
    block_on(place.at(now).run_rollup(&RollupRequest::default(), None, &|_, _, _| {})).unwrap();
    // Messages count by their own time as long as nothing was captured then; statements count by
    // the time they were recorded.
    let memory = place.at(place.moment(date(2026, 7, 1), 9, 0));
    let days = Days { first: date(2026, 1, 1), last: date(2026, 12, 31) };
    let trended = block_on(memory.compute_trends(Some(days), 50, None, &|_, _, _| {})).unwrap();
    assert_eq!(trended.days.last, date(2026, 7, 1));
    let auth = trended
        .trends
        .topics
        .iter()
        .find(|topic| topic.name.contains("auth"))
        .map_or(0, |topic| topic.occasions);
    assert!(auth < 3, "{trended:?}");
    assert_eq!(
        block_on(memory.find_similar_summaries(None)).unwrap().map(|alike| alike.summary.period),
        None,
        "nothing was pressed then"
    );
    assert!(matches!(
        block_on(memory.compute_lookback(Some(date(2026, 12, 1)))),
        Err(Error::NotFound(_))
    ));
    // A summary refers to earlier ones, however many there are now.
    let all = block_on(place.at(now).store().summaries(&SummaryQuery::default())).unwrap();
    for summary in &all {
        if let Some(similar) = &summary.similar {
            assert!(
                summary.period.tier() >= Tier::Week
                    && similar.period.tier() == summary.period.tier()
            );
            assert!(
                similar.period.days().last < summary.period.days().first,
                "{} {similar}",
                summary.period
            );
        }
    }
    assert!(
        all.iter().any(|summary| summary.period.tier() == Tier::Week && summary.similar.is_some())
    );
}

// Y11
#[test]
fn an_empty_memory_has_nothing_to_tell_and_says_so() {
    let place = ZonedVault::new("Europe/Berlin");
    let memory = place.at(place.moment(date(2026, 11, 13), 9, 0));
    let trended = block_on(memory.compute_trends(None, 30, None, &|_, _, _| {})).unwrap();
    assert!(trended.trends.topics.is_empty() && trended.memory.is_none());
    assert!(block_on(memory.compute_lookback(None)).unwrap().looks.is_empty());
    assert!(block_on(memory.find_similar_summaries(None)).unwrap().is_none());
}
