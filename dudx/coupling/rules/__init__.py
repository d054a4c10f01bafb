"""Rules for functions over the batch with one sample replaced."""
