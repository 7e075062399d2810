//! Tests: long texts that return edited.

use proptest::prelude::*;

use super::super::artifact::{ArtifactIndex, ArtifactKind, assign_versions, find_artifacts};
use super::*;

fn sentence(number: usize) -> String {
    const WORDS: &[&str] = &[
        "budget", "team", "harbour", "report", "review", "spring", "contract", "number", "meeting",
        "delivery", "cost", "window", "paper",
    ];
    let word =
        |step: usize| WORDS[(number * 7 + step * step * 3 + number / 5 * step) % WORDS.len()];
    format!(
        "The {} of item {number} follows the {} and the {} of part {}. ",
        word(1),
        word(2),
        word(3),
        number * 3 % 17
    )
}

fn section(title: &str, from: usize, sentences: usize) -> String {
    format!(
        "## {title}\n\n{}\n\n",
        (from..from + sentences).map(sentence).collect::<String>().trim_end()
    )
}

fn document() -> String {
    format!(
        "# Harbour plan\n\n{}{}{}",
        section("Aim", 0, 40),
        section("Budget", 100, 40),
        section("Risks", 200, 40)
    )
}

// C12
#[test]
fn long_texts_are_documents_and_code_is_not() {
    assert!(is_document(&document()));
    assert!(is_document(&"word ".repeat(1_501)));
    assert!(!is_document(&"word ".repeat(1_500)));
    assert!(is_document(&"長".repeat(3_100)));
    assert!(!is_document(&format!("```\n{}\n```\n", "word ".repeat(5_000))));
    assert!(!is_document(""));
}

// C12
#[test]
fn a_document_that_comes_back_edited_is_its_next_version() {
    let ts = crate::calendar::Moment::parse("2026-02-13T09:30:00+01:00").unwrap().moment;
    let mut index = ArtifactIndex::default();
    let mut say = |turn, user: &str, assistant: &str| {
        let versions =
            assign_versions(&find_artifacts(user, assistant).candidates, &index, turn, ts);
        for version in &versions {
            index.add(version.entry.clone());
        }
        versions
            .into_iter()
            .map(|version| {
                (
                    version.entry.name.clone(),
                    version.entry.version,
                    version.entry.kind,
                    version.entry.file.clone(),
                    version.text,
                )
            })
            .collect::<Vec<_>>()
    };
    let first = document();
    let name = "harbour-plan".to_owned();
    let pasted = say(1, &format!("Please look at this:\n\n{first}"), "I have read it.");
    assert_eq!(
        pasted,
        [(
            name.clone(),
            1,
            ArtifactKind::Document,
            "documents/harbour-plan/v1.md".to_owned(),
            format!("{}\n", first.trim_end())
        )]
    );
    let second = first.replace("the budget", "the whole budget");
    let edited = say(
        2,
        "Say whole budget.",
        &format!("Here it is:\n\n{second}Let me know if you want more."),
    );
    assert_eq!((edited[0].0.as_str(), edited[0].1, edited.len()), ("harbour-plan", 2, 1));
    assert_eq!(edited[0].4.trim_end(), second.trim_end());
    // Now shorter than a document, and without a lead-in or title; still the same document.
    let third = second.split_once("## Risks").unwrap().0.split_once("\n\n").unwrap().1.to_owned();
    assert!(!is_document(&third));
    let cut = say(3, "Drop the risks.", &third);
    assert_eq!(
        (cut[0].0.as_str(), cut[0].1, cut[0].2),
        ("harbour-plan", 3, ArtifactKind::Document)
    );
    assert_eq!(
        index.get(&name, 3).unwrap().diff_file().as_deref(),
        Some("documents/harbour-plan/v3.diff")
    );
    assert_eq!(index.get(&name, 1).unwrap().diff_file(), None);
    // An ordinary long answer is not a document.
    let say = |turn, user: &str, assistant: &str| {
        assign_versions(&find_artifacts(user, assistant).candidates, &index, turn, ts).len()
    };
    assert_eq!(
        say(
            4,
            "Why?",
            &(500..530)
                .map(|number| format!(
                    "Because {} ",
                    sentence(number).replace("The", "some other").replace("follows", "is over")
                ))
                .collect::<String>()
        ),
        0
    );
}

// C12
#[test]
fn an_outline_has_headings_and_their_words() {
    let text = "before it\n\n# Plan\n\none two three\n\nAim\n---\n\nfour\n\n### Detail ###\n\n```\n# no heading\n```\n";
    assert_eq!(
        outline(text),
        ["(beginning) (2 words)", "Plan (3 words)", "  Aim (1 word)", "    Detail (2 words)"]
    );
    assert_eq!(outline(""), [""; 0]);
    let many = outline(&"# x\n".repeat(100));
    assert_eq!(
        (many.len(), many.last().unwrap().as_str()),
        (MAX_OUTLINE_LINES + 1, "… 40 sections more")
    );
}

// C12
#[test]
fn changes_are_reported_by_section() {
    let (aim, budget, risks) =
        (section("Aim", 0, 20), section("Budget", 100, 20), section("Risks", 200, 20));
    let check = |old: &[&str], new: &[&str], expected: &[&str]| {
        assert_eq!(section_changes(&old.concat(), &new.concat()), expected)
    };
    check(&[&aim], &[&aim], &[]);
    check(
        &[&aim, &budget],
        &[&aim, &budget.replace("item 105", "element 105")],
        &["section `Budget`: 1 word changed"],
    );
    check(&[&aim], &[&aim.replace("item 5 ", "")], &["section `Aim`: 2 words removed"]);
    check(
        &[&aim],
        &[&aim.replace("item 5 ", "the big item 5 ")],
        &["section `Aim`: 2 words added"],
    );
    let count = artifact::word_count(&risks) - 1;
    check(&[&aim], &[&aim, &risks], &[&format!("section `Risks` added ({count} words)")]);
    check(&[&aim, &risks], &[&aim], &[&format!("section `Risks` removed ({count} words)")]);
    check(
        &[&aim, &risks],
        &[&aim, &risks.replace("Risks", "Dangers")],
        &["section `Dangers`: was section `Risks`"],
    );
    check(&[&aim, &budget, &risks], &[&risks, &aim, &budget], &["section `Risks`: moved"]);
    check(
        &["hello there\n"],
        &["hello  there!\n"],
        &["only white space, punctuation or code changed"],
    );
    check(&["hello there\n"], &["hello you\n"], &["the beginning: 1 word changed"]);
    let many: String = (0..100).map(|number| format!("# s{number}\nx\n")).collect();
    let told = section_changes(&many, &many.replace("\nx\n", "\ny\n"));
    assert_eq!(
        (told.len(), told.last().unwrap().as_str()),
        (MAX_CHANGE_LINES + 1, "… 60 changes more")
    );
}

// C12
#[test]
fn the_same_document_is_known_and_another_is_not() {
    let first = document();
    assert!(is_same_document(&first, &first.replace("the budget", "our budget")));
    assert!(!is_same_document(
        &first,
        &(1_000..1_120)
            .map(|number| sentence(number).replace("item", "thing").replace("follows", "leads"))
            .collect::<String>()
    ));
}

proptest! {
    // C12
    #[test]
    fn any_two_texts_can_be_compared(old in "(# [ab]|[ab ]{0,8}|```|---|===|\n){0,30}", new in "(# [ab]|[ab ]{0,8}|```|---|===|\n){0,30}") {
        prop_assert_eq!(section_changes(&old, &new).is_empty(), old == new);
        prop_assert_eq!(diff(&old, &new, "a", "b").is_empty(), old == new);
        outline(&old);
    }
}
