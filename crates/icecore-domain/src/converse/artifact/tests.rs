//! Tests: realistic exchanges, and the artifacts stored for them.

use proptest::prelude::*;

use super::*;

fn ts() -> Moment {
    Moment::parse("2026-02-13T09:30:00+01:00").unwrap().moment
}

/// One line per candidate: speaker, kind, language, name (`!` if the user named it), extent, first
/// line.
fn describe_candidates(user: &str, assistant: &str) -> Vec<String> {
    let tell = |one: &ArtifactCandidate| {
        let name = one.name.clone().unwrap_or_else(|| "?".to_owned());
        let extent = if one.extent == ArtifactExtent::Whole {
            String::new()
        } else {
            format!(" {}", one.extent)
        };
        format!(
            "{} {} {} {name}{}{extent}: {}",
            one.by,
            one.kind,
            one.language.as_deref().unwrap_or("-"),
            if one.named { "!" } else { "" },
            one.text.lines().next().unwrap_or_default()
        )
    };
    find_artifacts(user, assistant)
        .candidates
        .iter()
        .filter(|one| one.extent != ArtifactExtent::Perhaps)
        .map(tell)
        .collect()
}

fn check(assistant: &str, expected: &[&str]) {
    assert_eq!(describe_candidates("", assistant), expected, "\n{assistant}");
}

// C11
#[test]
fn blocks_are_found_however_they_are_fenced() {
    check(
        "```python\ndef parse(x):\n    return x\n```\n",
        &["assistant code python parse: def parse(x):"],
    );
    check(
        "~~~rust\nfn quicksort() {\n}\n~~~",
        &["assistant code rust quicksort: fn quicksort() {"],
    );
    check(
        "````md\n# A\n```py\nx = 1\n```\nend of it\n````\n",
        &["assistant draft markdown a: # A"],
    );
    // A model that forgets to make the outer fence longer.
    check(
        "```markdown\n# Setup guide\n```bash\nmake\n```\nThen go on.\n```\nDone.",
        &["assistant draft markdown setup-guide: # Setup guide"],
    );
    check(
        "1. Do this:\n\n   ```js\n   function go() {\n     return 1;\n   }\n   ```\n2. Done",
        &["assistant code javascript go: function go() {"],
    );
    check(
        "```python\ndef cut_off(x):\n    return (x +",
        &["assistant code python cut_off cut: def cut_off(x):"],
    );
    check(
        "```js\r\nfunction win() {\r\n}\r\n```\r\n",
        &["assistant code javascript win: function win() {"],
    );
    check("Use ```inline``` marks.\n```not`a fence\n", &[]);
    check("```\n```\n", &[]);
    check("text ```python\nno\n", &[]);
    check(
        "```python\ndef a1():\n    pass\n```\nand\n```python\ndef b1():\n    pass\n```",
        &["assistant code python a1: def a1():", "assistant code python b1: def b1():"],
    );
}

// C11
#[test]
fn what_is_too_short_is_passed_by_unless_it_is_named() {
    check("```bash\nnpm install\n```", &[]);
    check("```bash\ncargo build --release --workspace --all-targets --locked\n```", &[]);
    check("```sh\ncd x\nmake\n```", &[]);
    check("```python\nx = 1\n```", &[]);
    check("```\nok\n```", &[]);
    check(
        "```toml title=\"rust-toolchain.toml\"\nchannel = \"1\"\n```",
        &["assistant code toml rust-toolchain.toml!: channel = \"1\""],
    );
    check(
        "```sql\nSELECT name, count(*) FROM customers GROUP BY name HAVING count(*) > 3;\n```",
        &[
            "assistant code sql ?: SELECT name, count(*) FROM customers GROUP BY name HAVING count(*) > 3;",
        ],
    );
}

