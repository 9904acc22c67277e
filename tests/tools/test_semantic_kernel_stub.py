"""The stub of semantic-kernel: only where the library is absent, never in its way."""

import subprocess
import sys
from pathlib import Path

from tests.patience import seconds
from tests.tools.calls import written

LOAD = """
import sys
from pathlib import Path
from sk_agents.tools.semantic_kernel_stub import install_kernel_stub
before = "semantic_kernel" in sys.modules
install_kernel_stub()
install_kernel_stub()
"""


def python(folder: Path, code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", LOAD + code],
        cwd=folder,
        env={"PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        timeout=seconds(60),
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_installed_library_is_never_shadowed(tmp_path: Path) -> None:
    package = tmp_path / "semantic_kernel"
    package.mkdir()
    written(package, "real = True", "__init__.py")
    code = """
import semantic_kernel
try:
    import semantic_kernel.kernel_pydantic
except ModuleNotFoundError:
    print(semantic_kernel.real, any("StubFinder" in repr(f) for f in sys.meta_path))
"""
    assert python(tmp_path, code) == "True False"


def test_library_that_appears_later_wins(tmp_path: Path) -> None:
    code = """
import importlib
Path("semantic_kernel").mkdir()
Path("semantic_kernel/__init__.py").write_text("real = True")
importlib.invalidate_caches()
import semantic_kernel
try:
    import semantic_kernel.kernel_pydantic
except ModuleNotFoundError:
    print(semantic_kernel.real)
"""
    assert python(tmp_path, code) == "True"


def test_nothing_stands_in_before_plugins_are_loaded(tmp_path: Path) -> None:
    code = """
from semantic_kernel.kernel_pydantic import KernelBaseModel
class M(KernelBaseModel):
    x: int
print(before, M(x=1).x, len([f for f in sys.meta_path if "StubFinder" in repr(f)]))
"""
    assert python(tmp_path, code) == "False 1 1"
