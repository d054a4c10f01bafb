"""What each torch function does to a jet."""
