"""Which versions of the Neuron SDK belong together, and what a host has of them. Facts are data files with sources."""
