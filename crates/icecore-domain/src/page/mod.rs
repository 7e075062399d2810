//! Knowledge pages: what is known about a thing, as Markdown that people read and edit (L4).
//!
//! A page is a pure function of events. Every line names the event it comes from. A person's edit
//! becomes events, and rendering these reproduces the person's words. A deleted or damaged page
//! therefore loses nothing.

pub mod edit;
mod items;
mod page_index;
pub mod render;
pub use page_index::{entries_by_page, into_entries_by_page, referenced_ids};

use std::fmt;

use icecore_text::normalize::without_marks;
use jiff::civil::Date;

use crate::event::{Event, EventType, Priority, SECTION_FIELD};
use crate::hash::Hash;
use crate::layout::DocPath;
use crate::sanitize;
use crate::string_enum::string_enum;

/// The directory of all pages.
pub const KNOWLEDGE_DIR: &str = "knowledge";
/// The field with the path of the page that an event was written into, unless it is an entity's
/// page.
pub const PAGE_FIELD: &str = "page";
/// The tag of an event that sets a page's title.
pub const TITLE_TAG: &str = "title";
/// The tag of an event that lists a page's aliases, separated by commas.
pub const ALIASES_TAG: &str = "aliases";
/// The tag of an event that only sets an entity's kind.
pub const TYPE_TAG: &str = "type";
/// The tag of an event that creates an empty section.
pub const SECTION_TAG: &str = "section";
/// The tag of events for a principle's page.
pub const PRINCIPLE_TAG: &str = "principle";
/// The tag of events for an insight's page.
pub const INSIGHT_TAG: &str = "insight";

/// Maximum length of a slug, in bytes.
pub const MAX_SLUG_BYTES: usize = 60;
/// Maximum length of a title or section name, in bytes.
pub const MAX_TITLE_BYTES: usize = 200;
/// Maximum number of words and bytes of a statement that become a title.
const MAX_DERIVED_TITLE_WORDS: usize = 6;
const MAX_DERIVED_TITLE_BYTES: usize = 60;
/// The section for text that a person wrote in a section with derived lines only.
pub(crate) const NOTES_SECTION: &str = "Notes";

string_enum! {
    /// The kinds of page; the word is the directory.
    PageKind: "a kind of page" {
        /// A person, company, project, account or tool.
        Entity = "entities",
        /// How something is done.
        Procedure = "procedures",
        /// A permanent rule.
        Principle = "principles",
        /// A lesson from experience.
        Insight = "insights",
    }
}

impl PageKind {
    /// The prefix of the page title.
    fn title_prefix(self) -> &'static str {
        match self {
            Self::Entity => "",
            Self::Procedure => "Procedure: ",
            Self::Principle => "Principle: ",
            Self::Insight => "Insight: ",
        }
    }

    /// The sections every page of the kind has, which a person may edit.
    fn sections(self) -> &'static [&'static str] {
        match self {
            Self::Entity => &["Summary", "Key Facts", "Relationships", "Active Context"],
            Self::Procedure => &["When to Use", "Steps", NOTES_SECTION],
            Self::Principle => &["Rule", "Rationale", "Exceptions"],
            Self::Insight => &["The Insight", "Evidence", "Application"],
        }
    }

    /// The sections that are derived from the others.
    fn derived_sections(self) -> &'static [&'static str] {
        match self {
            Self::Entity => &["History", "Changes"],
            Self::Procedure | Self::Principle | Self::Insight => &["Changes"],
        }
    }

    /// The section of a statement that was not written into one.
    fn default_section(self, kind: EventType) -> &'static str {
        match (self, kind) {
            (Self::Entity, EventType::Relationship) => "Relationships",
            (Self::Entity, EventType::Commitment) => "Active Context",
            (Self::Entity, _) => "Key Facts",
            (Self::Procedure, EventType::Procedure) => "Steps",
            (Self::Procedure, _) => NOTES_SECTION,
            (Self::Principle, _) => "Rule",
            (Self::Insight, _) => "The Insight",
        }
    }

    /// The section a name means: the template's in its own spelling, never a derived one.
    fn canonical_section(self, name: &str) -> String {
        if self.is_derived_section(name) {
            return NOTES_SECTION.to_owned();
        }
        self.template_section(name).map_or_else(|| name.to_owned(), str::to_owned)
    }

    fn template_section(self, name: &str) -> Option<&'static str> {
        self.sections().iter().copied().find(|known| known.eq_ignore_ascii_case(name))
    }

    fn is_derived_section(self, name: &str) -> bool {
        self.derived_sections().iter().any(|known| known.eq_ignore_ascii_case(name))
    }
}

