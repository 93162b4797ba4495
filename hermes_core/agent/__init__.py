"""The reference agent: a conversation with a model, and every moment at which that conversation drives memory."""
