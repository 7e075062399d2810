//! The artifact index: append-only JSON lines, one per version of an artifact of a conversation.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::calendar::Moment;
use crate::hash::Hash;
use crate::layout::DocPath;
use crate::record::{BadRecordLine, Role};

use super::super::branch::TurnSet;
use super::naming;
use super::reference::{ArtifactReference, VersionSelector};
use super::{ArtifactExtent, ArtifactKind, SimilaritySketch};

/// Path of the index within the conversation's folder.
pub const INDEX_FILE: &str = "artifacts/index.jsonl";

/// One version of an artifact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArtifactVersion {
    /// Name of the artifact.
    pub name: String,
    /// Counted from 1.
    pub version: u32,
    /// The turn that contains it.
    pub turn: u64,
    pub ts: Moment,
    pub kind: ArtifactKind,
    /// The canonical language name.
    pub language: Option<String>,
    pub by: Role,
    pub extent: ArtifactExtent,
    pub bytes: usize,
    pub lines: usize,
    /// The hash of its text.
    pub hash: Hash,
    /// Path of its text within the conversation's folder.
    pub file: String,
    /// The first thing it defines.
    pub main: Option<String>,
    /// The earlier version with the same text, if the artifact was reverted.
    pub same_as: Option<u32>,
    /// For similarity comparisons.
    pub sketch: SimilaritySketch,
    /// Unknown fields of other programs, preserved unchanged.
    pub other: Map<String, Value>,
}

impl ArtifactVersion {
    /// Serializes the version as one index line, with its line break.
    pub fn to_line(&self) -> String {
        let mut line = String::from("{");
        let mut field = |key: &str, value: Value| {
            if line.len() > 1 {
                line.push(',');
            }
            line.push_str(&format!("{}:{value}", Value::from(key)));
        };
        field("name", self.name.as_str().into());
        field("version", self.version.into());
        field("turn", self.turn.into());
        field("ts", self.ts.to_string().into());
        field("kind", self.kind.word().into());
        field("language", self.language.clone().into());
        field("by", self.by.word().into());
        field("bytes", self.bytes.into());
        field("lines", self.lines.into());
        field("hash", self.hash.to_string().into());
        field("file", self.file.as_str().into());
        if self.extent != ArtifactExtent::Whole {
            field("extent", self.extent.word().into());
        }
        if let Some(main) = &self.main {
            field("main", main.as_str().into());
        }
        if let Some(version) = self.same_as {
            field("same_as", version.into());
        }
        field("sketch", self.sketch.encode().into());
        self.other.iter().for_each(|(key, value)| field(key, value.clone()));
        line.push_str("}\n");
        line
    }

    /// Path of the diff to the previous version, for a document that has one.
    pub fn diff_file(&self) -> Option<String> {
        (self.kind == ArtifactKind::Document && self.version > 1)
            .then(|| format!("documents/{}/v{}.diff", self.name, self.version))
    }

