"""Every prompt as a dspy.Signature."""
