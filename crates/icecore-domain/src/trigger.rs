//! Triggers: words that load knowledge pages, from `recall/triggers.json` (L8).
//!
//! When a text contains one of a trigger's patterns, its pages are loaded. Patterns match whole
//! words regardless of case and spacing; in scripts without blanks a pattern matches anywhere. The
//! text is indexed once, so that thousands of patterns cost little more than one.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::ops::Range;

use icecore_text::normalize::collapse_spaces;
use icecore_text::normalize::fold_case;
use icecore_text::scripts::{is_mark, is_unspaced};
use serde::Serialize;
use serde_json::Value;

use crate::layout::DocPath;
use crate::sanitize;

/// The most triggers that are read from a file.
pub const MAX_TRIGGERS: usize = 5_000;
/// The most patterns, and the most pages, of one trigger.
pub const MAX_ITEMS: usize = 64;
/// The longest pattern.
pub const MAX_PATTERN_BYTES: usize = 200;
/// The most complaints about one file; a last one counts the rest.
pub const MAX_COMPLAINTS: usize = 50;

/// The fewest letters of a suggested name.
const MIN_NAME_CHARS: usize = 3;
/// The fewest characters of a suggested name in a script without blanks.
const MIN_UNSPACED_CHARS: usize = 2;
/// The fewest words of a name that is also known by its initials.
const MIN_INITIALS_WORDS: usize = 3;
/// The most words of a name that is also known by its initials.
const MAX_INITIALS_WORDS: usize = 6;
/// Everyday words: a page of that name would always be loaded.
const EVERYDAY_WORDS: &str = "\
    the and for are but not you all any can had has have her him his how its may new now old one our out own see she the \
    they this that then there two use via was way who why will with yes yet your about also app ask day days did file files \
    get got help home idea ideas info item just let like list log make main misc more name need note notes off other page \
    people person place plan project projects put run say set some stuff task tasks team test thing things time today \
    tomorrow tool tools top try user users want week what when where which work year yesterday of to in on at my is it a an \
    we i by or as be do company der die das und les des une los las con por que";

/// Patterns, and the pages to load when one of them occurs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trigger {
    pub patterns: Vec<String>,
    pub load: Vec<DocPath>,
    /// Written by a person; those come first.
    pub by_hand: bool,
}

/// Parses the triggers of a file, with complaints. Invalid entries are skipped and reported.
pub fn parse_triggers(text: &str) -> (Vec<Trigger>, Vec<String>) {
    let mut complaints = Complaints::default();
    let root: Value = match serde_json::from_str(text.trim_start_matches('\u{feff}')) {
        Ok(root) => root,
        Err(error) => {
            complaints.add(format!("it is not JSON: {error}"));
            return (Vec::new(), complaints.into_vec());
        }
    };
    let list = match &root {
        Value::Object(fields) => fields.get("triggers"),
        list => Some(list),
    };
    let Some(Value::Array(list)) = list else {
        complaints.add("it has no list `triggers`".into());
        return (Vec::new(), complaints.into_vec());
    };
    let mut triggers = Vec::new();
    for (at, item) in list.iter().take(MAX_TRIGGERS).enumerate() {
        let number = at + 1;
        let Value::Object(fields) = item else {
            complaints.add(format!("trigger {number} is not an object"));
            continue;
        };
        let patterns = parse_texts(fields.get("patterns"), number, "patterns", &mut complaints)
            .into_iter()
            .filter_map(|text| {
                let why = if text.len() > MAX_PATTERN_BYTES {
                    format!("is longer than {MAX_PATTERN_BYTES} bytes")
                } else if TriggerPhrase::parse(text).is_none() {
                    "has no letter and no digit".into()
                } else {
                    return Some(text.trim().to_owned());
                };
                complaints
                    .add(format!("the pattern `{}` of trigger {number} {why}", quote_input(text)));
                None
            });
        let patterns: Vec<String> = patterns.collect();
        let load = parse_texts(fields.get("load"), number, "load", &mut complaints)
            .into_iter()
            .filter_map(|text| {
                let path = text.trim().parse::<DocPath>();
                path.map_err(|error| complaints.add(format!("trigger {number}: {error}"))).ok()
            });
        let load: Vec<DocPath> = load.collect();
        if patterns.is_empty() || load.is_empty() {
            complaints.add(format!(
                "trigger {number} is skipped: it has no {}",
                if patterns.is_empty() { "pattern" } else { "page" }
            ));
            continue;
        }
        triggers.push(Trigger { patterns, load, by_hand: true });
    }
    if list.len() > MAX_TRIGGERS {
        complaints
            .add(format!("only its first {MAX_TRIGGERS} of {} triggers are used", list.len()));
    }
    (triggers, complaints.into_vec())
}

