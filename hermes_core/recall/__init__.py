"""Pure functions that find: what a question asks (`query`), and which of the candidates answer it (`rank`).

Nothing here opens a file. The SQL that brings candidates lives in each store.
"""
