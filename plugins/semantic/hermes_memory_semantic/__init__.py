"""Search by meaning: vectors of messages, by a model on this machine or a server of embeddings."""
