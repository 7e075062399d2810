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

use icecore_kernels::{LANES, MatMul, MatrixView, add_and_layer_norm, gelu, softmax};

use super::weights::{
    ATTENTION_HEADS, DenseLayer, FEED_FORWARD_DIMENSIONS, HEAD_DIMENSIONS, ModelWeights,
};
use super::{DIMENSIONS, EmbedError};

/// The rows of queries, keys and values.
const QKV_ROWS: usize = 3 * DIMENSIONS;

/// Reusable buffers for intermediate results.
#[derive(Default)]
pub(super) struct ForwardBuffers {
    qkv: Vec<f32>,
    attention: Vec<f32>,
    inner: Vec<f32>,
    keys: Vec<f32>,
    scores: Vec<f32>,
    product: Vec<f32>,
}

/// How often a thread polls a channel before it sleeps: a wakeup takes longer than most products.
const SPIN_POLLS: u32 = 2_000;

/// The second half of a matrix product.
struct HalfProduct<'a> {
    x: Vec<f32>,
    columns: usize,
    with: &'a DenseLayer,
}

/// A second thread that computes half products.
pub(super) struct HelperThread<'a> {
    requests: Sender<HalfProduct<'a>>,
    results: Receiver<Vec<f32>>,
}

impl<'a> HelperThread<'a> {
    /// Starts the thread; it ends when this is dropped.
    pub(super) fn spawn<'scope>(scope: &'scope Scope<'scope, '_>) -> Self
    where
        'a: 'scope,
    {
        let (requests, asked) = mpsc::channel::<HalfProduct<'a>>();
        let (tells, results) = mpsc::channel();
        scope.spawn(move || {
            let mut room = Vec::new();
            while let Some(HalfProduct { x, columns, with }) = receive(&asked) {
                let (weights, bias) = with.second_half();
                let mut out = vec![0.0; bias.len() * columns];
                multiply_matrix(&x, columns, (weights, bias), &mut out, &mut room);
                if tells.send(out).is_err() {
                    break;
                }
            }
        });
        Self { requests, results }
    }
}

/// The next message; `None` if the sender is gone.
fn receive<T>(from: &Receiver<T>) -> Option<T> {
    for _ in 0..SPIN_POLLS {
        match from.try_recv() {
            Ok(found) => return Some(found),
            Err(TryRecvError::Disconnected) => return None,
            Err(TryRecvError::Empty) => std::hint::spin_loop(),
        }
    }
    from.recv().ok()
}

fn multiply_matrix(
    x: &[f32],
    columns: usize,
    (weights, bias): (&[f32], &[f32]),
    out: &mut [f32],
    room: &mut Vec<f32>,
) {
    let depth = x.len() / columns;
    let (a, b) = (
        MatrixView { numbers: weights, stride: depth },
        MatrixView { numbers: x, stride: columns },
    );
    MatMul { a, b, bias, out, out_stride: columns, rows: bias.len(), depth, width: columns }
        .compute(room);
}

/// `out = weights · x + bias`, on two threads if there is a second one.
fn apply_dense<'a>(
    x: &[f32],
    columns: usize,
    with: &'a DenseLayer,
    out: &mut [f32],
    room: &mut Vec<f32>,
    hand: Option<&HelperThread<'a>>,
) {
    let Some(hand) = hand
        .filter(|hand| hand.requests.send(HalfProduct { x: x.to_vec(), columns, with }).is_ok())
    else {
        return multiply_matrix(x, columns, (&with.weights, &with.bias), out, room);
    };
    let (weights, bias) = with.first_half();
    let (first, second) = out.split_at_mut(bias.len() * columns);
    multiply_matrix(x, columns, (weights, bias), first, room);
    match receive(&hand.results) {
        Some(told) => second.copy_from_slice(&told),
        // The second thread died; compute its half here.
        None => multiply_matrix(x, columns, with.second_half(), second, room),
    }
}

/// The output of the last layer for every token.
pub(super) struct TokenOutputs {
    /// [`DIMENSIONS`] rows with a column for each token, in their order.
    numbers: Vec<f32>,
    columns: usize,
}

impl TokenOutputs {
    /// The sum of the columns of some tokens.
    pub(super) fn sum(&self, tokens: Range<usize>) -> [f32; DIMENSIONS] {
        let mut rows = self.numbers.chunks_exact(self.columns);
        std::array::from_fn(|_| {
            rows.next().and_then(|row| row.get(tokens.clone())).map_or(0.0, |row| row.iter().sum())
        })
    }
}

