"""From an agent's `builtin` block to its tools: everything that needs the block's words."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from sk_agents.exceptions import ConfigurationError
from sk_agents.tools.builtin.block import CODE_TOOLS, BuiltinBlock, HttpBlock, read_builtin
from sk_agents.tools.builtin.code import CodeTools
from sk_agents.tools.builtin.files import FileLimits, FileTools
from sk_agents.tools.builtin.function_tool import FunctionTool, Offer
from sk_agents.tools.builtin.plain import ClockTools, MathTools, UserTools
from sk_agents.tools.builtin.workspace import Workspaces
from sk_agents.tools.sandbox.plans import Limits
from sk_agents.tools.sandbox.walls import Sandbox
from sk_agents.worker_threads import WorkerThreads


class Loader:
    """`keep_out` are resolved paths that no workspace may hold."""

    def __init__(self, threads: WorkerThreads, keep_out: Sequence[Path]) -> None:
        self._threads, self._keep_out = threads, keep_out
        self._sandbox = Sandbox()

    def load(self, block: Any, *, path: Path, field: str) -> list[FunctionTool]:
        """As `BuiltinTools.load`."""
        read = read_builtin(block, path=path, field=field)
        if CODE_TOOLS & set(read.tools):
            try:
                self._sandbox.check()
            except ConfigurationError as error:
                raise ConfigurationError(f"{path}: {field}.tools: {error}") from None
        workspaces = self._workspaces(read, path, f"{field}.workspace")
        return [
            FunctionTool(offer, self._threads)
            for offer in self._offers(read, workspaces)
            if offer.function.__name__ in read.tools
        ]

    def _offers(self, block: BuiltinBlock, workspaces: Workspaces | None) -> Iterator[Offer]:
        if workspaces is not None:
            yield from FileTools(workspaces, FileLimits(**block.files.model_dump())).offers()
            limits = Limits(**block.code.model_dump())
            yield from CodeTools(workspaces, limits, self._sandbox, self._threads).offers()
        yield from MathTools().offers()
        yield from ClockTools().offers()
        if block.http is not None and "http_get" in block.tools:
            yield from _web_offers(block.http)
        yield from UserTools().offers()

    def _workspaces(self, block: BuiltinBlock, path: Path, field: str) -> Workspaces | None:
        if block.workspace is None:
            return None
        folder = path.parent / Path(block.workspace).expanduser()
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
                raise PermissionError("it may not be written")
        except OSError as error:
            raise ConfigurationError(f"{path}: {field}: {folder}: {error}") from None
        resolved = folder.resolve()
        for kept in (path.resolve(), *self._keep_out):
            if kept.is_relative_to(resolved):
                raise ConfigurationError(
                    f"{path}: {field}: {folder} holds {kept.name}, which tools must not reach"
                )
        return Workspaces(resolved, block.workspace_for)


def _web_offers(block: HttpBlock) -> Iterator[Offer]:
    # aiohttp takes a fifth of a second to import, which agents without http_get save.
    from sk_agents.tools.builtin.web import WebLimits, WebTools  # noqa: PLC0415

    yield from WebTools(WebLimits(**block.model_dump())).offers()
