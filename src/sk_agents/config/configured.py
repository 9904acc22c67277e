"""One instance of a class the operator names: loaded and built at first use, then always the same.

The classes are the operator's own: whatever they raise while being built becomes a `LoadError`
that names the variables.
"""

from __future__ import annotations

import inspect
import threading
from abc import ABC, abstractmethod
from typing import Any, ClassVar, Generic, Self, TypeVar

from sk_agents.config.loading import load_class
from sk_agents.config.settings import Settings, load_settings
from sk_agents.exceptions import ClassUnusable

T = TypeVar("T")

SETTINGS_NAMES = {"app_config", "settings"}


class ConfiguredFactory(ABC, Generic[T]):
    """Thread-safe. Each subclass has a singleton of its own."""

    _instance: ClassVar[Any] = None
    _instance_lock: ClassVar[threading.Lock]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls._instance = None
        cls._instance_lock = threading.Lock()

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._built: T | None = None
        self._lock = threading.Lock()

    @classmethod
    def get_instance(cls) -> Self:
        """The process's own factory, from the environment as it is at the first call."""
        with cls._instance_lock:
            if cls._instance is None:
                cls._instance = cls(load_settings())
            instance: Self = cls._instance
            return instance

    def get(self) -> T:
        """The one instance.

        Raises:
            LoadError: the configured class cannot be loaded or built.
        """
        with self._lock:
            if self._built is None:
                self._built = self._build(self._settings)
            return self._built

    @abstractmethod
    def _build(self, settings: Settings) -> T: ...


def build_configured(
    module: str, name: str, base: type[T], settings: Settings, *, source: str
) -> T:
    """An instance of the named class, given the settings if its constructor asks for them.

    Raises:
        LoadError: naming `source`, the variables that name the class.
    """
    found = load_class(module, name, base, source=source)
    try:
        positional, named = _arguments(found, settings)
        return found(*positional, **named)
    except (Exception, SystemExit) as error:
        raise ClassUnusable(
            f"{source}: building '{name}' fails with {type(error).__name__}: {error}"
        ) from error


def _arguments(
    found: type[object], settings: Settings
) -> tuple[list[Settings], dict[str, Settings]]:
    """A constructor that asks for the settings, by name or as its first argument, gets them."""
    parameters = inspect.signature(found).parameters
    for name in SETTINGS_NAMES & parameters.keys():
        return [], {name: settings}
    first = next(iter(parameters.values()), None)
    needed = (
        first is not None
        and first.default is first.empty
        and first.kind in (first.POSITIONAL_ONLY, first.POSITIONAL_OR_KEYWORD)
    )
    return [settings] if needed else [], {}
