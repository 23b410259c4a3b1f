"""A sample of a prepared OmniBehavior experiment, our own: two invented users with known habits."""
