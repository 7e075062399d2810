#!/usr/bin/env python3
"""Measures search on evaluation sets and writes docs/evaluation.md.

usage: run.py [SET …]        locomo realmem longmemeval updates; all of them if none is named

The sets are read from ICECORE_EVAL_DATA, else from ../shared/data: archives NAME.tar.gz of folders with messages.jsonl and
questions.jsonl. They are not part of this project. updates.py generates the set `updates`. The scoring program is
ICECORE_EVAL_SCORE, else ../shared/eval/score.py.
"""

import concurrent.futures
import datetime
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import time

import updates

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA = pathlib.Path(os.environ.get("ICECORE_EVAL_DATA", ROOT / "../shared/data"))
SCORE = pathlib.Path(os.environ.get("ICECORE_EVAL_SCORE", ROOT / "../shared/eval/score.py"))
PROGRAM = ROOT / "target/release/icecore"
MODEL = ROOT / "target/model-venv/minilm"
WORK = ROOT / "target/eval"
PAGE = ROOT / "docs/evaluation.md"
BEGIN, END = "<!-- measured -->", "<!-- /measured -->"

# The measures of each set: the level, the measure and its target.
MEASURES = {
    "locomo": [("turn", "any@5", 80), ("turn", "any@10", 88), ("session", "any@5", 95), ("session", "all@10", 93)],
    "longmemeval": [("session", "any@5", 99), ("session", "all@5", 93), ("session", "all@10", 97), ("turn", "any@5", 91)],
    "realmem": [("session", "any@5", 80), ("session", "any@10", 90)],
    "updates": [("newer-above-older", "share", 97)],
}
# The search modes: keywords only; vectors for the best candidates only; a vector for every message. With their names in the page.
MODES = {"words": "keywords", "rerank": "re-ranked", "vectors": "semantic"}


def unpack(name):
    folder = WORK / "sets" / name
    if name == "updates":
        updates.write(folder)
    elif not folder.exists():
        archive = DATA / f"{name}.tar.gz"
        if not archive.exists():
            return None
        with tarfile.open(archive) as tar:
            tar.extractall(WORK / "sets", filter="data")
    return folder


def icecore(*arguments, model=True, **options):
    env = dict(os.environ, HOME=str(WORK / "home"), ICECORE_MODEL_DIR=str(MODEL if model else WORK / "none"))
    return subprocess.run([PROGRAM, *map(str, arguments)], check=True, env=env, stderr=subprocess.DEVNULL, **options)


def search_haystack(haystack, mode, results):
    """Imports a haystack if it is not imported yet, asks its questions, and returns the time of each part."""
    vault = WORK / "vaults" / mode / haystack.parent.name / haystack.name
    start = time.monotonic()
    if not (vault / "icecore.toml").exists():
        icecore("init", vault, "--tz", "UTC", "-q", stdout=subprocess.DEVNULL)
        icecore("import", haystack / "messages.jsonl", "--format", "jsonl", "--vault", vault, stdout=subprocess.DEVNULL)
        icecore("vault", "reindex", "--vault", vault, *([] if mode == "vectors" else ["--words"]), stdout=subprocess.DEVNULL)
    ready = time.monotonic()
    with open(results / f"{haystack.name}.jsonl", "w", encoding="utf-8") as out:
        extra = {"words": ["--words"], "vectors": [], "rerank": ["--rerank"]}[mode]
        icecore("search", "--queries", haystack / "questions.jsonl", "--limit", 20, "--vault", vault, *extra, stdout=out)
    return ready - start, time.monotonic() - ready


def measure_set(name, folder, mode):
    results = WORK / "results" / mode / name
    shutil.rmtree(results, ignore_errors=True)
    results.mkdir(parents=True)
    start = time.monotonic()
    haystacks = sorted(path for path in folder.iterdir() if path.is_dir())
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(lambda haystack: search_haystack(haystack, mode, results), haystacks))
    took = time.monotonic() - start
    scored = subprocess.run([sys.executable, SCORE, folder, results, "--json"], check=True, capture_output=True, text=True).stdout
    return json.loads(scored), took


def main(names):
    if not SCORE.exists():
        sys.exit(f"the scoring program {SCORE} is missing; name it in ICECORE_EVAL_SCORE")
    shutil.rmtree(WORK / "vaults", ignore_errors=True)
    rows, notes = [], []
    for name in names:
        folder = unpack(name)
        if folder is None:
            print(f"{name}: not measured, {DATA / name}.tar.gz is missing; name its folder in ICECORE_EVAL_DATA", file=sys.stderr)
            notes.append(f"{name} was not measured: the set is missing.")
            continue
        found = {}
        for mode in MODES:
            found[mode], took = measure_set(name, folder, mode)
            notes.append(f"{name}, {MODES[mode]}: {took:.0f} s for import, indexing and questions.")
            print(f"{name} {mode} {took:.0f} s", file=sys.stderr)
        for level, measure, target in MEASURES[name]:
            key = level if level == "newer-above-older" else f"{level}/ALL"
            values = [found[mode].get(key, {}).get(measure) for mode in MODES]
            best = values[-1]
            rows.append(f"| {name} | {level.replace('turn', 'message')} {measure} | {target} | {' | '.join(map(str, values))} | {'yes' if best >= target else 'no'} |")
            print(rows[-1], file=sys.stderr)
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout.strip()
    table = [f"Measured on {datetime.date.today()} at {commit}, on {os.cpu_count()} cores.", ""]
    table += [f"| set | measure | target | {' | '.join(MODES.values())} | reached |", "|---|---|---|---|---|---|---|", *rows, "", *[f"- {note}" for note in notes]]
    page = PAGE.read_text(encoding="utf-8")
    before, rest = page.split(BEGIN)
    after = rest.split(END)[1]
    PAGE.write_text(f"{before}{BEGIN}\n{chr(10).join(table)}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:] or ["locomo", "realmem", "longmemeval", "updates"])
