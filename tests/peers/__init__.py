"""Real parts for tests: Apache RocketMQ, the Java client, our own commands as processes."""
