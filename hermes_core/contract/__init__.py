"""What a provider author reads: the hooks, the base class, and the frozen values that cross between them."""
