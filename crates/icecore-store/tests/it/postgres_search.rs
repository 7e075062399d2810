//! Search in a database: it supplies the same data for ranking as a vault with the same documents,
//! whatever else is stored.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use icecore_domain::calendar::Moment;
use icecore_domain::event::{EventDraft, EventType, Origin, Priority};
use icecore_domain::layout::DocPath;
use icecore_domain::rank::passage;
use icecore_domain::rank::posting::Posting;
use icecore_domain::rank::terms::Analyzer;
use icecore_domain::rank::vector::{self, DIMENSIONS, PackedVector};
use icecore_domain::record::{Record, RecordKind, Role};
use icecore_store::ContentVersion;
use icecore_store::postgres::{Postgres, PostgresOptions, Space};
use icecore_store::prelude::*;
use icecore_store::testing::cluster::{Durability, TestCluster};
use icecore_store::vault::Vault;
use pollster::block_on;

/// Pseudo-random numbers, the same in every run.
struct SeededRandom(u64);

impl SeededRandom {
    fn below(&mut self, most: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % most
    }

    fn text(&mut self, words: usize) -> String {
        const WORDS: &[&str] = &[
            "harbour",
            "Zürich",
            "OrderContext",
            "it's",
            "自行车",
            "🎉",
            "running",
            "launch",
            "paint",
            "Caroline",
            "camping",
            "http2",
            "1,500",
            "Straße",
            "piano",
            "the",
            "and",
            "was",
            "we",
            "yesterday",
            "garden",
            "back\\slash",
            "o'clock",
            "migration",
            "database",
            "?",
            "blue",
            "winter",
            "Größe",
            "kitchen",
        ];
        let mut text: Vec<String> =
            (0..words).map(|_| WORDS[self.below(WORDS.len())].to_owned()).collect();
        text.push(format!("thing{}", self.below(400)));
        text.join(" ")
    }
}

fn moment(minute: usize) -> Moment {
    let text = format!(
        "2026-{:02}-{:02}T{:02}:{:02}:00Z",
        1 + minute / 40_320,
        1 + minute / 1_440 % 28,
        minute / 60 % 24,
        minute % 60
    );
    Moment::parse(&text).unwrap().moment
}

fn record(chance: &mut SeededRandom, at: usize) -> Record {
    let names = [Some("Caroline"), Some("Melanie"), Some("user"), None];
    Record {
        ts: moment(at * 37),
        conversation: format!("talk-{}", at % 5),
        session: (!at.is_multiple_of(7)).then(|| format!("s{}", at / 40)),
        id: format!("m{at}"),
        role: if at.is_multiple_of(2) { Role::User } else { Role::Assistant },
        name: names[chance.below(4)].map(Into::into),
        other_speaker: None,
        kind: if at.is_multiple_of(50) { RecordKind::State } else { RecordKind::Message },
        title: at.is_multiple_of(50).then(|| "a state".into()),
        text: chance.text(3 + at % 20),
        parts: None,
        origin: Origin::User,
        captured: moment(at * 37),
        extra: Vec::new(),
        withdrawn: false,
    }
}

fn fact(chance: &mut SeededRandom, at: usize) -> EventDraft {
    EventDraft::new(moment(at * 90), EventType::Fact, Priority::P1, chance.text(6))
}

/// Every document of a vault.
fn documents(root: &Path) -> BTreeMap<DocPath, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap().flatten() {
            let name = entry.path().strip_prefix(root).unwrap().to_str().unwrap().to_owned();
            if entry.path().is_dir() {
                if !name.starts_with('.') {
                    folders.push(entry.path());
                }
            } else if let Ok(path) = name.parse() {
                found.insert(path, fs::read(entry.path()).unwrap());
            }
        }
    }
    found
}

/// Copies a vault's documents to a space; files that grew are appended to.
async fn follow(space: &Space, root: &Path) {
    let wanted = documents(root);
    for path in space.documents("").await.unwrap() {
        if !wanted.contains_key(&path) {
            space.remove(&path).await.unwrap();
        }
    }
    for (path, bytes) in wanted {
        let before = space.document(&path).await.unwrap();
        match before {
            Some(before) if before == bytes => {}
            Some(before) if passage::is_append_only(&path) && bytes.starts_with(&before) => {
                space
                    .append_if_unchanged(
                        &path,
                        &bytes[before.len()..],
                        ContentVersion::of(Some(&before)),
                    )
                    .await
                    .unwrap();
            }
            _ => space.put(&path, &bytes).await.unwrap(),
        }
    }
}

