"""The table `spark` of the settings, and what has to be there for Spark to start."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rocketapp import ConfigError
from rocketapp.plugin import option
from rocketapp_lake.settings import by_name
from rocketapp_pyspark.session import Spark

_MASTER = re.compile(r"(local(-cluster)?(\[.+\])?|yarn|(spark|k8s)://.+)")
MEND = "install a JDK 17 or newer and name it by JAVA_HOME, or give the sinks written_by='arrow'"


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkConfig:
    """The table `spark` of the settings."""

    master: str = option("local[2]", "Where Spark runs, as spark-submit's --master: local[N] or spark://host:port.")
    conf: tuple[str, ...] = option((), "Settings of the session, each as name=value.")


def spark_of(config: SparkConfig) -> Spark:
    """Raises ConfigError."""
    if not _MASTER.fullmatch(config.master):
        raise ConfigError("spark.master", f"{config.master!r} cannot be read: give local[N], spark://host:port or yarn")
    return Spark(config.master, by_name(config.conf, "spark.conf", "spark.driver.memory=2g"))


def check_java(environment: Mapping[str, str]) -> None:
    """Raises ConfigError when the scripts of Spark would find no `java`: they look nowhere else."""
    home = environment.get("JAVA_HOME")
    if home:
        if not os.access(Path(home, "bin", "java"), os.X_OK):
            raise ConfigError("JAVA_HOME", f"{home} has no bin/java: {MEND}")
    elif shutil.which("java", path=environment.get("PATH", "")) is None:
        raise ConfigError("spark", f"no java is in PATH: {MEND}")
