"""The tools of the shared file store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal
from urllib.parse import quote

from hermes_core import Session
from hermes_core.kit import (
    BackendProvider,
    Range,
    ToolInputInvalid,
    profile_name,
    read_file_to_send,
    storable,
    tool,
)
from hermes_retaindb.client import Client, Scope

MAX_TEXT_CHARS = 32_000
LARGEST_FILE = 25 * 1024 * 1024
MAX_ID_CHARS = 200
MAX_LISTED = 200
"""Files of one listing."""

FileId = Annotated[str, "id of a file, from a result"]


class FileTools(BackendProvider[Client]):
    """The person at the command line sees the whole store of the account; a messenger's user a folder of their own."""

    def tools(self) -> Sequence[Callable[..., Any]]:
        """Return all tools; those of the file store only if there is one."""
        wanted = self.options.file_tools
        with_files = wanted == "on" or (wanted == "auto" and self.options.api_key)
        return [one for one in super().tools() if with_files or one.__name__ not in vars(FileTools)]

    def who(self, session: Session) -> Scope:
        """Return the scope of a session: a messenger's user, a chat without users, or the person at the command line."""
        agent = profile_name(session.identity)
        if session.owner:
            return Scope(storable(session.owner), storable(session.id), agent, alone=False)
        return Scope(self.options.user_id, storable(session.id), agent)

    @tool("retaindb_upload_file")
    def upload(
        self,
        local_path: Annotated[str, "a file of the working folder or of another folder that may be sent"],
        session: Session,
        remote_path: Annotated[str | None, "where to put it; its name unless told otherwise"] = None,
        scope: Literal["USER", "PROJECT", "ORG"] = "PROJECT",
        ingest: Annotated[bool, "also learn from it"] = False,
    ) -> dict[str, Any]:
        """Upload a file to the shared store."""
        local = read_file_to_send(local_path, session, LARGEST_FILE, self.options.file_folders)
        name = storable(remote_path or local.name).strip("/")
        if ".." in PurePosixPath(name).parts or not name:
            raise ToolInputInvalid(f"remote_path can't be {remote_path!r}", "send a plain path")
        file = self.client.upload(local.name, local.content, self._root(session) + name, scope)
        if file is None:
            raise _no_store()
        if ingest and file.get("id"):
            return {"file": file, "ingested": self._learn(str(file["id"]), session)}
        return {"file": file}

    @tool("retaindb_list_files")
    def files(
        self,
        session: Session,
        prefix: Annotated[str | None, "only paths that begin so"] = None,
        limit: Annotated[int, Range(1, 200)] = 50,
    ) -> dict[str, Any]:
        """List files of the shared store."""
        root = self._root(session)
        found = self.client.files(root + storable(prefix or "").lstrip("/")[:MAX_ID_CHARS], limit)
        if found is None:
            raise _no_store()
        mine = [file for file in found if _path(file).startswith(root)]
        return {"files": mine, "count": len(mine)}

    @tool("retaindb_read_file")
    def read(self, file_id: FileId, session: Session) -> dict[str, Any]:
        """Read a text file of the shared store."""
        file = self._own(file_id, session)
        told = {"file_id": file_id, "rdb_uri": file.get("rdb_uri"), "name": file.get("name")}
        content = self.client.content(file_id).content
        try:
            text = content.decode("utf-8")
        except UnicodeDecodeError:
            text = "\x00"
        if "\x00" in text:
            return {**told, "content": None, "note": f"a binary file of {len(content)} bytes"}
        return {**told, "content": text[:MAX_TEXT_CHARS], "truncated": len(text) > MAX_TEXT_CHARS}

    @tool("retaindb_ingest_file")
    def ingest(self, file_id: FileId, session: Session) -> dict[str, Any]:
        """Learn from a file of the shared store: its content is found by search from then on."""
        self._own(file_id, session)
        return self._learn(file_id, session)

    @tool("retaindb_delete_file")
    def delete(self, file_id: FileId, session: Session) -> dict[str, Any]:
        """Delete a file of the shared store."""
        self._own(file_id, session)
        self.client.delete_file(file_id)
        return {"deleted": file_id}

    # ------------------------------------------------------------------ private

    def forget_files(self, session: Session) -> int:
        """Delete the files of a messenger's user, and return their number."""
        root, deleted = self._root(session), 0
        while root and (found := self.client.files(root, MAX_LISTED)):
            mine = [file for file in found if _path(file).startswith(root)]
            for file in mine:
                self.client.delete_file(str(file.get("id")))
            deleted += len(mine)
            if len(found) < MAX_LISTED or not mine:
                break
        return deleted

    def _learn(self, file_id: str, session: Session) -> dict[str, Any]:
        return self.client.ingest_file(file_id, self.who(session))

    def _root(self, session: Session) -> str:
        who = self.who(session)
        return "" if who.alone else f"users/{quote(who.user, safe='')}/"

    def _own(self, file_id: str, session: Session) -> dict[str, Any]:
        """Return the facts about a file that this session may see."""
        if len(file_id) > MAX_ID_CHARS:
            raise ToolInputInvalid("file_id is too long", "send an id from a result")
        file = self.client.file(file_id)
        if not _path(file).startswith(self._root(session)):
            raise ToolInputInvalid(f"there is no file {file_id!r}", "send an id from a result")
        return file


def _path(file: dict[str, Any]) -> str:
    return str(file.get("path") or "").lstrip("/")


def _no_store() -> ToolInputInvalid:
    return ToolInputInvalid("this server keeps no files", "use the memory tools")
