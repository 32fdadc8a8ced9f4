package counters

import (
	"encoding/binary"
	"testing"
	"time"
)

func TestLogins(t *testing.T) {
	for _, wide := range []bool{false, true} {
		size := 384
		if wide {
			size = 400
		}
		data := make([]byte, 3*size-1) // the last record is cut off
		for i, kind := range []uint16{2, userProcess} {
			r := data[i*size : (i+1)*size]
			binary.NativeEndian.PutUint16(r, kind)
			binary.NativeEndian.PutUint32(r[4:], 77)
			copy(r[atLine:], "pts/0")
			copy(r[atUser:], "root")
			copy(r[atHost:], "192.0.2.1")
			if wide {
				binary.NativeEndian.PutUint64(r[344:], 1700000000)
			} else {
				binary.NativeEndian.PutUint32(r[340:], 1700000000)
			}
		}
		got := parseLogins(data, wide)
		want := Login{User: "root", Terminal: "pts/0", Host: "192.0.2.1", PID: 77, Since: time.Unix(1700000000, 0)}
		if len(got) != 1 || got[0] != want {
			t.Errorf("wide %v: %+v", wide, got)
		}
	}
}