// C11
#[test]
fn names_come_from_the_fence_the_line_before_the_first_line_or_the_definition() {
    let named = |before: &str, info: &str, first: &str, expected: &str| {
        let text = format!("{before}\n```{info}\n{first}\nsecond line of it\n```\n");
        let found = find_artifacts("", &text).candidates;
        let name = found.first().map(|one| {
            format!("{}{}", one.name.clone().unwrap_or_default(), if one.named { "!" } else { "" })
        });
        assert_eq!(name.as_deref().unwrap_or("none"), expected, "\n{text}");
    };
    for (before, info, first, expected) in [
        // The fence.
        ("", "python title=\"sort.py\"", "x = 1", "sort.py!"),
        ("", "python title='my sort.py'", "x = 1", "my-sort.py!"),
        ("", "src/main.rs", "fn main() {", "src-main.rs!"),
        ("", "rust:src/lib.rs", "fn main() {", "src-lib.rs!"),
        ("", "12:20:src/app.ts", "let x = 1;", "src-app.ts!"),
        ("", "js filename=app.js", "let x = 1;", "app.js!"),
        ("", "js {1,3-5} title=\"App.js\"", "let x = 1;", "app.js!"),
        ("", "python sort.py", "x = 1", "sort.py!"),
        ("", "Dockerfile", "FROM alpine", "dockerfile!"),
        ("", "{.python file=\"a/b.py\"}", "x = 1", "a-b.py!"),
        // The line before.
        ("**src/sort.py**", "python", "x = 1", "src-sort.py!"),
        ("**`src/sort.py`**:\n", "python", "x = 1", "src-sort.py!"),
        ("In sort.py:", "python", "x = 1", "sort.py!"),
        ("### `config.yaml`\n", "yaml", "a: 1", "config.yaml!"),
        ("Here's the updated `sort.py`:", "python", "x = 1", "sort.py!"),
        (
            "Now change the handler in `api/users.ts` like this:",
            "ts",
            "let x = 1;",
            "api-users.ts!",
        ),
        ("1. `Cargo.toml`", "toml", "[package]", "cargo.toml!"),
        ("**Dockerfile**", "dockerfile", "FROM alpine", "dockerfile!"),
        ("Datei: sort.py", "", "x = 1", "sort.py!"),
        // Not the line before.
        ("Run sort.py:", "bash", "python sort.py", "none"),
        ("Run sort.py with:", "python", "x = 1", ""),
        ("Output of sort.py:", "", "[1, 2, 3]", ""),
        ("In Node.js:", "js", "let x = 1;", ""),
        ("Move it from a.py to b.py:", "python", "x = 1", ""),
        ("See sort.py for more.", "python", "x = 1", ""),
        ("Install e.g. this:", "python", "x = 1", ""),
        // The first line.
        ("", "python", "# sort.py", "sort.py!"),
        ("", "rust", "// file: a.rs", "a.rs!"),
        ("", "html", "<!-- index.html -->", "index.html!"),
        ("", "css", "/* style.css */", "style.css!"),
        ("", "sql", "-- migrations/001.sql", "migrations-001.sql!"),
        ("", "python", "# sort.py - sorts numbers", "sort.py!"),
        ("", "python", "# uses helper.py to sort", ""),
        ("", "bash", "#!/bin/bash\n# deploy.sh", "deploy.sh!"),
        ("", "python", "# this sorts", ""),
        // What it defines.
        ("", "rust", "pub(crate) unsafe fn quicksort<T>(v: &[T]) {", "quicksort"),
        ("", "rust", "impl Display for X {}\nfn main() {", "display"),
        ("", "rust", "const fn weigh() {", "weigh"),
        ("", "python", "import os\nasync def fetch_all():", "fetch_all"),
        ("", "python", "class Parser(Base):", "parser"),
        ("", "js", "export default function App2() {", "app2"),
        ("", "js", "const debounce = (fn, ms) => {", "debounce"),
        ("", "js", "const limit = 5;", ""),
        ("", "go", "func (r *Reader) Next() error {", "next"),
        ("", "go", "type Queue struct {", "queue"),
        ("", "java", "public final class Ledger {", "ledger"),
        ("", "c", "static int compare_ints(const void *a, const void *b) {", "compare_ints"),
        ("", "bash", "deploy_all() {\n  true", "deploy_all"),
        ("", "sql", "CREATE TABLE IF NOT EXISTS users (", "users"),
        ("", "sql", "create or replace view active_users as", "active_users"),
        ("", "rust", "fn main() {", ""),
        ("", "python", "def main():\n    pass\ndef tidy_up():", "tidy_up"),
        ("", "", "class of 2024 was great", ""),
        // A patch of a file is not the file.
        ("**sort.py**", "diff", "-a", "sort.py.diff!"),
    ] {
        named(before, info, first, expected);
    }
}

const MAIL: &str = "Subject: Moving our meeting\n\nDear Anna,\n\ncould we move the meeting on Friday to Monday at ten? The numbers will not be \
                    ready before the weekend, and I would rather talk about real ones.\n\nBest regards,\nTom\n";

