"""Makes imports work that an operator's file takes from the public Teal Agents project's packages.

`ska_utils` brings the configuration that a class is given, `sk_agents.configs` the names of the
variables. Our finder is the last one, so an installed package of the same name comes first.
"""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, ClassVar

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from sk_agents.config.settings import PREFIX, Settings, environment, variable


class Config(BaseModel):
    """A variable, as a class declares those it reads."""

    env_name: str
    is_required: bool = False
    default_value: str | None = None


class AppConfig(Mapping[str, str | None]):
    """The environment, with the defaults of declared variables, as classes of users ask for it.

    One that is given the server's settings has them as attributes, too.
    """

    configs: ClassVar[list[Any]] = []

    @classmethod
    def add_config(cls, config: Any) -> None:
        """Declare a variable for every `AppConfig` of this process."""
        cls.add_configs([config])

    @classmethod
    def add_configs(cls, configs: Iterable[Any]) -> None:
        declared = {config.env_name: config for config in (*cls.configs, *configs)}
        cls.configs[:] = declared.values()

    def __init__(
        self,
        environ: Mapping[str, str] | None = None,
        configs: Iterable[Any] = (),
        settings: Settings | None = None,
    ) -> None:
        self._environ = environment(()) if environ is None else environ
        self._own = {config.env_name: config for config in configs}
        self._settings = settings

    @property
    def _configs(self) -> Mapping[str, Any]:
        """A class may declare variables while it is being built."""
        return {config.env_name: config for config in type(self).configs} | self._own

    def __getitem__(self, name: str) -> str | None:
        found = self._environ.get(name)
        if found is None:
            declared: str | None = self._configs[name].default_value
            return declared
        return found

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or self._settings is None:
            raise AttributeError(name)
        return getattr(self._settings, name)

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


def app_config(settings: Settings) -> AppConfig:
    """What a class of the operator is given that asks for `app_config`."""
    paths = [settings.service_config] if settings.service_config is not None else []
    environ = environment(paths)
    if settings.plugin_catalog_file is not None:
        # It may be set under another name.
        environ[variable("plugin_catalog_file")] = str(settings.plugin_catalog_file)
    return AppConfig(environ, _variables().values(), settings)


def strtobool(text: str) -> bool:
    """Raises ValueError: the text is neither a yes nor a no."""
    word = str(text).strip().lower()
    if word in ("y", "yes", "t", "true", "on", "1"):
        return True
    if word in ("n", "no", "f", "false", "off", "0"):
        return False
    raise ValueError(f"invalid truth value {text!r}")


class Singleton(type):
    """The metaclass of a class with one object."""

    _instances: ClassVar[dict[type, Any]] = {}

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if cls not in cls._instances:
            cls._instances[cls] = super().__call__(*args, **kwargs)
        return cls._instances[cls]


def _variables() -> dict[str, Config]:
    return {
        variable(name): Config(env_name=variable(name), default_value=_default(field))
        for name, field in Settings.model_fields.items()
    }


def _default(field: FieldInfo) -> str | None:
    """As the variable would be written; `None` for what no text says."""
    match field.default:
        case bool():
            return str(field.default).lower()
        case str() | int() | float():
            return str(field.default)
        case _:
            return None


def _configs_module() -> dict[str, Any]:
    """Every variable that may be set here has its name, also one that this server does not read."""
    variables = _variables()

    def other(name: str) -> Config:
        if not name.startswith(PREFIX):
            raise AttributeError(f"module 'sk_agents.configs' has no attribute {name!r}")
        return Config(env_name=name)

    return {**variables, "configs": list(variables.values()), "__getattr__": other}


_SKA_UTILS: Mapping[str, Mapping[str, Any]] = {
    "ska_utils.app_config": {"AppConfig": AppConfig, "Config": Config},
    "ska_utils.singleton": {"Singleton": Singleton},
    "ska_utils.strtobool": {"strtobool": strtobool},
}


def _ska_utils_package() -> dict[str, Any]:
    """Its modules come first: an import sets a module as an attribute of its package, and
    `strtobool` names a module and the function in it."""
    for name in _SKA_UTILS:
        importlib.import_module(name)
    return {name: value for names in _SKA_UTILS.values() for name, value in names.items()}


_CONTENTS: Mapping[str, Callable[[], Mapping[str, Any]]] = {
    "ska_utils": _ska_utils_package,
    **{name: partial(dict, names) for name, names in _SKA_UTILS.items()},
    "sk_agents.configs": _configs_module,
}
_lock = threading.Lock()


class _StandIn(MetaPathFinder, Loader):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in _CONTENTS or not self._answers_for(fullname):
            return None
        is_package = fullname == "ska_utils"
        return ModuleSpec(fullname, self, origin=__file__, is_package=is_package)

    def exec_module(self, module: ModuleType) -> None:
        vars(module).update(_CONTENTS[module.__name__]())

    def _answers_for(self, fullname: str) -> bool:
        """A module missing from an installed package must stay missing."""
        package = sys.modules.get(fullname.rpartition(".")[0])
        is_ours = getattr(package.__spec__, "loader", None) is self if package else True
        return is_ours or not fullname.startswith("ska_utils.")


def import_hint(module: str) -> str:
    """What to do where a file of the operator's imports what is not there."""
    match module.partition(".")[0]:
        case "semantic_kernel":
            return "install semantic-kernel beside the server; it is used where it is installed"
        case "ska_utils" | "sk_agents":
            return "docs/migrating.md says which names of the public project are there"
        case _:
            return "install the package it comes in beside the server"


def install() -> None:
    """Make these imports work from now on."""
    with _lock:
        if not any(isinstance(finder, _StandIn) for finder in sys.meta_path):
            sys.meta_path.append(_StandIn())
