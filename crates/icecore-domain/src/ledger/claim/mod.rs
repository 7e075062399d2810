//! Reads claims from a statement: an attribute of an entity and its value (L6).
//!
//! Sentences are matched by form: subject, a verb that gives a single value, value. A false
//! conflict costs trust, so lists, bounds, guesses, the past and attributes with several values
//! make no claims. A claim depends on one event only, so that an index can store it.

mod grammar;

use icecore_text::lexicon::{self, WordList};
use icecore_text::normalize::collapse_spaces;
use icecore_text::normalize::compose;

use self::grammar::{
    ARTICLES, COUNTING_VERBS, CURRENCIES, FILLER_WORDS, INDEFINITE_WORDS, MULTI_VALUE_NOUNS,
    NATIONALITIES, NEGATING_PARTICLES, NUMBERED_NOUNS, OPPOSITES, PARTIAL_NEGATIONS, REGIONS,
    ROLES, SINGLE_VALUE_NOUNS, SINGLE_VALUE_VERBS, SPELLING_VARIANTS, VAGUE_WORDS,
};
use crate::event::{Event, EventType};
use crate::sanitize;

/// One attribute and its value.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Claim {
    /// Entity, scope, attribute and facet, normalized.
    pub attribute: String,
    /// The value, normalized.
    pub value: String,
}

/// Longer texts are not read for claims.
const MAX_CLAIM_BYTES: usize = 400;
/// The longest sentence that is read, in words.
const MAX_SENTENCE_WORDS: usize = 24;
/// At most this many sentences of a text are read.
const MAX_SENTENCES: usize = 3;
/// The longest subject, in words.
const MAX_SUBJECT_WORDS: usize = 8;
/// The longest name that is read as a value, in words.
const MAX_NAME_WORDS: usize = 4;

/// A word of a sentence.
#[derive(Debug, Clone)]
struct ClaimWord {
    /// Lower case, with spelling variants unified.
    text: String,
    /// Whether it was capitalized like a name.
    named: bool,
    /// Whether a comma follows.
    comma: bool,
}

/// The claims of a statement. Commitments make none: two promises do not contradict each other.
pub fn claims(event: &Event) -> Vec<Claim> {
    if !event.is_statement()
        || event.kind == EventType::Commitment
        || event.content.len() > MAX_CLAIM_BYTES
    {
        return Vec::new();
    }
    let text: String = compose(&event.content).map(|c| if c == '’' { '\'' } else { c }).collect();
    let mut found = Vec::new();
    for sentence in split_sentences(&text).into_iter().take(MAX_SENTENCES) {
        let (words, key) = split_words(sentence);
        let guess = words.iter().any(|word| {
            WordList::Guess.contains(&word.text) || (word.text == "may" && !word.named)
        });
        if words.len() < 2
            || words.len() > MAX_SENTENCE_WORDS
            || guess
            || sentence.trim_end().ends_with('?')
        {
            continue;
        }
        let reader = ClaimReader { event, words: &words };
        reader.read_value(key, &mut found);
        reader.read_count(&mut found);
        reader.read_polarity(&mut found);
    }
    found.sort();
    found.dedup();
    found
}

/// Splits a text into sentences. A full stop after a number or a very short word ends none.
fn split_sentences(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut start = 0;
    for (at, c) in text.char_indices() {
        let before = text[start..at].rsplit(char::is_whitespace).next().unwrap_or_default();
        let rest = &text[at + c.len_utf8()..];
        let stops = match c {
            '\n' | ';' => true,
            '!' | '?' => rest.starts_with(char::is_whitespace),
            '.' => {
                rest.starts_with(char::is_whitespace)
                    && before.chars().count() > 3
                    && !before.ends_with(|c: char| c.is_ascii_digit())
            }
            _ => false,
        };
        if stops {
            found.push(&text[start..at + usize::from(c == '?')]);
            start = at + c.len_utf8();
        }
    }
    found.push(&text[start..]);
    found.retain(|sentence| !sentence.trim().is_empty());
    found
}

