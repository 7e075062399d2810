//! Tests: sentences marked as meant to last, and everyday ones that are not.

use proptest::prelude::*;

use super::super::testing::piece;
use super::*;

/// Type, priority and due date of each proposal from a text, one per line.
fn describe_proposals(text: &str, origin: Origin) -> String {
    let all = propose(&[piece(text, origin)]);
    let line = |found: &Proposal| {
        let due = found.due.map(|day| format!(" {day}")).unwrap_or_default();
        format!("{} {}{due}", found.kind, found.priority)
    };
    all.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn check(cases: &[(&str, &str)]) {
    let wrong: Vec<String> = cases
        .iter()
        .filter(|(text, expected)| describe_proposals(text, Origin::User) != *expected)
        .map(|(text, expected)| {
            format!(
                "{text:?}: expected {expected:?}, found {:?}",
                describe_proposals(text, Origin::User)
            )
        })
        .collect();
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}

// L13
#[test]
fn what_is_marked_is_caught() {
    check(&[
        ("[P0] The pilot starts on March 15", "fact P0"),
        ("- [P1 decision] One price for all", "decision P1"),
        ("**[P2]** Ana prefers short answers", "preference P2"),
        ("TODO: call the dentist", "commitment P2"),
        ("TODO renew the passport by March 15", "commitment P2 2026-03-15"),
        ("- [ ] water the plants", "commitment P2"),
        ("todo: send the slides to Anna tomorrow", "commitment P2 2026-02-14"),
        ("Decision: Postgres for the shop", "decision P1"),
        ("**Decision**: we ship on Mondays", "decision P1"),
        ("**Decision:** we ship on Mondays", "decision P1"),
        ("We decided to use Postgres.", "decision P1"),
        ("Yesterday we decided on one price for all clients", "decision P1"),
        ("I've decided to learn Rust this year", "decision P1"),
        ("Decided on Postgres over MySQL", "decision P1"),
        ("We agreed on a flat fee of 500 EUR", "decision P1"),
        ("We settled on Tuesdays for the call", "decision P1"),
        ("We're going with the blue logo", "decision P1"),
        ("We will use Terraform for the infrastructure", "decision P1"),
        ("We'll use pnpm instead of npm", "decision P1"),
        ("We switched to GitLab last month", "decision P1"),
        ("Going with option B for the migration", "decision P1"),
        ("We chose Stripe for payments", "decision P1"),
        ("Let's go with the smaller plan", "decision P1"),
        ("Never deploy on Fridays", "constraint P1"),
        ("never push to main directly!", "constraint P1"),
        ("Always run the tests before merging", "constraint P1"),
        ("Please note: always use metric units", "constraint P1"),
        ("We must not store passwords in plain text", "constraint P1"),
        ("All endpoints must be authenticated", "constraint P1"),
        ("The budget must be below 500 EUR", "constraint P1"),
        ("You must ask before you delete files", ""),
        ("You must never delete backups", "constraint P1"),
        ("Every merge must have... well, no", ""),
        ("We never deploy on Fridays", "constraint P1"),
        ("We cannot deploy without approval", "constraint P1"),
        ("We can't spend more than 500 EUR per month", "constraint P1"),
        ("Do not ever push to main", "constraint P1"),
        ("Don't share client names, ever", "constraint P1"),
        ("No external scripts allowed on the site", "constraint P1"),
        ("Smoking is not allowed in the office", "constraint P1"),
        ("Spend at most 500 EUR per month", "constraint P1"),
        ("The budget is at most 500 EUR", "constraint P1"),
        ("Nobody may change the production database by hand", "constraint P1"),
        ("Only admins may delete users", "constraint P1"),
        ("I prefer tea over coffee", "preference P2"),
        ("I like dark mode better than light mode", "preference P2"),
        ("Please always answer in German", "preference P2"),
        ("I hate when answers are long", "preference P2"),
        ("My favourite editor is Helix", "preference P2"),
        ("I will send the offer to Client X by Friday", "commitment P2 2026-02-20"),
        ("I'll finish the report until tomorrow", "commitment P2 2026-02-14"),
        ("We will ship the beta on March 15", "commitment P2 2026-03-15"),
        ("I promise to review the contract", "commitment P2"),
        ("Remind me to call Anna", "commitment P2"),
        ("Remind me to renew the domain on 2026-03-01", "commitment P2 2026-03-01"),
        ("Please send the invoice by next week", "commitment P2 2026-02-20"),
        ("Send the slides to Bert by Monday", "commitment P2 2026-02-16"),
        ("The tax return is due on May 31", "commitment P2 2026-05-31"),
        ("The deadline for the grant is March 1", "commitment P2 2026-03-01"),
        ("Anna will send the contract by Friday", "commitment P2 2026-02-20"),
        ("I need to renew my passport by the end of the month", "commitment P2 2026-02-28"),
        ("Carol is the contact for Northwind", "relationship P2"),
        ("Mira works for Northwind", "relationship P2"),
        ("Tom Baker reports to Carol", "relationship P2"),
        ("Anna is married to Bert", "relationship P2"),
        ("My wife is Julia", "relationship P2"),
        ("My boss is called Carol", "relationship P2"),
        ("My daughter's name is Emma", "relationship P2"),
        ("My name is Dave", "fact P1"),
        ("Hi, my name is dave", "fact P1"),
        ("I live in Hamburg", "fact P1"),
        ("My birthday is March 3", "fact P1"),
        ("I work at Contoso", "fact P1"),
        ("My e-mail is dave@example.org", "fact P1"),
        ("My phone number is 040 1234567", "fact P1"),
        ("To deploy, run `make deploy` on the build host", "procedure P2"),
        ("How to release: bump the version, tag it, push the tag", "procedure P2"),
        ("Wir haben entschieden, Postgres zu nehmen", "decision P1"),
        ("Wir haben uns für Postgres entschieden", "decision P1"),
        ("Nie am Freitag deployen", "constraint P1"),
        ("Niemals direkt auf main pushen!", "constraint P1"),
        ("Alle Passwörter müssen gehasht werden", "constraint P1"),
        ("Passwörter dürfen nie im Log stehen", "constraint P1"),
        ("Ich bevorzuge kurze Antworten", "preference P2"),
        ("Bitte immer auf Deutsch antworten", "preference P2"),
        ("Erinnere mich daran, Anna anzurufen", "commitment P2"),
        ("Ich werde den Bericht bis Freitag schicken", "commitment P2 2026-02-20"),
        ("Ich heiße Dave", "fact P1"),
        ("Ich wohne in Hamburg", "fact P1"),
        ("Meine Frau heißt Julia", "relationship P2"),
    ]);
}

// L13
#[test]
fn everyday_talk_yields_nothing() {
    let chat = [
        "I must say that was fun",
        "we never talked about it",
        "Have you decided?",
        "If we decided on Postgres, we would need a DBA",
        "He said you must see this film",
        "always a pleasure",
        "I could never do that",
        "I must have left my keys at home",
        "I've never been to Paris",
        "it never works",
        "always wanted to try that",
        "you must be kidding",
        "You must be tired after the trip",
        "That must be hard",
        "The server must be down again",
        "The kids must be exhausted",
        "never mind",
        "Never say never",
        "I can't believe it",
        "We can't wait to see you",
        "We cannot log in",
        "You can't be serious",
        "Should we use Postgres?",
        "Maybe we will use Postgres",
        "What if we switched to MySQL?",
        "We haven't decided yet",
        "We have not decided on a database",
        "Nothing was decided",
        "She decided to go home early",
        "They agreed on nothing",
        "I wonder whether we settled on a date",
        "We decided to order pizza tonight",
        "I prefer the second one",
        "I prefer not to say",
        "I'd prefer tea right now",
        "I like it better now",
        "My favourite part was the ending",
        "I'll be there on Friday",
        "I'll see you tomorrow",
        "I'll let you know",
        "I'll think about it",
        "I'll call you tomorrow",
        "It will rain tomorrow",
        "See you next week",
        "By Friday we were exhausted",
        "We met on Monday",
        "It works for me",
        "Friday works for Bob",
        "Everything works for Anna",
        "He works for free",
        "That works for us",
        "I live in fear of the next release",
        "I work at night",
        "I work from home",
        "My email is down again",
        "My name is on the list",
        "My birthday is coming up",
        "To be honest, use whatever you like",
        "To be fair, it was late",
        "How to explain this...",
        "How are you today?",
        "Thanks, that was great!",
        "The todo list is long",
        "There were at most 10 people",
        "It took at most 5 minutes",
        "You remind me of my brother",
        "We used to always deploy on Fridays",
        "According to the article you must never eat fish",
        "People say you should always use Rust",
        "\"Never deploy on Fridays\" is a meme",
        "The sign read \"you must always knock\"",
        "> We decided to use Postgres",
        "```\nNever deploy on Fridays\n```",
        "https://example.org/never-deploy-on-fridays",
        "{\"decision\": \"We decided to use Postgres\"}",
        "+We decided to use Postgres",
        "ERROR: value must be set",
        "Traceback: you must never do that",
        "- [x] call the dentist",
        "I never use it",
        "We always run into problems",
        "We almost switched to MySQL",
        "I think we decided on something",
        "Guten Morgen!",
        "Ich muss los",
        "Das muss ich sagen",
        "Immer wieder schön",
        "Nie gesehen",
        "Das darf nicht wahr sein",
        "Immer noch am Arbeiten",
        "Vielleicht nehmen wir Postgres",
        "Wie immer zu spät",
        "It is what it is",
        "When we decided on Postgres, life was easier",
        "I know why we chose Postgres",
        "You always know best",
        "you never listen",
        "Better late than never",
        "This is a must",
        "The show must go on",
        "What we decided was wrong",
        "That deadline was yesterday",
        "",
        "ok",
        "lol",
    ];
    let cases: Vec<(&str, &str)> = chat.iter().map(|text| (*text, "")).collect();
    check(&cases);
}

// L13
#[test]
fn only_the_person_and_the_log_are_taken_at_their_word() {
    assert_eq!(
        describe_proposals("[P0] Never deploy on Fridays\nTODO: x y\nDecision: a b", Origin::Tool),
        ""
    );
    assert_eq!(
        describe_proposals("- 14:02 Never deploy on Fridays", Origin::File),
        "constraint P1"
    );
    assert_eq!(
        describe_proposals("Never deploy on Fridays. We decided on Postgres.", Origin::Assistant),
        ""
    );
    assert_eq!(
        describe_proposals("[P1] Shop runs on Postgres\nDecision: use pnpm\n**Decision**: no npm\nTODO: write docs", Origin::Assistant).lines().count(),
        4
    );
}

// K4
#[test]
fn a_proposal_has_the_words_and_what_they_name() {
    let text =
        "Fine.\n- TODO: send the offer to Client X by Friday, as soon as legal has signed, ok";
    let all = propose(&[piece("nothing here", Origin::User), piece(text, Origin::User)]);
    let [found] = all.as_slice() else { panic!("{all:?}") };
    assert_eq!(
        found.content,
        "send the offer to Client X by Friday, as soon as legal has signed, ok"
    );
    assert_eq!(
        found.quote,
        "TODO: send the offer to Client X by Friday, as soon as legal has signed, ok"
    );
    assert_eq!(
        (found.passage, found.entity.as_deref(), found.entity_kind),
        (1, Some("Client X"), Some(EntityKind::Company))
    );
    assert_eq!(found.waiting_on.as_deref(), Some("legal has signed"));

    let entity = |text: &str| {
        propose(&[piece(text, Origin::User)]).first().and_then(|found| found.entity.clone())
    };
    for (text, expected) in [
        ("We decided to use Postgres", Some("Postgres")),
        ("Send the slides to Anna Berg by Monday", Some("Anna Berg")),
        ("Send the slides to Anna and Bert by Monday", None),
        ("Never deploy on Fridays", None),
        ("Mira works for Northwind", Some("Mira")),
        ("Nie am Freitag auf Produktion deployen", None),
        ("Spend at most 500 EUR per month", None),
    ] {
        assert_eq!(entity(text).as_deref(), expected, "{text}");
    }
    assert_eq!(propose(&[piece("My name is Dave", Origin::User)])[0].tags, ["identity"]);
    let long = format!("TODO: {}", "write the docs ".repeat(100));
    assert!(propose(&[piece(&long, Origin::User)])[0].content.len() <= MAX_CONTENT_BYTES);
}

fn speech() -> impl Strategy<Value = String> {
    const WORDS: [&str; 40] = [
        "we",
        "I",
        "you",
        "must",
        "never",
        "always",
        "decided",
        "to",
        "use",
        "deploy",
        "by",
        "Friday",
        "March",
        "15",
        "2026-03-01",
        "TODO:",
        "[P1]",
        "- ",
        "[ ] ",
        "\n",
        ". ",
        "? ",
        "“",
        "”",
        "\"",
        "`",
        "```",
        "is",
        "my",
        "name",
        "works for",
        "Anna",
        "İ",
        "ß",
        "日本語",
        "once",
        "waiting for",
        "remind me",
        "muss",
        "nie",
    ];
    let word = prop_oneof![6 => prop::sample::select(WORDS.to_vec()).prop_map(str::to_owned), 1 => "\\PC{0,3}"];
    prop::collection::vec(word, 0..25).prop_map(|words| words.join(" "))
}

proptest! {
    // L13
    #[test]
    fn every_proposal_quotes_its_piece(text in speech()) {
        let pieces = [piece(&text, Origin::User)];
        for found in propose(&pieces) {
            prop_assert!(text.contains(&found.quote));
            prop_assert!(found.content.len() <= MAX_CONTENT_BYTES);
            prop_assert!(found.due.is_none_or(|day| day >= pieces[0].said_at.day()));
        }
        prop_assert_eq!(propose(&pieces), propose(&pieces));
    }
}
