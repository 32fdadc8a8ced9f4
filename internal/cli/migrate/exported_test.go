package migrate

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"brine/internal/net/crypt"
)

// TestExportedKeys: keys that salt-key printed as JSON are copied with their states.
func TestExportedKeys(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/etc/master", "root_dir: "+dir+"\n")
	pub := func() string {
		k, err := crypt.GenerateKey(2048)
		if err != nil {
			t.Fatal(err)
		}
		return string(k.Public().PEM())
	}
	keys := map[string]map[string]any{"minions": {"a": pub(), "b": pub()}, "minions_pre": {"c": pub()}, "minions_denied": {"a": []string{pub(), pub()}}}
	text, err := json.Marshal(keys)
	if err != nil {
		t.Fatal(err)
	}
	write(t, dir+"/keys.json", string(text))
	code, out, errs := runIn(t, nil, "keys", "-c", dir+"/etc", "--from", dir+"/keys.json", "--to", dir+"/pki", "--out=json")
	if code != 0 || !strings.Contains(out, `"copied": 4`) {
		t.Fatalf("%d %s%s", code, out, errs)
	}
	for path, want := range map[string]any{"minions/a": keys["minions"]["a"], "minions/b": keys["minions"]["b"], "minions_pre/c": keys["minions_pre"]["c"]} {
		got, err := os.ReadFile(dir + "/pki/" + path)
		if err != nil || strings.TrimSpace(string(got)) != strings.TrimSpace(want.(string)) {
			t.Errorf("%s: %q, %v", path, got, err)
		}
	}
	for file, want := range map[string]string{
		`[1]`: "is not the output of salt-key -P --out=json", `{"minions": {"../a": "x"}}`: "../a", `{"others": {"a": "x"}}`: `there is no state "others" of keys`,
		`{"minions": {"a": 5}}`: "the key of a in minions is not a string",
	} {
		write(t, dir+"/wrong.json", file)
		code, out, errs := runIn(t, nil, "keys", "-c", dir+"/etc", "--from", dir+"/wrong.json", "--to", dir+"/none")
		if code == 0 || !strings.Contains(errs, want) {
			t.Errorf("%s: %d %s%s", file, code, out, errs)
		}
	}
}
