//! The text layer: analysis of text, without any notion of memory.
//!
//! Each primitive exists once, here, and everything above calls it: Markdown blocks, sentences,
//! words, scripts without spaces, normal forms, languages with their stemmers and word lists,
//! cutting to a size, lenient JSON. Everything is a pure function of its arguments.

pub mod escapes;
pub mod json;
pub mod language;
pub mod lexicon;
pub mod markdown;
pub mod normalize;
pub mod phrase;
pub mod sanitize;
pub mod scripts;
pub mod string_enum;
pub mod terms;
