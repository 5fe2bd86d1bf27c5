"""Whether Spark can start here."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

OLDEST = 17
MEND = f"install a JDK {OLDEST} or newer (apt install openjdk-{OLDEST}-jdk-headless; brew install openjdk@{OLDEST})"


def problem() -> str | None:
    """Why it cannot; None when it can. Spark takes the Java of JAVA_HOME, and without one that of PATH."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which(Path(home) / "bin" / "java" if home else "java")
    if java is None:
        return f"java is missing{' in JAVA_HOME' if home else ''}: {MEND}"
    shown = subprocess.run([java, "-version"], capture_output=True, text=True, check=False, timeout=60)
    version = re.search(r'version "(\d+)', shown.stderr)
    if version is None:
        return f"{java} does not work: {MEND}"
    if int(version[1]) < OLDEST:
        return f"{java} has version {version[1]}: {MEND}"
    return None
