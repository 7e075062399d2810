//! Word lists for reading claims: English, and basic German.
//!
//! A missing word only hides a conflict; a wrong one reports a conflict that is none.

/// Verbs that give a single value, each with the attribute it sets.
#[rustfmt::skip]
pub(super) const SINGLE_VALUE_VERBS: &[(&str, &str)] = &[
    ("is", ""), ("are", ""), ("=", ""), ("equals", ""), ("amounts to", ""), ("is set to", ""), ("was set to", ""),
    ("changed to", ""), ("was changed to", ""), ("has changed to", ""), ("was raised to", ""), ("was increased to", ""),
    ("was reduced to", ""), ("was lowered to", ""), ("went up to", ""), ("is on", ""), ("takes place on", ""),
    ("takes place in", ""), ("is scheduled for", ""), ("is set for", ""), ("falls on", ""), ("was postponed to", ""),
    ("was rescheduled to", ""), ("slipped to", ""), ("moved to", "moved"), ("was moved to", "moved"), ("has moved to", "moved"),
    ("has been moved to", "moved"), ("relocated to", "moved"), ("is due", "due"), ("is due on", "due"), ("is due by", "due"),
    ("starts", "starts"), ("starts on", "starts"), ("begins", "starts"), ("begins on", "starts"), ("ends", "ends"),
    ("ends on", "ends"), ("expires", "ends"), ("expires on", "ends"), ("opens", "opens"), ("closes", "closes"),
    ("launches on", "launches"), ("launches in", "launches"), ("ships on", "launches"), ("lives in", "lives in"),
    ("resides in", "lives in"), ("is based in", "is based in"), ("is located in", "is based in"),
    ("is headquartered in", "is based in"), ("is in", "is in"), ("works at", "works for"), ("works for", "works for"),
    ("reports to", "reports to"), ("is married to", "is married to"), ("is called", "is called"), ("is named", "is called"),
    ("is owned by", "is owned by"), ("is led by", "is led by"), ("is managed by", "is managed by"),
    ("is hosted on", "is hosted on"), ("costs", "costs"), ("cost", "costs"), ("of", "of"),
];
/// Verbs whose number is a claim.
#[rustfmt::skip]
pub(super) const COUNTING_VERBS: &[&str] = &[
    "use", "run", "require", "need", "have", "take", "last", "weigh", "measure", "earn",
];
/// Spelling variants and German words, each with the form used here.
#[rustfmt::skip]
pub(super) const SPELLING_VARIANTS: &[(&str, &str)] = &[
    ("isn't", "is not"), ("aren't", "are not"), ("doesn't", "does not"), ("don't", "do not"), ("didn't", "did not"),
    ("can't", "can not"), ("cannot", "can not"), ("won't", "will not"), ("shouldn't", "should not"), ("mustn't", "must not"),
    ("hasn't", "has not"), ("haven't", "have not"), ("ist", "is"), ("sind", "are"), ("beträgt", "is"), ("betragen", "are"),
    ("kostet", "costs"), ("heißt", "is called"), ("heisst", "is called"), ("wohnt", "lives"), ("lebt", "lives"),
    ("beginnt", "starts"), ("endet", "ends"), ("arbeitet", "works"), ("bei", "at"), ("nutzt", "uses"), ("benutzt", "uses"),
    ("verwendet", "uses"), ("braucht", "needs"), ("hat", "has"), ("dauert", "takes"), ("liegt", "is"), ("am", "on"),
    ("und", "and"), ("oder", "or"), ("für", "for"), ("von", "of"), ("nicht", "not"), ("kein", "no"), ("keine", "no"),
    ("keinen", "no"), ("keiner", "no"), ("nie", "never"), ("niemals", "never"), ("ohne", "without"), ("mit", "with"),
    ("der", "the"), ("die", "the"), ("das", "the"), ("den", "the"), ("dem", "the"), ("unser", "our"), ("unsere", "our"),
    ("mein", "my"), ("meine", "my"), ("ein", "a"), ("eine", "a"), ("einen", "a"), ("auch", "also"), ("jetzt", "now"),
    ("noch", "still"), ("schon", "already"), ("immer", "always"), ("muss", "must"), ("wir", "we"), ("ich", "i"), ("war", "was"),
    ("waren", "were"), ("hatte", "had"), ("früher", "formerly"), ("vielleicht", "maybe"), ("wahrscheinlich", "probably"),
    ("mindestens", "at least"), ("höchstens", "at most"), ("etwa", "about"), ("ungefähr", "about"), ("circa", "about"),
    ("ca", "about"), ("zwischen", "between"),
];
/// Words before one specific thing.
#[rustfmt::skip]
pub(super) const ARTICLES: &[&str] = &[
    "the", "our", "my", "your", "their",
];
/// Negations.
#[rustfmt::skip]
pub(super) const NEGATING_PARTICLES: &[&str] = &[
    "not", "never", "no", "without",
];
/// Words that do not change whether a sentence holds.
#[rustfmt::skip]
pub(super) const FILLER_WORDS: &[&str] = &[
    "always", "must", "do", "does", "should", "will", "can", "yet", "already", "still", "currently", "now", "anymore", "longer",
    "mehr", "ever", "a", "an", "any", "the", "our", "we", "i", "my",
];
/// After a negation these mean "not in every case".
#[rustfmt::skip]
pub(super) const PARTIAL_NEGATIONS: &[&str] = &[
    "only", "always", "all", "every", "necessarily", "just", "later", "more", "less", "fewer", "earlier", "one", "nur",
];
/// One of these words makes the value indefinite.
#[rustfmt::skip]
pub(super) const VAGUE_WORDS: &[&str] = &[
    "was", "were", "had", "formerly", "previously", "ago", "yesterday", "once", "also", "too", "another", "additional", "between",
    "about", "around", "roughly", "approximately", "almost", "nearly", "least", "most", "or", "either", "sometimes", "usually",
    "often", "not", "never", "no", "without", "both", "up", "minimum", "maximum",
];
/// A subject that starts with one of these is not one specific thing.
#[rustfmt::skip]
pub(super) const INDEFINITE_WORDS: &[&str] = &[
    "a", "an", "one", "some", "each", "every", "any", "it", "this", "that", "there", "he", "she", "they", "these", "those",
    "what", "which", "who", "here", "es", "er", "sie", "everything", "nothing", "someone", "i", "we", "you", "today", "tomorrow",
    "all",
];
/// Nouns of which a thing may have many.
#[rustfmt::skip]
pub(super) const MULTI_VALUE_NOUNS: &[&str] = &[
    "phone", "telephone", "tel", "mobile", "email", "e-mail", "mail", "note", "todo", "tag", "link", "url", "member", "hobby",
    "skill", "decision", "idea", "question", "update", "warning", "tip", "example", "reminder", "meeting", "call", "action",
    "next", "risk", "source", "problem", "issue", "goal", "reason", "challenge", "option", "alternative", "candidate", "friend",
    "client", "customer", "competitor", "colleague", "child", "son", "daughter", "sister", "brother", "cousin", "dog", "cat",
    "pet", "author", "founder", "parent", "developer", "fact", "info", "see", "task", "step", "feature", "requirement",
    "language", "account", "book", "film", "movie", "best", "worst", "same", "way", "case", "first", "last", "thing", "person",
    "kind", "people", "reviewer", "expert", "user", "supplier", "topic", "point", "lesson", "fyi", "ps", "re", "ask", "fix",
    "bug", "error", "quote", "rule", "allergy", "telefon", "notiz", "hinweis", "frage",
];
/// Nouns of which a thing has one; other values must look like names.
#[rustfmt::skip]
pub(super) const SINGLE_VALUE_NOUNS: &[&str] = &[
    "name", "colour", "color", "status", "currency", "timezone", "zone", "title", "theme", "priority", "favourite", "favorite",
    "default", "primary", "main", "official", "preferred", "password", "branch", "font", "licence", "license", "farbe", "währung",
];
/// Roles of people, who may be given by first name.
#[rustfmt::skip]
pub(super) const ROLES: &[&str] = &[
    "contact", "ceo", "cto", "cfo", "coo", "lead", "leader", "owner", "manager", "boss", "head", "director", "husband", "wife",
    "partner", "landlord", "lawyer", "doctor", "dentist", "teacher", "maintainer", "chair", "president", "sponsor", "mentor",
    "supervisor", "ansprechpartner", "ansprechpartnerin", "chef", "chefin", "leiter", "leiterin",
];
/// Nouns after which a number is a name, not an amount.
#[rustfmt::skip]
pub(super) const NUMBERED_NOUNS: &[&str] = &[
    "port", "invoice", "ticket", "issue", "room", "order", "number", "no", "pr", "line", "page", "chapter", "step", "phase",
    "gate", "table", "form", "section", "case", "build", "bus", "flight", "train", "route", "channel", "extension", "model",
];
/// Places that contain other places.
#[rustfmt::skip]
pub(super) const REGIONS: &[&str] = &[
    "germany", "deutschland", "france", "spain", "italy", "austria", "switzerland", "poland", "netherlands", "belgium",
    "portugal", "sweden", "norway", "denmark", "finland", "ireland", "england", "scotland", "wales", "uk", "britain", "europe",
    "usa", "us", "america", "canada", "mexico", "brazil", "china", "india", "japan", "australia", "asia", "africa", "california",
    "texas", "bavaria", "bayern", "eu",
];
/// Nationalities, which are not names.
#[rustfmt::skip]
pub(super) const NATIONALITIES: &[&str] = &[
    "german", "american", "european", "african", "french", "dutch", "swiss", "greek", "czech", "asian",
];
/// Spellings of currencies, each with its code.
#[rustfmt::skip]
pub(super) const CURRENCIES: &[(&str, &str)] = &[
    ("eur", "eur"), ("euro", "eur"), ("euros", "eur"), ("€", "eur"), ("usd", "usd"), ("dollar", "usd"), ("dollars", "usd"),
    ("$", "usd"), ("gbp", "gbp"), ("pounds", "gbp"), ("£", "gbp"), ("chf", "chf"),
];
/// Opposites, each with its positive word.
#[rustfmt::skip]
pub(super) const OPPOSITES: &[(&str, &str)] = &[
    ("disabled", "enabled"), ("off", "on"), ("closed", "open"), ("inactive", "active"), ("private", "public"),
    ("offline", "online"), ("optional", "required"), ("forbidden", "allowed"), ("prohibited", "allowed"), ("false", "true"),
    ("unavailable", "available"), ("unpaid", "paid"), ("unsigned", "signed"), ("incomplete", "complete"), ("invalid", "valid"),
    ("unsupported", "supported"),
];
