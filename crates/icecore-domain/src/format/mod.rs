//! The written forms: how nouns look as bytes, read leniently and written in exactly one way.

pub mod line;
