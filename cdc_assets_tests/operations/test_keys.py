"""Find the key of a table from its rows and statements."""

from collections.abc import Callable

from cdc_assets.operations.keys import find_key_columns
from cdc_assets_tests.support import Chain, Rows, Stream, ddl, dml, tso


def test_a_table_without_rows_under_its_new_name_has_the_key_that_it_had(chain: Callable[..., Chain]) -> None:
    made, it = chain(), Stream()
    it.send(ddl("CREATE TABLE `orders` (`id` BIGINT PRIMARY KEY, `v` VARCHAR(20))", tso(1)))
    it.send(ddl("CREATE TABLE `pairs` (`a` INT, `b` INT, PRIMARY KEY (`a`, `b`))", tso(2), table="pairs"))
    it.send(Rows().insert(tso(3), 1, "x"))
    it.send(dml("INSERT", tso(4), {"a": "1", "b": "2"}, {"a": "int", "b": "int"}, key=("a", "b"), table="pairs"))
    swap = "RENAME TABLE `orders` TO `old`, `pairs` TO `orders`"
    it.send(ddl(swap, tso(5), ddl_type="RENAME"))
    it.watermark(tso(9))
    made.add(it.records)
    made.run()
    assert find_key_columns(made.lake, "shop", "orders") == [["a", "b"], ["id"]]
    assert find_key_columns(made.lake, "shop", "old") == [["id"]]
