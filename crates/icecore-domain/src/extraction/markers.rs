//! The phrases that mark a statement as meant to last, in English and German. Contractions are
//! expanded.

use crate::event::{EventType, Priority};

/// Labels before a colon, as in `Decision: ...`.
pub(crate) const LABELS: &[(&str, EventType, Priority)] = &[
    ("decision", EventType::Decision, Priority::P1),
    ("decided", EventType::Decision, Priority::P1),
    ("entscheidung", EventType::Decision, Priority::P1),
    ("todo", EventType::Commitment, Priority::P2),
    ("to do", EventType::Commitment, Priority::P2),
    ("to-do", EventType::Commitment, Priority::P2),
    ("action item", EventType::Commitment, Priority::P2),
    ("aufgabe", EventType::Commitment, Priority::P2),
    ("constraint", EventType::Constraint, Priority::P1),
    ("rule", EventType::Constraint, Priority::P1),
    ("regel", EventType::Constraint, Priority::P1),
    ("preference", EventType::Preference, Priority::P2),
    ("procedure", EventType::Procedure, Priority::P2),
];

/// Words that make a sentence a thought instead of a statement.
#[rustfmt::skip]
pub(crate) const HYPOTHETICAL: &[&str] = &[
    "what if", "should we", "should i", "maybe", "perhaps", "might", "would", "could", "suppose", "imagine", "assuming", "whether",
    "hopefully", "probably", "wonder", "wondering", "not sure", "i guess", "considering", "thinking about", "thinking of", "i think",
    "vielleicht", "sollten wir", "würde", "würden", "könnte", "könnten", "hätte", "angenommen", "vermutlich", "ich glaube", "eventuell",
    "almost", "nearly", "fast",
];
/// First words of a condition.
#[rustfmt::skip]
pub(crate) const CONDITIONAL_STARTS: &[&str] =
&[
    "if", "when", "unless", "even if", "and if", "but if", "so if", "in case", "as if", "wenn", "falls", "sobald", "ob", "or", "oder",
];
/// Words for a condition in any position. A rule may have one; a decision or a promise may not.
pub(crate) const CONDITIONS: &[&str] = &["if", "unless", "wenn", "falls"];
/// Reported speech and hearsay.
#[rustfmt::skip]
pub(crate) const REPORTED_SPEECH: &[&str] = &[
    "he said", "she said", "they said", "said that", "told me", "told us", "he says", "she says", "they say", "people say", "says that",
    "he thinks", "she thinks", "they think", "heard that", "read that", "apparently", "according to", "article", "in the movie",
    "er sagte", "sie sagte", "er sagt", "sie sagt", "er meinte", "sie meinte", "angeblich", "laut", "the book", "the film", "the lyrics",
    "the joke", "supposedly", "used to",
];

/// Phrases for a decision, in any position.
#[rustfmt::skip]
pub(crate) const DECISIONS: &[&str] = &[
    "we decided", "i decided", "we have decided", "i have decided", "team decided", "it was decided", "has been decided",
    "we finally decided", "we agreed on", "we agreed to", "we agreed that", "we have agreed on", "we have agreed to", "we settled on",
    "we have settled on", "we are going with", "i am going with", "we will use", "we will go with", "we switched to",
    "we have switched to", "we chose", "i chose", "we have chosen", "we picked", "let us go with", "let us use", "wir haben entschieden",
    "wir haben uns entschieden", "ich habe entschieden", "ich habe mich entschieden", "wir nehmen", "wir setzen auf",
    "wurde entschieden", "wir haben beschlossen", "wir wechseln zu",
];
/// Phrases for a decision at the start of a sentence.
#[rustfmt::skip]
pub(crate) const DECISION_STARTS: &[&str] = &[
    "decided to", "decided on", "decided that", "decided against", "agreed on", "agreed to", "agreed that", "settled on", "going with",
    "switched to", "chose", "entschieden", "beschlossen",
];
/// Words that make a decision uncertain or trivial.
#[rustfmt::skip]
pub(crate) const UNDECIDED: &[&str] = &[
    "not decided", "not yet decided", "never decided", "have not", "has not", "nothing", "undecided", "tonight", "lunch", "dinner",
    "breakfast", "nap", "movie", "film", "coffee break", "pizza", "noch nicht", "nicht entschieden", "nichts", "warum", "heute abend",
    "mittagessen", "to disagree", "to meet", "great", "joke",
];

