//! Parsed statements, as facts are compared: stop words dropped, numbers and negations normalized,
//! and the key separated from its value.
//!
//! A wrong match can destroy a fact. Words are therefore normalized only where they are the same
//! word: case, accents, plural, British and American spelling. `host` and `hosting` stay two words.

use std::collections::BTreeSet;

use icecore_text::language::Language;
use icecore_text::lexicon::{self, WordList};
use icecore_text::normalize::fold_word;

use crate::extraction::{due_dates, equivalence};
use icecore_text::phrase::expand_contraction;

/// Maximum number of words of a statement that are read.
const MAX_STATEMENT_WORDS: usize = 400;
/// Maximum number of words of a key.
const MAX_KEY_WORDS: usize = 8;

/// The role of a word in a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum WordClass {
    /// A content word.
    Content,
    /// A number, a version, a date in digits.
    Number,
    /// A weekday, a month, a day such as tomorrow.
    Day,
    Negation,
    /// A word without meaning of its own.
    StopWord,
}

/// A word in the form in which it is compared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StatementToken {
    /// Lower case, without accents and plural ending.
    pub(crate) word: String,
    /// For comparisons in which inflection does not matter.
    pub(crate) stem: String,
    /// As written, in lower case.
    pub(crate) lower: String,
    pub(crate) class: WordClass,
    /// Whether it is written like a name: capitalized inside a sentence, all capitals, or with
    /// digits.
    pub(crate) name: bool,
    /// Whether it is a possessive: `user's`.
    pub(crate) owner: bool,
}

impl StatementToken {
    fn is_content(&self) -> bool {
        self.class != WordClass::StopWord
    }
}

/// Alternative spellings and short forms.
#[rustfmt::skip]
const SPELLINGS: &[(&str, &str)] = &[
    ("colour", "color"), ("favourite", "favorite"), ("favour", "favor"), ("behaviour", "behavior"), ("centre", "center"),
    ("licence", "license"), ("programme", "program"), ("grey", "gray"), ("neighbour", "neighbor"), ("catalogue", "catalog"),
    ("dialogue", "dialog"), ("db", "database"), ("repo", "repository"), ("config", "configuration"), ("env", "environment"),
    ("postgresql", "postgres"), ("telephone", "phone"), ("telefon", "phone"), ("mail", "email"), ("adress", "address"),
    ("adresse", "address"), ("calender", "calendar"), ("javascript", "js"), ("typescript", "ts"), ("kubernetes", "k8s"),
    ("has", "have"), ("had", "have"), ("labour", "labor"), ("defence", "defense"), ("cheque", "check"), ("tyre", "tire"),
];
/// Words that end in `s` but are not plurals.
#[rustfmt::skip]
const NO_PLURALS: &[&str] = &[
    "news", "always", "less", "plus", "lens", "this", "does", "sometimes", "besides", "perhaps", "across", "whereas", "times", "gas",
    "paris", "jenkins", "redis", "postgres", "windows", "james", "texas", "dallas", "niklas", "lukas", "mars", "ss", "alles", "moins",
    "mais", "tres", "apres", "jamais", "lunes", "martes", "jueves", "viernes", "menos", "mas", "sos", "os",
];
fn singular(word: &str) -> String {
    let count = word.chars().count();
    if count < 4
        || NO_PLURALS.contains(&word)
        || !word.ends_with('s')
        || word.ends_with("ss")
        || word.ends_with("us")
        || word.ends_with("is")
    {
        return word.to_owned();
    }
    if let Some(rest) = word.strip_suffix("ies").filter(|rest| rest.len() >= 3) {
        return format!("{rest}y");
    }
    let after = ["sses", "xes", "ches", "shes", "zes"].iter().any(|ending| word.ends_with(ending));
    word.strip_suffix(if after { "es" } else { "s" }).unwrap_or(word).to_owned()
}

fn normalize_spelling(word: &str) -> String {
    if let Some((_, known)) = SPELLINGS.iter().find(|(other, _)| *other == word) {
        return (*known).to_owned();
    }
    let long = word.chars().count() >= 7;
    match word.strip_suffix("isation") {
        Some(rest) if long => format!("{rest}ization"),
        _ => match word.strip_suffix("ise") {
            Some(rest) if long && !word.ends_with("wise") && !word.ends_with("prise") => {
                format!("{rest}ize")
            }
            _ => word.to_owned(),
        },
    }
}