    fn parse(line: &[u8]) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct IndexFields {
            name: String,
            version: u32,
            turn: u64,
            ts: String,
            kind: String,
            #[serde(default)]
            language: Option<String>,
            by: String,
            #[serde(default)]
            bytes: usize,
            #[serde(default)]
            lines: usize,
            hash: String,
            file: String,
            #[serde(default)]
            extent: Option<String>,
            #[serde(default)]
            main: Option<String>,
            #[serde(default)]
            same_as: Option<u32>,
            #[serde(default)]
            sketch: Option<String>,
            #[serde(flatten)]
            other: Map<String, Value>,
        }
        let fields: IndexFields = serde_json::from_slice(line)
            .map_err(|error| format!("is not a version of an artifact: {error}"))?;
        if !naming::is_artifact_name(&fields.name) {
            return Err("has an invalid artifact name".into());
        }
        // The file is read by this path, so it must be a file of this artifact.
        let folders =
            [format!("artifacts/{}/", fields.name), format!("documents/{}/", fields.name)];
        let inside = folders.iter().any(|folder| {
            fields.file.strip_prefix(folder.as_str()).is_some_and(|file| !file.contains('/'))
        });
        if !inside || fields.file.parse::<DocPath>().is_err() {
            return Err("names a file outside this artifact's folders".into());
        }
        Ok(Self {
            version: Some(fields.version)
                .filter(|version| *version > 0)
                .ok_or("has version 0, but versions start at 1")?,
            turn: fields.turn,
            ts: Moment::parse(&fields.ts).ok_or("has an invalid time")?.moment,
            kind: fields
                .kind
                .parse()
                .map_err(|error: crate::string_enum::ParseEnumError| error.to_string())?,
            language: fields.language,
            by: fields
                .by
                .parse()
                .map_err(|error: crate::string_enum::ParseEnumError| error.to_string())?,
            // An unknown extent, or a sketch in another format, does not invalidate the version.
            extent: fields
                .extent
                .and_then(|word| word.parse().ok())
                .unwrap_or(ArtifactExtent::Whole),
            bytes: fields.bytes,
            lines: fields.lines,
            hash: fields.hash.parse().map_err(|()| "has an invalid hash")?,
            file: fields.file,
            main: fields.main,
            same_as: fields.same_as,
            sketch: fields
                .sketch
                .and_then(|text| SimilaritySketch::decode(&text))
                .unwrap_or_default(),
            other: fields.other,
            name: fields.name,
        })
    }
}

/// The path of a version's text.
pub(super) fn version_file(
    name: &str,
    version: u32,
    kind: ArtifactKind,
    language: Option<&str>,
) -> String {
    let (folder, ending) = match kind {
        ArtifactKind::Code => ("artifacts", naming::extension(language)),
        ArtifactKind::Draft => {
            ("artifacts", language.map_or("md", |language| naming::extension(Some(language))))
        }
        ArtifactKind::Document => {
            ("documents", language.map_or("md", |language| naming::extension(Some(language))))
        }
    };
    format!("{folder}/{name}/v{version}.{ending}")
}

/// All versions of all artifacts of a conversation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ArtifactIndex {
    versions: BTreeMap<String, BTreeMap<u32, ArtifactVersion>>,
}

impl ArtifactIndex {
    /// Parses the lines; the last line of a version counts. Malformed lines are reported and
    /// skipped.
    pub fn parse(text: &[u8]) -> (Self, Vec<BadRecordLine>) {
        let (mut index, mut bad, mut offset) = (Self::default(), Vec::new(), 0);
        for (at, line) in text.split_inclusive(|&byte| byte == b'\n').enumerate() {
            let content = line.trim_ascii();
            if !content.is_empty() {
                match ArtifactVersion::parse(content) {
                    Ok(entry) => index.add(entry),
                    Err(what) => bad.push(BadRecordLine { line: at + 1, offset, what }),
                }
            }
            offset += line.len();
        }
        (index, bad)
    }

    /// Adds a version.
    pub fn add(&mut self, entry: ArtifactVersion) {
        self.versions.entry(entry.name.clone()).or_default().insert(entry.version, entry);
    }

    /// Keeps only the versions of these turns.
    #[must_use]
    pub fn for_turns(mut self, turns: &TurnSet) -> Self {
        self.versions
            .values_mut()
            .for_each(|versions| versions.retain(|_, entry| turns.contains(entry.turn)));
        self.versions.retain(|_, versions| !versions.is_empty());
        self
    }

    /// The names of all artifacts.
    pub fn names(&self) -> impl Iterator<Item = &str> + Clone {
        self.versions.keys().map(String::as_str)
    }

    /// Whether there is an artifact of that name.
    pub fn contains(&self, name: &str) -> bool {
        self.versions.contains_key(name)
    }

    /// The versions of an artifact, oldest first.
    pub fn versions(&self, name: &str) -> impl Iterator<Item = &ArtifactVersion> + Clone {
        self.versions.get(name).into_iter().flat_map(BTreeMap::values)
    }

    /// One version of an artifact.
    pub fn get(&self, name: &str, version: u32) -> Option<&ArtifactVersion> {
        self.versions.get(name)?.get(&version)
    }

