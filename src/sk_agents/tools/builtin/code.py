"""Running Python and shell scripts behind walls, their output shown while they run."""

from __future__ import annotations

import codecs
import signal
from collections.abc import Iterator
from contextlib import aclosing
from dataclasses import asdict, replace
from typing import Annotated

from sk_agents.engine.turns import ToolChunk, ToolContext, ToolResult
from sk_agents.exceptions import ToolError
from sk_agents.tools.base_tool import ToolStream
from sk_agents.tools.builtin.function_tool import BuiltinFunction
from sk_agents.tools.builtin.workspace import Workspaces
from sk_agents.tools.sandbox.plans import ProgramLimits
from sk_agents.tools.sandbox.sandbox import Language, ProgramEnd, Sandbox, SourceCode
from sk_agents.worker_threads import WorkerThreads

PLUGIN = "Code"
# Waiting for a place, starting and ending, beside the program's own time.
MARGIN_SECONDS = 60.0

Seconds = Annotated[float | None, "Stop it after this time, if that is less than the limit"]


class CodeTools:
    def __init__(
        self,
        workspaces: Workspaces,
        limits: ProgramLimits,
        sandbox: Sandbox,
        threads: WorkerThreads,
    ) -> None:
        self._workspaces, self._limits = workspaces, limits
        self._sandbox, self._threads = sandbox, threads

    def functions(self) -> Iterator[BuiltinFunction]:
        place = [str(self._workspaces.path), self._workspaces.shared_by, asdict(self._limits)]
        timeout = self._limits.seconds + MARGIN_SECONDS
        for function in (self.run_python, self.run_shell):
            yield BuiltinFunction(PLUGIN, function, timeout=timeout, bound_to=place)

    async def run_python(
        self,
        code: Annotated[str, "A whole Python program. What it prints is the result"],
        seconds: Seconds = None,
        *,
        context: ToolContext,
    ) -> ToolStream:
        """Run Python in the workspace folder. There is no network and no other folder to write."""
        async with aclosing(self._run("python", code, seconds, context)) as pieces:
            async for piece in pieces:
                yield piece

    async def run_shell(
        self,
        script: Annotated[str, "A script for /bin/sh. What it prints is the result"],
        seconds: Seconds = None,
        *,
        context: ToolContext,
    ) -> ToolStream:
        """Run a shell script in the workspace folder, without network or other folders to write."""
        async with aclosing(self._run("shell", script, seconds, context)) as pieces:
            async for piece in pieces:
                yield piece

    async def _run(
        self, language: Language, text: str, seconds: float | None, context: ToolContext
    ) -> ToolStream:
        if seconds is not None and not seconds > 0:
            raise ToolError("seconds must be more than 0.")
        limits = self._limits
        if seconds is not None:
            limits = replace(limits, seconds=min(seconds, limits.seconds))
        folder = await self._threads.run(lambda: self._workspaces.folder(context))
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        output: list[str] = []
        program = self._sandbox.run(SourceCode(language, text), folder, limits)
        async with aclosing(program):
            async for piece in program:
                if isinstance(piece, ProgramEnd):
                    output.append(decoder.decode(b"", final=True))
                    yield _result("".join(output), piece, limits)
                elif shown := decoder.decode(piece):
                    output.append(shown)
                    yield ToolChunk(shown)


def _result(output: str, ended: ProgramEnd, limits: ProgramLimits) -> ToolResult:
    """What it printed and how it ended.

    Raises:
        ToolError: a limit stopped it.
    """
    text = output if not output or output.endswith("\n") else f"{output}\n"
    match ended.stopped:
        case "time":
            raise ToolError(f"{text}[stopped: it ran longer than {limits.seconds:g} seconds]")
        case "output":
            raise ToolError(f"{text}[stopped: it printed more than {limits.output_kb} KiB]")
    if ended.code <= 128:
        return ToolResult(f"{text}[exit code {ended.code}]")
    if ended.code - 128 == signal.SIGXCPU:
        raise ToolError(f"{text}[stopped: it used more than {limits.cpu_seconds} CPU seconds]")
    try:
        name = signal.Signals(ended.code - 128).name
    except ValueError:
        name = str(ended.code - 128)
    return ToolResult(f"{text}[ended by {name}]")
