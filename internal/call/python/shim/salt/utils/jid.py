"""Job ids."""

import datetime


def gen_jid(opts=None):
    """Return a job id."""
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%d%H%M%S%f")


def is_jid(jid):
    """Report whether a text can be a job id."""
    return isinstance(jid, str) and len(jid) in (20, 27) and jid[:20].isdigit()


MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def jid_to_time(jid):
    """Return the time at which a job began."""
    jid = str(jid)
    if not is_jid(jid):
        return ""
    return "{}, {} {} {}:{}:{}.{}".format(jid[:4], MONTHS[int(jid[4:6]) - 1], jid[6:8], jid[8:10], jid[10:12], jid[12:14], jid[14:20])


def format_job_instance(job):
    """Return a job as runners show it."""
    out = {"Function": job.get("fun", "unknown-function"), "Arguments": list(job.get("arg", [])),
           "Target": job.get("tgt", "unknown-target"), "Target-type": job.get("tgt_type", "list"), "User": job.get("user", "root")}
    if "metadata" in job:
        out["Metadata"] = job["metadata"]
    elif "metadata" in job.get("kwargs", {}):
        out["Metadata"] = job["kwargs"]["metadata"]
    return out


def format_jid_instance(jid, job):
    """Return a job with its time."""
    return dict(format_job_instance(job), StartTime=jid_to_time(jid))


def format_jid_instance_ext(jid, job):
    """Return a job with its id and its time."""
    return dict(format_job_instance(job), JID=jid, StartTime=jid_to_time(jid))


def jid_dir(jid, job_dir=None, hash_type="sha256"):
    """Return the directory of a job."""
    import hashlib
    import os
    digits = hashlib.new(hash_type, str(jid).encode("utf-8")).hexdigest()
    return os.path.join(job_dir or "", digits[:2], digits[2:])
