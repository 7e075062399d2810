//! The WordPiece tokenizer of the model.
//!
//! The tokens must be exactly those of the model's training: a word that is split differently has
//! another meaning. So Unicode categories come from the old tables that the model's authors used,
//! not from newer ones.

use std::path::Path;

use unicode_categories::UnicodeCategories as _;
use unicode_normalization::UnicodeNormalization as _;

use super::weights::VOCABULARY_SIZE;
use super::{EmbedError, TOKENIZER_FILE, VOCABULARY_FILE};

/// The most tokens of a text, including the first and the last.
pub const MAX_TOKENS: usize = 256;
/// A longer word is unknown.
const MAX_WORD_CHARS: usize = 100;
/// The size limit of a vocabulary file.
const MAX_VOCABULARY_FILE_BYTES: u64 = 16 << 20;
/// Special tokens, recognized as they are written, with their ids.
const SPECIAL_TOKENS: [(&str, u32); 5] =
    [("[PAD]", 0), ("[UNK]", 100), ("[CLS]", 101), ("[SEP]", 102), ("[MASK]", 103)];
const UNKNOWN_ID: u32 = 100;
const CLS_ID: u32 = 101;
const SEP_ID: u32 = 102;
/// A power of two, and more than twice the size of the vocabulary.
const HASH_SLOTS: usize = 1 << 16;
const EMPTY_SLOT: u32 = u32::MAX;

/// The tokens of the model with their ids.
pub struct Vocabulary {
    text: String,
    /// The end of each word in the text; a word begins after the previous line break.
    ends: Vec<u32>,
    /// A hash table from words to ids, with linear probing.
    slots: Vec<u32>,
}

impl Vocabulary {
    /// Reads `vocab.txt` or, if there is none, `tokenizer.json` in a folder.
    pub fn open(folder: &Path) -> Result<Self, EmbedError> {
        let path = folder.join(VOCABULARY_FILE);
        if let Some(text) = read_file(&path)? {
            return Self::from_lines(text)
                .map_err(|what| EmbedError::OtherModel { file: path, what });
        }
        let path = folder.join(TOKENIZER_FILE);
        match read_file(&path)? {
            Some(text) => Self::from_tokenizer_json(&text)
                .map_err(|what| EmbedError::OtherModel { file: path, what }),
            None => Err(EmbedError::Missing { folder: folder.to_owned(), file: VOCABULARY_FILE }),
        }
    }

    /// Reads a list with one word per line. The error says what is wrong with it.
    pub fn from_lines(mut text: String) -> Result<Self, String> {
        if !text.ends_with('\n') {
            text.push('\n');
        }
        let ends: Vec<u32> = memchr::memchr_iter(b'\n', text.as_bytes())
            .filter_map(|at| u32::try_from(at).ok())
            .collect();
        if ends.len() != VOCABULARY_SIZE {
            return Err(format!("it has {} words and not {VOCABULARY_SIZE}", ends.len()));
        }
        let mut vocabulary = Self { text, ends, slots: vec![EMPTY_SLOT; HASH_SLOTS] };
        for (number, slot_of) in (0..).zip(0..VOCABULARY_SIZE) {
            let word = vocabulary.word_at(slot_of);
            let mut slot = first_slot(word.as_bytes());
            while let Some(found) = vocabulary.slots.get(slot).filter(|found| **found != EMPTY_SLOT)
            {
                if vocabulary.word_at(*found as usize) == word {
                    return Err(format!("the word {word:?} is in it twice"));
                }
                slot = (slot + 1) % HASH_SLOTS;
            }
            vocabulary.slots[slot] = number;
        }
        match SPECIAL_TOKENS
            .iter()
            .find(|(word, number)| vocabulary.id_of(word.as_bytes()) != Some(*number))
        {
            Some((word, number)) => Err(format!("{word} is not its word {number}")),
            None => Ok(vocabulary),
        }
    }

