//! Finds drafts in prose: letters, poems, plans. It prefers missing a draft to reporting a wrong
//! one.

use std::ops::Range;

use icecore_text::markdown;

use super::fence::FencedBlock;
use super::similarity;

/// Minimum number of words of a letter.
const MIN_LETTER_WORDS: usize = 20;
/// Minimum number of words of a section that is a draft because of its heading.
const MIN_SECTION_WORDS: usize = 60;
/// Minimum number of words of a reply that is a draft because one was requested and it opens with a
/// title.
const MIN_REPLY_WORDS: usize = 120;
/// Minimum number of words of a text that can match a known one.
const MIN_KNOWN_TEXT_WORDS: usize = 25;
/// How much of a request is parsed, in bytes.
const MAX_REQUEST_BYTES: usize = 4_000;

/// Nouns for drafts.
const DRAFT_NOUNS: &[&str] = &[
    "draft",
    "email",
    "e-mail",
    "letter",
    "poem",
    "plan",
    "essay",
    "article",
    "story",
    "speech",
    "post",
    "outline",
    "proposal",
    "memo",
    "report",
    "haiku",
    "song",
    "lyrics",
    "agenda",
    "itinerary",
    "announcement",
    "message",
    "sonnet",
    "limerick",
    "bio",
    "statement",
    "script",
    "toast",
    "cv",
    "resume",
    "readme",
    "newsletter",
    "entwurf",
    "brief",
    "mail",
    "gedicht",
    "aufsatz",
    "artikel",
    "rede",
    "geschichte",
    "fassung",
    "anschreiben",
    "bericht",
    "beitrag",
    "konzept",
    "nachricht",
    "angebot",
    "antrag",
    "bewerbung",
    "motivationsschreiben",
    "einladung",
    "invitation",
    "reply",
    "version",
    "text",
    "rewrite",
    "revision",
];
/// First words of a paragraph that end a draft.
const CLOSING_REMARKS: &[&str] = &[
    "let me know",
    "would you like",
    "feel free",
    "do you want",
    "if you'd like",
    "if you want",
    "if you would like",
    "i can also",
    "i hope this",
    "want me to",
    "shall i",
    "should i",
    "happy to",
    "this version",
    "this draft",
    "i kept",
    "i've ",
    "i have ",
    "i made",
    "changes",
    "what changed",
    "key changes",
    "a few notes",
    "notes:",
    "note:",
    "**notes",
    "**changes",
    "**what changed",
    "**why",
    "soll ich",
    "möchtest du",
    "sag bescheid",
    "sag mir",
    "wenn du möchtest",
    "falls du",
    "lass mich wissen",
    "gerne kann",
    "ich habe",
    "ich kann",
    "änderungen",
    "hinweis",
    "feedback",
];
/// Sign-offs of a letter.
const SIGN_OFFS: &[&str] = &[
    "best",
    "best regards",
    "kind regards",
    "regards",
    "warm regards",
    "sincerely",
    "yours sincerely",
    "yours truly",
    "yours faithfully",
    "thanks",
    "thank you",
    "many thanks",
    "cheers",
    "all the best",
    "best wishes",
    "love",
    "warmly",
    "respectfully",
    "mit freundlichen grüßen",
    "viele grüße",
    "beste grüße",
    "liebe grüße",
    "herzliche grüße",
    "freundliche grüße",
    "schöne grüße",
    "mfg",
    "vg",
    "lg",
];

/// A line of a text.
#[derive(Debug, Clone, Copy)]
pub struct TextLine<'a> {
    /// Byte offset of its start.
    pub start: usize,
    /// Without the line break.
    pub text: &'a str,
    /// Whether it is part of a fenced block.
    pub fenced: bool,
}

