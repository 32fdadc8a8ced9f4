"""Boxes of NaCl, by the library PyNaCl of this Python. Keys are those that the caller or the option nacl.config names."""

import base64
import os

import brine_helper as _helper

REQ_ERROR = None
try:
    import nacl.public
    import nacl.secret
except ImportError:
    REQ_ERROR = "PyNaCl import error, perhaps missing python PyNaCl package or should update."


def check_requirements():
    """Report whether PyNaCl is there, and what to do if it is not."""
    return (REQ_ERROR is None, REQ_ERROR)


def _bytes(data):
    return data.encode("utf-8") if isinstance(data, str) else bytes(data)


def _config(kwargs):
    """Return the kind of the box and the keys or their files: the caller's, then those of nacl.config, then defaults."""
    opts = kwargs.get("opts") or _helper.frame().tree("opts")
    own = os.path.join(opts.get("pki_dir") or "", "master", "nacl")
    config = {"box_type": "sealedbox", "sk": None, "sk_file": kwargs.get("sk_file") or own, "pk": None,
              "pk_file": kwargs.get("pk_file") or own + ".pub"}
    salt = _helper.GLOBALS["__salt__"]
    config.update((salt["config.get"]("nacl.config", {}) if "config.get" in salt else opts.get("nacl.config")) or {})
    config.update({k: v for k, v in kwargs.items() if k in config})
    return config


def _key(config, name, missing):
    """Return the secret or the public key."""
    text = config[name]
    if not text:
        try:
            with open(config[name + "_file"], "rb") as file:
                text = file.read().rstrip(b"\n")
        except OSError:
            raise Exception(missing) from None
    return base64.b64decode(text)


def _secret(kwargs):
    return _key(_config(kwargs), "sk", "no key or sk_file found")


def _public(kwargs):
    return _key(_config(kwargs), "pk", "no pubkey or pk_file found")


def _save(path, data, mode=None):
    with open(path, "wb") as file:
        if mode is not None:
            os.chmod(path, mode)
        file.write(base64.b64encode(data))


def keygen(sk_file=None, pk_file=None, **kwargs):
    """Return a new pair of keys, or save it in files. Of a secret key that exists the public one is saved."""
    sk_file = kwargs.get("keyfile", sk_file)
    if sk_file is None:
        pair = nacl.public.PrivateKey.generate()
        return {"sk": base64.b64encode(pair.encode()), "pk": base64.b64encode(pair.public_key.encode())}
    pk_file = pk_file or sk_file + ".pub"
    if os.path.isfile(sk_file):
        if os.path.isfile(pk_file):
            raise Exception("sk_file:{} and pk_file:{} already exist.".format(sk_file, pk_file))
        pair = nacl.public.PrivateKey(_key({"sk": None, "sk_file": sk_file}, "sk", "no key or sk_file found"))
        _save(pk_file, pair.public_key.encode())
        return "saved pk_file: {}".format(pk_file)
    pair = nacl.public.PrivateKey.generate()
    _save(sk_file, pair.encode(), 0o600)
    _save(pk_file, pair.public_key.encode())
    return "saved sk_file:{}  pk_file: {}".format(sk_file, pk_file)


def _old_names(kwargs):
    """Return the keywords with those that older versions used under their names of today, and whether the box is a secret one."""
    for old, new in (("keyfile", "sk_file"), ("key", "sk")):
        if old in kwargs:
            kwargs = dict(kwargs, box_type="secretbox", **{new: kwargs[old]})
    return kwargs, _config(kwargs)["box_type"] == "secretbox"


def enc(data, **kwargs):
    """Return encrypted data, in base64."""
    kwargs, secret = _old_names(kwargs)
    return secretbox_encrypt(data, **kwargs) if secret else sealedbox_encrypt(data, **kwargs)


def dec(data, **kwargs):
    """Return decrypted data."""
    kwargs, secret = _old_names(kwargs)
    return secretbox_decrypt(data, **kwargs) if secret else sealedbox_decrypt(data, **kwargs)


def _of_file(name, out, function, kwargs):
    """Return what a function makes of a file, or write it to another one that does not exist."""
    salt = _helper.GLOBALS["__salt__"]
    data = salt["cp.get_file_str"](name) if "cp.get_file_str" in salt else None
    if not isinstance(data, str):
        with open(name, encoding="utf-8") as file:
            data = file.read()
    result = function(data, **kwargs)
    if not out:
        return result
    if os.path.isfile(out):
        raise Exception("file:{} already exist.".format(out))
    with open(out, "wb") as file:
        file.write(_bytes(result))
    return "Wrote: {}".format(out)


def enc_file(name, out=None, **kwargs):
    """Encrypt a file."""
    return _of_file(name, out, enc, kwargs)


def dec_file(name, out=None, **kwargs):
    """Decrypt a file."""
    return _of_file(name, out, dec, kwargs)


def sealedbox_encrypt(data, **kwargs):
    """Encrypt data with a public key."""
    return base64.b64encode(nacl.public.SealedBox(nacl.public.PublicKey(_public(kwargs))).encrypt(_bytes(data)))


def sealedbox_decrypt(data, **kwargs):
    """Decrypt data with the secret key."""
    if data is None:
        return None
    return nacl.public.SealedBox(nacl.public.PrivateKey(_secret(kwargs))).decrypt(base64.b64decode(_bytes(data)))


def secretbox_encrypt(data, **kwargs):
    """Encrypt data with a secret key."""
    return base64.b64encode(nacl.secret.SecretBox(_secret(kwargs)).encrypt(_bytes(data)))


def secretbox_decrypt(data, **kwargs):
    """Decrypt data with the secret key with which it was encrypted."""
    if data is None:
        return None
    return nacl.secret.SecretBox(_secret(kwargs)).decrypt(base64.b64decode(_bytes(data)))
