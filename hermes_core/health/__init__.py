"""How a home's memory is: what stands where, what works, what does not and what to do. Data only; surfaces print it."""