/// Computes all layers for several texts.
pub(super) fn forward<'a>(
    weights: &'a ModelWeights,
    texts: &[&[u32]],
    scratch: &mut ForwardBuffers,
    hand: Option<&HelperThread<'a>>,
) -> Result<TokenOutputs, EmbedError> {
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
    let places = texts
        .iter()
        .flat_map(|text| text.iter().zip(weights.positions.as_chunks::<DIMENSIONS>().0));
    let mut word = [0.0; DIMENSIONS];
    for (at, (id, place)) in places.enumerate() {
        weights.read_word(*id, &mut word)?;
        for (row, (word, place)) in x.chunks_exact_mut(columns).zip(word.iter().zip(place)) {
            row[at] = word + place;
        }
    }
    add_and_layer_norm(&mut x, None, &weights.norm.scale, &weights.norm.shift);

    let ForwardBuffers { qkv: asked, attention: told, inner, keys, scores, product: room } =
        scratch;
    asked.resize(QKV_ROWS * columns, 0.0);
    told.resize(DIMENSIONS * columns, 0.0);
    inner.resize(FEED_FORWARD_DIMENSIONS * columns, 0.0);
    keys.resize(HEAD_DIMENSIONS * longest, 0.0);
    scores.resize(longest * longest, 0.0);
    for layer in &weights.layers {
        apply_dense(&x, columns, &layer.qkv, asked, room, hand);
        let mut first = 0;
        for text in texts {
            self_attention(asked, columns, first..first + text.len(), told, (keys, scores, room));
            first += text.len();
        }
        // The queries are not needed any more, and their buffer is long enough for the attention
        // output.
        let answer = &mut asked[..DIMENSIONS * columns];
        apply_dense(told, columns, &layer.attention_output, answer, room, hand);
        add_and_layer_norm(
            &mut x,
            Some(answer),
            &layer.attention_norm.scale,
            &layer.attention_norm.shift,
        );
        apply_dense(&x, columns, &layer.up, inner, room, hand);
        gelu(inner);
        apply_dense(inner, columns, &layer.down, told, room, hand);
        add_and_layer_norm(&mut x, Some(told), &layer.down_norm.scale, &layer.down_norm.shift);
    }
    Ok(TokenOutputs { numbers: x, columns })
}

/// Computes self-attention of one text, head by head.
fn self_attention(
    asked: &[f32],
    columns: usize,
    tokens: Range<usize>,
    told: &mut [f32],
    (keys, scores, room): (&mut [f32], &mut [f32], &mut Vec<f32>),
) {
    let count = tokens.len();
    let width = count.next_multiple_of(LANES);
    let scale = 1.0 / (HEAD_DIMENSIONS as f32).sqrt();
    for head in 0..ATTENTION_HEADS {
        let [queries, head_keys, values] = [0, 1, 2].map(|part| {
            &asked[(part * DIMENSIONS + head * HEAD_DIMENSIONS) * columns + tokens.start..]
        });
        // Keys are transposed, so that each meets many queries at once.
        let keys = &mut keys[..HEAD_DIMENSIONS * count];
        for (at, row) in head_keys.chunks(columns).take(HEAD_DIMENSIONS).enumerate() {
            for (number, key) in row.iter().zip(keys.chunks_exact_mut(HEAD_DIMENSIONS)) {
                key[at] = *number;
            }
        }
        let scores = &mut scores[..count * width];
        MatMul {
            a: MatrixView { numbers: keys, stride: HEAD_DIMENSIONS },
            b: MatrixView { numbers: queries, stride: columns },
            bias: &[],
            out: scores,
            out_stride: width,
            rows: count,
            depth: HEAD_DIMENSIONS,
            width,
        }
        .compute(room);
        softmax(scores, width, scale);
        // Columns behind the last token belong to the next text, which is computed later.
        MatMul {
            a: MatrixView { numbers: values, stride: columns },
            b: MatrixView { numbers: scores, stride: width },
            bias: &[],
            out: &mut told[head * HEAD_DIMENSIONS * columns + tokens.start..],
            out_stride: columns,
            rows: HEAD_DIMENSIONS,
            depth: count,
            width,
        }
        .compute(room);
    }
}
