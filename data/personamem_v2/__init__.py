"""PersonaMem v2: whether a preference is recalled, or multiple choice."""
