"""A user's network: its modules, checks of its behaviour, and how to run it without side effects."""
