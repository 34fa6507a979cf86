"""Message selectors: the conditions of JMS 2.0 (`apache.org:selector-filter:string`), compiled once and evaluated on columns.

`parse` returns a `Selector`; `matches` returns the rows of a stored payload that it matches. Parsing needs neither numpy nor
pyarrow.

lexer, parser, syntax                 from text to tree
names                                 identifiers: fields and application properties
lookalikes                            properties that are named like a field, and the hint that names the field
evaluate, truth, patterns, numerals   operators on columns
search                                LIKE in many texts
operands                              the value of an expression in many messages, of any type
values                                numbers, texts and booleans in many messages
columnar, encoded, typed, single      operands from the two forms of a payload
selector                              the compiled selector

A selector reads only what does not change while a message waits. So its matches can be computed once for each block of a queue.
"""

from .lexer import is_blank
from .lookalikes import Presence
from .selector import Selector, hints_of, matches, parse, parse_optional, presence_of

__all__ = ["Presence", "Selector", "hints_of", "is_blank", "matches", "parse", "parse_optional", "presence_of"]