/// A list of texts, or a single text.
fn parse_texts<'a>(
    value: Option<&'a Value>,
    number: usize,
    field: &str,
    complaints: &mut Complaints,
) -> Vec<&'a str> {
    let items = match value {
        Some(Value::Array(items)) => items.as_slice(),
        Some(single @ Value::String(_)) => std::slice::from_ref(single),
        None => &[],
        Some(_) => {
            complaints.add(format!("`{field}` of trigger {number} is not a list"));
            &[]
        }
    };
    if items.len() > MAX_ITEMS {
        complaints.add(format!(
            "only the first {MAX_ITEMS} of {} `{field}` of trigger {number} are used",
            items.len()
        ));
    }
    let mut found = Vec::new();
    for item in items.iter().take(MAX_ITEMS) {
        match item {
            Value::String(text) => found.push(text.as_str()),
            _ => {
                complaints.add(format!("something in `{field}` of trigger {number} is not a text"))
            }
        }
    }
    found
}

#[derive(Default)]
struct Complaints {
    told: Vec<String>,
    more: usize,
}

impl Complaints {
    fn add(&mut self, complaint: String) {
        if self.told.len() < MAX_COMPLAINTS {
            self.told.push(complaint);
        } else {
            self.more += 1;
        }
    }

    fn into_vec(mut self) -> Vec<String> {
        if self.more > 0 {
            self.told.push(format!("and {} more", self.more));
        }
        self.told
    }
}

fn quote_input(text: &str) -> String {
    sanitize::one_line(text).chars().take(60).collect()
}

/// Suggests triggers for pages: their titles, their aliases, and the initials of long names.
pub fn suggest_triggers(pages: &[(DocPath, String, Vec<String>)]) -> Vec<Trigger> {
    pages
        .iter()
        .filter_map(|(path, title, aliases)| suggest_trigger(path, title, aliases))
        .collect()
}

fn suggest_trigger(path: &DocPath, title: &str, aliases: &[String]) -> Option<Trigger> {
    let stem = path.name().rsplit_once('.').map_or(path.name(), |(stem, _)| stem);
    let names = [title, stem].into_iter().chain(aliases.iter().map(String::as_str));
    let mut patterns: Vec<String> = Vec::new();
    let mut seen = HashSet::new();
    let mut suggest = |pattern: String| {
        if pattern.len() <= MAX_PATTERN_BYTES
            && patterns.len() < MAX_ITEMS
            && seen.insert(fold_text(&pattern))
        {
            patterns.push(pattern);
        }
    };
    for name in names.filter(|name| name.len() <= MAX_PATTERN_BYTES) {
        let key = sanitize::entity_key(name);
        let words: Vec<&str> = key.split('_').filter(|word| !word.is_empty()).collect();
        if !is_specific(&words) {
            continue;
        }
        suggest(words.join(" "));
        // A character within a name, as in `node.js`, is part of the pattern.
        let written = collapse_spaces(&fold_text(name));
        if written.contains(|c: char| !c.is_alphanumeric() && !is_mark(c) && !is_blank(c)) {
            suggest(written);
        }
        if (MIN_INITIALS_WORDS..=MAX_INITIALS_WORDS).contains(&words.len()) {
            let initials: String = words
                .iter()
                .filter_map(|word| word.chars().next())
                .filter(|c| c.is_alphabetic())
                .collect();
            if initials.chars().count() == words.len() && is_specific(&[initials.as_str()]) {
                suggest(initials.to_uppercase());
            }
        }
    }
    (!patterns.is_empty()).then(|| Trigger { patterns, load: vec![path.clone()], by_hand: false })
}

