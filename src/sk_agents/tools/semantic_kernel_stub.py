"""Answers a plugin file's imports from semantic-kernel where that library is not installed.

Only the names such files use are there. The finder stands last and answers only for a package that
no other finder has, so an installed semantic-kernel is never shadowed. Once installed it stays: a
plugin may import in the middle of a call.
"""

from __future__ import annotations

import importlib.util
import sys
import threading
from collections.abc import Mapping, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from pydantic import BaseModel, ConfigDict

from sk_agents.tools.declarations import kernel_function

PACKAGE = "semantic_kernel"


class KernelBaseModel(BaseModel):
    """A pydantic model that behaves as semantic-kernel's base class does."""

    model_config = ConfigDict(
        populate_by_name=True, arbitrary_types_allowed=True, validate_assignment=True
    )


_CONTENTS: Mapping[str, Mapping[str, Any]] = {
    PACKAGE: {},
    f"{PACKAGE}.functions": {"kernel_function": kernel_function},
    f"{PACKAGE}.functions.kernel_function_decorator": {"kernel_function": kernel_function},
    f"{PACKAGE}.kernel_pydantic": {"KernelBaseModel": KernelBaseModel},
}
_PACKAGES = {PACKAGE, f"{PACKAGE}.functions"}
# `stand_ins`, asked whether the library is there, comes back here.
_lock = threading.RLock()


class _StubFinder(MetaPathFinder, Loader):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in _CONTENTS or not self._answers_for(fullname):
            return None
        # The origin shows in messages about names that are missing here.
        return ModuleSpec(fullname, self, origin=__file__, is_package=fullname in _PACKAGES)

    def exec_module(self, module: ModuleType) -> None:
        vars(module).update(_CONTENTS[module.__name__])

    def _answers_for(self, fullname: str) -> bool:
        """A module missing from the real library must stay missing."""
        parent = sys.modules.get(fullname.rpartition(".")[0])
        return parent is None or getattr(parent.__spec__, "loader", None) is self


def install_kernel_stub() -> None:
    """Make the imports work from now on, if semantic-kernel is not installed."""
    with _lock:
        present = any(isinstance(finder, _StubFinder) for finder in sys.meta_path)
        if not present and importlib.util.find_spec(PACKAGE) is None:
            sys.meta_path.append(_StubFinder())
