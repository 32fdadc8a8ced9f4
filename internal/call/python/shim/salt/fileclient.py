"""Files of the file server, by Brine's functions."""

import os

import brine_helper as _helper


def _cp(name, *args, **kwargs):
    return _helper.GLOBALS["__salt__"]["cp." + name](*args, **kwargs)


class Client:
    """Fetches and lists files."""

    def __init__(self, opts=None):
        self.opts = opts if opts is not None else dict(_helper.frame().tree("opts"))

    def cache_file(self, path, saltenv="base", **_):
        """Fetch a file into the cache and return its path."""
        return _cp("cache_file", path, saltenv=saltenv) or ""

    def cache_files(self, paths, saltenv="base", **_):
        """Fetch files into the cache and return their paths."""
        names = paths.split(",") if isinstance(paths, str) else paths
        return [self.cache_file(name, saltenv) for name in names]

    def cache_dir(self, path, saltenv="base", include_empty=False, include_pat=None, exclude_pat=None, **_):
        """Fetch a directory into the cache and return the paths of its files."""
        return _cp("cache_dir", path, saltenv=saltenv, include_empty=include_empty, include_pat=include_pat, exclude_pat=exclude_pat)

    def cache_master(self, saltenv="base", **_):
        """Fetch all files into the cache and return their paths."""
        return _cp("cache_master", saltenv=saltenv)

    def cache_local_file(self, path, **_):
        """Copy a file of this machine into the cache and return its path."""
        return _cp("cache_local_file", path)

    def get_file(self, path, dest="", makedirs=False, saltenv="base", **_):
        """Fetch a file to a path and return that, or "" if there is none."""
        if not dest:
            return self.cache_file(path, saltenv)
        return _cp("get_file", path, dest, saltenv=saltenv, makedirs=makedirs) or ""

    def get_url(self, url, dest="", makedirs=False, saltenv="base", no_cache=False, **_):
        """Fetch a URL to a path and return that."""
        if no_cache:
            return _cp("get_file_str", url, saltenv=saltenv)
        return _cp("get_url", url, dest, saltenv=saltenv, makedirs=makedirs) if dest else self.cache_file(url, saltenv)

    def get_dir(self, path, dest="", saltenv="base", **_):
        """Fetch a directory to a path and return the paths of its files."""
        return _cp("get_dir", path, dest, saltenv=saltenv)

    def get_template(self, url, dest, template="jinja", makedirs=False, saltenv="base", **kwargs):
        """Render a file to a path and return that."""
        return _cp("get_template", url, dest, template=template, saltenv=saltenv, makedirs=makedirs, **kwargs)

    def is_cached(self, path, saltenv="base", **_):
        """Return the path of a file in the cache, or ""."""
        return _cp("is_cached", path, saltenv=saltenv) or ""

    def hash_file(self, path, saltenv="base"):
        """Return the digest of a file and its kind."""
        return _cp("hash_file", path, saltenv=saltenv)

    def file_list(self, saltenv="base", prefix=""):
        """Return the names of files."""
        return _cp("list_master", saltenv=saltenv, prefix=prefix)

    def dir_list(self, saltenv="base", prefix=""):
        """Return the names of directories."""
        return _cp("list_master_dirs", saltenv=saltenv, prefix=prefix)

    def symlink_list(self, saltenv="base", prefix=""):
        """Return the targets of symbolic links by name."""
        return _cp("list_master_symlinks", saltenv=saltenv, prefix=prefix)

    def list_states(self, saltenv):
        """Return the names of SLS files."""
        return _cp("list_states", saltenv=saltenv)

    def get_state(self, sls, saltenv, **_):
        """Fetch an SLS file; return its URL and path, or an empty dict."""
        base = "salt://" + sls.replace(".", "/")
        for url in (base + ".sls", base + "/init.sls"):
            path = self.cache_file(url, saltenv)
            if path:
                return {"source": url, "dest": path}
        return {}

    def get_cachedir(self, cachedir=None):
        """Return the directory of the cache."""
        return os.path.join(self.opts["cachedir"], cachedir) if cachedir else self.opts["cachedir"]

    def envs(self):
        """Return the environments."""
        return _cp("envs")

    list_env = file_list

    def master_opts(self):
        """Return the options of the master."""
        return dict(_helper.frame().tree("opts"))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return False

    def destroy(self):
        """Do nothing: there is no connection."""


RemoteClient = FSClient = PillarClient = Client


def get_file_client(opts=None, pillar=False):
    """Return what fetches files."""
    return Client(opts)
