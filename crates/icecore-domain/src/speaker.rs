//! Speaker attribution: the one rule that decides whose words a message contains.
//!
//! A role decides: `user` is the owner of this memory, `assistant` an assistant. A name is not a
//! role. A speaker with only a name is another person, unless the owner has that name, or is the
//! only human beside an assistant in a complete conversation. Another person's words are of low
//! trust: they can be found and confirmed, but they create no rules, wishes or promises of the
//! owner.

use std::collections::{BTreeMap, BTreeSet};

use crate::event::Origin;
use crate::record::{IncomingMessage, Role};

/// What people call themselves in their own notes.
const OWN_WORDS: [&str; 4] = ["i", "me", "myself", "ich"];

/// The names of the owner of a memory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OwnerNames(BTreeSet<String>);

impl OwnerNames {
    /// Creates the set; case and surrounding white space are ignored.
    pub fn new<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        Self(names.into_iter().map(normalize_name).filter(|name| !name.is_empty()).collect())
    }

    fn contains(&self, name: &str) -> bool {
        self.0.contains(&normalize_name(name)) || OWN_WORDS.contains(&normalize_name(name).as_str())
    }

    /// Whether a user of that name is another person, given the names of all users: one of several
    /// named users is the owner only if the owner has that name.
    pub fn is_one_of_several<'a>(
        &self,
        name: &str,
        users: impl IntoIterator<Item = &'a str>,
    ) -> bool {
        self.0.is_empty()
            && !self.contains(name)
            && users.into_iter().any(|user| normalize_name(user) != normalize_name(name))
    }
}

fn normalize_name(name: &str) -> String {
    name.trim().trim_start_matches(['@', '~']).trim().to_lowercase()
}

/// How much of a conversation is available.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ConversationExtent {
    /// Some messages of it.
    #[default]
    Part,
    /// All of it, so that the speakers can be counted.
    Whole,
}

/// The speakers of one conversation.
#[derive(Default)]
struct Speakers {
    /// Named people.
    named: BTreeSet<String>,
    has_unnamed_user: bool,
    has_assistant: bool,
}

impl Speakers {
    fn add(&mut self, message: &IncomingMessage) {
        match (message.role, &message.name) {
            (None | Some(Role::User), Some(name)) => {
                self.named.insert(normalize_name(name));
            }
            (Some(Role::User), None) => self.has_unnamed_user = true,
            (Some(Role::Assistant), _) => self.has_assistant = true,
            _ => {}
        }
    }

    fn is_owner(
        &self,
        message: &IncomingMessage,
        name: &str,
        owner: &OwnerNames,
        extent: ConversationExtent,
    ) -> bool {
        if owner.contains(name) {
            return true;
        }
        let only_one = self.named.len() == 1 && !self.has_unnamed_user;
        owner.0.is_empty()
            && only_one
            && (message.role.is_some()
                || (extent == ConversationExtent::Whole && self.has_assistant))
    }
}

