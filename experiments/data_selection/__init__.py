"""Towards a Statistical Theory of Data Selection under Weak Supervision (Kolossov, Montanari, Tandon; arXiv 2309.14563).

``selection`` scores and draws subsets, ``newton`` and ``objective`` train on them, ``quadrature``, ``prox``, ``saddle``
and ``theory`` give the asymptotic error, ``measure`` and ``compare`` bring the two together, ``figure`` draws them.

Letters: S seeds, D draws of a seed, K kept shares, R ridges, N samples, p features.
"""
