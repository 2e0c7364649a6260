"""The simulated machine: instance types, NeuronCore numbering, HBM."""
