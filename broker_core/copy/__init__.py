"""A copy of the data directory in an object store: kept current while the broker runs, or made once (a backup).

copier      the broker's threads that keep the copy
pictures    files of a data directory that belong together at one moment
uploads     a whole directory into the store
restoring   a data directory from a copy
checking    a check of a data directory; `readonly` opens it
chain       the objects, described below; `chunks`, `contents`, `marker`: their formats

The objects
-----------

    chunks/<number>            the chain, numbers from 1: its writer, new bytes of files, and sometimes the contents
    objects/<writer>-<n>       bytes of one file: a snapshot, a segment, or a part of one

A chunk is put only if it is absent (`If-None-Match: *`). If two writers put the same number, one of them succeeds. The other
reads whose chunk it is, and is *fenced*: it stops permanently. A writer puts one chunk at a time, so the chain has no holes, and
ends at its highest number.

The *position* of a chunk is the LSN up to which the log is complete with it, a boundary of groups. Some chunks have contents: for
every file of the copy, the objects with its bytes. Each chunk has the number of the latest contents (*base*). A restore lists
`chunks/`, and reads the chunks from the last one's base on. Before the first contents there is nothing to restore.

If the journal drops segments, new contents omit them, together with a snapshot that does not need them. The bytes of small chunks
are put again as one object, and new contents name it. An object that the contents no longer name is deleted some minutes later,
because a restore may still use the contents before. A fenced writer deletes no object of the next writer, which began with the
same contents.

A crash at any time
-------------------

- While an object is put: nothing names it, and the next start of the copier deletes it.
- While a chunk is put: it exists completely, or not at all. After a lost answer the writer tries again with the same bytes, and
  if the number is taken, it reads whose chunk that is. A new life of the same directory has the names (*writers*) of its
  earlier lives (marker.py), so it recognizes their chunks.
- Between contents and deletions: the next start deletes the objects that nothing names.

The broker's disk remains authoritative. A start puts the bytes that the copy lacks. A copy with more of the log than the
directory is not overwritten: the directory is then an older one.

sync and async
--------------

With `sync`, a reply waits for the disk and the copy. If the store is unavailable, producers wait, and are refused with a reason
after a minute. With `async`, a chunk is put after 16 MiB, or after a second. If a segment is dropped before it was copied, the
copy begins again from the latest snapshot, and keeps its old contents until that is complete. A failed request is repeated
without end, after 0.2 to 30 s.

Memory: a chunk (16 MiB), and an object (64 MiB) in parts.
"""
