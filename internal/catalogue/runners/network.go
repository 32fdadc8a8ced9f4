package runners

import (
	"bufio"
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"

	"brine/internal/call/fn"
	"brine/internal/py/value"
)

type network struct{ selection }

func init() { runners.Register("network", networkModule) }

func networkModule(d Deps) fn.Module {
	n := network{d.selection()}
	return fn.Module{Name: "network", Doc: `Wake-on-LAN.`, Funcs: []fn.Func{
		fn.Of("wol", n.wol, `Wake the machine with a MAC address.`,
			fn.Example("salt-run network.wol 08-00-27-13-69-77"), fn.Example("salt-run network.wol 080027136977 255.255.255.255 7")),
		fn.Of("wollist", n.wollist, `Wake the machines whose MAC addresses are in a file, one per line, and return the addresses.`,
			fn.Example("salt-run network.wollist /path/to/maclist"), fn.Example("salt-run network.wollist /path/to/maclist 255.255.255.255 7")),
		fn.Of("wolmatch", n.wolmatch, `Wake the minions of a target, using their cached grains, and return their MAC addresses.`,
			fn.Example("salt-run network.wolmatch minion_id"), fn.Example("salt-run network.wolmatch 192.168.0.0/16 tgt_type=ipcidr bcast=255.255.255.255 destport=7")),
	}}
}

// wakeArgs are the destination of a magic packet.
type wakeArgs struct {
	Broadcast string `salt:"bcast" doc:"IPv4 address to send to" default:"255.255.255.255"`
	Port      uint16 `salt:"destport" doc:"UDP port to send to" default:"9"`
}

// wake sends a magic packet for one MAC address.
func (a wakeArgs) wake(ctx context.Context, address string) error {
	mac, err := parseMAC(address)
	if err != nil {
		return err
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, "udp4", net.JoinHostPort(a.Broadcast, strconv.Itoa(int(a.Port))))
	if err != nil {
		return fn.Errorf("cannot send to %s: %w", a.Broadcast, err)
	}
	defer conn.Close()
	if _, err = conn.Write(slices.Concat(bytes.Repeat([]byte{0xff}, 6), bytes.Repeat(mac, 16))); err != nil {
		return fn.Errorf("cannot send to %s: %w", a.Broadcast, err)
	}
	return nil
}

var errMAC = errors.New("a MAC address has twelve hexadecimal digits, such as 080027136977 or 08:00:27:13:69:77")

// parseMAC parses an address with or without separators between the bytes.
func parseMAC(text string) ([]byte, error) {
	if len(text) == 17 {
		text = strings.ReplaceAll(text, text[2:3], "")
	}
	b, err := hex.DecodeString(text)
	if err != nil || len(b) != 6 {
		return nil, errMAC
	}
	return b, nil
}

type wolArgs struct {
	MAC any `salt:"mac" doc:"MAC address"`
	wakeArgs
}

func (network) wol(ctx context.Context, _ *fn.Call, a wolArgs) (bool, error) {
	if err := a.wake(ctx, value.Str(a.MAC)); err != nil {
		return false, err
	}
	return true, nil
}

type wollistArgs struct {
	Path string `salt:"maclist" doc:"file on the master"`
	wakeArgs
}

// maxList bounds the size of a file of addresses, in bytes.
const maxList = 1 << 20

func (network) wollist(ctx context.Context, c *fn.Call, a wollistArgs) (*value.List, error) {
	ret := &value.List{}
	f, err := os.Open(a.Path)
	if err != nil {
		c.Report(value.DictOf("error", "Failed to open the MAC file. Error: "+err.Error()))
		return ret, nil
	}
	defer f.Close()
	lines := bufio.NewScanner(io.LimitReader(f, maxList))
	for n := 1; lines.Scan(); n++ {
		mac := strings.TrimSpace(lines.Text())
		if mac == "" {
			continue
		}
		if err := a.wake(ctx, mac); err != nil {
			c.Report(value.DictOf("error", fmt.Sprintf("line %d: %s", n, err))) // omits the line, which may contain a secret
			continue
		}
		c.Report(value.DictOf("message", "Waking up "+mac))
		ret.Append(mac)
	}
	return ret, lines.Err()
}

type wolmatchArgs struct {
	Tgt     any    `salt:"tgt" doc:"target"`
	TgtType string `salt:"tgt_type" doc:"type of the target" default:"glob"`
	wakeArgs
}

func (n network) wolmatch(ctx context.Context, c *fn.Call, a wolmatchArgs) (*value.List, error) {
	ids, err := n.minions(a.Tgt, a.TgtType)
	if err != nil {
		return nil, err
	}
	ret := &value.List{}
	for _, id := range ids {
		for name, v := range n.cache.MinionData(id).Grains.Dict("hwaddr_interfaces").All() {
			mac := strings.TrimSpace(value.Str(v))
			if name == "lo" {
				continue
			}
			if err := a.wake(ctx, mac); errors.Is(err, errMAC) { // a tunnel, which has no MAC address
				c.Log.Info("not a usable interface", "minion", id, "interface", value.Str(name))
				continue
			} else if err != nil {
				return nil, err
			}
			c.Log.Info("Waking up " + mac)
			ret.Append(mac)
		}
	}
	return ret, nil
}
