//! References to artifacts in a text: "the version from turn 3", "der erste Entwurf",
//! `[[artifact:sort.py@v2]]`.

use std::borrow::Cow;
use std::ops::Range;

use super::{ArtifactKind, fence, naming};

/// Maximum number of references read from one text.
pub const MAX_REFERENCES: usize = 16;
/// Maximum number of markers replaced in one text.
const MAX_MARKERS: usize = 64;
/// Maximum length of a marker, in bytes.
const MAX_MARKER_BYTES: usize = 200;
/// Maximum distance in words between a reference and the file name it belongs to.
const NEARBY_WORDS: usize = 8;

/// Selects a version of an artifact.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum VersionSelector {
    /// The version that was current at the end of a turn.
    Turn(u64),
    Version(u32),
    First,
    Last,
    /// The version before the newest.
    Previous,
}

/// A reference to a version of an artifact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArtifactReference {
    /// The artifact, if the text names it.
    pub name: Option<String>,
    /// The kind of artifact that the words mention: "the code from turn 3".
    pub kind: Option<ArtifactKind>,
    pub at: VersionSelector,
}

impl ArtifactReference {
    /// A reference to an artifact by its name.
    pub fn new(name: &str, at: VersionSelector) -> Self {
        Self { name: Some(naming::slug(name)), kind: None, at }
    }

    /// The marker for this reference, if it names its artifact.
    pub fn marker(&self) -> Option<String> {
        let at = match self.at {
            VersionSelector::Turn(turn) => format!("@turn-{turn}"),
            VersionSelector::Version(version) => format!("@v{version}"),
            VersionSelector::First => "@first".to_owned(),
            VersionSelector::Previous => "@previous".to_owned(),
            VersionSelector::Last => String::new(),
        };
        self.name.as_ref().map(|name| format!("[[artifact:{name}{at}]]"))
    }

    /// The references in a text, in order and without duplicates. In code, only markers count.
    pub fn find_all(text: &str) -> Vec<Self> {
        let mut found: Vec<(usize, Self)> = find_markers(text)
            .into_iter()
            .map(|(range, reference)| (range.start, reference))
            .collect();
        let blocks = fence::fenced_blocks(text);
        let mut from = 0;
        for (start, end) in
            blocks.iter().map(|block| (block.start, block.end)).chain([(text.len(), text.len())])
        {
            find_spoken_references(&text[from..start], from, &mut found);
            from = end;
        }
        found.sort_by_key(|(at, _)| *at);
        let mut references: Vec<Self> = Vec::new();
        for (_, reference) in found {
            if references.len() < MAX_REFERENCES && !references.contains(&reference) {
                references.push(reference);
            }
        }
        references
    }
}

/// The markers of a text, with their references.
pub fn find_markers(text: &str) -> Vec<(Range<usize>, ArtifactReference)> {
    let mut found = Vec::new();
    let mut from = 0;
    while let Some(at) = memchr::memmem::find(&text.as_bytes()[from..], b"[[").map(|at| from + at) {
        from = at + 1;
        let window = &text[at + 2..text.floor_char_boundary(at + MAX_MARKER_BYTES)];
        let key = window.trim_start();
        if !key.get(..8).is_some_and(|key| key.eq_ignore_ascii_case("artifact")) {
            continue;
        }
        let Some(inner) = window.find("]]").map(|end| &window[..end]) else { continue };
        let Some(reference) = parse_marker(inner) else { continue };
        let end = at + 2 + inner.len() + 2;
        found.push((at..end, reference));
        from = end;
        if found.len() == MAX_MARKERS {
            break;
        }
    }
    found
}