/// The identity of a page: its kind and its file name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PageKey {
    /// The kind and directory.
    pub kind: PageKind,
    /// The file name without `.md`.
    pub slug: String,
}

impl PageKey {
    /// The page for that name.
    pub fn new(kind: PageKind, name: &str) -> Self {
        Self { kind, slug: slug(name) }
    }

    /// The path of the page.
    pub fn path(&self) -> DocPath {
        let path = |slug: &str| format!("{KNOWLEDGE_DIR}/{}/{slug}.md", self.kind).parse().ok();
        // A slug made by `slug` is valid on every file system; the fallback is for a hand-made one.
        path(&self.slug)
            .or_else(|| path(&slug(&self.slug)))
            .or_else(|| path("x"))
            .unwrap_or_else(|| DocPath::log(Date::ZERO))
    }

    /// The page at `path`, if there can be one.
    pub fn from_path(path: &DocPath) -> Option<Self> {
        let (kind, name) =
            path.as_str().strip_prefix(KNOWLEDGE_DIR)?.strip_prefix('/')?.split_once('/')?;
        let kind = PageKind::ALL.iter().copied().find(|known| known.word() == kind)?;
        let slug = name.strip_suffix(".md")?;
        let plain = slug
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
        (plain && !slug.is_empty() && slug.len() <= MAX_TITLE_BYTES)
            .then(|| Self { kind, slug: slug.to_owned() })
    }
}

impl fmt::Display for PageKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}/{}", self.kind, self.slug))
    }
}

/// A rendered page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RenderedPage {
    pub key: PageKey,
    pub title: String,
    pub aliases: Vec<String>,
    /// A few sentences.
    pub summary: String,
    /// The whole file.
    pub text: String,
}

/// A file name for a name: words of `a-z` and `0-9`, joined by `-`.
///
/// A name that its slug does not represent completely gets a hash suffix, so that no two names
/// share a slug: `cafe` and `café` are two things.
pub fn slug(name: &str) -> String {
    let key = sanitize::entity_key(name);
    let hash = || Hash::of(if key.is_empty() { name } else { &key }.as_bytes()).short_hex();
    let mut ascii = String::with_capacity(name.len());
    for c in without_marks(name.chars()).flat_map(char::to_lowercase) {
        match c {
            'a'..='z' | '0'..='9' => ascii.push(c),
            'ß' => ascii.push_str("ss"),
            'ø' => ascii.push('o'),
            'æ' => ascii.push_str("ae"),
            'œ' => ascii.push_str("oe"),
            'đ' | 'ð' => ascii.push('d'),
            'þ' => ascii.push_str("th"),
            'ł' => ascii.push('l'),
            'ı' => ascii.push('i'),
            'ħ' => ascii.push('h'),
            'ŋ' => ascii.push('n'),
            _ => ascii.push('-'),
        }
    }
    let base = ascii.split('-').filter(|word| !word.is_empty()).collect::<Vec<_>>().join("-");
    if base.is_empty() {
        return format!("x-{}", hash());
    }
    if base.len() <= MAX_SLUG_BYTES && base.replace('-', "_") == key && !is_reserved(&base) {
        return base;
    }
    let hash = hash();
    format!("{}-{hash}", truncate_at_word(&base, MAX_SLUG_BYTES - hash.len() - 1))
}

