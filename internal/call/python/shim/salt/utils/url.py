"""URLs of file servers."""

import urllib.parse


def parse(url):
    """Return the path and the environment of a URL."""
    if not url.startswith("salt://"):
        return url, None
    path, _, query = url[len("salt://"):].partition("?")
    return path, dict(urllib.parse.parse_qsl(query)).get("saltenv")


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
