package packages_test

import (
	"bytes"
	"encoding/binary"
	"os"
	"slices"
	"strings"
	"testing"

	"brine/internal/base/salt"
	"brine/test/tools"
)

// Tags of the header of an rpm.
const (
	rpmName, rpmVersion               = 1000, 1001
	rpmProvides, rpmRequires          = 1047, 1049
	rpmConflicts                      = 1054
	rpmModes, rpmLinks                = 1030, 1036
	rpmDirIndexes, rpmBases, rpmPaths = 1116, 1117, 1118
)

// Types of values in the header of an rpm.
const rpmInt16, rpmInt32, rpmString, rpmStrings = 3, 4, 6, 8

// rpmFiles reads the header of an rpm, and checks its relations. If the machine has rpm, it
// must find the package whole, and see the same files.
func rpmFiles(t *testing.T, path string) map[string]entry {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const lead = 96
	_, size := rpmHeader(t, b[lead:])
	texts, _ := rpmHeader(t, b[lead+(size+7)/8*8:])
	name := texts[rpmName][0].(string)
	if texts[rpmVersion][0] != salt.BrineVersion {
		t.Errorf("%s has version %v", path, texts[rpmVersion])
	}
	stock := strings.TrimSuffix(strings.TrimPrefix(name, "brine-"), "-common")
	if stock != "brine" && name != "brine-hub" && name != "brine-python" && name != pam &&
		(!slices.Contains(texts[rpmProvides], any(stock)) || !slices.Contains(texts[rpmConflicts], any(stock))) {
		t.Errorf("%s provides %v and conflicts with %v", path, texts[rpmProvides], texts[rpmConflicts])
	}
	needs := map[string]string{"brine": "", "brine-salt-common": "brine", "brine-python": "brine"}
	if need := needs[name]; need != "" && !slices.Contains(texts[rpmRequires], any(need)) {
		t.Errorf("%s requires %v", path, texts[rpmRequires])
	}
	if name == pam && !slices.Contains(texts[rpmRequires], any("libpam.so.0()(64bit)")) {
		t.Errorf("%s requires %v", path, texts[rpmRequires])
	}
	files := map[string]entry{}
	for i, base := range texts[rpmBases] {
		dir := texts[rpmPaths][texts[rpmDirIndexes][i].(int64)].(string)
		mode := texts[rpmModes][i].(int64)
		files[dir+base.(string)] = entry{mode: mode, link: texts[rpmLinks][i].(string), dir: mode&0o170000 == 0o040000}
	}
	if rpm := tools.Find("rpm"); rpm != "" {
		run(t, rpm, "-K", "--nosignature", path)
		if listed := strings.Fields(string(run(t, rpm, "-qlp", path))); len(listed) != len(files) {
			t.Errorf("rpm sees %d files in %s, and this test %d", len(listed), path, len(files))
		}
	}
	return files
}

// rpmHeader returns the values of a header by their tags, as strings and int64, and its
// size in bytes.
func rpmHeader(t *testing.T, b []byte) (map[uint32][]any, int) {
	t.Helper()
	if !bytes.HasPrefix(b, []byte{0x8e, 0xad, 0xe8}) {
		t.Fatalf("no header of an rpm: % x", b[:16])
	}
	count, size := int(binary.BigEndian.Uint32(b[8:])), int(binary.BigEndian.Uint32(b[12:]))
	data := b[16+16*count:]
	out := map[uint32][]any{}
	for i := range count {
		e := b[16+16*i:]
		tag, kind := binary.BigEndian.Uint32(e), binary.BigEndian.Uint32(e[4:])
		at, n := data[binary.BigEndian.Uint32(e[8:]):], int(binary.BigEndian.Uint32(e[12:]))
		for range n {
			switch kind {
			case rpmInt16:
				out[tag] = append(out[tag], int64(binary.BigEndian.Uint16(at)))
				at = at[2:]
			case rpmInt32:
				out[tag] = append(out[tag], int64(binary.BigEndian.Uint32(at)))
				at = at[4:]
			case rpmString, rpmStrings:
				s, rest, _ := bytes.Cut(at, []byte{0})
				out[tag] = append(out[tag], string(s))
				at = rest
			}
		}
	}
	return out, 16 + 16*count + size
}
