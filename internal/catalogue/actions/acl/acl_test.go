package acl

import (
	"testing"

	"brine/internal/py/value"
)

func TestReadACLs(t *testing.T) {
	got := value.Repr(aclsOf("# file: /srv/a\\040b\n# owner: root\n# group: joe\n# flags: -s-\nuser::rw-\nuser:ann:r-x\t#effective:r--\ngroup::r--\n" +
		"mask::r--\nother::---\ndefault:user::rwx\n\nnonsense\n"))
	want := "{'/srv/a b': {'comment': {'file': '/srv/a b', 'owner': 'root', 'group': 'joe', 'flags': '-s-'}, 'user': [{'root': {'permissions': " +
		"{'read': True, 'write': True, 'execute': False}, 'octal': 6}}, " +
		"{'ann': {'permissions': {'read': True, 'write': False, 'execute': True}, 'octal': 5}}], 'group': [{'joe': {'permissions': {'read': True, " +
		"'write': False, 'execute': False}, 'octal': 4}}], 'sgid': True, " +
		"'mask': [{'': {'permissions': {'read': True, 'write': False, 'execute': False}, 'octal': 4}}], 'other': [{'': {'permissions': {'read': " +
		"False, 'write': False, 'execute': False}, 'octal': 0}}], " +
		"'defaults': {'user': [{'root': {'permissions': {'read': True, 'write': True, 'execute': True}, 'octal': 7}}]}}}"
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	aclsOf("user::rw-\n# owner: x\n# flags: s\n")
}