// C11
#[test]
fn drafts_are_found_where_they_are_marked() {
    let letter = "Dear Ms Weber,\n\nthank you for the offer. I would be glad to join the team in March, and I look forward to working on the new line \
                  with you.\n\nSincerely,\nPaul\n";
    let lead = |words: &str| format!("{words}\n\n{letter}\nLet me know if you want changes.");
    for (user, assistant, expected) in [
        ("Write to Anna", format!("Sure!\n\n{MAIL}\nLet me know what you think."), Some(MAIL.to_owned())),
        ("Write to Anna", format!("Sure!\n\n---\n\n{MAIL}\n---\n\nShort and polite."), Some(MAIL.to_owned())),
        ("Write to Anna", format!("To: anna@example.org\n{MAIL}"), Some(format!("To: anna@example.org\n{MAIL}"))),
        ("Accept the offer", lead("Here is the draft:"), Some(letter.to_owned())),
        ("Accept the offer", lead("Here's a revised version of the letter:"), Some(letter.to_owned())),
        ("Nimm das Angebot an", lead("Hier ist der Entwurf:"), Some(letter.to_owned())),
        ("Accept the offer", lead("**Here’s your letter:**"), Some(letter.to_owned())),
        ("Accept", format!("Here is the letter:\n\n---\n{letter}---\n\nIt is short on purpose."), Some(letter.to_owned())),
        (
            "Write a poem about the sea",
            "Of course.\n\n**The Sea**\n\nThe sea is wide,\nthe sea is deep,\nit sings at night\nthe towns to sleep.\n\nAnd when it wakes\nit rolls ashore\nand asks the sand\nfor something more.\n\nI hope you like it!".to_owned(),
            Some("**The Sea**\n\nThe sea is wide,\nthe sea is deep,\nit sings at night\nthe towns to sleep.\n\nAnd when it wakes\nit rolls ashore\nand asks the sand\nfor something more.\n".to_owned()),
        ),
        // Not drafts.
        ("How do I write a letter?", "A letter has a salutation and a sign-off. Begin with the date, and be brief. Here are some tips:\n\n- be kind\n- be short\n- be clear\n- be done\n".to_owned(), None),
        ("What is a plan?", "# Plans\n\nA plan is a list of steps.".to_owned(), None),
        ("hi", "Hello there, how can I help you today?".to_owned(), None),
        ("x", "Here are some ideas for your letter:\n\n- begin with the reason why you write, and not with the weather\n- say what you want by when and from whom exactly\n- end\n".to_owned(), None),
        ("x", "Your letter is fine. Here is what I think of it in a few words, point by point and without mercy:\n\nThe first paragraph is long, the second one is longer, and the third one should not be there at all, if you ask me.\n".to_owned(), None),
        ("What changed?", "Here is the summary of what we did so far:\n\n1. one\n2. two\n".to_owned(), None),
        ("Explain rules", "First part.\n\n---\n\nSecond part of the explanation, with quite a few words that go on for a while so that it is long enough to count.\n\n---\n\nThird.".to_owned(), None),
        ("x", "Here is the plan:\n\n```python\nprint('this is code and not a plan')\nprint(2)\n```\n".to_owned(), None),
        ("x", "Subject: short".to_owned(), None),
    ] {
        let found = find_artifacts(user, &assistant).candidates;
        let drafts: Vec<&str> = found.iter().filter(|one| one.kind == ArtifactKind::Draft && one.extent == ArtifactExtent::Whole).map(|one| one.text.as_str()).collect();
        assert_eq!(drafts, expected.as_deref().into_iter().collect::<Vec<_>>(), "\n{assistant}");
    }
    assert_eq!(
        describe_candidates("", MAIL),
        ["assistant draft - moving-our-meeting: Subject: Moving our meeting"]
    );
    assert_eq!(
        describe_candidates(MAIL, ""),
        ["user draft - moving-our-meeting: Subject: Moving our meeting"]
    );
    let fenced = format!("```text\n{MAIL}```\n");
    assert_eq!(
        describe_candidates("", &fenced),
        ["assistant draft text moving-our-meeting: Subject: Moving our meeting"]
    );
}

/// A conversation, turn by turn.
#[derive(Default)]
struct Talk {
    index: ArtifactIndex,
    lines: String,
    turn: u64,
}

impl Talk {
    fn say(&mut self, user: &str, assistant: &str) -> Vec<String> {
        self.turn += 1;
        let found = find_artifacts(user, assistant).candidates;
        let versions = assign_versions(&found, &self.index, self.turn, ts());
        for version in &versions {
            assert!(found.iter().any(|one| one.text == version.text));
            assert_eq!(Hash::of(version.text.as_bytes()), version.entry.hash);
            self.lines.push_str(&version.entry.to_line());
            self.index.add(version.entry.clone());
        }
        assert_eq!(assign_versions(&found, &self.index, self.turn, ts()), [], "settled twice");
        let (read, bad) = ArtifactIndex::parse(self.lines.as_bytes());
        assert!(bad.is_empty(), "{bad:?}");
        assert_eq!(read, self.index);
        let same = |entry: &ArtifactVersion| {
            entry.same_as.map_or(String::new(), |version| format!(" = v{version}"))
        };
        versions
            .iter()
            .map(|version| {
                format!(
                    "{} v{} {}{}",
                    version.entry.name,
                    version.entry.version,
                    version.entry.by,
                    same(&version.entry)
                )
            })
            .collect()
    }
}