    /// The current version. A version that was recorded late counts as of its turn.
    pub fn latest(&self, name: &str) -> Option<&ArtifactVersion> {
        self.at_turn(name, u64::MAX)
    }

    /// The version that was current at the end of a turn.
    pub fn at_turn(&self, name: &str, turn: u64) -> Option<&ArtifactVersion> {
        self.versions(name)
            .filter(|entry| entry.turn <= turn)
            .max_by_key(|entry| (entry.turn, entry.version))
    }

    /// The artifact with that name, or the only one whose name begins or ends with it.
    pub fn find_by_name(&self, asked: &str) -> Option<&str> {
        let asked = naming::slug(asked);
        if let Some((name, _)) = self.versions.get_key_value(&asked) {
            return Some(name);
        }
        let stem =
            |name: &str| name.rsplit_once('.').map_or(name.to_owned(), |(stem, _)| stem.to_owned());
        let tests: [&dyn Fn(&str) -> bool; 3] = [
            &|name| stem(name) == asked,
            &|name| name.strip_suffix(asked.as_str()).is_some_and(|rest| rest.ends_with('-')),
            &|name| stem(name).strip_suffix(asked.as_str()).is_some_and(|rest| rest.ends_with('-')),
        ];
        tests.iter().find_map(|test| {
            let mut found = self.names().filter(|name| test(name));
            found.next().filter(|_| found.next().is_none())
        })
    }

    /// The version a reference means, or `None` if it is ambiguous; [`ArtifactIndex::candidates`]
    /// lists the possible versions.
    pub fn resolve(&self, reference: &ArtifactReference) -> Option<(String, u32)> {
        match self.candidates(reference).as_slice() {
            [entry] => Some((entry.name.clone(), entry.version)),
            _ => None,
        }
    }

    /// Every version the reference could mean: of the named artifact, or else of the artifacts
    /// changed last.
    pub fn candidates(&self, reference: &ArtifactReference) -> Vec<&ArtifactVersion> {
        if let Some(asked) = &reference.name {
            return self
                .find_by_name(asked)
                .and_then(|name| self.select_version(name, reference.at))
                .into_iter()
                .collect();
        }
        let fits = |entry: &ArtifactVersion| match reference.kind {
            None => true,
            Some(kind) => kind.is_prose() == entry.kind.is_prose(),
        };
        let touched = |fits: &dyn Fn(&ArtifactVersion) -> bool| {
            let there: Vec<(u64, &ArtifactVersion)> = self
                .names()
                .filter_map(|name| {
                    let entry =
                        self.select_version(name, reference.at).filter(|entry| fits(entry))?;
                    // With a turn, the artifact changed last up to that turn is meant; otherwise
                    // the one changed last.
                    let touched = if matches!(reference.at, VersionSelector::Turn(_)) {
                        entry
                    } else {
                        self.latest(name)?
                    };
                    Some((touched.turn, entry))
                })
                .collect();
            let last = there.iter().map(|(turn, _)| *turn).max();
            there
                .into_iter()
                .filter(|(turn, _)| Some(*turn) == last)
                .map(|(_, entry)| entry)
                .collect::<Vec<_>>()
        };
        let found = touched(&fits);
        // "The first draft" is also said about code.
        if found.is_empty() && reference.kind == Some(ArtifactKind::Draft) {
            touched(&|_| true)
        } else {
            found
        }
    }

    fn select_version(&self, name: &str, at: VersionSelector) -> Option<&ArtifactVersion> {
        match at {
            VersionSelector::Turn(turn) => self.at_turn(name, turn),
            VersionSelector::Version(version) => self.get(name, version),
            VersionSelector::First => self.versions(name).next(),
            VersionSelector::Last => self.latest(name),
            VersionSelector::Previous => {
                let latest = self.latest(name)?;
                let before = |entry: &&ArtifactVersion| {
                    (entry.turn, entry.version) < (latest.turn, latest.version)
                };
                self.versions(name).filter(before).max_by_key(|entry| (entry.turn, entry.version))
            }
        }
    }
}