/// Splits a sentence into words, and counts the words of the key in `key: value`.
fn split_words(sentence: &str) -> (Vec<ClaimWord>, Option<usize>) {
    let mut words: Vec<ClaimWord> = Vec::new();
    let mut key = None;
    // `budget=500` becomes three words.
    let spaced = if sentence.matches('=').count() == 1 && !sentence.contains('/') {
        sentence.replace('=', " = ")
    } else {
        sentence.into()
    };
    for raw in spaced.split_whitespace().take(MAX_SENTENCE_WORDS + 1) {
        let bare = raw.trim_matches([',', '"', '`', '\'', '(', ')', '“', '”', '„', '*', '!']);
        let colon = bare.ends_with(':') && bare.len() > 1;
        let bare = bare.trim_end_matches(':');
        let bare = if bare.ends_with('.')
            && !bare.trim_end_matches('.').ends_with(|c: char| c.is_ascii_digit())
        {
            bare.trim_end_matches('.')
        } else {
            bare
        };
        if bare.is_empty() {
            continue;
        }
        let named = bare.chars().any(char::is_uppercase);
        let folded = bare.to_lowercase();
        let comma = raw.ends_with(',');
        // "10 am" is not the German word "am".
        let hour = folded == "am" && words.last().is_some_and(|word| is_number(&word.text));
        let same = SPELLING_VARIANTS
            .iter()
            .find(|(other, _)| *other == folded && !hour)
            .map_or(folded.as_str(), |(_, same)| same);
        for part in same.split(' ') {
            words.push(ClaimWord { text: part.to_owned(), named, comma });
        }
        if colon && key.is_none() {
            key = Some(words.len());
        }
    }
    if let Some(last) = words.last_mut() {
        last.comma = false;
        last.text.truncate(last.text.trim_end_matches('.').len());
    }
    words.retain(|word| !word.text.is_empty());
    (words, key.filter(|key| *key <= 4))
}

/// The subject of a sentence: a thing and its owner.
struct NamedSubject {
    head: String,
    owner: Option<String>,
    /// Whether it denotes one specific thing.
    definite: bool,
}

/// Reads the claims of one sentence of an event.
struct ClaimReader<'a> {
    event: &'a Event,
    words: &'a [ClaimWord],
}

