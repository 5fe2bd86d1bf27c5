"""The command `rocketapp`, also as `python -m rocketapp`."""

import contextlib
import os
import signal
import sys


def _end_before_start(*_: object) -> None:
    """SIGTERM or SIGHUP while the app is loaded, until `run` takes signals: nothing has begun that is to be drained."""
    with contextlib.suppress(OSError):
        os.write(1, b"handled=0 retried=0 dead_lettered=0 unmatched=0\n")
    os._exit(0)


def main() -> None:
    """Run the command line. Ctrl-C before it is loaded ends the process as any other program, without a traceback."""
    if sys.platform == "win32":
        sys.stderr.write("rocketapp: apps and commands run on Linux and macOS: on Windows use WSL 2 or a container\n")
        sys.exit(2)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    for number in (signal.SIGTERM, signal.SIGHUP) if sys.argv[1:2] == ["run"] else ():
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _end_before_start)
    from rocketapp.cli.main import main as run

    run()


if __name__ == "__main__":
    main()