/// Truncates a slug to whole words within `room` bytes; a single long word is cut.
pub(crate) fn truncate_at_word(slug: &str, room: usize) -> &str {
    if slug.len() <= room {
        return slug;
    }
    let head = &slug[..slug.floor_char_boundary(room)];
    // Drop the word that the cut splits, unless the cut is at its end.
    let whole = if slug[head.len()..].starts_with('-') {
        head
    } else {
        head.rsplit_once('-').map_or(head, |(words, _)| words)
    };
    whole.trim_end_matches('-')
}

/// Whether it is a device name on some system.
fn is_reserved(slug: &str) -> bool {
    ["con", "prn", "aux", "nul"].contains(&slug)
        || ["com", "lpt"].iter().any(|device| {
            slug.strip_prefix(device).is_some_and(|number| {
                number.len() == 1 && number.bytes().all(|byte| byte.is_ascii_digit())
            })
        })
}

/// The pages an event appears on. `root` is the oldest event of its chain: the event itself if it
/// replaces nothing, and for an act the root of its target.
///
/// The page name comes from the root, so that a correction does not move the statement to another
/// page.
pub fn page_keys(event: &Event, root: &Event) -> Vec<PageKey> {
    page_keys_with(event, root, PageKind::ALL, &mut |entity| PageKey::new(PageKind::Entity, entity))
}

/// Like [`page_keys`], but with at least these kinds; `named` gives the page of a thing and can
/// cache it.
fn page_keys_with(
    event: &Event,
    root: &Event,
    kinds: &[PageKind],
    named: &mut dyn FnMut(&str) -> PageKey,
) -> Vec<PageKey> {
    // An act belongs to the page of its target.
    let said = if event.is_statement() { event } else { root };
    let mut keys: Vec<PageKey> = Vec::new();
    if let Some(entity) =
        event.entity.as_ref().or(said.entity.as_ref()).filter(|entity| !entity.trim().is_empty())
    {
        keys.push(named(entity));
    }
    if let Some(page) = page_field(event).or_else(|| page_field(root)) {
        keys.push(page);
    } else if said.kind != EventType::Commitment {
        let tagged = |tag: &str| said.tags.iter().any(|known| known == tag);
        let weighty = matches!(said.priority, Priority::P0 | Priority::P1);
        let title = || derive_title(&root.content);
        let asked_for = |kind: PageKind| kinds.contains(&kind);
        if asked_for(PageKind::Procedure) && said.kind == EventType::Procedure {
            keys.push(PageKey::new(PageKind::Procedure, &title()));
        }
        let rules = tagged(PRINCIPLE_TAG)
            || (weighty && matches!(said.kind, EventType::Constraint | EventType::Preference));
        if asked_for(PageKind::Principle) && rules {
            keys.push(PageKey::new(PageKind::Principle, &title()));
        }
        if asked_for(PageKind::Insight) && tagged(INSIGHT_TAG) {
            keys.push(PageKey::new(PageKind::Insight, &title()));
        }
    }
    keys.sort();
    keys.dedup();
    keys
}

/// The page an event was written into, if it has that field.
fn page_field(event: &Event) -> Option<PageKey> {
    PageKey::from_path(&event.extra_field::<String>(PAGE_FIELD)?.parse().ok()?)
}

/// A title for a statement: the part before its colon, or its first words.
pub fn derive_title(content: &str) -> String {
    let cleaned = sanitize::clean(content).text;
    let line = sanitize::one_line(cleaned.lines().next().unwrap_or_default());
    let before_colon =
        line.split_once(": ").map(|(name, _)| name).or_else(|| line.strip_suffix(':'));
    let name = before_colon.filter(|name| {
        (1..=MAX_DERIVED_TITLE_WORDS).contains(&name.split_whitespace().count())
            && name.len() <= MAX_DERIVED_TITLE_BYTES
    });
    let mut title = String::new();
    for word in name.unwrap_or(&line).split_whitespace().take(MAX_DERIVED_TITLE_WORDS) {
        if !title.is_empty() && title.len() + 1 + word.len() > MAX_DERIVED_TITLE_BYTES {
            break;
        }
        if !title.is_empty() {
            title.push(' ');
        }
        title.push_str(&word[..word.floor_char_boundary(MAX_DERIVED_TITLE_BYTES)]);
    }
    title.trim_end_matches(['.', ',', ';', ':', '!']).to_owned()
}

