"""What a person types: lines with editing and history, and texts in their own editor."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

try:
    import termios
except ImportError:  # Windows has none.
    termios = None  # type: ignore[assignment]

try:
    import readline
except ImportError:  # Not built into every Python; lines are then read without editing.
    readline = None  # type: ignore[assignment]


class Keyboard:
    def line(self, prompt: str, prefill: str = "") -> str:
        """One line.

        Raises:
            EOFError: Ctrl-D.
            KeyboardInterrupt: Ctrl-C.
        """
        if readline is None or not prefill:
            return input(prompt)
        readline.set_startup_hook(lambda: readline.insert_text(prefill))
        try:
            return input(prompt)
        finally:
            readline.set_startup_hook(None)

    def discard_typed(self) -> None:
        """Forget what was typed before a question was seen: it cannot have been its answer."""
        if termios is not None and sys.stdin.isatty():
            termios.tcflush(sys.stdin, termios.TCIFLUSH)

    def forget_last(self) -> None:
        """Answers to questions do not belong into the history of messages."""
        if readline is not None and (count := readline.get_current_history_length()):
            readline.remove_history_item(count - 1)

    def text(self, prompt: str, text: str, *, suffix: str) -> str:
        """The text as changed in `$VISUAL` or `$EDITOR`, or typed anew on a line without them."""
        editor = os.environ.get("VISUAL") or os.environ.get("EDITOR")
        if not editor:
            return self.line(prompt)
        with tempfile.TemporaryDirectory(prefix="teal-") as folder:
            path = Path(folder) / f"edit{suffix}"
            path.write_text(text, encoding="utf-8")
            subprocess.run([*shlex.split(editor), str(path)], check=True)
            return path.read_text(encoding="utf-8")
