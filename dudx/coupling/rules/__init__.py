"""What functions over the batch do with one sample replaced."""
