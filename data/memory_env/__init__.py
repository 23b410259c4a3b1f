"""memory-env: a made-up world to train memory operations in."""
