"""From the name of a class or another object in the configuration to the thing itself.

Whoever names a module here runs code in this process: that is the operator, so a file that
anybody on the machine may change is refused.
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
from pathlib import Path
from types import ModuleType
from typing import TypeVar

from sk_agents.config.public_names import install
from sk_agents.exceptions import ClassUnusable, LoadError, ModuleBroken, ModuleMissing

T = TypeVar("T")

_file_modules: dict[Path, ModuleType] = {}
# Re-entrant: a module may load another one while it is being loaded.
_lock = threading.RLock()


def load_class(
    module: str,
    name: str,
    base: type[T],
    *,
    source: str | None = None,
    folder: Path | None = None,
) -> type[T]:
    """The class `name` of `module`, a dotted name or a file path (relative to `folder` or cwd).

    `source` is the setting to name in messages.

    Raises:
        ModuleMissing: there is no such module.
        ModuleBroken: the module exists, and running it fails.
        ClassUnusable: it has no such class, or the class is abstract or has another base.
        LoadError: anybody on this machine may change the module's file.
    """
    prefix = f"{source}: " if source else ""
    return _usable_class(_load(module, prefix, folder), module, name, base, prefix)


def load_object(
    module: str, name: str, *, source: str | None = None, folder: Path | None = None
) -> object:
    """What `module` calls `name`; the rest as in `load_class`.

    Raises:
        ModuleMissing: there is no such module.
        ModuleBroken: the module exists, and running it fails.
        ClassUnusable: it has nothing of that name.
        LoadError: anybody on this machine may change the module's file.
    """
    prefix = f"{source}: " if source else ""
    found: object = getattr(_load(module, prefix, folder), name, None)
    if found is None:
        raise ClassUnusable(f"{prefix}module '{module}' has no '{name}'")
    return found


def is_file_path(module: str) -> bool:
    return module.endswith(".py") or os.sep in module


def _load(module: str, prefix: str, folder: Path | None) -> ModuleType:
    install()
    if is_file_path(module):
        return _load_file((folder or Path.cwd()) / Path(module).expanduser(), prefix)
    return _load_dotted(module, prefix)


def _usable_class(
    loaded: ModuleType, module: str, name: str, base: type[T], prefix: str
) -> type[T]:
    found = getattr(loaded, name, None)
    if found is None:
        raise ClassUnusable(f"{prefix}module '{module}' has no class '{name}'")
    if not inspect.isclass(found) or not issubclass(found, base):
        raise ClassUnusable(f"{prefix}'{name}' of module '{module}' is not a {base.__name__}")
    if inspect.isabstract(found):
        raise ClassUnusable(f"{prefix}'{name}' of module '{module}' is abstract")
    return found


def _load_file(path: Path, prefix: str) -> ModuleType:
    path = path.resolve()
    if not path.is_file():
        raise ModuleMissing(f"{prefix}there is no file '{path}'")
    with _lock:
        if path not in _file_modules:
            _refuse_world_writable(path, prefix)
            _file_modules[path] = _run_file(path, prefix)
        return _file_modules[path]


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
        if isinstance(error, ModuleNotFoundError) and _is_about(error.name, name):
            raise ModuleMissing(f"{prefix}there is no module '{name}'") from None
        raise ModuleBroken(f"{prefix}{_failure(name, error)}") from error


def _is_about(missing: str | None, name: str) -> bool:
    return missing is not None and f"{name}.".startswith(f"{missing}.")


def _failure(module: str, error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    line = f" (line {frames[-1].lineno} of {frames[-1].filename})" if frames else ""
    return f"module '{module}' fails with {type(error).__name__}: {error}{line}"


def _refuse_world_writable(path: Path, prefix: str) -> None:
    for part in (path, *path.parents):
        mode = part.stat().st_mode
        sticky_folder = part != path and mode & stat.S_ISVTX
        if mode & stat.S_IWOTH and not sticky_folder:
            raise LoadError(f"{prefix}'{part}' can be changed by everybody on this machine")
