//! What texts mean, as numbers: the sentence model all-MiniLM-L6-v2, computed here and nowhere
//! else.
//!
//! No text leaves the machine, and the same text has the same vector whatever it is embedded
//! together with, up to the rounding of the last digit. The model's files are got once (see
//! [`fetch`]); without them everything else works.

pub mod fetch;
pub mod wordpiece;

mod forward;
mod weights;

use std::io;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use icecore_domain::hash::Hash;
pub use icecore_domain::rank::vector::DIMENSIONS;

use self::forward::{Hand, Scratch};
use self::weights::Weights;
use self::wordpiece::Vocabulary;

/// The name of the model.
pub const MODEL: &str = "all-MiniLM-L6-v2";
/// The file with the weights.
pub const MODEL_FILE: &str = "model.safetensors";
/// The file with the words, one on each line.
pub const VOCABULARY_FILE: &str = "vocab.txt";
/// The file that can stand in for it.
pub const TOKENIZER_FILE: &str = "tokenizer.json";

/// So many tokens go through the model together, if the texts are shorter than that.
const BATCH_TOKENS: usize = 256;

/// Why there are no vectors.
#[derive(Debug, thiserror::Error)]
pub enum EmbedError {
    /// The model is not here.
    #[error("there is no {file} in {}. `icecore model fetch` gets the model", folder.display())]
    Missing {
        /// Where it was looked for.
        folder: PathBuf,
        /// What is not there.
        file: &'static str,
    },
    /// The system does not let it be read.
    #[error("{} cannot be read: {reason}. Check who owns it, or get it anew with `icecore model fetch`", file.display())]
    Unreadable {
        /// What was read.
        file: PathBuf,
        /// The system's reason.
        reason: io::Error,
    },
    /// It is broken.
    #[error("{} is damaged: {what}. `icecore model fetch` gets it anew", file.display())]
    Damaged {
        /// The broken file.
        file: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// A part of it has another form than this model has.
    #[error("{} is not {MODEL}: {tensor} is {found}, not {wanted}. `icecore model fetch` gets the right one", file.display())]
    WrongShape {
        /// The file.
        file: PathBuf,
        /// Which part.
        tensor: String,
        /// Its form.
        found: String,
        /// The form it should have.
        wanted: String,
    },
    /// It is a model, but another.
    #[error("{} is not of {MODEL}: {what}. `icecore model fetch` gets the right one", file.display())]
    OtherModel {
        /// The file.
        file: PathBuf,
        /// How one can tell.
        what: String,
    },
    /// Its bytes are not those that are known.
    #[error(
        "{} is not the file that is known under that name: its SHA-256 is {found}. `icecore model fetch` gets the right one",
        file.display()
    )]
    WrongHash {
        /// The file.
        file: PathBuf,
        /// What it hashes to.
        found: Hash,
    },
}

/// What a text means, as a point on the unit sphere.
#[derive(Debug, Clone, PartialEq)]
pub struct Vector(Box<[f32; DIMENSIONS]>);

impl Vector {
    /// The point in the direction of these numbers; `None` if they have no direction.
    pub fn towards(numbers: &[f32; DIMENSIONS]) -> Option<Self> {
        let length = numbers.iter().map(|x| x * x).sum::<f32>().sqrt();
        (length.is_finite() && length > 0.0).then(|| Self(Box::new(numbers.map(|x| x / length))))
    }

    /// How alike two meanings are: 1 for the same, about 0 for such as have nothing to do with each
    /// other.
    pub fn dot(&self, other: &Self) -> f32 {
        let mut sums = [0.0; 8];
        for (a, b) in self.0.as_chunks::<8>().0.iter().zip(other.0.as_chunks::<8>().0) {
            for (sum, (a, b)) in sums.iter_mut().zip(a.iter().zip(b)) {
                *sum += a * b;
            }
        }
        sums.iter().sum()
    }

    /// Its numbers.
    pub fn numbers(&self) -> &[f32; DIMENSIONS] {
        &self.0
    }
}

/// Something that knows what texts mean.
pub trait Embed: Send + Sync {
    /// The name of the model; vectors of different models cannot be compared.
    fn name(&self) -> &str;

    /// A vector for each text, in their order.
    fn embed(&self, texts: &[&str]) -> Result<Vec<Vector>, EmbedError>;
}

/// The model all-MiniLM-L6-v2.
pub struct MiniLm {
    weights: Weights,
    vocabulary: Vocabulary,
    threads: NonZeroUsize,
}

