package cdc_assets

import org.apache.spark.sql.SparkSessionExtensions
import org.apache.spark.sql.catalyst.FunctionIdentifier
import org.apache.spark.sql.catalyst.expressions.{Expression, ExpressionInfo, Literal}
import org.apache.spark.sql.catalyst.expressions.objects.{Invoke, StaticInvoke}
import org.apache.spark.sql.types.{ArrayType, BinaryType, BooleanType, DataType, StringType}

/** This package's own functions, for every session: `spark.sql.extensions` names this class, `expressions.py` has their names.
  *
  * As expressions of Spark's own and not as functions of a user, which get each value converted, and so copied, and have to be
  * registered with each session.
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
    "cdc_json_message" -> { case Seq(value, wanted, returns) => called(new JsonMessage(text(wanted)), "read", kind(returns), value) },
    "cdc_json_row" -> { case Seq(image, names, returns) => called(new JsonRow(text(names)), "read", kind(returns), image) },
    "cdc_json_overlay" -> (static(classOf[JsonTexts], "overlay", StringType, _)),
    "cdc_json_long_number" -> (static(classOf[JsonTexts], "longNumber", BooleanType, _)),
    "cdc_json_document" -> (static(classOf[JsonTexts], "isDocument", BooleanType, _)),
    "cdc_json_names" -> (static(classOf[JsonTexts], "names", ArrayType(StringType), _)),
    "cdc_json_key" -> (static(classOf[JsonTexts], "key", StringType, _)),
    "cdc_frames" -> { case Seq(key, value, version, most, returns) =>
      // A record without a value, or a key, has frames, too, or says what it lacks.
      Invoke(Literal.fromObject(new Frames(number(version), number(most))), "cut", kind(returns), Seq(key, value), propagateNull = false)
    },
    "cdc_unpacked" -> (static(classOf[Unpacked], "unpacked", BinaryType, _)),
    "cdc_key_order" -> { case Seq(byPlace, trimmed, pieceFields, appliedFields, returns, pieces, applied, replaying, tableNewest) =>
      val order = new KeyOrder(byPlace.eval().asInstanceOf[Boolean], trimmed.eval().asInstanceOf[Long], number(pieceFields), number(appliedFields))
      called(order, "judge", kind(returns), pieces, applied, replaying, tableNewest)
    },
    "cdc_remarks" -> { case Seq(shape, image, branches, layouts, wired, returns) =>
      called(new Remarks(text(layouts), wired.eval().asInstanceOf[Boolean]), "of", kind(returns), shape, image, branches)
    },
  )

  private def static(of: Class[_], method: String, returns: DataType, given: Seq[Expression]) = StaticInvoke(of, returns, method, given)

  private def called(on: AnyRef, method: String, returns: DataType, given: Expression*) =
    Invoke(Literal.fromObject(on), method, returns, given)

  private def text(told: Expression): String = told.eval().toString
  private def number(told: Expression): Int = told.eval().asInstanceOf[Int]
  private def kind(told: Expression): DataType = DataType.fromJson(text(told))
}
