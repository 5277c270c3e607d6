"""A small shop on a MariaDB server: it inserts, updates and deletes rows, and alters its tables now and then.

It can run for hours: it deletes its oldest orders, and adds only so many columns.
"""

import random
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import cycle
from pathlib import Path

from cdc_assets_tests.mariadb import MariaDB

DATABASE = "shop"
TABLES = ("customers", "orders", "items", "carts")
_CREATE = f"""
CREATE DATABASE {DATABASE} CHARACTER SET utf8mb4;
USE {DATABASE};
CREATE TABLE customers (id int PRIMARY KEY, name varchar(60) NOT NULL, city varchar(60), phone varchar(30));
CREATE TABLE orders (id int PRIMARY KEY, customer_id int NOT NULL, status enum({{statuses}}) NOT NULL,
  total decimal(10,2) NOT NULL, placed_at datetime NOT NULL);
CREATE TABLE items (order_id int, line smallint, product varchar(60) NOT NULL, quantity smallint NOT NULL,
  price decimal(8,2) NOT NULL, PRIMARY KEY (order_id, line));
CREATE TABLE carts (id int PRIMARY KEY, customer_id int NOT NULL, product varchar(60) NOT NULL)
"""
_STATUSES = ("placed", "paid", "packed", "shipped", "delivered")
_NAMES = ("Ada", "Björn", "Chiara", "Dilnoza", "Emeka", "Fatma", "Gao Li", "Hana", "Ines", "Jacek", "Kim", "Lars")
_CITIES = ("Berlin", "Kraków", "Lagos", "Lima", "Osaka", "Tashkent", "Zürich")
_PRODUCTS = {"apron": 19, "bowl": 12, "candle": 7, "desk": 240, "easel": 65, "fork": 3, "globe": 48, "hammock": 85}
_FIRST_ORDERS, _MOST_ORDERS = 20, 200
_MOST_ADDED_COLUMNS = 12
_WIDENED = (
    "MODIFY COLUMN quantity int NOT NULL",
    "MODIFY COLUMN price decimal(10,2) NOT NULL",
    "MODIFY COLUMN quantity bigint NOT NULL",
    "MODIFY COLUMN price decimal(12,2) NOT NULL",
)


def _schema_changes() -> Iterator[tuple[str, str | None]]:
    """Yield statements that change the tables, without end, each with the added column that `orders` has after it."""
    for number in range(1, _MOST_ADDED_COLUMNS + 1):
        added, renamed = f"channel_{number}", f"source_{number}"
        yield f"ALTER TABLE orders ADD COLUMN {added} varchar(20) NOT NULL DEFAULT 'web'", added
        if number <= len(_WIDENED):
            yield f"ALTER TABLE items {_WIDENED[number - 1]}", added
        yield f"ALTER TABLE orders MODIFY COLUMN {added} varchar(40) NOT NULL DEFAULT 'web'", added
        yield f"ALTER TABLE orders RENAME COLUMN {added} TO {renamed}", renamed
        yield "TRUNCATE TABLE carts", renamed
        yield f"ALTER TABLE orders DROP COLUMN {renamed}", None
    rename = "ALTER TABLE customers RENAME COLUMN {} TO {}"
    names = ("phone", "telephone")
    yield from cycle(
        [(rename.format(*names), None), ("TRUNCATE TABLE carts", None), (rename.format(*names[::-1]), None)]
    )


