"""Statistics, verdicts, tables and figures: what is computed from results, without doing any work itself."""