impl ClaimReader<'_> {
    fn new_claim(&self, entity: &str, what: &str, facet: &str, value: impl Into<String>) -> Claim {
        let what = collapse_spaces(&what.replace('|', " "));
        Claim {
            attribute: format!("{}|{}|{what}|{facet}", entity.replace('|', " "), self.event.scope),
            value: value.into(),
        }
    }

    fn entity(&self) -> &str {
        self.event.entity.as_deref().unwrap_or_default()
    }

    /// Claims that the sentence holds or not, so that its negation conflicts.
    fn read_polarity(&self, found: &mut Vec<Claim>) {
        let texts: Vec<&str> = self.words.iter().map(|word| word.text.as_str()).collect();
        let mut negated = false;
        let mut bare: Vec<String> = Vec::new();
        for (at, text) in texts.iter().enumerate() {
            let next = texts.get(at + 1).copied().unwrap_or_default();
            if *text == "stopped" && next == "using" {
                negated = !negated;
            } else if *text == "using" && at > 0 && texts[at - 1] == "stopped" {
                bare.push("use".into());
            } else if NEGATING_PARTICLES.contains(text)
                && !next.starts_with(|c: char| c.is_ascii_digit())
            {
                if PARTIAL_NEGATIONS.contains(&next) {
                    return;
                }
                negated = !negated;
                if *text == "without" {
                    bare.push("with".into());
                }
            } else if let Some((_, positive)) =
                OPPOSITES.iter().find(|(negative, _)| negative == text)
            {
                negated = !negated;
                bare.push((*positive).into());
            } else if !FILLER_WORDS.contains(text) {
                bare.push(stem(text).into());
            }
        }
        if bare.len() >= 2 {
            found.push(self.new_claim(
                self.entity(),
                &bare.join(" "),
                "±",
                if negated { "no" } else { "yes" },
            ));
        }
    }

    /// Whether the words give no definite value: bounds, lists, the past, negations.
    fn is_vague(&self, words: &[ClaimWord]) -> bool {
        words.iter().any(|word| VAGUE_WORDS.contains(&word.text.as_str()))
            || words.windows(2).any(|pair| {
                matches!(pair[0].text.as_str(), "more" | "less" | "over" | "under")
                    && is_number(&pair[1].text)
            })
            || words.windows(2).any(|pair| pair[1].text == "than")
            || words.windows(2).any(|pair| pair[0].text == "used" && pair[1].text == "to")
    }

    /// Claims the number in the sentence, so that another number conflicts.
    fn read_count(&self, found: &mut Vec<Claim>) {
        let Some(verb) =
            self.words.iter().take(5).position(|word| COUNTING_VERBS.contains(&stem(&word.text)))
        else {
            return;
        };
        if self.is_vague(self.words) || self.words.iter().any(|word| word.text == "more") {
            return;
        }
        let Some(at) = (verb + 1..self.words.len()).find(|at| is_number(&self.words[*at].text))
        else {
            return;
        };
        let numbered = NUMBERED_NOUNS.contains(&stem(&self.words[at - 1].text));
        let joined = self
            .words
            .get(at + 1)
            .is_some_and(|word| matches!(word.text.as_str(), "and" | "to" | "am" | "pm" | "uhr"));
        if numbered
            || joined
            || matches!(
                self.words[at - 1].text.as_str(),
                "at" | "in" | "on" | "since" | "until" | "by" | "um"
            )
        {
            return;
        }
        if self.words[at].comma
            || parse_date_facets(&self.words[at - 1..=at]).is_some()
            || is_year(&self.words[at].text)
        {
            return;
        }
        let Some(amount) = Amount::parse(&self.words[at..]) else { return };
        let text = |at: usize| {
            if at == verb { stem(&self.words[at].text) } else { self.words[at].text.as_str() }
        };
        let before = (0..at).map(text).filter(|text| !FILLER_WORDS.contains(text));
        let after = (at + amount.words..self.words.len()).map(text);
        let what: Vec<&str> = before.chain(["#", amount.unit.as_str()]).chain(after).collect();
        found.push(self.new_claim(self.entity(), &what.join(" "), "#", amount.number));
    }

    /// One value for one attribute: `budget: 500`, `the budget is 500`.
    fn read_value(&self, key: Option<usize>, found: &mut Vec<Claim>) {
        let Some((subject, verb, attribute, value)) = self.split_clause(key) else { return };
        let value = match value.iter().position(|word| {
            !matches!(word.text.as_str(), "now" | "currently" | "still" | "already" | "just")
        }) {
            Some(at) => &value[at..],
            None => return,
        };
        if subject.len() > MAX_SUBJECT_WORDS || self.is_vague(subject) || self.is_vague(value) {
            return;
        }
        if matches!(verb, "is" | "are") && self.read_role_holder(subject, value, found) {
            return;
        }
        let Some(named) = parse_subject(subject, key.is_some(), self.event.entity.is_some()) else {
            return;
        };
        let attribute_of = |suffix: &str| {
            let (entity, what) = self.entity_and_attribute(&named, None);
            (entity, format!("{what} {suffix}"))
        };
        if let Some(date) = parse_date_facets(value) {
            let suffix = if matches!(attribute, "moved" | "is in" | "of") { "" } else { attribute };
            let (entity, what) = attribute_of(suffix);
            // "A meeting on Monday" may be one of many; "the meeting" is one.
            if !is_plural(&named.head) {
                found.extend(
                    date.into_iter()
                        .map(|(facet, value)| self.new_claim(&entity, &what, facet, value)),
                );
            }
            return;
        }
        let many =
            named.head.split(' ').next_back().is_some_and(|last| MULTI_VALUE_NOUNS.contains(&last));
        if let Some(amount) = Amount::parse(value) {
            let rest: Vec<&str> =
                value[amount.words..].iter().map(|word| word.text.as_str()).collect();
            let numeric = matches!(attribute, "" | "costs" | "of")
                && !many
                && value.iter().all(|word| !word.comma && word.text != "and");
            if numeric && !rest.contains(&"to") {
                let (entity, what) = attribute_of(if attribute == "costs" { "costs" } else { "" });
                let what = format!("{what} {} {}", amount.unit, rest.join(" "));
                found.push(self.new_claim(&entity, &what, "#", amount.number));
                found.extend(
                    amount
                        .currency
                        .map(|currency| self.new_claim(&entity, &what, "currency", currency)),
                );
            }
            return;
        }
        let timed =
            matches!(attribute, "due" | "starts" | "ends" | "opens" | "closes" | "launches");
        if timed
            || (many && matches!(attribute, "" | "moved"))
            || matches!(attribute, "of" | "costs")
            || value.iter().any(|word| word.comma || matches!(word.text.as_str(), "and" | "&"))
        {
            return;
        }
        // The same name with another number: Python 3.11, Python 3.12.
        let value: Vec<&ClaimWord> =
            value.iter().filter(|word| !ARTICLES.contains(&word.text.as_str())).collect();
        let (numbers, words): (Vec<&ClaimWord>, Vec<&ClaimWord>) =
            value.iter().copied().partition(|word| is_number(&word.text));
        let single = |text: &str| {
            numbers.len() <= 1
                && !words.is_empty()
                && words.len() <= MAX_NAME_WORDS
                && !text.ends_with("ing")
        };
        let Some(first) = words.first().filter(|first| single(&first.text)) else { return };
        if INDEFINITE_WORDS.contains(&first.text.as_str()) || is_nationality(&first.text) {
            return;
        }
        let labelled = named.head.split(' ').any(|word| SINGLE_VALUE_NOUNS.contains(&word));
        let keyed = key.is_some() || verb == "=" || labelled;
        let certain = match attribute {
            "" => {
                keyed
                    || (first.named
                        && (named.definite || named.owner.is_some())
                        && !named.head.is_empty())
            }
            "moved" => first.named && !named.head.is_empty(),
            _ => first.named,
        };
        if !certain || (is_plural(&named.head) && matches!(attribute, "" | "moved")) {
            return;
        }
        let name: Vec<&str> = words.iter().map(|word| word.text.as_str()).collect();
        if let Some(number) = numbers.first() {
            let (entity, what) = attribute_of(attribute);
            found.push(self.new_claim(
                &entity,
                &format!("{what} {}", name.join(" ")),
                "#",
                canonical_number(&number.text, false),
            ));
        }
        let facet = if name.iter().any(|word| REGIONS.contains(word)) { "region" } else { "=" };
        let person = named.head.split(' ').any(|word| ROLES.contains(&word));
        let name = if person { first.text.clone() } else { name.join(" ") };
        let suffixes: &[&str] =
            if attribute == "moved" { &["lives in", "is based in"] } else { &[attribute] };
        for suffix in suffixes {
            let (entity, what) = attribute_of(suffix);
            found.push(self.new_claim(&entity, &what, facet, name.clone()));
        }
    }

    /// Claims who holds a unique role: `Anna is the contact for X`. Returns whether the sentence
    /// has that form.
    fn read_role_holder(
        &self,
        subject: &[ClaimWord],
        value: &[ClaimWord],
        found: &mut Vec<Claim>,
    ) -> bool {
        let Some(first) = value.first() else { return false };
        let article = ARTICLES.contains(&first.text.as_str());
        let role = ROLES.contains(&first.text.as_str())
            && value.get(1).is_some_and(|word| matches!(word.text.as_str(), "of" | "for" | "at"));
        let who = subject.first().is_some_and(|word| {
            word.named && !ARTICLES.contains(&word.text.as_str()) && !word.text.ends_with("'s")
        });
        let who = who
            && subject.len() <= 3
            && subject
                .iter()
                .all(|word| !word.comma && !matches!(word.text.as_str(), "and" | "of" | "for"));
        if !(article || role)
            || !who
            || subject.first().is_some_and(|word| INDEFINITE_WORDS.contains(&word.text.as_str()))
        {
            return false;
        }
        let tail = value.iter().any(|word| {
            word.comma
                || matches!(word.text.as_str(), "and" | "who" | "that" | "which" | "but" | "to")
        });
        let Some(named) = parse_subject(value, false, false)
            .filter(|_| !tail && value.len() <= MAX_SUBJECT_WORDS)
        else {
            return true;
        };
        let many = named.head.split(' ').any(|word| MULTI_VALUE_NOUNS.contains(&word));
        if many || named.head.is_empty() || is_plural(&named.head) {
            return true;
        }
        let person = named.head.split(' ').any(|word| ROLES.contains(&word));
        let name: Vec<&str> = subject
            .iter()
            .map(|word| word.text.as_str())
            .take(if person { 1 } else { 3 })
            .collect();
        let whole: Vec<&str> = subject.iter().map(|word| word.text.as_str()).collect();
        let (entity, what) = self.entity_and_attribute(&named, Some(&whole.join(" ")));
        found.push(self.new_claim(&entity, &what, "=", name.join(" ")));
        true
    }

    /// The entity and attribute of a subject. The owner becomes part of the attribute if the event
    /// has an entity of its own, unless that entity is only the `holder` of a role.
    fn entity_and_attribute(&self, named: &NamedSubject, holder: Option<&str>) -> (String, String) {
        let head = named.head.clone();
        let key =
            self.event.entity.as_deref().map(sanitize::entity_key).filter(|key| !key.is_empty());
        let owner = named.owner.as_deref().map(sanitize::entity_key).filter(|key| !key.is_empty());
        let holds = holder.map(sanitize::entity_key);
        match (key, owner) {
            (None, None) => (String::new(), head),
            (None, Some(owner)) => (owner, head),
            (Some(key), Some(owner))
                if key == owner
                    || holds.as_deref().is_some_and(|holder| {
                        holder == key || holder.starts_with(&format!("{key}_"))
                    }) =>
            {
                (owner, head)
            }
            (Some(key), Some(owner)) => (key, format!("{head} of {owner}")),
            (Some(key), None) => {
                let whole = sanitize::entity_key(&head);
                match whole.strip_prefix(&key) {
                    Some("") => (key, String::new()),
                    Some(rest) if rest.starts_with('_') => (key, rest.replace('_', " ")),
                    _ => (key, head),
                }
            }
        }
    }

    /// Splits the sentence into subject, verb, attribute and value.
    fn split_clause(
        &self,
        key: Option<usize>,
    ) -> Option<(&[ClaimWord], &'static str, &'static str, &[ClaimWord])> {
        if let Some(at) = key {
            let (subject, value) = self.words.split_at_checked(at)?;
            return (!value.is_empty()).then_some((subject, "", "", value));
        }
        for at in 0..self.words.len() {
            let rest = &self.words[at..];
            let fits = |phrase: &str| {
                let count = phrase.split(' ').count();
                rest.len() > count
                    && phrase.split(' ').zip(rest).all(|(part, word)| part == word.text)
            };
            let Some((phrase, attribute)) = SINGLE_VALUE_VERBS
                .iter()
                .filter(|(phrase, _)| fits(phrase))
                .max_by_key(|(phrase, _)| phrase.len())
            else {
                continue;
            };
            let value = &rest[phrase.split(' ').count()..];
            if *phrase == "of"
                && !(at <= 4
                    && Amount::parse(value).is_some_and(|amount| amount.words == value.len()))
            {
                continue;
            }
            return (at > 0 || self.event.entity.is_some()).then_some((
                &self.words[..at],
                phrase,
                attribute,
                value,
            ));
        }
        None
    }
}

