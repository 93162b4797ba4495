"""Order of recalled messages by a server, as an extension of `hermes_core`."""
