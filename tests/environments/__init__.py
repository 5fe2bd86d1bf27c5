"""What strangers install: our distributions in clean environments, and the recipes of docs/how-to in theirs."""
