//! Prometheus metrics. No label ever holds what a user or a client wrote.

use std::sync::{Mutex, OnceLock, PoisonError};

use icecore_store::postgres::PoolStats;
use icecore_store::postgres::jobs::JobBacklog;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

type MetricLabels = Vec<(&'static str, String)>;

/// The server's metrics.
pub struct ServerMetrics {
    registry: Registry,
    requests: Family<MetricLabels, Counter>,
    phases: Family<MetricLabels, Histogram, fn() -> Histogram>,
    memory_failures: Family<MetricLabels, Counter>,
    upstream_failures: Family<MetricLabels, Counter>,
    cut: Counter,
    injected: Counter,
    left_out: Counter,
    /// Requests being answered now.
    pub open: Gauge,
    /// Set once memory is known to be in a database.
    database: OnceLock<DatabaseMetrics>,
}

/// Metrics of the database: its connections and its job backlog.
struct DatabaseMetrics {
    registry: Registry,
    connections: Family<MetricLabels, Gauge>,
    jobs: Family<MetricLabels, Gauge>,
    oldest: Family<MetricLabels, Gauge>,
    /// Last reported totals, so that each is counted once.
    waits: Mutex<Counter>,
    failures: Mutex<Counter>,
}

impl DatabaseMetrics {
    fn new() -> Self {
        let mut registry = Registry::with_prefix("icecore");
        let (connections, waits, failures) =
            (Family::default(), Counter::default(), Counter::default());
        registry.register(
            "database_connections",
            "Database connections, by state",
            connections.clone(),
        );
        registry.register("database_waits", "How often no connection was free", waits.clone());
        registry.register(
            "database_failures",
            "How often no connection could be opened",
            failures.clone(),
        );
        let (jobs, oldest) = (Family::default(), Family::default());
        registry.register(
            "jobs",
            "Jobs of the spaces in the database, by kind and state",
            jobs.clone(),
        );
        registry.register(
            "jobs_oldest_seconds",
            "How long the oldest waiting job has waited",
            oldest.clone(),
        );
        Self {
            registry,
            connections,
            jobs,
            oldest,
            waits: Mutex::new(waits),
            failures: Mutex::new(failures),
        }
    }

    fn update(&self, figures: &PoolStats, backlog: &[JobBacklog]) {
        // An unknown backlog is not reported.
        self.jobs.clear();
        self.oldest.clear();
        for kind in backlog {
            let label =
                |state: &str| vec![("kind", kind.kind.clone()), ("state", state.to_owned())];
            for (state, many) in
                [("waiting", kind.waiting), ("at_work", kind.running), ("failing", kind.failing)]
            {
                self.jobs.get_or_create(&label(state)).set(many);
            }
            #[expect(clippy::cast_possible_truncation, reason = "nothing waits that long")]
            self.oldest
                .get_or_create(&vec![("kind", kind.kind.clone())])
                .set(kind.oldest_seconds as i64);
        }
        let states = [
            ("most", figures.max_size),
            ("open", figures.open),
            ("in_use", figures.in_use),
            ("waited_for", figures.waiting),
        ];
        for (state, many) in states {
            let many = i64::try_from(many).unwrap_or(i64::MAX);
            self.connections.get_or_create(&vec![("state", state.into())]).set(many);
        }
        for (counter, many) in [(&self.waits, figures.waits), (&self.failures, figures.timeouts)] {
            let counter = counter.lock().unwrap_or_else(PoisonError::into_inner);
            counter.inc_by(many.saturating_sub(counter.get()));
        }
    }
}

fn duration_histogram() -> Histogram {
    Histogram::new([0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 10.0, 60.0, 300.0])
}

impl ServerMetrics {
    /// All metrics at zero.
    pub fn new() -> Self {
        let mut registry = Registry::with_prefix("icecore");
        let requests = Family::default();
        registry.register("requests", "Requests by route and status", requests.clone());
        let phases = Family::new_with_constructor(duration_histogram as fn() -> Histogram);
        registry.register(
            "phase_seconds",
            "How long each phase of a chat request took",
            phases.clone(),
        );
        let memory_failures = Family::default();
        registry.register(
            "memory_failures",
            "Chat requests that memory failed for, by phase",
            memory_failures.clone(),
        );
        let upstream_failures = Family::default();
        registry.register(
            "upstream_failures",
            "Requests that the upstream did not answer",
            upstream_failures.clone(),
        );
        let (cut, injected, left_out, open) =
            (Counter::default(), Counter::default(), Counter::default(), Gauge::default());
        registry.register("replies_cut", "Replies that ended early", cut.clone());
        registry.register(
            "injected_tokens",
            "Tokens of memory put into requests",
            injected.clone(),
        );
        registry.register("left_out", "Items that did not fit into requests", left_out.clone());
        registry.register("requests_open", "Requests being answered now", open.clone());
        Self {
            registry,
            requests,
            phases,
            memory_failures,
            upstream_failures,
            cut,
            injected,
            left_out,
            open,
            database: OnceLock::new(),
        }
    }

    /// Counts an answered request.
    pub fn count_request(&self, route: &'static str, status: u16) {
        self.requests
            .get_or_create(&vec![("route", route.into()), ("status", status.to_string())])
            .inc();
    }

    /// Records the duration of a phase.
    pub fn observe_phase(&self, phase: &'static str, millis: u64) {
        #[expect(clippy::cast_precision_loss, reason = "no phase takes that long")]
        self.phases.get_or_create(&vec![("phase", phase.into())]).observe(millis as f64 / 1_000.0);
    }

    /// Counts a failure of memory in a phase.
    pub fn count_memory_failure(&self, phase: &'static str) {
        self.memory_failures.get_or_create(&vec![("phase", phase.into())]).inc();
    }

    /// Counts a request that the upstream did not answer.
    pub fn count_upstream_failure(&self, kind: &'static str) {
        self.upstream_failures.get_or_create(&vec![("kind", kind.into())]).inc();
    }

    /// Counts a reply that ended early.
    pub fn count_truncated_reply(&self) {
        self.cut.inc();
    }

    /// Counts injected memory.
    pub fn count_injection(&self, tokens: usize, left_out: usize) {
        self.injected.inc_by(tokens as u64);
        self.left_out.inc_by(left_out as u64);
    }

    /// All metrics in the OpenMetrics text format.
    pub fn render(&self, database: Option<PoolStats>, backlog: &[JobBacklog]) -> String {
        const EOF_MARKER: &str = "# EOF\n";
        let mut text = String::new();
        // Writing to a string does not fail.
        if let Some(figures) = database {
            let database = self.database.get_or_init(DatabaseMetrics::new);
            database.update(&figures, backlog);
            let _ = encode(&mut text, &database.registry);
            text.truncate(
                text.len() - if text.ends_with(EOF_MARKER) { EOF_MARKER.len() } else { 0 },
            );
        }
        let _ = encode(&mut text, &self.registry);
        text
    }
}
