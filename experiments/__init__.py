"""One module or package per paper: its objective, its measurements, its figure."""