fn python(text: &str) -> String {
    format!("Here you are.\n\n```python\n{text}```\n")
}

const SORT: &str = "def quicksort(items):\n    if len(items) < 2:\n        return items\n    pivot = items[0]\n    small = [x for x in items[1:] if x < pivot]\n    large = [x for x in items[1:] if x >= pivot]\n    return quicksort(small) + [pivot] + quicksort(large)\n";

// C11
#[test]
fn versions_follow_each_other() {
    let mut talk = Talk::default();
    let random = SORT.replace("items[0]", "random.choice(items)");
    assert_eq!(talk.say("Sort a list", &python(SORT)), ["quicksort v1 assistant"]);
    assert_eq!(talk.say("thanks", "You are welcome."), [""; 0]);
    assert_eq!(talk.say("random pivot please", &python(&random)), ["quicksort v2 assistant"]);
    // Repeating the same text adds no version.
    assert_eq!(talk.say(&python(&random), &python(&random)), [""; 0]);
    // Back to the first version.
    assert_eq!(
        talk.say("go back to the version from turn 1", &python(SORT)),
        ["quicksort v3 assistant = v1"]
    );
    // Different code with a different name, and a complete rewrite of a definition.
    let other = "def read_rows(path):\n    with open(path) as file:\n        return list(csv.reader(file))\n";
    assert_eq!(talk.say("read a csv", &python(other)), ["read_rows v1 assistant"]);
    let iterative = "def quicksort(values):\n    stack = [(0, len(values) - 1)]\n    while stack:\n        low, high = stack.pop()\n        part(values, low, high, stack)\n";
    assert_eq!(talk.say("iterative!", &python(iterative)), ["quicksort v4 assistant"]);
    // The user's own change counts, and so does the answer to it.
    let mine = iterative.replace("stack.pop()", "stack.pop(0)");
    let fixed = iterative.replace("len(values) - 1", "len(values) - 1, True");
    assert_eq!(
        talk.say(&python(&mine), &python(&fixed)),
        ["quicksort v5 user", "quicksort v6 assistant"]
    );
    // An excerpt with omitted lines is not a version.
    assert_eq!(
        talk.say(
            "x",
            &python("def quicksort(values):\n    # ... rest unchanged\n    return values\n")
        ),
        ["quicksort-part v1 assistant"]
    );
    // Nothing to derive a name from.
    assert_eq!(
        talk.say("x", &python("for i in range(3):\n    print(i)\n")),
        ["code-python-1 assistant".replace("-1 ", "-1 v1 ").as_str()]
    );
    assert_eq!(
        talk.say("x", &python("while True:\n    wait_for(signal)\n")),
        ["code-python-2 v1 assistant"]
    );
    let at = |turn| {
        talk.index.resolve(&ArtifactReference::new("quicksort", VersionSelector::Turn(turn)))
    };
    assert_eq!(at(0), None);
    for (turn, version) in [(1, 1), (2, 1), (3, 2), (4, 2), (5, 3), (6, 3), (7, 4), (8, 6), (99, 6)]
    {
        assert_eq!(at(turn), Some(("quicksort".to_owned(), version)), "turn {turn}");
    }
}

// C11
#[test]
fn named_files_are_what_they_are_called() {
    let mut talk = Talk::default();
    let file = |name: &str, text: &str| format!("**{name}**\n```python\n{text}```\n");
    assert_eq!(talk.say("x", &file("src/sort.py", SORT)), ["src-sort.py v1 assistant"]);
    // The same file by a shorter name; then a different file of that name with other content.
    assert_eq!(
        talk.say("x", &file("sort.py", &SORT.replace("< 2", "<= 1"))),
        ["src-sort.py v2 assistant"]
    );
    assert_eq!(
        talk.say(
            "x",
            &file(
                "tests/sort.py",
                "from sort import quicksort\nassert quicksort([2, 1]) == [1, 2]\n"
            )
        ),
        ["tests-sort.py v1 assistant"]
    );
    // Unnamed, but similar.
    assert_eq!(talk.say("x", &python(&SORT.replace("< 2", "< 3"))), ["src-sort.py v3 assistant"]);
    let two =
        format!("{}{}", file("a.py", "import a\nimport b\n"), file("b.py", "import a\nimport b\n"));
    assert_eq!(talk.say("x", &two), ["a.py v1 assistant", "b.py v1 assistant"]);
    assert_eq!(talk.index.find_by_name("src/sort.py"), Some("src-sort.py"));
    assert_eq!(talk.index.find_by_name("b"), Some("b.py"));
    assert_eq!(talk.index.find_by_name("sort.py"), None);
    assert_eq!(talk.index.get("src-sort.py", 2).unwrap().file, "artifacts/src-sort.py/v2.py");
}

