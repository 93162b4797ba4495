"""Access to the memory of a home for programs that are not our agent: over MCP, and as Anthropic's memory tool.

`toolset` has the tools and calls them; `server` speaks MCP over stdio or HTTP. It uses the official SDK.
"""
