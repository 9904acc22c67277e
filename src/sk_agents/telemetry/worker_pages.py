"""The metrics of several workers on one page.

A scraper reaches any of them, and another one each time. So the page has the samples of all, each
with the label `worker`: every series is one process's, and `sum without (worker)` adds them up.
"""

from __future__ import annotations

from collections.abc import Mapping

UP = "teal_worker_up"


def merged_pages(pages: Mapping[int, str | None]) -> str:
    """By the worker's number; `None` for one that did not answer."""
    comments: dict[str, list[str]] = {}
    samples: dict[str, list[str]] = {}
    for number, page in pages.items():
        family = ""
        for line in (page or "").splitlines():
            if line.startswith("#"):
                family = line.split(" ", 3)[2]
                said = comments.setdefault(family, [])
                if line not in said:
                    said.append(line)
            elif line:
                samples.setdefault(family, []).append(_labelled(line, number))
    lines = [f"# HELP {UP} Whether the worker gave its metrics.", f"# TYPE {UP} gauge"]
    lines += [f'{UP}{{worker="{n}"}} {0 if page is None else 1}' for n, page in pages.items()]
    for family, said in comments.items():
        lines += [*said, *samples.get(family, ())]
    return "\n".join(lines) + "\n"


def _labelled(sample: str, number: int) -> str:
    """`name{a="b"} 1` or `name 1`, with the worker's number among its labels."""
    name, brace, rest = sample.partition("{")
    if brace:
        return f'{name}{{worker="{number}",{rest}'
    name, _, value = sample.partition(" ")
    return f'{name}{{worker="{number}"}} {value}'
