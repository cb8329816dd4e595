"""Intriguing properties of neural networks: the smallest change of an image that changes a network's answer."""
