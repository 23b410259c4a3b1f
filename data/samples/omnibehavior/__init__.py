"""A sample in OmniBehavior's raw form, our own: eight invented users with known habits."""