/// Whether these words together name something specific.
fn is_specific(words: &[&str]) -> bool {
    let letters = || words.iter().flat_map(|word| word.chars());
    let least = if letters().any(is_whole_word) { MIN_UNSPACED_CHARS } else { MIN_NAME_CHARS };
    letters().count() >= least
        && letters().any(char::is_alphabetic)
        && !words.iter().all(|word| EVERYDAY_WORDS.split(' ').any(|everyday| everyday == *word))
}

/// The pages that the input loads, with the matching pattern: hand-written triggers first, then
/// longer patterns; each page once.
pub fn matching_pages(triggers: &[Trigger], input: &str) -> Vec<(DocPath, String)> {
    let spoken = IndexedText::new(input);
    let mut found: Vec<(bool, Reverse<usize>, usize, &str)> = Vec::new();
    for (at, trigger) in triggers.iter().enumerate() {
        let said = trigger.patterns.iter().filter(|pattern| {
            TriggerPhrase::parse(pattern).is_some_and(|phrase| spoken.contains(&phrase))
        });
        // Of two of equal length the first counts.
        if let Some(longest) = said.min_by_key(|pattern| Reverse(pattern.chars().count())) {
            found.push((!trigger.by_hand, Reverse(longest.chars().count()), at, longest));
        }
    }
    found.sort_unstable();
    let mut seen = HashSet::new();
    let mut loaded = Vec::new();
    for (_, _, at, pattern) in found {
        let Some(trigger) = triggers.get(at) else { continue };
        loaded.extend(
            trigger
                .load
                .iter()
                .filter(|path| seen.insert(*path))
                .map(|path| (path.clone(), pattern.to_owned())),
        );
    }
    loaded
}

/// The JSON file of these triggers.
pub fn render_triggers(triggers: &[Trigger]) -> String {
    #[derive(Serialize)]
    struct Written<'a> {
        patterns: &'a [String],
        load: Vec<&'a str>,
    }
    #[derive(Serialize)]
    struct File<'a> {
        triggers: Vec<Written<'a>>,
    }
    let written = triggers.iter().map(|trigger| Written {
        patterns: &trigger.patterns,
        load: trigger.load.iter().map(DocPath::as_str).collect(),
    });
    let file = File { triggers: written.collect() };
    // Texts and lists of them always serialize.
    serde_json::to_string_pretty(&file).unwrap_or_default() + "\n"
}

/// A word of a text and its gap to the word before.
struct WordToken {
    at: Range<usize>,
    gap: WordGap,
}

/// The characters between two words.
#[derive(Debug, Clone, PartialEq, Eq)]
enum WordGap {
    /// None: two characters of a script without blanks.
    None,
    /// Blanks, hyphens, underscores: all equivalent.
    Blank,
    /// Other characters, without the blanks around them.
    Marks(Range<usize>),
}

/// Whether the character is a word of its own, because its script has no blanks between words (or,
/// as Korean, attaches endings).
fn is_whole_word(c: char) -> bool {
    is_unspaced(c) && c.is_alphanumeric()
}

fn is_blank(c: char) -> bool {
    c.is_whitespace() || matches!(c, '-' | '_' | '\u{2010}'..='\u{2015}')
}

/// The text normalized for comparison: NFKC and lower case.
fn fold_text(text: &str) -> String {
    fold_case(text).replace('ς', "σ")
}

