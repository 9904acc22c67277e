"""Settings: where values come from, what is refused, and that each is documented."""

import logging
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import SecretStr, ValidationError

from sk_agents.config.settings import (
    ALIASED_FIELDS,
    Settings,
    alias_variable,
    load_settings,
    variable,
)
from sk_agents.config.store_url import default_store_url, store_url, without_secrets
from sk_agents.exceptions import ConfigurationError
from tests.requirements import requirement

DOCUMENT = Path(__file__).parent.parent / "docs" / "settings.md"
IN_MEMORY = {
    "TA_PERSISTENCE_MODULE": "sk_agents.persistence.in_memory_persistence_manager",
    "TA_PERSISTENCE_CLASS": "InMemoryPersistenceManager",
}


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """An empty directory, and an environment without settings."""
    for name in map(str.upper, Settings.model_fields):
        monkeypatch.delenv(f"TA_{name}", raising=False)
        monkeypatch.delenv(f"TEAL_{name}", raising=False)
    monkeypatch.chdir(tmp_path)
    yield tmp_path


def set_all(monkeypatch: pytest.MonkeyPatch, values: dict[str, str]) -> None:
    for name, value in values.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize(
    ("text", "meant"),
    [("true", "on"), ("ON", "on"), ("yes", "on"), ("False", "off"), ("0", "off"), ("on-1", "on-1")],
)
def test_titles_are_switched_as_every_flag_is(
    monkeypatch: pytest.MonkeyPatch, text: str, meant: str
) -> None:
    monkeypatch.setenv("TA_TITLES", text)
    assert load_settings().titles == meant


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(ValidationError):
        load_settings().port = 1  # type: ignore[misc]  # that is what is tested


def test_environment_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    set_all(monkeypatch, {"TA_PORT": "9000", "TA_HIDE_EXISTENCE": "True", "TA_LOG_LEVEL": "DEBUG"})
    settings = load_settings()
    assert (settings.port, settings.hide_existence, settings.log_level) == (9000, True, "debug")


def test_arguments_win_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TA_PORT", "9000")
    assert load_settings(port=1234, host=None).port == 1234


def test_empty_value_counts_as_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    set_all(monkeypatch, {"TA_PORT": "", "TA_STORE": ""})
    settings = load_settings()
    assert (settings.port, settings.store) == (8000, None)


def test_real_environment_wins_over_dotenv_and_here_over_beside(
    monkeypatch: pytest.MonkeyPatch, elsewhere: Path
) -> None:
    folder = elsewhere / "agents"
    folder.mkdir()
    (folder / ".env").write_text("TA_PORT=1\nTA_HOST=::1\nTA_LOG_LEVEL=error\n")
    (elsewhere / ".env").write_text("TA_PORT=2\nTA_HOST=127.0.0.2\n")
    monkeypatch.setenv("TA_PORT", "3")
    settings = load_settings([folder / "config.yaml"])
    assert (settings.port, settings.host, settings.log_level) == (3, "127.0.0.2", "error")


def test_dotenv_beside_the_file_named_by_the_environment_is_read(
    monkeypatch: pytest.MonkeyPatch, elsewhere: Path
) -> None:
    (elsewhere / "agents").mkdir()
    (elsewhere / "agents" / ".env").write_text("TA_PORT=7\n")
    monkeypatch.setenv("TA_SERVICE_CONFIG", "agents/config.yaml")
    assert load_settings().port == 7


@requirement("S001-env-teal-names")
@pytest.mark.parametrize("field", ALIASED_FIELDS)
def test_teal_name_is_read_like_the_ta_name(monkeypatch: pytest.MonkeyPatch, field: str) -> None:
    for name in ALIASED_FIELDS:
        monkeypatch.setenv(alias_variable(name), f"value_of_{name}")
    assert getattr(load_settings(), field) == f"value_of_{field}"


