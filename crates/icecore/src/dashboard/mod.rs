//! The dashboard: static files embedded in the binary and served at `/`.
//!
//! The files in `dist` are built from the `dashboard` folder of the repository and committed, so
//! that cargo alone builds the binary. A strict Content-Security-Policy allows only this server's
//! files: no inline script or style, no other origin, and no HTML from strings.

use std::io::Write as _;
use std::sync::LazyLock;

use axum::Router;
use axum::body::Body;
use axum::http::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG,
    IF_NONE_MATCH, REFERRER_POLICY, VARY, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::Response;
use axum::routing::get;
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use sha2::{Digest as _, Sha256};

/// The Content-Security-Policy of the pages.
const CONTENT_SECURITY_POLICY_VALUE: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";

/// A file of the dashboard.
struct StaticFile {
    path: &'static str,
    kind: &'static str,
    text: &'static str,
}

const STATIC_FILES: [StaticFile; 5] = [
    StaticFile {
        path: "/",
        kind: "text/html; charset=utf-8",
        text: include_str!("dist/index.html"),
    },
    StaticFile {
        path: "/app.js",
        kind: "text/javascript; charset=utf-8",
        text: include_str!("dist/app.js"),
    },
    StaticFile {
        path: "/app.css",
        kind: "text/css; charset=utf-8",
        text: include_str!("dist/app.css"),
    },
    StaticFile {
        path: "/theme.js",
        kind: "text/javascript; charset=utf-8",
        text: include_str!("dist/theme.js"),
    },
    StaticFile { path: "/icon.svg", kind: "image/svg+xml", text: include_str!("dist/icon.svg") },
];

/// A file with its ETag and compressed bytes, computed once.
struct PreparedFile {
    page: &'static StaticFile,
    mark: String,
    small: Bytes,
}

static PREPARED_FILES: LazyLock<Vec<PreparedFile>> =
    LazyLock::new(|| STATIC_FILES.iter().map(PreparedFile::prepare).collect());

impl PreparedFile {
    fn prepare(page: &'static StaticFile) -> Self {
        let hash: String =
            Sha256::digest(page.text).iter().take(12).map(|byte| format!("{byte:02x}")).collect();
        let mut small = GzEncoder::new(Vec::new(), Compression::best());
        // Writing to memory does not fail; if it did, no compressed form would be offered.
        let small =
            small.write_all(page.text.as_bytes()).and_then(|()| small.finish()).unwrap_or_default();
        Self { page, mark: hash, small: small.into() }
    }

    fn respond(&self, asked: &HeaderMap) -> Response {
        let small = !self.small.is_empty() && accepts_gzip(asked);
        // Both encodings have different bytes, so each has its own ETag.
        let mark = format!("\"{}{}\"", self.mark, if small { "-gz" } else { "" });
        let known = matches_etag(asked, &mark);
        let body = match (known, small) {
            (true, _) => Body::empty(),
            (false, true) => Body::from(self.small.clone()),
            (false, false) => Body::from(self.page.text),
        };
        let mut response = Response::new(body);
        *response.status_mut() = if known { StatusCode::NOT_MODIFIED } else { StatusCode::OK };
        let headers = response.headers_mut();
        if let Ok(mark) = HeaderValue::from_str(&mark) {
            headers.insert(ETAG, mark);
        }
        if small && !known {
            headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        for (name, value) in [
            (CONTENT_TYPE, self.page.kind),
            (CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY_VALUE),
            // Cached by the browser but revalidated: a new version shows at once.
            (CACHE_CONTROL, "no-cache"),
            (VARY, "accept-encoding"),
            (X_CONTENT_TYPE_OPTIONS, "nosniff"),
            (REFERRER_POLICY, "no-referrer"),
            (HeaderName::from_static("x-frame-options"), "DENY"),
            (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
            (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
            (
                HeaderName::from_static("permissions-policy"),
                "camera=(), geolocation=(), microphone=()",
            ),
        ] {
            headers.insert(name, HeaderValue::from_static(value));
        }
        response
    }
}

/// Whether a client accepts gzip.
fn accepts_gzip(asked: &HeaderMap) -> bool {
    let named = asked
        .get_all(ACCEPT_ENCODING)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','));
    named.map(|one| one.replace(' ', "")).any(|one| {
        let (name, weight) = one.split_once(";q=").unwrap_or((&one, "1"));
        (name.eq_ignore_ascii_case("gzip") || name == "*")
            && weight.parse::<f32>().is_ok_and(|weight| weight > 0.0)
    })
}

/// Whether a client already has the file.
fn matches_etag(asked: &HeaderMap, mark: &str) -> bool {
    let named = asked
        .get_all(IF_NONE_MATCH)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','));
    named.map(|one| one.trim().trim_start_matches("W/")).any(|one| one == mark || one == "*")
}

