"""Rules of the Taylor engine for the functions of torch."""
