"""Imports of the public Teal Agents project's packages, answered where these are not installed.

pytest loads this module by itself wherever the package is installed, so that plugins import in
their own tests as they do in the server; `-p no:teal` leaves it out. It therefore imports nothing
of ours, and puts a finder at the end of the search path, which is asked only for what no other
has: `semantic_kernel`, `ska_utils`, `sk_agents.configs`.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

# Which module of ours knows a package, and its function that makes the imports work.
STAND_INS = {
    "semantic_kernel": ("sk_agents.tools.semantic_kernel_stub", "install_kernel_stub"),
    "ska_utils": ("sk_agents.config.public_names", "install"),
    "sk_agents.configs": ("sk_agents.config.public_names", "install"),
}


class LazyStandIns(MetaPathFinder):
    """Loads what knows a package when it is first asked for."""

    def __init__(self) -> None:
        # What knows a package looks first whether the package is installed, and so asks here again.
        self._asked: set[str] = set()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        known = STAND_INS.get(fullname)
        if known is None or fullname in self._asked:
            return None
        self._asked.add(fullname)
        module, function = known
        before = list(sys.meta_path)
        getattr(importlib.import_module(module), function)()
        for finder in sys.meta_path:
            if finder not in before and (spec := finder.find_spec(fullname, path, target)):
                return spec
        return None


def answer_imports() -> None:
    """Make these imports work from now on."""
    if not any(isinstance(finder, LazyStandIns) for finder in sys.meta_path):
        sys.meta_path.append(LazyStandIns())


def pytest_load_initial_conftests() -> None:
    """As a plugin of pytest, before it loads anything of the tests."""
    answer_imports()
