//! Files that icecore did not write: primers, entries of the cascade files and pages that a person
//! or another program put into the vault stay unchanged and are used.

use std::fs;
use std::sync::Arc;

use icecore_domain::event::Origin;
use icecore_domain::ledger::query::EventQuery;
use icecore_domain::record::Role;
use icecore_domain::summary::{Period, SummaryAuthor};
use icecore_engine::converse::Chats;
use icecore_engine::{CaptureDefaults, ForgetRequest, RememberRequest, ReviewDecision};
use icecore_store::testing::FailingStore;
use icecore_store::vault::Vault;
use jiff::civil::date;
use pollster::block_on;

use crate::cascade::{ZonedVault, message, night};

fn say(place: &ZonedVault, day: i8, session: &str, text: &str) {
    let said = message(place, date(2026, 2, day), 9, session, Role::User, text);
    block_on(
        place
            .at(place.moment(date(2026, 2, day), 9, 10))
            .add_messages(vec![said], &CaptureDefaults::default()),
    )
    .unwrap();
}

fn write(place: &ZonedVault, path: &str, text: &str) {
    let file = place.root.join(path);
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(file, text).unwrap();
}

/// The newest version of a summary: its author and its first line.
fn newest(place: &ZonedVault, period: &str) -> (u32, SummaryAuthor, String) {
    let now = place.moment(date(2026, 4, 20), 9, 0);
    let summary =
        block_on(place.at(now).find_newest_summary(period.parse().unwrap())).unwrap().unwrap();
    (summary.version, summary.maker, summary.headline)
}

// P13
#[test]
fn a_primer_of_another_program_stays_and_counts_as_a_version() {
    let place = ZonedVault::new("Europe/Berlin");
    let primers = [
        (
            "primers/daily/2026-02-12_session_01.md",
            "# Session primer\n\nWe had 43 turns about the antenna.\n\n## Next\n- solder it\n",
        ),
        (
            "primers/daily/2026-02-12.md",
            "---\ntitle: mine\ncontent: 1234\n---\nThe giraffe was measured.\n",
        ),
        ("primers/weekly/2026-W07.md", "## Milestones\n- the yak arrived\n"),
        // Neither an unclosed header nor bytes that are not text lose a word.
        ("primers/daily/2026-02-13.md", "---\nunfinished: header\nA line below it.\n"),
    ];
    primers.iter().for_each(|(path, text)| write(&place, path, text));
    say(&place, 12, "own", "We paint the boat green on this day.");
    say(&place, 13, "own", "We decided to paint the mast as well.");
    for day in [14, 16, 17, 25] {
        night(&place.at(place.moment(date(2026, 2, day), 3, 0))).unwrap();
        for (path, text) in primers {
            assert_eq!(place.read(path), text, "{path} on day {day}");
        }
    }
    // Also after the time when icecore's own primers move to the archive.
    night(&place.at(place.moment(date(2026, 4, 20), 3, 0))).unwrap();
    for (path, text) in primers {
        assert_eq!(place.read(path), text, "{path} after its time");
    }
    assert_eq!(
        newest(&place, "2026-02-12_session_01"),
        (1, SummaryAuthor::File, "We had 43 turns about the antenna.".into())
    );
    assert_eq!(newest(&place, "2026-02-12").2, "The giraffe was measured.");
    assert_eq!(newest(&place, "2026-W07").1, SummaryAuthor::File);
    // icecore's own session has a number of its own.
    assert!(newest(&place, "2026-02-12_session_02").2.contains("boat"));
    // icecore's own draft waits for the user, who may keep the existing file.
    let memory = place.at(place.moment(date(2026, 4, 20), 9, 0));
    let week: Period = "2026-W07".parse().unwrap();
    let drafts = block_on(memory.list_pending_reviews()).unwrap();
    assert!(
        drafts.iter().any(|draft| draft.period == "2026-W07" && draft.body.contains("boat")),
        "{drafts:?}"
    );
    block_on(memory.settle_review(week, ReviewDecision::Accept)).unwrap();
    assert!(place.read("primers/weekly/2026-W07.md").contains("boat"));
    assert_eq!(newest(&place, "2026-W07").1, SummaryAuthor::Hand);
    assert!(
        block_on(memory.verify()).unwrap().ok,
        "{:?}",
        block_on(memory.verify()).unwrap().findings
    );
}

