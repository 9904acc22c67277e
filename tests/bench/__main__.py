"""`make bench`: run every measurement, or those named, and exit 1 if a bar is missed."""

from __future__ import annotations

import sys
from collections.abc import Callable

from tests.bench import (
    auth,
    chats,
    dynamodb,
    encryption,
    group_commit,
    large_reply,
    long_thread,
    mcp,
    model_client,
    page,
    postgres,
    readers,
    redis,
    sandbox,
    stuck_readers,
    teal,
    telemetry,
    tools,
    turns,
    waiting,
    workers,
)
from tests.bench.report import Report

MEASUREMENTS: dict[str, Callable[[], Report]] = {
    "auth": auth.measure,
    "chats": chats.measure,
    "dynamodb": dynamodb.measure,
    "encryption": encryption.measure,
    "group_commit": group_commit.measure,
    "large_reply": large_reply.measure,
    "long_thread": long_thread.measure,
    "mcp": mcp.measure,
    "model_client": model_client.measure,
    "page": page.measure,
    "postgres": postgres.measure,
    "readers": readers.measure,
    "redis": redis.measure,
    "sandbox": sandbox.measure,
    "stuck_readers": stuck_readers.measure,
    "teal": teal.measure,
    "telemetry": telemetry.measure,
    "tools": tools.measure,
    "turns": turns.measure,
    "waiting": waiting.measure,
    "workers": workers.measure,
}


def main(names: list[str]) -> int:
    unknown = set(names) - set(MEASUREMENTS)
    if unknown:
        print(f"unknown: {', '.join(sorted(unknown))}; there are: {', '.join(MEASUREMENTS)}")
        return 2
    reports = []
    for name in names or MEASUREMENTS:
        print(f"measuring {name} ...", flush=True)
        reports.append(MEASUREMENTS[name]())
        print(reports[-1], flush=True)
    return 0 if all(report.holds for report in reports) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
