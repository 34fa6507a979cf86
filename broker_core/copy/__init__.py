"""A copy of the data directory in an object store: kept current while the broker runs, or made once (a backup).

copier      `Copier`: the broker's threads that keep the copy
pictures    files of a data directory that belong together at one moment
uploads     a whole directory into the store
restoring   a data directory from a copy; `checking`: its check; `readonly`: its files, opened to read
chain       the objects, described below; `chunks`, `contents`, `marker`: their formats

The objects
-----------

    chunks/<number>            the chain, numbers from 1: its writer, new bytes of files, and sometimes the contents
    objects/<writer>-<n>       bytes of one file: a snapshot, a segment, or a part of one

A chunk is only ever *created*: put if absent (`If-None-Match: *`). If two writers create the same number, one of them succeeds.
The other finds the number taken, reads its writer, and is *fenced*: it stops permanently. A writer puts one chunk at a time, so
the chain has no holes, and ends at its highest number.

The *position* of a chunk is the LSN up to which the log is complete with it, a boundary of groups. Some chunks have contents,
which name for every file of the copy the objects that hold its bytes. Each chunk names the number of the latest contents
(*base*). A restore lists `chunks/`, and reads the last chunk, its base, and the chunks between them. Before the first contents
there is nothing to restore.

Settled messages are dropped from the journal, and then from the copy: new contents omit those segments, together with a snapshot
that does not need them. The bytes of small chunks are put again as one object, and new contents name it. An object that the
contents no longer name is deleted some minutes after those contents are in the chain, because a restore may still use the
contents before. A fenced writer deletes no object of the next writer, because that one began with these contents.

A crash at any time
-------------------

- While an object is put: nothing names it, and the next start of the copier deletes it.
- While a chunk is put: it exists completely, or not at all. After a lost answer the writer tries again with the same bytes, and
  if the number is taken, it reads whose chunk that is. A new life of the same directory has the names (*writers*) of its
  earlier lives (marker.py), and treats such a chunk as its own.
- Between contents and deletions: the next start deletes the objects that nothing names.

The broker's disk remains authoritative. A start compares it with the copy and puts the missing bytes. A copy that holds more of
the log than the directory is not overwritten: the directory is then an older one.

sync and async
--------------

With `sync` no reply leaves before the disk and the copy have the state behind it. If the store is unavailable, producers wait,
and are refused with a reason after a minute. With `async` a chunk is put after 16 MiB, or after a second. If a segment is dropped
before it was copied, the copy begins again from the latest snapshot, and keeps its old contents until that is complete. Every
failed request is repeated without end, after 0.2 to 30 s.

Memory: a chunk (16 MiB), and an object (64 MiB) in parts.
"""