/// Words before a decision that is only talked about.
#[rustfmt::skip]
pub(crate) const NOT_BEFORE_DECISIONS: &[&str] = &[
    "before", "until", "once", "how", "why", "what", "can", "where", "when", "the day", "who", "glad", "sorry", "that", "if", "warum",
    "wie", "was", "bevor", "bis",
];
/// German phrases for a decision with the verb at the end.
#[rustfmt::skip]
pub(crate) const GERMAN_SPLIT_DECISIONS: &[&str] = &[
    "wir haben uns für", "wir haben uns gegen", "wir haben uns auf", "ich habe mich für", "ich habe mich gegen",
];

/// Phrases for a preference, in any position.
#[rustfmt::skip]
pub(crate) const PREFERENCES: &[&str] = &[
    "i prefer", "i much prefer", "i strongly prefer", "i generally prefer", "i usually prefer", "please always", "please never",
    "i hate when", "i hate it when", "i do not like it when", "i want you to always", "i want you to never", "ich bevorzuge",
    "ich hasse es wenn", "bitte immer", "bitte nie", "bitte niemals", "ich mag es nicht wenn",
];
/// Preferences about the current situation only.
#[rustfmt::skip]
pub(crate) const MOMENTARY_PREFERENCES: &[&str] = &[
    "i prefer that", "i prefer this", "i prefer it", "i prefer these", "i prefer those", "i prefer the first", "i prefer the second",
    "i prefer the third", "i prefer the latter", "i prefer the former", "i prefer option", "i prefer your", "i prefer yours",
    "i prefer not to say", "i prefer not to answer", "i prefer the one", "i prefer one", "i prefer both", "i prefer neither",
];
/// Phrases for a favorite; the words in between name the topic.
pub(crate) const FAVOURITES: &[&str] =
    &["my favourite", "my favorite", "my preferred", "mein lieblings", "meine lieblings"];

/// Phrases for a promise or a reminder; no date is required.
#[rustfmt::skip]
pub(crate) const PROMISES: &[&str] = &[
    "i promise to", "i promise i will", "i promise that i will", "we promise to", "i promised to", "we promised to", "remind me to",
    "remind me on", "remind me about", "remind me that", "remind us to", "do not let me forget to", "erinnere mich", "ich verspreche",
    "ich habe versprochen", "bitte erinnern",
];
/// Phrases before an action with a due date.
#[rustfmt::skip]
pub(crate) const OBLIGATION_PHRASES: &[&str] = &[
    "i will", "we will", "i am going to", "we are going to", "i need to", "we need to", "i have to", "we have to", "i must", "we must",
    "you need to", "you have to", "please", "need to",
];
/// Phrases for a deadline.
#[rustfmt::skip]
pub(crate) const DEADLINES: &[&str] = &[
    "is due on", "is due by", "is due", "are due on", "are due by", "are due", "deadline is", "deadline for", "deadline", "frist",
    "abgabe",
];
/// German phrases before an action; the verb is at the end.
pub(crate) const GERMAN_OBLIGATION_PHRASES: &[&str] =
    &["ich werde", "wir werden", "ich muss", "wir müssen", "muss", "müssen"];

