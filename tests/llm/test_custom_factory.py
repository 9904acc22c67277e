"""Factories of the operator's own: files, classes, names, and models that need no library."""

import asyncio
import sys
import textwrap
from pathlib import Path

import pytest

from sk_agents.config.public_names import AppConfig, Config
from sk_agents.config.settings import Settings
from sk_agents.engine.ports import Model
from sk_agents.exceptions import ConfigurationError, ModelRefused
from sk_agents.llm.custom_factory import CustomModels, custom_models
from tests.llm.loopback import text_of

OWN = """
from sk_agents.engine.turns import TextDelta, TurnFinished


class Parrot:
    def __init__(self, name, service_id):
        self.said = f"{name} for {service_id}"

    async def stream(self, prompt):
        yield [TextDelta(f"{self.said}: {prompt.messages[-1].content}")]
        yield [TurnFinished()]


class Factory:
    def get_chat_completion_for_model_name(self, model_name, service_id):
        if model_name != "parrot":
            raise ValueError("not mine")
        return Parrot(model_name, service_id)


class Async(Factory):
    made = 0

    async def get_chat_completion_for_model_name(self, model_name, service_id):
        self.made += 1
        super().get_chat_completion_for_model_name(model_name, service_id)
        return Parrot(f"parrot {self.made}", service_id)


class WithConfig(Factory):
    def __init__(self, app_config):
        self.app_config = app_config

    @staticmethod
    def get_configs():
        return [VOICE]

    def get_chat_completion_for_model_name(self, model_name, service_id):
        return Parrot(self.app_config.get("PARROT_VOICE"), self.app_config.get(TA_API_KEY.env_name))


class Positional(WithConfig):
    def __init__(self, configuration):
        super().__init__(configuration)


class Required(WithConfig):
    @staticmethod
    def get_configs():
        return [UtilConfig(env_name="PARROT_CAGE", is_required=True, default_value=None)]


class Failing(Factory):
    def __init__(self):
        raise RuntimeError("no cage")


class Breaking(Factory):
    def get_chat_completion_for_model_name(self, model_name, service_id):
        raise RuntimeError("flew away")


class Invalid(Factory):
    def get_chat_completion_for_model_name(self, model_name, service_id):
        return UtilConfig(env_name=3)


class Nonsense(Factory):
    def get_chat_completion_for_model_name(self, model_name, service_id):
        return "polly"


class NoFactory:
    pass


class Kernel(Factory):
    def get_chat_completion_for_model_name(self, model_name, service_id):
        class Client:
            async def get_chat_message_contents(self, chat_history, settings):
                return []

        return Client()


from ska_utils import AppConfig, Config as UtilConfig  # noqa: E402

from sk_agents.configs import TA_API_KEY  # noqa: E402

VOICE = UtilConfig(env_name="PARROT_VOICE", is_required=False, default_value="croak")
"""


def factory(folder: Path, name: str = "Factory", source: str = OWN, **environ: str) -> CustomModels:
    path = folder / "my_models.py"
    path.write_text(textwrap.dedent(source))
    found = custom_models(named(str(path), name), environ)
    assert found is not None
    return found


def named(module: str, name: str) -> Settings:
    return Settings(
        custom_chat_completion_factory_module=module,
        custom_chat_completion_factory_class_name=name,
    )


def model_of(models: CustomModels, name: str = "parrot") -> Model:
    found = models.model(name, "agent")
    assert found is not None
    return found


async def test_model_with_a_stream_of_its_own_works_without_any_library(tmp_path: Path) -> None:
    assert await text_of(model_of(factory(tmp_path))) == "parrot for agent: hello"
    assert "semantic_kernel.connectors" not in sys.modules


def test_name_that_the_factory_does_not_know_is_left_to_the_usual_table(tmp_path: Path) -> None:
    assert factory(tmp_path).model("gpt-4o", "agent") is None


async def test_async_factory_is_asked_once_when_the_model_is_first_needed(tmp_path: Path) -> None:
    models = factory(tmp_path, "Async")
    model = model_of(models)
    texts = await asyncio.gather(text_of(model), text_of(model))
    assert set(texts) == {"parrot 1 for agent: hello"}


async def test_async_factory_that_does_not_know_the_name_fails_the_call(tmp_path: Path) -> None:
    with pytest.raises(ModelRefused, match="makes no such model"):
        await text_of(model_of(factory(tmp_path, "Async"), "owl"))


@pytest.mark.parametrize("name", ["WithConfig", "Positional"])
async def test_factory_gets_its_configuration_with_its_own_defaults(
    tmp_path: Path, name: str
) -> None:
    models = factory(tmp_path, name, TA_API_KEY="k1")
    assert await text_of(model_of(models)) == "croak for k1: hello"
    louder = factory(tmp_path, name, PARROT_VOICE="squawk")
    assert await text_of(model_of(louder)) == "squawk for None: hello"


async def test_factory_is_found_by_a_dotted_name_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "dotted_parrots.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    models = custom_models(named("dotted_parrots", "Factory"), {})
    assert models is not None
    assert await text_of(model_of(models)) == "parrot for agent: hello"


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("Failing", "building 'Failing' fails with RuntimeError: no cage"),
        ("NoFactory", "'NoFactory' has no method get_chat_completion_for_model_name"),
        ("Gone", "has no class 'Gone'"),
        ("Required", "PARROT_CAGE is not set, and it is required"),
    ],
)
def test_factory_that_cannot_be_used_stops_the_start(
    tmp_path: Path, name: str, reason: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        factory(tmp_path, name)
    assert str(caught.value).startswith("TA_CUSTOM_CHAT_COMPLETION_FACTORY_MODULE, ")
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("Breaking", "making the model 'parrot' fails with RuntimeError: flew away"),
        ("Invalid", "making the model 'parrot' fails with ValidationError"),
        ("Nonsense", "has neither get_streaming_chat_message_contents nor stream"),
        ("Kernel", "needs semantic-kernel, which is not installed"),
    ],
)
def test_factory_that_makes_no_model_stops_the_start(
    tmp_path: Path, name: str, reason: str
) -> None:
    models = factory(tmp_path, name)
    with pytest.raises(ConfigurationError) as caught:
        models.model("parrot", "agent")
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    "line",
    [
        "from semantic_kernel.connectors.ai.open_ai import AzureChatCompletion",
        "import semantic_kernel.connectors.ai.anthropic",
    ],
)
def test_file_that_needs_the_absent_library_stops_the_start_and_names_it(
    tmp_path: Path, line: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        factory(tmp_path, source=f"{line}\n\nclass Factory: ...\n")
    assert str(caught.value).endswith(
        "it needs semantic-kernel, which is not installed: pip install semantic-kernel"
    )


def test_other_faults_of_the_file_are_told_as_they_are(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="No module named 'parrot_sdk'"):
        factory(tmp_path, source="import parrot_sdk")


def test_without_a_factory_there_is_none() -> None:
    assert custom_models(Settings(), {}) is None


def test_configuration_is_a_mapping_of_all_that_is_set_or_declared() -> None:
    declared = dict(AppConfig({}))  # by classes of other tests, for the whole process
    config = AppConfig({"A": "1"}, [Config(env_name="B", default_value="2"), Config(env_name="C")])
    assert dict(config) == {**declared, "A": "1", "B": "2", "C": None}
    assert len(config) == len(declared) + 3
    assert config.get("D") is None
