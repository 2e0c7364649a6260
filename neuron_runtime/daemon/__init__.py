"""The control plane: which process owns which NeuronCores, and the executors that run their work."""
