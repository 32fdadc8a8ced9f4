package files

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"brine/internal/call/fn"
	"brine/internal/catalogue/modules/stocktest"
	"brine/internal/py/value"
)

const hashTable, hashSignatures = "testdata/hashutil.json", "testdata/hashutil-signatures.json"

func hashRegistry(t *testing.T) *fn.Registry {
	t.Helper()
	r, err := fn.NewRegistry(nil, hashutilModule())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestHashutilLikeSalt(t *testing.T) {
	stocktest.Compare(t, hashTable, hashRegistry(t), func() *fn.Call { return &fn.Call{} })
	stocktest.Signatures(t, hashSignatures, []fn.Module{hashutilModule()}, nil)
}

func TestHashutilRecordingIsTrue(t *testing.T) {
	stocktest.Verify(t, hashTable)
	stocktest.Verify(t, hashSignatures)
}

func TestHashutilFiles(t *testing.T) {
	r, path := hashRegistry(t), filepath.Join(t.TempDir(), "f")
	run := func(fun string, arg ...any) any {
		return r.Run(t.Context(), &fn.Call{}, fn.Job{Fun: fun, Arg: arg}).Return
	}
	if got := run("hashutil.base64_decodefile", "AAH/\n", path); got != true {
		t.Fatal(got)
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != "\x00\x01\xff" {
		t.Errorf("%q, %v", b, err)
	}
	if got := run("hashutil.base64_encodefile", path); got != "AAH/\n" {
		t.Errorf("%q", got)
	}
	if got := run("hashutil.digest_file", path, "sha256"); got != "26a66b061e8f48f39927c312f25293959729eee95978e2892d49d3512a5cc092" {
		t.Errorf("%q", got)
	}
	if got, want := run("hashutil.digest_file", path), run("hashutil.base64_b64decode", "AAH/"); value.TypeName(want) != "bytes" ||
		got != run("hashutil.md5_digest", want) {
		t.Errorf("%q, %q", got, want)
	}
	for _, c := range [][]any{{"hashutil.base64_b64decode", "A"}, {"hashutil.base64_encodefile", "/nothing"},
		{"hashutil.base64_decodefile", "AA==", "/nothing/x"}, {"hashutil.github_signature", "a", "b", "crc=0"}} {
		if got := value.Str(run(c[0].(string), c[1:]...)); !strings.HasPrefix(got, "ERROR") {
			t.Errorf("%v: %s", c, got)
		}
	}
}
