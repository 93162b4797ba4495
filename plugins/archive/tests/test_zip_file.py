"""ZIP files with a manifest: which members a format takes, and a file that is whole or absent."""

from __future__ import annotations

import json
import warnings
import zipfile
from pathlib import Path

import pytest

from hermes_memory_archive.archive import FORMAT as EXPORT
from hermes_memory_archive.backup import FORMAT as BACKUP
from hermes_memory_archive.zip_file import (
    MANIFEST_ERRORS,
    ArchiveFormat,
    ForeignFormat,
    MemberError,
    NewerVersion,
    NewFile,
)

FORMATS = pytest.mark.parametrize("form", [BACKUP, EXPORT], ids=["backup", "export"])


def archive_of(
    path: Path, form: ArchiveFormat, *members: str, packed: int = zipfile.ZIP_DEFLATED, manifest: str = ""
) -> zipfile.ZipFile:
    with warnings.catch_warnings(), zipfile.ZipFile(path, "w", packed) as archive:
        warnings.simplefilter("ignore", UserWarning)  # zipfile warns of a name that is there twice
        archive.writestr(form.manifest, manifest or json.dumps(form.header()))
        for name in members:
            archive.writestr(name, "x")
    return zipfile.ZipFile(path)


@FORMATS
def test_members_of_the_format_are_taken(form: ArchiveFormat, tmp_path: Path) -> None:
    with archive_of(tmp_path / "a.zip", form, "a", "b") as archive:
        form.check_members(archive, {"a", "b"}.__contains__)
        assert form.read_manifest(archive) == form.header()
        assert form.unpacked_bytes(archive, tmp_path / "a.zip") == (len(json.dumps(form.header())) + 2, True)


@FORMATS
@pytest.mark.parametrize("members", [("a", "c"), ("a", "a"), ("../a",)])
def test_a_member_of_another_name_or_of_a_name_twice_is_refused(
    form: ArchiveFormat, tmp_path: Path, members: tuple[str, ...]
) -> None:
    with archive_of(tmp_path / "a.zip", form, *members) as archive, pytest.raises(MemberError):
        form.check_members(archive, {"a", "b"}.__contains__)


@FORMATS
def test_a_member_that_is_packed_in_another_way_is_refused(form: ArchiveFormat, tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    with (
        archive_of(path, form, "a", packed=zipfile.ZIP_BZIP2) as archive,
        pytest.raises(MemberError, match="packed"),
    ):
        form.check_members(archive, {"a"}.__contains__)


@FORMATS
def test_an_encrypted_member_is_refused(form: ArchiveFormat, tmp_path: Path) -> None:
    with archive_of(tmp_path / "a.zip", form, "a") as archive:
        archive.getinfo("a").flag_bits |= 1
        with pytest.raises(MemberError, match="packed"):
            form.check_members(archive, {"a"}.__contains__)


@FORMATS
def test_a_content_that_the_file_can_not_hold_is_named(form: ArchiveFormat, tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    with archive_of(path, form, "a") as archive:
        archive.getinfo("a").file_size = form.max_ratio * path.stat().st_size + form.free_bytes + 1
        assert not form.unpacked_bytes(archive, path)[1]


@FORMATS
@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"format": "other"}, ForeignFormat),
        ({"version": 2}, NewerVersion),
        ({"version": "1"}, NewerVersion),
        (None, MANIFEST_ERRORS),
    ],
)
def test_a_manifest_of_another_format_or_version_is_refused(
    form: ArchiveFormat,
    tmp_path: Path,
    changes: dict[str, object] | None,
    error: type[Exception] | tuple[type[Exception], ...],
) -> None:
    manifest = "[" if changes is None else json.dumps(form.header() | changes)
    with archive_of(tmp_path / "a.zip", form, manifest=manifest) as archive, pytest.raises(error):
        form.read_manifest(archive)


@FORMATS
def test_a_manifest_has_a_limit(form: ArchiveFormat, tmp_path: Path) -> None:
    long = json.dumps(form.header() | {"program": "x" * (form.max_manifest_bytes + 10**6)})
    with (
        archive_of(tmp_path / "a.zip", form, manifest=long) as archive,
        pytest.raises(ValueError, match="longer than"),
    ):
        form.read_manifest(archive)


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
