"""Find out what makes derivatives wrong or slow for a given network or script."""
