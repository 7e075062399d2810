# List all recipes.
default:
    @just --list

# Check format and lints before a commit.
check:
    cargo fmt --all -- --check
    cargo clippy --workspace --all-targets -- -D warnings

# Run everything that must pass; installs what the tests need.
test *arguments:
    ./test {{arguments}}

# Run the program: `just run status`.
run *arguments:
    cargo run --release -- {{arguments}}

# Show a day with icecore in a sample vault.
demo:
    cargo run --release -- demo

# Kill the process, and fail a system call, at every point of every writing command. About twenty minutes on two cores.
sweep:
    rm -f target/sweep.txt
    ICECORE_SWEEP=full ICECORE_SWEEP_REPORT="$PWD/target/sweep.txt" cargo nextest run -p icecore --no-fail-fast -E 'test(sweep)'
    awk '{ points += $2; violations += $4 } END { print points " points, " violations " violations" }' target/sweep.txt

# Run writers, hooks, maintenance, an editor and another program on one vault at once, killed at random: thirty rounds.
chaos rounds="30":
    rm -f target/chaos.txt
    ICECORE_CHAOS={{rounds}} ICECORE_CHAOS_REPORT="$PWD/target/chaos.txt" cargo nextest run -p icecore --no-fail-fast -E 'test(chaos)'
    awk '{ words += $4; killed += $6 } END { print NR " rounds, " words " acknowledged, " killed " killed, 0 lost, 0 doubled" }' target/chaos.txt

# Run long tests with large downloads: `icecore install` with more versions of the real assistants (1 GB).
long:
    tests/clients/install --long
    ICECORE_LONG=1 cargo nextest run -p icecore --no-fail-fast -E 'test(assistants)'

# Measure the figures of docs/benchmarks.md on this machine.
bench:
    cargo bench -p icecore --bench speed

# Build the bundle for Claude Desktop, target/icecore.mcpb.
mcpb:
    cargo build --release -p icecore --bin icecore
    plugin/mcpb/pack target/release/icecore target/icecore.mcpb

# Build the dashboard and copy it into the sources of the program.
dashboard:
    dashboard/check --write

# Measure search on the evaluation sets and write docs/evaluation.md. About half an hour on two cores.
eval *sets:
    tests/model/install
    cargo build --release -p icecore --bin icecore
    tests/eval/run.py {{sets}}

# Rewrite the lists of tests in docs/requirements.md.
requirements:
    ICECORE_ACCEPT=1 cargo nextest run -p icecore -E 'test(requirements)'

# Accept changed snapshots of the program's output, after a review.
accept:
    INSTA_UPDATE=always cargo nextest run -p icecore -E 'test(first_screens) or test(demo_plays)'
