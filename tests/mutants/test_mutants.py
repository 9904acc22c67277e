"""A run of the mutation tests finds what it should and changes no file."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.patience import seconds

ROOT = Path(__file__).parent.parent.parent


def source_of(module: str) -> str:
    return (ROOT / "src" / "sk_agents" / (module.replace(".", "/") + ".py")).read_text()


def test_a_mutant_that_a_test_notices_dies_and_the_tree_stays_as_it_is() -> None:
    module = "hitl.approval_manager"
    before = source_of(module)
    done = subprocess.run(
        [sys.executable, "-m", "tests.mutants", "--module", module, "--count", "2"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=seconds(100),
    )
    assert done.returncode in (0, 1), done.stderr
    assert source_of(module) == before
    words = [
        line.split()[1] for line in done.stdout.splitlines() if line.lstrip()[:2] in ("1/", "2/")
    ]
    assert len(words) == 2
    assert "killed" in words
    assert done.stdout.splitlines()[-1].startswith("all")


TINY = "def one():\n    return 1\n\ndef two():\n    return 2\n"
ITS_TEST = """from sk_agents.tiny import one, two
def test_both():
    assert one() == 1
    assert two() > 0
"""
PLUGINS = "--disable-plugin-autoload -p timeout -p hypothesispytest"
OF_A_TINY_PACKAGE = """import sys
from pathlib import Path
from tests.mutants import __main__ as tool, workshop
tool.ROOT = workshop.ROOT = Path(sys.argv[1])
tool.TESTS_OF.clear()
tool.TESTS_OF["tiny"] = ("tests/test_tiny.py",)
sys.exit(tool.main(["--count", "0"]))
"""


def test_mutant_is_tried_without_those_that_were_tried_before_it(tmp_path: Path) -> None:
    for name, text in {
        "pyproject.toml": f'[tool.pytest.ini_options]\naddopts = "{PLUGINS}"\n',
        "src/sk_agents/__init__.py": "",
        "src/sk_agents/tiny.py": TINY,
        "tests/test_tiny.py": ITS_TEST,
        "docs/index.md": "",
        "demos/index.md": "",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    done = subprocess.run(
        [sys.executable, "-c", OF_A_TINY_PACKAGE, str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=seconds(100),
    )
    words = {
        (line.split()[2], line.split()[1]) for line in done.stdout.splitlines() if "/4 " in line
    }
    assert words == {("tiny:2", "killed"), ("tiny:5", "survived")}, done.stdout + done.stderr
