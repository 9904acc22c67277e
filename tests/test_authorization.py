"""Authorizers: ours, the operator's own, and the factory that builds them."""

import inspect
import threading
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import pytest

from sk_agents.authorization.authorizer_factory import AuthorizerFactory
from sk_agents.authorization.dummy_authorizer import DummyAuthorizer
from sk_agents.authorization.request_authorizer import Principal, RequestAuthorizer
from sk_agents.config.settings import ALIASED_FIELDS, Settings, alias_variable, variable
from sk_agents.exceptions import (
    ClassUnusable,
    ConfigurationError,
    ModuleBroken,
    ModuleMissing,
    Unauthenticated,
)
from sk_agents.testing.header_authorizer import HeaderAuthorizer
from tests.patience import seconds
from tests.requirements import requirement

OWN = """
from sk_agents.authorization.request_authorizer import Principal, RequestAuthorizer

class Plain(RequestAuthorizer):
    def authorize_request(self, auth_header):
        return auth_header.upper()

class Configured(Plain):
    def __init__(self, app_config):
        self.port = app_config.port

class ByKeyword(Plain):
    def __init__(self, *, settings=None):
        self.port = settings.port

class Positional(Plain):
    def __init__(self, config, /):
        self.port = config.port

class Optional(Plain):
    def __init__(self, retries=3):
        self.port = retries

class Demanding(Plain):
    def __init__(self, one, two):
        pass

class Failing(Plain):
    def __init__(self):
        raise RuntimeError("no key")
"""


