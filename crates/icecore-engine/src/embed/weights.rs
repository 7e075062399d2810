//! The model's weights in `model.safetensors`.
//!
//! - Opening reads only what every text needs, half of the file. The other half is the embedding
//!   table of 30522 words; its rows are read when they are needed.
//! - A file that is not exactly this model is refused before any computation.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;

use super::{DIMENSIONS, EmbedError, MODEL_FILE};

pub(super) const TRANSFORMER_LAYERS: usize = 6;
/// The number of heads, each with [`HEAD_DIMENSIONS`] dimensions.
pub(super) const ATTENTION_HEADS: usize = 12;
/// The dimensions of one head.
pub(super) const HEAD_DIMENSIONS: usize = DIMENSIONS / ATTENTION_HEADS;
/// The width of the feed-forward layer.
pub(super) const FEED_FORWARD_DIMENSIONS: usize = 4 * DIMENSIONS;
/// The size of the vocabulary.
pub(super) const VOCABULARY_SIZE: usize = 30_522;
/// The number of token positions.
const MAX_POSITIONS: usize = 512;
/// The size limit of the file header; this model's is far smaller.
const MAX_HEADER_BYTES: u64 = 1 << 20;
/// The bytes of half-precision numbers that are converted at once.
const CONVERSION_CHUNK_BYTES: usize = 64 << 10;

/// All weights.
pub(super) struct ModelWeights {
    words: WordEmbeddings,
    /// The position embeddings.
    pub positions: Vec<f32>,
    pub norm: LayerNorm,
    pub layers: Vec<TransformerLayer>,
}

pub(super) struct TransformerLayer {
    /// Queries, keys and values, one below the other.
    pub qkv: DenseLayer,
    pub attention_output: DenseLayer,
    pub attention_norm: LayerNorm,
    pub up: DenseLayer,
    pub down: DenseLayer,
    pub down_norm: LayerNorm,
}

/// A dense layer: a matrix with a row for each output, and a bias.
pub(super) struct DenseLayer {
    pub weights: Vec<f32>,
    pub bias: Vec<f32>,
}

impl DenseLayer {
    /// The number of inputs.
    pub(super) fn inputs(&self) -> usize {
        self.weights.len() / self.bias.len()
    }

    /// The weights and biases of the first half of the outputs.
    pub(super) fn first_half(&self) -> (&[f32], &[f32]) {
        let half = self.bias.len() / 2;
        (&self.weights[..half * self.inputs()], &self.bias[..half])
    }

    /// The weights and biases of the second half of the outputs.
    pub(super) fn second_half(&self) -> (&[f32], &[f32]) {
        let half = self.bias.len() / 2;
        (&self.weights[half * self.inputs()..], &self.bias[half..])
    }
}

/// A layer normalization: scale and shift.
pub(super) struct LayerNorm {
    pub scale: Vec<f32>,
    pub shift: Vec<f32>,
}

/// The word embeddings, in the file.
struct WordEmbeddings {
    path: PathBuf,
    file: File,
    start: u64,
    kind: NumberFormat,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum NumberFormat {
    F32,
    F16,
}

impl NumberFormat {
    fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 => 2,
        }
    }
}

/// A tensor's entry in the header.
#[derive(Deserialize)]
struct TensorEntry {
    dtype: String,
    shape: Vec<u64>,
    data_offsets: (u64, u64),
}

/// An opened file and its header.
struct SafetensorsFile {
    path: PathBuf,
    file: File,
    /// The offset of the data.
    start: u64,
    described: BTreeMap<String, TensorEntry>,
}

impl ModelWeights {
    /// Opens the weights in `folder`.
    pub fn open(folder: &Path) -> Result<Self, EmbedError> {
        let tensors = SafetensorsFile::open(&folder.join(MODEL_FILE))?;
        let (words_start, kind) =
            tensors.locate("embeddings.word_embeddings.weight", &[VOCABULARY_SIZE, DIMENSIONS])?;
        let mut places = tensors
            .read_tensor("embeddings.position_embeddings.weight", &[MAX_POSITIONS, DIMENSIONS])?;
        // There is one text at a time, so every token has token type 0, and its row is added here
        // once.
        let types =
            tensors.read_tensor("embeddings.token_type_embeddings.weight", &[2, DIMENSIONS])?;
        for place in places.chunks_exact_mut(DIMENSIONS) {
            place.iter_mut().zip(&types).for_each(|(place, kind)| *place += kind);
        }
        let norm = tensors.read_norm("embeddings")?;
        let layers = (0..TRANSFORMER_LAYERS)
            .map(|layer| tensors.read_layer(layer))
            .collect::<Result<_, _>>()?;
        let SafetensorsFile { path, file, .. } = tensors;
        Ok(Self {
            words: WordEmbeddings { path, file, start: words_start, kind },
            positions: places,
            norm,
            layers,
        })
    }