/// Normalizes a number for comparison: `1,000` is `1000`, `v3.12` is `3.12`, `15th` is `15`.
fn parse_number(lower: &str) -> Option<(String, Option<&'static str>)> {
    let bare = lower
        .strip_prefix('v')
        .filter(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
        .unwrap_or(lower);
    let (bare, unit) = [("€", "eur"), ("$", "usd"), ("£", "gbp"), ("%", "percent")]
        .iter()
        .find(|(sign, _)| bare.contains(sign))
        .map_or((bare.to_owned(), None), |(sign, unit)| (bare.replace(sign, ""), Some(*unit)));
    if !bare.starts_with(|c: char| c.is_ascii_digit()) && !bare.starts_with(['-', '+']) {
        return None;
    }
    if !bare.contains(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let ordinal = ["st", "nd", "rd", "th"]
        .iter()
        .find_map(|ending| bare.strip_suffix(ending))
        .unwrap_or(&bare);
    // A comma groups digits if exactly three follow each one; otherwise it is a decimal point.
    let groups: Vec<&str> = ordinal.split([',', '_', '\'']).collect();
    let grouped = groups.len() > 1
        && groups
            .iter()
            .skip(1)
            .all(|group| group.len() == 3 && group.bytes().all(|byte| byte.is_ascii_digit()));
    let plain = if grouped { groups.concat() } else { ordinal.replace(',', ".") };
    Some((plain.trim_start_matches('+').to_owned(), unit))
}

/// Splits a text into tokens.
pub(crate) fn tokenize(text: &str) -> Vec<StatementToken> {
    tokenize_from(text, true)
}

/// Like [`tokenize`]; `begins` tells whether the first word begins a sentence.
fn tokenize_from(text: &str, mut begins: bool) -> Vec<StatementToken> {
    let mut found: Vec<StatementToken> = Vec::new();
    let blank = |c: char| {
        c.is_whitespace()
            || matches!(
                c,
                '—' | '–'
                    | ';'
                    | '|'
                    | '('
                    | ')'
                    | '['
                    | ']'
                    | '"'
                    | '“'
                    | '”'
                    | '„'
                    | '«'
                    | '»'
                    | '`'
                    | '/'
                    | '='
                    | '*'
            )
    };
    for raw in text.split(blank) {
        if found.len() >= MAX_STATEMENT_WORDS {
            break;
        }
        let trimmed = raw
            .trim_start_matches(|c: char| {
                !c.is_alphanumeric() && !matches!(c, '.' | '€' | '$' | '£' | '-' | '#')
            })
            .trim_end_matches(|c: char| {
                !c.is_alphanumeric() && !matches!(c, '+' | '#' | '€' | '$' | '£' | '%')
            });
        let trimmed =
            if trimmed.contains(|c: char| c.is_alphanumeric() || matches!(c, '€' | '$' | '£')) {
                trimmed
            } else {
                ""
            };
        let ends = raw.ends_with(['.', ':', '!', '?']);
        if trimmed.is_empty() {
            begins |= ends;
            continue;
        }
        push_word(trimmed, begins, &mut found);
        begins = ends;
    }
    found
}

fn push_word(raw: &str, begins: bool, found: &mut Vec<StatementToken>) {
    let lower = raw.to_lowercase().replace(['’', '‘', 'ʼ'], "'");
    let owned = lower.strip_suffix("'s").or_else(|| lower.strip_suffix('\'')).map(str::to_owned);
    let owner = owned.is_some();
    let lower = owned.unwrap_or(lower);
    let push =
        |word: String, stem: String, lower: &str, class, name, found: &mut Vec<StatementToken>| {
            found.push(StatementToken { word, stem, lower: lower.to_owned(), class, name, owner });
        };
    if let Some((value, unit)) = parse_number(&lower) {
        push(value.clone(), value, &lower, WordClass::Number, false, found);
        if let Some(unit) = unit {
            push(unit.to_owned(), unit.to_owned(), unit, WordClass::Content, false, found);
        }
        return;
    }
    let signs = [("€", "eur"), ("$", "usd"), ("£", "gbp")];
    if let Some((_, unit)) = signs.iter().find(|(sign, _)| lower.contains(sign)) {
        let rest = signs.iter().fold(lower.clone(), |text, (sign, _)| text.replace(sign, ""));
        push((*unit).to_owned(), (*unit).to_owned(), unit, WordClass::Content, false, found);
        if !rest.is_empty() {
            push_word(&rest, begins, found);
        }
        return;
    }
    if let Some(value) = lexicon::number(&lower).map(|number| number.to_string()) {
        return push(value.clone(), value, &lower, WordClass::Number, false, found);
    }
    // "l'éditeur" is two words, as is "don't".
    if let Some((article, rest)) = lower.split_once('\'')
        && ["l", "d", "n", "j", "qu", "s", "c", "m", "t"].contains(&article)
        && !rest.is_empty()
        && rest != "t"
    {
        if article == "n" {
            push("not".into(), "not".into(), "ne", WordClass::Negation, false, found);
        }
        return push_word(rest, begins, found);
    }
    let lower = if lower == "e-mail" || lower == "e-mails" { "email".to_owned() } else { lower };
    let (first, rest) = expand_contraction(&lower);
    if rest.ends_with("not") {
        push("not".into(), "not".into(), "not", WordClass::Negation, false, found);
    }
    // `python_version` and `python-version` are two words. `e-mail` becomes one word again where
    // words are joined.
    let parts: Vec<&str> = first.split(['_', '-']).filter(|part| !part.is_empty()).collect();
    let capital = raw.starts_with(char::is_uppercase);
    let letters = raw.chars().filter(|c| c.is_alphabetic()).count();
    let shouted = letters >= 2 && raw.chars().filter(|c| c.is_alphabetic()).all(char::is_uppercase);
    let inner = raw.chars().skip(1).any(char::is_uppercase);
    let name =
        (capital && !begins) || shouted || inner || first.contains(|c: char| c.is_ascii_digit());
    if parts.len() > 1 && parts.len() <= 6 {
        for part in parts {
            push_token(part, name, shouted, owner, found);
        }
    } else {
        push_token(first, name, shouted, owner, found);
    }
}

fn push_token(
    lower: &str,
    name: bool,
    shouted: bool,
    owner: bool,
    found: &mut Vec<StatementToken>,
) {
    let bare = fold_word(lower);
    if bare.is_empty()
        || (lower == "can"
            && found
                .last()
                .is_some_and(|last| last.class == WordClass::Negation && last.lower == "not"))
    {
        return;
    }
    let mut push = |word: String, stem: String, class| {
        found.push(StatementToken {
            word,
            stem,
            lower: lower.to_owned(),
            class,
            name: name && class == WordClass::Content,
            owner,
        });
    };
    if let Some((value, _)) = parse_number(lower) {
        return push(value.clone(), value, WordClass::Number);
    }
    if shouted && bare.len() <= 4 {
        let word = normalize_spelling(&bare);
        return push(word.clone(), word, WordClass::Content);
    }
    if WordList::Negation.contains(&bare) {
        return push("not".into(), "not".into(), WordClass::Negation);
    }
    if let Some(day) = due_dates::weekday_of(lower) {
        let day = format!("weekday {day}");
        return push(day.clone(), day, WordClass::Day);
    }
    let relative =
        ["today", "tomorrow", "yesterday", "heute", "morgen", "gestern"].contains(&lower);
    let month = due_dates::is_month(lower) && (lower != "may" || name) && lower != "mar";
    if month || relative || lexicon::names_time(&[Language::French, Language::Spanish], &bare) {
        let day: String = if month { bare.chars().take(3).collect() } else { bare };
        let day = day.replace("mai", "may").replace("okt", "oct").replace("dez", "dec");
        return push(day.clone(), day, WordClass::Day);
    }
    if WordList::FactStop.contains(&bare) {
        return push(bare.clone(), bare, WordClass::StopWord);
    }
    let whole = normalize_spelling(&normalize_spelling(&singular(&normalize_spelling(&bare))));
    let stem = fold_word(&equivalence::stem(&whole));
    push(whole, stem, WordClass::Content);
}

/// The form in which the key precedes the value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum KeyHead {
    /// `Python version: 3.12`.
    Key,
    /// `The budget is 500 EUR`.
    Is,
    /// `User lives in Rome`, with the canonical verb.
    Verb(&'static str),
}

/// A normalized key or subject.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StatementKey {
    pub(crate) head: KeyHead,
    /// Its words in order, without stop words.
    pub(crate) words: Vec<String>,
    /// With stop words.
    pub(crate) whole: String,
    /// Whether it names one specific thing: `the`, `our`, `Anna's`.
    definite: bool,
    /// Whether its head noun has one value at a time.
    attribute: bool,
}

/// A parsed statement.
#[derive(Debug, Clone)]
pub(crate) struct ParsedStatement {
    pub(crate) tokens: Vec<StatementToken>,
    pub(crate) key: Option<StatementKey>,
    /// The words after the key.
    pub(crate) value: Vec<StatementToken>,
    /// Whether it names several things, so that one of them alone is incomplete.
    pub(crate) several: bool,
}

/// Things that have one value at a time.
#[rustfmt::skip]
const ATTRIBUTES: &[&str] = &[
    "version", "budget", "price", "cost", "deadline", "port", "host", "name", "nickname", "surname", "color", "size", "limit", "timeout",
    "address", "phone", "number", "email", "birthday", "age", "salary", "rent", "rate", "fee", "capacity", "quota", "status", "priority",
    "title", "language", "framework", "database", "editor", "timezone", "currency", "branch", "license", "theme", "font", "path", "url",
    "endpoint", "region", "model", "date", "time", "day", "start", "end", "location", "city", "country", "owner", "lead", "manager",
    "contact", "password", "username", "format", "encoding", "schema", "os", "linter", "formatter", "role", "job", "employer", "weight",
    "height", "diet", "room", "seat", "flight", "hotel", "destination", "threshold", "interval", "retention", "policy", "rule", "level",
    "type", "signature", "algorithm", "strategy", "style", "tone", "audience", "length", "width", "dosage", "dose", "meeting", "launch",
    "release", "plan", "discount", "margin", "stack", "runner", "tool", "provider", "hostname", "domain", "prefix", "suffix",
    "indentation", "encryption", "scheduler", "window", "frequency", "temperature", "speed", "duration", "total", "balance", "target",
    "preis", "kosten", "frist", "termin", "alter", "miete", "gehalt", "sprache", "farbe", "stadt", "wohnort", "geburtstag", "passwort",
    "datenbank", "grosse", "gewicht", "standort", "ziel", "abgabe", "zeitzone", "wahrung", "lieferdatum", "nummer",
    "prix", "nom", "ville", "couleur", "langue", "loyer", "delai", "echeance", "date", "taille", "poids", "mot", "salaire", "reunion",
    "precio", "presupuesto", "fecha", "nombre", "direccion", "ciudad", "idioma", "alquiler", "edad", "plazo", "salario", "tamano",
    "fuseau", "horario", "basededatos", "navigateur", "editeur", "color",
];
/// Things a person has one of, so that `User timezone` is the same as `Timezone`.
#[rustfmt::skip]
const PERSONAL: &[&str] = &[
    "name", "nickname", "surname", "timezone", "zone", "location", "city", "country", "age", "email", "phone", "job", "role", "employer",
    "language", "birthday", "budget", "editor", "os", "diet", "salary", "goal", "profession", "occupation", "hometown", "alter", "wohnort",
    "sprache", "geburtstag", "ville", "langue", "ciudad", "idioma", "edad", "nom", "nombre",
];
/// Labels under which several statements can hold at once.
#[rustfmt::skip]
const LABELS: &[&str] = &[
    "note", "notes", "decision", "decisions", "rule", "constraint", "preference", "preferences", "fact", "facts", "todo", "to do", "goal",
    "requirement", "question", "idea", "warning", "hint", "tip", "reminder", "important", "task", "feature", "bug", "issue", "hobby",
    "allergy", "skill", "pet", "child", "user", "the user", "assistant", "update", "info", "fyi", "context", "exception", "hard constraint",
    "hard exception", "bonus", "example", "problem", "risk", "option", "step", "summary", "correction", "user preference",
    "user note", "user decision", "user constraint", "new", "changed", "removed", "entscheidung", "hinweis", "regel", "aufgabe", "notiz",
    "nutzer", "wichtig", "vorgabe", "décision", "règle", "remarque", "préférence", "contrainte", "utilisateur", "nota", "regla",
    "decisión", "preferencia", "restricción", "usuario", "importante",
];
/// First words of a value that is a predicate: `Anna: prefers tea`.
#[rustfmt::skip]
const PREDICATES: &[&str] = &[
    "is", "are", "was", "were", "has", "have", "had", "prefers", "prefer", "likes", "like", "loves", "dislikes", "hates", "wants", "want",
    "needs", "need", "uses", "use", "works", "lives", "allergic", "must", "never", "always", "should", "can", "cannot", "can't", "will",
    "does", "do", "don't", "speaks", "owns", "plays", "knows", "asked", "decided", "plans", "planning", "willing", "open", "only", "no",
    "not", "ist", "hat", "mag", "will", "muss", "darf", "nie", "niemals", "immer", "wohnt", "arbeitet", "est", "a", "aime", "doit", "ne",
    "habite", "es", "tiene", "prefiere", "quiere", "debe", "nunca", "vive", "requires", "supports", "runs", "handles", "returns",
];

/// Verbs that give a thing one value at a time, longest first, each with its canonical word.
#[rustfmt::skip]
const VERBS: &[(&str, &str)] = &[
    ("has been moved to", "move"), ("was moved to", "move"), ("has moved to", "move"), ("moved to", "move"), ("was postponed to", "move"),
    ("was rescheduled to", "move"), ("wurde verschoben auf", "move"), ("ist umgezogen nach", "live"),
    ("is set to", "is"), ("was set to", "is"), ("was changed to", "is"), ("has changed to", "is"), ("changed to", "is"),
    ("was raised to", "is"), ("was increased to", "is"), ("was reduced to", "is"), ("was lowered to", "is"), ("amounts to", "is"),
    ("equals", "is"), ("beträgt", "is"), ("lautet", "is"),
    ("is now living in", "live"), ("is living in", "live"), ("now lives in", "live"), ("lives in", "live"), ("resides in", "live"),
    ("live in", "live"), ("wohnt in", "live"), ("lebt in", "live"), ("wohne in", "live"), ("habite à", "live"), ("habite en", "live"),
    ("vit à", "live"), ("vive en", "live"), ("vivo en", "live"), ("reside en", "live"),
    ("is based in", "based"), ("is located in", "based"), ("is headquartered in", "based"),
    ("works at", "work"), ("works for", "work"), ("work at", "work"), ("work for", "work"), ("arbeitet bei", "work"),
    ("arbeitet für", "work"), ("travaille chez", "work"), ("trabaja en", "work"), ("trabaja para", "work"),
    ("reports to", "report"), ("is married to", "married"), ("is called", "called"), ("is named", "called"), ("heißt", "called"),
    ("s'appelle", "called"), ("se llama", "called"), ("is due on", "due"), ("is due by", "due"), ("is due", "due"),
    ("starts on", "start"), ("starts at", "start"), ("begins on", "start"), ("beginnt am", "start"), ("commence le", "start"),
    ("ends on", "end"), ("ends at", "end"), ("expires on", "end"), ("endet am", "end"), ("costs", "cost"), ("kostet", "cost"),
    ("coûte", "cost"), ("cuesta", "cost"), ("weighs", "weigh"), ("wiegt", "weigh"), ("is hosted on", "hosted"),
    ("listens on", "listen"), ("runs on port", "listen"), ("is owned by", "owned"), ("is led by", "led"), ("is managed by", "managed"),
    ("was born on", "born"), ("was born in", "born in"),
    ("is", "is"), ("are", "is"), ("ist", "is"), ("sind", "is"), ("est", "is"), ("sont", "is"), ("es", "is"), ("son", "is"),
];
/// Words that make a value one of several: another day, another case, one more.
#[rustfmt::skip]
const QUALIFIERS: &[&str] = &[
    "also", "too", "another", "additionally", "second", "third", "part-time", "during", "when", "if", "unless", "sometimes", "usually",
    "weekends", "weekdays", "summer", "winter", "spring", "autumn", "morning", "mornings", "evening", "evenings", "night", "nights",
    "afternoon", "auch", "zusätzlich", "weiteres", "wenn", "falls", "manchmal", "sommer", "winter", "abends", "morgens", "aussi", "si",
    "été", "hiver", "soir", "matin", "también", "cuando", "verano", "invierno", "noche", "mañana", "formerly", "previously", "was", "were",
    "used", "or", "and", "oder", "und", "ou", "o", "et", "y", "for", "except", "while",
];

impl ParsedStatement {
    pub(crate) fn parse(text: &str) -> Self {
        let lower = text.to_lowercase();
        let joined = [
            " and ", " or ", " und ", " oder ", " et ", " ou ", " y ", " o ", ", ", " & ", " + ",
            "; ", " / ",
        ];
        Self {
            several: joined.iter().any(|joint| lower.contains(joint)),
            ..Self::parse_parts(text)
        }
    }

    fn parse_parts(text: &str) -> Self {
        let text = text.trim().trim_start_matches(['-', '*', '•', '>', ' ']);
        let text = &text[..text.floor_char_boundary(4_000)];
        if let Some((before, after)) = split_label(text) {
            if LABELS.contains(&before.to_lowercase().trim()) {
                return Self::parse_sentence(after);
            }
            let reading = Self::parse_keyed(before, after);
            if let Some(reading) = reading {
                return reading;
            }
            return Self {
                tokens: tokenize(&format!("{before} {after}")),
                key: None,
                value: Vec::new(),
                several: false,
            };
        }
        Self::parse_sentence(text)
    }

    fn parse_keyed(before: &str, after: &str) -> Option<Self> {
        let words = tokenize(before);
        let telling = words.iter().filter(|token| token.is_content()).count();
        if words.is_empty() || words.len() > MAX_KEY_WORDS || telling == 0 {
            return None;
        }
        let key = StatementKey::new(KeyHead::Key, &words, true);
        let first = after.split_whitespace().next().unwrap_or_default().to_lowercase();
        let predicate = PREDICATES.contains(&first.trim_matches([',', '.', ';']));
        if predicate && telling < 2 && !key.attribute {
            return None;
        }
        let value = tokenize(after);
        let mut all = words;
        all.extend(value.iter().cloned());
        Some(Self { tokens: all, key: Some(key), value, several: false })
    }

    fn parse_sentence(text: &str) -> Self {
        let all = tokenize(text);
        let (key, value) =
            parse_frame(text).map_or((None, Vec::new()), |(key, value)| (Some(key), value));
        Self { tokens: all, key, value, several: false }
    }

    /// The content words, without duplicates.
    pub(crate) fn content_words(&self) -> BTreeSet<&str> {
        self.tokens
            .iter()
            .filter(|token| token.is_content())
            .map(|token| token.stem.as_str())
            .collect()
    }

    pub(crate) fn numbers(&self) -> Vec<&str> {
        self.tokens
            .iter()
            .filter(|token| matches!(token.class, WordClass::Number | WordClass::Day))
            .map(|token| token.word.as_str())
            .collect()
    }

    pub(crate) fn is_negated(&self) -> bool {
        self.tokens.iter().any(|token| token.class == WordClass::Negation)
    }

    pub(crate) fn has(&self, words: &[&str]) -> bool {
        self.tokens.iter().any(|token| words.contains(&token.lower.as_str()))
    }
}

/// The text before and after a colon, if it is a label or a key.
fn split_label(text: &str) -> Option<(&str, &str)> {
    let (at, length) = text
        .match_indices(": ")
        .map(|(at, _)| (at, 2))
        .chain(text.match_indices(" = ").map(|(at, _)| (at, 3)))
        .chain(text.strip_suffix(':').map(|rest| (rest.len(), 1)))
        .min()?;
    let before = text[..at].trim();
    let long = before.split_whitespace().count() > MAX_KEY_WORDS;
    // "Meet at the station. Bring: ..." is not a key.
    let sentences = before.contains(['.', '!', '?', ',', ';'])
        && before.split_whitespace().any(|word| word.ends_with(['.', '!', '?', ',', ';']));
    (!before.is_empty() && !long && !sentences).then(|| (before, text[at + length..].trim()))
}

/// Extends a list: `Allergies: nuts` and `Allergies: pollen` become `Allergies: nuts, pollen`.
pub(crate) fn extended_list(fact: &str, more: &str) -> Option<String> {
    let ((key, _), (_, value)) = (split_label(fact.trim())?, split_label(more.trim())?);
    let last = fold_word(key.split_whitespace().next_back()?);
    let many = singular(&last) != last;
    (many && !value.is_empty())
        .then(|| format!("{}, {value}", fact.trim().trim_end_matches(['.', ',', ';'])))
}

/// Subject, verb and value of a sentence whose verb takes one value at a time.
fn parse_frame(text: &str) -> Option<(StatementKey, Vec<StatementToken>)> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let lower: Vec<String> = words
        .iter()
        .map(|word| {
            word.to_lowercase()
                .replace('’', "'")
                .trim_matches(|c: char| !c.is_alphanumeric())
                .to_owned()
        })
        .collect();
    let skips = |word: &str| {
        ["now", "jetzt", "nun", "currently", "maintenant", "ahora", "derzeit"].contains(&word)
    };
    for at in 1..words.len().min(MAX_KEY_WORDS + 2) {
        for (phrase, verb) in VERBS {
            let mut next = at;
            let met = phrase.split(' ').all(|part| {
                while next > at && lower.get(next).is_some_and(|word| skips(word)) {
                    next += 1;
                }
                let met = lower.get(next).is_some_and(|word| word == part);
                next += 1;
                met
            });
            if !met || next >= words.len() {
                continue;
            }
            // "User is now based in", with the adverb before the verb or within it.
            let subject: Vec<StatementToken> = tokenize(&words[..at].join(" "));
            let told = if *verb == "is" { KeyHead::Is } else { KeyHead::Verb(verb) };
            if words[..at].iter().any(|word| word.ends_with([',', ';', '.'])) {
                return None;
            }
            let value = tokenize_from(&words[next..].join(" "), false);
            return Some((StatementKey::new(told, &subject, false), value));
        }
    }
    None
}