// P13
#[test]
fn a_file_that_takes_the_place_of_our_primer_stays() {
    let place = ZonedVault::new("Europe/Berlin");
    say(&place, 12, "own", "We paint the boat green on this day.");
    night(&place.at(place.moment(date(2026, 2, 13), 3, 0))).unwrap();
    let path = "primers/daily/2026-02-12.md";
    assert!(place.read(path).contains("boat"));
    let own = "The words of another program.\n\nWith a second paragraph.\n";
    write(&place, path, own);
    for day in 14..18 {
        say(&place, 12, "own", &format!("A late remark of day {day}."));
        night(&place.at(place.moment(date(2026, 2, day), 3, 0))).unwrap();
        assert_eq!(place.read(path), own, "on day {day}");
    }
    assert_eq!(
        newest(&place, "2026-02-12"),
        (2, SummaryAuthor::File, "The words of another program.".into())
    );
}

// K14
#[test]
fn entries_of_others_in_the_cascade_files_stay_and_count() {
    let place = ZonedVault::new("Europe/Berlin");
    let thirty = "memory/summaries/30day.md";
    let foreign =
        "### 2026-01-15 (from 12 snapshots)\n\nThe giraffe was fed.\nIt liked the\n  leaves.";
    write(
        &place,
        thirty,
        &format!(
            "# My last days\n\n---\n{foreign}\n\n---\n---\n### 2026-02-10 (from 2 snapshots)\n\nThe okapi.\n\n---\n"
        ),
    );
    let years = "---\n### June 2025\n\nThe yak came.\n\n---\n";
    write(&place, "memory/summaries/2025.md", years);
    write(&place, "memory/summaries/2026.md", "---\n### January 2026\n\nThe zebra slept.\n\n---\n");
    for day in 8..13 {
        say(&place, day, "own", &format!("We paint the boat green on day {day}."));
    }
    let mut last = String::new();
    for day in [13, 14, 15, 20, 28] {
        night(&place.at(place.moment(date(2026, 2, day), 3, 0))).unwrap();
        last = place.read(thirty);
        assert!(
            last.starts_with("# My last days\n\n---\n")
                && last.contains(foreign)
                && last.contains("The okapi."),
            "day {day}: {last}"
        );
        assert_eq!(last.matches("### 2026-02-10").count(), 1, "{last}");
    }
    assert!(last.contains("boat green on day 11"), "{last}");
    // In order of time, and months later they are still there, while icecore's own days were merged
    // into their month.
    assert!(
        last.find("giraffe") < last.find("day 9") && last.find("day 9") < last.find("okapi"),
        "{last}"
    );
    for day in [1, 20] {
        night(&place.at(place.moment(date(2026, 4, day), 3, 0))).unwrap();
    }
    let late = place.read(thirty);
    assert!(
        late.contains(foreign) && late.contains("okapi") && !late.contains("on day 9"),
        "{late}"
    );
    assert_eq!(place.read("memory/summaries/2025.md"), years);
    let year = place.read("memory/summaries/2026.md");
    assert!(
        year.contains("### January 2026\n\nThe zebra slept.") && year.contains("### February 2026"),
        "{year}"
    );
    assert_eq!(
        newest(&place, "2026-01-15"),
        (1, SummaryAuthor::File, "The giraffe was fed. It liked the leaves.".into())
    );
    assert_eq!(newest(&place, "2025-06"), (1, SummaryAuthor::File, "The yak came.".into()));
    assert_eq!(newest(&place, "2026-02-10").1, SummaryAuthor::File);
    assert!(block_on(place.at(place.moment(date(2026, 4, 20), 9, 0)).verify()).unwrap().ok);
}

// K14
#[test]
fn an_entry_of_ours_that_is_edited_keeps_the_edit() {
    let place = ZonedVault::new("Europe/Berlin");
    let thirty = "memory/summaries/30day.md";
    say(&place, 10, "own", "We paint the boat green.");
    say(&place, 11, "own", "We paint the mast red.");
    night(&place.at(place.moment(date(2026, 2, 14), 3, 0))).unwrap();
    let text = place.read(thirty);
    assert!(text.contains("boat green"), "{text}");
    write(&place, thirty, &text.replace("boat green", "boat blue, in the end"));
    // A new version of the other day must not restore this one's old text.
    say(&place, 11, "own", "And the oars are yellow.");
    for day in 15..18 {
        night(&place.at(place.moment(date(2026, 2, day), 3, 0))).unwrap();
        let text = place.read(thirty);
        assert!(
            text.contains("boat blue, in the end")
                && !text.contains("boat green")
                && text.contains("mast red"),
            "{text}"
        );
    }
    assert!(newest(&place, "2026-02-10").2.contains("boat blue, in the end"));
}

