"""Fingerprints and encrypted data."""

import hashlib

import brine_helper as _helper


def pem_finger(path=None, key=None, sum_type="sha256"):
    """Return the fingerprint of a key, or "" if there is none."""
    if not key:
        try:
            with open(path or "", "rb") as file:
                key = b"".join([line for line in file if line.strip()][1:-1])
        except OSError:
            return ""
    if isinstance(key, str):
        key = key.encode()
    digest = hashlib.new(sum_type, key).hexdigest()
    return ":".join(digest[i:i + 2] for i in range(0, len(digest), 2))


def decrypt(data, rend=None, translate_newlines=False, renderers=None, opts=None, valid_rend=None):
    """Return data whose texts a renderer has decrypted."""
    if isinstance(data, dict):
        return {k: decrypt(v, rend, translate_newlines) for k, v in data.items()}
    if isinstance(data, list):
        return [decrypt(v, rend, translate_newlines) for v in data]
    if not isinstance(data, str):
        return data
    text = data.replace(r"\n", "\n") if translate_newlines else data
    return _helper.GLOBALS["__salt__"]["slsutil.renderer"](string=text, default_renderer=rend or "gpg")
