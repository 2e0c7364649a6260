"""What daemon, executors and clients say to each other: datagrams for control, a shared queue for work."""