/// A name as it appears in a heading: one line, single spaces, limited length. The function is
/// idempotent.
fn heading_name(text: &str) -> String {
    let shown = collapse_whitespace(&sanitize::one_line(text));
    shown[..shown.floor_char_boundary(MAX_TITLE_BYTES)].trim_end().to_owned()
}

/// Replaces every run of white space with one space.
fn collapse_whitespace(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for word in text.split_whitespace() {
        if !out.is_empty() {
            out.push(' ');
        }
        out.push_str(word);
    }
    out
}

/// The section of this page in which an event appears.
fn section_of(key: &PageKey, event: &Event) -> String {
    explicit_section(key, event).unwrap_or_else(|| key.kind.default_section(event.kind).to_owned())
}

/// The section of this page that an event was written into, if any.
fn explicit_section(key: &PageKey, event: &Event) -> Option<String> {
    let here = page_field(event).map_or(key.kind == PageKind::Entity, |page| page == *key);
    let name = heading_name(&event.extra_field::<String>(SECTION_FIELD)?);
    (here && !name.is_empty()).then(|| key.kind.canonical_section(&name))
}

/// Whether the event is about the page itself and therefore not listed on it. It must have been
/// written into a page; a tag alone is not enough.
pub fn is_about_page(event: &Event) -> bool {
    event.source.starts_with(KNOWLEDGE_DIR)
        && event
            .tags
            .iter()
            .any(|tag| [TITLE_TAG, ALIASES_TAG, TYPE_TAG, SECTION_TAG].contains(&tag.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calendar::Moment;
    use crate::event::{Act, EventDraft};
    use crate::id::EventId;
    use proptest::prelude::*;

    fn check_slug(name: &str, expected: &str) {
        assert_eq!(slug(name), expected, "{name}");
    }

    // L4
    #[test]
    fn a_slug_is_kebab_case_and_no_two_names_share_one() {
        check_slug("dress_like_mommy", "dress-like-mommy");
        check_slug("Apollo Eleven!", "apollo-eleven");
        check_slug("cafe", "cafe");
        assert!(slug("café").starts_with("cafe-") && slug("café").len() == 13);
        assert_eq!(slug("CAFE\u{301}"), slug("café"));
        assert!(slug("Straße").starts_with("strasse-"));
        assert!(slug("Ærø").starts_with("aero-"));
        assert!(slug("東京").starts_with("x-") && slug("東京").len() == 10);
        assert_ne!(slug("東京"), slug("京都"));
        assert!(slug("tokyo 東京").starts_with("tokyo-"));
        assert_ne!(slug("tokyo 東京"), slug("tokyo"));
        assert!(slug("nul").starts_with("nul-"));
        assert!(slug("com1").starts_with("com1-"));
        check_slug("common", "common");
        assert!(slug("../../etc").starts_with("etc"));
        assert_eq!(slug("").len(), 10);
        let long = slug(&"word ".repeat(40));
        assert!(long.starts_with("word-word") && long.len() <= MAX_SLUG_BYTES);
    }

    fn event(
        kind: EventType,
        priority: Priority,
        content: &str,
        entity: Option<&str>,
        tags: &[&str],
    ) -> Event {
        let ts = Moment::parse("2026-02-13T09:30:00+01:00").unwrap().moment;
        let mut draft = EventDraft::new(ts, kind, priority, content);
        draft.entity = entity.map(Into::into);
        draft.tags = tags.iter().map(|tag| (*tag).into()).collect();
        draft.with_id(EventId::new(ts.day(), 1))
    }

    fn check_keys(event: &Event, root: &Event, expected: &str) {
        assert_eq!(
            page_keys(event, root).iter().map(ToString::to_string).collect::<Vec<_>>().join(" "),
            expected,
            "{event:?}"
        );
    }

    // L4
    #[test]
    fn an_event_stands_on_every_page_it_belongs_to() {
        let own = |event: Event, expected: &str| check_keys(&event, &event, expected);
        own(event(EventType::Fact, Priority::P1, "x", Some("apollo"), &[]), "entities/apollo");
        own(event(EventType::Fact, Priority::P0, "x", None, &[]), "");
        own(
            event(EventType::Procedure, Priority::P2, "Deploy: run make, then push", None, &[]),
            "procedures/deploy",
        );
        own(
            event(EventType::Procedure, Priority::P2, "Deploy: run", Some("shop"), &[]),
            "entities/shop procedures/deploy",
        );
        own(
            event(EventType::Constraint, Priority::P1, "Never deploy on Fridays", None, &[]),
            "principles/never-deploy-on-fridays",
        );
        own(event(EventType::Constraint, Priority::P2, "Never deploy on Fridays", None, &[]), "");
        own(
            event(EventType::Preference, Priority::P0, "Short answers", None, &[]),
            "principles/short-answers",
        );
        own(
            event(EventType::Fact, Priority::P2, "Ship daily", None, &["principle", "insight"]),
            "principles/ship-daily insights/ship-daily",
        );
        own(event(EventType::Commitment, Priority::P0, "Send it", None, &["principle"]), "");
        own(
            event(EventType::Commitment, Priority::P0, "Send it", Some("mira"), &["principle"]),
            "entities/mira",
        );
        let root = event(EventType::Procedure, Priority::P2, "Deploy: run", None, &[]);
        check_keys(
            &event(EventType::Procedure, Priority::P2, "Run the new way", None, &[]),
            &root,
            "procedures/deploy",
        );
        let act = EventDraft::new_act(&root, Act::Confirm, root.ts, "yes")
            .with_id(EventId::new(root.ts.day(), 2));
        check_keys(&act, &root, "procedures/deploy");
        let noted = event(EventType::Fact, Priority::P2, "Beware", Some("shop"), &["insight"]);
        let noted = Event {
            id: noted.id,
            draft: noted.draft.with_extra_field(PAGE_FIELD, &"knowledge/procedures/deploy.md"),
        };
        check_keys(&noted, &noted, "entities/shop procedures/deploy");
        check_keys(
            &event(EventType::Fact, Priority::P2, "Beware more", None, &[]),
            &noted,
            "procedures/deploy",
        );
        let astray = Event {
            id: noted.id,
            draft: noted.draft.clone().with_extra_field(PAGE_FIELD, &"../etc/passwd"),
        };
        check_keys(&astray, &astray, "entities/shop insights/beware");
    }

    #[test]
    fn titles_are_the_first_words() {
        for (content, title) in [
            ("Deploy: run make", "Deploy"),
            ("See https://example.org/x for more", "See https://example.org/x for more"),
            ("one two three four five six seven: x", "one two three four five six"),
            ("Never deploy on Fridays.\nReally", "Never deploy on Fridays"),
            ("", ""),
        ] {
            assert_eq!(derive_title(content), title, "{content}");
        }
    }

    proptest! {
        // L4
        #[test]
        fn every_name_has_a_page_that_every_file_system_takes(one in ".{0,80}", two in "[a-cä 東_-]{0,6}", three in "[a-cä 東_-]{0,6}") {
            for name in [&one, &two, &three] {
                let made = slug(name);
                prop_assert!(made.len() <= MAX_SLUG_BYTES && !made.is_empty());
                prop_assert!(made.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-'));
                let key = PageKey::new(PageKind::Insight, name);
                prop_assert_eq!(PageKey::from_path(&key.path()), Some(key));
            }
            if slug(&two) == slug(&three) {
                prop_assert_eq!(sanitize::entity_key(&two), sanitize::entity_key(&three));
            }
        }

        #[test]
        fn titles_are_bounded_and_headings_stay_what_they_are(text in ".{0,300}") {
            prop_assert!(derive_title(&text).len() <= MAX_DERIVED_TITLE_BYTES);
            prop_assert_eq!(heading_name(&heading_name(&text)), heading_name(&text));
        }
    }
}
