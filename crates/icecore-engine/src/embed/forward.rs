//! The forward pass of the model: six transformer layers.
//!
//! Several texts are computed together, one column per token. Operations on single tokens run on
//! all columns at once. Attention runs per text, so no text is padded.
//!
//! A search waits for the vector of its query, and a single short text offers no other parallelism.
//! So a second thread computes one half of every matrix product (see [`HelperThread`]).

use std::ops::Range;
use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};
use std::thread::Scope;

use icecore_kernels::{LANES, Product, Window, add_and_norm, gelu, softmax};

use super::weights::{Dense, HEAD, HEADS, INNER, Weights};
use super::{DIMENSIONS, EmbedError};

/// The rows of queries, keys and values.
const ASKED: usize = 3 * DIMENSIONS;

/// Reusable buffers for intermediate results.
#[derive(Default)]
pub(super) struct Scratch {
    asked: Vec<f32>,
    told: Vec<f32>,
    inner: Vec<f32>,
    keys: Vec<f32>,
    scores: Vec<f32>,
    room: Vec<f32>,
}

/// How often a thread polls a channel before it sleeps: a wakeup takes longer than most products.
const LOOKS: u32 = 2_000;

/// The second half of a matrix product.
struct Half<'a> {
    x: Vec<f32>,
    columns: usize,
    with: &'a Dense,
}

/// A second thread that computes half products.
pub(super) struct Hand<'a> {
    asks: Sender<Half<'a>>,
    told: Receiver<Vec<f32>>,
}

impl<'a> Hand<'a> {
    /// Starts the thread; it ends when this is dropped.
    pub(super) fn lend<'scope>(scope: &'scope Scope<'scope, '_>) -> Self
    where
        'a: 'scope,
    {
        let (asks, asked) = mpsc::channel::<Half<'a>>();
        let (tells, told) = mpsc::channel();
        scope.spawn(move || {
            let mut room = Vec::new();
            while let Some(Half { x, columns, with }) = next(&asked) {
                let (weights, bias) = with.second_half();
                let mut out = vec![0.0; bias.len() * columns];
                multiply(&x, columns, (weights, bias), &mut out, &mut room);
                if tells.send(out).is_err() {
                    break;
                }
            }
        });
        Self { asks, told }
    }
}

/// The next message; `None` if the sender is gone.
fn next<T>(from: &Receiver<T>) -> Option<T> {
    for _ in 0..LOOKS {
        match from.try_recv() {
            Ok(found) => return Some(found),
            Err(TryRecvError::Disconnected) => return None,
            Err(TryRecvError::Empty) => std::hint::spin_loop(),
        }
    }
    from.recv().ok()
}

fn multiply(
    x: &[f32],
    columns: usize,
    (weights, bias): (&[f32], &[f32]),
    out: &mut [f32],
    room: &mut Vec<f32>,
) {
    let depth = x.len() / columns;
    let (a, b) =
        (Window { numbers: weights, stride: depth }, Window { numbers: x, stride: columns });
    Product { a, b, bias, out, out_stride: columns, rows: bias.len(), depth, width: columns }
        .compute(room);
}

/// `out = weights · x + bias`, on two threads if there is a second one.
fn through<'a>(
    x: &[f32],
    columns: usize,
    with: &'a Dense,
    out: &mut [f32],
    room: &mut Vec<f32>,
    hand: Option<&Hand<'a>>,
) {
    let Some(hand) =
        hand.filter(|hand| hand.asks.send(Half { x: x.to_vec(), columns, with }).is_ok())
    else {
        return multiply(x, columns, (&with.weights, &with.bias), out, room);
    };
    let (weights, bias) = with.first_half();
    let (first, second) = out.split_at_mut(bias.len() * columns);
    multiply(x, columns, (weights, bias), first, room);
    match next(&hand.told) {
        Some(told) => second.copy_from_slice(&told),
        // The second thread died; compute its half here.
        None => multiply(x, columns, with.second_half(), second, room),
    }
}

/// The output of the last layer for every token.
pub(super) struct States {
    /// [`DIMENSIONS`] rows with a column for each token, in their order.
    numbers: Vec<f32>,
    columns: usize,
}