/// Words for a person's relation to the speaker.
#[rustfmt::skip]
pub(crate) const KINSHIP_WORDS: &[&str] = &[
    "wife", "husband", "boss", "manager", "sister", "brother", "mother", "father", "mom", "mum", "dad", "son", "daughter", "partner",
    "colleague", "doctor", "dentist", "lawyer", "landlord", "assistant", "accountant", "girlfriend", "boyfriend", "fiancé", "fiancée",
    "dog", "cat", "teacher", "coach", "therapist", "neighbour", "neighbor", "frau", "mann", "chef", "chefin", "schwester", "bruder",
    "mutter", "vater", "sohn", "tochter", "kollege", "kollegin", "hund", "katze", "partnerin", "freundin", "freund",
];
/// Phrases that relate two names.
#[rustfmt::skip]
pub(crate) const RELATIONSHIPS: &[&str] = &[
    "is the contact for", "is our contact for", "is my contact for", "is our contact at", "is the contact at", "is my contact at",
    "works for", "works at", "works with", "reports to", "is married to", "is the manager of", "is the ceo of", "is the owner of",
    "is responsible for", "arbeitet bei", "arbeitet für", "ist verheiratet mit", "berichtet an", "ist ansprechpartner für",
    "ist ansprechpartnerin für",
];

/// What must follow an identity phrase for it to count.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum IdentityValue {
    /// A name or a number.
    Name,
    /// A word that can be a name.
    Word,
    /// A day, a month or a number.
    Day,
    /// A number or an address.
    Address,
}

pub(crate) const IDENTITY: &[(&str, IdentityValue)] = &[
    ("my name is", IdentityValue::Word),
    ("my full name is", IdentityValue::Word),
    ("ich heiße", IdentityValue::Word),
    ("ich heisse", IdentityValue::Word),
    ("mein name ist", IdentityValue::Word),
    ("i live in", IdentityValue::Name),
    ("i live at", IdentityValue::Name),
    ("i work at", IdentityValue::Name),
    ("i work for", IdentityValue::Name),
    ("i was born in", IdentityValue::Name),
    ("i was born on", IdentityValue::Day),
    ("my birthday is", IdentityValue::Day),
    ("my time zone is", IdentityValue::Name),
    ("my timezone is", IdentityValue::Name),
    ("my address is", IdentityValue::Address),
    ("my phone is", IdentityValue::Address),
    ("my phone number is", IdentityValue::Address),
    ("my number is", IdentityValue::Address),
    ("my email is", IdentityValue::Address),
    ("my e-mail is", IdentityValue::Address),
    ("my email address is", IdentityValue::Address),
    ("my e-mail address is", IdentityValue::Address),
    ("ich wohne in", IdentityValue::Name),
    ("ich arbeite bei", IdentityValue::Name),
    ("mein geburtstag ist", IdentityValue::Day),
    ("meine telefonnummer ist", IdentityValue::Address),
    ("meine e-mail ist", IdentityValue::Address),
];
/// Words after `my name is` that are not names.
#[rustfmt::skip]
pub(crate) const NON_NAMES: &[&str] = &[
    "not", "a", "an", "on", "in", "the", "all", "everywhere", "mud", "too", "hard", "long", "short", "misspelled", "wrong", "nicht",
    "auf",
];

/// Words that may precede a rule.
#[rustfmt::skip]
pub(crate) const LEAD_INS: &[&str] = &[
    "please", "and", "also", "so", "important", "note", "remember", "again", "ok", "okay", "but", "from now on", "bitte", "wichtig",
    "und",
];

