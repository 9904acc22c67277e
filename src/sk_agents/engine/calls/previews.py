"""What a person is shown of a preview: a text, a table or a picture, bounded, without secrets.

Pure. A preview stands beside the arguments of a call under names of its own, so that none can take
their place: the digest of an approval is of the arguments alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sk_agents.engine.turns import Preview, PreviewPicture, PreviewTable, printable

TEXT, TABLE, PICTURE = "preview", "preview_table", "preview_picture"
MAX_CHARACTERS = 65_536
MAX_COLUMNS = 20
MAX_ROWS = 200
MAX_CELL = 500
# Of a picture as it is kept, in base64.
MAX_PICTURE = 768 * 1024
# A cell is looked through for secrets before it is cut, but not without end.
_READ_CELL = 20 * MAX_CELL

Hide = Callable[[dict[str, Any]], dict[str, Any]]


def shown_preview(preview: Preview, hide: Hide) -> dict[str, Any]:
    """What is added to what is shown; `hide` takes secrets out."""
    match preview:
        case str():
            shown = hide({TEXT: printable(preview)})
            return {**shown, TEXT: _cut_text(shown[TEXT])}
        case PreviewTable():
            return _shown_table(preview, hide)
        case PreviewPicture() if len(preview.uri) <= MAX_PICTURE:
            return {PICTURE: preview.uri}
        case PreviewPicture():
            return {TEXT: "The picture of what it would do is too large to be shown."}


def _shown_table(table: PreviewTable, hide: Hide) -> dict[str, Any]:
    columns = [_cell(name) for name in table.columns[:MAX_COLUMNS]]
    rows = [[_cell(value) for value in row[: len(columns)]] for row in table.rows[:MAX_ROWS]]
    shown = hide({TABLE: {"columns": columns, "rows": rows}})
    hidden = shown[TABLE]
    kept = {
        "columns": [_cut_cell(name) for name in hidden["columns"]],
        # A row that is too short is filled up.
        "rows": [
            [*map(_cut_cell, row), *[""] * (len(columns) - len(row))] for row in hidden["rows"]
        ],
        "more": max(0, len(table.rows) - MAX_ROWS),
    }
    return {**shown, TABLE: kept}


def _cell(value: object) -> str:
    return printable(str(value) if value is not None else "")[:_READ_CELL]


def _cut_cell(text: str) -> str:
    return text if len(text) <= MAX_CELL else f"{text[: MAX_CELL - 1]}…"


def _cut_text(text: str) -> str:
    left = len(text) - MAX_CHARACTERS
    return text if left <= 0 else f"{text[:MAX_CHARACTERS]}\n[cut: {left} more characters]\n"
