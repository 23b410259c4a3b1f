"""The memories of users: the Python API, what it reads, and what writes the queue of a user."""