@requirement("S001-env-both-names")
def test_ta_name_wins_and_one_warning_tells_of_the_difference(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    set_all(
        monkeypatch,
        {
            "TA_AUTHORIZER_MODULE": "ours",
            "TEAL_AUTHORIZER_MODULE": "theirs",
            "TA_AUTHORIZER_CLASS": "Same",
            "TEAL_AUTHORIZER_CLASS": "Same",
        },
    )
    with caplog.at_level(logging.WARNING):
        assert load_settings().authorizer_module == "ours"
    assert len(caplog.records) == 1
    assert "TEAL_AUTHORIZER_MODULE" in caplog.text


def test_ta_name_in_dotenv_wins_over_a_real_teal_name(
    monkeypatch: pytest.MonkeyPatch, elsewhere: Path
) -> None:
    (elsewhere / ".env").write_text("TA_AUTHORIZER_MODULE=ours\nTA_AUTHORIZER_CLASS=Ours\n")
    set_all(monkeypatch, {"TEAL_AUTHORIZER_MODULE": "a", "TEAL_AUTHORIZER_CLASS": "B"})
    assert load_settings().authorizer_module == "ours"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TA_PORT", "70000"),
        ("TA_PORT", "eighty"),
        ("TA_HIDE_EXISTENCE", "perhaps"),
        ("TA_LOG_LEVEL", "loud"),
        ("TA_AUTHORIZER_TIMEOUT", "-5"),
    ],
)
def test_bad_value_is_refused_naming_the_variable_but_not_the_value(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(ConfigurationError, match=f"^{name}: ") as caught:
        load_settings()
    assert value not in str(caught.value)


@requirement("S001-authorizer-misconfiguration")
@pytest.mark.parametrize("prefix", ["TA", "TEAL"])
def test_half_a_class_name_is_refused_naming_the_missing_half(
    monkeypatch: pytest.MonkeyPatch, prefix: str
) -> None:
    monkeypatch.setenv(f"{prefix}_AUTHORIZER_MODULE", "some.module")
    with pytest.raises(ConfigurationError, match="TA_AUTHORIZER_CLASS is not set"):
        load_settings()


def test_dotenv_that_is_not_text_is_refused_naming_the_file(elsewhere: Path) -> None:
    (elsewhere / ".env").write_bytes(b"TA_PORT=\xff\xfe\n")
    with pytest.raises(ConfigurationError, match=r"\.env"):
        load_settings()


@pytest.mark.parametrize(
    "line",
    ["TA_AUTHORIZER: keys", "TA_AUTHORIZER keys", "set TA_AUTHORIZER=keys", "TA_AUTHORIZER='keys"],
)
def test_line_of_dotenv_that_sets_nothing_stops_the_start(elsewhere: Path, line: str) -> None:
    (elsewhere / ".env").write_text(f"# who may call\n\n{line}\nTA_PORT=81\n")
    with pytest.raises(ConfigurationError, match=r"\.env, line 3: sets nothing; write NAME=value$"):
        load_settings()


def test_lines_of_dotenv_that_are_no_settings_of_ours_are_passed_over(elsewhere: Path) -> None:
    lines = "# TA_AUTHORIZER: keys\nexport TA_PORT=81 # TA_PORT: 80\nMETA_DATA: here\n"
    (elsewhere / ".env").write_text(lines)
    assert load_settings().port == 81


def test_secrets_are_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [
        variable(name)
        for name, field in Settings.model_fields.items()
        if field.annotation == SecretStr | None
    ]
    assert "TA_API_KEY" in names
    set_all(monkeypatch, dict.fromkeys(names, "canary"))
    settings = load_settings()
    assert "canary" not in f"{settings!r} {settings} {settings.model_dump_json()}"


def test_default_store_does_not_depend_on_the_current_directory(
    monkeypatch: pytest.MonkeyPatch, elsewhere: Path
) -> None:
    before = store_url(load_settings())
    (elsewhere / "other").mkdir()
    monkeypatch.chdir(elsewhere / "other")
    assert store_url(load_settings()) == before


@pytest.mark.parametrize(
    ("environ", "path"),
    [
        ({"XDG_DATA_HOME": "/data", "HOME": "/h"}, "/data/teal-agents/teal.sqlite"),
        (
            {"XDG_DATA_HOME": "relative", "HOME": "/h"},
            "/h/.local/share/teal-agents/teal.sqlite",
        ),
        ({"HOME": "/h"}, "/h/.local/share/teal-agents/teal.sqlite"),
    ],
)
def test_default_store_lies_in_the_users_data_folder(environ: dict[str, str], path: str) -> None:
    assert default_store_url(environ) == f"sqlite://{path}"


def test_store_url_is_used_as_given() -> None:
    assert store_url(Settings(store="file:///somewhere")) == "file:///somewhere"


@requirement("S001-env-in-memory")
@pytest.mark.parametrize("module", ["dotted", "file"])
def test_naming_our_in_memory_class_means_the_memory_store(
    monkeypatch: pytest.MonkeyPatch, module: str
) -> None:
    set_all(monkeypatch, IN_MEMORY)
    if module == "file":
        path = "src/sk_agents/persistence/in_memory_persistence_manager.py"
        monkeypatch.setenv("TA_PERSISTENCE_MODULE", path)
    assert store_url(load_settings()) == "memory:"


@requirement("S001-env-conflict")
def test_store_and_class_that_disagree_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    set_all(monkeypatch, {**IN_MEMORY, "TA_STORE": "sqlite:///x.sqlite"})
    with pytest.raises(ConfigurationError, match="TA_STORE and TA_PERSISTENCE_CLASS"):
        store_url(load_settings())


def test_store_and_class_that_agree_are_fine(monkeypatch: pytest.MonkeyPatch) -> None:
    set_all(monkeypatch, {**IN_MEMORY, "TA_STORE": "memory:"})
    assert store_url(load_settings()) == "memory:"


@requirement("S002-env-persistence")
def test_a_class_of_the_operators_own_leaves_the_store_as_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own = {"TA_PERSISTENCE_MODULE": "mine.py", "TA_PERSISTENCE_CLASS": "Mine"}
    set_all(monkeypatch, {**own, "TA_STORE": "memory:"})
    settings = load_settings()
    assert (settings.persistence_module, settings.persistence_class) == ("mine.py", "Mine")
    assert store_url(settings) == "memory:"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://me:secret@db:5432/teal?password=secret", "postgresql://db:5432/teal"),
        ("redis://:secret@cache", "redis://cache"),
        ("sqlite:///some/where.sqlite?key=secret", "sqlite:///some/where.sqlite"),
        ("memory:", "memory:"),
    ],
)
def test_shown_store_holds_no_secret(url: str, shown: str) -> None:
    assert without_secrets(url) == shown


