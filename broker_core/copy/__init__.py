"""A copy of the data directory in an object store: kept up to date while the broker runs, or made once (a backup).

copier            `Copier`: the broker's threads that keep the copy; the lag; begin here
pictures          which files of a data directory belong together at one moment, also while a broker writes them
uploads           a whole directory into the store: the beginning of a copy, a backup
chain             `Chain`: one attempt to claim the copy, to add a chunk, to delete what is not needed
chunks            the format of a chunk
contents          `Contents`: which bytes of which object are which file; pure
marker            which copies this directory has written
restoring         a data directory from a copy
checking          reads all of a data directory, and says what is damaged
readonly          a data directory that is only read, perhaps beside a running broker

The objects
-----------
    chunks/<number>            the chain, numbers from 1: who has written it, new bytes of files, and now and then the contents
    objects/<writer>-<n>       bytes of one file: a snapshot, a segment, or a part of one

A chunk is only ever *created*: put if absent (`If-None-Match: *`), which S3, Azure, Google and a directory can do. That one
primitive decides everything. Two writers that do not know of each other want to create the same number: one of them succeeds,
the other finds the number taken, reads who took it, and is *fenced*: it stops for good. There is one put at a time, so the
chain has no holes: it ends at its highest number.

A chunk has bytes of files, mostly of the last segment, and says up to which LSN the log is complete with it (*position*, a
boundary of groups). Where it has contents, these say of every file of the copy which bytes of which object it consists of; all
that the chunks after it say is added to them. Each chunk names the number of the latest contents (*base*). So a restore lists
`chunks/`, reads the last chunk, its base, and what is between the two, and then knows each file. Before the first contents
there is nothing to restore.

What was settled is dropped from the journal, and then from the copy: by new contents without those segments, only together with
a snapshot that does without them. Small chunks are merged: their bytes are put again as one object, and new contents name
that. An object that the contents name no longer is deleted some minutes after those contents are in the chain, since somebody
may be restoring by the ones before. Who is fenced deletes nothing of the next writer's: that one began with these contents.

A crash anywhere
----------------
- while an object is put: nothing names it; the next start of the copier deletes it;
- while a chunk is put: it is there, whole, or not. Its writer does not know which: after a lost answer it tries again with the
  same bytes, and when the number is taken, it reads whose chunk that is. A new life of the same directory knows the names
  (*writers*) of its earlier lives (marker.py), and takes such a chunk as its own;
- between contents and deletions: the next start deletes what nothing names.

The broker's disk stays the truth. A start compares it with the copy and puts what is missing. A copy that holds more of the log
than the directory is not written over: the directory is then an older one.

sync and async
--------------
With `sync` the journal is durable up to min(on the disk, in the copy): no answer leaves before both have what it was decided
on. When the store is away, producers wait, are refused after a minute, and the refusal says why. With `async` the copy follows:
a chunk is put when 16 MiB have come, or a second has gone by. When the store is away the lag grows, log and `status` say so,
and nothing else happens. Where a segment is dropped before it was copied, the copy begins anew from the latest snapshot, and
keeps its old contents until that is complete. Every failed request is tried again, for ever, after 0.2 to 30 s.

Memory: a chunk (16 MiB), and an object (64 MiB) in parts.
"""