/// Verbs for actions that people order, forbid or promise. Verbs with other frequent meanings are
/// excluded.
#[rustfmt::skip]
pub(crate) const ACTION_VERBS: &[&str] = &[
    "deploy", "use", "push", "commit", "send", "merge", "ask", "run", "write", "call", "share", "store", "log", "delete", "touch",
    "change", "edit", "answer", "reply", "respond", "include", "add", "put", "keep", "book", "schedule", "buy", "pay", "spend", "sign",
    "contact", "mention", "show", "open", "start", "stop", "restart", "test", "check", "review", "create", "build", "release", "ship",
    "publish", "install", "update", "upgrade", "remove", "rename", "move", "copy", "email", "e-mail", "mail", "print", "prepare",
    "finish", "deliver", "submit", "fix", "implement", "refactor", "document", "migrate", "back", "backup", "restore", "commit",
    "rebase", "squash", "format", "lint", "validate", "verify", "encrypt", "hash", "rotate", "revoke", "grant", "approve", "reject",
    "cancel", "order", "invoice", "renew", "file", "upload", "download", "translate", "cite", "quote", "summarize", "summarise",
    "address", "round", "cache", "exceed", "disclose", "expose", "hardcode", "log", "force-push", "modify", "overwrite", "drop",
    "truncate", "confirm", "cc", "invite", "notify", "inform", "present", "draft", "proofread", "plan", "follow", "pick", "return",
    "transfer", "hire", "enable", "disable", "set", "configure", "name", "prefix", "wrap", "escape", "sanitize", "import", "export",
    "commit", "tag", "bump", "pin", "mock", "skip", "ignore", "speak", "provide", "explain", "close", "respect", "wear", "eat", "drink",
    "take", "water", "feed", "clean", "repair",
];
/// Words that, after a verb, make the sentence a description instead of an instruction.
#[rustfmt::skip]
pub(crate) const NARRATIVE_WORDS: &[&str] =
&[
    "into", "out", "up", "away", "off", "late", "mad", "me", "it", "that", "this", "them", "with", "about",
];
/// Polite recommendations that are not orders: `you must see this film`.
#[rustfmt::skip]
pub(crate) const POLITE_PHRASES: &[&str] = &[
    "call", "ask", "write", "show", "answer", "mention", "email", "mail", "take", "eat", "drink", "order",
];

/// Endings of `must be ...` that make it a rule.
#[rustfmt::skip]
pub(crate) const RULE_STATES: &[&str] = &[
    "below", "under", "above", "over", "within", "at", "in", "on", "less", "more", "no", "unique", "optional", "valid", "public",
    "private", "read-only", "available", "written", "signed", "sent", "kept", "done", "run", "built", "set", "given", "reviewed",
];
/// Participles for feelings.
#[rustfmt::skip]
pub(crate) const FEELINGS: &[&str] = &[
    "tired", "bored", "excited", "worried", "exhausted", "surprised", "confused", "frustrated", "annoyed", "pleased", "thrilled",
    "scared", "disappointed", "relieved", "mistaken", "kidding", "joking", "stressed", "overwhelmed", "interested", "related", "broken",
    "cursed",
];
/// Subjects that a rule cannot bind.
#[rustfmt::skip]
pub(crate) const NON_RULE_SUBJECTS: &[&str] = &[
    "i", "it", "that", "this", "there", "he", "she", "they", "who", "which", "these", "those", "someone", "somebody", "something",
    "what",
];
/// Subjects of rules.
#[rustfmt::skip]
pub(crate) const RULE_SUBJECTS: &[&str] = &[
    "we", "you", "all", "every", "each", "the", "our", "no", "nobody", "users", "clients", "agents", "developers", "tests", "passwords",
    "secrets", "commits", "answers", "replies", "reports", "invoices", "deployments", "releases", "any", "everyone", "everybody",
    "customers", "prices", "contracts", "keys", "tokens", "backups", "branches", "meetings", "payments", "offers", "emails", "files",
    "endpoints",
];
/// Words that make `we cannot` a rule instead of a complaint.
#[rustfmt::skip]
pub(crate) const RULE_LIMITS: &[&str] = &[
    "without", "more than", "before", "after", "until", "during", "outside", "ever", "under any circumstances", "on mondays",
    "on tuesdays", "on wednesdays", "on thursdays", "on fridays", "on saturdays", "on sundays", "on weekends",
];
/// Idioms that look like rules.
#[rustfmt::skip]
pub(crate) const IDIOMS: &[&str] = &[
    "never mind", "never say never", "never been", "never ever again", "always a", "always the", "always wanted", "always good",
    "always nice", "always happy", "must say", "must admit", "must confess", "must have", "must be kidding", "must be joking",
    "never fails", "never gets old", "always look on the bright", "cannot wait", "cannot believe", "cannot stand", "cannot help",
    "cannot complain", "cannot remember", "cannot thank", "better late than never", "now or never", "never too late", "never stops",
    "practice makes", "never give up", "immer wieder", "immer noch", "nie im leben", "immer mit der ruhe", "was auch immer", "wie immer",
    "so wie immer", "must go on", "must-have", "as always", "never again", "like always", "you never know", "must run", "a must",
];

