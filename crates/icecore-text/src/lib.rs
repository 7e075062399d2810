//! The text layer: analysis of text, without any notion of memory.
//!
//! Lines of Markdown, words, scripts without spaces, normal forms, languages with their stemmers
//! and word lists, lenient JSON. What this crate has exists nowhere else; the layers above call it.
//! Everything is a pure function of its arguments.

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
