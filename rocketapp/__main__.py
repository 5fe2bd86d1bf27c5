"""`python -m rocketapp` is the command `rocketapp`."""

from rocketapp.cli.main import main

if __name__ == "__main__":
    main()