/// Both stores return the same data for every existing term and for some others.
async fn same(vault: &Vault, space: &Space) {
    let nobody = &|_, _| {};
    let (there, here) = (
        vault.update_index(false, nobody).await.unwrap(),
        space.update_index(false, nobody).await.unwrap(),
    );
    assert_eq!(there.new, here.new);
    let corpus = vault.corpus().await.unwrap();
    assert!(corpus == space.corpus().await.unwrap());
    assert_eq!(vault.speakers().await.unwrap(), space.speakers().await.unwrap());
    let numbers: Vec<u32> = (0..corpus.passage_end() + 2).collect();
    let placed = vault.locate_passages(&numbers).await.unwrap();
    assert!(placed == space.locate_passages(&numbers).await.unwrap());
    let reader = Analyzer::default();
    let mut terms: Vec<String> = placed
        .iter()
        .flatten()
        .flat_map(|placed| reader.terms(&placed.passage.text).counts)
        .map(|(term, _)| term)
        .collect();
    terms.sort();
    terms.dedup();
    terms.extend(["nowhere", "it's", "a'b", "\\", ""].map(Into::into));
    let alive = |postings: Vec<Vec<Posting>>| -> Vec<Vec<Posting>> {
        // A vault keeps vectors of removed passages for a while.
        postings
            .into_iter()
            .map(|some| {
                some.into_iter().filter(|one| corpus.row(one.passage).kind.is_some()).collect()
            })
            .collect()
    };
    let (there, here) =
        (alive(vault.postings(&terms).await.unwrap()), space.postings(&terms).await.unwrap());
    for ((term, there), here) in terms.iter().zip(there).zip(here) {
        assert_eq!(there, here, "{term}");
    }
    for part in ["arb", "ing", "车", "'", "\\", "thing1", "%", "zzz"] {
        let mut there = vault.terms_containing(part, 5_000).await.unwrap();
        there.retain(|term| terms.contains(term));
        assert_eq!(there, space.terms_containing(part, 5_000).await.unwrap(), "{part}");
        assert_eq!(
            there[..there.len().min(12)],
            space.terms_containing(part, 12).await.unwrap(),
            "{part}"
        );
    }
    for placed in placed.iter().flatten().step_by(97) {
        let key = placed.passage.key();
        assert_eq!(
            vault.passage_number(key).await.unwrap(),
            space.passage_number(key).await.unwrap()
        );
    }
    for conversation in ["talk-0", "talk-4", "nobody"] {
        let mut there = vault.conversation_groups(conversation).await.unwrap();
        there.sort_unstable();
        assert_eq!(there, space.conversation_groups(conversation).await.unwrap());
    }
    assert_eq!(
        vault.passages_without_vector(100).await.unwrap(),
        space.passages_without_vector(100).await.unwrap()
    );
    assert_eq!(
        vault.embedding_coverage().await.unwrap(),
        space.embedding_coverage().await.unwrap()
    );
    assert_eq!(vault.vectors(&numbers).await.unwrap(), space.vectors(&numbers).await.unwrap());
    let (there, here) = (vault.vector_signs().await.unwrap(), space.vector_signs().await.unwrap());
    for &number in &numbers {
        let (there, here) = (there.get(number as usize), here.get(number as usize));
        assert_eq!(there.filter(|signs| !signs.is_none()), here.filter(|signs| !signs.is_none()));
    }
}

fn random_vector(chance: &mut SeededRandom) -> PackedVector {
    let mut numbers = [0.0; DIMENSIONS];
    numbers.iter_mut().for_each(|number| *number = chance.below(2_001) as f32 - 1_000.0);
    vector::pack_vector(&numbers)
}

async fn create_space(home: &Arc<Postgres>, name: &str) -> Arc<Space> {
    home.create_space(name, "zone = \"UTC\"\n").await.unwrap()
}

