"""Message selectors of JMS 2.0 (`apache.org:selector-filter:string`), evaluated on columns. Parsing needs neither numpy nor
pyarrow.

lexer, parser, syntax         from text to tree
names                         fields and application properties
lookalikes                    properties with the name of a field, and hints
selector                      the compiled selector, evaluated on a payload
evaluation, truth, numerals   operators on columns
like_patterns, like_search    LIKE
operands, values              values of an expression in many messages: of any type, and of one
column_operands               operands from columns
encoded_operands              operands from encoded messages, in vectors
decoded_operands              operands from encoded messages, one at a time

A selector depends only on values that do not change while a message waits. So matches are computed once for each block.
"""

from .lexer import is_blank
from .lookalikes import Presence
from .selector import Selector, hints_of, matches, parse, parse_optional, presence_of

__all__ = ["Presence", "Selector", "hints_of", "is_blank", "matches", "parse", "parse_optional", "presence_of"]