fn parse_marker(inner: &str) -> Option<ArtifactReference> {
    let (key, rest) = inner.split_once(':')?;
    if !key.trim().eq_ignore_ascii_case("artifact") || rest.contains(['\n', '[']) {
        return None;
    }
    let (name, at) = rest.rsplit_once('@').map_or((rest, ""), |(name, at)| (name, at));
    let at = at.trim().to_ascii_lowercase();
    let number = |keys: &[&str]| {
        keys.iter()
            .find_map(|key| at.strip_prefix(key))
            .map(|rest| rest.trim_matches([' ', '-', '_', '=', ':']))
    };
    let at = match at.as_str() {
        "" | "last" | "latest" | "newest" | "current" => VersionSelector::Last,
        "first" | "original" => VersionSelector::First,
        "previous" | "before" => VersionSelector::Previous,
        _ => match (number(&["turn", "t", "runde"]), number(&["version", "v"])) {
            (_, Some(version)) => {
                VersionSelector::Version(version.parse().ok().filter(|version| *version > 0)?)
            }
            (Some(turn), _) => VersionSelector::Turn(turn.parse().ok()?),
            _ => return None,
        },
    };
    name.chars().any(char::is_alphanumeric).then(|| ArtifactReference::new(name, at))
}

/// A word in the form in which it is compared.
struct ReferenceWord<'a> {
    at: usize,
    /// As written.
    raw: &'a str,
    /// Lower case, without surrounding punctuation.
    plain: Cow<'a, str>,
    /// Index of its sentence.
    sentence: usize,
    /// Whether it is inside quotes or code marks.
    quoted: bool,
}

const VERSION_NOUNS: &[&str] = &[
    "version",
    "versions",
    "versionen",
    "fassung",
    "fassungen",
    "revision",
    "revisions",
    "iteration",
    "stand",
    "variante",
];
const DRAFT_NOUNS: &[&str] =
    &["draft", "drafts", "entwurf", "entwurfs", "entwürfe", "attempt", "versuch"];
const TEXT_NOUNS: &[&str] = &[
    "letter",
    "email",
    "e-mail",
    "mail",
    "poem",
    "essay",
    "article",
    "text",
    "document",
    "plan",
    "story",
    "speech",
    "report",
    "proposal",
    "brief",
    "gedicht",
    "aufsatz",
    "artikel",
    "dokument",
    "rede",
    "bericht",
    "geschichte",
    "anschreiben",
];
const CODE_NOUNS: &[&str] = &[
    "code",
    "function",
    "script",
    "snippet",
    "implementation",
    "program",
    "class",
    "query",
    "programm",
    "skript",
    "funktion",
    "klasse",
    "implementierung",
    "abfrage",
];
const SOURCE_PREPOSITIONS: &[&str] = &[
    "from", "of", "at", "in", "aus", "von", "vom", "nach", "after", "to", "zu", "zur", "der",
    "back", "since", "as", "and", "und", "bei",
];
const REQUEST_WORDS: &[&str] = &[
    "back",
    "restore",
    "revert",
    "show",
    "compare",
    "diff",
    "use",
    "take",
    "return",
    "give",
    "bring",
    "rollback",
    "undo",
    "between",
    "again",
    "prefer",
    "liked",
    "like",
    "keep",
    "zurück",
    "zeig",
    "zeige",
    "vergleiche",
    "nimm",
    "gib",
    "wiederherstellen",
    "nochmal",
    "zwischen",
    "better",
    "gefiel",
    "original",
    "want",
    "need",
    "where",
    "what",
    "was",
    "wo",
];
const ARTICLES: &[&str] = &[
    "the", "my", "your", "our", "this", "that", "its", "their", "a", "an", "der", "die", "das",
    "dem", "den", "des", "mein", "meine", "meinem", "meiner", "meines", "dein", "deine", "deinem",
    "deiner", "deines", "unser", "unsere", "unserem", "unserer", "diesem", "dieser", "dieses",
];
const TURN_NOUNS: &[&str] =
    &["turn", "turns", "runde", "runden", "zug", "nachricht", "message", "exchange"];

/// Finds references in plain words.
fn find_spoken_references(text: &str, offset: usize, found: &mut Vec<(usize, ArtifactReference)>) {
    let words = split_words(text);
    let mut at = 0;
    while at < words.len() {
        let before = found.len();
        let word = words[at].plain.as_ref();
        if TURN_NOUNS.contains(&word) {
            find_turn_references(&words, at, offset, found);
        } else if VERSION_NOUNS.contains(&word) || DRAFT_NOUNS.contains(&word) {
            find_version_references(&words, at, offset, found);
        } else if let Some(number) = word
            .strip_prefix('v')
            .and_then(|rest| rest.parse::<u32>().ok())
            .filter(|number| (1..1000).contains(number))
        {
            // `v2` alone is ambiguous; the text must ask for it or name the artifact.
            if is_requested(&words, at) || named_after(&words, at).is_some() {
                let (name, kind) = reference_target(&words, at);
                found.push((
                    offset + words[at].at,
                    ArtifactReference { name, kind, at: VersionSelector::Version(number) },
                ));
            }
        }
        if found.len() > before + MAX_REFERENCES || found.len() > 4 * MAX_REFERENCES {
            return;
        }
        at += 1;
    }
}

