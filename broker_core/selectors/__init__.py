"""Message selectors: the conditions of JMS 2.0 (`apache.org:selector-filter:string`), compiled once and evaluated on columns.

Parsing needs neither numpy nor pyarrow.

lexer, parser, syntax         from text to tree
names                         identifiers: fields and application properties
lookalikes                    properties with the name of a field, and the hint that names the field
selector                      the compiled selector, evaluated on a payload
evaluation, truth, numerals   operators on columns
like_patterns, like_search    LIKE: its patterns, and the search in many texts
operands, values              the value of an expression in many messages: of any type, and of one type
column_operands               operands from columnar payloads
encoded_operands              operands from encoded messages, in vectors
decoded_operands              operands from encoded messages, one at a time

A selector depends only on values that do not change while a message waits. Its matches can therefore be computed once for each
block of a queue.
"""

from .lexer import is_blank
from .lookalikes import Presence
from .selector import Selector, hints_of, matches, parse, parse_optional, presence_of

__all__ = ["Presence", "Selector", "hints_of", "is_blank", "matches", "parse", "parse_optional", "presence_of"]