class Shop:
    """The shop, and the log of its statements."""

    def __init__(self, server: MariaDB, log: Path, rng: random.Random) -> None:
        """Make the tables, and their first rows."""
        server.run("SET GLOBAL binlog_format = 'ROW'", "SET GLOBAL time_zone = '+00:00'")
        self._cursor = server.connect().cursor()
        self._log, self._rng = log, rng
        self._statements = _schema_changes()
        self._added: str | None = None  # a column of `orders` beside the first ones
        self._orders = self._carts = 0  # how many there have been
        for statement in _CREATE.format(statuses=", ".join(f"'{each}'" for each in _STATUSES)).split(";"):
            self._cursor.execute(statement)
        for number, name in enumerate(_NAMES, 1):
            self._execute(
                "INSERT INTO customers VALUES (%s, %s, %s, %s)", number, name, rng.choice(_CITIES), f"555-{number:04}"
            )
        for _ in range(_FIRST_ORDERS):
            self._place_order()

    def change_rows(self) -> None:
        """Insert, update or delete something."""
        choices = (self._place_order, self._advance_order, self._remove_order, self._move_customer, self._change_cart)
        (change,) = self._rng.choices(choices, weights=(3, 6, 1, 1, 3))
        change()
        if len(orders := self._numbers("SELECT id FROM orders ORDER BY id")) > _MOST_ORDERS:
            self._delete(orders[0])

    def change_schema(self) -> str:
        """Execute the next statement that changes the tables, and return it."""
        statement, self._added = next(self._statements)
        self._execute(statement)
        return statement

    def newest_order(self) -> int:
        """Return the number of the order that is placed last of those that there are."""
        return self._numbers("SELECT max(id) FROM orders")[0]

    def _place_order(self) -> None:
        self._orders += 1
        products = self._rng.sample(sorted(_PRODUCTS), self._rng.randint(1, 3))
        quantities = [self._rng.randint(1, 4) for _ in products]
        total = sum(n * _PRODUCTS[each] for n, each in zip(quantities, products, strict=True))
        columns, values = "id, customer_id, status, total, placed_at", [
            self._orders, self._customer(), _STATUSES[0], total, datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S"),
        ]  # fmt: skip
        if self._added:
            columns, values = f"{columns}, {self._added}", [*values, self._rng.choice(["web", "phone", "store"])]
        self._cursor.execute("BEGIN")
        self._execute(f"INSERT INTO orders ({columns}) VALUES ({', '.join(['%s'] * len(values))})", *values)
        for line, (product, quantity) in enumerate(zip(products, quantities, strict=True), 1):
            row = self._orders, line, product, quantity, _PRODUCTS[product]
            self._execute("INSERT INTO items VALUES (%s, %s, %s, %s, %s)", *row)
        self._cursor.execute("COMMIT")

    def _advance_order(self) -> None:
        """Give one of the newest orders its next status."""
        self._cursor.execute(
            "SELECT id, status FROM orders WHERE status <> %s ORDER BY id DESC LIMIT 20", _STATUSES[-1]
        )
        if rows := self._cursor.fetchall():
            order, status = self._rng.choice(rows)
            following = _STATUSES[_STATUSES.index(status) + 1]
            self._execute("UPDATE orders SET status = %s WHERE id = %s", following, order)

    def _remove_order(self) -> None:
        self._delete(self._rng.choice(self._numbers("SELECT id FROM orders")))

    def _delete(self, order: int) -> None:
        self._cursor.execute("BEGIN")
        self._execute("DELETE FROM items WHERE order_id = %s", order)
        self._execute("DELETE FROM orders WHERE id = %s", order)
        self._cursor.execute("COMMIT")

    def _move_customer(self) -> None:
        self._execute("UPDATE customers SET city = %s WHERE id = %s", self._rng.choice(_CITIES), self._customer())

    def _change_cart(self) -> None:
        carts = self._numbers("SELECT id FROM carts")
        product = self._rng.choice(sorted(_PRODUCTS))
        if len(carts) > 10:
            self._execute("DELETE FROM carts WHERE id = %s", self._rng.choice(carts))
        elif carts and self._rng.random() < 0.5:
            self._execute("UPDATE carts SET product = %s WHERE id = %s", product, self._rng.choice(carts))
        else:
            self._carts += 1
            self._execute("INSERT INTO carts VALUES (%s, %s, %s)", self._carts, self._customer(), product)

    def _customer(self) -> int:
        return self._rng.randint(1, len(_NAMES))

    def _numbers(self, query: str) -> list[int]:
        self._cursor.execute(query)
        return [number for (number,) in self._cursor.fetchall()]

    def _execute(self, statement: str, *values: object) -> None:
        """Execute a statement, and add it to the log."""
        text = self._cursor.mogrify(statement, values)
        self._cursor.execute(text)
        with self._log.open("a") as log:
            log.write(f"{datetime.now(UTC):%H:%M:%S} {text};\n")