/// The words of a folded text.
fn tokenize(folded: &str) -> Vec<WordToken> {
    let mut found: Vec<WordToken> = Vec::new();
    let mut word: Option<Range<usize>> = None;
    let mut unspaced = false;
    let push = |found: &mut Vec<WordToken>, at: Range<usize>| {
        let before = found.last().map_or(0, |token| token.at.end);
        found.push(WordToken { gap: parse_gap(folded, before..at.start), at });
    };
    for (at, c) in folded.char_indices() {
        let end = at + c.len_utf8();
        // Combining marks and joiners belong to the letter before them.
        let joins = is_mark(c) || matches!(c, '\u{200c}' | '\u{200d}');
        match &mut word {
            Some(open) if joins || (c.is_alphanumeric() && !unspaced && !is_whole_word(c)) => {
                open.end = end
            }
            _ => {
                if let Some(done) = word.take() {
                    push(&mut found, done);
                }
                if c.is_alphanumeric() {
                    word = Some(at..end);
                    unspaced = is_whole_word(c);
                }
            }
        }
    }
    if let Some(done) = word {
        push(&mut found, done);
    }
    found
}

fn parse_gap(folded: &str, between: Range<usize>) -> WordGap {
    let text = folded.get(between.clone()).unwrap_or_default();
    if text.is_empty() {
        return WordGap::None;
    }
    let marks = text.trim_matches(is_blank);
    if marks.is_empty() {
        return WordGap::Blank;
    }
    let start = between.start + (text.len() - text.trim_start_matches(is_blank).len());
    WordGap::Marks(start..start + marks.len())
}

/// A pattern prepared for search.
pub(crate) struct TriggerPhrase {
    folded: String,
    tokens: Vec<WordToken>,
    /// Characters before the first word that belong to the name, as in `.net`.
    head: Range<usize>,
    tail: Range<usize>,
}

impl TriggerPhrase {
    /// The phrase of a pattern with at least one letter or digit.
    pub(crate) fn parse(pattern: &str) -> Option<Self> {
        let folded = fold_text(pattern);
        let tokens = tokenize(&folded);
        let (first, last) = (tokens.first()?.at.start, tokens.last()?.at.end);
        let (before, after) = (folded.get(..first)?, folded.get(last..)?);
        let head = before.len() - before.trim_end_matches(['.', '#', '@', '$', '+']).len();
        let tail = after.len() - after.trim_start_matches(['+', '#']).len();
        Some(Self { head: first - head..first, tail: last..last + tail, tokens, folded })
    }

    fn text(&self, at: &Range<usize>) -> &str {
        self.folded.get(at.clone()).unwrap_or_default()
    }
}

/// A text with the positions of each of its words.
pub(crate) struct IndexedText {
    folded: String,
    tokens: Vec<WordToken>,
    places: HashMap<String, Vec<usize>>,
}

impl IndexedText {
    /// Indexes a text.
    pub(crate) fn new(text: &str) -> Self {
        let folded = fold_text(text);
        let tokens = tokenize(&folded);
        let mut places: HashMap<String, Vec<usize>> = HashMap::new();
        for (at, token) in tokens.iter().enumerate() {
            let word = folded.get(token.at.clone()).unwrap_or_default();
            match places.get_mut(word) {
                Some(places) => places.push(at),
                None => {
                    places.insert(word.to_owned(), vec![at]);
                }
            }
        }
        Self { folded, tokens, places }
    }

    /// Whether the text contains the phrase.
    pub(crate) fn contains(&self, phrase: &TriggerPhrase) -> bool {
        self.search(phrase).0
    }

