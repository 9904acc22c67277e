"""From the name of a type in an agent file to the class: our own, or one of the operator's."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from sk_agents import ska_types
from sk_agents.config.agent_file import AgentFile
from sk_agents.config.class_loader import load_class
from sk_agents.config.settings import Settings
from sk_agents.exceptions import ConfigurationError

USUAL_FILE = "custom_types.py"
BUILT_IN: dict[str, type[BaseModel]] = {
    kind.__name__: kind
    for kind in (
        ska_types.BaseInput,
        ska_types.BaseInputWithUserContext,
        ska_types.BaseMultiModalInput,
        ska_types.BaseMultiModalInputWithUserContext,
        ska_types.BaseEmbeddedImage,
    )
}


def load_type(file: AgentFile, field: str, settings: Settings) -> type[BaseModel]:
    """The type that this field of the file names.

    Raises:
        ConfigurationError: it names none, or there is no such class; says the file and the field.
    """
    name: Any = file.document.get(field)
    if name is None:
        raise ConfigurationError(f"{file.path}: {field} is missing")
    if not isinstance(name, str):
        raise ConfigurationError(f"{file.path}: {field} must be the name of a type")
    if name in BUILT_IN:
        return BUILT_IN[name]
    beside = file.path.parent / USUAL_FILE
    source = f"{file.path}: {field}"
    if settings.types_module is not None:
        source = f"{source}: TA_TYPES_MODULE"
        return load_class(settings.types_module, name, BaseModel, source=source)
    if beside.is_file():
        return load_class(str(beside), name, BaseModel, source=source)
    known = ", ".join(BUILT_IN)
    raise ConfigurationError(
        f"{source}: '{name}' is none of {known}, and there is neither TA_TYPES_MODULE nor a file "
        f"{USUAL_FILE} beside it"
    )
