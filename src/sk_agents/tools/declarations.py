"""What a plugin's author says about a method, written onto the function itself.

`kernel_function` leaves the same marks as semantic-kernel's decorator of that name, so that a
method decorated with either one is read in the same way.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar, overload

from sk_agents.engine.models import Effect
from sk_agents.exceptions import ConfigurationError

F = TypeVar("F", bound=Callable[..., Any])

DEFAULT_TIMEOUT = 60.0
MAX_TITLE = 80
_OFFERED = "__kernel_function__"
_NAME = "__kernel_function_name__"
_DESCRIPTION = "__kernel_function_description__"
_DECLARATION = "__tool_declaration__"


@dataclass(frozen=True, slots=True)
class Declaration:
    """`requires_approval` is `None` where the author leaves it to policy; `title` is what people
    read instead of the tool's name."""

    effect: Effect = Effect.AT_MOST_ONCE
    requires_approval: bool | None = None
    timeout: float = DEFAULT_TIMEOUT
    title: str = ""
    preview: Callable[..., Any] | None = None


@overload
def kernel_function(func: F, /) -> F: ...
@overload
def kernel_function(
    func: None = None, name: str | None = None, description: str | None = None
) -> Callable[[F], F]: ...
def kernel_function(
    func: F | None = None, name: str | None = None, description: str | None = None
) -> F | Callable[[F], F]:
    """Offer a method to the model; name and description default to the function's own."""

    def mark(function: F) -> F:
        setattr(function, _OFFERED, True)
        setattr(function, _NAME, name or function.__name__)
        setattr(function, _DESCRIPTION, description or inspect.getdoc(function) or "")
        return function

    return mark if func is None else mark(func)


def tool(
    *,
    effect: str | Effect = Effect.AT_MOST_ONCE,
    requires_approval: bool | None = None,
    timeout: float = DEFAULT_TIMEOUT,
    title: str = "",
    preview: Callable[..., Any] | None = None,
) -> Callable[[F], F]:
    """Say beside `kernel_function` what a second execution would do, and whether to ask first.

    `title` is what people read instead of the tool's name. `preview` is a method of the plugin,
    defined before this one, that takes the same arguments and returns what the call would do: a
    text (a unified diff is shown as such), a `PreviewTable` or a picture as `ToolFile`.

    Raises:
        ConfigurationError: a value that means nothing.
    """
    if effect not in set(Effect):
        raise ConfigurationError(f"effect must be one of {', '.join(Effect)}")
    if requires_approval is not None and not isinstance(requires_approval, bool):
        raise ConfigurationError("requires_approval must be True, False or None")
    if isinstance(timeout, bool) or not (math.isfinite(timeout) and timeout > 0):
        raise ConfigurationError("timeout must be a positive number of seconds")
    if not isinstance(title, str) or len(title) > MAX_TITLE:
        raise ConfigurationError(f"title must be a text of at most {MAX_TITLE} characters")
    if preview is not None and not callable(preview):
        raise ConfigurationError("preview must be a method")
    declaration = Declaration(
        Effect(effect), requires_approval, float(timeout), title.strip(), preview
    )

    def mark(function: F) -> F:
        setattr(function, _DECLARATION, declaration)
        return function

    return mark


def is_offered(function: object) -> bool:
    return getattr(function, _OFFERED, False) is True


def has_declaration(function: object) -> bool:
    return hasattr(function, _DECLARATION)


def declaration_of(function: object) -> Declaration:
    found = getattr(function, _DECLARATION, None)
    return found if isinstance(found, Declaration) else Declaration()


def offered_name(function: object) -> str:
    return str(getattr(function, _NAME, None) or getattr(function, "__name__", ""))


def offered_description(function: object) -> str:
    return inspect.cleandoc(str(getattr(function, _DESCRIPTION, None) or ""))
