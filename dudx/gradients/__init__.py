"""Per-sample gradients of a function of the parameters."""