def test_every_setting_is_documented_with_its_own_words() -> None:
    rows = re.findall(r"^\| `(TA_\w+)` \| (.*?) \| (.*) \|$", DOCUMENT.read_text(), re.MULTILINE)
    documented = {name: (default, text) for name, default, text in rows}
    expected = {
        variable(name): (_shown_default(field.default), field.description)
        for name, field in Settings.model_fields.items()
    }
    assert documented == expected
    assert len(rows) == len(documented)


def _shown_default(default: object) -> str:
    if default is None:
        return "-"
    if isinstance(default, tuple):
        default = ",".join(default)
    return f"`{str(default).lower() if isinstance(default, bool) else default}`"


def test_two_ways_to_name_an_authorizer_stop_the_start(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TA_AUTHORIZER", "keys")
    monkeypatch.setenv("TA_AUTHORIZER_MODULE", "own.py")
    monkeypatch.setenv("TA_AUTHORIZER_CLASS", "Own")
    with pytest.raises(ConfigurationError, match="choose one"):
        load_settings()


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ({"TA_REDIS_HOST": "cache"}, "rediss://cache:6379/0"),
        (
            {
                "TA_REDIS_HOST": "::1",
                "TA_REDIS_PORT": "6380",
                "TA_REDIS_DB": "2",
                "TA_REDIS_SSL": "false",
                "TA_REDIS_PWD": "p@ss:/",
                "TA_REDIS_TTL": "60",
            },
            "redis://:p%40ss%3A%2F@[::1]:6380/2?ttl=60",
        ),
        ({"TA_REDIS_HOST": "cache", "TA_STORE": "redis:"}, "rediss://cache:6379/0"),
        ({"TA_REDIS_HOST": "cache", "TA_STORE": "memory:"}, "memory:"),
        (
            {"TA_STORE": "redis+sentinel://me@a,b/main?replicas=1", "TA_REDIS_PWD": "p"},
            "redis+sentinel://me:p@a,b/main?replicas=1",
        ),
        (
            {"TA_STORE": "redis://:own@a?ttl=5", "TA_REDIS_PWD": "p", "TA_REDIS_TTL": "9"},
            "redis://:own@a?ttl=5",
        ),
    ],
)
def test_settings_of_the_public_project_name_a_redis_or_complete_its_url(
    given: dict[str, str], url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    set_all(monkeypatch, given)
    assert store_url(load_settings()) == url


def test_bare_redis_without_a_host_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TA_STORE", "redis:")
    with pytest.raises(ConfigurationError, match="TA_REDIS_HOST"):
        store_url(load_settings())


def test_redis_of_a_class_of_ones_own_is_left_to_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    own = {"TA_PERSISTENCE_MODULE": "mine.py", "TA_PERSISTENCE_CLASS": "Mine"}
    set_all(monkeypatch, {**own, "TA_REDIS_HOST": "cache"})
    assert store_url(load_settings()).startswith("sqlite://")