/// The lines of a text; consecutive blank lines are one.
pub fn text_lines<'a>(text: &'a str, blocks: &[FencedBlock<'_>]) -> Vec<TextLine<'a>> {
    let (mut lines, mut start, mut blocks) = (Vec::new(), 0, blocks.iter().peekable());
    for line in text.split_inclusive('\n') {
        while blocks.peek().is_some_and(|block| block.end <= start) {
            blocks.next();
        }
        let fenced = blocks.peek().is_some_and(|block| block.start <= start);
        let line_text = line.trim_end_matches(['\n', '\r']);
        let again = lines
            .last()
            .is_some_and(|last: &TextLine<'_>| last.text.is_empty() && last.fenced == fenced);
        if !(again && line_text.is_empty()) {
            lines.push(TextLine { start, text: line_text, fenced });
        }
        start += line.len();
    }
    lines
}

/// The last non-blank line before `at`, if at most one blank line separates them.
pub fn line_before(text: &str, at: usize) -> Option<&str> {
    let mut before = text[..at].strip_suffix('\n')?.rsplit('\n').take(2);
    let line = before
        .next()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .or_else(|| before.next().map(str::trim))?;
    (!line.is_empty() && markdown::fence_line(line).is_none()).then_some(line)
}

/// The level and text of a heading.
pub fn heading(line: &str) -> Option<(usize, &str)> {
    let (level, title) = markdown::heading(line.trim_end())?;
    let title = title.trim_matches('*').trim();
    (!title.is_empty()).then_some((level, title))
}

/// The text of a line that is entirely bold and so acts as a heading.
pub fn bold_line(line: &str) -> Option<&str> {
    let title = line.trim().strip_prefix("**")?.strip_suffix("**")?.trim().trim_end_matches(':');
    (!title.is_empty() && title.len() <= 80 && !title.contains("**")).then_some(title)
}

fn is_blank(line: &str) -> bool {
    line.trim().is_empty()
}

/// Whether a paragraph that begins like this is no longer part of the draft.
fn is_closing_remark(line: &str) -> bool {
    let start: String = line
        .trim()
        .trim_start_matches(['*', '_', '#', ' ', '>'])
        .chars()
        .take(24)
        .collect::<String>()
        .to_lowercase();
    let start = start.replace('’', "'");
    CLOSING_REMARKS.iter().any(|words| start.starts_with(words.trim_start_matches('*')))
}

/// The text after `Subject:` or `Betreff:`.
fn subject_line(line: &str) -> Option<&str> {
    let plain = line.trim().trim_start_matches(['*', '_', '>', ' ']);
    let (key, rest) = plain.split_once(':').filter(|(key, _)| key.len() <= 24)?;
    let key = key.trim_matches(['*', '_', ' ']).to_lowercase();
    let said = rest.trim_matches(['*', '_', ' ']);
    (["subject", "betreff", "subject line", "re"].contains(&key.as_str()) && !said.is_empty())
        .then_some(said)
}

/// Whether it is a `To:` or `From:` line or the like, above a subject.
fn is_address(line: &str) -> bool {
    let plain = line.trim().trim_start_matches(['*', '_', '>', ' ']).to_lowercase();
    [
        "to:", "to**:", "from:", "cc:", "bcc:", "date:", "an:", "von:", "to:**", "from:**",
        "an:**", "von:**",
    ]
    .iter()
    .any(|key| plain.starts_with(key))
}

fn is_sign_off(line: &str) -> bool {
    let plain = line.trim().trim_end_matches([',', '!', '.', ' ']).to_lowercase();
    SIGN_OFFS.contains(&plain.as_str())
}

fn is_salutation(line: &str) -> bool {
    let plain = line.trim().to_lowercase();
    let opens =
        ["dear ", "hi ", "hello ", "hallo ", "liebe ", "lieber ", "sehr geehrte", "guten tag"]
            .iter()
            .any(|word| plain.starts_with(word));
    opens && plain.len() <= 80 && plain.ends_with([',', '!', ':'])
}

/// Whether a text is a letter: it has a subject, or a salutation and a sign-off.
pub fn is_letter(text: &str) -> bool {
    let lines = || text.lines().take(2_000);
    let opens = lines()
        .filter(|line| !is_blank(line))
        .take(4)
        .any(|line| subject_line(line).is_some() || is_salutation(line));
    opens
        && (lines().any(is_sign_off) || lines().take(4).any(|line| subject_line(line).is_some()))
        && similarity::word_count(text) >= MIN_LETTER_WORDS
}

fn contains_word(text: &str, wanted: &[&str]) -> bool {
    text.split(|c: char| !(c.is_alphanumeric() || c == '-')).any(|word| wanted.contains(&word))
}

/// Whether the words before a text say that it replaces an earlier one.
pub fn announces_revision(line: &str) -> bool {
    let line = line.to_lowercase();
    let words = [
        "revised",
        "updated",
        "rewritten",
        "reworked",
        "improved",
        "shortened",
        "shorter",
        "longer",
        "edited",
        "polished",
        "second",
        "third",
        "overarbeitete",
        "überarbeitete",
        "überarbeiteter",
        "überarbeitet",
        "gekürzte",
        "gekürzt",
        "kürzere",
        "aktualisierte",
        "neue",
        "verbesserte",
        "tightened",
        "revision",
    ];
    line.len() <= 300 && contains_word(&line, &words)
}

/// Whether it is a lead-in such as "Here is the draft:".
fn is_lead_in(line: &str) -> bool {
    if line.len() > 240 || !line.trim_end_matches(['*', '_', ' ']).ends_with([':', '：']) {
        return false;
    }
    let plain = line.trim().trim_matches(['*', '_']).trim_end().to_lowercase().replace('’', "'");
    if plain.len() > 200 || !plain.ends_with([':', '：']) || plain.starts_with(['-', '|', '#', '>'])
    {
        return false;
    }
    let shown = [
        "here is",
        "here's",
        "here are",
        "below is",
        "this is my",
        "hier ist",
        "hier der",
        "hier die",
        "hier das",
        "hier eine",
        "hier ein",
        "hier mein",
    ];
    let bare = [
        "draft:",
        "my draft:",
        "revised draft:",
        "entwurf:",
        "mein entwurf:",
        "final draft:",
        "first draft:",
    ];
    // Text about letters is not a letter.
    let about = [
        "tips",
        "steps",
        "ways",
        "options",
        "changes",
        "reasons",
        "points",
        "ideas",
        "suggestions",
        "notes",
        "summary",
        "list",
        "example",
        "examples",
        "problems",
        "questions",
        "code",
        "how",
        "what",
        "why",
        "feedback",
        "tipps",
        "schritte",
        "änderungen",
        "gründe",
        "ideen",
        "fragen",
        "output",
        "error",
    ];
    let sentence = plain.rsplit(['.', '!', '?']).next().unwrap_or_default();
    let after = shown
        .iter()
        .filter_map(|words| sentence.find(words).map(|at| &sentence[at + words.len()..]))
        .next();
    after.is_some_and(|after| contains_word(after, DRAFT_NOUNS) && !contains_word(after, &about))
        || bare.contains(&plain.as_str())
}

/// What a user asks for, as far as drafts are concerned.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DraftRequest {
    /// Asks to write something.
    pub writes: bool,
    /// Asks for verse.
    pub verse: bool,
    /// Asks to change an earlier draft.
    pub revises: bool,
}

impl DraftRequest {
    /// Parses the beginning of the user's message.
    pub fn parse(user: &str) -> Self {
        let text = user[..user.floor_char_boundary(MAX_REQUEST_BYTES)].to_lowercase();
        let writes = [
            "write",
            "draft",
            "compose",
            "rewrite",
            "revise",
            "schreib",
            "schreibe",
            "entwirf",
            "verfasse",
            "formuliere",
            "dichte",
        ];
        let verse = [
            "poem", "haiku", "gedicht", "song", "lyrics", "limerick", "sonnet", "lied", "verse",
            "stanza", "strophe",
        ];
        let revises = [
            "rewrite",
            "revise",
            "shorten",
            "rephrase",
            "polish",
            "überarbeite",
            "kürze",
            "umschreiben",
        ];
        let phrases = [
            "make it",
            "make the",
            "make that",
            "shorter",
            "more formal",
            "less formal",
            "friendlier",
            "another try",
            "change the",
            "tone down",
            "mach es",
            "mach den",
            "mach die",
            "kürzer",
            "förmlicher",
            "freundlicher",
            "ändere",
        ];
        Self {
            writes: contains_word(&text, &writes),
            verse: contains_word(&text, &verse),
            revises: contains_word(&text, &revises)
                || phrases.iter().any(|words| text.contains(words)),
        }
    }
}

/// A draft in a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProseDraft {
    pub range: Range<usize>,
    /// Its own title.
    pub title: Option<String>,
    /// Whether it replaces an earlier version.
    pub revises: bool,
}