// L4
#[test]
fn a_page_of_another_program_stays_while_its_words_are_learnt() {
    let place = ZonedVault::new("Europe/Berlin");
    let at = |day: i8| place.moment(date(2026, 2, day), 3, 0);
    let path = "knowledge/entities/buckydrop.md";
    let page = "# BuckyDrop\n*Type: company*\n\n## Summary\nA supplier that\nships for us.\n\n## Key Facts\n- Ships from Shenzhen [source: memory/2025-09-01.md] [verified: 2025-09-01]\n- Costs 4 EUR a parcel\n";
    write(&place, path, page);
    for day in 13..16 {
        let said = RememberRequest {
            entity: Some("buckydrop".into()),
            ..crate::statement(&format!("BuckyDrop has {day} clerks in hall {day}"))
        };
        block_on(place.live(place.moment(date(2026, 2, day - 1), 9, 0)).remember(said)).unwrap();
        night(&place.live(at(day))).unwrap();
        assert_eq!(place.read(path), page, "on day {day}");
    }
    let facts = |day: i8| -> Vec<String> {
        let query = EventQuery { entity: Some("buckydrop".into()), ..EventQuery::default() };
        let found = block_on(place.live(at(day)).query_events(&query)).unwrap();
        found
            .into_iter()
            .filter(|entry| entry.event.origin == Origin::File)
            .map(|entry| entry.event.content.clone())
            .collect()
    };
    assert_eq!(
        facts(16).iter().filter(|fact| fact.contains("4 EUR")).count(),
        1,
        "{:?}",
        facts(16)
    );
    // A line that its owner changes replaces the old one, and the file still belongs to the owner.
    let changed = page.replace("4 EUR", "5 EUR");
    write(&place, path, &changed);
    for day in 17..19 {
        night(&place.live(at(day))).unwrap();
        assert_eq!(place.read(path), changed);
    }
    assert!(
        facts(19).iter().any(|fact| fact.contains("5 EUR"))
            && !facts(19).iter().any(|fact| fact.contains("4 EUR")),
        "{:?}",
        facts(19)
    );
    // One of icecore's pages that lost its end is written again.
    let own = "knowledge/entities/apollo.md";
    let said = RememberRequest {
        entity: Some("apollo".into()),
        ..crate::statement("Apollo costs 500 EUR")
    };
    block_on(place.live(at(19)).remember(said)).unwrap();
    night(&place.live(at(20))).unwrap();
    let whole = place.read(own);
    for (day, cut) in [(21, whole.len() / 4), (22, whole.len() / 2)] {
        write(&place, own, &whole[..cut]);
        night(&place.live(at(day))).unwrap();
        assert_eq!(place.read(own), whole);
    }
}

// P13
#[test]
fn forgetting_takes_forgotten_words_only_from_what_icecore_did_not_write() {
    let place = ZonedVault::new("Europe/Berlin");
    let thirty = "memory/summaries/30day.md";
    let week = "## Milestones\n- the yak arrived\n";
    write(&place, "primers/weekly/2026-W07.md", week);
    write(
        &place,
        "primers/monthly/2026-02.md",
        "A month of animals.\n\nIt was cold.\nThe purple walrus came.\n",
    );
    let january = "### 2026-01-15 (from 12 snapshots)\n\nThe giraffe was fed.\n";
    write(
        &place,
        thirty,
        &format!("# My last days\n\n---\n{january}The purple walrus watched.\n\n---\n"),
    );
    say(&place, 11, "own", "We painted the purple walrus green.");
    say(&place, 12, "own", "We painted the mast as well.");
    night(&place.at(place.moment(date(2026, 2, 14), 3, 0))).unwrap();
    // This entry was not imported yet.
    write(
        &place,
        thirty,
        &(place.read(thirty) + "---\n### 2026-02-11 (from 1 snapshot)\n\nThe okapi.\n\n---\n"),
    );
    let memory = place.at(place.moment(date(2026, 2, 14), 9, 0));
    let wish = ForgetRequest {
        matching: vec!["purple walrus".into()],
        by: "user".into(),
        ..ForgetRequest::default()
    };
    block_on(memory.forget(&wish, None, &|_, _, _| {})).unwrap();
    for day in [14, 15, 16] {
        assert_eq!(place.read("primers/weekly/2026-W07.md"), week, "day {day}");
        assert_eq!(
            place.read("primers/monthly/2026-02.md"),
            "A month of animals.\n\nIt was cold.\n[forgotten]\n",
            "day {day}"
        );
        let text = place.read(thirty);
        assert!(
            text.starts_with("# My last days\n")
                && text.contains(&format!("{january}[forgotten]\n")),
            "day {day}: {text}"
        );
        assert!(
            text.contains("The okapi.") && text.matches("### 2026-02-11").count() == 1,
            "day {day}: {text}"
        );
        assert!(
            place.files().iter().all(|(_, text)| !text.contains("walrus")),
            "{:?}",
            place.files()
        );
        night(&place.at(place.moment(date(2026, 2, day + 1), 3, 0))).unwrap();
    }
    assert_eq!(
        newest(&place, "2026-W07"),
        (1, SummaryAuthor::File, "## Milestones - the yak arrived".into())
    );
    assert_eq!(newest(&place, "2026-02").1, SummaryAuthor::File);
    assert!(
        block_on(memory.verify()).unwrap().ok,
        "{:?}",
        block_on(memory.verify()).unwrap().findings
    );
}

