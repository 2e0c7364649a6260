"""What is wrong with a host: independent checks over what the probes found."""
