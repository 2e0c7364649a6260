"""neuron-env: one command for the runtime, the compiler and the NEFF cache."""
