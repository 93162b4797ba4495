"""Access to the memory of a home for programs that are not our agent: over MCP, and as Anthropic's memory tool.

`toolset` has the tools and calls them; `server` speaks MCP over stdio or HTTP. Only `server` needs the official SDK, which
the extra `mcp` installs. The package is named so that the SDK's `mcp` is never hidden.
"""
