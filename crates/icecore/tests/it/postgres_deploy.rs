//! The files of `deploy/` are started unmodified: their commands, with their variables and no
//! others, against a real database.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use icecore_store::testing::cluster::{Durability, TestCluster};
use serde_json::Value;
use tempfile::TempDir;

use crate::api::{Server, answering};
use crate::program::{command_output, program};

/// The variables that an administrator has to set.
const GIVEN: [(&str, &str); 3] =
    [("ICECORE_IMAGE", "icecore"), ("CHAT_MODEL", "stub"), ("CHAT_URL", "MODEL")];

fn text(name: &str) -> String {
    let place =
        Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().join("deploy").join(name);
    std::fs::read_to_string(place).unwrap()
}

/// A machine with an empty database, its secrets, and the program on its path.
struct Machine {
    cluster: TestCluster,
    folder: TempDir,
    model: String,
}

impl Machine {
    fn new() -> Self {
        let (cluster, folder) =
            (TestCluster::start(Durability::Unflushed), TempDir::new().unwrap());
        let bin = folder.path().join("bin");
        std::fs::create_dir(&bin).unwrap();
        std::os::unix::fs::symlink(program(), bin.join("icecore")).unwrap();
        let secrets = folder.path().join("secrets");
        std::fs::create_dir(&secrets).unwrap();
        std::fs::write(secrets.join("admin-store"), cluster.url()).unwrap();
        std::fs::write(
            secrets.join("store"),
            cluster.url().replace("postgres@", "icecore:secret@"),
        )
        .unwrap();
        std::fs::write(secrets.join("token"), crate::api::TOKEN).unwrap();
        Self {
            cluster,
            folder,
            model: format!("http://{}/v1", answering(Duration::ZERO, |_| "Noted.".into())),
        }
    }

    /// A value adapted to this machine: its secrets are elsewhere, and the port is any free one.
    fn here(&self, value: &str, credentials: &str) -> String {
        let secret =
            |name: &str| self.folder.path().join("secrets").join(name).display().to_string();
        let word = |word: &str| match word.split_once(credentials) {
            Some((before, rest)) => format!(
                "{before}{}",
                secret(Path::new(rest).file_name().unwrap().to_str().unwrap())
            ),
            None => word.replace(":7431", ":0").replace("http://model:8000/v1", &self.model),
        };
        value.split(' ').map(word).collect::<Vec<_>>().join(" ")
    }

    /// Servers and workers use a login that owns nothing and sees nothing without naming a space.
    fn has_a_login_that_owns_nothing(&self) {
        let sql = "SELECT rolcanlogin AND NOT rolsuper AND NOT rolbypassrls AND NOT rolcreaterole AND NOT pg_has_role(oid, 'icecore_owner', 'MEMBER') \
            AND NOT EXISTS (SELECT FROM pg_class WHERE relowner = pg_roles.oid) FROM pg_roles WHERE rolname = 'icecore'";
        assert_eq!(self.cluster.sql(sql), "t");
        assert_eq!(self.cluster.sql("SET ROLE icecore; SELECT count(*) FROM icecore.space"), "0");
    }

    /// A command with only these variables.
    fn command(
        &self,
        words: &[String],
        environment: &BTreeMap<String, String>,
        credentials: &str,
    ) -> Command {
        let bin: PathBuf = self.folder.path().join("bin");
        let words: Vec<String> = words.iter().map(|word| self.here(word, credentials)).collect();
        let first = if words[0].ends_with("icecore") {
            bin.join("icecore").display().to_string()
        } else {
            words[0].clone()
        };
        let mut command = Command::new(first);
        command.args(&words[1..]).env_clear().current_dir("/").stdin(Stdio::null());
        command.env("PATH", format!("{}:/usr/local/bin:/usr/bin:/bin", bin.display()));
        command.envs(environment.iter().map(|(name, value)| (name, self.here(value, credentials))));
        command
    }

    fn runs(&self, mut command: Command) {
        let done = command_output(command.output().unwrap());
        assert_eq!(done.code, Some(0), "{command:?}: {done:?}");
    }

    /// Starts a server and checks its readiness, as a monitor does.
    fn serves(&self, mut command: Command, path: &str) {
        let mut child =
            command.arg("--json").stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let told: Value = serde_json::from_str(&line)
            .unwrap_or_else(|error| panic!("{command:?}: {error}: {line}"));
        let address: std::net::SocketAddr = told["addr"].as_str().unwrap().parse().unwrap();
        let address = std::net::SocketAddr::new([127, 0, 0, 1].into(), address.port());
        let server = Server { child, address, link: String::new() };
        let answer = server.get(path);
        assert_eq!((answer.status, answer.text.as_str()), (200, "ready\n"), "{command:?}");
    }

    /// A worker that runs all due jobs once.
    fn works(&self, mut command: Command) {
        command.arg("--once");
        self.runs(command);
    }
}

fn words(value: &Value) -> Vec<String> {
    value
        .as_array()
        .unwrap_or_else(|| panic!("{value}"))
        .iter()
        .map(|word| word.as_str().unwrap().to_owned())
        .collect()
}

