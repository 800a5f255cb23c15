"""feedline."""
