//! Many users on one PostgreSQL, with one and with two servers: turns per second, the cost of a
//! turn, and its duration.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use icecore_store::testing::cluster::{Durability, TestCluster};

use super::chats::{AT_ONCE, Client, percentile, serve_with, stub};

/// The minimum number of turns of each measurement.
const TURNS: usize = 600;

fn icecore(root: &Path, url: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_icecore"));
    command
        .env("HOME", root)
        .env("ICECORE_STORE", url)
        .env("ICECORE_SPACE", "chat")
        .env_remove("ICECORE_VAULT");
    command
}

/// The processor seconds of these processes and all their children.
pub fn seconds(pids: &[u32]) -> f64 {
    let ticks = |pid: u32| {
        let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let rest = text
            .rsplit(')')
            .next()
            .unwrap_or_default()
            .split_whitespace()
            .map(str::to_owned)
            .collect::<Vec<_>>();
        // Its own, and those of children that have ended.
        rest.get(11..15).map_or(0.0, |numbers| {
            numbers.iter().filter_map(|number| number.parse::<f64>().ok()).sum()
        })
    };
    pids.iter().map(|&pid| ticks(pid)).sum::<f64>() / 100.0
}

/// The server processes of the cluster.
fn of_database(cluster: &TestCluster) -> Vec<u32> {
    let postmaster = cluster.pid();
    let children = Command::new("pgrep").args(["-P", &postmaster.to_string()]).output().unwrap();
    let children = String::from_utf8(children.stdout).unwrap();
    children.lines().filter_map(|line| line.trim().parse().ok()).chain([postmaster]).collect()
}

pub fn measure_database(folder: &Path) {
    let cluster = TestCluster::start(Durability::Flushed);
    let root = folder.join("homes");
    std::fs::create_dir_all(&root).unwrap();
    let made = icecore(&root, &cluster.url())
        .args(["init", "--tz", "UTC", "-q"])
        .stdout(Stdio::null())
        .status()
        .unwrap();
    assert!(made.success());
    let upstream = stub(AT_ONCE);
    println!(
        "| clients | servers | turns a second | p50 | p99 | processor for a turn, server / PostgreSQL |\n|---|---|---|---|---|---|"
    );
    for servers in [1, 2] {
        let mut running: Vec<(Child, std::net::SocketAddr)> = (0..servers)
            .map(|_| {
                let mut command = icecore(&root, &cluster.url());
                command
                    .args(["serve", "--addr", "127.0.0.1:0"])
                    .env("ICECORE_SERVER_REQUESTS_PER_MINUTE", "0");
                serve_with(command, upstream)
            })
            .collect();
        for clients in [1, 10, 50, 100, 200] {
            measure_clients(&running, &cluster, clients);
        }
        for (child, _) in &mut running {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}

fn measure_clients(
    running: &[(Child, std::net::SocketAddr)],
    cluster: &TestCluster,
    clients: usize,
) {
    let servers: Vec<u32> = running.iter().map(|(child, _)| child.id()).collect();
    let turns = (TURNS / clients).max(4);
    let round = |turns: usize, name: &str| {
        let (times, failed, start) = (Mutex::new(Vec::new()), AtomicUsize::new(0), Instant::now());
        thread::scope(|scope| {
            for at in 0..clients {
                let (times, failed) = (&times, &failed);
                let (_, address) = &running[at % running.len()];
                let run = move || {
                    let mut client = Client::to(*address).of(&format!("user-{clients}-{at}"));
                    for n in 0..turns {
                        let begun = Instant::now();
                        match client
                            .turn("talk", &format!("question {n} {name} of {at}, what now?"))
                        {
                            Some(_) => times.lock().unwrap().push(begun.elapsed()),
                            None => drop(failed.fetch_add(1, Ordering::Relaxed)),
                        }
                    }
                };
                thread::Builder::new().stack_size(128 << 10).spawn_scoped(scope, run).unwrap();
            }
        });
        let mut times: Vec<Duration> = times.into_inner().unwrap();
        times.sort();
        (times, failed.into_inner(), start.elapsed())
    };
    // Their spaces are created first.
    round(1, "first");
    let before = (seconds(&servers), of_database(cluster));
    let database_before = seconds(&before.1);
    let (times, failed, took) = round(turns, "then");
    assert_eq!(failed, 0, "every turn is answered");
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    let each = |spent: f64| spent * 1e3 / times.len() as f64;
    println!(
        "| {clients} | {} | {:.0} | {:.0} ms | {:.0} ms | {:.1} / {:.1} ms |",
        running.len(),
        times.len() as f64 / took.as_secs_f64(),
        ms(percentile(&times, 0.5)),
        ms(percentile(&times, 0.99)),
        each(seconds(&servers) - before.0),
        each(seconds(&before.1) - database_before)
    );
}
