import os
import sys

from django.core.management.base import BaseCommand


class Command(BaseCommand):
    help = "Handle messages: rocketapp run, with all of its options"

    def run_from_argv(self, argv: list[str]) -> None:
        os.execv(sys.executable, [sys.executable, "-m", "rocketapp", "run", "shop.app:app", *argv[2:]])