    /// Reads the vocabulary of a `tokenizer.json`.
    pub fn from_tokenizer_json(json: &str) -> Result<Self, String> {
        Self::from_lines(lines_from_json(json)?)
    }

    fn word_at(&self, number: usize) -> &str {
        let start = number
            .checked_sub(1)
            .and_then(|before| self.ends.get(before))
            .map_or(0, |end| *end as usize + 1);
        let end = self.ends.get(number).map_or(start, |end| *end as usize);
        self.text.get(start..end).unwrap_or_default()
    }

    fn id_of(&self, word: &[u8]) -> Option<u32> {
        let mut slot = first_slot(word);
        loop {
            let number = *self.slots.get(slot)?;
            if number == EMPTY_SLOT {
                return None;
            }
            if self.word_at(number as usize).as_bytes() == word {
                return Some(number);
            }
            slot = (slot + 1) % HASH_SLOTS;
        }
    }

    /// The token ids of a text, with the first and the last token, at most [`MAX_TOKENS`].
    pub fn tokens(&self, text: &str) -> Vec<u32> {
        let mut tokens = vec![CLS_ID];
        self.append_tokens(text, &mut tokens);
        tokens.truncate(MAX_TOKENS - 1);
        tokens.push(SEP_ID);
        tokens
    }

    fn append_tokens(&self, mut text: &str, tokens: &mut Vec<u32>) {
        let mut word = WordBuffer::default();
        loop {
            let special = memchr::memchr_iter(b'[', text.as_bytes()).find_map(|at| {
                let (number, rest) = SPECIAL_TOKENS.iter().find_map(|(word, number)| {
                    Some((number, text.get(at..)?.strip_prefix(word)?))
                })?;
                Some((at, *number, rest))
            });
            let plain = special.map_or(text, |(at, ..)| text.get(..at).unwrap_or(text));
            self.append_plain(plain, &mut word, tokens);
            match special {
                Some((_, number, rest)) if tokens.len() < MAX_TOKENS => {
                    tokens.push(number);
                    text = rest;
                }
                _ => return,
            }
        }
    }

    /// Tokenizes text without special tokens, no further than its tokens are needed.
    fn append_plain(&self, text: &str, word: &mut WordBuffer, tokens: &mut Vec<u32>) {
        // Normalization looks ahead, but the start of a text never depends on what follows, so this
        // works incrementally.
        let cleaned = text.chars().filter(|c| !is_dropped(*c)).flat_map(with_spaces);
        for c in cleaned
            .nfd()
            .filter(|c| !(*c as u32 >= 0x300 && c.is_mark_nonspacing()))
            .flat_map(char::to_lowercase)
        {
            let (space, punctuation) = (c.is_whitespace(), is_punctuation(c));
            if space || punctuation {
                self.append_word(word, tokens);
            }
            if punctuation {
                word.push(c);
                self.append_word(word, tokens);
            } else if !space {
                word.push(c);
            }
            if tokens.len() >= MAX_TOKENS {
                break;
            }
        }
        self.append_word(word, tokens);
    }

    /// Splits a word greedily into the longest known pieces, and clears it.
    fn append_word(&self, word: &mut WordBuffer, tokens: &mut Vec<u32>) {
        let before = tokens.len();
        let mut start = 0;
        if word.chars > MAX_WORD_CHARS {
            tokens.push(UNKNOWN_ID);
            start = word.text.len();
        }
        let mut piece = [b'#'; 2 + 4 * MAX_WORD_CHARS];
        while start < word.text.len() {
            let rest = &word.text[start..];
            // A piece that continues a word is marked with `##`.
            let marks = if start == 0 { 0 } else { 2 };
            piece[marks..marks + rest.len()].copy_from_slice(rest.as_bytes());
            let ends = rest.char_indices().rev().map(|(at, c)| at + c.len_utf8());
            let found =
                ends.into_iter().find_map(|end| Some((end, self.id_of(&piece[..marks + end])?)));
            piece[..2].fill(b'#');
            match found {
                Some((end, number)) => {
                    tokens.push(number);
                    start += end;
                }
                None => {
                    tokens.truncate(before);
                    tokens.push(UNKNOWN_ID);
                    break;
                }
            }
        }
        word.text.clear();
        word.chars = 0;
    }
}

