//! The API document as an HTML page, without scripts or external resources.

use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};

use super::commands::{COMMANDS, CommandRoutes};
use super::document;
use super::route::{InputField, RouteSpec, SpaceTarget, ValueType, describe_path_param};

/// The route of the page.
pub const PATH: &str = "/api";
const PAGE_STYLE: &str = include_str!("page.css");

/// The page, and a Content-Security-Policy that allows only its own style.
pub fn render_page(routes: &[RouteSpec]) -> (String, String) {
    let hash = base64_encode(&Sha256::digest(PAGE_STYLE));
    let policy = format!(
        "default-src 'none'; style-src 'sha256-{hash}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    );
    (page_html(routes), policy)
}

fn base64_encode(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for three in bytes.chunks(3) {
        let whole = three.iter().fold(0_u32, |whole, &byte| whole << 8 | u32::from(byte))
            << (8 * (3 - three.len()));
        for at in 0..4 {
            let digit = DIGITS.get((whole >> (18 - 6 * at) & 63) as usize).copied().unwrap_or(b'=');
            text.push(if at <= three.len() { char::from(digit) } else { '=' });
        }
    }
    text
}

fn escape_html(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
        .replace('\'', "&#39;")
}

fn page_html(routes: &[RouteSpec]) -> String {
    let mut groups: Vec<&str> = routes.iter().map(|route| route.group).collect();
    groups.dedup();
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<meta name=\"color-scheme\" content=\"light dark\">\n<title>icecore memory API</title>\n<style>{PAGE_STYLE}</style>\n</head>\n<body>\n<header>\n<h1>icecore memory API</h1>\n<p>Version {}. Everything the command line can do, with the JSON that <code>--json</code> prints. As a document for programs: <a href=\"{}\">openapi.json</a>.</p>\n",
        env!("CARGO_PKG_VERSION"),
        document::PATH
    );
    page.push_str("<p>Send the server's token as <code>Authorization: Bearer …</code>: the one set as <code>ICECORE_TOKEN</code>, or the one in the file that <code>icecore serve</code> prints at startup. <code>X-Icecore-User</code> selects an end user's space; without it, the main vault is used. Bodies are JSON. Names in a path are percent-encoded, so that <code>a/b</code> is <code>a%2Fb</code>. An error is <code>{\"error\":{\"kind\",\"message\",\"status\"}}</code> and says what to do. Chat clients use <code>/v1</code> of the same server.</p>\n<nav><ul>\n");
    for group in &groups {
        let _ = writeln!(
            page,
            "<li><a href=\"#{}\">{}</a></li>",
            group_anchor(group),
            escape_html(group)
        );
    }
    page.push_str("<li><a href=\"#commands\">Commands</a></li>\n</ul></nav>\n</header>\n<main>\n");
    for group in &groups {
        let _ = writeln!(
            page,
            "<section id=\"{}\">\n<h2>{}</h2>",
            group_anchor(group),
            escape_html(group)
        );
        routes
            .iter()
            .filter(|route| route.group == *group)
            .for_each(|route| write_route(route, &mut page));
        page.push_str("</section>\n");
    }
    page.push_str("<section id=\"commands\">\n<h2>Commands</h2>\n<dl>\n");
    for (command, reached) in COMMANDS {
        let reached = match reached {
            CommandRoutes::By(routes) => routes
                .iter()
                .map(|route| format!("<code>{}</code>", escape_html(route)))
                .collect::<Vec<_>>()
                .join(", "),
            CommandRoutes::Not(why) => format!("not over HTTP: {}", escape_html(why)),
        };
        let _ = writeln!(
            page,
            "<dt><code>icecore {}</code></dt><dd>{reached}</dd>",
            escape_html(command)
        );
    }
    page.push_str("</dl>\n</section>\n</main>\n</body>\n</html>\n");
    page
}

fn group_anchor(group: &str) -> String {
    group.to_lowercase().replace(' ', "-")
}

fn write_route(route: &RouteSpec, page: &mut String) {
    let method = route.method.as_str();
    let _ = writeln!(
        page,
        "<article>\n<h3><span class=\"{}\">{method}</span> <code>{}</code></h3>\n<p>{}.</p>",
        method.to_lowercase(),
        escape_html(route.path),
        escape_html(route.summary)
    );
    let names = route.path_params();
    if !names.is_empty() || !route.query.is_empty() || !route.body.fields().is_empty() {
        page.push_str("<dl>\n");
        for name in names {
            let _ = writeln!(
                page,
                "<dt><code>{}</code> <i>path</i></dt><dd>{}</dd>",
                escape_html(name),
                escape_html(describe_path_param(route.path, name))
            );
        }
        route.query.iter().for_each(|field| write_field(field, "query", page));
        route.body.fields().iter().for_each(|field| write_field(field, "body", page));
        page.push_str("</dl>\n");
    }
    let _ =
        writeln!(page, "<pre><code>{}</code></pre>\n</article>", escape_html(&curl_command(route)));
}

fn write_field(field: &InputField, place: &str, page: &mut String) {
    let mut about = escape_html(field.description);
    if let ValueType::Word(words) = field.form {
        let _ = write!(about, " <small>{}</small>", escape_html(&words().join(", ")));
    }
    let (must, many) = (
        if field.required { ", required" } else { "" },
        if field.many { ", repeatable" } else { "" },
    );
    let _ = writeln!(
        page,
        "<dt><code>{}</code> <i>{place}{must}{many}</i></dt><dd>{about}</dd>",
        escape_html(field.name)
    );
}

/// An example command for a route.
fn curl_command(route: &RouteSpec) -> String {
    let (target, body) = route.example;
    let mut command = String::from("curl -sS -H \"Authorization: Bearer $ICECORE_TOKEN\"");
    if route.method.as_str() == "DELETE" {
        command.push_str(" -X DELETE");
    }
    if route.target == SpaceTarget::TheirsOrNew {
        command.push_str(" -H 'X-Icecore-User: ann'");
    }
    if let Some(body) = body {
        let _ = write!(command, " \\\n  -d '{}'", body.replace('\'', "'\\''"));
    }
    let _ = write!(command, " \\\n  'http://127.0.0.1:7431{target}'");
    command
}

#[cfg(test)]
mod tests {
    use super::super::routes;
    use super::*;

    #[test]
    fn base64_is_as_the_standard_has_it() {
        for (bytes, expected) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(base64_encode(bytes.as_bytes()), expected);
        }
    }

    #[test]
    fn the_page_shows_every_route_and_asks_nobody_for_anything() {
        let routes = routes();
        let (page, policy) = render_page(routes);
        for route in routes {
            assert!(
                page.contains(&escape_html(route.path))
                    && page.contains(&escape_html(route.summary))
                    && page.contains(&escape_html(route.example.0)),
                "{}",
                route.path
            );
        }
        for word in
            ["<script", "<img", "<link", "<iframe", "style=\"", " onclick", "src=", "https://"]
        {
            assert!(!page.contains(word), "{word}");
        }
        assert!(
            !PAGE_STYLE.contains("url(")
                && !PAGE_STYLE.contains("@import")
                && !PAGE_STYLE.contains("</")
        );
        assert!(
            policy.starts_with("default-src 'none'; style-src 'sha256-")
                && !policy.contains("unsafe")
        );
        assert_eq!(escape_html("<a href='x'>&\""), "&lt;a href=&#39;x&#39;&gt;&amp;&quot;");
    }
}