/// Parses a subject that denotes one specific thing.
fn parse_subject(words: &[ClaimWord], keyed: bool, has_entity: bool) -> Option<NamedSubject> {
    let first = words.first().map(|word| word.text.as_str()).unwrap_or_default();
    if INDEFINITE_WORDS.contains(&first) || (words.is_empty() && !has_entity) {
        return None;
    }
    let definite = keyed || ARTICLES.contains(&first);
    let kept: Vec<&str> = words
        .iter()
        .map(|word| word.text.as_str())
        .filter(|text| {
            !ARTICLES.contains(text)
                && !matches!(*text, "current" | "has" | "have" | "a" | "an" | "new")
        })
        .collect();
    if let Some(at) = kept
        .iter()
        .position(|text| matches!(*text, "of" | "for" | "at"))
        .filter(|at| *at > 0 && at + 1 < kept.len())
    {
        return Some(NamedSubject {
            head: kept[..at].join(" "),
            owner: Some(kept[at + 1..].join(" ")),
            definite,
        });
    }
    if let Some(at) = kept
        .iter()
        .position(|text| text.ends_with("'s") && text.len() > 2)
        .filter(|at| at + 1 < kept.len())
    {
        let owner = kept[..=at].join(" ");
        return Some(NamedSubject {
            head: kept[at + 1..].join(" "),
            owner: Some(owner.trim_end_matches("'s").to_owned()),
            definite: true,
        });
    }
    Some(NamedSubject { head: kept.join(" "), owner: None, definite })
}