impl MiniLm {
    /// Opens the model in that folder. Long lists are embedded on as many threads as the machine
    /// has room for.
    ///
    /// The files' form is checked, not their hashes, which would take longer than all the rest: see
    /// [`fetch::verify`].
    pub fn load(folder: &Path) -> Result<Self, EmbedError> {
        let vocabulary = Vocabulary::open(folder)?;
        let weights = Weights::open(folder)?;
        Ok(Self {
            weights,
            vocabulary,
            threads: thread::available_parallelism().unwrap_or(NonZeroUsize::MIN),
        })
    }

    /// The same model, at work on at most so many threads.
    #[must_use]
    pub fn on_threads(self, threads: NonZeroUsize) -> Self {
        Self { threads, ..self }
    }

    /// The numbers of a text's tokens, as the model reads it.
    pub fn tokens(&self, text: &str) -> Vec<u32> {
        self.vocabulary.tokens(text)
    }

    fn vector(&self, numbers: &[f32; DIMENSIONS]) -> Result<Vector, EmbedError> {
        let what = "no vector comes out of it";
        Vector::towards(numbers).ok_or_else(|| EmbedError::Damaged {
            file: self.weights.path().to_owned(),
            what: what.into(),
        })
    }

    /// The mean of each text's states.
    fn pooled<'a>(
        &'a self,
        texts: &[&[u32]],
        scratch: &mut Scratch,
        hand: Option<&Hand<'a>>,
    ) -> Result<Vec<Vector>, EmbedError> {
        let states = forward::states(&self.weights, texts, scratch, hand)?;
        let mut first = 0;
        let pool = |text: &&[u32]| {
            // The length does not matter, only the direction, so the sum does as well as the mean.
            let sum = states.sum(first..first + text.len());
            first += text.len();
            self.vector(&sum)
        };
        texts.iter().map(pool).collect()
    }
}

impl Embed for MiniLm {
    fn name(&self) -> &str {
        MODEL
    }

    fn embed(&self, texts: &[&str]) -> Result<Vec<Vector>, EmbedError> {
        let tokens: Vec<Vec<u32>> = texts.iter().map(|text| self.tokens(text)).collect();
        let mut order: Vec<usize> = (0..tokens.len()).collect();
        // The longest first: at the end of the list the threads then wait for each other as short
        // as can be.
        order.sort_by_key(|at| std::cmp::Reverse(tokens.get(*at).map_or(0, Vec::len)));
        let ordered: Vec<&[u32]> =
            order.iter().filter_map(|at| tokens.get(*at)).map(Vec::as_slice).collect();
        let batches = batches(&ordered);
        let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::with_capacity(texts.len())));
        let work = |hand: Option<_>| {
            let mut scratch = Scratch::default();
            while let Some(batch) = batches.get(next.fetch_add(1, Ordering::Relaxed)) {
                let found = self.pooled(
                    ordered.get(batch.clone()).unwrap_or_default(),
                    &mut scratch,
                    hand.as_ref(),
                );
                let stop = found.is_err();
                done.lock()
                    .unwrap_or_else(std::sync::PoisonError::into_inner)
                    .push((batch.start, found));
                if stop {
                    // The others need not go on either.
                    next.store(batches.len(), Ordering::Relaxed);
                }
            }
        };
        thread::scope(|scope| {
            for _ in 1..self.threads.get().min(batches.len()) {
                scope.spawn(|| work(None));
            }
            // One batch is for one thread; another can only lend a hand.
            let hand = (batches.len() == 1 && self.threads.get() > 1).then(|| Hand::lend(scope));
            work(hand);
        });
        let mut done = done.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        done.sort_by_key(|(start, _)| *start);
        let mut vectors = Vec::with_capacity(texts.len());
        for (_, found) in done {
            vectors.extend(found?);
        }
        let mut placed: Vec<(usize, Vector)> = order.into_iter().zip(vectors).collect();
        placed.sort_unstable_by_key(|(at, _)| *at);
        Ok(placed.into_iter().map(|(_, vector)| vector).collect())
    }
}

/// Which texts go through the model together.
fn batches(texts: &[&[u32]]) -> Vec<Range<usize>> {
    let (mut batches, mut start, mut tokens) = (Vec::new(), 0, 0);
    for (at, text) in texts.iter().enumerate() {
        if at > start && tokens + text.len() > BATCH_TOKENS {
            batches.push(start..at);
            (start, tokens) = (at, 0);
        }
        tokens += text.len();
    }
    if start < texts.len() {
        batches.push(start..texts.len());
    }
    batches
}
