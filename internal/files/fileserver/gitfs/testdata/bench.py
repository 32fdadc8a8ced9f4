# Times stock Salt's gitfs: ADDRESS CACHE PROVIDER.
import sys, time, logging
import salt.config, salt.fileserver
logging.disable(logging.CRITICAL)
opts = salt.config.master_config(None)
opts.update(cachedir=sys.argv[2], fileserver_backend=["gitfs"], gitfs_remotes=[sys.argv[1]], gitfs_base="main", gitfs_provider=sys.argv[3], fileserver_list_cache_time=0)
fs = salt.fileserver.Fileserver(opts)
def timed(what, f):
    start = time.perf_counter()
    r = f()
    print("%s %.1f ms;" % (what, (time.perf_counter() - start) * 1000), end=" ")
    return r
timed("first copy", lambda: (fs.init(), fs.update()))
timed("update without changes", fs.update)
files = timed("list", lambda: fs.file_list({"saltenv": "base", "prefix": ""}))
assert len(files) == 10000
timed("find 1000 files first", lambda: [fs.find_file(f, "base") for f in files[:1000]])
timed("find 1000 files again", lambda: [fs.find_file(f, "base") for f in files[:1000]])