    /// Whether the text contains the phrase, and the number of positions checked: only those of its
    /// rarest word.
    fn search(&self, phrase: &TriggerPhrase) -> (bool, usize) {
        let mut rarest: Option<(usize, &[usize])> = None;
        for (at, token) in phrase.tokens.iter().enumerate() {
            let Some(places) = self.places.get(phrase.text(&token.at)) else { return (false, 0) };
            if rarest.is_none_or(|(_, fewest)| places.len() < fewest.len()) {
                rarest = Some((at, places));
            }
        }
        let Some((offset, places)) = rarest else { return (false, 0) };
        let mut looked = 0;
        let found = places.iter().any(|place| {
            looked += 1;
            place.checked_sub(offset).is_some_and(|start| self.matches_at(phrase, start))
        });
        (found, looked)
    }

    fn matches_at(&self, phrase: &TriggerPhrase, start: usize) -> bool {
        let text = |at: &Range<usize>| self.folded.get(at.clone()).unwrap_or_default();
        let Some(here) = self.tokens.get(start..start + phrase.tokens.len()) else { return false };
        let same = here.iter().zip(&phrase.tokens).enumerate().all(|(at, (said, wanted))| {
            let joined = at == 0
                || match (&said.gap, &wanted.gap) {
                    (WordGap::Marks(said), WordGap::Marks(wanted)) => {
                        text(said) == phrase.text(wanted)
                    }
                    (said, wanted) => said == wanted,
                };
            joined && text(&said.at) == phrase.text(&wanted.at)
        });
        let (Some(first), Some(last)) = (here.first(), here.last()) else { return false };
        same && self
            .folded
            .get(..first.at.start)
            .is_some_and(|before| before.ends_with(phrase.text(&phrase.head)))
            && self
                .folded
                .get(last.at.end..)
                .is_some_and(|after| after.starts_with(phrase.text(&phrase.tail)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn path(text: &str) -> DocPath {
        text.parse().unwrap()
    }

    fn trigger(patterns: &[&str], load: &str, by_hand: bool) -> Trigger {
        Trigger {
            patterns: patterns.iter().map(|&text| text.into()).collect(),
            load: vec![path(load)],
            by_hand,
        }
    }

    fn check(pattern: &str, input: &str, said: bool) {
        let found = matching_pages(&[trigger(&[pattern], "knowledge/x.md", true)], input);
        assert_eq!(!found.is_empty(), said, "{pattern:?} in {input:?}");
    }

    // L8
    #[test]
    fn whole_words_are_found_whatever_their_case() {
        check("shopify", "How is Shopify doing?", true);
        check("shopify", "SHOPIFY's fees", true);
        check("shopify", "shopifying", false);
        check("shopify", "the myshopify shop", false);
        check("dress like mommy", "open Dress-Like_Mommy please", true);
        check("dress like mommy", "dress\n\tlike   mommy", true);
        check("dress-like-mommy", "dress like mommy", true);
        check("dress like mommy", "dress. Like mommy", false);
        check("dress like mommy", "dress like", false);
        check("Straße", "in der STRAßE", true);
        check("café", "CAFE\u{301}", true);
        check("ｆｕｌｌ", "full", true);
        check("ΟΔΟΣ", "οδος", true);
        check("हिन्दी", "मैं हिन्दी बोलता", true);
        check("हिन्द", "हिन्दी", false);
        check("", "anything", false);
        check("!!", "anything!!", false);
        check("x", "", false);
    }

    // L8
    #[test]
    fn scripts_without_blanks_are_found_anywhere() {
        check("東京", "明日東京に行く", true);
        check("東京", "東の京都", false);
        check("東京", "東 京", false);
        check("김철수", "김철수는 어디", true);
        check("กรุงเทพ", "ไปกรุงเทพกัน", true);
        check("tシャツ", "新しいTシャツを買う", true);
        check("シャツ", "シャ", false);
    }

    // L8
    #[test]
    fn signs_of_a_name_count() {
        check("c++", "written in C++.", true);
        check("c++", "vitamin c", false);
        check("c#", "C# it is", true);
        check(".net", "use .NET", true);
        check(".net", "net income", false);
        check("node.js", "Node.js 22", true);
        check("node.js", "node js", false);
        check("\"apollo\"", "apollo", true);
        check("R&D", "our r&d costs", true);
    }

    // L8
    #[test]
    fn hands_come_first_then_longer_patterns_and_each_page_once() {
        let triggers = [
            trigger(&["mommy"], "knowledge/a.md", false),
            trigger(&["mommy", "dress like mommy"], "knowledge/b.md", false),
            trigger(&["dress"], "knowledge/c.md", true),
            trigger(&["dress like"], "knowledge/a.md", false),
        ];
        let found = matching_pages(&triggers, "Dress like Mommy");
        let expected = [
            ("knowledge/c.md", "dress"),
            ("knowledge/b.md", "dress like mommy"),
            ("knowledge/a.md", "dress like"),
        ];
        assert_eq!(found, expected.map(|(page, pattern)| (path(page), pattern.to_owned())));
    }

    // L8
    #[test]
    fn a_file_is_read_as_far_as_it_can_be() {
        let text = r#"{"version":2,"triggers":[
            {"patterns":["shopify","dress like mommy"],"load":["knowledge/entities/dress-like-mommy.md"],"note":"x"},
            {"patterns":"apollo","load":"knowledge/apollo.md"},
            {"patterns":["!!",7,"ok"],"load":["../../etc/passwd","knowledge/ok.md"]},
            {"patterns":[],"load":["knowledge/x.md"]},
            {"patterns":["y"]},
            "odd",
            {"patterns":{"a":1},"load":["knowledge/x.md"]}
        ]}"#;
        let (triggers, complaints) = parse_triggers(text);
        let expected = [
            trigger(
                &["shopify", "dress like mommy"],
                "knowledge/entities/dress-like-mommy.md",
                true,
            ),
            trigger(&["apollo"], "knowledge/apollo.md", true),
            trigger(&["ok"], "knowledge/ok.md", true),
        ];
        assert_eq!(triggers, expected);
        assert_eq!(
            complaints,
            [
                "something in `patterns` of trigger 3 is not a text",
                "the pattern `!!` of trigger 3 has no letter and no digit",
                "trigger 3: `../../etc/passwd` is no path inside a vault: it is absolute, or has an empty, `.` or `..` part",
                "trigger 4 is skipped: it has no pattern",
                "trigger 5 is skipped: it has no page",
                "trigger 6 is not an object",
                "`patterns` of trigger 7 is not a list",
                "trigger 7 is skipped: it has no pattern",
            ]
        );
    }

    // L8
    #[test]
    fn what_is_no_json_says_where() {
        let (triggers, complaints) = parse_triggers("{\"triggers\":[\n  {]}");
        assert!(triggers.is_empty());
        assert!(
            complaints.len() == 1 && complaints[0].contains("line 2 column 4"),
            "{complaints:?}"
        );
        assert_eq!(parse_triggers("").1.len(), 1);
        assert_eq!(parse_triggers("{}").1, ["it has no list `triggers`"]);
        assert_eq!(parse_triggers("\u{feff}{\"triggers\":[]}"), (vec![], vec![]));
        let many = format!("[{}]", vec!["1"; MAX_TRIGGERS + 10].join(","));
        let (_, complaints) = parse_triggers(&many);
        assert_eq!(complaints.len(), MAX_COMPLAINTS + 1);
        assert_eq!(
            complaints.last().unwrap(),
            &format!("and {} more", MAX_TRIGGERS + 1 - MAX_COMPLAINTS)
        );
    }

    fn check_suggested(page: &str, title: &str, aliases: &[&str], patterns: &[&str]) {
        let aliases = aliases.iter().map(|&alias| alias.to_owned()).collect();
        let found = suggest_triggers(&[(path(page), title.into(), aliases)]);
        let found: Vec<&str> =
            found.iter().flat_map(|trigger| &trigger.patterns).map(String::as_str).collect();
        assert_eq!(found, patterns, "{page} {title}");
    }

    // L8
    #[test]
    fn pages_suggest_their_names() {
        check_suggested(
            "knowledge/entities/dress-like-mommy.md",
            "Dress Like Mommy",
            &["the shop", "DLM"],
            &["dress like mommy", "DLM", "the shop"],
        );
        check_suggested(
            "knowledge/entities/project.md",
            "Project",
            &["the team", "AB", "2026", ""],
            &[],
        );
        check_suggested("knowledge/nodejs.md", "Node.js", &[], &["node js", "node.js", "nodejs"]);
        // Initials that are an everyday word would always load the page.
        check_suggested(
            "knowledge/agile-review-events.md",
            "Agile Review Events",
            &[],
            &["agile review events"],
        );
        check_suggested(
            "knowledge/a-very-long-name-of-some-thing.md",
            "",
            &[],
            &["a very long name of some thing"],
        );
        check_suggested("knowledge/x.md", "東京", &["budget"], &["東京", "budget"]);
        check_suggested("knowledge/x.md", &"long ".repeat(100), &[], &[]);
    }

    // L8
    #[test]
    fn suggestions_can_be_kept() {
        let pages = [(
            path("knowledge/entities/apollo.md"),
            "Apollo \"11\"".into(),
            vec!["moon shot".into()],
        )];
        let kept: Vec<Trigger> = suggest_triggers(&pages)
            .into_iter()
            .map(|trigger| Trigger { by_hand: true, ..trigger })
            .collect();
        assert_eq!(parse_triggers(&render_triggers(&kept)), (kept, vec![]));
        assert_eq!(parse_triggers(&render_triggers(&[])), (vec![], vec![]));
    }

    // L8
    #[test]
    fn thousands_of_patterns_look_at_few_places() {
        let input = format!("{} the end of number 7", "the end is not the end ".repeat(900));
        assert!(input.len() > 20_000);
        let spoken = IndexedText::new(&input);
        let patterns = (0..5_000).flat_map(|at| {
            [format!("the end of number {at}"), format!("the {at}"), format!("missing {at}")]
        });
        let found: Vec<(bool, usize)> = patterns
            .map(|pattern| spoken.search(&TriggerPhrase::parse(&pattern).unwrap()))
            .collect();
        assert_eq!(found.iter().filter(|(said, _)| *said).count(), 1);
        let looked: usize = found.iter().map(|(_, looked)| looked).sum();
        assert!(looked <= 10, "{looked}");
    }

    proptest! {
        // L8
        #[test]
        fn reading_never_fails_and_complains_within_bounds(text in ".{0,80}|[\\[\\]{}\":,a-z ]{0,60}") {
            let (_, complaints) = parse_triggers(&text);
            prop_assert!(complaints.len() <= MAX_COMPLAINTS + 1);
        }

        // L8
        #[test]
        fn what_is_said_between_blanks_is_found(before in "\\PC{0,20}", pattern in "\\PC{1,20}", after in "\\PC{0,20}") {
            if TriggerPhrase::parse(&pattern).is_some() {
                let input = format!("{before} {pattern} {after}");
                let found = matching_pages(&[trigger(&[&pattern], "knowledge/x.md", false)], &input);
                // A combining mark needs the letter before it.
                let hangs = |text: &str| icecore_text::normalize::compose(text.trim_start()).next().is_some_and(is_mark);
                prop_assert!(found.len() == 1 || hangs(&pattern) || hangs(&after), "{:?} in {:?}", pattern, input);
            }
        }

        // L8
        #[test]
        fn suggested_names_are_found_where_they_are_said(title in "[A-Za-zéß]{3,9}( [a-z]{4,8}){0,3}") {
            let suggested = suggest_triggers(&[(path("knowledge/q.md"), title.clone(), vec![])]);
            if !suggested.is_empty() {
                prop_assert_eq!(matching_pages(&suggested, &format!("about {} now", title)).len(), 1);
            }
        }
    }
}
