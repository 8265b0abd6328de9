"""Lets a script that needs memroute's packages be called directly, from any folder and by any Python 3."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path


def use_own_python() -> Path:
    """The project's folder, from which its rooms can be imported after this.

    Where the Python that runs the script has no memroute, the script starts again with the project's own, which is set
    up when needed. One that has it, e.g. an environment made by other means, is left in use.
    """
    root = Path(__file__).resolve().parent.parent
    if not _has_memroute() and Path(sys.prefix) != root / ".venv":
        subprocess.run([str(root / "scripts" / "setup")], check=True)
        python = str(root / ".venv" / "bin" / "python")
        os.execv(python, [python, *sys.argv])
    sys.path.insert(0, str(root))
    return root


def _has_memroute() -> bool:
    try:
        importlib.metadata.version("memroute")
    except importlib.metadata.PackageNotFoundError:
        return False
    return True
