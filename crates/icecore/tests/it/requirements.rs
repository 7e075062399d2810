//! `docs/requirements.md` lists every demand with the tests that prove it. This checks the list,
//! and rewrites it when `ICECORE_ACCEPT` is set (`just requirements`).

use std::collections::BTreeMap;
use std::fs;

use crate::tidy::{project_files, project_root};

/// How many tests of one demand the page names; the rest is counted.
const MAX_NAMED_TESTS: usize = 6;

/// A letter of a series and a number, such as `L12`.
fn is_demand(word: &str) -> bool {
    let digits = word.strip_prefix(['P', 'C', 'Y', 'L', 'K']).unwrap_or_default();
    !digits.is_empty() && digits.len() <= 2 && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// The demands that a line above a test names: `// L2, L12` or `// P7: what exactly`.
fn demands_of(line: &str) -> Vec<String> {
    let Some(comment) = line.trim_start().strip_prefix("// ") else { return Vec::new() };
    let codes = comment.split([':', ';']).next().unwrap_or_default();
    codes
        .split([' ', ','])
        .filter(|word| !word.is_empty())
        .map_while(|word| is_demand(word).then(|| word.to_owned()))
        .collect()
}

/// The name of the test or test module that a line begins.
fn test_name(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let rest = ["fn ", "async fn ", "pub fn ", "mod "]
        .iter()
        .find_map(|start| line.strip_prefix(start))
        .or_else(|| line.strip_prefix("test('"))?;
    rest.split(['(', ' ', '\'', '{', '<']).next().filter(|name| !name.is_empty())
}

/// Every demand that tests name, with the tests as `file::name`.
fn tests_by_demand() -> BTreeMap<String, Vec<String>> {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (path, text) in project_files(".rs").into_iter().chain(project_files(".mjs")) {
        let lines: Vec<&str> = text.lines().collect();
        for (at, line) in lines.iter().enumerate() {
            let demands = demands_of(line);
            if demands.is_empty() {
                continue;
            }
            let Some(name) = lines[at + 1..].iter().take(12).find_map(|line| test_name(line))
            else {
                continue;
            };
            let short = path
                .trim_start_matches("crates/")
                .replace("/src/", "/")
                .replace("/tests/it/", "/tests/")
                .replace(".rs", "");
            for demand in demands {
                let tests = found.entry(demand).or_default();
                let test = format!("{short}::{name}");
                if !tests.contains(&test) {
                    tests.push(test);
                }
            }
        }
    }
    found
}

/// The demands that the page defines, in its order.
fn defined_demands(page: &str) -> Vec<String> {
    page.lines()
        .filter_map(|line| line.strip_prefix("- **")?.split_once("** "))
        .filter(|(code, _)| is_demand(code))
        .map(|(code, _)| code.to_owned())
        .collect()
}

fn list_of_tests(demands: &[String], tests: &BTreeMap<String, Vec<String>>) -> String {
    let mut text = String::new();
    for demand in demands {
        let Some(tests) = tests.get(demand) else {
            text.push_str(&format!("- **{demand}** open\n"));
            continue;
        };
        text.push_str(&format!("- **{demand}**"));
        for test in tests.iter().take(MAX_NAMED_TESTS) {
            text.push_str(&format!("\n  - `{test}`"));
        }
        if tests.len() > MAX_NAMED_TESTS {
            text.push_str(&format!("\n  - and {} more", tests.len() - MAX_NAMED_TESTS));
        }
        text.push('\n');
    }
    text
}

#[test]
fn the_page_of_requirements_lists_the_tests_of_every_demand() {
    let file = project_root().join("docs/requirements.md");
    let page = fs::read_to_string(&file).unwrap();
    let (head, list) =
        page.split_once("## Tests\n").expect("docs/requirements.md has no `## Tests`");
    let demands = defined_demands(head);
    assert_eq!(demands.len(), 86);
    let expected = format!("\n{}", list_of_tests(&demands, &tests_by_demand()));
    if std::env::var_os("ICECORE_ACCEPT").is_some() {
        fs::write(&file, format!("{head}## Tests\n{expected}")).unwrap();
        return;
    }
    assert!(list == expected, "docs/requirements.md is out of date; run `just requirements`");
}

/// A letter, a dot and a number: a place in a page that is not part of the repository.
fn is_foreign_code(word: &str) -> bool {
    word.split_once('.').is_some_and(|(letter, number)| {
        letter.len() == 1
            && letter.bytes().all(|byte| byte.is_ascii_uppercase())
            && !number.is_empty()
            && number.bytes().all(|byte| byte.is_ascii_digit())
    })
}

/// The comment of a line, by the ending of its file; in Markdown all of it.
fn comment_of<'a>(path: &str, line: &'a str) -> Option<&'a str> {
    let marks: &[&str] = match path.rsplit('.').next() {
        Some("md") => return Some(line),
        Some("rs" | "ts" | "tsx") => &["//", " * "],
        Some("mjs") => &["//"],
        _ => &["# "],
    };
    marks.iter().find_map(|mark| line.split_once(mark)).map(|(_, comment)| comment)
}

#[test]
fn every_demand_that_is_named_is_defined() {
    let page = fs::read_to_string(project_root().join("docs/requirements.md")).unwrap();
    let defined = defined_demands(&page);
    let endings = [".rs", ".mjs", ".ts", ".tsx", ".py", ".yaml", ".toml", ".md", "justfile"];
    let mut unknown = Vec::new();
    for (path, text) in endings.into_iter().flat_map(project_files) {
        for (at, line) in text.lines().enumerate() {
            let Some(comment) = comment_of(&path, line) else { continue };
            let words = comment.split(|c: char| !c.is_ascii_alphanumeric() && c != '.');
            // Priorities look like demands.
            let cited = words.filter(|word| {
                is_foreign_code(word.trim_end_matches('.'))
                    || is_demand(word) && !["P0", "P1", "P2", "P3"].contains(word)
            });
            for word in cited.filter(|word| !defined.contains(&(*word).to_owned())) {
                unknown.push(format!("{path}:{}: {word} is not in docs/requirements.md", at + 1));
            }
        }
    }
    assert!(unknown.is_empty(), "\n{}", unknown.join("\n"));
}