    /// Reads the embedding of a word.
    pub fn read_word(&self, id: u32, row: &mut [f32; DIMENSIONS]) -> Result<(), EmbedError> {
        let WordEmbeddings { path, file, start, kind } = &self.words;
        let at = start + u64::from(id) * (DIMENSIONS * kind.bytes()) as u64;
        read_numbers(file, at, *kind, row).map_err(|error| unreadable(path, error))
    }

    /// The path of the file.
    pub fn path(&self) -> &Path {
        &self.words.path
    }
}

impl SafetensorsFile {
    fn open(path: &Path) -> Result<Self, EmbedError> {
        let damaged = |what: &str| EmbedError::Damaged { file: path.to_owned(), what: what.into() };
        let file = File::open(path).map_err(|error| match error.kind() {
            ErrorKind::NotFound | ErrorKind::NotADirectory => EmbedError::Missing {
                folder: path.parent().unwrap_or(path).to_owned(),
                file: MODEL_FILE,
            },
            _ => unreadable(path, error),
        })?;
        let len = file.metadata().map_err(|error| unreadable(path, error))?.len();
        let mut header_len = [0; 8];
        if len < 8 {
            return Err(damaged("it is too short for a safetensors file"));
        }
        file.read_exact_at(&mut header_len, 0).map_err(|error| unreadable(path, error))?;
        let header_len = u64::from_le_bytes(header_len);
        if header_len > MAX_HEADER_BYTES {
            return Err(damaged("it does not begin like a safetensors file"));
        }
        let start = 8 + header_len;
        if len < start {
            return Err(damaged(&format!("it ends after {len} bytes, inside its header")));
        }
        let mut header = vec![0; usize::try_from(header_len).unwrap_or(0)];
        file.read_exact_at(&mut header, 8).map_err(|error| unreadable(path, error))?;
        let header: BTreeMap<String, Value> = serde_json::from_slice(&header).map_err(|error| {
            damaged(&format!("its header is not what safetensors has ({error})"))
        })?;
        let described = header
            .into_iter()
            .filter(|(name, _)| name != "__metadata__")
            .map(|(name, value)| match serde_json::from_value(value) {
                Ok(described) => Ok((name, described)),
                Err(error) => Err(damaged(&format!(
                    "its header is not what safetensors has ({name}: {error})"
                ))),
            })
            .collect::<Result<BTreeMap<String, TensorEntry>, _>>()?;
        let end = described.values().map(|one| one.data_offsets.1).max().unwrap_or(0);
        match start.checked_add(end) {
            Some(whole) if whole == len => {
                Ok(Self { path: path.to_owned(), file, start, described })
            }
            Some(whole) => {
                Err(damaged(&format!("it has {len} bytes, and its header describes {whole}")))
            }
            None => Err(damaged("its header describes more bytes than a file can have")),
        }
    }

    /// The offset and the number format of a tensor of that shape.
    fn locate(&self, name: &str, shape: &[usize]) -> Result<(u64, NumberFormat), EmbedError> {
        let Some(found) = self.described.get(name) else {
            return Err(EmbedError::OtherModel {
                file: self.path.clone(),
                what: format!("it has no {name}"),
            });
        };
        let kind = match found.dtype.as_str() {
            "F32" => Some(NumberFormat::F32),
            "F16" => Some(NumberFormat::F16),
            _ => None,
        };
        let right = found.shape.len() == shape.len()
            && found.shape.iter().zip(shape).all(|(found, wanted)| *found == *wanted as u64);
        let (Some(kind), true) = (kind, right) else {
            return Err(EmbedError::WrongShape {
                file: self.path.clone(),
                tensor: name.into(),
                found: format!("{} {:?}", found.dtype, found.shape),
                wanted: format!("F32 or F16 {shape:?}"),
            });
        };
        let bytes = (shape.iter().product::<usize>() * kind.bytes()) as u64;
        let (from, to) = found.data_offsets;
        if to.checked_sub(from) != Some(bytes) {
            let what =
                format!("its header gives {name} the bytes {from} to {to}, which are not {bytes}");
            return Err(EmbedError::Damaged { file: self.path.clone(), what });
        }
        Ok((self.start + from, kind))
    }

    fn read_tensor_into(
        &self,
        name: &str,
        shape: &[usize],
        numbers: &mut [f32],
    ) -> Result<(), EmbedError> {
        let (start, kind) = self.locate(name, shape)?;
        read_numbers(&self.file, start, kind, numbers)
            .map_err(|error| unreadable(&self.path, error))
    }

