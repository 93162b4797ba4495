"""Pure functions on text that crosses a border: the fence, the scrubber, the threat scan and redaction."""