// Y9, L2
#[test]
fn a_space_gives_what_a_vault_gives() {
    let cluster = TestCluster::start(Durability::Unflushed);
    let home = Postgres::for_url(&cluster.url(), PostgresOptions::default()).unwrap();
    let folder = tempfile::TempDir::new().unwrap();
    let root = folder.path().join("vault");
    let vault = Vault::create(&root, "zone = \"UTC\"\n").unwrap();
    let mut chance = SeededRandom(7);
    block_on(async {
        home.migrate().await.unwrap();
        let space = create_space(&home, "one").await;
        follow(&space, &root).await;
        same(&vault, &space).await;
        vault.add_records((0..1_500).map(|at| record(&mut chance, at)).collect()).await.unwrap();
        vault.append((0..200).map(|at| fact(&mut chance, at)).collect(), None).await.unwrap();
        for at in 0..20 {
            let page: DocPath = format!("knowledge/entities/thing_{at}.md").parse().unwrap();
            let sections: Vec<String> =
                (0..4).map(|nth| format!("## Part {nth}\n\n- {}\n", chance.text(30))).collect();
            vault.put(&page, sections.concat().as_bytes()).await.unwrap();
            let log: DocPath = format!("memory/2026-01-{:02}.md", at + 1).parse().unwrap();
            vault.put(&log, format!("# Day\n\n- {}\n", chance.text(12)).as_bytes()).await.unwrap();
        }
        follow(&space, &root).await;
        same(&vault, &space).await;

        let waiting = space.passages_without_vector(700).await.unwrap();
        let vectors: Vec<(u32, PackedVector)> =
            waiting.iter().map(|&number| (number, random_vector(&mut chance))).collect();
        vault.store_vectors(&vectors).await.unwrap();
        space.store_vectors(&vectors).await.unwrap();
        same(&vault, &space).await;

        // Grown, reworded, rewritten and removed documents.
        let revised = (0..300)
            .map(|at| Record { text: chance.text(5), ..record(&mut SeededRandom(1), at * 5) });
        let revised: Vec<Record> = revised.collect();
        vault
            .add_records(
                revised
                    .into_iter()
                    .chain((1_500..1_700).map(|at| record(&mut chance, at)))
                    .collect(),
            )
            .await
            .unwrap();
        vault.append((200..230).map(|at| fact(&mut chance, at)).collect(), None).await.unwrap();
        vault
            .put(&"knowledge/entities/thing_3.md".parse().unwrap(), b"# Three\n\n- only this\n")
            .await
            .unwrap();
        vault
            .put(&"knowledge/entities/sub/new.md".parse().unwrap(), b"# New\n\n- and that\n")
            .await
            .unwrap();
        vault.remove(&"memory/2026-01-05.md".parse().unwrap()).await.unwrap();
        follow(&space, &root).await;
        same(&vault, &space).await;
        // With every query plan: the database chooses others for few rows than for many, and when
        // it knows its tables.
        cluster.sql("ANALYZE");
        same(&vault, &space).await;
        for number in (1..2_000).step_by(39) {
            assert_eq!(
                vault.locate_passages(&[number]).await.unwrap(),
                space.locate_passages(&[number]).await.unwrap()
            );
        }
        // A second process sees the same, and so does one that rebuilds everything.
        let other = Postgres::for_url(&cluster.url(), PostgresOptions::default()).unwrap();
        same(&vault, &other.open_space("one").await.unwrap().unwrap()).await;
        vault.update_index(true, &|_, _| {}).await.unwrap();
        other
            .open_space("one")
            .await
            .unwrap()
            .unwrap()
            .update_index(true, &|_, _| {})
            .await
            .unwrap();
        same(&vault, &space).await;
    });
}

// Y9: a search in one space does not read rows of others
#[test]
fn a_search_reads_only_its_own_space() {
    let cluster = TestCluster::start(Durability::Unflushed);
    let home = Postgres::for_url(&cluster.url(), PostgresOptions::default()).unwrap();
    block_on(async {
        home.migrate().await.unwrap();
        for nth in 0..30 {
            let space = create_space(&home, &format!("space-{nth}")).await;
            let mut chance = SeededRandom(nth);
            space.add_records((0..200).map(|at| record(&mut chance, at)).collect()).await.unwrap();
            space.update_index(false, &|_, _| {}).await.unwrap();
        }
        cluster.sql("ANALYZE");
        let space = create_space(&home, "mine").await;
        let mut chance = SeededRandom(99);
        space.add_records((0..50).map(|at| record(&mut chance, at)).collect()).await.unwrap();
        space.update_index(false, &|_, _| {}).await.unwrap();
        let terms = ["harbour", "launch", "paint"].map(String::from);
        let read = || -> (i64, i64) {
            // Statistics are reported when the connection has been idle for a moment.
            std::thread::sleep(Duration::from_millis(1_200));
            let told = cluster.sql(
                "SELECT coalesce(sum(seq_tup_read), 0) || ' ' || coalesce(sum(idx_tup_fetch), 0) FROM pg_stat_user_tables \
                 WHERE schemaname = 'icecore' AND relname LIKE 'passage%'",
            );
            let (all, some) = told.split_once(' ').unwrap();
            (all.parse().unwrap(), some.parse().unwrap())
        };
        let before = read();
        let mut found = 0;
        for _ in 0..20 {
            let postings = space.postings(&terms).await.unwrap();
            found = postings.iter().flatten().count();
            space.terms_containing("arbou", 5).await.unwrap();
        }
        let after = read();
        assert!(found > 10);
        // No sequential scan, and by index no more rows than the space has.
        assert_eq!(after.0, before.0);
        assert!(after.1 - before.1 <= 20 * 2 * 50, "{}", after.1 - before.1);
    });
}