/// A word without the ending of the plural or of the third person.
fn stem(word: &str) -> &str {
    match word {
        "has" => "have",
        "does" | "is" | "was" => word,
        _ if word.len() > 3
            && word.ends_with('s')
            && !word.ends_with("ss")
            && !word.ends_with("us")
            && !word.ends_with("is") =>
        {
            &word[..word.len() - 1]
        }
        _ => word,
    }
}

fn is_plural(head: &str) -> bool {
    let last = head.split(' ').next_back().unwrap_or_default();
    stem(last) != last && last != "status"
}

fn is_nationality(word: &str) -> bool {
    NATIONALITIES.contains(&word)
        || (word.len() > 4 && ["ish", "ese", "ian"].iter().any(|end| word.ends_with(end)))
}

fn is_year(word: &str) -> bool {
    word.len() == 4
        && (word.starts_with("19") || word.starts_with("20"))
        && word.bytes().all(|byte| byte.is_ascii_digit())
}

/// Whether a word is a number, with any unit or currency attached.
fn is_number(word: &str) -> bool {
    let digits = word.trim_start_matches(['€', '$', '£', 'v', '+', '-']);
    digits.starts_with(|c: char| c.is_ascii_digit()) && !digits.contains([':', '/', '-'])
}

/// A number in canonical spelling: no thousands separators, no empty cents.
fn canonical_number(number: &str, money: bool) -> String {
    let number = number.trim_start_matches('v');
    let number =
        if money { number.trim_end_matches(".00").trim_end_matches(",00") } else { number };
    let grouped = |mark: char| {
        let mut parts = number.split(mark);
        let first = parts.next().unwrap_or_default();
        let rest: Vec<&str> = parts.collect();
        !rest.is_empty()
            && (1..=3).contains(&first.len())
            && first != "0"
            && rest.iter().all(|part| part.len() == 3)
    };
    let mark = [',', '.', '\''].into_iter().find(|mark| grouped(*mark) && (*mark != '.' || money));
    mark.map_or_else(|| number.to_owned(), |mark| number.replace(mark, ""))
}

