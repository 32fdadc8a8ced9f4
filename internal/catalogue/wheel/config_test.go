package wheel

import (
	"testing"

	"brine/internal/py/value"
	"brine/internal/py/yaml"
)

func TestHide(t *testing.T) {
	v, err := yaml.Load([]byte(`
sharedsecret: x1
mysql.pass: x2
auth.ldap.bindpw: x3
signing_key_pass: x4
key_pass: ''
s3.key: x5
gitfs_remotes:
  - https://me:x6@host/a.git: [{password: x7}, {mountpoint: salt://a}]
  - https://host/b.git
external_auth: {oidc: {^client_secret: x8, ops%: [.*]}, file: {alice: ['@runner']}}
consul: {host: h, token: x9}
keep_acl_in_token: true
token_expire: 3
hash_password: true
mongo_password: 77
`), "test")
	if err != nil {
		t.Fatal(err)
	}
	const want = "{'sharedsecret': '**********', 'mysql.pass': '**********', 'auth.ldap.bindpw': '**********', 'signing_key_pass': '**********', " +
		"'key_pass': '', 's3.key': '**********', " +
		"'gitfs_remotes': [{'https://<redacted>@host/a.git': [{'password': '**********'}, {'mountpoint': 'salt://a'}]}, 'https://host/b.git'], " +
		"'external_auth': {'oidc': {'^client_secret': '**********', 'ops%': ['.*']}, 'file': {'alice': ['@runner']}}, 'consul': {'host': 'h', " +
		"'token': '**********'}, " +
		"'keep_acl_in_token': True, 'token_expire': 3, 'hash_password': True, 'mongo_password': '**********'}"
	before := value.Repr(v)
	if got := value.Repr(hide(v)); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if value.Repr(v) != before {
		t.Error("the options themselves were changed")
	}
}
