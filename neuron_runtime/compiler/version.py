"""What this compiler calls itself. Both are parts of a cache key."""

COMPILER_NAME = "neuronx-cc-sim"

# The first two numbers name the neuronx-cc whose command line is followed. The third is this compiler's own: raise it
# whenever the NEFF of some graph changes, so that caches compile that graph again.
COMPILER_VERSION = "2.28.1+sim"