// C11
#[test]
fn drafts_have_versions_too() {
    let mut talk = Talk::default();
    assert_eq!(
        talk.say("Write to Anna", &format!("Sure!\n\n{MAIL}")),
        ["moving-our-meeting v1 assistant"]
    );
    let formal = "Here is the revised email:\n\nDear Ms Schmidt,\n\nI am writing to ask whether our appointment might be held on Monday instead, since the figures in \
                  question are still being audited.\n\nYours sincerely,\nThomas\n";
    assert_eq!(talk.say("make it more formal", formal), ["moving-our-meeting v2 assistant"]);
    let user = "I changed it myself, take this:\n\nDear Ms Schmidt,\n\nI am writing to ask whether our appointment might be held on Tuesday instead, since the \
                figures in question are still being audited.\n\nYours sincerely,\nThomas\n";
    assert_eq!(talk.say(user, "Very good."), ["moving-our-meeting v3 user"]);
    assert_eq!(talk.say("Write a letter to Bob", "Here is the letter:\n\nDear Bob,\n\nthe boat is ready. Come down to the harbour whenever you like, bring the dog and the old sails, and we go out.\n\nCheers,\nTom\n"), ["draft-1 v1 assistant"]);
    let at = |text: &str| {
        ArtifactReference::find_all(text)
            .iter()
            .filter_map(|one| talk.index.resolve(one))
            .map(|(name, version)| format!("{name} v{version}"))
            .collect::<Vec<_>>()
    };
    assert_eq!(at("go back to the draft from turn 2"), ["moving-our-meeting v2"]);
    assert_eq!(at("show me the first draft"), ["draft-1 v1"]);
}

// C11
#[test]
fn what_words_refer_to() {
    let read = |text: &str| {
        let tell = |one: &ArtifactReference| {
            let kind = one.kind.map_or(String::new(), |kind| format!(" {kind}"));
            format!("{}{kind} {:?}", one.name.as_deref().unwrap_or("?"), one.at)
        };
        ArtifactReference::find_all(text).iter().map(tell).collect::<Vec<_>>().join("; ")
    };
    for (text, expected) in [
        ("Please go back to the version from turn 3", "? Turn(3)"),
        ("go back to turn 3", "? Turn(3)"),
        ("Use the code from turn 12.", "? code Turn(12)"),
        ("What did sort.py look like in turn 4?", "sort.py Turn(4)"),
        ("the version of `quicksort` from turn two", "quicksort Turn(2)"),
        ("show sort.py as of turn 3", "sort.py Turn(3)"),
        ("the code from the third turn", "? code Turn(3)"),
        ("compare the versions from turns 3 and 5", "? Turn(3); ? Turn(5)"),
        ("I liked the first draft better", "? draft First"),
        ("the second draft of the letter", "? draft Version(2)"),
        ("version 2 of sort.py", "sort.py Version(2)"),
        ("show me version 1 and 3 of sort.py", "sort.py Version(1); sort.py Version(3)"),
        ("compare version 1 with version 3", "? Version(1); ? Version(3)"),
        ("restore v2", "? Version(2)"),
        ("diff between v1 and v3 of sort.py", "sort.py Version(1); sort.py Version(3)"),
        ("the previous version was fine", "? Previous"),
        ("go back to the previous version of src/sort.py.", "src-sort.py Previous"),
        ("Take the latest version of the script", "? code Last"),
        ("the original version", "? First"),
        ("the first email draft", "? draft First"),
        ("the 2nd version", "? Version(2)"),
        // German.
        ("Nimm die Version aus Runde 3", "? Turn(3)"),
        ("zurück zu Runde 3", "? Turn(3)"),
        ("Zeig mir Version 2 von sort.py", "sort.py Version(2)"),
        ("Der erste Entwurf war besser.", "? draft First"),
        ("die vorherige Fassung bitte", "? Previous"),
        ("die letzte Version von sort.py", "sort.py Last"),
        ("den Code aus der dritten Runde", "? code Turn(3)"),
        ("der ursprüngliche Entwurf", "? draft First"),
        ("die zweite Version des Briefs", "briefs Version(2)"),
        // Markers.
        ("[[artifact:sort.py@turn-3]]", "sort.py Turn(3)"),
        ("a [[artifact:sort.py@v2]] b [[artifact:sort.py]]", "sort.py Version(2); sort.py Last"),
        ("[[ Artifact: src/Sort.py @ turn 3 ]]", "src-sort.py Turn(3)"),
        ("[[artifact:x@first]] [[artifact:x@previous]]", "x First; x Previous"),
        ("```\n[[artifact:sort.py@v2]]\nversion 3 of sort.py\n```", "sort.py Version(2)"),
        // Nothing.
        ("turn 3 degrees to the left", ""),
        ("In turn, 3 of them left", ""),
        ("I use Python version 3", ""),
        ("It needs version 3.12 of it", ""),
        ("which Node version 18 feature is that", ""),
        ("the v2 API is out", ""),
        ("a new version is out", ""),
        ("It's your turn", ""),
        ("[[artifact:]] [[artifact:x@v0]] [[artifact:x@soon]] [[note:x]] [[artifact:x", ""),
        ("version", ""),
        ("", ""),
    ] {
        assert_eq!(read(text), expected, "{text}");
    }
    // A version of something that is not an artifact resolves to nothing.
    let mut talk = Talk::default();
    talk.say("x", &python(SORT));
    let resolved = |text: &str| {
        ArtifactReference::find_all(text).iter().filter_map(|one| talk.index.resolve(one)).count()
    };
    assert_eq!(resolved("the latest version of Python"), 0);
    assert_eq!(resolved("the latest version of quicksort"), 1);
}

