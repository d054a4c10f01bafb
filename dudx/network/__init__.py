"""Looking at a network: its modules, whether its samples influence each other, and how to run it without a trace."""
