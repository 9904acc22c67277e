"""Environments with a foreign library in it, for tests that must meet the real one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.authorities import environment_of_the_machine
from tests.demos.served import ROOT
from tests.missing import lacks

INSTALL_SECONDS = 400


def python_with(folder: Path, *packages: str) -> Path:
    """A Python with our dependencies and the packages; skips where they cannot be installed."""
    uv = Path(sys.executable).parent / "uv"
    python = folder / "environment" / "bin" / "python"
    for command in (
        [str(uv), "venv", "--quiet", "--python", sys.executable, str(folder / "environment")],
        [str(uv), "pip", "install", "--quiet", "--python", str(python)]
        + ["-r", str(ROOT / "pyproject.toml"), *packages],
    ):
        known = {"UV_SYSTEM_CERTS": "1", "UV_PYTHON_DOWNLOADS": "never"}
        try:
            subprocess.run(
                command,
                env={**environment_of_the_machine(), **known},
                check=True,
                capture_output=True,
                timeout=INSTALL_SECONDS,
            )
        except (OSError, subprocess.SubprocessError) as error:
            lacks("libraries", f"NOT TESTED: {packages[0]} cannot be installed: {error}")
    return python