    fn read_tensor(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>, EmbedError> {
        let mut numbers = vec![0.0; shape.iter().product()];
        self.read_tensor_into(name, shape, &mut numbers)?;
        Ok(numbers)
    }

    fn read_norm(&self, name: &str) -> Result<LayerNorm, EmbedError> {
        let read =
            |what: &str| self.read_tensor(&format!("{name}.LayerNorm.{what}"), &[DIMENSIONS]);
        Ok(LayerNorm { scale: read("weight")?, shift: read("bias")? })
    }

    /// Reads matrices of the same shape, one below the other.
    fn read_dense(
        &self,
        names: &[String],
        outputs: usize,
        inputs: usize,
    ) -> Result<DenseLayer, EmbedError> {
        let mut weights = vec![0.0; names.len() * outputs * inputs];
        let mut bias = vec![0.0; names.len() * outputs];
        for ((name, weights), bias) in names
            .iter()
            .zip(weights.chunks_exact_mut(outputs * inputs))
            .zip(bias.chunks_exact_mut(outputs))
        {
            self.read_tensor_into(&format!("{name}.weight"), &[outputs, inputs], weights)?;
            self.read_tensor_into(&format!("{name}.bias"), &[outputs], bias)?;
        }
        Ok(DenseLayer { weights, bias })
    }

    fn read_layer(&self, number: usize) -> Result<TransformerLayer, EmbedError> {
        let name = |part: &str| format!("encoder.layer.{number}.{part}");
        let asked = ["query", "key", "value"].map(|part| name(&format!("attention.self.{part}")));
        Ok(TransformerLayer {
            qkv: self.read_dense(&asked, DIMENSIONS, DIMENSIONS)?,
            attention_output: self.read_dense(
                &[name("attention.output.dense")],
                DIMENSIONS,
                DIMENSIONS,
            )?,
            attention_norm: self.read_norm(&name("attention.output"))?,
            up: self.read_dense(
                &[name("intermediate.dense")],
                FEED_FORWARD_DIMENSIONS,
                DIMENSIONS,
            )?,
            down: self.read_dense(&[name("output.dense")], DIMENSIONS, FEED_FORWARD_DIMENSIONS)?,
            down_norm: self.read_norm(&name("output"))?,
        })
    }
}

fn unreadable(path: &Path, reason: io::Error) -> EmbedError {
    EmbedError::Unreadable { file: path.to_owned(), reason }
}

/// Reads numbers at an offset directly into their buffer.
fn read_numbers(file: &File, at: u64, kind: NumberFormat, numbers: &mut [f32]) -> io::Result<()> {
    match kind {
        NumberFormat::F32 => {
            file.read_exact_at(bytemuck::cast_slice_mut(numbers), at)?;
            if cfg!(target_endian = "big") {
                numbers
                    .iter_mut()
                    .for_each(|number| *number = f32::from_bits(number.to_bits().swap_bytes()));
            }
        }
        NumberFormat::F16 => {
            let mut bytes = [0; CONVERSION_CHUNK_BYTES];
            let mut at = at;
            for piece in numbers.chunks_mut(CONVERSION_CHUNK_BYTES / 2) {
                let bytes = &mut bytes[..2 * piece.len()];
                file.read_exact_at(bytes, at)?;
                at += bytes.len() as u64;
                for (number, half) in piece.iter_mut().zip(bytes.as_chunks::<2>().0) {
                    *number = from_half(u16::from_le_bytes(*half));
                }
            }
        }
    }
    Ok(())
}

/// Converts a half-precision number. The exponent moves to its place in the longer format, and a
/// multiplication corrects the difference of the two biases, for subnormal numbers too. No weight
/// is infinite.
fn from_half(half: u16) -> f32 {
    let (sign, rest) = (u32::from(half & 0x8000) << 16, u32::from(half & 0x7fff) << 13);
    let two_to_the_112th = f32::from_bits((127 + 112) << 23);
    f32::from_bits((f32::from_bits(rest) * two_to_the_112th).to_bits() | sign)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_half_number_is_read_exactly() {
        for half in 0..=u16::MAX {
            let (sign, exponent, part) =
                (half >> 15, i32::from(half >> 10 & 31), f64::from(half & 1023) / 1024.0);
            if exponent == 31 {
                continue;
            }
            let right = if exponent == 0 {
                part * 2_f64.powi(-14)
            } else {
                (1.0 + part) * 2_f64.powi(exponent - 15)
            };
            let right = if sign == 1 { -right } else { right };
            assert_eq!(f64::from(from_half(half)).to_bits(), right.to_bits(), "{half:#06x}");
        }
    }
}
