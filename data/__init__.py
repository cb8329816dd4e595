"""Data modules: what a training step sees is a pure function of (seed, step), so a resume needs no loader state."""