// C11
#[test]
fn markers_say_where_they_stand() {
    let text = "Ünïcode: [[artifact:sort.py@turn-3]] and [[artifact:a@v2]].";
    let found = find_markers(text);
    assert_eq!(
        found.iter().map(|(range, _)| &text[range.clone()]).collect::<Vec<_>>(),
        ["[[artifact:sort.py@turn-3]]", "[[artifact:a@v2]]"]
    );
    for (range, reference) in found {
        assert_eq!(reference.marker().as_deref(), Some(&text[range]));
    }
}

// C11
#[test]
fn where_two_could_be_meant_none_is() {
    let mut talk = Talk::default();
    let two = format!(
        "{}{}",
        python(SORT),
        python("def read_rows(path):\n    return list(csv.reader(open(path)))\n")
    );
    talk.say("x", &two);
    let turn = ArtifactReference { name: None, kind: None, at: VersionSelector::Turn(1) };
    assert_eq!(talk.index.resolve(&turn), None);
    assert_eq!(talk.index.candidates(&turn).len(), 2);
    talk.say("x", &python(&SORT.replace("< 2", "< 3")));
    assert_eq!(
        talk.index.resolve(&ArtifactReference {
            name: None,
            kind: Some(ArtifactKind::Code),
            at: VersionSelector::Turn(2)
        }),
        Some(("quicksort".to_owned(), 2))
    );
    assert_eq!(
        talk.index.resolve(&ArtifactReference {
            name: None,
            kind: None,
            at: VersionSelector::Previous
        }),
        Some(("quicksort".to_owned(), 1))
    );
    assert_eq!(
        talk.index.resolve(&ArtifactReference {
            name: None,
            kind: Some(ArtifactKind::Draft),
            at: VersionSelector::First
        }),
        Some(("quicksort".to_owned(), 1))
    );
}

// C11
#[test]
fn a_turn_that_is_settled_late_or_in_two_halves_comes_to_the_same() {
    let mut talk = Talk::default();
    talk.say("x", &python(SORT));
    talk.turn = 2;
    talk.say("x", &python(&SORT.replace("< 2", "< 3")));
    // Turn 2 is processed after turn 3.
    talk.turn = 1;
    assert_eq!(talk.say("x", &python(&SORT.replace("< 2", "< 4"))), ["quicksort v3 assistant"]);
    assert_eq!(talk.index.latest("quicksort").unwrap().version, 2);
    assert_eq!(talk.index.at_turn("quicksort", 2).unwrap().version, 3);
    // Only the first of two versions was written.
    let found =
        find_artifacts(&python(&SORT.replace("< 2", "< 5")), &python(&SORT.replace("< 2", "< 6")))
            .candidates;
    let both = assign_versions(&found, &talk.index, 4, ts());
    assert_eq!(both.len(), 2);
    talk.index.add(both[0].entry.clone());
    assert_eq!(assign_versions(&found, &talk.index, 4, ts()), both[1..]);
}

// C11
#[test]
fn bad_lines_are_reported_and_harmless() {
    let mut talk = Talk::default();
    talk.say("x", &python(SORT));
    let good = talk.lines.trim_end().to_owned();
    for (from, to) in [
        ("\"name\":\"quicksort\"", "\"name\":\"../x\""),
        ("artifacts/quicksort/", "artifacts/../"),
        ("artifacts/quicksort/v1", "artifacts/quicksort/../../v1"),
        ("\"version\":1", "\"version\":0"),
        ("\"kind\":\"code\"", "\"kind\":\"cat\""),
        ("\"hash\":\"", "\"hash\":\"zz"),
        ("{", "["),
    ] {
        let (index, bad) =
            ArtifactIndex::parse(format!("{}\n{good}\n", good.replacen(from, to, 1)).as_bytes());
        assert_eq!((index.names().count(), bad.len(), bad[0].line), (1, 1, 1), "{to}");
    }
    let (index, bad) = ArtifactIndex::parse(b"\xff\xfe\n\n{}\n");
    assert_eq!((index.names().count(), bad.len()), (0, 2));
    // Another program's field is preserved; the last line of a version counts.
    let more = good.replacen('{', "{\"stars\":5,", 1).replace("\"turn\":1", "\"turn\":7");
    let (index, bad) = ArtifactIndex::parse(format!("{good}\n{more}").as_bytes());
    let entry = index.get("quicksort", 1).unwrap();
    assert_eq!((bad.len(), entry.turn), (0, 7));
    assert!(entry.to_line().contains("\"stars\":5"));
}