/// Attributes each message: sets the role and, for another person, their name and the origin of
/// their words.
pub fn attribute_speakers(
    messages: &mut [IncomingMessage],
    owner: &OwnerNames,
    extent: ConversationExtent,
) {
    let place = |said: &IncomingMessage| (said.conversation.clone(), said.session.clone());
    // Most messages have no names.
    if messages.iter().all(|said| said.name.is_none() && said.role.is_some()) {
        return;
    }
    let mut voices: BTreeMap<_, Speakers> = BTreeMap::new();
    for said in messages.iter() {
        voices.entry(place(said)).or_default().add(said);
    }
    let mut with_others = BTreeSet::new();
    for said in messages.iter_mut().filter(|said| matches!(said.role, None | Some(Role::User))) {
        let Some(name) = said.name.clone() else { continue };
        if !voices
            .get(&place(said))
            .is_some_and(|voices| voices.is_owner(said, &name, owner, extent))
        {
            with_others.insert(place(said));
            said.origin =
                said.origin.filter(|origin| *origin == Origin::Tool).or(Some(Origin::Import));
            said.other_speaker = Some(name);
        }
        said.role = Some(Role::User);
    }
    for said in messages.iter_mut().filter(|said| said.role.is_none()) {
        // Text above the first speaker of a conversation among several people is not attributed to
        // the owner.
        if with_others.contains(&place(said)) {
            said.origin = said.origin.or(Some(Origin::Import));
        }
        said.role = Some(Role::User);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(role: Option<Role>, name: Option<&str>) -> IncomingMessage {
        IncomingMessage {
            role,
            name: name.map(str::to_owned),
            text: "words".into(),
            ..IncomingMessage::default()
        }
    }

    /// The names of the speakers that count as other people.
    fn others(
        messages: &[(Option<Role>, Option<&str>)],
        owner: &[&str],
        extent: ConversationExtent,
    ) -> Vec<String> {
        let mut messages: Vec<IncomingMessage> =
            messages.iter().map(|(role, name)| message(*role, *name)).collect();
        attribute_speakers(&mut messages, &OwnerNames::new(owner.iter().copied()), extent);
        assert!(messages.iter().all(|said| said.role.is_some()));
        assert!(
            messages
                .iter()
                .all(|said| said.other_speaker.is_none() || said.origin == Some(Origin::Import))
        );
        messages.into_iter().filter_map(|said| said.other_speaker).collect()
    }

    #[test]
    fn a_name_is_no_role() {
        use ConversationExtent::{Part, Whole};
        const USER: Option<Role> = Some(Role::User);
        const ASSISTANT: Option<Role> = Some(Role::Assistant);
        let group = [(None, Some("Anna")), (None, Some("Bob")), (ASSISTANT, None)];
        let pair = [(None, Some("Anna")), (ASSISTANT, None), (None, Some("anna "))];
        let people = [(USER, Some("Anna")), (USER, Some("Bob"))];
        for (messages, owner, extent, expected) in [
            // Several people: none is the owner unless the owner has a name.
            (group.as_slice(), [].as_slice(), Whole, ["Anna", "Bob"].as_slice()),
            (&group, &["ANNA"], Whole, &["Bob"]),
            (&group, &["Carol"], Part, &["Anna", "Bob"]),
            // One human beside an assistant, in a complete conversation.
            (&pair, &[], Whole, &[]),
            (&pair, &[], Part, &["Anna", "anna "]),
            (&pair, &["Carol"], Whole, &["Anna", "anna "]),
            // Two people without an assistant, or one alone.
            (&group[..2], &[], Whole, &["Anna", "Bob"]),
            (&group[..1], &[], Whole, &["Anna"]),
            // A stated role, with a name.
            (&[(USER, Some("Anna"))], &[], Part, &[]),
            (&[(USER, Some("Anna"))], &["Bob"], Part, &["Anna"]),
            (&people, &[], Part, &["Anna", "Bob"]),
            (&people, &["Bob"], Part, &["Anna"]),
            (&[(USER, None), (None, Some("Bob")), (ASSISTANT, None)], &[], Whole, &["Bob"]),
            (&[(USER, None), (ASSISTANT, Some("Bob"))], &[], Whole, &[]),
            (&[(None, Some("I")), (None, Some("Bob"))], &[], Part, &["Bob"]),
        ] {
            assert_eq!(
                others(messages, owner, extent),
                expected,
                "{messages:?} {owner:?} {extent:?}"
            );
        }
    }

    #[test]
    fn what_stands_above_a_talk_among_others_is_not_the_owners() {
        let mut messages =
            vec![message(None, None), message(None, Some("Bob")), message(None, Some("Carol"))];
        attribute_speakers(&mut messages, &OwnerNames::default(), ConversationExtent::Whole);
        assert_eq!(
            (messages[0].role, messages[0].origin),
            (Some(Role::User), Some(Origin::Import))
        );
        let mut alone = vec![message(None, None)];
        attribute_speakers(&mut alone, &OwnerNames::default(), ConversationExtent::Whole);
        assert_eq!((alone[0].role, alone[0].origin), (Some(Role::User), None));
    }
}