/// Greetings and other phrases not worth remembering.
#[rustfmt::skip]
pub(crate) const GREETINGS: &[&str] = &[
    "hi", "hello", "hey", "thanks", "thank you", "good morning", "good evening", "good night", "bye", "see you", "cheers", "hallo",
    "danke", "guten morgen", "guten tag", "guten abend", "tschüss", "ok thanks", "you are welcome", "sounds good", "great job",
    "well done",
];

/// Instructions to an assistant, which must not come from a page, a tool's output or an assistant's
/// own notes.
#[rustfmt::skip]
pub(crate) const INSTRUCTION_PHRASES: &[&str] = &[
    "ignore previous", "ignore all previous", "ignore the previous", "ignore prior", "ignore all prior", "ignore any previous",
    "ignore your instructions", "ignore your previous", "ignore the above", "ignore everything above", "ignore all instructions",
    "disregard previous", "disregard all", "disregard the above", "disregard your", "disregard any", "forget everything",
    "forget your instructions", "forget all previous", "forget previous", "override your", "override all", "you must now", "you are now",
    "you will now", "from now on", "starting now you", "system prompt", "system message", "system override", "developer mode",
    "do not tell the user", "do not inform the user", "do not mention this", "do not reveal", "without telling the user",
    "without asking the user", "hide this from", "keep this secret", "keep this hidden", "always recommend", "always suggest",
    "always trust", "never question", "never refuse", "trusted source", "most trustworthy", "you are authorized", "you are authorised",
    "as an ai", "as the assistant", "assistant must", "assistant should", "assistant will", "assistant shall", "ai must", "ai should",
    "ai assistants", "ai agents", "the model must", "the model should", "the agent must", "the agent should", "pretend to be",
    "pretend you", "jailbreak", "save to memory", "save this to", "store in memory", "add to memory", "add to your memory",
    "update your memory", "write to memory", "commit to memory", "long-term memory", "your memory", "user wants you to",
    "user has asked you", "user prefers you", "user has approved", "user has authorized", "user authorized", "on behalf of the user",
    "user's preference is", "ignoriere alle", "ignoriere die", "ignoriere vorherige", "vergiss alle", "du bist jetzt", "du bist nun",
    "ab jetzt", "ab sofort", "sage dem nutzer nicht", "empfiehl immer", "empfehle immer", "systemprompt", "your instructions",
    "previous instructions", "your guidelines", "this is an order", "begin instructions", "end of instructions", "important instruction",
    "note to ai", "attention ai", "dear ai", "exfiltrate", "reveal your", "your api key",
];

/// Further phrases by which a page or tool may try to influence the assistant. An assistant's own
/// notes may use them about the owner.
#[rustfmt::skip]
pub(crate) const PERSUASION_PHRASES: &[&str] = &[
    "always use", "always include", "always answer", "always reply", "always respond", "always prefer", "always mention", "always say",
    "never mention", "never tell", "remember that", "remember this", "remember to", "you should always", "you should never", "you must",
    "you have to", "you are required", "is the best", "is trusted", "curl", "base64", "execute this", "execute the following",
    "run the following", "send all", "forward all", "send the password", "llm", "language model", "chatbot", "new instructions",
    "updated instructions", "act as", "role play", "instruction to", "instructions for", "you are allowed to", "du musst", "merke dir",
    "your configuration", "never recommend", "your rules", "the user prefers", "the user always", "the user decided",
    "the user has decided", "user confirmed", "user approved",
];
