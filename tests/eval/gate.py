#!/usr/bin/env python3
"""Measures how often the gate hides something in prose that has no secrets, and shows every place.

usage: gate.py [SET …]       locomo realmem longmemeval; all of them if none is named

The sets are read as by run.py: from ICECORE_EVAL_DATA, else from ../shared/data. They are not part of this project. The
program is ICECORE_PROGRAM, else target/release/icecore. Ends with 1 if more than 1 % of the messages are changed, with 2 if
nothing could be measured.
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

import run

PROGRAM = pathlib.Path(os.environ.get("ICECORE_PROGRAM", run.PROGRAM))
MOST_PERCENT = 1.0
MARK = re.compile(r"\[secret:[a-z0-9-]+:[0-9a-f]{8}\]")


def icecore(vault, *arguments):
    command = [PROGRAM, *map(str, arguments), "--vault", vault, "--json"]
    env = dict(os.environ, HOME=str(vault.parent))
    return json.loads(subprocess.run(command, check=True, env=env, capture_output=True, text=True).stdout or "{}")


def hidden_in(haystack, vault):
    """Imports a haystack and reads it back: how many messages, how many bytes, and those in which something was hidden."""
    icecore(vault, "init", "--tz", "UTC")
    start = time.monotonic()
    icecore(vault, "import", haystack / "messages.jsonl")
    took = time.monotonic() - start
    said = [json.loads(line) for line in open(haystack / "messages.jsonl", encoding="utf-8")]
    kept = {}
    for day in sorted((vault / "memory/messages").glob("*.jsonl")):
        for line in open(day, encoding="utf-8"):
            record = json.loads(line)
            kept[record["conversation"], record["id"]] = record["text"]
    changed = []
    for one in said:
        text = kept.get((one.get("conversation", "notes"), one["id"]))
        if text is not None and len(MARK.findall(text)) > len(MARK.findall(one["text"])):
            changed.append((one["text"], text))
    return len(said), sum(len(one["text"].encode()) for one in said), took, changed


def main(names):
    if not PROGRAM.exists():
        sys.exit(f"there is no program to measure: {PROGRAM} is missing (build it, or set ICECORE_PROGRAM)")
    messages = changed = 0
    for name in names:
        folder = run.unpack(name)
        if folder is None:
            print(f"{name}: not measured, {run.DATA / name}.tar.gz is missing; name its folder in ICECORE_EVAL_DATA", file=sys.stderr)
            continue
        found, of, bytes_in, seconds = [], 0, 0, 0.0
        for haystack in sorted(path for path in folder.iterdir() if path.is_dir()):
            with tempfile.TemporaryDirectory() as place:
                many, size, took, places = hidden_in(haystack, pathlib.Path(place) / "vault")
            of, bytes_in, seconds, found = of + many, bytes_in + size, seconds + took, found + places
        for before, after in found:
            at = MARK.search(after).start()
            print(f"  {name}: …{after[max(0, at - 70):at + 60]!r}")
        print(f"{name}: something was hidden in {len(found)} of {of} messages ({100 * len(found) / of:.3f} %); imported at {bytes_in / 1e6 / seconds:.1f} MB/s")
        messages, changed = messages + of, changed + len(found)
    if not messages:
        sys.exit(2)
    percent = 100 * changed / messages
    print(f"all: {changed} of {messages} messages ({percent:.3f} %), at most {MOST_PERCENT} % may be")
    sys.exit(percent > MOST_PERCENT)


if __name__ == "__main__":
    main(sys.argv[1:] or ["locomo", "realmem", "longmemeval"])
