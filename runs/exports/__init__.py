"""A benchmark and a method as an environment for trainers that run elsewhere: the folder, and its `verifiers` part."""
