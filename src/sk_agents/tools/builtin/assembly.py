"""The way in to the built-in tools for whoever puts agents together."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sk_agents.worker_threads import WorkerThreads

if TYPE_CHECKING:
    from sk_agents.tools.builtin.function_tool import FunctionTool
    from sk_agents.tools.builtin.loader import Loader


class BuiltinTools:
    """What all agents of one process share: threads, and places in the sandbox.

    `keep_out` are files of the server's own, such as its store: a workspace must not hold them.
    """

    def __init__(self, threads: WorkerThreads, *, keep_out: Sequence[Path] = ()) -> None:
        self._threads = threads
        self._keep_out = tuple(file.resolve() for file in keep_out)
        self._loader: Loader | None = None

    def load(self, block: Any, *, path: Path, field: str = "builtin") -> list[FunctionTool]:
        """The tools an agent's block names, in our order; none for an absent block.

        Raises:
            ConfigurationError: the block cannot be used: file and field; or it wants code to be
                run where no sandbox holds.
        """
        if block is None:
            return []
        if self._loader is None:
            # It takes 30 ms to import, which servers without built-in tools save.
            from sk_agents.tools.builtin.loader import Loader  # noqa: PLC0415

            self._loader = Loader(self._threads, self._keep_out)
        return self._loader.load(block, path=path, field=field)
