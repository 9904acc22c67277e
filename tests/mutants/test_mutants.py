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
# Starting it is forking a process that has imported `sk_agents.wiring`, and `coverage`.
PROGRAM = "sk_agents.testing.store_worker"
ITS_SOURCE = """import sys
from sk_agents.wiring import one
print(one(), "coverage" in sys.modules)
"""
STARTS_A_PROGRAM = f"""import subprocess
from sk_agents.wiring import one
from tests.forked_python import PYTHON
def test_program():
    one()
    done = subprocess.run([PYTHON, "-m", "{PROGRAM}"], capture_output=True, text=True)
    assert done.stdout == "1 True\\n"
"""
OF_A_TINY_PACKAGE = """import sys
from pathlib import Path
from tests.mutants import __main__ as tool, workshop
tool.ROOT = workshop.ROOT = Path(sys.argv[1])
tool.TESTS_OF.clear()
tool.TESTS_OF[sys.argv[2]] = ("tests/test_tiny.py",)
sys.exit(tool.main(["--count", "0"]))
"""


def became_of_all(folder: Path, module: str, files: dict[str, str]) -> list[tuple[str, str]]:
    """The place of each mutant there is in the module of this package, and what became of it."""
    settings = f'[tool.pytest.ini_options]\naddopts = "{PLUGINS}"\n'
    whole = {"pyproject.toml": settings, "src/sk_agents/__init__.py": "", **files}
    for name, text in {**whole, "docs/index.md": "", "demos/index.md": ""}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    done = subprocess.run(
        [sys.executable, "-c", OF_A_TINY_PACKAGE, str(folder), module],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=seconds(100),
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    return [(words[2], words[1]) for words in lines if len(words) > 2 and "/" in words[0]]


def test_mutant_is_tried_without_those_that_were_tried_before_it(tmp_path: Path) -> None:
    files = {"src/sk_agents/tiny.py": TINY, "tests/test_tiny.py": ITS_TEST}
    found = became_of_all(tmp_path, "tiny", files)
    assert len(found) == 4
    assert set(found) == {("tiny:2", "killed"), ("tiny:5", "survived")}


def test_program_that_a_test_starts_has_the_mutant_although_it_is_forked(tmp_path: Path) -> None:
    files = {
        "src/sk_agents/wiring.py": "def one():\n    return 1\n",
        "src/sk_agents/testing/__init__.py": "",
        "src/sk_agents/testing/store_worker.py": ITS_SOURCE,
        "tests/conftest.py": "from tests.forked_python import use_forks\nuse_forks()\n",
        "tests/test_tiny.py": STARTS_A_PROGRAM,
    }
    for name in ("fork_server.py", "forked_python.py"):
        files[f"tests/{name}"] = (ROOT / "tests" / name).read_text()
    assert became_of_all(tmp_path, "wiring", files) == [("wiring:2", "killed")] * 2