// Y9: terms that exceed a row are found too
#[test]
fn a_text_of_very_many_words_is_found_by_each() {
    let cluster = TestCluster::start(Durability::Unflushed);
    let home = Postgres::for_url(&cluster.url(), PostgresOptions::default()).unwrap();
    block_on(async {
        home.migrate().await.unwrap();
        let space = create_space(&home, "long").await;
        let many: Vec<String> = (0..120_000).map(|at| format!("w{at:011}q")).collect();
        let text = format!("{} {}", many.join(" "), "again ".repeat(20_000));
        space.add_records(vec![Record { text, ..record(&mut SeededRandom(1), 1) }]).await.unwrap();
        assert_eq!(space.update_index(false, &|_, _| {}).await.unwrap().new, 1);
        let terms: Vec<String> = [0, 60_000, 119_999]
            .map(|at| format!("w{at:011}q"))
            .into_iter()
            .chain(["again".into()])
            .collect();
        let found = space.postings(&terms).await.unwrap();
        assert_eq!(
            found
                .iter()
                .map(|postings| postings.iter().map(|one| one.count).collect())
                .collect::<Vec<Vec<u32>>>(),
            [vec![1], vec![1], vec![1], vec![20_000]]
        );
        // After a rewording nothing of the old text is left.
        space
            .add_records(vec![Record { text: "short".into(), ..record(&mut SeededRandom(1), 1) }])
            .await
            .unwrap();
        space.update_index(false, &|_, _| {}).await.unwrap();
        assert!(space.postings(&terms).await.unwrap().iter().all(Vec::is_empty));
    });
}

// Y9: concurrent updates give every passage one number and lose none
#[test]
fn several_who_take_in_at_once_take_everything_in_once() {
    let cluster = TestCluster::start(Durability::Unflushed);
    let home = Postgres::for_url(&cluster.url(), PostgresOptions::default()).unwrap();
    block_on(async {
        home.migrate().await.unwrap();
        create_space(&home, "busy").await;
    });
    let threads: Vec<_> = (0..4)
        .map(|who| {
            let home = Postgres::for_url(&cluster.url(), PostgresOptions::default()).unwrap();
            std::thread::spawn(move || {
                block_on(async {
                    let space = home.open_space("busy").await.unwrap().unwrap();
                    let mut chance = SeededRandom(who);
                    let mut new = 0;
                    for at in 0..25 {
                        let record =
                            Record { id: format!("{who}-{at}"), ..record(&mut chance, at) };
                        space.add_records(vec![record]).await.unwrap();
                        new += space.update_index(false, &|_, _| {}).await.unwrap().new;
                    }
                    new
                })
            })
        })
        .collect();
    let new: u64 = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
    block_on(async {
        let space = home.open_space("busy").await.unwrap().unwrap();
        assert_eq!((new, space.update_index(false, &|_, _| {}).await.unwrap().new), (100, 0));
        assert_eq!(space.corpus().await.unwrap().passages, 100);
    });
}

/// A search like the engine's, by a process that has never seen the space.
async fn time_search(url: &str) -> Duration {
    let home = Postgres::for_url(url, PostgresOptions::default()).unwrap();
    let space = home.open_space("mine").await.unwrap().unwrap();
    // The first search makes the connection and prepares its statements; the space's cache is not
    // what is measured.
    let mut took = Duration::ZERO;
    for part in 0..2 {
        let begun = Instant::now();
        space.update_index(false, &|_, _| {}).await.unwrap();
        space.speakers().await.unwrap();
        let corpus = space.corpus().await.unwrap();
        let terms = [["harbour", "piano", "thing17"], ["launch", "paint", "thing310"]][part]
            .map(String::from);
        let found = space.postings(&terms).await.unwrap();
        let numbers: Vec<u32> =
            found.iter().flatten().map(|posting| posting.passage).take(50).collect();
        let placed = space.locate_passages(&numbers).await.unwrap();
        took = begun.elapsed();
        assert!(corpus.passages == 1_000 && placed.iter().flatten().count() > 10);
    }
    took
}

