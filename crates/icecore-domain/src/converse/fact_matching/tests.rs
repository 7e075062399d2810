//! Tests: hard pairs of facts and texts, above all the ones that must not match.

use super::*;

/// The expected result of a row: the index of the matched fact, or none (ambiguous counts as none).
type Row<'a> = (&'a [&'a str], &'a str, Option<usize>);

fn check(way: DiffOp, rows: &[Row<'_>]) {
    let wrong: Vec<String> = rows
        .iter()
        .filter_map(|(facts, text, expected)| {
            let found = match_fact(facts, text, way);
            let one = if let FactMatch::One(at) = found { Some(at) } else { None };
            (one != *expected).then(|| format!("{facts:?} / {text}: {found:?}, not {expected:?}"))
        })
        .collect();
    assert!(
        wrong.is_empty(),
        "{} of {} {way:?} rows:\n{}",
        wrong.len(),
        rows.len(),
        wrong.join("\n")
    );
}

#[rustfmt::skip]
const UPDATES: &[Row<'_>] = &[
    // The same keys in other notations.
    (&["Python version: 3.11", "Python virtualenv: .venv"], "Python version: 3.12", Some(0)),
    (&["Python version: 3.11", "Python virtualenv: .venv"], "Python virtualenv: .env312", Some(1)),
    (&["Sorting function: recursive quicksort"], "Sorting function: now iterative quicksort, O(n log n)", Some(0)),
    (&["Python version: 3.11"], "The Python version: 3.12", Some(0)),
    (&["Python version: 3.11"], "python_version: 3.12", Some(0)),
    (&["Python version: 3.11"], "PYTHON VERSION: 3.12", Some(0)),
    (&["Python version: 3.11"], "Version of Python: 3.12", Some(0)),
    (&["Python version: 3.11"], "Current Python version: 3.12", Some(0)),
    (&["Python version: 3.11"], "The Python version is now 3.12", Some(0)),
    (&["The Python version is 3.11"], "Python version: 3.12", Some(0)),
    (&["deadline of the report: Friday", "deadline of the review: Monday"], "Report deadline: Thursday", Some(0)),
    (&["deadline of the report: Friday", "deadline of the review: Monday"], "Deadline for the review: Tuesday", Some(1)),
    (&["User's name: Anna"], "User name: Hannah", Some(0)),
    (&["User name: Anna", "User nickname: Annie"], "The user's nickname: Nan", Some(1)),
    (&["User timezone: CET"], "Time zone: UTC", Some(0)),
    (&["Favourite colour: blue"], "Favorite color: green", Some(0)),
    (&["E-mail: a@x.org"], "Email: b@x.org", Some(0)),
    (&["Envirnoment variables: PORT"], "Environment variables: PORT, HOST", Some(0)),
    (&["Test frameworks: pytest"], "Test framework: pytest and hypothesis", Some(0)),
    (&["DB: Postgres 15"], "Database: Postgres 16", Some(0)),
    (&["API port: 8080", "API host: localhost"], "API host: 10.0.0.5", Some(1)),
    (&["API port: 8080", "API host: localhost"], "Port of the API: 9090", Some(0)),
    (&["Allergies: nuts"], "Allergies: nuts, pollen", Some(0)),
    (&["Name: Apollo", "User name: Anna"], "Name: Apollo 2", Some(0)),
    (&["Phase 1 deadline: May 3", "Phase 2 deadline: June 3"], "Phase 2 deadline: June 10", Some(1)),
    (&["max_tokens = 512"], "max_tokens = 1024", Some(0)),
    (&["Database: Postgres"], "The database is now MySQL", Some(0)),
    // Sentences whose verb takes one value at a time.
    (&["The budget is 500 EUR"], "The budget is now 600 EUR", Some(0)),
    (&["The budget is 500 EUR"], "Budget: 600 EUR", Some(0)),
    (&["Budget: 500 EUR"], "The budget was raised to 600 EUR", Some(0)),
    (&["User lives in Rome"], "User lives in Berlin", Some(0)),
    (&["User lives in Rome"], "User now lives in Berlin", Some(0)),
    (&["User lives in Rome"], "The user moved to Berlin", Some(0)),
    (&["Anna works at Siemens", "Bert works at Siemens"], "Anna works for Bosch", Some(0)),
    (&["The meeting is on Monday"], "The meeting was moved to Tuesday", Some(0)),
    (&["The theme is dark"], "The theme is light", Some(0)),
    (&["Nutzer wohnt in Rom"], "Nutzer wohnt jetzt in Berlin", Some(0)),
    (&["Das Budget beträgt 500 EUR"], "Das Budget ist jetzt 600 EUR", Some(0)),
    (&["Die Frist ist Freitag"], "Frist: Montag", Some(0)),
    (&["L'utilisateur habite à Paris"], "L'utilisateur habite à Lyon", Some(0)),
    (&["Le prix est 20 €"], "Prix: 25 €", Some(0)),
    (&["El usuario vive en Madrid"], "El usuario ahora vive en Sevilla", Some(0)),
    (&["El presupuesto es 500 EUR"], "Presupuesto: 700 EUR", Some(0)),
    (&["The project uses Python 3.11"], "The project uses Python 3.12", Some(0)),
    (&["User has 2 cats"], "User has 3 cats", Some(0)),
    (&["Team has five members"], "Team has 6 members", Some(0)),
    (&["User prefers tabs"], "User prefers spaces over tabs", Some(0)),
    (&["User prefers tabs", "User prefers dark mode"], "User prefers spaces instead of tabs", Some(0)),
    (&["The server listens on 8080"], "The server listens on 9090", Some(0)),
    (&["The room costs 90 EUR"], "The room costs 95 EUR", Some(0)),
    (&["Uploads must never exceed 5 MB"], "Uploads must never exceed 10 MB", Some(0)),
    (&["User open to recursive approaches"], "The user is open to recursive approaches", Some(0)),
    // Different keys.
    (&["Python virtualenv: .venv"], "Python version: 3.12", None),
    (&["Python: 3.11"], "Python version: 3.12", None),
    (&["Python version: 3.11"], "Node version: 20", None),
    (&["Python version in production: 3.11"], "Python version: 3.12", None),
    (&["User name: Anna"], "User nickname: Annie", None),
    (&["User name: Anna"], "Username: anna77", None),
    (&["User name: Anna"], "Project name: Apollo", None),
    (&["API port: 8080"], "API host: localhost", None),
    (&["API host: localhost"], "API hosting: Hetzner", None),
    (&["API port: 8080"], "Database port: 5432", None),
    (&["Deadline of the report: Friday"], "Deadline of the review: Monday", None),
    (&["Deadline of the report: Friday"], "Deadline: Monday", None),
    (&["Contact person: Anna"], "Contract person: Bert", None),
    (&["Internal check: daily"], "Interval check: hourly", None),
    (&["Phase 1 deadline: May 3"], "Phase 2 deadline: June 3", None),
    (&["Q1 target: 5 %"], "Q2 target: 6 %", None),
    (&["Flight from Rome to Oslo: LH 12"], "Flight from Oslo to Rome: LH 13", None),
    (&["Old office address: Main St 1"], "New office address: Side St 2", None),
    (&["Supported browsers: Firefox"], "Not supported browsers: IE", None),
    (&["C version: 17"], "C++ version: 20", None),
    (&["C# version: 12"], "C++ version: 20", None),
    (&["Primary color: blue"], "Secondary color: red", None),
    (&["Minimum price: 10"], "Maximum price: 20", None),
    (&["Frontend framework: React"], "Backend framework: Axum", None),
    (&["Staging URL: s.example"], "Production URL: p.example", None),
    (&["Mother's birthday: May 3"], "Father's birthday: June 4", None),
    (&["Home address: A 1"], "Work address: B 2", None),
    (&["Table: orders"], "User table: accounts", None),
    (&["Decision: use Postgres"], "Decision: ship in May", None),
    (&["Note: the client is slow to answer"], "Note: the office closes at 5", None),
    (&["Rule: never push to main"], "Rule: squash all commits", None),
    (&["Allergy: nuts"], "Allergy: pollen", None),
    (&["User: likes tea"], "User: works at night", None),
    (&["Anna: prefers tea"], "Anna: works at Siemens", None),
    (&["Deploys: never on Fridays"], "Deploys: must be announced", None),
    (&["Test runner: pytest"], "Text runner: foo", None),
    (&["Weight: 80 kg"], "Height: 180 cm", None),
    (&["Start date: May 3"], "End date: May 9", None),
    (&["Sorting function: quicksort"], "Search function: binary", None),
    (&["Sorting function: quicksort"], "Sorting order: descending", None),
    (&["https://x.org: down"], "https://y.org: down", None),
    // Sentences about different things.
    (&["User prefers tabs"], "User prefers dark mode", None),
    (&["User prefers tabs"], "User prefers spaces", None),
    (&["User is vegetarian"], "User is a nurse", None),
    (&["User is German"], "User is Anna", None),
    (&["Anna is tall"], "Anna is happy", None),
    (&["Anna works at Siemens"], "Bert works at Bosch", None),
    (&["User lives in Rome"], "User works in Berlin", None),
    (&["User lives in Rome"], "User's sister lives in Berlin", None),
    (&["User lives in Rome"], "User also lives in Berlin", None),
    (&["User lives in Rome in winter"], "User lives in Oslo in summer", None),
    (&["User lives in Rome"], "User does not live in Rome", None),
    (&["The API is slow"], "The API is written in Rust", None),
    (&["The budget is 500 EUR"], "The budget is tight", None),
    (&["The budget is 500 EUR"], "The budget for travel is 200 EUR", None),
    (&["The report is due Friday"], "The slides are due Friday", None),
    (&["The project uses Postgres"], "The project now uses Redis", None),
    (&["Room 12 costs 90 EUR"], "Room 14 costs 90 EUR", None),
    (&["Paid invoice 1001"], "Paid invoice 1002", None),
    (&["Sensor 3 is broken"], "Sensor 4 is broken", None),
    (&["Anna reports to Bert", "Carl reports to Dora"], "Eva reports to Bert", None),
    (&["User prefers tea over coffee"], "User prefers coffee over tea", None),
    (&["User prefers coffee"], "User prefers tea over coffee in the morning", None),
    (&["Deploy on Fridays"], "Deploy on Mondays", None),
    (&["Never deploy on Fridays"], "Deploy on Fridays", None),
    (&["We use Postgres for analytics"], "We use Postgres for billing", None),
    (&["Nutzer wohnt in Rom"], "Nutzer arbeitet in Berlin", None),
    (&["Nutzer wohnt in Rom"], "Die Schwester des Nutzers wohnt in Berlin", None),
    (&["Nutzer mag keinen Kaffee"], "Nutzer mag Kaffee", None),
    (&["L'utilisateur habite à Paris"], "L'utilisateur travaille à Lyon", None),
    (&["L'utilisateur n'aime pas le café"], "L'utilisateur aime le café", None),
    (&["El usuario vive en Madrid"], "El usuario trabaja en Sevilla", None),
    (&["Precio mínimo: 10"], "Precio máximo: 20", None),
    (&["Date de début: 3 mai"], "Date de fin: 9 mai", None),
    (&["Startdatum: 3. Mai"], "Enddatum: 9. Mai", None),
    (&["User's dog is called Rex", "User's cat is called Tom"], "The user's dog is called Max", Some(0)),
    (&["Anna's birthday is May 3"], "Anna's birthday is May 4", Some(0)),
    (&["Anna's birthday is May 3"], "Bert's birthday is May 4", None),
    (&["The meeting with Anna is on Monday"], "The meeting with Bert is on Tuesday", None),
    (&["Meeting with Anna: Monday"], "Meeting with Bert: Tuesday", None),
    (&["The office is in Berlin"], "The office is now in Hamburg", Some(0)),
    (&["The office is in Berlin"], "The office is closed", None),
    (&["User speaks German"], "User speaks French", None),
    (&["Client A pays 100 EUR", "Client B pays 100 EUR"], "Client A pays 120 EUR", Some(0)),
    (&["Language: German"], "Programming language: Rust", None),
    (&["Login endpoint: POST /login"], "Logout endpoint: POST /logout", None),
    (&["login() signature: fn(u: &str)"], "login signature: fn(u: String)", Some(0)),
    (&["Function foo: returns int"], "Function bar: returns int", None),
    (&["foo: returns int"], "foo: takes two arguments", None),
    (&["User's preferred editor is Vim"], "Preferred editor: Emacs", Some(0)),
    (&["Preferred editor: Vim"], "Editor: Emacs", None),
    (&["Target audience: children"], "Target language: German", None),
    (&["Train 5 departs at 10:30"], "Train 6 departs at 10:30", None),
    (&["User has 2 sisters"], "User has 2 brothers", None),
    (&["Termin beim Zahnarzt: Montag"], "Termin beim Hausarzt: Dienstag", None),
    (&["Der Hund des Nutzers heißt Rex"], "Nutzer heißt Hanna", None),
    (&["Le projet utilise Python 3.11"], "Le projet utilise Python 3.12", Some(0)),
    (&["El proyecto usa React"], "El proyecto usa Vue", None),
    (&["Company name: ACME", "Product name: Foo"], "Name: Bar", None),
    (&["User allergic to nuts"], "User allergic to pollen", None),
    // Two facts could be meant.
    (&["User name: Anna", "The user's name: Bea"], "Name: Cleo", None),
    (&["User"], "User", None),
    (&["Python version: 3.11"], "", None),
    (&["Python version: 3.11"], "the", None),
    (&["Python version: 3.11"], "Python", None),
];

#[rustfmt::skip]
const REMOVALS: &[Row<'_>] = &[
    (&["User open to recursive approaches", "User prefers tabs", "User lives in Rome"], "User open to recursive approaches", Some(0)),
    (&["User open to recursive approaches", "User prefers tabs"], "The user is open to recursive approaches.", Some(0)),
    (&["User open to recursive approaches", "User prefers recursive descent"], "open to recursive approach", Some(0)),
    (&["Python version: 3.11", "Python virtualenv: .venv"], "Python version", Some(0)),
    (&["Python version: 3.11", "Python virtualenv: .venv"], "Python version: 3.11", Some(0)),
    (&["Python version: 3.11"], "The user's Python version", Some(0)),
    (&["Budget: 500 EUR", "Deadline: Friday"], "Budget", Some(0)),
    (&["Sorting function: recursive quicksort"], "Sorting function: recursive", Some(0)),
    (&["User prefers tabs for indentation"], "User prefers tabs", Some(0)),
    (&["User prefers tabs"], "User no longer prefers tabs", Some(0)),
    (&["Nutzer wohnt in Rom"], "Nutzer wohnt nicht mehr in Rom", Some(0)),
    (&["Nutzer mag Kaffee"], "Der Nutzer mag Kaffee", Some(0)),
    (&["L'utilisateur aime le café"], "Utilisateur aime café", Some(0)),
    (&["El usuario prefiere té"], "Usuario prefiere té", Some(0)),
    (&["User prefers tabs", "User prefers tabs in Python"], "User prefers tabs", Some(0)),
    (&["The budget is 500 EUR"], "The budget is 500 EUR.", Some(0)),
    (&["Never deploy on Fridays"], "never deploy on fridays", Some(0)),
    (&["Meeting moved from Monday to Friday"], "meeting moved from Monday to Friday", Some(0)),
    // A short word never matches a longer statement that contains it.
    (&["User prefers Python", "Python version: 3.11"], "Python", None),
    (&["Python: used for scripts", "Python version: 3.11"], "Python", None),
    (&["User prefers Python"], "Python", None),
    (&["User prefers tabs", "User lives in Rome"], "User", None),
    (&["User prefers tabs"], "a", None),
    (&["User prefers tabs"], "", None),
    (&["User prefers tabs"], "   ", None),
    (&["User prefers tabs"], "the user", None),
    (&["User prefers tabs"], "prefers", None),
    (&["User prefers tabs"], "tabs", None),
    (&["API: v2"], "API", None),
    (&["Python version: 3.11"], "version", None),
    (&["Python version: 3.11"], "3.11", None),
    (&["Python version: 3.11"], ":", None),
    // A different value, number or negation.
    (&["Python version: 3.12"], "Python version: 3.11", None),
    (&["The budget is 600 EUR"], "The budget is 500 EUR", None),
    (&["Editor: Emacs"], "Editor: Vim", None),
    (&["User likes tabs"], "User does not like tabs", None),
    (&["User does not like tabs"], "User likes tabs", None),
    (&["Never deploy on Fridays"], "Deploy on Fridays", None),
    (&["Deploy on Fridays"], "Deploy on Mondays", None),
    (&["User must use tabs"], "User uses tabs", None),
    (&["User prefers tabs in Python"], "User prefers tabs", None),
    (&["User prefers tabs in Python", "User prefers tabs in Go"], "User prefers tabs", None),
    (&["User prefers iterative solutions"], "User prefers recursive solutions", None),
    (&["Anna reports to Bert"], "Bert reports to Anna", None),
    (&["User prefers tea over coffee"], "User prefers coffee over tea", None),
    (&["Python virtualenv: .venv"], "Python version", None),
    (&["User nickname: Annie"], "User name", None),
    (&["API host: localhost"], "API port", None),
    (&["Nutzer mag keinen Kaffee"], "Nutzer mag Kaffee", None),
    (&["L'utilisateur n'aime pas le café"], "L'utilisateur aime le café", None),
    (&["El usuario no come carne"], "El usuario come carne", None),
    (&["Paid invoice 1001", "Paid invoice 1002"], "Paid invoice 1003", None),
    (&["Backups run only at night"], "Backups run at night", None),
    (&["Uploads are limited to 5 MB"], "Uploads are limited", None),
    (&["User uses Vim", "User uses Zsh"], "User uses Emacs", None),
    (&["User was a nurse"], "User is a nurse", None),
    (&["User moved from Rome to Oslo"], "User moved from Oslo to Rome", None),
    (&["User has a dog named Rex"], "User has a dog", None),
    (&["User likes tea and coffee"], "User likes tea", None),
    (&["User likes green tea"], "User likes tea", None),
    (&["Allergies: nuts, pollen"], "Allergies: nuts", None),
    (&["Allergies: nuts and pollen"], "Allergies: pollen", None),
    (&["Must not use eval"], "Must use eval", None),
    (&["The user cannot eat nuts"], "User can eat nuts", None),
    (&["The user cannot eat nuts"], "User can't eat nuts", Some(0)),
    (&["Chapter 1: done", "Chapter 2: open"], "Chapter", None),
    (&["Chapter 1: done", "Chapter 2: open"], "Chapter 1", Some(0)),
];

// C5
#[test]
fn an_update_finds_its_fact_and_no_other() {
    check(DiffOp::Update, UPDATES);
}

// C5
#[test]
fn a_removal_finds_its_fact_and_no_other() {
    check(DiffOp::Remove, REMOVALS);
}

// C5
#[test]
fn the_table_is_hard_enough() {
    let all = UPDATES.len() + REMOVALS.len();
    let apart =
        UPDATES.iter().chain(REMOVALS).filter(|(_, _, expected)| expected.is_none()).count();
    assert!(all >= 120 && apart * 2 >= all, "{apart} of {all}");
}

// C5
#[test]
fn what_could_be_two_says_so() {
    let facts = ["User prefers tabs for Makefile targets", "User prefers tabs for shell scripts"];
    assert_eq!(match_fact(&facts, "User prefers tabs for", DiffOp::Remove), FactMatch::None);
    assert_eq!(
        match_fact(&["User name: Anna", "The user's name: Bea"], "Name: Cleo", DiffOp::Update),
        FactMatch::Ambiguous(vec![0, 1])
    );
}

// C10
#[test]
fn a_hard_fact_is_named_only_by_its_key_or_its_words() {
    for (fact, text, way, clear) in [
        ("Never deploy on Fridays", "never deploy on Fridays.", DiffOp::Remove, true),
        (
            "Deploy rule: never on Fridays",
            "Deploy rule: never on Fridays or Saturdays",
            DiffOp::Update,
            true,
        ),
        ("Never deploy the shop on Fridays", "Never deploy on Fridays", DiffOp::Remove, false),
        (
            "User must always use tabs",
            "User must always use spaces over tabs",
            DiffOp::Update,
            false,
        ),
        (
            "The budget must not exceed 500 EUR",
            "The budget must not exceed 600 EUR",
            DiffOp::Update,
            true,
        ),
    ] {
        let is_clear = matches!(match_fact_with_confidence(&[fact], text, way), (FactMatch::One(_), Some(sure)) if sure >= MatchConfidence::Clearly);
        assert_eq!(is_clear, clear, "{fact} / {text}");
    }
}

proptest::proptest! {
    // C5
    #[test]
    fn anything_can_be_asked(facts in proptest::collection::vec("\\PC{0,40}", 0..4), text in "\\PC{0,60}") {
        for way in [DiffOp::Update, DiffOp::Remove, DiffOp::Add] {
            match match_fact(&facts, &text, way) {
                FactMatch::One(at) => proptest::prop_assert!(at < facts.len()),
                FactMatch::Ambiguous(all) => proptest::prop_assert!(all.len() > 1 && all.iter().all(|at| *at < facts.len())),
                FactMatch::None => {}
            }
        }
    }

    // C5
    #[test]
    fn one_word_never_means_a_longer_statement(word in "[a-z]{1,9}", rest in "[a-z]{3,9}( [a-z]{3,9}){1,5}") {
        let facts = [format!("User {word} {rest}"), format!("{word} {rest}: {rest}")];
        proptest::prop_assert_eq!(match_fact(&facts, &word, DiffOp::Remove), FactMatch::None);
    }
}
