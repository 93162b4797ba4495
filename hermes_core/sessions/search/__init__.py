"""Search over stored messages: filters, look-ups in the index, ranking of candidates, snippets and vectors."""