/// A number with its unit, at the start of some words.
struct Amount {
    number: String,
    currency: Option<&'static str>,
    /// The unit, if it is not a currency.
    unit: String,
    /// The number of words it spans.
    words: usize,
}

impl Amount {
    fn parse(words: &[ClaimWord]) -> Option<Self> {
        let currency = |text: &str| {
            CURRENCIES.iter().find(|(word, _)| *word == text).map(|(_, currency)| *currency)
        };
        let first = words.first()?.text.as_str();
        if let Some(currency) = currency(first) {
            let number = words.get(1).filter(|word| is_number(&word.text))?;
            return Some(Self {
                number: canonical_number(&number.text, true),
                currency: Some(currency),
                unit: String::new(),
                words: 2,
            });
        }
        if !is_number(first) {
            return None;
        }
        let sign: String = first.chars().take_while(|c| !c.is_ascii_digit()).collect();
        let rest = &first[sign.len()..];
        let end = rest
            .find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | ',' | '\'')))
            .unwrap_or(rest.len());
        let (digits, glued) = rest.split_at(end);
        let digits = digits.trim_end_matches(['.', ',']);
        let next = words.get(1).map(|word| word.text.as_str()).unwrap_or_default();
        let (thousands, glued) = match glued {
            "k" | "k€" | "k$" => ("k", &glued[1..]),
            _ => ("", glued),
        };
        let (money, count) = match currency(&sign).or_else(|| currency(glued)) {
            Some(money) => (Some(money), 1),
            None => (currency(next), 1 + usize::from(currency(next).is_some())),
        };
        let unit = if money.is_some() { "" } else { glued };
        let mut number = canonical_number(digits, money.is_some() || !thousands.is_empty());
        if thousands == "k" && number.bytes().all(|byte| byte.is_ascii_digit()) {
            number.push_str("000");
        } else {
            number.push_str(thousands);
        }
        if sign == "-" {
            number.insert(0, '-');
        }
        Some(Self { number, currency: money, unit: unit.to_owned(), words: count })
    }
}

