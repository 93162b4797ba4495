"""Actions of a person on a memory. The command line and the page `hermes-memory ui` call them."""
