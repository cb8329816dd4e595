"""Quadratic models for understanding catapult dynamics of neural networks (arXiv 2205.11787)."""