// P13
#[test]
fn a_primer_of_another_program_stays_when_its_conversation_is_forgotten() {
    let place = ZonedVault::new("Europe/Berlin");
    say(&place, 12, "own", "We paint the boat green on this day.");
    night(&place.at(place.moment(date(2026, 2, 13), 3, 0))).unwrap();
    let path = "primers/daily/2026-02-12.md";
    let own = "The words of another program.\n";
    write(&place, path, own);
    night(&place.at(place.moment(date(2026, 2, 14), 3, 0))).unwrap();
    block_on(async {
        let chats =
            Chats::open(Arc::new(place.at(place.moment(date(2026, 2, 14), 9, 0)))).await.unwrap();
        chats.delete_conversation("work").await.unwrap();
    });
    assert_eq!(place.read(path), own);
    assert_eq!(
        newest(&place, "2026-02-12"),
        (2, SummaryAuthor::File, "The words of another program.".into())
    );
}

// K14
#[test]
fn several_entries_of_others_for_one_day_are_a_version_each() {
    let place = ZonedVault::new("Europe/Berlin");
    let thirty = "memory/summaries/30day.md";
    let entry = |text: &str| format!("---\n### 2026-01-15 (from 1 snapshot)\n\n{text}\n\n---\n");
    let text = entry("The giraffe.") + &entry("The yak.");
    write(&place, thirty, &text);
    for day in 13..17 {
        night(&place.at(place.moment(date(2026, 2, day), 3, 0))).unwrap();
        assert_eq!(place.read(thirty), text);
        assert_eq!(
            newest(&place, "2026-01-15"),
            (2, SummaryAuthor::File, "The yak.".into()),
            "day {day}"
        );
    }
    // A text that its owner restores counts again.
    write(&place, thirty, &entry("The giraffe."));
    for day in 17..20 {
        night(&place.at(place.moment(date(2026, 2, day), 3, 0))).unwrap();
        assert_eq!(
            newest(&place, "2026-01-15"),
            (3, SummaryAuthor::File, "The giraffe.".into()),
            "day {day}"
        );
    }
}

// L4
#[test]
fn pages_that_can_be_written_are_known_beside_one_that_cannot() {
    let place = ZonedVault::new("Europe/Berlin");
    let now = place.moment(date(2026, 2, 13), 9, 0);
    for entity in ["alpha", "beta", "gamma"] {
        let said = RememberRequest {
            entity: Some(entity.into()),
            ..crate::statement(&format!("{entity} costs 500 EUR"))
        };
        block_on(place.live(now).remember(said)).unwrap();
    }
    let denied = "knowledge/entities/beta.md";
    let store = FailingStore::new(Vault::open(&place.root).unwrap(), usize::MAX)
        .with_denied(denied.parse().unwrap());
    night(&place.open(Arc::new(store), place.moment(date(2026, 2, 14), 3, 0))).unwrap();
    assert!(
        place.read("knowledge/entities/alpha.md").contains("500 EUR")
            && place.read("knowledge/entities/gamma.md").contains("500 EUR")
    );
    let reports = place.files();
    assert!(reports.iter().any(|(_, text)| text.contains(&format!("{denied}: "))), "{reports:?}");
    assert!(
        reports.iter().all(|(_, text)| !text.contains("was saved during the run")),
        "{reports:?}"
    );
}
