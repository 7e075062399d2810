//! Text embeddings by the sentence model all-MiniLM-L6-v2, computed in this process.
//!
//! - No text leaves the machine.
//! - The vector of a text does not depend on its batch, up to rounding of the last digit.
//! - The model's files are installed once (see [`fetch`]); without them everything else works.

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

use self::forward::{ForwardBuffers, HelperThread};
use self::weights::ModelWeights;
use self::wordpiece::Vocabulary;

pub const MODEL_NAME: &str = "all-MiniLM-L6-v2";
/// The weights file.
pub const MODEL_FILE: &str = "model.safetensors";
/// The vocabulary file, one word per line.
pub const VOCABULARY_FILE: &str = "vocab.txt";
/// The file that may replace it.
pub const TOKENIZER_FILE: &str = "tokenizer.json";

/// The most tokens of a batch of short texts.
const BATCH_TOKENS: usize = 256;

/// Why there are no vectors.
#[derive(Debug, thiserror::Error)]
pub enum EmbedError {
    /// The model is not installed.
    #[error("there is no {file} in {}. Run `icecore model fetch` to install the model", folder.display())]
    Missing { folder: PathBuf, file: &'static str },
    /// The file cannot be read.
    #[error("{} cannot be read: {reason}. Check who owns it, or install it again with `icecore model fetch`", file.display())]
    Unreadable {
        file: PathBuf,
        /// The system's reason.
        reason: io::Error,
    },
    /// The file is damaged.
    #[error("{} is damaged: {what}. Run `icecore model fetch` to install it again", file.display())]
    Damaged { file: PathBuf, what: String },
    /// A tensor has the wrong shape.
    #[error("{} is not {MODEL_NAME}: {tensor} is {found}, not {wanted}. Run `icecore model fetch` to install the right one", file.display())]
    WrongShape { file: PathBuf, tensor: String, found: String, wanted: String },
    /// The file belongs to another model.
    #[error("{} is not of {MODEL_NAME}: {what}. Run `icecore model fetch` to install the right one", file.display())]
    OtherModel { file: PathBuf, what: String },
    /// The file has an unknown hash.
    #[error(
        "{} is not the known file of that name: its SHA-256 is {found}. Run `icecore model fetch` to install the right one",
        file.display()
    )]
    WrongHash { file: PathBuf, found: Hash },
}

/// An embedding: a point on the unit sphere.
#[derive(Debug, Clone, PartialEq)]
pub struct Embedding(Box<[f32; DIMENSIONS]>);

impl Embedding {
    /// Normalizes a vector; `None` if it has no direction.
    pub fn normalize(numbers: &[f32; DIMENSIONS]) -> Option<Self> {
        let length = numbers.iter().map(|x| x * x).sum::<f32>().sqrt();
        (length.is_finite() && length > 0.0).then(|| Self(Box::new(numbers.map(|x| x / length))))
    }

    /// The cosine similarity: 1 for the same meaning, about 0 for unrelated texts.
    pub fn dot(&self, other: &Self) -> f32 {
        let mut sums = [0.0; 8];
        for (a, b) in self.0.as_chunks::<8>().0.iter().zip(other.0.as_chunks::<8>().0) {
            for (sum, (a, b)) in sums.iter_mut().zip(a.iter().zip(b)) {
                *sum += a * b;
            }
        }
        sums.iter().sum()
    }

    /// The components.
    pub fn numbers(&self) -> &[f32; DIMENSIONS] {
        &self.0
    }
}

/// A text embedder.
pub trait Embedder: Send + Sync {
    /// The name of the model; vectors of different models are not comparable.
    fn name(&self) -> &str;

    /// Embeds texts, one vector each, in their order.
    fn embed(&self, texts: &[&str]) -> Result<Vec<Embedding>, EmbedError>;
}

/// The model all-MiniLM-L6-v2.
pub struct MiniLm {
    weights: ModelWeights,
    vocabulary: Vocabulary,
    threads: NonZeroUsize,
}

