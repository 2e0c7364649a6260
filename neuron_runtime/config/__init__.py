"""Settings from files: what the environment leaves open. Read by everything of ours that reads the environment."""
