"""Residuals as a person writes them: fields, their derivatives, and the request they make of an engine."""