// C11
#[test]
fn a_diff_shows_what_changed_and_no_more() {
    let numbers =
        |range: std::ops::Range<u32>| range.map(|number| format!("{number}\n")).collect::<String>();
    let check = |old: &str, new: &str, expected: &str| {
        assert_eq!(unified_diff(old, new, "a", "b"), expected)
    };
    check("x\n", "x\n", "");
    check("", "x\n", "--- a\n+++ b\n@@ -0,0 +1 @@\n+x\n");
    check("x\n", "", "--- a\n+++ b\n@@ -1 +0,0 @@\n-x\n");
    check("x", "x\n", "--- a\n+++ b\n@@ -1 +1 @@\n-x\n\\ No newline at end of file\n+x\n");
    check(
        "a\nx",
        "b\nx",
        "--- a\n+++ b\n@@ -1,2 +1,2 @@\n-a\n+b\n x\n\\ No newline at end of file\n",
    );
    check(
        &numbers(1..11),
        &numbers(1..11).replace("5\n", "five\n"),
        "--- a\n+++ b\n@@ -2,7 +2,7 @@\n 2\n 3\n 4\n-5\n+five\n 6\n 7\n 8\n",
    );
    let far = numbers(1..21).replacen("2\n", "two\n", 1).replace("19\n", "");
    check(
        &numbers(1..21),
        &far,
        "--- a\n+++ b\n@@ -1,5 +1,5 @@\n 1\n-2\n+two\n 3\n 4\n 5\n@@ -16,5 +16,4 @@\n 16\n 17\n 18\n-19\n 20\n",
    );
    assert!(
        unified_diff("a\n", &"x".repeat(1_000_000), "a", "b")
            .ends_with("-a\n… 1 more lines of this diff left out\n")
    );
    let huge = unified_diff("", &numbers(0..5_000), "a", "b");
    assert!(
        huge.ends_with("+998\n… 4001 more lines of this diff left out\n"),
        "{}",
        &huge[huge.len() - 80..]
    );
}

/// Applies a unified diff to a text.
fn apply_patch(old: &str, diff: &str) -> String {
    let old: Vec<&str> = old.split_inclusive('\n').collect();
    let (mut new, mut at) = (String::new(), 0);
    let mut lines = diff.split_inclusive('\n').skip(2).peekable();
    while let Some(line) = lines.next() {
        if let Some(head) = line.strip_prefix("@@ -") {
            let (from, count) = head
                .split(' ')
                .next()
                .unwrap()
                .split_once(',')
                .unwrap_or((head.split(' ').next().unwrap(), "1"));
            let from = from.parse::<usize>().unwrap() - usize::from(count != "0");
            new.extend(old[at..from].iter().copied());
            at = from;
            continue;
        }
        let cut = lines.peek().is_some_and(|next| next.starts_with('\\'));
        let said = if cut { &line[1..line.len() - 1] } else { &line[1..] };
        match line.as_bytes()[0] {
            b'+' => new.push_str(said),
            b' ' => {
                assert_eq!(old[at], said);
                new.push_str(said);
                at += 1;
            }
            b'-' => {
                assert_eq!(old[at], said);
                at += 1;
            }
            _ => {}
        }
    }
    new.extend(old[at..].iter().copied());
    new
}

// C11
#[test]
fn an_exchange_with_too_many_blocks_says_so() {
    let block = "```python\ndef f1():\n    pass\n```\n";
    let finds = find_artifacts(&block.repeat(70), &block.repeat(100));
    assert_eq!((finds.candidates.len(), finds.skipped), (2 * MAX_CANDIDATES, 6 + 36));
    // Skipped blocks are still code, not text.
    let long = format!(
        "```python\n{}```\n",
        "many words in a row that would make a document of it\n".repeat(10)
    )
    .repeat(100);
    assert!(find_artifacts("", &long).candidates.iter().all(|one| one.kind == ArtifactKind::Code));
}