fn split_words(text: &str) -> Vec<ReferenceWord<'_>> {
    let (mut words, mut sentence) = (Vec::new(), 0);
    let base = text.as_ptr() as usize;
    for line in text.split('\n') {
        sentence += 1;
        for raw in line.split_whitespace() {
            let inner = raw.trim_matches(|c: char| !c.is_alphanumeric());
            let quoted = raw.starts_with(['`', '"', '\'', '“', '„', '*', '«']);
            // Words longer than any name or keyword are irrelevant.
            let plain = match inner {
                long if long.len() > 120 => Cow::Borrowed(""),
                small if small.bytes().all(|b| b.is_ascii() && !b.is_ascii_uppercase()) => {
                    Cow::Borrowed(small)
                }
                _ => Cow::Owned(inner.to_lowercase()),
            };
            words.push(ReferenceWord {
                at: raw.as_ptr() as usize - base,
                raw,
                plain,
                sentence,
                quoted,
            });
            if raw.trim_end_matches(['"', ')', '”', '*', '`']).ends_with(['.', '!', '?', ';']) {
                sentence += 1;
            }
        }
    }
    words
}

fn parse_number(word: &str) -> Option<u64> {
    const SPELT: &[(&str, &str)] = &[
        ("one", "eins"),
        ("two", "zwei"),
        ("three", "drei"),
        ("four", "vier"),
        ("five", "fünf"),
        ("six", "sechs"),
        ("seven", "sieben"),
        ("eight", "acht"),
        ("nine", "neun"),
        ("ten", "zehn"),
    ];
    let spelt = SPELT
        .iter()
        .zip(1..)
        .find(|((english, german), _)| *english == word || *german == word)
        .map(|(_, number)| number);
    word.trim_start_matches('#').parse().ok().or(spelt)
}

/// Parses "first" to "tenth".
fn parse_ordinal(word: &str) -> Option<u32> {
    const ENGLISH: &[&str] = &[
        "first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth",
        "tenth",
    ];
    const GERMAN: &[&str] = &[
        "erste", "zweite", "dritte", "vierte", "fünfte", "sechste", "siebte", "achte", "neunte",
        "zehnte",
    ];
    let german = |stem: &str| {
        word.strip_prefix(stem).is_some_and(|rest| ["", "r", "n", "s", "m"].contains(&rest))
    };
    let digits = ["st", "nd", "rd", "th"]
        .iter()
        .find_map(|end| word.strip_suffix(end))
        .and_then(|digits| digits.parse().ok());
    let spelt = (1..)
        .zip(ENGLISH.iter().zip(GERMAN))
        .find(|(_, (english, stem))| **english == word || german(stem))
        .map(|(number, _)| number);
    spelt.or(digits).filter(|number| *number > 0)
}

/// The version that an adjective before "version" selects.
fn adjective_selector(word: &str) -> Option<VersionSelector> {
    let german = |stem: &str| {
        word.strip_prefix(stem).is_some_and(|rest| ["e", "er", "en", "es", "em"].contains(&rest))
    };
    match word {
        "original" | "initial" | "earliest" => Some(VersionSelector::First),
        "previous" | "prior" | "preceding" | "earlier" => Some(VersionSelector::Previous),
        "last" | "latest" | "newest" | "current" | "final" => Some(VersionSelector::Last),
        _ if german("ursprünglich") || german("allererst") => Some(VersionSelector::First),
        _ if german("vorherig")
            || german("vorig")
            || german("früher")
            || german("vorangegangen") =>
        {
            Some(VersionSelector::Previous)
        }
        _ if german("letzt") || german("neuest") || german("aktuell") || german("jüngst") => {
            Some(VersionSelector::Last)
        }
        _ => parse_ordinal(word).map(|number| {
            if number == 1 { VersionSelector::First } else { VersionSelector::Version(number) }
        }),
    }
}