/// The kind of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ValueKind {
    Amount,
    Day,
    Name,
    Other,
}

fn value_kind(value: &[StatementToken]) -> ValueKind {
    let mut telling = value.iter().filter(|token| token.is_content());
    match telling.next() {
        Some(token) if token.class == WordClass::Number => {
            if telling.next().is_some_and(|next| next.class == WordClass::Day)
                || token.word.matches('-').count() == 2
            {
                ValueKind::Day
            } else {
                ValueKind::Amount
            }
        }
        Some(token) if ["eur", "usd", "gbp"].contains(&token.word.as_str()) => ValueKind::Amount,
        Some(token) if token.class == WordClass::Day => ValueKind::Day,
        Some(token) if token.name => ValueKind::Name,
        _ => ValueKind::Other,
    }
}

impl StatementKey {
    fn new(head: KeyHead, words: &[StatementToken], explicit: bool) -> Self {
        let whole: Vec<&str> = words.iter().map(|token| token.lower.as_str()).collect();
        let dropped = |token: &StatementToken| {
            let person = ["user", "users", "nutzer", "benutzer", "utilisateur", "usuario"]
                .contains(&token.lower.as_str());
            let in_keys = ["for", "fur", "pour", "para"].contains(&token.word.as_str());
            if person
                && explicit
                && !token.owner
                && words.first().is_some_and(|first| first.lower == token.lower)
            {
                // `User table` may be a table of users; `User timezone` is the person's.
                return words.last().is_some_and(|last| PERSONAL.contains(&last.word.as_str()));
            }
            !token.is_content() || in_keys
        };
        let kept: Vec<&StatementToken> = words.iter().filter(|token| !dropped(token)).collect();
        let of = words.iter().position(|token| {
            ["of", "for", "de", "du", "des", "del", "der", "von", "für", "pour", "para", "d"]
                .contains(&token.lower.as_str())
        });
        let last = |tokens: &[StatementToken]| {
            tokens
                .iter()
                .rev()
                .find(|token| token.is_content())
                .is_some_and(|token| ATTRIBUTES.contains(&token.word.as_str()))
        };
        let attribute = last(words) || of.is_some_and(|at| last(&words[..at]));
        const DEFINITE: &[&str] = &[
            "the", "our", "my", "your", "their", "der", "die", "das", "unser", "unsere", "mein",
            "meine", "le", "la", "les", "l", "notre", "mon", "ma", "el", "los", "las", "nuestro",
            "nuestra", "mi",
        ];
        let definite =
            words.iter().any(|token| token.owner || DEFINITE.contains(&token.lower.as_str()));
        Self {
            head,
            words: kept.iter().map(|token| token.word.clone()).collect(),
            whole: whole.join(" "),
            definite,
            attribute,
        }
    }

