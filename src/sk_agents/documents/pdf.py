"""The text of a PDF, read by another process that can be ended.

A PDF is a program of sorts: one that was made to harm can keep a reader busy for ever, or make it
take all memory. A thread could not be stopped, so a process reads it, without this one's
environment and within limits of its own.
"""

from __future__ import annotations

import asyncio
import json
import sys
from asyncio.subprocess import DEVNULL, PIPE
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

PROGRAM = Path(__file__).with_name("pdf_program.py")
MAX_SECONDS = 20
MAX_PAGES = 300
MAX_TEXT = 1_000_000
# A reader takes a core and up to half a gigabyte.
AT_ONCE = 2


class PdfUnreadable(ValueError):
    """Why, as the rest of a sentence that begins with the file's name."""


@dataclass(frozen=True, slots=True)
class Pdf:
    text: str
    pages: int


class PdfReaders:
    """Processes that read one PDF each, a few at once; further PDFs wait."""

    def __init__(self, *, seconds: int = MAX_SECONDS) -> None:
        self._seconds = seconds
        self._slots = asyncio.Semaphore(AT_ONCE)

    async def read(self, data: bytes) -> Pdf:
        """Raises PdfUnreadable: it is damaged, has a password, or takes too long to read."""
        async with self._slots:
            output = await _output(data, self._seconds)
        found = json.loads(output)
        if "problem" in found:
            raise PdfUnreadable(found["problem"])
        return Pdf(found["text"], found["pages"])


async def _output(data: bytes, seconds: int) -> bytes:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", str(PROGRAM)),
        *map(str, (seconds, MAX_PAGES, MAX_TEXT)),
        stdin=PIPE,
        stdout=PIPE,
        stderr=DEVNULL,
        env={},
    )
    try:
        async with asyncio.timeout(seconds):
            output, _ = await process.communicate(data)
    except TimeoutError:
        raise PdfUnreadable(f"takes more than {seconds} seconds to be read.") from None
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    if process.returncode or not output:
        # Ended by a limit that it has set itself.
        raise PdfUnreadable("is too large or too complex to be read.")
    return output
