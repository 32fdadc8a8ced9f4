"""Repositories of Debian packages."""


def combine_comments(comments):
    """Return comments as one text."""
    if not isinstance(comments, list):
        comments = [comments]
    return " ".join(c.lstrip("#").strip() for c in comments)


def strip_uri(repo):
    """Return a line of a repository whose URL does not end in a slash."""
    words = repo.split()
    return " ".join(w.rstrip("/") if ":/" in w else w for w in words)