@pytest.fixture(autouse=True)
def fresh_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    for field in ALIASED_FIELDS:
        monkeypatch.delenv(variable(field), raising=False)
        monkeypatch.delenv(alias_variable(field), raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text(OWN)
    return tmp_path


@pytest.fixture
def fresh() -> type[AuthorizerFactory]:
    """As the factory in a process that has not asked for it yet."""

    class Fresh(AuthorizerFactory):
        pass

    return Fresh


def factory(name: str, module: str = "own.py") -> AuthorizerFactory:
    return AuthorizerFactory(Settings(authorizer_module=module, authorizer_class=name, port=4711))


async def ask(authorizer: RequestAuthorizer, header: str) -> str | Principal:
    answer = authorizer.authorize_request(header)
    return await answer if isinstance(answer, Awaitable) else answer


@requirement("S001-authorizer-abstract")
def test_authorizer_without_the_method_cannot_be_built() -> None:
    class Empty(RequestAuthorizer):
        pass

    with pytest.raises(TypeError, match="authorize_request"):
        Empty()  # type: ignore[abstract]  # that is what is tested


@requirement("S001-authorizer-dummy")
@pytest.mark.parametrize("header", ["", "Bearer abc", "nonsense"])
async def test_dummy_answers_dummyuser_for_every_header(header: str) -> None:
    assert DummyAuthorizer().authorize_request(header) == "dummyuser"


@requirement("S001-authorizer-user-id")
@pytest.mark.parametrize("header", ["alice", "Bearer alice", "bearer  alice ", " alice"])
async def test_header_authorizer_takes_the_header_for_the_user(header: str) -> None:
    assert await HeaderAuthorizer().authorize_request(header) == "alice"


@pytest.mark.parametrize("header", ["", " ", "Bearer", "Bearer "])
async def test_header_authorizer_needs_a_user(header: str) -> None:
    with pytest.raises(Unauthenticated):
        await HeaderAuthorizer().authorize_request(header)


@requirement("S000-auth-mock", "S001-env-default-authorizer")
def test_without_configuration_the_dummy_is_in_use(fresh: type[AuthorizerFactory]) -> None:
    assert type(fresh.get_instance().get_authorizer()) is DummyAuthorizer


@requirement("S001-authorizer-factory", "S002-env-authorizer", "S001-extensibility-authorizer")
@pytest.mark.parametrize("prefix", ["TA", "TEAL"])
async def test_factory_builds_the_class_that_the_environment_names(
    monkeypatch: pytest.MonkeyPatch, fresh: type[AuthorizerFactory], prefix: str
) -> None:
    monkeypatch.setenv(f"{prefix}_AUTHORIZER_MODULE", "own.py")
    monkeypatch.setenv(f"{prefix}_AUTHORIZER_CLASS", "Plain")
    authorizer = fresh.get_instance().get_authorizer()
    assert await ask(authorizer, "alice") == "ALICE"


@pytest.mark.parametrize("name", ["Configured", "ByKeyword", "Positional"])
def test_class_that_asks_for_the_settings_gets_them(name: str) -> None:
    assert inspect.getattr_static(factory(name).get_authorizer(), "port") == 4711


def test_class_with_arguments_of_its_own_keeps_their_defaults() -> None:
    assert inspect.getattr_static(factory("Optional").get_authorizer(), "port") == 3


@requirement("S001-authorizer-singleton")
def test_threads_asking_at_once_get_the_same_instances(fresh: type[AuthorizerFactory]) -> None:
    barrier = threading.Barrier(16)
    found: list[tuple[AuthorizerFactory, RequestAuthorizer]] = []

    def get() -> None:
        barrier.wait(timeout=seconds(5))
        instance = fresh.get_instance()
        found.append((instance, instance.get_authorizer()))

    threads = [threading.Thread(target=get) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=seconds(5))
    assert len(found) == 16
    assert len({(id(instance), id(authorizer)) for instance, authorizer in found}) == 1


@requirement("S001-performance-lazy")
def test_class_is_loaded_at_the_first_use(fresh_environment: Path) -> None:
    lazy = factory("Plain", "later.py")
    (fresh_environment / "later.py").write_text(OWN)
    assert lazy.get_authorizer() is lazy.get_authorizer()


@requirement("S001-authorizer-import-failure")
def test_missing_module_and_broken_module_are_two_errors(fresh_environment: Path) -> None:
    (fresh_environment / "broken.py").write_text("import nothing_of_this_name")
    with pytest.raises(ModuleMissing, match="TA_AUTHORIZER_MODULE"):
        factory("Plain", "absent.py").get_authorizer()
    with pytest.raises(ModuleBroken, match="TA_AUTHORIZER_MODULE"):
        factory("Plain", "broken.py").get_authorizer()


@requirement("S001-authorizer-misconfiguration")
@pytest.mark.parametrize("name", ["Absent", "OWN", "Demanding", "Failing"])
def test_class_that_cannot_be_used_is_refused_naming_the_variable(name: str) -> None:
    with pytest.raises(ClassUnusable, match="TA_AUTHORIZER_CLASS"):
        factory(name).get_authorizer()


@requirement("S001-authorizer-misconfiguration")
def test_class_of_another_base_is_refused_naming_the_variable() -> None:
    with pytest.raises(ClassUnusable, match="TA_AUTHORIZER_CLASS.*RequestAuthorizer"):
        factory("OrderedDict", "collections").get_authorizer()


@pytest.mark.parametrize(
    ("settings", "meant"),
    [
        ({"entra_tenant_id": "t", "entra_client_id": "c"}, "entra"),
        ({"oidc_issuer": "https://id.example.com"}, "oidc"),
        ({"keys_file": Path("keys.json")}, "keys"),
        ({"roles": "{}"}, "entra, oidc or keys"),
    ],
)
def test_settings_of_an_authorizer_that_none_was_chosen_for_stop_the_start(
    settings: dict[str, Any], meant: str
) -> None:
    with pytest.raises(ConfigurationError, match=f"every caller .* TA_AUTHORIZER={meant}"):
        AuthorizerFactory(Settings(**settings)).get_authorizer()
    chosen = Settings(**settings, authorizer="dummy")
    assert type(AuthorizerFactory(chosen).get_authorizer()) is DummyAuthorizer
