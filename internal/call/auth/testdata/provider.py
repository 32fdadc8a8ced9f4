"""An OpenID provider made of Authlib, for the test of the system oidc.

It prints its port, knows one client (brine, secret) and signs in whoever is
named in the request for authorization; a real one would ask for a password.
/rotate makes a new key, /token/mint signs what it is given, also what a
provider should not.
"""
import base64
import json
import sys
import time

from authlib.integrations.flask_oauth2 import AuthorizationServer
from authlib.jose import JsonWebKey, jwt
from authlib.oauth2.rfc6749 import grants
from authlib.oauth2.rfc7636 import CodeChallenge
from authlib.oidc.core import UserInfo
from authlib.oidc.core.grants import OpenIDCode
from flask import Flask, jsonify, request
from werkzeug.serving import make_server

USERS = {
    "ann": {"sub": "1", "preferred_username": "ann", "email": "ann@lab", "email_verified": True, "groups": ["ops", "dev"]},
    "bob": {"sub": "2", "preferred_username": "bob", "email": "ann@lab", "email_verified": False, "groups": "dev"},
}
keys = []
codes = {}
app = Flask(__name__)
issuer = None


def new_key():
    keys.insert(0, JsonWebKey.generate_key("RSA", 2048, {"use": "sig", "alg": "RS256", "kid": "k%d" % len(keys)}, is_private=True))


class Client:
    client_id, client_secret, redirect_uri = "brine", "client secret", "https://api.lab/callback"

    def get_client_id(self): return self.client_id
    def get_default_redirect_uri(self): return self.redirect_uri
    def get_allowed_scope(self, scope): return scope
    def check_redirect_uri(self, uri): return uri == self.redirect_uri
    def check_client_secret(self, s): return s == self.client_secret
    def check_endpoint_auth_method(self, method, endpoint): return method in ("client_secret_basic", "client_secret_post")
    def check_response_type(self, t): return t == "code"
    def check_grant_type(self, t): return t == "authorization_code"


class Code(dict):
    def __getattr__(self, k): return self.get(k)
    def get_redirect_uri(self): return self["redirect_uri"]
    def get_scope(self): return self["scope"]
    def get_nonce(self): return self.get("nonce")
    def get_auth_time(self): return int(time.time())


class Grant(grants.AuthorizationCodeGrant):
    TOKEN_ENDPOINT_AUTH_METHODS = ["client_secret_basic", "client_secret_post"]

    def save_authorization_code(self, code, req):
        codes[code] = Code(redirect_uri=req.redirect_uri, scope=req.scope, user=req.user, nonce=req.data.get("nonce"),
                           code_challenge=req.data.get("code_challenge"), code_challenge_method=req.data.get("code_challenge_method"))

    def query_authorization_code(self, code, client): return codes.get(code) and Code(codes[code], code=code)
    def delete_authorization_code(self, code): codes.pop(code["code"], None)
    def authenticate_user(self, code): return code["user"]


class OpenID(OpenIDCode):
    def exists_nonce(self, nonce, req): return False
    def get_jwt_config(self, grant): return {"key": keys[0], "alg": "RS256", "iss": issuer, "exp": 300}
    def generate_user_info(self, user, scope): return UserInfo(USERS[user])


server = AuthorizationServer(app, query_client=lambda i: Client() if i == Client.client_id else None, save_token=lambda token, req: None)
server.register_grant(Grant, [OpenID(require_nonce=False), CodeChallenge(required=False)])


@app.get("/.well-known/openid-configuration")
def discovery():
    return jsonify(issuer=issuer, authorization_endpoint=issuer + "/authorize", token_endpoint=issuer + "/token", jwks_uri=issuer + "/jwks",
                   response_types_supported=["code"], subject_types_supported=["public"], id_token_signing_alg_values_supported=["RS256"])


@app.get("/jwks")
def jwks(): return jsonify(keys=[k.as_dict(is_private=False) for k in keys])


@app.get("/authorize")
def authorize(): return server.create_authorization_response(grant_user=request.args["as"])


@app.post("/token")
def token(): return server.create_token_response()


@app.post("/rotate")
def rotate():
    new_key()
    return ""


@app.post("/mint")
def mint():
    d = request.get_json()
    now = int(time.time())
    claims = dict({"iss": issuer, "aud": "brine", "iat": now, "exp": now + 300, **USERS["ann"]}, **d.get("claims", {}))
    b64 = lambda b: base64.urlsafe_b64encode(b).rstrip(b"=").decode()
    how = d.get("how", "")
    if how == "none":
        return b64(b'{"alg":"none","typ":"JWT"}') + "." + b64(json.dumps(claims).encode()) + "."
    if how == "hmac":  # with the public key, which everybody knows, as the secret
        return jwt.encode({"alg": "HS256"}, claims, JsonWebKey.import_key(base64.b64encode(keys[0].as_pem()), {"kty": "oct"})).decode()
    key = JsonWebKey.generate_key("RSA", 2048, is_private=True) if how == "foreign" else keys[0]
    return jwt.encode({"alg": "RS256", "kid": keys[0].kid}, claims, key).decode()


if __name__ == "__main__":
    new_key()
    http = make_server("127.0.0.1", 0, app, threaded=True)
    issuer = "http://127.0.0.1:%d" % http.port
    app.config["OAUTH2_TOKEN_EXPIRES_IN"] = {"authorization_code": 300}
    print(http.port, flush=True)
    import logging
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    http.serve_forever()