    /// Whether two keys have the same words.
    pub(crate) fn matches(&self, other: &Self) -> bool {
        const DIRECTED: &[&str] = &[
            "from", "to", "before", "after", "over", "than", "per", "against", "nach", "vor",
            "entre", "between", "into",
        ];
        if self.words.is_empty() || other.words.is_empty() {
            return self.words.is_empty() && other.words.is_empty();
        }
        if self.words == other.words || self.words.concat() == other.words.concat() {
            return true;
        }
        if self.words.len() != other.words.len()
            || self.words.iter().any(|word| DIRECTED.contains(&word.as_str()))
        {
            return false;
        }
        let sorted = |key: &Self| {
            let mut words = key.words.clone();
            words.sort();
            words
        };
        sorted(self)
            .iter()
            .zip(sorted(other).iter())
            .all(|(one, other)| one == other || is_misspelling(one, other))
    }
}

/// Whether one word is a misspelling of the other: one letter added, missing, or two swapped. A
/// substituted letter makes a different word (`internal`, `interval`), and so does a change in a
/// short one (`contact`, `contract`).
pub(crate) fn is_misspelling(one: &str, other: &str) -> bool {
    let (a, b): (Vec<char>, Vec<char>) = (one.chars().collect(), other.chars().collect());
    let ends = a.first() == b.first() && a.last() == b.last();
    let long = a.len().min(b.len()) >= 9 && a.iter().chain(&b).all(|c| c.is_alphabetic());
    long && ends
        && strsim::osa_distance(one, other) == 1
        && (a.len() != b.len() || strsim::levenshtein(one, other) == 2)
}

