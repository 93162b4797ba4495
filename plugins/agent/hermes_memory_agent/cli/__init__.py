"""The commands of the extension `agent`."""
