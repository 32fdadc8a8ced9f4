"""Compression."""

import builtins
import gzip

GzipFile = gzip.GzipFile


def open(filename, mode="rb", compresslevel=9):
    """Open a compressed file."""
    return gzip.open(filename, mode, compresslevel)


def open_fileobj(fileobj, mode="rb", compresslevel=9):
    """Read or write compressed data of an open file."""
    return gzip.GzipFile(filename="", mode=mode, fileobj=fileobj, compresslevel=compresslevel)


def compress(data, compresslevel=9):
    """Return data compressed."""
    return gzip.compress(data, compresslevel)


def uncompress(data):
    """Return what compressed data has."""
    return gzip.decompress(data)


def compress_file(fh_, compresslevel=9, chunk_size=1048576):
    """Yield the parts of a file, each compressed."""
    file = fh_ if hasattr(fh_, "read") else builtins.open(fh_, "rb")
    with file:
        while True:
            data = file.read(chunk_size)
            if not data:
                return
            yield compress(data, compresslevel)