/// A word that is being read. Characters beyond the limit are only counted.
#[derive(Default)]
struct WordBuffer {
    text: String,
    chars: usize,
}

impl WordBuffer {
    fn push(&mut self, c: char) {
        self.chars += 1;
        if self.chars <= MAX_WORD_CHARS {
            self.text.push(c);
        }
    }
}

/// Converts the vocabulary of a `tokenizer.json` to the format of `vocab.txt`.
pub(super) fn lines_from_json(json: &str) -> Result<String, String> {
    #[derive(serde::Deserialize)]
    struct Tokenizer {
        model: TokenizerModel,
    }
    #[derive(serde::Deserialize)]
    struct TokenizerModel {
        vocab: std::collections::HashMap<String, u32>,
    }
    let Tokenizer { model } = serde_json::from_str(json)
        .map_err(|error| format!("it is not a list of words ({error})"))?;
    let mut words: Vec<(u32, String)> =
        model.vocab.into_iter().map(|(word, number)| (number, word)).collect();
    words.sort_unstable();
    if words.len() != VOCABULARY_SIZE
        || words.iter().zip(0..).any(|((number, word), at)| *number != at || word.contains('\n'))
    {
        return Err(format!("it does not number {VOCABULARY_SIZE} words one by one"));
    }
    Ok(words.into_iter().fold(String::new(), |text, (_, word)| text + &word + "\n"))
}

/// Reads a file; `None` if it does not exist.
fn read_file(path: &Path) -> Result<Option<String>, EmbedError> {
    use std::io::Read as _;
    let unreadable = |reason| EmbedError::Unreadable { file: path.to_owned(), reason };
    let file = match std::fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unreadable(error)),
    };
    let mut bytes = Vec::new();
    file.take(MAX_VOCABULARY_FILE_BYTES).read_to_end(&mut bytes).map_err(unreadable)?;
    let text = String::from_utf8(bytes).map_err(|_| EmbedError::Damaged {
        file: path.to_owned(),
        what: "it is not text".into(),
    })?;
    Ok(Some(text))
}

/// The first slot of a word (FNV-1a).
fn first_slot(word: &[u8]) -> usize {
    let hash = word.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    ((hash ^ hash >> 32) as usize) % HASH_SLOTS
}

fn is_dropped(c: char) -> bool {
    match c {
        '\t' | '\n' | '\r' | ' '..='~' => false,
        '\0' | '\u{fffd}' => true,
        _ => c.is_other(),
    }
}

/// Surrounds ideographs with spaces: each is a word of its own.
fn with_spaces(c: char) -> impl Iterator<Item = char> {
    let around = is_ideograph(c).then_some(' ');
    // Every whitespace becomes a plain space first.
    let c = if c.is_whitespace() { ' ' } else { c };
    around.into_iter().chain([c]).chain(around)
}

fn is_ideograph(c: char) -> bool {
    // The range before the last two begins where the model's authors have it, not where the block
    // does.
    matches!(c,
        '\u{4e00}'..='\u{9fff}' | '\u{3400}'..='\u{4dbf}' | '\u{20000}'..='\u{2a6df}' | '\u{2a700}'..='\u{2b73f}'
        | '\u{2b740}'..='\u{2b81f}' | '\u{2b920}'..='\u{2ceaf}' | '\u{f900}'..='\u{faff}' | '\u{2f800}'..='\u{2fa1f}')
}

fn is_punctuation(c: char) -> bool {
    if c.is_ascii() { c.is_ascii_punctuation() } else { c.is_punctuation() }
}
