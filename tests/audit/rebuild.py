"""Rebuilds every execution from the audit alone and compares it with what really happened.

It knows nothing of the server: it reads what `teal audit export` printed, and the ledger of an
experiment, in which each effect is a line with `run_id`, `call_id` and `key`.

Usage: python -m tests.audit.rebuild AUDIT LEDGER
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

Line = Mapping[str, Any]


def wrong_audit(audit: Sequence[Line], ledger: Sequence[Line]) -> Iterator[str]:
    """What does not match, as sentences."""
    calls: dict[tuple[str, str], list[Line]] = defaultdict(list)
    for entry in audit:
        if entry.get("call_id") and not entry["details"].get("imported"):
            calls[entry["run_id"], entry["call_id"]].append(entry)
    effects: dict[tuple[str, str], list[Line]] = defaultdict(list)
    for line in ledger:
        effects[line["run_id"], line["call_id"]].append(line)
    for call, lines in effects.items():
        starts = [entry for entry in calls.get(call, ()) if entry["what"] == "start"]
        keys = {entry["details"].get("idempotency_key") for entry in starts}
        if len(starts) < len(lines):
            yield f"{call} had {len(lines)} effects, and the audit has {len(starts)} starts of it"
        if any(line["key"] not in keys for line in lines):
            yield f"{call} had an effect under a key that no start in the audit has"
    for call, entries in calls.items():
        yield from _wrong_call(call, entries, effects.get(call, []))


def _wrong_call(
    call: tuple[str, str], entries: Sequence[Line], effects: Sequence[Line]
) -> Iterator[str]:
    if len({entry["log"] for entry in entries}) != 1:
        yield f"{call} is in several logs"
    if [entry["seq"] for entry in entries] != sorted(entry["seq"] for entry in entries):
        yield f"{call} is out of order"
    whats = [entry["what"] for entry in entries]
    if whats.count("intent") != 1 or whats[0] != "intent":
        yield f"{call} does not begin with one intent: {whats}"
    allowed: set[str] = set()
    is_running = has_begun = False
    for entry in entries:
        match entry["what"]:
            case "decision" if entry["outcome"] == "approved":
                allowed.add(entry["digest"])
                if entry["by"] == "human" and not (entry.get("who") and entry.get("role")):
                    yield f"{call}: a decision does not say who decided: {entry}"
            case "start":
                if entry["digest"] not in allowed:
                    yield f"{call} began without a decision about these arguments: {whats}"
                is_running = has_begun = True
            case "end":
                # One whose outcome is unknown ends by what a person says about it.
                if entry["details"]["ran"] != has_begun:
                    yield f"{call} ended and never began, or the other way round: {whats}"
                is_running = False
            case "unknown":
                is_running = False
    if is_running:
        yield f"{call} began, and nothing says what became of it: {whats}"
    ends = [entry for entry in entries if entry["what"] == "end"]
    if len(ends) > 1:
        yield f"{call} has {len(ends)} ends"
    if any(entry["outcome"] == "ok" and not entry.get("by") for entry in ends) and not effects:
        yield f"{call} is said to have run, and had no effect"


def read_lines(path: Path) -> list[Line]:
    return [json.loads(line) for line in path.read_text().splitlines()]


if __name__ == "__main__":
    found = list(wrong_audit(*(read_lines(Path(name)) for name in sys.argv[1:3])))
    sys.stdout.write("".join(f"{problem}\n" for problem in found) or "everything matches\n")
    sys.exit(bool(found))
