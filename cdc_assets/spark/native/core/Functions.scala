package cdc_assets

import org.apache.spark.sql.SparkSessionExtensions
import org.apache.spark.sql.catalyst.FunctionIdentifier
import org.apache.spark.sql.catalyst.expressions.{Expression, ExpressionInfo, Literal}
import org.apache.spark.sql.catalyst.expressions.objects.{Invoke, StaticInvoke}
import org.apache.spark.sql.types.{ArrayType, BinaryType, BooleanType, DataType, StringType}

/** Registers this package's native functions in every session: `spark.sql.extensions` names this class.
  *
  * The functions are expressions, not user-defined functions: these would convert and copy each value, and would have to be
  * registered with each session. Python calls them by name with `call_function`. The last argument of some functions is their
  * result type as JSON.
  */
class Functions extends (SparkSessionExtensions => Unit) {
  import Functions._

  override def apply(sessions: SparkSessionExtensions): Unit =
    for ((name, build) <- All)
      sessions.injectFunction((FunctionIdentifier(name), new ExpressionInfo(getClass.getName, name), build))
}

private object Functions {
  private type Build = Seq[Expression] => Expression

  private val All: Seq[(String, Build)] = Seq(
    "cdc_json_message" -> { case Seq(value, types, returns) => method(new JsonMessage(text(types)), "read", dataType(returns), value) },
    "cdc_json_row" -> { case Seq(image, names, returns) => method(new JsonRow(text(names)), "read", dataType(returns), image) },
    "cdc_json_overlay" -> (static(classOf[JsonTexts], "overlay", StringType, _)),
    "cdc_json_long_number" -> (static(classOf[JsonTexts], "longNumber", BooleanType, _)),
    "cdc_json_document" -> (static(classOf[JsonTexts], "isDocument", BooleanType, _)),
    "cdc_json_names" -> (static(classOf[JsonTexts], "names", ArrayType(StringType), _)),
    "cdc_json_key" -> (static(classOf[JsonTexts], "key", StringType, _)),
    "cdc_decimal_digits" -> (static(classOf[Decimals], "unscaled", StringType, _)),
    "cdc_plain_number" -> (static(classOf[Decimals], "plain", StringType, _)),
    "cdc_open_protocol_events" -> { case Seq(key, value, version, maxEvents, returns) =>
      val splitter = Literal.fromObject(new OpenProtocolEvents(int(version), int(maxEvents)))
      // Nulls are passed on: a record without a value has events, and one without a key has an error.
      Invoke(splitter, "split", dataType(returns), Seq(key, value), propagateNull = false)
    },
    "cdc_decompress" -> (static(classOf[Decompression], "decompress", BinaryType, _)),
    "cdc_key_order" -> { case Seq(byPlace, trimmed, pieceFields, appliedFields, returns, pieces, applied, replaying, tableNewest, rowEnds) =>
      val order = new KeyOrder(byPlace.eval().asInstanceOf[Boolean], trimmed.eval().asInstanceOf[Long], int(pieceFields), int(appliedFields))
      method(order, "judge", dataType(returns), pieces, applied, replaying, tableNewest, rowEnds)
    },
    "cdc_check_values" -> { case Seq(shape, image, branches, layouts, wired, returns) =>
      val checks = new ValueChecks(text(layouts), wired.eval().asInstanceOf[Boolean])
      method(checks, "check", dataType(returns), shape, image, branches)
    },
  )

  private def static(owner: Class[_], name: String, returns: DataType, arguments: Seq[Expression]) = StaticInvoke(owner, returns, name, arguments)

  private def method(receiver: AnyRef, name: String, returns: DataType, arguments: Expression*) =
    Invoke(Literal.fromObject(receiver), name, returns, arguments)

  private def text(literal: Expression): String = literal.eval().toString
  private def int(literal: Expression): Int = literal.eval().asInstanceOf[Int]
  private def dataType(literal: Expression): DataType = DataType.fromJson(text(literal))
}
