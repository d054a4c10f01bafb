"""One training run: settings, loop, records, checkpoint."""
