"""URLs of file servers."""

import urllib.parse
from urllib.parse import urlparse, urlunparse  # noqa: F401


def parse(url):
    """Return the path and the environment of a URL."""
    if not url.startswith("salt://"):
        return url, None
    path = url[len("salt://"):]
    for mark in ("?env=", "?saltenv="):
        if mark in path:
            path, _, saltenv = path.partition(mark)
            return path, saltenv
    return path, None


def create(path, saltenv=None):
    """Return the URL of a path."""
    url = "salt://" + path.lstrip("/")
    return url + "?saltenv=" + saltenv if saltenv else url


def validate(url, protos):
    """Report whether a URL has one of some schemes."""
    return not url or urllib.parse.urlparse(url).scheme in protos


def split_env(url):
    """Return a URL and its environment."""
    path, saltenv = parse(url)
    return ("salt://" + path if url.startswith("salt://") else path), saltenv


def add_env(url, saltenv):
    """Return a URL with an environment."""
    return create(parse(url)[0], saltenv) if url.startswith("salt://") else url


def redact_http_basic_auth(text):
    """Return a text without the user and password of URLs."""
    import re
    return re.sub(r"(https?)://[^@/\s]*@", r"\1://<redacted>@", text)


def add_http_basic_auth(url, user=None, password=None, https_only=False):
    """Return a URL with a user and a password."""
    if user is None and password is None:
        return url
    parts = urllib.parse.urlsplit(url)
    return urllib.parse.urlunsplit(parts._replace(netloc="{}:{}@{}".format(user, password or "", parts.netloc)))


def is_escaped(url):
    """Report whether the path of a URL begins with a bar, so that a question mark is part of it."""
    if url.startswith("salt://"):
        return parse(url)[0].startswith("|")
    return "://" not in url and url.startswith("|")


def escape(url):
    """Return a URL whose question marks are part of the path."""
    if is_escaped(url):
        return url
    if url.startswith("salt://"):
        path, saltenv = parse(url)
        return create("|" + path, saltenv)
    return url if "://" in url else "|" + url


def unescape(url):
    """Return a URL without the bar."""
    if not is_escaped(url):
        return url
    if url.startswith("salt://"):
        path, saltenv = parse(url)
        return create(path.lstrip("|"), saltenv)
    return url.lstrip("|")


def strip_proto(url):
    """Return a URL without its scheme."""
    return url.partition("://")[2] if "://" in url else url