/// `${NAME:-else}` and `${NAME:?why}`, as compose expands them.
fn expand_variables(text: &str, model: &str) -> String {
    let Some((before, rest)) = text.split_once("${") else { return text.to_owned() };
    let (inner, after) = rest.split_once('}').unwrap();
    let (name, otherwise) = inner.split_once(':').unwrap_or((inner, ""));
    let given = GIVEN
        .iter()
        .find(|(known, _)| *known == name)
        .map(|(_, value)| if *value == "MODEL" { model } else { value });
    let value = given
        .or_else(|| otherwise.strip_prefix('-'))
        .unwrap_or_else(|| panic!("nobody says what {name} is"));
    format!("{before}{value}{}", expand_variables(after, model))
}

fn yaml(name: &str) -> Value {
    serde_saphyr::from_str(&text(name)).unwrap()
}

fn variables(value: &Value, model: &str) -> BTreeMap<String, String> {
    let one = |(name, value): (&String, &Value)| {
        (name.clone(), expand_variables(value.as_str().unwrap(), model))
    };
    value.as_object().unwrap().iter().map(one).collect()
}

/// A key of a service, its own or that of the service it extends.
fn of<'a>(service: &'a Value, key: &str) -> &'a Value {
    service
        .get(key)
        .or_else(|| service.get("<<").map(|merged| of(merged, key)))
        .unwrap_or(&Value::Null)
}

#[test]
fn the_compose_file_starts() {
    const CREDENTIALS: &str = "/run/secrets/";
    let machine = Machine::new();
    let services = &yaml("compose.yaml")["services"];
    let command = |name: &str| {
        let service = &services[name];
        machine.command(
            &words(of(service, "command")),
            &variables(of(service, "environment"), &machine.model),
            CREDENTIALS,
        )
    };
    // Preparing it a second time changes nothing.
    machine.runs(command("ready"));
    machine.runs(command("ready"));
    for name in ["serve-1", "serve-2"] {
        let probe = words(&of(&services[name], "healthcheck")["test"]).pop().unwrap();
        let path = probe.split_once(":7431").unwrap().1.to_owned();
        machine.serves(command(name), &path);
    }
    machine.works(command("worker"));
    assert_eq!(machine.cluster.sql("SELECT name FROM icecore.space"), "chat");
    machine.has_a_login_that_owns_nothing();
}

#[test]
fn the_values_of_a_chart_start() {
    const CREDENTIALS: &str = "/run/secrets/";
    let machine = Machine::new();
    let values = yaml("values.yaml");
    let command = |name: &str| {
        let words = [vec!["icecore".to_owned()], words(&values[name]["args"])].concat();
        let mut all = variables(&values["env"], &machine.model);
        if values[name]["env"].is_object() {
            all.extend(variables(&values[name]["env"], &machine.model));
        }
        machine.command(&words, &all, CREDENTIALS)
    };
    machine.runs(command("migrate"));
    machine.runs(command("init"));
    machine.runs(command("migrate"));
    machine.serves(
        command("serve"),
        values["serve"]["readinessProbe"]["httpGet"]["path"].as_str().unwrap(),
    );
    machine.works(command("worker"));
    machine.has_a_login_that_owns_nothing();
}

#[test]
fn the_units_start() {
    const CREDENTIALS: &str = "%d/";
    let machine = Machine::new();
    let command = |name: &str| {
        let unit = text(name);
        let all = |key: &str| {
            unit.lines()
                .filter_map(|line| line.strip_prefix(key))
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        let set = all("Environment=");
        let variables =
            set.iter().flat_map(|line| line.split(' ')).map(|pair| pair.split_once('=').unwrap());
        let variables: BTreeMap<String, String> =
            variables.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        // Every credential that is used is also loaded.
        for value in variables.values().filter_map(|value| value.strip_prefix(CREDENTIALS)) {
            assert!(
                all("LoadCredential=").iter().any(|line| line.starts_with(&format!("{value}:"))),
                "{name}: {value}"
            );
        }
        let words: Vec<String> = all("ExecStart=")[0].split(' ').map(str::to_owned).collect();
        machine.command(&words, &variables, CREDENTIALS)
    };
    // The preparation that the head of the unit describes.
    let head = text("icecore-serve.service").split("[Unit]").next().unwrap().replace("\n# ", " ");
    let first: Vec<&str> =
        head.split('`').filter(|quoted| quoted.starts_with("ICECORE_STORE_FILE=")).collect();
    assert_eq!(first.len(), 2, "{first:?}");
    for line in first {
        let mut words = line.split(' ').map(str::to_owned);
        let (name, value) = words
            .next()
            .unwrap()
            .split_once('=')
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .unwrap();
        machine.runs(machine.command(
            &words.collect::<Vec<_>>(),
            &BTreeMap::from([(name, value)]),
            "/etc/icecore/",
        ));
    }
    machine.serves(command("icecore-serve.service"), "/readyz");
    machine.works(command("icecore-worker.service"));
    machine.has_a_login_that_owns_nothing();
}