/// The other words of the sentence within [`NEARBY_WORDS`].
fn nearby_words<'w, 'a>(
    words: &'w [ReferenceWord<'a>],
    at: usize,
) -> impl Iterator<Item = (usize, &'w ReferenceWord<'a>)> {
    let (from, until) = (at.saturating_sub(NEARBY_WORDS), (at + NEARBY_WORDS + 1).min(words.len()));
    let sentence = words[at].sentence;
    (from..until)
        .map(|place| (place, &words[place]))
        .filter(move |(_, word)| word.sentence == sentence)
}

fn is_requested(words: &[ReferenceWord<'_>], at: usize) -> bool {
    nearby_words(words, at).any(|(_, word)| REQUEST_WORDS.contains(&word.plain.as_ref()))
}

/// The name after "of": of sort.py, of the `quicksort` function.
fn named_after(words: &[ReferenceWord<'_>], at: usize) -> Option<String> {
    let sentence = words[at].sentence;
    let mut rest = words[at + 1..].iter().take(6).take_while(|word| word.sentence == sentence);
    rest.find(|word| {
        ["of", "von", "vom", "des", "der", "for", "für"].contains(&word.plain.as_ref())
    })?;
    let word = rest.find(|word| !ARTICLES.contains(&word.plain.as_ref()))?;
    let general =
        [VERSION_NOUNS, DRAFT_NOUNS, TEXT_NOUNS, CODE_NOUNS, TURN_NOUNS, SOURCE_PREPOSITIONS]
            .concat();
    let plain = word.plain.as_ref();
    if general.contains(&plain)
        || ["it", "them", "turn", "file", "datei", "yesterday", "last", "first"].contains(&plain)
        || parse_ordinal(plain).is_some()
    {
        return None;
    }
    let named =
        plain.chars().all(|c| c.is_alphanumeric() || "._-/".contains(c)) && plain.len() >= 2;
    named.then(|| naming::slug(naming::file_name(word.raw).unwrap_or(plain)))
}

/// The name and kind that a reference is about.
fn reference_target(
    words: &[ReferenceWord<'_>],
    at: usize,
) -> (Option<String>, Option<ArtifactKind>) {
    let file = || {
        nearby_words(words, at).find_map(|(_, word)| naming::file_name(word.raw)).map(naming::slug)
    };
    let quoted = || {
        let name = |word: &&ReferenceWord<'_>| {
            word.quoted
                && word.plain.len() >= 2
                && word.raw.starts_with('`')
                && word.raw[1..].contains('`')
        };
        nearby_words(words, at)
            .map(|(_, word)| word)
            .find(name)
            .map(|word| naming::slug(&word.plain))
    };
    let kind = nearby_words(words, at).find_map(|(_, word)| {
        let word = word.plain.as_ref();
        if CODE_NOUNS.contains(&word) {
            Some(ArtifactKind::Code)
        } else if DRAFT_NOUNS.contains(&word) || TEXT_NOUNS.contains(&word) {
            Some(ArtifactKind::Draft)
        } else {
            None
        }
    });
    (file().or_else(quoted).or_else(|| named_after(words, at)), kind)
}

/// Finds "turn 3", "turns 3 and 5", "the third turn", "Runde 3".
fn find_turn_references(
    words: &[ReferenceWord<'_>],
    at: usize,
    offset: usize,
    found: &mut Vec<(usize, ArtifactReference)>,
) {
    let noun = |word: &ReferenceWord<'_>| {
        let plain = word.plain.as_ref();
        [VERSION_NOUNS, DRAFT_NOUNS, TEXT_NOUNS, CODE_NOUNS]
            .iter()
            .any(|list| list.contains(&plain))
            || naming::file_name(word.raw).is_some()
            || ["one", "die", "was", "what"].contains(&plain)
    };
    let before = at
        .checked_sub(1)
        .map(|before| &words[before])
        .filter(|word| word.sentence == words[at].sentence);
    let nth = before.and_then(|word| parse_ordinal(&word.plain)).map(u64::from);
    let leads = |place: usize| {
        place
            .checked_sub(1)
            .is_some_and(|before| SOURCE_PREPOSITIONS.contains(&words[before].plain.as_ref()))
    };
    let place = if nth.is_some() { at - 1 } else { at };
    // "Turn 3 degrees left" is not a reference: the text must take something from that turn or
    // return to it.
    let article =
        place.checked_sub(1).is_some_and(|before| ARTICLES.contains(&words[before].plain.as_ref()));
    let led = leads(place) || article && leads(place - 1);
    let spoken_of = nearby_words(words, at).any(|(_, word)| noun(word)) || is_requested(words, at);
    if !(led && spoken_of) {
        return;
    }
    let (name, kind) = reference_target(words, at);
    let mut push = |turn: u64| {
        found.push((
            offset + words[at].at,
            ArtifactReference { name: name.clone(), kind, at: VersionSelector::Turn(turn) },
        ))
    };
    if let Some(turn) = nth {
        return push(turn);
    }
    listed_numbers(words, at).into_iter().for_each(&mut push);
}

/// The numbers after a word: "3", "3 and 5", "2, 3 und 7".
fn listed_numbers(words: &[ReferenceWord<'_>], at: usize) -> Vec<u64> {
    let mut numbers = Vec::new();
    for word in
        words[at + 1..].iter().take(8).take_while(|word| word.sentence == words[at].sentence)
    {
        // `3.12` and `3rd` are not version or turn numbers.
        let whole = !word.raw.trim_end_matches(['.', ',', '!', '?', ';', ':', ')']).contains('.');
        match parse_number(&word.plain).filter(|_| whole) {
            Some(number) if number < 1_000_000 => numbers.push(number),
            _ if !numbers.is_empty()
                && ["and", "und", "to", "with", "mit", "bis", "or", "oder"]
                    .contains(&word.plain.as_ref()) => {}
            _ => break,
        }
    }
    numbers
}

/// Finds "version 2 of sort.py", "the first draft", "die vorherige Fassung".
fn find_version_references(
    words: &[ReferenceWord<'_>],
    at: usize,
    offset: usize,
    found: &mut Vec<(usize, ArtifactReference)>,
) {
    let before = at
        .checked_sub(1)
        .map(|before| &words[before])
        .filter(|word| word.sentence == words[at].sentence);
    let numbers = listed_numbers(words, at);
    if !numbers.is_empty() {
        // "Python version 3" is about Python.
        let free = before.is_none_or(|word| {
            let plain = word.plain.as_ref();
            [ARTICLES, SOURCE_PREPOSITIONS, REQUEST_WORDS].iter().any(|list| list.contains(&plain))
                || ["with", "mit", "is", "me", "mir", "go", "on", "auf"].contains(&plain)
                || naming::file_name(word.raw).is_some()
        });
        if free
            && (is_requested(words, at)
                || named_after(words, at).is_some()
                || nearby_words(words, at).any(|(_, word)| naming::file_name(word.raw).is_some()))
        {
            let (name, kind) = reference_target(words, at);
            let wanted = numbers
                .into_iter()
                .filter_map(|number| u32::try_from(number).ok())
                .filter(|number| *number > 0);
            found.extend(wanted.map(|number| {
                (
                    offset + words[at].at,
                    ArtifactReference {
                        name: name.clone(),
                        kind,
                        at: VersionSelector::Version(number),
                    },
                )
            }));
        }
        return;
    }
    // "the version of sort.py from turn 3" is read as a turn reference.
    let Some(before) = before else { return };
    // "the first email draft", "the previous sort.py version": one word may stand between.
    let between = at
        .checked_sub(2)
        .map(|place| &words[place])
        .filter(|word| word.sentence == words[at].sentence);
    let between = between.filter(|_| {
        TEXT_NOUNS.contains(&before.plain.as_ref())
            || CODE_NOUNS.contains(&before.plain.as_ref())
            || naming::file_name(before.raw).is_some()
    });
    let Some(which) = adjective_selector(&before.plain)
        .or_else(|| between.and_then(|word| adjective_selector(&word.plain)))
    else {
        return;
    };
    let (name, kind) = reference_target(words, at);
    found.push((offset + words[at].at, ArtifactReference { name, kind, at: which }));
}
