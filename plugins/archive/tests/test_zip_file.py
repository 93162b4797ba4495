"""ZIP files with a manifest: which members a format takes, and a file that is whole or absent."""

from __future__ import annotations

import json
import warnings
import zipfile
from pathlib import Path
from typing import Any

import pytest

from hermes_core.errors import HermesError
from hermes_memory_archive.archive import FORMAT as EXPORT
from hermes_memory_archive.backup import FORMAT as BACKUP
from hermes_memory_archive.zip_file import ArchiveFormat, NewFile

FORMATS = pytest.mark.parametrize("form", [BACKUP, EXPORT], ids=["backup", "export"])


def archive_of(
    path: Path, form: ArchiveFormat, *members: str, packed: int = zipfile.ZIP_DEFLATED, manifest: str = ""
) -> Path:
    with warnings.catch_warnings(), zipfile.ZipFile(path, "w", packed) as archive:
        warnings.simplefilter("ignore", UserWarning)  # zipfile warns of a name that is there twice
        archive.writestr(form.manifest, manifest or json.dumps(form.header()))
        for name in members:
            archive.writestr(name, "x")
    return path


def manifest_in(form: ArchiveFormat, path: Path) -> Any:
    """The manifest of an archive that may have the members a and b."""
    archive, manifest = form.open(path, lambda value: value, lambda _: ["a", "b"])
    archive.close()
    return manifest


@FORMATS
def test_members_of_the_format_are_taken(form: ArchiveFormat, tmp_path: Path) -> None:
    assert manifest_in(form, archive_of(tmp_path / "a.zip", form, "a", "b")) == form.header()


@FORMATS
@pytest.mark.parametrize("left", [0.2, 0.9, 0.99])
def test_a_file_that_is_cut_off_is_refused_as_such(form: ArchiveFormat, tmp_path: Path, left: float) -> None:
    path = archive_of(tmp_path / "a.zip", form, "a", "b")
    path.write_bytes(path.read_bytes()[: int(left * path.stat().st_size)])
    with pytest.raises(
        form.error, match=r"^[^;]*: it is cut off, or no ZIP file: it has no directory;?[^;]*"
    ):
        manifest_in(form, path)


@FORMATS
@pytest.mark.parametrize("members", [("a", "c"), ("a", "a"), ("../a",)])
def test_a_member_of_another_name_or_of_a_name_twice_is_refused(
    form: ArchiveFormat, tmp_path: Path, members: tuple[str, ...]
) -> None:
    path = archive_of(tmp_path / "a.zip", form, *members)
    with pytest.raises(form.error, match="which its manifest lacks"):
        manifest_in(form, path)


@FORMATS
def test_a_member_that_is_packed_in_another_way_is_refused(form: ArchiveFormat, tmp_path: Path) -> None:
    path = archive_of(tmp_path / "a.zip", form, "a", packed=zipfile.ZIP_BZIP2)
    with pytest.raises(form.error, match="packed in a way"):
        manifest_in(form, path)


@FORMATS
def test_an_encrypted_member_is_refused(form: ArchiveFormat, tmp_path: Path) -> None:
    path = archive_of(tmp_path / "a.zip", form, "a")
    data = bytearray(path.read_bytes())
    data[data.rindex(b"PK\x01\x02") + 8] |= 1  # the flags of the last member in the directory
    path.write_bytes(data)
    with pytest.raises(form.error, match="packed in a way"):
        manifest_in(form, path)


@FORMATS
def test_a_content_that_the_file_can_not_hold_is_refused(form: ArchiveFormat, tmp_path: Path) -> None:
    path = archive_of(tmp_path / "a.zip", form, "a")
    data = bytearray(path.read_bytes())
    size = data.rindex(b"PK\x01\x02") + 24  # the unpacked size of the last member in the directory
    data[size : size + 4] = (2**32 - 2).to_bytes(4, "little")
    path.write_bytes(data)
    with pytest.raises(form.error, match="would become"):
        manifest_in(form, path)


@FORMATS
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": "other"}, "of this program"),
        ({"version": 2}, "has version 2"),
        ({"version": "1"}, "has version '1'"),
        (None, "is no whole"),
    ],
)
def test_a_manifest_of_another_format_or_version_is_refused(
    form: ArchiveFormat, tmp_path: Path, changes: dict[str, object] | None, message: str
) -> None:
    manifest = "[" if changes is None else json.dumps(form.header() | changes)
    path = archive_of(tmp_path / "a.zip", form, manifest=manifest)
    with pytest.raises(form.error, match=message) as failure:
        manifest_in(form, path)
    assert isinstance(failure.value, HermesError)
    assert failure.value.remedy


@FORMATS
def test_a_manifest_has_a_limit(form: ArchiveFormat, tmp_path: Path) -> None:
    long = json.dumps(form.header() | {"program": "x" * (form.max_manifest_bytes + 10**6)})
    path = archive_of(tmp_path / "a.zip", form, manifest=long)
    with pytest.raises(form.error, match="longer than"):
        manifest_in(form, path)


def test_a_new_file_has_its_name_only_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "new"
    path.write_bytes(b"old")
    with NewFile(path) as new:
        new.file.write(b"half")
    assert [(one.name, one.read_bytes()) for one in tmp_path.iterdir()] == [("new", b"old")]
    with NewFile(path) as new:
        new.file.write(b"whole")
        new.put_in_place()
    assert [(one.name, one.read_bytes()) for one in tmp_path.iterdir()] == [("new", b"whole")]