impl States {
    /// The sum of the columns of some tokens.
    pub(super) fn sum(&self, tokens: Range<usize>) -> [f32; DIMENSIONS] {
        let mut rows = self.numbers.chunks_exact(self.columns);
        std::array::from_fn(|_| {
            rows.next().and_then(|row| row.get(tokens.clone())).map_or(0.0, |row| row.iter().sum())
        })
    }
}

/// Computes all layers for several texts.
pub(super) fn states<'a>(
    weights: &'a Weights,
    texts: &[&[u32]],
    scratch: &mut Scratch,
    hand: Option<&Hand<'a>>,
) -> Result<States, EmbedError> {
    // Columns are computed in whole SIMD vectors, so there is unused space behind the last token.
    let mut columns = LANES;
    let mut longest = 0;
    let mut first = 0;
    for text in texts {
        columns = columns.max((first + text.len().next_multiple_of(LANES)).next_multiple_of(LANES));
        longest = longest.max(text.len().next_multiple_of(LANES));
        first += text.len();
    }
    let mut x = vec![0.0; DIMENSIONS * columns];
    let places =
        texts.iter().flat_map(|text| text.iter().zip(weights.places.as_chunks::<DIMENSIONS>().0));
    let mut word = [0.0; DIMENSIONS];
    for (at, (id, place)) in places.enumerate() {
        weights.word(*id, &mut word)?;
        for (row, (word, place)) in x.chunks_exact_mut(columns).zip(word.iter().zip(place)) {
            row[at] = word + place;
        }
    }
    add_and_norm(&mut x, None, &weights.norm.scale, &weights.norm.shift);

    let Scratch { asked, told, inner, keys, scores, room } = scratch;
    asked.resize(ASKED * columns, 0.0);
    told.resize(DIMENSIONS * columns, 0.0);
    inner.resize(INNER * columns, 0.0);
    keys.resize(HEAD * longest, 0.0);
    scores.resize(longest * longest, 0.0);
    for layer in &weights.layers {
        through(&x, columns, &layer.asked, asked, room, hand);
        let mut first = 0;
        for text in texts {
            attend(asked, columns, first..first + text.len(), told, (keys, scores, room));
            first += text.len();
        }
        // The queries are not needed any more, and their buffer is long enough for the attention
        // output.
        let answer = &mut asked[..DIMENSIONS * columns];
        through(told, columns, &layer.told, answer, room, hand);
        add_and_norm(&mut x, Some(answer), &layer.told_norm.scale, &layer.told_norm.shift);
        through(&x, columns, &layer.up, inner, room, hand);
        gelu(inner);
        through(inner, columns, &layer.down, told, room, hand);
        add_and_norm(&mut x, Some(told), &layer.down_norm.scale, &layer.down_norm.shift);
    }
    Ok(States { numbers: x, columns })
}

/// Computes self-attention of one text, head by head.
fn attend(
    asked: &[f32],
    columns: usize,
    tokens: Range<usize>,
    told: &mut [f32],
    (keys, scores, room): (&mut [f32], &mut [f32], &mut Vec<f32>),
) {
    let count = tokens.len();
    let width = count.next_multiple_of(LANES);
    let scale = 1.0 / (HEAD as f32).sqrt();
    for head in 0..HEADS {
        let [queries, head_keys, values] = [0, 1, 2]
            .map(|part| &asked[(part * DIMENSIONS + head * HEAD) * columns + tokens.start..]);
        // Keys are transposed, so that each meets many queries at once.
        let keys = &mut keys[..HEAD * count];
        for (at, row) in head_keys.chunks(columns).take(HEAD).enumerate() {
            for (number, key) in row.iter().zip(keys.chunks_exact_mut(HEAD)) {
                key[at] = *number;
            }
        }
        let scores = &mut scores[..count * width];
        Product {
            a: Window { numbers: keys, stride: HEAD },
            b: Window { numbers: queries, stride: columns },
            bias: &[],
            out: scores,
            out_stride: width,
            rows: count,
            depth: HEAD,
            width,
        }
        .compute(room);
        softmax(scores, width, scale);
        // Columns behind the last token belong to the next text, which is computed later.
        Product {
            a: Window { numbers: values, stride: columns },
            b: Window { numbers: scores, stride: width },
            bias: &[],
            out: &mut told[head * HEAD * columns + tokens.start..],
            out_stride: columns,
            rows: HEAD,
            depth: count,
            width,
        }
        .compute(room);
    }
}
