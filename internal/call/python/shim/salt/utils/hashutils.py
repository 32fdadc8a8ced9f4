"""Hashes."""

import base64
import hashlib
import hmac as _hmac


def _bytes(value):
    return value.encode("utf-8") if isinstance(value, str) else value


def get_hash(path, form="sha256", chunk_size=65536):
    """Return the hash of a file."""
    sum_ = hashlib.new(form)
    with open(path, "rb") as source:
        for part in iter(lambda: source.read(chunk_size), b""):
            sum_.update(part)
    return sum_.hexdigest()


def md5_digest(instr):
    """Return the MD5 hash."""
    return hashlib.md5(_bytes(instr)).hexdigest()


def sha1_digest(instr):
    """Return the SHA-1 hash."""
    return hashlib.sha1(_bytes(instr)).hexdigest()


def sha256_digest(instr):
    """Return the SHA-256 hash."""
    return hashlib.sha256(_bytes(instr)).hexdigest()


def sha512_digest(instr):
    """Return the SHA-512 hash."""
    return hashlib.sha512(_bytes(instr)).hexdigest()


def base64_b64encode(instr):
    """Encode as base64."""
    return base64.b64encode(_bytes(instr)).decode("utf-8")


def base64_b64decode(instr):
    """Decode base64."""
    data = base64.b64decode(_bytes(instr))
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return data


base64_encodestring, base64_decodestring = base64_b64encode, base64_b64decode


def hmac_signature(string, shared_secret, challenge_hmac):
    """Report whether a signature is right."""
    made = _hmac.new(_bytes(shared_secret), _bytes(string), hashlib.sha256).digest()
    return _hmac.compare_digest(base64.b64encode(made), _bytes(challenge_hmac))


def hmac_compute(string, shared_secret):
    """Return an HMAC."""
    return _hmac.new(_bytes(shared_secret), _bytes(string), hashlib.sha256).hexdigest()


def random_hash(size=9999999999, hash_type="sha256"):
    """Return a random hash."""
    import os
    return hashlib.new(hash_type, os.urandom(32)).hexdigest()
