package cdc_assets

import java.util.{ArrayList, List => JavaList}

import py4j.Gateway

/** What PySpark does in a call to the JVM for each object, in one for many.
  *
  * Objects are told by the names under which Py4J's gateway knows them, with a blank between two.
  */
object Calls {

  /** These objects as a list. */
  def list(gateway: Gateway, names: String): JavaList[Object] = {
    val found = new ArrayList[Object]
    for (name <- names.split(' ')) found.add(gateway.getObject(name))
    found
  }

  /** These texts as a list; `between` stands between two, and in none of them. */
  def texts(joined: String, between: String): JavaList[String] = {
    val found = new ArrayList[String]
    var from = 0
    var until = joined.indexOf(between)
    while (until >= 0) {
      found.add(joined.substring(from, until))
      from = until + between.length
      until = joined.indexOf(between, from)
    }
    found.add(joined.substring(from))
    found
  }

  /** Nobody asks for these objects any more. */
  def forget(gateway: Gateway, names: String): Unit = names.split(' ').foreach(gateway.deleteObject)
}
