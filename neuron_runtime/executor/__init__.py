"""One process a client: loads its NEFFs and runs them, each NeuronCore's commands in order."""
