"""How accurate the virtual GPU is, and what it costs. Run from the repository's root."""