/// The facets of a date or time, if the words hold nothing else.
fn parse_date_facets(words: &[ClaimWord]) -> Option<Vec<(&'static str, String)>> {
    let (mut year, mut month, mut day, mut weekday, mut clock) = (None, None, None, None, None);
    // A number that may turn out to be an hour.
    let (mut hour, mut at_before): (Option<u8>, bool) = (None, false);
    for word in words {
        let text = word.text.as_str();
        let bare = text.trim_end_matches('.');
        let at = std::mem::replace(&mut at_before, matches!(text, "at" | "um"));
        if matches!(text, "on" | "at" | "of" | "the" | "um" | "uhr" | "in" | "o'clock") {
            if text == "uhr" && clock.is_none() {
                hour = hour.or_else(|| day.take());
            }
            continue;
        }
        if let Some(found) = lexicon::weekday(bare) {
            weekday = Some(found.number);
        } else if let Some(found) = lexicon::month(bare) {
            month = Some(usize::from(found.number));
        } else if let Some((y, m, d)) = parse_full_date(bare) {
            (year, month, day) = (y.or(year), Some(usize::from(m)), Some(d));
        } else if is_year(bare) {
            year = Some(bare.to_owned());
        } else if matches!(bare, "am" | "pm") && clock.is_none() {
            clock = Some(format_hour(hour.take().or_else(|| day.take())?, bare)?);
        } else if let Some(found) = parse_clock_time(bare) {
            clock = Some(found);
        } else {
            let number: u8 = bare
                .trim_end_matches(['s', 't', 'n', 'd', 'r', 'h'])
                .parse()
                .ok()
                .filter(|number| (1..=31).contains(number))?;
            if at && number <= 24 {
                hour = Some(number);
            } else {
                day = Some(number);
            }
        }
    }
    let clock = clock.or_else(|| hour.map(|hour| format!("{hour:02}:00")));
    // A lone number or year is not a date.
    if month.is_none() && (day.is_some() || (weekday.is_none() && clock.is_none())) {
        return None;
    }
    let month_day = month.zip(day).map(|(month, day)| format!("{month:02}-{day:02}"));
    let sides = [
        ("year", year),
        ("month", month.map(|month| format!("{month:02}"))),
        ("day", month_day),
        ("weekday", weekday.map(|weekday| weekday.to_string())),
        ("clock", clock),
    ];
    Some(sides.into_iter().filter_map(|(side, value)| Some((side, value?))).collect())
}

/// `2026-03-15`, `15.03.2026`, `15.3`.
fn parse_full_date(text: &str) -> Option<(Option<String>, u8, u8)> {
    let (parts, turned): (Vec<&str>, bool) = if text.contains('-') {
        (text.split('-').collect(), false)
    } else {
        (text.split('.').collect(), true)
    };
    let (year, month, day) = match (parts.as_slice(), turned) {
        ([year, month, day], false) | ([day, month, year], true) => {
            (Some(*year).filter(|year| is_year(year))?, *month, *day)
        }
        _ => return None,
    };
    let (month, day): (u8, u8) = (month.parse().ok()?, day.parse().ok()?);
    ((1..=12).contains(&month) && (1..=31).contains(&day))
        .then(|| (Some(year.to_owned()), month, day))
}

/// `10:00`, `10am`.
fn parse_clock_time(text: &str) -> Option<String> {
    if let Some((hour, minute)) = text.split_once(':') {
        let half = if minute.ends_with("pm") { "pm" } else { "am" };
        let minute = minute.trim_end_matches(['a', 'p', 'm']);
        let (hour, minute): (u8, u8) = (hour.parse().ok()?, minute.parse().ok()?);
        let hour = if half == "pm" && hour < 12 { hour + 12 } else { hour };
        return (hour <= 24 && minute < 60).then(|| format!("{hour:02}:{minute:02}"));
    }
    if text == "noon" {
        return Some("12:00".into());
    }
    let half = ["am", "pm"].into_iter().find(|half| text.ends_with(half))?;
    format_hour(text.trim_end_matches(['a', 'p', 'm']).parse().ok()?, half)
}

fn format_hour(hour: u8, half: &str) -> Option<String> {
    let hour = match (hour, half) {
        (12, "am") => 0,
        (1..=11, "pm") => hour + 12,
        (0..=12, _) => hour,
        _ => return None,
    };
    Some(format!("{hour:02}:00"))
}
