"""Tables as data, which each engine renders in its own types.

>>> Table("places", (text("name", key=True), integer("size", 0)), (Index("places_by_size", "size"),)).column_names
('name', 'size')
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

ColumnType = Literal["number", "text", "integer", "real", "blob"]
"""Types of columns. A "number" is the primary key that the database gives, ascending and never twice."""


class Column(Struct, frozen=True):
    """A column of a table.

    Attributes:
        default: SQL of the default; "" for none.
        null: True if the column may be NULL.
        key: True for a primary key of one column.
        unique: True if no two rows may have the same value.
        references: Table and column that it refers to, as "sessions (key)". A row goes with the row that it refers to.
        check: SQL condition of the values; "" for none.
    """

    name: str
    type: ColumnType
    default: str = ""
    null: bool = False
    key: bool = False
    unique: bool = False
    references: str = ""
    check: str = ""


class Index(Struct, frozen=True):
    """An index of a table.

    Attributes:
        columns: SQL of the columns or expressions.
        where: SQL condition of the rows in it; "" for all.
    """

    name: str
    columns: str
    where: str = ""
    unique: bool = False

    def statement(self, table: str) -> str:
        """Return the statement that makes the index, in the SQL of all engines."""
        where = f" WHERE {self.where}" if self.where else ""
        return (
            f"CREATE {'UNIQUE ' if self.unique else ''}INDEX {self.name} ON {table} ({self.columns}){where}"
        )


class Trigger(Struct, frozen=True):
    """Statements that run for each row after an event of a table.

    Attributes:
        event: INSERT, DELETE or UPDATE OF a column.
        body: Statements in the SQL of all engines, each with a semicolon at its end. `{now}` is the word of the dialect.
    """

    name: str
    event: str
    body: str


class Table(Struct, frozen=True):
    """A table with its indexes and triggers.

    Attributes:
        key: The columns of its primary key, if these are several.
        unique: Columns of which no two rows may have the same values.
        fill: Percentage of a page that a server fills at first, for tables whose rows change often; 0 for its default.
    """

    name: str
    columns: tuple[Column, ...]
    indexes: tuple[Index, ...] = ()
    key: tuple[str, ...] = ()
    unique: tuple[str, ...] = ()
    triggers: tuple[Trigger, ...] = ()
    fill: int = 0

    @property
    def column_names(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(column.name for column in self.columns)

    @property
    def key_columns(self) -> tuple[str, ...]:
        """The columns of the primary key."""
        return self.key or tuple(
            column.name for column in self.columns if column.key or column.type == "number"
        )


def number(name: str) -> Column:
    """Return the primary key that the database gives."""
    return Column(name, "number")


def text(
    name: str, default: str | None = None, *, null: bool = False, key: bool = False, unique: bool = False
) -> Column:
    """Return a column of text."""
    sql = "" if default is None else f"'{default}'"
    return Column(name, "text", sql, null=null, key=key, unique=unique)


def texts(*names: str) -> tuple[Column, ...]:
    """Return columns of text whose default is ""."""
    return tuple(text(name, "") for name in names)


def integer(
    name: str, default: int | None = None, *, references: str = "", null: bool = False, key: bool = False
) -> Column:
    """Return a column of whole numbers."""
    sql = "" if default is None else str(default)
    return Column(name, "integer", sql, null=null, key=key, references=references)


def real(name: str, default: int | None = None, *, null: bool = False) -> Column:
    """Return a column of floating-point numbers, such as times in epoch seconds."""
    return Column(name, "real", "" if default is None else str(default), null=null)


def render_table(table: Table, types: dict[ColumnType, str], options: str = "") -> list[str]:
    """Return the statements that make a table and its indexes.

    Args:
        types: The types of the engine.
        options: What stands behind the columns.
    """
    lines = [_column_sql(column, types) for column in table.columns]
    if table.key:
        lines.append(f"PRIMARY KEY ({', '.join(map(quoted, table.key))})")
    if table.unique:
        lines.append(f"UNIQUE ({', '.join(map(quoted, table.unique))})")
    create = f"CREATE TABLE {table.name} ({', '.join(lines)}){options}"
    return [create, *(index.statement(table.name) for index in table.indexes)]


def quoted(name: str) -> str:
    """Return the name of a column as SQL. Some are words of one of the engines."""
    return f'"{name}"'


def _column_sql(column: Column, types: dict[ColumnType, str]) -> str:
    parts = [quoted(column.name), types[column.type]]
    if column.key:
        parts.append("PRIMARY KEY")
    if not column.null and column.type != "number":
        parts.append("NOT NULL")
    if column.default:
        parts.append(f"DEFAULT {column.default}")
    if column.unique:
        parts.append("UNIQUE")
    if column.references:
        parts.append(f"REFERENCES {column.references} ON DELETE CASCADE")
    if column.check:
        parts.append(f"CHECK ({column.check})")
    return " ".join(parts)
