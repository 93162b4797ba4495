"""The page `hermes-memory ui`: the memory of one user in a browser on this machine."""
