package runners

import (
	"bytes"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"brine/internal/call/fn"
	"brine/internal/py/value"
	"brine/internal/store/cache"
)

// sleeper returns a socket that receives the magic packets.
func sleeper(t *testing.T) (args string, woken func() string) {
	t.Helper()
	c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return " bcast=127.0.0.1 destport=" + strconv.Itoa(c.LocalAddr().(*net.UDPAddr).Port), func() string {
		b := make([]byte, 200)
		c.SetReadDeadline(time.Now().Add(time.Minute))
		n, err := c.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		if b = b[:n]; n != 102 || !bytes.Equal(b[:6], bytes.Repeat([]byte{0xff}, 6)) || !bytes.Equal(b[6:], bytes.Repeat(b[6:12], 16)) {
			t.Errorf("not a wake-up call: %x", b)
		}
		return net.HardwareAddr(b[6:12]).String()
	}
}

func TestWakeOnLAN(t *testing.T) {
	h := newHouse(t)
	to, woken := sleeper(t)
	for _, mac := range []string{"08-00-27-13-69-77", "080027136977", "08:00:27:13:69:77"} {
		h.want("network.wol "+mac+to, "True")
		if got := woken(); got != "08:00:27:13:69:77" {
			t.Errorf("%s woke %s", mac, got)
		}
	}
	for _, mac := range []string{"08", "08-00-27-13-69-7g", "'08-00:27-13-69-77'"} {
		if o := h.call("network.wol " + mac + to); o.Retcode != 1 || o.Err == nil {
			t.Errorf("%s: %v", mac, o.Return)
		}
	}
	grains := value.DictOf("hwaddr_interfaces", value.DictOf("lo", "00:00:00:00:00:00", "eth0", "02:00:00:00:00:01", "tun0", ":"))
	if err := h.deps.Cache.StoreMinion("beta", cache.Minion{Grains: grains}); err != nil {
		t.Fatal(err)
	}
	h.want("network.wolmatch '*'"+to, "['02:00:00:00:00:01']")
	if got := woken(); got != "02:00:00:00:00:01" {
		t.Errorf("woke %s", got)
	}
	h.want("network.wolmatch nobody"+to, "[]")
}

func TestWakeList(t *testing.T) {
	h := newHouse(t)
	to, woken := sleeper(t)
	path := filepath.Join(t.TempDir(), "list")
	if err := os.WriteFile(path, []byte("02:00:00:00:00:01\n\nsecret\n 020000000002 \r\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var told []string
	call := func(path string) any {
		c := &fn.Call{Progress: func(part any) { told = append(told, value.Repr(part)) }}
		args, kwargs := fn.ParseWords(shellWords(path+to), nil)
		return Run(t.Context(), h.reg, c, fn.Job{Fun: "network.wollist", Arg: fn.Wire(args, kwargs)}).Return
	}
	if got := value.Repr(call(path)); got != "['02:00:00:00:00:01', '020000000002']" {
		t.Errorf("got %s", got)
	}
	if a, b := woken(), woken(); a != "02:00:00:00:00:01" || b != "02:00:00:00:00:02" {
		t.Errorf("woke %s and %s", a, b)
	}
	if got := value.Repr(call("/no/such")); got != "[]" {
		t.Errorf("got %s", got)
	}
	want := []string{"{'message': 'Waking up 02:00:00:00:00:01'}", "{'error': 'line 3: " + errMAC.Error() + "'}", "{'message': 'Waking up 020000000002'}",
		"{'error': 'Failed to open the MAC file. Error: open /no/such: no such file or directory'}"}
	if !slices.Equal(told, want) {
		t.Errorf("told %q", told)
	}
}
