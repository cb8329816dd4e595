"""Speed as ratios measured in one run: ``make bench``. Results go to ``results/bench/`` with the machine's name."""
