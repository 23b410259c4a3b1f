"""Memory methods that other methods are measured against."""
