package dmi

import (
	"reflect"
	"testing"

	"brine/test/fuzztest"
)

// table has a BIOS, a system without strings, and the end marker.
var table = []byte("\x00\x06\x01\x00\x01\x02SeaBIOS\x001.16\x00\x00" + "\x01\x06\x02\x00\x00\x00\x00\x00" + "\x7f\x04\x03\x00\x00\x00" +
	"\x01\x04\x00\x00x\x00\x00")

func TestParseTable(t *testing.T) {
	got := ParseTable(table)
	if len(got) != 3 {
		t.Fatalf("%d structures: %+v", len(got), got)
	}
	if got[0].Vendor() != "SeaBIOS" || got[0].Text(5) != "1.16" || got[0].Handle() != 1 || got[0].Product() != "" {
		t.Errorf("BIOS is %+v", got[0])
	}
	if got[1].Manufacturer() != "" || got[1].Product() != "" || len(got[1].Strings) != 0 || got[1].Text(99) != "" {
		t.Errorf("system is %+v", got[1])
	}
	if got[2].Type != end {
		t.Errorf("the end is %+v", got[2])
	}
	for i := range table { // truncated anywhere: complete structures before it must be parsed
		cut := ParseTable(table[:i])
		if len(cut) > 0 && !reflect.DeepEqual(cut[0].Data, got[0].Data) {
			t.Errorf("cut at %d: %+v", i, cut)
		}
	}
}

func FuzzParseTable(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	f.Add(table)
	f.Add([]byte{1, 3, 0, 0})
	f.Add([]byte{1, 4, 0, 0, 'x'})
	f.Fuzz(func(t *testing.T, b []byte) {
		size := 0
		for _, s := range ParseTable(b) {
			size += len(s.Data)
			_ = s.Manufacturer() + s.Product() + s.Vendor()
			s.Handle()
		}
		if size > len(b) {
			t.Errorf("%d bytes out of %d", size, len(b))
		}
	})
}
