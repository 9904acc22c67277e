"""Models from a factory class of the operator's own.

The class is the public Teal Agents project's `ChatCompletionFactory`, known by its methods. What it
makes is a chat client of semantic-kernel, or anything with our own `stream(prompt)`; the latter
needs no further library. A name it refuses with `ValueError` is not its own: the usual table of
providers then says whose it is.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from importlib.machinery import PathFinder
from typing import Any

from pydantic import ValidationError

from sk_agents.config.class_loader import load_class
from sk_agents.config.public_names import AppConfig, install
from sk_agents.config.settings import Settings
from sk_agents.engine.ports import Model
from sk_agents.engine.turns import ModelPiece, Prompt
from sk_agents.exceptions import ClassUnusable, ConfigurationError, ModelRefused, ModuleBroken
from sk_agents.llm.failures import RetryPolicy, Timing
from sk_agents.llm.kernel_chat import LIBRARY, STREAMING, WHOLE, KernelChat

logger = logging.getLogger(__name__)

VARIABLES = "TA_CUSTOM_CHAT_COMPLETION_FACTORY_MODULE, TA_CUSTOM_CHAT_COMPLETION_FACTORY_CLASS_NAME"
MAKES = "get_chat_completion_for_model_name"
NEEDED = "it needs semantic-kernel, which is not installed: pip install semantic-kernel"


class CustomModels:
    """The models of one factory."""

    def __init__(
        self, factory: Any, retry: RetryPolicy | None = None, timing: Timing | None = None
    ) -> None:
        self._factory = factory
        self._retry, self._timing = retry, timing

    def model(self, name: str, service_id: str) -> Model | None:
        """The factory's model of that name; `None` if it knows none. Async ones are awaited later.

        Raises:
            ClassUnusable: the factory fails, or what it makes is no model.
        """
        make = getattr(self._factory, MAKES)
        if inspect.iscoroutinefunction(make):
            return _LateModel(lambda: make(name, service_id), partial(self._fitted, name))
        try:
            made = make(name, service_id)
        except ValidationError as error:
            raise _unusable(name, error) from error
        except ValueError:
            logger.warning("the custom factory does not know the model %s", name)
            return None
        except (Exception, SystemExit) as error:
            raise _unusable(name, error) from error
        return self._fitted(name, made)

    def _fitted(self, name: str, made: Any) -> Model:
        if hasattr(made, STREAMING) or hasattr(made, WHOLE):
            if PathFinder.find_spec(LIBRARY) is None:
                raise ClassUnusable(f"{VARIABLES}: '{name}': {NEEDED}")
            structured = self._is_structured(name)
            return KernelChat(
                name, made, structured=structured, retry=self._retry, timing=self._timing
            )
        if not callable(getattr(made, "stream", None)):
            raise ClassUnusable(
                f"{VARIABLES}: what it makes for '{name}' has neither {STREAMING} nor stream"
            )
        model: Model = made
        return model

    def _is_structured(self, name: str) -> bool:
        says = getattr(self._factory, "model_supports_structured_output", None)
        try:
            return callable(says) and says(name) is True
        except Exception as error:
            # The factory is foreign code; without an answer no schema is sent.
            logger.warning("the custom factory failed with %s", type(error).__name__)
            return False


class _LateModel:
    """A model that an async factory makes, once, when it is first needed."""

    def __init__(self, make: Callable[[], Awaitable[Any]], fit: Callable[[Any], Model]) -> None:
        self._make, self._fit = make, fit
        self._model: Model | None = None
        self._lock = asyncio.Lock()

    async def stream(self, prompt: Prompt) -> AsyncGenerator[Sequence[ModelPiece]]:
        async with self._lock:
            if self._model is None:
                try:
                    self._model = self._fit(await self._make())
                except (ValueError, ConfigurationError) as error:
                    raise ModelRefused("the custom factory makes no such model") from error
        async with aclosing(self._model.stream(prompt)) as steps:
            async for pieces in steps:
                yield pieces


def custom_models(
    settings: Settings, environ: Mapping[str, str], retry: RetryPolicy | None = None
) -> CustomModels | None:
    """The models of the factory that the settings name, if they name one.

    Raises:
        ConfigurationError: it cannot be loaded or built, or a variable it requires is not set.
    """
    module = settings.custom_chat_completion_factory_module
    name = settings.custom_chat_completion_factory_class_name
    if module is None or name is None:
        return None
    install()
    try:
        found = load_class(module, name, object, source=VARIABLES)
    except ModuleBroken as error:
        cause = error.__cause__
        if isinstance(cause, ImportError) and (cause.name or "").startswith(LIBRARY):
            raise ModuleBroken(f"{VARIABLES}: '{module}': {NEEDED}") from cause
        raise
    if not callable(getattr(found, MAKES, None)):
        raise ClassUnusable(f"{VARIABLES}: '{name}' has no method {MAKES}")
    try:
        return CustomModels(_built(found, environ), retry)
    except ConfigurationError:
        raise
    except (Exception, SystemExit) as error:
        raise ClassUnusable(
            f"{VARIABLES}: building '{name}' fails with {type(error).__name__}: {error}"
        ) from error


def _built(found: Any, environ: Mapping[str, str]) -> Any:
    configs = getattr(found, "get_configs", None)
    app_config = AppConfig(environ, (configs() if callable(configs) else None) or ())
    missing = app_config.missing()
    if missing:
        raise ConfigurationError(f"{VARIABLES}: {missing[0]} is not set, and it is required")
    parameters = inspect.signature(found).parameters
    if "app_config" in parameters:
        return found(app_config=app_config)
    if any(entry.default is entry.empty for entry in parameters.values()):
        return found(app_config)
    return found()


def _unusable(name: str, error: BaseException) -> ClassUnusable:
    return ClassUnusable(
        f"{VARIABLES}: making the model '{name}' fails with {type(error).__name__}: {error}"
    )