impl MiniLm {
    /// Loads the model from a folder. Many texts are embedded on as many threads as the machine has
    /// cores. The format of the files is checked, not their hashes, which would take longer than
    /// the rest: see [`fetch::verify_model`].
    pub fn load(folder: &Path) -> Result<Self, EmbedError> {
        let vocabulary = Vocabulary::open(folder)?;
        let weights = ModelWeights::open(folder)?;
        Ok(Self {
            weights,
            vocabulary,
            threads: thread::available_parallelism().unwrap_or(NonZeroUsize::MIN),
        })
    }

    /// Limits the number of threads.
    #[must_use]
    pub fn with_threads(self, threads: NonZeroUsize) -> Self {
        Self { threads, ..self }
    }

    /// The token ids of a text, as the model reads it.
    pub fn tokens(&self, text: &str) -> Vec<u32> {
        self.vocabulary.tokens(text)
    }

    fn embedding_of(&self, numbers: &[f32; DIMENSIONS]) -> Result<Embedding, EmbedError> {
        let what = "no vector comes out of it";
        Embedding::normalize(numbers).ok_or_else(|| EmbedError::Damaged {
            file: self.weights.path().to_owned(),
            what: what.into(),
        })
    }

    /// The mean of each text's token outputs.
    fn pool<'a>(
        &'a self,
        texts: &[&[u32]],
        scratch: &mut ForwardBuffers,
        hand: Option<&HelperThread<'a>>,
    ) -> Result<Vec<Embedding>, EmbedError> {
        let states = forward::forward(&self.weights, texts, scratch, hand)?;
        let mut first = 0;
        let pool = |text: &&[u32]| {
            // Only the direction matters, so the sum is as good as the mean.
            let sum = states.sum(first..first + text.len());
            first += text.len();
            self.embedding_of(&sum)
        };
        texts.iter().map(pool).collect()
    }
}

impl Embedder for MiniLm {
    fn name(&self) -> &str {
        MODEL_NAME
    }

    fn embed(&self, texts: &[&str]) -> Result<Vec<Embedding>, EmbedError> {
        let tokens: Vec<Vec<u32>> = texts.iter().map(|text| self.tokens(text)).collect();
        let mut order: Vec<usize> = (0..tokens.len()).collect();
        // The longest first: then the threads finish at nearly the same time.
        order.sort_by_key(|at| std::cmp::Reverse(tokens.get(*at).map_or(0, Vec::len)));
        let ordered: Vec<&[u32]> =
            order.iter().filter_map(|at| tokens.get(*at)).map(Vec::as_slice).collect();
        let batches = token_batches(&ordered);
        let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::with_capacity(texts.len())));
        let work = |hand: Option<_>| {
            let mut scratch = ForwardBuffers::default();
            while let Some(batch) = batches.get(next.fetch_add(1, Ordering::Relaxed)) {
                let found = self.pool(
                    ordered.get(batch.clone()).unwrap_or_default(),
                    &mut scratch,
                    hand.as_ref(),
                );
                let stop = found.is_err();
                done.lock()
                    .unwrap_or_else(std::sync::PoisonError::into_inner)
                    .push((batch.start, found));
                if stop {
                    // The other threads need not continue.
                    next.store(batches.len(), Ordering::Relaxed);
                }
            }
        };
        thread::scope(|scope| {
            for _ in 1..self.threads.get().min(batches.len()) {
                scope.spawn(|| work(None));
            }
            // One batch is computed by one thread; a second one can only share its products.
            let hand =
                (batches.len() == 1 && self.threads.get() > 1).then(|| HelperThread::spawn(scope));
            work(hand);
        });
        let mut done = done.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        done.sort_by_key(|(start, _)| *start);
        let mut vectors = Vec::with_capacity(texts.len());
        for (_, found) in done {
            vectors.extend(found?);
        }
        let mut placed: Vec<(usize, Embedding)> = order.into_iter().zip(vectors).collect();
        placed.sort_unstable_by_key(|(at, _)| *at);
        Ok(placed.into_iter().map(|(_, vector)| vector).collect())
    }
}

/// Groups texts into batches.
fn token_batches(texts: &[&[u32]]) -> Vec<Range<usize>> {
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
