"""Passwords."""

import secrets
import string


def secure_password(length=20, use_random=True, chars=None, lowercase=True, uppercase=True, digits=True,
                    punctuation=True, whitespace=False, printable=False):
    """Return a random password."""
    if chars is None:
        chars = "".join(s for s, use in (
            (string.ascii_lowercase, lowercase), (string.ascii_uppercase, uppercase), (string.digits, digits),
            (string.punctuation, punctuation)) if use)
    return "".join(secrets.choice(chars) for _ in range(int(length)))


def gen_hash(crypt_salt=None, password=None, algorithm=None):
    """Return the hash of a password, as it is in /etc/shadow; without a password that of a random one."""
    import brine_helper
    salt = brine_helper.GLOBALS["__salt__"]
    if password is None:
        password = secure_password()
    return salt["shadow.gen_password"](password, crypt_salt=crypt_salt, algorithm=algorithm or "sha512")