/// Whether a path is a file of the dashboard. The files are the same for every user and contain no
/// memory.
pub fn is_dashboard_path(path: &str) -> bool {
    STATIC_FILES.iter().any(|page| page.path == path)
}

/// The routes of the dashboard.
pub fn router<S: Clone + Send + Sync + 'static>() -> Router<S> {
    PREPARED_FILES.iter().fold(Router::new(), |router, ready| {
        router.route(
            ready.page.path,
            get(move |asked: HeaderMap| async move { ready.respond(&asked) }),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All files that the first visit downloads.
    const MOST_BYTES: usize = 150_000;

    fn request_headers(headers: &[(HeaderName, &'static str)]) -> HeaderMap {
        headers
            .iter()
            .map(|(name, value)| (name.clone(), HeaderValue::from_static(value)))
            .collect()
    }

    #[test]
    fn every_page_comes_under_a_strict_policy() {
        for ready in PREPARED_FILES.iter() {
            let answer = ready.respond(&HeaderMap::new());
            let header =
                |name: &str| answer.headers().get(name).unwrap().to_str().unwrap().to_owned();
            assert_eq!(answer.status(), 200);
            let policy = header("content-security-policy");
            assert!(
                policy.starts_with("default-src 'none'; script-src 'self';")
                    && !policy.contains("unsafe"),
                "{policy}"
            );
            assert!(policy.contains("require-trusted-types-for 'script'; trusted-types 'none'"));
            assert_eq!(
                (header("x-content-type-options"), header("referrer-policy")),
                ("nosniff".into(), "no-referrer".into())
            );
            assert_eq!(
                (header("cross-origin-opener-policy"), header("x-frame-options")),
                ("same-origin".into(), "DENY".into())
            );
        }
    }

    #[test]
    fn the_page_has_nothing_that_its_policy_forbids_and_asks_nobody_else() {
        let text = |path: &str| STATIC_FILES.iter().find(|page| page.path == path).unwrap().text;
        let page = text("/");
        for word in ["style=", "onclick", "onload", "<style", "://"] {
            assert!(!page.contains(word), "{word}");
        }
        assert_eq!(
            page.matches("<script").count(),
            page.matches("<script src=\"/theme.js\"").count()
                + page.matches("src=\"/app.js\"").count()
        );
        for word in
            ["insertAdjacentHTML", "document.write", "eval(", "new Function(", "importScripts"]
        {
            assert!(!text("/app.js").contains(word), "{word}");
        }
        assert!(!text("/app.css").contains("url(") && !text("/app.css").contains("@import"));
    }

    #[test]
    fn all_of_it_is_small() {
        let whole: usize = PREPARED_FILES.iter().map(|ready| ready.small.len()).sum();
        assert!(whole < MOST_BYTES, "{whole} bytes");
    }

    #[test]
    fn what_a_browser_has_is_not_sent_again_and_what_it_takes_is_small() {
        let ready = PREPARED_FILES.iter().find(|ready| ready.page.path == "/app.js").unwrap();
        for (encodings, small) in [
            ("gzip, deflate, br", true),
            ("br;q=1.0, gzip;q=0.5", true),
            ("*", true),
            ("gzip;q=0", false),
            ("br", false),
            ("", false),
        ] {
            let first = ready.respond(&request_headers(&[(ACCEPT_ENCODING, encodings)]));
            assert_eq!(first.headers().contains_key(CONTENT_ENCODING), small, "{encodings}");
            let mut again = request_headers(&[(ACCEPT_ENCODING, encodings)]);
            again.insert(IF_NONE_MATCH, first.headers().get(ETAG).unwrap().clone());
            assert_eq!(ready.respond(&again).status(), 304, "{encodings}");
            again.insert(IF_NONE_MATCH, HeaderValue::from_static("\"another\""));
            assert_eq!(ready.respond(&again).status(), 200, "{encodings}");
        }
        assert!(
            is_dashboard_path("/")
                && is_dashboard_path("/app.js")
                && !is_dashboard_path("/app.js/")
                && !is_dashboard_path("/dist/app.js")
                && !is_dashboard_path("/api/status")
        );
    }
}
