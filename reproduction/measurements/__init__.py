"""Functions that measure something, each run in a process of its own, and the short trainings they share."""
