"""The command `rocketapp`, also as `python -m rocketapp`."""

import signal
import sys


def main() -> None:
    """Run the command line. Ctrl-C before it is loaded ends the process as any other program, without a traceback."""
    if sys.platform == "win32":
        sys.stderr.write("rocketapp: apps and commands run on Linux and macOS: on Windows use WSL 2 or a container\n")
        sys.exit(2)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from rocketapp.cli.main import main as run

    run()


if __name__ == "__main__":
    main()