/// Finds the drafts of a message, in order and without overlap.
pub fn find_drafts(text: &str, lines: &[TextLine<'_>], request: DraftRequest) -> Vec<ProseDraft> {
    let mut drafts = Vec::new();
    let mut at = 0;
    let first_said = lines.iter().position(|line| !is_blank(line.text)).unwrap_or(0);
    while let Some(line) = lines.get(at) {
        let (from, until, least, revises) = if line.fenced || is_blank(line.text) {
            at += 1;
            continue;
        } else if subject_line(line.text).is_some() {
            let from = (0..4)
                .map_while(|back| at.checked_sub(back + 1))
                .take_while(|&above| is_address(lines[above].text))
                .last()
                .unwrap_or(at);
            (from, end_of_letter(lines, at + 1), MIN_LETTER_WORDS, false)
        } else if is_lead_in(line.text) {
            let Some(next) = (at + 1..lines.len())
                .find(|&next| !is_blank(lines[next].text))
                .filter(|&next| !lines[next].fenced)
            else {
                at += 1;
                continue;
            };
            let ruled = markdown::is_divider(lines[next].text);
            let from = if ruled { next + 1 } else { next };
            let closing = if ruled {
                (from..lines.len()).find(|&end| markdown::is_divider(lines[end].text))
            } else {
                None
            };
            let until = closing.unwrap_or_else(|| end_of_draft(lines, from));
            let verse = (from..until).filter(|&at| !is_blank(lines[at].text)).take(4).count() == 4;
            (from, until, if verse { 8 } else { MIN_LETTER_WORDS }, announces_revision(line.text))
        } else if let Some((level, title)) = heading(line.text) {
            let named = contains_word(&title.to_lowercase(), &DRAFT_NOUNS[..DRAFT_NOUNS.len() - 4])
                && request.writes;
            let whole = at == first_said && level == 1 && request.writes;
            if !named && !whole {
                at += 1;
                continue;
            }
            let next = (at + 1..lines.len()).find(|&end| {
                !lines[end].fenced
                    && heading(lines[end].text).is_some_and(|(next, _)| next <= level)
            });
            let until = end_of_draft(&lines[..next.unwrap_or(lines.len())], at + 1);
            (at, until, if whole { MIN_REPLY_WORDS } else { MIN_SECTION_WORDS }, false)
        } else {
            at += 1;
            continue;
        };
        let range = trim_blank_lines(text, lines, from, until);
        if range.is_empty() || similarity::words(&text[range.clone()]).take(least).count() < least {
            at += 1;
            continue;
        }
        let title = title(&text[range.clone()]);
        drafts.push(ProseDraft { range, title, revises: revises || request.revises });
        at = until.max(at + 1);
    }
    if drafts.is_empty() && request.verse && (request.writes || request.revises) {
        drafts.extend(find_verses(text, lines).map(|range| ProseDraft {
            title: title(&text[range.clone()]),
            range,
            revises: request.revises,
        }));
    }
    drafts
}

/// The byte range of lines `from..until` without blank lines at its ends.
fn trim_blank_lines(text: &str, lines: &[TextLine<'_>], from: usize, until: usize) -> Range<usize> {
    let said = |at: &usize| !is_blank(lines[*at].text);
    let (Some(first), Some(last)) = ((from..until).find(said), (from..until).rev().find(said))
    else {
        return 0..0;
    };
    lines[first].start..lines.get(last + 1).map_or(text.len(), |next| next.start)
}

/// Where a draft without an explicit end stops: at a horizontal rule, a block, or a paragraph about
/// the draft.
fn end_of_draft(lines: &[TextLine<'_>], from: usize) -> usize {
    (from..lines.len())
        .find(|&at| {
            let line = lines[at];
            let starts = at == from || is_blank(lines[at - 1].text);
            line.fenced
                || markdown::is_divider(line.text) && at > from
                || starts && at > from && is_closing_remark(line.text)
        })
        .unwrap_or(lines.len())
}

/// Where a letter ends: after its sign-off, the name below and a postscript, or where any draft
/// ends.
fn end_of_letter(lines: &[TextLine<'_>], from: usize) -> usize {
    let ends = |at: usize| {
        let line = lines[at];
        line.fenced
            || markdown::is_divider(line.text)
            || at > from && is_blank(lines[at - 1].text) && is_closing_remark(line.text)
    };
    // One pass for both, so that many subject lines do not cause quadratic time.
    let Some(stop) =
        (from..lines.len()).find(|&at| is_sign_off(lines[at].text) || at > from && ends(at))
    else {
        return lines.len();
    };
    if !is_sign_off(lines[stop].text) {
        return stop;
    }
    let said = |from: usize| {
        (from..lines.len()).find(|&at| !is_blank(lines[at].text)).filter(|&at| !ends(at))
    };
    let mut end = stop + 1;
    if let Some(name) = said(end) {
        // The name, directly below or after a blank line.
        let signed = (name..lines.len())
            .take_while(|&at| !is_blank(lines[at].text) && lines[at].text.len() <= 60 && !ends(at))
            .take(5)
            .count();
        end = if signed == 0 { end } else { name + signed };
    }
    let postscript = |at: &usize| {
        lines[*at].text.trim().starts_with("P.S") || lines[*at].text.trim().starts_with("PS")
    };
    if let Some(more) = said(end).filter(postscript) {
        end = (more..lines.len())
            .find(|&at| is_blank(lines[at].text) || ends(at))
            .unwrap_or(lines.len());
    }
    end
}

/// Finds the verses of a reply: consecutive paragraphs of short lines.
fn find_verses(text: &str, lines: &[TextLine<'_>]) -> Option<Range<usize>> {
    let short = |line: &TextLine<'_>| {
        let said = line.text.trim();
        !line.fenced
            && said.len() <= 90
            && !said.starts_with(['-', '*', '|', '#', '>'])
            && !said.ends_with(':')
            && !markdown::is_divider(said)
    };
    let (mut best, mut best_lines, mut at) = (None, 2, 0);
    while at < lines.len() {
        let (from, mut until, mut count) = (at, at, 0);
        while at < lines.len() {
            let stanza = (at..lines.len()).take_while(|&at| !is_blank(lines[at].text)).count();
            let fits = (2..=40).contains(&stanza)
                && lines[at..at + stanza].iter().all(short)
                && !is_closing_remark(lines[at].text);
            if stanza > 0 && !fits {
                at += stanza;
                break;
            }
            (at, count) = (at + stanza.max(1), count + stanza);
            if stanza > 0 {
                until = at;
            }
        }
        if count > best_lines {
            let title =
                (0..from).rev().find(|&above| !is_blank(lines[above].text)).filter(|&above| {
                    bold_line(lines[above].text).is_some() || heading(lines[above].text).is_some()
                });
            (best, best_lines) = (Some((title.unwrap_or(from), until)), count);
        }
    }
    best.map(|(from, until)| trim_blank_lines(text, lines, from, until))
        .filter(|range| !range.is_empty())
}

/// The title a text begins with: a heading, a subject or a bold line.
pub fn title(text: &str) -> Option<String> {
    let said = text.lines().filter(|line| !is_blank(line)).take(5);
    let title = said.enumerate().find_map(|(at, line)| {
        subject_line(line).or_else(|| {
            if at == 0 {
                heading(line).map(|(_, title)| title).or_else(|| bold_line(line))
            } else {
                None
            }
        })
    })?;
    let general = [
        "draft",
        "entwurf",
        "email",
        "e-mail",
        "letter",
        "introduction",
        "einleitung",
        "summary",
        "overview",
        "notes",
        "plan",
        "text",
        "version",
    ];
    let plain = title.trim().to_lowercase();
    (similarity::words(title).next().is_some() && !general.contains(&plain.as_str()))
        .then(|| title.chars().take(120).collect())
}

/// A message without the text about it: a lead-in before a rule or heading, and closing remarks.
pub fn body(text: &str, lines: &[TextLine<'_>]) -> Range<usize> {
    let said: Vec<usize> =
        (0..lines.len()).filter(|&at| !is_blank(lines[at].text)).take(12).collect();
    let opens = |at: usize| {
        !lines[at].fenced
            && (heading(lines[at].text).is_some() || markdown::is_divider(lines[at].text))
    };
    let leads = |at: usize| lines[at].text.trim_end().ends_with(':') && lines[at].text.len() <= 300;
    let mut from = match said.iter().position(|&at| opens(at)) {
        // At most three lines of lead-in before the title.
        Some(place)
            if place <= 3 && said[..place].iter().all(|&at| lines[at].text.len() <= 600) =>
        {
            said[place]
        }
        _ => said
            .first()
            .map_or(0, |&first| if leads(first) && said.len() > 1 { said[1] } else { first }),
    };
    if lines.get(from).is_some_and(|line| markdown::is_divider(line.text)) {
        from += 1;
    }
    let mut until = lines.len();
    let last = (from..lines.len()).rev().find(|&at| !is_blank(lines[at].text));
    if let Some(last) = last {
        until = last + 1;
        let start =
            (from..=last).rev().take_while(|&at| !is_blank(lines[at].text)).last().unwrap_or(last);
        if start > from && is_closing_remark(lines[start].text) && !lines[start].fenced {
            until = start;
            let rule = (from..start)
                .rev()
                .find(|&at| !is_blank(lines[at].text))
                .filter(|&at| markdown::is_divider(lines[at].text));
            until = rule.unwrap_or(until);
        }
    }
    trim_blank_lines(text, lines, from, until)
}

/// Whether a text is long enough to match a known one, and is not mostly code.
pub fn is_long_enough_to_match(body: &str, lines: &[TextLine<'_>]) -> bool {
    let fenced: usize =
        lines.iter().filter(|line| line.fenced).map(|line| line.text.len() + 1).sum();
    fenced * 2 < body.len()
        && similarity::words(body).take(MIN_KNOWN_TEXT_WORDS).count() == MIN_KNOWN_TEXT_WORDS
}