/// Text with the marks that matter here.
fn marked_text() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just("```".to_owned()),
        Just("```python\n".to_owned()),
        Just("```md\n".to_owned()),
        Just("~~~~".to_owned()),
        Just("\n".to_owned()),
        Just("\n\n".to_owned()),
        Just("\r\n".to_owned()),
        Just("  ".to_owned()),
        Just("\t".to_owned()),
        Just("---\n".to_owned()),
        Just("# Title\n".to_owned()),
        Just("Subject: a long title\n".to_owned()),
        Just("Here is the draft:\n".to_owned()),
        Just("def parse_it(x):\n    return x + 1\n".to_owned()),
        Just("Best regards,\nTom\n".to_owned()),
        Just("[[artifact:a@v1]]".to_owned()),
        Just("the first version of sort.py from turn 3 ".to_owned()),
        Just("Let me know\n".to_owned()),
        Just("// ... existing code\n".to_owned()),
        Just("**src/a.py**\n".to_owned()),
        Just("many words stand in this line and they make it long enough to be something that is kept\n".to_owned()),
        "\\PC{0,12}",
        "[ÄÖß語😀]{1,3}",
    ];
    proptest::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    // C11
    #[test]
    fn any_exchange_is_kept_byte_for_byte_under_safe_names_and_only_once(
        turns in proptest::collection::vec((marked_text(), marked_text()), 1..5)
    ) {
        let mut index = ArtifactIndex::default();
        for (turn, (user, assistant)) in (1..).zip(&turns) {
            let finds = find_artifacts(user, assistant);
            let versions = assign_versions(&finds.candidates, &index, turn, ts());
            for version in &versions {
                let entry = &version.entry;
                prop_assert!(is_artifact_name(&entry.name), "{}", entry.name);
                prop_assert!(entry.file.parse::<crate::layout::DocPath>().is_ok(), "{}", entry.file);
                prop_assert!(index.get(&entry.name, entry.version).is_none());
                prop_assert_eq!(Hash::of(version.text.as_bytes()), entry.hash);
                // In a list, the block is indented.
                let source = if entry.by == Role::User { user } else { assistant };
                let bare = |text: &str| text.split_inclusive('\n').map(|line| line.trim_start_matches([' ', '\t'])).collect::<String>();
                prop_assert!(source.contains(&version.text) || bare(source).contains(&bare(&version.text)));
                let (read, bad) = ArtifactIndex::parse(entry.to_line().as_bytes());
                prop_assert!(bad.is_empty());
                prop_assert_eq!(read.get(&entry.name, entry.version), Some(entry));
                index.add(entry.clone());
            }
            prop_assert_eq!(assign_versions(&finds.candidates, &index, turn, ts()), vec![]);
            for reference in ArtifactReference::find_all(user) {
                index.resolve(&reference);
            }
        }
    }

    #[test]
    fn every_name_is_safe(title in "\\PC{0,100}") {
        let name = slug(&title);
        prop_assert!(is_artifact_name(&name), "{title} is {name}");
        prop_assert_eq!(slug(&name), name.clone());
        let path = format!("artifacts/{name}/v1.txt");
        prop_assert!(path.parse::<crate::layout::DocPath>().is_ok());
    }

    // C11
    #[test]
    fn a_diff_leads_from_the_old_text_to_the_new(old in "([abcé ]{0,2}\n){0,20}[ab]?", new in "([abcé ]{0,2}\n){0,20}[ab]?") {
        prop_assert_eq!(apply_patch(&old, &unified_diff(&old, &new, "a", "b")), new);
    }

    #[test]
    fn any_text_can_be_read(text in "\\PC{0,300}") {
        find_artifacts(&text, &text);
        ArtifactReference::find_all(&text);
        find_markers(&text);
    }
}

#[test]
fn names_that_some_system_reserves_are_changed() {
    for (title, expected) in [
        ("Sort.PY", "sort.py"),
        ("src/main.rs", "src-main.rs"),
        ("..", "x-"),
        (".", "x-"),
        ("", "x-"),
        ("../../etc/passwd", "etc-passwd"),
        ("CON", "x-con"),
        ("con.txt", "x-con.txt"),
        ("lpt1", "x-lpt1"),
        ("index.jsonl", "x-index.jsonl"),
        (".gitignore", "gitignore"),
        ("a  b", "a-b"),
        ("größe.py", "grosse.py"),
        ("日本.py", "py-"),
        ("a..b", "a.b"),
        ("C:\\x\\y.txt", "c-x-y.txt"),
        ("trailing.", "trailing"),
        ("it's", "its"),
    ] {
        let name = slug(title);
        assert!(
            name == expected || expected.ends_with('-') && name.starts_with(expected),
            "{title} is {name}"
        );
    }
    assert_eq!(slug(&"x".repeat(500)).len(), MAX_ARTIFACT_NAME_BYTES);
    assert!(slug(&format!("{}.py", "long name ".repeat(20))).ends_with(".py"));
}
