"""The memory of a home for programs that are not our agent: over MCP, and as Anthropic's client-side memory tool.

`surface` has the tools and one way to call them; `definition` puts each into the form that a client wants; `server`
speaks MCP over stdio or HTTP. Only `server` and `http` need the official SDK, which the extra `mcp` installs; this
package is named so that the SDK's `mcp` is never hidden.
"""

from __future__ import annotations
