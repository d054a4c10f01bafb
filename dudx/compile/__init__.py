"""torch.compile for residuals."""
