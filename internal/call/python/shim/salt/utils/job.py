"""Jobs."""


def get_keep_jobs_seconds(opts):
    """Return how many seconds jobs are stored."""
    seconds, hours = opts.get("keep_jobs_seconds", 86400), opts.get("keep_jobs", 24)
    return hours * 3600 if seconds == 86400 and hours != 24 else seconds
