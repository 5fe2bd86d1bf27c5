"""What the real parts need: a JDK, the jars (fetched by Maven), our Java programs compiled.

Everything lands in `.cache/` of the project, once; a second run finds it there.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
CACHE = ROOT / ".cache"
CLUSTER_SCRIPT = HERE / "cluster.sh"
_LIB = (CACHE / "rocketmq").resolve() / "lib"
"""One way to it: an archive of classes names the jars by their paths."""
_LIB_4 = _LIB.with_name("lib-4.9.7")
_CLASSES = CACHE / "peers"
_PROOF, _PROOF_4 = "rocketmq-broker-5.5.0.jar", "rocketmq-broker-4.9.7.jar"


def missing() -> str | None:
    """Why Apache RocketMQ and the Java client cannot run here, or None."""
    absent = [tool for tool in ("java", "javac") if shutil.which(tool) is None]
    if absent:
        return f"no JDK ({', '.join(absent)} not found)"
    if shutil.which("mvn") is None and not (_LIB / _PROOF).exists():
        return "no Maven (mvn not found), and no jars in .cache/rocketmq/lib"
    return None


def jars() -> Path:
    """The directory of Apache RocketMQ's jars; the first call fetches about 100 MB."""
    return _fetched(_LIB, _PROOF, HERE / "pom.xml")


def jars_of_4() -> Path:
    """The directory of the jars of Apache RocketMQ 4.9.7; the first call fetches about 30 MB."""
    return _fetched(_LIB_4, _PROOF_4, HERE / "pom-4.9.7.xml")


def _fetched(lib: Path, proof: str, pom: Path) -> Path:
    with alone(lib.name):
        if not (lib / proof).exists():
            coming = lib.with_name(f"{lib.name}.{os.getpid()}")
            environment = {**os.environ, "POM": str(pom)}
            subprocess.run([CLUSTER_SCRIPT, "jars", coming], check=True, timeout=1800, env=environment)
            shutil.rmtree(lib, ignore_errors=True)
            coming.rename(lib)
    return lib


def classes() -> Path:
    """The jar of our compiled Java programs; compiled again only when a source changed."""
    sources = sorted((HERE / "java").glob("*.java"))
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:16]
    target, lib = _CLASSES / f"{digest}.jar", jars()
    with alone("classes"):
        if not target.exists():
            coming = target.with_name(f"{digest}.{os.getpid()}")
            command = ["javac", "-nowarn", "-Xlint:-options", "-d", str(coming), "-cp", f"{lib}/*", *map(str, sources)]
            done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
            if done.returncode:
                raise RuntimeError(f"javac failed:\n{done.stderr}")
            packed = coming.with_suffix(".packed")
            subprocess.run(["jar", "--create", "--file", packed, "-C", coming, "."], check=True, timeout=300)
            shutil.rmtree(coming)
            packed.rename(target)
    return target


@contextlib.contextmanager
def alone(what: str) -> Iterator[None]:
    """Several test processes may ask at the same time: the first one does the work, the others wait for it."""
    CACHE.mkdir(exist_ok=True)
    with (CACHE / f"{what}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def archive() -> Path:
    """Where `tests.peers.prepare` puts the classes of these jars in the form that a JVM maps; empty: it makes none."""
    return jars().with_suffix(".jsa")


BRIEF = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""Options for a JVM of tests, which lives for minutes: compiling for speed would cost more than it wins."""
SLACK = 20_000_000
"""Nanoseconds that its sleeps may last longer: the shortest are a third of what such a broker needs when it is idle."""


def java_command(
    main: str, *arguments: str, home: Path, heap: str = "384m", properties: tuple[str, ...] = ()
) -> list[str]:
    """The command line of one of our Java programs; its client's log files go below `home`."""
    path, made = f"{jars()}/*:{classes()}", archive()
    return [
        "java",
        f"-Xmx{heap}",
        "-XX:+UseSerialGC",
        *([f"-XX:SharedArchiveFile={made}"] if made.exists() and made.stat().st_size else []),
        f"-Duser.home={home}",
        *properties,
        "-cp",
        path,
        main,
        *arguments,
    ]


def rocketapp_command(*arguments: str) -> list[str]:
    """The installed `rocketapp` command of this environment."""
    script = Path(sys.executable).with_name("rocketapp")
    return [str(script), *arguments] if script.exists() else [sys.executable, "-m", "rocketapp", *arguments]
