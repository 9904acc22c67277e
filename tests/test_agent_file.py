"""The agent file's envelope: what is read, and that every refusal names file and field."""

import logging
from pathlib import Path

import pytest

from sk_agents.config.agent_file import (
    RESERVED_NAMES,
    AgentFile,
    load_agent_files,
    read_agent_file,
)
from sk_agents.config.strict_yaml import MAX_BYTES
from sk_agents.exceptions import ConfigurationError

TEAL = "apiVersion: tealagents/v1alpha1\nkind: Agent\nname: Weather\nversion: 0.1\n"
SEQUENTIAL = "apiVersion: skagents/v1\nkind: Sequential\nservice_name: Sums\nversion: 1\n"


def read(tmp_path: Path, text: str | bytes, name: str = "config.yaml") -> AgentFile:
    path = tmp_path / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return read_agent_file(path)


def test_newer_file_is_known_by_its_name(tmp_path: Path) -> None:
    agent = read(tmp_path, TEAL + "metadata:\n  description: Tells the weather\n")
    assert (agent.api_version, agent.kind) == ("tealagents/v1alpha1", "Agent")
    assert (agent.name, agent.version) == ("Weather", "0.1")
    assert agent.description == "Tells the weather"
    assert agent.document["metadata"] == {"description": "Tells the weather"}


def test_oldest_file_is_known_by_its_service_name(tmp_path: Path) -> None:
    agent = read(tmp_path, SEQUENTIAL + "description: Adds\ninput_type: BaseInput\n")
    assert (agent.name, agent.version, agent.description) == ("Sums", "1", "Adds")


@pytest.mark.parametrize("written, version", [("1", "1"), ("0.1", "0.1"), ("'1.10'", "1.10")])
def test_version_is_text_however_it_is_written(tmp_path: Path, written: str, version: str) -> None:
    assert read(tmp_path, TEAL.replace("0.1", written)).version == version


@pytest.mark.parametrize("kind", ["kind: Chat\n", ""])
def test_newer_file_may_say_chat_or_nothing(tmp_path: Path, kind: str) -> None:
    assert read(tmp_path, TEAL.replace("kind: Agent\n", kind)).name == "Weather"


@pytest.mark.parametrize(
    ("text", "field"),
    [
        (TEAL.replace("tealagents/v1alpha1", "tealagents/v9"), "apiVersion"),
        (TEAL.replace("tealagents/v1alpha1", "tealagents"), "apiVersion"),
        (TEAL.replace("tealagents/v1alpha1", "tealagents/v1alpha1/x"), "apiVersion"),
        (TEAL.replace("tealagents/v1alpha1", "others/v1"), "apiVersion"),
        (TEAL.replace("tealagents/v1alpha1", "[1]"), "apiVersion"),
        (TEAL.replace("apiVersion", "apiversion"), "apiVersion"),
        (TEAL.replace("name: Weather\n", ""), "name"),
        (TEAL.replace("name:", "service_name:"), "name"),
        (SEQUENTIAL.replace("service_name", "name"), "service_name"),
        (SEQUENTIAL.replace("Sequential", "Parallel"), "kind"),
        (TEAL.replace("version: 0.1\n", ""), "version"),
        (TEAL.replace("0.1", "true"), "version"),
        (TEAL.replace("0.1", "[1]"), "version"),
        (TEAL.replace("0.1", "1/2"), "version"),
        (TEAL.replace("Weather", "a/b"), "name"),
        (TEAL.replace("Weather", "'..'"), "name"),
        (TEAL.replace("Weather", "'{x}'"), "name"),
        (TEAL.replace("Weather", "''"), "name"),
        (TEAL.replace("Weather", "12"), "name"),
        (TEAL + "metadata: [x]\n", "metadata"),
        (TEAL + "metadata: {description: [x]}\n", "metadata.description"),
    ],
)
def test_fault_is_refused_naming_file_and_field(tmp_path: Path, text: str, field: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"config\.yaml: {field} "):
        read(tmp_path, text)


@pytest.mark.parametrize("name", sorted(RESERVED_NAMES))
def test_names_of_our_own_paths_are_reserved(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigurationError, match="name .*reserved"):
        read(tmp_path, TEAL.replace("Weather", name.title()))


def bomb(levels: int) -> str:
    lines = ["l0: &l0 [x, x, x, x, x, x, x, x, x]"]
    for level in range(1, levels):
        aliases = ", ".join([f"*l{level - 1}"] * 9)
        lines.append(f"l{level}: &l{level} [{aliases}]")
    return TEAL + "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("a: !!python/object/apply:os.system ['true']", id="python tag"),
        pytest.param("a: !mine x", id="unknown tag"),
        pytest.param(bomb(8), id="alias bomb"),
        pytest.param(TEAL + "a: &a [*a]", id="alias of itself"),
        pytest.param(TEAL + "name: Other", id="key twice"),
        pytest.param(TEAL + "spec: {agent: {model: a, 'model': b}}", id="inner key twice"),
        pytest.param(TEAL + "? [a, b]\n: c", id="list as key"),
        pytest.param("a: " + "[" * 5000, id="deep"),
        pytest.param("x" * (MAX_BYTES + 1), id="large"),
        pytest.param(b"a: \xff", id="not text"),
        pytest.param("a: [1, 2", id="not closed"),
        pytest.param("a: 2024-99-99", id="no such day"),
        pytest.param("a: 1\n---\nb: 2", id="two documents"),
        pytest.param("a: \x00", id="control character"),
        pytest.param("", id="empty"),
        pytest.param("- a", id="list"),
    ],
)
def test_hostile_file_is_refused_naming_the_file(tmp_path: Path, text: str | bytes) -> None:
    with pytest.raises(ConfigurationError, match=r"config\.yaml"):
        read(tmp_path, text)


def test_refusal_does_not_quote_the_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as caught:
        read(tmp_path, "api_key: canary\nbad: [1, 2")
    assert "canary" not in str(caught.value)


def test_plain_aliases_and_merges_are_fine(tmp_path: Path) -> None:
    agent = read(tmp_path, TEAL + "spec:\n  a: &a {model: m}\n  agent: {<<: *a, name: n}\n")
    assert agent.document["spec"]["agent"] == {"model": "m", "name": "n"}


def test_unknown_keys_give_one_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        read(tmp_path, TEAL + "rolle: x\nnaem: y\n")
    assert len(caplog.records) == 1
    assert "naem, rolle" in caplog.text


def test_absent_file_is_refused_naming_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"nowhere\.yaml"):
        load_agent_files([tmp_path / "nowhere.yaml"])


def test_folder_means_its_files_and_its_folders_configs(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "config.yaml").write_text(TEAL)
    (tmp_path / "one" / "other.yaml").write_text("not: an agent")
    (tmp_path / "sums.yaml").write_text(SEQUENTIAL)
    (tmp_path / "remotes.yaml").write_text("remote_plugins: []\n")
    with caplog.at_level(logging.WARNING):
        agents = load_agent_files([tmp_path])
    assert {agent.name for agent in agents} == {"Weather", "Sums"}
    assert "remotes.yaml" in caplog.text


def test_folder_without_agents_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no agent file"):
        load_agent_files([tmp_path])


def test_two_agents_of_one_address_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(TEAL)
    (tmp_path / "b.yaml").write_text(TEAL)
    with pytest.raises(ConfigurationError, match=r"b\.yaml: .*is also in .*a\.yaml"):
        load_agent_files([tmp_path])


def test_file_named_twice_is_served_once(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(TEAL)
    assert len(load_agent_files([tmp_path, tmp_path / "a.yaml"])) == 1
