//! Parses database addresses and shows them without user and password.

use std::str::FromStr as _;

use tokio_postgres::Config;
use tokio_postgres::config::Host;

use crate::{Error, Result};

/// Parses an address such as `postgres://user:password@host:5432/name`.
pub fn parse(url: &str) -> Result<Config> {
    if let Some((scheme, _)) = url.split_once("://")
        && !matches!(scheme, "postgres" | "postgresql")
    {
        return Err(Error::address(match is_plain_word(scheme) {
            true => format!("it begins with {scheme}://, and this is for PostgreSQL"),
            false => "it does not begin with postgres://".into(),
        }));
    }
    let config =
        Config::from_str(url).map_err(|error| Error::address(describe_error(url, &error)))?;
    if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
        return Err(Error::address("it names no host".into()));
    }
    Ok(config)
}

/// Whether a part of an address can be shown: a plain word in the place of an option is not a
/// password.
fn is_plain_word(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= 40
        && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
}

/// A description of the error in an address. The parser's own message may contain the password, so
/// only names of options are taken from it.
fn describe_error(url: &str, error: &tokio_postgres::Error) -> String {
    let said = std::error::Error::source(error).map(ToString::to_string).unwrap_or_default();
    let option = said.split('`').nth(1).filter(|option| is_plain_word(option));
    // A question mark before the last `@` belongs to the password, and so does what follows it.
    let is_after_the_password =
        url.rfind('@').is_none_or(|at| url.find('?').is_some_and(|question| question > at));
    match option {
        Some("port") => "its port is not a number from 1 to 65535".into(),
        Some(option) if said.starts_with("invalid value") => format!("the value of its option `{option}` is not supported"),
        Some(option) if said.starts_with("unknown option") && url.contains("://") && is_after_the_password => {
            format!("there is no option `{option}`")
        }
        _ => "it contains a character that must be escaped. In a user or a password write @ as %40, : as %3A, / as %2F, ? as %3F and % as %25".into(),
    }
}

/// The database as people see it.
pub fn display_name(config: &Config) -> String {
    let ports = config.get_ports();
    let host = |(nth, host): (usize, &Host)| {
        let port = ports.get(nth).or(ports.first()).copied().unwrap_or(5432);
        match host {
            Host::Tcp(name) if name.contains(':') => format!("[{name}]:{port}"),
            Host::Tcp(name) => format!("{name}:{port}"),
            Host::Unix(folder) => format!("{}:{port}", folder.display()),
        }
    };
    let hosts: Vec<String> = match config.get_hosts() {
        [] => config.get_hostaddrs().iter().map(ToString::to_string).collect(),
        hosts => hosts.iter().enumerate().map(host).collect(),
    };
    format!(
        "{}/{}",
        hosts.join(","),
        config.get_dbname().or(config.get_user()).unwrap_or("postgres")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(url: &str, complaint: &str) {
        let said = parse(url).map(|config| display_name(&config)).unwrap_err().to_string();
        assert!(
            said.contains(complaint) && said.contains("postgres://user@host:5432/name"),
            "{url}: {said}"
        );
        assert!(
            !said.contains("hush") && !said.contains("reached") && !said.contains("runs"),
            "{url}: {said}"
        );
    }

    #[test]
    fn an_address_that_cannot_be_read_says_what_is_wrong_with_it() {
        check("mysql://me:hush@host/x", "it begins with mysql://");
        check("hush hush://host", "does not begin with postgres://");
        check("postgres://", "names no host");
        check("postgres://me:hush@/x", "names no host");
        check("postgres://me:hush@host:99999/x", "its port");
        check("postgres://me:hush@host:port/x", "its port");
        check("postgres://me:hush@host/x?bogus=1", "no option `bogus`");
        check("postgres://me:hush@host/x?sslmode=maybe", "its option `sslmode`");
        check("postgres://me:a@b?hush=1@host/x", "%3F");
        check("nonsense:hush@@", "%40");
        check("host=127.0.0.1 password=hush port=no", "its port");
        check("host=127.0.0.1 password=x hush=1", "must be escaped");
    }

    #[test]
    fn a_place_has_its_hosts_and_ports_and_no_password() {
        let place = |url: &str| display_name(&parse(url).unwrap());
        assert_eq!(place("postgres://me:hush@host/x"), "host:5432/x");
        assert_eq!(
            place("postgres://me:hush@a:1,b:2/x?target_session_attrs=read-write"),
            "a:1,b:2/x"
        );
        assert_eq!(place("postgresql://me@[::1]:7/x"), "[::1]:7/x");
        assert_eq!(place("postgres://me@host"), "host:5432/me");
        assert_eq!(place("host=/run/postgresql user=me dbname=x"), "/run/postgresql:5432/x");
    }
}
