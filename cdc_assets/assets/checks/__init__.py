"""The verdicts of the asset checks, made from what a stage reports and from what the tables hold.

A function that makes a check's verdict has the name of that check, or of the part of `conservation` that it covers;
`schemas_arrived` makes the verdict of `schema_known`.
"""
