"""OmniBehavior: what users of a platform do next."""
