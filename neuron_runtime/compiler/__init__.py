"""StableHLO or HLO in, NEFF out: a library, a warm worker process, and the `neuronx-cc-sim` command."""
