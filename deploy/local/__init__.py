"""A whole deployment on this machine, without root or Docker: `up`, `demo`, and the servers that they run."""
