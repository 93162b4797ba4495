"""The contract with provider authors: the hooks, the base class, and the values that hooks take and return."""