/// Whether the second statement gives a value to the same thing as the first.
pub(crate) fn has_same_slot(fact: &ParsedStatement, update: &ParsedStatement) -> bool {
    let (Some(one), Some(other)) = (&fact.key, &update.key) else { return false };
    if !one.matches(other) {
        return false;
    }
    let more = [fact, update]
        .iter()
        .any(|reading| reading.has(&["also", "auch", "aussi", "también", "another", "sometimes"]));
    let qualified = || {
        more || [fact, update].iter().any(|reading| {
            reading.value.iter().any(|token| {
                QUALIFIERS.contains(&token.lower.as_str()) || token.class == WordClass::Negation
            })
        })
    };
    let (was, is) = (value_kind(&fact.value), value_kind(&update.value));
    let measured = |worth| matches!(worth, ValueKind::Amount | ValueKind::Day);
    match (&one.head, &other.head) {
        (KeyHead::Key, KeyHead::Key) => true,
        (KeyHead::Verb(verb), KeyHead::Verb(told)) => {
            (verb == told || (*told == "move" && *verb == "live" && is == ValueKind::Name))
                && !qualified()
        }
        (KeyHead::Key, KeyHead::Verb("move")) => {
            other.attribute && was == is && was != ValueKind::Other
        }
        (KeyHead::Is, KeyHead::Verb("move")) => was == is && measured(was) && !qualified(),
        (KeyHead::Verb(_), _) | (_, KeyHead::Verb(_)) => false,
        _ if one.words.is_empty() || update.value.is_empty() || fact.value.is_empty() => false,
        // One of the two is a sentence.
        _ => {
            let attribute = one.attribute || other.attribute;
            let definite = (one.definite || one.head == KeyHead::Key)
                && (other.definite || other.head == KeyHead::Key);
            let changed =
                update.has(&["now", "jetzt", "nun", "maintenant", "désormais", "ahora", "changed"]);
            let alike = was == is && (measured(was) || (was == ValueKind::Name && changed));
            // A mere word does not replace an amount or a day.
            let keeps = !measured(was) || measured(is);
            ((attribute && keeps) || (definite && alike)) && !qualified()
        }
    }
}