// Y9: search in one space among others, and its duration; with `ICECORE_SPACES=100,10000`, among
// very many
#[test]
fn search_among_many_spaces_measured() {
    let counts = std::env::var("ICECORE_SPACES").unwrap_or_else(|_| "2,20".into());
    for count in counts.split(',') {
        let cluster = TestCluster::start(Durability::Unflushed);
        cluster.configure(
            "shared_buffers = 256MB\nmaintenance_work_mem = 1GB\nmax_wal_size = 256MB\nwal_level = minimal\nmax_wal_senders = 0\n",
        );
        cluster.restart();
        let home = Postgres::for_url(
            &cluster.url(),
            PostgresOptions {
                statement_timeout: Duration::from_secs(3_600),
                ..PostgresOptions::default()
            },
        )
        .unwrap();
        block_on(async {
            home.migrate().await.unwrap();
            let plain = |chance: &mut SeededRandom, at: usize| Record {
                text: chance.text(6),
                ..record(chance, at)
            };
            let pattern = create_space(&home, "pattern").await;
            let mut chance = SeededRandom(3);
            pattern
                .add_records((0..1_000).map(|at| plain(&mut chance, at)).collect())
                .await
                .unwrap();
            pattern.update_index(false, &|_, _| {}).await.unwrap();
            let space = create_space(&home, "mine").await;
            cluster.sql("DROP INDEX icecore.passage_terms");
            cluster.sql(&format!(
                "CREATE TABLE other AS SELECT md5(nth::text)::uuid AS space_id, (SELECT string_agg(substr(letters, 1 + (bits >> (6 * at) & 63), 1), '' ORDER BY at) \
                    FROM generate_series(0, 3) AS at) AS tag FROM generate_series(1, {count}) AS nth, \
                    LATERAL (SELECT ('x' || substr(md5(nth::text), 1, 6))::bit(24)::integer AS bits, \
                    'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_' AS letters) AS made"
            ));
            cluster.sql("INSERT INTO icecore.space (space_id, name) SELECT space_id, space_id::text FROM other");
            let of = "FROM icecore.space JOIN icecore.TABLE AS one USING (space_id) CROSS JOIN other WHERE space.name = 'pattern'";
            let tag = cluster.sql(
                "SELECT substr((tsvector_to_array(terms))[1], 1, 4) FROM icecore.passage LIMIT 1",
            );
            // In small steps, so that the rows of one space are interleaved with those of all
            // others.
            for part in 0..20 {
                cluster.sql(&format!(
                    "INSERT INTO icecore.passage (space_id, key, wording, start, number, length, document, nth, terms) \
                     SELECT other.space_id, key, wording, start, number, length, document, nth, replace(terms::text, '''{tag}', '''' || tag)::tsvector \
                     {} AND number % 20 = {part}",
                    of.replace("TABLE", "passage")
                ));
                space
                    .add_records(
                        (part * 50..part * 50 + 50).map(|at| plain(&mut chance, at)).collect(),
                    )
                    .await
                    .unwrap();
                space.update_index(false, &|_, _| {}).await.unwrap();
            }
            for (table, columns) in [
                ("corpus", "piece, generation, rows"),
                ("search_state", "generation, next, next_document, next_group, next_voice"),
                ("indexed", "path, number, version, one.length, bytes, whole"),
                ("document", "path, one.length, ended, version, changed"),
                ("grouping", "one.name, number, conversation"),
                ("voice", "one.name, number"),
            ] {
                let into = columns.replace("one.", "");
                cluster.sql(&format!(
                    "INSERT INTO icecore.{table} (space_id, {into}) SELECT other.space_id, {columns} {}",
                    of.replace("TABLE", table)
                ));
            }
            cluster.sql("CREATE INDEX passage_terms ON icecore.passage USING gin (terms) WITH (fastupdate = off)");
            cluster.sql("VACUUM ANALYZE");
            let url = cluster.url();
            for _ in 0..20 {
                time_search(&url).await;
            }
            let mut took = Vec::new();
            for _ in 0..200 {
                took.push(time_search(&url).await);
            }
            took.sort();
            let size = cluster.sql(
                "SELECT pg_size_pretty(pg_database_size('postgres')) || ', ' || (SELECT count(*) FROM icecore.passage) || ' passages'",
            );
            let _ = writeln!(
                std::io::stderr(),
                "{count} other spaces ({size}): p50 {:?}, p95 {:?}, p99 {:?}",
                took[100],
                took[190],
                took[198]
            );
        });
    }
}
