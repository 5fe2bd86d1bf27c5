"""dynaconf imports Flask where it is installed, here for a server of the tests: an app would start a quarter slower."""

raise ImportError("tests run their apps without Flask")
