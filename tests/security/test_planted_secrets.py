"""Planted secrets do not come out: not in logs, answers, errors or the store."""

import json
from pathlib import Path

import pytest

from sk_agents.redaction import HIDDEN
from tests.cli.house import serving
from tests.requirements import requirement

# Each in another place: none of them may be seen anywhere.
OF_ENVIRONMENT = "canary-environment-1"
OF_PROVIDER = "sk-canaryprovider0123456789abcdef"
OF_CALLER = "canary-caller-token-1"
CARD = "4111 1111 1111 1111"
SECRETS = (OF_ENVIRONMENT, OF_PROVIDER, OF_CALLER, CARD)

CONFIG = """
apiVersion: tealagents/v1alpha1
kind: Agent
name: helper
version: 0.1
spec:
  agent:
    name: default
    model: scripted/talk.yaml
    system_prompt: You help.
    plugins: [Vault]
    redact: true
    approvals:
      rules:
        - {tool: "Vault-*", then: allow}
"""
PLUGINS = """
import logging
import os

from sk_agents.ska_types import BasePlugin
from sk_agents.tools import kernel_function

PROVIDER = "sk-canaryprovider" + "0123456789abcdef"


class Vault(BasePlugin):
    @kernel_function(description="Tell the secrets.")
    def tell(self) -> str:
        more = {"of": os.environ["VAULT_TOKEN"]}
        logging.getLogger("vault").warning("the key is %s", PROVIDER, extra=more)
        return f"{PROVIDER} and {os.environ['VAULT_TOKEN']} and 4111 1111 1111 1111"

    @kernel_function(description="Fail with the secrets.")
    def fail(self) -> str:
        raise RuntimeError(f"refused: {PROVIDER} {os.environ['VAULT_TOKEN']}")
"""
SCRIPT = """
pieces: 3
rules:
  - match: '^tell'
    turns:
      - thinking: "Perhaps it is sk-canaryprovider0123456789abcdef, who knows."
        calls: [{tool: Vault-tell}]
      - text: "It is canary-environment-1, and the card 4111 1111 1111 1111. {result}"
  - match: '^fail'
    turns:
      - calls: [{tool: Vault-fail}]
      - text: "It failed: {result}"
turns:
  - text: "You said {user}."
"""


def found(text: str) -> list[str]:
    return [secret for secret in SECRETS if secret in text]


@requirement("S004-10.2-redaction")
@pytest.mark.parametrize("log_format", ["text", "json"])
def test_planted_secrets_are_found_nowhere(tmp_path: Path, log_format: str) -> None:
    plugins = tmp_path / "custom_plugins.py"
    plugins.write_text(PLUGINS)
    plugins.chmod(0o600)
    (tmp_path / "talk.yaml").write_text(SCRIPT)
    config = tmp_path / "config.yaml"
    config.write_text(CONFIG)
    store = tmp_path / "data" / "teal.sqlite"
    given = {
        "VAULT_TOKEN": OF_ENVIRONMENT,
        "TA_LOG_LEVEL": "debug",
        "TA_LOG_FORMAT": log_format,
        "TA_TOKEN": OF_CALLER,
    }
    said = []
    with serving(tmp_path, str(config), "--store", f"sqlite://{store}", **given) as served:
        for message in ("tell", "fail", f"mine is {OF_PROVIDER} and {CARD}"):
            done = served.run("chat", "-m", message, "--events", TA_TOKEN=OF_CALLER)
            assert done.returncode == 0, done.stderr
            said.append(done.stdout)
        assert found("".join(said)) == []
        shown = [json.loads(line) for line in "".join(said).splitlines()]
        pieces = "".join(str(event.get("content", "")) for event in shown)
        assert HIDDEN in pieces
        assert "canary" not in pieces
        served.process.terminate()
        served.process.wait()
    assert found((tmp_path / "server.log").read_text()) == []
    files = [path for path in store.parent.iterdir() if path.is_file()]
    stored = b"".join(path.read_bytes() for path in files)
    assert found(stored.decode(errors="replace")) == []
