"""Understanding Certified Training with Interval Bound Propagation (Mao et al., ICLR 2024, arXiv 2306.10426)."""
