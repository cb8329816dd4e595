"""Auto-Encoding Variational Bayes (Kingma and Welling, ICLR 2014, arXiv 1312.6114)."""
