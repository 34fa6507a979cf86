"""Message selectors: JMS 2.0's conditions (`apache.org:selector-filter:string`), compiled once and evaluated on columns.

`parse` gives a `Selector`, `matches` the rows of a stored payload that it matches. From text to tree go `lexer`, `parser` and
`syntax`. `names` says what identifiers mean, `evaluate` what the operators do (on `operands` and `truth`, with `patterns` and
`numerals`), `columnar` and `encoded` (with `typed` and `single`) where values come from. To parse, neither numpy nor pyarrow is
needed.

A selector sees what stays as it is while a message waits. So what it matches can be evaluated once for each block of a queue.
"""

from penstock.broker_core.selectors.selector import Selector, matches, parse

__all__ = ["Selector", "matches", "parse"]
