"""Makes imports work that an operator's file takes from the public Teal Agents project's packages.

`ska_utils` brings the configuration that a class is given, `sk_agents.configs` the names of the
variables. Our finder is the last one, so an installed package of the same name comes first.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from pydantic import BaseModel

from sk_agents.config.settings import Settings, variable


class Config(BaseModel):
    """A variable, as a factory declares those it reads."""

    env_name: str
    is_required: bool = False
    default_value: str | None = None


class AppConfig(Mapping[str, str | None]):
    """The environment, with the defaults of declared variables."""

    def __init__(
        self, environ: Mapping[str, str] | None = None, configs: Iterable[Any] = ()
    ) -> None:
        self._environ = os.environ if environ is None else environ
        self._configs = {config.env_name: config for config in configs}

    def __getitem__(self, name: str) -> str | None:
        found = self._environ.get(name)
        if found is None:
            declared: str | None = self._configs[name].default_value
            return declared
        return found

    def __iter__(self) -> Iterator[str]:
        return iter({**self._configs, **self._environ})

    def __len__(self) -> int:
        return len({**self._configs, **self._environ})

    def missing(self) -> list[str]:
        """Declared as required, and neither set nor given a default."""
        return [
            name
            for name, config in self._configs.items()
            if config.is_required and self.get(name) is None
        ]


def _variables() -> dict[str, Any]:
    names = map(variable, Settings.model_fields)
    return {name: Config(env_name=name) for name in names}


_CONTENTS: Mapping[str, Callable[[], Mapping[str, Any]]] = {
    "ska_utils": lambda: {"AppConfig": AppConfig, "Config": Config},
    "sk_agents.configs": _variables,
}
_lock = threading.Lock()


class _StandIn(MetaPathFinder, Loader):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return ModuleSpec(fullname, self, origin=__file__) if fullname in _CONTENTS else None

    def exec_module(self, module: ModuleType) -> None:
        vars(module).update(_CONTENTS[module.__name__]())


def install() -> None:
    """Make these imports work from now on."""
    with _lock:
        if not any(isinstance(finder, _StandIn) for finder in sys.meta_path):
            sys.meta_path.append(_StandIn())
