"""Loads the classes and other objects that the configuration names, and builds those classes.

A module named here runs its code in this process. Only the operator may decide that, so a file that
every user of the machine can change is refused.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import os
import stat
import sys
import threading
import traceback
from abc import ABC, abstractmethod
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar, Generic, Self, TypeVar

from sk_agents.config.public_names import AppConfig, app_config, import_hint, install
from sk_agents.config.settings import Settings, load_settings
from sk_agents.exceptions import ClassUnusable, LoadError, ModuleBroken, ModuleMissing
from sk_agents.private_files import changeable_by_others

T = TypeVar("T")
# Code of ours that a module calls is not where its mistake is, and neither is Python's import.
PACKAGE = f"{Path(__file__).parents[1]}{os.sep}"

_file_modules: dict[Path, ModuleType] = {}
# Re-entrant: a module may load another one while it is being loaded.
_lock = threading.RLock()


class ConfiguredFactory(ABC, Generic[T]):
    """One instance of a class that the operator names, built at first use. Thread-safe.

    Each subclass has a singleton of its own.
    """

    _instance: ClassVar[Any] = None
    _instance_lock: ClassVar[threading.Lock]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls._instance = None
        cls._instance_lock = threading.Lock()

    def __init__(self, settings: Settings | AppConfig | None = None) -> None:
        """With an `AppConfig`, as the public project's factories are given, and without anything:
        from the environment as it is now."""
        self._settings = settings if isinstance(settings, Settings) else load_settings()
        self._built: T | None = None
        self._lock = threading.Lock()

    @classmethod
    def get_instance(cls) -> Self:
        """The process's own factory, from the environment as it is at the first call."""
        with cls._instance_lock:
            if cls._instance is None:
                cls._instance = cls()
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
    """An instance of the named class, given the settings if its constructor asks for them: as
    `app_config` in the manner of the public project, else as ours.

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


def load_class(
    module: str, name: str, base: type[T], *, source: str | None = None, folder: Path | None = None
) -> type[T]:
    """The class `name` of `module`, a dotted name or a file path (relative to `folder` or cwd).

    `source` is the setting to name in messages.

    Raises:
        ModuleMissing: there is no such module.
        ModuleBroken: the module exists, and running it fails.
        ClassUnusable: it has no such class, or the class is abstract or has another base.
        LoadError: every user of this machine can change the module's file.
    """
    prefix = f"{source}: " if source else ""
    loaded = _load(module, prefix, folder)
    found = getattr(loaded, name, None)
    if found is None:
        raise ClassUnusable(f"{prefix}module '{module}' has no class '{name}'{_has(loaded, base)}")
    if not inspect.isclass(found) or not issubclass(found, base):
        raise ClassUnusable(f"{prefix}'{name}' of module '{module}' is not a {base.__name__}")
    if inspect.isabstract(found):
        raise ClassUnusable(f"{prefix}'{name}' of module '{module}' is abstract")
    return found


def _has(module: ModuleType, base: type) -> str:
    """What could have been meant."""
    names = [
        name
        for name, found in vars(module).items()
        if inspect.isclass(found)
        and issubclass(found, base)
        and found.__module__ == module.__name__
    ]
    return f"; it has {', '.join(names)}" if names else ""


def load_object(
    module: str, name: str, *, source: str | None = None, folder: Path | None = None
) -> object:
    """What `module` calls `name`. Raises the errors of `load_class`."""
    prefix = f"{source}: " if source else ""
    found: object = getattr(_load(module, prefix, folder), name, None)
    if found is None:
        raise ClassUnusable(f"{prefix}module '{module}' has no '{name}'")
    return found


def _arguments(
    found: type[object], settings: Settings
) -> tuple[list[Settings], dict[str, Settings | AppConfig]]:
    """A constructor that asks for the settings, by name or as its first argument, gets them."""
    parameters = inspect.signature(found).parameters
    if "app_config" in parameters:
        return [], {"app_config": app_config(settings)}
    if "settings" in parameters:
        return [], {"settings": settings}
    first = next(iter(parameters.values()), None)
    needed = (
        first is not None
        and first.default is first.empty
        and first.kind in (first.POSITIONAL_ONLY, first.POSITIONAL_OR_KEYWORD)
    )
    return [settings] if needed else [], {}


def _load(module: str, prefix: str, folder: Path | None) -> ModuleType:
    install()
    if module.endswith(".py") or os.sep in module:
        return _load_file((folder or Path.cwd()) / Path(module).expanduser(), prefix)
    return _load_dotted(module, prefix)


def _load_file(path: Path, prefix: str) -> ModuleType:
    path = path.resolve()
    if not path.is_file():
        raise ModuleMissing(f"{prefix}there is no file '{path}'")
    with _lock:
        if path not in _file_modules:
            _refuse_world_writable(path, prefix)
            _open_current_folder(path)
            _file_modules[path] = _run_file(path, prefix)
        return _file_modules[path]


def _open_current_folder(path: Path) -> None:
    """Let a file below the current folder import others from there, such as `agents.helpers`.

    As the last place that is searched: a file there takes the place of no installed module.
    """
    folder = Path.cwd()
    if not path.is_relative_to(folder) or folder.stat().st_mode & stat.S_IWOTH:
        return
    if not {"", str(folder)} & set(sys.path):
        sys.path.append(str(folder))


def _run_file(path: Path, prefix: str) -> ModuleType:
    # Two files of one name are two modules.
    digest = hashlib.sha256(os.fsencode(path)).hexdigest()[:12]
    spec = importlib.util.spec_from_file_location(f"{path.stem}_{digest}", path)
    if spec is None or spec.loader is None:
        raise ModuleMissing(f"{prefix}'{path}' is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[spec.name]
        raise ModuleBroken(f"{prefix}{_failure(str(path), error)}") from error
    return module


def _load_dotted(name: str, prefix: str) -> ModuleType:
    if not all(part.isidentifier() for part in name.split(".")):
        raise ModuleMissing(f"{prefix}'{name}' is not the name of a module")
    try:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.origin is not None and spec.has_location:
            _refuse_world_writable(Path(spec.origin).resolve(), prefix)
        return importlib.import_module(name)
    except LoadError:
        raise
    except (Exception, SystemExit) as error:
        # Another missing module is a fault inside this one.
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing is not None and f"{name}.".startswith(f"{missing}."):
            raise ModuleMissing(f"{prefix}there is no module '{name}'") from None
        raise ModuleBroken(f"{prefix}{_failure(name, error)}") from error


def _failure(module: str, error: BaseException) -> str:
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith((PACKAGE, "<frozen "))
    ]
    line = f" (line {frames[-1].lineno} of {frames[-1].filename})" if frames else ""
    name = error.name if isinstance(error, ImportError) else None
    hint = f"; {import_hint(name)}" if name else ""
    return f"module '{module}' fails with {type(error).__name__}: {error}{line}{hint}"


def _refuse_world_writable(path: Path, prefix: str) -> None:
    if (part := changeable_by_others(path)) is not None:
        raise LoadError(f"{prefix}every user of this machine can change '{part}': chmod o-w it")
